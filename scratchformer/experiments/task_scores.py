"""How `evaluate` scores a run of each task; translation, with its test sets and comparisons, is in `evaluation.py`."""

from __future__ import annotations

from typing import Any, Callable

from scratchformer.experiments import antecedent, digits, language_model, masked_language_model, parsing

SCORES: dict[str, Callable[..., Any]] = {
    "parsing": parsing.evaluate,
    "language-model": language_model.evaluate,
    "masked-language-model": masked_language_model.evaluate,
    "antecedent": antecedent.evaluate,
    "digits": digits.evaluate,
}
"""Task -> function of what a run has learned, which gives scores with `as_text` and `as_record`."""
