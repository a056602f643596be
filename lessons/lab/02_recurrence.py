# %% [markdown]
# # Lab notes 02 · Reading left to right
#
# The controls behind [lesson 02](../02_recurrence.py). The test of memory is the lesson's: $n$ random symbols, each 1 to
# 8, and the question which one was the first. A mark, a second 1 in its row, says which symbol is the first, because
# attention alone sees a bag. Chance is 0.125. All networks have about 5,400 weights and train with Adam at a rate of
# 0.003, 32 sequences a step, gradients cut to length 1. Seeds 0, 1, 2 are the runs 1, 2, 3.

# %% Imports
import course  # noqa: F401  finds lessons/support

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.loss import cross_entropy
from support.lesson import measure, recorded, show, table
from support.recall import model_of, sequences
from support.recurrent import left_of_a_nudge, sigmoid

# %% [markdown]
# ## Until 99 % are right
#
# Each network trains until 99 % of 400 new sequences are right (asked after every 50 steps), or for 3,000 steps. In
# *blank* sequences nothing follows the first symbol. "Left" says how much of a small change of the first state is left
# in the last one before training (root mean square over the 64 directions, geometric mean of three runs).

# %%
result = recorded("first_symbol")
rows = {(row["reader"], row["n"], row["blank"]): row["runs"]
        for row in result["results"]}


def left(reader, n, blank):
    """Before training; an LSTM starts in its cell and is left out here"""
    if not reader.startswith("RNN"):
        return ""
    logs = []
    for seed in 0, 1, 2:
        layer = model_of(reader, seed).reader
        x, _ = sequences(np.random.default_rng(seed), 1, n, blank)
        h, _ = layer.forward(x[:, :1])
        logs.append(np.log(left_of_a_nudge(layer, x[:, 1:], h[:, 0])))
    return f"{np.exp(np.mean(logs)):.0e}"


def named(reader, n, blank):
    return f"{reader}, n = {n}{', blank' if blank else ''}"


table(["network", "left", "steps to 0.99", "accuracy at the end"],
      [[named(*case), left(*case),
        ", ".join(f"{run['steps']:,}" if run["steps"] else "-" for run in runs),
        ", ".join(f"{run['accuracies'][-1]:.2f}" for run in runs)]
       for case, runs in rows.items()])

# %% The figure
figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
for case, colour, style in ((("RNN", 128, False), DARK, "-"),
                            (("RNN", 128, True), ACCENT, "--")):
    for seed, run in enumerate(rows[case]):
        steps = 50 * np.arange(len(run["losses"])) + 25
        axes.plot(steps, run["losses"], style, color=colour, lw=1.5,
                  label=named(*case) if seed == 0 else None)
axes.axhline(np.log(8), color="#888888", lw=0.8)
axes.text(1190, np.log(8) + 0.05, "chance: ln 8", fontsize=9, ha="right")
axes.set(xlabel="step of training", ylabel="loss, nats", ylim=(0, 2.6), xlim=(0, 1200))
axes.legend(loc="lower right", fontsize=9)
show(figure, "02_training",
     alt="Loss against the step of training over 128 symbols, three runs each. RNN: two "
     "runs stay near ln 8 for hundreds of steps and then fall; one stays there. With "
     "blank sequences all three fall within 350 steps.",
     caption="Over 128 symbols, two runs of the RNN wait at chance level and then "
     "learn quickly; the first has learned nothing after 3,000 steps (1,200 shown).")

# %% [markdown]
# LABTEXT
#
# ## The LSTM
#
# The forget gates start at σ(bias). Usual is a bias of 1.

# %%
measure("forget gate, bias 1, before training", sigmoid(1.0), 0.731, 0.732)
measure("forget gate, bias 5, before training", sigmoid(5.0), 0.993, 0.994)

# %% [markdown]
# The two LSTMs differ in this bias alone. LSTMTEXT
#
# ## The shares of the gradient
#
# Before training, on 32 sequences of 128 symbols: the length of each step's share in the gradient of $W_h$, as a part
# of the sum of these lengths.

# %%
def shares(seed):
    """-> (127,), from the share of step 2 to that of step 128"""
    model = model_of("RNN", seed)
    x, first = sequences(np.random.default_rng(100 + seed), 32, 128)
    h, _ = model.reader.forward(x)
    logits, cache = model.output.forward(h[:, -1:])
    _, count, dlogits = cross_entropy(logits, first[:, None])
    dh = model.output.backward(dlogits / count, cache)[:, 0]
    W_h, lengths = model.reader.recurrent.weight.data, []
    for t in reversed(range(1, 128)):
        da = dh * (1 - h[:, t] ** 2)
        lengths.append(np.linalg.norm(h[:, t - 1].T @ da))
        dh = da @ W_h.T
    return np.array(lengths[::-1]) / sum(lengths)


for run, of_steps in enumerate(map(shares, (0, 1, 2)), start=1):
    measure(f"run {run}: the last ten steps", of_steps[-10:].sum(), 0.3, 0.7)
    measure(f"run {run}: the first ten steps", of_steps[:10].sum(), 1e-6, 1e-2)

# %% [markdown]
# Limits of these notes: one synthetic task, small networks, one optimizer, one learning rate, three seeds.
