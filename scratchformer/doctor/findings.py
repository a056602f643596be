"""What a probe of `scratchformer doctor` finds, and which part of the code is to blame.

A fault shows in everything that is built on it: a wrong softmax makes attention wrong, and the layer around it, and the
model. So probes look at the parts from the ground up, and the suspect is a part at fault whose own parts are sound.
"""

from __future__ import annotations

from typing import Callable, Iterable, Iterator, Literal, NamedTuple, Sequence

import numpy as np
from numpy.typing import ArrayLike

MOST_SUSPECTS = 3


class Part(NamedTuple):
    """A piece of the code: the file it is in, and the parts it is made of."""

    file: str
    made_of: tuple[str, ...] = ()


ANATOMY: dict[str, Part] = {
    "dropout": Part("nn/dropout.py"),
    "Linear": Part("nn/layers.py"),
    "Embedding": Part("nn/layers.py"),
    "Unembedding": Part("nn/layers.py"),
    "PositionalEncoding": Part("nn/layers.py", ("dropout",)),
    "LearnedPositions": Part("nn/layers.py", ("dropout",)),
    "LayerNorm": Part("nn/layers.py"),
    "AddNorm": Part("nn/layers.py", ("LayerNorm", "dropout")),
    "FeedForward": Part("nn/layers.py", ("Linear", "dropout")),
    "ScaledDotProductAttention": Part("nn/attention.py", ("dropout",)),
    "SelfAttention": Part("nn/attention.py", ("Linear", "ScaledDotProductAttention")),
    "CrossAttention": Part("nn/attention.py", ("Linear", "ScaledDotProductAttention")),
    "PostNorm": Part("nn/transformer.py", ("AddNorm", "FeedForward", "CrossAttention")),
    "PreNorm": Part("nn/transformer.py", ("LayerNorm", "FeedForward", "CrossAttention")),
    "EncoderLayer": Part("nn/transformer.py", ("SelfAttention", "FeedForward", "PostNorm", "PreNorm")),
    "DecoderLayer": Part("nn/transformer.py", ("SelfAttention", "FeedForward", "PostNorm", "PreNorm")),
    "Encoder": Part("nn/transformer.py", ("EncoderLayer",)),
    "Decoder": Part("nn/transformer.py", ("DecoderLayer",)),
    "cross_entropy": Part("nn/loss.py"),
    "Transformer": Part(
        "nn/transformer.py",
        ("Embedding", "Unembedding", "PositionalEncoding", "LearnedPositions", "Encoder", "Decoder", "cross_entropy"),
    ),
    "decoding step": Part("nn/transformer.py", ("Transformer",)),
    "Adam": Part("nn/optim.py", ("Transformer",)),
    "noam": Part("nn/optim.py"),
    "batches": Part("text/batches.py"),
    "validation_loss": Part("training/loop.py", ("Transformer", "batches")),
    "Trainer.step": Part("training/loop.py", ("Transformer", "Adam", "noam", "batches")),
    "beam search": Part("decoding/search.py", ("decoding step", "Trainer.step")),
}
"""The parts from the ground up. The arithmetic that a layer calls, in `nn/ops.py`, counts as the layer's. Adam works on
the flat buffers of a model; search is tried on a model that has been trained a little."""


def below(place: str) -> set[str]:
    """Everything that this part is made of, and that these are made of."""
    direct = ANATOMY[place].made_of
    return {*direct, *(deeper for part in direct for deeper in below(part))}


class Fault(NamedTuple):
    """Something wrong with a part. `also` names parts that the probe cannot tell from it, or a setting to look at."""

    place: str
    what: str
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


Verdict = Literal["ok", "note", "FAIL", "skipped"]


class Finding(NamedTuple):
    """The outcome of a probe: what healthy code, a sensible setup show; what was seen; and if it is not that, why it
    usually is not. `faults` are faults of the code, with their places."""

    probe: str
    expected: str
    seen: str
    verdict: Verdict
    causes: str = ""
    faults: tuple[Fault, ...] = ()

    @property
    def suspects(self) -> list[str]:
        return suspects(self.faults)


def suspects(faults: Iterable[Fault]) -> list[str]:
    """The parts at fault that are built of sound parts only, lowest first; then what may be confused with them."""
    by_place: dict[str, list[Fault]] = {}
    for fault in faults:
        by_place.setdefault(fault.place, []).append(fault)
    lowest = [place for place in ANATOMY if place in by_place and not below(place) & by_place.keys()]
    confused = [other for place in lowest for fault in by_place[place] for other in fault.also]
    return list(dict.fromkeys([*lowest, *confused]))[:MOST_SUSPECTS]


def verdict(value: float, note: float, fail: float) -> Verdict:
    """FAIL above `fail`, and where the value is not a number; note above `note`."""
    return "FAIL" if not value <= fail else "note" if value > note else "ok"


# Probes of the code ---------------------------------------------------------------------------------------------------


class Measured(str):
    """A number worth showing although nothing is wrong with it."""


Complaints = Iterator[str | Fault]
Check = Callable[[], Complaints]
"""Looks at one part: yields what is wrong with it, in words or as a Fault; "" for each thing that is right; and at most
one Measured."""


class CodeProbe(NamedTuple):
    """The same question put to parts of the code, from the ground up: (place, how to look)."""

    name: str
    expected: str
    causes: str
    checks: Sequence[tuple[str, Check]]

    def carry_out(self) -> Finding:
        faults: list[Fault] = []
        right: dict[str, str] = {}  # place -> the place and a number
        for place, check in self.checks:
            complaint = outcome(place, check)
            if isinstance(complaint, Fault):
                faults.append(complaint)
            else:
                right[place] = f"{place} {complaint}" if complaint else right.get(place, place)
        if not faults:
            return Finding(self.name, self.expected, f"so it is: {', '.join(right.values())}", "ok")
        guilty = suspects(faults)
        shown = next(fault for fault in faults if fault.place == guilty[0])
        others = list(dict.fromkeys(fault.place for fault in faults if fault.place != shown.place))
        seen = f"{shown}" + (f"; wrong, too: {', '.join(others)}" if others else "")
        return Finding(self.name, self.expected, seen, "FAIL", self.causes, tuple(faults))


def outcome(place: str, check: Check) -> Fault | Measured:
    """The first thing that is wrong with a part, or else what was measured. To raise an exception is wrong."""
    measured = Measured()
    try:
        with np.errstate(all="ignore"):
            for complaint in check():
                if isinstance(complaint, Fault):
                    return complaint._replace(place=place)
                if isinstance(complaint, Measured):
                    measured = complaint
                elif complaint:
                    return Fault(place, complaint)
    except Exception as error:  # anything may be broken in there
        return Fault(place, f"raises {type(error).__name__}: {' '.join(str(error).split())[:150]}")
    return measured


ROUNDING = 1e-9
"""What float64 and another order of summing may explain, in units of the largest number compared."""


def differs(what: str, found: ArrayLike, expected: ArrayLike, tolerance: float = ROUNDING) -> str:
    """ "" if the numbers are the same to within `tolerance` of the largest, else `what` and by how much they differ."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return f"{what}: shape {found.shape}, expected {expected.shape}"
    if not np.isfinite(found).all():
        return f"{what}: not finite"
    error = float(np.abs(found - expected).max(initial=0))
    allowed = tolerance * max(1.0, float(np.abs(expected).max(initial=0)))
    return "" if error <= allowed else f"{what}: off by up to {error:.2g}"
