# %% [markdown]
# # 18 · Batches of tokens, and gradients added up
#
# **How do we fill batches with words instead of padding, and take big steps on a small machine?**
#
# *Needs [lesson 06](06_masks.py) (padding), [lesson 14](14_label_smoothing.py) (the loss of a token) and [lesson
# 17](17_byte_pairs.py) (tokens) · you will write a batch plan that equals the library's, and catch a wrong mean that no
# error message reports.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from scratchformer.config import TrainingConfig
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.nn.loss import batch_loss_backward, cross_entropy
from scratchformer.text.batches import BatchPlan, bucket_boundaries
from scratchformer.text.tokenizer import PAD
from scratchformer.training.data_parallel import DataParallel
from support.drawing import Drawing
from support.length_batches import bundled, loss_by_thirds, small_model, trained, up_to
from support.lesson import QUICK, measure, same, show, table
from support.numeric import numeric_gradient

# %% [markdown]
# A **batch** is an array, and arrays are rectangles. Sentences aren't: one has 4 tokens, the next has 30. So every
# sentence of a batch is filled up with padding until it is as long as the longest one. The masks of [lesson
# 06](06_masks.py) make padding harmless, but the model still computes with it.
#
# Take the 20,000 training pairs of the bundled text in random order, 64 to a batch. A *position* is one place in the
# source or target array, filled or not. Which share of all positions is padding?
#
# **Your turn.** Write the function that measures it: `18_padding_share`, then `scratchformer learn check 18`.

# %% Our solution
pairs = bundled("train")
source_lengths = pairs.source.lengths                   # (20000,)
target_lengths = pairs.target.lengths
lengths = pairs.lengths                                 # of the longer side


def padding_share(batches):
    """batches: arrays (B,) of indices -> the share of positions that is padding"""
    positions = sum(len(batch)
                    * (source_lengths[batch].max() + target_lengths[batch].max())
                    for batch in batches)
    real = sum((source_lengths + target_lengths)[batch].sum() for batch in batches)
    return 1 - real / positions


def cut(order, size):
    """order (n,) -> arrays of `size` indices, the last one perhaps smaller"""
    return [order[start:start + size] for start in range(0, len(order), size)]


# %% [markdown]
# <details><summary>Make a guess, then unfold: padding in random batches</summary>

# %% Padding of random batches
shuffled = np.random.default_rng(0).permutation(len(pairs))
for size, lo, hi in (16, 0.33, 0.38), (64, 0.41, 0.46), (256, 0.48, 0.53):
    measure(f"{size} random pairs a batch: padding",
            padding_share(cut(shuffled, size)), lo, hi)

# %% [markdown]
# With 64 pairs, 44 of 100 positions are padding. With 256 pairs it is half of them, because the more pairs there are,
# the longer is the longest one.
#
# </details>
#
# ## The picture
#
# Here are 24 pairs taken at random, and 24 pairs of nearly the same length.

# %% Drawing two padded batches
example = np.random.default_rng(1).permutation(len(pairs))
close = example[(lengths[example] > 12) & (lengths[example] <= 14)][:24]
figure, panels = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True, layout="constrained")
titles = "24 pairs at random", "24 pairs of length 13 and 14"
for panel, batch, name in zip(panels, (example[:24], close), titles):
    sides = [side.padded(batch) != PAD for side in (pairs.source, pairs.target)]
    gap = np.full((24, 1), 2)  # padding 0, real 1, between the sides 2
    panel.imshow(np.concatenate([sides[0], gap, sides[1]], axis=1), aspect="auto",
                 cmap=ListedColormap([ACCENT, DARK, "white"]), interpolation="none")
    panel.set_title(f"{name}: {padding_share([batch]):.0%} padding", fontsize=11)
    S, T = (side.shape[1] for side in sides)
    panel.set_xticks([(S - 1) / 2, S + (T + 1) / 2],
                     [f"source, S = {S}", f"target, T = {T}"])
