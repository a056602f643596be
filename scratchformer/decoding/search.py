"""Search for a translation: greedily, one most likely token after the other, or with a beam (paper §6.1).

Both work on many sentences at once, with the keys and values of earlier positions in a cache (`incremental.py`), and
drop a sentence from the batch as soon as it is finished. The translation of a sentence does not depend on its batch;
only the last bit of a score may, because the matrix library rounds differently for other shapes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np

from scratchformer.decoding.incremental import begin_decoding, decoding_step
from scratchformer.errors import UserError
from scratchformer.nn.ops import ops_of
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer, lengths_of
from scratchformer.text.tokenizer import BOS, EOS, PAD


class Hypothesis(NamedTuple):
    """ids: the tokens without EOS; log_probability: of ids and EOS, in nats; score: hypotheses are ranked by it."""

    ids: list[int]
    log_probability: float
    score: float


class Rules(Protocol):
    """Rules for the tokens that may follow a hypothesis. A state is what they know of its tokens; it never changes.

    A hypothesis of log probability -inf may have tokens that the rules forbid.
    """

    def begin(self, source_length: int, longest: int) -> Any:
        """The state of an empty hypothesis. Both numbers are tokens, EOS included; `longest` is the maximum length."""

    def after(self, state: Any, token: int) -> Any:
        """The state when this token has been written."""

    def allowed(self, state: Any) -> np.ndarray:
        """The tokens that may follow, (V,) bool."""


def search(
    model: Transformer,
    source_ids: np.ndarray,
    beam: int = 4,
    alpha: float = 0.6,
    extra_length: int = 50,
    nbest: int = 1,
    rules: Rules | None = None,
) -> list[list[Hypothesis]]:
    """The `nbest` best translations of each source, best first. source_ids (B, S), EOS included, padded with 0.

    beam 1 is greedy search, as in the paper's code. Hypotheses that ended in EOS come before those that were cut off at
    the maximum length. `rules` forbid tokens; log probabilities stay those of the model without rules.

    Raises ValueError unless 1 <= nbest <= beam and alpha >= 0, and UserError if the model's probabilities are not
    finite.
    """
    if not 1 <= nbest <= beam or alpha < 0:
        raise ValueError(f"nbest={nbest} must lie between 1 and beam={beam}, and alpha={alpha} must not be negative")
    with np.errstate(over="ignore", invalid="ignore"):
        if beam == 1:
            found = [[hypothesis] for hypothesis in greedy_search(model, source_ids, alpha, extra_length, rules)]
        else:
            found = beam_search(model, source_ids, beam, alpha, extra_length, nbest, rules)
    if any(not best or math.isnan(best[0].score) for best in found):
        raise UserError("the model's probabilities are not finite: its weights are too large")
    return found


def length_penalty(n_tokens: float | np.ndarray, alpha: float) -> float | np.ndarray:
    """((5 + n) / 6)^alpha (Wu et al. 2016), n the generated tokens with EOS. score = log probability / penalty."""
    return ((5 + n_tokens) / 6) ** alpha


def max_lengths(model: Transformer, source_ids: np.ndarray, extra_length: int) -> np.ndarray:
    """The maximum number of tokens, EOS included, of each source's translation -> (B,) int"""
    longest = lengths_of(source_ids) + extra_length
    if model.config.positions == "learned":
        longest = np.minimum(longest, model.config.max_positions)
    return longest


def forbid_inplace(logits: Array, allowed: np.ndarray | None = None) -> None:
    """Give padding, the start symbol and what is not allowed probability 0: they are never written. (..., V) both"""
    for id_ in (PAD, BOS):
        logits[..., id_] = -np.inf
    if allowed is not None:
        logits[ops_of(logits).xp.asarray(~allowed)] = -np.inf


