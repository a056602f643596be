"""The exercises of the lessons. They are not part of the package: this module finds them in the clone."""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from scratchformer.errors import UserError

LESSONS = Path(__file__).parents[2] / "lessons"


def workbook() -> Any:
    """The module `lessons/exercises/workbook.py`. Raises UserError if the package was installed without a clone."""
    if not (LESSONS / "exercises" / "workbook.py").exists():
        raise UserError(
            "learn: the lessons are not in the installed package; clone the project and install it from "
            "the clone with `pip install -e .`"
        )
    if str(LESSONS) not in sys.path:
        sys.path.insert(0, str(LESSONS))
    return importlib.import_module("exercises.workbook")


def check_file(path: str) -> int:
    """What an exercise that is run as a script does: check itself -> exit code."""
    try:
        return workbook().check_file(path)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


def learn(args: argparse.Namespace) -> int:
    book = workbook()
    if args.action == "start":
        book.say("\n".join(book.start(args.exercises)))
    elif args.action == "list":
        for exercise, state in book.states(args.exercises):
            book.say(f"{exercise.id:34} {exercise.kind:9} {state:12} {exercise.title}")
    elif args.action == "check":
        return 0 if book.check_files(book.files(args.name, args.exercises)) else 1
    elif args.action == "hint":
        book.say(book.hint(book.one_named(args.name), args.number))
    elif args.action == "solution":
        book.say(book.solution(book.one_named(args.name)))
    else:
        book.say(book.reset(book.one_named(args.name), args.exercises))
    return 0
