"""Do noun and verb agree? A task that no sum of votes, one for each word, can solve (lesson 11).

*The goat sleeps* and *the goats sleep* are right, *the goats sleeps* and *the goat sleep* are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product, repeat
from typing import Any

import numpy as np

from scratchformer.nn.attention import CrossAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Embedding, Linear
from scratchformer.nn.parameter import Array, Layer, ParameterStore
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
