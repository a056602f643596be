# %% [markdown]
# # Lab notes 12 · Residual connections, LayerNorm and dropout
#
# The controls and side experiments of [lesson 12](../12_residual_norm_dropout.py): five ways to stack sublayers at
# equal steps, why the gradient grows without a norm, what is left of the input in a deep stack, what a gradient check
# of LayerNorm must contain, and two claims one often reads.

# %% Imports
import course  # noqa: F401  finds lessons/support

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import FeedForward, LayerNorm
from support.lesson import QUICK, measure, recorded, same, show, table
from support.stacks import KINDS, WAYS, Block, Passage

random = np.random.default_rng(12)

# %% [markdown]
# ## Experiment 1: five ways at equal steps
#
# The sentences of lesson 01 as bags of words, 22 constructions. Between two linear maps stand 12 or 48 feed-forward
# networks of width 32, in boxes of five kinds. Plain gradient descent on 64 sentences a step, 400 steps, three seeds.
# The best rate of a way has the lowest mean *training* loss in the last 40 steps, so the new sentences have no part
# in the choice. A dash: the loss overflowed. Recorded by [benchmarks/stacks.py](../../benchmarks/stacks.py).

# %% All rates
result = recorded("stacks")


def at(entry, step):
    """-> the share of new sentences put right after so many steps, for each seed"""
    return [new for run in entry["runs"]
            for when, new, _ in run["curve"] if when == step]


rows = []
for row in result["results"]:
    for entry in row["rates"]:
        ended = all(run["ended"] for run in entry["runs"])
        best = " (best)" if entry["rate"] == row["best_rate"] else ""
        means = [f"{np.mean(at(entry, step)):.2f}" if ended else "–"
                 for step in (80, 400)]
        seeds = ", ".join(f"{new:.2f}" for new in at(entry, 400))
        rate = f"{entry['rate']:g}{best}"
        rows.append([row["depth"], row["way"], rate, *means, seeds])
table(["depth", "way", "rate", "after 80 steps", "after 400", "the seeds, after 400"],
      rows)

# %% [markdown]
# - With 12 sublayers the order is bare (0.24), norm only (0.45), residual only (0.63), then post-LN and pre-LN (0.70
#   both). None does better than no stack at all (0.75), since the task needs no depth. pre-LN is best at the highest
#   rate tried.
# - With 48, norm only stays at chance level (0.12 is the most common construction) at all three rates, and so does
#   residual only, with a highest rate of 0.00001.
# - With 48, post-LN is slow and not dead. At its best rate it has 0.25 after 80 steps and 0.40 after 400, with a
#   training loss of 1.34 that is still falling. Pre-LN has 0.46 and 0.71, and a training loss of 0.005. At 0.03,
#   three times its best rate, post-LN ends at 0.28.
# - We don't know where post-LN would end with more steps, or with a warm-up ([lab notes 15](15_adam_and_warmup.py)).

# %% The boxes have the right gradient
x = random.normal(size=(2, 3, 6))
for way in WAYS:
    box = Block(way, FeedForward(6, 10, random, "float64"), 6, "float64")
    measure(f"gradcheck, {way}: worst error", gradcheck(box, x).worst.error, 0, 1e-6)

# %% [markdown]
# ## Experiment 2: why the gradient grows without a norm
#
# A stack of 48 sublayers before training, with residual connections and no norm ($D = 32$, four heads, 4 sentences of
# 12 words, float64). The output gets a random gradient of length 1. *Fixed* is a control with the same forward pass:
# backward takes the weights of attention for constants, so nothing flows back through the scores. Geometric means.

# %% Residual only
SEEDS = range(4 if QUICK else 8)
rows, found = [], {}
for kind in KINDS:
    for fixed in False, True:
        stacks = [Passage("residual only", seed, kind=kind, fixed_weights=fixed)
                  for seed in SEEDS]
        size = np.exp(np.mean([np.log(passage.sizes[-1]) for passage in stacks]))
        lengths = np.array([passage.gradients[0] for passage in stacks])
        found[kind, fixed] = np.exp(np.log(lengths).mean())
        rows.append([kind, "fixed" if fixed else "free", f"{size:,.0f}",
                     f"{found[kind, fixed]:.1e}",
                     f"{lengths.min():.0e} to {lengths.max():.0e}"])
table(["sublayers", "weights of attention", "size of output", "gradient", "the seeds"],
      rows)
for kind, fixed, lo, hi in [("both", False, 1e6, 1e8), ("both", True, 500, 3500),
                            ("feed-forward only", False, 300, 2000),
                            ("attention only", False, 5e3, 1e6),
                            ("attention only", True, 1500, 15_000)]:
    measure(f"{kind}, {'fixed' if fixed else 'free'}: gradient", found[kind, fixed],
            lo, hi)

# %% [markdown]
# (The input has size 1, the gradient at the output length 1.)
#
# - In a stack of feed-forward networks alone the gradient grows about as much as the sum does.
# - With attention there is more. Fixing the weights of attention brings the gradient back to about the growth of the
#   sum: from 8 million to 1,300 in the mixed stack. So the way through the scores explains the rest, a factor of
#   several thousand. A score is a product of query and key, its derivative with respect to one is the other, and both
#   grow with the sum.
# - The mixed stack is worse than attention alone, although its sum grows less. Why, we haven't tested.
#
# ## Experiment 3: what is left of the input
#
# The same stack on the way up: the cosine between the input and what the stack has made of it, row by row and without
# the rows' means, in all five ways.

# %% Up through 48 sublayers
STYLES = {"bare": ("#888888", ":"), "norm only": ("black", (0, (1, 1, 4, 1))),
          "residual only": (LIGHT, "-"), "post-LN": (DARK, "-"),
          "pre-LN": (ACCENT, "--")}
