"""What is each choice of the paper worth? Its Table 3 anew: change one thing of the base model, train, look (§6.2).

    TASKS      what the rows are tried on, and how much smaller than the paper's models
    Trial      one row with one seed: a run's directory like any other, and the command that it needs next
    carry_out  trials, several at a time; what an interruption has left is taken up again

`ablation_tables` says what came of it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Collection

from scratchformer import config as configs
from scratchformer.config import BASE, BIG, PRESETS, TABLE3, Config
from scratchformer.errors import UserError
from scratchformer.files import make_directory, replace_text
from scratchformer.locks import lock
from scratchformer.parallel.launcher import command_of
from scratchformer.text import bundled
from scratchformer.text.corpora import find_split
from scratchformer.training.loop import stop_on_signals
from scratchformer.training.run import RunDirectory

ROWS: dict[str, dict[str, Any]] = {
    "base": {},
    **TABLE3,
    "big": {
        **{name: getattr(BIG.model, name) for name in ("d_model", "d_ff", "h", "P_drop")},
        "steps": BIG.training.steps,
    },
}
"""What each row of Table 3 changes of its first; big has base's batches here, of wider buckets than its preset's."""


@dataclass(frozen=True)
class Task:
    """Text to learn, and a base model for it that the rows change.

    dataset        the public data set that the text is; "" for the bundled one
    widths, depth  the paper's d_model, d_ff, d_k and d_v are divided by the one, its N by the other. Heads, P_drop and
                   eps_ls are the paper's own, so that a row changes here in the proportion in which it does there.
    """

    base: Config
    dataset: str
    widths: int
    depth: int

    def changes(self, row: str) -> dict[str, Any]:
        """What a row of Table 3 changes of the base model at this task's scale."""
        scale = {"N": self.depth, "d_model": self.widths, "d_ff": self.widths, "d_k": self.widths, "d_v": self.widths}
        changes = {name: value // scale[name] if name in scale else value for name, value in ROWS[row].items()}
        if "steps" in changes:  # big trains three times as long
            changes["steps"] = self.base.training.steps * changes["steps"] // BASE.training.steps
        return changes

    def config(self, row: str, seed: int) -> Config:
        return configs.with_settings(self.base, {"training.seed": seed, **self.changes(row)})


def scaled_base(preset: str, widths: int, depth: int, training: dict[str, Any]) -> Config:
    """The paper's base model made smaller, with vocabulary and batches of a preset; equation 3 without a factor."""
    model = BASE.model
    small = replace(
        model,
        vocab_size=PRESETS[preset].model.vocab_size,
        N=model.N // depth,
        **{name: getattr(model, name) // widths for name in ("d_model", "d_ff", "d_k", "d_v")},
    )
    return configs.with_settings(
        replace(PRESETS[preset], model=small), {"lr_factor": 1.0, "keep": 1, "bleu_every": 0, **training}
    )


TASKS = {
    "tiny": Task(
        scaled_base(
            "tiny",
            8,
            2,
            {
                "steps": 1000,
                "tokens_per_batch": 1024,
                "accumulation": 1,
                "warmup": 400,
                "validate_every": 250,
                "save_every": 250,
            },
        ),
        "",
        8,
        2,
    ),
    "multi30k": Task(
        scaled_base("multi30k", 4, 2, {"steps": 4000, "max_tokens": 0, "validate_every": 500, "save_every": 500}),
        "multi30k",
        4,
        2,
    ),
    "wmt14": Task(
        configs.with_settings(PRESETS["wmt14-en-de-base"], {"validate_every": 2000, "keep": 1}), "wmt14-en-de", 1, 1
    ),
}


def chosen_rows(text: str) -> list[str]:
    """ "A,B2" -> base, A1 to A4 and B2, in the order of Table 3. Raises UserError for a row that is not there."""
    wanted = {"base"}
    for name in filter(None, (part.strip() for part in text.split(","))):
        found = [row for row in ROWS if row == name or row[0] == name and row[1:].isdigit()]
        if not found:
            raise UserError(
                f"--rows {text}: Table 3 has no row {name!r}; there are A, B, C, D, E, big, and single "
                f"rows such as {', '.join(list(TABLE3)[:3])}"
            )
        wanted.update(found)
    return [row for row in ROWS if row in wanted]


def written_text(task: str, out: Path) -> str:
    """The directory of the text of a task: the bundled one is written to `out`/text, so that no run derives it anew.

    Raises UserError for a task that has none of its own, or if it cannot be written.
    """
    if TASKS[task].dataset:
        raise UserError(
            f"--on {task} needs --data DIR, a directory that "
            f"`scratchformer data {TASKS[task].dataset} --out DIR` writes"
        )
    directory = out / "text"
    if not (directory / "val.de").exists() or not (directory / "train.de").exists():
        bundled.write_corpus(directory, bundled.read_all(), annotations=())
    return str(directory)


def require_rows_own(task: Task, rows: list[str], settings: Collection[str]) -> None:
    """Raises UserError if one of the settings (full keys) is what a row changes: the row would not be itself."""
    for row in rows:
        for name in task.changes(row):
            if configs.full_key(name) in settings:
                raise UserError(f"--set {name}: row {row} of Table 3 is about that; leave the row out, or the setting")
    if "training.seed" in settings:
        raise UserError("--set seed: the runs of a row differ in nothing else; --seeds says how many there are")


# One run --------------------------------------------------------------------------------------------------------------


class Trial:
    """A row with a seed, in the directory `out`/ROW-seedN: a run that `train --resume` and `report` know, too.

    config  as `Task.config` says; the directory of its text has files val.*
    """

    def __init__(self, row: str, seed: int, config: Config, out: Path) -> None:
        self.row, self.seed, self.config = row, seed, config
        self.name = f"{row}-seed{seed}"
        self.run = RunDirectory(out / self.name)
        self.settings_file = out / f"{self.name}.toml"
        data, training = config.data, config.training
        if training.steps % training.validate_every:
            raise UserError(
                f"training.validate_every={training.validate_every} does not divide "
                f"training.steps={training.steps}: the last step would not be looked at"
            )
        for ends in ("max_tokens", "minutes", "patience"):
            if getattr(training, ends):
                raise UserError(
                    f"training.{ends}={getattr(training, ends)}: rows that end before training.steps "
                    "cannot be compared"
                )
        self.val = find_split(Path(data.directory), "val", data.source_language, data.target_language)

    def require_same(self) -> None:
        """Raises UserError if the directory holds a run with other settings, of another length or of other text: runs
        are compared only if they differ in nothing but their row, their seed and the number of cores.
        """
        if self.run.config_file.exists():
            configs.require_same(
                configs.load(self.run.config_file), self.config, self.run.config_file, may_change={"training.threads"}
            )

    def is_same(self) -> bool:
        try:
            self.require_same()
        except UserError:
            return False
        return True

    def next_command(self) -> list[str]:
        """What to do next, as arguments of `scratchformer`; [] if it is done."""
        path, last = str(self.run.path), self.run.checkpoints.of_step(self.config.training.steps)
        if self.validation() is None or not last.exists():
            new = not self.run.config_file.exists()
            return ["train", str(self.settings_file), "--out", path] if new else ["train", "--resume", path]
        if self.scores() is None:  # §6.2: no averaging of checkpoints
            source, reference = map(str, self.val)
            settings = self.config.training
            return [
                "evaluate",
                path,
                "--checkpoint",
                "last",
                "--source",
                source,
                "--reference",
                reference,
                "--device",
                settings.device,
                "--threads",
                str(settings.threads),
            ]
        return []

    @property
    def done(self) -> bool:
        return not self.next_command()

    def validation(self) -> dict[str, Any] | None:
        """What the log says of the validation text after the last step; None before it is done."""
        log = self.run.read_log("validation") if self.run.log_file.exists() else []
        found = [entry for entry in log if entry.get("step") == self.config.training.steps]
        return found[-1] if found else None

    def scores(self) -> dict[str, Any] | None:
        """What `evaluate` found on the validation text after the last step, searching as configured."""
        steps, decoding = self.config.training.steps, self.config.decoding
        wanted = {
            "checkpoint": self.run.checkpoints.of_step(steps).name,
            "step": steps,
            "beam": decoding.beam,
            "alpha": decoding.alpha,
            "source": str(self.val.source),
            "reference": str(self.val.target),
        }
        found = [entry for entry in self.run.read_evaluations() if wanted.items() <= entry.items() and "bleu" in entry]
        return found[-1] if found else None

    def result(self) -> dict[str, Any]:
        """Of a trial that is done: loss in nats per token, BLEU with its signature, and what they took."""
        validation, scores = self.validation(), self.scores()
        assert validation and scores
        return {
            "row": self.row,
            "seed": self.seed,
            "loss": validation["loss"],
            "bleu": scores["bleu"],
            "bleu_signature": scores["bleu_signature"],
            "target_tokens": validation["all_target_tokens"],
            "train_seconds": validation["train_seconds"],
        }


def on_disk(out: Path) -> list[tuple[str, int]]:
    """The rows and seeds whose runs lie in the directory."""
    found = [re.fullmatch(r"(\w+)-seed(\d+)", path.name) for path in sorted(out.glob("*-seed*/"))]
    return [(match[1], int(match[2])) for match in found if match and match[1] in ROWS]


# All of them ----------------------------------------------------------------------------------------------------------


def carry_out(trials: list[Trial], jobs: int, tell: Callable[[str], None]) -> list[str]:
    """Carry out what is left of the trials, `jobs` at a time. -> what went wrong with some of them

    A trial that fails leaves the others alone. Raises UserError if a directory holds a run with other settings, cannot
    be written, or if runs are under way there; and KeyboardInterrupt when a signal has come: the runs have been saved
    by then, and the next call goes on with them.
    """
    for trial in trials:
        trial.require_same()
    out = trials[0].settings_file.parent
    make_directory(out)
    held = lock(out, "runs of an earlier call are still under way here")  # by whoever of them lives longest
    waiting = [trial for trial in trials if not trial.done]
    tell(
        f"{len(trials)} runs, {len(waiting)} of them not done yet"
        + (f"; what each says is in {out / '*.txt'}" if waiting else "")
    )
    running: list[Process] = []
    failures = []
    with stop_on_signals() as stop:
        try:
            while running or waiting and not stop.requested:
                while waiting and len(running) < jobs and not stop.requested:
                    running.append(Process(waiting.pop(0), held))
                time.sleep(0.1)
                for process in running if stop.requested else []:
                    process.stop()
                for process in [process for process in running if process.ended()]:
                    running.remove(process)
                    trial = process.trial
                    if trial.done:
                        tell(
                            "{row}, seed {seed}: loss {loss:.3f}, BLEU {bleu:.1f}; ".format(**trial.result())
                            + f"{len(waiting) + len(running)} to go"
                        )
                    elif process.code == 0 and trial.next_command() != process.command:
                        waiting.insert(0, trial)
                    elif not stop.requested:
                        failures.append(f"{trial.name}: {process.last_words()}")
                        tell(failures[-1])
        finally:
            for process in running:  # after an exception nobody is left
                process.stop()
                process.process.wait()
            os.close(held)
    if stop.requested:
        raise KeyboardInterrupt
    return failures


class Process:
    """The next command of a trial, under way. What it says goes into a file beside the run's directory.

    held  the lock on the directory of all runs, a file descriptor, which the process shares
    Raises UserError if that, or the file of settings, cannot be written.
    """

    def __init__(self, trial: Trial, held: int) -> None:
        self.trial, self.command, self.told_to_stop = trial, trial.next_command(), False
        self.said = trial.settings_file.with_suffix(".txt")
        replace_text(trial.settings_file, configs.to_toml(trial.config))
        try:
            with open(self.said, "a", encoding="utf-8") as file:
                self.process = subprocess.Popen(
                    command_of(self.command),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                    pass_fds=[held],
                )
        except OSError as error:
            raise UserError(f"{self.said}: cannot write: {error.strerror}") from None

    def ended(self) -> bool:
        return self.process.poll() is not None

    @property
    def code(self) -> int | None:
        return self.process.returncode

    def stop(self) -> None:
        """Ask it once to save and to end."""
        if not self.told_to_stop:
            self.process.send_signal(signal.SIGTERM)
            self.told_to_stop = True

    def last_words(self) -> str:
        lines = self.said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        end = f"exit code {self.code}" if self.code and self.code > 0 else f"ended by signal {-(self.code or 0)}"
        return f"{end}; {lines[-1] if lines else 'it said nothing'}"
