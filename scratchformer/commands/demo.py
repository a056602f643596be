"""The first thing that a newcomer runs."""

import argparse

from scratchformer.backends.cpu import keep_freed_memory
from scratchformer.experiments.demo import run_demo
from scratchformer.parallel import launcher


def demo(args: argparse.Namespace) -> int:
    keep_freed_memory()
    return 0 if run_demo(args.out) else launcher.INTERRUPTED
