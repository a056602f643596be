"""A page of the site as a browser's parser sees it, for assertions."""

import posixpath
import re
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "hr"}


class HtmlPage(HTMLParser):
    """Tags in order, their nesting checked.

    elements  [(tag, attributes)], text  everything a reader sees, headings  their levels
    """

    def __init__(self, source):
        super().__init__()
        self.elements, self.text, self.open = [], "", []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), f"an attribute twice in <{tag}>: {names}"
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))  # MathML has <mspace />

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        self.text += data

    def all(self, *tags):
        return [attributes for tag, attributes in self.elements if tag in tags]

    @property
    def headings(self):
        return [int(tag[1]) for tag, _ in self.elements if re.fullmatch("h[1-6]", tag)]

    @property
    def ids(self):
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


def assert_well_made(source, names, folder=""):
    """What every page of the site keeps to; `names` are the files that the site has, `folder` that of the page."""
    page = HtmlPage(source)
    assert source.startswith('<!DOCTYPE html>\n<html lang="en">')
    assert page.headings.count(1) == 1 and page.headings[0] == 1
    assert all(after <= before + 1 for before, after in zip(page.headings, page.headings[1:])), page.headings
    assert len(page.ids) == len(set(page.ids))
    for image in page.all("img"):  # a thumbnail stands beside the title that it illustrates
        assert image["width"] == "160" if image["alt"] == "" else int(image["width"]) and int(image["height"])
    assert not page.all("script", "iframe", "style", "object", "video")
    for tag, attributes in page.elements:
        assert not {name for name in attributes if name.startswith("on") or name == "style"}, (tag, attributes)
        for loaded in (attributes.get("src"), attributes.get("href") if tag == "link" else None):
            assert loaded is None or posixpath.normpath(folder + loaded) in names, f"<{tag}> loads {loaded}"
    (policy,) = (meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy
    for link in page.all("a"):
        file, _, anchor = link["href"].partition("#")
        assert file or anchor in page.ids, link
        assert not file or re.match("https?:", file) or posixpath.normpath(folder + file) in names, link
    for name, attributes in page.elements:
        if name == "pre" or attributes.get("class") in ("wide", "formula"):
            assert attributes["tabindex"] == "0" and attributes["aria-label"] and attributes["role"] == "group"
    assert page.all("main")[0]["id"] == page.all("a")[0]["href"].removeprefix("#"), "the skip link comes first"
    assert not re.search(r"\\[A-Za-z]", "".join(re.findall("<math.*?</math>", source))), "a command is left in MathML"
    return page
