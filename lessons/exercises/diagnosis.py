"""From a wrong array to the mistake behind it, for mistakes that nobody has foreseen.

A cause is named only if it explains every case that is wrong.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from exercises.function import LETTERS

CLOSE = 1e-3
"""An error below this is not a wrong formula: float32, say."""

LARGEST = 10**6
"""No true result has so many elements; an array that has is not looked into."""

MOST_AXES = 6
"""Of an array with more axes nobody tries out how they can be ordered, and which may be left out."""

SMALLEST_SCALE = 1e-3
"""Some true values are zero altogether; errors are then measured against this."""

POWERS = {2: "n * n", 1: "n", 0.5: "sqrt(n)", -0.5: "1 / sqrt(n)", -1: "1 / n", -2: "1 / (n * n)"}


class Comparison(NamedTuple):
    """The learner's array beside the true one, in one case with one seed.

    axes   letters of its axes, if they are known
    sizes  length of each axis of the arguments by its letter
    where  parts of the input: words -> axes, mask
    others all other true values of that call
    """

    name: str
    words: str
    seed: int
    yours: np.ndarray
    truth: np.ndarray
    axes: str
    sizes: dict[str, int]
    where: dict[str, tuple[str, np.ndarray]]
    tolerance: float
    others: dict[str, Any]

    @property
    def right(self) -> bool:
        return self.is_like(self.truth)

    @property
    def finite(self) -> bool:
        return self.yours.dtype.kind != "f" or bool(np.isfinite(self.yours).all())

    @property
    def error(self) -> float:
        return error(self.yours, self.truth)

    def is_like(self, other: Any) -> bool:
        """Tell whether yours is this array, by the measure that decides about right and wrong."""
        return self.alike(self.yours, other, self.tolerance)

    @staticmethod
    def alike(yours: Any, other: Any, tolerance: float) -> bool:
        try:
            yours, other = np.asarray(yours), np.asarray(other)
        except ValueError:
            return False
        return yours.shape == other.shape and error(yours, other) <= tolerance


def error(yours: np.ndarray, truth: np.ndarray) -> float:
    """The largest difference of two arrays of one shape, relative to the largest element of the second.

    NaN equals NaN; NaN in one of them alone makes the result NaN. Of arrays that hold no floating-point numbers: 0 if
    they are equal, else 1.
    """
    if truth.dtype.kind != "f" or yours.dtype.kind not in "biuf":
        return float(not np.array_equal(yours, truth))
    if not truth.size:
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):  # yours may hold nan and inf
        same = (yours == truth) | (np.isnan(yours) & np.isnan(truth))  # inf, too; a known mistake may make NaN
        return float(
            np.where(same, 0, abs(yours - truth)).max()
            / max(np.abs(truth[np.isfinite(truth)]).max(initial=0), SMALLEST_SCALE)
        )


# What is no array to compare ------------------------------------------------------------------------------------------


class Unlike(Exception):
    """Raised for a value that cannot be compared; says why."""


def as_array(value: Any, truth: np.ndarray) -> np.ndarray:
    """The returned value as an array of the truth's kind of numbers; for floats, float64. Raises Unlike."""
    if value is None:
        raise Unlike("None: is the return missing?")
    if isinstance(value, tuple) and any(callable(part) for part in value):
        raise Unlike("a pair (y, backward), which a differentiable function has given: unpack it")
    if not isinstance(value, (np.ndarray, np.generic, bool, int, float, list, tuple)):
        raise Unlike(f"a {type(value).__name__}, and should be an array")
    try:
        yours = np.asarray(value)
    except ValueError:
        raise Unlike("a list whose parts differ in length, and should be an array") from None
    if yours.size > LARGEST:
        raise Unlike(f"of shape {yours.shape}, expected {truth.shape}")
    if truth.dtype.kind == yours.dtype.kind == "U":
        return yours
    if yours.dtype.kind not in "biuf":
        raise Unlike(f"an array of {yours.dtype}, and should hold {truth.dtype}")
    if truth.dtype.kind == "f":
        if yours.dtype == np.float32 or yours.dtype == np.float16:
            raise Unlike(f"{yours.dtype}: somewhere float64 was lost, and with it the digits that a check needs")
        return yours.astype(np.float64)
    if (truth.dtype.kind == "b") != (yours.dtype.kind == "b") or yours.dtype.kind == "f":
        raise Unlike(f"an array of {yours.dtype}, and should hold {truth.dtype}")
    return yours


