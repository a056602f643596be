"""Every layer in every situation that has broken a hand-written backward, as one table for `gradcheck`.

Public implementations have been wrong only at B > 1, only for gamma other than 1, only with dropout on, only for tied
weights, only for repeated words or only where logits tie. So all dimensions differ, no vector of parameters keeps its
ones or zeros, one sequence of each padded batch is padding and nothing else, and every case runs with and without
dropout. `scratchformer gradcheck` and the tests run this table.
"""

from __future__ import annotations

import itertools
import math
import re
import traceback
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Iterator, NamedTuple

import numpy as np

from scratchformer.config import ModelConfig, nearest
from scratchformer.errors import UserError, in_one_line
from scratchformer.nn.attention import CrossAttention, Mask, ScaledDotProductAttention, SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import BrokenContract, GradientReport, gradcheck
from scratchformer.nn.head_gate import GatedAttention, HeadGate
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.layers import (
    AddNorm,
    Embedding,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Linear,
    NoPositions,
    PositionalEncoding,
    Unembedding,
)
from scratchformer.nn.llama import AlibiPositions, GroupedQueryAttention, RMSNorm, RotaryPositions, SwiGLU
from scratchformer.nn.loss import Smoothing, batch_loss_backward, cross_entropy
from scratchformer.nn.model import Model
from scratchformer.nn.models import model_class
from scratchformer.nn.next_word import NextWord
from scratchformer.nn.ops import PAD, Ops, using
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Array, Layer, Parameter
from scratchformer.nn.registry import BUILT_IN, REGISTRY, split_name
from scratchformer.nn.residual import PostNorm, PreNorm
from scratchformer.nn.sequence_layers import (
    Convolution,
    RestrictedAttention,
    RestrictedSelfAttention,
    SeparableConvolution,
)
from scratchformer.nn.text_encoder import N_TYPES, TextEncoder, TokenTypes
from scratchformer.nn.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, Transformer
from scratchformer.nn.vision import ClassToken, PatchEmbedding, VisionTransformer

B, T, S, D, H, D_K, D_V, F, V, N = 3, 4, 5, 6, 2, 7, 8, 9, 11, 2
SMALL = ModelConfig(vocab_size=V, N=N, d_model=D, d_ff=F, h=H, d_k=D_K, d_v=D_V, P_drop=0.0, max_positions=10)
FLOAT64 = "float64"
NEAR_THE_KINK = 1e-3
"""Finite differences of max(0, x) mean nothing where a step can cross 0; every ReLU stays this far from it."""


class GradientCase(NamedTuple):
    """One layer in one situation; `make` builds it anew, always the same: layer, inputs of forward, rng of forward."""

    layer: str
    description: str
    make: Callable[[], tuple[Layer, tuple, DropoutKey | None]]


def run(layers: list[str] | None = None, file: str | None = None) -> Iterator[tuple[GradientCase, GradientReport]]:
    """Check the cases of these layers (None: all), one at a time as the caller asks for them.

    file  a user's, whose layers take the place of the library's
    """
    cases = list(own_cases(ModelConfig(defined_in=file), all_layers=True)) if file else CASES
    known = {case.layer for case in cases}
    if not known:
        raise UserError(f"{file}: registers no layers")
    for name in layers or []:
        if name not in known:
            raise UserError(f"no layer {name!r}{nearest(name, sorted(known))}; there are {', '.join(sorted(known))}")
    return ((case, check(case)) for case in cases if layers is None or case.layer in layers)


def check(case: GradientCase) -> GradientReport:
    """Build the case and run `gradcheck` on it."""
    layer, inputs, rng = case.make()
    return gradcheck(layer, *inputs, rng=rng)


# The losses, as layers that the same checker can take -----------------------------------------------------------------


