# %% [markdown]
# # 15 · Adam and the schedule
#
# *About 35 minutes. You need: [lesson 01](01_backprop.py) (gradients), [lesson 12](12_residual_norm_dropout.py)
# (post-LN and pre-LN, and what an average $v$ does not explain), [lesson 13](13_whole_model.py) (the whole model) and
# [lesson 14](14_label_smoothing.py) (its loss). You will have: Adam and the learning rate of equation 3 derived and
# measured, and a test of the reasons that are given for warm-up.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from library.lesson import QUICK, ROOT, measure, recorded, same, show
from scratchformer.config import ModelConfig
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.loss import forward_loss, loss_backward
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import encode_pairs
from scratchformer.text.corpora import read_pairs
from scratchformer.training.run import load_run

SEEDS = [0] if QUICK else [0, 1, 2]

# %% [markdown]
# ## Question
#
# **A gradient says which way each weight should go. How far should it go, and at which step of training?**
#
# The answer in one sentence: Adam divides the averaged gradient of each weight by the usual size of that weight's own
# gradient, so the learning rate says how far a weight moves; and the paper begins with a rate near 0, since at a
# constant rate Adam's first step is its longest, and in a small post-LN model values and outputs of attention do not
# bear such steps.
#
# First what happens with one step size for all weights. A small Transformer, one encoder layer and one decoder layer
# with $d_{model} = 32$, learns to translate short sentences of the bundled corpus, cut into the pieces of words that
# the model of lesson 00 uses. It takes 80 steps of 16 sentences. The learning rate rises over the first 20 steps and
# then stays.

# %% Reading the sentences
tokenizer = load_run(ROOT / "data/tiny_model").tokenizer


def encoded(split):
    files = (ROOT / f"data/tiny/{split}.{language}" for language in ("en", "de"))
    return encode_pairs(tokenizer.encode, read_pairs(*files), max_length=12, tokens_per_batch=10_000)


train_pairs, new_pairs = encoded("train"), encoded("val")
new_batch = new_pairs.batch(np.arange(150))


# %%
def new_model(seed):
    config = ModelConfig(vocab_size=tokenizer.vocab_size, N=1, d_model=32, d_ff=64, h=2, P_drop=0.0)
    return Transformer(config, seed, "float64")


def random_batch(random):
    return train_pairs.batch(random.integers(0, len(train_pairs), 16))


def add_gradient(model, batch):
    """Set the gradient to that of the batch's mean loss. -> the loss, in nats per piece"""
    model.zero_grad()
    loss_sum, n = loss_backward(model, batch.source_ids, batch.target_in_ids, batch.target_out_ids)
    model.store.grad /= n
    return loss_sum / n


def mean_loss(model):
    loss_sum, n = forward_loss(model, new_batch.source_ids, new_batch.target_in_ids, new_batch.target_out_ids)
    return loss_sum / n


def train(optimizer_of, rate, seed, steps=80, warmup=20):
    """optimizer_of(model) has a method step(rate). -> the training loss of each step, the loss on new sentences"""
    model, random = new_model(seed), np.random.default_rng(seed)
    optimizer, losses = optimizer_of(model), []
    for t in range(1, steps + 1):
        losses.append(add_gradient(model, random_batch(random)))
        if not np.isfinite(losses[-1]):
            return losses, math.inf
        optimizer.step(rate * min(1, t / warmup))
    return losses, mean_loss(model)


# %%
class GradientDescent:
    """w <- w - rate g"""

    def __init__(self, model):
        self.store = model.store

    def step(self, rate):
        self.store.data -= rate * self.store.grad


final = {}
with np.errstate(over="ignore", invalid="ignore"):             # the highest rate is too high
    for optimizer_of, rate in (GradientDescent, 0.2), (GradientDescent, 0.6), (GradientDescent, 2), (Adam, 0.01):
        final[rate] = [train(optimizer_of, rate, seed)[1] for seed in (SEEDS if rate in (0.6, 0.01) else SEEDS[:1])]
        print(f"{optimizer_of.__name__:15} rate {rate:<4}: loss on new sentences",
              " ".join(f"{loss:.2f}" for loss in final[rate]))
assert min(final[0.2][0], final[2][0]) > final[0.6][0], "another rate is better"
measure("gradient descent at its best rate minus Adam, smallest of the seeds",
        min(a - b for a, b in zip(final[0.6], final[0.01])), 0.4, 1.2)

