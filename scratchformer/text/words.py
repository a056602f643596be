"""Vocabularies of whole words, for a parser: it reads words, and writes the symbols of trees."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from scratchformer.errors import UserError, require_list
from scratchformer.text.tokenizer import N_SPECIALS, UNK, Tokenizer, _text_ids

PAIR, BETWEEN = b"scratchformer tokenizer pair 3\n", b"\n\n"
"""The beginning of the file of a TokenizerPair, and what separates its two lists of words."""

FREQUENT, FREQUENT_CLASS = 3, 10
"""Least number of occurrences of a word with an id of its own, and of the words of a class with an id."""


class WordTokenizer(Tokenizer):
    """A list of words. A sentence has one id for each of its words, which spaces separate.

    A word that is not in the list has the id of the first of its classes that is, see `spellings`, or else UNK.
    """

    def __init__(self, serialized: bytes) -> None:
        self.serialized = serialized
        self._pieces = ["<pad>", "</s>", "<s>", "<unk>", *serialized.decode("utf-8").split("\n")]
        self._ids = {piece: id_ for id_, piece in enumerate(self._pieces[N_SPECIALS:], N_SPECIALS)}

    @classmethod
    def of(cls, words: Iterable[str]) -> "WordTokenizer":
        """Make the tokenizer of these words, in this order."""
        return cls("\n".join(words).encode())

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[int(i)] for i in ids]

    @classmethod
    def train_words(cls, sentences: Iterable[str], most: int) -> "WordTokenizer":
        """The frequent words of these sentences, at most `most` of them, and the frequent classes of the others."""
        others = Counter(word for sentence in sentences for word in sentence.split())
        known = [word for word, n in others.most_common(most) if n >= FREQUENT]
        for level in range(1, N_SPELLINGS):  # the classes of the words that have no id yet
            taken = set(known)
            others = Counter({word: n for word, n in others.items() if spellings(word)[level - 1] not in taken})
            classes = Counter[str]()
            for word, n in others.items():
                classes[spellings(word)[level]] += n
            known += [each for each, n in classes.most_common() if n >= FREQUENT_CLASS and each not in taken]
        if not known:
            raise UserError(f"too little text for a vocabulary: no word occurs {FREQUENT} times")
        return cls.of(known)

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """Return the id of each word, without BOS and EOS."""
        require_list(sentences)
        return [[self._id(word) for word in sentence.split()] for sentence in sentences]

    def _id(self, word: str) -> int:
        return next((self._ids[each] for each in spellings(word) if each in self._ids), UNK)

    def decode(self, sentences: Iterable[Sequence[int]]) -> list[str]:
        """Return the words of each sequence of ids up to its first EOS, joined by spaces, without PAD and BOS."""
        return [" ".join(self.pieces(_text_ids(ids))) for ids in sentences]


def spellings(word: str) -> list[str]:
    """The word and its classes, the narrowest first: its kind with its last letters, and its kind alone.

    Classes contain a space, so that no word is taken for one: [name -son], [name -on], [name -n], [name ]
    """
    kind = "number" if re.search(r"\d", word) else "name" if word[0].isupper() else "word"
    kind += " with hyphen" if "-" in word[1:] else ""
    return [word, *(f"[{kind} -{word[-n:].lower()}]" for n in (3, 2, 1)), f"[{kind} ]"]


N_SPELLINGS = len(spellings("word"))


class TokenizerPair(WordTokenizer):
    """Two vocabularies of words. Sentences and pieces belong to the source, but `decode` gives the target."""

    def __init__(self, source: WordTokenizer, target: WordTokenizer) -> None:
        super().__init__(source.serialized)
        self.source, self.target = source, target
        self.serialized = PAIR + source.serialized + BETWEEN + target.serialized

    def decode(self, sentences: Iterable[Sequence[int]]) -> list[str]:
        return self.target.decode(sentences)

    def same_pieces(self, other: Any) -> bool:
        return self.source.same_pieces(other.source) and self.target.same_pieces(other.target)


def read_pair(serialized: bytes) -> TokenizerPair:
    """Make a pair of vocabularies from its file."""
    source, target = map(WordTokenizer, serialized.removeprefix(PAIR).split(BETWEEN))
    return TokenizerPair(source, target)
