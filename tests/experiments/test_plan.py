"""The plan of a run: the arithmetic of the paper's models, the fit of a step's time, and real measurements."""

import json
from dataclasses import replace

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.backends.device import Device
from scratchformer.config import BASE, BIG, TABLE3, preset
from scratchformer.experiments import plan, sizes
from scratchformer.experiments.flops import training_flops
from scratchformer.experiments.paper import (
    GPUS,
    P100_TFLOPS,
    PAPER_TABLE3,
    PAPER_TRAINING,
    capacity_flops,
    paper_matrix_flops,
    paper_model,
)
from scratchformer.text.batches import BatchPlan
from scratchformer.training import data
from scratchformer.training.run import RunDirectory

# The paper ------------------------------------------------------------------------------------------------------------


def test_the_papers_table_3_has_every_row():
    assert PAPER_TABLE3.keys() == {"base", *TABLE3, "big"}


@pytest.mark.parametrize("name, capacity", [("base", 3.283e18), ("big", 2.298e19)])
def test_table_2_is_what_eight_gpus_could_compute(name, capacity):
    paper = PAPER_TRAINING[name]
    found = capacity_flops(paper.hours, GPUS, P100_TFLOPS)
    assert found == pytest.approx(capacity, rel=2e-4)
    assert found == pytest.approx(paper.flops, rel=0.01)
    assert paper.hours == pytest.approx(paper.steps * paper.step_seconds / 3600, rel=0.1)


@pytest.mark.parametrize(
    "config, a_step, all_steps, share", [(BASE, 9.5e12, 9.5e17, 0.29), (BIG, 3.2e13, 9.7e18, 0.42)]
)
def test_matrix_products_of_the_papers_models(config, a_step, all_steps, share):
    load = plan.assumed_load(config)
    assert (load.source_tokens, load.target_tokens) == pytest.approx((25_000, 25_000))
    flops = training_flops(config.model, load.pairs, load.source_length, load.target_length)
    name = paper_model(config)
    capacity = capacity_flops(PAPER_TRAINING[name].hours, GPUS, P100_TFLOPS)
    assert flops == pytest.approx(a_step, rel=0.01)
    assert flops * config.training.steps == pytest.approx(all_steps, rel=0.01)
    assert paper_matrix_flops(name) == pytest.approx(flops * config.training.steps)
    assert paper_matrix_flops(name) / capacity == pytest.approx(share, abs=0.005)


def test_the_papers_model_is_recognised_by_its_sizes():
    names = ("wmt14-en-fr-big", "D1", "C1", "tiny")
    assert [paper_model(preset(name)) for name in names] == ["big", "base", None, None]


# How much text a step has ---------------------------------------------------------------------------------------------


def test_counted_text_agrees_with_training(small_config):
    config = small_config()
    load = plan.counted_load(config, print)
    corpus = data.read_corpus(config.data)
    pairs = data.encode_corpus(corpus, data.train_tokenizer(corpus, config), config).train
    steps = BatchPlan(pairs, 80, 2, config.training.seed, config.training.bucket_fineness).epoch(0)
    assert load.steps_per_epoch == len(steps)
    assert load.source_tokens == pytest.approx(pairs.source.ids.size / len(steps))
    assert load.target_tokens == pytest.approx(pairs.target.ids.size / len(steps))
    assert 0 < load.padding_share < 0.5


def test_the_assumed_padding_fits_ordinary_lengths():
    """Log-normal lengths of mean 29 in the paper's batches: about 25,000 tokens a step, a tenth of it padding."""
    random = np.random.default_rng(0)
    both = random.normal(size=60_000)
    lengths = [
        np.exp(3.22 + 0.54 * (0.93 * both + 0.37 * random.normal(size=60_000))).round().clip(2, 150).astype(int)
        for _ in range(2)
    ]
    sides = [
        plan.Sequences(np.full(each.sum(), 5, np.int32), np.concatenate([[0], np.cumsum(each)])) for each in lengths
    ]
    batches = BatchPlan(plan.EncodedPairs(*sides, np.arange(60_000), 256, 0), 4096, 8, seed=0)
    steps = [batches.micro_batches(step) for step in batches.epoch(0)]
    whole = [step for step in steps if sum(batch.n_positions for batch in step) > 0.7 * 2 * 32768]
    tokens = [sum(batch.n_target_tokens for batch in step) for step in whole]
    real = sum(batch.n_source_tokens + batch.n_target_tokens for step in whole for batch in step)
    padding = 1 - real / sum(batch.n_positions for step in whole for batch in step)
    assert lengths[0].mean() == pytest.approx(plan.paper.ASSUMED_LENGTH, rel=0.02)
    assert np.mean(tokens) == pytest.approx(25_000, rel=0.08)
    assert padding == pytest.approx(plan.ASSUMED_PADDING, abs=0.03)