# %% [markdown]
# The best of three rates is far behind. Three times that rate ends in overflow here, and with a third of it learning is
# slower still. So another number does not mend it. Is it that there is *one* number, for all weights? Experiment 1
# will tell.
#
# ## The idea in one picture
#
# How large are the gradients that one rate must serve? Below, a model learns with Adam for 30 steps. For each weight,
# take the usual size of its gradient: the root of a running average of its squares. On the left, the sizes by kinds of
# weights; on the right, how far Adam moves these weights at step 30. RMS is the root of the mean of the squares. The
# shared matrix of word vectors is split: a rare piece is hardly ever read or wanted, and gets little more than the
# small share that softmax gives to every row of the matrix.

# %% Sizes of gradients and of Adam's updates
def rms(x):
    return math.sqrt((x**2).mean())


KINDS = {"norm": "norms", "bias": "biases", "attention": "attention matrices", "feed_forward": "feed-forward matrices"}
model, random = new_model(0), np.random.default_rng(0)
adam = Adam(model)
for t in range(1, 31):
    add_gradient(model, random_batch(random))
    adam.step(0.01 * min(1, t / 20))
usual = np.sqrt(adam.v / (1 - 0.98**30))                       # (n_parameters,)
usual, update = (model.store.named_views(x) for x in (usual, adam.m / (1 - 0.9**30) / (usual + 1e-9)))
by_frequency = np.argsort(-np.bincount(train_pairs.target.ids, minlength=tokenizer.vocab_size))
points = {"vectors, 50 commonest pieces": [], "vectors, all other pieces": []} | {kind: [] for kind in KINDS.values()}
for name in usual:
    if "embedding" in name:
        for rows, kind in zip(np.split(by_frequency, [50]), points):
            points[kind].append((usual[name][rows], update[name][rows]))
    else:
        points[next(kind for part, kind in KINDS.items() if part in name)].append((usual[name], update[name]))
lowest, highest = np.quantile(np.concatenate([x.ravel() for x in usual.values()]), [0.01, 0.99])
measure("gradients of single weights: 99th percentile over the 1st", highest / lowest, 80, 1000)
norms, others = (np.median(np.concatenate([x.ravel() for x, _ in points[kind]]))
                 for kind in ("norms", "vectors, all other pieces"))
measure("median of the norms over median of the vectors of other pieces", norms / others, 6, 40)
sizes = [rms(x) for x in update.values()]
measure("updates of whole arrays, in units of the rate: largest RMS", max(sizes), 0.25, 0.7)
measure("largest RMS over smallest", max(sizes) / min(sizes), 2, 12)

# %% The figure
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True, layout="constrained")
for row, arrays in enumerate(points.values()):
    low, middle, high = np.quantile(np.concatenate([x.ravel() for x, _ in arrays]), [0.01, 0.5, 0.99])
    left.plot([low, high], [row, row], color=DARK, lw=2)
    left.plot(middle, row, "o", color=DARK)
    right.plot([rms(x) for _, x in arrays], [row] * len(arrays), "o", color=ACCENT, alpha=0.6)
left.set(xscale="log", xlabel="median, 1st to 99th percentile", title="Usual size of a gradient", xlim=(1e-5, 0.3))
right.set(xscale="log", xlabel="RMS of each array, in units of the rate", title="Adam's update", xlim=(0.01, 3))
left.set_yticks(range(len(points)), points)
left.invert_yaxis()
show(figure, "15_sizes", alt="Left: usual size of the gradient of single weights, in six kinds, logarithmic. The "
     "vectors of rare pieces have the smallest, with a median below 0.001, those of norms the largest, near 0.01; "
     "the whole spreads over more than two powers of ten. Some biases lie off the scale. Right: RMS of the update of "
     "each array. All lie between 0.08 and 0.5 of the rate.")

