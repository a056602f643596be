# %% [markdown]
# # 05 · Why attention divides by √d_k
#
# **What goes wrong if attention doesn't divide its scores?**
#
# *Needs [lesson 04](04_soft_lookup.py) (queries, keys, the backward pass of softmax) · you will make a gradient vanish
# with pencil and paper, and bring it back.*

# %% Imports
import itertools
import math

import numpy as np

from exercises.numeric import numeric_gradient
from library.drawing import Drawing
from library.lesson import measure, recorded, same, show, table
from library.one_key import found, learn_to_look, softmax
from scratchformer.nn.ops import ops_of

# %% [markdown]
# A query has to find the right one of 32 keys. This is the task:
#
# - **Given:** a query and 32 keys. Each is a vector of $d_k$ random numbers. One of the keys is the right one.
# - **Learned:** the query. In 120 gradient steps its numbers change so that the weight on the right key grows.
# - **Left out:** the division by $\sqrt{d_k}$. The weights are the softmax of the dot products.
# - **Measured:** has the right key more than half of the weight in the end?
#
# We run the task 24 times for each $d_k$, each time with a new query and new keys. We tried six learning rates, from
# 0.01 to 1000, and show the best one's result.

# %% Twenty-four queries learn to look
SIZES = 8, 64, 512
without = {d_k: found(d_k, factor=1) for d_k in SIZES}
table(["numbers in a query, d_k", "queries that found their key"],
      [[d_k, f"{without[d_k]} of 24"] for d_k in SIZES])

# %% [markdown]
# That's odd. A query with 512 numbers has far more freedom than one with 8, and yet it nearly always fails.
#
# The trouble is that the dot products get too large, and the division is there to prevent it. **The division keeps the
# scores small when training starts, so that every key gets some weight and the right one can still be found.** Let's go
# through this step by step, and then put the division back.
#
# ## The picture: dot products grow
#
# How large is a dot product? To keep the arithmetic easy, let every number of the query and of the key be +1 or −1, at
# random.


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
    caption="The dot product is a walk with one step for each pair of numbers. The "
    "dashed curves are ±√n after n steps.",
)

# %% [markdown]
# Each pair of numbers contributes +1 or −1, equally often. So the sum goes up and down at random, one step for each
# pair. This is a **random walk**. A longer walk ends farther from 0. But it doesn't end $d_k$ away, because many of its
# steps cancel.
#
# ## By hand: how far is typical?
#
# Take $d_k = 4$. Each of the four products is +1 or −1. That makes 2 · 2 · 2 · 2 = 16 cases, all equally likely, which
# are the bars of figure 1:
#
# | products that are −1 | dot product | its square | cases |
# |---|---|---|---|
# | 0 | 4 | 16 | 1 |
# | 1 | 2 | 4 | 4 |
# | 2 | 0 | 0 | 6 |
# | 3 | −2 | 4 | 4 |
# | 4 | −4 | 16 | 1 |
#
# The average dot product is 0, because plus and minus cancel. To measure the size, take the squares first. Over all 16
# cases they add up to 16·1 + 4·4 + 0·6 + 4·4 + 16·1 = 64. Their average is 64 / 16 = 4, and the root of that is 2. So a
# typical dot product is ±2. This size (square, average, root) is called the **root mean square**.
#
# **Why is it $\sqrt{d_k}$?** Say the walk stands at $s$, and the next step is $p = +1$ or $-1$. Then the square becomes
# $(s + p)^2 = s^2 + 2sp + p^2$. On average $2sp$ is 0, because $p$ is as often + as −. And $p^2$ is 1. So every step
# adds 1 to the mean square. After $d_k$ steps the mean square is $d_k$, and the typical size is $\sqrt{d_k}$.
#
# ## In general
#
# Real queries and keys aren't made of ±1. But the argument needed only two facts about a product $p$: its mean is 0,
# and the mean of its square is 1. Now let all numbers of the query and of the key be random, independent, with mean 0
# and mean square 1. Means of independent numbers multiply. So a product has the mean 0 · 0 = 0 and the mean square
# 1 · 1 = 1, and both facts hold again. Let's measure it with 20,000 pairs of a query and a key:

# %%
random, rows = np.random.default_rng(3), []
for d_k in SIZES:
    q, k = random.normal(size=(2, 20_000, d_k))  # mean 0, mean square 1
    scores = (q * k).sum(axis=1)  # (20_000,) dot products
    sizes = [math.sqrt((z**2).mean()) for z in (scores, scores / math.sqrt(d_k))]
    rows.append([d_k, *(f"{size:.1f}" for size in sizes)])
