import math

import numpy as np


def precisions(counts):
    return [counts[n] / max(counts[4 + n], 1) for n in range(4)]


def score(mean, written, wanted):
    return 100 * mean * min(1, math.exp(1 - wanted / written))


def mean_of_sentence_scores(table):
    """the mean of the sentences' BLEU"""
    return np.mean([score(math.prod(precisions(row)) ** 0.25, row[4], row[8]) for row in table])


def sentence_by_sentence_precision(table):
    """the precisions are taken of each sentence"""
    means = np.mean([precisions(row) for row in table], axis=0)
    return score(math.prod(means) ** 0.25, table[:, 4].sum(), table[:, 8].sum())


def arithmetic_mean(table):
    """the arithmetic mean of the four precisions"""
    total = table.sum(axis=0)
    return score(np.mean(precisions(total)), total[4], total[8])


def no_brevity_penalty(table):
    """the brevity penalty is missing"""
    return 100 * math.prod(precisions(table.sum(axis=0))) ** 0.25


def penalty_upside_down(table):
    """the brevity penalty is upside down"""
    total = table.sum(axis=0)
    return score(math.prod(precisions(total)) ** 0.25, total[8], total[4])


def ratio_as_penalty(table):
    """the penalty is the ratio of the lengths"""
    total = table.sum(axis=0)
    return 100 * math.prod(precisions(total)) ** 0.25 * min(1, total[4] / total[8])


def bonus_for_long_texts(table):
    """long texts get a bonus"""
    total = table.sum(axis=0)
    return 100 * math.prod(precisions(total)) ** 0.25 * math.exp(1 - total[8] / total[4])


def from_zero_to_one(table):
    """from 0 to 1"""
    total = table.sum(axis=0)
    return score(math.prod(precisions(total)) ** 0.25, total[4], total[8]) / 100
