import numpy as np


def masks(T, S, key_lengths, causal):
    real = np.ones((1, 1, 1, S), bool) if key_lengths is None else (np.arange(S) < key_lengths[:, None])[:, None, None]
    past = np.tri(T, S, S - T, dtype=bool) if causal else np.ones((T, S), bool)
    return np.broadcast_to(real, (len(real), 1, T, S)), past


def no_future(T, S, key_lengths, causal):
    """the future is not masked"""
    return masks(T, S, key_lengths, causal)[0]


def no_padding(T, S, key_lengths, causal):
    """the padding is not masked"""
    return masks(T, S, None, causal)[1][None, None]


def padding_on_the_rows(T, S, key_lengths, causal):
    """the padding mask lies on the queries (rows)"""
    _, past = masks(T, S, None, causal)
    real = np.ones((1, T), bool) if key_lengths is None else np.arange(T) < key_lengths[:, None]
    return past & real[:, None, :, None]


def triangle_at_the_left(T, S, key_lengths, causal):
    """the triangle begins at the first key"""
    real, _ = masks(T, S, key_lengths, causal)
    return real & np.tril(np.ones((T, S), bool)) if causal else real


def answer_shown(T, S, key_lengths, causal):
    """the triangle reaches one key too far"""
    real, _ = masks(T, S, key_lengths, causal)
    return real & (np.arange(S) <= np.arange(S - T, S)[:, None] + 1) if causal else real


def inverted(T, S, key_lengths, causal):
    """True and False are exchanged"""
    real, past = masks(T, S, key_lengths, causal)
    return ~(real & past)


def one_mask_suffices(T, S, key_lengths, causal):
    """a key is allowed if one of the masks allows it; both must"""
    real, past = masks(T, S, key_lengths, causal)
    return real | past


def one_key_of_padding(T, S, key_lengths, causal):
    """one key of padding too many"""
    real, past = masks(T, S, None if key_lengths is None else key_lengths + 1, causal)
    return real & past
