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

# %% [markdown]
# Take the sentences of lesson 01, as bags of words, each with one of 22 constructions to find. One linear map learns
# that well. Now put feed-forward networks (lesson 11) between the words and the scores, one after the other. Each is
# called a **sublayer**. The stack could simply pass on what it reads. Here is what 400 steps of plain gradient descent
# make of it:

# %% The shares of new sentences
RESULTS = {(row["way"], row["depth"]): row for row in recorded("stacks")["results"]}


def right(way, depth):
    """At the best learning rate of those tried, mean of three runs. -> share"""
    row = RESULTS[way, depth]
    [runs] = [entry["runs"] for entry in row["rates"]
              if entry["rate"] == row["best_rate"]]
    return f"{np.mean([run['curve'][-1][1] for run in runs]):.2f}"


table(["between words and scores", "new sentences put right"],
      [["nothing", right("no stack", 0)], ["12 sublayers", right("bare", 12)],
       ["48 sublayers", right("bare", 48)],
       ["(always the most common construction)", "0.12"]])

# %% [markdown]
# The paper's model has thirty sublayers. What does it do about this?
#
# ## The picture
#
# Carry the input *around* the sublayer, and let the sublayer **add** what it has to say, its **update**. This is a
# **residual connection** (He et al. 2015). But adding can make numbers grow. **Layer normalization**, LayerNorm for
# short (Ba et al. 2016), gives a vector a fixed size. It can stand in two places:

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
        draw_norm(drawing, *((x + 26, y + 62) if first else (x + 164, y)))
    if first:
        draw_norm(drawing, 735, y)


def draw_norm(drawing, x, y):
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
     caption="The way around is a road, and the sublayers are its side streets. "
     "Post-LN normalizes every sum on the road, pre-LN only what enters a side street.")

# %% [markdown]
# **The paper is post-LN** (§3.1): it normalizes the sum. **Pre-LN** normalizes what the sublayer reads. We call a
# sublayer, together with its addition and its norm, a **box**. With $f$ for the sublayer, a box of the paper computes
#
# $$u = f(x) \qquad z = x + u \qquad y = \mathrm{LayerNorm}(z)$$
#
# (Dropout of $u$ is for lesson 14; here nothing is dropped.)
#
# ## By hand
#
# **Adding.** Let $x$ be one number, and let every sublayer halve it: $f(x) = x / 2$. Twelve such sublayers make $x /
# 4096$ out of $x$. Now add: each makes $x + x / 2 = 1.5 \, x$, and twelve of them make $130 \, x$. With 48 it is 280
# million times $x$. The same factors multiply the gradient on its way back. So with this $f$ the gradient **vanishes**
# without the road and **explodes** with it, because the larger the sum, the larger the next update. Both places of the
# norm stop that. Post-LN brings every sum back to one size. In pre-LN each sublayer reads numbers of size 1, so its
# update doesn't grow with the sum.
#
# **LayerNorm.** Let a box read $x = (1, 0, 4, 3)$, and let its update be $u = (0, 1, 1, 2)$. The sum is $z = (1, 1, 5,
# 5)$. Its mean is 3; subtract it: (−2, −2, 2, 2). The mean of the squares of these deviations, 4, is the **variance**
# of $z$. Its root, 2, is the **standard deviation**. Divide by it: **n = (−1, −1, 1, 1)**, with mean 0 and standard
# deviation 1.

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
# Now your turn with the pencil: what is LayerNorm of (10, 10, 50, 50), and of (101, 101, 105, 105)?
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
# The means run over the $D$ numbers of the row. $s$ is the standard deviation; $\varepsilon = 10^{-6}$ is there for a
# row of equal numbers, where $c$ is 0. In the file all rows are computed at once: $z$ is (B, T, D), $s$ is (B, T, 1),
# $\gamma$ and $\beta$ are (D,).
#
# **Why scale and shift again?** After the division all *rows* have the same size: the length of $n$ is $\sqrt{D}$,
# whatever $z$ was. The model may want larger numbers, or some columns larger than others: $\gamma_j$ stretches column
# $j$ in all rows alike. In a small translator the $\gamma$ of the last norm grew from 1 to about 1.6. Without $\gamma$
# and $\beta$ its loss ended at 0.66 instead of 0.55 ([lab notes
# 12](lab/12_residual_norm_dropout.py#without-gamma-and-beta)).
#
# **Your turn.** Write `layer_norm(x, gamma, beta)` and `add_and_norm(P_drop, sublayer, x, *others, gamma, beta,
# **weights)` in `transformer.py`, first their forward halves. `add_and_norm` calls `sublayer(x, *others, **weights)`,
# which gives the update and a backward. Then come `keep = dropout(update, P_drop)`, `z = x + keep * update`, and
# `layer_norm` of `z`. (`dropout` is ours until lesson 14.)
#
# ## Backward
#
# In figure 2, let the loss grow with the first number of $n$ alone: $dn = (1, 0, 0, 0)$. Training wants to lower that
# number. What will it do to the four numbers of $z = (1, 1, 5, 5)$: lower, raise or leave alone? Remember what
# LayerNorm loses, and decide before you look.

