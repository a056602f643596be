def products(N, D, F, V, S, T, source=6, target=6, attention=2):
    return (
        (N * (source * D * D + 2 * D * F)) * S
        + (N * (target * D * D + 2 * D * F) + V * D) * T
        + attention * N * D * (S * S + T * T + T * S)
    )


def forward_only(N, d_model, d_ff, V, S, T, n_pairs, rate):
    """forward only"""
    return 2 * n_pairs * products(N, d_model, d_ff, V, S, T) / rate


def products_counted_once(N, d_model, d_ff, V, S, T, n_pairs, rate):
    """each product is counted once"""
    return 3 * n_pairs * products(N, d_model, d_ff, V, S, T) / rate


def backward_as_forward(N, d_model, d_ff, V, S, T, n_pairs, rate):
    """backward is counted as one forward"""
    return 4 * n_pairs * products(N, d_model, d_ff, V, S, T) / rate


def lookup_counted(N, d_model, d_ff, V, S, T, n_pairs, rate):
    """the lookup of embeddings is counted"""
    return 6 * n_pairs * (products(N, d_model, d_ff, V, S, T) + V * d_model * (S + T)) / rate


def no_output_matrix(N, d_model, d_ff, V, S, T, n_pairs, rate):
    """the output matrix is missing"""
    return 6 * n_pairs * products(N, d_model, d_ff, 0, S, T) / rate


def all_tokens_by_all_weights(N, d_model, d_ff, V, S, T, n_pairs, rate):
    """every token is counted for all weights"""
    weights = N * (12 * d_model**2 + 4 * d_model * d_ff) + V * d_model
    return 6 * n_pairs * (weights * (S + T) + 2 * N * d_model * (S * S + T * T + T * S)) / rate


def decoder_by_target_tokens(N, d_model, d_ff, V, S, T, n_pairs, rate):
    """made from source tokens: S, not T"""
    return 6 * n_pairs * products(N, d_model, d_ff, V, S, T, source=4, target=8) / rate


def attention_free(N, d_model, d_ff, V, S, T, n_pairs, rate):
    """attention's own products are missing"""
    return 6 * n_pairs * products(N, d_model, d_ff, V, S, T, attention=0) / rate
