"""`train` and `config` check and report the number of processes before any is started."""

import os
import shlex
import subprocess
import sys

import pytest

from scratchformer import config as configs
from scratchformer.cli import main
from scratchformer.experiments.sizes import step_summary
from scratchformer.training.run import RunDirectory
from scratchformer.training.trainer import Trainer


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--nproc", 0], "--nproc: 0 must lie between 1"),
        (["--nproc", 3], "3 processes, but training.accumulation=2: a step has fewer micro-batches than that"),
        (["--nproc", 2, "--timeout", -1], "--timeout: -1 must lie between 0"),
        (["--nproc", 2, "--timeout", "nan"], "--timeout: 'nan'"),
        (["--nproc", 2, "--set", "training.gradient_dtype=fp8"], "training.gradient_dtype must be one of bf16, not"),
        (["--nproc", 2, "--data", "/nowhere"], "/nowhere"),
    ],
)
def test_invalid_options_are_refused_in_one_line(arguments, complaint, refused, small_settings, tmp_path):
    assert complaint in refused("train", "--out", tmp_path / "run", *small_settings, *arguments)
    assert not (tmp_path / "run" / "config.toml").exists()


def test_a_missing_run_starts_no_process(refused, tmp_path, monkeypatch):
    monkeypatch.setattr("scratchformer.parallel.launcher.launch", None)
    assert "no run here" in refused("train", "--resume", tmp_path, "--nproc", 2)


@pytest.mark.parametrize("nproc, each", [(1, "8 each"), (4, "2 each"), (3, "2 or 3 each"), (8, "1 each")])
def test_config_prints_the_micro_batches_of_each_process(nproc, each, cli, refused):
    assert cli("config", "base", "--nproc", nproc).out.splitlines()[-1].endswith(each)
    lines = step_summary(configs.BASE, nproc)
    assert "32,768" in lines[0] and lines[1].split() == "micro-batches 8 of at most 4,096 positions".split()
    remedy = "--set training.accumulation=16 --set training.tokens_per_batch=2048\n"
    assert remedy in refused("config", "base", "--nproc", 16)


def test_a_run_belongs_to_one_process(own_run, refused, cli):
    run = RunDirectory(own_run.path)
    run.lock()
    RunDirectory(own_run.path).lock()  # the same process may lock it twice
    command = [sys.executable, "-m", "scratchformer", "train", "--resume", str(own_run.path), "--minutes", "1"]
    refusal = subprocess.run(command, capture_output=True, text=True)
    assert refusal.returncode == 2
    assert refusal.stderr == f"scratchformer: {own_run.path}: another process is training in this run\n"
    run.unlock()
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_a_text_that_can_be_read_only_once_is_refused(corpus, refused, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "2 processes cannot all read it" in refused(
        "train", "--train-source", tmp_path / "pipe", "--train-target", corpus / "train.de", "--nproc", 2
    )


@pytest.mark.parametrize("directory", ["", "/nowhere", "DIRECTORY"])
def test_a_stray_environment_variable_is_reported_and_does_no_harm(directory, refused, monkeypatch, tmp_path):
    precious = [tmp_path / "memory", tmp_path / "rank0.stderr"]
    for path in precious:
        path.write_text("mine")
    monkeypatch.setenv("SCRATCHFORMER_JOB", directory.replace("DIRECTORY", str(tmp_path)))
    assert "SCRATCHFORMER_JOB" in refused("train", "--out", tmp_path / "run", "--timeout", 0)
    assert all(path.exists() for path in precious)


@pytest.mark.parametrize("closed", ["2>&-", pytest.param("2>/dev/full", marks=pytest.mark.slow)])
def test_training_continues_when_stderr_is_closed_or_full(closed, small_settings, tmp_path):
    command = [sys.executable, "-m", "scratchformer", "train", "--out", tmp_path / "run", *small_settings, "--nproc", 2]
    done = subprocess.run(f"{shlex.join(map(str, command))} {closed}", shell=True, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, b"")
    assert len(RunDirectory(tmp_path / "run").read_log("step")) == 12


def test_ranks_import_this_program_whatever_is_in_the_working_directory(small_settings, tmp_path, monkeypatch):
    (tmp_path / "random.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "scratchformer").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main([str(word) for word in ("train", "--out", tmp_path / "run", *small_settings, "--nproc", 2)]) == 0


def test_a_trainer_refuses_more_ranks_than_micro_batches(begin, together):
    trainer = begin(accumulation=2)

    def work(ranks):
        with pytest.raises(configs.UserError, match="3 processes, but training.accumulation=2"):
            Trainer(trainer.run, trainer.config, trainer.data, trainer.tokenizer, ranks=ranks)

    together(3, work)


def test_unfinished_files_of_a_killed_process_are_removed(own_run):
    run = RunDirectory(own_run.path)
    kept = sorted(path for path in run.path.rglob("*"))
    for name in (".config.toml.partial", "checkpoints/.step_00000012.safetensors.partial"):
        (run.path / name).write_text("half")
    run.remove_unfinished()
    assert sorted(path for path in run.path.rglob("*")) == kept
