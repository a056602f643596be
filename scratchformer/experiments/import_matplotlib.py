"""Import matplotlib, which reads MPLBACKEND and a file `matplotlibrc` meanwhile, and fails if they hold nonsense.

Figures need neither: they open no window, and all have matplotlib's default style.

Raises UserError if matplotlib cannot be imported without them, either.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from scratchformer.errors import UserError, in_one_line


def import_without_settings() -> None:
    """Begin the import again, from a directory without settings, and with those that matplotlib comes with."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        del sys.modules[name]
    found = importlib.util.find_spec("matplotlib")
    assert found and found.origin
    settings = {"MATPLOTLIBRC": str(Path(found.origin).parent / "mpl-data" / "matplotlibrc"), "MPLBACKEND": "agg"}
    here, before = os.open(".", os.O_RDONLY), dict(os.environ)
    try:
        os.chdir("/")
        os.environ.update(settings)
        importlib.import_module("matplotlib.style")
    finally:
        os.fchdir(here)
        os.close(here)
        os.environ.clear()
        os.environ.update(before)


try:
    importlib.import_module("matplotlib.style")
except (OSError, ValueError):
    try:
        import_without_settings()
    except (OSError, ValueError) as error:
        raise UserError(f"matplotlib cannot be imported: {in_one_line(error)}") from None
