"""Exercises of lesson 03: additive attention, its scores, contexts and gradients, and what it does not see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exercises.exercise import Backward, Break, Build, Result, Values
from scratchformer.nn.parameter import Array
from support.recurrent import AdditiveAttention, AdditiveCache, context


def attention(W: Array, U: Array, v: Array) -> AdditiveAttention:
    """The library's layer with these weights."""
    layer = AdditiveAttention(len(W), len(U), len(v), np.random.default_rng(0), "float64")
    layer.query.weight.data[...], layer.key.weight.data[...], layer.score.weight.data[:, 0] = W, U, v
    return layer


def states_and_weights(B: int, T: int, S: int, d_s: int = 6, d_h: int = 3,
                       d_a: int = 7) -> Callable[[np.random.Generator], Values]:
    return lambda random: {"s": random.normal(size=(B, T, d_s)), "h": random.normal(size=(B, S, d_h)),
                           "W": random.normal(size=(d_s, d_a)) / 2, "U": random.normal(size=(d_h, d_a)),
                           "v": random.normal(size=d_a)}


def weights_of(e: Array) -> Array:
    """softmax along the last axis: e (B, T, S) -> (B, T, S)"""
    _, weights = context(e, np.zeros((len(e), e.shape[2], 1)))
    return weights


CASES = {"2 sequences, 4 positions, 5 states": states_and_weights(2, 4, 5), "one position": states_and_weights(2, 1, 4),
         "one sequence": states_and_weights(1, 3, 2)}

# 03_additive_scores ---------------------------------------------------------------------------------------------------


def additive_scores(s: Array, h: Array, W: Array, U: Array, v: Array) -> Array:
    e, *_ = attention(W, U, v).scores(s, h)
    return e


def by_definition(s: Array, h: Array, W: Array, U: Array, v: Array) -> Array:
    """Pair by pair: (B, T, S)"""
    return np.array([[[np.tanh(s_t @ W + h_j @ U) @ v for h_j in h[b]] for s_t in s[b]]
                     for b in range(len(s))])


ADDITIVE_SCORES = Build(
    id="03_additive_scores",
    title="Score every position of the decoder with every state of the encoder",
    function="additive_scores",
    arguments=("s", "h", "W", "U", "v"),
    cases=CASES,
    expected=by_definition,
    result=Result("e", suspects={
        "the tanh is missing: without it every position would get the same weights":
            lambda s, h, W, U, v: (s @ W @ v)[:, :, None] + (h @ U @ v)[:, None],
        "the two parts go through tanh before they are added; the sum goes through it":
            lambda s, h, W, U, v: (np.tanh(s @ W) @ v)[:, :, None] + (np.tanh(h @ U) @ v)[:, None],
        "these are the weights: return the scores, before softmax":
            lambda s, h, W, U, v: weights_of(by_definition(s, h, W, U, v)),
        "v is not used: the hidden numbers are summed, each with its own factor from v":
            lambda s, h, W, U, v: by_definition(s, h, W, U, np.ones(len(v))),
        "the decoder is not in it: every position has the scores of a decoder whose state is 0":
            lambda s, h, W, U, v: by_definition(0 * s, h, W, U, v),
    }),
    solution=additive_scores,
    library=(AdditiveAttention.scores,),
    hints=(
        "s W is (B, T, d_a) and h U is (B, S, d_a). Their sum for all pairs is (B, T, S, d_a), and e is (B, T, S).",
        "None in an index adds an axis, along which broadcasting copies: (B, T, 1, d_a) + (B, 1, S, d_a).",
        "e = tanh((s W)[:, :, None] + (h U)[:, None]) v."))

# 03_context -----------------------------------------------------------------------------------------------------------


def contexts(e: Array, h: Array) -> Array:
    c, _ = context(e, h)
    return c


def means_by_definition(e: Array, h: Array) -> Array:
    """Position by position: (B, T, d_h)"""
    powers = np.exp(e - e.max(axis=2, keepdims=True))
    return np.array([[sum(p * state for p, state in zip(row, h[b])) / row.sum() for row in powers[b]]
                     for b in range(len(h))])


def scores_and_states(B: int, T: int, S: int, size: float = 1.0) -> Callable[[np.random.Generator], Values]:
    return lambda random: {"e": size * random.normal(size=(B, T, S)), "h": random.normal(size=(B, S, 6))}


