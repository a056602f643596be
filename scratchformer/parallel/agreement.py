"""Do all ranks mean the same? Asked before the first step, and whenever they save."""

from __future__ import annotations

import functools
import json
import zlib
from pathlib import Path
from typing import Any

from scratchformer.errors import UserError
from scratchformer.parallel.communicator import Communicator, listed


def require_agreement(ranks: Communicator, facts: dict[str, Any]) -> None:
    """Compare what the ranks say; one alone agrees. facts: what about -> a string or number

    Raises UserError on every rank, naming what differs and on which ranks.
    """
    said = [json.loads(message) for message in ranks.gather(json.dumps(facts).encode())]
    differing = [name for name in facts if any(other.get(name) != facts[name] for other in said)]
    if differing:
        told = "; ".join(f"{name} is {by_value([other.get(name) for other in said])}" for name in differing)
        raise UserError(f"the ranks do not agree: {told}")


def by_value(values: list[Any]) -> str:
    """[1, 1, 2] -> '1 on ranks 0, 1 and 2 on rank 2'"""
    ranks: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(repr(value), []).append(rank)
    return " and ".join(f"{value} on {listed(which)}" for value, which in ranks.items())


@functools.cache
def code_checksum() -> int:
    """CRC-32 of this package's sources."""
    return checksum_of(Path(__file__).parents[1])


def checksum_of(house: Path) -> int:
    crc = 0
    for path in sorted(path for path in house.rglob("*") if path.suffix in (".py", ".cu")):
        crc = zlib.crc32(path.read_bytes(), zlib.crc32(str(path.relative_to(house)).encode(), crc))
    return crc
