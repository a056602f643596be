"""How to write a translation one token at a time: greedily, or with a beam (paper §6.1).

Both keep the keys and values of what is written (`Transformer.start` and `step`), work on many sentences at once, and
drop a sentence from the batch as soon as it is done. What is found for a sentence does not depend on its batch, but for
the last bit of a score where the matrix library rounds differently for other shapes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scratchformer.decoding.incremental import begin_decoding, decoding_step
from scratchformer.nn.ops import ops_of
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer, lengths_of
from scratchformer.text.tokenizer import BOS, EOS, PAD


class Hypothesis(NamedTuple):
    """ids: the tokens without EOS; log_probability: in nats, of ids and EOS; score: what hypotheses are ranked by."""

    ids: list[int]
    log_probability: float
    score: float


def search(
    model: Transformer,
    source_ids: np.ndarray,
    beam: int = 4,
    alpha: float = 0.6,
    extra_length: int = 50,
    nbest: int = 1,
) -> list[list[Hypothesis]]:
    """The `nbest` best translations of each source, best first. source_ids (B, S), EOS included, padded with 0.

    beam 1 is greedy search by definition, as in the paper's code. Hypotheses that reached their end come before those
    that the greatest length cut off. Raises ValueError unless 1 <= nbest <= beam and alpha >= 0.
    """
    if not 1 <= nbest <= beam or alpha < 0:
        raise ValueError(f"nbest={nbest} must lie between 1 and beam={beam}, and alpha={alpha} must not be negative")
    if beam == 1:
        return [[hypothesis] for hypothesis in greedy_search(model, source_ids, alpha, extra_length)]
    return beam_search(model, source_ids, beam, alpha, extra_length, nbest)


def length_penalty(n_tokens: float | np.ndarray, alpha: float) -> float | np.ndarray:
    """((5 + n) / 6)^alpha (Wu et al. 2016), n the generated tokens with EOS. score = log probability / penalty."""
    return ((5 + n_tokens) / 6) ** alpha


def greatest_lengths(model: Transformer, source_ids: np.ndarray, extra_length: int) -> np.ndarray:
    """How many tokens, EOS included, the translation of each source may have -> (B,) int"""
    longest = lengths_of(source_ids) + extra_length
    if model.config.positions == "learned":
        longest = np.minimum(longest, model.config.max_positions)
    return longest


def forbid(logits: Array) -> None:
    """In place: what is never written becomes infinitely unlikely. logits (..., V)"""
    for id_ in (PAD, BOS):
        logits[..., id_] = -np.inf


def remaining(stays: np.ndarray) -> np.ndarray:
    """Where stays (n,) is True -> (k,) int. In order, but the last fill the gaps, so that few rows have to move."""
    where = np.flatnonzero(stays)
    n = len(where)
    index = np.arange(n)
    index[~stays[:n]] = where[where >= n]
    return index


# Greedy ---------------------------------------------------------------------------------------------------------------


def greedy_search(
    model: Transformer, source_ids: np.ndarray, alpha: float = 0.6, extra_length: int = 50
) -> list[Hypothesis]:
    """Write the likeliest token, again and again, until it is EOS. `alpha` only scales the scores."""
    longest = greatest_lengths(model, source_ids, extra_length)  # (B,)
    written: list[list[int]] = [[] for _ in source_ids]
    log_probability = np.zeros(len(source_ids))
    going = np.arange(len(source_ids))  # sentences not done yet
    state = begin_decoding(model, source_ids)
    last = np.full((len(going), 1), BOS)
    while len(going):
        logits, state = decoding_step(model, last, state)
        logits = logits[:, 0]  # (going, V)
        ops = ops_of(logits)
        log_sum = ops.log_sum_exp(logits)
        forbid(logits)
        best = logits.argmax(axis=-1)
        log_probability[going] += ops.on_host(logits[ops.xp.arange(len(going)), best] - log_sum)
        tokens = ops.on_host(best)
        for sentence, token in zip(going, tokens):
            written[sentence].append(int(token))
        going_on = remaining((tokens != EOS) & (state.position < longest[going]))
        state = state.select(going_on, going_on)
        going, last = going[going_on], tokens[going_on, None]
    return [hypothesis_of(ids, total, alpha) for ids, total in zip(written, log_probability)]


def hypothesis_of(ids: list[int], log_probability: float, alpha: float) -> Hypothesis:
    """From the tokens written, which end in EOS unless the greatest length cut them off."""
    score = log_probability / length_penalty(len(ids), alpha)
    return Hypothesis(ids[:-1] if ids and ids[-1] == EOS else ids, float(log_probability), float(score))


# Beam -----------------------------------------------------------------------------------------------------------------


def beam_search(
    model: Transformer,
    source_ids: np.ndarray,
    beam: int = 4,
    alpha: float = 0.6,
    extra_length: int = 50,
    nbest: int = 1,
) -> list[list[Hypothesis]]:
    """Follow the `beam` likeliest beginnings of each sentence at once.

    At every step the 2 beam likeliest continuations are made. Those that end in EOS are finished and compete by score;
    the best `beam` of the others live on. At most `beam` of the 2 beam can end, so there are always enough. A sentence
    is done when it has reached its greatest length, or when no living hypothesis can still beat the finished ones: its
    log probability can only fall and the penalty is largest at the greatest length, so their quotient bounds its score.
    The first step has but one beginning to continue, the empty one.
    """
    longest = greatest_lengths(model, source_ids, extra_length)  # (B,)
    done: list[list[Hypothesis]] = [[] for _ in source_ids]  # at most `beam` each, best first
    going = np.arange(len(source_ids))
    ids = np.full((len(going), 1, 1), BOS)  # (going, W, t + 1), W = 1 at first
    alive = np.zeros((len(going), 1))  # log probabilities (going, W)
    state = begin_decoding(model, source_ids, beam)
    while len(going):
        logits, state = decoding_step(model, ids[:, :, -1], state)
        best, parents, tokens = likeliest(logits, alive, 2 * beam)  # (going, 2 beam) each
        ends = tokens == EOS

        for row, column in np.argwhere(ends & np.isfinite(best)):
            whole = [*ids[row, parents[row, column], 1:].tolist(), EOS]
            done[going[row]].append(hypothesis_of(whole, best[row, column], alpha))
        for sentence in going[ends.any(axis=1)]:
            done[sentence] = sorted(done[sentence], key=by_score)[:beam]

        W = alive.shape[1]  # at most so many of `best` end
        survivors = np.argsort(ends, axis=1, kind="stable")[:, : min(beam, best.shape[1] - W)]
        alive, parents, tokens = (np.take_along_axis(x, survivors, axis=1) for x in (best, parents, tokens))
        ids = np.concatenate([np.take_along_axis(ids, parents[:, :, None], axis=1), tokens[:, :, None]], axis=2)

        bound = alive[:, 0] / length_penalty(longest[going], alpha)
        at_end = state.position >= longest[going]
        over = (
            np.array(
                [
                    len(done[sentence]) >= nbest and done[sentence][nbest - 1].score >= limit
                    for sentence, limit in zip(going, bound)
                ]
            )
            | at_end
        )
        for row in np.flatnonzero(at_end):  # the unfinished fill empty places
            rest = [hypothesis_of(ids[row, w, 1:].tolist(), alive[row, w], alpha) for w in range(ids.shape[1])]
            done[going[row]] += [hypothesis for hypothesis in rest if np.isfinite(hypothesis.log_probability)]

        going_on = remaining(~over)
        state = state.select(going_on, (going_on[:, None] * W + parents[going_on]).reshape(-1))
        going, ids, alive = going[going_on], ids[going_on], alive[going_on]
    return [hypotheses[:nbest] for hypotheses in done]


def by_score(hypothesis: Hypothesis) -> float:
    """Sorting key: best first."""
    return -hypothesis.score


def likeliest(logits: Array, alive: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The n likeliest continuations of each sentence, best first -> log probabilities, places in W, tokens: (B, n) each

    logits (B, W, V), which are overwritten; alive (B, W), the log probabilities of what they continue.

    The words of each hypothesis are laid out in a table of TABLE_HEIGHT rows. Each of the n likeliest stands in one of
    the n columns with the highest maxima, so these columns are found first and only their words are compared.
    """
    ops = ops_of(logits)
    xp = ops.xp
    B, W, V = logits.shape
    n = min(n, W * V)
    height = TABLE_HEIGHT if V % TABLE_HEIGHT == 0 and n * TABLE_HEIGHT <= W * V else 1
    width = V // height
    before = xp.asarray(alive) - ops.log_sum_exp(logits)  # (B, W), for all words of each
    forbid(logits)
    table = logits.reshape(B, W, height, width)
    highest = table.max(axis=2) + before[:, :, None]  # (B, W, width)
    parents, columns = divmod(largest(highest.reshape(B, -1), n), width)  # (B, n) each
    row = xp.arange(B)[:, None]
    totals = table[row, parents, :, columns] + before[row, parents][:, :, None]  # (B, n, height)
    totals = totals.reshape(B, -1)
    best = largest(totals, n)  # (B, n)
    choice, place = divmod(best, height)
    tokens = place * width + columns[row, choice]
    return ops.on_host(totals[row, best]), ops.on_host(parents[row, choice]), ops.on_host(tokens)


def largest(x: Array, n: int) -> Array:
    """Where the n largest of each row (B, m) stand, the largest first -> (B, n)"""
    xp = ops_of(x).xp
    top = xp.argpartition(x, x.shape[1] - n, axis=1)[:, -n:]
    order = xp.argsort(-xp.take_along_axis(x, top, axis=1), axis=1)
    return xp.take_along_axis(top, order, axis=1)


TABLE_HEIGHT = 40
"""The quickest of several for 6,000 to 37,000 words. Where it does not divide their number, all words are compared."""
