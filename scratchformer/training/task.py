"""What is learned from which data: a task says what a run's text, its examples and its score are.

The loop, the checkpoints and the ranks are the same for every task; `tasks.py` lists them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.errors import UserError
from scratchformer.parallel.communicator import Communicator
from scratchformer.text.batches import Examples
from scratchformer.text.tokenizer import Tokenizer, read_tokenizer
from scratchformer.training.run import RunDirectory

if TYPE_CHECKING:
    from scratchformer.training.trainer import Trainer


class TrainingData(NamedTuple):
    """What the loop runs on: examples, and what the score of the validation data needs."""

    train: Examples
    val: Examples | None
    val_text: Any = None  # what `Task.score` compares with
    n_empty: int = 0  # pairs left out because a side is blank
    checksum: int = 0  # see `checksum_of`: a run cannot go on with other text

    @staticmethod
    def of(
        train: Examples, val: Examples | None, config: Config, val_text: Any = None, n_empty: int = 0
    ) -> TrainingData:
        """The data with their checksum. Raises UserError if an example does not fit into a batch."""
        for examples in filter(None, (train, val)):
            examples.require_fit(config.training.tokens_per_batch)
        return TrainingData(train, val, val_text, n_empty, checksum_of(train, val))


def checksum_of(train: Examples, val: Examples | None) -> int:
    """CRC-32 of all examples."""
    return val.checksum(train.checksum()) if val else train.checksum()


class Task(ABC):
    """A task of `config.data.task`. The methods are called in this order; `read` and `train_tokenizer` may be slow.

    score_name  what `score` returns; the log has it in small letters
    unit        what an example is, in messages
    command     with which a user tries a trained run
    """

    score_name: str
    unit: str
    command = "evaluate"

    @abstractmethod
    def read(self, config: Config) -> Any:
        """The data that the configuration names. Raises UserError for whatever is wrong with the files."""

    def train_tokenizer(self, corpus: Any, config: Config) -> Tokenizer | None:
        """Learn the vocabulary from the training text. None for data without words."""
        return None

    def settled(self, config: Config, tokenizer: Tokenizer | None) -> Config:
        """The configuration with the sizes that depend on the data."""
        return config

    @abstractmethod
    def encode(self, corpus: Any, tokenizer: Any, config: Config) -> TrainingData:
        """Encode training and validation data. Raises UserError if nothing is left, or does not fit into a batch."""

    @abstractmethod
    def score(self, trainer: Trainer) -> dict[str, Any]:
        """How well the model does on the validation data: the score under its name, and what else the log should have.

        All ranks call this, and get the same.
        """

    # What the loop calls

    def begin(self, config: Config, ranks: Communicator) -> tuple[Tokenizer | None, Config, TrainingData]:
        """Read everything for a new run -> tokenizer, settled configuration, data

        Rank 0 learns the vocabulary, or takes that of the pretrained run, and sends it to the others.
        """
        pretrained, learned = config.training.pretrained, None
        if ranks.rank == 0 and pretrained:
            learned = vocabulary_of(pretrained, config)
        corpus = self.read(config)
        if ranks.rank == 0 and not pretrained:
            learned = self.train_tokenizer(corpus, config)
        serialized = ranks.broadcast_bytes(learned.serialized if learned else b"")
        tokenizer = learned or (read_tokenizer(serialized) if serialized else None)
        if tokenizer and pretrained:
            config = configs.with_settings(config, {"model.vocab_size": tokenizer.vocab_size})
        config = self.settled(config, tokenizer)
        return tokenizer, config, self.encode(corpus, tokenizer, config)

    def resume(self, config: Config, tokenizer: Tokenizer | None) -> TrainingData:
        """Read everything for a run that is resumed with this tokenizer."""
        return self.encode(self.read(config), tokenizer, config)


def vocabulary_of(pretrained: str, config: Config) -> Tokenizer | None:
    """The tokenizer of the run with whose weights this configuration begins.

    Raises UserError if there is no such run, or its weights would mean something else in this model.
    """
    run = RunDirectory(Path(pretrained))
    run.require()
    theirs, ours = configs.load(run.config_file), config.model
    are_encoders = theirs.model.architecture == ours.architecture == "encoder"  # of either task
    if theirs.data.task != config.data.task and not are_encoders:
        raise UserError(f"{pretrained}: a run for {theirs.data.task}; one for {config.data.task} cannot begin with it")
    if bool(theirs.model.n_tags) != bool(ours.n_tags):
        found, wanted = theirs.model.n_tags, ours.n_tags
        raise UserError(f"{pretrained}: model.n_tags={found}, but here {wanted}: its weights would mean nothing")
    for name in SAME_MEANING:
        if getattr(theirs.model, name) != getattr(ours, name):
            found, wanted = getattr(theirs.model, name), getattr(ours, name)
            raise UserError(f"{pretrained}: model.{name}={found}, but here {wanted}: its weights would mean nothing")
    return run.read_tokenizer()


SAME_MEANING = ("architecture", "h", "norm", "positions", "activation")
"""Settings that both models must share: with another value, weights of the same shape mean something else."""
