"""Every backward of the fast operations is the derivative of its forward, and they let no future token leak."""

import pytest
from test_fast_everywhere import fast, test_they_are_in_use  # noqa: F401
from test_flow import test_a_future_token_does_not_change_a_bit_of_earlier_logits  # noqa: F401
from test_gradients import *  # noqa: F401,F403

pytestmark = pytest.mark.slow
