# %% [markdown]
# # 07 · Many heads
#
# *About 40 minutes. You need: [lesson 01](01_backprop.py) (the linear layer), [lesson 04](04_soft_lookup.py)
# (attention) and [lesson 05](05_scaling.py) (its factor and its backward). You will have: multi-head attention with
# its backward pass, a task that one head cannot do, and a count of what each head of a trained translator looks at,
# and of what is lost without it.*

# %%
import json
import math
import time

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.nn.attention import CrossAttention, SelfAttention, attention_weights
from scratchformer.nn.layers import FeedForward
from scratchformer.nn.ops import ops_of
from scratchformer.study import heads
from scratchformer.study.figures import ACCENT, DARK, LIGHT
from scratchformer.study.lesson import QUICK, ROOT, duration, measure, recorded, same, show
from scratchformer.text.grammar import Example, words
from scratchformer.training.run import load_run


def softmax(z):
    """z (..., S) -> weights (..., S), each row positive and of sum 1"""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# %% [markdown]
# ## Question
#
# **Why does the paper cut attention into eight heads, if one head has as many weights and costs as much?**
#
# Here is a task that shows it. Six boxes stand in a row. Each has a label, one of eight, and a content, one of eight.
# A query names two labels, a first and a second. The answer is the content of the first box named, then the content
# of the second. All of it is written in vectors of 16 numbers, half and half, with a single 1 in each half; and the
# model is one attention layer, nothing else: a query, six keys, 16 numbers out, of which 8 are scores for the first
# answer and 8 for the second.

# %%
n, n_boxes = 8, 6


def draw(random, B):
    """B problems -> query (B, 1, 16), boxes (B, 6, 16), the two right answers (B, 2)"""
    labels = random.permuted(np.tile(np.arange(n), (B, 1)), axis=1)[:, :n_boxes]   # all different
    contents = random.integers(0, n, (B, n_boxes))
    asked = random.permuted(np.tile(np.arange(n_boxes), (B, 1)), axis=1)[:, :2]          # two different boxes
    row = np.arange(B)[:, None]
    query = np.eye(n)[labels[row, asked]].reshape(B, 1, 2 * n)
    return query, np.concatenate([np.eye(n)[labels], np.eye(n)[contents]], axis=-1), contents[row, asked]


def learn_boxes(h, questions, seed, steps=300, rate=3.0, d_k=None, feed_forward=False):
    """Train on the first question, or on both.

    -> share of 2000 new problems with all of it right, the weights (2000, h, 6), the problems
    """
    random = np.random.default_rng(seed)
    layer = CrossAttention(2 * n, h, random, "float64", d_k, d_k, bias=False)      # d_k: 16 / h if not given
    after = FeedForward(2 * n, 64, random, "float64")                                  # plays no part yet
    parameters = [*layer.parameters().values(), *after.parameters().values()]
    for _ in range(steps):
        query, boxes, answers = draw(random, 32)
        y, cache = layer.forward(query, boxes)                                     # (32, 1, 16)
        scores, after_cache = after.forward(y) if feed_forward else (y, None)
        dscores = (softmax(scores.reshape(-1, 2, n)) - np.eye(n)[answers]) / len(y)      # lesson 01
        dscores[:, questions:] = 0
        dy = dscores.reshape(y.shape)
        for parameter in parameters:
            parameter.grad[...] = 0
        layer.backward(after.backward(dy, after_cache) if feed_forward else dy, cache)
        for parameter in parameters:
            parameter.data -= rate * parameter.grad
    problems = query, boxes, answers = draw(np.random.default_rng(99), 2000)
    y, cache = layer.forward(query, boxes)
    scores = after.forward(y)[0] if feed_forward else y
    right = (scores.reshape(-1, 2, n).argmax(axis=-1) == answers)[:, :questions].all(axis=1)
    return right.mean(), attention_weights(cache)[0][:, :, 0], problems


def mean_over_seeds(*case, seeds=2 if QUICK else 3, **settings):
    return np.mean([learn_boxes(*case, seed, **settings)[0] for seed in range(seeds)])


measure("one head, one question:    right", mean_over_seeds(1, 1), 0.97, 1)
measure("one head, two questions:   both right", mean_over_seeds(1, 2), 0.12, 0.35)
measure("one head, two questions, four times as wide:    both right", mean_over_seeds(1, 2, d_k=64), 0.12, 0.35)
measure("one head, two questions, four times the steps:  both right", mean_over_seeds(1, 2, steps=1200), 0.12, 0.35)
measure("two heads, two questions:  both right", mean_over_seeds(2, 2), 0.97, 1)

# %% [markdown]
# One head learns to find a box and read it, without a mistake. Asked for two boxes, it fails in four cases of five.
# Who finds one content and guesses the other is right in one case of eight; it does little better. Width does not
# help it, nor time. Two heads with exactly the same number of weights (each head half as wide) make no mistake.
#
# ## The idea in one picture
#
# What did they look at? Here is one problem. The first box asked for is called A here, the second B.

