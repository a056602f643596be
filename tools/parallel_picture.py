"""Draw docs/parallel.svg: one step of two ranks with a GPU each, who computes, who sends what, when.

    python tools/parallel_picture.py

A drawing, not a measurement: widths are chosen so that the order can be seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt

PAGE = Path(__file__).parents[1] / "docs" / "parallel.svg"
FORWARD, BACKWARD, SENT, AFTER = "#9ecae1", "#fdae6b", "#74c476", "#bcbddc"


class Box(NamedTuple):
    begin: float
    width: float
    text: str
    colour: str


COMPUTE = [
    Box(0, 3, "forward, micro-batch", FORWARD),
    Box(3, 1.3, "loss", BACKWARD),
    Box(4.3, 1.5, "decoder 2", BACKWARD),
    Box(5.8, 1.5, "decoder 1", BACKWARD),
    Box(7.3, 1.2, "encoder 2", BACKWARD),
    Box(8.5, 1.2, "encoder 1", BACKWARD),
    Box(9.7, 1.3, "embeddings", BACKWARD),
]
LATER = 0.4
"""Rank 1 is a little behind: a sum begins when both have filled the bucket."""

SENDING = [
    Box(5.8 + LATER, 1.2, "decoder 2", SENT),
    Box(7.3 + LATER, 1.2, "decoder 1", SENT),
    Box(8.5 + LATER, 1.0, "encoder 2", SENT),
    Box(9.7 + LATER, 1.0, "encoder 1", SENT),
    Box(11.0 + LATER, 1.9, "embeddings", SENT),
    Box(12.9 + LATER, 0.6, "loss", SENT),
]
WAITING = [Box(13.5 + LATER, 1.5, "mean, norm", AFTER), Box(15 + LATER, 1.3, "Adam", AFTER)]


def rows() -> dict[str, list[Box]]:
    behind = [box._replace(begin=box.begin + LATER) for box in COMPUTE]
    return {
        "rank 0, compute": COMPUTE + WAITING,
        "rank 0, NCCL": SENDING,
        "rank 1, NCCL": SENDING,
        "rank 1, compute": behind + WAITING,
    }


def draw() -> None:
    plt.rcParams |= {"svg.hashsalt": "parallel", "svg.fonttype": "none"}
    figure, axes = plt.subplots(figsize=(13, 3.4), layout="constrained")
    for y, boxes in enumerate(rows().values()):
        for box in boxes:
            axes.barh(y, box.width, left=box.begin, height=0.72, color=box.colour, edgecolor="white")
            text = box.text.replace(" ", "\n") if box.width < 1.6 else box.text
            axes.text(box.begin + box.width / 2, y, text, ha="center", va="center", fontsize=8)
    for box in SENDING:
        axes.annotate(
            "",
            (box.begin + box.width / 2, 2),
            (box.begin + box.width / 2, 1),
            zorder=0,
            arrowprops={"arrowstyle": "<->", "color": "#238b45", "shrinkA": 13, "shrinkB": 13},
        )
    axes.set_yticks(range(4), rows())
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.set_xlabel("time, one optimizer step")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    figure.savefig(PAGE, metadata={"Date": None})


if __name__ == "__main__":
    draw()
