"""Unpack chosen files of an archive, and turn WMT's SGML files into plain text.

Members are read one after the other, and only the wanted ones are written, each atomically. An archive comes from the
network, so its paths are not trusted.
"""

import gzip
import re
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tqdm import tqdm

from scratchformer.errors import UserError, in_one_line
from scratchformer.files import make_directory, whole_file
from scratchformer.text.corpora import cannot_read

DAMAGED = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    ValueError,
    OverflowError,
    RecursionError,
    MemoryError,
)
"""Exceptions for a damaged or truncated archive; the last four come from headers with impossible numbers."""


def unpack(archive: Path, members: Mapping[str, int], directory: Path) -> None:
    """Write these members of a tar archive (plain or gzipped) below `directory`, except those that exist already.

    members  the path of each member, and the most bytes that it may have

    Raises UserError if a member is missing, too large or not a regular file, if a path leads out of the directory, if
    the archive contains a device or a link that leads out, if it is damaged, or if the disk is full.
    """
    missing = {member for member in members if not (directory / member).exists()}
    if not missing:
        return
    make_directory(directory)  # tarfile's filter follows the path
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                require_harmless(member, archive, directory)
                name = str(PurePosixPath(member.name))  # without "./"
                if name in missing:
                    if member.size > members[name]:
                        raise UserError(f"{archive}: refused, because {name} has more than {members[name]} bytes")
                    write_member(tar, member, archive, directory / name)
                    missing.remove(name)
                if not missing:
                    return
    except UserError:  # it is a ValueError, too
        raise
    except DAMAGED as error:
        raise UserError(
            f"{archive}: damaged, before {min(missing)} was unpacked ({in_one_line(error)}); "
            "remove it and run the command again"
        ) from error
    except OSError as error:
        raise cannot_read(archive, error) from error
    raise UserError(f"{archive}: holds no {min(missing)}; it is truncated or not the archive it should be")


def require_harmless(member: tarfile.TarInfo, archive: Path, directory: Path) -> None:
    """Raises UserError if unpacking this member could write outside the directory.

    We only ever write regular files under names that we know. But an archive with such a member is not the one that we
    expect.
    """
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:  # tarfile's filter would correct some of these
        raise UserError(f"{archive}: refused, because {member.name} leads out of the directory")
    if not hasattr(tarfile, "data_filter"):  # before Python 3.10.12 and 3.11.4
        return
    try:
        tarfile.data_filter(member, str(directory))
    except tarfile.FilterError as error:
        raise UserError(f"{archive}: refused, because {in_one_line(error)}") from error


def write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, archive: Path, path: Path) -> None:
    """Write a member to `path`, whole or not at all. Raises UserError if it is not a regular file."""
    if not member.isreg():
        raise UserError(f"{archive}: refused, because {member.name} is not a regular file")
    source = tar.extractfile(member)
    make_directory(path.parent)
    with whole_file(path) as file, tqdm.wrapattr(
        source, "read", total=member.size, disable=None, desc=path.name, leave=False
    ) as measured:
        shutil.copyfileobj(measured, file, length=1 << 20)


def text_of_sgml(sgml: Path, path: Path) -> None:
    """Write the segments of one of WMT's SGML files to `path`, one on each line, unless `path` exists.

    As in sacreBLEU, spaces around a segment are removed, a run of spaces becomes one, and nothing else changes. The
    files are not real SGML: each <seg> has a line to itself.

    Raises UserError if the file cannot be read or has no segments.
    """
    if path.exists():
        return
    try:
        with open(sgml, encoding="utf-8") as file:
            segments = [line for line in file if line.startswith("<seg ")]
    except (OSError, UnicodeDecodeError) as error:
        raise cannot_read(sgml, error) from error
    if not segments:
        raise UserError(f"{sgml}: holds no segments")
    make_directory(path.parent)
    with whole_file(path) as text:
        for segment in segments:
            sentence = re.sub(r"<seg.*?>(.*)</seg>.*?", r"\1", segment)
            text.write(" ".join(sentence.split()).encode("utf-8") + b"\n")
