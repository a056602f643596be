"""n-gram models: their probabilities by hand, and from their definition."""

import math
from fractions import Fraction

import pytest
from ngram import START, WITHOUT_ESTIMATE, discounts, kneser_ney

A, B, C, END = range(4)
TEXTS = [[A, B, A, B, END], [A, C, END]]


def model_of(texts, order, n_symbols):
    *_, model = kneser_ney(texts, order, n_symbols)
    return model


def test_a_bigram_model_by_hand():
    """In the text: A B twice, A C, B A, B END, C END and START A twice. D(1) = 1/2 and D(2) = 1.

    The unigrams count what stands before: A after START and B, B after A, C after A, END after B and C, together 6.
    They take off 1 + 1/2 + 1/2 + 1 = 3, half of it all, and a uniform p_0 of 1/4 gets it.
    """
    half, quarter = Fraction(1, 2), Fraction(1, 4)
    unigrams = {A: (2 - 1) / Fraction(6) + half * quarter, B: half / 6 + half * quarter}
    unigrams |= {END: unigrams[A], C: unigrams[B]}
    assert sum(unigrams.values()) == 1
    after_a = {B: (2 - 1) / Fraction(3), C: half / 3, A: Fraction(0), END: Fraction(0)}  # of 3; 3/2 is taken off
    expected = {symbol: p + half * unigrams[symbol] for symbol, p in after_a.items()}
    model = model_of(TEXTS, 2, n_symbols=4)
    assert {symbol: model.probability((A,), symbol) for symbol in expected} == pytest.approx(expected)
    assert model.probability((END,), C) == pytest.approx(unigrams[C])  # nothing ever follows END
    at_start = (2 - 1) / 2 + half * unigrams[A]
    p = at_start * expected[C] * (half / 1 + half * unigrams[END])
    assert model.bits([A, C, END]) == pytest.approx(-math.log2(p))


def test_a_discount_that_would_be_0_leaves_every_symbol_a_probability():
    """Counts of 1 to 4 occur 1, 1, 2 and 1 times: Y is 1/3 and D(2) is 2 - 3 * 1/3 * 2 = 0."""
    text = [symbol for symbol, count in enumerate([1, 2, 3, 3, 4]) for _ in range(count)]
    model = model_of([text], 1, n_symbols=6)
    assert discounts([1, 2, 3, 3, 4]) == WITHOUT_ESTIMATE
    assert model.probability((), 5) == pytest.approx((0.5 + 1 + 3 * 1.5) / 13 / 6)

    pairs = [(symbol, symbol + 5) for symbol, count in enumerate([1, 2, 3, 3, 4]) for _ in range(count)]
    model = model_of([list(pair) for pair in pairs], 2, n_symbols=10)  # START before the first of each pair
    assert model.probability((1,), 7) > 0 and math.isfinite(model.bits([1, 7, 1, 8]))


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_sum_to_one_whatever_stands_before(order):
    text = [int(digit) for digit in str(2**4000)]
    model = model_of([text[:600], text[600:]], order, n_symbols=12)  # two symbols never occur
    if order == 3:
        assert model.orders[-1].discounts != WITHOUT_ESTIMATE
    for before in [(START,) * 4, (START, START, 3, 1), (1, 2, 3, 4), (9, 9, 9, 9), (10, 11, 3, 4)]:
        p = [model.probability(before, symbol) for symbol in range(12)]
        assert min(p) > 0 and sum(p) == pytest.approx(1, abs=1e-12)