# %% [markdown]
# Gradient descent moves each weight in proportion to the left picture: the norms more than six times as far as the
# vectors of rare pieces, median against median. Adam divides by the left picture. What remains, on the right, lies
# within about one power of ten, and below 1; why below is said in Forward. (The line of the biases leaves the picture:
# it belongs to the biases of the keys, whose gradient is 0 up to rounding, as [lesson 05](05_scaling.py) says.)
#
# ## The equation, and the same in code
#
# Let $g_t$ be the gradient of one weight $w$ at step $t = 1, 2, \dots$ Adam (Kingma and Ba 2015) keeps two running
# averages of it: $m$, of the gradient, and $v$, of its square. They begin at $m_0 = v_0 = 0$. $\beta_1$ and $\beta_2$
# (beta) are numbers below 1 that say how long they remember, and $\eta_t$ (eta) is the learning rate.
#
# $$m_t = \beta_1 m_{t-1} + (1 - \beta_1) g_t \qquad v_t = \beta_2 v_{t-1} + (1 - \beta_2) g_t^2$$
#
# $$\hat{m}_t = \frac{m_t}{1 - \beta_1^t} \qquad \hat{v}_t = \frac{v_t}{1 - \beta_2^t} \qquad
# w_t = w_{t-1} - \eta_t \frac{\hat{m}_t}{\sqrt{\hat{v}_t} + \varepsilon}$$
#
# $\varepsilon$ (epsilon) keeps 0 from being divided by 0. **Why the hats?** Write the recursion out: each step, all
# older gradients fade by $\beta_1$ once more.
#
# $$m_t = (1 - \beta_1) \sum_{i=1}^{t} \beta_1^{t-i} g_i$$
#
# The factors are those of an average, except that they do not add up to 1. By the sum of a geometric series they add
# up to $1 - \beta_1^t$. What is missing, $\beta_1^t$, is the share of $m_0 = 0$. If the expectation $E[g]$ is the same
# at every step, then $E[m_t] = (1 - \beta_1^t) E[g]$, and dividing by that factor makes it right: the *bias
# correction*. For $v$ the same holds with $g^2$ and $\beta_2$. The average is pulled to 0 at first, and $v$, which
# remembers longer, longer than $m$.
#
# The paper takes $\beta_1 = 0.9$, $\beta_2 = 0.98$, $\varepsilon = 10^{-9}$, and for $\eta_t$ equation 3:
#
# $$\eta_t = d_{model}^{-0.5} \cdot \min(t^{-0.5}, \; t \cdot \mathrm{warmup}^{-1.5})$$

# %%
def adam_step(w, g, m, v, t, rate, beta1=0.9, beta2=0.98, eps=1e-9):
    """All arrays (n,), one number per weight; t counts from 1. -> the new w, m, v"""
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    factor = math.sqrt(1 - beta2**t) / (1 - beta1**t)
    return w - rate * factor * m / (np.sqrt(v) + eps), m, v


def learning_rate(t, d_model, warmup):
    return d_model**-0.5 * min(t**-0.5, t * warmup**-1.5)


random = np.random.default_rng(1)
m = v = 0
for t in range(1, 6):
    g = 3 + 2 * random.normal(size=200_000)                    # E[g] = 3, E[g^2] = 9 + 4 = 13
    _, m, v = adam_step(0, g, m, v, t, rate=0)
    if t in (1, 5):
        for name, mean, share in (("m over E[g]", m.mean() / 3, 1 - 0.9**t),
                                  ("v over E[g^2]", v.mean() / 13, 1 - 0.98**t)):
            measure(f"t = {t}: mean of {name}", mean, 0.99 * share, 1.01 * share)

# %% [markdown]
# In the code the two corrections are one factor, and $\varepsilon$ is added to $\sqrt{v}$ before it. That is where
# TensorFlow adds it, in which the paper's model was written, and where this library does. It amounts to an
# $\varepsilon$ in the equation that is divided by $\sqrt{1 - \beta_2^t}$: 7 times as large at the first step, and that
# fades. Check measures how much that matters.
#
# The two branches of equation 3 are equal where $t^{-0.5} = t \cdot \mathrm{warmup}^{-1.5}$, at $t$ = warmup. Before,
# the line is the lower one, after, the root. So the rate is highest there, at $(d_{model} \cdot
# \mathrm{warmup})^{-0.5}$. (One curve of the figure has a warm-up of 2,034: that is for Check the claim.)

# %%
measure("base model, highest rate", learning_rate(4000, 512, 4000), 6.98e-4, 6.99e-4)
measure("big model, highest rate", learning_rate(4000, 1024, 4000), 4.93e-4, 4.95e-4)
measure("base model, first rate", learning_rate(1, 512, 4000), 1.74e-7, 1.75e-7)

# %% The figure
figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
steps = np.arange(1, 20_001, 20)
for d_model, warmup, style, colour in (512, 4000, "-", DARK), (512, 8000, "--", DARK), (512, 2034, ":", DARK), \
        (1024, 4000, "-", ACCENT):
    axes.plot(steps, [1e4 * learning_rate(t, d_model, warmup) for t in steps], style, color=colour)
    at = warmup if d_model == 512 else 12_000
    axes.annotate(f"d_model {d_model}, warmup {warmup:,}", (at, 1e4 * learning_rate(at, d_model, warmup)),
                  (5, 3 if d_model == 512 else -28), textcoords="offset points", color=colour)
