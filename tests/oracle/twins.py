"""The twin of each of our layers, assembled from torch.nn: another library's arithmetic, and autograd for backward.

A twin is called as our layer is, on tensors, but takes no `rng`: where our layer has drawn a dropout mask, the twin is
given it (`Dropout`). Masks, positions and smoothed targets are written here a second time, from the paper and not from
our code, since a helper that both share would be wrong in both.

Parameters are named as in docs/names.md. One thing differs: the weight of an nn.Linear is (out, in), ours is (in, out);
`weights` and `gradients` show both in our layout.
"""

import cmath
import math
import warnings

import torch
import torch.nn.functional as F
from torch import nn

from scratchformer.nn import (
    attention,
    gradient_cases,
    head_gate,
    language_model,
    layers,
    llama,
    next_word,
    sequence_layers,
    text_encoder,
    transformer,
    vision,
)
from scratchformer.nn.attention import Mask
from scratchformer.nn.residual import PostNorm as OurPostNorm
from scratchformer.nn.residual import PreNorm as OurPreNorm

PAD = 0

# One position at a time -----------------------------------------------------------------------------------------------


class Dropout(nn.Module):
    """Drops what our layer has dropped: `kept` is its mask, None where it has dropped nothing."""

    def __init__(self, P_drop=0.0):
        super().__init__()
        self.P_drop = round(P_drop * 2**16) / 2**16  # a decision spends 16 random bits
        self.kept = None

    def forward(self, x):
        return x if self.kept is None else x * self.kept / (1 - self.P_drop)


class Embedding(nn.Embedding):
    """sqrt(d_model) E[ids], zeros for padding."""

    def forward(self, ids):
        return math.sqrt(self.embedding_dim) * super().forward(ids) * ids.ne(PAD)[..., None]


