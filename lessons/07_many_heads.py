# %% [markdown]
# # 07 · Many heads
#
# **Why cut attention into eight heads, if one head has as many weights and costs as much?**
#
# *Needs [lesson 04](04_soft_lookup.py) (queries, keys, values) and [lesson 05](05_scaling.py) (the factor $\sqrt{d_k}$)
# · you will split attention into heads, forward and backward, and meet a task that one head can't do.*

# %% Imports
import math
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import transformer
from matplotlib.colors import ListedColormap

from scratchformer.experiments import heads
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.nn.attention import CrossAttention, attention_weights
from scratchformer.text.bundled import read, words
from scratchformer.training.run import load_run
from support.lesson import QUICK, ROOT, measure, quote, same, show, table
from support.numeric import numeric_gradient

# %% [markdown]
# Six boxes stand on a table. Each has a label on it and a content in it. You name two labels, and I have to tell you
# what is in the first box and what is in the second. A child can do that. Can one layer of attention?
#
# There are eight possible labels, all different on the table, and eight possible contents. A box is a vector of 16
# numbers: a 1 for its label and a 1 for its content. The query is a vector of 16 numbers too: a 1 for the first label
# and a 1 for the second. The layer returns 16 numbers: eight logits for the first answer and eight for the second. A
# **head** is what lesson 04 called attention, and the only thing we change is how many there are.

# %% The task and its training
n, n_boxes = 8, 6


def draw(random, B):
    """B problems -> query (B, 1, 16), boxes (B, 6, 16), the two right answers (B, 2)"""
    labels = random.permuted(np.tile(np.arange(n), (B, 1)), axis=1)[:, :n_boxes]
    contents = random.integers(0, n, (B, n_boxes))
    asked = random.permuted(np.tile(np.arange(n_boxes), (B, 1)), axis=1)[:, :2]
    row = np.arange(B)[:, None]
    query = np.eye(n)[labels[row, asked]].reshape(B, 1, 2 * n)
    boxes = np.concatenate([np.eye(n)[labels], np.eye(n)[contents]], axis=-1)
    return query, boxes, contents[row, asked]


def softmax(z):
    """z (..., S) -> weights (..., S), each row positive and adding up to 1"""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention_of(h, d_k=None):
    """-> a function that makes a layer with h heads; d_k is 16 / h if not given"""
    return lambda random: CrossAttention(2 * n, h, random, "float64", d_k, d_k,
                                         bias=False)


def tested(layer, questions=2):
    """-> share of 2000 new problems with the first answer, or both, right;
    the weights (2000, h, 6); the problems"""
    query, boxes, answers = draw(np.random.default_rng(99), 2000)
    y, cache = layer.forward(query, boxes)
    right = (y.reshape(-1, 2, n).argmax(axis=-1) == answers)[:, :questions].all(axis=1)
    return right.mean(), attention_weights(cache)[0][:, :, 0], (query, boxes)


def trained(make, questions=2, seed=0, steps=300, rate=3.0):
    """-> a layer after training with plain gradient descent"""
    random = np.random.default_rng(seed)
    layer = make(random)
    for _ in range(steps):
        query, boxes, answers = draw(random, 32)
        y, cache = layer.forward(query, boxes)  # (32, 1, 16): two rows of 8 logits
        dlogits = (softmax(y.reshape(-1, 2, n)) - np.eye(n)[answers]) / len(y)
        dlogits[:, questions:] = 0
        for parameter in layer.parameters().values():
            parameter.grad[...] = 0
        layer.backward(dlogits.reshape(y.shape), cache)
        for parameter in layer.parameters().values():
            parameter.data -= rate * parameter.grad
    return layer


def learn_boxes(make, questions=2, seed=0, **settings):
    """Train a layer, then test it."""
    return tested(trained(make, questions, seed, **settings), questions)


SEEDS = range(2 if QUICK else 3)


def mean_of_seeds(make, questions=2, **settings):
    return np.mean([learn_boxes(make, questions, seed, **settings)[0]
                    for seed in SEEDS])


# %%
query, boxes, answers = draw(np.random.default_rng(0), 1)
print("labels  ", *boxes[0, :, :n].argmax(axis=-1))
print("contents", *boxes[0, :, n:].argmax(axis=-1))
print("asked   ", *query.reshape(2, n).argmax(axis=-1), "  answers", *answers[0])
measure("one head, one question: right", mean_of_seeds(attention_of(1), 1), 0.97, 1)

