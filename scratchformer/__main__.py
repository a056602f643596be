"""`python -m scratchformer` is the command `scratchformer`."""

import sys

try:
    from scratchformer.cli import main

    sys.exit(main())
except KeyboardInterrupt:  # while it is still being read
    sys.exit(130)
