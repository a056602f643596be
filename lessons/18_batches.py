# %% [markdown]
# # 18 · Batches of tokens, and gradients added up
#
# *About 35 minutes. You need: [lesson 01](01_backprop.py) (gradients), [lesson 06](06_masks.py) (padding),
# [lesson 12](12_residual_norm_dropout.py) (dropout), [lesson 14](14_label_smoothing.py) (the loss of a token),
# [lesson 15](15_adam_and_warmup.py) (Adam) and [lesson 17](17_byte_pairs.py) (tokens). You will have: a batch plan with
# the buckets of the paper's code, equal to the library's, and the right way to add up gradients over several batches.*

# %% Imports
import math
import time

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from exercises.numeric import numeric_gradient
from library.lesson import QUICK, ROOT, duration, measure, same, show
from scratchformer.config import BASE, TINY, ModelConfig, TrainingConfig
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.experiments.sizes import activation_floats
from scratchformer.nn.loss import cross_entropy, forward_loss, loss_backward
from scratchformer.nn.optim import Adam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import BatchPlan, bucket_boundaries, encode_pairs
from scratchformer.text.corpora import read_pairs
from scratchformer.text.tokenizer import PAD, Tokenizer
from scratchformer.training.data_parallel import DataParallel
from scratchformer.training.run import load_run

# %% [markdown]
# ## Question
#
# **Sentences have different lengths, and arrays do not. How are batches filled with words instead of padding, and how
# does a small machine take the step of a large one?**
#
# The answer in one sentence: put pairs of similar length together, as many as a budget of positions allows, in a
# random order; and if the budget is too large for the machine, add up the gradients of several batches and divide
# once, by the number of tokens of all. (The two halves meet where batches differ in their number of tokens.)
#
# First the obvious way: shuffle the 20,000 training pairs of the bundled corpus, and take 64 at a time. A batch of B
# pairs has a source array (B, S) and a target array (B, T), each as wide as its longest sentence. A *position* is one
# place in such an array; a *real token* is a position that is not padding, `</s>` included. The *length* of a pair is
# that of its longer side.

# %%
tokenizer = Tokenizer.load(ROOT / "data/tiny_model/tokenizer.model")


def encoded(split):
    paths = (ROOT / f"data/tiny/{split}.{language}" for language in ("en", "de"))
    return encode_pairs(tokenizer.encode, read_pairs(*paths), max_length=256, tokens_per_batch=512)


pairs = encoded("train")
source_lengths, target_lengths, lengths = pairs.source.lengths, pairs.target.lengths, pairs.lengths   # (20000,) each


def padding_share(batches):
    """batches: arrays of indices (B,) of pairs. -> which share of all their positions is padding, 0 to 1"""
    positions = sum(len(batch) * (source_lengths[batch].max() + target_lengths[batch].max()) for batch in batches)
    real = sum((source_lengths + target_lengths)[batch].sum() for batch in batches)
    return 1 - real / positions


def cut(order, size):
    """order (n,) -> arrays of `size` indices, the last one perhaps smaller"""
    return [order[start:start + size] for start in range(0, len(order), size)]


shuffled = np.random.default_rng(0).permutation(len(pairs))
for size, lo, hi in (16, 0.33, 0.38), (64, 0.41, 0.46), (256, 0.48, 0.53):
    share = measure(f"{size:3} random pairs a batch: padding", padding_share(cut(shuffled, size)), lo, hi)
measure("256 a batch: positions computed for one real token", 1 / (1 - share), 1.9, 2.15)
by_length = np.argsort(lengths, kind="stable")
measure("64 a batch, sorted by length: padding", padding_share(cut(by_length, 64)), 0.04, 0.07)

# %% [markdown]
# At 64 pairs, 44 of 100 positions are padding, and it gets worse with the size of the batch: the more pairs, the
# longer the longest of them. At 256, half of the positions are for nothing. Masks (lesson 06) make padding harmless;
# they do not make it free. Sorting leaves 6 of 100. Then why not sort and be done? Experiment 2 shows what
# becomes of a model that reads its sentences from short to long.
#
# ## The idea in one picture

