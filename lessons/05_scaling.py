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
from scratchformer.experiments.figures import DARK
from scratchformer.nn.ops import ops_of

# %% [markdown]
# Here is a task with nothing in the way. There are 32 keys, vectors of $d_k$ random numbers, and one of them is the
# right one. A query, random at first, has to learn to put its attention weight on that key. It takes 120 gradient
# steps, and each of them moves it so that the weight grows.
#
# Let 24 queries try, each with keys of its own, and count those that put more than half of their weight on the right
# key in the end, at the best of six learning rates from 0.01 to 1000. The weights are those of lesson 04, except that
# we left out the division by $\sqrt{d_k}$.

# %% Twenty-four queries learn to look
SIZES = 8, 64, 512
without = {d_k: found(d_k, factor=1) for d_k in SIZES}
table(["numbers in a query", "queries that found their key"],
      [[d_k, f"{without[d_k]} of 24"] for d_k in SIZES])

# %% [markdown]
# That's odd. A query with 512 numbers has far more freedom than one with 8, so its task should be easier. What gets in
# its way?
#
# ## The picture
#
# Two things happen, one after the other. First the scores get large. Then softmax turns large scores into all or
# nothing. Start with the first one: how large is a dot product? To keep the arithmetic easy, let every number of the
# query and of the key be +1 or −1, at random.


# %% Drawing the dot products
def walk_picture():
    drawing = Drawing(760, 590)
    drawing.text(610, 20, "how often each dot product comes up", "soft", 13)
    signs = {1: "+ +", 4: "+-++ +-+-", 16: "+-++-+--+-+++-+- +++-+++-+--+--+-"}
    for y, (d_k, rows) in zip((100, 280, 470), signs.items()):
        q, k = ([1 if sign == "+" else -1 for sign in row] for row in rows.split())
        products = [a * b for a, b in zip(q, k)]
        walk = list(itertools.accumulate(products))
        drawing.text(110, y - 70, f"d_k = {d_k}", anchor="start", bold=True)
        cell = 19 if d_k == 16 else 32
        names = "query", "key", "products", "sum so far"
        for i, (name, numbers) in enumerate(zip(names, (q, k, products, walk))):
            role, at = ("query", "key", "plain", "plain")[i], y - 40 + 32 * i
            shown = [f"{number:+d}".replace("-", "−") for number in numbers]
            if d_k == 16 and i < 3:
                shown = [sign for sign, *_ in shown]
            elif i == 3:
                shown = [number.lstrip("+") for number in shown]
            drawing.vector(110 + d_k * cell / 2, at, shown, role, cell, 26, size=13)
            drawing.text(98, at, name, "soft", 13, "end")
        x = 120 + d_k * cell
        drawing.text(x, y + 56, f"= {walk[-1]}", anchor="start", bold=True)
        root = math.isqrt(d_k)
        for backwards in range(d_k + 1):
            cases = math.comb(d_k, backwards)
            x, top = 610 + 8 * (d_k - 2 * backwards), y + 32 - 160 * cases / 2**d_k
            drawing.line([(x, y + 32), (x, top)], "plain", 14)
            drawing.text(x, top - 9, cases if d_k < 16 else "", "soft", 12)
        drawing.line([(474, y + 32), (746, y + 32)], "soft")
        for value in "−16", "−8", "0", "8", "16":
            x = 610 + 8 * int(value.replace("−", "-"))
            drawing.text(x, y + 43, value, "soft", 12)
        for end in (610 - 8 * root, 610 + 8 * root):
            drawing.arrow((610, y + 60), (end, y + 60), "ink")
        drawing.text(660, y + 61, f"typical: ±{root}", anchor="start", bold=True)
    return drawing


