"""Decoders and language models, one position at a time.

The keys and values of earlier positions do not change when another position is written. So each layer keeps them in a
cache, and a step computes only the new position: n steps cost about as much as one forward pass over n positions,
instead of n passes. The layers are those of `nn`: what is here repeats their forward for new positions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scratchformer.nn.attention import CrossAttention, Mask, SelfAttention, join_heads, split_heads
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.ops import by_head, ops_of
from scratchformer.nn.parameter import Array
from scratchformer.nn.residual import Residual
from scratchformer.nn.transformer import DecoderLayer, Transformer

INITIAL_POSITIONS = 32
"""A new cache has room for this many positions. It doubles when it is full."""


class KeyValueCache(NamedTuple):
    """Keys (R, t, H, d_k) and values (R, t, H, d_v) of R hypotheses or sentences.

    t counts the positions in use. The arrays have room for more rows and positions, and `extended` and
    `copy_rows_inplace` write into them: a cache that shares these arrays must not be used after that.
    """

    t: int
    keys: Array
    values: Array

    def first(self, rows: int) -> tuple[Array, Array]:
        """The keys and values of the first rows."""
        return self.keys[:rows, : self.t], self.values[:rows, : self.t]

    def extended(self, k: Array, v: Array) -> KeyValueCache:
        """With n more positions of the R rows that are still in use: k (R, n, H, d_k), v (R, n, H, d_v)."""
        t, keys, values = self
        end = t + k.shape[1]
        while end > keys.shape[1]:  # full: make room for twice as many
            xp = ops_of(k).xp
            keys, values = (xp.concatenate([x, xp.empty_like(x)], axis=1) for x in (keys, values))
        keys[: len(k), t:end], values[: len(v), t:end] = k, v
        return KeyValueCache(end, keys, values)

    def copy_rows_inplace(self, source: Array, to: Array) -> None:
        """Row source[i] becomes row to[i], for all i at once. source and to are arrays of the cache's library."""
        for x in (self.keys, self.values):
            x[to, : self.t] = x[source, : self.t]


class DecodingState(NamedTuple):
    """What the decoder keeps between two steps, for B sentences with W hypotheses each.

    memory       for each layer, the keys and values (B, S, H, .) of the encoder's output
    encoded      the encoder's output (B, S, D) itself, if the model has a `NextWord`
    n_tagged     (B W,) int, the tags that each hypothesis has; (B,) before the first step
    memory_mask  the lengths of the sources
    kv_cache     for each layer, the keys and values (B W, t, H, .) of the t positions written so far
    position     t

    `decoding_step` and `select` overwrite the old state: use only what they return.
    """

    memory: list[KeyValueCache]
    memory_mask: Mask
    kv_cache: list[KeyValueCache]
    position: int
    encoded: Array | None = None
    n_tagged: np.ndarray | None = None

    def select(self, sentences: Array, hypotheses: Array) -> DecodingState:
        """Keep some sentences (indices into B) and hypotheses (indices into B W), in the given order."""
        for index, caches in ((sentences, self.memory), (hypotheses, self.kv_cache)):
            moved = np.flatnonzero(index != np.arange(len(index)))
            if len(moved):
                xp = ops_of(caches[0].keys).xp
                source, to = xp.asarray(index[moved]), xp.asarray(moved)
                for cache in caches:
                    cache.copy_rows_inplace(source, to)
        state = self._replace(memory_mask=Mask(self.memory_mask.key_lengths[sentences]))  # type: ignore[index]
        if self.encoded is None or self.n_tagged is None:
            return state
        encoded = self.encoded[ops_of(self.encoded).xp.asarray(sentences)]
        return state._replace(encoded=encoded, n_tagged=self.n_tagged[hypotheses])


def begin_decoding(model: Transformer, source_ids: Array, beam: int = 1) -> DecodingState:
    """Encode the sources (B, S). The state has room for `beam` hypotheses for each."""
    memory, memory_mask, _ = model.encode(source_ids)
    layers, next_word = model.decoder.layers, model.next_word
    return DecodingState(
        [memory_keys_values(layer.cross_attention.sublayer, memory) for layer in layers],
        memory_mask,
        [empty_cache(layer.self_attention.sublayer, len(memory) * beam) for layer in layers],
        0,
        memory if next_word else None,
        np.zeros(len(memory), int) if next_word else None,
    )


def decoding_step(model: Transformer, ids: Array, state: DecodingState) -> tuple[Array, DecodingState]:
    """Read the last token of each hypothesis, ids (B, W) -> logits (B, W, V) for the next token, new state.

    The logits are at least float32, whatever the weights are stored as. The ids are not checked: the caller chose them
    among the columns of the logits.
    """
    x, _ = model.target_embedding.forward(ids)  # (B, W, D)
    if model.next_word and state.n_tagged is not None:
        k = state.n_tagged.reshape(len(ids), -1) + model.next_word.is_tag(ids)  # (B, W)
        x, _ = model.next_word.forward(x, state.encoded, k, state.memory_mask)
        state = state._replace(n_tagged=k.reshape(-1))
    rows, _ = model.target_positions.forward(x.reshape(-1, 1, x.shape[-1]), state.position)  # (B W, 1, D)
    x = rows.reshape(x.shape)
    kv_cache = []
    for layer, memory, cache in zip(model.decoder.layers, state.memory, state.kv_cache):
        x, cache = layer_step(layer, x, memory, state.memory_mask, cache)
        kv_cache.append(cache)
    logits = last_logits(model, x)  # (B, W, V)
    return logits, state._replace(kv_cache=kv_cache, position=state.position + 1)


