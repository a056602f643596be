# %% [markdown]
# # 12 · Residual connections and LayerNorm
#
# **Why does "Add & Norm" follow every sublayer of the paper?**
#
# *Needs [lesson 01](01_backprop.py) (chain rule, numeric check) and [lesson 11](11_feed_forward.py) (feed-forward
# network) · you will compute LayerNorm and its gradient with pencil and paper.*

# %% Imports
from types import SimpleNamespace

import numpy as np
import transformer

from support.drawing import Drawing, number
from support.lesson import quote, recorded, same, show, table
from support.numeric import numeric_gradient
from support.stacks import sentences

# %% [markdown]
# Lesson 01 sorted sentences, as bags of words, into 22 kinds. Two linear maps, one after the other, learn to put three
# in four new sentences right. Now put feed-forward networks (lesson 11) between the two maps. (The paper calls these,
# and the attentions, **sublayers**.) If each handed on what it reads, nothing would be lost. But after 400 steps of
# plain gradient descent:

# %% The shares of new sentences
RESULTS = {(row["way"], row["depth"]): row for row in recorded("stacks")["results"]}


def right(way, depth):
    """At the best learning rate of those tried, mean of three runs. -> share"""
    row = RESULTS[way, depth]
    [runs] = [entry["runs"] for entry in row["rates"]
              if entry["rate"] == row["best_rate"]]
    return f"{np.mean([run['curve'][-1][1] for run in runs]):.2f}"


kinds, new = sentences().t, sentences().t_test
guessed = (new == np.bincount(kinds).argmax()).mean()
table(["between the two linear maps", "new sentences put right"],
      [["nothing", right("no stack", 0)], ["12 sublayers", right("bare", 12)],
       ["48 sublayers", right("bare", 48)],
       ["(always the most common kind in training)", f"{guessed:.2f}"]])

# %% [markdown]
# The paper's model has thirty sublayers (18 attentions, 12 feed-forward networks), and it learns. How?
#
# ## The picture
#
# Carry the input *around* the sublayer, and let the sublayer **add** what it has to say, its **update**. This is a
# **residual connection** ([He et al. 2015](https://arxiv.org/abs/1512.03385)): a road, with the sublayers as its side
# streets. But sums can grow. **Layer normalization** ([Ba et al. 2016](https://arxiv.org/abs/1607.06450)), LayerNorm or
# "norm", brings a vector to a fixed size. In the paper it normalizes each sum (**post-LN**). In many later
# models it normalizes what a sublayer reads (**pre-LN**).
#
# Figure 1 shows this for a single number. Every sublayer halves what it reads. A norm here only divides by the size, so
# 1 comes out.

# %% Drawing a road with side streets
def road(drawing, y, way, words, sizes, parts, end):
    """Three sublayers as side streets of one road, and what stands on the road."""
    drawing.text(14, y - 72, way, anchor="start", bold=True)
    drawing.text(14, y - 52, words, "soft", 13, "start")
    drawing.line([(40, y), (650, y)], "forward", 5)
    drawing.polygon([(664, y), (648, y - 9), (648, y + 9)], "forward")
    first = way == "Pre-LN"
    for i, (size, part) in enumerate(zip(sizes, parts)):
        x = 62 + 175 * i                                # here a bar stands on the road
        for height, role, filled in (size, "soft", 0.25), (part, "forward", 0.9):
            drawing.rectangle(x, y - 3 - 13 * height, 22, 26 * height, role, filled,
                              outline=False)
        drawing.text(x + 17, y - 14, f"{size:.3g}", anchor="start")
        if way == "Post-LN" and i:
            fraction = ("2/3", "4/9", "8/27")[i - 1]
            drawing.text(x, y - 42, f"input {fraction}", "forward", 13)
        if i == 3:
            break
        at = x + (97 if first else 72)
        box = drawing.box(at, y + 45, "÷ 2", width=40, height=26, size=14)
        plus = x + (132 if first else 106), y
        drawing.line([(x + 20, y), (x + 20, y + 45), box.left], "soft")
        drawing.line([box.right, (plus[0], y + 45)], "soft")
        drawing.arrow((plus[0], y + 45), (plus[0], y + 12))
        drawing.circle(*plus, 10, "paper", 1)
        drawing.circle(*plus, 10, "forward", words="+")
        if way != "Add":
            draw_norm(drawing, *((x + 48, y + 45) if first else (x + 141, y)))
    for row, line in enumerate(("after 48 boxes:", *end)):
        look = "ink" if row else "soft"
        drawing.text(684, y - 19 + 19 * row, line, look, 14, "start")


