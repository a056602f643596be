# %% [markdown]
# # 01 · Backprop by hand, and how to know it is right
#
# *About 45 minutes. You need: Python with NumPy, matrix products, the derivative of a function of one variable and
# the chain rule. You will have: the backward pass of a linear layer and of softmax cross-entropy, derived and written
# by you, and a test that tells a right gradient from a wrong one.*

# %% Imports
import json

import matplotlib.pyplot as plt
import numpy as np

from library.lesson import ROOT, measure, same, show
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Linear
from scratchformer.nn.loss import cross_entropy

# %% [markdown]
# ## Question
#
# **A model with a wrong gradient does not crash, and often it still learns. How do we find the right gradient, and
# how do we know that it is right?**
#
# Here is the failure that this lesson is about. A classifier reads an English sentence as a bag of words and says
# which construction the sentence is an example of: a question, a passive, a date, and so on. (The sentences come from
# the corpus bundled with this project; its small sets are labelled, so we train on one of them and test on another.)
# It is trained twice, and in one of the two runs the gradient is wrong: somebody took the derivative of softmax
# element by element, as if each output depended on its own input alone. Read the code for what it does; the rest of
# the lesson explains its gradient. In it, `p` holds the probabilities, and `q` is 1 at the right class and 0
# elsewhere.

