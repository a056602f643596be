import numpy as np


def real(source_lengths, target_lengths, batches):
    return [source_lengths[batch].sum() + target_lengths[batch].sum() for batch in batches]


def positions(source_lengths, target_lengths, batches):
    return [len(batch) * (source_lengths[batch].max() + target_lengths[batch].max()) for batch in batches]


def share_of_real_tokens(source_lengths, target_lengths, batches):
    """this is the share of real tokens"""
    lengths = source_lengths, target_lengths, batches
    return sum(real(*lengths)) / sum(positions(*lengths))


def source_only(source_lengths, target_lengths, batches):
    """only the source is counted"""
    nothing = np.zeros_like(target_lengths)
    return 1 - sum(real(source_lengths, nothing, batches)) / sum(positions(source_lengths, nothing, batches))


def target_only(source_lengths, target_lengths, batches):
    """only the target is counted"""
    nothing = np.zeros_like(source_lengths)
    return 1 - sum(real(nothing, target_lengths, batches)) / sum(positions(nothing, target_lengths, batches))


def mean_of_the_shares(source_lengths, target_lengths, batches):
    """a large batch must count more than a small one"""
    lengths = source_lengths, target_lengths, batches
    return np.mean([1 - n / size for n, size in zip(real(*lengths), positions(*lengths))])


def one_width_for_all_batches(source_lengths, target_lengths, batches):
    """not to the longest of all"""
    width = source_lengths.max() + target_lengths.max()
    return 1 - sum(real(source_lengths, target_lengths, batches)) / (width * sum(len(batch) for batch in batches))


def over_real_tokens(source_lengths, target_lengths, batches):
    """padding in proportion to the real tokens"""
    lengths = source_lengths, target_lengths, batches
    return sum(positions(*lengths)) / sum(real(*lengths)) - 1


def one_width_for_both_sides(source_lengths, target_lengths, batches):
    """both sides are padded to one length"""
    longer = np.maximum(source_lengths, target_lengths)
    return 1 - sum(real(source_lengths, target_lengths, batches)) / sum(positions(longer, longer, batches))
