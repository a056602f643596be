"""The exercises of lesson 01: backprop by hand, and how to know it is right."""

from __future__ import annotations

import numpy as np

from exercises.exercise import Backward, Build, Result, Values
from exercises.numeric import numeric_gradient
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.ops import PAD, Ops, rows_of

REFERENCE = Ops(np)

# 01_linear_backward ---------------------------------------------------------------------------------------------------


def linear_backward(dy, x, W):
    dW, db = np.zeros_like(W), np.zeros(W.shape[1])
    dx = REFERENCE.linear_backward(dy, x, W, dW, db)
    return {"db": db, "dW": dW, "dx": dx}


def linear_case(*leading: int):
    return lambda random: {"x": random.normal(size=(*leading, 4)), "W": random.normal(size=(4, 5)),
                           "b": random.normal(size=5)}


LINEAR = Backward(
    id="01_linear_backward",
    title="The gradients of a linear layer",
    function="linear_backward",
    arguments=("dy", "x", "W"),
    cases={"3 sequences of 2 rows": linear_case(3, 2), "6 rows, one leading axis": linear_case(6),
           "one row": linear_case(1, 1)},
    forward={"y": lambda x, W, b: REFERENCE.linear(x, W, b)},
    gradients=(
        Result("db", suspects={
            "it is the sum of x: the bias is added to y, so it is dy that reaches it":
                lambda x: rows_of(x).sum(axis=0)}),
        Result("dW", suspects={
            "x and dy are summed over the rows each by itself; each row's x belongs to the same row's dy":
                lambda x, dy: np.outer(rows_of(x).sum(axis=0), rows_of(dy).sum(axis=0))}),
        Result("dx")),
    solution=linear_backward,
    library=(Ops.linear_backward,),
    hints=(
        "A gradient has the shape of what it is the gradient of: db (d_out,), dW (d_in, d_out), dx (..., d_in). As "
        "every row is treated alike, make matrices of x and dy first: x.reshape(-1, d_in) has all rows, one each.",
        "Where forward copies, backward adds: b and W serve every row, so db and dW are sums over all of them. dx "
        "has one row for each row of dy: what each output number of that row pays back through its weights.",
        "db = sum over rows of dy;  dW = x_rows^T dy_rows;  dx = dy W^T."))

# 01_cross_entropy_backward --------------------------------------------------------------------------------------------


def cross_entropy_backward(dL, scores, targets):
    _, _, dscores = cross_entropy(scores, targets)
    return {"dscores": dL * dscores}


def probabilities(scores: np.ndarray) -> np.ndarray:
    return REFERENCE.masked_softmax(scores, 1.0, None, False)


