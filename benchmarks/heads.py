"""Scores of each attention head of trained models, by `scratchformer.experiments.heads`.

    python benchmarks/heads.py [RUN ...] [--quick] [--out DIR]

Without RUN, the shipped model (data/tiny_model). The recorded results used it and three more, with other seeds:

    for seed in 1 2 3; do
        scratchformer train tiny --seed $seed --out runs/tiny_seed$seed
        scratchformer average runs/tiny_seed$seed --last 5
    done
    python benchmarks/heads.py data/tiny_model runs/tiny_seed1 runs/tiny_seed2 runs/tiny_seed3

The functions below say what is recorded; None stands for what is not finite.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Sequence

import numpy as np
from harness import number, record

from scratchformer import config as configs
from scratchformer.decoding.translator import Translator
from scratchformer.experiments import heads
from scratchformer.nn.attention import CrossAttention, SelfAttention
from scratchformer.nn.head_gate import gated
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.ops import PAD
from scratchformer.text import bundled
from scratchformer.text.bundled import PERSONAL, Example, both_right, words
from scratchformer.training.run import RunDirectory, load_run

SHIPPED = Path("data/tiny_model")
QUICK = 20  # examples of each set


def scores_of(run: Path, pairs: list[Example], test: list[Example]) -> dict[str, Any]:
    translator = load_run(run)
    seed = configs.load(RunDirectory(run).config_file).training.seed
    result = {"seed": seed, "pronouns": pronouns(translator, pairs), "alignment": alignment(translator, test)}
    print(
        f"seed {seed}: pronouns {result['pronouns']['intact']}, without a layer "
        f"{result['pronouns']['without_layer']}",
        flush=True,
    )
    return result


# Pronouns -------------------------------------------------------------------------------------------------------------


def pronouns(translator: Translator, pairs: list[Example]) -> dict[str, Any]:
    """looks: each view, [layer][head]: PronounScore, and of the mean over a layer's heads. adjective: [layer][head] of
    cross-attention, the mean weight, while the pronoun is being written, of the word that decides what it stands for.
    Then PronounChoice of the whole model and of the model without a head, a layer's heads, all heads of a kind."""
    attended = [heads.sentence_attention(translator, example) for example in pairs]
    weights = [heads.pronoun_weights(each, example) for each, example in zip(attended, pairs)]
    looks = {}
    for view in heads.PRONOUN_VIEWS:
        of_view = np.stack([each[view] for each in weights], axis=2)  # (N, H, examples, 2)
        looks[view] = {
            "heads": [[plain(heads.pronoun_score(head, pairs)) for head in layer] for layer in of_view],
            "mean_of_layer": [plain(heads.pronoun_score(layer.mean(axis=0), pairs)) for layer in of_view],
        }
    deciding = np.mean(
        [
            heads.cross_attention_at_pronoun(each, example)[..., deciding_word(example, pairs)]
            for each, example in zip(attended, pairs)
        ],
        axis=0,
    )  # (N, H)
    kinds = heads.attention_layers(translator.model)
    every = range(translator.model.config.h)

    def without(*removed: tuple[SelfAttention | CrossAttention, Any]) -> dict[str, float | None]:
        with ExitStack() as stack:
            for layer, which in removed:
                [gate] = stack.enter_context(gated([layer]))
                gate.xi.data[list(which)] = 0
            return plain(pronoun_choice(translator, pairs))

    return {
        "looks": looks,
        "intact": without(),
        "adjective": [[number(weight) for weight in layer] for layer in deciding],
        "without_head": {
            kind: [[without((layer, [head])) for head in every] for layer in layers] for kind, layers in kinds.items()
        },
        "without_layer": {kind: [without((layer, every)) for layer in layers] for kind, layers in kinds.items()},
        "without_kind": {kind: without(*((layer, every) for layer in layers)) for kind, layers in kinds.items()},
    }


