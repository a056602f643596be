"""The bundled corpus: English and German sentence pairs with their answers, which come with the package.

`tools/grammar.py` derived them, and a test derives some of them again. Beside the training, validation and test text
there are three diagnostic sets:

    test_coreference    minimal pairs: one adjective differs, and with it the noun meant, and with it er / sie / es
    test_compositional  an adjective and noun, or verb and object, that never share a training sentence
    test_long           more words than any training sentence, by coordination and subordination
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Iterable, NamedTuple

from scratchformer.errors import UserError
from scratchformer.files import make_directory, replace_text
from scratchformer.text.corpora import Pairs, read_lines

DIRECTORY = Path(__file__).parent / "tiny"
"""The files: SPLIT.en, SPLIT.de and SPLIT.jsonl. In a clone this is a link to data/tiny."""

SPLITS = ("train", "val", "test", "test_coreference", "test_compositional", "test_long")
PERSONAL = {"m": "er", "f": "sie", "n": "es"}
"""The German pronoun for "it", by the gender of the noun that is meant."""


class Example(NamedTuple):
    """One sentence pair with its answers. All indices count `words(source)` and `words(target)` from 0.

    tree         the English constituency tree in Penn brackets; its leaves are words(source)
    alignment    [source word, target word] pairs, sorted
    coreference  None, or: pronoun, antecedent, rival (the other noun, or None), target_pronoun: word indices;
                 expected: the German pronoun; pair: the number of the minimal pair (test_coreference only)
    """

    source: str
    target: str
    construction: str
    tree: str
    alignment: list[list[int]]
    coreference: dict | None


@cache
def read(split: str) -> list[Example]:
    """The examples of one of SPLITS."""
    sources, targets, answers = (read_lines(DIRECTORY / f"{split}.{suffix}") for suffix in ("en", "de", "jsonl"))
    return [
        Example(source, target, **json.loads(answer))
        for source, target, answer in zip(sources, targets, answers, strict=True)
    ]


@cache
def read_text(split: str) -> Pairs:
    """The sentences of one of SPLITS, without their answers."""
    source, target = (read_lines(DIRECTORY / f"{split}.{language}") for language in ("en", "de"))
    return Pairs(source, target, list(range(1, len(source) + 1)), 0)


def read_all() -> dict[str, list[Example]]:
    """All splits with their answers."""
    return {split: read(split) for split in SPLITS}


def words(sentence: str) -> list[str]:
    """Split a sentence into words: letters and hyphens hold together, each punctuation mark is a word of its own."""
    return re.findall(r"[\w-]+|[^\w\s]", sentence)


def as_text(parts: Iterable[str]) -> str:
    """Words to written text: no space before punctuation, a capital at the start."""
    text = re.sub(r" (?=\W( |$))", "", " ".join(parts))
    return text[0].upper() + text[1:]


def length(example: Example) -> int:
    """Words of the longer side."""
    return max(len(words(example.source)), len(words(example.target)))


# Writing --------------------------------------------------------------------------------------------------------------


def write_corpus(directory: Path, corpus: dict[str, list[Example]], annotations: Iterable[str] = SPLITS) -> list[str]:
    """Write {split}.en, {split}.de and, for the splits in `annotations`, {split}.jsonl: one JSON object a line.

    Returns the lines of the overlap report.
    Raises UserError if a file with other content already has one of these names, or the directory cannot be written.
    """
    texts = {}
    for split, examples in corpus.items():
        texts[f"{split}.en"] = as_lines(example.source for example in examples)
        texts[f"{split}.de"] = as_lines(example.target for example in examples)
        if split in annotations:
            texts[f"{split}.jsonl"] = as_lines(json.dumps(answers(example), ensure_ascii=False) for example in examples)
    for name, text in texts.items():
        path = directory / name
        if path.exists() and (not path.is_file() or path.read_bytes() != text.encode("utf-8")):
            raise UserError(f"{path}: is there already, with other content; choose another directory")
    make_directory(directory)
    for name, text in texts.items():
        replace_text(directory / name, text)
    return overlap_report(corpus)


def answers(example: Example) -> dict[str, Any]:
    """What an example knows beyond its two sentences."""
    return {key: value for key, value in example._asdict().items() if key not in ("source", "target")}


def as_lines(sentences: Iterable[str]) -> str:
    return "".join(sentence + "\n" for sentence in sentences)


def overlap_report(corpus: dict[str, list[Example]]) -> list[str]:
    """One line per split: its size, its lengths in words, and how many of its sentences occur in training."""
    train = corpus["train"]
    sources, targets = {example.source for example in train}, {example.target for example in train}
    lines = []
    for split, examples in corpus.items():
        lengths = [length(example) for example in examples]
        line = f"{split}: {len(examples)} pairs, {min(lengths)} to {max(lengths)} words"
        if split != "train":
            shared = sum(example.source in sources or example.target in targets for example in examples)
            line += f", {shared} in train"
        lines.append(line)
    return lines


# Scoring --------------------------------------------------------------------------------------------------------------


def spoken_pronoun(translation: str) -> str:
    """The er, sie or es of the subordinate clause: the first one after "weil", or after the last comma, or any."""
    spoken = [word.lower() for word in words(translation)]
    if "weil" in spoken[:-1]:
        _, _, clause = " ".join(spoken).partition("weil ")
    else:
        clause = " ".join(spoken).rpartition(",")[2]
    return next((word for word in clause.split() if word in PERSONAL.values()), "")


def coreference_score(translations: list[str], examples: list[Example]) -> dict[str, float]:
    """How often the German pronoun is the one that its antecedent demands; other errors do not count.

    accuracy       share of the sentences, among those with a coreference link
    pair_accuracy  share of the minimal pairs with both sentences right; 0 if there are no pairs

    Raises: ValueError if the two lists differ in length, or no example has a coreference link.
    """
    if len(translations) != len(examples):
        raise ValueError(f"{len(translations)} translations for {len(examples)} examples")
    right: list[bool] = []
    pairs: dict[int, list[bool]] = {}
    for translation, example in zip(translations, examples, strict=True):
        if example.coreference is None:
            continue
        right.append(spoken_pronoun(translation) == example.coreference["expected"])
        if "pair" in example.coreference:
            pairs.setdefault(example.coreference["pair"], []).append(right[-1])
    if not right:
        raise ValueError("no example has a coreference link")
    both = [all(members) for members in pairs.values()]
    return {"accuracy": sum(right) / len(right), "pair_accuracy": sum(both) / len(both) if both else 0.0}
