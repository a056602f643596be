# %% [markdown]
# # 15 · Adam and the schedule
#
# *About 40 minutes. You need: [lesson 01](01_backprop.py) (gradients), [lesson 12](12_residual_norm_dropout.py)
# (post-LN and pre-LN, and what an average $v$ does not explain), [lesson 13](13_whole_model.py) (the whole model) and
# [lesson 14](14_label_smoothing.py) (its loss). You will have: Adam and the learning rate of equation 3 derived and
# measured, and a test of several reasons that are given for warm-up.*

# %% Imports
import gzip
import json
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.study.figures import ACCENT, DARK, LIGHT
from scratchformer.study.lesson import QUICK, ROOT, measure, recorded, same, show
from scratchformer.text.batches import encode_pairs
from scratchformer.text.corpora import read_pairs
from scratchformer.training.run import load_run

SEEDS = [0] if QUICK else [0, 1, 2]

# %% [markdown]
# ## Question
#
# **Gradient descent with one step size for all weights does badly on a Transformer. What does Adam do about it, and why
# does the paper begin with steps near 0?**
#
# The answer in one sentence: Adam divides the averaged gradient of each weight by the usual size of that weight's own
# gradient, so the learning rate says how far a weight moves; at first all weights move their full length together, and
# small steps then keep the attention layers of the paper's post-LN model from drowning the words.
#
# First the failure. A small Transformer, one encoder layer and one decoder layer with $d_{model} = 32$, learns to
# translate short sentences of the bundled corpus, cut into the pieces of words that the model of lesson 00 uses. It
# takes 100 steps of 16 sentences. The learning rate rises over the first 20 steps and then stays.

# %% Reading the sentences
tokenizer = load_run(ROOT / "data/tiny_model").tokenizer


def encoded(split):
    files = (ROOT / f"data/tiny/{split}.{language}" for language in ("en", "de"))
    return encode_pairs(tokenizer.encode, read_pairs(*files), max_length=16, tokens_per_batch=10_000)


train_pairs, new_pairs = encoded("train"), encoded("val")
new_batch = new_pairs.batch(np.arange(150))


# %%
def new_model(seed, N=1, norm="post"):
    config = ModelConfig(vocab_size=tokenizer.vocab_size, N=N, d_model=32, d_ff=64, h=2, P_drop=0.0, norm=norm)
    return Transformer(config, seed, "float64")


def random_batch(random):
    return train_pairs.batch(random.integers(0, len(train_pairs), 16))


def add_gradient(model, batch):
    """Set the gradient to that of the batch's mean loss. -> the loss, in nats per piece"""
    model.zero_grad()
    loss_sum, n = model.loss_backward(batch.source_ids, batch.target_in_ids, batch.target_out_ids)
    model.store.grad /= n
    return loss_sum / n


def mean_loss(model, batch=new_batch):
    loss_sum, n = model.loss(batch.source_ids, batch.target_in_ids, batch.target_out_ids)
    return loss_sum / n


def train(optimizer_of, rate, seed, steps=100, warmup=20):
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


curves, final = {}, {}
with np.errstate(over="ignore", invalid="ignore"):             # the highest rate is too high
    for optimizer_of, rate in (GradientDescent, 0.3), (GradientDescent, 1), (GradientDescent, 3), (Adam, 0.01):
        runs = [train(optimizer_of, rate, seed) for seed in (SEEDS if rate in (1, 0.01) else SEEDS[:1])]
        curves[rate], final[rate] = runs[0][0], [loss for _, loss in runs]
        print(f"{optimizer_of.__name__:15} rate {rate:<4}: loss on new sentences",
              " ".join(f"{loss:.2f}" for loss in final[rate]))
assert min(final[0.3][0], final[3][0]) > final[1][0], "another rate is better"
measure("gradient descent at its best rate minus Adam, smallest of the seeds",
        min(a - b for a, b in zip(final[1], final[0.01])), 0.4, 1.2)

