"""Make the model that a configuration asks for."""

from __future__ import annotations

from typing import Callable

from scratchformer.config import ModelConfig
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.model import Model
from scratchformer.nn.text_encoder import TextEncoder
from scratchformer.nn.transformer import Transformer
from scratchformer.nn.vision import VisionTransformer

ARCHITECTURES: dict[str, Callable[[ModelConfig, int, str], Model]] = {
    "encoder-decoder": Transformer,
    "decoder": LanguageModel,
    "encoder": TextEncoder,
    "vision": VisionTransformer,
}
"""`model.architecture` -> the class."""


def new_model(config: ModelConfig, seed: int = 0, dtype: str = "float32") -> Model:
    """A model of this architecture and these sizes; `seed` decides the initial weights."""
    return ARCHITECTURES[config.architecture](config, seed, dtype)
