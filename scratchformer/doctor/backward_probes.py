"""Probes of the backward pass for `scratchformer doctor`: the gradients, the layer contract, and dropout, whose masks
forward and backward must share."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Any, Callable, Sequence

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.doctor.findings import ROUNDING, CheckFailed, CodeProbe, expect, expect_close
from scratchformer.doctor.fixtures import SOURCE, TARGET, TARGET_OUT, DropoutRecorder, random, with_random_vectors
from scratchformer.nn import gradient_cases
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import arrays_in, gradcheck, map_arrays, random_arrays
from scratchformer.nn.gradient_cases import CASES, FLOAT64, SMALL, B, D, F, GradientCase, H, S, T, V
from scratchformer.nn.layers import AddNorm, FeedForward, LearnedPositions, PositionalEncoding
from scratchformer.nn.loss import batch_loss
from scratchformer.nn.ops import Ops, ops_of, using
from scratchformer.nn.parameter import Layer, ParameterStore, as_tuple
from scratchformer.nn.residual import PostNorm, PreNorm
from scratchformer.nn.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, Transformer


def probes(config: ModelConfig) -> list[CodeProbe]:
    """`config` should be of a small model, since it is built many times."""
    return [gradients(config), contract(), dropout(config)]


# Gradients ------------------------------------------------------------------------------------------------------------


RENAMED = {"CrossEntropy": "cross_entropy", "ModelLoss": "Transformer"}
"""The components that these layers of the cases stand for."""


def gradients(config: ModelConfig) -> CodeProbe:
    """Run the cases of `scratchformer gradcheck` in one random direction each, since a wrong gradient shows in almost
    every direction. The whole model, which takes longest, is checked only as configured."""
    changes = {name: getattr(config, name) for name in ("norm", "tied", "positions", "attention_bias")}
    cases = [case for case in CASES if case.layer not in ("Transformer", "ModelLoss")] + [
        gradient_cases.case(Transformer, "as configured", gradient_cases.transformer(**changes), 0.0),
        gradient_cases.case(gradient_cases.ModelLoss, "as configured", gradient_cases.transformer_loss(**changes), 0.3),
    ]
    by_component: dict[str, list[GradientCase]] = {}
    for case in cases:
        by_component.setdefault(RENAMED.get(case.layer, case.layer), []).append(case)
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


@cache
def contract() -> CodeProbe:
    cases: dict[str, list[GradientCase]] = {}
    for case in CASES:
        cases.setdefault(RENAMED.get(case.layer, case.layer), []).append(case)
    return CodeProbe(
        "layer contract",
        "forward and backward change nothing except gradients, to which they add in place; everything backward needs "
        "is in the cache; float32 stays float32; the layout in memory does not matter",
        "a layer stores something in `self` from one call to the next; `p.grad = p.grad + g` makes a new array, so the "
        "optimizer, which reads the flat buffer, no longer sees the gradient; an in-place operation on an argument; "
        "multiplication by a float64 NumPy scalar",
        [(component, partial(check_contract, cases)) for component, cases in cases.items()]
        + [(component, partial(check_arguments_unchanged, call)) for component, call in operations()],
    )


def check_contract(cases: list[GradientCase]) -> None:
    for case in cases:
        try:
            for check in (check_calls, check_layouts, check_float32):
                check(*case.make())
        except CheckFailed as failed:
            raise CheckFailed(f"{case.description}: {failed.problem}", failed.also) from None


def upstream(y: np.ndarray) -> np.ndarray:
    """A random gradient of y."""
    return random_arrays(seed=0)(y.shape).astype(y.dtype)


def results(
    layer: Layer, calls: Sequence[tuple[tuple, DropoutKey | None]], order: Sequence[int]
) -> list[list[np.ndarray]]:
    """Call forward for each (inputs, key), then backward in this order, with arguments and caches read-only.

    -> for each call, its output and the gradients of its inputs
    """
    made = [layer.forward(*inputs, rng=key) for inputs, key in calls]
    gradients = [upstream(y) for y, _ in made]
    freeze(made, gradients, [inputs for inputs, _ in calls])
    found = {number: as_tuple(layer.backward(gradients[number], made[number][1])) for number in order}
    return [[y, *(dx for dx in found[number] if dx is not None)] for number, (y, _) in enumerate(made)]


def check_calls(layer: Layer, inputs: tuple, rng: DropoutKey | None) -> None:
    """Another call makes no difference, whichever backward comes first, and gradients accumulate."""
    parameters = layer.parameters().values()
    store = ParameterStore(layer.parameters()) if parameters else None
    freeze([parameter.data for parameter in parameters])
    grad = store.grad if store else np.zeros(0)
    call = inputs, rng
    reordered = map_arrays(lambda array: array[::-1] * 0.5 if array.dtype.kind == "f" else array[::-1], inputs)
    other = reordered, rng and rng._replace(step=9)

    (alone,) = results(layer, [call], [0])
    gradient = grad.copy()
    expect(gradient.any() or not store, "no parameter gets a gradient")
    (again,) = results(layer, [call], [0])
    expect_all_close("a second, equal call", again, alone)
    expect_close("gradients after two equal calls, compared with twice those of one", grad, 2 * gradient)
    for parameter in parameters:
        expect(store and np.shares_memory(parameter.grad, store.grad), "backward makes a new gradient array")

    after = []
    for order in ([0, 1], [1, 0]):
        grad[...] = 0
        first, second = results(layer, [call, other], order)
        expect_all_close("a call with another one before its backward", first, alone)
        after.append((*second, grad.copy()))
    expect_all_close("gradients of two calls, compared with those of backward in the other order", after[0], after[1])

    expect_all_close("output of a second call with the same key", layer.forward(*inputs, rng=rng)[:1], alone[:1], 0)
    without_key = [layer.forward(*inputs, rng=None)[0] for _ in range(2)]
    expect_all_close("output of a second call without a key", without_key[:1], without_key[1:], 0)


def check_layouts(layer: Layer, inputs: tuple, rng: DropoutKey | None) -> None:
    found = []
    for layout in (np.ascontiguousarray, every_second):
        layer.zero_grad()
        y, cache = layer.forward(*map_arrays(layout, inputs), rng=rng)
        dx = as_tuple(layer.backward(map_arrays(layout, upstream(y)), cache))
        found.append([y, *(each for each in dx if each is not None), *copies_of_gradients(layer)])
    expect_all_close("results for arrays with gaps in memory", found[0], found[1])


def every_second(array: np.ndarray) -> np.ndarray:
    """The same numbers, with gaps between them and the axes laid out in reverse order."""
    return np.repeat(array.T, 2, axis=-1)[..., ::2].T if array.ndim else array


def copies_of_gradients(layer: Layer) -> list[np.ndarray]:
    return [parameter.grad.copy() for parameter in layer.parameters().values()]


def check_float32(layer: Layer, inputs: tuple, rng: DropoutKey | None) -> None:
    for parameter in layer.parameters().values():
        parameter.data, parameter.grad = parameter.data.astype("float32"), parameter.grad.astype("float32")
    y, cache = layer.forward(*map_arrays(to_float32, inputs), rng=rng)
    arrays = [y, *arrays_in(cache)]  # now: backward empties some caches
    arrays += [*as_tuple(layer.backward(upstream(y), cache)), *copies_of_gradients(layer)]
    for array in arrays:
        expect(array is None or array.dtype.kind != "f" or array.dtype == "float32", "float32 does not stay float32")


def expect_all_close(
    what: str, found: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float = ROUNDING
) -> None:
    """`expect_close` for each pair of arrays."""
    expect(len(found) == len(expected), f"{what}: {len(found)} arrays instead of {len(expected)}")
    for one, other in zip(found, expected):
        expect_close(what, one, other, tolerance)


def operations() -> list[tuple[str, Callable[[Ops], Any]]]:
    """Calls of operations in `nn/ops.py` on read-only arrays. A layer may not notice that an operation changes one of
    these arguments."""
    x, kept, scores = np.ones((B, T)), np.ones((B, T), bool), np.ones((B, H, T, T))
    row, saved, ids = x[0], (x, x[:, :1]), np.ones(B, int)
    freeze(x, kept, scores, ids)
    new = partial(np.zeros, T)
    return [
        ("dropout", lambda ops: ops.dropout(x, 0.3, KEY)),
        ("dropout", lambda ops: ops.dropout_backward(x, kept, 0.3)),
        ("Embedding", lambda ops: ops.embedding_backward(x, ids, 2.0, np.zeros((V, T)))),
        ("Linear", lambda ops: ops.linear_backward(x, x, np.eye(T), np.zeros((T, T)), new())),
        ("LayerNorm", lambda ops: ops.layer_norm_backward(x, saved, row, new(), new())),
        ("AddNorm", lambda ops: ops.add_norm_backward(x, (kept, saved), row, new(), new(), 0.3)),
        ("FeedForward", lambda ops: ops.relu(x)),
        ("FeedForward", lambda ops: ops.relu_backward(x, x)),
        ("FeedForward", lambda ops: ops.gelu_backward(x, x)),
        ("ScaledDotProductAttention", lambda ops: ops.masked_softmax(scores, 0.5, np.array([T, 0, 2]), True)),
        ("ScaledDotProductAttention", lambda ops: ops.masked_softmax_backward(scores, scores, 0.5)),
    ]


def check_arguments_unchanged(call: Callable[[Ops], Any]) -> None:
    """NumPy raises an exception where the operation writes into a read-only argument."""
    call(ops_of(np.zeros(1)))


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
    found, expected_loss = (batch_loss(each, (SOURCE, TARGET), TARGET_OUT)[0] for each in (model, expected))
    expect_close("validation loss", found, expected_loss)
