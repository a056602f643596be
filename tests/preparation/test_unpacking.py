"""Unpacking of archives, and WMT's SGML."""

import errno
import tarfile

import pytest
from local_server import regular, write_tar
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from scratchformer import files
from scratchformer.errors import UserError
from scratchformer.preparation.unpacking import text_of_sgml, unpack

WANTED = "training/corpus.en"
TEXT = "".join(f"line {number} of some text\n" for number in range(5000)).encode()


@pytest.fixture
def archive(tmp_path):
    """archive(name, member, ...) -> the path of an archive with these members before the wanted one"""

    def write(name, *members):
        write_tar(tmp_path / name, [*members, regular(WANTED, TEXT)])
        return tmp_path / name

    return write


def unpacked(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["archive.tgz", "archive.tar"])
def test_only_wanted_members_are_unpacked(archive, tmp_path, name):
    directory = tarfile.TarInfo("training")
    directory.type = tarfile.DIRTYPE
    others = [regular(other, b"x") for other in ("training/corpus.cs", "README", "../evil", "/tmp/evil", "./a/b.en")]
    unpack(archive(name, (directory, b""), *others), [WANTED, "a/b.en"], tmp_path / "unpacked")
    assert unpacked(tmp_path) == {name, f"unpacked/{WANTED}", "unpacked/a/b.en"}
    assert (tmp_path / "unpacked" / WANTED).read_bytes() == TEXT


def test_existing_files_are_not_unpacked_again(archive, tmp_path):
    path = archive("archive.tgz")
    unpack(path, [WANTED], tmp_path)
    (tmp_path / WANTED).write_bytes(b"kept")
    unpack(path, [WANTED], tmp_path)
    assert (tmp_path / WANTED).read_bytes() == b"kept"


@pytest.mark.parametrize("name", ["archive.tgz", "archive.tar"])
@pytest.mark.parametrize("keep", [0, 10, 200, -1000])
def test_a_truncated_archive(archive, tmp_path, name, keep):
    path = archive(name)
    path.write_bytes(path.read_bytes()[: keep if keep >= 0 else len(path.read_bytes()) // 2])
    with pytest.raises(UserError, match=rf"{name}: (damaged \(.*\); remove it and run the command again|holds no)"):
        unpack(path, [WANTED], tmp_path / "unpacked")
    assert unpacked(tmp_path) == {name}


def test_a_missing_member(archive, tmp_path):
    with pytest.raises(UserError, match="holds no training/corpus.fr"):
        unpack(archive("archive.tgz"), ["training/corpus.fr"], tmp_path)


def test_a_full_disk_leaves_no_partial_file(archive, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = archive("archive.tgz")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(UserError, match=r"corpus\.en: cannot write: No space left on device"):
        unpack(path, [WANTED], tmp_path / "unpacked")
    assert unpacked(tmp_path / "unpacked") == set()


# --- SGML


@pytest.mark.parametrize(
    "sgml",
    [
        '<seg id="1">One sentence.</seg>\n',
        '<seg id="1"> two  spaces\tand a tab </seg>\n<seg id="2"></seg>\n'
        '<seg id="3">\u00a0no-break\u00a0\u00a0 </seg>\n',
        '<srcset>\n<doc docid="x" origlang="de">\n<p>\n<seg id="1">A &amp; B &lt;C&gt; &quot;D&quot;</seg>\n</p>\n',
        '<seg id="1">x</seg>\r\n<seg id="2">y</seg>\r\n',
        '<seg id="1">a\u2028b\x85c\x1cd\x0be</seg>\n',
        '<seg id="1">ends on the next\nline</seg>\n<seg id="2">ok</seg>\n',
        ' <seg id="1">indented</seg>\n<seg id="2">no line end</seg>',
        '<seg id="1">a</seg> after it\n<seg id="2">a <seg>b</seg> c</seg>\n<seg id="3">5 > 4 \\1 \\g</seg>\n',
        '<seg id="1">Straße, žluťoučký, 東京 🙂</seg>\n',
    ],
)
def test_segments_are_those_of_sacrebleu(tmp_path, sgml):
    path = tmp_path / "test.sgm"
    path.write_bytes(sgml.encode())
    text_of_sgml(path, tmp_path / "ours")
    FakeSGMLDataset("any")._convert_format(str(path), str(tmp_path / "theirs"))
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes() != b""


@pytest.mark.parametrize(
    "content, complaint",
    [(b"no segments here\n", "holds no segments"), (b'<seg id="1">\xff</seg>', "codec can't decode")],
)
def test_sgml_without_text(tmp_path, content, complaint):
    (tmp_path / "test.sgm").write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        text_of_sgml(tmp_path / "test.sgm", tmp_path / "text")
    assert not (tmp_path / "text").exists()
