"""Checksums of the code that a model computes with: in other code, the same weights mean something else."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

from scratchformer.backends.cpu import FastOps
from scratchformer.nn.ops import Ops
from scratchformer.nn.parameter import Layer, enumerate_named

CONSTANTS = (bool, int, float, str, type(None))


def code_of(model: Layer) -> dict[str, int]:
    """The classes of a model's layers and of their operations, by name -> CRC-32 of the code of each.

    The functions and constants that a class's methods name belong to its code, from whichever module they are, but not
    those of Python or NumPy. Comments, docstrings and layout do not belong to it.
    """
    kinds = {kind for used in [*classes_of(model), FastOps] for kind in used.__mro__ if issubclass(kind, (Layer, Ops))}
    found: dict[str, list[str]] = {}
    for kind in kinds - {Layer}:
        found.setdefault(kind.__qualname__, []).append(code_text(vars(kind)))
    for layer in layers_in(model):  # a method that was set on one object
        set_here = {name: value for name, value in vars(layer).items() if isinstance(value, (FunctionType, MethodType))}
        if set_here:
            found[type(layer).__qualname__].append(code_text(set_here))
    return {name: zlib.crc32("\n".join(sorted(texts)).encode()) for name, texts in sorted(found.items())}


def other_code(found: dict[str, int], model: Layer, path: Path) -> str:
    """A line for the user if a checkpoint's weights were trained in code other than the model's; "" if not.

    found  what the checkpoint says of its code; {} if it says nothing
    """
    now = code_of(model) if found else {}
    names = [name for name in sorted(found.keys() | now.keys()) if found.get(name) != now.get(name)]
    if not names:
        return ""
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return (
        f"{path}: trained with other code of {shown}; if that code computes something else, the output is meaningless"
    )


def layers_in(layer: Layer) -> Iterator[Layer]:
    """The layer and all layers in it."""
    yield layer
    for name, value in vars(layer).items():
        for _, item in enumerate_named(name, value):
            if isinstance(item, Layer):
                yield from layers_in(item)


def classes_of(layer: Layer) -> set[type]:
    """The classes of a layer and of all layers in it."""
    return {type(each) for each in layers_in(layer)}


def code_text(names: Any) -> str:
    """The functions and constants of a class, and all that they name, as text."""
    lines, seen = [], set[int]()
    waiting = [(name, value) for name, value in names.items() if not name.startswith("__") or callable(value)]
    while waiting:
        name, value = waiting.pop()
        function = getattr(value, "__func__", getattr(value, "fget", value))  # of a method, or of a property
        if isinstance(function, CONSTANTS):
            lines.append(f"{name} = {function!r}")
        elif isinstance(function, FunctionType) and id(function) not in seen and is_ours(function):
            seen.add(id(function))
            lines.append(f"{name}: {source_of(function)}")
            waiting += [
                (name, function.__globals__[name]) for name in names_in(function.__code__) & function.__globals__.keys()
            ]
            cells = zip(function.__code__.co_freevars, function.__closure__ or ())
            waiting += [(name, cell.cell_contents) for name, cell in cells]
    return "\n".join(sorted(lines))


def is_ours(function: FunctionType) -> bool:
    """Return True for a function of a model, not of Python or NumPy."""
    return (function.__module__ or "").split(".")[0] not in {*sys.stdlib_module_names, "numpy"} - {"__main__"}


def names_in(code: CodeType) -> set[str]:
    """The names that a function uses, also in functions within it."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*map(names_in, inner))


@functools.cache
def source_of(function: FunctionType) -> str:
    """The statements of a function; its compiled code where the source is missing, or is a lambda's."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    found = definitions("".join(linecache.getlines(code.co_filename))).get((code.co_name, code.co_firstlineno))
    return ast.unparse(found) if found else compiled(code)


def compiled(code: CodeType) -> str:
    """The instructions, constants and names of compiled code."""
    constants = [compiled(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names}"


@functools.cache
def definitions(text: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """The functions that the text of a file defines, without docstrings, by name and first line."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found[node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)])] = node
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return found
