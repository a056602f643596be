"""Lesson 22: the pictures of a decoder with crossed-out lines and of one window of text, and a model that counts."""

from __future__ import annotations

import html
import re
from collections import Counter

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


READS, WRITES, P = "hell", "ello", (2, 4, 8, 2)
"""Letters that the window of the miniature reads and predicts, and 1 / probability of each right one."""


def window(backward: bool) -> Drawing:
    """Five letters are four predictions; backward, the gradient of each returns to the letters that it has used."""
    drawing = Drawing(740, 270)
    for y, words in (30, "has to predict"), (75, "gives it p"), (240, "reads"):
        drawing.text(165, y, words, "soft", 14, "end")
    third = "gradient of its logit" if backward else "costs"
    drawing.text(165, 107, third, "gradient" if backward else "soft", 14, "end", italic=backward)
    columns = [245 + 135 * t for t in range(4)]
    for t, x in enumerate(columns):
        below = drawing.vector(x, 240, [READS[t]], "key")
        drawing.vector(x, 30, [WRITES[t]])
        part = P[t]
        drawing.text(x, 75, f"1/{part}", bold=True)
        if backward:
            loss = (1 / part - 1) / 4
            drawing.gradient(x - 22, 107, -loss, number(loss), 14, largest=0.25)
        else:
            drawing.text(x, 107, {2: "1 bit", 4: "2 bits", 8: "3 bits"}[part])
        for s in range(t + 1):
            start, end = (columns[s] + 9 * (t - s), below.top[1] - 2), (x, 128)
            drawing.arrow(*((end, start, "gradient") if backward else (start, end, "key")))
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