# %% Reading the sentences
def labelled_sentences(split):
    lines = (ROOT / f"data/tiny/{split}.en").read_text(encoding="utf-8").lower().splitlines()
    records = (ROOT / f"data/tiny/{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines], [json.loads(record)["construction"] for record in records]


train_words, train_labels = labelled_sentences("val")
test_words, test_labels = labelled_sentences("test")
vocabulary = {word: i for i, word in enumerate(sorted({word for words in train_words for word in words}))}
classes = sorted(set(train_labels))


def counts(sentences):
    """How often each word occurs in each sentence: (number of sentences, number of words)."""
    x = np.zeros((len(sentences), len(vocabulary)))
    for row, words in enumerate(sentences):
        for word in words:
            if word in vocabulary:
                x[row, vocabulary[word]] += 1
    return x


x_train, x_test = counts(train_words), counts(test_words)
t_train, t_test = (np.array([classes.index(label) for label in labels]) for labels in (train_labels, test_labels))
print(f"{len(x_train)} sentences to train on, {len(vocabulary)} words, {len(classes)} constructions")
measure("share of the most common construction", np.bincount(t_test).max() / len(t_test), 0.12, 0.13)

# %%
def train_classifier(dy_of, db_of, steps=300, rate=2.0):
    """Gradient descent with the given gradients. -> the mean loss at each step, the accuracy on new sentences"""
    W, b, losses = np.zeros((len(vocabulary), len(classes))), np.zeros(len(classes)), []
    q = np.eye(len(classes))[t_train]                          # 1 for the right class of a sentence, 0 for the others
    for _ in range(steps):
        y = x_train @ W + b
        y -= y.max(axis=1, keepdims=True)
        p = np.exp(y) / np.exp(y).sum(axis=1, keepdims=True)
        losses.append((np.log(np.exp(y).sum(axis=1)) - (q * y).sum(axis=1)).mean())
        dy = dy_of(p, q)
        W -= rate * x_train.T @ dy / len(p)
        b -= rate * db_of(dy) / len(p)
    return losses, ((x_test @ W + b).argmax(axis=1) == t_test).mean()


def sum_of_rows(dy):
    return dy.sum(axis=0)


right = train_classifier(lambda p, q: p - q, sum_of_rows)
wrong = train_classifier(lambda p, q: (p - q) * q, sum_of_rows)
for name, (losses, accuracy), lo, hi in ("right gradient", right, 0.70, 0.82), ("wrong gradient", wrong, 0.52, 0.65):
    measure(f"{name}: loss at the first step, the logarithm of {len(classes)}", losses[0], 3.09, 3.092)
    measure(f"{name}: loss at the last step, over the first", losses[-1] / losses[0], 0.02, 0.12)
    measure(f"{name}: accuracy on 500 new sentences", accuracy, lo, hi)

# %% The figure
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for name, (losses, _), style, colour in ("right gradient", right, "-", DARK), ("wrong gradient", wrong, "--", ACCENT):
    axes.plot(losses, style, color=colour, label=name)
axes.set(xlabel="step", ylabel="loss, nats per sentence", ylim=(0, None), title="Both curves look healthy")
axes.legend()
show(figure, "01_two_runs", alt="Training loss of two runs over 300 steps. Both begin at 3.1 and fall smoothly towards "
     "zero, the run with the wrong gradient somewhat above the other.")

# %% [markdown]
# With the wrong gradient the loss falls below an eighth of what it was, smoothly, and the classifier is far better
# than chance. Nothing in the dashed curve alone asks for a search. Without the other run to compare with, the missing
# accuracy would be put down to the model, the data or the learning rate (`rate`, by which a step multiplies the
# gradient).
#
# Public code has bugs of this kind: each of the six public NumPy Transformers that we examined is wrong in its
# gradients, its masks or its attention (see the [README](../README.md)). So here every gradient is checked. In this
# lesson you do it for two layers that every model of this course contains: the linear map and the loss.
#
# ## The idea in one picture
#
# A model is a chain of functions that ends in one number, the loss $L$. Forward, each function reads an array and
# writes the next one. Backward, the question is always the same: *if this number changed a little, how much would $L$
# change, per unit of change?* Asked for each number of an array $y$, with all the others held fixed, it gives an
# array of the same shape, which we call `dy`:
#
# $$dy_{nj} = \frac{\partial L}{\partial y_{nj}}$$
#
# Nothing in a layer's backward knows what the rest of the model is. It is handed `dy`, the gradient of what it wrote
# (the *upstream* gradient), and owes `dx`, the gradient of what it read, and the gradients of its own weights. At the
# end of the chain stands `dL`, which is 1: the loss changes as much as the loss changes.

# %% The figure
figure, axes = plt.subplots(figsize=(8, 2.3), layout="constrained")
for at, text, note in (0, "input", ""), (3, "linear\ny = x W + b", "W (I, J), b (J,)"), \
        (6, "softmax and\ncross-entropy", "right classes t (B,)"), (8.6, "loss", ""):
    axes.text(at, 0, text, ha="center", va="center", bbox=dict(boxstyle="round,pad=0.5", fc="white", ec=DARK))
    axes.text(at, -0.75, note, ha="center", fontsize=9)
for start, end, forward, backward in (0.6, 2.1, "x (B, I)", "dx"), (3.9, 5.1, "y (B, J)", "dy"), \
        (6.9, 8.2, "L", "dL = 1"):
    axes.annotate("", (end, 0.3), (start, 0.3), arrowprops=dict(arrowstyle="-|>", color=DARK))
    axes.annotate("", (start, -0.2), (end, -0.2), arrowprops=dict(arrowstyle="-|>", color=ACCENT, ls="--"))
    axes.text((start + end) / 2, 0.42, forward, ha="center", color=DARK)
    axes.text((start + end) / 2, -0.52, backward, ha="center", color=ACCENT)
axes.annotate("dW, db", (3, -0.85), (3, -1.6), ha="center", color=ACCENT,
              arrowprops=dict(arrowstyle="<|-", color=ACCENT, ls="--"))
axes.set(xlim=(-0.6, 9.1), ylim=(-1.75, 0.75))
axes.axis("off")
show(figure, "01_chain", alt="Three boxes in a row, input, a linear map, softmax with cross-entropy, and then the "
     "loss. Solid arrows run to the right and carry x, y and L. Dashed arrows run back and carry dy and dx; dW and db "
     "leave the linear map downwards.")

# %% [markdown]
# ## The equation, and the same in code
#
# The linear layer reads $B$ rows of $I$ numbers and writes $B$ rows of $J$ numbers. Row $n$, column $j$:
#
# $$y_{nj} = \sum_{i} x_{ni} W_{ij} + b_j$$
#
# The loss reads such a row of scores and the number $t$ of the right class. Softmax turns the scores into
# probabilities; the loss is the negative logarithm of the probability that was given to the right class. That is 0 if
# it was 1, and grows without bound as it goes to 0. With the natural logarithm its unit is the *nat*; a model that
# finds all $J$ classes equally likely loses $\ln J$ nats a row.
#
# $$p_j = \frac{e^{y_j}}{\sum_k e^{y_k}} \qquad L = -\sum_n \ln p_{n,t_n}$$
#
# Put the logarithm in, and one row of the loss becomes
#
# $$-\ln p_t = \ln \sum_k e^{y_k} - y_t$$
#
# The code computes this form. The other one takes the logarithm of a probability that may have been rounded to zero:
# $p_t = e^{-1000}$ is 0 in float64, and the loss would be infinite where the truth is 1000. Before that, the largest
# score of each row is subtracted, since $e^{1000}$ overflows there, too. That changes nothing: numerator and sum get
# the same factor.

# %%
def linear(x, W, b):
    """x (B, I), W (I, J), b (J,) -> y (B, J)"""
    return x @ W + b


def softmax_cross_entropy(y, t):
    """y (B, J) scores, t (B,) the right classes -> L in nats, p (B, J)"""
    y = y - y.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(y).sum(axis=1, keepdims=True))
    return (log_sum[:, 0] - y[np.arange(len(t)), t]).sum(), np.exp(y - log_sum)


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
print(f"y {y.shape}, p {p.shape}")
measure("largest difference of a row's sum from 1", np.abs(p.sum(axis=1) - 1).max(), 0, 1e-15)
measure("L of 5 rows with random weights", L, 5.5, 15)
measure("L if all 3 classes were equally likely: 5 ln 3", B * np.log(J), 5.49, 5.50)
measure("L of a row with scores 1000, 0, 0 whose right class has score 0",
        softmax_cross_entropy(np.array([[1000.0, 0, 0]]), [1])[0], 1000, 1000)

