"""A small model that guesses the next word of short English sentences, with or without the causal mask (lesson 06).

What it may see and what it has to write are chosen apart, so that a lesson can forget the mask or the shift.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.attention import Mask, attention_weights
from scratchformer.nn.layers import Embedding, PositionalEncoding, Unembedding
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.ops import Ops
from scratchformer.nn.parameter import Array, Layer
from scratchformer.nn.transformer import EncoderLayer
from scratchformer.text.tokenizer import BOS, EOS, PAD
from support.lesson import ROOT
from support.training import Chain, learn, padded


def sentences(split: str, at_most: int) -> list[list[str]]:
    """The bundled corpus: sentences of fewer than 10 words, as lists of words; a full stop is a word."""
    lines = (ROOT / f"data/tiny/{split}.en").read_text(encoding="utf-8").lower().splitlines()[:at_most]
    return [words for words in (re.findall(r"[\w'-]+|[.?!,]", line) for line in lines) if len(words) < 10]


TRAINING = sentences("train", 10_000)
VOCABULARY = ["<pad>", "</s>", "<s>", *sorted({word for words in TRAINING for word in words})]
ID_OF = {word: i for i, word in enumerate(VOCABULARY)}
NEW = [words for words in sentences("test", 500) if all(word in ID_OF for word in words)][:200]
"""New sentences: none of them is in TRAINING."""
FIRST_WORDS = sorted({words[0] for words in NEW})

Pairs = Callable[[Sequence[Sequence[str]]], tuple[Array, Array]]
"""Sentences -> what is read (B, T), what has to be written (B, T)."""


def shifted(some: Sequence[Sequence[str]]) -> tuple[Array, Array]:
    """-> what is read: <s> and the words; what has to be written: the words and </s>. (B, T) ids both, 0 at the end"""
    ids = [[ID_OF[word] for word in words] for words in some]
    return padded([[BOS, *row] for row in ids]), padded([[*row, EOS] for row in ids])


class NextWord(Chain):
    """N layers of attention and feed-forward. forward(ids (B, T)) -> scores of each next word (B, T, V), cache"""

    def __init__(self, causal: bool, seed: int, d_model: int = 48, N: int = 1) -> None:
        random, V = np.random.default_rng(seed), len(VOCABULARY)
        config = ModelConfig(vocab_size=V, d_model=d_model, d_ff=2 * d_model, h=1, P_drop=0.0)
        vectors = Embedding.new_weight(V, d_model, random, "float64")
        layers = [EncoderLayer(config, random, "float64") for _ in range(N)]
        self.causal = causal
        super().__init__([Embedding(vectors), PositionalEncoding(), *layers, Unembedding(vectors)])

    def mask(self, x: Array) -> Mask:
        return Mask(key_lengths=(x != PAD).sum(axis=1), causal=self.causal)


def train(
    model: Layer, pairs: Pairs, seed: int, steps: int = 250, batch: int = 24, rate: float = 0.005, warm_up: int = 50
) -> list[float]:
    """Adam on `batch` sentences at a time. -> the loss of each step, in nats per word"""
    random = np.random.default_rng(seed)
    rows = (random.integers(0, len(TRAINING), batch) for _ in range(steps))
    batches = (((read,), write) for read, write in (pairs([TRAINING[i] for i in each]) for each in rows))
    return learn(model, batches, lambda step: rate * min(1, step / warm_up))


def mean_loss(logits: Array, write: Array) -> float:
    """In nats per word; padding does not count."""
    loss_sum, n_words, _ = cross_entropy(logits, write)
    return loss_sum / n_words


def all_at_once(model: NextWord, read: Array) -> Array:
    """The whole sentence is the input. -> the scores of the next words (B, T, V)"""
    return model.forward(read)[0]


def word_by_word(model: NextWord, read: Array) -> Array:
    """The same, but position t is asked when it is the last one: later words do not exist yet."""
    return np.stack([model.forward(read[:, : t + 1])[0][:, t] for t in range(read.shape[1])], axis=1)


def weights_of(model: NextWord, read: Array) -> Array:
    """Weights of attention in the first layer: (B, H, T, S)"""
    return attention_weights(model.forward(read)[1])[0]


def continued(model: NextWord, begin: Sequence[str], at_most: int = 12) -> list[str]:
    """Go on from some words, always with the likeliest next word, until </s>. -> all words"""
    ids = [ID_OF[word] for word in begin]
    while ids[-1] != EOS and len(ids) < at_most:
        ids.append(int(model.forward(np.array([ids]))[0][0, -1].argmax()))
    return [VOCABULARY[i] for i in ids]


def share_repeated(texts: Sequence[Sequence[str]]) -> float:
    """Share of the words after the first of a text that repeat the word before them, 0 to 1"""
    return float(np.mean([a == b for text in texts for a, b in zip(text, text[1:])]))


def share_followed(model: NextWord, read: Array) -> float:
    """Exchange the next word of each guess for the word there in another sentence. -> share of guesses that are it"""
    followed: list[bool] = []
    for t in range(read.shape[1] - 1):
        other = read.copy()
        other[:, t + 1] = np.roll(read[:, t + 1], 1)
        exchanged = (read[:, t + 1] != PAD) & (other[:, t + 1] != PAD) & (other[:, t + 1] != read[:, t + 1])
        guesses = all_at_once(model, other)[:, t].argmax(axis=-1)
        followed += list((guesses == other[:, t + 1])[exchanged])
    return float(np.mean(followed))


class Hiding(Ops):
    """Attention with a further mask. Give it to `using`: query t may use key s only where sees(t, s) is True."""

    def __init__(self, sees: Callable[[Array, Array], Array]) -> None:
        super().__init__(np)
        self.sees = sees

    def masked_softmax(self, scores: Array, scale: float, key_lengths: Array | None, causal: bool) -> Array:
        T, S = scores.shape[-2:]
        may = self.sees(np.arange(T)[:, None], np.arange(S))
        return super().masked_softmax(np.where(may, scores, -np.inf), scale, key_lengths, causal)
