import importlib
from pathlib import Path

import pytest


@pytest.fixture
def script(monkeypatch):
    """script("name") -> benchmarks/name.py as a module"""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module
