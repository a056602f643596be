"""The learner's file and ours as one module: what she has not written is ours, so that hers runs from the first day."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType

import numpy as np

from exercises.halves import differentiable

LESSONS = Path(__file__).parents[1]
BELOW = {"transformer": ("transformer",), "more": ("transformer", "more")}
"""The files whose names a file uses, the file itself last."""

MODULE = "_hers"
"""Name of the learner's file as a module; no file beside it that it imports is called so."""


def path_of_ours(file: str) -> Path:
    return LESSONS / f"{file}.py"


@cache
def text_of_ours(file: str) -> str:
    return path_of_ours(file).read_text(encoding="utf-8")


@cache
def functions_of_ours(file: str) -> dict[str, ast.FunctionDef]:
    return functions(ast.parse(text_of_ours(file)))


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@cache
def source_of_ours(file: str, name: str) -> str:
    """The text of one of our functions, with its decorator."""
    node = functions_of_ours(file)[name]
    lines = text_of_ours(file).splitlines()
    return "\n".join(lines[first_line(node) - 1 : node.end_lineno])


def first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def is_written(node: ast.FunctionDef) -> bool:
    """Tell whether more stands in it than a docstring and `...`."""
    return not all(isinstance(line, ast.Pass) or isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
                   for line in node.body)  # fmt: skip


class Hers:
    """A learner's file, parsed. Raises SyntaxError, or ValueError for a zero byte."""

    def __init__(self, path: Path, names: Iterable[str]) -> None:
        """names  the functions that are to be written in it"""
        self.path, self.names = path, tuple(names)
        self.tree = ast.parse(path.read_bytes(), filename=str(path))
        found = functions(self.tree)
        self.missing = [name for name in self.names if name not in found]
        self.written = [name for name in self.names if name in found and is_written(found[name])]

    def code(self, names: Iterable[str]) -> CodeType:
        """Compile what she has written, of the functions to be written only those named, without `differentiable`."""
        left_out = {*self.names, "differentiable"} - set(names)
        body = [node for node in self.tree.body
                if not (isinstance(node, ast.FunctionDef) and node.name in left_out) and not takes_from_file(node)
                ]  # fmt: skip
        return compile(ast.Module(body, self.tree.type_ignores), str(self.path), "exec", dont_inherit=True)


def takes_from_file(node: ast.stmt) -> bool:
    """Tell whether it is `from transformer import ...`, whose names the module has already."""
    return isinstance(node, ast.ImportFrom) and node.module in BELOW


@cache
def code_of_ours(file: str, name: str = "", edits: tuple[tuple[str, str], ...] = ()) -> CodeType:
    """Our file, or only one of its functions with some pieces of its text replaced."""
    tree = ast.parse(text_of_ours(file))
    if name:
        text = source_of_ours(file, name)
        for old, new in edits:
            if text.count(old) != 1:
                raise ValueError(f"{name}: {old!r} stands {text.count(old)} times in our function")
            text = text.replace(old, new)
        tree = ast.parse(text)
    tree.body = [node for node in tree.body if not takes_from_file(node)]
    return compile(tree, str(path_of_ours(file)), "exec", dont_inherit=True)


def ours(file: str, name: str = "", edits: tuple[tuple[str, str], ...] = ()) -> ModuleType:
    """Our file as a new module, one function of it changed by edits."""
    module = empty_module(file)
    for below in BELOW[file]:
        exec(code_of_ours(below), vars(module))
    if name:
        exec(code_of_ours(file, name, edits), vars(module))
    return module


def merged(file: str, hers: dict[str, Hers], names: Iterable[str] | None = None) -> ModuleType:
    """Our file as a new module, with what the learner has written in the place of ours.

    names  the functions that are hers; None: all that she has written
    """
    module = ours(file)
    module.__name__ = MODULE
    sys.modules[MODULE] = module  # dataclasses look there
    module.differentiable = differentiable  # type: ignore[attr-defined]
    with np.errstate():  # what it sets is not for us
        for below in BELOW[file]:
            if below in hers:
                module.__file__ = str(hers[below].path)
                exec(hers[below].code(hers[below].written if names is None else names), vars(module))
    return module


def empty_module(file: str) -> ModuleType:
    module = ModuleType(file)
    module.__file__ = str(path_of_ours(file))
    return module
