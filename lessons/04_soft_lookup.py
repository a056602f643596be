# %% [markdown]
# # 04 · Soft lookup: queries, keys and values
#
# *About 35 minutes. You need: [lesson 01](01_backprop.py) (gradients, softmax, the numeric check). You will have:
# attention, equation 1 of the paper, forward and backward, derived and checked; and a lookup table that learnt its
# own keys.*

# %% Imports
import json
import math
import re

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library.lesson import ROOT, measure, same, show
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.attention import ScaledDotProductAttention
from scratchformer.text.bundled import words

# %% [markdown]
# ## Question
#
# **A Python dict finds a value by its key. How can a model *learn* such a lookup?**
#
# A translator that is about to write *Hund* must find *dog* in the English sentence. With a dict that would be one
# line: the keys are words, the values whatever is known about them. (In [lesson 03](03_bahdanau.py) one vector served
# as key and as value, and a small network compared. You can read this lesson without that one.) But nobody tells the
# model which word belongs to which. It has to learn that, by gradient descent, which can only change numbers a little
# and see whether things get better. So let queries and keys be vectors of numbers, and let a query find the key with
# which it has the largest dot product, and return that key's value. Here are two hundred random queries and nine keys.
# Move one number of a query by $h$ up and down: for how many of the 1,600 numbers does the result change at all?

# %%
random = np.random.default_rng(0)
T, S, d_k, d_v = 200, 9, 8, 5
q, k, v = random.normal(size=(T, d_k)), random.normal(size=(S, d_k)), random.normal(size=(S, d_v))


def hard_lookup(q, k, v):
    """q (T, d_k), k (S, d_k), v (S, d_v) -> the value of the best key of each query: (T, d_v)"""
    return v[(q @ k.T).argmax(axis=1)]


def share_that_moves(lookup, h):
    """For how many of the T d_k numbers of the queries does the result change at all?"""
    steps = h * np.eye(d_k)
    return np.mean([np.any(lookup(q + step, k, v) != lookup(q - step, k, v), axis=1) for step in steps])


for h, lo, hi in (1e-5, 0, 0.001), (1e-3, 0, 0.01), (1e-1, 0.01, 0.2):
    share = share_that_moves(hard_lookup, h)
    measure(f"h = {h:g}: share of the queries' numbers that the result notices", share, lo, hi)

# %% [markdown]
# A small step changes nothing, and a large one now and then changes everything. The result is a staircase: its
# derivative is 0 on the steps and does not exist at the edges. Gradient descent, told that every direction is level,
# stays where it is. The values of a dict could be trained; its queries and keys cannot.
#
# ## The idea in one picture
#
# Do not take the value of the best key. Take *all* values, each with a weight: much of the best one, less of the
# others. The dot product of query and key is called their *score*; the weights are the softmax of the scores, divided
# first by a number $\tau$ called temperature.

# %%
def softmax(z):
    """z (..., S) -> weights (..., S), each row positive and of sum 1"""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# %% The figure
scores = np.array([1.1, 2.0, 0.3, 1.6, -0.9])
figure, axes = plt.subplots(1, 4, figsize=(8, 2.6), sharey=True, layout="constrained")
for panel, temperature in zip(axes, (10, 1, 0.25, 0.01)):
    weights = softmax(scores / temperature)
    bars = panel.bar(range(1, 6), weights, color=[ACCENT if s == 1 else DARK for s in range(5)])
    panel.bar_label(bars, fmt="%.2f", fontsize=9)
    panel.set(title=f"temperature {temperature:g}", xlabel="key", ylim=(0, 1.12), xticks=range(1, 6))
axes[0].set_ylabel("weight")
show(figure, "04_temperature", alt="Weights of five keys at four temperatures. At 10 all are near 0.2; at 1 the "
     "second key leads with 0.43; at 0.25 it has 0.81; at 0.01 it has 1 and the others 0, like a dict.")

