import numpy as np


def no_tanh(s, h, W, U, v):
    """the tanh is missing"""
    return ((s @ W)[:, :, None] + (h @ U)[:, None]) @ v


def tanh_before_the_sum(s, h, W, U, v):
    """the two parts go through tanh before they are added"""
    return (np.tanh(s @ W)[:, :, None] + np.tanh(h @ U)[:, None]) @ v


def softmax_already(s, h, W, U, v):
    """these are the weights"""
    e = np.exp(np.tanh((s @ W)[:, :, None] + (h @ U)[:, None]) @ v)
    return e / e.sum(axis=-1, keepdims=True)


def v_forgotten(s, h, W, U, v):
    """v is not used"""
    return np.tanh((s @ W)[:, :, None] + (h @ U)[:, None]).sum(axis=-1)


def decoder_forgotten(s, h, W, U, v):
    """the decoder is not in it"""
    return np.repeat((np.tanh(h @ U) @ v)[:, None], s.shape[1], axis=1)


def states_first(s, h, W, U, v):
    """transposed"""
    return np.tanh((s @ W)[:, None] + (h @ U)[:, :, None]) @ v


def hidden_numbers_left(s, h, W, U, v):
    """shape"""
    return np.tanh((s @ W)[:, :, None] + (h @ U)[:, None]) * v
