"""Exercises of lesson 16: what a first loss is compared with, a bug that no gradient check sees, and a bug hunt."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from exercises.exercise import Break, Build, Result
from exercises.numeric import numeric_gradient
from scratchformer.doctor.fixtures import small_config
from scratchformer.doctor.flow_probes import check_rows_alone, dependence_of
from scratchformer.nn import gradient_cases
from scratchformer.nn.attention import Mask
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.ops import PAD, Ops, ops_of
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer, lengths_of

# 16_dealt_answers -----------------------------------------------------------------------------------------------------


def loss_of_dealt_answers(logits: Array, share: Array) -> Array:
    n, V = logits.shape
    losses = [cross_entropy(logits, np.full(n, v))[0] if v != PAD else loss_of_symbol_zero(logits) for v in range(V)]
    return np.array(share @ np.array(losses) / n)


def loss_of_symbol_zero(logits: Array) -> float:
    """cross_entropy passes over 0, which is padding; so give 0 and 1 each other's places."""
    swapped = logits.copy()
    swapped[:, [0, 1]] = logits[:, [1, 0]]
    return cross_entropy(swapped, np.ones(len(logits), int))[0]


def by_definition(logits: Array, share: Array) -> Array:
    """Row by row, in plain words: minus the logarithm of each symbol's probability, as often as it is the answer."""
    total = 0.0
    for z in logits:
        shifted = z - z.max()
        log_p = shifted - np.log(np.exp(shifted).sum())
        total -= sum(s * one for s, one in zip(share, log_p) if s)
    return np.array(total / len(logits))


def probabilities(logits: Array) -> Array:
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def shares(random: np.random.Generator, V: int) -> Array:
    share = random.random(V)
    return share / share.sum()


DEALT_ANSWERS = Build(
    id="16_dealt_answers",
    title="What is the loss if the answers are dealt out at random?",
    function="dealt_loss",
    arguments=("logits", "share"),
    cases={
        "a new model": lambda random: {"logits": random.normal(size=(6, 11)), "share": shares(random, 11)},
        "a single guess": lambda random: {"logits": 2 * random.normal(size=(1, 5)), "share": shares(random, 5)},
        "logits in the thousands": lambda random: {
            "logits": 1000 * random.normal(size=(3, 4)), "share": shares(random, 4)},
    },
    expected=by_definition,
    result=Result(name="loss", symptoms={
        "nan or inf where logits are in the thousands: subtract the largest of each row before exp, and take no "
        "logarithm of a probability that has become 0":
            lambda yours, logits: not np.isfinite(yours).all() and np.abs(logits).max() > 100,
    }, suspects={
        "all symbols count alike; each should count by its share":
            lambda logits: loss_of_dealt_answers(logits, np.full(logits.shape[1], 1 / logits.shape[1])),
        "ln V is the loss of equal logits only": lambda logits: np.array(np.log(logits.shape[1])),
        "bits: the loss is in nats, with the natural logarithm":
            lambda logits, share: loss_of_dealt_answers(logits, share) / np.log(2),
        "the entropy of the shares does not look at the logits": lambda share: np.array(-(share * np.log(share)).sum()),
        "the logarithm of the average probability; the loss is the average of the logarithms":
            lambda logits, share: np.array(-np.log(probabilities(logits) @ share).mean()),
        "the logarithm of the sum is missing: minus the logit is no loss yet":
            lambda logits, share: np.array(-(logits @ share).mean()),
    }),
    solution=loss_of_dealt_answers,
    library=(cross_entropy,),
    hints=(
        "logits (n, V), share (V,), which sums to 1. The result is one number.",
        "The loss of one guess is the logarithm of the sum of e^z, minus the logit of the answer. If the answer is "
        "dealt out, that logit is an average, weighted with the shares.",
        "mean over n of (log sum_v e^(z_v) - sum_v share_v z_v); take the largest z out of the first term before exp.",
    ),
)

# 16_right_gradient ----------------------------------------------------------------------------------------------------

CLEARLY_WRONG = 1e-2
TOLERANCE = 1e-6


