"""What the README shows works as it stands there."""

import re
from pathlib import Path

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
