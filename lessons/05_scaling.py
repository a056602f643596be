# %% [markdown]
# # 05 · Why attention divides by the square root of d_k
#
# *About 25 minutes. You need: [lesson 01](01_backprop.py) (gradients, softmax) and [lesson 04](04_soft_lookup.py)
# (queries, keys, values, and the backward pass). You will have: a second derivation of the backward pass of softmax,
# which shows when it passes nothing back, and a measured answer to what the factor in equation 1 is for.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library.lesson import measure, recorded, same, show
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.nn.attention import ScaledDotProductAttention
from scratchformer.nn.ops import ops_of


# %%
def softmax(z):
    """z (..., S) -> weights (..., S), each row positive and of sum 1"""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# %% [markdown]
# ## Question
#
# **Equation 1 divides the scores by $\sqrt{d_k}$. What breaks without it, and why the root?**
#
# The task below has one right answer and nothing in its way. There are 32 keys, random vectors of $d_k$ numbers, and
# a query. The query is to learn to put its weight on one given key: gradient descent may change the query freely, to
# make the weight of that key as large as it can be. Twenty-four such queries learn, each with keys of its own, at six
# learning rates that span five powers of ten. (`dscores` and the line after it are those of lesson 04.)

# %%
RATES = [0.01, 0.1, 1, 10, 100, 1000]


def learn_to_look(d_k, factor, rate, steps=120, n=24, S=32):
    """How much weight the n queries put on their keys in the end, on average: 0 to 1."""
    random = np.random.default_rng(0)
    q, keys, wanted = random.normal(size=(n, 1, d_k)), random.normal(size=(n, S, d_k)), random.integers(0, S, n)
    dweights = np.zeros((n, 1, S))
    dweights[np.arange(n), 0, wanted] = -1                     # minus the wanted weight is what we minimise
    for _ in range(steps):
        weights = softmax(factor * q @ keys.swapaxes(1, 2))    # (n, 1, S)
        dscores = factor * weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
        q -= rate * dscores @ keys
    return -(dweights * softmax(factor * q @ keys.swapaxes(1, 2))).sum() / n


print("weight on the key       " + "".join(f"{f'rate {rate:g}':>10}" for rate in RATES))
best = {}
for d_k in 4, 64, 512:
    for name, factor in ("no factor", 1), ("1/sqrt(d_k)", 1 / math.sqrt(d_k)):
        reached = [learn_to_look(d_k, factor, rate) for rate in RATES]
        best[name, d_k] = max(reached)
        print(f"d_k = {d_k:3}, {name:13}" + "".join(f"{weight:10.2f}" for weight in reached))
for d_k, lo, hi in (64, 0.25, 0.75), (512, 0, 0.3):
    measure(f"d_k = {d_k:3}, no factor:   best of the six", best["no factor", d_k], lo, hi)
    measure(f"d_k = {d_k:3}, 1/sqrt(d_k): best of the six", best["1/sqrt(d_k)", d_k], 0.95, 1)
measure("d_k =   4: best without factor less best with", best["no factor", 4] - best["1/sqrt(d_k)", 4], -0.2, 0.2)

# %% [markdown]
# With the factor and enough dimensions every query finds its key. Without it, more dimensions make it worse, although
# they give the query more freedom, and at $d_k = 512$ **none of the six rates helps**. (At $d_k = 4$ the factor makes
# little difference, and neither does well: of 32 points in so few dimensions, many are the largest for no query at
# all.)
#
# ## The idea in one picture
#
# The more numbers go into a dot product, the larger it becomes; and softmax of large numbers is all or nothing.