# %% [markdown]
# Random weights do worse than indifference: they are often sure, and often wrong.
#
# ## Backward of the linear layer
#
# Take one number of the array whose gradient we want, nudge it by a small $\delta$, and follow the nudge to $L$. To
# first order, effects add: if the nudge reaches $L$ by several routes, the change of $L$ is the sum over the routes.
# That is the chain rule for functions of many variables, and it is all we need.
#
# **$dx_{ni}$.** The number $x_{ni}$ enters $y_{n1}, y_{n2}, \dots, y_{nJ}$, all in row $n$ and none in another row.
# So each $y_{nj}$ moves by $W_{ij} \delta$, and each of them moves $L$ by $dy_{nj} W_{ij} \delta$. Together:
#
# $$dx_{ni} = \sum_j dy_{nj} W_{ij}$$
#
# That is a matrix product. The summed index $j$ is the second of `dy` and the second of `W`, so `W` must be
# transposed: `dx = dy @ W.T`. Shapes: (B, J) times (J, I) gives (B, I), the shape of `x`, as it must.
#
# **$dW_{ij}$.** The weight $W_{ij}$ is used once in *every row*: it enters $y_{nj}$ with the factor $x_{ni}$, for all
# $n$. So the sum runs over rows:
#
# $$dW_{ij} = \sum_n x_{ni} dy_{nj}$$
#
# Now $n$ is the first index of both, so `x` must be transposed: `dW = x.T @ dy`, (I, B) times (B, J).
#
# **$db_j$.** The bias is like a weight whose input is always 1: $db_j = \sum_n dy_{nj}$. The sum over rows is the
# part that people forget, and broadcasting hides it from them: forward, `+ b` copied `b` into every row without being
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
# One row suffices, since the loss is a sum over rows. The score $y_j$ reaches $\ln \sum_k e^{y_k} - y_t$ by two
# routes. Through the first term, whichever class $j$ is:
#
# $$\frac{\partial}{\partial y_j} \ln \sum_k e^{y_k} = \frac{e^{y_j}}{\sum_k e^{y_k}} = p_j$$
#
# And through the second term, if $j$ is the right class: $-1$. Together, with $q$ the row that is 1 at the right
# class and 0 elsewhere:
#
# $$dy_j = p_j - q_j$$
#
# In words: lower each score in proportion to the probability it was given, and raise the right one. What is added and
# what is taken away sum to zero, because a shift of all scores does not change $p$.
#
# And here is the wrong gradient from the opening. Its author thought: $p_t$ depends on $y_t$, and its derivative is
# $p_t (1 - p_t)$, so $dy_t = -\frac{1}{p_t} \cdot p_t (1 - p_t) = p_t - 1$. That is correct, and it is only one
# number of the row. The scores of the other classes change $p_t$ as well, through the sum below the fraction, and
# their gradient $p_j$ was left out. That classifier raises right answers and never lowers a wrong one.

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
# A derivative is a limit, so take a small step and look. Going the same step up and down cancels the terms with the
# second derivative; what remains shrinks like $h^2$:
#
# $$\frac{L(w + h) - L(w - h)}{2h} = \frac{dL}{dw} + O(h^2)$$
#
# The left side, a **central difference**, calls nothing but `forward`; the right side is what `backward` claims. They
# are two programs, so one mistake is seldom in both.