table(["d_k", "typical q · k", "typical q · k / √d_k"], rows)

# %% [markdown]
# The typical dot product is $\sqrt{d_k}$. Divided by $\sqrt{d_k}$, it is 1 for every $d_k$. So that is what the paper
# does:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V$$
#
# Can a score still get large when it should? Yes. Suppose that training makes a query of ±1 equal to its key. Then
# *all* products are +1, nothing cancels, and the dot product is $d_k$. For $d_k = 64$ the score is 64 / 8 = 8, while a
# typical score is 1.
#
# ## Large scores: one word takes all the weight
#
# Now the softmax. A model reads "The animal did not cross the street because **it** was too wide." Here *it* is the
# street. But training hasn't begun, so queries and keys are random. Say that $d_k = 64$, and that the dot products are
# 0 for *the*, 5.5 for *street* and 12.9 for *animal*. The wrong word is ahead, by chance.
#
# We chose 5.5 = 8 ln 2 and 12.9 = 8 ln 5 to make it easy. Divided by $\sqrt{64} = 8$, the scores are 0, ln 2 and ln 5,
# as in lesson 04, and their exponentials are 1, 2 and 5. Without the division the exponentials are 1, $2^8 = 256$ and
# $5^8 = 390{,}625$.


# %% Drawing the two softmaxes
WORDS, EXPONENTIALS = ["the", "street", "animal"], [1, 2, 5]


def signed(slope):
    """A gradient with three decimals, or five if it is small."""
    digits = 3 if abs(slope) > 0.001 else 5
    return f"{slope:+.{digits}f}".replace("-", "−") if abs(slope) > 1e-6 else "≈ 0"


def softmax_picture(backward):
    """The same dot products, not divided and divided by 8; backward: with gradients."""
    drawing = Drawing(760, 400)
    names = {84: "q · k", 166: "score z", 234: "e^z", 300: "weight"}
    for y, name in names.items():
        drawing.text(8, y, name, "soft", 14, "start")
    if backward:
        for y in 110, 192:
            drawing.text(8, y, "gradient", "gradient", 14, "start", italic=True)
    for left, power in (90, 8), (435, 1):
        exponentials = [number**power for number in EXPONENTIALS]
        weights = [number / sum(exponentials) for number in exponentials]
        title = "not divided" if power == 8 else "divided by √64 = 8"
        drawing.text(left + 155, 18, title, bold=True)
        for i, (word, weight) in enumerate(zip(WORDS, weights)):
            x = left + 50 + 105 * i
            drawing.text(x, 52, word, bold=word == "street")
            drawing.text(x, 84, f"8 ln {EXPONENTIALS[i]}" if i else "0")
            drawing.arrow((x, 126), (x, 150), "soft")
            if power == 1:
                drawing.text(x + 10, 137, "÷ 8", "soft", 13, "start")
            score = f"{power} ln {EXPONENTIALS[i]}".removeprefix("1 ")
            drawing.text(x, 166, score if i else "0")
            drawing.text(x, 234, f"{exponentials[i]:,}")
            drawing.bar(x, 300, weight, 44, 90)
            digits = 4 if weight > 0.001 else 5 if weight > 0.0001 else 6
            fraction = f"{exponentials[i]}/8"
            drawing.text(x, 364, fraction if power == 1 else f"{weight:.{digits}f}")
            if backward:
                slope = weight * ((word == "street") - weights[1])
                for y, value in (110, slope if power == 8 else slope / 8), (192, slope):
                    value = value if abs(value) > 1e-6 else 0.0
                    drawing.gradient(x - 22, y, value, signed(value), 14, 0.2)
    drawing.line([(418, 36), (418, 385)], "line")
    return drawing


show(
    softmax_picture(backward=False),
    "05_softmax",
    alt="Two panels with the words the, street and animal and the dot products 0, "
    "8 ln 2 and 8 ln 5. Not divided, the exponentials are 1, 256 and 390,625, and the "
    "weights 0.000003, 0.00065 and 0.9993. Divided by 8, the exponentials are 1, 2 and "
    "5, and the weights 1/8, 2/8 and 5/8.",
    caption="The same three dot products, not divided and divided. Without the "
    "division, *animal* takes nearly all the weight.",
)

