"""Downloads over a network that fails in many ways; the server is on this machine."""

import errno
import io
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from email.utils import formatdate

import pytest
from local_server import (
    LocalServer,
    broken_off,
    described,
    hung_up,
    redirect,
    serve,
    silent,
    stalled,
    status,
    without_ranges,
)

from scratchformer.errors import UserError, printable
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


def left_behind(tmp_path):
    return sorted(path.name for path in tmp_path.iterdir() if path.name != "root")


# --- success


def test_a_file_is_downloaded_once(server, load, tmp_path):
    path, lines = load()
    assert path == tmp_path / "file.tgz" and path.read_bytes() == CONTENT and lines == []
    assert left_behind(tmp_path) == ["file.tgz", "file.tgz.verified"]
    load()
    assert len(server.received) == 1


def test_a_verified_file_is_not_read_again(load, monkeypatch):
    load()
    monkeypatch.setattr(downloads, "checksum_of", lambda path, like: pytest.fail("read again"))
    load()


def test_a_file_of_the_user_is_verified_once(server, load, tmp_path, monkeypatch):
    (tmp_path / "file.tgz").write_bytes(CONTENT)
    load()
    monkeypatch.setattr(downloads, "checksum_of", lambda path, like: pytest.fail("read again"))
    load()
    assert server.received == []


def test_a_file_that_has_changed_on_disk_is_refused_and_kept(server, load, refused):
    path, _ = load()
    path.write_bytes(b"edited" + CONTENT[6:])
    os.utime(path, ns=(0, 0))
    assert "damaged, or another file" in refused()
    assert path.read_bytes().startswith(b"edited") and len(server.received) == 1


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_on_a_terminal(load, monkeypatch, is_terminal):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr("sys.stderr", screen)
    load()
    assert ("file.tgz: " in screen.getvalue() and "/300k" in screen.getvalue()) == is_terminal
    assert is_terminal or screen.getvalue() == ""


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_checksums(server, load, algorithm):
    remote = described(RemoteFile("", f"{algorithm}:"), server.root / "file.tgz")
    assert load(checksum=remote.checksum)[0].read_bytes() == CONTENT


def test_the_length_may_be_unknown(load):
    assert load(n_bytes=0)[0].read_bytes() == CONTENT


def test_a_mirror_replaces_scheme_and_host(server, load):
    (server.root / "wmt13").mkdir()
    (server.root / "file.tgz").rename(server.root / "wmt13" / "file.tgz")
    (server.root / "file.tgz").symlink_to(server.root / "wmt13" / "file.tgz")
    load(url="https://nowhere.invalid/file.tgz", mirror=f"{server.url}/wmt13/")
    assert [path for path, _ in server.received] == ["/wmt13/file.tgz"]


@pytest.mark.parametrize("label", ["gzip", "x-gzip"])
def test_a_content_encoding_is_ignored(server, load, label):
    """Some servers declare that a .tgz is a .tar in compressed transfer."""
    server.always = lambda handler: serve(handler, content_encoding=label)
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
        (status(503), "answers 503"),
        (status(429), "answers 429"),
        (hung_up, "the connection failed"),
        (silent, "no answer within"),
        (broken_off(100_000), "the connection"),
        (stalled(100_000), "no answer within"),
        (broken_off(0), "the connection"),
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
    assert all("If-Range" in headers for _, headers in server.received[1:])


def test_after_progress_the_pauses_start_again(server, load, pauses):
    server.next_answers = [broken_off(30_000)] * 9
    assert load()[0].read_bytes() == CONTENT
    assert pauses == [1.0] * 9


def test_the_pauses_grow(server, load, pauses):
    server.next_answers = [status(503)] * N_PAUSES
    load()
    assert pauses == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("fault", [status(503), hung_up, broken_off(0)])
def test_a_repeated_failure_ends_the_download(server, refused, tmp_path, fault):
    server.next_answers = [broken_off(500)] * 2
    server.always = fault
    said = refused()
    assert len(server.received) == N_PAUSES + 2
    assert f"given up after {N_PAUSES + 2} attempts, run the command again to resume" in said and "file.tgz" in said
    assert partial(tmp_path) == CONTENT[:1000]


