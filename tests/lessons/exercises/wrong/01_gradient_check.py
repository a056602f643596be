import numpy as np


def one_sided(f, x):
    """a one-sided difference"""
    return differences(f, x, 1e-5, lambda f, x, step, h: (f(x + step) - f(x)) / h)


def divided_by_h(f, x):
    """2 times what it should be: the factor 1 / 2"""
    return differences(f, x, 1e-5, lambda f, x, step, h: (f(x + step) - f(x - step)) / h)


def the_step_is_too_small(f, x):
    """the step is too small"""
    return differences(f, x, 1e-12, central)


def the_step_is_too_large(f, x):
    """the step is too large"""
    return differences(f, x, 0.1, central)


def not_put_back(f, x):
    """several elements were moved at once"""
    moved, gradient = x.copy(), np.zeros_like(x)
    for index in np.ndindex(x.shape):
        moved[index] += 1e-5
        up = f(moved)
        moved[index] -= 2e-5
        gradient[index] = (up - f(moved)) / 2e-5
    return gradient


def moved_in_place(f, x):
    """the argument x is changed in place"""
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        x[index] += 1e-5
        up = f(x)
        x[index] -= 2e-5
        gradient[index] = (up - f(x)) / 2e-5
    return gradient


def as_a_flat_list(f, x):
    """the right numbers, in another shape"""
    return differences(f, x, 1e-5, central).ravel()


def down_minus_up(f, x):
    """the sign is flipped"""
    return differences(f, x, 1e-5, lambda f, x, step, h: -central(f, x, step, h))


def central(f, x, step, h):
    return (f(x + step) - f(x - step)) / (2 * h)


def differences(f, x, h, formula):
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = h
        gradient[index] = formula(f, x, step, h)
    return gradient