def draw_norm(drawing, x, y):
    drawing.rectangle(x, y, 40, 26, "paper", 1)
    drawing.box(x, y, "norm", "plain", 40, 26, 13)


picture = Drawing(800, 510)
road(picture, 105, "Add", "no norm", 1.5 ** np.arange(4), np.ones(4),
     ["280 million"])
road(picture, 265, "Post-LN", "the paper: Add & Norm", np.ones(4),
     1.5 ** -np.arange(4.0), ["1, and the input", "in it: 1 / 280 mill."])
road(picture, 435, "Pre-LN", "later models", 1 + np.arange(4) / 2, np.ones(4),
     ["25, and the input", "in it: 1"])
assert round(1.5**48, -7) == 280e6 and 1 + 48 / 2 == 25
show(picture, "12_road",
     alt="Three roads from left to right, each with three side streets that halve what "
     "they read and add it to the road. Bars on the road show the sums. Add alone: 1, "
     "1.5, 2.25, 3.38, and 280 million after 48 boxes. Post-LN, a norm on the road "
     "after each plus: always 1, but the part of the input in it shrinks to two thirds "
     "of itself with every box. Pre-LN, a norm at the entrance of each side street: 1, "
     "1.5, 2, 2.5, and 25 after 48 boxes; the part of the input stays 1.",
     caption="Bars are as high as the number on the road. Blue is the part of it that "
     "comes from the input, past all sublayers.")

# %% [markdown]
# A sublayer together with its addition and its norm is a **box**. The three roads:
#
# - **Add alone.** Each box makes $x + x / 2 = 1.5 \, x$ of $x$. On the way back the gradient is multiplied by 1.5 in
#   each box, too: it **explodes**. (Without a road, number and gradient are halved in each box: they **vanish**.)
# - **Post-LN.** The norm divides by 1.5 again, so the number keeps its size. So does the gradient, if we take this 1.5
#   as fixed. (The true gradient of a single number is 0, because every positive number becomes 1. A row of many loses
#   only two directions.) The price: past 48 boxes, only 1/280 million of the input, and of the gradient, has
#   come along the road.
# - **Pre-LN.** Each sublayer reads 1 and adds 1/2. The sum grows, but slowly: in the 25, the input is still 1. The
#   gradient comes along the road undivided.
#
# This is why "Add & Norm" follows *every* sublayer of the paper. *Add* lets the input and the gradient past it. And
# because it adds, the sum gets its *Norm*. (Pre-LN models have one more norm, at the end.)
#
# ## By hand
#
# With $f$ for the sublayer, a box of the paper computes
#
# $$u = f(x) \qquad z = x + u \qquad y = \mathrm{LayerNorm}(z)$$
#
# Let it read $x = (1, 0, 4, 3)$, and let the update be $u = (0, 1, 1, 2)$. The sum is $z = (1, 1, 5, 5)$. Its mean is
# 3; subtract it: (−2, −2, 2, 2). The mean of the squares of these deviations, 4, is the **variance** of $z$. Its root,
# 2, is the **standard deviation**. Divide by it: **n = (−1, −1, 1, 1)**, with mean 0 and standard deviation 1.

# %% Drawing LayerNorm
X, U = np.array([1.0, 0, 4, 3]), np.array([0.0, 1, 1, 2])
Z, DN = X + U, np.array([1.0, 0, 0, 0])
C, S = Z - Z.mean(), 2.0                                    # deviations, their size
N = C / S
DC = (DN - N * (DN * N).mean()) / S
DZ = DC - DC.mean()


