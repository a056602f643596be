"""Make a run of GPT-2's published weights (Radford et al. 2019): the same function, under our names.

The weights are a safetensors file with the public names (`h.0.attn.c_attn.weight`), the tokenizer is the published
`vocab.json` and `merges.txt`. GPT-2's matrices are (in, out) like ours, with the queries, keys and values of all heads
side by side, so most arrays are taken as they are; docs/names.md has the table. Two things are not:

- Our embedding is multiplied by sqrt(d_model) on its way in. So ours is GPT-2's divided by it, and the last LayerNorm,
  whose output meets the same matrix, is multiplied by it.
- We have four special pieces, and GPT-2 has one, <|endoftext|>. All four get its vector. Padding, BOS and UNK are never
  the answer: generation and evaluation leave them out.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.errors import UserError
from scratchformer.text import hub
from scratchformer.text.tokenizer import N_SPECIALS
from scratchformer.training import checkpoints
from scratchformer.training.checkpoints import Checkpoint, Progress
from scratchformer.training.run import RunDirectory

HEAD_WIDTH = 64
"""d_k of all published sizes."""

WORDS = {"wte.weight": ("embedding.weight", "VD"), "wpe.weight": ("positions.weight", "PD")}
LAYER = {
    "ln_1.weight": ("self_attention.norm.gamma", "D"),
    "ln_1.bias": ("self_attention.norm.beta", "D"),
    "attn.c_attn.weight": ("self_attention.qkv.weight", "DA"),
    "attn.c_attn.bias": ("self_attention.qkv.bias", "A"),
    "attn.c_proj.weight": ("self_attention.output.weight", "DD"),
    "attn.c_proj.bias": ("self_attention.output.bias", "D"),
    "ln_2.weight": ("feed_forward.norm.gamma", "D"),
    "ln_2.bias": ("feed_forward.norm.beta", "D"),
    "mlp.c_fc.weight": ("feed_forward.inner.weight", "DF"),
    "mlp.c_fc.bias": ("feed_forward.inner.bias", "F"),
    "mlp.c_proj.weight": ("feed_forward.outer.weight", "FD"),
    "mlp.c_proj.bias": ("feed_forward.outer.bias", "D"),
}
FINAL_NORM = {"ln_f.weight": ("decoder.final_norm.gamma", "D"), "ln_f.bias": ("decoder.final_norm.beta", "D")}
"""GPT-2's name of an array -> ours, and the shape: V pieces, P positions, D d_model, A = 3 D, F d_ff. Names in LAYER
are those within a layer."""

COPIES = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)|lm_head\.weight")
"""Arrays that some files hold besides: the causal mask, and the embedding once more."""


def layout(N: int) -> dict[str, tuple[str, str]]:
    """GPT-2's name of each array -> our name, and its shape in letters."""
    layers = {
        f"h.{i}.{theirs}": (f"decoder.layers.{i}.{ours}", shape)
        for i in range(N)
        for theirs, (ours, shape) in LAYER.items()
    }
    return WORDS | layers | FINAL_NORM


def import_run(path: Path, vocab: Path, merges: Path, run: RunDirectory, heads: int | None = None) -> None:
    """Make a run of GPT-2's files. The weights become its best checkpoint.

    heads  None: d_model / 64, as in all published sizes
    """
    run.require_free()
    tokenizer = hub.of_gpt2(vocab, merges)
    with checkpoints.open_tensors(path) as file:
        stored = {name.removeprefix("transformer."): name for name in file.keys()}
        slices = {name: file.get_slice(stored[name]) for name in stored}
        config = config_of({name: tuple(each.get_shape()) for name, each in slices.items()}, heads, path)
        for name, each in slices.items():
            if each.get_dtype() not in ("F16", "F32", "F64") and not COPIES.fullmatch(name):
                raise UserError(f"{path}: {name} is of type {each.get_dtype()}; it must be F16, F32 or F64")
        if tokenizer.vocab_size != config.model.vocab_size:
            wanted = f"{vocab} has {tokenizer.vocab_size - N_SPECIALS + 1}"
            raise UserError(f"{path}: vectors of {config.model.vocab_size - N_SPECIALS + 1} pieces, but {wanted}")
        weights = {}
        for theirs, (ours, _) in layout(config.model.N).items():
            array = file.get_tensor(stored[theirs])
            if theirs == "wte.weight" and "lm_head.weight" in stored:
                if not np.array_equal(array, file.get_tensor(stored["lm_head.weight"])):
                    raise UserError(f"{path}: lm_head.weight is not wte.weight, so it is not GPT-2's layout")
            weights[ours] = array.astype(np.float32, copy=False)
    fit_inplace(weights)
    run.write_model(tokenizer, Checkpoint(weights, {}, Progress(tokenizer_checksum=tokenizer.checksum), config))


def config_of(shapes: dict[str, tuple[int, ...]], heads: int | None, path: Path) -> Config:
    """The preset `gpt2` with the sizes that a file's shapes show. shapes: GPT-2's name -> shape"""
    N = len({name.split(".")[1] for name in shapes if re.match(r"h\.\d+\.", name)})
    places = layout(max(N, 1))
    missing = [name for name in places if name not in shapes]
    surplus = [name for name in shapes if name not in places and not COPIES.fullmatch(name)]
    if missing or surplus:
        differences = f"missing {checkpoints.listed(missing)}; unknown {checkpoints.listed(surplus)}"
        raise UserError(f"{path}: not GPT-2's weights: {differences}")
    (V, D), (P, _), (_, F) = (shapes[name] for name in ("wte.weight", "wpe.weight", "h.0.mlp.c_fc.weight"))
    sizes = {"V": V, "P": P, "D": D, "A": 3 * D, "F": F}
    for name, (_, letters) in places.items():
        wanted = tuple(sizes[letter] for letter in letters)
        if shapes[name] != wanted:
            raise UserError(f"{path}: {name} has shape {shapes[name]}; in a model of its sizes it has {wanted}")
    h = heads or D // HEAD_WIDTH
    if not h or D % h or not heads and D % HEAD_WIDTH:
        remedy = f"--heads {heads}" if heads else f"{HEAD_WIDTH}, as in all published sizes: give --heads"
        raise UserError(f"{path}: d_model={D} is not a multiple of {remedy}")
    changes = {"vocab_size": V - 1 + N_SPECIALS, "N": N, "d_model": D, "d_ff": F, "h": h}
    try:
        return configs.with_settings(configs.preset("gpt2"), changes | {"max_positions": P, "max_length": P})
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def fit_inplace(weights: dict[str, np.ndarray]) -> None:
    """Turn GPT-2's weights under our names into ours, as described above."""
    words = weights["embedding.weight"]
    scale = math.sqrt(words.shape[1])
    end_of_text = words[-1:]
    weights["embedding.weight"] = np.concatenate([*[end_of_text] * N_SPECIALS, words[:-1]]) / scale
    for name in ("decoder.final_norm.gamma", "decoder.final_norm.beta"):
        weights[name] = weights[name] * scale
