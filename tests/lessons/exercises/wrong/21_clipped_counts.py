from collections import Counter

import numpy as np


def runs(tokens, n):
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def counted(found, wanted):
    found, wanted = Counter(found), Counter(wanted)
    return np.array([sum(min(count, wanted[run]) for run, count in found.items()), sum(found.values())])


def not_clipped(hypothesis, reference, n):
    """nothing is clipped"""
    wanted = set(runs(reference, n))
    return np.array([sum(run in wanted for run in runs(hypothesis, n)), len(runs(hypothesis, n))])


def distinct_runs(hypothesis, reference, n):
    """every n-gram is counted once, however often it is written"""
    return counted(set(runs(hypothesis, n)), set(runs(reference, n)))


def place_by_place(hypothesis, reference, n):
    """matches are looked for at the same place only"""
    found = runs(hypothesis, n)
    return np.array([sum(a == b for a, b in zip(found, runs(reference, n))), len(found)])


def bags_of_words(hypothesis, reference, n):
    """the words of an n-gram are counted in any order"""
    return counted(
        [tuple(sorted(run)) for run in runs(hypothesis, n)], [tuple(sorted(run)) for run in runs(reference, n)]
    )


def joined_without_space(hypothesis, reference, n):
    """the words of an n-gram are joined without a space"""
    return counted(["".join(run) for run in runs(hypothesis, n)], ["".join(run) for run in runs(reference, n)])


def one_short(hypothesis, reference, n):
    """the last n-gram is missing"""
    return counted(
        [tuple(hypothesis[i : i + n]) for i in range(len(hypothesis) - n)],
        [tuple(reference[i : i + n]) for i in range(len(reference) - n)],
    )


def blocks(hypothesis, reference, n):
    """the n-grams do not overlap"""
    return counted(
        [tuple(hypothesis[i : i + n]) for i in range(0, len(hypothesis) - n + 1, n)],
        [tuple(reference[i : i + n]) for i in range(0, len(reference) - n + 1, n)],
    )


def recall(hypothesis, reference, n):
    """that is recall"""
    return counted(runs(reference, n), runs(hypothesis, n))