class Unembedding(nn.Module):
    """The product with every row of an embedding, whose matrix it may share."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, y):
        return F.linear(y, self.weight)


class PositionalEncoding(nn.Module):
    def __init__(self, P_drop=0.0):
        super().__init__()
        self.dropout = Dropout(P_drop)

    def forward(self, x, first=0):
        return self.dropout(x + sinusoids(first, *x.shape[1:]).to(x.dtype))


def sinusoids(first, count, d_model):
    """Paper §3.5: channels 2i and 2i + 1 are sine and cosine of an angle that is slower by 10000^(2 / d_model) than
    that of the pair before. -> (count, d_model) float64"""
    speed = 10000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.outer(torch.arange(first, first + count, dtype=torch.float64), speed)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :d_model]


class LearnedPositions(nn.Embedding):
    def __init__(self, max_positions, d_model, P_drop=0.0):
        super().__init__(max_positions, d_model)
        self.dropout = Dropout(P_drop)

    def forward(self, x, first=0):
        return self.dropout(x + super().forward(torch.arange(first, first + x.shape[1])))


class LayerNorm(nn.Module):
    def __init__(self, d_model, eps):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x):
        return F.layer_norm(x, self.gamma.shape, self.gamma, self.beta, self.eps)


class AddNorm(LayerNorm):
    def __init__(self, d_model, eps, P_drop=0.0):
        super().__init__(d_model, eps)
        self.dropout = Dropout(P_drop)

    def forward(self, x, update):
        return super().forward(x + self.dropout(update))


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff, relu_dropout=0.0, activation="relu"):
        super().__init__()
        self.activation = {"relu": torch.relu, "gelu": lambda x: F.gelu(x, approximate="tanh")}[activation]
        self.inner, self.outer = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.dropout = Dropout(relu_dropout)

    def forward(self, x):
        return self.outer(self.dropout(self.activation(self.inner(x))))


class RMSNorm(nn.RMSNorm):
    def __init__(self, d_model, eps):
        super().__init__(d_model, eps, elementwise_affine=False)
        self.gamma = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return super().forward(x) * self.gamma


class SwiGLU(nn.Module):
    def __init__(self, d_model, d_ff, hidden_dropout=0.0):
        super().__init__()
        self.inner, self.outer = nn.Linear(d_model, 2 * d_ff, bias=False), nn.Linear(d_ff, d_model, bias=False)
        self.dropout = Dropout(hidden_dropout)

    def forward(self, x):
        gate, value = self.inner(x).chunk(2, dim=-1)
        return self.outer(self.dropout(F.silu(gate) * value))


# Attention ------------------------------------------------------------------------------------------------------------


def may_attend(mask, T, S):
    """bool (B or 1, 1, T, S): nobody attends to padding; with `causal`, the last query sees all keys, each query before
    it one key less."""
    may = torch.ones(1, 1, T, S, dtype=torch.bool)
    if mask.causal:
        may = may.tril(S - T)
    if mask.key_lengths is not None:
        lengths = torch.tensor([int(length) for length in mask.key_lengths])  # an array or a tensor
        may = may & (torch.arange(S) < lengths[:, None])[:, None, None, :]
    return may


class ScaledDotProductAttention(nn.Module):
    """q (B, T, H, d_k), k (B, S, H, d_k), v (B, S, H, d_v) -> y (B, T, H, d_v)"""

    def __init__(self, attention_dropout=0.0):
        super().__init__()
        self.dropout = Dropout(attention_dropout)

    def forward(self, q, k, v, mask=Mask()):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B, H, ., .)
        T, S = q.shape[2], k.shape[2]
        # With the identity in place of the values, torch's attention returns its weights, to be thinned out.
        weights = F.scaled_dot_product_attention(q, k, torch.eye(S, dtype=q.dtype), may_attend(mask, T, S))
        return (self.dropout(weights) @ v).transpose(1, 2)


class HeadGate(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.xi = nn.Parameter(torch.ones(h))

    def forward(self, heads):
        return torch.einsum("bthk,h->bthk", heads, self.xi)


class GatedAttention(nn.Module):
    def __init__(self, h, attention_dropout):
        super().__init__()
        self.attention, self.gate = ScaledDotProductAttention(attention_dropout), HeadGate(h)

    def forward(self, q, k, v, mask):
        return self.gate(self.attention(q, k, v, mask))


class MultiHeadAttention(nn.Module):
    """The base of SelfAttention and CrossAttention: the heads lie side by side in the columns of a projection."""

    def __init__(self, d_model, h, d_k, d_v, bias=True, attention_dropout=0.0):
        super().__init__()
        self.h, self.d_k, self.d_v = h, d_k, d_v
        self.add_projections(d_model, bias)
        self.output = nn.Linear(h * d_v, d_model, bias)
        self.attention = ScaledDotProductAttention(attention_dropout)

    def attend(self, q, k, v, mask):
        q, k, v = (torch.stack(x.chunk(self.h, dim=-1), dim=2) for x in (q, k, v))  # (B, ., H, .)
        heads = self.attention(q, k, v, mask).unbind(dim=2)
        return self.output(torch.cat(heads, dim=-1))


class SelfAttention(MultiHeadAttention):
    def add_projections(self, d_model, bias):
        self.qkv = nn.Linear(d_model, self.h * (2 * self.d_k + self.d_v), bias)

    def forward(self, x, mask=Mask()):
        q, k, v = self.qkv(x).split([self.h * self.d_k, self.h * self.d_k, self.h * self.d_v], dim=-1)
        return self.attend(q, k, v, mask)


class CrossAttention(MultiHeadAttention):
    def add_projections(self, d_model, bias):
        self.q = nn.Linear(d_model, self.h * self.d_k, bias)
        self.kv = nn.Linear(d_model, self.h * (self.d_k + self.d_v), bias)

    def forward(self, x, memory, mask=Mask()):
        k, v = self.kv(memory).split([self.h * self.d_k, self.h * self.d_v], dim=-1)
        return self.attend(self.q(x), k, v, mask)


class RotaryPositions(nn.Module):
    """Each pair (i, i + d_k / 2) as a complex number, times the power of e for its position."""

    def __init__(self, d_k, theta):
        super().__init__()
        self.rates = [theta ** (-2 * i / d_k) for i in range(d_k // 2)]

    def forward(self, qk, first=0):
        places = range(first, first + qk.shape[1])
        factors = torch.tensor(
            [[cmath.exp(1j * place * rate) for rate in self.rates] for place in places], dtype=torch.cdouble
        )
        pairs = torch.complex(*qk.chunk(2, dim=-1))
        turned = pairs * factors[:, None].to(pairs.dtype)
        return torch.cat([turned.real, turned.imag], dim=-1)


class AlibiPositions(nn.Module):
    """The heads of q and k as our layer widens them."""

    def __init__(self, d_k, h):
        super().__init__()
        self.h, self.d_k = h, d_k

    def forward(self, qk, first=0):
        q, k = qk[:, :, : self.h], qk[:, :, self.h :]
        slopes = torch.tensor([2 ** (-8 * (i + 1) / self.h) for i in range(self.h)], dtype=qk.dtype)
        root = math.sqrt(self.d_k + 1)
        q = torch.cat([q * root / math.sqrt(self.d_k), (slopes * root).expand(q.shape[:-1])[..., None]], dim=-1)
        places = torch.arange(first, first + k.shape[1], dtype=k.dtype)[:, None].expand(k.shape[:-1])
        return torch.cat([q, torch.cat([k, places[..., None]], dim=-1)], dim=2)


class GroupedQueryAttention(nn.Module):
    """Torch's own grouped attention; ALiBi as a mask of distances, and rotation by `RotaryPositions`."""

    def __init__(self, d_model, h, h_kv, d_k, d_v, bias, attention_dropout, positions, theta):
        super().__init__()
        self.sizes, self.h, self.h_kv = [h * d_k, h_kv * d_k, h_kv * d_v], h, h_kv
        self.qkv, self.output = nn.Linear(d_model, sum(self.sizes), bias), nn.Linear(h * d_v, d_model, bias)
        self.attention = ScaledDotProductAttention(attention_dropout)
        self.rotary = RotaryPositions(d_k, theta) if positions == "rotary" else nn.Identity()
        self.slopes = [2 ** (-8 * (i + 1) / h) if positions == "alibi" else 0 for i in range(h)]

    def forward(self, x, mask=Mask()):
        q, k, v = self.qkv(x).split(self.sizes, dim=-1)
        q, k, v = (part.unflatten(-1, (h, -1)) for part, h in ((q, self.h), (k, self.h_kv), (v, self.h_kv)))
        q, k, v = (part.transpose(1, 2) for part in (self.rotary(q), self.rotary(k), v))
        T = x.shape[1]
        distance = torch.arange(T)[:, None] - torch.arange(T)
        bias = -torch.tensor(self.slopes, dtype=x.dtype)[:, None, None] * distance
        bias = bias.masked_fill(~may_attend(mask, T, T), -math.inf)
        identity = torch.eye(T, dtype=x.dtype).expand(*k.shape[:2], T, T)
        weights = F.scaled_dot_product_attention(q, k, identity, bias, enable_gqa=True)
        weights = weights.nan_to_num()  # a query that may attend to nothing
        heads = self.attention.dropout(weights) @ v.repeat_interleave(self.h // self.h_kv, dim=1)
        return self.output(heads.transpose(1, 2).flatten(2))


# The other layers of Table 1 ------------------------------------------------------------------------------------------


def convolved(x, mask, weight, bias, dilation, groups):
    """torch's conv1d of x (B, T, D) with weight (out, in / groups, k), as long as x, blind to padding."""
    if mask.key_lengths is not None:
        lengths = torch.tensor([int(length) for length in mask.key_lengths])
        x = x * (torch.arange(x.shape[1]) < lengths[:, None])[..., None]
    padding = "same"
    if mask.causal:
        x, padding = F.pad(x, (0, 0, dilation * (weight.shape[2] - 1), 0)), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an even k costs a copy
        return F.conv1d(x.mT, weight, bias, padding=padding, dilation=dilation, groups=groups).mT


class Convolution(nn.Module):
    def __init__(self, k, d_model, dilation):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(k, d_model, d_model)), nn.Parameter(torch.empty(d_model))
        self.dilation = dilation

    def forward(self, x, mask=Mask()):
        return convolved(x, mask, self.weight.permute(2, 1, 0), self.bias, self.dilation, 1)


