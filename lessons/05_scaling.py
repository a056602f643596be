# %% [markdown]
# # 05 · Why attention divides by √d_k
#
# **What goes wrong if attention doesn't divide its scores, and why is it a square root?**
#
# *Needs [lesson 04](04_soft_lookup.py) (queries, keys, the backward pass of softmax) · you will make a gradient vanish
# with pencil and paper, and bring it back.*

# %% Imports
import itertools
import math

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library.drawing import Drawing
from library.lesson import measure, recorded, same, show, table
from library.one_key import found
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.ops import ops_of

# %% [markdown]
# Here is a task with nothing in the way. There are 32 keys, vectors of $d_k$ random numbers, and one of them is the
# right one. A query, random at first, has to learn to put its attention weight on that key. It takes 120 gradient
# steps, and each of them moves it so that the weight grows.
#
# Let 24 queries try, each with keys of its own. Count those that put more than half of their weight on the right key in
# the end. All 24 share one learning rate. We tried six, from 0.01 to 1000, and show the best one's count. The weights
# are those of lesson 04, except that we left out the division by $\sqrt{d_k}$.

# %% Twenty-four queries learn to look
SIZES = 8, 64, 512
without = {d_k: found(d_k, factor=1) for d_k in SIZES}
table(["numbers in a query", "queries that found their key"],
      [[d_k, f"{without[d_k]} of 24"] for d_k in SIZES])

# %% [markdown]
# That's odd: a query with 512 numbers has far more freedom than one with 8. What gets in its way?
#
# ## The picture
#
# First the scores get large. Then softmax turns large scores into all or nothing. So how large is a dot product? To
# keep the arithmetic easy, let every number of the query and of the key be +1 or −1, at random.


# %% Drawing the dot products
def walk_picture():
    drawing = Drawing(760, 585)
    drawing.text(610, 20, "how often each dot product comes up", "soft", 13)
    signs = {1: "+ +", 4: "+-++ +-+-", 16: "+-++-+--+-+++-+- +++-+++-+--+--+-"}
    for y, (d_k, rows) in zip((70, 235, 410), signs.items()):
        q, k = ([1 if sign == "+" else -1 for sign in row] for row in rows.split())
        products = [a * b for a, b in zip(q, k)]
        walk = [0, *itertools.accumulate(products)]
        drawing.text(110, y - 32, f"d_k = {d_k}", anchor="start", bold=True)
        cell = 19 if d_k == 16 else 32
        vectors = ("query", q), ("key", k), ("plain", products)
        for i, (role, numbers) in enumerate(vectors):
            shown = [f"{number:+d}".replace("-", "−") for number in numbers]
            shown = [sign for sign, *_ in shown] if d_k == 16 else shown
            at = y + 29 * i
            drawing.vector(110 + d_k * cell / 2, at, shown, role, cell, 25, size=13)
            drawing.text(98, at, ("query", "key", "products")[i], "soft", 13, "end")
        zero, unit, root = y + (125 if d_k == 16 else 105), 9, math.isqrt(d_k)
        drawing.text(98, zero, "sum so far", "soft", 13, "end")
        drawing.line([(110, zero), (110 + d_k * cell, zero)], "line")
        for sign in 1, -1:
            sizes = [d_k * i / 32 for i in range(33)]
            curve = [(110 + n * cell, zero - sign * unit * math.sqrt(n)) for n in sizes]
            drawing.line(curve, "soft", 1.2, dashed=True)
        path = [(110 + n * cell, zero - unit * height) for n, height in enumerate(walk)]
        drawing.line(path, "ink", 2.5)
        drawing.circle(*path[-1], 4, "ink", filled=1)
        x = path[-1][0] + 10
        drawing.text(x, path[-1][1], f"{walk[-1]}", anchor="start", bold=True)
        if d_k == 16:
            drawing.text(x, zero + unit * root, "±√n", "soft", 13, "start")
        for backwards in range(d_k + 1):
            cases = math.comb(d_k, backwards)
            x, top = 610 + 8 * (d_k - 2 * backwards), y + 62 - 160 * cases / 2**d_k
            drawing.line([(x, y + 62), (x, top)], "plain", 14)
            drawing.text(x, top - 9, cases if d_k < 16 else "", "soft", 12)
        drawing.line([(474, y + 62), (746, y + 62)], "soft")
        for value in "−16", "−8", "0", "8", "16":
            x = 610 + 8 * int(value.replace("−", "-"))
            drawing.text(x, y + 73, value, "soft", 12)
        for end in (610 - 8 * root, 610 + 8 * root):
            drawing.arrow((610, y + 90), (end, y + 90), "ink")
        drawing.text(660, y + 91, f"typical: ±{root}", anchor="start", bold=True)
    return drawing


