# %% [markdown]
# # Lab notes 21 · BLEU, its error bars, and averaging checkpoints
#
# The controls behind [lesson 21](../21_bleu_and_averaging.py): why BLEU has no slope, the mean of the last checkpoints,
# and what a 95 % interval promises.

# %%
import course  # noqa: F401  finds lessons/support

import numpy as np
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from scratchformer.experiments.heads import teacher_forced
from scratchformer.nn.loss import batch_loss, batch_loss_backward
from scratchformer.text.bundled import Example, read_text
from scratchformer.training.run import load_run
from support import bleu_by_hand
from support.bleu_by_hand import bleu
from support.lesson import QUICK, ROOT, measure, recorded, table

translator = load_run(ROOT / "data/tiny_model")
english, german, *_ = read_text("test")
split_13a = Tokenizer13a()


def tokens(lines):
    return [split_13a(line).split() for line in lines]


wanted = tokens(german)


def table_of(lines, references=wanted):
    return bleu_by_hand.count_table(tokens(lines), references)         # (sentences, 9)


record = recorded("averaging")
systems = {(each["seed"], each["n"], each["rate"]): each["lines"]
           for each in record["translations"]}
small = {(seed, n): table_of(lines) for (seed, n, rate), lines in systems.items()
         if rate == "schedule"}
tables = [table_of(translator.translate(english, beam=size)) for size in (1, 4)]

# %% [markdown]
# ## Experiment 1: BLEU has no slope
#
# The loss and BLEU along one random direction, as long as the vector of all weights, on forty sentences. The control is
# the loss: its slope by differences must be the one by its gradient.

# %%
model = translator.model
at_start, few = model.store.data.copy(), slice(0, 40)
batch = teacher_forced(translator.tokenizer,
                       [Example(source, target, "", "", [], None)
                        for source, target in zip(english[few], german[few])])
u = np.random.default_rng(2).normal(size=at_start.size).astype(at_start.dtype)
u *= np.linalg.norm(at_start) / np.linalg.norm(u)


def loss_and_bleu(h):
    """The weights moved by h u -> loss in nats per piece, BLEU of greedy search"""
    model.store.data[...] = at_start + h * u
    model.store.refresh()
    loss, n_pieces = batch_loss(model, batch[:2], batch[2])
    rows = table_of(translator.translate(english[few], beam=1), wanted[few])
    model.store.data[...] = at_start
    model.store.refresh()
    return float(loss) / n_pieces, float(bleu(rows.sum(axis=0)))


h = 0.001
(loss_behind, bleu_behind), (loss_ahead, bleu_ahead) = map(loss_and_bleu, (-h, h))
model.zero_grad()
_, n_pieces = batch_loss_backward(model, batch[:2], batch[2])
slope = float(model.store.grad @ u) / n_pieces
numeric = (loss_ahead - loss_behind) / (2 * h)
measure("BLEU: its slope by differences", (bleu_ahead - bleu_behind) / (2 * h), 0, 0)
measure("loss: its slope by differences", numeric, -0.055, -0.047)
measure("loss: by differences − by its gradient", numeric - slope, -0.002, 0.002)

# %% [markdown]
# The derivative of BLEU is 0 almost everywhere, and it doesn't exist where two words are exactly level. The *expected*
# BLEU of sampled translations has a slope (Shen et al., 2016, "Minimum Risk Training for Neural Machine Translation").
#
# ## Experiment 2: the mean of the last checkpoints
#
# Why should a mean of weights be any good? Late in training, every batch pushes the weights in a slightly different
# direction, so they swing around a better place. For one weight $x$ on the parabola $\frac{1}{2} \lambda x^2$, this can
# be derived: if the checkpoints are so far apart that they don't depend on each other, the mean of $K$ has $1/K$ of the
# variance, and so $1/K$ of the extra loss. If they are one step apart, nearly nothing is gained. And a learning rate
# that falls to 0 lets the swings die down by itself.
#
# The test: a model half as wide as the shipped one, 1,500 steps, seeds 0, 1 and 2, a checkpoint every 30 steps
# ([benchmarks/averaging.py](../../benchmarks/averaging.py)). *Rate to 0* falls in the last 300 steps, from the same
# weights and with the same batches. The controls are five successive steps, and the mean of forty checkpoints.