CONTEXT = Build(
    id="03_context",
    title="From scores and states to contexts",
    function="context",
    arguments=("e", "h"),
    cases={"2 sequences, 4 positions, 5 states": scores_and_states(2, 4, 5), "one position": scores_and_states(3, 1, 4),
           "scores in the thousands": scores_and_states(2, 3, 4, 3000.0), "one state": scores_and_states(2, 3, 1)},
    expected=means_by_definition,
    result=Result("c", suspects={
        "softmax runs over the positions: the weights of each position add up to 1 over the states, the last axis":
            lambda e, h: weights_of(e.swapaxes(1, 2)).swapaxes(1, 2) @ h,
        "the mean of all states: the scores are not used":
            lambda e, h: means_by_definition(0 * e, h),
        "the state with the highest score alone: a mean of all of them is asked for":
            lambda e, h: np.eye(e.shape[2])[e.argmax(axis=2)] @ h,
        "the scores themselves are the factors: make weights of them with softmax":
            lambda e, h: e @ h,
        "the highest scores get the smallest weights: the sign in the exponent":
            lambda e, h: means_by_definition(-e, h),
    }, symptoms={
        "nan for large scores: e^3000 overflows. Subtract the largest score of each row first":
            lambda yours: np.isnan(yours).any(),
    }),
    solution=contexts,
    library=(context,),
    hints=(
        "e (B, T, S), h (B, S, d_h), c (B, T, d_h). The weights have the shape of e.",
        "Softmax over the states, the last axis of e. Subtract the largest score of a row before exp, as in lesson 01. "
        "Then a mean: `@` takes each sequence by itself.",
        "w = exp(e - max) / sum of that, along the last axis with keepdims=True;  c = w @ h."))

# 03_additive_backward -------------------------------------------------------------------------------------------------


def additive_backward(dc: Array, s: Array, h: Array, W: Array, U: Array, v: Array, weights: Array, z: Array) -> Values:
    layer = attention(W, U, v)
    ds, dh = layer.backward(dc, AdditiveCache(h, weights, (s,), (h,), (z,)))
    return {"dv": layer.score.weight.grad[:, 0], "dW": layer.query.weight.grad, "dU": layer.key.weight.grad,
            "ds": ds, "dh": dh}


def forward(s: Array, h: Array, W: Array, U: Array, v: Array) -> tuple[Array, AdditiveCache]:
    return attention(W, U, v).forward(s, h)


def dv_with(de: Array, z: Array) -> Array:
    return np.einsum("btsk,bts->k", z, de)


def at_scores(dc: Array, h: Array, weights: Array) -> Array:
    """de (B, T, S)"""
    dweights = dc @ h.swapaxes(1, 2)
    return weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))


def dW_with(dc: Array, s: Array, h: Array, v: Array, weights: Array, slope: Array) -> Array:
    da = at_scores(dc, h, weights)[..., None] * v * slope
    return np.einsum("bti,btk->ik", s, da.sum(axis=2))


