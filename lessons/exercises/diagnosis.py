"""From a wrong array to the mistake behind it.

A diagnosis looks at all cases and seeds at once and names a cause only if it explains every one that is wrong. What an
exercise knows of its own mistakes is asked before what is known of arrays in general.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from exercises.exercise import Named, Result, Values

TOLERANCE = 1e-6
"""The largest error of a right gradient, relative to its largest element; central differences reach about 1e-9."""

CLOSE = 1e-3
"""An error below this is not a wrong formula: float32, say."""

LARGEST = 10**6
"""No true result has so many elements; an array that has is not looked into."""

MOST_AXES = 6
"""Of an array with more axes nobody tries out how they can be ordered, and which may be left out."""

SMALLEST_SCALE = 1e-3
"""Some true gradients are zero altogether; errors are then measured against this."""


class Comparison(NamedTuple):
    """The learner's array beside the true one, in one case with one seed.

    values        everything that has a name there, the true results among it
    others        name -> true array of everything that the learner is to return
    output_shape  of the function whose gradient is asked for, or of the result
    one_with      names of other results that the learner returned in the same memory
    """

    name: str
    words: str
    seed: int
    values: Values
    yours: np.ndarray
    truth: np.ndarray
    others: dict[str, np.ndarray]
    output_shape: tuple[int, ...]
    tolerance: float = TOLERANCE
    one_with: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        return self.is_like(self.truth)

    @property
    def error(self) -> float:
        return error(self.yours, self.truth)

    def is_like(self, other: Any) -> bool:
        """Whether yours is this array, by the measure that decides about right and wrong."""
        other = np.asarray(other)
        return self.yours.shape == other.shape and error(self.yours, other) <= self.tolerance

    def ask(self, function: Named) -> Any:
        return take(function, {**self.values, "yours": self.yours, "truth": self.truth})


def error(yours: np.ndarray, truth: np.ndarray) -> float:
    """The largest difference of two arrays of one shape, relative to the largest element of the second; NaN for NaN.

    Of arrays that hold no floating-point numbers: 0 if they are equal, else 1.
    """
    if truth.dtype.kind != "f":
        return float(not np.array_equal(yours, truth))
    if not truth.size:
        return 0.0
    with np.errstate(invalid="ignore", over="ignore"):                             # yours may hold nan and inf
        return float(np.abs(yours - truth).max() / max(np.abs(truth).max(), SMALLEST_SCALE))


def take(function: Named, values: Values) -> Any:
    """Call a function with the values that its parameters name."""
    return function(*(values[name] for name in parameters(function)))


@cache
def parameters(function: Named) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


# What is no array to compare ------------------------------------------------------------------------------------------


class Unlike(Exception):
    """What was returned cannot be compared: why."""


def as_array(value: Any, truth: np.ndarray) -> np.ndarray:
    """The returned value as an array of the truth's kind of numbers; for floats, float64. Raises Unlike."""
    if value is None:
        raise Unlike("None: is the return missing?")
    if not isinstance(value, (np.ndarray, np.generic, bool, int, float, list, tuple)):
        raise Unlike(f"a {type(value).__name__}, and should be an array")
    try:
        yours = np.asarray(value)
    except ValueError:
        raise Unlike("a list whose parts differ in length, and should be an array") from None
    if yours.size > LARGEST:
        raise Unlike(f"of shape {yours.shape}, expected {truth.shape}")
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


def diagnose(result: Result, comparisons: list[Comparison],
             with_ones: Callable[[], list[Comparison]] | None = None) -> str:
    """The cause, in words, of what is wrong with one result.

    comparisons  all cases and seeds, at least one of them wrong
    with_ones    the same comparisons with an upstream gradient of ones, for a result that is a gradient
    """
    wrong = [comparison for comparison in comparisons if not comparison.right]
    with np.errstate(all="ignore"):
        return next(causes(result, comparisons, wrong, with_ones))


def causes(result: Result, comparisons: list[Comparison], wrong: list[Comparison],
           with_ones: Callable[[], list[Comparison]] | None) -> Iterator[str]:
    """All causes that explain it, the most telling first."""
    yield from (words for words, symptom in result.symptoms.items() if all(one.ask(symptom) for one in wrong))
    yield from (words for words, suspect in result.suspects.items()
                if all(one.is_like(one.ask(suspect)) for one in wrong))
    yield from swapped(wrong)
    yield from wrong_shape(wrong)
    yield from not_finite(wrong)
    if wrong[0].truth.dtype.kind == "f":
        yield from multiples(result, wrong)
        yield from sum_of_terms(result, comparisons)
        yield from two_mistakes(result, wrong)
    yield from (words for words, where in result.regions.items()
                if all(wrong_only_there(one, one.ask(where)) for one in wrong))
    if with_ones:
        yield from upstream_ignored(with_ones)
    yield from sometimes_right(comparisons, wrong)
    yield from close(wrong)
    yield "wrong, and like no mistake that is known here: take one element and write out the sum that makes it"