# %% The figure
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for rate, style, colour in (0.3, "--", DARK), (1, "-", DARK), (3, "-.", LIGHT), (0.01, "-", ACCENT):
    losses = np.convolve(curves[rate], np.full(5, 0.2), "valid")
    losses = losses[losses < 9]
    axes.plot(np.arange(len(losses)) + 5, losses, style, color=colour)
    name = "Adam, 0.01" if rate == 0.01 else f"rate {rate}"
    axes.annotate(name, (len(losses) + 5, losses[-1]), (3, 0), textcoords="offset points", va="center")
axes.set(xlabel="step", ylabel="training loss, nats per piece", xlim=(0, 122), ylim=(3.8, 9))
axes.set_title("Gradient descent at three rates, and Adam (mean of 5 steps)")
show(figure, "15_failure", alt="Training loss over 100 steps. Gradient descent with rates 0.3 and 1 ends higher "
     "than Adam, which reaches about 4.3 nats; with rate 3 it is lost after a few steps.")

# %% [markdown]
# The best of three rates is far behind. Three times that rate ends in overflow, and with a third of it learning is
# slower still. So the fault is not in the number; it is that there is one number.
#
# ## The idea in one picture
#
# How large are the gradients that one rate must serve? Below, a model learns with Adam for 30 steps. For each weight,
# take the usual size of its gradient: the root of a running average of its squares. On the left, the sizes by kinds of
# weights; on the right, how far Adam moves these weights at step 30. RMS is the root of the mean of the squares. The
# shared matrix of word vectors is split, since rare pieces hardly ever get a gradient.

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
points = {"vectors of the 50 most common": [], "vectors of all others": []} | {kind: [] for kind in KINDS.values()}
for name in usual:
    if "embedding" in name:
        for rows, kind in zip(np.split(by_frequency, [50]), points):
            points[kind].append((usual[name][rows], update[name][rows]))
    else:
        points[next(kind for part, kind in KINDS.items() if part in name)].append((usual[name], update[name]))
lowest, highest = np.quantile(np.concatenate([x.ravel() for x in usual.values()]), [0.01, 0.99])
measure("gradients of single weights: 99th percentile over the 1st", highest / lowest, 80, 1000)
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
     "vectors of rare pieces have the smallest, with a median near 0.0005, those of norms the largest, near 0.01; "
     "the whole spreads over more than two powers of ten. Some biases lie off the scale. Right: RMS of the update of "
     "each array. All lie between 0.08 and 0.5 of the rate.")

# %% [markdown]
# Gradient descent moves each weight in proportion to the left picture: a rate that moves the vectors of rare pieces is
# too high for the norms. Adam divides by the left picture. What remains, on the right, lies within one power of ten.
# It lies below 1, not at it; why is said in Forward. (The line of the biases leaves the picture: it belongs to the
# biases of the keys, whose gradient is 0 up to rounding.)
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
def adam_step(w, g, m, v, t, rate, beta1=0.9, beta2=0.98, eps=1e-9, correct=True):
    """All arrays (n,), one number per weight; t counts from 1. -> the new w, m, v"""
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    factor = math.sqrt(1 - beta2**t) / (1 - beta1**t) if correct else 1
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
# $\varepsilon$ that is divided by $\sqrt{1 - \beta_2^t}$, at most 7 times as large. Beside gradients as large as those
# of the picture this does not matter; see Check.
#
# The two branches of equation 3 are equal where $t^{-0.5} = t \cdot \mathrm{warmup}^{-1.5}$, at $t$ = warmup. Before,
# the line is the lower one, after, the root. So the rate is highest there, at $(d_{model} \cdot
# \mathrm{warmup})^{-0.5}$.

# %%
measure("base model, highest rate", learning_rate(4000, 512, 4000), 6.98e-4, 6.99e-4)
measure("big model, highest rate", learning_rate(4000, 1024, 4000), 4.93e-4, 4.95e-4)
measure("base model, first rate", learning_rate(1, 512, 4000), 1.74e-7, 1.75e-7)

# %% The log of a real run
with gzip.open(ROOT / "benchmarks/results/multi30k_cpu_log.jsonl.gz", "rt", encoding="utf-8") as file:
    log = [entry for entry in map(json.loads, file) if entry["event"] == "step"]
