# %% [markdown]
# # Lab notes 05 · Why attention divides by √d_k
#
# What [lesson 05](../05_scaling.py) rests on: the 24 queries with other seeds and the controls, and all runs of the
# small Transformer.

# %% Imports
import course  # noqa: F401  finds lessons/support
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from support.lesson import QUICK, measure, recorded, same, show, table
from support.one_key import found, learn_to_look, softmax, successes

# %% [markdown]
# ## Experiment 1: the 24 queries
#
# The task of the opening: 32 keys of $d_k$ random numbers for each of 24 queries, 120 steps of gradient descent on the
# queries ([support/one_key.py](../support/one_key.py)). The numbers are the queries that found their key, of 24, at the
# best of the six rates. *Logarithm* doesn't divide, and its steps raise $\ln w$ of the right key, so the push is $1 -
# w$ and not $w (1 - w)$.

# %% Three seeds
counts = {}
for d_k in 64, 512:
    root = math.sqrt(d_k)
    for name, factor, start, on_log in (("not divided", 1, 1, False),
                                        ("divided by √d_k", 1 / root, 1, False),
                                        ("divided, large start", 1 / root, root, False),
                                        ("small start", 1, 1 / root, False),
                                        ("logarithm", 1, 1, True)):
        counts[d_k, name] = [found(d_k, factor, start, on_log, seed)
                             for seed in ([0] if QUICK else [0, 1, 2])]
table(["", "d_k = 64: the seeds", "d_k = 512: the seeds"],
      [[name, *(", ".join(map(str, counts[d_k, name])) for d_k in (64, 512))]
       for d, name in counts if d == 64])
for (d_k, name), values in counts.items():
    fails = name in ("not divided", "divided, large start")
    assert max(values) < (19 if d_k == 64 else 7) if fails else min(values) == 24

# %% [markdown]
# So the undivided queries fail through the factor $w$: without it, in *logarithm*, all of them find their key.
# (Attention can't choose the logarithm: its weights get their gradient through the values.)
#
# **A small start is the division in other units.** With $q' = q / \sqrt{d_k}$, a step of $q'$ at the rate
# $\eta / d_k$ is the divided run's step at the rate $\eta$. In the same way the page's control, the division with a
# large start, is an undivided run at the rate $\eta / d_k$. So when each may choose its rate, the division can only
# matter through the scores at the start:

# %% The same run twice
small = learn_to_look(64, 1, 10 / 64, start=1 / 8)
large = learn_to_look(64, 1 / 8, 10, start=8)
same("divided, and small start", small, learn_to_look(64, 1 / 8, 10), 1e-6)
same("divided with a large start, and not divided",
     large, learn_to_look(64, 1, 10 / 64), 1e-6)

# %% [markdown]
# **Where it ends.** The one query of $d_k = 8$ that fails with the division is slow, not stuck. And a rate that nobody
# would use makes up for a tiny factor. The last line is the push on *street*, 36 times as large with the division.

# %% More steps, a huge rate, the push on street
slow = learn_to_look(8, 1 / math.sqrt(8), 10).argmin()
for steps, lo, hi in (120, 0.2, 0.45), (1000, 0.9, 1):
    weight = learn_to_look(8, 1 / math.sqrt(8), 10, steps=steps)[slow]
    measure(f"d_k = 8, divided, {steps} steps: weight of the slowest", weight, lo, hi)
measure("d_k = 512, not divided, rate 1e30: found, of 24",
        successes(learn_to_look(512, 1, 1e30)), 18, 24)
plain, divided = (softmax(scale * np.log([1, 2, 5]))[1] for scale in (8, 1))
measure("push on street: divided over not divided",
        divided * (1 - divided) / 8 / (plain * (1 - plain)), 35.5, 36.1)

