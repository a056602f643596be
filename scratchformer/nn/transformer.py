"""The Transformer of Figure 1: sublayers, layers, the two stacks, and the whole model."""

from __future__ import annotations

from typing import Any, Callable, Iterator, NamedTuple

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.attention import CrossAttention, KeysValues, Mask, SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import (
    AddNorm,
    Embedding,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    PositionalEncoding,
    Unembedding,
)
from scratchformer.nn.loss import Smoothing, cross_entropy
from scratchformer.nn.ops import PAD, chunks, ops_of
from scratchformer.nn.parameter import Array, Layer, Parameter, ParameterStore

# A sublayer and the way around it -------------------------------------------------------------------------------------


class Residual(Layer):
    """A sublayer with a way around it (paper §3.1); PostNorm and PreNorm say where the normalisation stands.

    forward(x (B, T, D), *others) -> y (B, T, D), cache;   memory and masks go to the sublayer as they are
    backward(dy (B, T, D), cache) -> dx, or (dx, dothers...) if the sublayer has more float inputs

    `enter` and `leave` are forward without dropout in two halves, for decoding: what the sublayer reads, and what
    becomes of its output. In names of parameters the sublayer's own are not set apart: `self_attention.qkv.weight` is
    the `qkv.weight` of `self_attention.sublayer`.
    """

    sublayer: Any
    norm: Layer

    def enter(self, x: Array) -> Array:
        raise NotImplementedError

    def leave(self, x: Array, update: Array) -> Array:
        raise NotImplementedError

    def _named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        yield from self.sublayer._named_parameters()
        for name, parameter in self.norm._named_parameters():
            yield f"norm.{name}", parameter


