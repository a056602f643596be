"""Probes of what the layers compute, for `scratchformer doctor`: number and size of the weights, and the formulas.

The gradient check cannot find these faults: a wrong formula can have a correct gradient, and a bad initialization has
one. Everything is in float64, with shapes in which no two dimensions are equal.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial
from itertools import product
from typing import Any, Iterator, Literal

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.doctor.findings import CodeProbe, expect, expect_close
from scratchformer.doctor.fixtures import random, with_random_vectors
from scratchformer.nn import gradient_cases
from scratchformer.nn.attention import Mask, ScaledDotProductAttention
from scratchformer.nn.gradient_cases import D_K, D_V, FLOAT64, SMALL, B, D, F, H, S, T, V, lengths
from scratchformer.nn.head_gate import HeadGate, gated
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
from scratchformer.nn.residual import PostNorm, PreNorm
from scratchformer.nn.sequence_layers import (
    Convolution,
    RestrictedAttention,
    RestrictedSelfAttention,
    SeparableConvolution,
)
from scratchformer.nn.text_encoder import TokenTypes
from scratchformer.nn.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, Transformer
from scratchformer.nn.vision import ClassToken, PatchEmbedding


def probes(config: ModelConfig) -> list[CodeProbe]:
    """`config` should be of a small model, since it is built many times."""
    return [structure(config), initial_sizes(), formulas()]


# Structure ------------------------------------------------------------------------------------------------------------


def structure(config: ModelConfig) -> CodeProbe:
    return CodeProbe(
        "structure",
        "as many parameters as the model of Figure 1, all in one flat buffer; tied embeddings are one parameter; the "
        "initial weights depend on the seed only",
        "the same layer is used N times; a tied matrix is copied; a generator is created again with the same seed; "
        "layers are in a dictionary, where `parameters()` does not find them",
        [
            ("Encoder", partial(check_stack_size, Encoder, config)),
            ("Decoder", partial(check_stack_size, Decoder, config)),
            ("Transformer", partial(check_model_size, config)),
            ("Transformer", partial(check_tied_embeddings, config)),
            ("Transformer", partial(check_seed, config)),
        ],
    )


def size(layer: Layer) -> int:
    """The number of weights of a layer."""
    return sum(parameter.data.size for parameter in layer.parameters().values())


def check_stack_size(kind: type[Encoder] | type[Decoder], config: ModelConfig) -> None:
    layer = {Encoder: EncoderLayer, Decoder: DecoderLayer}[kind](config, random(), FLOAT64)
    expected = config.N * size(layer) + (config.norm == "pre") * 2 * config.d_model
    found = size(kind(config, random(), FLOAT64))
    expect(found == expected, f"{found} parameters in {config.N} layers, expected {expected}")


def check_model_size(config: ModelConfig) -> None:
    model = Transformer(config)
    found, in_buffer = size(model), model.store.data.size
    expect(found == in_buffer, f"{found} parameters, {in_buffer} in the flat buffer")
    views = model.store.named_views(model.store.data)
    expect(list(views) == list(model.parameters()), "the flat buffer has other names than the model")
    for name, parameter in model.parameters().items():
        same = np.shares_memory(parameter.data, views[name]) and np.array_equal(parameter.data, views[name])
        expect(same, f"{name} is not in the flat buffer")


def check_tied_embeddings(config: ModelConfig) -> None:
    choices: list[tuple[Literal["all", "target", "none"], int]] = [("all", 1), ("target", 2), ("none", 3)]
    for tied, expected in choices:
        model = Transformer(replace(config, tied=tied))
        target, output = model.target_embedding.weight, model.unembedding.weight
        found = len({id(weight) for weight in (model.source_embedding.weight, target, output)})
        expect(found == expected, f"tied = {tied}: {found} embedding matrices, expected {expected}")
        expect(tied == "none" or target is output, f"tied = {tied}: the output does not use the target embedding")


def check_seed(config: ModelConfig) -> None:
    first, again, other = (Transformer(config, seed).store.data for seed in (1, 1, 2))
    expect(np.array_equal(first, again), "the same seed gives different weights")
    expect(not np.array_equal(first, other), "two seeds give the same weights")
    in_float64 = Transformer(config, 1, FLOAT64).store.data
    expect(np.array_equal(first, in_float64.astype("float32")), "float32 and float64 begin with different weights")


# Initial sizes --------------------------------------------------------------------------------------------------------


@cache
def initial_sizes() -> CodeProbe:
    return CodeProbe(
        "initial sizes",
        "embedded words and logits have variance 1; projections have Glorot's variance; log attention weights have "
        "variance 1 for every d_k; rows after LayerNorm have mean 0 and variance 1",
        "a scale is missing or uses the wrong dimension: sqrt(d_model) in the embedding, 1/sqrt(d_k) in attention; an "
        "initialization with the wrong fan-in; a variance divided by n - 1",
        [
            ("Linear", check_linear_size),
            ("Embedding", check_embedding_size),
            ("Unembedding", check_unembedding_size),
            ("LearnedPositions", check_learned_positions_size),
            ("LayerNorm", check_layer_norm_size),
            ("ScaledDotProductAttention", check_attention_scale),
            ("Transformer", check_first_weights),
        ],
    )


def expect_variance(what: str, x: np.ndarray, expected: float) -> None:
    """Raise CheckFailed unless the variance of x, an array of 10,000 random numbers or more, is the expected one.

    A variance estimated from n numbers has a relative error of sqrt(2 / n), here about 1 %, so a deviation of 10 % is
    not chance. A missing factor causes a larger one.
    """
    found = float(np.var(x))
    expect(abs(found / expected - 1) <= 0.1, f"{what}: variance {found:.3g}, expected {expected:.3g}")


def check_linear_size() -> None:
    expect_variance("weight of 300 x 100", Linear(300, 100, random(), FLOAT64).weight.data, 2 / (300 + 100))


def check_embedding_size() -> None:
    layer = Embedding(Embedding.new_weight(1000, 100, random(), FLOAT64))
    expect_variance("embedded words", layer.forward(np.arange(1, 1000)[None])[0], 1)


def check_unembedding_size() -> None:
    layer = Unembedding(Embedding.new_weight(1000, 100, random(), FLOAT64))
    expect_variance("logits of rows with variance 1", layer.forward(random().normal(size=(50, 100)))[0], 1)


def check_learned_positions_size() -> None:
    weight = LearnedPositions(200, 100, random(), FLOAT64).weight.data
    expect_variance("learned positions of d_model = 100", weight, 1 / 100)


def check_layer_norm_size() -> None:
    y, _ = LayerNorm(16, FLOAT64).forward(3 + 5 * random().normal(size=(B, T, 16)))
    expect_close("mean of a normalized row", y.mean(axis=-1), np.zeros((B, T)))
    expect_close("variance (divided by n) of a normalized row", y.var(axis=-1), np.ones((B, T)), 1e-3)
    layer = with_random_vectors(LayerNorm(16))
    y, _ = layer.forward(np.full((B, 16), 3.0, "float32"))
    expect(np.isfinite(y).all(), "a row of equal numbers gives NaN or infinity: eps belongs under the square root")
    expect(np.array_equal(y, np.tile(layer.beta.data, (B, 1))), "a row of equal numbers does not give beta")


def check_attention_scale() -> None:
    for d_k in (16, 64, 256):
        q, k = random().normal(size=(2, 1, 64, 4, d_k))
        _, cache = ScaledDotProductAttention().forward(q, k, k)
        variance = float(np.log(cache.weights).var(axis=-1).mean())
        # A missing factor changes the variance by a factor of 4 or more.
        problem = f"with d_k = {d_k}, the log attention weights have variance {variance:.3g}, expected about 1"
        expect(0.7 < variance < 1.4, problem)


def check_first_weights() -> None:
    """Check the distribution of every parameter of a new model, by its name."""
    D = 64
    model = Transformer(ModelConfig(vocab_size=500, N=1, d_model=D, d_ff=256, h=4, positions="learned"))
    for name, parameter in model.parameters().items():
        data, kind = parameter.data, name.split(".")[-1]
        if kind in ("bias", "beta", "gamma"):
            expect((data == (kind == "gamma")).all(), f"{name} does not begin with {float(kind == 'gamma')}")
            continue
        expected = D**-0.5 if "embedding" in name or "positions" in name else math.sqrt(2 / sum(data.shape))
        deviation, mean = float(data.std()), abs(float(data.mean()))
        problem = f"{name}: standard deviation {deviation:.4f} and mean {mean:.4f}, expected {expected:.4f} and 0"
        expect(abs(deviation / expected - 1) < 0.02 and mean < 0.01, problem)
        if expected != D**-0.5:  # Glorot's, of the fused shape: uniform
            limit, largest = expected * math.sqrt(3), np.abs(data).max()
            expect(0.99 * limit < largest <= limit, f"{name}: numbers up to {largest:.4f}, expected {limit:.4f}")


# Formulas -------------------------------------------------------------------------------------------------------------


@cache
def formulas() -> CodeProbe:
    return CodeProbe(
        "formulas",
        "each layer's output is what the formula in the paper gives",
        "a transpose, a term or a scale is missing; heads are split or joined in the wrong order; the mask is added "
        "after the softmax; another base or exponent in the positions; queries, keys or values from the wrong side",
        [
            ("Linear", check_linear),
            ("Embedding", check_embedding),
            ("Unembedding", check_unembedding),
            ("PositionalEncoding", check_positional_encoding),
            ("LearnedPositions", check_learned_positions),
            ("TokenTypes", check_token_types),
            ("PatchEmbedding", check_patch_embedding),
            ("ClassToken", check_class_token),
            ("HeadGate", check_head_gate),
            ("LayerNorm", check_layer_norm),
            ("AddNorm", check_add_norm),
            ("FeedForward", check_feed_forward),
            ("ScaledDotProductAttention", check_attention),
            ("ScaledDotProductAttention", check_large_scores),
            ("SelfAttention", check_self_attention),
            ("CrossAttention", check_cross_attention),
            ("GatedAttention", check_gates),
            ("Convolution", partial(check_convolution, Convolution)),
            ("SeparableConvolution", partial(check_convolution, SeparableConvolution)),
            ("RestrictedAttention", check_restricted_attention),
            ("RestrictedSelfAttention", check_restricted_self_attention),
            ("PostNorm", check_post_norm),
            ("PreNorm", check_pre_norm),
        ],
    )


def check_linear() -> None:
    layer, x = with_random_vectors(Linear(D, F, random(), FLOAT64)), random().normal(size=(B, T, D))
    expect_close("x W + b", layer.forward(x)[0], np.einsum("btd,df->btf", x, layer.weight.data) + layer.bias.data)


def check_embedding() -> None:
    layer = Embedding(Embedding.new_weight(V, D, random(), FLOAT64))
    x, _ = layer.forward(np.array([[4, PAD, 4, 7]]))
    E = layer.weight.data
    expect_close("sqrt(d_model) E[ids], 0 for padding", x[0], math.sqrt(D) * np.stack([E[4], 0 * E[4], E[4], E[7]]))


def check_unembedding() -> None:
    layer, y = Unembedding(Embedding.new_weight(V, D, random(), FLOAT64)), random().normal(size=(B, T, D))
    expect_close("y E^T", layer.forward(y)[0], np.einsum("btd,vd->btv", y, layer.weight.data))


def check_positional_encoding() -> None:
    encoding = PositionalEncoding().forward(np.zeros((1, 100, 512)))[0][0]
    for position, i in [(0, 0), (1, 0), (1, 1), (3, 100), (99, 255)]:
        angle = position / 10000 ** (2 * i / 512)
        expect_close(
            f"PE(pos = {position}, channels {2 * i} and {2 * i + 1} of 512)",
            encoding[position, 2 * i : 2 * i + 2],
            np.array([math.sin(angle), math.cos(angle)]),
        )
    later = PositionalEncoding().forward(np.zeros((1, 5, 512)), 7)[0][0]
    expect_close("positions counted from 7", later, encoding[7:12])
    x = random().normal(size=(B, T, 512))
    expect_close("x + PE", PositionalEncoding().forward(x)[0], x + encoding[:T])


def check_learned_positions() -> None:
    layer, x = LearnedPositions(10, D, random(), FLOAT64), random().normal(size=(B, T, D))
    expect_close("x + P", layer.forward(x)[0], x + layer.weight.data[:T])
    expect_close("x + P, positions counted from 3", layer.forward(x, 3)[0], x + layer.weight.data[3 : 3 + T])


def check_token_types() -> None:
    layer, x, types = TokenTypes(D, random(), FLOAT64), random().normal(size=(B, T, D)), np.arange(T) % 2
    y, _ = layer.forward(x, np.broadcast_to(types, (B, T)))
    expect_close("x + G", y, np.where(types[:, None] == 1, x + layer.weight.data[1], x + layer.weight.data[0]))


def check_patch_embedding() -> None:
    layer, images = PatchEmbedding(2, D, random(), FLOAT64), random().normal(size=(B, 4, 6))
    squares = [images[:, top : top + 2, left : left + 2] for top in (0, 2) for left in (0, 2, 4)]
    W = layer.projection.weight.data.reshape(2, 2, D)
    y = np.stack([np.einsum("bij,ijd->bd", square, W) for square in squares], axis=1)
    expect_close("the pixels of each square times W, row by row", layer.forward(images)[0], y)


def check_class_token() -> None:
    layer, x = with_random_vectors(ClassToken(D, FLOAT64)), random().normal(size=(B, T, D))
    y, _ = layer.forward(x)
    expect(y.shape == (B, T + 1, D), f"x has shape {x.shape}, y {y.shape}: one position more is right")
    expect_close("the first position of every sequence", y[:, 0], np.tile(layer.weight.data, (B, 1)))
    expect_close("the positions after it", y[:, 1:], x)


def check_head_gate() -> None:
    layer, heads = HeadGate(np.array([0.5, 0.0, -2.0])), random().normal(size=(B, T, 3, D))
    y, _ = layer.forward(heads)
    expect_close("xi heads", y, np.stack([heads[:, :, 0] / 2, 0 * heads[:, :, 1], -2 * heads[:, :, 2]], axis=2))


def normalized(x: np.ndarray, norm: LayerNorm | AddNorm, eps: float) -> np.ndarray:
    """LayerNorm of x (..., D) by its formula, with gamma and beta of `norm`."""
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return norm.gamma.data * (x - mean) / np.sqrt(variance + eps) + norm.beta.data


def check_layer_norm() -> None:
    layer, x = with_random_vectors(LayerNorm(D, FLOAT64, eps=0.1)), random().normal(size=(B, T, D))
    y, _ = layer.forward(x)
    expect_close("gamma (x - mean) / sqrt(variance + eps) + beta", y, normalized(x, layer, 0.1))


def check_add_norm() -> None:
    layer, (x, update) = with_random_vectors(AddNorm(D, FLOAT64, eps=0.1)), random().normal(size=(2, B, T, D))
    expect_close("LayerNorm(x + update)", layer.forward(x, update)[0], normalized(x + update, layer, 0.1))


def check_feed_forward() -> None:
    layer, x = with_random_vectors(FeedForward(D, F, random(), FLOAT64)), random().normal(size=(B, T, D))
    hidden = np.maximum(x @ layer.inner.weight.data + layer.inner.bias.data, 0)
    y = hidden @ layer.outer.weight.data + layer.outer.bias.data
    expect_close("max(0, x W_1 + b_1) W_2 + b_2", layer.forward(x)[0], y)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Equation 1, one query and one head at a time.

    q (B, T, H, K), k (B, S, H, K), v (B, S, H, d_v), mask (B or 1, 1, T or 1, S), True = may attend -> (B, T, H, d_v)
    """
    y = np.zeros((*q.shape[:-1], v.shape[-1]))
    mask = np.broadcast_to(mask, (q.shape[0], 1, q.shape[1], k.shape[1]))
    for b, t, h in np.ndindex(q.shape[:-1]):
        seen = np.flatnonzero(mask[b, 0, t])
        weights = np.exp(k[b, seen, h] @ q[b, t, h] / math.sqrt(q.shape[-1]))
        y[b, t, h] = weights @ v[b, seen, h] / weights.sum() if len(seen) else 0
    return y


