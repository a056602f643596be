import numpy as np


def turn(x, positions):
    K = x.shape[-1]
    angle, y = positions[:, None, None] * 10000.0 ** (-np.arange(0, K, 2) / K), np.empty_like(x)
    y[..., 0::2] = np.cos(angle) * x[..., 0::2] - np.sin(angle) * x[..., 1::2]
    y[..., 1::2] = np.sin(angle) * x[..., 0::2] + np.cos(angle) * x[..., 1::2]
    return y


def of_turned(dscores, turned_q, turned_k):
    return np.einsum("bhts,bshk->bthk", dscores, turned_k), np.einsum("bhts,bthk->bshk", dscores, turned_q)


def queries_not_turned_back(dscores, turned_q, turned_k, positions):
    """this is the gradient of the turned queries"""
    dturned_q, dturned_k = of_turned(dscores, turned_q, turned_k)
    return {"dq": dturned_q, "dk": turn(dturned_k, -positions)}


def keys_not_turned_back(dscores, turned_q, turned_k, positions):
    """this is the gradient of the turned keys"""
    dturned_q, dturned_k = of_turned(dscores, turned_q, turned_k)
    return {"dq": turn(dturned_q, -positions), "dk": dturned_k}


def turned_on(dscores, turned_q, turned_k, positions):
    """the gradient of the queries is turned on, and not back"""
    dturned_q, dturned_k = of_turned(dscores, turned_q, turned_k)
    return {"dq": turn(dturned_q, positions), "dk": turn(dturned_k, positions)}


def turned_back_too_early(dscores, turned_q, turned_k, positions):
    """the queries met the turned keys"""
    dq, dk = of_turned(dscores, turn(turned_q, -positions), turn(turned_k, -positions))
    return {"dq": dq, "dk": dk}


def transpose_forgotten(dscores, turned_q, turned_k, positions):
    """the gradient of a key is a sum over the queries"""
    dturned_q, _ = of_turned(dscores, turned_q, turned_k)
    return {"dq": turn(dturned_q, -positions), "dk": turn(np.einsum("bhst,bthk->bshk", dscores, turned_q), -positions)}


def exchanged(dscores, turned_q, turned_k, positions):
    """the two are swapped"""
    dturned_q, dturned_k = of_turned(dscores, turned_q, turned_k)
    return {"dq": turn(dturned_k, -positions), "dk": turn(dturned_q, -positions)}
