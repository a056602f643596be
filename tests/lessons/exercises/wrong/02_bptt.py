import numpy as np


def sums(dh, h, W_back, slope=lambda h: 1 - h**2):
    da, later = np.zeros_like(dh), 0
    for t in reversed(range(dh.shape[1])):
        da[:, t] = (dh[:, t] + later) * slope(h[:, t])
        later = da[:, t] @ W_back
    return da


def all_of(da, x, h0, h, W_x, W_h):
    before = np.concatenate([h0[:, None], h[:, :-1]], axis=1)
    return {
        "db": da.sum(axis=(0, 1)),
        "dW_x": np.einsum("bti,btj->ij", x, da),
        "dW_h": np.einsum("bti,btj->ij", before, da),
        "dx": da @ W_x.T,
        "dh0": da[:, 0] @ W_h.T,
    }


def truncated(dh, x, h0, h, W_x, W_h):
    """the way through the next state is missing"""
    return all_of(dh * (1 - h**2), x, h0, h, W_x, W_h)


def no_slope(dh, x, h0, h, W_x, W_h):
    """the derivative of tanh, 1 - h^2, is missing"""
    return all_of(sums(dh, h, W_h.T, np.ones_like), x, h0, h, W_x, W_h)


def slope_too_early(dh, x, h0, h, W_x, W_h):
    """what comes back from step t + 1 passes through tanh as well"""
    return all_of(sums(dh * (1 - h**2), h, W_h.T, np.ones_like), x, h0, h, W_x, W_h)


def not_transposed(dh, x, h0, h, W_x, W_h):
    """W_h is not transposed on the way back"""
    return all_of(sums(dh, h, W_h), x, h0, h, W_x, W_h)


def from_first_to_last(dh, x, h0, h, W_x, W_h):
    """the steps are gone through from the first to the last"""
    return all_of(sums(dh[:, ::-1], h[:, ::-1], W_h.T)[:, ::-1], x, h0, h, W_x, W_h)


def paired_with_its_own_state(dh, x, h0, h, W_x, W_h):
    """da_t is paired with the state of its own step"""
    da = sums(dh, h, W_h.T)
    return all_of(da, x, h0, h, W_x, W_h) | {"dW_h": np.einsum("bti,btj->ij", h, da)}


def first_step_left_out(dh, x, h0, h, W_x, W_h):
    """the first step is left out"""
    da = sums(dh, h, W_h.T)
    return all_of(da, x, h0, h, W_x, W_h) | {"dW_h": np.einsum("bti,btj->ij", h[:, :-1], da[:, 1:])}


def first_state_without_its_weights(dh, x, h0, h, W_x, W_h):
    """h0 reached it through W_h"""
    da = sums(dh, h, W_h.T)
    return all_of(da, x, h0, h, W_x, W_h) | {"dh0": da[:, 0]}
