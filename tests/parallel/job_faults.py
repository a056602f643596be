"""Trials of a job of two processes, one of which raises, dies, is stopped or hangs.

Every fault strikes either rank at every moment: as it starts, in a step, while validating, while saving. The call at
which it strikes is drawn. Either is also killed and stopped from outside, at a random time.

    raise   an exception, RuntimeError          stop   SIGSTOP: the process does nothing any more, not even watch
    kill    SIGKILL, as by the system when      hang   an endless loop
            memory runs out

The trials strike the same small run one after the other: each resumes it from what the last one left. Only a strike on
rank 0 at its start begins a new run. After each trial the run goes on for a step in this process, with two threads in
the place of two ranks.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, redirect_stderr, suppress
from itertools import product
from pathlib import Path
from typing import Iterator, NamedTuple
from unittest import mock

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.errors import UserError
from scratchformer.parallel import job, launcher
from scratchformer.tasks import start
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory
from scratchformer.training.trainer import Trainer

FAULTS, MOMENTS, RANKS = ("raise", "kill", "stop", "hang"), ("start-up", "step", "validation", "checkpoint"), 2
FROM_OUTSIDE = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
LATEST_CALL = 4  # of those among which one is drawn
DELAYS = 0.1, 0.9  # seconds after the start of a rank, for a fault from outside
TIMEOUT, LONG_TIMEOUT = 4, 60  # of a trial that ends by it, and of one that must not need it
FAULTY = Path(__file__).with_name("faulty.py")
SEED = 0


class Trial(NamedTuple):
    """call: see `faulty.py`; 0 for a fault from outside, after so many seconds."""

    fault: str
    rank: int
    moment: str
    call: int
    delay: float = 0.0


class Ending(NamedTuple):
    """The outcome of a trial.

    seconds  from the fault until the launcher has returned
    code     what it returned
    said     standard error
    left     processes, files in memory, temporary files, half-written checkpoints
    harmed   checkpoints that are gone, have changed, or cannot be read
    resumed  the step that the run took afterwards, and its loss
    """

    seconds: float
    code: int
    said: str
    left: list[str]
    harmed: list[str]
    resumed: tuple[int, float]


def all_trials(seed: int) -> list[Trial]:
    draw = random.Random(seed)
    trials = [
        Trial(fault, rank, moment, 1 if moment == "start-up" else draw.randint(1, LATEST_CALL))
        for fault, moment, rank in product(FAULTS, MOMENTS, range(RANKS))
    ]
    from_outside = product(FROM_OUTSIDE, range(RANKS))
    trials += [Trial(fault, rank, "any", 0, round(draw.uniform(*DELAYS), 2)) for fault, rank in from_outside]
    draw.shuffle(trials)
    return trials


class Site:
    """A directory in which one trial follows the other: runs, and the only places where a job may leave anything.

    config  of a run that does not end by itself
    """

    def __init__(self, directory: Path, config: Config) -> None:
        self.directory, endless = directory, {"training.steps": 10**6, "training.keep": 10**6, "training.threads": 1}
        self.config = configs.with_settings(config, endless)
        self.memory, self.temporary = directory / "memory", directory / "temporary"
        for place in (self.memory, self.temporary):
            place.mkdir()
        self.config_file = directory / "config.toml"
        self.config_file.write_text(configs.to_toml(self.config), encoding="utf-8")
        self.run = RunDirectory(directory / "run")

    def carry_out(self, number: int, trial: Trial) -> Ending:
        anew = (trial.moment, trial.rank) == ("start-up", 0)
        run = RunDirectory(self.directory / f"run{number}") if anew else self.run
        mark, before = self.directory / f"mark{number}", state(run)
        with self.everything_here(), said_into(self.directory / f"said{number}") as told:
            if not trial.call:
                threading.Thread(target=self.strike_from_outside, args=[trial, mark]).start()
            timeout = TIMEOUT if trial.fault in ("stop", "hang") else LONG_TIMEOUT
            code = launcher.launch(self.command(trial, run, mark, timeout), RANKS)
            ended = time.time()
        if code:
            run.remove_unfinished()  # as the command line does
        seconds = round(ended - mark.stat().st_mtime, 2) if mark.exists() else -1.0
        left, harmed = self.left(run), harm(before, run)
        return Ending(seconds, code, told.read_text(encoding="utf-8"), left, harmed, self.one_step_more(run))

    def command(self, trial: Trial, run: RunDirectory, mark: Path, timeout: int) -> list[str]:
        fault = trial._asdict() | {"mark": str(mark)}
        fault.pop("delay")
        what = ["--resume", run.path] if run.config_file.exists() else [self.config_file, "--out", run.path]
        words = [sys.executable, FAULTY, json.dumps(fault if trial.call else None), "train", *what]
        return [str(word) for word in (*words, "--nproc", RANKS, "--timeout", timeout)]

    def strike_from_outside(self, trial: Trial, mark: Path) -> None:
        while not (found := self.processes(trial.rank)):
            time.sleep(0.01)
        time.sleep(trial.delay)
        mark.touch()
        with suppress(ProcessLookupError):
            os.kill(found[0], FROM_OUTSIDE[trial.fault])

    def one_step_more(self, run: RunDirectory) -> tuple[int, float]:
        """Take the run up, or begin it if it has not come to that."""
        config = configs.with_settings(self.config, {"training.threads": RANKS})
        with said_into(self.directory / "said"):
            trainer = start.resume(run, config)[0] if run.config_file.exists() else start.begin(run, config)
            train_until(trainer, trainer.progress.step + 1)
        run.unlock()
        entry = run.read_log("step")[-1]
        return entry["step"], entry["loss"]

    def undisturbed(self, steps: int) -> RunDirectory:
        """A run of so many steps that nothing strikes."""
        run = RunDirectory(self.directory / "undisturbed")
        with said_into(self.directory / "said"):
            train_until(start.begin(run, configs.with_settings(self.config, {"training.threads": RANKS})), steps)
        return run

    @contextmanager
    def everything_here(self) -> Iterator[None]:
        with (
            mock.patch.object(launcher, "MEMORY_DIRECTORY", self.memory),
            mock.patch.object(tempfile, "tempdir", str(self.temporary)),
            mock.patch.dict(os.environ, {"TMPDIR": str(self.temporary)}),
        ):
            yield

    def processes(self, rank: int | None = None) -> list[int]:
        """The processes of the job, or those of a rank, by what they read in their environment (Linux)."""
        here = f"\0TMPDIR={self.temporary}\0".encode()
        one = b"" if rank is None else f"\0{job.RANK}={rank}\0".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                told = b"\0" + (process / "environ").read_bytes()
                if here in told and one in told and int(process.name) != os.getpid():
                    found.append(int(process.name))
        return found

    def left(self, run: RunDirectory) -> list[str]:
        half_written = [path for path in run.path.rglob(".*") if path.is_file()]
        files = *self.memory.iterdir(), *self.temporary.iterdir(), *half_written
        return [*(f"process {number}" for number in self.processes()), *map(str, files)]


def train_until(trainer: Trainer, step: int) -> None:
    """Train, and save at the end; the length of a run does not change what it does until then."""
    settings = trainer.config
    trainer.config = configs.with_settings(settings, {"training.steps": step})
    loop.train(trainer)
    trainer.config = settings


@contextmanager
def said_into(path: Path) -> Iterator[Path]:
    """Send standard error of this process, and of those that it starts, to a file."""
    sys.stderr.flush()
    with open(path, "w", encoding="utf-8") as file:
        terminal = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            with redirect_stderr(file):
                yield path
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def state(run: RunDirectory) -> dict[str, tuple[int, int]]:
    """Of each checkpoint, what tells whether it has been written since."""
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in run.checkpoints.steps()}


def harm(before: dict[str, tuple[int, int]], run: RunDirectory) -> list[str]:
    """Complaints about checkpoints that are gone, have changed, or cannot be read."""
    after = state(run)
    complaints = [f"{name} is gone, or has changed" for name in before if after.get(name) != before[name]]
    new = [run.checkpoints.directory / name for name in after if name not in before]
    for path in [*new, *([run.checkpoints.best] if run.checkpoints.best.exists() else [])]:
        try:
            checkpoints.load(path)
        except UserError as error:
            complaints.append(str(error))
    return complaints


def losses_of(run: RunDirectory) -> dict[int, float]:
    return {entry["step"]: entry["loss"] for entry in run.read_log("step")}
