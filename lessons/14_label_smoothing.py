# %% [markdown]
# # 14 · The loss, and label smoothing
#
# **Cross-entropy rewards a model for being ever more certain. Should it?**
#
# *Needs [lesson 01](01_backprop.py) (softmax, cross-entropy and its gradient), [lesson 06](06_masks.py) (padding) and
# [lesson 13](13_whole_model.py) (the whole model) · you will compute the loss of the paper and its gradient, and see
# what it does to perplexity, translations and the confidence of a model.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library.calibration import loss_floor
from library.lesson import ROOT, measure, recorded, same, show
from scratchformer.config import ModelConfig
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.loss import cross_entropy, loss_backward
from scratchformer.nn.ops import ops_of
from scratchformer.nn.optim import Adam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import encode_pairs
from scratchformer.text.corpora import Pairs
from scratchformer.text.tokenizer import PAD
from scratchformer.training.run import load_run

# %% [markdown]
# A small translator of lesson 13's kind learns 300 sentence pairs, 16 at a time, with the loss of lesson 01. Every 60
# steps we test it on 150 pairs that it doesn't learn. We look at three numbers: its loss, in nats; its **accuracy**,
# how often the token that it finds most likely is the right one; and its **confidence**, the probability that it gives
# to this guess. (A *token* is a word or a piece of one. All numbers are means over tokens, each guessed with the right
# ones before it, as in lesson 06.)

# %% The text
translator = load_run(ROOT / "data/tiny_model")


def sentence_pairs(split, count):
    """The first pairs of a set, as ids"""
    texts = [
        (ROOT / f"data/tiny/{split}.{language}")
        .read_text(encoding="utf-8")
        .splitlines()[:count]
        for language in ("en", "de")
    ]
    return encode_pairs(
        translator.tokenizer.encode, Pairs(*texts, list(range(count)), 0), 64, 64
    )


few = sentence_pairs("train", 300)
new = sentence_pairs("test", 150).batch(np.arange(150))


# %%
def softmax(z):
    """z (..., V) -> p (..., V), each row positive and of sum 1"""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def guesses(model, batch):
    """-> scores of all real target tokens (n, V) in float64, and the tokens (n,)"""
    real = batch.target_out_ids != PAD
    return (
        model.forward(batch.source_ids, batch.target_in_ids)[0][real].astype(float),
        batch.target_out_ids[real],
    )


def look(model, batch):
    """-> mean loss, share of guesses that are right, mean probability of a guess"""
    z, targets = guesses(model, batch)
    loss_sum, n, _ = cross_entropy(z, targets)
    p = softmax(z)
    return loss_sum / n, (p.argmax(axis=-1) == targets).mean(), p.max(axis=-1).mean()


def learn_few(smoothing, seed=0, steps=240):
    """-> step and what `look` sees of new pairs, every 60 steps (4, 4); model"""
    config = ModelConfig(
        vocab_size=translator.model.config.vocab_size,
        d_model=32,
        d_ff=64,
        h=2,
        N=1,
        P_drop=0.0,
    )
    model, random, seen = Transformer(config, seed), np.random.default_rng(seed), []
    optimizer = Adam(model)
    for step in range(1, steps + 1):
        batch = few.batch(random.integers(0, len(few), 16))
        model.zero_grad()
        _, n = loss_backward(
            model,
            batch.source_ids,
            batch.target_in_ids,
            batch.target_out_ids,
            smoothing,
        )
        model.store.grad /= n
        optimizer.step(0.008 * min(1, step / 30))
        if step % 60 == 0:
            seen.append((step, *look(model, new)))
    return np.array(seen), model


plain, model = learn_few(smoothing=0)
print(f"{'step':>4}{'loss':>8}{'right':>8}{'sure':>8}")
for step, loss, right, sure in plain:
    print(f"{step:4.0f}{loss:8.2f}{right:8.0%}{sure:8.0%}")
lowest, end = plain[plain[:, 1].argmin()], plain[-1]
measure("step with the lowest loss on new sentences", int(lowest[0]), 60, 120)
measure("loss at the end − lowest loss", end[1] - lowest[1], 0.4, 1.1)
measure(
    "accuracy at the end − at the lowest loss",
    end[2] - lowest[2],
    0.02,
    0.12,
)
measure("accuracy at the end", end[2], 0.27, 0.38)
measure("confidence at the end", end[3], 0.45, 0.6)
known = look(model, few.batch(np.arange(300)))
measure(
    "accuracy on the 300 pairs that it learns", known[1], 0.75, 0.87
)
measure("confidence on these", known[2], 0.6, 0.74)

