"""Exercises of lesson 17: byte-pair encoding, and losses of different vocabularies. Pieces are ids here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from exercises.exercise import Build, Result, Values
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.parameter import Array
from scratchformer.text.tokenizer import PAD
from support import byte_pairs

Ids = list[int]
Merges = list[tuple[int, int]]

# 17_count_pairs -------------------------------------------------------------------------------------------------------


def pair_counts(words: list[Ids], times: Ids, n_pieces: int) -> Array:
    occurrences = {tuple(map(str, word)): number for word, number in zip(words, times)}
    counts = np.zeros((n_pieces, n_pieces), int)
    for (a, b), number in byte_pairs.count_pairs(occurrences).items():
        counts[int(a), int(b)] = number
    return counts


def counted(words: list[Ids], times: Ids, n_pieces: int, pairs: Callable[[Ids], Iterable] = lambda w: zip(w, w[1:])
            ) -> Array:
    """By definition, or with other pairs of a word."""
    counts = np.zeros((n_pieces, n_pieces), int)
    for word, number in zip(words, times):
        for a, b in pairs(word):
            counts[a, b] += number
    return counts


COUNT_PAIRS = Build(
    id="17_count_pairs",
    title="Count the pairs of neighbours in a text",
    function="count_pairs",
    arguments=("words", "times", "n_pieces"),
    cases={
        "words that share pairs": lambda random: {
            "words": [[1, 2, 3, 1, 2, 4], [2, 3, 5], [3, 1, 2, 4, 0], [5, 1, 2]],
            "times": random.permutation([7, 2, 5, 3]).tolist(), "n_pieces": 6},
        "a piece beside itself": lambda random: {"words": [[0, 2, 2, 2, 1], [2, 2]], "times": [3, 4], "n_pieces": 3},
        "a word of one piece": lambda random: {"words": [[1], [0, 1]], "times": [9, 2], "n_pieces": 2},
    },
    expected=lambda words, times, n_pieces: counted(words, times, n_pieces),
    result=Result("counts", suspects={
        "each different word counts once: a pair occurs as often in the text as its words do":
            lambda words, n_pieces: counted(words, [1] * len(words), n_pieces),
        "pairs run across the borders of words: the last piece of a word is no neighbour of the next word's first":
            lambda words, times, n_pieces: counted(words, times, n_pieces) + counted(
                [[a[-1], b[0]] for a, b in zip(words, words[1:])], times, n_pieces),
        "a pair counts once in each word: it may stand there several times":
            lambda words, times, n_pieces: counted(words, times, n_pieces, lambda w: set(zip(w, w[1:]))),
        "only every second pair is counted: neighbours at places 1 and 2 are a pair as well":
            lambda words, times, n_pieces: counted(words, times, n_pieces, lambda w: zip(w[::2], w[1::2])),
        "a b and b a are one and the same here: a merge knows which piece comes first":
            lambda truth: truth + truth.T - np.diag(truth.diagonal()),
        "rows and columns are exchanged: the row is the piece on the left":
            lambda truth: truth.T,
    }),
    solution=pair_counts,
    library=(byte_pairs.count_pairs,),
    hints=(
        "counts = np.zeros((n_pieces, n_pieces), int). The row is the left piece, the column the right one.",
        "Go through the words. Each place but the last makes a pair with the next place, and adds to its count as many "
        "as the word has occurrences.",
        "for word, number in zip(words, times): for a, b in zip(word, word[1:]): counts[a, b] += number.",
    ),
)

# 17_merge -------------------------------------------------------------------------------------------------------------


def merge(word: Ids, pair: tuple[int, int], new: int) -> Ids:
    left, right = map(chr, pair)
    pieces = byte_pairs.merge(tuple(map(chr, word)), (left, right))
    return [new if len(piece) == 2 else ord(piece) for piece in pieces]


def merged(word: Ids, pair: tuple[int, int], new: int) -> Ids:
    """By definition: the first pair, then the rest."""
    for i in range(len(word) - 1):
        if (word[i], word[i + 1]) == tuple(pair):
            return [*word[:i], new, *merged(word[i + 2:], pair, new)]
    return word


def first_only(word: Ids, pair: tuple[int, int], new: int) -> Ids:
    places = [i for i in range(len(word) - 1) if (word[i], word[i + 1]) == tuple(pair)]
    return [*word[:places[0]], new, *word[places[0] + 2:]] if places else word


def from_the_right(word: Ids, pair: tuple[int, int], new: int) -> Ids:
    return merged(word[::-1], (pair[1], pair[0]), new)[::-1]


def each_place(word: Ids, pair: tuple[int, int], new: int) -> Ids:
    """One new piece for each place of the pair, though two places may overlap."""
    pairs = [tuple(two) == tuple(pair) for two in zip(word, word[1:])]
    return [new if here else piece for piece, here, before in zip(word, [*pairs, False], [False, *pairs])
            if here or not before]


def as_text(word: Ids, pair: tuple[int, int], new: int) -> Ids:
    """By replacing text, which knows no borders of ids."""
    text = " ".join(map(str, word)).replace(f"{pair[0]} {pair[1]}", str(new))
    return [int(piece) for piece in text.split()]


def in_either_order(word: Ids, pair: tuple[int, int], new: int) -> Ids:
    result: Ids = []
    i = 0
    while i < len(word):
        if i + 1 < len(word) and sorted(word[i:i + 2]) == sorted(pair):
            result, i = [*result, new], i + 2
        else:
            result, i = [*result, word[i]], i + 1
    return result


MERGE = Build(
    id="17_merge",
    title="Merge a pair wherever it stands in a word",
    function="merge",
    arguments=("word", "pair", "new"),
    cases={
        "twice in a word, and the other way round": lambda random: {
            "word": [5, 3, 4, 6, 4, 3, 4], "pair": (3, 4), "new": int(random.integers(20, 90))},
        "a a a": lambda random: {"word": [7, 7, 7, 2], "pair": (7, 7), "new": 12},
        "a a a a": lambda random: {"word": [7, 7, 7, 7], "pair": (7, 7), "new": 12},
        "at both ends": lambda random: {"word": [1, 2, 9, 8, 1, 2], "pair": (1, 2), "new": 10},
        "not there, but both pieces are": lambda random: {"word": [2, 1, 3, 2], "pair": (1, 2), "new": 10},
        "the pair alone": lambda random: {"word": [1, 2], "pair": (1, 2), "new": 10},
        "the same digits in other ids": lambda random: {"word": [13, 4, 3, 40, 3, 4], "pair": (3, 4), "new": 50},
    },
    expected=merged,
    result=Result("word", suspects={
        "only the first place is merged: go on behind it": first_only,
        "merged from the right: of a a a, the first two become one piece": from_the_right,
        "a piece is used twice: in a a a the second a belongs to the first merge and is gone": each_place,
        "the pair is taken in either order: the left piece must be the first":
            in_either_order,
        "replaced as text: `3 4` also stands in `13 4` and in `3 40`, which are other ids": as_text,
        "the last piece is lost when it is not merged":
            lambda truth, new: truth[:-1] if truth[-1] != new else truth,
    }),
    solution=merge,
    library=(byte_pairs.merge,),
    hints=(
        "word is a list of ids, pair a tuple of two. Return a new list, and leave the given one as it was.",
        "Walk from left to right. If this place and the next hold the pair, write the new id and step over both; else "
        "copy one id and step over it. A piece that was used in a merge is gone.",
        "A while loop with an index i: i += 2 behind (word[i], word[i + 1]) == pair, else i += 1.",
    ),
)

# 17_encode ------------------------------------------------------------------------------------------------------------


def strings(n_characters: int, merges: Merges) -> list[str]:
    """What each id stands for, if the characters are these."""
    pieces = [chr(ord("A") + i) for i in range(n_characters)]
    for a, b in merges:
        pieces.append(pieces[a] + pieces[b])
    return pieces


def encode(word: Ids, merges: Merges, n_characters: int) -> Ids:
    pieces = strings(n_characters, merges)
    text = "".join(pieces[i] for i in word)
    [[_, *parts]] = byte_pairs.encode([text], [(pieces[a], pieces[b]) for a, b in merges])    # the mark of a word first
    return [pieces.index(part) for part in parts]


def replayed(word: Ids, merges: Merges, n_characters: int, order: slice = slice(None),
             merge_one: Callable = merged) -> Ids:
    """By definition: one merge after the other."""
    for new, pair in list(enumerate(merges, n_characters))[order]:
        word = merge_one(word, pair, new)
    return word


def longest_match(word: Ids, merges: Merges, n_characters: int) -> Ids:
    pieces = strings(n_characters, merges)
    text, ids = "".join(pieces[i] for i in word), []
    while text:
        ids.append(max((i for i, piece in enumerate(pieces) if text.startswith(piece)), key=lambda i: len(pieces[i])))
        text = text[len(pieces[ids[-1]]):]
    return ids


def any_pair(word: Ids, merges: Merges, n_characters: int) -> Ids:
    """From left to right, again and again: the first place that holds any learnt pair is merged."""
    while places := [i for i, pair in enumerate(zip(word, word[1:])) if pair in merges]:
        i = places[0]
        word = [*word[:i], n_characters + merges.index((word[i], word[i + 1])), *word[i + 2:]]
    return word


ENCODE = Build(
    id="17_encode",
    title="Cut a word into pieces by replaying merges",
    function="encode",
    arguments=("word", "merges", "n_characters"),
    cases={
        "the pair on the right was learnt first": lambda random: {
            "word": [0, 1, 2, *random.permutation([0, 2]).tolist()], "merges": [(1, 2), (0, 1)], "n_characters": 3},
        "a piece of three, made from its right half": lambda random: {
            "word": [0, 1, 2, 0, 1, 3], "merges": [(1, 2), (0, 4), (0, 1)], "n_characters": 4},
        "a longer piece that is out of reach": lambda random: {
            "word": [0, 1, 2, 3], "merges": [(1, 2), (0, 1), (5, 2)], "n_characters": 4},
        "a pair in the way of a longer piece": lambda random: {
            "word": [0, 1, 2, 3], "merges": [(2, 3), (1, 2), (0, 5), (0, 1)], "n_characters": 4},
        "the same pair three times": lambda random: {
            "word": [1, 0, 1, 0, 1, 0], "merges": [(1, 0), (2, 2)], "n_characters": 2},
        "nothing to merge": lambda random: {"word": [3, 2], "merges": [(2, 3)], "n_characters": 4},
    },
    expected=lambda word, merges, n_characters: replayed(word, merges, n_characters),
    result=Result("ids", suspects={
        "any learnt pair is merged, from left to right: of all pairs in the word, the one learnt first comes first":
            any_pair,
        "the longest piece that fits is taken, from left to right: replay the merges instead": longest_match,
        "the merges are replayed from the last to the first":
            lambda word, merges, n_characters: replayed(word, merges, n_characters, slice(None, None, -1)),
        "a merge is replayed at its first place only; it holds wherever the pair stands":
            lambda word, merges, n_characters: replayed(word, merges, n_characters, merge_one=first_only),
        "the new ids begin at 0: merge number i makes the id n_characters + i":
            lambda truth, n_characters: [i - n_characters if i >= n_characters else i for i in truth],
        "the last merge is forgotten":
            lambda word, merges, n_characters: replayed(word, merges, n_characters, slice(-1)),
    }),
    solution=encode,
    library=(byte_pairs.encode, byte_pairs.merge),
    hints=(
        "word is a list of ids below n_characters, merges a list of pairs of ids. Merge number i makes the id "
        "n_characters + i, and may itself be in a later pair.",
        "The merges were learnt by doing merge 0 wherever it was possible, then merge 1, and so on. Do the same here.",
        "for i, pair in enumerate(merges): word = what `17_merge` makes of word, pair and n_characters + i.",
    ),
)

# 17_bits_per_character ------------------------------------------------------------------------------------------------


def losses_of(random: np.random.Generator, lengths: list[int]) -> Values:
    """The losses of a batch, in nats, with random logits: also where there is padding."""
    shape, vocabulary = (len(lengths), max(lengths)), 9
    targets = random.integers(1, vocabulary, shape)
    targets[np.arange(shape[1]) >= np.array(lengths)[:, None]] = PAD
    losses = np.array([[cross_entropy(random.normal(size=(1, 1, vocabulary)), np.ones((1, 1), int))[0]
                        for _ in row] for row in targets])
    return {"losses": losses, "targets": targets, "n_characters": np.array(lengths) * random.integers(2, 6, shape[0])}


def bits_per_character(losses: Array, targets: Array, n_characters: Array) -> float:
    return byte_pairs.bits_per_character(losses[targets != PAD].sum(), n_characters.sum())


def bits_of_sentences(losses: Array, targets: Array) -> Array:
    return np.where(targets == PAD, 0, losses).sum(axis=1) / math.log(2)


BITS_PER_CHARACTER = Build(
    id="17_bits_per_character",
    title="Bits per character from the losses of pieces",
    function="bits_per_character",
    arguments=("losses", "targets", "n_characters"),
    cases={
        "sentences of different lengths": lambda random: losses_of(random, [6, 2, 4]),
        "no padding": lambda random: losses_of(random, [5, 5]),
        "one sentence": lambda random: losses_of(random, [7]),
    },
    expected=lambda losses, targets, n_characters: bits_of_sentences(losses, targets).sum() / n_characters.sum(),
    result=Result("bits", suspects={
        "these are nats: a bit is ln 2 nats":
            lambda truth: truth * math.log(2),
        "multiplied by ln 2 where it should be divided: there are more bits than nats":
            lambda truth: truth * math.log(2)**2,
        "padding is counted: where targets is 0, nothing was to be written":
            lambda losses, n_characters: losses.sum() / math.log(2) / n_characters.sum(),
        "bits per piece: divide by the characters; how many pieces there are is the vocabulary's choice":
            lambda losses, targets: bits_of_sentences(losses, targets).sum() / (targets != PAD).sum(),
        "a mean over sentences of bits per character: a short sentence then weighs as much as a long one":
            lambda losses, targets, n_characters: (bits_of_sentences(losses, targets) / n_characters).mean(),
        "characters per bit: the other way round":
            lambda truth: 1 / truth,
        "a perplexity per character: take the logarithm, the loss itself":
            lambda truth: 2**truth,
    }),
    solution=bits_per_character,
    library=(byte_pairs.bits_per_character,),
    hints=(
        "losses and targets (B, T), n_characters (B,); targets is 0 where there is padding. The result is one number.",
        "The bits that the model needs for the whole text, over the characters of the whole text. Two sums, and one "
        "division.",
        "losses[targets != 0].sum() / ln 2 / n_characters.sum().",
    ),
)

EXERCISES = (COUNT_PAIRS, MERGE, ENCODE, BITS_PER_CHARACTER)
