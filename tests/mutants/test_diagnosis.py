"""`scratchformer doctor` names the part that a bug of the museum is in."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from forked import run_planted
from mutants import MUTANTS


@pytest.mark.slow
def test_three_of_four_planted_bugs_are_traced_to_their_place(tmp_path):
    def suspects_of(mutant):
        """Whom doctor suspects when the bug is planted; its exit code."""
        ended = run_planted(mutant, "scratchformer", ["doctor", "--code", "--json"], tmp_path)
        assert ended.stderr == ""
        return json.loads(ended.stdout.splitlines()[-1])["suspects"], ended.returncode

    mutants = [mutant for mutant in MUTANTS if mutant.suspect]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        named = list(pool.map(suspects_of, mutants))
    missed = {
        mutant.name: (mutant.suspect, found)
        for mutant, (found, code) in zip(mutants, named, strict=True)
        if mutant.suspect not in found or code != 1
    }
    assert len(missed) <= len(mutants) / 4, missed
    assert all(len(found) <= 3 for found, _ in named)
