import numpy as np

from exercises.lesson_04 import attention


def as_it_was(x, memory, W_Q, W_K, W_V):
    """queries from memory, keys from memory, values from x"""
    return attention(memory @ W_Q, memory @ W_K, x @ W_V)


def self_attention(x, memory, W_Q, W_K, W_V):
    """queries from x, keys from x, values from x"""
    return attention(x @ W_Q, x @ W_K, x @ W_V)


def the_reader_asks(x, memory, W_Q, W_K, W_V):
    """queries from memory, keys from x, values from x"""
    return attention(memory @ W_Q, x @ W_K, x @ W_V)


def only_the_values_mended(x, memory, W_Q, W_K, W_V):
    """queries from memory, keys from memory, values from memory"""
    return attention(memory @ W_Q, memory @ W_K, memory @ W_V)


def only_the_queries_mended(x, memory, W_Q, W_K, W_V):
    """queries from x, keys from memory, values from x"""
    return attention(x @ W_Q, memory @ W_K, x @ W_V)


def queries_and_keys_change_places(x, memory, W_Q, W_K, W_V):
    """queries from memory, keys from x, values from memory"""
    return attention(memory @ W_Q, x @ W_K, memory @ W_V)


def the_memory_cut_to_the_length_of_x(x, memory, W_Q, W_K, W_V):
    """right for T = S = 4, wrong for T = 3, S = 5"""
    memory = memory[:, : x.shape[1]]
    return attention(x @ W_Q, memory @ W_K, memory @ W_V)


def the_softmax_forgotten(x, memory, W_Q, W_K, W_V):
    """wherever queries, keys and values are taken from"""
    return (x @ W_Q) @ (memory @ W_K).swapaxes(-1, -2) / np.sqrt(W_Q.shape[1]) @ (memory @ W_V)
