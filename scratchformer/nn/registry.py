"""Names by which a configuration chooses layers, and layers and models of a user's own.

`model.attention`, `feed_forward`, `norm` and `positions` each name a class, or a function, that makes a layer of a
configuration: factory(config, init, dtype) -> Layer. `register` adds one.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Callable

import numpy as np

from scratchformer.config import ModelConfig, nearest
from scratchformer.errors import UserError, in_one_line
from scratchformer.nn.attention import SelfAttention
from scratchformer.nn.layers import FeedForward, LayerNorm, LearnedPositions, NoPositions, PositionalEncoding
from scratchformer.nn.llama import GroupedQueryAttention, RMSNorm, SwiGLU
from scratchformer.nn.parameter import Layer

Factory = Callable[[ModelConfig, np.random.Generator, str], Any]


INNER_POSITIONS = ("rotary", "alibi")
"""Values of `model.positions` that stand inside attention."""


def multi_head(config: ModelConfig, init: np.random.Generator, dtype: str) -> Layer:
    """The paper's self-attention; with shared heads or with positions inside, `GroupedQueryAttention`."""
    if config.h_kv or config.positions in INNER_POSITIONS:
        return GroupedQueryAttention(config, init, dtype)
    sizes = config.d_k, config.d_v, config.attention_bias, config.attention_dropout
    return SelfAttention(config.d_model, config.h, init, dtype, *sizes)


def feed_forward(config: ModelConfig, init: np.random.Generator, dtype: str) -> Layer:
    """The paper's feed-forward network, with the activation relu or gelu."""
    activation: Any = config.feed_forward
    return FeedForward(config.d_model, config.d_ff, init, dtype, config.relu_dropout, activation)


REGISTRY: dict[str, dict[str, Factory]] = {
    "attention": {"multi-head": multi_head},
    "feed_forward": {
        **dict.fromkeys(("relu", "gelu"), feed_forward),
        "swiglu": lambda config, init, dtype: SwiGLU(config.d_model, config.d_ff, init, dtype, config.relu_dropout),
    },
    "norm": {  # before each sublayer or at the end of a stack; "post", the paper's, also has the sum in it
        **dict.fromkeys(("post", "pre"), lambda config, _, dtype: LayerNorm(config.d_model, dtype, config.ln_eps)),
        "rms": lambda config, _, dtype: RMSNorm(config.d_model, dtype, config.ln_eps),
    },
    "positions": {
        "sinusoidal": lambda config, *_: PositionalEncoding(config.P_drop),
        "learned": lambda config, init, dtype: LearnedPositions(
            config.max_positions, config.d_model, init, dtype, config.P_drop
        ),
        **dict.fromkeys(("none", *INNER_POSITIONS), lambda config, *_: NoPositions(config.P_drop)),
    },
}
"""Setting of the model -> name -> what makes the layer."""

BUILT_IN = {kind: frozenset(names) for kind, names in REGISTRY.items()}
"""The names that are the library's own."""


def register(kind: str, name: str, factory: Factory) -> None:
    """Let `model.KIND` of a configuration be `name`: its layers are then factory(config, init, dtype).

    kind     "attention" (of a sequence to itself), "feed_forward", "norm" (before each sublayer) or "positions"
    factory  a subclass of Layer with this constructor, or a function
    Raises ValueError for another kind, and for a name of the library's own.
    """
    if kind not in REGISTRY:
        raise ValueError(f"no kind {kind!r} of layers: there are {', '.join(REGISTRY)}")
    if name in BUILT_IN[kind]:
        raise ValueError(f"{kind} {name!r} is the library's own: choose another name")
    REGISTRY[kind][name] = factory
    caller = sys._getframe(1)
    own_file = caller.f_code.co_name == "<module>" and caller.f_globals["__name__"] != "__main__"
    REGISTERED_BY[kind, name] = sys.modules.get(caller.f_globals["__name__"]) if own_file else None


def new_layer(kind: str, config: ModelConfig, init: np.random.Generator, dtype: str) -> Any:
    """Make the layer that the configuration names. Raises UserError if nothing has this name."""
    name, known = getattr(config, kind), REGISTRY[kind]
    if kind == "attention" and name not in BUILT_IN[kind] and (config.h_kv or config.positions in INNER_POSITIONS):
        raise UserError(f"model.attention={name} has positions and heads of its own: set positions=none and h_kv=0")
    if name not in known:
        remedy = "a file of yours can register more: train --model FILE, or train --resume RUN --model FILE"
        if config.defined_in:
            remedy = f"{config.defined_in} registers none of this name"
        raise UserError(f"model.{kind}: no {name!r}{nearest(name, known)}; there are {', '.join(known)}; {remedy}")
    return known[name](config, init, dtype)


