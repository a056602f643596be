"""The pictures of lesson 06: who may look at what, four words by hand, two kinds of mask, maps of
attention weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from scratchformer.experiments.figures import ACCENT, COLOUR_MAP
from support.drawing import Drawing, Role, number

READS, WRITES = ["<s>", "the", "animal", "slept"], ["the", "animal", "slept", "</s>"]
EXPONENTIALS = np.array([[1, 4, 3, 2], [1, 3, 4, 2], [1, 2, 5, 12], [1, 1, 5, 1]])
"""e to the score of query t and key s"""
VALUES = np.array([0, 4, 8, 20])


def shift() -> Drawing:
    """Draw the words read and written, and the positions that each written word may look at."""
    drawing = Drawing(780, 380)
    columns = [230 + 120 * t for t in range(4)]
    for y, words in (30, "has to write"), (70, "dashed: the same word"), (110, "reads"), (160, "which position"):
        drawing.text(150, y, words, "soft", 13, anchor="end")
    drawing.text(150, 176, "may look at what?", "soft", 13, anchor="end")
    drawing.text(724, 176, "has to write", "soft", 13)
    for t, x in enumerate(columns):
        above = drawing.vector(x, 30, [WRITES[t]], cell=92, height=32)
        below = drawing.vector(x, 110, [READS[t]], "key", cell=92, height=32)
        drawing.arrow(below.top, above.bottom)
        if t:
            drawing.line([(x - 38, 92), (columns[t - 1] + 38, 48)], "ink", 1.6, dashed=True)
    for t in range(4):
        y = 210 + 48 * t
        asks = drawing.vector(96, y, [READS[t]], "query", cell=92, height=32)
        drawing.arrow(asks.right, (columns[0] - 54, y))
        drawing.arrow((columns[3] + 54, y), drawing.vector(724, y, [WRITES[t]], cell=92, height=32).left)
        for s, x in enumerate(columns):
            if s <= t:
                drawing.vector(x, y, [READS[s]], "key", cell=92, height=32)
            else:
                drawing.rectangle(x, y, 92, 32, "soft", 0.1, outline=s == t + 1)
                drawing.text(x, y, "next word" if s == t + 1 else "later", "soft", 13)
    return drawing


def by_hand(backward: bool = False) -> Drawing:
    """Scores, weights, values and results of four words; backward: with the gradients if each result's is 1."""
    drawing = Drawing(780, 460)
    allowed = np.tril(EXPONENTIALS)
    totals = allowed.sum(axis=1)
    weights = allowed / totals[:, None]
    results = weights @ VALUES
    dscores = np.round(weights * (VALUES - results[:, None]), 12)
    left, right = [122 + 66 * s for s in range(4)], [452 + 68 * s for s in range(4)]
    drawing.text(221, 18, "scores z", bold=True)
    drawing.text(554, 18, "weights w", bold=True)
    drawing.text(404, 68, "value", "soft", 13, anchor="end")
    drawing.text(746, 98, "result", "soft", 13)
    if not backward:
        drawing.text(382, 98, "sum", "soft", 13)
    for s, word in enumerate(READS):
        drawing.vector(left[s], 68, [word], "key", cell=60, height=28, size=14)
        drawing.vector(right[s], 68, [VALUES[s]], "value", cell=58, height=28, above=word)
        if backward:
            column = weights[:, s].sum()
            drawing.gradient(right[s] - 19, 98, -column, number(column, sign=True), 13, largest=2)
    for t, total in enumerate(totals):
        y = 146 + 76 * t
        drawing.vector(44, y, [READS[t]], "query", cell=64, height=30, size=14)
        for s, e in enumerate(EXPONENTIALS[t]):
            hidden, score = s > t, "0" if e == 1 else f"ln {e}"
            ink: Role = "soft" if hidden else "ink"
            drawing.rectangle(left[s], y, 60, 66, "soft" if hidden else "plain", 0.13 * hidden, outline=not hidden)
            drawing.text(left[s], y - 16, score, ink)
            if hidden:
                drawing.line([(left[s] - 18, y - 16), (left[s] + 18, y - 16)], "ink", 1.4)
                drawing.rectangle(right[s], y, 58, 66, "soft", 0.13, outline=False)
                drawing.text(right[s], y, "0", "soft")
            else:
                drawing.bar(right[s], y - 9, e / total, 44, 44, "1" if e == total else f"{e}/{total}")
            if not backward:
                drawing.text(left[s], y + 13, "−∞" if hidden else f"e^z = {e}", "ink" if hidden else "soft", 14)
            elif dscores[t, s]:
                words = number(dscores[t, s], sign=True)
                drawing.gradient(left[s] - 17, y + 13, -dscores[t, s], words, 13, largest=1.5)
            else:
                drawing.text(left[s], y + 13, "0", "gradient", 14, italic=True)
        result = drawing.vector(746, y, [results[t]], "value", cell=46)
        if backward:
            drawing.gradient(result.x - 6, y + 28, -1, "+1", 13, largest=2)
        else:
            drawing.text(382, y, int(total))
    words = "row “animal”: 1/8 · 0 + 2/8 · 4 + 5/8 · 8 = 6"
    if backward:
        words = (
            "gradient of a score = weight × (value − result); gradient of a value = sum of the weights in its column"
        )
    drawing.text(12, 438, words, "soft", 14, anchor="start")
    return drawing


