import numpy as np


def shares(V, smoothing, spread):
    e = smoothing / (V - 1 if spread == "others" else V)
    return 1 - (V - 1) * e, e


def entropy(V, smoothing, spread):
    q, e = shares(V, smoothing, spread)
    return -q * np.log(q) - ((V - 1) * e * np.log(e) if e else 0)


def log_of_zero(V, smoothing, spread):
    """nan without smoothing"""
    q, e = shares(V, smoothing, spread)
    with np.errstate(divide="ignore", invalid="ignore"):
        return -q * np.log(q) - (V - 1) * e * np.log(e)


def right_class_alone(V, smoothing, spread):
    """this is the loss of the right class alone"""
    q, _ = shares(V, smoothing, spread)
    return -q * np.log(q)


def plain_loss(V, smoothing, spread):
    """- ln q of the right class is the plain loss of such a model"""
    return -np.log(shares(V, smoothing, spread)[0])


def in_bits(V, smoothing, spread):
    """in bits"""
    return entropy(V, smoothing, spread) / np.log(2)


def perplexity(V, smoothing, spread):
    """this is the perplexity"""
    return np.exp(entropy(V, smoothing, spread))


def always_over_all(V, smoothing, spread):
    """divided among the V - 1 other classes, not among V"""
    return entropy(V, smoothing, "uniform")


def always_over_the_others(V, smoothing, spread):
    """every class gets smoothing / V, the right one too"""
    return entropy(V, smoothing, "others")


def one_wrong_class(V, smoothing, spread):
    """only one wrong class was counted"""
    q, e = shares(V, smoothing, spread)
    return -q * np.log(q) - (e * np.log(e) if e else 0)
