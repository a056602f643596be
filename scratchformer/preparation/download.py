"""Download a large file over an unreliable network.

What has arrived is kept as NAME.partial, and the next attempt, or the next run of the program, asks the server only for
the rest (a range request, RFC 9110 §14). It becomes NAME when its checksum is right.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import requests
import urllib3
from tqdm import tqdm

from scratchformer.errors import UserError, in_one_line
from scratchformer.files import user_error

Tell = Callable[[str], None]

TIMEOUT_SECONDS = 30.0
"""For accepting a connection, and for each wait for data afterwards."""

PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Before each further attempt; when all are used up without progress, the download fails."""

CHUNK_BYTES = 1 << 16

TEMPORARY_STATUS = (408, 425, 429, 500, 502, 503, 504)
TEMPORARY_ERRORS = (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError)


@dataclass(frozen=True)
class RemoteFile:
    """A file that never changes; checksum: "sha256:..." or "md5:..."; n_bytes: its length, 0 if unknown."""

    url: str
    checksum: str
    n_bytes: int = 0

    @property
    def name(self) -> str:
        """The name of the file: the last part of the URL's path."""
        return PurePosixPath(urlsplit(self.url).path).name


class TemporaryFailure(Exception):
    """An attempt failed, but another one may succeed."""


def download(remote: RemoteFile, directory: Path, mirror: str, tell: Tell) -> Path:
    """Download a file into `directory`, unless it is there, verify it and return its path.

    mirror  a base URL that replaces scheme and host, such as "http://mirror.example/wmt"; "" for none
    tell    is called with a line before each further attempt

    After a failure NAME.partial stays, unless its content is wrong.
    """
    path = directory / remote.name
    if path.exists():
        found = checksum_of(path, remote.checksum)
        if found != remote.checksum:
            raise UserError(
                f"{path}: damaged, or another file: checksum {found}, expected {remote.checksum}; "
                "remove it and run the command again"
            )
        return path
    url = mirror.rstrip("/") + urlsplit(remote.url).path if mirror else remote.url
    partial = path.with_name(path.name + ".partial")
    load(url, partial, remote.n_bytes, tell)
    found = checksum_of(partial, remote.checksum)
    with user_error(path, "cannot write"):
        if found != remote.checksum:
            partial.unlink()
            raise UserError(
                f"{url}: not the expected file: checksum {found}, expected {remote.checksum}; "
                "the download has been removed"
            )
        partial.replace(path)
    return path


def require_address(mirror: str) -> None:
    """Refuse a mirror that is not an address; "" means none."""
    if mirror and not mirror.startswith(("http://", "https://")):
        raise UserError(f"--mirror {mirror}: does not begin with http:// or https://")


def load(url: str, partial: Path, n_bytes: int, tell: Tell) -> None:
    """Repeat attempts until `partial` is complete. After an attempt with progress the pauses start again."""
    pauses = iter(PAUSES_SECONDS)
    while True:
        before = size_of(partial)
        try:
            return load_rest(url, partial, n_bytes)
        except TemporaryFailure as failure:
            if size_of(partial) > before:
                pauses = iter(PAUSES_SECONDS)
            pause = next(pauses, None)
            if pause is None:
                raise UserError(f"{url}: {failure}; given up, run the command again to resume") from failure
            tell(f"{url}: {failure}; trying again in {pause:g} s")
        time.sleep(pause)


def load_rest(url: str, partial: Path, n_bytes: int) -> None:
    """Try once to download what `partial` lacks."""
    begin = size_of(partial)
    if n_bytes and begin == n_bytes:
        return
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={begin}-"} if begin else {})
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as response:
            status = response.status_code
            if begin and status == requests.codes.requested_range_not_satisfiable:
                return  # there is no more of it: the checksum decides
            if status in TEMPORARY_STATUS:
                raise TemporaryFailure(f"the server answers {status} {response.reason}")
            if status not in (requests.codes.ok, requests.codes.partial_content):
                raise UserError(f"{url}: the server answers {status} {response.reason}")
            begin = begin if status == requests.codes.partial_content else 0
            total = begin + int(response.headers.get("Content-Length", n_bytes - begin))
            if n_bytes and total != n_bytes:
                raise UserError(f"{url}: not the expected file: {total} bytes, expected {n_bytes}")
            receive(response, partial, begin, n_bytes)
    except TEMPORARY_ERRORS as error:
        raise TemporaryFailure(reason_of(error)) from error
    except UserError:  # it is a ValueError, too
        raise
    except (requests.RequestException, ValueError) as error:  # ValueError for an address that cannot be parsed
        raise UserError(f"{url}: {in_one_line(error)}") from error
    if size_of(partial) < n_bytes:
        raise TemporaryFailure(f"the connection ended after {size_of(partial)} of {n_bytes} bytes")


def receive(response: requests.Response, partial: Path, begin: int, n_bytes: int) -> None:
    """Write the body after the first `begin` bytes, with a progress bar on a terminal."""
    complaint = "cannot write; what has been downloaded is kept, run the command again to resume"
    bar = tqdm(
        total=n_bytes or None, initial=begin, unit="B", unit_scale=True, disable=None, desc=partial.stem, leave=False
    )
    with bar, user_error(partial, complaint), open(partial, "ab" if begin else "wb") as file:
        # Not iter_content, which would unpack a .tgz that some servers label "Content-Encoding: gzip".
        for chunk in response.raw.stream(CHUNK_BYTES, decode_content=False):
            file.write(chunk)
            bar.update(len(chunk))


def reason_of(error: BaseException) -> str:
    """Name the operating system's reason for a failed connection, which the libraries wrap several times."""
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    while inner := error.__cause__ or error.__context__:
        error = inner
    return f"the connection failed ({getattr(error, 'strerror', None) or in_one_line(error)})"


def size_of(path: Path) -> int:
    """Return the length of a file in bytes; 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def checksum_of(path: Path, like: str) -> str:
    """Compute the checksum of a file by the same algorithm as `like`, "md5:..." or "sha256:..."."""
    algorithm = like.partition(":")[0]
    digest = hashlib.new(algorithm)
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"
