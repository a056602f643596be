"""A run is a directory: `config.toml`, `tokenizer.model`, `checkpoints/`, `log.jsonl` and `figures/`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from scratchformer import config as configs
from scratchformer.backends.device import Device
from scratchformer.config import Config
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.files import append_line, is_our_output, lock, replace_text, user_error, whole_file
from scratchformer.nn.model import Model
from scratchformer.nn.models import new_model
from scratchformer.nn.registry import split_name
from scratchformer.nn.transformer import Transformer
from scratchformer.parallel.communicator import Communicator
from scratchformer.preparation import is_prepared
from scratchformer.text.tokenizer import Tokenizer, read_tokenizer
from scratchformer.training import checkpoints
from scratchformer.training.checkpoints import Checkpoint, CheckpointDirectory, Progress
from scratchformer.training.model_code import other_code

LOCKS: dict[Path, int] = {}
"""The runs that this process has locked -> the file descriptors of the locks."""


class RunDirectory:
    """The paths of a run, its log, and the scores of its evaluations."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.model_file = path / "model.py"  # a copy of the user's file, if the model is from one
        self.tokenizer_file = path / "tokenizer.model"
        self.log_file = path / "log.jsonl"
        self.evaluations_file = path / "evaluations.jsonl"
        self.figures = path / "figures"
        self.checkpoints = CheckpointDirectory(path / "checkpoints")
        self.callbacks: list[Callable[[str, dict[str, Any]], None]] = []

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Make and lock the directory for a new run, which the block checks and writes.

        If the block raises, everything that was made is removed again, also the directories above the run's. Otherwise
        the run stays locked.
        """
        self.require_free()
        with ExitStack() as undo:
            with user_error(self.path, "cannot write the run's directory"):
                for directory in (*reversed(self.path.parents), self.path, self.checkpoints.directory):
                    if not directory.is_dir():
                        directory.mkdir()
                        undo.callback(remove, directory)
            self.lock()
            undo.callback(self.unlock)
            for path in (self.tokenizer_file, self.checkpoints.best, self.config_file):
                if not path.exists():
                    undo.callback(remove, path)
            yield
            undo.pop_all()

    def require_free(self) -> None:
        """Refuse a directory that holds a run, or visible files other than our output (2> RUN/messages)."""
        if self.config_file.exists():
            resume = f"train --resume {shlex.quote(str(self.path))}"
            raise UserError(f"{self.path}: holds a run already; resume it with {resume}, or choose another --out")
        if self.checkpoints.steps():
            raise UserError(f"{self.path}: holds checkpoints already, but no config.toml; choose another --out")
        foreign = sorted(path.name for path in self.path.glob("*") if not self.is_left_over(path))
        if foreign:
            raise UserError(f"{self.path}: holds {foreign[0]}, which no training wrote; choose another --out")

    def is_left_over(self, path: Path) -> bool:
        """Say whether this is our own output, a hidden file, or a leftover of an aborted start."""
        if path == self.checkpoints.directory:
            return path.is_dir() and not any(path.iterdir())
        begun = path == self.tokenizer_file and self.checkpoints.directory.is_dir()
        return path.name.startswith(".") or begun or is_our_output(path)

    def owns(self, path: Path) -> bool:
        """Return True for a path that training or an evaluation writes in this directory."""
        files = (self.config_file, self.model_file, self.tokenizer_file, self.log_file, self.evaluations_file)
        older = path.parent == self.path and path.match("model.*.py")
        return path in files or older or self.checkpoints.directory in (path, path.parent)

    def lock(self) -> None:
        """Keep other processes from training in this run, until `unlock` or the end of this process."""
        path = self.path.resolve()
        if path not in LOCKS:
            LOCKS[path] = lock(path, "another process is training in this run")

    def unlock(self) -> None:
        """Let other processes train in this run again."""
        if (descriptor := LOCKS.pop(self.path.resolve(), None)) is not None:
            os.close(descriptor)

    def write_model(self, tokenizer: Tokenizer, checkpoint: Checkpoint) -> None:
        """Make a run of a model: this checkpoint, which is without moments, is its best."""
        with self.reserved():
            tokenizer.save(self.tokenizer_file)
            checkpoints.save(self.checkpoints.best, checkpoint)
            self.write_config(checkpoint.config)
        self.unlock()

    def write_config(self, config: Config) -> None:
        """Write config.toml, atomically."""
        replace_text(self.config_file, configs.to_toml(config))
        if config.model.defined_in:
            file, _ = split_name(config.model.defined_in)
            with user_error(file, "cannot read"):
                text = file.read_text(encoding="utf-8")
                if self.model_file.exists() and self.model_file.read_text(encoding="utf-8") != text:
                    n_older = len(list(self.path.glob("model.*.py")))
                    self.model_file.rename(self.path / f"model.{n_older + 1}.py")  # the code of earlier checkpoints
                replace_text(self.model_file, text)

    def require(self, *tasks: str) -> Config:
        """Refuse a directory without a run, or with a run for none of these tasks -> its configuration"""
        if not self.config_file.exists():
            raise UserError(f"{self.path}: no run here (config.toml is missing)")
        config = configs.load(self.config_file)
        own, _ = split_name(config.model.defined_in)
        if own.name and (not own.is_absolute() or self.path.resolve() in own.resolve().parents):
            raise UserError(f"{self.config_file}: names {own}, but no code of a run is run: keep the file outside it")
        if tasks and config.data.task not in tasks:
            raise UserError(f"{self.path}: is for {config.data.task}, but this needs {' or '.join(tasks)}")
        return config

    def read_tokenizer(self, config: Config) -> Tokenizer | None:
        """The tokenizer of this run, whose configuration is given; None for a run on images."""
        return Tokenizer.load(self.tokenizer_file) if config.model.reads_text else None

    def changed_texts(self, config: Config) -> str:
        """Say which files of the text are newer than the run's tokenizer; if none is, which files there are."""
        data, began = config.data, self.tokenizer_file
        files = list(map(Path, data.files)) or sorted(Path(data.directory).glob("*.*")) if data.names_text else []
        newer = [file for file in files if began.exists() and file.stat().st_mtime > began.stat().st_mtime]
        if newer or not files:
            return f"{checkpoints.listed([*map(str, newer)]) if files else 'the bundled corpus'} changed since then"
        return f"one of {checkpoints.listed([*map(str, files)])} was exchanged, or one is missing"

    def log(self, event: str, values: dict[str, Any]) -> None:
        """Append one line of JSON to the log of the training, and call the callbacks."""
        append_line(self.log_file, json.dumps({"event": event, **values}))
        for callback in self.callbacks:
            callback(event, values)

    def read_log(self, event: str) -> list[dict[str, Any]]:
        """All entries of one kind, oldest first. An imported run has none."""
        return [entry for entry in read_entries(self.log_file) if entry.get("event") == event]

    def last_good_checkpoint(self) -> str:
        """Name the checkpoint from which training can go on, as the end of a message."""
        saved = self.checkpoints.steps()
        return f"the last good checkpoint is {saved[-1]}" if saved else "there is no checkpoint yet"

    def record_evaluation(self, scores: dict[str, Any]) -> None:
        """Append the scores of a test set."""
        append_line(self.evaluations_file, json.dumps(scores))

    def read_evaluations(self) -> list[dict[str, Any]]:
        """The scores that `record_evaluation` has appended, oldest first."""
        return read_entries(self.evaluations_file)

    def remove_unfinished(self) -> None:
        """Remove what a killed training left half-written. Only for a process that has locked the run."""
        own = (self.config_file, self.tokenizer_file, self.log_file)
        saved = self.checkpoints.directory
        for path in (
            *(self.path / f".{each.name}.partial" for each in own),
            *saved.glob(".step_*.partial"),
            *saved.glob(".best.*.partial"),
        ):
            path.unlink(missing_ok=True)

    def drop_log_after(self, step: int) -> None:
        """Remove the log entries of later steps, which will be repeated."""
        if self.log_file.exists():
            lines = self.log_file.read_bytes().split(b"\n")
            with whole_file(self.log_file) as file:
                file.writelines(line + b"\n" for line in lines if is_until(parse_entry(line), step))


