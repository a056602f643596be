"""Growth of time and memory with the length of the sentences, the width of the model, the vocabulary and the batch.

    python benchmarks/cpu_scaling.py [--quick] [--out DIR]                         # about 5 minutes

One size grows while the others stay, for three things: the core of self-attention, n^2 d in Table 1 of the paper; the
position-wise feed-forward network, n d^2, which is also Table 1's entry for a recurrent layer; and the whole training
step of a small model. Forward and backward in float32, on one thread, without padding.

    time    the minimum over the repetitions, in which the sizes take turns
    memory  the most that NumPy's arrays hold at a time, weights and inputs included (tracemalloc, in a pass of its own)

A cost proportional to size^e becomes a line of slope e on logarithmic axes. Measured is the slope of the line through
the upper half of the sizes (least squares). Predicted is the slope of the line through what can be counted there:
floating-point operations in matrix products for time, floats that are alive at the peak for memory. README.md here says
how to read the differences.
"""

import argparse
import tracemalloc
from typing import Any, Callable, NamedTuple

import numpy as np
from cpu_step import matmul_flops, micro_batches, our_step, pairs_of
from harness import record, take_turns

from scratchformer.backends.cpu import FAST, PRODUCT_BLOCK, keep_freed_memory
from scratchformer.config import Config, ModelConfig
from scratchformer.nn.attention import ScaledDotProductAttention
from scratchformer.nn.layers import FeedForward
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.transformer import Transformer

D_K = 64  # as in the paper, a wider model has more heads, not wider ones
N = 2  # layers of the small model

Work = Callable[[], Any]
"""Forward and backward, once."""


class Sizes(NamedTuple):
    """The sizes that can grow. T is the length of source and target; d_ff is 4 d_model and h is d_model / D_K."""

    B: int
    T: int
    d_model: int
    V: int = 2000

    def step(self) -> tuple[Config, Any]:
        """The small model's configuration, and the pairs of its step."""
        sizes = {"d_model": self.d_model, "d_ff": 4 * self.d_model, "h": self.d_model // D_K}
        return Config(model=ModelConfig(vocab_size=self.V, N=N, **sizes)), pairs_of(self.B, self.T, self.T, self.V, 1)


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


def training_step(sizes: Sizes) -> Work:
    """Forward, label-smoothed loss, backward, Adam, with dropout."""
    config, pairs = sizes.step()
    step = our_step(Transformer(config.model), config, cut=1, threads=1)
    return lambda: step(pairs)


def training_step_flops(sizes: Sizes) -> float:
    config, pairs = sizes.step()
    return matmul_flops(config.model, micro_batches(pairs, 1)[0])


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


class Subject(NamedTuple):
    """One of the three things, its base sizes, and the sizes along each of its axes."""

    work: Callable[[Sizes], Work]
    flops: Callable[[Sizes], float]
    floats: Callable[[Sizes], int]
    others: Sizes
    axes: dict[str, list[int]]


AXES = {"T": [16, 32, 64, 128, 256, 512], "d_model": [64, 128, 256, 512, 1024]}
MORE = AXES | {"V": [1000, 2000, 4000, 8000, 16000, 32000], "B": [2, 4, 8, 16, 32, 64]}
SUBJECTS = {
    "attention": Subject(attention, attention_flops, attention_floats, Sizes(4, 128, 256), AXES),
    "feed-forward": Subject(feed_forward, feed_forward_flops, feed_forward_floats, Sizes(8, 64, 256), AXES),
    "step": Subject(training_step, training_step_flops, training_step_floats, Sizes(8, 32, 128), MORE),
}


def peak_bytes(work: Work) -> int:
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def exponent(sizes: list[int], costs: list[float]) -> float:
    """The slope of log cost over log size in the upper half of the sizes (least squares)."""
    half = len(sizes) // 2
    slope, _ = np.polyfit(np.log(sizes[half:]), np.log(costs[half:]), 1)
    return round(float(slope), 3)


def measured(name: str, axis: str, values: list[int], repetitions: int) -> dict[str, Any]:
    """Measure one row of the table."""
    subject = SUBJECTS[name]
    grown = {value: subject.others._replace(**{axis: value}) for value in values}
    flops, floats = ([count(sizes) for sizes in grown.values()] for count in (subject.flops, subject.floats))
    works = {str(value): subject.work(sizes) for value, sizes in grown.items()}
    turns = take_turns({size: lambda _, work=work: work() for size, work in works.items()}, [0], repetitions, 1, 0)
    seconds = [float(each.min()) for each in turns.seconds.values()]
    memory = [peak_bytes(lambda: subject.work(sizes)()) for sizes in grown.values()]
    row = {
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
    print(name, "over", axis, row["time_exponent"], row["memory_exponent"], flush=True)
    return row


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    repetitions, n_sizes = (2, 3) if arguments.quick else (20, None)
    keep_freed_memory()  # as the command line does
    with using(FAST):
        rows = [
            measured(name, axis, values[:n_sizes], repetitions)
            for name, subject in SUBJECTS.items()
            for axis, values in subject.axes.items()
        ]
    return {"repetitions": repetitions, "results": rows}


if __name__ == "__main__":
    record("cpu_scaling", __doc__, measure)
