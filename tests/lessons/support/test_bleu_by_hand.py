"""The BLEU of lesson 21 is sacreBLEU's, and its intervals hold what they promise."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from support.bleu_by_hand import bleu, count_table, difference_interval, resamples


def texts(seed, n_sentences, words="a b c d e f".split()):
    """Hypotheses that have about half of their words from the references. -> two lists of lists of tokens"""
    random = np.random.default_rng(seed)
    references = [list(random.choice(words, random.integers(1, 14))) for _ in range(n_sentences)]
    hypotheses = [
        [str(random.choice(words)) if random.random() < 0.3 else word for word in reference if random.random() < 0.9]
        for reference in references
    ]
    return hypotheses, references


def by_sacrebleu(hypotheses, references):
    metric = BLEU(tokenize="none", smooth_method="none")
    return metric.corpus_score([" ".join(h) for h in hypotheses], [[" ".join(r) for r in references]])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_sentences", [1, 7, 60])
def test_the_score_is_that_of_sacrebleu(seed, n_sentences):
    hypotheses, references = texts(seed, n_sentences)
    table, theirs = count_table(hypotheses, references), by_sacrebleu(hypotheses, references)
    total = table.sum(axis=0)
    assert list(total) == [*theirs.counts, *theirs.totals, theirs.ref_len]
    assert bleu(total) == pytest.approx(theirs.score, rel=1e-12, abs=1e-12)


def test_extremes():
    assert bleu(count_table([["a", "b", "c", "d"]], [["a", "b", "c", "d"]]).sum(axis=0)) == pytest.approx(100)
    assert bleu(count_table([[]], [["a"]]).sum(axis=0)) == 0
    assert count_table([], []).shape == (0, 9)
    with pytest.raises(ValueError):
        count_table([["a"]], [])


def test_a_constant_lead_has_no_width():
    table = count_table(*texts(0, 30))
    indices = resamples(30, 50, np.random.default_rng(0))
    assert np.array_equal(difference_interval(table, table, indices), [0, 0])
    perfect = np.where(np.arange(9) < 4, np.roll(table, -4, axis=1), table)
    lower, upper = difference_interval(table, perfect, indices)
    assert 0 < lower < upper
    assert np.allclose(difference_interval(perfect, table, indices), [-upper, -lower])


def test_the_interval_holds_the_true_difference_as_often_as_it_says():
    """Of many small test sets from a world whose true difference is known; 95 % is asked for."""
    world_a = count_table(*texts(0, 500))
    world_b = world_a - (np.arange(500) % 3 == 0)[:, None] * (np.arange(9) < 4) * (world_a > 0)
    truth, random, hits = bleu(world_b.sum(axis=0)) - bleu(world_a.sum(axis=0)), np.random.default_rng(0), 0
    for _ in range(150):
        rows = random.integers(0, 500, 100)
        lower, upper = difference_interval(world_a[rows], world_b[rows], resamples(100, 200, random))
        hits += lower <= truth <= upper
    assert 0.88 <= hits / 150 <= 0.99