# The diagnosis --------------------------------------------------------------------------------------------------------


def narrowed(comparisons: list[Comparison], wrong: list[Comparison]) -> str:
    """Find where and by how much it is wrong, the most telling first."""
    with np.errstate(all="ignore"):
        return next(causes(comparisons, wrong))


def causes(comparisons: list[Comparison], wrong: list[Comparison]) -> Iterator[str]:
    yield from swapped(wrong)
    if wrong[0].truth.dtype.kind == "U":
        yield from other_texts(wrong[0])
    yield from wrong_shape(wrong)
    yield from not_finite(comparisons, wrong)
    yield from cut_off(wrong)
    yield from close(wrong)
    if wrong[0].truth.dtype.kind == "f":
        yield from multiples(wrong)
    yield from parts(wrong)
    yield from axes(wrong)
    yield from sometimes_right(comparisons, wrong)
    yield "everywhere, and like no mistake that is known here: take one element and write out the sum that makes it"


def swapped(wrong: list[Comparison]) -> Iterator[str]:
    for other in wrong[0].others:
        if all(other in one.others and one.is_like(one.others[other]) for one in wrong):
            yield f"this is {other}: the two are exchanged"


def other_texts(one: Comparison) -> Iterator[str]:
    """The first text that is another, missing, or too many."""
    yours, truth = one.yours.ravel().tolist(), one.truth.ravel().tolist()
    for kind, i, _, j, _ in difflib.SequenceMatcher(None, yours, truth, autojunk=False).get_opcodes():
        if kind == "insert":
            yield f"{truth[j]!r} is missing"
        elif kind == "delete":
            yield f"{yours[i]!r} is too many"
        elif kind == "replace":
            yield f"{yours[i]!r} stands where {truth[j]!r} should"


def wrong_shape(wrong: list[Comparison]) -> Iterator[str]:
    """Of the first case with a wrong shape, if there is one."""
    for one in wrong:
        if one.yours.shape != one.truth.shape:
            yield f"shape {one.yours.shape}, expected {one.truth.shape}{reason_for_shape(one)}"


def reason_for_shape(one: Comparison) -> str:
    yours, truth = one.yours, one.truth
    if yours.ndim > MOST_AXES:
        return ""
    for axes in itertools.permutations(range(yours.ndim)):
        if one._replace(yours=yours.transpose(axes)).right:
            matrices_turned = axes == (*range(yours.ndim - 2), yours.ndim - 1, yours.ndim - 2)
            return ": transposed" if matrices_turned else ": the right numbers, with the axes in another order"
    subsets = (itertools.combinations(range(yours.ndim), count) for count in range(1, yours.ndim + 1))
    for axes in itertools.chain.from_iterable(subsets):
        if one._replace(yours=yours.sum(axis=axes)).right:
            if all(yours.shape[axis] == 1 for axis in axes):
                return ": an axis of length 1 is left over"
            return f": sum over {axes_in_words(axes)} of yours, as forward used one and the same value all along"
    if yours.size == truth.size and one._replace(yours=yours.reshape(truth.shape)).right:
        return ": the right numbers, in another shape"
    if yours.ndim < truth.ndim and is_subsequence(yours.shape, truth.shape):
        return ": an axis is summed over, or lost, that should be there"
    if sorted(yours.shape) == sorted(truth.shape):
        return ": the axes are in another order"
    return ""


def axes_in_words(axes: tuple[int, ...]) -> str:
    return f"axis {axes[0]}" if len(axes) == 1 else f"axes {', '.join(map(str, axes))}"


def is_subsequence(some: Iterable[int], others: Iterable[int]) -> bool:
    rest = iter(others)
    return all(one in rest for one in some)


def not_finite(comparisons: list[Comparison], wrong: list[Comparison]) -> Iterator[str]:
    for one in wrong:
        if not one.finite:
            worst = "nan" if np.isnan(one.yours).any() else "inf"
            some = list(dict.fromkeys(each.words for each in wrong))
            here = f" for {'; '.join(some)}" if len(some) < len({each.words for each in comparisons}) else ""
            yield f"it holds {worst}{here}: a division by 0, a logarithm of 0, or an exp that overflows"


