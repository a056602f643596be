"""Downloads over a network that fails; the server is on this machine."""

import errno
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from local_server import LocalServer, broken_off, described, hung_up, redirect, serve, stalled, status

from scratchformer.errors import UserError
from scratchformer.preparation import download as downloads
from scratchformer.preparation.download import RemoteFile, download

CONTENT = random.Random(0).randbytes(300_000)
N_PAUSES = 3


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    root = tmp_path / "root"
    root.mkdir()
    (root / "file.tgz").write_bytes(CONTENT)
    with LocalServer(root) as server:
        yield server


@pytest.fixture
def pauses(monkeypatch):
    """The pauses in seconds; time.sleep only records them."""
    made = []
    monkeypatch.setattr(downloads, "PAUSES_SECONDS", (1.0, 2.0, 4.0)[:N_PAUSES])
    monkeypatch.setattr(time, "sleep", made.append)
    return made


@pytest.fixture
def load(server, pauses, tmp_path):
    """load(url=..., checksum=...) -> the path, and the lines that were told"""

    def call(mirror="", tell=None, **changes):
        remote = described(RemoteFile(f"{server.url}/file.tgz", "sha256:"), server.root / "file.tgz")
        lines = []
        path = download(RemoteFile(**(vars(remote) | changes)), tmp_path, mirror, tell or lines.append)
        return path, lines

    return call


@pytest.fixture
def refused(load):
    """refused(...) -> the error message of the download"""

    def call(**changes):
        with pytest.raises(UserError) as caught:
            load(**changes)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return call


def partial(tmp_path):
    path = tmp_path / "file.tgz.partial"
    return path.read_bytes() if path.exists() else None


def ranges(server):
    return [headers.get("Range") for _, headers in server.received]


# --- success


def test_a_file_is_downloaded_once(server, load, tmp_path):
    path, lines = load()
    assert path == tmp_path / "file.tgz" and path.read_bytes() == CONTENT and lines == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.tgz", "root"]
    load()
    assert len(server.received) == 1


def test_a_file_that_has_changed_on_disk_is_refused_and_kept(server, load, refused):
    path, _ = load()
    path.write_bytes(b"edited" + CONTENT[6:])
    assert "damaged, or another file" in refused()
    assert path.read_bytes().startswith(b"edited") and len(server.received) == 1


def test_md5_and_a_length_that_is_unknown(server, load):
    remote = described(RemoteFile("", "md5:"), server.root / "file.tgz")
    assert load(checksum=remote.checksum, n_bytes=0)[0].read_bytes() == CONTENT


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


def test_a_redirect_is_followed(server, load):
    server.next_answers = [redirect("/elsewhere"), redirect("/file.tgz")]
    (server.root / "elsewhere").write_bytes(b"")
    assert load()[0].read_bytes() == CONTENT


# --- temporary failures


def without_length(handler):
    """An answer without a length, so that only the client knows that it ended too early."""
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(CONTENT[:100_000])


@pytest.mark.parametrize(
    "fault, complaint",
    [
        (status(500), "answers 500"),
        (status(429), "answers 429"),
        (hung_up, "the connection failed"),
        (broken_off(0), "the connection failed"),
        (broken_off(100_000), "the connection failed"),
        (stalled(100_000), "no answer within"),
        (without_length, "the connection ended after 100000 of 300000 bytes"),
    ],
)
def test_one_failure_is_told_and_followed_by_success(server, load, pauses, monkeypatch, fault, complaint):
    lines = []

    def tell(line):
        lines.append(line)
        monkeypatch.setattr(downloads, "TIMEOUT_SECONDS", 30.0)

    if "no answer" in complaint:
        monkeypatch.setattr(downloads, "TIMEOUT_SECONDS", 0.2)
    server.next_answers = [fault]
    assert load(tell=tell)[0].read_bytes() == CONTENT
    assert len(lines) == 1 and complaint in lines[0] and lines[0].endswith("trying again in 1 s")
    assert pauses == [1.0]


def test_an_interrupted_transfer_resumes(server, load):
    server.next_answers = [broken_off(100_000), broken_off(50_000)]
    assert load()[0].read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=100000-", "bytes=150000-"]


def test_after_progress_the_pauses_start_again(server, load, pauses):
    server.next_answers = [*[broken_off(30_000)] * 4, status(503), status(503)]
    assert load()[0].read_bytes() == CONTENT
    assert pauses == [1.0] * 4 + [2.0, 4.0]


