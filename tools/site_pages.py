"""Changes to the Markdown of docs/ for the site, beyond those of MyST.

GitHub's maths, links to files of the repository, figures with captions, places for widgets and for views of the
explorer, links from code in a text to the API, the order of the pages, and the explorer of the repository's model.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import site_api
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

from lessons import PAGE_HEADER, PARTS, by_part, committed_pages
from scratchformer.explorer.model_data import describe
from scratchformer.explorer.page import WEB, bundle, write_explorer
from scratchformer.training.run import RunDirectory

ROOT = Path(__file__).resolve().parents[1]
PICTURES = {0: "00_loop", 2: "04_queries", 8: "09_one_hand", 14: "15_ravine", 22: "23_rotation"}
"""The number of a part's first lesson -> the figure that stands for the part."""

LESSON = re.compile(r"lessons/\d\d_\w+")

THE_FILE = {
    "linear": ("01", "nn.layers.Linear"),
    "check": ("01", "nn.gradcheck"),
    "softmax": ("04", ""),
    "attention": ("04 06", "nn.attention.ScaledDotProductAttention"),
    "multi_head_attention": ("07", "nn.attention.CrossAttention"),
    "embed": ("08 09", "nn.layers.Embedding"),
    "feed_forward": ("11", "nn.layers.FeedForward"),
    "layer_norm": ("12", "nn.layers.LayerNorm"),
    "add_and_norm": ("12", "nn.layers.AddNorm"),
    "encode": ("13", "nn.transformer.Encoder"),
    "decode": ("13", "nn.transformer.Decoder"),
    "new_model": ("13", ""),
    "log_softmax": ("14", ""),
    "cross_entropy": ("14", "nn.loss.cross_entropy"),
    "dropout": ("14", ""),
    "loss_of": ("14", ""),
    "adam": ("15", "nn.optim.Adam"),
    "batches": ("18", ""),
    "train": ("19", ""),
    "beam_search": ("20", "decoding.search.search"),
    "translate": ("20", ""),
}
"""A function of lessons/transformer.py -> the lessons about it, and its counterpart in the library."""

# Before a page is parsed ----------------------------------------------------------------------------------------------

VIEW = re.compile(r"<!-- (see|explorer): (.+?) \| (.+?) -->")
"""A comment: `see: attention?layer=2 | text` becomes a link into the explorer, `explorer: train | title` a frame."""

LINK = '<p class="see">In the explorer: <a href="{address}">{text}</a></p>'
FRAME = '<iframe class="explorer" src="{address}{sign}embed=1" title="{text}" loading="lazy"></iframe>'


def read_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add to a page what other files say: the parts of the course, the modules of a package, a lesson's lab notes."""
    top = "../" * docname.count("/")
    source[0] = re.sub("<!-- .*?-->", lambda comment: with_view(comment[0], top), source[0], flags=re.DOTALL)
    if docname == "index":
        source[0] = source[0].replace("<!-- lessons -->", "\n\n".join(course(Path(app.srcdir))))
    elif docname.startswith("api/"):
        source[0] = re.sub("<!-- modules of (.+) -->", lambda found: site_api.directives(found[1]), source[0])
    elif LESSON.fullmatch(docname):
        names = [name for name, (lessons, _) in THE_FILE.items() if posixpath.basename(docname)[:2] in lessons]
        links = ", ".join(f"[`{name}`](../transformer.md#{name})" for name in names)
        source[0] += f"\n\nIn the file: {links}.\n" if links else ""
        source[0] += "\n" + toctree([f"Lab notes <lab/{posixpath.basename(docname)}>"])
    elif docname == "transformer":
        source[0] = source[0].replace("<!-- functions of the file -->", "\n\n".join(the_file(Path(app.srcdir))))


def with_view(comment: str, top: str) -> str:
    """A link to a view of the explorer, or a frame of it, where a comment names one. `top` leads to the first page."""
    found = VIEW.fullmatch(" ".join(comment.split()))
    if not found:
        return comment
    kind, view, text = found.groups()
    address = f"{top}explorer.html#/{view.replace(' ', '')}"
    sign = "&amp;" if "?" in address else "?"
    return {"see": LINK, "explorer": FRAME}[kind].format(address=escape(address), sign=sign, text=escape(text))