def test_prepared_text_is_counted_like_the_text_itself(small_config, prepared):
    assert plan.counted_load(small_config(**{"data.directory": str(prepared)}), print) == plan.counted_load(
        small_config(), print
    )


# How long a step takes ------------------------------------------------------------------------------------------------


class FakeMachine:
    """Its clock runs only during steps, each of which takes as long as `StepTime` says."""

    def __init__(self, once, each, per_pair, noise=0.0):
        self.once, self.each, self.per_pair, self.noise = once, each, per_pair, noise
        self.now, self.steps = 0.0, []
        self.random = np.random.default_rng(0)

    def clock(self):
        return self.now

    def step(self, n, pairs):
        self.steps.append((n, pairs))
        self.now += (self.once + n * (self.each + self.per_pair * pairs)) * (1 + self.noise * self.random.random())


@pytest.mark.parametrize("once, each, per_pair", [(0.2, 0.05, 0.01), (0.0, 0.0, 0.001), (3.0, 1.5, 0.4)])
def test_the_three_times_are_found(once, each, per_pair):
    machine = FakeMachine(once, each, per_pair)
    timed = plan.measure(machine.step, 120, 20, machine.clock)
    assert (timed.once, timed.each, timed.per_pair) == pytest.approx((once, each, per_pair), abs=1e-9)
    assert timed.seconds(8, 120) == pytest.approx(once + 8 * (each + 120 * per_pair))


def test_extrapolation_copes_with_noise():
    machine = FakeMachine(0.2, 0.05, 0.02, noise=0.05)
    timed = plan.measure(machine.step, 1000, 20, machine.clock)
    assert timed.large < 200
    assert timed.seconds(8, 1000) == pytest.approx(0.2 + 8 * (0.05 + 20), rel=0.1)


@pytest.mark.parametrize("per_pair, largest, seconds", [(0.001, 100, 20), (0.05, 1000, 20), (0.001, 7, 1)])
def test_measuring_keeps_to_the_allowed_time_and_sizes(per_pair, largest, seconds):
    machine = FakeMachine(0.01, 0.01, per_pair)
    timed = plan.measure(machine.step, largest, seconds, machine.clock)
    assert machine.now < 1.5 * seconds
    assert timed.rounds >= plan.MIN_ROUNDS and max(pairs for _, pairs in machine.steps) == timed.large <= largest


def test_a_slow_step_is_measured_three_times_nevertheless():
    machine = FakeMachine(1.0, 1.0, 1.0)
    timed = plan.measure(machine.step, 100, 0.001, machine.clock)
    assert (timed.rounds, timed.small, timed.large) == (3, 1, 4)


def test_noise_makes_no_part_of_the_time_negative():
    timed = plan.fit_step_time(1, 4, [(1.0, 0.9, 3.0)])
    assert (timed.once, timed.each, timed.per_pair) == pytest.approx((0, 7.9 / 6, 0))


@pytest.mark.parametrize(
    "seconds", [(1.0, 5.5, 1.9), (1.0, 5.0, 2.2), (2.0, 30.0, 2.1), (1.0, 0.5, 1.5), (1.0, 9.0, 0.5)]
)
def test_the_fit_is_the_best_without_negative_parts(seconds):
    """In the first three cases, time grows faster than the size of a micro-batch."""
    timed = plan.fit_step_time(1, 4, [seconds])
    found = timed.once, timed.each, timed.per_pair
    assert min(found) >= 0

    def error(once, each, per_pair):
        of_all = once + each + per_pair, once + each + 4 * per_pair, once + 2 * (each + per_pair)
        return sum((time - expected) ** 2 for time, expected in zip(of_all, seconds))

    around = [0, 0.01, 0.1, 1.0]
    for change in np.array(np.meshgrid(*[[-step for step in around] + around] * 3)).reshape(3, -1).T:
        assert error(*np.maximum(0, found + change)) >= error(*found) - 1e-9


def test_the_fit_follows_the_large_batches_if_time_grows_with_their_square():
    """No line meets all three measurements then; it comes nearest to the large one."""
    timed = plan.fit_step_time(8, 32, [tuple(0.1 + n * 0.01 * pairs**2 for n, pairs in ((1, 8), (1, 32), (2, 8)))])
    assert min(timed.once, timed.each, timed.per_pair) == 0
    assert timed.seconds(1, 32) == pytest.approx(0.1 + 0.01 * 32**2, rel=0.2)


