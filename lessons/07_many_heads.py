# %% [markdown]
# # 07 · Many heads
#
# **Why cut attention into eight heads, if one head has as many weights and costs as much?**
#
# *Needs [lesson 01](01_backprop.py) (`linear`) and [lesson 04](04_soft_lookup.py) (attention and its gradient) · you
# will compute two heads and their gradients with pencil and paper.*

# %% Imports
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import transformer
from matplotlib.colors import ListedColormap

from scratchformer.experiments.figures import ACCENT, LIGHT
from support.drawing import Drawing, number
from support.lesson import QUICK, measure, quote, same, show, table
from support.numeric import numeric_gradient
from support.six_boxes import KINDS, Reader, problems

# %% [markdown]
# Six boxes stand on a table. Each has a label and a content. You name two labels, and I tell you what is in the first
# box and what is in the second. That is easy. Can one attention do it, too?
#
# There are eight labels, all different on the table, and eight contents. A box is a vector of 16 numbers: eight for its
# label and eight for its content. They are 0, except for a 1 at the right label and a 1 at the right content. The query
# is also a vector of 16 numbers: eight for the first label and eight for the second. The output has eight logits for
# the first content and eight for the second. Here is one problem:

# %% One problem
queries, boxes, contents = problems(np.random.default_rng(0), 1)
print("labels  ", *boxes[0, :, :KINDS].argmax(axis=-1))
print("contents", *boxes[0, :, KINDS:].argmax(axis=-1))
print("asked   ", *queries.reshape(2, KINDS).argmax(axis=-1), "  answers", *contents[0])

# %% [markdown]
# We train an attention as in lesson 04 on random problems, then test it on new ones. First only the first answer
# counts, then both:

# %% Training one attention
RUNS = range(1 if QUICK else 3)


def in_words(shares):
    return [f"{share:.0%}" for share in [*shares, shares[-1], shares[-1]][:3]]


table(["asked for", "run 1", "run 2", "run 3"],
      [[name, *in_words([Reader(run).train(questions).share_right(questions)
                         for run in RUNS])]
       for questions, name in ((1, "one box: right"), (2, "two boxes: both right"))])

# %% [markdown]
# With one question it is always right. With two, it gets both right in a fifth of the problems. What is it that one
# attention can't do?
#
# ## The picture
#
# Take two boxes with a number in each: 4 in A, 8 in B. Attention blends them. With equal weights the result is 6. But 6
# could also come from 8 in A and 4 in B, or from 6 in both. **One blend doesn't tell what it was blended of.** We need
# two of them. So we take two attentions, called **heads**. Each has its own queries, keys and values, and makes its own
# blend:

# %% Drawing two heads
ROWS_O = [(1.5, -0.5, 0), (-0.5, 1.5, 0)]
SHARES, BLENDS = [(3, 1), (1, 3)], [5, 7]                # the weights in quarters
OF_BLENDS, OF_SCORES = [1.5, -0.5], [(-1.125, 1.125), (0.375, -0.375)]
OFFERS, AVERAGES = [(6, 12), (-2, -4)], [7.5, -3.5]
OF_VALUES = [(1.125, 0.375), (-0.125, -0.375)]


