"""Probes of what the layers compute, for `scratchformer doctor`: how many weights of which size, and the formulas.

All in float64, on shapes in which no two dimensions are equal. A wrong formula can have a right gradient, and no
formula says how large a weight should be at first.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.doctor.findings import CodeProbe, Complaints, differs
from scratchformer.doctor.specimens import random, with_random_vectors
from scratchformer.experiments.sizes import parameter_counts
from scratchformer.nn import gradient_cases
from scratchformer.nn.attention import Mask, ScaledDotProductAttention
from scratchformer.nn.gradient_cases import D_K, D_V, FLOAT64, SMALL, B, D, F, H, S, T, V, lengths
from scratchformer.nn.layers import (
    AddNorm,
    Embedding,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Linear,
    PositionalEncoding,
    Unembedding,
)
from scratchformer.nn.ops import PAD
from scratchformer.nn.parameter import Layer
from scratchformer.nn.transformer import Decoder, Encoder, PostNorm, PreNorm, Transformer


def probes(config: ModelConfig) -> list[CodeProbe]:
    """`config` is of a small model: it is built many times."""
    return [structure(config), first_weights(), definitions()]


# Structure ------------------------------------------------------------------------------------------------------------


def structure(config: ModelConfig) -> CodeProbe:
    return CodeProbe(
        "structure",
        "as many parameters as Figure 1 has, all in the flat buffer; tied embeddings are one parameter; a seed decides "
        "the first weights",
        "one layer that is used N times; a copy where the same matrix is meant; a generator that is made anew with the "
        "same seed; a layer's parameters in a dictionary, where `parameters()` does not look",
        [
            ("Encoder", partial(stack_size, Encoder, "encoder", config)),
            ("Decoder", partial(stack_size, Decoder, "decoder", config)),
            ("Transformer", partial(model_size, config)),
            ("Transformer", partial(ties, config)),
            ("Transformer", partial(seed_decides, config)),
        ],
    )


def size(layer: Layer) -> int:
    return sum(parameter.data.size for parameter in layer.parameters().values())


def stack_size(kind: type[Encoder] | type[Decoder], name: str, config: ModelConfig) -> Complaints:
    counts, d_model = parameter_counts(config), config.d_model
    norms = {"encoder": 2, "decoder": 3}[name] * config.N + (config.norm == "pre")
    expected = counts[f"{name} attention"] + counts[f"{name} feed-forward"] + norms * 2 * d_model
    found = size(kind(config, random(), FLOAT64))
    yield "" if found == expected else f"{found} parameters in {config.N} layers, expected {expected}"


def model_size(config: ModelConfig) -> Complaints:
    model, expected = Transformer(config), sum(parameter_counts(config).values())
    yield (
        ""
        if size(model) == model.store.data.size == expected
        else (f"{size(model)} parameters, {model.store.data.size} in the flat buffer, expected {expected}")
    )
    for name, parameter in model.parameters().items():
        yield "" if np.shares_memory(parameter.data, model.store.data) else f"{name} is not in the flat buffer"


def ties(config: ModelConfig) -> Complaints:
    choices: list[tuple[Literal["all", "target", "none"], int]] = [("all", 1), ("target", 2), ("none", 3)]
    for tied, expected in choices:
        model = Transformer(replace(config, tied=tied))
        used = [model.source_embedding.weight, model.target_embedding.weight, model.unembedding.weight]
        found = len(set(map(id, used)))
        yield "" if found == expected else f"tied = {tied}: {found} different embedding matrices, expected {expected}"
        yield "" if tied == "none" or used[1] is used[2] else f"tied = {tied}: the output is not the target's embedding"


def seed_decides(config: ModelConfig) -> Complaints:
    first, again, other = (Transformer(config, seed).store.data for seed in (1, 1, 2))
    yield "" if np.array_equal(first, again) else "the same seed makes other weights"
    yield "" if not np.array_equal(first, other) else "two seeds make the same weights"


# Sizes ----------------------------------------------------------------------------------------------------------------


def first_weights() -> CodeProbe:
    return CodeProbe(
        "sizes at the start",
        "embedded words and logits with variance 1; Glorot's projections; attention's log weights with variance 1 "
        "whatever d_k; normalised rows with mean 0 and variance 1",
        "a scale that is missing or of the wrong dimension: sqrt(d_model) on the embedding, 1/sqrt(d_k) in attention; "
        "an initialisation that does not know its fan-in; a variance divided by n - 1",
        [
            ("Linear", linear_size),
            ("Embedding", embedding_size),
            ("Unembedding", unembedding_size),
            ("LearnedPositions", learned_positions_size),
            ("LayerNorm", normalised_size),
            ("ScaledDotProductAttention", attention_temperature),
        ],
    )


def variance_is(what: str, x: np.ndarray, expected: float, tolerance: float) -> str:
    """ "" if the variance of x is the expected one to within a share `tolerance`, else what it is."""
    found = float(np.var(x))
    return "" if abs(found / expected - 1) <= tolerance else f"{what}: variance {found:.3g}, expected {expected:.3g}"


SAMPLING = 0.1
"""The variance of n numbers is known to within sqrt(2 / n): 1 % of the 10,000 and more used here. 10 % is never chance,
and a missing factor is more."""


def linear_size() -> Complaints:
    weight = Linear(300, 100, random(), FLOAT64).weight.data
    yield variance_is("Glorot's weight of 300 x 100", weight, 2 / (300 + 100), SAMPLING)


def embedding_size() -> Complaints:
    layer = Embedding(Embedding.new_weight(1000, 100, random(), FLOAT64))
    yield variance_is("embedded words", layer.forward(np.arange(1, 1000)[None])[0], 1, SAMPLING)


def unembedding_size() -> Complaints:
    layer = Unembedding(Embedding.new_weight(1000, 100, random(), FLOAT64))
    yield variance_is("logits of rows with variance 1", layer.forward(random().normal(size=(50, 100)))[0], 1, SAMPLING)


def learned_positions_size() -> Complaints:
    weight = LearnedPositions(200, 100, random(), FLOAT64).weight.data
    yield variance_is("learned positions of 100 channels", weight, 1 / 100, SAMPLING)


def normalised_size() -> Complaints:
    y, _ = LayerNorm(16, FLOAT64).forward(3 + 5 * random().normal(size=(B, T, 16)))
    yield differs("mean of a normalised row", y.mean(axis=-1), np.zeros((B, T)))
    yield differs("variance (divided by n) of a normalised row", y.var(axis=-1), np.ones((B, T)), 1e-3)
    y, _ = LayerNorm(16, FLOAT64).forward(np.full((B, 16), 3.0))
    yield "" if np.isfinite(y).all() else "a row of equal numbers gives NaN: eps must stand under the root"


def attention_temperature() -> Complaints:
    for d_k in (16, 64, 256):
        q, k = random().normal(size=(2, 1, 64, 4, d_k))
        _, cache = ScaledDotProductAttention().forward(q, k, k)
        spread = float(np.log(cache.weights).var(axis=-1).mean())
        yield (
            ""
            if 0.7 < spread < 1.4
            else (  # a forgotten factor is 4 or more
                f"with d_k = {d_k}, log weights have variance {spread:.3g}, expected about 1"
            )
        )


# Formulas -------------------------------------------------------------------------------------------------------------


def definitions() -> CodeProbe:
    return CodeProbe(
        "formulas",
        "each layer's output is what the paper's formula says, written out once more",
        "a missing transpose, term or scale; heads that are split or joined in another order; the mask added after "
        "the softmax; another base or exponent in the positions; queries, keys and values from the wrong side",
        [
            ("Linear", linear_formula),
            ("Embedding", embedding_formula),
            ("Unembedding", unembedding_formula),
            ("PositionalEncoding", positions_formula),
            ("LearnedPositions", learned_positions_formula),
            ("LayerNorm", layer_norm_formula),
            ("AddNorm", add_norm_formula),
            ("FeedForward", feed_forward_formula),
            ("ScaledDotProductAttention", attention_formula),
            ("ScaledDotProductAttention", attention_extremes),
            ("SelfAttention", self_attention_formula),
            ("CrossAttention", cross_attention_formula),
            ("PostNorm", post_norm_formula),
            ("PreNorm", pre_norm_formula),
        ],
    )


def linear_formula() -> Complaints:
    layer, x = with_random_vectors(Linear(D, F, random(), FLOAT64)), random().normal(size=(B, T, D))
    yield differs("x W + b", layer.forward(x)[0], np.einsum("btd,df->btf", x, layer.weight.data) + layer.bias.data)


def embedding_formula() -> Complaints:
    layer = Embedding(Embedding.new_weight(V, D, random(), FLOAT64))
    x, _ = layer.forward(np.array([[4, PAD, 4, 7]]))
    rows = layer.weight.data
    yield differs(
        "sqrt(d_model) E[ids], 0 for padding", x[0], math.sqrt(D) * np.stack([rows[4], 0 * rows[4], rows[4], rows[7]])
    )


def unembedding_formula() -> Complaints:
    layer, y = Unembedding(Embedding.new_weight(V, D, random(), FLOAT64)), random().normal(size=(B, T, D))
    yield differs("y E^T", layer.forward(y)[0], np.einsum("btd,vd->btv", y, layer.weight.data))


def positions_formula() -> Complaints:
    encoding = PositionalEncoding().forward(np.zeros((1, 100, 512)))[0][0]
    for position, i in [(0, 0), (1, 0), (1, 1), (3, 100), (99, 255)]:
        angle = position / 10000 ** (2 * i / 512)
        yield differs(
            f"PE(pos = {position}, channels {2 * i} and {2 * i + 1} of 512)",
            encoding[position, 2 * i : 2 * i + 2],
            np.array([math.sin(angle), math.cos(angle)]),
        )
    later = PositionalEncoding().forward(np.zeros((1, 5, 512)), 7)[0][0]
    yield differs("positions counted from 7", later, encoding[7:12])
    x = random().normal(size=(B, T, 512))
    yield differs("x + PE", PositionalEncoding().forward(x)[0], x + encoding[:T])


def learned_positions_formula() -> Complaints:
    layer, x = LearnedPositions(10, D, random(), FLOAT64), random().normal(size=(B, T, D))
    yield differs("x + P", layer.forward(x)[0], x + layer.weight.data[:T])
    yield differs("x + P, positions counted from 3", layer.forward(x, 3)[0], x + layer.weight.data[3 : 3 + T])


def normalised(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, eps: float) -> np.ndarray:
    return gamma * (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + eps) + beta


def layer_norm_formula() -> Complaints:
    layer, x = with_random_vectors(LayerNorm(D, FLOAT64, eps=0.1)), random().normal(size=(B, T, D))
    yield differs(
        "gamma (x - mean) / sqrt(variance + eps) + beta",
        layer.forward(x)[0],
        normalised(x, layer.gamma.data, layer.beta.data, 0.1),
    )


def add_norm_formula() -> Complaints:
    layer, (x, update) = with_random_vectors(AddNorm(D, FLOAT64, eps=0.1)), random().normal(size=(2, B, T, D))
    yield differs(
        "LayerNorm(x + update)",
        layer.forward(x, update)[0],
        normalised(x + update, layer.gamma.data, layer.beta.data, 0.1),
    )


def feed_forward_formula() -> Complaints:
    layer, x = with_random_vectors(FeedForward(D, F, random(), FLOAT64)), random().normal(size=(B, T, D))
    hidden = np.maximum(x @ layer.inner.weight.data + layer.inner.bias.data, 0)
    yield differs(
        "max(0, x W_1 + b_1) W_2 + b_2", layer.forward(x)[0], hidden @ layer.outer.weight.data + layer.outer.bias.data
    )


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, may: np.ndarray) -> np.ndarray:
    """Equation 1 for each head in turn: q (B, T, H, K), k (B, S, H, K), v (B, S, H, d_v), may (., ., T, S)."""
    y = np.zeros((*q.shape[:-1], v.shape[-1]))
    may = np.broadcast_to(may, (q.shape[0], 1, q.shape[1], k.shape[1]))
    for b, t, h in np.ndindex(q.shape[:-1]):
        seen = np.flatnonzero(may[b, 0, t])
        weights = np.exp(k[b, seen, h] @ q[b, t, h] / math.sqrt(q.shape[-1]))
        y[b, t, h] = weights @ v[b, seen, h] / weights.sum() if len(seen) else 0
    return y


MASKS = [
    ("without a mask", Mask(), T, S),
    ("with padding", Mask(lengths(S)), T, S),
    ("with the causal mask", Mask(causal=True), T, T),
    ("with the causal mask and padding", Mask(lengths(T), causal=True), T, T),
]


def attention_formula() -> Complaints:
    for what, mask, t, s in MASKS:
        generator = random()
        q, k, v = (generator.normal(size=shape) for shape in [(B, t, H, D_K), (B, s, H, D_K), (B, s, H, D_V)])
        y, _ = ScaledDotProductAttention().forward(q, k, v, mask)
        if np.isnan(y[1]).any() and np.isfinite(y[[0, 2]]).all():
            yield f"{what}: NaN for a sentence that is all padding"
        yield differs(f"softmax(Q K^T / sqrt(d_k)) V, {what}", y, attended(q, k, v, mask.as_array(t, s)))


def attention_extremes() -> Complaints:
    q, k = 1e3 * random().normal(size=(2, B, T, H, D_K))
    y, _ = ScaledDotProductAttention().forward(q, k, k, Mask(causal=True))
    yield "" if np.isfinite(y).all() else "large scores overflow: subtract each row's maximum before exp"


def heads(x: np.ndarray, linear: Linear, *widths: int) -> list[np.ndarray]:
    """x W + b, cut into H heads of each of these widths, which stand side by side: (B, ., H, width) each."""
    y = x @ linear.weight.data + (linear.bias.data if linear.bias else 0)
    parts = np.split(y, np.cumsum([H * width for width in widths])[:-1], axis=-1)
    return [np.stack(np.split(part, H, axis=-1), axis=2) for part in parts]


def self_attention_formula() -> Complaints:
    layer, x = with_random_vectors(gradient_cases.self_attention(random(), 0.0)), random().normal(size=(B, S, D))
    for what, mask in [("", Mask()), (", with padding", Mask(lengths(S))), (", causal", Mask(causal=True))]:
        q, k, v = heads(x, layer.qkv, D_K, D_K, D_V)
        joined = attended(q, k, v, mask.as_array(S, S)).reshape(B, S, -1)
        yield differs(
            f"Concat(head_1, ..., head_h) W_O{what}",
            layer.forward(x, mask)[0],
            joined @ layer.output.weight.data + layer.output.bias.data,
        )


def cross_attention_formula() -> Complaints:
    layer = with_random_vectors(gradient_cases.cross_attention(random(), 0.0))
    x, memory = random().normal(size=(B, T, D)), random().normal(1, 1, size=(B, S, D))
    for what, mask in [("", Mask()), (", with padding", Mask(lengths(S)))]:
        (q,), (k, v) = heads(x, layer.q, D_K), heads(memory, layer.kv, D_K, D_V)
        joined = attended(q, k, v, mask.as_array(T, S)).reshape(B, T, -1)
        yield differs(
            f"queries from x, keys and values from the memory{what}",
            layer.forward(x, memory, mask)[0],
            joined @ layer.output.weight.data + layer.output.bias.data,
        )


def post_norm_formula() -> Complaints:
    layer = with_random_vectors(PostNorm(FeedForward(D, F, random(), FLOAT64), SMALL, FLOAT64))
    x = random().normal(size=(B, T, D))
    update, norm = layer.sublayer.forward(x)[0], layer.norm
    y = normalised(x + update, norm.gamma.data, norm.beta.data, SMALL.ln_eps)
    yield differs("LayerNorm(x + sublayer(x))", layer.forward(x)[0], y)
    yield differs("the same in two halves", layer.leave(x, layer.sublayer.forward(layer.enter(x))[0]), y)


def pre_norm_formula() -> Complaints:
    layer = with_random_vectors(PreNorm(FeedForward(D, F, random(), FLOAT64), SMALL, FLOAT64))
    x, norm = random().normal(size=(B, T, D)), layer.norm
    y = x + layer.sublayer.forward(normalised(x, norm.gamma.data, norm.beta.data, SMALL.ln_eps))[0]
    yield differs("x + sublayer(LayerNorm(x))", layer.forward(x)[0], y)
    yield differs("the same in two halves", layer.leave(x, layer.sublayer.forward(layer.enter(x))[0]), y)