def box_picture(backward):
    """Figures 2 and 3: one row in its box, without and with its gradients."""
    drawing, heights = Drawing(740, 345), [30, 80, 145, 230, 315]
    names = "x", "u = f(x)", "z = x + u", "z − mean", "n"
    forward, back = [], []
    for y, words, numbers, gradient in zip(heights, names, (X, U, Z, C, N),
                                           (None, DZ, DZ, DC, DN)):
        drawing.text(14, y, words, anchor="start", bold=True)
        forward.append(drawing.vector(200, y, numbers, cell=48))
        if backward and gradient is not None:
            back.append(drawing.matrix(500, y, [[""] * 4], "gradient", 86))
            for i, value in enumerate(gradient):
                x = back[-1].cell(i).x
                if value:
                    words = number(value, sign=True)
                    drawing.gradient(x - 14, y, -value, words, 14, 0.5)
                else:
                    drawing.text(x, y, "0", "gradient", 14, italic=True)
    drawing.text(200, 55, "+", size=17)
    drawing.arrow(forward[1].bottom, forward[2].top)
    for i, step in (2, "− 3"), (3, "÷ 2"):
        drawing.arrow(forward[i].bottom, forward[i + 1].top, label=step)
    if backward:
        drawing.text(500, 30, "dz + what f sends back", "gradient", 14, italic=True)
        for i, step in ((3, "take out the part along n, ÷ 2"),
                        (2, "take out the mean"), (1, "the same to u and to x")):
            drawing.arrow(back[i].top, back[i - 1].bottom, "gradient", step, bend=-0.01)
    else:
        for y, why in (187, "its mean is lost"), (272, "its size is lost"):
            drawing.text(270, y, why, "soft", 14, "start")
    return drawing


show(box_picture(backward=False), "12_norm",
     alt="One vector in its box: x is 1, 0, 4, 3, the update u is 0, 1, 1, 2, their "
     "sum z is 1, 1, 5, 5; minus its mean 3 it is minus 2, minus 2, 2, 2; divided by "
     "2 it is n, minus 1, minus 1, 1, 1.",
     caption="One box: add, subtract the mean, divide by the standard deviation.")

# %% [markdown]
# With the pencil: what is LayerNorm of (10, 10, 50, 50), and of (101, 101, 105, 105)?
#
# <details><summary>Calculate, then unfold</summary>
#
# Both times (−1, −1, 1, 1). The first is (1, 1, 5, 5) **stretched** by 10, the second is (1, 1, 5, 5) **shifted** by
# 100. LayerNorm undoes both.
#
# </details>
#
# ## In general
#
# For one row $z_1, \dots, z_D$, the vector of one position, with two learned vectors $\gamma$ and $\beta$:
#
# $$c_j = z_j - \mathrm{mean}(z) \qquad s = \sqrt{\mathrm{mean}(c^2) + \varepsilon}$$
#
# $$n_j = c_j / s \qquad y_j = \gamma_j n_j + \beta_j$$
#
# The means run over the $D$ numbers of the row. $\varepsilon = 10^{-6}$ is there for a row of equal numbers, where $c$
# is 0. In the file all rows are computed at once: $z$ is (B, T, D), $s$ is (B, T, 1), $\gamma$ and $\beta$ are (D,).
#
# **Why scale and shift again?** Now all *rows* have the same size. $\gamma_j$ can stretch a column, and $\beta_j$ can
# shift it. In one small translator, this lowered the loss from 0.66 to 0.55 ([lab notes
# 12](lab/12_residual_norm_dropout.py#without-gamma-and-beta)).
#
# <!-- widget: norm -->
#
# **Your turn.** Write `layer_norm(x, gamma, beta)` and `add_and_norm(P_drop, sublayer, x, *others, gamma, beta,
# **weights)` in `transformer.py`, first their forward halves. The $z$ of this page is the `x` of `layer_norm`, and the
# file's `mean(x)` is the mean of each row, with the last axis kept. `others` are further inputs of the sublayer:
# attention has two, the memory and the mask; `feed_forward` has none. `sublayer(x, *others, **weights)` gives the
# update and a backward. Then come `keep = dropout(update, P_drop)` (ours until lesson 14), `z = x + keep * update`, and
# `layer_norm` of `z`.
#
# <!-- see: inside?step=encoder.0.self.out | Add & Norm in a trained model -->
#
# ## Backward
#
# In figure 2, let the loss grow with the first number of $n$ alone: $dn = (1, 0, 0, 0)$. Training wants to lower that
# number. What will it do to each number of $z = (1, 1, 5, 5)$: lower it, raise it, or leave it alone?
#
# <details><summary>Make a guess, then unfold: the way back</summary>

