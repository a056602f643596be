"""Probes of information flow for `scratchformer doctor`: which outputs depend on which inputs.

The gradient check cannot find such faults: a model that sees future tokens has exact gradients, but of the wrong
function. So these probes change one position at a time and look at which outputs change.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any, Callable, get_args

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.doctor.findings import CheckFailed, CodeProbe, expect, expect_close
from scratchformer.doctor.fixtures import SOURCE, TARGET, TARGET_OUT, TYPES, random, with_random_vectors
from scratchformer.nn import gradient_cases
from scratchformer.nn.attention import Mask, ScaledDotProductAttention, attention_weights
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradient_cases import FLOAT64, B, D, F, H, S, T, V, lengths
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.layers import FeedForward, LayerNorm, Linear, PositionalEncoding
from scratchformer.nn.loss import Smoothing, batch_loss, batch_loss_backward, cross_entropy
from scratchformer.nn.model import Model
from scratchformer.nn.next_word import NextWord
from scratchformer.nn.ops import PAD, ops_of, using
from scratchformer.nn.parameter import Array, Layer
from scratchformer.nn.sequence_layers import (
    Convolution,
    RestrictedAttention,
    RestrictedSelfAttention,
    SeparableConvolution,
)
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
        ("ScaledDotProductAttention", lambda: attention(Mask(causal=True)), np.tri(T, S, S - T, dtype=bool)),
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
            ("Transformer", partial(check_attention_masks, config)),
            ("Transformer", partial(check_word_order, config)),
            ("LanguageModel", partial(check_language_model, config)),
            ("TextEncoder", partial(check_text_encoder, config)),
            ("VisionTransformer", partial(check_vision_transformer, config)),
        ],
    )


def check_dependence(make: Callable[[], Callable], allowed: np.ndarray) -> None:
    """make() -> function (B, S, D) -> (B, T, ...) or (y, cache); allowed (T, S) or (B, T or 1, S), True = depends."""
    function, n_positions = make(), allowed.shape[-1]
    found = changes_of(function, random().normal(size=(B, n_positions, D)))
    expect_dependence(found, np.broadcast_to(allowed, (B, found.shape[1], n_positions)))


def another(value: Any) -> Any:
    """Another number, or the id of another word; padding stays padding."""
    if not isinstance(value, (int, np.integer)):
        return 1 - 2 * value
    return value if value == PAD else value % (V - 1) + 1


def another_word(token: int) -> int:
    """The id of another word, also instead of padding."""
    return token % (V - 1) + 1


def changes_of(
    function: Callable[[np.ndarray], Any], x: np.ndarray, change: Callable[[Any], Any] = another
) -> np.ndarray:
    """Change one position of x at a time: how much does each output move? x (B, S, ...) -> (B, T, B, S)"""

    def output(x: np.ndarray) -> np.ndarray:
        y = function(x)
        return y[0] if isinstance(y, tuple) else y

    y = output(x)
    moves = np.zeros((*y.shape[:2], *x.shape[:2]))
    for b, s in np.ndindex(x.shape[:2]):
        changed = x.copy()
        changed[b, s] = change(x[b, s])
        moves[:, :, b, s] = np.abs(output(changed) - y).reshape(*y.shape[:2], -1).max(axis=-1)
    return moves


def dependence_of(function: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    """Find the outputs that depend, by more than rounding, on a position. x (B, S, ...) -> bool (B, T, B, S)"""
    return changes_of(function, x) > 1e-9


NOTICEABLE = 1e-6
"""An output that depends on a position changes by more than this. One that does not changes by nothing at all."""


def expect_dependence(moves: np.ndarray, allowed: np.ndarray, what: str = "") -> None:
    """Raise CheckFailed unless the changes (B, T, B, S) are as allowed (B, T, S), which is within each sentence."""
    n_sentences = len(allowed)
    expected = np.zeros(moves.shape, bool)
    expected[np.arange(n_sentences), :, np.arange(n_sentences)] = allowed
    for b, t, other, s in np.argwhere((moves != 0) & ~expected):
        expect(other == b, f"{what}a sentence depends on other sentences of its batch")
        expect(allowed[b, :, s].any(), f"{what}output {t} depends on position {s}, which is padding")
        raise CheckFailed(f"{what}output {t} depends on {'the later ' if s > t else ''}position {s}")
    for _, t, _, s in np.argwhere(expected & ~(moves > NOTICEABLE)):
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
    """Use sources of S and of T tokens: a model that mixes up the two sides may run for equal lengths only."""
    model = transformer(config)
    for source in (SOURCE, SOURCE[:, :T]):
        found = changes_of(lambda target: model.forward(source, target), TARGET, another_word)
        expect_dependence(found, np.broadcast_to(np.tri(T, dtype=bool), (B, T, T)), "from target to logits: ")
    found = changes_of(lambda source: model.forward(source, TARGET), SOURCE)
    expect_dependence(found, np.broadcast_to((SOURCE != PAD)[:, None], (B, T, S)), "from source to logits: ")


def check_attention_masks(config: ModelConfig) -> None:
    """The weights of all 3 N attentions are 0 where they are masked, and only there."""
    source, N = SOURCE * [[1], [0], [1]], config.N  # the second sentence is empty
    weights = attention_weights(transformer(config).forward(source, TARGET)[1])
    expect(len(weights) == 3 * N, f"{len(weights)} attentions, expected {3 * N}")
    to_source, to_target = (source != PAD)[:, None, None], np.tri(T, dtype=bool)
    for name, group, shape, may in [
        ("the encoder", weights[:N], (B, H, S, S), to_source),
        ("the decoder", weights[N::2], (B, H, T, T), to_target),
        ("the decoder to the source", weights[N + 1 :: 2], (B, H, T, S), to_source),
    ]:
        for found in group:
            expect(found.shape == shape, f"attention weights of {name} have shape {found.shape}, expected {shape}")
            expect(
                np.array_equal(found != 0, np.broadcast_to(may, shape)), f"attention of {name} does not obey its mask"
            )


def check_word_order(config: ModelConfig) -> None:
    """Use one layer only: from the second layer on, the causal mask alone is enough to tell the order of the target."""
    model = transformer(replace(config, N=1))
    logits = model.forward(SOURCE, TARGET)[0]
    for side, source, target in [("source", swapped(SOURCE), TARGET), ("target", SOURCE, swapped(TARGET))]:
        change = np.abs(model.forward(source, target)[0] - logits)[:, 2:].max(axis=(1, 2))
        expect((change > NOTICEABLE).all(), f"the order of the {side}'s words makes no difference")


def check_language_model(config: ModelConfig) -> None:
    """A logit of a new model depends on all tokens up to its own, and on no later one."""
    moves = changes_of(language_model(config).forward, TARGET, another_word)
    expect_dependence(moves, np.broadcast_to(np.tri(T, dtype=bool), (B, T, T)))


def check_text_encoder(config: ModelConfig) -> None:
    """Every token and its type reach every state of their text."""
    real, itself = (SOURCE != PAD)[:, None], np.eye(S, dtype=bool)
    for n_classes in (0, 2):
        model = text_encoder(config, n_classes)
        of_tokens = changes_of(lambda ids: model.forward(ids, TYPES), SOURCE)
        of_types = changes_of(lambda types: model.forward(SOURCE, types), TYPES, lambda type: 1 - type)
        n_states = of_tokens.shape[1]
        expect_dependence(of_tokens, np.broadcast_to(real, (B, n_states, S)), "from tokens to states: ")
        allowed = np.broadcast_to(real | itself[:n_states], (B, n_states, S))  # padding has a type, too
        expect_dependence(of_types, allowed, "from types to states: ")


def check_vision_transformer(config: ModelConfig) -> None:
    """Every pixel reaches the class; patches that change places with their positions change nothing."""
    model, images = vision_transformer(config), random().normal(size=(B, 4, 4))
    moves = changes_of(lambda pixels: model.forward(pixels.reshape(B, 4, 4))[0], images.reshape(B, 16))
    expect_dependence(moves, np.ones((B, 1, 16), bool), "from pixels to the class: ")
    logits, P = model.forward(images)[0], model.positions.parameters()["weight"].data
    P[...] = P[[0, 2, 1, 4, 3]]
    found = model.forward(images[:, :, [2, 3, 0, 1]])[0]
    expect_close("logits after the left and the right patches have changed places with their positions", found, logits)


def swapped(ids: np.ndarray) -> np.ndarray:
    """Swap the first two words of each sentence."""
    return np.concatenate([ids[:, 1::-1], ids[:, 2:]], axis=1)


def transformer(config: ModelConfig) -> Transformer:
    return with_random_vectors(Transformer(config, dtype=FLOAT64))


def language_model(config: ModelConfig) -> LanguageModel:
    return with_random_vectors(LanguageModel(config, dtype=FLOAT64))


def text_encoder(config: ModelConfig, n_classes: int) -> TextEncoder:
    config = replace(config, architecture="encoder", n_classes=n_classes, n_tags=0)
    return with_random_vectors(TextEncoder(config, dtype=FLOAT64))


def vision_transformer(config: ModelConfig) -> VisionTransformer:
    """For images of 4 x 4 pixels, which are four patches."""
    config = replace(config, n_tags=0, positions="learned", max_positions=5)
    sizes = replace(config, architecture="vision", n_classes=3, image_size=4)
    return with_random_vectors(VisionTransformer(sizes, dtype=FLOAT64))


# Padding --------------------------------------------------------------------------------------------------------------


def padding(config: ModelConfig) -> CodeProbe:
    checks = (check_extra_padding, check_sentence_alone, check_empty_source, check_losses_agree, check_gradient_adds_up)
    layers: list[tuple[str, Callable[[], Layer]]] = [
        ("SelfAttention", lambda: gradient_cases.self_attention(random(), 0.0)),
        ("Convolution", lambda: Convolution(D, 3, random(), FLOAT64, 2)),
        ("SeparableConvolution", lambda: SeparableConvolution(D, 3, random(), FLOAT64, 2)),
        ("RestrictedSelfAttention", lambda: RestrictedSelfAttention(D, H, 3, random(), FLOAT64)),
        ("EncoderLayer", lambda: EncoderLayer(config, random(), FLOAT64)),
        ("Encoder", lambda: Encoder(config, random(), FLOAT64)),
    ]
    return CodeProbe(
        "padding and batch",
        "more padding and other sentences in the batch do not change logits, loss, number of tokens or gradient; a "
        "source of padding only gives finite numbers",
        "a place without the padding mask; a loss averaged over padding; positions counted from the right; a softmax "
        "over no keys, which is 0/0",
        [(name, partial(check_layer_padding, make)) for name, make in layers]
        + [("Transformer", partial(check, config)) for check in checks]
        + [
            ("LanguageModel", lambda: check_text_alone(language_model(config), TARGET)),
            ("TextEncoder", lambda: check_text_alone(text_encoder(config, 0), SOURCE, TYPES)),
            ("TextEncoder", lambda: check_text_alone(text_encoder(config, 2), SOURCE, TYPES)),
            ("VisionTransformer", partial(check_image_alone, config)),
        ],
    )


def check_layer_padding(make: Callable[[], Any]) -> None:
    """Padding gets no gradient, and what it contains or how much there is of it makes no difference."""
    layer, x = make(), random().normal(size=(B, T, D))
    real = np.arange(T) < lengths(T)[:, None]
    for mask in (Mask(lengths(T)), Mask(lengths(T), causal=True)):
        y, cache = layer.forward(x, mask)
        dx = layer.backward(random().normal(size=y.shape)[::-1] * real[..., None], cache)
        expect(np.isfinite(y).all(), "NaN or infinity for a sentence of padding only")
        expect((dx[~real] == 0).all() and (dx[real] != 0).all(), "the gradient is not 0 for padding, and only there")
        other, _ = layer.forward(np.where(real[..., None], x, 99), mask)
        expect(np.array_equal(other[real], y[real]), "outputs depend on what is in the place of padding")
        more, _ = layer.forward(np.pad(x, ((0, 0), (0, 5), (0, 0))), mask)
        expect_close("outputs with five more positions of padding", more[:, :T][real], y[real])
        for row in (0, 2):
            alone, _ = layer.forward(x[[row], : lengths(T)[row]], Mask(causal=mask.causal))
            expect_close("outputs of a sentence alone", alone[0], y[row, : lengths(T)[row]])


def loss_and_gradient(
    model: Transformer, source: np.ndarray, target_in: np.ndarray, target_out: np.ndarray
) -> tuple[float, int, np.ndarray]:
    """-> loss in nats, summed over target tokens; their number; gradient of all parameters (n_parameters,)"""
    model.zero_grad()
    loss, n_tokens = batch_loss_backward(model, (source, target_in), target_out, 0.1)
    return loss, n_tokens, model.store.grad.copy()


def check_extra_padding(config: ModelConfig) -> None:
    """Raises CheckFailed if more padding changes logits, loss, number of tokens or gradient of a new model."""

    def pad(ids: np.ndarray, n_columns: int) -> np.ndarray:
        return np.pad(ids, ((0, 0), (0, n_columns)))

    model = transformer(config)
    logits = model.forward(SOURCE, TARGET)[0]
    loss, n_tokens, gradient = loss_and_gradient(model, SOURCE, TARGET, TARGET_OUT)
    for side, in_source, in_target in [("source", 2, 0), ("target", 0, 2)]:
        source, target_in, target_out = pad(SOURCE, in_source), pad(TARGET, in_target), pad(TARGET_OUT, in_target)
        padded = f"with two more columns of padding in the {side}"
        expect_close(f"logits {padded}", model.forward(source, target_in)[0][:, :T], logits)
        new_loss, new_n_tokens, new_gradient = loss_and_gradient(model, source, target_in, target_out)
        expect(new_n_tokens == n_tokens, f"{new_n_tokens} tokens counted {padded}, {n_tokens} without")
        expect_close(f"loss {padded}", new_loss, loss)
        expect_close(f"gradient {padded}", new_gradient, gradient)


def check_sentence_alone(config: ModelConfig) -> None:
    model = transformer(config)
    logits = model.forward(SOURCE, TARGET)[0]
    for b, (s, t) in enumerate(zip((SOURCE != PAD).sum(axis=1), (TARGET != PAD).sum(axis=1))):
        alone = model.forward(SOURCE[[b], :s], TARGET[[b], :t])[0]
        expect_close("logits of a sentence alone, compared with those in a batch", alone[0], logits[b, :t])


def check_text_alone(model: Model, *inputs: np.ndarray) -> None:
    """Compare each text alone with the same text in a batch with more padding."""
    together, _ = model.forward(*(np.pad(each, ((0, 0), (0, 2))) for each in inputs))
    for b, length in enumerate((inputs[0] != PAD).sum(axis=1)):
        alone, _ = model.forward(*(each[[b], :length] for each in inputs))
        what = "logits of a text alone, compared with those in a padded batch"
        expect_close(what, alone[0], together[b, : alone.shape[1]])


def check_image_alone(config: ModelConfig) -> None:
    model, images = vision_transformer(config), random().normal(size=(B, 4, 4))
    logits, _ = model.forward(images)
    for b in range(B):
        alone = model.forward(images[[b]])[0]
        expect_close("logits of an image alone, compared with those in a batch", alone[0], logits[b])
    expect_gradient_adds_up(model, (images,), np.array([[2], [PAD], [3]]))


def expect_gradient_adds_up(model: Model, inputs: tuple[np.ndarray, ...], targets: np.ndarray) -> None:
    """Raise CheckFailed unless the gradient of the batch is the sum of those of its rows."""
    batch_loss_backward(model, inputs, targets, 0.1)
    together = model.store.grad.copy()
    model.zero_grad()
    for b in range(B):
        batch_loss_backward(model, tuple(each[[b]] for each in inputs), targets[[b]], 0.1)
    expect_close("sum of the gradients of each sentence, compared with that of the batch", model.store.grad, together)


def check_gradient_adds_up(config: ModelConfig) -> None:
    expect_gradient_adds_up(transformer(config), (SOURCE, TARGET), TARGET_OUT)


def check_empty_source(config: ModelConfig) -> None:
    model = transformer(config)
    for source in (SOURCE * [[1], [0], [1]], 0 * SOURCE):
        logits = model.forward(source, TARGET)[0]
        expect(np.isfinite(logits).all(), "a source of padding only gives NaN or infinity in the logits")
        gradient = loss_and_gradient(model, source, TARGET, TARGET_OUT)[2]
        expect(np.isfinite(gradient).all(), "a source of padding only gives NaN or infinity in the gradient")


def check_losses_agree(config: ModelConfig) -> None:
    """Compare the loss of a model, which never keeps all logits, with that of all its logits, with dropout on."""
    model, key, nothing = transformer(replace(config, P_drop=0.3)), DropoutKey(1, 2), 0 * TARGET
    for spread in get_args(Smoothing):
        logits, cache = model.forward(SOURCE, TARGET, rng=key)
        expected, n_tokens, dlogits = cross_entropy(logits, TARGET_OUT, 0.1, spread)
        model.zero_grad()
        model.backward(dlogits, cache)
        gradient = model.store.grad.copy()
        for rows_at_once in (1, 2, 1000):
            ops = copy.copy(ops_of(logits))
            ops.logits_at_once = rows_at_once * V
            model.zero_grad()
            with using(ops):
                found, counted = batch_loss_backward(model, (SOURCE, TARGET), TARGET_OUT, 0.1, key, spread)
            expect_close("loss of batch_loss_backward, compared with that of the logits", found, expected)
            expect(counted == n_tokens, f"batch_loss_backward counts {counted} tokens instead of {n_tokens}")
            expect_close("gradient of batch_loss_backward, compared with that of backward", model.store.grad, gradient)
        model.zero_grad()
        without_gradient = batch_loss(model, (SOURCE, TARGET), TARGET_OUT, 0.1, spread)
        expect(not model.store.grad.any(), "batch_loss changes gradients")
        what = "loss and number of tokens of batch_loss, compared with those of batch_loss_backward"
        expect_close(
            what, without_gradient, batch_loss_backward(model, (SOURCE, TARGET), TARGET_OUT, 0.1, None, spread)
        )
        model.zero_grad()
        for function in (batch_loss, batch_loss_backward):
            expect(function(model, (SOURCE, nothing), nothing) == (0, 0), "padding as the target has a loss")
        expect(not model.store.grad.any(), "padding as the target has a gradient")
