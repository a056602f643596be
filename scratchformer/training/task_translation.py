"""Translation (paper §5): sentence pairs, of text or of a prepared directory, and the BLEU of greedy translations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scratchformer.config import Config
from scratchformer.errors import UserError
from scratchformer.parallel.communicator import Communicator
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.data import (
    Corpus,
    encode_corpus,
    open_prepared,
    prepared_directory,
    read_corpus,
    train_tokenizer,
)
from scratchformer.training.task import Task, TrainingData, vocabulary_of
from scratchformer.training.validation import validation_bleu

if TYPE_CHECKING:
    from scratchformer.training.trainer import Trainer


class TranslationTask(Task):
    """From sentences of one language to those of another."""

    score_name, unit, command = "BLEU", "sentence pairs", "translate"

    def read(self, config: Config) -> Corpus:
        return read_corpus(config.data)

    def train_tokenizer(self, corpus: Corpus, config: Config) -> Tokenizer:
        return train_tokenizer(corpus, config)

    def encode(self, corpus: Corpus, tokenizer: Tokenizer, config: Config) -> TrainingData:
        return encode_corpus(corpus, tokenizer, config)

    def score(self, trainer: Trainer) -> dict[str, Any]:
        return validation_bleu(trainer)

    def begin(self, config: Config, ranks: Communicator) -> tuple[Tokenizer | None, Config, TrainingData]:
        directory = prepared_directory(config.data)
        if not directory:
            return super().begin(config, ranks)
        tokenizer, data = open_prepared(directory, config)
        pretrained = config.training.pretrained
        if pretrained and ranks.rank == 0:
            theirs = vocabulary_of(pretrained, config)
            if theirs is None or not theirs.same_pieces(tokenizer):
                raise UserError(f"{pretrained}: its vocabulary is not that of {directory}")
        return tokenizer, config, data

    def resume(self, config: Config, tokenizer: Any) -> TrainingData:
        directory = prepared_directory(config.data)
        if not directory:
            return super().resume(config, tokenizer)
        own, data = open_prepared(directory, config)
        if not own.same_pieces(tokenizer):
            raise UserError(f"{directory}: its vocabulary is not the one this run began with")
        return data
