import numpy as np


def frequencies(K):
    return 10000.0 ** (-np.arange(0, K, 2) / K)


def turned(even, odd, angle):
    return np.cos(angle) * even - np.sin(angle) * odd, np.sin(angle) * even + np.cos(angle) * odd


def interleaved(even, odd):
    return np.stack([even, odd], axis=-1).reshape(*even.shape[:-1], -1)


def turned_backwards(x, positions):
    """turned the wrong way round"""
    angle = positions[:, None, None] * frequencies(x.shape[-1])
    return interleaved(*turned(x[..., 0::2], x[..., 1::2], -angle))


def halves_paired(x, positions):
    """channel i is paired with channel i + K/2"""
    half = x.shape[-1] // 2
    angle = positions[:, None, None] * frequencies(x.shape[-1])
    return np.concatenate(turned(x[..., :half], x[..., half:], angle), axis=-1)


def one_angle(x, positions):
    """every pair turns by the same angle"""
    return interleaved(*turned(x[..., 0::2], x[..., 1::2], positions[:, None, None] * np.ones(x.shape[-1] // 2)))


def exponent_of_the_pair(x, positions):
    """the exponent is -2i / K"""
    theta = 10000.0 ** (-np.arange(x.shape[-1] // 2) / x.shape[-1])
    return interleaved(*turned(x[..., 0::2], x[..., 1::2], positions[:, None, None] * theta))


def in_place(x, positions):
    """the second channel is made of the new first one"""
    angle, y = positions[:, None, None] * frequencies(x.shape[-1]), x.copy()
    y[..., 0::2] = np.cos(angle) * y[..., 0::2] - np.sin(angle) * y[..., 1::2]
    y[..., 1::2] = np.sin(angle) * y[..., 0::2] + np.cos(angle) * y[..., 1::2]
    return y


def positions_from_zero(x, positions):
    """counted from 0"""
    angle = np.arange(x.shape[1])[:, None, None] * frequencies(x.shape[-1])
    return interleaved(*turned(x[..., 0::2], x[..., 1::2], angle))


def upside_down(x, positions):
    """upside down: later pairs turn slower"""
    angle = positions[:, None, None] / frequencies(x.shape[-1])
    return interleaved(*turned(x[..., 0::2], x[..., 1::2], angle))


def halves_joined(x, positions):
    """the numbers are right and the channels in another order"""
    angle = positions[:, None, None] * frequencies(x.shape[-1])
    return np.concatenate(turned(x[..., 0::2], x[..., 1::2], angle), axis=-1)
