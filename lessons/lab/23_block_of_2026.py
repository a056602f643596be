# %% [markdown]
# # Lab notes 23 · The block of 2026
#
# What [lesson 23](../23_block_of_2026.py) rests on: the sums by hand, computed again, and every run, with the last and
# with averaged weights.

# %% Imports
import course  # noqa: F401  finds lessons/support
from types import SimpleNamespace

import more
import numpy as np
from scipy.stats import ttest_rel

from scratchformer.nn.optim import cosine
from support.lesson import measure, recorded, same, table

# %% [markdown]
# ## The sums by hand
#
# SwiGLU with one unit, three gates and values: output and the gradients of gate and value. One input of 1 makes
# the weights the gate and the value themselves.

# %% The gates
def weight(*rows):
    data = np.array(rows, float)
    return SimpleNamespace(data=data, grad=np.zeros_like(data))


found = []
for gate, value, dh in (np.log(3), 4, 1), (0, 3, 2), (-np.log(3), 1, 1):
    W_gate, W_value, W_outer = weight([gate]), weight([value]), weight([1])
    y, backward = more.swiglu(np.ones((1, 1, 1)), W_gate, W_value, W_outer)
    backward(np.full((1, 1, 1), dh))
    found.append([y.item(), W_gate.grad.item(), W_value.grad.item()])
same("h, dgate, dvalue: page", np.round(found, 3) + 0.0,
     [[3.296, 3.824, 0.824], [0, 3, 0], [-0.275, 0.044, -0.275]])

# %% [markdown]
# RMSNorm of (1, 7) and (2, 14), and of four equal numbers. The sums of the page leave out the 1e-6.

# %% The norms
for x, dn, n, dx in [((1, 7), (5, 0), (0.2, 1.4), (0.98, -0.14)),
                     ((2, 14), (5, 0), (0.2, 1.4), (0.49, -0.07)),
                     ((3, 3, 3, 3), (1, 1, 1, 1), (1, 1, 1, 1), (0, 0, 0, 0))]:
    y, backward = more.rms_norm(np.array([[x]], float), weight(*np.ones(len(x))))
    same(f"n of {x}: page", y.ravel(), n, 1e-6)
    found = backward(np.array([[dn]], float)).ravel()
    measure(f"dx of {x}, distance to the page's", np.abs(found - dx).max(), 0, 1e-6)

# %% [markdown]
# RoPE with two pairs, and a shift test: moved by seven positions, all dot products of queries and keys stay the same.
# Added positions fail it.

# %% The rotation
same("(0, 1, 1, 0) at positions 0, 1, 2: page",
     more.rope(np.array([[[[0.0, 1, 1, 0]]] * 3]))[0][0, :, 0].round(2),
     [[0, 1, 1, 0], [-0.84, 1, 0.54, 0.01], [-0.91, 1, -0.42, 0.02]])
turn = np.array([[0.6, 0.8], [-0.8, 0.6]])           # by 53 degrees, of row vectors
same("(5, 0) and (3, 4), turned by 53 degrees: page", [[5, 0], [3, 4]] @ turn,
     [[3, 4], [-1.4, 4.8]])
random = np.random.default_rng(0)
both = np.zeros((2, 12, 1, 8))
both[:, :5] = random.normal(size=(2, 5, 1, 8))
moved = np.roll(both, 7, axis=1)


def scores(q, k, first):
    return q[first:first + 5, 0] @ k[first:first + 5, 0].T


same("rope moved by 7: scores", scores(*more.rope(moved)[0], 7),
     scores(*more.rope(both)[0], 0))
added = random.normal(size=(12, 1, 8))
measure("added vectors moved by 7: a score changes by up to",
        np.abs(scores(*(moved + added), 7) - scores(*(both + added), 0)).max(),
        0.5, 100)

# %% [markdown]
# AdamW: a first step of Adam has the size of the learning rate, because m / (1 − β1) = g and v / (1 − β2) = g². The
# library multiplies matrices and embeddings by 1 − rate · λ before this step.

# %% The decay
w, g, rate, decay = 10, 3, 0.1, 0.1
inside = g + decay * w
same("decay in the gradient, and beside it: page",
     [w - rate * inside / np.sqrt(inside**2),
      w * (1 - rate * decay) - rate * g / np.sqrt(g**2)], [9.9, 9.8])
same("cosine, halfway and at the end: page",
     [cosine(step, 1, 100, 500) for step in (300, 500)], [0.55, 0.1])

# %% [markdown]
# ## Every run
#
# Bits per character with the last weights, and with the mean of the last five checkpoints, which wasn't chosen
# beforehand either; then its difference to `gpt-tiny`. The rows *sinusoids*, *no positions* and *learned positions, as
# large as words* were run later, at the same commit, with these added to the variants. The intervals here and on the
# page are by Student's t with two degrees of freedom, of differences between runs with the same seed.

# %% The recorded runs
rows = {row["variant"]: row for row in recorded("block_of_2026")["results"]}


def bits(name, which="last"):
    return [run["bits_per_character"][which] for run in rows[name]["runs"]]


def with_interval(found):
    return f"{found['mean']:+.3f}, {found['low']:+.3f} to {found['high']:+.3f}"


table(["changed in gpt-tiny", "last weights", "averaged weights", "their difference"],
      [[name, *(", ".join(f"{each:.3f}" for each in bits(name, which))
                for which in ("last", "average")),
        with_interval(row["average"]["difference"]) if name != "gpt-tiny" else "–"]
       for name, row in rows.items()])

# %% [markdown]
# With averaged weights, AdamW with a cosine is worse than `gpt-tiny`. We think that averaging gives `gpt-tiny` what a
# falling rate gives: its own rate still is at 0.45 of the peak after 500 steps, that of the cosine at 0.1.
#
# Comparisons of the page that have no row of their own, with the same seeds: mean and 95 % interval. No interval is
# corrected for their number. A permutation test of three runs against three can't fall below p = 0.1.

# %% More differences
for one, other in (("all five together", "rotary positions"),
                   ("rotary positions", "sinusoids"), ("ALiBi", "rotary positions")):
    for which in "last", "average":
        paired = ttest_rel(bits(one, which), bits(other, which))
        low, high = paired.confidence_interval()
        found = np.mean(bits(one, which)) - np.mean(bits(other, which))
        print(f"{one} − {other}, {which} weights: {found:+.3f}, "
              f"{low:+.4f} to {high:+.4f}")
measure("gpt-tiny's rate after 500 steps / its peak", np.sqrt(100 / 500), 0.44, 0.45)
