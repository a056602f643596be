"""How do the files of an archive come to the disk, and nothing else of it?

Members are streamed one after the other, and only those that are wanted are written: under a temporary name first, so
that a file is there whole or not at all. An archive comes from a network, so it is not trusted with paths.
"""

import gzip
import re
import shutil
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from tqdm import tqdm

from scratchformer.errors import UserError, in_one_line
from scratchformer.files import make_directory, whole_file
from scratchformer.text.corpora import cannot_read

DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)
"""What reading an archive ends with when it is damaged or truncated."""


def unpack(archive: Path, members: Collection[str], directory: Path) -> None:
    """Write these members of a tar archive (plain or gzipped) below `directory`; those that are there stay as they are.

    Raises: UserError if a member is missing or no regular file, if a path leads out of the directory, if the archive
        holds a device or a link that leads out, if it is damaged, or if the disk is full.
    """
    missing = {member for member in members if not (directory / member).exists()}
    if not missing:
        return
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                require_harmless(member, archive, directory)
                name = str(PurePosixPath(member.name))  # without "./"
                if name in missing:
                    write_member(tar, member, archive, directory / name)
                    missing.remove(name)
                if not missing:
                    return
    except DAMAGED as error:
        raise UserError(
            f"{archive}: damaged, before {min(missing)} was unpacked ({in_one_line(error)}); "
            "remove it and run the command again"
        ) from error
    except OSError as error:
        raise cannot_read(archive, error) from error
    raise UserError(f"{archive}: holds no {min(missing)}; it is truncated or not the archive it should be")


def require_harmless(member: tarfile.TarInfo, archive: Path, directory: Path) -> None:
    """Raises: UserError if the member would reach beyond the directory.

    Only regular files with names of our own are ever written. But an archive that holds anything else of this kind is
    not the one we know.
    """
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:  # the filter would mend some of these
        raise UserError(f"{archive}: refused, because {member.name} leads out of the directory")
    if not hasattr(tarfile, "data_filter"):  # before Python 3.10.12 and 3.11.4
        return
    try:
        tarfile.data_filter(member, str(directory))
    except tarfile.FilterError as error:
        raise UserError(f"{archive}: refused, because {in_one_line(error)}") from error


def write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, archive: Path, path: Path) -> None:
    if not member.isreg():
        raise UserError(f"{archive}: refused, because {member.name} is not a regular file")
    source = tar.extractfile(member)
    make_directory(path.parent)
    with whole_file(path) as file, tqdm.wrapattr(
        source, "read", total=member.size, disable=None, desc=path.name, leave=False
    ) as measured:
        shutil.copyfileobj(measured, file, length=1 << 20)


def text_of_sgml(sgml: Path, path: Path) -> None:
    """Write the segments of one of WMT's SGML files to `path`, one a line, as sacreBLEU does: without the spaces around
    them, runs of spaces made one, and nothing else changed. Nothing is done if `path` is there.

    The files are no real SGML; each <seg> has a line to itself. Raises: UserError if there is none.
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
