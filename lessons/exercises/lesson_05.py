"""The exercises of lesson 05: why the scores are divided by the root of d_k."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from exercises.diagnosis import TOLERANCE, Unlike, as_array, error
from exercises.exercise import Backward, Break, Build, Result
from exercises.numeric import numeric_gradient
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.ops import Ops, by_head, transposed

REFERENCE = Ops(np)

# 05_softmax_backward --------------------------------------------------------------------------------------------------


def softmax_backward(dweights, weights, d_k):
    return {"dscores": REFERENCE.masked_softmax_backward(dweights, weights, 1 / math.sqrt(d_k))}


def attention_weights(scores: np.ndarray, d_k: int) -> np.ndarray:
    return REFERENCE.masked_softmax(scores, 1 / math.sqrt(d_k), None, False)


def scores_case(B: int, H: int, T: int, S: int, d_k: int):
    return lambda random: {"scores": 3 * random.normal(size=(B, H, T, S)), "d_k": d_k}


SOFTMAX = Backward(
    id="05_softmax_backward",
    title="From the gradient of the weights to that of the scores",
    function="softmax_backward",
    arguments=("dweights", "weights", "d_k"),
    cases={"2 heads of 3 sequences": scores_case(3, 2, 4, 5, 7), "one query": scores_case(1, 1, 1, 6, 10)},
    forward={"weights": attention_weights},
    gradients=(
        Result(
            "dscores",
            terms={
                "the term weights * dweights":
                    lambda dweights, weights, d_k: weights * dweights / math.sqrt(d_k),
                "the average, - weights * sum(weights * dweights),":
                    lambda dweights, weights, d_k:
                        -weights * (weights * dweights).sum(axis=-1, keepdims=True) / math.sqrt(d_k)},
            factors={"1 / sqrt(d_k)": lambda d_k: 1 / math.sqrt(d_k), "weights": lambda weights: weights},
            suspects={
                "the average is taken over the queries (axis -2); each query has a softmax of its own, over its keys":
                    lambda dweights, weights, d_k:
                        weights * (dweights - (weights * dweights).sum(axis=-2, keepdims=True)) / math.sqrt(d_k),
                "the average counts all keys alike; each counts with its weight":
                    lambda dweights, weights, d_k:
                        weights * (dweights - dweights.mean(axis=-1, keepdims=True)) / math.sqrt(d_k),
                "each weight is treated as if it depended on its own score alone, weights * (1 - weights)":
                    lambda dweights, weights, d_k: dweights * weights * (1 - weights) / math.sqrt(d_k)}),),
    solution=softmax_backward,
    library=(Ops.masked_softmax_backward,),
    hints=(
        "dscores has the shape of weights, (B, H, T, S). Each query is a row of S keys and has nothing to do with "
        "the other rows: sums run over the last axis, with keepdims=True.",
        "A score rises if its key is worth more to the loss than the average of what is read already, the keys "
        "counted by their weights. How much it matters goes with the weight that it has, and with the factor before "
        "softmax.",
        "dscores = weights (dweights - sum_s weights dweights) / sqrt(d_k)."))

# 05_scaling -----------------------------------------------------------------------------------------------------------


def scaled_scores(q, k):
    return REFERENCE.matmul(by_head(q), transposed(by_head(k))) / math.sqrt(q.shape[-1])


def dot_products(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """(B, H, T, S), by the definition: the sum over the components of a query times a key of the same head."""
    return np.einsum("bthd,bshd->bhts", q, k)


def heads_case(B: int, T: int, S: int, H: int, d_k: int):
    return lambda random: {"q": random.normal(size=(B, T, H, d_k)), "k": random.normal(size=(B, S, H, d_k))}


SCALING = Build(
    id="05_scaling",
    title="Scaled scores of several heads",
    function="scaled_scores",
    arguments=("q", "k"),
    cases={"2 heads, 4 queries, 5 keys": heads_case(3, 4, 5, 2, 7), "one query, as in decoding":
           heads_case(2, 1, 6, 3, 8), "one of everything": heads_case(1, 1, 1, 1, 11)},
    expected=lambda q, k: dot_products(q, k) / math.sqrt(q.shape[-1]),
    result=Result(
        "scores",
        factors={"1 / sqrt(d_k)": lambda q: 1 / math.sqrt(q.shape[-1])},
        suspects={
            "divided by sqrt(d_model) = sqrt(h d_k); a dot product of one head is a sum of d_k terms":
                lambda q, k: dot_products(q, k) / math.sqrt(q.shape[-1] * q.shape[-2]),
            "divided by the root of the number of heads; a dot product is a sum of d_k terms, the last axis":
                lambda q, k: dot_products(q, k) / math.sqrt(q.shape[-2]),
            "each position's heads are compared with one another: move the heads before the positions first":
                lambda q, k: q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]) if q.shape[1] == k.shape[1] else q,
            "the heads are added up: each head has scores of its own":
                lambda q, k: dot_products(q, k).sum(axis=1) / math.sqrt(q.shape[-1])}),
    solution=scaled_scores,
    library=(Ops.attention, by_head, transposed, Ops.masked_softmax),
    hints=(
        "The result is (B, H, T, S): for each head of each sentence a matrix of queries and keys. Bring q to "
        "(B, H, T, d_k) first, k to (B, H, S, d_k).",
        "A score is the dot product of a query and a key of the same head, divided by the standard deviation that it "
        "would have if the d_k components were independent with variance 1. `@` multiplies the last two axes.",
        "scores = q k^T / sqrt(d_k), with q.swapaxes(1, 2) and k.swapaxes(1, 2), the last two axes of k swapped."))

# 05_all_ones ----------------------------------------------------------------------------------------------------------

UPSTREAMS = 5
CLEARLY_WRONG = 1e-2
"""A relative error as large as this is no rounding."""


def plain_average(dweights, weights):
    return weights * (dweights - dweights.mean(axis=-1, keepdims=True))


def all_ones_complaint(answer: Callable) -> str | None:
    """The first thing that keeps a function from being wrong everywhere and right for a check with ones."""
    random = np.random.default_rng(0)
    right, tries, zeros = 0, 0, True
    for shape in ((4, 5), (2, 3, 6)):
        scores = random.normal(size=shape)
        weights = attention_weights(scores, 1)
        upstreams = [np.ones(shape)] + [random.normal(size=shape) for _ in range(UPSTREAMS)]
        for number, dweights in enumerate(upstreams):
            truth = numeric_gradient(lambda moved: float((attention_weights(moved, 1) * dweights).sum()), scores)
            try:
                yours = as_array(answer(dweights, weights), truth)
            except Unlike as unlike:
                return f"dscores is {unlike}"
            if yours.shape != truth.shape:
                return f"shape {yours.shape}, expected {truth.shape}: any check would notice"
            if not np.isfinite(yours).all():
                return "it holds nan or inf: any check would notice"
            if number == 0 and error(yours, truth) > TOLERANCE:
                return (f"a check with ones notices: the true gradient is 0 there, yours goes up to "
                        f"{np.abs(yours).max():.2g}")
            if number:
                zeros = zeros and not yours.any()
                tries, right = tries + 1, right + (error(yours, truth) < TOLERANCE)
                if TOLERANCE <= error(yours, truth) < CLEARLY_WRONG:
                    return f"hardly wrong: the error for a random gradient is {error(yours, truth):.0e}"
    if right == tries:
        return "that is the right gradient, for random gradients of the weights as well"
    if right:
        return f"wrong only sometimes: right for {right} of {tries} random gradients of the weights"
    if zeros:
        return "zeros: the lesson has that one; find a gradient that is wrong and not 0"
    return None


ALL_ONES = Break(
    id="05_all_ones",
    title="A backward that is wrong for every input, and that a check with ones accepts",
    function="wrong_softmax_backward",
    arguments=("dweights", "weights"),
    complaint=all_ones_complaint,
    solution=plain_average,
    library=(Ops.masked_softmax_backward, gradcheck),
    hints=(
        "The result has the shape of dweights. The check that you are to deceive sets dweights to ones and compares "
        "with central differences. The other one draws dweights at random.",
        "The weights of a query sum to 1 whatever its scores are, so for ones the true gradient is 0. What compares "
        "dweights with an average of them vanishes for ones; the right gradient takes one certain average.",
        "Right: weights (dweights - sum(weights dweights)). Just as quiet: weights (dweights - mean(dweights))."))

EXERCISES = (SOFTMAX, SCALING, ALL_ONES)