@pytest.mark.parametrize("fault", [status(503), hung_up, broken_off(0)])
def test_a_repeated_failure_ends_the_download_and_the_next_one_resumes(server, load, refused, tmp_path, fault):
    server.next_answers = [broken_off(500)] * 2
    server.always = fault
    said = refused()
    assert len(server.received) == N_PAUSES + 2 and "given up, run the command again to resume" in said
    assert partial(tmp_path) == CONTENT[:1000]
    server.always = serve
    assert load()[0].read_bytes() == CONTENT and ranges(server)[-1] == "bytes=1000-"


@pytest.mark.parametrize(
    "url, reason", [("http://127.0.0.1:9/file.tgz", "Connection refused"), ("http://nowhere.invalid/file.tgz", "")]
)
def test_an_unreachable_host(refused, pauses, url, reason):
    said = refused(url=url)
    assert said.startswith(f"{url}: the connection failed (") and reason in said and len(pauses) == N_PAUSES


def test_ctrl_c_keeps_the_partial_file(server, load, tmp_path):
    """A signal in the middle of a transfer, to a process of its own."""
    server.next_answers = [stalled(200_000)]
    checksum = described(RemoteFile("", "sha256:"), server.root / "file.tgz").checksum
    script = textwrap.dedent(f"""
        from pathlib import Path
        from scratchformer.preparation.download import RemoteFile, download
        download(RemoteFile("{server.url}/file.tgz", "{checksum}"), Path("."), "", print)
    """)
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        while len(partial(tmp_path) or b"") < 190_000 and process.poll() is None:
            server.closing.wait(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
    assert CONTENT.startswith(partial(tmp_path))
    server.received.clear()
    assert load()[0].read_bytes() == CONTENT
    assert ranges(server) == [f"bytes={3 * downloads.CHUNK_BYTES}-"]


def test_a_server_without_ranges_starts_again(server, load, tmp_path):
    (tmp_path / "file.tgz.partial").write_bytes(CONTENT[:1000])
    server.always = lambda handler: serve(handler, ranges=False)
    assert load()[0].read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-"]


@pytest.mark.parametrize("n_bytes, n_requests", [(len(CONTENT), 0), (0, 1)])
def test_a_complete_partial_file_is_only_verified(server, load, tmp_path, n_bytes, n_requests):
    (tmp_path / "file.tgz.partial").write_bytes(CONTENT)
    assert load(n_bytes=n_bytes)[0].read_bytes() == CONTENT
    assert len(server.received) == n_requests


# --- permanent failures


@pytest.mark.parametrize("code", [403, 404, 410, 204])
def test_a_permanent_status(server, refused, pauses, tmp_path, code):
    server.always = status(code)
    assert refused().startswith(f"{server.url}/file.tgz: the server answers {code}")
    assert pauses == [] and len(server.received) == 1 and partial(tmp_path) is None


@pytest.mark.parametrize("location", ["/file.tgz", "http://[bad", "ftp://elsewhere"])
def test_a_redirect_that_leads_nowhere(server, refused, location):
    server.always = redirect(location)
    assert refused().startswith(f"{server.url}/file.tgz: ")


def test_a_server_that_does_not_speak_tls(server, refused):
    assert "SSL" in refused(url=f"{server.url}/file.tgz".replace("http:", "https:"))


@pytest.mark.parametrize("mirror", ["http://", "http://[::1"])
def test_a_mirror_that_is_not_a_url(refused, mirror):
    refused(mirror=mirror)


def test_a_wrong_checksum_removes_the_download(server, load, refused, tmp_path):
    found = described(RemoteFile("", "sha256:"), server.root / "file.tgz").checksum
    expected = "sha256:" + "0" * 64
    said = refused(checksum=expected)
    assert expected in said and found in said and partial(tmp_path) is None
    (tmp_path / "file.tgz.partial").write_bytes(b"x" * 1000)
    assert "checksum" in refused() and partial(tmp_path) is None
    assert load()[0].read_bytes() == CONTENT


class FullDisk:
    """A file on a disk with space for `room` more bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()

    def write(self, data):
        self.file.write(data[: self.room])
        if len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(data)


def test_a_full_disk_keeps_the_partial_file(server, load, refused, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "open", lambda *args, **how: FullDisk(open(*args, **how), 70_000), raising=False)
    said = refused()
    assert "No space left on device" in said and "file.tgz.partial" in said
    assert partial(tmp_path) == CONTENT[:70_000]
    monkeypatch.undo()
    assert load()[0].read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=70000-"]


def test_a_directory_that_cannot_be_written(refused, tmp_path):
    (tmp_path / "file.tgz.partial").mkdir()
    assert "cannot write" in refused(n_bytes=0)
