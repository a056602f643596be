import numpy as np


def bits(losses, targets):
    return (losses * (targets != 0)).sum() / np.log(2)


def nats(losses, targets, n_characters):
    """these are nats"""
    return bits(losses, targets) * np.log(2) / n_characters.sum()


def multiplied(losses, targets, n_characters):
    """multiplied by ln 2 where it should be divided"""
    return losses[targets != 0].sum() * np.log(2) / n_characters.sum()


def with_padding(losses, targets, n_characters):
    """padding is counted"""
    return losses.sum() / np.log(2) / n_characters.sum()


def per_piece(losses, targets, n_characters):
    """bits per piece"""
    return bits(losses, targets) / np.count_nonzero(targets)


def mean_of_sentences(losses, targets, n_characters):
    """a mean over sentences"""
    return np.mean([bits(*sentence) / n for *sentence, n in zip(losses, targets, n_characters)])


def the_other_way_round(losses, targets, n_characters):
    """characters per bit"""
    return n_characters.sum() / bits(losses, targets)


def perplexity(losses, targets, n_characters):
    """a perplexity per character"""
    return 2 ** (bits(losses, targets) / n_characters.sum())
