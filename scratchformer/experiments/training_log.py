"""The log of a run, checked: figures and reports compute with its numbers."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Sequence

from scratchformer.config import shown
from scratchformer.errors import UserError
from scratchformer.training.run import RunDirectory, read_entries

Entry = dict[str, Any]

STEP_NUMBERS = (
    "step epoch index loss learning_rate source_tokens target_tokens positions all_target_tokens seconds".split()
)
VALIDATION_NUMBERS = ("step", "loss", "perplexity", "all_target_tokens")
BLEU_NUMBERS = ("step", "bleu", "all_target_tokens")
POSITIVE = {"step", "source_tokens", "target_tokens", "positions", "perplexity"}
LARGEST = 2**53
"""A larger number in a log is damage, except for a perplexity, which is e to the loss."""


class Log(NamedTuple):
    """The log's entries by kind, oldest first; a list is empty if there are none. An imported run has no log."""

    exists: bool
    steps: list[Entry]
    validations: list[Entry]
    bleus: list[Entry]


def read_log(run: RunDirectory) -> Log:
    """Read the log. Its entries must have the numbers that figures need."""
    if not run.log_file.exists():
        return Log(False, [], [], [])
    entries = read_entries(run.log_file)
    steps, validations, bleus = (
        checked(run, [entry for entry in entries if entry.get("event") == event], numbers)
        for event, numbers in (("step", STEP_NUMBERS), ("validation", VALIDATION_NUMBERS), ("bleu", BLEU_NUMBERS))
    )
    return Log(True, steps, validations, bleus)


def checked(run: RunDirectory, entries: list[Entry], numbers: Sequence[str]) -> list[Entry]:
    """Return the same entries, each of which must have these numbers."""
    for entry in entries:
        for name in numbers:
            value: Any = entry.get(name)
            sound = is_number(value) and (abs(value) <= LARGEST or name == "perplexity")
            if not sound or value < 0 and name != "loss" or value == 0 and name in POSITIVE:
                raise UserError(
                    f"{run.log_file}: damaged: an entry of kind {entry['event']} (step {shown(entry.get('step'))}) has "
                    f"no valid number {name!r}"
                )
    return entries


def is_number(value: Any) -> bool:
    """Return True for a finite number that fits into a float."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max
