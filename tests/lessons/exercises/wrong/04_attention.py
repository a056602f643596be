import numpy as np


def softmax(z, axis=-1):
    e = np.exp(z - z.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def scores(q, k):
    return q @ k.swapaxes(-1, -2)


def without_the_factor(q, k, v):
    """the factor 1 / sqrt(d_k) is missing"""
    return softmax(scores(q, k)) @ v


def divided_by_d_k(q, k, v):
    """divided by d_k; equation 1 divides by its root"""
    return softmax(scores(q, k) / q.shape[-1]) @ v


def divided_by_the_root_of_the_number_of_keys(q, k, v):
    """divided by sqrt(S)"""
    return softmax(scores(q, k) / np.sqrt(k.shape[1])) @ v


def softmax_over_the_queries(q, k, v):
    """the softmax runs over the queries"""
    return softmax(scores(q, k) / np.sqrt(q.shape[-1]), axis=-2) @ v


def a_hard_lookup(q, k, v):
    """the value of the best key alone"""
    return np.take_along_axis(v, scores(q, k).argmax(axis=-1)[..., None], axis=1)


def one_maximum_for_all(q, k, v):
    """every exp is 0, and 0 / 0 is nan"""
    z = scores(q, k) / np.sqrt(q.shape[-1])
    with np.errstate(invalid="ignore"):
        e = np.exp(z - z.max())
        return e / e.sum(axis=-1, keepdims=True) @ v


def exp_of_large_scores(q, k, v):
    """exp overflows where scores are large"""
    with np.errstate(over="ignore", invalid="ignore"):
        e = np.exp(scores(q, k) / np.sqrt(q.shape[-1]))
        return e / e.sum(axis=-1, keepdims=True) @ v


def only_the_weights(q, k, v):
    """shape (2, 3, 4), expected (2, 3, 6)"""
    return softmax(scores(q, k) / np.sqrt(q.shape[-1]))