class PostNorm(Residual):
    """The paper's arrangement: normalise where the two ways meet (§3.1).

    y = LayerNorm(x + dropout(sublayer(x, ...)))
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
        dx_around, dupdate = self.norm.backward(dy, norm_cache)
        # update = sublayer(x, ...); x went both ways, so its gradient is the sum of what comes back on both
        dx_through, *dothers = as_tuple(self.sublayer.backward(dupdate, sublayer_cache))
        return one_or_tuple(dx_around + dx_through, *dothers)

    def enter(self, x: Array) -> Array:
        return x

    def leave(self, x: Array, update: Array) -> Array:
        return self.norm.forward(x, update)[0]


class PreNorm(Residual):
    """The later arrangement: the sublayer reads a normalised x, and nothing stands in the way around.

        y = x + dropout(sublayer(LayerNorm(x), ...))

    Differs:  not in the paper; its public code changed to this form four months later.
    """

    def __init__(self, sublayer: Layer, config: ModelConfig, dtype: str) -> None:
        self.sublayer = sublayer
        self.norm = LayerNorm(config.d_model, dtype, config.ln_eps)
        self.P_drop = config.P_drop

    def forward(self, x: Array, *others: Any, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        normalized, norm_cache = self.norm.forward(x)
        update, sublayer_cache = self.sublayer.forward(normalized, *others, rng=rng and rng.child(0))
        dropped, kept = ops_of(update).dropout(update, self.P_drop, rng and rng.child(1))
        return x + dropped, (norm_cache, sublayer_cache, kept)

    def backward(self, dy: Array, cache: Any) -> Any:
        norm_cache, sublayer_cache, kept = cache
        # y = x + dropout(update)
        dupdate = ops_of(dy).dropout_backward(dy, kept, self.P_drop)
        # update = sublayer(normalized, ...)
        dnormalized, *dothers = as_tuple(self.sublayer.backward(dupdate, sublayer_cache))
        # normalized = LayerNorm(x); x went both ways
        return one_or_tuple(dy + self.norm.backward(dnormalized, norm_cache), *dothers)

    def enter(self, x: Array) -> Array:
        return self.norm.forward(x)[0]

    def leave(self, x: Array, update: Array) -> Array:
        return x + update


def as_tuple(gradients: Any) -> tuple:
    return gradients if isinstance(gradients, tuple) else (gradients,)


def one_or_tuple(first: Array, *others: Array) -> Any:
    return (first, *others) if others else first


def residual(sublayer: Layer, config: ModelConfig, dtype: str) -> Residual:
    """The sublayer in the arrangement that the configuration asks for."""
    return (PostNorm if config.norm == "post" else PreNorm)(sublayer, config, dtype)


# Layers ---------------------------------------------------------------------------------------------------------------


class EncoderLayer(Layer):
    """One of the N layers of the encoder (Figure 1, left): self-attention, then feed-forward.

    forward(x (B, S, D), mask) -> y (B, S, D), cache
    backward(dy (B, S, D), cache) -> dx (B, S, D)
    """

    def __init__(self, config: ModelConfig, init: np.random.Generator, dtype: str = "float32") -> None:
        self.self_attention = residual(attention(SelfAttention, config, init, dtype), config, dtype)
        self.feed_forward = residual(feed_forward(config, init, dtype), config, dtype)

    def forward(self, x: Array, mask: Mask = Mask(), rng: DropoutKey | None = None) -> tuple[Array, Any]:
        x, self_attention_cache = self.self_attention.forward(x, mask, rng=rng and rng.child(0))
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
    """

    def __init__(self, config: ModelConfig, init: np.random.Generator, dtype: str = "float32") -> None:
        self.self_attention = residual(attention(SelfAttention, config, init, dtype), config, dtype)
        self.cross_attention = residual(attention(CrossAttention, config, init, dtype), config, dtype)
        self.feed_forward = residual(feed_forward(config, init, dtype), config, dtype)

    def forward(
        self,
        x: Array,
        memory: Array,
        mask: Mask = Mask(causal=True),
        memory_mask: Mask = Mask(),
        rng: DropoutKey | None = None,
    ) -> tuple[Array, Any]:
        x, self_attention_cache = self.self_attention.forward(x, mask, rng=rng and rng.child(0))
        x, cross_attention_cache = self.cross_attention.forward(x, memory, memory_mask, rng=rng and rng.child(1))
        y, feed_forward_cache = self.feed_forward.forward(x, rng=rng and rng.child(2))
        return y, (self_attention_cache, cross_attention_cache, feed_forward_cache)

    def backward(self, dy: Array, cache: Any) -> tuple[Array, Array]:
        self_attention_cache, cross_attention_cache, feed_forward_cache = cache
        dx = self.feed_forward.backward(dy, feed_forward_cache)
        dx, dmemory = self.cross_attention.backward(dx, cross_attention_cache)
        return self.self_attention.backward(dx, self_attention_cache), dmemory

    def step(self, x: Array, memory: KeysValues, memory_mask: Mask, past: KeysValues) -> tuple[Array, KeysValues]:
        """One position of each hypothesis. x (B, W, D), `past` of B W rows -> y (B, W, D), the past of the next step"""
        update, past = self.self_attention.sublayer.step(self.self_attention.enter(x), past)
        x = self.self_attention.leave(x, update)
        update = self.cross_attention.sublayer.step(self.cross_attention.enter(x), memory, memory_mask)
        x = self.cross_attention.leave(x, update)
        return self.feed_forward.forward(x)[0], past


def attention(kind: type, config: ModelConfig, init: np.random.Generator, dtype: str) -> Layer:
    return kind(
        config.d_model, config.h, init, dtype, config.d_k, config.d_v, config.attention_bias, config.attention_dropout
    )


def feed_forward(config: ModelConfig, init: np.random.Generator, dtype: str) -> Layer:
    return FeedForward(config.d_model, config.d_ff, init, dtype, config.relu_dropout)


# Stacks ---------------------------------------------------------------------------------------------------------------

Done = Callable[[Layer], None] | None
"""Whom a stack's backward tells of each layer whose gradients are complete."""


