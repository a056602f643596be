"""right_gradient: a softmax that is wrong, and that passes its gradient check (lesson 16).

Change both halves. The weights must look right: not negative, sum 1 over the last axis, 0 where mask is False. But they
must not be those of softmax: some must be off by 0.01 or more. And backward must return the gradient of what your
forward computes, so that no gradient check finds the bug. What stands here is right.
"""

import numpy as np
from transformer import differentiable, log_softmax, total


@differentiable
def softmax(scores, mask):
    p = np.exp(log_softmax(np.where(mask, scores, -np.inf)))
    dp = yield p
    return p * (dp - total(p * dp))
