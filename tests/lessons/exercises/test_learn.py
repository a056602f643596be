"""`scratchformer learn`: the learner's directory, and files that hang, crash, print or do not even parse."""

import glob
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from exercises import runner, workbook
from exercises.catalogue import EXERCISES
from scratchformer.errors import UserError

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


def test_inside_the_directory_of_exercises_no_second_one_is_begun(cli, exercises, monkeypatch):
    monkeypatch.chdir(exercises)
    code, said, _ = cli("learn", "start")
    assert (
        code == 0 and f"0 new exercises; {len(EXERCISES)} were there" in said and not (exercises / "exercises").exists()
    )
    assert cli("learn", "check", "01_linear_backward")[0] == 1


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


def test_reset_keeps_all_that_was_ever_written(cli, exercises, write):
    for text in ("first", "second", "third"):
        write(text)
        assert cli("learn", "reset", "01_linear_backward").code == 0
    kept = {path.name: path.read_text() for path in exercises.glob("*.bak*")}
    assert kept == {
        "01_linear_backward.py.bak": "first",
        "01_linear_backward.py.bak2": "second",
        "01_linear_backward.py.bak3": "third",
    }


@pytest.fixture
def full_disk():
    """with full_disk(): no file takes a byte"""

    @contextmanager
    def limited():
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited


def test_a_full_disk_leaves_no_stub_that_is_not_whole(tmp_path, full_disk):
    directory = tmp_path / "exercises"
    with full_disk(), pytest.raises(UserError, match="00_.*: cannot write: File too large$"):
        workbook.start(directory)
    assert not list(directory.iterdir())
    assert len(workbook.start(directory)) == len(EXERCISES) + 1


def test_reset_on_a_full_disk_leaves_what_was_written(exercises, write, full_disk, files_of):
    write("mine")
    before = files_of(exercises)
    with full_disk(), pytest.raises(UserError, match="01_linear_backward.py: cannot write: File too large$"):
        workbook.reset(LINEAR, exercises)
    assert files_of(exercises) == before


def large(path):
    with open(path, "wb") as file:
        file.truncate(10**8)


# What may lie in the place of an exercise: what makes it, what `check` says, and what becomes of it by `reset`
# (None: it refuses).
ODD_FILES = {
    "nothing": (lambda path: None, "no such file; scratchformer learn reset 01_linear_backward", ": new"),
    "empty": (lambda path: path.touch(), "an empty file; scratchformer learn reset 01_linear_backward", ": new"),
    "dangling link": (lambda path: path.symlink_to("theirs"), "no such file; scratchformer learn reset", ".py.bak"),
    "circular link": (lambda path: path.symlink_to(path.name), "no such file; scratchformer learn reset", ".py.bak"),
    "link": (lambda path: path.symlink_to("../theirs.py"), "passed", ".py.bak"),
    "binary": (lambda path: path.write_bytes(bytes(range(256))), "the file cannot be loaded", ".py.bak"),
    "directory": (os.mkdir, "a directory, and should be a file", None),
    "pipe": (os.mkfifo, "no plain file, and should be a file", None),
    "large": (large, "larger than 1 MB, and should be an exercise", None),
}


@pytest.mark.parametrize("make, told, became", ODD_FILES.values(), ids=ODD_FILES)
def test_an_odd_file_is_told_and_nothing_is_lost(cli, refused, exercises, make, told, became):
    path = exercises / "01_linear_backward.py"
    theirs = exercises.parent / "theirs.py"
    theirs.write_text(RIGHT)
    path.unlink()
    make(path)
    code, said, complained = cli("learn", "check", "01_linear_backward")
    assert (code, complained) == (int(told != "passed"), "") and told in said
    was_link = path.is_symlink()
    if became:
        assert became in cli("learn", "reset", "01_linear_backward").out
        assert path.read_text() == workbook.stub(LINEAR) and not path.is_symlink()
    else:
        assert told in refused("learn", "reset", "01_linear_backward")
    assert theirs.read_text() == RIGHT
    assert path.with_name(f"{path.name}.bak").is_symlink() == was_link


