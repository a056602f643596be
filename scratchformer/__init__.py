"""scratchformer: "Attention Is All You Need", complete, on NumPy arrays, with every gradient written by hand."""

import importlib

TYPE_CHECKING = False  # mypy takes it for True. Importing it from `typing` would delay the start of the command line.

__all__ = [
    "Adam",
    "Config",
    "DropoutKey",
    "ModelConfig",
    "Sampling",
    "Tokenizer",
    "Transformer",
    "cross_entropy",
    "generate",
    "gradcheck",
    "load_model",
    "load_run",
    "noam",
    "preset",
    "save_run",
    "train",
    "with_settings",
]

if TYPE_CHECKING:
    from scratchformer.api import generate, save_run, train
    from scratchformer.config import Config, ModelConfig, preset, with_settings
    from scratchformer.decoding.generation import Sampling
    from scratchformer.nn.dropout import DropoutKey
    from scratchformer.nn.gradcheck import gradcheck
    from scratchformer.nn.loss import cross_entropy
    from scratchformer.nn.optim import Adam, noam
    from scratchformer.nn.transformer import Transformer
    from scratchformer.text.tokenizer import Tokenizer
    from scratchformer.training.run import load_model, load_run
else:
    MODULES = {
        "Adam": "scratchformer.nn.optim",
        "Config": "scratchformer.config",
        "DropoutKey": "scratchformer.nn.dropout",
        "ModelConfig": "scratchformer.config",
        "Sampling": "scratchformer.decoding.generation",
        "Tokenizer": "scratchformer.text.tokenizer",
        "Transformer": "scratchformer.nn.transformer",
        "cross_entropy": "scratchformer.nn.loss",
        "generate": "scratchformer.api",
        "gradcheck": "scratchformer.nn.gradcheck",
        "load_model": "scratchformer.training.run",
        "load_run": "scratchformer.training.run",
        "noam": "scratchformer.nn.optim",
        "preset": "scratchformer.config",
        "save_run": "scratchformer.api",
        "train": "scratchformer.api",
        "with_settings": "scratchformer.config",
    }

    def __getattr__(name):
        """Import a public name when it is used first: `scratchformer --help` need not wait for NumPy (PEP 562).

        The first name that computes chooses the fast operations for float32 (`backends/cpu.py`).
        """
        if name not in MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if MODULES[name] != "scratchformer.config":
            from scratchformer.backends.cpu import FAST
            from scratchformer.nn.ops import use_by_default

            use_by_default(FAST)
        value = globals()[name] = getattr(importlib.import_module(MODULES[name]), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
