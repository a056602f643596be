"""Exercises of lesson 11: the feed-forward network, its gradients, the kink of its ReLU, and life without it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exercises.diagnosis import Unlike, as_array
from exercises.exercise import Backward, Break, Build, Result, Values
from scratchformer.nn.gradcheck import STEP
from scratchformer.nn.gradient_cases import NEAR_THE_KINK, distance_to_kink
from scratchformer.nn.layers import FeedForward, Linear
from scratchformer.nn.ops import Ops, ops_of
from scratchformer.nn.parameter import Array


def network(W_1: Array, b_1: Array, W_2: Array, b_2: Array) -> FeedForward:
    """The library's layer with these weights."""
    D, F = W_1.shape
    layer = FeedForward(D, F, np.random.default_rng(0), "float64")
    for parameter, value in zip(layer.parameters().values(), (W_1, b_1, W_2, b_2), strict=True):
        parameter.data[...] = value
    return layer


def weights(random: np.random.Generator, D: int, F: int) -> Values:
    return {"W_1": random.normal(size=(D, F)), "b_1": random.normal(size=F),
            "W_2": random.normal(size=(F, D)), "b_2": random.normal(size=D)}


def case(*shape: int, F: int) -> Callable[[np.random.Generator], Values]:
    """x of this shape, drawn until no ReLU is near its kink: there, a numeric gradient is wrong."""
    def draw(random: np.random.Generator) -> Values:
        while True:
            values = {"x": random.normal(size=shape), **weights(random, shape[-1], F)}
            layer = network(*(values[name] for name in ("W_1", "b_1", "W_2", "b_2")))
            if distance_to_kink(layer, [values["x"]], None) > NEAR_THE_KINK:
                return values
    return draw


# 11_feed_forward ------------------------------------------------------------------------------------------------------


def feed_forward(x, W_1, b_1, W_2, b_2):
    y, _ = network(W_1, b_1, W_2, b_2).forward(x)
    return y


def softmax(z: Array) -> Array:
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


FEED_FORWARD = Build(
    id="11_feed_forward",
    title="Write the feed-forward network of equation 2",
    function="feed_forward",
    arguments=("x", "W_1", "b_1", "W_2", "b_2"),
    cases={"2 sentences of 4 positions": case(2, 4, 5, F=7), "one position": case(1, 1, 6, F=4),
           "one sentence, without an axis for the batch": case(4, 3, F=8)},
    expected=lambda x, W_1, b_1, W_2, b_2: np.maximum(0, x @ W_1 + b_1) @ W_2 + b_2,
    result=Result(name="y", suspects={
        "the ReLU is missing: without it the two linear maps are one":
            lambda x, W_1, b_1, W_2, b_2: (x @ W_1 + b_1) @ W_2 + b_2,
        "a ReLU at the end as well: the output may be negative":
            lambda truth: np.maximum(0, truth),
        "b_1 comes after the ReLU; it belongs inside, so that a unit can have a threshold of its own":
            lambda x, W_1, b_1, W_2, b_2: (np.maximum(0, x @ W_1) + b_1) @ W_2 + b_2,
        "b_1 is missing: a unit could not have a threshold of its own":
            lambda x, W_1, W_2, b_2: np.maximum(0, x @ W_1) @ W_2 + b_2,
        "b_2 is missing": lambda truth, b_2: truth - b_2,
        "the ReLU is on x; it belongs behind the first linear map":
            lambda x, W_1, b_1, W_2, b_2: (np.maximum(0, x) @ W_1 + b_1) @ W_2 + b_2,
        "a softmax where the ReLU belongs: here the units do not compete":
            lambda x, W_1, b_1, W_2, b_2: softmax(x @ W_1 + b_1) @ W_2 + b_2,
        "the absolute value instead of the ReLU: what is negative becomes 0":
            lambda x, W_1, b_1, W_2, b_2: np.abs(x @ W_1 + b_1) @ W_2 + b_2,
    }),
    solution=feed_forward,
    library=(FeedForward.forward, Linear.forward, Ops.relu),
    hints=(
        "x is (..., D) with any leading axes, the hidden layer (..., F), y again (..., D). `@` leaves leading axes "
        "alone.",
        "A linear map, then negative numbers become 0, element by element (np.maximum, not max), then a second linear "
        "map. Nothing comes after it.",
        "y = np.maximum(0, x W_1 + b_1) W_2 + b_2."))

# 11_feed_forward_backward ---------------------------------------------------------------------------------------------


