"""`scratchformer data treebank`, with a small archive of our own sentences on a server on this machine."""

import shlex
import zipfile
from urllib.parse import urlsplit

from local_server import described

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


def test_one_command_downloads_and_prepares(cli, server, tmp_path, files_of, monkeypatch):
    archive = server.root / urlsplit(treebank.ARCHIVE.url).path.lstrip("/")
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("treebank/README", "read me")
        for number, name in enumerate(NAMES, start=1):
            file.writestr(name, RAW.format(number=number))
    monkeypatch.setattr(treebank, "ARCHIVE", described(treebank.ARCHIVE, archive))
    out = tmp_path / "out"
    command = ["data", "treebank", "--mirror", server.url, "--out", out]
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
        path = out / f"{split}.trees"
        assert path.read_text() == "".join(CLEAN.format(number=number) for number in numbers)
        assert len(read_trees(path)) == len(numbers)
    assert {path.name for path in out.iterdir()} == {"downloads", "train.trees", "val.trees", "test.trees"}

    before = files_of(out)
    assert cli(*command) == first and files_of(out) == before
    (out / "val.trees").write_text("mine")
    said = cli(*command).err.splitlines()
    assert len(said) == 2 and "val.trees: exists already, with other content" in said[1]
