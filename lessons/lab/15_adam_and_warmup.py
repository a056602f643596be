# %% [markdown]
# # Lab notes 15 · Adam and the warm-up
#
# What [lesson 15](../15_adam_and_warmup.py) rests on: ravines that lie diagonally; how much the gradients of a
# Transformer differ, how long Adam's steps are, and momentum beside Adam; at which learning rates a warm-up helps; and
# a claim to check. The trainings were recorded by [benchmarks/warm_up.py](../../benchmarks/warm_up.py).

# %% Imports
import course  # noqa: F401  finds lessons/support
import math

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import encode_pairs
from scratchformer.text.bundled import read_text
from scratchformer.training.run import load_run
from support.lesson import QUICK, ROOT, measure, recorded, same, table, varying
from support.training import set_gradient

SEEDS = [0] if QUICK else [0, 1, 2]

# %% [markdown]
# ## Experiment 1: ravines, straight and diagonal
#
# The ravine of the lesson, $50 a^2 + \frac{1}{2} b^2$, and the same turned by 45°, so that its floor lies diagonally
# between the two weights. 200 starts at random, with $a$ and $b$ between 0.5 and 1.5 in size, turned with the ravine.
# The table has the median loss after 60 steps, at the best of sixteen rates.

# %%
RATES = (0.002, 0.005, 0.01, 0.015, 0.018, 0.0195, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5,
         0.6, 0.7, 0.85, 1.0)
random = np.random.default_rng(0)
STARTS = random.choice([-1, 1], (200, 2)) * random.uniform(0.5, 1.5, (200, 2))


@np.errstate(over="ignore", invalid="ignore")  # some rates are too high
def losses_of_walks(way, rate, degrees, n_steps=60, beta1=0.9, beta2=0.98):
    """-> the losses of all starts after n_steps steps, (200,)"""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn = np.array([[c, -s], [s, c]])
    curvature, w, m, v = turn @ np.diag([100.0, 1.0]) @ turn.T, STARTS @ turn.T, 0, 0
    for t in range(1, n_steps + 1):
        g = w @ curvature
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        steps = {"gradient descent": g, "momentum": m,
                 "Adam": m / (1 - beta1**t) / np.sqrt(v / (1 - beta2**t))}
        w = w - rate * steps[way]
    return (w @ turn)**2 @ [50, 0.5]


lowest = {}
for way in "gradient descent", "momentum", "Adam":
    for degrees in 0, 45:
        medians = [np.median(losses_of_walks(way, rate, degrees)) for rate in RATES]
        lowest[way, degrees] = np.nanmin(medians)
table(["method", "straight", "diagonal"],
      [[way, *(f"{lowest[way, degrees]:.2g}" for degrees in (0, 45))]
       for way in ("gradient descent", "momentum", "Adam")])
for way in "gradient descent", "momentum":
    same(f"{way}: diagonal and straight", lowest[way, 45], lowest[way, 0], 1e-9)
measure("Adam: diagonal over straight", lowest["Adam", 45] / lowest["Adam", 0], 1.3, 2)

# %% [markdown]
# What Adam divides by belongs to one weight at a time, and in a diagonal ravine both weights have gradients of similar
# sizes.
#
# ## Experiment 2: how much do the gradients of a Transformer differ?
#
# A model with 1 + 1 layers and $d_{model} = 32$ learns for 30 steps with Adam, at a rate that rises to 0.01 in 20
# steps, 16 sentences of at most 12 pieces a step. For each weight take the usual size of its gradient,
# $\sqrt{\hat{v}}$.

# %%
tokenizer = load_run(ROOT / "data/tiny_model").tokenizer
sentences = encode_pairs(tokenizer.encode, read_text("train"), max_length=12,
                         tokens_per_batch=10_000)


def new_model(seed, layers, dtype):
    config = ModelConfig(vocab_size=tokenizer.vocab_size, N=layers, d_model=32, d_ff=64,
                         h=2, P_drop=0.0, norm="post")
    return Transformer(config, seed, dtype)


def train(model, seed, rate_of, steps):
    """-> Adam after its last step, the training loss of each step"""
    random, adam, losses = np.random.default_rng(seed), Adam(model), []
    for t in range(1, steps + 1):
        batch = sentences.batch(random.integers(0, len(sentences), 16))
        losses.append(set_gradient(model, batch.inputs, batch.targets))
        adam.step(rate_of(t))
    return adam, losses


for seed in SEEDS:
    model = new_model(seed, 1, "float64")
    adam, _ = train(model, seed, lambda t: 0.01 * min(1, t / 20), steps=30)
    usual = np.sqrt(adam.v / (1 - 0.98**30))
    low, high = np.quantile(usual, [0.01, 0.99])
    measure(f"seed {seed}: 99th over 1st percentile", high / low, 250, 550)

# %% [markdown]
# (This isn't quite a ravine: a ravine is about how fast gradients *change* along each direction.)
#
# ## Experiment 3: how long is a step?
#
# By the inequality of Cauchy and Schwarz, a step late in training is at most
#
# $$\frac{1 - \beta_1}{\sqrt{(1 - \beta_2)(1 - \beta_1^2 / \beta_2)}}$$
#
# times the rate. It's that long if $g$ grows by the factor $\beta_2 / \beta_1$ from step to step.

