# %% [markdown]
# # Lab notes 14 · The loss, and label smoothing
#
# The side experiments of [lesson 14](../14_label_smoothing.py): which side of the loss's equation to compute, how the
# two conventions for the target are related, all runs of the experiment with little and plenty of text, and a check
# of the paper's sentence about perplexity and BLEU.

# %% Imports
import course  # noqa: F401  finds lessons/support
import math

import numpy as np

from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.ops import ops_of
from support.calibration import loss_floor, smoothed_target
from support.lesson import measure, recorded, same, table

# %% [markdown]
# ## Experiment 1: which side to compute
#
# $$-\sum_v q_v \ln p_v = \ln \sum_u e^{z_u} - \sum_v q_v z_v$$
#
# The logits of one token are $z = (0, 1000, 0, 0, -50)$, in float32. The left side is computed with a softmax that
# subtracts the largest logit, as it should. The right side takes the largest logit $m$ out of the sum as a factor,
# $e^z = e^m e^{z - m}$.


# %% Both sides
def log_sum_exp(z):
    highest = z.max(axis=-1)
    return highest + np.log(np.exp(z - highest[..., None]).sum(axis=-1))


z = np.array([0, 1000, 0, 0, -50], "float32")
p = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
rows = []
for right, smoothing, expected in (1, 0.0, 0), (2, 0.0, 1000), (2, 0.1, 976.25):
    q = np.roll(smoothed_target(5, smoothing), right + 1).astype("float32")
    with np.errstate(invalid="ignore", divide="ignore"):
        left = -(q * np.log(p)).sum()
    ours = log_sum_exp(z) - (q * z).sum()
    assert not np.isfinite(left) and abs(ours - expected) < 0.1
    rows.append([f"class {right}", smoothing, left, f"{ours:.2f}"])
table(["right class", "smoothing", "left side", "right side"], rows)
same("log_sum_exp: this page and the library", log_sum_exp(z[None]),
     ops_of(z).log_sum_exp(z[None]), 1e-6)

# %% [markdown]
# A probability that is too small for its format becomes 0. Then $\ln 0$ is $-\infty$, and times $q$ it makes the loss
# infinite, or, where $q = 0$, not a number. Smoothing gives *every* class a $q$ above 0, so every class can cause
# this. Finite logits have a finite loss, and the right side finds it.
#
# (The Annotated Transformer draws its figure of this loss from probabilities that are exactly 0, and readers get inf:
# its issue 109.)
#
# **The mean.** The loss of a batch is the sum over real tokens divided by their number. Divided by *positions*, it
# would shrink with the padding. A public NumPy Transformer does so (`loss-averaged-over-padding` in [the correctness
# report](../../docs/correctness.md)). In a mean of the sentences' means, a token in a sentence of 2 would weigh
# $\frac{1}{2}$, and one in a sentence of 9 $\frac{1}{9}$. So this library adds up sums and divides once.
#
# ## Experiment 2: two conventions, and the lowest loss
#
# `"others"` spreads $\epsilon$ over the $V - 1$ wrong classes, `"uniform"` over all $V$. In `"uniform"` the right
# class gets $\frac{\epsilon}{V}$ back. So `"others"` with $\epsilon$ is the same as `"uniform"` with $\epsilon
# \frac{V}{V - 1}$. The lowest smoothed loss is the entropy of $q$. For `"others"` it is
#
# $$-(1 - \epsilon) \ln (1 - \epsilon) - \epsilon \ln \frac{\epsilon}{V - 1}$$
#
# We compute it at the paper's size, and let 37,000 logits of one token go down the gradient, 200 steps from 0.

# %% The paper's size
V = 37_000
same("others with 0.1, uniform with 0.1 V / (V - 1), V = 7",
     smoothed_target(7, 0.1), smoothed_target(7, 0.1 * 7 / 6, "uniform"))
