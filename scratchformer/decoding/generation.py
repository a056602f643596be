"""Continue a text with a language model: draw one token after another from the distribution that the model gives.

Keys and values of what was read are kept (`incremental.py`), so that a step computes only the new position.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from scratchformer.decoding.incremental import begin_generation, generation_step
from scratchformer.errors import UserError, require_list
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.ops import ops_of
from scratchformer.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

NEVER_WRITTEN = [PAD, BOS, UNK]


class Sampling(NamedTuple):
    """Settings for drawing a token from the model's distribution.

    temperature  logits are divided by it: below 1 likely tokens become likelier; 0 takes the most likely one
    top_k        only the k most likely tokens are drawn; 0: all
    top_p        of these, only the fewest most likely tokens whose probabilities reach top_p together; 1: all (nucleus
                 sampling, Holtzman et al. 2020)
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


def probabilities(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """The distribution that tokens are drawn from: logits (R, V) -> (R, V) float64, whose rows sum to 1

    Of equally likely tokens, those with the lower ids count as more likely.
    Raises UserError if the model's probabilities are not finite, ValueError for a temperature that is negative or not
    finite, a negative top_k, or a top_p outside (0, 1].
    """
    temperature, top_k, top_p = sampling
    if not (0 <= temperature < np.inf and top_k >= 0 and 0 < top_p <= 1):
        limits = "temperature must be finite and not negative, top_k not negative, and top_p must lie in (0, 1]"
        raise ValueError(f"{limits}: {sampling}")
    scores = logits.astype(np.float64)
    scores[:, NEVER_WRITTEN] = -np.inf
    scores -= scores.max(axis=-1, keepdims=True)
    if np.isnan(scores).any():
        raise UserError("the model's probabilities are not finite: its weights are too large")
    if temperature == 0:
        temperature, top_k = 1.0, 1
    with np.errstate(over="ignore"):  # a temperature near 0
        p = np.exp(scores / temperature)
    if top_k or top_p < 1:
        order = np.argsort(-p, axis=-1, kind="stable")
        ranked = np.take_along_axis(p, order, axis=-1)
        ranked[:, top_k or ranked.shape[1] :] = 0
        ranked /= ranked.sum(axis=-1, keepdims=True)
        of_likelier = ranked.cumsum(axis=-1) - ranked
        if top_p < 1:
            ranked[of_likelier >= top_p] = 0
        np.put_along_axis(p, order, ranked, axis=-1)
    return p / p.sum(axis=-1, keepdims=True)


def begin_text(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """Encode the prompt of a text, after BOS if the prompt is empty or the model expects BOS."""
    ids = tokenizer.encode([prompt])[0]
    return [BOS, *ids] if tokenizer.begins_with_bos or not ids else ids


def generate(
    model: LanguageModel,
    prompt: Sequence[int],
    n_tokens: int,
    sampling: Sampling = Sampling(),
    seed: int = 0,
    samples: int = 1,
    window: int | None = None,
) -> Iterator[np.ndarray]:
    """Continue the prompt in several ways at once -> after each step the new id of each sample, (samples,) int

    It ends after `n_tokens` steps, or when all samples have ended: after its EOS, a sample gets PAD. PAD, BOS and UNK
    are never written. A sample depends on the seed and on its number, not on how many there are.

    prompt  ids, at least one: BOS alone begins a new text
    window  how many tokens the model may read at once (None: no limit); learned positions have a limit of their own.
            When the window is full, its second half is read again, from position 0: the position of every token has
            changed, and with it all keys and values. So a token is drawn after at least half a window, or after
            all tokens while there are fewer

    Raises UserError if the model's probabilities are not finite, ValueError for an empty prompt and for text.
    """
    require_list(prompt, "ids")
    if not len(prompt):
        raise ValueError("the prompt is empty; [BOS] begins a new text")
    limit = window or sys.maxsize
    if model.config.positions == "learned":
        limit = min(limit, model.config.max_positions)
    randoms = [np.random.default_rng([seed, number]) for number in range(samples)]
    text = np.tile(np.asarray(prompt), (samples, 1))  # (R, t)
    unread, kv_caches = text[:, -limit:], begin_generation(model, samples)
    writing = np.ones(samples, bool)
    for _ in range(n_tokens):
        if kv_caches[0].t + unread.shape[1] > limit:
            unread, kv_caches = text[:, -max(1, limit // 2) :], begin_generation(model, samples)
        logits = generation_step(model, unread, kv_caches)
        p = probabilities(ops_of(logits).on_host(logits), sampling)
        drawn = np.array([random.choice(len(row), p=row) for random, row in zip(randoms, p)])
        drawn[~writing] = PAD
        yield drawn
        writing &= drawn != EOS
        if not writing.any():
            return
        unread = drawn[:, None]
        text = np.concatenate([text, unread], axis=1)