def test_a_server_without_ranges_that_always_breaks_off(server, refused, pauses):
    server.always = lambda handler: serve(handler, ranges=False, n_bytes=100_000)
    assert "given up" in refused()
    assert len(server.received) == N_PAUSES + 1


def test_no_server(refused, server):
    assert "Connection refused" in refused(url="http://127.0.0.1:9/file.tgz")


@pytest.mark.parametrize("retry_after, pause", [("3", 3), ("0", 1), ("soon", 1), ("-5", 1)])
def test_the_pause_that_the_server_asks_for(server, load, pauses, retry_after, pause):
    server.next_answers = [status(429, [("Retry-After", retry_after)])]
    load()
    assert pauses == [pause]


def test_the_pause_may_be_given_as_a_date(server, load, pauses):
    server.next_answers = [status(503, [("Retry-After", formatdate(time.time() + 100, usegmt=True))])]
    load()
    assert 80 < pauses[0] <= 100


def test_too_long_a_pause_ends_the_download(server, refused, pauses):
    server.next_answers = [status(503, [("Retry-After", "86400")])]
    assert "answers 503" in (said := refused()) and "a pause of more than 10 minutes" in said
    assert pauses == []


# --- resuming in another run


def test_the_next_run_resumes(server, load, refused):
    server.next_answers = [broken_off(100_000), *[status(503)] * N_PAUSES]
    refused()
    server.received.clear()
    assert load()[0].read_bytes() == CONTENT
    assert ranges(server) == ["bytes=100000-"]


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


@pytest.mark.parametrize("validators", [True, False])
def test_a_server_without_ranges_starts_again(server, load, tmp_path, validators):
    (tmp_path / "file.tgz.partial").write_bytes(CONTENT[:1000])
    server.always = lambda handler: serve(handler, ranges=False, validators=validators)
    assert load()[0].read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-"]


def test_a_file_that_changed_between_two_attempts_starts_again(server, load):
    new = CONTENT[::-1]

    def change(handler):
        serve(handler, n_bytes=100_000)
        (server.root / "file.tgz").write_bytes(new)

    remote = RemoteFile("", "sha256:")
    (server.root / "other").write_bytes(new)
    server.next_answers = [change]
    path, _ = load(checksum=described(remote, server.root / "other").checksum)
    assert path.read_bytes() == new and len(server.received) == 2


def test_a_weak_etag_is_not_used_as_a_condition(server, load):
    def weak(handler):
        handler.send_response(200)
        handler.send_header("ETag", 'W/"1"')
        handler.send_header("Last-Modified", "Thu, 01 Jan 1970 00:00:00 GMT")
        handler.send_header("Content-Length", str(len(CONTENT)))
        handler.end_headers()
        handler.wfile.write(CONTENT[:5000])

    server.next_answers = [weak]
    assert load()[0].read_bytes() == CONTENT
    assert server.received[1][1]["If-Range"] == "Thu, 01 Jan 1970 00:00:00 GMT"


def test_a_complete_partial_file_is_only_verified(server, load, tmp_path):
    (tmp_path / "file.tgz.partial").write_bytes(CONTENT)
    assert load()[0].read_bytes() == CONTENT
    assert server.received == []


@pytest.mark.parametrize("held", [CONTENT, CONTENT + b"surplus"])
def test_a_partial_file_that_is_too_long_starts_again(server, load, tmp_path, held):
    (tmp_path / "file.tgz.partial").write_bytes(held)
    path, lines = load(n_bytes=0)
    assert path.read_bytes() == CONTENT and "downloaded again" in lines[0]


def test_a_range_that_was_not_requested_starts_again(server, load, tmp_path):
    def other_range(handler):
        handler.headers.replace_header("Range", "bytes=500-")
        serve(handler)

    (tmp_path / "file.tgz.partial").write_bytes(CONTENT[:1000])
    server.next_answers = [other_range]
    path, lines = load()
    assert path.read_bytes() == CONTENT and "another range" in lines[0]


# --- permanent failures


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 451, 204])
def test_a_permanent_status(server, refused, pauses, tmp_path, code):
    server.always = status(code)
    assert refused().startswith(f"{server.url}/file.tgz: the server answers {code}")
    assert pauses == [] and len(server.received) == 1 and partial(tmp_path) is None


@pytest.mark.parametrize("code", [408, 425, 429, 500, 503])
def test_a_temporary_status(server, load, pauses, code):
    server.next_answers = [status(code)]
    assert load()[0].read_bytes() == CONTENT and pauses == [1.0]


