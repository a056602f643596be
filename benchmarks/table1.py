"""Table 1 of the paper, measured: what a layer costs, how much of it must wait, how far a signal has to go.

    python benchmarks/table1.py [--quick] [--out DIR]                              # about 7 minutes on an idle core

Self-attention, a recurrent layer, convolutions and self-attention restricted to r neighbours, all from (B, n, d) to
(B, n, d): `nn/attention.py`, `nn/sequence_layers.py`, `lessons/support/recurrent.py`.

    operations  multiplications. The formulas of `KINDS` are compared with the number that a layer really does, when it
                runs on numbers that count (`Counted`): the two must be equal
    waiting     the longest chain of multiplications of which each needs the result of the one before it
    path        how many layers it takes until a nudge of any position reaches every output
    time        forward and backward in float32, seconds of processor time of one thread: the least of several rounds,
                in which all layers and sizes take turns

An exponent is the slope of log cost over log size, by least squares over the upper half of the sizes. Its interval of
95 % comes from drawing the rounds again (bootstrap).
README.md here says what the fields of the result are.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any, Callable, NamedTuple

import numpy as np
from harness import record, rounded, take_turns

from scratchformer.backends.cpu import FAST, keep_freed_memory
from scratchformer.nn.attention import Mask, ScaledDotProductAttention, SelfAttention
from scratchformer.nn.layers import Linear
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.parameter import Array, Layer
from scratchformer.nn.sequence_layers import (
    Convolution,
    RestrictedAttention,
    RestrictedSelfAttention,
    SeparableConvolution,
)
from support.recurrent import RNN

D_K = 64  # as in the paper, a wider layer has more heads, not wider ones
K, R, DILATION = 3, 32, 8  # of the layers whose time is measured


class Settings(NamedTuple):
    """The sizes to measure."""

    counted: list[tuple[int, int, int]]  # n, d, h
    waiting: list[int]
    path: list[int]
    lengths: list[int]
    widths: list[int]
    rounds: int


FULL = Settings(
    counted=[(1, 4, 1), (5, 4, 2), (16, 8, 2), (48, 4, 1)],
    waiting=[8, 16, 32, 64],
    path=[8, 16, 32, 64, 128],
    lengths=[64, 128, 256, 512, 1024, 2048, 4096],
    widths=[64, 128, 256, 384, 512, 768, 1024],
    rounds=16,
)
QUICK = Settings([(5, 4, 2)], [8, 16], [8, 16], [32, 64, 128, 256], [64, 128, 192, 256], 3)
OTHER_WIDTH, OTHER_LENGTH = 128, 512  # d while n grows, n while d grows

# The layers -----------------------------------------------------------------------------------------------------------


class Core(Layer):
    """Attention without its projections: x is queries, keys and values."""

    def __init__(self, h: int, attention: ScaledDotProductAttention) -> None:
        self.h, self.attention = h, attention

    def forward(self, x: Array, rng: None = None) -> tuple[Array, Any]:
        heads = x.reshape(*x.shape[:2], self.h, -1)
        y, cache = self.attention.forward(heads, heads, heads)
        return y.reshape(x.shape), cache

    def backward(self, dy: Array, cache: Any) -> Array:
        dq, dk, dv = self.attention.backward(dy.reshape(*dy.shape[:2], self.h, -1), cache)
        return (dq + dk + dv).reshape(dy.shape)


class AtOnce(Layer):
    """The products of `RNN`, each of all positions at once, as if no step had to wait for the one before."""

    def __init__(self, d: int, init: np.random.Generator, dtype: str) -> None:
        self.input, self.recurrent = Linear(d, d, init, dtype), Linear(d, d, init, dtype, bias=False)

    def forward(self, x: Array, rng: None = None) -> tuple[Array, Any]:
        a, input_cache = self.input.forward(x)
        y, recurrent_cache = self.recurrent.forward(np.tanh(a))
        return y, (input_cache, a, recurrent_cache)

    def backward(self, dy: Array, cache: Any) -> Array:
        input_cache, a, recurrent_cache = cache
        return self.input.backward(self.recurrent.backward(dy, recurrent_cache) * (1 - a**2), input_cache)


class Kind(NamedTuple):
    """A type of layer.

    make             (d, h, init, dtype) -> layer
    multiplications  (n, d, h) -> how many there are in forward, for one sequence
    exponents        those of n and d in Table 1, if it has the layer
    """

    make: Callable[[int, int, np.random.Generator, str], Layer]
    multiplications: Callable[[int, int, int], int]
    exponents: tuple[int, int] | None = None


def attention_core(n: int, d: int, h: int) -> int:
    """Q K^T, weights times V, and a scale for each score."""
    return 2 * n * n * d + n * n * h


def restricted_core(n: int, d: int, h: int) -> int:
    """The same for each R queries with the keys that they reach together."""
    back, ahead = (R - 1) // 2, R // 2
    ends = [(start, min(start + R, n)) for start in range(0, n, R)]
    scores = sum((end - start) * (min(n, end + ahead) - max(0, start - back)) for start, end in ends)
    return scores * (2 * d + h)


def core(attention: Callable[[], Layer]) -> Callable[..., Layer]:
    return lambda d, h, init, dtype: Core(h, attention())


def of_width(kind: Callable[..., Layer], *sizes: int) -> Callable[..., Layer]:
    """A layer from d to d, without heads."""
    return lambda d, h, init, dtype: kind(d, *(sizes or (d,)), init, dtype)


def products(per_d_squared: int, per_d: int = 0) -> Callable[[int, int, int], int]:
    return lambda n, d, h: n * (per_d_squared * d * d + per_d * d)


NO_PROJECTIONS = core(ScaledDotProductAttention)
KINDS = {
    "self-attention": Kind(SelfAttention, lambda n, d, h: products(4)(n, d, h) + attention_core(n, d, h), (2, 1)),
    "self-attention, no projections": Kind(NO_PROJECTIONS, attention_core, (2, 1)),
    "recurrent": Kind(of_width(RNN), products(2), (1, 2)),
    "convolution": Kind(of_width(Convolution, K), products(K), (1, 2)),
    "dilated convolution": Kind(
        lambda d, h, init, dtype: Convolution(d, K, init, dtype, DILATION), products(K), (1, 2)
    ),
    "separable convolution": Kind(of_width(SeparableConvolution, K), products(1, K), (1, 2)),
    "restricted self-attention": Kind(
        lambda d, h, init, dtype: RestrictedSelfAttention(d, h, R, init, dtype),
        lambda n, d, h: products(4)(n, d, h) + restricted_core(n, d, h),
        (1, 1),
    ),
    "restricted self-attention, no projections": Kind(core(lambda: RestrictedAttention(R)), restricted_core, (1, 1)),
    "recurrent, all steps at once": Kind(lambda d, h, init, dtype: AtOnce(d, init, dtype), products(2)),
}
"""In Table 1 and, at the end, a control: a recurrent layer's products."""