def one_hot(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    return np.eye(scores.shape[-1])[targets]


def is_real(targets: np.ndarray) -> np.ndarray:
    """1 for a target that counts, 0 for padding; one axis more than the targets."""
    return (targets != PAD)[..., None].astype(float)


def targets_case(lengths: list[int], T: int):
    """Random targets, padded after the given lengths."""
    def case(random: np.random.Generator) -> Values:
        targets = random.integers(1, 7, (len(lengths), T))
        targets[np.arange(T) >= np.array(lengths)[:, None]] = PAD
        return {"scores": 2 * random.normal(size=(len(lengths), T, 7)), "targets": targets}
    return case


CROSS_ENTROPY = Backward(
    id="01_cross_entropy_backward",
    title="The gradient of softmax and cross-entropy, with padding",
    function="cross_entropy_backward",
    arguments=("dL", "scores", "targets"),
    cases={"3 sequences, padded": targets_case([4, 2, 3], 4), "one of 2 sequences is padding only":
           targets_case([0, 3], 3), "one token": targets_case([1], 1)},
    forward={"L": lambda scores, targets: cross_entropy(scores, targets)[0]},
    gradients=(
        Result(
            "dscores",
            terms={"the probability p": lambda dL, scores, targets: dL * is_real(targets) * probabilities(scores),
                   "the term - q, the 1 of the right class,":
                       lambda dL, scores, targets: -dL * is_real(targets) * one_hot(scores, targets)},
            factors={"dL": lambda dL: dL},
            regions={"only the padded positions are wrong: a padded target is not part of the loss, so its scores have "
                     "gradient 0": lambda targets: targets[..., None] == PAD,
                     "only the right class is right: the other classes change p through the sum below the fraction":
                         lambda scores, targets: one_hot(scores, targets) == 0},
            suspects={
                "divided by the number of real targets, a mean where the sum is meant":
                    lambda truth, targets: truth / (targets != PAD).sum(),
                "the softmax runs over the positions as well; each position has one of its own, over its classes":
                    lambda dL, scores, targets: dL * is_real(targets) * (
                        np.exp(scores) / np.exp(scores).sum() - one_hot(scores, targets))}),),
    solution=cross_entropy_backward,
    library=(cross_entropy, Ops.cross_entropy),
    hints=(
        "dscores has the shape of scores, (B, T, V). Every position is a softmax of its own over the last axis; "
        "targets[..., None] lines up with it. dL is one number.",
        "Each score is lowered in proportion to the probability that it was given; the right class is raised by 1. A "
        "position whose target is padding has no part in the loss, whatever its scores are.",
        "dscores = dL (p - q) where the target is not 0, else 0;  p = softmax(scores), q = 1 at the right class."))

# 01_gradient_check ----------------------------------------------------------------------------------------------------


class Watched:
    """sum(exp(s x)) + sum(s x)^2: a function that keeps the arguments it is called with, and knows its gradient."""

    def __init__(self, slope: np.ndarray) -> None:
        self.slope = slope
        self.seen: list[np.ndarray] = []

    def __call__(self, x: np.ndarray) -> float:
        self.seen.append(np.array(x))
        return float(np.exp(self.slope * x).sum() + (self.slope * x).sum()**2)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return self.slope * (np.exp(self.slope * x) + 2 * (self.slope * x).sum())

    def steps(self, x: np.ndarray) -> np.ndarray:
        """How far each call was from x: (calls, elements of x)."""
        return np.array([seen - x for seen in self.seen if seen.shape == x.shape]).reshape(-1, x.size)


def watched_case(*shape: int):
    return lambda random: {"f": Watched(1 + random.random(shape)), "x": random.normal(size=shape)}


def moved_together(f: Watched, x: np.ndarray) -> bool:
    return bool((np.count_nonzero(f.steps(x), axis=1) > 1).any())


def one_sided(f: Watched, x: np.ndarray) -> bool:
    steps = f.steps(x)
    return not (steps < 0).any() or not (steps > 0).any()


def longest_step(f: Watched, x: np.ndarray) -> float:
    return float(np.abs(f.steps(x)).max(initial=0))


GRADIENT_CHECK = Build(
    id="01_gradient_check",
    title="A gradient by central differences",
    function="numeric_gradient",
    arguments=("f", "x"),
    cases={"a matrix": watched_case(3, 2), "a vector of one element": watched_case(1),
           "an array of three axes": watched_case(2, 1, 4)},
    expected=lambda f, x: f.gradient(x),
    result=Result(
        "gradient",
        symptoms={"f was never called at a moved x": lambda f, x: longest_step(f, x) == 0,
                  "several elements were moved at once: put each one back before the next": moved_together,
                  "a one-sided difference, whose error shrinks only like h: go the same step up and down": one_sided,
                  "the step is too small: the difference of two almost equal numbers is mostly rounding error":
                      lambda f, x: longest_step(f, x) < 1e-7,
                  "the step is too large: the tangent has left the curve": lambda f, x, yours, truth:
                      longest_step(f, x) > 1e-3 and np.shape(yours) == truth.shape and np.allclose(yours, truth, 0.5)},
        factors={"1 / 2 (the two points are 2 h apart)": lambda: 0.5}),
    solution=numeric_gradient,
    library=(numeric_gradient,),
    hints=(
        "The result has the shape of x, and one number of it needs two calls of f: 2 x.size calls in all. "
        "np.ndindex(x.shape) goes through the elements of an array of any shape.",
        "Move one element by a small step up, call f; move it by the same step down, call f; put it back. The "
        "difference of the two values, over the distance between the two points. A step of 1e-5 suits float64.",
        "gradient[i] = (f(x + h e_i) - f(x - h e_i)) / (2 h)."))

EXERCISES = (LINEAR, CROSS_ENTROPY, GRADIENT_CHECK)
