"""The task "language-model": predict the next token (Radford et al. 2018, section 3.1), in bits per character.

Bits per character are measured on the whole text, its end included, so that it does not matter into which pieces a
model cuts it.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any, Callable

from threadpoolctl import threadpool_limits

from scratchformer.config import Config, DataConfig
from scratchformer.decoding.generation import NEVER_WRITTEN
from scratchformer.errors import UserError
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Unembedding
from scratchformer.nn.loss import states_loss
from scratchformer.nn.model import Model
from scratchformer.nn.ops import Ops
from scratchformer.nn.parameter import Array
from scratchformer.parallel.communicator import Communicator
from scratchformer.tasks.task import Corpus, Evaluation, Task
from scratchformer.tasks.translation import read_corpus
from scratchformer.text.batches import Batch, Examples
from scratchformer.text.corpora import read_lines, require_distinct
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.text.windows import SHORT, TrainingWindows, ValidationWindows, encode_texts, hold_out, joined
from scratchformer.training.run import Trained
from scratchformer.training.trainer import Trainer, TrainingData
from scratchformer.training.validation import sums_over_batches


def read_texts(data: DataConfig) -> tuple[list[str], list[str]]:
    """The text of the files `data.text`: what to train on, and about a tenth to validate with (`hold_out`).

    A file that is listed twice (train/val leak) or not regular is refused.
    """
    files = [Path(file) for file in data.text]
    for file in files:
        if file.exists() and not file.is_file():
            raise UserError(f"{file}: not a plain file")
    require_distinct((f"text {number}", file) for number, file in enumerate(files, 1))
    texts = [joined(read_lines(file)) for file in files]
    first_with: dict[str, Path] = {}
    for file, text in zip(files, texts):
        if first_with.setdefault(text, file) is not file and len(text) >= SHORT:
            raise UserError(
                f"{file}: the same text as {first_with[text]}, so one would validate the other: leave it out"
            )
    train, val = hold_out(texts)
    if not train or not val:
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        few = f"{sum(map(len, texts))} characters in all, of which a tenth is held out to validate with"
        raise UserError(f"{files[0]}{more}: too little text: {few}")
    return train, val


class LanguageModelTask(Task):
    """From the beginning of a text to its next token."""

    score_name, unit, command = "bits per character", "windows", "generate"

    def read(self, config: Config) -> Corpus:
        """The files `data.text`, of which a tenth validates; without any, the source side of the sentence pairs, as
        one text. Line ends become newlines."""
        if not config.data.text:
            corpus = read_corpus(config.data)
            return Corpus([joined(corpus.train.source)], [joined(corpus.val.source)] if corpus.val else [])
        return Corpus(*read_texts(config.data))

    def train_tokenizer(self, corpus: Corpus, config: Config) -> Tokenizer:
        lines = [line for text in corpus.train for line in text.split("\n")]
        return Tokenizer.train_on_text(lines, config.model.vocab_size, fewer=True)

    def encode(self, corpus: Corpus, tokenizer: Tokenizer, config: Config) -> TrainingData:
        window = config.data.max_length
        train = TrainingWindows(encode_texts(tokenizer, corpus.train), window, config.training.seed)
        val = ValidationWindows(encode_texts(tokenizer, corpus.val), window) if corpus.val else None
        return TrainingData(train, val, corpus.val)

    def score(self, trainer: Trainer) -> dict[str, Any]:
        """Bits per character of the validation text; the EOS of each text is predicted, too."""
        val, texts, n = trainer.data.val, trainer.data.val_text, trainer.config.training.tokens_per_batch
        assert val is not None
        with threadpool_limits(trainer.blas_threads, "blas"):
            nats = nats_of(trainer.model, val, n, trainer.ranks, trainer.parallel.map, trainer.device.ops)
        return {"bits per character": nats / math.log(2) / sum(map(len, texts))}

    def evaluate(self, trained: Trained, reference: Path | None = None) -> Evaluation:
        """Measure the validation text of the run: bits per character, and perplexity per token."""
        texts = self.read(trained.config).val
        nats, n_tokens = loss_on(trained, texts)
        n_characters = sum(map(len, texts))
        record = {
            "text_crc32": zlib.crc32("\n".join(texts).encode()),
            "n_characters": n_characters,
            "n_tokens": n_tokens,
            "bits_per_character": nats * n_tokens / math.log(2) / n_characters,
            "perplexity": math.exp(min(nats, 700)),
        }
        text = (
            "bits per character {bits_per_character:.3f}, perplexity {perplexity:.1f} per token  "
            "({n_characters:,} characters of validation text, {n_tokens:,} tokens)"
        )
        return Evaluation(record, text.format(**record))


def loss_on(trained: Trained, texts: list[str]) -> tuple[float, int]:
    """Measure nats per token of validation texts, whose ends count as tokens -> nats, number of tokens"""
    if not texts:
        raise UserError("there is no validation text: name a directory that has some, or files with --text")
    windows = ValidationWindows(encode_texts(trained.tokenizer, texts), trained.config.data.max_length)
    with threadpool_limits(trained.threads, "blas"):
        nats = nats_of(trained.model, windows, trained.config.training.tokens_per_batch, ops=trained.device.ops)
    return nats / windows.n_targets, windows.n_targets


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