# %% [markdown]
# After its best loss the model goes on to get *more* guesses right, and still its loss gets worse. What grows too fast
# is its confidence: in the end it gives its guesses half of all probability on average, but only a third of them are
# right. A model is **calibrated** if these two numbers agree, among its confident guesses as among its hesitant ones.
# This one is **overconfident**.
#
# The loss rewarded it for that. On the 300 pairs that it learns, eight guesses in ten are right, and its confidence is
# lower than that. There the loss asks for more confidence, and it never has enough: the loss $-\ln p$ of a right guess
# falls as long as its probability $p$ can still rise, to 1, which no finite scores reach.
#
# The paper doesn't reward it: it asks for 0.9 instead of 1 and gives the rest to the other words (§5.4, **label
# smoothing**). "This hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU score."
# *Perplexity* is $e$ to the mean loss in nats: a model that hesitates between 5 words, all alike, has perplexity 5.
# *BLEU* compares translations with those of a human, 0 to 100, as in lesson 00. How can one be hurt, and the other
# gain?
#
# ## The picture
#
# Let the score of the right word be ahead of all others by a lead $g$, the others being level. Left: what the loss of
# such a guess is, for three strengths $\epsilon$ of smoothing: what is taken from the right word and shared out among
# the others. Right: one token's 1,600 scores, level at first, go down the gradient of their loss.

# %%
V, STRENGTHS = 1600, (0, 0.1, 0.3)


def lead_loss(g, smoothing, V=V):
    """The loss if the right one of V scores, the last, is g and the others are 0"""
    return cross_entropy(
        np.append(np.zeros(V - 1), g)[None], np.array([V - 1]), smoothing
    )[0]


def descend(smoothing, steps, V=V, rate=2.0):
    """Gradient descent on one token's scores, equal at first. -> leads, last loss"""
    z, target, lead = np.zeros((1, V)), np.array([V - 1]), []
    for _ in range(steps):
        loss, _, dz = cross_entropy(z, target, smoothing)
        z -= rate * dz
        lead.append(z[0, -1] - z[0, 0])
    return np.array(lead), loss


ways = {smoothing: descend(smoothing, 3000)[0] for smoothing in STRENGTHS}
for smoothing, lo, hi, more in (
    (0, 13, 15, (2.2, 2.4)),
    (0.1, 9.57, 9.58, (0, 1e-9)),
    (0.3, 8.22, 8.23, (0, 1e-9)),
):
    measure(
        f"smoothing {smoothing}: lead after 300 steps", ways[smoothing][299], lo, hi
    )
    measure(
        f"smoothing {smoothing}: its growth until step 3000",
        ways[smoothing][2999] - ways[smoothing][299],
        *more,
    )
measure("logarithm of 10", math.log(10), 2.30, 2.31)

# %% The figure
figure, panels = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
leads = np.linspace(0, 30, 121)
for smoothing, style, colour in zip(
    STRENGTHS, ("-", "--", ":"), (ACCENT, DARK, "black")
):
    panels[0].plot(
        leads, [lead_loss(g, smoothing) for g in leads], style, color=colour, lw=2
    )
    panels[1].semilogx(
        np.arange(1, 3001),
        ways[smoothing],
        style,
        color=colour,
        lw=2,
        label=f"smoothing {smoothing}",
    )
    if smoothing:
        rest = ways[smoothing][-1]
        panels[0].plot([rest], [lead_loss(rest, smoothing)], "o", color=colour)
for (x, y), smoothing, colour in zip(
    [(21, 0.15), (12, 2.4), (17.5, 6)], STRENGTHS, (ACCENT, DARK, "black")
):
    panels[0].text(
        x,
        y,
        f"smoothing {smoothing}",
        color=colour,
        ha="right" if smoothing == 0.3 else "left",
    )