# %%
def numeric_gradient(f, array, h=1e-5):
    """Central differences of the number f(array) in each element of `array`. -> array.shape"""
    gradient = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        moved = array.copy()
        moved[index] = array[index] + h
        above = f(moved)
        moved[index] = array[index] - h
        gradient[index] = (above - f(moved)) / (2 * h)
    return gradient


def relative_error(analytic, numeric):
    """The largest difference, over the largest element of either."""
    return np.abs(analytic - numeric).max() / max(np.abs(analytic).max(), np.abs(numeric).max())


def loss(x, W, b):
    return softmax_cross_entropy(linear(x, W, b), t)[0]


arrays = {"x": x, "W": W, "b": b}
for (name, array), gradient in zip(arrays.items(), (dx, dW, db)):
    numeric = numeric_gradient(lambda moved: loss(**arrays | {name: moved}), array)        # the others held fixed
    measure(f"d{name} {gradient.shape}: worst relative error", relative_error(gradient, numeric), 0, 5e-10)

q = np.eye(J)[t]
error = relative_error(x.T @ ((p - q) * q), numeric_gradient(lambda W: loss(x, W, b), W))
measure("dW with the wrong gradient from the opening", error, 0.1, 1)

# %% [markdown]
# For the right gradient ten digits agree; the wrong one is off in the first. There is no need to guess whether an
# error is "small enough": many orders of magnitude lie between right and wrong, if the step is well chosen. The next
# figure shows how to choose it. Two errors meet:
#
# - A large step leaves the tangent: the error of the formula falls a hundredfold when $h$ falls tenfold.
# - A small step subtracts two almost equal numbers. Each carries a rounding error in proportion to $\varepsilon$, the
#   precision of the number format, and dividing by $2h$ blows it up to about $\varepsilon / h$. In the end $w + h$ is
#   rounded to $w$ itself, the difference is 0, and the relative error exactly 1 (dotted line).
#
# They are equal where $h^2 = \varepsilon / h$: at $h = \varepsilon^{1/3}$, with an error of $\varepsilon^{2/3}$. For
# float64 ($\varepsilon = 2 \cdot 10^{-16}$) that predicts a step of $6 \cdot 10^{-6}$ and an error of
# $4 \cdot 10^{-11}$; for float32 ($10^{-7}$), $5 \cdot 10^{-3}$ and $2 \cdot 10^{-5}$.

# %% The figure
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
steps = 10.0 ** np.arange(-12, 0.5, 0.5)
for dtype, colour, line, lo, hi in ("float64", DARK, "o-", 1e-12, 4e-10), ("float32", ACCENT, "s--", 2e-6, 2e-4):
    x_, W_, b_ = (array.astype(dtype) for array in (x, W, b))
    errors = [relative_error(dW, numeric_gradient(lambda W: softmax_cross_entropy(linear(x_, W, b_), t)[0], W_, step))
              for step in steps]
    measure(f"{dtype}: smallest error, at a step of {steps[np.argmin(errors)]:.0e}", min(errors), lo, hi)
    axes.loglog(steps, errors, line, color=colour, markersize=4, label=dtype)
    if dtype == "float32":
        measure("float32 at 1e-5", errors[14], 1e-3, 1)
