"""The functions of lessons/more.py: byte pairs, BLEU, GPT, and the block of 2026."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from exercises.function import Call, Function, Mistake
from exercises.halves import Slip
from exercises.layers import weight
from exercises.observe import Halves, Plain, names_of, require_unchanged
from exercises.whole_model import Loss

# Lesson 17 ------------------------------------------------------------------------------------------------------------


def texts(module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
    """Observe a function that returns symbols, a tuple of strings, or pairs, a list of tuples or {pair: count}."""
    before = copy.deepcopy(names_of(function, call))
    result = getattr(module, function.name)(*call.args)
    require_unchanged(before, names_of(function, call))
    if function is COUNT_PAIRS:
        if not isinstance(result, Mapping):
            raise Slip(f"count_pairs returns {kind(result)}, and should return a dictionary, {{pair: count}}")
        for pair in result:
            require_pair(function, pair)
        yield "counts", np.array([f"{a} {b}: {count}" for (a, b), count in sorted(result.items())], dtype=str)
    elif function is LEARN_MERGES:
        if not isinstance(result, list):
            raise Slip(f"learn_merges returns {kind(result)}, and should return a list of pairs")
        for pair in result:
            require_pair(function, pair)
        yield "list", np.array([" ".join(pair) for pair in result], dtype=str)
    else:
        if not isinstance(result, tuple):
            raise Slip(f"{function.name} returns {kind(result)}, and should return a tuple of symbols")
        if wrong := [symbol for symbol in result if not isinstance(symbol, str)]:
            raise Slip(f"{function.name} returns {wrong[0]!r} among the symbols, and a symbol is a string")
        yield "word", np.array(result, dtype=str)


def require_pair(function: Function, pair: Any) -> None:
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(symbol, str) for symbol in pair)):
        raise Slip(f"a pair of {function.name} is {pair!r}, and should be a tuple of two symbols, as ('u', 'n')")


def kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def words_of(text: str, random: np.random.Generator) -> dict[tuple[str, ...], int]:
    """{word: count} of words whose symbols are separated by dots; the counts are different numbers."""
    words = [tuple(word.split(".")) if word != "-" else () for word in text.split()]
    return dict(zip(words, (random.permutation(len(words)) + 2).tolist()))


def counted(text: str):
    """A case of `count_pairs`."""
    return lambda random, file: Call(words_of(text, random))


COUNT_PAIRS = Function(
    name="count_pairs",
    lesson="17",
    note='words is {word: count}, and a word is a tuple of symbols, as ("▁", "u", "nd"); return {pair: count}, where a '
    "pair is a tuple of two symbols",
    cases={
        "words that share pairs": counted("▁.u.n.d ▁.h.u.n.d ▁.u.n.s u.n"),
        "a pair twice in a word": counted("a.b.a.b b.a.b.a.b c"),
        "a a a": counted("a.a.a b.a.a"),
        "longer symbols": counted("ab.c.ab.c a.bc abc"),
        "words of one symbol and of none": counted("a -"),
        "no words": counted(""),
    },
    observe=texts,
    hints=(
        "Each symbol of a word but the last makes a pair with the next one. A word that occurs 5 times adds 5 to the "
        "count of each of its pairs, and once more wherever the pair stands again.",
        "For each word and its count: for each pair in zip(symbols, symbols[1:]), add the count of the word.",
    ),
    mistakes=(
        Mistake(
            "each word of the dictionary counts once; a word that occurs 5 times has each of its pairs 5 times",
            ("+= count", "+= 1"),
        ),
        Mistake(
            "a pair counts once in each word; it may stand there several times",
            ("in zip(symbols, symbols[1:])", "in set(zip(symbols, symbols[1:]))"),
        ),
        Mistake(
            "only the last word with a pair counts: add to what the words before have given", ("+= count", "= count")
        ),
        Mistake(
            "pairs run from the end of a word to the beginning of the next; a pair lies within one word",
            ("pairs = Counter()", "pairs, last = Counter(), ()"),
            (
                "for pair in zip(symbols, symbols[1:])",
                "joined = last + symbols\n        last = symbols[-1:] or last\n"
                "        for pair in zip(joined, joined[1:])",
            ),
        ),
        Mistake(
            "every second pair is missing: the second and the third symbol are a pair, too",
            ("zip(symbols, symbols[1:])", "zip(symbols[::2], symbols[1::2])"),
        ),
        Mistake(
            "the last pair of each word is missing: a word of n symbols has n - 1 pairs",
            ("zip(symbols, symbols[1:])", "zip(symbols[:-2], symbols[1:])"),
        ),
        Mistake(
            "a b and b a are one and the same here; a pair has an order", ("pairs[pair]", "pairs[tuple(sorted(pair))]")
        ),
    ),
    file="more",
)


def merged(word: str, pair: str):
    """A case of `merge`."""
    return lambda random, file: Call(tuple(word.split()), tuple(pair.split()))


MERGE = Function(
    name="merge",
    lesson="17",
    note='symbols is a tuple, as ("▁", "u", "n", "d"), and pair two of them, as ("u", "n"); return a tuple, as '
    '("▁", "un", "d")',
    cases={
        "a pair twice, and once the other way round": merged("a b c b a a b", "a b"),
        "a a a": merged("a a a b", "a a"),
        "a a a a": merged("a a a a", "a a"),
        "a symbol left over at the end": merged("a b a", "a b"),
        "a word that is the pair": merged("a b", "a b"),
        "the same letters, cut in another way": merged("ab c da bc a bc a b c", "a bc"),
        "a word without the pair": merged("b a c b", "a b"),
        "one symbol": merged("a", "a b"),
        "no symbols": merged("", "a b"),
    },
    observe=texts,
    hints=(
        "Go from left to right. If this symbol and the next one are the pair, write both as one and step over both; "
        "else write this symbol and step over it. What has been merged is used up.",
        "while i < len(symbols): symbols[i : i + 2] == pair decides whether i grows by 2 or by 1.",
    ),
    mistakes=(
        Mistake(
            "only the first place is merged; go on behind it, to the end of the word",
            (" == pair else 1", " == pair and len(merged) == i else 1"),
        ),
        Mistake(
            "it is merged from the right: of a a a, the first two become one symbol",
            ("    merged, i = [], 0\n", "    merged, i, symbols, pair = [], 0, symbols[::-1], pair[::-1]\n"),
            ('"".join(symbols[i : i + width])', '"".join(symbols[i : i + width][::-1])'),
            ("tuple(merged)", "tuple(merged[::-1])"),
        ),
        Mistake("the second symbol of the pair stands there again: step over both", ("i += width", "i += 1")),
        Mistake(
            "a symbol is used twice: in a a a the second a belongs to the first merge, and is gone",
            ("merged, i = [], 0", "merged, i, before = [], 0, False"),
            ("        merged.append(", "        if width == 2 or not before:\n            merged.append("),
            ("i += width", "i, before = i + 1, width == 2"),
        ),
        Mistake(
            "the pair is taken in either order; its first symbol must stand on the left",
            ("symbols[i : i + 2] == pair", "sorted(symbols[i : i + 2]) == sorted(pair)"),
        ),
        Mistake(
            "the last symbol is lost where it is not merged", ("while i < len(symbols):", "while i < len(symbols) - 1:")
        ),
        Mistake(
            "the letters are compared: ab c reads like a bc, but is another pair of symbols",
            ("symbols[i : i + 2] == pair", '"".join(symbols[i : i + 2]) == "".join(pair)'),
        ),
        Mistake(
            "text is replaced, which knows no symbols: a bc also stands in da bc, where the symbol is da",
            (
                "    merged, i = [], 0\n",
                "    merged, i = [], 0\n"
                '    symbols = tuple(" ".join(symbols).replace(" ".join(pair), "".join(pair)).split())\n',
            ),
        ),
    ),
    file="more",
)


def learnt(text: str, n: int, count: int | None = None):
    """A case of `learn_merges`; count: how often each word occurs, if all are equal."""
    return lambda random, file: Call({word: count or number for word, number in words_of(text, random).items()}, n)


LEARN_MERGES = Function(
    name="learn_merges",
    lesson="17",
    note="words is {word: count}; return a list of at most n pairs; of pairs that occur equally often take the one "
    "that is shortest when joined, of these the first in Unicode when joined, of these the one with the shortest left "
    "symbol",
    cases={
        "merges that build on one another": learnt("l.o.w l.o.w.e.r n.e.w.e.r n.e.w w.i.d.e.r", 6),
        "a count that changes by a merge": learnt("a.b.c a.b.c.d b.c.d x.a.b", 4, 3),
        "pairs that occur equally often": learnt("y.z b.a a.b", 3, 2),
        "equal counts, one pair shorter": learnt("a.bc y.z", 2, 2),
        "equal counts, pairs of one length": learnt("a.zz ab.c", 2, 2),
        "equal counts, the same letters": learnt("ab.c a.bc", 2, 2),
        "a a a": learnt("a.a.a.a.a b.a.a", 3),
        "more merges than pairs": learnt("t.o", 9),
        "no words": learnt("", 3),
    },
    observe=texts,
    hints=(
        "Again and again: count the pairs of all words as they are now, take the most frequent, merge it in all words. "
        "End after n merges, or when no word has a pair left.",
        "pairs = count_pairs(words); best = min(pairs, key=...), where the key begins with -pairs[pair]; the new words "
        "are {merge(symbols, best): count}.",
    ),
    mistakes=(
        Mistake(
            "all pairs are taken from the first count; each merge makes new symbols, so count again after each",
            (
                "    merges = []\n    while len(merges) < n and (pairs := count_pairs(words)):\n",
                "    merges, pairs = [], count_pairs(words)\n    while len(merges) < n and pairs:\n",
            ),
            ("        merges.append(best)\n", "        merges.append(best)\n        del pairs[best]\n"),
        ),
        Mistake(
            "of equal counts the pair that was counted first is taken; take the one that is shortest when joined, then "
            "the first in Unicode, then the one with the shortest left symbol",
            ('(-pairs[ab], len("".join(ab)), "".join(ab), len(ab[0]))', "-pairs[ab]"),
        ),
        Mistake(
            "equal counts are decided symbol by symbol; first comes the length of the joined pair, then its letters",
            ('(-pairs[ab], len("".join(ab)), "".join(ab), len(ab[0]))', "(-pairs[ab], ab)"),
        ),
        Mistake(
            "of equal counts the last pair in Unicode is taken: max turns the order of the letters round, too",
            (
                'min(pairs, key=lambda ab: (-pairs[ab], len("".join(ab)), "".join(ab), len(ab[0])))',
                "max(pairs, key=lambda ab: (pairs[ab], ab))",
            ),
        ),
        Mistake(
            "of equal counts the first pair in Unicode is taken; one that is shorter when joined comes before it",
            ('len("".join(ab)), "".join(ab), len(ab[0])', '"".join(ab)'),
        ),
        Mistake(
            "the words lose their counts when they are merged: each counts once after the first merge",
            ("merge(symbols, best): count for", "merge(symbols, best): 1 for"),
        ),
        Mistake(
            "no pair is left, and the most frequent of none is looked for: end there, with fewer than n merges",
            (" and (pairs := count_pairs(words)):", ":\n        pairs = count_pairs(words)"),
        ),
        Mistake(
            "the words stay as they are; they must be merged before the pairs are counted again",
            ("        words = {merge", "        {merge"),
        ),
    ),
    file="more",
)


def encoded(word: str, *merges: str):
    """A case of `bpe_encode`."""
    return lambda random, file: Call(word, [tuple(pair.split()) for pair in merges])


BPE_ENCODE = Function(
    name="bpe_encode",
    lesson="17",
    note='word is a text, as "▁und", and merges a list of pairs, as learn_merges gives it; return a tuple of symbols',
    cases={
        "a pair on the right that was learnt first": encoded("abcab", "b c", "a b"),
        "a symbol of three letters": encoded("abcabd", "b c", "a bc", "a b"),
        "a longer symbol that is out of reach": encoded("abcd", "b c", "a b", "ab c"),
        "a pair in the way of a longer symbol": encoded("abcd", "c d", "b c", "a bc", "a b"),
        "a pair that comes again": encoded("bababa", "b a", "ba ba"),
        "a a a": encoded("aaaaa", "a a", "aa aa"),
        "nothing to merge": encoded("dc", "c d"),
        "no merges": encoded("abc"),
        "no letters": encoded("", "a b"),
    },
    observe=texts,
    hints=(
        "Do with this word what has been done with all words when the merges were learnt: the first merge wherever it "
        "is possible, then the second, and so on.",
        "symbols = tuple(word); then for each pair of merges, symbols = merge(symbols, pair).",
    ),
    mistakes=(
        Mistake(
            "the merges go from the last to the first; they must go in the order in which they were learnt",
            ("in merges:", "in reversed(merges):"),
        ),
        Mistake(
            "what merge returns is lost; it makes a new tuple and leaves symbols as they are",
            ("symbols = merge(symbols, pair)", "merge(symbols, pair)"),
        ),
        Mistake(
            "any learnt pair is merged, from left to right; of all pairs in the word, the one learnt first comes first",
            (
                "    for pair in merges:\n        symbols = merge(symbols, pair)\n",
                "    while places := [i for i, pair in enumerate(zip(symbols, symbols[1:])) if pair in merges]:\n"
                "        i = places[0]\n"
                "        symbols = (*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :])\n",
            ),
        ),
        Mistake(
            "the longest symbol that fits is taken, from left to right; go through the merges instead",
            (
                "    for pair in merges:\n        symbols = merge(symbols, pair)\n",
                '    known, symbols = [*word, *("".join(pair) for pair in merges)], ()\n'
                "    while word:\n"
                "        symbols = (*symbols, max(filter(word.startswith, known), key=len))\n"
                "        word = word[len(symbols[-1]) :]\n",
            ),
        ),
        Mistake(
            "each merge is done at its first place only; it holds wherever the pair stands",
            (
                "        symbols = merge(symbols, pair)\n",
                "        places = [i for i, two in enumerate(zip(symbols, symbols[1:])) if two == pair]\n"
                "        for i in places[:1]:\n"
                '            symbols = (*symbols[:i], "".join(pair), *symbols[i + 2 :])\n',
            ),
        ),
    ),
    file="more",
)

# Lesson 21 ------------------------------------------------------------------------------------------------------------


def nine_counts(module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
    """Observe `clipped_counts`, the nine numbers by their names."""
    for _, result in Plain("counts")(module, function, call, seed):
        try:
            counts = np.asarray(result)
        except ValueError:  # parts of different lengths
            counts = np.array(None)
        if counts.shape != (9,):
            given = f"an array of shape {counts.shape}" if counts.shape else kind(result)
            raise Slip(
                f"clipped_counts returns {given}, and should return nine numbers: four of n-grams matched, four of "
                "n-grams written, and the number of words expected"
            )
        for name, part in (("written", counts[4:8]), ("matched", counts[:4]), ("expected", counts[8])):
            yield name, part.astype(int) if part.dtype.kind == "f" and np.all(part % 1 == 0) else part


def sentences(hypothesis: str, reference: str):
    """A case of `clipped_counts`."""
    return lambda random, file: Call(hypothesis.split(), reference.split())


OURS = "ours = Counter(zip(*(hypothesis[i:] for i in range(n))))"
THEIRS = "theirs = Counter(zip(*(reference[i:] for i in range(n))))"
MATCHED = "(ours & theirs).total()"

CLIPPED_COUNTS = Function(
    name="clipped_counts",
    lesson="21",
    note="both are lists of words; return an array of nine numbers: for n = 1 to 4 the n-grams matched, for n = 1 to 4 "
    "the n-grams of the hypothesis, and the number of words of the reference",
    cases={
        "n-grams in another order": sentences(
            "in the house in the house the cat in the garden sleeps",
            "the cat sleeps in the house and the dog in the garden sleeps here",
        ),
        "the the the": sentences("the the the the the the the", "the cat is on the mat"),
        "words that read alike when joined": sentences("a bc d a bc .", "ab c d a bc"),
        "the same words, ordered otherwise": sentences("old my dog the car red", "red car the dog my old"),
        "the hypothesis is right": sentences("the cat sleeps .", "the cat sleeps ."),
        "fewer words than n": sentences("the cat", "the cat sleeps ."),
        "no word written": sentences("", "the cat"),
    },
    observe=nine_counts,
    hints=(
        "For each n, count how often each n-gram occurs on both sides. An n-gram that both have is matched as often as "
        "the smaller of its two counts says.",
        "Counter(zip(*(words[i:] for i in range(n)))) counts the n-grams of a sentence; & of two Counters takes the "
        "smaller counts, .total() adds them up.",
    ),
    mistakes=(
        Mistake(
            "nothing is clipped; an n-gram is matched no more often than it stands in the reference",
            (MATCHED, "sum(count for each, count in ours.items() if each in theirs)"),
        ),
        Mistake(
            "each n-gram is counted once, however often it is written",
            (OURS, "ours = Counter(set(zip(*(hypothesis[i:] for i in range(n)))))"),
        ),
        Mistake(
            "matches are looked for at the same place only; an n-gram may stand anywhere in the reference",
            (
                MATCHED,
                "sum(a == b for a, b in zip(zip(*(hypothesis[i:] for i in range(n))),"
                " zip(*(reference[i:] for i in range(n)))))",
            ),
        ),
        Mistake(
            "the last n-grams are shorter than n words; of w words there are w - n + 1 n-grams",
            (OURS, "ours = Counter(tuple(hypothesis[i : i + n]) for i in range(len(hypothesis)))"),
            (THEIRS, "theirs = Counter(tuple(reference[i : i + n]) for i in range(len(reference)))"),
        ),
        Mistake(
            "matched and written alternate; the four numbers of n-grams matched come first",
            ("written.append(ours.total())", "matched.append(ours.total())"),
        ),
        Mistake(
            'the words of an n-gram are joined without a space, so that "a bc" and "ab c" are the same',
            (OURS, 'ours = Counter(map("".join, zip(*(hypothesis[i:] for i in range(n)))))'),
            (THEIRS, 'theirs = Counter(map("".join, zip(*(reference[i:] for i in range(n)))))'),
        ),
        Mistake(
            "the last n-gram is missing; of w words there are w - n + 1 n-grams",
            (OURS, "ours = Counter(zip(*(hypothesis[i:-1] for i in range(n))))"),
        ),
        Mistake(
            "these are the n-grams of the reference; precision divides by what the hypothesis has written",
            ("append(ours.total())", "append(theirs.total())"),
        ),
    ),
    file="more",
)


def counts_of(*counts: int):
    """A case of `bleu_of_counts`."""
    return lambda random, file: Call(np.array(counts))


PRODUCT = "np.prod(matched / np.maximum(1, written)) ** (1 / 4)"

BLEU_OF_COUNTS = Function(
    name="bleu_of_counts",
    lesson="21",
    note="counts are nine numbers, as clipped_counts gives them; return a number, and 0 where no n-gram was written",
    cases={
        "fewer words than expected": counts_of(40, 25, 16, 9, 50, 44, 38, 32, 60),
        "more words than expected": counts_of(40, 25, 16, 9, 60, 54, 48, 42, 50),
        "as many words as expected": counts_of(7, 5, 3, 1, 8, 7, 6, 5, 8),
        "all right": counts_of(9, 8, 7, 6, 9, 8, 7, 6, 9),
        "no 4-gram is matched": counts_of(7, 5, 3, 0, 8, 7, 6, 5, 9),
        "no 4-gram is written": counts_of(3, 2, 1, 0, 3, 2, 1, 0, 4),
        "nothing is written": counts_of(0, 0, 0, 0, 0, 0, 0, 0, 4),
    },
    observe=Plain("BLEU"),
    hints=(
        "Four precisions, each what is matched divided by what is written; their geometric mean; times a factor below "
        "1 if fewer words are written than expected.",
        "100 BP (p_1 p_2 p_3 p_4)^(1/4), p_n = matched_n / written_n, and BP = min(1, exp(1 - r / c)) with r words "
        "expected and c words written.",
    ),
    mistakes=(
        Mistake(
            "it is the arithmetic mean of the precisions; the geometric one is asked for, the fourth root of their "
            "product",
            (PRODUCT, "np.mean(matched / np.maximum(1, written))"),
        ),
        Mistake("the fourth root of the product is missing", (PRODUCT, "np.prod(matched / np.maximum(1, written))")),
        Mistake(
            "the brevity penalty is missing: it is below 1 if fewer words are written than expected",
            ("100 * BP", "100"),
        ),
        Mistake(
            "the brevity penalty is upside down and lowers long texts; it must lower the short ones",
            ("1 - r / c", "1 - c / max(1, r)"),
        ),
        Mistake(
            "texts that are too long get a bonus; the brevity penalty is never above 1",
            ("min(1, np.exp(1 - r / c))", "np.exp(1 - r / c)"),
        ),
        Mistake(
            "the brevity penalty is the ratio of the lengths, c / r, and should be exp(1 - r / c)",
            ("np.exp(1 - r / c)", "c / r"),
        ),
        Mistake(
            "0 is divided by 0 where no n-gram was written; the precision is 0 there",
            ("np.maximum(1, written)", "written"),
        ),
        Mistake("x ** 1 / 4 is (x ** 1) / 4: put 1 / 4 in parentheses", ("** (1 / 4)", "** 1 / 4")),
    ),
    file="more",
)

REFERENCES = """
the old dog sleeps in the garden of my brother today
the cat eats an apple
my sister reads the new book to the child in the evening
we go
the child sees the red car of my brother in front of the house
on sunday the cat sleeps
"""


def translated(random: np.random.Generator, references: list[list[str]], share: float, longer: int = 0):
    """Hypotheses of which a share of the words is right; longer: words too many (or, if negative, too few)."""
    hypotheses = [[word if random.random() < share else "x" for word in reference] for reference in references]
    return [(hypothesis + ["y"] * longer)[: len(hypothesis) + longer] for hypothesis in hypotheses]


def corpus(share: float, longer: int = 0, n: int = 6):
    """A case of `bleu`."""

    def case(random, file):
        references = [line.split() for line in REFERENCES.split("\n")[1:-1]][:n]
        return Call(translated(random, references, share, longer), references)

    return case


BLEU = Function(
    name="bleu",
    lesson="21",
    note="hypotheses and references are lists of as many sentences, and a sentence is a list of words; return a number",
    cases={
        "sentences of different lengths": corpus(0.9),
        "translations too short": corpus(0.95, -1),
        "translations too long": corpus(0.95, 2),
        "all right": corpus(1.0),
        "one sentence": corpus(0.9, n=1),
    },
    observe=Plain("BLEU"),
    hints=(
        "BLEU is computed once, for the whole corpus: add up the counts of all its sentences first.",
        "bleu_of_counts of the sum of clipped_counts(hypothesis, reference) over all pairs of sentences.",
    ),
    mistakes=(
        Mistake(
            "it is the mean of the sentences' BLEU; add up the counts of all sentences, then compute BLEU once",
            (
                "bleu_of_counts(sum(clipped_counts(*pair) for pair in pairs))",
                "sum(bleu_of_counts(clipped_counts(*pair)) for pair in pairs) / len(references)",
            ),
        ),
        Mistake(
            "the corpus is taken as one long sentence; no n-gram runs from one sentence into the next, and a word is "
            "matched only in its own sentence",
            (
                "bleu_of_counts(sum(clipped_counts(*pair) for pair in pairs))",
                "bleu_of_counts(clipped_counts(sum(hypotheses, []), sum(references, [])))",
            ),
        ),
        Mistake(
            "hypothesis and reference are exchanged: precision divides by what the hypothesis has written",
            ("zip(hypotheses, references, strict", "zip(references, hypotheses, strict"),
        ),
    ),
    file="more",
)


def two_systems(n: int, samples: int, longer: int = 0):
    """A case of `bootstrap`: b is better, and both find the same sentences hard."""

    def case(random, file):
        references = [random.choice([*"abcdefgh"], random.integers(6, 15)).tolist() for _ in range(n)]
        a = translated(random, references, 0.85)
        b = [[word if random.random() < 0.4 else right for word, right in zip(*pair)] for pair in zip(a, references)]
        b = [hypothesis[: len(hypothesis) + longer] for hypothesis in b]
        return Call(a, b, references, np.random.default_rng(int(random.integers(1000))), samples=samples)

    return case


SCORES = "(bleu_of_counts(x[drawn].sum(axis=0)) for x in (counts_a, counts_b))"
QUANTILES = "np.quantile(differences, [0.025, 0.975])"
CUT = "cut off 2.5 % of `samples` at each end, rounded down: 25 of 1000, 1 of 41, 0 of 1 (where d[0:-0] is empty)"


def samples_and_interval(module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
    """Observe `bootstrap`: how it draws, which its random generator tells afterwards, and what it returns."""
    n, rng = len(call.args[2]), call.args[3]
    again = copy.deepcopy(rng)
    error = None
    try:
        [(name, interval)] = Plain("interval")(module, function, call, seed)
    except IndexError as raised:
        error = raised
    used = "other numbers"
    for count in range(1001):
        if again.bit_generator.state == rng.bit_generator.state:
            used = f"{count} times integers(0, n, n)"
            break
        again.integers(0, n, n)
    yield "use of rng", np.array([used])
    if error and used.startswith(f"{call.kwargs['samples']} times"):  # all are drawn: the error is in what follows
        raise Slip(f"after {used}: {error}. If you sort, {CUT}") from error
    if error:
        raise error
    yield name, interval


BOOTSTRAP = Function(
    name="bootstrap",
    lesson="21",
    note="a, b and references are lists of n sentences; draw each sample by rng.integers(0, n, n); return the lower "
    "and the upper end",
    cases={  # of 41 sorted differences, np.quantile takes the second and the last but one, as cutting off 2.5 % does
        "two systems": two_systems(13, 41),
        "b writes too few words": two_systems(9, 41, -1),
        "few sentences": two_systems(5, 41),
        "one sample": two_systems(8, 1),
    },
    observe=samples_and_interval,
    hints=(
        "A sample is a test set of the same size, drawn with replacement: some sentences twice, others not at all. "
        "Both systems are scored on it. The interval leaves out 2.5 % of the differences on each side.",
        "counts of each sentence once, (n, 9) for a and for b; for each sample, drawn = rng.integers(0, n, n) and "
        "bleu_of_counts(counts_b[drawn].sum(axis=0)) minus that of a; at the end np.quantile(..., [0.025, 0.975]).",
    ),
    mistakes=(
        Mistake(
            "a and b are exchanged: BLEU(b) - BLEU(a), which is positive where b is better",
            ("score_b - score_a", "score_a - score_b"),
        ),
        Mistake(
            "it encloses 90 % of the differences: cut off 2.5 % on each side, of 41 differences one, not two",
            ("[0.025, 0.975]", "[0.05, 0.95]"),
        ),
        Mistake(
            "np.percentile counts in per cent, 2.5 and 97.5; 0.025 and 0.975 are for np.quantile",
            ("np.quantile", "np.percentile"),
        ),
        Mistake(
            "a and b are scored on different samples; the same sentences must be drawn for both",
            (
                SCORES,
                "(bleu_of_counts(x[each].sum(axis=0)) for x, each in ((counts_a, drawn),"
                " (counts_b, rng.integers(0, len(references), len(references)))))",
            ),
        ),
        Mistake(
            "the references are not drawn; each drawn hypothesis needs the reference of its sentence",
            (SCORES, "(bleu([x[i] for i in drawn], references) for x in (a, b))"),
        ),
        Mistake(
            "the samples have the mean of the sentences' BLEU; add up the counts of a sample, then compute BLEU once",
            (SCORES, "(np.mean([bleu_of_counts(each) for each in x[drawn]]) for x in (counts_a, counts_b))"),
        ),
        Mistake(
            "the sentences are drawn without replacement, so that each sample is the test set again",
            ("rng.integers(0, len(references), len(references))", "rng.permutation(len(references))"),
        ),
        Mistake(
            "only b is drawn, and a is scored on the whole test set; the same sentences must be drawn for both",
            (SCORES, "(bleu_of_counts(x.sum(axis=0)) for x in (counts_a, counts_b[drawn]))"),
        ),
        Mistake(
            f"a fixed number is cut off; {CUT}", (QUANTILES, "(np.sort(differences)[25], sorted(differences)[-26])")
        ),
        Mistake(
            "the upper end is one too low: at both ends the same number must be cut off, of 41 differences one",
            (QUANTILES, "(np.sort(differences)[[int(0.025 * samples), int(0.975 * samples) - 1]])"),
        ),
        Mistake(
            "the upper end is one too high: with c differences cut off at each end, it is [-c - 1]",
            (QUANTILES, "(np.sort(differences)[[int(0.025 * samples), -int(0.025 * samples)]])"),
        ),
        Mistake(
            f"a fixed range is taken; {CUT}",
            (QUANTILES, "(sorted(differences)[25:975][0], sorted(differences)[25:975][-1])"),
        ),
    ),
    file="more",
)

# Lesson 22 ------------------------------------------------------------------------------------------------------------


def read_by_gpt(b: int, t: int, N: int = 1, **settings: float):
    """A case of `gpt` or `gpt_loss`: b rows of t characters, among them the one of id 0: here not padding."""

    def case(random, file):
        file.rng = random
        model = file.new_gpt(V=8, d_model=4, d_ff=6, h=2, N=N, dtype="float64")
        for w in model.weights.values():
            w.data += 0.5 * random.normal(size=w.data.shape)  # gamma 1 and beta 0 would hide mistakes
        ids = random.integers(0, 8, size=(b, t))
        ids[-1, -1] = 0
        return Call(ids, model, **settings)

    return case


PAST = "np.tri(ids.shape[1], dtype=bool)"

GPT = Function(
    name="gpt",
    lesson="22",
    shapes={"ids": "bt", "x": "btd"},
    note="model.decoder: for each layer the weights of self-attention and of feed_forward; backward returns nothing",
    cases={
        "three rows of five characters": read_by_gpt(3, 5, P_drop=0.0),
        "one character": read_by_gpt(1, 1, P_drop=0.0),
        "two layers": read_by_gpt(1, 4, N=2, P_drop=0.0),
        "two layers, dropout": read_by_gpt(2, 3, N=2, P_drop=0.25),
    },
    observe=Halves(None, y="x"),
    hints=(
        "Take decode, and leave out all that needs a source: memory, its mask, cross-attention, and on the way back "
        "cross_backward and dmemory. Two parts of each layer are left.",
        "forward: embed; in each layer x attends to itself under np.tri(t, dtype=bool), then feed_forward, each inside "
        "add_and_norm. The way back through a layer: dx = sum(ffn_backward(dx)); dx = sum(self_backward(dx)).",
    ),
    mistakes=(
        Mistake("later characters are seen: t may see only 0 to t", (PAST, "np.ones((1, 1), dtype=bool)")),
        Mistake(
            "t does not see itself: it sees 0 to t, itself included", (PAST, f"{PAST} & ~np.eye(ids.shape[1]) > 0")
        ),
        Mistake("the mask is transposed: t sees what is after it, and not what is before", (PAST, f"{PAST}.T")),
        Mistake(
            "the character of id 0 is hidden, as padding is in encode; here it is a character as the others",
            ("x, x, past,", "x, x, past & (ids != 0)[:, None, None, :],"),
        ),
        Mistake(
            "only one layer is used; x goes through all layers of model.decoder, one after the other",
            ("in model.decoder:", "in model.decoder[-1:]:"),
        ),
        Mistake(
            "a layer of model.decoder has no weights of cross-attention: only those of self-attention and feed_forward",
            ("for attn, ffn in", "for attn, cross, ffn in"),
        ),
        Mistake(
            "P_drop does not reach add_and_norm",
            ("add_and_norm(P_drop, multi", "add_and_norm(0.0, multi"),
            ("add_and_norm(P_drop, feed", "add_and_norm(0.0, feed"),
        ),
        Mistake(
            "a tuple is taken for dx: backward of add_and_norm returns a tuple, also around feed_forward",
            ("sum(ffn_backward(dx))", "ffn_backward(dx)"),
        ),
        Mistake(
            "half of it is left out: x came into self-attention as x and as memory, so dx is the sum of both gradients",
            ("sum(self_backward(dx))", "self_backward(dx)[0]"),
        ),
        Mistake(
            "the layers are walked upwards on the way back: begin with the last one",
            ("in reversed(backwards)", "in backwards"),
        ),
        Mistake("the gradient does not reach E: call embed_backward at the end", ("\n    embed_backward(dx)", "")),
    ),
    file="more",
)

PREDICTED = "ids[:, 1:].ravel()"
ROWS = "x.reshape(-1, x.shape[-1])"

GPT_LOSS = Function(
    name="gpt_loss",
    lesson="22",
    shapes={"ids": "bt"},
    note="all characters but the first are predicted, id 0, too; nothing is smoothed; backward returns nothing",
    cases={
        "three rows of five characters": read_by_gpt(3, 5),
        "two characters": read_by_gpt(1, 2),
        "two layers, dropout": read_by_gpt(2, 4, N=2, P_drop=0.25),
    },
    observe=Loss(None, y="loss"),
    hints=(
        "Take loss_of without the encoder. gpt reads the ids without the last of each row, and predicts them without "
        "the first. All vectors make predictions, so they need no is_word, only the shape of rows.",
        "linear('nd,vd->nv', x.reshape(-1, d), E), then cross_entropy with ids[:, 1:].ravel() and eps_ls=0.0. On the "
        "way back logits_backward gives rows (n, d); reshape them to the shape of x for gpt_backward.",
    ),
    mistakes=(
        Mistake("nothing is smoothed here: eps_ls is 0.0", ("eps_ls=0.0", "eps_ls=0.1")),
        Mistake(
            "each position predicts the character that it reads; it should predict the next one, ids[:, 1:]",
            (PREDICTED, "ids[:, :-1].ravel()"),
        ),
        Mistake(
            "gpt reads the characters that it should predict: it reads ids[:, :-1]",
            ("gpt(ids[:, :-1],", "gpt(ids[:, 1:],"),
        ),
        Mistake("ids are not cut: gpt reads them without the last, ids[:, :-1]", ("gpt(ids[:, :-1],", "gpt(ids,")),
        Mistake(
            "the character of id 0 is left out, as padding is in loss_of; here all characters count",
            (ROWS, "x[ids[:, 1:] != 0]"),
            (PREDICTED, "ids[:, 1:][ids[:, 1:] != 0]"),
            ("    gpt_backward(", "    dx = np.zeros_like(x)\n    dx[ids[:, 1:] != 0] = (\n        "),
            (".reshape(x.shape))", ")\n    gpt_backward(dx)"),
        ),
        Mistake(
            "cross_entropy wants a row for each prediction: logits (n, v) and characters (n)",
            (f'"nd,vd->nv", {ROWS}', '"btd,vd->btv", x'),
            (".ravel()", ""),
        ),
        Mistake("gpt_backward is given rows; give their gradient the shape of x again", (".reshape(x.shape))", ")")),
        Mistake("P_drop does not reach gpt", ("model, P_drop)", "model, 0.0)")),
        Mistake(
            "the share of the logits is missing: they are made with E, too, so their backward adds to E.grad",
            (
                f'linear("nd,vd->nv", {ROWS}, model.E)',
                f"{ROWS} @ model.E.data.T, lambda dlogits: dlogits @ model.E.data",
            ),
        ),
        Mistake("dloss is left out: hand it to loss_backward", ("loss_backward(dloss)", "loss_backward(1.0)")),
    ),
    file="more",
)

# Lesson 23 ------------------------------------------------------------------------------------------------------------


def normed(b: int, t: int, d: int, size: float = 1.0):
    """A case of `rms_norm`."""
    return lambda random, file: Call(size * (random.normal(size=(b, t, d)) + 0.5), weight(random, d))


RMS_NORM = Function(
    name="rms_norm",
    lesson="23",
    shapes={"x": "btd", "gamma": "d", "y": "btd"},
    note="add 1e-6 to the mean of the squares before the root",
    cases={
        "two sentences": normed(2, 3, 5),
        "one sentence of one word": normed(1, 1, 4),
        "vectors near 0": normed(2, 2, 6, 3e-3),
        "large vectors": normed(3, 4, 2, 100.0),
    },
    observe=Halves("dx"),
    hints=(
        "As in layer_norm, without the mean and without beta. rms depends on every element of x, so dx has a second "
        "part that comes through rms.",
        "n = x / rms, dn = dy gamma, dx = (dn - n mean(dn n)) / rms; gamma collects dy n over all sentences and "
        "positions.",
    ),
    mistakes=(
        Mistake(
            "the mean is subtracted from x, as in layer_norm; rms_norm leaves it",
            ("    rms = ", "    x = x - mean(x)\n    rms = "),
        ),
        Mistake(
            "dn n is summed up on the way back; it is a mean there, because rms is the root of a mean",
            ("mean(dn * n)", "(dn * n).sum(axis=-1, keepdims=True)"),
        ),
        Mistake("1e-6 is missing under the root: a vector of zeros must not be divided by 0", (" + 1e-6", "")),
        Mistake(
            "rms is taken as a constant; it depends on every element of x, which makes the part with n mean(dn n)",
            ("(dn - n * mean(dn * n))", "dn"),
        ),
        Mistake(
            "the mean of dn is subtracted, as in layer_norm; no mean was subtracted in forward",
            ("(dn - n", "(dn - mean(dn) - n"),
        ),
        Mistake(
            "n is missing: the mean of dn n is multiplied by n before it is subtracted",
            ("n * mean(dn * n)", "mean(dn * n)"),
        ),
        Mistake("dy must be multiplied by gamma on its way to n", ("dn = dy * gamma.data", "dn = dy")),
        Mistake("the division by rms is missing on the way back", ("n)) / rms", "n))")),
        Mistake("gamma has multiplied n, so n must meet dy, and not x", ("(dy * n).sum", "(dy * x).sum")),
    ),
    file="more",
)


def gated(b: int, t: int, d: int, f: int):
    """A case of `swiglu`."""
    return lambda random, file: Call(
        random.normal(size=(b, t, d)), weight(random, d, f), weight(random, d, f), weight(random, f, d)
    )


DGATE = "dhidden * value * (s + gate * s * (1 - s))"

SWIGLU = Function(
    name="swiglu",
    lesson="23",
    shapes={"x": "btd", "W_gate": "df", "W_value": "df", "W_outer": "fd", "y": "btd"},
    note="return (dx,), as feed_forward",
    cases={
        "two sentences": gated(2, 3, 4, 5),
        "one sentence of one word": gated(1, 1, 4, 3),
        "one hidden unit": gated(3, 2, 3, 1),
    },
    observe=Halves(("dx",)),
    hints=(
        "Three products: x W_gate, x W_value, and what both make times W_outer. On the way back each factor of "
        "silu(gate) value meets the other one, and dx comes from both products.",
        "silu(z) = z s with s = sigmoid(z), ds = s (1 - s), so silu'(z) = s + z s (1 - s).",
    ),
    mistakes=(
        Mistake(
            "the gate is sigmoid(gate); silu multiplies that by gate",
            ('linear("btf,fd->btd", gate * s * value', 'linear("btf,fd->btd", s * value'),
        ),
        Mistake(
            "W_gate and W_value are exchanged: silu is taken of x W_gate",
            ("x, W_gate)", "x, W_value)"),
            (
                'value, value_backward = linear("btd,df->btf", x, W_value)',
                'value, value_backward = linear("btd,df->btf", x, W_gate)',
            ),
        ),
        Mistake("the sign in sigmoid is wrong: sigmoid(gate) = 1 / (1 + exp(-gate))", ("(1 + np.tanh", "(1 - np.tanh")),
        Mistake(
            "the derivative of silu is s + gate s (1 - s), as of a product; here the second part is missing",
            (DGATE, "dhidden * value * s"),
        ),
        Mistake(
            "the derivative of silu is s + gate s (1 - s), as of a product; here it is that of sigmoid, s (1 - s)",
            (DGATE, "dhidden * value * s * (1 - s)"),
        ),
        Mistake(
            "value is missing on the way to gate: silu(gate) was multiplied by it",
            (DGATE, "dhidden * (s + gate * s * (1 - s))"),
        ),
        Mistake(
            "on the way to value dhidden meets gate; value was multiplied by silu(gate)",
            ("value_backward(dhidden * gate * s)", "value_backward(dhidden * gate)"),
        ),
        Mistake(
            "the way back through gate is missing; x was used for gate and for value, and dx is the sum of both",
            (
                "gate_backward(dgate) + value_backward(dhidden * gate * s)",
                "[gate_backward(dgate), value_backward(dhidden * gate * s)][1]",
            ),
        ),
    ),
    file="more",
)


def turned(b: int, t: int, h: int, k: int):
    """A case of `rope`."""
    return lambda random, file: Call(random.normal(size=(b, t, h, k)))


HALVES = "np.split(x, 2, axis=-1)"
Y = "np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)"
DX = "np.concatenate([da * cos + db * sin, db * cos - da * sin], axis=-1)"
PAIRED = "np.stack([{}, {}], axis=-1).reshape(x.shape)".format

ROPE = Function(
    name="rope",
    lesson="23",
    shapes={"x": "bthk", "y": "bthk"},
    note="i from 0 to k/2 - 1, t from 0; keep the number type of x",
    cases={
        "two sentences": turned(2, 5, 3, 6),
        "one sentence of one word": turned(1, 1, 2, 4),
        "one pair of elements": turned(2, 4, 1, 2),
        "as many heads as positions": turned(1, 3, 3, 8),
    },
    observe=Halves("dx"),
    hints=(
        "x_i and x_(i + k/2) are the two coordinates of a point. Rotate it by its angle; position 0 stays as it is. A "
        "rotation is undone by that of the opposite angle, and so the gradient rotates back.",
        "a = the first half, b = the second: a cos - b sin, a sin + b cos; backward: da cos + db sin, db cos - da sin; "
        "angle = t / 10000^(2i / k).",
    ),
    mistakes=(
        Mistake(
            "the pairs are neighbours, x_(2i) and x_(2i + 1), and should be x_i and x_(i + k/2)",
            (HALVES, "x[..., 0::2], x[..., 1::2]"),
            (Y, PAIRED("a * cos - b * sin", "a * sin + b * cos")),
            ("np.split(dy, 2, axis=-1)", "dy[..., 0::2], dy[..., 1::2]"),
            (DX, PAIRED("da * cos + db * sin", "db * cos - da * sin")),
        ),
        Mistake(
            "the positions count from 1; position 0 stays as it is",
            ("np.arange(x.shape[1])", "(np.arange(x.shape[1]) + 1)"),
        ),
        Mistake(
            "the exponent is i / k with i = 0, 1, 2, ...; it is 2i / k",
            ("np.arange(0, k, 2) / k", "np.arange(k // 2) / k"),
        ),
        Mistake(
            "the angle is multiplied by 10000^(2i / k); it must be divided, so that later pairs turn more slowly",
            ("/ 10000 **", "* 10000.0 **"),
        ),
        Mistake(
            "the rotation goes the other way: at position 1, (1, 0) becomes (cos, sin), and yours (cos, -sin)",
            ("a * cos - b * sin, a * sin + b * cos", "a * cos + b * sin, b * cos - a * sin"),
        ),
        Mistake(
            "the sign of sin is wrong in the first half: it is a cos - b sin",
            ("a * cos - b * sin, a * sin", "a * cos + b * sin, a * sin"),
        ),
        Mistake(
            "the second half is made of the new first half; both are made of the old ones",
            ("    dy = yield", "    a = a * cos - b * sin\n    dy = yield"),
            ("[a * cos - b * sin, a * sin", "[a, a * sin"),
        ),
        Mistake(
            "dy is rotated on; it must be rotated back, by the opposite angle",
            ("da * cos + db * sin, db * cos - da * sin", "da * cos - db * sin, da * sin + db * cos"),
        ),
        Mistake(
            "only the first half is rotated back; the second half of dx is db cos - da sin",
            ("db * cos - da * sin", "db * cos + da * sin"),
        ),
        Mistake(
            "only the second half is rotated back; the first half of dx is da cos + db sin",
            ("da * cos + db * sin", "da * cos - db * sin"),
        ),
        Mistake("dy comes back as it is; it must be rotated back, by the opposite angle", (DX, "dy")),
    ),
    file="more",
)


def grouped(b: int, t: int, s: int, d: int, h: int, h_kv: int, k: int, mask=None):
    """A case of `grouped_query_attention`; mask: what is seen (default: everything)."""

    def case(random, file):
        x, memory = random.normal(size=(b, t, d)), random.normal(size=(b, s, d))
        shapes = ((d, h, k), (d, h_kv, k), (d, h_kv, k), (h, k, d))
        seen = np.ones((b, 1, 1, s), dtype=bool) if mask is None else mask
        return Call(x, memory, seen, *(weight(random, *shape) for shape in shapes))

    return case


COPIES = "K.repeat(group, axis=2), V.repeat(group, axis=2)"
SUMS = "(d.reshape(*K.shape[:3], group, -1).sum(axis=3) for d in copies)"

GROUPED_QUERY_ATTENTION = Function(
    name="grouped_query_attention",
    lesson="23",
    shapes={
        "x": "btd",
        "memory": "bsd",
        "mask": "bhts",
        "W_Q": "dhk",
        "W_K": "dgk",
        "W_V": "dgk",
        "W_O": "hkd",
        "y": "btd",
    },
    note="h_kv heads of K and V (axis g), fewer than h: the first h / h_kv heads of Q use the first, the next ones the "
    "second; return dx, dmemory",
    cases={
        "six heads, three of K and V": grouped(2, 4, 5, 7, 6, 3, 8),
        "six heads, two of K and V": grouped(1, 2, 3, 4, 6, 2, 3),
        "one head of K and V": grouped(2, 2, 3, 5, 3, 1, 2),
        "as many heads of K and V": grouped(2, 2, 3, 4, 2, 2, 3),
        "padding": grouped(2, 2, 4, 3, 4, 2, 2, (np.arange(4) < [[2], [4]])[:, None, None, :]),
        "one word": grouped(1, 1, 1, 3, 2, 1, 2),
    },
    observe=Halves(("dx", "dmemory")),
    hints=(
        "As multi_head_attention, but each head of K and V is used by a group of h / h_kv heads of Q, as if it were "
        "there as often. What is used several times gets a gradient that is the sum of all its uses.",
        "K.repeat(group, axis=2) before attention; on the way back dK (b, s, h, k) becomes (b, s, h_kv, group, k), and "
        "is summed over the group. The same for V.",
    ),
    mistakes=(
        Mistake(
            "the heads of K and V come in turn, 1 2 1 2; the first group of heads of Q uses head 1, the next head 2",
            (COPIES, "np.tile(K, (1, 1, group, 1)), np.tile(V, (1, 1, group, 1))"),
            (SUMS, "(d.reshape(*K.shape[:2], group, K.shape[2], -1).sum(axis=2) for d in copies)"),
        ),
        Mistake(
            "each head of K and V is repeated as often as there are heads of K and V; it must be h / h_kv times",
            ("group = Q.shape[2] // K.shape[2]", "group = K.shape[2]"),
        ),
        Mistake(
            "there are fewer heads of K and V than of Q; repeat each of them h / h_kv times along their axis of heads",
            (COPIES, "K, V"),
        ),
        Mistake(
            "the gradients of a group are averaged; K and V were used by each head of it, so add them up",
            (".sum(axis=3)", ".mean(axis=3)"),
        ),
        Mistake(
            "only one head of each group gives its gradient to K and V, as += does with an index that comes again; add "
            "up those of the whole group",
            (SUMS, "(d[:, :, group - 1 :: group] for d in copies)"),
        ),
        Mistake(
            "the gradients of heads from different groups are added up; the heads of a group stand side by side",
            (SUMS, "(d.reshape(*K.shape[:2], group, K.shape[2], -1).sum(axis=2) for d in copies)"),
        ),
        Mistake(
            "memory was used twice, for K and for V; dmemory is the sum of both ways back",
            ("K_backward(dK) + V_backward(dV)", "[K_backward(dK), V_backward(dV)][0]"),
        ),
        Mistake("dK and dV still have h heads; add up those of each group, so that h_kv are left", (SUMS, "copies")),
        Mistake(
            "dK and dV (b, s, h_kv, h / h_kv, k) are summed over the last axis; sum over the h / h_kv copies, axis 3",
            (".sum(axis=3)", ".sum(axis=-1)"),
        ),
        Mistake(
            "dK and dV (b, s, g, h / g, k) are summed over the g heads, axis 2; sum over the h / g copies, axis 3",
            (".sum(axis=3)", ".sum(axis=2)"),
        ),
    ),
    file="more",
)

FUNCTIONS = (
    COUNT_PAIRS, MERGE, LEARN_MERGES, BPE_ENCODE, CLIPPED_COUNTS, BLEU_OF_COUNTS, BLEU, BOOTSTRAP, GPT, GPT_LOSS,
    RMS_NORM, SWIGLU, ROPE, GROUPED_QUERY_ATTENTION,
)  # fmt: skip
