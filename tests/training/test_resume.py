"""A run that was stopped in any way, and resumed, is the run that was not stopped, bit for bit."""

import importlib
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from scratchformer.errors import UserError
from scratchformer.nn import layers, registry
from scratchformer.nn.layers import FeedForward
from scratchformer.nn.ops import Ops
from scratchformer.tasks import start
from scratchformer.training import checkpoints, loop
from scratchformer.training import trainer as trainer_module
from scratchformer.training.model_code import code_of
from scratchformer.training.run import RunDirectory, load_run

LONG = {"steps": 90, "save_every": 7, "validate_every": 10, "accumulation": 3}


def finish(run, config):
    """Go on with a run to its end -> complaints about damaged checkpoints"""
    trainer, complaints = start.resume(run, config)
    loop.train(trainer)
    return complaints


# Resumed = uninterrupted ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_steps", [0, 1, 4, 11])
def test_a_resumed_run_is_an_uninterrupted_run(begin, trained, small_config, same_run, monkeypatch, n_steps):
    """It dies in the middle of a step, as if the process were killed: nothing more is written."""
    trainer = begin()
    step = trainer.step

    def dying_step(*place):
        if trainer.progress.step == n_steps:
            raise SystemError("killed")
        return step(*place)

    monkeypatch.setattr(trainer, "step", dying_step)
    with pytest.raises(SystemError):
        loop.train(trainer)
    before_any_checkpoint = ["there is no checkpoint, so it begins anew"] if n_steps == 1 else []
    assert finish(trainer.run, small_config()) == before_any_checkpoint
    same_run(trainer.run, trained)


def test_half_written_files_of_ours_are_removed_and_others_are_not(own_run, small_config):
    before = sorted(own_run.path.rglob("*"))
    for name in (".config.toml", "checkpoints/.step_00000015.safetensors", "checkpoints/.best.safetensors"):
        (own_run.path / f"{name}.partial").write_bytes(b"half")
    theirs = own_run.path / ".movie.partial"
    theirs.write_bytes(b"theirs")
    finish(own_run, small_config())
    assert sorted(own_run.path.rglob("*")) == sorted([*before, theirs])


# Damage ---------------------------------------------------------------------------------------------------------------


def truncate(newest):
    newest.write_bytes(newest.read_bytes()[:-10])


def flip(newest):
    newest.write_bytes(newest.read_bytes()[:-1] + b"\xff")


def rename(newest):
    newest.rename(newest.with_name("step_00000099.safetensors"))


@pytest.mark.parametrize("damage", [truncate, flip, rename])
def test_a_damaged_checkpoint_is_passed_over(own_run, trained, small_config, same_run, damage):
    damage(own_run.checkpoints.steps()[-1])
    newest = own_run.checkpoints.steps()[-1]
    (complaint,) = finish(own_run, small_config())
    assert newest.name in complaint
    same_run(own_run, trained)


@pytest.mark.parametrize(
    "are_gone, complaint",
    [
        (False, "no sound checkpoint to resume from: .*00000012.*00000003"),
        (True, "no checkpoint here, though the log has 12"),
    ],
)
def test_without_a_sound_checkpoint_nothing_is_begun_anew(own_run, small_config, files_of, are_gone, complaint):
    """They may lie on a disk that is not there now: what is left must not be replaced."""
    for path in own_run.checkpoints.steps():
        path.write_bytes(b"")
        if are_gone:
            path.unlink()
    before = files_of(own_run.path)
    with pytest.raises(UserError, match=complaint):
        finish(own_run, small_config(steps=20))
    assert files_of(own_run.path) == before


@pytest.mark.parametrize("tail", [b'{"event": "step", "st', b"\0" * 100, b'\xff{"ev'])
def test_a_log_damaged_by_a_crash_is_repaired(own_run, trained, small_config, same_run, tail):
    own_run.checkpoints.of_step(12).unlink()
    with open(own_run.log_file, "ab") as log:
        log.write(tail)
    finish(own_run, small_config())
    same_run(own_run, trained)
    assert len(own_run.log_file.read_text().splitlines()) == 15


