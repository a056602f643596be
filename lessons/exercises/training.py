"""The functions of lessons 01 and 15 to 20: the gradient check, Adam, batches, training and translation."""

from __future__ import annotations

from exercises.function import Function

FUNCTIONS: tuple[Function, ...] = ()