show(
    walk_picture(),
    "05_walk",
    alt="For d_k = 1, 4 and 16 a query and a key of plus and minus ones, the products "
    "of their numbers, and a zigzag: their sum so far, from 0 to 1, to 2 and to 4, "
    "beside dashed curves of plus and minus the root of n. On the right, bars show "
    "how often each dot product comes up. They spread from −1 and 1, to −4 up to 4, "
    "to nearly −16 up to 16; the typical size is 1, 2 and 4.",
    caption="The dot product is a walk with one step for each pair of numbers. A walk "
    "of 16 steps typically ends 4 times as far from 0 as a walk of one step; the "
    "dashed curves are ±√n after n steps.",
)

# %% [markdown]
# Each pair contributes +1 or −1, equally often. So the dot product is a **random walk** of $d_k$ steps, each of them
# forwards or backwards. A longer walk ends farther from 0, but not $d_k$ away, because many of its steps cancel.
#
# ## By hand: how far is typical?
#
# Take $d_k = 4$. Each of the four products is +1 or −1, which makes 2 · 2 · 2 · 2 = 16 cases, all equally likely. You
# can count them:
#
# | products that are −1 | dot product | cases | its square |
# |---|---|---|---|
# | 0 | 4 | 1 | 16 |
# | 1 | 2 | 4 | 4 |
# | 2 | 0 | 6 | 0 |
# | 3 | −2 | 4 | 4 |
# | 4 | −4 | 1 | 16 |
#
# The average dot product is 0, because plus and minus cancel. For a typical size one uses the **root mean square**:
# square every case, average, take the root. The squares add up to 1·16 + 4·4 + 6·0 + 4·4 + 1·16 = 64. Over 16 cases
# that is an average of 4, and its root is 2. So ±2 is typical. For 16 numbers, let the computer go through all 65,536
# cases:

# %%
rows = []
for d_k in 1, 4, 16:
    products = np.array(list(itertools.product([-1, 1], repeat=d_k)))  # (2^d_k, d_k)
    mean_square = (products.sum(axis=1) ** 2).mean()
    root = math.sqrt(mean_square)
    rows.append([d_k, f"{len(products):,}", f"{mean_square:g}", f"{root:g}"])
table(["d_k", "cases", "mean square", "root mean square"], rows)

# %% [markdown]
# In all three the mean square is exactly $d_k$, so the typical size is $\sqrt{d_k}$. Why? One more step $p = \pm 1$
# turns the sum $s$ into $s + p$, and $(s + p)^2 = s^2 + 2sp + 1$. On average $2sp$ is 0, because $p$ is as often + as
# −. So every step adds exactly 1 to the mean square.
#
# **Now the softmax.** A model reads "The animal did not cross the street because **it** was too wide." This time *it*
# is the street. But training hasn't begun, queries and keys are random, and say that after the division the scores are
# 0 for *the*, ln 2 for *street* and ln 5 for *animal*. The wrong word is ahead, by chance. If nobody divides, the
# scores are $\sqrt{d_k}$ times as large: 3 times for $d_k = 9$, and 8 times for $d_k = 64$, which is the paper's size.
# The exponentials stay easy, because $e^{3 \ln 5} = 5^3$:


# %% Drawing the three softmaxes
WORDS, EXPONENTIALS = ["the", "street", "animal"], [1, 2, 5]


