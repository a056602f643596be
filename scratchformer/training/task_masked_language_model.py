"""The task "masked-language-model": which piece has been hidden here? (Devlin et al. 2019, section 3.1, task 1)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from scratchformer.config import Config
from scratchformer.text.masking import MaskedTexts, encode_texts
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.data import read_corpus, read_texts
from scratchformer.training.task import Task, TrainingData
from scratchformer.training.validation import validation_accuracy

if TYPE_CHECKING:
    from scratchformer.training.trainer import Trainer


class Texts(NamedTuple):
    """Lines to train on and lines to validate with, blank ones left out; the latter may be missing."""

    train: list[str]
    val: list[str] | None


class MaskedLanguageModelTask(Task):
    """From a text with hidden pieces to these pieces."""

    score_name, unit, command = "accuracy", "texts", "fill"

    def read(self, config: Config) -> Texts:
        """The lines of the files `data.text`, of which a tenth validates; without any, the source side of the sentence
        pairs."""
        if not config.data.text:
            corpus = read_corpus(config.data)
            return Texts(corpus.train.source, corpus.val.source if corpus.val else None)
        train, val = ([line for text in part for line in text.split("\n")] for part in read_texts(config.data))
        return Texts([line for line in train if line.strip()], [line for line in val if line.strip()])

    def train_tokenizer(self, corpus: Texts, config: Config) -> Tokenizer:
        return Tokenizer.train(corpus.train, config.model.vocab_size, config.data.byte_fallback, masks=True)

    def encode(self, corpus: Texts, tokenizer: Tokenizer, config: Config) -> TrainingData:
        def masked(texts: list[str]) -> MaskedTexts:
            encoded = encode_texts(tokenizer.encode, texts, config.data.max_length)
            return MaskedTexts(encoded, tokenizer.vocab_size, config.training.seed, config.data.max_length)

        return TrainingData.of(masked(corpus.train), masked(corpus.val) if corpus.val else None, config)

    def score(self, trainer: Trainer) -> dict[str, Any]:
        """Accuracy on the hidden pieces of the validation text, in percent: the same pieces each time."""
        return {"accuracy": validation_accuracy(trainer)}
