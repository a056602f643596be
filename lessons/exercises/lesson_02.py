"""Exercises of lesson 02: a recurrent network, backpropagation through time, the cell of an LSTM, and a blind check."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exercises.exercise import Backward, Break, Build, Result, Values
from scratchformer.nn.ops import rows_of
from scratchformer.nn.parameter import Array
from support.recurrent import RNN, lstm_cell, lstm_cell_backward


def rnn(W_x: Array, W_h: Array, b: Array) -> RNN:
    """The library's layer with these weights."""
    d_in, d_hidden = W_x.shape
    layer = RNN(d_in, d_hidden, np.random.default_rng(0), "float64")
    layer.input.weight.data[...], layer.recurrent.weight.data[...] = W_x, W_h
    assert layer.input.bias is not None
    layer.input.bias.data[...] = b
    return layer


def rnn_case(B: int, T: int, d_in: int = 4, d_hidden: int = 5) -> Callable[[np.random.Generator], Values]:
    return lambda random: {"x": random.normal(size=(B, T, d_in)), "h0": random.normal(size=(B, d_hidden)),
                           "W_x": 0.5 * random.normal(size=(d_in, d_hidden)),
                           "W_h": 0.5 * random.normal(size=(d_hidden, d_hidden)), "b": random.normal(size=d_hidden)}


# 02_rnn ---------------------------------------------------------------------------------------------------------------


def read(x: Array, h0: Array, W_x: Array, W_h: Array, b: Array) -> Array:
    h, _ = rnn(W_x, W_h, b).forward(x, h0)
    return h


def by_definition(x: Array, h0: Array, W_x: Array, W_h: Array, b: Array) -> Array:
    """Sentence by sentence and step by step: (B, T, d_hidden)"""
    states = np.zeros((*x.shape[:2], len(b)))
    for sentence, h in enumerate(h0):
        for t, word in enumerate(x[sentence]):
            h = np.tanh(word @ W_x + h @ W_h + b)
            states[sentence, t] = h
    return states


FORWARD = Build(
    id="02_rnn",
    title="Read a sequence with a recurrent network",
    function="rnn",
    arguments=("x", "h0", "W_x", "W_h", "b"),
    cases={"3 sequences of 6": rnn_case(3, 6), "one step": rnn_case(2, 1), "one sequence": rnn_case(1, 4)},
    expected=by_definition,
    result=Result("h", suspects={
        "h0 is not used: the first step reads it, as its state before":
            lambda x, h0, W_x, W_h, b: by_definition(x, 0 * h0, W_x, W_h, b),
        "nothing is carried on: every step reads h0 again, and should read the state of the step before":
            lambda x, h0, W_x, W_h, b: np.tanh(x @ W_x + (h0 @ W_h)[:, None] + b),
        "W_h is transposed: as it is square, its shape does not tell":
            lambda x, h0, W_x, W_h, b: by_definition(x, h0, W_x, W_h.T, b),
        "the bias is missing": lambda x, h0, W_x, W_h: by_definition(x, h0, W_x, W_h, np.zeros(len(W_h))),
        "read from right to left": lambda x, h0, W_x, W_h, b: by_definition(x[:, ::-1], h0, W_x, W_h, b)[:, ::-1],
        "the states begin with h0: it is the state before the first symbol, and not part of the result":
            lambda truth, h0: np.concatenate([h0[:, None], truth[:, :-1]], axis=1),
    }),
    solution=read,
    library=(RNN.forward,),
    hints=(
        "x (B, T, d_in), h0 (B, d_hidden), W_x (d_in, d_hidden), W_h (d_hidden, d_hidden), b (d_hidden,); the result "
        "is (B, T, d_hidden). The T steps need a loop; the B sequences do not.",
        "Keep one array h (B, d_hidden), h0 at first. In every step make the next one from x[:, t] and from it, and "
        "write it into column t of the result.",
        "h = tanh(x[:, t] W_x + h W_h + b), for t = 0, 1, ..., T - 1."))

