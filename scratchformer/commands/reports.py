"""What came of a run, beside the paper."""

import argparse

from scratchformer.experiments.report import write_report
from scratchformer.training.run import RunDirectory


def report(args: argparse.Namespace) -> None:
    print(write_report(RunDirectory(args.path), args.out, args.tflops))
