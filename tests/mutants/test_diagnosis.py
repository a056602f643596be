"""With a mutant planted, `scratchformer doctor` suspects the part that the mutant breaks."""

import json

import pytest
from forked import in_tiers, run_planted
from mutants import MUTANTS


@pytest.mark.parametrize("mutant", in_tiers([mutant for mutant in MUTANTS if mutant.suspect]))
def test_doctor_suspects_the_broken_part(mutant, tmp_path):
    ended = run_planted(mutant, "scratchformer", ["doctor", "--code", "--json"], tmp_path)
    assert ended.returncode == 1 and ended.stderr == ""
    suspects = json.loads(ended.stdout.splitlines()[-1])["suspects"]
    assert mutant.suspect in suspects and len(suspects) <= 3
