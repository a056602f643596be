import numpy as np


def softmax(logits):
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def parts(logits, targets, smoothing):
    right, real = np.arange(logits.shape[-1]) == targets[..., None], (targets != 0)[..., None]
    q = np.where(right, 1 - smoothing, smoothing / (logits.shape[-1] - 1))
    return (softmax(logits) - q) * real, real


def smoothing_not_in_the_gradient(dL, logits, targets, smoothing):
    """this is the gradient of the loss without smoothing"""
    sums, real = parts(logits, targets, 0.0)
    return dL * sums / real.sum()


def uniform_convention(dL, logits, targets, smoothing):
    """this is the other convention, smoothing / V on all classes"""
    V = logits.shape[-1]
    sums, real = parts(logits, targets, smoothing * (V - 1) / V)
    return dL * sums / real.sum()


def padding_as_no_class(dL, logits, targets, smoothing):
    """padding as a class got no share, the others smoothing / (V - 2)"""
    V = logits.shape[-1]
    right, real = np.arange(V) == targets[..., None], (targets != 0)[..., None]
    q = np.where(right, 1 - smoothing, smoothing / (V - 2)) * (np.arange(V) > 0)
    return dL * (softmax(logits) - q) * real / real.sum()


def gradient_of_the_sum(dL, logits, targets, smoothing):
    """not divided by the number of real tokens"""
    return dL * parts(logits, targets, smoothing)[0]


def over_positions(dL, logits, targets, smoothing):
    """divided by the number of positions, padding included"""
    return dL * parts(logits, targets, smoothing)[0] / targets.size


def mean_of_means(dL, logits, targets, smoothing):
    """a mean of the sentences' means"""
    sums, real = parts(logits, targets, smoothing)
    lengths = real.sum(axis=1, keepdims=True)
    return dL * sums / np.maximum(lengths, 1) / (lengths > 0).sum()


def padding_has_a_gradient(dL, logits, targets, smoothing):
    """only the padded positions are wrong"""
    right = np.arange(logits.shape[-1]) == targets[..., None]
    q = np.where(right, 1 - smoothing, smoothing / (logits.shape[-1] - 1))
    return dL * (softmax(logits) - q) / (targets != 0).sum()


def others_forgotten(dL, logits, targets, smoothing):
    """the term - q of the other classes, smoothing / (V - 1) is missing"""
    right, real = np.arange(logits.shape[-1]) == targets[..., None], (targets != 0)[..., None]
    return dL * (softmax(logits) - (1 - smoothing) * right) * real / real.sum()
