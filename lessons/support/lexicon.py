"""English nouns, their vectors in a model, and the gender of their German translation in the bundled corpus."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

import numpy as np

from scratchformer.decoding.translator import Translator
from scratchformer.nn.parameter import Array
from support.lesson import ROOT

sys.path.append(str(ROOT / "tools"))

from grammar import read_lexicon  # noqa: E402

LEXICON = read_lexicon()


def noun_vectors(translator: Translator) -> tuple[list[str], Array]:
    """-> the English nouns that are one piece, and their rows in the translator's embedding (n, D), float64"""
    ids_of = {word: translator.tokenizer.encode([word])[0] for word in LEXICON.nouns}
    nouns = [word for word, ids in ids_of.items() if len(ids) == 1]
    rows = translator.model.source_embedding.weight.data.astype("float64")
    return nouns, rows[np.array([ids_of[word][0] for word in nouns])]


class Genders:
    """The German genders of some English nouns, and whether the vectors (n, D) of the nouns are grouped by them."""

    def __init__(self, nouns: Sequence[str]) -> None:
        self.nouns = nouns
        self.of = np.array([LEXICON.nouns[noun].gender for noun in nouns])

    @staticmethod
    def known(words: Collection[str]) -> list[str]:
        """-> the nouns of the lexicon that are among these words"""
        return [noun for noun in LEXICON.nouns if noun in words]

    def nearest(self, vectors: Array) -> Array:
        """For each noun the numbers of the others, the largest cosine first. -> (n, n - 1)"""
        directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = directions @ directions.T
        np.fill_diagonal(cosines, np.inf)  # itself comes first, and is left out
        return np.argsort(-cosines, axis=1)[:, 1:]

    def agreement(self, vectors: Array) -> float:
        """-> the share of nouns whose nearest noun has the same gender, 0 to 1"""
        return float((self.of[self.nearest(vectors)[:, 0]] == self.of).mean())

    def same_kind(self, vectors: Array) -> float:
        """-> the share of nouns whose nearest noun is of the same kind (animal, person, tool, ...), 0 to 1"""
        kind_of = {noun: kind for kind, members in LEXICON.classes.items() for noun in members}
        kinds = np.array([kind_of[noun] for noun in self.nouns])
        return float((kinds[self.nearest(vectors)[:, 0]] == kinds).mean())

    def highest_exchanged(self, vectors: Array, n: int = 100) -> float:
        """-> the highest share if the genders are exchanged at random among nouns of one kind, n times"""
        random, nearest, shares = np.random.default_rng(0), self.nearest(vectors)[:, 0], []
        for _ in range(n):
            gender = self.of.copy()
            for members in LEXICON.classes.values():
                kind = np.isin(self.nouns, members)
                gender[kind] = random.permutation(gender[kind])
            shares.append((gender[nearest] == gender).mean())
        return float(max(shares))

    def plane(self, vectors: Array) -> Array:
        """-> (n, 2): the two directions in which the vectors differ most; horse has positive coordinates"""
        centred = vectors - vectors.mean(axis=0)
        plane = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
        return plane * np.sign(plane[self.nouns.index("horse")])
