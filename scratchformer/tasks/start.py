"""Begin or resume a run: read the data of its task, open the device, and make a trainer that `training.loop` trains."""

from __future__ import annotations

import zlib
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from scratchformer import config as configs
from scratchformer.backends import device as devices
from scratchformer.backends.device import Device
from scratchformer.config import Config
from scratchformer.errors import UserError
from scratchformer.parallel.communicator import Communicator
from scratchformer.tasks.task import task_named
from scratchformer.training.run import RunDirectory, require_tokenizer, share_tokenizer
from scratchformer.training.saving import broadcast_progress, find_newest, restore, take_pretrained
from scratchformer.training.trainer import Trainer


def begin(run: RunDirectory, config: Config, ranks: Communicator = Communicator()) -> Trainer:
    """Make everything that a new run needs. If anything is refused, nothing stays in the run's directory.

    ranks  the processes that train together; all of them call this
    """
    is_main, task, asked = ranks.rank == 0, task_named(config.data.task), config
    device = open_device(ranks, config, "a new run")
    with run.reserved() if is_main else nullcontext():
        tokenizer, config, data = task.begin(config, ranks)
        trainer = Trainer(run, config, data, tokenizer, device, ranks, goal=task)
        if config.model.vocab_size < asked.model.vocab_size:
            pieces = f"{config.model.vocab_size} pieces, not {asked.model.vocab_size}"
            trainer.remarks.append(f"the text is too short for so many: the vocabulary has {pieces}")
        if config.training.pretrained:
            take_pretrained(trainer)
        if is_main:
            if tokenizer:
                tokenizer.save(run.tokenizer_file)
            run.write_config(config)
    return trainer


def resume(run: RunDirectory, config: Config, ranks: Communicator = Communicator()) -> tuple[Trainer, list[str]]:
    """Continue a run from its newest sound checkpoint -> trainer, what the user should know about it

    `config` may differ from the run's in the settings of `config.MAY_CHANGE`, and there may be more or fewer ranks.
    """
    is_main, task = ranks.rank == 0, task_named(config.data.task)
    device = open_device(ranks, config, "a run resumed")
    path, found, remarks = None, None, list[str]()
    if is_main:
        run.lock()
        run.checkpoints.directory.mkdir(exist_ok=True)  # some ways to copy a run leave an empty directory out
        configs.require_same(run.require(), config, run.config_file)
        path, found, remarks = find_newest(run, config)
    progress, settings = broadcast_progress(ranks, found), config.training
    if progress.step > settings.steps:
        raise UserError(f"{run.path}: has done {progress.step} steps; training.steps={settings.steps} must not be less")
    tokenizer = share_tokenizer(run.read_tokenizer(config) if is_main else None, ranks)
    if path and tokenizer:
        require_tokenizer(run.tokenizer_file, tokenizer, progress, path)
    data = task.resume(config, tokenizer)
    trainer = Trainer(run, config, data, tokenizer, device, ranks, progress, task)
    if config.training.pretrained and not progress.step:
        take_pretrained(trainer)
    restore(trainer, path, found)
    if is_main:
        run.write_config(config)
    return trainer, remarks + trainer.remarks


def open_device(ranks: Communicator, config: Config, job: str) -> Device:
    """Open the device of this rank. Ranks that were not started alike, or have different devices, are refused."""
    settings = config.training
    device = devices.open_device(settings.device, settings.precision, ranks.local_rank)
    if ranks.size > 1:
        facts = {key: value for key, value in configs.flat(config).items() if not key.startswith("data.")}
        facts |= {"the job": job, "the code": code_checksum(), "NumPy's version": np.__version__}
        ranks.require_agreement(facts | {"the device": device.describe()})
    return device


PACKAGE = Path(__file__).parents[1]


def code_checksum(directory: Path = PACKAGE) -> int:
    """The CRC-32 of names and contents of all .py and .cu files below a directory."""
    crc = 0
    for path in sorted(path for path in directory.rglob("*") if path.suffix in (".py", ".cu")):
        crc = zlib.crc32(path.read_bytes(), zlib.crc32(str(path.relative_to(directory)).encode(), crc))
    return crc
