"""The functions of lessons 01 to 12: a layer and what it is made of."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from exercises.function import Call, Function, Mistake
from exercises.observe import Halves


def weight(random: np.random.Generator, *shape: int) -> SimpleNamespace:
    """A weight as in the file, float64."""
    return SimpleNamespace(data=random.normal(size=shape), grad=np.zeros(shape))


def product(letters, x, W):
    """A case of `linear`: letters, shape of x, shape of W."""
    return lambda random, file: Call(letters, random.normal(size=x), weight(random, *W))


LINEAR = Function(
    name="linear",
    lesson="01",
    shapes={"x": "btd", "W": "df", "y": "btf"},
    note='letters says which axes, as "btd,df->btf", and is any product of two arrays; dx has the shape of x',
    cases={
        "two sentences": product("btd,df->btf", (2, 3, 4), (4, 5)),
        "one sentence of one word": product("btd,df->btf", (1, 1, 4), (4, 3)),
        "heads, btd,dhk->bthk": product("btd,dhk->bthk", (2, 3, 4), (4, 2, 5)),
        "heads together, bthk,hkd->btd": product("bthk,hkd->btd", (2, 3, 2, 4), (2, 4, 5)),
    },
    observe=Halves("dx"),
    hints=(
        "Backward of a product is two products. dW collects, over all sentences and positions, x at the input times dy "
        "at the output; dx brings dy back through W. In both, the letters that forward summed over come back.",
        "W.grad += einsum('btd,btf->df', x, dy); return einsum('btf,df->btd', dy, W.data), with the letters taken from "
        "`letters` instead.",
    ),
    mistakes=(
        Mistake(
            "it is brought back by x; the way back of x leads through the weights, W.data",
            ('einsum(f"{of_y},{of_W}->{of_x}", dy, W.data)', 'einsum(f"{of_x},{of_W}->{of_x}", x, W.data)'),
        ),
    ),
)


def qkv(b, t, s, h, k, mask=None):
    """A case of `attention`; mask makes one from random numbers (default: everything is seen)."""

    def case(random, file):
        Q, K, V = (random.normal(size=(b, n, h, k)) for n in (t, s, s))
        seen = mask(random) if mask else np.ones((b, 1, 1, s), dtype=bool)
        return Call(Q, K, V, seen)

    return case


ATTENTION = Function(
    name="attention",
    lesson="04",
    shapes={"Q": "bthk", "K": "bshk", "V": "bshk", "mask": "bhts", "y": "bthk"},
    note="mask (broadcasts to b h t s) is False where a position must not be seen; return dQ, dK, dV",
    cases={
        "t and s differ": qkv(2, 3, 4, 2, 5),
        "one sentence, one word, one head": qkv(1, 1, 2, 1, 4),
        "padding": qkv(2, 2, 5, 3, 4, lambda random: (np.arange(5) < [[3], [5]])[:, None, None, :]),
        "no later words": qkv(2, 4, 4, 1, 3, lambda random: np.tri(4, dtype=bool)),
    },
    observe=Halves(("dQ", "dK", "dV")),
    hints=(
        "Backward walks the same road: dheads meets V on its way to the weights, and the weights on its way to V; then "
        "through softmax; then through the product of Q and K, each of which meets the other.",
        "dweights = dheads V^T, dV = weights^T dheads, dscores = softmax_backward(dweights) / sqrt(d_k), "
        "dQ = dscores K, dK = dscores^T Q.",
    ),
    mistakes=(
        Mistake(
            "the scores are divided by sqrt(s), the number of words seen, instead of sqrt(d_k)",
            ("Q.shape[-1] ** 0.5", "K.shape[1] ** 0.5"),
        ),
        Mistake("the scores are not divided by sqrt(d_k)", ("1 / Q.shape[-1] ** 0.5", "1")),
        Mistake("the scores are divided by d_k, not by its square root", ("Q.shape[-1] ** 0.5", "Q.shape[-1]")),
        Mistake(
            "the scale 1 / sqrt(d_k) is missing on the way back: it belongs to the scores, so dscores has it, too",
            ("dheads, V)) * scale", "dheads, V))"),
        ),
        Mistake(
            "dK meets K where it should meet Q", ('"bhts,bthk->bshk", dscores, Q', '"bhts,bshk->bshk", dscores, K')
        ),
        Mistake(
            "dV uses dscores; V is multiplied by the weights, so the weights come back to it",
            ("\n    return einsum", "\n    dV = einsum('bhts,bthk->bshk', dscores, dheads)\n    return einsum"),
        ),
    ),
)

FUNCTIONS = (LINEAR, ATTENTION)
