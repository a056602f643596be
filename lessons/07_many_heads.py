# %% [markdown]
# # 07 · Many heads
#
# *About 40 minutes. You need: [lesson 01](01_backprop.py) (the linear layer), [lesson 04](04_soft_lookup.py)
# (queries, keys, values), [lesson 05](05_scaling.py) (the factor, softmax backward), and for the trained model at the
# end [lesson 00](00_whole_game.py). You will have: multi-head attention with its backward pass, a task that one head
# cannot do, and a head-by-head answer to what a translator does with "it".*

# %% Imports
import json
import math

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from exercises.numeric import numeric_gradient
from library.lesson import QUICK, ROOT, measure, recorded, same, show
from scratchformer.experiments import heads
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.nn.attention import CrossAttention, attention_weights
from scratchformer.text.bundled import Example, words
from scratchformer.training.run import load_run

# %% [markdown]
# ## Question
#
# **Why does the paper cut attention into eight heads, if one head has as many weights and costs as much?**
#
# Here is a task that shows it. Six boxes have a label each, one of eight and all different, and a content, one of
# eight. A query names two of the labels. The answer is the content of the first box named, then that of the second.
#
# A box is a vector of 16 numbers: eight for the label, all 0 but one, and eight for the content. A query has eight
# for the first label and eight for the second. The model is one layer of attention and nothing else: the query asks,
# the boxes are asked, and of the 16 numbers that come out, 8 are scores for the first answer and 8 for the second. A
# *head* is what lesson 04 called attention. Only their number `h` changes.

# %% The boxes
n, n_boxes = 8, 6


def draw(random, B):
    """B problems -> query (B, 1, 16), boxes (B, 6, 16), the two right answers (B, 2)"""
    labels = random.permuted(np.tile(np.arange(n), (B, 1)), axis=1)[:, :n_boxes]   # all different
    contents = random.integers(0, n, (B, n_boxes))
    asked = random.permuted(np.tile(np.arange(n_boxes), (B, 1)), axis=1)[:, :2]    # two different boxes
    row = np.arange(B)[:, None]
    query = np.eye(n)[labels[row, asked]].reshape(B, 1, 2 * n)
    return query, np.concatenate([np.eye(n)[labels], np.eye(n)[contents]], axis=-1), contents[row, asked]


# %%
def softmax(z):
    """z (..., S) -> weights (..., S), each row positive and of sum 1"""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention_of(h, d_k=None):
    """-> a function that makes the layer; d_k is 16 / h if not given"""
    return lambda random: CrossAttention(2 * n, h, random, "float64", d_k, d_k, bias=False)


def learn_boxes(make, questions, seed, steps=300, rate=3.0):
    """-> share of 2000 new problems with the first answer, or both, right; the weights (2000, h, 6); the problems"""
    random = np.random.default_rng(seed)
    layer = make(random)
    for _ in range(steps):
        query, boxes, answers = draw(random, 32)
        y, cache = layer.forward(query, boxes)                 # (32, 1, 16): two rows of eight scores
        dscores = (softmax(y.reshape(-1, 2, n)) - np.eye(n)[answers]) / len(y)     # p - q of lesson 01
        dscores[:, questions:] = 0
        for parameter in layer.parameters().values():
            parameter.grad[...] = 0
        layer.backward(dscores.reshape(y.shape), cache)
        for parameter in layer.parameters().values():
            parameter.data -= rate * parameter.grad
    query, boxes, answers = draw(np.random.default_rng(99), 2000)
    y, cache = layer.forward(query, boxes)
    right = (y.reshape(-1, 2, n).argmax(axis=-1) == answers)[:, :questions].all(axis=1)
    return right.mean(), attention_weights(cache)[0][:, :, 0], (query, boxes)


def mean_over_seeds(make, questions, seeds=2 if QUICK else 3, **settings):
    return np.mean([learn_boxes(make, questions, seed, **settings)[0] for seed in range(seeds)])


measure("one head, one question:    right", mean_over_seeds(attention_of(1), 1), 0.97, 1)
measure("one head, two questions:   both right", mean_over_seeds(attention_of(1), 2), 0.14, 0.25)
measure("    four times as wide", mean_over_seeds(attention_of(1, d_k=64), 2), 0.2, 0.35)
measure("    four times the steps", mean_over_seeds(attention_of(1), 2, steps=1200), 0.12, 0.22)
measure("two heads, two questions:  both right", mean_over_seeds(attention_of(2), 2), 0.97, 1)

