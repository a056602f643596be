"""N ranks do what one does with N micro-batches: the same bits as N threads, and as any other division to rounding."""

import time
from dataclasses import replace

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.errors import UserError
from scratchformer.nn.loss import states_loss
from scratchformer.nn.transformer import Transformer
from scratchformer.parallel import gradient
from scratchformer.parallel.communicator import Communicator
from scratchformer.tasks import start
from scratchformer.text.batches import batches_in_order
from scratchformer.training.loop import INTERRUPTED, ProgressLog, reason_to_stop
from scratchformer.training.run import RunDirectory
from scratchformer.training.saving import save
from scratchformer.training.trainer import Trainer
from scratchformer.training.validation import validate

VARIANTS = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "learned positions": {"positions": "learned", "max_positions": 40, "data.max_length": 40},
    "target tied": {"tied": "target"},
    "not tied": {"tied": "none"},
}


class Recorder(Communicator):
    """Keeps what it is asked to add up."""

    def __init__(self):
        self.sent = []

    def all_reduce_inplace(self, x):
        self.sent.append((x, x.copy()))


@pytest.mark.parametrize("bucket, n_sent", [(500, 6), (6000, 2)])
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_what_is_sent_during_backward_does_not_change_any_more(changes, bucket, n_sent, begin, monkeypatch):
    monkeypatch.setattr(gradient, "BUCKET_SIZE", bucket)
    trainer = begin(N=3, **changes)
    batch, recorder = trainer.plan.micro_batches(max(trainer.plan.epoch(0), key=len))[0], Recorder()
    model = Transformer(trainer.config.model)
    total = gradient.GradientSum(recorder, model.store.grad, model.layer_offsets())
    states, cache = model.states(*batch.inputs)
    backward = model.states_backward(states_loss(model.unembedding, states, batch.targets, 0.0, "others")[2], cache)
    for layer in backward:
        total.complete_from(model.store.offset_of(layer))
    assert len(recorder.sent) == n_sent  # layers; the embeddings come last
    total.finish()
    assert len(recorder.sent) == n_sent + 1
    assert all(view.any() and np.array_equal(view, copy) for view, copy in recorder.sent)
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
    monkeypatch.setattr(gradient, "BUCKET_SIZE", 500)
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
        assert np.array_equal(found_mean, results[0][1])  # between the ranks: every bit


def test_validation_does_not_depend_on_the_number_of_ranks(together, begin):
    alone = begin(threads=1, tokens_per_batch=30, accumulation=3)
    assert len(list(batches_in_order(alone.data.val, 30))) > 3

    def work(ranks):
        trainer = Trainer(alone.run, alone.config, alone.data, alone.tokenizer, ranks=ranks)
        return validate(trainer)["loss"], alone.goal.score(trainer)["bleu"]

    expected = validate(alone)["loss"], alone.goal.score(alone)["bleu"]
    assert together(3, work) == [expected] * 3


def test_bf16_on_the_wire_rounds_a_little_and_on_all_ranks_alike(together, begin):
    pytest.importorskip("ml_dtypes")
    alone = begin(threads=1)
    entries, _ = steps_of(alone)
    (found, mean), (other, other_mean) = together(2, as_rank_of(alone, threads=1, gradient_dtype="bf16"))
    assert found == other and np.array_equal(mean, other_mean)
    first, expected = found[0], entries[0]
    assert first != expected and first == pytest.approx(expected, rel=2**-8)


def test_a_rank_learns_from_the_first_one_where_the_run_stands(together, own_run):
    """Even if it began elsewhere, and sees no checkpoint."""
    config = configs.load(own_run.config_file)
    expected = start.resume(own_run, config)[0]

    def work(ranks):
        trainer, _ = start.resume(own_run if ranks.rank == 0 else RunDirectory(own_run.path / "nowhere"), config, ranks)
        return trainer

    for found in together(2, work):
        assert found.progress == expected.progress and found.optimizer.t == expected.optimizer.t == 12
        for mine, theirs in (
            (found.model.store.data, expected.model.store.data),
            (found.optimizer.m, expected.optimizer.m),
            (found.optimizer.v, expected.optimizer.v),
        ):
            assert np.array_equal(mine, theirs) and mine.any()


def test_a_rank_with_other_settings_another_text_or_other_weights_is_named(together, begin, small_config, tmp_path):
    alone = begin()

    def work(ranks):
        trainer = Trainer(alone.run, alone.config, alone.data, alone.tokenizer, ranks=ranks)
        trainer.model.store.data[5] += ranks.rank
        text = replace(alone.data, val=None) if ranks.rank else alone.data
        refusals = []
        for call in (
            lambda: start.begin(RunDirectory(tmp_path / "new"), small_config(seed=ranks.rank), ranks),
            lambda: save(trainer),
            lambda: Trainer(alone.run, alone.config, text, alone.tokenizer, ranks=ranks),
        ):
            with pytest.raises(UserError, match="the ranks do not agree: ") as refusal:
                call()
            refusals.append(str(refusal.value).split(": ")[1].split(" is ")[0])
        return refusals

    named = ["training.seed", "the weights' checksum after step 0", "the training text's checksum"]
    assert together(2, work) == [named] * 2
    assert not alone.run.checkpoints.steps() and not (tmp_path / "new").exists()


def test_one_that_wishes_to_stop_stops_all(together, begin):
    alone = begin()

    def work(ranks):
        trainer = Trainer(alone.run, alone.config, alone.data, alone.tokenizer, ranks=ranks)
        return [reason_to_stop(trainer, ranks.rank == 1 and asked, time.perf_counter()) for asked in (False, True)]

    assert together(2, work) == [["", INTERRUPTED]] * 2


def test_only_the_first_rank_writes(together, begin):
    alone = begin()

    def work(ranks):
        run = RunDirectory(alone.run.path if ranks.rank == 0 else alone.run.path / "nowhere")
        trainer = Trainer(run, alone.config, alone.data, alone.tokenizer, ranks=ranks)
        with ProgressLog(trainer) as log:
            log.validation(validate(trainer))
        save(trainer)
        return sorted(path.name for path in run.path.rglob("*.*"))

    first, second = together(2, work)
    assert second == [] and {"log.jsonl", "best.safetensors", "step_00000000.safetensors"} <= set(first)