# %% The figure
random = np.random.default_rng(3)
FACTORS = {"q·k": lambda d_k: 1.0, "q·k / √d_k": lambda d_k: 1 / math.sqrt(d_k), "q·k / d_k": lambda d_k: 1 / d_k}
figure, axes = plt.subplots(3, 3, figsize=(8, 5), sharex=True, sharey=True, layout="constrained")
for row, d_k in zip(axes, (4, 64, 1024)):
    scores = random.normal(size=(32, d_k)) @ random.normal(size=d_k)
    for panel, (name, factor) in zip(row, FACTORS.items()):
        weights = np.sort(softmax(scores * factor(d_k)))[::-1]
        panel.bar(np.arange(1, 33), weights, color=DARK)
        panel.text(32, 0.85, f"largest {weights[0]:.2f}", ha="right")
    row[0].set_ylabel(f"d_k = {d_k}\nweight")
for panel, name in zip(axes[0], FACTORS):
    panel.set_title(name)
for panel in axes[2]:
    panel.set_xlabel("keys, by weight")
show(figure, "05_saturation", alt="Nine bar charts of attention weights over 32 random keys. Without a factor, one key "
     "takes nearly all the weight as d_k grows from 4 to 1024. Divided by the root of d_k the bars look alike in all "
     "three rows. Divided by d_k they become flat.")

# %% [markdown]
# The left column collapses as $d_k$ grows, the right one goes flat, and the middle one stays as it is. A factor that
# keeps the distribution of the scores the same whatever the size of the head: that is what was wanted.
#
# ## The equation, and the same in code
#
# Equation 1 of the paper, with the factor that this lesson is about:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V$$
#
# Why the root? Footnote 4 of the paper argues with variances. Let the components of $q$ and $k$ be independent, with
# mean 0 and variance 1. One product $q_i k_i$ has mean 0, and its variance is $E[q_i^2] \cdot E[k_i^2] = 1$. The
# score is a sum of $d_k$ such products, and variances of independent terms add:
#
# $$\mathrm{Var}(q \cdot k) = \sum_{i=1}^{d_k} \mathrm{Var}(q_i k_i) = d_k$$
#
# So a typical score has the size of its standard deviation, $\sqrt{d_k}$. Dividing by that brings it back to 1.

# %%
for d_k in 4, 64, 1024:
    q, k = random.normal(size=(2, 20_000, d_k))
    measure(f"d_k = {d_k:4}: variance of q·k, over d_k", (q * k).sum(axis=1).var() / d_k, 0.95, 1.05)

# %% [markdown]
# ## Forward
#
# With the sizes of the paper's base model, $d_k = 64$: how far is the largest of 32 scores ahead of the second?
# Softmax turns a difference of scores into a ratio of weights, $e^{z_1 - z_2}$.

# %%
def scaled_attention_weights(q, k):
    """q (T, d_k), k (S, d_k) -> weights (T, S)"""
    scores = q @ k.T                                           # (T, S)
    return softmax(scores / math.sqrt(q.shape[-1]))


q, k = random.normal(size=(500, 64)), random.normal(size=(32, 64))
second, first = np.sort(q @ k.T, axis=1)[:, -2:].T
gap = measure("lead of the largest score over the second, on average", (first - second).mean(), 2.5, 4.5)
measure("e to the minus that: weight of the second over the first", math.exp(-gap), 0.01, 0.08)
measure("the same with the factor", math.exp(-gap / 8), 0.55, 0.75)

