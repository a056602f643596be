"""Refuse two habits in the English of docstrings and messages: python tools/plain_english.py

A docstring starts with a verb or a noun, not with "What", "Which", "How", "Where" or "Whether". A text says "is not a",
not "is no"; "there is no" and "is no longer" are plain English.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COVERED = ["benchmarks", "lessons/exercises", "lessons/support", "scratchformer", "tests", "tools"]

OPENING = re.compile(r"\s*(What|Which|How|Where|Whether)\b")
NEGATION = re.compile(r"(?<!\bthere )\b(is|are) no (?!longer)", re.IGNORECASE)


def refusals(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, problem) for the docstrings and other strings of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            if found := OPENING.match(node.value.value):
                yield node.lineno, f"the docstring opens with {found[1]!r}: start with a verb or a noun"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if found := NEGATION.search(" ".join(node.value.split())):
                yield node.lineno, f"{found[0]!r}: write 'not a', 'not one of' or 'no ... is'"


if __name__ == "__main__":
    files = sorted(path for folder in COVERED for path in (ROOT / folder).rglob("*.py"))
    found = [(path, *refusal) for path in files for refusal in refusals(path.read_text(encoding="utf-8"))]
    for path, line, problem in found:
        print(f"{path.relative_to(ROOT)}:{line}: {problem}")
    sys.exit(bool(found))
