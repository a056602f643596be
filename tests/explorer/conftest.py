"""Node and a browser, in which the explorer's tests run."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

OLDEST_NODE = 18
TINY_MODEL = Path(__file__).parents[2] / "data" / "tiny_model"


@pytest.fixture(scope="session")
def node():
    """Path of node. Without it, or with one that is too old, the test is skipped."""
    found = shutil.which("node")
    if not found:
        pytest.skip("node is missing, which runs the explorer's JavaScript outside a browser")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if int(re.match(r"v(\d+)", version)[1]) < OLDEST_NODE:
        pytest.skip(f"node is {version.strip()}, and the tests need {OLDEST_NODE} or newer")
    return found


@pytest.fixture(scope="session")
def run_node(node):
    """`run_node("parts.test.mjs", NAME="value")` runs a file of this folder with `node --test` and these variables.

    A failing file fails the test, with node's output.
    """

    def run(file, **variables):
        command = [node, "--test", "--test-reporter=spec", str(Path(__file__).with_name(file))]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})
        assert done.returncode == 0, f"{file}\n{done.stdout}{done.stderr}"

    return run


# A browser ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def chromium():
    """The one browser of a test run, with whatever page the test before has left in it."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (binary and driver):
        pytest.skip("chromium with its chromedriver is missing (Debian: chromium and chromium-driver)")
    from browser import Browser

    browser = Browser(binary, driver)
    yield browser
    browser.driver.quit()


@pytest.fixture
def browser(chromium):
    """The browser. The test fails if a page has logged an error, or has asked for something that is not here."""
    chromium.forget()
    yield chromium
    assert chromium.errors() == []
    elsewhere = [address for address in chromium.requests() if not address.startswith(("file:", "http://127.0.0.1:"))]
    assert elsewhere == []


@pytest.fixture(scope="session")
def explorer(tmp_path_factory):
    """The page of the shipped model, twice: its address as a file, and where `scratchformer explore --serve` has it."""
    out = tmp_path_factory.mktemp("explorer") / "tiny.html"
    command = [sys.executable, "-m", "scratchformer", "explore", TINY_MODEL, "--out", out, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        yield Path(process.stdout.readline().strip()).as_uri(), process.stdout.readline().strip()
        process.terminate()