def masks() -> Drawing:
    """The causal mask, the padding mask, and the causal mask of the last two queries."""
    drawing = Drawing(730, 250)
    padded = ["it", "slept", "pad", "pad"]
    for i, (title, words, length, queries) in enumerate(
        [("causal mask", READS, 4, 4), ("padding mask", padded, 2, 4), ("causal, last two queries", READS, 4, 2)]
    ):
        x0, causal = 90 + 240 * i, words is READS
        drawing.text(x0 + 66, 20, title, bold=True)
        for s, word in enumerate(words):
            drawing.text(x0 + 44 * s, 48, word, "soft" if word == "pad" else "ink", 12)
        for t in range(4 - queries, 4):
            y = 78 + 44 * (t - 4 + queries)
            drawing.text(x0 - 42, y, words[t], "soft" if words[t] == "pad" else "ink", 12)
            for s in range(4):
                if s < length and (s <= t or not causal):
                    drawing.rectangle(x0 + 44 * s, y, 38, 38, "key", 0.4)
                else:
                    drawing.rectangle(x0 + 44 * s, y, 38, 38, "soft", 0.13, outline=False)
                    drawing.text(x0 + 44 * s, y, "−∞", "soft", 13)
    return drawing


def maps(words: Sequence[str], weights: Mapping[str, np.ndarray]) -> Figure:
    """Maps of attention weights (T, T) side by side, title -> weights; the cell of the next word is framed.

    words  the T words that are read, and the last one to guess
    """
    read, T = list(words[:-1]), len(words) - 1
    colours = plt.get_cmap(COLOUR_MAP).with_extremes(bad="#00000000")  # empty: exactly 0
    figure, panels = plt.subplots(1, len(weights), figsize=(8, 4.2), sharey=True, layout="constrained", squeeze=False)
    for panel, (title, shown) in zip(panels[0], weights.items()):
        image = panel.imshow(np.ma.masked_equal(shown, 0), colours, vmin=0, vmax=1)
        for t in range(T - 1):
            panel.add_patch(plt.Rectangle((t + 0.5, t - 0.5), 1, 1, fill=False, ec=ACCENT, lw=2))
        panel.set_xticks(range(T), read, rotation=90)
        panel.set(title=title, xlabel="word looked at")
    panels[0, 0].set_yticks(range(T), [f"{a} → {b}" for a, b in zip(words, words[1:])])
    panels[0, 0].set_ylabel("position → word to guess")
    figure.colorbar(image, ax=panels, shrink=0.8, label="attention weight (empty: exactly 0)")
    return figure