# %% [markdown]
# Without the factor, one key typically takes nearly everything before anything has been learnt. With it, the second
# key gets about two thirds of what the first one gets.
#
# ## Backward of softmax
#
# Now what does that do to the gradient? Lesson 04 derived it by way of the logarithm. Here it is once more from the
# fraction itself, which shows by what routes it comes. Let $w = \mathrm{softmax}(z)$ be the weights of one query, and
# suppose that we have $dw_s$, one number for each key. We want $dz_r$. The score $z_r$ reaches **every** weight $w_s$:
# its own through the numerator, and all of them through the common sum.
#
# $$w_s = \frac{e^{z_s}}{\sum_u e^{z_u}}$$
#
# - Through the sum: per unit of $z_r$, the sum grows by $e^{z_r}$. That is a share $w_r$ of it, so every $w_s$ shrinks
#   by the share $w_r$ of itself. This route contributes $-w_s w_r$ to $\frac{\partial w_s}{\partial z_r}$.
# - Through the numerator, only if $s = r$: it contributes $w_r$.
#
# Together, with $[s = r]$ for 1 if they are the same key and 0 otherwise:
# $\frac{\partial w_s}{\partial z_r} = w_s ([s = r] - w_r)$, as in lesson 04.
#
# The chain rule adds up the ways from $z_r$ to the loss, over all $s$:
#
# $$dz_r = w_r dw_r - \sum_s dw_s w_s w_r = w_r \left( dw_r - \sum_s w_s dw_s \right)$$
#
# Read the bracket: $\sum_s w_s dw_s$ is the average of the $dw_s$, weighted by the attention itself. Descent lowers a
# score whose $dw_r$ is above the average, since reading more of that key would raise the loss more than reading more
# of the average key; and it raises a score whose $dw_r$ is below. The weight in front says by how much. **A key with
# weight 0 gets gradient 0**, however much the loss would like it; and where one key has weight 1, it *is* the
# average, and its bracket is 0 as well. A saturated softmax passes nothing back.
#
# Last, $z$ was the score times a factor $c$, so the gradient of the score is $c \, dz$.

# %%
def softmax_backward(dweights, weights, factor):
    """dweights, weights (..., S) -> dscores (..., S)"""
    average = (weights * dweights).sum(axis=-1, keepdims=True)
    return factor * weights * (dweights - average)


# %% [markdown]
# ## Check
#
# Against central differences (`numeric_gradient` is that of lesson 01), with a random upstream gradient; and against
# the library's operation.

# %%
T, S, d_k = 3, 5, 7
factor = 1 / math.sqrt(d_k)
scores, upstream = random.normal(size=(T, S)), random.normal(size=(T, S))

numeric = numeric_gradient(lambda scores: (softmax(factor * scores) * upstream).sum(), scores)
dscores = softmax_backward(upstream, softmax(factor * scores), factor)
error = np.abs(dscores - numeric).max() / np.abs(numeric).max()
measure("worst error, relative to the largest element", error, 0, 1e-8)
ops = ops_of(scores)
same("weights: this page and the library", softmax(factor * scores)[None, None],
     ops.masked_softmax(scores[None, None], factor, None, False))
same("dscores: this page and the library", dscores,
     ops.masked_softmax_backward(upstream, softmax(factor * scores), factor))

# %% [markdown]
# Why *random*? Some published checks take the sum of the output as the loss, an upstream gradient of ones. But the
# weights of a row always sum to 1, so the true gradient of that sum is zero, and a backward that returns zeros
# passes:

# %%
ones = np.ones((T, S))
true = numeric_gradient(lambda scores: (softmax(factor * scores) * ones).sum(), scores)
measure("upstream of ones: largest true gradient", np.abs(true).max(), 0, 1e-9)
measure("random upstream: largest true gradient", np.abs(numeric).max(), 0.01, 1)

# %% [markdown]
# ## Experiment 1: what arrives at the scores
#
# How much of a gradient does softmax let through? The derivatives of the weights form a matrix
# $J_{sr} = w_s ([s = r] - w_r)$. Its norm says how strongly the weights react to the scaled scores. What reaches
# the scores themselves is $c J$, with the factor $c$ of each variant. Two thousand random queries for each size, 32
# keys each. The third variant is a control: if smaller scores were always better, dividing by $d_k$ would be better
# still.

# %%
def jacobian_norm(weights):
    """weights (n, S) -> (n,): the root of the sum of squares of d weights / d (scaled scores)"""
    J = weights[:, :, None] * (np.eye(weights.shape[1]) - weights[:, None, :])
    return np.sqrt((J**2).sum(axis=(1, 2)))


SIZES, largest, norms = [4, 16, 64, 256, 1024], {}, {}
for d_k in SIZES:
    scores = np.einsum("nk,nsk->ns", random.normal(size=(2000, d_k)), random.normal(size=(2000, 32, d_k)))
    for name, factor in FACTORS.items():
        weights = softmax(scores * factor(d_k))
        largest[name, d_k], norms[name, d_k] = weights.max(axis=1).mean(), jacobian_norm(weights)

