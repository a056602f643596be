"""A task says what a model learns from which data: examples, batches, a score for the loop, and an evaluation."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import numpy as np

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.errors import UserError
from scratchformer.parallel.communicator import Communicator
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.run import RunDirectory, Trained, share_tokenizer
from scratchformer.training.trainer import Trainer, TrainingData

TASKS = {
    "translation": "scratchformer.tasks.translation:TranslationTask",
    "parsing": "scratchformer.tasks.parsing:ParsingTask",
    "language-model": "scratchformer.tasks.language_model:LanguageModelTask",
    "masked-language-model": "scratchformer.tasks.masked_language_model:MaskedLanguageModelTask",
    "antecedent": "scratchformer.tasks.antecedent:AntecedentTask",
    "digits": "scratchformer.tasks.digits:DigitsTask",
}
"""The name in `config.data.task` -> the class, which is imported when the task is used."""


def task_named(name: str) -> Task:
    """The task of this name."""
    return resolve_name(TASKS[name])()


class Corpus(NamedTuple):
    """Data to train on and data to validate with, as a task reads them; the latter may be missing.

    remark  says whether the latter were taken from the former
    """

    train: Any
    val: Any
    remark: str = ""


class Evaluation(NamedTuple):
    """The result of `scratchformer evaluate`: scores to record, the same as text, and lines to write as output."""

    record: dict[str, Any]
    text: str
    output: list[str] = []


class Task(ABC):
    """A task of `config.data.task`. `begin` and `resume` call the other methods in this order.

    score_name  the name of what `score` returns; the log has it in small letters
    unit        the word for examples in messages
    command     the command with which a user tries a trained run
    """

    score_name: str
    unit: str
    command = "evaluate"

    @abstractmethod
    def read(self, config: Config) -> Any:
        """Read the data that the configuration names."""

    def train_tokenizer(self, corpus: Any, config: Config) -> Tokenizer | None:
        """Learn the vocabulary from the training text. None for data without words."""
        return None

    def settled(self, config: Config, tokenizer: Any) -> Config:
        """Return the configuration with the sizes that depend on the data: a short text gives fewer pieces."""
        return configs.with_settings(config, {"model.vocab_size": tokenizer.vocab_size})

    @abstractmethod
    def encode(self, corpus: Any, tokenizer: Any, config: Config) -> TrainingData:
        """Encode training and validation data."""

    @abstractmethod
    def score(self, trainer: Trainer) -> dict[str, Any]:
        """Score the model on the validation data: the score under its name, and what else the log should have.

        All ranks call this, and get the same.
        """

    def evaluate(self, trained: Trained, reference: Path | None = None) -> Evaluation:
        """Score a run on its test data. Translation has its own evaluation, with test sets and comparisons."""
        raise NotImplementedError

    def begin(self, config: Config, ranks: Communicator) -> tuple[Tokenizer | None, Config, TrainingData]:
        """Read everything for a new run -> tokenizer, settled configuration, data

        Rank 0 learns the vocabulary, or takes that of the pretrained run, and sends it to the others.
        """
        pretrained, tokenizer = config.training.pretrained, None
        if ranks.rank == 0 and pretrained:
            tokenizer = vocabulary_of(pretrained, config)
        corpus = self.read(config)
        if ranks.rank == 0 and not pretrained:
            tokenizer = self.train_tokenizer(corpus, config)
        tokenizer = share_tokenizer(tokenizer, ranks)
        config = self.settled(config, tokenizer)
        return tokenizer, config, self.encode(corpus, tokenizer, config)

    def resume(self, config: Config, tokenizer: Any) -> TrainingData:
        """Read everything for a run that is resumed with this tokenizer."""
        return self.encode(self.read(config), tokenizer, config)


def vocabulary_of(pretrained: str, config: Config) -> Tokenizer | None:
    """Read the tokenizer of the pretrained run, whose weights must mean the same in this model."""
    run = RunDirectory(Path(pretrained))
    theirs, ours = run.require(), config.model
    are_encoders = theirs.model.architecture == ours.architecture == "encoder"  # of either task
    if theirs.data.task != config.data.task and not are_encoders:
        raise UserError(f"{pretrained}: a run for {theirs.data.task}; one for {config.data.task} cannot begin with it")
    for name in SAME_MEANING:
        found, wanted = getattr(theirs.model, name), getattr(ours, name)
        if found != wanted and not (name == "n_tags" and found and wanted):  # the numbers of tags may differ
            raise UserError(f"{pretrained}: model.{name}={found}, but here {wanted}: its weights would mean nothing")
    return run.read_tokenizer(theirs)


SAME_MEANING = ("n_tags", "architecture", "h", "norm", "positions", "feed_forward", "attention", "h_kv", "rope_theta")
"""Settings that both models must share: with another value, weights of the same shape mean something else."""


Z = 1.959964
"""A normal variable lies within this many standard deviations in 95 % of cases."""


def share(right: np.ndarray) -> tuple[float, tuple[float, float]]:
    """The share of True, in percent, and its 95 % interval (Wilson 1927)."""
    n, z2 = len(right), Z**2
    p = float(np.mean(right))
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n**2)) / (1 + z2 / n)
    return 100 * p, (max(0.0, 100 * (centre - half)), min(100.0, 100 * (centre + half)))
