"""The API pages of the site, made from docstrings that are plain text with aligned columns."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import lru_cache
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
NOT_PUBLIC = re.compile(r"scratchformer(\.(commands|cli|__main__)\b.*)?")


@lru_cache(maxsize=None)
def modules() -> list[str]:
    """The names of the modules and packages that have a place in the API."""
    paths = (path.relative_to(ROOT) for path in sorted((ROOT / "scratchformer").rglob("*.py")))
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return sorted(name for name in names if not NOT_PUBLIC.fullmatch(name))


def directives(names: str) -> str:
    """Markdown with a section for each of the modules, and for those inside of packages."""
    wanted = tuple(names.split())
    return "\n\n".join(
        f"## {name.removeprefix('scratchformer.')}\n\n```{{eval-rst}}\n.. automodule:: {name}\n```"
        for name in modules()
        if any(f"{name}.".startswith(f"{start}.") for start in wanted)
    )


# Docstrings -----------------------------------------------------------------------------------------------------------

COLUMNS = re.compile(r"(?P<term>\S(?:.*?\S)?)\s{2,}(?P<text>\S.*)")
"""`x    what it is`."""

RESULT = re.compile(r"(?P<term>[^`]*?)\s*->\s+(?P<text>.*)")
"""`f(x)  -> what it returns`, or that alone."""


def as_rst(text: str) -> list[str]:
    """A docstring as reStructuredText: columns and results as definitions, indented text as it is, else prose."""
    lines = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        rows = textwrap.dedent(block).splitlines()
        if block.startswith(" ") and not all(row.startswith(" ") or COLUMNS.fullmatch(row) for row in rows):
            lines += ["::", "", *(f"    {row}" for row in rows), ""]
        else:
            lines += definitions_and_prose(rows)
    return lines


def definitions_and_prose(rows: list[str]) -> list[str]:
    parts: list[list[str]] = []
    for row in rows:
        if found := RESULT.fullmatch(row) or COLUMNS.fullmatch(row):
            parts.append([found["term"] or "returns", found["text"] if found.re is COLUMNS else f"→ {found['text']}"])
        elif parts and (row.startswith(" ") or parts[-1][0] in ("", "returns")):
            parts[-1][1] += f" {row.strip()}"
        else:
            parts.append(["", row])
    lines = []
    for term, words in parts:
        named = f"*{term}*" if re.fullmatch(r"returns|[A-Z]\w+:", term) else f"``{term}``"
        lines += [named, f"    {prose(words)}", ""] if term else [prose(words), ""]
    return lines


def prose(text: str) -> str:
    """Plain text with code between single backticks."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(
        rf"\ `{part}`\ " if part.startswith("`") else re.sub(r"([\\*_|`<]|^[-+#.:=>])", r"\\\1", part) for part in parts
    )


# Autodoc --------------------------------------------------------------------------------------------------------------


def process_docstring(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_rst("\n".join(lines))
    if what == "class":
        lines += fields(thing)


def fields(kind: type) -> list[str]:
    """The fields of a dataclass or named tuple, as they stand in the source, if comments there say what they are."""
    if not ("__dataclass_fields__" in vars(kind) or "_fields" in vars(kind)):
        return []
    source = textwrap.dedent(inspect.getsource(kind))
    body = ast.parse(source).body[0].body  # type: ignore[attr-defined]
    lines = source.splitlines()
    shown = [
        f"    {line.strip()}"
        for part in body
        if isinstance(part, ast.AnnAssign)
        for line in lines[part.lineno - 1 : part.end_lineno]
    ]
    return [".. code-block:: python", "", *shown, ""] if any("  # " in line for line in shown) else []


def skip_member(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Show methods without a docstring, too: the docstring of their class says what they do. Leave out functions
    without one, which are helpers within their module, the fields of named tuples, which are shown with the class, and
    aliases of Any."""
    if thing is Any or type(thing).__name__ == "_tuplegetter":
        return True
    own = inspect.isroutine(thing) or isinstance(thing, property)
    return False if skip and own and what != "module" and not name.startswith("_") else None


def process_signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """Write Array in a signature where autodoc writes TypeAliasForwardRef('Array'), as it does within another type."""
    shown = [text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text) for text in (signature, returned)]
    return shown[0], shown[1]


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-skip-member", skip_member)
