"""How does a large file come whole through a network that fails?

What has arrived is kept as NAME.partial, and the next attempt, or the next run of the program, asks the server for the
rest of it (a range request, RFC 9110 §14). Only when the checksum of the whole is right does it become NAME. Every
ending that is not success is a UserError of one line, and leaves what can be gone on from.
"""

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import requests
import urllib3
from tqdm import tqdm
from urllib3.util.retry import Retry

from scratchformer.errors import UserError, in_one_line

TIMEOUT_SECONDS = 30.0
"""How long a server may take to accept a connection, and how long it may be silent afterwards."""

PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Before each further attempt; after the last, an attempt that brings nothing new is the end."""

LONGEST_WAIT_SECONDS = 600.0
"""A server that asks for more patience than this (Retry-After) is not waited for."""

CHUNK_BYTES = 1 << 16

WORTH_ANOTHER = (408, 425, 429)
"""Answers below 500 that the next attempt may not get: Request Timeout, Too Early, Too Many Requests."""

HOPELESS = (requests.TooManyRedirects, ValueError)
"""What the next attempt would meet again. A ValueError is an address that is none: ours, as InvalidURL and its kin, or
one that the server leads to."""


@dataclass(frozen=True)
class RemoteFile:
    """A file that never changes: `checksum` is "sha256:" or "md5:" and the digits; n_bytes its length, 0 if unknown."""

    url: str
    checksum: str
    n_bytes: int = 0

    @property
    def name(self) -> str:
        return PurePosixPath(urlsplit(self.url).path).name


class Interrupted(Exception):
    """An attempt that failed in a way another may not, after the pause that the server asks for."""

    def __init__(self, reason: str, pause_seconds: float = 0.0):
        super().__init__(reason)
        self.pause_seconds = pause_seconds


def download(remote: RemoteFile, directory: Path, mirror: str, tell: Callable[[str], None]) -> Path:
    """The file in `directory`, complete and verified; nothing is loaded if it is there.

    mirror: a base URL that takes the place of scheme and host, such as "http://mirror.example/wmt"; "" for none.
    tell: is given a line whenever something must be tried again.

    Raises: UserError if the server does not have the file or cannot be reached in all attempts, if what came is not
        the file, or if the disk is full. NAME.partial stays, unless it is wrong.
    """
    path = directory / remote.name
    if path.exists():
        require_verified(path, remote)
        return path
    url = mirror.rstrip("/") + urlsplit(remote.url).path if mirror else remote.url
    partial = partial_of(path)
    try:
        load(url, partial, remote.n_bytes, tell)
        found = checksum_of(partial, remote.checksum)
        if found != remote.checksum:
            forget(partial)
            raise UserError(
                f"{url}: not the expected file: checksum {found}, expected {remote.checksum}; "
                "what was loaded has been removed"
            )
        partial.replace(path)
        forget(partial)
        remember_verified(path, remote)
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or partial}: {error.strerror}; what has been loaded stays, "
            "run the command again to go on"
        ) from error
    return path


def partial_of(path: Path) -> Path:
    """Where a file is until it is complete."""
    return path.with_name(path.name + ".partial")


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


# Attempts -------------------------------------------------------------------------------------------------------------


def load(url: str, partial: Path, n_bytes: int, tell: Callable[[str], None]) -> None:
    """Attempt after attempt until `partial` is complete. One that got further than all before renews our patience."""
    furthest, pauses = size_of(partial), iter(PAUSES_SECONDS)
    for attempt in count(start=1):
        try:
            return load_rest(url, partial, n_bytes)
        except Interrupted as interruption:
            if size_of(partial) > furthest:
                furthest, pauses = size_of(partial), iter(PAUSES_SECONDS)
            pause = next(pauses, None)
            if pause is None:
                raise UserError(
                    f"{url}: {interruption}; given up after {attempt} attempts, run " "the command again to go on"
                ) from interruption
            pause = max(pause, interruption.pause_seconds)
            tell(f"{url}: {interruption}; trying again in {pause:g} s")
        time.sleep(pause)


def load_rest(url: str, partial: Path, n_bytes: int) -> None:
    """One attempt at what `partial` lacks. Raises Interrupted if it is worth another."""
    if n_bytes and size_of(partial) == n_bytes:
        return
    try:
        with requests.get(url, headers=request_headers(partial), stream=True, timeout=TIMEOUT_SECONDS) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                forget(partial)  # as long as the file, or longer
                raise Interrupted("the file is not longer than what is here of it, so it is loaded anew")
            require_success(url, response)
            start = first_byte(response)
            if start not in (0, size_of(partial)):
                forget(partial)
                raise Interrupted(f"the server sends another range than asked for, from byte {start}")
            length = response.headers.get("Content-Length", "")
            total = start + int(length) if length.isdigit() else n_bytes
            if n_bytes and total != n_bytes:
                raise UserError(f"{url}: not the expected file: {total} bytes, expected {n_bytes}")
            receive(response, partial, start, total)
    except UserError:  # which is a ValueError, too
        raise
    except HOPELESS as error:
        raise UserError(f"{url}: {in_one_line(error)}") from error
    except requests.exceptions.SSLError as error:  # another certificate will not come
        raise UserError(f"{url}: {reason_of(error)}") from error
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise Interrupted(reason_of(error)) from error
    if size_of(partial) < total:
        raise Interrupted(f"the connection ended after {size_of(partial)} of {total} bytes")


def request_headers(partial: Path) -> dict[str, str]:
    """Ask for the bytes as they are stored; and if some are here, for the rest, provided that the file is the same."""
    headers = {"Accept-Encoding": "identity"}
    if size_of(partial):
        headers["Range"] = f"bytes={size_of(partial)}-"
        if validator := text_or_nothing(validator_file(partial)):
            headers["If-Range"] = validator
    return headers


def require_success(url: str, response: requests.Response) -> None:
    status = response.status_code
    if status in (requests.codes.ok, requests.codes.partial_content):
        return
    answer = f"the server answers {status} {response.reason}"
    if status not in WORTH_ANOTHER and status < 500:
        raise UserError(f"{url}: {answer}")
    pause_seconds = requested_pause(response)
    if pause_seconds > LONGEST_WAIT_SECONDS:
        raise UserError(
            f"{url}: {answer}, and asks for a pause of more than {LONGEST_WAIT_SECONDS / 60:g} minutes; "
            "run the command again later"
        )
    raise Interrupted(answer, pause_seconds)


def requested_pause(response: requests.Response) -> float:
    """Retry-After in seconds, be it a number or a date; 0 if it is missing or neither."""
    try:
        return float(Retry().parse_retry_after(response.headers["Retry-After"]))
    except (KeyError, urllib3.exceptions.InvalidHeader):
        return 0.0


def first_byte(response: requests.Response) -> int:
    """Where in the file the answer begins: at 0 if the server knows no ranges, or the file has changed."""
    if response.status_code == requests.codes.ok:
        return 0
    found = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(found[1]) if found else -1


def receive(response: requests.Response, partial: Path, start: int, total: int) -> None:
    """Write the body behind the first `start` bytes, with a bar on a terminal."""
    with open(partial, "ab" if start else "wb") as file, tqdm(
        total=total or None, initial=start, unit="B", unit_scale=True, disable=None, desc=partial.stem, leave=False
    ) as bar:
        if not start:
            validator_file(partial).write_text(validator_of(response), encoding="utf-8")
        # Not iter_content: some servers label a .tgz "Content-Encoding: gzip", and it would unpack it.
        for chunk in response.raw.stream(CHUNK_BYTES, decode_content=False):
            file.write(chunk)
            bar.update(len(chunk))


def validator_of(response: requests.Response) -> str:
    """What identifies this version of the file in If-Range; a weak ETag may not (RFC 9110 §13.1.5)."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified", "")


