"""Make a run of published weights: the same function, under our names. docs/names.md has the table of names.

GPT-2 (Radford et al. 2019) is one safetensors file with `vocab.json` and `merges.txt`. Llama's layout (Touvron et al.
2023) is a directory of the Hugging Face Hub: `config.json`, `tokenizer.json`, and `model.safetensors` or several such
files with an index; or a `.bin` file of llama2.c with `tokenizer.bin` beside it.

- Queries, keys and values of all heads stand side by side in one matrix of ours, and gate and value too.
- GPT-2's matrices are (in, out) like ours; Llama's are (out, in).
- The Hub's q and k are laid out as our `RotaryPositions` turns them; llama2.c pairs the coordinates 2i and 2i + 1.
- Our embedding is multiplied by sqrt(d_model) on its way in. So ours is theirs divided by it. If the same matrix is
  also the output, the last norm is multiplied by it.
- PAD and UNK, which published models lack, get the vector of their end of text. Neither is ever written.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.errors import UserError, in_one_line
from scratchformer.files import user_error
from scratchformer.nn.sizes import parameter_shapes, require_memory
from scratchformer.text import hub
from scratchformer.text.hub import HubTokenizer
from scratchformer.text.tokenizer import N_SPECIALS
from scratchformer.training.checkpoints import Checkpoint, Progress, listed
from scratchformer.training.run import RunDirectory

Layout = dict[str, dict[str, str]]
"""Our name of an array -> their names of the arrays that it holds side by side, each with its shape in letters: V
pieces, P positions, D d_model, F d_ff, A = 3 D, Q = h d_k, K = h_kv d_k. `{}` is the number of a layer."""

GPT2: Layout = {
    "embedding.weight": {"wte.weight": "VD"},
    "positions.weight": {"wpe.weight": "PD"},
    "decoder.layers.{}.self_attention.norm.gamma": {"h.{}.ln_1.weight": "D"},
    "decoder.layers.{}.self_attention.norm.beta": {"h.{}.ln_1.bias": "D"},
    "decoder.layers.{}.self_attention.qkv.weight": {"h.{}.attn.c_attn.weight": "DA"},
    "decoder.layers.{}.self_attention.qkv.bias": {"h.{}.attn.c_attn.bias": "A"},
    "decoder.layers.{}.self_attention.output.weight": {"h.{}.attn.c_proj.weight": "DD"},
    "decoder.layers.{}.self_attention.output.bias": {"h.{}.attn.c_proj.bias": "D"},
    "decoder.layers.{}.feed_forward.norm.gamma": {"h.{}.ln_2.weight": "D"},
    "decoder.layers.{}.feed_forward.norm.beta": {"h.{}.ln_2.bias": "D"},
    "decoder.layers.{}.feed_forward.inner.weight": {"h.{}.mlp.c_fc.weight": "DF"},
    "decoder.layers.{}.feed_forward.inner.bias": {"h.{}.mlp.c_fc.bias": "F"},
    "decoder.layers.{}.feed_forward.outer.weight": {"h.{}.mlp.c_proj.weight": "FD"},
    "decoder.layers.{}.feed_forward.outer.bias": {"h.{}.mlp.c_proj.bias": "D"},
    "decoder.final_norm.gamma": {"ln_f.weight": "D"},
    "decoder.final_norm.beta": {"ln_f.bias": "D"},
}
LLAMA: Layout = {
    "embedding.weight": {"model.embed_tokens.weight": "VD"},
    "decoder.layers.{}.self_attention.norm.gamma": {"model.layers.{}.input_layernorm.weight": "D"},
    "decoder.layers.{}.self_attention.qkv.weight": {
        "model.layers.{}.self_attn.q_proj.weight": "QD",
        "model.layers.{}.self_attn.k_proj.weight": "KD",
        "model.layers.{}.self_attn.v_proj.weight": "KD",
    },
    "decoder.layers.{}.self_attention.output.weight": {"model.layers.{}.self_attn.o_proj.weight": "DQ"},
    "decoder.layers.{}.feed_forward.norm.gamma": {"model.layers.{}.post_attention_layernorm.weight": "D"},
    "decoder.layers.{}.feed_forward.inner.weight": {
        "model.layers.{}.mlp.gate_proj.weight": "FD",
        "model.layers.{}.mlp.up_proj.weight": "FD",
    },
    "decoder.layers.{}.feed_forward.outer.weight": {"model.layers.{}.mlp.down_proj.weight": "DF"},
    "decoder.final_norm.gamma": {"model.norm.weight": "D"},
    "unembedding.weight": {"lm_head.weight": "VD"},
}


def of_all_layers(layout: Layout, N: int) -> Layout:
    """The layout of a model of N layers, with their numbers in the names."""
    return {
        ours.format(i): {name.format(i): letters for name, letters in theirs.items()}
        for ours, theirs in layout.items()
        for i in range(N if "{}" in ours else 1)
    }


def make_run(
    run: RunDirectory, config: Config, tokenizer: HubTokenizer, layout: Layout, read: Callable[[str], np.ndarray]
) -> None:
    """Make a run of a configuration and arrays that `read(name)` gives. The weights become its best checkpoint."""
    model, weights = config.model, {}
    shapes = parameter_shapes(model)
    require_memory(sum(4 * math.prod(shape) for shape in shapes.values()), f"{run.path}: its weights")
    scale = np.float32(math.sqrt(model.d_model))
    for ours, theirs in layout.items():
        array = np.concatenate([read(name) for name in theirs])
        if ours in ("embedding.weight", "unembedding.weight"):
            array = array[tokenizer.theirs]
        elif array.ndim == 2 and model.norm == "rms":  # Llama's matrices are (out, in)
            array = array.T
        if ours == "embedding.weight":
            array = array / scale
        elif ours.startswith("decoder.final_norm.") and model.tied != "none":
            array = array * scale
        if array.shape != shapes[ours]:
            raise UserError(f"{ours} would have shape {array.shape}; the model's sizes need {shapes[ours]}")
        weights[ours] = np.ascontiguousarray(array)
    run.write_model(tokenizer, Checkpoint(weights, {}, Progress(tokenizer_checksum=tokenizer.checksum), config))


def config_of(preset: str, sizes: dict[str, Any], where: Path) -> Config:
    """The preset with these settings."""
    try:
        return configs.with_settings(configs.preset(preset), sizes)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


# Safetensors ----------------------------------------------------------------------------------------------------------

TYPES = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "F64": "<f8"}
"""Name of a type -> NumPy's. bf16, which NumPy lacks, is the upper half of a float32."""


