"""Sentences per second that a model translates on a CPU, here and in PyTorch.

    python benchmarks/cpu_decode.py [--models multi30k,small] [--run DIR --data DIR] [--sentences 1000] [--beams 1,4]
                                    [--threads 1,2] [--without pytorch_bf16] [--repetitions 20] [--out DIR]
                                    [--quick]

A translation is the whole way from the source's ids to the best hypothesis' ids: the encoder and the search, no text.
A cell is a model, a number of threads and a beam (1 is greedy search). Scratchformer and PyTorch (rival_decoding.py)
get the same weights and the same batches and follow the same algorithm. First all that compute in float32 must find
the same translations; then all take turns. The minimum over all repetitions counts, since on a shared machine
everything above it is the work of others. README.md here says more.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

import numpy as np
from cpu_step import QUICK, TASKS
from harness import EAGER, OURS, cell_by_cell, counts, names_from, over_ours, record, spread_of, take_turns
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.backends.cpu import FrozenOps, keep_freed_memory
from scratchformer.decoding.search import Hypothesis, search
from scratchformer.decoding.translator import SENTENCES_AT_ONCE
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.transformer import Transformer
from scratchformer.parallel.forks import map_in_processes
from scratchformer.text.batches import Sequences, encode_sequences
from scratchformer.text.corpora import read_lines
from scratchformer.text.tokenizer import BOS, EOS, PAD, UNK
from scratchformer.training.run import load_run

SPREAD = "pytorch_batches"
"""PyTorch with each thread at a batch of its own; the threads of EAGER share each operation."""

BF16 = "_bf16"
"""Ends the names of ways that compute in bfloat16. They may find other translations."""

WAYS = [name + precision for precision in ("", BF16) for name in (EAGER, SPREAD)]
"""The columns beside ours; SPREAD on several threads only."""

ALPHA = 0.6  # exponent of the length penalty
EXTRA_LENGTH = 2  # with random weights, which hardly ever write EOS: all get so much longer
TYPICAL, SPREAD_OF_LENGTHS = 13.4, 0.3  # of captions: median in tokens, standard deviation of the logarithm
SHORTEST, LONGEST = 5, 35
TEST_FILE = "test_2016_flickr.en"
SAME_SHARE = 0.99  # of the translations must be the same; the others, ties
TOLERANCE = 1e-3  # of scores, in nats


class Task(NamedTuple):
    """A model, and batches (B, S) of sources as `Translator` makes them, the shortest first."""

    model: Transformer
    weights: str
    batches: list[np.ndarray]
    extra_length: int


def random_task(name: str, sentences: int, quick: bool) -> Task:
    config, _ = TASKS[name]
    model = Transformer((configs.with_settings(config, QUICK) if quick else config).model, 0)
    return Task(model, "random", batches_by_length(random_sentences(model.config.vocab_size, sentences)), EXTRA_LENGTH)


def trained_task(run: Path, data: Path, sentences: int) -> Task:
    """The first sentences of the test set."""
    translator = load_run(run)
    lines = [line for line in read_lines(data / TEST_FILE) if line.strip()][:sentences]
    sources = encode_sequences(translator.tokenizer.encode, lines)
    return Task(translator.model, "trained", batches_by_length(sources), translator.extra_length)


def random_sentences(vocab_size: int, count: int) -> Sequences:
    """Random words, as many as captions have: 14 tokens on average, EOS counted."""
    random = np.random.default_rng(0)
    lengths = random.lognormal(math.log(TYPICAL), SPREAD_OF_LENGTHS, count).round().clip(SHORTEST, LONGEST).astype(int)
    ends = np.cumsum(lengths)
    ids = random.integers(UNK + 1, vocab_size, ends[-1], dtype=np.int32)
    ids[ends - 1] = EOS
    return Sequences(ids, np.concatenate([[0], ends]))


def batches_by_length(sources: Sequences, at_once: int = SENTENCES_AT_ONCE) -> list[np.ndarray]:
    by_length = np.argsort(sources.lengths, kind="stable")
    return [sources.padded(by_length[start : start + at_once]) for start in range(0, len(by_length), at_once)]


# The programs ---------------------------------------------------------------------------------------------------------

Decode = Callable[[list[np.ndarray]], list[Hypothesis]]
"""From batches of sources to the best translation of each sentence."""


def our_decode(
    model: Transformer, batches: list[np.ndarray], beam: int, threads: int, extra_length: int, ops: Ops
) -> list[Hypothesis]:
    """A batch to each process, as `Translator` does it."""

    def work(batch: np.ndarray) -> list[list[Hypothesis]]:
        with using(ops):
            return search(model, batch, beam, ALPHA, extra_length)

    with threadpool_limits(1, "blas"):
        found = list(map_in_processes(work, batches[::-1], threads))[::-1]  # the longest first
    return [nbest[0] for of_batch in found for nbest in of_batch]


def programs(task: Task, beam: int, threads: int, without: list[str]) -> dict[str, Decode]:
    import torch
    from rival_decoding import Searcher, Weights, search_in_operations, search_over_batches

    sizes = {"beam": beam, "threads": threads, "extra_length": task.extra_length}
    found: dict[str, Decode] = {OURS: partial(our_decode, task.model, **sizes, ops=FrozenOps())}
    longest = max(batch.shape[1] for batch in task.batches)
    for precision, dtype in (("", torch.float32), (BF16, torch.bfloat16)):
        made = Weights(task.model, dtype), beam, ALPHA, task.extra_length, SENTENCES_AT_ONCE, longest
        ways = {
            EAGER: partial(search_in_operations, Searcher(*made), threads=threads),
            SPREAD: partial(search_over_batches, [Searcher(*made) for _ in range(threads)]),
        }
        for name, decode in ways.items():
            if name + precision not in without and (name != SPREAD or threads > 1):
                found[name + precision] = decode
    return found


def agreement(task: Task, name: str, ours: list[Hypothesis], theirs: list[Hypothesis]) -> dict[str, float]:
    """Compare translations with ours -> the share of identical ones, id by id, and the mean of their score minus ours.

    Raises AssertionError for a difference in float32 that rounding does not explain: rounding may only break ties.
    """
    n_same = 0
    sources = [row[row != PAD] for batch in task.batches for row in batch]
    for source, mine, other in zip(sources, ours, theirs, strict=True):
        n_same += mine.ids == other.ids
        far = abs(mine.score - other.score) > TOLERANCE and not name.endswith(BF16)
        if far and not is_tie(task.model, source, mine.ids, other.ids):
            raise AssertionError(f"not the same search: {mine} here and {other} in {name} for {source.tolist()}")
    if n_same < SAME_SHARE * len(sources) and not name.endswith(BF16):
        raise AssertionError(f"not the same search: only {n_same} of {len(sources)} translations of {name} agree")
    higher = np.mean([other.score - mine.score for mine, other in zip(ours, theirs)])
    return {"identical_share": round(n_same / len(sources), 5), "score_over_ours": round(float(higher), 5)}


def is_tie(model: Transformer, source: np.ndarray, mine: list[int], other: list[int]) -> bool:
    """True if the first tokens that differ are equally likely, so that greedy search may go either way."""
    if mine == other:
        return False
    mine, other = [*mine, EOS], [*other, EOS]
    first = next(position for position, (a, b) in enumerate(zip(mine, other)) if a != b)
    logits, _ = model.forward(source[None], np.array([[BOS, *mine[:first]]]))
    likely = logits[0, -1]  # but for a constant
    return abs(likely[mine[first]] - likely[other[first]]) <= TOLERANCE


# Cells ----------------------------------------------------------------------------------------------------------------


def measure(task: Task, threads: int, beam: int, repetitions: int, without: list[str]) -> dict[str, Any]:
    decodes = programs(task, beam, threads, without)
    with threadpool_limits(threads, "blas"):
        found = {name: decode(task.batches) for name, decode in decodes.items()}
        agreements = {name: agreement(task, name, found[OURS], found[name]) for name in found if name != OURS}
        # Threads that each take batches cannot be timed batch by batch; otherwise short turns are better.
        units = [[batch] for batch in task.batches] if threads == 1 else [task.batches]
        turns = take_turns(decodes, units, repetitions)
    spread = {name: spread_of(times, np.sum) for name, times in turns.seconds.items()}
    sentences = sum(map(len, task.batches))
    in_float32 = [each["identical_share"] for name, each in agreements.items() if not name.endswith(BF16)]
    return {
        "weights": task.weights,
        "config": asdict(task.model.config),
        "alpha": ALPHA,
        "extra_length": task.extra_length,
        "sentences": sentences,
        "batches": len(task.batches),
        "generated_tokens": sum(len(hypothesis.ids) for hypothesis in found[OURS]),
        "identical_share": min(in_float32),
        "agreement": agreements,
        "seconds": spread,
        "sentences_per_second": {name: round(sentences / labels["minimum"], 1) for name, labels in spread.items()},
        "time_over_ours": over_ours(spread),
        "fastest_over_fastest": fastest_over_fastest({name: labels["minimum"] for name, labels in spread.items()}),
        "missing": dict.fromkeys(without, "left out"),
    }


def fastest_over_fastest(seconds: dict[str, float]) -> dict[str, float]:
    """The time of PyTorch's fastest way over ours, in float32."""
    theirs = [each for way, each in seconds.items() if way != OURS and not way.endswith(BF16)]
    return {"fp32 over fp32": round(min(theirs) / seconds[OURS], 3)}


