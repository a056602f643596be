"""Find out which test suites catch which mutants.

    python tests/mutants/matrix.py --out benchmarks/results/mutants.json        all mutants: up to an hour on two cores
    python tests/mutants/matrix.py --out FILE.json [--suite SUITE] MUTANT ...   some of them

Plants one mutant at a time and runs each suite until a test fails. FILE.json maps each mutant to the suites that catch
it. The file is written after every mutant. Mutants that are in it already are not run again unless they are named. With
--suite only that suite is run, and what the file says of the others stays.

First the suites run without a mutant; if a test fails then, the program stops. The oracle needs PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from mutants import MUTANTS, ROOT, Mutant
from plant import mutant_named

OF_DEFINITIONS = "structure or sizes or formulas or loss or optimizer"
SUITES = {
    "gradients": ["tests/nn/test_gradients.py"],
    "contract": ["tests/nn/test_checks.py", "-k", "contract or dropout"],
    "checks": ["tests/nn/test_gradcheck.py", "tests/nn/test_parameters.py"],
    "flow": ["tests/nn/test_checks.py", "-k", "dependence or padding"],
    "definitions": ["tests/nn/test_model.py", "tests/nn/test_checks.py", "-k", f"test_model or {OF_DEFINITIONS}"],
    "oracle": ["tests/oracle"],
    "decoding": ["tests/decoding"],
    "training": ["tests/training"],
    "text": ["tests/text"],
}

LEFT_OUT = [
    *(f"tests/nn/test_model.py::test_number_of_parameters[{model}]" for model in ("base", "big", "C5")),
    "tests/training/test_resume.py::test_after_kill_9_at_a_random_moment",
    "tests/training/test_resume.py::test_a_polite_signal_saves_and_says_how_to_go_on",
]
"""Models of hundreds of megabytes, which catch nothing that smaller ones do not; and tests that start processes, in
which nothing is planted."""

SECONDS_PER_SUITE = 900


def passes(suite: str, mutant: Mutant | None) -> bool:
    """True if all tests of the suite pass with the mutant (None: without one). A suite that hangs does not pass."""
    program = ["-m", "pytest"] if mutant is None else ["tests/mutants/plant.py", mutant.name, "pytest"]
    left_out = [f"--deselect={name}" for name in LEFT_OUT]
    try:
        ended = subprocess.run(
            [sys.executable, *program, "-x", "--tb=no", "-p", "no:cacheprovider", *left_out, *SUITES[suite]],
            cwd=ROOT,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS_PER_SUITE,
        )
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument("--suite", action="append", choices=SUITES, help="may be given several times (default: all)")
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help="names (default: all)")
    arguments = parser.parse_args()
    known = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
    suites = arguments.suite or list(SUITES)
    mutants = [mutant_named(name) for name in arguments.mutants]
    mutants = mutants or [mutant for mutant in MUTANTS if mutant.name not in known]

    def catching(mutant: Mutant) -> list[str]:
        """Suites that catch it: from a run those in `suites`, from the file the others."""
        before = known.get(mutant.name, [])
        return [name for name in SUITES if (not passes(name, mutant) if name in suites else name in before)]

    with ThreadPoolExecutor(arguments.jobs) as pool:
        sound = dict(zip(suites, pool.map(lambda suite: passes(suite, None), suites)))
        if not all(sound.values()):
            sys.exit(f"tests fail without a mutant: {', '.join(suite for suite in suites if not sound[suite])}")
        running = {pool.submit(catching, mutant): mutant.name for mutant in mutants}
        try:
            for future in as_completed(running):
                name = running[future]
                known[name] = future.result()
                write(arguments.out, known)
                print(f"{name}: {', '.join(known[name]) or 'no suite catches it'}", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)


def write(path: Path, known: dict[str, list[str]]) -> None:
    """Write one line for each mutant, in the order of MUTANTS."""
    lines = [f" {json.dumps(m.name)}: {json.dumps(known[m.name])}" for m in MUTANTS if m.name in known]
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    os.replace(partial, path)


if __name__ == "__main__":
    main()