# %% [markdown]
# One head learns to find a box and read it, without a mistake. Asked for two boxes, it fails in four cases of five;
# finding one content and guessing the other would be right in one of eight. Width helps a little, time not at all.
# Two heads with as many weights as the one, each half as wide, make no mistake.
#
# ## The idea in one picture
#
# What did they look at? Here is one problem; the box asked for first is called A, the second B.

# %%
_, one, (query, boxes) = learn_boxes(attention_of(1), 2, seed=0)
_, two, _ = learn_boxes(attention_of(2), 2, seed=0)
labels = boxes[:, :, :n].argmax(axis=-1)                       # (2000, 6)
box_A, box_B = (np.argmax(labels == asked[:, None], axis=1) for asked in query.reshape(-1, 2, n).argmax(axis=-1).T)
row = np.arange(len(labels))
first = int(two[row, 0, box_A].mean() < 0.5)                   # which head took the first question
of_one = sorted(one[row, 0, box].mean() for box in (box_A, box_B))
measure("one head: mean weight of the box that it prefers", of_one[1], 0.4, 0.65)
measure("one head: mean weight of the other box asked for", of_one[0], 0.12, 0.35)
measure("two heads: mean weight of box A in the one", two[row, first, box_A].mean(), 0.75, 1)
measure("two heads: mean weight of box B in the other", two[row, 1 - first, box_B].mean(), 0.75, 1)

# %% The figure
shown = int(np.flatnonzero((box_A == 4) & (box_B == 1))[0])
figure, axes = plt.subplots(1, 4, figsize=(8, 2.6), sharey=True, layout="constrained")
panels = {"one head": one[shown, 0], "two heads: one": two[shown, first], "two heads: the other": two[shown, 1 - first],
          "mean of the two": two[shown].mean(axis=0)}
for panel, (title, weights) in zip(axes, panels.items()):
    panel.bar(range(n_boxes), weights, color=[LIGHT, DARK, LIGHT, LIGHT, ACCENT, LIGHT])
    panel.set_xticks(range(n_boxes), ["·", "B", "·", "·", "A", "·"])
    panel.set_title(title, fontsize=10)
    panel.set_xlabel("box")
axes[0].set_ylabel("weight")
show(figure, "07_two_questions", alt="Four bar charts of attention weights over six boxes, for one problem. One head "
     "divides its weight between A and B, and gives some to the others. Of two heads, one gives nearly all to A, the "
     "other to B. The mean of these two is divided between A and B again.")

# %% [markdown]
# So this is the answer in one sentence: **a head has one softmax and makes one blend of all that it reads; $h$ heads
# keep $h$ blends apart, at the same cost.** The single head divides its weight between the two boxes and hands on one
# sum of their contents: a sum has lost which was which. The two heads hand on two vectors side by side. Average their
# weights, as in the last panel, and the difference is gone. The paper has one clause for it (§3.2.2): "With a single
# attention head, averaging inhibits this."
#
# But the single head prefers one box. Could the larger weight mark one answer, the smaller the other? Not in this
# layer. Its output is linear in the contents. Let a content add $d$ to its own score, on average over all contents,
# and $o$ to another's. Where the smaller weight $w'$ is to win against the larger $w$, $w o + w' d$ must exceed
# $w d + w' o$, so $o$ is the greater of the two. It must also win against a content that is in no box, so
# $w o + w' d$ must exceed $w o + w' o$, and $d$ is the greater. Both cannot be. (The values carry the labels as well,
# but what a label adds to a score is the same whichever content stands beside it: it cannot mark its content.) If
# something that is not linear stood behind the head, the argument would not hold.
#
# ## The equation, and the same in code
#
# Every head has its own projections, and attends on its own (§3.2.2). $W_O$ brings what they found back to the width
# of the model. As in lesson 04, $x$ asks, and $m$, in code `memory`, is what is asked.
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
# | $W_O$ | (h d_k, D) | h heads; lessons 04 and 06 wrote H |
#
# The paper takes $d_k = d_v = d_{model} / h$: in its base model, 8 heads of 64 make 512. It need not be so, as $W_O$
# takes any width (the wide head above had $d_k = 64$ in a model of 16), but then the cost is another. Word for word,
# with a loop over the heads:

# %%
def attention(q, k, v, factor):
    """q (..., T, d_k), k and v (..., S, d_k) -> (..., T, d_k), weights (..., T, S).  Equation 1, as in lesson 04."""
    weights = softmax(factor * q @ k.swapaxes(-1, -2))
    return weights @ v, weights


def heads_in_a_loop(x, memory, W_Q, W_K, W_V, W_O):
    """W_Q, W_K, W_V: lists of h matrices (D, d_k); W_O (h d_k, D) -> y (B, T, D)"""
    factor = 1 / math.sqrt(W_Q[0].shape[1])
    found = [attention(x @ Q, memory @ K, memory @ V, factor)[0] for Q, K, V in zip(W_Q, W_K, W_V)]
    return np.concatenate(found, axis=-1) @ W_O


# %% [markdown]
# ## Forward: without the loop
#
# In practice, the matrices of all heads lie side by side in one matrix (D, h d_k); one product projects for all
# heads, and its result is cut up.

# %%
def split(x, h):
    """(B, T, h d_k) -> (B, h, T, d_k): the columns of each head on their own"""
    B, T, _ = x.shape
    return x.reshape(B, T, h, -1).swapaxes(1, 2)


def merge(x):
    """(B, h, T, d_k) -> (B, T, h d_k): side by side again"""
    B, h, T, d_k = x.shape
    return x.swapaxes(1, 2).reshape(B, T, h * d_k)


def multi_head(x, memory, W_Q, W_K, W_V, W_O, h):
    """x (B, T, D), memory (B, S, D), all W (D, D) -> y (B, T, D), and what backward will need"""
    q, k, v = split(x @ W_Q, h), split(memory @ W_K, h), split(memory @ W_V, h)    # (B, h, T or S, d_k)
    found, weights = attention(q, k, v, 1 / math.sqrt(q.shape[-1]))                # (B, h, T, d_k), (B, h, T, S)
    joined = merge(found)                                                          # (B, T, h d_k)
    return joined @ W_O, (x, memory, q, k, v, weights, joined)


# %% [markdown]
# Why `swapaxes`, if one `reshape` gives the right shape? A `reshape` leaves the numbers in their order, position
# after position. It can cut the last axis in two, but not bring the heads before the positions. In the picture, the
# number in a cell is its position, its colour the head that it belongs to:

# %% The figure
T, h, d_k = 4, 2, 3
places, owners = np.indices((1, T, h * d_k))[1], np.indices((1, T, h * d_k))[2] // d_k       # position, head of a cell
figure, axes = plt.subplots(1, 5, figsize=(8, 2.2), width_ratios=(2, 1, 1, 1, 1), layout="constrained")
names = ["a projection: (T, h d_k)", *(f"{way}\nhead {i}" for way in ("split", "reshape alone") for i in range(h))]
numbers, colours = ([cells[0], *split(cells, h)[0], *cells.reshape(h, T, d_k)] for cells in (places, owners))
for panel, name, number, colour in zip(axes, names, numbers, colours):
    panel.pcolormesh(colour, cmap=ListedColormap([LIGHT, ACCENT]), vmin=0, vmax=1, edgecolors="white")
    for (t, j), position in np.ndenumerate(number):
        panel.text(j + 0.5, t + 0.5, position, ha="center", va="center")
    panel.set_title(name, fontsize=10)
    panel.set(xlim=(0, number.shape[1]), ylim=(T, 0), aspect="equal")
    panel.axis("off")
measure("reshape alone, head 0: row 1 comes from position", numbers[3][1, 0], 0, 0)
show(figure, "07_split", alt="A table of 4 positions by 6 columns, three light columns of head 0 and three orange ones "
     "of head 1. Split makes two tables of 4 positions by 3 columns, one light, one orange. A reshape alone makes two "
     "tables in which light and orange rows alternate: the first holds positions 0 and 1, the second 2 and 3.")

# %% [markdown]
# With a `reshape` alone nothing crashes. But in head 0, the query of position 1 is now computed from position 0. The
# way back has the same trap: without `swapaxes` first, `merge` would lay side by side what belongs to different
# positions. Now with T = 4, h = 2, d_k = 3 as in the picture:

# %%
B, T, S, h, d_k = 7, 4, 5, 2, 3
D = h * d_k
random = np.random.default_rng(7)
x, memory = random.normal(size=(B, T, D)), random.normal(size=(B, S, D))
W_Q, W_K, W_V, W_O = random.normal(size=(4, D, D))
y, cache = multi_head(x, memory, W_Q, W_K, W_V, W_O, h)
same("all heads at once and a loop over them",
     y, heads_in_a_loop(x, memory, *(np.split(W, h, axis=1) for W in (W_Q, W_K, W_V)), W_O))

# %% [markdown]
# **What does $W_O$ do to the heads?** Cut $W_O$ into $h$ blocks of $d_k$ rows. A product sums over the rows of $W_O$,
# and that sum can be taken block by block:
#
# $$\mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_h) W_O = \sum_{i} \mathrm{head}_i W_{O,i}$$
#
# So heads do not see each other. Each adds its part to the output, and a head is taken away by setting its block
# $W_{O,i}$ to zero.

# %%
of_heads = np.split(cache[-1], h, axis=-1)                     # joined, cut into heads: h times (B, T, d_k)
same("the sum of what the heads add", sum(head @ block for head, block in zip(of_heads, np.split(W_O, h))), y)

# %% [markdown]
# ## Backward
#
# We have `dy`, the gradient of the output, and walk back. Only one step is new.
#
# **Through $W_O$.** The linear layer of lesson 01: $d\mathrm{joined} = dy \, W_O^T$, and
# $dW_O = \mathrm{joined}^T dy$, summed over sentences and positions, since each of them used the same $W_O$.
#
# **Through the merge.** Follow one number. Column $j$ of head $i$ (counted from 0) at position $t$ goes to one place
# of `joined`, column $i d_k + j$ of row $t$, and to no other; and no other number comes there. There is one way to
# the loss, and nothing on it is multiplied or added:
#
# $$d\mathrm{head}_{i,t,j} = d\mathrm{joined}_{t, \; i d_k + j}$$
#
# In words: take the gradient at the place where the number went. That is what `split` does, so the backward of
# `merge` *is* `split`. The backward of `split` is `merge`, by the same argument.
#
# **Through attention**, in each head on its own, as in lessons 04 and 05: first `dv` and `dweights`, then softmax and
# its factor turn `dweights` into `dscores`, and a score is a product, so $dq = \mathrm{dscores} \, k$ and
# $dk = \mathrm{dscores}^T q$.
#
# **Through the projections.** After a `merge`, the gradients of all heads lie side by side, as the projections made
# them: three more linear layers. `memory` was used twice, for keys and for values, so two gradients come back, and
# they add up. In self-attention $x$ is used three times, and it is three.

# %%
def linear_backward(dy, x, W):
    """dy (B, T, J), x (B, T, I), W (I, J) -> dx, dW; every row of every sentence has a share in dW"""
    return dy @ W.T, np.einsum("bti,btj->ij", x, dy)


def multi_head_backward(dy, cache, W_Q, W_K, W_V, W_O, h):
    """dy (B, T, D) -> dx (B, T, D), dmemory (B, S, D), and dW_Q, dW_K, dW_V, dW_O (D, D)"""
    x, memory, q, k, v, weights, joined = cache
    factor = 1 / math.sqrt(q.shape[-1])
    # y = joined W_O
    djoined, dW_O = linear_backward(dy, joined, W_O)
    # joined = merge(weights v)
    dheads = split(djoined, h)                                 # (B, h, T, d_k)
    dv = weights.swapaxes(-1, -2) @ dheads                     # (B, h, S, d_k)
    dweights = dheads @ v.swapaxes(-1, -2)                     # (B, h, T, S)
    # weights = softmax(factor q k^T)
    dscores = factor * weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
    dq, dk = dscores @ k, dscores.swapaxes(-1, -2) @ q
    # q = split(x W_Q), k = split(memory W_K), v = split(memory W_V)
    dx, dW_Q = linear_backward(merge(dq), x, W_Q)
    dmemory_by_keys, dW_K = linear_backward(merge(dk), memory, W_K)
    dmemory_by_values, dW_V = linear_backward(merge(dv), memory, W_V)
    return dx, dmemory_by_keys + dmemory_by_values, dW_Q, dW_K, dW_V, dW_O