# %% [markdown]
# These are the weights of one query for five keys. The hotter, the nearer the result is to the mean of all values;
# the colder, to the dict. Between the two, every weight moves a little when a score moves a little, and so there is a
# slope to follow down.
#
# ## The equation, and the same in code
#
# There are $T$ queries, the rows of $Q$, and $S$ pairs of a key and a value, the rows of $K$ and $V$. The score
# $a_{ts}$ of query $t$ and key $s$ is their dot product; times the factor $c = 1/\tau$ it goes into softmax, which
# makes the weights $w_{ts}$ of the row; with them the values are mixed:
#
# $$a_{ts} = \sum_i q_{ti} k_{si}$$
#
# $$w_{ts} = \frac{e^{c a_{ts}}}{\sum_u e^{c a_{tu}}} \qquad y_{tj} = \sum_s w_{ts} v_{sj}$$
#
# All queries at once, with the temperature that the paper chose, $\tau = \sqrt{d_k}$, this is its equation 1:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V$$
#
# In the code $a$ is `scores`, $w$ is `weights` and $c$ is `factor`, a constant; no step below depends on its size.
# (Lesson 01's $q$ and $t$ spoke of the right class; here $q$ is a query, and $t$ counts queries. Lesson 03 wrote $e$
# for the score.)

# %%
def attention(q, k, v, factor):
    """q (T, d_k), k (S, d_k), v (S, d_v) -> y (T, d_v), weights (T, S)"""
    scores = q @ k.T                                           # (T, S): each query with each key
    weights = softmax(factor * scores)                         # each row sums to 1
    return weights @ v, weights


# %% [markdown]
# Keys and queries meet in the scores and only there: they decide *where* to look. The values decide *what* is brought
# back, and no score depends on them. A dict has the same three: `d[query]`, its keys, its values. There the
# comparison ends: a dict returns one value or an error; this always returns something, and never a value quite by
# itself. Three choices have reasons:
#
# - *A dot product, not a distance.* One matrix product gives all scores, and among keys of the same length the one
#   with the largest dot product is also the nearest.
# - *$e^x$, not any positive function.* It turns a difference of scores into a ratio of weights, so that only
#   differences count, and its derivative keeps the backward pass short.
# - *A key and a value, not one vector.* What a word is found by need not be what is wanted of it: *Hund* must find
#   *dog*, and then know more than that it is *dog*.
#
# For several sentences there is a further axis in front: (B, T, d_k). There `k.T` would reverse all three axes;
# `q @ k.swapaxes(-1, -2)` exchanges the last two, and `@` takes each sentence by itself.
#
# ## Forward
#
# First the promise of the picture, with the two hundred queries: cold enough, the soft lookup is the hard one. And at
# the temperature of equation 1, do its results notice a small step?

# %%
difference = np.abs(attention(q, k, v, 1 / 0.0001)[0] - hard_lookup(q, k, v)).max()
measure("temperature 0.0001: largest difference from the dict", difference, 0, 1e-12)
factor = 1 / math.sqrt(d_k)
measure("soft, h = 1e-5: share of the queries' numbers that the result notices",
        share_that_moves(lambda q, k, v: attention(q, k, v, factor)[0], 1e-5), 0.99, 1)

# %% [markdown]
# **Where do the queries, keys and values come from?** From linear maps of something else. A layer of attention has
# three weight matrices, and reads two arrays: `x`, what asks, (T, D), and `memory`, what is asked, (S, D). $D$ is the
# size of the vectors between layers, $d_{model}$ in the paper. In the equations, $m$ is `memory`:
#
# $$Q = x W_Q \qquad K = m W_K \qquad V = m W_V$$
#
# In **cross-attention** the sentence being written asks (`x`), and the sentence being read answers (`memory`). In
# **self-attention** one sentence asks itself: `memory` *is* `x`.

# %%
def attention_layer(x, memory, W_Q, W_K, W_V):
    """x (T, D), memory (S, D), W_Q and W_K (D, d_k), W_V (D, d_v) -> y (T, d_v)"""
    return attention(x @ W_Q, memory @ W_K, memory @ W_V, 1 / math.sqrt(W_Q.shape[1]))[0]