show(
    walk_picture(),
    "05_walk",
    alt="For d_k = 1, 4 and 16 a query and a key of plus and minus ones, the products "
    "of their numbers and their running sum. Beside each, bars show how often each "
    "dot product comes up. The bars spread from −1 and 1, to −4 up to 4, to nearly "
    "−16 up to 16; the typical size is 1, 2 and 4.",
    caption="The dot product is a walk with one step for each pair of numbers. A walk "
    "of 16 steps typically ends 4 times as far from 0 as a walk of one step.",
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
# The average dot product is 0, because plus and minus cancel, so the average says nothing about the size. For sizes
# one uses the **root mean square**: square every case, average, take the root. The squares add up to 1·16 + 4·4 + 6·0
# + 4·4 + 1·16 = 64. Over 16 cases that is an average of 4, and its root is 2. So a typical dot product of four numbers
# is ±2. For 16 numbers, let the computer go through all 65,536 cases:

# %%
rows = []
for d_k in 1, 4, 16:
    products = np.array(list(itertools.product([-1, 1], repeat=d_k)))  # (2^d_k, d_k)
    mean_square = (products.sum(axis=1) ** 2).mean()
    root = math.sqrt(mean_square)
    rows.append([d_k, f"{len(products):,}", f"{mean_square:g}", f"{root:g}"])
table(["d_k", "cases", "mean square", "root mean square"], rows)

# %% [markdown]
# In all three the mean square is exactly $d_k$. So the typical size is $\sqrt{d_k}$.
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
    drawing = Drawing(760, 310)
    for y, name in (82, "score z"), (150, "e^z"), (225, "weight"):
        drawing.text(8, y, name, "soft", 13, "start")
    if backward:
        drawing.text(8, 115, "gradient", "gradient", 13, "start", italic=True)
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
            shown = f"{weight:.6f}" if weight < 0.0001 else f"{weight:.4f}"
            drawing.text(x, 285, f"{8 * weight:g}/8" if times == 1 else shown, size=14)
            if backward:
                slope = weight * ((word == "street") - weights[1])
                slope = slope if abs(slope) > 1e-6 else 0.0
                words = f"{slope:+.4f}" if abs(slope) < 0.001 else f"{slope:+.3f}"
                words = words.replace("-", "−") if slope else "≈ 0"
                drawing.gradient(x - 16, 115, slope, words, 13, 0.2)
        if times < 8:
            drawing.line([(left + 222, 36), (left + 222, 295)], "line")
    return drawing


show(
    softmax_picture(backward=False),
    "05_softmax",
    alt="Three panels with the words the, street and animal. Divided, the exponentials "
    "are 1, 2 and 5 and the weights 1/8, 2/8 and 5/8. Scores 3 times as large: 1, "
    "8 and 125, weights 0.0075, 0.0597 and 0.9328. Scores 8 times as large: 1, 256 "
    "and 390,625, weights 0.000003, 0.0007 and 0.9993.",
    caption="The same three scores, as they are and 3 and 8 times as large. "
    "Multiplying the scores turns a preference into a decision.",
)

# %% [markdown]
# Check the panel in the middle: 1 + 8 + 125 = 134, so *street* gets 8/134 = 0.0597. In the panel on the right it gets
# 256 of 390,882, which is 0.0007. Attention has decided before training has begun, and it chose the wrong word.
#
# ## In general
#
# Real queries and keys aren't made of ±1. Let their numbers be random with mean 0 and variance 1, all independent, as
# footnote 4 of the paper does. What is the variance of $q \cdot k = \sum_i q_i k_i$?
#
# 1. *One product has mean 0.* For independent numbers the mean of a product is the product of the means, 0 · 0.
# 2. *One product has variance 1.* As its mean is 0, its variance is its mean square, and for the same reason that is
#    $E[q_i^2 k_i^2] = E[q_i^2] \cdot E[k_i^2] = 1 \cdot 1$.
# 3. *Variances of independent terms add up,* and there are $d_k$ of them:
#
# $$\mathrm{Var}(q \cdot k) = \sum_{i=1}^{d_k} \mathrm{Var}(q_i k_i) = d_k$$
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
    alt="Nine bar charts of attention weights over 32 random keys. Without a division, "
    "one key takes nearly all the weight as d_k grows from 4 to 1024. Divided by "
    "the root of d_k the bars look alike in all three rows. Divided by d_k they "
    "become flat.",
    caption="Weights of 32 random keys. As $d_k$ grows, the left column collapses onto "
    "one key and the right one goes flat. Only the middle column stays as it "
    "is.",
)

