"""A pytest plugin: one line of JSON for each test as soon as it ends, and no test that hangs.

    python -m pytest -p tally --tally FILE tests/nn        (with this folder in PYTHONPATH)

Each line is ["passed" | "failed" | "error" | "skipped", node id]; an error is a failure outside a test: in a fixture,
or of a whole file that cannot be imported. A test or fixture that takes longer than `--seconds-per-test` is interrupted
and has failed.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def pytest_addoption(parser):
    parser.addoption("--tally", type=Path)
    parser.addoption("--seconds-per-test", type=float, default=60.0)


def pytest_configure(config):
    if config.option.tally:
        config.pluginmanager.register(Tally(config.option.tally, config.option.seconds_per_test))


class Tally:
    def __init__(self, path, seconds_per_test):
        self.path, self.seconds_per_test = path, seconds_per_test
        self.outcomes = set()  # of the test that runs

    def write(self, verdict, nodeid):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps([verdict, nodeid]) + "\n")

    def pytest_collectreport(self, report):
        if report.failed:
            self.write("error", report.nodeid)

    def pytest_runtest_logreport(self, report):
        outside = report.when != "call"
        self.outcomes.add("error" if outside and report.failed else report.outcome)

    def pytest_runtest_logfinish(self, nodeid):
        worst_first = ("failed", "error", "skipped", "passed")
        self.write(next(outcome for outcome in worst_first if outcome in self.outcomes), nodeid)
        self.outcomes.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self):
        with self.alarm():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self):
        with self.alarm():
            return (yield)

    @contextmanager
    def alarm(self):
        signal.signal(signal.SIGALRM, self.ring)
        signal.setitimer(signal.ITIMER_REAL, self.seconds_per_test)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def ring(self, number, frame):
        raise TimeoutError(f"longer than {self.seconds_per_test:g} seconds")


def read(path):
    """The lines of a tally -> [(verdict, node id), ...]; none if no test came to an end."""
    return [tuple(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def options(path):
    """Arguments of pytest: write the tally to `path`, and no cache."""
    return ["-p", "no:cacheprovider", "-p", "tally", "--tally", path]


def run_pytest(mutant, arguments, path, timeout=None):
    """Run pytest in a process of its own with this mutant planted (None: nothing), the tally going to `path`.

    Raises subprocess.TimeoutExpired after `timeout` seconds; what had ended by then is in the tally.
    """
    program = ["-m", "pytest"] if mutant is None else [HERE / "plant.py", mutant.name, "pytest"]
    return subprocess.run(
        [sys.executable, *program, *options(path), *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(HERE), "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
