# %% [markdown]
# # 05 · Why attention divides by √d_k
#
# **What goes wrong if attention doesn't divide by √d_k?**
#
# *Needs [lesson 04](04_soft_lookup.py) (queries, keys, the backward pass of softmax) · you will make a gradient vanish
# with pencil and paper, and bring it back.*

# %% Imports
import itertools
import math

import numpy as np

from scratchformer.nn.ops import ops_of
from support.drawing import Drawing
from support.lesson import recorded, same, show, table
from support.numeric import numeric_gradient
from support.one_key import found, learn_to_look, softmax

# %% [markdown]
# A query has to find the right one of 32 keys. This is the task:
#
# - **Given:** a query and 32 keys. Each is a vector of $d_k$ random numbers. One of the keys is the right one.
# - **Learned:** the query, in 120 steps. Each step follows the gradient of the weight on the right key.
# - **Left out:** the division by $\sqrt{d_k}$. The weights are the softmax of the dot products.
# - **Measured:** has the right key more than half of the weight in the end?
#
# We run the task 24 times for each $d_k$, each time with a new query and new keys. For each $d_k$ we try six learning
# rates, from 0.01 to 1000, and show the best result.

# %% Twenty-four queries learn to look
SIZES = 8, 64, 512
without = {d_k: found(d_k, factor=1) for d_k in SIZES}
table(["numbers in a query, d_k", "queries that found their key"],
      [[d_k, f"{without[d_k]} of 24"] for d_k in SIZES])

# %% [markdown]
# That's odd. A query with 512 numbers has far more freedom than one with 8, and yet it nearly always fails.
#
# The dot products start too large. How large are they, and what harm does that do?
#
# ## The picture: dot products grow
#
# How large is a dot product? To keep the arithmetic easy, let every number of the query and of the key be +1 or −1, at
# random.


# %% Drawing the dot products
def walk_picture():
    drawing = Drawing(760, 585)
    drawing.text(610, 20, "how often each dot product comes up", "soft", 13)
    others = np.random.default_rng(2).choice([-1, 1], (2, 16)).tolist()
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
        for other in others if d_k == 16 else ():
            steps = [0, *itertools.accumulate(other)]
            path = [(110 + n * cell, zero - unit * h) for n, h in enumerate(steps)]
            drawing.line(path, "line", 1.5)
            drawing.circle(*path[-1], 3, "line", filled=1)
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
        drawing.text(746, y + 20, f"of {2**d_k:,} cases", "soft", 12, "end")
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
    "to about −10 up to 10; the typical size is 1, 2 and 4. Two pale walks for 16.",
    caption="The dot product is a walk with one step for each pair of numbers. The "
    "dashed curves are ±√n after n steps; the pale walks are two others.",
)

# %% [markdown]
# Each pair of numbers contributes +1 or −1, equally often. So the sum goes up and down at random, one step for each
# pair. This is a **random walk**. A longer walk usually ends farther from 0. But it seldom ends $d_k$ away, because
# many of its steps cancel.
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
# typical dot product is ±2: in 10 of the 16 cases it is at least that far from 0. This size (square, average, root) is
# called the **root mean square**.
#
# **Why is it $\sqrt{d_k}$?** Say the walk stands at $s$, and the next step is $p = +1$ or $-1$. Then the square becomes
# $(s + p)^2 = s^2 + 2sp + p^2$. Whatever $s$ is, $p$ is +1 as often as −1. So on average $2sp$ is 0. And $p^2$ is 1. So
# every step adds 1 to the mean square. After $d_k$ steps the mean square is $d_k$, and the typical size is
# $\sqrt{d_k}$.
#
# ## In general
#
# Real queries and keys aren't made of ±1. But the argument needed only three facts about a product $p$. Its mean is 0.
# The mean of its square is 1. And it doesn't depend on the steps before it. Now let all numbers of the query and of the
# key be random, independent, with mean 0 and mean square 1. The mean of a product of independent numbers is the product
# of their means. So $p$ has the mean 0 · 0 = 0 and the mean square 1 · 1 = 1, and all three facts hold again. Let's
# measure it with 20,000 pairs of a query and a key:

# %%
random, rows = np.random.default_rng(3), []
for d_k in SIZES:
    q, k = random.normal(size=(2, 20_000, d_k))  # mean 0, mean square 1
    dots = (q * k).sum(axis=1)  # (20_000,) dot products
    sizes = [math.sqrt((z**2).mean()) for z in (dots, dots / math.sqrt(d_k))]
    rows.append([d_k, *(f"{size:.1f}" for size in sizes)])
table(["d_k", "typical q · k", "typical q · k / √d_k"], rows)

