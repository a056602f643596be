"""The fast operations have right gradients, too, and pass every check of the reference."""

import numpy as np
import pytest
from test_checks import *  # noqa: F401,F403
from test_gradients import *  # noqa: F401,F403

from scratchformer.backends.cpu import FastOps
from scratchformer.nn.ops import ops_of, using

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def fast():
    """Float64, in which these checks are made, would get the reference."""
    with using(FastOps(np)):
        yield


def test_they_are_in_use():
    assert isinstance(ops_of(np.zeros(1)), FastOps)
