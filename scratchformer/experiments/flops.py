"""How much arithmetic is a training step? Its matrix products, counted without multiplying anything.

A FLOP is one multiplication or one addition of two numbers. What is no matrix product (softmax, LayerNorm, Adam, ...)
is not counted: it is little arithmetic, though not always little time.
"""

from __future__ import annotations

from scratchformer.config import ModelConfig

FORWARD, BACKWARD = 2, 4
"""FLOPs for each weight that a token meets: y = xW multiplies and adds; backward has two products of that size, for the
gradients of x and of W."""


def weights_met(config: ModelConfig) -> tuple[int, int]:
    """How many weights of matrices a token is multiplied by in forward -> a source token, a target token.

    A source token meets the encoder, and the keys' and values' matrices of each attention to the memory; a target token
    meets the rest of the decoder and the output matrix. Looking up an embedding multiplies nothing.
    """
    D, F, H = config.d_model, config.d_ff, config.h
    d_k, d_v = config.d_k or D // H, config.d_v or D // H
    queries_and_output = D * H * (d_k + d_v)  # W_Q (D, H d_k), W_O (H d_v, D)
    keys_and_values = queries_and_output  # W_K (D, H d_k), W_V (D, H d_v)
    attention, feed_forward = queries_and_output + keys_and_values, 2 * D * F
    source = config.N * (attention + feed_forward + keys_and_values)
    target = config.N * (attention + feed_forward + queries_and_output) + D * config.vocab_size
    return source, target


def attention_products(config: ModelConfig, S: float, T: float) -> float:
    """Multiplications of scores and of weighted values in forward, for one pair of S source and T target tokens.

    Each query meets each key in every head, once in q k (d_k numbers) and once in w v (d_v numbers); a causal mask
    spares nothing, since the forbidden scores are computed as well.
    """
    d_k, d_v = (size or config.d_model // config.h for size in (config.d_k, config.d_v))
    return config.N * config.h * (d_k + d_v) * (S * S + T * T + T * S)


def training_flops(config: ModelConfig, n_pairs: float, S: float, T: float) -> float:
    """FLOPs of forward and backward, for pairs of S source and T target tokens, EOS counted, without padding.

    S and T may be means over many pairs: that attention to longer sentences is dearer than to shorter ones cheaper is
    then neglected. In the paper's base model the products of attention are a hundredth of all.
    """
    of_source, of_target = weights_met(config)
    products = of_source * S + of_target * T + attention_products(config, S, T)
    return (FORWARD + BACKWARD) * n_pairs * products
