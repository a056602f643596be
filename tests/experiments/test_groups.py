"""Groups of runs: the exact permutation test, its verdict in words, and requests that are refused."""

import json
import shutil
from dataclasses import replace
from itertools import permutations
from statistics import mean

import pytest

from scratchformer import config as configs
from scratchformer.experiments import groups
from scratchformer.training import checkpoints
from scratchformer.training.run import RunDirectory


@pytest.fixture
def runs(trained, tmp_path):
    """Runs with the model of a small run, as if they had been trained with the seeds 0 to 3, or other settings."""
    settings = {f"seed{seed}": {"seed": seed} for seed in range(4)}
    settings |= {"beam": {"beam": 2, "seed": 7}, "french": {"target_language": "fr"}}
    for name, each in settings.items():
        best = checkpoints.load(trained.checkpoints.best)
        made = replace(best, moments={}, config=configs.with_settings(best.config, each))
        RunDirectory(tmp_path / name).write_model(trained.read_tokenizer(best.config), made)
    return {name: tmp_path / name for name in settings}


@pytest.fixture
def test_set(corpus):
    return ["--source", corpus / "val.en", "--reference", corpus / "val.de", "--beam", 1]


def test_p_is_the_share_of_all_orders_of_the_runs():
    scores, others = [3.0, 4.5, 4.0], [2.0, 3.5]
    differences = [abs(mean(order[:3]) - mean(order[3:])) for order in permutations(scores + others)]
    expected = mean(each >= differences[0] - 1e-9 for each in differences)
    assert groups.permutation_p(scores, others) == pytest.approx(expected)
    assert groups.permutation_p(others, scores) == pytest.approx(expected)
    assert groups.permutation_p([0.1, 0.2, 0.3], [0.3, 0.2, 0.1]) == 1


@pytest.mark.parametrize("n, n_others", [(3, 3), (4, 4), (2, 5), (1, 3), (2, 1)])
def test_the_smallest_p_is_that_of_groups_without_overlap(n, n_others):
    assert groups.permutation_p([1.0] * n, [0.0] * n_others) == pytest.approx(groups.smallest_p(n, n_others))


def test_verdicts():
    few = groups.verdict(0.1, 3, 3)
    assert few.startswith("no more than the seeds: p = 0.1 (20 ways to divide these 6 runs)\n3 against 3 runs cannot")
    assert few.endswith("p is at least 0.1, whatever they score; with 4 against 4 it can be 0.029")
    assert groups.verdict(1 / 35, 4, 4) == "more than the seeds: p = 0.029 (70 ways to divide these 8 runs)"
    assert "\n" not in groups.verdict(0.5, 4, 4)
    assert groups.verdict(1.0, 1, 1) == groups.TWO_RUNS


def test_groups_of_translators(cli, runs, test_set):
    command = ["evaluate", runs["seed0"], runs["seed1"], "--against", runs["seed2"], runs["seed3"], *test_set]
    code, printed, said = cli(*command)
    assert (code, said) == (0, "") and "difference +0.000: no more than the seeds: p = 1 (6 ways" in printed
    found = json.loads(cli(*command, "--json").out)
    assert [each["run"] for each in found["runs"]] == [str(runs[f"seed{seed}"]) for seed in range(4)]
    bleu = RunDirectory(runs["seed3"]).read_evaluations()[-1]["bleu"]
    assert found["comparison"] == [
        {"measure": "bleu", "scores": [bleu] * 2, "against": [bleu] * 2, "difference": 0.0, "p_value": 1.0}
    ]


def test_one_group_and_its_warnings(cli, runs, test_set):
    shutil.copytree(runs["seed0"], twin := runs["seed0"].with_name("twin"))
    code, printed, said = cli("evaluate", runs["seed0"], twin, runs["beam"], *test_set)
    assert code == 0 and "0.000     3" in printed and "difference" not in printed
    assert f"{twin}: has the seed of another run of its group\n" in said
    assert f"{runs['beam']}: differs from its group in more than the seed: decoding.beam\n" in said


def test_a_run_that_fails_leaves_the_results_of_the_others(cli, runs, test_set):
    RunDirectory(runs["seed1"]).checkpoints.best.unlink()
    code, printed, said = cli("evaluate", *(runs[f"seed{seed}"] for seed in range(3)), *test_set, "--json")
    assert code == 2 and said == f"scratchformer: {runs['seed1']}/checkpoints: no checkpoint here\n"
    assert [each["run"] for each in json.loads(printed)["runs"]] == [str(runs["seed0"]), str(runs["seed2"])]


def test_two_runs_do_not_show_it(cli, runs, test_set):
    printed = cli("evaluate", runs["seed0"], "--against", runs["seed1"], *test_set).out
    assert "paired bootstrap" in printed and printed.endswith(f"{groups.TWO_RUNS}\n")


def test_loss_is_compared_beside_the_score(tmp_path):
    runs = [RunDirectory(tmp_path / name) for name in "abc"]
    for number, run in enumerate(runs):
        run.path.mkdir()
        run.log("validation", {"step": 5, "loss": 1.0 + number})
    records = [{"checkpoint": "best.safetensors", "step": 5, "accuracy": 50.0, "text_crc32": 1} for _ in runs]
    found, text = groups.compare("digits", runs, records, 2)
    assert [each["measure"] for each in found] == ["accuracy", "loss"] and found[1]["difference"] == -1.5
    assert "   1.500    0.707     2  " in text and "   3.000        -     1  " in text
    with pytest.raises(ValueError, match="different test texts"):
        groups.compare("digits", runs, [{**records[0], "text_crc32": 2}, *records[1:]], 2)


def test_what_is_refused(refused, runs, test_set, tmp_path, corpus):
    first, second = runs["seed0"], runs["seed1"]
    for command, said in (
        ([first, second, "--against", first], "named twice"),
        ([first, first], "named twice"),
        ([first, "--against", first], "named twice"),
        ([first, second, "--output", tmp_path / "out"], "--output is for one run"),
        ([first, second, "--checkpoint", first / "checkpoints/best.safetensors", "--against", runs["seed2"]], "best"),
        ([first, runs["french"]], "they cannot be compared"),
    ):
        assert said in refused("evaluate", *command, *test_set)
    digits = RunDirectory(shutil.copytree(first, tmp_path / "digits"))
    digits.write_config(configs.PRESETS["vit-digits"])
    assert "for different tasks, digits and translation" in refused("evaluate", first, digits.path)
    for run, split in ((first, "val"), (second, "train")):
        directory = tmp_path / split
        directory.mkdir()
        for language in ("en", "de"):
            shutil.copy(corpus / f"{split}.{language}", directory / f"test.{language}")
        config = configs.load(RunDirectory(run).config_file)
        RunDirectory(run).write_config(configs.with_settings(config, {"data.directory": str(directory)}))
    assert "its test text is not that of" in refused("evaluate", first, second)