class Stack(Layer):
    """N layers, and with pre-norm one more LayerNorm, since nothing else bounds the sum that leaves the last layer."""

    def __init__(self, config: ModelConfig, layers: list, dtype: str) -> None:
        self.layers = layers
        self.final_norm = LayerNorm(config.d_model, dtype, config.ln_eps) if config.norm == "pre" else None

    def finish(self, x: Array) -> tuple[Array, Any]:
        return self.final_norm.forward(x) if self.final_norm else (x, None)

    def finish_backward(self, dy: Array, cache: Any) -> Array:
        return self.final_norm.backward(dy, cache) if self.final_norm else dy


class Encoder(Stack):
    """The stack that reads the source (paper §3.1).

    forward(x (B, S, D), mask) -> memory (B, S, D), cache
    backward(dmemory (B, S, D), cache) -> dx (B, S, D)
    """

    def __init__(self, config: ModelConfig, init: np.random.Generator, dtype: str = "float32") -> None:
        super().__init__(config, [EncoderLayer(config, init, dtype) for _ in range(config.N)], dtype)

    def forward(self, x: Array, mask: Mask = Mask(), rng: DropoutKey | None = None) -> tuple[Array, Any]:
        caches = []
        for index, layer in enumerate(self.layers):
            x, cache = layer.forward(x, mask, rng=rng and rng.child(index))
            caches.append(cache)
        memory, norm_cache = self.finish(x)
        return memory, (caches, norm_cache)

    def backward(self, dmemory: Array, cache: Any, done: Done = None) -> Array:
        caches, norm_cache = cache
        dx = self.finish_backward(dmemory, norm_cache)
        for layer in reversed(self.layers):
            dx = layer.backward(dx, caches.pop())  # what is used is freed
            if done:
                done(layer)
        return dx


class Decoder(Stack):
    """The stack that writes the target while it looks at the encoder's output (paper §3.1).

    forward(x (B, T, D), memory (B, S, D), mask, memory_mask) -> y (B, T, D), cache
    backward(dy (B, T, D), cache) -> dx (B, T, D), dmemory (B, S, D)
    """

    def __init__(self, config: ModelConfig, init: np.random.Generator, dtype: str = "float32") -> None:
        super().__init__(config, [DecoderLayer(config, init, dtype) for _ in range(config.N)], dtype)

    def forward(
        self,
        x: Array,
        memory: Array,
        mask: Mask = Mask(causal=True),
        memory_mask: Mask = Mask(),
        rng: DropoutKey | None = None,
    ) -> tuple[Array, Any]:
        caches = []
        for index, layer in enumerate(self.layers):
            x, cache = layer.forward(x, memory, mask, memory_mask, rng=rng and rng.child(index))
            caches.append(cache)
        y, norm_cache = self.finish(x)
        return y, (caches, norm_cache)

    def backward(self, dy: Array, cache: Any, done: Done = None) -> tuple[Array, Array]:
        caches, norm_cache = cache
        dx = self.finish_backward(dy, norm_cache)
        dmemory = None
        for layer in reversed(self.layers):
            dx, share = layer.backward(dx, caches.pop())
            dmemory = share if dmemory is None else dmemory + share  # every layer read the same memory
            if done:
                done(layer)
        return dx, dmemory


# The whole model ------------------------------------------------------------------------------------------------------


class DecodingState(NamedTuple):
    """What the decoder knows between two steps, for B sentences with W hypotheses each.

    memory       per layer, the keys and values (B, S, H, .) of the encoder's output
    memory_mask  the lengths of the sources
    past         per layer, the keys and values (B W, t, H, .) of the t positions written so far
    position     t

    A step and a selection use a state up: they write into its arrays, and the next state shares them.
    """

    memory: list[KeysValues]
    memory_mask: Mask
    past: list[KeysValues]
    position: int

    def select(self, sentences: Array, hypotheses: Array) -> DecodingState:
        """Keep some sentences (index into B) and hypotheses (index into B W), in the order given."""
        for index, layers in ((sentences, self.memory), (hypotheses, self.past)):
            moved = np.flatnonzero(index != np.arange(len(index)))
            if len(moved):
                for kept in layers:
                    kept.copy_rows_inplace(index[moved], moved)
        return self._replace(memory_mask=Mask(self.memory_mask.key_lengths[sentences]))  # type: ignore[index]


