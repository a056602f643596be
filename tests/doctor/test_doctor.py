"""Doctor finds what is wrong with code and setup, and raises no false alarm."""

import gzip
import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.config import PRESETS
from scratchformer.doctor import data_probes, diagnosis, setup_probes
from scratchformer.doctor.findings import Finding, suspects, verdict
from scratchformer.nn.layers import Linear
from scratchformer.tasks import start
from scratchformer.tasks.task import TASKS
from scratchformer.text import bundled
from scratchformer.text.corpora import ParallelFiles
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training import checkpoints, loop, schedule
from scratchformer.training.run import RunDirectory

GIB = 2**30


@pytest.fixture(autouse=True)
def large_machine(monkeypatch):
    """Let the tests see the same memory and disk on every machine."""
    monkeypatch.setattr(setup_probes, "machine_memory_bytes", lambda: 64 * GIB)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=500 * GIB))


@pytest.fixture(scope="session")
def good_corpus(tmp_path_factory):
    """Like the small corpus, but without repetitions."""
    directory, rng = tmp_path_factory.mktemp("good"), random.Random(0)
    words = {"the": "der", "dog": "Hund", "cat": "Kater", "sees": "sieht", "hears": "hört", "a": "ein", "big": "großer"}
    for split, n_lines in (("train", 300), ("val", 20)):
        lines = [rng.choices(list(words), k=rng.randint(5, 14)) for _ in range(n_lines)]
        for language, texts in (("en", lines), ("de", [[words[word] for word in line] for line in lines])):
            (directory / f"{split}.{language}").write_text("".join(" ".join(text) + "\n" for text in texts), "utf-8")
    return directory


@pytest.fixture
def probe_setup(small_config, good_corpus, corpus):
    """probe_setup(run, **changes) -> {name of the probe: Finding}, without the probes of the code"""

    def examine(run=None, **changes):
        where = {"directory": str(corpus)} if run else {"directory": str(good_corpus), "vocab_size": 40}
        config = small_config(**where | GOOD_SETTINGS | changes)
        text = data_probes.read_text(config.data)
        tokenizer = Tokenizer.load(run.tokenizer_file) if run else None
        return {finding.probe: finding for finding in diagnosis.probe_setup(config, run, text, tokenizer)}

    return examine


GOOD_SETTINGS = {"steps": 1000, "warmup": 200}
"""With these settings, the configuration of the small runs passes all probes."""


@pytest.fixture
def changed_copy(good_corpus, tmp_path):
    """changed_copy(train=function of the lines of both sides) -> directory with a changed copy of the text"""

    def copy(**changes):
        directory = shutil.copytree(good_corpus, tmp_path / "changed")
        for split, change in changes.items():
            paths = [directory / f"{split}.{language}" for language in ("en", "de")]
            sides = [path.read_text("utf-8").splitlines() for path in paths]
            for path, lines in zip(paths, change(*sides), strict=True):
                path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(directory)

    return copy


# Nothing wrong --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        "tiny",
        "multi30k",
        "base",
        "big --set N=1",
        "E --set N=2",
        "A1 --set N=2",
        "tiny --set norm=pre",
        "tiny --set positions=learned --set tied=none --set attention_bias=false",
        "tiny --set feed_forward=gelu",
        "parsing",
        "parsing-small",
        "gpt2 --set N=1",
        "bert-tiny",
        "antecedent",
        "vit-digits",
    ],
)
def test_nothing_is_wrong_with_the_presets(cli, arguments):
    code, printed, said = cli("doctor", *arguments.split(), "--json")
    findings = [json.loads(line) for line in printed.splitlines()]
    assert [finding for finding in findings if finding["verdict"] == "FAIL"] == []
    assert (code, said) == (0, "")
    assert findings[-1] == {"probe": "diagnosis", "verdict": "ok", "seen": findings[-1]["seen"], "suspects": []}


def test_a_good_setup_has_no_failures_and_no_notes(probe_setup):
    found = probe_setup()
    assert [finding for finding in found.values() if finding.verdict in ("FAIL", "note")] == []
    for probes in (PROBES_OF_TASK["translation"][0], DATA_OF_ALL, SETUP_OF_ALL):
        assert probes <= found.keys()