# %% [markdown]
# With one question, one head is right (mean of three seeds). Now we ask two questions. One head must answer both. Or
# two heads, each half as wide, so that the number of weights stays the same. How often will one head get both right?
#
# <details><summary>Make a guess, then unfold: two questions</summary>

# %%
measure("one head: both right", mean_of_seeds(attention_of(1)), 0.14, 0.25)
measure("one head, four times as wide", mean_of_seeds(attention_of(1, d_k=64)),
        0.2, 0.35)
measure("one head, four times the steps", mean_of_seeds(attention_of(1), steps=1200),
        0.12, 0.22)
measure("two heads: both right", mean_of_seeds(attention_of(2)), 0.97, 1)

# %% [markdown]
# </details>
#
# One head gets both right in a fifth of the cases. (Reading one box and guessing the other would be right in one case
# of eight.) Two heads make no mistake.
#
# ## The picture
#
# What did they look at? Here is one problem. The box asked for first is called A, the second B.

# %% The figure
_, one, (query, boxes) = learn_boxes(attention_of(1))
_, two, _ = learn_boxes(attention_of(2))
labels = boxes[:, :, :n].argmax(axis=-1)                 # (2000, 6)
asked = query.reshape(-1, 2, n).argmax(axis=-1).T        # (2, 2000)
box_A, box_B = (np.argmax(labels == label[:, None], axis=1) for label in asked)
row = np.arange(len(labels))
first = int(two[row, 0, box_A].mean() < 0.5)  # which head took the first question
shown = int(np.flatnonzero((box_A == 4) & (box_B == 1))[0])
figure, axes = plt.subplots(1, 4, figsize=(8, 2.6), sharey=True, layout="constrained")
panels = {"one head": one[shown, 0], "two heads: one": two[shown, first],
          "two heads: the other": two[shown, 1 - first],
          "mean of the two": two[shown].mean(axis=0)}
for panel, (title, weights) in zip(axes, panels.items()):
    panel.bar(range(n_boxes), weights, color=[LIGHT, DARK, LIGHT, LIGHT, ACCENT, LIGHT])
    panel.set_xticks(range(n_boxes), ["·", "B", "·", "·", "A", "·"])
    panel.set_title(title, fontsize=10)
    panel.set_xlabel("box")
axes[0].set_ylabel("weight")
show(figure, "07_two_questions", alt="Four bar charts of attention weights over six "
     "boxes, for one problem. One head divides its weight between A and B, and gives "
     "some to the others. Of two heads, one gives nearly all to A, the other to B. "
     "The mean of these two is divided between A and B again.",
     caption="One head divides its weight between the two boxes. Two heads take one "
     "box each. Average them, and the difference is gone.")

# %%
of_one = sorted(one[row, 0, box].mean() for box in (box_A, box_B))
measure("one head: mean weight of its preferred box", of_one[1], 0.4, 0.65)
measure("one head: mean weight of the other box", of_one[0], 0.12, 0.35)
measure("two heads: weight of box A in the one", two[row, first, box_A].mean(), 0.75, 1)
measure("two heads: weight of box B in the other", two[row, 1 - first, box_B].mean(),
        0.75, 1)

# %% [markdown]
# A head has one softmax, so it returns *one* blend of all that it reads. Say A contains 3 and B contains 5, and the
# head gives half of its weight to each. It returns ½ of content 3 plus ½ of content 5. Now exchange the two contents.
# The blend is exactly the same. **With equal weights, a sum has lost which was which.** In figure 1 the weights are not
# equal, so the blend still holds a trace of the order. But here only a matrix reads the blend, and that isn't enough
# ([lab notes 07, experiment 1](lab/07_many_heads.py#experiment-1-what-one-head-can-and-cannot-do) have the proof, for
# keys that read labels only). Two heads return two vectors side by side, and nothing is lost. The paper says it in one
# clause (§3.2.2): "With a single attention head, averaging inhibits this."
#
# ## By hand
#
# Two words A and B have the values 4 and 8. Head 1 has the exponentials 3 and 1, so its weights are 3/4 and 1/4. Head 2
# has 1 and 3, so its weights are 1/4 and 3/4. (Both read the same values here.)
#
# | | weights of A, B | blend |
# |---|---|---|
# | head 1 | 3/4, 1/4 | 3/4 · 4 + 1/4 · 8 = 5 |
# | head 2 | 1/4, 3/4 | 1/4 · 4 + 3/4 · 8 = 7 |
#
# Side by side: (5, 7). The last matrix, $W_O$, has a row for each head: (1, 1) for head 1, and (−1, 1) for head 2. So
# head 1 adds 5 · (1, 1) = (5, 5), head 2 adds 7 · (−1, 1) = (−7, 7), and the output is (−2, 12).
#
# Calculate, then unfold: A and B exchange their values. What is the output now, and what would *one* head with the
# weights 1/2 and 1/2 return before and after?
#
# <details><summary>Answer</summary>
#
# The heads return 7 and 5, so the output is (7, 7) + (−5, 5) = (2, 12). The sign of the first number tells which order
# it was. The one head returns 6 both times.
#
# </details>

