"""Measure what proves that the code is right, and write docs/correctness.md and the table in README.md.

    make correctness        about ten minutes on two cores; needs the extras test and oracle

This command measures the errors of finite differences, the differences from PyTorch, which mutants are caught by the
tests they name, what `scratchformer doctor` suspects for each mutant, and how many lines the tests execute. To find out
which test suites catch which mutant takes up to an hour, so that part comes from benchmarks/results/mutants.json, which
tests/mutants/matrix.py writes. What the paper says comes from paper_map.toml.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE, README = ROOT / "docs" / "correctness.md", ROOT / "README.md"
PAPER_MAP, MATRIX = ROOT / "tools" / "paper_map.toml", ROOT / "benchmarks" / "results" / "mutants.json"
MARKS = "<!-- written by `make correctness` -->\n", "<!-- end of what it writes -->\n"
sys.path += [str(ROOT / folder) for folder in ("tests/mutants", "tests/oracle", "benchmarks")]

from mutants import CLASSIC, MUTANTS, Mutant  # noqa: E402
from tables import table  # noqa: E402

from scratchformer.config import preset, tomllib  # noqa: E402
from scratchformer.doctor.diagnosis import code_probes  # noqa: E402

# Measuring ------------------------------------------------------------------------------------------------------------


def measure() -> dict[str, Any]:
    """Everything that the page shows, except the matrix of mutants and suites."""
    from provenance import surroundings
    from side_by_side import worst_differences

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        caught = dict(zip((mutant.name for mutant in MUTANTS), pool.map(is_caught, MUTANTS)))
        of_model = [mutant for mutant in MUTANTS if mutant.suspect]
        suspects = dict(zip((mutant.name for mutant in of_model), pool.map(suspects_of, of_model)))
    return {
        "surroundings": surroundings(),
        "gradients": gradients(),
        "oracle": worst_differences(),
        "caught": caught,
        "suspects": suspects,
        "coverage": coverage(),
    }


def gradients() -> dict[str, dict[str, Any]]:
    """Layer -> the number of its gradient cases, and the worst error of finite differences in them."""
    from scratchformer.nn import gradient_cases

    errors: dict[str, list[float]] = {}
    for case, report in gradient_cases.run():
        errors.setdefault(case.layer, []).append(report.worst.error)
    return {layer: {"cases": len(of_layer), "worst": max(of_layer)} for layer, of_layer in errors.items()}


def run_planted(mutant: Mutant, *command: str) -> subprocess.CompletedProcess:
    command = (sys.executable, "tests/mutants/plant.py", mutant.name, *command)
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def is_caught(mutant: Mutant) -> bool:
    """Return True if the planted mutant fails the test that it names."""
    ended = run_planted(mutant, "pytest", "-p", "no:cacheprovider", "-x", mutant.caught_by)
    return ended.returncode == 1 and f"\nFAILED {mutant.caught_by}" in ended.stdout


def suspects_of(mutant: Mutant) -> list[str]:
    """The parts that doctor suspects when the mutant is planted."""
    ended = run_planted(mutant, "scratchformer", "doctor", "tiny", "--code", "--json")
    return json.loads(ended.stdout.splitlines()[-1])["suspects"]


def coverage() -> dict[str, Any]:
    """Count the lines of nn/, and the percentage that the tests of nn/ and of the oracle execute."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"COVERAGE_FILE": str(Path(folder) / "data")}
        run = "run --source scratchformer/nn -m pytest tests/nn tests/oracle"
        for options in run, "json --quiet -o -":
            command = [sys.executable, "-m", "coverage", *options.split()]
            ended = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE)
        totals = json.loads(ended.stdout)["totals"]
    return {"lines": totals["num_statements"], "percent": totals["percent_covered"]}


# The page -------------------------------------------------------------------------------------------------------------

