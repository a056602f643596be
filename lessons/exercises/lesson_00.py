"""The exercises of lesson 00: what a translator does, before any formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from exercises.exercise import Break, Build, Result
from exercises.stand_in import stand_in_for_models
from scratchformer.decoding.search import greedy_search
from scratchformer.experiments.heads import alignment_score
from scratchformer.text.bundled import Example, words
from scratchformer.text.tokenizer import BOS, EOS, PAD

# 00_next_word ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Predict(Break):
    """Say beforehand what will come out. The complaint knows."""

    kind: ClassVar[str] = "predict"


SENTENCE = Example(
    "On Sunday my brother will follow his cars.", "Am Sonntag wird mein Bruder seinen Autos folgen.", "verb_second",
    "", [[0, 0], [1, 1], [2, 3], [3, 4], [4, 2], [5, 7], [6, 5], [7, 6], [8, 8]], None)
"""From the test set of the bundled corpus, which knows which word renders which. No word occurs twice."""

ENGLISH, GERMAN = words(SENTENCE.source), words(SENTENCE.target)


def where_to_look():
    return {GERMAN[target]: ENGLISH[source] for source, target in SENTENCE.alignment}


def next_word_complaint(answer: Callable) -> str | None:
    """The first thing that is wrong with the predicted dict."""
    predicted, right = answer(), where_to_look()
    if not isinstance(predicted, dict):
        return f"a {type(predicted).__name__}, and should be a dict: German word -> English word"
    no_words = [*(german for german in predicted if not isinstance(german, str)),
                *(english for english in predicted.values() if not isinstance(english, str | None))]
    if no_words:
        return (f"{'numbers' if isinstance(no_words[0], int) else repr(no_words[0])}, and should be words: "
                "the keys are German words, the values English ones")
    if None in predicted.values():
        return f"not filled in: {', '.join(german for german, english in predicted.items() if english is None)}"
    if predicted == {english: german for german, english in right.items()}:
        return "the wrong way round: the German word is being written and asks, the English word is looked at"
    if set(predicted) != set(GERMAN):
        return f"these are not the German words: {', '.join(sorted(set(predicted) ^ set(GERMAN)))} too many or missing"
    if not set(predicted.values()) <= set(ENGLISH):
        return f"not in the English sentence: {', '.join(sorted(set(predicted.values()) - set(ENGLISH)))}"
    if predicted == dict(zip(GERMAN, ENGLISH)):
        return "copied from left to right: the second word for the second, and so on; German puts its verbs elsewhere"
    wrong = [german for german in GERMAN if predicted[german] != right[german]]
    if set(wrong) == {"wird", "folgen"}:
        return "the two parts of the verb are swapped: will is wird, the part that changes with the person"
    if set(wrong) == {"Bruder", "Autos"}:
        return "subject and object are swapped: who follows whom is the same in both sentences"
    return f"{', '.join(wrong)}: not the word that it renders" if wrong else None


NEXT_WORD = Predict(
    id="00_next_word",
    title="Which English word each German word looks at",
    function="where_to_look",
    arguments=(),
    complaint=next_word_complaint,
    solution=where_to_look,
    library=(alignment_score,),
    hints=(
        "A dict with nine entries, the full stop among them. The keys are the German words; each value is one word of "
        "the English sentence.",
        "A word looks where it finds what it has to say: at the word that it renders, wherever that stands. German "
        "puts the finite verb second and the rest of the verb last.",
        "wird renders will, folgen renders follow; my brother is the subject, mein Bruder; his cars are the object, "
        "seinen Autos. Am and On belong together, and so do the rest."))

# 00_greedy ------------------------------------------------------------------------------------------------------------

VOCABULARY = 9
ENDS_BY_ITSELF = 40
"""However a function is written that asks for next words: after so many, the end is the best of them."""


class NextWordScores:
    """next_word_scores(written) -> the scores of all words to come next, (V,): any numbers, but always the same.

    They depend on all that is written. Padding and the start are never the best; the end is, at `length`.
    """

    def __init__(self, length: int, seed: int) -> None:
        self.length, self.seed = length, seed

    def __call__(self, written: list[int]) -> np.ndarray:
        scores = np.random.default_rng([self.seed, len(written), *written]).normal(size=VOCABULARY)
        scores[[PAD, BOS]] = -9.0
        scores[EOS] = 9.0 if len(written) - 1 in (self.length, ENDS_BY_ITSELF) else -8.0
        return scores


def writer_case(length: int, longest: int):
    return lambda random: {"next_word_scores": NextWordScores(length, int(random.integers(1000))), "begin": BOS,
                           "end": EOS, "longest": longest}


class Writer(NamedTuple):
    """A model, as far as `greedy_search` knows models, whose logits are the scores of a function."""

    next_word_scores: Callable[[list[int]], np.ndarray]
    written: tuple[int, ...] = ()

    @property
    def config(self) -> Any:
        return type("Config", (), {"positions": "sinusoidal"})

    @property
    def position(self) -> int:
        return len(self.written)

    def start(self, source_ids: np.ndarray, beam: int) -> Writer:
        return self

    def step(self, ids: np.ndarray, state: Writer) -> tuple[np.ndarray, Writer]:
        state = state._replace(written=(*state.written, int(ids[0, 0])))
        return self.next_word_scores(list(state.written))[None, None], state

    def select(self, sentences: np.ndarray, hypotheses: np.ndarray) -> Writer:
        return self


def greedy(next_word_scores, begin, end, longest):
    no_source = np.zeros((1, 0), int)
    with stand_in_for_models():
        return greedy_search(Writer(next_word_scores), no_source, extra_length=longest)[0].ids  # type: ignore[arg-type]


def written_by(next_word_scores: Callable, longest: int, best: Callable = np.argmax, start: tuple = (BOS,),
               seen: slice = slice(None), stops: bool = True) -> list[int]:
    """What comes out if search goes wrong in one of these ways; right by default."""
    written: list[int] = []
    while len(written) < longest:
        word = int(best(next_word_scores([*start, *written][seen])))
        if stops and word == EOS:
            break
        written.append(word)
    return written


GREEDY = Build(
    id="00_greedy",
    title="Greedy search",
    function="greedy",
    arguments=("next_word_scores", "begin", "end", "longest"),
    cases={"six words": writer_case(6, 20), "cut off after five words": writer_case(12, 5),
           "the end comes at once": writer_case(0, 7)},
    expected=lambda next_word_scores, longest: written_by(next_word_scores, longest),
    result=Result("words", suspects={
        "the start symbol is among them: it is given to the function first, but it is no word of the sentence":
            lambda truth: [BOS, *truth],
        "the end symbol is among them: it ends the sentence and is no word of it":
            lambda truth, longest: [*truth, EOS] if len(truth) < longest else truth,
        "it does not stop at the end symbol": lambda next_word_scores, longest:
            written_by(next_word_scores, longest, stops=False),
        "it goes on after `longest` words: a model that never writes the end would never stop":
            lambda next_word_scores: written_by(next_word_scores, 10 * ENDS_BY_ITSELF),
        "it stops one word too early: `longest` words may be written": lambda truth, longest:
            truth[:longest - 1],
        "the worst word each time instead of the best: argmin": lambda next_word_scores, longest:
            written_by(next_word_scores, longest, best=np.argmin),
        "the function is given the last word alone; what comes next depends on all that is written":
            lambda next_word_scores, longest: written_by(next_word_scores, longest, seen=slice(-1, None)),
        "the function is not given the start symbol, which stands before the first word":
            lambda next_word_scores, longest: written_by(next_word_scores, longest, start=())}),
    solution=greedy,
    library=(greedy_search,),
    hints=(
        "next_word_scores takes a list of ids, `begin` first, and returns an array of one score for each id of the "
        "vocabulary. You return a list of ids with neither begin nor end in it.",
        "Ask for the scores of what is written, take the id with the largest, stop if it is the end, else write it "
        "down and ask again. After `longest` ids, stop in any case.",
        "word = int(next_word_scores([begin, *written]).argmax()) in a loop of at most `longest` rounds."))

EXERCISES = (NEXT_WORD, GREEDY)
