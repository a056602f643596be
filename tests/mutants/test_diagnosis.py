"""With a mutant planted, `scratchformer doctor` suspects the part that the mutant breaks."""

import json

import pytest
from forked import run_planted
from mutants import MUTANTS


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.suspect], ids=lambda mutant: mutant.name)
def test_doctor_suspects_the_broken_part(mutant, tmp_path):
    ended = run_planted(mutant, "scratchformer", ["doctor", "--code", "--json"], tmp_path)
    assert ended.returncode == 1 and ended.stderr == ""
    suspects = json.loads(ended.stdout.splitlines()[-1])["suspects"]
    assert mutant.suspect in suspects and len(suspects) <= 3
