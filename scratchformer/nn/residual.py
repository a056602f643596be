"""Residual connections: add the sublayer's output to its input, and normalise after or before (paper §3.1)."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import AddNorm
from scratchformer.nn.ops import ops_of
from scratchformer.nn.parameter import Array, Layer, Parameter, as_tuple
from scratchformer.nn.registry import new_layer


class Residual(Layer):
    """A sublayer with a residual connection and a normalisation: PostNorm or PreNorm.

    forward(x (B, T, D), *others) -> y (B, T, D), cache;   others (memory, masks) go to the sublayer unchanged
    backward(dy (B, T, D), cache) -> dx, or (dx, dmemory) if the sublayer reads a memory

    Names of parameters leave out `sublayer`: `self_attention.sublayer.qkv.weight` is `self_attention.qkv.weight` in
    checkpoints.
    """

    sublayer: Any
    norm: Any

    def _named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        for name, parameter in super()._named_parameters():
            yield name.removeprefix("sublayer."), parameter


class PostNorm(Residual):
    """The paper's arrangement: add, then normalise (§3.1).

        y = LayerNorm(x + dropout(sublayer(x, ...)))

    Shapes as Residual.
    """

    def __init__(self, sublayer: Layer, config: ModelConfig, dtype: str) -> None:
        self.sublayer = sublayer
        self.norm = AddNorm(config.d_model, dtype, config.ln_eps, config.P_drop)

    def forward(self, x: Array, *others: Any, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        update, sublayer_cache = self.sublayer.forward(x, *others, rng=rng and rng.child(0))
        y, norm_cache = self.norm.forward(x, update, rng=rng and rng.child(1))
        return y, (sublayer_cache, norm_cache)

    def backward(self, dy: Array, cache: Any) -> Any:
        sublayer_cache, norm_cache = cache
        # y = LayerNorm(x + dropout(update))
        dx, dupdate = self.norm.backward(dy, norm_cache)
        # update = sublayer(x, ...); x was used twice, so its gradients add up
        dx_through, *dothers = as_tuple(self.sublayer.backward(dupdate, sublayer_cache))
        dx = dx + dx_through
        return (dx, *dothers) if dothers else dx


class PreNorm(Residual):
    """The later arrangement: the sublayer reads the normalised x, and its output is added to x itself.

        y = x + dropout(sublayer(norm(x), ...))

    norm is LayerNorm, or what `config.norm` names. Shapes as Residual.

    Differs:  not in the paper; its public code changed to this arrangement four months later.
    """

    def __init__(
        self, sublayer: Layer, config: ModelConfig, dtype: str, init: np.random.Generator = np.random.default_rng(0)
    ) -> None:
        self.sublayer = sublayer
        self.norm = new_layer("norm", config, init, dtype)
        self.P_drop = config.P_drop

    def forward(self, x: Array, *others: Any, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        n, norm_cache = self.norm.forward(x)
        update, sublayer_cache = self.sublayer.forward(n, *others, rng=rng and rng.child(0))
        dropped, kept = ops_of(update).dropout(update, self.P_drop, rng and rng.child(1))
        return x + dropped, (norm_cache, sublayer_cache, kept)

    def backward(self, dy: Array, cache: Any) -> Any:
        norm_cache, sublayer_cache, kept = cache
        # y = x + dropout(update)
        dupdate = ops_of(dy).dropout_backward(dy, kept, self.P_drop)
        # update = sublayer(norm(x), ...)
        dn, *dothers = as_tuple(self.sublayer.backward(dupdate, sublayer_cache))
        # x was used twice, so its gradients add up
        dx = dy + self.norm.backward(dn, norm_cache)
        return (dx, *dothers) if dothers else dx


def residual(sublayer: Layer, config: ModelConfig, init: np.random.Generator, dtype: str) -> Residual:
    """Put the sublayer into the arrangement that the configuration asks for."""
    if config.norm == "post":
        return PostNorm(sublayer, config, dtype)
    return PreNorm(sublayer, config, dtype, init)