# %% [markdown]
# ## Backward of equation 1
#
# We are given $dy_{tj}$, what the loss does when a number of the output changes, and want the same for $Q$, $K$ and
# $V$. As in lesson 01: take one number, follow it to the output by all its routes, add up. We go from the end to the
# beginning.
#
# **$dv_{sj}$.** The value $v_{sj}$ is mixed into the output of *every query*: into $y_{tj}$ with the factor $w_{ts}$.
# So the sum runs over the queries:
#
# $$dv_{sj} = \sum_t w_{ts} dy_{tj}$$
#
# The summed index $t$ is the first of both, so `weights` must be transposed: `dv = weights.T @ dy`.
#
# **$dw_{ts}$.** The weight $w_{ts}$ multiplies the whole value $s$, all its numbers $v_{s1}, v_{s2}, \dots$, and all
# of that goes into row $t$ of the output:
#
# $$dw_{ts} = \sum_j dy_{tj} v_{sj}$$
#
# That is `dweights = dy @ v.T`, a dot product again. It is large where value $s$ points in the direction in which the
# loss grows.
#
# **$da_{tr}$**, through softmax (known from lesson 03, but for the factor $c$). The rows do not mix, so drop $t$, and
# call what goes into softmax $z_s = c a_s$. The logarithm of a weight is easier than the weight:
#
# $$\ln w_s = z_s - \ln \sum_u e^{z_u}$$
#
# The derivative of $\ln \sum_u e^{z_u}$ by $z_r$ is $w_r$; that was found in lesson 01, where the weights were called
# $p$. The first term counts only if $s$ and $r$ are the same key. Write $[s = r]$ for 1 if they are and 0 if not:
#
# $$\frac{\partial \ln w_s}{\partial z_r} = [s = r] - w_r$$
#
# $$\frac{\partial w_s}{\partial z_r} = w_s \left( [s = r] - w_r \right)$$
#
# The second follows from the first since $w$ changes by $w$ times the change of $\ln w$. In words: a score that grows
# raises its own weight and lowers all others, because they share a sum of 1. So $z_r$ has a way to the loss through
# every weight of its row. Add them up:
#
# $$dz_r = \sum_s dw_s w_s \left( [s = r] - w_r \right) = w_r \left( dw_r - \sum_s w_s dw_s \right)$$
#
# (Of the terms with $[s = r]$ only $dw_r w_r$ is left.) The sum in the bracket is the average of $dw$ over what is
# being read. A key whose value lowers the loss more than that average gets a negative gradient, so that descent
# raises its score. Since $z_r = c a_r$, the gradient of the score itself, `dscores`, is $da_r = c \, dz_r$.
#
# **$dq_{ti}$ and $dk_{si}$.** The number $q_{ti}$ meets every key, and is multiplied by $k_{si}$ into $a_{ts}$. The
# number $k_{si}$ meets every query:
#
# $$dq_{ti} = \sum_s da_{ts} k_{si} \qquad dk_{si} = \sum_t da_{ts} q_{ti}$$
#
# So `dq = dscores @ k` and `dk = dscores.T @ q`. Descent moves a query towards the keys whose scores should rise and
# away from the others, and keys likewise. That is how a lookup learns.

# %%
def attention_backward(dy, q, k, v, weights, factor):
    """dy (T, d_v) -> dq (T, d_k), dk (S, d_k), dv (S, d_v)"""
    dv = weights.T @ dy                                        # (S, T) (T, d_v)
    dweights = dy @ v.T                                        # (T, d_v) (d_v, S)
    average = (weights * dweights).sum(axis=-1, keepdims=True)
    dscores = factor * weights * (dweights - average)          # (T, S)
    dq = dscores @ k                                           # (T, S) (S, d_k)
    dk = dscores.T @ q                                         # (S, T) (T, d_k)
    return dq, dk, dv


# %% [markdown]
# ## Backward of the layer
#
# The three maps are lesson 01's. `x` reaches the output by *one* way, through the queries; `memory` by *two*, as key
# and as value, and the two add up:
#
# $$dx = dQ \, W_Q^T \qquad dm = dK \, W_K^T + dV \, W_V^T$$
#
# where $dQ$ is the array of all $dq_{ti}$, and so on. The weights are used once each, and their gradients are lesson
# 01's $dW = x^T dy$, with what each of them read and wrote:
#
# $$dW_Q = x^T dQ \qquad dW_K = m^T dK \qquad dW_V = m^T dV$$
#
# In self-attention both arrays are the same `x`, which is used three times: its gradient is $dx + dm$.