print(f"{'':6}" + "".join(f"{name:^39}" for name in FACTORS))
print(f"{'d_k':6}" + "".join(f"{'largest':>9}{'median J':>10}{'median cJ':>10}{'mean cJ':>10}" for _ in FACTORS))
for d_k in SIZES:
    print(f"{d_k:<6}" + "".join(f"{largest[name, d_k]:9.2f}{np.median(norms[name, d_k]):10.1e}"
                                f"{factor(d_k) * np.median(norms[name, d_k]):10.1e}"
                                f"{factor(d_k) * norms[name, d_k].mean():10.1e}" for name, factor in FACTORS.items()))
unscaled, root = ({d_k: norms[name, d_k] for d_k in SIZES} for name in ("q·k", "q·k / √d_k"))
measure("no factor: median J, d_k 1024 over d_k 4", np.median(unscaled[1024]) / np.median(unscaled[4]), 0, 1e-2)
measure("with 1/sqrt(d_k): the same", np.median(root[1024]) / np.median(root[4]), 0.95, 1.1)
measure("d_k = 64: median cJ, no factor over 1/sqrt(d_k)", np.median(unscaled[64]) / np.median(root[64]) * 8, 3, 8)
measure("d_k = 1024: the same", np.median(unscaled[1024]) / np.median(root[1024]) * 32, 0, 0.1)
measure("d_k = 1024: the same of the means", unscaled[1024].mean() / root[1024].mean() * 32, 5, 12)
measure("with 1/d_k: largest weight at 1024 (uniform: 0.031)", largest["q·k / d_k", 1024], 0.031, 0.036)

# %% The figure
figure, panels = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
for panel, by_factor in zip(panels, (False, True)):
    for (name, factor), style, colour in zip(FACTORS.items(), ["o-", "s-", "^--"], [ACCENT, DARK, LIGHT]):
        values = [np.median(norms[name, d_k]) * (factor(d_k) if by_factor else 1) for d_k in SIZES]
        panel.loglog(SIZES, values, style, color=colour, label=name)
    panel.set(xlabel="d_k", title="of the scores (cJ)" if by_factor else "of the scaled scores (J)")
    panel.set_xticks(SIZES, [str(d_k) for d_k in SIZES])
    panel.minorticks_off()
panels[0].set_ylabel("median norm of the derivative")
panels[0].legend()
show(figure, "05_jacobian", alt="Median norm of the derivative of the weights against d_k from 4 to 1024, "
     "logarithmic, in two panels. By the scaled scores: without a factor it stays near 0.3 up to 16, then falls by "
     "more than three powers of ten; with either factor it is flat. By the scores: all three fall, and the one "
     "without a factor is the highest up to 64, level with the root at 256, and the lowest at 1024.")

# %% [markdown]
# Four things to see, and only the first is in most explanations:
#
# 1. Without the factor, softmax's own derivative $J$ collapses for the typical query. With the root it does not
#    depend on $d_k$.
# 2. But the scores are larger without the factor, so what reaches them, $cJ$, is *not* smaller at 64: it is several
#    times larger. At 256 the two are level; at 1024 the typical query gets a seventieth. The paper is careful here:
#    it suspects trouble "for large values of $d_k$".
# 3. The mean hides it. A few undecided queries, whose two best keys are close, get so much that the *mean* of $cJ$
#    stays higher without the factor at every size.
# 4. Division by $d_k$ keeps the derivative alive as well. What it loses at first is the *choice*: all keys get nearly
#    the same weight, whatever the query.
#
# Can the task of the opening be learnt with $1/d_k$? One step of gradient descent moves $q$ by at most about rate ·
# $c$ times a key, and hence that key's scaled score by rate · $c^2 |k|^2$, which is rate · $c^2 d_k$. With the root
# that is the rate itself, whatever $d_k$. With $1/d_k$ it is rate$/d_k$, so the rate must be $d_k$ times as large:

# %%
for rate, lo, hi in (1, 0, 0.1), (512, 0.9, 1):
    measure(f"d_k = 512, 1/d_k, rate {rate:3}: weight on the wanted key", learn_to_look(512, 1 / 512, rate), lo, hi)

# %% [markdown]
# That is a good answer to "why the root?": with it, in this task and with gradient descent, one learning rate serves
# heads of every size. The scores start at a useful size, and steps move them by a useful length. Those are two
# different things, and the next experiment takes them apart; its optimiser is another one, and there the answer is
# not quite so neat.
#
# ## Experiment 2: does it matter to a model that learns?
#
# Random vectors are one thing, a trained model is another: it can make its queries and keys as small as it needs. So
# small Transformers were trained on the bundled corpus (300 steps, three seeds), with $d_k = 128$ and with
# $d_k = 16$. In such a model queries and keys are products, $q = x W_Q$ and $k = x W_K$, and what is trained are the
# matrices. The factor $c$ is 1, or $1/\sqrt{d_k}$ as in the paper, or $1/d_k$.
#
# A factor does two things: it says how large the scores are at the *start*, and how far a *step* in $W_Q$ and $W_K$
# moves them. To take the two apart, three more variants have no factor, but $W_Q$ and $W_K$ that begin $d_k^{1/4}$
# times smaller; or steps of theirs that are $d_k^{1/4}$ times smaller; or both. The optimiser, Adam, takes steps
# whose length hardly depends on the size of the gradient, so a matrix that is everywhere smaller by a factor, start
# and steps, makes a query that is smaller by that factor, always. With *both*, each score is then smaller by
# $d_k^{1/4} \cdot d_k^{1/4} = \sqrt{d_k}$: it is the paper's model in other units. A last variant has the paper's
# factor and the smaller steps.
#
# Before you open the table: which of the seven ends lowest? And if a saturated start is the whole trouble, which two
# must do as well as the paper's?

# %% The table
result = recorded("attention_scaling")
rows = {(row["d_k"], row["variant"]): row for row in result["results"]}


def mean_over_attentions(row, when, what):
    """Mean over seeds and attention layers of what was looked at before the first step or after the last."""
    return np.mean([np.mean(list(run[when][what].values())) for run in row["runs"]])


def query_key_share(row):
    """Length of the gradient of all W_Q and W_K over the length of the whole gradient, at the first step."""
    return np.mean([run["start"]["query_key_share"] for run in row["runs"]])


print("validation loss in nats per token, mean (lowest..highest); spread of a query's scaled scores, before and\n"
      "after; length of the gradient of W_Q and W_K, over that of the whole, before\n")
print(f"{'':43}{'loss':>6} {'(range)':12}{'before':>8}{'after':>7}{'share':>7}")
for (d_k, variant), row in rows.items():
    final = row["final_loss"]
    print(f"d_k {d_k:3}, factor {variant:27}{final['mean']:6.2f} ({final['lowest']:.2f}..{final['highest']:.2f})"
          f"{mean_over_attentions(row, 'start', 'score_std'):8.2f}{mean_over_attentions(row, 'end', 'score_std'):7.1f}"
          f"{query_key_share(row):7.2f}")

# %%
def loss(variant, which, d_k=128):
    return rows[d_k, variant]["final_loss"][which]


PAPER, PAPER_SMALL_STEPS = "1/sqrt(d_k)", "1/sqrt(d_k), smaller steps"
early = [abs(dict(a["curve"])[25] - dict(b["curve"])[25]) for a, b in
         zip(rows[128, PAPER]["runs"], rows[128, "1, both smaller"]["runs"])]
measure("both smaller: difference from the paper's after 25 steps, nats", max(early), 0, 0.02)
for variant, lo, hi in ("1", 1, 2.5), ("1, smaller start", 0.8, 2.5), ("1, smaller steps", 0.8, 2.5):
    measure(f"{variant}: lowest, less the paper's highest", loss(variant, "lowest") - loss(PAPER, "highest"), lo, hi)
