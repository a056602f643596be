# %% [markdown]
# # Lab notes 01 · Backprop by hand
#
# What [lesson 01](../01_backprop.py) leans on, with its controls: five gradients on five training sets; which step a
# central difference needs in float64 and float32; what random directions find and what they miss; what the choice of
# inputs hides; which bugs of public code a gradient check finds; why two right gradients need not be equal; and that
# the page computes what the library computes.

# %% Imports
import course  # noqa: F401  finds lessons/support
import json
import sys

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Linear
from scratchformer.nn.loss import cross_entropy
from support.constructions import as_counts, labelled, train
from support.lesson import QUICK, ROOT, measure, same, show, table
from support.numeric import numeric_gradient


# %% What lesson 01 built, safe for large logits
def linear(x, W, b):
    """x (B, I), W (I, J), b (J,) -> y (B, J)"""
    return x @ W + b


def softmax_cross_entropy(y, t):
    """y (B, J), t (B,) -> L, p (B, J)"""
    y = y - y.max(axis=1, keepdims=True)
    e = np.exp(y)
    s = e.sum(axis=1, keepdims=True)
    log_p = y - np.log(s)
    return -log_p[np.arange(len(t)), t].sum(), e / s


def softmax_cross_entropy_backward(p, t):
    dy = p.copy()
    dy[np.arange(len(t)), t] -= 1
    return dy


def linear_backward(dy, x, W):
    return dy @ W.T, x.T @ dy, dy.sum(axis=0)


def relative_error(ours, numeric):
    """The largest difference, over the largest element of either."""
    return np.abs(ours - numeric).max() / max(np.abs(ours).max(), np.abs(numeric).max())


B, I, J = 5, 4, 3
random = np.random.default_rng(1)
x, W, b = random.normal(size=(B, I)), random.normal(size=(I, J)), random.normal(size=J)
t = np.array([0, 2, 1, 1, 2])
q = np.eye(J)[t]
L, p = softmax_cross_entropy(linear(x, W, b), t)
dy = softmax_cross_entropy_backward(p, t)
dx, dW, db = linear_backward(dy, x, W)

# %% [markdown]
# ## Experiment 1: five gradients on five training sets
#
# The lesson trains a bag of words with four gradients, three of them wrong, on one set of 500 sentences. Here is a
# fifth: all gradients divided by the number of sentences once too often. Weights start at 0, each step sees all
# sentences, and nothing is random, so a second run would be the same run. What can differ is the choice of the
# sentences. Here are the curves of the page's runs, and then three of the gradients on four other sets: lines 1–500,
# 501–1,000, 1,001–1,500 and 1,501–2,000 of the corpus's training set. The 500 test sentences are the same for all.

# %% The curves
def sum_of_rows(dy):
    return dy.sum(axis=0)


gradients = {
    "right": (lambda p, q: p - q, sum_of_rows),
    "right class only": (lambda p, q: (p - q) * q, sum_of_rows),
    "bias averaged": (lambda p, q: p - q, lambda dy: dy.mean(axis=0)),
    "divided once too often": (lambda p, q: (p - q) / len(p), sum_of_rows),
    "sign flipped": (lambda p, q: q - p, sum_of_rows),
}
test = labelled("test")
page = as_counts(labelled("val"), test)
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
looks = [("-", DARK), ("--", ACCENT), (":", DARK), ("-.", ACCENT),
         ((0, (1, 1)), ACCENT)]
runs = {}
for (name, (dy_of, db_of)), (style, colour) in zip(gradients.items(), looks):
    runs[name] = train(page, dy_of, db_of, steps=5 if name == "sign flipped" else 300)
    axes.plot(runs[name].losses, ls=style, lw=2, color=colour, label=name)
axes.set(ylim=(0, 4.5), xlabel="step", ylabel="loss, nats per sentence")
axes.legend(loc=(0.68, 0.3))
show(figure, "01_lab_wrong_gradients",
     alt="Training loss of five runs over 300 steps. Right and bias averaged "
         "fall together to 0.12 and 0.14, right class only to 0.28. Divided "
         "once too often hardly moves; with the sign flipped the loss climbs "
         "out of the picture at once.",
     caption="Of the four wrong gradients, two give curves that look healthy.")