panels[0].set(
    xlabel="lead g of the right score",
    ylabel="loss, nats",
    ylim=(0, 8),
    title="Smoothed, the loss has a lowest point",
)
panels[1].set(
    xlabel="step of gradient descent",
    ylabel="lead g",
    title="and descent comes to rest there (dots)",
)
panels[1].legend()
show(
    figure,
    "14_lead",
    alt="Left: loss of one token against the lead of the right score, from 0 to 30. "
    "Without smoothing it falls to zero and never rises. With 0.1 it is lowest at a "
    "lead of 9.6, with 0.3 at 8.2, marked by dots, and rises in a straight line "
    "beyond. Right: the lead over 3000 steps of gradient descent, on a logarithmic "
    "axis. Without smoothing it goes on rising in a straight line; with smoothing it "
    "becomes level before step 100.",
    caption="Without smoothing the lead of the right score grows for ever; with "
    "smoothing it comes to rest where the loss is lowest (dots).",
)

# %% [markdown]
# Without smoothing the lead grows like the logarithm of time: ten times the steps add $\ln 10$. With it, the loss has
# a lowest point, and the scores come to rest there. The section Backward computes where.
#
# ## The equation, and the same in code
#
# Of $V$ classes, the target distribution $q$ says what share each should get. Lesson 01 had $q_v = 1$ for the right
# class $t$ and 0 elsewhere. In general, the cross-entropy of $p = \mathrm{softmax}(z)$ with $q$ is
#
# $$L = -\sum_v q_v \ln p_v = \ln \sum_u e^{z_u} - \sum_v q_v z_v$$
#
# since $\ln p_v = z_v - \ln \sum_u e^{z_u}$ and the $q_v$ add up to 1. Smoothing by $\epsilon$ (epsilon, the paper's
# $\epsilon_{ls}$) takes $\epsilon$ from the right class. Two conventions differ in who gets it:
#
# | convention | right class | each other class | used by |
# |---|---|---|---|
# | `"uniform"`: all classes | $1 - \epsilon + \frac{\epsilon}{V}$ | $\frac{\epsilon}{V}$ | the paper's citation |
# | `"others"`: the wrong ones | $1 - \epsilon$ | $\frac{\epsilon}{V - 1}$ | the authors' code; default here |
#
# Padding (id 0) is no target: its row of $q$ is 0 throughout. It is a class, though, and gets its share of $\epsilon$
# from each real token, as do all words that could never stand there.

# %%
def smoothed_targets(targets, V, smoothing, spread="others"):
    """targets (...) int -> q (..., V): rows of sum 1; of zeros for padding"""
    everywhere = smoothing / (V - 1 if spread == "others" else V)
    on_target = (
        1 - smoothing - (everywhere if spread == "others" else 0)
    )  # on top of `everywhere`
    q = everywhere + on_target * (np.arange(V) == targets[..., None])
    return q * (targets != PAD)[..., None]


targets, eps = np.array([[4, 2, 6], [3, PAD, PAD]]), 0.1
for spread in "others", "uniform":
    print(f"{spread:8}", smoothed_targets(targets, 7, eps, spread)[0, 0].round(4))
same(
    "others with eps is uniform with eps V / (V - 1)",
    smoothed_targets(targets, 7, eps),
    smoothed_targets(targets, 7, eps * 7 / 6, "uniform"),
)

# %% [markdown]
# So the two are one family with another name for $\epsilon$, and differ little at the paper's $V = 37{,}000$.
#
# ## Forward
#
# The right side of the equation is the one to compute: it takes no logarithm of a probability. Its sum of exponentials
# cannot overflow if the largest score $m$ is taken out as a factor, $e^{z} = e^{m} e^{z - m}$. What the left side does
# with large scores, in float32:

# %%
def log_sum_exp(z):
    """z (..., V) -> ln of the sum of e^z, (...): no exponential is above 1, one is 1"""
    highest = z.max(axis=-1)
    return highest + np.log(np.exp(z - highest[..., None]).sum(axis=-1))


def smoothed_loss(z, q):
    """z, q (..., V) -> the sum of the losses; rows of padding are 0 in q: they add 0"""
    real = q.any(axis=-1)
    return (log_sum_exp(z) * real).sum() - (q * z).sum()


z = np.array([[0, 1000, 0, 0, -50]], "float32")
with np.errstate(invalid="ignore", divide="ignore"):
    for target, smoothing, loss in (1, 0, 0), (2, 0, 1000), (2, 0.1, 976.25):
        q = smoothed_targets(np.array([target]), 5, smoothing).astype("float32")
        left = -(q * np.log(softmax(z))).sum()
        measure(
            f"target {target}, smoothing {smoothing}: -sum q ln p is {left}; finite",
            int(np.isfinite(left)),
            0,
            0,
        )
        name = f"target {target}, smoothing {smoothing}: ours"
        measure(name, smoothed_loss(z, q), loss - 0.1, loss + 0.1)

