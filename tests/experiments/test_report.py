"""The report of a run agrees with its log, and calls unknown what is not there."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.config import BIG, TABLE3, preset
from scratchformer.errors import UserError
from scratchformer.experiments import report, training_log
from scratchformer.preparation.prepared import read_manifest
from scratchformer.training.run import RunDirectory

DRAWN = {"test_the_same_run_gives_the_same_bytes"}


@pytest.fixture
def page(cli):
    """page(run, ...) -> the text of its report"""

    def write(run, *arguments):
        outcome = cli("report", run.path, *arguments)
        assert outcome.code == 0, outcome.err
        return (run.path / "report" / "report.md").read_text(encoding="utf-8")

    return write


def cells(text):
    """First cell -> the others, of all tables."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {first: rest for first, *rest in rows}


def log_lines(run):
    return [json.loads(line) for line in run.log_file.read_text(encoding="utf-8").splitlines()]


def section(text, title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)[1]


@pytest.fixture(autouse=True)
def undrawn(request, monkeypatch):
    """Save figures in the tests DRAWN only: drawing one takes a second."""
    if request.node.originalname not in DRAWN:
        monkeypatch.setattr(report.figures, "encoded", lambda figure, path: b"a figure")


# Contents -------------------------------------------------------------------------------------------------------------


def test_the_course_agrees_with_the_log(page, own_run):
    found = cells(page(own_run, "--tflops", 0.5))
    steps = [line for line in log_lines(own_run) if line["event"] == "step"]
    total = {name: sum(step[name] for step in steps) for name in ("source_tokens", "target_tokens", "positions")}
    assert found["steps"] == ["12"] and found["real source tokens"] == [f"{total['source_tokens']:,}"]
    assert found["real target tokens"] == [f"{steps[-1]['all_target_tokens']:,}"] == [f"{total['target_tokens']:,}"]
    assert found["source tokens of a step, mean"] == [f"{total['source_tokens'] / 12:.0f} (paper: about 25,000)"]
    padding = 1 - (total["source_tokens"] + total["target_tokens"]) / total["positions"]
    assert found["padding, of all positions"] == [f"{100 * padding:.1f}%"]
    validations = [line for line in log_lines(own_run) if line["event"] == "validation"]
    best = min(validations, key=lambda line: line["perplexity"])
    assert found["best"] == [str(best["step"]), f"{best['loss']:.4f}", f"{best['perplexity']:.2f}"]
    assert found["training pairs"] == ["100"] and found["validation pairs"] == ["20"]


def test_the_cost_agrees_with_a_count_by_hand(page, own_run):
    """N = 1, d_model = 16, d_ff = 32, two heads, V = 60: six FLOPs for each token and weight."""
    found = cells(page(own_run, "--tflops", 0.5))
    steps = [line for line in log_lines(own_run) if line["event"] == "step"]
    of_source = 4 * 16 * 16 + 2 * 16 * 32 + 2 * 16 * 16  # encoder; keys, values for decoder
    of_target = 6 * 16 * 16 + 2 * 16 * 32 + 16 * 60  # without them; and the output
    flops = 6 * sum(of_source * step["source_tokens"] + of_target * step["target_tokens"] for step in steps)
    capacity = 0.5e12 * sum(step["seconds"] for step in steps)
    assert float(found["matrix products with weights"][0].split()[0]) == pytest.approx(flops, rel=0.005)
    assert float(found["capacity of the machine"][0].split()[0]) == pytest.approx(capacity, rel=0.005)
    assert found["share of it"][0] == f"{flops / capacity:.1%}"
    assert found["of queries with keys, and weights with values"][0] == "unknown"


def test_every_deviation_from_the_paper_is_listed(page, own_run, small_config):
    found = cells(section(page(own_run), "Deviations"))
    here, base = configs.flat(small_config()), configs.flat(preset("base"))
    for key in here:
        if (
            key.split(".")[0] != "data"
            and here[key] != base[key]
            and key not in ("training.validate_every", "training.keep")
        ):
            assert found.pop(f"`{key}`") == [str(here[key]), str(base[key])]
    assert found.keys() == {"setting", "---"}


