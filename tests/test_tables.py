"""The pages show what the benchmarks measured, and nothing else."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "tools" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_current(tables):
    for path in tables.PAGES:
        page = path.read_text(encoding="utf-8")
        assert tables.with_tables(page) == page, "python tools/tables.py"


def test_every_table_is_on_a_page(tables):
    pages = "".join(path.read_text(encoding="utf-8") for path in tables.PAGES)
    assert [name for name in tables.TABLES if pages.count(f"<!-- table {name} -->") != 1] == []


def test_a_number_that_was_not_measured_is_replaced(tables):
    page = tables.PAGES[0].read_text(encoding="utf-8")
    before, mark, after = page.partition("<!-- table step -->\n\n")
    assert tables.with_tables(before + mark + "9.99 " + after) == page
