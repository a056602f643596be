# %% [markdown]
# # Lab notes 03 · Attention as a patch
#
# The controls behind [lesson 03](../03_bahdanau.py): the bottleneck with other sizes, learning rates and more training;
# which state a trained decoder really reads; how long attention needs if it isn't given positions; and additive scores
# against dot products. The task is always to write $n$ random symbols in the opposite order, with teacher forcing.

# %% Imports
import course  # noqa: F401  finds lessons/support
import time

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import COLOUR_MAP
from scratchformer.nn.layers import Linear
from support.lesson import (
    QUICK,
    duration,
    measure,
    recorded,
    same,
    show,
    table,
    varying,
)
from support.recurrent import AdditiveAttention
from support.reversal import (
    SYMBOLS,
    DotAttention,
    EncoderDecoder,
    PlainMean,
    pairs,
    right,
    train,
)

# %% [markdown]
# ## Experiment 1: the bottleneck, with other sizes, rates and steps
#
# All recorded runs: symbols right in 300 new sequences, three seeds, and the mean over the seeds at the first and the
# last position written. The learning rate is 0.01 unless it is named, and "4 x the steps" means 1,200 steps.

# %%
rows = {(row["model"], row["n"]): row for row in recorded("reversal")["results"]}
table(["model", "n", "steps", "weights", "three seeds", "first", "last"],
      [[model, n, f"{row['steps']:,}", f"{row['parameters']:,}",
        ", ".join(f"{share:.2f}" for share in row["accuracy"]["by_seed"]),
        f"{row['by_position'][0]:.2f}", f"{row['by_position'][-1]:.2f}"]
       for (model, n), row in sorted(rows.items(), key=lambda item: item[0][1])])


def mean_of(model, n):
    return rows[model, n]["accuracy"]["mean"]


for model, n, lo, hi in [
        ("one vector", 16, 0.52, 0.6), ("one vector, rate 0.003", 16, 0.44, 0.52),
        ("one vector, 64 numbers, rate 0.003", 16, 0.66, 0.74),
        ("one vector, 4 x the steps", 16, 0.74, 0.82),
        ("one vector, 16 x the steps", 16, 0.82, 0.9),
        ("plain mean", 16, 0.58, 0.66), ("plain mean, rate 0.003", 16, 0.46, 0.55),
        ("one vector, with positions", 16, 0.5, 0.54),
        ("attention", 16, 0.95, 1), ("one vector", 32, 0.26, 0.36)]:
    measure(f"{model}, n = {n}: mean", mean_of(model, n), lo, hi)

# %% [markdown]
# The plain mean with more steps, trained here (seed 0):

# %%
steps = 600 if QUICK else 1200
model = train(EncoderDecoder(16, 0, look=PlainMean), steps=steps)
measure("plain mean, n = 16, 4 x the steps", right(model).mean(),
        0.6 if QUICK else 0.77, 0.87)

# %% [markdown]
# The bottleneck gives way to more numbers (0.57 to 0.70) and to more training (0.57, 0.77, 0.86 with 300, 1,200 and
# 4,800 steps). The plain mean is a few points above one vector at equal steps: 0.61 against 0.57 after 300, and 0.82
# against 0.77 after 1,200. Attention gets 0.98 after 300. Giving positions to the model with one vector doesn't help.
#
# ## Experiment 2: which state is read?
#
# To write position $t$ of 16 the decoder needs the symbol read at position $17 - t$. How much weight lies on the state
# of that symbol, and how much on the state after it? And is that state really used? For the second question, at each
# position one state is replaced by that of another sequence: the one with more weight of these two, then the other.

# %%
source, read, _ = pairs(np.random.default_rng(5), 200, 16)
own = np.arange(15, -1, -1)  # at each position: the state wanted


def shares(model):
    """The weight on the state of the symbol wanted and on the next one: means over the
    positions that have a next one."""
    mean = model.weights(source, read).mean(axis=0)      # (16, 16): positions, states
    return [mean[np.arange(1, 16), own[1:] + further].mean() for further in (0, 1)]