# %% [markdown]
# What if the assumptions fail? Let the query *equal* the key: all products are +1, and the sum is $d_k$ itself.
# Vectors that point the same way get much larger scores than random ones, and training uses this to make the right key
# stand out. So the argument is about the *start* of training, when nothing points anywhere.
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
    "Eight times as large: about 0, +0.0007 and −0.0007.",
    caption="In magenta: how the weight of *street* grows with each score. On the "
    "right, almost no gradient is left.",
)

# %% [markdown]
# For $d_k = 9$ it is 8/134 · (1 − 8/134) = 0.056. For $d_k = 64$ it is 0.00065, almost 290 times weaker than on the
# left.
#
# </details>
#
# This is the trouble that lesson 04 promised: the gradient of a score has its weight as a factor. A word with almost
# no weight gets almost no push, however right it is. And *animal* isn't pushed down either: with nearly all the weight
# it *is* nearly the average.
#
# The division has a price, though. Training moves the raw score $a = q \cdot k$, and softmax gets
# $z = a / \sqrt{d_k}$, so by the chain rule $da = dz / \sqrt{d_k}$. For $d_k = 64$ that is 0.188 / 8 = 0.023, still 36
# times more than 0.00065. But for $d_k = 9$ it is 0.188 / 3 = 0.063, hardly more than 0.056. That fits the paper,
# which suspects trouble only "for large values of $d_k$".
#
# **Your turn.** Write the way from the gradient of the weights to that of the raw scores: open
# `exercises/05_softmax_backward.py`, run `scratchformer learn check 05_softmax_backward`, then read on.
#
# **The rule.** A score $z_r$ reaches the weights $w_s = e^{z_s} / \sum_u e^{z_u}$ in two ways. Through the numerator
# it raises its own weight, which adds $w_r \, dw_r$ to its gradient. Through the sum in the denominator it lowers
# *every* weight by the fraction $w_r$, which adds $-w_r \sum_s w_s \, dw_s$. The division comes last:
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
bands = {9: (0.062, 0.063, 0.0561, 0.0562), 64: (0.0234, 0.0235, 6.5e-4, 6.6e-4)}
for d_k, (*divided_band, low, high) in bands.items():
    raw = math.sqrt(d_k) * logs
    divided = softmax_backward(wants_street, softmax(logs), d_k)
    plain = softmax_backward(wants_street, softmax(raw), 1)
    measure(f"d_k = {d_k}: push on street, divided", divided[1], *divided_band)
    measure(f"d_k = {d_k}: push on street, not divided", plain[1], low, high)
numeric = numeric_gradient(lambda raw: street(raw, 64), raw)
same("d_k = 64: ours and finite differences", divided, numeric, 1e-8)

random_scores, upstream = random.normal(size=(3, 5)), random.normal(size=(3, 5))
ops = ops_of(random_scores)
weights = softmax(random_scores / 8)
same("random scores: ours and the library's", softmax_backward(upstream, weights, 64),
     ops.masked_softmax_backward(upstream, weights, 1 / 8))

