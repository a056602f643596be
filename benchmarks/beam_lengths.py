"""Lengths of the translations of larger beams: do all shrink, or do a few collapse?

    python benchmarks/beam_lengths.py SOURCE REFERENCE RUN [RUN ...] [--quick] [--out DIR]

Without arguments, the shipped model (data/tiny_model) on the bundled long sentences. README.md here says how the
recorded runs were trained. Only numbers are written, no text: BLEU can be computed from them, not a sentence.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Iterable

import numpy as np
from harness import number, record
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
from small_training import settings_of

from scratchformer.decoding.incremental import begin_decoding, decoding_step
from scratchformer.decoding.search import search
from scratchformer.decoding.translator import Translator
from scratchformer.nn.ops import chunks
from scratchformer.text.batches import encode_sequences
from scratchformer.text.corpora import read_pairs
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training.run import load_run
from support.bleu_by_hand import N, bleu, count_table

SHIPPED = [Path("data/tiny/test_long.en"), Path("data/tiny/test_long.de"), Path("data/tiny_model")]
SETTINGS = [(1, 0.0), *((beam, alpha) for alpha in (0.0, 0.6) for beam in (2, 4, 8, 16))]
AT_ONCE = 50
QUICK = 10  # sentences

split_13a = Tokenizer13a()


def words(lines: Iterable[str]) -> list[list[str]]:
    return [split_13a(line).split() for line in lines]


def row(values: Iterable[int]) -> str:
    """One line of the file instead of one for each number."""
    return " ".join(str(int(value)) for value in values)


def of_end(translator: Translator, source_ids: np.ndarray) -> np.ndarray:
    """log P(</s> | source) as the first piece, and its rank among them, 1 for the likeliest. (B, S) -> (2, B)"""
    model = translator.model
    logits, _ = decoding_step(model, np.full((len(source_ids), 1), BOS), begin_decoding(model, source_ids))
    logits, of_end = logits[:, 0].astype(float), logits[:, 0, EOS].astype(float)
    return np.stack([of_end - np.logaddexp.reduce(logits, axis=-1), 1 + (logits > of_end[:, None]).sum(axis=-1)])


def batches_of(translator: Translator, source: list[str]) -> list[np.ndarray]:
    encoded = encode_sequences(translator.tokenizer.encode, source)
    return [encoded.padded(np.arange(len(source))[part]) for part in chunks(len(source), AT_ONCE)]


def measured(run: Path, source: list[str], reference: list[str]) -> dict[str, Any]:
    """For each setting what the search wrote, as numbers of a sentence each; the config of the run."""
    translator = load_run(run)
    tokenizer, sources = translator.tokenizer, batches_of(translator, source)
    empty, rank = np.concatenate([of_end(translator, source_ids) for source_ids in sources], axis=1)
    wanted = words(reference)
    settings = []
    for beam, alpha in SETTINGS:
        found = [best for source_ids in sources for [best] in search(translator.model, source_ids, beam, alpha)]
        table = count_table(words(tokenizer.decode([best.ids for best in found])), wanted)  # (sentences, 9)
        log_p = np.array([best.log_probability for best in found])
        total = table.sum(axis=0)
        summary = {
            "beam": beam,
            "alpha": alpha,
            "bleu": number(float(bleu(total))),
            "length_ratio": number(total[N] / total[-1]),
            "log_probability": number(log_p.mean()),
            "empty": sum(not best.ids for best in found),
            "empty_is_likelier": int((empty > log_p + 1e-4).sum()),
        }
        print(summary, flush=True)
        rows = {"tokens": row(len(best.ids) + 1 for best in found), "words": row(table[:, N])}
        matches = {f"matches_{n}": row(table[:, n - 1]) for n in range(1, N + 1)}
        settings.append(summary | rows | matches)
    return {
        "config": settings_of(run),
        "rank_of_end": row(rank),
        "reference_words": row(map(len, wanted)),
        "settings": settings,
    }


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="SOURCE REFERENCE RUN ...")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    source, reference, *runs = arguments.files or SHIPPED
    pairs = read_pairs(source, reference)
    count = QUICK if arguments.quick else len(pairs.source)
    results = [measured(run, pairs.source[:count], pairs.target[:count]) for run in runs]
    seeds = [result["config"]["training"]["seed"] for result in results]
    return {"seeds": seeds, "sentences": count, "results": results}


if __name__ == "__main__":
    record("beam_lengths", __doc__, measure, options)
