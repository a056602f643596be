"""The ledger of correctness: what proves each layer, which planted bugs are caught, where the paper's sentences stand.

    python tools/ledger.py               write docs/correctness.md and the table in README.md from what was measured
    python tools/ledger.py --measure     measure first: most of an hour; the matrix of mutants goes on where it stopped

The figures come from benchmarks/results/correctness.json and mutants.json, the paper's sentences from paper_map.toml.
"""

from __future__ import annotations

import argparse
import ast
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
RESULTS = ROOT / "benchmarks" / "results"
CORRECTNESS, MATRIX = RESULTS / "correctness.json", RESULTS / "mutants.json"
PAGE, README, MAP = ROOT / "docs" / "correctness.md", ROOT / "README.md", ROOT / "tools" / "paper_map.toml"
MARKS = "<!-- what `make ledger` writes -->\n", "<!-- end of what it writes -->\n"
sys.path += [str(ROOT / folder) for folder in ("tests/mutants", "tests/oracle", "benchmarks")]

from mutants import CLASSIC, MUTANTS  # noqa: E402

from scratchformer.config import tomllib  # noqa: E402

LEGS = {
    "gradients": "finite differences",
    "contract": "contract",
    "flow": "flow",
    "definitions": "definitions",
    "oracle": "PyTorch",
    "decoding": "decoding",
    "training": "training",
    "text": "text",
}
"""Kinds of tests, as the matrix of mutants names them -> as the page does."""

# Measuring ------------------------------------------------------------------------------------------------------------


def measure() -> None:
    """Run everything whose figures the page shows, and store them."""
    from provenance import surroundings

    run_matrix()
    results = {
        "surroundings": surroundings(),
        "gradients": gradients(),
        "oracle": oracle(),
        "coverage": coverage(),
        "doctor": doctor(),
    }
    CORRECTNESS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def gradients() -> dict[str, dict[str, Any]]:
    """Layer -> how many cases of the table are its own, and the worst error of finite differences in them."""
    from scratchformer.nn import gradient_cases

    found: dict[str, dict[str, Any]] = {}
    for case, report in gradient_cases.run():
        entry = found.setdefault(case.layer, {"cases": 0, "worst": 0.0})
        entry["cases"] += 1
        entry["worst"] = max(entry["worst"], report.worst.error)
    return found


def oracle() -> dict[str, float]:
    from side_by_side import worst_differences

    return worst_differences()


def coverage() -> dict[str, Any]:
    """Lines of nn/ that the tests of nn/ and of the oracle execute, by coverage.py."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        environment = os.environ | {"COVERAGE_FILE": str(Path(folder) / "data")}
        for command in (
            ["run", "--source", "scratchformer/nn", "-m", "pytest", "tests/nn", "tests/oracle"],
            ["json", "-o", str(report)],
        ):
            subprocess.run([sys.executable, "-m", "coverage", *command], cwd=ROOT, env=environment, check=True)
        totals = json.loads(report.read_text(encoding="utf-8"))["totals"]
    return {
        "statements": totals["num_statements"],
        "missing": totals["missing_lines"],
        "percent": round(totals["percent_covered"], 2),
    }


def doctor() -> dict[str, list[str]]:
    """Bug of the model -> whom doctor suspects when it is planted."""
    planted = [mutant.name for mutant in MUTANTS if mutant.suspect]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(planted, pool.map(suspects_of, planted)))


def suspects_of(name: str) -> list[str]:
    command = [sys.executable, "tests/mutants/plant.py", name, "scratchformer", "doctor", "tiny", "--code", "--json"]
    printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return json.loads(printed[-1])["suspects"]


def run_matrix() -> None:
    subprocess.run([sys.executable, "tests/mutants/matrix.py", "--out", str(MATRIX)], cwd=ROOT, check=True)


# The page -------------------------------------------------------------------------------------------------------------

TEXT = """\
# The ledger of correctness