def test_a_damaged_tokenizer_is_noticed(own_run, small_config):
    """Another tokenizer, with as many pieces."""
    serialized = own_run.tokenizer_file.read_bytes()
    own_run.tokenizer_file.write_bytes(serialized.replace(b"Hund", b"Hunt"))
    for use in (lambda: load_run(own_run.path), lambda: finish(own_run, small_config())):
        with pytest.raises(UserError, match="tokenizer.model: damaged, or not the tokenizer with which .* was trained"):
            use()


# Not the same run any more --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("then, now", [(2, 1), (1, 2)])
def test_a_run_keeps_its_number_of_threads(begin, small_config, same_run, monkeypatch, then, now):
    """On a machine with other cores. Else the last bits would differ."""
    monkeypatch.setattr(trainer_module, "share_of_cores", lambda ranks: then)
    whole, part = begin("whole"), begin("part", steps=6)
    for trainer in (whole, part):
        loop.train(trainer)
    monkeypatch.setattr(trainer_module, "share_of_cores", lambda ranks: now)
    assert finish(part.run, small_config()) == [
        f"uses {then} thread{'s' * (then > 1)}, as before, so that no bit differs; --threads sets another number"
    ]
    same_run(part.run, whole.run)
    trainer, (remark,) = start.resume(part.run, small_config(threads=now, steps=13))
    assert remark == f"{now} instead of {then} threads: the last bits may differ from those of an uninterrupted run"


@pytest.mark.parametrize(
    "changes, key", [({"d_model": 32}, "model.d_model is 32, was 16"), ({"seed": 1}, "training.seed")]
)
@pytest.mark.parametrize("has_checkpoints", [True, False])
def test_a_setting_that_matters_may_not_change(own_run, small_config, files_of, changes, key, has_checkpoints):
    if not has_checkpoints:
        own_run.checkpoints.keep_last(1)
        own_run.checkpoints.of_step(12).unlink()
    before = files_of(own_run.path)
    with pytest.raises(UserError, match=key):
        finish(own_run, small_config(**changes))
    assert files_of(own_run.path) == before


def test_changed_text_is_noticed(begin, small_config, corpus, tmp_path):
    directory = tmp_path / "data"
    directory.mkdir()
    for path in corpus.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    trainer = begin(directory=str(directory), steps=3)
    loop.train(trainer)
    text = (directory / "train.de").read_text(encoding="utf-8")
    (directory / "train.de").write_text(text.replace("Hund", "Vogel", 1), encoding="utf-8")
    with pytest.raises(
        UserError, match="is not the one this run began with: .*data/train.de changed since then; put back"
    ):
        finish(trainer.run, small_config(directory=str(directory)))


# Code ----------------------------------------------------------------------------------------------------------------


class SquaredRelu(FeedForward):
    def forward(self, x, rng=None):
        y, cache = super().forward(x, rng=rng)
        return y**2, cache


@pytest.mark.parametrize(
    "owner, name, value, named",
    [
        (FeedForward, "forward", SquaredRelu.forward, "of FeedForward; if that code computes something else"),
        (FeedForward, "exponent", 2, "of FeedForward; if"),
        (Ops, "gelu", lambda self, x: x, "of Ops; if"),
        (registry, "FeedForward", SquaredRelu, "of SquaredRelu; if"),
        (layers, "sinusoids", lambda *arguments: None, "of PositionalEncoding; if"),
    ],
)
def test_weights_trained_in_other_code_are_told(own_run, small_config, capsys, monkeypatch, owner, name, value, named):
    load_run(own_run.path)
    assert not finish(own_run, small_config()) and not capsys.readouterr().err
    monkeypatch.setattr(owner, name, value, raising=False)
    load_run(own_run.path)
    assert f"best.safetensors: trained with other code {named}" in capsys.readouterr().err
    (remark,) = start.resume(own_run, small_config())[1]
    assert f"step_00000012.safetensors: trained with other code {named}" in remark


