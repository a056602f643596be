"""Save what a trainer has reached, and restore it."""

from __future__ import annotations

import json
import sys
import zlib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from scratchformer import config as configs
from scratchformer.errors import UserError
from scratchformer.nn.ops import ops_of, using
from scratchformer.nn.parameter import Array
from scratchformer.parallel.agreement import require_agreement
from scratchformer.training import checkpoints, messages
from scratchformer.training.checkpoints import Checkpoint, Progress
from scratchformer.training.trainer import Trainer


def save(trainer: Trainer) -> Path:
    """Write a checkpoint of this step -> its path

    Raises UserError if the weights are not finite or differ between ranks, so that no sound checkpoint is replaced by a
    bad one.
    """
    directory, data = trainer.run.checkpoints, trainer.model.store.data
    path = directory.of_step(trainer.progress.step)
    with using(*trainer.device.ops):
        weights = ops_of(data).on_host(data)
    if not np.isfinite(weights).all():
        last = messages.last_good_checkpoint(trainer)
        raise UserError(f"step {trainer.progress.step}: the weights are not finite any more; {last}")
    what = f"the weights' checksum after step {trainer.progress.step}"
    require_agreement(trainer.ranks, {what: zlib.crc32(weights.data)})
    if trainer.is_main:
        checkpoints.save(path, checkpoint(trainer))
        directory.keep_last(trainer.config.training.keep)
    return path


def checkpoint(trainer: Trainer) -> Checkpoint:
    """Everything that a run needs to go on as if it had not stopped."""
    trainer.progress = replace(trainer.progress, device_state=trainer.device.state())
    with using(*trainer.device.ops):
        weights, moments = (
            {name: ops_of(view).on_host(view) for name, view in views.items()}
            for views in (weight_views(trainer), moment_views(trainer))
        )
    return Checkpoint(weights, moments, trainer.progress, trainer.config)


def weight_views(trainer: Trainer) -> dict[str, Array]:
    return trainer.model.store.named_views(trainer.model.store.data)


def moment_views(trainer: Trainer) -> dict[str, Array]:
    """Adam's moments: m.NAME and v.NAME for each parameter."""
    views = {}
    for moment, flat in (("m", trainer.optimizer.m), ("v", trainer.optimizer.v)):
        for name, view in trainer.model.store.named_views(flat).items():
            views[f"{moment}.{name}"] = view
    return views


def restore(trainer: Trainer) -> list[str]:
    """Go back to the newest sound checkpoint, or to the beginning if there is none -> complaints about damaged ones

    Rank 0 reads it and sends it to the others. Raises UserError if it was made with other settings or other text.
    """
    with using(*trainer.device.ops):
        complaints = read_newest(trainer) if trainer.is_main else []
        progress = trainer.ranks.broadcast_bytes(json.dumps(asdict(trainer.progress)).encode())
        trainer.progress = Progress(**json.loads(progress))
        for array in (trainer.model.store.data, trainer.optimizer.m, trainer.optimizer.v):
            trainer.between_devices.broadcast_inplace(array)
        trainer.model.store.refresh()
    trainer.optimizer.t = trainer.progress.step
    trainer.device.restore(trainer.progress.device_state)
    if trainer.is_main:
        trainer.run.remove_unfinished()
        trainer.run.checkpoints.set_aside_after(trainer.progress.step)
        trainer.run.drop_log_after(trainer.progress.step)
    return complaints


def read_newest(trainer: Trainer) -> list[str]:
    """Load the newest sound checkpoint, if there is one, into model, optimizer and progress -> complaints"""
    run = trainer.run
    path, found, complaints = run.checkpoints.newest_sound()
    if path is None or found is None:
        if complaints:
            raise UserError(f"no sound checkpoint to resume from: {'; '.join(complaints)}")
        if not run.log_file.exists() and run.checkpoints.best.exists():
            reason = "they translate, but training cannot go on from them"
            raise UserError(f"{run.path}: imported weights, without the optimizer's state: {reason}")
        if run.log_file.exists() and run.read_log("step"):
            print(f"{run.path}: there is no checkpoint, so it begins anew", file=sys.stderr)
        return complaints
    configs.require_same(found.config, trainer.config, path)
    if found.progress.data_checksum != trainer.data.checksum:
        raise UserError(f"{path}: the training text is not the one this run began with")
    checkpoints.copy_into(found.weights, weight_views(trainer), path)
    checkpoints.copy_into(found.moments, moment_views(trainer), path)
    trainer.progress = found.progress
    return complaints