# %%
def row(n, apart="save_every", rate="schedule"):
    return next(each for each in record["results"]
                if (each["n"], each["apart"], each["rate"]) == (n, apart, rate))


last, five, falling = row(1), row(5), row(1, rate="to 0")
table(["weights", "loss of three seeds", "BLEU of three seeds"],
      [[name, *(", ".join(f"{value:.{digits}f}" for value in way[quantity])
                for quantity, digits in (("loss", 3), ("bleu", 1)))]
       for name, way in {
           "last": last, "5 successive steps": row(5, apart="one step"),
           **{f"mean of {n}": row(n) for n in (2, 5, 10, 20, 40)},
           "rate to 0": falling, "rate to 0, mean of 5": row(5, rate="to 0")}.items()])

# %% [markdown]
# Means of 5 or 10 gain three BLEU in every seed, five successive steps next to nothing. A falling rate gains as much,
# and a mean on top of it adds nothing. The mean of forty reaches back to step 330, when the model was still far from
# the end: a mean removes noise, not distance.
#
# **A falling rate or a mean of five?** In BLEU it's +0.63, +0.23 and −0.17, and the lesson shows that no interval
# excludes 0. In loss the falling rate is worse in all three seeds. An earlier run of the same program on another
# processor (Intel Xeon, 2026-11-21, commit a3a2d82) had +0.78, +0.65 and +1.33. Three equal signs have p = 1/4.
#
# ## Experiment 3: what the interval promises
#
# A 95 % interval should hold the true difference in 95 of 100 test sets. First a truth that we know: exchange the
# translations of *last* and *mean of 5* by coin, sentence by sentence, so that neither side is better. Then let our 500
# sentences be the whole world, and sample test sets of 100 from it (in the last row, of 500).

# %%
random, samples = np.random.default_rng(3), np.random.default_rng(1).integers(
    0, 500, (300, 500))
excluded = []
for _ in range(100 if QUICK else 300):
    coins = random.random((500, 1)) < 0.5
    sides = np.where(coins, small[0, 1], small[0, 5]), np.where(
        coins, small[0, 5], small[0, 1])
    low, high = bleu_by_hand.difference_interval(*sides, samples)
    excluded.append(not low < 0 < high)
measure("exchanged by coin: intervals without 0", np.mean(excluded), 0.01, 0.11)


def holds_the_truth(a, b, size=100, n_sets=100 if QUICK else 300):
    """a, b (500, 9) -> share of test sets whose interval holds the difference of all"""
    truth, held = bleu(b.sum(axis=0)) - bleu(a.sum(axis=0)), 0
    for test_set in random.integers(0, 500, (n_sets, size)):
        low, high = bleu_by_hand.difference_interval(
            a[test_set], b[test_set], random.integers(0, size, (200, size)))
        held += low <= truth <= high
    return held / n_sets


measure("mean of 5 − last: truth inside", holds_the_truth(small[0, 1], small[0, 5]),
        0.84, 0.98)
measure("beam 4 − greedy: truth inside", holds_the_truth(*tables), 0.3, 0.6)
measure("the same with 500 sentences", holds_the_truth(*tables, size=500), 0.74, 0.94)

# %% [markdown]
# For the mean of five it is a 95 % interval, or nearly. For beam and greedy search it isn't: they differ in five
# sentences of 500, and a set of 100 holds one of these on average, and often none.
#
# **Pairing, other seeds, and larger test sets**, for *mean of 5 − last*, seed 0:

# %%
a, b = small[0, 1], small[0, 5]
scores = [bleu_by_hand.bleu_of_samples(rows, samples) for rows in (a, b)]
paired, separate = (np.ptp(bleu_by_hand.interval(scores[1] - other))
                    for other in (scores[0], scores[0][::-1]))
measure("width with separate samples, over paired", separate / paired, 1.5, 2.2)
of_seeds = [bleu(small[seed, 1].sum(axis=0)) for seed in (0, 1, 2)]
measure("three trainings that differ in the seed: best − worst",
        max(of_seeds) - min(of_seeds), 1.2, 2.4)
for S, lo, hi in (125, 2.3, 3.7), (500, 1, 1.9), (2000, 0.5, 1):
    sets = np.random.default_rng(2).integers(0, 500, (200 if QUICK else 1000, S))
    low, high = bleu_by_hand.difference_interval(a, b, sets)
    measure(f"{S} sentences: half the width", (high - low) / 2, lo, hi)
