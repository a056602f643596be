"""The pictures of lesson 03: who asks, one step by hand with and without its gradients, a map of weights."""

from __future__ import annotations

from typing import Sequence

import numpy as np

from support.drawing import Box, Drawing, number

WORDS = ["Lena", "sold", "goats"]
STATES = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
QUERIES = np.array([[1.0, 0.0], [0.0, 1.0]])
"""The states of the decoder that ask: s_5, and s_4 of the twin."""

W, U, V = 8 * np.eye(2), np.log(2) * np.eye(2), np.full(2, np.log(8) / 0.6)
"""Chosen so that tanh(ln 2) = 0.6, and the exponential of the best score is 8 times the others."""


def who_asks(english: Sequence[str], german: Sequence[str], weights: np.ndarray) -> Drawing:
    """Encoder and decoder of one sentence; the decoder's last state asks all states of the encoder."""
    drawing = Drawing(780, 420)
    encoder: list[Box] = []
    decoder: list[Box] = []
    asks_at = 268
    for j, (word, weight) in enumerate(zip(english, weights), start=1):
        state = drawing.box(52 + 82 * (j - 1), 320, f"h_{j}", "value", 52, 36)
        drawing.text(state.x, 388, word, bold=True)
        drawing.arrow((state.x, 376), state.bottom)
        if encoder:
            drawing.arrow(encoder[-1].right, state.left)
        encoder.append(state)
        score = drawing.box(state.x, 218, f"z_{j}", "plain", 44, 30)
        drawing.arrow((state.x + 12, state.top[1]), (state.x + 12, score.bottom[1]), "value")
        drawing.arrow((state.x - 12, asks_at), (state.x - 12, score.bottom[1]), "query", width=2)
        bar = drawing.bar(state.x, 145, weight, 44, 56)
        drawing.arrow(score.top, bar.bottom)
        drawing.thread(bar.top, (216, 62), weight)
    for t, word in enumerate(["(start)", *german[:-1]], start=1):
        asks = t == len(german)
        state = drawing.box(478 + 66 * (t - 1), 320, f"s_{t}", "query" if asks else "plain", 44, 36)
        drawing.text(state.x, 388, word, "soft")
        drawing.arrow((state.x, 376), state.bottom)
        drawing.arrow((decoder or encoder)[-1].right, state.left)
        decoder.append(state)
    x = decoder[-1].x
    drawing.line([(x - 10, 302), (x - 10, asks_at), (encoder[0].x - 12, asks_at)], "query", 2.4)
    drawing.text(600, 254, f"s_{len(german)} asks all states of the encoder", "query", 15)
    context = drawing.box(216, 44, f"c_{len(german)}", "value", 60, 36)
    drawing.text(216, 14, "context: weights × states", "soft", 13)
    written = drawing.box(x - 16, 44, german[-1], "plain", 100, 36)
    drawing.arrow(context.right, written.left, "value", width=2)
    drawing.arrow((x + 10, 302), (x + 10, written.bottom[1]))
    for y, words in (218, "scores"), (145, "weights (softmax)"):
        drawing.text(418, y, words, "soft", 13, "start")
    drawing.text(216, 410, "the encoder reads", "soft", 13)
    drawing.text(610, 410, "the decoder reads what is already written", "soft", 13)
    return drawing


def by_hand(backward: bool = False) -> Drawing:
    """One position of the decoder asks three words; with `backward` all gradients."""
    drawing = Drawing(790, 560)
    columns = [300, 490, 680]
    asker = QUERIES[0] @ W
    hidden = np.tanh(asker + STATES @ U)
    scores = hidden @ V
    weights = np.exp(scores - scores.min())
    weights = weights / weights.sum()
    context = weights @ STATES
    dcontext = np.array([0.0, -1.0])
    offers = STATES @ dcontext
    dscores = weights * (offers - weights @ offers)
    dsums = dscores[:, None] * V * (1 - hidden**2)
    dstates = dsums @ U.T + weights[:, None] * dcontext
    steps = (175, "1  add, tanh"), (253, "2  score"), (345, "3  softmax"), (470, "4  blend")
    rules = "tanh(s_5 W + h U)", "… · v", "weight = e^z / sum", "weights × states"
    for (y, step), rule in zip(steps, rules):
        drawing.text(20, y - 9, step, bold=True, anchor="start")
        drawing.text(38, y + 11, rule, "soft", 13, "start")
    query = drawing.vector(90, 75, [round(value) for value in asker], "query", 46, above="s_5 W: who asks")
    blend = drawing.vector(490, 515, [number(round(value, 3)) for value in context], "value", 54, below="context c_5")
    for x, word, h, a, z, w in zip(columns, WORDS, STATES, hidden, scores, weights):
        drawing.text(x, 20, word, bold=True)
        drawing.vector(x, 75, [int(value) for value in h], "value", 46, above="state h")
        drawing.line([query.bottom, (90, 122), (x - 14, 122)], "query", 2)
        drawing.arrow((x - 14, 121), (x - 14, 157), "query", width=2)
        drawing.arrow((x + 14, 92), (x + 14, 157), "value")
        drawing.vector(x, 175, [number(round(value, 2)) for value in a], "plain", 46)
        drawing.text(x, 253, number(z))
        drawing.arrow((x, 193), (x, 240))
        drawing.arrow((x, 265), (x, 301))
        bar = drawing.bar(x, 345, w, 46, 80, below=number(round(w, 3)))
        drawing.thread((x, bar.bottom[1] + 24), blend.top, w)
    if not backward:
        return drawing

    def two(x: float, y: float, values: np.ndarray) -> None:
        """A gradient with two numbers; the triangle is that of the second."""
        drawing.gradient(x, y, -values[1], f"({number(values[0] + 0.0)}, {number(values[1], sign=True)})", 13)

    for x, dz, dw, dh, da in zip(columns, dscores, offers, dstates, dsums):
        two(x - 122, 75, np.array([0, dh[1]]))
        two(x - 122, 175, np.array([0, da[1]]))
        drawing.gradient(x + 42, 253, -dz, number(dz, sign=True), 14, largest=0.2)
        drawing.gradient(x + 44, 345, -dw, f"offer {number(dw)}", 13)
    two(52, 140, np.array([0, dsums.sum(axis=0)[1]]))
    two(570, 515, dcontext)
    drawing.text(38, 376, "average offer −0.8", "gradient", 13, "start", italic=True)
    return drawing


def map_of(english: Sequence[str], german: Sequence[str], weights: np.ndarray) -> Drawing:
    """Rows are German words, columns English words; a cell is as dark as its weight."""
    drawing = Drawing(600, 70 + 40 * len(german))
    shown = [[f"{value:.2f}" if value >= 0.05 else "" for value in row] for row in weights]
    grid = drawing.matrix(
        375, 50 + 20 * len(german), shown, "value", 78, 38, shades=[[0.9 * value for value in row] for row in weights]
    )
    for j, word in enumerate(english):
        drawing.text(grid.cell(j).x, 30, word, bold=True)
    for t, word in enumerate(german):
        drawing.text(160, grid.cell(0, t).y, word, "query", bold=True, anchor="end")
    drawing.text(20, 30, "writes, and asks", "soft", 13, "start")
    return drawing
