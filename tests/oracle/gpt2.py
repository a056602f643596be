"""GPT-2 by its definition (Radford et al. 2019, section 2.3), in PyTorch, with the names of the published weights."""

import torch
from torch import nn
from torch.nn import functional as F


class Conv1D(nn.Module):
    """x W + b, with W (in, out)"""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(d_in, d_out)), nn.Parameter(torch.empty(d_out))

    def forward(self, x):
        return x @ self.weight + self.bias


class Attention(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        self.h, self.c_attn, self.c_proj = h, Conv1D(d_model, 3 * d_model), Conv1D(d_model, d_model)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.h, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(heads.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(d_model, d_ff), Conv1D(d_ff, d_model)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, d_model, d_ff, h):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(d_model, eps=1e-5), Attention(d_model, h)
        self.ln_2, self.mlp = nn.LayerNorm(d_model, eps=1e-5), MLP(d_model, d_ff)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """ids (B, T), as GPT-2 numbers its pieces -> logits (B, T, V). The weights are random."""

    def __init__(self, vocab_size, positions, N, d_model, d_ff, h):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, d_model), nn.Embedding(positions, d_model)
        self.h = nn.ModuleList(Block(d_model, d_ff, h) for _ in range(N))
        self.ln_f = nn.LayerNorm(d_model, eps=1e-5)
        random = torch.Generator().manual_seed(0)
        for name, parameter in self.named_parameters():
            nn.init.normal_(parameter, "ln" in name and "weight" in name, 0.1, random)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T

    def continued(self, ids, n_tokens):
        """The ids, and after them the most likely ones."""
        for _ in range(n_tokens):
            ids = [*ids, int(self(torch.tensor([ids]))[0, -1].argmax())]
        return ids
