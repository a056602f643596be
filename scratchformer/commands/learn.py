"""`scratchformer learn`: write the Transformer yourself. The course is found in the clone, not in the package."""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any

from scratchformer.commands.options import Commands, add_command, add_option, path, within, word
from scratchformer.errors import UserError

LESSONS = Path(__file__).parents[2] / "lessons"
ACTIONS = ("where", "start", "check", "hint", "show", "train", "translate", "explore", "run", "notebook")


def add(commands: Commands) -> None:
    parser = add_command(commands, "learn", learn)
    parser.add_argument(
        "action", nargs="?", choices=ACTIONS, default="where", metavar="ACTION", help=", ".join(ACTIONS)
    )
    what = "functions, hunts, lessons (check, hint, show), a sentence (translate), a program (run), a lesson (notebook)"
    parser.add_argument("names", nargs="*", type=word, metavar="NAME", help=what)
    where = "the directory of your files (default: here, above, or my_transformer)"
    add_option(parser, "--dir DIR", path, where)
    add_option(parser, "--steps N", within(1, 10**6), "of train (default: 1500)")
    parser.add_argument("--yes", action="store_true", help="show without asking")


def actions() -> Any:
    """Import the module `lessons/exercises/actions.py`, which a clone has."""
    if not (LESSONS / "exercises" / "actions.py").exists():
        raise UserError(
            "learn: the lessons are not in the installed package; clone the project and install it from "
            "the clone with `pip install -e .`"
        )
    if str(LESSONS) not in sys.path:
        sys.path.insert(0, str(LESSONS))
    return importlib.import_module("exercises.actions")


def learn(args: argparse.Namespace) -> int:
    """Write the Transformer yourself, function by function, with a checker that says what is wrong.

    scratchformer learn start                write my_transformer/transformer.py, its functions empty; yours stay
    scratchformer learn                      where you are, and what is next
    scratchformer learn check attention      compare with ours, and with finite differences; exit code 1 if it is wrong
    scratchformer learn check                all that you have written
    scratchformer learn hint attention       the rule in words; `hint attention 2`: the formula
    scratchformer learn show attention       ours
    scratchformer learn train                train your file; what you have not written is ours
    scratchformer learn translate "The dog ate the apple."
    scratchformer learn explore              a page in the browser with your weights
    scratchformer learn run gpt.py           a program of yours that imports transformer.py and more.py
    scratchformer learn notebook 04          lesson 04 as a Jupyter notebook
    """
    act, names = actions(), args.names
    require_meaning(args)
    match args.action:
        case "start":
            return act.start(args.dir or (Path(names[0]) if names else None))
        case "notebook":
            return act.notebook(names[0])
        case "hint":
            return act.hint(names[0], int(names[1]) if names[1:] else 1)
        case "show":
            return act.show(names[0], args.yes)
    directory = act.desk.find(args.dir)
    match args.action:
        case "check":
            return act.check(directory, names)
        case "train":
            return act.train(directory, args.steps)
        case "translate":
            return act.translate(directory, " ".join(names))
        case "explore":
            return act.explore(directory)
        case "run":
            return act.run(directory, names[0])
    return act.where(directory)


def require_meaning(args: argparse.Namespace) -> None:
    """Refuse a name or an option that the action does not take, and one that is missing."""
    names, action = args.names, args.action
    needed = {"hint": "attention", "show": "attention", "translate": '"The dog ate the apple."', "run": "gpt.py",
              "notebook": "04"}  # fmt: skip
    if action in needed and not names:
        raise UserError(f"learn {action}: of what? For instance: scratchformer learn {action} {needed[action]}")
    most = {"start": 1, "check": 1000, "hint": 2, "show": 1, "translate": 1000, "run": 1, "notebook": 1}.get(action, 0)
    if len(names) > most:
        raise UserError(f"learn {action}: {names[most]!r} means nothing here; see scratchformer learn --help")
    if action == "hint" and names[1:] not in ([], ["1"], ["2"]):
        raise UserError(f"learn hint: there are hints 1 and 2, not {names[1]!r}")
    if args.steps and action != "train":
        raise UserError(f"learn {action}: --steps belongs to learn train")