MASKS = [
    ("without a mask", Mask(), T, S),
    ("with padding", Mask(lengths(S)), T, S),
    ("with the causal mask", Mask(causal=True), T, T),
    ("with the causal mask and padding", Mask(lengths(T), causal=True), T, T),
    ("with the causal mask for the last queries of more keys", Mask(causal=True), T, S),
]


def check_attention() -> None:
    for what, mask, t, s in MASKS:
        generator = random()
        q, k, v = (generator.normal(size=shape) for shape in [(B, t, H, D_K), (B, s, H, D_K), (B, s, H, D_V)])
        y, cache = ScaledDotProductAttention().forward(q, k, v, mask)
        only_padding_is_nan = np.isnan(y[1]).any() and np.isfinite(y[[0, 2]]).all()
        expect(not only_padding_is_nan, f"{what}: NaN for a sentence of padding only")
        expect_close(f"softmax(Q K^T / sqrt(d_k)) V, {what}", y, attended(q, k, v, mask.as_array(t, s)))
        may = np.broadcast_to(mask.as_array(t, s), cache.weights.shape)
        expect(
            np.array_equal(cache.weights != 0, may), f"{what}: weights are not exactly 0 where masked, and only there"
        )
        expect_close(f"sum of the weights of a query, {what}", cache.weights.sum(axis=-1), may.any(axis=-1))


