"""The correctness report can be written, and its map of the paper names code and tests that exist."""

import ast
from functools import cache
from pathlib import Path

import correctness
import pytest

from scratchformer.config import tomllib

ROOT = Path(__file__).parents[2]


@cache
def names_in(path):
    """Every function and class of a file, as name or Class.name."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


ENTRIES = tomllib.loads((ROOT / "tools" / "paper_map.toml").read_text(encoding="utf-8"))["says"]
REFERENCES = [
    (folder, *reference.partition(separator)[::2])
    for entry in ENTRIES
    for folder, separator, references in (
        ("scratchformer", ":", entry.get("code", [])),
        ("tests", "::", entry.get("tests", [])),
    )
    for reference in references
]


def test_every_sentence_of_the_paper_has_code_and_tests_or_a_note():
    assert len(ENTRIES) > 30
    assert [entry["what"] for entry in ENTRIES if "note" not in entry and not (entry["code"] and entry["tests"])] == []


@pytest.mark.parametrize("folder, file, name", sorted(set(REFERENCES)))
def test_the_paper_map_names_code_and_tests_that_exist(folder, file, name):
    path = ROOT / folder / file
    assert path.is_file()
    assert not name or name in names_in(path)


def test_the_report_shows_what_was_measured():
    first, second = correctness.MUTANTS[:2]
    found = {
        "surroundings": {
            "date": "2030-01-01",
            "commit": "0123456789abcdef",
            "hardware": {"cpu": "a CPU"},
            "versions": {"python": "3", "numpy": "2"},
        },
        "gradients": {"Linear": {"cases": 3, "worst": 1e-9}, "LayerNorm": {"cases": 2, "worst": 2e-8}},
        "oracle": {"Linear": 0.0, "LayerNorm": 3e-15, "whole model": 4e-14},
        "caught": {mutant.name: mutant != second for mutant in correctness.MUTANTS},
        "suspects": {first.name: [first.suspect, "Linear"], second.name: ["Linear"]},
        "coverage": {"lines": 1000, "percent": 98.4},
    }
    summary = correctness.summary(found, {first.name: ["gradients", "flow"], second.name: ["flow"]})
    n = len(correctness.MUTANTS)
    for text in ("5 cases of 2 layers", "2.0e-08", "3.0e-15", "4.0e-14", f"{n - 1} of {n}", "1 of 2", "98.4 % of 1000"):
        assert text in summary
    page = correctness.page(found, {first.name: ["gradients", "flow"]})
    assert summary.splitlines()[2] in page and page.count("**not caught**") == 1
    assert f"gradients, flow | **{first.suspect}**, Linear |" in page
    begin, end = correctness.MARKS
    assert correctness.with_table(f"a\n{begin}old\n{end}b\n", "new") == f"a\n{begin}\nnew\n\n{end}b\n"