# %% The same with the file's attention
Q = np.ones((1, 1, 2, 1))                                # (b, t, h, k)
K = np.log([[[[3.0], [1]], [[1], [3]]]])                 # (b, s, h, k)
for values in ([4.0, 8], [8, 4]):
    V = np.repeat(values, 2).reshape(1, 2, 2, 1)         # (b, s, h, k)
    of_heads = transformer.attention(Q, K, V, True)[0].ravel()
    output = of_heads @ [[1, 1], [-1, 1]]
    print("heads", of_heads.round(9), "  output", output.round(9))

# %% [markdown]
# ## What one head can do at best
#
# Back to the boxes. Is it only the training that fails? Let's set one head by hand. It gives equal weight to the two
# boxes asked for, and its output matrix favours their two contents. We try two output matrices. *Undecided* gives both
# contents the same logit. *Smaller first* gives a bit more to the smaller content in the first answer, and to the
# larger one in the second. That is right if both contents are equal (1 case in 8), and otherwise in half of the cases:
# 1/8 + 7/8 · 1/2 = 9/16 = 56.25 %. We compare the loss, too: training lowers the loss, and nothing else.

# %%
by_hand = attention_of(1)(np.random.default_rng(0))
for parameter in by_hand.parameters().values():
    parameter.data[...] = 0
W_Q, W_K, W_V = by_hand.q.weight.data, *np.split(by_hand.kv.weight.data, 2, axis=1)
W_Q[:n, :n] = W_Q[n:, :n] = 40 * np.eye(n)               # both questions ask for labels
W_K[:n, :n] = W_V[n:, :n] = np.eye(n)  # keys: labels; values: contents
preference = np.arange(n) / (2 * n)      # 0 for content 0, up to 7/16 for content 7


def loss_and_right(layer):
    """-> the mean cross-entropy of an answer, and how often both are right, as texts"""
    query, boxes, answers = draw(np.random.default_rng(99), 2000)
    p = softmax(layer.forward(query, boxes)[0].reshape(-1, 2, n))
    right = np.take_along_axis(p, answers[..., None], axis=-1)
    return f"{-np.log(right).mean():.2f}", f"{tested(layer)[0]:.0%}"


rows = []
for name, favour in ("undecided", 0 * preference), ("smaller first", preference):
    by_hand.output.weight.data[:n] = 20 * np.concatenate(
        [np.diag(1 - favour), np.diag(1 + favour)], axis=1)    # first answer, second
    rows.append([f"by hand: {name}", *loss_and_right(by_hand)])
for steps in 300, 1200:
    layer = trained(attention_of(1), 2, 0, steps, 3.0)
    rows.append([f"trained: {steps:,} steps", *loss_and_right(layer)])
table(["one head", "loss", "both right"], rows)

