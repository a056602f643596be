import numpy as np


def at_scores(dc, h, weights):
    dweights = dc @ h.swapaxes(1, 2)
    return weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))


def all_of(de, dc, s, h, W, U, v, weights, z, slope=lambda z: 1 - z**2):
    da = de[..., None] * v * slope(z)
    da_s, da_h = da.sum(axis=2), da.sum(axis=1)
    return {
        "dv": np.einsum("btsk,bts->k", z, de),
        "dW": np.einsum("bti,btk->ik", s, da_s),
        "dU": np.einsum("bsi,bsk->ik", h, da_h),
        "ds": da_s @ W.T,
        "dh": da_h @ U.T + weights.swapaxes(1, 2) @ dc,
    }


def no_mean_in_the_bracket(dc, s, h, W, U, v, weights, z):
    """the mean in the bracket of softmax is missing"""
    return all_of(weights * (dc @ h.swapaxes(1, 2)), dc, s, h, W, U, v, weights, z)


def softmax_left_out(dc, s, h, W, U, v, weights, z):
    """the gradient of the weights was taken for that of the scores"""
    return all_of(dc @ h.swapaxes(1, 2), dc, s, h, W, U, v, weights, z)


def diagonal_only(dc, s, h, W, U, v, weights, z):
    """only the diagonal of softmax"""
    return all_of(weights * (1 - weights) * (dc @ h.swapaxes(1, 2)), dc, s, h, W, U, v, weights, z)


def no_slope(dc, s, h, W, U, v, weights, z):
    """the derivative of tanh, 1 - z^2, is missing"""
    return all_of(at_scores(dc, h, weights), dc, s, h, W, U, v, weights, z, np.ones_like)


def no_v(dc, s, h, W, U, v, weights, z):
    """v is missing between the score and tanh"""
    return all_of(at_scores(dc, h, weights), dc, s, h, W, U, np.ones_like(v), weights, z)


def found_but_not_sought(dc, s, h, W, U, v, weights, z):
    """the way of h into the scores, through U, is missing"""
    right = all_of(at_scores(dc, h, weights), dc, s, h, W, U, v, weights, z)
    return right | {"dh": weights.swapaxes(1, 2) @ dc}


def sought_but_not_found(dc, s, h, W, U, v, weights, z):
    """the way of h into the mean itself is missing"""
    right = all_of(at_scores(dc, h, weights), dc, s, h, W, U, v, weights, z)
    return right | {"dh": right["dh"] - weights.swapaxes(1, 2) @ dc}


def states_not_summed(dc, s, h, W, U, v, weights, z):
    """shape"""
    right = all_of(at_scores(dc, h, weights), dc, s, h, W, U, v, weights, z)
    da = at_scores(dc, h, weights)[..., None] * v * (1 - z**2)
    return right | {"ds": da @ W.T}
