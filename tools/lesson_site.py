"""The pages of docs/lessons/ as a static site: MathML, no script, nothing loaded from elsewhere.

The site is made of the same Markdown that GitHub shows, so a page that is checked is checked for both. Files of the
repository are named and not linked: the site can be copied anywhere, and the repository is not there.
"""

from __future__ import annotations

import html
import posixpath
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from string import Template
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.anchors import anchors_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

HERE = Path(__file__).parent

# Maths ----------------------------------------------------------------------------------------------------------------

MATHML = "http://www.w3.org/1998/Math/MathML"
REFUSED = {
    r"\operatorname": r"GitHub refuses it; \mathrm{...}",
    r"\mbox": r"GitHub refuses it; \text{...}",
    r"\phantom": "GitHub refuses it",
    r"\bm": r"GitHub does not know it; \boldsymbol{...}",
    r"\begin{align}": r"\begin{aligned}, without numbers",
    r"\begin{align*}": r"\begin{aligned}",
    r"\\[": r"a distance after \\ is shown as text",
    r"\mathbb{1}": r"no font has it; \mathbf{1}",
    r"\tag": "shown differently on GitHub",
    r"\def": "no macros",
    r"\newcommand": "no macros",
}
"""What one of the two cannot show -> why, and what it can."""

FUNCTIONS = {
    "arccos",
    "arctan",
    "cos",
    "cosh",
    "det",
    "exp",
    "inf",
    "lim",
    "ln",
    "log",
    "max",
    "min",
    "Pr",
    "sin",
    "sinh",
    "sup",
    "tan",
    "tanh",
}
WITH_LIMITS = {"lim", "max", "min", "inf", "sup"}
BELOW = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}


def mathml(latex: str, display: bool = False) -> str:
    """A formula as MathML. Raises ValueError for what GitHub or latex2mathml cannot show."""
    for command, reason in REFUSED.items():
        if re.search(re.escape(command) + r"(?![A-Za-z])", latex):
            raise ValueError(f"{command}: {reason}")
    if latex.replace(r"\{", "").count("{") != latex.replace(r"\}", "").count("}"):
        raise ValueError("a brace too many or too few")
    # latex2mathml shows the signs & of `aligned`; `split` is the same to it and comes out right
    latex = latex.strip().replace("{aligned}", "{split}")
    try:
        text = convert(latex, display="block" if display else "inline")
    except Exception as error:  # its exceptions have no common class
        raise ValueError(f"latex2mathml: {type(error).__name__}") from None
    # a single letter made upright by \mathrm is told from a variable only by being written as an entity
    text = re.sub(r"<mi>(&#x000[4-7][0-9A-F];)</mi>", r'<mi mathvariant="normal">\1</mi>', text)
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        raise ValueError("an & outside of aligned, cases and matrices, or an & or < in \\text") from None
    if unknown := re.findall(r"\\[A-Za-z]*|\\.", "".join(root.itertext())):
        raise ValueError(f"latex2mathml does not know {unknown[0]}")
    set_like_tex(root, display)
    ElementTree.register_namespace("", MATHML)
    return ElementTree.tostring(root, encoding="unicode")


def set_like_tex(root: ElementTree.Element, display: bool) -> None:
    """Mend what browsers would show otherwise than TeX does: words of \\mathrm, names of functions, limits."""
    mi, mo, mrow = (f"{{{MATHML}}}{tag}" for tag in ("mi", "mo", "mrow"))
    for element in root.iter():
        children = list(element)
        if (
            element.tag == mrow
            and len(children) > 1
            and all(child.tag == mi and child.get("mathvariant") == "normal" for child in children)
        ):
            children[0].text = "".join(child.text or "" for child in children)
            del children[0].attrib["mathvariant"]  # several letters are upright anyway
            element[:] = children[:1]
        if element.tag in (mi, mo) and element.text in FUNCTIONS:
            element.tag = mo
            element.attrib |= {"lspace": "0.167em", "rspace": "0.167em"}
        first = children[0].text if children else ""
        tag = element.tag.removeprefix(f"{{{MATHML}}}")
        if display and tag in BELOW and first in WITH_LIMITS:
            element.tag = f"{{{MATHML}}}{BELOW[tag]}"
    for row in root.iter(mrow):
        for function, after in zip(row, list(row)[1:]):
            name = function if function.tag == mo else function[0] if len(function) else function
            if name.text in FUNCTIONS and after.text == "(":
                name.set("rspace", "0")


