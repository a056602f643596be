import gc
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from scratchformer.config import PRESETS, ModelConfig, preset
from scratchformer.experiments.sizes import activation_floats, parameter_counts, summary, training_bytes
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.models import new_model

SMALL = ModelConfig(vocab_size=50, N=3, d_model=32, d_ff=72, h=4, max_positions=20)
PAPERS_VOCABULARY = 40960
"""The paper says "about 37000", but only a larger one gives the counts that it prints (big has 218 million with it)."""

VARIATIONS = [
    {},
    {"tied": "target"},
    {"tied": "none"},
    {"norm": "pre"},
    {"positions": "learned"},
    {"attention_bias": False},
    {"d_k": 5},
    {"d_v": 11},
    {"d_k": 3, "d_v": 7, "attention_bias": False},
    {"N": 1},
    {"h": 1},
    {"d_ff": 7},
    {"tied": "target", "norm": "pre", "positions": "learned", "d_k": 9, "h": 3, "d_v": 2},
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
    assert sum(parameter_counts(config).values()) == new_model(config).store.data.size


@pytest.mark.parametrize("name, millions", [("base", 63.1), ("big", 214.3), ("tiny", 0.87)])
def test_counts_of_the_presets(name, millions):
    assert sum(parameter_counts(PRESETS[name].model).values()) / 1e6 == pytest.approx(millions, abs=0.06)


@pytest.mark.parametrize(
    "row, millions",
    [
        ("base", 65),
        ("B1", 58),
        ("B2", 60),
        ("C1", 36),
        ("C2", 50),
        ("C3", 80),
        ("C4", 28),
        ("C5", 168),
        ("C6", 53),
        ("C7", 90),
    ],
)
def test_counts_agree_with_table_3(row, millions):
    config = replace(preset(row).model, vocab_size=PAPERS_VOCABULARY)
    assert round(sum(parameter_counts(config).values()) / 1e6) == millions


@pytest.mark.parametrize(
    "changes",
    [
        {},
        *(
            pytest.param(changes, marks=pytest.mark.slow)
            for changes in (
                {"P_drop": 0.0},
                {"norm": "pre"},
                {"d_ff": 512},
                {"attention_dropout": 0.1},
                {"relu_dropout": 0.1},
                {"architecture": "decoder", "norm": "pre", "activation": "gelu"},
            )
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("B, length", [(16, 10), (4, 60)])
def test_the_estimated_activations_fit_what_forward_keeps(changes, B, length):
    config = ModelConfig(**({"vocab_size": 20, "N": 2, "d_model": 64, "d_ff": 256, "h": 4} | changes))
    model = new_model(config)
    inputs = [np.full((B, length), 5)] * (1 if config.architecture == "decoder" else 2)
    model.forward(*inputs, rng=DropoutKey(0, 1))
    gc.collect()
    tracemalloc.start()
    logits, cache = model.forward(*inputs, rng=DropoutKey(0, 1))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    kept -= logits.nbytes
    estimated = 4 * activation_floats(config, B * length, length)
    assert estimated / 1.5 < kept < estimated * 1.5, f"{kept / estimated:.2f} of the estimate"


def test_the_memory_of_training_has_four_arrays_of_the_model():
    config = preset("tiny")
    assert training_bytes(config)["weights, gradients, moments"] == 16 * sum(parameter_counts(config.model).values())
    assert (
        training_bytes(config, length=60)["activations of a micro-batch"]
        > training_bytes(config, length=30)["activations of a micro-batch"]
    )


def test_the_summary_has_the_total():
    total = sum(parameter_counts(preset("base").model).values())
    assert summary(preset("base"))[0].split() == ["parameters", f"{total:,}"]
    assert len({len(line) for line in summary(preset("base"))[1:7] if "%" in line}) == 1
