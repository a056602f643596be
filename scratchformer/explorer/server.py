"""Serve the explorer's page to browsers on this machine, and nothing else to anybody."""

from __future__ import annotations

import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from scratchformer.errors import UserError
from scratchformer.explorer.page import Page

LOOPBACK = "127.0.0.1"
PLACES = ("/", "/explorer.html")


class PageServer(ThreadingHTTPServer):
    """Answers with one page, which it holds in memory: it reads no file, whatever is asked for.

    port  to listen on, of this machine alone; 0 takes a free one
    """

    daemon_threads = True  # a browser that keeps a connection open does not keep the process alive

    def __init__(self, page: Page, port: int = 0) -> None:
        self.page = page
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
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Request(BaseHTTPRequestHandler):
    """One request. Methods other than GET and HEAD are refused by the base class."""

    server: PageServer
    timeout = 30  # seconds without a word from the browser
    server_version, sys_version = "scratchformer", ""

    def do_GET(self) -> None:
        """Answer with the page."""
        self.answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer as to GET, without the page itself."""
        self.answer(with_body=False)

    def answer(self, with_body: bool) -> None:
        """Send the page; refuse other places (404)."""
        if self.path.partition("?")[0] not in PLACES:
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            html = self.server.page.html
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(html)))
            self.end_headers()
            if with_body:
                self.wfile.write(html)

    def end_headers(self) -> None:
        """Add the headers of every answer, also of a refusal."""
        self.send_header("Content-Security-Policy", self.server.page.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""
