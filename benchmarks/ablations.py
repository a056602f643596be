"""Which of the claims that Table 3 makes hold for small models, too? All its rows, three seeds, on the bundled text.

    python benchmarks/ablations.py [--runs DIR] [--out DIR]

It does what `scratchformer ablate --on tiny --seeds 3 --out DIR` does, and writes what came of it, with where it comes
from, as ablations.json. 57 runs take most of an hour on two quiet cores; the same command goes on after a stop.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from provenance import surroundings
from small_training import RESULTS, write

from scratchformer.cli import main as scratchformer
from scratchformer.training.run import replace_text

SEEDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/ablations"), help="directory of the runs")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result (default: results/ here)")
    arguments = parser.parse_args()
    begun = arguments.runs / "provenance.json"  # of the first call: git may move on
    if not begun.exists():
        arguments.runs.mkdir(parents=True, exist_ok=True)
        replace_text(begun, json.dumps(surroundings()) + "\n")
    code = scratchformer(["ablate", "--on", "tiny", "--seeds", str(SEEDS), "--out", str(arguments.runs)])
    if code:
        sys.exit(code)
    found = json.loads((arguments.runs / "ablations.json").read_text(encoding="utf-8"))
    write(
        arguments.out,
        "ablations",
        {"provenance": json.loads(begun.read_text(encoding="utf-8")), "seeds": list(range(SEEDS)), **found},
    )
    shutil.copy(arguments.runs / "ablations.png", arguments.out)


if __name__ == "__main__":
    main()
