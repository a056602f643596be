"""The README and the pages under it are true, and the package has the names and versions that it promises."""

import ast
import configparser
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import record_demo

import scratchformer as sf
from exercises.catalogue import FILES, FUNCTIONS
from exercises.checker import check
from exercises.source import ours
from scratchformer.cli import main
from scratchformer.training.run import load_run

ROOT = Path(__file__).parents[1]
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/using.md", "docs/packages.md")}
README = PAGES["README.md"]


def test_the_quoted_function_is_that_of_the_file():
    (quoted,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert f"\n\n\n{quoted}\n\n" in (ROOT / "lessons" / "transformer.py").read_text(encoding="utf-8")


def test_the_quoted_verdict_is_that_of_the_checker():
    function = FUNCTIONS["attention"]
    wrong = ours("transformer", "attention", (("dheads, V)) * scale", "dheads, V))"),))
    assert check(function, wrong).diagnosis in " ".join(README.split())
    assert f"its {len(FILES['transformer'])} functions empty" in README


def test_the_numbers_of_the_file_are_those_of_its_benchmark():
    found = json.loads((ROOT / "benchmarks" / "results" / "one_file.json").read_text(encoding="utf-8"))["results"]
    lines = (ROOT / "lessons" / "transformer.py").read_text(encoding="utf-8").count("\n")
    assert f"{lines} lines of NumPy" in README and f"BLEU of {found['bleu']['test']:.1f}" in README
    assert f"{found['train']['cpu_seconds'] / 60:.0f} minutes" in README


def test_the_shipped_model_writes_what_is_quoted():
    quoted = re.findall(r'\$ echo "(.+)" \| scratchformer translate data/tiny_model\n    (.+?) +#', README)
    assert len(quoted) == 2
    translations = load_run(ROOT / "data" / "tiny_model").translate([source for source, _ in quoted])
    assert translations == [translation for _, translation in quoted]


def test_the_recording_is_what_make_demo_printed():
    recording = json.loads(record_demo.RECORDING.read_text(encoding="utf-8"))
    assert record_demo.PICTURE.read_text(encoding="utf-8") == record_demo.draw(recording)
    assert record_demo.PICTURE.stat().st_size <= 150_000
    printed = "\n".join(record_demo.screens(recording)[-1].rows)
    scores = re.findall(r"BLEU on (\w+): +([\d.]+)", printed)
    assert [name for name, _ in scores] == ["test", "test_compositional", "test_long"]
    assert all(f"{name} {score}" in README for name, score in scores)


def test_a_screen_is_what_a_terminal_shows():
    events = [[0.5, "one\r\n\r  5%|#  |"], [1.0, "\r 50%|## |"], [2.0, "\r         \rtwo\r\nabcdefghijkl\r\n"]]
    events += [[3.0, "bar\r\n\rbelow\x1b[A\rBAR"], [4.0, "\r\n\rBELOW\r\n"]]
    played = record_demo.screens({"columns": 10, "events": events})
    assert [row.rstrip() for row in played[-1].rows] == [
        "$ make demo",
        "one",
        "two",
        "abcdefghij",
        "kl",
        *("BAR", "BELOW", ""),
    ]
    assert " 50%|## |" in [screen.rows[-1] for screen in played]
    assert [screen.at for screen in played] == sorted(screen.at for screen in played)


def test_the_promised_pythons_are_those_of_ci():
    package = configparser.ConfigParser()
    package.read(ROOT / "setup.cfg", encoding="utf-8")
    promised = re.findall(r"Python :: (3\.\d+)", package["metadata"]["classifiers"])
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert re.findall(r'"(3\.\d+)"', re.search(r"python: \[.*\]", workflow)[0]) == promised
    assert package["options"]["python_requires"] == f">={promised[0]}"
    assert f"Python {promised[0]} to {promised[-1]}" in README
    version = package["metadata"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_first_link_is_the_site_that_setup_cfg_names():
    package = configparser.ConfigParser()
    package.read(ROOT / "setup.cfg", encoding="utf-8")
    address = package["metadata"]["project_urls"].strip().removeprefix("Site = ")
    assert README.split("\n\n")[1].startswith(f"**[Play with it in your browser]({address})**")


def test_the_python_example_learns_and_proves_itself(capsys, trained):
    *_, code = re.findall(r"```python\n(.*?)```", PAGES["docs/using.md"], re.DOTALL)
    assert 'sf.load_run("runs/demo")' in code
    exec(code.replace("runs/demo", str(trained.path)), {})
    loss, *checks, translation = capsys.readouterr().out.splitlines()
    assert float(loss) < 1.5  # ln 20 = 3.0 at first
    assert len(checks) == 13 and all(check.endswith(" ok") for check in checks)
    assert translation.startswith("[") and translation.endswith("]")


def test_the_training_in_python_trains(capsys, tmp_path, monkeypatch):
    code, *_ = re.findall(r"```python\n(.*?)```", PAGES["docs/using.md"], re.DOTALL)
    quick = {"training.steps": 3, "training.tokens_per_batch": 200, "model.d_model": 8, "model.d_ff": 8}
    monkeypatch.chdir(tmp_path)
    exec(code.replace('{"training.steps": 400}', str(quick)), names := {})
    loss, n_parameters = capsys.readouterr().out.splitlines()[0].split()
    assert len(names["losses"]) == 3 and float(loss) == names["losses"][-1] and int(n_parameters) > 1000
    copy = sf.load_model("runs/copy")
    assert np.array_equal(copy.model.store.data, names["trained"].model.store.data)


def test_the_callbacks_pass_on_what_the_log_has(monkeypatch):
    received = []
    add_scalar = SimpleNamespace(add_scalar=lambda *what: received.append(what))
    tracked = SimpleNamespace(log=lambda *what, step: received.append((*what, step)))
    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=lambda path: add_scalar))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda project: tracked))
    _, code, _ = re.findall(r"```python\n(.*?)```", PAGES["docs/using.md"], re.DOTALL)
    exec(code, names := {})
    for callback in (names["to_tensorboard"], names["to_wandb"]):
        callback("validation", {"step": 3, "loss": 2.5})
    assert received == [("validation/loss", 2.5, 3), ({"validation/step": 3, "validation/loss": 2.5}, 3)]


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


