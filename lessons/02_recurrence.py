# %% [markdown]
# # 02 · Reading left to right
#
# *About 40 minutes. You need: [lesson 01](01_backprop.py) (linear maps, softmax with cross-entropy, gradients and how
# to check them). You will have: a recurrent network with its backward pass through time, written by you, and a
# measured answer to what such a network forgets, why, and what it costs to wait for it.*

# %% Imports
import timeit

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library.lesson import QUICK, duration, measure, recorded, same, show
from library.recall import READERS, SYMBOLS, accuracy, model_of, sequences, train
from library.recurrent import RNN, sigmoid
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.attention import SelfAttention

# %% [markdown]
# ## Question
#
# **A network of fixed size can read a sentence of any length, one word after the other. What does it forget?**
#
# The answer in one sentence: first the words that lie far back, because the trace of a word shrinks from step to step
# and lies among the traces of all the words after it.
#
# Lesson 01 read a sentence as a bag of words. That takes any length, but *dog bites man* and *man bites dog* are the
# same bag. A **recurrent network** keeps the order: its *state*, a vector $h$ of fixed size, is updated by each word in
# turn, with the same weights at every step. Here is one (64 numbers of state) on a test of memory: it reads $n$ random
# symbols, each 1 to 8, and must say at the end which was the first. Network and training are the same for every $n$;
# what grows is the distance, and with it the number of other symbols on the way. (A symbol is given as a row of numbers
# with a 1 at its place, and the first symbol has a second 1 at place 0, of which more below. The code is in
# [library/recall.py](../lessons/library/recall.py): the state after the last symbol, a linear map to 9 scores, the
# softmax cross-entropy of lesson 01, and 200 steps of Adam, an optimiser that gives each weight a step length of its
# own.)

# %%
x, first = sequences(np.random.default_rng(0), count=2, n=8)   # x (2, 8, 9): 2 sequences, 8 places; first (2,)
for symbols, answer in zip(x[:, :, 1:].argmax(axis=-1) + 1, first):
    print("reads", *symbols, " is to say", answer)
for n, lo, hi in (4, 0.99, 1), (16, 0.97, 1), (128, 0.05, 0.2):
    model = model_of("RNN", seed=0)
    train(model, n, rate=0.003, seed=100)
    measure(f"n = {n:3}: share of 400 new sequences it gets right (guessing: 0.125)", accuracy(model, n), lo, hi)

# %% [markdown]
# Over short distances it is right. Over 128 symbols the same training leaves it guessing.
#
# ## The idea in one picture
#
# Unroll the loop in time. Every column is the same layer with the same weights; only $x_t$ and the state differ. $a_t$
# is the sum of what comes in, and a bias. What the network knows of $x_1$ when it has read $x_T$, the last input, has
# come through every box between them.

# %% The figure
figure, axes = plt.subplots(figsize=(8, 3.1), layout="constrained")
forward, back = dict(arrowstyle="-|>", color=DARK), dict(arrowstyle="-|>", color=ACCENT, ls="--")
for at, name in zip((0, 2.4, 4.8, 8.2), "123T"):
    axes.text(at, 0, f"tanh(a$_{name}$)", ha="center", va="center",
              bbox=dict(boxstyle="round,pad=0.6", fc="white", ec=DARK))
    axes.text(at, -1.35, f"x$_{name}$", ha="center", color=DARK)
    axes.text(at + 0.12, -0.75, "W$_x$", color=DARK, fontsize=9)
    axes.text(at - 0.2, 1.2, f"h$_{name}$", ha="right", color=DARK)
    axes.text(at + 0.2, 1.2, f"dh$_{name}$", color=ACCENT)
    axes.annotate("", (at, -0.33), (at, -1.05), arrowprops=forward)
    axes.annotate("", (at - 0.12, 1.05), (at - 0.12, 0.33), arrowprops=forward)
    axes.annotate("", (at + 0.12, 0.33), (at + 0.12, 1.05), arrowprops=back)
for start, end in (-1.5, -0.6), (0.6, 1.8), (3.0, 4.2), (5.4, 6.2), (6.9, 7.6):
    axes.annotate("", (end, 0.1), (start, 0.1), arrowprops=forward)
    axes.annotate("", (start, -0.12), (end, -0.12), arrowprops=back)
    axes.text((start + end) / 2, 0.22, "W$_h$", ha="center", color=DARK, fontsize=9)