def cut_off(wrong: list[Comparison]) -> Iterator[str]:
    """Floating-point numbers were written into an array of whole numbers."""
    if all(one.is_like(np.trunc(one.truth)) for one in wrong if one.truth.dtype.kind == "f") and any(
        one.truth.dtype.kind == "f" and one.yours.any() for one in wrong
    ):
        yield "it holds whole numbers, and all digits after the point are lost: its array should have dtype float"


def multiples(wrong: list[Comparison]) -> Iterator[str]:
    """Yours is the truth times something."""
    wrong = [one for one in wrong if np.abs(one.truth).max(initial=0) > SMALLEST_SCALE * one.tolerance]
    if not wrong:
        return
    if all(not one.yours.any() for one in wrong):
        yield "zero everywhere"
        return
    if all(one.is_like(-one.truth) for one in wrong):
        yield "the sign is flipped"
        return
    ratios = [ratio(one) for one in wrong]
    if not all(one.is_like(c * one.truth) for one, c in zip(wrong, ratios)):
        return
    if max(ratios) - min(ratios) > 1e-6 * abs(ratios[0]):
        yield from powers(wrong, ratios)
    if max(ratios) - min(ratios) < 1e-6 * abs(ratios[0]):
        yield f"{ratios[0]:.4g} times what it should be, everywhere"
    elif any(one.truth.size > 1 for one in wrong):  # one number is always a multiple
        yield (
            f"all elements are wrong by one factor, which depends on the case: {ratios[0]:.4g} for "
            f"{wrong[0].words}, {ratios[-1]:.4g} for {wrong[-1].words}"
        )


def ratio(one: Comparison) -> float:
    """The c for which c times the truth is nearest to yours."""
    return float((one.yours * one.truth).sum() / (one.truth**2).sum())


def powers(wrong: list[Comparison], ratios: list[float]) -> Iterator[str]:
    """The factor is a power of the length of an axis."""
    letters = set.intersection(*(set(one.sizes) for one in wrong))
    for letter, power in itertools.product(sorted(letters), POWERS):
        if all(math.isclose(c, one.sizes[letter] ** power, rel_tol=1e-6) for one, c in zip(wrong, ratios)):
            yield (
                f"{ratios[0]:.4g} times what it should be: a factor {POWERS[power].replace('n', letter)} too many, "
                f"{letter} being the number of axis {letter!r}"
            )


def parts(wrong: list[Comparison]) -> Iterator[str]:
    """Wrong only in some part of the input, as padding."""
    for words, (letters, _) in wrong[0].where.items():
        if all(words in one.where and set(letters) <= set(one.axes) and only_there(one, *one.where[words])
               for one in wrong):  # fmt: skip
            yield f"only {words} is wrong"


def only_there(one: Comparison, letters: str, mask: np.ndarray) -> bool:
    order = sorted(range(len(letters)), key=lambda i: one.axes.index(letters[i]))
    shape = [one.truth.shape[i] if letter in letters else 1 for i, letter in enumerate(one.axes)]
    there = np.broadcast_to(mask.transpose(order).reshape(shape), one.truth.shape)
    return bool(there.any() and not there.all()) and one._replace(yours=np.where(there, one.truth, one.yours)).right


def axes(wrong: list[Comparison]) -> Iterator[str]:
    """Wrong only at some indices of one axis, and at each of them in every case that has it."""
    one = max(wrong, key=lambda each: each.truth.size)
    if len(one.axes) != one.truth.ndim:
        return
    off = abs(one.yours.astype(float) - one.truth) > one.tolerance * max(abs(one.truth).max(), SMALLEST_SCALE)
    for axis, letter in enumerate(one.axes):
        found = off.any(axis=tuple(i for i in range(off.ndim) if i != axis))
        if letter in LETTERS and found.any() and 2 * found.sum() <= found.size:
            numbers = ", ".join(str(i) for i in np.flatnonzero(found)[:5])
            yield f"only where {letter} = {numbers} ({LETTERS[letter]}, counted from 0): what is different there?"


def sometimes_right(comparisons: list[Comparison], wrong: list[Comparison]) -> Iterator[str]:
    if len(wrong) == len(comparisons):
        return
    wrong_words = list(dict.fromkeys(one.words for one in wrong))
    right_words = list(dict.fromkeys(one.words for one in comparisons if one.words not in wrong_words))
    if right_words:
        yield f"right for: {'; '.join(right_words)}; wrong for: {'; '.join(wrong_words)}. What is different there?"
    else:
        yield (
            "right for some random numbers and wrong for others: is something fixed that should follow from the "
            "inputs?"
        )


