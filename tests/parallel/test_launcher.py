"""The launcher: exit codes, messages, signals, and that it leaves nothing behind."""

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scratchformer.parallel import launcher
from scratchformer.tasks.start import begin, resume
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")

RANK = Path(__file__).with_name("rank.py")


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """A directory instead of /dev/shm. It must be empty after the test."""
    directory = tmp_path / "memory"
    directory.mkdir()
    monkeypatch.setattr(launcher, "MEMORY_DIRECTORY", directory)
    yield directory
    assert not list(directory.iterdir())


@pytest.fixture
def launched(memory, monkeypatch, capfd):
    """launched("function", ...) -> exit code of two ranks that run this function of rank.py, standard error"""

    def launch(*function, timeout=60.0, grace=60.0):  # short where a rank never exits
        monkeypatch.setattr(launcher, "GRACE", grace)
        command = [sys.executable, "-W", "error", RANK, f"{timeout:g}", *function]
        return launcher.launch(command, 2, timeout), capfd.readouterr().err

    return launch


def processes_of(directory):
    """The ids of the processes whose environment names the directory, as that of ranks does."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"={directory}/".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def state_of(process):
    """ "R" running, "S" sleeping, "T" stopped, "" gone"""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return ""


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)


GAVE_UP = "the ranks gave up waiting for each other"


@pytest.mark.parametrize(
    "function, code, last",
    [
        ("fine", 0, "rank 0 is fine"),
        ("refuse_0", 2, "scratchformer: this cannot be"),
        ("refuse_1", 2, "scratchformer: rank 1: this cannot be"),
        ("refuse_both", 2, "scratchformer: this cannot be"),
        ("exit_3", 1, "scratchformer: rank 1 failed (exit code 3); the job was ended"),
        *(
            pytest.param(function, 1, f"scratchformer: {GAVE_UP}; the job was ended", marks=pytest.mark.slow)
            for function in ("leave", "late")
        ),
    ],
)
def test_exit_code_and_last_line(function, code, last, launched):
    got, stderr = launched(function)
    assert got == code, stderr
    assert stderr.splitlines()[-1] == last
    if code in (0, 2):
        assert stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "what, moment, who, message",
    [
        ("stopped", "start", "1", "rank 1 stopped responding"),
        ("stopped", "start", "01", "ranks 0, 1 stopped responding (--timeout)"),
        ("hanging", "start", "01", "ranks 0, 1 stopped responding (--timeout)"),  # nothing watches them yet
        ("stopped", "exchange", "0", "rank 0 stopped responding"),
        ("stopped", "exchange", "01", "ranks 0, 1 stopped responding (--timeout)"),
        ("stopped", "end", "1", "rank 1 stopped responding"),
        ("stopped", "end", "01", "ranks 0, 1 stopped responding (--timeout)"),
        ("stopped", "exit", "0", "rank 0 stopped responding (--timeout)"),
        ("stopped", "exit", "01", "ranks 0, 1 stopped responding (--timeout)"),
        ("hanging", "exit", "1", "rank 1 showed no sign of life for 0:00:04 (--timeout)"),
    ],
)
def test_the_timeout_holds_wherever_a_rank_is_stopped(what, moment, who, message, launched):
    code, stderr = launched(what, moment, who, timeout=4.0, grace=60.0 if moment == what == "exit" else 3.0)
    assert (code, stderr.splitlines()[-1]) == (1, f"scratchformer: {message}; the job was ended")
    assert ("in stop_if_at" in stderr) == (message.count("sign of life") == 1)  # the stack of a rank that can print it


def test_without_a_timeout_the_launcher_waits_for_ever(launched, memory):
    def continue_it():
        try:
            until(lambda: [state_of(process) for process in processes_of(memory)] == ["T"])  # the other one has exited
            time.sleep(0.5)
        finally:
            for process in processes_of(memory):
                os.kill(process, signal.SIGCONT)

    thread = threading.Thread(target=continue_it)
    thread.start()
    assert launched("stopped", "exit", "0", timeout=0, grace=0.1) == (0, "")
    thread.join()


class Script:
    """A job of two ranks with a clock, from a script: in which call of the launcher its process is stopped."""

    size = 2

    def __init__(self, stopped_in, monkeypatch):
        self.stopped_in, self.now, self.header, self.looks = stopped_in, 0.0, np.zeros(3), 0
        monkeypatch.setattr(launcher.time, "monotonic", lambda: self.call("monotonic", self.now))
        monkeypatch.setattr(launcher.time, "sleep", lambda _: self.call("sleep", None))

    def call(self, name, result):
        """Return what was true before the process was stopped, for longer than any timeout; the ranks go on."""
        if name == self.stopped_in and self.looks == 3:
            self.now, self.header, self.looks = self.now + 1000, self.header + 5, 4
        return result

    def codes(self):
        self.looks += 1
        return self.call("codes", {0: 0, 1: 0} if self.looks > 8 else {})


@pytest.mark.parametrize("stopped_in", ["monotonic", "codes", "sleep"])
def test_a_launcher_that_was_stopped_does_not_end_ranks_that_lived(stopped_in, monkeypatch):
    assert launcher.Job.wait(Script(stopped_in, monkeypatch), 10.0) == {0: 0, 1: 0}


def test_only_the_last_lines_of_a_failed_rank_are_shown(launched):
    code, stderr = launched("print_too_much")
    shown = [line for line in stderr.splitlines() if line.startswith("rank 1 | ")]
    assert code == 1 and len(shown) == launcher.STDERR_LINES
    assert "that was it" in shown[-1] and "line 19999 of too many" in stderr


def test_no_room_for_shared_memory_is_reported_in_one_line(memory, refused, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    line = refused("train", "tiny", "--nproc", 2, "--out", tmp_path / "run")
    assert re.search(r"no room for \d+ MiB of shared memory: No space left on device", line)


def test_a_rank_that_cannot_be_started_leaves_nothing(memory, monkeypatch):
    def no_more(*arguments, original=subprocess.Popen, **options):
        if options["env"]["SCRATCHFORMER_RANK"] == "1":
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return original(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", no_more)
    with pytest.raises(BlockingIOError):
        launcher.launch([sys.executable, RANK, "60", "slow_start"], 2)
    assert not processes_of(memory)


# Signals --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def start(memory):
    """start("function") -> Launched"""
    jobs = []
    yield lambda *function: jobs.append(Launched(memory, *function)) or jobs[0]
    jobs[0].process.kill()
    jobs[0].process.wait()
    until(lambda: not processes_of(memory))


class Launched:
    """A launcher in its own process, so that signals can be sent to it."""

    def __init__(self, memory, function, timeout=60, grace=5):
        self.memory, self.stderr = memory, memory.with_name("stderr")
        with open(self.stderr, "wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", RANK, str(timeout), "launch", memory, str(grace), function], stderr=file
            )

    def until_started(self):
        until(lambda: list(self.memory.glob("*/rank1.stderr")))

    def until_printed(self, words):
        """By either rank."""
        until(lambda: any(words in path.read_text() for path in [self.stderr, *self.memory.glob("*/rank1.stderr")]))

    def until_ready(self):
        self.until_printed("both ready")

    def ended(self):
        code = self.process.wait(20)
        assert not processes_of(self.memory)
        return code, self.stderr.read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_ranks_and_lets_rank_0_finish(number, start):
    job = start("interrupted")
    job.until_ready()
    job.process.send_signal(number)
    assert job.ended() == (130, "written\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_start_is_not_a_failure(number, start):
    job = start("slow_start")
    job.until_started()
    job.process.send_signal(number)
    assert job.ended() == (130, "scratchformer: interrupted\n")


def test_a_second_interrupt_does_not_wait(start):
    job = start("stubborn")
    job.until_ready()
    job.process.send_signal(signal.SIGINT)
    job.until_printed("ignored")
    time.sleep(0.3)
    assert job.process.poll() is None
    job.process.send_signal(signal.SIGINT)
    code, stderr = job.ended()
    assert code == 130 and "the job was ended" not in stderr


@pytest.mark.slow
def test_a_second_interrupt_ends_a_stopped_rank(start, memory):
    job = start("stubborn")
    job.until_ready()
    os.kill(processes_of(memory)[0], signal.SIGSTOP)
    job.process.send_signal(signal.SIGINT)
    job.until_printed("ignored")  # by the other rank
    job.process.send_signal(signal.SIGINT)
    assert job.ended()[0] == 130


@pytest.mark.slow
def test_a_launcher_continued_after_a_long_stop_does_not_end_the_job(start, memory):
    job = start("busy", 2, 0.5)
    until(lambda: len(processes_of(memory)) == 2 and not list(memory.glob("*/memory")))  # both have joined
    job.process.send_signal(signal.SIGSTOP)
    time.sleep(4)
    job.process.send_signal(signal.SIGCONT)
    time.sleep(1)
    assert job.process.poll() is None and len(processes_of(memory)) == 2
    job.process.send_signal(signal.SIGINT)
    assert job.ended()[0] == 130


def test_ranks_exit_when_the_launcher_is_killed(start, memory):
    job = start("stubborn")
    job.until_ready()
    assert len(processes_of(memory)) == 2
    job.process.kill()
    job.process.wait()
    until(lambda: not processes_of(memory))


@pytest.mark.slow
def test_an_interrupted_run_is_saved_and_can_be_resumed(tmp_path, small_settings, small_config):
    run = RunDirectory(tmp_path / "run")
    command = [
        sys.executable,
        "-m",
        "scratchformer",
        "train",
        "tiny",
        *map(str, small_settings),
        "--set",
        "training.steps=100000",
        "--threads",
        "1",
        "--out",
        run.path,
        "--nproc",
        "2",
    ]
    with open(tmp_path / "stderr", "wb") as file, subprocess.Popen(command, stderr=file) as job:
        try:
            until(lambda: run.log_file.exists() and len(run.read_log("step")) > 4)
            job.send_signal(signal.SIGINT)
            job.wait(60)
        finally:
            job.kill()
    stderr = (tmp_path / "stderr").read_text()
    assert job.returncode == 130, stderr
    assert "interrupted; step" in stderr and "--nproc 2" in stderr
    _, found, _ = run.checkpoints.newest_sound()
    stopped = found.progress.step
    assert [entry["step"] for entry in run.read_log("step")] == list(range(1, stopped + 1))

    config = small_config(steps=stopped + 3, threads=2)
    loop.train(resume(run, config)[0])
    other = RunDirectory(tmp_path / "other")
    loop.train(begin(other, config))
    (_, mine, _), (_, others, _) = run.checkpoints.newest_sound(), other.checkpoints.newest_sound()
    assert replace(mine.progress, seconds=0) == replace(others.progress, seconds=0)
    assert [entry["loss"] for entry in run.read_log("step")] == [entry["loss"] for entry in other.read_log("step")]