def test_a_public_name_that_computes_chooses_the_fast_operations():
    code = """if True:
        import numpy as np
        import scratchformer as sf
        from scratchformer.nn.ops import ops_of
        arrays = np.zeros(1, np.float32), np.zeros(1)
        before = [type(ops_of(x)).__name__ for x in arrays]
        sf.Config, sf.Transformer
        print(before, [type(ops_of(x)).__name__ for x in arrays])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['Ops', 'Ops'] ['FastOps', 'Ops']\n"


def test_type_checkers_see_the_public_names_that_python_sees():
    tree = ast.parse(Path(sf.__file__).read_text(encoding="utf-8"))
    (for_checkers,) = (node.body for node in tree.body if isinstance(node, ast.If))
    seen = {node.module: tuple(alias.name for alias in node.names) for node in for_checkers}
    assert seen == sf.MODULES


def test_the_package_is_imported_without_numpy():
    code = "import sys, scratchformer; print('numpy' in sys.modules); scratchformer.Adam; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\nTrue\n"


def test_the_commands_exist(capsys):
    commands = r"^    (?:\$ |echo .*\| |.*&& )?scratchformer (\w+)"
    for command in {name for page in PAGES.values() for name in re.findall(commands, page, re.MULTILINE)}:
        try:
            main([command, "--help"])
        except SystemExit as left:
            assert left.code == 0, command
    assert "usage: scratchformer train" in capsys.readouterr().out


@pytest.mark.parametrize("name", PAGES)
def test_linked_files_exist(name):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)|src=\"([^\"]+)\"", PAGES[name])
    assert len(links) > 1 or name == "docs/packages.md"
    files = [link for pair in links for link in pair if link and not link.startswith("https://")]
    assert [file for file in files if not (ROOT / name).parent.joinpath(file).exists()] == []