def validator_file(partial: Path) -> Path:
    return partial.with_name(partial.name + ".validator")


def forget(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    validator_file(partial).unlink(missing_ok=True)


def reason_of(error: BaseException) -> str:
    """Why a connection failed: the operating system's word for it, which the libraries wrap several times."""
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:g} s"
    while inner := error.__cause__ or error.__context__:
        error = inner
    return f"the connection failed ({getattr(error, 'strerror', None) or in_one_line(error)})"


# Checksums ------------------------------------------------------------------------------------------------------------


def checksum_of(path: Path, like: str) -> str:
    """The checksum of a file, by the same algorithm as `like`: "md5:..." or "sha256:..."."""
    algorithm = like.partition(":")[0]
    digest = hashlib.new(algorithm)
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return f"{algorithm}:{digest.hexdigest()}"


def require_verified(path: Path, remote: RemoteFile) -> None:
    """Verify a file that is there, unless this has been done and the file has not been touched since.

    Raises: UserError if it is another file; it is left alone, because it may not have come from us.
    """
    if text_or_nothing(verified_file(path)) == verification(path, remote):
        return
    found = checksum_of(path, remote.checksum)
    if found != remote.checksum:
        raise UserError(
            f"{path}: damaged, or another file: checksum {found}, expected {remote.checksum}; "
            "remove it and run the command again"
        )
    remember_verified(path, remote)


def remember_verified(path: Path, remote: RemoteFile) -> None:
    verified_file(path).write_text(verification(path, remote), encoding="utf-8")


def verification(path: Path, remote: RemoteFile) -> str:
    """What is remembered of a verified file: reading its length and its time is free, reading gigabytes is not."""
    return f"{remote.checksum} {path.stat().st_size} {path.stat().st_mtime_ns}"


def verified_file(path: Path) -> Path:
    return path.with_name(path.name + ".verified")


def text_or_nothing(path: Path) -> str:
    """The text of a small file of ours; "" if it is not there."""
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
