"""`scratchformer learn`: the exercises of the lessons, which this module finds in the clone, not in the package."""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from scratchformer.commands.options import Commands, add_command, path, whole, word
from scratchformer.commands.terminal import tell
from scratchformer.errors import UserError

LESSONS = Path(__file__).parents[2] / "lessons"


def add(commands: Commands) -> None:
    parser = add_command(commands, "learn", learn)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary)

    start = action("start", "write the exercises into a directory; existing files stay as they are")
    where = "the directory (default: exercises, or the current one if the exercises are in it)"
    start.add_argument("exercises", nargs="?", type=path, metavar="DIR", help=where)
    exercises = action("list", "check all exercises, and list them with the result")
    check = action("check", "check your answers; exit code 0 if all pass, 1 if not")
    summary = "an exercise, a lesson's number (default: all)"
    check.add_argument("name", nargs="?", type=word, metavar="ID|NN|FILE", help=summary)
    hint = action("hint", "help in three steps: shapes, the rule in words, the formula")
    hint.add_argument("name", type=word, metavar="ID")
    hint.add_argument("number", nargs="?", type=whole(1, 3), default=1, metavar="1|2|3")
    solution = action("solution", "the library's own code, and how it answers the exercise")
    solution.add_argument("name", type=word, metavar="ID")
    reset = action("reset", "start an exercise again; your old answer is kept beside it")
    reset.add_argument("name", type=word, metavar="ID")
    for each in (exercises, check, reset):
        each.add_argument("--dir", type=path, metavar="DIR", dest="exercises", help=where)


def workbook() -> Any:
    """Import the module `lessons/exercises/workbook.py`, which a clone has."""
    if not (LESSONS / "exercises" / "workbook.py").exists():
        raise UserError(
            "learn: the lessons are not in the installed package; clone the project and install it from "
            "the clone with `pip install -e .`"
        )
    if str(LESSONS) not in sys.path:
        sys.path.insert(0, str(LESSONS))
    return importlib.import_module("exercises.workbook")


def check_file(path: str) -> int:
    """Check an exercise that is run as a script -> exit code"""
    try:
        return workbook().check_file(path)
    except UserError as error:
        tell(f"scratchformer: {error}")
        return 2


def learn(args: argparse.Namespace) -> int:
    """Write the backward passes yourself, with a checker that says what is wrong.

    scratchformer learn start
    scratchformer learn check 01_linear_backward
    scratchformer learn hint 01_linear_backward 2
    """
    book = workbook()
    directory = getattr(args, "exercises", None) or book.usual_directory()
    if args.action == "start":
        print("\n".join(book.start(directory)))
    elif args.action == "list":
        for exercise, state in book.states(directory):
            print(f"{exercise.id:34} {exercise.kind:9} {state:12} {exercise.title}", flush=True)
    elif args.action == "check":
        return 0 if book.check_files(book.files(args.name, directory)) else 1
    elif args.action == "hint":
        print(book.hint(book.one_named(args.name), args.number))
    elif args.action == "solution":
        print(book.solution(book.one_named(args.name)))
    else:
        print(book.reset(book.one_named(args.name), directory))
    return 0
