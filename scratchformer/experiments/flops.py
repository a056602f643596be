"""Count the arithmetic of a training step: the FLOPs of its matrix products.

A FLOP is one multiplication or one addition of two numbers. Everything else (softmax, LayerNorm, Adam, ...) is left
out: it is little arithmetic, though not always little time.
"""

from __future__ import annotations

import math

from scratchformer.config import ModelConfig
from scratchformer.nn.sizes import parameter_shapes

FORWARD, BACKWARD = 2, 4
"""FLOPs per token and weight. Forward multiplies and adds once, in y = xW; backward has two products of that size, for
the gradients of x and of W."""


def weights_per_token(config: ModelConfig) -> tuple[int, int]:
    """Return how many matrix weights multiply a source token and a target token in forward.

    A source token passes through the encoder, and through W_K and W_V of each attention to the memory; a target token
    through the rest of the decoder and the output matrix. An embedding is only looked up. A model with one stack has
    only targets, which it predicts, and sources, which it only reads; the targets of a classifier are its classes.
    """
    matrices = {name: math.prod(shape) for name, shape in parameter_shapes(config).items() if len(shape) == 2}
    layers = {name: size for name, size in matrices.items() if ".layers." in name or ".projection." in name}
    output = config.n_outputs * config.d_model
    if config.architecture == "encoder-decoder":
        source = sum(size for name, size in layers.items() if name.startswith("encoder.") or ".kv." in name)
        return source, sum(layers.values()) - source + output
    return sum(layers.values()), output if config.n_classes else sum(layers.values()) + output


def attention_products(config: ModelConfig, S: float, T: float) -> float:
    """Return the multiplications of scores and weighted values in forward, for a pair of S source and T target tokens.

    In every head, each query meets each key twice: in q k (d_k numbers) and in w v (d_v numbers). A causal mask saves
    nothing, since the masked scores are computed as well.
    """
    assert config.d_k and config.d_v
    pairs = S * S + T * T + T * S if config.architecture == "encoder-decoder" else (S + T * (not config.n_classes)) ** 2
    return config.N * config.h * (config.d_k + config.d_v) * pairs


def training_flops(config: ModelConfig, n_pairs: float, S: float, T: float) -> float:
    """Return the FLOPs of forward and backward, for pairs of S source and T target tokens, EOS counted, no padding.

    S and T may be means over many pairs. The result is then a little low, since the cost of attention grows with the
    square of the length. In the paper's base model, the products of attention are one hundredth of the total.
    """
    per_source, per_target = weights_per_token(config)
    products = per_source * S + per_target * T + attention_products(config, S, T)
    return (FORWARD + BACKWARD) * n_pairs * products
