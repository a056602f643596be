"""What is said of the flow of information and of the contract holds with the fast operations, too."""

import numpy as np
import pytest
from test_contract import *  # noqa: F401,F403
from test_flow import *  # noqa: F401,F403

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
