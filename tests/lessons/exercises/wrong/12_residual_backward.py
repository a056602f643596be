import numpy as np

from exercises.lesson_12 import residual_backward as right


def the_way_around_forgotten(dy, x, W, kept, P_drop, n, s, gamma):
    """the way around, dz, is missing"""
    gradients = right(dy, x, W, kept, P_drop, n, s, gamma)
    return gradients | {"dx": gradients["dupdate"] @ W.T}


def the_sublayer_forgotten(dy, x, W, kept, P_drop, n, s, gamma):
    """the way through the sublayer, dupdate W^T, is missing"""
    gradients = right(dy, x, W, kept, P_drop, n, s, gamma)
    return gradients | {"dx": gradients["dz"]}


def around_the_norm_too(dy, x, W, kept, P_drop, n, s, gamma):
    """the way around carries dy"""
    gradients = right(dy, x, W, kept, P_drop, n, s, gamma)
    return gradients | {"dx": dy + gradients["dupdate"] @ W.T}


def the_mask_on_the_way_around(dy, x, W, kept, P_drop, n, s, gamma):
    """the mask is on the way around as well"""
    gradients = right(dy, x, W, kept, P_drop, n, s, gamma)
    return gradients | {"dx": gradients["dz"] * kept + gradients["dupdate"] @ W.T}


def scaled_without_the_mask(dy, x, W, kept, P_drop, n, s, gamma):
    """scaled, and the mask is missing"""
    return right(dy, x, W, np.ones_like(kept), P_drop, n, s, gamma)


def the_mask_the_wrong_way_round(dy, x, W, kept, P_drop, n, s, gamma):
    """the mask is the wrong way round"""
    return right(dy, x, W, ~kept, P_drop, n, s, gamma)


def divided_by_P_drop(dy, x, W, kept, P_drop, n, s, gamma):
    """divided by P_drop"""
    return right(dy, x, W, kept, 1 - P_drop, n, s, gamma)


def dW_transposed(dy, x, W, kept, P_drop, n, s, gamma):
    """transposed"""
    gradients = right(dy, x, W, kept, P_drop, n, s, gamma)
    return gradients | {"dW": gradients["dW"].T}
