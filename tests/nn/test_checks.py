"""The checks of the code by `scratchformer doctor` pass here, too: one table for both."""

from collections import Counter

import pytest

from scratchformer.config import preset, with_settings
from scratchformer.doctor.diagnosis import code_probes

CONFIGURATIONS = {
    "post": {"norm": "post"},
    "pre": {"norm": "pre"},
    "learned": {"positions": "learned"},
    "told": {"task": "parsing", "n_tags": 3},
}


def table():
    """Every check of every component, in every configuration if it depends on one. Gradients: `test_gradients.py`."""
    probes_of = [code_probes(with_settings(preset("tiny"), changes)) for changes in CONFIGURATIONS.values()]
    seen = Counter()
    for probes in zip(*probes_of, strict=True):
        names = [""] if probes[0] is probes[1] else [f" [{name}]" for name in CONFIGURATIONS]
        for name, probe in zip(names, probes):
            for component, check in probe.checks if probe.name != "gradients" else ():
                what = f"{component}: {probe.name}"
                seen[what, name] += 1
                number = f" {seen[what, name]}" if seen[what, name] > 1 else ""
                yield pytest.param(check, id=f"{what}{number}{name}")


@pytest.mark.parametrize("check", list(table()))
def test_a_component_passes(check):
    check()