# %% [markdown]
# The typical dot product is $\sqrt{d_k}$. Divided by $\sqrt{d_k}$, it is 1 for every $d_k$. So that is what the paper
# does:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V$$
#
# On this page, the **dot product** is $q \cdot k$, and the **score** $z$ is what softmax gets. With the division it is
# the dot product over $\sqrt{d_k}$, without it the dot product itself.
#
# <!-- see: inside?step=encoder.0.self.weights | scores of a trained model, and their softmax -->
#
# ## Large scores: one word takes all the weight
#
# Now the softmax. A model reads "The animal did not cross the street because **it** was too wide." Here *it* is the
# street. But training hasn't begun, so queries and keys are random. Say that $d_k = 64$, and that the dot products are
# 0 for *the*, 5.5 for *street* and 12.9 for *animal*. The wrong word is ahead, by chance.
#
# We chose 8 ln 2 ≈ 5.5 and 8 ln 5 ≈ 12.9 to make it easy. Divided by $\sqrt{64} = 8$, the scores are 0, ln 2 and ln 5,
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
                    largest = 0.2 if y == 192 else 0.2 / 8
                    drawing.gradient(x - 22, y, value, signed(value), 14, largest)
    drawing.line([(418, 36), (418, 385)], "line")
    return drawing


show(
    softmax_picture(backward=False),
    "05_softmax",
    alt="Two panels with the words the, street and animal and the dot products 0, 8 "
    "ln 2 and 8 ln 5. Not divided, the exponentials are 1, 256 and 390,625, and the "
    "weights 0.000003, 0.00065 and 0.9993. Divided by 8, the exponentials are 1, 2 "
    "and 5, and the weights 1/8, 2/8 and 5/8.",
    caption="The same three dot products, not divided and divided. Without the "
    "division, *animal* takes nearly all the weight.",
)

# %% [markdown]
# <!-- widget: scaling, in the figure's place -->
#
# Without the division *street* gets 256 of 390,882, which is 0.00065. Attention has already decided, for the wrong
# word. With the division *animal* is ahead, too, but *street* has 2/8.
#
# ## Backward: a word without weight gets no push
#
# Training should now move weight to *street*. How does the weight of *street* change if a score $z$ grows a little? Use
# the rule of lesson 04: weight × (offer − average). Here the result that should grow is 1 · the weight of *street*, and
# 0 · the weights of the others. So *street* offers 1, and the others offer 0. In the average each offer counts with its
# weight: with the division it is 1/8 · 0 + 2/8 · 1 + 5/8 · 0 = 2/8.
#
# | word | weight × (offer − average) | gradient of the score |
# |---|---|---|
# | the | 1/8 · (0 − 2/8) | −1/32 = −0.031 |
# | street | 2/8 · (1 − 2/8) | +6/32 = +0.188 |
# | animal | 5/8 · (0 − 2/8) | −5/32 = −0.156 |
#
# So the score of *street* gets a push up, and the other two get a push down. How strong is the push on *street* without
# the division? Make a guess before you look at figure 3.

# %% Drawing the gradients
show(
    softmax_picture(backward=True),
    "05_softmax_backward",
    alt="The same picture as figure 2, with gradients. Not divided: about 0, +0.00065 "
    "and −0.00065, for z and for the dot products. Divided: −0.031, +0.188 and −0.156 "
    "for z, and an eighth of that for the dot products: −0.004, +0.023 and −0.020.",
    caption="In magenta: how the weight of *street* grows with each score, and with "
    "each dot product. For the dot product of *street* it is 0.023 against 0.00065.",
)

# %% [markdown]
# Without the division the push on *street* is 0.00065 · (1 − 0.00065), which rounds to 0.00065.
#
# With the division the push on the score is 0.188. The score is the dot product divided by 8, so the push on the dot
# product is only an eighth: 0.188 / 8 = 0.023. But that is still 36 times 0.00065, because the weight of *street* is
# 382 times as large.
#
# The gradient of a score has its weight as a factor, and here no offer is above 1. **So a word with almost no weight
# gets almost no push, however right it is.**
#
# **Your turn.** Compute the gradient of the dot products from the gradient of the weights. (It is in `attention`, which
# you wrote in lesson 04; the code below calls the dot products `scores`.)
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
    return {"dscores": weights * (dweights - average) / math.sqrt(d_k)}

# %% [markdown]
# </details>

# %% The check
dot_products = 8 * np.log([1.0, 2.0, 5.0])  # d_k = 64
offers = np.array([0.0, 1.0, 0.0])  # the weight of street
divided = softmax_backward(offers, softmax(dot_products / 8), 64)["dscores"]
numeric = numeric_gradient(lambda a: softmax(a / 8)[1], dot_products)
same("our gradient and finite differences", divided, numeric, 1e-8)

