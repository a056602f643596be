import importlib
import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from scratchformer.errors import UserError
from scratchformer.nn import layers, transformer
from scratchformer.nn.layers import FeedForward
from scratchformer.nn.ops import Ops
from scratchformer.tasks import start
from scratchformer.training import checkpoints, loop
from scratchformer.training import trainer as trainer_module
from scratchformer.training.model_code import code_of
from scratchformer.training.run import RunDirectory, checkpoint_file, load_run

LONG = {"steps": 90, "save_every": 7, "validate_every": 10, "accumulation": 3}


def finish(run, config):
    """Go on with a run to its end -> complaints about damaged checkpoints"""
    trainer, complaints = start.resume(run, config)
    loop.train(trainer)
    return complaints


def interrupt_after(trainer, n_steps, monkeypatch):
    """Die in the middle of a step, as if the process were killed: nothing more is written."""
    step = trainer.step

    def dying_step(*place):
        if trainer.progress.step == n_steps:
            raise SystemError("killed")
        return step(*place)

    monkeypatch.setattr(trainer, "step", dying_step)
    with pytest.raises(SystemError):
        loop.train(trainer)


# --- resumed = uninterrupted


@pytest.mark.parametrize("n_steps", [0, 1, 3, 4, 11])
def test_a_resumed_run_is_an_uninterrupted_run(begin, trained, small_config, same_run, monkeypatch, n_steps):
    trainer = begin()
    interrupt_after(trainer, n_steps, monkeypatch)
    before_any_checkpoint = ["there is no checkpoint, so it begins anew"] if n_steps == 1 else []
    assert finish(trainer.run, small_config()) == before_any_checkpoint
    same_run(trainer.run, trained)


def test_planned_stops_leave_no_trace(begin, trained, small_config, same_run):
    run = begin(steps=2).run
    for steps in (2, 5, 7, 12):
        finish(run, small_config(steps=steps))
    for extra in (2, 5, 7):
        run.checkpoints.of_step(extra).unlink()  # saved at the stops
    same_run(run, trained)


def test_a_finished_run_stays_as_it_is(own_run, small_config, files_of):
    checkpoints.save(own_run.checkpoints.average, checkpoints.average(own_run.checkpoints.steps()))
    before = files_of(own_run.path)
    finish(own_run, small_config())
    assert files_of(own_run.path) == before


def test_an_average_is_used_until_training_has_gone_on(own_run, small_config, capsys):
    checkpoints.save(own_run.checkpoints.average, checkpoints.average(own_run.checkpoints.steps()))
    assert checkpoint_file(own_run.checkpoints, None) == own_run.checkpoints.average
    assert capsys.readouterr().err == ""
    finish(own_run, small_config(steps=13))
    assert checkpoint_file(own_run.checkpoints, None) == own_run.checkpoints.best
    assert "average.safetensors: older than the last checkpoint; best.safetensors is used" in capsys.readouterr().err
    assert checkpoint_file(own_run.checkpoints, "average") == own_run.checkpoints.average


# --- what a killed process leaves


def test_half_written_files_of_ours_are_removed_and_others_are_not(own_run, small_config):
    before = sorted(own_run.path.rglob("*"))
    places = [".config.toml", ".tokenizer.model", ".log.jsonl", "checkpoints/.step_00000015.safetensors"]
    for name in [*(f"{place}.partial" for place in places), "checkpoints/.best.safetensors.partial"]:
        (own_run.path / name).write_bytes(b"half")
    theirs = [own_run.path / name for name in ("notes/.draft.partial", ".movie.partial", "checkpoints/.mine.partial")]
    theirs[0].parent.mkdir()
    for path in theirs:
        path.write_bytes(b"theirs")
    finish(own_run, small_config())
    assert sorted(own_run.path.rglob("*")) == sorted([*before, *theirs, theirs[0].parent])


@pytest.mark.parametrize("left", ["best", "average"])
def test_a_run_whose_checkpoints_are_gone_is_not_begun_anew(own_run, small_config, files_of, left):
    """Deleted to save space, or on a disk that is not there now: what is left must not be replaced."""
    own_run.checkpoints.best.rename(own_run.checkpoints.directory / f"{left}.safetensors")
    for path in own_run.checkpoints.steps():
        path.unlink()
    before = files_of(own_run.path)
    with pytest.raises(UserError, match="checkpoints: no checkpoint here, though the log has 12 steps"):
        finish(own_run, small_config(steps=20))
    assert files_of(own_run.path) == before
    own_run.log_file.unlink()
    with pytest.raises(UserError, match="training cannot go on from them"):
        finish(own_run, small_config(steps=20))