axes.set(xlabel="step", ylabel="learning rate, in 0.0001", title="Equation 3: a line, then a root", ylim=(0, 11))
show(figure, "15_schedule", alt="Learning rate over 20,000 steps by equation 3. Each curve rises on a line and then "
     "falls slowly; with d_model 512 all fall on the same curve. Peaks are 7.0 for the base model, 4.9 for 8,000 "
     "steps of warm-up, 9.8 for 2,034, and 4.9 for d_model 1024, in units of 0.0001.")

# %% [markdown]
# ## Forward: how far does a step go?
#
# **The first step.** At $t = 1$ the averages hold one gradient: $\hat{m} = g$ and $\hat{v} = g^2$. The update is
# $-\eta \frac{g}{|g|}$: every weight moves by the learning rate, whatever the size of its gradient, against its sign.
#
# **The scale of the loss** drops out at every step, for the same reason. Multiply all gradients of a weight by $c > 0$:
# $\hat{m}$ grows by $c$, $\sqrt{\hat{v}}$ grows by $c$, and the quotient stays. That holds for each weight with its own
# $c$, up to $\varepsilon$.

# %%
def path_of(gradients, w, rate=0.01):
    """gradients (T, n), w (n,) -> the weights after each step, (T, n)"""
    m, v, path = np.zeros_like(w), np.zeros_like(w), []
    for t, g in enumerate(gradients, start=1):
        w, m, v = adam_step(w, g, m, v, t, rate)
        path.append(w)
    return np.array(path)


T, n = 50, 7
gradients, zeros = random.normal(size=(T, n)) * 10.0**np.arange(-3, 4), np.zeros(n)
first = path_of(gradients, zeros)[0] / 0.01
measure("first step, in units of the rate: shortest", np.abs(first).min(), 0.9999, 1)
measure("first step, in units of the rate: longest", np.abs(first).max(), 0.9999, 1)
factors = 10.0**np.arange(n)                                   # 1 for the first weight, a million for the last
same("each weight's gradients times a factor: the same path", path_of(factors * gradients, zeros),
     path_of(gradients, zeros), 1e-4)

# %% [markdown]
# **Later steps.** $\hat{m}$ and $\sqrt{\hat{v}}$ are averages of the same gradients, one with its sign and one without.
# Where the gradients agree in sign and size, the quotient is 1 in size. Where they are noise, independent with mean 0
# and variance $\sigma^2$, the squares of the factors add up:
#
# $$\mathrm{Var}(m_t) \to (1 - \beta_1)^2 \sum_{k=0}^{\infty} \beta_1^{2k} \sigma^2 =
# \frac{1 - \beta_1}{1 + \beta_1} \sigma^2$$
#
# That is $\frac{1}{19} \sigma^2$ for $\beta_1 = 0.9$: updates of pure noise have an RMS of about $\sqrt{1/19} = 0.23$
# times the rate. And in a model that learns at a constant rate? Beside the update we count how many gradients have the
# sign that they had one step before. Noise would give one half.

# %%
noise = path_of(random.normal(size=(400, 2000)), np.zeros(2000), rate=1)
measure("noise: RMS of the update after 400 steps", rms(noise[-1] - noise[-2]), 0.22, 0.25)


def watch(seed, steps=60):
    """-> RMS of the updates in units of the rate, and the share of signs kept, at each step; (steps, 2)"""
    model, random = new_model(seed), np.random.default_rng(seed)
    adam, rows, sign = Adam(model), [], 0
    for _ in range(steps):
        before, sign_before = model.store.data.copy(), sign
        add_gradient(model, random_batch(random))
        sign = np.sign(model.store.grad)
        adam.step(0.01)
        rows.append((rms((model.store.data - before) / 0.01), (sign == sign_before).mean()))
    return np.array(rows)


size, kept = np.mean([watch(seed) for seed in SEEDS[:2]], axis=0).T
for t, lo, hi in (1, 0.99, 1), (2, 0.65, 0.85), (20, 0.3, 0.5), (60, 0.18, 0.28):
    measure(f"a model, step {t:2}: RMS of the update", size[t - 1], lo, hi)
measure("the longest step of all", 1 + size.argmax(), 1, 1)
measure("signs kept, mean of steps 51 to 60", kept[50:].mean(), 0.68, 0.8)

