import numpy as np


def loss_only(loss_sums, n_tokens, n_sentences):
    """this is the loss in nats"""
    return loss_sums.sum() / n_tokens.sum()


def mean_of_means(loss_sums, n_tokens, n_sentences):
    """a mean of the batches' mean losses"""
    return np.exp((loss_sums / n_tokens).mean())


def mean_of_perplexities(loss_sums, n_tokens, n_sentences):
    """a mean of the batches' perplexities"""
    return np.exp(loss_sums / n_tokens).mean()


def in_bits(loss_sums, n_tokens, n_sentences):
    """2 to the power of the loss"""
    return 2 ** (loss_sums.sum() / n_tokens.sum())


def per_sentence(loss_sums, n_tokens, n_sentences):
    """divided by sentences"""
    return np.exp(loss_sums.sum() / n_sentences.sum())


def per_batch(loss_sums, n_tokens, n_sentences):
    """divided by the number of batches"""
    return np.exp(loss_sums.mean())


def negative(loss_sums, n_tokens, n_sentences):
    """the sign is flipped: the losses are minus the logarithms"""
    return np.exp(-loss_sums.sum() / n_tokens.sum())
