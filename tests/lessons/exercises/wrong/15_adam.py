import numpy as np


def steps(gradients, w, rate, beta1, beta2, eps, m_hat, v_hat, root=np.sqrt, first=1):
    m, v, weights = np.zeros_like(w), np.zeros_like(w), []
    with np.errstate(all="ignore"):
        for t, g in enumerate(gradients, start=first):
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * g * g
            w = w - rate * m_hat(m, t) / (root(v_hat(v, t)) + eps)
            weights.append(w)
    return np.array(weights)


def as_it_is(average, t):
    return average


def corrected(beta):
    return lambda average, t: average / (1 - beta ** np.float64(t))


def no_correction(gradients, w, rate, beta1, beta2, eps):
    """the bias correction is missing"""
    return steps(gradients, w, rate, beta1, beta2, eps, as_it_is, as_it_is)


def only_m_corrected(gradients, w, rate, beta1, beta2, eps):
    """the bias correction of v is missing"""
    return steps(gradients, w, rate, beta1, beta2, eps, corrected(beta1), as_it_is)


def only_v_corrected(gradients, w, rate, beta1, beta2, eps):
    """the bias correction of m is missing"""
    return steps(gradients, w, rate, beta1, beta2, eps, as_it_is, corrected(beta2))


def t_from_zero(gradients, w, rate, beta1, beta2, eps):
    """t counts from 1"""
    return steps(gradients, w, rate, beta1, beta2, eps, corrected(beta1), corrected(beta2), first=0)


def t_never_counts(gradients, w, rate, beta1, beta2, eps):
    """t stays at 1"""
    return steps(gradients, w, rate, beta1, beta2, eps, lambda m, t: m / (1 - beta1), lambda v, t: v / (1 - beta2))


def no_root(gradients, w, rate, beta1, beta2, eps):
    """the root is missing"""
    return steps(gradients, w, rate, beta1, beta2, eps, corrected(beta1), corrected(beta2), root=lambda v: v)


def eps_inside_the_root(gradients, w, rate, beta1, beta2, eps):
    """eps stands inside the root"""
    return steps(
        gradients, w, rate, beta1, beta2, 0, corrected(beta1), corrected(beta2), root=lambda v: np.sqrt(v + eps)
    )


def eps_before_the_correction(gradients, w, rate, beta1, beta2, eps):
    """before v is corrected, as the library does"""
    w, m, v, weights = w.copy(), 0, 0, []
    for t, g in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        w -= rate * np.sqrt(1 - beta2**t) / (1 - beta1**t) * m / (np.sqrt(v) + eps)
        weights.append(w.copy())
    return np.array(weights)


def no_eps(gradients, w, rate, beta1, beta2, eps):
    """eps is missing"""
    return steps(gradients, w, rate, beta1, beta2, 0, corrected(beta1), corrected(beta2))


def square_of_the_average(gradients, w, rate, beta1, beta2, eps):
    """v is the square of m"""
    m, mean, weights = np.zeros_like(w), np.zeros_like(w), []
    for t, g in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * g
        mean = beta2 * mean + (1 - beta2) * g
        w = w - rate * m / (1 - beta1**t) / (np.abs(mean) / np.sqrt(1 - beta2**t) + eps)
        weights.append(w)
    return np.array(weights)
