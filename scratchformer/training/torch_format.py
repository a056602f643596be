"""Export a trained model as PyTorch stores one, and import it: encoder, decoder and embeddings as a state dict.

PyTorch's weights are (out, in), ours (in, out), and it always keeps the projections of queries, keys and values in one
matrix. So each of its arrays is one or two of ours side by side, transposed. docs/names.md has the table.
"""

from __future__ import annotations

import base64
import importlib
import zipfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save as serialized

from scratchformer import config as configs
from scratchformer.config import Config, ModelConfig
from scratchformer.errors import UserError, in_one_line
from scratchformer.files import whole_file
from scratchformer.nn.registry import require_paper
from scratchformer.nn.transformer import Transformer
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training import checkpoints
from scratchformer.training.checkpoints import Checkpoint, Progress
from scratchformer.training.published import arrays_in, require_finite
from scratchformer.training.run import RunDirectory, read_trained, require_place, require_tokenizer

FORMAT = "scratchformer for torch 1"

SUBLAYERS = {
    "encoder": ["self_attention", "feed_forward"],
    "decoder": ["self_attention", "cross_attention", "feed_forward"],
}
"""The sublayers of a layer in their order, in which PyTorch numbers its norms."""

PARTS = {
    "self_attention": {"self_attn.in_proj_": ["qkv."], "self_attn.out_proj.": ["output."]},
    "cross_attention": {"multihead_attn.in_proj_": ["q.", "kv."], "multihead_attn.out_proj.": ["output."]},
    "feed_forward": {"linear1.": ["inner."], "linear2.": ["outer."]},
}
"""Beginning of PyTorch's names -> beginnings of ours; `weight` or `bias` follows."""


# The two layouts ------------------------------------------------------------------------------------------------------


def layout(config: ModelConfig) -> dict[str, list[str]]:
    """PyTorch's name of an array -> our names of the arrays that it holds side by side."""
    places = {f"{table}.weight": [f"{table}.weight"] for table in tables(config)}
    for stack, sublayers in SUBLAYERS.items():
        for layer in (f"{stack}.layers.{index}." for index in range(config.N)):
            for number, sublayer in enumerate(sublayers, 1):
                for theirs, ours in PARTS[sublayer].items():
                    for kind in ("weight", "bias"):
                        places[f"{layer}{theirs}{kind}"] = [f"{layer}{sublayer}.{part}{kind}" for part in ours]
                places |= norm(f"{layer}norm{number}.", f"{layer}{sublayer}.norm.")
        if config.norm == "pre":
            places |= norm(f"{stack}.norm.", f"{stack}.final_norm.")
    return places


def tables(config: ModelConfig) -> list[str]:
    """The embedding tables: one for each untied matrix, and those of learned positions."""
    words = ["source_embedding", "target_embedding", "unembedding"]
    number = {"all": 1, "target": 2, "none": 3}[config.tied]
    return words[:number] + (["source_positions", "target_positions"] if config.positions == "learned" else [])


def norm(theirs: str, ours: str) -> dict[str, list[str]]:
    """The names of a LayerNorm's two weights: PyTorch's, and for each a list with ours."""
    return {f"{theirs}weight": [f"{ours}gamma"], f"{theirs}bias": [f"{ours}beta"]}


def is_linear(name: str, array: np.ndarray) -> bool:
    """Return True for the matrix of a linear map, which PyTorch stores transposed."""
    return array.ndim == 2 and name.startswith(tuple(SUBLAYERS))


def to_torch(weights: dict[str, np.ndarray], config: ModelConfig) -> dict[str, np.ndarray]:
    """Our weights under PyTorch's names; zeros for the attention biases of a model that has none."""
    if not config.d_k == config.d_v == config.d_model / config.h:
        raise UserError(
            f"PyTorch's attention has d_k = d_v = d_model / h, but here model.d_k={config.d_k}, "
            f"model.d_v={config.d_v}, model.d_model={config.d_model}, model.h={config.h}"
        )
    tensors = {}
    for name, ours in layout(config).items():
        array = np.concatenate([weights[part] if part in weights else no_bias(weights, part) for part in ours], axis=-1)
        tensors[name] = np.ascontiguousarray(array.T) if is_linear(name, array) else array
    return tensors


