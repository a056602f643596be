"""The entry point of `python -m scratchformer` and of the command `scratchformer`."""

import os
import sys


def main() -> int:
    """Run the command -> its exit code"""
    os.environ["MPLBACKEND"] = "Agg"  # figures go into files; a notebook's backend may not be installed here
    try:
        from scratchformer.cli import main as run

        return run()
    except KeyboardInterrupt:  # during the imports
        print("scratchformer: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