axes.text(-1.75, 0, "h$_0$", ha="center", va="center", color=DARK)
axes.text(6.55, 0, "...", ha="center", va="center")
axes.text(3.6, -0.45, "from later", ha="center", color=ACCENT, fontsize=9)
axes.set(xlim=(-2.1, 9), ylim=(-1.6, 1.5))
axes.axis("off")
show(figure, "02_unrolled", alt="Four boxes from left to right, steps 1, 2, 3 and T, each tanh of a sum. Solid arrows: "
     "x_t comes in from below through W_x, the state from the left through W_h, and h_t leaves upwards and to the "
     "right. Dashed arrows run back: into each box come dh_t from above and a gradient from the later step.")

# %% [markdown]
# ## The equation, and the same in code
#
# With $x_t$ the input of step $t$ ($d_{in}$ numbers) and $h_t$ the state after it ($d_{hidden}$ numbers), rows as in
# lesson 01:
#
# $$a_t = x_t W_x + h_{t-1} W_h + b \qquad h_t = \tanh(a_t)$$
#
# Two linear maps, added. $\tanh$, number by number, bends the sum into the range from $-1$ to $1$; without it, the
# state could grow from step to step without bound. $h_0$ is zero unless given. In code, $B$ sequences of $T$ steps are
# read side by side.

# %%
def rnn(x, h0, W_x, W_h, b):
    """x (B, T, d_in), h0 (B, d_hidden), W_x (d_in, d_hidden), W_h (d_hidden, d_hidden), b (d_hidden,)
    -> h (B, T, d_hidden)"""
    states, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)               # (B, d_hidden)
        states.append(h)
    return np.stack(states, axis=1)


# %% [markdown]
# ## Forward
#
# Two sequences of five steps. The number of weights has no $T$ in it. And the order counts: read backwards, the same
# inputs have the same sum, and lead to another state.

# %%
B, T, d_in, d_hidden = 2, 5, 3, 4
random = np.random.default_rng(1)
x, h0 = random.normal(size=(B, T, d_in)), random.normal(size=(B, d_hidden))
W_x, W_h, b = (0.7 * random.normal(size=shape) for shape in ((d_in, d_hidden), (d_hidden, d_hidden), d_hidden))
h = rnn(x, h0, W_x, W_h, b)

layer = RNN(d_in, d_hidden, random, "float64")
for parameter, ours in zip(layer.parameters().values(), (W_x, b, W_h)):
    parameter.data[...] = ours
library_h, cache = layer.forward(x, h0)
same("states: this page and the library", h, library_h)
measure("weights: (d_in + d_hidden + 1) d_hidden", W_x.size + W_h.size + b.size, 32, 32)
backwards = rnn(x[:, ::-1], h0, W_x, W_h, b)
measure("read backwards: the last state moves by", np.abs(backwards - h)[:, -1].max(), 0.3, 2)

# %% [markdown]
# ## Backward
#
# Let $dh_t$ be what the rest of the model hands back for output $t$, and $da_t$ the gradient of the sum $a_t$. Nudge
# number $k$ of $h_t$ by a small $\delta$, and follow the nudge to the loss. It goes **two ways**. Out of the layer, as
# output $t$: that moves the loss by $dh_{tk} \delta$. And into the next step: $W_h$ multiplies it there, so that each
# number $j$ of $a_{t+1}$ moves by $(W_h)_{kj} \delta$, and the loss by $da_{t+1,j} (W_h)_{kj} \delta$, everything later
# included. Added up over $j$, that is number $k$ of $da_{t+1} W_h^T$. So the whole gradient of the state is
# $dh_t + da_{t+1} W_h^T$. Then back through tanh, number by number. Its slope at $a$ is $1 - \tanh^2 a$, and
# $\tanh a_t$ is at hand, it is $h_t$:
#
# $$da_t = (dh_t + da_{t+1} W_h^T) \cdot (1 - h_t^2) \qquad da_T = dh_T \cdot (1 - h_T^2)$$
#
# The last state has the first way only, and $da_t$ needs $da_{t+1}$. So we go from the last step to the first:
# **backpropagation through time**. The rest is lesson 01. In $a_t = x_t W_x + h_{t-1} W_h + b$ stand two linear maps,
# so $dx_t = da_t W_x^T$, and what arrives at $h_0$ is $da_1 W_h^T$. The weights are used at every step, each use is a
# way to the loss, and effects add:
#
# $$dW_x = \sum_t x_t^T da_t \qquad dW_h = \sum_t h_{t-1}^T da_t \qquad db = \sum_t da_t$$
#
# Mind the index: $W_h$ multiplied the state *before* step $t$. In the code the sum over steps and over sequences is
# one sum, written with `einsum`, which sums over each letter that is not in the result.