# %% [markdown]
# Even in a softmax that subtracts the largest score, as lesson 05 does, a probability too small for its format becomes
# 0. Then $\ln 0$ is $-\infty$, and times $q$ it makes the loss infinite or, where $q = 0$, not a number. Smoothing
# gives *every* class a $q$ above 0, so every class can bring this about. (The Annotated Transformer draws its figure
# of this loss from probabilities of exactly 0, and readers get inf: its issue 109.) Scores that are finite have a
# finite loss, and the right side finds it.
#
# **The mean.** The loss of a batch is the sum over its real tokens, divided by their number. Divided by positions, it
# would shrink with the padding; a public NumPy Transformer does so (`loss-averaged-over-padding` in [the
# correctness report](../docs/correctness.md)). In a mean of the sentences' means, a token of a sentence of 2 would
# weigh $\frac{1}{2}$, one of a sentence of 9 $\frac{1}{9}$. So this library adds up sums, and divides once.
#
# ## Backward
#
# Follow one score $z_j$ of one real token to its loss $\ln \sum_u e^{z_u} - \sum_v q_v z_v$. There are two ways.
#
# - Through the logarithm of the sum, whatever the target is: lesson 01 found $\frac{e^{z_j}}{\sum_u e^{z_u}} = p_j$.
# - Through the second sum, where $z_j$ stands once, with the factor $q_j$: $-q_j$.
#
# $$\frac{\partial L}{\partial z_j} = p_j - q_j$$
#
# The same formula as in lesson 01, but now read its signs. There, a wrong class had $q_j = 0$, so its score was
# pushed down always, and the right one up always, without end. Now both turn round. In the convention `"others"`, the
# right score goes *down* once $p_t$ is above $1 - \epsilon$, a wrong one *up* once $p_j$ is below
# $\frac{\epsilon}{V - 1}$. The gradient is 0 where $p = q$, and nowhere else.
#
# That place is at finite scores. There, $\frac{p_t}{p_j} = \frac{q_t}{q_j}$, and a ratio of probabilities is $e$ to
# the difference of the scores. So the lead comes to rest at
#
# $$g = \ln \frac{q_t}{q_j} = \ln \frac{(1 - \epsilon)(V - 1)}{\epsilon}$$
#
# A padded target has no loss, so all its scores have gradient 0. And the mean divides by a number that no score can
# change, so it divides the gradient.

# %%
def smoothed_loss_backward(z, targets, smoothing, spread="others"):
    """z (..., V), targets (...) -> dL/dz (..., V); L: mean over real tokens"""
    real = (targets != PAD)[..., None]
    return (
        (softmax(z) - smoothed_targets(targets, z.shape[-1], smoothing, spread))
        * real
        / real.sum()
    )


random, lengths = np.random.default_rng(14), np.array([2, 9, 4])
targets = np.where(
    np.arange(9) < lengths[:, None], random.integers(1, 7, (3, 9)), PAD
)  # (B, T)
z = random.normal(size=(3, 9, 7))  # (B, T, V)
dz = smoothed_loss_backward(z, targets, eps)
measure("largest gradient of a padded row", np.abs(dz[targets == PAD]).max(), 0, 0)
for smoothing in STRENGTHS[1:]:
    best = math.log((1 - smoothing) * (V - 1) / smoothing)
    same(
        f"smoothing {smoothing}: the lead g, and where descent came to rest",
        ways[smoothing][-1],
        best,
        1e-9,
    )

# %% [markdown]
# ## Check
#
# Central differences in every score, those of padding included, in both conventions. Then the library:
# `cross_entropy` returns the sum, the number of tokens and the gradient of the sum, and `Ops.cross_entropy`
# underneath makes loss and gradient in one pass, $p - q$ in place of $p$.

# %%
for spread in "others", "uniform":
    q = smoothed_targets(targets, 7, eps, spread)
    dz = smoothed_loss_backward(z, targets, eps, spread)
    numeric = numeric_gradient(lambda z: smoothed_loss(z, q) / lengths.sum(), z)
    error = np.abs(dz - numeric).max() / np.abs(numeric).max()
    measure(f"{spread}: worst error, relative to the largest element", error, 0, 1e-8)
    loss_sum, n, dlogits = cross_entropy(z, targets, eps, spread)
    same(
        "the loss: this page and the library",
        smoothed_loss(z, q) / lengths.sum(),
        loss_sum / n,
    )
    same("its gradient", dz, dlogits / n)