panels[0].set_ylabel("pair")
panels[0].text(4.5, 10, "real tokens", color="white", ha="center", va="center")
panels[0].text(14.8, 10, "padding", color="black", ha="center", va="center")
show(figure, "18_padded",
     alt="Two padded batches as rows of cells, real tokens dark blue, padding "
         f"orange. Of 24 pairs at random {padding_share([example[:24]]):.0%} is "
         f"padding, of 24 of length 13 and 14 {padding_share([close]):.0%}.",
     caption="One long pair makes a whole random batch wide. On the right nearly all "
             "is text; the ragged edge is where one side of a pair is shorter than "
             "the other.")

# %% [markdown]
# So pairs of similar length should be in the same batch. Six sentences of 2, 8, 3, 2, 8 and 3 tokens show how.

# %% Drawing six sentences
def six_sentences():
    drawing = Drawing(720, 262)
    ways = ("at random, two a batch", [[2, 8], [3, 2], [8, 3]]), \
           ("sorted, two a batch", [[2, 2], [3, 3], [8, 8]]), \
           ("sorted, a budget of 16", [[2, 2, 3, 3], [8, 8]])
    for column, (name, batches) in enumerate(ways):
        left, y = 20 + 240 * column, 62
        drawing.text(left, 24, name, bold=True, anchor="start")
        for batch in batches:
            for n in batch:
                for i in range(max(batch)):
                    role, filled = ("forward", 0.75) if i < n else ("value", 0.12)
                    drawing.rectangle(left + 9 + 21 * i, y, 19, 17, role, filled)
                y += 21
            y += 13
        positions = sum(len(batch) * max(batch) for batch in batches)
        padding = positions - sum(map(sum, batches))
        words = f"{positions} positions, {padding} padding"
        drawing.text(left, 240, words, "soft", 14, "start")
    return drawing


show(six_sentences(), "18_six",
     alt="Six sentences of 2, 8, 3, 2, 8 and 3 tokens in batches. At random, two a "
         "batch: 38 positions, 12 of them padding. Sorted by length: 26 positions "
         "and no padding, but batches of 4, 6 and 16 positions. Sorted with a budget "
         "of 16 positions: one batch of four sentences and one of two, 28 positions.",
     caption="Sorting removes the padding (hollow). A budget of positions, in place "
             "of a number of sentences, makes the batches about equally large.")

# %% [markdown]
# Two things changed from left to right. First, we **sorted** by length. But then the first batch has 4 positions and
# the last has 16, so one step of training would learn from 4 tokens and another from 16. That is why we also changed
# what a batch may hold: not a number of sentences, but a **budget of positions**. Many short sentences or a few long
# ones fit, and each batch has about as much text. The paper counts its batches in tokens as well.
#
# ## In general: buckets
#
# Our library, like the paper's public code, does nearly this. It cuts the lengths into **buckets**, and takes the pairs
# of a batch from one bucket, at random. With a budget $c$ for each side (`tokens_per_batch`), a batch of bucket $k$,
# whose longest pairs have $b_k$ tokens, holds
#
# $$n_k = \max\left(1, \left\lfloor \frac{c}{b_k} \right\rfloor\right)$$
#
# pairs. The boundaries $b_k$ begin at 8, and their steps grow with the length:
#
# $$b_1 = 8, \qquad b_{k+1} = b_k + 2^{\max(0,\, \lfloor \log_2 b_k \rfloor - f)}$$
#
# The *fineness* $f = 1$ gives 8, 12, 16, 24, 32, 48, ...; each further unit doubles the number of buckets. The plan of
# an **epoch**, one pass over all pairs, is: shuffle the pairs, deal them to their buckets, cut each bucket into
# batches, and shuffle the *batches*.

# %%
def boundaries(longest, fineness):
    """8, 12, 16, 24, 32, 48, ... for fineness 1"""
    found = [8]
    while found[-1] < longest:
        step = 2**max(0, int(math.log2(found[-1])) - fineness)
        found.append(found[-1] + step)
    return np.array([*(boundary for boundary in found if boundary < longest), longest])


