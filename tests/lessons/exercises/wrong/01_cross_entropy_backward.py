import numpy as np

from exercises.lesson_01 import cross_entropy_backward as right


def padding_is_learned_as_well(dL, scores, targets):
    """only the padded positions are wrong"""
    return {"dscores": dL * (probabilities(scores) - one_hot(scores, targets))}


def the_mean_over_the_tokens(dL, scores, targets):
    """divided by the number of real targets"""
    return {"dscores": right(dL, scores, targets)["dscores"] / (targets != 0).sum()}


def target_minus_probability(dL, scores, targets):
    """the sign is flipped"""
    return {"dscores": -right(dL, scores, targets)["dscores"]}


def only_the_right_class(dL, scores, targets):
    """only the right class is right"""
    return {"dscores": right(dL, scores, targets)["dscores"] * one_hot(scores, targets)}


def the_right_class_is_forgotten(dL, scores, targets):
    """the 1 of the right class, is missing"""
    return {"dscores": dL * probabilities(scores) * (targets != 0)[..., None]}


def dL_is_taken_to_be_one(dL, scores, targets):
    """the factor dL is missing"""
    return right(1.0, scores, targets)


def softmax_over_everything(dL, scores, targets):
    """the softmax runs over the positions as well"""
    p = np.exp(scores - scores.max())
    return {"dscores": dL * (p / p.sum() - one_hot(scores, targets)) * (targets != 0)[..., None]}


def in_single_precision(dL, scores, targets):
    """dscores is float32"""
    return {"dscores": right(dL, scores, targets)["dscores"].astype(np.float32)}


def probabilities(scores):
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def one_hot(scores, targets):
    return np.eye(scores.shape[-1])[targets]
