"""The log of a run: figures compute with its numbers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from scratchformer.training.run import RunDirectory, read_entries

Entry = dict[str, Any]

NUMBERS = {
    "step": "step loss learning_rate target_tokens all_target_tokens".split(),
    "validation": ["step", "loss", "perplexity", "all_target_tokens"],
    "bleu": ["step", "bleu", "all_target_tokens"],
}
"""The numbers of each kind of entry that figures need."""


class Log(NamedTuple):
    """The log's entries by kind, oldest first; a list is empty if there are none. An imported run has no log."""

    exists: bool
    steps: list[Entry]
    validations: list[Entry]
    bleus: list[Entry]


def read_log(run: RunDirectory) -> Log:
    """Read the log. An entry that lacks one of its numbers is damaged, and left out."""
    if not run.log_file.exists():
        return Log(False, [], [], [])
    entries = read_entries(run.log_file)
    kinds = (
        [entry for entry in entries if entry.get("event") == kind and all(is_number(entry.get(name)) for name in names)]
        for kind, names in NUMBERS.items()
    )
    return Log(True, *kinds)


def is_number(value: Any) -> bool:
    """Return True for a finite number."""
    return type(value) in (int, float) and math.isfinite(value)
