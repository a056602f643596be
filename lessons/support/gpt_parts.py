"""Lesson 22: the pictures of crossed-out lines, of a window of text and of the writing, and a model that counts."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from support.drawing import Drawing, Role, number

STRUCK = re.compile(
    r"^ *(?:x, cross_backward|dmemory) = .*|^ *return dmemory|memory, source, |mask, (?=backwards)"
    r"|\(source != PAD\)\[:, None, None, :\], |; padding stands behind|cross, (?=ffn)|cross_backward, "
    r"|, dshare(?= =)|cross_backward\((?=sum)|(?<=\(dx\)\))\)|, dmemory(?= =)|, dmemory \+ dshare",
    re.MULTILINE,
)
"""Parts of `decode` that need a source."""

COLUMN, LINE = 7.3, 19.0
"""Pixels of a character of code."""


def rest(source: str) -> str:
    """The text of decode without what is crossed out."""
    return "\n".join(line for line in STRUCK.sub("", source).splitlines() if line)


def crossed_out(source: str) -> Drawing:
    """The text of decode: what is crossed out in grey under a line, the rest in black."""
    drawing = Drawing(740, LINE * len(source.splitlines()) + 20)
    for row, line in enumerate(source.splitlines()):
        y, at = 18 + LINE * row, 0
        for found in [*STRUCK.finditer(line), None]:
            code(drawing, line, at, found.start() if found else len(line), y, "ink")
            if found:
                left, at = found.start() + len(found[0]) - len(found[0].lstrip()), found.end()
                code(drawing, line, left, at, y, "soft")
                drawing.line([(10 + COLUMN * left, y), (10 + COLUMN * len(line[:at].rstrip()), y)], "ink", 1.4)
    return drawing


def code(drawing: Drawing, line: str, start: int, end: int, y: float, role: Role) -> None:
    """Columns start to end of a line of code, each as wide as the others."""
    text = line[start:end]
    start, text = start + len(text) - len(text.lstrip()), text.strip()
    if text:
        look = f'font-size="12" fill="var(--{role})" style="font-family: monospace" lengthAdjust="spacingAndGlyphs"'
        place = f'x="{10 + COLUMN * start:.5g}" y="{y + 4:.5g}" textLength="{COLUMN * len(text):.5g}"'
        drawing.parts.append(f"<text {place} {look}>{html.escape(text, quote=False)}</text>")


READS, WRITES, P = "hell", "ello", (2, 4, 4, 2)
"""Letters that the window of the miniature reads and predicts, and 1 / probability of each right one."""


def window(backward: bool) -> Drawing:
    """Five letters are four predictions; backward, the gradient of each returns to the letters that it has used.

    The gradients below are those of a model that takes the mean of what it sees for the logit of the right letter.
    """
    drawing = Drawing(740, 305 if backward else 270)
    for y, words in (30, "has to predict"), (75, "gives it p"), (240, "reads"):
        drawing.text(165, y, words, "soft", 14, "end")
    third = "gradient of its logit" if backward else "costs"
    drawing.text(165, 107, third, "gradient" if backward else "soft", 14, "end", italic=backward)
    if backward:
        drawing.text(165, 282, "gradient of its vector", "gradient", 14, "end", italic=True)
    columns = [245 + 135 * t for t in range(4)]
    of_logit = [32 * (1 / part - 1) / 4 for part in P]
    for t, x in enumerate(columns):
        below = drawing.vector(x, 240, [READS[t]], "key")
        drawing.vector(x, 30, [WRITES[t]])
        drawing.text(x, 75, f"1/{P[t]}", bold=True)
        if backward:
            of_vector = sum(of_logit[s] / (s + 1) for s in range(t, 4))
            for y, slope in (107, of_logit[t]), (282, of_vector):
                drawing.gradient(x - 17, y, -slope, f"{number(slope)}/32", 14, largest=10)
        else:
            drawing.text(x, 107, {2: "1 bit", 4: "2 bits"}[P[t]])
        for s in range(t + 1):
            start, end = (columns[s] + 9 * (t - s), below.top[1] - 2), (x, 128)
            drawing.arrow(*((end, start, "gradient") if backward else (start, end, "key")))
    return drawing


LIKELY = {"e": 0.5, "a": 0.3, "i": 0.1, "o": 0.1}
"""Made-up probabilities of the letter after "th"."""


def writing() -> Drawing:
    """Draw a letter, append it, ask again; the probabilities at three temperatures as bars."""
    drawing = Drawing(760, 300)
    for i, letter in enumerate("th"):
        drawing.vector(40 + 46 * i, 120, [letter], "key")
    drawing.vector(132, 120, ["a"])
    drawing.text(86, 88, "the text so far", "soft", 13)
    gpt = drawing.box(240, 120, "GPT", width=76, height=44)
    drawing.arrow((160, 120), gpt.left)
    drawing.arrow(gpt.right, (308, 120))
    for i, T in enumerate((0.5, 1, 2)):
        left = 328 + 150 * i
        drawing.text(left + 48, 26, f"T = {('1/2', '1', '2')[i]}", bold=True)
        powers = [p ** (1 / T) for p in LIKELY.values()]
        for j, (letter, power) in enumerate(zip(LIKELY, powers)):
            share, x = power / sum(powers), left + 32 * j
            bar = drawing.bar(x, 120, share, width=24, height=120, role="key" if (i, letter) == (1, "a") else "ink")
            drawing.text(x, bar.bottom[1] - 120 * share - 10, f"{share:.2f}".removeprefix("0"), size=12)
            drawing.text(x, bar.bottom[1] + 14, letter, size=15)
    drawn = drawing.vector(510, 246, ["a"])
    drawing.arrow((510, 210), drawn.top)
    drawing.text(545, 246, "draw one: here, at T = 1, it is a", "soft", 13, "start")
    drawing.line([drawn.left, (132, 246)], "soft")
    drawing.arrow((132, 246), (132, 140))
    drawing.text(310, 264, "append it, and ask again", "soft", 13)
    return drawing


class Counts:
    """Predict a character from the `order` - 1 before it, by how often each has followed them in a text."""

    def __init__(self, text: str, order: int) -> None:
        self.order, self.n_characters = order, len(set(text))
        self.counts = Counter(text[i : i + n] for n in range(1, order + 1) for i in range(len(text) - n + 1))
        self.total, self.kinds = Counter[str](), Counter[str]()  # what followed a context: all, and different ones
        for gram, count in self.counts.items():
            self.total[gram[:-1]] += count
            self.kinds[gram[:-1]] += 1

    def probability(self, before: str, character: str) -> float:
        """p(character | before), where shorter contexts help out if a longer one was rare (Witten and Bell 1991)."""
        p = 1 / self.n_characters
        for n in range(min(self.order - 1, len(before)) + 1):
            context = before[len(before) - n :]
            total, kinds = self.total[context], self.kinds[context]
            if not total:
                break
            p = (self.counts[context + character] + kinds * p) / (total + kinds)
        return p


def interval(differences: np.ndarray, sentences: Sequence[int]) -> tuple[float, float]:
    """The middle 95 % of the mean difference if the sentences, given for each difference, are drawn again."""
    sums, counts = np.bincount(sentences, differences), np.bincount(sentences)
    drawn = np.random.default_rng(0).integers(0, len(sums), (2000, len(sums)))
    low, high = np.quantile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), [0.025, 0.975])
    return low, high