def check_large_scores() -> None:
    q, k = 1e3 * random().normal(size=(2, B, T, H, D_K))
    y, _ = ScaledDotProductAttention().forward(q, k, k, Mask(causal=True))
    expect(np.isfinite(y).all(), "large scores overflow: subtract each row's maximum before exp")


def heads(x: np.ndarray, linear: Linear, *widths: int) -> list[np.ndarray]:
    """Compute x W + b and split it into H heads of each width: (B, ., H, width) for each of `widths`."""
    y = x @ linear.weight.data + (linear.bias.data if linear.bias else 0)
    parts = np.split(y, np.cumsum([H * width for width in widths])[:-1], axis=-1)
    return [np.stack(np.split(part, H, axis=-1), axis=2) for part in parts]


def joined(layer: Any, heads: np.ndarray) -> np.ndarray:
    """Concat(head_1, ..., head_h) W_O + b: heads (B, T, H, d_v) -> (B, T, D)"""
    return heads.reshape(*heads.shape[:2], -1) @ layer.output.weight.data + layer.output.bias.data


def check_self_attention() -> None:
    layer, x = with_random_vectors(gradient_cases.self_attention(random(), 0.0)), random().normal(size=(B, S, D))
    q, k, v = heads(x, layer.qkv, D_K, D_K, D_V)
    for what, mask in [("", Mask()), (", with padding", Mask(lengths(S))), (", causal", Mask(causal=True))]:
        y = joined(layer, attended(q, k, v, mask.as_array(S, S)))
        expect_close(f"Concat(head_1, ..., head_h) W_O{what}", layer.forward(x, mask)[0], y)


