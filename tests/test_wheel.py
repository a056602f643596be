"""The installed package works without the clone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]


@pytest.mark.slow
def test_an_installed_wheel_trains_tiny_and_translates(tmp_path):
    def run(*command, code=0):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=environment,
            input="The dog sleeps.\n",
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr if code else done.stdout

    source = tmp_path / "source"  # pip builds where the source lies
    shutil.copytree(CHECKOUT / "scratchformer", source / "scratchformer")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", "site", str(source))
    assert str(tmp_path) in run("-c", "import scratchformer; print(scratchformer.__file__)")
    assert "d_model = 128" in run("site/bin/scratchformer", "config", "tiny")
    run("-m", "scratchformer", "train", "tiny", "--set", "steps=3", "--set", "validate_every=3")
    assert (tmp_path / "site" / "scratchformer" / "backends" / "cuda" / "kernels.cu").exists()
    assert run("-m", "scratchformer", "explore", "runs/tiny") == "runs/tiny/explorer.html\n"
    said = run("-m", "scratchformer", "learn", "start", code=2)
    assert "clone the project" in said and said.count("\n") == 1
    assert (tmp_path / "runs" / "tiny" / "checkpoints" / "step_00000003.safetensors").exists()
    assert run("-m", "scratchformer", "translate", "runs/tiny", "--beam", "1").count("\n") == 1