def require_finite(array: np.ndarray, name: str, path: Path) -> np.ndarray:
    """Refuse an array with NaN or infinity in it -> the array"""
    if not np.isfinite(array).all():
        raise UserError(f"{path}: {name} has weights that are NaN or infinite: take an earlier checkpoint")
    return array


class Stored(NamedTuple):
    """An array in a safetensors file: its first byte and its end, counted from the beginning of the file."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self) -> np.ndarray:
        """The array as float32."""
        if self.dtype not in TYPES:
            raise UserError(f"{self.file}: {self.name} is of type {self.dtype}; it must be {', '.join(TYPES)}")
        with user_error(self.file, "cannot read"):
            array = np.fromfile(self.file, TYPES[self.dtype], math.prod(self.shape), offset=self.begin)
        if array.nbytes != self.end - self.begin:
            raise UserError(f"{self.file}: an array of shape {self.shape} has not the bytes that it needs")
        if self.dtype == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        array = array.astype(np.float32, copy=False).reshape(self.shape)
        return require_finite(array, self.name, self.file)


def arrays_in(file: Path) -> dict[str, Stored]:
    """The arrays in a safetensors file by name, from its header alone."""
    with user_error(file, "cannot read"), file.open("rb") as stream:
        size, start = file.stat().st_size, 8 + int.from_bytes(stream.read(8), "little")
        text = stream.read(start - 8) if start <= size else b""
    found = {}
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        for name, entry in header.items():
            begin, end = (start + int(offset) for offset in entry["data_offsets"])
            if not start <= begin <= end <= size:
                raise ValueError("it ends too early")
            found[name] = Stored(file, name, entry["dtype"], tuple(entry["shape"]), begin, end)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: not a sound safetensors file ({in_one_line(error):.80})") from None
    return found


def require_arrays(stored: dict[str, Stored], layout: Layout, sizes: dict[str, int], where: Path) -> None:
    """Refuse files that lack an array of the layout, or have it in another shape."""
    for name, letters in (item for theirs in layout.values() for item in theirs.items()):
        if name not in stored:
            raise UserError(f"{where}: {name} is missing")
        array, shape = stored[name], tuple(sizes[letter] for letter in letters)
        if array.shape != shape:
            raise UserError(f"{array.file}: {name} has shape {array.shape}; in a model of its sizes it has {shape}")


# GPT-2 ----------------------------------------------------------------------------------------------------------------

HEAD_WIDTH = 64
"""d_k of all published sizes."""

COPIES = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)|lm_head\.weight")
"""Arrays that some files hold besides: the causal mask, and the embedding once more."""


def import_gpt2(path: Path, vocab: Path, merges: Path, run: RunDirectory, heads: int | None = None) -> None:
    """Make a run of GPT-2's files. heads  None: d_model / 64, as in all published sizes"""
    run.require_free()
    tokenizer = hub.of_gpt2(vocab, merges)
    stored = {name.removeprefix("transformer."): array for name, array in arrays_in(path).items()}
    N = len({name.split(".")[1] for name in stored if re.match(r"h\.\d+\.", name)})
    layout = of_all_layers(GPT2, max(N, 1))
    names = [name for theirs in layout.values() for name in theirs]
    missing = [name for name in names if name not in stored]
    surplus = [name for name in stored if name not in names and not COPIES.fullmatch(name)]
    if missing or surplus:
        raise UserError(f"{path}: not GPT-2's weights: missing {listed(missing)}; unknown {listed(surplus)}")
    (V, D), (P, _), (_, F) = (stored[name].shape for name in ("wte.weight", "wpe.weight", "h.0.mlp.c_fc.weight"))
    require_arrays(stored, layout, {"V": V, "P": P, "D": D, "A": 3 * D, "F": F}, path)
    h = heads or D // HEAD_WIDTH
    if not h or D % h or not heads and D % HEAD_WIDTH:
        remedy = f"--heads {heads}" if heads else f"{HEAD_WIDTH}, as in all published sizes: give --heads"
        raise UserError(f"{path}: d_model={D} is not a multiple of {remedy}")
    sizes = {"vocab_size": V - 1 + N_SPECIALS, "N": N, "d_model": D, "d_ff": F, "h": h}
    config = config_of("gpt2", sizes | {"max_positions": P, "max_length": P}, path)
    if tokenizer.vocab_size != config.model.vocab_size:
        wanted = f"{vocab} has {tokenizer.vocab_size - N_SPECIALS + 1}"
        raise UserError(f"{path}: vectors of {V} pieces, but {wanted}")
    if "lm_head.weight" in stored and not np.array_equal(stored["wte.weight"].read(), stored["lm_head.weight"].read()):
        raise UserError(f"{path}: lm_head.weight is not wte.weight, so it is not GPT-2's layout")
    make_run(run, config, tokenizer, layout, lambda name: stored[name].read())


