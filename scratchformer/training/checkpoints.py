"""A checkpoint is the whole state of a run after a step: a run resumed from it repeats the uninterrupted one.

One safetensors file (weights, Adam's moments; never pickle, which would run code from the file) with a JSON header
(step, place in the batch plan, configuration, checksum). It is written under a temporary name, flushed to disk and then
renamed. So a file with a checkpoint's name is always complete, even if the process is killed.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialized

from scratchformer import config as configs
from scratchformer.errors import UserError, in_one_line
from scratchformer.files import user_error, whole_file
from scratchformer.nn.ops import ops_of
from scratchformer.nn.parameter import Array

FORMAT = "scratchformer checkpoint 2"


@dataclass(frozen=True)
class Progress:
    """State of a run after `step` steps, apart from weights and moments.

    epoch, index     the place of the next step in the batch plan
    target_tokens    real target tokens seen so far; seconds: wall time spent in steps
    best_loss        lowest validation loss so far, in nats per token, and the validations since (`unimproved`)
    data_checksum    of the encoded training text, to notice that it has changed; tokenizer_checksum: of the tokenizer
    threads          of all ranks together: the last bits of a sum depend on how it is divided
    code             checksums of the code that computes, see `code_of`
    device_state     what the device needs to go on, see `Device.state`
    """

    step: int = 0
    epoch: int = 0
    index: int = 0
    target_tokens: int = 0
    seconds: float = 0.0
    best_loss: float = float("inf")
    unimproved: int = 0
    data_checksum: int = 0
    tokenizer_checksum: int = 0
    threads: int = 0
    code: dict[str, int] = field(default_factory=dict)
    device_state: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoint:
    """weights: dotted name -> array; moments: "m.NAME" and "v.NAME" -> array, empty in averages."""

    weights: dict[str, np.ndarray]
    moments: dict[str, np.ndarray]
    progress: Progress
    config: configs.Config


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write the file whole or not at all."""
    tensors = {f"model.{name}": array for name, array in checkpoint.weights.items()}
    tensors |= {f"adam.{name}": array for name, array in checkpoint.moments.items()}
    header = header_of(FORMAT, checkpoint)
    header["checksum"] = checksum(header, tensors)
    with whole_file(path) as file:
        file.write(serialized(tensors, header))


def header_of(form: str, checkpoint: Checkpoint) -> dict[str, str]:
    """Make the header of a file: its format, progress and configuration. `read_header` reads it."""
    progress, config = asdict(checkpoint.progress), configs.to_dict(checkpoint.config)
    return {"format": form, "progress": json.dumps(progress), "config": json.dumps(config)}