# %%
_, one, (query, boxes, answers) = learn_boxes(1, 2, seed=0)
_, two, _ = learn_boxes(2, 2, seed=0)
labels = boxes[:, :, :n].argmax(axis=-1)                                           # (2000, 6)
place = [np.argmax(labels == asked[:, None], axis=1) for asked in query.reshape(-1, 2, n).argmax(axis=-1).T]
row = np.arange(len(labels))
first = int(two[row, 0, place[0]].mean() < 0.5)                                    # which head took the first question
of_one = sorted(one[row, 0, each].mean() for each in place)
measure("one head: weight of the box that it prefers", of_one[1], 0.4, 0.65)
measure("one head: weight of the other box asked for", of_one[0], 0.12, 0.35)
measure("two heads: weight of box A in the one", two[row, first, place[0]].mean(), 0.75, 1)
measure("two heads: weight of box B in the other", two[row, 1 - first, place[1]].mean(), 0.75, 1)

shown = int(np.flatnonzero((place[0] == 4) & (place[1] == 1))[0])
figure, axes = plt.subplots(1, 4, figsize=(8, 2.6), sharey=True, layout="constrained")
panels = {"one head": one[shown, 0], "two heads: one": two[shown, first], "two heads: the other": two[shown, 1 - first],
          "mean of the two": two[shown].mean(axis=0)}
names = ["B" if box == place[1][shown] else "A" if box == place[0][shown] else "·" for box in range(n_boxes)]
colours = [{"A": ACCENT, "B": DARK, "·": LIGHT}[name] for name in names]
for panel, (title, weights) in zip(axes, panels.items()):
    panel.bar(range(n_boxes), weights, color=colours)
    panel.set_xticks(range(n_boxes), names)
    panel.set_title(title, fontsize=10)
    panel.set_xlabel("box")
axes[0].set_ylabel("weight")
show(figure, "07_two_questions", alt="Four bar charts of attention weights over six boxes, for one problem. One head "
     "divides its weight between A and B, and gives some to the others. Of two heads, one gives nearly all to A, the "
     "other to B. The mean of these two is divided between A and B again.")

# %% [markdown]
# So this is the answer in one sentence: **a head has one softmax and makes one blend of all that it reads; $h$ heads
# keep $h$ blends apart, at the same cost.** The single head divides its weight between the two boxes, and hands on
# one sum of their contents: **a sum has lost which was which**. The two heads hand on two vectors side by side.
# Average their weights, as in the last panel, and the difference is gone. That is what the paper says in one clause
# (§3.2.2): "With a single attention head, averaging inhibits this."
#
# But the single head prefers one box. Could the larger weight mark the first answer, the smaller the second? Not in
# one layer. Its output is linear in the contents, so a content scores in proportion to the weight of its box. The
# first answer can go to the larger weight. The second would have to go to the smaller one; but if less weight makes a
# higher score, then a content that is in no box, with weight 0, scores highest of all.

# %% [markdown]
# ## The equation, and the same in code
#
# Every head has its own projections, and attends on its own (§3.2.2). $W^O$ brings what they found back to the width
# of the model.
#
# $$\mathrm{head}_i = \mathrm{Attention}(x W^Q_i, m W^K_i, m W^V_i)$$
#
# $$\mathrm{MultiHead}(x, m) = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_h) W^O$$
#
# The queries come from $x$, one row for each of the $T$ positions that look; keys and values from $m$, the $S$
# positions that are looked at. In self-attention $m$ is $x$. The paper takes $d_k = d_v = d_{model} / h$: in its base
# model, 8 heads of 64 make 512.
#
# | array | shape | |
# |---|---|---|
# | $x$, $m$ | (B, T, D), (B, S, D) | B sentences, D = d_model |
# | $W^Q_i$, $W^K_i$, $W^V_i$ | (D, d_k) | one for each head |
# | $\mathrm{head}_i$ | (B, T, d_k) | |
# | $\mathrm{Concat}$ | (B, T, h d_k) | the heads side by side |
# | $W^O$ | (h d_k, D) | |
#
# Word for word, with a loop over the heads:

# %%
def attention(q, k, v):
    """q (..., T, d_k), k and v (..., S, d_k) -> (..., T, d_k), the weights (..., T, S).  Equation 1."""
    weights = softmax(q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]))
    return weights @ v, weights


def heads_in_a_loop(x, m, W_Q, W_K, W_V, W_O):
    """W_Q, W_K, W_V: lists of h matrices (D, d_k); W_O (h d_k, D) -> y (B, T, D)"""
    found = [attention(x @ Q, m @ K, m @ V)[0] for Q, K, V in zip(W_Q, W_K, W_V)]
    return np.concatenate(found, axis=-1) @ W_O


# %% [markdown]
# ## Forward: without the loop
#
# Nobody computes it like that. The matrices of all heads lie side by side in one matrix (D, h d_k); one product
# projects for all heads, and its result is cut up.

# %%
def split(x, h):
    """(B, T, h d_k) -> (B, h, T, d_k): the columns of each head on their own"""
    B, T, _ = x.shape
    return x.reshape(B, T, h, -1).swapaxes(1, 2)


def merge(x):
    """(B, h, T, d_k) -> (B, T, h d_k): side by side again"""
    B, h, T, d_k = x.shape
    return x.swapaxes(1, 2).reshape(B, T, h * d_k)


