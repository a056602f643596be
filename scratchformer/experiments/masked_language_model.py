"""How well does a masked language model guess, beside baselines that count? `scratchformer evaluate` prints it.

Every piece of the test text is hidden in turn, the rest of its text is shown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any, Iterator, NamedTuple

import numpy as np

from scratchformer.experiments.statistics import wilson_interval
from scratchformer.nn.model import Model
from scratchformer.nn.ops import PAD, Ops, using
from scratchformer.text import bundled
from scratchformer.text.batches import Sequences, batches_in_order
from scratchformer.text.masking import HiddenTexts, each_masked_once, encode_texts
from scratchformer.text.tokenizer import MASK
from scratchformer.training.run import Trained
from scratchformer.training.task_masked_language_model import MaskedLanguageModelTask
from scratchformer.training.validation import predictions

POSITIONS_AT_ONCE = 4096


class MaskedScores(NamedTuple):
    """Accuracies on the hidden pieces, in percent.

    split     the text: "test" of the bundled corpus, otherwise "validation"
    interval  of `accuracy`: Wilson's, for 95 %

    The baselines guess the piece that in the training text is

    most_frequent       the most frequent one
    after_previous      the most frequent one after the piece before the gap
    between_neighbours  the most frequent one between the two pieces around the gap
    """

    split: str
    n_pieces: int
    accuracy: float
    interval: tuple[float, float]
    most_frequent: float
    after_previous: float
    between_neighbours: float

    def as_record(self) -> dict[str, Any]:
        """The scores, flat."""
        return self._asdict()

    def as_text(self) -> str:
        """Four lines."""
        low, high = self.interval
        return (
            f"accuracy {self.accuracy:.1f} %  (95 % interval {low:.1f} to {high:.1f}; {self.n_pieces} pieces of the "
            f"{self.split} text, hidden one at a time)\n"
            f"most frequent piece {self.most_frequent:.1f} %\n"
            f"most frequent after the piece before {self.after_previous:.1f} %\n"
            f"most frequent between both neighbours {self.between_neighbours:.1f} %"
        )


def evaluate(trained: Trained) -> MaskedScores:
    """The test text of the bundled corpus; of a run on other text, its validation text, or the training text if there
    is none. The baselines count in the training text."""
    config = trained.config
    corpus = MaskedLanguageModelTask().read(config)
    split, texts = "validation", corpus.val
    if not config.data.names_text:
        split, texts = "test", bundled.read_text("test").source
    if texts is None:
        split, texts = "training", corpus.train
    train, test = (
        encode_texts(trained.tokenizer.encode, lines, config.data.max_length) for lines in (corpus.train, texts)
    )
    hidden = HiddenTexts(each_masked_once(test), config.data.max_length)
    right = right_guesses(trained.model, hidden, trained.device.ops)
    baselines = [100 * float(np.mean(each)) for each in count_baselines(train, hidden)]
    n_right, n = int(right.sum()), len(right)
    return MaskedScores(split, n, 100 * n_right / n, wilson_interval(n_right, n), *baselines)


def right_guesses(model: Model, hidden: HiddenTexts, ops: tuple[Ops, ...] = ()) -> np.ndarray:
    """Whether the model guesses the hidden piece of each text, which must be one: (texts,) bool"""
    right = np.empty(len(hidden), bool)
    for batch in batches_in_order(hidden, POSITIONS_AT_ONCE):
        with using(*ops):
            right[batch.indices] = predictions(model, batch) == batch.targets[batch.targets != PAD]
    return right


def count_baselines(train: Sequences, hidden: HiddenTexts) -> list[np.ndarray]:
    """Whether the most frequent piece is right: of all, after the piece before, between both neighbours; (texts,) bool

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
    """What each baseline knows of the piece at each place: nothing, the piece before it, the pieces on both sides."""
    for before, after in zip(ids[places - 1].tolist(), ids[places + 1].tolist()):
        yield (), (before,), (before, after)