class SeparableConvolution(nn.Module):
    def __init__(self, k, d_model, dilation):
        super().__init__()
        self.weight, self.pointwise = nn.Parameter(torch.empty(k, d_model)), nn.Linear(d_model, d_model)
        self.dilation = dilation

    def forward(self, x, mask=Mask()):
        depthwise = self.weight.T[:, None]  # (D, 1, k)
        return self.pointwise(convolved(x, mask, depthwise, None, self.dilation, len(depthwise)))


class RestrictedAttention(nn.Module):
    """Attention over the whole sequence, with all but a band of the scores masked."""

    def __init__(self, r):
        super().__init__()
        self.r = r

    def forward(self, q, k, v, mask=Mask()):
        T = q.shape[1]
        ahead = torch.arange(T) - torch.arange(T)[:, None]  # how far key s is ahead of query t
        band = (-self.r < ahead) & (ahead <= 0) if mask.causal else (-self.r < 2 * ahead) & (2 * ahead <= self.r)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, may_attend(mask, T, T) & band).transpose(1, 2)


class RestrictedSelfAttention(SelfAttention):
    def __init__(self, r, *sizes):
        super().__init__(*sizes)
        self.attention = RestrictedAttention(r)


class NextWord(nn.Module):
    """One position at a time: x + memory[k] + PE(k), where k is at most the last token of the source."""

    def forward(self, x, memory, k, memory_mask=Mask()):
        lengths = memory_mask.key_lengths
        lengths = [memory.shape[1]] * len(x) if lengths is None else [max(1, int(length)) for length in lengths]
        return torch.stack([self.sentence(*each) for each in zip(x, memory, k, lengths)])

    def sentence(self, x, memory, k, length):
        words = [min(int(number), length - 1) for number in k]
        return torch.stack([row + memory[i] + sinusoids(i, 1, x.shape[1])[0].to(x) for row, i in zip(x, words)])


