# %% [markdown]
# # 12 · Residual connections, LayerNorm and dropout
#
# *About 45 minutes. You need: [lesson 01](01_backprop.py) (the chain rule, the numeric check); attention from [lesson
# 04](04_soft_lookup.py) and [lesson 07](07_many_heads.py), as a layer that reads and writes one vector per word; the
# feed-forward network of [lesson 11](11_feed_forward.py). You will have: the box "Add & Norm" of Figure 1 with its
# backward pass, and a measured answer to what each of its parts is for.*

# %% Imports
import json

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library.lesson import QUICK, ROOT, measure, recorded, same, show, varying
from scratchformer.config import ModelConfig
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.nn.attention import SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import FeedForward, LayerNorm, Linear
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.parameter import Layer, ParameterStore
from scratchformer.nn.residual import PostNorm

# %% [markdown]
# ## Question
#
# **The paper never stacks its sublayers, attention and feed-forward network, bare: each stands in a box "Add & Norm".
# What goes wrong without the box, and which part of it does what?**
#
# Here are the sentences of lesson 01 again, as bags of words, each to be assigned to one of 22 constructions. One
# linear map can do it. Now we put feed-forward networks between the words and the scores, one after the other. The
# task has not become harder, since the stack may pass on what it reads. Training is plain gradient descent, 80 steps of
# 64 sentences, at several learning rates. The rate that does best on the *training* sentences counts, so the new
# sentences have no part in the choice. One seed each, so only large differences mean something.

