"""scratchformer: "Attention Is All You Need", complete, on NumPy arrays, with every gradient written by hand."""

import importlib

from scratchformer import nn

TYPE_CHECKING = False  # mypy takes it for True. Importing it from `typing` would delay the start of the command line.

MODULES = {
    "scratchformer.api": ("generate", "save_run", "train"),
    "scratchformer.config": ("Config", "ModelConfig", "preset", "with_settings"),
    "scratchformer.decoding.generation": ("Sampling",),
    "scratchformer.nn.dropout": ("DropoutKey",),
    "scratchformer.nn.gradcheck": ("gradcheck",),
    "scratchformer.nn.loss": ("cross_entropy",),
    "scratchformer.nn.optim": ("Adam", "noam"),
    "scratchformer.nn.registry": ("register",),
    "scratchformer.nn.transformer": ("Transformer",),
    "scratchformer.text.tokenizer": ("Tokenizer",),
    "scratchformer.training.run": ("load_model", "load_run"),
}
"""Module -> its public names."""

__all__ = sorted(name for names in MODULES.values() for name in names)


def use_fast_operations() -> None:
    """Choose the operations of `backends/cpu.py` for float32, in the whole process."""
    from scratchformer.backends.cpu import FAST
    from scratchformer.nn.ops import use_by_default

    use_by_default(FAST)


nn.before_use = use_fast_operations

if TYPE_CHECKING:
    from scratchformer.api import generate, save_run, train
    from scratchformer.config import Config, ModelConfig, preset, with_settings
    from scratchformer.decoding.generation import Sampling
    from scratchformer.nn.dropout import DropoutKey
    from scratchformer.nn.gradcheck import gradcheck
    from scratchformer.nn.loss import cross_entropy
    from scratchformer.nn.optim import Adam, noam
    from scratchformer.nn.registry import register
    from scratchformer.nn.transformer import Transformer
    from scratchformer.text.tokenizer import Tokenizer
    from scratchformer.training.run import load_model, load_run
else:

    def __getattr__(name):
        """Import a public name when it is used first: `scratchformer --help` need not wait for NumPy (PEP 562).

        The first name that computes, from here or from `scratchformer.nn`, chooses the fast operations.
        """
        module = next((module for module, names in MODULES.items() if name in names), None)
        if not module:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if module != "scratchformer.config":
            use_fast_operations()
        value = globals()[name] = getattr(importlib.import_module(module), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
