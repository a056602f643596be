# %% [markdown]
# # Lab notes 23 · The block of 2026
#
# What [lesson 23](../23_block_of_2026.py) rests on: the sums by hand, computed again; the gradients; and every run,
# with the last and with averaged weights.

# %% Imports
import course  # noqa: F401  finds lessons/support
from types import SimpleNamespace

import more
import numpy as np
from scipy.stats import ttest_rel

from scratchformer import config
from scratchformer.nn.optim import cosine
from support.lesson import measure, recorded, same, table
from support.numeric import numeric_gradient
from support.positions import rotated

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
# RoPE with two pairs, and a shift test: moved by seven positions, all dot products of queries and keys stay the same.
# Added positions fail it.

# %% The rotation
same("(1, 1, 0, 0) at positions 0, 1, 2: page",
     more.rope(np.array([[[[1.0, 1, 0, 0]]] * 3]))[0][0, :, 0].round(2),
     [[1, 1, 0, 0], [0.54, 1, 0.84, 0.01], [-0.42, 1, 0.91, 0.02]])
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
same("cosine, a quarter of the way and halfway: page",
     [round(cosine(step, 1, 100, 500), 3) for step in (200, 300)], [0.868, 0.55])
smollm = config.preset("smollm2-135m").model
same("SmolLM2-135M, base of RoPE and epsilon of RMSNorm: page",
     [smollm.rope_theta, smollm.ln_eps], [100000, 1e-5])

# %% [markdown]
# ## Are the gradients right?
#
# All four functions against finite differences. And `rope`, with the pairs reordered, is that of Su et al.

# %% The check
x, heads = random.normal(size=(1, 5, 6)), random.normal(size=(1, 5, 4, 6))
gamma, *gate = [weight(*random.normal(size=s)) for s in [(6,), (6, 8), (6, 8), (8, 6)]]
mask = np.tril(np.ones((5, 5), bool))
shared = [weight(*random.normal(size=(6, h, 3))) for h in (4, 2, 2)]
shared.append(weight(*random.normal(size=(4, 3, 6))))
calls = {"rms_norm": (lambda x: more.rms_norm(x, gamma), x),
         "swiglu": (lambda x: more.swiglu(x, *gate), x), "rope": (more.rope, heads),
         "grouped_query_attention":
         (lambda x: more.grouped_query_attention(x, x, mask, *shared), x)}
for name, (function, given) in calls.items():
    dy = random.normal(size=given.shape)
    dx = function(given)[1](dy)                       # x is the memory, too: two parts
    dx = dx if isinstance(dx, np.ndarray) else sum(dx)
    slopes = numeric_gradient(lambda x: (function(x)[0] * dy).sum(), given)
    same(f"dx of {name}: ours and finite differences", dx, slopes, 1e-7)
halves = np.arange(6).reshape(3, 2).T.ravel()         # neighbours 2i, 2i + 1 -> halves
same("rope: halves here, neighbours in Su et al.",
     more.rope(heads[..., halves])[0], rotated(heads, np.arange(5))[..., halves], 1e-12)

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
# A comparison of the page that has no row of its own, with the same seeds: mean and 95 % interval.

# %% One more difference
together, rotary = bits("all five together"), bits("rotary positions")
low, high = ttest_rel(together, rotary).confidence_interval()
print(f"all five together − rotary positions: "
      f"{np.mean(together) - np.mean(rotary):+.3f}, {low:+.3f} to {high:+.3f}")
