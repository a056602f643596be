"""The launcher: exit codes, messages, signals, and that it leaves nothing behind."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from scratchformer.parallel import launcher

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
        ("leave 0", 1, "scratchformer: the ranks gave up waiting for each other; the job was ended"),
    ],
)
def test_exit_code_and_last_line(function, code, last, memory, monkeypatch, capfd):
    monkeypatch.setattr(launcher, "GRACE", 60.0)
    found = launcher.launch([sys.executable, "-W", "error", RANK, *function.split()], 2)
    said = capfd.readouterr().err
    assert (found, said.splitlines()[-1]) == (code, last), said
    assert code == 1 or said.count("\n") == 1


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
        command = [sys.executable, "-W", "error", RANK, "launch", memory, function]
        with open(self.stderr, "wb") as file:
            self.process = subprocess.Popen(command, stderr=file)

    def until_printed(self, words):
        """By either rank."""
        until(lambda: any(words in path.read_text() for path in [self.stderr, *self.memory.glob("*/rank1.stderr")]))

    def ended(self):
        code = self.process.wait(20)
        assert not processes_of(self.memory)
        return code, self.stderr.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "number, function, said",
    [
        (signal.SIGINT, "interrupted", "written\n"),
        (signal.SIGTERM, "interrupted", "written\n"),
        (signal.SIGINT, "slow_start", "scratchformer: interrupted\n"),
    ],
)
def test_a_signal_stops_all_ranks_and_lets_rank_0_finish(number, function, said, start):
    job = start(function)
    if function == "interrupted":
        job.until_printed("both ready")
    else:  # before training handles signals
        until(lambda: list(job.memory.glob("*/rank1.stderr")))
    job.process.send_signal(number)
    assert job.ended() == (130, said)


def test_ranks_exit_when_the_launcher_is_killed(start, memory):
    job = start("stubborn")
    job.until_printed("both ready")
    assert len(processes_of(memory)) == 2
    job.process.kill()
    job.process.wait()
    until(lambda: not processes_of(memory))
