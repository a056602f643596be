import numpy as np


def softmax(e, axis=-1):
    powers = np.exp(e - e.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def over_the_positions(e, h):
    """softmax runs over the positions"""
    return softmax(e, 1) @ h


def plain_mean(e, h):
    """the mean of all states"""
    return np.repeat(h.mean(axis=1, keepdims=True), e.shape[1], axis=1)


def best_only(e, h):
    """the state with the highest score alone"""
    return np.take_along_axis(h, e.argmax(axis=2)[..., None], axis=1)


def no_softmax(e, h):
    """the scores themselves are the factors"""
    return e @ h


def overflows(e, h):
    """nan for large scores"""
    with np.errstate(all="ignore"):
        powers = np.exp(e)
        return powers / powers.sum(axis=-1, keepdims=True) @ h


def sign_of_the_exponent(e, h):
    """the highest scores get the smallest weights"""
    return softmax(-e) @ h


def positions_and_numbers_exchanged(e, h):
    """transposed"""
    return (softmax(e) @ h).swapaxes(1, 2)