@pytest.mark.parametrize("name", ["base", "big", "wmt14-en-fr-base", "wmt14-en-fr-big", *TABLE3])
def test_the_papers_presets_have_no_deviations(name):
    assert report.nearest_preset(preset(name)) == name
    assert "None from" in " ".join(report.deviations_section(preset(name)))


def test_a_larger_vocabulary_and_a_gpus_precision_are_deviations():
    config = configs.with_settings(preset("C1"), {"vocab_size": 36_000, "device": "gpu"})
    assert report.nearest_preset(config) == "C1" and report.nearest_preset(preset("multi30k")) == "base"
    assert report.deviations(config, preset("C1")) == {
        "model.vocab_size": (36_000, 37_000),
        "training.precision": ("tf32", "fp32"),
    }


@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(page, own_run, files_of):
    page(own_run)
    before = files_of(own_run.path / "report")
    assert {path.name for path in before} == {"report.md", "loss.png", "perplexity.png", "learning_rate.png"}
    page(own_run)
    assert files_of(own_run.path / "report") == before


def test_the_report_changes_nothing_in_the_run(cli, own_run, files_of, tmp_path):
    before = files_of(own_run.path)
    outcome = cli("report", own_run.path, "--out", tmp_path / "elsewhere")
    assert outcome.out == f"{tmp_path / 'elsewhere' / 'report.md'}\n"
    assert files_of(own_run.path) == before


# Beside the paper -----------------------------------------------------------------------------------------------------

NEWSTEST2014 = {
    "checkpoint": "average.safetensors",
    "step": 100_000,
    "source": "/data/wmt14/test.en",
    "beam": 4,
    "n_sentences": 3003,
    "alpha": 0.6,
    "bleu": 26.1,
    "bleu_signature": "a|b",
    "chrf": 55.5,
    "chrf_signature": "c",
    "length_ratio": 0.99,
    "brevity_penalty": 1.0,
    "paper_bleu": 27.1,
    "paper_signature": "d",
}


def of_wmt(name):
    return configs.with_settings(preset(name), {"data.directory": "/data/wmt14"})


@pytest.fixture
def of_dataset(prepared):
    """of_dataset(name) -> the manifest of a data set of this name"""
    return lambda name: replace(read_manifest(prepared), dataset=name)


@pytest.mark.parametrize(
    "config, text, printed, said",
    [
        (of_wmt("base"), "test", "27.3", "newstest2014, Table 2"),
        (of_wmt("big"), "test", "28.4", "newstest2014"),
        (of_wmt("wmt14-en-fr-base"), "test", "38.1", "newstest2014"),
        (of_wmt("wmt14-en-fr-big"), "test", "41.8 (41.0 in its text)", "newstest2014"),
        (of_wmt("base"), "val", "25.8", "newstest2013, Table 3"),
        (of_wmt("big"), "val", "26.4", "newstest2013"),
        (of_wmt("C1"), "val", "23.7", "newstest2013"),
        (of_wmt("D3"), "val", "25.3", "newstest2013"),
        (of_wmt("C1"), "test", "–", "it has none for this model"),
        (of_wmt("base"), "other", "–", "it has none"),
        (of_wmt("tiny"), "test", "–", "it has none"),
    ],
)
def test_the_papers_scores_are_shown_only_for_its_texts_and_models(of_dataset, config, text, printed, said):
    entry = NEWSTEST2014 | {"source": f"/data/wmt14/{text}.en"}
    language, other = ("fr", "de") if config.data.target_language == "fr" else ("de", "fr")
    found, remark = report.paper_score(entry, config, of_dataset(f"wmt14-en-{language}"))
    assert found == printed and said in remark
    assert ("Compare its numbers" in remark) == (found != "–" and language == "de")
    assert ("indicative only" in remark) == (found != "–" and language == "fr")
    for manifest in (of_dataset(f"wmt14-en-{other}"), of_dataset("multi30k"), of_dataset(""), None):
        found, remark = report.paper_score(entry, config, manifest)
        assert found == "–" and "not WMT 2014's" in remark


