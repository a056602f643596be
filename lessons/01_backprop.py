# %% [markdown]
# # 01 · Backprop by hand, and how to know it is right
#
# *About 30 minutes. You need: Python with NumPy, matrix products, the derivative of a function of one variable and
# the chain rule. You will have: the backward pass of a linear layer and of softmax cross-entropy, derived and written
# by you, and a test that tells a right gradient from a wrong one.*

# %%
import json
import time

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Linear
from scratchformer.nn.loss import cross_entropy
from scratchformer.study.figures import ACCENT, DARK
from scratchformer.study.lesson import ROOT, duration, measure, same, show

# %% [markdown]
# ## Question
#
# **A wrong gradient does not crash and often still learns. How do we find the right one, and how do we know that it
# is right?**
#
# Here is the failure that this lesson is about. A classifier reads an English sentence as a bag of words and says
# which construction the sentence is an example of: a question, a passive, a date, and so on. (Sentences and labels
# come from the corpus bundled with this project.) It is trained twice, and in one of the two runs the gradient is
# wrong: somebody took the derivative of softmax element by element, as if each output depended on its own input
# alone.

# %%
def labelled_sentences(split):
    lines = (ROOT / f"data/tiny/{split}.en").read_text(encoding="utf-8").lower().splitlines()
    records = (ROOT / f"data/tiny/{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines], [json.loads(record)["construction"] for record in records]


train_words, train_labels = labelled_sentences("val")
test_words, test_labels = labelled_sentences("test")
vocabulary = {word: i for i, word in enumerate(sorted({word for words in train_words for word in words}))}
classes = sorted(set(train_labels))


def counts(sentences):
    """How often each word occurs in each sentence: (B, V)."""
    x = np.zeros((len(sentences), len(vocabulary)))
    for row, words in enumerate(sentences):
        for word in words:
            if word in vocabulary:
                x[row, vocabulary[word]] += 1
    return x


x_train, x_test = counts(train_words), counts(test_words)
t_train, t_test = (np.array([classes.index(label) for label in labels]) for labels in (train_labels, test_labels))
print(f"{len(x_train)} sentences to train on, {len(vocabulary)} words, {len(classes)} constructions; "
      f"most common: {np.bincount(t_test).max() / len(t_test):.0%} of the test sentences")


def train_classifier(gradient, steps=300, rate=2.0):
    """Gradient descent on a linear softmax classifier. -> the loss at each step, the accuracy on new sentences"""
    W, b, losses = np.zeros((len(vocabulary), len(classes))), np.zeros(len(classes)), []
    target = np.eye(len(classes))[t_train]
    for _ in range(steps):
        scores = x_train @ W + b
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        losses.append(-np.log((p * target).sum(axis=1)).mean())
        dscores = gradient(p, target) / len(p)
        W -= rate * x_train.T @ dscores
        b -= rate * dscores.sum(axis=0)
    return losses, ((x_test @ W + b).argmax(axis=1) == t_test).mean()


curves = {}
for name, gradient, lo, hi in [("right gradient", lambda p, target: p - target, 0.70, 0.82),
                               ("wrong gradient", lambda p, target: (p - target) * target, 0.52, 0.65)]:
    curves[name], accuracy = train_classifier(gradient)
    measure(f"{name}: loss at the first step", curves[name][0], 3.09, 3.10)
    measure(f"{name}: loss at the last step", curves[name][-1], 0.05, 0.35)
    measure(f"{name}: accuracy on 500 new sentences", accuracy, lo, hi)

# %% [markdown]
# With the wrong gradient the loss falls to a tenth of what it was, smoothly, and the classifier is far better than
# chance. Nobody who looked only at this curve would search for a mistake. Without the other run to compare with, the
# missing accuracy would be put down to the model, the data or the learning rate.
#
# Public code is full of such gradients. Of the six NumPy Transformers we examined, every one has a bug in its
# gradients, its masks or its attention, and they all train ([the account](../docs/correctness.md)). So this project
# proves each gradient. In this lesson you do it for the two layers at the two ends of every model: the linear map and
# the loss.

# %% [markdown]
# ## The idea in one picture
#
# A model is a chain of functions that ends in one number, the loss $L$. Forward, each function reads an array and
# writes the next one. Backward, the question is always the same: *if this array changed a little, how would $L$
# change?* The answer for an array $y$ is an array of the same shape, written `dy`:
#
# $$dy_{nj} = \frac{\partial L}{\partial y_{nj}}$$
#
# Nothing in a layer's backward knows what the rest of the model is. It is handed `dy`, the gradient of what it wrote,
# and owes `dx`, the gradient of what it read, and on the way the gradients of its own weights.

# %%
def box(axes, x, text, shape):
    axes.text(x, 0, text, ha="center", va="center", fontsize=11,
              bbox=dict(boxstyle="round,pad=0.5", facecolor="white", edgecolor=DARK))
    axes.text(x, -0.62, shape, ha="center", va="center", fontsize=9, color="#444444")


def arrow(axes, start, end, height, colour, text):
    axes.annotate("", (end, height), (start, height), arrowprops=dict(arrowstyle="-|>", color=colour, lw=1.8))
    axes.text((start + end) / 2, height + (0.16 if height > 0 else -0.3), text, ha="center", color=colour, fontsize=10)


figure, axes = plt.subplots(figsize=(8.2, 2.5), layout="constrained")
for x, text, shape in (0, "sentences", "x (B, I)"), (3, "linear\ny = x W + b", "W (I, J), b (J,)"), \
        (6, "softmax and\ncross-entropy", "targets (B,)"), (8.6, "loss", "a number"):
    box(axes, x, text, shape)
for start, end, forward, backward in (0.75, 2.1, "x", "dx"), (3.9, 5.1, "y", "dy"), (6.9, 8.2, "L", "dL = 1"):
    arrow(axes, start, end, 0.3, DARK, forward)
    arrow(axes, end, start, -0.2, ACCENT, backward)
axes.annotate("", (3, -1.4), (3, -0.85), arrowprops=dict(arrowstyle="-|>", color=ACCENT, lw=1.8))
axes.text(3.15, -1.3, "dW, db", color=ACCENT)
axes.set(xlim=(-0.8, 9.2), ylim=(-1.7, 0.8))
axes.axis("off")
show(figure, "01_chain", alt="Three boxes in a row: sentences, a linear map, softmax with cross-entropy; then the "
     "loss. Upper arrows run to the right and carry x, y and L. Lower arrows run back and carry dy and dx; dW and db "
     "leave the linear map.")

# %% [markdown]
# ## The equation, and the same in code
#
# The linear layer reads $B$ rows of $I$ numbers and writes $B$ rows of $J$ numbers. In indices, as NumPy computes it,
# and as this project writes it:
#
# $$y_{nj} = \sum_{i} x_{ni} W_{ij} + b_j$$
#
# The loss reads a row of $J$ scores and the number $t$ of the right class. Softmax turns the scores into
# probabilities, and the loss is what it costs to be told the answer: much if the probability of the right class was
# small.
#
# $$p_j = \frac{e^{y_j}}{\sum_k e^{y_k}} \qquad L = -\sum_n \ln p_{n,t_n}$$

# %%
def linear(x, W, b):
    """x (B, I), W (I, J), b (J,) -> y (B, J)"""
    return x @ W + b


def softmax_cross_entropy(y, t):
    """y (B, J) scores, t (B,) the right classes -> L in nats, p (B, J)"""
    p = np.exp(y - y.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return -np.log(p[np.arange(len(t)), t]).sum(), p


# %% [markdown]
# Why subtract the largest score of the row? $e^{y_j - c} / \sum_k e^{y_k - c}$ has the factor $e^{-c}$ above and
# below, so the result is the same for every $c$. But $e^{1000}$ overflows, and $e^0$ does not.

# %% [markdown]
# ## Forward
#
# A small case to work with. All sizes are different on purpose: where two sizes are equal, a transposed matrix has
# the right shape, and one mistake becomes invisible.

# %%
B, I, J = 5, 4, 3
random = np.random.default_rng(1)
x, W, b = random.normal(size=(B, I)), random.normal(size=(I, J)), random.normal(size=J)
t = random.integers(0, J, B)

y = linear(x, W, b)
L, p = softmax_cross_entropy(y, t)
print(f"y {y.shape}, p {p.shape}, each row of p sums to {p.sum(axis=1)}")
measure("L, for 5 rows", L, 5, 15)
measure("L if all classes were equally likely: 5 ln 3", B * np.log(J), 5.49, 5.50)

# %% [markdown]
# ## Backward of the linear layer
#
# Take one number of the array whose gradient we want, and follow it to $L$. Wherever it can go by several ways, the
# effects add up: that sum over the ways is the whole of the chain rule.
#
# **$dx_{ni}$.** The number $x_{ni}$ enters $y_{n1}, y_{n2}, \dots, y_{nJ}$, all of row $n$ and none of another row.
# Into $y_{nj}$ it goes with the factor $W_{ij}$. So
#
# $$dx_{ni} = \sum_j dy_{nj} W_{ij}$$
#
# That is a matrix product. The summed index $j$ is the second of `dy` and the second of `W`, so `W` must be turned:
# `dx = dy @ W.T`. Shapes: (B, J) times (J, I) gives (B, I), the shape of `x`, as it must be.
#
# **$dW_{ij}$.** The weight $W_{ij}$ is used once in *every row*: it enters $y_{nj}$ with the factor $x_{ni}$, for all
# $n$. So the sum runs over rows:
#
# $$dW_{ij} = \sum_n x_{ni} dy_{nj}$$
#
# Now $n$ is the first index of both, so `x` must be turned: `dW = x.T @ dy`, (I, B) times (B, J).
#
# **$db_j$.** Like a weight whose input is always 1: $db_j = \sum_n dy_{nj}$. The sum over rows is the part that
# people forget, and NumPy's broadcasting hid it from them: forward, `+ b` copied `b` into every row without being
# told. *Where forward copies, backward adds.*

# %%
def linear_backward(dy, x, W):
    """dy (B, J) -> dx (B, I), dW (I, J), db (J,)"""
    dx = dy @ W.T
    dW = x.T @ dy
    db = dy.sum(axis=0)
    return dx, dW, db


# %% [markdown]
# ## Backward of softmax and cross-entropy
#
# One row suffices, since the loss is a sum over rows. First put the logarithm in:
#
# $$L = -\ln p_t = -y_t + \ln \sum_k e^{y_k}$$
#
# How does $y_j$ reach $L$? By two ways. Through the second term, whichever class $j$ is: the derivative of the
# logarithm of a sum is
#
# $$\frac{\partial}{\partial y_j} \ln \sum_k e^{y_k} = \frac{e^{y_j}}{\sum_k e^{y_k}} = p_j$$
#
# And through the first term, if $j$ is the right class: $-1$. Together, with $q$ the row that is 1 at the right class
# and 0 elsewhere:
#
# $$dy_j = p_j - q_j$$
#
# In words: lower each score in proportion to the probability it was given, and raise the right one. What is added and
# what is taken away sum to zero, because a shift of all scores does not change $p$.
#
# And here is the wrong gradient of the beginning. Its author thought: $p_t$ depends on $y_t$, so $dy_t =
# -\frac{1}{p_t} \cdot p_t (1 - p_t) = p_t - 1$. That is correct, and it is only one number of the row. The scores of
# the other classes also change $p_t$, through the sum below the fraction, and their gradient $p_j$ was left out. That
# classifier raises right answers and never lowers a wrong one.

# %%
def softmax_cross_entropy_backward(p, t):
    """p (B, J), t (B,) -> dy (B, J)"""
    dy = p.copy()
    dy[np.arange(len(t)), t] -= 1
    return dy


dy = softmax_cross_entropy_backward(p, t)
dx, dW, db = linear_backward(dy, x, W)
measure("largest sum of a row of dy", np.abs(dy.sum(axis=1)).max(), 0, 1e-15)

# %% [markdown]
# ## Check
#
# A derivative is a limit, so take small steps and look. Going the same step up and down cancels the error of second
# order:
#
# $$\frac{L(w + h) - L(w - h)}{2h} = \frac{dL}{dw} + O(h^2)$$
#
# The right side of the comparison is `backward`, the left side calls nothing but `forward`. So the same slip of the
# pen cannot be on both sides.

# %%
def numeric_gradient(f, array, h=1e-5):
    """Central differences of the number f() in each element of `array`, which f reads. -> array.shape"""
    gradient = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        original = array[index]
        array[index] = original + h
        above = f()
        array[index] = original - h
        below = f()
        array[index] = original
        gradient[index] = (above - below) / (2 * h)
    return gradient


def loss():
    return softmax_cross_entropy(linear(x, W, b), t)[0]


def relative_error(a, n):
    return np.abs(a - n).max() / max(np.abs(a).max(), np.abs(n).max())


for name, array, gradient in ("dx", x, dx), ("dW", W, dW), ("db", b, db):
    error = relative_error(gradient, numeric_gradient(loss, array))
    measure(f"{name} {gradient.shape}: worst relative error", error, 0, 1e-8)

wrong = (p - np.eye(J)[t]) * np.eye(J)[t]                      # the gradient of the beginning
measure("the wrong dW: worst relative error", relative_error(x.T @ wrong, numeric_gradient(loss, W)), 0.1, 1)

# %% [markdown]
# Ten or eleven digits agree for the right gradient; the wrong one is off in the first. There is no need to guess
# whether an error is "small enough": between right and wrong lie many orders of magnitude, **if** the step is well
# chosen and the numbers are float64. How well, the next figure measures. Two things go wrong on its two sides:
#
# - A large step leaves the tangent: the error of the formula, $O(h^2)$, falls a hundredfold when $h$ falls tenfold.
# - A small step subtracts two almost equal numbers. Each carries a rounding error of about $\varepsilon L$, and
#   dividing by $2h$ blows it up: $\varepsilon L / h$, where $\varepsilon$ is $10^{-16}$ in float64 and $10^{-7}$ in
#   float32.

# %%
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
steps = 10.0 ** np.arange(-12, 0.5, 0.5)
best = {}
for dtype, colour, marker in ("float64", DARK, "o"), ("float32", ACCENT, "s"):
    x, W, b = x.astype(dtype), W.astype(dtype), b.astype(dtype)
    errors = [relative_error(dW, numeric_gradient(loss, W, h)) for h in steps]
    best[dtype] = min(errors), steps[np.argmin(errors)]
    axes.loglog(steps, errors, marker + "-", color=colour, markersize=4, label=dtype)
x, W, b = (random.normal(size=shape) for shape in ((B, I), (I, J), J))
axes.axhline(1, color="#888888", lw=0.8, ls=":")
axes.set(xlabel="step h", ylabel="relative error of the finite difference", title="Differences against the gradient dW")
axes.legend()
show(figure, "01_step", alt="Relative error of finite differences against step size, both logarithmic: two curves "
     "shaped like a U. In float64 the lowest point lies near a step of 1e-5, in float32 far higher, near 1e-2.")
measure("float64: smallest error", best["float64"][0], 1e-12, 1e-9)
measure("float64: at step", best["float64"][1], 1e-6, 1e-4)
measure("float32: smallest error", best["float32"][0], 1e-6, 3e-3)
measure("float32: at step", best["float32"][1], 1e-3, 1)

# %% [markdown]
# In float32 no step is good: the best one leaves an error that a real bug could hide under. This is why the checks of
# this project run in float64, with $h = 10^{-5}$, and why they demand $10^{-6}$: far above the rounding, far below
# any bug.
#
# **Many numbers at once.** Differences in each element cost two forward passes per weight; a model with a million
# weights would need two million. A derivative in one *direction* costs two in all: for any $u$ of the shape of $W$,
#
# $$\frac{L(W + hu) - L(W - hu)}{2h} \approx \sum_{ij} dW_{ij} u_{ij}$$
#
# If `dW` is wrong anywhere, a random direction shows it, since a random $u$ is almost never at right angles to the
# error. The layer is checked alone, without a loss behind it: give its output a random gradient `g`, and let $L =
# \sum g y$. That is what the library does with every layer, and with our two:

# %%
print(gradcheck(Linear(I, J, np.random.default_rng(0), "float64"), random.normal(size=(2, B, I))))

# %% [markdown]
# And what is written on this page is what the library computes: the linear layer with any number of leading axes, and
# the loss as one operation that returns the gradient with the value.

# %%
layer = Linear(I, J, np.random.default_rng(0), "float64")
_, cache = layer.forward(x)
ours = linear_backward(dy, x, layer.weight.data)
same("dx of the page and of the library", ours[0], layer.backward(dy, cache))
same("dW", ours[1], layer.weight.grad)
same("db", ours[2], layer.bias.grad)

y, targets = random.normal(size=(B, J)), np.array([1, 2, 1, 2, 2])             # in the library, class 0 is padding
L, p = softmax_cross_entropy(y, targets)
loss_sum, n_tokens, dlogits = cross_entropy(y, targets)
same("L", L, loss_sum)
same("dy", softmax_cross_entropy_backward(p, targets), dlogits)

# %% [markdown]
# ## Experiment: would the loss have told us?
#
# The question could be answered "yes": perhaps a wrong gradient always shows in the curve, if one looks closely. So
# here are five runs that differ in nothing but the gradient. Before you read on, put them in order from memory of
# your own training runs: which of the curves would have made you suspicious?

# %%
def first_half(p, target):
    d = p - target
    d[len(d) // 2:] = 0
    return d


runs = {
    "right": lambda p, target: p - target,
    "only the diagonal of softmax": lambda p, target: (p - target) * target,
    "half of the batch forgotten": first_half,
    "divided by the batch twice": lambda p, target: (p - target) / len(p),
    "sign flipped": lambda p, target: target - p,
}
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
styles = ["-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1))]
final = {}
for (name, gradient), style, colour in zip(runs.items(), styles, [DARK, ACCENT, "#4292c6", "#666666", "black"]):
    losses, accuracy = train_classifier(gradient, steps=30 if name == "sign flipped" else 300)
    error = relative_error(gradient(p, np.eye(J)[targets]), dlogits)
    final[name] = losses[-1]
    axes.plot(losses, ls=style, color=colour, label=name)
    print(f"{name:30} last loss {losses[-1]:7.3f}   accuracy {accuracy:4.0%}   error of the gradient {error:.0e}")
axes.set(ylim=(0, 4.5), xlabel="step", ylabel="loss, nats per sentence", title="One right gradient, four wrong ones")
axes.legend(loc=(0.6, 0.42))
show(figure, "01_wrong_gradients", alt="Training loss of five runs. The right gradient falls fastest; with only the "
     "diagonal, and with half of the batch, the loss falls as smoothly to somewhat higher values. Divided twice it "
     "hardly moves; with the sign flipped it climbs out of the picture at once.")
first = np.log(len(classes))
measure("diagonal only: last loss over first", final["only the diagonal of softmax"] / first, 0.05, 0.15)
measure("half of the batch: last loss over first", final["half of the batch forgotten"] / first, 0.1, 0.35)

# %% [markdown]
# The verdict depends on the bug. A flipped sign shows at once. A gradient that is too small by a constant looks like
# a learning rate that is too low (with Adam, lesson 15, it does not show at all). The two others train, generalise
# and look healthy. The last column does not care: each wrong gradient is wrong by tens of per cent or more.
#
# ## Check the claim
#
# > "If backward is right, the two gradients are equal."
#
# Popular exercises compare a hand-written gradient with a reference bit by bit and print *exact: False* when it is
# not equal. Learners then search for a bug that is not there. Floating-point addition is not associative, so two
# right ways to compute one sum differ in the last digits:

# %%
many = random.normal(size=100_000)
difference = abs(many.sum() - many[::-1].cumsum()[-1]) / np.abs(many).sum()
measure("two right sums of the same numbers, relative difference", difference, 1e-20, 1e-14)
print("equal:", many.sum() == many[::-1].cumsum()[-1])

# %% [markdown]
# So ask for a small *relative* error, never for equality, and never for a small absolute one: an error of $10^{-4}$
# is a catastrophe in a gradient of size $10^{-4}$.
#
# A curiosity at the end. Half of the U came from subtracting. A function made of analytic pieces can be asked for its
# derivative without any subtraction, by a step in the imaginary direction: $\mathrm{Im} f(w + ih) / h$. No
# cancellation, so $h$ can be as small as $10^{-200}$:

# %%
def complex_loss(W):
    y = x @ W + b
    return (np.log(np.exp(y).sum(axis=1)) - y[np.arange(B), t]).sum()


dW = x.T @ softmax_cross_entropy_backward(softmax_cross_entropy(linear(x, W, b), t)[1], t)
numeric = np.zeros_like(W)
for index in np.ndindex(W.shape):
    W_stepped = W.astype(complex)
    W_stepped[index] += 1e-200j
    numeric[index] = complex_loss(W_stepped).imag / 1e-200
measure("complex step, worst relative error", relative_error(dW, numeric), 0, 1e-14)

# %% [markdown]
# It is exact to the last digit, and it fails without a word as soon as forward takes a maximum or an absolute value,
# which attention and ReLU do. So central differences stay the rule.
#
# ## Paper and code
#
# - The paper (Vaswani et al. 2017) does not mention a gradient: its code left them to a framework. The linear map is
#   in its equations 1 and 2 and in every projection; the loss, with label smoothing added, in §5.4.
# - In the library: `linear` and `linear_backward`, `cross_entropy` in [nn/ops.py](../scratchformer/nn/ops.py); the
#   layer in [nn/layers.py](../scratchformer/nn/layers.py), the checker in
#   [nn/gradcheck.py](../scratchformer/nn/gradcheck.py), 120 lines.
# - *Differs from this page:* the library adds into `dW` and `db` instead of returning them, because a weight may be
#   used in several places and each use has its share. It leaves out padded targets, and divides by the number of
#   tokens once, at the end of a step.
# - A passed check proves that backward is the derivative of forward. It does not prove that forward is what the paper
#   says: a layer that looks into the future has a perfectly correct gradient. Lesson 06 is about that.
#
# `scratchformer gradcheck` checks every layer in every situation that is known to have broken one. How long for this
# page's layer?

# %%
start = time.perf_counter()
report = gradcheck(Linear(64, 48, np.random.default_rng(0), "float64"), random.normal(size=(8, 10, 64)))
duration("3,120 weights and 5,120 inputs checked", time.perf_counter() - start)
measure("worst relative error", report.worst.error, 0, 1e-6)

# %% [markdown]
# ## Exercises
#
# `scratchformer learn start` puts the exercises into the directory `exercises/`; `scratchformer learn check 01` looks
# at your answers and says what is wrong with them; `scratchformer learn hint` helps in three steps.
#
# **Predict.** A linear layer is used twice in one model, for two different inputs. What is the gradient of its
# weight?
#
# <details><summary>Answer</summary>
#
# The sum of the two. The weight reaches the loss by two ways, and the effects add up. That is why the library's
# `backward` does `+=` into a gradient and never `=`.
#
# </details>
#
# **Predict.** The check compares with 4 random directions. How many forward passes does it need for a layer with a
# weight of 512 × 512, a bias and one input, and how many would element by element need?
#
# <details><summary>Answer</summary>
#
# 2 × 4 × 3 = 24, and one more for the cache. Element by element the weight alone needs 2 × 262,144 = 524,288.
#
# </details>
#
# **Backward** `01_linear_backward`: write `dx`, `dW`, `db` for inputs with any number of leading axes.
#
# **Backward** `01_cross_entropy_backward`: write the gradient of the summed loss when some targets are padding.
#
# **Build** `01_gradient_check`: write `numeric_gradient` yourself, without looking up.
#
# ## Next
#
# You have a tool to trust. [Lesson 04](04_soft_lookup.py) uses it on the layer that the whole paper is about.
# (Lessons 02 and 03, on recurrent networks, will stand between; nothing in 04 needs them.)