def swapped(wrong: list[Comparison]) -> Iterator[str]:
    for other in wrong[0].others:
        if other != wrong[0].name and all(one.is_like(one.others[other]) for one in wrong):
            if all(other in one.one_with for one in wrong):
                yield (f"this is {other}, one and the same array: a change in place (-=, *=) changes both, so make "
                       "a new one")
            else:
                yield f"this is {other}: the two are swapped"


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


def not_finite(wrong: list[Comparison]) -> Iterator[str]:
    for one in wrong:
        if not np.isfinite(one.yours).all():
            worst = "nan" if np.isnan(one.yours).any() else "inf"
            yield f"it holds {worst}: a division by 0, a logarithm of 0, or an exp that overflows"


def multiples(result: Result, wrong: list[Comparison]) -> Iterator[str]:
    """Yours is the truth times something."""
    wrong = [one for one in wrong if np.abs(one.truth).max() > SMALLEST_SCALE * one.tolerance]
    if not wrong:
        return
    if all(not one.yours.any() for one in wrong):
        yield "zero everywhere"
        return
    if all(one.is_like(-one.truth) for one in wrong):
        yield "the sign is flipped"
        return
    for words, factor in result.factors.items():
        if all(one._replace(yours=one.yours * one.ask(factor)).right for one in wrong):
            yield f"{in_figures(wrong)}the factor {words} is missing"
        elif all(one.is_like(one.truth * one.ask(factor)) for one in wrong):
            yield f"{in_figures(wrong)}the factor {words} is there once too often"
        elif all(one._replace(yours=one.yours * one.ask(factor)**2).right for one in wrong):
            yield f"{in_figures(wrong)}divided by {words} where it should be multiplied, or the other way round"
    yield from means_for_sums(wrong)
    ratios = [ratio(one) for one in wrong]
    if all(one.is_like(c * one.truth) for one, c in zip(wrong, ratios)):
        if max(ratios) - min(ratios) < TOLERANCE * abs(ratios[0]):
            yield f"{ratios[0]:.4g} times what it should be, everywhere"
        elif any(one.truth.size > 1 for one in wrong):                             # one number is always a multiple
            yield (f"all elements are wrong by one factor, which depends on the case: {ratios[0]:.4g} for "
                   f"{wrong[0].words}, {ratios[-1]:.4g} for {wrong[-1].words}")


def ratio(one: Comparison) -> float:
    """The c for which c times the truth is nearest to yours."""
    return float((one.yours * one.truth).sum() / (one.truth**2).sum())


def in_figures(wrong: list[Comparison]) -> str:
    """How many times too large, if it is a number."""
    one = wrong[0]
    c = ratio(one)
    return f"{c:.4g} times what it should be: " if one.is_like(c * one.truth) else ""


def means_for_sums(wrong: list[Comparison]) -> Iterator[str]:
    """Divided by the size of an axis of the output, or of several."""
    for part in (slice(0, 1), slice(1, 2), slice(-1, None), slice(-1), slice(None)):
        sizes = [math.prod(one.output_shape[part]) for one in wrong]
        if max(sizes) > 1 and all(one.is_like(one.truth / size) for one, size in zip(wrong, sizes)):
            yield f"{in_figures(wrong)}divided by {sizes[0]}, a mean where the sum is meant"


def sum_of_terms(result: Result, comparisons: list[Comparison]) -> Iterator[str]:
    """Yours is a sum of the right terms, but not of each of them once."""
    if not result.terms or any(one.yours.shape != one.truth.shape for one in comparisons):
        return
    terms = np.stack([np.concatenate([np.broadcast_to(one.ask(term), one.truth.shape).ravel() for one in comparisons])
                      for term in result.terms.values()], axis=1)                  # (all elements, terms)
    yours = np.concatenate([one.yours.ravel() for one in comparisons])
    counts, _, rank, _ = np.linalg.lstsq(terms, yours, rcond=None)
    if rank == len(result.terms) and error(terms @ counts, yours) <= comparisons[0].tolerance:
        yield "; ".join(how_often(words, count) for words, count in zip(result.terms, counts)
                        if abs(count - 1) > comparisons[0].tolerance)


