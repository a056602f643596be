"""How long does a training step take on a CPU, here and in eager PyTorch?

    python benchmarks/cpu_step.py [--preset multi30k] [--data DIR] [--threads 1] [--repetitions 20] [--json FILE]

A step is forward, label-smoothed loss, backward, Adam and clearing the gradients, in float32 with dropout, for the same
weights and the same real batches. The two take turns, batch by batch, in one process; what counts is the minimum over
all repetitions, since on a shared machine everything above it is somebody else's work. README.md here says more.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import torch
from provenance import surroundings
from rival import Rival, adam, assert_same, copy_weights, to_tensors
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch, BatchPlan
from scratchformer.training.run import encode_corpus, read_corpus, train_tokenizer

OURS, THEIRS = "scratchformer", "pytorch"
WARM_UP = 2                                 # rounds that are not timed
QUARTILES = {"minimum": 0, "lower_quartile": 25, "median": 50, "upper_quartile": 75}

# The two rivals -------------------------------------------------------------------------------------------------------


def our_step(model: Transformer, config: Config) -> Callable[[Batch], None]:
    """One training step of scratchformer; what `Trainer.step` does, but for the log and the gradient's norm."""
    training = config.training
    optimizer = Adam(model, (training.beta1, training.beta2), training.eps)

    def step(batch: Batch) -> None:
        rng = DropoutKey(training.seed, optimizer.t + 1)
        _, n_tokens = model.loss_backward(batch.source_ids, batch.target_in_ids, batch.target_out_ids, training.eps_ls,
                                          rng, training.smoothing)
        model.store.grad /= n_tokens
        optimizer.step(noam(optimizer.t + 1, config.model.d_model, training.warmup, training.lr_factor))
        model.zero_grad()

    return step


def their_step(rival: Rival, config: Config, only_real: bool) -> Callable[[Batch], None]:
    """One training step of PyTorch."""
    training = config.training
    optimizer = adam(rival, training)
    n_steps = 0
    tensors: dict[int, Any] = {}

    def step(batch: Batch) -> None:
        nonlocal n_steps
        n_steps += 1
        if id(batch) not in tensors:                                               # in warm-up, so never timed
            tensors[id(batch)] = to_tensors(batch)
        batch_tensors = tensors[id(batch)]
        for group in optimizer.param_groups:
            group["lr"] = noam(n_steps, config.model.d_model, training.warmup, training.lr_factor)
        loss = rival.loss(batch_tensors, training, only_real) / batch_tensors.n_target_tokens
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# Batches and times ----------------------------------------------------------------------------------------------------


def real_batches(config: Config, count: int) -> list[Batch]:
    """`count` of the batches of the first epoch, spread evenly over all of them in order of length."""
    corpus, training = read_corpus(config.data), config.training
    encoded = encode_corpus(corpus, train_tokenizer(corpus, config), config).train
    plan = BatchPlan(encoded, training.tokens_per_batch, 1, training.seed, training.bucket_fineness)
    by_length = sorted(plan.epoch(0), key=lambda indices: encoded.lengths[indices].max())
    chosen = [by_length[int(len(by_length) * (i + 0.5) / count)] for i in range(count)]
    return [plan.micro_batches(indices)[0] for indices in chosen]


def time_in_turns(steps: dict[str, Callable[[Batch], None]], batches: list[Batch],
                  repetitions: int) -> dict[str, np.ndarray]:
    """Seconds (repetitions, batches) of each rival. Who goes first changes with every repetition."""
    seconds = {name: np.empty((repetitions, len(batches))) for name in steps}
    for repetition in range(-WARM_UP, repetitions):
        names = list(steps)[::1 if repetition % 2 else -1]
        for i, batch in enumerate(batches):
            for name in names:
                began = time.perf_counter()
                steps[name](batch)
                if repetition >= 0:
                    seconds[name][repetition, i] = time.perf_counter() - began
    return seconds


def sgemm_rates(size: int = 1024, repetitions: int = 20) -> dict[str, float]:
    """The best rate of a float32 matrix product, in GFLOP/s: what no step can exceed."""
    a, out = np.random.default_rng(0).standard_normal((size, size), np.float32), np.empty((size, size), np.float32)
    tensor, tensor_out = torch.from_numpy(a), torch.from_numpy(out)
    products = {OURS: lambda: np.matmul(a, a, out=out), THEIRS: lambda: torch.matmul(tensor, tensor, out=tensor_out)}
    fastest = dict.fromkeys(products, float("inf"))
    for _ in range(repetitions):
        for name, product in products.items():
            began = time.perf_counter()
            product()
            fastest[name] = min(fastest[name], time.perf_counter() - began)
    return {name: round(2 * size**3 / seconds / 1e9, 1) for name, seconds in fastest.items()}