# %% [markdown]
# At a constant rate the first step is the longest: every weight moves its full length. Keep that for Experiment 3.
# After 60 steps the updates are as short as those of noise. It would be wrong to conclude that the gradients *are*
# noise by then: about three signs in four are kept. $v$ may also remember larger gradients than the present ones; we
# have not tested how much of it is that.
#
# ## Backward: none, and what follows
#
# Nothing is differentiated here. To the optimiser the gradients are numbers that arrive; no gradient of the loss flows
# back through $m$, $v$ or the schedule. What it has instead is the *history* of each gradient, and two things follow.
#
# **How long is its memory?** In the sum above the gradient of $k$ steps ago counts $(1 - \beta) \beta^k$. The last
# $n$ of them together count $1 - \beta^n$. With $n = \frac{1}{1 - \beta}$ that is close to $1 - \frac{1}{e}$, 63 per
# cent: that many steps are the memory.

# %%
for beta, steps, lo, hi in (0.9, 10, 0.64, 0.66), (0.98, 50, 0.63, 0.64), (0.999, 1000, 0.63, 0.64):
    measure(f"beta = {beta}: share of the last {steps} gradients", 1 - beta**steps, lo, hi)

# %% [markdown]
# So $m$ looks back over about 10 steps and the paper's $v$ over 50; with 0.999, which Kingma and Ba propose, it would
# be 1000. The paper does not say why it takes 0.98.
#
# **What has no scale cannot show a mistake of scale.** Lose a factor 8 in the gradient of one matrix: Adam takes the
# same steps, as measured above for one factor for each weight, and no loss curve can tell. That is why a numeric check
# must look at the size of a gradient and not only at its direction.
#
# ## Check
#
# This page and the library, on a whole model: five steps with the schedule. Then the same with $\varepsilon$ where the
# equations have it, to see how much its place matters.

# %%
def places_of_eps(warmup=3):
    """-> a model after five steps, its Adam; the same weights by this page; by the equations, with eps at the hat"""
    model, random = new_model(3), np.random.default_rng(3)
    adam, ours = Adam(model), [model.store.data.copy(), 0, 0]
    other = model.store.data.copy()
    for t in range(1, 6):
        add_gradient(model, random_batch(random))
        rate = learning_rate(t, 32, warmup)
        same(f"rate at step {t}", rate, noam(t, 32, warmup))
        ours = adam_step(ours[0], model.store.grad, *ours[1:], t, rate)
        other -= rate * (ours[1] / (1 - 0.9**t)) / (np.sqrt(ours[2] / (1 - 0.98**t)) + 1e-9)
        adam.step(rate)
    return model, adam, ours, other


model, adam, (w, m, v), other = places_of_eps()
same("weights", w, model.store.data)
same("m", m, adam.m)
same("v", v, adam.v)
moved = np.abs(other - w)
measure("eps at the hat: share of weights that differ by more than 0.001", (moved > 1e-3).mean(), 1e-5, 1e-3)

# %% [markdown]
# The rates here are near 0.1, so 0.001 is a hundredth of a step. The place of $\varepsilon$ matters to fewer than one
# weight in a thousand.
#
# ## Experiment 1: which part of Adam does it?
#
# Adam differs from gradient descent in two things: it averages the gradients, $m$, and it divides by $\sqrt{v}$. Take
# it apart. *With momentum* has the average only. *One divisor for all* divides by one number, the root of the mean of
# $\hat{v}$ over the whole model; *one for each array* by the root of its mean over each matrix and each vector.
# *Without momentum* is $\beta_1 = 0$. The same model as above on all of the corpus, 150 steps, three seeds, four rates
# for each; it takes minutes, so it is recorded. What do you expect: is the divisor needed for each weight, or is one
# for each matrix enough?

# %% Reading the recording
result = recorded("adam_and_warmup")
best = {}
for row in result["optimizers"]:
    losses = [math.inf if loss is None else loss for loss in row["losses"]]
    best[row["optimizer"]] = min(best.get(row["optimizer"], (math.inf,)), (np.mean(losses), row["rate"], losses))
print("\nat the best of four rates            rate    loss on new sentences: mean (each seed)")
for kind, (mean, rate, losses) in best.items():
    print(f"{kind:36} {rate:<7g} {mean:.2f}   ({', '.join(f'{loss:.2f}' for loss in losses)})")


# %%
def ahead(better, worse, lo, hi):
    """The smallest lead over the seeds, at the best rate of each."""
    lead = min(b - a for a, b in zip(best[better][2], best[worse][2]))
    measure(f"{worse}, minus {better}: smallest of three", lead, lo, hi)


