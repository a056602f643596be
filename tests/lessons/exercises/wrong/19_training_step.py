import math

import numpy as np


def noam(step, d_model, warmup):
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5) if step else 0.0


def adam(w, gradients, rates):
    m, v, w = 0, 0, w.copy()
    for t, (g, rate) in enumerate(zip(gradients, rates), start=1):
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
        w -= rate * math.sqrt(1 - 0.98**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-9)
    return w


def tokens(n_tokens):
    return n_tokens.sum(axis=1, keepdims=True)


def rates(n, d_model, warmup, first=1):
    return [noam(step, d_model, warmup) for step in range(first, first + n)]


def not_cleared(w, grads, n_tokens, d_model, warmup):
    """the gradient is never cleared"""
    return adam(w, grads.sum(axis=1).cumsum(axis=0) / tokens(n_tokens), rates(len(grads), d_model, warmup))


def mean_not_cleared(w, grads, n_tokens, d_model, warmup):
    """the mean gradient is not cleared"""
    buffer, found = np.zeros(w.shape), []
    for step, n in zip(grads, n_tokens):
        for grad in step:
            buffer += grad
        buffer /= n.sum()
        found.append(buffer.copy())
    return adam(w, found, rates(len(grads), d_model, warmup))


def not_divided(w, grads, n_tokens, d_model, warmup):
    """not divided: the gradients are of sums"""
    return adam(w, grads.sum(axis=1), rates(len(grads), d_model, warmup))


def mean_of_means(w, grads, n_tokens, d_model, warmup):
    """a mean of means"""
    return adam(w, (grads / n_tokens[..., None]).mean(axis=1), rates(len(grads), d_model, warmup))


def from_step_zero(w, grads, n_tokens, d_model, warmup):
    """the learning rate counts steps from 0"""
    return adam(w, grads.sum(axis=1) / tokens(n_tokens), rates(len(grads), d_model, warmup, first=0))


def one_ahead(w, grads, n_tokens, d_model, warmup):
    """the learning rate is one step ahead"""
    return adam(w, grads.sum(axis=1) / tokens(n_tokens), rates(len(grads), d_model, warmup, first=2))


def adam_each_micro_batch(w, grads, n_tokens, d_model, warmup):
    """Adam moves once for each micro-batch"""
    every = [grad / n for step, counts in zip(grads, n_tokens) for grad, n in zip(step, counts)]
    return adam(w, every, [noam(i // grads.shape[1] + 1, d_model, warmup) for i in range(len(every))])


def schedule_each_micro_batch(w, grads, n_tokens, d_model, warmup):
    """the learning rate counts micro-batches"""
    n_micro = grads.shape[1]
    counted = [noam((t + 1) * n_micro, d_model, warmup) for t in range(len(grads))]
    return adam(w, grads.sum(axis=1) / tokens(n_tokens), counted)