@pytest.mark.slow
def test_a_trained_run_passes(cli, small_config, good_corpus, tmp_path):
    run = RunDirectory(tmp_path / "run")
    loop.train(start.begin(run, small_config(directory=str(good_corpus), vocab_size=40, steps=100)))
    code, printed, said = cli("doctor", run.path)
    assert (code, said) == (0, "")
    assert "No probe failed." in printed and "FAIL" not in printed
    for probe in ("gradients", "log of the run", "weights", "hidden units after training"):
        assert f" {probe}\n" in printed


TASK_PRESETS = {
    "translation": "tiny --data {pairs} --set vocab_size=40",
    "parsing": "parsing-tiny --data {trees} --set vocab_size=200",
    "language-model": "gpt-tiny --text {text} --set vocab_size=400",
    "masked-language-model": "bert-tiny --text {text} --set vocab_size=200",
    "antecedent": "antecedent",
    "digits": "vit-digits",
}
"""For each task a preset, and a little text that suits it."""

DATA_OF_ALL = {"padding", "epochs"}
SETUP_OF_ALL = {"warm-up", "peak learning rate", "sum of learning rates", "gradient norm by layer", "disk", "memory"}
NO_RELU = {"left out", "hidden units before the first step"}
NO_LOSS = NO_RELU | {"loss before the first step"}
OF_TEXT = {"examples", "vocabulary", "unknown tokens"}
PROBES_OF_TASK = {  # besides these: those of the data, and the names of those that are skipped
    "translation": ({"repeated pairs", "held-out text in training", "examples", "vocabulary", "unknown tokens"}, set()),
    "parsing": (OF_TEXT, {"left out"}),
    "language-model": (OF_TEXT, NO_RELU),
    "masked-language-model": (OF_TEXT, NO_RELU),
    "antecedent": ({"examples", "unknown tokens"}, NO_LOSS),
    "digits": ({"examples"}, NO_LOSS),
}


def test_no_task_is_forgotten():
    assert set(TASKS) == TASK_PRESETS.keys() == PROBES_OF_TASK.keys()
    assert all(PRESETS[arguments.split()[0]].data.task == task for task, arguments in TASK_PRESETS.items())


@pytest.fixture(scope="session")
def texts_of_tasks(good_corpus, tmp_path_factory):
    directory, examples = tmp_path_factory.mktemp("texts"), bundled.read("val")
    for split, part in (("train", examples[:400]), ("val", examples[400:])):
        (directory / f"{split}.trees").write_text("".join(f"{example.tree}\n" for example in part), "utf-8")
    text = directory / "text.txt"
    text.write_text("".join(f"{example.source}\n" for example in examples), "utf-8")
    return {"pairs": good_corpus, "trees": directory, "text": text}


@pytest.fixture
def examined(cli, monkeypatch, texts_of_tasks):
    """examined(task, setting, ...) -> {name of the probe: record} of `doctor`, without the probes of the code"""

    def call(task, *settings):
        monkeypatch.setattr(diagnosis, "probe_code", lambda config: iter(()))
        arguments = TASK_PRESETS[task].format(**texts_of_tasks).split()
        changes = [word for each in settings for word in ("--set", each)]
        code, printed, said = cli("doctor", *arguments, *changes, "--json")
        records = {record["probe"]: record for record in map(json.loads, printed.splitlines())}
        assert said == "" and code == any(record["verdict"] == "FAIL" for record in records.values())
        return records

    return call


@pytest.mark.parametrize("task", TASKS)
def test_the_setup_of_every_task_is_examined(examined, task):
    found = examined(task)
    verdicts = {probe: record["verdict"] for probe, record in found.items()}
    expected, left_out = PROBES_OF_TASK[task]
    assert "FAIL" not in verdicts.values()
    assert {probe for probe, verdict in verdicts.items() if verdict == "skipped"} == left_out
    assert expected | left_out | DATA_OF_ALL | SETUP_OF_ALL <= verdicts.keys()


