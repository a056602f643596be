"""Python imports this first in each process that the emulated tests start."""

import os
import traceback

import emulation

try:
    emulation.install()
except BaseException:  # Python would go on without the emulation
    traceback.print_exc()
    os._exit(70)
