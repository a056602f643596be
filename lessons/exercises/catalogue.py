"""All functions that a learner writes, in the order of the lessons."""

from __future__ import annotations

from exercises import additions, layers, training, whole_model
from exercises.function import Function

FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in sorted(
        (*layers.FUNCTIONS, *whole_model.FUNCTIONS, *training.FUNCTIONS, *additions.FUNCTIONS),
        key=lambda one: one.lesson,
    )
}
"""name -> function"""

FILES = {file: [one.name for one in FUNCTIONS.values() if one.file == file] for file in ("transformer", "more")}
"""file -> names of its functions"""
