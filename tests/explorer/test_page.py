"""The page is one sound HTML file, whose policy lets nothing run but its own script."""

import base64
import hashlib
import json
import re
import subprocess
from html.parser import HTMLParser

import pytest

from scratchformer.errors import UserError
from scratchformer.explorer import page
from scratchformer.explorer.page import bundle, page_of, require_page_place, write_explorer

WEB = page.WEB
INDEX = """<!doctype html>
<html class="sf">
<meta charset="utf-8">
<!-- policy -->
<!-- style -->
<p id="state">Loading</p>
<!-- description -->
<!-- weights -->
<!-- script -->
</html>
"""
MAIN = """import { twice as double } from "./engine/sums.js";
import { NAME } from "./names.js";
console.log(NAME + double(4));
"""
SUMS = """import { NAME } from "../names.js";
/** @returns {import("../names.js").Text} */
export function twice(x) {
  return `${NAME}${2 * x}`;
}
"""
NAMES = """export const NAME = "n";
const twice = "of this module alone";
"""


@pytest.fixture
def web(tmp_path, monkeypatch):
    """A directory like explorer/web, but small, which the bundler reads instead."""
    directory = tmp_path / "web"
    (directory / "engine").mkdir(parents=True)
    for name, text in {
        "index.html": INDEX,
        "parts.css": ".sf { margin: 0 }\n",
        "style.css": "p { }\n",
        "main.js": MAIN,
        "engine/sums.js": SUMS,
        "names.js": NAMES,
    }.items():
        (directory / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(page, "WEB", directory)
    return directory


class Elements(HTMLParser):
    """The elements of a page that hold data or code, as a browser reads them."""

    def __init__(self, html):
        super().__init__()
        self.found, self.policies, self.open = [], [], None
        self.feed(html)
        assert self.open is None

    def handle_starttag(self, tag, attributes):
        if tag in ("script", "style"):
            self.open = (tag, dict(attributes), "")
        elif tag == "meta" and "http-equiv" in dict(attributes):
            self.policies.append(dict(attributes)["content"])

    def handle_data(self, data):
        if self.open:
            self.open = (*self.open[:2], self.open[2] + data)

    def handle_endtag(self, tag):
        if self.open and tag == self.open[0]:
            self.found.append(self.open)
            self.open = None


def test_a_page_holds_style_model_and_script(web):
    description, weights = {"format": 1, "examples": ["a dog"]}, bytes(range(256))
    html, policy = page_of(description, weights)
    elements = Elements(html.decode("utf-8"))
    style, data, numbers, script = elements.found
    assert (style[0], style[2]) == ("style", "\n.sf { margin: 0 }\np { }\n")
    assert data[1] == {"type": "application/json", "id": "description"} and json.loads(data[2]) == description
    assert numbers[1] == {"type": "text/plain", "id": "weights"} and base64.b64decode(numbers[2]) == weights
    assert script[1] == {} and script[2] == "\n" + bundle(web / "main.js")
    assert elements.policies == [policy]
    assert not re.search(rb"<!-- (?!Written)", html), "every place is filled"


def test_the_policy_allows_this_script_and_this_style_alone(web):
    html, policy = page_of({}, b"")
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    for tag, _, text in Elements(html.decode("utf-8")).found[::3]:
        digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
        assert rules.pop(f"{tag}-src") == f"'sha256-{digest}'"
    assert rules == {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "</script><script>alert(1)</script>", "<!--<script>", "<!-- script -->", "\udcff"],
)
def test_a_sentence_stays_data(web, text):
    whole = {"examples": [text], "name": text, "caption": text}
    elements = Elements(page_of(whole, b"")[0].decode("utf-8"))
    assert [tag for tag, *_ in elements.found] == ["style", "script", "script", "script"]
    assert json.loads(elements.found[1][2]) == whole
    assert "alert" not in elements.found[3][2]


def test_numbers_that_json_lacks_are_a_bug(web):
    with pytest.raises(ValueError):
        page_of({"loss": float("nan")}, b"")


# Files ----------------------------------------------------------------------------------------------------------------


def test_a_page_replaces_a_page_of_ours_and_nothing_else(web, tmp_path):
    out = tmp_path / "out.html"
    for weights in (b"1", b"22"):
        assert write_explorer(out, {}, weights).html == out.read_bytes()
    out.write_text("<!doctype html>\nmine", encoding="utf-8")
    with pytest.raises(UserError, match="out.html: not a page that scratchformer wrote"):
        write_explorer(out, {}, b"")
    assert out.read_text(encoding="utf-8").endswith("mine")
    assert [path.name for path in tmp_path.iterdir() if path != web] == ["out.html"]


@pytest.mark.parametrize("name", ["config.toml", "page", "page.htm"])
def test_a_page_is_called_html(tmp_path, name):
    with pytest.raises(UserError, match="is saved as .html"):
        require_page_place(tmp_path / name)


# Modules --------------------------------------------------------------------------------------------------------------


def test_the_bundle_does_what_the_modules_do(web, node):
    def output(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    (web / "package.json").write_text('{"type": "module"}')
    classic = web.parent / "classic.cjs"
    classic.write_text(bundle(web / "main.js"), encoding="utf-8")
    assert output(node, classic) == output(node, web / "main.js") == "nn8\n"


def test_a_module_is_bundled_once_and_before_those_that_import_it(web):
    script = bundle(web / "main.js")
    assert script.count('NAME = "n"') == 1
    assert script.index('NAME = "n"') < script.index("function twice") < script.index("console.log")


@pytest.mark.parametrize(
    "line, complaint",
    [
        ('import twice from "./engine/sums.js";', "does not know this form"),
        ('import {\n  twice,\n} from "./engine/sums.js";', "line 1: the bundler does not know this form"),
        ('const sums = await import("./engine/sums.js");', "does not know this form"),
        ('import { thrice } from "./engine/sums.js";', "line 1: sums.js exports no thrice"),
        ('import { twice, double as twice } from "./engine/sums.js";', "sums.js exports no double"),
        ('const html = "</SCRIPT>";', "would end the script"),
        ("// <!-- an old way", "would end the script"),
    ],
)
def test_a_module_in_another_style_is_named(web, line, complaint):
    (web / "main.js").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=f"main.js, line 1: .*{complaint.removeprefix('line 1: ')}"):
        bundle(web / "main.js")


def test_imports_in_a_circle_are_named(web):
    (web / "names.js").write_text('import { twice } from "./engine/sums.js";\n', encoding="utf-8")
    with pytest.raises(ValueError, match="main.js imports sums.js imports names.js imports sums.js: a circle"):
        bundle(web / "main.js")


@pytest.mark.parametrize("entry", ["main.js", "widgets/widgets.js"])
def test_the_explorer_s_own_modules_can_be_bundled(entry, tmp_path, node):
    script = tmp_path / "script.cjs"
    script.write_text(bundle(WEB / entry), encoding="utf-8")
    subprocess.run([node, "--check", script], check=True)


def test_the_explorer_s_own_page_is_complete():
    html = page_of({"format": 1}, b"")[0].decode("utf-8")
    assert [tag for tag, *_ in Elements(html).found] == ["style", "script", "script", "script"]
    assert not re.search(
        r'style="| on\w+="|https?://(?!www\.w3\.org/)', re.sub(r"<script>.*</script>", "", html, flags=re.S)
    )