# %%
def bptt(dh, x, h0, h, W_x, W_h):
    """dh (B, T, d_hidden) and what forward had -> db, dW_x, dW_h, dx, dh0"""
    da, from_later = np.zeros_like(dh), np.zeros_like(h0)
    for t in reversed(range(dh.shape[1])):
        da[:, t] = (dh[:, t] + from_later) * (1 - h[:, t]**2)
        from_later = da[:, t] @ W_h.T
    before = np.concatenate([h0[:, None], h[:, :-1]], axis=1)  # what each step read: h_0 ... h_{T-1}
    dW_x, dW_h = np.einsum("bti,btj->ij", x, da), np.einsum("bti,btj->ij", before, da)
    return da.sum(axis=(0, 1)), dW_x, dW_h, da @ W_x.T, from_later


# %% [markdown]
# ## Check
#
# All five against central differences (`numeric_gradient` is that of lesson 01), with a random $dh$. Then a classic
# mistake: leave out `from_later`. Such a *truncated* backward has been used on purpose (see "Paper and code"), but it
# is not the gradient, and a check with $T = 1$ does not see it.

# %%
arrays = {"b": b, "W_x": W_x, "W_h": W_h, "x": x, "h0": h0}


def worst_error(gradients):
    """The largest error over the five gradients, each relative to its largest true element."""
    worst = 0
    for (name, array), gradient in zip(arrays.items(), gradients):
        true = numeric_gradient(lambda moved: (rnn(**(arrays | {name: moved})) * dh).sum(), array)
        worst = max(worst, np.abs(gradient - true).max() / np.abs(true).max())
    return worst


def truncated(dh, x, h0, h, W_x, W_h):
    """bptt in which every step takes itself for the last"""
    *others, _ = bptt(dh, x, h0, h, W_x, 0 * W_h)              # nothing comes back through W_h
    return *others, dh[:, 0] * (1 - h[:, 0]**2) @ W_h.T


dh = random.normal(size=h.shape)
gradients = bptt(dh, x, h0, h, W_x, W_h)
measure("bptt: worst error of the five", worst_error(gradients), 0, 1e-8)
measure("truncated: worst error", worst_error(truncated(dh, x, h0, h, W_x, W_h)), 0.2, 5)
one_step = dh[:, :1], x[:, :1], h0, h[:, :1], W_x, W_h
differences = [np.abs(ours - true).max() for ours, true in zip(truncated(*one_step), bptt(*one_step))]
measure("sequences of one step: largest difference of truncated from bptt", max(differences), 0, 1e-14)

dx, dh0 = layer.backward(dh, cache)
library = layer.input.bias.grad, layer.input.weight.grad, layer.recurrent.weight.grad, dx, dh0
for name, ours, theirs in zip(arrays, gradients, library):
    same(f"d{name}: this page and the library", ours, theirs)

# %% [markdown]
# ## Experiment 1: what is left of a difference
#
# Suppose two sentences differ only at the beginning, so that $h_1$ differs a little, by the vector $\Delta_1$. How much
# of it is left in $h_n$? To first order, each step multiplies it by $W_h$ and by the slopes:
#
# $$\Delta_{t} = (\Delta_{t-1} W_h) \cdot (1 - h_t^2)$$
#
# Going back, the same factors stand in the formula of $da_t$, in the opposite order. So one matrix tells both: **how
# much of a small difference in the first state is left in the last, and how much gradient comes back from there.**
# The first cell looks whether that is so: it nudges each of 64 numbers of a state, reads 15 symbols forward, and
# compares with what `bptt` sends back over these 15 steps.

# %%
d, STEPS, NETWORKS = 64, 128, 9


def random_matrices(random, rho):
    """-> (NETWORKS, d, d), the largest eigenvalue of each (in absolute value) rho"""
    W = random.normal(size=(NETWORKS, d, d))
    return W * rho / np.abs(np.linalg.eigvals(W)).max(axis=1)[:, None, None]


W_h, unit = random_matrices(random, 1.1)[0], np.eye(d)
h_1 = np.tile(np.tanh(random.normal(size=d)), (d, 1))          # the same state, and below the same symbols, d times
later = np.tile(random.normal(size=(1, 15, d)), (d, 1, 1))
h = rnn(later, h_1, unit, W_h, 0)
nudged = rnn(later, h_1 + 1e-6 * unit, unit, W_h, 0)           # in row k, number k of the first state is nudged
dh = np.zeros_like(h)
dh[:, -1] = unit
*_, dh_1 = bptt(dh, later, h_1, h, unit, W_h)                  # row k: the gradient of number k of the last state
same("a nudge read forward, and bptt transposed", (nudged - h)[:, -1] / 1e-6, dh_1.T, tolerance=1e-4)

