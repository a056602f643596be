"""Bits per character of a small GPT on our lessons, beside n-gram models, and its speed beside PyTorch.

    python benchmarks/language_model.py [--seeds 1] [--runs DIR] [--quick] [--out DIR]

The preset `gpt-tiny` is trained on the 22 lessons (`docs/lessons/NN_*.md`); a tenth of each validates.
`results` has the bits per character of the validation text for each seed, with the last weights, with the best
checkpoint (chosen by the same text), and with the mean of the last ones, as `scratchformer average` makes it; `n_grams`
those of Kneser-Ney's models. A run that is in the directory of --runs already goes on from its last checkpoint.

`speed` compares with `rival.RivalGPT`, nanoGPT's idiom in PyTorch, on one thread. Both take turns at the same training
steps, and at writing texts within the window, with and without a cache. The same weights give the same loss in both.
Times are minima and quartiles over the repetitions; `tokens_per_second` and ratios are those of the minima.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import zlib
from pathlib import Path
from typing import Any, Callable, Iterable

import numpy as np
from cpu_step import our_step
from harness import EAGER, OURS, over_ours, record, rounded, spread_of, take_turns
from ngram import kneser_ney
from provenance import ROOT, git
from training_runs import average_of_last, finished

import scratchformer.config as configs
from scratchformer.backends.cpu import FAST, FastOps, keep_freed_memory
from scratchformer.config import Config
from scratchformer.decoding.generation import Sampling, generate, probabilities
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.ops import Ops, using
from scratchformer.tasks.language_model import LanguageModelTask, loss_on
from scratchformer.tasks.task import Corpus
from scratchformer.text.batches import Batch, batch_of
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training.run import RunDirectory, load_model

LESSONS = sorted((ROOT / "docs" / "lessons").glob("[0-9][0-9]_*.md"))
QUICK = {"model.vocab_size": 500, "model.d_model": 16, "model.d_ff": 32, "model.N": 1, "training.steps": 4}
QUICK |= {"training.validate_every": 2, "training.save_every": 2, "training.score_every": 2}
HIGHEST_ORDERS = 18, 12
"""Of the n-gram models over characters and over tokens: about a minute, and 3 GiB of memory."""
N_WRITTEN = 100
"""Tokens that a text of the generation benchmark has."""


def learned(config: Config, path: Path) -> dict[str, Any]:
    """Train a run, or the rest of it, and score it -> its entry in the results."""
    run = RunDirectory(path)
    finished(run, config)
    average_of_last(run, config)
    steps, texts, bits = run.read_log("step"), LanguageModelTask().read(config), {}
    for which in ("last", "best", "average"):
        nats, n_tokens = loss_on(load_model(path, which), texts.val)
        bits[which] = per_character(nats * n_tokens / math.log(2), texts)
    return {
        "seed": config.training.seed,
        "steps": steps[-1]["step"],
        "target_tokens": steps[-1]["all_target_tokens"],
        "train_seconds": round(sum(step["seconds"] for step in steps)),
        "curve": rounded([[entry["step"], entry["loss"]] for entry in run.read_log("validation")]),
        "bits_per_character": bits,
    }


def per_character(bits: float, texts: Corpus) -> float:
    return round(bits / sum(map(len, texts.val)), 4)


def n_gram_bits(texts: Corpus, tokenizer: Any, of_characters: int, of_tokens: int) -> dict[str, list[float]]:
    """Bits per character of the validation text, by n-gram models for n = 1, 2, ... over characters and over tokens.

    The characters are those of the training text, the end of a text, and one for all others; such a character takes 8
    bits more for each of its bytes in UTF-8.
    """
    known = {character: number for number, character in enumerate(sorted(set("".join(texts.train))))}
    end, other = len(known), len(known) + 1

    def symbols(some: Iterable[str]) -> list[list[int]]:
        return [[*(known.get(character, other) for character in text), end] for text in some]

    def tokens(some: Iterable[str]) -> list[list[int]]:
        return [[*ids, EOS] for ids in tokenizer.encode(some)]

    spelled = sum(8 * len(character.encode()) for text in texts.val for character in text if character not in known)
    found = {}
    for name, encode, orders, size, more in (
        ("characters", symbols, of_characters, len(known) + 2, spelled),
        ("tokens", tokens, of_tokens, tokenizer.vocab_size, 0),
    ):
        val = encode(texts.val)
        models = kneser_ney(encode(texts.train), orders, size)
        found[name] = [per_character(more + sum(map(model.bits, val)), texts) for model in models]
    return found


# Speed ----------------------------------------------------------------------------------------------------------------


class ReferenceGelu(FastOps):
    """All fast operations but two."""

    gelu, gelu_backward = Ops.gelu, Ops.gelu_backward


def in_rows(batch: Batch, cut: int) -> list[Batch]:
    """Cut a batch of texts of one length into micro-batches."""
    parts = zip(*(np.array_split(part, cut) for part in (batch.inputs[0], batch.targets, batch.indices)))
    return [batch_of((ids,), targets, indices) for ids, targets, indices in parts]


def measure_training(config: Config, repetitions: int) -> dict[str, Any]:
    import torch
    from rival import RivalGPT, assert_same, copy_gpt_weights, their_step, to_tensors

    random, T, cut = np.random.default_rng(0), config.data.max_length, config.training.accumulation
    rows = config.training.tokens_per_batch * cut // T
    ids = random.integers(4, config.model.vocab_size, (2, rows, T + 1)).astype(np.int32)
    batches = [batch_of((each[:, :-1],), each[:, 1:], np.arange(rows)) for each in ids]
    model, rival = LanguageModel(config.model), RivalGPT(config.model)
    copy_gpt_weights(model, rival)
    assert_same(model, rival, batches[0], config.training)
    theirs = their_step(rival, config, optimizer=torch.optim.AdamW)
    reference = LanguageModel(config.model)
    steps = {
        OURS: our_step(model, config, cut, 1, cut_up=in_rows),
        f"{OURS}, GELU of nn/ops.py": our_step(reference, config, cut, 1, ReferenceGelu(np), in_rows),
        EAGER: lambda batch: theirs([to_tensors(batch)]),
    }
    return compared(steps, batches, repetitions, rows * T)


def measure_generation(config: Config, samples: int, repetitions: int) -> dict[str, Any]:
    import torch
    from rival import RivalGPT, copy_gpt_weights

    model, rival = LanguageModel(config.model), RivalGPT(config.model)
    model.unembedding.weight.data[1] = 0  # EOS, which would end a text
    copy_gpt_weights(model, rival)
    rival.eval()
    n = min(N_WRITTEN, config.data.max_length - 1)

    def ours(seed: int) -> None:
        with using(FAST):
            assert len(list(generate(model, [BOS], n, Sampling(), seed, samples))) == n

    def ours_without_cache(seed: int) -> None:
        random, text = np.random.default_rng(seed), np.full((samples, 1), BOS)
        with using(FAST):
            for _ in range(n):
                states, _ = model.states(text)
                p = probabilities(model.unembedding.forward(states[:, -1])[0], Sampling())
                text = np.column_stack([text, [random.choice(len(row), p=row) for row in p]])

    def theirs(cached: bool) -> Callable[[int], Any]:
        return lambda seed: rival.generate(torch.full((samples, 1), BOS), n, cached)

    ways: dict[str, Callable] = {OURS: ours, f"{OURS}, no cache": ours_without_cache}
    ways |= {EAGER: theirs(True), f"{EAGER}, no cache (nanoGPT)": theirs(False)}
    return {"samples": samples, "tokens": n} | compared(ways, [0], repetitions, samples * n)


def compared(programs: dict[str, Callable], units: list, repetitions: int, n_tokens: int) -> dict[str, Any]:
    spreads = {name: spread_of(times) for name, times in take_turns(programs, units, repetitions).seconds.items()}
    rates = {name: round(n_tokens / each["minimum"]) for name, each in spreads.items()}
    return {"seconds": spreads, "tokens_per_second": rates, "time_over_ours": over_ours(spreads)["minimum"]}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=1, help="how many runs to train (default: %(default)s)")
    parser.add_argument("--runs", type=Path, help="directory of the runs (default: one that is removed)")
    parser.add_argument("--repetitions", type=int, default=20, help="of each timing (default: %(default)s)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    import torch

    keep_freed_memory()
    torch.set_num_threads(1)
    preset = configs.with_settings(configs.preset("gpt-tiny"), QUICK if arguments.quick else {})
    repetitions, lessons = (1, LESSONS[:2]) if arguments.quick else (arguments.repetitions, LESSONS)
    config = configs.with_settings(preset, {"data.text": [str(path) for path in lessons], "training.threads": 1})
    with tempfile.TemporaryDirectory() as temporary:
        runs = arguments.runs or Path(temporary)
        seeded = [configs.with_settings(config, {"seed": seed}) for seed in range(arguments.seeds)]
        results = [learned(each, runs / f"seed{each.training.seed}") for each in seeded]
        texts, tokenizer = LanguageModelTask().read(config), load_model(runs / "seed0").tokenizer
    speed = {
        "threads": 1,
        "training": measure_training(preset, repetitions),
        "generation": [measure_generation(preset, samples, repetitions) for samples in (1, 16)],
    }
    n_grams = n_gram_bits(texts, tokenizer, *((8, 5) if arguments.quick else HIGHEST_ORDERS))
    print([result["bits_per_character"] for result in results], {name: min(bits) for name, bits in n_grams.items()})
    text = {
        "files": len(lessons),
        "characters": {"train": sum(map(len, texts.train)), "validation": sum(map(len, texts.val))},
        "crc32": zlib.crc32(b"".join(path.read_bytes() for path in lessons)),
        "last_change": git("log", "-1", "--format=%H", "--", "docs/lessons"),
    }
    return {"text": text, "config": configs.to_dict(preset), "results": results, "n_grams": n_grams, "speed": speed}


if __name__ == "__main__":
    record("language_model", __doc__, measure, options, torch=True)