def share_tokenizer(tokenizer: Tokenizer | None, ranks: Communicator) -> Tokenizer | None:
    """Send the tokenizer of rank 0, if any, to the other ranks."""
    if ranks.size == 1:
        return tokenizer
    serialized = ranks.broadcast_bytes(tokenizer.serialized if tokenizer else b"")
    return tokenizer or (read_tokenizer(serialized) if serialized else None)


def require_place(path: Path, mark: bytes = b"") -> None:
    """Refuse a place in a run or a prepared corpus, and one that has anything but an older output of the same command.

    mark  bytes near the beginning of such an output; without one, nothing is replaced
    """
    with user_error(path, "cannot write"):
        if path.is_symlink() or path.exists() and not path.is_file():
            raise UserError(f"{path}: cannot write: not a plain file")
        place = path.resolve()
        for run in map(RunDirectory, (place.parent, place.parent.parent)):
            if run.config_file.exists() and run.owns(place):
                raise UserError(f"{path}: belongs to the run {run.path}; choose another place")
        if is_prepared(place.parent):
            raise UserError(f"{path}: lies in the prepared corpus {place.parent}; choose another place")
        if path.exists() and path.stat().st_size:
            with path.open("rb") as file:
                if not mark or mark not in file.read(2**22):
                    remedy = f"rm {shlex.quote(str(path))}, or choose another name"
                    raise UserError(f"{path}: exists already and is not replaced: {remedy}")