ADDITIVE_BACKWARD = Backward(
    id="03_additive_backward",
    title="The gradients of additive attention",
    function="additive_backward",
    arguments=("dc", "s", "h", "W", "U", "v", "weights", "z"),
    cases=CASES,
    forward={
        "z": lambda s, h, W, U, v: forward(s, h, W, U, v)[1].score[0],
        "weights": lambda s, h, W, U, v: forward(s, h, W, U, v)[1].weights,
        "c": lambda s, h, W, U, v: forward(s, h, W, U, v)[0],
    },
    gradients=(
        Result("dv", suspects={
            "the mean in the bracket of softmax is missing: a score that grows lowers the other weights of its row":
                lambda dc, h, weights, z: dv_with(weights * (dc @ h.swapaxes(1, 2)), z),
            "the gradient of the weights was taken for that of the scores: softmax lies between them":
                lambda dc, h, z: dv_with(dc @ h.swapaxes(1, 2), z),
            "only the diagonal of softmax: w (1 - w) dw leaves out that the weights share a sum":
                lambda dc, h, weights, z: dv_with(weights * (1 - weights) * (dc @ h.swapaxes(1, 2)), z),
        }),
        Result("dW", suspects={
            "the derivative of tanh, 1 - z^2, is missing":
                lambda dc, s, h, v, weights, z: dW_with(dc, s, h, v, weights, np.ones_like(z)),
            "v is missing between the score and tanh: de_tj reaches number k of z with the factor v_k":
                lambda dc, s, h, v, weights, z: dW_with(dc, s, h, np.ones_like(v), weights, 1 - z**2),
        }),
        Result("dU"),
        Result("ds"),
        Result("dh", terms={
            "the way of h into the scores, through U,": lambda dc, h, U, v, weights, z:
                (at_scores(dc, h, weights)[..., None] * v * (1 - z**2)).sum(axis=1) @ U.T,
            "the way of h into the mean itself": lambda dc, weights: weights.swapaxes(1, 2) @ dc,
        }),
    ),
    solution=additive_backward,
    library=(AdditiveAttention.backward,),
    hints=(
        "dc (B, T, d_h), weights (B, T, S), z (B, T, S, d_a). First make de (B, T, S), then da (B, T, S, d_a), the "
        "gradient of s_t W + h_j U. All five results follow from these two, dc and weights.",
        "What was copied forward is summed backward: s_t W served all states, h_j U all positions. h has two ways: "
        "into the scores through U, and into the mean with its weight.",
        "de = w (dw - sum of w dw) with dw = dc h^T;  dv = sum z de;  da = de v (1 - z^2);  da_s = da.sum(axis=2), "
        "da_h = da.sum(axis=1);  dW = s^T da_s, ds = da_s W^T;  dU = h^T da_h, dh = da_h U^T + w^T dc."))

# 03_bag ---------------------------------------------------------------------------------------------------------------

SHAPE = (2, 5, 3)


def other_order(h: Array) -> Array:
    return h[:, ::-1].copy()


def seen_by_attention(answer: Callable) -> str | None:
    """What is wrong with states that no attention is to tell from h; None if nothing is."""
    random = np.random.default_rng(0)
    h = random.normal(size=SHAPE)
    other = answer(h.copy())
    if not isinstance(other, np.ndarray) or other.shape != SHAPE or other.dtype != np.float64:
        return f"it should return an array of float64, of the shape of h, {SHAPE}"
    if any(np.allclose(one, two) for one, two in zip(other, h)):
        return "these are the states that it was given; other ones are asked for, in every sequence"
    values = [states_and_weights(2, 4, 5)(random) for _ in range(3)]
    before, after = ([forward(one["s"], states, one["W"], one["U"], one["v"])[0] for one in values]
                     for states in (h, other))
    if all(np.allclose(one, two, rtol=1e-9, atol=1e-12) for one, two in zip(before, after)):
        return None
    if np.allclose(np.sort(other, axis=None), np.sort(h, axis=None)):
        if np.allclose(np.sort(other, axis=2), np.sort(h, axis=2)):
            return ("the contexts change: the numbers inside each state are in another order. They are what a state "
                    "says; the order of the states is what attention does not see")
        if np.allclose(np.sort(other, axis=0), np.sort(h, axis=0)):
            return "the contexts change: each sequence now has the states of another one. Stay within a sequence"
        return ("the contexts change: the numbers are those of h, but the states are torn apart. A state moves as a "
                "whole, all its numbers together")
    if np.allclose(other.mean(axis=1), h.mean(axis=1)):
        return ("the contexts change: the plain mean of the states is the same, but the weights depend on each state "
                "by itself")
    if np.allclose(other - h, (other - h)[:, :1]):
        return ("the contexts change: something was added to all states alike. Softmax does not see what is added to "
                "all scores; but the states are also what is averaged")
    return "the contexts change: every state must still be there, in its sequence, as it was"


BAG = Break(
    id="03_bag",
    title="Find other states that attention cannot tell apart",
    function="other_states",
    arguments=("h",),
    complaint=seen_by_attention,
    solution=other_order,
    library=(context,),
    hints=(
        "h is (B, S, d_h): sequences, states, numbers in a state. The result has the same shape.",
        "The context is a sum over the states, and the score of a state depends on this state and on the decoder only. "
        "What does a sum not see?",
        "The states of each sequence in another order, each of them whole: h[:, ::-1]."))


EXERCISES = (ADDITIVE_SCORES, CONTEXT, ADDITIVE_BACKWARD, BAG)