def rows_to_keep(keep: np.ndarray) -> np.ndarray:
    """The indices where keep (n,) is True -> (k,) int. Kept rows stay in place if they can; the last ones fill gaps."""
    where = np.flatnonzero(keep)
    n = len(where)
    index = np.arange(n)
    index[~keep[:n]] = where[where >= n]
    return index


# Greedy ---------------------------------------------------------------------------------------------------------------


def greedy_search(
    model: Transformer, source_ids: np.ndarray, alpha: float = 0.6, extra_length: int = 50, rules: Rules | None = None
) -> list[Hypothesis]:
    """Write the most likely token until it is EOS. `alpha` only scales the scores."""
    longest = max_lengths(model, source_ids, extra_length)  # (B,)
    written: list[list[int]] = [[] for _ in source_ids]
    log_probability = np.zeros(len(source_ids))
    active = np.arange(len(source_ids))  # sentences that are not finished
    state = begin_decoding(model, source_ids)
    ruled = begin_rules(rules, source_ids, longest) if rules else []
    last = np.full((len(active), 1), BOS)
    while len(active):
        logits, state = decoding_step(model, last, state)
        logits = logits[:, 0]  # (active, V)
        ops = ops_of(logits)
        log_sum = ops.log_sum_exp(logits)
        forbid_inplace(logits[:, None], allowed_by(rules, ruled) if rules else None)
        best = logits.argmax(axis=-1)
        log_probability[active] += ops.on_host(logits[ops.xp.arange(len(active)), best] - log_sum)
        tokens = ops.on_host(best)
        for sentence, token in zip(active.tolist(), tokens.tolist()):
            written[sentence].append(token)
        kept = rows_to_keep((tokens != EOS) & (state.position < longest[active]))
        state = state.select(kept, kept)
        if rules:
            ruled = [[rules.after(ruled[row][0], int(tokens[row]))] for row in kept]
        active, last = active[kept], tokens[kept, None]
    return [hypothesis_of(ids, total, alpha) for ids, total in zip(written, log_probability)]


def hypothesis_of(ids: list[int], log_probability: float, alpha: float) -> Hypothesis:
    """The hypothesis of the tokens written, which end in EOS unless they were cut off at the maximum length."""
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
    rules: Rules | None = None,
) -> list[list[Hypothesis]]:
    """Keep the `beam` most likely hypotheses of each sentence at every position.

    Each step finds the 2 beam most likely continuations. Those that end in EOS are finished and compete by score; the
    best `beam` of the others stay alive. At most `beam` of the continuations can end in EOS, so enough are left. A
    sentence is finished when it has its maximum length, or when no living hypothesis can beat the finished ones: the
    log probability of a hypothesis can only fall, and the length penalty is largest at the maximum length, so their
    quotient is an upper bound of its score. The first step continues a single hypothesis, the empty one.
    """
    longest = max_lengths(model, source_ids, extra_length)  # (B,)
    done: list[list[Hypothesis]] = [[] for _ in source_ids]  # at most `beam` each, best first
    active = np.arange(len(source_ids))
    ids = np.full((len(active), 1, 1), BOS)  # (active, W, t + 1), W = 1 at first
    alive = np.zeros((len(active), 1))  # log probabilities (active, W)
    state = begin_decoding(model, source_ids, beam)
    ruled = begin_rules(rules, source_ids, longest) if rules else []
    while len(active):
        logits, state = decoding_step(model, ids[:, :, -1], state)
        allowed = allowed_by(rules, ruled) if rules else None
        best, parents, tokens = best_continuations(logits, alive, 2 * beam, allowed)  # (active, 2 beam) each
        ends = tokens == EOS

        for row, column in np.argwhere(ends & np.isfinite(best)):
            whole = [*ids[row, parents[row, column], 1:].tolist(), EOS]
            done[active[row]].append(hypothesis_of(whole, best[row, column], alpha))
        for sentence in active[ends.any(axis=1)]:
            done[sentence] = sorted(done[sentence], key=lambda hypothesis: -hypothesis.score)[:beam]

        W = alive.shape[1]  # at most this many of `best` end in EOS
        survivors = np.argsort(ends, axis=1, kind="stable")[:, : min(beam, best.shape[1] - W)]
        alive, parents, tokens = (np.take_along_axis(x, survivors, axis=1) for x in (best, parents, tokens))
        ids = np.concatenate([np.take_along_axis(ids, parents[:, :, None], axis=1), tokens[:, :, None]], axis=2)

        bound = alive[:, 0] / length_penalty(longest[active], alpha)
        at_end = state.position >= longest[active]
        decided = [
            len(done[sentence]) >= nbest and done[sentence][nbest - 1].score >= limit
            for sentence, limit in zip(active, bound)
        ]
        for row in np.flatnonzero(at_end):  # the unfinished ones come after the finished ones
            rest = [hypothesis_of(ids[row, w, 1:].tolist(), alive[row, w], alpha) for w in range(ids.shape[1])]
            done[active[row]] += [hypothesis for hypothesis in rest if np.isfinite(hypothesis.log_probability)]

        kept = rows_to_keep(~(np.array(decided) | at_end))
        state = state.select(kept, (kept[:, None] * W + parents[kept]).reshape(-1))
        if rules:
            chosen = zip(kept, parents[kept].tolist(), tokens[kept].tolist())
            ruled = [[rules.after(ruled[row][w], token) for w, token in zip(*each)] for row, *each in chosen]
        active, ids, alive = active[kept], ids[kept], alive[kept]
    return [hypotheses[:nbest] for hypotheses in done]


