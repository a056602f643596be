"""The same models in idiomatic PyTorch: what scratchformer's speed is compared with.

The translator stands on PyTorch's own `nn.TransformerEncoder` and `nn.TransformerDecoder`, which call the fused
`scaled_dot_product_attention`, and on its fused Adam. Nothing is slower than it has to be: the causal mask is a hint,
not an array to add; gradients are set to None, not to zero; batches arrive as int64 tensors.

One thing it does as nearly everyone does, though less work would be enough: it makes the logits of padding, too.
`only_real=True` selects the real positions first, as scratchformer does. `their_step` knows more ways to be faster.

The GPT is in the idiom of nanoGPT: one projection makes queries, keys and values, `scaled_dot_product_attention` is
told that the mask is causal, GELU is the approximation by tanh, embedding and output share one matrix, AdamW is fused,
gradients are clipped. As nanoGPT does, `generate` reads the whole window again for each token; `cached=True` keeps keys
and values instead. Two things are ours, so that both compute the same function: the embedding is multiplied by
sqrt(d_model), and ids of padding do not occur.
"""

from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scratchformer.config import Config, ModelConfig, TrainingConfig
from scratchformer.errors import UserError
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.layers import sinusoids
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.optim import noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch
from scratchformer.training.torch_format import to_torch

PAD = 0
KeysValues = tuple[Tensor, Tensor]


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


def adam(model: nn.Module, training: TrainingConfig, kind: Callable = torch.optim.Adam) -> torch.optim.Optimizer:
    """On a CPU, fused=True was the fastest of PyTorch's three implementations when we tried them."""
    return kind(
        model.parameters(), betas=(training.beta1, training.beta2), eps=training.eps, weight_decay=0, fused=True
    )


def their_step(
    model: nn.Module,
    config: Config,
    only_real: bool = False,
    compiled: bool = False,
    bf16: bool = False,
    optimizer: Callable = torch.optim.Adam,
) -> Callable[[Sequence[TensorBatch]], float]:
    """A training step of PyTorch on some micro-batches -> the mean loss of a target token, in nats.

    only_real  logits of real tokens only
    compiled   the loss and its gradient are compiled by torch.compile, in the first step
    bf16       matrix products in bfloat16, where autocast finds that safe; weights, gradients and Adam stay in float32
    """
    training, adam_of = config.training, adam(model, config.training, optimizer)
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
        if training.clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
        adam_of.step()
        adam_of.zero_grad()
        return mean_loss

    return step


def copy_weights(model: Transformer, rival: Rival) -> None:
    """Give the rival scratchformer's weights."""
    tensors = to_torch(model.store.named_views(model.store.data), model.config)
    tensors["embedding.weight"] = tensors.pop("source_embedding.weight")
    rival.load_state_dict({name: torch.from_numpy(array) for name, array in tensors.items()}, strict=True)


def assert_same(model: Any, rival: nn.Module, batch: Batch, training: TrainingConfig) -> None:
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


# GPT ------------------------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.h, self.dropout = config.h, config.attention_dropout
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model)
        self.output = nn.Linear(config.d_model, config.d_model)

    def forward(self, x: Tensor, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        B, T, D = x.shape
        q, k, v = (part.view(B, T, self.h, D // self.h).transpose(1, 2) for part in self.qkv(x).split(D, dim=2))
        if past is not None:
            k, v = torch.cat([past[0], k], dim=2), torch.cat([past[1], v], dim=2)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=past is None)
        return self.output(y.transpose(1, 2).reshape(B, T, D)), (k, v)


class Block(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model, config.ln_eps)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.d_model, config.ln_eps)
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.outer = nn.Linear(config.d_ff, config.d_model)
        self.dropout = nn.Dropout(config.P_drop)

    def forward(self, x: Tensor, past: KeysValues | None) -> tuple[Tensor, KeysValues]:
        update, present = self.attention(self.attention_norm(x), past)
        x = x + self.dropout(update)
        hidden = F.gelu(self.inner(self.feed_forward_norm(x)), approximate="tanh")
        return x + self.dropout(self.outer(hidden)), present


class RivalGPT(nn.Module):
    """Pre-norm, learned positions, GELU, tied embeddings: the layout of GPT-2."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.scale = math.sqrt(config.d_model)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.max_positions, config.d_model)
        self.dropout = nn.Dropout(config.P_drop)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.N))
        self.final_norm = nn.LayerNorm(config.d_model, config.ln_eps)

    def forward(self, ids: Tensor, past: list[KeysValues] | None = None) -> tuple[Tensor, list[KeysValues]]:
        """ids (B, T) -> states (B, T, D), the keys and values of all layers"""
        first = past[0][0].shape[2] if past else 0
        x = self.scale * self.embedding(ids) + self.positions(torch.arange(first, first + ids.shape[1]))
        x, presents = self.dropout(x), []
        for index, block in enumerate(self.blocks):
            x, present = block(x, past[index] if past else None)
            presents.append(present)
        return self.final_norm(x), presents

    def loss(self, batch: TensorBatch, training: TrainingConfig, only_real: bool = False) -> Tensor:
        """The sum over all tokens, in nats."""
        logits = F.linear(self(*batch.inputs)[0], self.embedding.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), batch.targets.view(-1), reduction="sum")

    @torch.no_grad()
    def generate(self, ids: Tensor, n_tokens: int, cached: bool) -> Tensor:
        """Continue the texts ids (B, T) by drawing from the distribution, within the window -> (B, T + n_tokens)"""
        past, unread = None, ids
        for _ in range(n_tokens):
            states, past = self(unread, past if cached else None)
            p = F.softmax(F.linear(states[:, -1], self.embedding.weight), dim=-1)
            drawn = torch.multinomial(p, num_samples=1)
            ids = torch.cat([ids, drawn], dim=1)
            unread = drawn if cached else ids
        return ids


def copy_gpt_weights(model: LanguageModel, rival: RivalGPT) -> None:
    """Give the rival our weights. Ours are (in, out), those of nn.Linear (out, in)."""
    ours = {name: parameter.data for name, parameter in model.parameters().items()}
    theirs = {"embedding.weight": ours["embedding.weight"], "positions.weight": ours["positions.weight"]}
    names = {
        "attention_norm": "self_attention.norm",
        "attention.qkv": "self_attention.qkv",
        "attention.output": "self_attention.output",
        "feed_forward_norm": "feed_forward.norm",
        "inner": "feed_forward.inner",
        "outer": "feed_forward.outer",
    }
    places = {
        f"blocks.{i}.{theirs}": f"decoder.layers.{i}.{ours}"
        for i in range(model.config.N)
        for theirs, ours in names.items()
    }
    for place, name in {**places, "final_norm": "decoder.final_norm"}.items():
        if "norm" in place:
            theirs |= {f"{place}.weight": ours[f"{name}.gamma"], f"{place}.bias": ours[f"{name}.beta"]}
        else:
            theirs |= {f"{place}.weight": ours[f"{name}.weight"].T, f"{place}.bias": ours[f"{name}.bias"]}
    rival.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in theirs.items()}, strict=True)