same("log of the sum of exponentials", log_sum_exp(z), ops_of(z).log_sum_exp(z))

# %% [markdown]
# ## Experiment 1: how low can it go?
#
# The smoothed loss is lowest where $p = q$, and there it is the entropy of $q$. In the paper's size, $\epsilon = 0.1$
# and about $V = 37{,}000$:
#
# $$-(1 - \epsilon) \ln (1 - \epsilon) - \epsilon \ln \frac{\epsilon}{V - 1}$$
#
# Beside it, the trained model of this project, which had $\epsilon = 0.1$ and $V = 1600$: one text, two losses.

# %%
V_paper = 37_000
floor = measure(
    "the floor by the formula",
    -0.9 * math.log(0.9) - 0.1 * math.log(0.1 / (V_paper - 1)),
    1.3769,
    1.377,
)
measure("the floor as a perplexity", math.exp(floor), 3.962, 3.964)
same("the floor by the library", floor, loss_floor(V_paper, 0.1))
lead, reached = descend(0.1, 200, V_paper, rate=4.0)
measure(
    "gradient descent on 37,000 scores: last loss − the floor",
    abs(reached - floor),
    0,
    1e-9,
)
measure("gradient descent: last lead", lead[-1], 12.71, 12.72)

test = sentence_pairs("test", 300).batch(np.arange(300))
z, t = guesses(translator.model, test)
plain_nats, smoothed_nats = (
    cross_entropy(z, t, smoothing)[0] / len(t) for smoothing in (0, 0.1)
)
p = softmax(z)
right, nats = p.argmax(axis=-1) == t, -np.log(p[np.arange(len(t)), t])
measure("trained model, 300 new sentences: smoothed loss", smoothed_nats, 1.12, 1.15)
measure("trained model: floor of the smoothed loss", loss_floor(V, 0.1), 1.062, 1.063)
measure("trained model: plain loss", plain_nats, 0.095, 0.104)
measure("trained model: accuracy", right.mean(), 0.99, 0.996)
measure("trained model: median confidence", np.median(p.max(axis=-1)), 0.92, 0.935)
measure(
    "share of the plain loss that falls on right guesses",
    nats[right].sum() / nats.sum(),
    0.8,
    0.88,
)

# %% [markdown]
# The floor is the *best* a model can have: 1.377 nats, a "perplexity" of 3.96, if it gives the right word 0.9 each time
# and the others alike. One that is surer has more, as the figure showed, and one without a doubt has no finite loss.
# So **a smoothed training loss is not a loss on the text, and its exponential no perplexity.** It must not stand beside
# a validation loss that is not smoothed, nor beside a run with another $\epsilon$ or another $V$. This library smooths
# the training loss alone; validation reports plain nats.
#
# The trained model is right in 99 cases of 100 and says 0.93: close to the 0.9 that it was asked for, and
# underconfident. Four fifths of its plain loss fall on guesses that are right, and only not sure enough.
#
# ## Experiment 2: little text, and plenty
#
# **Predict** before you read on: the model of the opening learns the same batches from the same start, smoothed. Will
# its plain loss on new sentences be better or worse?
#
# Then a larger model, of two layers and $d_{model} = 64$, without dropout. It takes 600 steps through 1,000 pairs,
# which it learns by heart, or through all 20,000, of which it sees none more than twice; three runs each, with
# $\epsilon$ of 0, 0.1 and 0.3. Runs of the same number begin with the same weights and see the same batches, so we
# compare them in pairs. The numbers are of 500 new sentences, and not smoothed. BLEU is that of *greedy*
# translations: the most likely token, one after the other. (Temperature and nats at it come later.)

# %%
smoothed = learn_few(smoothing=0.1)[0][-1]
measure(
    "model of the opening, smoothed − plain: loss at the end",
    smoothed[1] - end[1],
    -0.9,
    -0.3,
)
measure(
    "plain: confidence − accuracy",
    end[3] - end[2],
    0.15,
    0.3,
)
measure("smoothed: confidence − accuracy", smoothed[3] - smoothed[2], 0.04, 0.15)

# %%
result = recorded("label_smoothing")
runs = {(row["pairs"], row["eps_ls"]): row["runs"] for row in result["results"]}
COLUMNS = {
    "nats": "nats",
    "accuracy": "right",
    "confidence": "sure",
    "bleu": "BLEU",
    "temperature": "temp.",
    "nats_at_temperature": "nats at it",
}