numeric_dW = numeric_gradient(lambda W: softmax_cross_entropy(linear(x, W, b), t)[0], W)
numeric_db = numeric_gradient(lambda b: softmax_cross_entropy(linear(x, W, b), t)[0], b)
rows, errors = [], []
for name, (dy_of, db_of) in gradients.items():
    run = train(page, dy_of, db_of) if name == "sign flipped" else runs[name]
    wrong_dy = dy_of(p, q)
    both = (relative_error(x.T @ wrong_dy, numeric_dW),
            relative_error(db_of(wrong_dy), numeric_db))
    errors.append(max(both))
    rows.append([name, f"{run.losses[-1]:,.2f}", f"{run.right.mean():.1%}",
                 *(f"{error:.2f}" if error > 0.01 else "below 10⁻⁹" for error in both)])
assert errors[0] < 1e-9 and min(errors[1:]) > 0.2
table(["gradient", "loss after 300 steps", "right on new sentences",
       "check of dW", "check of db"], rows)
share = np.bincount(page.t_test).max() / len(page.t_test)
measure("share of the most common construction", share, 0.12, 0.13)

# %% [markdown]
# The last two columns are the relative errors that central differences find, with the lesson's five random rows. What
# is divided once too often looks like a learning rate that is too small. Its errors of 0.80, like that of the averaged
# bias, are 1 − 1/5, because the check has 5 rows. With a single row the check finds neither of these two bugs
# (experiment 4).
#
# How does one get "right class only"? By differentiating softmax element by element. For the lesson's passive, −ln p
# has the derivative −1/p = −4 with respect to p, and p has the derivative p (1 − p) = 3/16 with respect to its own
# logit. The product is −6/8, which is right. But the other two logits get nothing. One could have noticed: the elements
# of a right dy add up to 0 in each row, since adding one number to all logits doesn't change p.

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
# Now the other training sets. Each cell gives the training loss after 300 steps and the share of the 500 test sentences
# that come out right; the last two columns count the test sentences that only one of two runs gets right. The gradient
# that reaches the right class only (run B of the lesson) costs 14 to 19 points on all five sets. The averaged bias
# costs 2.2 points (11 sentences) on the page's set; on the others it costs between 1.4 points and nothing, and once it
# gains 0.2. On the page's set that is 18 : 7 among the sentences that only one of the two gets right (p = 0.04 in a
# two-sided sign test), on the others 16 : 17, 15 : 15, 13 : 9 and 22 : 15. So there may be a small loss. It is too
# small to make anybody look for a bug. A network *without* a bias is as good as the one with the averaged bias: divided
# by 500 twice, the bias hardly moves, and this network hardly needs one.
#
# Does run B only need more time? Hardly:

# %% More steps for run B
longer = {steps: train(page, *gradients["right class only"], steps=steps)
          for steps in (600, 1200)}
compared = {"right, 300 steps": runs["right"]} | {
    f"right class only, {steps:,} steps": run for steps, run in longer.items()}
table(["run", "loss on the training sentences", "right on new sentences"],
      [[name, f"{run.losses[-1]:.3f}", f"{run.right.mean():.1%}"]
       for name, run in compared.items()])
assert longer[600].losses[-1] < runs["right"].losses[-1]
measure("right − right class only with 4 times the steps",
        runs["right"].right.mean() - longer[1200].right.mean(), 0.13, 0.19)

# %% [markdown]
# After 600 steps its training loss is *lower* than that of the right gradient after 300, and it still loses 17 points
# on new sentences. So the loss on the training sentences can't have told us, however long we look at it. The loss on
# *new* sentences would be worse for run B, of course; but nobody knows what it ought to be without the other run.
#
# ## Experiment 2: which step?
#
# The central difference has two errors:
#
# - A large step leaves the tangent: the error of the formula falls a hundredfold when h falls tenfold.
# - A small step subtracts two almost equal numbers. Each carries a rounding error in proportion to ε, the precision of
#   the number format, and dividing by 2h blows it up to about ε / h. In the end w + h is rounded to w itself, the
#   difference is 0, and the relative error exactly 1 (the dotted line).
#
# They are equal where h² = ε / h: at h = ε^(1/3), with an error of ε^(2/3). For float64 (ε = 2 · 10⁻¹⁶) that predicts a
# step of 6 · 10⁻⁶ and an error of 4 · 10⁻¹¹; for float32 (ε = 10⁻⁷), 5 · 10⁻³ and 2 · 10⁻⁵. All constants are set to 1
# in this, so it is right to about a factor of ten.

