"""The task "masked-language-model": which piece has been hidden here? (Devlin et al. 2019, section 3.1, task 1)"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from scratchformer.config import Config
from scratchformer.nn.model import Model
from scratchformer.nn.ops import PAD, Ops, ops_of, using
from scratchformer.text.batches import LabelledBatch, batches_in_order
from scratchformer.text.corpora import read_lines
from scratchformer.text.masking import MaskedTexts, encode_texts
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.data import read_corpus
from scratchformer.training.task import Task, TrainingData, checksum_of
from scratchformer.training.validation import reached

if TYPE_CHECKING:
    from scratchformer.training.trainer import Trainer


class Texts(NamedTuple):
    """Lines to train on and lines to validate with, blank ones left out; the latter may be missing."""

    train: list[str]
    val: list[str] | None


def guess(model: Model, batch: LabelledBatch, ops: tuple[Ops, ...] = ()) -> np.ndarray:
    """The most likely piece wherever the batch has a target: ids in the order of its targets."""
    targets = batch.targets.reshape(-1)
    with using(*ops):
        states, _ = model.states(*batch.inputs)  # (B, T, D)
        chosen = ops_of(states).gather_rows(states, np.flatnonzero(targets != PAD))
        logits, _ = model.unembedding.forward(chosen)
        return ops_of(logits).on_host(logits).astype(np.float32).argmax(axis=-1)


class MaskedLanguageModel(Task):
    """From a text with hidden pieces to these pieces."""

    score_name, unit, command = "accuracy", "texts", "fill"

    def read(self, config: Config) -> Texts:
        """The lines of the files `data.text`, the last tenth of each file for validation; without any files, the source
        side of the sentence pairs."""
        if not config.data.text:
            corpus = read_corpus(config.data)
            return Texts(corpus.train.source, corpus.val.source if corpus.val else None)
        train, val = list[str](), list[str]()
        for file in config.data.text:
            lines = [line for line in read_lines(Path(file)) if line.strip()]
            cut = max(1, len(lines) * 9 // 10)
            train, val = train + lines[:cut], val + lines[cut:]
        return Texts(train, val or None)

    def train_tokenizer(self, corpus: Texts, config: Config) -> Tokenizer:
        return Tokenizer.train(corpus.train, config.model.vocab_size, config.data.byte_fallback, masks=True)

    def encode(self, corpus: Texts, tokenizer: Tokenizer, config: Config) -> TrainingData:
        def masked(texts: list[str]) -> MaskedTexts:
            encoded = encode_texts(tokenizer.encode, texts, config.data.max_length)
            return MaskedTexts(encoded, tokenizer.vocab_size, config.training.seed, config.data.max_length)

        train, val = masked(corpus.train), masked(corpus.val) if corpus.val else None
        for examples in (train, val):
            if examples:
                examples.require_fit(config.training.tokens_per_batch)
        return TrainingData(train, val, checksum=checksum_of(train, val))

    def score(self, trainer: Trainer) -> dict[str, Any]:
        """Accuracy on the hidden pieces of the validation text, in percent: the same pieces each time."""
        assert trainer.data.val is not None
        ranks, right = trainer.ranks, np.zeros(2)  # right, all
        batches = list(batches_in_order(trainer.data.val, trainer.config.training.tokens_per_batch))
        for batch in batches[ranks.rank :: ranks.size]:
            targets = batch.targets[batch.targets != PAD]
            found = guess(trainer.model, batch, trainer.device.ops)
            right += np.array([np.count_nonzero(found == targets), len(targets)])
        ranks.all_reduce_inplace(right)
        return {"step": trainer.progress.step, "accuracy": 100 * float(right[0] / right[1])} | reached(trainer)
