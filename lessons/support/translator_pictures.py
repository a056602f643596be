"""The drawings of lesson 00: a sentence on its way through the translator, and the loop that writes a sentence."""

from __future__ import annotations

from typing import NamedTuple, Sequence

import numpy as np

from support.drawing import Box, Drawing, Role

READ, WRITTEN = (60, 145, 230, 315), (470, 550, 630, 710)
"""Places of the columns of the English and of the German tokens."""


class Side(NamedTuple):
    """A sentence and some of its tokens.

    sentence  the whole text
    tokens    those that are shown
    ids       their ids
    vectors   (tokens, components): what goes into the layers
    """

    sentence: str
    tokens: Sequence[str]
    ids: Sequence[int]
    vectors: np.ndarray


class Candidate(NamedTuple):
    token: str
    logit: float
    probability: float


def zoom(
    read: Side, memory: np.ndarray, count: int, written: Side, state: np.ndarray, best: Sequence[Candidate]
) -> Drawing:
    """Sentence, ids, vectors, encoder, decoder, logits, probabilities: with a few numbers of each.

    memory  (English tokens shown, components): the encoder's output
    count   of all English tokens
    state   (components,): the decoder's output at the last token
    best    the likeliest next tokens
    """
    drawing = Drawing(760, 756)
    drawing.text(187, 18, "ENCODER: reads the English", bold=True)
    drawing.text(590, 18, "DECODER: writes the German", bold=True)
    before = side(drawing, 42, READ, read)
    attention(drawing, 290, READ, "layer 1, attention: each mixes with all", range(4))
    alone(drawing, 353, READ)
    band(drawing, 403, READ, "layer 2: the same two steps")
    drawing.arrow((187, before.bottom[1] + 16), (187, 259))
    drawing.arrow((187, 418), (187, 437))
    out = columns(drawing, 478, READ, memory)
    drawing.text(187, 546, f"all {count} new vectors, one for each English token", "soft", 12)
    drawing.line([(out.left[0], 526), (out.left[0], 532), (398, 532), (398, 348)], "forward", 2.4)
    drawing.line([(out.right[0], 526), (out.right[0], 532)], "forward", 2.4)

    side(drawing, 42, WRITTEN, written)
    drawing.arrow((590, before.bottom[1] + 16), (590, 259))
    attention(drawing, 290, WRITTEN, "layer 1, attention to the German so far", None)
    cross(drawing, 354)
    alone(drawing, 417, WRITTEN)
    band(drawing, 467, WRITTEN, "layer 2: the same three steps")
    drawing.arrow((WRITTEN[3], 482), (WRITTEN[3], 501))
    last = drawing.matrix(WRITTEN[3], 538, [[two(value)] for value in state[:3]], cell=58, height=22, size=13)
    drawing.text(WRITTEN[3], 583, "last vector", "soft", 12)
    drawing.text(672, 526, "dot product with each row", "soft", 12, "end")
    drawing.line([(last.left[0] - 4, 538), (484, 538)], "forward")
    drawing.arrow((484, 538), (484, 598), "forward")

    for x, words in (411, "token"), (484, "logit"), (540, "softmax"), (650, "probability"):
        drawing.text(x, 610, words, "soft", 12)
    for i, candidate in enumerate(best):
        y = 632 + 22 * i
        drawing.text(411, y, candidate.token, bold=not i)
        drawing.text(484, y, two(candidate.logit))
        drawing.arrow((514, y), (566, y))
        drawing.rectangle(636, y, 120, 14, "ink", 0.1, outline=False)
        drawing.rectangle(576 + 60 * candidate.probability, y, 120 * candidate.probability, 14, "ink", 0.78, False)
        drawing.text(748, y, f"{candidate.probability:.3f}", anchor="end", bold=not i)
    for step_number, place in enumerate([(374, 98), (374, 164), (374, 290), (412, 385), (460, 538)], 1):
        drawing.circle(*place, 10, "ink", filled=0)
        drawing.text(*place, str(step_number), size=13, bold=True)
    drawing.text(390, 632 + 22 * len(best), f"… and {1600 - len(best):,} more tokens", "soft", 13, "start")
    return drawing