def multi_head(x, m, W_Q, W_K, W_V, W_O, h):
    """x (B, T, D), m (B, S, D), all W (D, D) -> y (B, T, D), and what backward will need"""
    q, k, v = split(x @ W_Q, h), split(m @ W_K, h), split(m @ W_V, h)              # (B, h, T or S, d_k)
    found, weights = attention(q, k, v)                                            # (B, h, T, d_k), (B, h, T, S)
    joined = merge(found)                                                          # (B, T, h d_k)
    return joined @ W_O, (x, m, q, k, v, weights, joined)


B, T, S, d_k, h = 7, 4, 5, 3, 2
D = h * d_k
random = np.random.default_rng(7)
x, m = random.normal(size=(B, T, D)), random.normal(size=(B, S, D))
W_Q, W_K, W_V, W_O = random.normal(size=(4, D, D))
y, cache = multi_head(x, m, W_Q, W_K, W_V, W_O, h)
same("all heads at once and a loop over them",
     y, heads_in_a_loop(x, m, *(np.split(W, h, axis=1) for W in (W_Q, W_K, W_V)), W_O))

layer = CrossAttention(D, h, random, "float64", bias=False)
layer.q.weight.data[...], layer.output.weight.data[...] = W_Q, W_O
layer.kv.weight.data[...] = np.concatenate([W_K, W_V], axis=1)                     # side by side: they read the same m
theirs, library_cache = layer.forward(x, m)
same("this page and the library", y, theirs)

# %% [markdown]
# Two things are worth a second look.
#
# **Why `reshape` and then `swapaxes`?** A `reshape` straight to (B, h, T, d_k) has the right shape too, and it is a
# classic bug: it cuts the rows, which are positions, where it should cut the columns, and a "head" then holds all
# columns of a few positions. Nothing crashes. But a query at position 0 is no longer computed from position 0:

# %%
def split_wrongly(x, h):
    B, T, _ = x.shape
    return x.reshape(B, h, T, -1)


positions = np.repeat(np.arange(T), D).reshape(1, T, D)                            # a number says where it comes from
for name, cut in ("right", split), ("wrong", split_wrongly):
    head_0 = cut(positions, h)[0, 0]                                               # (T, d_k)
    print(f"{name}: the rows of head 0 come from positions", [sorted(set(each.tolist())) for each in head_0])
    at_home = (head_0 == np.arange(T)[:, None]).all(axis=1).sum()
    measure(f"{name}: rows of {T} that hold their own position", at_home, *((T, T) if cut is split else (1, 1)))

# %% [markdown]
# **What does $W^O$ do to the heads?** Cut $W^O$ into $h$ blocks of $d_k$ rows. A product sums over the rows of $W^O$,
# and that sum can be taken block by block:
#
# $$\mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_h) W^O = \sum_{i} \mathrm{head}_i W^O_i$$
#
# So heads do not see each other. Each adds its part to the output, and a head is taken away by setting its block
# $W^O_i$ to zero.

# %%
parts = [head @ block for head, block in zip(attention(*cache[2:5])[0].swapaxes(0, 1), np.split(W_O, h))]
same("the sum of what the heads add", sum(parts), y)

# %% [markdown]
# ## Backward
#
# We have `dy`, the gradient of the output, and walk back. Only one step is new.
#
# **Through $W^O$.** That is the linear layer of lesson 01: $d\mathrm{joined} = dy \, W^{O T}$, and $dW^O$ is
# $\mathrm{joined}^T dy$, summed over sentences and positions, since each of them used the same $W^O$.
#
# **Through the merge.** Follow one number. The number $c$ of head $i$ at position $t$ goes to one place of `joined`,
# column $i d_k + c$ of row $t$, and to no other; and no other number comes there. There is one way to the loss, and
# nothing on it is multiplied or added:
#
# $$d\mathrm{head}_{i,t,c} = d\mathrm{joined}_{t, \; i d_k + c}$$
#
# In words: take the gradient at the place where the number went. That is what `split` does, so the backward of
# `merge` *is* `split`, and the backward of `split` is `merge`. (As a matrix, such a move has a single 1 in each row
# and column. Backward always multiplies with the transposed matrix, and for these it is the inverse: the move back.)
#
# **Through attention**, in each head on its own: the two steps known from lessons 04 and 05. `v` is summed with the
# weights, so $dv = w^T d\mathrm{head}$ and $dw = d\mathrm{head} \, v^T$; softmax and its factor turn $dw$ into
# `dscores`; and a score is a product of `q` and `k`, so $dq = \mathrm{dscores} \, k$ and $dk = \mathrm{dscores}^T q$.
#
# **Through the projections.** After a `merge`, the gradients of all heads lie side by side, as the projections made
# them: three more linear layers. $m$ was used twice, for keys and for values, so two gradients come back, and they
# add up. In self-attention $x$ is used three times, and it is three.

