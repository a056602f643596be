"""The command line: the command `scratchformer`, its subcommands and its exit codes."""

import argparse
import os
import sys
import traceback
from contextlib import redirect_stderr

import scratchformer
from scratchformer.commands import (
    average,
    config,
    data,
    demo,
    doctor,
    evaluate,
    explore,
    export,
    fill,
    generate,
    gradcheck,
    heads,
    learn,
    plot,
    train,
    translate,
)
from scratchformer.commands.options import Parser, Version, path
from scratchformer.commands.terminal import (
    ClosedOutput,
    SilencedWhenUnread,
    is_unread,
    redirect_to_null,
    speak_utf8,
    tell,
)
from scratchformer.config import nearest, shown
from scratchformer.errors import UserError, in_one_line

EXAMPLES = """\
examples:
  scratchformer train tiny                          a small model on the bundled corpus, in minutes
  echo "The dog ate the apple." | scratchformer translate runs/tiny
  scratchformer gradcheck                           check every hand-written gradient
  scratchformer doctor                              why does a model not learn? examine code, text and machine
  scratchformer learn start                         exercises of the lessons, with a checker that explains
  scratchformer plot runs/tiny attention --sentence "The animal did not cross the street because it was too tired."
  scratchformer explore runs/tiny                   a page in which the model runs: try it, take it apart
"""


TRACEBACK = "SCRATCHFORMER_TRACEBACK"
"""The environment variable with which an error shows its traceback, too."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command -> exit code: 0 done, 1 a check, a GPU or a rank failed, 2 bad input, 130 interrupted

    A rank that gives up because another one has failed ends with code 75.
    """
    if sys.stderr is None:  # it is closed: keep its number, or the next file that is opened would get the messages
        redirect_to_null(2)
        sys.stderr = open(2, "w")
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    speak_utf8()
    with redirect_stderr(SilencedWhenUnread(sys.stderr)):
        return run(arguments)


def run(arguments: list[str] | None) -> int:
    """Run one command, as `main` does, when standard output and standard error are ready. -> exit code"""
    code = 0
    try:
        args = parse(arguments)
        code = args.run(args) or 0
        print(end="", flush=True)  # so that an error in writing is reported below
        return code
    except UserError as error:
        tell_error(error, str(error))
        return 2
    except (OSError, MemoryError) as error:  # a full disk, a model that is too large
        unread = isinstance(error, OSError) and is_unread(error)
        discard_unwritable_output()
        if unread:
            return code
        tell_error(error, reason_of(error))
        return 2
    except RuntimeError as error:
        from scratchformer.parallel import job  # here, because it imports NumPy

        if job.exit_code(error) == job.GAVE_UP:  # another rank does not answer, or has failed and says why
            if str(error):
                tell_error(error, str(error))
            return job.GAVE_UP
        if not type(error).__module__.startswith("cupy"):
            raise
        where = f"{TRACEBACK}=1 and CUDA_LAUNCH_BLOCKING=1 in the environment show where"
        tell_error(error, f"the GPU failed: {in_one_line(error)}; {where}")
        return 1
    except KeyboardInterrupt:
        tell("scratchformer: interrupted")
        return 130


def tell_error(error: BaseException, line: str) -> None:
    """Print an error as one line, and above it its traceback if the environment asks for that."""
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    tell(f"scratchformer: {line}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The parsed arguments; `arguments` among them is the list of words, for processes that run the same command.

    argparse takes no FILE of `translate` that comes after an option, so these are added here. Raises UserError for
    words that mean nothing.
    """
    top = parser()
    args, rest = top.parse_known_args(arguments)
    args.arguments = sys.argv[1:] if arguments is None else [str(word) for word in arguments]
    options = rest[: rest.index("--")] if "--" in rest else rest
    if rest and args.command == "translate" and not any(word.startswith("-") and word != "-" for word in options):
        args.files += [path(word) for word in [*options, *rest[len(options) + 1 :]]]
    elif rest:
        args.parser.error(f"no argument {shown(rest[0])}{nearest(rest[0], args.parser._option_string_actions)}")
    return args


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="scratchformer",
        description=scratchformer.__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the lines of the examples
    )
    top.add_argument("--version", action=Version, nargs=0, help="print the version")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    train.add(commands)
    translate.add(commands)
    evaluate.add(commands)
    average.add(commands)
    export.add(commands)
    export.add_import(commands)
    generate.add(commands)
    fill.add(commands)
    gradcheck.add(commands)
    doctor.add(commands)
    plot.add(commands)
    heads.add(commands)
    explore.add(commands)
    data.add(commands)
    config.add(commands)
    learn.add(commands)
    demo.add(commands)
    return top


def reason_of(error: OSError | MemoryError) -> str:
    """What is wrong, and where."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'standard input or output'}: {error.strerror}"
    return str(error) or "not enough memory"


def discard_unwritable_output() -> None:
    """If standard output cannot be written, discard its buffer: else Python would fail on it when it exits."""
    try:
        print(end="", flush=True)
    except OSError:
        redirect_to_null(sys.stdout.fileno())
