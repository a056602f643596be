# %% [markdown]
# # 12 · Residual connections, LayerNorm and dropout
#
# **Why does every sublayer of the paper stand in a box "Add & Norm"?**
#
# *Needs [lesson 01](01_backprop.py) (chain rule, numeric check), [lesson 04](04_soft_lookup.py) (attention) and
# [lesson 11](11_feed_forward.py) (feed-forward network) · you will compute LayerNorm and its gradient with pencil and
# paper.*

# %% Imports
import matplotlib.pyplot as plt
import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import FeedForward
from scratchformer.nn.residual import PostNorm
from support.drawing import Drawing
from support.lesson import QUICK, measure, recorded, same, show, table
from support.numeric import numeric_gradient
from support.stacks import Passage

# %% [markdown]
# Take the sentences of lesson 01, as bags of words, each with one of 22 constructions to find. One linear map learns
# that well. Now put feed-forward networks (lesson 11) between the words and the scores, one after the other. We call
# each of them a **sublayer**, because a layer of the paper's model is made of two or three of them. The task hasn't
# become harder, since the stack could simply pass on what it reads. All of them are trained for 400 steps of plain
# gradient descent, at the best of several learning rates. (The result is recorded, and so are the others of this page
# that take minutes.)

# %% The shares of new sentences
result = recorded("stacks")
RESULTS = {(row["way"], row["depth"]): row for row in result["results"]}


def curves_of(way, depth):
    """At the best rate. -> steps (n,), share of new sentences put right (seeds, n)"""
    row = RESULTS[way, depth]
    [runs] = [entry["runs"] for entry in row["rates"]
              if entry["rate"] == row["best_rate"]]
    curves = np.array([run["curve"] for run in runs])       # (seeds, n, 3)
    return curves[0, :, 0], curves[:, :, 1]


def reached(way, depth):
    return curves_of(way, depth)[1][:, -1].mean()


table(["between words and scores", "new sentences put right"],
      [["nothing", f"{reached('no stack', 0):.2f}"],
       ["12 sublayers, bare", f"{reached('bare', 12):.2f}"],
       ["(always the most common construction)", "0.12"]])

# %% [markdown]
# With nothing in between, three of four new sentences are put right. Through twelve sublayers it is not even one in
# four. Gradient descent doesn't find out how to pass something on. And the paper's model has thirty sublayers: two in
# each of six encoder layers, three in each of six decoder layers.
#
# ## The picture
#
# The way out is not to ask a sublayer to pass on what it reads. Carry it *around* the sublayer, and let the sublayer
# **add** what it has to say. This is the **residual connection** (He et al. 2015). But adding makes numbers grow, so
# somewhere they must be brought back to one size. That is what **layer normalization** does, LayerNorm for short (Ba
# et al. 2016). It can stand in two places:

# %% Drawing a road with side streets
def road(drawing, y, way, words):
    """Three sublayers as side streets of one road."""
    drawing.text(14, y - 10, way, anchor="start", bold=True)
    drawing.text(14, y + 11, words, "soft", 13, "start")
    drawing.line([(118, y), (772, y)], "forward", 5)
    drawing.polygon([(786, y), (770, y - 9), (770, y + 9)], "forward")
    first = way == "pre-LN"
    for i, name in enumerate(("attention", "feed-forward", "attention")):
        x = 135 + 195 * i                                   # here a side street begins
        box = drawing.box(x + (97 if first else 67), y + 62, name, width=96, height=32,
                          size=14)
        plus = (x + (163 if first else 133), y)
        drawing.line([(x, y), (x, y + 62), box.left], "soft")
        drawing.line([box.right, (plus[0], y + 62)], "soft")
        drawing.arrow((plus[0], y + 62), (plus[0], y + 12))
        drawing.circle(*plus, 10, "paper", 1)
        drawing.circle(*plus, 10, "forward", words="+")
        norm(drawing, *((x + 26, y + 62) if first else (x + 164, y)))
    if first:
        norm(drawing, 735, y)


def norm(drawing, x, y):
    drawing.rectangle(x, y, 42, 28, "paper", 1)
    drawing.box(x, y, "norm", "plain", 42, 28, 13)


