"""The result of each probe of `scratchformer doctor`, and which component of the code is to blame.

A fault shows in everything built on the faulty component: a wrong softmax makes attention wrong, then the layer around
it, then the model. So the probes check every component, and the suspects are those that fail although all their parts
pass.
"""

from __future__ import annotations

import textwrap
from contextlib import suppress
from functools import cache, partial
from typing import Any, Callable, Collection, Iterator, Literal, NamedTuple, Sequence

import numpy as np
from numpy.typing import ArrayLike

from scratchformer.backends.device import Device
from scratchformer.nn.gradient_cases import TABLE
from scratchformer.nn.ops import using
from scratchformer.nn.parameter import Layer, enumerate_named

MAX_SUSPECTS = 3

# Components -----------------------------------------------------------------------------------------------------------


class Component(NamedTuple):
    """A piece of the code: the file it is in, and the components that it is built from or checked with."""

    file: str
    parts: set[str]


STANDS_FOR = {"CrossEntropy": "cross_entropy", "ModelLoss": "Transformer"}
"""The components that these layers of the gradient cases check."""

FUNCTIONS = {"dropout": "nn/dropout.py", "cross_entropy": "nn/loss.py"}
OTHER_PARTS = {
    **dict.fromkeys(("PositionalEncoding", "LearnedPositions", "FeedForward", "PreNorm"), {"dropout"}),
    "ScaledDotProductAttention": {"dropout"},
    "AddNorm": {"LayerNorm", "dropout"},
    "GatedAttention": {"CrossAttention"},
    "Transformer": {"cross_entropy"},
    "LanguageModel": {"cross_entropy"},
}
"""Parts of a layer that are not layers in its attributes."""

AROUND_THE_MODEL = {
    "decoding step": Component("decoding/incremental.py", {"Transformer", "LanguageModel"}),
    "Adam": Component("nn/optim.py", {"Transformer"}),
    "noam": Component("nn/optim.py", set()),
    "batches": Component("text/batches.py", set()),
    "validation_loss": Component("training/validation.py", {"Transformer", "batches"}),
    "Trainer.step": Component("training/trainer.py", {"Transformer", "Adam", "noam", "batches"}),
    "beam search": Component("decoding/search.py", {"decoding step", "Trainer.step"}),
}


@cache
def components() -> dict[str, Component]:
    """Every component, after its parts. The layers are those of the gradient cases, with the layers they hold as parts.

    An operation of `nn/ops.py` counts as part of the layer that calls it.
    """
    found = {name: Component(file, set()) for name, file in FUNCTIONS.items()}
    for kind, _, build in TABLE:
        name = kind.__name__
        if name not in STANDS_FOR:
            file = kind.__module__.removeprefix("scratchformer.").replace(".", "/") + ".py"
            parts = found.setdefault(name, Component(file, set(OTHER_PARTS.get(name, ())))).parts
            with suppress(Exception):  # a fault in a constructor, which the probes will find
                inner = [*map(type, layers_in(build(np.random.default_rng(0), 0.0)[0])), *kind.__bases__]
                parts |= {base.__name__ for part in inner for base in part.__mro__} & (found.keys() - {name})
    return found | AROUND_THE_MODEL


def layers_in(layer: Layer) -> Iterator[Layer]:
    """The layers among the attributes of a layer."""
    for name, value in vars(layer).items():
        yield from (item for _, item in enumerate_named(name, value) if isinstance(item, Layer))


def all_parts(name: str) -> set[str]:
    """The parts of a component, the parts of these, and so on."""
    parts = components()[name].parts
    return parts.union(*map(all_parts, parts))


def suspects(faulty: Collection[str]) -> list[str]:
    """The faulty components whose parts are all sound, at most MAX_SUSPECTS."""
    return [name for name in components() if name in faulty and not all_parts(name) & set(faulty)][:MAX_SUSPECTS]


# Findings -------------------------------------------------------------------------------------------------------------

Verdict = Literal["ok", "note", "FAIL", "skipped"]


