"""GPT: a decoder alone, which continues a text (Radford et al. 2018, section 3.1; 2019, section 2.3)."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.attention import Mask
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Embedding, Unembedding
from scratchformer.nn.model import Model, check_ids
from scratchformer.nn.parameter import Array, Layer, ParameterStore
from scratchformer.nn.registry import new_layer
from scratchformer.nn.transformer import Encoder


class LanguageModel(Model):
    """The model of GPT (Radford et al. 2018, section 3.1): the Transformer's decoder without a source.

        states = decoder(positions(embedding(ids)))
        logits = unembedding(states)

    A decoder layer whose attention to the source is left out is an encoder layer with a causal mask. So the decoder
    here is made of the encoder's layers: self-attention to what stands before, then feed-forward.

    forward(ids (B, T), rng) -> logits (B, T, V), cache
    backward(dlogits (B, T, V), cache) -> None: ids have no gradient; adds into Parameter.grad

    Ids are integers below vocab_size; 0 is padding and stands at the end. Position t of the logits predicts token
    t + 1. The unembedding is the embedding's matrix, unless config.tied is "none".

    GPT-2's layout is config.norm="pre", positions="learned" and feed_forward="gelu".

    Keeps:    what its layers keep; the logits are the largest single array.
    Raises:   ValueError for ids that are empty, out of range or not (B, T), and with learned positions for more ids
              than positions.
    Differs:  from GPT-2. Embeddings are multiplied by sqrt(d_model), as in the paper (§3.4). Weights begin as in the
              rest of this library, not at a standard deviation of 0.02.
    """

    def __init__(self, config: ModelConfig, seed: int = 0, dtype: str = "float32") -> None:
        super().__init__(config, dtype)
        init = np.random.default_rng(seed)
        words = Embedding.new_weight(config.vocab_size, config.d_model, init, dtype)
        self.embedding = Embedding(words)
        self.positions = new_layer("positions", config, init, dtype)
        self.decoder = Encoder(config, init, dtype)
        if config.tied == "none":
            words = Embedding.new_weight(config.vocab_size, config.d_model, init, dtype)
        self.unembedding = Unembedding(words)
        self.store = ParameterStore(self.parameters())

    def states(self, ids: Array, rng: DropoutKey | None = None) -> tuple[Array, Any]:
        check_ids("ids", ids, self.config.vocab_size)
        x, embedding_cache = self.embedding.forward(ids)  # (B, T, D)
        x, positions_cache = self.positions.forward(x, rng=rng and rng.child(0))
        # Padding needs no mask: it stands at the end, where no real token attends to it.
        states, decoder_cache = self.decoder.forward(x, Mask(causal=True), rng=rng and rng.child(1))
        return states, (embedding_cache, positions_cache, decoder_cache)

    def states_backward(self, dstates: Array, cache: Any) -> Iterator[Layer]:
        embedding_cache, positions_cache, decoder_cache = cache
        # states = decoder(positions(embedding(ids)))
        for layer, dx in self.decoder.backward_by_layer(dstates, decoder_cache):
            yield layer
        dx = self.positions.backward(dx, positions_cache)
        self.embedding.backward(dx, embedding_cache)

    def layers(self) -> list[Layer]:
        return self.decoder.layers
