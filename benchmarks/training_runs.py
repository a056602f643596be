"""Whole training runs in directories: begin or resume one, average its checkpoints."""

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.tasks import start
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory
from scratchformer.training.trainer import Trainer


def finished(run: RunDirectory, config: Config) -> Trainer:
    """Train a run, or the rest of it."""
    begun = run.config_file.exists()
    trainer = start.resume(run, configs.load(run.config_file))[0] if begun else start.begin(run, config)
    loop.train(trainer)
    run.unlock()
    return trainer


def average_of_last(run: RunDirectory, config: Config) -> None:
    """Average the last checkpoints, as `scratchformer average` does."""
    last = run.checkpoints.steps()[-config.training.average_last :]
    checkpoints.save(run.checkpoints.average, checkpoints.average(last))
