import numpy as np


def relu_forgotten(x, W_1, b_1, W_2, b_2):
    """the ReLU is missing"""
    return (x @ W_1 + b_1) @ W_2 + b_2


def relu_at_the_end_as_well(x, W_1, b_1, W_2, b_2):
    """a ReLU at the end as well"""
    return np.maximum(0, np.maximum(0, x @ W_1 + b_1) @ W_2 + b_2)


def bias_behind_the_relu(x, W_1, b_1, W_2, b_2):
    """b_1 comes after the ReLU"""
    return (np.maximum(0, x @ W_1) + b_1) @ W_2 + b_2


def first_bias_forgotten(x, W_1, b_1, W_2, b_2):
    """b_1 is missing"""
    return np.maximum(0, x @ W_1) @ W_2 + b_2


def second_bias_forgotten(x, W_1, b_1, W_2, b_2):
    """b_2 is missing"""
    return np.maximum(0, x @ W_1 + b_1) @ W_2


def relu_on_the_input(x, W_1, b_1, W_2, b_2):
    """the ReLU is on x"""
    return (np.maximum(0, x) @ W_1 + b_1) @ W_2 + b_2


def softmax_as_in_attention(x, W_1, b_1, W_2, b_2):
    """a softmax where the ReLU belongs"""
    e = np.exp(x @ W_1 + b_1)
    return e / e.sum(axis=-1, keepdims=True) @ W_2 + b_2


def hidden_layer_returned(x, W_1, b_1, W_2, b_2):
    """expected (2, 4, 5)"""
    return np.maximum(0, x @ W_1 + b_1)
