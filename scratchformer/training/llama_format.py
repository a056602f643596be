"""Make a run of published weights in Llama's layout (Touvron et al. 2023): the same function, under our names.

A directory of the Hugging Face Hub has `config.json`, `tokenizer.json` and the weights as `model.safetensors`, or as
several files and an index. llama2.c has one `.bin` file and `tokenizer.bin`. docs/names.md has the table of names.

- Their matrices are (out, in); ours are (in, out), with queries, keys and values side by side, and gate and value too.
- The Hub's q and k are laid out as our `RotaryPositions` turns them; llama2.c pairs the coordinates 2i and 2i + 1.
- Our embedding is multiplied by sqrt(d_model) on its way in. So ours is theirs divided by it. If the same matrix is
  also the output, the last norm is multiplied by it.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from scratchformer import config as configs
from scratchformer.config import Config
from scratchformer.errors import UserError, in_one_line
from scratchformer.files import user_error
from scratchformer.nn.sizes import parameter_shapes, require_memory
from scratchformer.text import hub
from scratchformer.text.hub import HubTokenizer
from scratchformer.training.checkpoints import Checkpoint, Progress
from scratchformer.training.run import RunDirectory

Read = Callable[[str], np.ndarray]
"""Name of a matrix on the Hub -> float32 array, (out, in) or (D,)"""


def import_run(path: Path, run: RunDirectory) -> None:
    """Make a run of a directory of the Hub, or of a `.bin` file of llama2.c. The weights become its best checkpoint."""
    run.require_free()
    config, tokenizer, read = of_directory(path) if path.is_dir() else of_llama2c(path)
    shapes = parameter_shapes(config.model)
    require_memory(sum(4 * math.prod(shape) for shape in shapes.values()), f"{path}: its weights")
    weights = our_weights(config, tokenizer, read)
    for name, shape in shapes.items():
        if weights[name].shape != shape:
            raise UserError(f"{path}: {name} would have shape {weights[name].shape}; its sizes need {shape}")
    run.write_model(tokenizer, Checkpoint(weights, {}, Progress(tokenizer_checksum=tokenizer.checksum), config))


def our_weights(config: Config, tokenizer: HubTokenizer, read: Read) -> dict[str, np.ndarray]:
    """Their matrices under our names."""
    model, weights = config.model, {}
    words, scale = read("model.embed_tokens.weight")[tokenizer.theirs], math.sqrt(model.d_model)
    weights["embedding.weight"] = words / np.float32(scale)

    def beside(layer: str, names: list[str]) -> np.ndarray:
        return np.concatenate([read(f"{layer}.{name}.weight") for name in names]).T

    for i in range(model.N):
        ours, theirs = f"decoder.layers.{i}", f"model.layers.{i}"
        projections = [f"self_attn.{each}_proj" for each in "qkv"]
        weights[f"{ours}.self_attention.norm.gamma"] = read(f"{theirs}.input_layernorm.weight")
        weights[f"{ours}.self_attention.qkv.weight"] = beside(theirs, projections)
        weights[f"{ours}.self_attention.output.weight"] = read(f"{theirs}.self_attn.o_proj.weight").T
        weights[f"{ours}.feed_forward.norm.gamma"] = read(f"{theirs}.post_attention_layernorm.weight")
        weights[f"{ours}.feed_forward.inner.weight"] = beside(theirs, ["mlp.gate_proj", "mlp.up_proj"])
        weights[f"{ours}.feed_forward.outer.weight"] = read(f"{theirs}.mlp.down_proj.weight").T
    weights["decoder.final_norm.gamma"] = read("model.norm.weight")
    if model.tied == "none":
        weights["unembedding.weight"] = read("lm_head.weight")[tokenizer.theirs]
    else:
        weights["decoder.final_norm.gamma"] = weights["decoder.final_norm.gamma"] * np.float32(scale)
    return {name: np.ascontiguousarray(array) for name, array in weights.items()}


def config_of(sizes: dict[str, Any], where: str) -> Config:
    """The preset `llama-tiny` with these settings."""
    try:
        return configs.with_settings(configs.preset("llama-tiny"), sizes)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


# The Hugging Face Hub -------------------------------------------------------------------------------------------------

EXPECTED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "rope_scaling": None}
"""Fields of config.json that have one value in Llama's layout, which is also their default."""


