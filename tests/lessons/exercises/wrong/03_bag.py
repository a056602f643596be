import numpy as np


def the_same(h):
    """these are the states that it was given"""
    return h


def shifted(h):
    """something was added to all states alike"""
    return h + 1


def numbers_turned_round(h):
    """the numbers inside each state are in another order"""
    return h[:, :, ::-1].copy()


def sequences_exchanged(h):
    """each sequence now has the states of another one"""
    return h[::-1].copy()


def torn_apart(h):
    """the states are torn apart"""
    other = h.copy()
    other[:, :, 0] = h[:, ::-1, 0]
    return other


def all_at_the_mean(h):
    """the plain mean of the states is the same"""
    return np.repeat(h.mean(axis=1, keepdims=True), h.shape[1], axis=1)


def twice_as_large(h):
    """every state must still be there"""
    return 2 * h
