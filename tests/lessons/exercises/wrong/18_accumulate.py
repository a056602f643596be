import numpy as np


def sums(x, W, targets):  # of losses (M, D, V), of real tokens (M,)
    scores = x @ W
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    dscores = e / e.sum(axis=-1, keepdims=True) - np.eye(W.shape[1])[targets]
    real = targets != 0
    return x.swapaxes(1, 2) @ (dscores * real[:, :, None]), real.sum(axis=1)


def mean_of_means(dloss, x, W, targets):
    """a mean of means"""
    g, n = sums(x, W, targets)
    return {"dW": dloss * (g / n[:, None, None]).mean(axis=0)}


def means_added_up(dloss, x, W, targets):
    """each micro-batch is divided by its own tokens, and the means are added up"""
    g, n = sums(x, W, targets)
    return {"dW": dloss * (g / n[:, None, None]).sum(axis=0)}


def overwritten(dloss, x, W, targets):
    """only the last micro-batch is in it: add to dW"""
    g, n = sums(x, W, targets)
    dW = np.zeros_like(W)
    for g_m in g:
        dW = g_m
    return {"dW": dloss * dW / n.sum()}


def never_divided(dloss, x, W, targets):
    """the factor 1 / N, N being the real tokens of all micro-batches is missing"""
    g, _ = sums(x, W, targets)
    return {"dW": dloss * g.sum(axis=0)}


def divided_by_positions(dloss, x, W, targets):
    """divided by all positions"""
    g, _ = sums(x, W, targets)
    return {"dW": dloss * g.sum(axis=0) / targets.size}


def divided_by_the_micro_batches_too(dloss, x, W, targets):
    """divided by the number of micro-batches as well"""
    g, n = sums(x, W, targets)
    return {"dW": dloss * g.sum(axis=0) / n.sum() / len(x)}


def upstream_forgotten(dloss, x, W, targets):
    """the factor dloss is missing"""
    g, n = sums(x, W, targets)
    return {"dW": g.sum(axis=0) / n.sum()}


def padding_learnt(dloss, x, W, targets):
    """padding is learnt, too"""
    scores = x @ W
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    dscores = e / e.sum(axis=-1, keepdims=True) - np.eye(W.shape[1])[targets]
    return {"dW": dloss * (x.swapaxes(1, 2) @ dscores).sum(axis=0) / np.count_nonzero(targets)}