difference = max(abs(entry["learning_rate"] / (1.25 * learning_rate(entry["step"], 128, 1000)) - 1) for entry in log)
measure("run: logged rate over 1.25 times equation 3, furthest from 1", difference, 0, 1e-9)
measure("run: highest rate", max(entry["learning_rate"] for entry in log), 3.49e-3, 3.5e-3)

# %% The figure
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
steps = np.arange(1, 20_001, 20)
for d_model, warmup, style, colour in (512, 4000, "-", DARK), (512, 8000, "--", DARK), (512, 2034, ":", DARK), \
        (1024, 4000, "-", ACCENT):
    peak = learning_rate(warmup, d_model, warmup)
    left.plot(steps, [1e4 * learning_rate(t, d_model, warmup) for t in steps], style, color=colour)
    left.annotate(f"{d_model}, {warmup:,}", (warmup, 1e4 * peak), (4, 3 if d_model == 512 else -30),
                  textcoords="offset points")
left.set(xlabel="step", ylabel="learning rate, in 0.0001", title="Equation 3: d_model, warmup", ylim=(0, 11))
right.plot([entry["step"] for entry in log], [entry["learning_rate"] for entry in log], color=LIGHT, lw=6,
           label="log of the run")
right.plot(np.arange(1, len(log)), [1.25 * learning_rate(t, 128, 1000) for t in range(1, len(log))], "--", color=DARK,
           label="1.25 times equation 3")
right.set(xlabel="step", ylabel="learning rate", title="A run: d_model 128, warmup 1,000")
right.legend(fontsize=9)
show(figure, "15_schedule", alt="Left: learning rate over 20,000 steps by equation 3. Each curve rises on a line and "
     "then falls slowly; peaks are 7.0 for the base model, 4.9 for 8,000 steps of warm-up, 9.8 for 2,034, and 4.9 for "
     "d_model 1024, in units of 0.0001. Right: the logged rate of a training run lies on equation 3 times 1.25.")

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
def path_of(gradients, w, rate=0.01, **options):
    """gradients (T, n), w (n,) -> the weights after each step, (T, n)"""
    m, v, path = np.zeros_like(w), np.zeros_like(w), []
    for t, g in enumerate(gradients, start=1):
        w, m, v = adam_step(w, g, m, v, t, rate, **options)
        path.append(w)
    return np.array(path)


T, n = 50, 7
gradients, zeros = random.normal(size=(T, n)) * 10.0**np.arange(-3, 4), np.zeros(n)
first = path_of(gradients, zeros)[0] / 0.01
measure("first step, in units of the rate: shortest", np.abs(first).min(), 0.9999, 1)
measure("first step, in units of the rate: longest", np.abs(first).max(), 0.9999, 1)
same("a loss 1000 times as large: the same path", path_of(1000 * gradients, zeros), path_of(gradients, zeros), 1e-4)

# %% [markdown]
# **Later steps.** $\hat{m}$ and $\sqrt{\hat{v}}$ are averages of the same gradients, one with its sign and one without.
# Where the gradients agree in sign and size, the quotient is 1 in size. Where they are noise, independent with mean 0
# and variance $\sigma^2$, the squares of the factors add up:
#
# $$\mathrm{Var}(m_t) \to (1 - \beta_1)^2 \sum_{k=0}^{\infty} \beta_1^{2k} \sigma^2 =
# \frac{1 - \beta_1}{1 + \beta_1} \sigma^2$$
#
# That is $\frac{1}{19} \sigma^2$ for $\beta_1 = 0.9$. So the RMS of the update in units of the rate says how far the
# gradients agree: 1 if fully, about $\sqrt{1/19} = 0.23$ if not at all. And in the model?

# %%
noise = path_of(random.normal(size=(400, 2000)), np.zeros(2000), rate=1)
measure("noise: RMS of the update after 400 steps", rms(noise[-1] - noise[-2]), 0.22, 0.25)


