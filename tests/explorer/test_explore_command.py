"""`scratchformer explore` writes one page, serves it on demand, and refuses in one line what it cannot show."""

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

TINY_MODEL = Path(__file__).parents[2] / "data" / "tiny_model"


def description_in(page):
    """The description in a page's file."""
    [found] = re.findall(r'id="description">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    return json.loads(found)


def test_the_page_lies_in_the_run(cli, own_run):
    code, printed, said = cli("explore", own_run.path)
    page = own_run.path / "explorer.html"
    assert (code, printed) == (0, f"{page}\n")
    assert re.search(r"explorer\.html: \d\.\d MB; open it in a browser\n", said)
    assert description_in(page)["caption"].startswith("weights of own, ")
    assert cli("explore", own_run.path).code == 0, "our own page is replaced"


def test_sentences_checkpoint_and_place_can_be_chosen(cli, trained, tmp_path, files_of):
    before = files_of(trained.path)
    out, sentences = tmp_path / "page.html", ["<script>alert(1)</script>", "a dog"]
    chosen = [word for sentence in sentences for word in ("--sentence", sentence)]
    code, printed, _ = cli(
        "explore", trained.path, "--checkpoint", trained.checkpoints.of_step(3), "--out", out, *chosen
    )
    assert (code, printed) == (0, f"{out}\n")
    description = description_in(out)
    assert description["examples"][:2] == sentences and " 3 steps" in description["caption"]
    assert b"<script>alert" not in out.read_bytes()
    assert files_of(trained.path) == before


def test_without_a_run_it_is_the_demo_s(cli, refused, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "explore: RUN is required, since runs/demo does not exist; `scratchformer demo` makes it" in refused(
        "explore"
    )
    shutil.copytree(trained.path, tmp_path / "runs" / "demo")
    assert cli("explore").out == "runs/demo/explorer.html\n"


def test_a_file_of_somebody_else_is_not_replaced(refused, own_run):
    page = own_run.path / "explorer.html"
    page.write_text("mine", encoding="utf-8")
    assert "explorer.html: not a page that scratchformer wrote" in refused("explore", own_run.path)
    assert page.read_text(encoding="utf-8") == "mine"


def test_a_model_that_is_too_large(refused, own_run, small_config):
    own_run.write_config(small_config(N=1000, d_model=512))
    said = refused("explore", own_run.path)
    assert re.search(r"its model has [\d,]+ parameters; the explorer's page takes at most 16,000,000", said)


def test_a_model_with_another_activation(refused, own_run, small_config):
    own_run.write_config(small_config(feed_forward="gelu"))
    assert "the explorer's page knows only model.feed_forward of relu, not gelu" in refused("explore", own_run.path)


def test_a_port_without_a_server(refused, trained, tmp_path):
    assert "--port is for --serve" in refused("explore", trained.path, "--port", 8000, "--out", tmp_path / "x.html")


def test_a_server_shows_the_page_until_ctrl_c(trained, tmp_path):
    out = tmp_path / "page.html"
    command = [sys.executable, "-m", "scratchformer", "explore", trained.path, "--serve", "--out", out]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            assert process.stdout.readline() == f"{out}\n"
            port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\n", process.stdout.readline())[1])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/")
            assert connection.getresponse().read() == out.read_bytes()
            connection.close()
            taken = [*command[:-2], "--port", str(port), "--out", tmp_path / "second.html"]
            second = subprocess.run(taken, capture_output=True, text=True, timeout=60)
            assert second.returncode == 2
            assert second.stderr.splitlines()[-1].startswith(
                f"scratchformer: cannot serve on port {port} of 127.0.0.1: "
            )
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0 and said.endswith("Ctrl-C stops the server\n")


def test_the_shipped_model_fits(cli, tmp_path):
    out = tmp_path / "tiny.html"
    assert cli("explore", TINY_MODEL, "--out", out).code == 0
    assert 4.7e6 < out.stat().st_size < 6e6
    assert description_in(out)["replay"]["sentence"] == description_in(out)["examples"][0]
