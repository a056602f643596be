"""lessons/transformer.py and the library are one model: the same numbers from the same weights."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.decoding.search import search
from scratchformer.nn.dropout import DropoutKey, keep_scale
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.ops import Ops
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer

FILE = Path(__file__).parents[2] / "lessons" / "transformer.py"
V, D, F, H, N = 11, 8, 12, 2, 2
CONFIG = ModelConfig(vocab_size=V, N=N, d_model=D, d_ff=F, h=H, P_drop=0.1, attention_bias=False)
SOURCE = np.array([[3, 4, 5, 6, 1], [7, 3, 1, 0, 0], [8, 1, 0, 0, 0]])
TARGET = np.array([[2, 9, 4, 9, 5, 3, 1], [2, 8, 1, 0, 0, 0, 0], [2, 3, 3, 10, 1, 0, 0]])


def load(*changes):
    """The file as a module, with each change (old, new) made to its text."""
    text = FILE.read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    module = ModuleType("the_file")
    module.__file__ = str(FILE)
    exec(compile(text, FILE, "exec"), module.__dict__)
    return module


@pytest.fixture
def the_file():
    return load()


@pytest.fixture
def models(the_file):
    return pair_of(the_file)


def pair_of(the_file):
    """The file's model, and the library's with the same weights."""
    the_file.rng = np.random.default_rng(0)
    ours, theirs = Transformer(CONFIG, dtype="float64"), the_file.new_model(V, D, F, H, N, dtype="float64")
    noise = np.random.default_rng(1)
    for w in theirs.weights.values():
        w.data[...] = w.data + 0.8 * noise.normal(size=w.data.shape)
    for (_, view), array in zip(named(ours, "data"), arrays(theirs, "data"), strict=True):
        view[...] = array
    return theirs, ours


def arrays(model, which):
    """The file's weights or gradients in the order and shapes of the library's parameters."""
    of = {name: getattr(w, which) for name, w in model.weights.items()}
    yield of["E"]
    for stack, blocks in (("encoder", ["attention", "ffn"]), ("decoder", ["attention", "cross", "ffn"])):
        for i in range(N):
            for block in blocks:
                place = f"{stack}.{i}.{block}."
                if block == "ffn":
                    yield from (of[place + name] for name in ("W_1", "b_1", "W_2", "b_2"))
                else:
                    q, k, v = (of[place + name].reshape(D, -1) for name in ("W_Q", "W_K", "W_V"))
                    yield from ([np.hstack([q, k, v])] if block == "attention" else [q, np.hstack([k, v])])
                    yield of[place + "W_O"].reshape(-1, D)
                yield from (of[place + name] for name in ("gamma", "beta"))


def named(model, which):
    return [(name, getattr(parameter, which)) for name, parameter in model.parameters().items()]


def masks_of(model, rng):
    """The factors by which the library's dropout multiplies, in the order in which it draws them."""
    drawn, dropout = [], Ops.dropout

    def remember(self, x, P_drop, key):
        y, kept = dropout(self, x, P_drop, key)
        if kept is not None:
            drawn.append(kept * keep_scale(P_drop))
        return y, kept

    with patch.object(Ops, "dropout", remember):
        model.forward(SOURCE, TARGET[:, :-1], rng=rng)
    return drawn


