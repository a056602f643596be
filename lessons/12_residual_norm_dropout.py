# %% [markdown]
# # 12 · Residual connections, LayerNorm and dropout
#
# *About 40 minutes. You need: [lesson 01](01_backprop.py) (gradients, the numeric check) and the two sublayers of the
# Transformer: attention and the feed-forward network. You will have: the box "Add & Norm" of Figure 1 with its whole
# backward pass, and a measured answer to what each of its parts is for.*

# %%
import json

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.attention import SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import FeedForward, LayerNorm, Linear
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.ops import ops_of
from scratchformer.nn.parameter import Layer, ParameterStore
from scratchformer.nn.transformer import PostNorm
from scratchformer.study.figures import ACCENT, DARK, LIGHT
from scratchformer.study.lesson import QUICK, ROOT, measure, same, show

# %% [markdown]
# ## Question
#
# **The paper never stacks its sublayers bare: each stands in a box "Add & Norm". What goes wrong without the box, and
# which part of it does what?**
#
# Here are sentences as bags of words again, each to be assigned to one of 23 constructions, as in lesson 01. One
# linear map can do it. Now put $N$ feed-forward networks between the words and the scores, one after the other. The
# task has not become harder: the stack may pass on what it reads. Each depth is trained at three learning rates and
# counts its best.

