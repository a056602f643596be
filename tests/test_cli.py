import configparser
import contextlib
import io
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from scratchformer import cli as command_line
from scratchformer import config as configs
from scratchformer.commands.data import PREPARATION
from scratchformer.preparation.pipeline import Options
from scratchformer.training import checkpoints
from scratchformer.training.run import RunDirectory, load_run

LINES = ["the dog sees a cat", "", "a big bird", "the old cat and the dog"]


@pytest.fixture
def type_in(monkeypatch):
    """type_in(bytes or text): what standard input holds from now on"""

    def hold(text):
        data = text if isinstance(text, bytes) else text.encode("utf-8")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    return hold


# --- train


def test_train_leaves_a_whole_run_and_says_where(cli, small_settings, trained, tmp_path, same_run):
    out = tmp_path / "Läufe und mehr" / "erster"
    code, printed, said = cli("train", "tiny", "--out", out, *small_settings)
    assert (code, printed) == (0, "")
    assert f"scratchformer train --resume '{out}'" in said and "12 steps done" in said  # as a shell reads it
    same_run(RunDirectory(out), trained)
    names = "config.toml tokenizer.model log.jsonl checkpoints".split()
    assert {path.name for path in out.iterdir()} == {*names}


def test_resume_takes_allowed_changes(cli, own_run):
    code, _, said = cli("train", "--resume", own_run.path, "--set", "steps=14", "--minutes", "5", "--threads", "1")
    assert code == 0 and "resumed after step 12" in said
    assert len(own_run.read_log("step")) == 14
    assert configs.load(own_run.config_file).training.minutes == 5
    assert configs.load(own_run.config_file).training.threads == 1


def test_resume_says_what_it_skipped(cli, own_run):
    own_run.checkpoints.of_step(12).write_bytes(b"damaged")
    code, _, said = cli("train", "--resume", own_run.path)
    assert code == 0
    assert "skipped" in said and "step_00000012" in said and "resumed after step 9" in said


def test_files_named_one_by_one_with_windows_line_ends(cli, corpus, small_settings, tmp_path):
    for path in corpus.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    sides = [("train", "source", "en"), ("train", "target", "de"), ("val", "source", "en"), ("val", "target", "de")]
    files = [word for split, side, end in sides for word in (f"--{split}-{side}", tmp_path / f"{split}.{end}")]
    others = [*small_settings[2:], "--set", "steps=2", "--seed", 5]
    code, _, said = cli("train", "--out", tmp_path / "run", *files, *others)
    assert code == 0, said
    config = configs.load(tmp_path / "run" / "config.toml")
    assert (config.training.seed, config.data.train_source) == (5, str(tmp_path / "train.en"))
    assert "\r" not in "".join(load_run(tmp_path / "run").tokenizer.pieces(range(60)))


# --- translate


def test_translate_standard_input_line_by_line(cli, trained, type_in):
    type_in("\r\n".join(LINES))
    code, printed, said = cli("translate", trained.path)
    assert (code, said) == (0, "")
    assert printed.split("\n") == [*load_run(trained.path).translate(LINES), ""]
    assert len(printed.split("\n")) == len(LINES) + 1 and printed.split("\n")[1] == ""


