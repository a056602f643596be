"""The task "language-model": which token comes next? (Radford et al. 2018, section 3.1)"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from threadpoolctl import threadpool_limits

from scratchformer.config import Config
from scratchformer.decoding.generation import NEVER_WRITTEN
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Unembedding
from scratchformer.nn.loss import states_loss
from scratchformer.nn.model import Model
from scratchformer.nn.ops import Ops
from scratchformer.nn.parameter import Array
from scratchformer.parallel.communicator import Communicator
from scratchformer.text.batches import Batch, Examples
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.text.windows import TrainingWindows, ValidationWindows, encode_texts, joined
from scratchformer.training.data import read_corpus, read_texts
from scratchformer.training.task import Task, TrainingData
from scratchformer.training.validation import sums_over_batches

if TYPE_CHECKING:
    from scratchformer.training.trainer import Trainer


class Texts(NamedTuple):
    """Texts to train on and texts to validate with; the latter may be missing."""

    train: list[str]
    val: list[str]


class LanguageModelTask(Task):
    """From the beginning of a text to its next token."""

    score_name, unit, command = "bits per character", "windows", "generate"

    def read(self, config: Config) -> Texts:
        """The files `data.text`, of which a tenth validates; without any, the source side of the sentence pairs, as
        one text. Line ends become newlines."""
        if not config.data.text:
            corpus = read_corpus(config.data)
            return Texts([joined(corpus.train.source)], [joined(corpus.val.source)] if corpus.val else [])
        return Texts(*read_texts(config.data))

    def train_tokenizer(self, corpus: Texts, config: Config) -> Tokenizer:
        lines = [line for text in corpus.train for line in text.split("\n")]
        return Tokenizer.train_on_text(lines, config.model.vocab_size)

    def encode(self, corpus: Texts, tokenizer: Tokenizer, config: Config) -> TrainingData:
        window = config.data.max_length
        train = TrainingWindows(encode_texts(tokenizer, corpus.train), window, config.training.seed)
        val = ValidationWindows(encode_texts(tokenizer, corpus.val), window) if corpus.val else None
        return TrainingData.of(train, val, config, corpus.val)

    def score(self, trainer: Trainer) -> dict[str, Any]:
        """Bits per character of the validation text; the EOS of each text is predicted, too."""
        val, texts, n = trainer.data.val, trainer.data.val_text, trainer.config.training.tokens_per_batch
        assert val is not None
        with threadpool_limits(trainer.blas_threads, "blas"):
            nats = nats_of(trainer.model, val, n, trainer.ranks, trainer.parallel.map, trainer.device.ops)
        return {"bits per character": nats / math.log(2) / sum(map(len, texts))}


def nats_of(
    model: Model,
    windows: Examples,
    tokens_per_batch: int,
    ranks: Communicator = Communicator(),
    map: Callable = map,
    ops: tuple[Ops, ...] = (),
) -> float:
    """The negative log probability of all targets, in nats, among the tokens that the model may write.

    ranks, map, ops: see `sums_over_batches`
    """
    answers = Answers(model.unembedding.weight)

    def loss(batch: Batch) -> tuple[float, int]:
        states, _ = model.states(*batch.inputs)
        return states_loss(answers, states, batch.targets, 0.0, "others", gradient=False)[:2]

    return sums_over_batches(loss, windows, tokens_per_batch, ranks, map, ops)[0]


LOWEST = -6e4
"""A logit that makes a probability of 0, also in float16."""


class Answers(Unembedding):
    """The unembedding, with probability 0 for PAD, BOS and UNK, which are never written.

    A model of ours has learned that. In an imported GPT-2 each would be as likely as EOS, whose vector they share.
    """

    def forward(self, y: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        logits, cache = super().forward(y)
        for token in NEVER_WRITTEN:
            logits[..., token] = LOWEST
        return logits, cache
