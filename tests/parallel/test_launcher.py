"""The launcher's exit code and last words, its signals, and what it leaves behind: nothing."""

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
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")

RANK = Path(__file__).with_name("rank.py")


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """A directory in the place of /dev/shm, in which nothing may remain."""
    directory = tmp_path / "memory"
    directory.mkdir()
    monkeypatch.setattr(launcher, "IN_MEMORY", directory)
    yield directory
    assert not list(directory.iterdir())


@pytest.fixture
def launched(memory, monkeypatch, capfd):
    """launched("scene") -> exit code of two ranks, what the terminal shows"""

    def launch(scene):  # short where it is waited in vain
        monkeypatch.setattr(launcher, "GRACE", 2.0 if scene == "stop_last" else 60.0)
        monkeypatch.setattr(launcher, "LEAVING", 2.0 if scene == "stop_at_exit" else 60.0)
        return launcher.launch([sys.executable, "-W", "error", RANK, scene], 2), capfd.readouterr().err

    return launch


def of_job(directory):
    """The processes whose environment names the directory, as that of ranks does."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"={directory}/".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "this never came"
        time.sleep(0.02)


@pytest.mark.parametrize(
    "scene, code, last",
    [
        ("fine", 0, "rank 0 is fine"),
        ("refuse_0", 2, "scratchformer: this cannot be"),
        ("refuse_1", 2, "scratchformer: rank 1: this cannot be"),
        ("refuse_both", 2, "scratchformer: this cannot be"),
        ("exit_3", 1, "scratchformer: rank 1 failed (exit code 3); the job was ended"),
        ("leave", 1, "scratchformer: the ranks waited for each other in vain; the job was ended"),
        ("stop_last", 1, "scratchformer: rank 0 did not answer any more; the job was ended"),
        ("stop_at_exit", 1, "scratchformer: rank 0 did not answer any more; the job was ended"),
        ("late", 1, "scratchformer: the ranks waited for each other in vain; the job was ended"),
    ],
)
def test_exit_code_and_last_words(scene, code, last, launched):
    got, said = launched(scene)
    assert got == code, said
    assert said.splitlines()[-1] == last
    if code in (0, 2):
        assert said.count("\n") == 1


def test_of_a_rank_that_says_too_much_the_end_is_shown(launched):
    code, said = launched("chatter")
    shown = [line for line in said.splitlines() if line.startswith("rank 1 | ")]
    assert code == 1 and len(shown) == launcher.LINES
    assert "rank 1 | RuntimeError: that was it" in said and "line 19999 of too many" in said


def test_no_room_for_shared_memory_is_told_in_a_line(memory, refused, monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    line = refused("train", "tiny", "--nproc", 2, "--out", tmp_path / "run")
    assert re.search(r"no room for \d+ MiB of shared memory: No space left on device", line)


# Signals --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def start(memory):
    """start("scene") -> Launched"""
    jobs = []
    yield lambda scene: jobs.append(Launched(memory, scene)) or jobs[0]
    jobs[0].process.kill()
    jobs[0].process.wait()
    until(lambda: not of_job(memory))


class Launched:
    """A launcher in a process of its own, since signals are for it."""

    def __init__(self, memory, scene):
        self.memory, self.said = memory, memory.with_name("said")
        with open(self.said, "wb") as file:
            self.process = subprocess.Popen([sys.executable, "-W", "error", RANK, "launch", memory, scene], stderr=file)

    def until_started(self):
        until(lambda: list(self.memory.glob("*/rank1.stderr")))

    def until_said(self, words):
        """By whichever rank."""
        until(lambda: any(words in path.read_text() for path in [self.said, *self.memory.glob("*/rank1.stderr")]))

    def until_joined(self):
        self.until_said("both hear")

    def ended(self):
        code = self.process.wait(20)
        assert not of_job(self.memory)
        return code, self.said.read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_and_lets_rank_0_finish(number, start):
    job = start("interrupted")
    job.until_joined()
    job.process.send_signal(number)
    assert job.ended() == (130, "written\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_starting_is_no_failure(number, start):
    job = start("slow_start")
    job.until_started()
    job.process.send_signal(number)
    assert job.ended() == (130, "scratchformer: interrupted\n")


def test_a_second_interrupt_does_not_wait(start):
    job = start("stubborn")
    job.until_joined()
    job.process.send_signal(signal.SIGINT)
    job.until_said("no heed")
    time.sleep(0.3)
    assert job.process.poll() is None
    job.process.send_signal(signal.SIGINT)
    code, said = job.ended()
    assert code == 130 and "the job was ended" not in said


def test_a_stopped_rank_does_not_outlast_two_interrupts(start, memory):
    job = start("stubborn")
    job.until_joined()
    os.kill(of_job(memory)[0], signal.SIGSTOP)
    job.process.send_signal(signal.SIGINT)
    job.until_said("no heed")  # by the other one
    job.process.send_signal(signal.SIGINT)
    assert job.ended()[0] == 130


def test_ranks_end_with_a_launcher_that_is_killed(start, memory):
    job = start("stubborn")
    job.until_joined()
    assert len(of_job(memory)) == 2
    job.process.kill()
    job.process.wait()
    until(lambda: not of_job(memory))


@pytest.mark.slow
def test_an_interrupted_run_is_saved_and_goes_on(tmp_path, small_settings, small_config):
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
    with open(tmp_path / "said", "wb") as file, subprocess.Popen(command, stderr=file) as job:
        try:
            until(lambda: run.log_file.exists() and len(run.read_log("step")) > 4)
            job.send_signal(signal.SIGINT)
            job.wait(60)
        finally:
            job.kill()
    said = (tmp_path / "said").read_text
    assert job.returncode == 130, said()
    assert "interrupted; step" in said() and "--nproc 2" in said()
    _, found, _ = run.checkpoints.newest_sound()
    stopped = found.progress.step
    assert [entry["step"] for entry in run.read_log("step")] == list(range(1, stopped + 1))

    config = small_config(steps=stopped + 3, threads=2)
    loop.train(loop.resume(run, config)[0])
    other = RunDirectory(tmp_path / "other")
    loop.train(loop.begin(other, config))
    (_, mine, _), (_, others, _) = run.checkpoints.newest_sound(), other.checkpoints.newest_sound()
    assert replace(mine.progress, seconds=0) == replace(others.progress, seconds=0)
    assert [entry["loss"] for entry in run.read_log("step")] == [entry["loss"] for entry in other.read_log("step")]