def random() -> np.random.Generator:
    return np.random.default_rng(0)


# Numbers that count ---------------------------------------------------------------------------------------------------


class Counted:
    """A number that counts multiplications; `waited` is how many of them, one after the other, led to it."""

    __slots__ = ("value", "waited")
    __hash__ = None  # type: ignore[assignment]
    multiplications = 0

    def __init__(self, value: float, waited: int = 0) -> None:
        self.value, self.waited = value, waited

    def joined(self, other: Any, value: float, step: int = 0) -> Counted:
        return Counted(value, max(self.waited, getattr(other, "waited", 0)) + step)

    def __mul__(self, other: Any) -> Counted:
        Counted.multiplications += 1
        return self.joined(other, self.value * value_of(other), step=1)

    def __pow__(self, two: int) -> Counted:
        return self * self

    def __add__(self, other: Any) -> Counted:
        return self.joined(other, self.value + value_of(other))

    def __sub__(self, other: Any) -> Counted:
        return self.joined(other, self.value - value_of(other))

    def __rsub__(self, other: Any) -> Counted:
        return self.joined(other, value_of(other) - self.value)

    def __truediv__(self, other: Any) -> Counted:
        return self.joined(other, self.value / value_of(other))

    __rmul__, __radd__ = __mul__, __add__

    def exp(self) -> Counted:
        return self.joined(None, math.exp(self.value))

    def tanh(self) -> Counted:
        return self.joined(None, math.tanh(self.value))

    def __eq__(self, other: Any) -> bool:
        return self.value == value_of(other)

    def __ge__(self, other: Any) -> bool:
        return self.value >= value_of(other)


