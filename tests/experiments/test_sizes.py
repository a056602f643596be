"""The counts of parameters are those of the models and of the paper."""

from dataclasses import replace

import numpy as np
import pytest

from scratchformer.config import ModelConfig, preset
from scratchformer.experiments.paper import PAPER_TABLE3
from scratchformer.experiments.sizes import kept_bytes, summary
from scratchformer.nn.models import new_model
from scratchformer.nn.sizes import parameter_counts, parameter_shapes

SMALL = ModelConfig(vocab_size=50, N=3, d_model=32, d_ff=72, h=4, max_positions=20)
PAPERS_VOCABULARY = 40960
"""The paper says "about 37000", but only a larger one gives the counts that it prints (big has 218 million with it)."""

VARIATIONS = [
    {},
    {"tied": "target", "norm": "pre", "positions": "learned", "d_k": 9, "h": 3, "d_v": 2},
    {"d_k": 3, "d_v": 7, "attention_bias": False, "N": 1},
    {"tied": "none", "target_vocab_size": 30},
    *(
        {"architecture": architecture, "n_classes": n_classes} | changes
        for architecture, n_classes in (("decoder", 0), ("encoder", 0), ("encoder", 3), ("vision", 10))
        for changes in ({}, {"tied": "none", "norm": "pre", "positions": "learned", "d_k": 9})
    ),
]


@pytest.mark.parametrize("changes", VARIATIONS, ids=str)
def test_counts_are_those_of_the_model(changes):
    config = replace(SMALL, **changes)
    model = new_model(config)
    assert sum(parameter_counts(config).values()) == model.store.data.size
    assert parameter_shapes(config) == {name: each.shape for name, each in model.parameters().items()}


@pytest.mark.parametrize("row", [row for row in PAPER_TABLE3 if PAPER_TABLE3[row].params_M and row != "big"])
def test_counts_agree_with_table_3(row):
    config = replace(preset(row).model, vocab_size=PAPERS_VOCABULARY)
    assert round(sum(parameter_counts(config).values()) / 1e6) == PAPER_TABLE3[row].params_M


def test_the_memory_that_forward_keeps():
    """It grows with the batch; an encoder-decoder of 2 x 2 layers keeps some 80 numbers of d_model a position."""
    model = new_model(replace(SMALL, N=2, d_model=64, d_ff=256))
    some, more = (kept_bytes(model, [np.full((B, 20), 5)] * 2) for B in (8, 16))
    assert more == pytest.approx(2 * some, rel=0.05)
    assert 60 < some / (8 * 20 * 64 * 4) < 120


def test_the_summary_has_the_total():
    total = sum(parameter_counts(preset("base").model).values())
    assert summary(preset("base"))[0].split() == ["parameters", f"{total:,}"]
    assert len({len(line) for line in summary(preset("base"))[1:7] if "%" in line}) == 1
