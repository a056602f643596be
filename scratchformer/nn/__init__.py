"""The model: every layer with its forward and its hand-written backward, and the proof that they agree."""

import importlib
from typing import Any, Callable

MODULES = {
    "attention": ("CrossAttention", "Mask", "ScaledDotProductAttention", "SelfAttention"),
    "dropout": ("DropoutKey",),
    "language_model": ("LanguageModel",),
    "layers": ("AddNorm", "Embedding", "FeedForward", "LayerNorm", "LearnedPositions", "Linear", "PositionalEncoding")
    + ("Unembedding",),
    "loss": ("cross_entropy",),
    "model": ("Model",),
    "ops": ("ops_of", "using"),
    "optim": ("Adam", "noam"),
    "parameter": ("Layer", "Parameter"),
    "residual": ("PostNorm", "PreNorm"),
    "text_encoder": ("TextEncoder",),
    "transformer": ("Decoder", "DecoderLayer", "Encoder", "EncoderLayer", "Transformer"),
    "vision": ("VisionTransformer",),
}
"""Module -> its public names."""

__all__ = sorted(name for names in MODULES.values() for name in names)


before_use: Callable[[], None] = lambda: None
"""Called before each import of a public name. `scratchformer` sets it, to choose the fast operations."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is used first: no model waits for the others (PEP 562)."""
    for module, names in MODULES.items():
        if name in names:
            before_use()
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