def test_translate_answers_a_pipe_before_it_ends(trained):
    expected = [line.encode() + b"\n" for line in load_run(trained.path).translate(["a dog", "a cat", "a bird"])]
    command = [sys.executable, "-m", "scratchformer", "translate", trained.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        process.stdin.write(b"a dog\na c")
        assert process.stdout.readline() == expected[0]
        process.stdin.write(b"at\n")
        assert process.stdout.readline() == expected[1]
        process.stdin.write(b"a bird")
        process.stdin.close()
        assert process.stdout.readline() == expected[2]


def test_translate_files_in_their_order(cli, trained, tmp_path):
    paths = [tmp_path / "one.en", tmp_path / "two.en"]
    for path, lines in zip(paths, (LINES, LINES[::-1])):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options, expected = ["--beam", 2, "--alpha", 0], load_run(trained.path).translate(LINES + LINES[::-1], 2, 0)
    for words in ([trained.path, *paths, *options], [*options, trained.path, *paths], [trained.path, *options, *paths]):
        assert cli("translate", *words) == (0, "".join(f"{line}\n" for line in expected), "")


@pytest.mark.parametrize("threads", [1, 2])
def test_unknown_tokens_are_told_after_the_translations(cli, trained, type_in, threads):
    lines = ["a dog", "the 🙂 dog", "ho\u0308rt"] * 50
    type_in("\n".join(lines))
    code, printed, said = cli("translate", trained.path, "--threads", threads)
    assert code == 0 and printed.count("\n") == len(lines)
    n_tokens = sum(map(len, load_run(trained.path).tokenizer.encode(lines)))
    assert said.startswith(f"100 of {n_tokens} tokens of the input are unknown to the model; 50 of 150 sentences have ")
    assert said.count("\n") == 1 and "Unicode's NFC" in said


def test_a_line_that_is_too_long_is_named(refused, trained, tmp_path, type_in):
    for name, text in (("one.en", "a dog\na cat\n"), ("two.en", ""), ("three.en", "a bird\n" + "a dog " * 5000)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    paths = [tmp_path / name for name in ("one.en", "two.en", "three.en")]
    assert f"{paths[2]}, line 2: a sentence of " in refused("translate", trained.path, *paths)
    type_in("a dog\n" + "a cat " * 5000)
    assert "standard input, line 2: a sentence of " in refused("translate", trained.path)


@pytest.mark.parametrize("line, complaint", [(b"a\xff", "not UTF-8"), (b"a cat " * 5000, "a sentence of ")])
def test_lines_before_a_bad_one_are_translated(trained, line, complaint):
    command = [sys.executable, "-m", "scratchformer", "translate", trained.path]
    done = subprocess.run(command, input=b"a dog\na cat\n" + line + b"\na bird\n", capture_output=True)
    assert done.stdout.decode().splitlines() == load_run(trained.path).translate(["a dog", "a cat"])
    assert done.returncode == 2 and done.stderr.decode().startswith(
        f"scratchformer: standard input, line 3: {complaint}"
    )


def run_in_terminal(arguments, typed=b"", closed=False):
    """Run a command in a terminal in which someone types, or which is closed at once -> exit code, what is shown"""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "scratchformer", *map(str, arguments)]
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    with subprocess.Popen(command, start_new_session=True, **streams) as process:
        os.close(theirs)
        shown = b""
        os.write(ours, typed)
        with contextlib.suppress(OSError):  # the end
            while not closed and (part := os.read(ours, 1000)):
                shown += part
        os.close(ours)
    return process.returncode, shown.decode().replace("\r\n", "\n")


def test_who_translates_on_a_terminal_is_told_what_to_type(trained):
    code, shown = run_in_terminal(["translate", trained.path], b"a dog\n\x04")
    assert code == 0 and "Type a sentence and press Enter to translate it; Ctrl-D ends.\n" in shown
    assert shown.endswith(load_run(trained.path).translate(["a dog"])[0] + "\n")


def test_a_training_goes_on_when_its_terminal_is_closed(own_run):
    run_in_terminal(["train", "--resume", own_run.path, "--set", "steps=14"], closed=True)
    assert len(own_run.read_log("step")) == 14


def test_version(capfd):
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[1] / "setup.cfg")
    with pytest.raises(SystemExit) as left:
        command_line.main(["--version"])
    assert (left.value.code, capfd.readouterr().out) == (0, f"scratchformer {setup['metadata']['version']}\n")