def test_a_server_that_does_not_speak_tls(server, refused, pauses):
    said = refused(url=f"{server.url}/file.tgz".replace("http:", "https:"))
    assert "the connection failed" in said and "SSL" in said and pauses == []


def test_a_redirect_loop(server, refused, pauses):
    server.always = redirect("/file.tgz")
    assert "redirects" in refused() and pauses == []


@pytest.mark.parametrize("address", ["http://[bad", "http://", "ftp://elsewhere"])
def test_a_redirect_to_an_invalid_address(server, refused, pauses, address):
    server.always = redirect(address)
    assert refused().startswith(f"{server.url}/file.tgz: ") and pauses == []


@pytest.mark.parametrize("mirror", ["mirror.example", "ftp://mirror.example", "http://", "http://[::1"])
def test_a_mirror_that_is_not_a_url(refused, pauses, mirror):
    refused(mirror=mirror)
    assert pauses == []


def test_a_wrong_checksum(server, refused, tmp_path):
    expected = "sha256:" + "0" * 64
    found = described(RemoteFile("", "sha256:"), server.root / "file.tgz").checksum
    said = refused(checksum=expected)
    assert expected in said and found in said
    assert left_behind(tmp_path) == []


def test_a_wrong_partial_file_is_found_by_the_checksum(server, load, refused, tmp_path):
    (tmp_path / "file.tgz.partial").write_bytes(b"x" * 1000)
    assert "checksum" in refused()
    assert load()[0].read_bytes() == CONTENT


def test_a_wrong_length_is_found_before_the_download(server, refused, tmp_path):
    assert f"{len(CONTENT)} bytes, expected 5000" in refused(n_bytes=5000)
    assert partial(tmp_path) is None


# --- the disk


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
    assert "cannot write" in refused()


# --- a server that is not to be trusted


def endless(handler, headers=(), status=200):
    """A body without an end."""
    handler.send_response(status)
    for name, value in headers:
        handler.send_header(name, value)
    handler.end_headers()
    with suppress(OSError):
        while not handler.local_server.closing.is_set():
            handler.wfile.write(bytes(1 << 16))


def endless_chunks(handler):
    handler.protocol_version = "HTTP/1.1"
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.send_header("Content-Length", str(len(CONTENT)))
    handler.end_headers()
    with suppress(OSError):
        while not handler.local_server.closing.is_set():
            handler.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")


def with_length(length):
    return lambda handler: endless(handler, [("Content-Length", length)])


@pytest.mark.parametrize("n_bytes", [len(CONTENT), 0])
@pytest.mark.parametrize(
    "answer",
    [
        endless,
        endless_chunks,
        *map(with_length, ["-1", "0x10", "\xb2", "1" * 18, "9" * 5000, "1e3", "300000, 300000"]),
        lambda handler: endless(handler, [("Content-Range", "bytes 0-9/10")], 206),
        lambda handler: endless(handler, [("Content-Encoding", "gzip")]),
    ],
)
def test_no_more_is_written_than_the_file_should_have(server, refused, tmp_path, monkeypatch, answer, n_bytes):
    """Whatever the server says of the length."""
    monkeypatch.setattr(downloads, "MOST_BYTES_UNKNOWN", 500_000)
    sizes, delete = [], downloads.delete

    def measured(path):
        sizes.append(downloads.size_of(path))
        delete(path)

    monkeypatch.setattr(downloads, "delete", measured)
    server.always = answer
    said = refused(n_bytes=n_bytes)
    assert "not the expected file" in said and max(sizes, default=0) <= (n_bytes or 500_000)
    assert partial(tmp_path) is None


def test_the_body_of_a_redirect_is_not_read(server, load):
    server.next_answers = [lambda handler: endless(handler, [("Location", "/file.tgz")], 302)]
    assert load()[0].read_bytes() == CONTENT


def test_a_partial_file_that_is_longer_than_the_file_starts_again(server, load, tmp_path):
    (tmp_path / "file.tgz.partial").write_bytes(CONTENT + b"surplus")
    assert load()[0].read_bytes() == CONTENT and ranges(server) == [None]


def raw(data):
    return lambda handler: handler.wfile.write(data)


