"""Confidence and accuracy of a model as a picture (lesson 14)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure


def diagram(runs: dict[tuple[int, float], list[dict[str, Any]]], lines: Sequence[tuple[float, str, str]]) -> Figure:
    """The share of guesses that is right over their probability, one panel for each number of training pairs.

    runs    (training pairs, smoothing) -> the runs recorded by benchmarks/label_smoothing.py
    lines   smoothing, style, colour; all runs of a line together, without bins of fewer than 100 guesses
    """
    sizes = sorted({pairs for pairs, _ in runs})
    figure, panels = plt.subplots(1, len(sizes), figsize=(8, 4), sharey=True, layout="constrained")
    for panel, pairs in zip(panels, sizes):
        panel.plot([0, 1], [0, 1], color="#888888", lw=0.8)
        for smoothing, style, colour in lines:
            count, sure, right = (
                np.array([run["calibration"][name] for run in runs[pairs, smoothing]], float)
                for name in ("count", "confidence", "accuracy")
            )  # (runs, bins)
            shown = count.sum(axis=0) >= 100
            x, y = (np.nansum(count * mean, axis=0)[shown] / count.sum(axis=0)[shown] for mean in (sure, right))
            panel.plot(x, y, style, color=colour, label=f"smoothing {smoothing}")
        panel.set(xlabel="probability of the guess", title=f"{pairs:,} pairs to learn from")
        panel.set_aspect("equal")
    panels[0].set_ylabel("share of these guesses that is right")
    panels[-1].legend(loc="lower right")
    return figure