# %% [markdown]
# Now the matrix for up to 128 steps, multiplied out, for nine random networks with inputs of variance 1. What is
# plotted is the length that is left of a random small difference of length 1 (the root of its mean square; then the
# geometric mean over the networks). We set the *spectral radius* $\rho$ of $W_h$, its largest eigenvalue in absolute
# value: in the long run, multiplying by $W_h$ alone stretches lengths by $\rho$ a step. Before you look: for which
# $\rho$ of 0.9, 1, 1.1 does the difference survive 128 steps?

# %%
def what_is_left(rho, input_size=1.0, bend=np.tanh, slope=lambda h: 1 - h**2):
    """-> (STEPS,): the length in h_1, h_2, ... of a difference of length 1 in h_1; geometric mean of the networks"""
    random = np.random.default_rng(0)
    W, J, left = random_matrices(random, rho), unit, [np.ones(NETWORKS)]
    h = bend(input_size * random.normal(size=(NETWORKS, 1, d)))
    for _ in range(STEPS - 1):
        h = bend(input_size * random.normal(size=(NETWORKS, 1, d)) + h @ W)
        J = (J @ W) * slope(h)                                 # row k: a difference in number k of h_1, in h_t now
        left.append(np.sqrt((J**2).sum(axis=(1, 2)) / d))
    return np.exp(np.log(left).mean(axis=1))


curves = {f"tanh, ρ = {rho:g}": what_is_left(rho) for rho in (0.9, 1, 1.1, 2, 3)}
curves |= {f"no tanh, ρ = {rho:g}": what_is_left(rho, bend=lambda a: a, slope=np.ones_like) for rho in (0.9, 1.1)}
curves["tanh, ρ = 1.1, inputs a tenth"] = what_is_left(1.1, input_size=0.1)
for name, left in curves.items():
    print(f"{name:30}" + "".join(f"   n = {n}: {left[n - 1]:7.1e}" for n in (2, 16, 32, 64, 128)))
for name, n, lo, hi in [("tanh, ρ = 0.9", 32, 1e-10, 1e-6), ("tanh, ρ = 1.1", 32, 1e-7, 1e-3),
                        ("tanh, ρ = 1.1", 128, 1e-29, 1e-17), ("no tanh, ρ = 1.1", 128, 1e3, 1e6),
                        ("tanh, ρ = 1.1, inputs a tenth", 128, 1e-3, 1), ("tanh, ρ = 2", 128, 1e-3, 1e3),
                        ("tanh, ρ = 3", 128, 1e9, 1e15)]:
    measure(f"{name}: left after n = {n}", curves[name][n - 1], lo, hi)
for input_size, lo, hi in (1, 0.4, 0.7), (0.1, 0.85, 1):
    h = rnn(input_size * random.normal(size=(4, STEPS, d)), np.zeros((4, d)), unit, W_h, 0)
    measure(f"ρ = 1.1, inputs of size {input_size}: mean slope 1 - h^2", (1 - h**2).mean(), lo, hi)

# %% The figure
figure, axes = plt.subplots(figsize=(8, 4.3), layout="constrained")
looks = {"tanh, ρ = 0.9": ("-", DARK), "tanh, ρ = 1": ("--", DARK), "tanh, ρ = 1.1": (":", DARK),
         "tanh, ρ = 2": ("-.", DARK), "tanh, ρ = 3": ((0, (8, 2)), DARK),
         "no tanh, ρ = 0.9": ("-", ACCENT), "no tanh, ρ = 1.1": (":", ACCENT)}
for name, (style, colour) in looks.items():
    axes.semilogy(np.arange(1, STEPS + 1), curves[name], ls=style, color=colour, lw=1.8)
    axes.text(STEPS + 2, curves[name][-1], name, color=colour, va="center", fontsize=9)
axes.plot([1, STEPS], [1, 1], color="#999999", lw=0.8)
axes.set(xlabel="n, steps", ylabel="length left of a difference of length 1", xlim=(1, 160), ylim=(1e-36, 1e15),
         xticks=[1, 32, 64, 96, 128], title="At ρ = 1.1 the linear network explodes, and the one with tanh forgets")
show(figure, "02_what_is_left", alt="Length left of a difference in the first state against n up to 128, logarithmic. "
     "With tanh and spectral radius 0.9, 1 and 1.1 it falls along straight lines to 1e-34, 1e-29 and 1e-24. Without "
     "tanh 0.9 falls far more slowly, to 1e-6, and 1.1 rises to 1e5. With tanh and radius 2 it stays near 1; with 3 "
     "it rises to 1e12.")

