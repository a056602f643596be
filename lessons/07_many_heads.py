# %% [markdown]
# # 07 · Many heads
#
# **Why cut attention into eight heads, if one head has as many weights and costs as much?**
#
# *Needs [lesson 01](01_backprop.py) (`linear`) and [lesson 04](04_soft_lookup.py) (attention and its gradient) · you
# will compute two heads and their gradients with pencil and paper.*

# %% Imports
from types import SimpleNamespace

import numpy as np
import transformer

from scratchformer.experiments.heads import sentence_attention
from scratchformer.text.bundled import Example, read_text
from scratchformer.training.run import load_run
from support.drawing import Drawing, number
from support.lesson import QUICK, ROOT, quote, same, show, table
from support.numeric import numeric_gradient
from support.six_boxes import KINDS, Reader, problems

# %% [markdown]
# Six boxes stand on a table, each with a label and a content. You name two labels, and I tell you what is in the first
# box and what is in the second. Can attention do it, too?
#
# There are eight labels and eight contents. Two boxes may have the same content, but not the same label. A box is a
# vector of 16 numbers, with a 1 among the first eight for its label and a 1 among the last eight for its content. The
# question is built in the same way, of the first label and the second. One problem:

# %% One problem
queries, boxes, contents = problems(np.random.default_rng(0), 1)
print("labels  ", *boxes[0, :, :KINDS].argmax(axis=-1))
print("contents", *boxes[0, :, KINDS:].argmax(axis=-1))
print("asked   ", *queries.reshape(2, KINDS).argmax(axis=-1), "  answers", *contents[0])

# %% [markdown]
# One attention reads the boxes, and a matrix makes logits of its output, eight for each answer. Both learn from random
# problems, and are tested on new ones:

# %% Training one attention
RUNS = range(1 if QUICK else 3)


def in_words(shares):
    return [f"{share:.0%}" for share in [*shares, shares[-1], shares[-1]][:3]]


table(["asked for", "run 1", "run 2", "run 3"],
      [[name, *in_words([Reader(run).train(questions).share_right(questions)
                         for run in RUNS])]
       for questions, name in ((1, "one box: right"), (2, "two boxes: both right"))])

# %% [markdown]
# With one question it is always right, with two in a fifth of the problems. (A blind guess: 1/8 · 1/8, about 2 %.) Why
# is that so much harder?
#
# ## The picture
#
# Take two boxes with a number in each: 4 in A and 8 in B. With equal weights, their blend is 6. But 8 in A and 4 in B
# give the same blend. **If two boxes get equal weights, their blend can't tell which content is where.** With unequal
# weights it could, because one content is stronger. But a linear map can't always use this.
#
# So we take two attentions, called **heads**. Each has queries, keys and values of its own, and makes its own blend:

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
     caption="Two heads make two blends, and W_O makes one output of both.")

