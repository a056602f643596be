"""Mistakes that are the same in forward and backward: finite differences accept them, and the oracle does not."""

import math

import numpy as np
import pytest
from side_by_side import TOLERANCE, layer_differences, worst

from scratchformer.nn.gradient_cases import CASES, D, V, check
from scratchformer.nn.ops import PAD, Ops, using
from scratchformer.nn.residual import PreNorm


def only_the_oracle_refuses(layer, description):
    """Checks one case of the table of gradient cases with both."""
    case = next(case for case in CASES if (case.layer, case.description) == (layer, f"{description}, dropout 0.0"))
    assert check(case).passed
    assert worst(layer_differences(*case.make())) > 1000 * TOLERANCE["float64"]


# Operations -----------------------------------------------------------------------------------------------------------


class ScoresNotScaled(Ops):
    """The 1 / sqrt(d_k) of equation 1 is missing."""

    def masked_softmax(self, scores, scale, key_lengths, causal):
        return super().masked_softmax(scores, 1.0, key_lengths, causal)

    def masked_softmax_backward(self, dweights, weights, scale):
        return super().masked_softmax_backward(dweights, weights, 1.0)


class ScoresScaledByModelWidth(Ops):
    """1 / sqrt(d_model) in place of 1 / sqrt(d_k)."""

    def masked_softmax(self, scores, scale, key_lengths, causal):
        return super().masked_softmax(scores, 1 / math.sqrt(D), key_lengths, causal)

    def masked_softmax_backward(self, dweights, weights, scale):
        return super().masked_softmax_backward(dweights, weights, 1 / math.sqrt(D))


class FutureIsSeen(Ops):
    def masked_softmax(self, scores, scale, key_lengths, causal):
        return super().masked_softmax(scores, scale, key_lengths, False)


class PaddingIsSeen(Ops):
    def masked_softmax(self, scores, scale, key_lengths, causal):
        return super().masked_softmax(scores, scale, None, causal)


class WordsNotScaled(Ops):
    """The sqrt(d_model) of §3.4 is missing."""

    def embedding(self, ids, E, scale):
        return super().embedding(ids, E, 1.0)

    def embedding_backward(self, dx, ids, scale, dE):
        super().embedding_backward(dx, ids, 1.0, dE)


class PaddingIsAWord(Ops):
    def embedding(self, ids, E, scale):
        return scale * E[ids]

    def embedding_backward(self, dx, ids, scale, dE):
        super().embedding_backward(dx, ids, scale, dE)
        dE[PAD] += scale * dx[ids == PAD].sum(axis=0)


class UnbiasedVariance(Ops):
    """LayerNorm divides by D - 1, as `std()` does in many a library."""

    def layer_norm(self, x, gamma, beta, eps):
        return super().layer_norm(x, gamma * math.sqrt(1 - 1 / D), beta, eps * (1 - 1 / D))

    def layer_norm_backward(self, dy, saved, gamma, dgamma, dbeta):
        dscaled = np.zeros_like(gamma)
        dx = super().layer_norm_backward(dy, saved, gamma * math.sqrt(1 - 1 / D), dscaled, dbeta)
        dgamma += dscaled * math.sqrt(1 - 1 / D)
        return dx


class EpsOfAnotherLibrary(Ops):
    def layer_norm(self, x, gamma, beta, eps):
        return super().layer_norm(x, gamma, beta, 1e-5)


class SmoothingOverAll(Ops):
    """The target class gets a share of the smoothing, too, where only the others should."""

    def cross_entropy(self, logits, targets, on_target, off_target, out=None):
        return super().cross_entropy(logits, targets, on_target + off_target, off_target * (V - 1) / V, out)


@pytest.mark.parametrize(
    "kind, layer, description",
    [
        (ScoresNotScaled, "ScaledDotProductAttention", "all see all, T != S"),
        (ScoresScaledByModelWidth, "ScaledDotProductAttention", "all see all, T != S"),
        (FutureIsSeen, "SelfAttention", "causal and ragged padding"),
        (PaddingIsSeen, "CrossAttention", "ragged padding, T != S"),
        (WordsNotScaled, "Embedding", "repeated words and padding"),
        (PaddingIsAWord, "Embedding", "repeated words and padding"),
        (UnbiasedVariance, "LayerNorm", "far from mean 0"),
        (EpsOfAnotherLibrary, "LayerNorm", "far from mean 0"),
        (SmoothingOverAll, "CrossEntropy", "smoothing spread over the others"),
    ],
)
def test_a_wrong_operation_is_refused(kind, layer, description):
    with using(kind(np)):
        only_the_oracle_refuses(layer, description)


# Functions ------------------------------------------------------------------------------------------------------------


def positions_to_base_100000(first, count, d_model):
    position, channel = np.arange(first, first + count)[:, None], np.arange(d_model)
    angle = position / 100000 ** (2 * (channel // 2) / d_model)
    return np.where(channel % 2 == 0, np.sin(angle), np.cos(angle))


def all_sines_before_all_cosines(first, count, d_model):
    angle = np.arange(first, first + count)[:, None] / 10000 ** (2 * np.arange(d_model // 2) / d_model)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


def reshape_to_heads(x):
    """Has the right shape, and mixes positions with heads."""
    B, T, H, K = x.shape
    return x.reshape(B, H, T, K)


def always_pre_norm(sublayer, config, init, dtype):
    """The docstring says post-norm, as in The Annotated Transformer."""
    return PreNorm(sublayer, config, dtype)


@pytest.mark.parametrize(
    "name, wrong, layer, description",
    [
        ("layers.sinusoids", positions_to_base_100000, "PositionalEncoding", "from the start"),
        ("layers.sinusoids", all_sines_before_all_cosines, "PositionalEncoding", "from the start"),
        ("ops.by_head", reshape_to_heads, "SelfAttention", "no bias"),
        ("transformer.residual", always_pre_norm, "Transformer", "post-norm, three embeddings tied"),
    ],
)
def test_a_wrong_function_is_refused(name, wrong, layer, description, monkeypatch):
    monkeypatch.setattr(f"scratchformer.nn.{name}", wrong)
    only_the_oracle_refuses(layer, description)
