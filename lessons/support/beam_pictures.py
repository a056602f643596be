"""The miniature of lesson 20, a model of two sentences with probabilities in tenths, and its drawings.

Each beginning keeps its place in all drawings: what a search keeps, drops or confuses is drawn onto the same tree.
"""

from __future__ import annotations

from support.drawing import Drawing, Role

END = "</s>"
Words = tuple[str, ...]

NEXT: dict[Words, dict[str, float]] = {
    (): {"schläft": 0.6, "schlafen": 0.4},
    ("schläft",): {"die Kuh": 0.5, "die Kühe": 0.4, "das Kalb": 0.1},
    ("schlafen",): {"die Kühe": 0.9, "die Kuh": 0.1},
    ("schläft", "die Kuh"): {END: 0.6, "heute": 0.4},
    ("schläft", "die Kühe"): {END: 0.3, "heute": 0.7},
    ("schläft", "das Kalb"): {END: 0.6, "heute": 0.4},
    ("schlafen", "die Kühe"): {END: 0.8, "heute": 0.2},
    ("schlafen", "die Kuh"): {END: 0.5, "heute": 0.5},
}
"""A beginning -> the probability of each piece to come next."""

SINGULAR, PLURAL = ("schläft", "die Kuh"), ("schlafen", "die Kühe")
GREEDY, BEST = (*SINGULAR, END), (*PLURAL, END)

PLACES: dict[Words, tuple[float, float]] = {
    (): (44, 236),
    ("schläft",): (200, 150),
    ("schlafen",): (200, 322),
    SINGULAR: (412, 86),
    ("schläft", "die Kühe"): (412, 164),
    ("schläft", "das Kalb"): (412, 216),
    PLURAL: (412, 294),
    ("schlafen", "die Kuh"): (412, 372),
    GREEDY: (630, 60),
    (*SINGULAR, "heute"): (630, 112),
    BEST: (630, 268),
    (*PLURAL, "heute"): (630, 320),
}
DROPPED = [("schläft", "die Kühe"), ("schläft", "das Kalb"), ("schlafen", "die Kuh")]
RANKS = {("schläft",): 0, ("schlafen",): 1, PLURAL: 0, SINGULAR: 1}
"""The row of each hypothesis in a beam of 2."""
CONFUSED = {PLURAL: ("schläft", "die Kühe"), SINGULAR: ("schlafen", "die Kuh")}
"""A hypothesis of step 2 -> what the model takes it for if the caches stay in their rows."""

WIDE, HIGH = 132, 40


def probability(words: Words) -> float:
    """The product of the probabilities of its pieces."""
    product = 1.0
    for t, word in enumerate(words):
        product *= NEXT[words[:t]][word]
    return product


def tree() -> Drawing:
    """All beginnings that matter, with the path of greedy search and the likeliest sentence."""
    drawing = plain_tree()
    for t in range(1, 4):
        edge(drawing, BEST[:t], "forward", 3, dashed=False)
        edge(drawing, GREEDY[:t], "ink", 3, dashed=True)
    drawing.text(706, PLACES[GREEDY][1], "greedy search", "ink", 13, anchor="start", bold=True)
    drawing.text(706, PLACES[BEST][1], "the likeliest", "forward", 13, anchor="start", bold=True)
    for words in PLACES:
        label(drawing, words)
        node(drawing, words, "forward" if words and words == BEST[: len(words)] else "plain")
    return drawing


