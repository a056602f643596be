"""Repeat Table 3 of the paper (§6.2): change one choice of the base model, train, and compare.

    TASKS       the texts on which the rows are trained, and how much smaller the models are than the paper's
    Trial       one row with one seed: a run directory like any other, and the command that it needs next
    run_trials  runs trials, several at a time; after an interruption it continues with what is left

`ablation_tables` compares the results.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Callable, Collection

from scratchformer import config as configs
from scratchformer.config import BASE, BIG, PRESETS, TABLE3, Config
from scratchformer.errors import UserError
from scratchformer.experiments.markdown import require_page, write_page
from scratchformer.experiments.training_log import VALIDATION_NUMBERS, checked, is_number
from scratchformer.files import make_directory, replace_text
from scratchformer.locks import lock
from scratchformer.parallel.launcher import command_of
from scratchformer.text import bundled
from scratchformer.text.corpora import ParallelFiles, find_split
from scratchformer.training.loop import stop_on_signals
from scratchformer.training.run import RunDirectory

BIG_CHANGES = {name: getattr(BIG.model, name) for name in ("d_model", "d_ff", "h", "P_drop")}
TEXT, PAGE, RESULTS, FIGURE = "text", "ablations.md", "ablations.json", "ablations.png"
"""What a directory of ablations holds, besides the runs, their settings and their messages."""

ROWS: dict[str, dict[str, Any]] = {"base": {}, **TABLE3, "big": BIG_CHANGES | {"steps": BIG.training.steps}}
"""What each row of Table 3 changes of the base model. Here big has base's batches, in wider buckets than its preset."""


