"""The tests catch every bug of the museum, each planted alone; and they pass where nothing is planted."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import tally
from forked import run_planted
from mutants import CLASSIC, MUTANTS, ROOT, SUSPECTS, Patch
from plant import plant

EVERY_MUTANT = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)


def patched(mutant):
    """The files that the mutant changes -> their text with the bug in it."""
    texts = {}
    for patch in mutant.patches:
        text = texts.get(patch.file) or (ROOT / patch.file).read_text(encoding="utf-8")
        texts[patch.file] = patch.applied(text)
    return texts


# The collection -------------------------------------------------------------------------------------------------------


def test_there_are_many_and_no_two_have_one_name():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30


def test_no_two_are_the_same_bug():
    assert len({str(sorted(patched(mutant).items())) for mutant in MUTANTS}) == len(MUTANTS)


@EVERY_MUTANT
def test_every_card_is_complete(mutant):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", mutant.name)
    assert mutant.origin == CLASSIC or re.fullmatch(r"[\w-]+/[\w-]+", mutant.origin), "owner/repository"
    assert mutant.what.endswith(".")
    assert mutant.suspect in {"", *SUSPECTS}
    assert re.match(r"tests/[\w/]+\.py::test_\w+", mutant.caught_by)


@EVERY_MUTANT
def test_every_patch_fits_the_code_of_today_and_compiles(mutant):
    for file, text in patched(mutant).items():
        assert text != (ROOT / file).read_text(encoding="utf-8")
        compile(text, file, "exec")


def test_a_patch_that_fits_nowhere_or_twice_is_refused():
    for text in ("", "x = 1\nx = 1\n"):
        with pytest.raises(ValueError, match="file.py holds this [02] times, not once: x = 1"):
            Patch("file.py", "x = 1", "x = 2").applied(text)


# Planting -------------------------------------------------------------------------------------------------------------


def test_what_is_imported_already_cannot_be_planted():
    before = list(sys.meta_path)
    with pytest.raises(RuntimeError, match="ops.py is imported already: too late to plant softmax-divided-by-batch"):
        plant(MUTANTS[0])
    assert sys.meta_path == before


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "python tests/mutants/plant.py softmax-divided-by-batch"),
        (["softmax-divided-by-bach", "pytest"], "near it: softmax-divided-by-batch"),
        (["heads-split", "pytest"], "near it: heads-split-without-transpose\n"),
    ],
)
def test_a_wrong_command_line_is_told_what_is_right(arguments, message):
    outcome = subprocess.run([sys.executable, tally.HERE / "plant.py", *arguments], capture_output=True, text=True)
    assert outcome.returncode == 2 and message in outcome.stderr


# Catching -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """Name of a mutant -> exit code, tally and output of its test with the mutant planted; for those asked for."""
    folder = tmp_path_factory.mktemp("tallies")
    wanted = {
        item.callspec.params["mutant"].name
        for item in request.session.items
        if getattr(item, "originalname", "") == test_the_tests_catch_it.__name__
    }

    def outcome(mutant):
        path = folder / mutant.name
        ended = run_planted(mutant, "pytest", [*tally.options(path), "-x", mutant.caught_by], folder)
        return ended.returncode, tally.read(path), ended.stdout + ended.stderr

    mutants = [mutant for mutant in MUTANTS if mutant.name in wanted]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip([mutant.name for mutant in mutants], pool.map(outcome, mutants)))


@pytest.mark.slow
@EVERY_MUTANT
def test_the_tests_catch_it(outcomes, mutant):
    """Its test itself fails, not the collection and not a fixture."""
    code, tests, output = outcomes[mutant.name]
    assert code == 1 and tests[-1][0] == "failed" and tests[-1][1].startswith(mutant.caught_by), output


@pytest.mark.slow
def test_where_nothing_is_planted_the_same_tests_pass(tmp_path):
    process = tally.run_pytest(None, sorted({mutant.caught_by for mutant in MUTANTS}), tmp_path / "tally")
    assert process.returncode == 0, process.stdout
    tests = tally.read(tmp_path / "tally")
    assert {verdict for verdict, _ in tests} == {"passed"}
    for mutant in MUTANTS:
        assert any(name.startswith(mutant.caught_by) for _, name in tests)


# The tally ------------------------------------------------------------------------------------------------------------


def test_what_hangs_or_breaks_is_told_apart_from_what_fails(tmp_path):
    (tmp_path / "test_some.py").write_text("""\
import pytest, time
@pytest.fixture
def broken(): raise OSError
def test_passes(): pass
def test_fails(): assert False
def test_hangs(): time.sleep(600)
def test_is_skipped(): pytest.skip("no reason")
def test_has_no_ground(broken): pass
""")
    (tmp_path / "test_unreadable.py").write_text("import nothing_of_this_name")
    arguments = [tmp_path, f"--rootdir={tmp_path}", "--continue-on-collection-errors", "--seconds-per-test=3"]
    assert tally.run_pytest(None, arguments, tmp_path / "tally").returncode == 1
    assert {name.split("::")[-1]: verdict for verdict, name in tally.read(tmp_path / "tally")} == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_hangs": "failed",
        "test_is_skipped": "skipped",
        "test_has_no_ground": "error",
        "test_unreadable.py": "error",
    }


# The matrix -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_matrix_tells_who_catches_what_and_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "matrix.json"

    def fill(*mutants):
        subprocess.run(
            [sys.executable, tally.HERE / "matrix.py", "--out", path, "--leg", "flow", *mutants],
            check=True,
            stdout=subprocess.PIPE,
        )
        return json.loads(path.read_text(encoding="utf-8"))

    first = fill("no-causal-mask")
    found = first["no-causal-mask"]["legs"]["flow"]
    assert 0 < len(found["names"]) <= found["failed"] < found["tests"]
    assert all("future_token" in name for name in found["names"])
    first["no-causal-mask"]["legs"]["flow"]["tests"] = 1  # to see that it is not run again
    path.write_text(json.dumps(first), encoding="utf-8")
    second = fill("no-causal-mask", "scores-not-scaled")
    assert second["no-causal-mask"] == first["no-causal-mask"]
    assert second["scores-not-scaled"]["legs"]["flow"]["failed"] == 0
