# %% [markdown]
# # 07 · Many heads
#
# **Why cut attention into eight heads, if one head has as many weights and costs as much?**
#
# *Needs [lesson 04](04_soft_lookup.py) (queries, keys, values) and [lesson 05](05_scaling.py) (the factor $\sqrt{d_k}$)
# · you will split attention into heads, forward and backward, and meet a task that one head can't do.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from scratchformer.experiments import heads
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.nn.attention import CrossAttention, attention_weights
from scratchformer.text.bundled import read, words
from scratchformer.training.run import load_run
from support.lesson import QUICK, ROOT, measure, same, show
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


def learn_boxes(make, questions=2, seed=0, steps=300, rate=3.0):
    """Train a layer with plain gradient descent, then test it."""
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
    return tested(layer, questions)


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
# head gives half of its weight to each. It returns ½ of content 3 plus ½ of content 5. If A contained 5 and B contained
# 3, it would return exactly the same vector. **A sum has lost which was which.** Two heads return two vectors side by
# side, and nothing is lost. The paper says it in one clause (§3.2.2): "With a single attention head, averaging inhibits
# this."
#
# But how much of the failure is due to the sum, and how much to training? To find out, we set one head by hand. Its
# query gives equal weight to the two boxes asked for. Its output always names the smaller content first and the larger
# second. That is right if both contents are equal (1 case in 8), and otherwise in half of the cases: 1/8 + 7/8 · 1/2 =
# 9/16 = 56.25 %.

# %%
by_hand = attention_of(1)(np.random.default_rng(0))
for parameter in by_hand.parameters().values():
    parameter.data[...] = 0
W_Q, W_K, W_V = by_hand.q.weight.data, *np.split(by_hand.kv.weight.data, 2, axis=1)
W_Q[:n, :n] = W_Q[n:, :n] = 40 * np.eye(n)               # both questions ask for labels
W_K[:n, :n] = W_V[n:, :n] = np.eye(n)  # keys: labels; values: contents
preference = np.arange(n) / (2 * n)
by_hand.output.weight.data[:n, :n] = np.diag(1 - preference)  # the smaller one
by_hand.output.weight.data[:n, n:] = np.diag(1 + preference)            # the larger one
measure("one head set by hand: both right", tested(by_hand)[0], 0.53, 0.595)

# %% [markdown]
# In 2,000 problems it's right about as often as the theory says. So the sum alone costs at most 44 % of the answers.
# The rest of the failure, from 56 % down to a fifth, is a matter of training: gradient descent didn't find this
# solution, not even with four times the steps. (Could a cleverer single head mark A by a larger weight and B by a
# smaller one? As long as its keys read labels only, it can't always be right. [Lab notes 07, experiment
# 1](lab/07_many_heads.py#experiment-1-what-one-head-can-and-cannot-do) has the proof.)
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
# **Your turn.** Cut a projection (B, T, h d_k) into heads (B, h, T, d_k), without a loop:
# `exercises/07_split_heads.py`. Run `scratchformer learn check 07`, then read on.

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
         *(f"{way}\nhead {i}" for way in ("split", "reshape alone") for i in range(h))]
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
     "of head 0 and three orange ones of head 1. Split makes two tables of 4 "
     "positions by 3 columns, one light, one orange. A reshape alone makes two tables "
     "in which light and orange rows alternate: the first holds positions 0 and 1, "
     "the second 2 and 3.",
     caption="After a split, each head has its own columns of all positions. After a "
     "reshape alone, each head has all columns of half of the positions.")

# %% [markdown]
# With `reshape` alone nothing crashes, but in head 0 the query of position 1 is now computed from position 0. The same
# trap waits in `merge`. (The exercise `07_wrong_split` is attention with exactly this bug. Mend it.) The whole layer,
# with T = 4, h = 2, d_k = 3 as in the figure:

# %%
def multi_head(x, memory, W_Q, W_K, W_V, W_O, h):
    """x (B, T, D), memory (B, S, D), all W (D, D) -> y (B, T, D), cache"""
    q = split(x @ W_Q, h)                                               # (B, h, T, d_k)
    k, v = split(memory @ W_K, h), split(memory @ W_V, h)               # (B, h, S, d_k)
    found, weights = attention(q, k, v, 1 / math.sqrt(q.shape[-1]))     # (B, h, T, d_k)
    joined = merge(found)                                               # (B, T, h d_k)
    return joined @ W_O, (x, memory, q, k, v, weights, joined)


B, T, S, h, d_k = 7, 4, 5, 2, 3
D = h * d_k
random = np.random.default_rng(7)
x, memory = random.normal(size=(B, T, D)), random.normal(size=(B, S, D))
W_Q, W_K, W_V, W_O = random.normal(size=(4, D, D))
y, cache = multi_head(x, memory, W_Q, W_K, W_V, W_O, h)
lists = (np.split(W, h, axis=1) for W in (W_Q, W_K, W_V))
same("all heads at once, and a loop over them",
     y, heads_in_a_loop(x, memory, *lists, W_O))
of_heads = np.split(cache[-1], h, axis=-1)               # h times (B, T, d_k)
same("the sum of what the heads add",
     sum(head @ block for head, block in zip(of_heads, np.split(W_O, h))), y)

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
# We have `dy`, the gradient of the output, and walk back. Only one step is new, the merge. Follow one number forward:
# column $j$ of head $i$ at position $t$ moves to column $i d_k + j$ of row $t$ in `joined` (counted from 0). It moves
# there alone, and nothing is multiplied or added. So its gradient is simply the gradient at that place:
#
# $$d\mathrm{head}_{i,t,j} = d\mathrm{joined}_{t, \; i d_k + j}$$
#
# Fetching each number from there is what `split` does. The backward of `merge` *is* `split`, and the backward of
# `split` is `merge`.
#
# **Your turn.** Go back from `dy` through $W_O$, the merge, the heads, the split and $W_V$:
# `exercises/07_heads_backward.py`. Linear layers are lesson 01, and $dv$ inside a head is lesson 04.
#
# In our solution, watch `memory`: it was used twice, for keys and for values, so two gradients come back and are added.
# In self-attention $x$ is used three times, and there are three.

