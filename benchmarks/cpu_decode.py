"""Sentences per second that a model translates on a CPU, here and in PyTorch.

    python benchmarks/cpu_decode.py [--models multi30k,small] [--run DIR --data DIR] [--sentences 1000] [--beams 1,4]
                                    [--threads 1,2] [--without pytorch_bf16] [--repetitions 20] [--out DIR]
                                    [--keep] [--quick]

A translation is the whole way from the source's ids to the best hypothesis' ids: the encoder and the search, no text.
A cell is a model, a beam (1 is greedy search) and a number of threads. Scratchformer and PyTorch (rival_decoding.py)
get the same weights and the same batches and follow the same algorithm. First all that compute in float32 must find
the same translations; then all take turns. What counts is the minimum over all repetitions, since on a
shared machine everything above it is somebody else's work. README.md here says more.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import math
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np
from cpu_step import (
    OURS,
    QUARTILES,
    QUICK,
    RESULTS,
    TASKS,
    WARM_UP,
    names_from,
    number,
    other_cells,
    positive,
    take_turns,
)
from cpu_step import thread_counts as counts
from provenance import surroundings
from small_training import write
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.backends.cpu import FrozenOps, keep_freed_memory
from scratchformer.decoding.incremental import begin_decoding
from scratchformer.decoding.search import Hypothesis, search
from scratchformer.decoding.translator import LINES_AT_ONCE, SENTENCES_AT_ONCE
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.transformer import Transformer
from scratchformer.parallel.forks import map_in_processes
from scratchformer.text.batches import Sequences, encode_sequences
from scratchformer.text.corpora import read_lines
from scratchformer.text.tokenizer import BOS, EOS, PAD, UNK
from scratchformer.training.run import load_run

THEIRS, SPREAD, USUAL = "pytorch", "pytorch_batches", "pytorch_usual"
"""PyTorch with its threads inside each operation, and with each thread at a batch of its own, both written for speed;
and as it is usually written, with its threads inside each operation."""

BF16 = "_bf16"
"""Ends the names of ways that compute in bfloat16. They may find other translations."""

WAYS = [name + precision for precision in ("", BF16) for name in (THEIRS, SPREAD, USUAL)]
"""The columns beside ours; SPREAD on several threads only."""

DEFAULT_MODELS = ["multi30k", "small"]
SEED = 0  # of random weights, and of random sentences
ALPHA = 0.6  # exponent of the length penalty
EXTRA_LENGTH = 2  # with random weights, which hardly ever write EOS: all get so much longer
TYPICAL, SPREAD_OF_LENGTHS = 13.4, 0.3  # of captions: median in tokens, standard deviation of the logarithm
SHORTEST, LONGEST = 5, 35
TEST_FILE = "test_2016_flickr.en"
QUICK_SENTENCES = 12

SAME_SHARE = 0.99  # of the translations must be the same; the others, ties
TOLERANCE = 1e-3  # of scores, in nats

# What is translated ---------------------------------------------------------------------------------------------------


class Task(NamedTuple):
    """A model, and batches (B, S) of sources as `Translator` makes them, the shortest first."""

    model: Transformer
    weights: str
    batches: list[np.ndarray]
    extra_length: int


def random_task(name: str, sentences: int, quick: bool) -> Task:
    config = TASKS[name].config
    model = Transformer((configs.with_settings(config, QUICK) if quick else config).model, SEED)
    sources = random_sentences(model.config.vocab_size, sentences)
    return Task(model, "random", batches_by_length(sources), EXTRA_LENGTH)


def trained_task(run: Path, data: Path, sentences: int) -> Task:
    """The first sentences of the test set.

    Raises ValueError if a file is missing or damaged, or if the rival cannot be this model.
    """
    from rival_decoding import Weights

    translator = load_run(run)
    Weights(translator.model)
    lines = [line for line in read_lines(data / TEST_FILE) if line.strip()][:sentences]
    sources = encode_sequences(translator.tokenizer.encode, lines)
    return Task(translator.model, "trained", batches_by_length(sources), translator.extra_length)


def random_sentences(vocab_size: int, count: int) -> Sequences:
    """Random words, as many as captions have: 14 tokens on average, EOS counted."""
    random = np.random.default_rng(SEED)
    lengths = random.lognormal(math.log(TYPICAL), SPREAD_OF_LENGTHS, count).round().clip(SHORTEST, LONGEST).astype(int)
    ends = np.cumsum(lengths)
    ids = random.integers(UNK + 1, vocab_size, ends[-1], dtype=np.int32)
    ids[ends - 1] = EOS
    return Sequences(ids, np.concatenate([[0], ends]))


def batches_by_length(sources: Sequences) -> list[np.ndarray]:
    by_length = np.argsort(sources.lengths, kind="stable")
    return [
        sources.padded(by_length[start : start + SENTENCES_AT_ONCE])
        for start in range(0, len(by_length), SENTENCES_AT_ONCE)
    ]


# The rivals -----------------------------------------------------------------------------------------------------------

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


def our_reading(model: Transformer, batches: list[np.ndarray], beam: int, ops: Ops) -> None:
    with using(ops):
        for batch in batches:
            begin_decoding(model, batch, beam)


def their_reading(searcher: Any, batches: list[np.ndarray]) -> None:
    for batch in batches:
        searcher.start(batch)


class Rivals(NamedTuple):
    """decodes  the ways to decode
    readers  of some, the first part, in which the sources are read: the encoder, and the keys and values of its output
    missing  why a way is not among them
    """

    decodes: dict[str, Decode]
    readers: dict[str, Callable[[list[np.ndarray]], None]]
    missing: dict[str, str]


def rivals(task: Task, beam: int, threads: int, without: Sequence[str] = ()) -> Rivals:
    import torch
    from rival_decoding import Searcher, UsualSearcher, Weights, search_in_operations, search_over_batches

    model, _, batches, extra_length = task
    found = decodes, readers, missing = Rivals({}, {}, dict.fromkeys(without, "left out"))
    ops = FrozenOps()
    decodes[OURS] = partial(our_decode, model, beam=beam, threads=threads, extra_length=extra_length, ops=ops)
    readers[OURS] = partial(our_reading, model, beam=beam, ops=ops)
    for precision, dtype in (("", torch.float32), (BF16, torch.bfloat16)):
        longest = max(batch.shape[1] for batch in batches)
        sizes = Weights(model, dtype), beam, ALPHA, extra_length, SENTENCES_AT_ONCE, longest
        searchers = [Searcher(*sizes) for _ in range(threads)]
        ways = {
            THEIRS: partial(search_in_operations, searchers[0], threads=threads),
            USUAL: partial(search_in_operations, UsualSearcher(*sizes), threads=threads),
            SPREAD: partial(search_over_batches, searchers),
        }
        for name, decode in ways.items():
            if name + precision not in without and (name != SPREAD or threads > 1):
                decodes[name + precision] = decode
        readers.setdefault(THEIRS, partial(their_reading, searchers[0]))
    return found


# Are they the same? ---------------------------------------------------------------------------------------------------


def agreement(task: Task, name: str, ours: list[Hypothesis], theirs: list[Hypothesis]) -> dict[str, float]:
    """Compare translations with ours -> the share of identical ones, id by id, and the mean of their score minus ours.

    Ours are in float32, with NumPy's products; scores are in nats.

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
        raise AssertionError(
            f"not the same search: only {n_same} of {len(sources)} translations of {name} are the same"
        )
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


