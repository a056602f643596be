"""All tests marked `gpu`, with real CuPy on an emulated GPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import emulation
import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent


@pytest.mark.slow
def test_the_tests_for_a_gpu_pass_on_the_emulated_one(tmp_path):
    """In a process of its own, because the emulation must be there before CuPy is imported."""
    reason = emulation.reason_to_skip()
    if reason:
        pytest.skip(reason)
    places = {path.parent for path in TESTS.rglob("*.py") if re.search(r"mark\.gpu\b", path.read_text())}
    pytest_options = "-m pytest -p emulated_plugin -p no:cacheprovider -rs --tb=short".split()
    run(tmp_path, *pytest_options, "-m", "gpu", *sorted(places))
    compiled = run(tmp_path, HERE / "compile_for_real.py", tmp_path)  # before there are kernels that it must refuse
    assert int(compiled) > 90
    run(tmp_path, *pytest_options, HERE / "on_emulated_gpu.py")


def run(compiled, *arguments):
    """Run Python with what CuPy compiles kept in a directory. -> what it prints"""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=1800,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
            "CUPY_CACHE_DIR": str(compiled),
            "OPENBLAS_NUM_THREADS": "1",
        },
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
    assert "skipped" not in done.stdout, done.stdout
    return done.stdout
