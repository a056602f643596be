"""Is the learner's function right? And if not, what is it that is wrong?

Everything that comes out of it is compared with what comes out of ours, in several cases of odd sizes with two seeds
each, and its gradients with finite differences. All other functions that it calls are ours, so that a wrong one does
not make it wrong. The first thing that is wrong is told: what comes after it was calculated from it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np

from exercises.diagnosis import Comparison, Unlike, as_array, clue, corner, narrowed
from exercises.function import Call, Function, Mistake
from exercises.halves import Slip, once
from exercises.observe import Halves, names_of, weights_of
from exercises.source import BELOW, functions_of_ours, ours

SEEDS = (0, 1)

MOST_NAMES = 10
"""A message names no more results than this one by one."""

State = Literal["passed", "not yet", "not written", "refused"]


class Verdict(NamedTuple):
    """Result of a check. `diagnosis` is the cause in one sentence, `message` all that the learner should read."""

    state: State
    message: str
    diagnosis: str = ""


class Crashed(Exception):
    """The learner's function has raised the error that is this one's cause."""


class Outcome(NamedTuple):
    """Values of one call, as far as it went, and the error that ended it."""

    values: dict[str, Any]
    error: Exception | None


def check(function: Function, module: ModuleType) -> Verdict:
    """Check the function of a module that is the learner's. Raises Crashed if it raises an error of its own."""
    watch(function, module)
    try:
        with np.errstate(all="ignore"):
            return Verdict("passed", checked(function, module))
    except Slip as slip:
        return Verdict("not yet", str(slip), str(slip))
    except Wrong as wrong:
        return Verdict("not yet", f"{wrong.diagnosis}\n{wrong.details}".rstrip(), wrong.diagnosis)


def watch(function: Function, module: ModuleType) -> None:
    """Let all differentiable functions beside the one in question tell if their backward is called twice."""
    for file in BELOW[function.file]:
        for name, node in functions_of_ours(file).items():
            if node.decorator_list and name != function.name:
                setattr(module, name, once(name, getattr(module, name)))


class Wrong(Exception):
    """Ends a check: what is wrong, and details to look at."""

    def __init__(self, diagnosis: str, details: str = "") -> None:
        super().__init__(diagnosis)
        self.diagnosis, self.details = diagnosis, details


def checked(function: Function, module: ModuleType) -> str:
    """-> praise; raises Wrong, Slip or Crashed"""
    if not callable(getattr(module, function.name, None)):
        raise Slip(f"{function.name} is not a function")
    places = [(words, seed) for words in function.cases for seed in SEEDS]
    truths, hers = [], []
    for place in places:
        truths.append(outcome(function, ours(function.file), *place))
        if truths[-1].error:
            raise RuntimeError(f"our own {function.name} fails: {place}") from truths[-1].error
        hers.append(outcome(function, module, *place))
        if hers[-1].error:
            break
    names = list(dict.fromkeys(name for truth in truths for name in truth.values))
    for name in names:
        comparisons = list(compared(function, name, places, truths, hers))
        if not all(one.right for one in comparisons):
            so_far = names[: names.index(name)]
            raise Wrong(
                f"{name} is wrong: {cause(function, name, comparisons, places, hers)}",
                (f"right so far: {listed(so_far)}\n" if so_far else "") + details(comparisons),
            )
    if isinstance(slip := hers[-1].error, Slip):
        so_far = [name for name in names if name in hers[-1].values]
        raise Wrong(str(slip), f"right so far: {listed(so_far)}" if so_far else "")
    if hers[-1].error:
        raise_hers(function, places[: len(hers)], hers[-1].error)
    return praise(function, module, names)


def outcome(function: Function, module: ModuleType, words: str, seed: int) -> Outcome:
    """Call the function of a module with the arguments of a case."""
    call, values = make(function, words, seed), {}
    try:
        for name, value in function.observe(module, function, call, seed):
            values[name] = copy.deepcopy(value)
    except Exception as error:
        return Outcome(values, error)
    return Outcome(values, None)


def make(function: Function, words: str, seed: int) -> Call:
    file = ours(function.file)
    watch(function, file)
    return function.cases[words](np.random.default_rng([seed, 0]), file)


def compared(
    function: Function, name: str, places: list[tuple[str, int]], truths: list[Outcome], hers: list[Outcome]
) -> Iterator[Comparison]:
    """The value of this name in all calls that came so far."""
    for (words, seed), truth, her in zip(places, truths, hers):
        if name not in her.values or name not in truth.values:
            continue
        try:
            yours = as_array(her.values[name], np.asarray(truth.values[name]))
        except Unlike as unlike:
            raise Wrong(f"{name} is {unlike}") from None
        lengths, where = sizes(function, words, seed)
        yield Comparison(
            name, words, seed, yours, np.asarray(truth.values[name]), axes_of(function, name),
            lengths, where, function.tolerance,
            {other: value for other, value in truth.values.items() if other != name},
        )  # fmt: skip


def axes_of(function: Function, name: str) -> str:
    """The axes of a value; a gradient has those of what it is the gradient of."""
    for key in (name, name[1:] if name.startswith("d") else "", name.removesuffix(".grad")):
        if key in function.shapes:
            return function.shapes[key]
    return ""


