"""Save what a trainer has reached, and restore it."""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.errors import UserError
from scratchformer.nn.ops import ops_of, using
from scratchformer.nn.parameter import Array
from scratchformer.parallel.communicator import Communicator
from scratchformer.training import checkpoints
from scratchformer.training.checkpoints import Checkpoint, Progress
from scratchformer.training.model_code import other_code
from scratchformer.training.run import RunDirectory, checkpoint_file, is_until
from scratchformer.training.trainer import Trainer


def save(trainer: Trainer) -> Path:
    """Write a checkpoint of this step -> its path

    Weights that are not finite or differ between ranks are refused: no sound checkpoint is replaced by a bad one.
    """
    require_loadable(trainer)
    directory, data = trainer.run.checkpoints, trainer.model.store.data
    path = directory.of_step(trainer.progress.step)
    with using(*trainer.device.ops):
        weights = ops_of(data).on_host(data)
    if not np.isfinite(weights).all():
        last = trainer.run.last_good_checkpoint()
        raise UserError(f"step {trainer.progress.step}: the weights are not finite any more; {last}")
    if trainer.ranks.size > 1:
        what = f"the weights' checksum after step {trainer.progress.step}"
        trainer.ranks.require_agreement({what: zlib.crc32(weights.data)})
    if trainer.is_main:
        checkpoints.save(path, checkpoint(trainer))
        directory.keep_last(trainer.config.training.keep)
    return path


def require_loadable(trainer: Trainer) -> None:
    """Refuse a model that is not the one that the optimizer trains, because somebody has changed its layers by hand."""
    model, before = trainer.model, "change the layers of a model before its trainer is made"
    try:
        model.store.require(model.parameters())
    except ValueError as error:
        raise UserError(f"{str(error).split(':')[0]}: {before}") from None
    sum_of_ranks = trainer.parallel.gradient
    if trainer.optimizer.store is not model.store or sum_of_ranks and sum_of_ranks.grad is not model.store.grad:
        raise UserError(f"the model has another store than when its trainer was made: {before}")


def checkpoint(trainer: Trainer) -> Checkpoint:
    """Everything that a run needs to go on as if it had not stopped."""
    store, progress = trainer.model.store, replace(trainer.progress, device_state=trainer.device.state())
    with using(*trainer.device.ops):
        weights, moments = (
            {name: ops_of(view).on_host(view) for name, view in views.items()}
            for views in (store.named_views(store.data), moment_views(trainer))
        )
    return Checkpoint(weights, moments, progress, trainer.config)


def moment_views(trainer: Trainer) -> dict[str, Array]:
    """Adam's moments: m.NAME and v.NAME for each parameter."""
    views = {}
    for moment, flat in (("m", trainer.optimizer.m), ("v", trainer.optimizer.v)):
        for name, view in trainer.model.store.named_views(flat).items():
            views[f"{moment}.{name}"] = view
    return views


def find_newest(run: RunDirectory, config: Config) -> tuple[Path | None, Checkpoint | None, list[str]]:
    """Find the newest sound checkpoint of a run, if any -> its path, its contents, remarks for the user"""
    path, found, complaints = run.checkpoints.newest_sound()
    remarks = [f"skipped {complaint}" for complaint in complaints]
    if path is not None and found is not None:
        configs.require_same(found.config, config, path)
    elif complaints:
        raise UserError(f"no sound checkpoint to resume from: {'; '.join(complaints)}")
    elif not run.log_file.exists() and (run.checkpoints.best.exists() or run.checkpoints.average.exists()):
        reason = "they translate, but training cannot go on from them"
        raise UserError(f"{run.path}: holds weights without the optimizer's state: {reason}")
    elif run.log_file.exists():
        steps = [entry["step"] for entry in run.read_log("step") if is_until(entry, config.training.steps)]
        if max(steps, default=0) >= configs.load(run.config_file).training.save_every:
            raise UserError(f"{run.checkpoints.directory}: no checkpoint here, though the log has {len(steps)} steps")
        remarks.append("there is no checkpoint, so it begins anew")
    return path, found, remarks


def broadcast_progress(ranks: Communicator, found: Checkpoint | None) -> Progress:
    """The progress of the checkpoint that rank 0 has found, on every rank."""
    progress = found.progress if found else Progress()
    return Progress(**json.loads(ranks.broadcast_bytes(json.dumps(asdict(progress)).encode())))


def restore(trainer: Trainer, path: Path | None, found: Checkpoint | None) -> None:
    """Go back to a checkpoint, which rank 0 has read and sends to the others, or to the beginning if there is none."""
    store = trainer.model.store
    with using(*trainer.device.ops):
        if path is not None and found is not None:
            if found.progress.data_checksum != trainer.data.checksum:
                changed = trainer.run.changed_texts(trainer.config)
                remedy = "put back what it was, or train a new run with another --out"
                raise UserError(f"{path}: the training text is not the one this run began with: {changed}; {remedy}")
            checkpoints.copy_into(found.weights, store.named_views(store.data), path)
            checkpoints.copy_into(found.moments, moment_views(trainer), path)
            trainer.remarks += filter(None, [other_code(found.progress.code, trainer.model, path)])
        for array in (store.data, trainer.optimizer.m, trainer.optimizer.v):
            trainer.between_devices.broadcast_inplace(array)
        store.refresh()
    trainer.optimizer.t = trainer.progress.step
    trainer.device.restore(trainer.progress.device_state)
    if trainer.is_main:
        trainer.run.remove_unfinished()
        trainer.run.checkpoints.set_aside_after(trainer.progress.step)
        trainer.run.drop_log_after(trainer.progress.step)


def take_pretrained(trainer: Trainer) -> None:
    """Take the weights of the pretrained run where name and shape are the same, before the first step."""
    store = trainer.model.store
    with using(*trainer.device.ops):
        if trainer.is_main:
            run = RunDirectory(Path(trainer.config.training.pretrained))
            run.require()
            path = checkpoint_file(run.checkpoints, None)
            loaded = checkpoints.load(path)
            views, found = store.named_views(store.data), loaded.weights
            fitting = {name: view for name, view in views.items() if name in found and found[name].shape == view.shape}
            if not fitting:
                raise UserError(f"{path}: no weight of it fits this model")
            checkpoints.copy_into({name: found[name] for name in fitting}, fitting, path)
            new = "".join(f"; new: {name}" for name in views if name not in fitting)
            trainer.remarks.append(f"{len(fitting)} of {len(views)} weights are those of {path}{new}")
            trainer.remarks += filter(None, [other_code(loaded.progress.code, trainer.model, path)])
        trainer.between_devices.broadcast_inplace(store.data)
        store.refresh()
