"""`scratchformer learn`: the learner's directory, and files that hang, crash, print or do not even parse."""

import subprocess
import sys
import time

import pytest

from scratchformer.study.exercises import runner, workbook
from scratchformer.study.exercises.catalogue import EXERCISES

EVERY_EXERCISE = pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
LINEAR = EXERCISES["01_linear_backward"]
RIGHT = """\
def linear_backward(dy, x, W):
    rows = dy.reshape(-1, dy.shape[-1])
    return {"db": rows.sum(axis=0), "dW": x.reshape(-1, x.shape[-1]).T @ rows, "dx": dy @ W.T}
"""


@pytest.fixture
def exercises(tmp_path, monkeypatch):
    """A directory `exercises`, laid out, in the current directory."""
    monkeypatch.chdir(tmp_path)
    workbook.start(tmp_path / "exercises")
    return tmp_path / "exercises"


@pytest.fixture
def write(exercises):
    """write(code): what the learner puts in place of the first exercise"""
    return lambda code: (exercises / "01_linear_backward.py").write_text(code, encoding="utf-8")


# --- start, reset


def test_start_lays_out_what_is_not_there(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said, _ = cli("learn", "start")
    assert code == 0 and said.endswith(f"exercises: {len(EXERCISES)} new exercises\n")
    assert {path.stem for path in (tmp_path / "exercises").iterdir()} == set(EXERCISES)


def test_start_never_overwrites(cli, exercises, write, files_of):
    write("mine")
    (exercises / "01_gradient_check.py").unlink()
    before = files_of(exercises)
    code, said, _ = cli("learn", "start", exercises)
    assert code == 0 and f"1 new exercises; {len(EXERCISES) - 1} were there and are as they were" in said
    assert {path: data for path, data in files_of(exercises).items() if path in before} == before


def test_reset_keeps_what_was_written(cli, exercises, write):
    write("mine")
    code, said, _ = cli("learn", "reset", "01_linear_backward")
    assert code == 0 and "01_linear_backward.py.bak" in said
    assert (exercises / "01_linear_backward.py.bak").read_text() == "mine"
    assert (exercises / "01_linear_backward.py").read_text() == workbook.stub(LINEAR)
    assert "already" in cli("learn", "reset", "01_linear_backward").out
    (exercises / "01_linear_backward.py").unlink()
    assert "new" in cli("learn", "reset", "01_linear_backward").out
    assert (exercises / "01_linear_backward.py.bak").read_text() == "mine"


# --- check


def test_untouched_stubs_fail_politely(cli, exercises):
    code, said, complained = cli("learn", "check")
    assert (code, complained) == (1, "")
    assert said == "".join(f"{name}: not written yet\n" for name in EXERCISES)


@EVERY_EXERCISE
def test_a_stub_that_was_touched_and_not_written_fails_politely(exercise, exercises):
    path = exercises / f"{exercise.id}.py"
    path.write_text(path.read_text(encoding="utf-8") + "# I was here\n", encoding="utf-8")
    started = time.perf_counter()
    verdict = runner.verdict_on(exercise, path)
    wrong_already = "raise NotImplementedError" not in workbook.stub(exercise)     # faulty code that is to be mended
    assert verdict.state == ("not yet" if wrong_already else "not written")
    assert "Traceback" not in verdict.message
    assert time.perf_counter() - started < 2


def test_a_right_answer_passes_by_id_by_file_and_as_a_script(cli, exercises, write):
    before, _, footer = workbook.stub(LINEAR).partition("def linear_backward")
    write(before + RIGHT + footer[footer.index("\n\nif __name__"):])
    path = exercises / "01_linear_backward.py"
    for name in ("01_linear_backward", path):
        code, said, _ = cli("learn", "check", name)
        assert code == 0 and said.startswith("01_linear_backward: passed. db, dW, dx: right in all")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, said)


def test_a_script_that_is_wrong_or_of_an_unknown_name_says_so(exercises, write):
    text = workbook.stub(LINEAR).replace("raise NotImplementedError", "return None")
    for name, code, message in (("01_linear_backward.py", 1, "01_linear_backward: not yet"),
                                ("my_own.py", 2, "no exercise 'my_own'")):
        (exercises / name).write_text(text)
        done = subprocess.run([sys.executable, exercises / name], capture_output=True, text=True)
        assert done.returncode == code and message in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_a_lesson_is_checked_as_a_whole(cli, exercises, write):
    write(RIGHT)
    code, said, _ = cli("learn", "check", "01")
    assert code == 1
    assert "01_linear_backward: passed" in said and "01_gradient_check: not written yet" in said and "05_" not in said


def test_a_wrong_answer_is_told_why(cli, write):
    write(RIGHT.replace("rows.sum(axis=0)", "-rows.sum(axis=0)"))
    code, said, _ = cli("learn", "check", "01_linear_backward")
    assert code == 1
    assert "db is wrong: the sign is flipped" in said and "scratchformer learn hint 01_linear_backward" in said


