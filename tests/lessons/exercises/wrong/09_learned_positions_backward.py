import numpy as np


def rows(gradient, start, max_positions):
    dP = np.zeros((max_positions, gradient.shape[-1]))
    dP[start : start + len(gradient)] = gradient
    return dP


def first_ignored(dy, first, max_positions):
    """the gradient lies in the first rows"""
    return {"dx": dy, "dP": rows(dy.sum(axis=0), 0, max_positions)}


def mean_over_the_batch(dy, first, max_positions):
    """the mean over the batch"""
    return {"dx": dy, "dP": rows(dy.mean(axis=0), first, max_positions)}


def assigned_sentence_by_sentence(dy, first, max_positions):
    """only the last sentence counts"""
    dP = np.zeros((max_positions, dy.shape[2]))
    for sentence in dy:
        dP[first : first + len(sentence)] = sentence
    return {"dx": dy, "dP": dP}


def summed_over_places(dy, first, max_positions):
    """all positions get the same"""
    return {"dx": dy, "dP": rows(np.tile(dy.sum(axis=(0, 1)), (dy.shape[1], 1)), first, max_positions)}


def summed_for_the_words_too(dy, first, max_positions):
    """x is in the sum once for its own sentence"""
    total = dy.sum(axis=0)
    return {"dx": np.tile(total, (len(dy), 1, 1)), "dP": rows(total, first, max_positions)}


def used_rows_only(dy, first, max_positions):
    """expected (9, 5)"""
    return {"dx": dy, "dP": dy.sum(axis=0)}


def counted_from_one(dy, first, max_positions):
    """one row too late"""
    return {"dx": dy, "dP": rows(dy.sum(axis=0)[: max_positions - first - 1], first + 1, max_positions)}


def nothing_for_the_words(dy, first, max_positions):
    """zero everywhere"""
    return {"dx": np.zeros_like(dy), "dP": rows(dy.sum(axis=0), first, max_positions)}