# %% Errors against steps
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
steps = 10.0 ** np.arange(-12, 0.5, 0.5)
for dtype, colour, line, lo, hi in (("float64", DARK, "o-", 1e-12, 4e-10),
                                    ("float32", ACCENT, "s--", 2e-6, 2e-4)):
    x_, W_, b_ = (array.astype(dtype) for array in (x, W, b))

    def loss_of(W):
        return softmax_cross_entropy(linear(x_, W, b_), t)[0]

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
axes.set(xlabel="step h", ylabel="relative error of the difference")
axes.legend()
show(figure, "01_lab_step",
     alt="Relative error of central differences against step size, both "
         "logarithmic. In float64 a V with its lowest point, about 3e-11, "
         "between 1e-6 and 1e-4. In float32 the valley lies near 1e-2 and is "
         "a million times higher; for tiny steps the error is 1.",
     caption="In float64 many steps are good; in float32 hardly any is.")

# %% [markdown]
# In float32 the good steps are few, you don't know in advance which, and a step of 10⁻⁵ gives an error of per cents.
# That is why the checks of this project run in float64, with h = 10⁻⁵, and demand a relative error below 10⁻⁶.
#
# ## Experiment 3: random directions
#
# Differences element by element cost two forward passes for each weight. A derivative in one *direction* costs two in
# all. (For a layer with a weight of 512 × 512, a bias, and one input of 10 × 512, element by element takes 2 · (262,144
# + 512 + 5,120) = 535,552 forward passes; four directions for each of the three arrays take 24.) For any u of the shape
# of W,
#
# $$\frac{L(W + hu) - L(W - hu)}{2h} \approx \sum_{ij} dW_{ij} u_{ij}$$
#
# The price is power. Let the gradient g be off by an error e. Along a random u, the check compares (g + e) · u with g ·
# u, so it reports about |e · u| / |g · u|. Both are sums of many random numbers; e · u is of the size ‖e‖, and g · u of
# the size ‖g‖ (‖ ‖ is the root of the sum of squares). If e is a small part of g, the two are nearly independent, and
# the ratio of two independent normal numbers follows a Cauchy distribution. So:
#
# - the **median** error that a random direction reports is ‖e‖ / ‖g‖;
# - one direction reports less than τ with probability (2/π) · arctan(τ ‖g‖ / ‖e‖), and k directions all do with the
#   k-th power of that.
#
# First a single element that is off, and then all of them, in a small and in a larger layer; medians of 30 directions.

# %% Medians
def directional_errors(f, array, gradient, random, count, h=1e-5):
    """|backward - differences| over the larger of the two, along random directions."""
    errors, original = [], array.copy()
    for _ in range(count):
        u = random.normal(size=array.shape)
        array[...] = original + h * u
        above = f()
        array[...] = original - h * u
        claimed, shown = (gradient * u).sum(), (above - f()) / (2 * h)
        errors.append(abs(claimed - shown) / max(abs(claimed), abs(shown)))
        array[...] = original
    return np.array(errors)


def layer(random, inputs, outputs, rows=5):
    """A random linear layer with its loss. -> the loss as a function, W, dW"""
    x, W = random.normal(size=(rows, inputs)), random.normal(size=(inputs, outputs))
    W /= np.sqrt(inputs)
    t = random.integers(0, outputs, rows)

    def loss():
        return softmax_cross_entropy(x @ W, t)[0]

    p = softmax_cross_entropy(x @ W, t)[1]
    return loss, W, x.T @ softmax_cross_entropy_backward(p, t)


rows = []
for inputs, outputs, low, high in (4, 3, 1e-3, 0.1), (128, 96, 1e-5, 1e-2):
    draw = np.random.default_rng(2)
    loss, W_, right = layer(draw, inputs, outputs)
    one, all_of_it = right.copy(), 1.1 * right
    one[1, 2] *= 1.1
    medians = [np.median(directional_errors(loss, W_, gradient, draw, 30))
               for gradient in (right, one, all_of_it)]
    assert medians[0] < 1e-7 and low < medians[1] < high and 0.08 < medians[2] < 0.1
    rows.append([f"{W_.size:,}", "below 10⁻⁷", f"{medians[1]:.1e}", f"{medians[2]:.2f}",
                 f"{np.linalg.norm(one - right) / np.linalg.norm(right):.1e}"])
table(["weights", "right", "one element 10 % off", "all 10 % off",
       "‖e‖ / ‖g‖ for one element"], rows)