# %% [markdown]
# For none of the three. The lines are nearly straight on a logarithmic axis: at every step about the same share is
# lost. Without tanh, $\rho$ decides as one expects, and 1.1 explodes. With tanh, the slopes $1 - h^2$ are below 1
# wherever the inputs have pushed $h$ away from 0; so 1.1 vanishes too: the slopes are little more than one half on
# average. The control: with inputs a tenth as large, the slopes stay near 1, and at $\rho = 1.1$ more than a thousandth
# of the difference is alive after 128 steps.
#
# Nor is forgetting a law of tanh. Large weights beat the slopes: at $\rho = 3$ small differences grow on and
# on, and gradients **explode**. Somewhere near 2 lies the border, for these inputs. (Against explosions, whatever
# is trained on this page has its gradient cut to length 1 where it is longer.)
#
# ## Experiment 2: what training makes of it
#
# Random networks are one thing; training could find better weights. So here is the test of the opening again, with
# three seeds, the best of three learning rates for each case (by the accuracy shown, so it flatters all), and other
# readers of about as many parameters. All train for 200 steps.
#
# - **RNN**, as above. And the same with $W_h$ multiplied by 0.8 at the start: if Experiment 1 is right, it must fail
#   earlier.
# - **LSTM** (long short-term memory), the network that was built against forgetting. Beside $h$ it has a second
#   state, the *cell* $c$, which no tanh and no matrix touches on its way:
#
# $$c_t = f_t \cdot c_{t-1} + i_t \cdot g_t \qquad h_t = o_t \cdot \tanh(c_t)$$
#
# All products are number by number. $f$, $i$, $o$ are *gates* between 0 and 1: how much of the cell to keep, how much
# of the new content $g$ to take in, how much to show. Each of the four is a linear map of $x_t$ and $h_{t-1}$ like
# $a_t$ above, followed by the sigmoid $\sigma(z) = 1 / (1 + e^{-z})$, or by tanh for $g$. Now the derivative of $c_t$
# by $c_{t-1}$, along the cell, is $f_t$. A usual start gives the forget gate the bias 1, and $\sigma(1)$ is 0.73. We
# take that, and 5.
# - **Attention**, one layer from the library, as a black box. You have seen its map in lesson 00. Here only one thing
#   matters: at the last place it looks at all $n$ places *directly*, with no chain in between.
#
# How does attention know which symbol is the first? It would not: what it sees is a bag, too. In this task the first
# place is marked by a 1 in a ninth input, for all readers. Without the mark:

# %%
for name, lo, hi in ("RNN", 0.97, 1), ("attention", 0.3, 0.38):
    model = model_of(name, seed=0)
    train(model, 8, rate=0.003, seed=100, marked=False)
    measure(f"n = 8, no mark: accuracy of {name}", accuracy(model, 8, 2000, marked=False), lo, hi)
ids = np.random.default_rng(0).integers(0, SYMBOLS, (20_000, 7, 1))
commonest = (ids == np.arange(SYMBOLS)).sum(axis=1).max(axis=1).mean() / 7
measure("the most without order: name the commonest of all but the last symbol", commonest, 0.33, 0.355)
measure("the forget gate with bias 1, before it has learnt: σ(1)", sigmoid(1.0), 0.731, 0.732)

# %% [markdown]
# Without the mark, attention gets as far as a bag of symbols can. (It knows one thing more than the bag: which symbol
# is the last, as it looks from there.) Order comes for free when one reads in order; a reader without recurrence has
# to be *told* it. With the mark:

# %% The table
result = recorded("first_symbol")
rows = {(row["reader"], row["n"], row["blank"]): row for row in result["results"]}
LENGTHS = sorted({n for _, n, blank in rows if not blank})


def right(reader, n, which="mean", blank=False):
    return rows[reader, n, blank]["best"]["accuracy"][which]


print(f"accuracy, mean of three seeds (lowest..highest); guessing gives 0.125\n{'':20}"
      + "".join(f"{f'n = {n}':18}" for n in LENGTHS).rstrip())
for reader in READERS:
    cells = [[right(reader, n, which) for which in ("mean", "lowest", "highest")] for n in LENGTHS]
    print(f"{reader:20}" + "  ".join("{:.2f} ({:.2f}..{:.2f})".format(*cell) for cell in cells))
weights = [row["parameters"] for row in rows.values()]
measure("most weights of a reader over fewest", max(weights) / min(weights), 1, 1.03)
for reader, n, lo, hi in [("RNN", 16, 0.95, 1), ("RNN", 64, 0.2, 0.6), ("RNN, W_h x 0.8", 32, 0.1, 0.35),
                          ("LSTM, forget bias 1", 32, 0.1, 0.25), ("LSTM, forget bias 5", 32, 0.95, 1),
                          ("LSTM, forget bias 5", 64, 0.4, 0.7), ("attention", 64, 0.98, 1)]:
    measure(f"{reader}, n = {n}: mean accuracy", right(reader, n), lo, hi)