picture = Drawing(800, 250)
road(picture, 45, "post-LN", "the paper")
road(picture, 165, "pre-LN", "later models")
show(picture, "12_road",
     alt="Two roads from left to right, each with three side streets: attention, "
     "feed-forward, attention. What a side street brings is added to the road at a "
     "plus sign. Above, post-LN: a norm stands on the road after every plus. Below, "
     "pre-LN: the norm stands at the entrance of each side street, and only one norm "
     "stands on the road, at its end.",
     caption="The way around is a road, and the sublayers are its side streets. In the "
     "paper (post-LN) everything on the road passes a norm after each addition. In "
     "pre-LN the road is free, and only what enters a side street is normalized.")

# %% [markdown]
# **The paper is post-LN** (§3.1 and its Figure 1): it normalizes the sum, and that is what the next sublayer reads.
# **Pre-LN** normalizes what the sublayer reads, and leaves the road alone. The authors' own public code changed to
# pre-LN four months after the paper. This lesson builds the paper's box and measures both.
#
# With $f$ for the sublayer, $u$ for its update and $z$ for the sum, the paper's box is (§3.1 and §5.4)
#
# $$u = f(x) \qquad z = x + \mathrm{dropout}(u) \qquad y = \mathrm{LayerNorm}(z)$$
#
# ## LayerNorm by hand
#
# Take the vector of one word, $z = (1, 1, 5, 5)$. Its mean is 3. Subtract it: (−2, −2, 2, 2). Now divide by the size
# of these numbers, the root of the mean of their squares, which is 2: **(−1, −1, 1, 1)**. That's all. The mean is now
# 0 and the variance 1.
#
# Two things about the vector are lost: its mean and its size. (10, 10, 50, 50) has the same result, and so has (101,
# 101, 105, 105).

# %% Drawing LayerNorm
Z, DN = np.array([1.0, 1, 5, 5]), np.array([1.0, 0, 0, 0])
C, S = Z - Z.mean(), 2.0                                    # deviations, their size
N = C / S
DC = (DN - N * (DN * N).mean()) / S
DZ = DC - DC.mean()


def norm_picture(backward):
    """Figures 2 and 3: one row, without and with its gradients."""
    drawing, heights = Drawing(720, 250), [40, 125, 210]
    forward, back = [], []
    for y, words, numbers, gradient in zip(heights, ("z", "z − mean", "n"), (Z, C, N),
                                           (DZ, DC, DN)):
        drawing.text(20, y, words, anchor="start", bold=True)
        forward.append(drawing.vector(200, y, numbers, cell=48))
        if backward:
            back.append(drawing.vector(440, y, gradient, "gradient", 58))
    why = ("subtract the mean: the row's position is forgotten",
           "divide by the size: the row's size is forgotten")
    for i, step in enumerate(("− 3", "÷ 2")):
        drawing.arrow(forward[i].bottom, forward[i + 1].top, label=step)
        if not backward:
            drawing.text(330, heights[i] + 42, why[i], "soft", 14, "start")
    if backward:
        drawing.text(570, 210, "arrives at n", "gradient", 14, "start", italic=True)
        for i, step in (2, "take out the part along n, ÷ 2"), (1, "take out the mean"):
            drawing.arrow(back[i].top, back[i - 1].bottom, "gradient", step, bend=-0.01)
    return drawing


show(norm_picture(backward=False), "12_norm",
     alt="One vector in three steps: z is 1, 1, 5, 5; minus its mean 3 it is minus 2, "
     "minus 2, 2, 2; divided by 2 it is n, minus 1, minus 1, 1, 1.",
     caption="LayerNorm of one vector: subtract the mean, then divide by the size.")

