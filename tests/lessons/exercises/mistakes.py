"""The classic wrong answers to each exercise, and what the checker says to them.

`wrong/NN_slug.py` holds them as functions: the name says what is wrong, the docstring is part of the diagnosis that it
must get. Functions without a docstring are helpers.
"""

import importlib.util
from pathlib import Path
from typing import NamedTuple

from exercises.catalogue import EXERCISES
from exercises.checker import check

FOLDER = Path(__file__).parent / "wrong"

INTRODUCTION = """\
<!-- Written by `python tools/wrong_answers.py`. -->

# Wrong answers, and what the checker says

A checker that accepts a wrong answer is worse than none, and one that says only "wrong" is of little help. So the tests
hand these classic mistakes to `scratchformer learn check`: each must be refused, and with its own diagnosis.

"""


class WrongAnswer(NamedTuple):
    exercise: str
    function: object

    @property
    def mistake(self):
        return self.function.__name__.replace("_", " ")

    @property
    def verdict(self):
        return check(EXERCISES[self.exercise], self.function)


def wrong_answers(exercise):
    """The wrong answers to an exercise, in the order of its file; none if there is no file."""
    path = FOLDER / f"{exercise}.py"
    if not path.exists():
        return []
    spec = importlib.util.spec_from_file_location(f"wrong_{exercise}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [
        WrongAnswer(exercise, value)
        for value in vars(module).values()
        if getattr(value, "__module__", "") == module.__name__ and value.__doc__
    ]


def page():
    """docs/lessons/wrong_answers.md"""
    return INTRODUCTION + mutant_table()


def mutant_table():
    """Exercise x wrong answer x diagnosis, as Markdown."""
    rows = ["| exercise | wrong answer | what the checker says |", "|---|---|---|"]
    for exercise in EXERCISES:
        for number, wrong in enumerate(wrong_answers(exercise)):
            diagnosis = wrong.verdict.diagnosis.replace("|", "\\|")
            rows.append(f"| {'' if number else f'`{exercise}`'} | {wrong.mistake} | {diagnosis} |")
    return "\n".join(rows) + "\n"
