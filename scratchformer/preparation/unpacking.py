"""Unpack chosen files of an archive, and turn WMT's SGML files into plain text."""

import re
import shutil
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path

from tqdm import tqdm

from scratchformer.errors import UserError, in_one_line
from scratchformer.files import make_directory, whole_file
from scratchformer.text.corpora import cannot_read


def unpack(archive: Path, members: Collection[str], directory: Path) -> None:
    """Write these members of a tar archive (plain or gzipped) below `directory`, except those that exist already.

    Each is written whole or not at all, under a name that we chose; nothing else in the archive is touched.
    """
    missing = {member for member in members if not (directory / member).exists()}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if not missing:
                    return
                name = member.name.removeprefix("./")
                if name in missing and member.isreg():
                    write_member(tar, member, directory / name)
                    missing.remove(name)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise UserError(f"{archive}: damaged ({in_one_line(error)}); remove it and run the command again") from error
    if missing:
        raise UserError(f"{archive}: holds no {min(missing)}; it is truncated or not the archive it should be")


def write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Write a member to `path`, with a progress bar on a terminal."""
    make_directory(path.parent)
    source = tar.extractfile(member)
    bar = tqdm.wrapattr(source, "read", total=member.size, disable=None, desc=path.name, leave=False)
    with whole_file(path) as file, bar as measured:
        shutil.copyfileobj(measured, file, length=1 << 20)


def text_of_sgml(sgml: Path, path: Path) -> None:
    """Write the segments of one of WMT's SGML files to `path`, one on each line.

    As in sacreBLEU, spaces around a segment are removed, a run of spaces becomes one, and nothing else changes. The
    files are not real SGML: each <seg> has a line to itself.
    """
    try:
        with open(sgml, encoding="utf-8") as file:
            segments = [line for line in file if line.startswith("<seg ")]
    except (OSError, UnicodeDecodeError) as error:
        raise cannot_read(sgml, error) from error
    if not segments:
        raise UserError(f"{sgml}: holds no segments")
    with whole_file(path) as text:
        for segment in segments:
            sentence = re.sub(r"<seg.*?>(.*)</seg>.*?", r"\1", segment)
            text.write(" ".join(sentence.split()).encode("utf-8") + b"\n")
