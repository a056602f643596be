"""The twin of each of our layers, as a function of torch tensors: other arithmetic, and autograd for backward.

A twin takes the weights `w` by our names (docs/names.md) and in our layout, a configuration `c`, and the inputs of our
layer's forward. Where our layer has drawn a dropout mask, the twin is given it. Masks, positions and smoothed targets
are written here a second time, from the paper and not from our code, since a helper that both share would be wrong in
both.
"""

import cmath
import math
import warnings
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F

from scratchformer.config import ModelConfig
from scratchformer.nn import gradient_cases as ours
from scratchformer.nn.attention import Mask
from scratchformer.nn.parameter import Layer, enumerate_named

PAD = 0


class Twin:
    """The twin of one of our layers, with the same weights, which are copies.

    weights  our name -> tensor, in our layout
    config   what the model's configuration says, or the layer's attributes
    """

    def __init__(self, layer, dtype=torch.float64):
        self.compute, self.config = TWINS[type(layer)], config_of(layer)
        self.weights = {
            name: torch.tensor(parameter.data, dtype=dtype, requires_grad=True)
            for name, parameter in layer.parameters().items()
        }

    def __call__(self, *inputs, kept=None):
        """The output. kept: the masks of our dropouts in the order of the data flow, None where nothing is dropped."""
        DROPOUTS.masks = None if kept is None else iter(kept)
        y = self.compute(tree(self.weights), self.config, *inputs)
        assert kept is None or next(DROPOUTS.masks, "none left") == "none left", "ours has more dropouts than the twin"
        return y

    def gradients(self):
        """Our name -> the gradient, in our layout."""
        return {name: weight.grad for name, weight in self.weights.items()}


def tree(weights):
    """w.layers.0.inner.weight (a nested namespace) for each name such as "layers.0.inner.weight"."""
    root = SimpleNamespace()
    for name, tensor in weights.items():
        *path, last = name.split(".")
        node = root
        for step in path:
            node = vars(node).setdefault(step, SimpleNamespace())
        setattr(node, last, tensor)
    return root


KINDS = {
    ours.PreNorm: {"norm": "pre"},
    ours.RMSNorm: {"norm": "rms"},
    ours.SwiGLU: {"feed_forward": "swiglu"},
    ours.RotaryPositions: {"positions": "rotary"},
    ours.AlibiPositions: {"positions": "alibi"},
}
"""Settings that a layer of this class stands for, where there is no configuration."""

OTHER_NAMES = {"activation": "feed_forward", "hidden_dropout": "relu_dropout", "eps": "ln_eps", "theta": "rope_theta"}


def config_of(layer):
    """The configuration of a model; of another layer what its attributes and those of its layers say, otherwise that of
    the gradient cases."""
    found, kinds, models = vars(ours.SMALL).copy(), {}, {}
    for each in all_layers(layer):
        kinds |= KINDS.get(type(each), {})
        for name, value in vars(each).items():
            if isinstance(value, ModelConfig):
                models = vars(value)
            elif isinstance(value, (int, float, str, np.ndarray)):
                found[OTHER_NAMES.get(name, name)] = value
    return SimpleNamespace(**found | kinds | models)


def all_layers(layer):
    yield layer
    for name, value in vars(layer).items():
        for _, item in enumerate_named(name, value):
            if isinstance(item, Layer):
                yield from all_layers(item)


# One position at a time -----------------------------------------------------------------------------------------------

DROPOUTS = SimpleNamespace(masks=None)
"""The masks that the dropouts of the running twin still have to use; None if there are none."""


def dropout(x, P_drop):
    """Drops what our layer has dropped."""
    kept = None if DROPOUTS.masks is None else next(DROPOUTS.masks)
    decided = round(P_drop * 2**16) / 2**16  # a decision spends 16 random bits
    return x if kept is None else x * torch.as_tensor(kept) / (1 - decided)


def linear(w, x):
    return F.linear(x, w.weight.T, getattr(w, "bias", None))


