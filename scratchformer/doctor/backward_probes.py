"""Probes of the way back, for `scratchformer doctor`: gradients, what may change between forward and backward, and the
masks of dropout, which both must share."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Callable

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.doctor.findings import ANATOMY, CodeProbe, Complaints, Fault, Measured, differs
from scratchformer.doctor.specimens import SOURCE, TARGET, DropoutWatch, random, shifted, watched, with_random_vectors
from scratchformer.nn import gradient_cases
from scratchformer.nn.attention import Mask
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.gradient_cases import CASES, FLOAT64, SMALL, B, D, F, GradientCase, H, S, T
from scratchformer.nn.layers import AddNorm, FeedForward, LearnedPositions, PositionalEncoding
from scratchformer.nn.ops import OPS, Ops
from scratchformer.nn.parameter import Layer
from scratchformer.nn.transformer import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    PostNorm,
    PreNorm,
    Transformer,
    as_tuple,
)


def probes(config: ModelConfig) -> list[CodeProbe]:
    """`config` is of a small model: it is built many times."""
    return [gradients(config), contract(), dropout(config)]


# Gradients ------------------------------------------------------------------------------------------------------------


def gradients(config: ModelConfig) -> CodeProbe:
    """The cases of `scratchformer gradcheck`, in one random direction each: if a gradient is wrong, all but a few
    directions show it. Of the whole model, which costs most, the arrangement of this configuration."""
    changes = {name: getattr(config, name) for name in ("norm", "tied", "positions", "attention_bias")}
    whole = [
        gradient_cases.case(kind, "as configured", build(**changes), dropout)
        for kind, build, dropout in [
            (Transformer, gradient_cases.transformer, 0.0),
            (gradient_cases.TransformerLoss, gradient_cases.transformer_loss, 0.3),
        ]
    ]
    cases = [case for case in CASES if case.layer not in ("Transformer", "TransformerLoss")] + whole
    place = {"CrossEntropy": "cross_entropy", "TransformerLoss": "Transformer"}
    by_place: dict[str, list[GradientCase]] = {}
    for case in cases:
        by_place.setdefault(place.get(case.layer, case.layer), []).append(case)
    return CodeProbe(
        "gradients",
        "backward is the derivative of forward: finite differences agree to 6 digits, with dropout and without",
        "a term or factor of backward that is missing; a gradient that overwrites instead of adding up (`E[ids] += g` "
        "loses repeated words); a mask or a cache of another call; `scratchformer gradcheck` shows every number",
        [(place, partial(gradients_are_right, cases)) for place, cases in by_place.items()],
    )


def gradients_are_right(cases: list[GradientCase]) -> Complaints:
    worst = 0.0
    for case in cases:
        layer, inputs, rng = case.make()
        report = gradcheck(layer, *inputs, rng=rng, directions=1)
        if not report.passed:
            only_with_dropout = rng is not None and gradcheck(layer, *inputs, directions=1).passed
            what = f"{case.description}: {report.worst}"
            yield Fault(
                "",
                what + ("; right without dropout" if only_with_dropout else ""),
                ("dropout",) if only_with_dropout else (),
            )
        for entry in report if rng is None else []:  # dropout may drop a whole layer
            if entry.name.endswith("weight") and entry.analytic == entry.numeric == 0:
                yield f"{case.description}: the output does not depend on {entry.name}"
        worst = max(worst, report.worst.error)
    yield Measured(f"{worst:.0e}")


# The contract ---------------------------------------------------------------------------------------------------------


def contract() -> CodeProbe:
    """One case of each layer, the first with dropout: a mask is one more thing to keep for backward."""
    cases: dict[str, GradientCase] = {}
    for case in CASES:
        if case.description.endswith("dropout 0.3") and case.layer in ANATOMY:
            cases.setdefault(case.layer, case)
    return CodeProbe(
        "the contract of layers",
        "a call changes nothing but gradients, which it adds to in place; what backward needs travels in the cache; "
        "float32 stays float32",
        "something is kept in `self` from one call to the next; `p.grad = p.grad + g` cuts the gradient loose from "
        "the flat buffer that the optimizer reads; an in-place operation on an argument; a float64 scalar of NumPy as "
        "a factor",
        [(layer, partial(contract_is_kept, case)) for layer, case in cases.items()]
        + [(place, partial(operation_only_reads, call)) for place, call in operations()],
    )


def contract_is_kept(case: GradientCase) -> Complaints:
    layer, inputs, rng = case.make()
    parameters = layer.parameters()
    owned = {name: parameter.grad for name, parameter in parameters.items()}
    y, cache = layer.forward(*inputs, rng=rng)
    dy = random().normal(size=y.shape)
    freeze((inputs, cache, dy))
    dx = as_tuple(layer.backward(dy, cache))
    gradient = {name: parameter.grad.copy() for name, parameter in parameters.items()}
    for name, parameter in parameters.items():
        yield "" if parameter.grad is owned[name] else f"the gradient of {name} is another array after backward"

    y_again, cache = layer.forward(*inputs, rng=rng)
    backwards = map_arrays(lambda array: array[::-1], inputs)
    layer.forward(*backwards, rng=rng and rng._replace(step=rng.step + 1))  # another call, another mask
    dx_again = as_tuple(layer.backward(dy, cache))
    yield differs("the same call again", y_again, y)
    for first, second in zip(dx, dx_again):
        yield "" if first is None else differs("the gradient of an input, after another forward", second, first)
    for name, parameter in parameters.items():
        yield differs(
            f"the gradient of {name} after two equal calls, with another forward between them, is not twice "
            "that of one",
            parameter.grad,
            2 * gradient[name],
        )

    for parameter in parameters.values():
        parameter.data, parameter.grad = parameter.data.astype("float32"), parameter.grad.astype("float32")
    y, cache = layer.forward(*map_arrays(single, inputs), rng=rng)
    for array in (y, *as_tuple(layer.backward(single(dy), cache))):
        yield "" if array is None or array.dtype == np.float32 else f"float32 becomes {array.dtype}"


def operations() -> list[tuple[str, Callable[[Ops], Any]]]:
    """The calls of `nn/ops.py` whose arguments a layer might not miss, on arrays that NumPy does not let be written."""
    x, kept, scores = np.ones((B, T)), np.ones((B, T), bool), np.ones((B, H, T, T))
    freeze((x, kept, scores))
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


def operation_only_reads(call: Callable[[Ops], Any]) -> Complaints:
    call(OPS[np.ndarray])
    yield ""


def freeze(thing: Any) -> None:
    """Make every array in nested tuples and lists read-only."""
    if isinstance(thing, np.ndarray):
        thing.flags.writeable = False
    elif isinstance(thing, (tuple, list)):
        for part in thing:
            freeze(part)


def single(array: np.ndarray) -> np.ndarray:
    """In float32, if it is an array of floats."""
    return array.astype("float32") if array.dtype.kind == "f" else array


def map_arrays(function: Callable[[np.ndarray], np.ndarray], thing: Any) -> Any:
    """The same nested tuples with every array replaced by function(array)."""
    if isinstance(thing, np.ndarray):
        return function(thing)
    if isinstance(thing, Mask):
        return thing._replace(key_lengths=map_arrays(function, thing.key_lengths))
    return tuple(map_arrays(function, part) for part in thing) if isinstance(thing, tuple) else thing


# Dropout --------------------------------------------------------------------------------------------------------------


def dropout(config: ModelConfig) -> CodeProbe:
    P = 0.3
    dropping = replace(config, P_drop=P, attention_dropout=P, relu_dropout=P)
    post, pre = replace(dropping, norm="post"), replace(dropping, norm="pre")
    sublayer, x, memory = (lambda: FeedForward(D, F, random(), FLOAT64, P)), np.ones((B, T, D)), np.ones((B, S, D))
    ids = SOURCE, TARGET
    return CodeProbe(
        "dropout",
        "without a key nothing is dropped; with one, a share P_drop, and the rest is scaled up; every place, step and "
        "micro-batch draws its own mask",
        "dropout that stays on when translating; survivors that are not scaled by 1 / (1 - P_drop); one mask for "
        "several places, or the same in every step; a place that was forgotten",
        [("dropout", dropout_drops), ("dropout", masks_differ)]
        + [
            (place, partial(draws, make, inputs, count))
            for place, make, inputs, count in [
                ("PositionalEncoding", lambda: PositionalEncoding(P), (x,), 1),
                ("LearnedPositions", lambda: LearnedPositions(T, D, random(), FLOAT64, P), (x,), 1),
                ("AddNorm", lambda: AddNorm(D, FLOAT64, P_drop=P), (x, x), 1),
                ("FeedForward", sublayer, (x,), 1),
                ("SelfAttention", lambda: gradient_cases.self_attention(random(), P), (x,), 1),
                ("CrossAttention", lambda: gradient_cases.cross_attention(random(), P), (x, memory), 1),
                ("PostNorm", lambda: PostNorm(sublayer(), post, FLOAT64), (x,), 2),
                ("PreNorm", lambda: PreNorm(sublayer(), pre, FLOAT64), (x,), 2),
                ("EncoderLayer", lambda: EncoderLayer(dropping, random(), FLOAT64), (x,), 4),
                ("DecoderLayer", lambda: DecoderLayer(dropping, random(), FLOAT64), (x, memory), 6),
                ("Encoder", lambda: Encoder(dropping, random(), FLOAT64), (x,), 4 * SMALL.N),
                ("Decoder", lambda: Decoder(dropping, random(), FLOAT64), (x, memory), 6 * SMALL.N),
                ("Transformer", lambda: Transformer(dropping, dtype=FLOAT64), ids, 10 * SMALL.N + 2),
            ]
        ]
        + [("Transformer", partial(nothing_dropped_without_a_key, dropping))],
    )


KEY = DropoutKey(seed=1, step=2, shard=3)


def dropout_drops() -> Complaints:
    x = np.ones(2**16)
    yield differs("dropout without a key is the identity", OPS[np.ndarray].dropout(x, 0.3, None)[0], x)
    for P_drop in (0.1, 0.3):
        y, kept = OPS[np.ndarray].dropout(x, P_drop, KEY)
        share = float(np.mean(y == 0))
        yield "" if abs(share - P_drop) < 0.01 else f"P_drop = {P_drop} drops a share of {share:.3f}"
        yield differs("what is kept, in units of 1 / (1 - P_drop)", y * (1 - P_drop), y != 0, 1e-4)
        yield differs("the gradient's mask and the output's", OPS[np.ndarray].dropout_backward(x, kept, P_drop), y)


def masks_differ() -> Complaints:
    mask = KEY.keep((1000,), 0.3)
    yield "" if np.array_equal(mask, KEY.keep((1000,), 0.3)) else "the same key draws another mask every time"
    for what, other in [
        ("seeds", KEY._replace(seed=2)),
        ("steps", KEY._replace(step=3)),
        ("micro-batches", KEY._replace(shard=4)),
        ("places", KEY.child(0)),
    ]:
        yield "" if (mask != other.keep((1000,), 0.3)).any() else f"two {what} draw the same mask"
    keys = {KEY.child(0), KEY.child(1), KEY.child(0).child(1), KEY.child(1).child(0)}
    yield "" if len(keys) == 4 else "two places have the same key"


def draws(make: Callable[[], Layer], inputs: tuple, count: int) -> Complaints:
    """The layer drops in this many places, each with a key of its own."""
    layer = make()
    with watched(DropoutWatch()) as watch:
        layer.forward(*inputs, rng=KEY)
    keys = watch.keys
    yield Fault("", f"drops in {len(keys)} places, expected {count}", ("dropout",)) if len(keys) != count else ""
    yield Fault("", "two places draw the same mask", ("dropout",)) if len(set(keys)) < count else ""


def nothing_dropped_without_a_key(dropping: ModelConfig) -> Complaints:
    """Also validation's loss: it takes no key."""
    certain = replace(dropping, P_drop=0.0, attention_dropout=0.0, relu_dropout=0.0)
    model, sure = (with_random_vectors(Transformer(config, dtype=FLOAT64)) for config in (dropping, certain))
    yield differs("logits without a key", model.forward(SOURCE, TARGET)[0], sure.forward(SOURCE, TARGET)[0])
    batch = SOURCE, TARGET, shifted(TARGET)
    yield differs("the loss for validation", model.loss(*batch)[0], sure.loss(*batch)[0])
