"""Is the learner's function right? And if not, what is it that is wrong?

For a gradient the truth is numeric: elementwise central differences of the library's forward, from each intermediate
on, in float64, for a random gradient of the output, in every case of the exercise and with three seeds each. What the
learner returns is compared in the order of the backward pass, and the first thing that is wrong is told: what comes
after it was computed from it.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from exercises.diagnosis import Comparison, Unlike, as_array, corner, diagnose, take
from exercises.exercise import Backward, Break, Build, Case, Exercise, Values
from exercises.numeric import numeric_gradient

SEEDS = (0, 1, 2)
CHANGEABLE = np.ndarray | list | dict
"""Arguments of these types are copied for the learner's function, and must be as they were when it returns."""

State = Literal["passed", "not yet", "not written"]


class Verdict(NamedTuple):
    """What came of a check. `diagnosis` is the cause in one sentence, `message` all that the learner should read."""

    state: State
    message: str
    diagnosis: str = ""


class Crashed(Exception):
    """The learner's function has raised the error that is this one's cause. The message says for which arguments."""


class Wrong(Exception):
    """Ends a check: what is wrong, and details to look at."""

    def __init__(self, diagnosis: str, details: str = "") -> None:
        super().__init__(diagnosis)
        self.diagnosis, self.details = diagnosis, details


def check(exercise: Exercise, answer: Callable) -> Verdict:
    """Check a function that the learner wrote. Raises Crashed if the function raises anything."""
    try:
        match exercise:
            case Backward():
                praise = check_backward(exercise, answer)
            case Build():
                praise = check_build(exercise, answer)
            case Break():
                praise = check_break(exercise, answer)
            case _:
                raise TypeError(f"{exercise.id}: no such kind of exercise: {type(exercise).__name__}")
    except NotImplementedError:
        return Verdict("not written", "not written yet", "not written yet")
    except Wrong as wrong:
        return Verdict("not yet", f"{wrong.diagnosis}\n{wrong.details}".rstrip(), wrong.diagnosis)
    return Verdict("passed", praise)


# Calling --------------------------------------------------------------------------------------------------------------


def call(answer: Callable, arguments: Values) -> Any:
    """Call the learner's function with copies of the arguments.

    Raises Crashed; Wrong if it changes an argument; NotImplementedError if nothing is written yet. Its np.seterr is
    undone, so that it does not hold for the check.
    """
    given = {name: copy.deepcopy(value) if isinstance(value, CHANGEABLE) else value
             for name, value in arguments.items()}
    require_signature(answer, list(arguments))
    try:
        with np.errstate():
            result = answer(*given.values())
    except BaseException as error:
        if isinstance(error, NotImplementedError) and not error.args:
            raise
        shapes = ", ".join(f"{name} {value.shape if isinstance(value, np.ndarray) else type(value).__name__}"
                           for name, value in arguments.items())
        many_axes = any(isinstance(value, np.ndarray) and value.ndim > 2 for value in arguments.values())
        advice = ".T reverses all axes; swapaxes(-1, -2) exchanges the last two\n" \
            if many_axes and is_about_shapes(error) and uses_T(answer) else ""
        raise Crashed(f"{advice}your code ends with an error, called with {shapes}:") from error
    for name, value in arguments.items():
        if isinstance(value, CHANGEABLE) and not unchanged(given[name], value):
            raise Wrong(f"the argument {name} is changed in place: work on a copy")
    return result


def is_about_shapes(error: BaseException) -> bool:
    return isinstance(error, ValueError) and bool(re.search("shape|dimension", str(error)))


def uses_T(answer: Callable) -> bool:
    try:
        return bool(re.search(r"\.T\b", inspect.getsource(answer)))
    except (OSError, TypeError):                                                   # no source to look at
        return False


def unchanged(given: Any, original: Any) -> bool:
    """Of arrays, lists, dicts and what is in them."""
    if type(given) is not type(original):
        return False
    if isinstance(original, dict):
        return given.keys() == original.keys() and all(unchanged(given[key], original[key]) for key in original)
    if isinstance(original, list):
        return len(given) == len(original) and all(map(unchanged, given, original))
    return np.array_equal(given, original) if isinstance(original, np.ndarray) else given == original


def require_signature(answer: Callable, arguments: list[str]) -> None:
    """Raises Wrong if the function cannot be called with so many arguments."""
    try:
        inspect.signature(answer).bind(*arguments)
    except TypeError:
        raise Wrong(f"the function must take these arguments: {', '.join(arguments)}") from None
    except ValueError:                                                             # some built-in functions do not say
        pass


def arguments_of(exercise: Exercise, values: Values) -> Values:
    return {name: values[name] for name in exercise.arguments}


# Backward -------------------------------------------------------------------------------------------------------------


class Situation(NamedTuple):
    """One case with one seed: all its values, and the true gradients for one upstream gradient."""

    words: str
    seed: int
    values: Values
    truth: dict[str, np.ndarray]
    output_shape: tuple[int, ...]


@cache
def situations(exercise: Backward) -> list[Situation]:
    return [situation(exercise, words, case, seed) for words, case in exercise.cases.items() for seed in SEEDS]


def situation(exercise: Backward, words: str, case: Case, seed: int) -> Situation:
    random = np.random.default_rng(seed)
    values = case(random)
    for name, step in exercise.forward.items():
        values[name] = take(step, values)
    upstream = random.standard_normal(np.shape(values[output_of(exercise)]))
    return with_upstream(exercise, words, seed, values, np.asarray(upstream))