# 02_bptt --------------------------------------------------------------------------------------------------------------


def bptt(dh: Array, x: Array, h0: Array, h: Array, W_x: Array, W_h: Array) -> Values:
    layer = rnn(W_x, W_h, np.zeros(len(W_h)))                                      # backward does not read the bias
    _, input_cache = layer.input.forward(x)
    dx, dh0 = layer.backward(dh, (input_cache, np.concatenate([h0[:, None], h], axis=1)))
    weights, bias = layer.input.weight, layer.input.bias
    assert bias is not None
    return {"db": bias.grad, "dW_x": weights.grad, "dW_h": layer.recurrent.weight.grad, "dx": dx, "dh0": dh0}


def at_sums(dh: Array, h: Array, W_back: Array, slope: Callable[[Array], Array] = lambda h: 1 - h**2) -> Array:
    """da (B, T, d_hidden), the gradients of the sums before tanh, with whatever stands for W_h^T and for tanh'."""
    da, later = np.zeros_like(dh), np.zeros_like(dh[:, 0])
    for t in reversed(range(dh.shape[1])):
        da[:, t] = (dh[:, t] + later) * slope(h[:, t])
        later = da[:, t] @ W_back
    return da


def slope_on_own_way_only(dh: Array, h: Array, W_h: Array) -> Array:
    own = dh * (1 - h**2)
    return at_sums(own, h, W_h.T, np.ones_like)


def over_rows(da: Array) -> Array:
    return rows_of(da).sum(axis=0)


def before(h0: Array, h: Array) -> Array:
    """The state that each step reads: (B, T, d_hidden)"""
    return np.concatenate([h0[:, None], h[:, :-1]], axis=1)


def right_sums(dh: Array, h: Array, W_h: Array) -> Array:
    return at_sums(dh, h, W_h.T)


BPTT = Backward(
    id="02_bptt",
    title="Backpropagation through time",
    function="bptt",
    arguments=("dh", "x", "h0", "h", "W_x", "W_h"),
    cases={"3 sequences of 6": rnn_case(3, 6), "one step": rnn_case(2, 1), "one sequence": rnn_case(1, 4)},
    forward={"h": read},
    gradients=(
        Result("db", suspects={
            "the way through the next state is missing: h_t is output t, and step t + 1 reads it as well":
                lambda dh, h: over_rows(at_sums(dh, h, np.zeros((h.shape[-1],) * 2))),
            "the derivative of tanh, 1 - h^2, is missing":
                lambda dh, h, W_h: over_rows(at_sums(dh, h, W_h.T, np.ones_like)),
            "what comes back from step t + 1 passes through tanh as well: add it to dh_t before 1 - h^2":
                lambda dh, h, W_h: over_rows(slope_on_own_way_only(dh, h, W_h)),
            "W_h is not transposed on the way back: forward h W_h, backward da W_h^T":
                lambda dh, h, W_h: over_rows(at_sums(dh, h, W_h)),
            "the steps are gone through from the first to the last: what comes from step t + 1 is not there yet":
                lambda dh, h, W_h: over_rows(at_sums(dh[:, ::-1], h[:, ::-1], W_h.T)),
            "only the last step: b serves every step, so each has its share":
                lambda dh, h, W_h: right_sums(dh, h, W_h)[:, -1].sum(axis=0),
        }),
        Result("dW_x"),
        Result("dW_h", suspects={
            "da_t is paired with the state of its own step: what W_h multiplied was the state before, h_{t-1}":
                lambda dh, h, W_h: rows_of(h).T @ rows_of(right_sums(dh, h, W_h)),
            "the first step is left out: it has multiplied h0 by W_h":
                lambda dh, h0, h, W_h: rows_of(before(h0, h)[:, 1:]).T @ rows_of(right_sums(dh, h, W_h)[:, 1:]),
        }),
        Result("dx"),
        Result("dh0", suspects={
            "that is the gradient of the sum before tanh of the first step: h0 reached it through W_h":
                lambda dh, h, W_h: right_sums(dh, h, W_h)[:, 0],
        }),
    ),
    solution=bptt,
    library=(RNN.backward,),
    hints=(
        "dh and h (B, T, d_hidden). First make da, of the same shape: the gradients of a_t = x_t W_x + h_{t-1} W_h + "
        "b, before tanh. All five results follow from da without another loop.",
        "Go from the last step to the first. h_t has two ways to the loss: its own output, which is dh_t, and the next "
        "step. Add what comes back from there, then pass through tanh. Weights collect the shares of all steps.",
        "da_t = (dh_t + da_{t+1} W_h^T) (1 - h_t^2);  db = sum da_t, dW_x = sum x_t^T da_t, dW_h = sum h_{t-1}^T da_t, "
        "dx_t = da_t W_x^T, dh0 = da_1 W_h^T."))

