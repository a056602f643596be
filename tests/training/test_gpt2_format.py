"""`import --from gpt2`: what is refused, and training goes on. tests/oracle/test_gpt2.py compares with PyTorch."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from scratchformer import config as configs
from scratchformer.nn.sizes import parameter_counts
from scratchformer.training.published import GPT2, of_all_layers
from scratchformer.training.run import load_model


@pytest.fixture
def tensors(byte_level_files):
    """Random weights of a model of one layer under GPT-2's names."""
    sizes = {"V": len(json.loads(byte_level_files[0].read_bytes())), "P": 12, "D": 64, "A": 3 * 64, "F": 16}
    random = np.random.default_rng(0)
    shapes = {
        name: [sizes[letter] for letter in letters]
        for theirs in of_all_layers(GPT2, 1).values()
        for name, letters in theirs.items()
    }
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def command(byte_level_files, tmp_path):
    vocab, merges = byte_level_files
    file, run = tmp_path / "model.safetensors", tmp_path / "run"
    return ["import", "--from", "gpt2", file, "--vocab", vocab, "--merges", merges, "--out", run]


def test_the_published_sizes_are_those_of_the_preset():
    assert sum(parameter_counts(configs.preset("gpt2").model).values()) == 124_439_808 + 3 * 768


MISSING = np.empty(0)


@pytest.mark.parametrize(
    "name, change, complaint",
    [
        ("h.0.ln_1.bias", lambda old: MISSING, "missing h.0.ln_1.bias; unknown nothing"),
        ("h.0.attn.rotary", lambda old: np.ones(3, "f4"), "missing nothing; unknown h.0.attn.rotary"),
        ("h.0.attn.c_attn.weight", lambda old: old.T.copy(), "has shape (192, 64); in a model of its sizes it has (64"),
        ("ln_f.bias", lambda old: np.ones(64, int), "ln_f.bias is of type I64"),
        ("wte.weight", lambda old: old[:600].copy(), "vectors of 600 pieces, but"),
    ],
)
def test_other_weights_are_refused(refused, tensors, command, tmp_path, name, change, complaint):
    tensors[name] = change(tensors.get(name))
    stored = {name: array for name, array in tensors.items() if array is not MISSING}
    save_file(stored, tmp_path / "model.safetensors")
    assert f"{tmp_path}/model.safetensors: " in (said := refused(*command)) and complaint in said
    assert not (tmp_path / "run").exists()


def test_an_imported_model_of_any_size_learns_on_with_its_own_configuration(cli, refused, tensors, command, tmp_path):
    """The command of docs/using.md; the preset `gpt2` has the size of the smallest published model alone."""
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "notes.txt").write_text("Attention is all you need.\n" * 40)
    assert cli(*command).code == 0
    run, out = tmp_path / "run", tmp_path / "notes"
    settings = ["max_length=8", "tokens_per_batch=16", "accumulation=1", "lr_factor=0.05", "steps=2"]
    small = [word for each in settings for word in ("--set", each)]
    train = ["--pretrained", run, "--text", tmp_path / "notes.txt", "--out", out, *small]
    assert cli("train", run / "config.toml", *train).code == 0
    before, after = (load_model(each).model.store.data for each in (run, out))
    assert before.shape == after.shape and 0 < np.abs(after - before).max() < 1e-3  # two small steps from its weights
    assert "model.h=1, but here 12" in refused("train", "gpt2", *train[:-1], "steps=1", "--out", tmp_path / "other")
