"""`scratchformer report`: write down what a run was, what it reached and what it cost."""

import argparse

from scratchformer.commands.options import Commands, add_command, add_option, add_run, path, real


def add(commands: Commands) -> None:
    parser = add_command(commands, "report", report)
    add_run(parser, checkpoint=False)
    add_option(parser, "--out DIR", path, "where to write (default: RUN/report)")
    sustained = "what the machine can sustain, in TFLOPS of all its devices together"
    add_option(
        parser, "--tflops X", real(1e-6, 1e9), f"{sustained}; the report then says which share of it the run has used"
    )


def report(args: argparse.Namespace) -> None:
    """Write a page on a run: its settings, scores and costs, beside the paper's.

    scratchformer report runs/m30k --tflops 0.2
    """
    from scratchformer.experiments.report import write_report
    from scratchformer.training.run import RunDirectory

    print(write_report(RunDirectory(args.path), args.out, args.tflops))
