"""Downloads over a network that fails, from a server on this machine; unpacking; WMT's SGML."""

import random
import tarfile

import pytest
from local_server import broken_off, described, regular, serve, status, write_tar
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from scratchformer.errors import UserError
from scratchformer.preparation.download import RemoteFile, download, text_of_sgml, unpack

CONTENT = random.Random(0).randbytes(300_000)


@pytest.fixture
def load(server, tmp_path):
    """load(url=..., checksum=...) -> the path, and the lines that were told"""
    (server.root / "file.tgz").write_bytes(CONTENT)

    def call(mirror="", algorithm="sha256", **changes):
        remote = described(RemoteFile(f"{server.url}/file.tgz", f"{algorithm}:"), server.root / "file.tgz")
        lines = []
        return download(remote._replace(**changes), tmp_path, mirror, lines.append), lines

    return call


@pytest.fixture
def refusal(load):
    """refusal(...) -> the error message of the download"""

    def call(**changes):
        with pytest.raises(UserError) as caught:
            load(**changes)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return call


@pytest.fixture
def partial(tmp_path):
    return tmp_path / "file.tgz.partial"


def ranges(server):
    return [headers.get("Range") for _, headers in server.received]


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_file_is_downloaded_once(server, load, tmp_path, algorithm):
    path, lines = load(algorithm=algorithm)
    assert path == tmp_path / "file.tgz" and path.read_bytes() == CONTENT and lines == []
    assert {path.name for path in tmp_path.iterdir()} == {"file.tgz", "server"}
    load(algorithm=algorithm)
    assert len(server.received) == 1


def test_a_mirror_replaces_scheme_and_host(server, load):
    (server.root / "wmt13").mkdir()
    (server.root / "wmt13" / "file.tgz").write_bytes(CONTENT)
    load(url="https://nowhere.invalid/file.tgz", mirror=f"{server.url}/wmt13/")
    assert [path for path, _ in server.received] == ["/wmt13/file.tgz"]


def test_a_content_encoding_is_ignored(server, load):
    """Some servers declare that a .tgz is a .tar in compressed transfer."""
    server.always = lambda handler: serve(handler, content_encoding="x-gzip")
    assert load()[0].read_bytes() == CONTENT
    assert server.received[0][1]["Accept-Encoding"] == "identity"


# --- failures


@pytest.mark.parametrize("fault, complaint", [(status(503), "the server answers 503"), (broken_off(0), "")])
def test_one_failure_is_told_and_followed_by_success(server, load, fault, complaint):
    server.next_answers = [fault]
    path, lines = load()
    assert path.read_bytes() == CONTENT
    assert len(lines) == 1 and complaint in lines[0] and lines[0].endswith("; trying again in 0 s")


def test_a_broken_transfer_resumes(server, load):
    server.next_answers = [broken_off(100_000), broken_off(50_000)]
    assert load()[0].read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=100000-", "bytes=150000-"]


def test_after_repeated_failures_the_next_run_resumes(server, load, refusal, partial):
    server.next_answers = [broken_off(500)] * 2
    server.always = status(503)
    assert "given up, run the command again to resume" in refusal() and partial.read_bytes() == CONTENT[:1000]
    server.always = serve
    assert load()[0].read_bytes() == CONTENT and ranges(server)[-1] == "bytes=1000-"


@pytest.mark.parametrize("has_ranges, n_bytes, asked", [(False, 1000, "bytes=1000-"), (True, 300_000, "bytes=300000-")])
def test_a_server_without_ranges_and_a_partial_file_that_is_complete(server, load, partial, has_ranges, n_bytes, asked):
    partial.write_bytes(CONTENT[:n_bytes])
    server.always = lambda handler: serve(handler, ranges=has_ranges)
    assert load()[0].read_bytes() == CONTENT and ranges(server) == [asked]


@pytest.mark.parametrize(
    "changes, complaint",
    [
        ({"url": "http://127.0.0.1:9/file.tgz"}, "127.0.0.1:9/file.tgz: Connection refused; given up, run the command"),
        ({"mirror": "nonsense"}, "nonsense/file.tgz: "),
        ({"mirror": "ftp://mirror.example"}, "ftp://mirror.example/file.tgz: "),
        ({"mirror": "SERVER/other"}, "other/file.tgz: the server answers 404 Not Found"),
    ],
)
def test_a_server_that_is_not_there_or_lacks_the_file(server, refusal, partial, changes, complaint):
    changes = {name: value.replace("SERVER", server.url) for name, value in changes.items()}
    assert complaint in refusal(**changes) and len(server.received) <= 1 and not partial.exists()


def test_a_wrong_checksum_removes_the_download(server, load, refusal, partial):
    assert "not the expected file, its checksum is wrong" in refusal(checksum="sha256:" + "0" * 64)
    assert not partial.exists()
    partial.write_bytes(b"x" * 1000)
    assert "checksum" in refusal() and not partial.exists()
    assert load()[0].read_bytes() == CONTENT


def test_a_file_that_has_changed_on_disk_is_refused_and_kept(server, load, refusal):
    path, _ = load()
    path.write_bytes(b"edited" + CONTENT[6:])
    assert "damaged, its checksum is wrong; remove it and run the command again" in refusal()
    assert path.read_bytes().startswith(b"edited") and len(server.received) == 1


# --- unpacking

WANTED = "training/corpus.en"
TEXT = "".join(f"line {number} of some text\n" for number in range(5000)).encode()


@pytest.fixture(params=["archive.tgz", "archive.tar"])
def archive(request, tmp_path):
    """An archive of directories, of files that nobody wants, and of the wanted ones."""
    directory = tarfile.TarInfo("training")
    directory.type = tarfile.DIRTYPE
    others = [regular(other, b"x") for other in ("training/corpus.cs", "../evil", "/tmp/evil", "./a/b.en")]
    write_tar(tmp_path / request.param, [(directory, b""), *others, regular(WANTED, TEXT)])
    return tmp_path / request.param


def test_only_wanted_members_are_unpacked(archive, tmp_path):
    out = tmp_path / "unpacked"
    unpack(archive, [WANTED, "a/b.en"], out)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == {archive, out / WANTED, out / "a" / "b.en"}
    assert (out / WANTED).read_bytes() == TEXT
    with pytest.raises(UserError, match="holds no training/corpus.fr"):
        unpack(archive, ["training/corpus.fr"], tmp_path)


# --- SGML


@pytest.mark.parametrize(
    "sgml",
    [
        '<seg id="1"> two  spaces\tand a tab </seg>\n<seg id="2"></seg>\n'
        '<seg id="3">\u00a0no-break\u00a0\u00a0 </seg>\n',
        '<srcset>\n<doc docid="x" origlang="de">\n<p>\n<seg id="1">A &amp; B &lt;C&gt; &quot;D&quot;</seg>\n</p>\n',
        '<seg id="1">x</seg>\r\n<seg id="2">a\u2028b\x85c\x1cd\x0be</seg>\r\n',
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
