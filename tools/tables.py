"""Write the tables of the pages in docs/ that are in PAGES, from benchmarks/results/*.json.

    python tools/tables.py

Each table goes between the marks in the page that name it, with a line below it that says where its numbers come from.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from pathlib import Path
from statistics import mean
from typing import Any, Callable, Iterable, Sequence

from scratchformer.experiments.paper import PAPER_TABLE3

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "benchmarks"))

from ablation import INCONCLUSIVE, METRICS, judge_claims  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("performance", "ablations", "reproduction", "table1")]
OURS, EAGER = "scratchformer", "pytorch"


def table(header: Iterable[Any], rows: Iterable[Iterable[Any]]) -> str:
    """Write a Markdown table whose cells are Markdown; only a | in them is escaped."""
    lines = [[str(cell).replace("|", r"\|") for cell in row] for row in (header, *rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float | None, form: str = ".2f") -> str:
    return "–" if value is None else format(value, form)


Column = tuple[str, Callable[[dict[str, Any]], Any]]
"""The head of a column, and its entry for a cell of the result."""


def table_of(cells: Iterable[dict[str, Any]], columns: Sequence[Column]) -> str:
    return table([head for head, _ in columns], ([entry(cell) for _, entry in columns] for cell in cells))


def at(*path: str, form: str = "") -> Callable[[dict[str, Any]], Any]:
    """The entry of a column: the value at this path of the cell, as a number in this form; a dash if it is missing."""

    def entry(cell: dict[str, Any]) -> Any:
        value: Any = cell
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return number(value, form) if form or value is None else value

    return entry


def key(*names: str) -> list[Column]:
    """Columns that show a setting of the cell as it is."""
    return [(name, at(name)) for name in names]


# One function for each table, from a result to Markdown ---------------------------------------------------------------

AIMS = {"tiny": (1.2, 1.2), "multi30k": (1.35, 1.35), "small": (1.15, 1.35), "base": (1.02, 1.2)}
"""Eager PyTorch's time over ours that we aim at, in float32: without, with padding"""


def step_time(result: dict[str, Any]) -> str:
    measured = {name for cell in result["cells"] for name in cell["seconds"]}
    others = [name for name in ("pytorch_cut", "compile", "bf16") if name in measured]
    ratio = at("time_over_ours", "minimum", EAGER, form=".2f")
    columns: list[Column] = [
        *key("model", "padding", "threads"),
        ("ours, ms", lambda cell: number(1000 * cell["seconds"][OURS]["minimum"], ".0f")),
        ("**pytorch / ours**", lambda cell: f"**{ratio(cell)}**"),
        ("medians", at("time_over_ours", "median", EAGER, form=".2f")),
        ("aim", lambda cell: number(AIMS[cell["model"]][cell["padding"] == "with"])),
        *((f"{name} / ours", at("time_over_ours", "minimum", name, form=".2f")) for name in others),
        ("tokens/s", at("target_tokens_per_second", OURS, form=",")),
        ("of sgemm's peak", at("share_of_sgemm_peak", form=".0%")),
    ]
    return table_of(result["cells"], columns)


def step_memory(result: dict[str, Any]) -> str:
    """Peaks of whole processes; and of ours beside the others, without what the imports take."""
    rivals = EAGER, "pytorch_cut"

    def beyond_imports(cell: dict[str, Any], name: str) -> float:
        return cell["alone"][name]["peak"] - cell["alone"][name]["after_imports"]

    columns = key("model", "padding", "threads")
    for name in (OURS, *rivals):
        columns.append((f"{name}, MB", lambda cell, name=name: number(cell["alone"][name]["peak"] / 1e6, ",.0f")))
    for name in rivals:
        ratio: Callable = lambda cell, name=name: number(beyond_imports(cell, OURS) / beyond_imports(cell, name))
        columns.append((f"ours / {name}, beyond imports", ratio))
    return table_of(result["cells"], columns)