def test_measured_steps_are_training_steps(small_config, monkeypatch):
    """They have the requested numbers of micro-batches and pairs, and each changes the weights as Adam does."""
    config = small_config(threads=2)
    load = plan.Load(10, 6.0, 7.0, 0.1, None, "", "", "")
    step, trainer = plan.training_step(config, Device(), load)
    seen, before = [], trainer.model.store.data.copy()
    whole = trainer.parallel.step_gradient

    def looked_at(batches, settings, number):
        seen.append([(batch.inputs[0].shape, batch.targets.shape) for batch in batches])
        return whole(batches, settings, number)

    monkeypatch.setattr(trainer.parallel, "step_gradient", looked_at)
    step(1, 3)
    step(2, 5)
    assert len(trainer.parallel.replicas) == 2
    assert seen == [[((3, 6), (3, 7))] * 2, [((5, 6), (5, 7))] * 4]
    assert trainer.progress.step == 2 and (trainer.model.store.data != before).mean() > 0.5
    assert not RunDirectory(trainer.run.path).path.exists()


# The plan -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def planned(cli):
    """planned("tiny", ...) -> the JSON of a plan, measured for as short a time as possible"""

    def call(*arguments):
        outcome = cli("plan", *arguments, "--seconds", 0.01, "--json")
        assert outcome.code == 0, outcome
        return json.loads(outcome.out)

    return call


def test_a_plan_of_text(planned, small_settings, small_config):
    found = planned("tiny", *small_settings)
    config = small_config()
    assert found["parameters"] == sizes.parameter_counts(config.model)
    assert found["n_parameters"] == sum(found["parameters"].values())
    assert found["steps"] == 12 and found["fits"] and found["basis"]["tokens"] == "counted"
    assert found["flops_of_the_run"] == 12 * found["flops"]
    timed, pairs = found["timed"], found["load"]["pairs"] / (1 - found["load"]["padding_share"]) / 2
    step = timed["once"] + found["turns"] * (timed["each"] + timed["per_pair"] * pairs)
    assert found["step_seconds"] == pytest.approx(step) and found["hours"] == pytest.approx(12 * step / 3600)
    assert found["checkpoints"] == (21 * 3 + 2) * 4 * found["n_parameters"]
    assert found["paper"] is None


def test_max_tokens_can_end_a_run_before_its_steps(planned, small_settings):
    found = planned("tiny", *small_settings, "--set", "max_tokens=500")
    assert found["steps"] == int(np.ceil(500 / found["load"]["target_tokens"])) < 12


def test_processes_share_micro_batches_and_cores(planned, small_settings):
    alone = planned("tiny", *small_settings, "--set", "accumulation=4", "--threads", 1)
    shared = planned("tiny", *small_settings, "--set", "accumulation=4", "--threads", 1, "--nproc", 2)
    assert (alone["turns"], shared["turns"]) == (4, 2)
    assert shared["processes"] == 2 and shared["memory_needed"] == 2 * alone["memory_needed"]
    assert shared["flops"] == alone["flops"]


def test_no_measured_micro_batch_is_larger_than_a_real_one(planned, small_settings, monkeypatch):
    """This holds for any number of processes."""
    monkeypatch.setattr(plan, "measure", lambda step, largest, seconds: plan.StepTime(0, 0, 1.0, 1, largest, 3))
    for n in (1, 2, 4):
        found = planned("tiny", *small_settings, "--set", "accumulation=4", "--threads", 1, "--nproc", n)
        pairs = found["load"]["pairs"] / (1 - found["load"]["padding_share"]) / 4
        assert found["timed"]["large"] == np.ceil(pairs)
        assert found["step_seconds"] == pytest.approx(4 / n * pairs)


def test_each_further_thread_needs_a_gradient_and_a_micro_batch(planned, small_settings):
    one, two = (planned("tiny", *small_settings, "--threads", n) for n in (1, 2))
    parts = one["memory"]
    assert (
        two["memory_needed"] - one["memory_needed"]
        == parts["activations of a micro-batch"] + parts["weights, gradients, moments"] / 4
    )


def test_what_takes_time_is_announced_on_standard_error(cli, small_settings, monkeypatch):
    """One line before each phase; standard output holds the result alone."""
    monkeypatch.setattr(plan, "measure", lambda step, largest, seconds: plan.StepTime(0, 0, 1.0, 1, largest, 3))
    of_text = cli("plan", "tiny", *small_settings, "--seconds", 7, "--json")
    tokenizing, building, measuring = of_text.err.splitlines()
    assert tokenizing.startswith("tokenizing the training text") and building == "building the model ..."
    assert measuring.startswith("measuring training steps for about 7 seconds") and json.loads(of_text.out)["fits"]
    assert cli("plan", "tiny", "--seconds", 7).err.splitlines() == [building, measuring]
    monkeypatch.setattr(plan, "machine_memory_bytes", lambda: 1000)
    assert cli("plan", "tiny").err == ""