# %% Drawing the way back
show(box_picture(backward=True), "12_norm_backward",
     alt="The same drawing, with gradients beside it, read upwards: 1, 0, 0, 0 arrives "
     "at n; 0.375, minus 0.125, 0.125, 0.125 at z minus mean; 0.25, minus 0.25, 0, 0 "
     "at z, and the same at u. Triangles show that training lowers the first number "
     "and raises the second. At x arrives dz and what f sends back.",
     caption="The way back, from below to above. Triangles show where training moves a "
     "number: against its gradient.")

# %% [markdown]
# The result is $dz = (+0.25, -0.25, 0, 0)$. Training lowers the first number and raises the second. The other two get
# *exactly* 0 here. Step by step:
#
# - **The size.** If all numbers of $c$ = (−2, −2, 2, 2) are stretched alike, $n$ stays as it is. So the part of $dn$
#   that points along $n$ has no effect, and it is taken out. This part is $n$ times $\sum_j dn_j n_j / \sum_j n_j n_j$.
#   The lower sum is $D$, because the squares of $n$ have mean 1. So the factor is the *mean* of $dn_j n_j$, here −1/4,
#   and the part is −1/4 · (−1, −1, 1, 1). What is left is (0.75, −0.25, 0.25, 0.25). Divide by 2, as forward did:
#   (0.375, −0.125, 0.125, 0.125).
# - **The mean.** If all numbers of $z$ are shifted alike, $c$ stays as it is. So take out the mean, 0.125: (0.25,
#   −0.25, 0, 0).
# - **The sum.** $z = x + u$, so $dz$ goes to both. From $u$ it goes on through the sublayer, whose backward turns it
#   into a second share of $dx$.
#
# **The rules in general.** $\gamma$ and $\beta$ are used in every row, so their gradients are sums over all rows:
#
# $$d\beta_j = \sum_{\mathrm{rows}} dy_j \qquad d\gamma_j = \sum_{\mathrm{rows}} dy_j n_j \qquad dn_j = \gamma_j dy_j$$
#
# Then the size. From $s^2 = \frac{1}{D} \sum_j c_j^2 + \varepsilon$ follows $2 s \, \partial s / \partial c_i = 2 c_i /
# D$, and from $n_j = c_j / s$ how $n_j$ changes with $s$:
#
# $$\frac{\partial s}{\partial c_i} = \frac{c_i}{D s} = \frac{n_i}{D} \qquad \frac{\partial n_j}{\partial s} =
# -\frac{c_j}{s^2} = -\frac{n_j}{s}$$
#
# $c_i$ reaches $n_i$ directly, and *every* $n_j$ through $s$:
#
# $$dc_i = \frac{dn_i}{s} + \sum_j dn_j \left( -\frac{n_j}{s} \right) \frac{n_i}{D} = \frac{1}{s} \left( dn_i - n_i \,
# \mathrm{mean}_j(dn_j n_j) \right)$$
#
# Last the mean: $dz_i = dc_i + \sum_j dc_j \cdot (-1/D)$. Because $n$ has mean 0, both steps can be written as one:
#
# $$dz_i = \frac{1}{s} \left( dn_i - \mathrm{mean}_j(dn_j) - n_i \, \mathrm{mean}_j(dn_j n_j) \right)$$
#
# $$dx = dz + \mathrm{back}_f(dz)$$
#
# where $\mathrm{back}_f$ is the backward of the sublayer. Try the formula on four different numbers: what is $dz$ for
# $z = (1, 3, 5, 7)$ and $dn = (0, 0, 0, 1)$?
#
# <details><summary>Calculate, then unfold</summary>
#
# The mean is 4, and $s = \sqrt{5} = 2.236$, so $n$ = (−1.34, −0.45, 0.45, 1.34). The mean of $dn$ is 0.25, and the mean
# of $dn_j n_j$ is 1.34 / 4 = 0.335. The brackets hold (0.2, −0.1, −0.4, 0.3). Divided by $s$: **dz = (0.089,
# −0.045, −0.179, 0.134)**. Its sum is 0.
#
# </details>
#
# Now finish both functions. In `layer_norm` the sums over all rows run over the axes (0, 1). In `add_and_norm` the
# sublayer's backward gets `keep * dz`, and returns a tuple: the gradient of its $x$, then those of `others`. Return
# such a tuple, too: `(dx, *dothers)`, with the $dx$ of the last formula. Check with `scratchformer learn check
# layer_norm add_and_norm`.

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
# (The check uses a random $\gamma$. One public NumPy Transformer multiplies by $\gamma$ *after* the two means are taken
# out, and with $\gamma = 1$ a check doesn't find that.)
#
# ## Does it matter?
#
# - **What goes in:** the task of the opening. $D = F = 32$.
# - **What is changed:** what a box computes.
# - **What is measured:** before training, a random gradient of length 1 is sent back through 48 boxes; how long is what
#   arrives? After training with 12 and with 48 boxes, which share of new sentences is put right? (Best learning rate of
#   those tried, mean of three runs.)
# - **Control:** two rows have another start, too: $W_2$ times √2 for *bare*, and divided by the root of the
#   number of boxes for *residual only*.

