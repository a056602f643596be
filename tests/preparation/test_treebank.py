"""`scratchformer data treebank`, with a small archive of our own sentences on a server on this machine."""

import json
import random
import shlex
import warnings
import zipfile
from urllib.parse import urlsplit

import pytest
from local_server import LocalServer, described

from scratchformer.errors import UserError
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
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name that occurs twice
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


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({NAMES[6]: None}, "holds no treebank/combined/wsj_0007.mrg; it is not the archive it should be"),
        ({NAMES[6]: b"\n"}, "wsj_0007.mrg: holds no trees"),
        ({NAMES[6]: b"\n( (S (NN a)"}, "wsj_0007.mrg, line 2: the tree that begins here does not end"),
        ({NAMES[6]: b"../../../etc/passwd"}, "wsj_0007.mrg, line 1: '../../../etc/passwd' stands outside of a tree"),
        ({NAMES[6]: b"\n(NN \xff)"}, "wsj_0007.mrg, line 2: not valid UTF-8"),
        (
            {NAMES[6]: b" " * 10**6 + b" "},
            "refused, because treebank/combined/wsj_0007.mrg has more than 1000000 bytes",
        ),
        ({NAMES[6]: b"(NP " * 1000}, "wsj_0007.mrg, line 1: a tree of more than 100 levels"),
    ],
)
def test_an_archive_that_is_not_the_treebank(fails, served, tmp_path, changes, complaint):
    members = {name: data for name, data in (articles() | changes).items() if data is not None}
    said = fails(served(members))
    assert complaint in said and "treebank.zip" in said and list((tmp_path / "out").glob("*.*")) == []


def test_other_files_and_options(fails, refused, served, tmp_path):
    command = served(articles())
    assert "data treebank: takes no --vocab-size" in refused(*command, "--vocab-size", 50)
    assert "--mirror ftp://x: does not begin with http" in refused(
        "data", "treebank", "--mirror", "ftp://x", "--out", "x"
    )
    assert not (tmp_path / "out").exists()
    (tmp_path / "server" / urlsplit(treebank.ARCHIVE.url).path.lstrip("/")).write_bytes(b"<html>log in</html>")
    assert "not the expected file: 19 bytes" in fails(command)


def test_damaged_archives(tmp_path):
    """Wherever it is cut or spoiled, the trees are those of the archive, or one line says what is wrong."""
    path = tmp_path / "treebank.zip"
    write_zip(path, articles())
    whole, expected = path.read_bytes(), treebank.read_articles(path)
    rng = random.Random(0)
    for _ in range(60):
        data = bytearray(whole)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        else:
            begin = rng.randrange(len(data))
            data[begin : begin + rng.choice([1, 4, 400])] = rng.randbytes(rng.choice([1, 4, 400]))
        path.write_bytes(data)
        try:
            assert treebank.read_articles(path) == expected
        except UserError as error:
            assert str(path) in str(error) and "\n" not in str(error)