axes.axhline(1, color="#666666", lw=0.8, ls=":")
axes.set(xlabel="step h", ylabel="relative error of the difference", title="Central differences against dW")
axes.legend()
show(figure, "01_step", alt="Relative error of central differences against step size, both logarithmic. In float64 a "
     "V with its lowest point, about 1e-11, at a step between 1e-5 and 1e-4. In float32 the valley lies near 1e-2 and "
     "is a million times higher; for steps below 1e-7 the error is 1.")

# %% [markdown]
# The prediction sets all constants to 1, so its step and its error are right to about a factor of ten. In float32 the
# good steps are few, and you do not know in advance which; a step of $10^{-5}$ gives errors of per cents there. So
# the checks of this project run in float64, with $h = 10^{-5}$, and demand a relative error below $10^{-6}$: far
# above the rounding, and far below every bug we know.
#
# ### Many numbers at once
#
# Differences in each element cost two forward passes per weight; a model with a million weights would need two
# million. A derivative in one *direction* costs two in all: for any $u$ of the shape of $W$,
#
# $$\frac{L(W + hu) - L(W - hu)}{2h} \approx \sum_{ij} dW_{ij} u_{ij}$$
#
# An error anywhere in `dW` changes the right side, unless $u$ happens to be at right angles to it, and a random $u$
# almost never is. The price: the error of one element is diluted among all the others. Here one element of `dW` is
# made ten per cent too large, in a layer of 12 weights and in one of 12,288; the table shows the median error that a
# random direction reports.

# %%
def directional_error(f, array, gradient, h=1e-5):
    """|what backward claims - what forward shows| in one random direction, over the larger of the two."""
    u = random.normal(size=array.shape)
    original = array.copy()
    array[...] = original + h * u
    above = f()
    array[...] = original - h * u
    below = f()
    array[...] = original
    claimed, shown = (gradient * u).sum(), (above - below) / (2 * h)
    return abs(claimed - shown) / max(abs(claimed), abs(shown))


for inputs, outputs, lo, hi in (4, 3, 3e-3, 0.3), (128, 96, 1e-5, 1e-2):
    x_big, W_big = random.normal(size=(B, inputs)), random.normal(size=(inputs, outputs)) / np.sqrt(inputs)
    b_big, t_big = np.zeros(outputs), random.integers(0, outputs, B)

    def big_loss():
        return softmax_cross_entropy(linear(x_big, W_big, b_big), t_big)[0]

    p_big = softmax_cross_entropy(linear(x_big, W_big, b_big), t_big)[1]
    dW_big = x_big.T @ softmax_cross_entropy_backward(p_big, t_big)
    right = np.median([directional_error(big_loss, W_big, dW_big) for _ in range(30)])
    dW_big[1, 2] *= 1.1
    wrong = np.median([directional_error(big_loss, W_big, dW_big) for _ in range(30)])
    measure(f"{W_big.size:6} weights, right gradient", right, 0, 1e-7)
    measure(f"{W_big.size:6} weights, one of them 10 % off", wrong, lo, hi)

# %% [markdown]
# It is still found, and so is every bug that touches more than one element. The library tries four directions for
# each input and each parameter of a layer. There is no loss behind a layer, so it makes one: $L = \sum g y$ with a
# random array $g$, which is then the gradient that backward is handed. Random, because with $g = 1$ everywhere some
# true gradients are zero, and a backward that returns zeros would pass. The library's `Linear` takes any number of
# axes before the last, so the input here has two of them:

# %%
print(gradcheck(Linear(I, J, np.random.default_rng(0), "float64"), random.normal(size=(2, B, I))))

# %% [markdown]
# What is written on this page is what the library computes:

# %%
layer = Linear(I, J, np.random.default_rng(0), "float64")
_, cache = layer.forward(x)
for name, page, library in zip(("dx", "dW", "db"), linear_backward(dy, x, layer.weight.data),
                               (layer.backward(dy, cache), layer.weight.grad, layer.bias.grad)):
    same(f"{name} of the page and of the library", page, library)

