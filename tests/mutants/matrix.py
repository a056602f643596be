"""Which kinds of tests catch which bug of the museum, and which would not have?

    python tests/mutants/matrix.py --out FILE.json [--jobs N] [--leg LEG] [--leg LEG ...] [MUTANT ...]

Plants each mutant in turn and runs the tests of all legs on it. FILE.json holds, for each mutant and leg, the number of
tests, how many failed and up to three of these; it is written anew after each mutant, so an interrupted run goes on
where it stopped. What is in the file already is not run again unless the mutant or the tests of the leg have changed.

First the legs run with nothing planted. If a test fails then, that is told, and the run ends.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import tally
from mutants import MUTANTS, ROOT, Mutant
from plant import mutant_named

LEGS = {
    "gradients": "tests/nn/test_gradients.py",
    "contract": "tests/nn/test_contract.py",
    "flow": "tests/nn/test_flow.py",
    "definitions": "tests/nn/test_model.py",
    "oracle": "tests/oracle",
    "decoding": "tests/decoding",
    "training": "tests/training",
    "text": "tests/text",
}
"""Kinds of tests -> where they are."""

LEFT_OUT = [
    "tests/tools/test_grammar.py",
    *(f"tests/nn/test_model.py::test_number_of_parameters[{model}]" for model in ("base", "big", "C5")),
    "tests/training/test_resume.py::test_after_kill_9_at_a_random_moment",
    "tests/training/test_resume.py::test_a_polite_signal_saves_and_says_how_to_go_on",
]
"""The grammar, which no mutant touches; models of hundreds of megabytes, which show nothing that smaller ones do not;
and tests that start processes, in which nothing is planted: they would differ from any mutant."""

SECONDS_PER_TEST, SECONDS_PER_MUTANT = 20, 900
N_NAMES = 3

Legs = dict[str, dict[str, Any]]
"""Leg -> {"tests", "failed", "names"}; in the file also "digest"."""


def patches_digest(mutant: Mutant) -> str:
    """Changes when the mutant changes."""
    return hashlib.sha256(repr(mutant.patches).encode()).hexdigest()


def digest(mutant: Mutant, leg: str) -> str:
    """Changes when the mutant changes or a test of the leg."""
    place = ROOT / LEGS[leg]
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return hashlib.sha256(b"".join([repr(mutant.patches).encode(), *(file.read_bytes() for file in files)])).hexdigest()


def run(mutant: Mutant | None, legs: list[str]) -> tuple[Legs, float]:
    """The results of these legs with the mutant (or nothing) planted, and the seconds they took.

    A test that hangs has failed, as has a file that cannot be imported. If the whole run hangs or dies, what was to
    follow is missing and one failure stands for it.
    """
    began = time.perf_counter()
    arguments = [
        "--tb=no",
        "--continue-on-collection-errors",
        f"--seconds-per-test={SECONDS_PER_TEST}",
        *(f"--deselect={name}" for name in LEFT_OUT),
        *(LEGS[leg] for leg in legs),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tally"
        try:
            process = tally.run_pytest(mutant, arguments, path, SECONDS_PER_MUTANT)
            broken = process.returncode not in (0, 1)  # 0: all passed, 1: tests failed
        except subprocess.TimeoutExpired:
            broken = True
        tests = tally.read(path)
    results = {}
    for leg in legs:
        of_leg = [(verdict, name) for verdict, name in tests if name.startswith(LEGS[leg]) and verdict != "skipped"]
        failed = [name for verdict, name in of_leg if verdict != "passed"]
        results[leg] = {"tests": len(of_leg), "failed": len(failed), "names": failed[:N_NAMES]}
    if broken:
        last = results[next((leg for leg in reversed(legs) if results[leg]["tests"]), legs[0])]
        last["failed"] += 1
        last["names"] = [*last["names"], "the run itself broke off"][-N_NAMES:]
    return results, time.perf_counter() - began


class Matrix:
    """What is known so far, in a file that is replaced whole: name of a mutant -> {"legs": Legs, "patches": digest}."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def missing(self, mutant: Mutant, legs: list[str]) -> list[str]:
        """The legs that have not been run with this mutant as it is, and these tests as they are."""
        known = self.known.get(mutant.name, {}).get("legs", {})
        return [leg for leg in legs if known.get(leg, {}).get("digest") != digest(mutant, leg)]

    def add(self, mutant: Mutant, results: Legs) -> None:
        known = self.known.setdefault(mutant.name, {"legs": {}})["legs"]
        known |= {leg: found | {"digest": digest(mutant, leg)} for leg, found in results.items()}
        self.known[mutant.name] = {
            "patches": patches_digest(mutant),
            "legs": {leg: known[leg] for leg in LEGS if leg in known},
        }
        self.known = {mutant.name: self.known[mutant.name] for mutant in MUTANTS if mutant.name in self.known}
        temporary = self.path.with_name(f".{self.path.name}.partial")
        temporary.write_text(json.dumps(self.known, indent=1) + "\n", encoding="utf-8")
        os.replace(temporary, self.path)


def require_sound(legs: list[str]) -> None:
    """Exits if a test fails with nothing planted."""
    results, _ = run(None, legs)
    failures = [name for found in results.values() for name in found["names"]]
    if failures:
        sys.exit(f"tests fail with nothing planted: {', '.join(failures)}")


def fill(matrix: Matrix, mutants: list[Mutant], legs: list[str], jobs: int) -> Iterator[str]:
    """Run what is missing -> a line for each mutant as it ends."""
    missing = {mutant.name: matrix.missing(mutant, legs) for mutant in mutants}
    if any(missing.values()):
        require_sound([leg for leg in legs if any(leg in some for some in missing.values())])
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(run, mutant, missing[mutant.name]): mutant for mutant in mutants if missing[mutant.name]}
        try:
            for future in as_completed(running):
                results, seconds = future.result()
                matrix.add(running[future], results)
                yield f"{running[future].name} ({seconds:.0f} s): {caught_by(results)}"
        finally:
            pool.shutdown(cancel_futures=True)


def caught_by(results: Legs) -> str:
    return ", ".join(f"{leg} {found['failed']}" for leg, found in results.items() if found["failed"]) or "nothing fails"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument("--leg", action="append", choices=LEGS, help="may be given several times (default: all)")
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help="names (default: all)")
    arguments = parser.parse_args()
    mutants = [mutant_named(name) for name in arguments.mutants] or MUTANTS
    for line in fill(Matrix(arguments.out), mutants, arguments.leg or list(LEGS), arguments.jobs):
        print(line, flush=True)


if __name__ == "__main__":
    main()