def value_of(number: Any) -> float:
    return number.value if isinstance(number, Counted) else number


def counted(numbers: Array) -> Array:
    """The numbers, each of which counts."""
    return np.vectorize(lambda each: each if isinstance(each, Counted) else Counted(each), otypes=[object])(numbers)


class CountedOps(Ops):
    """The NumPy operations. A score that a layer has put in place of another counts, too."""

    def masked_softmax(self, scores: Array, scale: float, key_lengths: Any, causal: bool) -> Array:
        return super().masked_softmax(counted(scores), scale, key_lengths, causal)


def on_counted_numbers(layer: Layer) -> Layer:
    for parameter in layer.parameters().values():
        parameter.data, parameter.grad = counted(parameter.data), counted(parameter.grad)
    return layer


def multiplications_of(layer: Layer, n: int, d: int) -> tuple[int, int]:
    """As they are done: in forward, and in forward and backward."""
    x, dy = (counted(each) for each in random().standard_normal((2, 1, n, d)))
    on_counted_numbers(layer)
    Counted.multiplications = 0
    with using(CountedOps(np)):
        _, cache = layer.forward(x)
        forward = Counted.multiplications
        layer.backward(dy, cache)
    return forward, Counted.multiplications


def operations(settings: Settings) -> list[dict[str, Any]]:
    """Raises ValueError where a formula is wrong."""
    rows = []
    for name, kind in KINDS.items():
        for n, d, h in settings.counted:
            forward, both = multiplications_of(kind.make(d, h, random(), "float64"), n, d)
            if forward != kind.multiplications(n, d, h):
                raise ValueError(f"{name}: {forward} multiplications, by formula {kind.multiplications(n, d, h)}")
            rows.append({"layer": name, "n": n, "d": d, "h": h, "forward": forward, "forward_and_backward": both})
    return rows


# Waiting and paths ----------------------------------------------------------------------------------------------------


def waiting(settings: Settings) -> list[dict[str, Any]]:
    """Multiplications in the longest chain to any output of one layer of each kind."""
    rows = []
    for name in KINDS:
        layer, chain = on_counted_numbers(KINDS[name].make(2, 1, random(), "float64")), []
        for n in settings.waiting:
            with using(CountedOps(np)):
                y, _ = layer.forward(counted(random().standard_normal((1, n, 2))))
            chain.append(max(each.waited for each in y.flat))
        rows.append({"layer": name, "sizes": settings.waiting, "chain": chain})
    return rows


class Causal(Layer):
    """A layer under a causal mask."""

    def __init__(self, layer: Convolution) -> None:
        self.layer = layer

    def forward(self, x: Array, rng: None = None) -> tuple[Array, Any]:
        return self.layer.forward(x, Mask(causal=True))


def logarithm(n: int, k: int) -> int:
    """log_k n, rounded up."""
    return next(power for power in range(1, n) if k**power >= n)


def stacked(name: str, window: int | None, i: int, n: int, d: int, init: np.random.Generator) -> Layer:
    """Layer i of a stack of STACKS. Dilations are 1, k, k^2, ... below n, and then 1 again."""
    if name.startswith("self-attention"):
        return SelfAttention(d, 1, init, "float64")
    if name.startswith("recurrent"):
        return RNN(d, d, init, "float64")
    if name.startswith("restricted"):
        return RestrictedSelfAttention(d, 1, window, init, "float64")
    dilation = window ** (i % logarithm(n, window)) if name.startswith("dilated") else 1
    layer = Convolution(d, window, init, "float64", dilation)
    return Causal(layer) if "causal" in name else layer


STACKS: dict[str, int | None] = {
    "self-attention": None,
    "recurrent": None,
    **{f"convolution, k = {k}": k for k in (3, 5, 9, 17)},
    **{f"dilated convolution,{causal} k = {k}": k for k in (3, 5) for causal in ("", " causal,")},
    **{f"restricted self-attention, r = {r}": r for r in (3, 5, 9, 17)},
}
"""Name of a stack of layers -> its window k or r."""


def one_way(name: str) -> bool:
    return name == "recurrent" or "causal" in name


