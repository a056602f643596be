import numpy as np


def all_of_them(checkpoints, last):
    """the mean of all checkpoints"""
    return np.mean(checkpoints, axis=0)


def the_first_ones(checkpoints, last):
    """the oldest checkpoints"""
    return np.mean(checkpoints[:last], axis=0)


def last_counted_twice(checkpoints, last):
    """the last checkpoint is counted twice"""
    chosen = checkpoints[-last:]
    total = chosen[-1].copy()
    for weights in chosen:
        total += weights
    return total / len(chosen)


def running_halves(checkpoints, last):
    """the last checkpoint has half of the weight"""
    chosen = checkpoints[-last:]
    mean = chosen[0].copy()
    for weights in chosen[1:]:
        mean = 0.5 * (mean + weights)
    return mean


def divided_by_what_was_asked_for(checkpoints, last):
    """divide by how many were added"""
    return np.sum(checkpoints[-last:], axis=0) / last


def summed_into_the_first(checkpoints, last):
    """the argument checkpoints is changed in place"""
    total = checkpoints[-last:][0]
    for weights in checkpoints[-last:][1:]:
        total += weights
    return total / len(checkpoints[-last:])


def newest_only(checkpoints, last):
    """nothing is averaged"""
    return checkpoints[-1]
