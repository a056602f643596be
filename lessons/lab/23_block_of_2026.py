# %% [markdown]
# # Lab notes 23 · The block of 2026
#
# What [lesson 23](../23_block_of_2026.py) rests on: the sums by hand, computed again; every run of the table, with the
# last and with averaged weights; and positions that are not in the scores, as a control.

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
# SwiGLU with one unit, the value 4 and three gates: output and the gradients of gate and value. One input of 1 makes
# the weights the gate and the value themselves.

# %% The gates
def weight(*rows):
    data = np.array(rows, float)
    return SimpleNamespace(data=data, grad=np.zeros_like(data))


found = []
for gate in np.log(3), 0, -np.log(3):
    W_gate, W_value, W_outer = weight([gate]), weight([4]), weight([1])
    y, backward = more.swiglu(np.ones((1, 1, 1)), W_gate, W_value, W_outer)
    backward(np.ones((1, 1, 1)))
    found.append([y.item(), W_gate.grad.item(), W_value.grad.item()])
same("h, dgate, dvalue: page", np.round(found, 3) + 0.0,
     [[3.296, 3.824, 0.824], [0, 2, 0], [-1.099, 0.176, -0.275]])

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
# RoPE turns a pair by one radian per position, not by the page's 53°. So the page's rotation is the matrix below. A
# shift test of the function itself: moved by seven positions, all dot products of queries and keys stay the same. Added
# positions fail it.

# %% The rotation
turn = np.array([[0.6, 0.8], [-0.8, 0.6]])  # a row vector times this is turned
x = np.array([5.0, 0])
same("positions 1 and 2, 0 and 1: page",
     [x @ turn @ (x @ turn @ turn), x @ (x @ turn)], [15, 15])
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
# AdamW: a first step of Adam has the size of the learning rate, because m / (1 − β1) = g and v / (1 − β2) = g².

# %% The decay
w, g, rate, decay = 10, 3, 0.1, 0.1
inside = g + decay * w
same("decay in the gradient, and beside it: page",
     [w - rate * inside / np.sqrt(inside**2),
      w - rate * g / np.sqrt(g**2) - rate * decay * w], [9.9, 9.8])
measure("cosine, halfway: share of the peak", cosine(300, 1, 100, 500), 0.55, 0.5500001)

# %% [markdown]
# ## Every run
#
# Bits per character with the last weights, and their difference with the mean of the last five checkpoints.

# %% The recorded runs
rows = {row["variant"]: row for row in recorded("block_of_2026")["results"]}


def bits(name, which="last"):
    return [run["bits_per_character"][which] for run in rows[name]["runs"]]


table(["changed in gpt-tiny", "seed 0", "seed 1", "seed 2", "averaged: difference"],
      [[name, *(f"{each:.3f}" for each in bits(name)),
        f"{np.mean(bits(name, 'average')) - np.mean(bits('gpt-tiny', 'average')):+.3f}"]
       for name in rows])

# %% [markdown]
# Two comparisons of the page that have no row of their own, with the same seeds: mean and 95 % interval.

# %% Two more differences
for name, other in (("all five together", "rotary positions"),
                    ("the paper's block", "sinusoids")):
    low, high = ttest_rel(bits(name), bits(other)).confidence_interval()
    print(f"{name} − {other}: {np.mean(bits(name)) - np.mean(bits(other)):+.3f}, "
          f"{low:+.3f} to {high:+.3f}")