@pytest.mark.parametrize("make, told, became", ODD_FILES.values(), ids=ODD_FILES)
def test_start_writes_what_is_missing_or_empty_and_leaves_the_rest(cli, exercises, make, told, became):
    path = exercises / "01_linear_backward.py"
    (exercises.parent / "theirs.py").touch()
    path.unlink()
    make(path)
    before = path.lstat() if os.path.lexists(path) else None
    code, said, _ = cli("learn", "start")
    assert code == 0
    if became == ": new":
        assert path.read_text() == workbook.stub(LINEAR) and ": 1 new exercises; " in said
        assert ("(the file was empty)" in said) == (before is not None)
    else:
        assert path.lstat() == before and ": 0 new exercises; " in said
    assert not (exercises.parent / "theirs.py").read_text()


# --- check


def test_untouched_stubs_fail_politely(cli, exercises):
    code, said, complained = cli("learn", "check")
    assert (code, complained) == (1, "")
    assert said == "".join(f"{name}: not written yet\n" for name in EXERCISES)


@pytest.mark.slow
@EVERY_EXERCISE
def test_a_stub_that_was_touched_and_not_written_fails_politely(exercise, exercises):
    path = exercises / f"{exercise.id}.py"
    path.write_text(path.read_text(encoding="utf-8") + "# I was here\n", encoding="utf-8")
    started = time.perf_counter()
    verdict = runner.verdict_on(exercise, path)
    wrong_already = "raise NotImplementedError" not in workbook.stub(exercise)  # faulty code that is to be mended
    assert verdict.state == ("not yet" if wrong_already else "not written")
    assert "Traceback" not in verdict.message
    assert time.perf_counter() - started < 60


def test_a_right_answer_passes_by_id_by_file_and_as_a_script(cli, exercises, write):
    before, _, footer = workbook.stub(LINEAR).partition("def linear_backward")
    write(before + RIGHT + footer[footer.index("\n\nif __name__") :])
    path = exercises / "01_linear_backward.py"
    for name in ("01_linear_backward", path):
        code, said, _ = cli("learn", "check", name)
        assert code == 0 and said.startswith("01_linear_backward: passed. db, dW, dx: right in all")
    done = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, said)


def test_a_script_that_is_wrong_or_of_an_unknown_name_says_so(exercises, write):
    text = workbook.stub(LINEAR).replace("raise NotImplementedError", "return None")
    for name, code, message in (
        ("01_linear_backward.py", 1, "01_linear_backward: not yet"),
        ("my_own.py", 2, "no exercise 'my_own'"),
    ):
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


MORE_CODE_THAT_BREAKS = [
    ("import nothing_of_this_name", "01_linear_backward.py, line 1, in <module>\n"),
    ("import sys\nsys.exit(0)", "the file cannot be loaded:\n  01_linear_backward.py, line 2, in <module>"),
    ("x = '\0'", "the file cannot be loaded:"),
    ("linear_backward = 1", "the file defines no function linear_backward"),
    ("def linear_backward(dy, x, W): input()", "EOFError"),
    ("raise KeyboardInterrupt", "the file cannot be loaded:\n  01_linear_backward.py, line 1, in <module>"),
    ("linear_backward = dict", "your code ends with an error"),
    ("def linear_backward(dy, x, W): raise NotImplementedError('helper missing')", "helper missing"),
]


