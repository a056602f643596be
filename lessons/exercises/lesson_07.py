"""The exercises of lesson 07: many heads."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from exercises.diagnosis import TOLERANCE, Unlike, as_array, error
from exercises.exercise import Backward, Break, Build, Result
from scratchformer.nn import attention
from scratchformer.nn.attention import CrossAttention, ScaledDotProductAttention
from scratchformer.nn.ops import Ops, by_head, transposed

REFERENCE = Ops(np)


def columns_of(x: np.ndarray, h: int) -> list[np.ndarray]:
    """By the definition: the columns of each head, cut out one after the other. h times (B, T, d_k)"""
    return np.split(x, h, axis=-1)


def split(x: np.ndarray, h: int) -> np.ndarray:
    """(B, T, h d_k) -> (B, h, T, d_k)"""
    return by_head(x.reshape(*x.shape[:2], h, -1))


def merge(heads: np.ndarray) -> np.ndarray:
    """(B, h, T, d_k) -> (B, T, h d_k)"""
    B, h, T, d_k = heads.shape
    return by_head(heads).reshape(B, T, h * d_k)


def cut_rows(x: np.ndarray, h: int) -> np.ndarray:
    """The classic mistake: (B, T, h d_k) -> (B, h, T, d_k) by a reshape alone."""
    return x.reshape(len(x), h, x.shape[1], -1)


# 07_split_heads -------------------------------------------------------------------------------------------------------


def split_heads(x, h):
    return by_head(x.reshape(*x.shape[:2], h, -1))


def joined_case(B: int, T: int, h: int, d_k: int):
    return lambda random: {"x": random.normal(size=(B, T, h * d_k)), "h": h}


SPLIT = Build(
    id="07_split_heads",
    title="Cut a projection into heads",
    function="split_heads",
    arguments=("x", "h"),
    cases={"2 heads of 5, 4 positions": joined_case(3, 4, 2, 5), "6 heads of 1": joined_case(2, 3, 6, 1),
           "one head, one position": joined_case(1, 1, 1, 7)},
    expected=lambda x, h: np.stack(columns_of(x, h), axis=1),
    result=Result(
        "heads",
        suspects={
            "a reshape cuts the rows: each head holds all columns of a few positions, where it should hold a few "
            "columns of all positions":
                lambda x, h: cut_rows(x, h),
            "each head takes every h-th column; the columns of one head lie side by side":
                lambda x, h: np.stack([x[..., head::h] for head in range(h)], axis=1),
            "the heads are in the order from last to first":
                lambda x, h: np.stack(columns_of(x, h)[::-1], axis=1),
            "h and d_k are exchanged: there are h heads":
                lambda x, h: split(x, x.shape[-1] // h),
            "this is the first head only":
                lambda x, h: columns_of(x, h)[0]}),
    solution=split_heads,
    library=(attention.split_heads, by_head),
    hints=(
        "From (B, T, h d_k) to (B, h, T, d_k). The last axis is the one that must be cut in two: first comes which "
        "head, then which column of it.",
        "reshape keeps the numbers in their order, so it may only cut an axis or join two that stand side by side. To "
        "bring one axis before another, they have to be swapped, which is another step.",
        "heads = x.reshape(B, T, h, d_k).swapaxes(1, 2)."))

# 07_heads_backward ----------------------------------------------------------------------------------------------------


def heads_backward(dy, memory, weights, joined, W_V, W_O):
    B, h, T, S = weights.shape
    dW_O, dW_V = np.zeros_like(W_O), np.zeros_like(W_V)
    djoined = REFERENCE.linear_backward(dy, joined, W_O, dW_O, None)
    dheads = by_head(djoined.reshape(B, T, h, -1))
    dv = REFERENCE.matmul(transposed(weights), dheads)
    dmemory = REFERENCE.linear_backward(by_head(dv).reshape(B, S, -1), memory, W_V, dW_V, None)
    return {"dW_O": dW_O, "dheads": dheads, "dv": dv, "dW_V": dW_V, "dmemory": dmemory}


def attention_case(B: int, h: int, T: int, S: int, d_v: int, D: int):
    def case(random):
        return {"memory": random.normal(size=(B, S, D)), "W_V": random.normal(size=(D, h * d_v)),
                "weights": REFERENCE.masked_softmax(random.normal(size=(B, h, T, S)), 1.0, None, False),
                "W_O": random.normal(size=(h * d_v, D + 1))}
    return case


HEADS = Backward(
    id="07_heads_backward",
    title="Back through W_O, the merge, the heads, the split and W_V",
    function="heads_backward",
    arguments=("dy", "memory", "weights", "joined", "W_V", "W_O"),
    cases={"3 heads of 2 sentences": attention_case(2, 3, 4, 6, 5, 7),
           "one head, one query": attention_case(1, 1, 1, 3, 2, 4)},
    forward={"v": lambda memory, W_V, weights: split(REFERENCE.linear(memory, W_V, None), weights.shape[1]),
             "heads": lambda weights, v: REFERENCE.matmul(weights, v),
             "joined": lambda heads: merge(heads),
             "y": lambda joined, W_O: REFERENCE.linear(joined, W_O, None)},
    gradients=(
        Result("dW_O"),
        Result("dheads",
               factors={"1 / h, as if the heads were averaged,": lambda weights: 1 / weights.shape[1]},
               suspects={
                   "the gradient of `joined` is cut into rows, by a reshape alone; merge is undone by cutting columns":
                       lambda dy, W_O, weights: cut_rows(dy @ W_O.T, weights.shape[1]),
                   "each head takes every h-th column of the gradient of `joined`; a head's columns lie side by side":
                       lambda dy, W_O, weights: np.stack([(dy @ W_O.T)[..., head::weights.shape[1]]
                                                          for head in range(weights.shape[1])], axis=1),
                   "all heads get what belongs to the first: each has a block of d_v rows of W_O for itself":
                       lambda dy, W_O, weights: np.repeat(split(dy @ W_O.T, weights.shape[1])[:, :1],
                                                          weights.shape[1], axis=1)}),
        Result("dv",
               suspects={
                   "the weights are forgotten: a value has a share in each query's head as large as its weight":
                       lambda dheads, weights: np.broadcast_to(dheads.sum(axis=2, keepdims=True),
                                                               (*dheads.shape[:2], weights.shape[-1],
                                                                dheads.shape[-1]))}),
        Result("dW_V",
               suspects={
                   "dv of all heads is joined by a reshape alone; the split is undone by swapping back first":
                       lambda memory, dv: np.einsum("bsd,bse->de", memory, dv.reshape(*memory.shape[:2], -1))}),
        Result("dmemory",
               suspects={
                   "this is the share of the first head only; memory went into the values of all heads":
                       lambda dv, W_V: dv[:, 0] @ W_V[:, :dv.shape[-1]].T})),
    solution=heads_backward,
    library=(CrossAttention.backward, attention.join_heads, Ops.attention_backward, Ops.linear_backward),
    hints=(
        "djoined is (B, T, h d_v), like joined; dheads is (B, h, T, d_v). dv is (B, h, S, d_v): the product of a "
        "transposed `weights` and dheads. Before W_V comes its turn, dv must be (B, S, h d_v).",
        "Two linear layers, one at each end. Between them, the gradient goes back the way that the number came: what "
        "was merged is split, what was split is merged, and nothing is added or scaled in doing so. In the heads, a "
        "value gets from each query what that query's head gets, times the weight it had.",
        "djoined = dy W_O^T, dW_O = joined^T dy;  dheads = split(djoined);  dv = weights^T dheads;  "
        "dW_V = memory^T merge(dv), dmemory = merge(dv) W_V^T."))

# 07_wrong_split -------------------------------------------------------------------------------------------------------


def multi_head(q, k, v, h):
    heads = [x.reshape(*x.shape[:2], h, -1) for x in (q, k, v)]
    y, _ = ScaledDotProductAttention().forward(*heads)
    return y.reshape(q.shape)


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, d_k: int) -> np.ndarray:
    """Equation 1 over the last two axes."""
    return REFERENCE.masked_softmax(q @ transposed(k), 1 / math.sqrt(d_k), None, False) @ v


def mended(cut: Callable, join: Callable, q: np.ndarray, k: np.ndarray, v: np.ndarray, h: int) -> np.ndarray:
    return join(attend(cut(q, h), cut(k, h), cut(v, h), q.shape[-1] // h))


def join_rows(heads: np.ndarray) -> np.ndarray:
    B, h, T, d_k = heads.shape
    return heads.reshape(B, T, h * d_k)


STILL_WRONG = {
    "it is as broken as it was: a reshape cuts and joins rows, which are positions":
        lambda q, k, v, h: mended(cut_rows, join_rows, q, k, v, h),
    "the split is mended, the merge is not: the heads come back to the wrong positions":
        lambda q, k, v, h: mended(split, join_rows, q, k, v, h),
    "the merge is mended, the split is not: a head still holds all columns of a few positions":
        lambda q, k, v, h: mended(cut_rows, merge, q, k, v, h),
    "there is one head only: no position is mixed up, but all columns share one set of weights":
        lambda q, k, v, h: attend(q, k, v, q.shape[-1]),
    "the scores are divided by sqrt(d_model); a head has d_k columns":
        lambda q, k, v, h: merge(attend(split(q, h), split(k, h), split(v, h), q.shape[-1])),
}


def mending_complaint(answer: Callable) -> str | None:
    """The first way in which it is not multi-head attention."""
    random = np.random.default_rng(0)
    for B, T, h, d_k in ((2, 6, 2, 5), (3, 4, 4, 3)):
        q, k, v = random.normal(size=(3, B, T, h * d_k))
        heads = zip(columns_of(q, h), columns_of(k, h), columns_of(v, h))
        truth = np.concatenate([attend(q_i, k_i, v_i, d_k) for q_i, k_i, v_i in heads], axis=-1)
        try:
            yours = as_array(answer(q, k, v, h), truth)
        except Unlike as unlike:
            return f"joined is {unlike}"
        if yours.shape != truth.shape:
            return f"shape {yours.shape}, expected {truth.shape}"
        if not error(yours, truth) <= TOLERANCE:
            for words, mistake in STILL_WRONG.items():
                if error(yours, mistake(q, k, v, h)) <= TOLERANCE:
                    return words
            return positions_complaint(answer, q, k, v, h)
    return None


def positions_complaint(answer: Callable, q: np.ndarray, k: np.ndarray, v: np.ndarray, h: int) -> str:
    """Of a wrong function that makes no mistake of `STILL_WRONG`: does a query have an effect at other positions?"""
    moved = q.copy()
    moved[:, -1] += 1
    if (np.asarray(answer(moved, k, v, h)) != np.asarray(answer(q, k, v, h)))[:, :-1].any():
        return "the last query has an effect on other positions: somewhere a head still holds what is not its own"
    return "each query keeps to its own position, but the numbers are not those of equation 1 in each head"


WRONG_SPLIT = Break(
    id="07_wrong_split",
    title="Mend heads that are cut from rows",
    function="multi_head",
    arguments=("q", "k", "v", "h"),
    complaint=mending_complaint,
    solution=multi_head,
    library=(Ops.attention, by_head),
    hints=(
        "All shapes in it are right, and that is why nobody noticed. Take B = 1, T = 4, h = 2, d_k = 1, number the "
        "elements 0 to 7, and print what head 0 gets.",
        "reshape keeps the numbers in their order in memory: there, the columns of one position lie side by side, so "
        "cutting off the first half cuts off the first positions. It happens on the way in and on the way out.",
        "In: x.reshape(B, T, h, d_k).swapaxes(1, 2), for queries and keys alike. Out: heads.swapaxes(1, 2), then "
        "reshape to (B, T, h d_k)."))

EXERCISES = (SPLIT, HEADS, WRONG_SPLIT)
