import importlib
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture
def script():
    """script("name") -> benchmarks/name.py as a module"""
    return importlib.import_module