# %% [markdown]
# Without the division *street* gets 256 of 390,882, which is 0.00065, about 1 in 1,500. Attention has already decided,
# for the wrong word. With the division *animal* is ahead, too, but *street* has 2/8.
#
# ## Backward: a word without weight gets no push
#
# Training should now move weight to *street*. How does the weight of *street* change if a score $z$ grows a little? Use
# the rule of lesson 04: weight × (offer − average). Here the result that should grow is the weight of *street* itself.
# So *street* offers 1, and the others offer 0. With the division the average of the offers is 2/8 · 1 = 2/8:
#
# | word | weight × (offer − average) | gradient of z |
# |---|---|---|
# | the | 1/8 · (0 − 2/8) | −1/32 = −0.031 |
# | street | 2/8 · (1 − 2/8) | +6/32 = +0.188 |
# | animal | 5/8 · (0 − 2/8) | −5/32 = −0.156 |
#
# So *street* gets a push up, and the other two get a push down. How strong is the push on *street* without the
# division?
#
# <details><summary>Make a guess, then unfold: the same picture, backward</summary>

# %% Drawing the gradients
show(
    softmax_picture(backward=True),
    "05_softmax_backward",
    alt="The same picture as figure 2, with gradients. Not divided: about 0, +0.00065 "
    "and −0.00065, for z and for the dot products. Divided: −0.031, +0.188 and −0.156 "
    "for z, and an eighth of that for the dot products: −0.004, +0.023 and −0.020.",
    caption="In magenta: how the weight of *street* grows with each score, and with "
    "each dot product. Without the division almost no gradient is left.",
)

# %% [markdown]
# Without the division the push on *street* is 0.00065 · (1 − 0.00065), which rounds to 0.00065.
#
# With the division the push on $z$ is 0.188. The dot product gets an eighth of that, because $z$ is the dot product
# divided by 8. That is 0.188 / 8 = 0.023, which is still 36 times as strong.
#
# </details>
#
# This is the trouble that lesson 04 promised. The gradient of a score has its weight as a factor. **A word with almost
# no weight gets almost no push, however right it is.**
#
# **Your turn.** Compute the gradient of the dot products from the gradient of the weights. Open
# `exercises/05_softmax_backward.py` and run `scratchformer learn check 05_softmax_backward`. The arrays there have the
# shape (B, H, T, S): B sentences, H attentions side by side, T queries, S keys. The softmax runs over the last axis.
#
# <details><summary>The rule and our solution</summary>
#
# Let $a_r$ be the dot product with key $r$. Then $z_r = a_r / \sqrt{d_k}$. Let $dw_r$ be the gradient of weight $r$,
# that is, its offer. Lesson 04 gives the gradient of $z_r$, and the chain rule divides it by $\sqrt{d_k}$:
#
# $$da_r = \frac{1}{\sqrt{d_k}} \, w_r \left( dw_r - \sum_s w_s \, dw_s \right)$$

# %%
def softmax_backward(dweights, weights, d_k):
    """dweights, weights (..., S) -> the gradient of the dot products (..., S)"""
    average = (weights * dweights).sum(axis=-1, keepdims=True)
    return weights * (dweights - average) / math.sqrt(d_k)

# %% [markdown]
# </details>

# %% The check
dot_products = 8 * np.log([1.0, 2.0, 5.0])  # d_k = 64
offers = np.array([0.0, 1.0, 0.0])  # the weight of street
divided = softmax_backward(offers, softmax(dot_products / 8), 64)
plain = softmax_backward(offers, softmax(dot_products), 1)
measure("push on street, divided over not divided", divided[1] / plain[1], 35.5, 36.1)
numeric = numeric_gradient(lambda a: softmax(a / 8)[1], dot_products)
same("our gradient and finite differences", divided, numeric, 1e-8)

weights, dweights = softmax(random.normal(size=(3, 5))), random.normal(size=(3, 5))
library = ops_of(weights).masked_softmax_backward(dweights, weights, 1 / 8)
same("ours and the library's", softmax_backward(dweights, weights, 64), library)

# %% [markdown]
# ## The 24 queries again
#
# Now we put the division into the task of the opening. Everything else stays, also the six learning rates. The last
# column is a control: it doesn't divide, but its queries begin $\sqrt{d_k}$ times smaller, so the scores begin small.

# %% The same task with the division
rows, first_weights = [], []
for d_k in SIZES:
    small = 1 / math.sqrt(d_k)
    counts = without[d_k], found(d_k, small), found(d_k, factor=1, start=small)
    rows.append([f"found, d_k = {d_k}", *(f"{count} of 24" for count in counts)])
