"""The road of a paper's run: every command of docs/reproduction.md, one after the other, on a small scale."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def names(commands):
    return [command.split()[1] for command in commands]


@pytest.mark.slow
def test_the_road_leads_from_archives_to_a_report(tmp_path):
    """Without --out, a quick trial leaves what is committed as it was, and writes beside data and run."""
    run = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "benchmarks" / "paper_road.py", "--quick", "--work", tmp_path],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout.splitlines()[-1].startswith(f"written: {tmp_path / 'paper_road.json'} ")
    found = json.loads((tmp_path / "paper_road.json").read_text(encoding="utf-8"))
    recorded = json.loads((ROOT / "benchmarks" / "results" / "paper_road.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    commands = [step["command"] for step in found["results"]]
    assert names(commands) == names(step["command"] for step in recorded["results"])
    assert names(commands) == names(re.search(r"## One road\n\n((?:    scratchformer .*\n)+)", page)[1].splitlines())
    assert found["scores"].keys() == recorded["scores"].keys() and found["scores"]["n_sentences"] == 20
    report = (tmp_path / "example_report" / "report.md").read_text(encoding="utf-8")
    assert "| data set | wmt14-en-de |" in report
    assert "step 20 of at most 20" in report and "average.safetensors" in report
    assert {path.name for path in (tmp_path / "example_report").iterdir()} == {
        path.name for path in (ROOT / "benchmarks" / "results" / "example_report").iterdir()
    }
    assert recorded["provenance"]["uncommitted_changes"] is False
