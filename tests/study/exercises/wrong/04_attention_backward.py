import numpy as np

from scratchformer.study.exercises.lesson_04 import attention_backward as right


def the_factor_is_forgotten(dy, q, k, v, weights):
    """dscores is wrong: 2.236 times what it should be: the factor 1 / sqrt(d_k) is missing"""
    return changed(right(dy, q, k, v, weights), dscores=np.sqrt(q.shape[-1]))


def softmax_without_the_average(dy, q, k, v, weights):
    """sum(weights * dweights), is missing"""
    gradients = right(dy, q, k, v, weights)
    return gradients | {"dscores": weights * gradients["dweights"] / np.sqrt(q.shape[-1])}


def the_average_over_the_queries(dy, q, k, v, weights):
    """the average is taken over the queries"""
    gradients = right(dy, q, k, v, weights)
    dweights = gradients["dweights"]
    average = (weights * dweights).sum(axis=-2, keepdims=True)
    return gradients | {"dscores": weights * (dweights - average) / np.sqrt(q.shape[-1])}


def dweights_is_transposed(dy, q, k, v, weights):
    """transposed"""
    return right(dy, q, k, v, weights) | {"dweights": v @ dy.swapaxes(-1, -2)}


def dq_and_dk_are_swapped(dy, q, k, v, weights):
    """this is dk: the two are swapped"""
    gradients = right(dy, q, k, v, weights)
    return gradients | {"dq": gradients["dk"], "dk": gradients["dq"]}


def softmax_is_skipped(dy, q, k, v, weights):
    """made of dweights"""
    gradients = right(dy, q, k, v, weights)
    return gradients | {"dq": gradients["dweights"] @ k}


def the_factor_twice(dy, q, k, v, weights):
    """dk is wrong: 0.4472 times what it should be: the factor 1 / sqrt(d_k) is there once too often"""
    return changed(right(dy, q, k, v, weights), dk=1 / np.sqrt(q.shape[-1]))


def dv_without_the_weights(dy, q, k, v, weights):
    """every value gets the same, the sum of dy"""
    return right(dy, q, k, v, weights) | {"dv": np.ones_like(weights).swapaxes(-1, -2) @ dy}


def changed(gradients, **factors):
    return gradients | {name: gradients[name] * factor for name, factor in factors.items()}
