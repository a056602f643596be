def number(V, N, D, F, h, d_k, d_v, tied, attentions=3, biases=True, norms=5, vectors=2, matrices=3):
    attention = 2 * D * h * d_k + 2 * D * h * d_v + biases * (2 * h * d_k + h * d_v + D)
    feed_forward = 2 * D * F + F + D
    return (1 if tied else matrices) * V * D + N * (attentions * attention + 2 * feed_forward + norms * vectors * D)


def as_many_attentions_as_layers(V, N, D, F, h, d_k, d_v, tied):
    """the decoder has two attentions in each layer"""
    return number(V, N, D, F, h, d_k, d_v, tied, attentions=2)


def the_papers_equations_without_biases(V, N, D, F, h, d_k, d_v, tied):
    """the biases of the attentions are missing"""
    return number(V, N, D, F, h, d_k, d_v, tied, biases=False)


def gamma_without_beta(V, N, D, F, h, d_k, d_v, tied):
    """a LayerNorm has two vectors"""
    return number(V, N, D, F, h, d_k, d_v, tied, vectors=1)


def always_tied(V, N, D, F, h, d_k, d_v, tied):
    """E is counted once"""
    return number(V, N, D, F, h, d_k, d_v, tied, matrices=1)


def never_tied(V, N, D, F, h, d_k, d_v, tied):
    """the matrix E is counted three times"""
    return number(V, N, D, F, h, d_k, d_v, False)


def the_width_of_a_head_from_d_model(V, N, D, F, h, d_k, d_v, tied):
    """the heads have the width d_model / h"""
    return number(V, N, D, F, h, D // h, D // h, tied)


def one_head(V, N, D, F, h, d_k, d_v, tied):
    """h is left out"""
    return number(V, N, D, F, 1, d_k, d_v, tied)


def a_float(V, N, D, F, h, d_k, d_v, tied):
    """an array of float64, and should hold int64"""
    return number(V, N, D, F, h, d_k, d_v, tied) / 1
