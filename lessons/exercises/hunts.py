"""Bug hunts and puzzles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True)
class Hunt:
    name: str
    lesson: str
    title: str
    function: str
    complaint: Callable[[Callable, ModuleType], str | None]
    solution: str


HUNTS: dict[str, Hunt] = {}


def text_of(hunt: str) -> str:
    """What the learner gets."""
    return (Path(__file__).with_name("hunts") / f"{hunt}.py").read_text("utf-8")