def softmax_of_doubled(scores: Array, dweights: Array) -> tuple[Array, Array]:
    ops = ops_of(scores)
    weights = ops.masked_softmax(scores, 2.0, None, False)
    return weights, ops.masked_softmax_backward(dweights, weights, 2.0)


def not_invisible(answer: Callable) -> str | None:
    """The first thing that gives a wrong softmax away, or keeps it from being wrong."""
    random = np.random.default_rng(0)
    for shape in ((4, 5), (1, 3)):
        scores, dweights = random.normal(size=(2, *shape))
        given = answer(scores.copy(), dweights.copy())
        if not (isinstance(given, tuple) and len(given) == 2):
            return "it should return two arrays: weights, dscores"
        weights, dscores = (np.asarray(array, float) for array in given)
        if weights.shape != shape or dscores.shape != shape:
            return f"the shapes are {weights.shape} and {dscores.shape}, both should be {shape}"
        if not (np.isfinite(weights).all() and np.isfinite(dscores).all()):
            return "it holds nan or inf"
        if weights.min() < 0:
            return "it does not look right: a weight is negative"
        if np.abs(weights.sum(axis=-1) - 1).max() > TOLERANCE:
            return f"it does not look right: the weights of a query sum to {weights.sum(axis=-1)[0]:.3g}"
        off = np.abs(weights - ops_of(scores).masked_softmax(scores, 1.0, None, False)).max()
        if off < CLEARLY_WRONG:
            return "that is softmax: there is no bug to be found" if off < TOLERANCE else (
                f"hardly wrong: the weights are off by {off:.0e}")
        truth = numeric_gradient(
            lambda moved: float((np.asarray(answer(moved, dweights)[0]) * dweights).sum()), scores)
        error = np.abs(dscores - truth).max() / max(float(np.abs(truth).max()), CLEARLY_WRONG)
        if error > TOLERANCE:
            return (f"the gradient check objects, relative error {error:.0e}: dscores must be the gradient of your "
                    "weights" + (", not of softmax's" if belongs_to_softmax(scores, dweights, dscores) else ""))
    return None


def belongs_to_softmax(scores: Array, dweights: Array, dscores: Array) -> bool:
    ops = ops_of(scores)
    right = ops.masked_softmax_backward(dweights, ops.masked_softmax(scores, 1.0, None, False), 1.0)
    return bool(np.abs(dscores - right).max() < TOLERANCE)


RIGHT_GRADIENT = Break(
    id="16_right_gradient",
    title="A softmax that is wrong, looks right, and passes its gradient check",
    function="wrong_softmax",
    arguments=("scores", "dweights"),
    complaint=not_invisible,
    solution=softmax_of_doubled,
    library=(Ops.masked_softmax, Ops.masked_softmax_backward, gradcheck),
    hints=(
        "weights and dscores have the shape of scores, (n, S). Weights are not negative, and each row sums to 1.",
        "Take a bug that many programs have: a factor that is missing or another than it should be. Then backward must "
        "have it as well.",
        "weights = softmax(2 scores); dscores = 2 weights (dweights - sum(weights dweights)).",
    ),
)

# 16_hunt --------------------------------------------------------------------------------------------------------------

SOURCE = np.array([[3, 5, 2, 7, 4], [4, 9, 6, 0, 0], [8, 1, 0, 0, 0]])                 # (B, S)
TARGET = np.array([[2, 6, 4, 8], [2, 7, 7, 3], [2, 10, 5, 9]])                         # (B, T)
DROPPING = 0.2

Model = Callable[[Array, Array], Array]


def model_of(norm: Literal["post", "pre"] = "post", causal: bool = True, encoder_masked: bool = True,
             memory_masked: bool = True, deaf: bool = False, P_drop: float = 0.0) -> Model:
    """The library's Transformer from its parts, some of which may be left out. -> (source, target) -> logits (B, T, V)

    deaf    the encoder gets the same word everywhere, and only the lengths are right
    P_drop  if it is not 0, dropout is on, and draws anew in each call
    """
    config = replace(small_config(gradient_cases.SMALL), norm=norm, P_drop=P_drop)
    model, calls = Transformer(config, dtype="float64"), itertools.count(1)

    def logits(source: Array, target: Array) -> Array:
        key = DropoutKey(0, next(calls)) if P_drop else None
        mask = Mask(lengths_of(source))
        read = np.where(source != PAD, 3, PAD) if deaf else source
        x = model.source_positions.forward(model.source_embedding.forward(read)[0])[0]
        memory, _ = model.encoder.forward(x, mask if encoder_masked else Mask(), rng=key and key.child(0))
        x = model.target_positions.forward(model.target_embedding.forward(target)[0])[0]
        states, _ = model.decoder.forward(x, memory, Mask(causal=causal), mask if memory_masked else Mask(),
                                          rng=key and key.child(1))
        return model.unembedding.forward(states)[0]

    return logits