def no_bias(weights: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Zeros (d_out,) in place of a bias that the model does not have."""
    return np.zeros_like(weights[name.replace("bias", "weight")][0])


def from_torch(tensors: dict[str, np.ndarray], config: ModelConfig, path: Path) -> dict[str, np.ndarray]:
    """Undo `to_torch`."""
    store = Transformer(config).store
    weights = store.named_views(store.data)
    received = to_torch(weights, config)
    checkpoints.copy_into(tensors, received, path)
    for name, ours in layout(config).items():
        array, start = received[name].T if is_linear(name, received[name]) else received[name], 0
        for part in ours:
            if part in weights:
                end = start + weights[part].shape[-1]
                weights[part][...] = array[..., start:end]
                start = end
            elif array.any():
                raise UserError(f"{path}: {name} is not zero, but model.attention_bias is false")
    return weights


# Files ----------------------------------------------------------------------------------------------------------------


def export_run(run: RunDirectory, checkpoint: str | None, path: Path) -> Config:
    """Write the weights of a run as a safetensors file for PyTorch -> the run's configuration

    Its header carries all that PyTorch has no place for: configuration, progress, and the tokenizer (in base 64).
    """
    require_place(path, f'"{FORMAT}"'.encode())
    run.require("translation")
    _, trained, tokenizer = read_trained(run, checkpoint)
    require_paper(trained.config.model, f"{run.path}: `export --to torch`")
    assert tokenizer is not None
    tensors = to_torch(trained.weights, trained.config.model)
    header = checkpoints.header_of(FORMAT, trained)
    header["tokenizer"] = base64.b64encode(tokenizer.serialized).decode()
    with whole_file(path) as file:
        file.write(serialized(tensors, header))
    return trained.config


def import_run(path: Path, run: RunDirectory, settings: Path | None = None) -> None:
    """Make a run from a state dict, whose weights become its best checkpoint.

    If the weights of an exported file are unchanged, the run translates exactly like the one that was exported. A file
    without its header needs `settings`: a run's config.toml, with tokenizer.model beside it.
    """
    header, tensors = read_state(path)
    if settings:
        config, tokenizer = configs.load(settings), Tokenizer.load(settings.with_name("tokenizer.model"))
        require_paper(config.model, f"{settings}: `import`")
        if (config.data.task, config.model.vocab_size) != ("translation", tokenizer.vocab_size):
            raise UserError(f"{settings}: not of a translator with {tokenizer.vocab_size} pieces, as its tokenizer has")
        progress = Progress(tokenizer_checksum=tokenizer.checksum)
    elif header.get("format") == FORMAT:
        progress, config = checkpoints.read_header(header, path)
        tokenizer = Tokenizer(base64.b64decode(header.get("tokenizer", "")), str(path))
        require_tokenizer(path, tokenizer, progress, path)
    else:
        raise UserError(f"{path}: lacks the header {FORMAT!r}, so name its configuration: --config RUN/config.toml")
    weights = from_torch(tensors, config.model, path)
    run.write_model(tokenizer, Checkpoint(weights, {}, progress, config))


def read_state(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Read a state dict -> its header, and its tensors by name. The header is empty if `torch.save` wrote the file."""
    if not zipfile.is_zipfile(path):
        with checkpoints.open_tensors(path) as file:
            return file.metadata() or {}, {name: array.read() for name, array in arrays_in(path).items()}
    remedy = "save the weights alone: torch.save(model.state_dict(), FILE)"
    try:
        torch = importlib.import_module("torch")
        state = torch.load(path, map_location="cpu", weights_only=True)  # runs no code that the file may hold
    except ImportError:
        raise UserError(f"{path}: only PyTorch can read it: pip install torch, or save it as safetensors") from None
    except Exception as error:  # of many kinds
        raise UserError(
            f"{path}: not a state dict of tensors of floats ({in_one_line(error):.100}); {remedy}"
        ) from None
    if not isinstance(state, dict):
        raise UserError(f"{path}: not a state dict of tensors of floats but a {type(state).__name__}; {remedy}")
    tensors: dict[str, np.ndarray] = {}
    for name, tensor in state.items():
        if not (torch.is_tensor(tensor) and tensor.is_floating_point()):
            kind = tensor.dtype if torch.is_tensor(tensor) else type(tensor).__name__
            raise UserError(f"{path}: not a state dict of tensors of floats: {name} is of type {kind}; {remedy}")
        tensors[name] = require_finite(tensor.float().numpy(), name, path)
    return {}, tensors


def how_to_load(config: ModelConfig, path: Path) -> str:
    """The lines of Python that load an exported file into PyTorch's own modules."""
    D, pre = config.d_model, config.norm == "pre"
    final_norm = f"nn.LayerNorm({D}, {config.ln_eps})" if pre else "None"
    gelu = ',\n         "activation": lambda x: nn.functional.gelu(x, approximate="tanh")'
    activation = gelu if config.feed_forward == "gelu" else ""
    rows = {
        table: config.max_positions if table.endswith("positions") else config.vocab_size for table in tables(config)
    }
    embeddings = "".join(f'    "{table}": nn.Embedding({n}, {D}),\n' for table, n in rows.items())
    return f"""\
import torch
from safetensors.torch import load_file
from torch import nn

sizes = {{"d_model": {D}, "nhead": {config.h}, "dim_feedforward": {config.d_ff}, "layer_norm_eps": {config.ln_eps},
         "dropout": {config.P_drop}, "norm_first": {pre}, "batch_first": True{activation}}}
model = nn.ModuleDict({{
{embeddings}\
    "encoder": nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), {config.N}, {final_norm}, False),
    "decoder": nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), {config.N}, {final_norm}),
}})
model.load_state_dict(load_file({str(path)!r}), strict=True)
model.eval()
"""


def how_to_run(config: ModelConfig) -> str:
    """The lines of Python that run the model which those of `how_to_load` have loaded."""
    D, words = config.d_model, [table for table in tables(config) if table.endswith("embedding")]
    table = 'side + "_embedding"' if len(words) > 1 else f'"{words[0]}"'
    positions = f"""\
    angle = torch.arange(ids.shape[1])[:, None] / 10000 ** (torch.arange(0, {D}, 2) / {D})
    positions = torch.stack([angle.sin(), angle.cos()], 2).flatten(1)"""
    if config.positions == "learned":
        positions = '    positions = model[side + "_positions"].weight[:ids.shape[1]]'
    return f"""\
def embed(side, ids):
{positions}
    return {D} ** 0.5 * model[{table}](ids) + positions


memory = model["encoder"](embed("source", torch.tensor([[5, 6, 1]])))  # ids of pieces; 1 ends a source
states = model["decoder"](embed("target", torch.tensor([[2]])), memory)  # 2 begins a target
scores = states @ model["{words[-1]}"].weight.T  # of each piece that may come next
"""