@pytest.mark.parametrize("code, message", [
    ("def (", 'the file cannot be loaded:\n    File "01_linear_backward.py", line 1\n'),
    ("import nothing_of_this_name", "01_linear_backward.py, line 1, in <module>\n"),
    ("import sys\nsys.exit(0)", "the file cannot be loaded:\n  01_linear_backward.py, line 2, in <module>"),
    ("import os\nos._exit(0)", "the process ended with code 0 before the check was through"),
    ("x = '\0'", "the file cannot be loaded:"),
    ("x = 1", "the file defines no function linear_backward"),
    ("linear_backward = 1", "the file defines no function linear_backward"),
    ("def linear_backward(dy, x, W):\n    return helper(dy @ W)\ndef helper(x): return x",
     "your code ends with an error, called with dy (3, 2, 5), x (3, 2, 4), W (4, 5):\n"
     "  01_linear_backward.py, line 2, in linear_backward\n      return helper(dy @ W)\n  ValueError: matmul:"),
    ("def linear_backward(dy, x, W): return linear_backward(dy, x, W)", "RecursionError"),
    ("def linear_backward(dy, x, W): input()", "EOFError"),
])
def test_code_that_breaks_is_told_in_its_own_lines(cli, write, code, message):
    write(code)
    exit_code, said, complained = cli("learn", "check", "01_linear_backward")
    assert (exit_code, complained) == (1, "")
    assert message in said and "Traceback" not in said and "checker.py" not in said and said.count("\n") < 20


def test_code_that_does_not_end_is_stopped(write, exercises):
    write("while True: pass")
    verdict = workbook.verdict_on(LINEAR, exercises / "01_linear_backward.py", seconds=2)
    assert verdict == ("not yet", "stopped after 2 seconds: a loop that does not end?", "")


def test_prints_are_shown_by_check_and_not_by_list(cli, write):
    write("print('here I am')\n" + RIGHT)
    assert "here I am\n01_linear_backward: passed" in cli("learn", "check", "01_linear_backward").out
    assert "here I am" not in cli("learn", "list").out


# --- list, hint, solution


def test_list_finds_out_how_far_one_is(cli, exercises, write):
    write(RIGHT)
    (exercises / "01_gradient_check.py").write_text("def (")
    code, said, _ = cli("learn", "list")
    assert code == 0
    assert [line.split()[0] for line in said.splitlines()] == list(EXERCISES)
    states = {line[:32].strip(): line[43:55].strip() for line in said.splitlines()}
    assert states.pop("01_linear_backward") == "passed" and states.pop("01_gradient_check") == "not yet"
    assert set(states.values()) == {"not written"}


def test_hints_come_one_at_a_time_and_lead_on(cli):
    said = [cli("learn", "hint", "01_linear_backward", *number).out for number in ([], [1], [2], [3])]
    assert said[0] == said[1] and len(set(said)) == 3
    assert "scratchformer learn hint 01_linear_backward 2)" in said[1]
    assert "scratchformer learn solution 01_linear_backward)" in said[3]


@EVERY_EXERCISE
def test_the_solution_is_the_source_of_the_library(cli, exercise):
    code, said, _ = cli("learn", "solution", exercise.id)
    assert code == 0 and f"def {exercise.solution.__name__}(" in said
    assert all(f": {function.__qualname__}\n" in said for function in exercise.library)
    assert "scratchformer/" in said


# --- bad input


@pytest.mark.parametrize("arguments, message", [
    (["hint", "01_linear_backwards"], "did you mean '01_linear_backward'?"),
    (["hint", "01"], "lesson 01 has several exercises: 01_linear_backward, "),
    (["solution", "99"], "no exercise '99'; there are 0"),
    (["check", "--dir", "nowhere"], "nowhere: no such directory; scratchformer learn start nowhere"),
    (["list", "--dir", "nowhere"], "nowhere: no such directory"),
    (["reset", "01_linear_backward", "--dir", "nowhere"], "nowhere: no such directory"),
    (["check", "nowhere/01_linear_backward.py"], "nowhere/01_linear_backward.py: no such file"),
    (["check", "notes.py"], "no exercise 'notes'"),
    (["start", "notes.py"], "notes.py: a file, and should be a directory"),
])
def test_bad_input_is_one_line(refused, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.py").write_text("")
    assert message in refused("learn", *arguments)


def test_a_file_that_is_missing_is_told_and_the_others_are_checked(cli, exercises):
    (exercises / "01_linear_backward.py").unlink()
    code, said, _ = cli("learn", "check", "01")
    assert code == 1 and "no such file; scratchformer learn reset 01_linear_backward" in said
    assert "01_gradient_check: not written yet" in said