z, target = np.zeros((1, V)), np.array([V - 1])
for _ in range(200):
    reached, _, dz = cross_entropy(z, target, 0.1)
    z -= 4 * dz
floor = -0.9 * math.log(0.9) - 0.1 * math.log(0.1 / (V - 1))
same("the floor: formula and library", floor, loss_floor(V, 0.1), 1e-9)
measure("the floor", floor, 1.3769, 1.377)
measure("e to the floor", math.exp(floor), 3.962, 3.964)
measure("gradient descent: last loss − the floor", abs(reached - floor), 0, 1e-9)
measure("gradient descent: last lead", z[0, -1] - z[0, 0], 12.71, 12.72)
measure("ln (0.9 · 36,999 / 0.1)", math.log(0.9 * (V - 1) / 0.1), 12.71, 12.72)

# %% [markdown]
# At $V = 37{,}000$ the two conventions differ by less than a part in ten thousand. A model that gives the right word
# 0.9 each time and the others the same share has the lowest loss, 1.377 nats. A surer model has more.
#
# ## Experiment 3: little text and plenty
#
# Two layers, $d_{model} = 64$, no dropout, 600 steps, with 1,000 pairs or all 20,000 of the bundled corpus. Runs of
# the same number begin with the same weights and see the same batches, so we compare them in pairs. All losses are
# plain, on 500 new sentences. BLEU is that of greedy translations. Recorded by
# [benchmarks/label_smoothing.py](../../benchmarks/label_smoothing.py).

# %% All runs
runs = {(row["pairs"], row["eps_ls"]): row["runs"]
        for row in recorded("label_smoothing")["results"]}


def of_runs(pairs, smoothing, name):
    return np.array([run[name] for run in runs[pairs, smoothing]])      # (3,)


def of_errors(pairs, smoothing):
    return np.array([run["calibration"]["error"] for run in runs[pairs, smoothing]])


COLUMNS = {"nats": "loss", "accuracy": "accuracy", "confidence": "confidence",
           "bleu": "BLEU"}
table(["pairs", "smoothing", *COLUMNS.values(), "calibration error"],
      [[f"{pairs:,}", smoothing,
        *(f"{of_runs(pairs, smoothing, name).mean():.3f}" for name in COLUMNS),
        f"{of_errors(pairs, smoothing).mean():.3f}"] for pairs, smoothing in runs])


def differences(pairs, smoothing, name):
    return of_runs(pairs, smoothing, name) - of_runs(pairs, 0, name)


COMPARED = [                # pairs, smoothing, what, bounds of all three differences
    (20_000, 0.1, "nats", 0.09, 0.125), (20_000, 0.1, "accuracy", 0, 0.01),
    (20_000, 0.1, "bleu", 0, 2.5), (1_000, 0.1, "nats", -0.2, -0.14),
    (1_000, 0.1, "bleu", -1, 2)]
rows = []
for pairs, smoothing, name, lo, hi in COMPARED:
    found = differences(pairs, smoothing, name)
    assert lo <= found.min() and found.max() <= hi, (pairs, smoothing, name, found)
    if lo < 0 < hi:
        assert found.min() < 0 < found.max(), (pairs, smoothing, name, found)
    rows.append([f"{pairs:,}", f"{smoothing} − 0", COLUMNS[name],
                 ", ".join(f"{each:+.3f}" for each in found)])
table(["pairs", "smoothing", "difference in", "the three runs"], rows)

# %% More numbers of these runs
for pairs, lo, hi in (1_000, 0.35, 0.5), (20_000, 3.5, 5):
    over = (of_errors(pairs, 0.1) / of_errors(pairs, 0)).mean()
    measure(f"{pairs:,} pairs: calibration error, 0.1 over 0", over, lo, hi)
falls = [run["curve"][-2][1] - run["curve"][-1][1] for run in runs[20_000, 0]]
measure("20,000 pairs, 0: smallest fall of the loss, last 100 steps", min(falls),
        0.05, 0.1)
