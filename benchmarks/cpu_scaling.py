"""Growth of time and memory with the length of the sentences, the width of the model, the vocabulary and the batch.

    python benchmarks/cpu_scaling.py [--quick] [--out DIR]                         # about 5 minutes

One size grows while the others stay, for three things: the core of self-attention, n^2 d in Table 1 of the paper; the
position-wise feed-forward network, n d^2, which is also Table 1's entry for a recurrent layer; and the whole training
step of a small model. Forward and backward in float32, on one thread, without padding.

    time    the minimum over the repetitions, in which the sizes take turns
    memory  the most that NumPy's arrays hold at a time, weights and inputs included (tracemalloc, in a pass of its own)

How to read the exponents: a cost proportional to size^e becomes a line of slope e on logarithmic axes. Measured is the
slope of the line through the upper half of the sizes (least squares). Predicted is the slope of the line through what
can be counted there: floating-point operations in matrix products for time, floats that are alive at the peak for
memory. For the time of the first two things, that is Table 1's exponent. The exponent of a sum
whose parts grow differently is not a whole number: in a step, attention's share goes as T^2, everything else as T.

Measured time grows more slowly than predicted where costs count that do not grow (a call of NumPy costs microseconds)
and where larger products run at a higher rate; both pull at small sizes most. It grows faster where arrays no longer
fit into a cache, and where work counts that is not a matrix product.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from typing import Any, Callable, NamedTuple

import numpy as np
from cpu_step import matmul_flops, micro_batches, our_step, pairs_of
from small_training import record

from scratchformer.backends.cpu import FAST, PRODUCT_BLOCK, keep_freed_memory
from scratchformer.config import Config, ModelConfig
from scratchformer.nn.attention import ScaledDotProductAttention
from scratchformer.nn.layers import FeedForward
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import EncodedPairs

REPETITIONS, QUICK_REPETITIONS = 20, 2
QUICK_SIZES = 3  # of each axis
D_K = 64  # as in the paper, a wider model has more heads, not wider ones
N = 2  # layers of the small model


class Sizes(NamedTuple):
    """The sizes that can grow. T is the length of source and target; d_ff is 4 d_model and h is d_model / D_K."""

    B: int
    T: int
    d_model: int
    V: int = 2000


Work = Callable[[], Any]
"""Forward and backward, once."""

# Self-attention -------------------------------------------------------------------------------------------------------


def attention(sizes: Sizes) -> Work:
    """softmax(Q K^T / sqrt(d_k)) V in all heads, without the projections: these grow as a feed-forward network does."""
    shape = sizes.B, sizes.T, sizes.d_model // D_K, D_K
    q, k, v, dy = np.random.default_rng(0).standard_normal((4, *shape), np.float32)
    core = ScaledDotProductAttention()
    return lambda: core.backward(dy, core.forward(q, k, v)[1])


def attention_flops(sizes: Sizes) -> int:
    """Two products in forward, four in backward."""
    return 6 * 2 * sizes.B * sizes.T**2 * sizes.d_model


def attention_floats(sizes: Sizes) -> int:
    """q, k, v and dy, y, dq, dk and dv; the weights, their gradient and that of the scores."""
    return 8 * sizes.B * sizes.T * sizes.d_model + 3 * sizes.B * sizes.d_model // D_K * sizes.T**2


# Feed-forward ---------------------------------------------------------------------------------------------------------


def feed_forward(sizes: Sizes) -> Work:
    """max(0, x W_1 + b_1) W_2 + b_2"""
    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, sizes.B, sizes.T, sizes.d_model), np.float32)
    layer = FeedForward(sizes.d_model, 4 * sizes.d_model, random)
    return lambda: layer.backward(dy, layer.forward(x)[1])


def feed_forward_flops(sizes: Sizes) -> int:
    """Two products in forward, four in backward."""
    return 6 * 2 * sizes.B * sizes.T * 4 * sizes.d_model**2


def feed_forward_floats(sizes: Sizes) -> int:
    """x and dy, three of the hidden layer's size (itself, its gradients after and before ReLU); W_1 and W_2, their
    gradients, and a piece of a product that is added to one of these."""
    matrix = 4 * sizes.d_model**2
    return sizes.B * sizes.T * (2 + 3 * 4) * sizes.d_model + 4 * matrix + min(matrix, PRODUCT_BLOCK)


# The training step ----------------------------------------------------------------------------------------------------


def training_step(sizes: Sizes) -> Work:
    """Forward, label-smoothed loss, backward, Adam, with dropout."""
    config, pairs = Config(model=small_model(sizes)), full_pairs(sizes)
    step = our_step(Transformer(config.model), config, cut=1, threads=1)
    return lambda: step(pairs)


def training_step_flops(sizes: Sizes) -> int:
    return matmul_flops(small_model(sizes), micro_batches(full_pairs(sizes), 1)[0])


def training_step_floats(sizes: Sizes) -> int:
    """Between forward and backward, roughly: biases, the embeddings and other small things are left out.

    weights    with the gradient, Adam's m and v of each
    kept       at a position, for one layer of either stack: 31 vectors of d_model, d_ff being 4 of them and a dropout
               mask a quarter; and in three attentions a row of T weights for each head
    passing    the most of: two pieces of the logits; one, and a piece of a product that is added to the embedding's
               gradient; two gradients of one attention's weights
    """
    B, T, d_model, V = sizes
    h = d_model // D_K
    weights = V * d_model + N * (4 + 8 + 4 + 4 + 8) * d_model**2
    kept = N * B * T * (31 * d_model + 3 * h * T)
    logits = min(B * T * V, Ops.logits_at_once)
    passing = max(2 * logits, logits + min(V * d_model, PRODUCT_BLOCK), 2 * B * h * T**2)
    return 4 * weights + kept + passing


def small_model(sizes: Sizes) -> ModelConfig:
    return ModelConfig(vocab_size=sizes.V, N=N, d_model=sizes.d_model, d_ff=4 * sizes.d_model, h=sizes.d_model // D_K)


def full_pairs(sizes: Sizes) -> EncodedPairs:
    return pairs_of(sizes.B, sizes.T, sizes.T, sizes.V, seed=1)


# What grows -----------------------------------------------------------------------------------------------------------


class Subject(NamedTuple):
    """One of the three things, where it starts from, and the sizes along each of its axes."""

    work: Callable[[Sizes], Work]
    flops: Callable[[Sizes], int]
    floats: Callable[[Sizes], int]
    others: Sizes
    axes: dict[str, list[int]]


LENGTHS, WIDTHS = [16, 32, 64, 128, 256, 512], [64, 128, 256, 512, 1024]
SUBJECTS = {
    "attention": Subject(
        attention, attention_flops, attention_floats, Sizes(B=4, T=128, d_model=256), {"T": LENGTHS, "d_model": WIDTHS}
    ),
    "feed-forward": Subject(
        feed_forward,
        feed_forward_flops,
        feed_forward_floats,
        Sizes(B=8, T=64, d_model=256),
        {"T": LENGTHS, "d_model": WIDTHS},
    ),
    "step": Subject(
        training_step,
        training_step_flops,
        training_step_floats,
        Sizes(B=8, T=32, d_model=128),
        {"T": LENGTHS, "d_model": WIDTHS, "V": [1000, 2000, 4000, 8000, 16000, 32000], "B": [2, 4, 8, 16, 32, 64]},
    ),
}


def measured(name: str, axis: str, values: list[int], repetitions: int) -> dict[str, Any]:
    """One row of the table."""
    subject = SUBJECTS[name]
    grown = [subject.others._replace(**{axis: value}) for value in values]
    flops, floats = [subject.flops(sizes) for sizes in grown], [subject.floats(sizes) for sizes in grown]
    seconds = fastest([subject.work(sizes) for sizes in grown], repetitions)
    memory = [peak_bytes(lambda: subject.work(sizes)()) for sizes in grown]
    return {
        "subject": name,
        "axis": axis,
        "sizes": values,
        "others": {other: value for other, value in subject.others._asdict().items() if other != axis},
        "seconds": [round(value, 6) for value in seconds],
        "bytes": memory,
        "flops": flops,
        "counted_bytes": [4 * value for value in floats],
        "time_exponent": {"measured": exponent(values, seconds), "predicted": exponent(values, flops)},
        "memory_exponent": {"measured": exponent(values, memory), "predicted": exponent(values, floats)},
    }


def peak_bytes(work: Work) -> int:
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def fastest(works: list[Work], repetitions: int) -> list[float]:
    """The least seconds of each; they take turns. The first round is not timed."""
    least = [float("inf")] * len(works)
    for repetition in range(1 + repetitions):
        for i, work in enumerate(works):
            began = time.perf_counter()
            work()
            if repetition > 0:
                least[i] = min(least[i], time.perf_counter() - began)
    return least


def exponent(sizes: list[int], costs: list[float]) -> float:
    """The slope of log cost over log size in the upper half of the sizes (least squares)."""
    half = len(sizes) // 2
    slope, _ = np.polyfit(np.log(sizes[half:]), np.log(costs[half:]), 1)
    return round(float(slope), 3)


def print_table(rows: list[dict[str, Any]]) -> None:
    print("\nFrom the smallest size to the largest; exponents over the upper half of them, measured (predicted).\n")
    print(f"{'':12} {'axis':>7} {'sizes':>14} {'milliseconds':>17} {'exponent':>13} {'megabytes':>17} {'exponent':>13}")
    for row in rows:
        sizes, seconds, memory = row["sizes"], row["seconds"], row["bytes"]
        print(
            f"{row['subject']:12} {row['axis']:>7} {sizes[0]:6} - {sizes[-1]:5}"
            f" {1e3 * seconds[0]:8.2f} {1e3 * seconds[-1]:8.1f} {in_words(row['time_exponent']):>13}"
            f" {memory[0] / 1e6:8.2f} {memory[-1] / 1e6:8.1f} {in_words(row['memory_exponent']):>13}"
        )


def in_words(exponents: dict[str, float]) -> str:
    return f"{exponents['measured']:.2f} ({exponents['predicted']:.2f})"


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    repetitions = QUICK_REPETITIONS if arguments.quick else REPETITIONS
    n_sizes, rows = QUICK_SIZES if arguments.quick else None, []
    keep_freed_memory()  # as the command line does
    with using(FAST):
        for name, subject in SUBJECTS.items():
            for axis, values in subject.axes.items():
                rows.append(measured(name, axis, values[:n_sizes], repetitions))
                time, memory = (in_words(rows[-1][f"{what}_exponent"]) for what in ("time", "memory"))
                print(f"{name} over {axis}: time {time}, memory {memory}", flush=True)
    print_table(rows)
    return {"repetitions": repetitions, "results": rows}


if __name__ == "__main__":
    record("cpu_scaling", __doc__, measure)