def of_directory(path: Path) -> tuple[Config, HubTokenizer, Read]:
    """Read what the Hub serves."""
    fields, where = read_json(path / "config.json"), str(path / "config.json")
    if fields.get("model_type") != "llama":
        raise UserError(f"{where}: model_type is {fields.get('model_type')!r}; only 'llama' can be imported")
    rope = fields.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        fields["rope_scaling"] = rope
    for name, value in EXPECTED.items():
        if fields.get(name, value) != value:
            raise UserError(f"{where}: {name} is {fields[name]!r:.60}; only {value!r} can be imported")
    sizes = {name: whole(fields, name, where) for name in ("vocab_size", "hidden_size", "intermediate_size")}
    h, N = whole(fields, "num_attention_heads", where), whole(fields, "num_hidden_layers", where)
    h_kv = fields.get("num_key_value_heads") or h
    d_k = fields.get("head_dim") or sizes["hidden_size"] // h
    length = fields.get("max_position_embeddings", 2048)
    eos, bos = (fields.get(f"{name}_token_id") for name in ("eos", "bos"))
    eos = eos[0] if isinstance(eos, list) and eos else eos
    if type(eos) is not int:
        raise UserError(f"{where}: eos_token_id is {eos!r:.60}; it must be a whole number")
    text = hub.read(path / "tokenizer.json")
    bos = bos if isinstance(bos, int) else eos
    tokenizer = HubTokenizer.make(text, sizes["vocab_size"], eos, bos, str(path / "tokenizer.json"))
    config = config_of(
        {
            "vocab_size": tokenizer.vocab_size,
            "N": N,
            "d_model": sizes["hidden_size"],
            "d_ff": sizes["intermediate_size"],
            "h": h,
            "h_kv": h_kv,
            "d_k": d_k,
            "d_v": d_k,
            "ln_eps": fields.get("rms_norm_eps", 1e-6),
            "rope_theta": rope.get("rope_theta") or fields.get("rope_theta") or 10_000.0,
            "tied": "all" if fields.get("tie_word_embeddings") else "none",
            "max_length": length,
        },
        where,
    )
    D, F, V = sizes["hidden_size"], sizes["intermediate_size"], sizes["vocab_size"]
    return config, tokenizer, reader(path, dict(layout(config, V, D, F)))


