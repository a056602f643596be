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
from support.lesson import QUICK, quote, same, show, table
from support.numeric import numeric_gradient
from support.six_boxes import KINDS, Reader, problems

# %% [markdown]
# Six boxes stand on a table, each with a label and a content. You name two labels, and I tell you what is in the first
# box and what is in the second. That is easy. Can attention do it, too?
#
# There are eight labels, all different on the table, and eight contents. A box is a vector of 16 numbers, with a 1 for
# its label and a 1 for its content. The query has a 1 for the first label and, in its other half, a 1 for the second.
# The output has eight logits for each answer. One problem:

# %% One problem
queries, boxes, contents = problems(np.random.default_rng(0), 1)
print("labels  ", *boxes[0, :, :KINDS].argmax(axis=-1))
print("contents", *boxes[0, :, KINDS:].argmax(axis=-1))
print("asked   ", *queries.reshape(2, KINDS).argmax(axis=-1), "  answers", *contents[0])

# %% [markdown]
# Attention, with a matrix behind it that makes the logits, learns from random problems. The test has new ones. In the
# first row only the first answer counts, in the second row both:

# %% Training one attention
RUNS = range(1 if QUICK else 3)


def in_words(shares):
    return [f"{share:.0%}" for share in [*shares, shares[-1], shares[-1]][:3]]


table(["asked for", "run 1", "run 2", "run 3"],
      [[name, *in_words([Reader(run).train(questions).share_right(questions)
                         for run in RUNS])]
       for questions, name in ((1, "one box: right"), (2, "two boxes: both right"))])

# %% [markdown]
# With one question it is always right, with two in only a fifth of the problems. What can't it do?
#
# ## The picture
#
# Take only two boxes, with a number in each: 4 in A and 8 in B. With equal weights, their blend is 6. But 8 in A and 4
# in B give the same blend, and so do 6 and 6. **From one blend you can't tell what went in.** So we take two
# attentions, called **heads**. Each has its own queries, keys and values, and makes its own blend:

# %% Drawing two heads
ROWS_O = np.array([[1.5, -0.5, 0], [-0.5, 1.5, 0]])      # (head, d)
SHARES, CONTENTS = np.array([[3, 1], [1, 3]]) / 4, [4, 8]   # (head, box) and (box,)
BLENDS = SHARES @ CONTENTS                              # (head,)
OF_BLENDS = ROWS_O @ [1, 0, 0]                          # for dy = (1, 0, 0)
OFFERS = np.outer(OF_BLENDS, CONTENTS)                  # (head, box)
AVERAGES = (SHARES * OFFERS).sum(axis=1)
OF_SCORES = SHARES * (OFFERS - AVERAGES[:, None])
OF_VALUES = SHARES * OF_BLENDS[:, None]


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
        for y, name in ((228, "score"), (280, "weight"), (375, "value"),
                        (450, "blend")):
            drawing.text(left + 62, y, name, "soft", 13, "end")
        for s, (column, share) in enumerate(zip(columns, SHARES[head])):
            key = "ln 3" if s == head else "0"
            drawing.vector(column, 192, [key], "key", 54, above="key of " + "AB"[s])
            drawing.text(column, 228, key)
            drawing.bar(column, 280, share, height=60, below=f"{4 * share:g}/4")
            value = drawing.vector(column, 375, [CONTENTS[s]], "value", 54)
            drawing.thread(value.bottom, blend.top, share)
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
     caption="Two heads make two blends of the same two numbers. The matrix W_O makes "
     "one output of both.")