def embedding(E, ids):
    """sqrt(d_model) E[ids], zeros for padding."""
    return math.sqrt(E.shape[1]) * F.embedding(ids, E) * ids.ne(PAD)[..., None]


def sinusoids(first, count, d_model):
    """Paper §3.5: channels 2i and 2i + 1 are sine and cosine of an angle that is slower by 10000^(2 / d_model) than
    that of the pair before. -> (count, d_model) float64"""
    speed = 10000 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angles = torch.outer(torch.arange(first, first + count, dtype=torch.float64), speed)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :d_model]


def sinusoidal(w, c, x, first=0):
    return dropout(x + sinusoids(first, *x.shape[1:]).to(x.dtype), c.P_drop)


def learned(w, c, x, first=0):
    return dropout(x + w.weight[first : first + x.shape[1]], c.P_drop)


def no_positions(w, c, x):
    return dropout(x, c.P_drop)


def with_positions(w, c, x):
    """The embeddings x with positions, unless these are in the attention."""
    kinds = {"sinusoidal": sinusoidal, "learned": learned, "rotary": no_positions, "alibi": no_positions}
    return kinds[c.positions](getattr(w, "positions", None), c, x)


def layer_norm(w, c, x):
    return F.layer_norm(x, w.gamma.shape, w.gamma, w.beta, c.ln_eps)


def rms_norm(w, c, x):
    return F.rms_norm(x, w.gamma.shape, w.gamma, c.ln_eps)


def norm(w, c, x):
    return (rms_norm if c.norm == "rms" else layer_norm)(w, c, x)


def add_norm(w, c, x, update):
    return layer_norm(w, c, x + dropout(update, c.P_drop))


def feed_forward(w, c, x):
    h = linear(w.inner, x)
    if c.feed_forward == "swiglu":
        gate, value = h.chunk(2, dim=-1)
        h = F.silu(gate) * value
    else:
        h = F.gelu(h, approximate="tanh") if c.feed_forward == "gelu" else torch.relu(h)
    return linear(w.outer, dropout(h, c.relu_dropout))


# Attention ------------------------------------------------------------------------------------------------------------


def is_token(mask, S):
    """bool (B or 1, S): what is not padding."""
    lengths = [S] if mask.key_lengths is None else [int(length) for length in mask.key_lengths]  # an array or a tensor
    return torch.arange(S) < torch.tensor(lengths)[:, None]


def may_attend(mask, T, S):
    """bool (B or 1, 1, T, S): nobody attends to padding; with `causal`, the last query sees all keys, each query before
    it one key less."""
    may = torch.ones(T, S, dtype=torch.bool)
    return (may.tril(S - T) if mask.causal else may) & is_token(mask, S)[:, None, None]


def attention(w, c, q, k, v, mask=Mask()):
    """q (B, T, H, d_k), k (B, S, H, d_k), v (B, S, H, d_v) -> y (B, T, H, d_v)"""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B, H, ., .)
    T, S = q.shape[2], k.shape[2]
    # With the identity in place of the values, torch's attention returns its weights, to be thinned out.
    weights = F.scaled_dot_product_attention(q, k, torch.eye(S, dtype=q.dtype), may_attend(mask, T, S))
    return (dropout(weights, c.attention_dropout) @ v).transpose(1, 2)


def restricted_attention(w, c, q, k, v, mask=Mask()):
    """Attention over the whole sequence, with all but a band of the scores masked."""
    T = q.shape[1]
    ahead = torch.arange(T) - torch.arange(T)[:, None]  # how far key s is ahead of query t
    band = (-c.r < ahead) & (ahead <= 0) if mask.causal else (-c.r < 2 * ahead) & (2 * ahead <= c.r)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, may_attend(mask, T, T) & band).transpose(1, 2)


def head_gate(w, c, heads):
    return torch.einsum("bthk,h->bthk", heads, w.xi)


def gated_attention(w, c, *inputs):
    return head_gate(w.gate, c, attention(w, c, *inputs))


