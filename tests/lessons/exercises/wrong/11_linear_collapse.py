import numpy as np


def first_bias_dropped(W_1, b_1, W_2, b_2):
    """the first bias goes through the second map, too"""
    return np.vstack([W_1 @ W_2, b_2])


def second_bias_dropped(W_1, b_1, W_2, b_2):
    """the second bias is missing"""
    return np.vstack([W_1 @ W_2, b_1 @ W_2])


def no_biases(W_1, b_1, W_2, b_2):
    """both biases are missing"""
    return np.vstack([W_1 @ W_2, 0 * b_2])


def as_columns_are_multiplied(W_1, b_1, W_2, b_2):
    """W is transposed"""
    return np.vstack([W_2.T @ W_1.T, b_1 @ W_2 + b_2])


def images_of_unit_vectors(W_1, b_1, W_2, b_2):
    """the bias is added to W"""
    return np.vstack([(W_1 + b_1) @ W_2 + b_2, b_1 @ W_2 + b_2])


def the_hidden_sizes(W_1, b_1, W_2, b_2):
    """shape (7, 7), expected (5, 4)"""
    return W_2 @ W_1


def bias_forgotten_to_return(W_1, b_1, W_2, b_2):
    """shape (4, 4), expected (5, 4)"""
    return W_1 @ W_2
