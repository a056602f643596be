"""The builder of the lessons is not a package: its directory goes where Python looks for modules."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