# %% [markdown]
# ## By hand
#
# Follow figure 1 with a pencil. A vector has three numbers here: *is it A?*, *is it B?* and the content. So box A is
# (1, 0, 4), and $x$ = (1, 1, 0) asks for both boxes.
#
# **Step 1, project.** Each head has three matrices of its own. Here each of them is a column of three numbers. So a
# query, a key and a value are one number each ($d_k = 1$):
#
# | | $W_Q$ | $W_K$ | $W_V$ |
# |---|---|---|---|
# | head 1 | 1, 0, 0 | ln 3, 0, 0 | 0, 0, 1 |
# | head 2 | 0, 1, 0 | 0, ln 3, 0 | 0, 0, 1 |
#
# In head 1 the query is 1 · 1 + 1 · 0 + 0 · 0 = 1. The key of A is ln 3, and the key of B is 0: head 1 looks for A. The
# values are the contents, 4 and 8. Head 2 looks for B.
#
# **Step 2, attend.** Each head goes on as in lesson 04, without the other one. In head 1 the scores are ln 3 and 0, the
# exponentials 3 and 1, and the weights 3/4 and 1/4. The blend is 3/4 · 4 + 1/4 · 8 = **5**. In head 2 the weights are
# 1/4 and 3/4, and the blend is **7**.
#
# **Step 3, side by side.** The blends become one vector, (5, 7).
#
# **Step 4, mix.** One more learned matrix, $W_O$, has a row for each head. Each head adds its blend times its row to
# the output:
#
#     5 · (1.5, −0.5, 0) + 7 · (−0.5, 1.5, 0) = (4, 8, 0)
#
# The content of A, then the content of B! Yet no head looked at one box only. But two blends are two equations, 3/4 A +
# 1/4 B = 5 and 1/4 A + 3/4 B = 7. Their solution is A = 1.5 · 5 − 0.5 · 7 = 4. These two factors are the first column
# of $W_O$. The second column solves for B.
#
# Now A and B exchange their contents. What is the output?
#
# <details><summary>Calculate, then unfold</summary>
#
# The blends are 3/4 · 8 + 1/4 · 4 = 7 and 5. The output is 7 · (1.5, −0.5, 0) + 5 · (−0.5, 1.5, 0) = (8, 4, 0).
#
# </details>
#
# The same with the function that you will write:

# %%
def weight(data):
    data = np.array(data, dtype=float)
    return SimpleNamespace(data=data, grad=np.zeros(data.shape))


ln3 = np.log(3)
W = {"W_Q": weight([[[1], [0]], [[0], [1]], [[0], [0]]]),        # (d, h, k): 3, 2, 1
     "W_K": weight([[[ln3], [0]], [[0], [ln3]], [[0], [0]]]),
     "W_V": weight([[[0], [0]], [[0], [0]], [[1], [1]]]),
     "W_O": weight([[[1.5, -0.5, 0]], [[-0.5, 1.5, 0]]])}        # (h, k, d)
x = np.array([[[1, 1, 0]]])                                      # (b, t, d)
memory = np.array([[[1, 0, 4], [0, 1, 8]]])                      # (b, s, d)
y, backward = transformer.multi_head_attention(x, memory, True, **W)
print("output", y[0, 0].round(9))

# %% [markdown]
# ## In general
#
# The vectors $x$ ask, the memory $m$ is asked, as in lesson 04:
#
# $$\mathrm{head}_i = \mathrm{Attention}(x W_{Q,i}, \, m W_{K,i}, \, m W_{V,i})$$
#
# $$\mathrm{MultiHead}(x, m) = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_h) \, W_O$$
#
# There are $h$ heads, and $D = d_{model}$. The matrices $W_{Q,i}$, $W_{K,i}$ and $W_{V,i}$ of head $i$ are (D, d_k).
# $W_O$ is (h d_k, D), with $d_k$ rows for each head. There are no biases, and all heads get the same mask. In the paper
# $d_k = D / h$: 8 heads of 64 make 512.
#
# **More heads cost the same.** The four matrices have $4 D^2$ numbers. In self-attention over $T$ positions, the scores
# and blends of all heads take $2 h T^2 d_k = 2 T^2 D$ multiplications. No $h$ is left. (But there are $h$ times as many
# attention weights to store.)
#
# **All heads at once.** Many programs put the matrices of all heads side by side: the first $d_k$ columns belong to
# head 1, the next $d_k$ to head 2. One product projects for all heads, and `reshape` cuts its columns into heads. To
# get the heads before the positions, we must also swap two axes:

# %%
B, T, h, d_k = 1, 4, 2, 3
position = np.arange(1, T + 1)[:, None]
projection = np.tile(position, (B, 1, h * d_k))            # (B, T, h d_k)
right = projection.reshape(B, T, h, d_k).swapaxes(1, 2)    # (B, h, T, d_k)
wrong = projection.reshape(B, h, T, d_k)                   # the same shape