def update_sizes(seed, steps):
    """RMS of the update in units of the rate, over all weights of a model that learns; (steps,)"""
    model, random = new_model(seed), np.random.default_rng(seed)
    adam, sizes = Adam(model), []
    for t in range(1, steps + 1):
        add_gradient(model, random_batch(random))
        before, rate = model.store.data.copy(), 0.01 * min(1, t / 20)
        adam.step(rate)
        sizes.append(rms((model.store.data - before) / rate))
    return sizes


sizes = update_sizes(0, 60)
for t, lo, hi in (1, 0.9, 1), (5, 0.6, 0.85), (20, 0.35, 0.6), (60, 0.15, 0.35):
    measure(f"a model, step {t:2}: RMS of the update", sizes[t - 1], lo, hi)

# %% [markdown]
# Adam's steps are not all of the length of the rate. They are longest when the gradients agree, and at the start they
# do; 60 steps later they agree no more than noise does. So with a constant rate the first steps would be the longest
# of all, and at the first of them, every weight moves by its full length. Keep that for Experiment 3.
#
# ## Backward: none, and what follows
#
# Nothing is differentiated here. To the optimizer the gradients are numbers that arrive; no gradient of the loss flows
# back through $m$, $v$ or the schedule. What it has instead is the *history* of each gradient, and three things follow.
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
# same steps, as measured above, and no loss curve can tell. That is why a numeric check must look at the size of a
# gradient and not only at its direction.
#
# **What is 0 should stay 0.** [Lesson 05](05_scaling.py) showed that the bias of the keys has the gradient 0, exactly.
# In floating-point numbers there is a rest of rounding, and division by its own size makes it as large as any other
# gradient. Only $\varepsilon$ stands against that.

# %%
def key_bias_update(dtype):
    """RMS of the gradient of the keys' bias in the cross-attention, and of Adam's first update in units of the rate."""
    config = new_model(0).config
    model = Transformer(config, 0, dtype)
    add_gradient(model, random_batch(np.random.default_rng(0)))
    bias = model.store.parameters["decoder.layers.0.cross_attention.kv.bias"]
    gradient, before = bias.grad[:config.d_model].copy(), bias.data[:config.d_model].copy()
    Adam(model).step(0.01)
    return rms(gradient), rms((bias.data[:config.d_model] - before) / 0.01)


for dtype, bands in ("float64", [(0, 1e-15), (0, 1e-5)]), ("float32", [(1e-11, 1e-8), (0.01, 0.3)]):
    for what, value, band in zip(("gradient", "update"), key_bias_update(dtype), bands):
        measure(f"{dtype}: RMS of the {what} of the keys' bias", value, *band)

# %% [markdown]
# In float64 the rest is far below $\varepsilon = 10^{-9}$, and the bias stays. In float32 it is of the size of
# $\varepsilon$, and the bias moves by some hundredths of what other weights do. Here it does no harm, since softmax
# does not see it; with an $\varepsilon$ of 0 the bias would move at full rate.
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
measure("eps elsewhere: median difference of a weight", np.median(moved), 0, 1e-5)
measure("eps elsewhere: share of weights that differ by more than 0.001", (moved > 1e-3).mean(), 0, 1e-3)
measure("eps elsewhere: largest difference", moved.max(), 0, 0.3)

# %% [markdown]
# The rates here are near 0.1, so a difference of 0.001 is a hundredth of a step. The place of $\varepsilon$ matters to
# hardly any weight: to those whose gradient was by chance near 0 at the first step.
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
#   vectors of rare pieces and of common ones are rows of one array.
# - **Momentum helps gradient descent, and Adam hardly at all**, here. It might with smaller batches or later in
#   training; we have not tested it.
#
# ## Experiment 2: the memory of $v$, and the correction
#
# Is 0.98 a better choice than 0.999? And does the bias correction matter? Without it, the first step is not $\eta$ but
# $\eta \frac{1 - \beta_1}{\sqrt{1 - \beta_2}}$, and where gradients agree, step $t$ is the following times as long as
# it should be:
#
# $$\frac{1 - \beta_1^t}{\sqrt{1 - \beta_2^t}}$$
#
# The model of the opening, 50 steps, and no warm-up, so that the first steps count in full:

# %%
for beta2, lo, hi in (0.98, 1.5, 1.6), (0.999, 6.5, 6.7):
    factors = [(1 - 0.9**t) / math.sqrt(1 - beta2**t) for t in range(1, 1000)]
    measure(f"beta2 = {beta2}: longest step without correction, in units of the right one", max(factors), lo, hi)
    print(f"    that is step {1 + np.argmax(factors)}")


# %%
class PageAdam:
    """Adam as on this page."""

    def __init__(self, model, **options):
        self.store, self.m, self.v, self.t, self.options = model.store, 0, 0, 0, options

    def step(self, rate):
        self.t += 1
        w, self.m, self.v = adam_step(self.store.data, self.store.grad, self.m, self.v, self.t, rate, **self.options)
        self.store.data[...] = w


late = {}
for beta2, correct in (0.98, True), (0.98, False), (0.999, True), (0.999, False):
    losses = [train(lambda model: PageAdam(model, beta2=beta2, correct=correct), 0.01, seed, steps=50, warmup=1)[0]
              for seed in SEEDS]
    late[beta2, correct] = np.mean(np.array(losses)[:, 40:], axis=1)                               # (seeds,)
    print(f"beta2 = {beta2:<5} {'with' if correct else 'without'} correction: loss of steps 41 to 50",
          " ".join(f"{loss:.2f}" for loss in late[beta2, correct]))
base = late[0.98, True]
measure("0.999 minus 0.98: largest difference", np.abs(late[0.999, True] - base).max(), 0, 0.15)
measure("0.98 without correction minus with: largest difference", np.abs(late[0.98, False] - base).max(), 0, 0.15)
measure("0.999 without correction minus with: smallest", (late[0.999, False] - late[0.999, True]).min(), 0.15, 1.5)

# %% [markdown]
# Between 0.98 and 0.999 we find no difference, in a run that is much shorter than the memory of the second. That says
# nothing of 100,000 steps. The correction is a different matter: with 0.98 it could be left out and nobody would
# notice; with 0.999 it must not be. A forgotten correction is a bug that hides or shows with $\beta_2$.
#
# ## Experiment 3: why begin with steps near 0?
#
# [Lesson 12](12_residual_norm_dropout.py) trained models of 6 + 6 layers with and without warm-up. Post-LN needed the
# warm-up, and an average $v$ from 100 batches did not replace it. So "at first $v$ rests on too few gradients" is not
# the reason there. What is? A second answer is often given: the first steps, at full length, overshoot; the loss
# rises, and the model does not come back. Both halves of it can be looked at. First the curves of lesson 12.

# %% When is the model without warm-up behind?
earlier = recorded("norm_and_warmup")
rows = {(row["norm"], row["start"], row["peak_learning_rate"]): [dict(run["curve"]) for run in row["runs"]]
        for row in earlier["results"]}


def behind(norm, step, peak=0.001):
    """Loss without warm-up minus loss with, for each of five seeds."""
    return np.array([b[step] - a[step] for a, b in zip(rows[norm, "warm-up", peak], rows[norm, "none", peak])])


measure("post-LN, step  25: without warm-up minus with, largest", behind("post", 25).max(), -0.9, -0.6)
measure("post-LN, step 300: without warm-up minus with, smallest", behind("post", 300).min(), 0.15, 0.3)

# %% [markdown]
# Without warm-up the loss is *lower* at first, by more than half a nat with every seed, and only later higher. Next, a
# fresh model takes one first step of Adam, of many lengths. On 150 *other* sentences, how far does the loss fall?

# %%
LENGTHS = [1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1]


def after_one_step(norm, seed):
    """-> the change of the loss on new sentences for each length of the first step"""
    model = new_model(seed, N=3, norm=norm)
    add_gradient(model, random_batch(np.random.default_rng(seed)))
    start, before, changes = model.store.data.copy(), mean_loss(model), []
    for rate in LENGTHS:
        Adam(model).step(rate)
        changes.append(mean_loss(model) - before)
        model.store.data[...] = start
    return changes


