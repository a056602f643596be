"""Remember which stages of a preparation are done, so that a repeated or killed preparation does not repeat them."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from scratchformer.files import replace_text, user_error
from scratchformer.preparation.prepared import (
    FORMAT,
    MADE_BY,
    MANIFEST,
    STAGES,
    crc32_of_file,
    read_json_bytes,
    require_own_names,
)

Tell = Callable[[str], None]
Invalidate = Callable[[], None]
"""A stage calls this once: after everything that can fail because of its options, before it replaces its first file."""


class StageResult(NamedTuple):
    """What a stage has done: figures for the manifest, and a line for the user."""

    report: dict[str, Any]
    summary: str


class StageRecord(NamedTuple):
    """A finished stage: what it was made from, its figures, and its files with their bytes and CRC-32.

    In an unfinished one, `made_from` is empty and `files` has the names of all files that may exist, old and new.
    """

    made_from: dict[str, Any]
    report: dict[str, Any]
    files: dict[str, dict[str, int]]

    def checksums(self, names: list[str]) -> dict[str, int]:
        """File name -> CRC-32, for these files."""
        return {name: self.files[name]["crc32"] for name in names}


class Stages:
    """The finished stages of a directory, kept in stages.json. While one is unfinished, there is no manifest."""

    def __init__(self, out: Path, tell: Tell):
        self.out = out
        self.tell = tell
        self.records = self._read()

    def run(
        self, name: str, made_from: dict[str, Any], outputs: list[str], work: Callable[[Invalidate], StageResult]
    ) -> StageRecord:
        """Run the stage, which writes the files `outputs`, unless it has been run with the same `made_from` before.

        Raises UserError if an old file cannot be removed, and everything that `work` raises.
        """

        def invalidate() -> None:
            remove(self.out / MANIFEST)
            self.records[name] = StageRecord({}, {}, old.files | {file: {} for file in outputs})
            self._write()

        made_from = json.loads(json.dumps({"format": FORMAT} | made_from))  # as JSON returns it: lists for tuples
        old = self.records.get(name, StageRecord({}, {}, {}))
        if old.made_from == made_from and old.files.keys() == set(outputs) and self._is_intact(old):
            self.tell(f"{name}: done before")
            return old
        if old.made_from:
            self.tell(f"{name}: made from other text or with other options before, or damaged; it is done again")
        start = time.perf_counter()
        report, summary = work(invalidate)
        paths = {file: self.out / file for file in outputs}
        files = {file: {"bytes": path.stat().st_size, "crc32": crc32_of_file(path)} for file, path in paths.items()}
        for file in old.files.keys() - files.keys():  # in other languages, or of a test set
            remove(self.out / file)
        self.records[name] = StageRecord(made_from, json.loads(json.dumps(report)), files)
        self._write()
        self.tell(f"{name}: {summary}; {time.perf_counter() - start:.1f} s")
        return self.records[name]

    def _is_intact(self, record: StageRecord) -> bool:
        """Whether all files are as they were written; sizes are compared first, because checksums take longer."""
        files = [(self.out / name, expected) for name, expected in record.files.items()]
        return all(path.is_file() and path.stat().st_size == expected.get("bytes") for path, expected in files) and all(
            crc32_of_file(path) == expected.get("crc32") for path, expected in files
        )

    def _read(self) -> dict[str, StageRecord]:
        try:
            stages = json.loads(read_json_bytes(self.out / STAGES).decode("utf-8"))["stages"]
            records = {name: StageRecord(**record) for name, record in stages.items()}
            for record in records.values():
                require_own_names(record.files)
                if not all(isinstance(value, dict) for value in (*record, *record.files.values())):
                    raise TypeError("a record of another type")
            return records
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}  # missing or damaged: start from the beginning

    def _write(self) -> None:
        stages = {name: record._asdict() for name, record in self.records.items()}
        replace_text(self.out / STAGES, json.dumps({"made_by": MADE_BY, "stages": stages}, indent=1) + "\n")


def remove(path: Path) -> None:
    """Remove a file, unless it is missing. Raises UserError if that fails."""
    with user_error(path, "cannot remove"):
        path.unlink(missing_ok=True)
