"""The whole Transformer and its twin, in every combination of what a model can be."""

from dataclasses import replace

import pytest
from side_by_side import (
    CONFIGS,
    SMALL,
    SPREADS,
    STEPS,
    TOLERANCE,
    TOLERANCE_OF_TRAINING,
    layer_differences,
    model_and_batch,
    model_differences,
    worst,
    worst_differences,
)

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradient_cases import CASES


def told(config):
    return (
        f"{config.norm}, {config.tied} tied, {'' if config.attention_bias else 'no '}bias, {config.positions}, "
        f"d_k {config.d_k}"
    )


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("config", CONFIGS, ids=told)
def test_logits_loss_and_every_gradient_are_those_of_the_twin(config, dtype, spread):
    found = model_differences(config, dtype, spread)
    assert worst(found) <= TOLERANCE[dtype], found


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_each_place_that_drops_has_its_own_rate(norm):
    model, batch = model_and_batch(
        replace(SMALL, norm=norm, P_drop=0.1, attention_dropout=0.2, relu_dropout=0.3), "float64"
    )
    found = layer_differences(model, batch.inputs, DropoutKey(seed=1, step=2))
    assert worst(found) <= TOLERANCE["float64"], found


def test_every_choice_of_the_configuration_is_among_them():
    assert len(set(map(told, CONFIGS))) == len(CONFIGS) == 2 * 3 * 2 * 2 * 2
    assert {config.d_k * config.h == config.d_model for config in CONFIGS} == {True, False}


@pytest.mark.slow
def test_what_is_published_is_what_these_tests_have_measured():
    found = worst_differences()
    others = {
        "whole model, float64": TOLERANCE["float64"],
        "whole model, float32": TOLERANCE["float32"],
        f"{STEPS} steps of Adam, float64": TOLERANCE_OF_TRAINING,
    }
    assert found.keys() == {case.layer for case in CASES} | others.keys()
    assert all(found[name] <= others.get(name, TOLERANCE["float64"]) for name in found), found