@pytest.mark.parametrize(
    "code, message",
    [
        ("def (", 'the file cannot be loaded:\n    File "01_linear_backward.py", line 1\n'),
        ("import os\nos._exit(0)", "the process ended with code 0 before the check was through"),
        ("x = 1", "the file defines no function linear_backward"),
        (
            "def linear_backward(dy, x, W):\n    return helper(dy @ W)\ndef helper(x): return x",
            "your code ends with an error, called with dy (3, 2, 5), x (3, 2, 4), W (4, 5):\n"
            "  01_linear_backward.py, line 2, in linear_backward\n      return helper(dy @ W)\n  ValueError: matmul:",
        ),
        ("def linear_backward(dy, x, W): return linear_backward(dy, x, W)", "RecursionError"),
        ("def linear_backward(dy, x, W): raise KeyboardInterrupt", "KeyboardInterrupt"),
        (
            "from exercises.workbook import check_file\nraise SystemExit(check_file(__file__))",
            'keep the line `if __name__ == "__main__":`',
        ),
        *(pytest.param(*row, marks=pytest.mark.slow) for row in MORE_CODE_THAT_BREAKS),
    ],
)
def test_code_that_breaks_is_told_in_its_own_lines(cli, write, code, message):
    write(code)
    exit_code, said, complained = cli("learn", "check", "01_linear_backward")
    assert (exit_code, complained) == (1, "")
    assert message in said and "Traceback" not in said and "checker.py" not in said and said.count("\n") < 20


def test_code_that_does_not_end_is_stopped(write, exercises):
    write("while True: pass")
    verdict = workbook.verdict_on(LINEAR, exercises / "01_linear_backward.py", seconds=1)
    assert verdict == ("not yet", "stopped after 1 seconds: a loop that does not end?", "")


# What a learner's code may do, and a part of the verdict. The processes that it starts have the path of the exercise,
# PATH, in their command lines, so that the test finds them.
START_DAEMON = """\
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 100)
        os.execve("/bin/sh", ["sh", "-c", "sleep 60; :", PATH], {})
    os._exit(0)
"""
WRITE_EVERYWHERE = """\
import os
for number in range(3, 100):
    try:
        os.write(number, TEXT)
    except OSError:
        pass
"""
STOPPED = "stopped after 1 seconds: a loop that does not end?"
DISTURBED = "the check was disturbed: does your code end other processes"
WITHOUT = "before the check was through"
GIB = "(a check may use 4 GiB of memory)"
MB = "(a file that is written in a check may have 100 MB)"
QUICK = {"daemon without end", "stop", "kept memory", "large file"}
HOSTILE = {
    "daemon": (START_DAEMON + RIGHT, "right in all"),
    "daemon without end": (START_DAEMON + "while True: pass", STOPPED),
    "daemon of a crash": (START_DAEMON + "os.abort()", f"was ended by signal 6 (Aborted) {WITHOUT}"),
    "fork": ("import os\nos.fork()\n" + RIGHT, "right in all"),
    "background": ("import os\nos.system(f'(setsid sh -c \"sleep 60; :\" {PATH} &) &')\n" + RIGHT, "right in all"),
    "stop": ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", STOPPED),
    "kill": ("import os, signal\nos.killpg(0, signal.SIGKILL)", f"signal 9 (Killed) {WITHOUT}"),
    "kill the supervisor": ("import os\nos.kill(os.getppid(), 9)\nwhile True: pass", DISTURBED),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", f"signal 11 (Segmentation fault) {WITHOUT}"),
    "ignored signals": (
        "import signal\nfor n in 1, 2, 3, 15: signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        STOPPED,
    ),
    "exec": ("import os\nos.execv('/bin/true', ['true'])", f"ended with code 0 {WITHOUT}"),
    "closed files": ("import os\nos.closerange(0, 100)\n" + RIGHT, f"ended with code 0 {WITHOUT}"),
    "written files": (WRITE_EVERYWHERE.replace("TEXT", "b'junk\\n'"), DISTURBED),
    "written verdict": (WRITE_EVERYWHERE.replace("TEXT", 'b\'["best", "", ""]\\n\''), DISTURBED),
    "flooded files": (
        f"while True:\n{textwrap.indent(WRITE_EVERYWHERE, ' ')}".replace("TEXT", "bytes(9999)"),
        DISTURBED,
    ),
    "large array": ("import numpy\nnumpy.ones(10**10)", GIB),
    "large map": ("import mmap\nmmap.mmap(-1, 10**11)", GIB),
    "kept memory": ("kept = []\nwhile True: kept.append(b''.join([bytes(2**26)]))", GIB),
    "threads": ("import threading\nwhile True: threading.Thread(target=threading.Event().wait).start()", GIB),
    "large file": ("with open(__file__ + '.data', 'wb') as file:\n    file.seek(10**11)\n    file.write(b'x')", MB),
    "core": ("import resource\nassert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)\n" + RIGHT, "right in all"),
    "deep recursion": ("import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", STOPPED),
    "long error": ("raise ValueError(10**6 * 'x')", "xxx ..."),
    "error without text": (
        "class E(Exception):\n    def __str__(self): raise SystemExit\nraise E",
        "<exception str() failed>",
    ),
    "patched numpy": ("import numpy\nnumpy.asarray = numpy.abs = exit\n" + RIGHT, "nothing that the check can compare"),
    "patched os": ("import os\nos.write = os._exit = exit\n" + RIGHT, WITHOUT),
    "another directory": ("import os\nos.chdir('/')\n" + RIGHT, "right in all"),
    "standard input": ("import sys\nassert sys.stdin.read() == ''\n" + RIGHT, "right in all"),
    "binary": ("\0\ufffe" * 1000, "the file cannot be loaded"),
    "brackets": ("(" * 100_000, "the file cannot be loaded"),
}