def test_a_checkpoint_under_another_name_is_passed_over(own_run, trained, small_config, same_run):
    newest = own_run.checkpoints.steps()[-1]
    newest.rename(own_run.checkpoints.of_step(99))
    (remark,) = finish(own_run, small_config())
    assert "step_00000099.safetensors: of step 12, although its name says another" in remark
    (own_run.checkpoints.directory / "step_00000099.safetensors.unsound").unlink()
    same_run(own_run, trained)


# --- damage


@pytest.mark.parametrize("damage", [lambda whole: whole[:-10], lambda whole: b"", lambda whole: whole[:-1] + b"\xff"])
def test_a_damaged_checkpoint_is_passed_over(own_run, trained, small_config, same_run, damage):
    newest = own_run.checkpoints.steps()[-1]
    newest.write_bytes(damage(newest.read_bytes()))
    (complaint,) = finish(own_run, small_config())
    assert newest.name in complaint
    same_run(own_run, trained)


def test_when_all_checkpoints_are_damaged_nothing_is_begun_anew(own_run, small_config, files_of):
    for path in own_run.checkpoints.steps():
        path.write_bytes(b"")
    before = files_of(own_run.path)
    with pytest.raises(UserError, match="no sound checkpoint to resume from: .*00000012.*00000003"):
        finish(own_run, small_config())
    assert files_of(own_run.path) == before


DAMAGE_TO_THE_LOG = [b'{"event": "step", "st', b"\0" * 100, b'\xff{"ev']


@pytest.mark.parametrize("tail", DAMAGE_TO_THE_LOG, ids=lambda tail: repr(tail[:20]))
def test_a_log_damaged_by_a_crash_is_repaired(own_run, trained, small_config, same_run, tail):
    own_run.checkpoints.of_step(12).unlink()
    with open(own_run.log_file, "ab") as log:
        log.write(tail)
    finish(own_run, small_config())
    same_run(own_run, trained)
    for line in own_run.log_file.read_text().splitlines():
        assert json.loads(line)["event"] in ("step", "validation")


def test_a_damaged_tokenizer_is_noticed(own_run, small_config):
    """Another tokenizer, with as many pieces, in which two words have changed places."""
    serialized = own_run.tokenizer_file.read_bytes()
    at = serialized.index("Hund".encode()) + 3
    own_run.tokenizer_file.write_bytes(serialized[:at] + b"t" + serialized[at + 1 :])
    for use in (lambda: load_run(own_run.path), lambda: finish(own_run, small_config())):
        with pytest.raises(UserError, match="tokenizer.model: damaged, or not the tokenizer with which .* was trained"):
            use()


# --- other cores


@pytest.mark.parametrize("then, now", [(2, 1), (1, 2), (2, 5)])
def test_a_run_keeps_its_number_of_threads(begin, small_config, same_run, monkeypatch, then, now):
    """Else the last bits would differ, as the test after this one shows."""
    monkeypatch.setattr(trainer_module, "share_of_cores", lambda ranks: then)
    whole = begin("whole")
    loop.train(whole)
    part = begin("part", steps=6)
    loop.train(part)
    monkeypatch.setattr(trainer_module, "share_of_cores", lambda ranks: now)
    assert finish(part.run, small_config()) == [
        f"uses {then} threads, as before, so that no bit differs; --threads sets another number"
    ]
    same_run(part.run, whole.run)


def test_other_threads_are_told_and_change_bits(begin, small_config, monkeypatch):
    monkeypatch.setattr(trainer_module, "share_of_cores", lambda ranks: 2)
    whole = begin("whole")
    loop.train(whole)
    part = begin("part", steps=6)
    loop.train(part)
    (remark,) = finish(part.run, small_config(threads=1))
    assert remark == "1 instead of 2 threads: the last bits may differ from those of an uninterrupted run"
    one, other = (checkpoints.load(run.checkpoints.of_step(12)).weights for run in (part.run, whole.run))
    assert any((one[name] != other[name]).any() for name in one)


# --- not the same run any more


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


def squared(self, x, rng=None):
    y, cache = feed_forward(self, x, rng=rng)
    return y**2, cache


feed_forward = FeedForward.forward


def powers(n):
    return lambda self, x, rng=None: (x**n, (x,))


class SquaredRelu(FeedForward):
    def forward(self, x, rng=None):
        y, cache = super().forward(x, rng=rng)
        return y**2, cache