# %% [markdown]
# The rule gives the measured medians to about a factor of one and a half (30 directions are few). A bug in every
# element, as a wrong factor is, shows in full. A bug in one element is diluted.
#
# Now a hard case: in a layer of 512 × 512, **two elements, chosen at random, are 1 % too large**. Five layers, each
# with its own pair (seeds 0–3, and 53, whose pair is among the 10 % of pairs that weigh most), 200 directions each.

# %% Two elements of 262,144
count = 50 if QUICK else 200
rows, ratios, excess = [], [], []
for seed in 0, 1, 2, 3, 53:
    draw = np.random.default_rng(seed)
    loss, W_, right = layer(draw, 512, 512)
    e = np.zeros_like(right)
    chosen = draw.choice(right.size, 2, replace=False)
    e.flat[chosen] = 0.01 * right.flat[chosen]
    errors = directional_errors(loss, W_, right + e, draw, count)
    expected = np.linalg.norm(e) / np.linalg.norm(right)
    share, rule = (errors < 1e-6).mean(), 2 / np.pi * np.arctan(1e-6 / expected)
    ratios.append(np.median(errors) / expected)
    excess.append(abs(share - rule))
    rows.append([seed, f"{expected:.1e}", f"{np.median(errors):.1e}", f"{rule:.0%}",
                 f"{share:.0%}", f"{rule**4:.2%}"])
table(["seed", "‖e‖ / ‖g‖", "median error", "below 10⁻⁶ by the rule", "counted",
       "four of four, by the rule"], rows)
measure("median error over ‖e‖ / ‖g‖, smallest", min(ratios), 0.6, 1.1)
measure("median error over ‖e‖ / ‖g‖, largest", max(ratios), 0.9, 1.7)
measure("counted share − the rule's, largest", max(excess), 0, 0.15)

# %% [markdown]
# The median error of one direction is about 10⁻⁶, the tolerance itself. With the pair of seed 53, which is large, it is
# 4.3 · 10⁻⁶, and still 16 % of the directions report less than 10⁻⁶ by the rule (20 % of these 200). With the lightest
# pair here three directions in four do, and by the rule all of four directions do in three runs of ten. So it is not
# true that a directional check finds every bug that touches more than one element. What it finds is a bug whose *share*
# of the gradient, ‖e‖ / ‖g‖, is well above the tolerance.
#
# The share depends on the loss. Here it is the cross-entropy of 512 classes, and most elements of its gradient are
# nearly zero. There is no loss behind a single layer, so the library makes one: L = Σ g y with a random array g, which
# is then the gradient that backward is handed. (Random, because with g = 1 everywhere some true gradients are zero, and
# a backward that returns zeros would pass.) With this loss all elements weigh about the same. The same bug in a
# `Linear` of the library, other pairs and 10 rows each time:

# %% Two elements of 262,144, in the library's check
class PairTooLarge(Linear):
    """Linear, but two elements of its weight's gradient are 1 % too large."""

    def backward(self, dy, cache):
        before = self.weight.grad.copy()
        dx = super().backward(dy, cache)
        dW = (self.weight.grad - before).reshape(-1)
        self.weight.grad.reshape(-1)[self.pair] += 0.01 * dW[self.pair]
        return dx


found, count = 0, 20 if QUICK else 50
for seed in range(count):
    draw = np.random.default_rng(seed)
    wide = PairTooLarge(512, 512, draw, "float64")
    wide.pair = draw.choice(512 * 512, 2, replace=False)
    found += not gradcheck(wide, draw.normal(size=(10, 512))).passed
measure(f"bugs found by the library's check, of {count}", found, count - 1, count)

# %% [markdown]
# Three things help the library, then: its loss; the layers of its cases, which are tiny, so nothing is diluted
# much; and the bugs that people write, which are, we think, mostly of the dense kind (a factor, a transpose, a missing
# sum). A bug in a few elements of a large array wants differences element by element, on small arrays.
#
# The library's `Linear` takes any number of axes before the last, so here the input has two of them:

# %%
print(gradcheck(Linear(I, J, np.random.default_rng(0), "float64"),
                np.random.default_rng(3).normal(size=(2, B, I))))

# %% [markdown]
# ## Experiment 4: what the inputs hide
#
# A check passes *at the inputs that were tried*. The averaged bias is found with five rows. With one row, the mean is
# the sum:

# %%
class AveragedBias(Linear):
    """Linear, but with a gradient of the bias that is averaged over the rows."""

    def backward(self, dy, cache):
        before = self.bias.grad.copy()
        dx = super().backward(dy, cache)
        self.bias.grad[...] = before + dy.mean(axis=0)
        return dx