def test_logits_are_those_of_the_library(the_file, models):
    theirs, ours = models
    expected, _ = ours.forward(SOURCE, TARGET[:, :-1])
    memory, _ = the_file.encode(SOURCE, theirs, 0.0)
    x, _ = the_file.decode(TARGET[:, :-1], memory, SOURCE, theirs, 0.0)
    logits, _ = the_file.linear("btd,vd->btv", x, theirs.E)
    is_word = TARGET[:, :-1] != the_file.PAD
    np.testing.assert_allclose(logits[is_word], expected[is_word], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rng", [None, DropoutKey(seed=1, step=2)])
def test_loss_and_gradients_are_those_of_the_library(the_file, models, rng):
    theirs, ours = models
    loss_sum, n = batch_loss_backward(ours, (SOURCE, TARGET[:, :-1]), TARGET[:, 1:], 0.1, rng, "uniform")
    masks = iter(masks_of(ours, rng))
    with patch.object(the_file, "dropout", lambda x, P_drop: next(masks) if rng else 1.0):
        loss, backward = the_file.loss_of(SOURCE, TARGET, theirs, 0.1)
        backward(1.0)
    assert loss == pytest.approx(loss_sum / n, rel=1e-12) and next(masks, None) is None
    for (name, expected), found in zip(named(ours, "grad"), arrays(theirs, "grad"), strict=True):
        np.testing.assert_allclose(found, expected / n, rtol=0, atol=1e-12 * abs(expected / n).max(), err_msg=name)


def test_twenty_steps_of_adam_are_those_of_the_library(the_file, models):
    theirs, ours = models
    adam = Adam(ours)
    with patch.object(the_file, "dropout", lambda x, P_drop: 1.0):
        for step in range(1, 21):
            ours.zero_grad()
            _, n = batch_loss_backward(ours, (SOURCE, TARGET[:, :-1]), TARGET[:, 1:], 0.1, None, "uniform")
            ours.store.grad /= n
            adam.step(noam(step, D, 10))
            _, backward = the_file.loss_of(SOURCE, TARGET, theirs)
            backward(1.0)
            the_file.adam(theirs, step, warmup_steps=10)
    for (name, expected), found in zip(named(ours, "data"), arrays(theirs, "data"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("beam, alpha", [(2, 0.6), (4, 2.0)])
def test_translations_are_those_of_the_library(the_file, models, beam, alpha):
    theirs, ours = models
    random = np.random.default_rng(0)
    for _ in range(40):
        source = np.append(random.integers(3, V, (1, random.integers(1, 6))), [[1]], axis=1)
        [[best]] = search(ours, source, beam, alpha, extra_length=5)
        assert the_file.beam_search(source, theirs, beam, alpha, longer=5) == [i for i in best.ids if i != 1]


MUTANTS = {
    "scale-forgotten": ("scale = 1 / Q.shape[-1] ** 0.5", "scale = 1.0"),
    "scale-forgotten-backward": ("dheads, V)) * scale", "dheads, V))"),
    "future-visible": ("np.tri(target.shape[1], dtype=bool)", "np.tri(target.shape[1], k=1, dtype=bool)"),
    "padding-visible-to-the-decoder": (
        "multi_head_attention, x, memory, mask, **cross",
        "multi_head_attention, x, memory, mask | True, **cross",
    ),
    "softmax-without-its-sum": ("return p * (dp - total(p * dp))", "return p * dp"),
    "norm-without-the-mean": ("(dn - mean(dn) - n", "(dn - n"),
    "residual-dropped-backward": ("return dsum + dx,", "return dx,"),
    "memory-of-the-last-layer-only": (
        "dmemory = sum(self_backward(dx)), dmemory + dshare",
        "dmemory = sum(self_backward(dx)), dshare",
    ),
    "embeddings-overwritten": (
        "np.add.at(E.grad, ids, keep * dy * d_model**0.5)",
        "E.grad[ids] += keep * dy * d_model**0.5",
    ),
    "positions-exchanged": ("[np.sin(angle), np.cos(angle)]", "[np.cos(angle), np.sin(angle)]"),
    "smoothing-adds-up-to-more-than-one": ("q[n, words] += 1 - eps_ls", "q[n, words] = 1"),
    "adam-without-bias-correction": ("size = lrate * (1 - beta_2**step) ** 0.5 / (1 - beta_1**step)", "size = lrate"),
    "beam-continues-the-wrong-sentence": ("[*so_far[i // V], i % V]", "[*so_far[0], i % V]"),
}
CAUGHT_BY_CHECK = {
    "scale-forgotten-backward",
    "softmax-without-its-sum",
    "norm-without-the-mean",
    "residual-dropped-backward",
    "memory-of-the-last-layer-only",
    "embeddings-overwritten",
    "smoothing-adds-up-to-more-than-one",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name, capsys):
    mutant = load(MUTANTS[name])
    comparisons = [
        lambda: test_loss_and_gradients_are_those_of_the_library(mutant, pair_of(mutant), None),
        lambda: test_twenty_steps_of_adam_are_those_of_the_library(mutant, pair_of(mutant)),
        lambda: test_translations_are_those_of_the_library(mutant, pair_of(mutant), 4, 2.0),
    ]
    assert any(fails(comparison) for comparison in comparisons)
    assert fails(mutant.check) == (name in CAUGHT_BY_CHECK)


def fails(comparison):
    try:
        comparison()
    except AssertionError:
        return True
    return False


@pytest.mark.gpu
def test_it_runs_on_a_gpu_with_one_import_changed(cupy):
    """Random numbers are drawn on the host, because the emulated GPU has no cuRAND."""
    numpys, cupys = load(), load(("import numpy as np", "import cupy as np"))
    cupys.rng = OnHost()
    models = [each.new_model(V, D, F, H, N) for each in (numpys, cupys)]
    for name, w in models[1].weights.items():
        w.data[...] = cupy.asarray(models[0].weights[name].data)
    for step in (1, 2):
        losses = []
        for each, model, as_array in zip((numpys, cupys), models, (np.asarray, cupy.asarray)):
            loss, backward = each.loss_of(as_array(SOURCE), as_array(TARGET), model)
            backward(1.0)
            losses.append(float(loss))
        assert losses[1] == pytest.approx(losses[0], rel=1e-5)
        for name, w in models[0].weights.items():
            found = models[1].weights[name].grad.get()
            np.testing.assert_allclose(found, w.grad, rtol=0, atol=1e-5 * abs(w.grad).max() + 1e-7, err_msg=name)
        numpys.adam(models[0], step)
        cupys.adam(models[1], step)


class OnHost:
    """NumPy's generator, which returns CuPy arrays."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __getattr__(self, name):
        import cupy

        return lambda shape: cupy.asarray(getattr(self.rng, name)(shape))


# Its commands ---------------------------------------------------------------------------------------------------------


def run(folder, *arguments):
    return subprocess.run([sys.executable, FILE, *arguments], cwd=folder, capture_output=True, text=True)


@pytest.mark.slow
def test_its_own_check_finds_no_wrong_gradient(tmp_path):
    ended = run(tmp_path, "check")
    assert ended.returncode == 0 and float(ended.stdout.split()[-1]) < 1e-6


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["translate", "The dog."], "transformer.npz is missing: `train` writes weights, a clone has the corpus\n"),
        ([], "compare every gradient with finite differences"),
        (["check", "now"], "compare every gradient with finite differences"),
    ],
)
def test_a_wrong_command_is_told(tmp_path, arguments, complaint):
    ended = run(tmp_path, *arguments)
    assert ended.returncode == 1 and complaint in ended.stderr and "Traceback" not in ended.stderr


def test_it_trains_translates_and_tells_unknown_words(the_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(the_file, "WEIGHTS", tmp_path / "transformer.npz")
    the_file.train(steps=2, size=8)
    *losses, first, second, third = capsys.readouterr().out.splitlines()
    assert len(losses) == 2 and all(re.fullmatch(r".+ -> .*", line) for line in (first, second, third))
    the_file.translate(first.split(" -> ")[0])
    assert capsys.readouterr().out == first + "\n"
    with pytest.raises(SystemExit, match="^unknown word 'zebra': the model knows those of .*train.en$"):
        the_file.translate("The zebra slept.")


def test_a_missing_corpus_is_told(tmp_path):
    (tmp_path / "lessons").mkdir()
    (tmp_path / "lessons" / FILE.name).write_text(FILE.read_text(encoding="utf-8"), encoding="utf-8")
    command = [sys.executable, tmp_path / "lessons" / FILE.name, "train"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert re.fullmatch(r".*train\.en is missing: `train` writes weights, a clone has the corpus\n", ended.stderr)


def test_the_function_of_its_docstring_has_two_halves(the_file):
    code = "".join(re.findall(r"^    (    .*\n|def square.*\n)", the_file.__doc__, re.MULTILINE))
    exec(code, vars(the_file))
    y, backward = the_file.differentiable(the_file.square)(3.0)
    assert (y, backward(2.0)) == (9, 12)