for factor, start in (1, 1), (small, 1), (1, small):  # d_k = 512, before training
    first_weights.append(np.median(learn_to_look(512, factor, rate=0, start=start)))
rows.append(["first weight, d_k = 512", *(f"{weight:.1g}" for weight in first_weights)])
table(["", "not divided", "divided by √d_k", "small start"], rows)

# %% [markdown]
# With the division all queries but one find their key. That one, at $d_k = 8$, only needs more steps. The last row is
# the weight of the right key before training, the median of the 24 tasks. Without the division it is
# $7 \cdot 10^{-22}$. The push has this tiny factor, and none of our learning rates makes up for it. With the division
# the weight is 0.01, and it can grow.
#
# The control works as well. So in this task the division helps because the scores *start* small ([lab notes 05,
# experiment 1](lab/05_scaling.py#experiment-1-the-24-queries)).
#
# ## Does it matter in a Transformer?
#
# - **Given:** English sentences and their German translations. The model learns to predict the next German token.
# - **Model:** a Transformer with 2 layers and one head of $d_k = 128$. It takes 300 training steps.
# - **Changed:** only the division.
# - **Measured:** the loss on sentences that aren't used for training, in nats per token. Each model is trained three
#   times, with different seeds.
#
# How much higher does the loss end without the division: not at all, a little, or a lot?
#
# <details><summary>Make a guess, then unfold: three runs each</summary>

# %% The recorded runs
result = recorded("attention_scaling")
models = {row["variant"]: row for row in result["results"] if row["d_k"] == 128}
rows = []
for variant, name in ("1", "not divided"), ("1/sqrt(d_k)", "divided by √d_k"):
    starts = [run["start"]["score_std"] for run in models[variant]["runs"]]
    size = np.mean([np.mean(list(start.values())) for start in starts])
    loss = models[variant]["final_loss"]
    between = f"{loss['lowest']:.2f} to {loss['highest']:.2f}"
    rows.append([name, f"±{size:.1f}", f"{loss['mean']:.2f}", between])
table(["model", "scores at the start", "loss", "lowest to highest"], rows)

# %% [markdown]
# Without the division the loss ends at 2.77, with it at 1.12. The ranges of the three runs are far apart. (The scores
# are given as their standard deviation over the keys.)
#
# </details>
#
# So the division matters here. Two things stay open.
#
# First, we haven't tested that the missing push is what harms this model. The division also makes each training step
# move the scores less. That matters, too: with a small start alone the loss ends at 2.53.
#
# Second, $\sqrt{d_k}$ lets the scores start at the same size for every $d_k$, but it needn't be the best divisor for
# training. Here, dividing by $d_k = 128$ ends lower still, at 0.82. All these runs are in [lab notes 05, experiment
# 3](lab/05_scaling.py#experiment-3-a-transformer-with-and-without).
#
# ## Paper and code
#
# [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), §3.2.1 and footnote 4. The footnote says that $q \cdot k$
# has the **variance** $d_k$. That is the mean square of numbers whose mean is 0. The paper doesn't measure the effect;
# it writes "we suspect". In the library, `masked_softmax` in [nn/ops.py](../scratchformer/nn/ops.py) takes the factor
# as `scale`.
#
# ## What to remember
#
# A dot product of $d_k$ random numbers is typically $\sqrt{d_k}$ large. Large scores give nearly all the weight to one
# word, and a word without weight gets no push to learn from. Dividing by $\sqrt{d_k}$ keeps the scores small at the
# start, so that every word has a chance.
#
# **Exercises.** `05_softmax_backward`, above. `05_scaling`: the scores of several heads (attentions side by side) at
# once. `05_all_ones`: weights add up to 1, so if `dweights` is all ones, the true gradient is 0. A backward that
# returns zeros passes such a check. Write another one that passes it and is wrong.
#
# **Predict.** Divide the dot products of the three words by $d_k = 64$ instead of 8. What are the weights, roughly?
#
# <details><summary>Answer</summary>
#
# The scores are 0, (ln 2) / 8 = 0.09 and (ln 5) / 8 = 0.20. The exponentials, 1, 1.09 and 1.22, are nearly equal. So
# each word gets about a third. Such a model starts with hardly any preference.
#
# </details>
#
# **Next.** Every query of this page may look at every key. [Lesson 06](06_masks.py) takes that away where it must be
# taken away: from padding, and from the future.
