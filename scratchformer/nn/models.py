"""Make the model that a configuration asks for."""

from __future__ import annotations

from pkgutil import resolve_name

from scratchformer.config import ModelConfig
from scratchformer.nn.model import Model

ARCHITECTURES = {
    "encoder-decoder": "scratchformer.nn.transformer:Transformer",
    "decoder": "scratchformer.nn.language_model:LanguageModel",
    "encoder": "scratchformer.nn.text_encoder:TextEncoder",
    "vision": "scratchformer.nn.vision:VisionTransformer",
}
"""`model.architecture` -> the class, which is imported when it is used."""


def new_model(config: ModelConfig, seed: int = 0, dtype: str = "float32") -> Model:
    """A model of this architecture and these sizes; `seed` decides the initial weights."""
    return resolve_name(ARCHITECTURES[config.architecture])(config, seed, dtype)