# %%
def labelled_sentences(split):
    lines = (ROOT / f"data/tiny/{split}.en").read_text(encoding="utf-8").lower().splitlines()
    records = (ROOT / f"data/tiny/{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines], [json.loads(record)["construction"] for record in records]


def counts(sentences):
    """How often each word occurs in each sentence: (B, V)."""
    return np.array([[words.count(word) for word in vocabulary] for words in sentences], np.float32)


train_words, train_labels = labelled_sentences("val")
test_words, test_labels = labelled_sentences("test")
vocabulary = sorted({word for words in train_words for word in words})
classes = [None, *sorted(set(train_labels))]                   # in the library, class 0 is padding
x_train, x_test = counts(train_words), counts(test_words)
t_train, t_test = (np.array([classes.index(label) for label in labels]) for labels in (train_labels, test_labels))


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


D, SEEDS, RATES = 32, (0,) if QUICK else (0, 1), (0.03, 0.1, 0.3)


def classifier(middle, seed):
    """middle(init) -> the layers between. The whole reads counts (B, V) and writes scores (B, classes)."""
    init = np.random.default_rng(seed)
    return Chain([Linear(len(vocabulary), D, init), *middle(init), Linear(D, len(classes), init)])


def train(model, rate, seed, steps=200, batch=32):
    """Plain gradient descent. It ends early if the loss is no longer a number."""
    random, store = np.random.default_rng(seed), ParameterStore(model.parameters())
    for step in range(1, steps + 1):
        rows = random.integers(0, len(x_train), batch)
        scores, caches = model.forward(x_train[rows], rng=DropoutKey(seed, step))
        loss, n, dscores = cross_entropy(scores, t_train[rows])
        if not np.isfinite(loss):
            return
        store.grad[...] = 0
        model.backward(dscores / n, caches)
        store.data -= rate * store.grad


def accuracies_after(middle, rate, seed):
    """The share put right after training: of the training sentences, and of new ones."""
    model = classifier(middle, seed)
    with np.errstate(over="ignore", invalid="ignore"):         # the highest rate is too high for some
        train(model, rate, seed)
        return [(model.forward(x)[0].argmax(axis=1) == t).mean() for x, t in ((x_train, t_train), (x_test, t_test))]


def best_accuracy(middle):
    """Mean over the seeds at the best rate. -> the share put right, of the training and of new sentences"""
    return max((np.mean([accuracies_after(middle, rate, seed) for seed in SEEDS], axis=0) for rate in RATES),
               key=lambda accuracies: accuracies[1])


def bare(N):
    return lambda init: [FeedForward(D, D, init) for _ in range(N)]


for N, lo, hi in (0, 0.65, 0.78), (4, 0.15, 0.5), (12, 0.08, 0.3):
    on_training, on_new = best_accuracy(bare(N))
    measure(f"{N:2} bare sublayers, best rate: share of new sentences put right", on_new, lo, hi)
measure("12 bare sublayers: the same of the training sentences", on_training, 0.08, 0.35)
measure("to name the most common construction always", np.bincount(t_test).max() / len(t_test), 0.08, 0.13)

# %% [markdown]
# Seven sentences in ten without a stack, a third or so with four sublayers between, a fifth or less with twelve. It
# is not overfitting: the training sentences fare no better. A stack could pass its input on, and gradient descent
# does not find out how.
#
# ## The idea in one picture
#
# Do not ask a sublayer to pass on what it reads. Carry it around the sublayer, and let the sublayer *add* what it has
# to say. That is the residual connection (He et al. 2015). Adding makes numbers grow, so somewhere they must be
# brought back to one size: LayerNorm (Ba et al. 2016). *Where* they are brought back is perhaps the most asked
# question about this model, since the paper and much of the code that follows it differ:

# %%
def part(axes, height, text):
    axes.text(0, height, text, ha="center", va="center", fontsize=11, zorder=3,
              bbox=dict(boxstyle="round,pad=0.4", facecolor="white", edgecolor=DARK))


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
        part(axes, height, text)
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
# to the sub-layer input and normalized":
#
# $$y = \mathrm{LayerNorm}(x + \mathrm{dropout}(f(x)))$$
#
# The paper has no formula for LayerNorm. For one row $x_1, \dots, x_D$, the vector of one position, with two learned
# vectors $\gamma$ and $\beta$:
#
# $$\mu = \frac{1}{D} \sum_j x_j \qquad v = \frac{1}{D} \sum_j (x_j - \mu)^2 \qquad s = \sqrt{v + \varepsilon}$$
#
# $$n_j = \frac{x_j - \mu}{s} \qquad y_j = \gamma_j n_j + \beta_j$$
#
# Dropout draws for every number whether it is kept. With probability $P$ it becomes 0; otherwise it is divided by
# $1 - P$:
#
# $$y_j = \frac{k_j x_j}{1 - P}$$
#
# with $k_j = 1$ for a number that is kept and 0 for one that is dropped.

# %%
EPS = 1e-6


def layer_norm(x, gamma, beta):
    """x (..., D), gamma and beta (D,) -> y (..., D), (n (..., D), s (..., 1)) for backward"""
    mu = x.mean(axis=-1, keepdims=True)
    s = np.sqrt(((x - mu) ** 2).mean(axis=-1, keepdims=True) + EPS)
    n = (x - mu) / s
    return gamma * n + beta, (n, s)


def dropout(x, kept, P_drop):
    """x (..., D), kept (..., D) bool -> y (..., D)"""
    return x * kept / (1 - P_drop)


def post_norm(x, sublayer, gamma, beta, kept, P_drop):
    """x (..., D) -> y (..., D), what backward needs"""
    update, sublayer_cache = sublayer.forward(x)
    z = x + dropout(update, kept, P_drop)
    y, norm_cache = layer_norm(z, gamma, beta)
    return y, (sublayer_cache, norm_cache)


# %% [markdown]
# ## Forward: LayerNorm
#
# Four words of 6 numbers, each word in its own size and place. Each row is treated alone: not the batch, not the
# other positions have a say, so a sentence gets the same result in any company and in any length of padding.

# %%
random = np.random.default_rng(12)
x = random.normal(size=(4, 6)) * [[0.1], [1], [10], [100]] + [[5], [0], [-3], [40]]
gamma, beta = random.normal(1, 0.5, 6), random.normal(0, 0.5, 6)
n, s = layer_norm(x, gamma, beta)[1]
measure("largest mean of a row of n", np.abs(n.mean(axis=-1)).max(), 0, 1e-12)
measure("lowest variance of a row of n", n.var(axis=-1).min(), 0.999, 1)
change = np.abs(layer_norm(3 * x + 7, gamma, beta)[1][0] - n).max()
measure("shift x by 7 and stretch it by 3: largest change of n", change, 0, 1e-3)

constant = np.full((1, 6), 2.5)
same("a row of equal numbers gives beta, not 0 / 0", layer_norm(constant, gamma, beta)[0][0], beta)

# %% [markdown]
# Two directions of $x$ are lost on the way to $n$: its mean and its size. Remember them; they come back in the
# backward pass.
#
# $\varepsilon$ is there for the constant row, whose variance is 0. It belongs **inside** the root, and the variance
# is the **biased** one, divided by $D$. Frameworks also offer a `std` that divides by $D - 1$, and a well-known
# annotated version of the paper divides by that `std`, plus $\varepsilon$ outside. How much is that?

# %%
def layer_norm_with_std(x):
    return (x - x.mean(axis=-1, keepdims=True)) / (x.std(axis=-1, ddof=1, keepdims=True) + EPS)


for width, lo, hi in (8, 0.05, 0.08), (512, 9e-4, 11e-4):
    rows = random.normal(size=(200, width))
    ratio = np.std(layer_norm_with_std(rows)) / np.std(layer_norm(rows, 1, 0)[0])
    measure(f"D = {width:3}, rows of size 1: with std, the output is smaller by", 1 - ratio, lo, hi)
rows = 1e-4 * random.normal(size=(200, 512))
measure("D = 512, rows of size 0.0001, eps inside: size of the output", layer_norm(rows, 1, 0)[0].std(), 0.08, 0.12)
measure("D = 512, rows of size 0.0001, std + eps: size of the output", layer_norm_with_std(rows).std(), 0.95, 1)

# %% [markdown]
# A thousandth at the paper's size, which $\gamma$ can learn away. Rows far smaller than 0.001 are treated quite
# differently. Each way trains; what fails is to use the weights of one program in the other, or to compare the two
# digit by digit.
#
# ## Forward: dropout
#
# Why divide by $1 - P$? The sum of many numbers should be the same on average with dropout as without, because at
# inference nothing is dropped and nothing is scaled. Ten thousand masks on one row:

# %%
P = 0.25
row = random.normal(2, 1, 6)
dropped = dropout(row, random.random((10_000, 6)) >= P, P)
measure("share of zeros", (dropped == 0).mean(), 0.24, 0.26)
measure("mean of the row's sum over its value without dropout", dropped.sum(axis=1).mean() / row.sum(), 0.98, 1.02)
measure("the same if nothing is divided", (dropped * (1 - P)).sum(axis=1).mean() / row.sum(), 0.73, 0.77)
measure("mean square over its value without dropout: 1 / (1 - P)", (dropped**2).mean() / (row**2).mean(), 1.28, 1.38)

# %% [markdown]
# The average is kept. The mean square is not, and we come back to that.
#
# The library computes a mask from a **key**: seed, step, and place in the model. No generator remembers anything. The
# same key draws the same mask, so a check may call forward twice; another place, `key.child(i)`, draws another:

# %%
key = DropoutKey(seed=0, step=1)
first, again, elsewhere = (key.child(i).keep((100, 100), P) for i in (0, 0, 1))
measure("the same place twice: share of equal decisions", (first == again).mean(), 1, 1)
measure("two places; independent would be 0.75² + 0.25² = 0.625", (first == elsewhere).mean(), 0.6, 0.65)

# %% [markdown]
# ## Backward of the residual connection
#
# Follow one number of $x$ in $z = x + u$, $u = f(x)$. It goes to $z$ by two ways.
#
# - Around: $x_i$ is one of the two terms of $z_i$, with the factor 1. Back comes $dz_i$ as it is.
# - Through the sublayer: $u$ is the other term, so $du = dz$. The sublayer's own backward turns that into what $x$
#   gets from it.
#
# The ways add up. With $f'$ for the sublayer's backward:
#
# $$dx = dz + f'(dz)$$
#
# One term reaches the input of the box *whatever the sublayer is*. In a bare stack the gradient is a product,
# $f_1'(f_2'( \dots f_N'(dz)))$: if each factor halves it, twelve leave a four-thousandth. With a way around each,
# what is multiplied is 1 plus the sublayer's share; multiplied out, one term passes through no sublayer at all.
#
# ## Backward of LayerNorm
#
# First the easy end. $y_j = \gamma_j n_j + \beta_j$, and $\gamma$, $\beta$ are used in every row, so their gradients
# are sums over all rows; and each $n_j$ has one way on:
#
# $$d\beta_j = \sum_{\mathrm{rows}} dy_j \qquad d\gamma_j = \sum_{\mathrm{rows}} dy_j n_j \qquad dn_j = \gamma_j dy_j$$
#
# Now $x_i$, in one row. It reaches $n$ by three ways.
#
# **Directly.** It stands above the fraction bar of its own $n_i$: $\frac{1}{s} dn_i$.
#
# **By the mean.** If $x_i$ grows by a little, $\mu$ grows by $\frac{1}{D}$ of that, and *every* $n_j$ falls by
# $\frac{1}{D s}$ of it. Over all $j$:
#
# $$-\frac{1}{s} \cdot \frac{1}{D} \sum_j dn_j$$
#
# **By the size.** How much does $s$ grow? The derivative of $v$ is $\frac{2}{D}(x_i - \mu)$. (That $\mu$ moves as
# well adds $-\frac{2}{D} \cdot \frac{1}{D} \sum_k (x_k - \mu)$, which is 0: deviations from the mean sum to zero.)
# The root brings $\frac{1}{2s}$, so
#
# $$\frac{\partial s}{\partial x_i} = \frac{1}{2s} \cdot \frac{2}{D} (x_i - \mu) = \frac{n_i}{D}$$
#
# And if $s$ grows, every $n_j$ shrinks in proportion, by $\frac{n_j}{s}$. Over all $j$:
#
# $$-\frac{1}{s} \cdot n_i \cdot \frac{1}{D} \sum_j dn_j n_j$$
#
# Together, with "mean" for the mean over the $D$ numbers of the row:
#
# $$dx_i = \frac{1}{s} \left( dn_i - \mathrm{mean}(dn) - n_i \cdot \mathrm{mean}(dn \, n) \right)$$
#
# **In a picture.** $dn$ is an arrow in $D$ dimensions. The second term is its part along $(1, 1, \dots, 1)$, the
# third is its part along $n$, and the two directions are at right angles, since $n$ has mean 0. Both are taken out:
# moving $x$ along the first shifts the row, moving it along the second stretches it, and forward had no eye for
# either. What does not change the output gets no gradient. What is left is divided by $s$: a row of large numbers
# hears less.

# %%
def layer_norm_backward(dy, cache, gamma):
    """dy (..., D) -> dx (..., D), dgamma (D,), dbeta (D,)"""
    n, s = cache
    rows = tuple(range(dy.ndim - 1))
    dn = gamma * dy
    dx = (dn - dn.mean(axis=-1, keepdims=True) - n * (dn * n).mean(axis=-1, keepdims=True)) / s
    return dx, (dy * n).sum(axis=rows), dy.sum(axis=rows)


x = random.normal(size=(4, 6))
y, cache = layer_norm(x, gamma, beta)
dx, dgamma, dbeta = layer_norm_backward(random.normal(size=x.shape), cache, gamma)
measure("dx along (1, ..., 1), a row's largest", np.abs(dx.sum(axis=-1)).max(), 0, 1e-12)
measure("dx along n, a row's largest", np.abs((dx * cache[0]).sum(axis=-1)).max(), 0, 1e-4)

# %% [markdown]
# The first is zero to the last digit. The second is as small as $\varepsilon$ is beside the variance: with
# $\varepsilon$ in the root, a stretch does change $n$, a very little.
#
# ## Backward of dropout, and of the whole box
#
# Dropout is a product with numbers that do not depend on $x$: 0 or $\frac{1}{1 - P}$. So backward is the same
# product, with the **same** mask: what was not used gets no blame. Now the box, from its output back. The norm first,
# then the two ways:

# %%
def post_norm_backward(dy, cache, sublayer, gamma, kept, P_drop):
    """dy (..., D) -> dx (..., D), dgamma, dbeta (D,); the sublayer adds to the gradients of its own weights"""
    sublayer_cache, norm_cache = cache
    dz, dgamma, dbeta = layer_norm_backward(dy, norm_cache, gamma)
    dupdate = dropout(dz, kept, P_drop)
    return dz + sublayer.backward(dupdate, sublayer_cache), dgamma, dbeta


# %% [markdown]
# ## Check
#
# Against central differences, with a random upstream gradient, a random $\gamma$ and dropout switched on; and against
# the library, whose layer draws its own mask from the key.

# %%
def numeric_gradient(f, array, h=1e-5):
    """As in lesson 01: central differences of f() in each element of `array`."""
    gradient = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        original = array[index]
        array[index] = original + h
        above = f()
        array[index] = original - h
        gradient[index] = (above - f()) / (2 * h)
        array[index] = original
    return gradient


def relative_error(ours, truth):
    return np.abs(ours - truth).max() / np.abs(truth).max()


config = ModelConfig(d_model=6, d_ff=10, h=1, P_drop=P)
sublayer = FeedForward(6, 10, np.random.default_rng(0), "float64")
x, dy = random.normal(size=(2, 2, 3, 6))                       # (B, T, D) both
kept = key.child(1).keep(x.shape, P)
y, cache = post_norm(x, sublayer, gamma, beta, kept, P)
dx, dgamma, dbeta = post_norm_backward(dy, cache, sublayer, gamma, kept, P)


def loss():
    return (post_norm(x, sublayer, gamma, beta, kept, P)[0] * dy).sum()


for name, ours, array in ("dx", dx, x), ("dgamma", dgamma, gamma), ("dbeta", dbeta, beta):
    measure(f"{name}: worst relative error", relative_error(ours, numeric_gradient(loss, array)), 0, 1e-7)

theirs = PostNorm(sublayer, config, "float64")
theirs.norm.gamma.data[...], theirs.norm.beta.data[...] = gamma, beta
their_y, their_cache = theirs.forward(x, rng=key)
same("y: this page and the library", y, their_y)
same("dx", dx, theirs.backward(dy, their_cache))
same("dgamma", dgamma, theirs.norm.gamma.grad)
print(gradcheck(theirs, x, rng=key))

# %% [markdown]
# **Why a random $\gamma$?** In a public NumPy Transformer, $\gamma$ is multiplied in *after* the two means are taken
# out. As long as $\gamma$ is 1 everywhere the two orders agree, and 1 is where training begins. A check of the
# freshly made layer finds nothing:

# %%
def gamma_outside(dy, cache, gamma):
    return gamma * layer_norm_backward(dy, cache, np.ones_like(gamma))[0]


rows, upstream = random.normal(size=(2, 100, 64))
for spread, lo, hi in (0, 0, 1e-12), (0.05, 0.005, 0.03), (0.5, 0.05, 0.25):
    some_gamma = random.normal(1, spread, 64)
    _, cache = layer_norm(rows, some_gamma, 0)
    truth = layer_norm_backward(upstream, cache, some_gamma)[0]
    error = np.linalg.norm(gamma_outside(upstream, cache, some_gamma) - truth) / np.linalg.norm(truth)
    measure(f"gamma outside the means, gamma spread by {spread}: relative error of dx", error, lo, hi)

# %% [markdown]
# **Why with dropout on?** The same program gives its layers *one* dropout object, used after the attention and after
# the feed-forward network. The object remembers its last mask, so backward multiplies with the second mask in both
# places. With dropout off that is correct, and each part alone is correct always. Here are two of our boxes in a row:

# %%
second = FeedForward(6, 10, np.random.default_rng(1), "float64")
kept_second = key.child(2).keep(x.shape, P)
middle, cache = post_norm(x, sublayer, gamma, beta, kept, P)
_, cache_second = post_norm(middle, second, gamma, beta, kept_second, P)
dmiddle, _, _ = post_norm_backward(dy, cache_second, second, gamma, kept_second, P)
own, _, _ = post_norm_backward(dmiddle, cache, sublayer, gamma, kept, P)
last, _, _ = post_norm_backward(dmiddle, cache, sublayer, gamma, kept_second, P)


def two_boxes():
    middle, _ = post_norm(x, sublayer, gamma, beta, kept, P)
    return (post_norm(middle, second, gamma, beta, kept_second, P)[0] * dy).sum()


truth = numeric_gradient(two_boxes, x)
measure("each box with its own mask: worst relative error", relative_error(own, truth), 0, 1e-7)
measure("both with the last mask", relative_error(last, truth), 0.03, 1)

# %% [markdown]
# ## Experiment 1: which part does what
#
# Five ways to stack the same sublayers. The two in the middle are the controls: if the norm alone, or the way around
# alone, did all the work, we should see it here. Before you read on: which of the five will not learn?

# %%
class Block(Layer):
    """One sublayer, stacked in one of five WAYS."""

    def __init__(self, way, sublayer, d_model, dtype="float32"):
        self.way, self.sublayer, self.norm = way, sublayer, LayerNorm(d_model, dtype)

    def forward(self, x, rng=None):
        read, norm_cache = self.norm.forward(x) if self.way == "pre-LN" else (x, None)
        y, sublayer_cache = self.sublayer.forward(read)
        if self.way in ("residual only", "post-LN", "pre-LN"):
            y = x + y
        if self.way in ("norm only", "post-LN"):
            y, norm_cache = self.norm.forward(y)
        return y, (sublayer_cache, norm_cache)

    def backward(self, dy, cache):
        sublayer_cache, norm_cache = cache
        if self.way in ("norm only", "post-LN"):
            dy = self.norm.backward(dy, norm_cache)
        dx = self.sublayer.backward(dy, sublayer_cache)
        if self.way == "pre-LN":
            dx = self.norm.backward(dx, norm_cache)
        return dx + dy if self.way in ("residual only", "post-LN", "pre-LN") else dx


def stack(way, sublayers, d_model, dtype="float32"):
    """Pre-LN has one more norm at the end, since nothing else bounds the sum that leaves the last block."""
    blocks = [Block(way, sublayer, d_model, dtype) for sublayer in sublayers]
    return blocks + [LayerNorm(d_model, dtype)] * (way == "pre-LN")


STYLES = {"bare": ("#888888", ":"), "norm only": ("black", (0, (1, 1, 4, 1))), "residual only": (LIGHT, "-."),
          "post-LN": (DARK, "-"), "pre-LN": (ACCENT, "--")}
for way in STYLES:
    one = Block(way, FeedForward(6, 10, np.random.default_rng(0), "float64"), 6, "float64")
    measure(f"gradcheck, {way}: worst error", gradcheck(one, x).worst.error, 0, 1e-6)

BANDS = {"norm only": (0.08, 0.4), "residual only": (0.45, 0.72), "post-LN": (0.5, 0.78), "pre-LN": (0.55, 0.8)}
for way, (lo, hi) in BANDS.items():
    _, on_new = best_accuracy(lambda init: stack(way, bare(12)(init), D))
    measure(f"12 sublayers, {way}, best rate: share of new sentences put right", on_new, lo, hi)

# %% [markdown]
# The way around makes this stack trainable, with or without a norm. The norm alone does not. And to be fair to the
# stack of no layers: the best of the five only comes up to it, since this task needs no depth.
#
# Why? A stack of real encoder layers now, self-attention and feed-forward in turn, at its initial weights. The output
# is given a random gradient of length 1, and we look how much of it arrives further down.

# %%
def gradients(way, N, seed, d_model=32):
    """N encoder layers. -> length of dx before each of the 2 N sublayers, length of the gradient of the last W_2"""
    init = np.random.default_rng(seed)
    sublayers = [sublayer for _ in range(N) for sublayer in (SelfAttention(d_model, 4, init, "float64"),
                                                             FeedForward(d_model, 4 * d_model, init, "float64"))]
    chain = Chain(stack(way, sublayers, d_model, "float64"))
    _, caches = chain.forward(init.normal(size=(4, 12, d_model)))
    dy, lengths = init.normal(size=(4, 12, d_model)), []
    dy /= np.linalg.norm(dy)
    for layer, cache in zip(reversed(chain.layers), reversed(caches)):
        dy = layer.backward(dy, cache)
        lengths.append(np.linalg.norm(dy))
    return lengths[::-1][:2 * N], np.linalg.norm(sublayers[-1].outer.weight.grad)


depths, trials = (1, 2, 4, 8, 24), range(2 if QUICK else 3)
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
arrived = {}
for way, (colour, style) in STYLES.items():
    lengths = np.exp(np.mean([np.log(gradients(way, 24, seed)[0]) for seed in trials], axis=0))
    arrived[way] = lengths[0]
    left.semilogy(np.arange(1, 49), lengths, ls=style, color=colour, lw=2, label=way)
last_W_2 = {way: np.mean([[gradients(way, N, seed)[1] for N in depths] for seed in trials], axis=0)
            for way in ("post-LN", "pre-LN")}
for way, lengths in last_W_2.items():
    right.plot(depths, lengths, marker="os"[way == "pre-LN"], color=STYLES[way][0], ls=STYLES[way][1], label=way)
left.set(xlabel="sublayer, from the input; 24 layers", ylabel="length of dx", title="What arrives, of a gradient of 1")
right.set(xlabel="number of layers N", ylabel="length of the gradient", ylim=(0, None), title="The last W_2")
left.legend(fontsize=9)
right.legend(fontsize=9)
show(figure, "12_gradient_by_depth", alt="Left: length of the gradient before each of 48 sublayers, logarithmic. "
     "Bare, it falls to about 1e-11 at the input; with residuals only it climbs to about 1e7; norm only, post-LN and "
     "pre-LN stay near 1. Right: gradient of the last feed-forward matrix against depth from 1 to 24: level for "
     "post-LN, falling to about a third for pre-LN.")
BANDS = {"bare": (1e-12, 1e-8), "norm only": (0.1, 10), "residual only": (1e5, 1e10), "post-LN": (0.08, 1.2),
         "pre-LN": (0.4, 1.5)}
for way, (lo, hi) in BANDS.items():
    measure(f"24 layers, {way}: arrives at the input", arrived[way], lo, hi)
for way, lo, hi in ("post-LN", 0.8, 1.35), ("pre-LN", 0.2, 0.45):
    measure(f"{way}: gradient of the last W_2, 24 layers over 1 layer", last_W_2[way][-1] / last_W_2[way][0], lo, hi)

# %% [markdown]
# - **Bare**, the gradient is a product of 48 factors below 1, and so is the signal on the way up.
# - **Residual only**, the sum grows with every addition, and the gradient with it: by millions. The twelve sublayers
#   above were still few enough.
# - **With both**, what arrives is of the size of what was sent. What the addition made larger, the norm divides by.
# - **Norm only** has gradients of a perfect size *and does not learn*. Size is not all:

# %%
def mean_cosine(rows):
    """rows (n, D) -> the mean cosine between two different rows"""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return (np.sum(unit.sum(axis=0) ** 2) - len(rows)) / (len(rows) * (len(rows) - 1))


for way, band_y, band_dx in ("norm only", (0.88, 1), (-0.02, 0.06)), ("post-LN", (0.45, 0.8), (0.08, 0.35)):
    alike = []
    for seed in range(5):
        init = np.random.default_rng(seed)
        chain = Chain([Linear(len(vocabulary), D, init), *stack(way, bare(12)(init), D)])
        y, caches = chain.forward(x_train[:200])
        x0, upstream = chain.layers[0].forward(x_train[:200])[0], np.tile(init.normal(size=D), (200, 1))
        dx = Chain(chain.layers[1:]).backward(upstream, caches[1:])
        alike.append((mean_cosine(x0), mean_cosine(y), mean_cosine(dx)))
    before, after, back = np.mean(alike, axis=0)
    measure(f"{way}: cosine between two sentences, before 12 sublayers", before, 0.1, 0.3)
    measure(f"{way}: after them", after, *band_y)
    measure(f"{way}: all outputs get the same gradient; cosine of what arrives for two sentences", back, *band_dx)

# %% [markdown]
# Without a way around, all sentences look alike at the top, and the same wish at the top becomes an unrelated wish
# for each sentence at the bottom. A step that helps one sentence says nothing about the next. (Balduzzi et al. 2017
# call such gradients shattered.) With the way around, some of what tells the sentences apart goes through, both ways.
#
# The right half of the figure is where post-LN and pre-LN differ. In pre-LN the sum grows from block to block, and
# the norm at the very end divides by its size: the deeper the stack, the smaller the gradients of the last sublayers.
# In post-LN, each sum is normalised at once, and the gradient of the last weights does not know the depth. Xiong et
# al. (2020) derive both: constant in post-LN, and falling like $1/\sqrt{N}$ in pre-LN.
#
# ## Experiment 2: what dropout buys
#
# Five hundred sentences for 25,000 weights: that can be learnt by heart. Here is the classifier without a stack
# again, trained longer, with dropout on the 32 numbers between its two maps.

# %%
class Dropout(Layer):
    """The library's operation as a layer: drops when it gets a key, and passes everything on when not."""

    def __init__(self, P_drop):
        self.P_drop = P_drop

    def forward(self, x, rng=None):
        return ops_of(x).dropout(x, self.P_drop, rng)

    def backward(self, dy, kept):
        return ops_of(dy).dropout_backward(dy, kept, self.P_drop)


def loss_of(model, x, t):
    """Nats per sentence, without dropout."""
    return cross_entropy(model.forward(x)[0], t)[0] / len(t)


weights = ParameterStore(classifier(lambda init: [], 0).parameters()).data.size
measure("weights", weights, 25_000, 26_000)
losses = {}
for P_drop in 0, 0.1, 0.5:
    results = []
    for seed in trials:
        model = classifier(lambda init: [Dropout(P_drop)], seed)
        train(model, 0.3, seed, steps=600)
        results.append((loss_of(model, x_train, t_train), loss_of(model, x_test, t_test)))
    losses[P_drop] = np.array(results)
    on_training, on_new = losses[P_drop].mean(axis=0)
    measure(f"P_drop = {P_drop}: loss on the training sentences", on_training, 0, 0.1)
    measure(f"P_drop = {P_drop}: loss on new sentences", on_new, 0.65, 0.95)
gain = losses[0][:, 1] - losses[0.5][:, 1]
measure("no dropout minus 0.5, on new sentences: smallest of the seeds", gain.min(), 0.01, 0.15)

# %% [markdown]
# The training sentences are learnt in all three cases. On new ones dropout helps, a little at 0.1 and more at 0.5,
# with every seed. The paper reports the same on a real task: 24.6 BLEU with $P = 0$ and 25.8 with 0.1 (Table 3, row D
# and base).
#
# ## Check the claim
#
# > "Because of the factor $\frac{1}{1-P}$, the network's expected output is the same in training and at inference."
#
# That holds for a sum, as measured above. It fails at the first function that is not a straight line. ReLU of a sum,
# and the scale that LayerNorm divides by:

# %%
inputs, w = random.normal(size=(500, 64)), random.normal(size=64) / 8
masks = random.random((400, 500, 64)) >= 0.5
sums = dropout(inputs, masks, 0.5) @ w                          # (400 masks, 500 rows)
without = inputs @ w
measure("mean of a sum, largest deviation over 500 rows", np.abs(sums.mean(axis=0) - without).max(), 0, 0.4)
ratio = np.maximum(sums, 0).mean() / np.maximum(without, 0).mean()
measure("mean of its ReLU, over the value without dropout", ratio, 1.25, 1.55)
x, update = random.normal(size=(2, 2000, 64))
kept = random.random(update.shape) >= 0.1
variance = (x + dropout(update, kept, 0.1)).var(axis=-1).mean() / (x + update).var(axis=-1).mean()
measure("variance of x + dropout(update), P = 0.1, over the same without dropout", variance, 1.03, 1.08)

# %% [markdown]
# With $P = 0.5$, ReLU's mean is far larger in training than at inference. At the paper's 0.1, the variance that
# LayerNorm sees differs by about 5 per cent: $(1 + \frac{1}{0.9}) / 2 = 1.056$. The factor makes the mismatch small,
# not zero.
#
# > "The residual connections give the gradient an unhindered way from the loss to the first layer."
#
# True within the stack of pre-LN. In the paper's post-LN every way passes one LayerNorm per sublayer, which takes two
# directions out and divides. In the figure a good part still arrives at the input, through 48 of them: measured, and
# not for the reason given.
#
# ## Paper and code
#
# - Residual connections and LayerNorm: §3.1, `LayerNorm(x + Sublayer(x))`. Dropout: §5.4, on each sublayer's output
#   and on the sum of embeddings and positions; $P_{drop} = 0.1$ in the base model. Row (D) of Table 3 varies it.
# - In the library: `layer_norm`, `dropout`, `add_norm` with their backwards in
#   [nn/ops.py](../scratchformer/nn/ops.py); `LayerNorm` and `AddNorm` in
#   [nn/layers.py](../scratchformer/nn/layers.py), `PostNorm` and `PreNorm` in
#   [nn/transformer.py](../scratchformer/nn/transformer.py); the keys in
#   [nn/dropout.py](../scratchformer/nn/dropout.py).
# - *The paper does not say:* the formula of LayerNorm, $\varepsilon$, whether the variance is biased. Here as in the
#   authors' code: biased, $10^{-6}$ inside the root. `norm="pre"` selects pre-LN, with one more LayerNorm after each
#   stack.
# - *Differs from this page:* the library adds into `dgamma` and `dbeta`. It decides on 16 random bits, so it rounds
#   $P_{drop}$ to a multiple of 1/65536 and scales by the rounded value.
# - The bugs of this page are among those that are planted to see whether the tests find them:
#   `gamma-outside-the-means`, `unbiased-variance`, `eps-outside-the-root`, `one-dropout-object-for-two-sites` in
#   [docs/correctness.md](../docs/correctness.md).
# - Sources: He et al. 2015 (arXiv 1512.03385); Ba et al. 2016 (1607.06450); Srivastava et al. 2014 (JMLR 15);
#   Balduzzi et al. 2017 (1702.08591); Xiong et al. 2020 (2002.04745).
#
# ## Exercises
#
# **Predict.** A LayerNorm over rows of *two* numbers, $\varepsilon = 0$. What is $dx$?
#
# <details><summary>Answer</summary>
#
# Zero. Two directions are taken out, and there are only two. Forward says the same: $n$ is $(1, -1)$ or $(-1, 1)$,
# and no small change of $x$ changes that.
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
# `scratchformer learn start` puts them into `exercises/`, `scratchformer learn check 12` looks at your answers.
#
# ## Next
#
# The answer to the question, in one sentence: the way around lets signal and gradient past sublayers that have not
# learnt anything yet, the norm keeps the growing sum at one size, and dropout makes what is learnt hold better for
# sentences that were not seen.
#
# You have every part of a layer of the Transformer, and the box that holds it. Lesson 13 puts them together: encoder,
# decoder, and the gradient that goes through all of it.
