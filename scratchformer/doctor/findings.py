"""The result of each probe of `scratchformer doctor`, and which component of the code is to blame.

A fault shows in everything built on the faulty component: a wrong softmax makes attention wrong, then the layer around
it, then the model. So the probes check every component, and the suspects are those that fail although all their parts
pass.
"""

from __future__ import annotations

from typing import Callable, Iterable, Literal, NamedTuple, Sequence

import numpy as np
from numpy.typing import ArrayLike

from scratchformer.backends.device import Device
from scratchformer.nn.ops import using

MAX_SUSPECTS = 3


class Component(NamedTuple):
    """A piece of the code: the file it is in, and the components it is built from."""

    file: str
    parts: tuple[str, ...] = ()


COMPONENTS: dict[str, Component] = {
    "dropout": Component("nn/dropout.py"),
    "Linear": Component("nn/layers.py"),
    "Embedding": Component("nn/layers.py"),
    "Unembedding": Component("nn/layers.py"),
    "PositionalEncoding": Component("nn/layers.py", ("dropout",)),
    "LearnedPositions": Component("nn/layers.py", ("dropout",)),
    "LayerNorm": Component("nn/layers.py"),
    "AddNorm": Component("nn/layers.py", ("LayerNorm", "dropout")),
    "FeedForward": Component("nn/layers.py", ("Linear", "dropout")),
    "ScaledDotProductAttention": Component("nn/attention.py", ("dropout",)),
    "SelfAttention": Component("nn/attention.py", ("Linear", "ScaledDotProductAttention")),
    "CrossAttention": Component("nn/attention.py", ("Linear", "ScaledDotProductAttention")),
    "HeadGate": Component("nn/head_gate.py"),
    "GatedAttention": Component("nn/head_gate.py", ("HeadGate", "CrossAttention")),
    "Convolution": Component("nn/sequence_layers.py"),
    "SeparableConvolution": Component("nn/sequence_layers.py", ("Linear",)),
    "RestrictedAttention": Component("nn/sequence_layers.py", ("ScaledDotProductAttention",)),
    "RestrictedSelfAttention": Component("nn/sequence_layers.py", ("SelfAttention", "RestrictedAttention")),
    "PostNorm": Component("nn/residual.py", ("AddNorm", "FeedForward", "CrossAttention")),
    "PreNorm": Component("nn/residual.py", ("LayerNorm", "FeedForward", "CrossAttention")),
    "EncoderLayer": Component("nn/transformer.py", ("SelfAttention", "FeedForward", "PostNorm", "PreNorm")),
    "DecoderLayer": Component("nn/transformer.py", ("SelfAttention", "FeedForward", "PostNorm", "PreNorm")),
    "Encoder": Component("nn/transformer.py", ("EncoderLayer",)),
    "Decoder": Component("nn/transformer.py", ("DecoderLayer",)),
    "NextWord": Component("nn/next_word.py", ("PositionalEncoding",)),
    "cross_entropy": Component("nn/loss.py"),
    "Transformer": Component(
        "nn/transformer.py",
        (
            *("Embedding", "Unembedding", "PositionalEncoding", "LearnedPositions", "NextWord"),
            *("Encoder", "Decoder", "cross_entropy"),
        ),
    ),
    "TokenTypes": Component("nn/text_encoder.py"),
    "TextEncoder": Component(
        "nn/text_encoder.py",
        ("Embedding", "TokenTypes", "Unembedding", "PositionalEncoding", "LearnedPositions", "Encoder"),
    ),
    "PatchEmbedding": Component("nn/vision.py", ("Linear",)),
    "ClassToken": Component("nn/vision.py"),
    "VisionTransformer": Component(
        "nn/vision.py",
        ("PatchEmbedding", "ClassToken", "Unembedding", "PositionalEncoding", "LearnedPositions", "Encoder"),
    ),
    "LanguageModel": Component(
        "nn/language_model.py",
        ("Embedding", "Unembedding", "PositionalEncoding", "LearnedPositions", "Encoder", "cross_entropy"),
    ),
    "decoding step": Component("decoding/incremental.py", ("Transformer", "LanguageModel")),
    "Adam": Component("nn/optim.py", ("Transformer",)),
    "noam": Component("nn/optim.py"),
    "batches": Component("text/batches.py"),
    "validation_loss": Component("training/validation.py", ("Transformer", "batches")),
    "Trainer.step": Component("training/trainer.py", ("Transformer", "Adam", "noam", "batches")),
    "beam search": Component("decoding/search.py", ("decoding step", "Trainer.step")),
}
"""Each component comes after its parts. An operation of `nn/ops.py` counts as part of the layer that calls it. A part
may also be a component that another is checked with: Adam on the flat buffers of a Transformer, beam search on a model
after a little training, gates within CrossAttention."""