def processes_about(path):
    """The command lines of the processes that have the path in them. A process that the kernel kills because its parent
    has ended may be there a moment longer than the parent: it gets five seconds."""
    deadline = time.monotonic() + 5
    while True:
        commands = []
        for name in glob.glob("/proc/[0-9]*/cmdline"):
            with suppress(OSError):
                commands.append(Path(name).read_bytes())
        found = [command for command in commands if os.fsencode(path) in command]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.01)


@pytest.mark.parametrize(
    "code, message",
    [pytest.param(*row, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, row in HOSTILE.items()],
)
def test_whatever_the_code_does_there_is_a_verdict_and_nothing_is_left(
    exercises, write, tmp_path, monkeypatch, code, message
):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    path = exercises / "01_linear_backward.py"
    write(f"PATH = {str(path)!r}\n{code}" if "PATH" in code else code)
    verdict = workbook.verdict_on(LINEAR, path, seconds=1 if message == STOPPED else 30)
    assert message in verdict.message and (verdict.state == "passed") == (message == "right in all")
    assert len(verdict.message) < 6000 and verdict.message.count("\n") < 12
    assert not processes_about(path)
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("number", [1, 2])
def test_what_is_printed_without_end_is_cut(cli, write, number):
    write(f"import os\nfor time in range(20): os.write({number}, 10**6 * b'x')\n" + RIGHT)
    code, said, _ = cli("learn", "check", "01_linear_backward")
    first, note, verdict, _ = said.split("\n")
    assert code == 0 and set(first) == {"x"} and len(first) == 10**6
    assert note == "(your code printed more than 1 MB; the rest is not shown)" and "passed" in verdict


def begun(*arguments):
    """The command, as a process; its output ends when all have ended that were started by it."""
    command = [sys.executable, "-m", "scratchformer", "learn", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_what_the_code_has_started_ends_with_the_check(write):
    write("import subprocess\nsubprocess.Popen(['sleep', '300'])\n" + RIGHT)
    started = time.perf_counter()
    assert "passed" in begun("check", "01_linear_backward").communicate()[0]
    assert time.perf_counter() - started < 60


@pytest.mark.parametrize(
    "blow",
    [
        signal.SIGINT,
        *(pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGTERM, signal.SIGHUP)),
        signal.SIGKILL,
    ],
)
def test_a_check_ends_with_the_command_that_asked(exercises, write, blow):
    path = exercises / "01_linear_backward.py"
    write(f"PATH = {str(path)!r}\n{START_DAEMON}print('here I am')\nwhile True: pass")
    command = begun("check", "01_linear_backward")
    assert command.stdout.readline() == "here I am\n"
    started = time.perf_counter()
    command.send_signal(blow)
    said, complained = command.communicate()
    assert time.perf_counter() - started < workbook.SECONDS - 1
    assert not processes_about(path)
    if blow == signal.SIGINT:
        assert (command.returncode, said, complained) == (130, "", "scratchformer: interrupted\n")


def test_a_check_is_over_although_a_thread_of_the_learners_is_not(exercises, write):
    write("import threading, time\nthreading.Thread(target=time.sleep, args=[60]).start()\n" + RIGHT)
    started = time.perf_counter()
    assert workbook.verdict_on(LINEAR, exercises / "01_linear_backward.py").state == "passed"
    assert time.perf_counter() - started < workbook.SECONDS - 1


def test_the_file_is_read_as_it_is_now(exercises, write, monkeypatch):
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = exercises / "01_linear_backward.py"
    for code, state in ((RIGHT, "passed"), (RIGHT.replace("@ W.T", "@-W.T"), "not yet")):
        write(code)
        os.utime(path, (10**9, 10**9))
        assert runner.verdict_on(LINEAR, path).state == state
    assert not (exercises / "__pycache__").exists()


def test_modules_come_from_beside_the_file_and_not_from_the_current_directory(exercises, write, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder in (elsewhere, exercises):
        for name in ("random.py", "inspect.py"):
            (folder / name).write_text("raise SystemExit('not the one that was meant')")
    (exercises / "helper.py").write_text(RIGHT)
    write("import random\nfrom helper import linear_backward")
    monkeypatch.chdir(elsewhere)
    assert workbook.verdict_on(LINEAR, exercises / "01_linear_backward.py").state == "passed"


def test_a_dataclass_with_deferred_annotations_can_be_loaded(exercises, write):
    write(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n@dataclass\nclass A:\n    x: int\n"
        + RIGHT
    )
    assert runner.verdict_on(LINEAR, exercises / "01_linear_backward.py").state == "passed"


def test_a_link_to_a_file_of_another_name_is_followed(exercises):
    path = exercises / "01_linear_backward.py"
    (exercises / "mine.txt").write_text(RIGHT)
    path.unlink()
    path.symlink_to("mine.txt")
    assert workbook.verdict_on(LINEAR, path).state == "passed"


def test_any_character_can_be_printed_and_be_in_a_message(exercises, write):
    write("print('\u00fc \\udc80')\ndef linear_backward(dy, x, W): raise ValueError('gr\u00f6\u00dfer \u2192 \\udc80')")
    done = subprocess.run(
        [sys.executable, "-m", "scratchformer", "learn", "check", "01_linear_backward"],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 1 and not done.stderr and done.stdout.startswith("\u00fc \\udc80\n")
    assert "ValueError: gr\u00f6\u00dfer \u2192 \\udc80\n" in done.stdout


@pytest.mark.parametrize("error, code", [(KeyboardInterrupt(), 130), (OSError("the disk is full"), 2)])
def test_a_script_that_is_interrupted_or_cannot_be_checked_says_so(exercises, monkeypatch, capsys, error, code):
    def fail(exercise, path):
        raise error

    monkeypatch.setattr(workbook, "verdict_on", fail)
    assert workbook.check_file(str(exercises / "01_linear_backward.py")) == code
    assert capsys.readouterr().err == f"scratchformer: {str(error) or 'interrupted'}\n"


def test_a_lesson_may_be_called_by_its_number_without_the_zero():
    assert workbook.named("1") == workbook.named("01")


@pytest.mark.parametrize(
    "name, code, message",
    [
        ("00_next_word", "def where_to_look(): return {'Am': ['On']}", "['On'], and should be words"),
        ("00_next_word", "def where_to_look(): return {1: 'a', 'b': 'c'}", "numbers, and should be words"),
        ("00_next_word", "def where_to_look(): return {None: None, 'b': None}", "None, and should be words"),
        (
            "01_linear_backward",
            "import numpy as np\n" "def linear_backward(dy, x, W): return {'db': np.broadcast_to(0.0, (10**6, 10**6))}",
            "db is of shape (1000000, 1000000), expected (5,)",
        ),
        (
            "04_cross_attention",
            "import numpy as np\ndef cross_attention(x, memory, W_Q, W_K, W_V):\n"
            "    return np.full((*x.shape[:2], W_V.shape[1]), np.nan)",
            "wrong, wherever queries, keys and values are taken",
        ),
        (
            "06_find_the_leak",
            "def leaks(f, x): return f(x) != x",
            "it returns a ndarray, and should return True or False",
        ),
        (
            "06_shift_right",
            "import numpy as np\ndef shift_right(sentences):\n    sentences[0] = np.array(sentences[0])",
            "the argument sentences is changed in place",
        ),
        ("07_wrong_split", "def multi_head(q, k, v, h): return q.tolist()", "not those of equation 1 in each head"),
        (
            "12_repair_layer_norm",
            "import numpy as np\n"
            "from exercises.lesson_12 import layer_norm as right\n"
            "def layer_norm(x, gamma, beta, dy):\n"
            "    return {name: np.squeeze(value) for name, value in right(x, gamma, beta, dy).items()}",
            "y is of shape (8,), expected (1, 1, 8), for a single row",
        ),
        (
            "12_repair_layer_norm",
            "def layer_norm(x, gamma, beta, dy):\n"
            "    return {'y': 0 * x, 'dx': 0 * x, 'dgamma': 0 * gamma, 'dbeta': 0 * beta}",
            "0 of 5 bugs repaired",
        ),
        (
            "01_linear_backward",
            "class Odd(dict):\n    def __iter__(self): raise OSError('none of your business')\n"
            "def linear_backward(dy, x, W): return Odd()",
            "what your function returns is nothing that the check can compare:\n"
            "01_linear_backward.py, line 2, in __iter__",
        ),
    ],
)
def test_a_strange_result_is_told_and_not_stumbled_over(exercises, name, code, message):
    path = exercises / f"{name}.py"
    path.write_text(code)
    verdict = runner.verdict_on(EXERCISES[name], path)
    assert verdict.state == "not yet" and message in verdict.message and "checker.py" not in verdict.message


@pytest.mark.parametrize("place", ["beginning", "function"])
def test_error_settings_of_the_learners_do_not_hold_for_the_check(exercises, place):
    path = exercises / "04_attention.py"
    setting = "np.seterr(all='raise')\n"
    path.write_text(
        "import numpy as np\nfrom exercises.lesson_04 import attention as right\n"
        + (setting if place == "beginning" else "")
        + "def attention(q, k, v):\n    y = right(q, k, v)\n    "
        + (setting if place == "function" else "\n")
        + "    return y\n"
    )
    assert runner.verdict_on(EXERCISES["04_attention"], path).state == "passed"


@pytest.mark.parametrize("seen", ["[:, s - 1]", "[:, :s, 0]"])
def test_a_flow_test_that_looks_at_a_part_of_the_outputs_only_is_refused(exercises, seen):
    path = exercises / "06_find_the_leak.py"
    path.write_text(
        "import numpy as np\ndef leaks(f, x):\n    def moved(s):\n        changed = x.copy()\n"
        "        changed[:, s] = np.random.default_rng(s).normal(size=changed[:, s].shape)\n"
        "        return abs(f(changed) - f(x))\n"
        f"    return any((moved(s){seen} > 1e-9).any() for s in range(1, x.shape[1]))\n"
    )
    verdict = runner.verdict_on(EXERCISES["06_find_the_leak"], path)
    assert verdict.state == "not yet" and "number 2 of word 4 reaches number 1 of output 2" in verdict.message


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
    states = dict(re.match(r"(\S+) +\w+ +(\w+(?: \w+)?) {2}", line).groups() for line in said.splitlines())
    assert states.pop("01_linear_backward") == "passed" and states.pop("01_gradient_check") == "not yet"
    assert set(states.values()) == {"not written"}


def test_who_leaves_the_list_early_waits_for_nothing(exercises, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    for name in list(EXERCISES)[1:]:
        (exercises / f"{name}.py").write_text("while True: pass")
    begun = []
    monkeypatch.setattr(
        workbook, "begin", lambda *arguments, begin=workbook.begin: begun.append(begin(*arguments)) or begun[-1]
    )
    started = time.perf_counter()
    listed = workbook.states(exercises)
    assert next(listed)[1] == "not written"
    listed.close()
    assert time.perf_counter() - started < workbook.SECONDS - 1
    assert [supervisor.returncode for supervisor, answer in begun] == [0, 0]


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
    assert any(f"{folder}/" in said for folder in ("scratchformer", "lessons/support", "lessons/exercises"))


# --- bad input


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["hint", "01_linear_backwards"], "did you mean '01_linear_backward'?"),
        (["hint", "01"], "lesson 01 has several exercises: 01_linear_backward, "),
        (["solution", "99"], "no exercise '99'; there are 0"),
        (["check", "--dir", "nowhere"], "nowhere: no such directory; scratchformer learn start nowhere"),
        (["list", "--dir", "nowhere"], "nowhere: no such directory"),
        (["reset", "01_linear_backward", "--dir", "nowhere"], "nowhere: no such directory"),
        (["check", "nowhere/01_linear_backward.py"], "nowhere/01_linear_backward.py: no such file"),
        (["check", "notes.py"], "no exercise 'notes'"),
        (["start", "notes.py"], "notes.py: a file, and should be a directory"),
        (["start", "pipe"], "pipe: a file, and should be a directory"),
        (["start", "link"], "link: cannot make the directory: File exists"),
        (["start", "circle"], "circle: cannot make the directory: File exists"),
        (["start", "notes.py/below"], "notes.py/below: cannot make the directory: Not a directory"),
        (["start", "/proc/nowhere"], "/proc/nowhere: cannot make the directory: "),
        (["start", "x" * 300], "File name too long"),
        *((["check", "--dir", name], f"{name}: no such directory") for name in ("notes.py", "pipe", "link", "circle")),
        (["check", "--dir", "line\nbreak"], "line\\nbreak: no such directory"),
        (["check", "--dir", "\udcff"], "\\udcff: no such directory"),
        (["check", "--dir", ""], "argument --dir: it is empty"),
        (["check", ""], "argument ID: it is empty"),
        (["check", "folder"], "folder: a directory; scratchformer learn check --dir folder"),
        (["check", "line\nbreak"], "no exercise 'line\\nbreak'"),
        (["check", "\udcff.py"], "\\udcff.py: no such file"),
        (["check", "x" * 300 + ".py"], "x.py: no such file"),
        (["check", ".py"], ".py: no such file"),
        (["reset", ""], "argument ID: it is empty"),
        (["reset", "-1"], "no exercise '-1'"),
        (["solution", ""], "argument ID: it is empty"),
        (["hint", "01_linear_backward", "9"], "9 must lie between 1 and 3"),
        (["hint", "01_linear_backward", "x"], "'x' is not a whole number"),
        (["chekc"], "invalid choice: 'chekc'"),
    ],
)
def test_bad_input_is_one_line(refused, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.py").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "pipe")
    assert message in refused("learn", *arguments)


def test_a_file_that_is_missing_is_told_and_the_others_are_checked(cli, exercises):
    (exercises / "01_linear_backward.py").unlink()
    code, said, _ = cli("learn", "check", "01")
    assert code == 1 and "no such file; scratchformer learn reset 01_linear_backward --dir exercises" in said
    assert "01_gradient_check: not written yet" in said


def test_a_directory_in_the_place_of_an_exercise_is_told(cli, refused, exercises):
    (exercises / "01_linear_backward.py").unlink()
    (exercises / "01_linear_backward.py").mkdir()
    code, said, _ = cli("learn", "check", "01_linear_backward")
    assert code == 1 and "01_linear_backward.py: a directory, and should be a file" in said
    assert "01_linear_backward.py: a directory" in refused("learn", "reset", "01_linear_backward")