# %% [markdown]
# The paper gives no formula. For one row $z_1, \dots, z_D$, the vector of one position, with two learned vectors
# $\gamma$ and $\beta$:
#
# $$\mu = \frac{1}{D} \sum_j z_j \qquad \sigma^2 = \frac{1}{D} \sum_j (z_j - \mu)^2$$
#
# $$s = \sqrt{\sigma^2 + \varepsilon} \qquad n_j = \frac{z_j - \mu}{s} \qquad y_j = \gamma_j n_j + \beta_j$$
#
# Why normalize and then stretch and shift again? The mean and the size are each row's own. $\gamma$ and $\beta$ are
# the same for all rows. They can make one *column* weigh more than another, but they can't bring back the size of a
# single row. $\varepsilon = 10^{-6}$ is there for a row of equal numbers, whose variance is 0. It belongs inside the
# root, and the variance is divided by $D$ and not by $D - 1$.
#
# Each row is treated alone, so neither the batch nor the other positions have a say. (The older **batch
# normalization** takes mean and variance over the batch. There the result for a sentence depends on the other
# sentences and on the padding, and inference needs averages that were stored during training.)
#
# **Dropout**, the last part of the box, sets every number of the update to 0 with probability $P$ in training, and
# divides the others by $1 - P$:
#
# $$\mathrm{dropout}(u)_j = \frac{k_j u_j}{1 - P}, \qquad k_j = 0 \text{ with probability } P, \text{ else } 1$$
#
# At inference nothing is dropped and nothing is divided. With the division a sum of many numbers is the same on
# average in both cases. Without it, it would be $1 - P$ times as large in training.
#
# **Your turn.** Open `exercises/12_dropout.py`, write dropout forward and backward, and run `scratchformer learn
# check 12`. (Hint for backward: what was multiplied by 0 had no influence.) Our solution of the whole box, forward:

# %% Our solution
EPS = 1e-6


def layer_norm(z, gamma, beta):
    """z (..., D), gamma and beta (D,) -> y (..., D), and n (..., D), s (..., 1)"""
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


random, P = np.random.default_rng(12), 0.25
same("the row of figure 2", layer_norm(Z, 1, 0)[0], N, 1e-6)
row = random.normal(2, 1, 6)
dropped = dropout(row, random.random((10_000, 6)) >= P, P)
measure("10,000 masks: mean of the row's sum, over its value without",
        dropped.sum(axis=1).mean() / row.sum(), 0.98, 1.02)

# %% [markdown]
# ## Backward: the residual connection and dropout
#
# Follow one number $x_i$ to the sum $z = x + \mathrm{dropout}(f(x))$. It goes two ways.
#
# - **Along the road.** $x_i$ is one of the two terms of $z_i$, with the factor 1. So $dz_i$ comes back as it is.
# - **Through the side street.** The other term is the update after dropout. Dropout is a multiplication by numbers
#   that don't depend on $u$, so its backward is the same multiplication with the *same* mask: $du =
#   \mathrm{dropout}(dz)$. Then the sublayer's own backward turns $du$ into the gradient of what it read. Call it
#   $\mathrm{back}_f(du)$.
#
# Both ways add up:
#
# $$dx = dz + \mathrm{back}_f(du)$$
#
# One term reaches the input *whatever the sublayer is*. In a bare stack the gradient is handed from one
# $\mathrm{back}_f$ to the next. If each of twelve halves it, 1/4,096 is left.
#
# ## Backward: LayerNorm
#
# First with the numbers of figure 2. Suppose the gradient that arrives at $n$ is $dn = (1, 0, 0, 0)$: the loss grows
# with the first number of $n$ and doesn't care about the others. What is the gradient of the four numbers of $z = (1,
# 1, 5, 5)$? Remember what LayerNorm loses, and decide for each number: positive, negative or 0?
#
# <details><summary>Make a guess, then unfold: figure 3</summary>

# %% Drawing the way back
show(norm_picture(backward=True), "12_norm_backward",
     alt="The same drawing, with gradients beside it, read upwards: 1, 0, 0, 0 arrives "
     "at n; 0.375, minus 0.125, 0.125, 0.125 at z minus mean; 0.25, minus 0.25, 0, 0 "
     "at z.",
     caption="The way back, from below to above. What reaches z has no part in the two "
     "directions that LayerNorm ignores.")

