"""Probes of information flow for `scratchformer doctor`: which outputs depend on which inputs.

The gradient check cannot find such faults: a model that sees future tokens has exact gradients, but of the wrong
function. So these probes change one position at a time and look at which outputs change.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Callable

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.doctor.findings import ROUNDING, CheckFailed, CodeProbe, expect, expect_close
from scratchformer.doctor.fixtures import SOURCE, TARGET, random, shifted, with_random_vectors
from scratchformer.nn import gradient_cases
from scratchformer.nn.attention import Mask, ScaledDotProductAttention
from scratchformer.nn.gradient_cases import FLOAT64, B, D, F, S, T, V, lengths
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.layers import FeedForward, LayerNorm, Linear, PositionalEncoding
from scratchformer.nn.loss import cross_entropy, forward_loss, loss_backward
from scratchformer.nn.next_word import NextWord
from scratchformer.nn.ops import PAD
from scratchformer.nn.parameter import Array
from scratchformer.nn.sequence_layers import Convolution, RestrictedAttention, SeparableConvolution
from scratchformer.nn.text_encoder import TextEncoder
from scratchformer.nn.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, Transformer
from scratchformer.nn.vision import VisionTransformer


def probes(config: ModelConfig) -> list[CodeProbe]:
    """`config` should be of a small model, since it is built many times."""
    return [dependence(config), padding(config)]


# Dependence -----------------------------------------------------------------------------------------------------------


def dependence(config: ModelConfig) -> CodeProbe:
    position_wise = np.eye(T, dtype=bool)
    causal, padded = np.tri(T, dtype=bool), np.arange(S) < lengths(S)[:, None, None]  # (T, T), (B, 1, S)
    ahead = np.arange(S) - np.arange(S)[:, None]  # (S, S): of a query, how far a key is ahead
    itself, empty = np.eye(S, dtype=bool), (lengths(S) == 0)[:, None, None]
    functions: list[tuple[str, Callable[[], Callable], np.ndarray]] = [
        ("Linear", lambda: Linear(D, D, random(), FLOAT64).forward, position_wise),
        ("LayerNorm", lambda: LayerNorm(D, FLOAT64).forward, position_wise),
        ("FeedForward", lambda: FeedForward(D, F, random(), FLOAT64).forward, position_wise),
        ("PositionalEncoding", lambda: PositionalEncoding().forward, position_wise),
        ("ScaledDotProductAttention", lambda: attention(Mask()), np.ones((T, S), bool)),
        ("ScaledDotProductAttention", lambda: attention(Mask(lengths(S))), padded),
        ("ScaledDotProductAttention", lambda: attention(Mask(causal=True)), causal),
        ("SelfAttention", lambda: self_attention(Mask(lengths(S))), padded | itself & ~empty),
        ("SelfAttention", lambda: self_attention(Mask(causal=True)), causal),
        ("CrossAttention", lambda: cross_attention_from_memory, padded),
        ("CrossAttention", lambda: cross_attention_from_x, position_wise),
        ("Convolution", lambda: convolution(Convolution, Mask(lengths(S)), 1), padded & (np.abs(ahead) <= 1)),
        ("Convolution", lambda: convolution(Convolution, Mask(causal=True), 2), np.isin(ahead, [-4, -2, 0])),
        ("SeparableConvolution", lambda: convolution(SeparableConvolution, Mask(), 2), np.isin(ahead, [-2, 0, 2])),
        ("RestrictedAttention", lambda: restricted_attention(Mask(lengths(S))), padded & (np.abs(ahead) <= 1)),
        ("RestrictedAttention", lambda: restricted_attention(Mask(causal=True)), np.isin(ahead, [-2, -1, 0])),
        ("NextWord", lambda: next_word, np.arange(S) == np.array([[0, 1, 2, 2], [0] * T, [1] * T])[:, :, None]),
        ("EncoderLayer", lambda: encoder(EncoderLayer(config, random(), FLOAT64)), padded | itself),
        ("DecoderLayer", lambda: decoder_from_x(DecoderLayer(config, random(), FLOAT64)), causal),
        ("DecoderLayer", lambda: decoder_from_memory(DecoderLayer(config, random(), FLOAT64)), padded),
        ("Encoder", lambda: encoder(Encoder(config, random(), FLOAT64)), padded | itself),
        ("Decoder", lambda: decoder_from_x(Decoder(config, random(), FLOAT64)), causal),
        ("Decoder", lambda: decoder_from_memory(Decoder(config, random(), FLOAT64)), padded),
    ]
    return CodeProbe(
        "dependence on positions",
        "an output depends on each position it may attend to and on no other: not on later target tokens, on padding "
        "or on other sentences of the batch",
        "the decoder sees future tokens: the causal mask is missing, shifted by one or added after the softmax, or "
        "cross-attention has its inputs exchanged; the source is ignored: memory does not reach the decoder; the "
        "padding mask covers rows instead of columns; statistics are taken over the batch",
        [(name, partial(check_dependence, make, allowed)) for name, make, allowed in functions]
        + [
            ("Transformer", partial(check_token_dependence, config)),
            ("Transformer", partial(check_word_order, config)),
            ("LanguageModel", partial(check_language_model, config)),
            ("TextEncoder", partial(check_text_encoder, config)),
            ("VisionTransformer", partial(check_vision_transformer, config)),
        ],
    )


def check_dependence(make: Callable[[], Callable], allowed: np.ndarray) -> None:
    """make() -> function (B, S, D) -> (B, T, ...) or (y, cache); allowed (T, S) or (B, T or 1, S), True = depends."""
    function, n_positions = make(), allowed.shape[-1]
    found = dependence_of(function, random().normal(size=(B, n_positions, D)))
    expect_dependence(found, np.broadcast_to(allowed, (B, found.shape[1], n_positions)))


def dependence_of(function: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    """Which outputs change when one input position changes? x (B, S, ...) -> bool (B, T, B, S)"""

    def output(x: np.ndarray) -> np.ndarray:
        y = function(x)
        return y[0] if isinstance(y, tuple) else y

    y = output(x)
    depends = np.zeros((*y.shape[:2], *x.shape[:2]), bool)
    for b, s in np.ndindex(x.shape[:2]):
        changed = x.copy()
        changed[b, s] = another_id(int(x[b, s])) if x.dtype.kind == "i" else 1 - 2 * x[b, s]
        moved = np.abs(output(changed) - y) > ROUNDING
        depends[:, :, b, s] = moved.reshape(*y.shape[:2], -1).any(axis=-1)
    return depends


def another_id(token: int) -> int:
    """Another word; padding stays padding."""
    return token if token == PAD else token % (V - 1) + 1


def expect_dependence(found: np.ndarray, allowed: np.ndarray, what: str = "") -> None:
    """Raise CheckFailed unless dependence (B, T, B, S) is as allowed (B, T, S), which is within each sentence."""
    n_sentences = len(allowed)
    expected = np.zeros_like(found)
    expected[np.arange(n_sentences), :, np.arange(n_sentences)] = allowed
    for b, t, other, s in np.argwhere(found & ~expected):
        expect(other == b, f"{what}a sentence depends on other sentences of its batch")
        expect(allowed[b, :, s].any(), f"{what}output {t} depends on position {s}, which is padding")
        raise CheckFailed(f"{what}output {t} depends on {'the later ' if s > t else ''}position {s}")
    for _, t, _, s in np.argwhere(expected & ~found):
        raise CheckFailed(f"{what}output {t} does not depend on position {s}")


def attention(mask: Mask) -> Callable:
    """One head whose keys and values are x: x (B, S, D) -> y (B, T, 1, D)"""
    q = random().normal(size=(B, T, 1, D))
    return lambda x: ScaledDotProductAttention().forward(q, x[:, :, None], x[:, :, None], mask)


def self_attention(mask: Mask) -> Callable:
    layer = gradient_cases.self_attention(random(), 0.0)
    return lambda x: layer.forward(x, mask)


def convolution(kind: type[Convolution] | type[SeparableConvolution], mask: Mask, dilation: int) -> Callable:
    layer = kind(D, 3, random(), FLOAT64, dilation)
    return lambda x: layer.forward(x, mask)


def restricted_attention(mask: Mask) -> Callable:
    """One head of which queries, keys and values are x, in windows of three: x (B, S, D) -> y (B, S, 1, D)"""
    return lambda x: RestrictedAttention(3).forward(*(x[:, :, None],) * 3, mask)


def next_word(memory: Array) -> Any:
    """A decoder whose input has 0, 1, 2 and 2 tags, then none, then more than the words of its source."""
    layer, ids = NextWord(n_tags=3), np.array([[2, 6, 4, 8], [2, 7, 7, 3], [5, 4, 6, 10]])
    return layer.forward(np.zeros((B, T, D)), memory, layer.count(ids), Mask(lengths(S)))


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
    return lambda memory: layer.forward(x, memory, Mask(causal=True), Mask(lengths(S)))


def check_token_dependence(config: ModelConfig) -> None:
    model = with_random_vectors(Transformer(config, dtype=FLOAT64))
    found = dependence_of(lambda target: model.forward(SOURCE, target), TARGET)
    expect_dependence(found, np.broadcast_to(np.tri(T, dtype=bool), (B, T, T)), "from target to logits: ")
    found = dependence_of(lambda source: model.forward(source, TARGET), SOURCE)
    expect_dependence(found, np.broadcast_to((SOURCE != PAD)[:, None], (B, T, S)), "from source to logits: ")


def check_word_order(config: ModelConfig) -> None:
    """Use one layer only: from the second layer on, the causal mask alone is enough to tell the order of the target."""
    model = with_random_vectors(Transformer(replace(config, N=1), dtype=FLOAT64))
    logits = model.forward(SOURCE, TARGET)[0]
    for side, source, target in [("source", swapped(SOURCE), TARGET), ("target", SOURCE, swapped(TARGET))]:
        change = np.abs(model.forward(source, target)[0] - logits)[:, 2:].max(axis=(1, 2))
        expect((change > ROUNDING).all(), f"the order of the {side}'s words makes no difference")


def check_text_encoder(config: ModelConfig) -> None:
    """Every token reaches every state, also that which a class is read from; more padding changes none."""
    real = SOURCE != PAD
    for n_classes in (0, 2):
        sizes = replace(config, architecture="encoder", n_classes=n_classes)
        model = with_random_vectors(TextEncoder(sizes, dtype=FLOAT64))
        logits = model.forward(SOURCE, np.zeros_like(SOURCE))[0]
        found = dependence_of(lambda ids: model.forward(ids, np.zeros_like(ids))[0][:, :1], SOURCE)
        expect_dependence(found, real[:, None], "from tokens to the first state: ")
        padded = np.pad(SOURCE, ((0, 0), (0, 2)))
        again = model.forward(padded, np.zeros_like(padded))[0][:, : logits.shape[1]]
        kept = real[:, : logits.shape[1], None]
        expect_close("logits with two more columns of padding", kept * again, kept * logits)


def check_language_model(config: ModelConfig) -> None:
    """Raises CheckFailed unless a logit of a new model depends on all tokens up to its own, and on no later one."""
    model = with_random_vectors(LanguageModel(config, dtype=FLOAT64))
    expect_dependence(dependence_of(model.forward, TARGET), np.tri(T, dtype=bool)[None].repeat(B, axis=0))


def check_vision_transformer(config: ModelConfig) -> None:
    """Every pixel reaches the class; patches that change places with their positions change nothing."""
    sizes = replace(config, architecture="vision", n_classes=3, image_size=4, positions="learned", max_positions=5)
    model, images = with_random_vectors(VisionTransformer(sizes, dtype=FLOAT64)), random().normal(size=(B, 4, 4))
    pixels = images.reshape(B, 16)
    found = dependence_of(lambda pixels: model.forward(pixels.reshape(B, 4, 4))[0], pixels)
    expect_dependence(found, np.ones((B, 1, 16), bool), "from pixels to the class: ")
    logits, P = model.forward(images)[0], model.positions.parameters()["weight"].data
    P[...] = P[[0, 2, 1, 4, 3]]
    found = model.forward(images[:, :, [2, 3, 0, 1]])[0]
    expect_close("logits after the left and the right patches have changed places with their positions", found, logits)


def swapped(ids: np.ndarray) -> np.ndarray:
    """Swap the first two words of each sentence."""
    return np.concatenate([ids[:, 1::-1], ids[:, 2:]], axis=1)


# Padding --------------------------------------------------------------------------------------------------------------


def padding(config: ModelConfig) -> CodeProbe:
    checks = (check_extra_padding, check_sentence_alone, check_empty_source, check_losses_agree)
    return CodeProbe(
        "padding and batch",
        "more padding and other sentences in the batch do not change logits, loss, number of tokens or gradient; a "
        "source of padding only gives finite numbers",
        "a place without the padding mask; a loss averaged over padding; positions counted from the right; a softmax "
        "over no keys, which is 0/0",
        [("Transformer", partial(check, config)) for check in checks],
    )


def loss_and_gradient(
    model: Transformer, source: np.ndarray, target_in: np.ndarray, target_out: np.ndarray
) -> tuple[float, int, np.ndarray]:
    """-> loss in nats, summed over target tokens; their number; gradient of all parameters (n_parameters,)"""
    model.zero_grad()
    loss, n_tokens = loss_backward(model, source, target_in, target_out, 0.1)
    return loss, n_tokens, model.store.grad.copy()


def check_extra_padding(config: ModelConfig) -> None:
    """Raises CheckFailed if more padding changes logits, loss, number of tokens or gradient of a new model."""

    def pad(ids: np.ndarray, n_columns: int) -> np.ndarray:
        return np.pad(ids, ((0, 0), (0, n_columns)))

    model = with_random_vectors(Transformer(config, dtype=FLOAT64))
    logits = model.forward(SOURCE, TARGET)[0]
    loss, n_tokens, gradient = loss_and_gradient(model, SOURCE, TARGET, shifted(TARGET))
    for side, in_source, in_target in [("source", 2, 0), ("target", 0, 2)]:
        source, target_in, target_out = pad(SOURCE, in_source), pad(TARGET, in_target), pad(shifted(TARGET), in_target)
        padded = f"with two more columns of padding in the {side}"
        expect_close(f"logits {padded}", model.forward(source, target_in)[0][:, :T], logits)
        new_loss, new_n_tokens, new_gradient = loss_and_gradient(model, source, target_in, target_out)
        expect(new_n_tokens == n_tokens, f"{new_n_tokens} tokens counted {padded}, {n_tokens} without")
        expect_close(f"loss {padded}", new_loss, loss)
        expect_close(f"gradient {padded}", new_gradient, gradient)


def check_sentence_alone(config: ModelConfig) -> None:
    model = with_random_vectors(Transformer(config, dtype=FLOAT64))
    logits = model.forward(SOURCE, TARGET)[0]
    for b, length in enumerate((SOURCE != PAD).sum(axis=1)):
        alone = model.forward(SOURCE[b : b + 1, :length], TARGET[b : b + 1])[0]
        expect_close("logits of a sentence alone, compared with those in a batch", alone[0], logits[b])


def check_empty_source(config: ModelConfig) -> None:
    model = with_random_vectors(Transformer(config, dtype=FLOAT64))
    source = SOURCE * [[1], [0], [1]]
    logits = model.forward(source, TARGET)[0]
    expect(np.isfinite(logits).all(), "a source of padding only gives NaN or infinity in the logits")
    gradient = loss_and_gradient(model, source, TARGET, shifted(TARGET))[2]
    expect(np.isfinite(gradient).all(), "a source of padding only gives NaN or infinity in the gradient")


def check_losses_agree(config: ModelConfig) -> None:
    model = with_random_vectors(Transformer(config, dtype=FLOAT64))
    batch = SOURCE, TARGET, shifted(TARGET)
    expected, n_tokens, _ = cross_entropy(model.forward(SOURCE, TARGET)[0], batch[2], 0.1)
    for function in (forward_loss, loss_backward):
        found, counted = function(model, *batch, 0.1)
        expect_close(f"loss of {function.__name__}, compared with that of the logits", found, expected)
        expect(counted == n_tokens, f"{function.__name__} counts {counted} tokens instead of {n_tokens}")