@pytest.mark.parametrize(
    "owner, name, value, named",
    [
        (FeedForward, "forward", SquaredRelu.forward, "of FeedForward; if that code computes something else"),
        (FeedForward, "forward", squared, "of FeedForward; if"),
        (FeedForward, "forward", powers(2), "of FeedForward; if"),
        (FeedForward, "exponent", 2, "of FeedForward; if"),
        (Ops, "gelu", lambda self, x: x, "of Ops; if"),
        (transformer, "FeedForward", SquaredRelu, "of SquaredRelu; if"),
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


def test_comments_docstrings_and_layout_are_not_code(tmp_path, monkeypatch):
    versions = [
        "from scratchformer.nn.layers import Linear\nclass Own(Linear):\n    def f(self, x):\n        return x + 1\n",
        "from scratchformer.nn.layers import Linear\nclass Own(Linear):\n    def f(self, x):\n"
        "        'Adds 1.'\n\n        return (x +\n            1)  # one\n",
        "from scratchformer.nn.layers import Linear\nclass Own(Linear):\n    def f(self, x):\n        return x + 2\n",
    ]
    found = []
    for number, text in enumerate(versions):
        (tmp_path / f"own_layer_{number}.py").write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        own = importlib.import_module(f"own_layer_{number}")
        found.append(code_of(own.Own(2, 2, np.random.default_rng(0), "float32"))["Own"])
    assert found[0] == found[1] != found[2]


def test_constants_helpers_and_closures_are_code(tmp_path, monkeypatch):
    helper, own = "def act(x):\n    return x{}\n", "from scratchformer.nn.layers import Linear\nfrom {} import act\n"
    own += "SCALE = {}\nclass Own(Linear):\n    def f(self, x):\n        return act(x) * SCALE\n"
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for number, (power, scale) in enumerate([("", 1), ("", 1), ("**2", 1), ("", 2)]):
        (tmp_path / f"acts_{number}.py").write_text(helper.format(power), encoding="utf-8")
        (tmp_path / f"uses_acts_{number}.py").write_text(own.format(f"acts_{number}", scale), encoding="utf-8")
        layer = importlib.import_module(f"uses_acts_{number}").Own(2, 2, np.random.default_rng(0), "float32")
        found.append(code_of(layer)["Own"])
    assert found[0] == found[1] and len(set(found)) == 3
    codes = []
    for n in (2, 3):
        monkeypatch.setattr(FeedForward, "forward", powers(n))
        codes.append(code_of(FeedForward(2, 2, np.random.default_rng(0), "float32"))["FeedForward"])
    assert codes[0] != codes[1]


def test_changed_text_is_noticed(begin, small_config, corpus, tmp_path):
    directory = tmp_path / "data"
    directory.mkdir()
    for path in corpus.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    trainer = begin(directory=str(directory), steps=3)
    loop.train(trainer)
    text = (directory / "train.de").read_text(encoding="utf-8")
    (directory / "train.de").write_text(text.replace("Hund", "Vogel", 1), encoding="utf-8")
    with pytest.raises(UserError, match="the training text is not the one this run began with"):
        finish(trainer.run, small_config(directory=str(directory)))


# --- real processes


KILLED = """
import os, signal, sys, threading
from scratchformer import cli
from scratchformer.training.run import RunDirectory, checkpoint_file, load_run

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


def train_command(program, out, settings):
    return [sys.executable, *program, "train", "--out", out, *map(str, settings)]


def wait_for_steps(process, run, n_lines):
    """Return once the log has so many lines."""
    while process.poll() is None and (not run.log_file.exists() or run.log_file.read_bytes().count(b"\n") < n_lines):
        time.sleep(0.01)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory, small_config):
    run = RunDirectory(tmp_path_factory.mktemp("long") / "run")
    loop.train(start.begin(run, small_config(**LONG)))
    return run


@pytest.fixture
def long_settings(small_settings):
    return [*small_settings, *(word for key, value in LONG.items() for word in ("--set", f"{key}={value}"))]


@pytest.mark.parametrize("trial", [0, *(pytest.param(trial, marks=pytest.mark.slow) for trial in (1, 2))])
def test_after_kill_9_at_a_random_moment(tmp_path, long_run, long_settings, small_config, same_run, trial):
    rng = random.Random(trial)
    run = RunDirectory(tmp_path / "run")
    program = KILLED.format(n_lines=rng.randint(1, 80), seconds=rng.random() * 0.005)
    killed = subprocess.run(train_command(["-c", program], run.path, long_settings), capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    finish(run, small_config(**LONG))
    same_run(run, long_run)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_polite_signal_saves_and_says_how_to_go_on(tmp_path, begin, long_settings, small_config, number):
    """The run does not end by itself: the signal finds it training, however late it comes."""
    run = RunDirectory(tmp_path / "run")
    command = train_command(["-m", "scratchformer"], run.path, [*long_settings, "--set", "steps=100000"])
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for_steps(process, run, 20)
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