# %% [markdown]
# The result is $dz = (0.25, -0.25, 0, 0)$. The first number should rise against the second one. The others get
# *exactly* 0 here, although they take part in mean and size.
#
# Step by step. **The size.** $n = (-1, -1, 1, 1)$ points in the direction in which a row is stretched. Stretching is
# undone by LayerNorm, so that part of $dn$ has no effect and is taken out. How large is it? The mean of $dn \cdot n$
# is −1/4, so the part is −1/4 · (−1, −1, 1, 1), and $dn$ minus that is (0.75, −0.25, 0.25, 0.25). Divide by 2 as
# forward did: (0.375, −0.125, 0.125, 0.125). **The mean.** Shifting is undone as well, so take out the mean, 0.125:
# (0.25, −0.25, 0, 0).
#
# </details>
#
# **The general rule.** $\gamma$ and $\beta$ are used in every row, so their gradients are sums over all rows. Each
# $n_j$ has one way on:
#
# $$d\beta_j = \sum_{\mathrm{rows}} dy_j \qquad d\gamma_j = \sum_{\mathrm{rows}} dy_j n_j \qquad dn_j = \gamma_j dy_j$$
#
# Now $z_i$, in one row. It reaches $n$ in three ways.
#
# **Directly.** It stands above the fraction bar of its own $n_i$: $\frac{1}{s} dn_i$.
#
# **Through the mean.** If $z_i$ grows a little, $\mu$ grows by $\frac{1}{D}$ of that, and *every* $n_j$ falls by
# $\frac{1}{D s}$ of it. Over all $j$: $-\frac{1}{s} \cdot \frac{1}{D} \sum_j dn_j$.
#
# **Through the size.** How much does $s$ grow? The derivative of $\sigma^2$ is $\frac{2}{D}(z_i - \mu)$. (That $\mu$
# moves, too, adds $-\frac{2}{D} \cdot \frac{1}{D} \sum_k (z_k - \mu)$, which is 0, since deviations from the mean sum
# to zero.) The root brings $\frac{1}{2s}$, so
#
# $$\frac{\partial s}{\partial z_i} = \frac{1}{2s} \cdot \frac{2}{D} (z_i - \mu) = \frac{n_i}{D}$$
#
# And if $s$ grows, every $n_j$ shrinks in proportion, by $\frac{n_j}{s}$. Over all $j$: $-\frac{1}{s} \cdot n_i \cdot
# \frac{1}{D} \sum_j dn_j n_j$. Together, with "mean" for the mean over the $D$ numbers of the row:
#
# $$dz_i = \frac{1}{s} \left( dn_i - \mathrm{mean}(dn) - n_i \cdot \mathrm{mean}(dn \, n) \right)$$
#
# These are the two parts of figure 3. (They can be taken out in either order, since $n$ has mean 0.) And what is left
# is divided by $s$, so a row of large numbers gets a small gradient.
#
# **Your turn.** Open `exercises/12_layer_norm_backward.py`, then `exercises/12_residual_backward.py` for the whole
# box, and run `scratchformer learn check 12`. It names a term that you forget. Our solution:

# %% Our solution
def layer_norm_backward(dy, cache, gamma):
    """dy (..., D) -> dz (..., D), dgamma (D,), dbeta (D,)"""
    n, s = cache
    rows = tuple(range(dy.ndim - 1))
    dn = gamma * dy
    mean_dn = dn.mean(axis=-1, keepdims=True)
    mean_dn_n = (dn * n).mean(axis=-1, keepdims=True)
    dz = (dn - mean_dn - n * mean_dn_n) / s
    return dz, (dy * n).sum(axis=rows), dy.sum(axis=rows)


def post_norm_backward(dy, cache, f, gamma, kept, P_drop):
    """dy (..., D) -> dx (..., D), dgamma, dbeta (D,)
    f adds to the gradients of its own weights"""
    f_cache, norm_cache = cache
    dz, dgamma, dbeta = layer_norm_backward(dy, norm_cache, gamma)
    du = dropout(dz, kept, P_drop)
    return dz + f.backward(du, f_cache), dgamma, dbeta