# Llama ----------------------------------------------------------------------------------------------------------------

EXPECTED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "rope_scaling": None}
"""Fields of config.json that have one value in Llama's layout, which is also their default."""


def import_llama(path: Path, run: RunDirectory) -> None:
    """Make a run of a directory of the Hub, or of a `.bin` file of llama2.c."""
    run.require_free()
    make_run(run, *(of_directory(path) if path.is_dir() else of_llama2c(path)))


Read = tuple[Config, HubTokenizer, Layout, Callable[[str], np.ndarray]]
"""Arguments of `make_run` after the first."""


def llama_layout(config: Config) -> Layout:
    """The layout of all layers; without a matrix of the output if that is the embedding."""
    tied = config.model.tied != "none"
    layout = {ours: theirs for ours, theirs in LLAMA.items() if not (tied and ours == "unembedding.weight")}
    return of_all_layers(layout, config.model.N)


def of_directory(path: Path) -> Read:
    """Read what the Hub serves."""
    where = path / "config.json"
    fields = read_json(where)
    if fields.get("model_type") != "llama":
        raise UserError(f"{where}: model_type is {fields.get('model_type')!r}; only 'llama' can be imported")
    rope = fields.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        fields["rope_scaling"] = rope
    for name, value in EXPECTED.items():
        if fields.get(name, value) != value:
            raise UserError(f"{where}: {name} is {fields[name]!r:.60}; only {value!r} can be imported")
    V, D, F, h, N = (
        whole(fields, name, where)
        for name in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
    )
    d_k, h_kv = fields.get("head_dim") or D // h, fields.get("num_key_value_heads") or h
    eos, bos = (fields.get(f"{name}_token_id") for name in ("eos", "bos"))
    eos = eos[0] if isinstance(eos, list) and eos else eos
    if type(eos) is not int:
        raise UserError(f"{where}: eos_token_id is {eos!r:.60}; it must be a whole number")
    bos = bos if isinstance(bos, int) else eos
    origin = path / "tokenizer.json"
    tokenizer = HubTokenizer.make(hub.read(origin), V, eos, bos, str(origin))
    sizes = {"vocab_size": tokenizer.vocab_size, "N": N, "d_model": D, "d_ff": F, "h": h, "h_kv": h_kv}
    sizes |= {
        "d_k": d_k,
        "d_v": d_k,
        "ln_eps": fields.get("rms_norm_eps", 1e-6),
        "rope_theta": rope.get("rope_theta") or fields.get("rope_theta") or 10_000.0,
        "tied": "all" if fields.get("tie_word_embeddings") else "none",
        "max_length": fields.get("max_position_embeddings", 2048),
    }
    config = config_of("llama-tiny", sizes, where)
    index = path / "model.safetensors.index.json"
    names = sorted(set(read_json(index).get("weight_map", {}).values())) if index.exists() else ["model.safetensors"]
    stored: dict[str, Stored] = {}
    for name in names:
        if Path(name).name != name:
            raise UserError(f"{index}: {name!r:.60} is not a file beside it")
        stored |= arrays_in(path / name)
    layout = llama_layout(config)
    require_arrays(stored, layout, {"V": V, "D": D, "F": F, "Q": h * d_k, "K": h_kv * d_k}, path)
    return config, tokenizer, layout, lambda name: stored[name].read()


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    text = hub.read(path)
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise UserError(f"{path}: not JSON, or damaged ({in_one_line(error):.80})") from None
    if not isinstance(fields, dict):
        raise UserError(f"{path}: not a JSON object")
    return fields


