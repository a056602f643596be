"""all_ones: a backward that is always wrong, and that a check with ones accepts (lesson 05).

Some gradient checks use the sum of all outputs as the loss, so that dp is all ones. Change what softmax returns, so
that such a check finds nothing, and the gradient is clearly wrong for every random dp, and never zero everywhere. It
has to be linear in dp, as every backward is. Leave the first half as it is. What stands here is right.
"""

import numpy as np
from transformer import differentiable, log_softmax, total


@differentiable
def softmax(scores, mask):
    p = np.exp(log_softmax(np.where(mask, scores, -np.inf)))
    dp = yield p
    return p * (dp - total(p * dp))
