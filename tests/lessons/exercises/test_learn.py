"""`scratchformer learn`: the learner's directory, and code that hangs, crashes, prints or does not even parse."""

import ast
import glob
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import pytest

from exercises import actions, desk
from exercises.catalogue import FILES, FUNCTIONS
from exercises.hunts import HUNTS
from exercises.source import functions_of_ours, source_of_ours

RIGHT = """\
    of_x, of_W, of_y = re.split(",|->", letters)
    dy = yield einsum(letters, x, W.data)
    W.grad += einsum(f"{of_x},{of_y}->{of_W}", x, dy)
    return einsum(f"{of_y},{of_W}->{of_x}", dy, W.data)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The learner's directory, new, in a current directory with a space in its name."""
    here = tmp_path / "le arn"
    here.mkdir()
    monkeypatch.chdir(here)
    desk.start(here / desk.USUAL)
    return here / desk.USUAL


@pytest.fixture
def write(mine):
    """write(body, name="linear", file="transformer"): what the learner puts in the place of `...`"""

    def put(body, name="linear", file="transformer"):
        path = mine / f"{file}.py"
        text = path.read_text("utf-8")
        lines = text.splitlines()
        node = next(n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == name)
        lines[node.body[0].end_lineno : node.end_lineno] = body.rstrip("\n").splitlines()
        path.write_text("\n".join(lines) + "\n", "utf-8")

    return put


def body_of_ours(name):
    """The lines of our function below its docstring."""
    file = FUNCTIONS[name].file
    text = source_of_ours(file, name)
    node = ast.parse(text).body[0]
    return "\n".join(text.splitlines()[node.body[0].end_lineno :])


# --- start