def softmax_picture(backward):
    """The same scores once, 3 times and 8 times as large, with or without gradients."""
    drawing = Drawing(760, 390 if backward else 310)
    for y, name in (82, "score z"), (150, "e^z"), (225, "weight"):
        drawing.text(8, y, name, "soft", 13, "start")
    if backward:
        drawing.text(8, 115, "gradient", "gradient", 13, "start", italic=True)
        words = "gradient of the raw score of street"
        drawing.text(8, 318, words, "gradient", 13, "start", italic=True)
    titles = {1: "divided", 3: "not divided, d_k = 9", 8: "not divided, d_k = 64"}
    for left, (times, title) in zip((72, 303, 534), titles.items()):
        exponentials = [number**times for number in EXPONENTIALS]
        weights = [number / sum(exponentials) for number in exponentials]
        drawing.text(left + 108, 18, title, bold=True)
        for i, (word, weight) in enumerate(zip(WORDS, weights)):
            x = left + 36 + 72 * i
            drawing.text(x, 50, word, bold=word == "street")
            score = f"{times} ln {EXPONENTIALS[i]}".removeprefix("1 ")
            drawing.text(x, 82, score if i else "0")
            drawing.text(x, 150, f"{exponentials[i]:,}", size=14)
            drawing.bar(x, 225, weight, 40, 90)
            digits = 4 if weight > 0.001 else 5 if weight > 0.0001 else 6
            shown = f"{weight:.{digits}f}"
            drawing.text(x, 285, f"{8 * weight:g}/8" if times == 1 else shown, size=14)
            if backward:
                slope = weight * ((word == "street") - weights[1])
                slope = slope if abs(slope) > 1e-6 else 0.0
                digits = 3 if abs(slope) > 0.001 else 5 if times == 8 else 4
                words = f"{slope:+.{digits}f}"
                words = words.replace("-", "−") if slope else "≈ 0"
                at, size = (x - 22, 12) if times == 8 else (x - 16, 13)
                drawing.gradient(at, 115, slope, words, size, 0.2)
            if backward and word == "street":
                for j, d_k in enumerate((9, 64) if times == 1 else ()):
                    raw, y = slope / math.sqrt(d_k) + 1e-9, 344 + 24 * j
                    words = f"{raw:+.3f} for d_k = {d_k}"
                    drawing.gradient(x - 16, y, raw, words, 13, 0.2)
                if times > 1:
                    drawing.gradient(x - 16, 344, slope, words, 13, 0.2)
        if times < 8:
            drawing.line([(left + 222, 36), (left + 222, drawing.height - 15)], "line")
    return drawing


show(
    softmax_picture(backward=False),
    "05_softmax",
    alt="Three panels with the words the, street and animal. Divided, the "
    "exponentials are 1, 2 and 5 and the weights 1/8, 2/8 and 5/8. Scores 3 times as "
    "large: 1, 8 and 125, weights 0.0075, 0.0597 and 0.9328. Scores 8 times as large: "
    "1, 256 and 390,625, weights 0.000003, 0.00065 and 0.9993.",
    caption="The same three scores, as they are and 3 and 8 times as large. "
    "Multiplying the scores turns a preference into a decision.",
)

# %% [markdown]
# In the middle, 1 + 8 + 125 = 134, so *street* gets 8/134 = 0.0597. On the right it gets 256 of 390,882, which is
# 0.00065. Attention has decided before training has begun, and it chose the wrong word.
#
# ## In general
#
# Real queries and keys aren't made of ±1. Let their numbers be random with mean 0 and variance 1, all independent, as
# footnote 4 of the paper does. Means of independent numbers multiply, so each product $p = q_i k_i$ has the mean
# 0 · 0 = 0 and the mean square 1 · 1 = 1. Now the line from the walk holds again: in $s^2 + 2sp + p^2$ the middle is 0
# on average and the last is 1. Every product adds 1, so the mean square is $d_k$, and as the mean is 0, that is the
# variance: $\mathrm{Var}(q \cdot k) = d_k$.
#
# So the standard deviation is $\sqrt{d_k}$, as for the walk, and dividing brings it back to 1 for every $d_k$:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V$$

# %%
def softmax(z):
    """z (..., S) -> weights (..., S): positive, and each row adds up to 1"""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention_weights(q, k):
    """q (T, d_k), k (S, d_k) -> weights (T, S)"""
    scores = q @ k.T  # (T, S), typical size sqrt(d_k)
    return softmax(scores / math.sqrt(q.shape[-1]))  # typical size 1


