"""Figures of the lessons as SVG that can be read by day and by night.

A drawing of `support.drawing` knows both schemes itself. Of a figure of matplotlib, black, white, greys and the colours
of the course become variables of CSS with two values each. Other colours stay, and so does whatever lies on an image,
because the image stays too.
"""

from __future__ import annotations

import io
import re
from html import escape
from xml.etree import ElementTree

from matplotlib import rc_context
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from scratchformer.experiments import figures
from support.drawing import COLOURS

LARGEST = 300_000
"""Bytes of a figure: it is in the repository, and a reader's phone loads it."""

PALETTE = dict(COLOURS.values()) | {figures.DARK: "#8fc1ee", figures.LIGHT: "#3d6f96", figures.ACCENT: "#ff9147"}
"""The colour by day -> the colour by night."""

INK, PAPER = COLOURS["ink"][1], COLOURS["paper"][1]
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ON_IMAGE = "on-image"


def svg(figure: object, alt: str) -> str:
    """A figure of matplotlib or a drawing as the text of an SVG with a title."""
    text = of_matplotlib(figure) if isinstance(figure, Figure) else figure.svg()  # type: ignore[attr-defined]
    text = with_title(text, alt)
    if len(text.encode()) > LARGEST:
        raise ValueError(
            f"the figure has {len(text.encode()):,} bytes, more than {LARGEST:,}: thin out its points, or draw what has"
            " thousands of them with rasterized=True"
        )
    return text


def with_title(text: str, alt: str) -> str:
    """Name the picture by its alternative text, in place of a title that it has."""
    start, tag, rest = re.split("(<svg[^>]*>)", text, maxsplit=1)
    tag = re.sub(r'\s(role|aria-labelledby|aria-label)="[^"]*"', "", tag)
    rest = re.sub(r"^\s*<title[^>]*>.*?</title>", "", rest, flags=re.DOTALL)
    return f'{start}{tag[:-1]} role="img" aria-labelledby="title"><title id="title">{escape(alt)}</title>{rest}'


@figures.as_default_style
def encoded(figure: Figure) -> bytes:
    """Draw an SVG, byte for byte the same for the same figure."""
    file = io.BytesIO()
    with rc_context({"svg.hashsalt": "scratchformer"}):
        figure.savefig(file, format="svg", dpi=150, facecolor="white", metadata={"Date": None})
    return file.getvalue()


def of_matplotlib(figure: Figure) -> str:
    mark_what_lies_on_images(figure)
    root = ElementTree.fromstring(encoded(figure))
    for element in root.findall(f"{{{SVG}}}metadata"):
        root.remove(element)
    used = {"#000000": INK}
    recolour(root, used)
    day, night = (" ".join(f"--{name(pair[0])}:{pair[i]};" for pair in sorted(used.items())) for i in (0, 1))
    style = ElementTree.Element(f"{{{SVG}}}style")
    by_night = f"@media (prefers-color-scheme: dark) {{ :root {{ {night} }} }}"
    style.text = f":root {{ {day} }} {by_night} svg {{ fill: var(--c000000); }}"
    root.insert(0, style)
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def mark_what_lies_on_images(figure: Figure) -> None:
    figure.draw_without_rendering()  # it decides where everything is
    for axes in figure.axes:
        if axes.images or any(isinstance(part, QuadMesh) for part in axes.collections):
            for i, part in enumerate([*axes.texts, *axes.lines, *axes.patches]):
                extent = part.get_window_extent()
                if axes.bbox.contains((extent.x0 + extent.x1) / 2, (extent.y0 + extent.y1) / 2):
                    part.set_gid(f"{ON_IMAGE}-{figure.axes.index(axes)}-{i}")


def recolour(element: ElementTree.Element, used: dict[str, str]) -> None:
    """Replace colours by variables, in this element and what is in it, and shorten the numbers of paths."""
    identity = element.get("id", "")
    if identity.startswith("QuadMesh"):
        return
    if identity.startswith(ON_IMAGE):
        element.set("style", f"fill: #000000; {element.get('style', '')}")  # matplotlib doesn't write black
        return
    if "style" in element.attrib:
        element.set("style", re.sub(r"#[0-9a-f]{6}\b", lambda found: variable(found[0], used), element.attrib["style"]))
    if "d" in element.attrib:
        element.set("d", re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", element.attrib["d"]))
    for child in element:
        recolour(child, used)


def variable(colour: str, used: dict[str, str]) -> str:
    """The variable for a colour that changes at night, or a colour that stays."""
    red, green, blue = channels(colour)
    if colour not in PALETTE and not red == green == blue:
        return colour
    mixed = [round(ink + (paper - ink) * red / 255) for ink, paper in zip(channels(INK), channels(PAPER))]
    used[colour] = PALETTE.get(colour) or "#" + "".join(f"{channel:02x}" for channel in mixed)
    return f"var(--{name(colour)})"


def channels(colour: str) -> list[int]:
    return [int(colour[at : at + 2], 16) for at in (1, 3, 5)]


def name(colour: str) -> str:
    return f"c{colour[1:]}"