What proves that the gradients, the model and its training are right, and what proves that the proofs would notice.
`make ledger` measures and writes this page; a test fails when it is not current.

{summary}

Measured on {date}, {cpu}, Python {python}, NumPy {numpy}, at commit `{commit}`. The numbers are in
[`correctness.json`](../benchmarks/results/correctness.json) and [`mutants.json`](../benchmarks/results/mutants.json).

## Layer by layer

*Finite differences*: the worst relative error over all parameters and inputs of the layer's cases, in float64, along
random directions, with a random gradient from above. The tolerance is 1e-6; central differences are good to about 1e-8.
*PyTorch*: the worst relative difference of outputs and gradients from the same layer, assembled of `torch.nn` modules
on the same weights, in float64; the tolerance is 1e-10. *Planted bugs*: how many of the museum below sit in this layer.

{layers}

The whole model and its training beside PyTorch:

{model}

## What gradients cannot show

A model may pass every gradient check and still look into the future. These tests ask where information goes:

{flow}

and these, whether a layer keeps its contract (no state of a call, nothing written to, gradients added up):

{contract}

## The bug museum

Bugs of public implementations, and the classic ones, planted one at a time in our code
([`mutants.py`](../tests/mutants/mutants.py)). The numbers say how many tests of each kind fail; a dot, that this kind of
test would not have noticed. *doctor*: whom `scratchformer doctor` suspects when the bug is planted, in bold where that
is right; a dash where it is no fault of the model.

{mutants}

What each of them is:

{museum}

## The paper, sentence by sentence

§3 to §5, and §6.1 as far as it is about decoding, in our words.

{says}

## Departures

*Its code* is the first public version of tensor2tensor, of June 2017, and what became of it.

