"""The server answers with one page, on this machine alone, whatever it is asked."""

import http.client
import socket
import threading
import time

import pytest

from scratchformer.errors import UserError
from scratchformer.explorer.page import Page
from scratchformer.explorer.server import PageServer

PAGE = Page("<!doctype html>\n<p>Ä</p>".encode(), "default-src 'none'")


@pytest.fixture
def server():
    with PageServer(PAGE) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server, method="GET", path="/"):
    """-> (the answer, its body)"""
    connection = http.client.HTTPConnection(*server.server_address, timeout=10)
    connection.request(method, path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def require_security(answer):
    assert answer.getheader("Content-Security-Policy") == PAGE.policy
    assert answer.getheader("X-Content-Type-Options") == "nosniff"
    assert answer.getheader("Referrer-Policy") == "no-referrer"
    assert answer.getheader("Server").strip() == "scratchformer"


@pytest.mark.parametrize("path", ["/", "/explorer.html", "/?a=b", "/explorer.html?x"])
def test_the_page_is_served(server, path):
    answer, body = ask(server, path=path)
    assert (answer.status, body) == (200, PAGE.html)
    assert answer.getheader("Content-Type") == "text/html; charset=utf-8"
    require_security(answer)
    answer, body = ask(server, "HEAD", path)
    assert (answer.status, body, answer.getheader("Content-Length")) == (200, b"", str(len(PAGE.html)))


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "/../../../etc/passwd", "/explorer.html/../config.toml", "/config.toml"]
)
def test_nothing_else_is_served(server, path, monkeypatch, tmp_path):
    (tmp_path / "config.toml").write_text("secret")
    monkeypatch.chdir(tmp_path)
    answer, body = ask(server, path=path)
    assert answer.status == 404 and b"root:" not in body and b"secret" not in body
    require_security(answer)


@pytest.mark.parametrize("method", ["POST", "PUT", "get"])
def test_other_methods_are_refused(server, method):
    answer, body = ask(server, method)
    assert answer.status == 501 and PAGE.html not in body
    require_security(answer)


def test_only_this_machine_can_reach_it(server):
    assert server.server_address[0] == "127.0.0.1" and server.address.startswith("http://127.0.0.1:")
    with pytest.raises(OSError):  # this machine too, but another address: nobody listens there
        socket.create_connection(("127.0.0.2", server.server_port), timeout=2)


def test_a_port_that_is_taken_is_refused_in_one_line(server):
    with pytest.raises(
        UserError, match=f"cannot serve on port {server.server_port} of 127.0.0.1: Address already in use"
    ):
        PageServer(PAGE, server.server_port)


def test_who_leaves_early_disturbs_nobody(server, capfd):
    for part in (b"", b"GET", b"GET / HTTP/1.1\r\n", b"\xff\xfe\r\n\r\n"):
        with socket.create_connection(server.server_address, timeout=10) as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset, without a goodbye
            plain.sendall(part)
    time.sleep(0.1)
    assert ask(server)[0].status == 200
    assert capfd.readouterr() == ("", "")
