"""The exercises of lesson 12: residual connections, LayerNorm, dropout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exercises.diagnosis import TOLERANCE, Unlike, as_array, error
from exercises.exercise import Backward, Break, Build, Result
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import LayerNorm
from scratchformer.nn.ops import Ops
from scratchformer.nn.residual import PostNorm

REFERENCE = Ops(np)
EPS = 1e-6

# 12_layer_norm_backward -----------------------------------------------------------------------------------------------


def layer_norm_backward(dy, n, s, gamma):
    dgamma, dbeta = np.zeros_like(gamma), np.zeros_like(gamma)
    dx = REFERENCE.layer_norm_backward(dy, (n, 1 / s), gamma, dgamma, dbeta)
    return {"dbeta": dbeta, "dgamma": dgamma, "dx": dx}


def rows_case(B: int, T: int, D: int):
    return lambda random: {"x": 5 + 2 * random.normal(size=(B, T, D)), "gamma": 1 + 0.5 * random.normal(size=D),
                           "beta": random.normal(size=D)}


def mean(x: np.ndarray) -> np.ndarray:
    return x.mean(axis=-1, keepdims=True)


def D_of(x: np.ndarray) -> int:
    return x.shape[-1]


LAYER_NORM = Backward(
    id="12_layer_norm_backward",
    title="The gradients of LayerNorm",
    function="layer_norm_backward",
    arguments=("dy", "n", "s", "gamma"),
    cases={"3 sequences of 4 positions": rows_case(3, 4, 5), "one position": rows_case(1, 1, 6)},
    forward={"n": lambda x, gamma, beta: REFERENCE.layer_norm(x, gamma, beta, EPS)[1][0],
             "s": lambda x, gamma, beta: 1 / REFERENCE.layer_norm(x, gamma, beta, EPS)[1][1],
             "y": lambda x, gamma, beta: REFERENCE.layer_norm(x, gamma, beta, EPS)[0]},
    gradients=(
        Result("dbeta", suspects={
            "made from dn = gamma dy; beta is added after gamma has multiplied, so its gradient is a sum of dy":
                lambda dy, gamma: (gamma * dy).sum(axis=(0, 1))}),
        Result("dgamma", suspects={
            "made from dn = gamma dy; gamma multiplies n, so its gradient is a sum of dy n, without gamma":
                lambda dy, n, gamma: (gamma * dy * n).sum(axis=(0, 1)),
            "the factor n is missing: gamma multiplies n, so its gradient is a sum of dy n":
                lambda dy: dy.sum(axis=(0, 1)),
            "a product of sums where a sum of products is meant: multiply dy and n row by row, then add":
                lambda dy, n: dy.sum(axis=(0, 1)) * n.mean(axis=(0, 1))}),
        Result(
            "dx",
            terms={"the direct way, dn,": lambda dy, s, gamma: dy * gamma / s,
                   "the way through the mean, - mean(dn),":
                       lambda dy, s, gamma: -mean(dy * gamma) / s * np.ones_like(dy),
                   "the way through the variance, - n mean(dn n),":
                       lambda dy, n, s, gamma: -n * mean(dy * gamma * n) / s},
            factors={"1 / s": lambda s: 1 / s},
            suspects={
                "gamma is left out: dn = gamma dy, inside both means":
                    lambda dy, n, s, gamma: layer_norm_backward(dy, n, s, np.ones_like(gamma))["dx"],
                "gamma multiplies at the end; it belongs inside the means, dn = gamma dy":
                    lambda dy, n, s, gamma: layer_norm_backward(dy, n, s, np.ones_like(gamma))["dx"] * gamma,
                "the last mean has dy where dn is meant: what arrives at n is dn = gamma dy, in all three terms":
                    lambda dy, n, s, gamma: (dy * gamma - mean(dy * gamma) - n * mean(dy * n)) / s,
                "the first mean has dy where dn is meant: what arrives at n is dn = gamma dy, in all three terms":
                    lambda dy, n, s, gamma: (dy * gamma - mean(dy) - n * mean(dy * gamma * n)) / s,
                "both means have dy where dn is meant: what arrives at n is dn = gamma dy, in all three terms":
                    lambda dy, n, s, gamma: (dy * gamma - mean(dy) - n * mean(dy * n)) / s,
                "the means run over the positions as well; each position is normalised by itself":
                    lambda dy, n, s, gamma: (dy * gamma - (dy * gamma).mean() - n * (dy * gamma * n).mean()) / s,
                "sums where means are meant: each of the D numbers has 1 / D of the mean and of the variance":
                    lambda dy, n, s, gamma: (dy * gamma - D_of(dy) * mean(dy * gamma)
                                             - D_of(dy) * n * mean(dy * gamma * n)) / s,
                "the last mean lacks its n: the share along n is n mean(dn n), an arrow in the direction of n":
                    lambda dy, n, s, gamma: (dy * gamma - mean(dy * gamma) - mean(dy * gamma * n)) / s,
                "the last mean divides by D - 1; the variance is the biased one, so it divides by D":
                    lambda dy, n, s, gamma: (dy * gamma - mean(dy * gamma)
                                             - n * mean(dy * gamma * n) * D_of(dy) / (D_of(dy) - 1)) / s})),
    solution=layer_norm_backward,
    library=(Ops.layer_norm_backward, Ops.layer_norm),
    hints=(
        "dbeta and dgamma have the shape (D,): all B T positions share them. dx has the shape of x. Each position is "
        "normalised by itself, so every mean in dx runs over the last axis, with keepdims=True.",
        "gamma and beta are like the weight and bias of a linear map of n. Then x reaches n by three ways: directly, "
        "through the mean of its row, and through the variance. The two latter take a share of dn out: its mean, and "
        "its share along n.",
        "dbeta = sum dy;  dgamma = sum dy n;  dn = gamma dy;  dx = (dn - mean(dn) - n mean(dn n)) / s."))

# 12_dropout -----------------------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """Stands in for a DropoutKey: the numbers that decide have been drawn already."""

    uniform: np.ndarray

    def keep(self, shape: tuple[int, ...], P_drop: float) -> np.ndarray:
        return self.uniform >= P_drop


def dropout(x, dy, uniform, P_drop, training):
    key: Any = Drawn(uniform) if training else None
    y, kept = REFERENCE.dropout(x, P_drop, key)
    return np.stack([y, REFERENCE.dropout_backward(dy, kept, P_drop)])


def multiplier(uniform: np.ndarray, P_drop: float, training: bool) -> np.ndarray:
    """What each number is multiplied by, forward and backward."""
    return (uniform >= P_drop) / (1 - P_drop) if training else np.ones_like(uniform)


def both(x: np.ndarray, dy: np.ndarray, forward: np.ndarray | float, backward: np.ndarray | float) -> np.ndarray:
    return np.stack([x * forward, dy * backward])


def dropout_case(B: int, T: int, P_drop: float, training: bool):
    def case(random: np.random.Generator) -> dict:
        x = random.normal(size=(B, T, 7))
        x[..., :3] = np.maximum(x[..., :3], 0)                                     # as behind a ReLU: some are 0
        return {"x": x, "dy": random.normal(size=x.shape), "uniform": random.random(x.shape), "P_drop": P_drop,
                "training": training}
    return case


DROPOUT = Build(
    id="12_dropout",
    title="Dropout, forward and backward, from numbers already drawn",
    function="dropout",
    arguments=("x", "dy", "uniform", "P_drop", "training"),
    cases={"training, P_drop 0.25": dropout_case(3, 4, 0.25, True),
           "training, P_drop 0.75": dropout_case(2, 5, 0.75, True),
           "training, P_drop 0": dropout_case(1, 2, 0.0, True), "inference": dropout_case(2, 3, 0.25, False)},
    expected=lambda x, dy, uniform, P_drop, training: both(x, dy, *[multiplier(uniform, P_drop, training)] * 2),
    result=Result(
        "y and dx",
        suspects={
            "at inference it is scaled too; there, every number passes as it is":
                lambda x, dy, uniform, P_drop, training:
                    both(x, dy, *[multiplier(uniform, P_drop, True) if training else 1 / (1 - P_drop)] * 2),
            "it also drops at inference: `training` is ignored":
                lambda x, dy, uniform, P_drop: both(x, dy, *[multiplier(uniform, P_drop, True)] * 2),
            "the wrong ones are kept: a number is dropped with probability P_drop, so where uniform < P_drop":
                lambda x, dy, uniform, P_drop: both(x, dy, *[(uniform < P_drop) / (1 - P_drop)] * 2),
            "what is kept is not scaled: divide by 1 - P_drop, so that a sum keeps its mean":
                lambda x, dy, uniform, P_drop: both(x, dy, *[uniform >= P_drop] * 2),
            "classic dropout: it scales at inference, by 1 - P_drop; here what is kept is scaled in training instead":
                lambda x, dy, uniform, P_drop, training:
                    both(x, dy, *[uniform >= P_drop if training else 1 - P_drop] * 2),
            "dx lacks the scale: forward divided by 1 - P_drop, so backward does":
                lambda x, dy, uniform, P_drop, training:
                    both(x, dy, multiplier(uniform, P_drop, training), uniform >= P_drop),
            "dx lacks the mask: a number that was dropped had no influence, and gets no gradient":
                lambda x, dy, uniform, P_drop, training: both(x, dy, multiplier(uniform, P_drop, training), 1.0),
            "dx is 0 wherever y is 0; but an x that was 0 by itself and was kept does get a gradient":
                lambda x, dy, uniform, P_drop, training:
                    both(x, dy, *(multiplier(uniform, P_drop, training) * held for held in (1, x != 0)))}),
    solution=dropout,
    library=(Ops.dropout, Ops.dropout_backward, DropoutKey.keep),
    hints=(
        "x, dy and uniform have one shape, and so have y and dx; return np.stack([y, dx]). At inference nothing at all "
        "happens.",
        "Where uniform < P_drop, the number is dropped. The others are made larger, so that the expected value is "
        "unchanged. Backward multiplies by exactly what forward multiplied by.",
        "m = (uniform >= P_drop) / (1 - P_drop);  y = x m,  dx = dy m."))

# 12_residual_backward -------------------------------------------------------------------------------------------------


def residual_backward(dy, x, W, kept, P_drop, n, s, gamma):
    dgamma, dbeta, dW = np.zeros_like(gamma), np.zeros_like(gamma), np.zeros_like(W)
    dz, dupdate = REFERENCE.add_norm_backward(dy, (kept, (n, 1 / s)), gamma, dgamma, dbeta, P_drop)
    dx_through = REFERENCE.linear_backward(dupdate, x, W, dW, None)
    return {"dz": dz, "dupdate": dupdate, "dW": dW, "dx": dz + dx_through}


def residual_case(B: int, T: int, D: int, P_drop: float):
    return lambda random: {
        "x": random.normal(size=(B, T, D)), "W": random.normal(size=(D, D)) / math.sqrt(D),
        "gamma": random.normal(1, 0.5, D), "beta": random.normal(size=D), "kept": random.random((B, T, D)) >= P_drop,
        "P_drop": P_drop}


RESIDUAL = Backward(
    id="12_residual_backward",
    title="Back through Add & Norm, both ways",
    function="residual_backward",
    arguments=("dy", "x", "W", "kept", "P_drop", "n", "s", "gamma"),
    cases={"3 sequences of 2 rows": residual_case(3, 2, 5, 0.25), "one row": residual_case(1, 1, 6, 0.375)},
    forward={
        "update": lambda x, W: REFERENCE.linear(x, W, None),
        "z": lambda x, update, kept, P_drop: x + REFERENCE.dropout_backward(update, kept, P_drop),
        "n": lambda z, gamma, beta: REFERENCE.layer_norm(z, gamma, beta, EPS)[1][0],
        "s": lambda z, gamma, beta: 1 / REFERENCE.layer_norm(z, gamma, beta, EPS)[1][1],
        "y": lambda z, gamma, beta: REFERENCE.layer_norm(z, gamma, beta, EPS)[0]},
    gradients=(
        Result(
            "dz",
            terms={
                "the direct way, gamma dy,": lambda dy, s, gamma: gamma * dy / s,
                "the mean of gamma dy": lambda dy, s, gamma: -mean(gamma * dy) / s,
                "the part along n": lambda dy, n, s, gamma: -n * mean(gamma * dy * n) / s},
            factors={"1 / s": lambda s: 1 / s},
            suspects={
                "gamma is forgotten: what reaches n is gamma dy":
                    lambda dy, n, s, gamma: layer_norm_backward(dy, n, s, np.ones_like(gamma))["dx"],
                "gamma stands outside the means; it belongs to dy before they are taken":
                    lambda dy, n, s, gamma: gamma * layer_norm_backward(dy, n, s, np.ones_like(gamma))["dx"],
                "it is dy: the norm stands after the addition, so the way back begins with it": lambda dy: dy}),
        Result(
            "dupdate",
            factors={"1 / (1 - P_drop)": lambda P_drop: 1 / (1 - P_drop)},
            suspects={
                "it is dz: the update went through dropout on its way to the sum": lambda dz: dz,
                "scaled, and the mask is missing: what was dropped had no influence, and gets no gradient":
                    lambda dz, P_drop: dz / (1 - P_drop),
                "the mask is the wrong way round: what was kept gets the gradient":
                    lambda dz, kept, P_drop: dz * ~kept / (1 - P_drop),
                "divided by P_drop; forward divided by 1 - P_drop, so backward does":
                    lambda dz, kept, P_drop: dz * kept / P_drop}),
        Result("dW", suspects={
            "transposed: W_ij takes x_i to update_j, so dW_ij is a sum of x_i dupdate_j":
                lambda x, dupdate: np.einsum("bti,btj->ji", x, dupdate),
            "made with dz instead of dupdate: the sublayer's output is what stands before dropout":
                lambda x, dz: np.einsum("bti,btj->ij", x, dz)}),
        Result(
            "dx",
            terms={"the way around, dz,": lambda dz: dz,
                   "the way through the sublayer, dupdate W^T,": lambda dupdate, W: dupdate @ W.T},
            suspects={
                "the way through the sublayer, dupdate W^T, is missing: x is what the sublayer read":
                    lambda dz: dz,
                "the way around carries dy; it ends at the sum, before the norm, so it carries dz":
                    lambda dy, dupdate, W: dy + dupdate @ W.T,
                "dropout is on the way around as well; only the update went through it":
                    lambda dupdate, W: dupdate + dupdate @ W.T,
                "the mask is on the way around as well; only the update went through it":
                    lambda dz, kept, dupdate, W: dz * kept + dupdate @ W.T,
                "dropout is left out on the way through the sublayer":
                    lambda dz, W: dz + dz @ W.T,
                "W must be transposed: x_i goes to update_j with the factor W_ij":
                    lambda dz, dupdate, W: dz + dupdate @ W})),
    solution=residual_backward,
    library=(PostNorm.backward, Ops.add_norm_backward, Ops.linear_backward),
    hints=(
        "dz, dupdate and dx have the shape of x, (B, T, D), and dW is (D, D). s is (B, T, 1). Go back "
        "through the box in this order: the norm, dropout, the sublayer, the sum of the two ways.",
        "z is what the norm reads, so dz is LayerNorm's backward of dy. x and the dropped update are the two terms of "
        "z; each gets dz. The update's share goes on through dropout and the sublayer, and meets the other at x.",
        "dn = gamma dy;  dz = (dn - mean(dn) - n mean(dn n)) / s;  dupdate = dz kept / (1 - P_drop);  "
        "dW = sum over rows of x^T dupdate;  dx = dz + dupdate W^T."))

# 12_repair_layer_norm -------------------------------------------------------------------------------------------------


def layer_norm(x, gamma, beta, dy):
    dgamma, dbeta = np.zeros_like(gamma), np.zeros_like(beta)
    y, saved = REFERENCE.layer_norm(x, gamma, beta, EPS)
    dx = REFERENCE.layer_norm_backward(dy, saved, gamma, dgamma, dbeta)
    return {"y": y, "dx": dx, "dgamma": dgamma, "dbeta": dbeta}


def repair_complaint(answer: Callable) -> str | None:
    """How many of the five bugs are gone, and the first symptom; None if the function is LayerNorm."""
    symptom = first_symptom(answer)
    return symptom and f"{repaired(answer)} of 5 bugs repaired; {symptom}"


@np.errstate(all="ignore")
def repaired(answer: Callable) -> int:
    """Of the five planted bugs. Each is looked for by itself, whatever the others do to the results."""
    random = np.random.default_rng(1)
    x, dy = random.normal(size=(2, 3, 4, 8))
    gamma, zeros, ones = random.normal(1, 0.5, 8), np.zeros(8), np.ones(8)

    def size(x: np.ndarray) -> float:
        """Mean square of the normalised row."""
        return float((np.asarray(result(answer, x, ones, zeros, dy[:1, :1])["y"]) ** 2).mean())

    try:
        whole, row = result(answer, x, ones, zeros, dy), x[:1, :1]
        v = (0.001 * row).var()
        bugs_gone = (
            like(result(answer, row, ones, zeros, dy[:1, :1])["y"], whole["y"][:1, :1]),           # rows by themselves
            like(size(row), 1, 1e-4),                                                              # biased variance
            like(size(0.001 * row) / size(row), v / (v + EPS), 0.1),                               # eps inside the root
            like(result(answer, x, gamma, zeros, dy)["dx"], result(answer, x, ones, zeros, gamma * dy)["dx"]),
            like(whole["dgamma"], (dy * whole["y"]).sum(axis=(0, 1))))
        return sum(bugs_gone)
    except (Missing, TypeError, ValueError, IndexError, ZeroDivisionError):
        return 0


def like(ours: Any, theirs: Any, tolerance: float = TOLERANCE) -> bool:
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    return ours.shape == theirs.shape and error(ours, theirs) <= tolerance


def first_symptom(answer: Callable) -> str | None:
    """In the order of forward and backward."""
    random = np.random.default_rng(0)
    x, dy = random.normal(size=(2, 3, 4, 8))
    gamma, beta, ones = random.normal(1, 0.5, 8), random.normal(size=8), np.ones(8)
    truth = layer_norm(x, gamma, beta, dy)

    def wrong(name: str, x: np.ndarray = x, gamma: np.ndarray = gamma) -> bool:
        """Is this result wrong for this x and gamma? Raises Unlike if it is no such array."""
        expected = layer_norm(x, gamma, beta, dy[:len(x), :x.shape[1]])[name]
        yours = as_array(result(answer, x, gamma, beta, dy[:len(x), :x.shape[1]])[name], expected)
        if yours.shape != expected.shape:
            raise Unlike(f"of shape {yours.shape}, expected {expected.shape}")
        return not error(yours, expected) <= TOLERANCE

    try:
        for name in truth:
            try:
                reason = SYMPTOMS[name](wrong, x, ones) if wrong(name) or wrong(name, 1e-3 * x) else None
            except Unlike as unlike:
                return f"{name} is {unlike}"
            if reason:
                return f"{name} is wrong: {reason}"
        if wrong("y", np.full((1, 1, 8), 2.5)):
            return "y is wrong for a row of equal numbers: it should be beta"
    except Missing as missing:
        return str(missing)
    except Unlike as unlike:
        return f"y is {unlike}, for a single row"
    return None


class Missing(Exception):
    """The function does not return what it should."""


def result(answer: Callable, *arguments: np.ndarray) -> dict:
    with np.errstate(all="ignore"):
        returned = answer(*arguments)
    if not isinstance(returned, dict) or set(returned) != {"y", "dx", "dgamma", "dbeta"}:
        raise Missing("the function should return a dict with y, dx, dgamma, dbeta")
    return returned


def symptom_of_y(wrong: Callable[..., bool], x: np.ndarray, ones: np.ndarray) -> str:
    if not wrong("y"):
        return "right for rows of size 1, wrong for rows of size 0.001. Where does eps stand?"
    if not wrong("y", x[:1, :1]):
        return "right for a row alone, wrong in company. Which numbers do the mean and the variance belong to?"
    return "wrong for a row alone as well. By how many is the sum of squares divided?"


def symptom_of_dx(wrong: Callable[..., bool], x: np.ndarray, ones: np.ndarray) -> str:
    if not wrong("dx", gamma=ones):
        return "right while gamma is 1. What does gamma multiply, and when?"
    return "wrong even if gamma is 1. By how many ways does a number of x reach the row's results?"


SYMPTOMS: dict[str, Callable[..., str]] = {
    "y": symptom_of_y,
    "dx": symptom_of_dx,
    "dgamma": lambda wrong, x, ones: "gamma is used in every row of every sequence",
    "dbeta": lambda wrong, x, ones: "beta is used in every row of every sequence"}

REPAIR = Break(
    id="12_repair_layer_norm",
    title="Repair a LayerNorm that has five bugs",
    function="layer_norm",
    arguments=("x", "gamma", "beta", "dy"),
    complaint=repair_complaint,
    solution=layer_norm,
    library=(LayerNorm, Ops.layer_norm, Ops.layer_norm_backward),
    hints=(
        "Everything in LayerNorm happens within one row of D numbers: all means go over the last axis, with "
        "keepdims=True. Only dgamma and dbeta, (D,), are sums over rows, whatever the number of leading axes.",
        "Three of the bugs are in forward, two in backward. The message counts those that are gone, so repair one at a "
        "time. Ask each line: which numbers belong together, and what does it do to a row alone, in company, very "
        "small; and in backward, if gamma is not 1?",
        "mu = mean(x), s = sqrt(mean((x - mu)^2) + eps), n = (x - mu) / s, y = gamma n + beta;  dn = gamma dy, "
        "dx = (dn - mean(dn) - n mean(dn n)) / s, dgamma = sum of dy n, dbeta = sum of dy over all rows."))

EXERCISES = (LAYER_NORM, DROPOUT, RESIDUAL, REPAIR)
