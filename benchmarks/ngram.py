"""An n-gram model, with which a language model is compared: with interpolated modified Kneser-Ney smoothing, from its
definition (Chen and Goodman 1998, section 3).

    p_k(w | h) = (c(h w) - D(c(h w))) / c(h) + gamma(h) p_{k-1}(w | h without its first symbol),   p_0 = 1 / V

h are the k - 1 symbols before w. For the highest order, c(h w) is how often h w occurs in the text; for the lower ones,
after how many different symbols it occurs. c(h) is the sum of c(h w) over all w. Each count c is reduced by a discount
D(c), which is the same for all counts of 3 or more. gamma(h) is the sum of these discounts over all w, divided by c(h):
the weight of the lower order with which the probabilities add up to 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

Gram = tuple[int, ...]

START = -1
"""Stands before the first symbol of a text, as often as needed. It is never predicted."""

WITHOUT_ESTIMATE = (0.0, 0.5, 1.0, 1.5)
"""D(0) to D(3), where a text is too short to estimate them, or an estimate is not a valid discount.

D(1) to D(3) must be above 0: gamma is 0 where nothing is taken off, and what never followed h gets probability 0."""


def count_grams(texts: Iterable[Sequence[int]], order: int) -> list[Counter[Gram]]:
    """Count each sequence of 1, 2, ..., `order` symbols in the texts -> the counts, by length minus 1."""
    counts: list[Counter[Gram]] = [Counter() for _ in range(order)]
    for text in texts:
        symbols = [START] * (order - 1) + list(text)
        for end in range(order, len(symbols) + 1):
            for k in range(1, order + 1):
                counts[k - 1][tuple(symbols[end - k : end])] += 1
    return counts


def discounts(counts: Iterable[int]) -> tuple[float, ...]:
    """D(0), ..., D(3), of which the last is for all greater counts, too. With n_c the number of counts that are c:

    Y = n_1 / (n_1 + 2 n_2),   D(c) = c - (c + 1) Y n_{c+1} / n_c     (Chen and Goodman 1998, equation 17)
    """
    n = Counter(count for count in counts if count <= 4)
    if not all(n[c] for c in range(1, 5)):
        return WITHOUT_ESTIMATE
    Y = n[1] / (n[1] + 2 * n[2])
    estimated = [0.0, *(c - (c + 1) * Y * n[c + 1] / n[c] for c in range(1, 4))]
    return tuple(estimated) if all(0 < D <= c for c, D in enumerate(estimated) if c) else WITHOUT_ESTIMATE


class NGramCounts:
    """The counts of n-grams of one length.

    discounts  D(0), ..., D(3)
    contexts   h -> c(h), gamma(h)
    """

    def __init__(self, counts: Counter[Gram]) -> None:
        self.counts, self.discounts = counts, discounts(counts.values())
        totals: Counter[Gram] = Counter()
        taken: dict[Gram, float] = {}
        for gram, count in counts.items():
            h = gram[:-1]
            totals[h] += count
            taken[h] = taken.get(h, 0.0) + self.discounts[min(count, 3)]
        self.contexts = {h: (total, taken[h] / total) for h, total in totals.items()}


class KneserNey:
    """An n-gram model of n orders, whose V symbols are those below n_symbols."""

    def __init__(self, orders: list[NGramCounts], n_symbols: int) -> None:
        self.orders, self.n_symbols = orders, n_symbols

    def probability(self, before: Gram, symbol: int) -> float:
        """p(symbol | before). before: at least as many symbols as the order reaches back to, which is order - 1"""
        p = 1 / self.n_symbols
        for k, order in enumerate(self.orders):
            h = before[len(before) - k :]
            if h not in order.contexts:  # nor is a longer one
                break
            total, gamma = order.contexts[h]
            count = order.counts.get((*h, symbol), 0)
            p = (count - order.discounts[min(count, 3)]) / total + gamma * p
        return p

    def bits(self, text: Sequence[int]) -> float:
        """-log2 of the probability of a text."""
        reach = len(self.orders) - 1
        symbols = (START,) * reach + tuple(text)
        return -sum(
            math.log2(self.probability(symbols[end - reach : end], symbols[end])) for end in range(reach, len(symbols))
        )


def kneser_ney(texts: Iterable[Sequence[int]], highest: int, n_symbols: int) -> Iterator[KneserNey]:
    """The models of these texts with 1, 2, ..., `highest` orders."""
    counts = count_grams(texts, highest)
    lower: list[NGramCounts] = []
    for k, of_order in enumerate(counts, 1):
        yield KneserNey([*lower, NGramCounts(of_order)], n_symbols)
        if k < highest:
            lower.append(NGramCounts(Counter(gram[1:] for gram in counts[k])))