# Layers and stacks ----------------------------------------------------------------------------------------------------


class PostNorm(nn.Module):
    def __init__(self, sublayer, config):
        super().__init__()
        self.sublayer, self.norm = sublayer, AddNorm(config.d_model, config.ln_eps, config.P_drop)

    def forward(self, x, *others):
        return self.norm(x, self.sublayer(x, *others))


class PreNorm(nn.Module):
    def __init__(self, sublayer, config):
        super().__init__()
        self.sublayer, self.norm = sublayer, norm(config)
        self.dropout = Dropout(config.P_drop)

    def forward(self, x, *others):
        return x + self.dropout(self.sublayer(self.norm(x), *others))


def residual(sublayer, config):
    return (PostNorm if config.norm == "post" else PreNorm)(sublayer, config)


def norm(config):
    return (RMSNorm if config.norm == "rms" else LayerNorm)(config.d_model, config.ln_eps)


def self_attention(config):
    if config.h_kv or config.positions in ("rotary", "alibi"):
        sizes = config.d_model, config.h, config.h_kv or config.h, config.d_k, config.d_v, config.attention_bias
        return GroupedQueryAttention(*sizes, config.attention_dropout, config.positions, config.rope_theta)
    return SelfAttention(*attention_of(config))


def feed_forward(config):
    if config.feed_forward == "swiglu":
        return SwiGLU(config.d_model, config.d_ff, config.relu_dropout)
    return FeedForward(config.d_model, config.d_ff, config.relu_dropout, config.feed_forward)


def attention_of(config):
    """The arguments of SelfAttention and CrossAttention."""
    return config.d_model, config.h, config.d_k, config.d_v, config.attention_bias, config.attention_dropout


class EncoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attention = residual(self_attention(config), config)
        self.feed_forward = residual(feed_forward(config), config)

    def forward(self, x, mask):
        return self.feed_forward(self.self_attention(x, mask))


class DecoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attention = residual(self_attention(config), config)
        self.cross_attention = residual(CrossAttention(*attention_of(config)), config)
        self.feed_forward = residual(feed_forward(config), config)

    def forward(self, x, memory, mask, memory_mask):
        x = self.self_attention(x, mask)
        x = self.cross_attention(x, memory, memory_mask)
        return self.feed_forward(x)


class Stack(nn.Module):
    """N layers that all get the same masks and memory; with pre-norm, one LayerNorm more."""

    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList(self.layer(config) for _ in range(config.N))
        self.final_norm = nn.Identity() if config.norm == "post" else norm(config)

    def forward(self, x, *others):
        for layer in self.layers:
            x = layer(x, *others)
        return self.final_norm(x)


class Encoder(Stack):
    layer = EncoderLayer


class Decoder(Stack):
    layer = DecoderLayer


# The whole model ------------------------------------------------------------------------------------------------------


