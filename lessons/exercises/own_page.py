"""Write the explorer's page of the weights that lessons/transformer.py, or a learner's copy of it, has trained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from scratchformer.config import DecodingConfig, ModelConfig
from scratchformer.errors import UserError, printable
from scratchformer.explorer.model_data import EXAMPLES, FORMAT, MOST_PARAMETERS, layout, lesson_code
from scratchformer.explorer.page import write_explorer
from scratchformer.files import user_error

AGAIN = "; `scratchformer learn train` writes it anew"
SPECIAL = ["<pad>", "</s>", "<s>"]
SUBLAYERS = {"attention": "self_attention", "cross": "cross_attention", "ffn": "feed_forward"}
"""The file's name of each sublayer, and the library's."""


def write_page(weights_file: Path, page: Path) -> None:
    """Write the page of a file of weights. Raises UserError, one line, if the file cannot be used."""
    write_explorer(page, *describe(weights_file))


def describe(file: Path) -> tuple[dict[str, Any], bytes]:
    """Describe the model as `model_data.describe` does, with whole words as pieces."""
    words, arrays = read_weights(file)
    config = config_of(file, arrays, len(words))
    parameters = dict(library_parameters(arrays, config))
    weights = b"".join(array.astype("<f4").tobytes() for array in parameters.values())
    pieces = [word if word in [*SPECIAL, *".,?!"] else f"\u2581{word}" for word in words]  # \u2581: after a space
    texts = [*EXAMPLES, "The dog ate the apple."]
    known = [text for text in texts if {*re.findall(r"[\w-]+|[^\w\s]", text)} <= {*words}]
    description = {
        "format": FORMAT,
        "caption": printable(f"weights of {file.name}, trained with transformer.py"),
        "config": asdict(config),
        "decoding": asdict(DecodingConfig()),
        "parameters": layout(parameters),
        "tokenizer": {"kind": "words", "pieces": pieces},
        "languages": {"source": "en", "target": "de"},
        "examples": known if len(known) > 1 else words[3:5],  # her own corpus has other words
        "words": [word for word in words if re.fullmatch(r"[\w-]+", word)],
        "trials": [],
        "code": lesson_code(),
    }
    return description, weights


def read_weights(file: Path) -> tuple[list[str], dict[str, np.ndarray]]:
    """Read the vocabulary and the weights, and refuse values that float32 cannot hold."""
    if not file.exists():
        raise UserError(f"{file}: no such file; train your model first, with `scratchformer learn train`")
    with user_error(file, "cannot read the weights"):
        try:
            with open(file, "rb") as stream, np.load(stream) as saved:
                arrays = {name: np.asarray(array) for name, array in saved.items()}
        except (OSError, MemoryError):
            raise
        except Exception:  # each kind of damage is another exception of NumPy or zipfile
            raise UserError(f"{file}: not a file of weights, or damaged{AGAIN}") from None
    words = arrays.pop("words", np.array(0)).tolist()
    if not (isinstance(words, list) and all(isinstance(word, str) for word in words) and words[:3] == SPECIAL):
        raise UserError(f"{file}: has no vocabulary, an array `words` that begins with {', '.join(SPECIAL)}{AGAIN}")
    for name, array in arrays.items():
        if array.dtype.kind != "f" or not (abs(array) <= np.finfo("float32").max).all():
            raise UserError(f"{file}: {printable(name)} has values that are not finite numbers{AGAIN}")
    return words, arrays


def config_of(file: Path, arrays: dict[str, np.ndarray], n_words: int) -> ModelConfig:
    """Read the sizes off the shapes of three arrays, and refuse a file in which another shape does not fit them."""
    sizes = [("E", 2), ("encoder.0.attention.W_Q", 3), ("encoder.0.ffn.W_1", 2)]
    for name, n_axes in sizes:
        if name not in arrays or arrays[name].ndim != n_axes:
            raise UserError(f"{file}: has no weights {name} with {n_axes} axes: not of transformer.py{AGAIN}")
    (V, d), (_, h, k), (_, f) = (arrays[name].shape for name, _ in sizes)
    N = len({name.split(".")[1] for name in arrays if re.match(r"encoder\.\d+\.", name)})
    norm = {"gamma": (d,), "beta": (d,)}
    attention = {"W_Q": (d, h, k), "W_K": (d, h, k), "W_V": (d, h, k), "W_O": (h, k, d), **norm}
    ffn = {"W_1": (d, f), "b_1": (f,), "W_2": (f, d), "b_2": (d,), **norm}
    expected: dict[str, tuple[int, ...]] = {"words": (V,), "E": (V, d)}
    for stack, i, block in places(N):
        shapes = ffn if block == "ffn" else attention
        expected |= {f"{stack}.{i}.{block}.{name}": shape for name, shape in shapes.items()}
    found = {"words": (n_words,), **{name: array.shape for name, array in arrays.items()}}
    for name in [*expected, *found]:
        if found.get(name) != expected.get(name):
            is_, must = found.get(name, "missing"), expected.get(name, "no such array")
            raise UserError(f"{file}: its arrays do not fit: {printable(name)} is {is_}, expected {must}{AGAIN}")
    if (size := sum(array.size for array in arrays.values())) > MOST_PARAMETERS:
        raise UserError(f"{file}: has {size:,} weights; the explorer's page takes at most {MOST_PARAMETERS:,}")
    return ModelConfig(V, N, d, f, h, k, k, P_drop=0.0, attention_bias=False)


def places(N: int) -> Iterator[tuple[str, int, str]]:
    """Stack, layer and name of each sublayer of the file."""
    for stack, blocks in (("encoder", ("attention", "ffn")), ("decoder", SUBLAYERS)):
        yield from ((stack, i, block) for i in range(N) for block in blocks)


def library_parameters(w: dict[str, np.ndarray], config: ModelConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Name, shape and order the weights as in the library, where some weights stand side by side in one matrix."""
    D = config.d_model
    yield "source_embedding.weight", w["E"]
    for stack, i, block in places(config.N):
        of, to = f"{stack}.{i}.{block}.", f"{stack}.layers.{i}.{SUBLAYERS[block]}."
        if block == "ffn":
            for layer, n in (("inner", 1), ("outer", 2)):
                yield from ((f"{to}{layer}.weight", w[f"{of}W_{n}"]), (f"{to}{layer}.bias", w[f"{of}b_{n}"]))
        else:
            q, k, v = (w[of + name].reshape(D, -1) for name in ("W_Q", "W_K", "W_V"))
            side_by_side = {"qkv": [q, k, v]} if block == "attention" else {"q": [q], "kv": [k, v]}
            yield from ((f"{to}{name}.weight", np.hstack(parts)) for name, parts in side_by_side.items())
            yield f"{to}output.weight", w[of + "W_O"].reshape(-1, D)
        yield from ((f"{to}norm.{name}", w[of + name]) for name in ("gamma", "beta"))