# %% The figure
example = np.random.default_rng(1).permutation(len(pairs))
close = example[(lengths[example] > 12) & (lengths[example] <= 14)][:24]
figure, panels = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True, layout="constrained")
for panel, batch, name in zip(panels, (example[:24], close), ("24 pairs at random", "24 pairs of length 13 and 14")):
    sides = [side.padded(batch) != PAD for side in (pairs.source, pairs.target)]
    cells = np.concatenate([sides[0], np.full((24, 1), 2), sides[1]], axis=1)      # padding 0, real 1, between them 2
    panel.imshow(cells, cmap=ListedColormap([ACCENT, DARK, "white"]), aspect="auto", interpolation="none")
    panel.set_title(f"{name}: {padding_share([batch]):.0%} padding", fontsize=11)
    panel.set_xticks([(sides[0].shape[1] - 1) / 2, sides[0].shape[1] + (sides[1].shape[1] + 1) / 2],
                     [f"source, S = {sides[0].shape[1]}", f"target, T = {sides[1].shape[1]}"])
panels[0].set_ylabel("pair")
panels[0].text(4.5, 10, "real tokens", color="white", ha="center", va="center")
panels[0].text(14.8, 10, "padding", color="black", ha="center", va="center")
show(figure, "18_padded", alt="Two padded batches as rows of cells, real tokens dark blue, padding orange. Of 24 pairs "
     f"taken at random {padding_share([example[:24]]):.0%} is padding, of 24 of length 13 and 14 "
     f"{padding_share([close]):.0%}.")

# %% [markdown]
# One long pair makes the whole random batch wide. On the right nearly all is text; the ragged edge that is left stands
# where one side of a pair is shorter than the other.
#
# ## The equation, and the same in code
#
# Let $c$ be the *budget*, in padded positions for each side (`tokens_per_batch`). Cut the lengths into *buckets*;
# bucket $k$ takes the lengths above $b_{k-1}$ and up to its boundary $b_k$. A batch of bucket $k$ holds
#
# $$n_k = \max\left(1, \left\lfloor \frac{c}{b_k} \right\rfloor\right)$$
#
# pairs, so that $n_k b_k \le c$: many short pairs or few long ones, about as many positions each time. The boundaries
# begin at 8 and their steps grow with the length, since what counts is the padding in proportion to the text:
#
# $$b_1 = 8, \qquad b_{k+1} = b_k + 2^{\max(0,\, \lfloor \log_2 b_k \rfloor - f)}$$
#
# and the last boundary is the longest pair allowed. At *fineness* $f = 1$ there are two buckets for each doubling;
# every further point doubles their number, until a bucket has one length.
#
# The plan of an epoch: shuffle all pairs; deal them to their buckets in that order; cut each bucket into batches; then
# shuffle the *batches*.

# %%
def boundaries(longest, fineness):
    """8, 12, 16, 24, 32, 48, ... for fineness 1"""
    found = [8]
    while found[-1] < longest:
        found.append(found[-1] + 2**max(0, int(math.log2(found[-1])) - fineness))
    return np.array([*(boundary for boundary in found if boundary < longest), longest])


