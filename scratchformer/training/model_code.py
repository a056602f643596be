"""Checksums of the code that a model computes with: in other code, the same weights mean something else."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

from scratchformer.backends.cpu import FastOps
from scratchformer.nn.ops import Ops
from scratchformer.nn.parameter import Layer, enumerate_named
from scratchformer.training.checkpoints import listed

CONSTANTS = (bool, int, float, str, type(None))
NOT_OURS = {*sys.stdlib_module_names, "numpy"} - {"__main__"}


def code_of(model: Layer) -> dict[str, int]:
    """The classes of a model's layers and of their operations, by name -> CRC-32 of the code of each.

    The functions and constants that a class's methods name belong to its code, from whichever module they are, but not
    those of Python or NumPy. Comments, docstrings and layout do not belong to it.
    """
    kinds = {kind for used in [*map(type, layers_in(model)), FastOps] for kind in used.__mro__} - {Layer}
    found: dict[str, list[str]] = {}
    for kind in kinds:
        if issubclass(kind, (Layer, Ops)):
            found.setdefault(kind.__qualname__, []).append(code_text(kind))
    return {name: zlib.crc32("\n".join(sorted(texts)).encode()) for name, texts in sorted(found.items())}


def other_code(found: dict[str, int], model: Layer, path: Path) -> str:
    """A line for the user if a checkpoint's weights were trained in code other than the model's; "" if not.

    found  what the checkpoint says of its code; {} if it says nothing
    """
    now = code_of(model) if found else {}
    names = [name for name in sorted(found.keys() | now.keys()) if found.get(name) != now.get(name)]
    if not names:
        return ""
    what = "if that code computes something else, the output is meaningless"
    return f"{path}: trained with other code of {listed(names)}; {what}"


def layers_in(layer: Layer) -> Iterator[Layer]:
    """The layer and all layers in it."""
    yield layer
    for name, value in vars(layer).items():
        for _, item in enumerate_named(name, value):
            if isinstance(item, Layer):
                yield from layers_in(item)


def code_text(kind: type) -> str:
    """The functions and constants of a class, and all that they name, as text."""
    lines, seen = [], set[int]()
    waiting = [(name, value) for name, value in vars(kind).items() if not name.startswith("__") or callable(value)]
    while waiting:
        name, value = waiting.pop()
        function = getattr(value, "__func__", getattr(value, "fget", value))  # of a method, or of a property
        if isinstance(function, CONSTANTS):
            lines.append(f"{name} = {function!r}")
        elif isinstance(function, FunctionType) and id(function) not in seen:
            if (function.__module__ or "").split(".")[0] in NOT_OURS:
                continue
            seen.add(id(function))
            code = function.__code__
            linecache.checkcache(code.co_filename)  # the file may have changed since
            source = "".join(linecache.getlines(code.co_filename))
            text, named = definitions(source).get((code.co_name, code.co_firstlineno)) or compiled(code)
            lines.append(f"{name}: {text}")
            waiting += [(each, function.__globals__[each]) for each in named & function.__globals__.keys()]
            cells = zip(code.co_freevars, function.__closure__ or ())
            waiting += [(each, cell.cell_contents) for each, cell in cells]
    return "\n".join(sorted(lines))


@functools.cache
def definitions(source: str) -> dict[tuple[str, int], tuple[str, set[str]]]:
    """The functions in a file's text, by name and first line -> statements without docstrings, names in them."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            found[node.name, first] = ast.unparse(node), names
    return found


def compiled(code: CodeType) -> tuple[str, set[str]]:
    """The instructions and constants of a function whose source is missing, or of a lambda, and the names in it."""
    inner = [compiled(each) for each in code.co_consts if isinstance(each, CodeType)]
    constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
    text = f"{code.co_code.hex()} {constants} {code.co_names} {[text for text, _ in inner]}"
    return text, set(code.co_names).union(*(names for _, names in inner))