ahead("with momentum", "gradient descent", 0.3, 0.8)
ahead("one divisor for each array", "with momentum", 0.2, 0.7)
ahead("Adam", "one divisor for each array", 0.25, 0.6)
measure("one divisor for all, minus with momentum: means",
        best["one divisor for all"][0] - best["with momentum"][0], -0.1, 0.1)
measure("Adam without momentum, minus Adam: means", best["Adam without momentum"][0] - best["Adam"][0], -0.15, 0.15)

# %% [markdown]
# - **One divisor for the whole model is worth nothing** beyond momentum: it is one step size again.
# - **One for each array** brings about half of what Adam has over momentum. Sizes do differ between the matrices.
# - **One for each weight** brings the other half, with every seed. Sizes differ within the matrices as well: the
#   vectors of rare pieces and of common ones are rows of one array. (That this array makes the difference we have not
#   tested.)
# - **Momentum helps gradient descent, and Adam hardly at all**, here. It might with smaller batches or later in
#   training; we have not tested it.
#
# ## Experiment 2: what the correction is worth
#
# Leave the bias correction out, and step $t$ is the following times as long as it should be:
#
# $$\frac{1 - \beta_1^t}{\sqrt{1 - \beta_2^t}}$$
#
# How much harm that does must depend on $\beta_2$. So take the paper's 0.98, and 0.999. The model of the opening, 30
# steps, and no warm-up, so that the first steps count in full:

# %%
def longer(t, beta2, beta1=0.9):
    """How many times as long step t is without the correction."""
    return (1 - beta1**t) / math.sqrt(1 - beta2**t)


class Uncorrected(Adam):
    def step(self, rate):
        super().step(rate * longer(self.t + 1, self.betas[1]))


late = {}
for beta2, lo, hi in (0.98, 1.5, 1.6), (0.999, 6.5, 6.7):
    measure(f"beta2 = {beta2}: longest step without correction", max(longer(t, beta2) for t in range(1, 1000)), lo, hi)
    for kind in Adam, Uncorrected:
        losses = [train(lambda model: kind(model, (0.9, beta2)), 0.01, seed, steps=30, warmup=1)[0] for seed in SEEDS]
        late[beta2, kind] = np.mean(np.array(losses)[:, 25:], axis=1)                  # (seeds,)
        print(f"    {kind.__name__:12} loss of steps 26 to 30", " ".join(f"{loss:.2f}" for loss in late[beta2, kind]))
harm = {beta2: late[beta2, Uncorrected] - late[beta2, Adam] for beta2 in (0.98, 0.999)}
measure("0.98, without correction minus with: largest difference", np.abs(harm[0.98]).max(), 0, 0.15)
measure("0.999, without correction minus with: smallest", harm[0.999].min(), 0.2, 0.8)
measure("corrected, 0.999 minus 0.98: largest", np.abs(late[0.999, Adam] - late[0.98, Adam]).max(), 0, 0.1)

# %% [markdown]
# With 0.98 the correction could be left out here and nobody would notice; with 0.999 it must not be. A forgotten
# correction is a bug that hides or shows with $\beta_2$. (Corrected, the two do equally well here; in 30 steps, a
# memory of 50 and one of 1000 hardly differ, so that says nothing about which is better in 100,000.)
#
# ## Experiment 3: why begin with steps near 0?
#
# [Lesson 12](12_residual_norm_dropout.py) trained models of 6 + 6 layers with and without warm-up. Post-LN needed the
# warm-up, and an average $v$ from 100 batches did not replace it. So "at first $v$ rests on too few gradients" is not
# the reason there. Another answer is often given: the first steps, at full length, overshoot, and the loss rises. Let
# us see whether it does; and which weights are it that must not move fast?
#
# Models with 3 + 3 layers, $d_{model} = 32$, a rate of 0.01, 150 steps, five seeds; a warm-up of 40 steps for *some* of
# the weights, all others at the full rate from the first step on. (It is recorded too: 55 runs.) The last two columns
# tell how much of the decoder's output is one vector common to all words: the square of the mean vector, over the mean
# of the squares. At 1, the words cannot be told apart.

# %% The table
runs = {(row["norm"], row["warmed"]): row["runs"] for row in result["results"]}


def of(norm, warmed, what):
    return np.array([run[what] for run in runs[norm, warmed]])


