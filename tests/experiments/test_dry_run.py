"""`train --dry-run`: a few steps, and what the whole run would cost."""

import pytest

from scratchformer.backends.device import Device
from scratchformer.experiments.dry_run import dry_run
from scratchformer.nn.sizes import parameter_counts


def columns(lines):
    return {line[:32].strip(): line[32:].split() for line in lines}


def test_the_numbers_are_those_of_the_run(small_config, begin):
    config = small_config(steps=100, threads=1)
    found, trainer = columns(dry_run(config)), begin(threads=1)
    n_steps = len(trainer.plan.epoch(0))
    assert found["parameters"] == [f"{sum(parameter_counts(config.model).values()):,}"]
    rate = float(found["target tokens a second"][0].replace(",", ""))
    tokens = trainer.data.train.n_targets / n_steps
    assert float(found["time of a mean step"][0]) == pytest.approx(tokens / rate, rel=0.02)
    assert found["time of the run"][2:4] == ["100", "steps,"]
    assert float(found["FLOPs of a step"][0]) > 6 * tokens * 1000
    limited = columns(dry_run(small_config(steps=100, max_tokens=round(5 * tokens), threads=1)))
    assert limited["time of the run"][2:4] == ["5", "steps,"]


@pytest.mark.parametrize("preset", ["parsing-tiny", "gpt-tiny", "bert-tiny", "antecedent", "vit-digits"])
def test_every_task_has_a_cost_and_nothing_is_written(cli, preset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = {"N": 1, "d_model": 16, "d_ff": 16, "h": 2, "tokens_per_batch": 256}
    settings = [word for key, value in small.items() for word in ("--set", f"{key}={value}")]
    code, printed, said = cli("train", preset, "--dry-run", *settings)
    assert (code, said) == (0, "") and len(printed.splitlines()) == 8
    assert list(tmp_path.iterdir()) == []


def test_the_memory_of_a_gpu_is_what_it_lost(small_config, monkeypatch):
    free = iter([5 * 2**30, 4 * 2**30, 3 * 2**30])
    monkeypatch.setattr(Device, "memory_bytes", lambda self: next(free))
    found = columns(dry_run(small_config(threads=1)))
    assert found["memory there is"] == ["5,120", "MiB"]
    assert found["activations of the largest step"][:2] == ["1,024", "MiB"]


@pytest.mark.parametrize("options", [["--resume"], ["tiny", "--nproc", 2]])
def test_one_new_run_is_measured(refused, own_run, options):
    where = [own_run.path] if options == ["--resume"] else []
    assert "--dry-run measures a new run in one process" in refused("train", "--dry-run", *options, *where)