class Transformer(nn.Module):
    """source_ids (B, S), target_in_ids (B, T) -> logits (B, T, V)"""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.source_embedding = Embedding(config.vocab_size, config.d_model)
        self.source_positions = positions(config)
        self.encoder = Encoder(config)
        self.target_embedding = Embedding(config.vocab_size, config.d_model)
        self.next_word = NextWord()
        self.target_positions = positions(config)
        self.decoder = Decoder(config)
        self.unembedding = Unembedding(self.target_embedding.weight)
        if config.tied == "all":
            self.target_embedding.weight = self.unembedding.weight = self.source_embedding.weight
        if config.tied == "none":
            self.unembedding.weight = nn.Parameter(torch.zeros(config.vocab_size, config.d_model))

    def forward(self, source_ids, target_in_ids):
        padding = Mask(key_lengths=source_ids.ne(PAD).sum(dim=1))
        memory = self.encoder(self.source_positions(self.source_embedding(source_ids)), padding)
        x = self.target_embedding(target_in_ids)
        if self.config.n_tags:  # PAD, EOS, BOS and UNK, then the tags
            is_tag = torch.logical_and(target_in_ids > 3, target_in_ids <= 3 + self.config.n_tags)
            x = self.next_word(x, memory, is_tag.cumsum(dim=1), padding)
        x = self.target_positions(x)
        return self.unembedding(self.decoder(x, memory, Mask(causal=True), padding))


def positions(config):
    if config.positions in ("rotary", "alibi"):
        return Dropout(config.P_drop)
    if config.positions == "learned":
        return LearnedPositions(config.max_positions, config.d_model, config.P_drop)
    return PositionalEncoding(config.P_drop)


class LanguageModel(nn.Module):
    """ids (B, T) -> logits (B, T, V)"""

    def __init__(self, config):
        super().__init__()
        self.embedding = Embedding(config.vocab_size, config.d_model)
        self.positions = positions(config)
        self.decoder = Encoder(config)
        self.unembedding = Unembedding(self.embedding.weight)
        if config.tied == "none":
            self.unembedding.weight = nn.Parameter(torch.zeros(config.vocab_size, config.d_model))

    def forward(self, ids):
        return self.unembedding(self.decoder(self.positions(self.embedding(ids)), Mask(causal=True)))


class TokenTypes(nn.Embedding):
    """Adds one of two vectors to each token."""

    def __init__(self, d_model):
        super().__init__(2, d_model)

    def forward(self, x, token_types):
        return x + super().forward(token_types)


class TextEncoder(nn.Module):
    """ids, token_types (B, T) -> logits (B, T, V), or of the first position alone (B, 1, n_classes + 1)"""

    def __init__(self, config):
        super().__init__()
        self.n_classes = config.n_classes
        self.embedding = Embedding(config.vocab_size, config.d_model)
        self.token_types = TokenTypes(config.d_model)
        self.positions = positions(config)
        self.encoder = Encoder(config)
        self.unembedding = Unembedding(self.embedding.weight)
        if config.n_classes or config.tied == "none":
            n_outputs = config.n_classes + 1 if config.n_classes else config.vocab_size
            self.unembedding.weight = nn.Parameter(torch.zeros(n_outputs, config.d_model))

    def forward(self, ids, token_types):
        x = self.positions(self.token_types(self.embedding(ids), token_types))
        states = self.encoder(x, Mask(key_lengths=ids.ne(PAD).sum(dim=1)))
        return self.unembedding(states[:, [0]] if self.n_classes else states)


class PatchEmbedding(nn.Module):
    """A convolution that moves by the size of its kernel: the projection's weights, seen as squares."""

    def __init__(self, patch_size, d_model):
        super().__init__()
        self.patch_size, self.projection = patch_size, nn.Linear(patch_size**2, d_model)

    def forward(self, images):
        kernels = self.projection.weight.unflatten(1, (1, self.patch_size, self.patch_size))
        y = F.conv2d(images[:, None], kernels, self.projection.bias, stride=self.patch_size)  # (B, D, rows, columns)
        return y.flatten(2).transpose(1, 2)


