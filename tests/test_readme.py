"""The example, the commands and the links of the README work, and the package has the names that it promises."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import scratchformer as sf
from scratchformer.cli import main

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_python_example_learns_and_proves_itself(capsys, trained):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert 'sf.load_run("runs/demo")' in code
    exec(code.replace("runs/demo", str(trained.path)), {})
    loss, *checks, translation = capsys.readouterr().out.splitlines()
    assert float(loss) < 1.5  # ln 20 = 3.0 at first
    assert len(checks) == 13 and all(check.endswith(" ok") for check in checks)
    assert translation.startswith("[") and translation.endswith("]")


def test_public_names_are_imported_when_they_are_used():
    names = set(sf.__all__)
    assert names <= set(dir(sf))
    everything: dict = {}
    exec("from scratchformer import *", everything)
    assert names <= everything.keys() and everything["Adam"] is sf.Adam
    with pytest.raises(AttributeError, match="'scratchformer' has no attribute 'Adamm'"):
        sf.Adamm
    with pytest.raises(ImportError, match="cannot import name 'Adamm'"):
        exec("from scratchformer import Adamm")


def test_type_checkers_see_the_public_names_that_python_sees():
    tree = ast.parse(Path(sf.__file__).read_text(encoding="utf-8"))
    seen = {
        alias.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == sf.MODULES and seen.keys() == set(sf.__all__)


def test_the_package_is_imported_without_numpy():
    code = "import sys, scratchformer; print('numpy' in sys.modules); scratchformer.Adam; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\nTrue\n"


def test_the_commands_exist(capsys):
    for command in set(re.findall(r"^    (?:echo .*\| )?scratchformer (\w+)", README, re.MULTILINE)):
        try:
            main([command, "--help"])
        except SystemExit as left:
            assert left.code == 0, command
    assert "usage: scratchformer train" in capsys.readouterr().out


def test_linked_files_exist():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert "docs/names.md" in links
    assert [link for link in links if not (Path(__file__).parents[1] / link).exists()] == []
