"""Download large files over an unreliable network, verify them, and unpack them.

What has arrived is kept as NAME.partial, and the next attempt, or the next run of the program, asks the server only for
the rest (a range request, RFC 9110 §14). It becomes NAME when its checksum is right.
"""

import hashlib
import re
import shutil
import tarfile
import time
from collections.abc import Callable, Collection
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import urlsplit

import requests
import urllib3

from scratchformer.errors import UserError, in_one_line
from scratchformer.files import make_directory, user_error, whole_file
from scratchformer.progress import tqdm

Tell = Callable[[str], None]

TIMEOUT_SECONDS = 30.0
"""For accepting a connection, and for each wait for data afterwards."""

PAUSES_SECONDS = (1.0, 4.0, 16.0)
"""Before each further attempt; when all are used up, the download fails."""

CHUNK_BYTES = 1 << 16
BUSY = (408, 425, 429, 500, 502, 503, 504)
"""Answers of a server that may serve the file a little later."""


class RemoteFile(NamedTuple):
    """A file that never changes; checksum: "sha256:..." or "md5:..."."""

    url: str
    checksum: str

    @property
    def name(self) -> str:
        """The name of the file: the last part of the URL's path."""
        return PurePosixPath(urlsplit(self.url).path).name


def download(remote: RemoteFile, directory: Path, mirror: str, tell: Tell) -> Path:
    """Download a file into `directory`, unless it is there, verify it and return its path.

    mirror  a base URL that replaces scheme and host, such as "http://mirror.example/wmt"; "" for none
    tell    is called with a line before each further attempt

    After a failure NAME.partial stays, unless its content is wrong.
    """
    path = directory / remote.name
    if path.exists():
        if not has_checksum(path, remote.checksum):
            raise UserError(f"{path}: damaged, its checksum is wrong; remove it and run the command again")
        return path
    url = mirror.rstrip("/") + urlsplit(remote.url).path if mirror else remote.url
    partial = path.with_name(path.name + ".partial")
    for pause in (*PAUSES_SECONDS, None):
        try:
            load_rest(url, partial)
            break
        except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as error:
            if pause is None:
                raise UserError(f"{url}: {reason_of(error)}; given up, run the command again to resume") from error
            tell(f"{url}: {reason_of(error)}; trying again in {pause:g} s")
            time.sleep(pause)
        except requests.RequestException as error:
            raise UserError(f"{url}: {in_one_line(error)}") from error
    if not has_checksum(partial, remote.checksum):
        partial.unlink()
        raise UserError(f"{url}: not the expected file, its checksum is wrong; the download has been removed")
    partial.replace(path)
    return path


def load_rest(url: str, partial: Path) -> None:
    """Try once to download what `partial` lacks, with a progress bar on a terminal."""
    begin = partial.stat().st_size if partial.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={begin}-"} if begin else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as response:
        if begin and response.status_code == requests.codes.requested_range_not_satisfiable:
            return  # there is no more of it: the checksum decides
        if response.status_code in BUSY:
            raise requests.ConnectionError(f"the server answers {response.status_code} {response.reason}")
        if response.status_code not in (requests.codes.ok, requests.codes.partial_content):
            raise UserError(f"{url}: the server answers {response.status_code} {response.reason}")
        begin = begin if response.status_code == requests.codes.partial_content else 0
        total = begin + int(response.headers.get("Content-Length", 0)) or None
        bar = tqdm(total=total, initial=begin, unit="B", unit_scale=True, disable=None, desc=partial.stem, leave=False)
        complaint = "cannot write; what has been downloaded is kept, run the command again to resume"
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
    return getattr(error, "strerror", None) or in_one_line(error)


def has_checksum(path: Path, checksum: str) -> bool:
    """Compare a file with its checksum, "md5:..." or "sha256:..."."""
    algorithm, _, expected = checksum.partition(":")
    digest = hashlib.new(algorithm)
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest() == expected


# Unpacking ------------------------------------------------------------------------------------------------------------


def unpack(archive: Path, members: Collection[str], directory: Path) -> None:
    """Write these members of a verified tar archive (plain or gzipped) below `directory`.

    Each is written whole or not at all, under a name that we chose; nothing else in the archive is touched.
    """
    missing = set(members)
    with tarfile.open(archive) as tar:
        while missing and (member := tar.next()):
            name = member.name.removeprefix("./")
            if name in missing and (source := member.isreg() and tar.extractfile(member)):
                make_directory((directory / name).parent)
                with whole_file(directory / name) as file:
                    shutil.copyfileobj(source, file, length=1 << 20)
                missing.remove(name)
    if missing:
        raise UserError(f"{archive}: holds no {min(missing)}")


def text_of_sgml(sgml: Path, path: Path) -> None:
    """Write the segments of one of WMT's SGML files to `path`, one on each line.

    As in sacreBLEU, spaces around a segment are removed, a run of spaces becomes one, and nothing else changes. The
    files are not real SGML: each <seg> has a line to itself.
    """
    with open(sgml, encoding="utf-8") as file:
        segments = [line for line in file if line.startswith("<seg ")]
    with whole_file(path) as text:
        for segment in segments:
            sentence = re.sub(r"<seg.*?>(.*)</seg>.*?", r"\1", segment)
            text.write(" ".join(sentence.split()).encode("utf-8") + b"\n")
