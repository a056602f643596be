"""PyTorch is optional: with it, every test here carries the marker `oracle`; without it, none of them runs."""

from importlib.util import find_spec

import pytest

WITHOUT_TORCH = "the oracle is PyTorch, which is not installed here: pip install -e '.[test,oracle]'"


class NotCollected(pytest.Module):
    """A test module that is not even imported, for it would import torch."""

    def collect(self):
        pytest.skip(WITHOUT_TORCH)


def pytest_pycollect_makemodule(module_path, parent):
    return None if find_spec("torch") else NotCollected.from_parent(parent, path=module_path)


def pytest_itemcollected(item):
    item.add_marker(pytest.mark.oracle)
