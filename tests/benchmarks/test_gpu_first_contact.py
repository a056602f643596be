"""The first contact with a GPU ends with a report, whatever happens: with stages that need no GPU, and all of them on
an emulated one."""

import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
import weakref
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from scratchformer.decoding.search import Hypothesis
from scratchformer.nn.ops import Ops

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
AGAIN = "with CUDA_LAUNCH_BLOCKING=1"


@pytest.fixture
def module(script):
    return script("gpu_first_contact")


@pytest.fixture
def stage(module):
    """stage("name", "code", **fields) -> a Stage that runs this code and needs nothing"""

    def made(name, code='print(\'@@ {"what": "done"}\')', **fields):
        command = (sys.executable, "-c", textwrap.dedent(code))
        return module.Stage(**{"name": name, "seconds": 30, "command": command, "needs": (), "after": ""} | fields)

    return made


@pytest.fixture
def contact(module, tmp_path, capsys):
    """contact(stages, minutes, chosen) -> exit code, what the result says of the stages, the report"""

    def called(stages, minutes=9, chosen=None):
        names = [each.name for each in stages]
        of_call = module.Contact(tmp_path / "result.json", minutes, stages, chosen or names)
        of_call.run()
        code, printed = of_call.report(), capsys.readouterr().out
        path = of_call.path
        return code, json.loads(path.read_text("utf-8"))["stages"] if path.is_file() else {}, printed

    return called


# One stage ------------------------------------------------------------------------------------------------------------

RESULT = """print('@@ {"now": "b"}\\n@@ {"what": "a", "x": 1}', flush=True)\n"""


