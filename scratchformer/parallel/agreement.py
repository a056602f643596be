"""Checks that all ranks have the same settings, code and data: before the first step and at every checkpoint."""

from __future__ import annotations

import functools
import json
import zlib
from pathlib import Path
from typing import Any

from scratchformer.errors import UserError
from scratchformer.parallel.communicator import Communicator, name_ranks


def require_agreement(ranks: Communicator, facts: dict[str, Any]) -> None:
    """Compare `facts`, name -> string or number, of all ranks; if some differ, every rank names them and stops."""
    received = [json.loads(message) for message in ranks.all_gather_bytes(json.dumps(facts).encode())]
    values = {name: [other.get(name) for other in received] for name in facts}
    differences = [f"{name} is {ranks_by_value(of)}" for name, of in values.items() if of.count(of[0]) < ranks.size]
    if differences:
        raise UserError(f"the ranks do not agree: {'; '.join(differences)}")


def ranks_by_value(values: list[Any]) -> str:
    """[1, 1, 2] -> '1 on ranks 0, 1 and 2 on rank 2'"""
    ranks: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(repr(value), []).append(rank)
    return " and ".join(f"{value} on {name_ranks(which)}" for value, which in ranks.items())


@functools.cache
def code_checksum() -> int:
    """Compute the CRC-32 of this package's sources."""
    return checksum_of(Path(__file__).parents[1])


def checksum_of(directory: Path) -> int:
    """Compute the CRC-32 of names and contents of all .py and .cu files below a directory."""
    crc = 0
    for path in sorted(path for path in directory.rglob("*") if path.suffix in (".py", ".cu")):
        crc = zlib.crc32(path.read_bytes(), zlib.crc32(str(path.relative_to(directory)).encode(), crc))
    return crc