def check_cross_attention() -> None:
    layer = with_random_vectors(gradient_cases.cross_attention(random(), 0.0))
    x, memory = random().normal(size=(B, T, D)), random().normal(1, 1, size=(B, S, D))
    (q,), (k, v) = heads(x, layer.q, D_K), heads(memory, layer.kv, D_K, D_V)
    for what, mask in [("", Mask()), (", with padding", Mask(lengths(S)))]:
        y = joined(layer, attended(q, k, v, mask.as_array(T, S)))
        found, _ = layer.forward(x, memory, mask)
        expect_close(f"attention with queries from x, keys and values from memory{what}", found, y)


def check_gates() -> None:
    """Open gates change no bit, closed ones leave nothing but the bias of the output, and all go after the block."""
    layer = with_random_vectors(gradient_cases.cross_attention(random(), 0.0))
    x, memory = random().normal(size=(B, T, D)), random().normal(1, 1, size=(B, S, D))
    before, names = layer.forward(x, memory)[0], list(layer.parameters())
    with gated([layer]) as (gate,):
        expect(np.array_equal(layer.forward(x, memory)[0], before), "an open gate changes the output")
        gate.xi.data[...] = 0
        with gated([layer]):  # an open one behind a closed one
            closed = layer.forward(x, memory)[0]
    expect(
        np.array_equal(closed, np.broadcast_to(layer.output.bias.data, closed.shape)), "closed gates leave something"
    )
    same = np.array_equal(layer.forward(x, memory)[0], before) and list(layer.parameters()) == names
    expect(same, "a gate stays after its block")