_, of_figure_2 = layer_norm(Z, 1, 0)
same("the gradient of figure 3", layer_norm_backward(DN, of_figure_2, 1)[0], DZ, 1e-6)
f = FeedForward(6, 10, np.random.default_rng(0), "float64")
gamma, beta = random.normal(1, 0.5, 6), random.normal(0, 0.5, 6)
key = DropoutKey(seed=0, step=1)                # the same key, the same mask each time
x, dy = random.normal(size=(2, 2, 3, 6))                                # (B, T, D) both
kept = key.child(1).keep(x.shape, P)
y, cache = post_norm(x, f, gamma, beta, kept, P)
dx, dgamma, dbeta = post_norm_backward(dy, cache, f, gamma, kept, P)


def loss(x, gamma, beta):
    return (post_norm(x, f, gamma, beta, kept, P)[0] * dy).sum()


same("dx and central differences", dx,
     numeric_gradient(lambda x: loss(x, gamma, beta), x), 1e-7)
same("dgamma", dgamma,
     numeric_gradient(lambda gamma: loss(x, gamma, beta), gamma), 1e-7)
same("dbeta", dbeta, numeric_gradient(lambda beta: loss(x, gamma, beta), beta), 1e-7)
theirs = PostNorm(f, ModelConfig(d_model=6, d_ff=10, h=1, P_drop=P), "float64")
theirs.norm.gamma.data[...], theirs.norm.beta.data[...] = gamma, beta
their_y, their_cache = theirs.forward(x, rng=key)
same("dx: this page and the library", dx, theirs.backward(dy, their_cache))

# %% [markdown]
# The check uses a random $\gamma$ and has dropout switched on, and both are needed. One public NumPy Transformer
# multiplies by $\gamma$ *after* the two means are taken out. As long as $\gamma$ is 1 everywhere, as at the start of
# training, that makes no difference, so a check of a freshly made layer finds nothing. ([Lab notes 12, experiment
# 4](lab/12_residual_norm_dropout.py#experiment-4-what-a-check-of-layernorm-must-contain))
#
# ## Does it matter?
#
# Five ways to stack the same sublayers. *Norm only* and *residual only* are the controls: if one part did all the
# work, we'd see it there.
#
# | way | what a box writes |
# |---|---|
# | bare | $f(x)$ |
# | norm only | $\mathrm{LayerNorm}(f(x))$ |
# | residual only | $x + f(x)$ |
# | post-LN, the paper | $\mathrm{LayerNorm}(x + f(x))$ |
# | pre-LN | $x + f(\mathrm{LayerNorm}(x))$, and one more LayerNorm after the last box |
#
# The task is that of the opening. All are trained for the same 400 steps, each at the best of three or four learning
# rates (the one with the lowest *training* loss), with three seeds. Which ways will learn with 12 sublayers? And with
# 48?
#
# <details><summary>Make a guess, then unfold: figure 4</summary>

# %% The learning curves
STYLES = {"bare": ("#888888", ":"), "norm only": ("black", (0, (1, 1, 4, 1))),
          "residual only": (LIGHT, "-"), "post-LN": (DARK, "-"),
          "pre-LN": (ACCENT, "--")}
figure, panels = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
for depth, axes in zip((12, 48), panels):
    for way, (colour, style) in STYLES.items():
        if (way, depth) in RESULTS:
            at, curves = curves_of(way, depth)
            axes.plot(at, curves.mean(axis=0), ls=style, color=colour, lw=2, label=way)
            axes.fill_between(at, curves.min(axis=0), curves.max(axis=0), color=colour,
                              alpha=0.15, lw=0)
    axes.axhline(0.12, color="#888888", lw=0.8)
    axes.set(title=f"{depth} sublayers", xlabel="step", ylim=(0, 0.85))