# %% The figure of random keys
random = np.random.default_rng(3)
DIVISORS = {"q·k": lambda d_k: 1, "q·k / √d_k": math.sqrt, "q·k / d_k": lambda d_k: d_k}
layout = {"sharex": True, "sharey": True, "layout": "constrained"}
figure, axes = plt.subplots(3, 3, figsize=(8, 5), **layout)
for row, d_k in zip(axes, (4, 64, 1024)):
    scores = random.normal(size=(32, d_k)) @ random.normal(size=d_k)
    for panel, (name, divisor) in zip(row, DIVISORS.items()):
        panel.axhline(1 / 32, color=ACCENT, linestyle="--", linewidth=1)
        weights = np.sort(softmax(scores / divisor(d_k)))[::-1]
        panel.bar(np.arange(1, 33), weights, color=DARK)
        panel.text(32, 0.85, f"largest {weights[0]:.2f}", ha="right")
    row[0].set_ylabel(f"d_k = {d_k}\nweight")
for panel, name in zip(axes[0], DIVISORS):
    panel.set_title(name)
for panel in axes[2]:
    panel.set_xlabel("keys, by weight")
show(
    figure,
    "05_saturation",
    alt="Nine bar charts of attention weights over 32 random keys. Without a "
    "division, one key takes nearly all the weight as d_k grows from 4 to 1024. "
    "Divided by the root of d_k the bars look alike in all three rows. Divided by d_k "
    "they become flat, at the dashed line at 1/32.",
    caption="Weights of 32 random keys; the dashed line is 1/32. As $d_k$ grows, the "
    "left column collapses onto one key and the right one goes flat. Only the middle "
    "column stays as it is.",
)

# %% [markdown]
# What if the assumptions fail? Let the query *equal* the key: all products are +1, and the sum is $d_k$ itself.
# Vectors that point the same way get much larger scores than random ones, and training uses this to make the right key
# stand out. So $\sqrt{d_k}$ is the size at the *start* of training, when queries and keys are still random.
#
# ## Backward
#
# Back to *street*, *animal* and the wrong guess. The loss wants the weight of *street* to grow. How does it grow with
# each score? That is the rule of lesson 04, weight times (offer − average). *Street* offers 1, the others offer 0, and
# so the average is the weight of *street*, 2/8:
#
# | word | weight × (offer − average) | gradient of the score |
# |---|---|---|
# | the | 1/8 · (0 − 2/8) | −1/32 = −0.031 |
# | street | 2/8 · (1 − 2/8) | +6/32 = +0.188 |
# | animal | 5/8 · (0 − 2/8) | −5/32 = −0.156 |
#
# How strong is the push on *street* in the other two panels?
#
# <details><summary>Make a guess, then unfold: the same picture, backward</summary>

# %% Drawing the gradients
show(
    softmax_picture(backward=True),
    "05_softmax_backward",
    alt="The same picture as figure 2, with the gradient of each score. Divided: "
    "−0.031, +0.188 and −0.156. Three times as large: −0.0004, +0.056 and −0.056. "
    "Eight times as large: about 0, +0.00065 and −0.00065. Below, the gradient of the "
    "raw score of street: divided +0.063 for d_k = 9 and +0.023 for d_k = 64; not "
    "divided +0.056 and +0.00065.",
    caption="In magenta: how the weight of *street* grows with each score $z$, and, "
    "in the last rows, with its raw score $q \\cdot k$. On the right, almost no "
    "gradient is left.",
)

# %% [markdown]
# For $d_k = 9$ it is 8/134 · (1 − 8/134) = 0.056, and for $d_k = 64$ it is 0.00065. To compare these with the left
# panel, take the raw score $a = q \cdot k$ in all three. On the left softmax gets $z = a / \sqrt{d_k}$, so
# $da = dz / \sqrt{d_k}$. For $d_k = 64$ that is 0.188 / 8 = 0.023, which is 36 times as strong as without the division.
# For $d_k = 9$ it is 0.188 / 3 = 0.063, hardly more than 0.056. The paper, too, suspects trouble only "for large values
# of $d_k$".
#
# </details>
#
# This is the trouble that lesson 04 promised: the gradient of a score has its weight as a factor. A word with almost
# no weight gets almost no push, however right it is. *Animal* isn't pushed down either. It has nearly all the weight,
# so the average is nearly its own offer, and offer − average is almost 0.
#
# **Your turn.** Write the way from the gradient of the weights to that of the raw scores: open
# `exercises/05_softmax_backward.py`, run `scratchformer learn check 05_softmax_backward`, then read on. (The weights
# there are (B, H, T, S): B sentences, H attentions side by side, T queries, S keys.)
#
# **The rule.** A score $z_r$ reaches the weights $w_s = e^{z_s} / \sum_u e^{z_u}$ in two ways. Through the numerator
# it raises its own weight, which adds $w_r \, dw_r$ to its gradient. It also makes the denominator larger. That lowers
# each weight $w_s$ at the rate $w_r w_s$, which adds $-w_r \sum_s w_s \, dw_s$. The division comes last:
#
# $$da_r = \frac{1}{\sqrt{d_k}} \, w_r \left( dw_r - \sum_s w_s \, dw_s \right)$$
#
# Since $a_r = q \cdot k_r$, the query gets $dq = \sum_r da_r \, k_r$ and each key $dk_r = da_r \, q$. Both contain the
# factor $1/\sqrt{d_k}$ once. The gradients of the values don't.

