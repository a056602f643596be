"""The Vision Transformer (Dosovitskiy et al. 2021): an image is a sequence of square patches.

Everything after the patches is the encoder of `nn/transformer.py`. P is the size of a patch in pixels.
"""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Embedding, Linear, Unembedding
from scratchformer.nn.model import Model
from scratchformer.nn.ops import ops_of
from scratchformer.nn.parameter import Array, Layer, Parameter, ParameterStore
from scratchformer.nn.registry import new_layer
from scratchformer.nn.transformer import Encoder


class PatchEmbedding(Layer):
    """Cuts images into squares and embeds each (Dosovitskiy et al. 2021, equation 1): a convolution with stride P.

        y_i = x_i W + b,   x_i the P^2 pixels of patch i, row by row

    `projection` has W (P^2, D), b (D,). Patches are counted row by row.

    forward(images (B, height, width)) -> y (B, patches, D), cache
    backward(dy (B, patches, D), cache) -> dimages (B, height, width)

    Keeps:   the patches, as many numbers as the images have.
    Raises:  ValueError if height or width is not a multiple of P.
    Differs: pixels have one channel, a shade of grey.
    """

    def __init__(self, patch_size: int, d_model: int, init: np.random.Generator, dtype: str = "float32") -> None:
        self.patch_size = patch_size
        self.projection = Linear(patch_size**2, d_model, init, dtype)

    def forward(self, images: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        (B, height, width), P = images.shape, self.patch_size
        if height % P or width % P:
            raise ValueError(f"images of {height} x {width} pixels cannot be cut into patches of {P} x {P}")
        squares = images.reshape(B, height // P, P, width // P, P).swapaxes(2, 3)  # (B, rows, columns, P, P)
        patches = squares.reshape(B, height // P * (width // P), P * P)
        y, projection_cache = self.projection.forward(patches)  # (B, patches, D)
        return y, (squares.shape, projection_cache)

    def backward(self, dy: Array, cache: Any) -> Array:
        shape, projection_cache = cache
        B, rows, columns, P, _ = shape
        # y = patches W + b
        dpatches = self.projection.backward(dy, projection_cache)  # (B, patches, P^2)
        # patches = images cut into squares
        return dpatches.reshape(shape).swapaxes(2, 3).reshape(B, rows * P, columns * P)


class ClassToken(Layer):
    """One learned vector before the sequence (Dosovitskiy et al. 2021, equation 1); its state will stand for the whole.

        y = [c; x]

    c (D,), zeros, as in the paper's public code.

    forward(x (B, T, D)) -> y (B, T + 1, D), cache
    backward(dy (B, T + 1, D), cache) -> dx (B, T, D)

    Keeps:  nothing.
    Raises: ValueError for an empty sequence.
    """

    def __init__(self, d_model: int, dtype: str = "float32") -> None:
        self.weight = Parameter(np.zeros(d_model, dtype))

    def forward(self, x: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        B, T, D = x.shape
        if not T:
            raise ValueError(f"x has no positions: its shape is {x.shape}")
        y = ops_of(x).xp.empty((B, T + 1, D), x.dtype)
        y[:, 0], y[:, 1:] = self.weight.data, x
        return y, ()

    def backward(self, dy: Array, cache: Any) -> Array:
        # y[:, 0] = c, in every sequence of the batch
        self.weight.grad += dy[:, 0].sum(axis=0, dtype=self.weight.grad.dtype)
        # y[:, 1:] = x
        return dy[:, 1:]


class VisionTransformer(Model):
    """An encoder that classifies images (Dosovitskiy et al. 2021, §3.1): the state of the class token decides.

        states = encoder(positions([c; patches W + b])) at the first position
        logits = unembedding(states),   with one vector for each class

    forward(images (B, image_size, image_size), rng) -> logits (B, 1, n_classes + 1), cache
    backward(dlogits (B, 1, n_classes + 1), cache) -> None: images are data, like ids; adds into Parameter.grad

    Classes count from 1: the logit of 0 belongs to no class, as 0 is not a target. Images are numbers of any type, and
    are converted to the parameters' type.

    config  the sizes; `seed` decides the initial weights, `dtype` is that of all parameters
    store   all parameters and all gradients as two flat arrays

    Raises:   ValueError for images that are empty, of another size or not finite numbers.
    Differs:  the class vectors have no bias; the paper has a hidden layer before them, except for fine-tuning.
    """

    def __init__(self, config: ModelConfig, seed: int = 0, dtype: str = "float32") -> None:
        super().__init__(config, dtype)
        init = np.random.default_rng(seed)
        self.patch_embedding = PatchEmbedding(config.patch_size, config.d_model, init, dtype)
        self.class_token = ClassToken(config.d_model, dtype)
        self.positions = new_layer("positions", config, init, dtype)
        self.encoder = Encoder(config, init, dtype)
        self.unembedding = Unembedding(Embedding.new_weight(config.n_outputs, config.d_model, init, dtype))
        self.store = ParameterStore(self.parameters())

    def states(self, images: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        """images (B, image_size, image_size) -> the states of the class token (B, 1, D), cache"""
        check_images(images, self.config.image_size)
        weight = self.class_token.weight.data
        pixels = ops_of(weight).xp.asarray(images.astype(weight.dtype))
        x, patches_cache = self.patch_embedding.forward(pixels)  # (B, patches, D)
        x, token_cache = self.class_token.forward(x)  # (B, patches + 1, D)
        x, positions_cache = self.positions.forward(x, rng=rng and rng.child(0))
        y, encoder_cache = self.encoder.forward(x, rng=rng and rng.child(1))
        return y[:, :1], (patches_cache, token_cache, positions_cache, encoder_cache, y.shape)

    def states_backward(self, dstates: Array, cache: Any) -> Iterator[Layer]:
        """Backward from the states, layer by layer. It yields each layer when its gradients are complete."""
        patches_cache, token_cache, positions_cache, encoder_cache, shape = cache
        # states = y[:, :1]
        dy = ops_of(dstates).xp.zeros(shape, dstates.dtype)
        dy[:, :1] = dstates
        # y = encoder(positions(class_token(patch_embedding(pixels))))
        for layer, dx in self.encoder.backward_by_layer(dy, encoder_cache):
            yield layer
        dx = self.positions.backward(dx, positions_cache)
        dx = self.class_token.backward(dx, token_cache)
        self.patch_embedding.backward(dx, patches_cache)

    def layers(self) -> list[Layer]:
        return [*self.encoder.layers]


def check_images(images: Array, size: int) -> None:
    """Raises ValueError unless these are images (B, size, size) of finite numbers."""
    kind = f"{images.ndim}-D of {images.dtype}" if hasattr(images, "ndim") else f"a {type(images).__name__}"
    if not kind.startswith("3-D") or images.dtype.kind not in "fiu":
        raise ValueError(f"images must be a 3-D array of numbers, not {kind}")
    if images.shape[1:] != (size, size) or not images.size:
        raise ValueError(f"images has shape {images.shape}; the model reads one or more of {size} x {size} pixels")
    if not np.isfinite(images).all():
        raise ValueError("images holds numbers that are not finite")
