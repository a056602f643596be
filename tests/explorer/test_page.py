"""The page is one sound HTML file that runs no script but its own; `scratchformer explore` writes and serves it."""

import base64
import hashlib
import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import closing
from html.parser import HTMLParser

import pytest

from scratchformer.errors import UserError
from scratchformer.explorer import page
from scratchformer.explorer.page import bundle, page_of
from scratchformer.explorer.server import PageServer

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
    places = "".join(f"<!-- {name} -->\n" for name in ("policy", "style", "description", "weights", "script"))
    for name, text in {
        "index.html": f'<!doctype html>\n<html class="sf">\n{places}</html>\n',
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
    """The elements of a page that hold data or code, as a browser reads them: [tag, attributes, text]."""

    def __init__(self, html):
        super().__init__()
        self.found, self.policies, self.is_inside = [], [], False
        self.feed(html.decode("utf-8"))

    def handle_starttag(self, tag, attributes):
        self.is_inside = tag in ("script", "style")
        if self.is_inside:
            self.found.append([tag, dict(attributes), ""])
        elif tag == "meta" and "http-equiv" in dict(attributes):
            self.policies.append(dict(attributes)["content"])

    def handle_data(self, data):
        if self.is_inside:
            self.found[-1][2] += data

    def handle_endtag(self, tag):
        self.is_inside = False


def test_a_page_holds_style_model_and_script_and_allows_these_alone(web):
    description, weights = {"format": 1, "examples": ["a dog"]}, bytes(range(256))
    html = page_of(description, weights)
    elements = Elements(html)
    style, data, numbers, script = elements.found
    assert (style[0], style[2]) == ("style", "\n.sf { margin: 0 }\np { }\n")
    assert json.loads(data[2]) == description and base64.b64decode(numbers[2]) == weights
    assert [each[1].get("type") for each in (data, numbers)] == ["application/json", "text/plain"], "neither is run"
    assert script[1] == {} and script[2] == "\n" + bundle(web / "main.js")
    assert not re.search(rb"<!-- (?!Written)", html), "every place is filled"
    rules = dict(rule.split(maxsplit=1) for rule in elements.policies[0].split("; "))
    for tag, _, text in (style, script):
        digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()
        assert rules.pop(f"{tag}-src") == f"'sha256-{digest}'"
    rest = {"img-src": "data:", "worker-src": "blob:", "base-uri": "'none'", "form-action": "'none'"}
    assert rules == {"default-src": "'none'", **rest}


@pytest.mark.parametrize(
    "text", ["</script><script>alert(1)</script>", "<!--<script>", "<!-- script -->", "\udcff"], ids=ascii
)
def test_a_sentence_stays_data(web, text):
    whole = {"examples": [text], "name": text, "caption": text}
    elements = Elements(page_of(whole, b""))
    assert [tag for tag, *_ in elements.found] == ["style", "script", "script", "script"]
    assert json.loads(elements.found[1][2]) == whole and "alert" not in elements.found[3][2]


# Modules --------------------------------------------------------------------------------------------------------------


def test_the_bundle_does_what_the_modules_do(web, node):
    def output(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    (web / "package.json").write_text('{"type": "module"}')
    classic, script = web.parent / "classic.cjs", bundle(web / "main.js")
    classic.write_text(script, encoding="utf-8")
    assert output(node, classic) == output(node, web / "main.js") == "nn8\n"
    assert script.count('NAME = "n"') == 1, "a module is bundled once"


@pytest.mark.parametrize(
    "line, complaint",
    [
        ('import twice from "./engine/sums.js";', "the bundler does not know this form"),
        ('const sums = await import("./engine/sums.js");', "the bundler does not know this form"),
        ('const html = "</SCRIPT>";', "this would end the script"),
    ],
)
def test_a_module_in_another_style_is_named(web, line, complaint):
    (web / "main.js").write_text(line + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=f"main.js, line 1: {complaint}"):
        bundle(web / "main.js")


# The command ----------------------------------------------------------------------------------------------------------


def description_in(page):
    """The description in a page's file."""
    return json.loads(Elements(page.read_bytes()).found[1][2])


def test_the_page_lies_in_the_run_and_replaces_a_page_of_ours_alone(cli, refused, own_run):
    code, printed, said = cli("explore", own_run.path)
    page = own_run.path / "explorer.html"
    assert (code, printed) == (0, f"{page}\n")
    assert re.search(r"explorer\.html: \d\.\d MB; open it in a browser\n", said)
    assert description_in(page)["caption"].startswith("weights of own, ")
    assert cli("explore", own_run.path).code == 0, "our own page is replaced"
    page.write_text("mine", encoding="utf-8")
    assert "explorer.html: exists already and is not replaced" in refused("explore", own_run.path)
    assert page.read_text(encoding="utf-8") == "mine"
    assert "is saved as .html" in refused("explore", own_run.path, "--out", "page.htm")


def test_sentences_checkpoint_and_place_can_be_chosen(cli, trained, tmp_path, files_of):
    before = files_of(trained.path)
    out, sentences = tmp_path / "page.html", ["<script>alert(1)</script>", "a dog"]
    chosen = [word for sentence in sentences for word in ("--sentence", sentence)]
    step_3 = trained.checkpoints.of_step(3)
    code, printed, _ = cli("explore", trained.path, "--checkpoint", step_3, "--out", out, *chosen)
    assert (code, printed) == (0, f"{out}\n")
    description = description_in(out)
    assert description["examples"][:2] == sentences and " 3 steps" in description["caption"]
    assert files_of(trained.path) == before


def test_without_a_run_it_is_the_demo_s(cli, refused, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "RUN is required, since runs/demo does not exist; `scratchformer demo` makes it" in refused("explore")
    shutil.copytree(trained.path, tmp_path / "runs" / "demo")
    assert cli("explore").out == "runs/demo/explorer.html\n"
    assert "--port is for --serve" in refused("explore", "--port", 8000)


@pytest.mark.parametrize(
    "settings, complaint",
    [
        ({"N": 1000, "d_model": 512}, r"its model has [\d,]+ parameters; the explorer's page takes at most 16,000,000"),
        ({"feed_forward": "gelu"}, "the explorer's page knows only model.feed_forward of relu, not gelu"),
    ],
)
def test_a_model_that_the_page_cannot_run(refused, own_run, small_config, settings, complaint):
    own_run.write_config(small_config(**settings))
    for file in own_run.checkpoints.directory.iterdir():
        file.write_bytes(b"not read")
    assert re.search(complaint, refused("explore", own_run.path))


# The server -----------------------------------------------------------------------------------------------------------


def ask(port, path="/"):
    """-> (status, body)"""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_the_page_and_nothing_else_is_served_on_this_machine_alone(monkeypatch, tmp_path, capfd):
    (tmp_path / "config.toml").write_text("secret")
    monkeypatch.chdir(tmp_path)
    html = "<!doctype html>\n<p>Ä</p>".encode()
    with PageServer(html) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            port = server.server_port
            assert [ask(port, path) for path in ("/", "/explorer.html", "/?a=b")] == [(200, html)] * 3
            for path in ("/etc/passwd", "/../../../etc/passwd", "/explorer.html/../config.toml", "/config.toml"):
                status, body = ask(port, path)
                assert status == 404 and b"root:" not in body and b"secret" not in body
            assert server.socket.getsockname()[0] == "127.0.0.1", "no other machine can ask"
            with pytest.raises(UserError, match=f"cannot serve on port {port} of 127.0.0.1: Address already in use"):
                PageServer(html, port)
        finally:
            server.shutdown()
            thread.join()
    assert capfd.readouterr() == ("", "")


def test_a_server_shows_the_page_until_ctrl_c(trained, tmp_path):
    out = tmp_path / "page.html"
    command = [sys.executable, "-m", "scratchformer", "explore", trained.path, "--serve", "--out", out]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            assert process.stdout.readline() == f"{out}\n"
            port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\n", process.stdout.readline())[1])
            assert ask(port) == (200, out.read_bytes())
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0 and said.endswith("Ctrl-C stops the server\n")