def close(wrong: list[Comparison]) -> Iterator[str]:
    worst = max(one.error for one in wrong)
    if worst < CLOSE and any(one.yours.any() for one in wrong):
        yield f"close, but {worst:.0e} off: computed in float32 somewhere, or with a small constant too many?"


# An error -------------------------------------------------------------------------------------------------------------

CLUES = {
    r"SimpleNamespace|has 0, gufunc": "a weight has two arrays, data and grad: calculate with W.data",
    r"[Ee]instein sum .*(contains too many|correct number of indices)": (
        "einsum has another number of letters than of axes. If it is given a weight W: calculate with W.data"
    ),
    r"inhomogeneous shape|'tuple'|can't multiply sequence|tuple indices": (
        "a tuple is used as an array. A differentiable function gives two things, y and backward; the backward of some "
        "returns a tuple, too: unpack it"
    ),
    r"truth value of an array": (
        "max, if, and, or decide about one number; for all numbers of an array there are np.maximum, np.where, &, |"
    ),
    r"non-broadcastable output operand": (
        "what is added by += has more axes than the array on its left: sum over those along which forward used one "
        "and the same value"
    ),
    r"could not be broadcast together with shapes \((.*),\d+\) \(\1,?\)": (
        "a sum, mean or maximum over the last axis lacks keepdims=True"
    ),
}
"""Pieces of an error's text -> what is often its cause."""


def clue(error: Exception) -> str:
    """A line about the cause of an error, if its text is a known one."""
    return next((f"\n({cause})" for text, cause in CLUES.items() if re.search(text, str(error))), "")


# A corner of both -----------------------------------------------------------------------------------------------------

CORNER = 3


def corner(one: Comparison) -> str:
    """Three rows and columns of yours and of the truth, around the largest difference if the shapes agree.

    Two lists of different lengths or of texts are shown whole.
    """
    is_text = one.truth.dtype.kind == "U"
    if one.yours.ndim == one.truth.ndim == 1 and (is_text or len(one.yours) != len(one.truth)):
        return "\n".join(
            f"  {whose}   {' '.join(figure(number).strip() for number in array)}"
            for whose, array in (("yours", one.yours), ("truth", one.truth))
        )
    place = [0] * one.truth.ndim
    if one.yours.shape == one.truth.shape and one.truth.size and not is_text:
        differences = np.abs(one.yours.astype(float) - one.truth.astype(float))
        worst = np.unravel_index(np.nan_to_num(differences, nan=np.inf).argmax(), differences.shape)
        place = [int(index) for index in worst]
    yours, _ = block(one.yours, place)
    truth, where = block(one.truth, place)
    if yours == truth:
        yours, truth = block(one.yours, place, digits=10)[0], block(one.truth, place, digits=10)[0]
    width = max(len(line) for line in ["yours", *yours])
    beside = itertools.zip_longest(yours, truth, fillvalue="")
    return "\n".join(
        [
            f"  {one.name}{where}",
            f"  {'yours':{width}}   truth",
            *(f"  {left:{width}}   {right}" for left, right in beside),
        ]
    )


def block(array: np.ndarray, place: list[int], digits: int = 4) -> tuple[list[str], str]:
    """At most three rows and columns that contain `place`, and which they are."""
    ends = [
        range(max(0, min(index, size - 1) - CORNER + 1), size)[:CORNER]
        for index, size in zip(place[-2:], array.shape[-2:])
    ]
    leading = [min(index, size - 1) for index, size in zip(place[:-2], array.shape[:-2])] if array.ndim > 2 else []
    leading += [0] * (array.ndim - len(leading) - len(ends))
    part = array[(*leading, *(slice(end.start, end.stop) for end in ends))]
    rows = np.atleast_2d(part) if part.size else ()
    names = [*map(str, leading), *(f"{end.start}:{end.stop}" for end in ends)]
    return [" ".join(figure(number, digits) for number in row) for row in rows], (
        f"[{', '.join(names)}]" if names else ""
    )


def figure(number: Any, digits: int = 4) -> str:
    if isinstance(number, str):
        return repr(str(number))
    return f"{number:{digits + 6}.{digits}g}" if isinstance(number, np.floating) else f"{number!s:>6}"