def plan_of_epoch(budget, fineness, seed, epoch):
    """-> the batches of an epoch, each an array of indices of pairs; nothing but the arguments decides about them"""
    random = np.random.Generator(np.random.PCG64([seed, epoch]))
    edges = boundaries(pairs.max_length, fineness)
    shuffled = random.permutation(len(pairs))
    bucket_of = np.searchsorted(edges, lengths[shuffled])      # the first boundary that is not below the length
    batches = []
    for k, edge in enumerate(edges):
        batches += cut(shuffled[bucket_of == k], max(1, budget // edge))
    return [batches[i] for i in random.permutation(len(batches))]


same("boundaries, fineness 1", boundaries(256, 1), bucket_boundaries(256, 1))
for fineness in 1, 2, 3:
    ours = plan_of_epoch(512, fineness, 5, 1)
    theirs = BatchPlan(pairs, tokens_per_batch=512, accumulation=1, seed=5, fineness=fineness).epoch(1)
    same(f"fineness {fineness}: sizes of the batches", list(map(len, ours)), list(map(len, theirs)))
    same("    pairs, in order", np.concatenate(ours), np.concatenate(theirs))

# %% [markdown]
# ## Forward
#
# A plan should pad little, give each step about as much text, take each pair once, and deal anew in every epoch.

# %%
plans = {fineness: plan_of_epoch(512, fineness, seed=0, epoch=0) for fineness in (1, 2, 3)}
for (fineness, plan), (lo, hi) in zip(plans.items(), [(0.15, 0.18), (0.09, 0.115), (0.055, 0.075)]):
    measure(f"fineness {fineness}: padding", padding_share(plan), lo, hi)
as_many = len(pairs) // len(plans[2])                          # pairs in a batch of fineness 2, on average
measure(f"{as_many} random pairs a batch: padding", padding_share(cut(shuffled, as_many)), 0.38, 0.43)
for name, plan, hi in ("sorted", cut(by_length, 64), 0.01), ("fineness 3", plans[3], 0.02):
    widths = sum(len(batch) * lengths[batch].max() for batch in plan)
    measure(f"{name}, were both sides as long as the longer: padding", 1 - lengths.sum() / widths, 0, hi)

plan = plans[1]
sizes, tokens = np.array([(len(batch), target_lengths[batch].sum()) for batch in plan]).T
print(f"fineness 1: {sizes.min()} to {sizes.max()} pairs a batch")
for name, count, lo, hi in ("pairs", sizes, 0.25, 0.4), ("target tokens", tokens, 0.07, 0.12):
    measure(f"    {name} in a batch: standard deviation over mean", count.std() / count.mean(), lo, hi)
measure("    target tokens in 8 * 4096 positions, at this filling", 8 * 4096 * tokens.mean() / 512, 25_500, 28_000)
measure("    pairs that occur other than once", (np.bincount(np.concatenate(plan)) != 1).sum(), 0, 0)
again = set(map(frozenset, plan)) & set(map(frozenset, plan_of_epoch(512, 1, seed=0, epoch=1)))
measure(f"    of {len(plan)} batches, in the next epoch again", len(again), 0, 3)
for fineness, lo, hi in (1, 0.03, 0.08), (3, 0.12, 0.2):
    filled = np.array([target_lengths[batch].sum() for batch in plan_of_epoch(4096, fineness, seed=0, epoch=0)])
    measure(f"budget 4096, fineness {fineness}: batches with less than half the tokens of the fullest",
            (filled < filled.max() / 2).mean(), lo, hi)

# %% The figure
shares = ({f"{size} at random": padding_share(cut(shuffled, size)) for size in (256, 64, as_many, 16)}
          | {f"buckets, fineness {fineness}": padding_share(plan) for fineness, plan in plans.items()}
          | {"64, sorted": padding_share(cut(by_length, 64))})
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
bars = axes.barh(list(shares), [100 * share for share in shares.values()], color=[ACCENT] * 4 + [DARK] * 3 + [LIGHT])
axes.bar_label(bars, fmt="%.0f", padding=2)
axes.invert_yaxis()
axes.set(xlabel="padding, per cent of all positions", xlim=(0, 58))
axes.set_title("Random batches are a third to a half padding; buckets come near to sorting", fontsize=10)
show(figure, "18_padding", alt="A bar chart of padding: " + ", ".join(
     f"{share:.0%} for {name}" for name, share in shares.items()) + ".")

# %% [markdown]
# - Buckets of fineness 2 (the preset `tiny`) bring padding to about 10 per cent; random batches of as many pairs have
#   41. Sorting stops at 6, and so does fineness 3. What is left in both is the shorter side of the pairs: were each
#   side as long as the longer, about 1 per cent would be left, or less.
# - Then why not finer still? Each bucket ends in a batch that is not full, and the larger the budget and the finer the
#   buckets, the larger is their share. With 4096, the budget of the paper's code, one batch in twenty has less than
#   half the tokens of the fullest at fineness 1, one in six at fineness 3. (A larger corpus has no more of them, and
#   more full ones.)
# - Every pair comes exactly once, those in the last batch of a bucket too. The number of *pairs* in a batch varies
#   much, the number of *tokens* less, and tokens are what the loss counts.
# - The paper's code has a budget of 4096 on each of eight GPUs. Filled as here, that is some 27,000 target tokens.
#   (Their corpus has other lengths; the paper says 25,000.)
#
# Padding must not change what a sentence costs. A model of random weights, with one sentence alone and among others:

# %%
def small_model(seed, dtype="float32"):
    return Transformer(ModelConfig(tokenizer.vocab_size, N=1, d_model=24, d_ff=48, h=2, P_drop=0.0), seed, dtype)


model = small_model(0, "float64")
pair = by_length[[0, -1]]                                      # the shortest and the longest of the corpus
(loss_short, n_short), (loss_long, n_long), (loss_both, _) = (
    forward_loss(model, *pairs.batch(indices)[:3]) for indices in (pair[:1], pair[1:], pair))
print(f"target tokens: {n_short} and {n_long}")
same("loss of both in one batch: the sum of the two alone", loss_both, loss_short + loss_long)

# %% [markdown]
# What follows rests on this: without dropout, **the sum of the losses does not depend on how the sentences are dealt
# to batches.** The *mean* of a batch does.
#
# A step of the paper does not fit into a small memory: what forward keeps for backward grows with the number of
# positions. But a step can be cut into $M$ *micro-batches*, computed one after another (`accumulation`; all pairs of a
# step come from one bucket, which gives $M n_k$ of them). The library estimates from the shapes what forward keeps in
# the base model; in units of $2^{30}$ bytes with 4 bytes a number, for sentences of 30 tokens:

# %%
for name, n_positions, lo, hi in ("a step at once", 32_768, 10, 15), ("one of 8 micro-batches", 4096, 1.2, 1.9):
    measure(name, 4 * activation_floats(BASE.model, n_positions, length=30) / 2**30, lo, hi)

# %% [markdown]
# ## Backward: a sum of sums, divided once
#
# Let micro-batch $m$ have the real target tokens $t = 1 \ldots n_m$ with losses $\ell_{mt}$. The loss of the step is
# the mean over **all** its tokens. ($N$ counts tokens here, and $M$ micro-batches; in lesson 13, as in `ModelConfig`,
# $N$ counted layers, and $M$ was the memory.)
#
# $$L = \frac{1}{N} \sum_{m=1}^{M} \sum_{t=1}^{n_m} \ell_{mt}, \qquad N = \sum_{m=1}^{M} n_m$$
#
# Follow one weight $W_{ij}$. It is used at every position of every micro-batch, and every use that reaches $L$ is one
# way to it. A use in micro-batch $m$ leads there through the losses of $m$ only: no sentence sees another one. So the
# ways fall into $M$ heaps, and the chain rule adds them up:
#
# $$dW_{ij} = \frac{1}{N} \sum_{m=1}^{M} g_m, \qquad g_m = \sum_{t=1}^{n_m} \frac{\partial \ell_{mt}}{\partial W_{ij}}$$
#
# Each $g_m$ is the gradient of a **sum** of losses: what backward gives if the gradient of the loss sum is 1. Three
# things follow.
#
# - Everything that forward kept for $m$ is needed for $g_m$ alone. It can be thrown away before $m + 1$ begins. What
#   stays is one array for the sum, however many micro-batches there are. This is why layers *add* to `Parameter.grad`.
# - $N$ is complete only when the last micro-batch has been counted. So divide at the end, once.
# - If each micro-batch divides by its own $n_m$, and the $M$ means are averaged, then a token of $m$ has the weight
#   $\frac{1}{M n_m}$ instead of $\frac{1}{N}$. It counts $\frac{N}{M n_m}$ times what it should: too much in small
#   micro-batches, too little in large ones, right only if all $n_m$ are equal.

# %%
def add_up(model, batches, smoothing=0.1):
    """-> the gradient of the step (all parameters in one row), its tokens"""
    N = 0
    model.zero_grad()
    for batch in batches:
        _, n = loss_backward(model, *batch[:3], smoothing)      # adds the gradient of the sum
        N += n
    return model.store.grad / N, N


def mean_of_means(model, batches, smoothing=0.1):
    """The same with the mistake."""
    return np.mean([add_up(model, [batch], smoothing)[0] for batch in batches], axis=0)


# %% [markdown]
# ## Check
#
# First against central differences (`numeric_gradient` is that of lesson 01). Three micro-batches of 5, 2 and 4 tokens
# are vectors `x` with right answers; a matrix `W` makes scores of them, and softmax and cross-entropy the loss.

# %%
random = np.random.default_rng(0)
D, V, counts = 3, 6, (5, 2, 4)
W = random.normal(size=(D, V))
micro = [(random.normal(size=(n, D)), random.integers(1, V, n)) for n in counts]


def step_loss(W):
    return sum(cross_entropy(x @ W, answers)[0] for x, answers in micro) / sum(counts)


numeric = numeric_gradient(step_loss, W)
g = [x.T @ cross_entropy(x @ W, answers)[2] for x, answers in micro]            # three gradients of sums, (D, V) each
right, wrong = sum(g) / sum(counts), sum(g_m / n for g_m, n in zip(g, counts)) / len(g)
for name, gradient, lo, hi in ("sum of sums over N", right, 0, 1e-8), ("mean of means", wrong, 0.2, 0.28):
    measure(f"{name}: worst error", np.abs(gradient - numeric).max() / np.abs(numeric).max(), lo, hi)

# %% [markdown]
# Then the whole model. One batch of 24 pairs at once, against the same pairs in four micro-batches; against the
# library, whose `BatchPlan.micro_batches` cuts a step such that the costliest micro-batch is as small as can be, and
# whose `DataParallel` adds up; and in float32, where sums in another order differ in the last digits.

# %%
step = example[:24]
at_once, N = add_up(model, [pairs.batch(step)])
in_four, _ = add_up(model, [pairs.batch(part) for part in cut(step, 6)])
same("float64: four micro-batches and one batch", in_four, at_once)
library_plan, parallel = BatchPlan(pairs, 128, accumulation=4, seed=0), DataParallel(model, threads=1)
model.zero_grad()
_, n_tokens = parallel.step_gradient(library_plan.micro_batches(step), TrainingConfig(eps_ls=0.1), step=1)
parallel.average_inplace(n_tokens)
same("float64: the library's step and one batch", model.store.grad, at_once)
single = small_model(0)
coarse = [add_up(single, [pairs.batch(part) for part in cut(step, size)])[0] for size in (24, 6)]
measure("float32: difference of the two", np.abs(coarse[1] - coarse[0]).max() / np.abs(coarse[0]).max(), 1e-9, 2e-6)

# %% [markdown]
# With dropout ([lesson 12](12_residual_norm_dropout.py)) the two differ, as two draws of masks do: a mask belongs to a
# place in an array, and in a micro-batch a sentence stands elsewhere. The library draws each mask from a key (seed,
# step, number of the micro-batch, layer), so that no two micro-batches of a step have the same masks.
#
# ## Experiment 1: what padding costs in time
#
# With the model of preset `tiny`, time of the processor, the best of three rounds. The model computes padding as if it
# were text (only the vocabulary's scores are left out where the target is padding), so time should go with positions.

# %%
tiny, kinds = Transformer(TINY.model, 0), {"random": cut(shuffled, 40)[:2], "buckets": plans[2][:2]}
best = dict.fromkeys(kinds, math.inf)
for kind, batches in list(kinds.items()) * 3:
    began = time.process_time()
    add_up(tiny, [pairs.batch(batch) for batch in batches])
    best[kind] = min(best[kind], time.process_time() - began)
seconds = {kind: best[kind] / (source_lengths + target_lengths)[np.concatenate(kinds[kind])].sum() for kind in kinds}
for kind, time_of_token in seconds.items():
    duration(f"{kind}: for one real token", time_of_token)
filled = {kind: 1 - padding_share(batches) for kind, batches in kinds.items()}
measure("positions for one real token, random over buckets", filled["buckets"] / filled["random"], 1.25, 1.45)
duration("one real token, random beside buckets", seconds["random"], over=seconds["buckets"])

# %% [markdown]
# Compare the last two lines: if they agree, time goes with positions, and padding costs what text costs. Times differ
# from run to run, so no band holds them.
#
# ## Experiment 2: why not in order of length?
#
# The same 60 batches in three orders: as the plan has them, from short to long, from long to short. Everything else
# stays. 300 validation pairs are cut into thirds by length, and each third has its loss (nats per token, no
# smoothing).

# %%
validation = encoded("val")
thirds = np.split(validation.by_length(np.arange(300)), 3)
SEEDS = (0,) if QUICK else (0, 1, 2)


def divided(model, batch):
    loss_backward(model, *batch[:3])
    model.store.grad /= batch.n_target_tokens


def trained(seed, steps, gradient=divided):
    """-> the small model after one pass over these batches"""
    model = small_model(seed)
    optimizer = Adam(model)
    for number, indices in enumerate(steps, start=1):
        model.zero_grad()
        gradient(model, pairs.batch(indices))
        optimizer.step(0.01 * min(1, number / 20))
    return model


def by_thirds(model):
    """-> loss of the short, middle and long third (3,)"""
    losses = (forward_loss(model, *validation.batch(third)[:3]) for third in thirds)
    return np.array([float(loss) / n for loss, n in losses])


def in_order(batches, sign):
    """From short to long for sign 1, from long to short for -1, as they are for 0"""
    return sorted(batches, key=lambda batch: sign * lengths[batch].max())


models = {name: [trained(seed, in_order(plan_of_epoch(256, 2, seed, epoch=0)[:60], sign)) for seed in SEEDS]
          for name, sign in [("as planned", 0), ("short to long", 1), ("long to short", -1)]}
after = {name: np.array([by_thirds(model) for model in three]) for name, three in models.items()}    # (seeds, 3) each
for name, losses in after.items():
    for short, middle, long in losses:
        print(f"{name:15}short {short:.2f}   middle {middle:.2f}   long {long:.2f}")
planned, upwards, downwards = after.values()
measure("short to long: loss of the short third rises by, at least", (upwards - planned)[:, 0].min(), 0.2, 1.1)
measure("long to short: loss of the long third rises by, at least", (downwards - planned)[:, 2].min(), 0.3, 1.2)

# %% [markdown]
# The lengths that were read first suffer most. The third order is the control: if short sentences were merely harder to
# learn, this order would not hurt the long ones. So a plan mixes all lengths over an epoch. This is 60 steps of a small
# model; we have not tested how much remains after many epochs.
#
# ## Experiment 3: what a bucket costs, and what a large step buys
#
# The plan mixes the lengths over an epoch, but a step still has one bucket only. The gradient of a step is an average
# over the pairs that happened to be in it. Its *variance* is the mean square of its distance from $G$, the gradient of
# the whole corpus, summed over all parameters. Were the pairs of a step drawn independently of each other, the variance
# of their mean would fall with their number: with $\sigma^2$ for one token, $n$ tokens would have $\frac{\sigma^2}{n}$,
# half of it for twice the tokens. But if sentences of one length have a gradient of their own, a part $\beta$ of the
# variance belongs to the bucket, and no number of its pairs averages it away:
#
# $$\text{variance of a step of } n \text{ tokens from one bucket} = \frac{\sigma^2}{n} + \beta$$
#
# Is $\beta$ there? Take the library's steps of eight micro-batches, and for control the *same* 128 micro-batches, dealt
# to steps at random. Eight times the tokens should leave an eighth of the variance in the control. The gradients are
# those of the small model after the 60 steps as planned. $G$ need not be known: the gradients of two different steps
# have the product $\lVert G \rVert^2$ on average, that of a step with itself is larger by the variance.

# %%
def micro_gradients(model, batches):
    """-> gradient of the mean of each batch (M, parameters), its tokens (M,)"""
    means, counts = zip(*(add_up(model, [batch]) for batch in batches))
    return np.stack(means), np.array(counts)


def variance(means, counts, k=1):
    """-> variance of steps of k micro-batches each, and |G|^2"""
    n = counts.reshape(-1, k).sum(axis=1)                                          # (M / k,) tokens of a step
    sums = means @ means.T * np.outer(counts, counts)                              # products g_m . g_l: (M, M)
    products = sums.reshape(len(n), k, len(n), k).sum(axis=(1, 3)) / np.outer(n, n)
    signal = products[~np.eye(len(n), dtype=bool)].mean()
    return np.diag(products).mean() - signal, signal


left = []
for seed, model in zip(SEEDS, models["as planned"]):
    of_eight = BatchPlan(pairs, tokens_per_batch=64, accumulation=8, seed=seed, fineness=2)
    cut_up = [batches for batches in map(of_eight.micro_batches, of_eight.epoch(0)[:24]) if len(batches) == 8][:16]
    means, counts = micro_gradients(model, sum(cut_up, []))
    mixed = np.random.default_rng(seed).permutation(len(counts))
    left.append([variance(means[order], counts[order], 8)[0] / variance(means, counts)[0]
                 for order in (slice(None), mixed)])
for name, ratios, lo, hi in zip(("one bucket", "mixed"), np.transpose(left), (0.16, 0.095), (0.32, 0.15)):
    measure(f"eight micro-batches, {name}: what is left of the variance", ratios.mean(), lo, hi)
measure("one bucket over mixed, at least", min(one / other for one, other in left), 1.3, 2.8)

# %% [markdown]
# In the control about an eighth is left; the step of one bucket keeps nearly twice as much. So sentences of one length
# do have a gradient of their own, and the step pays for its little padding in noise. A plan could have both, with
# micro-batches of one length each and several buckets in a step. The paper's code and this library take one bucket,
# which gives all devices of a step nearly equal work. Whether training would gain from mixed steps we have not tested.
#
# How many tokens does a step need, then? Take pairs at random again, so that $\beta$ is gone. At
#
# $$n^* = \frac{\sigma^2}{\lVert G \rVert^2}$$
#
# tokens the noise is as large as the signal. (McCandlish, Kaplan, Amodei and the OpenAI Dota Team 2018, *An Empirical
# Model of Large-Batch Training*, call it the simple noise scale.) A *fresh* model has random weights; the *translator*
# is the bundled one, of the same shape.

# %%
translator = load_run(ROOT / "data/tiny_model").model


def noise_scale(model, seed, M):
    """-> n*, from M batches of 16 random pairs"""
    parts = cut(np.random.default_rng(seed).permutation(len(pairs))[:16 * M], 16)
    means, counts = micro_gradients(model, map(pairs.batch, parts))
    found, signal = variance(means, counts)
    return counts.mean() * found / signal


stars = np.array([[noise_scale(Transformer(translator.config, seed), seed, 8), noise_scale(translator, seed, 16)]
                  for seed in SEEDS])                                              # (seeds, 2)
for fresh, late in stars:
    print(f"n* of the fresh model: {fresh:.0f} tokens, of the translator: {late:.0f}")
measure("fresh: n*, mean", stars[:, 0].mean(), 50, 110)
measure("translator: n*, least", stars[:, 1].min(), 500, 3000)
measure("translator over fresh, at least", (stars[:, 1] / stars[:, 0]).min(), 6, 40)

# %% [markdown]
# The translator needs at least six times as many tokens as the fresh model (the seeds differ much, so that we give no
# factor): a batch of 400 tokens is mostly signal in the one, and mostly noise in the other. This is what a large step
# buys, and accumulation on a small machine, at the price of as many times the arithmetic. Whether fewer and better
# steps pay is another question; we have not tested it here.
#
# ## Check the claim
#
# > "To accumulate gradients, divide the loss of each micro-batch by the number of micro-batches."
#
# If the loss of a micro-batch is its mean, this is the mean of means. (A user of Hugging Face's *transformers* reported
# it in 2023, [issue 24725](https://github.com/huggingface/transformers/issues/24725).) How wrong the gradient is
# depends on how the micro-batches are made. What comes of it in training? There a step has twelve pairs, and each is a
# micro-batch of its own, as on a machine with room for one. As a control a third model never divides at all: that is a
# factor, the same for all tokens of a step and nearly the same for all steps, and Adam forgives a constant factor
# (lesson 15).

# %%
model, draws = small_model(0, "float64"), cut(shuffled[:160], 32)
ways = {"the library's four": [[batch.indices for batch in library_plan.micro_batches(indices)]
                               for indices in library_plan.epoch(0)[:5]],
        "four of 8 pairs, sorted": [cut(pairs.by_length(draw), 8) for draw in draws],
        "three of 8 pairs, and a rest of one": [cut(draw[:25], 8) for draw in draws]}
for (name, steps), (lo, hi) in zip(ways.items(), [(0.005, 0.06), (0.1, 0.2), (0.25, 0.8)]):
    errors = []
    for parts in steps:
        means, counts = micro_gradients(model, map(pairs.batch, parts))
        right = counts @ means / counts.sum()
        errors.append(np.linalg.norm(means.mean(axis=0) - right) / np.linalg.norm(right))
    measure(f"{name}: error of the gradient, mean of five steps", np.mean(errors), lo, hi)


def each_pair_a_mean(model, batch):
    logits, cache = model.forward(*batch[:2])                  # (B, T, V)
    dlogits = cross_entropy(logits, batch.target_out_ids)[2]
    n = (batch.target_out_ids != PAD).sum(axis=1)[:, None, None].astype("float32")
    model.backward(dlogits / n / np.float32(len(n)), cache)


def never_divided(model, batch):
    loss_backward(model, *batch[:3])


model.zero_grad()
each_pair_a_mean(model, pairs.batch(step))
in_one = model.store.grad.copy()
same("all in one batch, and pair by pair", in_one, mean_of_means(model, map(pairs.batch, cut(step, 1)), 0))
change = {each_pair_a_mean: [], never_divided: []}
for seed in SEEDS:
    dealt = np.random.default_rng(seed).integers(0, len(pairs), (60, 12))
    right = by_thirds(trained(seed, dealt))
    for mistake, changes in change.items():
        changes.append(by_thirds(trained(seed, dealt, mistake)) - right)
        print(f"{mistake.__name__:17} loss of the thirds changes by", *(f"{third:+.3f}" for third in changes[-1]))
long_third = {mistake: np.array(changes)[:, 2] for mistake, changes in change.items()}
measure("mean of means: the long third loses, at least", long_third[each_pair_a_mean].min(), 0.03, 0.2)
measure("never divided: the long third changes by, mean", long_third[never_divided].mean(), -0.03, 0.03)

# %% [markdown]
# For the library's micro-batches, which hold about as many tokens each, the gradient of the claim is off by some four
# per cent. It is off by more than a tenth if sorted pairs are cut by number, and by more than a quarter if the rest is
# a micro-batch of one pair. In training, tokens of long sentences count less, and the long third is worse in every run;
# the control hardly moves it. The effect is small, but no error message and no gradient check of one batch shows it.
#
# ## Paper and code
#
# - §5.1: pairs are "batched together by approximate sequence length", about 25,000 source and 25,000 target tokens in
#   a batch. §5.2: eight GPUs. Nothing is said about buckets, the order, or what the loss is divided by.
# - *Its public code*, Tensor2Tensor of 2017: the boundaries above (fineness 1 in the base model), 4096 positions a side
#   for each GPU, one bucket for all GPUs of a step; the loss is divided by all real target tokens of the step.
# - *Here:* the same, with `accumulation` 8 for its eight GPUs in the preset `base`. *Differs:* Tensor2Tensor shuffles a
#   stream; here the plan follows from (seed, epoch), so that a run can resume at any step. There a step is cut by
#   number of pairs; here such that the costliest micro-batch is as small as can be.
# - The *Annotated Transformer* divides each micro-batch by its own tokens and adds up the means.
# - In the library: `BatchPlan` in [text/batches.py](../scratchformer/text/batches.py), `Trainer.step` in
#   [training/trainer.py](../scratchformer/training/trainer.py), threads that take a micro-batch each in
#   [training/data_parallel.py](../scratchformer/training/data_parallel.py), tests in
#   [test_batches.py](../tests/text/test_batches.py) and [test_loop.py](../tests/training/test_loop.py). Bugs of others:
#   `mean-of-means`, `short-sentences-first`, `partial-accumulation-divided-in-full` and `remainder-dropped` in [the
#   correctness report](../docs/correctness.md).
#
# ## Exercises
#
# **Predict.** One batch holds 512 pairs of 8 tokens, another 16 pairs of 256: 4096 positions a side each. Which one
# costs more?
#
# <details><summary>Answer</summary>
#
# The second. Linear layers see positions, and there are as many. But attention has a score for each query and key of a
# sentence: $512 \cdot 8^2 = 32{,}768$ against $16 \cdot 256^2 = 1{,}048{,}576$ for each head. The budget does not
# count this.
#
# </details>
#
# `scratchformer learn check 18` looks at your answers and says what is wrong with them.
#
# **Build** `18_padding_share`: from lengths and batches to the share of padding.
#
# **Build** `18_fill_batches`: shortest first, as many sentences to a batch as the budget of positions allows.
#
# **Backward** `18_accumulate`: the gradient of a step, over micro-batches with different numbers of real tokens.
#
# **Break** `18_every_sentence_once`: write the test of a batch plan. It is tried on plans that lose a pair, and worse.
#
# ## Next
#
# Text, tokens, batches and the step are there. [Lesson 19](19_train_a_translator.py) puts them together and trains a
# translator. The paper's words on batches are two sentences of section 5.1 of
# [its arXiv page](https://arxiv.org/abs/1706.03762).