panels[0].set_ylabel("new sentences put right")
lines, names = panels[0].get_legend_handles_labels()
figure.legend(lines, names, loc="outside lower center", ncols=5)
show(figure, "12_five_ways",
     alt="Share of new sentences put right over 400 steps, two panels. With 12 "
     "sublayers bare ends near 0.24, norm only at 0.45, residual only at 0.63, post-LN "
     "and pre-LN at 0.7. With 48 sublayers norm only and residual only stay near the "
     "0.12 of always naming the most common construction, post-LN climbs slowly to "
     "0.40, pre-LN climbs to 0.71.",
     caption="New sentences put right during training (mean and range of three seeds; "
     "the grey line is always naming the most common construction). With 48 sublayers "
     "it takes both parts, and post-LN learns much more slowly than pre-LN.")
for depth, way, lo, hi in [
        (12, "norm only", 0.44, 0.46), (12, "residual only", 0.62, 0.64),
        (12, "post-LN", 0.69, 0.7), (12, "pre-LN", 0.69, 0.71),
        (48, "post-LN", 0.4, 0.41), (48, "pre-LN", 0.7, 0.72)]:
    measure(f"{depth} sublayers, {way}: after 400 steps", reached(way, depth), lo, hi)

# %% [markdown]
# - **Norm only** learns with 12 sublayers, but late, and with 48 not at all.
# - **Residual only** learns well with 12. With 48 it stays at chance level. Only tiny learning rates work at all
#   there: at 0.0001 the loss overflows.
# - **With both** parts, 12 sublayers learn nearly as well as no stack (0.75). (The task needs no depth.) With 48,
#   **pre-LN** learns as if the stack weren't there. **Post-LN** learns, too, but slowly: 0.25 after 80 steps and 0.40
#   after 400, and its loss is still falling.
#
# </details>
#
# So it takes both: the way around lets a stack begin to learn, and the norm keeps that true when the stack gets deep.
# The paper's order has a price: at equal steps the deep stack learns more slowly. (All rates and seeds are in [lab
# notes 12, experiment 1](lab/12_residual_norm_dropout.py#experiment-1-five-ways-at-equal-steps).)
#
# ## Where does the gradient go?
#
# Why do the stacks behave so differently? Let's look at one before training. Now it has 48 real sublayers,
# self-attention and feed-forward in turn. We put a random gradient of length 1 at its output and see what arrives
# further down.

# %% The gradient in 48 sublayers
SEEDS = range(4 if QUICK else 8)


def typical(quantity, way, **settings):
    """The geometric mean over the seeds."""
    found = [getattr(Passage(way, seed, **settings), quantity) for seed in SEEDS]
    return np.exp(np.log(found).mean(axis=0))


figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
arriving = {way: typical("gradients", way) for way in STYLES}
for way, (colour, style) in STYLES.items():
    axes.semilogy(np.arange(1, 49), arriving[way], ls=style, color=colour, lw=2)
for way, y, words in (("bare", 1e-7, "bare"), ("residual only", 2e5, "residual only"),
                      ("pre-LN", 20, "pre-LN, post-LN, norm only")):
    axes.text(12 if way != "residual only" else 21, y, words)
axes.set(xlabel="sublayer, from the input", ylabel="length of gradient", xlim=(0, 49))
show(figure, "12_gradient_by_depth",
     alt="Length of the gradient before each of 48 sublayers, on a logarithmic axis, "
     "from 1 at the output on the right. Bare, it falls steadily to about 1e-11 at the "
     "input on the left. With residual connections only it climbs to about 1e7. Norm "
     "only, post-LN and pre-LN stay near 1.",
     caption="A gradient of length 1 starts at the output, on the right, and travels "
     "to the input, on the left. Bare it vanishes, and with residual connections alone "
     "it explodes. With a norm it keeps its size.")
growth = typical("sizes", "residual only")[-1]
fixed = typical("gradients", "residual only", fixed_weights=True)[0]
measure("bare: length that arrives at the input", arriving["bare"][0], 1e-12, 1e-9)
measure("residual only: length that arrives", arriving["residual only"][0], 1e6, 1e8)
measure("residual only: size of the output (the input's is 1)", growth, 700, 4000)
measure("residual only: gradient, weights of attention fixed", fixed, 500, 3500)
measure("post-LN: length that arrives", arriving["post-LN"][0], 0.1, 1.2)
measure("pre-LN: length that arrives", arriving["pre-LN"][0], 0.4, 2)