def layers_to_connect(name: str, n: int) -> int:
    """Count the layers until a nudge of any position reaches all that it may reach: all, or those after it.

    Each of n sequences of zeros is nudged at another position, so that nothing hides what arrives, however small.
    """
    d, init = 4, random()
    x = np.eye(n)[:, :, None] * np.ones(d)
    wanted = np.triu(np.ones((n, n), bool)) if one_way(name) else np.ones((n, n), bool)
    for i in range(n):
        x, _ = stacked(name, STACKS[name], i, n, d, init).forward(x)
        if ((x != 0).any(axis=-1) >= wanted).all():
            return i + 1
    raise ValueError(f"{name}: {n} layers do not connect {n} positions")


def path(settings: Settings) -> list[dict[str, Any]]:
    rows = [
        {"layer": name, "sizes": settings.path, "layers": [layers_to_connect(name, n) for n in settings.path]}
        for name in STACKS
    ]
    print(*rows, sep="\n", flush=True)
    return rows


# Time -----------------------------------------------------------------------------------------------------------------

RESAMPLES = 2000


def in_turns(cells: list[tuple[str, int, int]], rounds: int) -> np.ndarray:
    """Seconds of processor time of forward and backward of layers (name, n, d): (rounds, cells)."""

    def work_of(name: str, n: int, d: int) -> Callable[[Any], None]:
        kind = KINDS[name]
        layer = kind.make(d, d // D_K, random(), "float32")
        x, dy = random().standard_normal((2, 1, n, d), np.float32)

        def work(_: Any) -> None:
            with using(FAST):
                layer.backward(dy, layer.forward(x)[1])

        return work

    works = {str(cell): work_of(*cell) for cell in cells}
    turns = take_turns(works, [None], rounds, warm_up=1, pause=0, clock=time.thread_time)
    return np.stack([turns.seconds[name][:, 0] for name in works], axis=1)


def exponent(sizes: list[int], costs: Any) -> float:
    """The slope of log cost over log size in the upper half of the sizes."""
    half = len(sizes) // 2
    return round(float(np.polyfit(np.log(sizes[half:]), np.log(costs[half:]), 1)[0]), 4)


def interval(sizes: list[int], seconds: np.ndarray) -> list[float]:
    """The exponent's interval of 95 %, from rounds drawn again with replacement. seconds (rounds, sizes)"""
    draw, n = random(), len(seconds)
    found = [exponent(sizes, seconds[draw.integers(n, size=n)].min(axis=0)) for _ in range(RESAMPLES)]
    return rounded(np.percentile(found, [2.5, 97.5], method="nearest"))


def growth(settings: Settings) -> list[dict[str, Any]]:
    """One row for each layer and axis."""
    rows = []
    for axis, sizes in (("n", settings.lengths), ("d", settings.widths)):
        cells = [(size, OTHER_WIDTH) if axis == "n" else (OTHER_LENGTH, size) for size in sizes]
        seconds = in_turns([(name, n, d) for name in KINDS for n, d in cells], settings.rounds)
        for name, of_layer in zip(KINDS, np.split(seconds, len(KINDS), axis=1)):
            least, kind = of_layer.min(axis=0), KINDS[name]
            multiplications = [kind.multiplications(n, d, d // D_K) for n, d in cells]
            row = {
                "layer": name,
                "axis": axis,
                "other": OTHER_WIDTH if axis == "n" else OTHER_LENGTH,
                "sizes": sizes,
                "seconds": rounded(least),
                "multiplications": multiplications,
                "counted": {"exponent": exponent(sizes, multiplications)},
                "time": {"exponent": exponent(sizes, least), "rounds": interval(sizes, of_layer)},
                "table1": kind.exponents and kind.exponents["nd".index(axis)],
            }
            rows.append(row)
            print(f"{name} over {axis}: {row['time']}, counted {row['counted']}, Table 1 {row['table1']}", flush=True)
    return rows


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    settings = QUICK if arguments.quick else FULL
    keep_freed_memory()  # as the command line does
    parts = {"operations": operations, "waiting": waiting, "path": path, "growth": growth}
    results = {name: part(settings) for name, part in parts.items()}
    config = {"d_k": D_K, "k": K, "r": R, "dilation": DILATION, "batch": 1, **settings._asdict()}
    return {"config": config, "results": results}


if __name__ == "__main__":
    record("table1", __doc__, measure)
