"""Each mutant is caught by the test it names, and without a mutant the same tests pass."""

import json
import os
import re
import subprocess
import sys

import pytest
from forked import in_tiers, run_planted
from mutants import MUTANTS, ROOT, Patch
from plant import plant

from scratchformer.doctor.findings import components

HERE = ROOT / "tests" / "mutants"


def patched(mutant):
    """The files that the mutant changes -> their text with the bug in it."""
    texts = {}
    for patch in mutant.patches:
        text = texts.get(patch.file) or (ROOT / patch.file).read_text(encoding="utf-8")
        texts[patch.file] = patch.applied(text)
    return texts


# The list of mutants --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_patches_apply_and_compile(mutant):
    for file, text in patched(mutant).items():
        assert text != (ROOT / file).read_text(encoding="utf-8")
        compile(text, file, "exec")


def test_a_patch_that_applies_nowhere_or_twice_is_refused():
    for text in ("", "x = 1\nx = 1\n"):
        with pytest.raises(ValueError, match="file.py holds this [02] times, not once: x = 1"):
            Patch("file.py", "x = 1", "x = 2").applied(text)


def test_names_and_bugs_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 30
    assert len({str(sorted(patched(mutant).items())) for mutant in MUTANTS}) == len(MUTANTS)


def test_every_mutant_names_a_suspect_and_a_test_that_exist():
    for mutant in MUTANTS:
        assert mutant.suspect in {"", *components()}, mutant.name
        file, test = re.match(r"(tests/[\w/]+\.py)::(test_\w+)", mutant.caught_by).groups()
        assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8"), mutant.name


# Planting -------------------------------------------------------------------------------------------------------------


def test_a_module_that_is_already_imported_cannot_be_patched():
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
def test_a_wrong_command_line_is_explained(arguments, message):
    outcome = subprocess.run([sys.executable, HERE / "plant.py", *arguments], capture_output=True, text=True)
    assert outcome.returncode == 2 and message in outcome.stderr


# Catching -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mutant", in_tiers(MUTANTS))
def test_its_test_catches_it(mutant, tmp_path):
    """The named test itself fails; an error outside it, in a fixture or an import, does not count."""
    ended = run_planted(mutant, "pytest", ["-p", "no:cacheprovider", "-x", mutant.caught_by], tmp_path)
    assert ended.returncode == 1 and f"\nFAILED {mutant.caught_by}" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.slow
def test_without_a_mutant_the_same_tests_pass():
    tests = sorted({mutant.caught_by for mutant in MUTANTS})
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0 and "skipped" not in ended.stdout, ended.stdout


@pytest.mark.slow
def test_the_matrix_says_which_suites_catch_a_mutant(tmp_path):
    path = tmp_path / "matrix.json"
    mutants = ["no-causal-mask", "scores-not-scaled"]
    subprocess.run(
        [sys.executable, HERE / "matrix.py", "--out", path, "--suite", "flow", *mutants],
        check=True,
        stdout=subprocess.PIPE,
    )
    assert json.loads(path.read_text(encoding="utf-8")) == {"no-causal-mask": ["flow"], "scores-not-scaled": []}