# %% Reading the sentences
def labelled_sentences(split):
    lines = (ROOT / f"data/tiny/{split}.en").read_text(encoding="utf-8").lower().splitlines()
    records = (ROOT / f"data/tiny/{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines], [json.loads(record)["construction"] for record in records]


(train_words, train_labels), (test_words, test_labels) = labelled_sentences("val"), labelled_sentences("test")
vocabulary = sorted({word for words in train_words for word in words})
classes = [None, *sorted(set(train_labels))]                   # in the library, class 0 is padding
x_train, x_test = (np.array([[words.count(word) for word in vocabulary] for words in sentences], np.float32)
                   for sentences in (train_words, test_words))        # how often each word occurs: (B, V)
t_train, t_test = (np.array([classes.index(label) for label in labels]) for labels in (train_labels, test_labels))


# %% Stacking and training
class Chain(Layer):
    """Layers one after the other. forward(x) -> y, caches; backward(dy, caches) -> dx"""

    def __init__(self, layers):
        self.layers = layers

    def forward(self, x, rng=None):
        caches = []
        for i, layer in enumerate(self.layers):
            x, cache = layer.forward(x, rng=rng and rng.child(i))
            caches.append(cache)
        return x, caches

    def backward(self, dy, caches):
        for layer, cache in zip(reversed(self.layers), reversed(caches)):
            dy = layer.backward(dy, cache)
        return dy


D = 32


def classifier(middle, seed):
    """middle(init) -> the layers between. The whole reads counts (B, V) and writes scores (B, classes)."""
    init = np.random.default_rng(seed)
    return Chain([Linear(len(vocabulary), D, init), *middle(init), Linear(D, len(classes), init)])


def train(model, rate, seed, steps, batch):
    """Plain gradient descent. It ends early if the loss is no longer a number."""
    random, store = np.random.default_rng(seed), ParameterStore(model.parameters())
    for step in range(1, steps + 1):
        rows = random.integers(0, len(x_train), batch)
        scores, caches = model.forward(x_train[rows], rng=DropoutKey(seed, step))
        loss, count, dscores = cross_entropy(scores, t_train[rows])
        if not np.isfinite(loss):
            return
        store.grad[...] = 0
        model.backward(dscores / count, caches)
        store.data -= rate * store.grad


def bare(depth):
    """Feed-forward networks one after the other."""
    return lambda init: [FeedForward(D, D, init) for _ in range(depth)]


def best_rate(middle, rates, seed=0, steps=80, batch=64):
    """-> the rate that puts most training sentences right, and the share of new sentences put right there"""
    shares = []
    for rate in rates:
        model = classifier(middle, seed)
        with np.errstate(over="ignore", invalid="ignore"):     # the highest rate is too high for some
            train(model, rate, seed, steps, batch)
            shares.append([(model.forward(x)[0].argmax(axis=1) == t).mean()
                           for x, t in ((x_train, t_train), (x_test, t_test))])
    best = np.argmax([training for training, _ in shares])
    listed = ", ".join(f"rate {rate:g}: {new:.2f}" for rate, (_, new) in zip(rates, shares))
    varying(f"    {listed}; best in training: {rates[best]:g}")
    return rates[best], shares[best][1]


# %%
no_stack = best_rate(bare(0), (0.3, 1, 3))[1]
measure("nothing between, share of new sentences put right", no_stack, 0.65, 0.8)
measure("12 bare sublayers", best_rate(bare(12), (0.03, 0.1, 0.3))[1], 0.08, 0.3)
measure("to name the most common construction always", np.bincount(t_test).max() / len(t_test), 0.12, 0.13)

# %% [markdown]
# Seven sentences in ten with nothing between, not half of that through twelve sublayers. The stack could pass its
# input on, and in 80 steps gradient descent does not find out how.
#
# ## The idea in one picture
#
# Do not ask a sublayer to pass on what it reads. Carry it around the sublayer, and let the sublayer *add* what it has
# to say. That is the residual connection (He et al. 2015). Adding makes numbers grow, so somewhere they must be
# brought back to one size: LayerNorm (Ba et al. 2016). *Where* is asked again and again of code that follows the
# paper, since the paper and much of the later code differ:

# %% The figure
def wire(axes, points, colour=DARK):
    (*_, before, last) = points
    axes.plot(*zip(*points), color=colour, lw=2, zorder=1)
    axes.annotate("", last, before, arrowprops=dict(arrowstyle="-|>", color=colour, lw=2), zorder=1)


figure, panels = plt.subplots(1, 2, figsize=(7.6, 4.3), layout="constrained")
for axes, title, heights in zip(panels, ("post-LN: the paper\n$\\mathrm{LayerNorm}(x + f(x))$",
                                         "pre-LN: many later models\n$x + f(\\mathrm{LayerNorm}(x))$"),
                                ({"sublayer f": 1.3, "dropout": 2.3, "+": 3.3, "LayerNorm": 4.2},
                                 {"LayerNorm": 1.2, "sublayer f": 2.1, "dropout": 3.0, "+": 4.0})):
    for text, height in heights.items():
        axes.text(0, height, text, ha="center", va="center", fontsize=11, zorder=3,
                  bbox=dict(boxstyle="round,pad=0.4", facecolor="white", edgecolor=DARK))
    wire(axes, [(0, 0), (0, 5.1)])
    wire(axes, [(0, 0.45), (1.5, 0.45), (1.5, heights["+"]), (0.22, heights["+"])], ACCENT)
    axes.text(1.6, 1.9, "the way\naround", color=ACCENT, fontsize=10)
    axes.text(0.12, 0.02, "x", fontsize=11)
    axes.text(0.12, 4.85, "y", fontsize=11)
    axes.set_title(title, fontsize=11)
    axes.set(xlim=(-1.3, 2.6), ylim=(-0.1, 5.3))
    axes.axis("off")
show(figure, "12_post_and_pre", alt="Two diagrams of a sublayer with a way around it. Left, post-LN as in the paper: x "
     "goes through the sublayer and dropout, the way around is added, and LayerNorm stands after the addition, in the "
     "way of both. Right, pre-LN: LayerNorm stands before the sublayer, and nothing stands in the way around.")

# %% [markdown]
# **The paper is post-LN** (§3.1 and Figure 1): the sum of both ways is normalised, and that is what the next sublayer
# reads. **Pre-LN** normalises what the sublayer reads; nothing at all stands in the way around. The authors' own
# public code changed to pre-LN four months after the paper. This lesson builds the paper's box and measures both.
#
# ## The equation, and the same in code
#
# §3.1 gives the output of each sublayer, and §5.4 adds dropout "to the output of each sub-layer, before it is added
# to the sub-layer input and normalized". With $u$ for the sublayer's update and $z$ for the sum:
#
# $$u = f(x) \qquad z = x + \mathrm{dropout}(u) \qquad y = \mathrm{LayerNorm}(z)$$
#
# The paper has no formula for LayerNorm. For one row $z_1, \dots, z_D$, the vector of one position, with two learned
# vectors $\gamma$ and $\beta$:
#
# $$\mu = \frac{1}{D} \sum_j z_j \qquad \sigma^2 = \frac{1}{D} \sum_j (z_j - \mu)^2$$
#
# $$s = \sqrt{\sigma^2 + \varepsilon}$$
#
# $$n_j = \frac{z_j - \mu}{s} \qquad y_j = \gamma_j n_j + \beta_j$$
#
# Why normalise, and then stretch and shift again? $\mu$ and $s$ follow each row; $\gamma$ and $\beta$ are the same
# for all rows, so they can make one *column* weigh more than another, and never bring a row's own size back.
#
# Dropout draws for every number whether it is kept, $k_j = 1$, or dropped, $k_j = 0$ with probability $P$:
#
# $$\mathrm{dropout}(u)_j = \frac{k_j u_j}{1 - P}$$

# %%
EPS = 1e-6


def layer_norm(z, gamma, beta):
    """z (..., D), gamma and beta (D,) -> y (..., D), (n (..., D), s (..., 1)) for backward"""
    mu = z.mean(axis=-1, keepdims=True)
    s = np.sqrt(((z - mu) ** 2).mean(axis=-1, keepdims=True) + EPS)
    n = (z - mu) / s
    return gamma * n + beta, (n, s)


def dropout(u, kept, P_drop):
    """u (..., D), kept (..., D) bool -> (..., D)"""
    return u * kept / (1 - P_drop)


def post_norm(x, f, gamma, beta, kept, P_drop):
    """x (..., D), f a layer of the library -> y (..., D), what backward needs"""
    u, f_cache = f.forward(x)
    y, norm_cache = layer_norm(x + dropout(u, kept, P_drop), gamma, beta)
    return y, (f_cache, norm_cache)


# %% [markdown]
# ## Forward: LayerNorm
#
# Four words of 6 numbers, each word in its own size and place. Each row is treated alone: neither the batch nor the
# other positions have a say. BatchNorm, the older way, takes mean and variance over the batch. Then the result for a
# sentence depends on its company and on the padding, and inference needs averages that were stored in training.

# %%
random = np.random.default_rng(12)
z = random.normal(size=(4, 6)) * [[0.1], [1], [10], [100]] + [[5], [0], [-3], [40]]
gamma, beta = random.normal(1, 0.5, 6), random.normal(0, 0.5, 6)
n, s = layer_norm(z, gamma, beta)[1]
measure("largest mean of a row of n", np.abs(n.mean(axis=-1)).max(), 0, 1e-12)
measure("lowest variance of a row of n", n.var(axis=-1).min(), 0.999, 1)
change = np.abs(layer_norm(3 * z + 7, gamma, beta)[1][0] - n).max()
measure("stretch z by 3 and shift it by 7: largest change of n", change, 0, 1e-3)
equal = np.full((1, 6), 2.5)
same("a row of equal numbers gives beta, not 0 / 0", layer_norm(equal, gamma, beta)[0][0], beta)

# %% [markdown]
# Two things about a row are lost: its mean and its size. Remember them; they come back in the backward pass.
#
# $\varepsilon$ is there for the constant row, whose variance is 0. It belongs **inside** the root, and the variance
# is the **biased** one, divided by $D$. The Annotated Transformer divides by $D - 1$, and adds $\varepsilon$
# outside the root. Each way trains, but the weights of one program cannot be used in the other.
#
# ## Forward: dropout
#
# Why divide by $1 - P$? The sum of many numbers should be the same on average with dropout as without, because at
# inference nothing is dropped and nothing is scaled. Ten thousand masks on one row:

# %%
P = 0.25
row = random.normal(2, 1, 6)
dropped = dropout(row, random.random((10_000, 6)) >= P, P)
measure("mean of the row's sum over its value without dropout", dropped.sum(axis=1).mean() / row.sum(), 0.98, 1.02)
measure("the same if nothing is divided", (dropped * (1 - P)).sum(axis=1).mean() / row.sum(), 0.73, 0.77)

# %% [markdown]
# ## Backward of dropout, and of the residual connection
#
# Dropout is a product with numbers that do not depend on $u$: 0 or $\frac{1}{1 - P}$. So its backward is the same
# product, with the **same** mask: what was not used gets no blame.
#
# Now follow one number of $x$ to $z = x + \mathrm{dropout}(u)$, $u = f(x)$. It goes by two ways.
#
# - Around: $x_i$ is one of the two terms of $z_i$, with the factor 1. Back comes $dz_i$ as it is.
# - Through the sublayer: the other term is the dropped $u$, so $du = \mathrm{dropout}(dz)$. The sublayer's own
#   backward, which we call $\mathrm{back}_f$, turns $du$ into what $x$ gets from it.
#
# The ways add up:
#
# $$dx = dz + \mathrm{back}_f(du)$$
#
# One term reaches the input of the box *whatever the sublayer is*. In a bare stack the gradient is handed from one
# $\mathrm{back}_f$ to the next: if each halves it, twelve leave a four-thousandth. With a way around each, what is
# multiplied is 1 plus the sublayer's share; multiplied out, one term passes through no sublayer at all.
#
# ## Backward of LayerNorm
#
# First the easy end. $y_j = \gamma_j n_j + \beta_j$, and $\gamma$, $\beta$ are used in every row, so their gradients
# are sums over all rows; and each $n_j$ has one way on:
#
# $$d\beta_j = \sum_{\mathrm{rows}} dy_j \qquad d\gamma_j = \sum_{\mathrm{rows}} dy_j n_j \qquad dn_j = \gamma_j dy_j$$
#
# Now $z_i$, in one row. It reaches $n$ by three ways.
#
# **Directly.** It stands above the fraction bar of its own $n_i$: $\frac{1}{s} dn_i$.
#
# **By the mean.** If $z_i$ grows by a little, $\mu$ grows by $\frac{1}{D}$ of that, and *every* $n_j$ falls by
# $\frac{1}{D s}$ of it. Over all $j$:
#
# $$-\frac{1}{s} \cdot \frac{1}{D} \sum_j dn_j$$
#
# **By the size.** How much does $s$ grow? The derivative of $\sigma^2$ is $\frac{2}{D}(z_i - \mu)$. (That $\mu$ moves
# as well adds $-\frac{2}{D} \cdot \frac{1}{D} \sum_k (z_k - \mu)$, which is 0: deviations from the mean sum to zero.)
# The root brings $\frac{1}{2s}$, so
#
# $$\frac{\partial s}{\partial z_i} = \frac{1}{2s} \cdot \frac{2}{D} (z_i - \mu) = \frac{n_i}{D}$$
#
# And if $s$ grows, every $n_j$ shrinks in proportion, by $\frac{n_j}{s}$. Over all $j$:
#
# $$-\frac{1}{s} \cdot n_i \cdot \frac{1}{D} \sum_j dn_j n_j$$
#
# Together, with "mean" for the mean over the $D$ numbers of the row:
#
# $$dz_i = \frac{1}{s} \left( dn_i - \mathrm{mean}(dn) - n_i \cdot \mathrm{mean}(dn \, n) \right)$$
#
# **In a picture.** $dn$ is an arrow in $D$ dimensions. The second term is its part along $(1, 1, \dots, 1)$, the
# third is its part along $n$, and the two directions are at right angles, since $n$ has mean 0. Both are taken out:
# moving $z$ along the first shifts the row, moving it along the second stretches it, and the output changes under
# neither (under the stretch, up to $\varepsilon$). What does not change the output gets no gradient. What is left is
# divided by $s$: a row of large numbers gets a smaller gradient.

# %%
def layer_norm_backward(dy, cache, gamma):
    """dy (..., D) -> dz (..., D), dgamma (D,), dbeta (D,)"""
    n, s = cache
    rows = tuple(range(dy.ndim - 1))
    dn = gamma * dy
    dz = (dn - dn.mean(axis=-1, keepdims=True) - n * (dn * n).mean(axis=-1, keepdims=True)) / s
    return dz, (dy * n).sum(axis=rows), dy.sum(axis=rows)


def post_norm_backward(dy, cache, f, gamma, kept, P_drop):
    """dy (..., D) -> dx (..., D), dgamma, dbeta (D,); f adds to the gradients of its own weights"""
    f_cache, norm_cache = cache
    dz, dgamma, dbeta = layer_norm_backward(dy, norm_cache, gamma)
    du = dropout(dz, kept, P_drop)
    return dz + f.backward(du, f_cache), dgamma, dbeta


# %% [markdown]
# ## Check
#
# Against central differences, by the `numeric_gradient` of lesson 01 in the library's wording, with a random upstream
# gradient, a random $\gamma$ and dropout switched on; and against the library. It draws a mask from a *key*: seed,
# step, and place in the model. The same key draws the same mask, so a check may call forward as often as it likes.

# %%
f = FeedForward(6, 10, np.random.default_rng(0), "float64")
key = DropoutKey(seed=0, step=1)
x, dy = random.normal(size=(2, 2, 3, 6))                       # (B, T, D) both
kept = key.child(1).keep(x.shape, P)
y, cache = post_norm(x, f, gamma, beta, kept, P)
dx, dgamma, dbeta = post_norm_backward(dy, cache, f, gamma, kept, P)


def loss(x, gamma, beta):
    return (post_norm(x, f, gamma, beta, kept, P)[0] * dy).sum()


same("dx and central differences", dx, numeric_gradient(lambda x: loss(x, gamma, beta), x), 1e-7)
same("dgamma", dgamma, numeric_gradient(lambda gamma: loss(x, gamma, beta), gamma), 1e-7)
same("dbeta", dbeta, numeric_gradient(lambda beta: loss(x, gamma, beta), beta), 1e-7)

theirs = PostNorm(f, ModelConfig(d_model=6, d_ff=10, h=1, P_drop=P), "float64")
theirs.norm.gamma.data[...], theirs.norm.beta.data[...] = gamma, beta
their_y, their_cache = theirs.forward(x, rng=key)
same("y: this page and the library", y, their_y)
same("dx", dx, theirs.backward(dy, their_cache))
print(gradcheck(theirs, x, rng=key))

# %% [markdown]
# **Why a random $\gamma$?** In a public NumPy Transformer, $\gamma$ is multiplied in *after* the two means are taken
# out. As long as $\gamma$ is 1 everywhere the two orders agree, and 1 is where training begins. A check of the
# freshly made layer finds nothing:

# %%
rows, upstream = random.normal(size=(2, 100, 64))
for spread, lo, hi in (0, 0, 1e-12), (0.05, 0.005, 0.03), (0.5, 0.05, 0.25):
    some_gamma = random.normal(1, spread, 64)
    _, cache = layer_norm(rows, some_gamma, 0)
    truth = layer_norm_backward(upstream, cache, some_gamma)[0]
    gamma_outside = some_gamma * layer_norm_backward(upstream, cache, np.ones(64))[0]
    error = np.linalg.norm(gamma_outside - truth) / np.linalg.norm(truth)
    measure(f"gamma outside the means, gamma spread by {spread}: relative error of dz", error, lo, hi)

# %% [markdown]
# **Why with dropout on?** The same program gives its layers *one* dropout object, and the object remembers its last
# mask only: backward takes that one in both places. With dropout off this is correct, so a check without dropout
# passes.
#
# ## Experiment 1: which part does what
#
# Five ways to stack the same sublayers. Norm only and residual only are the controls: if one part did all the work,
# we should see it there.
#
# | way | what a box writes |
# |---|---|
# | bare | $f(x)$ |
# | norm only | $\mathrm{LayerNorm}(f(x))$ |
# | residual only | $x + f(x)$ |
# | post-LN, the paper | $\mathrm{LayerNorm}(x + f(x))$ |
# | pre-LN | $x + f(\mathrm{LayerNorm}(x))$ |
#
# Pre-LN has one more norm after the last box, since nothing else bounds the sum that leaves it. Before you read on:
# which will learn with 12 sublayers, and which of the last three with 48? (Bare has failed with 12 already.)

# %% The five ways
AROUND = ("residual only", "post-LN", "pre-LN")


class Block(Layer):
    """One sublayer with what a way puts around it."""

    def __init__(self, way, sublayer, d_model, dtype="float32"):
        self.around, self.norm_last, self.norm_first = way in AROUND, way in ("norm only", "post-LN"), way == "pre-LN"
        self.sublayer, self.norm = sublayer, LayerNorm(d_model, dtype)

    def forward(self, x, rng=None):
        read, norm_cache = self.norm.forward(x) if self.norm_first else (x, None)
        y, sublayer_cache = self.sublayer.forward(read)
        y = x + y if self.around else y
        y, norm_cache = self.norm.forward(y) if self.norm_last else (y, norm_cache)
        return y, (sublayer_cache, norm_cache)

    def backward(self, dy, cache):
        sublayer_cache, norm_cache = cache
        dy = self.norm.backward(dy, norm_cache) if self.norm_last else dy
        dx = self.sublayer.backward(dy, sublayer_cache)
        dx = self.norm.backward(dx, norm_cache) if self.norm_first else dx
        return dx + dy if self.around else dx


def stack(way, sublayers, d_model, dtype="float32"):
    return [Block(way, sublayer, d_model, dtype) for sublayer in sublayers] + \
        [LayerNorm(d_model, dtype)] * (way == "pre-LN")


def feed_forwards(way, depth):
    return lambda init: stack(way, bare(depth)(init), D)


STYLES = {"bare": ("#888888", ":"), "norm only": ("black", (0, (1, 1, 4, 1))), "residual only": (LIGHT, "-."),
          "post-LN": (DARK, "-"), "pre-LN": (ACCENT, "--")}
for way in STYLES:
    one = Block(way, FeedForward(6, 10, np.random.default_rng(0), "float64"), 6, "float64")
    measure(f"gradcheck, {way}: worst error", gradcheck(one, x).worst.error, 0, 1e-6)

# %%
reached = {}
for depth, way, rates, lo, hi in (
        (12, "norm only", (0.003, 0.01, 0.03, 0.1), 0.1, 0.4), (12, "residual only", (0.01, 0.03, 0.1), 0.33, 0.65),
        (12, "post-LN", (0.01, 0.03, 0.1, 0.3), 0.4, 0.68), (12, "pre-LN", (0.03, 0.1, 0.3, 1), 0.48, 0.75),
        (48, "residual only", (1e-7, 1e-6, 1e-5, 1e-4), 0, 0.2), (48, "post-LN", (0.003, 0.01, 0.03, 0.1), 0.1, 0.36),
        (48, "pre-LN", (0.01, 0.03, 0.1, 0.3), 0.36, 0.7)):
    best, share = best_rate(feed_forwards(way, depth), rates)
    assert rates[0] < best < rates[-1], "the best rate may lie outside those tried"
    reached[depth, way] = measure(f"{depth} sublayers, {way}", share, lo, hi)
measure("no stack minus pre-LN with 12", no_stack - reached[12, "pre-LN"], 0, 0.25)
measure("48 sublayers: pre-LN minus post-LN", reached[48, "pre-LN"] - reached[48, "post-LN"], 0.08, 0.5)
_, late = best_rate(feed_forwards("norm only", 12), [0.01], steps=400)
measure("12 sublayers, norm only, 400 steps", late, 0.3, 0.6)

# %% [markdown]
# - **Norm only** learns, but late: with five times the steps it is near where residual only was after 80.
# - **Residual only** learns with 12 sublayers. With 48 it does not learn in 80 steps, at small
#   rates or at larger ones.
# - **With both**, 12 sublayers learn, though none of them does better than no stack at all, since this task needs no
#   depth. With 48, **pre-LN** still learns, and **post-LN** hardly does.
#
# So the way around is what makes a stack trainable, and the norm is what keeps it so when the stack gets deep. But
# the paper's arrangement pays for having the norm last. Why? A stack of real encoder layers now, self-attention and
# feed-forward in turn, at its initial weights. The output is given a random gradient of length 1: how much of it
# arrives further down? And on the way up: what is left of the input, as the cosine between $x$ and what the stack has
# made of it?

# %% Down and up through 48 sublayers
def through(way, seed, layers=24, d_model=32):
    """-> the logarithm of the length of dx before each sublayer; how like the input each sublayer's output is"""
    init = np.random.default_rng(seed)
    sublayers = [sublayer for _ in range(layers) for sublayer in (
        SelfAttention(d_model, 4, init, "float64"), FeedForward(d_model, 4 * d_model, init, "float64"))]
    first, dy = init.normal(size=(2, 4, 12, d_model))
    x, dy, saved, likeness, lengths = first, dy / np.linalg.norm(dy), [], [], []
    for layer in stack(way, sublayers, d_model, "float64"):
        x, cache = layer.forward(x)
        saved.append((layer, cache))
        likeness.append(cosine(first, x))
    for layer, cache in reversed(saved):
        dy = layer.backward(dy, cache)
        lengths.append(np.linalg.norm(dy))
    return np.log(lengths[::-1][:2 * layers]), likeness[:2 * layers]


def cosine(a, b):
    """Of the rows, without their means; on average over the rows."""
    a, b = (x - x.mean(axis=-1, keepdims=True) for x in (a, b))
    return ((a * b).sum(axis=-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)).mean()


# %%
deep = {}
for way, arrives, left_over in ("bare", (1e-12, 1e-8), (-0.1, 0.1)), ("norm only", (0.1, 10), (-0.1, 0.1)), \
        ("residual only", (1e5, 1e10), (-0.1, 0.2)), ("post-LN", (0.08, 1.2), (-0.1, 0.15)), \
        ("pre-LN", (0.4, 1.5), (0.2, 0.6)):
    logarithms, likeness = np.mean([through(way, seed) for seed in range(2 if QUICK else 4)], axis=0)
    deep[way] = np.exp(logarithms), likeness
    measure(f"48 sublayers, {way}: length that arrives at the input", deep[way][0][0], *arrives)
    measure("    cosine of input and output", likeness[-1], *left_over)

# %% The figure
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for way, (colour, style) in STYLES.items():
    lengths, likeness = deep[way]
    left.semilogy(np.arange(1, 49), lengths, ls=style, color=colour, lw=2, label=way)
    right.plot(np.arange(49), [1, *likeness], ls=style, color=colour, lw=2)
left.set(xlabel="sublayer, from the input", ylabel="length of dx", title="Down: what arrives of a gradient of 1")
right.set(xlabel="sublayer, from the input", ylabel="cosine with the input", title="Up: what is left of the input")
left.legend(fontsize=9)
show(figure, "12_gradient_by_depth", alt="Left: length of the gradient before each of 48 sublayers, logarithmic. "
     "Bare, it falls to about 1e-11 at the input; with residuals only it climbs to about 1e7; norm only, post-LN and "
     "pre-LN stay near 1. Right: cosine of the input and the output of each sublayer. Bare and norm only lose the "
     "input after one sublayer, residual only and post-LN after about twenty; pre-LN still has 0.28 at the "
     "end.")

# %% [markdown]
# - **Bare**, the gradient is handed through 48 sublayers, each of which makes it smaller.
# - **Residual only**, the sum grows with every addition, and the gradient with it: by millions.
# - **With both**, what arrives is of the size of what was sent. In post-LN each norm divides by what its addition
#   made larger; in pre-LN the last norm divides once, and the ways through the sublayers add to it again.
# - **Norm only** has gradients of about the size that was sent, too, and learns badly. Size is not all.
#
# The right half shows what else there is. Say that an update made from numbers of size 1 has variance $c$. In post-LN
# every sublayer reads such numbers, and the norm after the addition shrinks what the sum holds of the input by
# $\frac{1}{\sqrt{1 + c}}$, box after box; after 48 hardly anything is left. In residual only the sublayer reads the
# growing sum, so its update grows with it, and the same share is lost. In pre-LN every update has variance $c$ while
# the sum grows: of its variance $1 + 48 c$ one part is still the input, a cosine of $\frac{1}{\sqrt{1 + 48 c}}$. That
# agrees with the results; it does not prove that it is their cause.
#
# ## Experiment 2: what it costs to put the norm last
#
# The paper raises its learning rate slowly over the first steps, the *warm-up*. It trains with Adam, which divides
# each step by the root of a running average $v$ of the squared gradients (§5.3). Two explanations go round. One: in
# the first steps $v$ is an average over very few gradients. The other: in post-LN the gradients of the weights near
# the output are large at the start, and a full step there does harm (Xiong et al. 2020). The two can be told apart:
# begin at the full rate, but let Adam see 100 batches first without moving, and keep only $v$: its average of the
# gradients themselves begins empty, as always. If that is as good as a warm-up, the first explanation suffices. What
# do you expect?
#
# A translation model with 6 + 6 layers on the bundled corpus, without dropout, 300 steps, a warm-up of 100, two peaks
# of the learning rate, five seeds for each row. It takes long, so the result is read from a recording. *Lost* counts
# the runs that end no better than the frequencies of the pieces of words alone, at 5.51 nats.

# %% Reading the recording
result = recorded("norm_and_warmup")
print("\n        start              peak   loss on new sentences: mean (lowest to highest)   lost")
final = {}
for row in result["results"]:
    losses, norm, peak = np.array([run["final_loss"] for run in row["runs"]]), row["norm"], row["peak_learning_rate"]
    final[norm, row["start"], peak] = losses
    print(f"{norm:>4}-LN {row['start']:18}{peak:<7g}{losses.mean():.2f} ({losses.min():.2f} to {losses.max():.2f})   "
          f"{row['divergences']} of 5")

# %% The bands
measure("the frequencies alone, nats", result["unigram_entropy"], 5.505, 5.515)
measure("runs lost: post-LN without warm-up at the higher peak", result["results"][6]["divergences"], 4, 4)
for peak, helps, not_v, pre, lower in (0.001, (0.2, 0.3), (-0.02, 0.02), (-0.3, -0.09), (0.5, 0.6)), \
        (0.003, (0.7, 0.8), (0, 0.1), (0.4, 0.9), (1.9, 2.1)):
    warm, none, v_averaged = (final["post", start, peak] for start in ("warm-up", "none", "v averaged first"))
    pre_warm, pre_none = (final["pre", start, peak] for start in ("warm-up", "none"))
    measure(f"peak {peak}, post-LN: without warm-up minus with, smallest of five", (none - warm).min(), *helps)
    measure("post-LN: v averaged minus without warm-up, mean of five", (v_averaged - none).mean(), *not_v)
    measure("pre-LN: without warm-up minus with, smallest of five", (pre_none - pre_warm).min(), *pre)
    measure("pre-LN: without warm-up minus with, largest of five", (pre_none - pre_warm).max(), *pre)
    measure("with warm-up: post-LN minus pre-LN, smallest of five", (warm - pre_warm).min(), *lower)

# %% [markdown]
# Warm-up helps post-LN with every seed; at the higher rate four of five runs are lost without it. An averaged $v$
# does not replace it: those runs end about where runs without a warm-up end. So a poor $v$ is not the reason here.
# That leaves the second explanation standing, and does not prove it: Adam divides the size of a gradient away, large
# or small.
#
# **Which should you use?** To rebuild the paper: post-LN, with its warm-up. For a deep stack, or if you do not want
# to search for a learning rate: pre-LN. It ends lower in every pair of runs with a warm-up here. "Pre-LN needs no
# warm-up", which one reads, holds at the lower rate, where it is even better without. At the higher it trains
# without, too, and ends half a nat or more behind.
#
# ## Check the claim
#
# > "Because of the factor $\frac{1}{1-P}$, the network's expected output is the same in training and at inference."
#
# That holds for a sum, as measured above. It fails at the first function that is not a straight line, and LayerNorm
# is one: it divides by the size. The mean square of a dropped number is $(1 - P) \frac{u^2}{(1 - P)^2}$, which for
# $P = 0.1$ is larger than $u^2$ by $\frac{1}{0.9}$. So if $x$ and $u$ are independent and of one size, the variance
# that LayerNorm sees is larger in training by $(1 + \frac{1}{0.9}) / 2 = 1.056$. The factor makes the mismatch small,
# not zero.
#
# > "The residual connections give the gradient an unhindered way from the loss to the first layer."
#
# True within the stack of pre-LN. In the paper's post-LN every way passes one LayerNorm per sublayer, which takes two
# directions out and divides. A good part still arrives at the input, for another reason: the norm divides by the
# $\sqrt{1 + c}$ by which the addition made $x$ longer, and the addition of the two ways back makes the gradient
# longer by about the same.
#
# ## Paper and code
#
# - Residual connections and LayerNorm: §3.1, `LayerNorm(x + Sublayer(x))`. Dropout: §5.4, on each sublayer's output
#   and on the sum of embeddings and positions; $P_{drop} = 0.1$ in the base model. Row (D) of Table 3 varies it.
# - In the library: `layer_norm`, `dropout`, `add_norm` with their backwards in
#   [nn/ops.py](../scratchformer/nn/ops.py); `PostNorm` and `PreNorm` (`norm="pre"`) in
#   [nn/transformer.py](../scratchformer/nn/transformer.py); the keys in
#   [nn/dropout.py](../scratchformer/nn/dropout.py).
# - *The paper does not say:* the formula of LayerNorm, $\varepsilon$, whether the variance is biased. Here as in the
#   authors' code: biased, $10^{-6}$ inside the root.
# - *Differs from this page:* the library keeps $\frac{1}{s}$ instead of $s$ and adds into `dgamma` and `dbeta`. It
#   decides on 16 random bits, so $P_{drop}$ is rounded to a multiple of 1/65536.
#
# ## Exercises
#
# `scratchformer learn check 12` looks at your answers and says what is wrong with them.
#
# **Predict.** A LayerNorm over rows of *two* numbers, $\varepsilon = 0$. What is $dz$?
#
# <details><summary>Answer</summary>
#
# Zero. Two directions are taken out, and there are only two. Forward says the same: $n$ is $(1, -1)$ or $(-1, 1)$,
# and no small change of $z$ changes that.
#
# </details>
#
# **Predict.** A program draws the mask in training, and at inference drops nothing but still divides by $1 - P$. With
# $P = 0.1$ and a post-LN block, is the output wrong by 11 per cent?
#
# <details><summary>Answer</summary>
#
# The update is, 1.11 times too large. The output is not: LayerNorm takes out the size of the sum, so what is left is
# that the update weighs 11 per cent more against $x$ than it should. This is a real bug of a public implementation.
#
# </details>
#
# **Backward** `12_layer_norm_backward`: write `dx`, `dgamma`, `dbeta`; a forgotten term is named.
#
# **Build** `12_dropout`: write forward and backward, from random numbers that are given.
#
# **Backward** `12_residual_backward`: go back through Add & Norm with a linear sublayer, both ways.
#
# **Break** `12_repair_layer_norm`: repair a LayerNorm that has five bugs. Each runs, and each could train.
#
# ## Next
#
# The answer to the question: the way around lets signal and gradient past sublayers that have not learnt anything
# yet, and the norm keeps the growing sum at one size, at a price if it stands last. Dropout is another matter: it is
# there for sentences that the model has not seen (24.6 BLEU without and 25.8 with, in the paper's Table 3, row D and
# base).
#
# You now have every part of a layer, and the box that holds it. [Lesson 13](13_whole_model.py) puts encoder, decoder
# and the whole model together. The sources: [Attention Is All You Need](https://arxiv.org/abs/1706.03762), [He et al.
# 2015](https://arxiv.org/abs/1512.03385), [Ba et al. 2016](https://arxiv.org/abs/1607.06450), [Srivastava et al.
# 2014](https://jmlr.org/papers/v15/srivastava14a.html) on dropout, and [Xiong et al.
# 2020](https://arxiv.org/abs/2002.04745) on where the norm stands.
