"""Probes of what flows where, for `scratchformer doctor`: who sees whom in a batch, and what must make no difference.

A backward that is exact says nothing about this: a model whose future leaks has the right gradients of the wrong model.
So change one position at a time and look which outputs change.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Callable

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.doctor.findings import ROUNDING, CodeProbe, Complaints, differs
from scratchformer.doctor.specimens import SOURCE, TARGET, random, shifted, with_random_vectors
from scratchformer.nn import gradient_cases
from scratchformer.nn.attention import Mask, ScaledDotProductAttention
from scratchformer.nn.gradient_cases import FLOAT64, B, D, F, S, T, V, lengths
from scratchformer.nn.layers import FeedForward, LayerNorm, Linear, PositionalEncoding
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.ops import PAD
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, Transformer


def probes(config: ModelConfig) -> list[CodeProbe]:
    """`config` is of a small model: it is built many times."""
    return [dependence(config), padding(config)]


# What depends on what -------------------------------------------------------------------------------------------------


def dependence(config: ModelConfig) -> CodeProbe:
    position_wise = np.eye(T, dtype=bool)
    causal, padded = np.tri(T, dtype=bool), np.arange(S) < lengths(S)[:, None, None]  # (T, T), (B, 1, S)
    itself, empty = np.eye(S, dtype=bool), (lengths(S) == 0)[:, None, None]
    return CodeProbe(
        "what depends on what",
        "an output depends on each position it may see and on no other: not on later target tokens, on padding, or on "
        "another sentence of the batch",
        "a future that leaks: no causal mask, one that is added after the softmax or shifted by one, cross-attention "
        "fed with the wrong side; a dead source: memory that never reaches the decoder; a padding mask over rows "
        "instead of columns; statistics over the batch",
        [
            (place, partial(depends_as_it_should, make, expected))
            for place, make, expected in [
                ("Linear", lambda: Linear(D, D, random(), FLOAT64).forward, position_wise),
                ("LayerNorm", lambda: LayerNorm(D, FLOAT64).forward, position_wise),
                ("FeedForward", lambda: FeedForward(D, F, random(), FLOAT64).forward, position_wise),
                ("PositionalEncoding", lambda: PositionalEncoding().forward, position_wise),
                ("ScaledDotProductAttention", lambda: keys_and_values_to_heads(Mask()), np.ones((T, S), bool)),
                ("ScaledDotProductAttention", lambda: keys_and_values_to_heads(Mask(lengths(S))), padded),
                ("ScaledDotProductAttention", lambda: keys_and_values_to_heads(Mask(causal=True)), causal),
                ("SelfAttention", lambda: self_attention_with(Mask(lengths(S))), padded | itself & ~empty),
                ("SelfAttention", lambda: self_attention_with(Mask(causal=True)), causal),
                ("CrossAttention", lambda: cross_attention_from_memory, padded),
                ("CrossAttention", lambda: cross_attention_from_x, position_wise),
                ("EncoderLayer", lambda: encoder(EncoderLayer(config, random(), FLOAT64)), padded | itself),
                ("DecoderLayer", lambda: decoder_from_x(DecoderLayer(config, random(), FLOAT64)), causal),
                ("DecoderLayer", lambda: decoder_from_memory(DecoderLayer(config, random(), FLOAT64)), padded),
                ("Encoder", lambda: encoder(Encoder(config, random(), FLOAT64)), padded | itself),
                ("Decoder", lambda: decoder_from_x(Decoder(config, random(), FLOAT64)), causal),
                ("Decoder", lambda: decoder_from_memory(Decoder(config, random(), FLOAT64)), padded),
            ]
        ]
        + [("Transformer", partial(tokens_matter, config)), ("Transformer", partial(order_matters, config))],
    )


def depends_as_it_should(make: Callable[[], Any], may: np.ndarray) -> Complaints:
    """make() -> function (B, S, D) -> (B, T, ...) or (y, cache); may (T, S) or (B, T or 1, S), True = depends."""
    function, n_positions = make(), may.shape[-1]
    found = dependence_of(function, random().normal(size=(B, n_positions, D)))
    yield unlike(found, np.broadcast_to(may, (B, found.shape[1], n_positions)))


def dependence_of(function: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    """Which output changes if an input does? x (B, S, ...) -> bool (B, T, B, S)"""

    def output(x: np.ndarray) -> np.ndarray:
        y = function(x)
        return y[0] if isinstance(y, tuple) else y

    y = output(x)
    depends = np.zeros((*y.shape[:2], *x.shape[:2]), bool)
    for b, s in np.ndindex(x.shape[:2]):
        changed = x.copy()
        changed[b, s] = changed_id(int(x[b, s])) if x.dtype.kind == "i" else 1 - 2 * x[b, s]
        moved = np.abs(output(changed) - y) > ROUNDING
        depends[:, :, b, s] = moved.reshape(*y.shape[:2], -1).any(axis=-1)
    return depends


def changed_id(token: int) -> int:
    """Another word; padding stays padding."""
    return token if token == PAD else token % (V - 1) + 1


def unlike(found: np.ndarray, may: np.ndarray) -> str:
    """Where dependence (B, T, B, S) is not what it may be (B, T, S) within each sentence, in words; "" if nowhere."""
    n_sentences, _, n_positions = may.shape
    expected = np.zeros_like(found)
    expected[np.arange(n_sentences), :, np.arange(n_sentences)] = may
    for b, t, other, s in np.argwhere(found & ~expected):
        if other != b:
            return "a sentence depends on the others of its batch"
        if not may[b, :, s].any():
            return f"output {t} depends on position {s}, which is padding"
        later = ", a later one: the future leaks" if s > t else ""
        return f"output {t} depends on position {s}{later}"
    for b, t, _, s in np.argwhere(expected & ~found):
        return f"output {t} does not depend on position {s}"
    return ""


def keys_and_values_to_heads(mask: Mask) -> Callable:
    """x (B, S, D), which serves as keys and values of one head -> y (B, T, 1, D)"""
    q = random().normal(size=(B, T, 1, D))
    return lambda x: ScaledDotProductAttention().forward(q, x[:, :, None], x[:, :, None], mask)


def self_attention_with(mask: Mask) -> Callable:
    layer = gradient_cases.self_attention(random(), 0.0)
    return lambda x: layer.forward(x, mask)


def cross_attention_from_memory(memory: Array) -> Any:
    layer = gradient_cases.cross_attention(random(), 0.0)
    return layer.forward(random().normal(size=(B, T, D)), memory, Mask(lengths(S)))


def cross_attention_from_x(x: Array) -> Any:
    layer = gradient_cases.cross_attention(random(), 0.0)
    return layer.forward(x, random().normal(size=(B, S, D)))


def encoder(layer: EncoderLayer | Encoder) -> Callable:
    return lambda x: layer.forward(x, Mask(lengths(S)))


def decoder_from_x(layer: DecoderLayer | Decoder) -> Callable:
    memory = random().normal(size=(B, S, D))
    return lambda x: layer.forward(x, memory)


def decoder_from_memory(layer: DecoderLayer | Decoder) -> Callable:
    x = random().normal(size=(B, T, D))
    return lambda memory: layer.forward(x, memory, memory_mask=Mask(lengths(S)))


def tokens_matter(config: ModelConfig) -> Complaints:
    model = with_random_vectors(Transformer(config, dtype=FLOAT64))
    found = dependence_of(lambda target: model.forward(SOURCE, target), TARGET)
    yield prefixed("from target to logits: ", unlike(found, np.broadcast_to(np.tri(T, dtype=bool), (B, T, T))))
    found = dependence_of(lambda source: model.forward(source, TARGET), SOURCE)
    yield prefixed("from source to logits: ", unlike(found, np.broadcast_to((SOURCE != PAD)[:, None], (B, T, S))))


def prefixed(prefix: str, complaint: str) -> str:
    return complaint and prefix + complaint


def order_matters(config: ModelConfig) -> Complaints:
    """With one layer: in a second one, the causal mask alone would tell the order of the target."""
    model = with_random_vectors(Transformer(replace(config, N=1), dtype=FLOAT64))
    logits = model.forward(SOURCE, TARGET)[0]
    for side, source, target in [("source", swapped(SOURCE), TARGET), ("target", SOURCE, swapped(TARGET))]:
        moved = np.abs(model.forward(source, target)[0] - logits)[:, 2:]
        yield (
            ""
            if (moved.max(axis=(1, 2)) > ROUNDING).all()
            else (f"the order of the {side}'s words makes no difference")
        )


def swapped(ids: np.ndarray) -> np.ndarray:
    """The first two words of each sentence exchanged."""
    return np.concatenate([ids[:, 1::-1], ids[:, 2:]], axis=1)


# Padding --------------------------------------------------------------------------------------------------------------


def padding(config: ModelConfig) -> CodeProbe:
    return CodeProbe(
        "padding and batch",
        "more padding, other sentences in the batch, a source without a word: logits, loss, number of tokens and "
        "gradient stay the same, and finite",
        "a mask that misses a place; a loss averaged over padding; positions counted from the right; a softmax over "
        "nothing, which is 0/0",
        [
            ("Transformer", partial(check, config))
            for check in (padding_changes_nothing, batch_changes_nothing, empty_source_is_harmless, losses_agree)
        ],
    )


def padded_to(ids: np.ndarray, width: int) -> np.ndarray:
    return np.pad(ids, ((0, 0), (0, width - ids.shape[1])))


def loss_and_gradient(
    model: Transformer, source: np.ndarray, target_in: np.ndarray, target_out: np.ndarray
) -> tuple[float, int, np.ndarray]:
    model.zero_grad()
    loss, n_tokens = model.loss_backward(source, target_in, target_out, 0.1)
    return loss, n_tokens, model.store.grad.copy()


def padding_changes_nothing(config: ModelConfig) -> Complaints:
    model = with_random_vectors(Transformer(config, dtype=FLOAT64))
    logits = model.forward(SOURCE, TARGET)[0]
    loss, n_tokens, gradient = loss_and_gradient(model, SOURCE, TARGET, shifted(TARGET))
    for what, source, width in [("source", padded_to(SOURCE, S + 2), T), ("target", SOURCE, T + 2)]:
        target_in, target_out = padded_to(TARGET, width), padded_to(shifted(TARGET), width)
        more = f"with two more columns of padding in the {what}"
        yield differs(f"logits {more}", model.forward(source, target_in)[0][:, :T], logits)
        found = loss_and_gradient(model, source, target_in, target_out)
        yield "" if found[1] == n_tokens else f"{found[1]} tokens counted {more}, {n_tokens} without"
        yield differs(f"loss {more}", found[0], loss)
        yield differs(f"gradient {more}", found[2], gradient)


def batch_changes_nothing(config: ModelConfig) -> Complaints:
    model = with_random_vectors(Transformer(config, dtype=FLOAT64))
    logits = model.forward(SOURCE, TARGET)[0]
    for b, length in enumerate((SOURCE != PAD).sum(axis=1)):
        alone = model.forward(SOURCE[b : b + 1, :length], TARGET[b : b + 1])[0]
        yield differs("logits of a sentence alone and in a batch", alone[0], logits[b])


def empty_source_is_harmless(config: ModelConfig) -> Complaints:
    model = with_random_vectors(Transformer(config, dtype=FLOAT64))
    source = SOURCE * [[1], [0], [1]]
    yield "" if np.isfinite(model.forward(source, TARGET)[0]).all() else "a source that is all padding makes NaN"
    gradient = loss_and_gradient(model, source, TARGET, shifted(TARGET))[2]
    yield "" if np.isfinite(gradient).all() else "a source that is all padding makes NaN in the gradient"


def losses_agree(config: ModelConfig) -> Complaints:
    model = with_random_vectors(Transformer(config, dtype=FLOAT64))
    batch = SOURCE, TARGET, shifted(TARGET)
    expected, n_tokens, _ = cross_entropy(model.forward(SOURCE, TARGET)[0], batch[2], 0.1)
    for name, method in [("loss", model.loss), ("loss_backward", model.loss_backward)]:
        found, counted = method(*batch, 0.1)
        yield differs(f"Transformer.{name} and the loss of Transformer.forward", found, expected)
        yield "" if counted == n_tokens else f"Transformer.{name} counts {counted} tokens of {n_tokens}"