class CrossEntropy(Layer):
    """The label-smoothed cross-entropy of given targets, as a layer of one number.

    forward(logits (B, T, V)) -> loss_sum (), cache
    backward(dloss (), cache) -> dlogits (B, T, V)
    """

    def __init__(self, target_ids: Array, smoothing: float, spread: Smoothing) -> None:
        self.target_ids, self.smoothing, self.spread = target_ids, smoothing, spread

    def forward(self, logits: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        loss_sum, _, dlogits = cross_entropy(logits, self.target_ids, self.smoothing, self.spread)
        return loss_sum.astype(logits.dtype), (dlogits,)

    def backward(self, dloss: Array, cache: Any) -> Array:
        (dlogits,) = cache
        return dloss * dlogits


class ModelLoss(Layer):
    """A whole model and its loss: forward goes through the logits, backward through `batch_loss_backward`.

    forward(*inputs, targets (B, T)) -> loss_sum (), cache
    backward(dloss (), cache) -> None: ids have no gradient
    """

    def __init__(self, model: Model, smoothing: float, spread: Smoothing) -> None:
        self.model, self.smoothing, self.spread = model, smoothing, spread

    def forward(self, *inputs_and_targets: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        *inputs, targets = inputs_and_targets
        logits, _ = self.model.forward(*inputs, rng=rng)
        loss_sum, _, _ = cross_entropy(logits, targets, self.smoothing, self.spread)
        return loss_sum.astype(logits.dtype), (tuple(inputs), targets, rng)

    def backward(self, dloss: Array, cache: Any) -> None:
        inputs, targets, rng = cache
        gradients = [parameter.grad for parameter in self.parameters().values()]
        before = [grad.copy() for grad in gradients]
        batch_loss_backward(self.model, inputs, targets, self.smoothing, rng, self.spread)
        for grad, earlier in zip(gradients, before):
            grad[...] = earlier + dloss * (grad - earlier)  # batch_loss_backward takes dloss to be 1


# The parts of a case --------------------------------------------------------------------------------------------------

Build = Callable[[np.random.Generator, float], tuple]
"""(random, dropout) -> layer, *inputs"""


def make(build: Build, dropout: float, first: int = 0) -> tuple[Layer, tuple, DropoutKey | None]:
    """Build the case from the first seed, from `first` on, that keeps every ReLU away from its kink."""
    rng = DropoutKey(seed=1, step=2, shard=3, site=4) if dropout else None
    for seed in itertools.count(first):
        random = np.random.default_rng(seed)
        layer, *inputs = build(random, dropout)
        with_random_vectors(layer, random)
        if distance_to_kink(layer, inputs, rng) > NEAR_THE_KINK:
            return layer, tuple(inputs), rng
    raise AssertionError("unreachable: the seeds do not end")


def with_random_vectors(layer: Any, random: np.random.Generator) -> Any:
    """Change every gamma, beta and bias of a new layer. Returns the layer."""
    for parameter in layer.parameters().values():
        if parameter.data.ndim == 1:
            parameter.data += 0.5 * random.standard_normal(parameter.shape)
    return layer


class ReluWatch(Ops):
    """The NumPy operations, which remember how close to 0 the input of any ReLU came."""

    nearest = math.inf

    def relu(self, x: Array) -> Array:
        self.nearest = min(self.nearest, float(np.abs(x).min()))
        return super().relu(x)


def distance_to_kink(layer: Layer, inputs: list, rng: DropoutKey | None) -> float:
    """The smallest |input| of any ReLU in forward; infinity without a ReLU."""
    watch = ReluWatch(np)
    with using(watch):
        layer.forward(*inputs, rng=rng)
    return watch.nearest


def lengths(longest: int) -> np.ndarray:
    """Of the B sequences of a padded batch: a full one, one that is padding only, a short one."""
    return np.array([longest, 0, 2])


def padded_ids(random: np.random.Generator, longest: int) -> np.ndarray:
    """(B, longest) int: few different words, so that some come twice, and padding."""
    ids = random.integers(1, V // 2, (B, longest))
    ids[np.arange(longest) >= lengths(longest)[:, None]] = PAD
    return ids


def one_word(random: np.random.Generator) -> np.ndarray:
    """(1, 1) int"""
    return random.integers(1, V, (1, 1))


def word_vectors(random: np.random.Generator) -> Parameter:
    return Embedding.new_weight(V, D, random, FLOAT64)


def tied_logits(random: np.random.Generator) -> np.ndarray:
    """(B, T, V) of a few values only, so that the largest logit and the target's logit have equals; one row is flat."""
    logits = np.round(random.standard_normal((B, T, V)))
    logits[0, 0] = 0
    return logits


def small(dropout: float, **changes: Any) -> ModelConfig:
    """The configuration of the cases, with this rate at every place that can drop."""
    return replace(SMALL, P_drop=dropout, attention_dropout=dropout, relu_dropout=dropout, **changes)


def learned_positions(random: np.random.Generator, dropout: float) -> LearnedPositions:
    return LearnedPositions(S, D, random, FLOAT64, dropout)


def self_attention(random: np.random.Generator, dropout: float, h: int = H, bias: bool = True) -> SelfAttention:
    """A small SelfAttention in float64, with this dropout on the attention weights."""
    return SelfAttention(D, h, random, FLOAT64, D_K, D_V, bias, dropout)


def cross_attention(random: np.random.Generator, dropout: float, h: int = H, bias: bool = True) -> CrossAttention:
    """A small CrossAttention in float64, with this dropout on the attention weights."""
    return CrossAttention(D, h, random, FLOAT64, D_K, D_V, bias, dropout)


def head_gate(random: np.random.Generator, dropout: float, h: int = H) -> HeadGate:
    return HeadGate(random.standard_normal(h))


def gated_attention(random: np.random.Generator, dropout: float) -> GatedAttention:
    return GatedAttention(ScaledDotProductAttention(dropout), head_gate(random, dropout))


def on(layer: Callable[[np.random.Generator, float], Layer], *inputs: Any) -> Build:
    """The layer that this builds, on random inputs of these shapes. What is not a shape is passed on as it is."""
    return lambda random, dropout: (
        layer(random, dropout),
        *(random.normal(size=value) if type(value) is tuple else value for value in inputs),
    )


def dot_product_attention(b: int, t: int, s: int, h: int, mask: Mask) -> Build:
    return on(lambda r, P: ScaledDotProductAttention(P), (b, t, h, D_K), (b, s, h, D_K), (b, s, h, D_V), mask)


def convolution(
    kind: type[Convolution] | type[SeparableConvolution], shape: tuple, mask: Mask, k: int, dilation: int = 1
) -> Build:
    """A convolution of one of the two kinds."""
    return on(lambda r, P: kind(D, k, r, FLOAT64, dilation), shape, mask)


def restricted_attention(b: int, t: int, h: int, mask: Mask, r: int) -> Build:
    return on(lambda _, P: RestrictedAttention(r), (b, t, h, D_K), (b, t, h, D_K), (b, t, h, D_V), mask)


def restricted_self_attention(shape: tuple, mask: Mask, r: int, bias: bool = True) -> Build:
    return on(lambda init, P: RestrictedSelfAttention(D, H, r, init, FLOAT64, D_K, D_V, bias), shape, mask)


def next_word(k: list[list[int]], s: int) -> Build:
    """A NextWord that has read k tags at each position, with sources of up to s words."""
    shape = len(k), len(k[0])
    return lambda random, dropout: (
        NextWord(3),
        random.normal(size=(*shape, D)),
        random.normal(size=(len(k), s, D)),
        np.array(k),
        Mask(lengths(s)[: len(k)]),
    )


def around_feed_forward(kind: type[PostNorm] | type[PreNorm]) -> Build:
    return on(lambda r, P: kind(FeedForward(D, F, r, FLOAT64, P), small(P), FLOAT64), (B, T, D))


def around_cross_attention(kind: type[PostNorm] | type[PreNorm]) -> Build:
    inputs = (B, T, D), (B, S, D), Mask(lengths(S))
    return on(lambda r, P: kind(cross_attention(r, P), small(P), FLOAT64), *inputs)


def encoder(kind: type[EncoderLayer] | type[Encoder], **changes: Any) -> Build:
    """An EncoderLayer or Encoder on a padded batch."""
    return on(lambda r, P: kind(small(P, **changes), r, FLOAT64), (B, S, D), Mask(lengths(S)))


def decoder(kind: type[DecoderLayer] | type[Decoder], **changes: Any) -> Build:
    """A DecoderLayer or Decoder on a padded batch."""
    inputs = (B, T, D), (B, S, D), Mask(lengths(T), causal=True), Mask(lengths(S))
    return on(lambda r, P: kind(small(P, **changes), r, FLOAT64), *inputs)


def transformer(**changes: Any) -> Build:
    """A small model in float64 on a padded batch; `changes` are settings of `ModelConfig`."""
    return lambda random, dropout: (
        Transformer(small(dropout, **changes), int(random.integers(99)), FLOAT64),
        padded_ids(random, S),
        padded_ids(random, T),
    )


def language_model(**changes: Any) -> Build:
    """A small LanguageModel in float64 on a padded batch; `changes` are settings of `ModelConfig`."""
    return lambda random, dropout: (
        LanguageModel(small(dropout, architecture="decoder", **changes), int(random.integers(99)), FLOAT64),
        padded_ids(random, T),
    )


GPT2 = {"norm": "pre", "positions": "learned", "feed_forward": "gelu"}
"""The layout of GPT-2."""

LLAMA = {
    "norm": "rms",
    "feed_forward": "swiglu",
    "positions": "rotary",
    "h": 4,
    "h_kv": 2,
    "d_k": 6,
    "attention_bias": False,
}
"""The block of 2026."""


def grouped_attention(**changes: Any) -> Build:
    """A GroupedQueryAttention with a causal mask on a padded batch; `changes` are settings beside LLAMA."""
    kind = GroupedQueryAttention
    return on(lambda r, P: kind(small(P, **LLAMA | changes), r, FLOAT64), (B, T, D), Mask(lengths(T), causal=True))


def token_types(random: np.random.Generator, shape: tuple[int, int] = (B, S)) -> np.ndarray:
    """(B, S) int: tokens of both segments, in any order."""
    return random.integers(0, N_TYPES, shape)


def text_encoder(**changes: Any) -> Build:
    """A small TextEncoder in float64 on a padded batch of two segments; `changes` are settings of `ModelConfig`."""
    return lambda random, dropout: (
        TextEncoder(small(dropout, architecture="encoder", **changes), int(random.integers(99)), FLOAT64),
        padded_ids(random, S),
        token_types(random),
    )


def patches(patch_size: int, *shape: int) -> Build:
    return on(lambda r, P: PatchEmbedding(patch_size, D, r, FLOAT64), shape)


def vision(count: int, image_size: int = 6, **changes: Any) -> Build:
    """A small VisionTransformer in float64 on this many images: whole numbers, which have no gradient."""
    sizes: dict[str, Any] = {
        "architecture": "vision",
        "n_classes": 3,
        "image_size": image_size,
        "feed_forward": "gelu",
    } | changes
    return lambda random, dropout: (
        VisionTransformer(small(dropout, **sizes), int(random.integers(99)), FLOAT64),
        random.integers(0, 5, (count, image_size, image_size)),
    )


def vision_loss(random: np.random.Generator, dropout: float) -> tuple:
    model, images = vision(B, norm="pre")(random, dropout)
    return ModelLoss(model, 0.1, "others"), images, np.array([[2], [PAD], [3]])


def cross_entropy_of(smoothing: float, spread: Smoothing) -> Build:
    return lambda random, dropout: (CrossEntropy(padded_ids(random, T), smoothing, spread), tied_logits(random))


def transformer_loss(adam_steps: int = 0, spread: Smoothing = "others", **changes: Any) -> Build:
    """The loss of a Transformer at its first weights, or after some steps of training."""
    return model_loss(transformer(**changes), adam_steps, spread)


def model_loss(model_and_inputs: Build, adam_steps: int = 0, spread: Smoothing = "others") -> Build:
    """The loss of a whole model whose targets are its last input, rolled; after some steps of training, or none."""

    def build(random: np.random.Generator, dropout: float) -> tuple:
        model, *inputs = model_and_inputs(random, dropout)
        targets = np.roll(inputs[-1], 1, axis=-1)  # padding before a target is no harm
        adam = Adam(model)
        for step in range(1, adam_steps + 1):
            model.zero_grad()
            batch_loss_backward(model, tuple(inputs), targets, 0.1, DropoutKey(seed=5, step=step), spread)
            adam.step(0.01)
        return ModelLoss(model, 0.1, spread), *inputs, targets

    return build


# The table ------------------------------------------------------------------------------------------------------------

TABLE: list[tuple[type[Layer], str, Build]] = [
    (Linear, "a batch of sequences", on(lambda r, P: Linear(D, F, r, FLOAT64), (B, T, D))),
    (Linear, "square, no bias", on(lambda r, P: Linear(D, D, r, FLOAT64, bias=False), (B, D))),
    (Linear, "B = T = 1", on(lambda r, P: Linear(D, F, r, FLOAT64), (1, 1, D))),
    (Embedding, "repeated words and padding", lambda r, P: (Embedding(word_vectors(r)), padded_ids(r, T))),
    (Embedding, "B = T = 1", lambda r, P: (Embedding(word_vectors(r)), one_word(r))),
    (Unembedding, "a batch of sequences", on(lambda r, P: Unembedding(word_vectors(r)), (B, T, D))),
    (PositionalEncoding, "from the start", on(lambda r, P: PositionalEncoding(P), (B, T, D))),
    (PositionalEncoding, "one later position, B = 1", on(lambda r, P: PositionalEncoding(P), (1, 1, D), 3)),
    (LearnedPositions, "from the start", on(learned_positions, (B, T, D))),
    (LearnedPositions, "the last position, B = 1", on(learned_positions, (1, 1, D), S - 1)),
    (LayerNorm, "far from mean 0", lambda r, P: (LayerNorm(D, FLOAT64), 5 + r.normal(size=(B, T, D)))),
    (LayerNorm, "eps as large as the variance", on(lambda r, P: LayerNorm(D, FLOAT64, eps=1.0), (B, D))),
    (LayerNorm, "B = T = 1", on(lambda r, P: LayerNorm(D, FLOAT64), (1, 1, D))),
    (AddNorm, "a batch of sequences", on(lambda r, P: AddNorm(D, FLOAT64, P_drop=P), (B, T, D), (B, T, D))),
    (AddNorm, "B = T = 1", on(lambda r, P: AddNorm(D, FLOAT64, P_drop=P), (1, 1, D), (1, 1, D))),
    (FeedForward, "a batch of sequences", on(lambda r, P: FeedForward(D, F, r, FLOAT64, P), (B, T, D))),
    (FeedForward, "GELU", on(lambda r, P: FeedForward(D, F, r, FLOAT64, P, "gelu"), (B, T, D))),
    (FeedForward, "B = T = 1", on(lambda r, P: FeedForward(D, F, r, FLOAT64, P), (1, 1, D))),
    (RMSNorm, "far from mean 0", lambda r, P: (RMSNorm(D, FLOAT64), 5 + r.normal(size=(B, T, D)))),
    (RMSNorm, "eps as large as the mean square", on(lambda r, P: RMSNorm(D, FLOAT64, eps=1.0), (B, D))),
    (RMSNorm, "B = T = 1", on(lambda r, P: RMSNorm(D, FLOAT64), (1, 1, D))),
    (SwiGLU, "a batch of sequences", on(lambda r, P: SwiGLU(D, F, r, FLOAT64, P), (B, T, D))),
    (SwiGLU, "B = T = 1", on(lambda r, P: SwiGLU(D, F, r, FLOAT64, P), (1, 1, D))),
    (NoPositions, "a batch of sequences", on(lambda r, P: NoPositions(P), (B, T, D))),
    (RotaryPositions, "heads of q and k", on(lambda r, P: RotaryPositions(6), (B, T, H + 1, 6))),
    (RotaryPositions, "one later position, B = 1", on(lambda r, P: RotaryPositions(6), (1, 1, 2, 6), 3)),
    (AlibiPositions, "heads of q and k", on(lambda r, P: AlibiPositions(D_K, H), (B, T, H + 1, D_K))),
    (AlibiPositions, "one later position, B = 1", on(lambda r, P: AlibiPositions(D_K, 1), (1, 1, 2, D_K), 3)),
    (ScaledDotProductAttention, "all see all, T != S", dot_product_attention(B, T, S, H, Mask())),
    (ScaledDotProductAttention, "ragged padding", dot_product_attention(B, T, S, H, Mask(lengths(S)))),
    (ScaledDotProductAttention, "causal", dot_product_attention(B, T, T, H, Mask(causal=True))),
    (
        ScaledDotProductAttention,
        "causal, the last queries of more keys",
        dot_product_attention(B, T, S, H, Mask(causal=True)),
    ),
    (
        ScaledDotProductAttention,
        "causal and ragged padding",
        dot_product_attention(B, T, T, H, Mask(lengths(T), causal=True)),
    ),
    (ScaledDotProductAttention, "T = 1", dot_product_attention(B, 1, S, H, Mask(lengths(S)))),
    (ScaledDotProductAttention, "B = H = 1", dot_product_attention(1, T, S, 1, Mask())),
    (SelfAttention, "ragged padding", on(self_attention, (B, S, D), Mask(lengths(S)))),
    (SelfAttention, "causal and ragged padding", on(self_attention, (B, T, D), Mask(lengths(T), causal=True))),
    (SelfAttention, "no bias", on(partial(self_attention, bias=False), (B, T, D))),
    (SelfAttention, "B = T = H = 1", on(partial(self_attention, h=1), (1, 1, D))),
    (CrossAttention, "ragged padding, T != S", on(cross_attention, (B, T, D), (B, S, D), Mask(lengths(S)))),
    (CrossAttention, "no bias, T = 1", on(partial(cross_attention, bias=False), (B, 1, D), (B, S, D))),
    (CrossAttention, "B = H = 1", on(partial(cross_attention, h=1), (1, T, D), (1, S, D))),
    (GroupedQueryAttention, "rotary, two queries for each head of keys", grouped_attention()),
    (
        GroupedQueryAttention,
        "ALiBi, one head of keys, bias",
        grouped_attention(positions="alibi", h_kv=1, attention_bias=True, architecture="decoder"),
    ),
    (GroupedQueryAttention, "sinusoids outside", grouped_attention(positions="sinusoidal")),
    (HeadGate, "a batch of sequences", on(head_gate, (B, T, H, D_V))),
    (HeadGate, "B = T = H = 1", on(partial(head_gate, h=1), (1, 1, 1, D_V))),
    (
        GatedAttention,
        "ragged padding",
        on(gated_attention, (B, T, H, D_K), (B, S, H, D_K), (B, S, H, D_V), Mask(lengths(S))),
    ),
    (Convolution, "ragged padding", convolution(Convolution, (B, S, D), Mask(lengths(S)), k=3)),
    (
        Convolution,
        "even k, dilated, causal and ragged padding",
        convolution(Convolution, (B, S, D), Mask(lengths(S), causal=True), k=2, dilation=3),
    ),
    (Convolution, "k > T, dilation > T", convolution(Convolution, (B, T, D), Mask(), k=5, dilation=T + 1)),
    (Convolution, "B = T = 1", convolution(Convolution, (1, 1, D), Mask(), k=3)),
    (
        SeparableConvolution,
        "even k, dilated, ragged padding",
        convolution(SeparableConvolution, (B, S, D), Mask(lengths(S)), k=2, dilation=3),
    ),
    (SeparableConvolution, "causal, k > T", convolution(SeparableConvolution, (B, T, D), Mask(causal=True), k=5)),
    (SeparableConvolution, "B = T = 1", convolution(SeparableConvolution, (1, 1, D), Mask(), k=3)),
    (RestrictedAttention, "ragged padding", restricted_attention(B, S, H, Mask(lengths(S)), r=3)),
    (RestrictedAttention, "causal and ragged padding", restricted_attention(B, S, H, Mask(lengths(S), True), r=2)),
    (RestrictedAttention, "itself alone, B = H = 1", restricted_attention(1, T, 1, Mask(), r=1)),
    (RestrictedSelfAttention, "even r, ragged padding", restricted_self_attention((B, S, D), Mask(lengths(S)), r=4)),
    (RestrictedSelfAttention, "causal, no bias", restricted_self_attention((B, S, D), Mask(causal=True), 3, False)),
    (RestrictedSelfAttention, "r > T = B = 1", restricted_self_attention((1, 1, D), Mask(), r=3)),
    (PostNorm, "around feed-forward", around_feed_forward(PostNorm)),
    (PostNorm, "around cross-attention", around_cross_attention(PostNorm)),
    (PreNorm, "around feed-forward", around_feed_forward(PreNorm)),
    (PreNorm, "around cross-attention", around_cross_attention(PreNorm)),
    (
        PreNorm,
        "RMSNorm",
        on(lambda r, P: PreNorm(FeedForward(D, F, r, FLOAT64, P), small(P, norm="rms"), FLOAT64), (B, T, D)),
    ),
    (NextWord, "ragged padding, more tags than words", next_word([[0, 1, 1, 4], [0, 0, 1, 2], [0, 1, 2, 3]], S)),
    (NextWord, "B = T = S = 1", next_word([[1]], 1)),
    (EncoderLayer, "post-norm", encoder(EncoderLayer)),
    (EncoderLayer, "pre-norm, no attention bias", encoder(EncoderLayer, norm="pre", attention_bias=False)),
    (EncoderLayer, "the block of 2026", encoder(EncoderLayer, **LLAMA)),
    (DecoderLayer, "post-norm", decoder(DecoderLayer)),
    (DecoderLayer, "pre-norm, one head", decoder(DecoderLayer, norm="pre", h=1)),
    (Encoder, "post-norm", encoder(Encoder)),
    (Encoder, "pre-norm", encoder(Encoder, norm="pre")),
    (Decoder, "post-norm", decoder(Decoder)),
    (Decoder, "pre-norm", decoder(Decoder, norm="pre")),
    (Transformer, "post-norm, three embeddings tied", transformer()),
    (Transformer, "pre-norm, target embeddings tied", transformer(norm="pre", tied="target")),
    (
        Transformer,
        "nothing tied, learned positions, no attention bias",
        transformer(tied="none", positions="learned", attention_bias=False),
    ),
    (Transformer, "pre-norm, told the next word", transformer(norm="pre", n_tags=3)),
    (Transformer, "the block of 2026", transformer(**LLAMA)),
    (
        Transformer,
        "B = T = S = N = H = 1",
        lambda r, P: (Transformer(small(P, N=1, h=1), dtype=FLOAT64), one_word(r), one_word(r)),
    ),
    (LanguageModel, "post-norm", language_model()),
    (LanguageModel, "GPT-2's layout", language_model(**GPT2)),
    (LanguageModel, "the block of 2026", language_model(**LLAMA)),
    (LanguageModel, "ALiBi", language_model(positions="alibi")),
    (LanguageModel, "nothing tied, no attention bias", language_model(tied="none", attention_bias=False)),
    (
        LanguageModel,
        "B = T = N = H = 1",
        lambda r, P: (LanguageModel(small(P, architecture="decoder", N=1, h=1), dtype=FLOAT64), one_word(r)),
    ),
    (
        TokenTypes,
        "types that repeat",
        lambda r, P: (TokenTypes(D, r, FLOAT64), r.normal(size=(B, S, D)), token_types(r)),
    ),
    (
        TokenTypes,
        "B = T = 1",
        lambda r, P: (TokenTypes(D, r, FLOAT64), r.normal(size=(1, 1, D)), token_types(r, (1, 1))),
    ),
    (TextEncoder, "post-norm", text_encoder()),
    (TextEncoder, "pre-norm, learned positions, not tied", text_encoder(norm="pre", positions="learned", tied="none")),
    (TextEncoder, "two classes", text_encoder(n_classes=2)),
    (
        TextEncoder,
        "B = T = N = H = 1",
        lambda r, P: (TextEncoder(small(P, N=1, h=1), dtype=FLOAT64), one_word(r), token_types(r, (1, 1))),
    ),
    (PatchEmbedding, "4 x 6 pixels", patches(2, B, 4, 6)),
    (PatchEmbedding, "B = 1, one patch", patches(3, 1, 3, 3)),
    (ClassToken, "a batch of sequences", on(lambda r, P: ClassToken(D, FLOAT64), (B, T, D))),
    (ClassToken, "B = T = 1", on(lambda r, P: ClassToken(D, FLOAT64), (1, 1, D))),
    (VisionTransformer, "pre-norm, learned positions", vision(B, norm="pre", positions="learned")),
    (VisionTransformer, "post-norm, B = N = H = 1, one patch", vision(1, N=1, h=1, image_size=2)),
    (CrossEntropy, "no smoothing", cross_entropy_of(0.0, "others")),
    (CrossEntropy, "smoothing spread over the others", cross_entropy_of(0.1, "others")),
    (CrossEntropy, "smoothing spread over all", cross_entropy_of(0.1, "uniform")),
    (ModelLoss, "post-norm", transformer_loss()),
    (ModelLoss, "pre-norm, smoothing spread over all", transformer_loss(norm="pre", spread="uniform")),
    (ModelLoss, "after three steps of Adam", transformer_loss(adam_steps=3)),
    (ModelLoss, "told the next word", transformer_loss(n_tags=3)),
    (ModelLoss, "VisionTransformer", vision_loss),
    (ModelLoss, "TextEncoder, targets at some positions", model_loss(text_encoder(feed_forward="gelu"))),
    (ModelLoss, "language model, after three steps of Adam", model_loss(language_model(**GPT2), adam_steps=3)),
    (ModelLoss, "the block of 2026, after three steps of Adam", model_loss(language_model(**LLAMA), adam_steps=3)),
]


def case(kind: type[Layer], description: str, build: Build, dropout: float) -> GradientCase:
    """A row of TABLE with this dropout."""
    return GradientCase(kind.__name__, f"{description}, dropout {dropout}", lambda: make(build, dropout))


CASES: list[GradientCase] = [case(*row, dropout) for row in TABLE for dropout in (0.0, 0.3)]


# Layers of the user's -------------------------------------------------------------------------------------------------

INPUTS: dict[str, tuple] = {"attention": (Mask(np.array([T, 2, 1]), causal=True),), "positions": (0,)}
"""Kind of layer -> what its forward takes beside the vectors."""

MODELS: dict[str, Callable[..., Build]] = {
    "encoder-decoder": transformer,
    "decoder": language_model,
    "encoder": text_encoder,
    "vision": partial(vision, B),
}
"""Architecture -> a model of it with its inputs."""

OWN_SIZES: dict[str, Any] = {
    **{"vocab_size": V, "N": 1, "d_model": 8, "d_ff": 12, "h": 2, "h_kv": 0, "d_k": None, "d_v": None},
    **{"max_positions": 10, "image_size": 6, "patch_size": 2, "target_vocab_size": 0},
}


def own_cases(config: ModelConfig, all_layers: bool = False, seed: int = 0) -> Iterator[GradientCase]:
    """The user's layers that the configuration chooses, or all of them, and a model of the user's, at small sizes."""

    def sizes(dropout: float) -> ModelConfig:
        rates: dict[str, Any] = dict.fromkeys(("P_drop", "attention_dropout", "relu_dropout"), dropout)
        return replace(config, **OWN_SIZES, **rates)

    def layer(factory: Any, random: np.random.Generator, dropout: float) -> Layer:
        return factory(sizes(dropout), random, FLOAT64)

    def model(random: np.random.Generator, dropout: float) -> tuple:
        _, *inputs = MODELS[config.architecture]()(random, dropout)
        return kind(sizes(dropout), seed, FLOAT64), *(each[::2] for each in inputs)  # without the empty sequence

    kind = model_class(config)  # runs the user's file
    builds: list[tuple[str, Build]] = [
        (
            factory.__name__ if isinstance(factory, type) else name,
            on(partial(layer, factory), (B, T, 8), *INPUTS.get(part, ())),
        )
        for part, names in REGISTRY.items()
        for name, factory in names.items()
        if name not in BUILT_IN[part] and (all_layers or getattr(config, part) == name)
    ]
    if split_name(config.defined_in)[1]:
        builds.append((kind.__name__, model))
    for name, build in builds:
        for dropout in (0.0, 0.3):
            yield GradientCase(name, f"dropout {dropout}", partial(make, build, dropout, 100 * seed))


def check_own(config: ModelConfig) -> list[str]:
    """Refuse layers of the user's whose backward is wrong -> a line for each that could not be checked

    Two seeds must say so: near the kink of a ReLU, finite differences mean nothing.
    """
    file, remarks = config.defined_in, list[str]()
    if file and not any(own_cases(config, all_layers=True)):
        raise UserError(f"{file}: registers no layers (sf.register); a model of yours is {file}:CLASS")
    for first, second in zip(own_cases(config), own_cases(config, seed=1)):
        where = f"{split_name(file)[0]}: {first.layer}" if file else first.layer
        try:
            report = check(first)
            report = report if report.passed else check(second)
            if not report.passed and not math.isfinite(report.worst.numeric):
                raise ValueError("at a small size, its output is not finite")
        except BrokenContract as error:
            raise UserError(f"{where}: {error}") from error
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            on_purpose = re.search(r"\b(raise|assert)\b", frames[-1].line or "")  # a size that the layer does not take
            if not on_purpose or isinstance(error, NotImplementedError):
                last = ([frame for frame in frames if frame.filename == str(split_name(file)[0])] or frames)[-1]
                where = f"{last.filename}, line {last.lineno}: {first.layer}"
                small = "the check takes d_model=8, d_ff=12, h=2, and a layer for other sizes may raise ValueError"
                raise UserError(f"{where}: {type(error).__name__}: {in_one_line(error)}; {small}") from error
            remarks.append(f"{where}: gradients were not checked: {in_one_line(error)}")
            continue
        if not report.passed:
            worst = report.worst
            found = report.reason or f"backward is wrong for {worst.name} (relative error {worst.error:.1e})"
            raise UserError(f"{where}: {found}; `sf.gradcheck` shows all")
    return list(dict.fromkeys(remarks))