@dataclass(frozen=True)
class Task:
    """A text to learn, and the scale of its models.

    preset    gives the vocabulary and the batches
    dataset   the public data set that the text is; "" for the bundled corpus
    training  settings that differ from the preset's
    width_divisor, depth_divisor  the paper's d_model, d_ff, d_k and d_v are divided by the one, its N by the other.
             Heads, P_drop and eps_ls are the paper's, so that a row changes the model in the paper's proportion.
    """

    preset: str
    dataset: str
    width_divisor: int
    depth_divisor: int
    training: dict[str, Any]

    @cached_property
    def base(self) -> Config:
        """The paper's base model made smaller, with a learning rate by equation 3 without a factor."""
        preset = PRESETS[self.preset]
        sizes = {name: getattr(BASE.model, name) for name in ("N", "d_model", "d_ff", "d_k", "d_v")}
        model = replace(BASE.model, vocab_size=preset.model.vocab_size, **self.scaled(sizes))
        settings = {"lr_factor": 1.0, "keep": 1, "score_every": 0, **self.training}
        return configs.with_settings(replace(preset, model=model), settings)

    def scaled(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The paper's settings at this task's scale."""
        divisors = {"N": self.depth_divisor, **dict.fromkeys(("d_model", "d_ff", "d_k", "d_v"), self.width_divisor)}
        return {name: value // divisors[name] if name in divisors else value for name, value in settings.items()}

    def changes(self, row: str) -> dict[str, Any]:
        """What a row of Table 3 changes of the base model."""
        changes = self.scaled(ROWS[row])
        if "steps" in changes:  # big trains three times as long
            changes["steps"] = self.base.training.steps * changes["steps"] // BASE.training.steps
        return changes

    def config(self, row: str, seed: int) -> Config:
        """The configuration of a row with this seed."""
        return configs.with_settings(self.base, {"training.seed": seed, **self.changes(row)})


TINY_TRAINING = dict(steps=1000, tokens_per_batch=1024, accumulation=1, warmup=400, validate_every=250, save_every=250)
MULTI30K_TRAINING = dict(steps=4000, max_tokens=0, validate_every=500, save_every=500)
TASKS = {
    "tiny": Task("tiny", "", 8, 2, TINY_TRAINING),
    "multi30k": Task("multi30k", "multi30k", 4, 2, MULTI30K_TRAINING),
    "wmt14": Task("wmt14-en-de-base", "wmt14-en-de", 1, 1, dict(validate_every=2000)),
}


def chosen_rows(text: str) -> list[str]:
    """ "A,B2" -> base, A1 to A4 and B2, in the order of Table 3. Raises UserError for a row that does not exist."""
    wanted = {"base"}
    for name in (part.strip() for part in text.split(",")):
        found = [row for row in ROWS if row == name or row[0] == name and row[1:].isdigit()]
        if not found:
            raise UserError(
                f"--rows {text or repr(text)}: Table 3 has no row {name!r}; there are A, B, C, D, E, big, and single "
                f"rows such as {', '.join(list(TABLE3)[:3])}"
            )
        wanted.update(found)
    return [row for row in ROWS if row in wanted]


def text_directory(task: str, out: Path) -> str:
    """Where `write_text` writes the bundled corpus for all runs. Raises UserError if the task needs --data."""
    if TASKS[task].dataset:
        raise UserError(
            f"--on {task} needs --data DIR, a directory that "
            f"`scratchformer data {TASKS[task].dataset} --out DIR` writes"
        )
    return str(out / TEXT)


def write_text(out: Path) -> None:
    """Write the bundled corpus unless it is there. Raises UserError if other text is there, or writing fails."""
    bundled.write_corpus(out / TEXT, bundled.read_all(), annotations=())


def claim(out: Path, trials: list[Trial]) -> None:
    """Make the directory of the runs and of the tables, and write its page, by which the next call knows it.

    Raises UserError, and writes nothing, if the directory is a run, or has no such page but a file that is named like
    one of ours; or if it cannot be written.
    """
    if RunDirectory(out).config_file.exists():
        raise UserError(f"{out}: holds a run; choose another --out")
    if any(RunDirectory(out / f"{row}-seed{seed}").config_file.exists() for row, seed in existing_trials(out)):
        return
    files = [path for trial in trials for path in (trial.settings_file, trial.output_file)]
    require_page(out / PAGE, [out / RESULTS, out / FIGURE, *files])
    if (out / PAGE).exists():
        return
    for directory in (out / TEXT, *(trial.run.path for trial in trials)):
        if os.path.lexists(directory):
            raise UserError(f"{directory}: this name is needed, and {out} is not of this command; choose another --out")
    make_directory(out)
    write_page(out / PAGE, "No run is done yet.\n")


def reject_row_settings(task: Task, rows: list[str], settings: Collection[str]) -> None:
    """Raises UserError if one of the settings (full keys) is what a row changes: the row would lose its meaning."""
    for row in rows:
        for name in task.changes(row):
            if configs.full_key(name) in settings:
                raise UserError(f"--set {name}: row {row} of Table 3 is about that; leave the row out, or the setting")
    if "training.seed" in settings:
        raise UserError("--set seed: the runs of a row differ in nothing else; --seeds says how many there are")


# One run --------------------------------------------------------------------------------------------------------------


class Trial:
    """A row with a seed, in the directory `out`/ROW-seedN, which `train --resume` accepts, too.

    config  from `Task.config`; the directory of its text must have files val.*

    Raises UserError if the last step would not be validated, or if the run may end before it.
    """

    def __init__(self, row: str, seed: int, config: Config, out: Path) -> None:
        self.row, self.seed, self.config = row, seed, config
        self.name = f"{row}-seed{seed}"
        self.run = RunDirectory(out / self.name)
        self.settings_file = out / f"{self.name}.toml"
        self.output_file = out / f"{self.name}.txt"
        training = config.training
        if training.steps % training.validate_every:
            raise UserError(
                f"training.validate_every={training.validate_every} does not divide "
                f"training.steps={training.steps}: the last step would not be validated"
            )
        for limit in ("max_tokens", "minutes", "patience"):
            if getattr(training, limit):
                raise UserError(
                    f"training.{limit}={getattr(training, limit)}: rows that end before training.steps "
                    "cannot be compared"
                )

    def val(self) -> ParallelFiles:
        """The validation text, which is translated in the end. Raises UserError if it is missing."""
        data = self.config.data
        return find_split(Path(data.directory), "val", data.source_language, data.target_language)

    def require_same(self) -> None:
        """Raises UserError if the directory holds a run with other settings or of other text.

        Runs can be compared only if they differ in nothing but their row, their seed and the number of cores.
        """
        if self.run.config_file.exists():
            configs.require_same(
                configs.load(self.run.config_file), self.config, self.run.config_file, may_change={"training.threads"}
            )

    def is_same(self) -> bool:
        """Whether `require_same` raises nothing."""
        try:
            self.require_same()
        except UserError:
            return False
        return True

    def next_command(self) -> list[str]:
        """The arguments for `scratchformer` that continue this trial; [] if it is done."""
        path, settings = str(self.run.path), self.config.training
        if self.validation() is None or not self.run.checkpoints.of_step(settings.steps).exists():
            if self.run.config_file.exists():
                return ["train", "--resume", path]
            return ["train", str(self.settings_file), "--out", path]
        if self.scores() is None:  # §6.2: no averaging of checkpoints
            source, reference = self.val()
            command = ["evaluate", path, "--checkpoint=last", f"--source={source}", f"--reference={reference}"]
            return [*command, f"--device={settings.device}", f"--threads={settings.threads}"]
        return []

    @property
    def done(self) -> bool:
        """Whether no command is left. Raises UserError for a damaged log, or if the validation text is missing."""
        return not self.next_command()

    def validation(self) -> dict[str, Any] | None:
        """The log's validation after the last step; None if there is none yet. Raises UserError for a damaged log."""
        numbers = (*VALIDATION_NUMBERS, "train_seconds")
        log = self.run.read_log("validation") if self.run.log_file.exists() else []
        found = [entry for entry in checked(self.run, log, numbers) if entry["step"] == self.config.training.steps]
        return found[-1] if found else None

    def scores(self) -> dict[str, Any] | None:
        """What `evaluate` recorded for the last step on the validation text, with the configured search."""
        steps, decoding, val = self.config.training.steps, self.config.decoding, self.val()
        wanted = {
            "checkpoint": self.run.checkpoints.of_step(steps).name,
            "step": steps,
            "beam": decoding.beam,
            "alpha": decoding.alpha,
            "source": str(val.source),
            "reference": str(val.target),
        }
        found = [entry for entry in self.run.read_evaluations() if wanted.items() <= entry.items()]
        sound = [each for each in found if is_number(each.get("bleu")) and isinstance(each.get("bleu_signature"), str)]
        return sound[-1] if sound else None

    def result(self) -> dict[str, Any]:
        """Of a trial that is done: loss in nats per token, BLEU with its signature, tokens and seconds of training."""
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


def existing_trials(out: Path) -> list[tuple[str, int]]:
    """The rows and seeds that have a run in the directory."""
    found = [re.fullmatch(r"(\w+)-seed(\d+)", path.name) for path in sorted(out.glob("*-seed*/"))]
    return [(match[1], int(match[2])) for match in found if match and match[1] in ROWS]


# All runs -------------------------------------------------------------------------------------------------------------


def run_trials(trials: list[Trial], jobs: int, tell: Callable[[str], None]) -> list[str]:
    """Complete the trials, `jobs` at a time -> a line for each that failed; a failure does not stop the others

    Raises UserError if a directory holds a run with other settings or cannot be written, or if runs are still active
    there. Raises KeyboardInterrupt after a signal, once the active runs are saved; the next call continues with them.
    """
    for trial in trials:
        trial.require_same()
    out = trials[0].settings_file.parent
    make_directory(out)
    lock_descriptor = lock(out, "runs of an earlier call are still under way here")
    waiting = [trial for trial in trials if not trial.done]
    where = f"; their messages are in {out / '*.txt'}" if waiting else ""
    tell(f"{len(trials)} runs, {len(waiting)} of them not done yet{where}")
    running: list[Process] = []
    failures = []
    with stop_on_signals() as stop:
        try:
            while running or waiting and not stop.requested:
                while waiting and len(running) < jobs and not stop.requested:
                    running.append(Process(waiting.pop(0), lock_descriptor))
                time.sleep(0.1)
                if stop.requested:
                    for process in running:
                        process.stop()
                for process in [process for process in running if process.ended()]:
                    running.remove(process)
                    trial = process.trial
                    if trial.done:
                        scores = "{row}, seed {seed}: loss {loss:.3f}, BLEU {bleu:.1f}".format(**trial.result())
                        tell(f"{scores}; {len(waiting) + len(running)} to go")
                    elif process.succeeded() and trial.next_command() != process.command:
                        waiting.insert(0, trial)
                    elif not stop.requested:
                        failures.append(f"{trial.name}: {process.failure()}")
                        tell(failures[-1])
        finally:
            for process in running:  # only after an exception
                process.stop()
                process.process.wait()
            os.close(lock_descriptor)
    if stop.requested:
        raise KeyboardInterrupt
    return failures


class Process:
    """A process that runs the next command of a trial. Its output goes to a file beside the run directory.

    lock_descriptor  of the lock on the directory of all runs: the process inherits it, so that the lock lasts as long
                     as any of them

    Raises UserError if its output or its settings cannot be written.
    """

    def __init__(self, trial: Trial, lock_descriptor: int) -> None:
        self.trial, self.command, self.told_to_stop = trial, trial.next_command(), False
        replace_text(trial.settings_file, configs.to_toml(trial.config))
        try:
            with open(trial.output_file, "a", encoding="utf-8") as file:
                self.process = subprocess.Popen(
                    command_of(self.command),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                    pass_fds=[lock_descriptor],
                )
        except OSError as error:
            raise UserError(f"{trial.output_file}: cannot write: {error.strerror}") from None

    def ended(self) -> bool:
        """Whether the command has ended. Does not wait."""
        return self.process.poll() is not None

    def succeeded(self) -> bool:
        """Whether the command, which has ended, returned 0."""
        return self.process.returncode == 0

    def stop(self) -> None:
        """Tell it to save and to end. Only the first call has an effect."""
        if not self.told_to_stop:
            self.process.send_signal(signal.SIGTERM)
            self.told_to_stop = True

    def failure(self) -> str:
        """How it ended, and the last line of its output."""
        code = self.process.returncode
        end = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        lines = self.trial.output_file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"{end}; {lines[-1] if lines else 'it printed nothing'}"