# Results --------------------------------------------------------------------------------------------------------------


def summary(seconds: dict[str, np.ndarray], batches: list[Batch]) -> dict[str, Any]:
    """Per batch the minimum and quartiles of each rival's seconds; over all batches their sums, and what follows."""
    n_tokens = sum(batch.n_target_tokens for batch in batches)
    spread = {name: {label: np.percentile(times, percent, axis=0) for label, percent in QUARTILES.items()}
              for name, times in seconds.items()}
    sums = {name: {label: float(values.sum()) for label, values in labels.items()} for name, labels in spread.items()}
    real = n_tokens + sum(batch.n_source_tokens for batch in batches)
    return {
        "target_tokens_per_second": {name: round(n_tokens / sums[name]["minimum"]) for name in sums},
        "pytorch_time_over_ours": {label: round(sums[THEIRS][label] / sums[OURS][label], 3) for label in QUARTILES},
        "seconds": {name: rounded(labels) for name, labels in sums.items()},
        "padding_share": round(1 - real / sum(batch.n_positions for batch in batches), 4),
        "batches": [{
            "pairs": len(batch.indices), "source_length": batch.source_ids.shape[1],
            "target_length": batch.target_out_ids.shape[1], "target_tokens": batch.n_target_tokens,
            "seconds": {name: rounded({label: values[i] for label, values in labels.items()})
                        for name, labels in spread.items()},
        } for i, batch in enumerate(batches)],
    }


def rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {label: round(float(value), 5) for label, value in seconds.items()}


def report(result: dict[str, Any]) -> None:
    print(f"{result['preset']}, {result['data']}, {result['threads']} thread(s), {result['repetitions']} repetitions, "
          f"{result['hardware']['cpu']}")
    print("milliseconds: minimum (quartiles)")
    for batch in result["batches"]:
        times = ", ".join(f"{name} {in_order(labels, '.0f', 1e3)}" for name, labels in batch["seconds"].items())
        print(f"{batch['pairs']:4} pairs, S {batch['source_length']:3}, T {batch['target_length']:3}, "
              f"{batch['target_tokens']:5} target tokens: {times}")
    for name, rate in result["target_tokens_per_second"].items():
        print(f"{name}: {rate:,} real target tokens/s; peak sgemm {result['sgemm_gflops'][name]:.0f} GFLOP/s")
    print(f"PyTorch's time / ours: {in_order(result['pytorch_time_over_ours'], '.2f')}; "
          f"padding {result['padding_share']:.1%} of all positions")


def in_order(labels: dict[str, float], form: str, factor: float = 1) -> str:
    """minimum (lower quartile, median, upper quartile)"""
    minimum, *quartiles = (format(labels[label] * factor, form) for label in QUARTILES)
    return f"{minimum} ({', '.join(quartiles)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--preset", default="multi30k", help="tiny, multi30k, base, ... (default: %(default)s)")
    parser.add_argument("--data", type=Path, help="directory of train.en, val.de, ... (default: generated sentences)")
    parser.add_argument("--threads", type=int, default=1, help="for both rivals (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=20, help="of every batch (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=5, help="different batches (default: %(default)s)")
    parser.add_argument("--only-real", action="store_true", help="let PyTorch, too, skip the logits of padding")
    parser.add_argument("--json", type=Path, help="write the results here")
    arguments = parser.parse_args()

    config = configs.preset(arguments.preset)
    if arguments.data:
        config = configs.with_settings(config, {"data.directory": str(arguments.data)})
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(config.training.seed)
    with threadpool_limits(arguments.threads):
        around = surroundings()                                                    # now: git may move while we measure
        batches = real_batches(config, arguments.batches)
        model = Transformer(config.model, config.training.seed)
        rival = Rival(config.model, config.data.max_length)
        copy_weights(model, rival)
        for batch in batches:
            assert_same(model, rival, batch, config.training)
        rates = sgemm_rates()
        steps = {OURS: our_step(model, config), THEIRS: their_step(rival, config, arguments.only_real)}
        seconds = time_in_turns(steps, batches, arguments.repetitions)
        data = arguments.data.name if arguments.data else ""                       # a path would say where, not what
        result = {
            "benchmark": "cpu_step", "preset": arguments.preset, "data": data or "generated",
            "threads": arguments.threads, "torch_threads": torch.get_num_threads(),
            "repetitions": arguments.repetitions, "warm_up": WARM_UP, "seed": config.training.seed,
            "pytorch_logits": "real" if arguments.only_real else "all",
            **summary(seconds, batches), "sgemm_gflops": rates, "torch": torch.__version__, **around,
            "config": configs.to_dict(configs.with_settings(config, {"data.directory": data})),
        }
    report(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
