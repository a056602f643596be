import numpy as np

from exercises.lesson_04 import attention_backward as right


def the_factor_is_forgotten(dy, q, k, v, weights):
    """dq is wrong: 2.236 times what it should be: the factor 1 / sqrt(d_k) is missing"""
    return changed(right(dy, q, k, v, weights), dq=np.sqrt(q.shape[-1]))


def softmax_without_the_average(dy, q, k, v, weights):
    """sum(weights * dweights), is missing"""
    gradients = right(dy, q, k, v, weights)
    return gradients | {"dscores": weights * gradients["dweights"]}


def the_average_over_the_queries(dy, q, k, v, weights):
    """the average is taken over the queries"""
    gradients = right(dy, q, k, v, weights)
    dweights = gradients["dweights"]
    average = (weights * dweights).sum(axis=-2, keepdims=True)
    return gradients | {"dscores": weights * (dweights - average)}


def softmax_element_by_element(dy, q, k, v, weights):
    """softmax is taken element by element"""
    gradients = right(dy, q, k, v, weights)
    return gradients | {"dscores": weights * (1 - weights) * gradients["dweights"]}


def the_plain_mean(dy, q, k, v, weights):
    """the average is a plain mean of dweights"""
    gradients = right(dy, q, k, v, weights)
    dweights = gradients["dweights"]
    return gradients | {"dscores": weights * (dweights - dweights.mean(axis=-1, keepdims=True))}


def dscores_made_in_the_array_of_dweights(dy, q, k, v, weights):
    """dweights is wrong: this is dscores, one and the same array"""
    gradients = right(dy, q, k, v, weights)
    dscores = gradients["dweights"]
    dscores -= (weights * dscores).sum(axis=-1, keepdims=True)
    dscores *= weights
    return gradients | {"dscores": dscores}


def softmax_is_skipped(dy, q, k, v, weights):
    """made of dweights"""
    gradients = right(dy, q, k, v, weights)
    return gradients | {"dq": gradients["dweights"] @ k / np.sqrt(q.shape[-1])}


def dv_without_the_weights(dy, q, k, v, weights):
    """every value gets the same, the sum of dy"""
    return right(dy, q, k, v, weights) | {"dv": np.ones_like(weights).swapaxes(-1, -2) @ dy}


def changed(gradients, **factors):
    return gradients | {name: gradients[name] * factor for name, factor in factors.items()}