# %% [markdown]
# *Undecided* has by far the lowest loss. With equal weights the order is lost, so the best answer is half the
# probability for each content: 7/8 · ln 2 = 0.61. Any preference, however small, raises the loss a little. But it
# breaks the tie, and more answers are right. So the share of right answers is not what training improves here. Nor does
# training find the low loss: it settles on unequal weights, with a loss of 0.96, and four times the steps don't help.
# What one head can't do with equal weights, whatever its loss, is to know the order.
#
# ## In general
#
# Every head has projections of its own and attends on its own. Then the results are placed side by side, and one more
# matrix, $W_O$, mixes them. As in lesson 04, $x$ asks, and $m$, in the code `memory`, is asked:
#
# $$\mathrm{head}_i = \mathrm{Attention}(x W_{Q,i}, m W_{K,i}, m W_{V,i})$$
#
# $$\mathrm{MultiHead}(x, m) = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_h) W_O$$
#
# | array | shape | |
# |---|---|---|
# | $x$, $m$ | (B, T, D), (B, S, D) | B sentences, T queries, S keys, D = d_model |
# | $W_{Q,i}$, $W_{K,i}$, $W_{V,i}$ | (D, d_k) | one of each for each head; the paper writes $W_i^Q$ |
# | $\mathrm{head}_i$, $\mathrm{Concat}$ | (B, T, d_k), (B, T, h d_k) | the heads, side by side |
# | $W_O$ | (h d_k, D) | h is the number of heads |
#
# The paper takes $d_k = d_{model} / h$. In its base model, 8 heads of 64 make 512. Word for word, with a loop:

# %%
def attention(q, k, v, factor):
    """q (..., T, d_k), k and v (..., S, d_k) -> (..., T, d_k), weights (..., T, S)"""
    weights = softmax(factor * q @ k.swapaxes(-1, -2))
    return weights @ v, weights


def heads_in_a_loop(x, memory, W_Q, W_K, W_V, W_O):
    """W_Q, W_K, W_V: lists of h matrices (D, d_k); W_O (h d_k, D) -> y (B, T, D)"""
    factor = 1 / math.sqrt(W_Q[0].shape[1])
    found = [attention(x @ Q, memory @ K, memory @ V, factor)[0]
             for Q, K, V in zip(W_Q, W_K, W_V)]
    return np.concatenate(found, axis=-1) @ W_O


# %% [markdown]
# In practice there is no loop. The matrices of all heads lie side by side in one matrix (D, h d_k). One product
# projects for all heads, and its result is then cut into heads.
#
# The first $d_k$ columns of the projection belong to head 1, the next $d_k$ to head 2, and so on. Each head needs an
# array (T, d_k) of its own, for every sentence.
#
# **Your turn.** Cut a projection (B, T, h d_k) into heads (B, h, T, d_k), without a loop. Then read on.

# %% Our solution
def split(x, h):
    """(B, T, h d_k) -> (B, h, T, d_k): the columns of each head on their own"""
    B, T, _ = x.shape
    return x.reshape(B, T, h, -1).swapaxes(1, 2)


def merge(x):
    """(B, h, T, d_k) -> (B, T, h d_k): side by side again"""
    B, h, T, d_k = x.shape
    return x.swapaxes(1, 2).reshape(B, T, h * d_k)


# %% [markdown]
# Why do we need `swapaxes`, if `reshape` alone gives the right shape? Because `reshape` leaves the numbers in their
# order, position after position. It can cut the last axis in two, but it can't bring the heads before the positions. In
# figure 2, the number in a cell is its position, and its colour is the head it belongs to:

# %% The figure
T, h, d_k = 4, 2, 3
_, positions, columns = np.indices((1, T, h * d_k))
owners = columns // d_k                                  # the head of each cell
figure, axes = plt.subplots(1, 5, figsize=(8, 2.2), width_ratios=(2, 1, 1, 1, 1),
                            layout="constrained")
names = ["a projection: (T, h d_k)",
         *(f"{way}\nhead {i}" for way in ("split", "reshape alone") for i in (1, 2))]
numbers, colours = ([cells[0], *split(cells, h)[0], *cells.reshape(h, T, d_k)]
                    for cells in (positions, owners))
for panel, name, number, colour in zip(axes, names, numbers, colours):
    panel.pcolormesh(colour, cmap=ListedColormap([LIGHT, ACCENT]), vmin=0, vmax=1,
                     edgecolors="white")
    for (t, j), position in np.ndenumerate(number):
        panel.text(j + 0.5, t + 0.5, position, ha="center", va="center")
    panel.set_title(name, fontsize=10)
    panel.set(xlim=(0, number.shape[1]), ylim=(T, 0), aspect="equal")
    panel.axis("off")
assert numbers[3][1, 0] == 0
show(figure, "07_split", alt="A table of 4 positions by 6 columns, three light columns "
     "of head 1 and three orange ones of head 2. Split makes two tables of 4 "
     "positions by 3 columns, one light, one orange. A reshape alone makes two tables "
     "in which light and orange rows alternate: the first holds positions 0 and 1, "
     "the second 2 and 3.",
     caption="After a split, each head has its own columns of all positions. After a "
     "reshape alone, each head has all columns of half of the positions.")

