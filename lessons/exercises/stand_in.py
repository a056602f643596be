"""Run a search of the library on a stand-in for a model, whose every probability is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def stand_in_for_models() -> Iterator[None]:
    """Inside the block, the searches call `model.start(source_ids, beam)` and `model.step(ids, state)`."""
    with patch.multiple(
            "scratchformer.decoding.search",
            begin_decoding=lambda model, source_ids, beam=1: model.start(source_ids, beam),
            decoding_step=lambda model, ids, state: model.step(ids, state)):
        yield