def heads_picture(backward):
    """Two heads, from the input to the output, without and with their gradients."""
    drawing = Drawing(775, 730)

    def gradient(x, y, slope):
        """The number with its sign; the triangle goes against it, as training does."""
        drawing.gradient(x, y, -slope, number(slope, sign=True), 14, largest=1.5)

    def words_of_gradient(x, y, words, anchor="middle"):
        drawing.text(x, y, words, "gradient", 13, anchor, italic=True)

    for y, step, rule in ((190, "1  project", "own W_Q, W_K, W_V"),
                          (280, "2  attend", "own softmax"),
                          (535, "3  side by side", "Concat"), (610, "4  mix", "× W_O")):
        drawing.text(12, y, step, bold=True, anchor="start")
        drawing.text(30, y + 20, rule, "soft", 13, "start")
    x = drawing.vector(230, 45, (1, 1, 0), cell=38, above="x asks for A and B")
    inputs = [drawing.vector(at, 45, (*label, content), cell=38, above=f"box {name}")
              for at, name, label, content in ((450, "A", (1, 0), 4),
                                               (625, "B", (0, 1), 8))]
    drawing.text(750, 45, "memory", "soft", 13, "end")
    for box in inputs:
        drawing.line([box.bottom, (box.x, 104)], "key", 1.2)
    drawing.line([(360, 104), (675, 104)], "key", 1.2)
    drawing.line([x.bottom, (x.x, 94)], "query", 1.2)
    drawing.line([(190, 94), (505, 94)], "query", 1.2)
    joined = drawing.vector(455, 550, BLENDS, "value", 54)
    for head, left in enumerate((150, 465)):
        drawing.rectangle(left + 150, 297, 300, 360, "line", 0, radius=8)
        drawing.text(left + 288, 135, f"head {head + 1}", bold=True, anchor="end")
        columns = [left + 105, left + 215]
        query = drawing.vector(left + 40, 192, [1], "query", 46, above="query")
        drawing.line([(query.x, 94), (query.x, 154)], "query", 1.2)
        drawing.arrow((left + 210, 104), (left + 210, 117), "key")
        blend = drawing.vector(left + 160, 450, [BLENDS[head]], "value", 54)
        for y, name in ((228, "score"), (280, "weight"), (375, "value"), (450, "blend")):
            drawing.text(left + 62, y, name, "soft", 13, "end")
        for s, (column, share) in enumerate(zip(columns, SHARES[head])):
            key = "ln 3" if s == head else "0"
            drawing.vector(column, 192, [key], "key", 54, above="key of " + "AB"[s])
            drawing.text(column, 228, key)
            drawing.bar(column, 280, share / 4, height=60, below=f"{share}/4")
            value = drawing.vector(column, 375, [4 * s + 4], "value", 54)
            drawing.thread(value.bottom, blend.top, share / 4)
            if backward:
                gradient(column + 30, 228, OF_SCORES[head][s])
                offer = number(OFFERS[head][s], sign=True)
                words_of_gradient(column + 28, 280, f"offer {offer}", "start")
                gradient(column - 12, 345, OF_VALUES[head][s])
        if backward:
            average = f"average {number(AVERAGES[head], sign=True)}"
            words_of_gradient(blend.x + 32, 450, average, "start")
            side = joined.left[0] - 46 if head == 0 else joined.right[0] + 18
            gradient(side, 550, OF_BLENDS[head])
        drawing.arrow((blend.x, 468), (joined.cell(head).x, 531), "value")
    mix = drawing.matrix(455, 628, ROWS_O, "plain", 54, 30)
    drawing.arrow(joined.bottom, mix.top)
    for head, row in enumerate(ROWS_O):
        y = mix.cell(2, head).y
        drawing.text(366, y, f"row of head {head + 1}", "soft", 13, "end")
        adds = ", ".join(number(BLENDS[head] * factor) for factor in row)
        if not backward:
            drawing.text(548, y, f"head {head + 1} adds ({adds})", "soft", 13, "start")
    output = drawing.vector(455, 703, (4, 8, 0), cell=54)
    drawing.text(366, 703, "output", "soft", 13, "end")
    drawing.arrow(mix.bottom, output.top)
    if backward:
        words_of_gradient(548, 703, "dy = (+1, 0, 0)", "start")
        words_of_gradient(238, 77, "(−1.236, −0.412, 0)", "start")
        words_of_gradient(458, 77, "(−1.236, +0.412, +1)", "start")
        words_of_gradient(633, 77, "(+1.236, −0.412, 0)", "start")
    return drawing


show(heads_picture(backward=False), "07_heads",
     alt="Head 1 has the query 1 and the keys ln 3 and 0 of boxes A and B, so its "
     "weights are three quarters and one quarter, and its blend of the values 4 and 8 "
     "is 5. Head 2 has the keys 0 and ln 3, the weights one quarter and three quarters "
     "and the blend 7. Side by side the blends are (5, 7). Times W_O, with the rows "
     "(1.5, −0.5, 0) and (−0.5, 1.5, 0), they make the output (4, 8, 0).",
     caption="Two heads. Each makes its own blend of the same two numbers. The matrix "
     "W_O makes one output of both blends.")
