"""`scratchformer heads`: the table, the figures, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest

NAMES = ["encoder 1.1", "encoder 1.2", "decoder 1.1", "decoder 1.2", "cross 1.1", "cross 1.2"]
SHIPPED = Path(__file__).parents[2] / "data" / "tiny_model"


@pytest.fixture
def on_files(corpus):
    return "--source", corpus / "val.en", "--reference", corpus / "val.de", "--sentences", 20


def test_a_run_on_other_text_has_no_roles_that_need_annotations(cli, own_run, on_files):
    outcome = cli("heads", own_run.path, *on_files)
    assert outcome.code == 0
    assert "6 heads, 20 sentence pairs" in outcome.out and "only for the bundled corpus" in outcome.out
    for name in NAMES:
        assert sum(line.startswith(name) for line in outcome.out.splitlines()) == 1
    assert "random, mean of 5" in outcome.out
    saved = [own_run.figures / "heads.png", own_run.figures / "pruning.png"]
    assert outcome.out.splitlines()[-2:] == [str(path) for path in saved] and all(path.stat().st_size for path in saved)


@pytest.mark.slow
def test_json(cli, own_run, on_files):
    found = json.loads(cli("heads", own_run.path, *on_files, "--json").out)
    assert list(found["heads"]) == NAMES
    assert found["alignment"] == {} and {role["name"] for role in found["roles"]} >= {"previous token", "sentence end"}
    curves = found["curves"]
    assert list(curves)[:3] == ["by loss", "by gradient", "by loss, reversed"] and len(curves) == 8
    assert curves["by loss"]["order"] == curves["by loss, reversed"]["order"][::-1]
    for curve in curves.values():
        assert sorted(curve["order"]) == sorted(found["heads"]) and len(curve["losses"]) == 7
        assert curve["losses"][-1] == pytest.approx(curves["by loss"]["losses"][-1])
        assert curve["bleus"].keys() == {"0", "2", "3", "4", "6"}


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ([], "give --source and --reference"),
        (["--source", "{corpus}/val.en"], "give both --source and --reference"),
        (["--source", "{corpus}/val.en", "--reference", "{corpus}/train.de"], "val.en has 20 lines"),
        (["--source", "{blank}", "--reference", "{blank_too}"], "every line is blank"),
        (["--source", "{three}", "--reference", "{three_too}"], "3 sentence pairs"),
        (["--source", "{corpus}/val.en", "--reference", "{missing}"], "no such file"),
        (["--sentences", "19"], "argument --sentences: 19 must lie"),
        (
            ["--source", "{corpus}/val.en", "--reference", "{corpus}/val.de", "--checkpoint", "other"],
            "there is no checkpoint 'other'",
        ),
    ],
)
def test_refused(refused, own_run, corpus, tmp_path, arguments, complaint):
    for end in ("", "_too"):
        (tmp_path / f"blank{end}").write_text("\n \n")
        (tmp_path / f"three{end}").write_text("a\nthe\ndog\n")
    names = ("blank", "blank_too", "three", "three_too", "missing")
    places = {"corpus": corpus} | {name: tmp_path / name for name in names}
    said = refused("heads", own_run.path, *(argument.format(**places) for argument in arguments))
    assert complaint.lower() in said.lower()


def test_what_is_no_run_for_translation_is_refused(refused, own_run, tmp_path):
    assert "no run here" in refused("heads", tmp_path)
    text = own_run.config_file.read_text()
    own_run.config_file.write_text(text.replace('task = "translation"', 'task = "parsing"'))
    assert "is for parsing, but this needs translation" in refused("heads", own_run.path)


@pytest.mark.slow
def test_the_shipped_model(cli, tmp_path):
    """Its cross-attention aligns, no head resolves pronouns, and removal in order of importance costs least."""
    run = shutil.copytree(SHIPPED, tmp_path / "run")
    found = json.loads(cli("heads", run, "--sentences", 60, "--json").out)
    roles = {(role["kind"], role["name"]): role for role in found["roles"]}
    assert roles["cross", "alignment"]["heads"][1][2] and not any(roles["cross", "alignment"]["heads"][0])
    assert roles["cross", "alignment"]["scores"][1][2] > 0.9
    assert not any(any(row) for key, role in roles.items() for row in role["heads"] if "nouns" in key[1])
    assert found["alignment"]["rollout"] < found["alignment"]["attention of the last layer"]
    important = sorted(found["heads"], key=lambda name: found["heads"][name]["rise"])[-4:]
    assert {name[:7] for name in important} == {"cross 2"}
    losses = {name: curve["losses"][6] for name, curve in found["curves"].items()}
    assert losses["by loss"] < min(losses[name] for name in losses if name.startswith("random"))
    assert losses["by loss, reversed"] > max(losses[name] for name in losses if name.startswith("random"))
