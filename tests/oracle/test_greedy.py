"""Greedy search, which keeps keys and values, writes what the twin writes, which computes everything anew."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from side_by_side import SMALL, padded
from twins import Twin

from scratchformer.decoding.search import greedy_search
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import BOS, EOS, PAD

WIDE = replace(SMALL, N=1, d_model=32, d_ff=32, h=4, d_k=8, d_v=8)
EXTRA_LENGTH = 1


def sources(random, count):
    """Sentences of up to seven words, each with EOS."""
    lengths = random.integers(1, 9, count)
    ids = padded(random, lengths)
    ids[np.arange(count), lengths - 1] = EOS
    return ids


def half_taught(config, random):
    """A model that has begun to learn to copy: sure of its words, and often wrong."""
    model = Transformer(config, dtype="float64")
    adam = Adam(model)
    for step in range(1, 101):
        ids = sources(random, 16)
        target_in_ids = np.where(ids == PAD, PAD, np.roll(ids, 1, axis=1))
        target_in_ids[:, 0] = BOS
        model.zero_grad()
        _, n_tokens = batch_loss_backward(model, (ids, target_in_ids), ids)
        model.store.grad /= n_tokens
        adam.step(noam(step, config.d_model, warmup=100))
    return model


@torch.no_grad()
def greedy(twin, source_ids, extra_length):
    """Greedy search as one would explain it: one sentence (S,) at a time, everything computed anew for each token.

    -> the ids without EOS, the log probability of all that was written
    """
    longest = len(source_ids) + extra_length
    if twin.config.positions == "learned":
        longest = min(longest, twin.config.max_positions)
    written, log_probability = [BOS], 0.0
    while len(written) <= longest and written[-1] != EOS:
        logits = twin(torch.as_tensor(source_ids)[None], torch.tensor([written]))
        scores = logits[0, -1].log_softmax(dim=-1)
        scores[[PAD, BOS]] = -math.inf
        written.append(int(scores.argmax()))
        log_probability += float(scores.max())
    return [token for token in written[1:] if token != EOS], log_probability


@pytest.mark.parametrize(
    "config",
    [
        WIDE,
        replace(
            WIDE, norm="pre", N=2, tied="none", attention_bias=False, positions="learned", d_k=5, d_v=7, max_positions=8
        ),
    ],
    ids=lambda config: f"{config.norm}, {config.positions}",
)
def test_greedy_search_writes_the_words_of_the_twin(config):
    random = np.random.default_rng(0)
    model, source_ids = half_taught(config, random), sources(random, 40)
    found = greedy_search(model, source_ids, extra_length=EXTRA_LENGTH)
    twin = Twin(model)
    expected = [greedy(twin, ids[ids != PAD], EXTRA_LENGTH) for ids in source_ids]

    assert [hypothesis.ids for hypothesis in found] == [ids for ids, _ in expected]
    assert [hypothesis.log_probability for hypothesis in found] == pytest.approx(
        [log_probability for _, log_probability in expected], rel=1e-10
    )
    assert len({tuple(hypothesis.ids) for hypothesis in found}) > 20  # it has something to say
    assert any(
        len(hypothesis.ids) == min(len(ids[ids != PAD]) + EXTRA_LENGTH, config.max_positions)
        for hypothesis, ids in zip(found, source_ids)
    )  # and sometimes finds no end