# %% [markdown]
# **Does it repair the opening?** And was it really the small weight that stopped the 24 queries? Here are two controls
# that don't divide. *Small start*: the queries begin $\sqrt{d_k}$ times smaller, and so do the scores. *Logarithm*:
# the scores are as large as in the opening, but the steps raise $\ln w$ instead of $w$. That takes the factor $w$ out
# of the gradient and leaves $1 - w$, as in [lesson 01](01_backprop.py).

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
# All three work. So large scores do no harm by themselves, but together with the factor $w$ they do. Only the *size*
# of the push is lost, not its direction: if we stretch every step of a query to the same length, the undivided queries
# learn, too ([lab notes 05, experiment 1](lab/05_scaling.py#experiment-1-the-24-queries)). And the few keys with much
# weight get an even stronger push than with the division ([experiment
# 2](lab/05_scaling.py#experiment-2-which-keys-get-a-push)).
#
# Real Transformers are trained with Adam, an optimizer that rescales steps in a similar way. Do they need the division
# at all?
#
# ## Does it matter?
#
# Here is a small Transformer that translates: 2 layers, one attention head with $d_k = 128$, 300 steps of Adam. Its
# queries and keys are products with learned matrices, $q = x W_Q$ and $k = m W_K$. So dividing does two things: it
# makes the scores smaller at the *start*, and it makes every *step* of the matrices move the scores less.
#
# Three models without it do this by other means. *Smaller start* begins with numbers in $W_Q$ and in $W_K$ that are
# $128^{1/4} = 3.4$ times smaller, because 3.4 · 3.4 is $\sqrt{128}$. *Shorter steps* moves both matrices in steps that
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
    "1/d_k": "divided by d_k",
    "1/sqrt(d_k), smaller steps": "divided by √d_k, shorter steps",
}


def as_row(variant):
    final = rows[variant]["final_loss"]
    start, end = (spread_of_scores(variant, when) for when in ("start", "end"))
    return [f"±{start:.2f}", f"±{end:.1f}", f"{final['mean']:.2f}",
            f"{final['lowest']:.2f} to {final['highest']:.2f}"]


table(["model", "scores at first", "scores at the end", "loss", "lowest to highest"],
      [[name, *as_row(variant)] for variant, name in NAMES.items()])

# %% [markdown]
# The loss is in nats per token, and *scores* are the standard deviation of what softmax gets, over the keys. Without
# the division the loss ends more than twice as high, and neither half of the repair is enough. With both, the model is
# the divided one in other units, and does as well.
#
# </details>
#
# So the division matters here, and for two reasons. Don't put it all down to the vanishing push: long steps alone do
# as much harm as a large start, and at the first step the gradient of $W_Q$ and $W_K$ is even ten times *longer*
# without the division. (A better learning rate isn't the cure. At twice, half and a quarter of this one, the model
# without the division ends at 4.37, 2.81 and 3.30.)
#
# And why a *square root*? Look at the last two rows. Dividing by $d_k$, which starts out flat in figure 3, ends lower
# still, and so does the square root with shorter steps. The exponent itself doesn't matter much, at least in this
# small model. What matters is that the scores are small at the start, and that no step moves them far ([lab notes 05,
# experiment 3](lab/05_scaling.py#experiment-3-a-transformer-with-and-without)).
#
# ## Paper and code
#
# [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), §3.2.1 and footnote 4. The paper doesn't measure the
# effect; it writes "we suspect". Yang et al. (2022), [Tensor Programs V](https://arxiv.org/abs/2203.03466), divide by
# $d_k$; they argue with trained queries and keys, which are no longer independent. In the library, `masked_softmax` in
# [nn/ops.py](../scratchformer/nn/ops.py) takes the factor as `scale`. A public implementation divides by
# $\sqrt{d_{model}}$, and no gradient check can notice ([lab notes 05, experiment
# 4](lab/05_scaling.py#experiment-4-the-wrong-root)).
#
# ## What to remember
#
# A dot product of $d_k$ random numbers is typically $\sqrt{d_k}$ in size. Softmax turns large scores into all or
# nothing, and a word without weight gets no push. Dividing by $\sqrt{d_k}$ lets the scores start small for every
# $d_k$, and move in smaller steps.
#
# **Exercises.** `05_softmax_backward`, above. `05_scaling`: the scores of several heads at once (heads are attentions
# side by side, here one more axis). `05_all_ones`: weights add up to 1, so if `dweights` is all ones, the true
# gradient is 0, and a backward that returns zeros passes such a check. Write one that passes it, is wrong, and isn't
# zero.
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
# Nothing: $e^{100}$ is a factor of the numerator and of the sum. For the same reason the bias of the keys has a
# gradient of exactly zero: it adds the same number to all scores of a query.
#
# </details>
#
# **Next.** Every query of this page may look at every key. [Lesson 06](06_masks.py) takes that away where it must be
# taken away: from padding, and from the future.