# %% Drawing the way back
show(box_picture(backward=True), "12_norm_backward",
     alt="The same drawing, with gradients beside it, read upwards: 1, 0, 0, 0 arrives "
     "at n; 0.375, minus 0.125, 0.125, 0.125 at z minus mean; 0.25, minus 0.25, 0, 0 "
     "at z, and the same at u. Triangles show that training lowers the first number "
     "and raises the second. At x arrives dz and what f sends back.",
     caption="The way back, from below to above. Triangles show where training moves a "
     "number.")

# %% [markdown]
# So $dz = (+0.25, -0.25, 0, 0)$. Why does training leave the 5s alone? Raise the first 5 to 5.1. The mean grows to
# 3.025, so the first deviation is −2.025. But the standard deviation grows, too, to 2.025. So $n_1$ is still −1.00.
#
# </details>
#
# The same, step by step:
#
# - **The size.** A stretch of $c$ = (−2, −2, 2, 2) moves $c$ along $n$, and leaves $n$ as it is. So $dc$ must have no
#   part along $n$. But $dn$ has one, its *projection* on $n$: $\mathrm{mean}_j(dn_j n_j) \cdot n$, here −1/4 · (−1, −1,
#   1, 1). Subtract it: (0.75, −0.25, 0.25, 0.25). (The product with $n$ is now −0.75 + 0.25 + 0.25 + 0.25 = 0.) Divide
#   by 2, as forward did: $dc$ = (0.375, −0.125, 0.125, 0.125).
# - **The mean.** A shift of $z$ changes nothing either. So take out the mean, 0.125, from each: (0.25, −0.25, 0, 0).
# - **The sum.** $z = x + u$, so $dz$ goes to both. Along the road it reaches $x$ as it is. The sublayer's backward
#   turns it into a second share of $dx$.
#
# **The rules in general.** $\gamma$ and $\beta$ are used in every row, so their gradients are sums over all rows:
#
# $$d\beta_j = \sum_{\mathrm{rows}} dy_j \qquad d\gamma_j = \sum_{\mathrm{rows}} dy_j n_j \qquad dn_j = \gamma_j dy_j$$
#
# Then the size. First, how $s$ changes with $c_i$. From $s^2 = \frac{1}{D} \sum_j c_j^2 + \varepsilon$ follows
#
# $$2 s \, \frac{\partial s}{\partial c_i} = \frac{2 c_i}{D} \qquad \frac{\partial s}{\partial c_i} = \frac{c_i}{D s} =
# \frac{n_i}{D}$$
#
# Second, how $n_j = c_j / s$ changes with $s$:
#
# $$\frac{\partial n_j}{\partial s} = -\frac{c_j}{s^2} = -\frac{n_j}{s}$$
#
# $c_i$ reaches $n_i$ directly, and *every* $n_j$ through $s$:
#
# $$dc_i = \frac{dn_i}{s} + \sum_j dn_j \left( -\frac{n_j}{s} \right) \frac{n_i}{D} = \frac{1}{s} \left( dn_i - n_i \,
# \mathrm{mean}_j(dn_j n_j) \right)$$
#
# Last the mean: $dz_i = dc_i - \mathrm{mean}(dc)$. And $\mathrm{mean}(dc) = \mathrm{mean}(dn) / s$, because the mean of
# $n$ is zero. Together:
#
# $$dz_i = \frac{1}{s} \left( dn_i - \mathrm{mean}_j(dn_j) - n_i \, \mathrm{mean}_j(dn_j n_j) \right)$$
#
# $$dx = dz + \mathrm{back}_f(dz)$$
#
# where $\mathrm{back}_f$ is the backward of the sublayer. Try it: what is $dz$ for $z = (1, 3, 5, 7)$ and
# $dn = (0, 0, 0, 1)$?
#
# <details><summary>Calculate, then unfold</summary>
#
# The mean is 4, and $s = \sqrt{5} = 2.236$, so $n$ = (−1.34, −0.45, 0.45, 1.34). The mean of $dn$ is 0.25, and the mean
# of $dn_j n_j$ is 1.34 / 4 = 0.335. The brackets hold (0.2, −0.1, −0.4, 0.3). Divided by $s$: **dz = (0.089, −0.045,
# −0.179, 0.134)**.
#
# </details>
#
# Now finish both functions. In `layer_norm` the sums over all rows run over the axes (0, 1). In `add_and_norm` the
# sublayer's backward gets `keep * dz`, and returns a tuple: `(dx,)` of `feed_forward`, `(dx, dmemory)` of attention.
# Return such a tuple, too, with the $dx$ of the last formula. Check with `scratchformer learn check layer_norm
# add_and_norm`.

