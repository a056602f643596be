"""Unpacking of damaged and hostile archives, and WMT's SGML."""

import errno
import gzip
import random
import tarfile
import zlib
from contextlib import suppress

import pytest
from local_server import regular, write_tar
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from scratchformer import files
from scratchformer.errors import UserError
from scratchformer.preparation import unpacking
from scratchformer.preparation.unpacking import text_of_sgml, unpack

WANTED = "training/corpus.en"
TEXT = "".join(f"line {number} of some text\n" for number in range(5000)).encode()
MEMBERS = {WANTED: len(TEXT)}


@pytest.fixture
def archive(tmp_path):
    """archive(member, ...) -> the path of an archive with these members before the wanted one"""

    def write(*members, name="archive.tgz", wanted=True):
        path = tmp_path / name
        write_tar(path, [*members, *([regular(WANTED, TEXT)] if wanted else [])])
        return path

    return write


@pytest.fixture
def refused(tmp_path, files_of):
    """refused(path) -> the error message of unpacking, which must not have written anything"""

    def call(path, members=MEMBERS):
        before = files_of(tmp_path)
        with pytest.raises(UserError) as caught:
            unpack(path, members, tmp_path / "unpacked")
        assert files_of(tmp_path) == before
        said = str(caught.value)
        assert "\n" not in said and path.name in said
        return said

    return call


def special(name, kind, link=""):
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = link
    return member, b""


@pytest.mark.parametrize("name", ["archive.tgz", "archive.tar"])
def test_only_wanted_members_are_unpacked(archive, tmp_path, name):
    path = archive(
        regular("training/corpus.cs", b"jina rec\n"),
        special("training", tarfile.DIRTYPE),
        regular("README", b"read me"),
        name=name,
    )
    unpack(path, MEMBERS, tmp_path / "unpacked")
    found = [path for path in (tmp_path / "unpacked").rglob("*") if path.is_file()]
    assert found == [tmp_path / "unpacked" / WANTED] and found[0].read_bytes() == TEXT


def test_a_name_may_begin_with_a_dot(archive, tmp_path):
    unpack(archive(regular("./training/other.en", b"x")), {"training/other.en": 1, **MEMBERS}, tmp_path)
    assert (tmp_path / "training/other.en").read_bytes() == b"x"


def test_existing_files_are_not_unpacked_again(archive, tmp_path):
    path = archive()
    unpack(path, MEMBERS, tmp_path)
    (tmp_path / WANTED).write_bytes(b"kept")
    path.unlink()
    unpack(path, MEMBERS, tmp_path)
    assert (tmp_path / WANTED).read_bytes() == b"kept"


def test_the_rest_of_an_archive_is_not_read(archive, tmp_path):
    """It is truncated a megabyte after the wanted member, which is more than any buffer reads ahead."""
    path = archive(regular("a", b"x"), regular("rest", random.Random(0).randbytes(2_000_000)))
    path.write_bytes(path.read_bytes()[:1_000_000])
    unpack(path, {"a": 1}, tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / "a").read_bytes() == b"x"
    with pytest.raises(UserError, match="damaged"):
        unpack(path, MEMBERS, tmp_path / "unpacked")


# --- hostile archives


HOSTILE = [
    regular("../evil", b"evil"),
    regular("training/../../evil", b"evil"),
    regular("training/../evil", b"evil"),
    regular("/tmp/evil", b"evil"),
    regular("..", b"evil"),
    special("evil", tarfile.SYMTYPE, "/etc/passwd"),
    special("evil", tarfile.SYMTYPE, "../../evil"),
    special("evil", tarfile.LNKTYPE, "../evil"),
    special("evil", tarfile.LNKTYPE, "/etc/passwd"),
    special("evil", tarfile.CHRTYPE),
    special("evil", tarfile.BLKTYPE),
    special("evil", tarfile.FIFOTYPE),
]
NAMES = [f"{member.type.decode()} {member.name} {member.linkname}" for member, _ in HOSTILE]


@pytest.mark.parametrize("member", HOSTILE, ids=NAMES)
def test_a_member_outside_the_directory(archive, refused, member):
    assert "refused" in refused(archive(member))


@pytest.mark.parametrize("member", HOSTILE, ids=NAMES)
def test_without_pythons_filter_only_wanted_members_are_written(archive, tmp_path, monkeypatch, member):
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    path = archive(member)
    with suppress(UserError):
        unpack(path, MEMBERS, tmp_path / "unpacked")
    assert {path.name for path in tmp_path.rglob("*")} <= {"archive.tgz", "unpacked", "training", "corpus.en"}