# %% Five kinds of boxes, from the functions of our file
def box(way, x, weights, norm):
    """-> y, and backward: dy -> dx"""
    if way == "post-LN":                                     # the paper
        y, back = transformer.add_and_norm(
            0.0, transformer.feed_forward, x, **weights, **norm)
        return y, lambda dy: back(dy)[0]
    read, first = transformer.layer_norm(x, **norm) if way == "pre-LN" else (x, None)
    u, back = transformer.feed_forward(read, **weights)
    if way == "bare":
        return u, lambda dy: back(dy)[0]
    if way == "norm only":
        y, last = transformer.layer_norm(u, **norm)
        return y, lambda dy: back(last(dy))[0]
    if way == "residual only":
        return x + u, lambda dy: dy + back(dy)[0]
    return x + u, lambda dy: dy + first(back(dy)[0])         # pre-LN


# %% Sending a gradient through 48 boxes
def glorot(factor=1.0):
    """The start of the trained stacks: uniform within ±√(6 / (32 + 32))"""
    data = factor * random.uniform(-1, 1, (32, 32)) * (6 / 64) ** 0.5
    return SimpleNamespace(data=data, grad=0 * data)


def vector(value):
    return SimpleNamespace(data=np.full(32, value), grad=np.zeros(32))


def passage(way, factor=1.0, n=48):
    """-> length of the gradient that arrives; two outputs' cosine; their size"""
    x, dy = random.normal(size=(2, 8, 8, 32))
    dy, backs, y = dy / np.linalg.norm(dy), [], x
    for _ in range(n):
        weights = {"W_1": glorot(), "b_1": vector(0.0),
                   "W_2": glorot(factor), "b_2": vector(0.0)}
        y, back = box(way, y, weights, {"gamma": vector(1.0), "beta": vector(0.0)})
        backs.append(back)
    size = np.sqrt((y**2).mean())
    if way == "pre-LN":                                 # one more after the last box
        y, back = transformer.layer_norm(y, vector(1.0), vector(0.0))
        backs.append(back)
    for back in reversed(backs):
        dy = back(dy)
    rows = y.reshape(64, 32)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    alike = (rows @ rows.T)[~np.eye(64, dtype=bool)].mean()
    return np.linalg.norm(dy), alike, size


# %% [markdown]
# Which two rows will learn best with 48 sublayers?
#
# <details><summary>Make a guess, then unfold</summary>

# %% The table
WAYS = [("bare", "bare", "f(x)", 1.0),
        ("bare", "bare, larger W_2", "f(x), larger W₂", 2**0.5),
        ("norm only", "norm only", "norm only: LN(f(x))", 1.0),
        ("residual only", "residual only", "residual only: x + f(x)", 1.0),
        ("residual only", "residual only, smaller W_2", "x + f(x), smaller W₂",
         48**-0.5),
        ("post-LN", "post-LN", "post-LN, the paper: LN(x + f(x))", 1.0),
        ("pre-LN", "pre-LN", "pre-LN: x + f(LN(x))", 1.0)]


def shown(length):
    """One digit: 20,000 or 0.2 or 1e-08"""
    return f"{float(f'{length:.1g}'):,.0f}" if length > 10 else f"{length:.1g}"


found = {name: np.array([passage(way, factor) for _ in range(8)])
         for way, name, _, factor in WAYS}
