"""Download a large file over an unreliable network.

What has arrived is kept as NAME.partial, and the next attempt, or the next run of the program, asks the server only for
the rest (a range request, RFC 9110 §14). It becomes NAME when its checksum is right. Every failure is a UserError of
one line and keeps what is needed to resume.

A server is not trusted: no more is written than the file should have, nothing is written through a link, and messages
quote neither passwords nor long answers.
"""

import hashlib
import http.client
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from tqdm import tqdm
from urllib3.util.retry import Retry

from scratchformer.errors import UserError, in_one_line
from scratchformer.files import open_plainly, replace_text

TIMEOUT_SECONDS = 30.0
"""For accepting a connection, and for each wait for data afterwards."""

PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Before each further attempt; when all are used up without progress, the download fails."""

LONGEST_WAIT_SECONDS = 600.0
"""If a server asks for a longer pause than this (Retry-After), the download fails at once."""

CHUNK_BYTES = 1 << 16

MOST_BYTES_UNKNOWN = 100_000_000
"""The most that is downloaded of a file whose length we do not know. All of them have a few megabytes."""

LONGEST_REASON = 100
"""Characters of an error that are quoted: it may contain what the server has sent."""

VALIDATOR = re.compile(r"[ -~]{1,200}")
"""What may be sent back in If-Range."""

NUMBER = re.compile(r"[0-9]{1,18}")

TEMPORARY_STATUS = (408, 425, 429)
"""Status codes below 500 that may go away: Request Timeout, Too Early, Too Many Requests."""


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

    @property
    def most_bytes(self) -> int:
        """How many bytes a download may have at most."""
        return self.n_bytes or MOST_BYTES_UNKNOWN


class TemporaryFailure(Exception):
    """An attempt failed, but another one may succeed, after a pause if the server asks for one."""

    def __init__(self, reason: str, pause_seconds: float = 0.0):
        super().__init__(reason)
        self.pause_seconds = pause_seconds


def download(remote: RemoteFile, directory: Path, mirror: str, tell: Callable[[str], None]) -> Path:
    """Download a file into `directory`, unless it is there, verify it and return its path.

    mirror  a base URL that replaces scheme and host, such as "http://mirror.example/wmt"; "" for none
    tell    is called with a line before each further attempt

    Raises UserError if the server does not have the file or cannot be reached in all attempts, if the content is wrong,
    if it is longer than it should be, or if the disk is full. NAME.partial stays, unless its content is wrong.
    """
    path = directory / remote.name
    if path.exists():
        require_verified(path, remote)
        return path
    url = mirror.rstrip("/") + urlsplit(remote.url).path if mirror else remote.url
    partial = sibling(path, ".partial")
    try:
        load(url, partial, remote, tell)
        found = checksum_of(partial, remote.checksum)
        if found != remote.checksum:
            delete(partial)
            raise UserError(
                f"{shown(url)}: not the expected file: checksum {found}, expected {remote.checksum}; "
                "the download has been removed"
            )
        partial.replace(path)
        delete(partial)
        remember_verified(path, remote)
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or partial}: {error.strerror}; what has been downloaded is kept, "
            "run the command again to resume"
        ) from error
    return path


def sibling(path: Path, ending: str) -> Path:
    """Append to the name: file.tgz and ".partial" -> file.tgz.partial"""
    return path.with_name(path.name + ending)


def size_of(path: Path) -> int:
    """The length of a file in bytes; 0 if there is no such file."""
    return path.stat().st_size if path.exists() else 0


def require_address(mirror: str) -> None:
    """Raises UserError if this is not the address of a mirror, and not "", which means none."""
    if mirror and not mirror.startswith(("http://", "https://")):
        raise UserError(f"--mirror {shown(mirror)}: does not begin with http:// or https://")


def shown(address: str) -> str:
    """An address for a message, without user name and password: all up to the last @ is left out."""
    return re.sub(r"^([a-z]+://)?.*@", r"\1", address, flags=re.DOTALL)


# Attempts -------------------------------------------------------------------------------------------------------------


def load(url: str, partial: Path, remote: RemoteFile, tell: Callable[[str], None]) -> None:
    """Repeat attempts until `partial` is complete. After an attempt with progress the pauses start again."""
    furthest, pauses = size_of(partial), iter(PAUSES_SECONDS)
    for attempt in count(start=1):
        try:
            return load_rest(url, partial, remote)
        except TemporaryFailure as failure:
            if size_of(partial) > furthest:
                furthest, pauses = size_of(partial), iter(PAUSES_SECONDS)
            pause = next(pauses, None)
            if pause is None:
                raise UserError(
                    f"{shown(url)}: {failure}; given up after {attempt} attempts, run the command again to resume"
                ) from failure
            pause = max(pause, failure.pause_seconds)
            tell(f"{shown(url)}: {failure}; trying again in {pause:g} s")
        time.sleep(pause)


def load_rest(url: str, partial: Path, remote: RemoteFile) -> None:
    """Try once to download what `partial` lacks. Raises TemporaryFailure if another attempt may succeed."""
    if remote.n_bytes and size_of(partial) == remote.n_bytes:
        return
    if size_of(partial) > remote.most_bytes:
        delete(partial)
    try:
        with requests.get(
            url,
            headers=request_headers(partial),
            stream=True,
            timeout=TIMEOUT_SECONDS,
            hooks={"response": _close_redirect},
        ) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                delete(partial)
                raise TemporaryFailure(
                    "the partial file is as long as the whole file or longer, so it is downloaded again"
                )
            require_success(url, response)
            start = first_byte(response)
            if start not in (0, size_of(partial)):
                delete(partial)
                raise TemporaryFailure(f"the server sends another range than requested, from byte {start}")
            length = response.headers.get("Content-Length", "")
            total = start + int(length) if NUMBER.fullmatch(length) else remote.n_bytes
            if remote.n_bytes and total != remote.n_bytes:
                raise UserError(f"{shown(url)}: not the expected file: {total} bytes, expected {remote.n_bytes}")
            if total > remote.most_bytes:
                raise too_long(url, remote)
            if not receive(response, partial, start, total, remote.most_bytes):
                delete(partial)
                raise too_long(url, remote)
    except UserError:  # it is a ValueError, too
        raise
    except requests.TooManyRedirects as error:
        raise UserError(f"{shown(url)}: too many redirects") from error
    except ValueError as error:  # InvalidURL and the like
        raise UserError(f"{shown(url)}: not a valid address, or redirected to one that is not") from error
    except requests.exceptions.SSLError as error:  # the certificate will be the same next time
        raise UserError(f"{shown(url)}: {reason_of(error)}") from error
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise TemporaryFailure(reason_of(error)) from error
    if size_of(partial) < total:
        raise TemporaryFailure(f"the connection ended after {size_of(partial)} of {total} bytes")


def _close_redirect(response: requests.Response, **options: Any) -> None:
    """Do not read the body of a redirect, which `requests` would keep in memory, however long it is."""
    if response.is_redirect:
        response.close()


def too_long(url: str, remote: RemoteFile) -> UserError:
    return UserError(f"{shown(url)}: not the expected file: more than {remote.most_bytes} bytes")


def request_headers(partial: Path) -> dict[str, str]:
    """Request the bytes without transfer compression; with a partial file, only the rest, if the file is unchanged."""
    headers = {"Accept-Encoding": "identity"}
    if size_of(partial):
        headers["Range"] = f"bytes={size_of(partial)}-"
        if VALIDATOR.fullmatch(validator := read_if_exists(sibling(partial, ".validator"))):
            headers["If-Range"] = validator
    return headers


def require_success(url: str, response: requests.Response) -> None:
    """Raises TemporaryFailure unless the server sends data, or UserError if another attempt would not help."""
    status = response.status_code
    if status in (requests.codes.ok, requests.codes.partial_content):
        return
    answer = f"the server answers {status} {http.client.responses.get(status, '')}".rstrip()
    if status not in TEMPORARY_STATUS and status < 500:
        raise UserError(f"{shown(url)}: {answer}")
    pause_seconds = requested_pause(response)
    if pause_seconds > LONGEST_WAIT_SECONDS:
        raise UserError(
            f"{shown(url)}: {answer}, and asks for a pause of more than {LONGEST_WAIT_SECONDS / 60:g} minutes; "
            "run the command again later"
        )
    raise TemporaryFailure(answer, pause_seconds)


def requested_pause(response: requests.Response) -> float:
    """Return Retry-After, a number or a date, in seconds from now; 0 if it is missing or invalid."""
    try:
        return float(Retry().parse_retry_after(response.headers["Retry-After"]))
    except (KeyError, urllib3.exceptions.InvalidHeader, ValueError, OverflowError):
        return 0.0


def first_byte(response: requests.Response) -> int:
    """Where in the file the body begins; 0 if the server does not support ranges or the file has changed."""
    if response.status_code == requests.codes.ok:
        return 0
    found = re.match(r"bytes ([0-9]{1,18})-", response.headers.get("Content-Range", ""))
    return int(found[1]) if found else -1


def receive(response: requests.Response, partial: Path, start: int, total: int, most_bytes: int) -> bool:
    """Write the body after the first `start` bytes, with a progress bar on a terminal.

    Returns whether the file has at most `most_bytes`: no more are written, whatever the server sends.
    """
    n_bytes = start
    with open(partial, "ab" if start else "wb", opener=open_plainly) as file, tqdm(
        total=total or None, initial=start, unit="B", unit_scale=True, disable=None, desc=partial.stem, leave=False
    ) as bar:
        if not start:
            replace_text(sibling(partial, ".validator"), validator_of(response))
        # Not iter_content, which would unpack a .tgz that some servers label "Content-Encoding: gzip".
        for chunk in response.raw.stream(CHUNK_BYTES, decode_content=False):
            n_bytes += len(chunk)
            if n_bytes > most_bytes:
                return False
            file.write(chunk)
            bar.update(len(chunk))
    return True


def validator_of(response: requests.Response) -> str:
    """Return what identifies this version of the file in If-Range; weak ETags are not allowed (RFC 9110 §13.1.5)."""
    etag = response.headers.get("ETag", "")
    validator = etag if etag.startswith('"') else response.headers.get("Last-Modified", "")
    return validator if VALIDATOR.fullmatch(validator) else ""


def delete(partial: Path) -> None:
    """Delete a partial file, and the note beside it of which version it is."""
    partial.unlink(missing_ok=True)
    sibling(partial, ".validator").unlink(missing_ok=True)


def reason_of(error: BaseException) -> str:
    """Why a connection failed: the operating system's message, which the libraries wrap several times."""
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    while inner := error.__cause__ or error.__context__:
        error = inner
    reason = getattr(error, "strerror", None) or in_one_line(error)
    return f"the connection failed ({reason[:LONGEST_REASON]})"