# %%
for beta2, lo, hi in (0.98, 1.69, 1.70), (0.999, 7.2, 7.3):
    longest = 0.1 / math.sqrt((1 - beta2) * (1 - 0.9**2 / beta2))
    measure(f"longest step, beta_2 = {beta2}, in units of the rate", longest, lo, hi)
m = v = 0
for t in range(1, 300):
    g = (0.98 / 0.9) ** t
    m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
measure("reached with beta_2 = 0.98",
        m / (1 - 0.9**t) / math.sqrt(v / (1 - 0.98**t)), 1.69, 1.70)

# %% [markdown]
# ## Experiment 4: momentum or Adam?
#
# The model of experiment 2 on the whole corpus, 150 steps with a warm-up, seeds 0, 1, 2, four rates for each. At the
# best rate of each, Adam ends lower with every seed.

# %%
record = recorded("warm_up")


def losses_of(part, **wanted):
    """The final losses of each seed in the row with these settings; inf if lost"""
    (row,) = [row for row in record[part]
              if all(row[name] == value for name, value in wanted.items())]
    return np.array([run["final_loss"] or math.inf for run in row["runs"]])


def each(losses):
    return " · ".join(f"{loss:.2f}" if loss < 1000 else "lost" for loss in losses)


ways = [(row["optimizer"], row["peak"]) for row in record["optimizers"]]
table(["optimizer", "rate", "loss of three seeds"],
      [[way, f"{peak:g}", each(losses_of("optimizers", optimizer=way, peak=peak))]
       for way, peak in ways])
for way, peak, lo, hi in ("with momentum", 1, 4.5, 4.55), ("Adam", 0.01, 3.6, 3.62):
    losses = losses_of("optimizers", optimizer=way, peak=peak)
    measure(f"{way}, best mean", losses.mean(), lo, hi)

# %% [markdown]
# ## Experiment 5: at which rates does a warm-up help?
#
# The lesson's models, with 3 + 3 layers and $d_{model} = 32$. The rate rises for 40 steps or is there from the first
# step on, and then stays. Seeds 0, 1, 2.

# %%
rows = [("150 steps", "results", norm, peak) for norm in ("post", "pre")
        for peak in (0.001, 0.003, 0.01, 0.02) if (norm, peak) != ("pre", 0.001)]
rows += [("600 steps", "long", "post", peak) for peak in (0.003, 0.01)]
table(["steps and model", "rate", "without warm-up", "with"],
      [[f"{steps}, {norm}-LN", peak,
        *(each(losses_of(part, norm=norm, peak=peak, warmed=which))
          for which in ("none", "all"))] for steps, part, norm, peak in rows])
ends = {(peak, which): losses_of("long", peak=peak, warmed=which)
        for peak in (0.003, 0.01) for which in ("none", "all")}
measure("600 steps, 0.01, without: lowest", ends[0.01, "none"].min(), 5.5, 5.7)
measure("600 steps, 0.003, without: mean", ends[0.003, "none"].mean(), 2.5, 2.52)
measure("600 steps, 0.003, with: mean", ends[0.003, "all"].mean(), 2.24, 2.26)
gains = ends[0.003, "none"] - ends[0.003, "all"]
measure("600 steps, 0.003, without − with: smallest", gains.min(), 0.15, 0.25)
measure("the frequencies alone", record["unigram_entropy"], 5.505, 5.515)

# %% [markdown]
# At 0.01 the runs without a warm-up don't recover within 600 steps. But 0.003 without a warm-up ends lower than 0.01
# with one, with every seed: the lower rate is the better remedy in this model. The gain at 0.003 doesn't carry over to
# every lower rate: a reader who repeated the runs at 0.002 and below found none.
#
# **Why the page shows recorded runs.** At 0.01 without a warm-up, rounding alone decides where a single run ends. Here
# one of the weights at the start is changed in its last binary digit (short sentences, 120 steps, seed 1):

# %%
ended = []
for changed in False, True:
    model = new_model(1, 3, "float32")
    if changed:
        model.store.data[0] = np.nextafter(model.store.data[0], np.float32(1))
        model.store.refresh()
    _, losses = train(model, 1, lambda t: 0.01, steps=120)
    ended.append((losses[0], np.mean(losses[-10:])))
measure("first loss: difference", abs(ended[0][0] - ended[1][0]), 0, 1e-5)
varying("mean loss of the last ten steps: "
        f"{ended[0][1]:.2f}, and {ended[1][1]:.2f} with the changed weight")

# %% [markdown]
# ## Check the claim
#
# > "With $d_{model} = 512$ and 4,000 steps of warm-up, the learning rate peaks at about 0.00098."

# %%
measure("equation 3: highest rate of the base model", noam(4000, 512, 4000),
        6.98e-4, 6.99e-4)
measure("warm-up for a peak of 0.00098", 1 / (512 * 0.00098**2), 2033, 2034)
measure("twice equation 3, warm-up 8,000", 2 * noam(8000, 512, 8000), 9.8e-4, 9.9e-4)

# %% [markdown]
# The number may come from the paper's public code, which later took twice equation 3 with 8,000 steps. Those are not
# the settings of the paper. On warm-up: [Xiong et al. (2020)](https://arxiv.org/abs/2002.04745) and [Liu et al.
# (2020)](https://arxiv.org/abs/1908.03265).
