"""First contact with an NVIDIA GPU: is everything right there, and how fast is it beside PyTorch?

    python benchmarks/gpu_first_contact.py [--minutes 9] [--stages kernels,speed] [--out DIR] [--quick]

The stages: import and versions; compiling the kernels; each kernel against NumPy; matrix products; gradients; runs of
12 steps; runs that are stopped and resumed; NCCL; the other tests marked `gpu`; speed; the kernels under
compute-sanitizer. Each is a process of its own (gpu_stages.py) with a time limit, because an error of CUDA spoils its
process. A stage that failed is run once more with CUDA_LAUNCH_BLOCKING=1, if there is time, except the first and those
of speed and compute-sanitizer. The result is written after every number, and whatever happens, the last lines say what
is wrong first and which command shows more. Stages that are not run keep what the result said of them, so a second call
can go on where the first stopped.

Nothing but the standard library is imported here: a package that is missing or crashes must not end the report.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, NamedTuple

HERE = Path(__file__).resolve().parent
NAME = "gpu_first_contact"
MARK = "@@ "
"""Begins a line of a stage's output that is a record; see gpu_stages.tell."""

PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"
BLOCKING = {"CUDA_LAUNCH_BLOCKING": "1"}
AGAIN = "with CUDA_LAUNCH_BLOCKING=1"
SIGNALS = {number.value: number.name for number in signal.Signals}
SECONDS_TO_BEGIN = 5  # no stage begins with less time than this
SECONDS_TO_END = 10  # of the time, for killing the last stage and the report
PACKAGES = ("numpy", "cupy", "ml_dtypes", "threadpoolctl", "safetensors", "sentencepiece", "tqdm")

Entry = dict[str, Any]
"""What the result says of a stage."""


class Stage(NamedTuple):
    """seconds   its time limit
    needs        the modules that it imports
    after        the stage that must not have failed
    again        whether it is run once more with CUDA_LAUNCH_BLOCKING=1 if it fails
    """

    name: str
    seconds: float
    command: tuple[str, ...]
    needs: tuple[str, ...] = PACKAGES
    after: str = "compile"
    again: bool = False
    environment: dict[str, str] = {}

    def missing(self) -> list[str]:
        """The tool and the modules that it needs and that are not here."""
        tool = [self.command[0]] if shutil.which(self.command[0]) is None else []
        return tool + [module for module in self.needs if importlib.util.find_spec(module) is None]


def all_stages(quick: bool) -> list[Stage]:
    """In their order: what is worth most comes first."""

    def command(name: str) -> tuple[str, ...]:
        return (sys.executable, str(HERE / "gpu_stages.py"), name, *(["--quick"] if quick else []))

    stages = [
        Stage("environment", 60, command("environment"), (), ""),
        Stage("compile", 180, command("compile"), after="environment", again=True),
    ]
    for name in "kernels", "products", "gradient", "steps", "resume", "nccl", "rest":
        after = "environment" if name in ("products", "nccl") else "compile"
        debug = {"NCCL_DEBUG": "WARN"} if name == "nccl" else {}
        seconds = 180 if name == "rest" else 120
        needs = (*PACKAGES, "pytest")
        if name in ("steps", "resume", "nccl", "rest"):  # those save runs
            needs += ("tomli_w",)
        stages.append(Stage(name, seconds, command(name), needs, after, True, debug))
    for name, seconds in (
        *(("base", 60), ("base-pytorch", 60), ("base-compile", 150)),
        *(("big", 60), ("big-pytorch", 60), ("big-compile", 150)),
        *(("kernels", 60), ("decoding", 60)),
        *(("precisions", 150), ("precisions-pytorch", 150), ("precisions-compile", 300)),
    ):
        needs = (*PACKAGES, "torch") if name.endswith(("-pytorch", "-compile")) else PACKAGES
        stages.append(Stage(f"speed-{name}", seconds, command(f"speed-{name}"), needs))
    for name, options in (
        ("races", "--tool racecheck --racecheck-detect-level error"),  # NVIDIA's kernels cause warnings
        ("memory", "--tool memcheck --padding 512 --report-api-errors no"),
    ):
        checker = "compute-sanitizer", "--error-exitcode", "9", *options.split()
        stages.append(Stage(name, 240, (*checker, *command("kernels"), "--checked"), (*PACKAGES, "pytest")))
    return stages