# %% Our solution
def linear_backward(dy, x, W):
    """dy (B, T, J), x (B, T, I), W (I, J) -> dx, dW"""
    return dy @ W.T, np.einsum("bti,btj->ij", x, dy)


def multi_head_backward(dy, cache, W_Q, W_K, W_V, W_O, h):
    """dy (B, T, D) -> dx (B, T, D), dmemory (B, S, D), dW_Q, dW_K, dW_V, dW_O (D, D)"""
    x, memory, q, k, v, weights, joined = cache
    factor = 1 / math.sqrt(q.shape[-1])
    # y = joined W_O
    djoined, dW_O = linear_backward(dy, joined, W_O)
    # joined = merge(weights v)
    dheads = split(djoined, h)                           # (B, h, T, d_k)
    dv = weights.swapaxes(-1, -2) @ dheads               # (B, h, S, d_k)
    dweights = dheads @ v.swapaxes(-1, -2)               # (B, h, T, S)
    # weights = softmax(factor q k^T)
    average = (weights * dweights).sum(axis=-1, keepdims=True)
    dscores = factor * weights * (dweights - average)
    dq, dk = dscores @ k, dscores.swapaxes(-1, -2) @ q
    # q = split(x W_Q), k = split(memory W_K), v = split(memory W_V)
    dx, dW_Q = linear_backward(merge(dq), x, W_Q)
    dmemory_by_keys, dW_K = linear_backward(merge(dk), memory, W_K)
    dmemory_by_values, dW_V = linear_backward(merge(dv), memory, W_V)
    return dx, dmemory_by_keys + dmemory_by_values, dW_Q, dW_K, dW_V, dW_O


# %%
dy = random.normal(size=y.shape)
arrays = {"x": x, "memory": memory, "W_Q": W_Q, "W_K": W_K, "W_V": W_V, "W_O": W_O}
ours = dict(zip(arrays, multi_head_backward(dy, cache, W_Q, W_K, W_V, W_O, h)))
errors = []
for name, array in arrays.items():
    numeric = numeric_gradient(
        lambda moved: (multi_head(**arrays | {name: moved}, h=h)[0] * dy).sum(), array)
    errors.append(np.abs(ours[name] - numeric).max() / np.abs(numeric).max())
measure("all six gradients: worst error", max(errors), 0, 1e-7)

layer = CrossAttention(D, h, random, "float64", bias=False)             # the library's
layer.q.weight.data[...], layer.output.weight.data[...] = W_Q, W_O
layer.kv.weight.data[...] = np.concatenate([W_K, W_V], axis=1)  # both read memory
theirs, library_cache = layer.forward(x, memory)
same("y: ours and the library's", y, theirs)
library = [*layer.backward(dy, library_cache), layer.q.weight.grad,
           *np.split(layer.kv.weight.grad, 2, axis=1), layer.output.weight.grad]
same("all six gradients: ours and the library's",
     *(np.concatenate([each.ravel() for each in six])
       for six in (ours.values(), library)))

# %% [markdown]
# ## Experiment 1: what do more heads cost?
#
# Count the multiplications of self-attention over $T$ positions, with $h d_k = D$. The four matrices take $4 T D^2$. In
# one head, the $T^2$ scores take $d_k$ each, and the blends as many again; all heads together take $2 T^2 d_k h = 2 T^2
# D$. No $h$ is left. So more heads cost no more arithmetic. What a head pays with is its *width*.
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
# The paper's own numbers show the same shape (Table 3, rows A): one head 24.9 BLEU, 8 heads 25.8, 16 heads 25.8, 32
# heads 25.4. ([Lab notes 07, experiment 2](lab/07_many_heads.py#experiment-2-do-more-than-eight-heads-harm).)
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
# ## Paper and code
#
# - "Attention Is All You Need" ([arXiv](https://arxiv.org/abs/1706.03762)): §3.2.2 and Figure 2 for multi-head
#   attention, Table 3 and §6.2 for the number of heads, Figures 3 to 5 for heads on single sentences.
# - In the library: [nn/attention.py](../scratchformer/nn/attention.py). Its projections have biases, which §3.2.2 does
#   not, and lie in one matrix where they read the same input. Its arrays stay (B, T, h, d_k) and `swapaxes` is only a
#   view, so splitting and merging copy nothing.
# - The scores of heads are in [experiments/heads.py](../scratchformer/experiments/heads.py).
#
# ## What to remember
#
# A head makes one blend, and a blend has lost which part came from where. $h$ heads keep $h$ blends apart at the same
# cost, because each is only $1/h$ as wide; the price is that a head too narrow can't tell many keys apart. Heads don't
# see each other: the output is the sum of what each adds through its block of $W_O$.
#
# **Exercises** `07_split_heads` · `07_heads_backward` · `07_wrong_split` (all above) · a puzzle: you swap two heads,
# their columns in $W_Q$, $W_K$ and $W_V$ and their blocks of rows in $W_O$. What happens to the output, and to the
# sentence "head 3 is the alignment head"?
#
# <details><summary>Answer</summary>
#
# The output stays as it is, because it is the sum of what the heads add. So the number of a head means nothing. It
# differs between seeds at random.
#
# </details>
#
# **Next:** attention is complete, and all of it works on vectors that were given. Where do they come from? [Lesson
# 08](08_embeddings.py) makes vectors of words.