# %% [markdown]
# ## Experiment 2: a Transformer with and without
#
# Small Transformers on the bundled corpus (2 layers, $d_{model} = 128$, one head of $d_k = 128$, 300 steps, seeds 0 to
# 2), all at one learning rate, recorded by [benchmarks/attention_scaling.py](../../benchmarks/attention_scaling.py).
# The factor before softmax is 1, $1/\sqrt{d_k}$ or $1/d_k$. *Smaller*: $W_Q$ and $W_K$ begin $d_k^{1/4}$ times smaller,
# or take steps that are $d_k^{1/4}$ times smaller. Since Adam's steps hardly depend on the size of the gradient, *both
# smaller* is the paper's model in other units: the check of the whole set-up. *No push*: no gradient goes through any
# score, so $W_Q$ and $W_K$ stay as they were. (These two were made on another processor.)

# %% The table
runs = [*recorded("attention_scaling")["results"],
        *recorded("attention_without_push")["results"]]
rows = {row["variant"]: row for row in runs}
loss = {variant: row["final_loss"] for variant, row in rows.items()}
table(["factor", "validation loss, nats per token", "lowest to highest"],
      [[name, f"{each['mean']:.2f}", f"{each['lowest']:.2f} to {each['highest']:.2f}"]
       for name, each in loss.items()])
PAPER, PUSHLESS = "1/sqrt(d_k)", "1/sqrt(d_k), no push"
same_model = [abs(dict(a["curve"])[25] - dict(b["curve"])[25])
              for a, b in zip(rows[PAPER]["runs"], rows["1, both smaller"]["runs"])]
measure("both smaller: difference from the paper's after 25 steps", max(same_model),
        0, 0.02)
for variant in "1", "1, smaller start", "1, smaller steps":
    measure(f"{variant}: lowest − the paper's highest",
            loss[variant]["lowest"] - loss[PAPER]["highest"], 0.8, 2.5)
for name, more, less, lo, hi in (
        ("gap with pushes", "1", PAPER, 1.6, 1.7),
        ("gap without any push", "1, no push", PUSHLESS, 0.6, 0.7),
        ("the divided model gains by its pushes", PUSHLESS, PAPER, 0.55, 0.65),
        ("the undivided model loses by its pushes", "1", "1, no push", 0.35, 0.45)):
    measure(name, loss[more]["mean"] - loss[less]["mean"], lo, hi)

# %% The figure
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
looks = {"1": ("-", ACCENT), "1, smaller start": ("--", ACCENT),
         "1, smaller steps": (":", ACCENT), PAPER: ("-", DARK),
         f"{PAPER}, smaller steps": (":", DARK), "1/d_k": ("-", LIGHT)}
for variant, (style, colour) in looks.items():
    curves = np.array([run["curve"] for run in rows[variant]["runs"]])
    axes.plot(curves[0, :, 0], curves[:, :, 1].mean(axis=0), style, color=colour, lw=2,
              label=variant)
axes.set(xlabel="step", ylabel="validation loss, nats per token", ylim=(0, 6))
axes.legend(title="factor", fontsize=9, loc="upper right")
show(figure, "05_lab_trained",
     alt="Validation loss over 300 steps for six of the variants, mean of three seeds. "
     "The three without a factor stay above 2.4 nats while the three with one fall to "
     "about 1.",
     caption="Validation loss during training. Without a factor (the upper curves) it "
     "falls more slowly.")

# %% [markdown]
# With pushes the gap is 1.65, and without any it is 0.65. So a missing push explains 0.60 of it at most, and the pushes
# of the undivided model do harm. In the end *both smaller* and the paper's model differ by 0.05, less than three runs
# of one model do; we think that rounding and Adam's ε make that difference. And the root isn't the optimum here:
# $1/d_k$ is better, but so is the root with smaller steps. Yang et al. (2022), [Tensor Programs
# V](https://arxiv.org/abs/2203.03466), divide by $d_k$: trained queries and keys may point the same way, and then their
# dot product grows like $d_k$ itself.
