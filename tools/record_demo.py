"""Record `make demo` in a new clone, and draw the recording as docs/demo.svg, the animated picture in the README.

    python tools/record_demo.py           # a few minutes, best on a machine that has nothing else to do
    python tools/record_demo.py --draw    # draws the last recording again, benchmarks/results/demo.json

The picture shows what was printed, and a clock with the real time. It runs faster than the real demo, but waits a
moment for each new row, so that one can read it. It is made of CSS only; who prefers reduced motion sees the last rows.
"""

from __future__ import annotations

import argparse
import codecs
import html
import json
import os
import pty
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "lessons")]

from support.drawing import DARK, LIGHT  # noqa: E402

PICTURE, RECORDING = ROOT / "docs" / "demo.svg", ROOT / "benchmarks" / "results" / "demo.json"
COLUMNS, ROWS = 112, 24
UP = "\x1b[A"  # the cursor one row up
SHOWN, PER_ROW, HELD = 10.0, 0.15, 8.0
"""Seconds of the picture: for the whole run, for each new row, and for the last rows before it starts again."""
CHARACTER, LINE, MARGIN, TOP = 7.83, 17, 16, 42  # pixels

# Recording ------------------------------------------------------------------------------------------------------------


def record() -> dict[str, Any]:
    """Run `make demo` in a terminal, in a new clone that is already installed -> what it printed, and when."""
    from provenance import surroundings

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "--quiet", str(ROOT), folder], check=True)
        subprocess.run(["make", "--silent", ".venv/installed"], cwd=folder, check=True)
        events = printed(f"cd '{folder}' && make demo")
    return {"surroundings": surroundings(), "columns": COLUMNS, "events": thinned(events)}


def printed(command: str) -> list[list[Any]]:
    """Run a command in a terminal -> [second, text] for everything that it printed"""
    began, decoder, events = time.perf_counter(), codecs.getincrementaldecoder("utf-8")(), []

    def read(terminal: int) -> bytes:
        data = os.read(terminal, 65536)
        events.append([round(time.perf_counter() - began, 2), decoder.decode(data)])
        return data

    if pty.spawn(["sh", "-c", f"stty rows {ROWS} cols {COLUMNS}; {command}"], read):
        sys.exit("the command has failed")
    return events


def thinned(events: list[list[Any]]) -> list[list[Any]]:
    """The events without the progress bars that the next one replaced, but for about a hundred of them."""
    kept: list[list[Any]] = []
    for (moment, text), (_, after) in zip(events, [*events[1:], [0, ""]]):
        is_replaced = text.startswith("\r") and "\n" not in text and after.startswith("\r")
        if not (is_replaced and moment - kept[-1][0] < events[-1][0] / 100):
            kept.append([moment, text])
    return kept


# Playing --------------------------------------------------------------------------------------------------------------


class Screen(NamedTuple):
    """All rows printed so far. `at` counts the picture's seconds, `clock` the real ones."""

    at: float
    clock: float
    rows: list[str]


def screens(recording: dict[str, Any]) -> list[Screen]:
    """The screens of the picture, one for each new row and each progress bar kept."""
    columns, events = recording["columns"], recording["events"]
    speed = SHOWN / events[-1][0]
    rows, row, column, waited = ["$ make demo", ""], 1, 0, PER_ROW
    found = [Screen(0, 0, rows[:1])]
    for moment, text in events:
        for character in text.replace(UP, UP[0]):
            if character == "\r":
                column = 0
            elif character == UP[0]:
                row -= 1
            elif character == "\n":
                if row == len(rows) - 1:
                    found.append(Screen(moment * speed + waited, moment, list(rows)))
                    waited += PER_ROW
                    rows.append("")
                row, column = row + 1, 0
            else:
                if column == columns:
                    rows.insert(row + 1, "")
                    row, column = row + 1, 0
                rows[row] = rows[row][:column].ljust(column) + character + rows[row][column + 1 :]
                column += 1
        found.append(Screen(moment * speed + waited, moment, list(rows)))
    return found


# Drawing --------------------------------------------------------------------------------------------------------------


def draw(recording: dict[str, Any]) -> str:
    """The recording as the text of an SVG."""
    played = screens(recording)
    total = played[-1].at + HELD
    width, height = 2 * MARGIN + recording["columns"] * CHARACTER, TOP + ROWS * LINE + MARGIN
    rules, rows, clocks = [], [], []

    def shown(begin: float, end: float | None, look: str, content: str) -> str:
        """A text that is there from `begin` to `end`, or to the last screen"""
        name = f"s{len(rules)}"
        first, last = f"{100 * begin / total:.2f}%", "" if end is None else f"{100 * end / total:.2f}%{{opacity:0}}"
        rules.append(f"@keyframes {name}{{0%{{opacity:0}}{first}{{opacity:1}}{last}}}.{name}{{animation-name:{name}}}")
        gone = ' opacity="0"' * (end is not None)
        return f'<text {look} class="{name}"{gone}>{html.escape(content, quote=False)}</text>'

    for index in range(len(played[-1].rows)):
        look = f'x="{MARGIN}" y="{TOP + LINE * index + 13}"'
        for begin, end, content in spans([(s.at, "".join(s.rows[index : index + 1]).rstrip()) for s in played]):
            if content:
                rows.append(shown(begin, end, look, content))
    for begin, end, clock in spans([(s.at, f"{int(s.clock) // 60}:{int(s.clock) % 60:02}") for s in played]):
        clocks.append(shown(begin, end, f'x="{width - MARGIN:g}" y="24" text-anchor="end"', clock))
    steps = []
    for begin, _, above in spans([(s.at, max(0, len(s.rows) - ROWS)) for s in played]):
        steps.append(f"{100 * begin / total:.2f}%{{transform:translateY({-LINE * above}px)}}")
    style = f"""
:root {{ {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
text {{ font: 13px ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; fill: var(--ink);
  white-space: pre; }}
.head text {{ fill: var(--soft); }}
.rows {{ transform: translateY({-LINE * max(0, len(played[-1].rows) - ROWS)}px); }}
@media (prefers-reduced-motion: no-preference) {{
text, .rows {{ animation: {total:.2f}s step-end infinite; }}
.rows {{ animation-name: scroll; }}
@keyframes scroll {{{"".join(steps)}}}
{chr(10).join(rules)}
}}
"""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img"><title>A recording of make demo</title>',
            f"<style>{style}</style>",
            '<rect x="0.5" y="0.5" width="99.9%" height="99.8%" rx="8" fill="var(--paper)" stroke="var(--line)"/>',
            f'<g class="head"><text x="{MARGIN}" y="24" style="animation:none">make demo</text>',
            *clocks,
            "</g>",
            f'<svg y="{TOP - 4}" height="{ROWS * LINE + 4}"><g transform="translate(0 {4 - TOP})"><g class="rows">',
            *rows,
            "</g></g></svg>",
            "</svg>\n",
        ]
    )


def spans(states: list[tuple[float, Any]]) -> Iterator[tuple[float, float | None, Any]]:
    """(second, state) -> (begin, end, state) for each run of equal states; the last one has no end."""
    begin, state = states[0]
    for at, other in states[1:]:
        if other != state:
            yield begin, at, state
            begin, state = at, other
    yield begin, None, state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true", help="draw the last recording again")
    if not parser.parse_args().draw:
        RECORDING.write_text(json.dumps(record(), ensure_ascii=False) + "\n", encoding="utf-8")
    PICTURE.write_text(draw(json.loads(RECORDING.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