# %% The figure
owner = np.tile(np.arange(h * d_k) // d_k, (B, T, 1))      # the head of each cell
owners = [owner[0], *owner.reshape(B, T, h, d_k).swapaxes(1, 2)[0],
          *owner.reshape(h, T, d_k)]
figure, axes = plt.subplots(1, 5, figsize=(8, 2.2), width_ratios=(2, 1, 1, 1, 1),
                            layout="constrained")
names = ["projection",
         *(f"{way}\nhead {i}" for way in ("right", "wrong") for i in (1, 2))]
for panel, name, numbers, colour in zip(axes, names, [projection[0], *right[0],
                                                      *wrong[0]], owners):
    panel.pcolormesh(colour, cmap=ListedColormap([LIGHT, ACCENT]), vmin=0, vmax=1,
                     edgecolors="white")
    for (t, j), number_shown in np.ndenumerate(numbers):
        panel.text(j + 0.5, t + 0.5, number_shown, ha="center", va="center")
    panel.set_title(name, fontsize=10)
    panel.set(xlim=(0, numbers.shape[1]), ylim=(T, 0), aspect="equal")
    panel.axis("off")
assert wrong[0, 0, 1, 0] == 1 and right[0, 0, 1, 0] == 2
show(figure, "07_split", alt="A table of 4 positions by 6 columns, three light columns "
     "of head 1 and three orange ones of head 2. The right way makes two tables of 4 "
     "positions by 3 columns, one light, one orange. The wrong way makes two tables "
     "in which light and orange rows alternate: the first holds positions 1 and 2, "
     "the second 3 and 4.",
     caption="The number in a cell is its position, the colour its head. In the wrong "
     "way, each head gets all columns of half of the positions.")

# %% [markdown]
# A `reshape` never changes the order of the numbers. So the line `wrong` runs, but the second row of head 1 now comes
# from position 1. (The hunt `wrong_split` has such a bug for you.)
#
# **Your turn.** In `transformer.py` nothing needs to be cut: `W_Q`, `W_K` and `W_V` have the axes (d, h, k). With the
# right letters, one `linear` makes the queries of all heads, (b, t, h, k). Keys and values are (b, s, h, k). That is
# what your `attention` takes. `W_O` has the axes (h, k, d), and a last `linear` adds up over h and k. This is Concat
# and $W_O$ in one step.
#
# Write the forward half of `multi_head_attention(x, memory, mask, W_Q, W_K, W_V, W_O)`. Queries come from `x`, keys and
# values from `memory`, and `mask` goes on to `attention`. Keep each result and each backward.
#
# ## Backward
#
# In figure 1, let the loss be the first number of the output, so $dy$ = (1, 0, 0). Guess first: what are the gradients
# of the contents, 4 in A and 8 in B?

# %% The drawing, backward
show(heads_picture(backward=True), "07_heads_backward",
     alt="The same picture as figure 1, with gradients. dy is (1, 0, 0). The blends "
     "get +1.5 and −0.5. In head 1 the offers are 6 and 12, the average 7.5, and "
     "the scores get −1.125 and +1.125; in head 2 the offers are −2 and −4, the "
     "average −3.5, and the scores get +0.375 and −0.375. The values get +1.125 "
     "and +0.375, −0.125 and −0.375. Box A gets (−1.236, +0.412, +1), box B "
     "(+1.236, −0.412, 0), and x gets (−1.236, −0.412, 0).",
     caption="In magenta, the gradients. Triangles point where training moves a "
     "number: down if its gradient is positive.")

# %% [markdown]
# **Through $W_O$.** A blend gets the dot product of $dy$ with the row of its head: 1.5 in head 1, −0.5 in head 2.
#
# **Through the heads.** Forward, no head sees another one. The same holds backward, so each head follows lesson 04. An
# offer is the gradient of the blend times the value: in head 1, A offers 1.5 · 4 = 6 and B offers 12. The average is
# 3/4 · 6 + 1/4 · 12 = 7.5. A score gets *weight × (offer − average)*:
#
# | | offers of A, B | average | gradients of the scores |
# |---|---|---|---|
# | head 1 | 6, 12 | 7.5 | 3/4 · (6 − 7.5) = −1.125, 1/4 · (12 − 7.5) = +1.125 |
# | head 2 | −2, −4 | −3.5 | 1/4 · (−2 + 3.5) = +0.375, 3/4 · (−4 + 3.5) = −0.375 |
#
# Training makes a number with a positive gradient smaller. So head 1 will look more at A, and head 2 more at B.
#
# **Into the memory.** A value gets *weight × gradient of the blend*. The content of A is a value in both heads, so two
# gradients come back and add up: 3/4 · 1.5 + 1/4 · (−0.5) = 1.125 − 0.125 = **1**. For B it is 0.375 − 0.375 = **0**.
# That is right: the first number of the output *is* the content of A, and B has no part in it.
#
# Box A also gave each head a key. The gradient of a key is that of its score times the query: −1.125 · 1 in head 1.
# $W_K$ hands it on to *is it A?*: −1.125 · ln 3 = −1.236.
#
# So $dm$ has two shares, one through the keys and one through the values, and they **add up**. $x$ gets its gradient
# through the queries alone. In general, with $W_{O,i}$ for the $d_k$ rows of head $i$, $d\,\mathrm{head}_i = dy \,
# W_{O,i}^T$. All products are calls of `linear`: their backward sums over the heads, and adds to the gradients of the
# weights.
#
# **Your turn.** Write the backward half, beginning with the last step. Return $dx$ and $dm$, in this order. (In
# self-attention, `x` and `memory` are the same array. The caller adds the two.) Then run `scratchformer learn check
# multi_head_attention`.

# %%
quote("multi_head_attention")

# %% Figure 3, the check, and the line of PyTorch
dx, dmemory = backward(np.array([[[1, 0, 0]]]))
assert np.allclose(dx, [[[-1.236, -0.412, 0]]], atol=5e-4)
assert np.allclose(dmemory, [[[-1.236, 0.412, 1], [1.236, -0.412, 0]]], atol=5e-4)

random, D = np.random.default_rng(7), h * d_k
x, dy = random.normal(size=(2, 2, T, D))                # two sentences each
memory = random.normal(size=(2, 5, D))
mask = (np.arange(5) < [[5], [3]])[:, None, None, :]    # the second one has 3 words
W = {name: weight(random.normal(size=(D, h, d_k))) for name in ("W_Q", "W_K", "W_V")}
W["W_O"] = weight(random.normal(size=(h, d_k, D)))
y, backward = transformer.multi_head_attention(x, memory, mask, **W)
arrays = {"x": x, "memory": memory} | {name: each.data for name, each in W.items()}
gradients = [*backward(dy), *(each.grad for each in W.values())]


def loss_of(name):
    """The loss as a function of one array"""
    def loss(array):
        inputs = arrays | {name: array}
        of_model = {name: SimpleNamespace(data=inputs[name]) for name in W}
        y, _ = transformer.multi_head_attention(inputs["x"], inputs["memory"], mask,
                                                **of_model)
        return (y * dy).sum()
    return loss


errors = [np.abs(ours - numeric).max() / np.abs(numeric).max() for ours, numeric in
          zip(gradients, (numeric_gradient(loss_of(name), array)
                          for name, array in arrays.items()))]
same("dx, dm and all dW, and finite differences", max(errors), 0, 1e-7)
try:
    import torch
except ImportError:
    torch = None
if torch:
    layer = torch.nn.MultiheadAttention(D, h, bias=False, batch_first=True).double()
    columns = [W[name].data.reshape(D, D) for name in ("W_Q", "W_K", "W_V")]
    layer.in_proj_weight.data[...] = torch.tensor(np.concatenate(columns, axis=1).T)
    layer.out_proj.weight.data[...] = torch.tensor(W["W_O"].data.reshape(D, D).T)
    m = torch.tensor(memory, requires_grad=True)
    theirs, _ = layer(torch.tensor(x), m, m, torch.tensor(~mask[:, 0, 0]))
    theirs.backward(torch.tensor(dy))
    assert np.allclose(theirs.detach(), y) and np.allclose(m.grad, gradients[1])

# %% [markdown]
# ## Does it matter?
#
# - **What goes in:** six boxes, 1,200 steps of 32 problems.
# - **What is changed:** the number of heads, with equally many weights.
# - **What is measured:** how often both answers are right in 2,000 new problems.
# - **Two controls:** one head again, but its output goes through two more linear maps (16 numbers to 64 to 16). And the
#   same with a ReLU between the two maps, as in [lesson 01](01_backprop.py).
#
# What do you predict for each? (a) a fifth, like one head, (b) more than half, (c) all.
#
# <details><summary>Make a guess, then unfold: three runs each</summary>

# %% Training readers of boxes
READERS = {"1 head of width 16": {}, "2 heads of width 8": {"h": 2, "d_k": 8},
           "16 heads of width 1": {"h": 16, "d_k": 1},
           "1 head, then two linear maps": {"behind": "linear"},
           "1 head, then two maps with a ReLU between": {"behind": "ReLU"}}
found = {name: [Reader(run, **settings).train().share_right() for run in RUNS]
         for name, settings in READERS.items()}
table(["both right", "run 1", "run 2", "run 3"],
      [[name, *in_words(shares)] for name, shares in found.items()])

# %% [markdown]
# </details>
#
# Two heads are always right. Sixteen are too narrow (with width 16 they are always right: [lab notes
# 07](lab/07_many_heads.py#where-the-readers-look)). If $d_k = 1$, a score is the product of two numbers. So a head can
# prefer the largest key or the smallest, but none in between.
#
# The last row may surprise you: **one head is enough, if a ReLU reads its blend**. Here a content isn't a number as in
# figure 1, but a 1 at a place of its own. The head gives 0.68 of its weight to one box and 0.24 to the other, on
# average. So one content is strong in the blend and the other weak, and a network with a ReLU can tell strong from
# weak. Linear maps can't ([lab notes 07](lab/07_many_heads.py#what-one-head-and-a-linear-map-cannot-do), for keys that
# depend on the labels only). With two heads they don't have to.
#
# A Transformer has a layer with a ReLU behind each attention ([lesson 11](11_feed_forward.py)). So one head isn't lost
# there. In the paper, more heads gain less (Table 3, rows A, English to German): one head has 24.9 BLEU, 8 heads 25.8,
# 16 heads 25.8, and 32 heads 25.4. (BLEU rates translations, higher is better: [lesson 21](21_bleu_and_averaging.py).)
#
# ## Today
#
# While a model writes, it keeps the keys and values of all words so far, the **KV cache**: $2 h d_k$ numbers for each
# word in each layer. With long texts this fills the memory. In **multi-query attention** (Shazeer 2019) all heads share
# one head of keys and values, in **grouped-query attention** (Ainslie et al. 2023; Llama) a few heads do. Each head
# still has its own queries. You will write it in [lesson 23](23_block_of_2026.py).
#
# ## Paper and code
#
# - "Attention Is All You Need" ([arXiv](https://arxiv.org/abs/1706.03762)), §3.2.2 and Figure 2: "With a single
#   attention head, averaging inhibits this."
# - PyTorch: `torch.nn.MultiheadAttention(D, h, bias=False, batch_first=True)` (compared above).
# - In the library: `CrossAttention` and `SelfAttention` in [nn/attention.py](../scratchformer/nn/attention.py), with
#   biases.
#
# ## What to remember
#
# A head makes one blend. $h$ heads make $h$ blends for each query, and a linear map can use them all. Heads don't see
# each other: each adds its part to the output, through its rows of $W_O$. With $d_k = D / h$ they cost as much as one
# head. Backward, `memory` gets a share through the keys and one through the values.
#
# **Three questions.**
#
# 1. A model has $d_{model} = 512$ and 16 heads. What is $d_k$, and how many numbers are in the four matrices?
# 2. In figure 1, set head 2's row of $W_O$ to 0. What is the output? Is one of its numbers the content of a box?
# 3. In figure 1, let $dy$ = (0, 1, 0). What do the two blends get, and what do the contents of A and B get?
#
# <details><summary>Answers</summary>
#
# 1. 512 / 16 = 32, and 4 · 512 · 512 = 1,048,576.
# 2. (7.5, −2.5, 0). No: only both heads together give the contents.
# 3. The blends get −0.5 and 1.5. A gets 3/4 · (−0.5) + 1/4 · 1.5 = 0, and B gets 1/4 · (−0.5) + 3/4 · 1.5 = 1.
#
# </details>
#
# **Yours:** `multi_head_attention`, and the hunts `wrong_split` and `cross_attention` · `scratchformer learn check
# multi_head_attention`
#
# **Next:** attention works on vectors that were given. [Lesson 08](08_embeddings.py) makes vectors of words.
