import numpy as np

from support.bleu_by_hand import bleu


def samples(table, indices):
    return np.array([bleu(table[index].sum(axis=0)) for index in indices])


def a_less_b(table_a, table_b, indices):
    """a less b"""
    return np.percentile(samples(table_a, indices) - samples(table_b, indices), [2.5, 97.5])


def five_and_ninety_five(table_a, table_b, indices):
    """the percentiles 5 and 95 enclose 90 %"""
    return np.percentile(samples(table_b, indices) - samples(table_a, indices), [5, 95])


def only_b_is_drawn(table_a, table_b, indices):
    """a is scored on the whole set and b on the samples"""
    return np.percentile(samples(table_b, indices) - bleu(table_a.sum(axis=0)), [2.5, 97.5])


def interval_less_interval(table_a, table_b, indices):
    """the interval of each system, then their difference"""
    a, b = (np.percentile(samples(table, indices), [2.5, 97.5]) for table in (table_a, table_b))
    return np.array([b[0] - a[1], b[1] - a[0]])


def mean_of_sentence_scores(table_a, table_b, indices):
    """the mean of the sentences' BLEU in each sample"""
    lead = bleu(table_b) - bleu(table_a)
    return np.percentile(lead[indices].mean(axis=1), [2.5, 97.5])


def standard_error_of_the_samples(table_a, table_b, indices):
    """it shrinks with every sample you draw"""
    lead = samples(table_b, indices) - samples(table_a, indices)
    return lead.mean() + np.array([-1.96, 1.96]) * lead.std() / len(lead) ** 0.5


def a_bell(table_a, table_b, indices):
    """which need no bell shape"""
    lead = samples(table_b, indices) - samples(table_a, indices)
    return np.array([lead.mean() - 1.96 * lead.std(), lead.mean() + 1.96 * lead.std()])