def of_runs(pairs, smoothing, name):
    """-> the results of the three runs (3,)"""
    return np.array([run[name] for run in runs[pairs, smoothing]])


def compare(pairs, smoothing, name, lo, hi):
    """Smoothed − plain, run by run: the smallest and the largest difference."""
    differences = of_runs(pairs, smoothing, name) - of_runs(pairs, 0, name)
    for words, value in ("smallest", differences.min()), ("largest", differences.max()):
        measure(
            f"{pairs:,} pairs, {smoothing} − 0: {words} difference in {COLUMNS[name]}",
            value,
            lo,
            hi,
        )


def both_signs(pairs, smoothing, name):
    """The three differences do not agree in sign."""
    more = of_runs(pairs, smoothing, name) > of_runs(pairs, 0, name)
    measure(
        f"{pairs:,} pairs, {smoothing} or 0: runs of three with more {COLUMNS[name]}",
        more.sum(),
        1,
        2,
    )


print(
    f"{'pairs':>6}{'smoothing':>11}"
    + "".join(f"{word:>11}" for word in COLUMNS.values())
)
for pairs, smoothing in runs:
    print(
        f"{pairs:6}{smoothing:11}"
        + "".join(f"{of_runs(pairs, smoothing, name).mean():11.3f}" for name in COLUMNS)
    )
compare(20_000, 0.1, "nats", 0.09, 0.125)
compare(20_000, 0.1, "accuracy", 0, 0.01)
compare(20_000, 0.1, "bleu", 0, 2.5)
both_signs(20_000, 0.3, "bleu")
compare(1_000, 0.1, "nats", -0.2, -0.14)
both_signs(1_000, 0.1, "bleu")
compare(1_000, 0.3, "bleu", 0.5, 3.5)
measure(
    "1,000 pairs, 0: nats on 500 of these pairs themselves",
    of_runs(1_000, 0, "known_nats").mean(),
    0.05,
    0.1,
)
falls = [run["curve"][-2][1] - run["curve"][-1][1] for run in runs[20_000, 0]]
measure(
    "20,000 pairs, 0: smallest fall of the validation loss in the last 100 steps",
    min(falls),
    0.05,
    0.1,
)
measure(
    "BLEU of the three plain runs, 20,000 pairs: highest − lowest",
    np.ptp(of_runs(20_000, 0, "bleu")),
    7,
    9,
)

# %% [markdown]
# Guesses sorted by their probability into ten bins: how many of a bin are right? On the diagonal a model is
# calibrated. The mean distance from it, each bin weighted by its number of guesses, is the *expected calibration
# error*.

# %%
for pairs, lo, hi in (1_000, 0.35, 0.5), (20_000, 3.5, 5):
    plain_error, smoothed_error = (
        np.mean([run["calibration"]["error"] for run in runs[pairs, smoothing]])
        for smoothing in (0, 0.1)
    )
    measure(
        f"{pairs:6,} pairs: mean calibration error, smoothing 0.1 over 0",
        smoothed_error / plain_error,
        lo,
        hi,
    )

# %% The figure
figure, panels = plt.subplots(1, 2, figsize=(8, 4), sharey=True, layout="constrained")
for panel, pairs in zip(panels, (1_000, 20_000)):
    panel.plot([0, 1], [0, 1], color="#888888", lw=0.8)
    for smoothing, style, colour in zip(
        STRENGTHS, ("o-", "s--", "^:"), (ACCENT, DARK, "black")
    ):
        count, sure, right = (
            np.array(
                [run["calibration"][name] for run in runs[pairs, smoothing]], float
            )
            for name in ("count", "confidence", "accuracy")
        )  # (3 runs, 10 bins)
        shown = count.sum(axis=0) >= 100
        x, y = (
            np.nansum(count * mean, axis=0)[shown] / count.sum(axis=0)[shown]
            for mean in (sure, right)
        )
        panel.plot(x, y, style, color=colour, label=f"smoothing {smoothing}")
    panel.set(xlabel="probability of the guess", title=f"{pairs:,} pairs to learn from")
    panel.set_aspect("equal")