# %% [markdown]
# ## By hand
#
# A vector has three numbers here: *is it A?*, *is it B?* and the content. So box A is (1, 0, 4), and $x$ = (1, 1, 0)
# asks for both boxes.
#
# **Step 1, project.** Each head has three matrices of its own, here columns of three numbers. So a query, a key and a
# value are one number each ($d_k = 1$):
#
# | | $W_Q$ | $W_K$ | $W_V$ |
# |---|---|---|---|
# | head 1 | 1, 0, 0 | ln 3, 0, 0 | 0, 0, 1 |
# | head 2 | 0, 1, 0 | 0, ln 3, 0 | 0, 0, 1 |
#
# In head 1 the query is 1 · 1 + 1 · 0 + 0 · 0 = 1. The key of A is ln 3, and the key of B is 0: head 1 looks for A. The
# values are the contents, 4 and 8. Head 2 looks for B.
#
# **Step 2, attend.** Each head goes on by itself, as in lesson 04. In head 1 the scores are ln 3 and 0, the
# exponentials 3 and 1, and the weights 3/4 and 1/4. (We divide scores by $\sqrt{d_k}$, which is 1 here.) The blend is
# 3/4 · 4 + 1/4 · 8 = **5**. In head 2 the weights are 1/4 and 3/4, and the blend is **7**.
#
# **Step 3, side by side.** The blends become one vector, (5, 7).
#
# **Step 4, mix.** One more learned matrix, $W_O$, has a row for each head. Each head adds its blend times its row to
# the output:
#
#     5 · (1.5, −0.5, 0) + 7 · (−0.5, 1.5, 0) = (4, 8, 0)
#
# The content of A, then that of B! No head looked at one box alone, but two blends are two equations: 3/4 A + 1/4 B = 5
# and 1/4 A + 3/4 B = 7. Their solution is A = 1.5 · 5 − 0.5 · 7 = 4, and its factors are the first column of $W_O$.
#
# Now A and B exchange their contents. What is the output?
#
# <details><summary>Calculate, then unfold</summary>
#
# The blends are 3/4 · 8 + 1/4 · 4 = 7 and 5. The output is 7 · (1.5, −0.5, 0) + 5 · (−0.5, 1.5, 0) = (8, 4, 0).
#
# </details>
# The function that you will write does the same:

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
# As in lesson 04, the queries come from the vectors $x$, and the keys and values from the memory $m$:
#
# $$\mathrm{head}_i = \mathrm{Attention}(x W_{Q,i}, \, m W_{K,i}, \, m W_{V,i})$$
#
# $$\mathrm{MultiHead}(x, m) = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_h) \, W_O$$
#
# The matrices $W_{Q,i}$, $W_{K,i}$ and $W_{V,i}$ of head $i$ are (D, d_k), with $D = d_{model}$. $W_O$ is (h d_k, D),
# with $d_k$ rows for each head. There are no biases, and all heads get the same mask. In the paper $d_k = D / h$: 8
# heads of 64 make 512.
#
# **More heads cost the same.** The four matrices have $4 D^2$ numbers. In self-attention over $T$ positions, the scores
# and blends of all heads take $2 h T^2 d_k = 2 T^2 D$ multiplications. No $h$ is left. (But there are $h$ tables of
# attention weights to store.)
#
# **Your turn.** Write the forward half of `multi_head_attention(x, memory, mask, W_Q, W_K, W_V, W_O)`. `W_Q`, `W_K` and
# `W_V` have the axes (d, h, k). So one `linear` can make the queries of all heads: choose its letters so that the
# result is (b, t, h, k). `W_O` has the axes (h, k, d), and a last `linear` sums over h and k: Concat and $W_O$ in one
# step.
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
# **Through $W_O$.** A blend gets the dot product of $dy$ with the row of its head: 1.5 in head 1, −0.5 in head 2. (In
# general, $d\,\mathrm{head}_i = dy \, W_{O,i}^T$, with the rows of head $i$.)
#
# **Through the heads.** Each head follows lesson 04. An offer is the gradient of the blend times the value: in head 1,
# A offers 1.5 · 4 = 6 and B offers 12. The average is 3/4 · 6 + 1/4 · 12 = 7.5. A score gets *weight × (offer −
# average)*:
#
# | | offers of A, B | average | gradients of the scores |
# |---|---|---|---|
# | head 1 | 6, 12 | 7.5 | 3/4 · (6 − 7.5) = −1.125, 1/4 · (12 − 7.5) = +1.125 |
# | head 2 | −2, −4 | −3.5 | 1/4 · (−2 + 3.5) = +0.375, 3/4 · (−4 + 3.5) = −0.375 |
#
# So training makes head 1 look more at A, and head 2 more at B.
#
# **Into the memory.** A value gets *weight × gradient of the blend*. The content of A is a value in both heads, so its
# two gradients add up: 3/4 · 1.5 + 1/4 · (−0.5) = 1.125 − 0.125 = **1**. For B it is 0.375 − 0.375 = **0**. Of course:
# the first number of the output *is* the content of A.
#
# Box A also gave each head a key. The gradient of a key is *gradient of the score × query*: −1.125 · 1 in head 1. The
# key is *is it A?* times ln 3, so *is it A?* gets −1.125 · ln 3 = −1.236. So $dm$ has two shares, through the keys and
# through the values, and they **add up**.
#
# $x$ gets its gradient through the queries alone. The gradient of a query is the sum of *gradient of the score × key*
# over the boxes. In head 1 it is −1.125 · ln 3 + 1.125 · 0 = −1.236, and in head 2 it is 0.375 · 0 − 0.375 · ln 3 =
# −0.412.
#
# **Your turn.** Write the backward half, beginning with the last step. Return $dx$ and $dm$. (In self-attention both
# belong to the same array, and the caller adds them.) Then run `scratchformer learn check multi_head_attention`.

