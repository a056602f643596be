import numpy as np

from scratchformer.study.exercises.lesson_07 import heads_backward as right


def dW_O_of_each_sentence(dy, m, weights, joined, W_V, W_O):
    """sum over axis 0 of yours"""
    return right(dy, m, weights, joined, W_V, W_O) | {"dW_O": joined.swapaxes(1, 2) @ dy}


def merge_undone_by_a_reshape(dy, m, weights, joined, W_V, W_O):
    """the gradient of `joined` is cut into rows"""
    B, h, T, _ = weights.shape
    return right(dy, m, weights, joined, W_V, W_O) | {"dheads": (dy @ W_O.T).reshape(B, h, T, -1)}


def one_block_for_all_heads(dy, m, weights, joined, W_V, W_O):
    """all heads get what belongs to the first"""
    gradients = right(dy, m, weights, joined, W_V, W_O)
    return gradients | {"dheads": gradients["dheads"][:, :1].repeat(weights.shape[1], axis=1)}


def as_if_the_heads_were_averaged(dy, m, weights, joined, W_V, W_O):
    """the factor 1 / h, as if the heads were averaged, is there once too often"""
    gradients = right(dy, m, weights, joined, W_V, W_O)
    return gradients | {"dheads": gradients["dheads"] / weights.shape[1]}


def the_weights_are_forgotten(dy, m, weights, joined, W_V, W_O):
    """the weights are forgotten"""
    return right(dy, m, weights, joined, W_V, W_O) | {
        "dv": right(dy, m, np.ones_like(weights), joined, W_V, W_O)["dv"]}


def weights_and_gradients_summed_apart(dy, m, weights, joined, W_V, W_O):
    """the weights are summed over the queries by themselves"""
    gradients = right(dy, m, weights, joined, W_V, W_O)
    return gradients | {"dv": weights.sum(axis=2)[..., None] * gradients["dheads"].sum(axis=2)[:, :, None]}


def split_undone_by_a_reshape(dy, m, weights, joined, W_V, W_O):
    """dv of all heads is joined by a reshape alone"""
    gradients = right(dy, m, weights, joined, W_V, W_O)
    rows = gradients["dv"].reshape(-1, W_V.shape[1])
    return gradients | {"dW_V": m.reshape(-1, m.shape[-1]).T @ rows}


def m_is_paid_by_the_first_head_only(dy, m, weights, joined, W_V, W_O):
    """this is the share of the first head only"""
    gradients = right(dy, m, weights, joined, W_V, W_O)
    first = gradients["dv"][:, 0]
    return gradients | {"dm": first @ W_V[:, :first.shape[-1]].T}
