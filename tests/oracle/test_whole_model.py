"""The whole Transformer and its twin, in every combination of what a model can be."""

from dataclasses import replace

import pytest
from side_by_side import (
    CONFIGS,
    SMALL,
    SPREADS,
    TOLERANCE,
    layer_differences,
    model_and_batch,
    model_differences,
    worst,
)

from scratchformer.nn.dropout import DropoutKey


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
    found = layer_differences(model, (batch.source_ids, batch.target_in_ids), DropoutKey(seed=1, step=2))
    assert worst(found) <= TOLERANCE["float64"], found