def multi_head(w, c, q, k, v, mask):
    """Attention by all heads, which lie side by side in the columns of a projection."""
    q, k, v = (torch.stack(x.chunk(c.h, dim=-1), dim=2) for x in (q, k, v))  # (B, ., H, .)
    heads = (restricted_attention if hasattr(c, "r") else attention)(w, c, q, k, v, mask)
    return linear(w.output, torch.cat(heads.unbind(dim=2), dim=-1))


def self_attention(w, c, x, mask=Mask()):
    if c.h_kv or c.positions in ("rotary", "alibi"):
        return grouped_attention(w, c, x, mask)
    q, k, v = linear(w.qkv, x).split([c.h * c.d_k, c.h * c.d_k, c.h * c.d_v], dim=-1)
    return multi_head(w, c, q, k, v, mask)


def cross_attention(w, c, x, memory, mask=Mask()):
    k, v = linear(w.kv, memory).split([c.h * c.d_k, c.h * c.d_v], dim=-1)
    return multi_head(w, c, linear(w.q, x), k, v, mask)


def rotary(w, c, qk, first=0):
    """Each pair (i, i + d_k / 2) as a complex number, times the power of e for its position."""
    pairs = torch.complex(*qk.chunk(2, dim=-1))
    rates = [c.rope_theta ** (-i / pairs.shape[-1]) for i in range(pairs.shape[-1])]
    factors = [[cmath.exp(1j * place * rate) for rate in rates] for place in range(first, first + qk.shape[1])]
    turned = pairs * torch.tensor(factors, dtype=pairs.dtype)[:, None]
    return torch.cat([turned.real, turned.imag], dim=-1)


def slopes_of(c, dtype):
    return torch.tensor([2 ** (-8 * (i + 1) / c.h) for i in range(c.h)], dtype=dtype)


def alibi(w, c, qk, first=0):
    """The heads of q and k as our layer widens them."""
    q, k, d_k = qk[:, :, : c.h], qk[:, :, c.h :], qk.shape[-1]
    root = math.sqrt(d_k + 1)
    slopes = (slopes_of(c, q.dtype) * root).expand(q.shape[:-1])
    places = torch.arange(first, first + k.shape[1], dtype=k.dtype)[:, None].expand(k.shape[:-1])
    q = torch.cat([q * root / math.sqrt(d_k), slopes[..., None]], dim=-1)
    return torch.cat([q, torch.cat([k, places[..., None]], dim=-1)], dim=2)


