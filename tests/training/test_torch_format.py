import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from scratchformer.config import ModelConfig
from scratchformer.errors import UserError
from scratchformer.nn.transformer import Transformer
from scratchformer.training import checkpoints
from scratchformer.training.run import RunDirectory
from scratchformer.training.torch_format import FORMAT, from_torch, import_run, to_torch

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


@pytest.fixture
def exported(cli, trained, tmp_path):
    path = tmp_path / "model.safetensors"
    assert cli("export", trained.path, "--to", "torch", path).code == 0
    return path


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_there_and_back_is_bit_equal(changes, same, tmp_path):
    weights, config = random_weights(**changes)
    assert same(from_torch(to_torch(weights, config), config, tmp_path), weights)


def test_a_linear_map_is_transposed_and_projections_are_joined():
    weights, config = random_weights()
    tensors = to_torch(weights, config)
    name = "decoder.layers.1.cross_attention"
    in_proj = tensors["decoder.layers.1.multihead_attn.in_proj_weight"]
    assert np.array_equal(in_proj[:6], weights[f"{name}.q.weight"].T)
    assert np.array_equal(in_proj[6:], weights[f"{name}.kv.weight"].T)
    assert np.array_equal(tensors["source_embedding.weight"], weights["source_embedding.weight"])


def test_a_model_without_attention_bias_gets_zeros_and_takes_nothing_else_back(tmp_path):
    weights, config = random_weights(attention_bias=False)
    tensors = to_torch(weights, config)
    bias = tensors["decoder.layers.0.multihead_attn.in_proj_bias"]
    assert bias.shape == (18,) and not bias.any()
    bias[5] = 1
    with pytest.raises(UserError, match="in_proj_bias is not zero, but model.attention_bias is false"):
        from_torch(tensors, config, tmp_path)


def test_heads_that_pytorch_cannot_have_are_refused():
    weights, config = random_weights(d_k=5)
    with pytest.raises(UserError, match="d_k = d_v = d_model / h.*model.d_k=5"):
        to_torch(weights, config)


def test_an_imported_run_is_the_exported_one_bit_for_bit(cli, trained, exported, same, tmp_path):
    assert cli("import", exported, "--out", tmp_path / "again").code == 0
    run, preferred = RunDirectory(tmp_path / "again"), trained.checkpoints.preferred()
    weights = checkpoints.load(run.checkpoints.preferred()).weights
    assert same(weights, checkpoints.load(preferred).weights)
    assert run.tokenizer_file.read_bytes() == trained.tokenizer_file.read_bytes()
    assert run.config_file.read_bytes() == trained.config_file.read_bytes()


# --- bad input


def test_an_imported_run_cannot_be_trained_further(refused, exported, tmp_path):
    import_run(exported, RunDirectory(tmp_path / "again"))
    assert "without the optimizer's state" in refused("train", "--resume", tmp_path / "again")


@pytest.mark.parametrize("lost", ["nothing", "config.toml", "checkpoints/step_00000012.safetensors"])
def test_nothing_is_imported_over_what_is_there(refused, exported, own_run, files_of, lost):
    (own_run.path / lost).unlink(missing_ok=True)
    before = files_of(own_run.path)
    assert f"{own_run.path}: holds " in refused("import", exported, "--out", own_run.path)
    assert files_of(own_run.path) == before


def test_weights_that_changed_are_told(cli, exported, tmp_path):
    with safe_open(exported, framework="numpy") as file:
        header = file.metadata()
    tensors, path = load_file(exported), tmp_path / "changed.safetensors"
    tensors["encoder.layers.0.norm1.weight"] += 0.5
    save_file(tensors, path, header)
    said = cli("import", path, "--out", tmp_path / "tuned")
    assert said.code == 0 and "have changed since it was exported" in said.err
    assert "changed" not in cli("import", exported, "--out", tmp_path / "same").err


def test_files_that_are_no_export_are_refused(refused, exported, trained, tmp_path):
    def refused_import(path):
        said = refused("import", path, "--out", tmp_path / "again")
        assert str(path) in said and not (tmp_path / "again" / "config.toml").exists()
        return said

    assert "no such file" in refused_import(tmp_path / "nothing.safetensors")
    assert FORMAT in refused_import(trained.checkpoints.steps()[-1])
    truncated = tmp_path / "truncated.safetensors"
    truncated.write_bytes(exported.read_bytes()[:-100])
    assert "not a sound" in refused_import(truncated)

    with safe_open(exported, framework="numpy") as file:
        header = file.metadata()
    tensors, path = load_file(exported), tmp_path / "changed.safetensors"
    save_file(
        {("bias" if name == "encoder.layers.0.norm1.bias" else name): tensors[name] for name in tensors}, path, header
    )
    assert "missing encoder.layers.0.norm1.bias; not in the model bias" in refused_import(path)
