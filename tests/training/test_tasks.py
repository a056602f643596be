"""Every task is declared everywhere, and its runs can be resumed, shared by ranks, and evaluated."""

import json
import shutil

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from scratchformer import config as configs
from scratchformer.config import MODEL_OF_TASK, PRESETS
from scratchformer.doctor import diagnosis
from scratchformer.errors import UserError
from scratchformer.tasks import start
from scratchformer.tasks.task import TASKS, task_named
from scratchformer.text.batches import steps
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory, load_model

NEW = ["parsing-tiny", "gpt-tiny", "bert-tiny", "antecedent", "vit-digits"]
"""A preset of each task but translation, which has tests of its own."""


def test_a_task_has_a_model_a_score_and_a_preset():
    assert set(TASKS) == set(MODEL_OF_TASK) == {config.data.task for config in PRESETS.values()}
    assert set(TASKS) == {"translation", *(PRESETS[preset].data.task for preset in NEW)}


@pytest.mark.parametrize("preset", NEW)
def test_a_run_stopped_and_resumed_is_an_uninterrupted_run(task_config, task_run, tmp_path, same_run, preset):
    run = RunDirectory(tmp_path / "run")
    loop.train(start.begin(run, task_config(preset, steps=8)))
    loop.train(start.resume(run, configs.with_settings(configs.load(run.config_file), {"steps": 12}))[0])
    same_run(run, task_run(preset))


@pytest.mark.parametrize("preset", [*NEW[:3], pytest.param(NEW[3], marks=pytest.mark.slow), NEW[4]])
def test_two_ranks_find_the_bits_of_two_threads(task_config, task_run, together, tmp_path, preset):
    """And the same score, of which each rank finds a part."""

    def work(ranks):
        trainer = start.begin(RunDirectory(tmp_path / "run"), task_config(preset, threads=1), ranks)
        for place, _ in zip(steps(trainer.plan), range(12)):
            trainer.finish(trainer.step(*place))
        return trainer.model.store.data, trainer.goal.score(trainer)

    run, name = task_run(preset), task_named(PRESETS[preset].data.task).score_name.lower()
    weights, expected = load_model(run.path, "last").model.store.data, run.read_log(name)[-1]
    with threadpool_limits(1, "blas"):
        found = together(2, work)
    for data, score in found:
        assert np.array_equal(data, weights) and score == {key: expected[key] for key in score}


@pytest.mark.parametrize("preset", NEW)
def test_the_average_of_a_run_is_evaluated_and_the_doctor_examines_it(cli, task_run, tmp_path, preset, monkeypatch):
    run = RunDirectory(shutil.copytree(task_run(preset).path, tmp_path / "run"))  # others begin with this run's weights
    assert cli("average", run.path).code == 0
    evaluated = cli("evaluate", run.path)
    assert evaluated.code == 0 and evaluated.out.endswith(f"{run.path}: average.safetensors, step 12\n")
    monkeypatch.setattr(diagnosis, "probe_code", lambda config: iter(()))  # tests/doctor runs them
    printed = cli("doctor", run.path, "--json").out
    verdicts = {record["probe"]: record["verdict"] for record in map(json.loads, printed.splitlines())}
    assert verdicts["weights"] == "ok" and verdicts["log of the run"] == "skipped"  # 12 steps
    activation = PRESETS[preset].model.feed_forward
    assert verdicts["hidden units after training"] == ("ok" if activation == "relu" else "skipped")
    assert "remaining probes" not in verdicts


@pytest.mark.parametrize(
    "preset, pretrained, changes, complaint",
    [
        ("bert-tiny", "gpt-tiny", {}, "a run for language-model; one for masked-language-model cannot begin with it"),
        ("bert-tiny", "bert-tiny", {"h": 4}, "model.h=2, but here 4: its weights would mean nothing"),
        ("bert-tiny", "bert-tiny", {"d_model": 32, "d_ff": 48}, "no weight of it fits this model"),
        ("parsing-tiny", "parsing-tiny", {"n_tags": 0}, "model.n_tags=24, but here 0: its weights would mean nothing"),
        ("bert-tiny", None, {}, "missing: no run here (config.toml is missing)"),
    ],
)
def test_pretrained_weights_must_fit(task_config, task_run, tmp_path, preset, pretrained, changes, complaint):
    path = task_run(pretrained).path if pretrained else tmp_path / "missing"
    with pytest.raises(UserError) as refusal:
        start.begin(RunDirectory(tmp_path / "run"), task_config(preset, **{"training.pretrained": str(path)} | changes))
    assert complaint in str(refusal.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("preset", ["gpt-tiny", "bert-tiny"])
def test_text_that_has_changed_is_not_scored(task_run, texts, refused, preset):
    run, before = task_run(preset), texts[0].read_text()
    texts[0].write_text("One more line.\n" + before)
    try:
        assert "was trained on other text than its files have now" in refused("evaluate", run.path)
    finally:
        texts[0].write_text(before)


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["tiny", "--text", "{text}"], "first.txt: --text is for language models"),
        (["gpt-tiny", "--text", "{text}", "{text}"], "first.txt: named as text 1 and as text 2"),
        (["--resume", "{run}", "--pretrained", "{run}"], "no --pretrained"),
    ],
)
def test_options_that_contradict_each_other(refused, task_run, texts, arguments, complaint):
    values = {"text": texts[0], "run": task_run("gpt-tiny").path}
    assert complaint in refused("train", *(word.format(**values) for word in arguments))
