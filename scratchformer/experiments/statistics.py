"""How sure a measured share is."""

from __future__ import annotations

import math

Z = 1.959964
"""A normal variable lies within this many standard deviations in 95 % of cases."""


def wilson_interval(right: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share of which `right` of n are seen, in percent (Wilson 1927)."""
    share, z2 = right / n, Z**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z * math.sqrt(share * (1 - share) / n + z2 / (4 * n**2)) / (1 + z2 / n)
    return max(0.0, 100 * (centre - half)), min(100.0, 100 * (centre + half))
