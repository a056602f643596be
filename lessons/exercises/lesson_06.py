"""Exercises of lesson 06: masks, their softmax backward, the shift, and the flow test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exercises.exercise import Backward, Break, Build, Result, Values, misjudgements
from scratchformer.doctor.flow_probes import dependence_of
from scratchformer.nn.attention import Mask, ScaledDotProductAttention
from scratchformer.nn.layers import LayerNorm
from scratchformer.nn.ops import Ops, allowed, ops_of
from scratchformer.nn.parameter import Array
from scratchformer.text.batches import EncodedPairs, Sequences
from scratchformer.text.tokenizer import BOS, EOS, PAD

# 06_masks -------------------------------------------------------------------------------------------------------------


def may_attend(T: int, S: int, key_lengths: Array | None, causal: bool) -> Array:
    return allowed(np, T, S, key_lengths, causal)


def by_definition(T: int, S: int, key_lengths: Array | None, causal: bool) -> Array:
    """Key by key, from what the exercise says: bool (B or 1, 1, T, S)"""
    lengths = [S] if key_lengths is None else key_lengths
    return np.array([[[[bool(s < length and (not causal or s <= t + S - T)) for s in range(S)] for t in range(T)]]
                     for length in lengths])


def padding_on_rows(T: int, S: int, key_lengths: Array | None, causal: bool, first: int) -> Array:
    """The padding mask over the queries, query 0 standing at position `first`."""
    real = True if key_lengths is None else np.arange(first, first + T)[:, None] < key_lengths[:, None, None, None]
    return allowed(np, T, S, None, causal) & real


def triangle(T: int, S: int, last_of_first: int) -> Array:
    """Query t may use the keys up to t + last_of_first. -> bool (T, S)"""
    return np.tri(T, S, last_of_first, dtype=bool)


def with_triangle(rows: Array, T: int, S: int, key_lengths: Array | None, causal: bool) -> Array:
    """The right padding mask with other triangles."""
    return allowed(np, T, S, key_lengths, False) & (rows if causal else True)


def either(T: int, S: int, key_lengths: Array | None, causal: bool) -> Array:
    return allowed(np, T, S, key_lengths, False) | allowed(np, T, S, None, causal)


MASKS = Build(
    id="06_masks",
    title="Write the mask of padding and future as an array",
    function="may_attend",
    arguments=("T", "S", "key_lengths", "causal"),
    cases={
        "as many queries as keys, causal": lambda random: {"T": 5, "S": 5, "key_lengths": None, "causal": True},
        "padding only": lambda random: {"T": 3, "S": 6, "key_lengths": np.array([6, 1, 0, 4]), "causal": False},
        "padding and future, fewer queries than keys": lambda random: {
            "T": 4, "S": 6, "key_lengths": random.permutation([6, 3, 4]), "causal": True},
        "the newest word alone": lambda random: {"T": 1, "S": 7, "key_lengths": None, "causal": True},
        "no mask at all": lambda random: {"T": 2, "S": 3, "key_lengths": None, "causal": False},
    },
    expected=by_definition,
    result=Result(name="mask", symptoms={
        "the padding mask lies on the queries (rows); it belongs on the keys (columns)":
            lambda yours, T, S, key_lengths, causal: any(
                np.array_equal(yours, padding_on_rows(T, S, key_lengths, causal, first)) for first in (0, S - T)),
    }, suspects={
        "the future is not masked: with causal=True, query t may use the keys up to its own place only":
            lambda T, S, key_lengths: allowed(np, T, S, key_lengths, False),
        "the padding is not masked: keys from key_lengths on are not to be used":
            lambda T, S, causal: allowed(np, T, S, None, causal),
        "the triangle begins at the first key: of fewer queries than keys, the last one must still see all keys":
            lambda T, S, key_lengths, causal: with_triangle(triangle(T, S, 0), T, S, key_lengths, causal),
        "a query does not see its own place: the diagonal belongs to the triangle":
            lambda T, S, key_lengths, causal: with_triangle(triangle(T, S, S - T - 1), T, S, key_lengths, causal),
        "a query sees the word after its own, which is the answer: the triangle reaches one key too far":
            lambda T, S, key_lengths, causal: with_triangle(triangle(T, S, S - T + 1), T, S, key_lengths, causal),
        "True and False are exchanged: True means that the query may use the key":
            lambda truth: ~truth,
        "a key is allowed if one of the masks allows it; both must":
            either,
        "one key of padding too many: key s is real for s < key_lengths, counted from 0":
            lambda T, S, key_lengths, causal:
                allowed(np, T, S, None if key_lengths is None else key_lengths + 1, causal),
    }),
    solution=may_attend,
    library=(allowed,),
    hints=(
        "key_lengths (B,), keys np.arange(S), queries np.arange(T). The result is (B, 1, T, S), or (1, 1, T, S) "
        "without key_lengths. None in an index adds an axis: key_lengths[:, None].",
        "A key is allowed if every mask allows it. Padding depends on the sentence and the key, the future on the "
        "query and the key. Count positions so that the last query stands at the last key.",
        "s < key_lengths[b], and, if causal, s <= t + S - T.",
    ),
)

# 06_masked_softmax_backward -------------------------------------------------------------------------------------------


def masked_scores(random: np.random.Generator, shape: tuple[int, ...], key_lengths: list[int], causal: bool) -> Values:
    return {"scores": random.normal(size=shape), "factor": 1 / np.sqrt(shape[-1] + 2.0), "causal": causal,
            "key_lengths": np.array(key_lengths)}


def masked_softmax(scores: Array, factor: float, key_lengths: Array, causal: bool) -> Array:
    return ops_of(scores).masked_softmax(scores, factor, key_lengths, causal)


def masked_softmax_backward(dweights: Array, weights: Array, factor: float) -> Array:
    return ops_of(dweights).masked_softmax_backward(dweights, weights, factor)


def average(dweights: Array, weights: Array) -> Array:
    return (weights * dweights).sum(axis=-1, keepdims=True)


MASKED_SOFTMAX_BACKWARD = Backward(
    id="06_masked_softmax_backward",
    title="Write the backward of the masked softmax, from the weights alone",
    function="masked_softmax_backward",
    arguments=("dweights", "weights", "factor"),
    cases={
        "padding": lambda random: masked_scores(random, (3, 2, 4, 5), [5, 2, 3], False),
        "padding and future": lambda random: masked_scores(random, (3, 2, 4, 5), [5, 2, 4], True),
        "an empty sentence": lambda random: masked_scores(random, (2, 1, 3, 4), [0, 4], False),
    },
    forward={"weights": masked_softmax},
    gradients=(Result(
        name="dscores",
        terms={
            "factor * weights * dweights": lambda factor, weights, dweights: factor * weights * dweights,
            "the weighted average of dweights (minus factor * weights * average)":
                lambda factor, weights, dweights: -factor * weights * average(dweights, weights),
        },
        factors={"`factor`": lambda factor: factor},
        symptoms={
            "nan where a query may use no key: its weights are all 0, so do not divide by their sum":
                lambda yours, weights: np.array_equal(np.isnan(yours).all(axis=-1), ~weights.any(axis=-1)),
        },
        suspects={
            "the weight in front of the bracket is missing: a key with weight 0 gets no gradient":
                lambda factor, weights, dweights: factor * (dweights - average(dweights, weights)),
            "the average must be weighted: sum weights * dweights over the keys, not a mean of dweights":
                lambda factor, weights, dweights: factor * weights * (dweights - dweights.mean(axis=-1, keepdims=True)),
            "the average runs over the queries (axis -2); a softmax runs over the keys (axis -1)":
                lambda factor, weights, dweights:
                    factor * weights * (dweights - (weights * dweights).sum(axis=-2, keepdims=True)),
            "only the diagonal: a score changes the other weights of its query, too":
                lambda factor, weights, dweights: factor * weights * (1 - weights) * dweights,
        },
        regions={
            "only forbidden keys are wrong: where the weight is 0 no way leads from the score to the loss":
                lambda weights: weights == 0,
        },
    ),),
    solution=masked_softmax_backward,
    library=(Ops.masked_softmax_backward,),
    hints=(
        "dweights, weights and dscores are all (B, H, T, S). One sum over the keys, axis -1, with keepdims=True.",
        "A score rises if its key is worth more than the average of what is being read, in proportion to its own "
        "weight. The weights of forbidden keys are 0; see what the formula of lesson 04 makes of them.",
        "dscores = factor * weights * (dweights - sum over s of weights * dweights).",
    ),
)

# 06_shift_right -------------------------------------------------------------------------------------------------------


def read_and_write(sentences: list[list[int]]) -> tuple[Array, Array]:
    ids = [[*sentence, EOS] for sentence in sentences]
    indices = np.arange(len(ids))
    sequences = Sequences(np.concatenate(ids), np.cumsum([0, *map(len, ids)]))
    batch = EncodedPairs(sequences, sequences, indices, max_length=max(map(len, ids)), n_dropped=0).batch(indices)
    return batch.inputs[1], batch.targets


def rows(sequences: list[list[int]], fill: int = PAD, at_left: bool = False) -> Array:
    """(B, longest)"""
    longest = max(map(len, sequences))
    return np.array([[*[fill] * (longest - len(row)), *row] if at_left else [*row, *[fill] * (longest - len(row))]
                     for row in sequences])


def filled_up(sentences: list[list[int]], fill: int = PAD, at_left: bool = False) -> Array:
    """What is read and what is to be written, (2, B, T), otherwise padded than it should be."""
    return np.stack([rows([[BOS, *row] for row in sentences], fill, at_left),
                     rows([[*row, EOS] for row in sentences], fill, at_left)])


def random_sentences(random: np.random.Generator, lengths: list[int]) -> Values:
    return {"sentences": [random.integers(3, 20, n).tolist() for n in lengths]}


SHIFT_RIGHT = Build(
    id="06_shift_right",
    title="Make what is read and what is to be written from sentences of different lengths",
    function="shift_right",
    arguments=("sentences",),
    cases={
        "three sentences": lambda random: random_sentences(random, [4, 2, 5]),
        "the longest first, and an empty one": lambda random: random_sentences(random, [6, 0, 3]),
        "one sentence": lambda random: random_sentences(random, [4]),
    },
    expected=lambda sentences: np.stack(read_and_write(sentences)),
    result=Result(name="(read, write)", suspects={
        "nothing is shifted: what is read is what is to be written, so the model learns to copy":
            lambda truth: np.stack([truth[1], truth[1]]),
        "shifted to the left: what is read is one place ahead of what is to be written, so the answer is gone":
            lambda sentences: np.stack([rows([[*row, EOS][1:] + [PAD] for row in sentences]),
                                        rows([[*row, EOS] for row in sentences])]),
        "</s> (1) is read in shorter sentences: it is only ever written":
            lambda truth: np.stack([np.concatenate([truth[0][:, :1], truth[1][:, :-1]], axis=1), truth[1]]),
        "</s> (1) is never written: the model could not learn where a sentence ends":
            lambda truth: np.stack([truth[0], np.where(truth[1] == EOS, PAD, truth[1])]),
        "what is read begins with padding (0) and not with <s> (2)":
            lambda truth: np.stack([np.where(truth[0] == BOS, PAD, truth[0]), truth[1]]),
        "the padding stands on the left: it belongs at the end":
            lambda sentences: filled_up(sentences, at_left=True),
        "filled up with </s> (1) and not with padding (0): the loss would count it":
            lambda sentences: filled_up(sentences, fill=EOS),
        "the last id of each row came round to its front: roll moves in a circle, <s> (2) must stand there":
            lambda truth: np.stack([np.roll(truth[1], 1, axis=1), truth[1]]),
    }),
    solution=read_and_write,
    library=(EncodedPairs.batch,),
    hints=(
        "`sentences` is a list of B lists of ids; both results are (B, T) of integers, T one more than the longest.",
        "Build both as lists first, and fill up with padding at the very end: then no </s> of a shorter sentence can "
        "get into what is read.",
        "read = <s> w_1 ... w_n and write = w_1 ... w_n </s>, with <s> = 2, </s> = 1 and padding 0 at the end.",
    ),
)

# 06_find_the_leak -----------------------------------------------------------------------------------------------------

D, T = 4, 6
MEMORY = np.random.default_rng(6).normal(size=(2, T, D))


def attention(q: Array, k: Array, v: Array, causal: bool) -> Array:
    """One head: q, k, v (B, T, D) -> (B, T, D)"""
    y, _ = ScaledDotProductAttention().forward(q[:, :, None], k[:, :, None], v[:, :, None], Mask(causal=causal))
    return y[:, :, 0]


def normalised(x: Array) -> Array:
    return LayerNorm(D, "float64").forward(x)[0]


def from_one_to_one(x: Array, source: int, target: int) -> Array:
    """x, and one position more in one place. (B, T, D) -> (B, T, D)"""
    y = x.copy()
    y[:, target] += np.tanh(x[:, source])
    return y


HONEST: dict[str, Callable[[Array], Array]] = {
    "causal attention": lambda x: attention(x, x, x, True),
    "each word by itself (its own word is not the future)": np.tanh,
    "the sum of all words so far (earlier words are not the future)": lambda x: x.cumsum(axis=1),
}
LEAKING: dict[str, Callable[[Array], Array]] = {
    "attention without a mask": lambda x: attention(x, x, x, False),
    "attention without a mask, behind a LayerNorm (which does not notice a number added to all components)":
        lambda x: attention(normalised(x), normalised(x), normalised(x), False),
    "causal attention, and the last word reaches the first output in the second sentence only":
        lambda x: np.stack([attention(x, x, x, True)[0], from_one_to_one(attention(x, x, x, True), T - 1, 0)[1]]),
    "attention with queries and keys from elsewhere, values from x": lambda x: attention(MEMORY, MEMORY, x, False),
    "causal attention, and word 4 reaches output 3 (a leak in the middle)":
        lambda x: from_one_to_one(attention(x, x, x, True), 4, 3),
    "causal attention, and the last word reaches the last output but one (at the very end)":
        lambda x: from_one_to_one(attention(x, x, x, True), T - 1, T - 2),
    "causal attention, and a millionth of the mean of all words (a faint leak is one: forgive no more than 1e-9)":
        lambda x: attention(x, x, x, True) + 1e-6 * x.mean(axis=1, keepdims=True),
    "causal attention, and number 2 of word 4 reaches number 1 of output 2 (one number, not of the output before)":
        lambda x: attention(x, x, x, True) + np.einsum("b,t,d->btd", x[:, 4, 2], np.eye(T)[2], np.eye(D)[1]),
}


def leaks(f: Callable[[Array], Array], x: Array) -> bool:
    depends = dependence_of(f, x).any(axis=(0, 2))                                 # (T, T)
    return bool(np.triu(depends, 1).any())


def misjudged(answer: Callable) -> str | None:
    """What is wrong with a flow test; None if nothing is.

    x in steps of 1/64, so that LayerNorm takes out a 1 added to all components to the last bit.
    """
    x = np.round(64 * np.random.default_rng(0).normal(size=(2, T, D))) / 64
    said = {words: answer(f, x) for words, f in (LEAKING | HONEST).items()}
    right = {words: words in LEAKING for words in said}
    return misjudgements(said, right, {False: "it calls honest what leaks", True: "it accuses what is honest"})


FIND_THE_LEAK = Break(
    id="06_find_the_leak",
    title="Write a flow test that tells functions that see the future from those that do not",
    function="leaks",
    arguments=("f", "x"),
    complaint=misjudged,
    solution=leaks,
    library=(dependence_of,),
    hints=(
        "x (B, T, D), and f(x) as well. Change x[:, s] in a copy, for one s at a time, and compare f of it with f(x). "
        "Put random numbers there: some functions do not notice if all components grow by the same.",
        "A function leaks if a change at s changes an output t before s, by more than rounding: try every s, every "
        "t < s, every sentence, every number of the output.",
        "For each s: f(changed)[:, :s] must equal f(x)[:, :s] to 1e-9.",
    ),
)

EXERCISES = (MASKS, MASKED_SOFTMAX_BACKWARD, SHIFT_RIGHT, FIND_THE_LEAK)