# Markdown -------------------------------------------------------------------------------------------------------------

BOX = 'tabindex="0" role="group"'
"""What is wider than a phone scrolls in a box of its own; the keyboard scrolls it once it has the focus."""

TABLE = f'<div class="wide" {BOX} aria-label="Table">\n<table>\n', "</table>\n</div>\n"
REPOSITORY_FILE = re.compile(r"(?![a-z]+:|#)(?!(?:\.\./|lab/)?(?:README|\d\d_\w+)\.md(?:#|$))")


def renderer(docs: Path) -> MarkdownIt:
    """Markdown to HTML, for the pages of a directory."""
    md = MarkdownIt("commonmark", {"html": True}).enable("table").use(anchors_plugin, max_level=4)
    md.inline.ruler.before("backticks", "maths", inline_maths)
    md.core.ruler.push("links", partial(site_links, in_lab=docs.name == "lab"))
    rules = {
        "fence": lambda token: block(token.info, token.content),
        "code_block": lambda token: block("", token.content),
        "image": lambda token: figure(token, docs),
        "th_open": table_cell,
        "td_open": table_cell,
        "table_open": lambda token: TABLE[0],
        "table_close": lambda token: TABLE[1],
    }
    for name, rule in rules.items():
        md.add_render_rule(name, as_render_rule(rule))
    return md


def as_render_rule(rule: Callable[[Token], str]) -> Callable[..., str]:
    return lambda self, tokens, i, options, environment: rule(tokens[i])


def inline_maths(state: StateInline, silent: bool) -> bool:
    """A rule of markdown-it: $`...`$ is a formula, and the punctuation after it stays on its line."""
    found = re.compile(r"\$`([^`]+)`\$([.,;:)?]*)").match(state.src, state.pos)
    if found and not silent:
        whole = '<span class="whole">{}</span>' if found[2] else "{}"
        state.push("html_inline", "", 0).content = whole.format(mathml(found[1]) + found[2])
    if found:
        state.pos = found.end()
    return found is not None


def site_links(state: StateCore, in_lab: bool) -> None:
    """A rule of markdown-it: a link to a page becomes one to its HTML, a link to a file of the repository its name."""
    for token in state.tokens:
        children, token.children = token.children or [], []
        opened: list[Token] = []  # the link we are in: its opening and what follows it
        for child in children:
            if opened or child.type == "link_open":
                opened.append(child)
            else:
                token.children.append(child)
            if child.type == "link_close":
                token.children += site_link(opened, in_lab)
                opened = []


def site_link(link: list[Token], in_lab: bool) -> list[Token]:
    target = str(link[0].attrs["href"])
    if not REPOSITORY_FILE.match(target):
        link[0].attrs["href"] = re.sub(r"^([\w./]+)\.md(?=#|$)", r"\1.html", target).replace(
            "README.html", "index.html"
        )
        return link
    path = posixpath.normpath(f"docs/lessons/{'lab/' * in_lab}{target.partition('#')[0]}")
    name = f"<code>{html.escape(path)}</code>"
    text = "".join(token.content for token in link[1:-1])
    if path.endswith(text):
        return [Token("html_inline", "", 0, content=name)]
    return [*link[1:-1], Token("html_inline", "", 0, content=f" ({name})")]


def block(language: str, text: str) -> str:
    """A fenced block: code, what it printed, or a formula."""
    if language == "math":
        return f'<div class="formula" {BOX} aria-label="Formula">{mathml(text, display=True)}</div>\n'
    if language == "python":
        code = highlight(text, PythonLexer(), HtmlFormatter(nowrap=True))
        return f'<pre class="code wide" {BOX} aria-label="Code"><code>{code}</code></pre>\n'
    label = "Output" if language == "text" else "Listing"
    return f'<pre class="output wide" {BOX} aria-label="{label}"><samp>{html.escape(text.rstrip())}</samp></pre>\n'