def test_scores_are_shown_as_recorded(page, own_run):
    own_run.record_evaluation(NEWSTEST2014)
    own_run.record_evaluation(NEWSTEST2014 | {"paper_bleu": None})  # once more, without --paper
    own_run.record_evaluation(NEWSTEST2014 | {"paper_bleu": None, "paper_signature": None, "step": None})
    own_run.record_evaluation({"bleu": "damaged"})
    text = section(page(own_run), "Scores")
    first, second, third = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert "| 100,000 | test.en | 3,003 | 4 | 0.6 | 26.10 | 55.50 | 0.990 | 27.10 | – |" in first
    assert "| unknown | test.en |" in second and "| not measured | – |" in second
    assert third.count("unknown") >= 5
    assert "- a\\|b" in text and "not WMT 2014's" in text


@pytest.mark.parametrize(
    "config, expected",
    [
        (preset("base"), ["3.30e18", "3.28e18", "29%", "counted for a run with 9.53e17", "capacity with 3.30e18"]),
        (BIG, ["2.30e19", "9.68e18", "42%"]),
        (preset("tiny"), ["does not say what a model of these sizes cost"]),
    ],
)
def test_the_papers_cost_is_explained(config, expected):
    text = report.paper_cost(config)
    assert all(number in text for number in expected), text


def test_the_papers_perplexity_is_compared_on_its_text_only(of_dataset):
    log = report.Log(True, [], [{"step": 5, "loss": 1.6, "perplexity": 4.95, "all_target_tokens": 9}], [])
    wmt = of_dataset("wmt14-en-de")
    said = report.perplexity_section(preset("base"), wmt, log)[-1]
    assert "The paper: 4.92 on newstest2013" in said and "indicative only" in said
    assert "cannot be compared" in report.perplexity_section(preset("base"), of_dataset("multi30k"), log)[-1]
    assert "cannot be compared" in report.perplexity_section(preset("base"), None, log)[-1]
    assert "no perplexity for this model" in report.perplexity_section(preset("tiny"), wmt, log)[-1]


def test_a_prepared_text_is_described(page, own_run, small_config, prepared, tmp_path):
    directory = shutil.copytree(prepared, tmp_path / "copy")
    own_run.write_config(small_config(**{"data.directory": str(directory)}))
    text, train = page(own_run), read_manifest(prepared).splits["train"]
    found = cells(text)
    assert found["data set"] == ["files of one's own"] and found["vocabulary"] == ["60 pieces"]
    assert found["limits of a pair"] == ["80 words, lengths in a ratio of 9.0, 256 tokens"]
    assert found["training pairs kept"] == ["100 of 100 lines"] and found["version of numpy"] == [np.__version__]
    assert found["train.en"] == found["all parts"] == ["100", "100", "0", "0", "0", found["all parts"][-1]]
    assert found["training pairs with a sentence of val or test"] == [f"{found['all parts'][-1]}, kept"]
    assert found["train"] == [
        "100",
        "0",
        "0",
        f"{train.source_tokens:,}",
        f"{train.target_tokens:,}",
        f"{train.source_tokens / 100:.1f} and {train.target_tokens / 100:.1f}",
        str(train.longest),
        f"{train.unk_share:.4%}",
    ]
    assert found["val"][0] == "20" and "crc" not in text and "splits." not in text
    steps = [line for line in log_lines(own_run) if line["event"] == "step"]
    S, T = train.source_tokens / 100, train.target_tokens / 100
    n_pairs = sum(step["source_tokens"] for step in steps) / S
    flops = 6 * n_pairs * 2 * 16 * (S * S + T * T + S * T)  # N h (d_k + d_v) pairs of tokens
    value, how = found["of queries with keys, and weights with values"]
    assert float(value.split()[0]) == pytest.approx(flops, rel=0.005) and f"{S:.1f} and {T:.1f} tokens" in how
    (directory / "manifest.json").write_text("{", encoding="utf-8")
    assert "The directory copy, as it is now" in page(own_run)


# Incomplete runs ------------------------------------------------------------------------------------------------------


def test_an_imported_run_has_no_log(page, cli, trained, tmp_path):
    assert cli("export", trained.path, "--to", "torch", tmp_path / "weights.safetensors").code == 0
    assert cli("import", tmp_path / "weights.safetensors", "--out", tmp_path / "imported").code == 0
    text = page(RunDirectory(tmp_path / "imported"))
    assert "no log: the weights were imported without one" in text and "what the training cost is unknown" in text
    assert "the perplexity is unknown" in text and "## Figures" not in text
    assert [path.name for path in (tmp_path / "imported" / "report").iterdir()] == ["report.md"]


