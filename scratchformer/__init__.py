"""scratchformer: "Attention Is All You Need", complete, on NumPy arrays, with every gradient written by hand."""

import scratchformer.backends.cpu  # noqa: F401  so that float32 arrays find their operations
from scratchformer.config import ModelConfig
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.training.run import load_run

__all__ = ["Adam", "DropoutKey", "ModelConfig", "Transformer", "cross_entropy", "gradcheck", "load_run", "noam"]
