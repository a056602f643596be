"""Decoders and language models, one position at a time.

The keys and values of earlier positions do not change when another position is written. So each layer keeps them
(`nn.attention.KeyValueCache`), and a step computes only the new position: n steps cost about as much as one forward
pass over n positions, instead of n passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scratchformer.nn.attention import KeyValueCache, Mask
from scratchformer.nn.ops import ops_of
from scratchformer.nn.parameter import Array
from scratchformer.nn.transformer import Transformer

if TYPE_CHECKING:
    from scratchformer.nn.language_model import LanguageModel


class DecodingState(NamedTuple):
    """The decoder's state between two steps, for B sentences with W hypotheses each.

    kv_caches    for each layer, those of the hypotheses (B W rows, `position` positions) and of memory (B rows, S)
    memory_mask  the lengths of the sources
    position     how many positions are written
    memory       the encoder's output (B, S, D), if the model has a `NextWord`
    n_tagged     (B W,) int, the tags that each hypothesis has; (B,) before the first step

    `decoding_step` and `select` change the caches in place: use only the state that they return.
    """

    kv_caches: list[tuple[KeyValueCache, KeyValueCache]]
    memory_mask: Mask
    position: int = 0
    memory: Array | None = None
    n_tagged: np.ndarray | None = None

    def select(self, sentences: Array, hypotheses: Array) -> DecodingState:
        """Keep some sentences (indices into B) and hypotheses (indices into B W), in the given order."""
        of_hypotheses, of_memory = zip(*self.kv_caches)
        select_rows(of_memory, sentences)
        select_rows(of_hypotheses, hypotheses)
        state = self._replace(memory_mask=Mask(self.memory_mask.key_lengths[sentences]))  # type: ignore[index]
        if self.memory is None or self.n_tagged is None:
            return state
        memory = self.memory[ops_of(self.memory).xp.asarray(sentences)]
        return state._replace(memory=memory, n_tagged=self.n_tagged[hypotheses])


def select_rows(caches: tuple[KeyValueCache, ...], index: np.ndarray) -> None:
    """Keep the rows `index` of each cache, in this order. Rows that stay in their place are not copied."""
    index = np.asarray(index)
    moved = np.flatnonzero(index != np.arange(len(index)))
    xp = ops_of(caches[0].arrays[0]).xp
    source, to = xp.asarray(index[moved]), xp.asarray(moved)
    for cache in caches:
        cache.rows = len(index)
        if len(moved):
            for array in cache.arrays:
                array[to, : cache.t] = array[source, : cache.t]


def begin_decoding(model: Transformer, source_ids: Array, beam: int = 1) -> DecodingState:
    """Encode the sources (B, S). The state has room for `beam` hypotheses for each."""
    memory, memory_mask, _ = model.encode(source_ids)
    kv_caches = [
        (
            layer.self_attention.sublayer.new_kv_cache(len(memory) * beam),
            layer.cross_attention.sublayer.new_kv_cache(memory),
        )
        for layer in model.decoder.layers
    ]
    if model.next_word:
        return DecodingState(kv_caches, memory_mask, 0, memory, np.zeros(len(memory), int))
    return DecodingState(kv_caches, memory_mask)


def decoding_step(model: Transformer, ids: Array, state: DecodingState) -> tuple[Array, DecodingState]:
    """Read the last token of each hypothesis, ids (B, W) -> logits (B, W, V) for the next token, new state.

    The logits are at least float32, whatever the weights are stored as. The ids are not checked: the caller chose them
    among the columns of the logits.
    """
    x, _ = model.target_embedding.forward(ids)  # (B, W, D)
    if model.next_word and state.n_tagged is not None:
        k = state.n_tagged.reshape(len(ids), -1) + model.next_word.is_tag(ids)  # (B, W)
        x, _ = model.next_word.forward(x, state.memory, k, state.memory_mask)
        state = state._replace(n_tagged=k.reshape(-1))
    x, _ = model.target_positions.forward(x.reshape(-1, 1, x.shape[-1]), state.position)  # (B W, 1, D)
    x, _ = model.decoder.forward(x, None, Mask(), state.memory_mask, kv_caches=state.kv_caches)
    return logits_of(model, x).reshape(*ids.shape, -1), state._replace(position=state.position + 1)


def logits_of(model: Transformer | LanguageModel, states: Array) -> Array:
    """The unembedding, (..., D) -> logits (..., V), at least float32"""
    logits, _ = model.unembedding.forward(states)
    return logits.astype(np.promote_types(logits.dtype, np.float32), copy=False)


# Language models ------------------------------------------------------------------------------------------------------


def begin_generation(model: LanguageModel, rows: int) -> list[KeyValueCache]:
    """Caches of all layers for this many texts, which are still empty."""
    return [layer.self_attention.sublayer.new_kv_cache(rows) for layer in model.decoder.layers]


def generation_step(model: LanguageModel, ids: Array, kv_caches: list[KeyValueCache]) -> Array:
    """Read the next n tokens of each text, ids (R, n) -> logits (R, V) of the token that follows, at least float32

    The caches are extended in place.
    """
    x, _ = model.embedding.forward(ids)  # (R, n, D)
    x, _ = model.positions.forward(x, kv_caches[0].t)
    mask = Mask(causal=ids.shape[1] > 1)  # a single query is the last position, and attends to all
    x, _ = model.decoder.forward(x, mask, kv_caches=kv_caches)
    return logits_of(model, x[:, -1])