def last_logits(model: Transformer | LanguageModel, x: Array) -> Array:
    """From the output of the last layer (..., D) to logits (..., V), at least float32."""
    x, _ = model.decoder.finish(x)
    logits, _ = model.unembedding.forward(x)
    return logits.astype(np.promote_types(logits.dtype, np.float32), copy=False)


def layer_step(
    layer: DecoderLayer, x: Array, memory: KeyValueCache, memory_mask: Mask, cache: KeyValueCache
) -> tuple[Array, KeyValueCache]:
    """One position of a decoder layer, without dropout. x (B, W, D) -> y (B, W, D), the extended cache"""
    rows, cache = self_attention_step(layer.self_attention, x.reshape(-1, 1, x.shape[-1]), cache)  # (B W, 1, D)
    x = rows.reshape(x.shape)
    x = cross_attention_step(layer.cross_attention, x, memory, memory_mask)
    y, _ = layer.feed_forward.forward(x)
    return y, cache


def self_attention_step(residual: Residual, x: Array, cache: KeyValueCache) -> tuple[Array, KeyValueCache]:
    """Causal self-attention and its residual connection, for n new positions of R rows.

    x (R, n, D), cache of R rows -> y (R, n, D), the extended cache
    """
    layer: SelfAttention = residual.sublayer
    h, _ = residual.before(x)
    projected, _ = layer.qkv.forward(h)  # (R, n, H (2 d_k + d_v))
    q, k, v = split_heads(projected, layer.h, layer.d_k, layer.d_k, layer.d_v)
    mask = Mask(causal=x.shape[1] > 1)  # a single query is the last position, and sees all keys
    cache = cache.extended(k, v)
    heads, _ = layer.attention.forward(q, *cache.first(len(q)), mask)  # (R, n, H, d_v)
    update, _ = layer.output.forward(join_heads(heads))
    y, _ = residual.after(x, update)
    return y, cache


def cross_attention_step(residual: Residual, x: Array, memory: KeyValueCache, mask: Mask) -> Array:
    """Cross-attention and its residual connection: the W hypotheses of a sentence are W queries to the same memory.

    x (B, W, D) -> y (B, W, D)
    """
    layer: CrossAttention = residual.sublayer
    h, _ = residual.before(x)
    projected, _ = layer.q.forward(h)  # (B, W, H d_k)
    (q,) = split_heads(projected, layer.h, layer.d_k)
    heads, _ = layer.attention.forward(q, *memory.first(len(q)), mask)  # (B, W, H, d_v)
    update, _ = layer.output.forward(join_heads(heads))
    y, _ = residual.after(x, update)
    return y


def memory_keys_values(layer: CrossAttention, memory: Array) -> KeyValueCache:
    """The keys and values of the encoder's output, computed once. memory (B, S, D)

    They are stored head by head: then every step's products with them are faster.
    """
    projected, _ = layer.kv.forward(memory)
    xp = ops_of(projected).xp
    keys, values = split_heads(projected, layer.h, layer.d_k, layer.d_v)
    return KeyValueCache(memory.shape[1], *(by_head(xp.ascontiguousarray(by_head(x))) for x in (keys, values)))


def empty_cache(layer: SelfAttention, rows: int) -> KeyValueCache:
    """Room for the keys and values of `rows` hypotheses, before the first step."""
    weight = layer.qkv.weight.data
    xp, shape = ops_of(weight).xp, (rows, INITIAL_POSITIONS, layer.h)
    return KeyValueCache(0, xp.empty((*shape, layer.d_k), weight.dtype), xp.empty((*shape, layer.d_v), weight.dtype))


# Language models ------------------------------------------------------------------------------------------------------


def begin_generation(model: LanguageModel, rows: int) -> list[KeyValueCache]:
    """Caches of all layers for this many texts, which are still empty."""
    return [empty_cache(layer.self_attention.sublayer, rows) for layer in model.decoder.layers]


def generation_step(
    model: LanguageModel, ids: Array, kv_cache: list[KeyValueCache]
) -> tuple[Array, list[KeyValueCache]]:
    """Read the next n tokens of each text, ids (R, n) -> logits (R, V) of the token that follows, the extended caches

    The logits are at least float32. Use only the caches that are returned: the old ones are overwritten.
    """
    x, _ = model.embedding.forward(ids)  # (R, n, D)
    x, _ = model.positions.forward(x, kv_cache[0].t)
    extended = []
    for layer, cache in zip(model.decoder.layers, kv_cache):
        x, cache = self_attention_step(layer.self_attention, x, cache)
        x, _ = layer.feed_forward.forward(x)
        extended.append(cache)
    return last_logits(model, x[:, -1]), extended