@pytest.mark.parametrize(
    "code, verdict, why",
    [
        ("", "passed", ""),
        ("raise SystemExit('so')", "failed", "exit code 1 at b: so"),
        ("import os; os.kill(os.getpid(), 9)", "failed", "killed by SIGKILL at b"),
        ("import ctypes; ctypes.string_at(0)", "failed", "killed by SIGSEGV at b"),
        ("import os; os.kill(os.getpid(), 40)", "failed", "killed by 40 at b"),
        ("import time; time.sleep(99)", "failed", "no end after 1 s, at b"),
        ("while True: print('x' * 1000)", "failed", "no end after 1 s, at b"),
        ("""print('@@ {"what": "c", "failed": "wrong"}')""", "failed", "c: wrong"),
        ("""print('@@ {"not run": "no torch"}')""", "not run", "no torch"),
        ("""print('@@ {"what": "n", "loss": NaN}')""", "passed", ""),
        ("print('@@ {oops', '@@ 3', '@@ []', sep='\\n')", "passed", ""),
        ("print('@@ ' + '[' * 9000)", "passed", ""),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe @@ {' + b'x' * 100_000)", "passed", ""),
    ],
)
def test_however_a_stage_ends_there_is_a_verdict_and_what_it_told_before(contact, stage, code, verdict, why):
    one = stage("one", RESULT + code, seconds=1 if "no end" in why else 30)
    exit_code, entries, printed = contact([one, stage("two")])
    assert (entries["one"]["verdict"], entries["one"]["why"]) == (verdict, why)
    assert entries["one"]["results"]["a"] == {"x": 1} and entries["two"]["verdict"] == "passed"
    assert exit_code == (verdict == "failed")
    assert f"Wrong first: one: {why}\nLook closer: python -c" in printed or verdict != "failed"


def test_a_stage_without_results_has_not_passed(contact, stage):
    for code in ("", "print('@@ {oops')"):
        _, entries, _ = contact([stage("one", code)])
        assert (entries["one"]["verdict"], entries["one"]["why"]) == ("failed", "it ended without a result")


def test_a_stage_that_cannot_be_started_has_failed(contact, stage, tmp_path):
    program = tmp_path / "program"
    program.write_text("no program")
    program.chmod(0o755)
    _, entries, _ = contact([stage("one", command=(str(program),), again=True), stage("two")])
    assert entries["one"]["why"].startswith("cannot be started: ") and entries["two"]["verdict"] == "passed"


def test_what_a_stage_has_started_ends_with_it(contact, stage):
    code = """
        import json, subprocess, sys
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(99)"])  # it holds the pipe
        print("@@ " + json.dumps({"what": "started", "pid": started.pid}))
    """
    _, entries, _ = contact([stage("one", code)])
    assert entries["one"]["verdict"] == "passed" and entries["one"]["seconds"] < 20
    for _ in range(100):
        try:
            state = Path(f"/proc/{entries['one']['results']['started']['pid']}/stat").read_text().split()[2]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("it still runs")


def test_what_is_missing_is_said_first(contact, stage):
    stages = [stage("one"), stage("two", needs=("json", "nosuchmodule")), stage("three", command=("nosuchtool",))]
    code, entries, printed = contact(stages)
    assert printed.startswith(
        "missing: nosuchmodule, without which these stages cannot run: two\nmissing: nosuchtool, "
    )
    assert [entry["why"] for entry in entries.values()] == ["", "needs nosuchmodule", "needs nosuchtool"]
    assert code == 0 and "To go on" not in printed


# Several stages -------------------------------------------------------------------------------------------------------


def test_a_stage_that_depends_on_one_that_failed_is_not_run(contact, stage):
    stages = [stage("environment"), stage("compile", "exit(1)"), stage("kernels", after="compile"), stage("nccl")]
    code, entries, printed = contact(stages)
    verdicts = {name: entry["verdict"] for name, entry in entries.items()}
    assert verdicts == {"environment": "passed", "compile": "failed", "kernels": "not run", "nccl": "passed"}
    assert entries["kernels"]["why"] == "compile: failed" and code == 1
    assert printed.endswith("To go on: python benchmarks/gpu_first_contact.py --stages compile,kernels\n")


@pytest.mark.parametrize("always", [True, False])
def test_a_stage_that_failed_is_run_again_with_blocking_launches(contact, stage, always):
    code = f"""
        import os
        print('@@ {{"what": "t.py::test_x[1]", "seconds": 1}}')
        if {always} or os.environ.get("CUDA_LAUNCH_BLOCKING") != "1":
            print('@@ {{"what": "t.py::test_y[1]", "failed": "wrong"}}')
    """
    _, entries, printed = contact([stage("one", code, again=True, environment={"NCCL_DEBUG": "WARN"})])
    again = entries["one"][AGAIN]
    assert entries["one"]["verdict"] == "failed" and again["verdict"] == ("failed" if always else "passed")
    blocking = " CUDA_LAUNCH_BLOCKING=1" if always else ""
    assert f"Look closer: NCCL_DEBUG=WARN{blocking} python -m pytest -m gpu -W default 't.py::test_y[1]'\n" in printed
    assert ("work that does not wait" in printed) is not always


def test_a_tool_that_objects_is_in_the_command_to_look_closer(contact, stage, tmp_path):
    tool = tmp_path / "sanitizer"
    tool.write_text('#!/bin/sh\n"$@"\necho RACES: 1\nexit 9\n')
    tool.chmod(0o755)
    told = """print('@@ {"what": "t.py::test_x", "seconds": 1}')"""
    _, entries, printed = contact([stage("races", command=(str(tool), sys.executable, "-c", told))])
    assert entries["races"]["why"] == "exit code 9 at its start: RACES: 1"
    assert f"Look closer: {tool} python -c print" in printed


def test_when_the_minutes_are_over_the_stage_is_ended_and_no_other_begins(contact, stage, module, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_TO_BEGIN", 0.5)
    minutes = (module.SECONDS_TO_END + 1) / 60
    stages = [stage("one", RESULT + "import time; time.sleep(99)", again=True), stage("two")]
    code, entries, printed = contact(stages, minutes)
    assert [entry["verdict"] for entry in entries.values()] == ["not run", "not run"]
    assert [entry["why"] for entry in entries.values()] == ["the minutes were over at b", "no time was left"]
    assert entries["one"]["results"] == {"a": {"x": 1}} and code == 0 and printed.endswith("--stages one,two\n")


def test_the_result_is_written_after_each_number(contact, stage, tmp_path):
    code = RESULT + f"""
import json, pathlib, time
path = pathlib.Path({str(tmp_path / "result.json")!r})
for _ in range(100):
    stages = json.loads(path.read_text())["stages"]
    if stages["two"]["results"]:
        break
    time.sleep(0.05)
print("@@ " + json.dumps({{"what": "seen", **stages}}))
"""
    _, entries, _ = contact([stage("one"), stage("two", code)])
    seen = entries["two"]["results"]["seen"]
    assert seen["one"]["verdict"] == "passed"
    assert (seen["two"]["verdict"], seen["two"]["results"]) == ("not run", {"a": {"x": 1}})


def test_a_second_call_goes_on_where_the_first_stopped(contact, stage):
    stages = [stage("one"), stage("two", "exit(1)"), stage("three")]
    contact(stages, chosen=["two"])
    stages = [stage("one"), stage("two"), stage("three")]
    code, entries, printed = contact(stages, chosen=["two", "three"])
    assert [entry["verdict"] for entry in entries.values()] == 3 * ["passed"] and code == 0
    _, entries, printed = contact(stages, minutes=0.01, chosen=["two"])  # there is no time left
    assert [entry["verdict"] for entry in entries.values()] == 3 * ["passed"] and "(earlier: 20" in printed


@pytest.mark.parametrize("text", ["", "[]", '{"stages": 3}', '{"stages": {"one": {"verdict": "passed"}, "two": 3}}'])
def test_a_damaged_result_is_replaced(contact, stage, tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    assert contact([stage("one"), stage("two")], chosen=["one"])[1].keys() == {"one"}


def test_a_result_that_cannot_be_written_is_printed(contact, stage, tmp_path):
    (tmp_path / "result.json").mkdir()
    code, _, printed = contact([stage("one", RESULT)])
    assert code == 1 and printed.startswith("cannot write result.json: Is a directory")
    result, _ = json.JSONDecoder().raw_decode(printed[printed.index("{\n") :])
    assert result["stages"]["one"]["verdict"] == "passed" and not (tmp_path / "result.unfinished").exists()


def test_our_step_is_compared_with_pytorchs(module):
    def entry(**seconds):
        return {"results": {what.replace("_", " "): {"seconds": each, "losses": []} for what, each in seconds.items()}}

    entries = {"a": entry(base_bf16_scratchformer=2.0), "b": entry(base_bf16_pytorch=4.0, big_bf16_pytorch=1.0)}
    assert module.compared(entries) == ["base bf16: our step takes 0.50 of pytorch's time"]


# The command ----------------------------------------------------------------------------------------------------------


def command(*arguments, code="", **environment):
    """Run the script after this code, which may change its module g."""
    main = f"import gpu_first_contact as g, sys\n{code}\nsys.exit(g.main())"
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", main, *map(str, arguments)],
        cwd=ROOT / "benchmarks",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    "arguments", [["--stages", "kernels,nothing"], ["--stages", ""], ["--minutes", "0"], ["--out", "none"], ["now"]]
)
def test_bad_arguments_are_refused(arguments):
    process = command(*arguments)
    assert "error: " in process.communicate()[0] and process.returncode == 2


def test_beginnings_of_names_choose_stages(module):
    listed = module.chosen_from([each.name for each in module.all_stages(False)])
    assert listed("nccl,speed-base") == ["nccl", "speed-base"]  # a name chooses that stage only
    assert listed("speed-precisions-") == ["speed-precisions-pytorch", "speed-precisions-compile"]
    assert len(listed("speed")) == 11


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_call_reports_what_it_has(number, tmp_path):
    code = """
waits = "import time; print('@@ {\\"what\\": \\"a\\"}', flush=True); time.sleep(99)"
g.all_stages = lambda quick: [g.Stage("one", 60, (sys.executable, "-c", waits), ()), g.Stage("two", 9, ("ls",), ())]
"""
    process, path = command("--out", tmp_path, code=code), tmp_path / "gpu_first_contact.json"
    while not (path.exists() and '"a"' in path.read_text()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    printed, _ = process.communicate(timeout=30)
    assert process.returncode == 1 and printed.endswith("--stages one,two\n") and "\none " in printed
    assert json.loads(path.read_text())["stages"]["one"]["why"] == "everything ended before it did"


def test_without_a_gpu_nothing_else_is_tried(tmp_path):
    (tmp_path / "cupy.py").write_text("raise ImportError('CuPy is not right.\\n\\nOriginal error:\\n  no libcuda.so')")
    process = command("--out", tmp_path, PYTHONPATH=str(tmp_path))
    printed, _ = process.communicate()
    environment, *others = json.loads((tmp_path / "gpu_first_contact.json").read_text())["stages"].values()
    assert process.returncode == 1 and environment["why"] == "device: ImportError: no libcuda.so"
    assert environment["results"]["surroundings"]["commit"] and environment["results"]["versions"]["numpy"]
    assert {entry["why"] for entry in others} == {"environment: failed"}
    assert "\nLook closer: python benchmarks/gpu_stages.py environment\n" in printed


# What the stages do ---------------------------------------------------------------------------------------------------


def test_each_stage_is_known_to_the_process_that_does_it(module, script):
    names = [each.name for each in module.all_stages(False)]
    done = {"environment", "compile", *script("gpu_stages").TESTS, *script("gpu_speed").STAGES}
    assert set(names) == done | {"races", "memory"} and len(names) == len(done) + 2


def test_each_test_for_a_gpu_is_in_exactly_one_stage(script):
    collect = "-m pytest -o addopts= -q --collect-only -m gpu -p no:cacheprovider tests/backends/cuda tests/parallel"
    listed = subprocess.run([sys.executable, *collect.split()], cwd=ROOT, capture_output=True, text=True).stdout
    names = [line for line in listed.splitlines() if "::" in line]
    *stages, rest = script("gpu_stages").TESTS.items()
    of = {
        name: [stage for stage, words in stages if any(word in name for word in words.split(" or "))] for name in names
    }
    assert len(names) > 80 and max(map(len, of.values())) == 1 and [] in of.values()
    assert {stage for found in of.values() for stage in found} == {stage for stage, _ in stages}
    assert rest[0] == "rest" and all(words in rest[1] for _, words in stages)


@pytest.mark.slow
def test_pytorch_takes_the_same_steps(script, monkeypatch):
    """On the CPU, as if it were the GPU: from the same loss, at the same pace."""
    torch = pytest.importorskip("torch")
    speed = script("gpu_speed")
    for kind in (torch.nn.Module, torch.Tensor):
        monkeypatch.setattr(kind, "cuda", lambda self: self)
    for name in ("empty_cache", "reset_peak_memory_stats", "synchronize", "max_memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    scale = speed.QUICK._replace(pairs=32, length=8, repetitions=5, changes=speed.TINY | {"P_drop": 0.0})
    config = scale.config("base")
    theirs = speed.pytorchs(False, config, "fp32", scale)
    assert theirs["target_tokens_per_second"] == pytest.approx(32 * 8 / theirs["seconds"], rel=0.01)
    monkeypatch.setattr(speed, "Gpu", NumPyDevice)
    ours = speed.ours(config, "fp32", scale)
    assert ours.keys() == theirs.keys() and ours["losses"] == pytest.approx(theirs["losses"], rel=1e-3)
    assert ours["losses"][1] < ours["losses"][0]


class NumPyDevice:
    """In place of a Gpu."""

    def __init__(self, number, precision):
        pool = type("Pool", (), {"free_all_blocks": lambda self: None, "total_bytes": lambda self: 0})()
        runtime = type("Runtime", (), {"deviceSynchronize": lambda self: None})()
        cuda = type("Cuda", (), {"runtime": runtime})
        self.xp = type("Xp", (), {"cuda": cuda, "get_default_memory_pool": lambda self: pool})()
        self.ops = ()

    def to_device(self, model):
        pass

    def adapt_loss_scale(self, norm):
        pass


# On an emulated GPU ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def on_emulated_gpu(monkeypatch, tmp_path, compiled):
    """on_emulated_gpu(stages, faulty, code) -> exit code, what the result says of the stages, the report"""
    monkeypatch.syspath_prepend(ROOT / "tests" / "emulated_gpu")
    import emulation

    if emulation.reason_to_skip():
        pytest.skip(emulation.reason_to_skip())

    def run(stages, faulty="", code=""):
        environment = {
            "PYTHONPATH": os.pathsep.join([str(HERE / "faulty_gpu"), os.environ.get("PYTHONPATH", "")]),
            "CUPY_CACHE_DIR": str(compiled),
            "OPENBLAS_NUM_THREADS": "1",
            "FAULTY": faulty,
        }
        process = command("--quick", "--out", tmp_path, "--stages", stages, code=code, **environment)
        printed, _ = process.communicate()
        result = json.loads((tmp_path / "gpu_first_contact.json").read_text())
        return process.returncode, result["stages"], printed

    return run


def stages_but(module, *without):
    return ",".join(each.name for each in module.all_stages(True) if not each.name.endswith(without))


@pytest.mark.slow
def test_all_stages_pass_on_an_emulated_gpu(on_emulated_gpu, module):
    code, entries, printed = on_emulated_gpu(stages_but(module, "-compile", "-pytorch", "races", "memory"))
    assert {entry["verdict"] for entry in entries.values()} == {"passed"} and len(entries) == 14, printed
    assert code == 0 and "Nothing that was run failed." in printed
    assert entries["kernels"]["gpu"] == "emulated GPU" and len(entries["speed-kernels"]["results"]) == 53
    (step,) = entries["speed-base"]["results"].values()
    assert step["target_tokens_per_second"] > 0 and all(3 < loss < 6 for loss in step["losses"])


FAULTS = {
    "kernels": "test_every_kernel_computes_the_same_on_a_gpu[float32]: AssertionError: assert ['dropout",
    "products": "RuntimeError: planted",
    "gradient": "killed by SIGKILL at tests/backends/cuda/test_on_device.py::test_loss_and_gradients",
    "steps": "no end after 20 s, at tests/backends/cuda/test_on_device.py::test_a_run_on_the_device_equals",
    "resume": "it ended without a result",
    "nccl": "NCCL cannot connect the GPUs: ",
    "speed-base": "base bf16 scratchformer: RuntimeError: planted",
    "speed-kernels": "add_norm bf16: RuntimeError: planted",
}


@pytest.mark.slow
def test_faults_in_each_stage_are_told_apart(on_emulated_gpu):
    shorter = """
of = g.all_stages
g.all_stages = lambda quick: [each._replace(seconds=20) if each.name == "steps" else each for each in of(quick)]
"""
    code, entries, printed = on_emulated_gpu(",".join([*FAULTS, "compile", "speed-big"]), ",".join(FAULTS), shorter)
    assert code == 1
    for name, entry in entries.items():
        assert FAULTS.get(name, "") in entry["why"], (name, entry)
        assert entry["verdict"] == ("failed" if name in FAULTS else "passed")
        if name in FAULTS and not name.startswith("speed"):
            assert entry[AGAIN]["verdict"] == "failed" and entry[AGAIN]["why"] == entry["why"]
    assert any("sitecustomize.py" in line for line in entries["steps"]["log"])  # where it hangs
    assert "bytes_per_second" in entries["speed-kernels"]["results"]["adam bf16"]
    assert "\nWrong first: kernels: tests/backends/cuda/test_kernels.py::" in printed
    closer = (
        "CUDA_LAUNCH_BLOCKING=1 python -m pytest -m gpu -W default 'tests/backends/cuda/test_kernels.py::test_every_"
    )
    assert closer in printed


@pytest.mark.slow
def test_kernels_that_do_not_compile_stop_only_what_needs_them(on_emulated_gpu):
    code, entries, printed = on_emulated_gpu("compile,kernels,nccl", "compile")
    assert [entry["verdict"] for entry in entries.values()] == ["passed", "failed", "not run", "passed"] and code == 1
    assert "error" in entries["compile"]["why"] and "Look closer: CUDA_LAUNCH_BLOCKING=1 python benchmarks" in printed


# How stages are started, and what they measure, without a GPU ---------------------------------------------------------


def test_a_test_of_any_name_is_quoted_in_the_command_to_look_closer(module, stage):
    what = "t.py::test_x[gpu-the paper's-fp32]"
    entry = {"log": [], "why": "wrong", "at": what, "results": {what: {"failed": "wrong"}}}
    assert shlex.split(module.advice(stage("one"), entry)[-1])[-1] == what


def test_an_entry_names_the_gpu_of_its_own_call(contact, stage):
    for gpu in "new", "newer":
        found = f"""print('@@ {{"what": "device", "name": "{gpu}"}}')"""
        _, entries, _ = contact([stage("environment", found), stage("two")])
        assert [entry["gpu"] for entry in entries.values()] == [gpu, gpu]


def test_an_environment_that_cannot_be_described_has_not_failed(script, monkeypatch):
    stages, told = script("gpu_stages"), []
    monkeypatch.setattr(stages, "tell", lambda **record: told.append(record))
    for name in "versions", "surroundings":
        monkeypatch.setattr(stages, name, lambda: {}["metadata"])
    monkeypatch.setattr(stages, "device", lambda: {"name": "GPU"})
    stages.environment()
    unknown = {"unknown": "'metadata'"}
    assert [record for record in told if "what" in record] == [
        {"what": "versions", **unknown},
        {"what": "surroundings", **unknown},
        {"what": "device", "name": "GPU"},
    ]


def test_without_a_repository_it_is_not_known_whether_there_are_changes(script, monkeypatch):
    provenance = script("provenance")
    for said, known in (None, None), ("", False), (" M a.py", True):
        monkeypatch.setattr(provenance, "git", lambda *_: said)
        assert provenance.surroundings()["uncommitted_changes"] is known


def test_a_hang_after_a_failed_test_shows_its_stack_and_memory_is_checked_without_a_pool(module, tmp_path):
    """In the process of the stage `memory`, with other tests and without compute-sanitizer."""
    (tmp_path / "cupy.py").write_text("class cuda:\n set_allocator = staticmethod(lambda to: print('allocator:', to))")
    tests = tmp_path / "tests" / "backends" / "cuda"
    tests.mkdir(parents=True)
    (tmp_path / "tests" / "parallel").mkdir()
    (tests / "test_kernels.py").write_text("""
import faulthandler, time, gpu_stages, pytest
pytestmark = pytest.mark.gpu
def test_fails():
    faulthandler.dump_traceback_later(0.2, file=gpu_stages.OUTPUT)  # again, since to get here may have taken long
    assert False
def test_hangs():
    time.sleep(20)
""")
    (command,) = [each.command for each in module.all_stages(False) if each.name == "memory"]
    arguments = command[command.index(sys.executable) + 2 :]
    code = f"import sys, pathlib, gpu_stages; gpu_stages.ROOT = pathlib.Path({str(tmp_path)!r}); gpu_stages.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--seconds=60"],
        cwd=ROOT / "benchmarks",
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "in test_hangs" in line:
            process.kill()
    process.communicate()
    assert lines[0] == "allocator: None\n" and any("in test_hangs" in line for line in lines), lines


class NumPyGpu:
    """In place of a Gpu: the reference on NumPy arrays."""

    xp, stored, batch_factor = np, np.dtype("float32"), 4

    def __init__(self, number, precision):
        self.ops = (Ops(np),)

    def to_device(self, model):
        pass


def arrays_in(*things):
    """The arrays in tuples of tuples, each once."""
    found = {}
    for thing in things:
        if isinstance(thing, (tuple, list)):
            found |= {id(each): each for each in arrays_in(*thing)}
        elif isinstance(thing, np.ndarray):
            found[id(thing)] = thing
    return list(found.values())


def test_no_byte_of_a_kernel_is_counted_twice_and_no_array_used_again(script, monkeypatch):
    speed = script("gpu_speed")
    monkeypatch.setattr(speed, "Gpu", NumPyGpu)
    for name, prepare, needed in speed.calls("fp32", speed.QUICK):
        calls = prepare(), prepare()
        read, others = (arrays_in(call.args) for call in calls)
        size = sum(each.nbytes for each in read)
        written = sum(each.nbytes for each in arrays_in(calls[0]())) or size  # in place, or not for NumPy
        assert size + written >= needed > size / 2, name
        assert all(each.nbytes < needed / 8 for each in read if any(each is other for other in others)), name


def test_calls_of_a_kernel_take_turns_and_their_results_are_kept(script, monkeypatch):
    speed, made, taken, results = script("gpu_speed"), [], [], []

    def prepare():
        made.append(len(made))
        return partial(call, made[-1])

    def call(number):
        taken.append(number)
        result = np.zeros(1)
        results.append(weakref.ref(result))
        return result

    def seconds_of(work, scale):
        for _ in range(5):
            work()
        assert [result() is not None for result in results] == 5 * [False] + 3 * [True]
        return 1

    monkeypatch.setattr(speed, "seconds_of", seconds_of)
    monkeypatch.setattr(speed, "copying", lambda scale: 8)
    found = speed.bandwidth(prepare, 4, speed.QUICK._replace(between=10))
    assert taken == [0, 1, 2, 0, 1, 2, 0, 1] and found == {"bytes_per_second": 4, "share_of_copying": 0.5}


def test_as_many_sentences_are_translated_at_once_as_on_a_gpu(script, monkeypatch):
    speed, batches = script("gpu_speed"), []
    monkeypatch.setattr(speed, "Gpu", NumPyGpu)

    def search(model, batch, *_):
        batches.append(batch)
        return [[Hypothesis([3], 0.0, 0.0)]] * len(batch)

    monkeypatch.setattr(speed, "search", search)
    speed.translating("bf16", 1, speed.QUICK._replace(sentences=300))
    assert [len(batch) for batch in batches] == speed.ROUNDS * [256, 44]