class Finding(NamedTuple):
    """The result of a probe. As a `str`, a line with verdict and name, then what was expected and seen.

    expected  what correct code or a sensible setup shows
    seen      what the probe saw
    causes    the usual causes, if these two differ
    faults    component -> what is wrong with it; empty if the probe looks at the setup
    """

    probe: str
    expected: str
    seen: str
    verdict: Verdict
    causes: str = ""
    faults: dict[str, str] = {}

    def as_record(self) -> dict[str, Any]:
        """The finding for programs."""
        fields = "probe", "verdict", "expected", "seen", "causes"
        return {field: getattr(self, field) for field in fields} | {"suspects": suspects(self.faults)}

    def __str__(self) -> str:
        rows = {"expected": self.expected, "seen": self.seen}
        if self.verdict in ("FAIL", "note"):
            rows["usual causes" if self.verdict == "FAIL" else "hint"] = self.causes
            rows["suspects"] = ", ".join(suspects(self.faults))
        text = [wrapped(f"{'':8}{label:15}{row}", subsequent_indent=" " * 23) for label, row in rows.items() if row]
        return "\n".join([f"{self.verdict:8}{self.probe}", *text])


wrapped = partial(textwrap.fill, width=120, break_on_hyphens=False, break_long_words=False)
"""The text in lines of at most 120 characters."""


def verdict(value: float, note: float, fail: float) -> Verdict:
    """FAIL if the value is above `fail` or NaN, note if it is above `note`."""
    return "FAIL" if not value <= fail else "note" if value > note else "ok"


# Probes of the code ---------------------------------------------------------------------------------------------------


class CheckFailed(Exception):
    """A check found something wrong."""


Check = Callable[[], Any]
"""Checks one component. Raises CheckFailed if something is wrong; may return a measurement to print, as a `str`."""


class CodeProbe(NamedTuple):
    """The same question asked of several components; `checks` are pairs (component, check)."""

    name: str
    expected: str
    causes: str
    checks: Sequence[tuple[str, Check]]

    def run(self) -> Finding:
        """Run all checks. An exception in the code under test is a fault, too."""
        faults: dict[str, str] = {}
        passed: dict[str, str] = {}  # component -> its name and what was measured
        for component, check in self.checks:
            try:
                with np.errstate(all="ignore"), using(*Device.ops):  # in float32, the fast operations of training
                    measured = check()
                passed[component] = f"{component} {measured}" if isinstance(measured, str) else component
            except CheckFailed as failed:
                faults.setdefault(component, str(failed))
            except Exception as error:  # broken code may raise anything
                faults.setdefault(component, f"raises {one_line(error)}")
        if not faults:
            return Finding(self.name, self.expected, f"correct: {', '.join(passed.values())}", "ok")
        first = suspects(faults)[0]
        others = ", ".join(component for component in faults if component != first)
        seen = f"{first}: {faults[first]}" + (f"; also wrong: {others}" if others else "")
        return Finding(self.name, self.expected, seen, "FAIL", self.causes, faults)


def one_line(error: Exception) -> str:
    """The type of an exception and the first 150 characters of its message, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"


def expect(condition: object, problem: str) -> None:
    """Raise CheckFailed unless the condition is true."""
    if not condition:
        raise CheckFailed(problem)


ROUNDING = 1e-12
"""The largest error that rounding in float64 can explain, relative to the largest number compared."""


def expect_close(what: str, found: ArrayLike, expected: ArrayLike, tolerance: float = ROUNDING) -> None:
    """Raise CheckFailed unless the numbers are equal to within `tolerance` of the largest (at least 1)."""
    found, expected = np.asarray(found), np.asarray(expected)
    expect(found.shape == expected.shape, f"{what}: shape {found.shape}, expected {expected.shape}")
    expect(np.isfinite(found).all(), f"{what}: contains NaN or infinity")
    error = float(np.abs(found - expected).max(initial=0))
    allowed = tolerance * max(1.0, float(np.abs(expected).max(initial=0)))
    expect(error <= allowed, f"{what}: off by up to {error:.2g}")
