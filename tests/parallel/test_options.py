"""What `train` and `config` say about the number of processes, before any is started."""

import pytest

from scratchformer import config as configs
from scratchformer.study.sizes import step_summary
from scratchformer.training.loop import Trainer
from scratchformer.training.run import RunDirectory


@pytest.mark.parametrize("arguments, complaint", [
    (["--nproc", 0], "--nproc 0 must be at least 1"),
    (["--nproc", 3], "3 processes, but training.accumulation=2: a step has fewer micro-batches than that; a step of "
     "the same size with one for each would be --set training.accumulation=3 --set training.tokens_per_batch=53"),
    (["--nproc", 2, "--timeout", -1], "--timeout -1 must be at least 0"),
    (["--nproc", 2, "--timeout", "nan"], "--timeout nan must be at least 0"),
    (["--nproc", 2, "--set", "training.wire=fp8"], "training.wire must be one of bf16, not 'fp8'"),
    (["--nproc", 2, "--data", "/nowhere"], "/nowhere"),
])
def test_what_cannot_be_is_refused_in_one_line(arguments, complaint, refused, small_settings, tmp_path):
    assert complaint in refused("train", "--out", tmp_path / "run", *small_settings, *arguments)
    assert not (tmp_path / "run" / "config.toml").exists()


def test_a_run_that_is_not_there_starts_no_process(refused, tmp_path, monkeypatch):
    monkeypatch.setattr("scratchformer.parallel.launcher.launch", None)
    assert "no run here" in refused("train", "--resume", tmp_path, "--nproc", 2)


@pytest.mark.parametrize("nproc, each", [(1, "8 each"), (4, "2 each"), (3, "2 or 3 each"), (8, "1 each")])
def test_config_prints_who_computes_how_much(nproc, each, cli, refused):
    assert cli("config", "base", "--nproc", nproc).out.splitlines()[-1].endswith(each)
    lines = step_summary(configs.BASE, nproc)
    assert "32,768" in lines[0] and lines[1].split() == "micro-batches 8 of at most 4,096 positions".split()
    assert "16 processes" in refused("config", "base", "--nproc", 16)


def test_a_trainer_refuses_more_ranks_than_micro_batches(begin, together):
    trainer = begin(accumulation=2)

    def work(ranks):
        with pytest.raises(configs.UserError, match="3 processes, but training.accumulation=2"):
            Trainer(trainer.run, trainer.config, trainer.data, trainer.tokenizer, ranks=ranks)

    together(3, work)


def test_what_a_killed_process_had_begun_to_write_goes(own_run):
    run = RunDirectory(own_run.path)
    kept = sorted(path for path in run.path.rglob("*"))
    for name in (".config.toml.partial", "checkpoints/.step_00000012.safetensors.partial", "tokenizer.model.77.tmp",
                 ".probe"):
        (run.path / name).write_text("half")
    run.remove_unfinished()
    assert sorted(path for path in run.path.rglob("*")) == kept