# %%
def multi_head_backward(dy, cache, W_Q, W_K, W_V, W_O, h):
    """dy (B, T, D) -> dx (B, T, D), dm (B, S, D), and dW_Q, dW_K, dW_V, dW_O (D, D)"""
    x, m, q, k, v, weights, joined = cache
    factor = 1 / math.sqrt(q.shape[-1])
    # y = joined W_O
    djoined, dW_O = linear_backward(dy, joined, W_O)
    # joined = merge(weights v)
    dfound = split(djoined, h)                                                     # (B, h, T, d_k)
    dv = weights.swapaxes(-1, -2) @ dfound
    dweights = dfound @ v.swapaxes(-1, -2)                                         # (B, h, T, S)
    # weights = softmax(factor q k^T)
    dscores = factor * weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
    dq, dk = dscores @ k, dscores.swapaxes(-1, -2) @ q
    # q = split(x W_Q), k = split(m W_K), v = split(m W_V)
    dx, dW_Q = linear_backward(merge(dq), x, W_Q)
    dm_by_keys, dW_K = linear_backward(merge(dk), m, W_K)
    dm_by_values, dW_V = linear_backward(merge(dv), m, W_V)
    return dx, dm_by_keys + dm_by_values, dW_Q, dW_K, dW_V, dW_O


def linear_backward(dy, x, W):
    """dy (B, T, J), x (B, T, I), W (I, J) -> dx, dW; every row of every sentence has a share in dW"""
    return dy @ W.T, np.einsum("bti,btj->ij", x, dy)


# %% [markdown]
# ## Check
#
# Differences first, in every number of both inputs and of all four matrices; then the library. The upstream gradient
# is random, and no two of B, T, S, d_k and h are equal. (The matrices are square here, so a transposed gradient would
# have the right shape. It is the numbers that tell.)

# %%
def numeric_gradient(f, array, step=1e-5):
    """As in lesson 01: central differences of f() in each element of `array`."""
    gradient = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        original = array[index]
        array[index] = original + step
        above = f()
        array[index] = original - step
        gradient[index] = (above - f()) / (2 * step)
        array[index] = original
    return gradient


upstream = random.normal(size=y.shape)
arrays = {"dx": x, "dm": m, "dW_Q": W_Q, "dW_K": W_K, "dW_V": W_V, "dW_O": W_O}
ours = dict(zip(arrays, multi_head_backward(upstream, cache, W_Q, W_K, W_V, W_O, h)))
for name, array in arrays.items():
    numeric = numeric_gradient(lambda: (multi_head(x, m, W_Q, W_K, W_V, W_O, h)[0] * upstream).sum(), array)
    error = np.abs(ours[name] - numeric).max() / np.abs(numeric).max()
    measure(f"{name}: worst error, relative to the largest element", error, 0, 1e-7)

dx, dm = layer.backward(upstream, library_cache)
same("dx of the library", ours["dx"], dx)
same("dm", ours["dm"], dm)
same("dW_Q", ours["dW_Q"], layer.q.weight.grad)
same("dW_K and dW_V, side by side", np.concatenate([ours["dW_K"], ours["dW_V"]], axis=1), layer.kv.weight.grad)
same("dW_O", ours["dW_O"], layer.output.weight.grad)

# %% [markdown]
# The claim that `merge` and `split` are each other's transpose can be checked without any loss: for every $a$ and
# $b$, $\sum \mathrm{split}(a) \, b$ must be $\sum a \, \mathrm{merge}(b)$.

# %%
a, b = random.normal(size=(B, T, D)), random.normal(size=(B, h, T, d_k))
same("split against merge", (split(a, h) * b).sum(), (a * merge(b)).sum())

# %% [markdown]
# ## Experiment: what do more heads cost?
#
# Weights and multiplications, counted and not argued: the library's layer with the width of the paper's base model,
# and a look at every matrix product that it makes for a sentence of 50 positions.

# %%
def cost(h, D=512, T=50):
    """-> weights, multiplications, exponentials, seconds, of self-attention forward"""
    layer = SelfAttention(D, h, np.random.default_rng(0), bias=False)
    sentence = np.random.default_rng(1).normal(size=(1, T, D)).astype("float32")
    ops, counted = ops_of(sentence), []

    def matmul(a, b, out=None):
        y = np.matmul(a, b, out=out)
        counted.append(y.size * a.shape[-1])                                       # each number of y is a sum
        return y

    ops.matmul = matmul
    start = time.perf_counter()
    _, cache = layer.forward(sentence)
    seconds = time.perf_counter() - start
    del ops.matmul                                                                 # the library's own again
    n_weights = sum(parameter.data.size for parameter in layer.parameters().values())
    return n_weights, sum(counted), attention_weights(cache)[0].size, seconds


costs = {count: cost(count) for count in (1, 2, 4, 8, 16, 32)}
print("  h    weights   multiplications   exponentials")
for count, (weights, products, exponentials, _) in costs.items():
    print(f"{count:3}{weights:11,}{products:18,}{exponentials:15,}")
for column, name in enumerate(["weights", "multiplications"]):
    numbers = [each[column] for each in costs.values()]
    measure(f"{name}: most over least", max(numbers) / min(numbers), 1, 1)
measure("exponentials: 32 heads over 1", costs[32][2] / costs[1][2], 32, 32)
duration("forward with 1 head", costs[1][3])
duration("forward with 32 heads", costs[32][3])

