# %% [markdown]
# # Lab notes 09 · Where am I?
#
# What [lesson 09](../09_positions.py) rests on: how far training moves the queries of positions that were never asked,
# with two optimizers; and two claims to check.

# %% Imports
import course  # noqa: F401  finds lessons/support

import numpy as np

from scratchformer.nn.layers import sinusoids
from scratchformer.nn.optim import Adam
from support.lesson import QUICK, measure, table
from support.to_the_left import LEFT, TEXT, table_of, to_the_left

# %% [markdown]
# ## Three words to the left
#
# The task of the page ([support/to_the_left.py](../support/to_the_left.py)): 24 random words out of 11, at position $t$
# the word at $t - 3$ is asked for, and queries are made of positions alone. Never asked in training: two of the
# positions 5, 7 and 9 (*single*), and five positions *in a row*, which begin at 12 to 17; both are chosen at random in
# each of three runs. The vectors of all tables have the same length, 4. *Four speeds* are 1, 6, 10 and 12 fifteenths of
# half a turn. 16 texts a step: 110 steps of Adam at the rate 0.01, or 120 steps of plain gradient descent at 0.3.
# *Change* is the length of $p_u \, \Delta W_Q$ (a query has a length of about 4 at the start). The control is the
# shuffled table, which has the same vectors and no rotation.

# %% The tables, with two optimizers
class Descent:
    """Plain gradient descent"""

    def __init__(self, model):
        self.parameters = model.parameters().values()

    def step(self, rate):
        for parameter in self.parameters:
            parameter.data[...] -= rate * parameter.grad


found, right, moved = {}, [], []
for way, *settings in (Adam, 0.01, 110), (Descent, 0.3, 120):
    for name in "sinusoids", "big steps", "four speeds", "four speeds, shuffled":
        of_runs = [to_the_left(name, seed, way, *settings)
                   for seed in ([0] if QUICK else [0, 1, 2])]
        found[way, name] = np.mean(of_runs, axis=0)             # (2, 3): right, moved
        for rows, numbers, digits in zip((right, moved), found[way, name], (2, 1)):
            rows.append([f"{way.__name__}, {name}",
                         *(f"{number:.{digits}f}" for number in numbers)])
for what, rows in ("right words", right), ("change of a query", moved):
    table([what, "asked", "single", "five in a row"], rows)
for way in Adam, Descent:
    assert max(found[way, "big steps"][1, 1:]) < found[way, "big steps"][1, 0] / 3
    assert min(found[way, "four speeds"][1, 1:]) > 0.6 * found[way, "four speeds"][1, 0]
    assert min(found[way, "four speeds"][0]) > 0.6
    for name in "big steps", "four speeds, shuffled":
        assert found[way, name][0, 0] > 0.8 and max(found[way, name][0, 1:]) < 0.3

# %% [markdown]
# In *big steps* a never-asked query moves much less than an asked one, with either optimizer; in *four speeds* about as
# far. In *four speeds, shuffled* it moves as far, too, but no single matrix is right for all positions:

# %% Products of different positions, and the best matrix
for name, lo, hi, *error in (("big steps", 0.06, 0.065),
                             ("four speeds", 0.49, 0.51, 0, 1e-10),
                             ("four speeds, shuffled", 0.49, 0.51, 0.5, 1)):
    p = table_of(name, np.random.default_rng(50))               # (T, D)
    product = np.abs(p @ p.T / 16)[~np.eye(TEXT, dtype=bool)].max()
    measure(f"{name}: largest p_u · p_t, over p_u · p_u", product, lo, hi)
    if error:
        best = np.linalg.lstsq(p[LEFT:], p[:-LEFT], rcond=1e-9)[0]
        rest = np.linalg.norm(p[LEFT:] @ best - p[:-LEFT]) / np.linalg.norm(p[:-LEFT])
        measure(f"{name}: best matrix to the left, error", rest, *error)

# %% [markdown]
# With plain gradient descent the sinusoids aren't learned in 120 steps even where they are asked, so their row there
# says nothing about the others.
#
# ## Check the claims
#
# > "The wavelengths run from $2\pi$ to $10000 \cdot 2\pi$" (the paper).
#
# The last hand has $2i = d_{model} - 2$, so the longest is $9647 \cdot 2\pi$.

# %%
longest = 1 / np.arcsin(sinusoids(0, 2, 512)[1, -2])
measure("positions in a turn of the last hand, over 2π", longest, 9640, 9655)

# %% [markdown]
# > "Sinusoids extrapolate better to longer texts."
#
# The paper hopes it, and it is contested: [lesson 10](../10_longer.py) measures it. And already *within* the length of
# training, five neighbouring positions never asked are too many for sinusoids.