# %% [markdown]
# - **Bare**, each sublayer makes the gradient a little smaller, and after 48 of them $10^{-11}$ is left.
# - **Residual only**: the gradient grows by a factor of about 8 million. Part of it is easy to explain. Every
#   addition makes the sum larger, the next sublayer reads the larger sum, and so on: the output is about 1,700 times
#   as large as the input, and a gradient on its way back grows alike. The rest comes from the scores of attention. A
#   score is a product of two vectors, and here *both* have grown. The control is in the table: if backward takes the
#   attention weights for constants, so that nothing flows back through the scores, the gradient grows about 1,300
#   times, like the sum.
# - **With both** parts, what arrives is of about the length that was sent.
# - **Norm only** keeps the length of the gradient, too, and still learns badly. So the length isn't everything.
#
# The stacks that we trained had feed-forward networks alone. In those, *residual only* makes the gradient about 770
# times as long, again about as much as the sum grows.
#
# ([Lab notes 12, experiments 2](lab/12_residual_norm_dropout.py#experiment-2-why-the-gradient-grows-without-a-norm)
# and [3](lab/12_residual_norm_dropout.py#experiment-3-what-is-left-of-the-input): stacks of one kind of sublayer, and
# what is left of the input on the way up.)
#
# ## Paper and code
#
# - Residual connections and LayerNorm: §3.1. Dropout: §5.4, on each sublayer's output and on the sum of embeddings
#   and positions, with $P_{drop} = 0.1$ in the base model. It is there for sentences that the model hasn't seen:
#   without it BLEU falls from 25.8 to 24.6 (Table 3, row D and base).
# - The paper raises the learning rate slowly over the first steps (**warm-up**). What post-LN and pre-LN do without
#   it is measured in [lab notes 15](lab/15_adam_and_warmup.py).
# - In the library: `layer_norm`, `dropout`, `add_norm` with their backwards in
#   [nn/ops.py](../scratchformer/nn/ops.py), `PostNorm` and `PreNorm` (`norm="pre"`) in
#   [nn/residual.py](../scratchformer/nn/residual.py), the keys of the masks in
#   [nn/dropout.py](../scratchformer/nn/dropout.py).
# - *Others differ:* the Annotated Transformer divides the variance by $D - 1$ and adds $\varepsilon$ outside the
#   root. That trains as well, but the weights of one program can't be used in the other.
#
# ## What to remember
#
# A residual connection carries the input around a sublayer, so the sublayer only adds what it has to say, and the
# gradient has a way past it. The sum would grow, so LayerNorm brings every row back to mean 0 and size 1. On the way
# back it takes out the two directions it ignores, the shift and the stretch, and divides by the size.
#
# **Exercises** `12_dropout` · `12_layer_norm_backward` · `12_residual_backward` · `12_repair_layer_norm` (a LayerNorm
# with five bugs; each runs, and each could train) · two puzzles:
#
# 1. A LayerNorm over rows of *two* numbers, with $\varepsilon = 0$. What is $dz$?
# 2. A program draws the mask in training, and at inference it drops nothing but still divides by $1 - P$. With $P =
#    0.1$ and a post-LN block, is the output wrong by 11 per cent?
#
# <details><summary>Answers</summary>
#
# 1. Zero. Two directions are taken out, and there are only two. Forward says the same: $n$ is $(1, -1)$ or $(-1, 1)$,
#    and no small change of $z$ changes that.
# 2. The update is 1.11 times too large. The output isn't: LayerNorm takes out the size of the sum. What is left is
#    that the update weighs 11 per cent more against $x$ than it should. This is a real bug of a public
#    implementation.
#
# </details>
#
# **Next:** [13 · The whole model](13_whole_model.py). You now have every part of a layer. The sources: [He et al.
# 2015](https://arxiv.org/abs/1512.03385), [Ba et al. 2016](https://arxiv.org/abs/1607.06450), [Srivastava et al.
# 2014](https://jmlr.org/papers/v15/srivastava14a.html) on dropout, [Xiong et al.
# 2020](https://arxiv.org/abs/2002.04745) on where the norm stands.
