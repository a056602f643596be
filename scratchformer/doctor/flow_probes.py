"""Probes of information flow for `scratchformer doctor`: which outputs of a model depend on which inputs.

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
from scratchformer.doctor.fixtures import SOURCE, TARGET, TARGET_OUT, TYPES, new_model, random
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradient_cases import B, S, T, V
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.loss import Smoothing, batch_loss, batch_loss_backward, cross_entropy
from scratchformer.nn.model import Model
from scratchformer.nn.ops import PAD, ops_of, using
from scratchformer.nn.text_encoder import TextEncoder
from scratchformer.nn.transformer import Transformer
from scratchformer.nn.vision import VisionTransformer


def probes(config: ModelConfig) -> list[CodeProbe]:
    """`config` should be of a small model, since it is built many times."""
    return [dependence(config), padding(config)]


def text_encoder(config: ModelConfig, n_classes: int) -> TextEncoder:
    return new_model(TextEncoder, replace(config, architecture="encoder", n_classes=n_classes, n_tags=0))


def vision_transformer(config: ModelConfig) -> VisionTransformer:
    """For images of 4 x 4 pixels, which are four patches."""
    config = replace(config, architecture="vision", n_classes=3, image_size=4, n_tags=0)
    return new_model(VisionTransformer, replace(config, positions="learned", max_positions=5))


# Dependence -----------------------------------------------------------------------------------------------------------


def dependence(config: ModelConfig) -> CodeProbe:
    return CodeProbe(
        "dependence on positions",
        "an output depends on each position it may attend to and on no other: not on later target tokens, on padding "
        "or on other sentences of the batch",
        "the decoder sees future tokens: the causal mask is missing, shifted by one or added after the softmax, or "
        "cross-attention has its inputs exchanged; the source is ignored: memory does not reach the decoder; the "
        "padding mask covers rows instead of columns; statistics are taken over the batch",
        [
            ("Transformer", partial(check_transformer, config)),
            ("Transformer", partial(check_word_order, config)),
            ("LanguageModel", partial(check_language_model, config)),
            ("TextEncoder", partial(check_text_encoder, config)),
            ("VisionTransformer", partial(check_vision_transformer, config)),
        ],
    )


def another(value: Any) -> Any:
    """Another number, or the id of another word; padding stays padding."""
    if not isinstance(value, (int, np.integer)):
        return 1 - 2 * value
    return value if value == PAD else another_word(value)


def another_word(token: Any) -> Any:
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


def expect_dependence(what: str, moves: np.ndarray, allowed: np.ndarray) -> None:
    """Raise CheckFailed unless changes (B, T, B, S) are within a sentence, and where `allowed` (B or 1, T or 1, S)."""
    n_sentences, n_outputs, _, n_positions = moves.shape
    allowed = np.broadcast_to(allowed, (n_sentences, n_outputs, n_positions))
    expected = np.zeros(moves.shape, bool)
    expected[np.arange(n_sentences), :, np.arange(n_sentences)] = allowed
    for b, t, other, s in np.argwhere((moves != 0) & ~expected):
        expect(other == b, f"{what}: a sentence depends on other sentences of its batch")
        expect(allowed[b, :, s].any(), f"{what}: output {t} depends on position {s}, which is padding")
        raise CheckFailed(f"{what}: output {t} depends on {'the later ' if s > t else ''}position {s}")
    for _, t, _, s in np.argwhere(expected & ~(moves > NOTICEABLE)):
        raise CheckFailed(f"{what}: output {t} does not depend on position {s}")


def check_transformer(config: ModelConfig) -> None:
    """Use sources of S and of T tokens: a model that mixes up the two sides may run for equal lengths only."""
    model = new_model(Transformer, config)
    for source in (SOURCE, SOURCE[:, :T]):
        moves = changes_of(lambda target: model.forward(source, target), TARGET, another_word)
        expect_dependence("from target to logits", moves, np.tri(T, dtype=bool))
    moves = changes_of(lambda source: model.forward(source, TARGET), SOURCE)
    expect_dependence("from source to logits", moves, (SOURCE != PAD)[:, None])


def check_word_order(config: ModelConfig) -> None:
    """Use one layer only: from the second layer on, the causal mask alone is enough to tell the order of the target."""
    model = new_model(Transformer, replace(config, N=1))
    logits, order = model.forward(SOURCE, TARGET)[0], [1, 0, 2, 3]
    for side, source, target in [("source", SOURCE[:, [*order, 4]], TARGET), ("target", SOURCE, TARGET[:, order])]:
        change = np.abs(model.forward(source, target)[0] - logits)[:, 2:].max(axis=(1, 2))
        expect((change > NOTICEABLE).all(), f"the order of the {side}'s words makes no difference")


def check_language_model(config: ModelConfig) -> None:
    """A logit of a new model depends on all tokens up to its own, and on no later one."""
    moves = changes_of(new_model(LanguageModel, config).forward, TARGET, another_word)
    expect_dependence("from text to logits", moves, np.tri(T, dtype=bool))


def check_text_encoder(config: ModelConfig) -> None:
    """Every token and its type reach every state of their text."""
    real, itself = (SOURCE != PAD)[:, None], np.eye(S, dtype=bool)
    for n_classes in (0, 2):
        model = text_encoder(config, n_classes)
        of_tokens = changes_of(lambda ids: model.forward(ids, TYPES), SOURCE)
        of_types = changes_of(lambda types: model.forward(SOURCE, types), TYPES, lambda type: 1 - type)
        expect_dependence("from tokens to states", of_tokens, real)
        expect_dependence("from types to states", of_types, real | itself[: of_types.shape[1]])  # padding has one, too


def check_vision_transformer(config: ModelConfig) -> None:
    """Every pixel reaches the class; patches that change places with their positions change nothing."""
    model, images = vision_transformer(config), random().normal(size=(B, 4, 4))
    moves = changes_of(lambda pixels: model.forward(pixels.reshape(B, 4, 4))[0], images.reshape(B, 16))
    expect_dependence("from pixels to the class", moves, np.ones((1, 1, 16), bool))
    logits, P = model.forward(images)[0], model.positions.parameters()["weight"].data
    P[...] = P[[0, 2, 1, 4, 3]]
    found = model.forward(images[:, :, [2, 3, 0, 1]])[0]
    expect_close("logits after the left and the right patches have changed places with their positions", found, logits)


# Padding --------------------------------------------------------------------------------------------------------------


def padding(config: ModelConfig) -> CodeProbe:
    classes = np.array([[2], [1], [2]])
    return CodeProbe(
        "padding and batch",
        "more padding and other sentences in the batch do not change logits, loss, number of tokens or gradient",
        "a place without the padding mask; a loss averaged over padding; positions counted from the right",
        [
            ("Transformer", lambda: check_rows_alone(new_model(Transformer, config), (SOURCE, TARGET), TARGET_OUT)),
            ("Transformer", partial(check_losses_agree, config)),
            ("LanguageModel", lambda: check_rows_alone(new_model(LanguageModel, config), (TARGET,), TARGET_OUT)),
            ("TextEncoder", lambda: check_rows_alone(text_encoder(config, 0), (SOURCE, TYPES), SOURCE)),
            ("TextEncoder", lambda: check_rows_alone(text_encoder(config, 2), (SOURCE, TYPES), classes)),
            (
                "VisionTransformer",
                lambda: check_rows_alone(vision_transformer(config), (random().normal(size=(B, 4, 4)),), classes),
            ),
        ],
    )


def check_rows_alone(model: Model, inputs: tuple[np.ndarray, ...], targets: np.ndarray) -> None:
    """Compare a batch that has two more columns of padding with each of its rows alone, without padding."""

    def pad(array: np.ndarray) -> np.ndarray:
        return np.pad(array, ((0, 0), (0, 2))) if is_text(array) else array

    def alone(array: np.ndarray, row: int) -> np.ndarray:
        ids = SOURCE if array is TYPES else array
        return array[[row], : (ids[row] != PAD).sum()] if is_text(array) else array[[row]]

    def is_text(array: np.ndarray) -> bool:
        return array.dtype.kind == "i" and array.shape[1] > 1

    padded = tuple(map(pad, inputs))
    logits, _ = model.forward(*padded)
    model.zero_grad()
    loss, n_tokens = batch_loss_backward(model, padded, pad(targets), 0.1)
    gradient = model.store.grad.copy()
    model.zero_grad()
    for row in range(B):
        of_row = tuple(alone(each, row) for each in inputs)
        found = model.forward(*of_row)[0][0]
        expect_close("logits of a row alone, compared with those in a padded batch", found, logits[row, : len(found)])
        row_loss, row_tokens = batch_loss_backward(model, of_row, alone(targets, row), 0.1)
        loss, n_tokens = loss - row_loss, n_tokens - row_tokens
    expect(n_tokens == 0, f"a padded batch counts {n_tokens:+} tokens, compared with its rows alone")
    expect_close("loss of a padded batch minus the losses of its rows", loss, 0)
    expect_close("gradient of a padded batch, compared with the sum of those of its rows", gradient, model.store.grad)


def check_losses_agree(config: ModelConfig) -> None:
    """Compare the loss of a model, which never keeps all logits, with that of all its logits, with dropout on."""
    model, key, nothing = new_model(Transformer, replace(config, P_drop=0.3)), DropoutKey(1, 2), 0 * TARGET
    for spread in get_args(Smoothing):
        logits, cache = model.forward(SOURCE, TARGET, rng=key)
        *expected, dlogits = cross_entropy(logits, TARGET_OUT, 0.1, spread)
        model.zero_grad()
        model.backward(dlogits, cache)
        gradient = model.store.grad.copy()
        for rows_at_once in (1, 2, 1000):
            ops = copy.copy(ops_of(logits))
            ops.logits_at_once = rows_at_once * V
            model.zero_grad()
            with using(ops):
                found = batch_loss_backward(model, (SOURCE, TARGET), TARGET_OUT, 0.1, key, spread)
            expect_close("loss and number of tokens, compared with those of all logits", found, expected)
            expect_close("gradient of the loss, compared with that of all logits", model.store.grad, gradient)
        model.zero_grad()
        without_gradient = batch_loss(model, (SOURCE, TARGET), TARGET_OUT, 0.1, spread)
        of_padding = [f(model, (SOURCE, nothing), nothing) for f in (batch_loss, batch_loss_backward)]
        expect(of_padding == [(0, 0)] * 2, "padding as the target has a loss")
        expect(not model.store.grad.any(), "batch_loss, or padding as the target, changes the gradient")
        of_training = batch_loss_backward(model, (SOURCE, TARGET), TARGET_OUT, 0.1, None, spread)
        expect_close("loss of validation, compared with that of training", without_gradient, of_training)