# %% [markdown]
# With `reshape` alone nothing crashes, but in head 1 the query of position 1 is now computed from position 0. The same
# trap waits in `merge`. (The hunt `wrong_split` is attention with exactly this bug. Mend it.)
#
# **Your turn.** Write the forward half of `multi_head_attention(x, memory, mask, W_Q, W_K, W_V, W_O)` in
# `transformer.py`. There, `W_Q`, `W_K` and `W_V` are (d, h, k) and `W_O` is (h, k, d): the heads have an axis of their
# own. So `linear` (lesson 01) and `attention` (lesson 04) do all the work, and nothing is split or merged. The backward
# half follows in a moment. With T = 4, h = 2, d_k = 3 as in the figure, it computes what the loop does:

# %%
B, T, S, h, d_k = 7, 4, 5, 2, 3
D = h * d_k
random = np.random.default_rng(7)
x, memory = random.normal(size=(B, T, D)), random.normal(size=(B, S, D))
W_Q, W_K, W_V, W_O = random.normal(size=(4, D, D))


def multi_head(x, memory, W_Q, W_K, W_V, W_O):
    """All W (D, D): the function of the file -> y (B, T, D), backward, the weights"""
    shapes = [(D, h, d_k)] * 3 + [(h, d_k, D)]
    names = "W_Q", "W_K", "W_V", "W_O"
    weights = {name: SimpleNamespace(data=W.reshape(shape), grad=np.zeros(shape))
               for name, W, shape in zip(names, (W_Q, W_K, W_V, W_O), shapes)}
    return *transformer.multi_head_attention(x, memory, True, **weights), weights


y, backward, weights = multi_head(x, memory, W_Q, W_K, W_V, W_O)
lists = [np.split(W, h, axis=1) for W in (W_Q, W_K, W_V)]
same("all heads at once, and a loop over them",
     y, heads_in_a_loop(x, memory, *lists, W_O))
alone = [heads_in_a_loop(x, memory, [Q], [K], [V], block)
         for Q, K, V, block in zip(*lists, np.split(W_O, h))]
same("the sum of what the heads add", sum(alone), y)

# %% [markdown]
# The last line says something about $W_O$. Cut it into $h$ blocks of $d_k$ rows. A matrix product sums over those rows,
# and the sum can be taken block by block:
#
# $$\mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_h) W_O = \sum_{i} \mathrm{head}_i W_{O,i}$$
#
# So heads don't see each other. Each one adds its own part to the output. If you want to know what a head is good for,
# set its block $W_{O,i}$ to zero and see what gets worse.
#
# ## Backward
#
# We have `dy`, the gradient of the output, and walk back. The heads don't see each other forward, so they don't
# backward either. Take the two heads of "By hand", and let the loss be the first number of the output: $dy$ = (1, 0).
# Each head gets the dot product of $dy$ with its row of $W_O$: (1, 0) · (1, 1) = 1 for head 1, and (1, 0) · (−1, 1) =
# −1 for head 2. From there each goes on alone, by the rule of lesson 04, *weight × (offer − average)*:
#
# | | offers of A, B | average | gradients of the scores |
# |---|---|---|---|
# | head 1 | 4, 8 | 5 | 3/4 · (4 − 5) = −0.75, 1/4 · (8 − 5) = +0.75 |
# | head 2 | −4, −8 | −7 | 1/4 · (−4 + 7) = +0.75, 3/4 · (−8 + 7) = −0.75 |
#
# A positive gradient means that training makes the number smaller. So head 1 moves weight to A, and head 2 moves weight
# to B. The heads become even more different.
#
# Side by side, no number is changed. So if you split and merge, the backward of `merge` is `split`, and the backward of
# `split` is `merge`.
#
# **Your turn.** Write the backward half of `multi_head_attention`: through $W_O$, the heads, and $W_Q$, $W_K$ and
# $W_V$. Then run `scratchformer learn check multi_head_attention`. Watch `memory`: it was used twice, for keys and for
# values, so two gradients come back and are added. In self-attention $x$ is used three times, and there are three.

# %%
quote("multi_head_attention")

