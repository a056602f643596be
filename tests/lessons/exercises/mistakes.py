"""The classic wrong answers to each exercise, and what the checker says to them.

`wrong/NN_slug.py` holds them as functions: the name says what is wrong, the docstring is part of the diagnosis that it
must get. Functions without a docstring are helpers.
"""

import importlib.util
from pathlib import Path
from typing import NamedTuple

from exercises.catalogue import EXERCISES
from exercises.checker import Verdict, check

FOLDER = Path(__file__).parent / "wrong"

INTRODUCTION = """\
<!-- Written by `python tools/wrong_answers.py`. -->

# Wrong answers, and what the checker says

A checker that accepts a wrong answer is worse than none, and one that says only "wrong" is of little help. So the tests
hand these classic mistakes to `scratchformer learn check`: each must be refused, and with its own diagnosis.

"""


class WrongAnswer(NamedTuple):
    mistake: str
    explanation: str
    """A part of the diagnosis that it must get."""
    verdict: Verdict


def judged(exercise):
    """The wrong answers to an exercise, in the order of its file, with the checker's verdicts; none without a file."""
    path = FOLDER / f"{exercise}.py"
    if not path.exists():
        return []
    spec = importlib.util.spec_from_file_location(f"wrong_{exercise}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [
        WrongAnswer(name.replace("_", " "), value.__doc__, check(EXERCISES[exercise], value))
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and value.__doc__
    ]


def page():
    """docs/lessons/wrong_answers.md: exercise x wrong answer x diagnosis."""
    rows = ["| exercise | wrong answer | what the checker says |\n", "|---|---|---|\n"]
    return INTRODUCTION + "".join(rows + [table_rows(exercise, judged(exercise)) for exercise in EXERCISES])


def table_rows(exercise, answers):
    """The rows of one exercise, as Markdown."""
    rows = ""
    for number, wrong in enumerate(answers):
        diagnosis = wrong.verdict.diagnosis.replace("|", "\\|")
        rows += f"| {'' if number else f'`{exercise}`'} | {wrong.mistake} | {diagnosis} |\n"
    return rows
