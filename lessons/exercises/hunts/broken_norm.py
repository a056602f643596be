"""broken_norm: repair a layer_norm that has five bugs (lesson 12).

It runs, and models that have it learn, only less well. Three of the bugs are in forward, two in backward. The check
looks at one result after the other and says for which inputs it is wrong. As in the file, 1e-6 keeps the division
from failing.
"""

import numpy as np
from transformer import differentiable, mean


@differentiable
def layer_norm(x, gamma, beta):
    mu, d = x.mean(axis=(1, 2), keepdims=True), x.shape[-1]
    sigma = np.sqrt(((x - mu) ** 2).sum(axis=-1, keepdims=True) / (d - 1)) + 1e-6
    n = (x - mu) / sigma
    dy = yield gamma.data * n + beta.data
    gamma.grad += (dy * n).mean(axis=(0, 1))
    beta.grad += dy.sum(axis=(0, 1))
    return gamma.data * (dy - mean(dy) - n * mean(dy * n)) / sigma
