"""A small recurrent translator of short sentences of the bundled corpus (lesson 03).

Words are the tokens. An encoder reads the English words, a decoder writes the German ones. At every position the
decoder gets its own state and a vector made of the encoder's states, or two: the last of them, their plain mean, or
the weighted mean of attention.
Shapes: B batch, S English words, T German words and the end, d numbers in a state.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Embedding, Linear
from scratchformer.nn.parameter import Array, ParameterStore
from scratchformer.text import bundled
from support.recurrent import RNN
from support.reversal import LONGEST_GRADIENT, EncoderDecoder, PlainMean
from support.training import learn, padded

LONGEST, SIZE, STEPS, RATE, BATCH = 7, 48, 1000, 0.01, 64
"""English words of a sentence, numbers in a state, steps, the learning rate of the first half, sentences a step."""

BEGIN, END = 1, 2
"""The id read before the first German word, and the id written after the last one; 0 is padding."""


class Sentence(NamedTuple):
    """Words without the mark at the end, and [English word, German word] links, counted from 0."""

    english: list[str]
    german: list[str]
    links: list[list[int]]


class Corpus:
    """The sentences of at most LONGEST English words, those of the test with words of the training text alone.

    english, german  word -> id
    """

    def __init__(self) -> None:
        train = short_sentences("train")
        self.english = numbered(pair.english for pair in train)
        self.german = numbered(pair.german for pair in train)
        self.train = train
        self.test = [
            pair
            for pair in short_sentences("test")
            if self.english.keys() >= set(pair.english) and self.german.keys() >= set(pair.german)
        ]

    def ids(self, pairs: Sequence[Sentence]) -> tuple[Array, Array, Array]:
        """Pairs with equally many English words -> source (B, S), read and target (B, T)"""
        german = [[self.german[word] for word in pair.german] for pair in pairs]
        source = np.array([[self.english[word] for word in pair.english] for pair in pairs])
        return source, padded([[BEGIN, *ids] for ids in german]), padded([[*ids, END] for ids in german])

    def names(self) -> dict[int, str]:
        """Id -> German word, or a name in brackets."""
        return {0: "(padding)", BEGIN: "(begin)", END: "(end)"} | {i: word for word, i in self.german.items()}

    def batches(self, random: np.random.Generator) -> Iterator[tuple[tuple[Array, Array], Array]]:
        """Endless, every sentence once in each pass, in an order at random."""
        by_length = defaultdict(list)
        for pair in self.train:
            by_length[len(pair.english)].append(pair)
        while True:
            found = []
            for pairs in by_length.values():
                order = random.permutation(len(pairs))
                found += [[pairs[i] for i in order[start : start + BATCH]] for start in range(0, len(order), BATCH)]
            for i in random.permutation(len(found)):
                source, read, target = self.ids(found[i])
                yield (source, read), target


def numbered(sentences: Iterable[list[str]]) -> dict[str, int]:
    """Each word -> its id, from 3."""
    return {word: i for i, word in enumerate(sorted({word for words in sentences for word in words}), start=3)}


def short_sentences(split: str) -> list[Sentence]:
    """The first word of a sentence is written small, if it is so elsewhere."""
    found = [
        Sentence(bundled.words(one.source)[:-1], bundled.words(one.target)[:-1], one.alignment)
        for one in bundled.read(split)
    ]
    inside = {word for one in bundled.read("train") for text in one[:2] for word in bundled.words(text)[1:]}
    for one in found:
        for words in one[:2]:
            words[0] = words[0].lower() if words[0].lower() in inside else words[0]
    return [one for one in found if len(one.english) <= LONGEST]


class WordRNN(RNN):
    """An RNN that reads words: forward(ids (B, T), h0) -> h (B, T, d), cache;  backward(dh, cache) -> None, dh0"""

    def __init__(self, vocabulary: int, d: int, init: np.random.Generator, dtype: str) -> None:
        self.words = Embedding(Embedding.new_weight(vocabulary, d, init, dtype))
        super().__init__(d, d, init, dtype)

    def forward(self, ids: Array, h0: Array | None = None, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        x, words_cache = self.words.forward(ids)
        h, cache = super().forward(x, h0)
        return h, (words_cache, cache)

    def backward(self, dh: Array, cache: Any) -> tuple[Any, Array]:
        words_cache, cache = cache
        dx, dh0 = super().backward(dh, cache)
        self.words.backward(dx, words_cache)
        return None, dh0


class LastState(PlainMean):
    """The last state of the encoder for every position, in place of a mean."""

    def forward(self, s: Array, h: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        return np.repeat(h[:, -1:], s.shape[1], axis=1), (s.shape, h.shape)

    def backward(self, dc: Array, cache: Any) -> tuple[Array, Array]:
        s_shape, h_shape = cache
        dh = np.zeros(h_shape, dc.dtype)
        dh[:, -1] = dc.sum(axis=1)
        return np.zeros(s_shape, dc.dtype), dh


class Network(EncoderDecoder):
    """EncoderDecoder for words. look: LastState, PlainMean or AdditiveAttention, or a tuple of them"""

    def __init__(self, english: int, german: int, look: Any, seed: int, d: int, dtype: str = "float32") -> None:
        init = np.random.default_rng(seed)
        self.positions = ""
        self.encoder, self.decoder = WordRNN(english, d, init, dtype), WordRNN(german, d, init, dtype)
        self.looks = [each(d, d, d // 2, init, dtype) for each in (look if isinstance(look, tuple) else (look,))]
        self.output = Linear(d * (1 + len(self.looks)), german, init, dtype)
        self.store = ParameterStore(self.parameters())

    def rows(self, ids: Array, with_position: bool) -> Array:
        return ids


class Translator:
    """A Network and the words of its corpus, trained with Adam; in the second half of the steps the rate falls to 0."""

    def __init__(self, corpus: Corpus, look: Any, seed: int = 0, rate: float = RATE) -> None:
        self.corpus = corpus
        self.network = Network(3 + len(corpus.english), 3 + len(corpus.german), look, seed, SIZE)
        batches = corpus.batches(np.random.default_rng(seed))
        learn(
            self.network,
            (batch for _, batch in zip(range(STEPS), batches)),
            lambda step: rate * min(1, 2 * (1 - (step - 1) / STEPS)),
            LONGEST_GRADIENT,
        )

    def translate(self, english: str) -> str:
        """Write the likeliest word at each position, at most 12."""
        names = self.corpus.names()
        source, read = np.array([[self.corpus.english[word] for word in english.split()]]), [BEGIN]
        while len(read) <= 12:
            best = int(self.network.forward(source, np.array([read]))[0][0, -1].argmax())
            if best == END:
                break
            read.append(best)
        return " ".join(names[i] for i in read[1:])

    def map_of(self, pair: Sentence) -> Array:
        """The weights of attention on the way to the right translation: (T, S)"""
        source, read, _ = self.corpus.ids([pair])
        return self.network.weights(source, read)[0]

    def right(self, pair: Sentence) -> Array:
        """Mark the words of the translation that it writes after the right words before them: bool (T,)"""
        source, read, target = self.corpus.ids([pair])
        return (self.network.forward(source, read)[0].argmax(axis=-1) == target)[0]

    def written_without(self, pair: Sentence, other: Sentence, j: int) -> list[str]:
        """Words written after the right words before them, where attention finds state j of `other` in place of its own

        The decoder begins with the encoder's last state as before.
        """
        names = self.corpus.names()
        source, read, _ = self.corpus.ids([pair])
        (h, _), (s, _) = self.network.states(source, read)
        (others, _), _ = self.network.states(self.corpus.ids([other])[0], read)
        changed = h.copy()
        changed[:, j] = others[:, j]
        c, _ = self.network.looks[0].forward(s, changed)
        logits, _ = self.network.output.forward(np.concatenate([s, c], axis=2))
        return [names[i] for i in logits[0].argmax(axis=-1)]


def shares_right(translator: Translator) -> list[float]:
    """Of the German words for the first English word alone, of those for the last one alone, of all others"""
    found: tuple[list, list, list] = ([], [], [])
    for pair in translator.corpus.test:
        is_right = translator.right(pair)
        for j in range(len(pair.german)):
            sources = [i for i, at in pair.links if at == j]
            group = 0 if sources == [0] else 1 if sources == [len(pair.english) - 1] else 2
            found[group].append(is_right[j])
    return [float(np.mean(group)) for group in found]


def share_linked(corpus: Corpus, look_of: Callable[[Sentence], Array]) -> float:
    """The share of the linked German words for which look_of(pair) (T,) names an English word that is linked to it."""
    found = []
    for pair in corpus.test:
        looked = look_of(pair)
        for j in range(len(pair.german)):
            sources = [i for i, at in pair.links if at == j]
            if sources:
                found.append(looked[j] in sources)
    return float(np.mean(found))
