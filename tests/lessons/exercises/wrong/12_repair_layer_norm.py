import numpy as np

EPS = 1e-6


def forward(x, mean_over=-1, fewer=0, inside=EPS, outside=0.0):
    mu = x.mean(axis=mean_over, keepdims=True)
    s = np.sqrt(((x - mu) ** 2).sum(axis=-1, keepdims=True) / (x.shape[-1] - fewer) + inside) + outside
    return (x - mu) / s, s


def results(gamma, beta, dy, n, s):
    dn = gamma * dy
    dx = (dn - dn.mean(axis=-1, keepdims=True) - n * (dn * n).mean(axis=-1, keepdims=True)) / s
    return {"y": gamma * n + beta, "dx": dx, "dgamma": (dy * n).sum(axis=(0, 1)), "dbeta": dy.sum(axis=(0, 1))}


def the_mean_of_the_sentence(x, gamma, beta, dy):
    """4 of 5 bugs repaired; y is wrong: right for a row alone, wrong in company"""
    return results(gamma, beta, dy, *forward(x, mean_over=(-2, -1)))


def the_unbiased_variance(x, gamma, beta, dy):
    """4 of 5 bugs repaired; y is wrong: wrong for a row alone as well. By how many is the sum of squares divided?"""
    return results(gamma, beta, dy, *forward(x, fewer=1))


def eps_outside_the_root(x, gamma, beta, dy):
    """Where does eps stand?"""
    return results(gamma, beta, dy, *forward(x, inside=0, outside=EPS))


def gamma_outside_the_means(x, gamma, beta, dy):
    """4 of 5 bugs repaired; dx is wrong: right while gamma is 1"""
    n, s = forward(x)
    return results(gamma, beta, dy, n, s) | {"dx": gamma * results(np.ones_like(gamma), beta, dy, n, s)["dx"]}


def one_way_forgotten(x, gamma, beta, dy):
    """5 of 5 bugs repaired; dx is wrong: wrong even if gamma is 1"""
    n, s = forward(x)
    dn = gamma * dy
    return results(gamma, beta, dy, n, s) | {"dx": (dn - dn.mean(axis=-1, keepdims=True)) / s}


def dgamma_summed_over_the_batch(x, gamma, beta, dy):
    """4 of 5 bugs repaired; dgamma is of shape (4, 8), expected (8,)"""
    return results(gamma, beta, dy, *forward(x)) | {"dgamma": (dy * forward(x)[0]).sum(axis=0)}


def one_repaired_four_left(x, gamma, beta, dy):
    """1 of 5 bugs repaired; y is wrong"""
    n, s = forward(x, fewer=1, inside=0, outside=EPS)
    dx = gamma * results(np.ones_like(gamma), beta, dy, n, s)["dx"]
    return results(gamma, beta, dy, n, s) | {"dx": dx, "dgamma": (dy * n).sum(axis=0)}


def dbeta_of_the_first_sequence(x, gamma, beta, dy):
    """beta is used in every row"""
    return results(gamma, beta, dy, *forward(x)) | {"dbeta": dy[0].sum(axis=0)}
