"""BLEU from its definition (Papineni et al. 2002), and how sure one can be of a difference (Koehn 2004).

Sentences come as lists of tokens; what a token is, is settled before. A corpus is counted once, into a table with a row
for each sentence; every score, of the corpus or of a part of it, is computed from a sum of rows. Lesson 21 explains it.
Scores of runs are taken with sacreBLEU, by `scratchformer.text.bleu`; the tests compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from more import clipped_counts

N = 4
"""BLEU looks at runs of 1 to 4 tokens, its n-grams."""

Tokens = Sequence[str]


def count_table(hypotheses: Sequence[Tokens], references: Sequence[Tokens]) -> np.ndarray:
    """-> (sentences, 9) integers: matches of n = 1 to 4, written n-grams of n = 1 to 4, length of the reference

    Raises ValueError if there are not as many hypotheses as references.
    """
    rows = [clipped_counts(*pair) for pair in zip(hypotheses, references, strict=True)]
    return np.array(rows, int).reshape(-1, 2 * N + 1)


def bleu(counts: np.ndarray) -> np.ndarray:
    """counts (..., 9), sums of rows of a `count_table` -> BLEU from 0 to 100, (...)

    The geometric mean of the four precisions times the brevity penalty. It is 0 if one precision is: nothing is
    smoothed.
    """
    matches, written, wanted = counts[..., :N], counts[..., N : 2 * N], counts[..., 2 * N]
    precisions = matches / np.maximum(written, 1)
    brevity_penalty = np.exp(np.minimum(0, 1 - wanted / np.maximum(written[..., 0], 1)))
    return 100 * brevity_penalty * precisions.prod(axis=-1) ** (1 / N)


# How sure? ------------------------------------------------------------------------------------------------------------


def resamples(n_sentences: int, n_samples: int, random: np.random.Generator) -> np.ndarray:
    """-> (n_samples, n_sentences) integers: test sets as large as ours, drawn from its sentences with replacement"""
    return random.integers(0, n_sentences, (n_samples, n_sentences))


def bleu_of_samples(table: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The BLEU of each drawn test set. table (S, 9), indices (R, S) -> (R,)"""
    return bleu(table[indices].sum(axis=1))


def interval(values: np.ndarray, level: float = 0.95) -> np.ndarray:
    """-> (2,): the middle `level` of the values (R,) lies between these two"""
    return np.quantile(values, [(1 - level) / 2, (1 + level) / 2])


def difference_interval(
    table_a: np.ndarray, table_b: np.ndarray, indices: np.ndarray, level: float = 0.95
) -> np.ndarray:
    """The interval of BLEU(b) - BLEU(a), both on the same drawn sentences: a paired bootstrap. -> (2,)

    table_a, table_b  (S, 9), whose rows s belong to the same sentence
    """
    return interval(bleu_of_samples(table_b, indices) - bleu_of_samples(table_a, indices), level)
