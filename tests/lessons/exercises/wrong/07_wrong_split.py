import numpy as np

from exercises.lesson_07 import multi_head as right


def not_mended(q, k, v, h):
    """as broken as it was"""
    B, T, D = q.shape
    return attend(*(x.reshape(B, h, T, -1) for x in (q, k, v))).reshape(B, T, D)


def only_the_way_in(q, k, v, h):
    """the split is mended, the merge is not"""
    return attend(*(x.reshape(*x.shape[:2], h, -1).swapaxes(1, 2) for x in (q, k, v))).reshape(q.shape)


def only_the_way_out(q, k, v, h):
    """the merge is mended, the split is not"""
    B, T, D = q.shape
    return attend(*(x.reshape(B, h, T, -1) for x in (q, k, v))).swapaxes(1, 2).reshape(B, T, D)


def without_heads(q, k, v, h):
    """there is one head only"""
    return attend(q, k, v)


def scaled_by_the_whole_width(q, k, v, h):
    """the scores are divided by sqrt(d_model)"""
    return right(q / np.sqrt(h), k, v, h)


def keys_mended_but_not_queries(q, k, v, h):
    """the last query has an effect on other positions"""
    B, T, D = q.shape
    k, v = (x.reshape(B, T, h, -1).swapaxes(1, 2) for x in (k, v))
    return attend(q.reshape(B, h, T, -1), k, v).swapaxes(1, 2).reshape(B, T, D)


def every_hth_column(q, k, v, h):
    """not those of equation 1 in each head"""
    q, k, v = (x.reshape(*x.shape[:2], -1, h).transpose(0, 3, 1, 2) for x in (q, k, v))
    return attend(q, k, v).transpose(0, 2, 3, 1).reshape(len(q), q.shape[2], -1)


def left_in_heads(q, k, v, h):
    """shape (2, 2, 6, 5), expected (2, 6, 10)"""
    return attend(*(x.reshape(*x.shape[:2], h, -1).swapaxes(1, 2) for x in (q, k, v)))


def attend(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v
