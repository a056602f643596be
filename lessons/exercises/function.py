"""Functions to be written, as data. `checker.py` works with it; the modules of `catalogue.py` fill it in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

LETTERS = {
    "b": "sentence",
    "t": "position",
    "s": "position seen",
    "h": "head",
    "g": "head of K and V",
    "v": "word of the vocabulary",
    "n": "prediction",
    "d": "element of d_model",
    "f": "hidden unit",
    "k": "element of d_k",
}
"""Names of the axes in `Function.shapes`, as in the file."""


class Call:
    """The arguments of one call, new arrays each time a case is made.

    named    names of arguments that the signature does not name
    returns  what backward returns here, if that depends on the arguments
    where    {"padding": ("bs", mask)}: a part of the input by which a wrong result may be explained, and its axes
    """

    def __init__(self, *args: Any, named: Any = None, returns: Any = None, where: Any = None, **kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs
        self.named, self.returns, self.where = named or {}, returns, where or {}


Case = Callable[[np.random.Generator, ModuleType], Call]
"""Make the arguments of one call from random numbers; other functions that it needs are those of the module."""

Observe = Callable[[ModuleType, "Function", Call, int], Iterator[tuple[str, Any]]]
"""Call the function of a module with a seed -> name and value of each thing that is compared, in the order of the
calculation. The first that is wrong is told."""


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that is recognised by what it computes: ours with some pieces of its text replaced.

    why    what is wrong, in one sentence that follows "dK is wrong: "
    edits  (old, new), old standing exactly once in our function
    """

    why: str
    edits: tuple[tuple[str, str], ...]

    def __init__(self, why: str, *edits: tuple[str, str]) -> None:
        object.__setattr__(self, "why", why)
        object.__setattr__(self, "edits", edits)


@dataclass(frozen=True, eq=False, kw_only=True)
class Function:
    """A function of `lessons/transformer.py` or `lessons/more.py` that the learner writes.

    lesson    the page that explains it, as "04"
    shapes    name -> axes, as {"Q": "bthk"}; of the arguments, of y, and of what else is compared
    note      what the stub says after the shapes: what to yield and to return
    cases     words -> arguments; all sizes differ in the first, and at least one is degenerate
    observe   calls it and tells what came out (`observe.py`)
    hints     two: the rule in words, the formula or the lines
    mistakes  four to a dozen that are often made
    file      the module that holds it
    """

    name: str
    lesson: str
    shapes: dict[str, str] = field(default_factory=dict)
    note: str
    cases: dict[str, Case]
    observe: Observe
    hints: tuple[str, str]
    mistakes: tuple[Mistake, ...]
    file: str = "transformer"
    tolerance: float = 1e-6