@pytest.mark.parametrize(
    "task, setting, probe, expected",
    [
        ("language-model", "warmup=4000", "warm-up", "FAIL"),
        ("language-model", "max_tokens=20000", "warm-up", "FAIL"),
        ("language-model", "tokens_per_batch=100", "examples", "FAIL"),
        ("parsing", "max_length=20", "examples", "FAIL"),
        ("digits", "lr_factor=100", "peak learning rate", "FAIL"),
    ],
)
def test_a_bad_configuration_of_any_task_is_found(examined, task, setting, probe, expected):
    found = examined(task, setting)
    assert found[probe]["verdict"] == expected, found[probe]


def test_text_of_any_task_that_cannot_be_read_is_refused(refused, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert f"{empty}: too little text" in refused("doctor", "gpt-tiny", "--text", empty)
    assert "neither train.trees nor train.trees.gz" in refused("doctor", "parsing-tiny", "--data", tmp_path)
    assert "no run here" in refused("doctor", "antecedent", "--pretrained", tmp_path)


def test_validation_text_in_another_script_is_found_in_plain_text(examined, texts_of_tasks, tmp_path, monkeypatch):
    text = tmp_path / "text.txt"
    text.write_text("The dog sees a cat.\n" * 180 + "собака спит на полу\n" * 20, "utf-8")
    monkeypatch.setitem(texts_of_tasks, "text", text)
    assert examined("masked-language-model", "vocab_size=30")["unknown tokens"]["verdict"] == "FAIL"


def test_each_probe_says_what_was_expected_and_seen(cli):
    code, printed, _ = cli("doctor", "--code")
    probes, diagnosis = printed.strip().split("\n\n")
    assert code == 0 and diagnosis == "No probe failed."
    assert all(probe.count("        expected ") == probe.count("        seen ") == 1 for probe in probes.split("\nok"))
    assert printed.count("\nok") >= 12
    assert max(map(len, printed.splitlines())) <= 120


def test_without_text_its_probes_are_skipped_with_a_reason(small_config):
    config = small_config(directory="", vocab_size=6000)
    found = {finding.probe: finding for finding in diagnosis.probe_setup(config, None, None, None)}
    assert found["text"].verdict == "skipped" and "--data" in found["text"].seen
    assert "repeated pairs" not in found and "warm-up" in found


# Faults of the code ---------------------------------------------------------------------------------------------------


def test_a_fault_is_named_with_its_component_causes_and_file(cli, monkeypatch):
    right = Linear.backward
    monkeypatch.setattr(Linear, "backward", lambda self, dy, cache: 1.001 * right(self, dy, cache))
    code, printed, _ = cli("doctor", "--code")
    assert code == 1
    assert "FAIL    gradients" in printed and "usual causes" in printed
    assert printed.strip().split("\n\n")[-1].startswith("Look first at Linear (scratchformer/nn/layers.py): ")


def test_code_that_raises_is_a_fault_and_not_the_end(cli, monkeypatch, trained):
    def broken(self, x, rng=None):
        raise IndexError("no such\nthing")

    monkeypatch.setattr(Linear, "forward", broken)
    code, printed, said = cli("doctor", trained.path, "--json")
    findings = [json.loads(line) for line in printed.splitlines()]
    assert (code, said) == (1, "")
    assert findings[-1]["suspects"] == ["Linear"]
    assert any("Linear: raises IndexError: no such thing" in finding["seen"] for finding in findings)
    assert findings[-2]["probe"] == "remaining probes" and "IndexError" in findings[-2]["seen"]


@pytest.mark.parametrize(
    "components, expected",
    [
        (["Transformer", "SelfAttention", "Linear", "Decoder"], ["Linear"]),
        (["Transformer", "Decoder", "DecoderLayer", "CrossAttention"], ["CrossAttention"]),
        (["Trainer.step", "noam"], ["noam"]),
        (["noam", "Linear"], ["Linear", "noam"]),
        (["Adam", "noam", "batches", "Linear", "Embedding"], ["Linear", "Embedding", "noam"]),
        ([], []),
    ],
)
def test_the_suspects_are_the_faulty_components_whose_parts_are_sound(components, expected):
    assert suspects(components) == expected


@pytest.mark.parametrize(
    "value, expected",
    [(0.0, "ok"), (1.0, "ok"), (1.5, "note"), (2.0, "note"), (2.1, "FAIL"), (np.inf, "FAIL"), (np.nan, "FAIL")],
)
def test_the_verdict_on_a_number(value, expected):
    assert verdict(value, 1.0, 2.0) == expected


# Faults of configuration and machine ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, probe, expected",
    [
        ({"warmup": 2000}, "warm-up", "FAIL"),
        ({"warmup": 600}, "warm-up", "note"),
        ({"lr_factor": 100.0}, "peak learning rate", "FAIL"),
        ({"lr_factor": 2.0}, "peak learning rate", "note"),
        ({"lr_factor": 0.001}, "peak learning rate", "note"),
        ({"lr_factor": 0.001}, "sum of learning rates", "FAIL"),
        ({"max_tokens": 2000}, "warm-up", "FAIL"),
        ({"steps": 3, "warmup": 1}, "epochs", "note"),
        ({"N": 24}, "gradient norm by layer", "note"),
        ({"N": 24, "norm": "pre"}, "gradient norm by layer", "ok"),
        ({"max_length": 8}, "examples", "FAIL"),
        ({"tokens_per_batch": 5}, "examples", "FAIL"),
    ],
    ids=str,
)
def test_a_bad_configuration_is_found(probe_setup, changes, probe, expected):
    assert probe_setup(**changes)[probe].verdict == expected