# 02_lstm_cell_backward ------------------------------------------------------------------------------------------------


def lstm_cell_solution(dstate: Array, c_before: Array, c: Array, gates: Array) -> Values:
    dh, dc = dstate
    da, dc_before = lstm_cell_backward(dh, dc, c_before, c, gates)
    return {"dc_before": dc_before, "da": da}


def lstm_case(B: int, d: int) -> Callable[[np.random.Generator], Values]:
    return lambda random: {"a": 1.5 * random.normal(size=(B, 4, d)), "c_before": random.normal(size=(B, d))}


def with_other(dstate: Array, c_before: Array, c: Array, gates: Array, dc: Array) -> Array:
    """da for another gradient of c. Only that of the output gate does not depend on it."""
    i, f, g, o = gates.swapaxes(0, 1)
    right, _ = lstm_cell_backward(dstate[0], dstate[1], c_before, c, gates)
    others = [dc * g * i * (1 - i), dc * c_before * f * (1 - f), dc * i * (1 - g**2)]
    return np.stack([*others, right[:, 3]], axis=1)


def in_gate(number: int) -> Array:
    """True for one of i, f, g, o: (4, 1)"""
    return (np.arange(4) == number)[:, None]


LSTM_CELL = Backward(
    id="02_lstm_cell_backward",
    title="The gradients of one step of an LSTM",
    function="lstm_cell_backward",
    arguments=("dstate", "c_before", "c", "gates"),
    cases={"3 sequences": lstm_case(3, 5), "one sequence": lstm_case(1, 2)},
    forward={
        "gates": lambda a, c_before: lstm_cell(a, c_before)[2],
        "c": lambda a, c_before: lstm_cell(a, c_before)[1],
        "state": lambda a, c_before: np.stack(lstm_cell(a, c_before)[:2]),
    },
    gradients=(
        Result("dc_before", factors={"of the forget gate": lambda gates: gates[:, 1]}, terms={
            "what comes back to c itself, from the next step,": lambda dstate, gates: dstate[1] * gates[:, 1],
            "what comes back through h = o tanh(c)":
                lambda dstate, c, gates: dstate[0] * gates[:, 3] * (1 - np.tanh(c)**2) * gates[:, 1],
        }, suspects={
            "tanh has no derivative here: from h back to c the factor is o (1 - tanh(c)^2)":
                lambda dstate, gates: (dstate[1] + dstate[0] * gates[:, 3]) * gates[:, 1],
        }),
        Result("da", suspects={
            "the slopes are missing: these are the gradients of i, f, g, o, and a is before sigmoid and tanh":
                lambda truth, gates: truth / np.where(in_gate(2), 1 - gates**2, gates * (1 - gates)),
            "the gradient of c as it came in was used: the way through h must be added first":
                lambda dstate, c_before, c, gates: with_other(dstate, c_before, c, gates, dstate[1]),
        }, regions={
            "only the forget gate is wrong: what it multiplied is the cell before, c_before": lambda: in_gate(1),
            "only g is wrong: it is a tanh, whose slope is 1 - g^2": lambda: in_gate(2),
            "only the output gate is wrong: it has one way, h = o tanh(c), so dh it is, and not dc":
                lambda: in_gate(3),
        }),
    ),
    solution=lstm_cell_solution,
    library=(lstm_cell_backward,),
    hints=(
        "dh, dc = dstate, both (B, d). i, f, g, o = gates[:, 0], gates[:, 1], gates[:, 2], gates[:, 3]. da is "
        "(B, 4, d) in the same order, dc_before (B, d).",
        "c has two ways to the loss: the next step (dc) and its own h = o tanh(c). Add both first. Then c = f c_before "
        "+ i g is two products: each factor gets the gradient times the other factor.",
        "dc = dc + dh o (1 - tanh(c)^2); dc_before = dc f; da = dc g i (1-i), dc c_before f (1-f), dc i (1-g^2), "
        "dh tanh(c) o (1-o)."))

