"""The launcher: exit codes, messages, signals, and that it leaves nothing behind."""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

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

    def launch(*function, timeout=60):
        monkeypatch.setattr(launcher, "GRACE", 60.0)
        command = [sys.executable, "-W", "error", RANK, str(timeout), *function]
        return launcher.launch(command, 2), capfd.readouterr().err

    return launch


def processes_of(directory):
    """The ids of the processes whose environment names the directory, as that of ranks does."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"={directory}/".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.02)


@pytest.mark.parametrize(
    "function, code, last",
    [
        ("fine", 0, "rank 0 is fine"),
        ("refuse 0", 2, "scratchformer: this cannot be"),
        ("refuse 1", 2, "scratchformer: rank 1: this cannot be"),
        ("refuse 01", 2, "scratchformer: this cannot be"),
        ("leave 3", 1, "scratchformer: rank 1 failed (exit code 3); the job was ended"),
        pytest.param(
            "leave 0",
            1,
            "scratchformer: the ranks gave up waiting for each other; the job was ended",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_exit_code_and_last_line(function, code, last, launched):
    got, stderr = launched(*function.split())
    assert got == code, stderr
    assert stderr.splitlines()[-1] == last
    if code in (0, 2):
        assert stderr.count("\n") == 1


@pytest.mark.slow
def test_the_timeout_holds_until_a_rank_has_exited(launched):
    code, stderr = launched("hang_at_exit", timeout=4)
    last = "scratchformer: rank 1 exchanged nothing for 0:00:04 (--timeout); the job was ended"
    assert (code, stderr.splitlines()[-1]) == (1, last)
    assert "in hang" in stderr  # the stack


def test_the_standard_error_of_a_failed_rank_is_shown(launched):
    code, stderr = launched("print_and_raise")
    assert code == 1 and "rank 1 | long long" in stderr and "that was it" in stderr


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
    yield lambda function: jobs.append(Launched(memory, function)) or jobs[0]
    jobs[0].process.kill()
    jobs[0].process.wait()
    until(lambda: not processes_of(memory))


class Launched:
    """A launcher in its own process, so that signals can be sent to it."""

    def __init__(self, memory, function):
        self.memory, self.stderr = memory, memory.with_name("stderr")
        command = [sys.executable, "-W", "error", RANK, "60", "launch", memory, function]
        with open(self.stderr, "wb") as file:
            self.process = subprocess.Popen(command, stderr=file)

    def until_printed(self, words):
        """By either rank."""
        until(lambda: any(words in path.read_text() for path in [self.stderr, *self.memory.glob("*/rank1.stderr")]))

    def ended(self):
        code = self.process.wait(20)
        assert not processes_of(self.memory)
        return code, self.stderr.read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "function, said", [("interrupted", "written\n"), ("slow_start", "scratchformer: interrupted\n")]
)
def test_a_signal_stops_all_ranks_and_lets_rank_0_finish(number, function, said, start):
    job = start(function)
    if function == "interrupted":
        job.until_printed("both ready")
    else:  # before training handles signals
        until(lambda: list(job.memory.glob("*/rank1.stderr")))
    job.process.send_signal(number)
    assert job.ended() == (130, said)


@pytest.mark.parametrize("also_stopped", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_second_interrupt_does_not_wait(also_stopped, start, memory):
    job = start("stubborn")
    job.until_printed("both ready")
    if also_stopped:
        os.kill(processes_of(memory)[0], signal.SIGSTOP)
    job.process.send_signal(signal.SIGINT)
    job.until_printed("ignored")  # by the other rank
    time.sleep(0.3)
    assert job.process.poll() is None
    job.process.send_signal(signal.SIGINT)
    code, stderr = job.ended()
    assert code == 130 and "the job was ended" not in stderr


def test_ranks_exit_when_the_launcher_is_killed(start, memory):
    job = start("stubborn")
    job.until_printed("both ready")
    assert len(processes_of(memory)) == 2
    job.process.kill()
    job.process.wait()
    until(lambda: not processes_of(memory))


@pytest.mark.slow
def test_an_interrupted_run_is_saved_and_can_be_resumed(tmp_path, small_settings, small_config):
    run = RunDirectory(tmp_path / "run")
    options = ["--set", "training.steps=100000", "--threads", "1", "--nproc", "2", "--out", run.path]
    command = [sys.executable, "-m", "scratchformer", "train", "tiny", *map(str, small_settings), *options]
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