@pytest.mark.parametrize(
    "kind, link",
    [
        (tarfile.SYMTYPE, "corpus.de"),
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.LNKTYPE, "training/corpus.de"),
        (tarfile.DIRTYPE, ""),
        (tarfile.CHRTYPE, ""),
        (tarfile.FIFOTYPE, ""),
    ],
)
def test_a_wanted_member_that_is_not_a_file(archive, refused, kind, link):
    path = archive(regular("training/corpus.de", b"x"), special(WANTED, kind, link), wanted=False)
    assert "refused" in (said := refused(path)) and (WANTED in said or "passwd" in said)


def test_a_link_in_place_of_a_directory_is_not_followed(archive, tmp_path):
    """The archive has a link where the directory of the wanted member should be; the link is not created."""
    (tmp_path / "elsewhere").mkdir()
    path = archive(special("training", tarfile.SYMTYPE, "elsewhere"))
    unpack(path, MEMBERS, tmp_path)
    assert not (tmp_path / "training").is_symlink() and (tmp_path / WANTED).read_bytes() == TEXT


def test_a_sparse_member_of_more_bytes_than_the_disk(tmp_path, refused):
    """Its header is all that the archive has of it."""
    member = tarfile.TarInfo(WANTED)
    member.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.map": f"{2**60},0", "GNU.sparse.size": str(2**60)}
    with tarfile.open(tmp_path / "archive.tgz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member)
    assert f"training/corpus.en has more than {len(TEXT)} bytes" in refused(tmp_path / "archive.tgz")


def test_a_member_that_is_larger_than_it_should_be(archive, refused):
    assert "has more than 99 bytes" in refused(archive(), {WANTED: 99})


# --- damaged archives


def test_a_missing_member(archive, refused):
    assert "holds no training/corpus.fr" in refused(archive(), {"training/corpus.fr": 100})


@pytest.mark.parametrize("keep", [0, 1, 9, 10, 200, -1000])
def test_a_truncated_archive(archive, refused, keep):
    path = archive()
    path.write_bytes(path.read_bytes()[:keep])
    said = refused(path)
    assert WANTED in said and "remove it and run the command again" in said


@pytest.mark.parametrize("name", ["archive.tgz", "archive.tar"])
@pytest.mark.parametrize("position", [0, 2])
def test_a_damaged_archive(archive, refused, name, position):
    path = archive(name=name)
    data = path.read_bytes()
    path.write_bytes(data[:position] + b"\xff" * 600 + data[position + 600 :])
    assert WANTED in refused(path)


def test_an_archive_that_is_damaged_in_the_middle(archive, refused):
    path = archive(name="archive.tar")
    compressor = zlib.compressobj(wbits=31)  # gzip
    begin = compressor.compress(path.read_bytes()[:3000]) + compressor.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(begin + b"\xff" * 100)  # no block begins like this
    assert "damaged" in refused(path)


@pytest.mark.parametrize(
    "content", [b"<html>please log in</html>", b"", gzip.compress(b"no tar", mtime=0), b"\0" * 2000]
)
def test_files_that_are_not_archives(tmp_path, refused, content):
    path = tmp_path / "archive.tgz"
    path.write_bytes(content)
    assert WANTED in refused(path)


def test_a_truncated_plain_archive(archive, refused):
    path = archive(name="archive.tar")
    path.write_bytes(path.read_bytes()[:2000])
    assert "damaged" in refused(path)


# --- the disk


def test_a_full_disk_leaves_no_partial_file(archive, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = archive()
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(UserError, match=r"corpus\.en: cannot write: No space left on device"):
        unpack(path, MEMBERS, tmp_path / "unpacked")
    assert [path for path in (tmp_path / "unpacked").rglob("*") if path.is_file()] == []
    monkeypatch.undo()
    unpack(path, MEMBERS, tmp_path / "unpacked")
    assert (tmp_path / "unpacked" / WANTED).read_bytes() == TEXT


def test_ctrl_c_leaves_no_partial_file(archive, tmp_path, monkeypatch):
    def interrupted(*arguments, length):
        raise KeyboardInterrupt

    monkeypatch.setattr(unpacking.shutil, "copyfileobj", interrupted)
    with pytest.raises(KeyboardInterrupt):
        unpack(archive(), MEMBERS, tmp_path / "unpacked")
    assert [path for path in (tmp_path / "unpacked").rglob("*") if path.is_file()] == []


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
    [
        (b"no segments here\n", "holds no segments"),
        (b"", "no segments"),
        (b'<seg id="1">\xff</seg>', "codec can't decode"),
    ],
)
def test_sgml_without_text(tmp_path, content, complaint):
    (tmp_path / "test.sgm").write_bytes(content)
    with pytest.raises(UserError, match=complaint):
        text_of_sgml(tmp_path / "test.sgm", tmp_path / "text")
    assert not (tmp_path / "text").exists()