# %% [markdown]
# $4 D^2$ weights and $4 T D^2 + 2 T^2 D$ multiplications, whatever $h$ is: where there are twice as many heads, each
# is half as wide. The paper says the same in §3.2.2: the cost "is similar to that of single-head attention". Similar,
# not equal: there are $h$ tables of weights to take the softmax of, and to keep for backward.
#
# So heads come out of a fixed budget. What one pays with is their width. **Predict:** the boxes have eight labels,
# and $D = 16$. Which of $h = 1, 2, 4, 8, 16$ answers both questions? And one?
#
# <details><summary>Answer</summary>
#
# From 2 on, until the heads are too narrow. With 16 heads, $d_k = 1$: a query and a key are one number each, and a
# score is their product. That orders the labels on a line; it can prefer one end or the other, and never a label in
# the middle. The measurement is below.
#
# </details>

# %%
counts = [1, 2, 4, 8, 16]
reached = {questions: [mean_over_seeds(count, questions) for count in counts] for questions in (1, 2)}
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for questions, style, colour, label in (1, "s--", DARK, "one question"), (2, "o-", ACCENT, "two questions at once"):
    axes.semilogx(counts, reached[questions], style, color=colour, label=label, base=2)
axes.set_xticks(counts, [f"{count}\n{16 // count}" for count in counts])
axes.set(xlabel="heads h, and below them the width d_k of each", ylabel="share of problems all right", ylim=(0, 1.05),
         title="The same 1,024 weights, cut into more and more heads")
axes.legend()
show(figure, "07_heads_and_width", alt="Share of problems answered right against the number of heads. One question: 1 "
     "from 1 to 8 heads, 0.8 with 16. Two questions: 0.2 with one head, near 1 with 2, 4 and 8 heads, 0.4 with 16.")
measure("two questions, 4 heads of 4", reached[2][2], 0.97, 1)
measure("two questions, 8 heads of 2", reached[2][3], 0.85, 1)
measure("two questions, 16 heads of 1", reached[2][4], 0.25, 0.7)
measure("one question, 16 heads of 1", reached[1][4], 0.65, 0.95)

# %% [markdown]
# ## Experiment: the heads of a trained model
#
# Boxes are made to need two heads. What do heads do in a translator? The one that comes with this project was trained
# on the bundled corpus (English to German, two layers, four heads of 32, 867,328 weights). Here is its
# cross-attention, where the decoder looks at the English sentence, for every piece of the German sentence that it
# writes.

# %%
def examples_of(split_name):
    """The sentence pairs of a split with the corpus's own answers: which word renders which, what a pronoun means."""
    files = [ROOT / f"data/tiny/{split_name}.{kind}" for kind in ("en", "de", "jsonl")]
    lines = [file.read_text(encoding="utf-8").splitlines() for file in files]
    return [Example(source, target, **json.loads(record)) for source, target, record in zip(*lines)]


translator = load_run(ROOT / "data/tiny_model")
test, pairs = examples_of("test"), examples_of("test_coreference")
example = next(each for each in pairs if each.source == "The dog does not cross the valley because it is too icy.")
attended = heads.attend(translator, example)                                # reads the source, writes the reference
cross = attended.cross                                                             # (layers, heads, T, S)
source = [*words(example.source), "</s>"]
target = [*words(example.target), "</s>"]
assert cross.shape[2:] == (len(target), len(source))                               # here every word is one piece