def test_start_writes_our_files_with_empty_functions(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said, _ = cli("learn", "start")
    assert (
        code == 0
        and f"{len(FILES['transformer'])} functions to write" in said
        and "next: write linear (lesson 01, docs/lessons/01_" in said
    )
    for file, names in FILES.items():
        text = (tmp_path / desk.USUAL / f"{file}.py").read_text("utf-8")
        compile(text, file, "exec")
        assert text.count("\n    ...\n") == len(names)
        assert max(map(len, text.splitlines())) <= 100 + len(str(tmp_path))
        for name, node in functions_of_ours(file).items():
            assert ast.get_docstring(node).splitlines()[0] in text
    assert {path.stem for path in (tmp_path / desk.USUAL / "hunts").iterdir()} == set(HUNTS)


def test_start_again_keeps_what_is_there_and_adds_what_is_missing(cli, mine, write, files_of):
    write(RIGHT)
    path = mine / "transformer.py"
    text = path.read_text("utf-8")
    node = functions_of_ours("transformer")["softmax"]
    del node
    gone = text.replace(desk.decorators("softmax") + desk.emptied("softmax") + "\n", "")
    assert gone != text
    path.write_text(gone, "utf-8")
    others = {file: data for file, data in files_of(mine).items() if file != path}
    code, said, _ = cli("learn", "start")
    assert code == 0 and "kept, and added softmax" in said and "more.py: kept as it is" in said
    after = path.read_text("utf-8")
    assert RIGHT in after and desk.emptied("softmax") in after and after.index("def softmax") < after.index("__main__")
    assert {file: data for file, data in files_of(mine).items() if file != path} == others
    assert cli("learn", "check", "linear").code == 0


@pytest.mark.parametrize("folder", [".", "hunts", ".."])
def test_it_works_from_here_from_a_folder_below_and_from_the_one_above(cli, mine, write, monkeypatch, folder):
    write(RIGHT)
    monkeypatch.chdir(mine / folder)
    assert cli("learn", "check", "linear").code == 0
    assert f"1 of {len(FILES['transformer'])} functions are yours: linear" in cli("learn").out


def test_a_full_disk_leaves_no_file_that_is_not_whole(refused, tmp_path, monkeypatch):
    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(desk, "replace_text", full)
    assert "No space left" in refused("learn", "start", tmp_path / "mine")
    assert not list((tmp_path / "mine").glob("*.py"))


def large(path):
    with open(path, "wb") as file:
        file.truncate(10**8)


@pytest.mark.parametrize(
    "make, message",
    [
        (os.mkdir, "a directory, and should be a file"),
        (os.mkfifo, "no plain file, and should be a file"),
        (large, "larger than 1 MB, and should be a file of yours"),
        (lambda path: path.write_bytes(bytes(range(256))), "no UTF-8 text"),
        (lambda path: path.write_text("def ("), "line 1: invalid syntax"),
        (lambda path: path.write_text("(" * 10**5), "mend it first"),
    ],
    ids=["directory", "pipe", "large", "binary", "syntax", "brackets"],
)
def test_an_odd_file_is_told_and_kept(refused, mine, make, message):
    path = mine / "transformer.py"
    path.unlink()
    make(path)
    before = path.lstat()
    for command in (["check", "linear"], ["check"], ["start"], ["train"], []):
        assert message in refused("learn", *command)
    assert path.lstat() == before


# --- check


def test_a_new_file_has_nothing_to_check(cli, mine):
    code, said, _ = cli("learn", "check")
    assert (code, said) == (1, "nothing is written yet; scratchformer learn says what is next\n")
    names = [*FUNCTIONS, *HUNTS]
    code, said, _ = cli("learn", "check", *names)
    assert code == 1
    assert said.count(": not written yet\n") == len(FUNCTIONS) and said.count(": not yet\n") == len(HUNTS)


def test_a_right_function_passes_and_the_next_is_named(cli, mine, write):
    write(RIGHT)
    code, said, _ = cli("learn", "check", "linear")
    assert code == 0 and said.startswith("linear: passed. y, dx, W.grad right in ") and "\nnext: " in said
    assert cli("learn", "check", "1").code == 1  # lesson 01 has another function, too


def test_a_wrong_function_is_told_why_and_does_not_stop_the_others(cli, write, monkeypatch):
    monkeypatch.setattr(desk, "SECONDS", 1.0)
    write(RIGHT.replace("W.grad +=", "W.grad -="))
    write("    while True: pass", "softmax")
    write(body_of_ours("attention"), "attention")
    code, said, _ = cli("learn", "check", "linear", "softmax", "attention")
    assert code == 1 and "W.grad is wrong: the sign is flipped" in said
    assert "softmax: not yet\n  stopped after 1 seconds: a loop that does not end?" in said
    assert "attention: passed" in said


def test_closures_are_as_good(cli, mine, write):
    path = mine / "transformer.py"
    closure = """\
    y = einsum(letters, x, W.data)

    def backward(dy):
        of_x, of_W, of_y = re.split(",|->", letters)
        W.grad += einsum(f"{of_x},{of_y}->{of_W}", x, dy)
        return einsum(f"{of_y},{of_W}->{of_x}", dy, W.data)

    return y, backward
"""
    write(closure)
    assert cli("learn", "check", "linear").code == 0
    path.write_text(path.read_text().replace("@differentiable\ndef linear", "def linear"))
    assert cli("learn", "check", "linear").code == 0


@pytest.mark.parametrize(
    "body, message",
    [
        (RIGHT.replace("+=", "="), "W.grad is overwritten: gradients add up, so write W.grad += ..."),
        (RIGHT.replace("W.grad +=", "W.grad[...] ="), "W.grad is"),
        (RIGHT.replace("    return", "    dx ="), "backward of linear returns None: it ends with `return dx`"),
        (RIGHT.replace("dy = yield", "return"), "linear has no `yield`"),
        (RIGHT.replace("    return", "    yield"), "linear has a second `yield`: backward ends with `return`"),
        (RIGHT.replace("    W.grad", "    x *= 2\n    W.grad"), "is changed in place: make a new one"),
        ("    return helper(x)", ", in linear\n      return helper(x)\n  NameError: name 'helper'"),
        ("    return linear(letters, x, W)", "RecursionError"),
        ("    raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("    exit('done')", "SystemExit: done"),
        ("    import os; os._exit(0)", "the process ended with code 0 before the check was through"),
    ],
)
def test_a_slip_and_an_error_are_told_in_her_own_lines(cli, write, body, message):
    write(body)
    code, said, complained = cli("learn", "check", "linear")
    assert (code, complained) == (1, "")
    assert message in said and "Traceback" not in said and "checker.py" not in said and said.count("\n") < 20


def test_a_missing_decorator_is_named(cli, mine, write):
    write(RIGHT)
    path = mine / "transformer.py"
    path.write_text(path.read_text().replace("@differentiable\ndef linear", "def linear"))
    assert "no line @differentiable above its `def`" in cli("learn", "check", "linear").out
    path.write_text(path.read_text().replace("def linear", "def my_linear"))
    assert "linear: not yet\n  missing in transformer.py: scratchformer learn start adds it" in (
        cli("learn", "check", "linear").out
    )


def test_an_error_while_the_file_is_loaded_is_told(cli, mine, write):
    write(RIGHT)
    path = mine / "transformer.py"
    path.write_text(path.read_text().replace("rng = ", "rng = 1 / 0\nrng = "))
    code, said, _ = cli("learn", "check", "linear")
    assert code == 1 and "in <module>\n      rng = 1 / 0\n  ZeroDivisionError" in said


# What a learner's code may do, and a part of the verdict. The processes that it starts have PATH in their command
# lines, so that the test finds them.
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
PASSED = "passed"
STOPPED = "stopped after 1 seconds: a loop that does not end?"
DISTURBED = "the check was disturbed: does your code end other processes"
WITHOUT = "before the check was through"
GIB = "(your code may use 4 GiB of memory)"
MB = "(a file that your code writes may have 100 MB)"
QUICK = {"daemon without end", "stop", "kept memory", "large file"}
HOSTILE = {
    "daemon": (START_DAEMON, PASSED),
    "daemon without end": (START_DAEMON + "while True: pass", STOPPED),
    "daemon of a crash": (START_DAEMON + "os.abort()", f"was ended by signal 6 (Aborted) {WITHOUT}"),
    "background": ("import os\nos.system(f'(setsid sh -c \"sleep 60; :\" {PATH!r} &) &')\n", PASSED),
    "stop": ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", STOPPED),
    "kill": ("import os, signal\nos.killpg(0, signal.SIGKILL)", f"signal 9 (Killed) {WITHOUT}"),
    "kill the supervisor": ("import os\nos.kill(os.getppid(), 9)\nwhile True: pass", DISTURBED),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", f"signal 11 (Segmentation fault) {WITHOUT}"),
    "ignored signals": (
        "import signal\nfor n in 1, 2, 3, 15: signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        STOPPED,
    ),
    "exec": ("import os\nos.execv('/bin/true', ['true'])", f"ended with code 0 {WITHOUT}"),
    "closed files": ("import os\nos.closerange(0, 100)\n", WITHOUT),
    "written files": (WRITE_EVERYWHERE.replace("TEXT", "b'junk\\n'"), DISTURBED),
    "large array": ("np.ones(10**10)", GIB),
    "kept memory": ("kept = []\nwhile True: kept.append(b''.join([bytes(2**26)]))", GIB),
    "threads": ("import threading\nwhile True: threading.Thread(target=threading.Event().wait).start()", GIB),
    "large file": ("with open(__file__ + '.data', 'wb') as file:\n    file.seek(10**11)\n    file.write(b'x')", MB),
    "deep recursion": ("import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()", STOPPED),
    "long error": ("raise ValueError(10**6 * 'x')", "xxx ..."),
    "patched os": ("import os\nos.write = os._exit = exit\n", WITHOUT),
    "another directory": ("import os\nos.chdir('/')\n", PASSED),
    "standard input": ("import sys\nassert sys.stdin.read() == ''\n", PASSED),
    "thread": ("import threading, time\nthreading.Thread(target=time.sleep, args=[60]).start()\n", PASSED),
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
    mine, write, tmp_path, monkeypatch, code, message
):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(desk, "SECONDS", 1 if message == STOPPED else 30)
    write(textwrap.indent(f"PATH = {str(mine / 'marker')!r}\n{code}", "    ").rstrip() + "\n" + RIGHT)
    ((name, (state, said, _)),) = desk.check(["linear"], mine, quiet=True)
    assert name == "linear" and state == ("passed" if message == PASSED else "not yet")
    assert message == PASSED or message in said
    assert len(said) < 6000 and said.count("\n") < 14
    assert not processes_about(mine / "marker")
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("number", [1, 2])
def test_what_is_printed_without_end_is_cut(write, number):
    write(f"    import os\n    os.write({number}, 10**5 * b'x')\n" + RIGHT)
    said = begun("check", "linear").communicate()[0]
    first, note, verdict = said.split("\n")[:3]
    assert set(first) == {"x"} and len(first) == 10**6
    assert note == "(your code printed more than 1 MB; the rest is not shown)" and "passed" in verdict


def begun(*arguments):
    """The command, as a process; its output ends when all have ended that were started by it."""
    command = [sys.executable, "-m", "scratchformer", "learn", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_a_check_ends_with_the_command_that_asked(mine, write, blow):
    code = f"PATH = {str(mine / 'marker')!r}\n{START_DAEMON}print('here I am')\nwhile True: pass"
    write(textwrap.indent(code, "    "))
    command = begun("check", "linear")
    assert command.stdout.readline() == "here I am\n"
    started = time.perf_counter()
    command.send_signal(blow)
    said, complained = command.communicate()
    assert time.perf_counter() - started < desk.SECONDS - 1
    assert not processes_about(mine / "marker")
    if blow == signal.SIGINT:
        assert (command.returncode, said, complained) == (130, "", "scratchformer: interrupted\n")


def test_a_module_beside_her_file_is_found_and_does_not_stand_in_for_pythons(cli, mine, write):
    for name in ("random.py", "inspect.py"):
        (mine / name).write_text("raise SystemExit('not the one that was meant')")
    (mine / "helper.py").write_text("from dataclasses import dataclass\n\n\ndef split(letters): return letters")
    write("    import random\n    from helper import split\n    letters = split(letters)\n" + RIGHT)
    assert cli("learn", "check", "linear").code == 0


# --- hint, show, notebook


def test_hints_lead_on_to_our_function_which_is_shown_after_a_question(cli, refused, monkeypatch):
    for name, function in FUNCTIONS.items():
        for number, hint in enumerate(function.hints, start=1):
            said = cli("learn", "hint", name, str(number)).out
            assert " ".join(hint.split()) in " ".join(said.split())
        assert f"scratchformer learn show {name}" in said
    assert "add --yes" in refused("learn", "show", "attention")
    assert source_of_ours("transformer", "attention") in cli("learn", "show", "attention", "--yes").out
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for reply, shown in (("", False), ("n", False), ("y", True)):
        monkeypatch.setattr("builtins.input", lambda question, reply=reply: reply)
        code, said, _ = cli("learn", "show", "attention")
        assert code == 0 and ("def attention" in said) == shown


def test_a_lesson_becomes_a_notebook(cli, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("learn", "notebook", "4").code == 0
    (path,) = tmp_path.glob("04_*.ipynb")
    notebook = json.loads(path.read_text("utf-8"))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            compile("".join(cell["source"]), str(path), "exec")
    assert "".join(notebook["cells"][1]["source"]).startswith("# 04 · ")
    before = path.read_bytes()
    assert "exists" in refused("learn", "notebook", "04") and path.read_bytes() == before


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["check", "atention"],
            "no function or hunt 'atention'; did you mean 'attention'?; scratchformer learn lists them",
        ),
        (["hint"], "learn hint: of what? For instance: scratchformer learn hint attention"),
        (["hint", "04"], "04 means several: "),
        (["hint", "attention", "3"], "there are hints 1 and 2, not '3'"),
        (["translate"], "learn translate: of what?"),
        (["translate", "The dog."], "not there; scratchformer learn train writes it"),
        (["explore"], "not there; scratchformer learn train writes it"),
        (["run"], "learn run: of what? For instance: scratchformer learn run gpt.py"),
        (["run", "gpt.py"], "gpt.py: no such file; name a program of yours"),
        (["notebook", "99"], "no such lesson; they are 00 to "),
        (["train", "now"], "'now' means nothing here"),
        (["check", "--steps", "3"], "--steps belongs to learn train"),
        (
            ["check", "--dir", "nowhere"],
            "nowhere: no transformer.py in it; scratchformer learn start nowhere writes it",
        ),
        (["start", "more.py/x"], "more.py"),
    ],
)
def test_bad_input_is_one_line(refused, mine, monkeypatch, arguments, message):
    monkeypatch.chdir(mine)
    assert message in refused("learn", *arguments)


def test_without_a_file_of_hers_start_is_named(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ([], ["check"], ["train"], ["translate", "The dog."]):
        assert "scratchformer learn start writes my_transformer/transformer.py" in refused("learn", *command)


# --- the whole course


def small_corpus(mine):
    """Let her file train on a small corpus, so that a step takes a moment."""
    corpus = mine / "corpus"
    corpus.mkdir()
    for split, times in (("train", 8), ("test", 1)):
        (corpus / f"{split}.en").write_text("the dog sleeps .\na cat eats .\n" * times, "utf-8")
        (corpus / f"{split}.de").write_text("der Hund schläft .\neine Katze isst .\n" * times, "utf-8")
    path = mine / "transformer.py"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    (n,) = (n for n, line in enumerate(lines) if line.startswith("CORPUS, WEIGHTS = "))
    lines[n] = f'CORPUS, WEIGHTS = Path({str(corpus)!r}), Path("transformer.npz")\n'
    path.write_text("".join(lines), "utf-8")


@pytest.mark.slow
def test_function_by_function_it_becomes_hers(cli, mine, write):
    """From an empty file to all functions: after each one two steps of training, which say how many are hers."""
    small_corpus(mine)
    total = len(FILES["transformer"])
    for n, name in enumerate(FILES["transformer"], start=1):
        write(body_of_ours(name), name)
        code, said, _ = cli("learn", "check", name)
        assert code == 0, said
        code, said, _ = cli("learn", "train", "--steps", "2")
        assert code == 0 and f"with {n} functions of yours" in said
        assert "2 steps in " in said
    code, said, _ = cli("learn")
    assert code == 0 and "gradients  worst relative error" in said
    assert f"functions  {total} of {total} yours" in said and "training   2 steps" in said
    assert (mine / "explorer.html").stat().st_size > 10**5
    assert "were yours)" in cli("learn", "translate", "the dog sleeps .").out
    alone = subprocess.run([sys.executable, mine / "transformer.py", "check"], capture_output=True, text=True, cwd=mine)
    assert alone.returncode == 0 and "worst relative error" in alone.stdout


@pytest.mark.parametrize("name", ["linear", "attention"])
def test_her_functions_and_ours_call_each_other(cli, mine, write, name):
    small_corpus(mine)
    write(body_of_ours(name), name)
    code, said, _ = cli("learn", "train", "--steps", "2")
    assert code == 0 and f", 1 yours: {name}\n" in said
    assert "(of the " in cli("learn", "translate", "a dog sleeps .").out
    assert "unknown word 'zebra'" in cli("learn", "translate", "the zebra .").err
    assert "last training: 2 steps in " in cli("learn").out


PROGRAM = """
import sys
from transformer import *
from more import *

rng, model = np.random.default_rng(0), new_gpt(V=5)
loss, backward = gpt_loss(rng.integers(0, 5, size=(2, 9)), model)
backward(1.0)
adam(model, 1)
print(f"{len(model.weights)} weights, loss {loss:.2f}")
"""


@pytest.mark.parametrize(
    "body, last, code, told",
    [
        ("", "", 0, "25 weights, loss "),
        ("    dy = yield 7.0", "", 0, "25 weights, loss 7.00"),
        ("    raise ValueError('too many')", "", 1, "more.py, line "),
        ("", "sys.exit('the prompt has an x')", 2, "the prompt has an x\n"),
        ("", "sys.exit(3)", 1, "SystemExit: 3"),
        ("", "x = (", 1, "SyntaxError: '(' was never closed"),
        ("", "open('no.txt')", 1, "in <module>\n    open('no.txt')\nFileNotFoundError"),
    ],
)
def test_a_program_runs_with_her_files_and_ours_in_their_gaps(cli, mine, write, monkeypatch, body, last, code, told):
    if body:
        write(body, "gpt_loss", "more")
    (mine / "gpt.py").write_text(PROGRAM + last, "utf-8")
    monkeypatch.chdir(mine)
    found = cli("learn", "run", "gpt.py")
    assert found.code == code and told in found.out + found.err


def test_a_wrong_function_is_told_before_training(cli, mine, write):
    small_corpus(mine)
    write(RIGHT.replace("W.grad +=", "W.grad -="))
    assert "linear: no check passed" in cli("learn", "train", "--steps", "1").out


def test_a_crash_in_training_is_told_in_her_lines(cli, mine, write):
    small_corpus(mine)
    write(RIGHT.replace("    W.grad", "    if len(x) > 3: raise ValueError('too many')\n    W.grad"))
    code, said, _ = cli("learn", "train", "--steps", "2")
    assert code == 1 and "ValueError: too many" in said and not (mine / actions.TRAINED).exists()