def grouped_attention(w, c, x, mask=Mask()):
    """Torch's own grouped attention; ALiBi as a mask of distances, and rotation by `rotary`."""
    h_kv, T = c.h_kv or c.h, x.shape[1]
    q, k, v = linear(w.qkv, x).split([c.h * c.d_k, h_kv * c.d_k, h_kv * c.d_v], dim=-1)
    q, k, v = (part.unflatten(-1, (h, -1)) for part, h in ((q, c.h), (k, h_kv), (v, h_kv)))
    if c.positions == "rotary":
        q, k = rotary(w, c, q), rotary(w, c, k)
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    bias = torch.zeros(1, dtype=x.dtype)
    if c.positions == "alibi":
        bias = -slopes_of(c, x.dtype)[:, None, None] * (torch.arange(T)[:, None] - torch.arange(T))
    bias = torch.where(may_attend(mask, T, T), bias, -math.inf)
    identity = torch.eye(T, dtype=x.dtype).expand(*k.shape[:2], T, T)
    weights = F.scaled_dot_product_attention(q, k, identity, bias, enable_gqa=True)
    weights = dropout(weights.nan_to_num(), c.attention_dropout)  # a query that may attend to nothing
    heads = weights @ v.repeat_interleave(c.h // h_kv, dim=1)
    return linear(w.output, heads.transpose(1, 2).flatten(2))


# The other layers of Table 1 ------------------------------------------------------------------------------------------


def convolved(x, mask, weight, bias, dilation, groups):
    """torch's conv1d of x (B, T, D) with weight (out, in / groups, k), as long as x, blind to padding."""
    x, padding = x * is_token(mask, x.shape[1])[..., None], "same"
    if mask.causal:
        x, padding = F.pad(x, (0, 0, dilation * (weight.shape[2] - 1), 0)), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an even k costs a copy
        return F.conv1d(x.mT, weight, bias, padding=padding, dilation=dilation, groups=groups).mT


def convolution(w, c, x, mask=Mask()):
    return convolved(x, mask, w.weight.permute(2, 1, 0), w.bias, c.dilation, 1)


def separable_convolution(w, c, x, mask=Mask()):
    depthwise = w.weight.T[:, None]  # (D, 1, k)
    return linear(w.pointwise, convolved(x, mask, depthwise, None, c.dilation, len(depthwise)))


def next_word(w, c, x, memory, k, mask=Mask()):
    """One position at a time: x + memory[k] + PE(k), where k is at most the last token of the source."""
    last = (is_token(mask, memory.shape[1]).sum(dim=1).clamp(min=1) - 1).expand(len(x))
    words = [[min(int(number), int(end)) for number in numbers] for numbers, end in zip(k, last)]
    read = [torch.stack([m[i] + sinusoids(i, 1, len(m[i]))[0].to(m) for i in row]) for m, row in zip(memory, words)]
    return x + torch.stack(read)


# Layers and stacks ----------------------------------------------------------------------------------------------------


def residual(sublayer):
    """A sublayer with its norm, before or after it."""

    def compute(w, c, x, *others):
        if c.norm == "post":
            return add_norm(w.norm, c, x, sublayer(w, c, x, *others))
        return x + dropout(sublayer(w, c, norm(w.norm, c, x), *others), c.P_drop)

    return compute


def around(w, c, x, *others):
    """The residuals of the table stand around a feed-forward network or cross-attention."""
    return residual(cross_attention if others else feed_forward)(w, c, x, *others)


def encoder_layer(w, c, x, mask):
    x = residual(self_attention)(w.self_attention, c, x, mask)
    return residual(feed_forward)(w.feed_forward, c, x)


def decoder_layer(w, c, x, memory, mask, memory_mask):
    x = residual(self_attention)(w.self_attention, c, x, mask)
    x = residual(cross_attention)(w.cross_attention, c, x, memory, memory_mask)
    return residual(feed_forward)(w.feed_forward, c, x)


def stack(layer):
    """N layers that all get the same masks and memory; with pre-norm, one norm more."""

    def compute(w, c, x, *others):
        for i in range(c.N):
            x = layer(getattr(w.layers, str(i)), c, x, *others)
        return x if c.norm == "post" else norm(w.final_norm, c, x)

    return compute


encoder, decoder = stack(encoder_layer), stack(decoder_layer)

# The whole models -----------------------------------------------------------------------------------------------------


def transformer(w, c, source_ids, target_in_ids):
    """source_ids (B, S), target_in_ids (B, T) -> logits (B, T, V)"""
    E_source = w.source_embedding.weight
    E_target = E_source if c.tied == "all" else w.target_embedding.weight
    of_source, of_target = (getattr(w, f"{side}_positions", None) for side in ("source", "target"))
    padding = Mask(key_lengths=source_ids.ne(PAD).sum(dim=1))
    x = with_positions(SimpleNamespace(positions=of_source), c, embedding(E_source, source_ids))
    memory = encoder(w.encoder, c, x, padding)
    x = embedding(E_target, target_in_ids)
    if c.n_tags:  # PAD, EOS, BOS and UNK, then the tags
        is_tag = torch.logical_and(target_in_ids > 3, target_in_ids <= 3 + c.n_tags)
        x = next_word(w, c, x, memory, is_tag.cumsum(dim=1), padding)
    x = with_positions(SimpleNamespace(positions=of_target), c, x)
    states = decoder(w.decoder, c, x, memory, Mask(causal=True), padding)
    return states @ (w.unembedding.weight if c.tied == "none" else E_target).T


def language_model(w, c, ids):
    """ids (B, T) -> logits (B, T, V)"""
    states = encoder(w.decoder, c, with_positions(w, c, embedding(w.embedding.weight, ids)), Mask(causal=True))
    return states @ (w.unembedding if c.tied == "none" else w.embedding).weight.T


def token_types(w, c, x, types):
    """Adds one of two vectors to each token."""
    return x + F.embedding(types, w.weight)


def text_encoder(w, c, ids, types):
    """ids, types (B, T) -> logits (B, T, V), or of the first position alone (B, 1, n_classes + 1)"""
    x = with_positions(w, c, token_types(w.token_types, c, embedding(w.embedding.weight, ids), types))
    states = encoder(w.encoder, c, x, Mask(key_lengths=ids.ne(PAD).sum(dim=1)))
    if c.n_classes:
        return states[:, [0]] @ w.unembedding.weight.T
    return states @ (w.unembedding if c.tied == "none" else w.embedding).weight.T


def patch_embedding(w, c, images):
    """A convolution that moves by the size of its kernel: the projection's weights, seen as squares."""
    kernels = w.projection.weight.T.unflatten(1, (1, c.patch_size, c.patch_size))
    y = F.conv2d(images[:, None], kernels, w.projection.bias, stride=c.patch_size)  # (B, D, rows, columns)
    return y.flatten(2).transpose(1, 2)


def class_token(w, c, x):
    return torch.cat([w.weight.expand(len(x), 1, -1), x], dim=1)


def vision_transformer(w, c, images):
    """images (B, image_size, image_size) -> logits (B, 1, n_classes + 1)"""
    x = patch_embedding(w.patch_embedding, c, images.to(w.class_token.weight))
    states = encoder(w.encoder, c, with_positions(w, c, class_token(w.class_token, c, x)), Mask())
    return states[:, :1] @ w.unembedding.weight.T


MODELS = {
    "encoder-decoder": transformer,
    "decoder": language_model,
    "encoder": text_encoder,
    "vision": vision_transformer,
}


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


def model_loss(w, c, *inputs_and_targets):
    *inputs, targets = inputs_and_targets
    return cross_entropy(MODELS[c.architecture](w.model, c, *inputs), targets, c.smoothing, c.spread)


TWINS = {
    ours.Linear: lambda w, c, x: linear(w, x),
    ours.Embedding: lambda w, c, ids: embedding(w.weight, ids),
    ours.Unembedding: lambda w, c, y: y @ w.weight.T,
    ours.PositionalEncoding: sinusoidal,
    ours.LearnedPositions: learned,
    ours.NoPositions: no_positions,
    ours.LayerNorm: layer_norm,
    ours.AddNorm: add_norm,
    ours.FeedForward: feed_forward,
    ours.RMSNorm: rms_norm,
    ours.SwiGLU: feed_forward,
    ours.RotaryPositions: rotary,
    ours.AlibiPositions: alibi,
    ours.ScaledDotProductAttention: attention,
    ours.SelfAttention: self_attention,
    ours.CrossAttention: cross_attention,
    ours.GroupedQueryAttention: grouped_attention,
    ours.HeadGate: head_gate,
    ours.GatedAttention: gated_attention,
    ours.Convolution: convolution,
    ours.SeparableConvolution: separable_convolution,
    ours.RestrictedAttention: restricted_attention,
    ours.RestrictedSelfAttention: self_attention,
    ours.PostNorm: around,
    ours.PreNorm: around,
    ours.NextWord: next_word,
    ours.EncoderLayer: encoder_layer,
    ours.DecoderLayer: decoder_layer,
    ours.Encoder: encoder,
    ours.Decoder: decoder,
    ours.Transformer: transformer,
    ours.LanguageModel: language_model,
    ours.TokenTypes: token_types,
    ours.TextEncoder: text_encoder,
    ours.PatchEmbedding: patch_embedding,
    ours.ClassToken: class_token,
    ours.VisionTransformer: vision_transformer,
    ours.CrossEntropy: lambda w, c, logits: cross_entropy(logits, torch.as_tensor(c.target_ids), c.smoothing, c.spread),
    ours.ModelLoss: model_loss,
}
"""Class of ours -> its twin: a function of weights, configuration and inputs."""
