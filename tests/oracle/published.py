"""GPT-2 and Llama by their definitions, in PyTorch, as functions of weights under their published names."""

import math

import torch
import torch.nn.functional as F


def random_weights(shapes, scale):
    """Name -> numbers around 0, or around 1 for the weight of a norm."""
    random = torch.Generator().manual_seed(0)
    is_gain = {name: "norm" in name or "ln_" in name and name.endswith("weight") for name in shapes}
    return {name: is_gain[name] + scale(name) * torch.randn(shape, generator=random) for name, shape in shapes.items()}


def continued(logits, ids, n_tokens):
    """The ids, and after them the most likely ones. logits: a function of ids (B, T)"""
    for _ in range(n_tokens):
        ids = [*ids, int(logits(torch.tensor([ids]))[0, -1].argmax())]
    return ids


# GPT-2 (Radford et al. 2019, section 2.3) -----------------------------------------------------------------------------


def gpt2_weights(vocab_size, positions, N, d_model, d_ff):
    shapes = {"wte.weight": (vocab_size, d_model), "wpe.weight": (positions, d_model)}
    sizes = {"attn.c_attn": (d_model, 3 * d_model), "attn.c_proj": (d_model, d_model)}
    sizes |= {"mlp.c_fc": (d_model, d_ff), "mlp.c_proj": (d_ff, d_model), "ln_1": (d_model,), "ln_2": (d_model,)}
    named = {f"h.{i}.{name}": size for i in range(N) for name, size in sizes.items()} | {"ln_f": (d_model,)}
    for name, size in named.items():
        shapes |= {f"{name}.weight": size, f"{name}.bias": size[-1:]}
    return random_weights(shapes, lambda name: 0.1)


def gpt2(w, h, ids):
    """ids (B, T), as GPT-2 numbers its pieces -> logits (B, T, V)"""

    def norm(name, x):
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], 1e-5)

    def affine(name, x):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    x, i = w["wte.weight"][ids] + w["wpe.weight"][: ids.shape[1]], 0
    while f"h.{i}.ln_1.weight" in w:
        qkv = affine(f"h.{i}.attn.c_attn", norm(f"h.{i}.ln_1", x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (h, -1)).transpose(1, 2) for part in qkv)
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + affine(f"h.{i}.attn.c_proj", heads.transpose(1, 2).flatten(2))
        hidden = F.gelu(affine(f"h.{i}.mlp.c_fc", norm(f"h.{i}.ln_2", x)), approximate="tanh")
        x, i = x + affine(f"h.{i}.mlp.c_proj", hidden), i + 1
    return norm("ln_f", x) @ w["wte.weight"].T


# Llama (Touvron et al. 2023), with the names of the Hugging Face Hub --------------------------------------------------


def llama_weights(vocab_size, N, d_model, d_ff, h, h_kv, tied=True):
    D, D_kv = d_model, d_model // h * h_kv
    sizes = {"self_attn.q_proj": (D, D), "self_attn.k_proj": (D_kv, D), "self_attn.v_proj": (D_kv, D)}
    sizes |= {"self_attn.o_proj": (D, D), "mlp.gate_proj": (d_ff, D), "mlp.up_proj": (d_ff, D)}
    sizes |= {"mlp.down_proj": (D, d_ff), "input_layernorm": (D,), "post_attention_layernorm": (D,)}
    shapes = {"model.embed_tokens.weight": (vocab_size, D), "model.norm.weight": (D,)}
    shapes |= {f"model.layers.{i}.{name}.weight": size for i in range(N) for name, size in sizes.items()}
    shapes |= {} if tied else {"lm_head.weight": (vocab_size, D)}
    return random_weights(shapes, lambda name: 0.3 if "norm" in name else 2 / math.sqrt(D))


def llama(w, h, h_kv, ids, theta=10_000.0):
    """ids (B, T), as they are numbered there -> logits (B, T, V)"""
    T, d_k = ids.shape[1], w["model.norm.weight"].numel() // h
    angles = torch.arange(T)[:, None] * torch.tensor([theta ** (-2 * i / d_k) for i in range(d_k // 2)])
    future = torch.ones(T, T, dtype=torch.bool).triu(1)

    def norm(name, x):
        return w[f"{name}.weight"] * x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt()

    def rotated(x):
        """Each pair (i, i + d_k / 2) as a complex number, times e^(i angle)."""
        turned = torch.complex(*x.chunk(2, dim=-1)) * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([turned.real, turned.imag], dim=-1)

    def attention(name, x):
        q, k, v = (
            (x @ w[f"{name}.{each}_proj.weight"].T).unflatten(-1, (-1, d_k)).transpose(1, 2) for each in ("q", "k", "v")
        )
        q, k, heads = rotated(q), rotated(k), []
        for i in range(h):
            scores = q[:, i] @ k[:, i // (h // h_kv)].transpose(1, 2) / math.sqrt(d_k)
            heads.append(scores.masked_fill(future, -math.inf).softmax(-1) @ v[:, i // (h // h_kv)])
        return torch.cat(heads, dim=-1) @ w[f"{name}.o_proj.weight"].T

    def mlp(name, x):
        gate, value = (x @ w[f"{name}.{each}_proj.weight"].T for each in ("gate", "up"))
        return (F.silu(gate) * value) @ w[f"{name}.down_proj.weight"].T

    x, i = w["model.embed_tokens.weight"][ids], 0
    while f"model.layers.{i}.input_layernorm.weight" in w:
        layer = f"model.layers.{i}"
        x = x + attention(f"{layer}.self_attn", norm(f"{layer}.input_layernorm", x))
        x, i = x + mlp(f"{layer}.mlp", norm(f"{layer}.post_attention_layernorm", x)), i + 1
    return norm("model.norm", x) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