def options(parser: argparse.ArgumentParser) -> None:
    optional = [name for name in WAYS if name != EAGER]
    models = ["multi30k", "small"]
    parser.add_argument("--models", type=names_from(TASKS), default=models, help="(default: multi30k,small)")
    parser.add_argument("--run", type=Path, help="a trained model's run: its weights instead of multi30k's random ones")
    parser.add_argument("--data", type=Path, help=f"where {TEST_FILE} is, which that model then translates")
    parser.add_argument("--sentences", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--beams", type=counts, default=[1, 4], help="1 is greedy search (default: 1,4)")
    parser.add_argument("--threads", type=counts, default=[1, 2], help="for all programs (default: 1,2)")
    parser.add_argument("--without", type=names_from(optional), default=[], help=f"some of {', '.join(optional)}")
    parser.add_argument("--repetitions", type=int, default=20, help="of every batch (default: %(default)s)")


def measure_all(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    repetitions, sentences = (2, 12) if arguments.quick else (arguments.repetitions, arguments.sentences)
    keep_freed_memory()  # as the command line does

    def measured(name: str, threads: int, beam: int) -> dict[str, Any]:
        if arguments.run and name == "multi30k":
            task = trained_task(arguments.run, arguments.data, sentences)
        else:
            task = random_task(name, sentences, arguments.quick)
        found = measure(task, threads, beam, repetitions, arguments.without) | {"repetitions": repetitions}
        print(name, f"{threads} threads, beam {beam}, time over ours:", found["time_over_ours"]["minimum"], flush=True)
        return found

    cells = [(name, n, beam) for name in arguments.models for n in arguments.threads for beam in arguments.beams]
    yield from cell_by_cell(("model", "threads", "beam"), cells, measured)


if __name__ == "__main__":
    record("cpu_decode", __doc__, measure_all, options, threads=None, torch=True)
