"""lessons/transformer.py and the library are one model: the same numbers from the same weights."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.decoding.search import search
from scratchformer.nn.dropout import DropoutKey, keep_scale
from scratchformer.nn.loss import loss_backward
from scratchformer.nn.ops import Ops
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer

FILE = Path(__file__).parents[2] / "lessons" / "transformer.py"
V, D, F, H, N = 11, 8, 12, 2, 2
CONFIG = ModelConfig(vocab_size=V, N=N, d_model=D, d_ff=F, h=H, P_drop=0.1, attention_bias=False)
SOURCE = np.array([[3, 4, 5, 6, 1], [7, 3, 1, 0, 0], [8, 1, 0, 0, 0]])
TARGET = np.array([[2, 9, 4, 9, 5, 3, 1], [2, 8, 1, 0, 0, 0, 0], [2, 3, 3, 10, 1, 0, 0]])


@pytest.fixture
def the_file():
    spec = importlib.util.spec_from_file_location("the_file", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def models(the_file):
    """The file's model, and the library's with the same weights."""
    ours, theirs = Transformer(CONFIG, dtype="float64"), the_file.new_model(V, D, F, H, N, dtype="float64")
    for name, w in theirs.weights.items():
        w.data[...] = w.data + 0.3 * np.random.default_rng(len(name)).normal(size=w.data.shape)
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


@pytest.mark.parametrize("rng", [None, DropoutKey(seed=1, step=2)])
def test_loss_and_gradients_are_those_of_the_library(the_file, models, rng):
    theirs, ours = models
    loss_sum, n = loss_backward(ours, SOURCE, TARGET[:, :-1], TARGET[:, 1:], 0.1, rng, "uniform")
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
            _, n = loss_backward(ours, SOURCE, TARGET[:, :-1], TARGET[:, 1:], 0.1, None, "uniform")
            ours.store.grad /= n
            adam.step(noam(step, D, 10))
            _, backward = the_file.loss_of(SOURCE, TARGET, theirs)
            backward(1.0)
            the_file.adam(theirs, step, warmup_steps=10)
    for (name, expected), found in zip(named(ours, "data"), arrays(theirs, "data"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("beam", [1, 4])
def test_translations_are_those_of_the_library(the_file, models, beam):
    theirs, ours = models
    random = np.random.default_rng(0)
    for _ in range(20):
        source = np.append(random.integers(3, V, (1, random.integers(1, 6))), [[1]], axis=1)
        [[best]] = search(ours, source, beam, alpha=0.6, extra_length=5)
        assert the_file.beam_search(source, theirs, beam, longer=5) == [i for i in best.ids if i != 1]


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


def square(x):
    dy = yield x * x
    return 2 * x * dy


def forgets_to_return(x):
    yield x * x


def yields_twice(x):
    dy = yield x * x
    yield 2 * x * dy


def test_a_function_with_two_halves_runs_backward_once(the_file):
    y, backward = the_file.differentiable(square)(3.0)
    assert (y, backward(2.0)) == (9, 12)
    wrong = [backward, *(the_file.differentiable(each)(3.0)[1] for each in (forgets_to_return, yields_twice))]
    for each in wrong:
        with pytest.raises(TypeError, match="must yield y, return dx, and run backward once"):
            each(2.0)
