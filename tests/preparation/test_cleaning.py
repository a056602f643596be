from pathlib import Path

import numpy as np
import pytest

from scratchformer.preparation.cleaning import (
    clean_block,
    count_repeated_inplace,
    hashes_of,
    normalized,
    reason_to_drop,
)
from scratchformer.preparation.prepared import Options
from scratchformer.text.corpora import Block, ParallelFiles


@pytest.mark.parametrize(
    "line, expected",
    [
        ("a b", "a b"),
        ("  a   b ", "a b"),
        ("a\tb\x00 \x00c\x0cd\x85e", "a b c d e"),
        ("one\u2028two \u2029 three\r", "one two three"),
        ("\x01 \x02", ""),
        ("", ""),
        ("Prix\u00a0: 3\u202f€", "Prix\u00a0: 3\u202f€"),
        ("東京 🙂", "東京 🙂"),
    ],
)
def test_every_program_sees_a_normalized_line_as_one_line(line, expected):
    assert normalized(line) == expected
    assert len(normalized(line).splitlines()) <= 1


@pytest.mark.parametrize(
    "source, target, reason",
    [
        ("a", "b", "kept"),
        ("", "b", "empty"),
        ("a", "", "empty"),
        (" ".join("w" * 80), " ".join("w" * 80), "kept"),
        (" ".join("w" * 81), " ".join("w" * 80), "too_long"),
        (" ".join("w" * 80), " ".join("w" * 79) + " ok.", "too_long"),
        (" ".join("w" * 9), "w", "kept"),
        (" ".join("w" * 10), "w", "ratio"),
        ("w", " ".join("w" * 10), "ratio"),
        ("Don't!", "x", "kept"),
        (".........", "x", "kept"),
        ("..........", "x", "ratio"),
    ],
)
def test_the_rule_of_clean_corpus_n(source, target, reason):
    assert reason_to_drop(source, target, Options()) == reason


def block_of(*pairs):
    source, target = ("".join(pair[side] + "\n" for pair in pairs).encode() for side in (0, 1))
    return Block(ParallelFiles(Path("a"), Path("b")), source, target, 1)


@pytest.mark.parametrize("drop", [False, True])
def test_a_block_is_cleaned_and_counted(drop):
    pairs = [
        ("a\x0bb", "x  y"),
        (" ", "z"),
        ("w " * 81, "w"),
        ("w " * 10, "w"),
        ("Known .", "q"),
        ("r", "bekannt"),
        ("", "bekannt"),
        ("last", "letzte"),
    ]
    found = clean_block(block_of(*pairs), Options(drop_overlap=drop), {"Known .", "bekannt"})
    kept = [("a b", "x y"), *([] if drop else [("Known .", "q"), ("r", "bekannt")]), ("last", "letzte")]
    assert (found.source, found.target) == block_of(*kept)[1:3]
    assert found.counts == dict(lines=8, empty=2, too_long=1, ratio=1, held_out=2, kept=len(kept))
    assert np.array_equal(found.hashes, hashes_of(kept))


def test_repetitions_are_counted_by_hashes():
    rng = np.random.default_rng(0)
    pairs = [(str(a), str(b)) for a, b in rng.integers(0, 12, (300, 2))]
    assert count_repeated_inplace(hashes_of(pairs).copy()) == len(pairs) - len(set(pairs))
    assert count_repeated_inplace(hashes_of([]).copy()) == 0
    assert hashes_of([("a", "b")]) == hashes_of([("a", "b")]) != hashes_of([("b", "a")])
    assert hashes_of([("The dog sleeps .", "Der Hund schläft .")]).tolist() == [5844896013425918503]
