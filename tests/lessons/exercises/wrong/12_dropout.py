import numpy as np


def scaled_at_inference(x, dy, uniform, P_drop, training):
    """at inference it is scaled too"""
    kept = uniform >= P_drop if training else 1
    return np.stack([x * kept, dy * kept]) / (1 - P_drop)


def always_on(x, dy, uniform, P_drop, training):
    """`training` is ignored"""
    kept = uniform >= P_drop
    return np.stack([x * kept, dy * kept]) / (1 - P_drop)


def never_scaled(x, dy, uniform, P_drop, training):
    """what is kept is not scaled"""
    kept = uniform >= P_drop if training else 1
    return np.stack([x * kept, dy * kept])


def the_others_kept(x, dy, uniform, P_drop, training):
    """the wrong ones are kept"""
    m = (uniform < P_drop) / (1 - P_drop) if training else 1
    return np.stack([x * m, dy * m])


def backward_without_the_scale(x, dy, uniform, P_drop, training):
    """dx lacks the scale"""
    kept = uniform >= P_drop if training else np.ones(x.shape)
    return np.stack([x * kept / (1 - P_drop if training else 1), dy * kept])


def backward_without_the_mask(x, dy, uniform, P_drop, training):
    """dx lacks the mask"""
    m = (uniform >= P_drop) / (1 - P_drop) if training else 1
    return np.stack([x * m, dy])


def the_mask_read_off_y(x, dy, uniform, P_drop, training):
    """dx is 0 wherever y is 0"""
    y = x * (uniform >= P_drop) / (1 - P_drop) if training else x
    return np.stack([y, dy * (y != 0) / (1 - P_drop if training else 1)])


def classic_dropout(x, dy, uniform, P_drop, training):
    """classic dropout"""
    m = uniform >= P_drop if training else 1 - P_drop
    return np.stack([x * m, dy * m])