def test_a_log_that_was_cut_short(page, own_run):
    whole = own_run.log_file.read_text(encoding="utf-8").splitlines()
    own_run.log_file.write_text("\n".join([*whole[:3], "not JSON", *whole[4:-1], whole[-1][:20]]), encoding="utf-8")
    steps = [line["step"] for line in map(json.loads, [*whole[:3], *whole[4:-1]]) if line["event"] == "step"]
    assert len(steps) < 12
    assert cells(page(own_run))["steps"] == [f"{steps[-1]}, of which {len(steps)} are in the log"]


def test_a_run_before_its_first_validation(page, own_run):
    lines = [line for line in log_lines(own_run) if line["event"] == "step"][:2]
    own_run.log_file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    for path in own_run.checkpoints.directory.iterdir():
        path.unlink()
    text = page(own_run)
    assert cells(text)["state"] == ["step 2 of at most 12"] and cells(text)["checkpoints of steps"] == ["none"]
    assert "No validation is logged: the perplexity is unknown." in text
    own_run.log_file.write_text("", encoding="utf-8")
    assert "no step is logged yet" in page(own_run)


def test_epochs_and_steps_that_overflowed(page, own_run):
    first = log_lines(own_run)[0]
    places = [(0, 0), (0, 1), (0, 2), (1, 0)]
    lines = [
        first | {"step": n + 1, "epoch": epoch, "index": index, "grad_norm": None if n == 2 else 1.0}
        for n, (epoch, index) in enumerate(places)
    ]
    own_run.log_file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    own_run.log("bleu", {"step": 4, "bleu": 3.0, "all_target_tokens": 99})
    found = cells(page(own_run))
    assert found["epochs"] == ["1.33"] and found["steps skipped, since gradients overflowed"] == ["1"]
    assert (own_run.path / "report" / "bleu.png").exists()


def test_text_that_is_gone(page, own_run, small_config, tmp_path):
    own_run.write_config(small_config(**{"data.directory": str(tmp_path / "gone")}))
    assert "how many pairs they held is unknown" in page(own_run)
    own_run.write_config(replace(small_config(), data=configs.DataConfig()))
    assert "The bundled corpus." in page(own_run)


# Bad input ------------------------------------------------------------------------------------------------------------


NOT_NUMBERS = [
    "null",
    '"low"',
    "true",
    "[[1]]",
    "{}",
    "NaN",
    "-Infinity",
    "1" + 400 * "0",
    "1e999",
    "1e308",
    str(2**53 + 1),
]


@pytest.mark.parametrize(
    "event, name, value",
    [
        *(("step", "loss", value) for value in NOT_NUMBERS),
        *(("validation", "loss", value) for value in NOT_NUMBERS),
        *(("bleu", "all_target_tokens", value) for value in NOT_NUMBERS),
        ("step", "index", "-1"),
        ("step", "positions", "0"),
        ("step", "step", "0"),
        ("step", "step", "[" + ",".join("1" * 999) + "]"),
        ("validation", "perplexity", "0"),
        ("bleu", "bleu", "-1"),
    ],
)
def test_a_damaged_log(own_run, event, name, value):
    numbers = [*training_log.STEP_NUMBERS, *training_log.VALIDATION_NUMBERS, *training_log.BLEU_NUMBERS]
    entry = {"event": f'"{event}"'} | {number: "1" for number in numbers} | {name: value}
    with open(own_run.log_file, "a", encoding="utf-8") as file:
        file.write("{" + ", ".join(f'"{key}": {text}' for key, text in entry.items()) + "}\n")
    with pytest.raises(UserError) as refusal:
        training_log.read_log(own_run)
    said = str(refusal.value)
    assert f"log.jsonl: damaged: an entry of kind {event} (step " in said and len(said) < 500
    assert said.endswith(f"has no valid number '{name}'")


