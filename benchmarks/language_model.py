"""Bits per character of a small GPT on our lessons, beside n-gram models, and its speed beside PyTorch.

    python benchmarks/language_model.py [--seeds 1] [--runs DIR] [--quick] [--out DIR]

The preset `gpt-tiny` is trained on the 22 lessons (`docs/lessons/NN_*.md`); a tenth of each validates.
`results` has the bits per character of the validation text for each seed, with the last weights, with the best
checkpoint (chosen by the same text), and with the mean of the last ones, as `scratchformer average` makes it; `n_grams`
those of Kneser-Ney's models, up to higher orders than `scratchformer evaluate` tries.
A run that is in the directory of --runs already goes on from its last checkpoint, and a finished one is only scored.

`speed` compares with `rival_gpt.py`, nanoGPT's idiom in PyTorch, on one thread. Both take turns at the same training
steps, and at writing texts within the window, with and without a cache. The same weights give the same loss in both.
Times are minima and quartiles over the repetitions; `tokens_per_second` and ratios are those of the minima. All are
lower while other programs run, and their ratios less exact.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import zlib
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
from cpu_step import spread_of, take_turns
from ngram import kneser_ney
from provenance import ROOT, git
from small_training import number, record

import scratchformer.config as configs
from scratchformer.backends.cpu import FAST, FastOps, keep_freed_memory
from scratchformer.config import Config
from scratchformer.decoding.generation import Sampling, generate, probabilities
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.optim import Adam, clip_by_global_norm_inplace, noam
from scratchformer.tasks import start
from scratchformer.tasks.language_model import LanguageModelTask, loss_on
from scratchformer.tasks.task import Corpus
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory, Trained, load_model

LESSONS = sorted((ROOT / "docs" / "lessons").glob("[0-9][0-9]_*.md"))
QUICK = {"model.vocab_size": 500, "model.d_model": 16, "model.d_ff": 32, "model.N": 1, "training.steps": 4}
QUICK |= {"training.validate_every": 2, "training.save_every": 2, "training.score_every": 2}
HIGHEST_ORDERS = 18, 12
"""Of the n-gram models over characters and over tokens: about a minute, and 3 GiB of memory."""
N_WRITTEN = 100
"""Tokens that a text of the generation benchmark has."""


# Learning -------------------------------------------------------------------------------------------------------------


def learned(config: Config, path: Path) -> dict[str, Any]:
    """Train a run, or the rest of it, and score it -> its entry in the results."""
    run = RunDirectory(path)
    loop.train(start.resume(run, config)[0] if run.config_file.exists() else start.begin(run, config))
    run.unlock()
    last = run.checkpoints.steps()[-config.training.average_last :]
    checkpoints.save(run.checkpoints.average, checkpoints.average(last))
    steps = run.read_log("step")
    texts = LanguageModelTask().read(config)
    bits = {which: bits_of(load_model(path, which), texts) for which in ("last", "best", "average")}
    return {
        "seed": config.training.seed,
        "steps": steps[-1]["step"],
        "target_tokens": steps[-1]["all_target_tokens"],
        "train_seconds": round(sum(step["seconds"] for step in steps)),
        "curve": [[entry["step"], number(entry["loss"])] for entry in run.read_log("validation")],
        "bits_per_character": bits,
    }


def bits_of(trained: Trained, texts: Corpus) -> float:
    nats, n_tokens = loss_on(trained, texts.val)
    return rounded(nats * n_tokens / math.log(2), texts)


def n_gram_rows(texts: Corpus, tokenizer: Any, characters: int, tokens: int) -> dict[str, list[float]]:
    """Bits per character for n = 1, 2, ..., up to the highest orders."""
    grams = {"characters": character_bits(texts, characters), "tokens": token_bits(texts, tokenizer, tokens)}
    return {name: [rounded(bits, texts) for bits in of_orders] for name, of_orders in grams.items()}


def character_bits(texts: Corpus, orders: int) -> Iterator[float]:
    """Bits of the validation text, by n-gram models over characters of 1, 2, ..., `orders` orders.

    The symbols are the characters of the training text, the end of a text, and one for all other characters; such a
    character takes 8 bits more for each of its bytes in UTF-8.
    """
    numbers = {character: number for number, character in enumerate(sorted(set("".join(texts.train))))}
    end, other = len(numbers), len(numbers) + 1

    def symbols(text: str) -> list[int]:
        return [*(numbers.get(character, other) for character in text), end]

    spelled = sum(8 * len(character.encode()) for text in texts.val for character in text if character not in numbers)
    for model in kneser_ney(map(symbols, texts.train), orders, len(numbers) + 2):
        yield spelled + sum(model.bits(symbols(text)) for text in texts.val)


def token_bits(texts: Corpus, tokenizer: Any, orders: int) -> Iterator[float]:
    """Bits of the validation text, by n-gram models over the tokens and EOS, of 1, 2, ..., `orders` orders."""
    train, val = ([[*ids, EOS] for ids in tokenizer.encode(part)] for part in texts)
    for model in kneser_ney(train, orders, tokenizer.vocab_size):
        yield sum(map(model.bits, val))


def rounded(bits: float, texts: Corpus) -> float:
    """Bits per character of the validation text."""
    return round(bits / sum(map(len, texts.val)), 4)


# Speed ----------------------------------------------------------------------------------------------------------------


class ReferenceGelu(FastOps):
    """All fast operations but two."""

    gelu, gelu_backward = Ops.gelu, Ops.gelu_backward


def our_step(
    model: LanguageModel, config: Config, ops: FastOps = FAST
) -> Callable[[tuple[np.ndarray, np.ndarray]], float]:
    """A training step as `Trainer.step` makes it on one thread: micro-batches, clipping, Adam."""
    settings, adam, n_steps = config.training, Adam(model.store, (config.training.beta1, config.training.beta2)), 0

    def step(batch: tuple[np.ndarray, np.ndarray]) -> float:
        nonlocal n_steps
        n_steps += 1
        loss = n_tokens = 0
        with using(ops):
            parts = zip(*(np.array_split(part, settings.accumulation) for part in batch))
            for shard, (ids, targets) in enumerate(parts):
                key = DropoutKey(settings.seed, n_steps, shard)
                share, n = batch_loss_backward(model, (ids,), targets, settings.eps_ls, key, settings.spread)
                loss, n_tokens = loss + share, n_tokens + n
            grad = model.store.grad
            norm = np.sqrt(ops.divide_inplace(grad, n_tokens))
            clip_by_global_norm_inplace(grad, norm, settings.clip_norm)
            adam.step(noam(n_steps, config.model.d_model, settings.warmup, settings.lr_factor))
            model.zero_grad()
        return float(loss) / n_tokens

    return step


def measure_training(config: Config, repetitions: int) -> dict[str, Any]:
    import torch
    from rival_gpt import RivalGPT, assert_same, copy_weights, their_step

    torch.set_num_threads(1)
    random, T = np.random.default_rng(0), config.data.max_length
    rows = config.training.tokens_per_batch * config.training.accumulation // T
    ids = random.integers(4, config.model.vocab_size, (2, rows, T + 1)).astype(np.int32)
    batches = [(each[:, :-1], each[:, 1:]) for each in ids]
    model, rival = LanguageModel(config.model), RivalGPT(config.model)
    copy_weights(model, rival)
    assert_same(model, rival, *batches[0])
    steps = {
        "scratchformer": our_step(model, config),
        "scratchformer, GELU of nn/ops.py": our_step(LanguageModel(config.model), config, ReferenceGelu(np)),
        "pytorch": their_step(rival, config),
    }
    return compared(take_turns(steps, batches, repetitions).seconds, rows * T)


def measure_generation(config: Config, samples: int, repetitions: int) -> dict[str, Any]:
    import torch
    from rival_gpt import RivalGPT, copy_weights

    torch.set_num_threads(1)
    model, rival = LanguageModel(config.model), RivalGPT(config.model)
    model.unembedding.weight.data[1] = 0  # EOS, which would end a text
    copy_weights(model, rival)
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

    ways: dict[str, Callable] = {"scratchformer": ours, "scratchformer, no cache": ours_without_cache}
    ways |= {"pytorch": theirs(True), "pytorch, no cache (nanoGPT)": theirs(False)}
    seconds = take_turns(ways, [0], repetitions).seconds
    return {"samples": samples, "tokens": n} | compared(seconds, samples * n)


def compared(seconds: dict[str, np.ndarray], n_tokens: int) -> dict[str, Any]:
    spreads = {name: spread_of(times) for name, times in seconds.items()}
    ours = spreads["scratchformer"]["minimum"]
    return {
        "seconds": spreads,
        "tokens_per_second": {name: round(n_tokens / each["minimum"]) for name, each in spreads.items()},
        "time_over_ours": {name: number(each["minimum"] / ours) for name, each in spreads.items()},
    }


# The whole experiment -------------------------------------------------------------------------------------------------


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=int, default=1, help="how many runs to train (default: %(default)s)")
    parser.add_argument("--runs", type=Path, help="directory of the runs (default: one that is removed)")
    parser.add_argument("--repetitions", type=int, default=20, help="of each timing (default: %(default)s)")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    keep_freed_memory()
    preset = configs.with_settings(configs.preset("gpt-tiny"), QUICK if arguments.quick else {})
    repetitions = 1 if arguments.quick else arguments.repetitions
    lessons = LESSONS[:2] if arguments.quick else LESSONS
    config = configs.with_settings(preset, {"data.text": [str(path) for path in lessons], "training.threads": 1})
    with tempfile.TemporaryDirectory() as temporary:
        runs = arguments.runs or Path(temporary)
        seeded = {seed: configs.with_settings(config, {"seed": seed}) for seed in range(arguments.seeds)}
        results = [learned(each, runs / f"seed{seed}") for seed, each in seeded.items()]
        speed = {
            "threads": 1,
            "training": measure_training(preset, repetitions),
            "generation": [measure_generation(preset, samples, repetitions) for samples in (1, 16)],
        }
        texts, tokenizer = LanguageModelTask().read(config), load_model(runs / "seed0").tokenizer
        n_grams = n_gram_rows(texts, tokenizer, *((8, 5) if arguments.quick else HIGHEST_ORDERS))
    print([result["bits_per_character"] for result in results], {name: min(bits) for name, bits in n_grams.items()})
    print(speed["training"]["tokens_per_second"], *(each["tokens_per_second"] for each in speed["generation"]))
    text = {
        "files": len(lessons),
        "characters": {"train": sum(map(len, texts.train)), "validation": sum(map(len, texts.val))},
        "crc32": zlib.crc32(b"".join(path.read_bytes() for path in lessons)),
        "last_change": git("log", "-1", "--format=%H", "--", "docs/lessons"),
    }
    return {"text": text, "config": configs.to_dict(preset), "results": results, "n_grams": n_grams, "speed": speed}


if __name__ == "__main__":
    record("language_model", __doc__, measure, options)
