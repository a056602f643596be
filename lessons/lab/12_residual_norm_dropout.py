# %% [markdown]
# # Lab notes 12 · Residual connections and LayerNorm
#
# What [lesson 12](../12_residual_norm_dropout.py) rests on: its stacks at all learning rates and seeds, a translator
# without γ and β, and what a gradient check of LayerNorm must contain.

# %% Imports
import course  # noqa: F401  finds lessons/support
from itertools import islice
from types import SimpleNamespace

import numpy as np
import transformer

from support.lesson import QUICK, measure, recorded, table
from support.stacks import Classifier, train

# %% [markdown]
# ## All rates and seeds
#
# The sentences of lesson 01 as bags of words, 22 kinds. Between two linear maps stand 12 or 48 feed-forward
# networks of width 32, in five kinds of boxes. (*Bare* is the sublayer alone, *residual only* is "Add alone".) Weights
# start by Glorot's rule (uniform within $\pm \sqrt{6 / (n_{in} + n_{out})}$), biases at 0; *larger* $W_2$ is multiplied
# by √2, *smaller* $W_2$ divided by the square root of the number of boxes. Plain gradient descent on 64 sentences a
# step, 400 steps, three seeds. The best of the rates tried has the lowest mean *training* loss in the last 40 steps, so
# the new sentences have no part in the choice. A dash: the loss overflowed. Recorded by
# [benchmarks/stacks.py](../../benchmarks/stacks.py).

# %% All rates
rows = []
for row in recorded("stacks")["results"]:
    for entry in row["rates"]:
        ended = all(run["ended"] for run in entry["runs"])
        best = " (best)" if entry["rate"] == row["best_rate"] else ""
        loss = np.mean([run["curve"][-1][2] for run in entry["runs"]]) if ended else 0
        seeds = ", ".join(f"{run['curve'][-1][1]:.2f}" for run in entry["runs"] * ended)
        rows.append([row["depth"], row["way"], f"{entry['rate']:g}{best}",
                     f"{loss:.3f}" if ended else "–", seeds or "–"])
table(["depth", "way", "rate", "training loss", "new sentences, the seeds"], rows)

# %% [markdown]
# No stack does clearly better than no stack at all, since the task needs no depth. We don't know where the slow ones
# would end with more steps or with a warm-up ([lab notes 15](15_adam_and_warmup.py)). The larger start of *bare*
# follows from the ReLU: it lets through half of the mean square. With the smaller start, the variance of the sum grows
# by a factor of at most about $(1 + 1/n)^n < e$ in $n$ boxes.
#
# Two grids of rates are coarse. Post-LN with the smaller $W_2$ and 12 boxes has its best rate at the end of the grid,
# so a higher one may be better. The rates of *residual only* with 48 boxes are a factor of 10 apart. A rate between the
# best and the one that overflows:

# %% One more rate of "residual only", 48 boxes
steps = [sum(1 for _ in train(Classifier("residual only", 48, seed), 3e-5, seed, 400))
         for seed in (0, 1, 2)]
measure("rate 3e-5: seeds of three without an overflow",
        sum(n == 400 for n in steps), 0, 2)

# %% [markdown]
# ## Without gamma and beta
#
# A small translator (the file, $D = 32$, one layer each in encoder and decoder) learns to translate short sentences for
# 1,000 steps. *Fixed*: $\gamma$ stays 1 and $\beta$ stays 0 in all norms. The loss is that of 204 new sentences,
# without smoothing.

# %% Training with gamma and beta, and without
def lines(language, split):
    text = (transformer.CORPUS / f"{split}.{language}").read_text("utf-8")
    return [transformer.words_in(line) for line in text.splitlines()]


def pairs(split):
    both = zip(lines("en", split), lines("de", split))
    return [(en, de) for en, de in both if len(en) <= 8]


used = {word for both in pairs("train") for side in both for word in side}
id_of = {word: i for i, word in enumerate(["<pad>", "</s>", "<s>", *sorted(used)])}


def in_ids(split):
    known = [both for both in pairs(split) if id_of.keys() >= {*both[0], *both[1]}]
    ids = [[[*map(id_of.get, side), transformer.EOS] for side in both]
           for both in known]
    return [(source, [transformer.BOS, *target]) for source, target in ids]


def trained(seed, fixed, steps=1000):
    """-> loss of new sentences, mean of the last gamma"""
    transformer.rng = np.random.default_rng(seed)
    model = transformer.new_model(len(id_of), d_model=32, d_ff=64, h=2, N=1,
                                  dtype="float64")
    norms = [w for name, w in model.weights.items() if name.endswith(("gamma", "beta"))]
    for step, batch in enumerate(islice(transformer.batches(data, 32), steps), 1):
        transformer.loss_of(*batch, model)[1](1.0)
        for w in norms if fixed else []:
            w.grad[...] = 0
        transformer.adam(model, step, warmup_steps=100)
    last = model.decoder[-1][-1]["gamma"].data.mean()
    return transformer.loss_of(*new, model, eps_ls=0.0)[0], last


data, test = in_ids("train"), in_ids("test")
new = next(transformer.batches(test, len(test)))
seeds = [0] if QUICK else [0, 1, 2]
learned, fixed = (np.array([trained(seed, each) for seed in seeds], float)
                  for each in (False, True))
table(["γ and β", "loss of new sentences", "the seeds"],
      [[name, f"{losses.mean():.2f}", ", ".join(f"{loss:.2f}" for loss in losses)]
       for name, losses in (("learned", learned[:, 0]), ("fixed", fixed[:, 0]))])
measure("fixed − learned, smallest of the seeds",
        (fixed - learned)[:, 0].min(), 0.02, 0.12)
measure("mean of the last γ, learned", learned[:, 1].mean(), 1.5, 1.8)

# %% [markdown]
# (One size, one schedule, a short training. Others have found that larger models do as well without γ and β: Xu et al.
# 2019, *Understanding and Improving Layer Normalization*.)
#
# ## What a check of LayerNorm must contain
#
# Suppose that backward multiplies by $\gamma$ only *after* the two means are taken out. How wrong is $dx$ then, for
# $\gamma$ around 1 with different spreads?

# %% Gamma inside and outside
random = np.random.default_rng(12)
x, dy = random.normal(size=(2, 2, 50, 64))


def dx(gamma, dy):
    gamma, beta = (SimpleNamespace(data=data, grad=np.zeros(64))
                   for data in (gamma, np.zeros(64)))
    return transformer.layer_norm(x, gamma, beta)[1](dy)


for spread, lo, hi in (0, 0, 1e-12), (0.05, 0.005, 0.03), (0.5, 0.05, 0.25):
    gamma = random.normal(1, spread, 64)
    ours, outside = dx(gamma, dy), gamma * dx(np.ones(64), dy)
    error = np.linalg.norm(outside - ours) / np.linalg.norm(ours)
    measure(f"γ of standard deviation {spread}: relative error", error, lo, hi)

# %% [markdown]
# So a check of a freshly made layer, where $\gamma$ is 1, finds nothing.
