"""`scratchformer data treebank`, with a small archive of our own sentences on a server on this machine."""

import json
import shlex
import zipfile
from urllib.parse import urlsplit

import pytest
from local_server import LocalServer, described

from scratchformer.preparation import download as downloads
from scratchformer.preparation import treebank
from scratchformer.text.trees import read_trees

NAMES = [f"treebank/combined/wsj_{number:04}.mrg" for number in range(1, 200)]
RAW = """
( (S
    (NP-SBJ-1 (DT The) (NN dog) )
    (VP (VBZ seems)
      (S (NP-SBJ (-NONE- *-1) ) (VP (TO to) (VP (VB like) (NP (CD {number}) (NNS bones) )))))
    (. .) ))
( (S (NP-SBJ (-NONE- *)) ))
"""
CLEAN = (
    "(S (NP (DT The) (NN dog)) (VP (VBZ seems) "
    "(S (VP (TO to) (VP (VB like) (NP (CD {number}) (NNS bones)))))) (. .))\n"
)


def articles():
    """Name -> content of each article, and of what the archive has besides."""
    wanted = {name: RAW.format(number=number).encode() for number, name in enumerate(NAMES, start=1)}
    return {"treebank/README": b"read me", "../../evil": b"evil", "/evil": b"evil"} | wanted


def write_zip(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """served(members) -> the arguments that download an archive of these members"""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(downloads, "PAUSES_SECONDS", (0.0,))
    with LocalServer(tmp_path / "server") as server:

        def serve(members):
            path = server.root / urlsplit(treebank.ARCHIVE.url).path.lstrip("/")
            write_zip(path, members)
            monkeypatch.setattr(treebank, "ARCHIVE", described(treebank.ARCHIVE, path))
            return ["data", "treebank", "--mirror", server.url, "--out", tmp_path / "out"]

        yield serve


@pytest.fixture
def fails(cli):
    """fails(command) -> the one line on standard error after the notice"""

    def call(command):
        outcome = cli(*command)
        notice, *complaint = outcome.err.splitlines()
        assert (outcome.code, notice, len(complaint)) == (2, treebank.NOTICE, 1)
        return complaint[0]

    return call


def test_one_command_downloads_and_prepares(cli, fails, refused, served, tmp_path, files_of):
    command = served(articles())
    first = cli(*command)
    assert first.code == 0 and treebank.NOTICE in first.err
    assert first.out.splitlines()[:3] == [
        "train: 159 trees, 1,272 words",
        "val: 20 trees, 160 words",
        "test: 20 trees, 160 words",
    ]
    program, *printed = shlex.split(first.out.splitlines()[3].removeprefix("train with: "))
    small = [f"--set={setting}" for setting in ("steps=1", "N=1", "d_model=8", "d_ff=8", "h=1", "threads=1")]
    assert printed[:2] == ["train", "parsing-small"] and printed[-2:] == ["--out", "RUN"]
    assert cli(*printed[:-1], tmp_path / "run", *small).code == 0
    for split, numbers in {"train": range(1, 160), "val": range(160, 180), "test": range(180, 200)}.items():
        path = tmp_path / "out" / f"{split}.trees"
        assert path.read_text() == "".join(CLEAN.format(number=number) for number in numbers)
        assert len(read_trees(path)) == len(numbers)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["splits"]["val"] == {"trees": 20, "words": 160, "without_words": 20}
    assert manifest["files"]["val.trees"]["bytes"] == (tmp_path / "out" / "val.trees").stat().st_size
    assert {path.name for path in tmp_path.rglob("*")}.isdisjoint({"evil", "README"})

    before = files_of(tmp_path / "out")
    again = cli(*command)
    assert again == first and files_of(tmp_path / "out") == before
    (tmp_path / "out" / "val.trees").write_text("mine")
    assert "val.trees: exists already, with other content" in fails(command)
    assert "neither train.en nor train.en.gz" in refused("train", "tiny", "--data", tmp_path / "out")


def test_other_files_and_options(fails, refused, served, tmp_path):
    command = served(articles())
    assert "data treebank: takes no --vocab-size" in refused(*command, "--vocab-size", 50)
    assert "--mirror ftp://x: does not begin with http" in refused(
        "data", "treebank", "--mirror", "ftp://x", "--out", "x"
    )
    assert not (tmp_path / "out").exists()
    (tmp_path / "server" / urlsplit(treebank.ARCHIVE.url).path.lstrip("/")).write_bytes(b"<html>log in</html>")
    assert "not the expected file: 19 bytes" in fails(command)
