"""Started by test_faults.py as a rank: benchmarks/faulty.py with a longer timeout until all ranks have connected, since
one may start some seconds after the other on a busy machine."""

import runpy
import sys
from pathlib import Path

from scratchformer.parallel.shared_memory import SharedMemory


def join(ranks, path, rank, size, watchdog, original=SharedMemory.__init__):
    timeout, watchdog.seconds = watchdog.seconds, 8.0
    original(ranks, path, rank, size, watchdog)
    watchdog.seconds = timeout
    watchdog.set(timeout)


SharedMemory.__init__ = join
sys.argv[0] = str(Path(__file__).parents[2] / "benchmarks" / "faulty.py")
runpy.run_path(sys.argv[0], run_name="__main__")