# %% Our solution
def softmax_backward(dweights, weights, d_k):
    """dweights, weights (..., S) -> dscores (..., S), of the raw scores q k^T"""
    average = (weights * dweights).sum(axis=-1, keepdims=True)
    return weights * (dweights - average) / math.sqrt(d_k)


# %% The check
def street(scores, d_k):
    return softmax(scores / math.sqrt(d_k))[1]


wants_street, logs = np.array([0.0, 1.0, 0.0]), np.log([1.0, 2.0, 5.0])
raw = 8 * logs  # d_k = 64
divided = softmax_backward(wants_street, softmax(logs), 64)
plain = softmax_backward(wants_street, softmax(raw), 1)
measure("push on street, divided over not divided", divided[1] / plain[1], 35.5, 36.1)
numeric = numeric_gradient(lambda raw: street(raw, 64), raw)
same("ours and finite differences", divided, numeric, 1e-8)

random_scores, upstream = random.normal(size=(3, 5)), random.normal(size=(3, 5))
ops = ops_of(random_scores)
weights = softmax(random_scores / 8)
same("ours and the library's", softmax_backward(upstream, weights, 64),
     ops.masked_softmax_backward(upstream, weights, 1 / 8))

# %% [markdown]
# **Does it repair the opening?** Two more controls don't divide. *Small start*: the queries, and so the scores, begin
# $\sqrt{d_k}$ times smaller. *Logarithm*: the steps raise $\ln w$, which takes the factor $w$ out of the gradient and
# leaves $1 - w$ ([lesson 01](01_backprop.py)). All get the same six rates.

# %% Three repairs
repaired = {}
for d_k in SIZES:
    root = math.sqrt(d_k)
    counts = [found(d_k, 1 / root), found(d_k, 1, start=1 / root),
              found(d_k, 1, on_log=True)]
    repaired[d_k] = [f"{count} of 24" for count in counts]
table(["d_k", "divided by √d_k", "small start", "logarithm"],
      [[d_k, *repaired[d_k]] for d_k in SIZES])

# %% [markdown]
# All three work. (The query that is left at $d_k = 8$ only needs more steps.) So here large scores do harm through the
# factor $w$: at $d_k = 512$ a typical right key starts with $w = 10^{-21}$, too little even for a rate of 1000. What is
# lost is mainly the size of the push, which still points the right way ([lab notes 05, experiment
# 1](lab/05_scaling.py#experiment-1-the-24-queries)). Attention can't choose the logarithm: its weights get their
# gradient through the values, $dw = dy \cdot v$, never as $\ln w$ of a known right word.
#
# ## Does it matter?
#
# Here is a small Transformer that translates: 2 layers, one attention head with $d_k = 128$, 300 steps of Adam. Its
# queries and keys are products with learned matrices, $q = x W_Q$ and $k = m W_K$. Adam's steps have about the same
# length however long the gradient is, so the division has two effects: the scores *start* $\sqrt{d_k}$ times smaller,
# and each *step* of a matrix moves them less, at first by the same factor.
#
# Three models without the division imitate it. *Smaller start*: the numbers in $W_Q$ and in $W_K$ begin
# $128^{1/4} = 3.4$ times smaller, because 3.4 · 3.4 is $\sqrt{128}$. *Shorter steps*: both matrices move in steps that
# are 3.4 times shorter. *Both* does both. Which of the three come near the divided model?
#
# <details><summary>Make a guess, then unfold: three runs each</summary>

