"""What an exercise is, as data. `checker.py` works with it; the lessons' modules fill it in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

Values = dict[str, Any]
"""Everything that has a name in one case of an exercise: inputs, intermediates, the upstream gradient."""

Named = Callable[..., Any]
"""A function of some of the values: those that its parameters name."""

Case = Callable[[np.random.Generator], Values]
"""Makes the inputs of one case. Arrays of numbers are float64."""


@dataclass(frozen=True, eq=False)
class Result:
    """One array that the learner returns, and what can be wrong with it.

    name      for a gradient "d" and the name of the value: dscores
    terms     what it is a sum of, as {"the mean of dn": function}; then a missing term is named, and one with a wrong
              sign or factor. The sum must be the truth (a test looks), and no term a multiple of another.
    factors   what it contains as a factor, as {"1 / sqrt(d_k)": function}, numbers or arrays
    regions   {"only the rows of repeated words are wrong: ...": function -> bool array, True there}
    suspects  {"the sum runs over the queries": function -> what comes out then}; also for wrong shapes
    symptoms  {"the step is too small": function -> bool}

    The functions take values by name, and also the true results by theirs, `truth` (of this one) and `yours`. A
    diagnosis must hold in every case that is wrong.
    """

    name: str
    terms: dict[str, Named] = field(default_factory=dict)
    factors: dict[str, Named] = field(default_factory=dict)
    regions: dict[str, Named] = field(default_factory=dict)
    suspects: dict[str, Named] = field(default_factory=dict)
    symptoms: dict[str, Named] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class Exercise:
    """What all kinds have in common.

    id         NN_slug, NN being the lesson
    title      what to do, in a few words
    function   the name of the function that the learner writes
    arguments  the names of the values it is called with, in order
    solution   the same function by means of the library's
    library    the functions of the library that hold the answer
    hints      shapes, the rule in words, the formula
    """

    id: str
    title: str
    function: str
    arguments: tuple[str, ...]
    solution: Named
    library: tuple[Callable, ...]
    hints: tuple[str, str, str]
    kind: ClassVar[str] = ""

    @property
    def lesson(self) -> str:
        return self.id[:2]


@dataclass(frozen=True, eq=False, kw_only=True)
class Backward(Exercise):
    """Write gradients; the truth is numeric, from the library's forward.

    cases      words -> inputs
    forward    the library's forward as a chain: name -> function of earlier values. The last is the output y, whose
               gradient dy is random; steps that y does not depend on are there to be handed to the learner.
    gradients  what the learner returns, as a dict, in the order of the backward pass: that of the check
    """

    cases: dict[str, Case]
    forward: dict[str, Named]
    gradients: tuple[Result, ...]
    kind: ClassVar[str] = "backward"


@dataclass(frozen=True, eq=False, kw_only=True)
class Build(Exercise):
    """Write a function that does what `expected` does.

    cases      words -> inputs, edge cases among them
    expected   the truth, from the library or from the definition
    result     the array that the function returns
    tolerance  how large the error may be, relative to the largest element of the truth
    """

    cases: dict[str, Case]
    expected: Named
    result: Result
    tolerance: float = 1e-6
    kind: ClassVar[str] = "build"


@dataclass(frozen=True, eq=False, kw_only=True)
class Break(Exercise):
    """Make something fail, or find what does.

    complaint  takes the learner's function, each call of which is watched -> what is wrong with it; None if it succeeds
    """

    complaint: Callable[[Callable], str | None]
    kind: ClassVar[str] = "break"


def misjudgements(said: dict[str, Any], right: dict[str, bool], mistakes: dict[bool, str]) -> str | None:
    """What is wrong with a test that the learner wrote; None if nothing is.

    said      what it said of each specimen: {words: True or False}
    right     what it should have said
    mistakes  {True: "it accuses what is honest"}: what it does if it says so where it should not, the worse one first
    """
    for verdict in said.values():
        if not isinstance(verdict, bool | np.bool_):
            kind = "None" if verdict is None else f"a {type(verdict).__name__}"
            return f"it returns {kind}, and should return True or False"
    found = {mistake: [words for words in said if said[words] == verdict != right[words]]
             for verdict, mistake in mistakes.items()}
    return ". And ".join(f"{mistake}: {'; '.join(words)}" for mistake, words in found.items() if words) or None
