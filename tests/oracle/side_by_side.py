"""Our layer and its twin on the same weights and inputs: how far apart are their outputs, gradients, steps, words?

python tests/oracle/side_by_side.py        prints the worst differences
"""

import itertools
import math
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import NamedTuple, get_args
from unittest.mock import patch

import numpy as np
import torch
from twins import Twin
from twins import cross_entropy as torch_cross_entropy

from scratchformer.config import ModelConfig
from scratchformer.nn.gradcheck import random_arrays
from scratchformer.nn.gradient_cases import CASES, distance_to_kink
from scratchformer.nn.loss import Smoothing, batch_loss_backward, cross_entropy
from scratchformer.nn.ops import Ops, ops_of
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import BOS, PAD, UNK

torch.set_num_threads(1)  # such small arrays are not worth two

TOLERANCE = {"float64": 1e-10, "float32": 1e-4}
"""Of `difference`, for outputs, losses and gradients in one forward and backward."""

TOLERANCE_OF_TRAINING = 1e-8
"""Of `difference`, for losses and weights after a hundred steps in float64."""

FLOOR = 1e-2
"""Numbers smaller than this count as this large, as in the finite differences of `nn/gradcheck.py`: some gradients are
zero, and what rounding leaves in their place differs without end."""


def difference(ours, theirs):
    """The greatest |ours - theirs| of two arrays, relative to the greatest number in either, or to FLOOR."""
    ours, theirs = np.asarray(ours), torch.as_tensor(theirs).detach().numpy()
    if ours.shape != theirs.shape:
        raise ValueError(f"ours has shape {ours.shape}, the twin's {theirs.shape}")
    return float(np.abs(ours - theirs).max() / max(np.abs(ours).max(), np.abs(theirs).max(), FLOOR))


def differences(ours, theirs):
    """Name -> difference, for two dictionaries of arrays."""
    assert ours.keys() == theirs.keys()
    return {name: difference(ours[name], theirs[name]) for name in ours}


def worst(found):
    """The greatest of a dictionary of differences."""
    return greatest(found.values())


def greatest(numbers):
    """NaN if one of them is, which Python's max would pass over."""
    return float(np.max(list(numbers)))


# One layer ------------------------------------------------------------------------------------------------------------


def layer_differences(layer, inputs, rng=None):
    """Forward, and backward from a random gradient -> the differences of the output, of the gradients of all float
    inputs (`input 0`, ...), and of the gradients of all parameters, by name."""
    twin, tensors = Twin(layer), [leaf(value) for value in inputs]
    with taped_dropout() as tape:
        y, cache = layer.forward(*inputs, rng=rng)
    upstream = random_arrays(seed=0)(y.shape)
    layer.zero_grad()
    gradients = layer.backward(upstream, cache)
    twin_y = twin(*tensors, kept=tape)
    twin_y.backward(torch.as_tensor(upstream))

    of_inputs = {f"input {i}": tensor.grad for i, tensor in enumerate(tensors) if is_leaf(tensor)}
    of_ours = () if gradients is None else gradients if isinstance(gradients, tuple) else (gradients,)
    return (
        {"output": difference(y, twin_y)}
        | differences(dict(zip(of_inputs, of_ours, strict=True)), of_inputs)
        | differences(gradients_of(layer), twin.gradients())
    )


def leaf(value):
    """An input of our layer as an input of its twin: arrays become tensors, and real numbers ask for a gradient."""
    if not isinstance(value, np.ndarray):
        return value
    return torch.as_tensor(value).requires_grad_(value.dtype.kind == "f")


def is_leaf(value):
    return isinstance(value, torch.Tensor) and value.requires_grad


def gradients_of(layer):
    return {name: parameter.grad for name, parameter in layer.parameters().items()}