def begin_rules(rules: Rules, source_ids: np.ndarray, longest: np.ndarray) -> list[list[Any]]:
    """For each sentence the states of its hypotheses, at first that of the empty one."""
    return [[rules.begin(int(n), int(most))] for n, most in zip(lengths_of(source_ids), longest)]


def allowed_by(rules: Rules, ruled: list[list[Any]]) -> np.ndarray:
    """The tokens that may follow each hypothesis, (B, W, V) bool."""
    return np.array([[rules.allowed(state) for state in row] for row in ruled])


def best_continuations(
    logits: Array, alive: np.ndarray, n: int, allowed: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The n most likely continuations of each sentence -> log probabilities, hypotheses, tokens: (B, n), best first

    logits (B, W, V), which are overwritten; alive (B, W), the log probabilities of the hypotheses; allowed (B, W, V)

    To sort all W V words would be slow. So the words of each hypothesis are arranged as a table of TABLE_HEIGHT rows.
    Each of the n best words is in one of the n columns with the highest maxima: only the words there are compared.
    """
    ops = ops_of(logits)
    xp = ops.xp
    B, W, V = logits.shape
    n = min(n, W * V)
    height = TABLE_HEIGHT if V % TABLE_HEIGHT == 0 and n * TABLE_HEIGHT <= W * V else 1
    width = V // height
    before = xp.asarray(alive) - ops.log_sum_exp(logits)  # (B, W)
    forbid_inplace(logits, allowed)
    table = logits.reshape(B, W, height, width)
    highest = table.max(axis=2) + before[:, :, None]  # (B, W, width)
    parents, columns = divmod(ops.top_indices(highest.reshape(B, -1), n), width)  # (B, n) each
    row = xp.arange(B)[:, None]
    totals = table[row, parents, :, columns] + before[row, parents][:, :, None]  # (B, n, height)
    totals = totals.reshape(B, -1)
    best = ops.top_indices(totals, n)  # (B, n)
    choice, place = divmod(best, height)
    tokens = place * width + columns[row, choice]
    return ops.on_host(totals[row, best]), ops.on_host(parents[row, choice]), ops.on_host(tokens)


TABLE_HEIGHT = 40
"""The fastest of several for 6,000 to 37,000 words. If it does not divide their number, all words are compared."""