likeness = {way: np.mean([Passage(way, seed).likeness for seed in SEEDS], axis=0)
            for way in WAYS}
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for way, (colour, style) in STYLES.items():
    axes.plot([1, *likeness[way]], ls=style, color=colour, lw=2, label=way)
axes.set(xlabel="sublayer, from the input", ylabel="cosine with the input")
axes.legend(fontsize=9)
show(figure, "12_lab_likeness",
     alt="Cosine of the input and the output of each of 48 sublayers. Bare and norm "
     "only fall to about 0 after one sublayer, residual only and post-LN after about "
     "twenty. Pre-LN falls slowly and still has about 0.3 at the end.",
     caption="What is left of the input on the way up. Only pre-LN still carries a "
     "part of it through 48 sublayers.")
bands = [(-0.1, 0.1), (-0.1, 0.1), (-0.1, 0.2), (-0.1, 0.15), (0.2, 0.6)]
for way, band in zip(WAYS, bands):
    measure(f"{way}: cosine after 48 sublayers", likeness[way][-1], *band)

# %% [markdown]
# A model of it: say that an update made from numbers of size 1 has variance $c$. In post-LN every sublayer reads such
# numbers, and the norm after the addition shrinks what the sum holds of the input by $\frac{1}{\sqrt{1 + c}}$, box
# after box. In *residual only* the sublayer reads the growing sum, so its update grows with it, and the same share is
# lost. In pre-LN every update has variance $c$ while the sum grows: of its variance $1 + 48 c$ one part is still the
# input, a cosine of $\frac{1}{\sqrt{1 + 48 c}}$. This agrees with the figure. It isn't proved to be why pre-LN learns
# faster.
#
# ## Experiment 4: what a check of LayerNorm must contain
#
# In a public NumPy Transformer $\gamma$ is multiplied in *after* the two means are taken out of $dn$. A check with
# $\gamma = 1$ finds nothing. How wrong is $dz$ for other $\gamma$?

# %% Gamma inside and outside
def backward(dy, gamma):
    """dz, with gamma where it belongs"""
    layer.gamma.data[...] = gamma
    layer.zero_grad()
    return layer.backward(dy, layer.forward(rows)[1])


rows, dy = random.normal(size=(2, 100, 64))
layer = LayerNorm(64, "float64")
for spread, lo, hi in (0, 0, 1e-12), (0.05, 0.005, 0.03), (0.5, 0.05, 0.25):
    gamma = random.normal(1, spread, 64)
    right, outside = backward(dy, gamma), gamma * backward(dy, 1)
    error = np.linalg.norm(outside - right) / np.linalg.norm(right)
    measure(f"γ of standard deviation {spread}: relative error", error, lo, hi)

# %% [markdown]
# The same program gives all its layers *one* dropout object, which remembers its last mask only. Backward then uses
# that mask everywhere. With dropout off this is correct, so the check needs dropout, too.
#
# ## Experiment 5: what LayerNorm ignores
#
# Four rows, each with a size and mean of its own:

# %% Invariances
z = random.normal(size=(4, 6)) * [[0.1], [1], [10], [100]] + [[5], [0], [-3], [40]]
layer = LayerNorm(6, "float64")                 # gamma is 1 and beta 0
n, _ = layer.forward(z)
measure("largest mean of a row of n", np.abs(n.mean(axis=-1)).max(), 0, 1e-12)
measure("lowest variance of a row of n", n.var(axis=-1).min(), 0.999, 1)
change = np.abs(layer.forward(3 * z + 7)[0] - n).max()
measure("z stretched by 3 and shifted by 7: largest change of n", change, 0, 1e-3)
[of_equal], _ = layer.forward(np.full((1, 6), 2.5))
same("a row of equal numbers gives β, not 0 / 0", of_equal, np.zeros(6))

# %% [markdown]
# ## Experiment 6: two claims
#
# > "Because of the factor $\frac{1}{1-P}$, the network's expected output is the same in training and at inference."
#
# That holds for a sum. It fails at the first function that isn't linear, and LayerNorm is one, since it divides by
# the size. The mean square of a dropped number is $(1 - P) \frac{u^2}{(1 - P)^2}$, which for $P = 0.1$ is larger than
# $u^2$ by a factor of $\frac{1}{0.9}$. So if $x$ and $u$ are independent and of the same size, the variance that
# LayerNorm sees is $(1 + \frac{1}{0.9}) / 2 = 1.056$ times as large in training.

# %% The variance that LayerNorm sees
x, u = random.normal(size=(2, 20_000, 64))
kept = random.random(u.shape) >= 0.1
ratio = (x + u * kept / 0.9).var(axis=1).mean() / (x + u).var(axis=1).mean()
measure("variance in training over variance at inference, P = 0.1", ratio, 1.05, 1.06)
row = random.normal(2, 1, 6)
masks = random.random((10_000, 6)) >= 0.25
measure("P = 0.25, nothing is divided: a sum is multiplied by",
        (row * masks).sum(axis=1).mean() / row.sum(), 0.73, 0.77)

# %% [markdown]
# > "The residual connections give the gradient an unhindered way from the loss to the first layer."
#
# That is true of pre-LN, within the stack. In the paper's post-LN every way passes one LayerNorm per sublayer, which
# takes two directions out and divides. Still a good part arrives at the input (0.4 of what was sent, in the lesson's
# last figure), for another reason: the norm divides by the $\sqrt{1 + c}$ by which the addition made $x$ longer, and
# adding the two ways back makes the gradient longer by about the same.