panels[0].set_ylabel("share of these guesses that is right")
panels[0].text(0.55, 0.12, "overconfident", ha="left")
panels[0].text(0.05, 0.9, "underconfident", ha="left")
panels[1].legend()
show(
    figure,
    "14_calibration",
    alt="Share of guesses that are right against their probability, two panels, one "
    "line for each smoothing, with a diagonal. Learnt from 1,000 pairs, the line "
    "without smoothing lies below it: guesses of 0.75 are right in 0.54 of cases. "
    "That of 0.1 lies close above it, that of 0.3 far above. Learnt from 20,000 "
    "pairs, the line without smoothing lies close above the diagonal, that of 0.1 "
    "farther, that of 0.3 farthest: its guesses of 0.45 are right in 0.87 of cases.",
    caption="A model that knows little text by heart is overconfident, and smoothing "
    "repairs some of it; one that has seen plenty is pushed further from the "
    "diagonal.",
)

# %% [markdown]
# **Plenty of text.** Perplexity suffers in all three runs: 0.1 nats or a little more. Accuracy and BLEU are higher in
# all three, by at most 0.01 and by less than 2.5, while the plain runs differ by 8 BLEU among themselves. So the
# first half of the paper's sentence is clearly seen. The second has the right sign in three cases of three, which
# chance alone gives once in eight; with $\epsilon = 0.3$ BLEU has both signs.
#
# **Little text.** With $\epsilon = 0.1$ perplexity *gains*, in all three runs and in the model of the opening; BLEU
# shows nothing clear. With 0.3, BLEU is higher in all three. So "hurts perplexity" is no law.
#
# **Calibration** tells the two apart. What knows its text by heart is overconfident on other text, and smoothing by
# 0.1 takes away more than half of the error. What has seen plenty was already a little underconfident, and smoothing
# takes it four times as far off. Smoothing does not calibrate: it pushes in one direction, and what that does depends
# on where the model stood.
#
# The two differ in more than the amount of text: the one reads its pairs again and again, the other was stopped
# while its loss was still falling. Which of these matters, we have not tested.
#
# ## Check the claim
#
# > Label smoothing "hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU score."
#
# How much must it hurt, if being unsure is all that happens? Take a model that was trained without smoothing, and
# smooth each of its probabilities by hand, as the targets are smoothed, with $s = \frac{\epsilon}{V - 1}$:
#
# $$p' = (1 - \epsilon) p + s (1 - p)$$
#
# The last term is not negative, so the loss $-\ln p'$ lies at most $-\ln (1 - \epsilon)$ above $-\ln p$. Call that
# the tax. (Where $p$ is below $\frac{1}{V}$, $p'$ is even larger than $p$, and the loss falls.) And all probabilities
# of a token go through one rising function, so the largest remains the largest: accuracy and greedy translations stay
# as they are, to the last word.

# %%
for pairs, smoothing, by_hand_band, trained_band in (
    (20_000, 0.1, (0.92, 0.95), (1, 1.05)),
    (20_000, 0.3, (0.95, 0.98), (1.15, 1.22)),
    (1_000, 0.1, (-1.5, -1.3), (-1.75, -1.55)),
):
    tax = -math.log(1 - smoothing)
    by_hand = np.mean(
        [run["mixed_nats"][str(smoothing)] - run["nats"] for run in runs[pairs, 0]]
    )
    trained = np.mean(of_runs(pairs, smoothing, "nats") - of_runs(pairs, 0, "nats"))
    print(f"{pairs:,} pairs, smoothing {smoothing}: the tax is {tax:.4f} nats")
    measure(
        "plain models smoothed by hand: rise over the tax",
        by_hand / tax,
        *by_hand_band,
    )
    measure("models trained with it: rise over the tax", trained / tax, *trained_band)
for smoothing, perplexity, lo, hi in (0.1, 4.92, 0.48, 0.51), (0.2, 5.47, 0.7, 0.72):
    rise = math.log(perplexity / 4.67)  # Table 3: 4.67 without smoothing, row (D)
    measure(
        f"the paper, smoothing {smoothing}: the same",
        rise / -math.log(1 - smoothing),
        lo,
        hi,
    )
compare(20_000, 0.1, "nats_at_temperature", -0.03, 0)
compare(1_000, 0.1, "nats_at_temperature", 0.03, 0.08)
both_signs(20_000, 0.3, "nats_at_temperature")
both_signs(1_000, 0.3, "nats_at_temperature")

