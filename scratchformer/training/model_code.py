"""Checksums of the code that a model computes with: in other code, the same weights mean something else."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import sys
import zlib
from pathlib import Path
from types import FunctionType
from typing import Any

from scratchformer.backends.cpu import FastOps
from scratchformer.nn.ops import Ops
from scratchformer.nn.parameter import Layer, enumerate_named


def code_of(model: Layer) -> dict[str, int]:
    """The classes of a model's layers and of their operations, by name -> CRC-32 of the code of each.

    The functions of a class's module belong to its code. Comments, docstrings and layout don't.
    """
    kinds = {
        kind for used in [*classes_of(model), FastOps] for kind in used.__mro__ if issubclass(kind, (Layer, Ops))
    } - {Layer}
    of_modules = {name: functions_in(vars(sys.modules[name])) for name in {kind.__module__ for kind in kinds}}
    return {
        kind.__qualname__: zlib.crc32((functions_in(vars(kind)) + of_modules[kind.__module__]).encode())
        for kind in sorted(kinds, key=lambda kind: kind.__qualname__)
    }


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


def classes_of(layer: Layer) -> set[type]:
    """The class of a layer and those of all layers in it."""
    items = [item for name, value in vars(layer).items() for _, item in enumerate_named(name, value)]
    return {type(layer)}.union(*(classes_of(item) for item in items if isinstance(item, Layer)))


def functions_in(names: Any) -> str:
    """The code of the functions in a class or module, except those that the module has imported."""
    lines = []
    for name, value in sorted(names.items()):
        function = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
        if isinstance(function, FunctionType) and not is_imported(function, names):
            lines.append(f"{name}: {source_of(function)}")
    return "\n".join(lines)


def is_imported(function: FunctionType, names: Any) -> bool:
    """Whether a module has a function from the module that defines it, under its own name."""
    home = vars(sys.modules.get(function.__module__, object))
    return home is not names and home.get(function.__name__) is function


@functools.cache
def source_of(function: FunctionType) -> str:
    """The statements of a function; its compiled code where the source is missing, or is a lambda's."""
    code = function.__code__
    node = definitions(code.co_filename).get((code.co_name, code.co_firstlineno))
    return ast.unparse(node) if node else f"{code.co_code.hex()} {code.co_names}"


@functools.cache
def definitions(file: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """The functions that a file defines, without docstrings, by name and first line."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found[node.name, min([node.lineno, *(each.lineno for each in node.decorator_list)])] = node
            if ast.get_docstring(node, clean=False) is not None:
                node.body = node.body[1:] or [ast.Pass()]
    return found