# %%
quote("layer_norm", "add_and_norm")

# %% The check, and the line of PyTorch
random = np.random.default_rng(12)


def weight(*shape):
    data = random.normal(size=shape)
    return SimpleNamespace(data=data, grad=0 * data)


def network():
    """Weights of a feed-forward network, d_model 6 and d_ff 10"""
    shapes = {"W_1": (6, 10), "b_1": (10,), "W_2": (10, 6), "b_2": (6,)}
    return {name: weight(*shape) for name, shape in shapes.items()}


def of_box(x):
    return transformer.add_and_norm(0.0, transformer.feed_forward, x, **weights, **norm)


# gamma = 1 would hide a gamma in the wrong place (lab notes 12), so ours is random
weights, norm = network(), {"gamma": weight(6), "beta": weight(6)}
x, dy = random.normal(size=(2, 2, 3, 6))                                # (B, T, D) both
y, backward = of_box(x)
dx, = backward(dy)
same("dx of a box, and finite differences", dx,
     numeric_gradient(lambda x: (of_box(x)[0] * dy).sum(), x), 1e-7)
gamma, start = norm["gamma"], norm["gamma"].data


def moved(data):
    gamma.data = data
    loss = (of_box(x)[0] * dy).sum()
    gamma.data = start
    return loss


same("dgamma", gamma.grad, numeric_gradient(moved, start), 1e-7)
plain = {"gamma": SimpleNamespace(data=np.ones(4), grad=np.zeros(4)),
         "beta": SimpleNamespace(data=np.zeros(4), grad=np.zeros(4))}
dz = transformer.layer_norm(np.array([[[1.0, 3, 5, 7]]]), **plain)[1](
    np.array([[[0.0, 0, 0, 1]]]))
assert np.allclose(dz, [0.089, -0.045, -0.179, 0.134], atol=5e-4)
try:
    import torch
except ImportError:
    torch = None
if torch:
    z = torch.tensor(x, requires_grad=True)
    theirs = torch.nn.functional.layer_norm(
        z, [6], torch.tensor(gamma.data), torch.tensor(norm["beta"].data), 1e-6)
    theirs.backward(torch.tensor(dy))
    ours, backward = transformer.layer_norm(x, **norm)
    assert np.allclose(ours, theirs.detach()) and np.allclose(backward(dy), z.grad)

# %% [markdown]
# ## Does it matter?
#
# - **What goes in:** the task of the opening.
# - **What is changed:** the box. There are five: nothing around the sublayer, $f(x)$; *norm alone*,
#   $\mathrm{LN}(f(x))$; *Add alone*, $x + f(x)$; *the paper*, $\mathrm{LN}(x + f(x))$; *pre-LN*,
#   $x + f(\mathrm{LN}(x))$.
# - **Control:** another start of $W_2$. *Larger* is multiplied by √2, so that $f(x)$ is about as large as $x$. *Small*
#   is divided by the root of the number of boxes, so that updates start small beside the sum.
# - **What is measured:** before training, how many times larger a gradient is at the input of 48 boxes than at their
#   end. After training, the share of new sentences put right (best learning rate of those tried, mean of three runs).