TEXT = """\
# Correctness report

What proves that the gradients, the model and its training are right, and how we know that the tests would notice a bug.
`make correctness` measures and writes this page.

{summary}

Measured on {date}, {cpu}, Python {python}, NumPy {numpy}, at commit `{commit}`.

## Layer by layer

*Finite differences*: the worst relative error over all parameters and inputs of the layer's cases, in float64, along
random directions, with a random upstream gradient. The tolerance is 1e-6; central differences are accurate to about
1e-8. *PyTorch*: the worst relative difference of outputs and gradients from the same layer, written with PyTorch's
functions, with the same weights, in float64; the tolerance is 1e-10. *Mutants*: how many of the bugs below are in this
layer.

{layers}

The whole model and its training, compared with PyTorch:

{model}

## What gradients cannot show

A model may pass every gradient check and still look into the future. These tests check where information flows:

{flow}

These check that a layer keeps its contract: no state from one call to the next, no writing into arguments, gradients
added up:

{contract}

## Mutants

A mutant is our code with one bug planted: a bug of a public implementation, or a classic one
([`mutants.py`](../tests/mutants/mutants.py)). *Caught by*: a test that fails because of it. *Suites*: the kinds of
tests that notice it, as [`mutants.json`](../benchmarks/results/mutants.json) records (`tests/mutants/matrix.py` writes
it): `gradients` are finite differences, `definitions` compare with formulas written once more, `oracle` compares with
PyTorch. *Doctor*: what `scratchformer doctor` suspects, in bold where that is right; a dash if the bug is not in the
model.

{mutants}

What each of them is:

{bugs}

## The paper, sentence by sentence

§3 to §5, and §6.1 as far as it is about decoding, in our words.

{says}

## Departures

*Its code* is the first public version of tensor2tensor, of June 2017, and what became of it.

{departures}
"""


def page(found: dict[str, Any], matrix: dict[str, list[str]]) -> str:
    """docs/correctness.md, from what `measure` returns and the suites that catch each mutant."""
    where = found["surroundings"]
    paper = tomllib.loads(PAPER_MAP.read_text(encoding="utf-8"))
    columns = {"topic": "topic", "paper": "the paper", "public_code": "its code", "here": "here"}
    return TEXT.format(
        summary=summary(found, matrix),
        date=where["date"],
        cpu=where["hardware"]["cpu"],
        **where["versions"],
        commit=str(where["commit"])[:12],
        layers=table(["layer", "cases", "finite differences", "PyTorch", "mutants"], layer_rows(found)),
        model=table(["what", "worst relative difference"], oracle_of_model(found).items()),
        flow=bullets(sentences_of("dependence on positions", "padding and batch")),
        contract=bullets(sentences_of("layer contract", "dropout")),
        mutants=table(["mutant", "found in", "caught by", "suites", "doctor"], mutant_rows(found, matrix)),
        bugs=bullets(f"**{mutant.name}**: {mutant.what}" for mutant in MUTANTS),
        says=table(["paper", "says", "code", "tests"], map(paper_row, paper["says"])),
        departures=table(columns.values(), ([entry[key] for key in columns] for entry in paper["departure"])),
    )


