"""`export --to torch` and `import`; tests/oracle/test_exported.py compares the model with PyTorch."""

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from scratchformer.config import ModelConfig
from scratchformer.errors import UserError
from scratchformer.nn.transformer import Transformer
from scratchformer.training import checkpoints
from scratchformer.training.run import RunDirectory
from scratchformer.training.torch_format import FORMAT, from_torch, to_torch

VARIANTS = [
    {},
    {"norm": "pre"},
    {"tied": "target"},
    {"tied": "none", "positions": "learned"},
    {"attention_bias": False},
]


def random_weights(**changes):
    model = Transformer(ModelConfig(**{"vocab_size": 11, "N": 2, "d_model": 6, "d_ff": 9, "h": 2, **changes}))
    model.store.data[...] = np.random.default_rng(0).standard_normal(model.store.data.size)
    return model.store.named_views(model.store.data), model.config


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_there_and_back_is_bit_equal(changes, same, tmp_path):
    weights, config = random_weights(**changes)
    assert same(from_torch(to_torch(weights, config), config, tmp_path), weights)


def test_heads_that_pytorch_cannot_have_are_refused():
    with pytest.raises(UserError, match="d_k = d_v = d_model / h.*model.d_k=5"):
        to_torch(*random_weights(d_k=5))


@pytest.fixture
def exported(cli, trained, tmp_path):
    path = tmp_path / "model.safetensors"
    assert cli("export", trained.path, "--to", "torch", path).code == 0
    return path


@pytest.fixture
def changed(exported):
    """changed(changes to the tensors) -> a file like the exported one"""

    def write(changes):
        with safe_open(exported, framework="numpy") as file:
            header = file.metadata()
        tensors = load_file(exported)
        changes(tensors)
        save_file(tensors, exported.with_name("changed.safetensors"), header)
        return exported.with_name("changed.safetensors")

    return write


def test_an_imported_run_is_the_exported_one_bit_for_bit(cli, refused, trained, exported, same, tmp_path):
    assert cli("import", exported, "--out", tmp_path / "again").code == 0
    run = RunDirectory(tmp_path / "again")
    mine, theirs = (checkpoints.load(each.checkpoints.preferred()).weights for each in (run, trained))
    assert same(mine, theirs)
    assert run.tokenizer_file.read_bytes() == trained.tokenizer_file.read_bytes()
    assert run.config_file.read_bytes() == trained.config_file.read_bytes()
    assert "without the optimizer's state" in refused("train", "--resume", run.path)


def test_files_that_are_no_export_are_refused(refused, exported, changed, trained, tmp_path):
    name = "encoder.layers.0.norm1.bias"
    renamed = changed(lambda tensors: tensors.update(bias=tensors.pop(name)))
    truncated = tmp_path / "truncated.safetensors"
    truncated.write_bytes(exported.read_bytes()[:-100])
    for path, complaint in [
        (tmp_path / "nothing.safetensors", "no such file"),
        (trained.checkpoints.steps()[-1], FORMAT),
        (truncated, "not a sound"),
        (renamed, f"missing {name}; not in the model bias"),
    ]:
        said = refused("import", path, "--out", tmp_path / "again")
        assert str(path) in said and complaint in said and not (tmp_path / "again" / "config.toml").exists()