@contextmanager
def taped_dropout():
    """A list that receives, while the block runs, what each of our dropouts keeps: an array, or None for all."""
    ops, tape = ops_of(np.zeros(1)), []
    dropout = ops.dropout

    def taped(x, P_drop, rng):
        y, kept = dropout(x, P_drop, rng)
        tape.append(kept)
        return y, kept

    with patch.object(ops, "dropout", taped):
        yield tape


@cache
def case_differences(case):
    """One case of the table of gradient cases, in float64."""
    return layer_differences(*case.make())


# The whole model ------------------------------------------------------------------------------------------------------

SMALL = ModelConfig(vocab_size=23, N=2, d_model=12, d_ff=20, h=3, P_drop=0.0, ln_eps=1e-3, max_positions=12)
CONFIGS = [
    replace(SMALL, norm=norm, tied=tied, attention_bias=bias, positions=positions, d_k=d_k, d_v=d_v)
    for norm, tied, bias, positions, (d_k, d_v) in itertools.product(
        ["post", "pre"], ["all", "target", "none"], [True, False], ["sinusoidal", "learned"], [(4, 4), (5, 7)]
    )
]
"""Every combination of what a model can be; d_model / h is 4."""

SPREADS = get_args(Smoothing)
SMOOTHING = 0.1
ROWS_AT_ONCE = 5
"""Of the logits in `batch_loss_backward`, which thus needs several chunks."""


class Batch(NamedTuple):
    """source_ids (B, S), target_in_ids (B, T), target_out_ids (B, T)"""

    source_ids: np.ndarray
    target_in_ids: np.ndarray
    target_out_ids: np.ndarray

    def tensors(self):
        return [torch.as_tensor(ids) for ids in self]


def random_batch(random):
    """Ragged, longer sources than targets, one source of nothing but padding, and so few words that many come twice."""
    source_ids = padded(random, [9, 0, 4, 7])
    target_out_ids = padded(random, [5, 7, 1, 6])
    target_in_ids = np.where(target_out_ids == PAD, PAD, np.roll(target_out_ids, 1, axis=1))
    target_in_ids[:, 0] = BOS
    return Batch(source_ids, target_in_ids, target_out_ids)


def padded(random, lengths):
    ids = random.integers(UNK, 10, (len(lengths), max(lengths)))
    return np.where(np.arange(max(lengths)) < np.array(lengths)[:, None], ids, PAD)


def random_model(config, dtype, random):
    """A new model in which no gamma is 1 and no bias 0."""
    model = Transformer(config, int(random.integers(1000)), dtype)
    for parameter in model.parameters().values():
        if parameter.data.ndim == 1:
            parameter.data += 0.5 * random.standard_normal(parameter.shape)
    return model


def model_and_batch(config, dtype):
    """From the first seed that keeps every ReLU so far from its kink that rounding cannot carry it across."""
    for seed in itertools.count():
        random = np.random.default_rng(seed)
        model, batch = random_model(config, dtype, random), random_batch(random)
        if distance_to_kink(model, [batch.source_ids, batch.target_in_ids], None) > 1e-5:
            return model, batch
    raise AssertionError("unreachable: the seeds do not end")


@cache
def model_differences(config, dtype, spread):
    """Logits, loss and every gradient by forward, `cross_entropy` and backward; loss and every gradient once more by
    `batch_loss_backward`. -> name -> difference"""
    model, batch = model_and_batch(config, dtype)
    twin = Twin(model, getattr(torch, dtype))
    source_ids, target_in_ids, target_out_ids = batch.tensors()
    twin_logits = twin(source_ids, target_in_ids)
    twin_loss = torch_cross_entropy(twin_logits, target_out_ids, SMOOTHING, spread)
    twin_loss.backward()

    logits, cache = model.forward(batch.source_ids, batch.target_in_ids)
    loss, _, dlogits = cross_entropy(logits, batch.target_out_ids, SMOOTHING, spread)
    model.backward(dlogits, cache)
    found = {"logits": difference(logits, twin_logits), "loss": difference(loss, twin_loss)}
    found |= differences(gradients_of(model), twin.gradients())

    model.zero_grad()
    with patch.object(Ops, "logits_at_once", ROWS_AT_ONCE * config.vocab_size):
        loss, _ = batch_loss_backward(model, batch[:2], batch[2], SMOOTHING, spread=spread)
    in_chunks = {"loss": difference(loss, twin_loss)} | differences(gradients_of(model), twin.gradients())
    return found | {f"{name} by batch_loss_backward": value for name, value in in_chunks.items()}


