"""The words of the bundled corpus with their gender, number and case, as its grammar knows them."""

import sys

from library.lesson import ROOT

sys.path.append(str(ROOT / "tools"))

from grammar import read_lexicon  # noqa: E402

__all__ = ["read_lexicon"]
