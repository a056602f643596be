"""What test_faults.py starts as a rank: benchmarks/faulty.py, its --timeout in force only once the ranks have met.

On a busy machine one of them may start some seconds after the other. A fault may strike before they have met, too, and
must then be noticed within what the test allows.
"""

import runpy
import sys
from pathlib import Path

from scratchformer.parallel.shared_memory import SharedMemory

START = 8.0  # seconds


def join(ranks, path, rank, size, watchdog, original=SharedMemory.__init__):
    timeout, watchdog.seconds = watchdog.seconds, max(watchdog.seconds, START)
    original(ranks, path, rank, size, watchdog)
    watchdog.seconds = timeout
    watchdog._set(timeout)


SharedMemory.__init__ = join
sys.argv[0] = str(Path(__file__).parents[2] / "benchmarks" / "faulty.py")
runpy.run_path(sys.argv[0], run_name="__main__")
