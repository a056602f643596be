"""The harness of the benchmarks: the command line, result files with their origin, processes, and timing in turns."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import math
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence

import numpy as np
from provenance import surroundings
from threadpoolctl import threadpool_limits

from scratchformer.errors import UserError
from scratchformer.files import replace_text

RESULTS = Path(__file__).parent / "results"
OURS, EAGER = "scratchformer", "pytorch"
WARM_UP = 2  # rounds that are not timed
PAUSE = 0.05  # seconds before a turn: idle threads of the last one spin for a while
QUARTILES = {"minimum": 0, "lower_quartile": 25, "median": 50, "upper_quartile": 75}

Result = dict[str, Any]

# Command line and results ---------------------------------------------------------------------------------------------


def record(
    name: str,
    description: str,
    measure: Callable[[argparse.Namespace], Result | Iterator[Result]],
    options: Callable[[argparse.ArgumentParser], None] | None = None,
    threads: int | None = 1,
    torch: bool = False,
) -> None:
    """Parse the command line, measure, and write `name`.json with the origin of its numbers.

    measure  -> the contents of the file, or an iterator, each of whose results replaces the one before; an entry "name"
             replaces the file's name
    options  adds to --quick and --out
    threads  of BLAS; None leaves them alone
    torch    compares with PyTorch, which must be installed
    """
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    if options:
        options(parser)
    parser.add_argument("--quick", action="store_true", help="a few steps of a smaller model, to see that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result (default: results/ here)")
    arguments = parser.parse_args()
    if not arguments.out.is_dir():
        parser.error(f"--out: {arguments.out} is not a directory")
    if torch and importlib.util.find_spec("torch") is None:
        parser.error("PyTorch is missing: pip install -e '.[oracle]'")
    with threadpool_limits(threads):
        provenance = surroundings()  # now: git may move while we measure
        if torch:
            provenance["versions"]["torch"] = importlib.metadata.version("torch")
        try:
            found = measure(arguments)
            for each in [found] if isinstance(found, dict) else found:
                write(arguments.out, each.pop("name", name), {"provenance": provenance, **each})
        except UserError as error:
            parser.error(str(error))


def write(directory: Path, name: str, result: Result) -> None:
    """Write `directory`/`name`.json whole or not at all, with the command that made it, without absolute paths."""
    words = [Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:]]
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *words])
    text = json.dumps({"command": command, **result}, indent=1, allow_nan=False)
    replace_text(directory / f"{name}.json", text + "\n")


def earlier(arguments: argparse.Namespace, name: str) -> Result:
    """The result of an earlier run, {} if there is none."""
    file = arguments.out / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def cell_by_cell(keys: Sequence[str], cells: Iterable[tuple], measured: Callable[..., Result]) -> Iterator[Result]:
    """Measure one cell after another -> the result after each. A cell is known by its values of `keys`."""
    rows: list[Result] = []
    for cell in cells:
        rows.append({**dict(zip(keys, cell)), **measured(*cell)})
        yield {"cells": rows}


def names_from(known: Iterable[str]) -> Callable[[str], list[str]]:
    """For an argument that lists some of the known names: tiny,small"""

    def names(text: str) -> list[str]:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return text.split(",")

    return names


def counts(text: str) -> list[int]:
    """For an argument that lists numbers: 1,2"""
    return [int(part) for part in text.split(",")]


# Numbers --------------------------------------------------------------------------------------------------------------


def number(value: float) -> float | None:
    """Five significant digits; None, which is null in JSON, for what is not finite."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def rounded(value: Any) -> Any:
    """Numbers of a nested structure with five significant digits."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return number(value) if isinstance(value, float) else value


def spread(values: Iterable[float | None]) -> dict[str, float | None]:
    """Mean and range over the seeds; all None if one of the values is."""
    array = np.array(list(values), float)  # None becomes NaN
    return rounded({"mean": float(array.mean()), "lowest": float(array.min()), "highest": float(array.max())})


# Timing ---------------------------------------------------------------------------------------------------------------


class Turns(NamedTuple):
    """Seconds of each program's work, (repetitions, units); the results of its first and last work."""

    seconds: dict[str, np.ndarray]
    first: dict[str, Any]
    last: dict[str, Any]


def take_turns(
    programs: dict[str, Callable],
    units: Sequence,
    repetitions: int,
    warm_up: int = WARM_UP,
    pause: float = PAUSE,
    clock: Callable[[], float] = time.perf_counter,
    seed: int = 0,
) -> Turns:
    """Let each program do each unit of work, in an order that is drawn for every unit."""
    order, shape = np.random.default_rng(seed), (warm_up + repetitions, len(units))
    seconds = {name: np.empty(shape) for name in programs}
    first, last = dict.fromkeys(programs), dict.fromkeys(programs)
    for turn in np.ndindex(shape):
        for name in order.permutation(list(programs)):
            time.sleep(pause)
            began = clock()
            last[name] = programs[name](units[turn[1]])
            seconds[name][turn] = clock() - began
            if turn == (0, 0):
                first[name] = last[name]
    return Turns({name: values[warm_up:] for name, values in seconds.items()}, first, last)


def spread_of(times: np.ndarray, over_units: Callable = np.mean) -> dict[str, float]:
    """Seconds (repetitions, units) -> minimum and quartiles over the repetitions, mean (or sum) over the units."""
    return {
        label: round(float(over_units(np.percentile(times, percent, axis=0))), 6)
        for label, percent in QUARTILES.items()
    }


def over_ours(spreads: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """The minimum and the median of each program divided by ours."""
    return {
        label: {name: round(each[label] / spreads[OURS][label], 3) for name, each in spreads.items()}
        for label in ("minimum", "median")
    }


def in_own_process(function: Callable, *arguments: Any) -> Any:
    """Call a function in a new process, which imports only what the script and the function need."""
    with ProcessPoolExecutor(1, get_context("spawn"), warnings.simplefilter, ("default",)) as pool:
        return pool.submit(function, *arguments).result()