# %%
quote("multi_head_attention")

# %% The gradients of figure 2, the check, and the line of PyTorch
dx, dmemory = backward(np.array([[[1, 0, 0]]]))
assert np.allclose(dx, [[[-1.236, -0.412, 0]]], atol=5e-4)
assert np.allclose(dmemory, [[[-1.236, 0.412, 1], [1.236, -0.412, 0]]], atol=5e-4)

random, T, h, d_k, D = np.random.default_rng(7), 4, 2, 3, 6
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
# - **What is changed:** the number of heads, always with 1,024 weights.
# - **What is measured:** how often both answers are right in 2,000 new problems.
# - **Two controls:** one head and two linear maps behind it, which make 64 numbers, then the 16 logits; the same with a
#   ReLU between the maps. These two have 3,072 weights.
#
# What do you predict for each? (a) a fifth, like one head, (b) more than half, (c) always.
#
# <details><summary>Make a guess, then unfold: three runs each</summary>

# %% Training readers of boxes
READERS = {"1 head of width 16": {}, "2 heads of width 8": {"h": 2, "d_k": 8},
           "8 heads of width 2": {"h": 8, "d_k": 2},
           "16 heads of width 1": {"h": 16, "d_k": 1},
           "1 head, then two linear maps": {"behind": "linear"},
           "1 head, then two maps with a ReLU between": {"behind": "ReLU"}}
found = {name: [Reader(run, **settings).train().share_right() for run in RUNS]
         for name, settings in READERS.items()}
table(["both right", "run 1", "run 2", "run 3"],
      [[name, *in_words(shares)] for name, shares in found.items()])

# %% [markdown]
# </details>
# Two heads are always right, eight nearly always, sixteen of width 1 are not. We think (it isn't measured) that heads
# of width 1 can't ask precisely. Their keys lie on a line, where a query can single out only the box at one end. Keys
# of width 2 can lie on a circle, where each can be singled out.
#
# One head with weights chosen by hand gets 57 %. But with a linear map behind it, it can't be *always* right if its
# keys depend on the labels only ([lab notes 07](lab/07_many_heads.py#what-one-head-and-a-linear-map-cannot-do)).
#
# And **one head is enough, if a ReLU reads its blend**. It gives 0.68 of its weight to one box and 0.24 to the other,
# so one content is strong in the blend and the other weak.
#
# **What the heads buy, then:** each answers a question of its own, and a linear map can use them all. With one head,
# our readers needed a ReLU to separate the answers: two linear maps got 17 to 21 %. Each layer of a Transformer has a
# ReLU behind its attention ([lesson 11](11_feed_forward.py)). In the paper's Table 3, one head has 24.9 BLEU ([lesson
# 21](21_bleu_and_averaging.py)), eight have 25.8, and 32 have 25.4.
#
# ## Two heads of a translator
#
# The translator of [lesson 00](00_whole_game.py) has four heads in each attention. To write *der*, *die*, *das* or
# *den*, it needs two answers: does *the* come next? And before which noun? Here are two of the heads with which its
# second decoder layer reads the English:

# %% Drawing two heads of the translator
EXAMPLE = Example("The goat found the dog.", "Die Ziege fand den Hund.",
                  "", "", [], None)
translator = load_run(ROOT / "data/tiny_model")


def pieces_of(sentence):
    return translator.tokenizer.pieces(translator.tokenizer.encode([sentence])[0])


assert translator.translate([EXAMPLE.source]) == [EXAMPLE.target]
pieces = [piece.strip("▁") for piece in pieces_of(EXAMPLE.source)]
looks = sentence_attention(translator, EXAMPLE).cross[1]        # (head, written, read)
drawing = Drawing(760, 262)
for t, left, word in (0, 100, "Die"), (3, 440, "den"):
    drawing.text(left + 125, 16, f"before it writes “{word}”", bold=True)
    for i in range(2):
        for s, piece in enumerate(pieces):
            x, y, share = left + 50 * s, 84 + 116 * i, looks[i, t, s]
            drawing.bar(x, y, share, 24, 50)
            large = bool(share > 0.1)
            drawing.text(x, y - 38, f"{share:.2f}", "ink" if large else "soft", 12)
            drawing.text(x, y + 40, piece, size=14, bold=large)