def test_a_machine_that_is_too_small(probe_setup, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=100_000))
    monkeypatch.setattr(setup_probes, "machine_memory_bytes", lambda: 10_000)
    found = probe_setup()
    assert found["disk"].verdict == found["memory"].verdict == "FAIL"
    assert found["before the first step"].verdict == "skipped" and "loss before the first step" not in found
    monkeypatch.setattr(setup_probes, "machine_memory_bytes", lambda: None)  # a system that does not say
    assert probe_setup()["memory"].verdict == "skipped"


def test_a_tied_model_that_repeats_what_it_reads_is_no_fault(probe_setup):
    finding = probe_setup(norm="pre", d_model=256, h=4)["loss before the first step"]
    assert finding.verdict == "ok" and "repeats what it reads" in finding.seen


def test_initial_weights_that_are_too_large_are_found(probe_setup, monkeypatch):
    small = setup_probes.new_model

    def large(*arguments):
        model = small(*arguments)
        model.store.data *= 4
        return model

    monkeypatch.setattr(setup_probes, "new_model", large)
    assert probe_setup()["loss before the first step"].verdict == "FAIL"


# Faults of the text ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change, probe, expected",
    [
        (lambda source, target: (source * 3, target * 3), "repeated pairs", "FAIL"),
        (lambda source, target: (source + source[:15], target + target[:15]), "repeated pairs", "note"),
        (lambda source, target: (source, source), "source equal to target", "FAIL"),
        (lambda source, target: (source, ["gleich", *target[1:-1], source[-1]]), "source equal to target", "ok"),
        (lambda source, target: (source[:200] + [""] * 100, target), "empty lines", "FAIL"),
        (lambda source, target: (source, target[1:] + target[:1]), "lines that belong together", "FAIL"),
        (
            lambda source, target: (
                source,
                [line + " und" * 99 if number % 20 == 0 else line for number, line in enumerate(target)],
            ),
            "lines that belong together",
            "FAIL",
        ),
        (lambda source, target: (source[:50], target[:50]), "lines that belong together", "skipped"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_training_text_is_found(probe_setup, changed_copy, change, probe, expected):
    assert probe_setup(directory=changed_copy(train=change))[probe].verdict == expected


def test_a_test_set_in_the_training_text_is_found(probe_setup, changed_copy):
    directory = Path(changed_copy())
    for language in ("en", "de"):
        lines = (directory / f"train.{language}").read_bytes().splitlines(keepends=True)[:20]
        (directory / f"test_2.{language}.gz").write_bytes(gzip.compress(b"".join(lines)))
    (directory / "test_3.en").write_bytes(b"without its other side\n")
    finding = probe_setup(directory=str(directory))["held-out text in training"]
    assert finding.verdict == "FAIL"
    assert "test_2: 20 of 20 pairs" in finding.seen and "val: 0 of 20" in finding.seen and "test_3" not in finding.seen


def test_held_out_text_in_another_script_is_found(probe_setup, changed_copy):
    directory = changed_copy(val=lambda source, target: (["собака спит"] * 20, target))
    finding = probe_setup(directory=directory)["unknown tokens"]
    assert finding.verdict == "FAIL" and "training text 0.00%" in finding.seen


def test_held_out_text_is_not_in_training(probe_setup, good_corpus):
    found = probe_setup(
        directory="", train_source=str(good_corpus / "train.en"), train_target=str(good_corpus / "train.de")
    )
    assert found["held-out text in training"].verdict == found["examples"].verdict == "ok"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_of_a_large_corpus_the_first_lines_are_examined(probe_setup, changed_copy, monkeypatch, suffix):
    directory = Path(changed_copy(train=lambda source, target: ([*source, *source], [*target, *target])))
    for path in list(directory.glob("train.*")) if suffix else []:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    monkeypatch.setattr(data_probes, "LARGE_FILE_BYTES", 10)
    monkeypatch.setattr(data_probes, "FIRST_LINES", 100)
    found = probe_setup(directory=str(directory), vocab_size=50)
    assert found["repeated pairs"].seen == "0.0% of 100 pairs are repetitions (the first 100 lines)"
    assert "(the first 100 lines)" in found["examples"].seen
    assert found["held-out text in training"].verdict == "ok"


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_fraction_of_a_large_file_that_was_read_is_known(tmp_path, monkeypatch, suffix):
    path, numbers = tmp_path / f"numbers{suffix}", random.Random(0)
    text = "".join(f"{numbers.getrandbits(80)}\n" for _ in range(10_000)).encode()
    path.write_bytes(gzip.compress(text, 1) if suffix else text)
    monkeypatch.setattr(data_probes, "FIRST_LINES", 4_000)
    pairs, fraction = data_probes.first_pairs(ParallelFiles(path, path))
    assert pairs.source == text.decode().split("\n")[:4_000] and 0.3 < fraction < 0.5


def test_pieces_of_single_bytes_may_be_missing():
    ids = np.repeat(np.arange(280, 320), 20)
    assert data_probes.judge_vocabulary(ids, 320, "", has_bytes=False).verdict == "note"
    assert data_probes.judge_vocabulary(ids, 320, "", has_bytes=True).verdict == "ok"


def test_a_pretrained_model_may_learn_with_small_rates():
    config = configs.with_settings(configs.preset("gpt-tiny"), {"lr_factor": 0.001})
    assert "sum of learning rates" in schedule.contradictions(config, 2000)
    assert not schedule.contradictions(configs.with_settings(config, {"pretrained": "runs/gpt"}), 2000)


# Faults of a run ------------------------------------------------------------------------------------------------------


def change_weights(run, change):
    """Replace the best checkpoint by one with change(weights)."""
    path = run.checkpoints.best
    good = checkpoints.load(path)
    checkpoints.save(path, replace(good, weights=change(dict(good.weights))))


def test_weights_that_are_not_finite_are_found(probe_setup, own_run):
    name = "decoder.layers.0.feed_forward.inner.weight"
    change_weights(own_run, lambda weights: weights | {name: weights[name] * np.nan})
    found = probe_setup(own_run)
    assert found["weights"].verdict == "FAIL" and "hidden units after training" not in found


def test_dead_hidden_units_are_found(probe_setup, own_run):
    name = "encoder.layers.0.feed_forward.inner.bias"
    assert probe_setup(own_run)["hidden units after training"].verdict == "ok"
    change_weights(own_run, lambda weights: weights | {name: weights[name] - 100})
    finding = probe_setup(own_run)["hidden units after training"]
    assert finding.verdict == "FAIL" and "100%" in finding.seen


@pytest.mark.parametrize("damage, expected", [("all", "FAIL"), ("best alone", "FAIL"), ("gone", "skipped")])
def test_damaged_and_missing_checkpoints(probe_setup, own_run, damage, expected):
    saved = own_run.checkpoints
    if damage == "all":
        saved.best.write_bytes(b"damaged")
    elif damage == "best alone":
        for path in saved.steps():
            path.unlink()
        os.truncate(saved.best, 100)
    else:
        shutil.rmtree(saved.directory)
    assert probe_setup(own_run)["weights"].verdict == expected


@pytest.mark.parametrize(
    "losses, expected, seen",
    [
        (np.linspace(8, 2, 200), "ok", "loss 7.86 at the start, 2.14 at the end (200 steps)"),
        (np.concatenate([np.linspace(8, 2, 150), np.linspace(2, 6, 50)]), "FAIL", "it rose by 3."),
        (np.full(200, 8.0), "FAIL", "it did not fall"),
        (np.where(np.arange(200) == 100, 12, np.linspace(8, 2, 200)), "note", "spikes of more than 3 nats: 1"),
        (np.where(np.arange(200) == 120, np.nan, np.linspace(8, 2, 200)), "FAIL", "not finite at step 121"),
        (np.linspace(8, 2, 10), "skipped", "10 steps"),
    ],
)
def test_the_log_of_a_run_is_judged(probe_setup, own_run, losses, expected, seen):
    own_run.log_file.unlink()
    for step, loss in enumerate(losses, 1):
        own_run.log("step", {"step": step, "loss": float(loss), "grad_norm": 1.0})
    finding = probe_setup(own_run)["log of the run"]
    assert finding.verdict == expected and seen in finding.seen, finding


def test_a_validation_loss_that_rises_is_noted(probe_setup, own_run):
    own_run.log_file.unlink()
    for step in range(1, 101):
        own_run.log("step", {"step": step, "loss": 8 - step / 20, "grad_norm": 1.0})
    for step, loss in ((50, 3.0), (100, 3.5)):
        own_run.log("validation", {"step": step, "loss": loss})
    finding = probe_setup(own_run)["log of the run"]
    assert finding.verdict == "note" and "validation loss 3.00 at best, 3.50 at the end" in finding.seen


# Output ---------------------------------------------------------------------------------------------------------------


def test_the_diagnosis_distinguishes_setup_from_code():
    fine = Finding("a", "e", "s", "ok")
    setup = Finding("b", "e", "too much", "FAIL", "causes")
    code = Finding("c", "e", "s", "FAIL", "causes", {"Linear": "x", "Encoder": "x"})
    assert str(diagnosis.Diagnosis([fine, Finding("n", "e", "s", "note")])) == "No probe failed. Worth a look: n."
    assert str(diagnosis.Diagnosis([fine, setup])) == "The code passed, the setup did not: b (too much)."
    assert str(diagnosis.Diagnosis([code, setup])) == (
        "Look first at Linear (scratchformer/nn/layers.py): x. Other components failed too, probably as a consequence. "
        "After that, check the setup: b."
    )
    passed = [diagnosis.Diagnosis(findings).passed for findings in ([fine], [fine, setup], [code])]
    assert passed == [True, False, False]


def test_the_exit_code_is_1_if_a_probe_fails(cli, small_settings):
    code, printed, _ = cli("doctor", "tiny", *small_settings)  # 20 steps of warm-up in 12
    assert code == 1 and "FAIL    warm-up" in printed
    assert "The code passed, the setup did not:" in " ".join(printed.split("\n\n")[-1].split())


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["tiyn"], "did you mean 'tiny'?"),
        (["missing.toml"], "missing.toml"),
        (["tiny", "--data", "missing"], "is not a directory"),
        (["tiny", "--set", "P_drop=2"], "P_drop=2"),
        (["tiny", "--train-source", "missing.en"], "pairs"),
        (["runs/missing"], "runs/missing: neither a run's directory nor a preset"),
    ],
)
def test_bad_input_is_one_line(refused, arguments, complaint):
    assert complaint in refused("doctor", *arguments)


def test_a_run_is_not_examined_as_another_model(refused, trained):
    assert "model.N is 3, was 1" in refused("doctor", trained.path, "--set", "N=3")


def test_a_directory_without_a_run_is_refused(refused, tmp_path):
    assert "no run here" in refused("doctor", tmp_path)