def with_faint_leak(source: Array, target: Array) -> Array:
    """A millionth of the last word of the target in every guess."""
    return model_of()(source, target) + 1e-6 * target[:, -1:, None]


def leaking_in_the_last_sentence(source: Array, target: Array) -> Array:
    logits = model_of()(source, target)
    logits[-1] = model_of(causal=False)(source, target)[-1]
    return logits


def specimens() -> dict[str, tuple[str, Model]]:
    """What it is, in words -> what the hunter should say, and the model."""
    return {
        "a Transformer": ("honest", model_of()),
        "a Transformer with pre-norm": ("honest", model_of(norm="pre")),
        "one without a causal mask": ("future", model_of(causal=False)),
        "one that sees a millionth of the last word (a faint leak is one)": ("future", with_faint_leak),
        "one without a causal mask in the last sentence of a batch only": ("future", leaking_in_the_last_sentence),
        "one whose decoder reads the padding of the source": ("padding", model_of(memory_masked=False)),
        "one whose encoder reads the padding of the source": ("padding", model_of(encoder_masked=False)),
        "one that gets only the length of its source": ("deaf", model_of(deaf=True)),
        "one whose dropout stays on": ("dice", model_of(P_drop=DROPPING)),
    }


VERDICTS = ("honest", "future", "padding", "deaf", "dice")


def verdict(model: Model, source: Array, target: Array) -> str:
    logits = model(source, target)
    if np.abs(model(source, target) - logits).max() > 1e-9:
        return "dice"
    if np.triu(dependence_of(lambda changed: model(source, changed), target).any(axis=(0, 2)), 1).any():
        return "future"
    if np.abs(model(np.pad(source, ((0, 0), (0, 2))), target) - logits).max() > 1e-9:
        return "padding"
    return "honest" if dependence_of(lambda changed: model(changed, target), source).any() else "deaf"


def misjudged(answer: Callable) -> str | None:
    """Which models a hunter takes for something else; None if it knows them all."""
    found = []
    for words, (truth, model) in specimens().items():
        source, target = SOURCE.copy(), TARGET.copy()
        said = answer(model, source, target)
        if said not in VERDICTS:
            return f"it says {said!r}, and should say one of {', '.join(VERDICTS)}"
        if not (np.array_equal(source, SOURCE) and np.array_equal(target, TARGET)):
            return "it changes source or target itself: work on a copy"
        if said != truth:
            found.append(f"{words}: it says {said!r}, and should say {truth!r}")
    return "; ".join(found) or None


HUNT = Break(
    id="16_hunt",
    title="Hunt: tell models with four kinds of bugs from honest ones",
    function="verdict",
    arguments=("model", "source", "target"),
    complaint=misjudged,
    solution=verdict,
    library=(dependence_of, check_rows_alone),
    hints=(
        "model(source, target) is an array (B, T, V). Call it as often as you like, with copies of source and target "
        "in which something is changed: one symbol, or two columns of zeros more.",
        "Ask first whether the same call gives the same logits twice; a model that does not would fail all the other "
        "questions. Then change one symbol of the target and look at earlier logits only, then add padding to the "
        "source, then change its words.",
        "dice: two equal calls differ. future: changing target[b, s] changes logits[:, :s], for some b and s. padding: "
        "np.pad(source, ((0, 0), (0, 2))) changes logits. deaf: changing words of the source changes nothing. All by "
        "more than 1e-9.",
    ),
)

EXERCISES = (DEALT_ANSWERS, RIGHT_GRADIENT, HUNT)
