"""Exercises of lesson 08: reading words from a matrix, its gradient, and a matrix that is used three times."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from exercises.exercise import Backward, Break, Build, Case, Result, misjudgements
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Embedding, Unembedding
from scratchformer.nn.ops import Ops
from scratchformer.nn.parameter import Array, Parameter
from scratchformer.text.tokenizer import PAD


def root(E: Array) -> float:
    """sqrt(D) of an array (..., D)"""
    return math.sqrt(E.shape[-1])


def reading_case(ids: list[list[int]], V: int, D: int) -> Case:
    return lambda random: {"E": random.normal(0, D**-0.5, (V, D)), "ids": np.array(ids), "V": V}


ROW_OF_PADDING = {"only row 0 is wrong: padding is read as zeros whatever its row holds, so reading it has no gradient":
                  lambda E: np.arange(len(E))[:, None] == PAD}

READING_CASES = {
    "two sentences with repeated words and padding": reading_case([[3, 5, 3, 6], [5, 2, PAD, PAD]], V=8, D=6),
    "the same word throughout": reading_case([[4, 4, 4]], V=7, D=5),
    "one word": reading_case([[1]], V=3, D=4),
}

# 08_read_words --------------------------------------------------------------------------------------------------------


def read_words(E: Array, ids: Array) -> Array:
    return Embedding(Parameter(E)).forward(ids)[0]


def by_definition(E: Array, ids: Array) -> Array:
    """Place by place, from what the exercise says: (B, T, D)"""
    nothing = np.zeros(E.shape[1])
    return np.array([[root(E) * E[i] if i != PAD else nothing for i in row] for row in ids])


READ_WORDS = Build(
    id="08_read_words",
    title="Turn ids into the vectors that the model reads",
    function="read_words",
    arguments=("E", "ids"),
    cases=READING_CASES,
    expected=by_definition,
    result=Result(
        name="x",
        factors={"`sqrt(D)`": root},
        suspects={
            "the factor is the root of V, the number of words; it is the root of D, the length of a vector":
                lambda E, truth: truth / root(E) * math.sqrt(len(E)),
            "padding has a vector: its id 0 is no word, so it is read as zeros":
                lambda E, ids: root(E) * E[ids],
            "row ids - 1 is read: ids count the rows from 0, padding's among them":
                lambda E, ids: root(E) * E[ids - 1] * (ids != PAD)[..., None],
            "the vectors are made as long as sqrt(D), each by itself; the factor is the same for all words":
                lambda E, ids, truth: truth / np.maximum(np.linalg.norm(E[ids], axis=-1, keepdims=True), 1e-12),
        }),
    solution=read_words,
    library=(Embedding.forward, Ops.embedding),
    hints=(
        "E (V, D), ids (B, T) -> x (B, T, D). An array of integers as an index takes a row for each of them: E[ids].",
        "All vectors get one factor, so that numbers of size 1 / sqrt(D) become numbers of size 1. Padding, the id 0, "
        "has the vector 0: multiply by a mask with an axis for D.",
        "x = sqrt(D) E[ids] (ids != 0)[..., None].",
    ),
)

# 08_embedding_backward ------------------------------------------------------------------------------------------------


def embedding_backward(dx: Array, ids: Array, V: int) -> dict[str, Array]:
    E = Parameter(np.zeros((V, dx.shape[-1])))
    Embedding(E).backward(dx, (ids,))
    return {"dE": E.grad}


def scattered(dx: Array, ids: Array, V: int) -> Array:
    """sqrt(D) dx added into the rows of its words, padding left out: (V, D)"""
    dE = np.zeros((V, dx.shape[-1]))
    np.add.at(dE, ids, root(dx) * dx * (ids != PAD)[..., None])
    return dE


def last_place_only(dx: Array, ids: Array, V: int) -> Array:
    """What `dE[ids] += ...` does, padding left out."""
    dE = np.zeros((V, dx.shape[-1]))
    dE[ids] += root(dx) * dx * (ids != PAD)[..., None]
    return dE


def averaged(dx: Array, ids: Array, V: int) -> Array:
    occurrences = np.bincount(ids.ravel(), minlength=V)[:, None]
    return scattered(dx, ids, V) / np.maximum(occurrences, 1)


def by_place(dx: Array, ids: Array, V: int) -> Array:
    """Row t receives what belongs to place t, whatever word stands there."""
    dE = np.zeros((V, dx.shape[-1]))
    dE[:dx.shape[1]] = root(dx) * (dx * (ids != PAD)[..., None]).sum(axis=0)
    return dE


EMBEDDING_BACKWARD = Backward(
    id="08_embedding_backward",
    title="Write the backward of reading words",
    function="embedding_backward",
    arguments=("dx", "ids", "V"),
    cases=READING_CASES,
    forward={"x": read_words},
    gradients=(Result(
        name="dE",
        factors={"`sqrt(D)`": root},
        suspects={
            "of a repeated word only the last place counts: dE[ids] += ... writes each row once; np.add.at adds them "
            "all": last_place_only,
            "of a repeated word only the first place counts: all of its places add up":
                lambda dx, ids, V: last_place_only(dx[::-1, ::-1], ids[::-1, ::-1], V),
            "a mean over the places of a word; each place is a way to the loss, so they add up": averaged,
            "the rows are added up by place, not by word: row v belongs to word v": by_place,
        },
        regions=ROW_OF_PADDING,
    ),),
    solution=embedding_backward,
    library=(Embedding.backward, Ops.embedding_backward),
    hints=(
        "dx (B, T, D), ids (B, T) -> dE (V, D). Begin with zeros; words that were not read keep them.",
        "Row v was copied to every place where v was read, so the gradients of these places add up in it, with the "
        "factor of forward. Places of padding give nothing. Look at the documentation of np.add.at.",
        "np.add.at(dE, ids, sqrt(D) dx (ids != 0)[..., None]).",
    ),
)

# 08_tied_gradient -----------------------------------------------------------------------------------------------------


def tied_case(source_ids: list[list[int]], target_ids: list[list[int]], V: int, D: int) -> Case:
    return lambda random: {"E": random.normal(0, D**-0.5, (V, D)), "source_ids": np.array(source_ids),
                           "target_ids": np.array(target_ids)}


def with_source(x_source: Array, x_target: Array) -> Array:
    return x_target + x_source.sum(axis=1, keepdims=True)


def to_source(dy: Array, source_ids: Array) -> Array:
    """The gradient of each source vector is the sum of dy over the target: (B, S, D)"""
    return np.broadcast_to(dy.sum(axis=1, keepdims=True), (*source_ids.shape, dy.shape[-1]))


def tied_gradient(dz: Array, y: Array, E: Array, source_ids: Array, target_ids: Array) -> dict[str, Array]:
    shared = Parameter(E)
    dy = Unembedding(shared).backward(dz, (y,))
    Embedding(shared).backward(dy, (target_ids,))
    Embedding(shared).backward(to_source(dy, source_ids), (source_ids,))
    return {"dy": dy, "dE": shared.grad}


def scored(dz: Array, y: Array) -> Array:
    return np.einsum("btv,btd->vd", dz, y)


def read_in_target(dy: Array, target_ids: Array, E: Array) -> Array:
    return scattered(dy, target_ids, len(E))


def read_in_source(dy: Array, source_ids: Array, E: Array) -> Array:
    return scattered(to_source(dy, source_ids), source_ids, len(E))


def both_reads(dy: Array, source_ids: Array, target_ids: Array, E: Array) -> Array:
    return read_in_source(dy, source_ids, E) + read_in_target(dy, target_ids, E)


TIED_GRADIENT = Backward(
    id="08_tied_gradient",
    title="Write the gradient of a matrix that is used three times",
    function="tied_gradient",
    arguments=("dz", "y", "E", "source_ids", "target_ids"),
    cases={
        "two sentences, with padding": tied_case([[3, 4, 3], [5, PAD, PAD]], [[2, 6, 3, 6], [2, 4, 7, PAD]], V=9, D=5),
        "one word each": tied_case([[3]], [[2]], V=6, D=4),
    },
    forward={
        "x_source": lambda E, source_ids: read_words(E, source_ids),
        "x_target": lambda E, target_ids: read_words(E, target_ids),
        "y": with_source,
        "z": lambda E, y: Unembedding(Parameter(E)).forward(y)[0],
    },
    gradients=(
        Result("dy", suspects={
            "the factor sqrt(D) belongs to reading: the scores are products with E as it is":
                lambda truth: root(truth) * truth}),
        Result(
            "dE",
            terms={
                "the share of the scores": scored,
                "the share of the words read in the target": read_in_target,
                "the share of the words read in the source": read_in_source,
            },
            suspects={
                "the factor sqrt(D) is missing in both shares of reading: forward had it, so backward has it":
                    lambda dz, y, dy, source_ids, target_ids, E:
                        scored(dz, y) + both_reads(dy, source_ids, target_ids, E) / root(E),
                "the factor sqrt(D) stands before the share of the scores, too; they are products with E as it is":
                    lambda dz, y, dy, source_ids, target_ids, E:
                        root(E) * scored(dz, y) + both_reads(dy, source_ids, target_ids, E),
                "of a repeated word only the last place counts: np.add.at adds them all":
                    lambda dz, y, dy, source_ids, target_ids, E:
                        scored(dz, y) + last_place_only(dy, target_ids, len(E))
                        + last_place_only(to_source(dy, source_ids), source_ids, len(E)),
                "the source's share has a mean over the T positions of dy where the sum is meant: each source vector "
                "was added into y at every position, so all their gradients come back to it":
                    lambda dz, y, dy, source_ids, target_ids, E:
                        scored(dz, y) + read_in_target(dy, target_ids, E)
                        + read_in_source(dy, source_ids, E) / dy.shape[1],
                "the share of the scores is a mean over the positions of dz; E scores at each of them, so they add up":
                    lambda dz, y, dy, source_ids, target_ids, E:
                        scored(dz, y) / (dz.shape[0] * dz.shape[1]) + both_reads(dy, source_ids, target_ids, E),
                "of a repeated word the gradients are averaged; each of its positions is a way to the loss, so they "
                "add up":
                    lambda dz, y, dy, source_ids, target_ids, E:
                        scored(dz, y) + averaged(dy, target_ids, len(E))
                        + averaged(to_source(dy, source_ids), source_ids, len(E)),
            },
            regions=ROW_OF_PADDING),
    ),
    solution=tied_gradient,
    library=(Unembedding.backward, Embedding.backward),
    hints=(
        "dz (B, T, V), y (B, T, D) -> dy (B, T, D); dE (V, D), a sum of three arrays of that shape. The gradient of "
        "the source's vectors is (B, S, D), the same at all S places of a sentence.",
        "E scores: each score is a product of y with a row, so both of them get a share. E is read twice: y is the "
        "target's vector and the sum of the source's, so dy goes to each place of both; rows of repeated words add up.",
        "dy = dz E;  dE = sum of dz^T y over b, t  +  sqrt(D) dy into the rows of target_ids  +  sqrt(D) (sum of dy "
        "over t) into the rows of source_ids; padding gives nothing.",
    ),
)

# 08_lost_repeats ------------------------------------------------------------------------------------------------------

BackwardOfReading = Callable[[Array, Array, int], Array]


class Candidate(Embedding):
    """Reading words, with somebody's backward."""

    def __init__(self, weight: Parameter, of_somebody: BackwardOfReading) -> None:
        super().__init__(weight)
        self.of_somebody = of_somebody

    def backward(self, dx: Array, cache: Any) -> None:
        (ids,) = cache
        self.weight.grad += self.of_somebody(dx, ids, len(self.weight.data))