def feed_forward_backward(dy, x, W_1, W_2, active):
    layer, ops = network(W_1, np.zeros(W_1.shape[1]), W_2, np.zeros(W_2.shape[1])), ops_of(dy)
    dactive = layer.outer.backward(dy, (active,))
    dz = ops.relu_backward(dactive, active)
    dx = layer.inner.backward(dz, (x,))
    gradients = {name: parameter.grad for name, parameter in layer.parameters().items()}
    return {"dW_2": gradients["outer.weight"], "db_2": gradients["outer.bias"], "dactive": dactive, "dz": dz,
            "dW_1": gradients["inner.weight"], "db_1": gradients["inner.bias"], "dx": dx}


def over_positions(a: Array, b: Array) -> Array:
    """(B, T, I), (B, T, J) -> (I, J)"""
    return np.einsum("bti,btj->ij", a, b)


FEED_FORWARD_BACKWARD = Backward(
    id="11_feed_forward_backward",
    title="The gradients of the feed-forward network",
    function="feed_forward_backward",
    arguments=("dy", "x", "W_1", "W_2", "active"),
    cases={"3 sentences of 4 positions": case(3, 4, 5, F=7), "one position": case(1, 1, 3, F=8)},
    forward={"z": lambda x, W_1, b_1: ops_of(x).linear(x, W_1, b_1), "active": lambda z: ops_of(z).relu(z),
             "y": lambda active, W_2, b_2: ops_of(active).linear(active, W_2, b_2)},
    gradients=(
        Result("dW_2", suspects={
            "made with z, before the ReLU; W_2 multiplies `active`": lambda z, dy: over_positions(z, dy)}),
        Result("db_2"),
        Result("dactive"),
        Result("dz", suspects={
            "the ReLU is left out on the way back: where `active` is 0, nothing passes (and `active` is never below 0)":
                lambda dy, W_2: dy @ W_2.T,
            "multiplied by `active` itself: its slope is 1 where it is positive, whatever its size":
                lambda dy, W_2, active: dy @ W_2.T * active,
            "the wrong ones pass: the gradient passes where `active` is positive":
                lambda dy, W_2, active: dy @ W_2.T * (active == 0),
            "a ReLU of the gradient: whether it passes depends on `active`, not on the gradient's own sign":
                lambda dy, W_2: np.maximum(0, dy @ W_2.T),
            "the gradient must be positive, too, to pass: only `active` decides":
                lambda dy, W_2, active: np.maximum(0, dy @ W_2.T) * (active > 0)}),
        Result("dW_1", suspects={
            "made with dactive: the gradient has to go back through the ReLU first":
                lambda x, dy, W_2: over_positions(x, dy @ W_2.T)}),
        Result("db_1", suspects={
            "made with dactive: the gradient has to go back through the ReLU first":
                lambda dy, W_2: (dy @ W_2.T).sum(axis=(0, 1))}),
        Result("dx", suspects={
            "the gate is passed by: x reaches y through z, so begin at dz and not at dactive":
                lambda dy, W_1, W_2: dy @ W_2.T @ W_1.T})),
    solution=feed_forward_backward,
    library=(FeedForward.backward, Ops.relu_backward, Ops.linear_backward),
    hints=(
        "x and dx are (B, T, D); active, dactive and dz (B, T, F). The weights' gradients have the shapes of the "
        "weights: dW_1 (D, F), db_1 (F,), dW_2 (F, D), db_2 (D,).",
        "Two linear maps as in lesson 01, and between them a gate: dz is dactive where the unit was active, else 0. "
        "All positions of all sentences share the weights, so their gradients sum over all of them.",
        "dW_2 = sum of active^T dy;  dactive = dy W_2^T;  dz = dactive (active > 0);  dW_1 = sum of x^T dz;  "
        "db_1 = sum of dz;  dx = dz W_1^T."))

# 11_relu_kink ---------------------------------------------------------------------------------------------------------


def at_the_kink(W_1, b_1, j):
    """A random x, moved along unit j's own column until the unit reads 0 there."""
    column, x = W_1[:, j], np.random.default_rng(4).normal(size=len(W_1))
    z = ops_of(x).linear(x[None], W_1, b_1)[0]
    return x - z[j] * column / (column @ column)