LONG = 9
WINDOWS = [  # size, dilation, mask -> which positions are read, counted from one's own
    (3, 1, Mask(), [-1, 0, 1]),
    (4, 1, Mask(), [-1, 0, 1, 2]),
    (1, 1, Mask(causal=True), [0]),
    (4, 1, Mask(causal=True), [-3, -2, -1, 0]),
    (3, 2, Mask(), [-2, 0, 2]),
    (2, 3, Mask(), [-1, 2]),
    (3, 3, Mask(causal=True), [-6, -3, 0]),
    (2, LONG, Mask(causal=True), [-LONG, 0]),
]


def check_convolution(kind: type[Convolution] | type[SeparableConvolution]) -> None:
    x = random().normal(size=(2, LONG, D))
    for size, dilation, mask, window in WINDOWS:
        layer: Any = with_random_vectors(kind(D, size, random(), FLOAT64, dilation))
        y, W = np.zeros_like(x), layer.weight.data
        for t, (i, offset) in product(range(LONG), enumerate(window)):
            if 0 <= t + offset < LONG:
                y[:, t] += x[:, t + offset] @ W[i] if kind is Convolution else x[:, t + offset] * W[i]
        if kind is Convolution:
            y += layer.bias.data
        else:
            y = y @ layer.pointwise.weight.data + layer.pointwise.bias.data
        expect_close(f"sum over the window {window} of x W_i", layer.forward(x, mask)[0], y)