def decode(result: dict[str, Any]) -> str:
    others = sorted({name for cell in result["cells"] for name in cell["seconds"]} - {OURS})
    timed = {f"{name} / ours": ("minimum", name) for name in others}
    timed |= {f"{name} / ours, medians": ("median", name) for name in others if re.match(f"{EAGER}(?!.*bf16$)", name)}
    pairs = dict.fromkeys(pair for cell in result["cells"] for pair in cell.get("fastest_over_fastest", {}))
    columns: list[Column] = [
        *key("model", "weights", "beam", "threads"),
        ("ours, sentences/s", at("sentences_per_second", OURS, form=".0f")),
        *((head, at("time_over_ours", *which, form=".2f")) for head, which in sorted(timed.items())),
        *((f"**fastest PyTorch / ours, {pair}**", at("fastest_over_fastest", pair, form=".2f")) for pair in pairs),
        ("same translations", at("identical_share", form=".1%")),
    ]
    return table_of(sorted(result["cells"], key=lambda cell: (cell["model"], cell["threads"], cell["beam"])), columns)


def tricks(result: dict[str, Any]) -> str:
    return table(
        ["without", "lines", *(entry["model"] for entry in result["results"])],
        (
            [
                f"`{name}`" if name.isidentifier() else name,
                lines if lines else "–",
                *(f"{entry['gain_percent'][name]:+.1f} %" for entry in result["results"]),
            ]
            for name, lines in result["lines"].items()
        ),
    )


def pipeline(result: dict[str, Any]) -> str:
    found, millions = result["results"], result["config"]["pairs"] / 1e6
    rows = {
        stage: f"{number(seconds, ',.0f')} s, {number(seconds / millions, ',.0f')} s for a million pairs"
        for stage, seconds in found["stages"].items()
    }
    rows["memory, all processes together, at most"] = f"{found['memory_mb']:,} MB"
    rows["the text, and all that is prepared"] = f"{found['text_mb']:,} MB and {found['prepared_mb']:,} MB"
    head = f"{found['train']['pairs']:,} pairs, {result['config']['workers']} processes (vocabulary: one)"
    return table([head, "text in the page cache"], rows.items())


TOLERANCE = 0.15
"""An exponent further than this from Table 1's is bold."""


def table1_growth(result: dict[str, Any]) -> str:
    found = result["results"]
    rows = {(row["layer"], row["axis"]): row for row in found["growth"]}

    def cells(layer: str, axis: str) -> list[str]:
        row = rows[layer, axis]
        low, high = row["time"]["rounds"]
        texts = {
            "counted": number(row["counted"]["exponent"]),
            "time": f"{number(row['time']['exponent'])} ({number(low)} to {number(high)})",
        }
        claim = row["table1"]
        bold = {how: claim is not None and abs(row[how]["exponent"] - claim) > TOLERANCE for how in texts}
        return [f"**{text}**" if bold[how] else text for how, text in texts.items()]

    def claim(layer: str) -> str:
        powers = (rows[layer, axis]["table1"] for axis in "nd")
        return " ".join({1: axis, 2: f"{axis}²"}.get(power, "–") for axis, power in zip("nd", powers))

    first, *_, last = found["waiting"][0]["sizes"]
    head = ["", "Table 1", "n, counted", "n, time", "d, counted", "d, time", f"chain at n = {first}", f"n = {last}"]
    chains = {row["layer"]: (row["chain"][0], row["chain"][-1]) for row in found["waiting"]}
    return table(
        head, ([layer, claim(layer), *cells(layer, "n"), *cells(layer, "d"), *chains[layer]] for layer in chains)
    )


def table1_path(result: dict[str, Any]) -> str:
    rows = result["results"]["path"]
    return table(["", *(f"n = {n}" for n in rows[0]["sizes"])], ([row["layer"], *row["layers"]] for row in rows))


def ablations_rows(results: dict[str, Any]) -> str:
    """Table 3 with our columns beside the paper's: means over the seeds, and the range."""
    rows = []
    for row, described in results["rows"].items():
        loss, bleu = ([run[metric] for run in results["runs"] if run["row"] == row] for metric in METRICS)
        changes = ", ".join(f"{name} = {value}" for name, value in described["changes"].items()) or "–"
        ours = [f"{mean(loss):.3f} ({min(loss):.3f} to {max(loss):.3f})", f"{math.exp(mean(loss)):.3f}"]
        ours.append(f"{mean(bleu):.1f} ({min(bleu):.1f} to {max(bleu):.1f})")
        paper = PAPER_TABLE3[row]
        rows.append(
            [row, changes, f"{described['parameters']:,}", len(loss), *ours, f"{paper.ppl:.2f}", f"{paper.bleu:.1f}"]
        )
    head = ["row", "changes", "parameters", "runs", "loss, nats", "perplexity", "BLEU"]
    return table([*head, "the paper's perplexity", "the paper's BLEU"], rows)