# One process of a stage -----------------------------------------------------------------------------------------------


class Attempt:
    """`run` fills `entry`, and calls `keep` after each result."""

    def __init__(self, entry: Entry, keep: Callable[[], None]) -> None:
        self.entry, self.keep = entry, keep
        self.results: dict[str, dict[str, Any]] = {}
        entry |= {"verdict": NOT_RUN, "why": "everything ended before it did", "at": "", "seconds": 0.0}
        entry["results"] = self.results
        self.log: collections.deque[str] = collections.deque(maxlen=100)
        self.doing, self.reason = "its start", ""

    def run(self, stage: Stage, left: float, environment: dict[str, str]) -> None:
        """For as long as its limit, or the seconds that are left."""
        began, seconds = time.monotonic(), min(left, stage.seconds)
        try:
            process = subprocess.Popen(
                [*stage.command, f"--seconds={seconds:.1f}"],
                cwd=HERE.parent,
                env=os.environ | stage.environment | environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            pipe = process.stdout
            assert pipe is not None
            try:
                in_time = self.listen(process, pipe.fileno(), began + seconds)
            finally:  # a process that hangs in the driver cannot be killed, and is left
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                pipe.close()
                self.entry["seconds"] = round(time.monotonic() - began, 1)
        except OSError as error:
            verdict, why = FAILED, f"cannot be started: {error}"
        else:
            verdict, why = self.judged(process.returncode, in_time, seconds, seconds < stage.seconds)
        self.entry |= {"verdict": verdict, "why": short(why), "at": self.doing}
        if verdict != PASSED:
            self.entry["log"] = [short(line) for line in self.log]

    def listen(self, process: subprocess.Popen, pipe: int, deadline: float) -> bool:
        """Take in what the process prints -> whether it ends before the deadline"""
        rest = b""
        while time.monotonic() < deadline:
            if select.select([pipe], [], [], 0.1)[0] and (read := os.read(pipe, 1 << 16)):
                *lines, rest = (rest + read).split(b"\n")
                rest = rest[-10_000:]
                for line in lines:
                    self.take(line.decode(errors="replace"))
            elif process.poll() is not None:  # what it has started may hold the pipe open
                self.take(rest.decode(errors="replace"))
                return True
            else:
                time.sleep(0.01)  # it may have closed the pipe
        return False

    def take(self, line: str) -> None:
        try:
            record = json.loads(line.removeprefix(MARK), parse_constant=str) if line.startswith(MARK) else None
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            self.doing = str(record.pop("now", self.doing))
            self.reason = str(record.pop("not run", self.reason))
            if "what" in record:
                self.results[str(record.pop("what"))] = record
                self.keep()
        elif line.strip():
            self.log.append(line)

    def judged(self, code: int | None, in_time: bool, seconds: float, is_cut: bool) -> tuple[str, str]:
        """-> the verdict and why. is_cut: it had less time than its limit"""
        for what, record in self.results.items():
            if "failed" in record:
                return FAILED, f"{what}: {record['failed']}"
        if not in_time and is_cut:
            return NOT_RUN, f"the minutes were over at {self.doing}"
        if not in_time:
            return FAILED, f"no end after {seconds:.0f} s, at {self.doing}"
        if code and code < 0:
            return FAILED, f"killed by {SIGNALS.get(-code, -code)} at {self.doing}"
        if code:
            return FAILED, f"exit code {code} at {self.doing}" + (f": {self.log[-1]}" if self.log else "")
        if self.reason:
            return NOT_RUN, self.reason
        return (PASSED, "") if self.results else (FAILED, "it ended without a result")


def short(text: str) -> str:
    """One line without the paths of this machine."""
    text = " ".join(text.split()).replace(f"{HERE.parent}{os.sep}", "")
    text = re.sub(r'[^" ]*/(?=lib/python3)', "", text)
    return text if len(text) <= 400 else f"{text[:400]} ..."


# All stages -----------------------------------------------------------------------------------------------------------


class Contact:
    """The stages of one call, and the result.

    entries   stage -> what the result says, also of earlier calls
    verdicts  stage -> verdict, of this call
    """

    def __init__(self, path: Path, minutes: float, stages: list[Stage], chosen: list[str]) -> None:
        self.path, self.stages, self.chosen = path, {stage.name: stage for stage in stages}, chosen
        self.began = time.monotonic()
        self.deadline = self.began + 60 * minutes - SECONDS_TO_END
        self.entries, self.unwritten = earlier(path), ""
        self.verdicts: dict[str, str] = {}
        self.missing: dict[str, list[str]] = {}
        for stage in self.stages.values():
            for name in stage.missing():
                self.missing.setdefault(name, []).append(stage.name)

    def text(self) -> str:
        head = {
            "benchmark": NAME,
            "command": " ".join(["python", f"benchmarks/{NAME}.py", *map(short, sys.argv[1:])]),
            "missing": self.missing,
        }
        stages = {name: self.entries[name] for name in self.stages if name in self.entries}
        return json.dumps({**head, "stages": stages}, indent=1) + "\n"

    def keep(self) -> None:
        """Write the result. If that fails, `unwritten` says why."""
        unfinished = self.path.with_suffix(".unfinished")
        try:
            unfinished.write_text(self.text(), encoding="utf-8")
            os.replace(unfinished, self.path)
            self.unwritten = ""
        except OSError as error:
            if not self.unwritten:
                say(f"cannot write {self.path.name}: {error.strerror}; if that lasts, the end of the output has it")
            self.unwritten = str(error.strerror)
            with suppress(OSError):
                unfinished.unlink()

    def run(self) -> None:
        """Run the chosen stages as long as there is time, and the first in any case."""
        for name, of in self.missing.items():
            say(f"missing: {name}, without which these stages cannot run: {', '.join(of)}")
        for index, stage in enumerate(self.stages.values()):
            if index == 0 or stage.name in self.chosen:
                self.run_one(stage)

    def run_one(self, stage: Stage) -> None:
        before = self.entries.get(stage.name, {"verdict": NOT_RUN})
        entry = {"verdict": NOT_RUN, "why": self.obstacle(stage), "results": {}}
        self.entries[stage.name] = entry
        entry |= self.where_and_when()
        try:
            if not entry["why"]:
                attempt = Attempt(entry, self.keep)
                self.keep()
                attempt.run(stage, self.left(), {})
                entry |= self.where_and_when()  # `environment` has found the GPU now
            self.verdicts[stage.name] = entry["verdict"]
            if entry["verdict"] == FAILED and stage.again and self.left() > 3 * entry["seconds"] + SECONDS_TO_BEGIN:
                entry[AGAIN] = {}
                Attempt(entry[AGAIN], self.keep).run(stage, self.left(), BLOCKING)
        finally:
            if entry["verdict"] == NOT_RUN and before["verdict"] != NOT_RUN:
                self.entries[stage.name] = before
        say(f"{time.monotonic() - self.began:5.0f} s  {line_of(stage.name, entry)}")
        self.keep()

    def left(self) -> float:
        return self.deadline - time.monotonic()

    def obstacle(self, stage: Stage) -> str:
        """Why this stage cannot be run; "" if it can."""
        for other in ("environment", stage.after):
            if self.verdicts.get(other, PASSED) != PASSED:
                return f"{other}: {self.verdicts[other]}"
        if stage.missing():
            return f"needs {', '.join(stage.missing())}"
        return "no time was left" if self.left() < SECONDS_TO_BEGIN else ""

    def where_and_when(self) -> dict[str, Any]:
        found = self.entries.get("environment", {}).get("results", {})
        return {
            "gpu": found.get("device", {}).get("name"),
            "commit": found.get("surroundings", {}).get("commit"),
            "date": datetime.now(timezone.utc).isoformat(timespec="minutes"),
        }

    def report(self) -> int:
        """Print all verdicts and numbers, what is wrong first and what to do next -> the exit code"""
        say(f"\n{'stage':26} {'verdict':8} {'seconds':>7}")
        entries = {name: self.entries[name] for name in self.stages if name in self.entries}
        for name, entry in entries.items():
            say(line_of(name, entry) + ("" if name in self.verdicts else f"  (earlier: {entry['date']})"))
        for name, entry in entries.items():
            if name == "environment" or name.startswith("speed"):
                for what, record in entry["results"].items():
                    say(f"{what:30} " + ", ".join(f"{key} {shown(value)}" for key, value in record.items()))
        for line in compared(entries):
            say(line)
        if self.unwritten:
            say(f"The result could not be written ({self.unwritten}). Here it is:\n{self.text()}")
        failed = [name for name, verdict in self.verdicts.items() if verdict == FAILED]
        for line in advice(self.stages[failed[0]], entries[failed[0]]) if failed else ["Nothing that was run failed."]:
            say(line)
        still = [name for name in self.chosen if self.verdicts.get(name) != PASSED and not self.stages[name].missing()]
        if still:
            say(f"To go on: python benchmarks/{NAME}.py --stages {','.join(still)}")
        return 1 if failed or self.unwritten else 0


def say(text: str) -> None:
    with suppress(OSError, ValueError):  # perhaps nobody listens any more
        print(text, flush=True)


def earlier(path: Path) -> dict[str, Entry]:
    """The entries of the result that is there."""
    try:
        stages = json.loads(path.read_text(encoding="utf-8"))["stages"]
        return {name: entry for name, entry in stages.items() if {"verdict", "why", "date", "results"} <= entry.keys()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def line_of(name: str, entry: Entry) -> str:
    why = entry["why"] or f"{len(entry['results'])} results"
    again = f"; {AGAIN}: {entry[AGAIN]['verdict']} {entry[AGAIN]['why']}" if AGAIN in entry else ""
    return f"{name:26} {entry['verdict']:8} {entry.get('seconds', 0):7.1f}  {why}{again}"


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def compared(entries: dict[str, Entry]) -> list[str]:
    """Our steps beside PyTorch's."""
    found = {what: record for entry in entries.values() for what, record in entry["results"].items()}
    seconds = {tuple(what.split()): record["seconds"] for what, record in found.items() if "losses" in record}
    return [
        f"{model} {precision}: our step takes {seconds[model, precision, 'scratchformer'] / theirs:.2f} of {who}'s time"
        for (model, precision, who), theirs in seconds.items()
        if who != "scratchformer" and (model, precision, "scratchformer") in seconds
    ]


def advice(stage: Stage, entry: Entry) -> list[str]:
    """What went wrong in this stage, and the command that shows more."""
    lines = [f"\n{stage.name}: the end of its output:", *entry["log"]] if entry["log"] else []
    lines.append(f"\nWrong first: {stage.name}: {entry['why']}")
    last, environment = entry, stage.environment
    if AGAIN in entry:
        lines.append(f"{AGAIN}: {entry[AGAIN]['verdict']} {entry[AGAIN]['why']}")
        if entry[AGAIN]["verdict"] == PASSED:
            lines.append("So look for work that does not wait for other work: of another stream, or a copy.")
        else:
            environment = environment | BLOCKING
        if entry[AGAIN]["verdict"] == FAILED:
            last = entry[AGAIN]
    failed = [what for what, record in last["results"].items() if "failed" in record]
    what = [*failed, last["at"]][0]
    if "::" in what and stage.command[0] == sys.executable:
        command = f"python -m pytest -m gpu -W default {shlex.quote(what)}"
    else:
        command = short(" ".join(word if word != sys.executable else "python" for word in stage.command))
    lines.append("Look closer: " + " ".join([*(f"{name}={value}" for name, value in environment.items()), command]))
    return lines


def chosen_from(names: list[str]) -> Callable[[str], list[str]]:
    """For --stages: names, or the beginnings of several names."""

    def listed(text: str) -> list[str]:
        found = []
        for word in text.split(","):
            chosen = [name for name in names if name == word] or [name for name in names if name.startswith(word)]
            if not word or not chosen:
                raise argparse.ArgumentTypeError(f"{word!r} is not one of {', '.join(names)}")
            found += chosen
        return found

    return listed


def interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def main() -> int:
    names = [stage.name for stage in all_stages(quick=False)]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=9, help="for everything (default: %(default)s)")
    parser.add_argument("--stages", type=chosen_from(names), default=names, help="kernels,speed (default: all)")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="of the result (default: results/ here)")
    parser.add_argument("--quick", action="store_true", help="one test of each stage, and tiny models")
    given = parser.parse_args()
    if not given.minutes > 0:
        parser.error("--minutes must be positive")
    if not given.out.is_dir():
        parser.error(f"--out: {given.out} is no directory")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    contact, ended = Contact(given.out / f"{NAME}.json", given.minutes, all_stages(given.quick), given.stages), False
    try:
        contact.run()
        ended = True
    except KeyboardInterrupt:
        say("interrupted")
    except Exception:
        say(traceback.format_exc())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    contact.keep()
    return contact.report() or (0 if ended else 1)


if __name__ == "__main__":
    sys.exit(main())