# One cell -------------------------------------------------------------------------------------------------------------


def measure(
    name: str, task: Task, beam: int, threads: int, repetitions: int, without: Sequence[str] = ()
) -> dict[str, Any]:
    import torch

    decodes, readers, missing = rivals(task, beam, threads, without)
    with threadpool_limits(threads, "blas"):
        found = {rival: decode(task.batches) for rival, decode in decodes.items()}
        agreements = {rival: agreement(task, rival, found[OURS], found[rival]) for rival in found if rival != OURS}
        # Threads that each take batches cannot be timed batch by batch; otherwise short turns are better.
        units = [[batch] for batch in task.batches] if threads == 1 else [task.batches]
        turns = take_turns(decodes, units, repetitions)
        torch.set_num_threads(threads)
        # Reading alone is shared among threads in another way than reading and writing: it would not be their part.
        reading = take_turns(readers, units, repetitions).seconds if threads == 1 else {}
        pinned = {THEIRS: torch.get_num_threads(), OURS: {"threads": threads, "blas": 1}}
    spread, reading_spread = (
        {rival: in_all(times) for rival, times in each.items()} for each in (turns.seconds, reading)
    )
    sentences = sum(map(len, task.batches))
    return {
        "model": name,
        "weights": task.weights,
        "beam": beam,
        "threads": threads,
        "threads_pinned": pinned,
        "config": asdict(task.model.config),
        "alpha": ALPHA,
        "extra_length": task.extra_length,
        "sentences": sentences,
        "batches": len(task.batches),
        "source_tokens": sum(int(np.count_nonzero(batch != PAD)) for batch in task.batches),
        "generated_tokens": sum(len(hypothesis.ids) for hypothesis in found[OURS]),
        "identical_share": min(
            each["identical_share"] for rival, each in agreements.items() if not rival.endswith(BF16)
        ),
        "agreement": agreements,
        "seconds": spread,
        "seconds_of_reading": reading_spread,
        "sentences_per_second": {rival: round(sentences / labels["minimum"], 1) for rival, labels in spread.items()},
        "time_over_ours": {
            label: {rival: round(labels[label] / spread[OURS][label], 3) for rival, labels in spread.items()}
            for label in ("minimum", "median")
        },
        "fastest_over_fastest": fastest_over_fastest({rival: labels["minimum"] for rival, labels in spread.items()}),
        "missing": missing,
        "page_faults": {rival: round(float(each.mean(axis=0).sum())) for rival, each in turns.faults.items()},
    }