for which, lo, hi in ("lowest", 0.1, 0.2), ("highest", 0.85, 0.95):
    measure(f"RNN, n = 32: the {which} of three seeds", right("RNN", 32, which), lo, hi)
for n, lo, hi in (32, 0.97, 1), (64, 0.25, 0.45):
    slow = rows["attention", n, False]["by_rate"][0]
    measure(f"attention, n = {n}, at rate {slow['learning_rate']}", slow["accuracy"]["mean"], lo, hi)

# %% The figure
figure, axes = plt.subplots(figsize=(8, 3.9), layout="constrained")
looks = {"RNN": ("o-", DARK), "RNN, W_h x 0.8": ("o:", DARK), "LSTM, forget bias 1": ("s:", ACCENT),
         "LSTM, forget bias 5": ("s-", ACCENT), "attention": ("^--", "black")}
for reader, (style, colour) in looks.items():
    low, high = ([right(reader, n, which) for n in LENGTHS] for which in ("lowest", "highest"))
    axes.plot(LENGTHS, [right(reader, n) for n in LENGTHS], style, color=colour, lw=1.8, label=reader)
    axes.fill_between(LENGTHS, low, high, color=colour, alpha=0.12, lw=0)
axes.axhline(1 / SYMBOLS, color="#888888", lw=0.8)
axes.text(4, 1 / SYMBOLS + 0.02, "guessing", fontsize=9, color="#444444")
axes.set_xscale("log", base=2)
axes.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
axes.set(xlabel="n, symbols to read", ylabel="accuracy", ylim=(0, 1.05),
         title="After 200 steps, only attention is right at every length")
axes.legend(loc="lower left", bbox_to_anchor=(0.02, 0.18), fontsize=9)
show(figure, "02_recall", alt="Accuracy against n from 4 to 64, mean and range of three seeds. Attention stays at 1. "
     "The LSTM with forget bias 5 stays at 1 up to 32 and falls to about 0.5 at 64. The RNN is at 1 up to 16, then "
     "falls to 0.6 and 0.4. With W_h times 0.8, and for the LSTM with forget bias 1, it is near guessing at 32.")

# %% [markdown]
# - **Attention** is right at every length, at its best rate. For a bag there is no distance. There is a number of
#   symbols to choose among: at the smallest of the three rates 200 steps are enough at 32, and not at 64.
# - **The recurrent readers** fail at a length that their *start* decides, for nothing else differs within each pair:
#   the RNN with a smaller $W_h$ fails sooner than the other; the LSTM whose gate is 0.73 open fails sooner than the
#   one with the open gate. Seeds differ much for the RNN: at 32 the best gets 0.9, and the worst guesses.
#
# Is it the vanishing, then? Here is what is left at the start of training of a difference in $h_0$, the state before
# the first symbol (for the LSTM: in $c_0$), measured with the library's backward as in Experiment 1. Beside it a
# second control, *blank*: nothing follows the first symbol. The distance is the same, and there is nothing to confuse
# it with.

# %%
def left_over(layer, x, *first):
    """Length left in h_n of a random difference of length 1 in the state (LSTM: in the cell) before x (1, n, d_in)"""
    size = len(layer.recurrent.weight.data)
    h, cache = layer.forward(np.repeat(x, size, axis=0), *first)           # once for each number of h_n
    dh = np.zeros_like(h)
    dh[:, -1] = np.eye(size)
    *_, dfirst = layer.backward(dh, cache)                                 # dh0, or dc0: (size, size)
    return np.sqrt((dfirst**2).sum() / size)


def left_at_start(reader, n, blank):
    """Geometric mean over the three seeds."""
    logs = [np.log(left_over(model_of(reader, seed).reader, sequences(np.random.default_rng(seed), 1, n, blank)[0]))
            for seed in (0, 1, 2)]
    return np.exp(np.mean(logs))


left = {key: left_at_start(*key) for key in rows if key[0] != "attention" and key[1] >= 16}
for key in sorted(left, key=left.get):
    reader, n, blank = key
    print(f"left {left[key]:7.1e}   accuracy {right(reader, n, blank=blank):.2f}   "
          f"{reader}, n = {n}{', blank' if blank else ''}")
few, many = ([right(*key[:2]) for key, value in left.items() if not key[2] and (value < 0.005) == is_few]
             for is_few in (True, False))