arriving = {name: np.exp(np.log(each[:, 0]).mean()) for name, each in found.items()}
alike = {name: each[:, 1].mean() for name, each in found.items()}
size = {name: np.exp(np.log(each[:, 2]).mean()) for name, each in found.items()}
assert alike["norm only"] > 0.99 and 0.45 < alike["pre-LN"] < 0.55
assert 4 < size["pre-LN"] < 5.5 and size["residual only"] > 1e4
table(["a box computes", "gradient that arrives", "put right, 12", "put right, 48"],
      [[words, shown(arriving[name]), right(name, 12), right(name, 48)]
       for _, name, words, _ in WAYS])

# %% [markdown]
# With 12 boxes either part helps, and both together come close to the 0.75 of no stack. With 48 boxes:
#
# - **Bare:** next to nothing arrives. A larger start mends the length, and still little is learned.
# - **Norm only** keeps the length, too, and stays at chance level (0.12). Before training, the outputs for two random
#   inputs have a cosine above 0.99 on average (pre-LN: about 0.5): what told the inputs apart is lost on the way.
# - **Residual only** explodes. With a smaller start it learns without any norm.
# - **Both parts** learn with the weights as they are: pre-LN well, post-LN slowly.
#
# </details>
#
# So deep stacks need the road, and the updates must not grow with the sums on it. Pre-LN never normalizes a sum, and
# its sums do grow, but slowly: before training, from size 1 to about 5 over 48 boxes, and those of *residual only* to
# more than 10,000. The reason: in pre-LN each update is computed from a normalized row, and on the way back the
# gradient through $f$ is divided by $s$. A small start can replace the norm: **Fixup** (Zhang et al. 2019) starts the
# weights in the sublayers smaller the deeper the stack is, and the last layer of each sublayer at zero. (All rates and
# seeds: [lab notes 12](lab/12_residual_norm_dropout.py#all-rates-and-seeds). What warm-up changes for post-LN: [lesson
# 15](15_adam_and_warmup.py).)
#
# **Today.** Nearly all large models are pre-LN, and most have replaced LayerNorm by **RMSNorm** (Zhang and Sennrich
# 2019): $y_j = \gamma_j x_j / \sqrt{\mathrm{mean}(x^2) + \varepsilon}$. It subtracts no mean and has no $\beta$. That
# is less work, and models learn as well. Its backward is ours without the term for the mean.
#
# ## Paper and code
#
# - §3.1: residual connections and LayerNorm, without a formula for LayerNorm.
# - PyTorch: `F.layer_norm(z, [D], gamma, beta, eps=1e-6)` (compared above, also its gradient; its default is
#   $\varepsilon = 10^{-5}$).
# - In the library: `layer_norm` in [nn/ops.py](../scratchformer/nn/ops.py), `PostNorm` and `PreNorm` in
#   [nn/residual.py](../scratchformer/nn/residual.py).
# - *Others differ:* the Annotated Transformer divides the variance by $D - 1$ and adds $\varepsilon$ outside the root,
#   so the weights of one program can't be used in the other.
#
# ## What to remember
#
# A residual connection carries the input around a sublayer, so the sublayer only adds what it has to say. LayerNorm
# brings each row to mean 0 and standard deviation 1. On the way back it takes out the two directions that it ignores,
# shift and stretch, and divides by the standard deviation.
#
# **Three questions.**
#
# 1. What is LayerNorm of (2, 4, 4, 6, 6, 8, 8, 10), without $\gamma$ and $\beta$? (The mean of the squares of the
#    deviations is 6.)
# 2. $z = (1, 1, 5, 5)$, as on this page, and $dn = (-1, -1, 1, 1)$. What is $dz$?
# 3. Each sublayer computes $f(x) = x / 48$. How much does the gradient grow through 48 boxes with a residual connection
#    and without a norm?
#
# <details><summary>Answers</summary>
#
# 1. The mean is 6, and the deviations are (−4, −2, −2, 0, 0, 2, 2, 4), divided by √6 = 2.45: (−1.63, −0.82, −0.82, 0,
#    0, 0.82, 0.82, 1.63).
# 2. Zero. This $dn$ is $n$ itself, so it asks for a row that is stretched more, and LayerNorm undoes that.
# 3. $(1 + 1/48)^{48}$ = 2.69 times, nearly $e$. With $f(x) = x / 2$ it was 280 million.
#
# </details>
#
# **Yours:** `layer_norm`, `add_and_norm`, and the hunt `broken_norm` (a LayerNorm with five bugs)
#
# **Next:** [13 · The whole model](13_whole_model.py). Sources: [He et al.
# 2015](https://arxiv.org/abs/1512.03385), [Ba et al. 2016](https://arxiv.org/abs/1607.06450), [Zhang et al.
# 2019](https://arxiv.org/abs/1901.09321), [Xiong et al. 2020](https://arxiv.org/abs/2002.04745) on where the
# norm stands.