# %% The recorded runs
result = recorded("attention_scaling")
rows = {row["variant"]: row for row in result["results"] if row["d_k"] == 128}


def spread_of_scores(variant, when):
    """Standard deviation over the keys, mean over attentions and runs."""
    runs = rows[variant]["runs"]
    return np.mean([np.mean(list(run[when]["score_std"].values())) for run in runs])


NAMES = {
    "1/sqrt(d_k)": "divided by √d_k",
    "1": "not divided",
    "1, smaller start": "not divided, smaller start",
    "1, smaller steps": "not divided, shorter steps",
    "1, both smaller": "not divided, both",
}


def as_row(variant):
    final = rows[variant]["final_loss"]
    start, end = (spread_of_scores(variant, when) for when in ("start", "end"))
    return [f"±{start:.2f}", f"±{end:.1f}", f"{final['mean']:.2f}",
            f"{final['lowest']:.2f} to {final['highest']:.2f}"]


table(["model", "scores at first", "scores at the end", "validation loss",
       "lowest to highest"],
      [[name, *as_row(variant)] for variant, name in NAMES.items()])

# %% [markdown]
# The loss is in nats per token; *scores* are the standard deviation of what softmax gets, over the keys. Without the
# division the loss ends more than twice as high. One half of the imitation isn't enough. With both, the model ends
# nearly as low as the divided one, and their ranges overlap.
#
# </details>
#
# So the division matters here, and both of its effects are needed. (None of the four learning rates that we tried
# replaces it.) How much of the damage comes from the missing push, we haven't tested. At the first step the gradient of
# $W_Q$ and $W_K$ is even ten times *longer* without the division. Random queries show how that can be: words with
# weight get a larger push, as no $1/\sqrt{d_k}$ is on the way back, the others get almost none, and a length shows
# mostly the largest numbers ([experiment 2](lab/05_scaling.py#experiment-2-which-keys-get-a-push)).
#
# Why a *square root*? It keeps the scores at the start the same for every $d_k$. That doesn't make it the best divisor
# for training: here, dividing by $d_k = 128$ ends at 0.82, lower than the 1.12 of $\sqrt{128} = 11.3$. One $d_k$ can't
# tell which *power* is right ([experiment 3](lab/05_scaling.py#experiment-3-a-transformer-with-and-without)).
#
# ## Paper and code
#
# [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), §3.2.1 and footnote 4. The paper doesn't measure the
# effect; it writes "we suspect". Yang et al. (2022), [Tensor Programs V](https://arxiv.org/abs/2203.03466), divide by
# $d_k$: trained queries and keys may point the same way, and then the sum grows like $d_k$ itself, as for the query
# above that equals its key. In the library, `masked_softmax` in [nn/ops.py](../scratchformer/nn/ops.py) takes the
# factor as `scale`.
#
# ## What to remember
#
# Dividing by $\sqrt{d_k}$ keeps the scores at the start equally small for every $d_k$, so that softmax leaves every
# word some weight, and with it a push to learn from. (With Adam it also keeps each step from moving the scores too
# far.)
#
# **Exercises.** `05_softmax_backward`, above. `05_scaling`: the scores of several heads (attentions side by side) at
# once. `05_all_ones`: weights add up to 1, so if `dweights` is all ones, the true gradient is 0, and a backward that
# returns zeros passes such a check. Write one that passes it, is wrong, and isn't zero.
#
# **Predict.** All keys are the same vector. What are the weights, and what is the gradient of the scores?
#
# <details><summary>Answer</summary>
#
# The scores are equal, so each of $S$ keys gets $1/S$. Score $r$ gets $(dw_r - \mathrm{mean}(dw)) / (S \sqrt{d_k})$,
# which isn't zero. But these add up to 0 and all keys are the same, so the gradient of the query is zero: no query can
# prefer one of equal keys.
#
# </details>
#
# **Predict.** You add 100 to every score of a query. What happens to the weights and to the gradient?
#
# <details><summary>Answer</summary>
#
# Nothing: $e^{100}$ is a factor of the numerator and of the sum. If keys had a bias $b$, it would add $q \cdot b$ to
# all scores of a query. So for the same reason its gradient is exactly zero.
#
# </details>
#
# **Next.** Every query of this page may look at every key. [Lesson 06](06_masks.py) takes that away where it must be
# taken away: from padding, and from the future.