def test_nbest_is_line_number_score_and_text(cli, trained, type_in):
    type_in("\n".join(LINES))
    code, printed, _ = cli("translate", trained.path, "--nbest", 3)
    assert code == 0
    rows = [line.split("\t") for line in printed.split("\n")[:-1]]
    assert [int(number) for number, _, _ in rows] == [1, 1, 1, 2, 3, 3, 3, 4, 4, 4]
    scores = [float(score) for _, score, _ in rows[:3]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("wanted", ["best", "last", "file"])
def test_the_checkpoint_can_be_chosen(cli, trained, type_in, wanted):
    path = trained.checkpoints.of_step(3)
    type_in("a dog")
    code, printed, _ = cli("translate", trained.path, "--checkpoint", path if wanted == "file" else wanted)
    expected = {"file": path, "best": trained.checkpoints.best, "last": trained.checkpoints.of_step(12)}[wanted]
    assert (code, printed) == (0, load_run(trained.path, expected).translate(["a dog"])[0] + "\n")


def test_a_reader_that_has_read_enough_is_no_error():
    command = [sys.executable, "-m", "scratchformer", "config", "base"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


# --- evaluate and average


def test_the_average_is_made_and_used(cli, own_run, same):
    code, printed, _ = cli("average", own_run.path)
    assert code == 0 and "(2 checkpoints)" in printed and "step_00000009" in printed
    expected = checkpoints.average(own_run.checkpoints.steps()[-2:]).weights
    model = load_run(own_run.path).model
    assert same(model.store.named_views(model.store.data), expected)


# --- config, gradcheck, help


@pytest.mark.parametrize("name", ["base", "tiny", "E"])
def test_config_prints_toml_that_loads_back(cli, name, tmp_path):
    code, printed, _ = cli("config", name)
    path = tmp_path / "own.toml"
    path.write_text(printed, encoding="utf-8")
    assert code == 0
    assert configs.load(path) == configs.preset(name)
    assert cli("config", path) == (0, printed, "")


def test_gradcheck_prints_the_worst_of_each_parameter_and_input(cli):
    code, printed, _ = cli("gradcheck", "AddNorm")
    head, *rows, verdict = printed.splitlines()
    assert code == 0 and head.split() == ["layer", "parameter", "or", "input", "worst", "relative", "error", "verdict"]
    assert [row[27:77].strip() for row in rows] == ["input 0", "input 1", "gamma", "beta"]
    assert all(row.endswith("  ok") for row in rows) and verdict.startswith("every gradient agrees")


def test_a_wrong_gradient_is_code_1(cli, monkeypatch):
    from scratchformer.nn.layers import Linear

    right = Linear.backward
    monkeypatch.setattr(Linear, "backward", lambda self, dy, cache: 1.001 * right(self, dy, cache))
    code, printed, _ = cli("gradcheck", "Linear")
    assert code == 1 and "WRONG" in printed


SUBPARSERS = command_line.parser()[1].choices


@pytest.mark.parametrize("command", [[], *([name] for name in SUBPARSERS)])
def test_every_command_has_help(cli, capfd, command):
    with pytest.raises(SystemExit) as left:
        cli(*command, "--help")
    assert left.value.code == 0
    assert "example" in capfd.readouterr().out


def test_data_has_an_option_for_each_setting_of_a_preparation():
    names = {field.name for field in fields(Options)} - {"dataset", "languages"}
    assert sorted(PREPARATION) == sorted(names)
    assert all(SUBPARSERS["data"].get_default(name) is None for name in names)


def test_help_waits_for_nothing_that_only_some_commands_need():
    code = "import sys, scratchformer.cli; scratchformer.cli.parser(); print(*sys.modules)"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    slow = {"numpy", "matplotlib", "requests", "sacrebleu", "sentencepiece", "tqdm", "multiprocessing"}
    assert slow.isdisjoint(names)


@pytest.mark.parametrize("figure", ["loss", "schedule", "attention"])
def test_plot(cli, own_run, figure):
    code, printed, said = cli("plot", own_run.path, figure)
    assert code == 0, said
    assert (own_run.figures / f"{figure}.png").read_bytes().startswith(b"\x89PNG")


def test_runs_lists_the_sound_and_the_damaged(cli, refused, own_run, monkeypatch):
    imported, damaged = own_run.path.with_name("imported"), own_run.path.with_name("damaged")
    shutil.copytree(own_run.path, imported)
    (imported / "log.jsonl").unlink()
    shutil.copytree(own_run.path, damaged)
    (damaged / "config.toml").write_text("x =")
    own_run.record_evaluation({"bleu": 12.345})
    code, printed, _ = cli("runs", own_run.path.parent)
    titles, first, second, last = printed.splitlines()
    assert code == 0 and titles.split() == "run nearest preset task step val. loss last score size age".split()
    loss = own_run.read_log("validation")[-1]["loss"]
    row = {str(own_run.path): [f"{loss:.3f}", "bleu", "12.35"], str(imported): ["-", "-"]}
    for cells in (first.split(), second.split()):
        assert cells[1:4] == ["tiny", "translation", "12"] and cells[4:-3] == row[cells[0]] and cells[-2] == "MB"
    assert last.startswith(f"{damaged}  damaged: {damaged}/config.toml: not a TOML file")
    assert cli("runs", own_run.figures.parent / "checkpoints").out.endswith("checkpoints: there is no run here\n")
    assert "nowhere: no such directory" in refused("runs", own_run.path / "nowhere")

    def vanish(run):
        shutil.rmtree(run)
        raise FileNotFoundError(run)

    monkeypatch.setattr("scratchformer.commands.runs.described", vanish)
    assert cli("runs", own_run.path.parent).out.endswith("there is no run here\n")


# --- the entry point