class ClassToken(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        return torch.cat([self.weight.expand(len(x), 1, -1), x], dim=1)


class VisionTransformer(nn.Module):
    """images (B, image_size, image_size) -> logits (B, 1, n_classes + 1)"""

    def __init__(self, config):
        super().__init__()
        self.patch_embedding = PatchEmbedding(config.patch_size, config.d_model)
        self.class_token = ClassToken(config.d_model)
        self.positions = positions(config)
        self.encoder = Encoder(config)
        self.unembedding = Unembedding(nn.Parameter(torch.zeros(config.n_classes + 1, config.d_model)))

    def forward(self, images):
        patches = self.patch_embedding(images.to(self.class_token.weight.dtype))
        states = self.encoder(self.positions(self.class_token(patches)), Mask())
        return self.unembedding(states[:, :1])


def cross_entropy(logits, target_ids, smoothing, spread):
    """Sum over the real tokens, in nats. logits (B, T, V), target_ids (B, T) int -> ()"""
    if spread == "uniform":  # torch's own label smoothing
        return F.cross_entropy(
            logits.flatten(0, 1), target_ids.flatten(), ignore_index=PAD, reduction="sum", label_smoothing=smoothing
        )
    real, V = target_ids.ne(PAD), logits.shape[-1]
    right = F.one_hot(target_ids[real], V).to(logits.dtype)
    q = (1 - smoothing) * right + smoothing / (V - 1) * (1 - right)
    return F.cross_entropy(logits[real], q, reduction="sum")


class CrossEntropy(nn.Module):
    """Of targets given beforehand."""

    def __init__(self, target_ids, smoothing, spread):
        super().__init__()
        self.target_ids, self.smoothing, self.spread = torch.as_tensor(target_ids), smoothing, spread

    def forward(self, logits):
        return cross_entropy(logits, self.target_ids, self.smoothing, self.spread)


class ModelLoss(nn.Module):
    """Of the twin of a model."""

    def __init__(self, model, smoothing, spread):
        super().__init__()
        self.model, self.smoothing, self.spread = model, smoothing, spread

    def forward(self, *inputs_and_targets):
        *inputs, targets = inputs_and_targets
        return cross_entropy(self.model(*inputs), targets, self.smoothing, self.spread)


# Which twin belongs to which layer ------------------------------------------------------------------------------------


def twin_of(layer, dtype=torch.float64):
    """The twin of one of our layers, with the same weights."""
    twin = TWINS[type(layer)](layer).to(dtype)
    copy_weights(layer, twin)
    return twin


def sizes_of(layer):
    """The arguments of SelfAttention and CrossAttention."""
    return (
        layer.output.weight.shape[1],
        layer.h,
        layer.d_k,
        layer.d_v,
        layer.output.bias is not None,
        layer.attention.attention_dropout,
    )


def grouped(attention):
    """The configuration from which the table of gradient cases made this GroupedQueryAttention."""
    kinds = {llama.RotaryPositions: "rotary", llama.AlibiPositions: "alibi", type(None): "sinusoidal"}
    return gradient_cases.small(
        attention.attention.attention_dropout,
        **gradient_cases.LLAMA
        | {
            "h_kv": attention.h_kv,
            "positions": kinds[type(attention.positions)],
            "attention_bias": attention.qkv.bias is not None,
            "architecture": "decoder",
        },
    )


def config_of(layer, N=1):
    """The configuration from which the table of gradient cases made this EncoderLayer or DecoderLayer."""
    sublayer = layer.self_attention.sublayer
    if isinstance(sublayer, llama.GroupedQueryAttention):
        return grouped(sublayer)
    return gradient_cases.small(
        sublayer.attention.attention_dropout,
        N=N,
        h=sublayer.h,
        attention_bias=sublayer.qkv.bias is not None,
        norm="post" if isinstance(layer.self_attention, OurPostNorm) else "pre",
        feed_forward=layer.feed_forward.sublayer.activation,
    )


TWINS = {
    layers.Linear: lambda layer: nn.Linear(*layer.weight.shape, bias=layer.bias is not None),
    layers.Embedding: lambda layer: Embedding(*layer.weight.shape),
    layers.Unembedding: lambda layer: Unembedding(nn.Parameter(torch.zeros(layer.weight.shape))),
    layers.PositionalEncoding: lambda layer: PositionalEncoding(layer.P_drop),
    layers.LearnedPositions: lambda layer: LearnedPositions(*layer.weight.shape, layer.P_drop),
    layers.LayerNorm: lambda layer: LayerNorm(*layer.gamma.shape, layer.eps),
    layers.AddNorm: lambda layer: AddNorm(*layer.gamma.shape, layer.eps, layer.P_drop),
    layers.FeedForward: lambda layer: FeedForward(*layer.inner.weight.shape, layer.relu_dropout, layer.activation),
    attention.ScaledDotProductAttention: lambda layer: ScaledDotProductAttention(layer.attention_dropout),
    attention.SelfAttention: lambda layer: SelfAttention(*sizes_of(layer)),
    llama.RMSNorm: lambda layer: RMSNorm(*layer.gamma.shape, layer.eps),
    llama.SwiGLU: lambda layer: SwiGLU(*layer.outer.weight.shape[::-1], layer.hidden_dropout),
    layers.NoPositions: lambda layer: Dropout(layer.P_drop),
    llama.RotaryPositions: lambda layer: RotaryPositions(layer.d_k, layer.theta),
    llama.AlibiPositions: lambda layer: AlibiPositions(layer.key_width - 1, layer.h),
    llama.GroupedQueryAttention: lambda layer: self_attention(grouped(layer)),
    attention.CrossAttention: lambda layer: CrossAttention(*sizes_of(layer)),
    head_gate.HeadGate: lambda layer: HeadGate(*layer.xi.shape),
    head_gate.GatedAttention: lambda layer: GatedAttention(*layer.gate.xi.shape, layer.attention.attention_dropout),
    sequence_layers.Convolution: lambda layer: Convolution(*layer.weight.shape[:2], layer.dilation),
    sequence_layers.SeparableConvolution: lambda layer: SeparableConvolution(*layer.weight.shape, layer.dilation),
    sequence_layers.RestrictedAttention: lambda layer: RestrictedAttention(layer.r),
    sequence_layers.RestrictedSelfAttention: lambda layer: RestrictedSelfAttention(layer.attention.r, *sizes_of(layer)),
    OurPostNorm: lambda layer: PostNorm(twin_of(layer.sublayer), gradient_cases.small(layer.norm.P_drop)),
    OurPreNorm: lambda layer: PreNorm(
        twin_of(layer.sublayer),
        gradient_cases.small(layer.P_drop, norm="rms" if isinstance(layer.norm, llama.RMSNorm) else "pre"),
    ),
    next_word.NextWord: lambda layer: NextWord(),
    transformer.EncoderLayer: lambda layer: EncoderLayer(config_of(layer)),
    transformer.DecoderLayer: lambda layer: DecoderLayer(config_of(layer)),
    transformer.Encoder: lambda layer: Encoder(config_of(layer.layers[0], len(layer.layers))),
    transformer.Decoder: lambda layer: Decoder(config_of(layer.layers[0], len(layer.layers))),
    transformer.Transformer: lambda layer: Transformer(layer.config),
    language_model.LanguageModel: lambda layer: LanguageModel(layer.config),
    text_encoder.TokenTypes: lambda layer: TokenTypes(layer.weight.shape[1]),
    text_encoder.TextEncoder: lambda layer: TextEncoder(layer.config),
    vision.PatchEmbedding: lambda layer: PatchEmbedding(layer.patch_size, layer.projection.weight.shape[1]),
    vision.ClassToken: lambda layer: ClassToken(*layer.weight.shape),
    vision.VisionTransformer: lambda layer: VisionTransformer(layer.config),
    gradient_cases.CrossEntropy: lambda layer: CrossEntropy(layer.target_ids, layer.smoothing, layer.spread),
    gradient_cases.ModelLoss: lambda layer: ModelLoss(twin_of(layer.model), layer.smoothing, layer.spread),
}
"""Class of ours -> how to make its twin. What a layer computes is not read from it: only its sizes, its rates of
dropout, and eps where it was given."""

# Weights and gradients in our names and our layout --------------------------------------------------------------------


def copy_weights(layer, twin):
    """Give the twin our weights."""
    ours, theirs = layer.parameters(), weights(twin)
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        weight.copy_(torch.as_tensor(ours[name].data))


def weights(twin):
    """Our name -> the weight in our layout, (in, out): a view of the twin's."""
    return in_our_layout(twin, {name: parameter.detach() for name, parameter in twin.named_parameters()})


def gradients(twin):
    """Our name -> the gradient in our layout: a view of the twin's."""
    return in_our_layout(twin, {name: parameter.grad for name, parameter in twin.named_parameters()})


def in_our_layout(twin, tensors):
    """The two rules of docs/names.md: the weight of a Linear is (in, out), and `sublayer.` is left out of names."""
    linear = {
        f"{path}.weight".removeprefix(".") for path, module in twin.named_modules() if isinstance(module, nn.Linear)
    }
    return {name.replace("sublayer.", ""): tensor.T if name in linear else tensor for name, tensor in tensors.items()}