def is_right(backward: BackwardOfReading) -> bool:
    E = np.random.default_rng(1).normal(size=(7, 5))
    ids = np.array([[3, 5, 3, 6], [5, 1, PAD, PAD]])
    return gradcheck(Candidate(Parameter(E), backward), ids).passed


def with_one_hot(dx: Array, ids: Array, V: int) -> Array:
    one_hot = np.eye(V)[ids] * (ids != PAD)[..., None]
    return root(dx) * np.einsum("btv,btd->vd", one_hot, dx)


def sentence_by_sentence(dx: Array, ids: Array, V: int) -> Array:
    """Adds up within a sentence; of sentences that share a word the last one stays."""
    dE = np.zeros((V, dx.shape[-1]))
    for row, drow in zip(ids[:, None], dx[:, None]):
        read = np.unique(row)
        dE[read] = scattered(drow, row, V)[read]
    return dE


def with_padding(dx: Array, ids: Array, V: int) -> Array:
    dE = scattered(dx, ids, V)
    dE[PAD] = root(dx) * dx[ids == PAD].sum(axis=0)
    return dE


WRONG: dict[str, BackwardOfReading] = {
    "of a word that is repeated in a sentence, only the last place counts": lambda dx, ids, V: sum(
        last_place_only(drow, row, V) for row, drow in zip(ids[:, None], dx[:, None])),
    "of a word that two sentences share, only the last sentence counts": sentence_by_sentence,
    "sqrt(D) is missing": lambda dx, ids, V: scattered(dx, ids, V) / root(dx),
    "padding has a gradient": with_padding,
    "repeated words are averaged": averaged,
    "dx is ignored: each place adds sqrt(D)": lambda dx, ids, V: scattered(np.ones_like(dx), ids, V),
    "the numbers of each vector come in reverse order": lambda dx, ids, V: scattered(dx, ids, V)[:, ::-1],
}
RIGHT: dict[str, BackwardOfReading] = {
    "np.add.at": scattered,
    "a product with one-hot vectors (it differs in the last digits)": with_one_hot,
}