def two_mistakes(result: Result, wrong: list[Comparison]) -> Iterator[str]:
    """Yours is a known wrong result, times something."""
    for words, suspect in result.suspects.items():
        suspected = [one._replace(truth=np.asarray(one.ask(suspect), dtype=float)) for one in wrong]
        if any(one.yours.shape != one.truth.shape or not one.truth.any() for one in suspected):
            continue
        for factor_words, factor in result.factors.items():
            if all(one._replace(yours=one.yours * one.ask(factor)).right for one in suspected):
                yield f"two mistakes at once: {words}; and the factor {factor_words} is missing"
        ratios = [ratio(one) for one in suspected]
        if max(ratios) - min(ratios) < TOLERANCE * abs(ratios[0]) and all(
                one.is_like(ratios[0] * one.truth) for one in suspected):
            flipped = abs(ratios[0] + 1) < TOLERANCE
            second = "the sign is flipped" if flipped else f"all of it is {ratios[0]:.4g} times that"
            yield f"two mistakes at once: {words}; and {second}"


def how_often(words: str, count: float) -> str:
    if abs(count) < CLOSE:
        return f"{words} is missing"
    if abs(count + 1) < CLOSE:
        return f"{words} has the wrong sign"
    return f"{words} is counted {count:.4g} times"


def wrong_only_there(one: Comparison, where: Any) -> bool:
    if one.yours.shape != one.truth.shape:
        return False
    where = np.broadcast_to(where, one.truth.shape)
    return bool(where.any()) and one._replace(yours=np.where(where, one.truth, one.yours)).right


def upstream_ignored(with_ones: Callable[[], list[Comparison]]) -> Iterator[str]:
    """Where ones give a gradient of 0, as through a softmax, being right says nothing."""
    telling = [one for one in with_ones() if np.abs(one.truth).max() > SMALLEST_SCALE * one.tolerance]
    if telling and all(one.right for one in telling):
        yield "right only for an upstream gradient of all ones: the gradient of the output is ignored"


def sometimes_right(comparisons: list[Comparison], wrong: list[Comparison]) -> Iterator[str]:
    if len(wrong) == len(comparisons):
        return
    wrong_words = list(dict.fromkeys(one.words for one in wrong))
    right_words = list(dict.fromkeys(one.words for one in comparisons if one.words not in wrong_words))
    if right_words:
        yield f"right for: {'; '.join(right_words)}; wrong for: {'; '.join(wrong_words)}. What is different there?"
    else:
        yield ("right for some random numbers and wrong for others: is something fixed that should follow from the "
               "inputs?")


def close(wrong: list[Comparison]) -> Iterator[str]:
    worst = max(one.error for one in wrong)
    if worst < CLOSE:
        yield f"close, but {worst:.0e} off: computed in float32 somewhere, or with a small constant too many?"


# A corner of both -----------------------------------------------------------------------------------------------------

CORNER = 3


def corner(one: Comparison) -> str:
    """Three rows and columns of yours and of the truth, around the largest difference if the shapes agree.

    Two lists of different lengths are shown whole.
    """
    if one.yours.ndim == one.truth.ndim == 1 and len(one.yours) != len(one.truth):
        return "\n".join(f"  {whose}   {' '.join(figure(number).strip() for number in array)}"
                         for whose, array in (("yours", one.yours), ("truth", one.truth)))
    place = [0] * one.truth.ndim
    if one.yours.shape == one.truth.shape and one.truth.size:
        differences = np.abs(one.yours.astype(float) - one.truth.astype(float))
        worst = np.unravel_index(np.nan_to_num(differences, nan=np.inf).argmax(), differences.shape)
        place = [int(index) for index in worst]
    yours, _ = block(one.yours, place)
    truth, where = block(one.truth, place)
    width = max(len(line) for line in ["yours", *yours])
    beside = itertools.zip_longest(yours, truth, fillvalue="")
    return "\n".join([f"  {one.name}{where}", f"  {'yours':{width}}   truth",
                      *(f"  {left:{width}}   {right}" for left, right in beside)])


def block(array: np.ndarray, place: list[int]) -> tuple[list[str], str]:
    """At most three rows and columns that contain `place`, and which they are."""
    ends = [range(max(0, min(index, size - 1) - CORNER + 1), size)[:CORNER]
            for index, size in zip(place[-2:], array.shape[-2:])]
    leading = [min(index, size - 1) for index, size in zip(place[:-2], array.shape[:-2])] if array.ndim > 2 else []
    leading += [0] * (array.ndim - len(leading) - len(ends))
    part = array[(*leading, *(slice(end.start, end.stop) for end in ends))]
    rows = np.atleast_2d(part) if part.size else ()
    names = [*map(str, leading), *(f"{end.start}:{end.stop}" for end in ends)]
    return [" ".join(figure(number) for number in row) for row in rows], f"[{', '.join(names)}]" if names else ""


def figure(number: Any) -> str:
    return f"{number:10.4g}" if isinstance(number, np.floating) else f"{number!s:>6}"
