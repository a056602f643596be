"""GPT in the idiom of nanoGPT, in PyTorch: what the speed of our language model is compared with.

One projection makes queries, keys and values, `scaled_dot_product_attention` is told that the mask is causal, GELU is
the approximation by tanh, embedding and output share one matrix, AdamW is fused, gradients are clipped and set to None.
As nanoGPT does, `generate` reads the whole window again for each token; `cached=True` keeps keys and values instead.

Two things are ours, so that both compute the same function from the same weights: the embedding is multiplied by
sqrt(d_model), and ids of padding do not occur.
"""

from __future__ import annotations

import math
from typing import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scratchformer.config import Config, ModelConfig
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.optim import noam

KeysValues = tuple[Tensor, Tensor]


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
        if (config.norm, config.positions, config.feed_forward) != ("pre", "learned", "gelu") or config.tied == "none":
            raise ValueError("the rival has the layout of GPT-2: pre-norm, learned positions, GELU, tied embeddings")
        self.scale, self.max_positions = math.sqrt(config.d_model), config.max_positions
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

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean over all tokens, in nats."""
        logits = F.linear(self(ids)[0], self.embedding.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

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


def their_step(rival: RivalGPT, config: Config) -> Callable[[tuple[np.ndarray, np.ndarray]], float]:
    """A training step on ids and targets (B, T) -> the loss, in nats a token"""
    settings, n_steps = config.training, 0
    optimizer = torch.optim.AdamW(
        rival.parameters(), betas=(settings.beta1, settings.beta2), eps=settings.eps, weight_decay=0.0, fused=True
    )

    def step(batch: tuple[np.ndarray, np.ndarray]) -> float:
        nonlocal n_steps
        n_steps += 1
        for group in optimizer.param_groups:
            group["lr"] = noam(n_steps, config.model.d_model, settings.warmup, settings.lr_factor)
        loss = rival.loss(*(torch.from_numpy(part.astype(np.int64)) for part in batch))
        loss.backward()
        nn.utils.clip_grad_norm_(rival.parameters(), settings.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def copy_weights(model: LanguageModel, rival: RivalGPT) -> None:
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


def assert_same(model: LanguageModel, rival: RivalGPT, ids: np.ndarray, targets: np.ndarray) -> None:
    """Without dropout, both must give the same loss and a gradient of the same length: else the times mean nothing."""
    model.zero_grad()
    loss, n_tokens = batch_loss_backward(model, (ids,), targets)
    norm = float(np.linalg.norm(model.store.grad)) / n_tokens
    model.zero_grad()
    rival.eval()
    rival_loss = rival.loss(*(torch.from_numpy(part.astype(np.int64)) for part in (ids, targets)))
    rival_loss.backward()
    rival_norm = math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in rival.parameters()))
    rival.zero_grad()
    rival.train()
    for name, mine, other in (("loss", loss / n_tokens, rival_loss.item()), ("gradient's length", norm, rival_norm)):
        if not math.isclose(mine, other, rel_tol=1e-4):
            raise AssertionError(f"not the same model: the {name} is {mine} here and {other} in PyTorch")
