"""What does a larger beam find, and is it better? Greedy search, and beams with several length penalties.

    python benchmarks/beam_sizes.py [RUN SOURCE REFERENCE] [--quick] [--out DIR]

Without arguments, the shipped model (data/tiny_model) on the bundled test set. What is recorded used the run of
results/multi30k_cpu.json, which is too large to ship, and its test set:

    python benchmarks/beam_sizes.py runs/multi30k data/multi30k/test_2016_flickr.en data/multi30k/test_2016_flickr.de
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from provenance import surroundings
from small_training import RESULTS, number, write
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.decoding.incremental import begin_decoding, decoding_step
from scratchformer.decoding.search import Hypothesis, search
from scratchformer.decoding.translator import Translator
from scratchformer.nn.ops import chunks
from scratchformer.text.batches import encode_sequences
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.corpora import read_pairs
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training.run import RunDirectory, load_run

SHIPPED = [Path("data/tiny_model"), Path("data/tiny/test.en"), Path("data/tiny/test.de")]
BEAMS, ALPHAS = (1, 2, 4, 8, 16), (0.0, 0.6, 1.0)
AT_ONCE = 50
QUICK = 10  # sentences


def setting(
    translator: Translator, sources: list[np.ndarray], references: list[str], beam: int, alpha: float
) -> dict[str, Any]:
    """BLEU and length ratio of the best translations; their log probability in nats and tokens, EOS included, on
    average; and in what share of the sentences the empty translation is likelier than the one found."""
    found = [best for source_ids in sources for [best] in search(translator.model, source_ids, beam, alpha)]
    scores = corpus_scores(translator.tokenizer.decode([best.ids for best in found]), references)
    log_p = np.array([best.log_probability for best in found])
    empty = np.concatenate([log_p_of_empty(translator, source_ids) for source_ids in sources])
    result = {
        "beam": beam,
        "alpha": alpha,
        "bleu": number(scores.bleu),
        "length_ratio": number(scores.length_ratio),
        "log_probability": number(log_p.mean()),
        "tokens": number(np.mean([n_tokens(best) for best in found])),
        "empty_is_likelier": number((empty > log_p).mean()),
    }
    print(result, flush=True)
    return result


def n_tokens(hypothesis: Hypothesis) -> int:
    return len(hypothesis.ids) + 1


def log_p_of_empty(translator: Translator, source_ids: np.ndarray) -> np.ndarray:
    """log P(</s> | source) of each source (B, S) -> (B,)"""
    model = translator.model
    logits, _ = decoding_step(model, np.full((len(source_ids), 1), BOS), begin_decoding(model, source_ids))
    logits = logits[:, 0].astype(float)
    return logits[:, EOS] - np.logaddexp.reduce(logits, axis=-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, default=SHIPPED, metavar="FILE", help="RUN SOURCE REFERENCE")
    parser.add_argument("--quick", action="store_true", help="a few sentences, to see that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result (default: results/ here)")
    arguments = parser.parse_args()
    run, source, reference = arguments.files
    with threadpool_limits(1):
        provenance = surroundings()  # now: git may move while we measure
        translator = load_run(run)
        pairs = read_pairs(source, reference)
        count = QUICK if arguments.quick else len(pairs.source)
        encoded = encode_sequences(translator.tokenizer.encode, pairs.source[:count])
        sources = [encoded.padded(np.arange(count)[part]) for part in chunks(count, AT_ONCE)]
        results = [
            setting(translator, sources, pairs.target[:count], beam, alpha)
            for beam in BEAMS
            for alpha in ALPHAS
            if beam > 1 or math.isclose(alpha, 0.6)
        ]
    config = configs.to_dict(configs.load(RunDirectory(run).config_file))
    write(
        arguments.out,
        "beam_sizes",
        {
            "provenance": provenance,
            "config": {part: config[part] for part in ("model", "training")},
            "seeds": [config["training"]["seed"]],
            "sentences": count,
            "results": results,
        },
    )


if __name__ == "__main__":
    main()