# %% Five kinds of boxes, from the functions of our file
def box(way, x, weights, norm):
    """-> y, and backward: dy -> dx"""
    if way == "post-LN":                                     # the paper
        y, backward = transformer.add_and_norm(
            0.0, transformer.feed_forward, x, **weights, **norm)
        return y, lambda dy: backward(dy)[0]
    first, last = (transformer.layer_norm if each else unchanged
                   for each in (way == "pre-LN", way == "norm only"))
    read, first_backward = first(x, **norm)
    u, f_backward = transformer.feed_forward(read, **weights)
    y, last_backward = last(u, **norm)
    road = way in ("residual only", "pre-LN")
    return road * x + y, lambda dy: (
        road * dy + first_backward(f_backward(last_backward(dy))[0]))


def unchanged(x, gamma, beta):
    return x, lambda dx: dx


# %% Sending a gradient back through 48 boxes
def glorot(factor=1.0):
    """The start of the trained stacks: uniform within ±√(6 / (32 + 32))"""
    data = factor * random.uniform(-1, 1, (32, 32)) * (6 / 64) ** 0.5
    return SimpleNamespace(data=data, grad=0 * data)


def vector(value):
    return SimpleNamespace(data=np.full(32, value), grad=np.zeros(32))


def size(x):
    return np.sqrt((x**2).mean())                            # root mean square


def passage(way, factor=1.0, n=48):
    """-> size of the output; gradient at the input / at the end; what is left of x;
    update / sum in the first box and in the last"""
    x, backwards, left, updates = random.normal(size=(8, 8, 32)), [], 1, []
    for _ in range(n):
        weights = {"W_1": glorot(), "b_1": vector(0.0),
                   "W_2": glorot(factor), "b_2": vector(0.0)}
        norm = {"gamma": vector(1.0), "beta": vector(0.0)}
        if way == "post-LN":                                 # what its norm divides by
            u, _ = transformer.feed_forward(x, **weights)
            left = left / (x + u).std(axis=-1)
            updates.append(size(u) / size(x + u))
        before = x
        x, backward = box(way, x, weights, norm)
        if way in ("residual only", "pre-LN"):
            updates.append(size(x - before) / size(x))
        backwards.append(backward)
    output = size(x)
    dx = random.normal(size=x.shape)
    if way == "pre-LN":                                   # one more after the last box
        dx = transformer.layer_norm(x, vector(1.0), vector(0.0))[1](dx)
    end = size(dx)
    for backward in reversed(backwards):
        dx = backward(dx)
    first, last = (updates[0], updates[-1]) if updates else (1, 1)
    return output, size(dx) / end, np.exp(np.log(left).mean()), first, last


# %% [markdown]
# With 48 boxes and the usual start, which of the five put more than a third of the new sentences right? (a) All three
# with a road. (b) Only the two with road and norm. (c) Only pre-LN.
#
# <details><summary>Make a guess, then unfold</summary>

# %% The table
SMALL = 48**-0.5
WAYS = {"bare": ("bare", "f(x)", 1.0),
        "bare, larger W_2": ("bare", "f(x), larger start", 2**0.5),
        "norm only": ("norm only", "norm alone: LN(f(x))", 1.0),
        "residual only": ("residual only", "Add alone: x + f(x)", 1.0),
        "residual only, smaller W_2":
            ("residual only", "Add alone, small start", SMALL),
        "post-LN": ("post-LN", "the paper: LN(x + f(x))", 1.0),
        "post-LN, smaller W_2": ("post-LN", "the paper, small start", SMALL),
        "pre-LN": ("pre-LN", "pre-LN: x + f(LN(x))", 1.0)}
logs = {name: np.mean([np.log(passage(way, factor)) for _ in range(20)], axis=0)
        for name, (way, _, factor) in WAYS.items()}
output, gradient, left, first, last = (
    {name: np.exp(each[i]) for name, each in logs.items()} for i in range(5))
assert 5000 < output["residual only"] < 20000
assert output["residual only, smaller W_2"] < 2
assert 1 / 7000 < left["post-LN"] < 1 / 5000
assert 0.8 < left["post-LN, smaller W_2"] < 0.85
assert 0.55 < first["pre-LN"] < 0.62 and 0.13 < last["pre-LN"] < 0.15
for name in "residual only, smaller W_2", "post-LN, smaller W_2":
    assert 0.08 < last[name] < 0.12 and 0.08 < first[name] < 0.12


