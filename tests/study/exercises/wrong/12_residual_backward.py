import numpy as np

from scratchformer.study.exercises.lesson_12 import layer_norm_backward
from scratchformer.study.exercises.lesson_12 import residual_backward as right


def the_way_around_forgotten(dy, x, W, kept, P_drop, n, inverse_std, gamma):
    """the way around, dz, is missing"""
    gradients = right(dy, x, W, kept, P_drop, n, inverse_std, gamma)
    return gradients | {"dx": gradients["dupdate"] @ W.T}


def the_sublayer_forgotten(dy, x, W, kept, P_drop, n, inverse_std, gamma):
    """the way through the sublayer, dupdate W^T, is missing"""
    gradients = right(dy, x, W, kept, P_drop, n, inverse_std, gamma)
    return gradients | {"dx": gradients["dz"]}


def around_the_norm_too(dy, x, W, kept, P_drop, n, inverse_std, gamma):
    """the way around carries dy"""
    gradients = right(dy, x, W, kept, P_drop, n, inverse_std, gamma)
    return gradients | {"dx": dy + gradients["dupdate"] @ W.T}


def dropout_on_both_ways(dy, x, W, kept, P_drop, n, inverse_std, gamma):
    """dropout is on the way around as well"""
    gradients = right(dy, x, W, kept, P_drop, n, inverse_std, gamma)
    return gradients | {"dx": gradients["dupdate"] + gradients["dupdate"] @ W.T}


def dropout_forgotten(dy, x, W, kept, P_drop, n, inverse_std, gamma):
    """the update went through dropout"""
    return right(dy, x, W, np.ones_like(kept), 0.0, n, inverse_std, gamma)


def dropout_without_its_scale(dy, x, W, kept, P_drop, n, inverse_std, gamma):
    """the factor 1 / (1 - P_drop) is missing"""
    return right(dy, x, W, kept, 0.0, n, inverse_std, gamma)


def gamma_outside_the_means(dy, x, W, kept, P_drop, n, inverse_std, gamma):
    """gamma stands outside the means"""
    gradients = right(dy, x, W, kept, P_drop, n, inverse_std, gamma)
    return gradients | {"dz": gamma * layer_norm_backward(dy, n, inverse_std, np.ones_like(gamma))["dx"]}


def without_the_part_along_n(dy, x, W, kept, P_drop, n, inverse_std, gamma):
    """the part along n is missing"""
    gradients, dn = right(dy, x, W, kept, P_drop, n, inverse_std, gamma), gamma * dy
    return gradients | {"dz": (dn - dn.mean(axis=-1, keepdims=True)) * inverse_std}
