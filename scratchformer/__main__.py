"""The entry point of `python -m scratchformer` and of the command `scratchformer`.

Other modules are imported inside its guard, so that Ctrl-C ends the program with one line while they are imported, too.
"""

import os
import sys


def main() -> int:
    """Run the command -> its exit code, 130 if it is interrupted"""
    os.environ["MPLBACKEND"] = "Agg"  # figures go into files; a notebook's backend may not be installed here
    try:
        from scratchformer.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("scratchformer: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