def test_the_table_says_how_each_number_is_known(cli, small_settings):
    outcome = cli("plan", "tiny", *small_settings, "--seconds", 0.01, "--nproc", 2)
    lines = {line.split("  ")[0]: line for line in outcome.out.splitlines()}
    assert "2 processes" in outcome.out.splitlines()[0]
    assert "counted" in lines["source tokens of a step"] and "arithmetic" in lines["FLOPs of a step"]
    assert "measured" in lines["time of a step"] and "not measured with 2" in lines["time of a step"]
    assert plan.NOT_COUNTED in outcome.out


@pytest.mark.parametrize(
    "name, steps, hours", [("base", "100,000 steps", "12.00 hours"), ("big", "300,000 steps", "84.00 hours")]
)
def test_the_papers_hours_are_shown_and_a_model_too_large_is_not_built(cli, monkeypatch, name, steps, hours):
    monkeypatch.setattr(plan, "machine_memory_bytes", lambda: 2**29)
    monkeypatch.setattr(plan, "Trainer", None)  # building a model would fail
    outcome = cli("plan", name)
    assert outcome.code == 1
    assert "NOT ENOUGH" in outcome.out and "not measured: there is not enough memory" in outcome.out
    assert steps in outcome.out and hours in outcome.out and "assumed" in outcome.out
    assert json.loads(cli("plan", name, "--json").out)["step_seconds"] is None


def test_memory_on_a_gpu_by_precision():
    """With 25,000 tokens at once, base should need 15 GB in fp32 and 8 in bf16, big 27.5 and 16."""
    for config, expected in ((BASE, (15e9, 8e9)), (BIG, (27.5e9, 16e9))):
        at_once = configs.with_settings(config, {"tokens_per_batch": 25_000, "vocab_size": 37_120})
        for precision, size in zip(("fp32", "bf16"), expected):
            found = sizes.accelerator_bytes(at_once, precision, 25_000 * 37_120)
            assert sum(found.values()) == pytest.approx(size, rel=0.06), (precision, found)
            assert found["logits"] == 25_000 * 37_120 * sizes.STORED_BYTES[precision]
    n = sum(sizes.parameter_counts(BASE.model).values())
    assert sizes.accelerator_bytes(BASE, "bf16", 2**28)["weights, gradients, moments"] == 18 * n
    assert sizes.accelerator_bytes(BASE, "fp16", 2**28)["logits"] == 2 * 4096 * 37_000


@pytest.mark.parametrize(
    "seconds, said",
    [
        (0.01234, "0.0123 seconds"),
        (119, "119 seconds"),
        (150, "2.5 minutes"),
        (7200, "2.0 hours"),
        (3.5 * 86400, "3.5 days"),
        (2000 * 365 * 86400, "2,000.0 years"),
    ],
)
def test_durations_have_a_suitable_unit(seconds, said):
    assert sizes.format_duration(seconds) == said


# Bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["--seconds", 0], "--seconds: 0.0 must lie between 0.001"),
        (["--seconds", "nan"], "--seconds: nan"),
        (["--seconds", "inf"], "--seconds: inf"),
        (["--nproc", 0], "--nproc: 0 must lie between 1"),
        (["--nproc", 3], "3 processes, but training.accumulation=2"),
        (["--set", "P_dorp=1"], "did you mean 'P_drop'"),
        (["--data", "nowhere"], "which is not a directory"),
        (["--precision", "fp16"], "is for a GPU"),
    ],
)
def test_bad_input(refused, arguments, complaint):
    assert complaint in refused("plan", "tiny", *arguments)


def test_a_damaged_manifest(refused, prepared, tmp_path):
    manifest = (prepared / "manifest.json").read_text(encoding="utf-8")
    (tmp_path / "manifest.json").write_text(manifest[:200], encoding="utf-8")
    assert "manifest.json: damaged" in refused("plan", "tiny", "--data", tmp_path)


def test_the_plan_has_the_vocabulary_of_the_prepared_text(prepared, planned):
    small = replace(configs.TINY.model, vocab_size=60)
    assert planned("tiny", "--data", prepared)["n_parameters"] == sum(sizes.parameter_counts(small).values())
