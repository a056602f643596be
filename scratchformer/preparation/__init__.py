"""From a download to ids on disk: download, unpack, clean, learn a vocabulary, encode."""

from pathlib import Path

MANIFEST = "manifest.json"
UNFINISHED = ".preparing"
"""The directory inside a prepared one in which its files are made, before they are moved to their places."""

MADE_BY = "scratchformer data"
"""Marks our manifest; it stands at the beginning, where even a truncated file has it."""


def is_prepared(directory: Path) -> bool:
    """Recognize a directory of a preparation, finished or not; other programs write a manifest.json, too.

    The mark is searched for in the bytes, and the ids count too, so that a damaged directory is not taken for text.
    """
    if (directory / UNFINISHED).is_dir() or (directory / "train.source.ids.bin").exists():
        return True
    path = directory / MANIFEST
    return path.is_file() and f'"{MADE_BY}"'.encode() in path.read_bytes()
