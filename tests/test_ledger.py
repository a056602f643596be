"""The ledger shows what is there: these layers, these planted bugs, code and tests by their names."""

import ast
import importlib.util
from collections import Counter
from pathlib import Path

import pytest

from scratchformer.config import tomllib
from scratchformer.nn.gradient_cases import CASES

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def ledger():
    spec = importlib.util.spec_from_file_location("ledger", ROOT / "tools" / "ledger.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures(ledger):
    return ledger.stored()


def names_in(path):
    """Every function and class of a file, as name or Class.name."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def test_the_page_and_the_readme_are_current(ledger, figures):
    advice = "python tools/ledger.py"
    assert ledger.PAGE.read_text(encoding="utf-8") == ledger.page(*figures), advice
    text = ledger.README.read_text(encoding="utf-8")
    assert text == ledger.readme(text, ledger.summary(*figures)), advice


def test_every_layer_is_in_the_figures_with_all_its_cases(figures):
    gradients = figures[0]["gradients"]
    assert {layer: entry["cases"] for layer, entry in gradients.items()} == Counter(case.layer for case in CASES)
    assert gradients.keys() <= figures[0]["oracle"].keys()


def test_the_figures_are_within_their_tolerances(ledger, figures):
    results, matrix = figures
    assert all(entry["worst"] < 1e-6 for entry in results["gradients"].values())
    assert all(value < 1e-10 for value in ledger.oracle_of_layers(results).values())
    assert all(ledger.is_caught(matrix[mutant.name]) for mutant in ledger.MUTANTS)
    assert results["coverage"]["percent"] >= 98


def test_the_matrix_is_of_the_mutants_as_they_are(ledger, figures):
    from matrix import patches_digest

    matrix = figures[1]
    assert matrix.keys() == {mutant.name for mutant in ledger.MUTANTS}
    for mutant in ledger.MUTANTS:
        assert matrix[mutant.name]["patches"] == patches_digest(mutant), f"{mutant.name} has changed: make ledger"


def test_the_paper_map_names_code_and_tests_that_exist():
    entries = tomllib.loads((ROOT / "tools" / "paper_map.toml").read_text(encoding="utf-8"))["says"]
    assert len(entries) > 30
    for entry in entries:
        assert "note" in entry or entry["code"] and entry["tests"], entry["what"]
        for folder, separator, references in (
            ("scratchformer", ":", entry.get("code", [])),
            ("tests", "::", entry.get("tests", [])),
        ):
            for reference in references:
                file, _, name = reference.partition(separator)
                assert (ROOT / folder / file).is_file(), reference
                assert not name or name in names_in(ROOT / folder / file), reference