for norm in "post", "pre":
    changes = np.array([after_one_step(norm, seed) for seed in SEEDS])
    print(f"{norm}-LN, 3 + 3 layers: change of the loss, mean of the seeds")
    print("   ", "  ".join(f"{rate:g}: {change:+.2f}" for rate, change in zip(LENGTHS, changes.mean(axis=0))))
    measure("with a step of 0.01, largest of the seeds", changes[:, 2].max(), -1, -0.2)
    measure("mean: 0.03 minus 0.01", changes.mean(axis=0)[3] - changes.mean(axis=0)[2], -0.5, 0.05)

# %% [markdown]
# A first step of 0.01 lowers the loss by much, in post-LN too, and one of 0.03 as much or more. **No overshooting: for
# the loss the first steps could hardly be long enough.** What they damage must be something that the loss does not show
# at that time. So which weights are it that must not move fast? Models with 3 + 3 layers, a rate of 0.01, five seeds;
# a warm-up of 40 steps for *some* of the weights, all others at the full rate from the first step on. (It is recorded
# too: 50 runs.) The last two columns tell how much of the decoder's output is one vector common to all words: the
# square of the mean vector, over the mean of the squares. At 1, the words cannot be told apart.

# %% The table
runs = {(row["norm"], row["warmed"]): row["runs"] for row in result["results"]}


def of(norm, warmed, what):
    return np.array([run[what] for run in runs[norm, warmed]])


print("warm-up for                     final loss: mean (lowest to highest)   common: mean at step 20, at the end")
for norm, warmed in runs:
    losses = of(norm, warmed, "final_loss")
    print(f"{norm:>4}-LN, {warmed:22} {losses.mean():.2f} ({losses.min():.2f} to {losses.max():.2f})"
          f"{of(norm, warmed, 'early_common_share').mean():28.4f}"
          f"{of(norm, warmed, 'final_common_share').mean():8.2f}")

# %%
none, everything = of("post", "none", "final_loss"), of("post", "all", "final_loss")
attention_out = of("post", "values and output", "final_loss")
measure("post-LN, no warm-up minus warm-up for all: smallest", (none - everything).min(), 0.6, 1.2)
measure("warm-up for values and output minus for all: largest", (attention_out - everything).max(), -0.3, 0.0)
for other in "queries and keys", "feed-forward", "norms", "embedding":
    measure(f"warm-up for {other} minus for all: mean", (of("post", other, "final_loss") - everything).mean(), 0.6, 1.2)
pre_gain = of("pre", "none", "final_loss") - of("pre", "all", "final_loss")
measure("pre-LN, no warm-up minus warm-up for all: mean", pre_gain.mean(), 0.05, 0.25)
measure("loss of the frequencies alone, nats", earlier["unigram_entropy"], 5.505, 5.515)
measure("post-LN without warm-up, step 20: least common share", of("post", "none", "early_common_share").min(), 0.99, 1)
measure("pre-LN without warm-up, step 20: largest", of("pre", "none", "early_common_share").max(), 0.7, 0.9)

# %% The figure
figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
for row, (norm, warmed) in enumerate(runs):
    losses, good = of(norm, warmed, "final_loss"), warmed in ("all", "attention", "values and output")
    axes.plot(losses, np.full(5, row), "o" if good else "s", color=DARK if good else ACCENT, alpha=0.6, ms=6)
axes.set_yticks(range(len(runs)), [f"{norm}-LN, {warmed}" for norm, warmed in runs])
axes.axvline(earlier["unigram_entropy"], color="#888888", lw=0.8, ls=":")
axes.annotate("frequencies alone", (earlier["unigram_entropy"], 9), (-3, -3), textcoords="offset points", ha="right")
axes.invert_yaxis()
axes.grid(axis="x", color="0.9")
axes.set(xlabel="final loss on new sentences, nats per piece", title="Which weights need warm-up? (five seeds)")
show(figure, "15_which_weights", alt="Final losses of five seeds for each kind of warm-up. Post-LN: with none, or for "
     "queries and keys, feed-forward, norms or embedding alone, most runs end near 5.6 nats, the loss of the word "
     "frequencies; with a warm-up for all, for attention, or for values and output alone, all end between 4.3 and 4.8. "
     "Pre-LN ends near 4 with and without.")

