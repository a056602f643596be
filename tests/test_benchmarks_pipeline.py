"""The benchmark of the data pipeline prepares what it says, and measures every stage."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
def test_the_pipeline_is_measured_from_text_to_batches(tmp_path):
    command = [sys.executable, "-W", "error", BENCHMARKS / "pipeline.py", "--quick", "--out", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    (path,) = tmp_path.iterdir()  # no scratch is left
    result = json.loads(path.read_text(encoding="utf-8"))
    assert {"command", "provenance", "config", "seeds", "results"} <= result.keys()
    found = result["results"]
    assert found["stages"].keys() == found["stages_per_million_pairs"].keys() == {"clean", "vocabulary", "encode"}
    assert found["memory"]["together_resident_mb"] >= found["memory"]["parent_resident_mb"] > 10
    assert 2900 < found["train"]["pairs"] < result["config"]["pairs"] == 3000
    assert found["resume"]["exact"] and found["batches"]["tokens_per_step"] > 10_000