measure("20,000 pairs, 0: BLEU, highest − lowest of three runs",
        np.ptp(of_runs(20_000, 0, "bleu")), 7, 9)

# %% [markdown]
# **Plenty of text.** With 0.1 the loss rises in all three runs, by 0.10 to 0.11 nats. Accuracy and BLEU are higher in
# all three, which chance alone would give once in eight.
#
# **Little text.** With 0.1 the loss falls in all three runs. BLEU has both signs.
#
# **Calibration.** With 0.1 the error of the models of little text falls to 0.42 of what it was, and that of the
# models of plenty grows to 4.2 times. Smoothing moves a model in one direction, and the result depends on where the
# model was.
#
# The two cases differ in more than the amount of text. One reads its pairs again and again, the other was stopped
# while its loss was still falling. We haven't tested which of these matters. Nor have we tested dropout together with
# smoothing (the paper has both), or larger models.
#
# ## Experiment 4: check the claim "hurts perplexity"
#
# > Label smoothing "hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU score."
#
# How much must it hurt, if being unsure is all that happens? Take the models that were trained *without* smoothing,
# and smooth each of their probabilities by hand, with $s = \frac{\epsilon}{V - 1}$:
#
# $$p' = (1 - \epsilon) p + s (1 - p)$$
#
# The last term isn't negative, so $-\ln p'$ lies at most $-\ln (1 - \epsilon)$ above $-\ln p$. We call that the
# **tax**. (Where $p$ is below $\frac{1}{V}$, $p'$ is larger than $p$, and the loss falls.) All probabilities of a
# token go through the same rising function, so their order stays. So accuracy and greedy translations stay exactly as
# they are.

# %% The tax
rows = []
for pairs, smoothing, by_hand_band, trained_band in (
    (20_000, 0.1, (0.92, 0.95), (1, 1.05)),
    (1_000, 0.1, (-1.5, -1.3), (-1.75, -1.55)),
):
    tax = -math.log(1 - smoothing)
    by_hand = np.mean([run["mixed_nats"] - run["nats"]
                       for run in runs[pairs, 0]]) / tax
    trained = differences(pairs, smoothing, "nats").mean() / tax
    assert by_hand_band[0] < by_hand < by_hand_band[1]
    assert trained_band[0] < trained < trained_band[1]
    rows.append([f"ours, {pairs:,} pairs", smoothing, f"{tax:.4f}", f"{by_hand:.2f}",
                 f"{trained:.2f}"])
for smoothing, perplexity, expected in (0.1, 4.92, 0.495), (0.2, 5.47, 0.709):
    tax = -math.log(1 - smoothing)
    rise = math.log(perplexity / 4.67) / tax    # Table 3: 4.67 without smoothing, (D)
    assert abs(rise - expected) < 0.001
    rows.append(["the paper, Table 3 (D)", smoothing, f"{tax:.4f}", "", f"{rise:.2f}"])
table(["runs", "smoothing", "tax, nats", "smoothed by hand: rise over the tax",
       "trained with it: rise over the tax"], rows)

# %% [markdown]
# With plenty of text, training with 0.1 costs about the tax. In the paper the rise is about half and 0.7 of the tax.
#
# With little text the loss falls, and it falls for the models smoothed by hand, too, by most of what training with
# smoothing gained. Only words with $p$ below $\frac{1}{V}$ can bring that about. Where a model is confident and wrong,
# it gains from being less confident of everything.
#
# So "hurts perplexity, as the model learns to be more unsure" is right where text is plentiful, and the tax tells how
# much to expect. But a model that is made unsure by hand translates as before. In greedy translation being unsure can
# improve nothing *by itself*. If smoothing does, then by other weights, learned from another gradient. We haven't
# tested why those might translate better.
#
# (The paper's translations come from beam search, which compares products of probabilities. There, smoothing by hand
# can change which translation wins. We haven't tested it.)