LAYER = """
from scratchformer.nn.layers import Linear

SCALE = {scale}

def act(x):
    return x{power}

class Own(Linear):
    def f(self, x):
        {docstring}
        return (act(x) *
            SCALE)
"""


# Real processes -------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys, threading
from scratchformer import cli
from scratchformer.training.run import RunDirectory, load_run

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def log(run, event, values, lines=[], original=RunDirectory.log):
    original(run, event, values)
    lines.append(event)
    if len(lines) == {n_lines}:
        threading.Timer({seconds}, die).start()
    elif len(lines) == {n_lines} + 9:                   # the timer had no chance
        die()

RunDirectory.log = log
cli.main(sys.argv[1:])
"""
"""`scratchformer` that kills itself, so many seconds after so many lines of the log: the test might come too late."""


def test_constants_and_helpers_are_code_and_docstrings_and_layout_are_not(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for number, (scale, power, docstring) in enumerate(
        [(1, "", ""), (1, "", "'''f.'''  # f"), (2, "", ""), (1, "**2", "")]
    ):
        text = LAYER.format(scale=scale, power=power, docstring=docstring)
        (tmp_path / f"own_layer_{number}.py").write_text(text, encoding="utf-8")
        own = importlib.import_module(f"own_layer_{number}").Own(2, 2, np.random.default_rng(0), "float32")
        found.append(code_of(own)["Own"])
    assert found[0] == found[1] and len(set(found)) == 3


@pytest.fixture(scope="module")
def long_run(tmp_path_factory, small_config):
    run = RunDirectory(tmp_path_factory.mktemp("long") / "run")
    loop.train(start.begin(run, small_config(**LONG)))
    return run


@pytest.fixture
def train(small_settings, tmp_path):
    """train(*program) -> the command that trains a long run in tmp_path / "run" """
    settings = [*small_settings, *(word for key, value in LONG.items() for word in ("--set", f"{key}={value}"))]
    return lambda *program: [sys.executable, *program, "train", "--out", tmp_path / "run", *map(str, settings)]


@pytest.mark.parametrize("trial", [0, *(pytest.param(trial, marks=pytest.mark.slow) for trial in (1, 2))])
def test_after_kill_9_at_a_random_moment(tmp_path, long_run, train, small_config, same_run, trial):
    rng = random.Random(trial)
    run = RunDirectory(tmp_path / "run")
    program = KILLED.format(n_lines=rng.randint(1, 80), seconds=rng.random() * 0.005)
    killed = subprocess.run(train("-c", program), capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    finish(run, small_config(**LONG))
    same_run(run, long_run)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_polite_signal_saves_and_says_how_to_go_on(tmp_path, begin, train, small_config, number):
    """The run does not end by itself: the signal finds it training, however late it comes."""
    run = RunDirectory(tmp_path / "run")
    command = [*train("-m", "scratchformer"), "--set", "steps=100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            while process.poll() is None and not (run.log_file.exists() and len(run.read_log("step")) > 20):
                time.sleep(0.01)
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130 and out == "", err
    assert "interrupted; step " in err and f"resume with: scratchformer train --resume {run.path}" in err
    n_steps = len(run.read_log("step"))
    assert run.checkpoints.steps()[-1] == run.checkpoints.of_step(n_steps)
    longer = LONG | {"steps": n_steps + 3}
    finish(run, small_config(**longer))
    uninterrupted = begin("uninterrupted", **longer)
    loop.train(uninterrupted)
    last, expected = (checkpoints.load(one.checkpoints.of_step(n_steps + 3)) for one in (run, uninterrupted.run))
    assert all((last.weights[name] == array).all() for name, array in expected.weights.items())
    assert replace(last.progress, seconds=0) == replace(expected.progress, seconds=0)


def test_fewer_steps_than_a_run_has_are_refused(own_run, small_config):
    with pytest.raises(UserError, match="has done 12 steps; training.steps=5 must not be less"):
        start.resume(own_run, small_config(steps=5))
