"""The bundled corpus: English and German sentence pairs with annotations, which are part of the package.

`tools/grammar.py` has generated them, and a test generates some of them again. Besides training, validation and test
text there are three diagnostic sets:

    test_coreference    minimal pairs: one adjective differs, so "it" means another noun, so German has er / sie / es
    test_compositional  an adjective and a noun, or a verb and an object, that never share a training sentence
    test_long           more words than any training sentence, by coordination and subordination
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Iterable, NamedTuple, Sequence

import numpy as np

from scratchformer.files import make_directory, write_new_texts
from scratchformer.text.corpora import Pairs, read_lines, read_pairs

DIRECTORY = Path(__file__).parent / "tiny"
"""The files: SPLIT.en, SPLIT.de and SPLIT.jsonl. In a clone this is a link to data/tiny."""

SPLITS = ("train", "val", "test", "test_coreference", "test_compositional", "test_long")
PERSONAL = {"m": "er", "f": "sie", "n": "es"}
"""The German pronoun for "it", by the gender of the noun that it refers to."""


class Example(NamedTuple):
    """A sentence pair with its annotations. All indices count `words(source)` and `words(target)` from 0.

    tree         the English constituency tree in Penn brackets; its leaves are words(source)
    alignment    [source word, target word] pairs, sorted
    coreference  None, or: pronoun, antecedent, rival (the other noun, or None), target_pronoun: word indices;
                 expected: the German pronoun; pair: the number of the minimal pair (test_coreference only)
    """

    source: str
    target: str
    construction: str = ""
    tree: str = ""
    alignment: list[list[int]] = []
    coreference: dict | None = None


@cache
def read(split: str) -> list[Example]:
    """Read the examples of one of SPLITS."""
    text, annotations = read_text(split), read_lines(DIRECTORY / f"{split}.jsonl")
    return [
        Example(source, target, **json.loads(annotation))
        for source, target, annotation in zip(text.source, text.target, annotations, strict=True)
    ]


@cache
def read_text(split: str) -> Pairs:
    """Read the sentences of one of SPLITS, without their annotations."""
    return read_pairs(DIRECTORY / f"{split}.en", DIRECTORY / f"{split}.de")


def words(sentence: str) -> list[str]:
    """Split a sentence into words of letters and hyphens; each punctuation mark is a word of its own."""
    return re.findall(r"[\w-]+|[^\w\s]", sentence)


def as_text(parts: Iterable[str]) -> str:
    """Join words into text: no space before punctuation, a capital at the start."""
    text = re.sub(r" (?=\W( |$))", "", " ".join(parts))
    return text[0].upper() + text[1:]


def length(example: Example) -> int:
    """The number of words of the longer side."""
    return max(len(words(example.source)), len(words(example.target)))


def both_right(right: np.ndarray, examples: Sequence[Example]) -> np.ndarray:
    """Find the minimal pairs with both sentences right: (examples, ...) bool -> (pairs, ...) bool"""
    pairs: dict[int, list[np.ndarray]] = {}
    for example, is_right in zip(examples, right, strict=True):
        if example.coreference is None or "pair" not in example.coreference:
            raise ValueError(f"not in a minimal pair, as the examples of test_coreference are: {example.source!r}")
        pairs.setdefault(example.coreference["pair"], []).append(is_right)
    return np.array([np.all(members, axis=0) for members in pairs.values()])


def spoken_pronoun(translation: str) -> str:
    """Return the er, sie or es of the subordinate clause: the first one after "weil", or else after the last comma.

    If there is neither a "weil" nor a comma, it is the first one of the sentence; "" if there is none.
    """
    spoken = [word.lower() for word in words(translation)]
    if "weil" in spoken[:-1]:
        _, _, clause = " ".join(spoken).partition("weil ")
    else:
        clause = " ".join(spoken).rpartition(",")[2]
    return next((word for word in clause.split() if word in PERSONAL.values()), "")


# Writing --------------------------------------------------------------------------------------------------------------


def write_corpus(directory: Path, corpus: dict[str, list[Example]]) -> list[str]:
    """Write {split}.en, {split}.de and {split}.jsonl with a JSON object on each line -> a line about each split"""
    texts: dict[Path, str] = {}
    for split, examples in corpus.items():
        annotations = (dict(zip(Example._fields[2:], example[2:])) for example in examples)
        lines = {
            "en": [example.source for example in examples],
            "de": [example.target for example in examples],
            "jsonl": [json.dumps(line, ensure_ascii=False) for line in annotations],
        }
        texts |= {directory / f"{split}.{ending}": "".join(f"{line}\n" for line in lines[ending]) for ending in lines}
    make_directory(directory)
    write_new_texts(texts)
    return [f"{split}: {len(examples)} pairs" for split, examples in corpus.items()]
