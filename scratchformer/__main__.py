"""`python -m scratchformer` is the command `scratchformer`."""

import sys

from scratchformer.cli import main

sys.exit(main())