def read_header(header: dict[str, str], path: Path) -> tuple[Progress, configs.Config]:
    """Undo `header_of`."""
    try:
        progress, config = Progress(**json.loads(header["progress"])), json.loads(header["config"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: its header is damaged ({type(error).__name__}: {in_one_line(error)})") from None
    return progress, configs.from_dict(config, str(path))


def load(path: Path) -> Checkpoint:
    """Read a checkpoint. Raises UserError, naming the file, if it is missing, truncated, damaged or not ours."""
    with open_tensors(path, FORMAT) as file:
        header, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
    if header.pop("checksum", None) != checksum(header, tensors):
        raise UserError(f"{path}: damaged: its checksum is wrong")
    progress, config = read_header(header, path)
    weights, moments = (
        {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
        for prefix in ("model.", "adam.")
    )
    return Checkpoint(weights, moments, progress, config)


def progress_of(path: Path) -> Progress:
    """Read from the header alone how far the run had come when a checkpoint was taken."""
    with open_tensors(path, FORMAT) as file:
        return read_header(file.metadata(), path)[0]


@contextmanager
def open_tensors(path: Path, form: str | None = None) -> Iterator[Any]:
    """Open a safetensors file, and turn an error of the format, also while the block reads, into a UserError.

    form  the format that its header must name; None if another program may have written it
    """
    if not path.is_file():  # a pipe would be waited for
        raise UserError(f"{path}: {'not a plain file' if path.exists() else 'no such file'}")
    with user_error(path, "cannot read"):
        try:
            with safe_open(path, framework="numpy") as file:
                if form and (file.metadata() or {}).get("format") != form:
                    raise UserError(f"{path}: a safetensors file, but not one that this program wrote as {form!r}")
                yield file
        except (SafetensorError, TypeError, AttributeError) as error:  # the last two: types that NumPy lacks
            raise UserError(f"{path}: not a sound safetensors file ({in_one_line(error):.200})") from None


def checksum(header: dict[str, str], tensors: dict[str, np.ndarray]) -> str:
    """CRC-32 over the header, and names, shapes and bytes of the tensors, in order of name."""
    crc = zlib.crc32(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        crc = zlib.crc32(f"{name}{tensors[name].shape}".encode(), crc)
        crc = zlib.crc32(np.ascontiguousarray(tensors[name]).data, crc)
    return str(crc)


def copy_into(arrays: dict[str, np.ndarray], views: dict[str, Array], path: Path) -> None:
    """Copy arrays into `views` (of a model or of Adam's moments), which must have the same names and shapes."""
    missing, surplus = sorted(views.keys() - arrays.keys()), sorted(arrays.keys() - views.keys())
    if missing or surplus:
        differences = f"missing {listed(missing)}; not in the model {listed(surplus)}"
        raise UserError(f"{path}: does not fit the model: {differences}")
    for name, view in views.items():
        if arrays[name].shape != view.shape:
            raise UserError(f"{path}: {name} has shape {arrays[name].shape}, the model's has {view.shape}")
        view[...] = ops_of(view).xp.asarray(arrays[name])


def listed(names: list[str]) -> str:
    """The first four names, and how many more there are."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "") if names else "nothing"


# The checkpoints of a run ---------------------------------------------------------------------------------------------


class CheckpointDirectory:
    """`step_00001000.safetensors` for the last steps, `best.safetensors`, `average.safetensors`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.best = directory / "best.safetensors"
        self.average = directory / "average.safetensors"

    def of_step(self, step: int) -> Path:
        """The path of this step's checkpoint."""
        return self.directory / f"step_{step:08d}.safetensors"

    def steps(self) -> list[Path]:
        """The checkpoints of single steps, oldest first. Files with other names than ours are left out."""
        return sorted(filter(number_of, self.directory.glob("step_*")), key=number_of)

    def set_aside_after(self, step: int) -> None:
        """Rename the checkpoints of later steps, which are damaged and will be written again. Nothing is deleted."""
        for path in self.steps():
            if number_of(path) > step:
                names = (f"{path.name}.unsound{number}" for number in chain([""], count(2)))
                path.rename(next(free for name in names if not (free := path.with_name(name)).exists()))

    def keep_last(self, n: int) -> None:
        """Delete the checkpoints of single steps, except the last n (at least 1)."""
        for path in self.steps()[:-n]:
            path.unlink()

    def newest_sound(self) -> tuple[Path | None, Checkpoint | None, list[str]]:
        """The newest step's checkpoint that can be read (None if none can), and what was wrong with newer ones."""
        complaints: list[str] = []
        for path in reversed(self.steps()):
            try:
                found = load(path)
                if found.progress.step == number_of(path):
                    return path, found, complaints
                complaints.append(f"{path}: of step {found.progress.step}, although its name says another")
            except UserError as error:
                complaints.append(str(error))
        return None, None, complaints

    def preferred(self) -> Path:
        """The checkpoint to translate with: the average, else the best by validation loss, else the last.

        An average is passed over if training has gone on since.
        """
        last = self.steps()[-1:]
        has_average = self.average.exists() and not (last and progress_of(self.average).step < number_of(last[0]))
        for path in (*([self.average] if has_average else []), self.best, *last):
            if path.exists():
                return path
        raise UserError(f"{self.directory}: no checkpoint here")


def number_of(path: Path) -> int:
    """The step in a name that `CheckpointDirectory.of_step` gives; 0 for other names."""
    found = re.fullmatch(r"step_([0-9]{8}|[1-9][0-9]{8,9})\.safetensors", path.name)
    return int(found[1]) if found else 0


def average(paths: list[Path]) -> Checkpoint:
    """The arithmetic mean of the weights of several checkpoints of a run (paper §6.1), taken in float64; no moments.

    Progress and configuration are the last one's.
    """
    last = load(paths[-1])
    of_text = (last.progress.data_checksum, last.progress.tokenizer_checksum)
    total = {name: array.astype(np.float64) for name, array in last.weights.items()}
    for path in paths[:-1]:
        each = load(path)
        configs.require_same(each.config, last.config, path)
        if (each.progress.data_checksum, each.progress.tokenizer_checksum) != of_text:
            raise UserError(f"{path}: of another run than {paths[-1].name}: its text or its tokenizer is another one")
        summand = {name: np.empty_like(array) for name, array in last.weights.items()}
        copy_into(each.weights, summand, path)
        for name, array in summand.items():
            total[name] += array
    mean = {name: (array / len(paths)).astype(last.weights[name].dtype) for name, array in total.items()}
    return replace(last, weights=mean, moments={})