print("                                    loss at      final loss:                  common share:")
print("warm-up for                         step 20      mean (lowest to highest)     step 20, at the end")
for norm, warmed in runs:
    losses = of(norm, warmed, "final_loss")
    print(f"{norm:>4}-LN, {warmed:25}{of(norm, warmed, 'early_loss').mean():8.2f}"
          f"{losses.mean():11.2f} ({losses.min():.2f} to {losses.max():.2f})"
          f"{of(norm, warmed, 'early_common_share').mean():14.4f}{of(norm, warmed, 'final_common_share').mean():8.2f}")

# %% The bands
everything, nothing = (of("post", warmed, "final_loss") for warmed in ("all", "none"))
early = of("post", "none", "early_loss") - of("post", "all", "early_loss")
measure("post-LN, step 20: no warm-up minus warm-up for all, largest", early.max(), -0.5, -0.3)
measure("the end: no warm-up minus warm-up for all, smallest", (nothing - everything).min(), 0.6, 0.8)
attention_out = of("post", "values and output", "final_loss")
measure("warm-up for values and output minus for all, largest", (attention_out - everything).max(), -0.1, 0)
but = of("post", "all but values and output", "final_loss")
measure("no warm-up minus warm-up for all but them, mean", (nothing - but).mean(), -0.1, 0.1)
for other in "all but values and output", "queries and keys", "feed-forward", "norms", "embedding":
    lead = of("post", other, "final_loss") - attention_out
    measure(f"warm-up for {other} minus for values and output, smallest", lead.min(), 0.2, 1.1)
pre_gain = of("pre", "none", "final_loss") - of("pre", "all", "final_loss")
measure("pre-LN, no warm-up minus warm-up for all, mean", pre_gain.mean(), 0.05, 0.25)
frequencies = recorded("norm_and_warmup")["unigram_entropy"]
measure("loss of the frequencies alone, nats", frequencies, 5.505, 5.515)
for norm, warmed, lo, hi in ("post", "none", 0.99, 1), ("post", "all", 0.98, 1), ("pre", "none", 0.7, 0.9):
    shares = of(norm, warmed, "early_common_share")
    measure(f"{norm}-LN, warm-up for {warmed}, step 20: common share, mean", shares.mean(), lo, hi)

# %% The figure
figure, axes = plt.subplots(figsize=(7.5, 3.9), layout="constrained")
for row, (norm, warmed) in enumerate(runs):
    losses, good = of(norm, warmed, "final_loss"), warmed in ("all", "attention", "values and output")
    axes.plot(losses, np.full(5, row), "o" if good else "s", color=DARK if good else ACCENT, alpha=0.6, ms=6)
axes.set_yticks(range(len(runs)), [f"{norm}-LN, {warmed}" for norm, warmed in runs])
axes.axvline(frequencies, color="#888888", lw=0.8, ls=":")
axes.annotate("frequencies alone", (frequencies, len(runs) - 1), (-3, -3), textcoords="offset points", ha="right")
axes.invert_yaxis()
axes.grid(axis="x", color="0.9")
axes.set(xlabel="final loss on new sentences, nats per piece", title="Which weights need warm-up? (five seeds)")
show(figure, "15_which_weights", alt="Final losses of five seeds for each kind of warm-up. Post-LN: with none, for all "
     "but values and output, or for queries and keys, feed-forward, norms or embedding alone, most runs end near 5.6 "
     "nats, a little above the loss of the word frequencies; with a warm-up for all, for attention, or for values and "
     "output alone, all end between 4.3 and 4.8. Pre-LN ends near 4 with and without.")

# %% [markdown]
# - **No overshooting**: at step 20 the loss without warm-up is *lower*, with every seed. What the first steps damage is
#   something that the loss does not show at that time.
# - **The matrices of values and outputs of attention need the warm-up.** Slowed down alone, with all else at the full
#   rate, the model ends as well as with a warm-up for all, with every seed. The control is the reverse: slow down all
#   *but* them, and hardly anything is gained. No other group will do, not even queries and keys of the same attention;
#   with norms or embedding one seed in five comes part of the way.
# - **What goes wrong**: without warm-up the decoder of post-LN puts out nearly the same vector for every word. That is
#   enough to learn the frequencies, and to learn them fast; most runs find no way on from there in 150 steps. In
#   pre-LN the vectors differ more at step 20, and a warm-up makes little difference. (In the larger models of lesson 12
#   it gained half a nat or more at the higher of two rates, and did harm at the lower.)
#
# A reading that agrees with all of this: at the start a query attends to all words about alike, so what an attention
# adds is nearly the same vector for each of them. Full steps that agree let it grow, and the norm after the addition
# shrinks what is each word's own. But mind two things. At step 20 the output is nearly common *with* a warm-up, too;
# the difference is whether the model comes out of it. And we have shown where the harm is done in this small model,
# not that the sameness of the vectors is how.
#
# What of the two reasons of the literature? Liu et al. (2020) study how the variance of Adam's steps depends on a poor
# $v$; averaging it first did not help in lesson 12. Xiong et al. (2020) derive and measure, for post-LN, large
# gradients near the output. A gradient's size as such drops out of Adam's steps, as measured under Forward, and the
# sublayer nearest to the output is a feed-forward one: a warm-up for these gains nothing here. Both may still matter
# in models larger than ours.
#
# ## Check the claim
#
# > "With $d_{model} = 512$ and 4,000 steps of warm-up, the learning rate peaks at about 0.00098."
#
# An explanation of the paper says so. Which settings would it belong to?

