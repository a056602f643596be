import numpy as np


def rates(steps, d_model, rise, choose=np.minimum):
    with np.errstate(divide="ignore"):
        return d_model**-0.5 * choose(steps.astype(float) ** -0.5, rise)


def larger_of_the_two(steps, d_model, warmup):
    """the larger of the two is taken"""
    return rates(steps, d_model, steps * warmup**-1.5, np.maximum)


def from_step_zero(steps, d_model, warmup):
    """one step behind"""
    return rates(steps - 1, d_model, (steps - 1) * warmup**-1.5)


def counted_twice(steps, d_model, warmup):
    """one step ahead"""
    return rates(steps + 1, d_model, (steps + 1) * warmup**-1.5)


def exponent_of_one(steps, d_model, warmup):
    """the line and the root do not meet"""
    return rates(steps, d_model, steps / warmup)


def exponent_of_a_half(steps, d_model, warmup):
    """the exponent of warmup is -1.5, not -0.5"""
    return rates(steps, d_model, steps * warmup**-0.5)


def constant_after_the_peak(steps, d_model, warmup):
    """it never falls"""
    return (d_model * warmup) ** -0.5 * np.minimum(1, steps / warmup)


def no_warm_up(steps, d_model, warmup):
    """it never rises"""
    return rates(steps, d_model, np.inf)


def no_d_model(steps, d_model, warmup):
    """the factor d_model**-0.5 is missing"""
    return rates(steps, 1, steps * warmup**-1.5)
