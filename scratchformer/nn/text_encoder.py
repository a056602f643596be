"""BERT: an encoder alone, which reads a text in both directions (Devlin et al. 2019, section 3)."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.attention import Mask
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Embedding, Unembedding
from scratchformer.nn.model import Model, check_ids
from scratchformer.nn.ops import ops_of, rows_of
from scratchformer.nn.parameter import Array, Layer, Parameter, ParameterStore
from scratchformer.nn.registry import new_layer
from scratchformer.nn.transformer import Encoder, lengths_of

N_TYPES = 2
"""Token types: 0 for the first segment of a text, 1 for the second."""


class TokenTypes(Layer):
    """Learned vectors that say to which of two segments a token belongs (Devlin et al. 2019, figure 2).

        y = x + G[token_types]

    G (2, D), normal with standard deviation d_model^-0.5.

    forward(x (B, T, D), token_types (B, T) int) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D)

    Keeps:  token_types.
    Raises: ValueError if x and token_types have different shapes.
    """

    def __init__(self, d_model: int, init: np.random.Generator, dtype: str = "float32") -> None:
        self.weight = Parameter(init.normal(0, d_model**-0.5, (N_TYPES, d_model)).astype(dtype))

    def forward(self, x: Array, token_types: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        if token_types.shape != x.shape[:-1]:
            raise ValueError(f"token_types has shape {token_types.shape}, but there are vectors for {x.shape[:-1]}")
        y = x + ops_of(x).gather_rows(self.weight.data, token_types.reshape(-1)).reshape(x.shape)
        return y, (token_types,)

    def backward(self, dy: Array, cache: Any) -> Array:
        (token_types,) = cache
        ops = ops_of(dy)
        # y = x + G[token_types]: a vector of G gets the sum over the tokens of its type
        is_of_type = token_types.reshape(-1) == np.arange(N_TYPES)[:, None]  # (2, B T)
        ops.add_product_inplace(self.weight.grad, ops.xp.asarray(is_of_type.astype(dy.dtype)), rows_of(dy))
        return dy


class TextEncoder(Model):
    """The model of BERT (Devlin et al. 2019, section 3): the Transformer's encoder on tokens, segments and positions.

        states = encoder(positions(token_types(embedding(ids))))
        logits = unembedding(states)

    Without classes, each state predicts the token of its position: the unembedding has the matrix (V, D) of the
    embedding, or one of its own if config.tied is "none". With config.n_classes, the state of the first token alone
    predicts the class of the text, counted from 1: E is (n_classes + 1, D).

    forward(ids (B, T), token_types (B, T), rng) -> logits (B, T, V) or (B, 1, n_classes + 1), cache
    backward(dlogits, cache) -> None: ids have no gradient; adds into Parameter.grad

    Ids are integers below vocab_size; 0 is padding and stands at the end, and no token attends to it. The first token
    is the start symbol, which stands for BERT's [CLS]; the end symbol stands for its [SEP].

    Keeps:    what its layers keep.
    Raises:   ValueError for ids or types that are empty, out of range or of different shapes, and for padding before a
              token.
    Differs:  from BERT. Embeddings are not normalised. Nothing stands between the encoder and the unembedding: no layer
              with LayerNorm before the words, none with tanh before the classes, no bias. There is no prediction of the
              next sentence. Weights begin as in the rest of this library, not at a standard deviation of 0.02.
    """

    def __init__(self, config: ModelConfig, seed: int = 0, dtype: str = "float32") -> None:
        super().__init__(config, dtype)
        init = np.random.default_rng(seed)
        words = Embedding.new_weight(config.vocab_size, config.d_model, init, dtype)
        self.embedding = Embedding(words)
        self.token_types = TokenTypes(config.d_model, init, dtype)
        self.positions = new_layer("positions", config, init, dtype)
        self.encoder = Encoder(config, init, dtype)
        if config.n_classes or config.tied == "none":
            words = Embedding.new_weight(config.n_outputs, config.d_model, init, dtype)
        self.unembedding = Unembedding(words)
        self.store = ParameterStore(self.parameters())

    def states(self, ids: Array, token_types: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        check_ids("ids", ids, self.config.vocab_size)
        check_ids("token_types", token_types, N_TYPES)
        x, embedding_cache = self.embedding.forward(ids)  # (B, T, D)
        x, types_cache = self.token_types.forward(x, token_types)
        x, positions_cache = self.positions.forward(x, rng=rng and rng.child(0))
        states, encoder_cache = self.encoder.forward(x, self.mask(ids), rng=rng and rng.child(1))
        caches = embedding_cache, types_cache, positions_cache, encoder_cache
        if self.config.n_classes:
            return states[:, :1], (states.shape, caches)
        return states, (states.shape, caches)

    def states_backward(self, dstates: Array, cache: Any) -> Iterator[Layer]:
        shape, (embedding_cache, types_cache, positions_cache, encoder_cache) = cache
        if self.config.n_classes:
            # states = states[:, :1]
            dfirst, dstates = dstates, ops_of(dstates).xp.zeros(shape, dstates.dtype)
            dstates[:, :1] = dfirst
        # states = encoder(positions(token_types(embedding(ids))))
        for layer, dx in self.encoder.backward_by_layer(dstates, encoder_cache):
            yield layer
        dx = self.positions.backward(dx, positions_cache)
        dx = self.token_types.backward(dx, types_cache)
        self.embedding.backward(dx, embedding_cache)

    def mask(self, ids: Array) -> Mask:
        """The mask of attention: all positions attend to all tokens, none to padding."""
        return Mask(key_lengths=lengths_of(ids))

    def layers(self) -> list[Layer]:
        return self.encoder.layers
