"""`scratchformer learn`: the exercises of the lessons, which this module finds in the clone, not in the package."""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from scratchformer.commands.options import Commands, add_command, add_option, path, within, word
from scratchformer.commands.terminal import tell
from scratchformer.errors import UserError

LESSONS = Path(__file__).parents[2] / "lessons"
ACTIONS = ("start", "list", "check", "hint", "solution", "reset")


def add(commands: Commands) -> None:
    parser = add_command(commands, "learn", learn)
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    name = "an exercise, for check also a lesson's number or a file (default for check: all); for start the directory"
    parser.add_argument("name", nargs="?", type=word, metavar="ID", help=name)
    parser.add_argument("number", nargs="?", type=within(1, 3), metavar="1|2|3", help="which hint (default: 1)")
    where = "the directory (default: exercises, or the current one if the exercises are in it)"
    add_option(parser, "--dir DIR", path, where)


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

    scratchformer learn start [DIR]                  write the exercises; existing files stay as they are
    scratchformer learn list                         check all exercises, and list them with the result
    scratchformer learn check                        check your answers; exit code 0 if all pass, 1 if not
    scratchformer learn check 01_linear_backward
    scratchformer learn hint 01_linear_backward 2    help in three steps: shapes, the rule in words, the formula
    scratchformer learn solution 01_linear_backward  the library's own code, and how it answers the exercise
    scratchformer learn reset 01_linear_backward     start again; your old answer is kept beside it
    """
    book, name = workbook(), args.name
    if name is None and args.action in ("hint", "solution", "reset"):
        raise UserError(f"learn {args.action}: which exercise? learn list shows their names")
    if args.number and args.action != "hint" or name and args.action == "list":
        raise UserError(
            f"learn {args.action}: {args.number or name} means nothing here; see scratchformer learn --help"
        )
    directory = args.dir or (Path(name) if name and args.action == "start" else book.usual_directory())
    if args.action == "start":
        print("\n".join(book.start(directory)))
    elif args.action == "list":
        for exercise, state in book.states(directory):
            print(f"{exercise.id:34} {exercise.kind:9} {state:12} {exercise.title}", flush=True)
    elif args.action == "check":
        return 0 if book.check_files(book.files(name, directory)) else 1
    elif args.action == "hint":
        print(book.hint(book.one_named(name), args.number or 1))
    elif args.action == "solution":
        print(book.solution(book.one_named(name)))
    else:
        print(book.reset(book.one_named(name), directory))
    return 0
