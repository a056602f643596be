"""Make the model that a configuration asks for."""

from __future__ import annotations

from typing import Any

from scratchformer.config import ModelConfig
from scratchformer.errors import UserError
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.model import Model
from scratchformer.nn.registry import own_model
from scratchformer.nn.text_encoder import TextEncoder
from scratchformer.nn.transformer import Transformer
from scratchformer.nn.vision import VisionTransformer

ARCHITECTURES: dict[str, type[Model]] = {
    "encoder-decoder": Transformer,
    "decoder": LanguageModel,
    "encoder": TextEncoder,
    "vision": VisionTransformer,
}
"""`model.architecture` -> the class."""


def new_model(config: ModelConfig, seed: int = 0, dtype: str = "float32") -> Model:
    """A model of this architecture and these sizes; `seed` decides the initial weights.

    config.defined_in is run before. If it names a class, that is the model, and must be a subclass of the architecture's.
    """
    kind: Any = ARCHITECTURES[config.architecture]
    own = own_model(config.defined_in) if config.defined_in else None
    if own and not issubclass(own, kind):
        raise UserError(f"{config.defined_in}: this task needs a subclass of {kind.__name__}")
    return (own or kind)(config, seed, dtype)
