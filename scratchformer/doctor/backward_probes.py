"""Probes of the backward pass for `scratchformer doctor`: the gradients, the layer contract, and dropout, whose masks
forward and backward must share."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Callable

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.doctor.findings import COMPONENTS, CheckFailed, CodeProbe, expect, expect_close
from scratchformer.doctor.fixtures import SOURCE, TARGET, TARGET_OUT, DropoutRecorder, random, with_random_vectors
from scratchformer.nn import gradient_cases
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import arrays_in, gradcheck, map_arrays, random_arrays
from scratchformer.nn.gradient_cases import CASES, FLOAT64, SMALL, B, D, F, GradientCase, H, S, T
from scratchformer.nn.layers import AddNorm, FeedForward, LearnedPositions, PositionalEncoding
from scratchformer.nn.loss import forward_loss
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.parameter import Layer, as_tuple
from scratchformer.nn.residual import PostNorm, PreNorm
from scratchformer.nn.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, Transformer


def probes(config: ModelConfig) -> list[CodeProbe]:
    """`config` should be of a small model, since it is built many times."""
    return [gradients(config), contract(), dropout(config)]


# Gradients ------------------------------------------------------------------------------------------------------------


def gradients(config: ModelConfig) -> CodeProbe:
    """Run the cases of `scratchformer gradcheck` in one random direction each, since a wrong gradient shows in almost
    every direction. The whole model, which takes longest, is checked only as configured."""
    changes = {name: getattr(config, name) for name in ("norm", "tied", "positions", "attention_bias")}
    cases = [case for case in CASES if case.layer not in ("Transformer", "ModelLoss")] + [
        gradient_cases.case(Transformer, "as configured", gradient_cases.transformer(**changes), 0.0),
        gradient_cases.case(gradient_cases.ModelLoss, "as configured", gradient_cases.transformer_loss(**changes), 0.3),
    ]
    renamed = {"CrossEntropy": "cross_entropy", "ModelLoss": "Transformer"}
    by_component: dict[str, list[GradientCase]] = {}
    for case in cases:
        by_component.setdefault(renamed.get(case.layer, case.layer), []).append(case)
    return CodeProbe(
        "gradients",
        "backward is the derivative of forward: it agrees with finite differences to 6 digits, with or without dropout",
        "backward lacks a term or a factor; a gradient is overwritten instead of added to (`E[ids] += g` loses "
        "repeated words); backward uses the mask or cache of another call; `scratchformer gradcheck` shows all numbers",
        [(component, partial(check_gradients, cases)) for component, cases in by_component.items()],
    )


def check_gradients(cases: list[GradientCase]) -> str:
    """Returns the largest error."""
    largest = 0.0
    for case in cases:
        layer, inputs, rng = case.make()
        report = gradcheck(layer, *inputs, rng=rng, directions=1)
        if not report.passed:
            problem = f"{case.description}: {report.worst}"
            if rng is not None and gradcheck(layer, *inputs, directions=1).passed:
                raise CheckFailed(f"{problem}; correct without dropout", ("dropout",))
            raise CheckFailed(problem)
        for entry in report if rng is None else []:  # dropout may drop everything that a weight contributes
            unused = entry.name.endswith("weight") and entry.analytic == entry.numeric == 0
            expect(not unused, f"{case.description}: the output does not depend on {entry.name}")
        largest = max(largest, report.worst.error)
    return f"(error {largest:.0e})"


# The layer contract ---------------------------------------------------------------------------------------------------


def contract() -> CodeProbe:
    """Check one case of each layer, with dropout, so that backward needs the mask as well."""
    cases: dict[str, GradientCase] = {}
    for case in CASES:
        if case.description.endswith("dropout 0.3") and case.layer in COMPONENTS:
            cases.setdefault(case.layer, case)
    return CodeProbe(
        "layer contract",
        "forward and backward change nothing except gradients, to which they add in place; everything backward needs "
        "is in the cache; float32 stays float32",
        "a layer stores something in `self` from one call to the next; `p.grad = p.grad + g` makes a new array, so the "
        "optimizer, which reads the flat buffer, no longer sees the gradient; an in-place operation on an argument; "
        "multiplication by a float64 NumPy scalar",
        [(layer, partial(check_contract, case)) for layer, case in cases.items()]
        + [(component, partial(check_arguments_unchanged, call)) for component, call in operations()],
    )


def check_contract(case: GradientCase) -> None:
    layer, inputs, rng = case.make()
    parameters = layer.parameters()
    arrays = {name: parameter.grad for name, parameter in parameters.items()}
    y, cache = layer.forward(*inputs, rng=rng)
    dy = random_arrays(seed=0)(y.shape)
    freeze(inputs, cache, dy)
    dx = as_tuple(layer.backward(dy, cache))
    gradient = {name: parameter.grad.copy() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        expect(parameter.grad is arrays[name], f"backward makes a new gradient array for {name}")

    y_again, cache = layer.forward(*inputs, rng=rng)
    reversed_inputs = map_arrays(lambda array: array[::-1], inputs)
    layer.forward(*reversed_inputs, rng=rng and rng._replace(step=rng.step + 1))  # another call, with another mask
    dx_again = as_tuple(layer.backward(dy, cache))
    expect_close("output of a second, equal call", y_again, y)
    for first, second in zip(dx, dx_again):
        if first is not None:
            expect_close("gradient of an input after another call of forward", second, first)
    for name, parameter in parameters.items():
        what = f"gradient of {name} after two equal calls and another in between, compared with twice that of one"
        expect_close(what, parameter.grad, 2 * gradient[name])

    for parameter in parameters.values():
        parameter.data, parameter.grad = parameter.data.astype("float32"), parameter.grad.astype("float32")
    y, cache = layer.forward(*map_arrays(to_float32, inputs), rng=rng)
    for array in (y, *as_tuple(layer.backward(to_float32(dy), cache))):
        expect(array is None or array.dtype == np.float32, f"float32 becomes {getattr(array, 'dtype', None)}")


def operations() -> list[tuple[str, Callable[[Ops], Any]]]:
    """Calls of operations in `nn/ops.py` on read-only arrays. A layer may not notice that an operation changes one of
    these arguments."""
    x, kept, scores = np.ones((B, T)), np.ones((B, T), bool), np.ones((B, H, T, T))
    freeze(x, kept, scores)
    return [
        ("dropout", lambda ops: ops.dropout(x, 0.3, KEY)),
        ("dropout", lambda ops: ops.dropout_backward(x, kept, 0.3)),
        ("Linear", lambda ops: ops.linear_backward(x, x, np.eye(T), np.zeros((T, T)), np.zeros(T))),
        ("LayerNorm", lambda ops: ops.layer_norm_backward(x, (x, x[:, :1]), x[0], np.zeros(T), np.zeros(T))),
        ("FeedForward", lambda ops: ops.relu(x)),
        ("FeedForward", lambda ops: ops.relu_backward(x, x)),
        ("ScaledDotProductAttention", lambda ops: ops.masked_softmax(scores, 0.5, None, True)),
        ("ScaledDotProductAttention", lambda ops: ops.masked_softmax_backward(scores, scores, 0.5)),
    ]


def check_arguments_unchanged(call: Callable[[Ops], Any]) -> None:
    """NumPy raises an exception where the operation writes into a read-only argument."""
    call(Ops(np))


def freeze(*things: Any) -> None:
    """Make every array in nested tuples and lists read-only."""
    for array in arrays_in(*things):
        array.flags.writeable = False


def to_float32(array: np.ndarray) -> np.ndarray:
    """Convert floats to float32; return ids and masks as they are."""
    return array.astype("float32") if array.dtype.kind == "f" else array


# Dropout --------------------------------------------------------------------------------------------------------------


def dropout(config: ModelConfig) -> CodeProbe:
    P = 0.3
    config = replace(config, P_drop=P, attention_dropout=P, relu_dropout=P)
    post, pre = replace(config, norm="post"), replace(config, norm="pre")
    sublayer, x, memory = (lambda: FeedForward(D, F, random(), FLOAT64, P)), np.ones((B, T, D)), np.ones((B, S, D))
    layers: list[tuple[str, Callable[[], Layer], tuple, int]] = [  # name, how to build it, inputs, places with dropout
        ("PositionalEncoding", lambda: PositionalEncoding(P), (x,), 1),
        ("LearnedPositions", lambda: LearnedPositions(T, D, random(), FLOAT64, P), (x,), 1),
        ("AddNorm", lambda: AddNorm(D, FLOAT64, P_drop=P), (x, x), 1),
        ("FeedForward", sublayer, (x,), 1),
        ("SelfAttention", lambda: gradient_cases.self_attention(random(), P), (x,), 1),
        ("CrossAttention", lambda: gradient_cases.cross_attention(random(), P), (x, memory), 1),
        ("PostNorm", lambda: PostNorm(sublayer(), post, FLOAT64), (x,), 2),
        ("PreNorm", lambda: PreNorm(sublayer(), pre, FLOAT64), (x,), 2),
        ("EncoderLayer", lambda: EncoderLayer(config, random(), FLOAT64), (x,), 4),
        ("DecoderLayer", lambda: DecoderLayer(config, random(), FLOAT64), (x, memory), 6),
        ("Encoder", lambda: Encoder(config, random(), FLOAT64), (x,), 4 * SMALL.N),
        ("Decoder", lambda: Decoder(config, random(), FLOAT64), (x, memory), 6 * SMALL.N),
        ("Transformer", lambda: Transformer(config, dtype=FLOAT64), (SOURCE, TARGET), 10 * SMALL.N + 2),
    ]
    return CodeProbe(
        "dropout",
        "without a key nothing is dropped; with a key, a fraction P_drop is dropped and the rest scaled up; every "
        "place, step and micro-batch has its own mask",
        "dropout stays on in translation; the kept values are not scaled by 1 / (1 - P_drop); several places or all "
        "steps share one mask; a place was forgotten",
        [("dropout", check_dropout_rate), ("dropout", check_masks_differ)]
        + [(name, partial(check_dropout_keys, make, inputs, count)) for name, make, inputs, count in layers]
        + [("Transformer", partial(check_no_dropout_without_key, config))],
    )


KEY = DropoutKey(seed=1, step=2, shard=3)


def check_dropout_rate() -> None:
    x = np.ones(2**16)
    expect_close("dropout without a key, compared with its input", Ops(np).dropout(x, 0.3, None)[0], x)
    for P_drop in (0.1, 0.3):
        y, kept = Ops(np).dropout(x, P_drop, KEY)
        fraction = float(np.mean(y == 0))
        expect(abs(fraction - P_drop) < 0.01, f"P_drop = {P_drop} drops a fraction of {fraction:.3f}")
        expect_close("kept values times (1 - P_drop), compared with the input", y * (1 - P_drop), y != 0, 1e-4)
        dx = Ops(np).dropout_backward(x, kept, P_drop)
        expect_close("mask in backward, compared with the one in forward", dx, y)


def check_masks_differ() -> None:
    mask = KEY.keep((1000,), 0.3)
    expect(np.array_equal(mask, KEY.keep((1000,), 0.3)), "the same key gives different masks")
    for what, other in [
        ("seeds", KEY._replace(seed=2)),
        ("steps", KEY._replace(step=3)),
        ("micro-batches", KEY._replace(shard=4)),
        ("places", KEY.child(0)),
    ]:
        expect((mask != other.keep((1000,), 0.3)).any(), f"two {what} have the same mask")
    keys = {KEY.child(0), KEY.child(1), KEY.child(0).child(1), KEY.child(1).child(0)}
    expect(len(keys) == 4, "two places have the same key")


def check_dropout_keys(make: Callable[[], Layer], inputs: tuple, count: int) -> None:
    """The layer applies dropout at `count` places, each with its own key."""
    layer = make()
    recorder = DropoutRecorder()
    with using(recorder):
        layer.forward(*inputs, rng=KEY)
    keys = recorder.keys
    expect(len(keys) == count, f"applies dropout at {len(keys)} places, expected {count}", ("dropout",))
    expect(len(set(keys)) == count, "two places have the same mask", ("dropout",))


def check_no_dropout_without_key(config: ModelConfig) -> None:
    """Compare logits and the loss of validation, which pass no key, with those of a model without dropout."""
    without_dropout = replace(config, P_drop=0.0, attention_dropout=0.0, relu_dropout=0.0)
    model, expected = (with_random_vectors(Transformer(each, dtype=FLOAT64)) for each in (config, without_dropout))
    expect_close("logits without a key", model.forward(SOURCE, TARGET)[0], expected.forward(SOURCE, TARGET)[0])
    batch = SOURCE, TARGET, TARGET_OUT
    expect_close("validation loss", forward_loss(model, *batch)[0], forward_loss(expected, *batch)[0])