# Checksums ------------------------------------------------------------------------------------------------------------


def checksum_of(path: Path, like: str) -> str:
    """Compute the checksum of a file by the same algorithm as `like`, "md5:..." or "sha256:..."."""
    algorithm = like.partition(":")[0]
    digest = hashlib.new(algorithm)
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"


def require_verified(path: Path, remote: RemoteFile) -> None:
    """Verify the checksum of an existing file, unless that was done before and the file has not changed since.

    Raises UserError if it is another file, which is not deleted because it may not be ours.
    """
    if read_if_exists(sibling(path, ".verified")) == verification(path, remote):
        return
    found = checksum_of(path, remote.checksum)
    if found != remote.checksum:
        raise UserError(
            f"{path}: damaged, or another file: checksum {found}, expected {remote.checksum}; "
            "remove it and run the command again"
        )
    remember_verified(path, remote)


def remember_verified(path: Path, remote: RemoteFile) -> None:
    replace_text(sibling(path, ".verified"), verification(path, remote))


def verification(path: Path, remote: RemoteFile) -> str:
    """Its checksum, length and modification time: comparing these is faster than reading gigabytes again."""
    return f"{remote.checksum} {path.stat().st_size} {path.stat().st_mtime_ns}"


def read_if_exists(path: Path) -> str:
    """Read one of our small files; "" if it does not exist."""
    if not path.is_file():
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(1000)