weights, dweights = softmax(random.normal(size=(3, 5))), random.normal(size=(3, 5))
library = ops_of(weights).masked_softmax_backward(dweights, weights, 1 / 8)
ours = softmax_backward(dweights, weights, 64)["dscores"]
same("ours and the library's", ours, library)

# %% [markdown]
# ## The 24 queries again
#
# Now we put the division into the task of the opening. The last column is a control. It divides as well, but its
# queries begin $\sqrt{d_k}$ times larger. So its scores begin as large as without the division.


# %% The same task with the division
rows, first_weights = [], []
for d_k in SIZES:
    root = math.sqrt(d_k)
    counts = without[d_k], found(d_k, 1 / root), found(d_k, 1 / root, start=root)
    rows.append([f"found, d_k = {d_k}", *(f"{count} of 24" for count in counts)])
for factor, start in (1, 1), (1 / root, 1), (1 / root, root):  # d_k = 512, at first
    first_weights.append(np.median(learn_to_look(512, factor, rate=0, start=start)))
rows.append(["first weight, d_k = 512", *(f"{weight:.1g}" for weight in first_weights)])
table(["", "not divided", "divided by √d_k", "divided, large start"], rows)

# %% [markdown]
# With the division all queries but one find their key. The last row is the median weight of the right key before
# training. Without the division it is $7 \cdot 10^{-22}$, and the push has this tiny factor. With the division the
# weight begins at 0.01, and it can grow.
#
# The control divides and fails all the same. So in this task it matters that the scores *start* small ([lab notes 05,
# experiment 1](lab/05_scaling.py#experiment-1-the-24-queries)).
#
# ## Does it matter in a Transformer?
#
# - **Model:** a Transformer with 2 layers and one head of $d_k = 128$, in its first 300 training steps. It learns to
#   translate English sentences into German.
# - **Measured:** the loss on other sentences, in nats per token (the unit of $-\ln p$), from three random starts
#   (*seeds*).
# - **Changed:** the division. It does two things: the scores start smaller, and each training step moves them less. So
#   three controls don't divide, but get one of the two in another way, or both. *Small start*: $W_Q$ and $W_K$ begin
#   3.4 times smaller each, so that the scores start as with the division (3.4 · 3.4 = $\sqrt{128}$). *Small steps*:
#   both take steps that are 3.4 times smaller.
#
# Which is enough: the small start, the small steps, either, or only both?
#
# <details><summary>Make a guess, then unfold: five models, three runs each</summary>

# %% The recorded runs
result = recorded("attention_scaling")
models = {row["variant"]: row for row in result["results"] if row["d_k"] == 128}
rows = []
for variant, name in (
    ("1", "not divided"),
    ("1, smaller start", "not divided, small start"),
    ("1, smaller steps", "not divided, small steps"),
    ("1, both smaller", "not divided, both"),
    ("1/sqrt(d_k)", "divided by √d_k"),
):
    loss = models[variant]["final_loss"]
    between = f"{loss['lowest']:.2f} to {loss['highest']:.2f}"
    rows.append([name, f"{loss['mean']:.2f}", between])
table(["model", "loss", "lowest to highest"], rows)

# %% [markdown]
# A small start alone repairs little, and so do small steps alone. Both together repair it.
#
# </details>
#
# **Is the missing push to blame here, too?** We train two models once more and let no gradient through any score, so
# that neither has any push. The divided model then ends at 1.72, so its pushes gain 0.60. The undivided one ends at
# 2.37, so its pushes make it *worse*, by 0.40. And with no push in either model, a gap of 0.65 is left. So a missing
# push is only a part of the harm. Large first scores harm in another way, too; we don't know in which ([lab notes 05,
# experiment 2](lab/05_scaling.py#experiment-2-a-transformer-with-and-without)).
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
# word, at first by chance. For our 24 queries the harm is that the right word gets no push. In our Transformer that is
# only a part of it. Dividing by $\sqrt{d_k}$ makes the first scores smaller, and the steps as well, and it takes both.
#
# **Yours:** the hunt `all_ones` (weights add up to 1, so if their gradient is all ones, that of the scores is 0: write
# a wrong backward that a check with ones can't find) · `scratchformer learn check all_ones`
#
# **Predict.** Divide the dot products of the three words by $d_k = 64$ instead of 8. What are the weights, roughly?
#
# <details><summary>Answer</summary>
#
# The scores are 0, (ln 2) / 8 = 0.09 and (ln 5) / 8 = 0.20. The exponentials, 1, 1.09 and 1.22, are nearly equal. So
# each word gets about a third.
#
# </details>
#
# **Next.** Every query of this page may look at every key. [Lesson 06](06_masks.py) hides keys: padding, and the
# future.