figure, axes = plt.subplots(2, 3, figsize=(8, 6.4), sharex=True, sharey=True, layout="constrained")
panels = {f"layer 2, head {head + 1}": cross[1, head] for head in range(4)}
panels |= {"layer 2, mean": cross[1].mean(axis=0), "layer 1, mean": cross[0].mean(axis=0)}
for panel, (title, weights) in zip(axes.flat, panels.items()):
    image = panel.imshow(weights, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    panel.set_title(title, fontsize=10)
    panel.set_xticks(range(len(source)), source, rotation=90, fontsize=9)
    panel.set_yticks(range(len(target)), target, fontsize=9)
figure.colorbar(image, ax=axes, label="weight", shrink=0.6)
figure.supylabel("being written")
figure.supxlabel("looked at")
show(figure, "07_heads_of_our_model", alt="Six maps of cross-attention weights for one sentence, German pieces by "
     "English pieces. The four heads of layer 2 are mostly sharp, one cell in a row, along a bent diagonal, but often "
     "not the same cell. Their mean is a blurred diagonal; the mean of layer 1 is vaguer still.")

# %% [markdown]
# The heads of layer 2 differ. While *überquert* is written, heads 1 and 2 read *cross*, heads 3 and 4 read *does*,
# and the German word renders both. Their mean is a blur: whoever shows the attention of a model as one map shows
# something that no head does.
#
# Are they right? The corpus knows which English word each German word renders, because the two sentences were derived
# together. So a head can be given marks: for every German word, is the English word with the largest weight one that
# it renders? Two baselines know nothing of the words: uniform weights, which are right as often as drawing lots, and
# the diagonal, which looks as far along in the one sentence as it is in the other.

# %%
few = test[:100]
chosen = [heads.aligned_words(each.cross, each) for each in (heads.attend(translator, pair) for pair in few)]
diagonal = [heads.diagonal(len(words(pair.target)), len(words(pair.source))) for pair in few]
measure("right by drawing lots", heads.alignment_by_chance(few), 0.08, 0.16)
measure("right by the diagonal", heads.alignment_score(diagonal, few).accuracy, 0.55, 0.7)
for layer in 0, 1:
    right = [heads.alignment_score([each[layer, head] for each in chosen], few).accuracy for head in range(4)]
    print(f"layer {layer + 1}, its four heads:   " + "   ".join(f"{share:.2f}" for share in right))
measure("layer 2, the best of its heads", max(right), 0.88, 0.98)

result = recorded("heads")
of_heads, means = {}, {}                                                           # by seed and layer
for run in result["results"]:
    seed, alignment = run["seed"], run["alignment"]
    for layer in 0, 1:
        of_heads[seed, layer] = [head["accuracy"] for head in alignment["heads"][layer]]
        means[seed, layer] = alignment["mean_of_layer"][layer]["accuracy"]
    print(f"seed {seed}: heads of layer 1 up to {max(of_heads[seed, 0]):.2f}, of layer 2 "
          f"{min(of_heads[seed, 1]):.2f} to {max(of_heads[seed, 1]):.2f}, their mean {means[seed, 1]:.2f}")
best = [max(of_heads[seed, 1]) for seed in result["seeds"]]
measure("500 sentences, the best head of layer 2: lowest of four models", min(best), 0.85, 0.95)
best = [max(of_heads[seed, 0]) for seed in result["seeds"]]
measure("the best head of layer 1: highest of four models", max(best), 0.45, 0.6)
better = [means[seed, 1] > max(of_heads[seed, 1]) for seed in result["seeds"]]
measure("models in which the mean of layer 2 is better than its best head", sum(better), 3, 3)

# %% [markdown]
# Four models that differ in nothing but the seed agree: a head of layer 2 finds the right word nine times in ten, and
# all heads of layer 1 do worse than the diagonal. Nobody gave them the alignment. And the blurred mean, for *this*
# purpose, is better than the best head in three models of four: a blur may still have its peak in the right place.
#
# ## Check the claim: "one head can do one thing only"
#
# The boxes said: one head cannot answer two questions. But attention is never the last thing in a Transformer. Behind
# it stand two linear maps with a ReLU between them, applied to every position on its own (§3.3). Here they are taken
# from the library as they are, with 64 hidden numbers, behind the one head that failed:

# %%
measure("one head and a ReLU behind it, two questions: both right",
        mean_over_seeds(1, 2, steps=1000, rate=0.3, feed_forward=True), 0.95, 1)
_, one, _ = learn_boxes(1, 2, seed=0, steps=1000, rate=0.3, feed_forward=True)
of_one = sorted(one[row, 0, each].mean() for each in place)
measure("weight of the box that it prefers", of_one[1], 0.5, 0.8)
measure("weight of the other box asked for", of_one[0], 0.15, 0.4)

# %% [markdown]
# It can. The head gives one box more than twice the weight of the other, and the ReLU, which is not linear, reads the
# difference: what was said above, "not in one layer", was to be taken at its word. So heads are not the only way to
# hold two things apart. They are one that needs nothing behind it: two heads got there with 1,024 weights, one head
# needed 2,128 more (16 · 64 + 64 and 64 · 16 + 16) and three times the steps.
#
# ## Check the claim: "more than eight heads harm"
#
# Rows (A) of the paper's Table 3 vary $h$ at equal cost, on English to German (development set, newstest2013):
#
# | $h$ | $d_k = d_v$ | perplexity | BLEU |
# |---|---|---|---|
# | 1 | 512 | 5.29 | 24.9 |
# | 4 | 128 | 5.00 | 25.5 |
# | 8 (base) | 64 | 4.92 | 25.8 |
# | 16 | 32 | 4.91 | 25.8 |
# | 32 | 16 | 5.01 | 25.4 |
#
# Some explainers read this as "16 or 32 heads degrade". Sixteen do not: the same BLEU, and a perplexity that is lower
# by 0.01. The paper says that one head is 0.9 BLEU below the best, and that quality drops "with too many heads"
# (§6.2); by its table, that is 32. Each row is one training run without an interval, so differences of a tenth say
# nothing. And one head is worse, but it is a good translator, as the section above makes plausible.
#
# ## Check the claim: "the head looks from *it* to the animal"
#
# The best-known picture of attention shows a sentence like this one, from a head of an encoder, in the row of *it*:
#
# > The animal did not cross the street because **it** was too tired.
#
# One strong line runs from *it* to *animal*; with *wide* for *tired*, it runs to *street*. The paper's Figure 4 has
# another sentence, and says with care that two heads are "apparently involved in anaphora resolution". A picture of
# one sentence is a sample of one. The bundled corpus has 120 such pairs of sentences that differ only in the last
# adjective, and so in the noun that *it* stands for; and German must say *er*, *sie* or *es* by the gender of that
# noun. Our model gets them right:

# %%
intact = heads.pronoun_choice(translator, pairs)
measure("er, sie or es right, share of 240 sentences", intact.accuracy, 0.97, 1)
measure("both right, share of 120 pairs", intact.pair_accuracy, 0.95, 1)

# %% [markdown]
# So the information must go from the adjective and the nouns to the pronoun, and nothing but attention moves anything
# between positions. Which head does it?
#
# **Predict.** Take the row of *it* in each head of the *first* encoder layer. In what share of the sentences is the
# noun that is meant given more weight than the other? In what share of the pairs is that so in both sentences?
#
# <details><summary>Answer</summary>
#
# In exactly half, and in no pair. In the first layer, the query of *it* and the keys of the nouns depend on these
# words and their places alone, and those are the same in both sentences of a pair. The adjective changes the sum that
# softmax divides by, but not which of the two nouns has more. A preference that does not move is right in one
# sentence and wrong in the other.
#
# </details>

# %%
some = pairs[:80]
views = [heads.pronoun_weights(heads.attend(translator, pair), pair) for pair in some]
encoder_view, cross_view, _, articles_view = heads.PRONOUN_VIEWS
of_it = np.stack([view[encoder_view] for view in views])                           # (80, 2 layers, 4 heads, 2 nouns)
for head in range(4):
    score = heads.pronoun_score(of_it[:, 0, head], some)
    measure(f"layer 1, head {head + 1}: right sentences", score.accuracy, 0.5, 0.5)
    measure(f"layer 1, head {head + 1}: right pairs", score.pair_accuracy, 0, 0)
layer_2 = [heads.pronoun_score(of_it[:, 1, head], some) for head in range(4)]
for head, score in enumerate(layer_2):
    print(f"layer 2, head {head + 1}: weight {score.antecedent:.3f} on the noun meant, {score.rival:.3f} on the other; "
          f"{score.pair_accuracy:.0%} of the pairs")
measure("layer 2, the best head: right pairs", max(score.pair_accuracy for score in layer_2), 0, 0.1)

# %% [markdown]
# In the second layer *it* could know the adjective. Nothing of that shows: *it* gives the noun that is meant the same
# weight as the other. (Tossing a coin would get a quarter of the pairs.) **The celebrated line is not there**, and
# yet the pronoun comes out right. So look elsewhere. Three places are possible: *it* in the encoder; the
# cross-attention that writes *er*, *sie* or *es*; and the decoder's attention to the German it has written, where the
# articles *der*, *die*, *das* show the gender. And looking is one question, being needed another. To see whether a
# head is needed, set its block $W^O_i$ to zero and count again. All 120 pairs, all 24 heads, four models:

# %%
KINDS = {"encoder": (encoder_view, "o", LIGHT, "encoder, row of it"),
         "cross": (cross_view, "^", ACCENT, "cross-attention"),
         "decoder": (articles_view, "s", DARK, "decoder, on the articles")}
models = {run["seed"]: run["pronouns"] for run in result["results"]}               # 0 is the shipped one
looks, needs, others = {}, {}, {}                                                  # by seed, kind, layer, head
for seed, of_model in models.items():
    for kind, (view, *_) in KINDS.items():
        for layer, head in np.ndindex(2, 4):
            key, without = (seed, kind, layer + 1, head + 1), of_model["without_head"][kind][layer][head]
            looks[key] = of_model["looks"][view]["heads"][layer][head]["pair_accuracy"]
            needs[key], others[key] = without["pair_accuracy"], without["other_loss"]
    shares = {kind: of_model["without_kind"][kind]["pair_accuracy"] for kind in KINDS}
    print(f"seed {seed}: pairs right with all heads {of_model['intact']['pair_accuracy']:.2f}; without any of the "
          + ", ".join(f"{kind} {share:.2f}" for kind, share in shares.items()))

figure, axes = plt.subplots(2, 2, figsize=(8, 6.4), sharex=True, sharey=True, layout="constrained")
for panel, (seed, of_model) in zip(axes.flat, models.items()):
    for kind, (_, marker, colour, label) in KINDS.items():
        points = [key for key in looks if key[:2] == (seed, kind)]
        panel.plot([looks[key] for key in points], [needs[key] for key in points], marker, color=colour, mec="black",
                   mew=0.6, ms=8, label=label)
    panel.axhline(of_model["intact"]["pair_accuracy"], color="#888888", ls=":", lw=1)
    panel.set(title=f"seed {seed}" + " (the shipped model)" * (seed == 0), xlim=(-0.05, 1.05), ylim=(-0.05, 1.05))
axes[0, 0].legend(loc=(0.36, 0.04), fontsize=9)
figure.supxlabel("share of pairs in which the head's weights prefer the right noun")
figure.supylabel("share of pairs right without the head")
show(figure, "07_looking_and_needed", alt="Four scatter plots, one for each model: a point for each of 24 heads. "
     "Across: in what share of the pairs its weights prefer the right noun. Upwards: what share the model gets right "
     "without it. All encoder heads lie at the far left. Decoder heads of seeds 1 and 2 lie far to the right, most of "
     "them high up. The two lowest points, cross-attention of seeds 1 and 2, lie far to the left.")

encoder_looks = [share for key, share in looks.items() if key[1] == "encoder"]
measure("best of the 32 encoder heads: prefers the right noun, pairs", max(encoder_looks), 0, 0.05)
without_encoder = [of_model["without_kind"]["encoder"]["pair_accuracy"] for of_model in models.values()]
measure("without any encoder head: pairs right, lowest of four models", min(without_encoder), 0.7, 0.85)
for seed in 1, 2:
    line = max((key for key in looks if key[0] == seed), key=looks.get)
    need = min((key for key in needs if key[0] == seed), key=needs.get)
    print(f"seed {seed}: prefers the right noun most often: {line[1:]}; needed most: {need[1:]}")
    measure("    the former prefers the right noun, pairs", looks[line], 0.9, 1)
    measure("    pairs right without it", needs[line], *((0.9, 0.97) if seed == 1 else (0.5, 0.7)))
    measure("    the latter prefers the right noun, pairs", looks[need], 0, 0.1)
    measure("    pairs right without it", needs[need], 0, 0.1)
    measure("    loss of all other pieces without it, over that of the whole model",
            others[need] / models[seed]["intact"]["other_loss"], 1, 1.2)
    measure("    its weight on the adjective", models[seed]["adjective"][need[2] - 1][need[3] - 1], 0.5, 0.65)
measure("seed 1, pairs right without all four heads of that decoder layer",
        models[1]["without_layer"]["decoder"][1]["pair_accuracy"], 0.05, 0.2)
for seed in 0, 3:
    most = max(looks[key] for key in looks if key[0] == seed)
    measure(f"seed {seed}: a head prefers the right noun in at most this share of the pairs", most, 0.2, 0.33)
shared = [needs[0, "decoder", 2, head] for head in (1, 2, 3, 4)]
measure("the shipped model, last decoder layer: pairs right without one head, highest of four", max(shared), 0.7, 0.85)
of_shipped = [needs[key] for key in needs if key[0] == 0]
measure("the shipped model: pairs right without one head, median of all 24", float(np.median(of_shipped)), 0.93, 1)

# %% [markdown]
# What this says about our four models:
#
# 1. **No encoder head looks from *it* to the right noun**, in none of the four. Without any encoder attention at all,
#    73 % of the pairs or more still come out right.
# 2. **In two models the line exists, in another place.** A head of the last decoder layer prefers the article of the
#    right noun in more than nine pairs of ten, while *er*, *sie* or *es* is written. In seed 2 it is missed when it
#    is gone; in seed 1, 93 % of the pairs remain without it and 13 % without its whole layer, so others can stand in.
# 3. **In the same two models, the head that is needed most prefers neither noun.** It sits in the first layer of
#    cross-attention. Without it, 7 % of the pairs or none are right, while the loss of all other pieces grows by a
#    sixth and by 4 %. More than half of its weight lies on the adjective: it seems to fetch what decides.
# 4. **In the other two, no head makes the choice by its weights**: the best prefers the right noun in 30 % of the
#    pairs, little more than a coin would. In the shipped model the four heads of the last decoder layer do it
#    together, and each of the four is missed.
#
# So weights say where a head reads, and not what the model does with it. One map of one head proves nothing, neither
# that the head is needed nor that another is not. What limits these findings: four models of two layers; one place to
# look at for each kind of head; a corpus made by a grammar, in which the adjective settles everything; and zero is a
# crude replacement, which the other layers never saw in training. Large models may well have the head of the picture.
# To claim it, ask them in this way: many sentences, a baseline, and the head taken away.
#
# ## Paper and code
#
# - The picture of *it* came with the announcement of the paper (Google Research blog, August 2017): one of eight
#   heads, between layers 5 and 6 of a translator from English to French.
# - The paper: §3.2.2 and Figure 2 (multi-head attention), Table 3 rows (A) and §6.2 (how many heads), Figures 3 to 5
#   in the appendix (single heads on single sentences). Alignment error rate, which `heads.alignment_score` also
#   gives, is from Och and Ney (2003).
# - In the library: `MultiHeadAttention`, `SelfAttention` and `CrossAttention` in
#   [nn/attention.py](../scratchformer/nn/attention.py); the scores of this page in
#   [study/heads.py](../scratchformer/study/heads.py); the recorded numbers by
#   [benchmarks/heads.py](../benchmarks/heads.py).
# - *Differs from this page:* the library's projections have biases (as the parameter counts of the paper require) and
#   lie in one matrix where they read the same input. Its arrays stay (B, T, H, K) and `swapaxes` is only a view, so
#   splitting and merging copy nothing, and backward writes each head's gradient where it belongs.
# - *Differs from the paper:* projections that read the same input are initialised as one matrix (the paper's public
#   code does so too).
#
# ## Exercises
#
# `scratchformer learn check 07` looks at your answers and says what is wrong with them.
#
# **Predict.** $h = 3$ heads of $d_k = 5$, $B = 2$, $T = 7$. Number 8 of the row of position 4 in `joined`: which head
# wrote it, and which of its columns is it? (All counted from 0.)
#
# <details><summary>Answer</summary>
#
# Head 1, column 3, since 8 = 1 · 5 + 3. Its gradient goes back to the same place: head 1, position 4, column 3.
#
# </details>
#
# **Predict.** You swap two heads: their columns in $W^Q$, $W^K$ and $W^V$, and their blocks of rows in $W^O$. What
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
# **Backward** `07_heads_backward`: from `dy` through $W^O$, the merge, the heads, the split and $W^V$ to `dm`.
#
# **Break** `07_wrong_split`: attention that runs, with the right shapes, and whose heads hold positions where they
# should hold columns. Mend it.
#
# ## Next
#
# The translator of this page has its heads in two layers, the paper's in six. What stands around each attention, so
# that layers can be stacked and still learn, is the subject of [lesson 12](12_residual_norm_dropout.py). (Lessons 08
# to 11 will stand between; nothing in 12 needs them.)