# 02_blind_check -------------------------------------------------------------------------------------------------------

SHAPE = (3, 6, 5)


def truncated(dh: Array, x: Array, h0: Array, h: Array, W_x: Array, W_h: Array) -> Values:
    """bptt without the way through the next state: every step thinks that it is the last."""
    da = dh * (1 - h**2)
    return {"db": over_rows(da), "dW_x": rows_of(x).T @ rows_of(da), "dW_h": rows_of(before(h0, h)).T @ rows_of(da),
            "dx": da @ W_x.T, "dh0": da[:, 0] @ W_h.T}


def first_output_only(B: int, T: int, d_hidden: int) -> Array:
    dh = np.zeros((B, T, d_hidden))
    dh[:, 0] = 1
    return dh


def seen_by(answer: Callable) -> str | None:
    """What is wrong with an upstream gradient that is to hide truncation; None if nothing is."""
    upstream = answer(*SHAPE)
    if not isinstance(upstream, np.ndarray) or upstream.shape != SHAPE or upstream.dtype != np.float64:
        return f"it should return an array of float64, of the shape {SHAPE} that it is asked for"
    if not np.isfinite(upstream).all():
        return "it holds numbers that are not finite"
    if not upstream.any():
        return "zeros: with them every gradient is 0, and any backward that returns zeros passes"
    if np.abs(upstream).max() < 1e-3:
        return "smaller than 0.001 everywhere: that hides every mistake; scaled up it would hide none"
    values = rnn_case(*SHAPE[:2], d_hidden=SHAPE[2])(np.random.default_rng(0))
    h = read(**values)
    weights = {name: values[name] for name in ("x", "h0", "W_x", "W_h")}
    right, wrong = (backward(upstream, h=h, **weights) for backward in (bptt, truncated))
    if all(np.allclose(wrong[name], right[name], rtol=1e-9, atol=1e-12) for name in right):
        return None
    if not upstream[:, :-1].any():
        return ("the check sees the truncation: with a loss at the last output, all that the earlier steps should get "
                "comes through later states, and the truncated backward gives them nothing")
    if not upstream[1:].any():
        return ("the check sees the truncation: one sequence alone shows it as well, since the way through the next "
                "state leads from step to step and not from sequence to sequence")
    if not np.ptp(upstream):
        return ("the check sees the truncation: equal numbers are no hiding place here. Which outputs have a step "
                "before them?")
    if not upstream[:, 0].any():
        return ("the check sees the truncation: the first output is the only one that you left out. Turn it round")
    return "the check sees the truncation: some output has a step before it, and its gradient must go back there"


BLIND_CHECK = Break(
    id="02_blind_check",
    title="Make a gradient check accept a truncated backward",
    function="upstream",
    arguments=("B", "T", "d_hidden"),
    complaint=seen_by,
    solution=first_output_only,
    library=(RNN.backward,),
    hints=(
        "The result is dh, (B, T, d_hidden) of float64, with at least one number that is not small. T is 6.",
        "The truncated backward forgets what comes to h_t from step t + 1. When is that 0 for every t, whatever the "
        "weights?",
        "dh_t = 0 for every t but the first."))


EXERCISES = (FORWARD, BPTT, LSTM_CELL, BLIND_CHECK)
