import numpy as np


def log_p(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def symbols_alike(logits, share):
    """each should count by its share"""
    return -log_p(logits).mean()


def always_ln_V(logits, share):
    """ln V is the loss of equal logits only"""
    return np.log(logits.shape[1])


def in_bits(logits, share):
    """bits: the loss is in nats"""
    return -(log_p(logits) @ share).mean() / np.log(2)


def entropy_of_the_shares(logits, share):
    """does not look at the logits"""
    return -(share * np.log(share)).sum()


def logarithm_of_the_average(logits, share):
    """the loss is the average of the logarithms"""
    highest = logits.max(axis=-1, keepdims=True)
    e = np.exp(logits - highest)
    return -np.log(e / e.sum(axis=-1, keepdims=True) @ share).mean()


def no_logarithm_of_the_sum(logits, share):
    """minus the logit is no loss yet"""
    return -(logits @ share).mean()


def overflowing(logits, share):
    """nan or inf where logits are in the thousands"""
    with np.errstate(all="ignore"):
        return (np.log(np.exp(logits).sum(axis=-1)) - logits @ share).mean()


def one_for_each_guess(logits, share):
    """shape (6,)"""
    return -(log_p(logits) @ share)