def not_chosen(config: ModelConfig) -> list[str]:
    """The settings, `norm=mine`, that would choose registered layers, of each kind of which the model has none."""
    own = {kind: [name for name in names if name not in BUILT_IN[kind]] for kind, names in REGISTRY.items()}
    return [f"{kind}={name}" for kind, names in own.items() for name in names if getattr(config, kind) not in names]


PAPER: dict[str, tuple[Any, ...]] = {
    "attention": ("multi-head",),
    "feed_forward": ("relu", "gelu"),
    "norm": ("post", "pre"),
    "positions": ("sinusoidal", "learned"),
    "h_kv": (0,),
    "defined_in": ("",),
}
"""The settings with which a model has the layers of the paper, of GPT-2 and of BERT."""


def require_paper(config: ModelConfig, what: str, activations: tuple[str, ...] = PAPER["feed_forward"]) -> None:
    """Refuse a model with other layers than the paper's, on behalf of what cannot show them."""
    for name, values in {**PAPER, "feed_forward": activations}.items():
        if getattr(config, name) not in values:
            there = " and ".join(map(str, values)) or "models of the library"
            raise UserError(f"{what} knows only model.{name} of {there}, not {getattr(config, name)}")


# Files of the user ----------------------------------------------------------------------------------------------------

LOADED: dict[Path, ModuleType] = {}
"""Files that were run in this process."""

REGISTERED_BY: dict[tuple[str, str], ModuleType | None] = {}
"""Setting and name of a user's layer -> the module that registers it as it is imported; None: anything else does."""


def with_file(config: ModelConfig) -> ModelConfig:
    """Let `defined_in` name the file that registers the user's layers, which a command must run to open the run.

    The script that trains cannot be that file: it would train again. Without a file, a line on stderr says so.
    """
    own = {kind: getattr(config, kind) for kind in REGISTRY}
    own = {kind: name for kind, name in own.items() if name in REGISTRY[kind].keys() - BUILT_IN[kind]}
    if config.defined_in or not own:
        return config
    modules = {REGISTERED_BY.get(each) for each in own.items()}
    module = modules.pop() if len(modules) == 1 else None
    file = Path(getattr(module, "__file__", None) or "").resolve()
    if module and file.is_file():
        LOADED[file] = module
        return replace(config, defined_in=str(file))
    names = ", ".join(f"{kind}={name}" for kind, name in own.items())
    problem = f"{names}: not registered by one file that is imported, so the command line cannot open the run"
    print(f"{problem}; write such a file, then: train --resume RUN --model FILE", file=sys.stderr)
    return config


def own_model(name: str) -> type | None:
    """Run the file that `model.defined_in` names, FILE or FILE:CLASS, once in a process -> the class, if it names one.

    Raises UserError if the file cannot be read, fails, or lacks the class.
    """
    path, kind = split_name(name)
    if path not in LOADED:
        LOADED[path] = run_file(path)
    if kind and not isinstance(getattr(LOADED[path], kind, None), type):
        raise UserError(f"{path}: there is no class {kind!r} in it")
    return getattr(LOADED[path], kind) if kind else None


def split_name(name: str) -> tuple[Path, str]:
    """FILE:CLASS -> the file and the class; FILE -> the file and "" """
    file, colon, kind = name.rpartition(":")
    return (Path(file), kind) if colon and kind.isidentifier() else (Path(name), "")


def run_file(path: Path) -> ModuleType:
    """Import a Python file from its path."""
    name = f"own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise UserError(f"{path}: must be a Python file, my.py, with a class if it has a model, my.py:MyModel")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except OSError as error:
        remedy = "a run keeps a copy as model.py: put it there, or give another place with --resume RUN --model FILE"
        raise UserError(f"{path}: cannot read: {error.strerror}; {remedy}") from None
    except Exception as error:  # whatever the user's file raises
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == str(path)]
        line = f", line {lines[-1]}" if lines else ""
        raise UserError(f"{path}{line}: {type(error).__name__}: {in_one_line(error)}") from error
    return module