measure("other symbols follow, less than 0.005 left: the highest accuracy", max(few), 0.1, 0.25)
measure("other symbols follow, more is left: the lowest", min(many), 0.3, 0.5)
for case, left_band, right_band in [(("RNN", 32, False), (0.03, 0.3), (0.4, 0.8)),
                                    (("RNN, W_h x 0.8", 32, True), (1e-3, 1e-2), (0.97, 1)),
                                    (("RNN, W_h x 0.8", 64, True), (1e-6, 5e-4), (0.1, 0.4))]:
    measure(f"{case[0]}, n = {case[1]}{', blank' if case[2] else ''}: left", left[case], *left_band)
    measure("    accuracy", right(*case[:2], blank=case[2]), *right_band)
most = max(left["LSTM, forget bias 1", n, False] / left["RNN", n, False] for n in (16, 32, 64))
measure("left of the LSTM with forget bias 1, over that of the RNN: at most", most, 0.02, 0.5)
measure("LSTM, forget bias 5, n = 64: left", left["LSTM, forget bias 5", 64, False], 0.5, 30)

# %% [markdown]
# - **Where little is left, little is learnt.** With other symbols behind the first, all cases with less than 0.005
#   left are near guessing, and all others do better. Vanishing alone can be enough: with 64 blanks, where nothing
#   disturbs and next to nothing arrives, the smaller RNN gets a fifth right.
# - **How little is too little depends on the rest.** At the same distance, 32, the RNN has a tenth left and gets 0.62
#   right, while its smaller twin has a thirtieth of that, among blanks, and gets all right.
# - **The LSTM does not vanish less by its equation alone.** With forget bias 1 it has less left than the RNN at all
#   three lengths. Whether the gate is open is a matter of its weights.
#
# And the LSTM with the open gate loses nothing by vanishing at 64, but is only half right. Are the other symbols to
# blame? The control is to leave them out:

# %%
model = model_of("LSTM, forget bias 5", seed=0)
train(model, 64, rate=0.003, seed=100, steps=50 if QUICK else 100, blank=True)
measure("LSTM, forget bias 5, n = 64, blank: accuracy", accuracy(model, 64, blank=True), 0.97, 1)

# %% [markdown]
# They are: without them, half the training is enough. So two things stand in the way of a far word: its trace shrinks,
# and in a state of fixed size the traces of the others lie beside it. A small trace can do where it is the only one;
# a whole one is hard to find among 63.
#
# ## Experiment 3: what waiting costs
#
# The state of step $t$ needs that of step $t - 1$: a sequence of $n$ is $n$ steps of waiting, whatever the machine.
# Attention needs no state of another place: all places can be computed at once, which counts as 1 step, whatever $n$.
# What it pays is arithmetic. Let $d_{in} = d_{hidden} = d$. The multiplications of a forward pass, per sequence:
#
# | | steps that wait | at each place by itself | between places |
# |---|---|---|---|
# | RNN | $n$ | $n d^2$, for $x_t W_x$ | $n d^2$, for $h_{t-1} W_h$ |
# | attention | 1 | $4 n d^2$, four linear maps | $2 n^2 d$: compares each place with each, then adds up over all |
#
# Attention does **more** arithmetic than the RNN, not less: at each place by itself at every length, and between
# places as soon as $n$ exceeds $d/2$. On one core, where nothing runs at the same time, that is what you pay. So is
# waiting a real cost? The cell takes 2,048 symbols, as many short sequences or as few long ones. For the RNN the
# arithmetic is then always the same:

# %%
random, d, times = np.random.default_rng(0), 32, {}
for name, layer in ("RNN", RNN(d, d, random, "float64")), ("attention", SelfAttention(d, 1, random, "float64")):
    for n in 4, 64, 512:
        x, dy = random.normal(size=(2, 2048 // n, n, d))
        runs = timeit.repeat(lambda: layer.backward(dy, layer.forward(x)[1]), number=1, repeat=2 if QUICK else 4)
        times[name, n] = min(runs)
        duration(f"{name}, forward and backward, {2048 // n:3} sequences of {n:4}", times[name, n])
duration("RNN, the 4 long sequences beside the 512 short ones", times["RNN", 512], over=times["RNN", 4])

# %% [markdown]
# The same arithmetic takes several times as long when it comes in many small pieces that wait for one another. Here a
# part of the price is Python's, which runs the loop; but a machine that could do a thousand pieces at once would also
# have to stand and wait. We have not measured one. (What attention pays at 512 is its arithmetic, $2 n^2 d$.)
#
# ## Check the claim
#
# > An RNN cannot carry information over long distances.
#
# It can, and here is one. One number of state for each symbol, weights set by hand. $W_h$ is 12.5 on its diagonal and
# 0 elsewhere: a state near $+1$ or $-1$ pushes itself back there at the next step. The first symbol brings the mark,
# which lifts the sum to where the symbol itself decides its sign:

# %%
latch = RNN(1 + SYMBOLS, SYMBOLS, random, "float64")
latch.input.weight.data[...] = np.vstack([np.full(SYMBOLS, 4.0), 2 * np.eye(SYMBOLS)])   # the mark; the symbols
latch.input.bias.data[...] = -5
latch.recurrent.weight.data[...] = 12.5 * np.eye(SYMBOLS)

x, first = sequences(np.random.default_rng(3), 400, 1000)
h, _ = latch.forward(x)
measure("n = 1000: the largest state is that of the first symbol", (h[:, -1].argmax(axis=1) + 1 == first).mean(), 1, 1)
for n, lo, hi in (2, 1e-4, 1e-1), (4, 1e-15, 1e-8), (16, 0, 1e-50):
    measure(f"n = {n}: left of a small difference in the first state", left_over(latch, x[:1, 1:n], h[:1, 0]), lo, hi)

# %% [markdown]
# It remembers perfectly after 1,000 symbols, and a *small* difference in its first state is gone after a few. There is
# no contradiction. The latch is safe *because* it undoes small changes; the first symbol makes a large one, and
# derivatives speak of small changes only. So what vanishes here is not the memory but the **gradient that would teach
# it**: of a loss at the end, next to nothing arrives at $h_1$. Bengio, Simard and Frasconi showed in 1994 (*Learning
# long-term dependencies with gradient descent is difficult*) that this is a dilemma: a state that holds on to its
# content safely passes hardly any gradient back.
#
# ## Paper and code
#
# - §1 of "Attention Is All You Need" begins with this lesson: recurrent models compute along the positions of
#   symbols, and this "inherently sequential nature precludes parallelization within training examples". §4 and Table 1
#   compare: per layer $n d^2$ operations for recurrence and $n^2 d$ for self-attention; $O(n)$ sequential operations
#   against $O(1)$; a longest path of $O(n)$ between two places against $O(1)$. The table gives orders of growth: it
#   counts what goes on between places, without factors, and leaves out the four linear maps.
# - The simple network is Elman's (1990, *Finding Structure in Time*), who did not send gradients further back than
#   one step. The LSTM is Hochreiter and Schmidhuber's (1997, *Long Short-Term Memory*), the forget gate Gers,
#   Schmidhuber and Cummins's (2000, *Learning to Forget*). Cutting long gradients: Pascanu, Mikolov and Bengio (2013,
#   *On the difficulty of training recurrent neural networks*). The bias of 1: Jozefowicz, Zaremba and Sutskever
#   (2015, *An Empirical Exploration of Recurrent Network Architectures*).
# - In this project: both layers in [library/recurrent.py](../lessons/library/recurrent.py), with tests against
#   finite differences and PyTorch in [test_recurrent.py](../tests/lessons/library/test_recurrent.py). They stand there
#   because the paper's model contains neither. Experiment 2 is
#   [benchmarks/first_symbol.py](../benchmarks/first_symbol.py).
# - *Differs from this page:* the library computes $x_t W_x + b$ for all steps in one product, since only $h W_h$ has
#   to wait.
# - *Limits:* one synthetic task, small networks, 200 steps. With more steps the recurrent readers may get further;
#   we have not measured it.
#
# ## Exercises
#
# **Predict.** You run `bptt` with $dh_t = 0$ for all $t$ but the last, on a network with $W_h = 0$. Which of the five
# gradients are zero, and at which steps?
#
# <details><summary>Answer</summary>
#
# Nothing goes back through $W_h$, so $da_t = 0$ for all but the last step: $dx_t$ is 0 but for the last step, and
# $dh_0 = da_1 W_h^T$ is 0. $db$ and $dW_x$ get the share of the last step. $dW_h = h_{T-1}^T da_T$ is *not* zero: a
# weight that is 0 may have a gradient.
#
# </details>
#
# **Build** `02_rnn`: the forward pass.
#
# **Backward** `02_bptt`: all five gradients.
#
# **Backward** `02_lstm_cell_backward`: one step of the LSTM. The cell has two ways to the loss, like $h_t$ above.
#
# **Break** `02_blind_check`: the truncated backward passed for $T = 1$. Find an upstream gradient with which it
# passes for every $T$.
#
# ## Next
#
# To translate, one recurrent network can read the sentence and another write, and all that passes between them is the
# last state. This page says what becomes of the first word then. But the states of all the steps were there.
# [Lesson 03](03_bahdanau.py) lets the writer look back at them. The paper's own reasons against recurrence stand in
# sections 1 and 4 of [its arXiv page](https://arxiv.org/abs/1706.03762).
