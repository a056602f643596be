import numpy as np


def steps(gradients, w, rate, beta1, beta2, eps, correction, root=np.sqrt, first=1):
    m, v, weights = np.zeros_like(w), np.zeros_like(w), []
    with np.errstate(all="ignore"):
        for t, g in enumerate(gradients, start=first):
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g * g
            w = w - rate * correction(t) * m / (root(v) + eps)
            weights.append(w)
    return np.array(weights)


def right_correction(beta1, beta2):
    return lambda t: np.sqrt(1 - beta2**np.float64(t)) / (1 - beta1**np.float64(t))


def no_correction(gradients, w, rate, beta1, beta2, eps):
    """the bias correction is missing"""
    return steps(gradients, w, rate, beta1, beta2, eps, lambda t: 1)


def only_m_corrected(gradients, w, rate, beta1, beta2, eps):
    """the bias correction of v is missing"""
    return steps(gradients, w, rate, beta1, beta2, eps, lambda t: 1 / (1 - beta1**t))


def t_from_zero(gradients, w, rate, beta1, beta2, eps):
    """t counts from 1"""
    return steps(gradients, w, rate, beta1, beta2, eps, right_correction(beta1, beta2), first=0)


def t_never_counts(gradients, w, rate, beta1, beta2, eps):
    """t stays at 1"""
    return steps(gradients, w, rate, beta1, beta2, eps, lambda t: right_correction(beta1, beta2)(1))


def no_root(gradients, w, rate, beta1, beta2, eps):
    """the root is missing"""
    return steps(gradients, w, rate, beta1, beta2, eps, right_correction(beta1, beta2), root=lambda v: v)


def eps_inside_the_root(gradients, w, rate, beta1, beta2, eps):
    """eps stands inside the root"""
    return steps(gradients, w, rate, beta1, beta2, 0, right_correction(beta1, beta2), root=lambda v: np.sqrt(v + eps))


def no_eps(gradients, w, rate, beta1, beta2, eps):
    """eps is missing"""
    return steps(gradients, w, rate, beta1, beta2, 0, right_correction(beta1, beta2))


def square_of_the_average(gradients, w, rate, beta1, beta2, eps):
    """v is the square of m"""
    m, mean, weights = np.zeros_like(w), np.zeros_like(w), []
    for t, g in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * g
        mean = beta2 * mean + (1 - beta2) * g
        w = w - rate * right_correction(beta1, beta2)(t) * m / (np.abs(mean) + eps)
        weights.append(w)
    return np.array(weights)
