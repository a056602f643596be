import numpy as np

from exercises.lesson_07 import heads_backward as right


def dW_O_of_each_sentence(dy, memory, weights, joined, W_V, W_O):
    """sum over axis 0 of yours"""
    return right(dy, memory, weights, joined, W_V, W_O) | {"dW_O": joined.swapaxes(1, 2) @ dy}


def merge_undone_by_a_reshape(dy, memory, weights, joined, W_V, W_O):
    """the gradient of `joined` is cut into rows"""
    B, h, T, _ = weights.shape
    return right(dy, memory, weights, joined, W_V, W_O) | {"dheads": (dy @ W_O.T).reshape(B, h, T, -1)}


def every_hth_column(dy, memory, weights, joined, W_V, W_O):
    """each head takes every h-th column of the gradient of `joined`"""
    B, h, T, _ = weights.shape
    dheads = np.moveaxis((dy @ W_O.T).reshape(B, T, -1, h), -1, 1)
    return right(dy, memory, weights, joined, W_V, W_O) | {"dheads": dheads}


def one_block_for_all_heads(dy, memory, weights, joined, W_V, W_O):
    """all heads get what belongs to the first"""
    gradients = right(dy, memory, weights, joined, W_V, W_O)
    return gradients | {"dheads": gradients["dheads"][:, :1].repeat(weights.shape[1], axis=1)}


def as_if_the_heads_were_averaged(dy, memory, weights, joined, W_V, W_O):
    """the factor 1 / h, as if the heads were averaged, is there once too often"""
    gradients = right(dy, memory, weights, joined, W_V, W_O)
    return gradients | {"dheads": gradients["dheads"] / weights.shape[1]}


def the_weights_are_forgotten(dy, memory, weights, joined, W_V, W_O):
    """the weights are forgotten"""
    return right(dy, memory, weights, joined, W_V, W_O) | {
        "dv": right(dy, memory, np.ones_like(weights), joined, W_V, W_O)["dv"]
    }


def split_undone_by_a_reshape(dy, memory, weights, joined, W_V, W_O):
    """dv of all heads is joined by a reshape alone"""
    gradients = right(dy, memory, weights, joined, W_V, W_O)
    rows = gradients["dv"].reshape(-1, W_V.shape[1])
    return gradients | {"dW_V": memory.reshape(-1, memory.shape[-1]).T @ rows}


def memory_is_paid_by_the_first_head_only(dy, memory, weights, joined, W_V, W_O):
    """this is the share of the first head only"""
    gradients = right(dy, memory, weights, joined, W_V, W_O)
    first = gradients["dv"][:, 0]
    return gradients | {"dmemory": first @ W_V[:, : first.shape[-1]].T}