def right_without(model, further):
    """Symbols right if, at each position, that one state is of another sequence."""
    (h, _), (s, _) = model.states(source, read)
    found = []
    for t in range(1, 16):
        changed, j = h.copy(), own[t] + further
        changed[:, j] = np.roll(h[:, j], 1, axis=0)
        c, _ = model.looks[0].forward(s[:, t:t + 1], changed)
        logits, _ = model.output.forward(np.concatenate([s[:, t:t + 1], c], axis=2))
        found.append(logits[:, 0].argmax(axis=-1) == source[:, own[t]])
    return np.mean(found)


SEEDS = (0,) if QUICK else (0, 1, 2)
models = [train(EncoderDecoder(16, seed, look=AdditiveAttention)) for seed in SEEDS]
for seed, model in zip(SEEDS, models):
    on_own, on_next = shares(model)
    varying(f"seed {seed}: weight on the state of the symbol {on_own:.2f}, "
            f"on the state after it {on_next:.2f}")
    most, other = (0, 1) if on_own > on_next else (1, 0)
    measure(f"seed {seed}: symbols right", right(model).mean(), 0.9, 1)
    measure("both weights together", on_own + on_next, 0.75, 1)
    measure("right, heavier state replaced", right_without(model, most), 0.05, 0.3)
    measure("right, the other one replaced", right_without(model, other), 0.8, 1)
if not QUICK:
    measure("seeds that look at the state after it",
            sum(on_next > on_own for on_own, on_next in map(shares, models)), 1, 2)

# %% [markdown]
# With the heavier state replaced, the answer is a guess; with the other one replaced it mostly stays right. So the
# weights do tell which state is read. But some seeds read the state *after* the symbol, which in a recurrent encoder
# still holds the symbol before. Without recurrence (below, seed 0) the weight lies on the symbol's own position, and
# hardly depends on the sequence.

# %%
free = train(EncoderDecoder(16, 0, look=AdditiveAttention, encoder=Linear,
                            decoder=Linear, positions="ed"))
measure("no recurrence: weight on the symbol wanted", shares(free)[0], 0.9, 1)
measure("largest standard deviation of a weight between sequences",
        free.weights(source, read).std(axis=0).max(), 0, 0.15)

# %% The figure
models.append(free)
names = [*(f"recurrent, seed {seed}" for seed in SEEDS), "no recurrence"]
figure, panels = plt.subplots(1, len(models), figsize=(9, 2.9), sharey=True,
                              layout="constrained")
for panel, name, model in zip(panels, names, models):
    panel.imshow(model.weights(source, read)[0], COLOUR_MAP, vmin=0, vmax=1,
                 extent=(0.5, 16.5, 16.5, 0.5))
    panel.plot((0.5, 16.5), (16.5, 0.5), color="white", lw=0.8, ls=":")
    panel.set_title(name, fontsize=10)
    panel.set(xlabel="state looked at", xticks=(1, 8, 16), yticks=(1, 8, 16))
panels[0].set_ylabel("position written")
figure.colorbar(panels[0].images[0], ax=panels, label="weight", shrink=0.8)
show(figure, "03_lab_alignment", alt="Maps of weights for one new sequence of 16, one "
     "for each seed and one without recurrence. In some, the bright cells lie on the "
     "diagonal from the upper right to the lower left, in others one column to the "
     "right of it.",
     caption="The dotted line marks the symbol wanted. Some recurrent models look one "
     "state further on.")

# %% [markdown]
# ## Experiment 3: are positions missing, or only slow to learn?
#
# At $n = 32$ and after 300 steps, attention over recurrence gets 0.84, 0.51 and 0.50 of the symbols right (seeds 0, 1,
# 2). An earlier version of the lesson concluded that "what was missing were the positions". The control is more
# training with everything else unchanged:

# %%
for model in ("attention", "attention, 4 x the steps", "attention, 8 x the steps",
              "attention, with positions", "no recurrence"):
    shares_right = rows[model, 32]["accuracy"]["by_seed"]
    print(f"{model:26} {rows[model, 32]['steps']:5,} steps  ",
          "  ".join(f"{share:.3f}" for share in shares_right))