def kink_complaint(answer: Callable) -> str | None:
    """What keeps an x from deceiving a numeric gradient at unit j, and there only; None if nothing does."""
    for seed in range(3):
        random = np.random.default_rng(seed)
        D, F = 5, 8
        W_1, b_1, j = random.normal(size=(D, F)), random.normal(size=F), int(random.integers(0, F))
        try:
            x = as_array(answer(W_1, b_1, j), np.zeros(D))
        except Unlike as unlike:
            return f"x is {unlike}"
        if x.shape != (D,):
            return f"x is of shape {x.shape}, expected {(D,)}: one vector, with as many numbers as W_1 has rows"
        if not np.isfinite(x).all():
            return "x holds nan or inf"
        z = x @ W_1 + b_1
        near = np.flatnonzero(np.abs(z) < NEAR_THE_KINK)
        others = [int(unit) for unit in near if unit != j]
        if j in near and others:
            return f"unit {j} is at its kink, and so are others: {others}; with D numbers you can spare them"
        if others:
            return f"unit {others[0]} is at its kink, and it should be unit {j}: units are the columns of W_1"
        if abs(z[j] - b_1[j]) < NEAR_THE_KINK:
            return f"unit {j} reads z = {z[j]:.3g}, which is its bias: x W_1 is 0 there, and x W_1 + b_1 should be"
        if abs(z[j] - 2 * b_1[j]) < NEAR_THE_KINK:
            return f"unit {j} reads z = {z[j]:.3g}, twice its bias: x W_1 should be -b_1 there, and is b_1"
        if j not in near:
            return f"unit {j} reads z = {z[j]:.3g}: not near its kink. How far does z move if x moves along the column?"
        if abs(z[j]) >= STEP * np.abs(W_1[:, j]).max():
            return (f"unit {j} reads z = {z[j]:.1e}: near, but a step of {STEP:g} in a number of x does not carry it "
                    "across")
    return None


RELU_KINK = Break(
    id="11_relu_kink",
    title="Find an input for which the check of a right gradient fails",
    function="at_the_kink",
    arguments=("W_1", "b_1", "j"),
    complaint=kink_complaint,
    solution=at_the_kink,
    library=(Ops.relu_backward, distance_to_kink),
    hints=(
        "x is (D,), W_1 (D, F), b_1 (F,); unit j reads the number z_j = x @ W_1[:, j] + b_1[j].",
        "Begin with any random x: it stands at no kink. Move it so that z_j becomes 0. The shortest way is along the "
        "unit's own column, and it hardly ever brings another unit to 0 as well.",
        "x - z_j w / (w . w) with w = W_1[:, j], since (x - c w) . w + b_j = z_j - c (w . w)."))

# 11_linear_collapse ---------------------------------------------------------------------------------------------------


def collapse(W_1, b_1, W_2, b_2):
    """The image of 0 is the bias, and the images of the unit vectors, less the bias, are the rows of W."""
    ops, probes = ops_of(W_1), np.vstack([np.eye(len(W_1)), np.zeros(len(W_1))])
    images = ops.linear(ops.linear(probes, W_1, b_1), W_2, b_2)
    return np.vstack([images[:-1] - images[-1], images[-1:]])


def below(W: Array, b: Array) -> Array:
    """The bias as a last row: (D, D), (D,) -> (D + 1, D)"""
    return np.vstack([W, b])


def without_relu(D: int, F: int) -> Callable[[np.random.Generator], Values]:
    return lambda random: weights(random, D, F)


LINEAR_COLLAPSE = Build(
    id="11_linear_collapse",
    title="Without the ReLU: one linear map that does what the two do",
    function="collapse",
    arguments=("W_1", "b_1", "W_2", "b_2"),
    cases={"wider inside": without_relu(4, 7), "narrower inside": without_relu(5, 2), "one number": without_relu(1, 3)},
    expected=lambda W_1, b_1, W_2, b_2: below(W_1 @ W_2, b_1 @ W_2 + b_2),
    result=Result(name="W and b", suspects={
        "the first bias goes through the second map, too: b_1 W_2 is missing from the last row":
            lambda W_1, W_2, b_2: below(W_1 @ W_2, b_2),
        "the second bias is missing from the last row":
            lambda W_1, b_1, W_2: below(W_1 @ W_2, b_1 @ W_2),
        "both biases are missing: the last row is what comes out for x = 0":
            lambda W_1, W_2: below(W_1 @ W_2, np.zeros(W_2.shape[1])),
        "W is transposed: x meets W_1 first, and stands on the left":
            lambda W_1, b_1, W_2, b_2: below((W_1 @ W_2).T, b_1 @ W_2 + b_2),
        "the bias is added to W: a bias is added once, not to each row":
            lambda W_1, b_1, W_2, b_2: below(W_1 @ W_2 + b_1 @ W_2 + b_2, b_1 @ W_2 + b_2),
        "the ReLU is still there: here it is taken out":
            lambda W_1, b_1, W_2, b_2: below(np.maximum(0, W_1) @ W_2, np.maximum(0, b_1) @ W_2 + b_2),
    }),
    solution=collapse,
    library=(Ops.linear, FeedForward),
    hints=(
        "W is (D, D), however large F is, and b (D,); return np.vstack([W, b]), (D + 1, D).",
        "Multiply out (x W_1 + b_1) W_2 + b_2, and sort the terms: those with x, and those without.",
        "W = W_1 W_2 and b = b_1 W_2 + b_2."))

EXERCISES = (FEED_FORWARD, FEED_FORWARD_BACKWARD, RELU_KINK, LINEAR_COLLAPSE)