hard = np.vstack([random.normal(size=(B, J)), [[1000.0, 0, 0]]])
targets = np.array([1, 2, 1, 2, 2, 1])                         # in the library, class 0 is padding and never a target
L, p = softmax_cross_entropy(hard, targets)
loss_sum, _, dlogits = cross_entropy(hard, targets)
same("L", L, loss_sum)
same("dy", softmax_cross_entropy_backward(p, targets), dlogits)

# %% [markdown]
# ## Experiment: would the loss have told us?
#
# The answer could be yes: perhaps a wrong gradient always shows in the curve, if one looks closely. So here are five
# runs that differ in nothing but the gradient:
#
# - right;
# - only the diagonal of softmax, as in the opening;
# - the gradient of the bias averaged over the rows instead of summed;
# - everything divided by the number of rows once too often;
# - the sign flipped.
#
# Before you read on: which of the five curves would alarm you?

# %%
def mean_of_rows(dy):
    return dy.mean(axis=0)


runs = {
    "right": (lambda p, q: p - q, sum_of_rows),
    "diagonal only": (lambda p, q: (p - q) * q, sum_of_rows),
    "bias averaged": (lambda p, q: p - q, mean_of_rows),
    "divided twice": (lambda p, q: (p - q) / len(p), sum_of_rows),
    "sign flipped": (lambda p, q: q - p, sum_of_rows),
}
y = linear(x, W, b)
numeric = {"dy": numeric_gradient(lambda y: softmax_cross_entropy(y, t)[0], y),
           "db": numeric_gradient(lambda b: loss(x, W, b), b)}
p = softmax_cross_entropy(y, t)[1]
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
looks = [("-", DARK), ("--", ACCENT), (":", "#4292c6"), ("-.", "#666666"), ((0, (5, 1, 1, 1, 1, 1)), "black")]
accuracies, errors = {}, {}
for (name, (dy_of, db_of)), (style, colour) in zip(runs.items(), looks):
    losses, accuracies[name] = train_classifier(dy_of, db_of, steps=5 if name == "sign flipped" else 300)
    wrong_dy = dy_of(p, np.eye(J)[t])
    errors[name] = max(relative_error(wrong_dy, numeric["dy"]), relative_error(db_of(wrong_dy), numeric["db"]))
    axes.plot(losses, ls=style, lw=2, color=colour, label=name)
    print(f"{name:13} last loss {losses[-1]:6.3f}   accuracy {accuracies[name]:4.0%}   "
          f"error in a check {errors[name]:.0e}")
axes.set(ylim=(0, 4.5), xlabel="step", ylabel="loss, nats per sentence", title="Four gradients are wrong")
axes.legend(loc=(0.7, 0.25))
show(figure, "01_wrong_gradients", alt="Training loss of five runs. Right and bias averaged fall together to 0.12 and "
     "0.14, diagonal only to 0.28. Divided twice hardly moves; with the sign flipped the loss climbs out of the "
     "picture at once.")
measure("accuracy: right less bias averaged", accuracies["right"] - accuracies["bias averaged"], 0, 0.06)
measure("smallest error of the four wrong ones", min(errors[name] for name in list(runs)[1:]), 0.2, 3)
measure("error of the right one", errors["right"], 0, 5e-10)

# %% [markdown]
# The verdict depends on the bug. A flipped sign shows at once. A gradient that is too small by a constant looks like
# a learning rate that is too low. The other two train, generalise and look healthy; the averaged bias costs about one
# sentence in fifty, which could be chance. The check does not care: the right gradient is off in the tenth digit,
# each wrong one in the first.
#
# ## Check the claim
#
# > The gradient check passed, so the gradient is right.
#
# It passed *at the inputs that were tried*. The averaged bias is found with five rows. With one row, the mean is the
# sum:

# %%
class AveragedBias(Linear):
    """Linear, but with a gradient of the bias that is averaged over the rows."""

    def backward(self, dy, cache):
        before = self.bias.grad.copy()
        dx = super().backward(dy, cache)
        self.bias.grad[...] = before + dy.mean(axis=0)
        return dx


for rows, lo, hi in (1, 0, 1e-6), (B, 0.1, 10):
    report = gradcheck(AveragedBias(I, J, np.random.default_rng(0), "float64"), random.normal(size=(rows, I)))
    measure(f"bias averaged, rows: {rows}; worst error of the check", report.worst.error, lo, hi)

# %% [markdown]
# A public implementation divides the gradient of softmax by the number of sentences. A check with a single sentence
# would have passed it. So a check is as good as its cases: several rows, all sizes different, padding, repeated
# words, weights away from their initial zeros and ones. The library keeps a table of 106 such cases
# (`scratchformer gradcheck`).
#
# > The two gradients must be equal.
#
# A popular exercise prints whether a hand-written gradient equals the reference in every bit, and beside it whether
# it is close. Learners see *exact: False* and search for a bug that is not there. Floating-point addition is not
# associative, so two right ways to compute one sum differ in the last digits:

# %%
many = random.normal(size=100_000)
forwards, backwards = many.cumsum()[-1], many[::-1].cumsum()[-1]
print("equal:", forwards == backwards)
difference = abs(forwards - backwards) / np.abs(many).sum()
measure("difference of the two sums, over the sum of all sizes", difference, 1e-20, 1e-14)

# %% [markdown]
# So ask for a small *relative* error: an absolute error of $10^{-4}$ is a catastrophe in a gradient of size
# $10^{-4}$. One exception: where the true gradient is zero, a relative error means nothing, and the library puts a
# floor under what it divides by.
#
# ## Paper and code
#
# - "Attention Is All You Need" (Vaswani et al. 2017) derives no gradient; it speaks of gradients once, in §3.2.1. The
#   linear map stands in equation 2 and, without a bias, in the projections of §3.2.2. The loss is nowhere written
#   down; §5.4 adds label smoothing to it.
# - In the library: `linear` and `linear_backward`, `cross_entropy` in [nn/ops.py](../scratchformer/nn/ops.py); the
#   layer in [nn/layers.py](../scratchformer/nn/layers.py), the checker in
#   [nn/gradcheck.py](../scratchformer/nn/gradcheck.py).
# - *Differs from this page:* the library adds into `dW` and `db` instead of returning them, because a weight may be
#   used in several places and each use has its share. It leaves out padded targets, and divides by the number of
#   tokens once, at the end of a step.
# - A right gradient is the derivative of forward. It does not say that forward is what the paper says: a layer that
#   looks where it must not look can have a perfectly right gradient. That needs checks of another kind.
#
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
# The sum of the two. The weight reaches the loss by two routes, and the effects add up. That is why the library's
# `backward` does `+=` into a gradient and never `=`.
#
# </details>
#
# **Predict.** For a layer with a weight of 512 × 512, a bias and one input of 10 × 512: how many forward passes does
# a check with 4 random directions each need, and how many would element by element need?
#
# <details><summary>Answer</summary>
#
# Three arrays, 4 directions, 2 passes: 24, and one more whose cache backward takes. Element by element: 2 × (262,144
# + 512 + 5,120) = 535,552.
#
# </details>
#
# **Backward** `01_linear_backward`: write `dx`, `dW`, `db` for inputs with any number of leading axes.
#
# **Backward** `01_cross_entropy_backward`: write the gradient of the summed loss when some targets are padding.
#
# **Build** `01_gradient_check`: write `numeric_gradient` yourself, without looking back.
#
# ## Next
#
# You have a tool to trust. [Lesson 02](02_recurrence.py) uses it on the networks that the paper set out to replace,
# which read a sentence word by word; whoever wants attention at once goes on to [lesson 04](04_soft_lookup.py). For
# more practice with backward passes, A. Karpathy's video lecture "Becoming a Backprop Ninja" derives a small
# network's by hand in PyTorch; the standard reference on the method is chapter 6.5 of Goodfellow, Bengio and
# Courville, *Deep Learning* (2016).
