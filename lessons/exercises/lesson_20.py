"""The exercises of lesson 20: one step of a beam, the length penalty, and a trap for greedy search."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from exercises.exercise import Break, Build, Result, Values
from exercises.stand_in import stand_in_for_models
from scratchformer.decoding.search import beam_search, best_continuations, greedy_search, length_penalty, search
from scratchformer.text.tokenizer import BOS, EOS, PAD

# 20_beam_step ---------------------------------------------------------------------------------------------------------


def beam_step(alive, log_p, n):
    totals, parents, tokens = best_continuations(log_p[None].copy(), alive[None], n)
    return totals[0], parents[0], tokens[0]


def of_flat(values: np.ndarray, flat: np.ndarray, V: int) -> np.ndarray:
    """Places in a flat (W, V) table, and what is said to stand there -> (totals, parents, tokens) as (3, n)"""
    return np.stack([values.ravel()[flat], flat // V, flat % V])


def order(values: np.ndarray) -> np.ndarray:
    """The places of a flat table, the largest number first."""
    return np.argsort(-values, axis=None, kind="stable")


def chosen_by(ranking: np.ndarray, n: int, values: np.ndarray | None = None) -> np.ndarray:
    """The n first of `ranking` (W, V); beside them stands what `values` says."""
    return of_flat(ranking if values is None else values, order(ranking)[:n], ranking.shape[1])


def by_definition(alive: np.ndarray, log_p: np.ndarray, n: int) -> np.ndarray:
    return chosen_by(alive[:, None] + log_p, n)


def best_of_each(alive: np.ndarray, log_p: np.ndarray, n: int) -> np.ndarray:
    """As many of every hypothesis, then in order."""
    totals, per_row = alive[:, None] + log_p, n // len(alive)
    kept = np.argsort(-totals, axis=1)[:, :per_row] + np.arange(len(alive))[:, None] * log_p.shape[1]
    flat = kept.ravel()
    return of_flat(totals, flat[np.argsort(-totals.ravel()[flat])], log_p.shape[1])


def divided_by_W(alive: np.ndarray, log_p: np.ndarray, n: int) -> np.ndarray:
    totals = alive[:, None] + log_p
    flat = order(totals)[:n]
    return np.stack([totals.ravel()[flat], *divmod(flat, len(alive))])


def in_another_order(yours: np.ndarray, truth: np.ndarray) -> bool:
    if yours.shape != truth.shape or np.allclose(yours, truth):
        return False
    return np.allclose(yours[:, np.argsort(-yours[0])], truth)


def step_case(W: int, V: int, n: int, spread: float) -> Callable[[np.random.Generator], Values]:
    """Padding and <s> are never written: minus infinity."""
    def case(random: np.random.Generator) -> Values:
        logits = 2 * random.normal(size=(W, V))
        logits[:, [PAD, BOS]] = -np.inf
        log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        return {"alive": -np.sort(spread * random.random(W) + 0.5), "log_p": log_p, "n": n}

    return case


BEAM_STEP = Build(
    id="20_beam_step",
    title="One step of a beam: the likeliest continuations of all hypotheses",
    function="beam_step",
    arguments=("alive", "log_p", "n"),
    cases={"three hypotheses, close together": step_case(3, 11, 6, 1), "one of them far behind": step_case(4, 9, 8, 30),
           "the first step, one hypothesis": step_case(1, 7, 4, 1)},
    expected=by_definition,
    result=Result("(totals, parents, tokens)", symptoms={
        "the right ones, but not the best first": in_another_order,
    }, suspects={
        "the best of each hypothesis are taken; all W V continuations compete with one another, so that a bad "
        "hypothesis can die out": best_of_each,
        "what the hypotheses have lost so far is forgotten: rank alive + log_p, the log probability of the whole "
        "beginning": lambda log_p, n: chosen_by(log_p, n),
        "ranked by the totals, but returned without `alive`: the first row is the log probability of the whole "
        "beginning": lambda alive, log_p, n: chosen_by(alive[:, None] + log_p, n, log_p),
        "parents and tokens are exchanged": lambda truth: truth[[0, 2, 1]],
        "the place in the table is divided by W; a row has V numbers: parent = place // V, token = place % V":
            divided_by_W,
        "probabilities are returned; the next step needs their logarithms":
            lambda truth: np.stack([np.exp(truth[0]), *truth[1:]])}),
    solution=beam_step,
    library=(best_continuations,),
    hints=(
        "alive (W,), log_p (W, V). alive[:, None] + log_p is (W, V). Three arrays of n numbers are returned.",
        "The log probability of a longer beginning is that of the shorter one plus that of the piece. Compare all W V "
        "of them at once: lay the table out flat, sort, take the n first, and find their row and column again.",
        "places = np.argsort(-totals, axis=None)[:n]; parents = places // V, tokens = places % V, and "
        "totals.ravel()[places]."))

# 20_length_penalty ----------------------------------------------------------------------------------------------------


def scores(log_probabilities, sentences, alpha):
    return log_probabilities / length_penalty(tokens_of(sentences), alpha)


def tokens_of(sentences: list[list[int]]) -> np.ndarray:
    """How many tokens each has, with </s>."""
    return np.array([len(sentence) + 1 for sentence in sentences])


def penalised(log_probabilities: np.ndarray, n: np.ndarray, alpha: float, plus: float = 5) -> np.ndarray:
    return log_probabilities / ((plus + n) / (plus + 1)) ** alpha


def finished_case(lengths: list[int], alpha: float) -> Callable[[np.random.Generator], Values]:
    return lambda random: {"log_probabilities": -random.uniform(1, 9, len(lengths)), "alpha": alpha,
                           "sentences": [random.integers(3, 20, n).tolist() for n in lengths]}


LENGTH_PENALTY = Build(
    id="20_length_penalty",
    title="Score finished sentences of different lengths",
    function="scores",
    arguments=("log_probabilities", "sentences", "alpha"),
    cases={"alpha of the paper": finished_case([4, 9, 17], 0.6), "alpha = 1, and an empty sentence":
           finished_case([0, 6, 3, 30], 1.0), "no penalty": finished_case([2, 8], 0.0)},
    expected=lambda log_probabilities, sentences, alpha: penalised(log_probabilities, tokens_of(sentences), alpha),
    result=Result("scores", suspects={
        "</s> is not counted: the sentences come without it, but its probability is in the sum":
            lambda log_probabilities, sentences, alpha:
                penalised(log_probabilities, tokens_of(sentences) - 1, alpha),
        "<s> is counted: it is read, and never written":
            lambda log_probabilities, sentences, alpha:
                penalised(log_probabilities, tokens_of(sentences) + 1, alpha),
        "multiplied by the penalty: a log probability is negative, so that makes long sentences worse still":
            lambda log_probabilities, sentences, alpha:
                log_probabilities * (log_probabilities / penalised(log_probabilities, tokens_of(sentences), alpha)),
        "divided by n^alpha, as other systems do; here ((5 + n) / 6)^alpha":
            lambda log_probabilities, sentences, alpha: penalised(log_probabilities, tokens_of(sentences), alpha, 0),
        "the 6 stands outside the power: (5 + n)^alpha / 6; the penalty of one token must be 1":
            lambda log_probabilities, sentences, alpha: 6 * log_probabilities / (5 + tokens_of(sentences)) ** alpha,
        "the penalty is subtracted: it divides":
            lambda log_probabilities, sentences, alpha:
                log_probabilities - log_probabilities / penalised(log_probabilities, tokens_of(sentences), alpha),
        "`alpha` is ignored: right for alpha = 1 only":
            lambda log_probabilities, sentences: penalised(log_probabilities, tokens_of(sentences), 1)}),
    solution=scores,
    library=(length_penalty,),
    hints=(
        "log_probabilities (K,), sentences a list of K lists of ids, alpha a number. The result is (K,).",
        "Every token adds a negative number, the end too. Count what was written, </s> with it, and divide by a number "
        "that grows with the count.",
        "n = len(sentence) + 1; log probability / ((5 + n) / 6)^alpha."))

# 20_greedy_trap -------------------------------------------------------------------------------------------------------

LONGEST, WORDS = 4, (1, 2)
FIRST_WORD = max(PAD, EOS, BOS) + 1
CLEARLY = 2.0


class Table(NamedTuple):
    """A model, as far as the searches know models: the probabilities of a table of the end and two words.

    log_p  a tuple of words -> log probabilities of the end, word 1, word 2; of at most LONGEST - 1 words
    """

    log_p: dict[tuple[int, ...], np.ndarray]
    written: tuple[tuple[int, ...], ...] = ((),)
    position: int = 0

    @property
    def config(self) -> Any:
        return type("Config", (), {"positions": "sinusoidal"})

    def start(self, source_ids: np.ndarray, beam: int) -> Table:
        return self

    def step(self, ids: np.ndarray, state: Table) -> tuple[np.ndarray, Table]:
        """The last id of each hypothesis (1, W) -> logits (1, W, V)"""
        written = tuple((*words, int(id_) - FIRST_WORD + 1) if id_ != BOS else words
                        for words, id_ in zip(state.written, ids[0]))
        logits = np.full((1, len(written), FIRST_WORD + len(WORDS)), -np.inf)
        logits[0][:, [EOS, *range(FIRST_WORD, logits.shape[-1])]] = [self.log_p[words] for words in written]
        return logits, state._replace(written=written, position=state.position + 1)

    def select(self, sentences: np.ndarray, hypotheses: np.ndarray) -> Table:
        return self._replace(written=tuple(self.written[index] for index in hypotheses))

    def log_probability(self, words: tuple[int, ...], ends: bool = True) -> float:
        whole = (*words, 0) if ends else words
        return float(sum(self.log_p[whole[:t]][word] for t, word in enumerate(whole)))


def found_in(table: Table, beam: int) -> tuple[int, ...]:
    """The words that the library's search finds; a beam of 1 is greedy search."""
    no_source = np.zeros((1, 0), int)
    with stand_in_for_models():
        [[best]] = search(table, no_source, beam, alpha=0.0, extra_length=LONGEST)  # type: ignore[arg-type]
    return tuple(id_ - FIRST_WORD + 1 for id_ in best.ids)


