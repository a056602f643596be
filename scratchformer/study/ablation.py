"""What is each choice of the paper worth? Its Table 3 anew: change one thing of the base model, train, look (§6.2).

    TASKS   what the rows are tried on, and how much smaller than the paper's models
    Trial   one row with one seed: a run's directory like any other, and the commands that it still needs
    run     carry trials out, several at a time; what an interruption has left is taken up again

`ablation_tables` says what came of it.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable

from scratchformer import config as configs
from scratchformer.config import BASE, PRESETS, TABLE3, Config
from scratchformer.errors import UserError
from scratchformer.parallel.launcher import command_of
from scratchformer.text import grammar
from scratchformer.text.corpora import find_split
from scratchformer.training.loop import stop_on_signals
from scratchformer.training.run import RunDirectory, replace_text

ROWS: dict[str, dict[str, Any]] = {
    "base": {},
    **TABLE3,
    "big": {"d_model": 1024, "d_ff": 4096, "h": 16, "P_drop": 0.3, "steps": 300_000},
}
"""What each row of Table 3 changes of its first."""


@dataclass(frozen=True)
class Task:
    """Text to learn, and a base model for it whose rows can be trained within `budget`.

    widths, depth  the paper's d_model, d_ff, d_k and d_v are divided by the one, its N by the other. Heads, P_drop and
                   eps_ls are the paper's own, so that a row changes here in the proportion in which it does there.
    """

    base: Config
    widths: int
    depth: int
    budget: str

    def changes(self, row: str) -> dict[str, Any]:
        """What a row of Table 3 changes of the base model at this task's scale."""
        scale = {"N": self.depth, "d_model": self.widths, "d_ff": self.widths, "d_k": self.widths, "d_v": self.widths}
        changes = {name: value // scale[name] if name in scale else value for name, value in ROWS[row].items()}
        if "steps" in changes:                                                     # big trains three times as long
            changes["steps"] = self.base.training.steps * changes["steps"] // BASE.training.steps
        return changes

    def config(self, row: str, seed: int) -> Config:
        return configs.with_settings(self.base, {"training.seed": seed, **self.changes(row)})


def scaled_base(preset: str, widths: int, depth: int, training: dict[str, Any]) -> Config:
    """The paper's base model made smaller, with the text of a preset."""
    model = BASE.model
    small = replace(model, vocab_size=PRESETS[preset].model.vocab_size, N=model.N // depth,
                    **{name: getattr(model, name) // widths for name in ("d_model", "d_ff", "d_k", "d_v")})
    return configs.with_settings(replace(PRESETS[preset], model=small), {"keep": 1, "bleu_every": 0, **training})


TASKS = {
    "tiny": Task(scaled_base("tiny", 8, 2, {"steps": 1000, "tokens_per_batch": 1024, "accumulation": 1, "warmup": 400,
                                            "validate_every": 250, "save_every": 250}),
                 8, 2, "two minutes a run on a core"),
    "multi30k": Task(scaled_base("multi30k", 4, 2, {"steps": 4000, "max_tokens": 0, "validate_every": 500,
                                                    "save_every": 500}),
                     4, 2, "an hour a run on a core"),
    "wmt14": Task(configs.with_settings(PRESETS["wmt14-en-de-base"], {"validate_every": 2000, "keep": 1}),
                  1, 1, "half a day a run on the paper's eight GPUs; the paper's own numbers"),
}


def chosen_rows(text: str) -> list[str]:
    """"A,B2" -> base, A1 to A4 and B2, in the order of Table 3. Raises UserError for a row that is not there."""
    wanted = {"base"}
    for name in filter(None, (part.strip() for part in text.split(","))):
        found = [row for row in ROWS if row == name or row[0] == name and row[1:].isdigit()]
        if not found:
            raise UserError(f"--rows {text}: Table 3 has no row {name!r}; there are A, B, C, D, E, big, and single "
                            f"rows such as {', '.join(list(TABLE3)[:3])}")
        wanted.update(found)
    return [row for row in ROWS if row in wanted]


def written_text(task: str, out: Path) -> str:
    """The directory of the text of a task: the bundled one is written to `out`/text, so that no run derives it anew.

    Raises UserError for a task that has none of its own, or if it cannot be written.
    """
    if task != "tiny":
        raise UserError(f"--on {task} needs --data DIR, a directory that "
                        f"`scratchformer data {'wmt14-en-de' if task == 'wmt14' else task} --out DIR` writes")
    directory, partial = out / "text", out / ".text.partial"
    if not directory.exists():
        make_directory(out)
        try:
            shutil.rmtree(partial, ignore_errors=True)
            grammar.write_corpus(partial, annotations=())
            partial.rename(directory)
        except OSError as error:
            raise UserError(f"{directory}: cannot write: {error.strerror}") from None
    return str(directory)


def make_directory(path: Path) -> None:
    """Raises UserError if it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot make the directory: {error.strerror}") from None


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
            raise UserError(f"training.validate_every={training.validate_every} does not divide "
                            f"training.steps={training.steps}: the last step would not be looked at")
        self.val = find_split(Path(data.directory), "val", data.source_language, data.target_language)

    def require_same(self) -> None:
        """Raises UserError if the directory holds a run with other settings."""
        if self.run.config_file.exists():
            configs.require_same(configs.load(self.run.config_file), self.config, self.run.config_file)

    def next_command(self) -> list[str]:
        """What to do next, as arguments of `scratchformer`; [] if nothing is left."""
        path, threads = str(self.run.path), ["--threads", str(self.config.training.threads)]
        if self.loss() is None:
            if self.run.config_file.exists():
                return ["train", "--resume", path]
            replace_text(self.settings_file, configs.to_toml(self.config))
            return ["train", str(self.settings_file), "--out", path]
        if self.scores() is None:                                                    # §6.2: no averaging of checkpoints
            source, reference = map(str, self.val)
            machine = ["--device", self.config.training.device, *threads]
            return ["evaluate", path, "--checkpoint", "last", "--source", source, "--reference", reference, *machine]
        return []

    def loss(self) -> float | None:
        """Nats per token of the validation text after the last step; None before it is done."""
        if not self.run.log_file.exists():
            return None
        last = [entry for entry in self.run.read_log("validation") if entry["step"] == self.config.training.steps]
        return last[-1]["loss"] if last else None

    def scores(self) -> dict[str, Any] | None:
        """What `evaluate` found on the validation text after the last step."""
        found = [entry for entry in self.run.read_evaluations()
                 if entry["step"] == self.config.training.steps and entry["source"] == str(self.val.source)]
        return found[-1] if found else None

    def result(self) -> dict[str, Any]:
        """Loss in nats per token, BLEU with its signature, and what they took."""
        scores, last_step = self.scores(), self.run.read_log("step")[-1]
        assert scores is not None
        return {"row": self.row, "seed": self.seed, "loss": self.loss(), "bleu": scores["bleu"],
                "bleu_signature": scores["bleu_signature"], "target_tokens": last_step["all_target_tokens"],
                "train_seconds": self.run.read_log("validation")[-1]["train_seconds"]}


# All of them ----------------------------------------------------------------------------------------------------------


def run(trials: list[Trial], jobs: int, tell: Callable[[str], None]) -> list[str]:
    """Carry out what is left of the trials, `jobs` at a time. -> what went wrong with some of them

    A trial that fails leaves the others alone. Raises KeyboardInterrupt when a signal has come; the runs have been
    saved by then, and the next call goes on with them.
    """
    for trial in trials:
        trial.require_same()
        make_directory(trial.settings_file.parent)
    waiting = [(trial, command) for trial in trials if (command := trial.next_command())]
    tell(f"{len(trials)} runs, {len(waiting)} of them not done yet")
    running: list[Process] = []
    failures = []
    with stop_on_signals() as stop:
        while running or waiting and not stop.requested:
            while waiting and len(running) < jobs and not stop.requested:
                running.append(Process(*waiting.pop(0)))
            time.sleep(0.1)
            for process in running if stop.requested else []:
                process.stop()
            for process in [process for process in running if process.ended()]:
                running.remove(process)
                trial, following = process.trial, process.trial.next_command()
                if process.code == 0 and following != process.command:
                    if following:
                        waiting.insert(0, (trial, following))
                    else:
                        tell(f"{trial.name}: loss {trial.loss():.3f}, BLEU {trial.result()['bleu']:.1f}; "
                             f"{len(waiting) + len(running)} to go")
                elif not stop.requested:
                    failures.append(f"{trial.name}: {process.last_words()}")
                    tell(failures[-1])
    if stop.requested:
        raise KeyboardInterrupt
    return failures


class Process:
    """One command of a trial, under way. What it says goes into the file `said`, beside the run's directory."""

    def __init__(self, trial: Trial, command: list[str]) -> None:
        self.trial, self.command, self.told_to_stop = trial, command, False
        self.said = trial.settings_file.with_suffix(".txt")
        with open(self.said, "a", encoding="utf-8") as file:
            self.process = subprocess.Popen(command_of(command), stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                                            start_new_session=True)

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
        return f"exit code {self.code}; {lines[-1] if lines else 'it said nothing'}"
