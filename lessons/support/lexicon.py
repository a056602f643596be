"""The words of the bundled corpus with their gender, number and case, as its grammar knows them."""

import sys

import numpy as np

from scratchformer.decoding.translator import Translator
from scratchformer.nn.parameter import Array
from support.lesson import ROOT

sys.path.append(str(ROOT / "tools"))

from grammar import read_lexicon  # noqa: E402

__all__ = ["noun_vectors", "read_lexicon"]


def noun_vectors(translator: Translator) -> tuple[list[str], Array]:
    """-> the English nouns that are one piece, and their rows in the translator's embedding (n, D), float64"""
    ids_of = {word: translator.tokenizer.encode([word])[0] for word in read_lexicon().nouns}
    nouns = [word for word, ids in ids_of.items() if len(ids) == 1]
    rows = translator.model.source_embedding.weight.data.astype("float64")
    return nouns, rows[np.array([ids_of[word][0] for word in nouns])]
