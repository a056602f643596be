"""Residual connections: a sublayer, the way around it, and where the normalisation stands (paper §3.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Iterator

from scratchformer.config import ModelConfig
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import AddNorm, LayerNorm
from scratchformer.nn.ops import ops_of
from scratchformer.nn.parameter import Array, Layer, Parameter, as_tuple


class Residual(Layer, ABC):
    """A sublayer with a residual connection and a normalisation (paper §3.1): PostNorm or PreNorm.

        h = before(x),   y = after(x, sublayer(h, ...))

    forward(x (B, T, D), *others) -> y (B, T, D), cache;   others (memory, masks) go to the sublayer unchanged
    backward(dy (B, T, D), cache) -> dx, or (dx, dmemory) if the sublayer reads a memory

    Names of parameters leave out `sublayer`: `self_attention.sublayer.qkv.weight` is `self_attention.qkv.weight` in
    checkpoints.
    """

    sublayer: Any
    norm: Layer

    def forward(self, x: Array, *others: Any, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        h, before_cache = self.before(x)
        update, sublayer_cache = self.sublayer.forward(h, *others, rng=rng and rng.child(0))
        y, after_cache = self.after(x, update, rng and rng.child(1))
        return y, (before_cache, sublayer_cache, after_cache)

    def backward(self, dy: Array, cache: Any) -> Any:
        before_cache, sublayer_cache, after_cache = cache
        # y = after(x, update)
        dx, dupdate = self.after_backward(dy, after_cache)
        # update = sublayer(h, ...)
        dh, *dothers = as_tuple(self.sublayer.backward(dupdate, sublayer_cache))
        # h = before(x); x was used twice, so its gradients add up
        dx = dx + self.before_backward(dh, before_cache)
        return (dx, *dothers) if dothers else dx

    @abstractmethod
    def before(self, x: Array) -> tuple[Array, Any]:
        """x -> what the sublayer reads, cache"""

    @abstractmethod
    def before_backward(self, dh: Array, cache: Any) -> Array:
        """dh -> its share of dx"""

    @abstractmethod
    def after(self, x: Array, update: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        """x and the sublayer's output -> y, cache"""

    @abstractmethod
    def after_backward(self, dy: Array, cache: Any) -> tuple[Array, Array]:
        """dy -> the part of dx that goes around the sublayer, dupdate"""

    def _named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        for name, parameter in super()._named_parameters():
            yield name.removeprefix("sublayer."), parameter


class PostNorm(Residual):
    """The paper's arrangement: add, then normalise (§3.1).

        y = LayerNorm(x + dropout(sublayer(x, ...)))

    Shapes and cache as Residual.
    """

    def __init__(self, sublayer: Layer, config: ModelConfig, dtype: str) -> None:
        self.sublayer = sublayer
        self.norm = AddNorm(config.d_model, dtype, config.ln_eps, config.P_drop)

    def before(self, x: Array) -> tuple[Array, Any]:
        return x, None

    def before_backward(self, dh: Array, cache: Any) -> Array:
        return dh

    def after(self, x: Array, update: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        return self.norm.forward(x, update, rng=rng)

    def after_backward(self, dy: Array, cache: Any) -> tuple[Array, Array]:
        return self.norm.backward(dy, cache)


class PreNorm(Residual):
    """The later arrangement: the sublayer reads the normalised x, and its output is added to x itself.

        y = x + dropout(sublayer(LayerNorm(x), ...))

    Shapes and cache as Residual.

    Differs:  not in the paper; its public code changed to this arrangement four months later.
    """

    def __init__(self, sublayer: Layer, config: ModelConfig, dtype: str) -> None:
        self.sublayer = sublayer
        self.norm = LayerNorm(config.d_model, dtype, config.ln_eps)
        self.P_drop = config.P_drop

    def before(self, x: Array) -> tuple[Array, Any]:
        return self.norm.forward(x)

    def before_backward(self, dh: Array, cache: Any) -> Array:
        return self.norm.backward(dh, cache)

    def after(self, x: Array, update: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        dropped, kept = ops_of(update).dropout(update, self.P_drop, rng)
        return x + dropped, kept

    def after_backward(self, dy: Array, kept: Any) -> tuple[Array, Array]:
        return dy, ops_of(dy).dropout_backward(dy, kept, self.P_drop)


def residual(sublayer: Layer, config: ModelConfig, dtype: str) -> Residual:
    """The sublayer in the arrangement that the configuration asks for."""
    return (PostNorm if config.norm == "post" else PreNorm)(sublayer, config, dtype)