def in_words(ratio):
    """One figure: 0.00000003, 0.9, 20,000"""
    if ratio < 0.1:
        return np.format_float_positional(ratio, 1, fractional=False)
    return f"{float(f'{ratio:.1g}'):,g}"


table(["a box computes", "gradient, input : end", "put right, 12", "put right, 48"],
      [[words, in_words(gradient[name]), right(name, 12), right(name, 48)]
       for name, (_, words, _) in WAYS.items()])

# %% [markdown]
# (b).
#
# - **f(x):** the gradient vanishes. With the larger start it vanishes less.
# - **Add alone:** the gradient explodes, and so do the outputs, to about 10,000. The small start prevents both.
# - **Norm alone, and the paper's box with 48:** the gradient changes little, and they still learn badly. So its size
#   can't be the whole reason. For the paper's box, figure 1 suggests another: before training, only 1/6,000 of the
#   input arrives past all 48 sublayers. With the small start it is 0.8, and it learns. That fits, but doesn't prove it:
#   the small start also allows ten times the learning rate.
#
# </details>
#
# Of the stacks of 48, three put more than half of the new sentences right. All have a road. With a small start but no
# norm, the share is 0.55; with both, 0.75. Pre-LN (0.71) starts with larger updates: before training, the first is 0.6
# of the sum, the last 0.14.
#
# But no stack clearly beats "nothing" (0.75): this task needs no depth. So the table shows how little 48 boxes harm,
# not what they are good for. A small start, close to no boxes, has it easy. Not tested: attention, a
# [warm-up](15_adam_and_warmup.py), more than two starts without a road. (All rates and seeds: [lab notes
# 12](lab/12_residual_norm_dropout.py#all-rates-and-seeds).)
#
# **Today.** Many large models, such as [Llama](https://arxiv.org/abs/2302.13971), are pre-LN, which can train without a
# warm-up ([Xiong et al. 2020](https://arxiv.org/abs/2002.04745)). Llama's norm is **RMSNorm** ([Zhang and Sennrich
# 2019](https://arxiv.org/abs/1910.07467)): $y_j = \gamma_j x_j / \sqrt{\mathrm{mean}(x^2) + \varepsilon}$.
# It subtracts no mean and has no $\beta$ ([lesson 23](23_block_of_2026.py)).
#
# ## Paper and code
#
# - §3.1, without a formula for LayerNorm.
# - PyTorch: `F.layer_norm(z, [D], gamma, beta, eps=1e-6)` (its default is $\varepsilon = 10^{-5}$).
# - In the library: `layer_norm` in [nn/ops.py](../scratchformer/nn/ops.py), `PostNorm` and `PreNorm` in
#   [nn/residual.py](../scratchformer/nn/residual.py).
#
# ## What to remember
#
# A residual connection carries the input, and the gradient, around a sublayer, which only adds its update. The paper
# normalizes every sum: LayerNorm brings each row to mean 0 and standard deviation 1. On the way back it takes out the
# two directions that it ignores, shift and stretch, and divides by the standard deviation.
#
# **Test yourself.**
#
# 1. What is LayerNorm of (2, 4, 4, 6, 6, 8, 8, 10), without $\gamma$ and $\beta$?
# 2. $z = (1, 1, 5, 5)$, as on this page, and $dn = (-1, -1, 1, 1)$. What is $dz$?
# 3. Each sublayer computes $f(x) = x / 48$. How much does the gradient grow through 48 boxes of Add alone?
#
# <details><summary>Answers</summary>
#
# 1. The mean is 6, and the deviations are (−4, −2, −2, 0, 0, 2, 2, 4), divided by √6 = 2.45: (−1.63, −0.82, −0.82, 0,
#    0, 0.82, 0.82, 1.63).
# 2. Zero: this $dn$ is $n$ itself, a stretch, and LayerNorm undoes that.
# 3. $(1 + 1/48)^{48}$ = 2.69 times.
#
# </details>
#
# **Yours:** `layer_norm`, `add_and_norm`, and the hunt `broken_norm` (a LayerNorm with five bugs) · `scratchformer
# learn check 12`
#
# **Next:** [13 · Encoder, decoder, the whole model](13_whole_model.py).
