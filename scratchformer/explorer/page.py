"""Make one HTML file of the explorer's modules and a model: it needs neither a server nor a network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from scratchformer.errors import UserError
from scratchformer.files import whole_file
from scratchformer.training.run import require_place

WEB = Path(__file__).parent / "web"
MARK = "<!-- Written by scratchformer, which will replace this file. -->"
"""The first line of a page that we wrote."""

IMPORT = re.compile(r'import \{ ([\w$, ]+) \} from "(\.\.?/[\w./-]+\.js)";')
EXPORT = re.compile(r"export (?=(?:(?:async )?function\*?|class|const) ([\w$]+))")


def write_explorer(out: Path, description: dict[str, Any], weights: bytes) -> bytes:
    """Write the page of a model, whole or not at all; `describe` makes description and weights of a run. -> the page"""
    require_page_place(out)
    html = page_of(description, weights)
    with whole_file(out, "cannot write the page") as file:
        file.write(html)
    return html


def require_page_place(out: Path) -> None:
    """Refuse a name that does not end in .html, or that a file has which we did not write; see `require_place`."""
    require_place(out, MARK.encode())
    if out.suffix.lower() != ".html":
        raise UserError(f"{out}: the page is saved as .html, not as {out.suffix or 'a file without suffix'}")


def page_of(description: dict[str, Any], weights: bytes) -> bytes:
    """The page. Its content security policy allows its script and its style, and workers that the script makes."""
    script = f"\n{bundle(WEB / 'main.js')}"
    style = "\n" + "".join(path.read_text(encoding="utf-8") for path in sorted(WEB.glob("*.css")))
    data = json.dumps(description, allow_nan=False).replace("<", "\\u003c")  # so that no text in it ends its element
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; img-src data:; "
        "worker-src blob:; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "style": f"<style>{style}</style>",
        "description": f'<script type="application/json" id="description">{data}</script>',
        "weights": f'<script type="text/plain" id="weights">{base64.b64encode(weights).decode()}</script>',
        "script": f"<script>{script}</script>",
    }
    html = (WEB / "index.html").read_text(encoding="utf-8")
    html = re.sub(rf"<!-- ({'|'.join(parts)}) -->", lambda found: parts[found[1]], html)
    return f"{MARK}\n{html}".encode()


def digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


# Modules --------------------------------------------------------------------------------------------------------------


def bundle(entry: Path) -> str:
    """One classic script that does what the module does, with all that it imports.

    A browser loads no modules into a page that is opened as a file. So each becomes a function that is called at once
    and returns what the module exports: `const module_0 = (() => { ... return { h, s, clear }; })();`.
    """
    scripts: dict[Path, str] = {}
    add_module(entry.resolve(), scripts)
    return '(() => {\n"use strict";\n' + "".join(scripts.values()) + "})();\n"


def add_module(path: Path, scripts: dict[Path, str]) -> None:
    """Append the function of a module to `scripts`, after those that it imports."""
    if path in scripts:
        return
    lines, names = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if found := IMPORT.fullmatch(line):
            other = (path.parent / found[2]).resolve()
            add_module(other, scripts)
            line = f"const {{ {found[1].replace(' as ', ': ')} }} = module_{list(scripts).index(other)};"
        elif found := EXPORT.match(line):
            names.append(found[1])
            line = line.removeprefix("export ")
        elif re.match(r"(import|export)\b|(?!\s*[/*]).*\bimport\(", line):  # but types in comments may say import()
            raise ValueError(f"{path.name}, line {number}: the bundler does not know this form: {line}")
        if re.search(r"</script|<!--", line, re.IGNORECASE):
            raise ValueError(f"{path.name}, line {number}: this would end the script in a page: {line}")
        lines.append(line)
    body = "\n".join(lines)
    scripts[path] = f"const module_{len(scripts)} = (() => {{\n{body}\nreturn {{ {', '.join(names)} }};\n}})();\n"