# %%
def attention_layer_backward(dy, x, memory, W_Q, W_K, W_V):
    """dy (T, d_v) -> dx (T, D), dmemory (S, D), dW_Q, dW_K, dW_V"""
    q, k, v, factor = x @ W_Q, memory @ W_K, memory @ W_V, 1 / math.sqrt(W_Q.shape[1])
    _, weights = attention(q, k, v, factor)
    dq, dk, dv = attention_backward(dy, q, k, v, weights, factor)
    dx = dq @ W_Q.T
    dmemory = dk @ W_K.T + dv @ W_V.T
    return dx, dmemory, x.T @ dq, memory.T @ dk, memory.T @ dv


# %% [markdown]
# ## Check
#
# All sizes differ, `dy` is random, and every gradient meets its central differences (`numeric_gradient` is that of
# lesson 01).

# %%
def relative_error(analytic, numeric):
    """The largest difference, over the largest element of either."""
    return np.abs(analytic - numeric).max() / max(np.abs(analytic).max(), np.abs(numeric).max())


T, S, D, d_k, d_v = 3, 5, 6, 7, 4
x, memory, dy = (random.normal(size=size) for size in ((T, D), (S, D), (T, d_v)))
W_Q, W_K, W_V = (random.normal(size=(D, columns)) for columns in (d_k, d_k, d_v))
q, k, v, factor = x @ W_Q, memory @ W_K, memory @ W_V, 1 / math.sqrt(d_k)
y, weights = attention(q, k, v, factor)
dq, dk, dv = attention_backward(dy, q, k, v, weights, factor)
arrays = {"q": q, "k": k, "v": v}
for (name, array), gradient in zip(arrays.items(), (dq, dk, dv)):
    numeric = numeric_gradient(lambda moved: (attention(**arrays | {name: moved}, factor=factor)[0] * dy).sum(), array)
    measure(f"d{name} {gradient.shape}: worst relative error", relative_error(gradient, numeric), 0, 1e-8)

arrays = {"x": x, "memory": memory, "W_Q": W_Q, "W_K": W_K, "W_V": W_V}
for (name, array), gradient in zip(arrays.items(), attention_layer_backward(dy, **arrays)):
    numeric = numeric_gradient(lambda moved: (attention_layer(**arrays | {name: moved}) * dy).sum(), array)
    measure(f"cross-attention, d{name}: worst relative error", relative_error(gradient, numeric), 0, 1e-8)
numeric = numeric_gradient(lambda x: (attention_layer(x, x, W_Q, W_K, W_V) * dy).sum(), x)
of_queries, of_memory, *_ = attention_layer_backward(dy, x, x, W_Q, W_K, W_V)
measure("self-attention, dx: worst relative error", relative_error(of_queries + of_memory, numeric), 0, 1e-8)
measure("and without the way through the queries", relative_error(of_memory, numeric), 0.05, 2)

# %% [markdown]
# The library works on $B$ sentences and $H$ heads at once, (B, T, H, d_k); here both are 1.

# %%
def heads(array):
    return array[None, :, None, :]                             # (T, d_k) -> (1, T, 1, d_k)


layer = ScaledDotProductAttention()
theirs, cache = layer.forward(heads(q), heads(k), heads(v))
same("y of the page and of the library", heads(y), theirs)
for name, ours, gradient in zip(("dq", "dk", "dv"), (dq, dk, dv), layer.backward(heads(dy), cache)):
    same(name, heads(ours), gradient)

# %% [markdown]
# ## Experiment: a dictionary that learns
#
# Can such a lookup be learnt from nothing but its results? The task: given an English sentence and a German noun of
# its translation, return the code of the English noun that it renders. The code of a word is a fixed random vector of
# 32 numbers. To learn are three tables: a query for each German noun, a key and a value for each English word, all
# random at first. **Nobody says where to look**: the loss is half the squared distance between output and code, so
# `dy = y - code`. The sentences come from the bundled corpus; each has at least two nouns, so that the query matters.

# %% Reading the corpus
def noun_pairs(split):
    """-> for each sentence its English words, and (German noun, place of the English noun) for each pair of nouns"""
    english, german, records = ((ROOT / f"data/tiny/{split}.{suffix}").read_text(encoding="utf-8").splitlines()
                                for suffix in ("en", "de", "jsonl"))
    sentences = []
    for source, target, record in zip(english, german, map(json.loads, records)):
        tags = [tag for tag, _ in re.findall(r"\(([^()\s]+) ([^()\s]+)\)", record["tree"])]
        pairs = [(words(target)[j], i) for i, j in record["alignment"] if tags[i] in ("NN", "NNS")]
        if len(pairs) >= 2:
            sentences.append((words(source.lower()), pairs))
    return sentences