for i in range(2):
    drawing.text(14, 84 + 116 * i, f"head {i + 1}", bold=True, anchor="start")
show(drawing, "07_goat",
     alt="The weights of two heads on the words of The goat found the dog. Before the "
     "translator writes Die, head 1 gives 0.97 to The, and head 2 gives 0.99 to goat. "
     "Before it writes den, head 1 gives 0.99 to dog, and head 2 gives 1.00 to the.",
     caption="In this sentence, one head looks at the article, the other at its noun.")
assert min(looks[0, 0, 0], looks[1, 0, 1], looks[0, 3, 4], looks[1, 3, 3]) > 0.95

behind = []                                             # one for each article
for english, german in zip(*(side[:120] for side in read_text("test")[:2])):
    example = Example(english, german, "", "", [], None)
    first, second = sentence_attention(translator, example).cross[1, :2].argmax(axis=-1)
    the = [piece in ("▁The", "▁the") for piece in pieces_of(english)]
    written = pieces_of(german)
    for piece, following, *ab in zip(written, written[1:], first, second):
        whole = following.startswith("▁")               # a word of one piece
        if whole and piece.lower() in ("▁der", "▁die", "▁das", "▁den", "▁dem"):
            behind.append(any(the[a] and a < b <= a + 2 for a, b in (ab, ab[::-1])))
assert len(behind) == 133
assert 121 <= sum(behind) <= 129                        # 125 here

# %% [markdown]
# They exchange roles within the sentence. In 120 test sentences, at about 125 of 133 articles one of the two
# looks most at *the*, and the other at one of the next two words.
#
# <!-- see: attention?s=The+goat+found+the+dog.&kind=cross&layer=2&head=1 | the first of these two heads -->
#
# ## Today
#
# While a model writes, it keeps the keys and values of all words so far, the **KV cache**. To save memory, all heads
# share one head of keys and values in **multi-query attention** (Shazeer 2019), and a few heads share one in
# **grouped-query attention** (Ainslie et al. 2023; Llama 2 70B, Llama 3): [lesson 23](23_block_of_2026.py).
#
# ## Paper and code
#
# - "Attention Is All You Need" ([arXiv](https://arxiv.org/abs/1706.03762)), §3.2.2: "Multi-head attention allows the
#   model to jointly attend to information from different representation subspaces at different positions. With a single
#   attention head, averaging inhibits this."
# - Many programs put the matrices of all heads side by side, and cut the product by `reshape(b, t, h, k)`. `reshape(b,
#   h, t, k)` is wrong: a head gets whole rows of some positions (hunt `wrong_split`).
# - PyTorch: `torch.nn.MultiheadAttention(D, h, bias=False, batch_first=True)`.
# - In the library (with biases): [nn/attention.py](../scratchformer/nn/attention.py).
#
# ## What to remember
#
# $h$ heads make $h$ blends for each query, and a linear map can use them all. Each head adds its part to the output,
# through its rows of $W_O$.
#
# **Test yourself.**
#
# 1. Let $d_{model} = 512$ and $h = 16$. What is $d_k$, and how many numbers have the four matrices?
# 2. In figure 1, set head 2's row of $W_O$ to 0. What is the output?
# 3. In figure 1, let $dy$ = (0, 1, 0). What do the blends get, and what do the contents get?
#
# <details><summary>Answers</summary>
#
# 1. 512 / 16 = 32, and 4 · 512 · 512 = 1,048,576.
# 2. (7.5, −2.5, 0). Only both heads together give the contents.
# 3. The blends get −0.5 and 1.5. A gets 3/4 · (−0.5) + 1/4 · 1.5 = 0, and B gets 1/4 · (−0.5) + 3/4 · 1.5 = 1.
#
# </details>
#
# **Yours:** `multi_head_attention`, and the hunts `wrong_split` and `cross_attention` (wrong, though gradient checks
# pass) · `scratchformer learn check 07`
#
# **Next:** attention works on vectors that were given. [Lesson 08](08_embeddings.py) makes vectors of words.