measure("1/d_k: highest, less the paper's lowest", loss("1/d_k", "highest") - loss(PAPER, "lowest"), -1, -0.1)
measure("1/d_k: mean, less that of the paper's factor with smaller steps",
        loss("1/d_k", "mean") - loss(PAPER_SMALL_STEPS, "mean"), -0.1, 0.1)
measure("gradient of W_Q and W_K at the start: no factor over the paper's",
        query_key_share(rows[128, "1"]) / query_key_share(rows[128, PAPER]), 5, 10)

# %% The figure
figure, panels = plt.subplots(1, 2, figsize=(8, 4), sharey=True, layout="constrained")
looks = {"1": ("-", ACCENT), "1, smaller start": ("--", ACCENT), "1, smaller steps": (":", ACCENT),
         PAPER: ("-", DARK), PAPER_SMALL_STEPS: (":", DARK), "1/d_k": ("-", LIGHT)}
for panel, d_k in zip(panels, (16, 128)):
    for variant, (style, colour) in looks.items():
        curves = np.array([run["curve"] for run in rows[d_k, variant]["runs"]])
        panel.plot(curves[0, :, 0], curves[:, :, 1].mean(axis=0), ls=style, color=colour, lw=2, label=variant)
    panel.set(title=f"d_k = {d_k}", xlabel="step", ylim=(0, 6))
panels[0].set_ylabel("validation loss, nats per token")
panels[0].legend(title="factor", fontsize=9, loc="upper right")
show(figure, "05_trained", alt="Validation loss over 300 steps for six of the variants, mean of three seeds, in two "
     "panels. For d_k = 128 the three without a factor stay above 2.4 nats while the three with one fall to about 1. "
     "For d_k = 16 they lie closer together.")

# %% [markdown]
# - **Without a factor, training suffers**: more than a nat per token at $d_k = 128$, for every seed.
# - **Two things go wrong, and at $d_k = 128$ either is enough.** Correct the steps and keep the saturated start, or
#   correct the start and keep the long steps: both end more than a nat above the paper's model. With full steps the
#   spread of the scores grows above 100, whatever the start. Correct both, and it *is* the paper's model: the curves
#   agree until rounding has grown to something that one can see. At $d_k = 16$ each correction alone recovers a good
#   part.
# - **At the start no gradient vanishes.** The gradient of $W_Q$ and $W_K$ is a *larger* share of the whole without
#   the factor, as $cJ$ above would make one expect.
# - **The root is not the optimum here.** $1/d_k$ ends lower for every seed at $d_k = 128$. But that is no merit of
#   its exponent: its steps are smaller, and the paper's factor with smaller steps does as well. The large head gains
#   more from smaller steps than the small ones do: with Adam, even the root does not make the learning rate
#   independent of $d_k$. (This is a small model, early in its training, at one learning rate.)
#
# So the argument of variances gives a good reason to divide, and half of the story. The other half is that the factor
# is a learning rate for the scores.
#
# ## Check the claim
#
# > Large scores saturate softmax, and a saturated softmax has no gradient.
#
# In lesson 01 softmax was followed by a logarithm, and the gradient of the pair was $p - q$ (there $q$ marked the
# right class): as far from zero as the answer was wrong, saturated or not. Inside attention no logarithm follows, and
# the weight $w_r$ stays in front. Here are both ways to train the queries of the opening, without any factor: once on
# the weight itself, once on its logarithm.

# %%
def learn_with_log(d_k, rate, steps=120, n=24, S=32):
    """As learn_to_look without a factor, but what is minimised is minus the logarithm of the wanted weight."""
    random = np.random.default_rng(0)
    q, keys, wanted = random.normal(size=(n, 1, d_k)), random.normal(size=(n, S, d_k)), random.integers(0, S, n)
    target = np.eye(S)[wanted][:, None]                        # (n, 1, S)
    for _ in range(steps):
        dscores = softmax(q @ keys.swapaxes(1, 2)) - target
        q -= rate * dscores @ keys
    return (target * softmax(q @ keys.swapaxes(1, 2))).sum() / n


