"""docs/extending.md: a stranger's layers, in a file of her own, do what the library's do."""

import importlib.util
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

import scratchformer as sf
from scratchformer.errors import UserError
from scratchformer.nn.registry import LOADED, REGISTRY
from scratchformer.training.run import load_model

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
FILE, CHECK, TRAIN = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
NAMES = {"norm": "my-rms", "feed_forward": "my-swiglu", "attention": "my-rotary", "positions": "none"}
SENTENCE = "sentence.en"
SMALL = {
    "vocab_size": 300,
    "d_model": 16,
    "d_ff": 24,
    "h": 2,
    "N": 1,
    "warmup": 5,
    "save_every": 2,
    "validate_every": 4,
}


@pytest.fixture(autouse=True)
def unregistered(monkeypatch):
    """Names that a test registers are gone after it."""
    for kind, names in REGISTRY.items():
        monkeypatch.setitem(REGISTRY, kind, dict(names))
    yield
    LOADED.clear()


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """my.py, as the page shows it."""
    path = tmp_path / "my.py"
    path.write_text(FILE, encoding="utf-8")
    (tmp_path / SENTENCE).write_text("The dog sleeps .\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(importlib.sys.modules, "my", raising=False)
    return path


@pytest.fixture
def trained(cli, mine, tmp_path):
    """A run of four steps with the three layers, by the command of the page in a smaller size."""
    settings = [word for name, value in {**NAMES, **SMALL, "steps": 4}.items() for word in ("--set", f"{name}={value}")]
    said = cli("train", "tiny", "--model", "my.py", *settings, "--out", "run")
    assert said.code == 0, said.err
    return tmp_path / "run"


def test_the_file_is_short():
    assert len(FILE.splitlines()) <= 90 and len([line for line in FILE.splitlines() if line.strip()]) < 80


def test_gradients(mine, capsys):
    exec(CHECK, {})
    assert capsys.readouterr().out.split() == ["RMSNorm", "True", "SwiGLU", "True", "RotaryAttention", "True"]


def test_on_the_command_line(cli, trained):
    assert (trained / "model.py").read_text("utf-8") == FILE
    assert "my.py" in (trained / "config.toml").read_text("utf-8")
    assert cli("train", "--resume", trained, "--set", "steps=6").code == 0
    assert cli("average", trained, "--last", 2).code == 0
    (said,) = cli("translate", trained, SENTENCE).out.splitlines()
    translator = sf.load_run(trained)
    assert [translator.translate(["The dog sleeps ."])] == [[said]]
    assert {type(layer.self_attention.sublayer).__name__ for layer in translator.model.decoder.layers} == {
        "RotaryAttention"
    }


def test_it_computes_what_the_library_does(mine):
    """The same weights in our layers and in hers give the same logits."""
    sizes = {"vocab_size": 20, "N": 2, "d_model": 8, "d_ff": 12, "h": 2, "P_drop": 0.0}
    ours = sf.Transformer(sf.ModelConfig(**sizes, norm="rms", feed_forward="swiglu", positions="rotary"), 0, "float64")
    spec = importlib.util.spec_from_file_location("my", mine)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    hers = sf.Transformer(sf.ModelConfig(**sizes, **NAMES), 1, "float64")
    for name, parameter in ours.parameters().items():
        if name.endswith("feed_forward.inner.weight"):
            gate, value = (hers.parameters()[name.replace("inner", part)] for part in ("gate", "value"))
            gate.data[...], value.data[...] = np.split(parameter.data, 2, axis=1)
        else:
            hers.parameters()[name].data[...] = parameter.data
    ids = np.array([[4, 5, 6, 7], [8, 9, 0, 0]]), np.array([[2, 5, 6], [2, 8, 0]])
    np.testing.assert_allclose(hers.forward(*ids)[0], ours.forward(*ids)[0], rtol=1e-10)


def test_from_python(mine, tmp_path, capsys):
    sizes = {**SMALL, "steps": 4}
    exec(TRAIN.replace("**names}", f"**names, **{sizes}}}"), {})
    assert (tmp_path / "runs" / "mine" / "model.py").exists()


def test_a_run_from_python_records_the_file_that_registers(cli, refused, mine, capfd):
    """No command may run a script that registers layers and trains; `train --resume` then names a file."""
    import my

    settings = {**SMALL, "steps": 1, "norm": "my-rms"}
    sf.train(sf.with_settings(sf.preset("tiny"), settings), "imported")
    assert cli("translate", "imported", SENTENCE).code == 0
    sf.register("norm", "my-rms", my.RMSNorm)
    sf.train(sf.with_settings(sf.preset("tiny"), settings), "script")
    assert "norm=my-rms: not registered by one file that is imported" in capfd.readouterr().err
    del REGISTRY["norm"]["my-rms"]
    LOADED.clear()
    assert "train --resume RUN --model FILE" in refused("translate", "script", SENTENCE)
    assert cli("train", "--resume", "script", "--model", "my.py").code == 0
    assert cli("translate", "script", SENTENCE).code == 0


def test_python_checks_gradients_unless_told_not_to(mine):
    mine.write_text(FILE.replace("dn = dy * self.gamma.data", "dn = 2 * dy * self.gamma.data"), encoding="utf-8")
    import my  # noqa: F401

    config = sf.with_settings(sf.preset("tiny"), {**SMALL, "steps": 1, "norm": "my-rms"})
    with pytest.raises(UserError, match="my.py: RMSNorm: backward is wrong for input 0"):
        sf.train(config, "run")
    sf.train(config, "run", check_gradients=False)


def test_other_code_at_loading_is_said(cli, mine, trained):
    mine.write_text(FILE.replace("dn = dy * self.gamma.data", "dn = 2 * dy * self.gamma.data"), encoding="utf-8")
    LOADED.clear()
    said = cli("translate", trained, SENTENCE)
    assert said.code == 0 and "trained with other code of RMSNorm" in said.err


TRAIN_WITH_RMS = [
    "train",
    "tiny",
    *(word for name, value in {**SMALL, "norm": "my-rms"}.items() for word in ("--set", f"{name}={value}")),
]


def test_an_error_in_her_layer_names_her_file_and_line(cli, refused, mine, monkeypatch):
    wrong = "self.outer.forward(value[..., 1:])"  # fails in the library's Linear
    mine.write_text(FILE.replace("self.outer.forward(z * s * value)", wrong), encoding="utf-8")
    line = next(number for number, text in enumerate(mine.read_text("utf-8").splitlines(), 1) if wrong in text)
    train = *TRAIN_WITH_RMS, "--set", "feed_forward=my-swiglu", "--model", "my.py", "--out", "run"
    assert f"{mine}, line {line}: SwiGLU: ValueError: " in refused(*train) and not Path("run").exists()
    monkeypatch.setattr("scratchformer.nn.gradient_cases.check_own", lambda config: [])
    said = cli(*train).err.splitlines()[-1]
    assert f"ValueError in my.py, line {line}: " in said and "sf.gradcheck checks a layer of yours" in said


def test_layers_that_no_setting_chooses_are_named(cli, mine):
    said = cli(*TRAIN_WITH_RMS, "--set", "steps=1", "--model", "my.py", "--out", "run").err
    assert f"{mine}: registers layers that no setting chooses; --set attention=my-rotary --set feed_forward=" in said
    assert "norm=my-rms" not in said


WRONG = {
    "input 0 (relative error": ("dn = dy * self.gamma.data", "dn = 2 * dy * self.gamma.data"),
    "backward overwrites gamma.grad: add into it": ("self.gamma.grad += (dy", "self.gamma.grad[...] = (dy"),
    "RMSNorm.forward must return (output, cache)": ("* x * scale, (x * scale, scale)", "* x * scale"),
    "RMSNorm.backward replaces gamma.grad by another": ("self.gamma.grad += (dy", "self.gamma.grad = (dy"),
}


@pytest.mark.parametrize("complaint, change", WRONG.items())
def test_a_wrong_backward_is_refused_before_training(refused, cli, mine, complaint, change):
    mine.write_text(FILE.replace(*change), encoding="utf-8")
    said = refused(*TRAIN_WITH_RMS, "--model", "my.py", "--out", "run")
    assert f"{mine}: RMSNorm: " in said and complaint in said and not Path("run").exists()
    checked = cli("gradcheck", "--model", "my.py")
    assert checked.code and ("WRONG" in checked.out or complaint in checked.err)


def test_a_model_with_a_wrong_backward_is_refused(refused, mine):
    own = """
class Wrong(sf.Transformer):
    def states_backward(self, dstates, cache):
        yield from super().states_backward(2 * dstates, cache)
"""
    mine.write_text(FILE + own, encoding="utf-8")
    assert f"{mine}: Wrong: backward is wrong for" in refused(*TRAIN_WITH_RMS, "--model", "my.py:Wrong", "--out", "run")


def test_a_layer_that_takes_no_small_size_is_trained_unchecked(cli, mine):
    limit = "        assert config.d_model > 8, 'too small'\n        self.gamma, self.eps"
    mine.write_text(FILE.replace("        self.gamma, self.eps", limit), encoding="utf-8")
    said = cli(*TRAIN_WITH_RMS, "--set", "steps=1", "--model", "my.py", "--out", "run")
    assert said.code == 0 and said.err.count(f"{mine}: RMSNorm: gradients were not checked: too small") == 1


def test_her_layers_are_checked_by_the_command(refused, cli, mine):
    Path("none.py").write_text("")
    assert "none.py: registers no layers" in refused("gradcheck", "--model", "none.py")
    checked = cli("gradcheck", "--model", "my.py")
    assert checked.code == 0 and {"RMSNorm", "SwiGLU", "RotaryAttention"} <= set(checked.out.split())


def test_a_missing_file_is_named_with_its_copy(refused, mine, trained):
    mine.unlink()
    LOADED.clear()
    said = refused("translate", trained, SENTENCE)
    assert f"{mine}: " in said and f"cp {trained / 'model.py'} {mine}" in said


def test_no_code_inside_a_run_is_run(refused, mine, trained):
    config = trained / "config.toml"
    for place in (str(trained / "model.py"), "model.py"):
        config.write_text(config.read_text("utf-8").replace(str(mine), place), encoding="utf-8")
        LOADED.clear()
        for command in (["translate", trained, SENTENCE], ["train", "--resume", trained]):
            assert "no code of a run is run" in refused(*command) and not LOADED
        config.write_text(config.read_text("utf-8").replace(place, str(mine)), encoding="utf-8")


@pytest.mark.parametrize("command", [["explore"], ["export", "--to", "torch"]])
def test_what_knows_the_papers_layers_only_refuses_hers(refused, trained, command, tmp_path):
    file = [tmp_path / "x.safetensors"] if command[0] == "export" else []
    assert "my-rotary" in refused(command[0], trained, *command[1:], *file)


MODEL = (
    textwrap.dedent(
        PAGE[PAGE.index("    from scratchformer.nn import DecoderLayer") : PAGE.index("Give `seed` to NumPy")]
    )
    + """
from scratchformer.nn import LanguageModel

class Gpt(LanguageModel):
    pass

number = 3
"""
)


def test_a_model_of_her_own(cli, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    small = [word for name, value in {**SMALL, "steps": 2}.items() for word in ("--set", f"{name}={value}")]
    train = ["train", "tiny", *small, "--out", "run", "--model"]
    assert cli(*train, "model.py:Deeper").code == 0
    assert type(load_model("run").model).__name__ == "Deeper" and len(load_model("run").model.decoder.layers) == 2
    for wrong, complaint in {
        "model.py:Gpt": "needs a subclass of Transformer",
        "model.py:Other": "there is no class 'Other' in it",
        "model.py:number": "there is no class 'number' in it",
        "none.py": "cannot read: No such file",
        "model.txt": "must be a Python file",
    }.items():
        assert complaint in refused(*train[:-1], "--out", "other", "--model", wrong)
        assert not Path("other").exists()
    Path("broken.py").write_text("x = 1\nprint(y)\n")
    assert "broken.py, line 2: NameError" in refused(*train[:-3], "--out", "other", "--model", "broken.py")
    Path("broken.py").write_text("x = (\n")
    assert "SyntaxError" in refused(*train[:-3], "--out", "other", "--model", "broken.py")


@pytest.mark.parametrize("setting", ["norm", "feed_forward", "attention", "positions"])
def test_unknown_names_are_refused_before_training(refused, setting, tmp_path):
    said = refused("train", "tiny", "--set", f"{setting}=mine", "--out", tmp_path / "run")
    assert f"model.{setting}: no 'mine'" in said and "--model FILE" in said and not (tmp_path / "run").exists()


def test_register_refuses_other_kinds_and_our_names():
    with pytest.raises(ValueError, match="no kind 'mask' of layers"):
        sf.register("mask", "mine", object)
    with pytest.raises(ValueError, match="norm 'rms' is the library's own"):
        sf.register("norm", "rms", object)


def test_a_file_that_registers_no_layer_is_refused(refused, tmp_path):
    (tmp_path / "none.py").write_text("x = 1\n")
    said = refused("train", "tiny", "--model", tmp_path / "none.py", "--out", tmp_path / "run")
    assert (
        "none.py: registers no layers (sf.register); a model of yours is " in said and not (tmp_path / "run").exists()
    )
