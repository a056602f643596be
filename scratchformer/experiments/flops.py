"""Count the arithmetic of a training step: the FLOPs of its matrix products.

A FLOP is one multiplication or one addition of two numbers. Everything else (softmax, LayerNorm, Adam, ...) is left
out: it is little arithmetic, though not always little time.
"""

from __future__ import annotations

from scratchformer.config import ModelConfig
from scratchformer.nn.sizes import head_sizes

FORWARD, BACKWARD = 2, 4
"""FLOPs per token and weight. Forward multiplies and adds once, in y = xW; backward has two products of that size, for
the gradients of x and of W."""


def weights_per_token(config: ModelConfig) -> tuple[int, int]:
    """How many matrix weights multiply a token in forward -> for a source token, for a target token

    A source token passes through the encoder, and through W_K and W_V of each attention to the memory; a target token
    through the rest of the decoder and the output matrix. An embedding is only looked up.
    """
    D, F, H = config.d_model, config.d_ff, config.h
    d_k, d_v = head_sizes(config)
    queries_and_output = D * H * (d_k + d_v)  # W_Q (D, H d_k), W_O (H d_v, D)
    keys_and_values = queries_and_output  # W_K (D, H d_k), W_V (D, H d_v)
    attention, feed_forward = queries_and_output + keys_and_values, 2 * D * F
    source = config.N * (attention + feed_forward + keys_and_values)
    target = config.N * (attention + feed_forward + queries_and_output) + D * config.vocab_size
    return source, target


def attention_products(config: ModelConfig, S: float, T: float) -> float:
    """How many multiplications scores and weighted values take in forward, for a pair of S source and T target tokens.

    In every head, each query meets each key twice: in q k (d_k numbers) and in w v (d_v numbers). A causal mask saves
    nothing, since the masked scores are computed as well.
    """
    return config.N * config.h * sum(head_sizes(config)) * (S * S + T * T + T * S)


def training_flops(config: ModelConfig, n_pairs: float, S: float, T: float) -> float:
    """FLOPs of forward and backward, for pairs of S source and T target tokens, EOS counted, without padding.

    S and T may be means over many pairs. The result is then a little low, since the cost of attention grows with the
    square of the length. In the paper's base model, the products of attention are one hundredth of the total.
    """
    per_source, per_target = weights_per_token(config)
    products = per_source * S + per_target * T + attention_products(config, S, T)
    return (FORWARD + BACKWARD) * n_pairs * products
