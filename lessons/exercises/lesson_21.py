"""Exercises of lesson 21: BLEU from counts, the interval of a difference, and the mean of checkpoints."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from exercises.exercise import Build, Result, Values
from scratchformer.config import TINY
from scratchformer.nn.parameter import Array
from scratchformer.training import checkpoints as files
from support import bleu_by_hand

# 21_clipped_counts ----------------------------------------------------------------------------------------------------

Tokens = list[str]


def counts(hypothesis: Tokens, reference: Tokens, n: int) -> Array:
    return np.array(bleu_by_hand.clipped_counts(hypothesis, reference, n))


def pieces(tokens: Tokens, n: int) -> list[tuple[str, ...]]:
    return [tuple(tokens[i:i + n]) for i in range(max(0, len(tokens) - n + 1))]


def by_crossing_out(hypothesis: Tokens, reference: Tokens, n: int) -> Array:
    """The definition: each n-gram of the reference can be matched once."""
    left, matches = pieces(reference, n), 0
    for piece in pieces(hypothesis, n):
        if piece in left:
            left.remove(piece)
            matches += 1
    return np.array([matches, len(pieces(hypothesis, n))])


def without_clipping(hypothesis: Tokens, reference: Tokens, n: int) -> Array:
    found = pieces(hypothesis, n)
    return np.array([sum(piece in pieces(reference, n) for piece in found), len(found)])


def of_distinct(hypothesis: Tokens, reference: Tokens, n: int) -> Array:
    found = set(pieces(hypothesis, n))
    return np.array([len(found & set(pieces(reference, n))), len(found)])


def at_the_same_place(hypothesis: Tokens, reference: Tokens, n: int) -> Array:
    found = pieces(hypothesis, n)
    return np.array([sum(a == b for a, b in zip(found, pieces(reference, n))), len(found)])


def with_keys(key: Callable) -> Callable:
    """The counts of n-grams that are the same if their keys are."""
    def of_keys(hypothesis: Tokens, reference: Tokens, n: int) -> Array:
        found, wanted = (Counter(map(key, pieces(tokens, n))) for tokens in (hypothesis, reference))
        return np.array([(found & wanted).total(), found.total()])
    return of_keys


def without_overlap(hypothesis: Tokens, reference: Tokens, n: int) -> Array:
    found, wanted = (Counter(pieces(tokens, n)[::n]) for tokens in (hypothesis, reference))
    return np.array([(found & wanted).total(), found.total()])


def without_the_last(hypothesis: Tokens, reference: Tokens, n: int) -> Array:
    found, wanted = (Counter(pieces(tokens, n)[:-1]) for tokens in (hypothesis, reference))
    return np.array([(found & wanted).total(), found.total()])


CLIPPED_COUNTS = Build(
    id="21_clipped_counts",
    title="Count the n-grams that a translation shares with its reference",
    function="clipped_counts",
    arguments=("hypothesis", "reference", "n"),
    cases={
        "pairs of words": lambda random: {
            "n": 2, "hypothesis": "in the house in the house the cat in the garden sleeps".split(),
            "reference": "the cat sleeps in the house and the dog in the garden sleeps".split()},
        "repeated words": lambda random: {"n": 1, "hypothesis": "the the the the the the the".split(),
                                          "reference": "the cat is on the mat".split()},
        "pairs that read alike": lambda random: {"n": 2, "hypothesis": "a bc d a bc .".split(),
                                                 "reference": "ab c d a bc".split()},
        "another order": lambda random: {"n": 3, "hypothesis": "the red car of my old dog the red car".split(),
                                         "reference": "of my old dog the car red the red car".split()},
        "fewer words than n": lambda random: {"n": 4, "hypothesis": ["the", "cat"],
                                              "reference": "the cat sleeps .".split()},
    },
    expected=by_crossing_out,
    result=Result(name="counts", suspects={
        "every n-gram is counted once, however often it is written": of_distinct,
        "matches are looked for at the same place only; an n-gram may stand anywhere in the reference":
            at_the_same_place,
        "the words of an n-gram are counted in any order; its order belongs to it":
            with_keys(lambda piece: tuple(sorted(piece))),
        "the words of an n-gram are joined without a space, so that \"a bc\" and \"ab c\" are the same":
            with_keys("".join),
        "nothing is clipped: an n-gram may be matched no more often than it stands in the reference": without_clipping,
        "the n-grams do not overlap: one begins at every word that has n - 1 more behind it": without_overlap,
        "the last n-gram is missing: of T words, there are T - n + 1": without_the_last,
        "the n-grams of the reference are counted as written: that is recall, and the second number is of the "
        "hypothesis": lambda hypothesis, reference, n: by_crossing_out(reference, hypothesis, n),
    }),
    solution=counts,
    library=(bleu_by_hand.clipped_counts, bleu_by_hand.ngrams),
    hints=(
        "Two lists of strings go in, and an array of two integers comes out: [matches, n-grams written].",
        "Count the n-grams of each side. Of an n-gram that both have, the smaller count is the number of matches.",
        "collections.Counter(zip(*(tokens[i:] for i in range(n)))) counts tuples; & of two Counters takes the smaller "
        "counts, and .total() adds them up.",
    ),
)

# 21_bleu --------------------------------------------------------------------------------------------------------------


def bleu_of_table(table: Array) -> Array:
    return bleu_by_hand.bleu(table.sum(axis=0))


def by_sacrebleu(table: Array) -> Array:
    from sacrebleu.metrics import BLEU  # here: the import takes 0.1 s

    total = [int(number) for number in table.sum(axis=0)]
    return np.array(BLEU.compute_bleu(total[:4], total[4:8], total[4], total[8], smooth_method="none").score)


def mean_of_sentences(table: Array) -> Array:
    return bleu_by_hand.bleu(table).mean()


def precisions_and_penalty(table: Array) -> tuple[Array, float, float]:
    """-> precisions (4,), tokens written, tokens wanted"""
    total = table.sum(axis=0)
    return total[:4] / total[4:8], float(total[4]), float(total[8])


def from_parts(mean: Callable, penalty: Callable) -> Callable:
    """table -> BLEU with another mean of the precisions, or another penalty (written, wanted)"""
    def score(table: Array) -> Array:
        precisions, written, wanted = precisions_and_penalty(table)
        return np.array(100 * mean(precisions) * penalty(written, wanted))
    return score


def geometric(precisions: Array) -> float:
    return float(precisions.prod() ** (1 / 4))


def penalty_of_bleu(written: float, wanted: float) -> float:
    return float(bleu_by_hand.brevity_penalty(np.array(written), np.array(wanted)))


def mean_penalty(table: Array) -> Array:
    """The brevity penalty sentence by sentence, then its mean."""
    penalties = bleu_by_hand.brevity_penalty(table[:, 4], table[:, 8])
    return 100 * geometric(precisions_and_penalty(table)[0]) * penalties.mean()


def mean_precisions(table: Array) -> Array:
    """The precisions sentence by sentence, then their means."""
    means = (table[:, :4] / np.maximum(table[:, 4:8], 1)).mean(axis=0)
    return 100 * geometric(means) * penalty_of_bleu(*precisions_and_penalty(table)[1:])


def table_of(random: np.random.Generator, n_sentences: int, share: float, keep: float) -> Array:
    """Counts of sentences of 6 to 14 words: `keep` of them are written, `share` of these are right."""
    words = "a b c d e f g h".split()
    references = [list(random.choice(words, random.integers(6, 15))) for _ in range(n_sentences)]
    hypotheses = []
    for reference in references:
        length = max(5, round(keep * len(reference)))
        written = [word if random.random() < share else "x" for word in reference[:length]]
        hypotheses.append(written + ["y"] * (length - len(written)))
    return bleu_by_hand.count_table(hypotheses, references)


CORPUS_BLEU = Build(
    id="21_bleu",
    title="Compute the BLEU of a corpus from the counts of its sentences",
    function="bleu",
    arguments=("table",),
    cases={
        "translations that are too short": lambda random: {"table": table_of(random, 23, 0.8, 0.8)},
        "translations that are too long": lambda random: {"table": table_of(random, 17, 0.8, 1.3)},
        "one short sentence": lambda random: {"table": np.array([[7, 5, 3, 1, 8, 7, 6, 5, 9]])},
        "no run of four words is right": lambda random: {"table": np.array([[7, 5, 3, 0, 8, 7, 6, 5, 8],
                                                                            [5, 2, 1, 0, 6, 5, 4, 3, 9]])},
    },
    expected=by_sacrebleu,
    result=Result(name="bleu", suspects={
        "the mean of the sentences' BLEU: add up the counts of the corpus first": mean_of_sentences,
        "the brevity penalty is taken of each sentence, then its mean: it compares the lengths of the whole corpus":
            mean_penalty,
        "the precisions are taken of each sentence, then their means: divide sums by sums": mean_precisions,
        "the arithmetic mean of the four precisions, and it should be the geometric one: one of 0 makes all 0":
            from_parts(np.mean, penalty_of_bleu),
        "the brevity penalty is missing": from_parts(geometric, lambda written, wanted: 1.0),
        "the brevity penalty is upside down, exp(1 - written / wanted) for long texts: it is for short ones":
            from_parts(geometric, lambda written, wanted: penalty_of_bleu(wanted, written)),
        "long texts get a bonus: the factor is never more than 1":
            from_parts(geometric, lambda written, wanted: np.exp(1 - wanted / written)),
        "the penalty is the ratio of the lengths; it should be exp(1 - wanted / written)":
            from_parts(geometric, lambda written, wanted: min(1.0, written / wanted)),
        "the product of the precisions without the fourth root":
            from_parts(np.prod, penalty_of_bleu),
        "from 0 to 1, and it should be from 0 to 100": lambda table: by_sacrebleu(table) / 100,
    }),
    solution=bleu_of_table,
    library=(bleu_by_hand.bleu, bleu_by_hand.brevity_penalty),
    hints=(
        "table (S, 9) has a row for each sentence; the result is one number. table.sum(axis=0) is (9,).",
        "Add up the rows first. Then four precisions, their geometric mean, and a factor that is below 1 if fewer "
        "words are written than the references have.",
        "100 * min(1, exp(1 - wanted / written)) * (p_1 p_2 p_3 p_4)^(1/4); written is the number of 1-grams written.",
    ),
)

# 21_bootstrap ---------------------------------------------------------------------------------------------------------


def two_systems(random: np.random.Generator, n_sentences: int, n_samples: int) -> Values:
    """Two systems that find some sentences easy and others hard together; b writes shorter texts."""
    table_a = table_of(random, n_sentences, 0.8, 1.0)
    lost = random.integers(0, 2, (n_sentences, 1))
    table_b = table_a - lost * np.array([1, 2, 2, 1, 1, 1, 1, 1, 0])
    return {"table_a": table_a, "table_b": np.maximum(table_b, 1),
            "indices": bleu_by_hand.resamples(n_sentences, n_samples, random)}


def limits(table_a: Array, table_b: Array, indices: Array) -> Array:
    return bleu_by_hand.difference_interval(table_a, table_b, indices)


def sample_by_sample(table_a: Array, table_b: Array, indices: Array) -> Array:
    return np.percentile([by_sacrebleu(table_b[index]) - by_sacrebleu(table_a[index]) for index in indices],
                         [2.5, 97.5])


def differences(table_a: Array, table_b: Array, indices: Array) -> Array:
    """(R,)"""
    return bleu_by_hand.bleu_of_samples(table_b, indices) - bleu_by_hand.bleu_of_samples(table_a, indices)


def around_the_mean(table_a: Array, table_b: Array, indices: Array, n: int) -> Array:
    found = differences(table_a, table_b, indices)
    return found.mean() + np.array([-1.96, 1.96]) * found.std() / np.sqrt(n)


def two_intervals(table_a: Array, table_b: Array, indices: Array) -> Array:
    """What is left if the intervals of both are subtracted."""
    a, b = (bleu_by_hand.interval(bleu_by_hand.bleu_of_samples(table, indices)) for table in (table_a, table_b))
    return np.array([b[0] - a[1], b[1] - a[0]])


BOOTSTRAP = Build(
    id="21_bootstrap",
    title="Write the 95 % interval of a difference in BLEU",
    function="interval",
    arguments=("table_a", "table_b", "indices"),
    cases={
        "two systems": lambda random: two_systems(random, 29, 60),
        "few sentences": lambda random: two_systems(random, 5, 40),
    },
    expected=sample_by_sample,
    result=Result(name="interval", suspects={
        "a less b: a positive difference should mean that b is better":
            lambda truth: -truth[::-1],
        "the upper end comes first": lambda truth: truth[::-1],
        "the percentiles 5 and 95 enclose 90 %: 2.5 % lie on each side of the middle 95 %":
            lambda table_a, table_b, indices: bleu_by_hand.difference_interval(table_a, table_b, indices, 0.9),
        "a is scored on the whole set and b on the samples: both must be scored on the same sentences":
            lambda table_a, table_b, indices: bleu_by_hand.interval(
                bleu_by_hand.bleu_of_samples(table_b, indices) - bleu_by_hand.bleu(table_a.sum(axis=0))),
        "the two systems are scored on different samples: sample r of a goes with sample r of b":
            lambda table_a, table_b, indices: bleu_by_hand.interval(
                bleu_by_hand.bleu_of_samples(table_b, indices)
                - bleu_by_hand.bleu_of_samples(table_a, indices[::-1])),
        "the interval of each system, then their difference: take the difference sample by sample":
            two_intervals,
        "the mean of the sentences' BLEU in each sample: add up the counts of a sample, then compute BLEU once":
            lambda table_a, table_b, indices: bleu_by_hand.interval(
                (bleu_by_hand.bleu(table_b) - bleu_by_hand.bleu(table_a))[indices].mean(axis=1)),
        "the standard error of the mean over the samples: it shrinks with every sample you draw, and says nothing "
        "of the sentences":
            lambda table_a, table_b, indices: around_the_mean(table_a, table_b, indices, len(indices)),
        "1.96 standard deviations around the mean: asked for are the percentiles, which need no bell shape":
            lambda table_a, table_b, indices: around_the_mean(table_a, table_b, indices, 1),
    }),
    solution=limits,
    library=(bleu_by_hand.difference_interval, bleu_by_hand.bleu_of_samples, bleu_by_hand.interval),
    hints=(
        "table_a and table_b are (S, 9), indices (R, S); table_a[indices] is (R, S, 9), and bleu takes (R, 9).",
        "Each row of indices is a test set. Score both systems on it, subtract, and look where the middle 95 % of the "
        "R differences lie.",
        "np.percentile(bleu(table_b[indices].sum(axis=1)) - bleu(table_a[indices].sum(axis=1)), [2.5, 97.5]).",
    ),
)

# 21_average -----------------------------------------------------------------------------------------------------------


def mean_of_last_files(checkpoints: list[Array], last: int) -> Array:
    newest = checkpoints[-last:]
    with tempfile.TemporaryDirectory() as directory:
        paths = [Path(directory) / f"{i}.safetensors" for i in range(len(newest))]
        for path, weights in zip(paths, newest):
            files.save(path, files.Checkpoint({"weights": weights}, {}, files.Progress(), TINY))
        return files.average(paths).weights["weights"]


def by_halves(checkpoints: list[Array]) -> Array:
    mean = checkpoints[0]
    for weights in checkpoints[1:]:
        mean = (mean + weights) / 2
    return mean


AVERAGE = Build(
    id="21_average",
    title="Average the last checkpoints",
    function="average",
    arguments=("checkpoints", "last"),
    cases={
        "the last five of eight": lambda random: {"checkpoints": list(random.normal(size=(8, 3, 7))), "last": 5},
        "fewer than asked for": lambda random: {"checkpoints": list(random.normal(size=(4, 6))), "last": 5},
        "only the newest": lambda random: {"checkpoints": list(random.normal(size=(3, 2, 5))), "last": 1},
    },
    expected=lambda checkpoints, last: np.stack(checkpoints[-last:]).mean(axis=0),
    result=Result(name="weights", suspects={
        "the mean of all checkpoints: only the last ones are asked for":
            lambda checkpoints: np.mean(checkpoints, axis=0),
        "the oldest checkpoints, not the last ones": lambda checkpoints, last: np.mean(checkpoints[:last], axis=0),
        "the last checkpoint is counted twice: it starts the sum and is added once more":
            lambda checkpoints, last: (sum(checkpoints[-last:]) + checkpoints[-1]) / len(checkpoints[-last:]),
        "halved at every step, (mean + weights) / 2: the last checkpoint has half of the weight, and the first "
        "next to nothing": lambda checkpoints, last: by_halves(checkpoints[-last:]),
        "divided by `last` where there are fewer: divide by how many were added":
            lambda checkpoints, last: sum(checkpoints[-last:]) / last,
        "the sum is not divided": lambda checkpoints, last: sum(checkpoints[-last:]),
        "nothing is averaged: this is the newest checkpoint": lambda checkpoints: checkpoints[-1],
    }),
    solution=mean_of_last_files,
    library=(files.average,),
    hints=(
        "checkpoints is a list of arrays of one shape, oldest first; the result has that shape.",
        "Add up the last ones, and divide by how many you added. There may be fewer than `last`.",
        "checkpoints[-last:] is the whole list if it is shorter; np.mean(..., axis=0).",
    ),
)

EXERCISES = (CLIPPED_COUNTS, CORPUS_BLEU, BOOTSTRAP, AVERAGE)
