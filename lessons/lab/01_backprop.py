# %% [markdown]
# # Lab notes 01 · Backprop by hand
#
# What [lesson 01](../01_backprop.py) leans on, with its controls: three gradients on five training sets; which step a
# central difference needs in float64 and float32; and which bugs of public code a gradient check finds.

# %% Imports
import course  # noqa: F401  finds lessons/support
import json
import sys

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK
from support.constructions import as_counts, labelled, train
from support.lesson import ROOT, measure, show, table

# %% [markdown]
# ## Experiment 1: three gradients on five training sets
#
# The lesson trains a bag of words with the right gradient (run A) and with two wrong ones, *right class only* (run B)
# and *bias averaged* (run C), on one set of 500 sentences. Weights start at 0, each step sees all sentences, and
# nothing is random, so a second run would be the same run. What can differ is the choice of the sentences. So here are
# the three also on four other sets: lines 1–500, 501–1,000, 1,001–1,500 and 1,501–2,000 of the corpus's training set.
# The 500 test sentences are the same for all.

# %% The gradients
def sum_of_rows(dy):
    return dy.sum(axis=0)


gradients = {
    "right": (lambda p, q: p - q, sum_of_rows),
    "right class only": (lambda p, q: (p - q) * q, sum_of_rows),
    "bias averaged": (lambda p, q: p - q, lambda dy: dy.mean(axis=0)),
}
test = labelled("test")
page = as_counts(labelled("val"), test)
runs = {name: train(page, *both) for name, both in gradients.items()}

# %% Five training sets
known = labelled("train")
sets = {"the page's": page} | {f"lines {first + 1:,}–{first + 500:,}":
                               as_counts(known[first:first + 500], test)
                               for first in (0, 500, 1000, 1500)}
rows, class_only, averaged = [], [], []
for name, sentences in sets.items():
    three = {gradient: train(sentences, *gradients[gradient])
             if sentences is not page else runs[gradient]
             for gradient in ("right", "right class only", "bias averaged")}
    right, only, mean = (run.right for run in three.values())
    class_only.append(right.mean() - only.mean())
    averaged.append(right.mean() - mean.mean())
    rows.append([name, *(f"{run.losses[-1]:.2f} · {run.right.mean():.1%}"
                         for run in three.values()),
                 f"{(right & ~only).sum()} : {(only & ~right).sum()}",
                 f"{(right & ~mean).sum()} : {(mean & ~right).sum()}"])
table(["training set", "right", "right class only", "bias averaged",
       "right only by the first : only by the second", "the same for the bias"], rows)
measure("right − right class only, smallest of 5", min(class_only), 0.12, 0.16)
measure("right − right class only, largest of 5", max(class_only), 0.16, 0.21)
measure("right − bias averaged, smallest of 5", min(averaged), -0.02, 0.01)
measure("right − bias averaged, largest of 5", max(averaged), 0.01, 0.04)
no_bias = train(page, gradients["right"][0], lambda dy: 0 * sum_of_rows(dy))
measure("page's set: right without any bias − bias averaged",
        no_bias.right.mean() - runs["bias averaged"].right.mean(), -0.004, 0.004)

# %% [markdown]
# Each cell gives the training loss after 300 steps and the share of the 500 test sentences that come out right; the
# last two columns count the test sentences that only one of two runs gets right. The gradient that reaches the right
# class only costs 14 to 19 points on all five sets. The averaged bias costs 2.2 points (11 sentences) on the page's
# set; on the others it costs between 1.4 points and nothing, and once it gains 0.2. On the page's set that is 18 : 7
# among the sentences that only one of the two gets right (p = 0.04 in a two-sided sign test), on the others 16 : 17, 15
# : 15, 13 : 9 and 22 : 15. So there may be a small loss. It is too small to make anybody look for a bug. A network
# *without* a bias is as good as the one with the averaged bias: divided by 500 twice, the bias hardly moves, and this
# network hardly needs one.
#
# ## Experiment 2: which step?
#
# The central difference has two errors:
#
# - A large step leaves the tangent: the error of the formula falls a hundredfold when δ falls tenfold.
# - A small step subtracts two almost equal numbers. Each carries a rounding error in proportion to ε, the precision of
#   the number format, and dividing by 2δ blows it up to about ε / δ. In the end w + δ is rounded to w itself, the
#   difference is 0, and the relative error exactly 1 (the dotted line).
#
# They are equal where δ² = ε / δ: at δ = ε^(1/3), with an error of ε^(2/3). For float64 (ε = 2 · 10⁻¹⁶) that predicts a
# step of 6 · 10⁻⁶ and an error of 4 · 10⁻¹¹; for float32 (ε = 10⁻⁷), 5 · 10⁻³ and 2 · 10⁻⁵. All constants are set to 1
# in this, so it is right to about a factor of ten.

# %% A loss, safe for large logits
def loss_and_probabilities(y, t):
    """y (B, J), t (B,) -> L, p (B, J)"""
    y = y - y.max(axis=1, keepdims=True)
    e = np.exp(y)
    s = e.sum(axis=1, keepdims=True)
    return (np.log(s[:, 0]) - y[np.arange(len(t)), t]).sum(), e / s


def relative_error(ours, numeric):
    """The largest difference, over the largest element of either."""
    return np.abs(ours - numeric).max() / max(np.abs(ours).max(), np.abs(numeric).max())


B, I, J = 5, 4, 3
random = np.random.default_rng(1)
x, W, b = random.normal(size=(B, I)), random.normal(size=(I, J)), random.normal(size=J)
t = np.array([0, 2, 1, 1, 2])
dW = x.T @ (loss_and_probabilities(x @ W + b, t)[1] - np.eye(J)[t])