for count, lo, hi in (1, 0, 1e-6), (B, 0.1, 10):
    report = gradcheck(AveragedBias(I, J, np.random.default_rng(0), "float64"),
                       np.random.default_rng(4).normal(size=(count, I)))
    measure(f"bias averaged, rows: {count}; worst error", report.worst.error, lo, hi)

# %% [markdown]
# A public implementation divides the gradient of softmax by the number of sentences. A check with a single sentence
# would have passed it. So a check is as good as its cases: several rows, all sizes different, padding, repeated words,
# weights away from their first zeros and ones. `scratchformer gradcheck` goes through more than a hundred such cases.
#
# ## Experiment 5: what gradient checks cannot see
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
#
# ## Experiment 6: two right gradients need not be equal
#
# A popular exercise prints whether a hand-written gradient equals the reference in every bit, and beside it whether it
# is close. Learners see *exact: False* and search for a bug that isn't there. Addition of floating-point numbers is not
# associative, so two right ways to compute one sum differ in the last digits:

# %%
many = np.random.default_rng(5).normal(size=100_000)
forwards, backwards = many.cumsum()[-1], many[::-1].cumsum()[-1]
print("equal:", forwards == backwards)
difference = abs(forwards - backwards) / np.abs(many).sum()
measure("difference of the sums, over the sum of all sizes", difference, 1e-20, 1e-14)

# %% [markdown]
# So ask for a small *relative* error. A small absolute error is not enough: 10⁻⁴ is a catastrophe in a gradient of size
# 10⁻⁴. There is one exception. Where the true gradient is zero, a relative error means nothing, and the library puts a
# floor under what it divides by.
#
# ## Experiment 7: the page and the library
#
# The functions agree, also for a row of logits (1000, 0, 0) whose right class has logit 0. Its loss is 1000. The page's
# `softmax_cross_entropy` takes the formula literally and fails there: e¹⁰⁰⁰ overflows. These notes, the training runs
# and the library subtract the largest logit first (numerator and sum get the same factor, so p stays). They also
# compute ln p as y − ln Σ e^y, since p = e⁻¹⁰⁰⁰ is rounded to 0 in float64 and −ln 0 would be infinite.

# %%
layer_ = Linear(I, J, np.random.default_rng(0), "float64")
_, cache = layer_.forward(x)
of_library = layer_.backward(dy, cache), layer_.weight.grad, layer_.bias.grad
of_page = linear_backward(dy, x, layer_.weight.data)
for name, ours, library in zip(("dx", "dW", "db"), of_page, of_library):
    same(f"{name} of the page and of the library", ours, library)

hard = np.vstack([np.random.default_rng(6).normal(size=(B, J)), [[1000.0, 0, 0]]])
targets = np.array([1, 2, 1, 2, 2, 1])            # in the library, class 0 is padding
ours, p_hard = softmax_cross_entropy(hard, targets)
loss_sum, _, dlogits = cross_entropy(hard, targets)
same("L", ours, loss_sum)
same("dy", softmax_cross_entropy_backward(p_hard, targets), dlogits)
measure("loss of the row (1000, 0, 0)",
        softmax_cross_entropy(np.array([[1000.0, 0, 0]]), [1])[0], 1000, 1000)
measure("largest sum of a row of dy", np.abs(dy.sum(axis=1)).max(), 0, 1e-15)
numeric = numeric_gradient(lambda y: softmax_cross_entropy(y, t)[0], linear(x, W, b))
measure("dy: error against central differences", relative_error(dy, numeric), 0, 1e-9)
numeric = numeric_gradient(lambda x: softmax_cross_entropy(linear(x, W, b), t)[0], x)
measure("dx: error against central differences", relative_error(dx, numeric), 0, 1e-9)

# %% [markdown]
# The lesson's "one layer further back": an input 2, times −1 and times 0.5, then ReLU, is both counts of the miniature.
# By hand, the gradients of the two weights are 0 and 1, and that of the input is 2/8.

# %%
W_page, b_page = np.array([[2.0, 1, 0], [-1, 0, 1]]), np.log([1, 2, 5]) - [0, 1, 2]


def one_layer_more(numbers):
    h = np.maximum(0, numbers[2] * numbers[:2])
    return softmax_cross_entropy(linear(h[None], W_page, b_page), [1])[0]


numeric = numeric_gradient(one_layer_more, np.array([-1, 0.5, 2]))
same("both weights and the input, by hand and by central differences",
     numeric, [0, 1, 2 / 8], 1e-8)
