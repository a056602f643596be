"""The task "masked-language-model": guess hidden pieces (Devlin et al. 2019, section 3.1, task 1)."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Iterator

import numpy as np

from scratchformer.config import Config
from scratchformer.nn.model import Model
from scratchformer.nn.ops import PAD, Ops, using
from scratchformer.tasks.language_model import read_texts
from scratchformer.tasks.task import Corpus, Evaluation, Task, share
from scratchformer.tasks.translation import read_corpus
from scratchformer.text import bundled
from scratchformer.text.batches import Sequences, batches_in_order
from scratchformer.text.masking import HiddenTexts, MaskedTexts, each_masked_once, encode_texts
from scratchformer.text.tokenizer import MASK, Tokenizer
from scratchformer.training.run import Trained
from scratchformer.training.trainer import Trainer, TrainingData
from scratchformer.training.validation import predictions, validation_accuracy

POSITIONS_AT_ONCE = 4096


class MaskedLanguageModelTask(Task):
    """From a text with hidden pieces to these pieces."""

    score_name, unit, command = "accuracy", "texts", "fill"

    def read(self, config: Config) -> Corpus:
        """The lines of the files `data.text`, of which a tenth validates; without any, the source side of the sentence
        pairs."""
        if not config.data.text:
            corpus = read_corpus(config.data)
            return Corpus(corpus.train.source, corpus.val.source if corpus.val else None)
        train, val = ([line for text in part for line in text.split("\n")] for part in read_texts(config.data))
        return Corpus([line for line in train if line.strip()], [line for line in val if line.strip()])

    def train_tokenizer(self, corpus: Corpus, config: Config) -> Tokenizer:
        return Tokenizer.train(corpus.train, config.model.vocab_size, config.data.byte_fallback, masks=True, fewer=True)

    def encode(self, corpus: Corpus, tokenizer: Tokenizer, config: Config) -> TrainingData:
        def masked(texts: list[str]) -> MaskedTexts:
            encoded = encode_texts(tokenizer.encode, texts, config.data.max_length)
            return MaskedTexts(encoded, tokenizer.vocab_size, config.training.seed, config.data.max_length)

        return TrainingData(masked(corpus.train), masked(corpus.val) if corpus.val else None)

    def score(self, trainer: Trainer) -> dict[str, Any]:
        """Accuracy on the hidden pieces of the validation text, in percent: the same pieces each time."""
        return {"accuracy": validation_accuracy(trainer)}

    def evaluate(self, trained: Trained, reference: Path | None = None) -> Evaluation:
        """Hide every piece of the test text in turn, and count how many the model and three baselines guess.

        The text is the test split of the bundled corpus; of a run on other text its validation text, or the training
        text if there is none. The baselines count in the training text.
        """
        config = trained.config
        corpus = self.read(config)
        split, texts = ("validation", corpus.val) if corpus.val is not None else ("training", corpus.train)
        if not config.data.names_text:
            split, texts = "test", bundled.read_text("test").source
        train, test = (
            encode_texts(trained.tokenizer.encode, lines, config.data.max_length) for lines in (corpus.train, texts)
        )
        hidden = HiddenTexts(each_masked_once(test), config.data.max_length)
        accuracy, interval = share(right_guesses(trained.model, hidden, trained.device.ops))
        record: dict[str, Any] = {"text_crc32": zlib.crc32("\n".join(texts).encode())}
        record |= {"split": split, "n_pieces": len(hidden), "accuracy": accuracy, "interval": interval}
        names = ("most_frequent", "after_previous", "between_neighbours")
        record |= {name: 100 * float(np.mean(each)) for name, each in zip(names, count_baselines(train, hidden))}
        text = (
            f"accuracy {accuracy:.1f} %  (95 % interval {interval[0]:.1f} to {interval[1]:.1f}; {len(hidden)} pieces "
            f"of the {split} text, hidden one at a time)\n"
            f"most frequent piece {record['most_frequent']:.1f} %\n"
            f"most frequent after the piece before {record['after_previous']:.1f} %\n"
            f"most frequent between both neighbours {record['between_neighbours']:.1f} %"
        )
        return Evaluation(record, text)


def right_guesses(model: Model, hidden: HiddenTexts, ops: tuple[Ops, ...] = ()) -> np.ndarray:
    """Guess the hidden piece of each text, which must be one -> right or wrong, (texts,) bool"""
    right = np.empty(len(hidden), bool)
    for batch in batches_in_order(hidden, POSITIONS_AT_ONCE):
        with using(*ops):
            right[batch.indices] = predictions(model, batch) == batch.targets[batch.targets != PAD]
    return right


def count_baselines(train: Sequences, hidden: HiddenTexts) -> list[np.ndarray]:
    """Guess the most frequent piece (of all, after the piece before, between both neighbours) -> right or not, (texts,)

    For neighbours that the training text does not have, the baseline before answers.
    """
    counts: list[dict[tuple, Counter]] = [defaultdict(Counter) for _ in range(3)]
    places = np.flatnonzero(train.ids > MASK)
    for piece, contexts in zip(train.ids[places].tolist(), contexts_of(train.ids, places)):
        for count, context in zip(counts, contexts):
            count[context][piece] += 1
    best = [{context: count.most_common(1)[0][0] for context, count in each.items()} for each in counts]
    shown, targets = (sequences.ids for sequences in hidden.hidden)
    places = np.flatnonzero(targets)
    right = np.empty((3, len(places)), bool)
    for index, contexts in enumerate(contexts_of(shown, places)):
        found = PAD
        for baseline, context in enumerate(contexts):
            found = best[baseline].get(context, found)
            right[baseline, index] = found == targets[places[index]]
    return list(right)


def contexts_of(ids: np.ndarray, places: np.ndarray) -> Iterator[tuple[tuple, tuple, tuple]]:
    """Yield the context of each place for each baseline: nothing, the piece before it, the pieces on both sides."""
    for before, after in zip(ids[places - 1].tolist(), ids[places + 1].tolist()):
        yield (), (before,), (before, after)
