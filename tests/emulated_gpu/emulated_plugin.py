"""For pytest, in a process with the emulated GPU: whatever a test does there must be right."""

import emulation
import pytest


@pytest.fixture(autouse=True)
def no_problems():
    yield
    assert emulation.problems() == []