# %% Finite differences and PyTorch
dy = random.normal(size=y.shape)
arrays = {"x": x, "memory": memory, "W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O}
gradients = [*backward(dy), *(W.grad.reshape(D, D) for W in weights.values())]
errors = []
for (name, array), ours in zip(arrays.items(), gradients):
    numeric = numeric_gradient(
        lambda moved: (multi_head(**arrays | {name: moved})[0] * dy).sum(), array)
    errors.append(np.abs(ours - numeric).max() / np.abs(numeric).max())
measure("all six gradients: worst error", max(errors), 0, 1e-7)

try:
    import torch
except ImportError:
    torch = None
if torch:
    layer = torch.nn.MultiheadAttention(D, h, bias=False, batch_first=True).double()
    with torch.no_grad():
        layer.in_proj_weight[...] = torch.tensor(np.concatenate([W_Q.T, W_K.T, W_V.T]))
        layer.out_proj.weight[...] = torch.tensor(W_O.T)
        theirs, _ = layer(*(torch.tensor(each) for each in (x, memory, memory)))
    assert np.allclose(theirs, y)

# %% [markdown]
# ## Experiment 1: what do more heads cost?
#
# Count the multiplications of self-attention over $T$ positions, with $h d_k = D$. The four matrices take $4 T D^2$. In
# one head, the $T^2$ scores take $d_k$ each, and the blends as many again; all heads together take $2 T^2 d_k h = 2 T^2
# D$. No $h$ is left. So more heads cost no more multiplications. (There are $h$ times as many weights to store, and as
# many exponentials.) What a head pays with is its *width*.
#
# In our task there are eight labels, and $D = 16$. With $h$ = 1, 2, 4, 8 or 16 heads, all with the same 1,024 weights:
# which of them answer both questions?
#
# <details><summary>Make a guess, then unfold: heads against width</summary>

# %%
bands = {1: (0.14, 0.25), 2: (0.97, 1), 4: (0.97, 1), 8: (0.8, 1), 16: (0.3, 0.6)}
for h, band in bands.items():
    parameters = attention_of(h)(np.random.default_rng(0)).parameters().values()
    assert sum(parameter.data.size for parameter in parameters) == 1024
    right = mean_of_seeds(attention_of(h))
    measure(f"h = {h}, d_k = {16 // h}: both right", right, *band)

# %% [markdown]
# From two heads on, until they are too narrow. With 16 heads, $d_k$ is 1: a query and a key are one number each, and
# the score is their product. Such a head can prefer the labels at one end of a line or at the other, but never one in
# the middle.
#
# </details>
#
# In a whole translator, much less depends on it (the paper's Table 3, rows A): one head 24.9 BLEU, 8 heads 25.8, 16
# heads 25.8, 32 heads 25.4. ([Lab notes 07, experiment
# 2](lab/07_many_heads.py#experiment-2-do-more-than-eight-heads-harm).)
#
# ## Experiment 2: the heads of a trained model
#
# Our boxes are made to need two heads. What do heads do in a real translator? Here is the one of [lesson
# 00](00_whole_game.py), which has four heads in each attention. The figure shows where the decoder's last layer looks
# in the English sentence, for each German word that it is about to write.

# %% Reading the corpus
pairs = read("test_coreference")
sentence = "The dog does not cross the valley because it is too icy."
example = next(each for each in pairs if each.source == sentence)
source, target = [*words(example.source), "</s>"], [*words(example.target), "</s>"]
translator = load_run(ROOT / "data/tiny_model")
cross = heads.sentence_attention(translator, example).cross[1]  # (4 heads, T, S)
assert cross.shape == (4, len(target), len(source))      # each word here is one piece

# %% The figure
figure, axes = plt.subplots(1, 3, figsize=(8, 3.9), sharey=True, layout="constrained")
for panel, title, weights in zip(axes, ("head 2", "head 3", "mean of all four"),
                                 (*cross[1:3], cross.mean(axis=0))):
    image = panel.imshow(weights, vmin=0, vmax=1, aspect="auto")
    panel.set_title(title, fontsize=10)
    panel.set_xticks(range(len(source)), source, rotation=90, fontsize=9)
    panel.set_yticks(range(len(target)), target, fontsize=9)
axes[0].set_ylabel("being written")
axes[1].set_xlabel("looked at")
figure.colorbar(image, ax=axes, label="weight", shrink=0.8)
show(figure, "07_heads_of_our_model", alt="Three maps of cross-attention weights for "
     "one sentence, German by English words. Heads 2 and 3 are mostly sharp, one cell "
     "in a row, along a bent diagonal, but often not the same cell. The mean of all "
     "four heads is a blurred diagonal.",
     caption="Two heads of one layer look at different words while the same German "
     "word is written. Their mean shows something that no head does.")

# %%
verb = target.index("überquert")
on_cross, on_does = source.index("cross"), source.index("does")
measure("writing überquert: head 2 on “cross”", cross[1, verb, on_cross], 0.9, 1)
measure("writing überquert: head 3 on “does”", cross[2, verb, on_does], 0.85, 1)
examples = read("test")[:100]
attended = [heads.sentence_attention(translator, each) for each in examples]
chosen = [heads.aligned_words(each.cross[1], each) for each in attended]   # (4, words)
accuracies = [heads.alignment_score([each[head] for each in chosen], examples).accuracy
              for head in range(4)]
measure("right word: chance", heads.chance_accuracy(examples), 0.1, 0.14)
measure("right word: best head", max(accuracies), 0.88, 0.97)

# %% [markdown]
# The German *überquert* renders both words, *does* and *cross*: head 2 reads the one, head 3 the other. And they are
# right in general. The corpus knows which English words each German word renders. In 100 sentences, the best head of
# this layer puts its largest weight on one of them in about nine cases of ten. Nobody told it the alignment.
#
# There is a famous picture of a head that looks from *it* to the noun it stands for. In our translator no head of
# the encoder does ([lab notes 00, experiment 3](lab/00_whole_game.py#experiment-3-where-it-looks)).
#
# **Today.** While a model writes, it keeps the keys and values of all earlier words: the **KV cache**. With many heads
# and long texts it fills the memory. In **multi-query attention** (Shazeer 2019) all heads share one set of keys and
# values, and in **grouped-query attention** (Ainslie et al. 2023; Llama) a few heads share one. Every head still has
# its own queries. You will write it in [lesson 23](23_block_of_2026.py).
#
# ## Paper and code
#
# - "Attention Is All You Need" ([arXiv](https://arxiv.org/abs/1706.03762)): §3.2.2 and Figure 2 for multi-head
#   attention, Table 3 and §6.2 for the number of heads, Figures 3 to 5 for heads on single sentences.
# - PyTorch: `torch.nn.MultiheadAttention(D, h, bias=False, batch_first=True)` (compared above).
# - In the library: [nn/attention.py](../scratchformer/nn/attention.py). Its projections add biases; those of §3.2.2
#   have none. Those that read the same input lie in one matrix.
# - The scores of heads are in [experiments/heads.py](../scratchformer/experiments/heads.py).
#
# ## What to remember
#
# A head makes one blend, and a blend of equal weights has lost which part came from where. $h$ heads keep $h$ blends
# apart with as many multiplications, because each is only $1/h$ as wide; the price is that a head too narrow can't tell
# many keys apart. Heads don't see each other: the output is the sum of what each adds through its block of $W_O$.
#
# **Yours:** `multi_head_attention`, and the hunts `wrong_split` and `cross_attention` (in a public program, queries and
# values came from the wrong sentence) · `scratchformer learn check multi_head_attention`
#
# **Three questions.**
#
# 1. A model has $d_{model} = 512$ and 16 heads. What is $d_k$, and how many numbers are in the four matrices?
# 2. Two heads return 3 and 10, and their rows of $W_O$ are (2, 0) and (1, −1). What is the output, and what is it if
#    you switch head 2 off?
# 3. You swap two heads: their columns in $W_Q$, $W_K$ and $W_V$ and their blocks of rows in $W_O$. What happens to the
#    output, and to the sentence "head 3 is the alignment head"?
#
# <details><summary>Answers</summary>
#
# 1. 512 / 16 = 32, and 4 · 512 · 512 = 1,048,576. With 8 heads it is the same number.
# 2. 3 · (2, 0) + 10 · (1, −1) = (16, −10). Without head 2: (6, 0).
# 3. The output stays as it is, because it is the sum of what the heads add. So the number of a head means nothing. It
#    differs between seeds at random.
#
# </details>
#
# **Next:** attention is complete, and all of it works on vectors that were given. Where do they come from? [Lesson
# 08](08_embeddings.py) makes vectors of words.