# Training -------------------------------------------------------------------------------------------------------------

STEPS = 100
WARMUP, BETAS, EPS = 40, (0.9, 0.98), 1e-9
TRAINED = [
    replace(SMALL, d_model=16, h=2, d_k=8, d_v=8),
    replace(SMALL, norm="pre", tied="none", attention_bias=False, positions="learned", d_k=5, d_v=7),
]


@cache
def training_differences(config, same_eps=True):
    """A hundred steps of Adam, each on a batch of its own -> the greatest difference of any step's loss (`loss`), and
    the differences of the final weights, by name.

    same_eps  Our eps is added to sqrt(v), torch's to sqrt(v / (1 - beta2^t)). True gives torch, at each step, the eps
              that comes to the same; False leaves it at EPS. The two then disagree where a gradient is as small as
              EPS: on the weights of a hidden unit that hardly ever fires, not on what the model computes.
    """
    random = np.random.default_rng(0)
    model = random_model(config, "float64", random)
    twin = Twin(model)
    ours = Adam(model, BETAS, EPS)
    theirs = torch.optim.Adam(twin.weights.values(), lr=1.0, betas=BETAS, eps=EPS)
    schedule = torch.optim.lr_scheduler.LambdaLR(theirs, lambda steps_taken: learning_rate(steps_taken + 1, config))
    losses = []
    for step in range(1, STEPS + 1):
        batch = random_batch(random)
        model.zero_grad()
        loss, n_tokens = batch_loss_backward(model, batch[:2], batch[2], SMOOTHING)
        model.store.grad /= n_tokens
        ours.step(noam(step, config.d_model, WARMUP))

        if same_eps:
            theirs.param_groups[0]["eps"] = EPS / math.sqrt(1 - BETAS[1] ** step)
        source_ids, target_in_ids, target_out_ids = batch.tensors()
        twin_loss = torch_cross_entropy(twin(source_ids, target_in_ids), target_out_ids, SMOOTHING, "others")
        twin_loss = twin_loss / target_out_ids.ne(PAD).sum()
        theirs.zero_grad()
        twin_loss.backward()
        theirs.step()
        schedule.step()
        losses.append(difference(loss / n_tokens, twin_loss))
    weights = {name: parameter.data for name, parameter in model.parameters().items()}
    return {"loss": greatest(losses)} | differences(weights, twin.weights)


def learning_rate(step, config):
    """Up in a straight line to (d_model WARMUP)^-0.5, then down with the root of the step."""
    return (config.d_model * WARMUP) ** -0.5 * min(step / WARMUP, math.sqrt(WARMUP / step))


# The figures ----------------------------------------------------------------------------------------------------------


def worst_differences() -> dict[str, float]:
    """The differences that the tests of this folder compare with their tolerances: the worst case of each class in the
    table of gradient cases, then the whole model in both precisions, then a hundred steps of Adam."""
    found = {
        layer: greatest(worst(case_differences(case)) for case in CASES if case.layer == layer)
        for layer in dict.fromkeys(case.layer for case in CASES)
    }
    for dtype in TOLERANCE:
        found[f"whole model, {dtype}"] = greatest(
            worst(model_differences(config, dtype, spread)) for config in CONFIGS for spread in SPREADS
        )
    found[f"{STEPS} steps of Adam, float64"] = greatest(worst(training_differences(config)) for config in TRAINED)
    return found


if __name__ == "__main__":
    for name, value in worst_differences().items():
        print(f"{name:<30} {value:.1e}")
