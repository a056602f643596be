"""The page about speed shows what the benchmarks measured, and nothing else."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def performance():
    spec = importlib.util.spec_from_file_location("performance", ROOT / "tools" / "performance.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current(performance):
    page = performance.PAGE.read_text(encoding="utf-8")
    assert performance.with_tables(page) == page, "python tools/performance.py"


def test_the_page_has_every_table(performance):
    page = performance.PAGE.read_text(encoding="utf-8")
    assert [name for name in performance.TABLES if f"<!-- table {name} -->" not in page] == []


def test_a_number_that_was_not_measured_is_replaced(performance):
    page = performance.PAGE.read_text(encoding="utf-8")
    before, mark, after = page.partition("<!-- table step -->\n\n")
    assert performance.with_tables(before + mark + "9.99 " + after) == page
