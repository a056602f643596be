"""How often is the noun found that "it" means? `scratchformer evaluate` prints it, beside two baselines."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from scratchformer.experiments.heads import both_right
from scratchformer.experiments.statistics import wilson_interval
from scratchformer.training.run import Trained
from scratchformer.training.task_antecedent import is_right, pairs_of, with_two_nouns


class AntecedentScores(NamedTuple):
    """Shares in percent: of the sentences whose noun is found, and of the minimal pairs whose two nouns are found.

    The two sentences of a minimal pair differ in one adjective, and "it" means another noun in each. So who looks at
    anything but the adjective and the nouns finds half of the nouns, and both of no pair.

    test         of the sentences with two nouns in the test split
    sentences    of those in test_coreference, which consists of minimal pairs
    pairs        of its minimal pairs
    first, last  of the test sentences, for always choosing the noun that comes first, or last
    *_interval   Wilson's, for 95 %
    """

    n_test: int
    test: float
    test_interval: tuple[float, float]
    n_sentences: int
    sentences: float
    sentences_interval: tuple[float, float]
    pairs: float
    pairs_interval: tuple[float, float]
    first: float
    last: float

    def as_record(self) -> dict[str, Any]:
        """The scores, flat."""
        return self._asdict()

    def as_text(self) -> str:
        """Four lines."""
        return "\n".join(
            [
                f"test {in_words(self.test, self.test_interval)}, {self.n_test} sentences",
                f"minimal pairs {in_words(self.sentences, self.sentences_interval)}, {self.n_sentences} sentences",
                f"both sentences of a pair {in_words(self.pairs, self.pairs_interval)}, {self.n_sentences // 2} pairs",
                f"always the first noun: test {self.first:.1f} %, the last {self.last:.1f} %; "
                "minimal pairs 50.0 %, both sentences of a pair 0.0 %",
            ]
        )


def in_words(percent: float, interval: tuple[float, float]) -> str:
    """A share and its interval."""
    return f"{percent:.1f} %  (95 % interval {interval[0]:.1f} to {interval[1]:.1f})"


def evaluate(trained: Trained) -> AntecedentScores:
    """The sentences of test and test_coreference."""
    test, coreference = with_two_nouns("test"), with_two_nouns("test_coreference")
    on_test, on_coreference = (
        is_right(trained.model, pairs_of(each, trained.tokenizer, trained.config.data.max_length), trained.device.ops)
        for each in (test, coreference)
    )
    links = [each.coreference or {} for each in test]
    first = 100 * float(np.mean([link["antecedent"] < link["rival"] for link in links]))
    return AntecedentScores(
        len(test),
        *share(on_test),
        len(coreference),
        *share(on_coreference),
        *share(both_right(on_coreference, coreference)),
        first,
        100 - first,
    )


def share(right: np.ndarray) -> tuple[float, tuple[float, float]]:
    """How many are right, in percent, and the interval."""
    return 100 * float(right.mean()), wilson_interval(int(right.sum()), len(right))
