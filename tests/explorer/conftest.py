"""Runs the tests that are written in JavaScript."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

OLDEST_NODE = 18


@pytest.fixture(scope="session")
def run_node():
    """`run_node("parts.test.mjs", NAME="value")` runs a file of this folder with `node --test` and these variables.

    A failing file fails the test, with node's output. Without node, or with one that is too old, the test is skipped.
    """
    node = shutil.which("node")
    if not node:
        pytest.skip("there is no node, which runs the explorer's JavaScript outside a browser")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    if int(re.match(r"v(\d+)", version)[1]) < OLDEST_NODE:
        pytest.skip(f"node is {version.strip()}, and the tests need {OLDEST_NODE} or newer")

    def run(file, **variables):
        command = [node, "--test", "--test-reporter=spec", str(Path(__file__).with_name(file))]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})
        assert done.returncode == 0, f"{file}\n{done.stdout}{done.stderr}"

    return run