# %% [markdown]
# With plenty of text, training with 0.1 costs about the tax. With 0.3 it costs nearly a fifth more: more than this way
# of being unsure can. In the paper the rise is a half and seven tenths of the tax. With little text the sign turns, for
# models smoothed by hand too, and by most of what training with it gained. Only words with $p$ below $\frac{1}{V}$ can
# bring that about: where a model is confident and wrong, it gains if it's less confident of everything.
#
# So "hurts perplexity, as the model learns to be more unsure" is right where text is plentiful, and the tax tells its
# order of size. But what is made unsure by hand translates as before. In greedy translation the unsureness *itself*
# can improve nothing; if smoothing does, then by other weights, learnt from another gradient. (The paper's translations
# come from a search that compares products of probabilities. Smoothing by hand can change which one wins; we have not
# tested it.)
#
# What unsureness took can be given back: divide all scores of a model by one number, its *temperature*, chosen for
# the lowest loss on validation text. One below 1 makes the model more sure, and again the order stays. The last
# columns of the table show every model with its own, the plain ones too. For $\epsilon = 0.1$: with plenty of text the
# perplexity comes back, and is a little better than the plain model's, in three runs of three. With little, the gain
# of smoothing turns into a loss: one number, chosen after training, repairs more. For $\epsilon = 0.3$ the runs do not
# agree, with plenty of text or with little.
#
# *Not tested:* dropout beside smoothing (the paper has both), larger models, and why the weights learnt with smoothing
# might translate better.
#
# ## Paper and code
#
# - §5.4: "label smoothing of value $\epsilon_{ls} = 0.1$", citing Szegedy et al. 2016 (*Rethinking the Inception
#   Architecture for Computer Vision*), who spread $\epsilon$ over all classes. Table 3 (D) has the runs with 0 and
#   0.2. The perplexities there are per piece of a word.
# - *Differs from the citation:* Tensor2Tensor, the authors' code, spreads $\epsilon$ over the other $V - 1$ classes;
#   so do we by default (`spread = "others"` in the configuration). Padding and the start symbol are among these.
#   The Annotated Transformer leaves padding out and divides by $V - 2$.
# - Tensor2Tensor subtracts the floor from the smoothed loss. We leave it in: the gradient is the same.
# - The paper does not say what the loss is divided by; here as in the authors' code, the step's real target tokens.
# - In the library: `cross_entropy` in [nn/loss.py](../scratchformer/nn/loss.py) on that of
#   [nn/ops.py](../scratchformer/nn/ops.py); `loss_floor` and `reliability` in
#   [lessons/library/calibration.py](../lessons/library/calibration.py); tests in
#   [tests/nn/test_model.py](../tests/nn/test_model.py). `loss_backward` makes the scores a few rows at a
#   time and turns them into their gradient in place: at $V = 37{,}000$, the scores of a batch are the largest array.
# - Müller, Kornblith and Hinton (2019), *When Does Label Smoothing Help?*, measure calibration with and without it;
#   Guo et al. (2017), *On Calibration of Modern Neural Networks*, calibrate with one temperature.
#
# ## Exercises
#
# `scratchformer learn check 14` looks at your answers and says what is wrong with them.
#
# **Predict.** A run with $V = 37{,}000$ and $\epsilon = 0.1$ reports a smoothed training loss of 1.2 nats. What do
# you conclude?
#
# <details><summary>Answer</summary>
#
# It says nothing yet about the model: 1.2 lies below the floor of Experiment 1, which no model gets under. Perhaps the
# loss is not smoothed (as when smoothing was forgotten), or the floor was subtracted, as Tensor2Tensor does, or the
# mean runs over padding, which adds zeros and counts.
#
# </details>
#
# **Build** `14_smoothed_targets`: the target distribution, in both conventions, with padding.
#
# **Backward** `14_smoothed_cross_entropy_backward`: the gradient of the mean over the real tokens.
#
# **Build** `14_floor`: the lowest loss that there can be.
#
# **Build** `14_log_sum_exp`: for scores around 1000, around -1000, and a forbidden class.
#
# ## What to remember
#
# With label smoothing the target is 0.9 for the right word and a little for all others, so the scores come to rest at a
# finite lead, and the loss has a floor that no model can get under. Perplexity asks how large the probability of the
# right word is; choosing a word asks only whether it is the largest. So a model that is less confident loses perplexity
# and need not lose any translation. Whether it *gains* is a question for experiments.
#
# **Next:** there is a loss and its gradient; what is missing is how far to go along it. [Lesson
# 15](15_adam_and_warmup.py) has the paper's answer, Adam and a learning rate that first rises and then falls.
