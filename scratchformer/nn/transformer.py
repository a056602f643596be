"""The Transformer of Figure 1: its layers, the two stacks, and the whole model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Iterator

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.attention import CrossAttention, KeyValueCache, Mask
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Embedding, Unembedding
from scratchformer.nn.model import Model, check_ids
from scratchformer.nn.ops import PAD
from scratchformer.nn.parameter import Array, Layer, ParameterStore, as_tuple
from scratchformer.nn.registry import new_layer
from scratchformer.nn.residual import residual

# Layers ---------------------------------------------------------------------------------------------------------------


class EncoderLayer(Layer):
    """One of the N layers of the encoder (Figure 1, left): self-attention, then feed-forward.

    forward(x (B, S, D), mask) -> y (B, S, D), cache
    backward(dy (B, S, D), cache) -> dx (B, S, D)

    kv_cache  for decoding with a causal mask: the positions before x
    """

    def __init__(self, config: ModelConfig, init: np.random.Generator, dtype: str = "float32") -> None:
        self.self_attention = residual(new_layer("attention", config, init, dtype), config, init, dtype)
        self.feed_forward = residual(new_layer("feed_forward", config, init, dtype), config, init, dtype)

    def forward(
        self, x: Array, mask: Mask = Mask(), kv_cache: KeyValueCache | None = None, rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        x, self_attention_cache = self.self_attention.forward(x, mask, kv_cache, rng=rng and rng.child(0))
        y, feed_forward_cache = self.feed_forward.forward(x, rng=rng and rng.child(1))
        return y, (self_attention_cache, feed_forward_cache)

    def backward(self, dy: Array, cache: Any) -> Array:
        self_attention_cache, feed_forward_cache = cache
        dx = self.feed_forward.backward(dy, feed_forward_cache)
        return self.self_attention.backward(dx, self_attention_cache)


class DecoderLayer(Layer):
    """One of the N layers of the decoder (Figure 1, right): causal self-attention, attention to the encoder's output
    (`memory`), then feed-forward.

    forward(x (B, T, D), memory (B, S, D), mask, memory_mask) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D), dmemory (B, S, D)

    kv_cache  for decoding: the positions before x, and the keys and values of memory
    """

    def __init__(self, config: ModelConfig, init: np.random.Generator, dtype: str = "float32") -> None:
        self.self_attention = residual(new_layer("attention", config, init, dtype), config, init, dtype)
        sizes = config.d_k, config.d_v, config.attention_bias, config.attention_dropout
        attention = CrossAttention(config.d_model, config.h, init, dtype, *sizes)
        self.cross_attention = residual(attention, config, init, dtype)
        self.feed_forward = residual(new_layer("feed_forward", config, init, dtype), config, init, dtype)

    def forward(
        self,
        x: Array,
        memory: Array,
        mask: Mask = Mask(causal=True),
        memory_mask: Mask = Mask(),
        kv_cache: tuple[KeyValueCache | None, KeyValueCache | None] = (None, None),
        rng: DropoutKey | None = None,
    ) -> tuple[Array, Any]:
        of_x, of_memory = kv_cache
        x, self_attention_cache = self.self_attention.forward(x, mask, of_x, rng=rng and rng.child(0))
        x, cross_attention_cache = self.cross_attention.forward(
            x, memory, memory_mask, of_memory, rng=rng and rng.child(1)
        )
        y, feed_forward_cache = self.feed_forward.forward(x, rng=rng and rng.child(2))
        return y, (self_attention_cache, cross_attention_cache, feed_forward_cache)

    def backward(self, dy: Array, cache: Any) -> tuple[Array, Array]:
        self_attention_cache, cross_attention_cache, feed_forward_cache = cache
        dx = self.feed_forward.backward(dy, feed_forward_cache)
        dx, dmemory = self.cross_attention.backward(dx, cross_attention_cache)
        return self.self_attention.backward(dx, self_attention_cache), dmemory


# Stacks ---------------------------------------------------------------------------------------------------------------


class Stack(Layer, ABC):
    """N layers of a `kind`. With pre-norm one more norm follows, since the last layer's output is not normalised.

    forward(x (B, T, D), *others) -> y (B, T, D), cache;   others (memory, masks) go to each layer
    backward(dy (B, T, D), cache) -> dx, or (dx, dmemory) if the layers read a memory

    kv_caches  for decoding: one for each layer. Nothing is kept for backward then.
    """

    @property
    @abstractmethod
    def kind(self) -> type:
        """The class of the layers."""

    def __init__(self, config: ModelConfig, init: np.random.Generator, dtype: str = "float32") -> None:
        self.layers = [self.kind(config, init, dtype) for _ in range(config.N)]
        self.final_norm = None if config.norm == "post" else new_layer("norm", config, init, dtype)

    def forward(
        self, x: Array, *others: Any, kv_caches: list | None = None, rng: DropoutKey | None = None
    ) -> tuple[Array, Any]:
        caches = []
        for index, layer in enumerate(self.layers):
            if kv_caches:
                x, _ = layer.forward(x, *others, kv_cache=kv_caches[index])
            else:
                x, cache = layer.forward(x, *others, rng=rng and rng.child(index))
                caches.append(cache)
        y, norm_cache = self.final_norm.forward(x) if self.final_norm else (x, None)
        return y, (caches, norm_cache)

    def backward(self, dy: Array, cache: Any) -> Any:
        for _, *gradients in self.backward_by_layer(dy, cache):
            pass
        return tuple(gradients) if len(gradients) > 1 else gradients[0]

    def backward_by_layer(self, dy: Array, cache: Any) -> Iterator[tuple]:
        """Backward, last layer first: yield each layer when its gradients are complete, with dx and dmemory so far."""
        caches, norm_cache = cache
        dx = self.final_norm.backward(dy, norm_cache) if self.final_norm else dy
        dothers: list[Array] = []
        for layer in reversed(self.layers):
            dx, *shares = as_tuple(layer.backward(dx, caches.pop()))  # pop frees the activations
            dothers = [d + share for d, share in zip(dothers, shares)] if dothers else shares  # all read one memory
            yield layer, dx, *dothers


class Encoder(Stack):
    """The stack that reads the source (paper §3.1, Figure 1 left).

    forward(x (B, S, D), mask) -> y (B, S, D), cache
    backward(dy (B, S, D), cache) -> dx (B, S, D)
    """

    kind = EncoderLayer


class Decoder(Stack):
    """The stack that writes the target while it attends to the encoder's output (paper §3.1, Figure 1 right).

    forward(x (B, T, D), memory (B, S, D), mask, memory_mask) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D), dmemory (B, S, D)
    """

    kind = DecoderLayer


# The whole model ------------------------------------------------------------------------------------------------------


class Transformer(Model):
    """The model of "Attention Is All You Need" (Figure 1).

        memory = encoder(positions(embedding(source_ids)))
        logits = unembedding(decoder(positions(embedding(target_in_ids)), memory))

    forward(source_ids (B, S), target_in_ids (B, T), rng) -> logits (B, T, V), cache
    backward(dlogits (B, T, V), cache) -> None: ids have no gradient; adds into Parameter.grad

    Ids are integers below vocab_size; 0 is padding and stands at the end. target_in_ids is the target shifted right:
    it begins with the start symbol, and position t of the logits predicts token t of the target.

    config  the sizes; `seed` decides the initial weights, `dtype` is that of all parameters
    store   all parameters and all gradients as two flat arrays

    Keeps:    what its layers keep; the logits are the largest single array.
    Raises:   ValueError for ids that are empty, out of range or of the wrong shape, and for sources with padding before
              a token.
    Differs:  decoding starts from a learned vector for the start symbol; the paper's code starts from zeros (an id of 0
              in target_in_ids gives exactly that). With `n_tags`, the decoder is told the next word (`NextWord`).
    """

    def __init__(self, config: ModelConfig, seed: int = 0, dtype: str = "float32") -> None:
        super().__init__(config, dtype)
        init = np.random.default_rng(seed)
        sizes = config.n_outputs, config.d_model
        source = Embedding.new_weight(config.vocab_size, config.d_model, init, dtype)
        target = source if config.tied == "all" else Embedding.new_weight(*sizes, init, dtype)
        output = target if config.tied != "none" else Embedding.new_weight(*sizes, init, dtype)

        self.source_embedding = Embedding(source)
        self.source_positions = new_layer("positions", config, init, dtype)
        self.encoder = Encoder(config, init, dtype)
        self.target_embedding = Embedding(target)
        self.next_word: Any = None
        if config.n_tags:
            from scratchformer.nn.next_word import NextWord

            self.next_word = NextWord(config.n_tags)
        self.target_positions = new_layer("positions", config, init, dtype)
        self.decoder = Decoder(config, init, dtype)
        self.unembedding = Unembedding(output)
        self.store = ParameterStore(self.parameters())

    def states(self, source_ids: Array, target_in_ids: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        """forward without the last step: ids -> the decoder's output (B, T, D), cache"""
        check_ids("target_in_ids", target_in_ids, self.config.n_outputs)
        memory, memory_mask, encoder_cache = self.encode(source_ids, rng)
        if len(source_ids) != len(target_in_ids):
            raise ValueError(f"{len(source_ids)} sources, but {len(target_in_ids)} targets")
        x, embedding_cache = self.target_embedding.forward(target_in_ids)  # (B, T, D)
        next_word_cache = None
        if self.next_word:
            k = self.next_word.count(target_in_ids)
            x, next_word_cache = self.next_word.forward(x, memory, k, memory_mask)
        x, positions_cache = self.target_positions.forward(x, rng=rng and rng.child(2))
        # The target's padding needs no mask: it stands at the end, where no real token attends to it.
        states, decoder_cache = self.decoder.forward(
            x, memory, Mask(causal=True), memory_mask, rng=rng and rng.child(3)
        )
        return states, (encoder_cache, embedding_cache, next_word_cache, positions_cache, decoder_cache)

    def states_backward(self, dstates: Array, cache: Any) -> Iterator[Layer]:
        """Backward from the decoder's output, layer by layer. It yields each layer when its gradients are complete."""
        encoder_cache, embedding_cache, next_word_cache, positions_cache, decoder_cache = cache
        # states = decoder(target_positions(next_word(target_embedding(target_in_ids), memory)), memory)
        for layer, dx, dmemory in self.decoder.backward_by_layer(dstates, decoder_cache):
            yield layer
        dx = self.target_positions.backward(dx, positions_cache)
        if self.next_word:
            dx, share = self.next_word.backward(dx, next_word_cache)
            dmemory = dmemory + share
        self.target_embedding.backward(dx, embedding_cache)
        # memory = encoder(source_positions(source_embedding(source_ids)))
        embedding_cache, positions_cache, stack_cache = encoder_cache
        for layer, dx in self.encoder.backward_by_layer(dmemory, stack_cache):
            yield layer
        dx = self.source_positions.backward(dx, positions_cache)
        self.source_embedding.backward(dx, embedding_cache)

    def encode(self, source_ids: Array, rng: DropoutKey | None = None) -> tuple[Array, Mask, Any]:
        """source_ids (B, S) -> memory (B, S, D), the mask of its padding, cache"""
        check_ids("source_ids", source_ids, self.config.vocab_size)
        mask = Mask(key_lengths=lengths_of(source_ids))
        x, embedding_cache = self.source_embedding.forward(source_ids)  # (B, S, D)
        x, positions_cache = self.source_positions.forward(x, rng=rng and rng.child(0))
        memory, encoder_cache = self.encoder.forward(x, mask, rng=rng and rng.child(1))
        return memory, mask, (embedding_cache, positions_cache, encoder_cache)

    def layers(self) -> list[Layer]:
        return [*self.encoder.layers, *self.decoder.layers]


def lengths_of(ids: Array) -> Array:
    """The number of tokens in each row (B, S) -> (B,) int. Raises ValueError for padding before a token."""
    real = ids != PAD
    if (real[:, 1:] & ~real[:, :-1]).any():
        raise ValueError("padding (id 0) stands before a token; it must follow the sequence")
    return real.sum(axis=1)
