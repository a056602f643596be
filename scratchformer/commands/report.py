"""`scratchformer report`: write down what a run was, what it reached and what it cost."""

import argparse
from pathlib import Path

from scratchformer.commands.options import Commands, add_command, add_run


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "report",
        report,
        "write a page on a run: its settings, scores and costs, beside the paper's",
        "report runs/m30k --tflops 0.2",
    )
    add_run(parser, checkpoint=False)
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: RUN/report)")
    parser.add_argument(
        "--tflops",
        type=float,
        metavar="X",
        help="what the machine can sustain, in TFLOPS of all its devices together; the report then says "
        "which share of it the run has used",
    )


def report(args: argparse.Namespace) -> None:
    from scratchformer.experiments.report import write_report
    from scratchformer.training.run import RunDirectory

    print(write_report(RunDirectory(args.path), args.out, args.tflops))
