"""Byte-pair encoding in a few functions, to read and to compare with: how are merges learnt, replayed and undone?

Gage (1994) replaced the most frequent pair of bytes by an unused byte, again and again, to compress a file. Sennrich,
Haddow and Birch (2016) do it with the characters of words, to get a vocabulary; §5.1 of the paper uses their method.
`text.tokenizer` leaves the same work to sentencepiece, which is faster and has more rules of its own.

A word is a tuple of pieces, which begin as single characters. "▁" (U+2581) stands in front of each word of the text, as
in sentencepiece; so a piece knows whether it begins a word, and joining pieces gives the text back.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any

from more import merge

SPACE = "▁"

Pair = tuple[str, str]
Word = tuple[str, ...]

LETTERS_OR_OTHERS = re.compile(rf"{SPACE}?[^\W\d_]+|{SPACE}?(?:[^\w{SPACE}]|[\d_])+|{SPACE}")


def words_of(sentence: str) -> list[str]:
    """The parts of a sentence inside which pieces may be merged: "Go home." -> ["▁Go", "▁home", "."]

    Letters are kept apart from all else. Runs of spaces count as one, and so do those at either end as none.
    """
    return [part for word in sentence.split() for part in parts_of(SPACE + word)]


@lru_cache(2**16)
def parts_of(word: str) -> list[str]:
    """The same of one word, with its mark. A text has few different words, so most calls find the answer kept."""
    return LETTERS_OR_OTHERS.findall(word)


def shortest_first(pair: Pair) -> Any:
    """sentencepiece's order of pairs that are equally frequent: the shorter piece, then the earlier in Unicode."""
    joined = "".join(pair)
    return len(joined), joined, len(pair[0])


def learn_merges(
    sentences: Iterable[str], n_merges: int, order: Callable[[Pair], Any] = shortest_first, longest: float = math.inf
) -> list[Pair]:
    """The first `n_merges` merges, in the order in which they are learnt; fewer if no pair is left.

    Each time the most frequent pair is merged; of several, the first in this `order`. No piece has more than `longest`
    characters. Counts are kept, not made anew: a merge changes those of the words that hold it.
    """
    occurrences = Counter(word for sentence in sentences for word in words_of(sentence))
    words: list[Word] = [tuple(word) for word in occurrences]
    times = list(occurrences.values())
    pairs: Counter[Pair] = Counter()
    holders: dict[Pair, set[int]] = defaultdict(set)  # words in which a pair is, or was

    def count(i: int, number: int) -> None:
        for pair in zip(words[i], words[i][1:]):
            if len(pair[0]) + len(pair[1]) <= longest:
                pairs[pair] += number
                holders[pair].add(i)
                if not pairs[pair]:
                    del pairs[pair]

    for i in range(len(words)):
        count(i, times[i])
    merges: list[Pair] = []
    while len(merges) < n_merges and (most := max(pairs.values(), default=0)):
        best = min((pair for pair, number in pairs.items() if number == most), key=order)
        for i in holders[best]:
            count(i, -times[i])
            words[i] = merge(words[i], best)
            count(i, times[i])
        merges.append(best)
    return merges


def encode(sentences: Iterable[str], merges: Sequence[Pair]) -> list[list[str]]:
    """The pieces of each sentence: characters, with all merges replayed in the order in which they were learnt."""
    rank = {pair: i for i, pair in enumerate(merges)}

    @cache
    def pieces(text: str) -> Word:
        word = tuple(text)
        while known := [pair for pair in zip(word, word[1:]) if pair in rank]:
            word = merge(word, min(known, key=rank.__getitem__))
        return word

    return [[piece for word in words_of(sentence) for piece in pieces(word)] for sentence in sentences]


def decode(pieces: Iterable[str]) -> str:
    """The text: pieces joined, "▁" as a space. What was encoded comes back, but for "▁" itself and runs of spaces."""
    return "".join(pieces).replace(SPACE, " ").strip(" ")


def bits_per_character(loss: float, n_characters: int) -> float:
    """Compare models with different vocabularies. loss: the sum over all pieces of a text, in nats.

    It is that of one way to cut the text. A model gives some probability to others too, so this is an upper bound.
    """
    return loss / math.log(2) / n_characters


# A model that only counts ---------------------------------------------------------------------------------------------


def windows(row: Sequence[str], order: int) -> Iterator[Word]:
    """Each piece of a sentence, and "</s>" at its end, behind the `order` pieces before it."""
    padded = ("<s>",) * order + (*row, "</s>")
    return (padded[i - order : i + 1] for i in range(order, len(padded)))


def count_model_losses(
    rows: Sequence[Sequence[str]], new_rows: Sequence[Sequence[str]], order: int, V: int, weight: float
) -> list[float]:
    """For each new sentence the sum of -ln p of its pieces, by a model that has counted `rows`.

        p(b | c) = (count(c b) + weight * p(b | c')) / (count(c) + weight)

    with c for the last `order` pieces and c' for c without its first piece; below the empty context stands 1 / V.
    """
    counts: Counter[Word] = Counter()
    contexts: Counter[Word] = Counter()
    for window, times in Counter(window for row in rows for window in windows(row, order)).items():
        for k in range(order + 1):
            counts[window[k:]] += times
            contexts[window[k:-1]] += times

    @cache
    def loss(window: Word) -> float:
        p = 1 / V
        for k in range(order, -1, -1):  # from the empty context to the longest
            p = (counts[window[k:]] + weight * p) / (contexts[window[k:-1]] + weight)
        return -math.log(p)

    return [sum(map(loss, windows(row, order))) for row in new_rows]