def ablations_claims(results: dict[str, Any]) -> str:
    """The paper's claims, how large the differences are there and here, and the verdicts."""
    rows = []
    for judged in judge_claims(results):
        form = "+.3f" if judged["metric"] == "loss" else "+.1f"
        here = number(judged["difference"], form)
        if math.isfinite(judged["margin"]):
            here += f" ± {number(judged['margin'], form[1:])}"
        verdict = judged["verdict"] if judged["verdict"] == INCONCLUSIVE else f"**{judged['verdict']}**"
        metric, paper = METRICS[judged["metric"]], number(judged["paper"], form)
        rows.append([judged["claim"], " : ".join(judged["rows"]), metric, paper, here, verdict])
    return table(["claim", "rows", "measured in", "in the paper", "here", "verdict"], rows)


def block_of_2026(result: dict[str, Any]) -> str:
    def bits(row: dict[str, Any]) -> str:
        found = row["last"]["bits_per_character"]
        return f"{found['mean']:.3f} ({found['lowest']:.3f} to {found['highest']:.3f})"

    def difference(which: str) -> Callable[[dict[str, Any]], str]:
        def entry(row: dict[str, Any]) -> str:
            found = row[which]["difference"]
            return f"{found['mean']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f})" if found else "–"

        return entry

    columns: list[Column] = [
        *key("variant", "d_ff"),
        ("parameters", at("parameters", form=",")),
        ("bits per character", bits),
        ("difference, 95 %", difference("last")),
        ("of averaged weights", difference("average")),
        ("ms a step", lambda row: number(1000 * row["seconds"]["minimum"], ".0f") if "seconds" in row else "–"),
    ]
    return table_of(result["results"], columns)


def source(name: str, result: dict[str, Any]) -> str:
    """The line below a table: the file, date, commit, machine and versions."""
    around = result.get("provenance", result)
    versions = ", ".join(f"{library} {version}" for library, version in around["versions"].items())
    commits = {cell.get("commit", around["commit"])[:7]: None for cell in result.get("cells", [around])}
    return (
        f"*[{name}.json](../benchmarks/results/{name}.json): {around['date']}, commit {' and '.join(commits)}, "
        f"{around['hardware']['cores']} cores of {around['hardware']['cpu']}; {versions}.*"
    )


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "step": ("cpu_step", step_time),
    "memory": ("cpu_step", step_memory),
    "decode": ("cpu_decode", decode),
    "step_epyc": ("cpu_step_epyc", step_time),
    "step_avx512": ("cpu_step_avx512", step_time),
    "decode_epyc": ("cpu_decode_epyc", decode),
    "decode_avx512": ("cpu_decode_avx512", decode),
    "tricks": ("cpu_tricks", tricks),
    "table1_growth": ("table1", table1_growth),
    "table1_path": ("table1", table1_path),
    "pipeline": ("pipeline", pipeline),
    "block_of_2026": ("block_of_2026", block_of_2026),
    "ablations_rows": ("ablations", ablations_rows),
    "ablations_claims": ("ablations", ablations_claims),
}
"""The name in a mark -> the result's file, and the function that makes the table."""


def with_tables(page: str) -> str:
    """The page with every table written anew between `<!-- table NAME -->` and `<!-- end -->`."""

    def filled(match: re.Match[str]) -> str:
        result, make = TABLES[match[1]]
        file = RESULTS / f"{result}.json"
        if not file.exists():
            sys.exit(f"{file.relative_to(ROOT)} is missing: benchmarks/README.md says how to measure it")
        found = json.loads(file.read_text(encoding="utf-8"))
        return f"<!-- table {match[1]} -->\n\n{make(found)}\n\n{source(result, found)}\n\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", filled, page, flags=re.DOTALL)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    for path in PAGES:
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
