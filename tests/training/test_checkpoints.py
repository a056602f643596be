"""A checkpoint is written whole or not at all, and a damaged one is never loaded."""

import os
import random
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from scratchformer.config import TINY
from scratchformer.errors import UserError
from scratchformer.training.checkpoints import Checkpoint, CheckpointDirectory, Progress, average, copy_into, load, save


def new_checkpoint(seed=0, **progress):
    rng = np.random.default_rng(seed)
    weights = {"a.weight": rng.standard_normal((3, 5), np.float32), "b": rng.standard_normal(7), "c": np.float32([[2]])}
    moments = {f"{kind}.{name}": array**2 for kind in "mv" for name, array in weights.items()}
    return Checkpoint(weights, moments, Progress(**progress), TINY)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "step_00000007.safetensors"


def test_what_is_saved_is_loaded_bit_for_bit(path, same):
    counts = {"step": 7, "epoch": 2, "index": 3, "target_tokens": 2**40, "data_checksum": 2**32 - 1}
    checkpoint = new_checkpoint(**counts, seconds=0.1, best_loss=1 / 3, unimproved=1)
    save(path, checkpoint)
    loaded = load(path)
    assert same(loaded.weights, checkpoint.weights) and same(loaded.moments, checkpoint.moments)
    assert (loaded.progress, loaded.config) == (checkpoint.progress, TINY)


@pytest.mark.parametrize("crash", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_crash_before_the_renaming_leaves_the_old_one(path, same, monkeypatch, crash):
    old, new = new_checkpoint(seed=0), new_checkpoint(seed=1)
    save(path, old)

    def replace_fails(*paths):
        raise crash

    monkeypatch.setattr(os, "replace", replace_fails)
    with pytest.raises((KeyboardInterrupt, UserError)):
        save(path, new)
    assert same(load(path).weights, old.weights)
    assert CheckpointDirectory(path.parent).steps() == [path]
    monkeypatch.undo()
    save(path, new)
    assert same(load(path).weights, new.weights)
    assert os.listdir(path.parent) == [path.name]


def test_damage_anywhere_never_changes_a_weight_and_never_crashes(path, same):
    checkpoint = new_checkpoint()
    save(path, checkpoint)
    whole, n_refused = path.read_bytes(), 0
    for place in random.Random(0).sample(range(8 * len(whole)), 200):
        flipped = bytearray(whole)
        flipped[place // 8] ^= 1 << place % 8
        for damaged in (bytes(flipped), whole[: place // 8]):
            path.write_bytes(damaged)
            try:
                assert same(load(path).weights, checkpoint.weights)
            except UserError as error:
                assert path.name in str(error)
                n_refused += 1
    assert n_refused > 250  # a bit of the header may mean nothing


@pytest.mark.parametrize("header", [None, {"format": "pt"}, {"format": "scratchformer checkpoint 99"}])
def test_a_safetensors_file_of_another_program(path, header):
    save_file({"model.weight": np.ones(3)}, path, header)
    with pytest.raises(UserError, match="not one that this program wrote"):
        load(path)


def test_what_does_not_fit_is_named(path):
    weights = new_checkpoint().weights
    with pytest.raises(UserError, match=r"missing d; not in the model a\.weight, b"):
        copy_into(weights, {"c": weights["c"], "d": weights["b"]}, path)
    with pytest.raises(UserError, match=r"b has shape \(7,\), the model's has \(8,\)"):
        copy_into(weights, weights | {"b": np.empty(8)}, path)


# The checkpoints of a run ---------------------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path):
    """The checkpoints of steps 5, 10, ..., 30; the weights of step n come from seed n."""
    directory = CheckpointDirectory(tmp_path)
    for step in range(5, 35, 5):
        save(directory.of_step(step), new_checkpoint(step, step=step))
    return directory


def steps_in(directory):
    return [load(path).progress.step for path in directory.steps()]


def test_the_last_are_kept_in_order_of_their_steps(directory):
    save(directory.best, new_checkpoint())
    save(directory.of_step(100_000_000), new_checkpoint(step=100_000_000))
    directory.keep_last(3)
    assert steps_in(directory) == [25, 30, 100_000_000]
    assert directory.best.exists()


def test_what_is_set_aside_is_not_deleted(directory):
    for number in ("", "2"):
        directory.set_aside_after(25)
        assert steps_in(directory)[-1] == 25
        assert (directory.directory / f"step_00000030.safetensors.unsound{number}").exists()
        save(directory.of_step(30), new_checkpoint(30, step=30))


def test_average_then_best_then_last_is_preferred(directory):
    for path, step, preferred in [
        (directory.of_step(30), 30, directory.of_step(30)),
        (directory.best, 0, directory.best),
        (directory.average, 30, directory.average),
        (directory.average, 25, directory.best),  # an old average
    ]:
        save(path, new_checkpoint(step=step))
        assert directory.preferred() == preferred


def test_the_average_is_the_mean(directory):
    paths = directory.steps()[-3:]
    mean = average(paths)
    for name, array in mean.weights.items():
        arrays = [load(path).weights[name] for path in paths]
        assert array.dtype == arrays[0].dtype
        eps = np.finfo(array.dtype).eps
        np.testing.assert_allclose(array, np.mean(np.float64(arrays), axis=0), rtol=eps, atol=eps)
    assert mean.progress.step == 30 and mean.moments == {}


def test_no_average_over_different_runs_or_models(directory):
    save(directory.of_step(25), new_checkpoint(25, step=25, data_checksum=1))
    with pytest.raises(UserError, match="step_00000025.safetensors: of another run than step_00000030.safetensors"):
        average(directory.steps()[-2:])
    other = new_checkpoint(step=20)
    save(directory.of_step(20), replace(other, weights={"other": other.weights["b"]}))
    with pytest.raises(UserError, match=r"step_00000020.*missing a\.weight, b, c; not in the model other"):
        average(directory.steps())