def side(drawing: Drawing, y: float, at: Sequence[float], given: Side) -> Box:
    """A sentence, tokens, ids and vectors, downwards from y. -> the vectors' outline"""
    middle = (at[0] + at[-1]) / 2
    drawing.text(middle, y, given.sentence, size=14, italic=True)
    for x, token, i in zip(at, given.tokens, given.ids):
        drawing.text(x, y + 30, token, bold=True, size=14)
        drawing.vector(x, y + 56, [str(i)], cell=58, height=24, size=13)
        drawing.arrow((x, y + 69), (x, y + 87))
    gap = (at[0] + at[1]) / 2
    for dy in 30, 56:
        for x in (gap, (at[1] + at[2]) / 2, (at[2] + at[3]) / 2):
            drawing.text(x, y + dy, "…", "soft", 12)
    name = at[0] - 33
    drawing.text(name, y + 56, "id", "soft", 12, "end")
    return columns(drawing, y + 122, at, given.vectors)


def columns(drawing: Drawing, y: float, at: Sequence[float], vectors: np.ndarray) -> Box:
    """The first three numbers of each vector, as columns. -> an outline around all of them"""
    for x, vector in zip(at, vectors):
        drawing.matrix(x, y, [[two(value)] for value in vector[:3]], cell=58, height=22, size=13)
        drawing.text(x, y + 40, "⋮", "soft", 12)
    return Box((at[0] + at[-1]) / 2, y, at[-1] - at[0] + 58, 66)


def step(drawing: Drawing, y: float, at: Sequence[float], words: str, height: float = 56) -> None:
    middle = (at[0] + at[-1]) / 2
    drawing.rectangle(middle, y, at[-1] - at[0] + 82, height, "plain", 0.08, radius=6)
    drawing.text(middle, y - height / 2 + 12, words, size=13)


def attention(drawing: Drawing, y: float, at: Sequence[float], words: str, everywhere: object) -> None:
    """Threads from every column to every column, or without `everywhere` only to later ones."""
    step(drawing, y, at, words)
    for i, start in enumerate(at):
        for j, end in enumerate(at):
            if everywhere or i <= j:
                drawing.line([(start, y - 6), (end, y + 22)], "forward", 1.2)


def cross(drawing: Drawing, y: float) -> None:
    """From the encoder's vectors, threads from the left, to every column."""
    step(drawing, y, WRITTEN, "attention to the encoder’s vectors")
    drawing.line([(398, y - 6), (444, y - 6)], "forward", 2.4)
    for end in WRITTEN:
        drawing.line([(444, y - 6), (end, y + 22)], "forward", 1.2)


def alone(drawing: Drawing, y: float, at: Sequence[float]) -> None:
    step(drawing, y, at, "feed-forward: each vector by itself")
    for x in at:
        drawing.line([(x, y - 6), (x, y + 22)], "forward", 1.6)


def band(drawing: Drawing, y: float, at: Sequence[float], words: str) -> None:
    step(drawing, y, at, words, 26)


