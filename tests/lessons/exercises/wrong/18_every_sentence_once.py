import numpy as np


def same(some, others):
    return len(some) == len(others) and all(np.array_equal(a, b) for a, b in zip(some, others))


def each_once(batches, n):
    return np.array_equal(np.sort(np.concatenate(batches)), np.arange(n))


def within(batches, lengths, budget):
    return all(len(batch) * lengths[batch].max() <= budget for batch in batches)


def mixed(batches, lengths):
    widths = [lengths[batch].max() for batch in batches]
    return widths != sorted(widths)


def by_epochs(epoch_of):
    return not same(epoch_of(0), epoch_of(1)) and same(epoch_of(0), epoch_of(0))


def counts_pairs_only(epoch_of, lengths, budget):
    """one pair comes twice and another never"""
    right = all(
        sum(len(batch) for batch in epoch_of(epoch)) == len(lengths)
        and mixed(epoch_of(epoch), lengths)
        and within(epoch_of(epoch), lengths, budget)
        for epoch in range(3)
    )
    return right and by_epochs(epoch_of)


def counts_real_tokens(epoch_of, lengths, budget):
    """the budget counts real tokens"""
    right = all(
        each_once(epoch_of(epoch), len(lengths))
        and mixed(epoch_of(epoch), lengths)
        and all(lengths[batch].sum() <= budget for batch in epoch_of(epoch))
        for epoch in range(3)
    )
    return right and by_epochs(epoch_of)


def looks_at_the_first_epoch_only(epoch_of, lengths, budget):
    """a pair is lost in epoch 1"""
    batches = epoch_of(0)
    right = each_once(batches, len(lengths)) and mixed(batches, lengths) and within(batches, lengths, budget)
    return right and by_epochs(epoch_of)


def does_not_compare_epochs(epoch_of, lengths, budget):
    """all epochs are alike"""
    return all(
        each_once(epoch_of(epoch), len(lengths))
        and mixed(epoch_of(epoch), lengths)
        and within(epoch_of(epoch), lengths, budget)
        and same(epoch_of(epoch), epoch_of(epoch))
        for epoch in range(3)
    )


def asks_once(epoch_of, lengths, budget):
    """asked twice for one epoch"""
    epochs = [epoch_of(epoch) for epoch in range(3)]
    return not same(*epochs[:2]) and all(
        each_once(batches, len(lengths)) and mixed(batches, lengths) and within(batches, lengths, budget)
        for batches in epochs
    )


def does_not_look_at_the_order(epoch_of, lengths, budget):
    """every epoch goes from short to long"""
    return by_epochs(epoch_of) and all(
        each_once(epoch_of(epoch), len(lengths)) and within(epoch_of(epoch), lengths, budget) for epoch in range(3)
    )


def wants_full_batches(epoch_of, lengths, budget):
    """its batches are not equally full"""
    right = all(
        each_once(epoch_of(epoch), len(lengths))
        and mixed(epoch_of(epoch), lengths)
        and within(epoch_of(epoch), lengths, budget)
        for epoch in range(3)
    )
    full = all((len(batch) + 1) * lengths[batch].max() > budget for batch in epoch_of(0))
    return right and full and by_epochs(epoch_of)


def lets_pairs_be_missing(epoch_of, lengths, budget):
    """the smaller batches at the ends of the buckets are dropped"""

    def no_pair_twice(batches):
        return np.unique(np.concatenate(batches)).size == sum(len(batch) for batch in batches)

    right = all(
        no_pair_twice(epoch_of(epoch)) and mixed(epoch_of(epoch), lengths) and within(epoch_of(epoch), lengths, budget)
        for epoch in range(3)
    )
    return right and by_epochs(epoch_of)