def summary(found: dict[str, Any], matrix: dict[str, list[str]]) -> str:
    """The table that the README shows."""
    layers, coverage = found["gradients"], found["coverage"]
    n_cases, worst = sum(of["cases"] for of in layers.values()), max(of["worst"] for of in layers.values())
    from_torch = [found["oracle"][layer] for layer in layers]
    public = sum(mutant.origin != CLASSIC for mutant in MUTANTS)
    in_nn = [
        m.name for m in MUTANTS if m.suspect and m.patches[0].file.startswith("scratchformer/nn/") and m.name in matrix
    ]
    unseen = sum("gradients" not in matrix[name] for name in in_nn)
    named = sum(mutant.suspect in found["suspects"].get(mutant.name, []) for mutant in MUTANTS)
    difference = "worst relative difference"
    rows = [
        (
            f"finite differences: {n_cases} cases of {len(layers)} layers, float64",
            f"worst relative error {scientific(worst)}",
        ),
        (
            f"PyTorch: {len(from_torch)} layers one by one, outputs and every gradient, float64",
            f"{difference} {scientific(max(from_torch))}",
        ),
        *((f"PyTorch: {what}", f"{difference} {value}") for what, value in oracle_of_model(found).items()),
        (
            f"mutants (our code with one bug planted) that the tests catch; {public} of the bugs were found in public "
            "implementations, the others are classics",
            f"{sum(found['caught'].values())} of {len(MUTANTS)}",
        ),
        ("mutants in `nn/`, where gradient checks run, that no gradient check notices", f"{unseen} of {len(in_nn)}"),
        (
            "mutants of the model for which `scratchformer doctor` suspects the right part",
            f"{named} of {len(found['suspects'])}",
        ),
        ("lines of `nn/` that its tests execute (coverage.py)", f"{coverage['percent']:.1f} % of {coverage['lines']}"),
    ]
    return table(["proof", "result"], rows)


def bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def scientific(number: float) -> str:
    return "0" if number == 0 else f"{number:.1e}"


def oracle_of_model(found: dict[str, Any]) -> dict[str, str]:
    return {name: scientific(value) for name, value in found["oracle"].items() if name not in found["gradients"]}


def layer_rows(found: dict[str, Any]) -> Iterator[list[Any]]:
    for layer, entry in found["gradients"].items():
        n_mutants = sum(mutant.suspect == layer for mutant in MUTANTS) or ""
        yield [f"`{layer}`", entry["cases"], *map(scientific, (entry["worst"], found["oracle"][layer])), n_mutants]


def mutant_rows(found: dict[str, Any], matrix: dict[str, list[str]]) -> Iterator[list[str]]:
    for mutant in MUTANTS:
        file, _, test = mutant.caught_by.partition("[")[0].partition("::")
        named = [f"**{name}**" if name == mutant.suspect else name for name in found["suspects"].get(mutant.name, [])]
        yield [
            mutant.name,
            mutant.origin,
            link(file, test) if found["caught"][mutant.name] else "**not caught**",
            ", ".join(matrix.get(mutant.name, ["not measured"])),
            ", ".join(named) if mutant.suspect else "–",
        ]


def sentences_of(*probes: str) -> Iterator[str]:
    """The sentences of these probes of doctor, which tests/nn/test_checks.py runs."""
    return (probe.expected for probe in code_probes(preset("tiny")) if probe.name in probes)


def paper_row(entry: dict[str, Any]) -> list[str]:
    if "note" in entry:
        return [entry["paper"], entry["what"], f"*{entry['note']}*", ""]
    code, tests = links(entry["code"], "scratchformer/", ":"), links(entry["tests"], "tests/", "::")
    return [entry["paper"], entry["what"], code, tests]


def links(references: list[str], folder: str, separator: str) -> str:
    """A link for each reference, such as `nn/loss.py:cross_entropy`; one that names a file only shows its path."""
    parts = [reference.partition(separator) for reference in references]
    return "<br>".join(link(folder + file, name or file) for file, _, name in parts)


def link(file: str, name: str) -> str:
    return f"[`{name}`](../{file})"


def with_table(text: str, table: str) -> str:
    """The README with this table between its marks."""
    begin, end = MARKS
    before, rest = text.split(begin)
    return before + begin + "\n" + table + "\n\n" + end + rest.split(end)[1]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found, matrix = measure(), json.loads(MATRIX.read_text(encoding="utf-8"))
    PAGE.write_text(page(found, matrix), encoding="utf-8")
    README.write_text(with_table(README.read_text(encoding="utf-8"), summary(found, matrix)), encoding="utf-8")
    print(summary(found, matrix))


if __name__ == "__main__":
    main()