def band_masks() -> Iterator[tuple[int, Mask, np.ndarray]]:
    """-> the size of a window, the mask to call a layer with, and which key each query may attend to, as an array"""
    ahead = np.arange(LONG) - np.arange(LONG)[:, None]
    for size, dilation, mask, window in WINDOWS:
        for key_lengths in (None, np.array([LONG, 0, 4])) if dilation == 1 else ():
            mask = mask._replace(key_lengths=key_lengths)
            yield size, mask, mask.as_array(LONG, LONG) & np.isin(ahead, window)


def check_restricted_attention() -> None:
    generator = random()
    q, k, v = (generator.normal(size=(B, LONG, H, width)) for width in (D_K, D_K, D_V))
    for size, mask, may in band_masks():
        y, _ = RestrictedAttention(size).forward(q, k, v, mask)
        expect_close(f"softmax(Q K^T / sqrt(d_k)) V in windows of {size}", y, attended(q, k, v, may))


def check_restricted_self_attention() -> None:
    x = random().normal(size=(B, LONG, D))
    for size, mask, may in band_masks():
        layer = with_random_vectors(RestrictedSelfAttention(D, H, size, random(), FLOAT64, D_K, D_V))
        q, k, v = heads(x, layer.qkv, D_K, D_K, D_V)
        y = joined(layer, attended(q, k, v, may))
        expect_close(f"Concat(head_1, ..., head_h) W_O in windows of {size}", layer.forward(x, mask)[0], y)


def check_post_norm() -> None:
    layer = with_random_vectors(PostNorm(FeedForward(D, F, random(), FLOAT64), SMALL, FLOAT64))
    x = random().normal(size=(B, T, D))
    y = normalized(x + layer.sublayer.forward(x)[0], layer.norm, SMALL.ln_eps)
    expect_close("LayerNorm(x + sublayer(x))", layer.forward(x)[0], y)


def check_pre_norm() -> None:
    layer = with_random_vectors(PreNorm(FeedForward(D, F, random(), FLOAT64), SMALL, FLOAT64))
    x = random().normal(size=(B, T, D))
    y = x + layer.sublayer.forward(normalized(x, layer.norm, SMALL.ln_eps))[0]
    expect_close("x + sublayer(LayerNorm(x))", layer.forward(x)[0], y)
