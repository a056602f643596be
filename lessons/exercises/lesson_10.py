"""Exercises of lesson 10: rotary positions and their gradient, ALiBi, and a test that tells relative from absolute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exercises.exercise import Backward, Break, Build, Result, Values, misjudgements
from scratchformer.nn.layers import sinusoids
from scratchformer.nn.parameter import Array
from support.positions import RotaryAttention, Scores, alibi_bias, alibi_slopes, is_relative, rotated

# 10_rope --------------------------------------------------------------------------------------------------------------


def turn(x: Array, positions: Array) -> Array:
    return rotated(x, positions)


def by_definition(x: Array, positions: Array) -> Array:
    """Each pair as one complex number, times e^(i p theta)."""
    pairs = x[..., 0::2] + 1j * x[..., 1::2]
    return as_real(pairs * np.exp(1j * positions[:, None, None] * frequencies(x.shape[-1])))


def frequencies(K: int) -> Array:
    return 10000.0 ** (-np.arange(0, K, 2) / K)


def as_real(pairs: Array) -> Array:
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(*pairs.shape[:-1], -1)


def turned_with(x: Array, positions: Array, theta: Array) -> Array:
    pairs = x[..., 0::2] + 1j * x[..., 1::2]
    return as_real(pairs * np.exp(1j * positions[:, None, None] * theta))


def halves_paired(x: Array, positions: Array) -> Array:
    first, second = np.split(x, 2, axis=-1)
    pairs = (first + 1j * second) * np.exp(1j * positions[:, None, None] * frequencies(x.shape[-1]))
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


def halves_joined(x: Array, positions: Array) -> Array:
    turned = rotated(x, positions)
    return np.concatenate([turned[..., 0::2], turned[..., 1::2]], axis=-1)


def second_from_the_new_first(x: Array, positions: Array) -> Array:
    angle = positions[:, None, None] * frequencies(x.shape[-1])
    first = np.cos(angle) * x[..., 0::2] - np.sin(angle) * x[..., 1::2]
    second = np.sin(angle) * first + np.cos(angle) * x[..., 1::2]
    return np.stack([first, second], axis=-1).reshape(x.shape)


ROPE = Build(
    id="10_rope",
    title="Turn queries or keys by their positions",
    function="turn",
    arguments=("x", "positions"),
    cases={
        "from the first position": lambda random: {"x": random.normal(size=(2, 5, 3, 6)), "positions": np.arange(5)},
        "the last of nine positions": lambda random: {
            "x": random.normal(size=(3, 2, 4, 8)), "positions": np.arange(7, 9)},
        "one pair of channels": lambda random: {"x": random.normal(size=(1, 4, 1, 2)), "positions": np.arange(1, 5)},
    },
    expected=by_definition,
    result=Result(name="turned", suspects={
        "turned the wrong way round: at position 1, the pair (1, 0) becomes (cos, +sin)":
            lambda x, positions: rotated(x, -positions),
        "channel i is paired with channel i + K/2, as some programs do; here neighbours 2i and 2i + 1 are a pair":
            halves_paired,
        "every pair turns by the same angle; pair i turns by p 10000^(-2i / K)":
            lambda x, positions: turned_with(x, positions, np.ones(x.shape[-1] // 2)),
        "the exponent is -2i / K, with i the number of the pair: yours falls half as fast":
            lambda x, positions: turned_with(x, positions, frequencies(x.shape[-1])**0.5),
        "the second channel is made of the new first one: both are made of the old ones":
            second_from_the_new_first,
        "upside down: later pairs turn slower, by 10000 to the minus 2i / K; yours turn faster":
            lambda x, positions: turned_with(x, positions, 1 / frequencies(x.shape[-1])),
        "the numbers are right and the channels in another order: both of a pair go back to where they came from":
            halves_joined,
        "counted from 0: the positions are given, and need not begin there":
            lambda x, positions: rotated(x, np.arange(len(positions))),
    }),
    solution=turn,
    library=(rotated,),
    hints=(
        "x (B, T, H, K), positions (T,). The angles are (T, 1, K/2): position, one axis for all heads, pair.",
        "Even channels x[..., 0::2] and odd channels x[..., 1::2] are the two coordinates of K/2 points. Turn each "
        "point by its own angle, into a new array.",
        "angle = p 10000^(-2i / K); even' = cos even - sin odd; odd' = sin even + cos odd.",
    ),
)

# 10_rope_backward -----------------------------------------------------------------------------------------------------


def queries_and_keys(random: np.random.Generator, B: int, T: int, H: int, K: int, first: int) -> Values:
    return {"q": random.normal(size=(B, T, H, K)), "k": random.normal(size=(B, T, H, K)),
            "positions": np.arange(first, first + T)}


def scores_of(turned_q: Array, turned_k: Array) -> Array:
    return np.einsum("bthk,bshk->bhts", turned_q, turned_k)


def of_turned_queries(dscores: Array, turned_k: Array) -> Array:
    return np.einsum("bhts,bshk->bthk", dscores, turned_k)


def of_turned_keys(dscores: Array, turned_q: Array) -> Array:
    return np.einsum("bhts,bthk->bshk", dscores, turned_q)


def rope_backward(dscores: Array, turned_q: Array, turned_k: Array, positions: Array) -> dict[str, Array]:
    return {"dq": rotated(of_turned_queries(dscores, turned_k), -positions),
            "dk": rotated(of_turned_keys(dscores, turned_q), -positions)}


ROPE_BACKWARD = Backward(
    id="10_rope_backward",
    title="Carry the gradient of the scores back to queries and keys, through the rotation",
    function="rope_backward",
    arguments=("dscores", "turned_q", "turned_k", "positions"),
    cases={
        "two heads": lambda random: queries_and_keys(random, 3, 5, 2, 4, 0),
        "later positions": lambda random: queries_and_keys(random, 2, 3, 1, 6, 8),
        "one word": lambda random: queries_and_keys(random, 2, 1, 2, 4, 3),
    },
    forward={"turned_q": lambda q, positions: rotated(q, positions),
             "turned_k": lambda k, positions: rotated(k, positions), "scores": scores_of},
    gradients=(
        Result(name="dq", suspects={
            "this is the gradient of the turned queries: it has to be turned back": of_turned_queries,
            "the gradient of the queries is turned on, and not back":
                lambda dscores, turned_k, positions: rotated(of_turned_queries(dscores, turned_k), positions),
            "the queries met the turned keys: do not turn the keys back before the product":
                lambda dscores, k: of_turned_queries(dscores, k),
            "the gradient of a query is a sum over the keys: yours is one over the queries":
                lambda dscores, turned_k, positions:
                    rotated(of_turned_queries(dscores.swapaxes(-1, -2), turned_k), -positions),
        }),
        Result(name="dk", suspects={
            "this is the gradient of the turned keys: it has to be turned back": of_turned_keys,
            "the gradient of the keys is turned on, and not back":
                lambda dscores, turned_q, positions: rotated(of_turned_keys(dscores, turned_q), positions),
            "the gradient of a key is a sum over the queries: yours is one over the keys":
                lambda dscores, turned_q, positions:
                    rotated(of_turned_keys(dscores.swapaxes(-1, -2), turned_q), -positions),
        }),
    ),
    solution=rope_backward,
    library=(RotaryAttention.backward, rotated),
    hints=(
        "dscores (B, H, T, T), queries and keys (B, T, H, K). `turn` of 10_rope may be used; write it once more here.",
        "First the gradients of the turned queries and keys, as in attention without positions. Then through the "
        "rotation: R is a matrix, backward needs its transpose, and the transpose of a rotation turns back.",
        "dq_t = R_(-t) sum_s dscores_ts turned_k_s, and dk_s = R_(-s) sum_t dscores_ts turned_q_t.",
    ),
)

# 10_alibi -------------------------------------------------------------------------------------------------------------


def bias(T: int, S: int, h: int) -> Array:
    return alibi_bias(T, S, h)


def bias_by_definition(T: int, S: int, h: int) -> Array:
    return np.array([[[-2.0 ** (-8 * (head + 1) / h) * abs(t + S - T - s) for s in range(S)] for t in range(T)]
                     for head in range(h)])


def distance(T: int, S: int, first: int) -> Array:
    """t - s, the first query standing at position `first`. (T, S)"""
    return np.arange(first, first + T)[:, None] - np.arange(S)


def bias_with(slopes: Array, away: Array) -> Array:
    return -slopes[:, None, None] * away


ALIBI = Build(
    id="10_alibi",
    title="Write ALiBi's bias as an array",
    function="bias",
    arguments=("T", "S", "h"),
    cases={
        "as many queries as keys": lambda random: {"T": 5, "S": 5, "h": 4},
        "fewer queries than keys": lambda random: {"T": 3, "S": 7, "h": 2},
        "the newest word alone, eight heads": lambda random: {"T": 1, "S": 6, "h": 8},
    },
    expected=bias_by_definition,
    result=Result(name="bias", suspects={
        "the distance has a sign: keys ahead of the query get a bonus. Take its absolute value":
            lambda T, S, h: bias_with(alibi_slopes(h), distance(T, S, S - T)),
        "keys ahead of the query cost nothing: the distance counts in both directions":
            lambda T, S, h: bias_with(alibi_slopes(h), np.maximum(distance(T, S, S - T), 0)),
        "the queries stand at the first T positions: they are the last T of S":
            lambda T, S, h: bias_with(alibi_slopes(h), np.abs(distance(T, S, 0))),
        "the first slope is 1: it is 2^(-8/h)":
            lambda T, S, h: bias_with(2.0 ** (-8 * np.arange(h) / h), np.abs(distance(T, S, S - T))),
        "the slopes are those of eight heads: of h heads, slope i is 2^(-8 i / h)":
            lambda T, S, h: bias_with(2.0 ** -np.arange(1.0, h + 1), np.abs(distance(T, S, S - T))),
        "the slopes are in reverse order: the first head is the one that sees nearest":
            lambda T, S, h: bias_with(alibi_slopes(h)[::-1], np.abs(distance(T, S, S - T))),
    }),
    solution=bias,
    library=(alibi_bias, alibi_slopes),
    hints=(
        "Slopes (h,), distances (T, S), the result (h, T, S): None in an index adds an axis.",
        "Query t stands at position t + S - T, key s at position s. The further apart, the more is taken off, by each "
        "head in proportion to its slope.",
        "-2^(-8 (i + 1) / h) |t + S - T - s| for the heads i = 0 ... h - 1.",
    ),
)

# 10_shift_test --------------------------------------------------------------------------------------------------------

T, K = 6, 8
TABLE = np.random.default_rng(0).normal(size=(300, K))
W_Q, W_K = np.random.default_rng(1).normal(size=(2, K, K))


def at(first: int) -> Array:
    return np.arange(first, first + T)


def turned_scores(x: Array, of_queries: Array, of_keys: Array) -> Array:
    q, k = (rotated(x[None, :, None], where)[0, :, 0] for where in (of_queries, of_keys))
    return q @ k.T


def plus(size: float, where: Callable[[int], Array]) -> Scores:
    """Rotary scores, and something of `size` more at `where(first)`, (T, T) or what broadcasts to it."""
    return lambda x, first: turned_scores(x, at(first), at(first)) + size * where(first)


def corner(first: int) -> Array:
    extra = np.zeros((T, T))
    extra[-1, 0] = np.sin(first)
    return extra


def antisymmetric(first: int) -> Array:
    of_place = np.sin(at(first))
    return of_place - of_place[:, None]


RELATIVE: dict[str, Scores] = {
    "no positions (the words alone)": lambda x, first: x @ x.T,
    "rotary positions": lambda x, first: turned_scores(x, at(first), at(first)),
    "ALiBi": lambda x, first: x @ x.T + alibi_bias(T, T, 1)[0],
    "products of sinusoids, without words": lambda x, first: sinusoids(first, T, K) @ sinusoids(first, T, K).T,
}
ABSOLUTE: dict[str, Scores] = {
    "a table of positions added to the words": lambda x, first: (x + TABLE[at(first)]) @ (x + TABLE[at(first)]).T,
    "sinusoids added to the words, and projected":
        lambda x, first: (x + sinusoids(first, T, K)) @ W_Q @ W_K.T @ (x + sinusoids(first, T, K)).T,
    "rotary positions of the queries only": lambda x, first: turned_scores(x, at(first), 0 * at(first)),
    "a bonus that comes again every 8 positions (a shift of 8 or 16 shows nothing)":
        plus(1, lambda first: at(first) % 8 == 0),
    "a bonus from position 64 on (a short shift shows nothing)": plus(1, lambda first: at(first) >= 64),
    "one score alone, that of the last query and the first key": plus(1, corner),
    "a millionth of a table (a faint dependence is one: forgive no more than 1e-9)":
        plus(1e-6, lambda first: TABLE[at(first), 0]),
    "two bonuses that cancel in the sum of all scores": plus(1, antisymmetric),
}


def shift_test(scores: Scores, x: Array) -> bool:
    return is_relative(scores, x)


def misjudged(answer: Callable) -> str | None:
    """What is wrong with a shift test; None if nothing is."""
    x = np.random.default_rng(0).normal(size=(T, K))
    said = {words: answer(scores, x) for words, scores in (RELATIVE | ABSOLUTE).items()}
    right = {words: words in RELATIVE for words in said}
    return misjudgements(said, right, {True: "it calls relative what is absolute",
                                       False: "it calls absolute what is relative"})


SHIFT_TEST = Break(
    id="10_shift_test",
    title="Write a test that tells positions by distance from positions by place",
    function="shift_test",
    arguments=("scores", "x"),
    complaint=misjudged,
    solution=shift_test,
    library=(is_relative,),
    hints=(
        "scores(x, first) is (T, T). Call it with first = 0 and with larger ones, with the same x, and compare.",
        "Compare every score, not a sum of them, and forgive rounding only. One shift is not enough: some positions "
        "repeat, and some begin to matter late.",
        "For each shift from 1 to 129: np.abs(scores(x, shift) - scores(x, 0)).max() is at most 1e-9 of the largest "
        "score.",
    ),
)

EXERCISES = (ROPE, ROPE_BACKWARD, ALIBI, SHIFT_TEST)
