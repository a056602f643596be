"""How to write a translation one token at a time: greedily, or with a beam (paper §6.1).

Both keep the keys and values of what is written (`Transformer.start` and `step`), work on many sentences at once, and
drop a sentence from the batch as soon as it is done. What is found for a sentence does not depend on its batch, but for
the last bit of a score where the matrix library rounds differently for other shapes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scratchformer.nn.ops import ops_of
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer, lengths_of
from scratchformer.text.tokenizer import BOS, EOS, PAD


class Hypothesis(NamedTuple):
    """ids: the tokens without EOS; log_probability: in nats, of ids and EOS; score: what hypotheses are ranked by."""

    ids: list[int]
    log_probability: float
    score: float


def search(model: Transformer, source_ids: np.ndarray, beam: int = 4, alpha: float = 0.6, extra_length: int = 50,
           nbest: int = 1) -> list[list[Hypothesis]]:
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


def log_probabilities(logits: Array) -> np.ndarray:
    """log softmax over the last axis, on the host. Padding and the start symbol are never written."""
    xp = ops_of(logits).xp
    logits = logits - logits.max(axis=-1, keepdims=True)
    logits -= xp.log(xp.exp(logits).sum(axis=-1, keepdims=True))
    logits[..., [PAD, BOS]] = -np.inf
    return np.asarray(logits)


# Greedy ---------------------------------------------------------------------------------------------------------------


def greedy_search(model: Transformer, source_ids: np.ndarray, alpha: float = 0.6,
                  extra_length: int = 50) -> list[Hypothesis]:
    """Write the likeliest token, again and again, until it is EOS. `alpha` only scales the scores."""
    longest = greatest_lengths(model, source_ids, extra_length)                    # (B,)
    written: list[list[int]] = [[] for _ in source_ids]
    log_probability = np.zeros(len(source_ids))
    going = np.arange(len(source_ids))                                             # sentences not done yet
    state = model.start(source_ids)
    last = np.full((len(going), 1), BOS)
    while len(going):
        logits, state = model.step(last, state)
        candidates = log_probabilities(logits)[:, 0]                               # (going, V)
        tokens = candidates.argmax(axis=-1)
        log_probability[going] += candidates[np.arange(len(going)), tokens]
        for sentence, token in zip(going, tokens):
            written[sentence].append(int(token))
        going_on = np.flatnonzero((tokens != EOS) & (state.position < longest[going]))
        state = state.select(going_on, going_on)
        going, last = going[going_on], tokens[going_on, None]
    return [hypothesis_of(ids, total, alpha) for ids, total in zip(written, log_probability)]


def hypothesis_of(ids: list[int], log_probability: float, alpha: float) -> Hypothesis:
    """From the tokens written, which end in EOS unless the greatest length cut them off."""
    score = log_probability / length_penalty(len(ids), alpha)
    return Hypothesis(ids[:-1] if ids and ids[-1] == EOS else ids, float(log_probability), float(score))


# Beam -----------------------------------------------------------------------------------------------------------------


def beam_search(model: Transformer, source_ids: np.ndarray, beam: int = 4, alpha: float = 0.6, extra_length: int = 50,
                nbest: int = 1) -> list[list[Hypothesis]]:
    """Follow the `beam` likeliest beginnings of each sentence at once.

    At every step the 2 beam likeliest continuations are made. Those that end in EOS are finished and compete by score;
    the best `beam` of the others live on. At most `beam` of the 2 beam can end, so there are always enough. A sentence
    is done when it has reached its greatest length, or when no living hypothesis can still beat the finished ones: its
    log probability can only fall and the penalty is largest at the greatest length, so their quotient bounds its score.
    """
    longest = greatest_lengths(model, source_ids, extra_length)                    # (B,)
    done: list[list[Hypothesis]] = [[] for _ in source_ids]                        # at most `beam` each, best first
    going = np.arange(len(source_ids))
    ids = np.full((len(going), beam, 1), BOS)                                      # (going, W, t + 1)
    alive = np.full((len(going), beam), -np.inf)                                   # log probabilities (going, W)
    alive[:, 0] = 0                                                                # all W begin alike: let one count
    state = model.start(source_ids, beam)
    while len(going):
        logits, state = model.step(ids[:, :, -1], state)
        totals = alive[:, :, None] + log_probabilities(logits)                     # (going, W, V)
        best, parents, tokens = likeliest(totals, 2 * beam)                        # (going, 2W) each
        ends = tokens == EOS

        for row, column in np.argwhere(ends & np.isfinite(best)):
            whole = [*ids[row, parents[row, column], 1:].tolist(), EOS]
            done[going[row]].append(hypothesis_of(whole, best[row, column], alpha))
        for sentence in going[ends.any(axis=1)]:
            done[sentence] = sorted(done[sentence], key=by_score)[:beam]

        survivors = np.argsort(ends, axis=1, kind="stable")[:, :beam]              # the best W that do not end
        alive, parents, tokens = (np.take_along_axis(x, survivors, axis=1) for x in (best, parents, tokens))
        ids = np.concatenate([np.take_along_axis(ids, parents[:, :, None], axis=1), tokens[:, :, None]], axis=2)

        bound = alive[:, 0] / length_penalty(longest[going], alpha)
        at_end = state.position >= longest[going]
        over = np.array([len(done[sentence]) >= nbest and done[sentence][nbest - 1].score >= limit
                         for sentence, limit in zip(going, bound)]) | at_end
        for row in np.flatnonzero(at_end):                                         # the unfinished fill empty places
            rest = [hypothesis_of(ids[row, w, 1:].tolist(), alive[row, w], alpha) for w in range(beam)]
            done[going[row]] += [hypothesis for hypothesis in rest if np.isfinite(hypothesis.log_probability)]

        going_on = np.flatnonzero(~over)
        state = state.select(going_on, (going_on[:, None] * beam + parents[going_on]).reshape(-1))
        going, ids, alive = going[going_on], ids[going_on], alive[going_on]
    return [hypotheses[:nbest] for hypotheses in done]


def by_score(hypothesis: Hypothesis) -> float:
    """Sorting key: best first."""
    return -hypothesis.score


def likeliest(totals: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The n largest of totals (B, W, V) for each b, best first -> values, places in W, places in V: (B, n) each"""
    B, W, V = totals.shape
    flat = totals.reshape(B, W * V)
    n = min(n, W * V)
    top = np.argpartition(flat, W * V - n, axis=1)[:, W * V - n:]
    values = np.take_along_axis(flat, top, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    top = np.take_along_axis(top, order, axis=1)
    return np.take_along_axis(values, order, axis=1), top // V, top % V
