"""The first thing that a newcomer runs."""

import argparse

from scratchformer.nn.fast_ops import keep_freed_memory
from scratchformer.parallel import launcher
from scratchformer.study.demo import run_demo


def demo(args: argparse.Namespace) -> int:
    keep_freed_memory()
    return 0 if run_demo(args.out) else launcher.INTERRUPTED