def with_upstream(exercise: Backward, words: str, seed: int, values: Values, upstream: np.ndarray) -> Situation:
    """The situation for this gradient of the output."""
    values = {**values, f"d{output_of(exercise)}": upstream}
    truth = {gradient.name: true_gradient(exercise, values, gradient.name[1:]) for gradient in exercise.gradients}
    return Situation(words, seed, values, truth, upstream.shape)


def output_of(exercise: Backward) -> str:
    return list(exercise.forward)[-1]


def true_gradient(exercise: Backward, values: Values, name: str) -> np.ndarray:
    """Central differences in the value called `name`, of forward from there on."""
    output, names = output_of(exercise), list(exercise.forward)
    later = names[names.index(name) + 1:] if name in names else names

    def loss(value: np.ndarray) -> float:
        moved = {**values, name: value}
        for step in later:
            moved[step] = take(exercise.forward[step], moved)
        return float((moved[output] * values[f"d{output}"]).sum())

    return numeric_gradient(loss, values[name])


def check_backward(exercise: Backward, answer: Callable) -> str:
    """-> praise; raises Wrong."""
    places = situations(exercise)
    returned = [returned_gradients(exercise, answer, place) for place in places]
    right: list[str] = []
    for gradient in exercise.gradients:
        comparisons = [compare(gradient.name, place, gradients) for place, gradients in zip(places, returned)]
        if not all(comparison.right for comparison in comparisons):
            def with_ones() -> list[Comparison]:
                return [compared_with_ones(exercise, answer, gradient.name, place) for place in places]

            cause = diagnose(gradient, comparisons, with_ones)
            so_far = f"right so far: {', '.join(right)}\n" if right else ""
            raise Wrong(f"{gradient.name} is wrong: {cause}", so_far + details(comparisons))
        right.append(gradient.name)
    worst = max(compare(name, place, gradients).error for place, gradients in zip(places, returned) for name in right)
    return f"{', '.join(right)}: right in all {len(places)} situations, relative error at most {worst:.0e}"


def returned_gradients(exercise: Backward, answer: Callable, place: Situation) -> dict[str, Any]:
    """What the function returns there, by name. A single gradient may come without a dict."""
    names = [gradient.name for gradient in exercise.gradients]
    result = call(answer, arguments_of(exercise, place.values))
    if hasattr(result, "_asdict"):                                                 # a NamedTuple
        result = result._asdict()
    if len(names) == 1 and not isinstance(result, dict):
        result = {names[0]: result}
    if not isinstance(result, dict):
        kind = "None: is the return missing?" if result is None else f"a {type(result).__name__}"
        raise Wrong(f"the function returns {kind}; it should return a dict with {', '.join(names)}")
    unknown = [str(name) for name in result if name not in names]
    if unknown:
        raise Wrong(f"the function returns {', '.join(unknown)}, which nobody asked for; wanted: {', '.join(names)}")
    return result


def compare(name: str, place: Situation, gradients: dict[str, Any]) -> Comparison:
    """Raises Wrong if there is nothing to compare."""
    if name not in gradients:
        raise Wrong(f"{name} is missing in what the function returns")
    yours = array(name, gradients[name], place.truth[name])
    one_with = tuple(other for other in gradients if other != name and share_memory(gradients[name], gradients[other]))
    return Comparison(name, place.words, place.seed, {**place.values, **place.truth}, yours, place.truth[name],
                      place.truth, place.output_shape, one_with=one_with)


def share_memory(*returned: Any) -> bool:
    return all(isinstance(value, np.ndarray) for value in returned) and np.shares_memory(*returned)


def array(name: str, value: Any, truth: np.ndarray) -> np.ndarray:
    try:
        return as_array(value, truth)
    except Unlike as unlike:
        raise Wrong(f"{name} is {unlike}") from None


def compared_with_ones(exercise: Backward, answer: Callable, name: str, place: Situation) -> Comparison:
    """The same comparison, had the output's gradient been all ones."""
    ones = np.ones_like(place.values[f"d{output_of(exercise)}"])
    place = with_upstream(exercise, place.words, place.seed, place.values, ones)
    return compare(name, place, returned_gradients(exercise, answer, place))


def details(comparisons: list[Comparison]) -> str:
    """The first comparison that is wrong, with a corner of both arrays."""
    wrong = next(comparison for comparison in comparisons if not comparison.right)
    return f"here: {wrong.words}, seed {wrong.seed}\n{corner(wrong)}"


# Build and break ------------------------------------------------------------------------------------------------------


def check_build(exercise: Build, answer: Callable) -> str:
    """-> praise; raises Wrong."""
    comparisons = []
    for words, case in exercise.cases.items():
        for seed in SEEDS:
            values = case(np.random.default_rng(seed))
            truth = np.asarray(take(exercise.expected, values))
            yours = array(exercise.result.name, call(answer, arguments_of(exercise, values)), truth)
            comparisons.append(Comparison(exercise.result.name, words, seed, values, yours, truth,
                                          {exercise.result.name: truth}, truth.shape, exercise.tolerance))
    wrong = list(dict.fromkeys(comparison.words for comparison in comparisons if not comparison.right))
    if wrong:
        raise Wrong(f"{exercise.result.name}: {diagnose(exercise.result, comparisons)}",
                    f"wrong cases: {'; '.join(wrong)}\n{details(comparisons)}")
    return f"{exercise.result.name}: right in {'; '.join(exercise.cases)}"


def check_break(exercise: Break, answer: Callable) -> str:
    """-> praise; raises Wrong."""
    def watched(*arguments: Any) -> Any:
        return call(answer, dict(zip(exercise.arguments, arguments, strict=True)))

    complaint = exercise.complaint(watched)
    if complaint:
        raise Wrong(complaint)
    return "done: " + exercise.title[0].lower() + exercise.title[1:]