# %% Errors against steps
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
steps = 10.0 ** np.arange(-12, 0.5, 0.5)
for dtype, colour, line, lo, hi in (("float64", DARK, "o-", 1e-12, 4e-10),
                                    ("float32", ACCENT, "s--", 2e-6, 2e-4)):
    x_, W_, b_ = (array.astype(dtype) for array in (x, W, b))

    def loss_of(W):
        return loss_and_probabilities(x_ @ W + b_, t)[0]

    def difference(step):
        found = np.zeros_like(W_)
        for index in np.ndindex(W_.shape):
            up, down = W_.copy(), W_.copy()
            up[index], down[index] = W_[index] + step, W_[index] - step
            found[index] = (loss_of(up) - loss_of(down)) / (2 * step)
        return found

    errors = [relative_error(dW, difference(step)) for step in steps]
    best = steps[np.argmin(errors)]
    around = (1e-6, 1e-4) if dtype == "float64" else (1e-3, 1e-1)
    measure(f"{dtype}: the best of these steps", best, *around)
    measure(f"{dtype}: its error", min(errors), lo, hi)
    axes.loglog(steps, errors, line, color=colour, markersize=4, label=dtype)
    if dtype == "float32":
        measure("float32: error at a step of 1e-5", errors[14], 1e-3, 1)
axes.axhline(1, color="#666666", lw=0.8, ls=":")
axes.set(xlabel="step δ", ylabel="relative error of the difference")
axes.legend()
show(figure, "01_lab_step",
     alt="Relative error of central differences against step size, both "
         "logarithmic. In float64 a V with its lowest point, about 3e-11, "
         "between 1e-6 and 1e-4. In float32 the valley lies near 1e-2 and is "
         "a million times higher; for tiny steps the error is 1.",
     caption="In float64 many steps are good; in float32 hardly any is.")

# %% [markdown]
# In float32 the good steps are few, you don't know in advance which, and a step of 10⁻⁵ gives an error of per cents.
# That is why the checks of this project run in float64, with δ = 10⁻⁵, and demand a relative error below 10⁻⁶.
#
# ## Experiment 3: what gradient checks cannot see
#
# We examined six public NumPy Transformers and planted what we found in our own code, one bug at a time, together with
# bugs of two well-known PyTorch implementations and classic mistakes: more than a hundred planted bugs, or *mutants*
# ([correctness report](../../docs/correctness.md)). For each of them benchmarks/results/mutants.json records which of
# our test suites notice it. How many does the suite notice that checks gradients and nothing else?

# %% Counting
sys.path.append(str(ROOT / "tests" / "mutants"))
from mutants import MUTANTS  # noqa: E402

results = ROOT / "benchmarks" / "results" / "mutants.json"
caught = json.loads(results.read_text(encoding="utf-8"))
NUMPY = ("AkiRusProd/numpy-transformer", "AkiRusProd/numpy-nn-model",
         "Ultron09/Numpy-Transformer", "rziga/numpy-is-all-you-need",
         "YVSemlani/numpy-transformer", "csd81/attention-is-all-you-need-numpy")
FORWARD_FAILS = ("nothing-to-attend-to-gives-nan", "layer-norm-without-eps",
                 "cross-attention-mixes-its-inputs")


def noticed(mutants):
    return [mutant for mutant in mutants if "gradients" in caught[mutant.name]]


def in_nn(mutant):
    return all(patch.file.startswith("scratchformer/nn/") for patch in mutant.patches)


rows = []
for origin in NUMPY:
    found = [mutant for mutant in MUTANTS if mutant.origin == origin]
    seen = noticed(found)
    wrong = [mutant for mutant in seen if mutant.name not in FORWARD_FAILS]
    rows.append([origin, len(found), len(seen), len(wrong)])
rows.append(["together", *(sum(row[i] for row in rows) for i in (1, 2, 3))])
table(["implementation", "bugs planted", "noticed by gradient checks",
       "... as a wrong derivative"], rows)
planted = [mutant for mutant in MUTANTS if mutant.name in caught]
layers = [mutant for mutant in planted if in_nn(mutant)]
measure("planted bugs, of all origins", len(planted), 100, 200)
measure("... share noticed by gradient checks",
        len(noticed(planted)) / len(planted), 0.2, 0.3)
measure("... share in scratchformer/nn, where layers are",
        len(layers) / len(planted), 0.5, 0.7)
measure("... of these, share noticed by gradient checks",
        len(noticed(layers)) / len(layers), 0.3, 0.5)

# %% [markdown]
# Each of the six has a bug in its gradients, its masks or its attention; but only three of them have a *wrong
# derivative* (seven bugs), and in two of the six we found nothing that finite differences can see. One has no causal
# mask, the other divides the scores by the root of d_model instead of d_k; our code with these bugs passes all gradient
# checks, because its gradients are the right ones of the wrong functions. In a fourth (rziga's) the check stops because
# forward divides zero by zero or raises an exception, which is not a wrong derivative either. (We planted those three
# bugs once more, one by one, and looked at why the suite failed: NaN, a division by zero, an exception for source and
# target of different lengths.)
#
# Of all planted bugs gradient checks alone notice a quarter. But four in ten sit outside of `nn/`, in batches, the
# training loop or the search, where no gradient check runs; of those in `nn/` (three of them in the optimizer, which
# has no backward), more than half pass. So the conclusion from public code isn't "check every gradient and you are
# safe". It is: check every gradient, and *then* test what forward computes and where information flows.