def plan_of_epoch(budget, fineness, seed, epoch):
    """-> the batches of an epoch, each an array of indices"""
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    edges = boundaries(pairs.max_length, fineness)
    shuffled = random.permutation(len(pairs))
    bucket_of = np.searchsorted(edges, lengths[shuffled])  # first boundary >= length
    batches = []
    for k, edge in enumerate(edges):
        batches += cut(shuffled[bucket_of == k], max(1, budget // edge))
    return [batches[i] for i in random.permutation(len(batches))]


# %% Equal to the library's?
for fineness in 1, 2, 3:
    ours = plan_of_epoch(512, fineness, seed=5, epoch=1)
    theirs = BatchPlan(pairs, 512, accumulation=1, seed=5, fineness=fineness).epoch(1)
    assert list(boundaries(256, fineness)) == bucket_boundaries(256, fineness)
    assert list(map(len, ours)) == list(map(len, theirs))
    same(f"fineness {fineness}: pairs of all batches, in order", np.concatenate(ours),
         np.concatenate(theirs))

# %% [markdown]
# The plan follows from the seed and the number of the epoch alone, so a run that was interrupted can resume at any
# step, and several machines agree on the batches without a message.
#
# The other way is the one of figure 2: sort all pairs by length, pairs of equal length in random order, cut where the
# budget is full, and shuffle the batches.

# %%
def sorted_plan(budget, seed, epoch):
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    order = random.permutation(len(pairs))
    order = order[np.argsort(-lengths[order], kind="stable")]  # the longest first
    batches, start = [], 0
    while start < len(order):
        size = max(1, budget // lengths[order[start]])
        batches.append(order[start:start + size])
        start += size
    return [batches[i] for i in random.permutation(len(batches))]


# %% Padding of all plans
plans = {f"buckets, fineness {fineness}": plan_of_epoch(512, fineness, seed=0, epoch=0)
         for fineness in (1, 2, 3)} | {"sorted": sorted_plan(512, seed=0, epoch=0)}
for (name, plan), (lo, hi) in zip(
        plans.items(), [(0.15, 0.18), (0.09, 0.115), (0.055, 0.075), (0.045, 0.065)]):
    measure(f"{name}: padding", padding_share(plan), lo, hi)
as_many = len(pairs) // len(plans["buckets, fineness 2"])      # pairs in a batch
measure(f"{as_many} random pairs a batch: padding",
        padding_share(cut(shuffled, as_many)),
        0.38, 0.43)
shares = ({f"{size} at random": padding_share(cut(shuffled, size))
           for size in (256, 64, as_many, 16)}
          | {name: padding_share(plan) for name, plan in plans.items()})
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
bars = axes.barh(list(shares), [100 * share for share in shares.values()],
                 color=[ACCENT] * 4 + [DARK] * 3 + [LIGHT])
axes.bar_label(bars, fmt="%.0f", padding=2)
axes.invert_yaxis()
axes.set(xlabel="padding, per cent of all positions", xlim=(0, 58))
show(figure, "18_padding", alt="A bar chart of padding: " + ", ".join(
     f"{share:.0%} for {name}" for name, share in shares.items()) + ".",
     caption="Random batches are a third to a half padding. Buckets come near to "
             "sorting.")

# %% [markdown]
# Buckets of fineness 2, the setting of our presets `tiny` and `multi30k`, leave 10 % padding, and sorting leaves 5 %.
# What is left then is mostly the shorter side of the pairs.
#
# ## Does the order matter?
#
# Then why not sort, cut, and be done? We could even leave out the shuffling and let the model read from short to long.
# Here are four orders. A small model trains on each of them, on the same number of target tokens (30,000), and then we
# measure its loss on 500 new pairs, separately for the short, the middle and the long third. Which orders do harm, and
# to which sentences?
#
# <details><summary>Make a guess, then unfold: loss after four orders</summary>

# %% Loss after four orders, mean of three seeds
validation = bundled("val")
SEEDS = (0,) if QUICK else (0, 1, 2)
N_TOKENS = 30_000


def first_batches(seed, plan):
    return up_to(plan(seed), target_lengths, N_TOKENS)


def by_length(batches, sign):
    return sorted(batches, key=lambda batch: sign * lengths[batch].max())


def buckets(seed):
    return plan_of_epoch(256, 2, seed, epoch=0)


ORDERS = {
    "buckets, shuffled": lambda seed: first_batches(seed, buckets),
    "sorted, then batches shuffled": lambda seed: first_batches(
        seed, lambda seed: sorted_plan(256, seed, epoch=0)),
    "from short to long": lambda seed: by_length(first_batches(seed, buckets), 1),
    "from long to short": lambda seed: by_length(first_batches(seed, buckets), -1)}
after = {name: np.array([loss_by_thirds(trained(seed, pairs, order(seed)), validation)
                         for seed in SEEDS]) for name, order in ORDERS.items()}
table(["order", "short", "middle", "long"],
      [[name, *(f"{loss:.2f}" for loss in losses.mean(axis=0))]
       for name, losses in after.items()])
planned, in_sorted, upwards, downwards = after.values()
measure("sorted − buckets: mean loss", (in_sorted - planned).mean(), -0.15, 0.15)
measure("buckets: range of the mean loss over the seeds",
        np.ptp(planned.mean(axis=1)), 0, 0.3)
measure("short to long: least rise of the short third",
        (upwards - planned)[:, 0].min(), 0.1, 1.6)
measure("long to short: least rise of the long third",
        (downwards - planned)[:, 2].min(), 0.1, 1.6)

# %% [markdown]
# The lengths that were read first come out worst: the short ones if we go from short to long, and the long ones if we
# go from long to short. (The second of these orders is the control. If short sentences were just harder to learn, it
# would not hurt the long ones.) But *sort, then shuffle the batches* does no harm that we can see. Its loss is 0.02
# nats higher on average, while runs with buckets that differ only in the seed are up to 0.14 nats apart.
#
# </details>
#
# So what must be random is the order of the *batches*. Which pairs share a batch matters much less here.
#
# Should you use buckets, then, or sort? Sorting is less code and pads less. Our library keeps the buckets of the
# paper's code, because there the difference is small: it sorts the pairs of each step once more when it cuts the step
# into smaller batches (see below).
#
# ## A step that is larger than the memory
#
# The paper's step has about 25,000 target tokens. What forward keeps for that step in the base model is 12.6 GiB. A
# small machine can still take this step: cut it into **micro-batches**, compute them one after another, and add up
# their gradients. That is **gradient accumulation**. Only the sum of the gradients has to stay in memory.
#
# There is one trap, and three tokens show it. Micro-batch A has two tokens with losses 1 and 1. Micro-batch B has one
# token, with loss 4. The mean loss of the three tokens is (1 + 1 + 4) / 3 = **2**. Now take the mean of each
# micro-batch, 1 and 4, and average these: **2.5**. The token of B counts half of the result in place of a third. No
# shape is wrong and no error appears. The right way is to add up sums, and to divide *once*, at the end, by the number
# of all tokens.
#
# In general, let micro-batch $m$ have $n_m$ real target tokens with losses $\ell_{mt}$. The loss of the step and its
# gradient are
#
# $$L = \frac{1}{n} \sum_m \sum_t \ell_{mt}, \qquad dW = \frac{1}{n} \sum_m g_m, \qquad n = \sum_m n_m, \qquad
# g_m = \sum_t \frac{\partial \ell_{mt}}{\partial W}$$
#
# The gradient is such a plain sum because every loss depends on the same $W$, and on no sentence of another
# micro-batch. With a mean of means, a token of micro-batch $m$ counts $\frac{n}{M n_m}$ times what it should, with $M$
# for the number of micro-batches: in the example 3 / (2 · 2) = 0.75 times in A and 3 / (2 · 1) = 1.5 times in B.
#
# **Your turn.** Write `18_accumulate`, run the check, and then unfold.

# %% Our solution
def add_up(model, batches, smoothing=0.1):
    """-> the gradient of the step (all parameters in one row), its tokens"""
    n = 0
    model.zero_grad()
    for batch in batches:
        # adds a sum's gradient
        _, n_m = batch_loss_backward(model, batch.inputs, batch.targets, smoothing)
        n += n_m
    return model.store.grad / n, n


def mean_of_means(model, batches, smoothing=0.1):
    """The same with the mistake."""
    return np.mean([add_up(model, [batch], smoothing)[0] for batch in batches], axis=0)


# %% [markdown]
# Is that right? First we compare both ways with finite differences, for a matrix `W` that scores 5, 2 and 4 tokens in
# three micro-batches. Then with a whole model: one batch of 24 pairs at once, the same pairs in four micro-batches, and
# the library's step.

# %% Checking the gradient
random = np.random.default_rng(0)
D, V, counts = 3, 6, (5, 2, 4)
W = random.normal(size=(D, V))
micro = [(random.normal(size=(n, D)), random.integers(1, V, n)) for n in counts]


def step_loss(W):
    return sum(cross_entropy(x @ W, answers)[0] for x, answers in micro) / sum(counts)


numeric = numeric_gradient(step_loss, W)
g = [x.T @ cross_entropy(x @ W, answers)[2] for x, answers in micro]  # three of (D, V)
right, wrong = sum(g) / sum(counts), sum(g_m / n for g_m, n in zip(g, counts)) / len(g)
for name, gradient, lo, hi in ("sums, divided once", right, 0, 1e-8), \
        ("mean of means", wrong, 0.2, 0.28):
    measure(f"{name}: worst error",
            np.abs(gradient - numeric).max() / np.abs(numeric).max(), lo, hi)

model, step = small_model(0, "float64"), example[:24]
at_once, n = add_up(model, [pairs.batch(step)])
in_four, _ = add_up(model, [pairs.batch(part) for part in cut(step, 6)])
same("whole model: four micro-batches and one batch", in_four, at_once)
library_plan = BatchPlan(pairs, 128, accumulation=4, seed=0)
parallel = DataParallel(model, threads=1)
model.zero_grad()
_, n_tokens = parallel.step_gradient(library_plan.micro_batches(step),
                                     TrainingConfig(eps_ls=0.1), step=1)
parallel.average_inplace(n_tokens)
same("whole model: the library's step and one batch", model.store.grad, at_once)

# %% [markdown]
# The mean of means is off by a quarter of the largest gradient here, since the micro-batches differ in size. (In
# training, it makes long sentences count less: [lab notes 18, check the claim](lab/18_batches.py#check-the-claim).)
#
# ## Paper and code
#
# - §5.1: pairs are "batched together by approximate sequence length", about 25,000 source and 25,000 target tokens in a
#   batch. Nothing is said about buckets, the order, or what the loss is divided by.
# - The paper's public code, Tensor2Tensor of 2017, has our buckets (fineness 1 in the base model), 4096 positions a
#   side for each of eight GPUs, one bucket for all GPUs of a step, and divides by all real target tokens of the step.
# - *Here:* `BatchPlan` in [text/batches.py](../scratchformer/text/batches.py) and `Trainer.step` in
#   [training/trainer.py](../scratchformer/training/trainer.py). The preset `base` has `accumulation` 8 for the eight
#   GPUs. *Differs:* Tensor2Tensor shuffles a stream; our plan follows from (seed, epoch).
#
# ## What to remember
#
# Put pairs of similar length into a batch, as many as a budget of positions allows, and take the batches in random
# order. If the step doesn't fit into memory, add up the gradients of *sums* of losses over micro-batches, and divide
# once, by the number of all tokens.
#
# **Exercises** `18_padding_share` · `18_accumulate` · `18_fill_batches` (the plan of figure 2: shortest first, as many
# as the budget allows) · `18_every_sentence_once` (write the test of a batch plan; it is tried on plans that lose a
# pair, and worse) · one puzzle: one batch holds 512 pairs of 8 tokens, another 16 pairs of 256. Both have 4096
# positions a side. Which one costs more?
#
# <details><summary>Answer</summary>
#
# The second. Linear layers see positions, and there are as many. But attention has a score for each query and key of a
# sentence: 512 · 8² = 32,768 scores against 16 · 256² = 1,048,576 for each head. The budget doesn't count this.
#
# </details>
#
# **Next:** [19 · Train a translator on a CPU](19_train_a_translator.py)