train, test = noun_pairs("val") + noun_pairs("test_compositional"), noun_pairs("test")
english = {word: i for i, word in enumerate(sorted({word for source, _ in train + test for word in source}))}
german = {noun: i for i, noun in enumerate(sorted({noun for _, pairs in train + test for noun, _ in pairs}))}
print(f"{len(train)} sentences to learn from, {len(test)} new ones; {len(english)} words, {len(german)} German nouns")
print(f"for example {' '.join(test[3][0])}   {test[3][1]}")
nouns = sorted({english[source[i]] for source, pairs in train for _, i in pairs})
others = sorted({english[word] for source, _ in train for word in source} - set(nouns))


def rows(source, pairs):
    """Which rows of the tables are asked for: T German nouns, S English words"""
    return [german[noun] for noun, _ in pairs], [english[word] for word in source]


def accuracy(lookup, sentences):
    """How often the code nearest to the output, of the codes in the sentence, is the right word's: 0 to 1"""
    right = []
    for source, pairs in sentences:
        places = lookup.nearest(source, lookup.look(source, pairs)[3])
        right += [source[place] == source[i] for place, (_, i) in zip(places, pairs)]
    return np.mean(right)


# %%
class Lookup:
    """Three tables and a way to weigh: "soft", "hard" (the best key), "mean" (all alike)."""

    def __init__(self, way, seed, d_k=16, d_v=32):
        random = np.random.default_rng(seed)
        self.way, self.factor = way, 1 / math.sqrt(d_k)
        self.queries, self.keys = random.normal(size=(len(german), d_k)), random.normal(size=(len(english), d_k))
        self.values = 0.1 * random.normal(size=(len(english), d_v))
        self.codes = random.normal(size=(len(english), d_v)) / math.sqrt(d_v)

    def look(self, source, pairs):
        """-> q (T, d_k), k (S, d_k), v (S, d_v), y (T, d_v), weights (T, S)"""
        nouns, here = rows(source, pairs)
        q, k, v = self.queries[nouns], self.keys[here], self.values[here]
        if self.way == "hard":
            weights = np.eye(len(here))[(q @ k.T).argmax(axis=1)]
        elif self.way == "mean":
            weights = np.full((len(nouns), len(here)), 1 / len(here))
        else:
            weights = attention(q, k, v, self.factor)[1]
        return q, k, v, weights @ v, weights

    def learn(self, source, pairs, rate):
        nouns, here = rows(source, pairs)
        q, k, v, y, weights = self.look(source, pairs)
        dy = y - self.codes[[here[i] for _, i in pairs]]
        dq, dk, dv = attention_backward(dy, q, k, v, weights, self.factor)
        if self.way == "soft":
            np.add.at(self.queries, nouns, -rate * dq)         # a word may occur twice, and each use has its share
            np.add.at(self.keys, here, -rate * dk)
        np.add.at(self.values, here, -rate * dv)
        return (dy**2).sum() / 2 / len(pairs)

    def nearest(self, source, y):
        """y (T, d_v) -> for each the place of the English word whose code is nearest"""
        codes = self.codes[[english[word] for word in source]]
        return ((y[:, None, :] - codes) ** 2).sum(axis=-1).argmin(axis=1)


# %% [markdown]
# Two controls get the same training. *hard* takes the value of the best key; its queries and keys have the gradient
# 0, as measured above. *mean* weighs all words alike. In both the values learn, and that is not nothing: values can
# be large for nouns and small for other words, and then a blend is made of nouns. How much can be done without
# learning where to look? A test sentence has 2.3 nouns. Guess first.

# %%
# the best on `train` of 0.03, 0.1, 0.3, 1, 2, 3, 4, 6; with 10, mean diverges
RATES = {"soft": 2, "hard": 0.1, "mean": 6}
found, trained = {"soft": [], "hard": [], "mean": []}, {}
for way, rate in RATES.items():
    for seed in 0, 1, 2:
        lookup, order = Lookup(way, seed), np.random.default_rng(seed)
        losses = [np.mean([lookup.learn(*train[n], rate) for n in order.permutation(len(train))]) for _ in range(6)]
        found[way].append(accuracy(lookup, test))
        trained.setdefault(way, lookup)                        # that of seed 0
    print(f"{way:5}loss {losses[0]:.2f} in the first pass, {losses[-1]:.2f} in the sixth;   correct on new sentences, "
          "three seeds: " + "  ".join(f"{share:.0%}" for share in found[way]))