measure("d_k = 512, no factor, on the weight: best of the six rates", best["no factor", 512], 0, 0.3)
measure("d_k = 512, no factor, on its logarithm: rate 0.1", learn_with_log(512, 0.1), 0.95, 1)

# %% [markdown]
# So "large scores kill the gradient" is a statement about softmax *in the middle* of a network. The same large scores
# do no harm at its end, under the logarithm of the loss.
#
# > Divide by the square root of the model's dimension.
#
# A published implementation does: $\sqrt{d_{model}}$ instead of $\sqrt{d_k}$. With 8 heads the scores come out
# $\sqrt 8$ times too small. No gradient check objects, since backward belongs to this forward. In numbers, at the
# sizes of the base model:

# %%
q, keys = random.normal(size=(500, 64)), random.normal(size=(32, 64))
for name, divisor, lo, hi in ("sqrt(d_k) = 8", 8, 0.14, 0.19), ("sqrt(d_model) = 22.6", math.sqrt(512), 0.05, 0.08):
    measure(f"divided by {name}: largest of 32 weights", softmax(q @ keys.T / divisor).max(axis=1).mean(), lo, hi)

# %% [markdown]
# ## Paper and code
#
# - Equation 1 and footnote 4, §3.2.1. The paper does not measure the effect; it says what it suspects, and cites
#   Britz et al. (2017), who found that for large $d_k$ attention with another kind of score does better than dot
#   products without a factor.
# - In the library: `masked_softmax` and its backward in [nn/ops.py](../scratchformer/nn/ops.py) take the factor as
#   `scale`; `ScaledDotProductAttention` in [nn/attention.py](../scratchformer/nn/attention.py) gives them
#   `1 / math.sqrt(d_k)`.
# - *Differs from this page:* there, scores have a batch and a head axis, and a mask. The factor is a Python float on
#   purpose: `np.sqrt(64)` is a float64 scalar, and in NumPy 2 it would turn a float32 model into a float64 one.
#
# The whole layer, with what stands on this page inside:

# %%
q, k, v = (random.normal(size=shape) for shape in ((2, T, 1, 7), (2, S, 1, 7), (2, S, 1, 4)))   # (B, T or S, H, .)
y, _ = ScaledDotProductAttention().forward(q, k, v)
for b in range(2):
    weights = scaled_attention_weights(q[b, :, 0], k[b, :, 0])
    same(f"sentence {b}: softmax(Q K^T / sqrt(d_k)) V", weights @ v[b, :, 0], y[b, :, 0])

# %% [markdown]
# ## Exercises
#
# **Predict.** All keys are the same vector. What are the weights, and what is `dscores`?
#
# <details><summary>Answer</summary>
#
# The scores are equal, so each of $S$ keys gets $1/S$. The gradient is *not* zero: the values may differ, and
# `dscores` is $c (dw_r - \mathrm{mean}(dw)) / S$. But the gradient of the query is zero, as no query can prefer one
# of equal keys.
#
# </details>
#
# **Predict.** You add 100 to every score of a query. What happens to the weights and to the gradient?
#
# <details><summary>Answer</summary>
#
# Nothing, to both: $e^{100}$ is a factor of numerator and sum. For the same reason the bias of the keys has an
# exactly zero gradient in this model: it adds the same number to all scores of a query. A gradient check that demands
# a small *relative* error of it cries wolf.
#
# </details>
#
# **Backward** `05_softmax_backward`: from `dweights` to `dscores`, the factor included.
#
# **Build** `05_scaling`: scaled scores of several heads at once.
#
# **Break** `05_all_ones`: write a backward that is wrong, not zero, and that a check with an upstream gradient of
# ones accepts.
#
# ## Next
#
# Every query of this page may look at every key. [Lesson 06](06_masks.py) takes that away where it must be taken
# away: from padding, and from the future.
