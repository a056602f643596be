"""What test_launcher.py starts: `scratchformer train` as a rank, with something else in the place of training.

python rank.py SCENE                       one rank of two
python rank.py launch DIRECTORY SCENE      both, by a launcher that makes its files in DIRECTORY
"""

import atexit
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

if sys.argv[1:] == ["slow_start"]:  # before it can hear or say anything
    time.sleep(60)

import numpy as np

from scratchformer import cli
from scratchformer.commands import training
from scratchformer.errors import UserError
from scratchformer.parallel import launcher, watchdog

watchdog.MARGIN = 60.0  # no scene is about the watchdog

PATIENCE = 2.0
"""Seconds, of a rank that is to wait in vain. All others are patient: the machine may be busy."""


def fine(ranks):
    print(f"rank {ranks.rank} is fine", file=sys.stderr)
    numbers = np.arange(5.0)
    ranks.all_reduce_(numbers)
    assert numbers.tolist() == [0, 2, 4, 6, 8]


def refuse_0(ranks):
    if ranks.rank == 0:
        raise UserError("this cannot be")
    ranks.barrier()


def refuse_1(ranks):
    if ranks.rank == 1:
        raise UserError("this cannot be")
    ranks.barrier()


def refuse_both(ranks):
    raise UserError("this cannot be")


def exit_3(ranks):
    if ranks.rank == 1:
        os._exit(3)
    ranks.barrier()


def leave(ranks):
    if ranks.rank == 1:
        os._exit(0)
    ranks.barrier()


def chatter(ranks):
    if ranks.rank == 1:
        for line in range(20_000):
            print("line", line, "of too many", file=sys.stderr)
        raise RuntimeError("that was it")
    ranks.barrier()


def stop_last(ranks):
    """When the other one has nothing more to do."""
    if ranks.rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    ranks.watchdog.seconds = PATIENCE


def stop_at_exit(ranks):
    """When the other one has left."""
    if ranks.rank == 0:
        atexit.register(os.kill, os.getpid(), signal.SIGSTOP)


def late(ranks):
    """When the other one's patience is at its end."""
    if ranks.rank == 0:
        while not ranks.failure[0]:
            time.sleep(0.01)
        ranks.barrier()
    ranks.watchdog.seconds = PATIENCE
    ranks.barrier()


@contextmanager
def hearing_signals(ranks):
    """As in training; rank 1 says when both do. -> what to ask whether one has come"""
    from scratchformer.training.loop import stop_on_signals

    with stop_on_signals() as stop:
        ranks.barrier()
        if ranks.rank == 1:
            print("both hear", file=sys.stderr)
        yield stop


def interrupted(ranks):
    """Stop when asked to; but rank 0 still has something to write."""
    with hearing_signals(ranks) as stop:
        votes = np.zeros(1)
        while not votes[0]:
            votes[0] = stop.requested
            ranks.all_reduce_(votes)
    if ranks.rank == 0:
        time.sleep(0.5)
        print("written", file=sys.stderr)
    return launcher.INTERRUPTED


def stubborn(ranks):
    """Pay no heed to a first Ctrl-C, but say so."""

    def say_so():
        while not stop.requested:
            time.sleep(0.01)
        print("no heed", file=sys.stderr)

    with hearing_signals(ranks) as stop:
        threading.Thread(target=say_so, daemon=True).start()
        while True:
            ranks.barrier()


if __name__ == "__main__":
    scene, *arguments = sys.argv[1:]
    if scene == "launch":
        launcher.IN_MEMORY = Path(arguments[0])
        sys.exit(launcher.launch([sys.executable, __file__, arguments[1]], 2))
    training.train_as_one = lambda args, run, config, ranks: globals()[scene](ranks)
    sys.exit(cli.main(["train", "--nproc", "2", "--timeout", "60"]))