def layout(config: Config, V: int, D: int, F: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names of all matrices on the Hub and their shapes, (out, in)."""
    model = config.model
    d_k = model.d_k or 0
    wide, narrow = model.h * d_k, model.h_kv * d_k
    yield "model.embed_tokens.weight", (V, D)
    for i in range(model.N):
        layer = f"model.layers.{i}"
        yield f"{layer}.input_layernorm.weight", (D,)
        yield f"{layer}.self_attn.q_proj.weight", (wide, D)
        yield f"{layer}.self_attn.k_proj.weight", (narrow, D)
        yield f"{layer}.self_attn.v_proj.weight", (narrow, D)
        yield f"{layer}.self_attn.o_proj.weight", (D, wide)
        yield f"{layer}.post_attention_layernorm.weight", (D,)
        yield f"{layer}.mlp.gate_proj.weight", (F, D)
        yield f"{layer}.mlp.up_proj.weight", (F, D)
        yield f"{layer}.mlp.down_proj.weight", (D, F)
    yield "model.norm.weight", (D,)
    if model.tied == "none":
        yield "lm_head.weight", (V, D)


def reader(path: Path, shapes: dict[str, tuple[int, ...]]) -> Read:
    """Find every matrix in the safetensors files of the directory, and check its shape and type."""
    index = path / "model.safetensors.index.json"
    names = sorted(set(read_json(index).get("weight_map", {}).values())) if index.exists() else ["model.safetensors"]
    stored: dict[str, tuple[Path, dict[str, Any]]] = {}
    for name in names:
        if Path(name).name != name:
            raise UserError(f"{index}: {name!r:.60} is not a file beside it")
        stored |= {tensor: (path / name, entry) for tensor, entry in header_of(path / name).items()}
    for tensor, shape in shapes.items():
        if tensor not in stored:
            raise UserError(f"{path}: {tensor} is missing in {', '.join(names)}")
        file, entry = stored[tensor]
        if tuple(entry["shape"]) != shape:
            raise UserError(f"{file}: {tensor} has shape {tuple(entry['shape'])}; config.json needs {shape}")
        if entry["dtype"] not in ("BF16", "F16", "F32"):
            raise UserError(f"{file}: {tensor} is of type {entry['dtype']}; it must be BF16, F16 or F32")
    return lambda tensor: read_tensor(*stored[tensor], shapes[tensor])


def header_of(file: Path) -> dict[str, dict[str, Any]]:
    """The header of a safetensors file: name -> dtype, shape, and `place`, the first byte and the end in the file."""
    with user_error(file, "cannot read"):
        with file.open("rb") as stream:
            size, start = file.stat().st_size, 8 + int.from_bytes(stream.read(8), "little")
            text = stream.read(start - 8) if start <= size else b""
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        for entry in header.values():
            entry["place"] = [start + int(offset) for offset in entry["data_offsets"]]
            if not start <= entry["place"][0] <= entry["place"][1] <= size:
                raise ValueError("it ends too early")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file}: not a sound safetensors file ({in_one_line(error):.80})") from None
    return header


def read_tensor(file: Path, entry: dict[str, Any], shape: tuple[int, ...]) -> np.ndarray:
    """One array of a safetensors file as float32. bf16 is the upper half of a float32."""
    begin, end = entry["place"]
    with user_error(file, "cannot read"):
        with file.open("rb") as stream:
            stream.seek(begin)
            data = stream.read(end - begin)
    stored = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}[entry["dtype"]]
    if len(data) != math.prod(shape) * np.dtype(stored).itemsize:
        raise UserError(f"{file}: an array of shape {shape} has {len(data)} bytes, which is not its size")
    array = np.frombuffer(data, stored)
    if entry["dtype"] == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False).reshape(shape)


def read_json(path: Path) -> dict[str, Any]:
    text = hub.read(path)
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise UserError(f"{path}: not JSON, or damaged ({in_one_line(error):.80})") from None
    if not isinstance(fields, dict):
        raise UserError(f"{path}: not a JSON object")
    return fields


def whole(fields: dict[str, Any], name: str, where: str) -> int:
    value = fields.get(name)
    if type(value) is not int or value < 1:
        raise UserError(f"{where}: {name} is {value!r:.60}; it must be a whole number above 0")
    return value


# llama2.c -------------------------------------------------------------------------------------------------------------


def of_llama2c(path: Path) -> tuple[Config, HubTokenizer, Read]:
    """Read a `.bin` file of llama2.c (seven integers, then float32 weights) and `tokenizer.bin` beside it."""
    with user_error(path, "cannot read"):
        size = path.stat().st_size
        with path.open("rb") as file:
            numbers = struct.unpack("<7i", file.read(28).ljust(28, b"\0"))
    D, F, N, h, h_kv, V, length = numbers
    tied, V = V > 0, abs(V)
    if min(D, F, N, h, h_kv, V, length) < 1 or D % h or h % h_kv:
        raise UserError(f"{path}: not a file of llama2.c: its header is {numbers}")
    sizes = {"vocab_size": V, "N": N, "d_model": D, "d_ff": F, "h": h, "h_kv": h_kv, "ln_eps": 1e-5}
    config = config_of(sizes | {"tied": "all" if tied else "none", "max_length": length}, str(path))
    narrow = D // h * h_kv
    shapes = {
        "model.embed_tokens": (V, D),
        "input_layernorm": (N, D),
        "self_attn.q_proj": (N, D, D),
        "self_attn.k_proj": (N, narrow, D),
        "self_attn.v_proj": (N, narrow, D),
        "self_attn.o_proj": (N, D, D),
        "post_attention_layernorm": (N, D),
        "mlp.gate_proj": (N, F, D),
        "mlp.down_proj": (N, D, F),
        "mlp.up_proj": (N, F, D),
        "model.norm": (D,),
        "sines and cosines": (length, D // h),
    } | ({} if tied else {"lm_head": (V, D)})
    places, start = {}, 28
    for name, shape in shapes.items():
        places[name] = start
        start += 4 * math.prod(shape)
    if start != size:
        raise UserError(f"{path}: {size} bytes, but a model of llama2.c with the header {numbers} has {start}")
    tokenizer = hub.of_llama2c(path.parent / "tokenizer.bin", V)
    config = configs.with_settings(config, {"vocab_size": tokenizer.vocab_size})

    def read(name: str) -> np.ndarray:
        name = name.removesuffix(".weight")
        layer, part = 0, name
        if name.startswith("model.layers."):
            _, _, number, part = name.split(".", 3)
            layer = int(number)
        shape = shapes[part][1:] if len(shapes[part]) == 3 or part.endswith("layernorm") else shapes[part]
        count = math.prod(shape)
        array = np.fromfile(path, "<f4", count, offset=places[part] + 4 * layer * count).reshape(shape)
        if part in ("self_attn.q_proj", "self_attn.k_proj"):
            pairs = array.reshape(-1, D // h // 2, 2, D)  # coordinates 2i and 2i + 1 of each head
            array = pairs.swapaxes(1, 2).reshape(shape)  # i and i + d_k / 2
        return array

    return config, tokenizer, read