class Transformer(Layer):
    """The model of "Attention Is All You Need" (Figure 1).

        memory = encoder(positions(embedding(source_ids)))
        logits = unembedding(decoder(positions(embedding(target_in_ids)), memory))

    forward(source_ids (B, S), target_in_ids (B, T), rng) -> logits (B, T, V), cache
    backward(dlogits (B, T, V), cache) -> None: ids have no gradient; Parameter.grad is added to

    Ids are integers below vocab_size, 0 is padding and stands at the end. target_in_ids is the target shifted right: it
    begins with the start symbol, and position t of the logits is the guess for token t of the target.

    config  the sizes; `seed` decides the initial weights, `dtype` is that of all parameters
    store   all parameters and all gradients as two flat arrays

    Keeps:    what its layers keep; the logits are the largest single array.
    Raises:   ValueError for ids that are out of range or not of one shape, and for sources with padding before a token.
    Differs:  decoding starts from a learned vector for the start symbol, where the paper's code starts from zeros
              (an id of 0 in target_in_ids gives just that).
    """

    def __init__(self, config: ModelConfig, seed: int = 0, dtype: str = "float32") -> None:
        if np.dtype(dtype).kind != "f":
            raise ValueError(f"parameters are floating-point numbers, not {dtype}")
        self.config = config
        init = np.random.default_rng(seed)
        sizes = config.vocab_size, config.d_model
        source = Embedding.new_weight(*sizes, init, dtype)
        target = source if config.tied == "all" else Embedding.new_weight(*sizes, init, dtype)
        output = target if config.tied != "none" else Embedding.new_weight(*sizes, init, dtype)

        self.source_embedding = Embedding(source)
        self.source_positions = positions(config, init, dtype)
        self.encoder = Encoder(config, init, dtype)
        self.target_embedding = Embedding(target)
        self.target_positions = positions(config, init, dtype)
        self.decoder = Decoder(config, init, dtype)
        self.unembedding = Unembedding(output)
        self.store = ParameterStore(self.parameters())

    def forward(self, source_ids: Array, target_in_ids: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        states, states_cache = self._states(source_ids, target_in_ids, rng)
        logits, logits_cache = self.unembedding.forward(states)  # (B, T, V)
        return logits, (states_cache, logits_cache)

    def backward(self, dlogits: Array, cache: Any) -> None:
        states_cache, logits_cache = cache
        dstates = self.unembedding.backward(dlogits, logits_cache)  # (B, T, D)
        self._states_backward(dstates, states_cache)

    def loss_backward(
        self,
        source_ids: Array,
        target_in_ids: Array,
        target_out_ids: Array,
        smoothing: float = 0.0,
        rng: DropoutKey | None = None,
        spread: Smoothing = "others",
        filled: Callable[[int], None] | None = None,
    ) -> tuple[float, int]:
        """Forward, loss and backward in one call -> loss_sum in nats, n_tokens; Parameter.grad is added to.

        The same as forward, `cross_entropy` and backward, but the logits are made for real tokens only, a few rows at a
        time, and turned into their gradient in place: the (B, T, V) array, by far the largest, never exists.

        filled  is called after the backward of each layer of the stacks with the place in `store.grad` from which on
                nothing will change any more
        """
        self._check_ids("target_out_ids", target_out_ids, target_in_ids.shape)
        states, states_cache = self._states(source_ids, target_in_ids, rng)
        ops, real = ops_of(states), np.flatnonzero(target_out_ids != PAD)
        rows = ops.take_rows(states, real)  # (n, D)
        drows = ops.xp.empty(rows.shape, rows.dtype)
        loss_sum = 0.0
        for chunk, loss, dlogits, cache in self._losses(rows, target_out_ids.reshape(-1)[real], smoothing, spread):
            drows[chunk] = self.unembedding.backward(dlogits, cache)
            loss_sum = loss_sum + loss

        def done(layer: Layer) -> None:
            if filled:
                filled(self.store.begin_of(layer))

        self._states_backward(ops.take_rows_backward(drows, real, states.shape), states_cache, done)
        return loss_sum, len(rows)

    def loss(
        self,
        source_ids: Array,
        target_in_ids: Array,
        target_out_ids: Array,
        smoothing: float = 0.0,
        spread: Smoothing = "others",
    ) -> tuple[float, int]:
        """The loss alone, without dropout, as validation needs it -> loss_sum in nats, n_tokens."""
        self._check_ids("target_out_ids", target_out_ids, target_in_ids.shape)
        states, _ = self._states(source_ids, target_in_ids, None)
        real = np.flatnonzero(target_out_ids != PAD)
        rows = ops_of(states).take_rows(states, real)  # (n, D)
        losses = self._losses(rows, target_out_ids.reshape(-1)[real], smoothing, spread)
        return sum((loss for _, loss, _, _ in losses), start=0.0), len(rows)

    def _losses(self, rows: Array, targets: Array, smoothing: float, spread: Smoothing) -> Iterator[tuple]:
        """The loss of rows (n, D) against targets (n,), some rows at a time -> slice, loss, dlogits, cache"""
        for chunk in chunks(len(rows), max(1, ops_of(rows).logits_at_once // self.config.vocab_size)):
            logits, cache = self.unembedding.forward(rows[chunk])  # (chunk, V)
            loss, _, dlogits = cross_entropy(logits, targets[chunk], smoothing, spread, out=logits)
            yield chunk, loss, dlogits, cache

    def zero_grad(self) -> None:
        self.store.grad[...] = 0

    def _states(self, source_ids: Array, target_in_ids: Array, rng: DropoutKey | None) -> tuple[Array, Any]:
        """Everything up to the decoder's output (B, T, D)."""
        self._check_ids("target_in_ids", target_in_ids)
        memory, memory_mask, encoder_cache = self._encode(source_ids, rng)
        if len(source_ids) != len(target_in_ids):
            raise ValueError(f"{len(source_ids)} sources and {len(target_in_ids)} targets do not belong together")
        x, embedding_cache = self.target_embedding.forward(target_in_ids)  # (B, T, D)
        x, positions_cache = self.target_positions.forward(x, rng=rng and rng.child(2))
        # Causal and no more: padding stands at the end, where no real token sees it, and the loss passes over it.
        states, decoder_cache = self.decoder.forward(
            x, memory, Mask(causal=True), memory_mask, rng=rng and rng.child(3)
        )
        return states, (encoder_cache, embedding_cache, positions_cache, decoder_cache)

    def layer_begins(self) -> list[int]:
        """Where each layer of the stacks begins in the flat arrays, rising; before the first are the embeddings."""
        return [self.store.begin_of(layer) for layer in [*self.encoder.layers, *self.decoder.layers]]

    def _states_backward(self, dstates: Array, cache: Any, done: Done = None) -> None:
        encoder_cache, embedding_cache, positions_cache, decoder_cache = cache
        # states = decoder(target_positions(target_embedding(target_in_ids)), memory)
        dx, dmemory = self.decoder.backward(dstates, decoder_cache, done)
        dx = self.target_positions.backward(dx, positions_cache)
        self.target_embedding.backward(dx, embedding_cache)
        # memory = encoder(source_positions(source_embedding(source_ids)))
        self._encode_backward(dmemory, encoder_cache, done)

    def _encode(self, source_ids: Array, rng: DropoutKey | None) -> tuple[Array, Mask, Any]:
        """source_ids (B, S) -> memory (B, S, D), the mask of its padding, cache"""
        self._check_ids("source_ids", source_ids)
        mask = Mask(key_lengths=lengths_of(source_ids))
        x, embedding_cache = self.source_embedding.forward(source_ids)  # (B, S, D)
        x, positions_cache = self.source_positions.forward(x, rng=rng and rng.child(0))
        memory, encoder_cache = self.encoder.forward(x, mask, rng=rng and rng.child(1))
        return memory, mask, (embedding_cache, positions_cache, encoder_cache)

    def _encode_backward(self, dmemory: Array, cache: Any, done: Done = None) -> None:
        embedding_cache, positions_cache, encoder_cache = cache
        dx = self.encoder.backward(dmemory, encoder_cache, done)
        dx = self.source_positions.backward(dx, positions_cache)
        self.source_embedding.backward(dx, embedding_cache)

    def _check_ids(self, name: str, ids: Array, shape: tuple[int, ...] | None = None) -> None:
        """Wrong ids would not fail but silently read another row: -1 the last one, and on a GPU any."""
        kind = f"{ids.ndim}-D of {ids.dtype}" if hasattr(ids, "ndim") else f"a {type(ids).__name__}"
        if not kind.startswith("2-D") or ids.dtype.kind not in "iu":
            raise ValueError(f"{name} must be a 2-D array of integers, not {kind}")
        if ids.size and not (0 <= ids.min() and ids.max() < self.config.vocab_size):
            raise ValueError(
                f"{name} holds ids from {ids.min()} to {ids.max()}; "
                f"the vocabulary is 0 to {self.config.vocab_size - 1}"
            )
        if shape is not None and ids.shape != shape:
            raise ValueError(f"{name} has shape {ids.shape}, target_in_ids {shape}")

    # Decoding, one position at a time

    def start(self, source_ids: Array, beam: int = 1) -> DecodingState:
        """Read the sources (B, S) and be ready to write, with up to `beam` hypotheses for each."""
        memory, mask, _ = self._encode(source_ids, None)
        layers = self.decoder.layers
        return DecodingState(
            [layer.cross_attention.sublayer.keys_values(memory) for layer in layers],
            mask,
            [layer.self_attention.sublayer.no_past(len(memory) * beam) for layer in layers],
            0,
        )

    def step(self, ids: Array, state: DecodingState) -> tuple[Array, DecodingState]:
        """Write one position: the last token of each hypothesis (B, W) -> logits (B, W, V) for the next, new state.

        The logits are float32 at least, whatever the weights are stored as. The ids are the caller's own choice among
        the logits' columns, and are not checked.
        """
        x, _ = self.target_embedding.forward(ids)  # (B, W, D)
        x = self._at_position(x, state.position)
        past = []
        for layer, memory, layer_past in zip(self.decoder.layers, state.memory, state.past):
            x, layer_past = layer.step(x, memory, state.memory_mask, layer_past)
            past.append(layer_past)
        x, _ = self.decoder.finish(x)
        logits, _ = self.unembedding.forward(x)  # (B, W, V)
        logits = logits.astype(np.promote_types(logits.dtype, np.float32), copy=False)
        return logits, state._replace(past=past, position=state.position + 1)

    def _at_position(self, x: Array, position: int) -> Array:
        """The W hypotheses of a sentence all stand at the same position: (B, W, D) as B W sequences of one."""
        rows = x.reshape(-1, 1, x.shape[-1])
        return self.target_positions.forward(rows, position)[0].reshape(x.shape)


def positions(config: ModelConfig, init: np.random.Generator, dtype: str) -> PositionalEncoding | LearnedPositions:
    if config.positions == "learned":
        return LearnedPositions(config.max_positions, config.d_model, init, dtype, config.P_drop)
    return PositionalEncoding(config.P_drop)


def lengths_of(ids: Array) -> Array:
    """How many tokens each row (B, S) holds before its padding -> (B,) int."""
    real = ids != PAD
    if (real[:, 1:] & ~real[:, :-1]).any():
        raise ValueError("padding (id 0) stands before a token; it must follow the sequence")
    return real.sum(axis=1)