def misjudged(answer: Callable) -> str | None:
    """What is wrong with a test of backwards; None if nothing is."""
    said = {words: answer(backward) for words, backward in (WRONG | RIGHT).items()}
    right = {words: words in RIGHT for words in said}
    return misjudgements(said, right, {True: "it accepts what is wrong", False: "it refuses what is right"})


LOST_REPEATS = Break(
    id="08_lost_repeats",
    title="Write the test that tells right backwards of reading words from wrong ones",
    function="is_right",
    arguments=("backward",),
    complaint=misjudged,
    solution=is_right,
    library=(gradcheck,),
    hints=(
        "Choose ids (B, T), E (V, D) and dx (B, T, D), all of different sizes and B at least 2. backward(dx, ids, V) "
        "is to be dE (V, D). The truth: the derivative of sum(dx x) by E, x = sqrt(D) E[ids] with zeros for padding.",
        "What a test does not contain, it cannot see: a word twice in a sentence, a word in two sentences, padding, "
        "and a dx of random numbers. Compare with a tolerance: a right sum may be added up in another order.",
        "numeric_gradient(lambda E: (dx * read(E, ids)).sum(), E) of exercises.numeric, and an "
        "error below 1e-6.",
    ),
)

EXERCISES = (READ_WORDS, EMBEDDING_BACKWARD, TIED_GRADIENT, LOST_REPEATS)
