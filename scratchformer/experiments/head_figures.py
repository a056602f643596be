"""Figures of attention heads: what each one does and how much it matters, and what is left when heads are removed.

The conventions are those of `figures`: each function returns a matplotlib Figure.
"""

from __future__ import annotations

from typing import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from scratchformer.experiments.figures import ACCENT, DARK, LIGHT, as_default_style, draw_matrix, label
from scratchformer.experiments.head_importance import Curve
from scratchformer.experiments.head_report import HeadReport

COLUMNS = 4
"""How many maps stand side by side."""

STYLES = {
    "greedy": (DARK, "o-"),
    "by loss": (DARK, "s--"),
    "by gradient": (ACCENT, "^-"),
    "by loss, reversed": (LIGHT, "v-"),
}
"""Colour, marker and line of each order."""


@as_default_style
def maps_figure(report: HeadReport) -> Figure:
    """Draw the heads as grids: a row for each attention, a column for each head, and the number in its cell.

    The first two maps show importance, in nats per token: the rise of the loss without the head, and E |dL/dxi|. The
    others show a statistic each, 0 to 1, of the heads that it is about. A frame marks the heads that have the role.
    """
    H, roles = report.rises.shape[1], report.roles.roles
    rows = [name.rpartition(".")[0] for name in report.names[::H]]  # encoder 1, encoder 2, ...
    n_lines = -(-(2 + len(roles)) // COLUMNS)
    figure = Figure(figsize=(3.2 * COLUMNS, (0.25 * len(rows) + 1.2) * n_lines), layout="constrained")
    grid = figure.subplots(n_lines, COLUMNS, squeeze=False).reshape(-1)
    draw_map(grid[0], report.rises, rows, "loss without it: rise", float(report.rises.max()), 3)
    draw_map(grid[1], report.gradients, rows, "E |dL/dξ|", float(report.gradients.max()), 3)
    for axes, role in zip(grid[2:], roles):
        own = [row for row in rows if row.startswith(role.kind)]
        draw_map(axes, role.scores, own, f"{role.name}\n({role.by}: {role.baseline:.2f})", 1.0, 2)
        for layer, head in np.argwhere(report.roles.heads_with(role)):
            axes.add_patch(Rectangle((head - 0.5, layer - 0.5), 1, 1, fill=False, edgecolor=ACCENT, linewidth=3))
    for axes in grid[2 + len(roles) :]:
        axes.set_axis_off()
    return figure


def draw_map(axes: Axes, values: np.ndarray, rows: Sequence[str], title: str, highest: float, digits: int) -> None:
    """values (rows, H), of which 0 is the darkest."""
    draw_matrix(axes, values, 0, max(highest, np.finfo(float).tiny))
    for (row, column), value in np.ndenumerate(values):
        colour = "black" if value > highest / 2 else "white"
        axes.text(column, row, f"{value:.{digits}f}", ha="center", va="center", color=colour, fontsize="x-small")
    axes.set_xticks(range(values.shape[1]), [f"{head + 1}" for head in range(values.shape[1])])
    axes.set_yticks(range(len(rows)), rows)
    axes.set_title(title, fontsize="medium")


@as_default_style
def pruning_figure(report: HeadReport) -> Figure:
    """Draw loss (nats per target token) and BLEU over the number of heads removed, a line for each order.

    The random orders are drawn as a band from the lowest to the highest, with their mean.
    """
    figure = Figure(figsize=(8, 6.5), layout="constrained")
    loss_axes, bleu_axes = figure.subplots(2, sharex=True)
    named = {name: curve for name, curve in report.curves.items() if name in STYLES}
    drawn = [curve for name, curve in report.curves.items() if name not in STYLES]
    for axes, points in ((loss_axes, losses_of), (bleu_axes, bleus_of)):
        x = points(drawn[0])[0]
        heights = np.array([points(curve)[1] for curve in drawn])
        axes.fill_between(x, heights.min(axis=0), heights.max(axis=0), color="0.85")
        axes.plot(x, heights.mean(axis=0), color="0.5", label=f"{len(drawn)} random orders: mean and range")
        for name, curve in named.items():
            colour, style = STYLES[name]
            axes.plot(*points(curve), style, color=colour, markersize=4, label=name)
    label(loss_axes, "Loss without some heads", y="nats per target token")
    label(bleu_axes, "BLEU without some heads, greedy search", x=f"heads removed, of {len(report.names)}", y="BLEU")
    bleu_axes.legend()
    return figure


def losses_of(curve: Curve) -> tuple[list[int], list[float]]:
    """Numbers of removed heads, and the loss at each."""
    return list(range(len(curve.losses))), curve.losses


def bleus_of(curve: Curve) -> tuple[list[int], list[float]]:
    """Numbers of removed heads for which there is BLEU, and BLEU at each."""
    return list(curve.bleus), list(curve.bleus.values())