# %%
measure("warm-up for a peak of 0.00098", 1 / (512 * 0.00098**2), 2033, 2034)
measure("twice equation 3 with a warm-up of 8,000", 2 * learning_rate(8000, 512, 8000), 9.8e-4, 9.9e-4)

# %% [markdown]
# Equation 3 gives 0.0007, as above; for 0.00098 the warm-up would have to be 2,034 steps. The number may come from the
# paper's public code, which later took twice equation 3 with 8,000 steps. Those are not the settings of the paper.
#
# ## Paper and code
#
# - Adam and equation 3: §5.3, with $\beta_1 = 0.9$, $\beta_2 = 0.98$, $\varepsilon = 10^{-9}$, warmup = 4000. The
#   paper gives no reason for the warm-up, nor for $d_{model}^{-0.5}$ and the root; this page tests the rise only.
# - In the library: `Adam` and `noam` in [nn/optim.py](../scratchformer/nn/optim.py), with `Ops.adam` in
#   [nn/ops.py](../scratchformer/nn/ops.py); [tests/oracle/test_optimizer.py](../tests/oracle/test_optimizer.py) holds
#   a hundred steps against PyTorch's.
# - *Differs from the paper:* nothing, as far as it says. $\varepsilon$ stands where TensorFlow puts it. PyTorch adds it
#   to $\sqrt{\hat{v}}$, as in Algorithm 1 of Kingma and Ba; $10^{-8}$ is the default there.
# - *Differs from this page:* the library works in place on one flat array of all weights, in blocks that fit into a
#   processor's cache, and leaves weights and moments alone if the gradient is not finite.
# - The recordings: [benchmarks/adam_and_warmup.py](../benchmarks/adam_and_warmup.py) and
#   [benchmarks/norm_and_warmup.py](../benchmarks/norm_and_warmup.py).
#
# ## Exercises
#
# `scratchformer learn check 15` looks at your answers and says what is wrong with them.
#
# **Predict.** Set $\beta_1 = \beta_2 = 0$ and $\varepsilon = 0$. What is Adam then? And with $\beta_1 = 0.9$ alone?
#
# <details><summary>Answer</summary>
#
# With both 0, $\hat{m} = g$ and $\sqrt{\hat{v}} = |g|$ at every step: each weight moves by the learning rate against
# the sign of its gradient. With $\beta_1 = 0.9$ and $\beta_2 = 0$, the step is $\hat{m} / |g_t|$, which is huge
# whenever the newest gradient happens to be near 0. So $v$ had better remember longer than $m$.
#
# </details>
#
# **Build** `15_adam`: Adam with its bias correction; the classic mistakes are told by name.
#
# **Build** `15_noam`: the learning rate of equation 3, for many steps at once.
#
# **Break** `15_disguise`: change every gradient, such that Adam takes the same steps.
#
# **Break** `15_longest_step`: "a step of Adam is never longer than the learning rate", one reads. Find gradients after
# which it is 1.6 times as long.
#
# ## Next
#
# The parts are complete: a model, a loss, an optimiser with its schedule. [Lesson 16](16_first_training.py) puts them
# together, and shows how to tell a training run that is slow from one that is broken. The sources: [Attention Is All
# You Need](https://arxiv.org/abs/1706.03762), §5.3; [Kingma and Ba 2015](https://arxiv.org/abs/1412.6980), *Adam*;
# [Xiong et al. 2020](https://arxiv.org/abs/2002.04745) and [Liu et al. 2020](https://arxiv.org/abs/1908.03265) on
# warm-up.