@pytest.mark.parametrize("command", [["report"], ["plot", "loss"], ["plot", "schedule"]], ids=" ".join)
def test_no_command_computes_with_a_damaged_log(refused, own_run, command):
    with open(own_run.log_file, "a", encoding="utf-8") as file:
        file.write('{"event": "step", "step": 13, "loss": "low"}\n')
    assert "log.jsonl: damaged: " in refused(command[0], own_run.path, *command[1:])
    assert not (own_run.path / "report").exists()


@pytest.mark.parametrize("line", [b"\xff\xfe", b'{"event": "step"', b"[1]", b"5", b"[" * 100_000, b"\0", b"9" * 5000])
def test_lines_that_are_no_entries_are_left_out(page, own_run, line):
    before = page(own_run)
    own_run.log_file.write_bytes(line + b"\n" + own_run.log_file.read_bytes())
    assert page(own_run) == before


# Strings of others ----------------------------------------------------------------------------------------------------


def skeleton(markdown):
    """What Markdown obeys, line by line: all that is neither a letter nor escaped."""
    bare = re.sub(r"\\.|&(lt|gt|amp);", "", markdown)
    return [re.sub(r"[^|`*<>\[\]]", "", line) for line in bare.split("\n")]


def named_in_the_data(run, config, manifest, text):
    data = {name: text for name in ("source_language", "target_language", "directory", "train_source", "train_target")}
    data["target_language"] = f"{text} as well"
    data = {name: value.replace("\0", "") for name, value in data.items()}  # no file is called so
    return report.data_section(replace(config, data=configs.DataConfig(**data)), None)


def named_in_the_manifest(run, config, manifest, text):
    clean = manifest.clean | {"parts": [manifest.clean["total"] | {"part": text}]}
    own = replace(manifest, dataset=text, clean=clean, versions={text: text})
    data = replace(config.data, directory=text)
    return report.data_section(replace(config, data=data), own)


def named_in_the_evaluations(run, config, manifest, text):
    entry = {name: text for name in NEWSTEST2014}
    run.evaluations_file.write_text(json.dumps(entry | {"source": text.replace("/", "")}) + "\n", encoding="utf-8")
    data = replace(config.data, source_language=text, target_language=f"{text} as well")
    return report.scores_section(run, replace(config, data=data), None)


def named_in_a_preset(run, config, manifest, text):
    settings = replace(config.training, device=text, precision=text)
    changed = replace(config, training=settings)
    return [report.run_table(run, changed, report.read_log(run)), *report.deviations_section(changed)]


def named_as_the_run(run, config, manifest, text):
    path = run.path.rename(run.path.parent / text.replace("/", "").replace("\0", ""))
    return [report.write_report(RunDirectory(path)).read_text(encoding="utf-8")]


@pytest.mark.parametrize(
    "place", [named_in_the_data, named_in_the_manifest, named_in_the_evaluations, named_in_a_preset, named_as_the_run]
)
def test_strings_of_others_add_neither_markup_nor_lines(own_run, small_config, prepared, monkeypatch, place, hostile):
    monkeypatch.setattr(configs.DataConfig, "__post_init__", lambda data: None, raising=False)
    monkeypatch.setattr(configs.TrainingConfig, "__post_init__", lambda settings: None, raising=False)
    arguments = own_run, small_config(), read_manifest(prepared)
    written = "\n\n".join(place(*arguments, hostile))
    again = RunDirectory(own_run.path if own_run.path.exists() else next(own_run.path.parent.iterdir()))
    harmless = "\n\n".join(place(again, *arguments[1:], "harmless"))
    assert skeleton(written) == skeleton(harmless)
    assert "<script" not in written and all(line.isprintable() for line in written.split("\n"))


def test_bad_input(refused, own_run, tmp_path):
    assert "no run here" in refused("report", tmp_path)
    for tflops in (0, -1, "nan", "inf"):
        assert "--tflops" in refused("report", own_run.path, "--tflops", tflops)


def test_an_output_that_cannot_be_written(refused, own_run, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    assert "cannot make the directory" in refused("report", own_run.path, "--out", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "in the way"

    def no_space(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scratchformer.files.os.fsync", no_space)
    assert "No space left on device" in refused("report", own_run.path)
    assert list((own_run.path / "report").iterdir()) == []
