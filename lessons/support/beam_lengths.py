"""Translations of searches with several beams, as numbers of a sentence each: benchmarks/results/beam_lengths.json.

The file holds no text. But the n-grams that a translation has follow from its length, so the matches, its words and
those of the reference are enough for the table that BLEU is computed from (`bleu_by_hand`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from support.bleu_by_hand import N, bleu


class Written(NamedTuple):
    """The translations of one setting of the search.

    tokens           (S,)    pieces of each, with </s>; 1 for an empty translation
    table            (S, 9)  as `bleu_by_hand.count_table` gives it
    log_probability  mean, in nats
    """

    tokens: np.ndarray
    table: np.ndarray
    log_probability: float

    @property
    def bleu(self) -> float:
        return float(bleu(self.table.sum(axis=0)))

    @property
    def empty(self) -> np.ndarray:
        """(S,) bool"""
        return self.tokens == 1

    def where_empty(self, other: Written) -> Written:
        """These translations, but the empty ones replaced by those of another setting."""
        return self._replace(
            tokens=np.where(self.empty, other.tokens, self.tokens),
            table=np.where(self.empty[:, None], other.table, self.table),
        )


def numbers(line: str) -> np.ndarray:
    return np.array(line.split(), int)


def written_by(run: dict[str, Any]) -> dict[tuple[int, float], Written]:
    """One entry of the file's `results` -> (beam, alpha) -> what was written; beam 1 has alpha 0."""
    reference_words = numbers(run["reference_words"])
    found = {}
    for setting in run["settings"]:
        words = numbers(setting["words"])
        matches = [numbers(setting[f"matches_{n}"]) for n in range(1, N + 1)]
        ngrams = [np.maximum(words - n + 1, 0) for n in range(1, N + 1)]
        table = np.stack([*matches, *ngrams, reference_words], axis=1)
        found[setting["beam"], setting["alpha"]] = Written(
            numbers(setting["tokens"]), table, setting["log_probability"]
        )
    return found
