"""The command line: the command `scratchformer`, its subcommands and its exit codes."""

import argparse
import importlib
import os
import sys
import traceback
from contextlib import redirect_stderr

import scratchformer
from scratchformer.commands.options import Commands, Parser, Version
from scratchformer.commands.terminal import IgnoreUnwritable, discard, force_utf8, tell
from scratchformer.errors import UserError, in_one_line

EXAMPLES = """\
examples:
  scratchformer train tiny                          a small model on the bundled corpus, in minutes
  echo "The dog ate the apple." | scratchformer translate runs/tiny
  scratchformer gradcheck                           check every hand-written gradient
  scratchformer doctor                              why does a model not learn? examine code, text and machine
  scratchformer learn start                         write the Transformer yourself, with a checker that explains
  scratchformer plot runs/tiny attention --sentence "The dog ate the apple."
  scratchformer explore runs/tiny                   a page in which the model runs: try it, take it apart
"""

TRACEBACK = "SCRATCHFORMER_TRACEBACK"
"""The environment variable with which an error shows its traceback, too."""

COMMANDS = [
    *("train", "translate", "evaluate", "average", "export", "import", "generate", "fill", "gradcheck", "doctor"),
    *("runs", "plot", "heads", "explore", "data", "config", "learn", "demo"),
]


def main(arguments: list[str] | None = None) -> int:
    """Run one command -> exit code: 0 done, 1 a check, a GPU or a rank failed, 2 an error, 130 interrupted

    A rank that gives up because another one has failed ends with code 75. Every error is told in one line.
    """
    if sys.stderr is None:  # closed
        sys.stderr = open(os.devnull, "w")
    force_utf8()
    with redirect_stderr(IgnoreUnwritable(sys.stderr)):
        try:
            args = parse(sys.argv[1:] if arguments is None else [str(word) for word in arguments])
            code = args.run(args) or 0
            print(end="", flush=True)  # so that an error in writing is reported below
            return code
        except KeyboardInterrupt:
            tell("scratchformer: interrupted")
            return 130
        except BrokenPipeError:  # `... | head` has read enough
            discard(sys.stdout)
            return 0
        except Exception as error:
            return tell_error(error)


def tell_error(error: Exception) -> int:
    """Print an error as one line, and above it its traceback if the environment asks for that -> exit code

    An unexpected error is told with its place in the code.
    """
    try:
        print(end="", flush=True)
    except OSError:  # a full disk
        discard(sys.stdout)
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    if isinstance(error, (UserError, OSError, MemoryError)):
        reason = str(error) or "not enough memory"
        if isinstance(error, OSError) and error.strerror:  # a full disk
            reason = f"{error.filename or 'standard input or output'}: {error.strerror}"
        tell(f"scratchformer: {reason}")
        return 2
    from scratchformer.parallel import job  # here, because it imports NumPy

    code = job.exit_code(error)
    if code == job.GAVE_UP:  # another rank does not answer, or has failed and says why
        if str(error):
            tell(f"scratchformer: {error}")
        return code
    if type(error).__module__.startswith("cupy"):
        where = f"{TRACEBACK}=1 and CUDA_LAUNCH_BLOCKING=1 in the environment show where"
        tell(f"scratchformer: the GPU failed: {in_one_line(error)}; {where}")
        return code
    frames, registry = traceback.extract_tb(error.__traceback__), sys.modules.get("scratchformer.nn.registry")
    own = list(map(str, registry.LOADED)) if registry else []  # files of the user's layers
    last = ([frame for frame in frames if frame.filename in own] or frames)[-1]
    place = f"{os.path.basename(last.filename)}, line {last.lineno}"
    hint = f"{'sf.gradcheck checks a layer of yours; ' if own else ''}{TRACEBACK}=1 shows all of it"
    tell(f"scratchformer: unexpected {type(error).__name__} in {place}: {in_one_line(error)}; {hint}")
    return code if job.is_rank() else 2


def parse(words: list[str]) -> argparse.Namespace:
    """The parsed arguments, and `arguments`, the words themselves, for processes that run the same command."""
    named = words[:1] if words and words[0] in COMMANDS else []
    top, commands = parser(named or COMMANDS)
    if named:
        args = commands.choices[words[0]].parse_intermixed_args(words[1:])
    else:
        args = top.parse_args(words)  # --help, --version, or an error
    args.arguments = words
    return args


def parser(names: list[str] = COMMANDS) -> tuple[argparse.ArgumentParser, Commands]:
    """The parser, and in its `choices` those of these subcommands."""
    top = Parser(
        prog="scratchformer",
        description=scratchformer.__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the lines of the examples
    )
    top.add_argument("--version", action=Version, nargs=0, help="print the version")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in dict.fromkeys("export" if name == "import" else name for name in names):
        importlib.import_module(f"scratchformer.commands.{module}").add(commands)
    return top, commands
