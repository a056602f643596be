"""Exported weights make the same model in PyTorch's own modules."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from scratchformer import config as configs
from scratchformer.config import ModelConfig
from scratchformer.nn.attention import Mask
from scratchformer.nn.transformer import Transformer
from scratchformer.training import checkpoints
from scratchformer.training.run import RunDirectory, load_run
from scratchformer.training.torch_format import export_run, how_to_load, how_to_run, import_run, to_torch

torch = pytest.importorskip("torch")
PYTHON_BLOCKS = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "names.md").read_text("utf-8"), re.DOTALL
)
CONFIG = ModelConfig(vocab_size=11, N=2, d_model=8, d_ff=12, h=2, P_drop=0.3, max_positions=9)
VARIANTS = [
    {},
    {"norm": "pre"},
    {"tied": "target"},
    {"tied": "none", "positions": "learned"},
    {"attention_bias": False},
    {"norm": "pre", "ln_eps": 0.1, "feed_forward": "gelu"},
]


def run_lines(code, names=None):
    """Execute lines of the documentation -> the names they define"""
    names = {} if names is None else names
    exec(code, names)
    return names


def test_the_documentation_shows_what_export_prints():
    model = configs.preset("tiny").model
    assert PYTHON_BLOCKS[0] == f"{how_to_load(model, Path('model.safetensors'))}\n\n{how_to_run(model)}"


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_the_exported_modules_compute_the_same_states(changes, tmp_path):
    model, random = Transformer(replace(CONFIG, **changes)), np.random.default_rng(0)
    model.store.data[...] = random.normal(size=model.store.data.size) / 2
    path = tmp_path / "model.safetensors"
    save_file(to_torch(model.store.named_views(model.store.data), model.config), path)
    names = run_lines(how_to_run(model.config), run_lines(how_to_load(model.config, path)))
    theirs = names["model"]
    logits, _ = model.forward(np.array([[5, 6, 1]]), np.array([[2]]))
    np.testing.assert_allclose(names["scores"].detach(), logits, rtol=1e-4, atol=1e-4)

    x, y = (random.normal(size=(3, length, 8)).astype("float32") for length in (5, 4))
    lengths = np.array([5, 2, 4])
    mask = Mask(lengths)
    memory, _ = model.encoder.forward(x, mask)
    states, _ = model.decoder.forward(y, memory, Mask(causal=True), mask)

    padding = torch.arange(5) >= torch.from_numpy(lengths)[:, None]
    causal = torch.nn.Transformer.generate_square_subsequent_mask(4)
    with torch.no_grad():
        their_memory = theirs["encoder"](torch.from_numpy(x), src_key_padding_mask=padding)
        their_states = theirs["decoder"](
            torch.from_numpy(y), their_memory, tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=padding
        )
    np.testing.assert_allclose(their_states, states, rtol=1e-4, atol=1e-5)


def test_a_translation_through_pytorch_equals_ours(trained, tmp_path):
    run, path = peaky(trained, tmp_path), tmp_path / "model.safetensors"
    config = export_run(run, None, path)
    names = run_lines(how_to_load(config.model, path) + how_to_run(config.model) + PYTHON_BLOCKS[1])
    translator = load_run(run.path)
    sentences = ["the old dog sees a cat", "a bird", "the big cat and the old dog hears a bird"]
    expected = translator.translate(sentences, beam=1)
    assert len(set(expected)) == len(sentences) and all(expected)
    for sentence, translation in zip(sentences, expected):
        (ids,) = translator.tokenizer.encode([sentence])
        found = names["translate"](torch.tensor([[*ids, 1]]), len(ids) + 1 + translator.extra_length)
        assert translator.tokenizer.decode([found]) == [translation]


def peaky(trained, tmp_path):
    """A run like `trained`, whose model has learnt nothing but is sure of itself, so that translations are long."""
    exported, run = tmp_path / "trained.safetensors", RunDirectory(tmp_path / "peaky")
    export_run(trained, None, exported)
    import_run(exported, run)
    checkpoint = checkpoints.load(run.checkpoints.best)
    store = Transformer(checkpoint.config.model, seed=1).store
    store.data *= 2
    checkpoints.save(run.checkpoints.best, replace(checkpoint, weights=store.named_views(store.data)))
    return run


@pytest.mark.parametrize("name", ["with_header.safetensors", "plain.safetensors", "plain.pt"])
def test_weights_tuned_in_pytorch_come_back(cli, trained, tmp_path, name):
    from safetensors import safe_open
    from safetensors.torch import save_file

    path, tuned = tmp_path / "model.safetensors", tmp_path / name
    model = run_lines(how_to_load(export_run(trained, None, path).model, path))["model"]
    with torch.no_grad():
        model["decoder"].layers[0].multihead_attn.in_proj_weight[0, 1] += 1
    if tuned.suffix == ".pt":
        torch.save(model.state_dict(), tuned)
    else:
        save_file(model.state_dict(), tuned, safe_open(path, "pt").metadata() if "with" in name else None)
    options = [] if "with" in name else ["--config", trained.config_file]
    assert cli("import", tuned, *options, "--out", tmp_path / "again").code == 0
    before, after = (load_run(run).model.parameters() for run in (trained.path, tmp_path / "again"))
    changed = {name: np.argwhere(before[name].data != after[name].data).tolist() for name in before}
    assert {name: where for name, where in changed.items() if where} == {
        "decoder.layers.0.cross_attention.q.weight": [[1, 0]]
    }


def test_a_state_dict_that_does_not_fit_is_refused(cli, refused, trained, tmp_path):
    from safetensors.torch import save_file

    path, out = tmp_path / "model.safetensors", tmp_path / "again"
    state = run_lines(how_to_load(export_run(trained, None, path).model, path))["model"].state_dict()
    name = "encoder.layers.0.linear1.bias"
    for changed, complaint in [
        (state | {name: torch.zeros(5)}, f"{name} has shape (5,), the model's has (32,)"),
        (
            {"state_dict": state},
            "not a state dict of tensors of floats: state_dict is of type OrderedDict; save the weig",
        ),
        (torch.zeros(3), "not a state dict of tensors of floats but a Tensor; save"),
        (Path("x"), "not a state dict of tensors"),
        (state | {name: torch.zeros(32, dtype=torch.complex64)}, f"{name} is of type torch.complex64; save"),
        (state | {name: torch.full((32,), torch.nan)}, f"{name} has weights that are NaN or infinite"),
    ]:
        torch.save(changed, tmp_path / "changed.pt")
        said = refused("import", tmp_path / "changed.pt", "--config", trained.config_file, "--out", out)
        assert complaint in said and not out.exists()
    save_file(state | {name: torch.zeros(32, dtype=torch.bool)}, path)
    said = refused("import", path, "--config", trained.config_file, "--out", out)
    assert f"{name} is of type BOOL; it must be BF16, F16, F32, F64" in said
    save_file({name: tensor.bfloat16() for name, tensor in state.items()}, path)
    assert cli("import", path, "--config", trained.config_file, "--out", tmp_path / "bf16").code == 0
    read = load_run(tmp_path / "bf16").model.parameters()["encoder.layers.0.feed_forward.inner.bias"].data
    assert np.array_equal(read, state[name].bfloat16().float().numpy())
    torch.save(state, tmp_path / "plain.pt")
    assert "--config RUN/config.toml" in refused("import", tmp_path / "plain.pt", "--out", out)
