"""scratchformer: "Attention Is All You Need", complete, on NumPy arrays, with every gradient written by hand."""

import importlib

TYPE_CHECKING = False  # mypy takes it for True. Importing it from `typing` would delay the start of the command line.

__all__ = ["Adam", "DropoutKey", "ModelConfig", "Transformer", "cross_entropy", "gradcheck", "load_run", "noam"]

if TYPE_CHECKING:
    from scratchformer.config import ModelConfig
    from scratchformer.nn.dropout import DropoutKey
    from scratchformer.nn.gradcheck import gradcheck
    from scratchformer.nn.loss import cross_entropy
    from scratchformer.nn.optim import Adam, noam
    from scratchformer.nn.transformer import Transformer
    from scratchformer.training.run import load_run
else:
    MODULES = {
        "Adam": "scratchformer.nn.optim",
        "DropoutKey": "scratchformer.nn.dropout",
        "ModelConfig": "scratchformer.config",
        "Transformer": "scratchformer.nn.transformer",
        "cross_entropy": "scratchformer.nn.loss",
        "gradcheck": "scratchformer.nn.gradcheck",
        "load_run": "scratchformer.training.run",
        "noam": "scratchformer.nn.optim",
    }

    def __getattr__(name):
        """Import a public name when it is used first: `scratchformer --help` need not wait for NumPy (PEP 562)."""
        if name not in MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(MODULES[name]), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
