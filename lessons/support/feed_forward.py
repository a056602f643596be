"""Lesson 11: a task that no sum of votes, one for each word, can solve, and the hidden units of a translator.

The task: do noun and verb agree? *The goat sleeps* and *the goats sleep* are right, *the goats sleeps* and *the goat
sleep* are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product, repeat
from typing import Any

import numpy as np

from scratchformer.decoding.translator import Translator
from scratchformer.experiments.heads import teacher_forced
from scratchformer.nn.attention import CrossAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Embedding, FeedForward, Linear
from scratchformer.nn.parameter import Array, Layer, ParameterStore
from scratchformer.text.bundled import Example
from scratchformer.text.tokenizer import PAD
from support.training import Chain, learn

NOUNS = "goat dog cat horse cow rabbit donkey duck".split()
VERBS = "sleep run sing swim eat drink wait laugh".split()
PLURALS, SINGULAR_VERBS = ([word + "s" for word in words] for words in (NOUNS, VERBS))
VOCABULARY = ["<pad>", "the", "?", *NOUNS, *PLURALS, *VERBS, *SINGULAR_VERBS]


def sentences() -> tuple[Array, Array, Array]:
    """All pairs of noun and verb in all four forms. -> ids (256, 4) of "the noun verb ?", is_right (256,) 0 or 1,
    is_new (256,) bool: a quarter of the pairs, kept for the test
    """
    forms = ((NOUNS, SINGULAR_VERBS, 1), (PLURALS, VERBS, 1), (NOUNS, VERBS, 0), (PLURALS, SINGULAR_VERBS, 0))
    ids, is_right, is_new = [], [], []
    for i, j, (nouns, verbs, right) in product(range(len(NOUNS)), range(len(VERBS)), forms):
        ids.append([VOCABULARY.index(word) for word in ("the", nouns[i], verbs[j], "?")])
        is_right.append(right)
        is_new.append((i + j) % 4 == 0)
    return np.array(ids), np.array(is_right), np.array(is_new)


Middle = Callable[[np.random.Generator], Sequence[Layer]]


class Judge(Layer):
    """The word `?` asks the three others with h heads; `middle` makes the layers between the answer and the scores.

    forward(ids (B, 4)) -> scores (B, 1, 3) of padding, wrong and right; cache
    """

    def __init__(self, seed: int, middle: Middle = lambda random: [], h: int = 1, d_model: int = 12) -> None:
        random = np.random.default_rng(seed)
        self.embedding = Embedding(Embedding.new_weight(len(VOCABULARY), d_model, random, "float64"))
        self.attention = CrossAttention(d_model, h, random, "float64")
        self.after = Chain([*middle(random), Linear(d_model, 3, random, "float64")])
        self.store = ParameterStore(self.parameters())

    def forward(self, ids: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        words, embedding_cache = self.embedding.forward(ids)  # (B, 4, D)
        x, attention_cache = self.attention.forward(words[:, 3:], words[:, :3])
        scores, after_cache = self.after.forward(x)
        return scores, (embedding_cache, attention_cache, after_cache)

    def backward(self, dscores: Array, cache: Any) -> None:
        embedding_cache, attention_cache, after_cache = cache
        dasking, danswering = self.attention.backward(self.after.backward(dscores, after_cache), attention_cache)
        self.embedding.backward(np.concatenate([danswering, dasking], axis=1), embedding_cache)

    def share_right(self, ids: Array, is_right: Array) -> float:
        return float((self.forward(ids)[0][:, 0, 1:].argmax(axis=1) == is_right).mean())


def trained(judge: Judge, steps: int = 400, rate: float = 0.015) -> Judge:
    """The judge after training on all sentences of the known pairs at each step."""
    ids, is_right, is_new = sentences()
    known = (ids[~is_new],), 1 + is_right[~is_new, None]
    learn(judge, repeat(known, steps), lambda step: rate)
    return judge


# The hidden units -----------------------------------------------------------------------------------------------------


class Units:
    """The hidden units of one feed-forward network of the decoder, while the translator reads sentences.

    layer  of the decoder, from 0
    Words are pieces of the tokenizer, such as "▁der"; a word counts where the decoder reads it.
    """

    def __init__(self, translator: Translator, examples: list[Example], layer: int) -> None:
        self.model, tokenizer = translator.model, translator.tokenizer
        self.pieces = np.array(tokenizer.pieces(range(tokenizer.vocab_size)))
        self.source, self.read, written = teacher_forced(tokenizer, examples)
        self.real = written != PAD
        self.words = self.pieces[self.read[self.real]]
        network: Any = self.model.decoder.layers[layer].feed_forward.sublayer
        self.rows = network.outer.weight.data

        def forward(x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
            y, cache = FeedForward.forward(network, x, rng)
            self.on = cache[1][self.real] > 0  # the hidden layer after ReLU
            return y, cache

        network.forward = forward
        self.model.forward(self.source, self.read)
        del network.forward

    def share_on(self, unit: int, words: Sequence[str] | None = None) -> float:
        """-> how often the unit is on at these words, or at all words"""
        at = self.on[:, unit] if words is None else self.on[np.isin(self.words, words), unit]
        return float(at.mean())

    def most_often_on(self, words: Sequence[str], n: int) -> list[int]:
        """-> the n units that are most often on at these words"""
        return np.argsort(-self.on[np.isin(self.words, words)].mean(axis=0), kind="stable")[:n].tolist()

    def favoured(self, unit: int, n: int) -> list[str]:
        """-> the n words whose scores the unit's row raises most"""
        scores = self.model.source_embedding.weight.data @ self.rows[unit]
        return self.pieces[np.argsort(-scores)[:n]].tolist()

    def probability(self, of: Sequence[str], after: Sequence[str], off: int | None = None) -> float:
        """-> the mean probability of some next words after others, with one unit switched off"""
        kept = self.rows.copy()
        if off is not None:
            self.rows[off] = 0
        logits = self.model.forward(self.source, self.read)[0][self.real][np.isin(self.words, after)].astype("float64")
        self.rows[...] = kept
        p = np.exp(logits - logits.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        return float(p[:, np.isin(self.pieces, of)].sum(axis=-1).mean())
