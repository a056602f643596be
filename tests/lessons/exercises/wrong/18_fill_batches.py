import numpy as np


def fill(lengths, order, full):
    numbers, batch = np.zeros(len(lengths), int), []
    number = 0
    for i in order:
        if batch and full([*batch, lengths[i]]):
            batch, number = [], number + 1
        batch.append(lengths[i])
        numbers[i] = number
    return numbers


def shortest_first(lengths):
    return np.argsort(lengths, kind="stable")


def counts_real_tokens(lengths, budget):
    """the budget counts real tokens here"""
    return fill(lengths, shortest_first(lengths), lambda batch: sum(batch) > budget)


def in_the_order_given(lengths, budget):
    """the sentences are not sorted"""
    return fill(lengths, range(len(lengths)), lambda batch: len(batch) * max(batch) > budget)


def longest_first(lengths, budget):
    """from the longest to the shortest"""
    return fill(lengths, shortest_first(lengths)[::-1], lambda batch: len(batch) * max(batch) > budget)


def fixed_number_of_sentences(lengths, budget):
    """a fixed number of sentences"""
    numbers = np.empty(len(lengths), int)
    numbers[shortest_first(lengths)] = np.arange(len(lengths)) // (budget // lengths.max())
    return numbers


def never_full(lengths, budget):
    """a batch may be exactly full"""
    return fill(lengths, shortest_first(lengths), lambda batch: len(batch) * max(batch) >= budget)


def looks_after_the_leap(lengths, budget):
    """batches exceed the budget"""
    numbers, size, number = np.empty(len(lengths), int), 0, 0
    for i in shortest_first(lengths):
        numbers[i] = number
        size += 1
        if size * lengths[i] >= budget:
            size, number = 0, number + 1
    return numbers


def numbers_of_the_sorted(lengths, budget):
    """these are the numbers in sorted order"""
    return fill(np.sort(lengths), range(len(lengths)), lambda batch: len(batch) * max(batch) > budget)


def counted_from_one(lengths, budget):
    """the first batch has the number 0"""
    return fill(lengths, shortest_first(lengths), lambda batch: len(batch) * max(batch) > budget) + 1