def beam(is_confused: bool = False) -> Drawing:
    """A beam of 2 on the same tree: what is kept, with its row, and what is struck out.

    is_confused  the caches stay in their rows when the hypotheses swap: each continues a struck-out one
    """
    drawing = plain_tree()
    for words in PLACES:
        if words and words not in DROPPED:
            wrong = is_confused and len(words) == 3
            edge(drawing, words, "ink" if wrong else "forward", 2.4, dashed=wrong)
    for words in PLACES:
        ends, p, product = words[-1:] == (END,), "", None
        remark = "finished" if ends else "alive"
        if is_confused and len(words) == 3:
            read = NEXT[CONFUSED[words[:2]]][words[2]]
            p, product, remark = f"{read:g}", probability(words[:2]) * read, f"should be {probability(words):.3g}"
        label(drawing, words, p)
        is_plain = words in DROPPED or not words or ends or product is not None
        node(drawing, words, "plain" if is_plain else "forward", product)
        x, y = PLACES[words]
        if words in DROPPED:
            drawing.line([(x - WIDE / 2 - 6, y + 14), (x + WIDE / 2 + 6, y - 14)], "ink", 2)
        if words in RANKS:  # on the upper edge of its box
            drawing.rectangle(x + 34, y - HIGH / 2 - 2, 46, 18, "paper", 1, outline=False)
            drawing.rectangle(x + 34, y - HIGH / 2 - 2, 46, 18, "forward", 0.13, radius=9)
            drawing.text(x + 34, y - HIGH / 2 - 2, f"row {RANKS[words]}", size=12)
        if len(words) == 3:
            drawing.text(706, y, remark, "soft", 13, anchor="start")
    return drawing


def confused() -> Drawing:
    """The beam if the caches stay in their rows, and what each row reads."""
    drawing = beam(is_confused=True)
    for words, read in CONFUSED.items():
        (x, y), (to_x, to_y) = PLACES[read], PLACES[words]
        down = 1 if to_y > y else -1
        start, end = (x + WIDE / 2 + 4, y + 4 * down), (to_x + WIDE / 2 + 4, to_y - 12 * down)
        drawing.arrow(start, end, "ink", bend=13 if down > 0 else -32)
        for above, line in (-8, f"row {RANKS[words]}"), (8, "reads this"):
            drawing.text(x + WIDE / 2 + 40, y + above, line, size=13, anchor="start", bold=True)
    return drawing


# What they are made of ------------------------------------------------------------------------------------------------


def plain_tree() -> Drawing:
    """The frame: steps, what the numbers are, thin lines."""
    drawing = Drawing(830, 446)
    for t, x in (1, 200), (2, 412), (3, 630):
        drawing.text(x, 20, f"step {t}: y_{t}", "soft", 14)
    drawing.text(20, 424, "on a line: P(y_t | y_1 … y_{t−1}, x)", "soft", 13, "start")
    drawing.text(290, 424, "in a box: the product so far, P(y_1 … y_t | x)", "soft", 13, "start")
    for words in PLACES:
        if words:
            edge(drawing, words, "line", 1.2, dashed=False)
    return drawing


def edge(drawing: Drawing, words: Words, role: Role, width: float, dashed: bool) -> None:
    (x, y), (to_x, to_y) = PLACES[words[:-1]], PLACES[words]
    start = x + (WIDE / 2 if words[:-1] else 24)
    drawing.line([(start, y), (to_x - WIDE / 2 - 34, to_y), (to_x - WIDE / 2, to_y)], role, width, dashed)


def label(drawing: Drawing, words: Words, p: str = "") -> None:
    """The probability of the last piece, on its line."""
    if words:
        x, y = PLACES[words]
        drawing.text(x - WIDE / 2 - 17, y - 11, p or f"{NEXT[words[:-1]][words[-1]]:g}", "ink", 14)


def node(drawing: Drawing, words: Words, role: Role, product: float | None = None) -> None:
    x, y = PLACES[words]
    if not words:
        drawing.rectangle(x, y, 48, HIGH, "paper", 1, outline=False)
        drawing.outline(drawing.box(x, y, "<s>", "plain", 48, HIGH), "plain", 0)
        return
    drawing.rectangle(x, y, WIDE, HIGH, "paper", 1, outline=False)
    drawing.rectangle(x, y, WIDE, HIGH, role, 0.13, radius=4)
    drawing.text(x - WIDE / 2 + 8, y, words[-1], anchor="start", size=14)
    shown = probability(words) if product is None else product
    drawing.text(x + WIDE / 2 - 8, y, f"{shown:.3g}", anchor="end", size=14, bold=True)