def table_cell(token: Token) -> str:
    """markdown-it aligns by style attributes, which the page's own policy forbids."""
    style = str(token.attrs.get("style", ""))
    return f'<{token.tag} class="number">' if style.endswith("right") else f"<{token.tag}>"


def figure(token: Token, docs: Path) -> str:
    """An image in the size it was drawn in."""
    source = str(token.attrs["src"])
    tag = re.search("<svg[^>]*>", (docs / source).read_text(encoding="utf-8"))
    view = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', tag[0] if tag else "")
    if not view:
        raise ValueError(f"{source}: has no viewBox")
    points = 4 / 3 if tag and 'pt"' in tag[0] else 1
    width, height = (round(float(side) * points) for side in view.groups())

    return f'<img src="{source}" alt="{html.escape(token.content)}" width="{width}" height="{height}">'


# Pages ----------------------------------------------------------------------------------------------------------------


def write_site(docs: Path, site: Path) -> None:
    """Write the site from the pages in docs/lessons/; HTML and figures that were there before go."""
    for folder in "figures", "lab":
        (site / folder).mkdir(parents=True, exist_ok=True)
    for old in [*site.glob("**/*.html"), *site.glob("figures/*")]:
        old.unlink()
    for image in docs.glob("figures/*"):
        shutil.copyfile(image, site / "figures" / image.name)
    shutil.copyfile(HERE / "lessons.css", site / "lessons.css")
    lessons = sorted(docs.glob("[0-9][0-9]_*.md"))
    titles = [plain(lesson.read_text(encoding="utf-8").split("\n# ", 1)[1].split("\n")[0]) for lesson in lessons]
    pages = [("index", "The lessons"), *((lesson.stem, title) for lesson, title in zip(lessons, titles))]
    for i, (name, title) in enumerate(pages):
        source = docs / ("README.md" if name == "index" else f"{name}.md")
        after = pages[i + 1] if i + 1 < len(pages) else None
        (site / f"{name}.html").write_text(
            page(title, source, before=pages[i - 1] if i else None, after=after), encoding="utf-8"
        )
    for lab in docs.glob("lab/*.md"):
        (site / "lab" / f"{lab.stem}.html").write_text(page(f"Lab notes {lab.name[:2]}", lab), encoding="utf-8")


def page(title: str, source: Path, before: tuple[str, str] | None = None, after: tuple[str, str] | None = None) -> str:
    """One page of the site; `before` and `after` are the names and titles of its neighbours."""
    md = renderer(source.parent)
    environment: dict[str, Any] = {}
    tokens = md.parse(source.read_text(encoding="utf-8").partition("-->")[2], environment)
    sections = [
        (token.attrs["id"], md.renderer.render([following], md.options, environment))
        for token, following in zip(tokens, tokens[1:])
        if token.type == "heading_open" and token.tag == "h2"
    ]
    heading, end, rest = md.renderer.render(tokens, md.options, environment).partition("</h1>\n")
    template = Template((HERE / "lesson_page.html").read_text(encoding="utf-8"))
    return template.substitute(
        root="../" * (source.parent.name == "lab"),
        title=html.escape(title),
        heading=heading + end,
        body=rest,
        contents=contents(sections),
        neighbours=neighbours(before, after),
    )


def plain(text: str) -> str:
    """A title without the signs of Markdown."""
    return re.sub(r"[$`*]", "", text)


def contents(sections: list[tuple[Any, str]]) -> str:
    if len(sections) < 2:
        return ""
    items = "".join(f'<li><a href="#{anchor}">{title}</a></li>\n' for anchor, title in sections)
    return f'<nav class="contents" aria-label="On this page">\n<ul>\n{items}</ul>\n</nav>\n'


def neighbours(before: tuple[str, str] | None, after: tuple[str, str] | None) -> str:
    links = [
        f'<a rel="{relation}" href="{neighbour[0]}.html"><small>{word}</small> {html.escape(neighbour[1])}</a>\n'
        for relation, word, neighbour in (("prev", "Before", before), ("next", "Next", after))
        if neighbour
    ]
    return f'<nav class="neighbours" aria-label="Other lessons">\n{"".join(links)}</nav>\n' if links else ""