{departures}
"""


def page(results: dict[str, Any], matrix: dict[str, Any]) -> str:
    """docs/correctness.md."""
    where = results["surroundings"]
    paper = tomllib.loads(MAP.read_text(encoding="utf-8"))
    columns = {"topic": "topic", "paper": "the paper", "public_code": "its code", "here": "here"}
    return TEXT.format(
        summary=summary(results, matrix),
        date=where["date"],
        cpu=where["hardware"]["cpu"],
        **where["versions"],
        commit=where["commit"][:12],
        layers=table(["layer", "cases", "finite differences", "PyTorch", "planted bugs"], layer_rows(results)),
        model=table(
            ["what", "worst relative difference"],
            ([what, scientific(value)] for what, value in oracle_of_model(results).items()),
        ),
        flow=bullets(sentences_of("tests/nn/test_flow.py")),
        contract=bullets(sentences_of("tests/nn/test_contract.py")),
        mutants=table(["planted bug", "found in", *LEGS.values(), "doctor"], mutant_rows(results, matrix)),
        museum=bullets(f"**{mutant.name}**: {mutant.what}" for mutant in MUTANTS),
        says=table(["paper", "says", "code", "tests"], map(map_row, paper["says"])),
        departures=table(list(columns.values()), ([entry[key] for key in columns] for entry in paper["departure"])),
    )


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)


def scientific(number: float) -> str:
    return "0" if number == 0 else f"{number:.1e}"


def summary(results: dict[str, Any], matrix: dict[str, Any]) -> str:
    """The table that README shows."""
    gradients, alone, lines = results["gradients"], oracle_of_layers(results), results["coverage"]
    unseen = sum(not failed(matrix[mutant.name], "gradients") for mutant in MUTANTS)
    public = sum(mutant.origin != CLASSIC for mutant in MUTANTS)
    of_model = [mutant for mutant in MUTANTS if mutant.suspect]
    hits = sum(mutant.suspect in results["doctor"][mutant.name] for mutant in of_model)
    return table(
        ["proof", "result"],
        [
            [
                f"finite differences: {sum(entry['cases'] for entry in gradients.values())} cases of "
                f"{len(gradients)} layers, float64",
                f"worst relative error {scientific(max(entry['worst'] for entry in gradients.values()))}",
            ],
            [
                f"PyTorch: {len(alone)} layers one by one, outputs and every gradient, float64",
                f"worst relative difference {scientific(max(alone.values()))}",
            ],
            *[
                [f"PyTorch: {what}", f"worst relative difference {scientific(value)}"]
                for what, value in oracle_of_model(results).items()
            ],
            [
                f"planted bugs that the tests catch; {public} were found in public implementations, "
                "the others are classics",
                f"{sum(is_caught(matrix[mutant.name]) for mutant in MUTANTS)} of {len(MUTANTS)}",
            ],
            ["... that gradient checks alone would not have noticed", f"{unseen} of {len(MUTANTS)}"],
            [
                "... of the model, for which `scratchformer doctor` names the right suspect",
                f"{hits} of {len(of_model)}",
            ],
            [
                "lines of `nn/` that its tests execute (coverage.py)",
                f"{lines['percent']:.1f} % of {lines['statements']}",
            ],
        ],
    )


def layer_rows(results: dict[str, Any]) -> Iterator[list[str]]:
    for layer, entry in results["gradients"].items():
        planted = sum(mutant.suspect == layer for mutant in MUTANTS)
        yield [
            f"`{layer}`",
            str(entry["cases"]),
            scientific(entry["worst"]),
            scientific(results["oracle"][layer]),
            str(planted or ""),
        ]


def oracle_of_layers(results: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in results["oracle"].items() if name in results["gradients"]}


def oracle_of_model(results: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in results["oracle"].items() if name not in results["gradients"]}


def sentences_of(file: str) -> Iterator[str]:
    """The tests of a file, whose names are sentences."""
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name.removeprefix("test_").replace("_", " ")


def mutant_rows(results: dict[str, Any], matrix: dict[str, Any]) -> Iterator[list[str]]:
    for mutant in MUTANTS:
        found = matrix[mutant.name]
        named = [f"**{name}**" if name == mutant.suspect else name for name in results["doctor"].get(mutant.name, [])]
        yield [
            mutant.name,
            mutant.origin,
            *(str(failed(found, leg) or "·") for leg in LEGS),
            ", ".join(named) if mutant.suspect else "–",
        ]


def failed(found: dict[str, Any], leg: str) -> int:
    return found["legs"].get(leg, {}).get("failed", 0)


def is_caught(found: dict[str, Any]) -> bool:
    return any(failed(found, leg) for leg in LEGS)


def map_row(entry: dict[str, Any]) -> list[str]:
    if "note" in entry:
        return [entry["paper"], entry["what"], f"*{entry['note']}*", ""]
    return [
        entry["paper"],
        entry["what"],
        links(entry["code"], "scratchformer/", ":"),
        links(entry["tests"], "tests/", "::"),
    ]


def links(references: list[str], folder: str, separator: str) -> str:
    """`nn/loss.py:cross_entropy` -> a link to the file that shows the name (the file's own, if no name is given)."""
    found = []
    for reference in references:
        file, _, name = reference.partition(separator)
        found.append(f"[`{name or file}`](../{folder}{file})")
    return "<br>".join(found)


def readme(text: str, table: str) -> str:
    """README with this table between its marks."""
    begin, end = MARKS
    before, rest = text.split(begin)
    return before + begin + "\n" + table + "\n\n" + end + rest.split(end)[1]


def stored() -> tuple[dict[str, Any], dict[str, Any]]:
    return tuple(json.loads(path.read_text(encoding="utf-8")) for path in (CORRECTNESS, MATRIX))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--measure", action="store_true")
    if arguments.parse_args().measure:
        measure()
    results, matrix = stored()
    PAGE.write_text(page(results, matrix), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8"), summary(results, matrix)), encoding="utf-8")


if __name__ == "__main__":
    main()
