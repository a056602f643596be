"""N ranks do what one does with N micro-batches: the same bits as N threads, and as any other division to rounding."""

import json
from dataclasses import replace

import numpy as np
import pytest

from scratchformer.cli import main
from scratchformer.nn.transformer import Transformer
from scratchformer.parallel import gradient
from scratchformer.parallel.communicator import Communicator
from scratchformer.text.batches import batches_in_order
from scratchformer.training import checkpoints
from scratchformer.training.loop import Trainer
from scratchformer.training.run import RunDirectory

VARIANTS = {"paper": {}, "pre-norm": {"norm": "pre"}, "learned positions": {"positions": "learned", "max_positions": 40,
            "data.max_length": 40}, "target tied": {"tied": "target"}, "not tied": {"tied": "none"}}


class Recorder(Communicator):
    """Keeps what it is asked to add up."""

    def __init__(self):
        self.sent = []

    def all_reduce_(self, x):
        self.sent.append((x, x.copy()))


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_what_is_sent_during_backward_does_not_change_any_more(changes, small_config, begin, monkeypatch):
    monkeypatch.setattr(gradient, "BUCKET", 500)
    trainer = begin(N=3, **changes)
    batch, recorder = trainer.plan.micro_batches(max(trainer.plan.epoch(0), key=len))[0], Recorder()
    model = Transformer(trainer.config.model)
    total = gradient.GradientSum(recorder, model.store.grad, model.layer_begins())
    model.loss_backward(batch.source_ids, batch.target_in_ids, batch.target_out_ids, filled=total.filled)
    assert len(recorder.sent) == 6                                                 # each layer, before embeddings
    total.finish()
    assert len(recorder.sent) == 7 and all(view.any() and np.array_equal(view, copy) for view, copy in recorder.sent)
    assert sum(view.size for view, _ in recorder.sent) == model.store.grad.size


def steps_of(trainer):
    """The log of five steps, of some with fewer micro-batches than there are ranks, and Adam's mean gradient then."""
    largest = max(trainer.plan.epoch(0), key=len)
    entries = [trainer.finish(trainer.step(0, 0, largest[:pairs])) for pairs in (len(largest), 1, 2, 5, len(largest))]
    return [(entry["loss"], entry["grad_norm"], entry["target_tokens"]) for entry in entries], trainer.optimizer.m


def as_rank_of(trainer, **changes):
    """work(ranks) -> the steps of a trainer like this one that is one of the ranks"""
    def work(ranks):
        config = replace(trainer.config, training=replace(trainer.config.training, **changes))
        return steps_of(Trainer(trainer.run, config, trainer.data, trainer.tokenizer, ranks=ranks))
    return work


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("accumulation", [4, 7])
def test_ranks_find_the_bits_that_threads_find(size, accumulation, together, begin, monkeypatch):
    monkeypatch.setattr(gradient, "BUCKET", 500)
    trainer = begin(accumulation=accumulation, N=2, P_drop=0.2, threads=size)
    entries, mean = steps_of(trainer)
    for found, found_mean in together(size, as_rank_of(trainer, threads=1)):
        assert found == entries and np.array_equal(found_mean, mean)


@pytest.mark.parametrize("size, threads", [(2, 1), (4, 1), (2, 2), (3, 2)])
def test_any_division_is_that_of_one_thread_to_rounding(size, threads, together, begin):
    trainer = begin(accumulation=6, P_drop=0.2, threads=1)
    entries, mean = steps_of(trainer)
    results = together(size, as_rank_of(trainer, threads=threads))
    for found, found_mean in results:
        np.testing.assert_allclose(found, entries, rtol=1e-5)
        np.testing.assert_allclose(found_mean, mean, rtol=0, atol=1e-5 * np.abs(mean).max())
        assert np.array_equal(found_mean, results[0][1])                           # between the ranks: every bit


def test_validation_does_not_depend_on_the_number_of_ranks(together, begin):
    alone = begin(threads=1, tokens_per_batch=30, accumulation=3)
    assert len(list(batches_in_order(alone.data.val, 30))) > 3

    def work(ranks):
        trainer = Trainer(alone.run, alone.config, alone.data, alone.tokenizer, ranks=ranks)
        return trainer.validate()["loss"], trainer.validation_bleu()["bleu"]

    expected = alone.validate()["loss"], alone.validation_bleu()["bleu"]
    assert together(3, work) == [expected] * 3


def test_bf16_on_the_wire_rounds_a_little_and_on_all_ranks_alike(together, begin):
    pytest.importorskip("ml_dtypes")
    alone = begin(threads=1)
    entries, _ = steps_of(alone)
    (found, mean), (other, other_mean) = together(2, as_rank_of(alone, threads=1, wire="bf16"))
    assert found == other and np.array_equal(mean, other_mean)
    first, expected = found[0], entries[0]
    assert first != expected and first == pytest.approx(expected, rel=2**-8)


# Whole runs -----------------------------------------------------------------------------------------------------------


def log_of(path):
    """What the log says, without times."""
    lines = [json.loads(line) for line in (path / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if "seconds" not in key} for line in lines]


def last_tensors(path):
    """Weights and moments."""
    last = checkpoints.load(RunDirectory(path).checkpoints.steps()[-1])
    return last.weights | last.moments


@pytest.fixture
def train(tmp_path, small_settings, capsys):
    """train("name", "--nproc", 2, ...) -> the run's directory"""
    def run(name, *more):
        assert main([str(word) for word in ("train", "tiny", "--out", tmp_path / name, *small_settings,
                                            "--set", "accumulation=4", *more)]) == 0
        return tmp_path / name
    return run


def resumed(path, *more):
    assert main([str(word) for word in ("train", "--resume", path, *more)]) == 0
    return path


def test_a_run_of_two_processes_is_a_run_of_two_threads(train):
    alone, two = train("alone", "--threads", 2), train("two", "--nproc", 2, "--threads", 1)
    assert log_of(two) == log_of(alone) and len(log_of(two)) == 15
    here, there = last_tensors(alone), last_tensors(two)
    assert here.keys() == there.keys() and all(np.array_equal(here[name], there[name]) for name in here)
    names = ["log.jsonl", "config.toml", "tokenizer.model"]
    assert sorted(path.name for path in two.iterdir()) == sorted(path.name for path in alone.iterdir())
    assert (alone / names[2]).read_bytes() == (two / names[2]).read_bytes()


def test_a_run_goes_on_with_more_processes_and_with_fewer(train):
    steps = "training.steps"
    expected = log_of(train("alone", "--threads", 4))
    run = train("moves", "--set", f"{steps}=4", "--nproc", 2, "--threads", 2)
    resumed(run, "--set", f"{steps}=8", "--nproc", 4, "--threads", 1)
    resumed(run, "--set", f"{steps}=12", "--threads", 4)
    entries = log_of(run)
    assert [entry["step"] for entry in entries] == [entry["step"] for entry in expected]
    assert [entry["loss"] for entry in entries] == pytest.approx([entry["loss"] for entry in expected], rel=1e-5)