def loop(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Drawing:
    """Sentences, each with the tokens that are written for it one after the other, and their probabilities.

    Under the tokens before the first one that differs, a bracket points to it.
    """
    drawing = Drawing(790, 10 + 170 * len(rows))
    for row, (sentence, steps) in enumerate(rows):
        y = 24 + 170 * row
        drawing.text(20, y, sentence, size=14, anchor="start", italic=True)
        for t, (token, probability) in enumerate(steps):
            x = 40 + 47 * t
            differs = any(other[t][0] != token for _, other in rows)
            drawing.bar(x, y + 50, probability, 24, 50, role="forward" if differs else "ink")
            drawing.text(x, y + 88, f"{probability:.2f}", "soft", 12)
            width = 45
            drawing.rectangle(x, y + 112, width, 24, "forward" if differs else "plain", 0.13, radius=4)
            drawing.text(x, y + 112, token, size=11 if len(token) > 5 else 13, bold=differs)
        changed = next(t for t, step in enumerate(steps) if any(other[t][0] != step[0] for _, other in rows))
        end, below = 40 + 47 * changed, y + 136
        drawing.line([(20, below - 6), (20, below), (end - 28, below), (end - 28, below - 6)], width=1.2)
        drawing.line([((end - 8) / 2, below), ((end - 8) / 2, below + 10), (end, below + 10)], width=1.2)
        drawing.arrow((end, below + 10), (end, below - 10), width=1.2)
        drawing.text(end + 10, below + 8, "all tokens so far are read for the next one", "soft", 13, "start")
    return drawing


def looks(rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Drawing:
    """For each sentence, what it is: its tokens, each with the weight that attention gives it."""
    drawing = Drawing(760, 8 + 146 * len(rows))
    for row, (name, weights) in enumerate(rows):
        y = 20 + 146 * row
        drawing.text(20, y, name, size=14, anchor="start")
        for i, (token, weight) in enumerate(weights):
            x, large = 46 + 51 * i, bool(weight >= 0.1)
            drawing.bar(x, y + 62, weight, 24, 60)
            drawing.text(x, y + 22, f"{weight:.2f}", "ink" if large else "soft", 12, bold=large)
            drawing.text(x, y + 106, token, size=11 if len(token) > 5 else 13, bold=large)
    return drawing


def exchange(one: Sequence[str], other: Sequence[str], at: int, written: str) -> Drawing:
    """The encoder's vectors of one sentence, with a single one from another sentence, go to the decoder.

    one, other  the tokens of two sentences of the same length
    at          which vector comes from the other sentence
    written     what the decoder has written so far, in two lines
    """
    drawing = Drawing(790, 236)
    x = [30 + 43 * i for i in range(len(one))]
    left, upper, middle, lower = x[0] - 20, 58, 118, 178

    def vector(i: int, y: float, token: str, role: Role) -> None:
        drawing.rectangle(x[i], y, 41, 26, role, 0.16, radius=4)
        drawing.text(x[i], y, token, size=13 - 0.9 * max(0, len(token) - 4))

    drawing.text(left, upper - 32, f"the encoder’s vectors of “{end_of(one)}”", size=14, anchor="start", italic=True)
    drawing.text(left, lower + 32, f"the encoder’s vectors of “{end_of(other)}”", size=14, anchor="start", italic=True)
    for i, (token, change) in enumerate(zip(one, other)):
        vector(i, upper, token, "plain")
        vector(i, lower, change, "forward")
        taken = i == at
        vector(i, middle, change if taken else token, "forward" if taken else "plain")
        start, end = (lower - 15, middle + 15) if taken else (upper + 15, middle - 15)
        drawing.arrow((x[i], start), (x[i], end), "forward" if taken else "soft", width=2.4 if taken else 1.2)
    decoder = drawing.box(718, middle, "decoder", width=96, height=34)
    drawing.arrow((x[-1] + 24, middle), (decoder.left[0] - 3, middle), width=2)
    first, second = written.split("\n")
    drawing.text(718, upper - 18, first, size=13, italic=True)
    drawing.text(718, upper, second, size=13, italic=True)
    drawing.arrow((718, upper + 11), (718, decoder.top[1] - 3))
    drawing.arrow((718, decoder.bottom[1] + 3), (718, lower - 13))
    drawing.text(718, lower, "es or sie?", bold=True)
    return drawing


def end_of(tokens: Sequence[str]) -> str:
    """The last four words, without the full stop and </s>: enough to tell two sentences apart."""
    return f"… {' '.join(tokens[-6:-2])}"


def two(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")
