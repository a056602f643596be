import numpy as np


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def backward(dweights, weights):
    return weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))


def no_bug_at_all(scores, dweights):
    """that is softmax"""
    weights = softmax(scores)
    return weights, backward(dweights, weights)


def a_little_wrong(scores, dweights):
    """hardly wrong"""
    weights = softmax(1.0001 * scores)
    return weights, 1.0001 * backward(dweights, weights)


def the_factor_forgotten_in_backward(scores, dweights):
    """dscores must be the gradient of your weights"""
    weights = softmax(2 * scores)
    return weights, backward(dweights, weights)


def the_right_gradient_of_softmax(scores, dweights):
    """not of softmax's"""
    return softmax(2 * scores), backward(dweights, softmax(scores))


def over_the_queries(scores, dweights):
    """the weights of a query sum to"""
    weights = softmax(scores.T).T
    return weights, backward(dweights.T, weights.T).T


def scores_as_they_are(scores, dweights):
    """a weight is negative"""
    return scores / scores.sum(axis=-1, keepdims=True), dweights


def one_array(scores, dweights):
    """two arrays"""
    return softmax(2 * scores)
