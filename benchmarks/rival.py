"""The same Transformer in idiomatic PyTorch: what scratchformer's speed is compared with.

It stands on PyTorch's own `nn.TransformerEncoder` and `nn.TransformerDecoder`, which call the fused
`scaled_dot_product_attention`, and on its fused Adam. Nothing is slower than it has to be: the causal mask is a hint,
not an array to add; gradients are set to None, not to zero; batches arrive as int64 tensors.

One thing it does as nearly everyone does, though less work would be enough: it makes the logits of padding, too.
`only_real=True` selects the real positions first, as scratchformer does. `their_step` knows more ways to be faster.
"""

from __future__ import annotations

import math
from typing import Callable, NamedTuple, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scratchformer.config import Config, ModelConfig, TrainingConfig
from scratchformer.errors import UserError
from scratchformer.nn.layers import sinusoids
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.optim import noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch
from scratchformer.training.torch_format import to_torch

PAD = 0


def assert_papers(config: ModelConfig) -> None:
    """Refuse what is not the paper's model."""
    if (config.norm, config.tied, config.positions) != ("post", "all", "sinusoidal") or not config.attention_bias:
        raise UserError("the rival is the paper's model: post-norm, all embeddings tied, sinusoids, biases")
    if not config.d_k == config.d_v == config.d_model // config.h:
        raise UserError("the rival knows only d_k = d_v = d_model / h")


class TensorBatch(NamedTuple):
    """A Batch as PyTorch wants it: int64 tensors."""

    inputs: tuple[Tensor, ...]
    targets: Tensor
    n_target_tokens: int


def to_tensors(batch: Batch, device: str = "cpu") -> TensorBatch:
    *inputs, targets = (torch.from_numpy(ids.astype(np.int64)).to(device) for ids in (*batch.inputs, batch.targets))
    return TensorBatch(tuple(inputs), targets, batch.n_target_tokens)


class Rival(nn.Module):
    """The post-norm Transformer with one embedding matrix for source, target and output."""

    def __init__(self, config: ModelConfig, max_length: int) -> None:
        super().__init__()
        assert_papers(config)
        sizes = {
            "d_model": config.d_model,
            "nhead": config.h,
            "dim_feedforward": config.d_ff,
            "dropout": config.P_drop,
            "layer_norm_eps": config.ln_eps,
            "batch_first": True,
            "norm_first": False,
        }
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, padding_idx=PAD)
        self.scale = math.sqrt(config.d_model)
        self.register_buffer(
            "positions", torch.from_numpy(sinusoids(0, max_length, config.d_model)).float(), persistent=False
        )
        self.dropout = nn.Dropout(config.P_drop)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), config.N, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), config.N)
        # PyTorch's layers also drop attention weights and hidden units. The paper does not; so the work is the same.
        for layer in [*self.encoder.layers, *self.decoder.layers]:
            layer.dropout.p = config.relu_dropout
            layer.self_attn.dropout = config.attention_dropout
        for layer in self.decoder.layers:
            layer.multihead_attn.dropout = config.attention_dropout

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.shape[1]])

    def forward(self, source_ids: Tensor, target_in_ids: Tensor) -> Tensor:
        """-> the decoder's output (B, T, D)"""
        padding = source_ids == PAD
        T, device = target_in_ids.shape[1], target_in_ids.device
        causal = nn.Transformer.generate_square_subsequent_mask(T, device=device)
        memory = self.encoder(self.embed(source_ids), src_key_padding_mask=padding)
        return self.decoder(
            self.embed(target_in_ids), memory, tgt_mask=causal, tgt_is_causal=True, memory_key_padding_mask=padding
        )

    def loss(self, batch: TensorBatch, training: TrainingConfig, only_real: bool = False) -> Tensor:
        """The label-smoothed loss, summed over the real target tokens."""
        states, targets = self(*batch.inputs), batch.targets
        if only_real:
            states, targets = states[targets != PAD], targets[targets != PAD]
        logits = F.linear(states, self.embedding.weight)
        V = logits.shape[-1]
        # PyTorch spreads the smoothing over all V classes; "others" leaves out the right one.
        smoothing = training.eps_ls * (V / (V - 1) if training.spread == "others" else 1)
        return F.cross_entropy(
            logits.view(-1, V), targets.view(-1), ignore_index=PAD, reduction="sum", label_smoothing=smoothing
        )


def adam(model: nn.Module, training: TrainingConfig) -> torch.optim.Optimizer:
    """On a CPU, fused=True was the fastest of PyTorch's three implementations when we tried them."""
    return torch.optim.Adam(model.parameters(), betas=(training.beta1, training.beta2), eps=training.eps, fused=True)


def their_step(
    model: nn.Module, config: Config, only_real: bool = False, compiled: bool = False, bf16: bool = False
) -> Callable[[Sequence[TensorBatch]], float]:
    """A training step of PyTorch on some micro-batches -> the mean loss of a target token, in nats.

    only_real  logits of real tokens only
    compiled   the loss and its gradient are compiled by torch.compile, in the first step
    bf16       matrix products in bfloat16, where autocast finds that safe; weights, gradients and Adam stay in float32
    """
    training, adam_of = config.training, adam(model, config.training)
    loss_of = torch.compile(model.loss, dynamic=False) if compiled else model.loss
    n_steps = 0

    def step(batches: Sequence[TensorBatch]) -> float:
        nonlocal n_steps
        n_steps += 1
        for group in adam_of.param_groups:
            group["lr"] = noam(n_steps, config.model.d_model, training.warmup, training.lr_factor)
        n_target_tokens, mean_loss = sum(batch.n_target_tokens for batch in batches), 0.0
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = loss_of(batch, training, only_real) / n_target_tokens
            loss.backward()
            mean_loss += loss.item()
        adam_of.step()
        adam_of.zero_grad()
        return mean_loss

    return step


def copy_weights(model: Transformer, rival: Rival) -> None:
    """Give the rival scratchformer's weights."""
    tensors = to_torch(model.store.named_views(model.store.data), model.config)
    tensors["embedding.weight"] = tensors.pop("source_embedding.weight")
    rival.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()}, strict=True)


def assert_same(model: Transformer, rival: Rival, batch: Batch, training: TrainingConfig) -> None:
    """Without dropout, both must give the same loss and a gradient of the same length: else the times mean nothing."""
    loss, _ = batch_loss_backward(model, batch.inputs, batch.targets, training.eps_ls, spread=training.spread)
    norm = np.linalg.norm(model.store.grad.astype(np.float64))  # sixty million squares
    model.zero_grad()
    rival.eval()
    rival_loss = rival.loss(to_tensors(batch), training)
    rival_loss.backward()
    rival_norm = math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in rival.parameters()))
    rival.zero_grad()
    rival.train()
    for name, mine, theirs in (("loss", loss, rival_loss.item()), ("gradient's length", norm, rival_norm)):
        if not math.isclose(mine, theirs, rel_tol=1e-4):
            raise AssertionError(f"not the same model: the {name} is {mine} here and {theirs} in PyTorch")