measure("soft: correct, worst seed", min(found["soft"]), 0.78, 0.95)
for way in "hard", "mean":
    measure(f"{way}: correct, best seed", max(found[way]), 0.2, 0.55)
measure("nouns in a sentence", np.mean([len(pairs) for _, pairs in test]), 2.2, 2.3)
by_lot = np.mean([1 / len(pairs) for _, pairs in test for _ in pairs])
measure("correct if one of the sentence's nouns is drawn", by_lot, 0.44, 0.45)

size = np.linalg.norm(trained["mean"].values, axis=1)
measure("mean: size of a noun's value, over that of another word", size[nouns].mean() / size[others].mean(), 1.8, 4)

# %% [markdown]
# Learning where to look doubles the score. The controls end near, or below, the score of someone who knows the nouns
# of the sentence and draws one. *mean* has learnt as much: its values are large for nouns. *hard* is the worst: it
# looks at one word only, and learns nothing about which. (Xu et al. 2015, "Show, Attend and Tell", train such a
# lookup by other means: they draw the place at random and estimate the gradient from the outcome.)
#
# Now the lookup that was learnt, asked about a new sentence:

# %% The figure
learnt = trained["soft"]
source, pairs = test[3]
weights = learnt.look(source, pairs)[4]
figure, axes = plt.subplots(figsize=(8, 2.5), layout="constrained")
image = axes.imshow(weights, "viridis", aspect="auto", vmin=0, vmax=1)
axes.set_xticks(range(len(source)), source, rotation=60, ha="right", rotation_mode="anchor")
axes.set_yticks(range(len(pairs)), [noun for noun, _ in pairs])
for row, (_, i) in enumerate(pairs):
    axes.add_patch(plt.Rectangle((i - 0.47, row - 0.45), 0.94, 0.9, fill=False, edgecolor=ACCENT, lw=2.5))
axes.set(xlabel="key", ylabel="query", title="Learnt weights; framed: the word that the noun renders")
figure.colorbar(image, label="weight")
show(figure, "04_learnt", alt="Weights of the queries Spiegel and Koffer over the words of: the mirror does not fit "
     "into the suitcase because it is too bulky. Frames mark mirror for Spiegel and suitcase for Koffer, where the "
     "largest weights are.")

# %% What the weights and the values show
looks = []
for source, pairs in test:
    _, _, v, y, weights = learnt.look(source, pairs)
    is_noun = np.isin(rows(source, pairs)[1], nouns)
    output, without = learnt.nearest(source, y), learnt.nearest(source, (weights * is_noun) @ v)
    looks += [(w.argmax() == i, not is_noun[w.argmax()], source[one] == source[i], source[other] == source[i])
              for (_, i), w, one, other in zip(pairs, weights, output, without)]
largest, elsewhere, right, right_without = np.mean(looks, axis=0)
measure("the output is right", right, 0.78, 0.95)
measure("the largest weight is on the right word", largest, 0.65, 0.82)
measure("the largest weight is on a word that is no noun", elsewhere, 0.12, 0.28)
measure("the output is right if these words are left out", right_without, 0.72, 0.83)


def cosines(vectors, others):
    """(n, d), (m, d) -> (n, m)"""
    return (vectors @ others.T) / np.linalg.norm(vectors, axis=1)[:, None] / np.linalg.norm(others, axis=1)


codes_of_nouns = learnt.codes[nouns]
own = np.diag(cosines(learnt.values[nouns], codes_of_nouns))
measure("cosine of a noun's value and its own code", own.mean(), 0.7, 0.9)
nearest = cosines(learnt.values[others], codes_of_nouns).max(axis=1)
measure("cosine of another word's value and the code of some noun", nearest.mean(), 0.65, 0.85)
chance = cosines(random.normal(size=(len(others), codes_of_nouns.shape[1])), codes_of_nouns).max(axis=1)
measure("the same, if the value were random", chance.mean(), 0.4, 0.55)

