"""Mistakes that are the same in forward and backward: finite differences accept them, and the oracle does not."""

from inspect import signature

import numpy as np
import pytest
from side_by_side import TOLERANCE, layer_differences, worst

from scratchformer.nn.gradient_cases import CASES, D, V, check
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.residual import PreNorm

SOFTMAX, EMBEDDING = ("masked_softmax", "masked_softmax_backward"), ("embedding", "embedding_backward")


def only_the_oracle_refuses(layer, description):
    """Checks one case of the table of gradient cases with both."""
    case = next(case for case in CASES if (case.layer, case.description) == (layer, f"{description}, dropout 0.0"))
    assert check(case).passed
    assert worst(layer_differences(*case.make())) > 1000 * TOLERANCE["float64"]


# Operations -----------------------------------------------------------------------------------------------------------


def ops_with(changes):
    """The NumPy operations, some of which get other values for some arguments than they are called with."""

    def changed(right, values):
        def operation(*arguments, **named):
            bound = signature(right).bind(*arguments, **named)
            bound.arguments |= values
            return right(*bound.args, **bound.kwargs)

        return operation

    methods = {name: changed(getattr(Ops, name), values) for name, values in changes.items()}
    return type("ChangedOps", (Ops,), methods)(np)


@pytest.mark.parametrize(
    "changes, layer, description",
    [
        (dict.fromkeys(SOFTMAX, {"scale": 1.0}), "ScaledDotProductAttention", "all see all, T != S"),
        (dict.fromkeys(SOFTMAX, {"scale": D**-0.5}), "ScaledDotProductAttention", "all see all, T != S"),
        ({"masked_softmax": {"causal": False}}, "SelfAttention", "causal and ragged padding"),
        ({"masked_softmax": {"key_lengths": None}}, "CrossAttention", "ragged padding, T != S"),
        (dict.fromkeys(EMBEDDING, {"scale": 1.0}), "Embedding", "repeated words and padding"),
        ({"layer_norm": {"eps": 1e-5}}, "LayerNorm", "far from mean 0"),
        (
            {"cross_entropy": {"on_target": 0.9, "off_target": 0.1 / V}},
            "CrossEntropy",
            "smoothing spread over the others",
        ),
    ],
    ids=str,
)
def test_a_wrong_operation_is_refused(changes, layer, description):
    with using(ops_with(changes)):
        only_the_oracle_refuses(layer, description)


# Functions ------------------------------------------------------------------------------------------------------------


def positions_to_base_100000(first, count, d_model):
    position, channel = np.arange(first, first + count)[:, None], np.arange(d_model)
    angle = position / 100000 ** (2 * (channel // 2) / d_model)
    return np.where(channel % 2 == 0, np.sin(angle), np.cos(angle))


def all_sines_before_all_cosines(first, count, d_model):
    angle = np.arange(first, first + count)[:, None] / 10000 ** (2 * np.arange(d_model // 2) / d_model)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def reshape_to_heads(x):
    """Has the right shape, and mixes positions with heads."""
    B, T, H, K = x.shape
    return x.reshape(B, H, T, K)


def always_pre_norm(sublayer, config, init, dtype):
    """The docstring says post-norm, as in The Annotated Transformer."""
    return PreNorm(sublayer, config, dtype)


@pytest.mark.parametrize(
    "name, wrong, layer, description",
    [
        ("layers.sinusoids", positions_to_base_100000, "PositionalEncoding", "from the start"),
        ("layers.sinusoids", all_sines_before_all_cosines, "PositionalEncoding", "from the start"),
        ("ops.by_head", reshape_to_heads, "SelfAttention", "no bias"),
        ("transformer.residual", always_pre_norm, "Transformer", "post-norm, three embeddings tied"),
    ],
)
def test_a_wrong_function_is_refused(name, wrong, layer, description, monkeypatch):
    monkeypatch.setattr(f"scratchformer.nn.{name}", wrong)
    only_the_oracle_refuses(layer, description)