def whole(fields: dict[str, Any], name: str, where: Path) -> int:
    """A field that must be a positive whole number."""
    value = fields.get(name)
    if type(value) is not int or value < 1:
        raise UserError(f"{where}: {name} is {value!r:.60}; it must be a whole number above 0")
    return value


LLAMA2C = {
    "model.embed_tokens": "VD",
    "input_layernorm": "ND",
    "self_attn.q_proj": "NDD",
    "self_attn.k_proj": "NKD",
    "self_attn.v_proj": "NKD",
    "self_attn.o_proj": "NDD",
    "post_attention_layernorm": "ND",
    "mlp.gate_proj": "NFD",
    "mlp.down_proj": "NDF",
    "mlp.up_proj": "NFD",
    "model.norm": "D",
    "sines and cosines": "TR",
    "lm_head": "VD",
}
"""The arrays of a file of llama2.c in their order: the end of the Hub's name, and the shape. N layers, T positions,
R = d_k; the last is missing if the output is the embedding."""


def of_llama2c(path: Path) -> Read:
    """Read a `.bin` file of llama2.c (seven integers, then float32 weights) and `tokenizer.bin` beside it."""
    with user_error(path, "cannot read"):
        size = path.stat().st_size
        with path.open("rb") as file:
            numbers = struct.unpack("<7i", file.read(28).ljust(28, b"\0"))
    D, F, N, h, h_kv, V, T = numbers
    tied, V = "all" if V > 0 else "none", abs(V)
    if min(D, F, N, h, h_kv, V, T) < 1 or D % h or h % h_kv:
        raise UserError(f"{path}: not a file of llama2.c: its header is {numbers}")
    of_letter = {"V": V, "N": N, "D": D, "F": F, "K": D // h * h_kv, "T": T, "R": D // h}
    places, end = {}, 28
    for part, letters in LLAMA2C.items():
        if part != "lm_head" or tied == "none":
            shape = tuple(of_letter[letter] for letter in letters)
            places[part] = end, shape
            end += 4 * math.prod(shape)
    if end != size:
        raise UserError(f"{path}: {size} bytes, but a model of llama2.c with the header {numbers} has {end}")
    tokenizer = hub.of_llama2c(path.parent / "tokenizer.bin", V)
    sizes = {"vocab_size": tokenizer.vocab_size, "N": N, "d_model": D, "d_ff": F, "h": h, "h_kv": h_kv, "ln_eps": 1e-5}
    config = config_of("llama-tiny", sizes | {"tied": tied, "max_length": T}, path)

    def read(name: str) -> np.ndarray:
        layer = re.match(r"model\.layers\.(\d+)\.", name)
        part = name[layer.end() :] if layer else name
        start, shape = places[part.removesuffix(".weight")]
        if layer:
            shape = shape[1:]
            start += 4 * math.prod(shape) * int(layer[1])
        array = np.fromfile(path, "<f4", math.prod(shape), offset=start).reshape(shape)
        require_finite(array, part, path)
        if ".q_proj." in part or ".k_proj." in part:
            pairs = array.reshape(-1, D // h // 2, 2, D)  # coordinates 2i and 2i + 1 of each head
            array = pairs.swapaxes(1, 2).reshape(shape)  # i and i + d_k / 2
        return array

    return config, tokenizer, llama_layout(config), read
