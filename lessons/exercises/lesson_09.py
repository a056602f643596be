"""Exercises of lesson 09: sinusoids, the matrix that shifts them, learned positions, and blindness to order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exercises.exercise import Backward, Break, Build, Result
from scratchformer.nn.attention import Mask, ScaledDotProductAttention
from scratchformer.nn.layers import LearnedPositions, sinusoids
from scratchformer.nn.ops import Ops
from scratchformer.nn.parameter import Array
from support.positions import shift_matrix

# 09_sinusoids ---------------------------------------------------------------------------------------------------------


def by_definition(first: int, count: int, d_model: int) -> Array:
    """Number by number, from §3.5: (count, d_model)"""
    return np.array([[(np.cos if c % 2 else np.sin)(pos / 10000 ** ((c - c % 2) / d_model)) for c in range(d_model)]
                     for pos in range(first, first + count)])


def with_angles(first: int, count: int, exponents: Array, base: float = 10000.0) -> Array:
    """Sine in the even, cosine in the odd components, of pos / base^exponent. exponents (D,) -> (count, D)"""
    angles = np.arange(first, first + count)[:, None] / base**exponents
    return np.where(np.arange(len(exponents)) % 2, np.cos(angles), np.sin(angles))


def in_pairs(d_model: int) -> Array:
    """The exponents 2i / d_model, each twice: (D,)"""
    return np.arange(d_model) // 2 * 2 / d_model


def position_vectors(first: int, count: int, d_model: int) -> Array:
    return sinusoids(first, count, d_model)


SINUSOIDS = Build(
    id="09_sinusoids",
    title="Write the table of sines and cosines",
    function="position_vectors",
    arguments=("first", "count", "d_model"),
    cases={
        "five positions from 3 on": lambda random: {"first": 3, "count": 5, "d_model": 8},
        "from the beginning": lambda random: {"first": 0, "count": 7, "d_model": 6},
        "one position far out": lambda random: {"first": int(random.integers(500, 900)), "count": 1, "d_model": 12},
    },
    expected=by_definition,
    result=Result(name="PE", suspects={
        "`first` is ignored: row 0 belongs to position `first`":
            lambda count, d_model: sinusoids(0, count, d_model),
        "positions are counted from 1: the first word stands at position 0":
            lambda first, count, d_model: sinusoids(first + 1, count, d_model),
        "all sines stand before all cosines: the paper has them side by side, components 2i and 2i + 1":
            lambda truth: np.concatenate([truth[:, ::2], truth[:, 1::2]], axis=1),
        "sine and cosine are exchanged: the sine belongs to the even components":
            lambda truth, count, d_model: truth.reshape(count, d_model // 2, 2)[:, :, ::-1].reshape(count, d_model),
        "each component has a speed of its own: i counts pairs, so components 2i and 2i + 1 share the exponent "
        "2i / d_model":
            lambda first, count, d_model: with_angles(first, count, np.arange(d_model) / d_model),
        "the exponent is 2 c / d_model for component c: it is i that counts pairs, so half the components are too slow":
            lambda first, count, d_model: with_angles(first, count, 2 * np.arange(d_model) / d_model),
        "the speeds are upside down: the position is divided by 10000^(2i / d_model), not multiplied":
            lambda first, count, d_model: with_angles(first, count, -in_pairs(d_model)),
        "the exponent is i / d_model: it must be 2i / d_model":
            lambda first, count, d_model: with_angles(first, count, in_pairs(d_model) / 2),
        "the angles are taken for degrees: they are radians":
            lambda first, count, d_model: with_angles(first, count, in_pairs(d_model)
                                                      + np.log(180 / np.pi) / np.log(10000)),
        "the base is 100000: it must be 10000":
            lambda first, count, d_model: with_angles(first, count, in_pairs(d_model), 100000.0),
        "the last wavelength is 10000 times 2 pi, as in Tensor2Tensor: the paper divides by d_model / 2, not by "
        "d_model / 2 - 1":
            lambda first, count, d_model: with_angles(first, count, in_pairs(d_model) * d_model / (d_model - 2)),
    }),
    solution=position_vectors,
    library=(sinusoids,),
    hints=(
        "The result is (count, d_model). Positions as a column, np.arange(first, first + count)[:, None], and a row of "
        "d_model / 2 speeds give all angles at once, (count, d_model / 2).",
        "Pair i turns by 10000^(-2i / d_model) radians per word. Its sine goes into component 2i, its cosine into "
        "component 2i + 1: table[:, 0::2] and table[:, 1::2].",
        "angle = pos / 10000 ** (2 * i / d_model) with i = 0 ... d_model / 2 - 1.",
    ),
)

# 09_shift_matrix ------------------------------------------------------------------------------------------------------


def one_pair(angle: float) -> Array:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def blocks_written_out(k: int, d_model: int, speed_of: Callable[[int], float] | None = None) -> Array:
    """Pair by pair, from the addition theorems. (D, D)"""
    M = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        M[i:i + 2, i:i + 2] = one_pair(k * (speed_of(i // 2) if speed_of else 10000 ** (-i / d_model)))
    return M


def in_halves(M: Array) -> Array:
    """The same rotation for vectors that hold all sines first, then all cosines."""
    order = np.concatenate([np.arange(0, len(M), 2), np.arange(1, len(M), 2)])
    return M[np.ix_(order, order)]


def matrix_of_shift(k: int, d_model: int) -> Array:
    return shift_matrix(k, d_model)


SHIFT_MATRIX = Build(
    id="09_shift_matrix",
    title="Write the matrix that leads k words on",
    function="shift",
    arguments=("k", "d_model"),
    cases={
        "three words on": lambda random: {"k": 3, "d_model": 8},
        "two words back": lambda random: {"k": -2, "d_model": 6},
        "many words": lambda random: {"k": int(random.integers(20, 60)), "d_model": 10},
    },
    expected=lambda k, d_model: blocks_written_out(k, d_model),
    result=Result(name="M", suspects={
        "this leads k words back: the signs of the two sines are exchanged (or the matrix is transposed)":
            lambda truth: truth.T,
        "both sines have the same sign: cos(a + b) = cos a cos b - sin a sin b":
            lambda truth: np.tril(truth) - np.triu(truth, 1),
        "the sines are missing: a pair is turned, and not only scaled":
            lambda truth: np.diag(np.diagonal(truth)),
        "sine and cosine are exchanged in the blocks: the cosine belongs on the diagonal":
            lambda truth, d_model: truth[:, np.arange(d_model) ^ 1] * -((-1.0) ** np.arange(d_model)[:, None]),
        "all pairs turn by the same angle: pair i turns by k 10000^(-2i / d_model)":
            lambda k, d_model: blocks_written_out(k, d_model, lambda i: 1.0),
        "the pairs turn by the wrong angles: the exponent of pair i is 2i / d_model, not i / d_model":
            lambda k, d_model: blocks_written_out(k, d_model, lambda i: 10000 ** (-i / d_model)),
        "this is the shift by one word: k is not used":
            lambda d_model: blocks_written_out(1, d_model),
        "this matrix is for vectors with all sines first; here sine and cosine of a pair stand side by side":
            lambda truth: in_halves(truth),
        "the identity: it leads nowhere":
            lambda d_model: np.eye(d_model),
    }),
    solution=matrix_of_shift,
    library=(shift_matrix,),
    hints=(
        "The result is (d_model, d_model), zeros but for d_model / 2 blocks of 2 x 2 on the diagonal: rows and columns "
        "2i and 2i + 1.",
        "Component 2i of PE(pos + k) is sin(a + b), with a = omega pos, b = omega k. The addition theorem makes it of "
        "sin a and cos a, which are components 2i and 2i + 1 of PE(pos); the two factors are the first column of the "
        "block.",
        "[[cos b, -sin b], [sin b, cos b]] with b = k / 10000^(2i / d_model).",
    ),
)

# 09_learned_positions_backward ----------------------------------------------------------------------------------------


def learned_positions(x: Array, P: Array, first: int) -> Array:
    layer = LearnedPositions(len(P), P.shape[1], np.random.default_rng(0), "float64")
    layer.weight.data[...] = P
    return layer.forward(x, first)[0]


def learned_positions_backward(dy: Array, first: int, max_positions: int) -> dict[str, Array]:
    layer = LearnedPositions(max_positions, dy.shape[2], np.random.default_rng(0), "float64")
    _, cache = layer.forward(dy, first)
    return {"dx": layer.backward(dy, cache), "dP": layer.weight.grad}


def at_rows(rows: Array, start: int, max_positions: int) -> Array:
    """Rows (T, D) in a table of zeros, from row `start` on. -> (max_positions, D)"""
    table = np.zeros((max_positions, rows.shape[1]))
    table[start:start + len(rows)] = rows
    return table


def positions_case(B: int, T: int, D: int, first: int, max_positions: int) -> Callable:
    return lambda random: {"x": random.normal(size=(B, T, D)), "P": random.normal(size=(max_positions, D)),
                           "first": first, "max_positions": max_positions}


LEARNED_BACKWARD = Backward(
    id="09_learned_positions_backward",
    title="Write the backward of learned positions",
    function="learned_positions_backward",
    arguments=("dy", "first", "max_positions"),
    cases={"3 sentences from position 2 on": positions_case(3, 4, 5, 2, 9),
           "2 sentences, the last rows": positions_case(2, 3, 4, 4, 7),
           "one word": positions_case(1, 1, 6, 3, 5)},
    forward={"y": learned_positions},
    gradients=(
        Result("dx", suspects={
            "x is in the sum once for its own sentence: the gradients of the batch are not added up for it":
                lambda dy: np.broadcast_to(dy.sum(axis=0), dy.shape)}),
        Result("dP", suspects={
            "the gradient lies in the first rows: the words stand at position `first` and after it":
                lambda dy, max_positions: at_rows(dy.sum(axis=0), 0, max_positions),
            "the gradient lies one row too late: the first word stands at position `first` itself":
                lambda dy, first, max_positions: at_rows(dy.sum(axis=0)[:max_positions - first - 1], first + 1,
                                                         max_positions),
            "only the last sentence counts: assigned where it should be added, for each sentence of the batch":
                lambda dy, first, max_positions: at_rows(dy[-1], first, max_positions),
            "only the first sentence counts: a position is used by every sentence of the batch":
                lambda dy, first, max_positions: at_rows(dy[0], first, max_positions),
            "all positions get the same: the sum runs over the positions, too":
                lambda dy, first, max_positions: at_rows(
                    np.broadcast_to(dy.sum(axis=(0, 1)), dy.shape[1:]), first, max_positions),
            "the mean over the batch: a row of P is used once by each sentence, and the gradients of the uses add up":
                lambda dy, first, max_positions: at_rows(dy.mean(axis=0), first, max_positions)})),
    solution=learned_positions_backward,
    library=(LearnedPositions.backward,),
    hints=(
        "dy and dx are (B, T, D); dP is (max_positions, D), zeros but for T rows.",
        "One number of x has one way to the loss. One number of P has a way through every sentence of the batch, and "
        "the chain rule adds the ways up. Rows that no word used have none.",
        "dx = dy;  dP[first:first + T] = dy.sum(axis=0).",
    ),
)

# 09_order_blind -------------------------------------------------------------------------------------------------------

N_WORDS, D_MODEL = 30, 7
SENTENCES = (([4, 9, 2, 17, 11], 2), ([8, 3, 21, 5, 13, 1], 3), ([6, 12, 7], 2), ([20, 14, 10, 15], 3))
"""Sentences of different words, and the position whose output is read; at least two words stand before it."""


def other_sentence(ids: list[int], at: int, causal: bool) -> list[int]:
    before = ids[:at]
    return before[::-1] + ids[at:]


def output_at(ids: list[int], at: int, causal: bool, seed: int) -> Array:
    """What one attention without positions makes at one position: (D,)"""
    random = np.random.default_rng(seed)
    vectors, *weights = random.normal(size=(N_WORDS, D_MODEL)), *random.normal(size=(3, D_MODEL, D_MODEL))
    q, k, v = ((vectors[ids] @ weight)[None, :, None] for weight in weights)       # (1, T, 1, D)
    return ScaledDotProductAttention().forward(q, k, v, Mask(causal=causal))[0][0, at, 0]


def blindness_complaint(answer: Callable) -> str | None:
    """The first sentence that is no twin, and what gives it away."""
    for ids, at in SENTENCES:
        for causal in (False, True):
            where = f"for {ids}, position {at}, {'with' if causal else 'without'} a causal mask: "
            try:
                other = [int(word) for word in answer(list(ids), at, causal)]
            except TypeError:
                return "the result is no list of words"
            complaint = what_gives_away(ids, other, at, causal)
            if complaint:
                return where + complaint
    return None


def what_gives_away(ids: list[int], other: list[int], at: int, causal: bool) -> str | None:
    if len(other) != len(ids):
        return f"{len(other)} words; the other sentence must have {len(ids)} as well"
    if not set(other) <= set(range(N_WORDS)):
        return f"words are numbers from 0 to {N_WORDS - 1}"
    if other == ids:
        return "that is the same sentence"
    if other[at] != ids[at]:
        return "another word stands at the position itself: it asks another query"
    if other[:at] == ids[:at]:
        return "the words before the position are the same: change their order, that is the point"
    difference = max(np.abs(output_at(ids, at, causal, seed) - output_at(other, at, causal, seed)).max()
                     for seed in range(3))
    if difference < 1e-9:
        return None
    if set(other) - set(ids):
        return f"there are other words in it than before: the output changes by {difference:.2g}"
    if sorted(other) != sorted(ids):
        return f"a word stands in it more often than before: each counts once for every time, {difference:.2g} off"
    return (f"a word has crossed the position: under the mask the query sees what stands before it and no more, and "
            f"the output changes by {difference:.2g}")


ORDER_BLIND = Break(
    id="09_order_blind",
    title="Find a sentence that attention without positions cannot tell from another",
    function="other_sentence",
    arguments=("ids", "at", "causal"),
    complaint=blindness_complaint,
    solution=other_sentence,
    library=(Ops.attention,),
    hints=(
        "`ids` is a list of different words. The result is a list of the same length; the word at index `at` must stay "
        "where it is, since it asks the query that is looked at.",
        "The output is a sum over the words that the query sees. A sum does not know the order of its terms; it knows "
        "which terms there are, and how often.",
        "Exchange words that the query sees, and leave all others where they are. One answer does for both masks: "
        "reverse the words before the position.",
    ),
)

EXERCISES = (SINUSOIDS, SHIFT_MATRIX, LEARNED_BACKWARD, ORDER_BLIND)
