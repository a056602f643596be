"""Serve the explorer's page to browsers on this machine, and nothing else."""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from scratchformer.errors import UserError

LOOPBACK = "127.0.0.1"


class PageServer(ThreadingHTTPServer):
    """Answers with one page, which it holds in memory: it reads no file, whatever is asked for.

    port  to listen on, of this machine alone; 0 takes a free one
    """

    daemon_threads = True  # a browser that keeps a connection open does not keep the process alive

    def __init__(self, html: bytes, port: int = 0) -> None:
        self.html = html
        try:
            super().__init__((LOOPBACK, port), Request)
        except OSError as error:
            raise UserError(f"cannot serve on port {port} of {LOOPBACK}: {error.strerror}") from None

    @property
    def address(self) -> str:
        """Address of the page for a browser on this machine."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that closes its connection early."""


class Request(BaseHTTPRequestHandler):
    """One request. Methods other than GET are refused by the base class."""

    server: PageServer

    def do_GET(self) -> None:
        """Send the page; refuse other places (404)."""
        if self.path.partition("?")[0] not in ("/", "/explorer.html"):
            return self.send_error(HTTPStatus.NOT_FOUND)
        self.send_response(HTTPStatus.OK)
        for name, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(self.server.html))),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.html)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""