def the_file(docs: Path) -> Iterator[str]:
    """Yield lessons/transformer.py as Markdown: a heading, links and the code of each function."""
    pages = {path.stem[:2]: path.stem for path in sorted(docs.glob("lessons/[0-9][0-9]_*.md"))}
    for part in (ROOT / "lessons" / "transformer.py").read_text(encoding="utf-8").split("\n\n\n"):
        name = re.search(r"^def (\w+)", part, re.MULTILINE)
        if name:
            lessons, counterpart = THE_FILE.get(name[1], ("", ""))
            links = [f"[lesson {number}](lessons/{pages[number]}.md)" for number in lessons.split()]
            links += [f"in the library: {{py:obj}}`scratchformer.{counterpart}`"] if counterpart else []
            yield f"## {name[1]}\n\n" + " · ".join(links)
        yield f"```python\n{part.strip()}\n```"


def toctree(entries: list[str], caption: str = "") -> str:
    return "\n".join(["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), *entries, "```", ""])


def course(docs: Path) -> Iterator[str]:
    """The parts of the course as Markdown: the picture of one lesson, and title and question of each."""
    pages = committed_pages(docs / "lessons")
    for first, names in by_part(pages).items():
        text = "\n".join(pages[name] for name in names)
        headers = {name: PAGE_HEADER.search(pages[name]) for name in names}
        lines = [
            f"- [{header['title']}](lessons/{name}) {header['question']}" for name, header in headers.items() if header
        ]
        picture = re.search(rf"^!\[(.*)\]\((figures/{PICTURES[first]}.svg)\)$", text, re.MULTILINE)
        image = f"![{picture[1]}](lessons/{picture[2]})" if picture else ""
        yield f"### {PARTS[first]}\n\n:::{{container}} part\n{image}\n\n" + "\n".join(lines) + "\n:::\n"
        yield toctree([f"lessons/{name.removesuffix('.md')}" for name in names], PARTS[first])


# When a page has been parsed ------------------------------------------------------------------------------------------

WIDGET = re.compile(r"<!-- widget: (\w+)(, in the figure's place)? -->")


class Page(SphinxTransform):
    """From what GitHub shows to what the site shows."""

    default_priority = 100  # before the files that a page links to are collected for download

    def apply(self, **kwargs: Any) -> None:
        for node in [*self.document.findall(nodes.math)]:
            node[:] = [nodes.Text(node.astext().strip("`"))]
        for kind in addnodes.download_reference, addnodes.pending_xref:
            for node in [*self.document.findall(kind)]:
                self.link(node)
        for node in [*self.document.findall(nodes.image)]:
            self.figure(node)
        for node in [*self.document.findall(nodes.raw)]:
            self.comment(node)

    def comment(self, node: nodes.raw) -> None:
        """Leave comments out, and make room for a widget where one is named, if need be around a figure's picture."""
        if widget := WIDGET.match(node.astext()):
            tags = f'<div class="sf widget" data-widget="{widget[1]}">', "</div>"
            room = [nodes.raw("", tag, format="html") for tag in tags]
            if widget[2]:
                figure = node.parent[node.parent.index(node) - 1]
                assert isinstance(figure, nodes.figure), f"{self.env.docname}: no figure before {node.astext()}"
                figure[:1] = [room[0], figure[0], room[1]]  # the picture is seen until a script puts the widget there
                room = []
            node.replace_self(room)
        elif node.astext().startswith("<!--"):
            node.parent.remove(node)

    def link(self, node: nodes.Element) -> None:
        """Lead from a file of the package to its place in the API; the site has no other files, so show their names."""
        target = node["reftarget"].partition("#")[0]
        if isinstance(node, addnodes.download_reference):
            file = (Path(self.env.srcdir) / self.env.docname).parent / target
        elif node.get("reftype") == "myst" and target not in self.env.found_docs:
            file = Path(self.env.srcdir) / f"{target}.md"
        else:
            return
        path = posixpath.relpath(file.resolve(), ROOT)
        module = path.removesuffix(".py").replace("/", ".")
        if path == "docs/lessons/README.md":
            node.replace_self(self.reference("std", "doc", "/index", node))
        elif module in site_api.modules():
            node.replace_self(self.reference("py", "mod", module, node))
        elif file.exists():
            text = node.astext()
            parts = [nodes.Text(" ("), nodes.literal("", path), nodes.Text(")")]
            node.replace_self([nodes.literal("", text)] if path.endswith(text) else [*node.children, *parts])

    def reference(self, domain: str, kind: str, target: str, node: nodes.Element) -> addnodes.pending_xref:
        where = {"refdoc": self.env.docname, "refexplicit": True}
        return addnodes.pending_xref("", *node.children, refdomain=domain, reftype=kind, reftarget=target, **where)

    def figure(self, node: nodes.image) -> None:
        """Make a figure of an image that stands alone, with the paragraph after it if that is its caption."""
        paragraph = node.parent
        if not isinstance(paragraph, nodes.paragraph) or len(paragraph) > 1:
            return
        figure = nodes.figure("", node.deepcopy())
        following = paragraph.next_node(descend=False, siblings=True)
        if isinstance(following, nodes.paragraph) and re.match(r"Figure \d+\.", following.astext()):
            figure += nodes.caption("", "", *following.children)
            following.parent.remove(following)
        paragraph.replace_self(figure)


class CodeToApi(SphinxPostTransform):
    """Code in a text links to the API if it names something there, and only one thing."""

    default_priority = 100

    def run(self, **kwargs: Any) -> None:
        if self.env.docname.startswith("api/"):
            return
        names = names_of_api(self.env)
        for node in [*self.document.findall(nodes.literal)]:
            place = names.get(node.astext().removesuffix("()"))
            if place and isinstance(node.parent, (nodes.paragraph, nodes.caption)):
                link = make_refnode(self.app.builder, self.env.docname, *place, node.deepcopy())
                node.replace_self(link)


def names_of_api(env: BuildEnvironment) -> dict[str, tuple[str, str]]:
    """Names that a text may use for the things in the API -> page and anchor. One word is enough only for a class."""
    if not hasattr(env, "names_of_api"):
        found = []
        for name, entry in env.domaindata["py"]["objects"].items():
            parts = name.split(".")
            starts = range(len(parts) - (not parts[-1][0].isupper()))
            if entry.objtype == "module":
                short = ["/".join(parts[start:]) + ".py" for start in starts] + [name]
            else:
                short = [".".join(parts[start:]) for start in starts]
            found += [(text, (entry.docname, entry.node_id)) for text in short]
        times = Counter(text for text, _ in found)
        env.names_of_api = {text: place for text, place in found if times[text] == 1}  # type: ignore[attr-defined]
    return env.names_of_api  # type: ignore[attr-defined]


def page_context(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Load the widgets where there are some. Before and after a lesson are lessons, and not their lab notes."""
    if "data-widget" in context.get("body", ""):
        app.add_js_file("widgets.js", loading_method="defer")
        app.add_css_file("widgets.css")
    if '<iframe class="explorer"' in context.get("body", ""):
        app.add_js_file("frame.js")
    if LESSON.fullmatch(pagename):
        pages = ["index", *sorted(filter(LESSON.fullmatch, app.env.found_docs))]
    elif pagename.startswith("lessons/lab/"):
        pages = [pagename.replace("/lab/", "/"), pagename]
    else:
        return
    for name, at in ("prev", pages.index(pagename) - 1), ("next", pages.index(pagename) + 1):
        context[name] = at < len(pages) and {
            "link": app.builder.get_relative_uri(pagename, pages[at]),
            "title": app.builder.render_partial(app.env.titles[pages[at]])["title"],  # type: ignore[attr-defined]
        }


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write the script and the style of the widgets, and the explorer."""
    if error is None and app.builder.format == "html":
        styles = [path.read_text(encoding="utf-8") for path in (WEB / "parts.css", WEB / "widgets" / "widgets.css")]
        static = Path(app.outdir) / "_static"
        (static / "widgets.css").write_text("".join(styles), encoding="utf-8")
        (static / "widgets.js").write_text(bundle(WEB / "widgets" / "widgets.js"), encoding="utf-8")
        description, weights = describe(RunDirectory(ROOT / "data" / "tiny_model"))
        write_explorer(Path(app.outdir) / "explorer.html", description | {"lessons": "lessons/"}, weights)


def setup(app: Sphinx) -> None:
    app.connect("source-read", read_source)
    app.add_transform(Page)
    app.add_post_transform(CodeToApi)
    app.connect("html-page-context", page_context)
    app.connect("build-finished", finish)