# %% [markdown]
# - **The matrices of values and outputs of attention are what needs the warm-up.** Slowed down alone, with all else at
#   the full rate, they are as good as a warm-up for all, with every seed. No other group is, not even queries and keys
#   beside them.
# - **What goes wrong**: without warm-up the decoder of post-LN puts out the same vector for every word. That is enough
#   to learn the frequencies, and to learn them fast; from there most runs find no way back in 150 steps. In pre-LN,
#   the word itself stays in the sum, and a warm-up makes little difference.
#
# A reading that agrees with all of this: at the start a query attends to all words about alike, so what an attention
# adds is nearly the same vector for each of them. Full steps that agree let it grow, and the norm after the addition
# shrinks what is each word's own. But mind two things. At step 20 the output is nearly common *with* a warm-up, too;
# the difference is whether the model comes out of it. And we have shown where the harm is done in this small model,
# not that the sameness of the vectors is how.
#
# ## Check the claim
#
# > "With $d_{model} = 512$ and 4,000 steps of warm-up, the learning rate peaks at about 0.00098."
#
# An explanation of the paper says so. Equation 3 gives 0.0007. Which warm-up would 0.00098 belong to?

# %%
measure("highest rate of the base model", learning_rate(4000, 512, 4000), 6.98e-4, 6.99e-4)
measure("warm-up for a peak of 0.00098", 1 / (512 * 0.00098**2), 2033, 2034)
measure("twice equation 3 with a warm-up of 8,000", 2 * learning_rate(8000, 512, 8000), 9.8e-4, 9.9e-4)

# %% [markdown]
# The number is probably not invented: the paper's public code later took twice equation 3 with 8,000 steps, which comes
# to it. Those are not the settings of the paper.
#
# > Adam needs the warm-up because its second moment is unstable at first.
#
# Explanations say so after Liu et al. (2020), who study the variance of Adam's steps. As the reason in *this* model it
# is not what we measure: lesson 12 averaged $v$ first, in vain; and a $v$ that is poor everywhere should not single
# out the values and outputs of attention.
#
# > In post-LN the gradients near the output are large at first, so large steps do harm.
#
# Xiong et al. (2020) derive and measure such gradients. With Adam that cannot be the whole reason, since a gradient's
# size drops out of the step, as measured under Forward. That pre-LN needs the warm-up less is confirmed. That it needs
# none is not: at the higher peak of lesson 12 it loses half a nat and more without.

# %%
measure("pre-LN, peak 0.003, step 300: without warm-up minus with, smallest", behind("pre", 300, 0.003).min(), 0.4, 0.6)

# %% [markdown]
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
# whenever the newest gradient happens to be near 0. $v$ must remember longer than $m$.
#
# </details>
#
# **Predict.** The vector of a rare word has had gradient 0 for 500 steps, and now gets one, of any size. How far does
# it move at once, and how far in all, if only zeros follow?
#
# <details><summary>Answer</summary>
#
# $m = 0.1 g$ and $\sqrt{v} = \sqrt{0.02} |g|$: it moves by 0.71 times the rate at once. Then $m$ falls by 0.9 and
# $\sqrt{v}$ by $\sqrt{0.98}$ at each step, so the steps shrink by 0.909, and in all it moves by $0.71 / (1 - 0.909)$,
# about 7.8 times the rate. One occurrence moves the word for some thirty steps.
#
# </details>
#
# **Build** `15_adam`: Adam with its bias correction; eight classic mistakes are told by name.
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
# The parts are complete: a model, a loss, an optimizer with its schedule. [Lesson 16](16_first_training.py) puts them
# together, and shows how to tell a training run that is slow from one that is broken. The sources: [Attention Is All
# You Need](https://arxiv.org/abs/1706.03762), §5.3; [Kingma and Ba 2015](https://arxiv.org/abs/1412.6980), *Adam*;
# [Xiong et al. 2020](https://arxiv.org/abs/2002.04745) and [Liu et al. 2020](https://arxiv.org/abs/1908.03265) on
# warm-up.