def all_words() -> list[tuple[int, ...]]:
    return [words for t in range(LONGEST) for words in product(WORDS, repeat=t)]


def trap_complaint(answer: Callable) -> str | None:
    """The first thing that keeps a table from being a trap for greedy search, and for it alone."""
    probabilities = {}
    for words in all_words():
        row, again = (answer(list(words)) for _ in range(2))
        if row is None:
            return "the function returns None: is the return missing?"
        try:
            row, again = np.asarray(row, float), np.asarray(again, float)
        except (TypeError, ValueError):
            return f"not three numbers for {list(words)}: {row!r}"
        if row.shape != (1 + len(WORDS),):
            return f"shape {row.shape} for {list(words)}, expected (3,): the end, word 1, word 2"
        if (row < 0).any():
            return f"a negative number for {list(words)}: probabilities are wanted, not their logarithms"
        if not abs(row.sum() - 1) < 1e-9:
            return f"the three numbers for {list(words)} sum to {row.sum():.4g}; probabilities sum to 1"
        if not np.array_equal(row, again):
            return f"another answer for {list(words)} the second time: a model gives the same one always"
        probabilities[words] = row
    with np.errstate(divide="ignore"):
        table = Table({words: np.log(row) for words, row in probabilities.items()})
    best = max(all_words(), key=table.log_probability)
    greedy, beam = found_in(table, 1), found_in(table, 2)
    of_best = np.exp(table.log_probability(best))
    of_greedy = np.exp(table.log_probability(greedy, len(greedy) < LONGEST))
    said = f"the likeliest sentence is {list(best)}, probability {of_best:.3g}"
    if greedy == best:
        return f"greedy search finds it: {said}"
    if beam != best:
        return f"a beam of 2 misses it, too: {said}; the beam finds {list(beam)}"
    if of_best < CLEARLY * of_greedy:
        return f"hardly a trap: {said}, and greedy search's {list(greedy)} has {of_greedy:.3g}; wanted: twice as much"
    return None


def next_words(written):
    """Word 1 looks better, and leads where no word is likely; after word 2 everything is certain."""
    if not written:
        return np.array([0.0, 0.55, 0.45])
    return np.array([0.34, 0.33, 0.33]) if written[0] == 1 else np.array([1.0, 0.0, 0.0])


GREEDY_TRAP = Break(
    id="20_greedy_trap",
    title="A table of next words on which greedy search loses and a beam of 2 wins",
    function="next_words",
    arguments=("written",),
    complaint=trap_complaint,
    solution=next_words,
    library=(greedy_search, beam_search),
    hints=(
        "written is a list of 1s and 2s, empty at first. Return three numbers that are not negative and sum to 1: the "
        "probabilities of the end, of word 1 and of word 2.",
        "Greedy search takes the larger first word. Let what follows that one be undecided, so that every way on costs "
        "much, and what follows the other one be certain.",
        "First 0, 0.6, 0.4. After word 1: 0.4, 0.3, 0.3, so the best sentence there has 0.24. After word 2: 1, 0, 0. "
        "Now make it twice as likely."))

EXERCISES = (BEAM_STEP, LENGTH_PENALTY, GREEDY_TRAP)
