"""The site as `make site` builds it: all pages, no broken link, nothing from elsewhere."""

import posixpath
import re
from html.parser import HTMLParser
from itertools import pairwise
from urllib.parse import unquote

import pytest
import site_api

import lessons

ROOT = lessons.ROOT
LESSONS = [path.stem for path in lessons.lessons_of(ROOT)]

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """The tags of a page: [(tag, attributes)], and the targets in it."""

    def __init__(self, file):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def all(self, *tags, **wanted):
        return [
            attributes
            for tag, attributes in self.tags
            if tag in tags and all(attributes.get(name) == value for name, value in wanted.items())
        ]

    @property
    def anchors(self):
        return {attributes["id"] for _, attributes in self.tags if "id" in attributes}


@pytest.fixture(scope="module")
def pages(site):
    """Name -> page; the explorer, one page with a policy of its own, has its own tests."""
    files = [file for file in site.rglob("*.html") if file != site / "explorer.html"]
    return {file.relative_to(site).as_posix(): Page(file) for file in files}


def test_all_pages_are_there(site, pages):
    documents = {path.stem for path in (ROOT / "docs").glob("*.md")} | {"explorer"}
    names = {f"{name}.html" for name in documents}
    names |= {f"lessons/{folder}{name}.html" for name in LESSONS for folder in ("", "lab/")}
    assert names - {path.relative_to(site).as_posix() for path in site.rglob("*.html")} == set()
    described = {anchor for name, page in pages.items() if name.startswith("api/") for anchor in page.anchors}
    assert {f"module-{name}" for name in site_api.modules()} - described == set()


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for name, page in pages.items():
        loaded = [tag.get("src", "") for tag in page.all("script", "img", "iframe", "source")]
        loaded += [tag["href"] for tag in page.all("link") if tag.get("rel") != "canonical"]
        assert [url for url in loaded if re.match(r"(https?:)?//", url)] == [], name
    for style in site.rglob("*.css"):
        assert not re.search(r"""(url\(|@import)\s*['"]?(https?:)?//""", style.read_text(encoding="utf-8")), style


def test_links_and_images_lead_somewhere(site, pages):
    broken = []
    for name, page in pages.items():
        for tag, attributes in page.tags:
            target = attributes.get("href" if tag in ("a", "link") else "src")
            if not target or re.match(r"\w+:", target) or tag == "use":
                continue
            path, _, anchor = unquote(target).partition("#")
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), path.partition("?")[0])) if path else name
            known = pages.get(path)
            if not (site / path).exists() or (anchor and known and anchor not in known.anchors):
                broken.append((name, target))
    assert broken == []


def test_the_explorer_and_the_lessons_lead_to_each_other(site, pages):
    explorer = (site / "explorer.html").read_text(encoding="utf-8")
    named = set(re.findall(r'"(\d\d_\w+)"', explorer))
    assert len(named) > 10 and named <= set(LESSONS)
    for name, page in pages.items():
        views = [tag.get("href", tag.get("src")) for tag in page.all("a", "iframe")]
        views = [address.rpartition("#/")[2] for address in views if "explorer.html#/" in (address or "")]
        file = ROOT / "docs" / name.replace(".html", ".md")
        places = r"<!-- (?:see|explorer): |explorer\.html#/"
        wanted = re.findall(places, file.read_text(encoding="utf-8")) if file.exists() else []
        assert len(views) == len(wanted), name
    assert pages["index.html"].all("iframe")[0]["src"] == "explorer.html#/transplant?embed=1"


def test_a_lesson_has_neighbours_figures_formulas_and_its_widget(pages):
    widgets = {name: page.all("div", **{"class": "sf widget"}) for name, page in pages.items()}
    for before, name, after in zip(LESSONS, LESSONS[1:], LESSONS[2:]):
        page = pages[f"lessons/{name}.html"]
        targets = [(link.get("rel"), link["href"]) for link in page.all("a")]
        assert ("prev", f"{before}.html") in targets and ("next", f"{after}.html") in targets
        source = (ROOT / "docs" / "lessons" / f"{name}.md").read_text(encoding="utf-8")
        assert len(page.all("figure")) == len(re.findall(r"^!\[", source, re.MULTILINE))
        assert len(page.all("figcaption")) == len(re.findall(r"^\*\*Figure \d+\.\*\*", source, re.MULTILINE))
        formulas = [tag for tag in page.all("div", "span") if tag.get("class", "").startswith("math")]
        assert len(formulas) >= len(re.findall(r"\$`[^`]+`\$|^ *```math", source, re.MULTILINE))
        assert "$`" not in page.text
        named = re.findall(r"^<!-- widget: (\w+)(, in the figure's place)? -->", source, re.MULTILINE)
        places = [
            (tag["data-widget"], after == "img") for (_, tag), (after, _) in pairwise(page.tags) if "data-widget" in tag
        ]
        assert places == [(widget, bool(in_place)) for widget, in_place in named]
    assert {name for name, there in widgets.items() if there} == {
        name for name, page in pages.items() if any("/widgets.js" in tag.get("src", "") for tag in page.all("script"))
    }


def test_lessons_link_to_the_api_and_the_parts_of_the_course_are_in_the_navigation(pages):
    links = {link["href"] for name in LESSONS for link in pages[f"lessons/{name}.html"].all("a")}
    assert any(link.endswith("#scratchformer.nn.attention.ScaledDotProductAttention") for link in links)
    assert any(link.endswith("#module-scratchformer.nn.ops") for link in links)
    for caption in lessons.PARTS.values():
        assert caption in pages["lessons/12_residual_norm_dropout.html"].text
