"""The lint of plain English refuses two habits and nothing else."""

import pytest
from plain_english import refusals

NO = "no"  # the lint reads this file, too


@pytest.mark.parametrize(
    "source, n_refused",
    [
        ('def f():\n    """How many cores a rank has."""', 1),
        ('SIZE = 1\n"""Where the file is."""', 1),
        (f'raise ValueError(f"{{name}} is {NO} number")', 1),
        (f'"""Functions that\nare {NO} layers."""', 1),
        ('"""Count the cores; there is no limit, and there are no others. It is no longer slow."""', 0),
        (f'f("How many cores?")  # whether it is {NO} number', 0),
    ],
)
def test_refusals(source, n_refused):
    assert len(list(refusals(source))) == n_refused
