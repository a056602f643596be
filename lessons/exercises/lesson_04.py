"""The exercises of lesson 04: soft lookup."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from exercises.diagnosis import TOLERANCE, Unlike, as_array, error
from exercises.exercise import Backward, Break, Build, Result
from scratchformer.nn.attention import CrossAttention, ScaledDotProductAttention
from scratchformer.nn.ops import Ops, transposed

REFERENCE = Ops(np)

# 04_attention_backward ------------------------------------------------------------------------------------------------


def attention_backward(dy, q, k, v, weights):
    as_one_head = [x[:, :, None] for x in (q, k, v)]                               # (B, ., 1, .)
    attention = ScaledDotProductAttention()
    _, cache = attention.forward(*as_one_head)
    dq, dk, dv = (gradient[:, :, 0] for gradient in attention.backward(dy[:, :, None], cache))
    dweights = REFERENCE.matmul(dy, transposed(v))                                 # what the library calls ddropped
    dscores = REFERENCE.masked_softmax_backward(dweights, weights, 1.0)
    return {"dv": dv, "dweights": dweights, "dscores": dscores, "dq": dq, "dk": dk}


def attention_case(B: int, T: int, S: int, d_k: int, d_v: int):
    return lambda random: {"q": random.normal(size=(B, T, d_k)), "k": random.normal(size=(B, S, d_k)),
                           "v": random.normal(size=(B, S, d_v))}


SCALE = {"1 / sqrt(d_k)": lambda q: 1 / math.sqrt(q.shape[-1])}

ATTENTION = Backward(
    id="04_attention_backward",
    title="The whole backward pass of equation 1",
    function="attention_backward",
    arguments=("dy", "q", "k", "v", "weights"),
    cases={"2 sentences, 3 queries, 4 keys": attention_case(2, 3, 4, 5, 6), "one query":
           attention_case(1, 1, 3, 7, 2), "one key": attention_case(1, 3, 1, 2, 4)},
    forward={"scores": lambda q, k: REFERENCE.matmul(q, transposed(k)) / math.sqrt(q.shape[-1]),
             "weights": lambda scores: REFERENCE.masked_softmax(scores, 1.0, None, False),
             "y": lambda weights, v: REFERENCE.matmul(weights, v)},
    gradients=(
        Result("dv", suspects={
            "every value gets the same, the sum of dy; a query pays back by the weight that it gave":
                lambda dy, v: np.broadcast_to(dy.sum(axis=1, keepdims=True), v.shape)}),
        Result("dweights"),
        Result(
            "dscores",
            terms={
                "the term weights * dweights": lambda weights, dweights: weights * dweights,
                "the average, - weights * sum(weights * dweights),":
                    lambda weights, dweights: -weights * (weights * dweights).sum(axis=-1, keepdims=True)},
            factors=SCALE,
            suspects={
                "the average is taken over the queries; each query has a softmax of its own, over its keys":
                    lambda weights, dweights: weights * (dweights - (weights * dweights).sum(axis=-2, keepdims=True)),
                "softmax is taken element by element, weights (1 - weights): each score also changes the weights of "
                "all other keys, through the common sum":
                    lambda weights, dweights: weights * (1 - weights) * dweights,
                "the average is a plain mean of dweights; it must be weighted by the weights":
                    lambda weights, dweights: weights * (dweights - dweights.mean(axis=-1, keepdims=True)),
                "the average is divided by the number of keys, a mean of weights * dweights; the weights sum to 1, so "
                "the sum is the average":
                    lambda weights, dweights: weights * (
                        dweights - (weights * dweights).mean(axis=-1, keepdims=True))}),
        Result("dq", factors=SCALE, suspects={
            "made of dweights: q and k made the scores, so their gradients come from dscores":
                lambda dweights, q, k: dweights @ k / math.sqrt(q.shape[-1])}),
        Result("dk", factors=SCALE, suspects={
            "made of dweights: q and k made the scores, so their gradients come from dscores":
                lambda dweights, q: transposed(dweights) @ q / math.sqrt(q.shape[-1])})),
    solution=attention_backward,
    library=(Ops.attention_backward, Ops.masked_softmax_backward),
    hints=(
        "Go back one line at a time. y = weights v gives dv (B, S, d_v) and dweights (B, T, S); softmax gives dscores "
        "(B, T, S); scores = q k^T / sqrt(d_k) gives dq (B, T, d_k) and dk (B, S, d_k). For each product only one "
        "arrangement of the factors has the right shape.",
        "A value collects from every query, by the weight which that query gave it. A weight is worth the product of "
        "its value and dy. A score rises if its key is worth more than the weighted average of what is read. A query "
        "collects from every key, a key from every query, by dscores.",
        "dv = weights^T dy;  dweights = dy v^T;  dscores = weights (dweights - sum_s weights dweights);  "
        "dq = dscores k / sqrt(d_k);  dk = dscores^T q / sqrt(d_k)."))

# 04_attention ---------------------------------------------------------------------------------------------------------


def attention(q, k, v):
    as_one_head = [x[:, :, None] for x in (q, k, v)]                               # (B, ., 1, .)
    return ScaledDotProductAttention().forward(*as_one_head)[0][:, :, 0]


def blend(q: np.ndarray, k: np.ndarray, v: np.ndarray, factor: float | None = None, axis: int = -1) -> np.ndarray:
    """Equation 1 by its definition, or with another factor, or with a softmax over another axis."""
    scores = np.einsum("btd,bsd->bts", q, k) * (1 / math.sqrt(q.shape[-1]) if factor is None else factor)
    weights = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return np.einsum("bts,bsj->btj", weights / weights.sum(axis=axis, keepdims=True), v)


def finite_only_at_the_top(yours: np.ndarray, q: np.ndarray, k: np.ndarray) -> bool:
    """Of some rows that are not finite, is that with the largest score none?"""
    finite = np.isfinite(yours).all(axis=-1)
    largest = np.einsum("btd,bsd->bts", q, k).max(axis=-1)
    return bool(not finite.all() and finite[np.unravel_index(largest.argmax(), largest.shape)])


def lookup_case(B: int, T: int, S: int, d_k: int, d_v: int, size: float = 1.0):
    return lambda random: {"q": size * random.normal(size=(B, T, d_k)), "k": random.normal(size=(B, S, d_k)),
                           "v": random.normal(size=(B, S, d_v))}


LOOKUP = Build(
    id="04_attention",
    title="Equation 1: scaled dot-product attention",
    function="attention",
    arguments=("q", "k", "v"),
    cases={"2 sentences, 3 queries, 4 keys": lookup_case(2, 3, 4, 5, 6), "one query": lookup_case(1, 1, 3, 7, 2),
           "one key": lookup_case(1, 3, 1, 2, 4), "scores in the thousands": lookup_case(2, 4, 5, 3, 2, size=2000.0)},
    expected=lambda q, k, v: blend(q, k, v),
    result=Result(
        "y",
        symptoms={
            "one maximum is subtracted from all scores: in a row far below it every exp is 0, and 0 / 0 is nan; "
            "subtract from each row its own": lambda yours, q, k: finite_only_at_the_top(yours, q, k),
            "exp overflows where scores are large: subtract the largest of each row first":
                lambda yours: not np.isfinite(yours).all()},
        suspects={
            "the softmax runs over the queries; each query shares out its weight among its keys, the last axis":
                lambda q, k, v: blend(q, k, v, axis=-2),
            "the factor 1 / sqrt(d_k) is missing": lambda q, k, v: blend(q, k, v, 1.0),
            "divided by d_k; equation 1 divides by its root": lambda q, k, v: blend(q, k, v, 1 / q.shape[-1]),
            "divided by sqrt(d_v); a score is a sum of d_k products":
                lambda q, k, v: blend(q, k, v, 1 / math.sqrt(v.shape[-1])),
            "divided by sqrt(S), the root of the number of keys; a score is a sum of d_k products":
                lambda q, k, v: blend(q, k, v, 1 / math.sqrt(k.shape[1])),
            "multiplied by sqrt(d_k) instead of divided": lambda q, k, v: blend(q, k, v, math.sqrt(q.shape[-1])),
            "the mean of the values: the weights do not come from the scores":
                lambda q, v: np.repeat(v.mean(axis=1, keepdims=True), q.shape[1], axis=1),
            "the value of the best key alone, a hard lookup": lambda q, k, v: blend(q, k, v, 1e9)}),
    solution=attention,
    library=(ScaledDotProductAttention.forward, Ops.attention, Ops.masked_softmax),
    hints=(
        "scores and weights are (B, T, S), the result (B, T, d_v). `@` multiplies the last two axes, so one of its "
        "factors has these two swapped: k.swapaxes(-1, -2).",
        "Each query is compared with each key of its sentence. The scores are scaled and each row of them becomes "
        "weights of sum 1, whatever its size; the weights mix the values.",
        "softmax(q k^T / sqrt(d_k)) v, with exp(z - max z) / sum exp(z - max z) over the last axis, keepdims=True."))

# 04_cross_attention ---------------------------------------------------------------------------------------------------


def cross_attention(x, memory, W_Q, W_K, W_V):
    q, k, v = (REFERENCE.linear(side, W, None) for side, W in ((x, W_Q), (memory, W_K), (memory, W_V)))
    return attention(q, k, v)


def cross_attention_complaint(answer: Callable) -> str | None:
    """Which array the queries, keys and values are taken from, if it is the wrong one."""
    for T, S in ((4, 4), (3, 5), (6, 2)):
        random = np.random.default_rng(T)
        sides = {"x": random.normal(size=(2, T, 6)), "memory": random.normal(size=(2, S, 6))}
        W_Q, W_K, W_V = weights = [random.normal(size=(6, width)) for width in (5, 5, 7)]
        truth = cross_attention(**sides, W_Q=W_Q, W_K=W_K, W_V=W_V)
        try:
            yours = as_array(answer(*sides.values(), *weights), truth)
        except Unlike as unlike:
            return f"y is {unlike}"
        if yours.shape != truth.shape:
            return (f"shape {yours.shape}, expected {truth.shape}: with {T} words being written and {S} being read, "
                    "there is one row for each that is being written")
        if not error(yours, truth) <= TOLERANCE:
            return misplaced(yours, sides, weights) if T == S else f"right for T = S = 4, wrong for T = {T}, S = {S}"
    return None


def misplaced(yours: np.ndarray, sides: dict[str, np.ndarray], weights: list[np.ndarray]) -> str:
    """What was taken from where, if the result betrays it; T = S."""
    for origin in itertools.product(sides, repeat=3):
        q, k, v = (sides[name] @ W for name, W in zip(origin, weights))
        if error(yours, blend(q, k, v)) < TOLERANCE:
            places = ", ".join(f"{what} from {name}" for what, name in zip(("queries", "keys", "values"), origin))
            return f"{places}: {'; '.join(objections(*origin))}"
    return "wrong, wherever queries, keys and values are taken from: is the attention itself as it was?"


def objections(queries: str, keys: str, values: str) -> Iterator[str]:
    """What does not work if they are taken from there."""
    if queries == keys == values:
        yield f"the sentence {'being read' if queries == 'x' else 'being written'} has no effect on the result"
    elif keys != values:
        yield "keys and values are of two sentences, so the place that a query finds in one means nothing in the other"
    if queries == "memory":
        yield "each row of the result belongs to a word of the sentence that asked; is that the one being written?"


CROSS = Break(
    id="04_cross_attention",
    title="Repair a cross-attention that passes every gradient check",
    function="cross_attention",
    arguments=("x", "memory", "W_Q", "W_K", "W_V"),
    complaint=cross_attention_complaint,
    solution=cross_attention,
    library=(CrossAttention.forward,),
    hints=(
        "x is (B, T, D), memory (B, S, D), the result (B, T, d_v): one row for each word being written. What does the "
        "function return for T = 3, S = 5?",
        "Whose rows ask, and whose rows are asked? A dict has the keys and the values side by side, in one place; the "
        "query comes from outside.",
        "q = x W_Q, k = memory W_K, v = memory W_V."))

EXERCISES = (LOOKUP, ATTENTION, CROSS)
