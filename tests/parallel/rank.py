"""Started by test_launcher.py: `scratchformer train` as a rank, with one of the functions below instead of training.

python rank.py FUNCTION ...                one of two ranks
python rank.py launch DIRECTORY FUNCTION   both, by a launcher whose files are in DIRECTORY
"""

import os
import sys
import time
from contextlib import contextmanager
from pathlib import Path

if sys.argv[1:] == ["slow_start"]:  # before any signal handler is installed
    time.sleep(60)

import numpy as np

from scratchformer import cli
from scratchformer.commands import train
from scratchformer.errors import UserError
from scratchformer.parallel import job, launcher
from scratchformer.training.loop import stop_on_signals

function, *arguments = sys.argv[1:]


def fine(ranks):
    print(f"rank {ranks.rank} is fine", file=sys.stderr)
    numbers = np.arange(5.0)
    ranks.all_reduce_inplace(numbers)
    assert numbers.tolist() == [0, 2, 4, 6, 8]


def refuse(ranks):
    """`refuse RANKS`: these ranks raise."""
    if str(ranks.rank) in arguments[0]:
        raise UserError("this cannot be")
    ranks.barrier()


def leave(ranks):
    """`leave CODE`: rank 1 exits with this code."""
    if ranks.rank == 1:
        os._exit(int(arguments[0]))
    ranks.barrier()


@contextmanager
def handling_signals(ranks):
    """Install the signal handlers of training; rank 1 prints when both ranks have done so. -> the signals"""
    with stop_on_signals() as stop:
        ranks.barrier()
        if ranks.rank == 1:
            print("both ready", file=sys.stderr)
        yield stop


def interrupted(ranks):
    """Both ranks stop when asked to, but rank 0 still has something to write."""
    with handling_signals(ranks) as stop:
        votes = np.zeros(1)
        while not votes[0]:
            votes[0] = bool(stop)
            ranks.all_reduce_inplace(votes)
    if ranks.rank == 0:
        time.sleep(0.5)
        print("written", file=sys.stderr)
    return job.INTERRUPTED


def stubborn(ranks):
    """Train for ever."""
    with handling_signals(ranks):
        while True:
            ranks.barrier()


if __name__ == "__main__":
    if function == "launch":
        launcher.MEMORY_DIRECTORY = Path(arguments[0])
        sys.exit(launcher.launch([sys.executable, __file__, arguments[1]], 2))
    train.train_as_one = lambda args, run, config, ranks: globals()[function](ranks)
    sys.exit(cli.main(["train", "--nproc", "2", "--timeout", "60"]))
