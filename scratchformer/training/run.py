"""A run is a directory: `config.toml`, `tokenizer.model`, `checkpoints/`, `log.jsonl` and `figures/`."""

from __future__ import annotations

import json
import math
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakValueDictionary, finalize

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.files import replace_text
from scratchformer.locks import lock
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training import checkpoints
from scratchformer.training.checkpoints import Checkpoint, CheckpointDirectory


class Hold:
    """A directory that this process has for itself, as long as this object is there."""

    def __init__(self, path: Path) -> None:
        finalize(self, os.close, lock(path, "another process is training in this run"))


HELD: WeakValueDictionary[Path, Hold] = WeakValueDictionary()
"""What this process has, by whichever object."""


class RunDirectory:
    """The paths of a run, its log, and the scores it has reached."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.tokenizer_file = path / "tokenizer.model"
        self.log_file = path / "log.jsonl"
        self.evaluations_file = path / "evaluations.jsonl"
        self.figures = path / "figures"
        self.checkpoints = CheckpointDirectory(path / "checkpoints")
        self.hold: Hold | None = None

    def require_free(self) -> None:
        """Raises UserError if the directory already holds a run, or nothing can be written there."""
        if self.config_file.exists():
            raise UserError(
                f"{self.path}: holds a run already; go on with "
                f"train --resume {shlex.quote(str(self.path))}, or choose another --out"
            )
        if self.checkpoints.steps():
            raise UserError(f"{self.path}: holds checkpoints already, though no config.toml; choose another --out")
        try:
            self.checkpoints.directory.mkdir(parents=True, exist_ok=True)
            self.figures.mkdir(exist_ok=True)
            probe = self.path / ".probe"
            probe.write_bytes(b"\0" * 4096)
            probe.unlink()
        except OSError as error:
            raise UserError(f"{self.path}: cannot write the run's directory: {error.strerror}") from None

    def keep_others_out(self) -> None:
        """Have the run for this process alone, while this object is there.

        Raises UserError if another process trains in it.
        """
        path = self.path.resolve()
        self.hold = HELD[path] = HELD.get(path) or Hold(path)

    def let_others_in(self) -> None:
        self.hold = None

    def write_config(self, config: Config) -> None:
        replace_text(self.config_file, configs.to_toml(config))

    def require(self) -> None:
        """Raises UserError unless a run is here."""
        if not self.config_file.exists():
            raise UserError(f"{self.path}: no run here (config.toml is missing)")

    def log(self, event: str, values: dict[str, Any]) -> None:
        """Append one line of JSON to the log of the training."""
        append_entry(self.log_file, {"event": event, **values})

    def read_log(self, event: str) -> list[dict[str, Any]]:
        """All entries of one kind, oldest first."""
        return [entry for entry in read_entries(self.log_file) if entry.get("event") == event]

    def record_evaluation(self, scores: dict[str, Any]) -> None:
        """Append the scores of a test set; `report` shows them."""
        append_entry(self.evaluations_file, scores)

    def read_evaluations(self) -> list[dict[str, Any]]:
        """What `record_evaluation` was given, oldest first."""
        return read_entries(self.evaluations_file) if self.evaluations_file.exists() else []

    def remove_unfinished(self) -> None:
        """Remove what a killed process had begun to write."""
        for path in [
            *self.path.glob(".*.partial"),
            *self.checkpoints.directory.glob(".*.partial"),
            *self.path.glob(".probe"),
        ]:
            path.unlink(missing_ok=True)

    def forget_after(self, step: int) -> None:
        """Drop log entries of steps that no checkpoint knows: they will be taken again."""
        if not self.log_file.exists():
            return
        kept = [
            line
            for line in self.log_file.read_text(encoding="utf-8").split("\n")
            if parse_entry(line).get("step", math.inf) <= step
        ]
        replace_text(self.log_file, "".join(line + "\n" for line in kept))


def append_entry(path: Path, entry: dict[str, Any]) -> None:
    """Append one line of JSON, on a line of its own also where a crash has cut the last one short.

    Raises UserError if it cannot be written.
    """
    try:
        with open(path, "a+b") as file:
            if file.tell() and last_byte(file) != b"\n":
                file.write(b"\n")
            file.write(json.dumps(entry).encode() + b"\n")
    except OSError as error:
        raise UserError(f"{path}: cannot write: {error.strerror}") from None


def last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read()


def read_entries(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of JSON objects. A last line that a crash cut short is passed over."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', 'not UTF-8')}") from None
    return [entry for entry in map(parse_entry, lines) if entry]


def parse_entry(line: str) -> dict[str, Any]:
    """An entry of the log; {} for an empty line, and for one that a crash cut short."""
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return entry if isinstance(entry, dict) else {}


# Trained models -------------------------------------------------------------------------------------------------------


def load_run(path: str | Path, checkpoint: str | Path | None = None, dtype: str = "float32") -> Translator:
    """The model of a run, ready to translate: `load_run("runs/tiny").translate(["A sentence ."])`.

    checkpoint: "average", "best", "last" or a file; None takes the first of these that exists.
    Raises UserError if there is no run, or its files are damaged or do not belong together.
    """
    file, trained, tokenizer = read_trained(RunDirectory(Path(path)), checkpoint)
    model = Transformer(trained.config.model, seed=0, dtype=dtype)
    checkpoints.copy_into(trained.weights, model.store.named_views(model.store.data), file)
    return Translator(model, tokenizer, trained.config.decoding.extra_length)


def read_trained(run: RunDirectory, checkpoint: str | Path | None) -> tuple[Path, Checkpoint, Tokenizer]:
    """The checkpoint of a run that `load_run` takes: its file, what it holds (with the run's configuration), and the
    tokenizer. Raises UserError as `load_run` does."""
    run.require()
    config = configs.load(run.config_file)
    file = checkpoint_file(run.checkpoints, checkpoint)
    trained = checkpoints.load(file)
    configs.require_same(trained.config, config, file)
    tokenizer = Tokenizer.load(run.tokenizer_file)
    if tokenizer.vocab_size != config.model.vocab_size:
        raise UserError(
            f"{run.tokenizer_file}: {tokenizer.vocab_size} pieces, "
            f"but model.vocab_size={config.model.vocab_size} in {run.config_file}"
        )
    return file, replace(trained, config=config), tokenizer


def checkpoint_file(directory: CheckpointDirectory, wanted: str | Path | None) -> Path:
    if wanted is None:
        return directory.preferred()
    named = {"average": [directory.average], "best": [directory.best], "last": directory.steps()[-1:]}
    for path in named.get(str(wanted), [Path(wanted)]):
        if path.exists():
            return path
    raise UserError(f"{directory.directory}: there is no checkpoint {str(wanted)!r}")
