"""Started by test_faults.py as a rank: benchmarks/faulty.py with a longer timeout until all ranks have connected.

On a busy machine one rank may start some seconds after the other. A fault that happens before they have connected must
still be noticed within the time that the test allows.
"""

import runpy
import sys
from pathlib import Path

from scratchformer.parallel.shared_memory import SharedMemory

START_TIMEOUT = 8.0  # seconds


def join(ranks, path, rank, size, watchdog, original=SharedMemory.__init__):
    timeout, watchdog.seconds = watchdog.seconds, max(watchdog.seconds, START_TIMEOUT)
    original(ranks, path, rank, size, watchdog)
    watchdog.seconds = timeout
    watchdog.set(timeout)


SharedMemory.__init__ = join
sys.argv[0] = str(Path(__file__).parents[2] / "benchmarks" / "faulty.py")
runpy.run_path(sys.argv[0], run_name="__main__")