@cache
def sizes(function: Function, words: str, seed: int) -> tuple[dict[str, int], dict[str, tuple[str, np.ndarray]]]:
    """The length of each axis, found on the arguments of a case, and parts of its input.

    An axis of length 1 may be one that is broadcast.
    """
    call = make(function, words, seed)
    values = names_of(function, call)
    found: dict[str, int] = {}
    arrays = {**values, **{name: W.data for name, W in weights_of(values).items()}}
    for name, axes in function.shapes.items():
        if name in arrays and np.ndim(arrays[name]) == len(axes):
            for letter, size in zip(axes, np.shape(arrays[name])):
                found[letter] = max(size, found.get(letter, 1))
    return found, call.where


def cause(
    function: Function, name: str, comparisons: list[Comparison], places: list[tuple[str, int]], hers: list[Outcome]
) -> str:
    """Find what is wrong with the value of this name, in words."""
    finite = [one for one in comparisons if one.right or one.finite]
    if not all(one.right for one in finite):
        comparisons = finite  # NaN in some cases may hide what is wrong in all
    wrong = [one for one in comparisons if not one.right]
    best, why = (0, 0), ""
    for mistake in function.mistakes:
        if (found := likeness(function, mistake, name, comparisons, places, hers)) > best:
            best, why = found, mistake.why
    return why or narrowed(comparisons, wrong)


def likeness(
    function: Function,
    mistake: Mistake,
    name: str,
    comparisons: list[Comparison],
    places: list[tuple[str, int]],
    hers: list[Outcome],
) -> tuple[int, int]:
    """Compare a known mistake with the learner's function.

    -> 2 if the value in question is the same in all cases, 1 if it is up to the first case that is wrong, else 0; how
    many values are the same. Real numbers are not the same by chance: for a differentiable function one case is enough.
    """
    variant, alike = ours(function.file, function.name, mistake.edits), 0
    outcomes = {place: outcome(function, variant, *place) for place in places[: len(hers)]}
    same = []
    for one in comparisons:
        theirs = outcomes[one.words, one.seed].values
        same.append(name in theirs and one.is_like(theirs[name]))
    first = next(one.words for one in comparisons if not one.right)
    n_first = max(i for i, one in enumerate(comparisons) if one.words == first) + 1
    if not all(same) and not (isinstance(function.observe, Halves) and all(same[:n_first])):
        return 0, 0
    for place, her in zip(places, hers):
        for other, value in her.values.items():
            theirs = outcomes[place].values
            alike += other in theirs and Comparison.alike(value, theirs[other], function.tolerance)
    return 1 + all(same), alike


def raise_hers(function: Function, places: list[tuple[str, int]], error: Exception) -> None:
    """Say why a function ends with an error: a known mistake that ends with the same, or the error itself.

    places  all that it was called with so far; the last one ended with the error
    """
    for mistake in function.mistakes:
        variant = ours(function.file, function.name, mistake.edits)
        *before, theirs = (outcome(function, variant, *place).error for place in places)
        if theirs and not any(before) and end_alike(theirs, error):
            raise Wrong(f"your code ends with an error: {mistake.why}", f"{type(error).__name__}: {error}")
    place = places[-1]
    call = make(function, *place)
    values = names_of(function, call)
    told = [f"{name} {value!r}" for name, value in values.items() if isinstance(value, str)]
    told += [f"{name} {value.shape}" for name, value in values.items() if isinstance(value, np.ndarray)]
    told += [f"{name}.data {value.data.shape}" for name, value in values.items() if hasattr(value, "grad")]
    raise Crashed(f"your code ends with an error, called with {', '.join(told) or place[0]}:{clue(error)}") from error


def end_alike(one: Exception, other: Exception) -> bool:
    """Tell whether two errors say the same; `a += b` names one shape more than `a + b`."""
    texts = sorted((str(one).rstrip(), str(other).rstrip()), key=len)
    return type(one) is type(other) and (texts[0] == texts[1] or " shape" in texts[0] and texts[1].startswith(texts[0]))


def details(comparisons: list[Comparison]) -> str:
    """The first comparison that is wrong, with a corner of both arrays."""
    wrong = next(one for one in comparisons if not one.right)
    return f"in the case: {wrong.words}\n{corner(wrong)}"


def praise(function: Function, module: ModuleType, names: list[str]) -> str:
    """Say what was right, and how far its gradients are from finite differences, which count, too."""
    cases = f"{len(function.cases)} cases" if len(function.cases) > 1 else "1 case"
    if not isinstance(function.observe, Halves):
        return f"right in {cases}"
    error = max(
        function.observe.difference(module, function, make(function, words, seed), seed)
        for words in function.cases
        for seed in SEEDS
    )
    if not error < 1e-5:
        raise Wrong(f"the gradients are {error:.0e} away from finite differences, relative to their size")
    return f"{listed(names)} right in {cases}; gradients agree with finite differences to {error:.0e}"


def listed(names: list[str]) -> str:
    """Names in words, of many only the first; a model has dozens of gradients."""
    return ", ".join(names) if len(names) <= MOST_NAMES else f"{', '.join(names[:2])} and {len(names) - 2} more"