# %% [markdown]
# ## Check
#
# Central differences first (`numeric_gradient` is that of lesson 01), in every number of both inputs and all four
# matrices; then the library. The upstream gradient is random, and no two of B, T, S, d_k and h are equal.

# %%
dy = random.normal(size=y.shape)
arrays = {"x": x, "memory": memory, "W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O}
ours = dict(zip((f"d{name}" for name in arrays), multi_head_backward(dy, cache, W_Q, W_K, W_V, W_O, h)))
for name, array in arrays.items():
    numeric = numeric_gradient(lambda moved: (multi_head(**arrays | {name: moved}, h=h)[0] * dy).sum(), array)
    error = np.abs(ours[f"d{name}"] - numeric).max() / np.abs(numeric).max()
    measure(f"d{name}: worst error, relative to the largest element", error, 0, 1e-7)

layer = CrossAttention(D, h, random, "float64", bias=False)
layer.q.weight.data[...], layer.output.weight.data[...] = W_Q, W_O
layer.kv.weight.data[...] = np.concatenate([W_K, W_V], axis=1)                     # side by side: both read memory
theirs, library_cache = layer.forward(x, memory)
dx, dmemory = layer.backward(dy, library_cache)
same("y of this page and of the library", y, theirs)
for name, gradient in {"dx": dx, "dmemory": dmemory, "dW_Q": layer.q.weight.grad, "dW_K": layer.kv.weight.grad[:, :D],
                       "dW_V": layer.kv.weight.grad[:, D:], "dW_O": layer.output.weight.grad}.items():
    same(name, ours[name], gradient)

# %% [markdown]
# ## Experiment 1: what do more heads cost?
#
# Take self-attention of $T$ positions with $h d_k = D$. Four matrices with $D^2$ weights each, every weight used once
# per position: $4 T D^2$ multiplications. In a head, each of $T^2$ scores takes $d_k$ of them, and the blends take as
# many again: for all heads $2 T^2 d_k h = 2 T^2 D$. No $h$ is left. The paper says that the cost "is similar to that
# of single-head attention" (§3.2.2). Similar, not equal: there are $h$ tables of weights to compute and to keep, and
# many narrow products may take longer than a wide one.
#
# So what a head pays with is its width. **Predict:** the boxes have eight labels, and $D = 16$. Which of
# $h = 1, 2, 4, 8, 16$ answers both questions?
#
# <details><summary>Answer</summary>
#
# From 2 on, until the heads are too narrow. With 16 heads, $d_k = 1$: a query and a key are one number each, and a
# score is their product. That orders the labels on a line; such a head can prefer one end or the other, and never a
# label in the middle.
#
# </details>

# %%
bands = {1: (0.14, 0.25), 2: (0.97, 1), 4: (0.97, 1), 8: (0.8, 1), 16: (0.3, 0.6)}
for h, band in bands.items():
    parameters = attention_of(h)(np.random.default_rng(0)).parameters().values()
    measure(f"h = {h}, d_k = {16 // h}: weights", sum(parameter.data.size for parameter in parameters), 1024, 1024)
    measure("    both right", mean_over_seeds(attention_of(h), 2), *band)

# %% [markdown]
# ## Experiment 2: the heads of a trained model
#
# Boxes are made to need two heads. What do heads do in a translator? The one of [lesson 00](00_whole_game.py) has two
# layers with four heads in each attention. Here is the last cross-attention: where the decoder looks in the English
# sentence, for each German word that it is about to write.

# %% Reading the corpus
files = [ROOT / f"data/tiny/test_coreference.{kind}" for kind in ("en", "de", "jsonl")]
lines = zip(*(file.read_text(encoding="utf-8").splitlines() for file in files))
pairs = [Example(source, target, **json.loads(record)) for source, target, record in lines]
example = next(each for each in pairs if each.source == "The dog does not cross the valley because it is too icy.")
source, target = [*words(example.source), "</s>"], [*words(example.target), "</s>"]

# %%
translator = load_run(ROOT / "data/tiny_model")
cross = heads.sentence_attention(translator, example).cross[1]  # layer 2: (4 heads, T, S)
assert cross.shape == (4, len(target), len(source))            # each word of this sentence is one piece
verb = target.index("überquert")
rendered = [source[i] for i, t in example.alignment if t == verb]
print("überquert renders", rendered)
measure("writing überquert, head 2: weight of cross", cross[1, verb, source.index("cross")], 0.9, 1)
measure("writing überquert, head 3: weight of does", cross[2, verb, source.index("does")], 0.85, 1)

# %% The figure
figure, axes = plt.subplots(1, 3, figsize=(8, 3.9), sharey=True, layout="constrained")
for panel, title, weights in zip(axes, ("head 2", "head 3", "mean of all four"), (*cross[1:3], cross.mean(axis=0))):
    image = panel.imshow(weights, vmin=0, vmax=1, aspect="auto")
    panel.set_title(title, fontsize=10)
    panel.set_xticks(range(len(source)), source, rotation=90, fontsize=9)
    panel.set_yticks(range(len(target)), target, fontsize=9)
axes[0].set_ylabel("being written")
axes[1].set_xlabel("looked at")
figure.colorbar(image, ax=axes, label="weight", shrink=0.8)
show(figure, "07_heads_of_our_model", alt="Three maps of cross-attention weights for one sentence, German by English "
     "words. Heads 2 and 3 are mostly sharp, one cell in a row, along a bent diagonal, but often not the same cell. "
     "The mean of all four heads is a blurred diagonal.")

# %% [markdown]
# While *überquert* is written, head 2 reads *cross* and head 3 reads *does*; the German word renders both. Whoever
# shows the mean as *the* attention of a model shows something that no head does.
#
# Are they right? The corpus knows which English words each German word renders. In 500 sentences, how often does a
# head's largest weight fall on one of them? Two baselines know no words: drawing lots, and the *diagonal*, as far
# along in the one sentence as in the other. Four models differ in nothing but the seed; model 0 is the one above.

# %%
result = recorded("heads")
alignment = [run["alignment"] for run in result["results"]]
best = np.array([[max(head["accuracy"] for head in layer) for layer in each["heads"]] for each in alignment])
measure("right by drawing lots", alignment[0]["by_chance"], 0.11, 0.13)
measure("right by the diagonal", alignment[0]["diagonal"]["accuracy"], 0.6, 0.63)
print("best head of layer 1, each model:", best[:, 0].round(2), "  of layer 2:", best[:, 1].round(2))
measure("best head of layer 1, highest of four models", best[:, 0].max(), 0.5, 0.55)
measure("best head of layer 2, lowest of four models", best[:, 1].min(), 0.88, 0.9)

# %% [markdown]
# In every model a head of layer 2 finds a right word about nine times in ten, and nobody told it the alignment. All
# heads of layer 1 do worse than the diagonal.
#
# ## Check the claim: "more than eight heads harm"
#
# Rows (A) of the paper's Table 3 vary $h$ at equal cost, English to German, newstest2013:
#
# | $h$ | 1 | 4 | 8 (base) | 16 | 32 |
# |---|---|---|---|---|---|
# | $d_k$ | 512 | 128 | 64 | 32 | 16 |
# | perplexity | 5.29 | 5.00 | 4.92 | 4.91 | 5.01 |
# | BLEU | 24.9 | 25.5 | 25.8 | 25.8 | 25.4 |
#
# Some explainers read this as "16 or 32 heads degrade". Sixteen do not. The paper says that one head is 0.9 BLEU
# worse than the best, and that quality drops "with too many heads" (§6.2): by its table, with 32. No setting has an
# interval, so differences of a tenth say nothing.
#
# ## Check the claim: "the head looks from *it* to the animal"
#
# The best-known picture of attention shows a sentence like this one, in the row of *it* of one encoder head:
#
# > The animal did not cross the street because **it** was too tired.
#
# One strong line runs from *it* to *animal*; with *wide* for *tired*, to *street*. Lesson 00 looked for such a line in
# the encoder of one model and found none. Here are four models, and a second question. The bundled corpus has 120 pairs
# of such sentences, which differ only in the last adjective, and so in the noun that *it* stands for; German must say
# *er*, *sie* or *es* by the gender of that noun. *Looking* is one question, *being needed* another; each of the 24
# heads of each model is asked both:
#
# - **Does it prefer the right noun?** In what share of the pairs does it give the noun that is meant more weight than
#   the other, in both sentences? An encoder head is asked in the row of *it*; a cross-attention head while *er*,
#   *sie* or *es* is being written; a head of the decoder, which reads the German so far, then too, but about the
#   articles *der*, *die*, *das*, which show the gender. A coin gets 25 % of the pairs (two sentences, each right by
#   half); "always the nearer noun" none.
# - **Is it needed?** What share of the pairs has both pronouns right if its block of $W_O$ is set to zero? As a
#   control: does the loss on all other words grow, too?

# %% Reading the result
VIEWS = {"encoder": "encoder, it: English nouns", "cross": "cross, er/sie/es: English nouns",
         "decoder": "decoder, er/sie/es: German articles"}
models = [run["pronouns"] for run in result["results"]]
without = [[model["without_head"][kind] for kind in VIEWS] for model in models]


def table(name, scores):
    """scores [model][kind][layer][head] -> (4 models, 6 rows: kind and layer, 4 heads)"""
    return np.vectorize(lambda each: each[name])(np.array(scores)).reshape(4, 6, 4)


prefers = table("pair_accuracy", [[model["looks"][view]["heads"] for view in VIEWS.values()] for model in models])
needed, other_loss = table("pair_accuracy", without), table("other_loss", without)

# %% The figure
figure, axes = plt.subplots(2, 4, figsize=(8, 5.6), sharex=True, sharey=True, layout="constrained")
names = [f"{name}, layer {layer}" for name in ("encoder", "cross-attention", "decoder") for layer in (1, 2)]
for i, model in enumerate(models):
    for panel, share in zip(axes[:, i], (prefers[i], needed[i])):
        panel.imshow(share, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        for (place, head), value in np.ndenumerate(share):
            panel.text(head, place, f"{100 * value:.0f}", ha="center", va="center", fontsize=9,
                       color="black" if value > 0.6 else "white")
    axes[0, i].set_title(f"model {i}", fontsize=10)
    axes[1, i].set_title(f"all heads: {100 * model['intact']['pair_accuracy']:.0f}", fontsize=10)
axes[1, 0].set_xticks(range(4), range(1, 5))
for panel in axes[:, 0]:
    panel.set_yticks(range(6), names, fontsize=9)
axes[0, 0].set_ylabel("prefers the right noun\n(% of pairs; a coin: 25)")
axes[1, 0].set_ylabel("pronoun right without it\n(% of pairs)")
figure.supxlabel("head", fontsize=10)
show(figure, "07_looking_and_needed", alt="Two rows of tables, one for each of four models, with a cell for each of 24 "
     "heads. Above, the share of pairs in which the head prefers the right noun: at most 2 per cent in the encoder, "
     "up to 98 in the second decoder layer of models 1 and 2. Below, the share of pairs right without the head: near "
     "that of the whole model in most cells, 0 and 7 for head 2 of the first cross-attention in models 1 and 2.")

# %%
# prefers, needed: the two rows of the figure, (4 models, 6 rows of a table, 4 heads)
measure("first encoder layer: highest share of pairs", prefers[:, 0].max(), 0, 0)
measure("all encoder heads: highest share of pairs", prefers[:, :2].max(), 0, 0.03)
without_encoder = [model["without_kind"]["encoder"]["pair_accuracy"] for model in models]
measure("without any encoder head: pairs right, lowest of four models", min(without_encoder), 0.73, 0.74)
CROSS_1, DECODER_1, DECODER_2 = 2, 4, 5                        # rows of the figure
for i, less, grown in (1, (0.04, 0.06), (1.04, 1.05)), (2, (0.29, 0.31), (1.16, 1.17)):
    best, whole = prefers[i, DECODER_2].argmax(), models[i]["intact"]
    measure(f"model {i}, decoder layer 2, head {best + 1}: share of pairs", prefers[i, DECODER_2, best], 0.91, 0.99)
    measure("    pairs lost without it", whole["pair_accuracy"] - needed[i, DECODER_2, best], *less)
    assert needed[i].argmin() == np.ravel_multi_index((CROSS_1, 1), (6, 4))                  # the head needed most
    measure(f"model {i}, cross-attention layer 1, head 2: share of pairs", prefers[i, CROSS_1, 1], 0.03, 0.04)
    measure("    pairs right without it", needed[i, CROSS_1, 1], 0, 0.07)
    measure("    control: loss on all other words, ratio", other_loss[i, CROSS_1, 1] / whole["other_loss"], *grown)
    measure("    its weight on the adjective", models[i]["adjective"][0][1], 0.55, 0.57)
lost = [model["intact"]["pair_accuracy"] - needed[i] for i, model in enumerate(models)]
measure("pairs lost without a head, median of the 96 heads", np.median(lost), 0, 0.02)
measure("model 1, cross-attention layer 1, head 1: weight on the adjective", models[1]["adjective"][0][0], 0.63, 0.66)
measure("    pairs lost without it", lost[1][CROSS_1, 0], -0.01, 0.01)
measure("models 0 and 3: highest share of pairs", prefers[[0, 3]].max(), 0.29, 0.31)
for i in 0, 3:
    measure(f"model {i}: most pairs lost without one decoder head", lost[i][DECODER_1:].max(), 0.45, 0.55)

# %% [markdown]
# 1. **No encoder head looks from *it* to the right noun**, in any of the four models: 3 % of the pairs at most. (In
#    the first layer none can: the query of *it* and the keys of the nouns depend on these words and their places
#    alone, the same in both sentences.) Without any encoder attention, 73 % of the pairs or more are still right.
# 2. **In models 1 and 2 the line exists, in another place.** A head of the last decoder layer prefers the article of
#    the right noun in more than nine pairs of ten. Without it, model 2 loses 30 percentage points, model 1 only 5.
# 3. **In the same two models, the head that is needed most prefers neither noun.** It is in the first
#    cross-attention. Without it, no pair (model 1) or 7 % (model 2) are right, while the loss on all other words
#    grows by 4.5 % and 17 %. More than half of its weight lies on the adjective: it seems to fetch what decides. But
#    that is no proof: in model 1 its neighbour, head 1, gives the adjective even more, and nothing is lost without
#    it.
# 4. **In models 0 and 3, no head, in the place where we asked it, prefers the right noun in more than 30 % of the
#    pairs**, little more than a coin. Yet one decoder head costs each of them about half of the pairs: needed,
#    without looking.
#
# Half of all heads cost 2 % of the pairs or less when they go. So weights say where a head reads, and not what the
# model does with it. The limits: four models of two layers; each head asked in one place; a corpus made by a grammar,
# in which the adjective settles everything; and zero, never seen in training, is a crude replacement. Large models
# may well have the head of the picture. To claim it, ask in this way: many sentences, a baseline, and the head taken
# away.
#
# ## Paper and code
#
# - The paper ([arXiv](https://arxiv.org/abs/1706.03762)): §3.2.2 and Figure 2 (multi-head attention), Table 3 and
#   §6.2 (how many heads), Figures 3 to 5 (heads on single sentences; two are "apparently involved in anaphora
#   resolution"). The picture of *it* came with its announcement (Google Research blog, August 2017).
# - In the library: [nn/attention.py](../scratchformer/nn/attention.py); the scores of heads in
#   [experiments/heads.py](../scratchformer/experiments/heads.py), recorded by
#   [benchmarks/heads.py](../benchmarks/heads.py).
# - *Differs from this page:* the library's projections carry biases, which §3.2.2 does not have, and lie in one
#   matrix where they read the same input; so they are initialised as one. Its arrays stay (B, T, h, d_k) and
#   `swapaxes` is only a view, so splitting and merging copy nothing.
#
# ## Exercises
#
# `scratchformer learn check 07` looks at your answers and says what is wrong with them.
#
# **Predict.** You swap two heads: their columns in $W_Q$, $W_K$ and $W_V$, and their blocks of rows in $W_O$. What
# becomes of the output, and what of the sentence "head 3 is the alignment head"?
#
# <details><summary>Answer</summary>
#
# The output stays as it is, since it is the sum of what the heads add. So the number of a head means nothing, and
# differs between seeds as it happens.
#
# </details>
#
# **Build** `07_split_heads`: cut a projection into heads, without a loop.
#
# **Backward** `07_heads_backward`: from `dy` through $W_O$, the merge, the heads, the split and $W_V$ to `dmemory`.
#
# **Break** `07_wrong_split`: attention that runs, and whose heads hold positions instead of columns. Mend it.
#
# ## Next
#
# Attention is complete, and all of it works on vectors that were given. Where do they come from? [Lesson
# 08](08_embeddings.py) makes vectors of words. For other drawings of heads see J. Alammar's [The Illustrated
# Transformer](https://jalammar.github.io/illustrated-transformer/).