# %% [markdown]
# Nobody gave it this picture as a goal. It found out where to look because looking there made the output better. But
# the output is right in 84 % of the cases, and the largest weight in 74 %. In a fifth of the cases the largest weight
# lies on a word that is no noun (to be exact: that was never an answer in training). Is that a mistake? Leave those
# words out, and fewer outputs are right: 79 %, not 84. Their values resemble the codes of nouns, more than chance
# would have it. Keys and values are separate tables, so a word may be the place where something about another word is
# kept. The map shows which key was found, and not what was brought back.
#
# ## Check the claim
#
# > "Self-attention is permutation invariant: it does not see the order of the words."
#
# *Invariant* would mean that a permuted input gives the same output. Permute the rows of `x` and see:

# %%
T, D = 6, 5
x, order = random.normal(size=(T, D)), np.array([3, 0, 5, 1, 4, 2])
W_Q, W_K, W_V = random.normal(size=(3, D, D))
y = attention_layer(x, x, W_Q, W_K, W_V)
permuted = attention_layer(x[order], x[order], W_Q, W_K, W_V)
measure("invariant? relative difference from y", relative_error(permuted, y), 0.1, 3)
measure("equivariant? relative difference from y, its rows permuted alike",
        relative_error(permuted, y[order]), 0, 1e-14)
measure("only the memory permuted: relative difference from y",
        relative_error(attention_layer(x, x[order], W_Q, W_K, W_V), y), 0, 1e-14)

# %% [markdown]
# The output moves with its word: self-attention is permutation **equivariant**. *Invariant* is the result of one
# query when the pairs of keys and values change places, as in a dict. If the whole output were, no row would belong
# to a word. But the claim has a right half: each word gets the same vector in "dog bites man" and in "man bites dog",
# so attention must be told where words stand, and the paper adds a vector for the position to each word (§3.5).
#
# ## Paper and code
#
# - [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), §3.2: "mapping a query and a set of key-value pairs to
#   an output"; §3.2.1: equation 1; §3.2.3: self- and cross-attention ("encoder-decoder attention"). The soft lookup
#   is older: Bahdanau et al. (2015) used it to translate, with a small network where the paper has the dot product
#   ([lesson 03](03_bahdanau.py)).
# - In the library: `ScaledDotProductAttention`, and around it `SelfAttention` and `CrossAttention`, in
#   [nn/attention.py](../scratchformer/nn/attention.py).
# - *Differs from this page:* the library has several heads, masks, biases, the map $W_O$ at the end, and dropout on
#   the weights if asked for (§5.4 of the paper drops elsewhere). It keeps the weights of forward for backward, where
#   `attention_layer_backward` computes them again.
# - A gradient check does not see which array goes where: the gradient of the wrong function is right. A public NumPy
#   Transformer mixes up the two sides of its cross-attention ([the account](../docs/correctness.md)).
#
# ## Exercises
#
# `scratchformer learn start` puts the exercises into the directory `exercises/`; `scratchformer learn check 04` looks
# at your answers and says what is wrong with them; `scratchformer learn hint` helps in three steps.
#
# **Predict.** All keys are the same vector. What does a query get, and what is the gradient of the queries?
#
# <details><summary>Answer</summary>
#
# All scores of a row are equal, so the weights are $1/S$ and the output is the mean of the values, whatever the
# query. Then it cannot depend on the query, so $dq = 0$. In the formula: each row of `dscores` sums to 0, and
# $\sum_s da_{ts} k_i = k_i \sum_s da_{ts} = 0$.
#
# </details>
#
# **Predict.** The pair with the query's best key is stored twice. Does the result change? And in a dict?
#
# <details><summary>Answer</summary>
#
# It changes: the doubled pair gets the weight twice, before the row is made to sum to 1 again. A dict would keep one
# of them. Soft lookup counts.
#
# </details>
#
# **Build** `04_attention`: equation 1, for any sizes.
#
# **Backward** `04_attention_backward`: `dweights`, `dscores`, `dq`, `dk`, `dv`.
#
# **Break** `04_cross_attention`: a cross-attention takes two of its three inputs from the wrong side. Repair it.
#
# ## Next
#
# Why did the paper choose the temperature $\sqrt{d_k}$ and not 1? [Lesson 05](05_scaling.py) measures what happens
# without it, to the weights, to the gradient and to a model in training.
