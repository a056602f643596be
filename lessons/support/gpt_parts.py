"""Lesson 22: the pictures of a decoder with crossed-out lines and of one window of text, and a model that counts."""

from __future__ import annotations

import html
import re
from collections import Counter

from support.drawing import Drawing, Role

STRUCK = re.compile(
    r"^ *(?:x, cross_backward|dmemory) = .*|^ *return dmemory|memory, source, |mask, (?=backwards)"
    r"|\(source != PAD\)\[:, None, None, :\], |; padding stands behind|cross, (?=ffn)|cross_backward, "
    r"|, dshare(?= =)|cross_backward\((?=sum)|(?<=\(dx\)\))\)|, dmemory(?= =)|, dmemory \+ dshare",
    re.MULTILINE,
)
"""What `decode` needs for a source, and a GPT doesn't."""

COLUMN, LINE = 7.3, 19.0
"""Pixels of a character of code."""


def rest(source: str) -> str:
    """The text of decode without what is crossed out."""
    return "\n".join(line for line in STRUCK.sub("", source).splitlines() if line)


def crossed_out(source: str) -> Drawing:
    """The text of decode: what is crossed out in grey under a line, the rest in black."""
    lines = source.splitlines()
    drawing = Drawing(740, LINE * len(lines) + 20)
    for number, line in enumerate(lines):
        y, at = 18 + LINE * number, 0
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


READS, WRITES, P = "hell", "ello", ((1, 2), (1, 4), (1, 8), (1, 2))
"""What the window of the miniature reads and predicts, and the probability of each right letter."""


def window(backward: bool) -> Drawing:
    """Five letters are four predictions; backward, the gradient of each returns to the letters that it has used."""
    drawing = Drawing(740, 270)
    for y, words in (30, "has to predict"), (75, "gives it p"), (240, "reads"):
        drawing.text(165, y, words, "soft", 14, "end")
    third, role = ("gradient of its logit", "gradient") if backward else ("costs", "soft")
    drawing.text(165, 107, third, role, 14, "end", italic=backward)
    columns = [245 + 135 * t for t in range(4)]
    for t, x in enumerate(columns):
        below = drawing.vector(x, 240, [READS[t]], "key")
        drawing.vector(x, 30, [WRITES[t]])
        top, bottom = P[t]
        drawing.text(x, 75, f"{top}/{bottom}", bold=True)
        bits = bottom.bit_length() - 1
        if backward:
            loss = (top / bottom - 1) / 4
            drawing.gradient(x - 22, 107, -loss, f"{loss:.3f}".replace("-", "−"), 14, largest=0.25)
        else:
            drawing.text(x, 107, f"{bits} bit{'s' * (bits > 1)}")
        for s in range(t + 1):
            shift = 9 * (t - s)
            start, end = (columns[s] + shift, below.top[1] - 2), (x, 128)
            if backward:
                drawing.arrow(end, start, "gradient")
            else:
                drawing.arrow(start, end, "key")
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