def in_all(times: np.ndarray) -> dict[str, float]:
    """Seconds (repetitions, units) -> minimum and quartiles over the repetitions, summed over the units."""
    return {label: round(float(np.percentile(times, percent, axis=0).sum()), 5) for label, percent in QUARTILES.items()}


def fastest_over_fastest(seconds: dict[str, float]) -> dict[str, float]:
    """The time of PyTorch's fastest way over ours, in float32."""
    theirs = [each for way, each in seconds.items() if way != OURS and not way.endswith(BF16)]
    return {"fp32 over fp32": round(min(theirs) / seconds[OURS], 3)} if theirs else {}


# All cells ------------------------------------------------------------------------------------------------------------


def measure_all(
    tasks: dict[str, Task],
    beams: list[int],
    threads: list[int],
    repetitions: int,
    out: Path,
    keep: bool = False,
    without: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """The file is written after each cell, so what is measured is kept; with `keep`, also what it holds of others."""
    around = surroundings()  # now: git may move while we measure
    around["versions"]["torch"] = importlib.metadata.version("torch")
    paths_cut = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    head = {
        "benchmark": "cpu_decode",
        "command": " ".join(["python benchmarks/cpu_decode.py", *paths_cut]),
        "warm_up": WARM_UP,
        "seed": SEED,
    }
    anew = {(name, n_threads, beam) for name in tasks for n_threads in threads for beam in beams}
    cells = other_cells(out / "cpu_decode.json", ("model", "threads", "beam"), anew) if keep else []
    for name, task in tasks.items():
        for n_threads in threads:
            for beam in beams:
                cells.append(
                    measure(name, task, beam, n_threads, repetitions, without)
                    | {"repetitions": repetitions, "date": around["date"], "commit": around["commit"]}
                )
                write(out, "cpu_decode", {**head, "cells": cells, **around})
                print_cell(cells[-1])
    return cells


def print_cell(cell: dict[str, Any]) -> None:
    pinned = cell["threads_pinned"]
    print(
        f"{cell['model']} ({cell['weights']}), beam {cell['beam']}, {cell['threads']} thread(s) (pinned: PyTorch "
        f"{pinned[THEIRS]}, here {pinned[OURS]['threads']} with a BLAS thread each), {cell['sentences']} sentences, "
        f"{cell['generated_tokens']} tokens found, {cell['identical_share']:.2%} the same; seconds, minimum "
        "(quartiles):"
    )
    for name, labels in cell["seconds"].items():
        minimum, *quartiles = (f"{seconds:.2f}" for seconds in labels.values())
        reading = cell["seconds_of_reading"].get(name, {}).get("minimum")
        print(
            f"    {name:20} {minimum:>7} ({', '.join(quartiles)})"
            + (f", of which the encoder {reading:.2f}" if reading else ""),
            flush=True,
        )
    for name, each in cell["agreement"].items():
        if name.endswith(BF16):
            print(f"    {name}: {each['identical_share']:.1%} the same, score {each['score_over_ours']:+.4f}")
    for name, reason in cell["missing"].items():
        print(f"    {name}: {reason}")


def print_table(cells: list[dict[str, Any]]) -> None:
    """A row per cell."""
    pairs = list(cells[0]["fastest_over_fastest"])
    print(
        f"\nSentences a second, {OURS}; PyTorch's time over it, written for speed and as usual;\n"
        "and the time of PyTorch's fastest way in float32 over ours. Minima.\n"
    )
    print(
        f"{'model':9} {'weights':8} {'beam':>4} {'threads':>7} {OURS:>13} {'fast':>7} {'usual':>7} "
        + " ".join(f"{pair:>14}" for pair in pairs)
    )
    for cell in cells:
        minima = cell["time_over_ours"]["minimum"]
        fast = min(minima[name] for name in (THEIRS, SPREAD) if name in minima)
        print(
            f"{cell['model']:9} {cell['weights']:8} {cell['beam']:4} {cell['threads']:7} "
            f"{cell['sentences_per_second'][OURS]:13.0f} {fast:7.2f} {number(minima.get(USUAL)):>7} "
            + " ".join(f"{number(cell['fastest_over_fastest'].get(pair)):>14}" for pair in pairs)
        )


def main() -> None:
    optional = [name for name in WAYS if name != THEIRS]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=names_from(TASKS), default=DEFAULT_MODELS, help="(default: multi30k,small)")
    parser.add_argument("--run", type=Path, help="a trained model's run: its weights instead of multi30k's random ones")
    parser.add_argument("--data", type=Path, help=f"where {TEST_FILE} is, which that model then translates")
    parser.add_argument("--sentences", type=positive, default=1000, help="(default: %(default)s)")
    parser.add_argument("--beams", type=counts, default=[1, 4], help="1 is greedy search (default: 1,4)")
    parser.add_argument("--threads", type=counts, default=[1, 2], help="for all rivals (default: 1,2)")
    parser.add_argument(
        "--without", type=names_from(optional), default=[], help=f"leave out some of these: {', '.join(optional)}"
    )
    parser.add_argument("--repetitions", type=positive, default=20, help="of every batch (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result (default: results/ here)")
    parser.add_argument("--keep", action="store_true", help="what the result of an earlier run says of other cells")
    parser.add_argument("--quick", action="store_true", help="2 repetitions of small models, to see that it runs")
    arguments = parser.parse_args()
    if not arguments.out.is_dir():
        parser.error(f"--out: {arguments.out} is not a directory")
    if importlib.util.find_spec("torch") is None:
        parser.error("there is no PyTorch to compare with: pip install torch")
    if arguments.sentences > LINES_AT_ONCE:
        parser.error(f"--sentences: only {LINES_AT_ONCE} are sorted by length at once")
    if (arguments.run is None) != (arguments.data is None) or arguments.run and "multi30k" not in arguments.models:
        parser.error("--run and --data go together, and with the model multi30k")

    repetitions = 2 if arguments.quick else arguments.repetitions
    sentences = min(QUICK_SENTENCES, arguments.sentences) if arguments.quick else arguments.sentences
    try:
        tasks = {
            name: (
                trained_task(arguments.run, arguments.data, sentences)
                if arguments.run and name == "multi30k"
                else random_task(name, sentences, arguments.quick)
            )
            for name in arguments.models
        }
    except ValueError as error:  # UserError is one
        parser.error(str(error))
    keep_freed_memory()  # as the command line does
    print_table(
        measure_all(
            tasks, arguments.beams, arguments.threads, repetitions, arguments.out, arguments.keep, arguments.without
        )
    )


if __name__ == "__main__":
    main()
