"""Make the model that a configuration asks for."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

from scratchformer.config import ModelConfig
from scratchformer.errors import UserError
from scratchformer.nn.model import Model
from scratchformer.nn.registry import own_model

ARCHITECTURES = {
    "encoder-decoder": "scratchformer.nn.transformer:Transformer",
    "decoder": "scratchformer.nn.language_model:LanguageModel",
    "encoder": "scratchformer.nn.text_encoder:TextEncoder",
    "vision": "scratchformer.nn.vision:VisionTransformer",
}
"""`model.architecture` -> the class, which is imported when it is used."""


def new_model(config: ModelConfig, seed: int = 0, dtype: str = "float32") -> Model:
    """A model of this architecture and these sizes; `seed` decides the initial weights."""
    return model_class(config)(config, seed, dtype)


def model_class(config: ModelConfig) -> Any:
    """The class of the architecture's model, or the subclass that `config.defined_in` names; its file is run before."""
    kind = resolve_name(ARCHITECTURES[config.architecture])
    own = own_model(config.defined_in) if config.defined_in else None
    if own and not issubclass(own, kind):
        raise UserError(f"{config.defined_in}: this task needs a subclass of {kind.__name__}")
    return own or kind