def remove(path: Path) -> None:
    """Remove a file or an empty directory, if that is possible."""
    with suppress(OSError):
        path.rmdir() if path.is_dir() else path.unlink()


def is_until(entry: dict[str, Any], step: int) -> bool:
    """Return True for an entry of the log of this step or an earlier one."""
    return type(entry.get("step")) is int and entry["step"] <= step


def read_entries(path: Path) -> list[dict[str, Any]]:
    """The objects in a file with one line of JSON for each, [] if there is none. Damaged lines are left out."""
    with user_error(path, "cannot read"):
        lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [entry for entry in map(parse_entry, lines) if entry]


def parse_entry(line: bytes) -> dict[str, Any]:
    """The object in a line of JSON; {} for an empty line, and for one that a crash has damaged."""
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


# Trained models -------------------------------------------------------------------------------------------------------


class Trained(NamedTuple):
    """A trained model and the device on which it computes.

    tokenizer  a Tokenizer; None if the model reads no text
    file       the checkpoint
    threads    cores to use on a CPU
    """

    model: Model
    tokenizer: Any
    config: Config
    file: Path
    device: Device
    threads: int


def load_model(
    path: str | Path,
    checkpoint: str | Path | None = None,
    dtype: str = "float32",
    threads: int = 1,
    device: Device = Device(),
    tasks: tuple[str, ...] = (),
) -> Trained:
    """The model of a run of any task. Arguments as for `load_run`."""
    file, trained, tokenizer = read_trained(RunDirectory(Path(path)), checkpoint, *tasks)
    model = new_model(trained.config.model, seed=0, dtype=dtype)
    if remark := other_code(trained.progress.code, model, file):
        print(remark, file=sys.stderr)
    checkpoints.copy_into(trained.weights, model.store.named_views(model.store.data), file)
    device.to_device(model)
    return Trained(model, tokenizer, trained.config, file, device, threads)


def load_run(
    path: str | Path,
    checkpoint: str | Path | None = None,
    dtype: str = "float32",
    threads: int = 1,
    device: Device = Device(),
) -> Translator:
    """The model of a run, ready to translate: `load_run("runs/tiny").translate(["A sentence ."])`.

    checkpoint  "average", "best", "last" or a file; None takes the first of these that exists, but not an average that
                is older than the last checkpoint
    threads     cores to use on a CPU
    """
    return translator_of(load_model(path, checkpoint, dtype, threads, device, ("translation", "parsing")))


def translator_of(trained: Trained) -> Translator:
    """A trained model, which must be an encoder and a decoder, ready to translate."""
    model, tokenizer, config, _, device, threads = trained
    assert isinstance(model, Transformer) and tokenizer is not None
    rules = None
    if config.data.task == "parsing":
        from scratchformer.decoding.tree_parser import TreeRules  # only a parser needs it

        rules = TreeRules(tokenizer.target)
    return Translator(model, tokenizer, config.decoding.extra_length, threads, device, rules=rules)


def read_trained(
    run: RunDirectory, checkpoint: str | Path | None, *tasks: str
) -> tuple[Path, Checkpoint, Tokenizer | None]:
    """The checkpoint that `load_model` takes -> its file, its contents with the run's configuration, the tokenizer"""
    config = run.require(*tasks)
    own, _ = split_name(config.model.defined_in)
    if config.model.defined_in and not own.exists():
        raise UserError(f"{own}: the run's model needs it, and it is gone; its copy: cp {run.model_file} {own}")
    file = checkpoint_file(run.checkpoints, checkpoint)
    trained = checkpoints.load(file)
    configs.require_same(trained.config, config, file)
    tokenizer = run.read_tokenizer(config)
    if tokenizer:
        require_tokenizer(run.tokenizer_file, tokenizer, trained.progress, file)
    return file, replace(trained, config=config), tokenizer


def require_tokenizer(path: Path, tokenizer: Tokenizer, progress: Progress, checkpoint: Path) -> None:
    """Refuse a tokenizer with which the checkpoint was not trained, as far as it says."""
    if progress.tokenizer_checksum not in (0, tokenizer.checksum):
        raise UserError(f"{path}: damaged, or not the tokenizer with which {checkpoint} was trained")


def checkpoint_file(directory: CheckpointDirectory, wanted: str | Path | None) -> Path:
    """The file of a checkpoint that is named as for `load_run`; says so if an average is passed over."""
    if wanted is None:
        path = directory.preferred()
        if path != directory.average and directory.average.exists():
            print(f"{directory.average}: older than the last checkpoint; {path.name} is used", file=sys.stderr)
        return path
    named = {"average": [directory.average], "best": [directory.best], "last": directory.steps()[-1:]}
    for path in named.get(str(wanted), [Path(wanted)]):
        if path.exists():
            return path
    raise UserError(f"{directory.directory}: there is no checkpoint {str(wanted)!r}")