def all_parts(name: str) -> set[str]:
    """The parts of a component, the parts of these, and so on."""
    parts = COMPONENTS[name].parts
    return {*parts, *(deeper for part in parts for deeper in all_parts(part))}


class Fault(NamedTuple):
    """A fault of a component. `also` names other components that may be the cause instead."""

    component: str
    problem: str
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.component}: {self.problem}"


Verdict = Literal["ok", "note", "FAIL", "skipped"]


class Finding(NamedTuple):
    """The result of a probe.

    expected  what correct code or a sensible setup shows
    seen      what the probe saw
    causes    the usual causes, if these two differ
    faults    what is wrong with the code; empty if the probe looks at the setup
    """

    probe: str
    expected: str
    seen: str
    verdict: Verdict
    causes: str = ""
    faults: tuple[Fault, ...] = ()

    @property
    def suspects(self) -> list[str]:
        """The components to look at first, most likely first; [] if there are no faults."""
        return suspects(self.faults)


def suspects(faults: Iterable[Fault]) -> list[str]:
    """The faulty components whose parts are all sound, then those named in `also`; at most MAX_SUSPECTS."""
    by_component: dict[str, list[Fault]] = {}
    for fault in faults:
        by_component.setdefault(fault.component, []).append(fault)
    lowest = [name for name in COMPONENTS if name in by_component and not all_parts(name) & by_component.keys()]
    also = [other for name in lowest for fault in by_component[name] for other in fault.also]
    return list(dict.fromkeys([*lowest, *also]))[:MAX_SUSPECTS]


def verdict(value: float, note: float, fail: float) -> Verdict:
    """FAIL if the value is above `fail` or NaN, note if it is above `note`."""
    return "FAIL" if not value <= fail else "note" if value > note else "ok"


# Probes of the code ---------------------------------------------------------------------------------------------------


class CheckFailed(Exception):
    """A check found something wrong. `also` as in Fault."""

    def __init__(self, problem: str, also: tuple[str, ...] = ()) -> None:
        super().__init__(problem)
        self.problem, self.also = problem, also


Check = Callable[[], str | None]
"""Checks one component. Raises CheckFailed if something is wrong; may return a measurement to print."""


class CodeProbe(NamedTuple):
    """The same question asked of several components; `checks` are pairs (component, check)."""

    name: str
    expected: str
    causes: str
    checks: Sequence[tuple[str, Check]]

    def run(self) -> Finding:
        """Run all checks. The verdict is "ok" if none fails, else "FAIL", with a fault for each that does.

        An exception in the code under test is a fault, too.
        """
        faults: list[Fault] = []
        passed: dict[str, str] = {}  # component -> its name and what was measured
        for component, check in self.checks:
            result = run_check(component, check)
            if isinstance(result, Fault):
                faults.append(result)
            else:
                passed[component] = f"{component} {result}" if result else component
        if not faults:
            return Finding(self.name, self.expected, f"correct: {', '.join(passed.values())}", "ok")
        first = suspects(faults)[0]
        shown = next(fault for fault in faults if fault.component == first)
        others = dict.fromkeys(fault.component for fault in faults if fault.component != first)
        seen = f"{shown}; also wrong: {', '.join(others)}" if others else str(shown)
        return Finding(self.name, self.expected, seen, "FAIL", self.causes, tuple(faults))


def run_check(component: str, check: Check) -> Fault | str | None:
    """A Fault if the check finds something wrong or the component raises an exception, else what the check returns."""
    try:
        with np.errstate(all="ignore"), using(
            *Device.ops
        ):  # in float32, check the fast operations, as training uses them
            return check()
    except CheckFailed as failed:
        return Fault(component, failed.problem, failed.also)
    except Exception as error:  # broken code may raise anything
        return Fault(component, f"raises {one_line(error)}")


def one_line(error: Exception) -> str:
    """The type of an exception and the first 150 characters of its message, in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"


def expect(condition: object, problem: str, also: tuple[str, ...] = ()) -> None:
    """Raise CheckFailed unless the condition is true."""
    if not condition:
        raise CheckFailed(problem, also)


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