@pytest.mark.parametrize(
    "answer",
    [
        raw(b"HTTP/1.1 404 \x1b[2Jgone\r\n\r\n"),
        raw(b"HTTP/1.1 404 " + b"x" * 60_000 + b"\r\n\r\n"),
        raw(b"\x1b[2J" + b"y" * 60_000 + b"\r\n\r\n"),
        raw(b"HTTP/1.1 200 fine\r\n" + b"".join(b"A%d: b\r\n" % n for n in range(500)) + b"\r\n"),
        raw(b"HTTP/1.1 200 fine\r\nTransfer-Encoding: chunked\r\n\r\n\x1b[2J" + b"z" * 60_000 + b"\r\n"),
        redirect("http://user:secret@[bad/" + "x" * 9000),
        redirect("ftp://user:secret@elsewhere/"),
        redirect("http://user:secret@" + "x" * 300 + "/"),
        redirect("http://\xff\x1b[2J/"),
        redirect("file:///etc/passwd"),
        status(503, [("Retry-After", "9" * 400)]),
        status(503, [("Retry-After", "9" * 5000)]),
        status(503, [("Retry-After", "Thu, 01 Jan 99999999999 00:00:00 GMT")]),
    ],
)
def test_an_odd_answer_ends_in_a_short_line(server, refused, answer):
    server.always = answer
    said = printable(refused())
    assert len(said) < 600 and "secret" not in said


@pytest.mark.parametrize(
    "etag", ['"' + "x" * 9000 + '"', '"\x80\xff"', '"\x1b[2J"', '"tab\there"'], ids=["long", "bytes", "escape", "tab"]
)
def test_an_odd_validator_is_not_kept(server, load, tmp_path, etag):
    def odd(handler):
        handler.send_response(200)
        handler.send_header("ETag", etag)
        handler.send_header("Content-Length", str(len(CONTENT)))
        handler.end_headers()
        handler.wfile.write(CONTENT[:5000])

    server.next_answers = [odd]
    assert load()[0].read_bytes() == CONTENT and "If-Range" not in server.received[1][1]


@pytest.mark.parametrize("validator", ["a\nb", "\u20ac", "x" * 5000])
def test_an_odd_validator_is_not_sent(server, load, tmp_path, validator):
    (tmp_path / "file.tgz.partial").write_bytes(CONTENT[:5000])
    (tmp_path / "file.tgz.partial.validator").write_text(validator)
    assert load()[0].read_bytes() == CONTENT and "If-Range" not in server.received[0][1]


@pytest.mark.parametrize(
    "fault", [status(404), status(503), hung_up, redirect("/file.tgz"), redirect("http://[bad"), without_ranges, silent]
)
def test_a_password_is_neither_shown_nor_stored(server, load, tmp_path, monkeypatch, pauses, fault):
    monkeypatch.setattr(downloads, "TIMEOUT_SECONDS", 0.2 if fault is silent else 30)
    server.always, lines = fault, []
    with pytest.raises(UserError) as caught:
        load(mirror=server.url.replace("//", "//user:se%40cret@"), checksum="sha256:0", tell=lines.append)
    lines.append(str(caught.value))
    assert not any("cret" in line or "user" in line for line in lines)
    assert all(server.url in line for line in lines)
    assert all("Authorization" in headers for _, headers in server.received)
    assert not any(b"cret" in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())


@pytest.mark.parametrize("mirror", ["http://user:secret@", "http://user:se/cret@host", "http://user:secret@[::1/"])
def test_a_password_in_a_wrong_address_is_not_shown(refused, mirror):
    assert "cret" not in refused(mirror=mirror)


@pytest.mark.parametrize("name", ["file.tgz.partial", "file.tgz.partial.validator", "file.tgz.verified"])
@pytest.mark.parametrize("there", [True, False])
def test_nothing_is_written_through_a_link(server, load, tmp_path, name, there):
    victim = server.root / "victim"
    if there:
        victim.write_bytes(b"mine")
    (tmp_path / name).symlink_to(victim)
    if name == "file.tgz.partial":
        with pytest.raises(UserError, match="cannot write .*file.tgz.partial: Too many levels of symbolic links"):
            load()
    else:
        assert load()[0].read_bytes() == CONTENT
    assert victim.read_bytes() == b"mine" if there else not victim.exists()