for model, lo, hi in [
        ("attention", 0.5, 0.7), ("attention, 4 x the steps", 0.8, 0.95),
        ("attention, with positions", 0.99, 1), ("no recurrence", 0.99, 1)]:
    measure(f"{model}: mean", mean_of(model, 32), lo, hi)
ids = np.random.default_rng(0).integers(0, SYMBOLS, (20_000, 16, 1))
measure("n = 16: always naming the most frequent symbol",
        (ids == np.arange(SYMBOLS)).sum(axis=1).max(axis=1).mean() / 16, 0.26, 0.27)
for more in "", ", 4 x the steps":
    model = "no recurrence, no positions" + more
    measure(model, mean_of(model, 16), 0.255, 0.275)

# %% [markdown]
# They weren't missing, only slow to learn. Recurrent states do differ from position to position. With four times the
# steps all three seeds are above 0.8. Given positions, 300 steps are enough, with or without recurrence. Without
# recurrence *and* without positions there is nothing to learn: the result is that of the best guess from a bag, and
# more steps don't help.
#
# ## Experiment 4: additive scores and dot products
#
# > "While the two are similar in theoretical complexity, dot-product attention is much faster and more space-efficient
# > in practice, since it can be implemented using highly optimized matrix multiplication code." (§3.2.1)
#
# The dot product of $a_t = s_t W$ and $b_j = h_j U$ takes the place of the small network: $e_{tj} = \sum_k a_{tk}
# b_{jk}$. (The paper multiplies it by a factor, left out here.) Does it do the same job? Without recurrence, with
# positions:

# %%
model = train(EncoderDecoder(16, 0, look=DotAttention, encoder=Linear, decoder=Linear,
                             positions="ed"))
measure("dot product, n = 16: symbols right", right(model).mean(), 0.97, 1)

# %% [markdown]
# It does. Now the cost, for 128 by 128 scores with $d_a = 32$, three ways: additive scores; dot products written pair
# by pair, through an array of all products; and the same dot products as one matrix product. The second is the control:
# its arithmetic and its result are those of the third.


# %%
def quickest(f, repeat=5 if QUICK else 15):
    """Seconds, the least of some calls"""
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        f()
        times.append(time.perf_counter() - begin)
    return min(times)


T, d_a, random = 128, 32, np.random.default_rng(1)
a, b, v = (random.normal(size=size) for size in ((T, d_a), (T, d_a), d_a))
ways = {"additive": lambda: np.tanh(a[:, None] + b) @ v,
        "dot, pair by pair": lambda: (a[:, None] * b).sum(axis=-1),
        "dot, matrix product": lambda: a @ b.T}
same("dot products, both ways", ways["dot, pair by pair"](),
     ways["dot, matrix product"]())
seconds = {name: quickest(way) for name, way in ways.items()}
for name, second in seconds.items():
    duration(name, second)
for slower in "additive", "dot, pair by pair":
    duration(f"{slower}, over the matrix product", seconds[slower],
             over=seconds["dot, matrix product"])
layers = [kind(d_a, d_a, d_a, random, "float64")
          for kind in (AdditiveAttention, DotAttention)]
kept, kept_by_dot = (layer.forward(a[None], b[None])[1] for layer in layers)
measure("numbers kept for backward, additive", kept.score[0].size + kept.weights.size,
        T * T * (d_a + 1), T * T * (d_a + 1))
measure("numbers kept for backward, dot product",
        sum(one.size for one in kept_by_dot[1:4]),
        2 * T * d_a + T * T, 2 * T * d_a + T * T)

# %% [markdown]
# "Similar in complexity" holds: beside the linear maps, each takes $T S d_a$ multiplications, and the additive score as
# many tanh. "More space-efficient" holds: for each pair, the dot product keeps one number and the additive score $d_a +
# 1$. "Faster" holds on one core of a CPU. The same dot products pair by pair are slow too, so a good part of the gain
# is the matrix product, as the paper says.
#
# Limits of these notes: one synthetic task with a fixed order, small networks, one or two learning rates, one length
# for each training.