class PronounChoice(NamedTuple):
    """Choices of a model between er, sie and es after it has read the reference so far.

    accuracy       share of the sentences in which the right one is the most probable of the three
    pair_accuracy  share of the minimal pairs in which it is in both sentences
    other_loss     loss of all other pieces, in nats per piece
    """

    accuracy: float
    pair_accuracy: float
    other_loss: float


def pronoun_choice(translator: Translator, examples: Sequence[Example]) -> PronounChoice:
    """Compare the logits of er, sie and es at the place of the pronoun, on minimal pairs."""
    tokenizer, rows = translator.tokenizer, np.arange(len(examples))
    source_ids, target_in_ids, target_out_ids = heads.teacher_forced(tokenizer, examples)
    logits, _ = translator.model.forward(source_ids, target_in_ids)  # (B, T, V)
    candidates = {name: tokenizer.encode([name])[0][0] for name in PERSONAL.values()}
    if len(set(candidates.values())) < len(candidates):
        raise ValueError(f"the first pieces of {', '.join(candidates)} are not distinct in this vocabulary")
    links = [example.coreference or {} for example in examples]
    target_words = [heads.words_of_pieces(tokenizer, example.target) for example in examples]
    at_pronoun = rows, [list(each).index(link.get("target_pronoun")) for each, link in zip(target_words, links)]
    expected = [list(candidates).index(link["expected"]) for link in links]
    right = logits[at_pronoun][:, list(candidates.values())].argmax(axis=-1) == expected
    others = target_out_ids.copy()
    others[at_pronoun] = PAD
    loss_sum, n_tokens, _ = cross_entropy(logits, others)
    return PronounChoice(float(right.mean()), float(both_right(right, examples).mean()), float(loss_sum) / n_tokens)


def deciding_word(example: Example, pairs: list[Example]) -> int:
    """The one word in which the other sentence of the minimal pair differs."""
    other = next(each for each in pairs if each.coreference["pair"] == example.coreference["pair"] and each != example)
    [differs] = [
        index
        for index, (mine, its) in enumerate(zip(words(example.source), words(other.source), strict=True))
        if mine != its
    ]
    return differs


# Alignment ------------------------------------------------------------------------------------------------------------


def alignment(translator: Translator, test: list[Example]) -> dict[str, Any]:
    """heads: [layer][head]: AlignmentScore of cross-attention; of the mean over a layer's heads; of two baselines"""
    attended = [heads.sentence_attention(translator, example) for example in test]
    chosen = [heads.aligned_words(each.cross, each) for each in attended]
    blurred = [heads.aligned_words(each.cross.mean(axis=1), each) for each in attended]
    lengths = [(len(words(example.target)), len(words(example.source))) for example in test]
    N, H = chosen[0].shape[:2]
    return {
        "heads": [
            [plain(heads.alignment_score([each[layer, head] for each in chosen], test)) for head in range(H)]
            for layer in range(N)
        ],
        "mean_of_layer": [plain(heads.alignment_score([each[layer] for each in blurred], test)) for layer in range(N)],
        "diagonal": plain(heads.alignment_score([heads.diagonal_alignment(*each) for each in lengths], test)),
        "by_chance": number(heads.chance_accuracy(test)),
    }


def plain(scores: NamedTuple) -> dict[str, float | None]:
    return {name: number(value) for name, value in scores._asdict().items()}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", type=Path, default=[SHIPPED], metavar="RUN", help="directories of runs")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    count = QUICK if arguments.quick else None
    pairs, test = bundled.read("test_coreference")[:count], bundled.read("test")[:count]
    results = [scores_of(run, pairs, test) for run in arguments.runs]
    return {
        "config": configs.to_dict(configs.load(RunDirectory(arguments.runs[0]).config_file)),
        "seeds": [result["seed"] for result in results],
        "results": results,
    }


if __name__ == "__main__":
    record("heads", __doc__, measure, options)
