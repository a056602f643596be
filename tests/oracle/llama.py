"""Llama by its definition (Touvron et al. 2023), in PyTorch, with the names of the Hugging Face Hub."""

import math

import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        return self.weight * x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()


class Attention(nn.Module):
    def __init__(self, d_model, h, h_kv, theta):
        super().__init__()
        self.h, self.h_kv, self.d_k, self.theta = h, h_kv, d_model // h, theta
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, h_kv * self.d_k, bias=False)
        self.v_proj = nn.Linear(d_model, h_kv * self.d_k, bias=False)
        self.o_proj = nn.Linear(d_model, d_model, bias=False)

    def rotated(self, x):
        """Each pair (i, i + d_k / 2) as a complex number, times e^(i angle)."""
        half = self.d_k // 2
        rates = torch.tensor([self.theta ** (-2 * i / self.d_k) for i in range(half)])
        angles = torch.arange(x.shape[-2])[:, None] * rates
        turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([turned.real, turned.imag], dim=-1)

    def forward(self, x):
        q, k, v = (
            projection(x).unflatten(-1, (-1, self.d_k)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        group = self.h // self.h_kv
        q, k = self.rotated(q), self.rotated(k)
        heads = []
        for i in range(self.h):
            scores = q[:, i] @ k[:, i // group].transpose(1, 2) / math.sqrt(self.d_k)
            future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            heads.append(scores.masked_fill(future, -math.inf).softmax(-1) @ v[:, i // group])
        return self.o_proj(torch.cat(heads, dim=-1))


class MLP(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ff, bias=False)
        self.up_proj = nn.Linear(d_model, d_ff, bias=False)
        self.down_proj = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, d_model, d_ff, h, h_kv, theta):
        super().__init__()
        self.input_layernorm, self.self_attn = RMSNorm(d_model), Attention(d_model, h, h_kv, theta)
        self.post_attention_layernorm, self.mlp = RMSNorm(d_model), MLP(d_model, d_ff)

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """ids (B, T), as they are numbered there -> logits (B, T, V). The weights are random."""

    def __init__(self, vocab_size, N, d_model, d_ff, h, h_kv, theta=10_000.0, tied=True):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(vocab_size, d_model)
        self.model.layers = nn.ModuleList(Block(d_model, d_ff, h, h_kv, theta) for _ in range(N))
        self.model.norm = RMSNorm(d_model)
        self.lm_head = None if tied else nn.Linear(d_model, vocab_size, bias=False)
        random = torch.Generator().manual_seed(0)
        for name, parameter in self.named_parameters():
            norm = "norm" in name
            nn.init.normal_(parameter, norm, 0.3 if norm else 2 / math.sqrt(d_model), random)
        self.requires_grad_(False)

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        return self.model.norm(x) @ (self.model.embed_tokens if self.lm_head is None else self.lm_head).weight.T

    def continued(self, ids, n_tokens):
        """The ids, and after them the most likely ones."""
        for _ in range(n_tokens):
            ids = [*ids, int(self(torch.tensor([ids]))[0, -1].argmax())]
        return ids
