# %% [markdown]
# # 03 · Attention as a patch
#
# *About 40 minutes. You need: [lesson 01](01_backprop.py) (linear maps, softmax with cross-entropy, the numeric
# check) and [lesson 02](02_recurrence.py) (recurrent networks, backpropagation through time). You will have: the
# first attention, additive, forward and backward, derived and checked; and a measured answer to what is left of a
# recurrent network when attention is put on top of it and the recurrence is taken away.*

# %% Imports
import time

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library.lesson import QUICK, duration, measure, recorded, same, show, varying
from library.recurrent import AdditiveAttention
from library.reversal import SYMBOLS, DotAttention, Rewriter, pairs, right, train
from scratchformer.experiments.figures import ACCENT, COLOUR_MAP, DARK
from scratchformer.nn.layers import Linear

# %% [markdown]
# ## Question
#
# **One recurrent network reads a sentence, another writes its translation, and all that passes between them is one
# vector. What if the writer could look back at every state of the reader?**
#
# The answer in one sentence: with attention, a weighted mean of all states whose weights are learnt, it fetches each
# symbol from where it was read; and on the task of this page the recurrence can then go, if each place gets a vector
# of its own.
#
# The task stands in for a translation that turns the order round: $n$ random symbols, each 1 to 8, are to be written
# backwards. A **reader** (an RNN of lesson 02, with a state of 32 numbers) reads them. A **writer**, a second RNN,
# begins with the reader's last state. At each place it reads the symbol before (at the first place the id 0, nothing
# before), and a linear map of its state gives 9 scores, one for each id; 0 is never right.
#
# The code is in [lessons/library/reversal.py](../lessons/library/reversal.py). Training is that of lesson 02: softmax
# cross-entropy, Adam at one learning rate, 300 steps of 32 new sequences, and a gradient longer than 1 is cut to that
# length. The writer reads the *right* symbols before each place, in the test as well, even where it has written
# others.

# %%
source, read, target = pairs(np.random.default_rng(0), count=1, n=4)
print("reads", *source[0], " is to write", *target[0], "  and reads before each place", *read[0])
SEEDS = (0,) if QUICK else (0, 1, 2)


def try_out(name, n, lo, hi, seeds=(0,), **options):
    """Train a model for each seed; the share of symbols that each writes right must lie in the band.
    -> the models; which symbols are right, in 300 new sequences: bool (seeds, 300, n)"""
    models = [train(Rewriter(n, seed, **options)) for seed in seeds]
    found = np.array([right(model) for model in models])
    for seed, share in zip(seeds, found.mean(axis=(1, 2))):
        measure(f"{name}, n = {n:2}, seed {seed}: symbols right", share, lo, hi)
    return models, found


try_out("one vector", 4, 0.97, 1)
_, found = try_out("one vector", 16, 0.45, 0.65, SEEDS)
by_place = found.mean(axis=(0, 1))
measure("n = 16: right at the first place written (the symbol read last)", by_place[0], 0.9, 1)
measure("n = 16: right at the last place written (guessing: 0.125)", by_place[-1], 0.1, 0.3)

# %% [markdown]
# Four symbols come through the one vector; of sixteen, little more than half are written right. The symbol read last
# is the first to be written, and nearly always right. The one read first has 15 others after it in the reader and 15
# before it in the writer, and is right less than three times in ten. (Is it the vector, or the 300 steps? Experiment 1
# tries both.)
#
# ## The idea in one picture
#
# The states after *every* symbol were there. Let the writer, at each place, take a mean of all of them, with weights
# that it chooses itself.

# %% The figure
figure, axes = plt.subplots(figsize=(8, 3.7), layout="constrained")
arrow = {"arrowstyle": "-|>", "color": DARK}
for i, weight in enumerate((0.03, 0.07, 0.75, 0.15)):
    for x, name in (1.6 * i, f"h$_{i + 1}$"), (7.6 + 1.6 * i, f"s$_{i + 1}$"):
        axes.text(x, 0, name, ha="center", va="center", bbox=dict(boxstyle="round,pad=0.45", fc="white", ec=DARK))
        axes.annotate("", (x, -0.35), (x, -0.8), arrowprops=arrow)
        if i < 3:
            axes.annotate("", (x + 1.2, 0), (x + 0.4, 0), arrowprops=arrow)
    axes.plot((1.6 * i, 2.4), (0.8, 1.75), color=ACCENT, lw=0.8 + 7 * weight, solid_capstyle="round")
    axes.text(1.6 * i, 0.5, f"w$_{{2{i + 1}}}$ = {weight:.2f}", ha="center", fontsize=9)
axes.annotate("", (7.2, 0), (5.2, 0), arrowprops=arrow | {"ls": "--"})
axes.text(6.2, -0.35, "one vector", ha="center", color=DARK, fontsize=9)
axes.text(2.4, -1.15, "the symbols", ha="center", color=DARK, fontsize=9)
axes.text(10, -1.15, "the symbol before each place", ha="center", color=DARK, fontsize=9)
axes.text(2.4, 1.9, "c$_2$ = sum of w$_{2s}$ h$_s$", ha="center", color=ACCENT)
axes.text(9.2, 1.9, "scores of the symbol at place 2", ha="center", color=DARK)
axes.annotate("", (6.3, 2), (4.4, 2), arrowprops=arrow | {"color": ACCENT})
axes.annotate("", (9.2, 1.75), (9.2, 0.35), arrowprops=arrow)
axes.annotate("", (5.6, 0.58), (8.85, 0.35), arrowprops=arrow | {"ls": ":"})
axes.text(8.95, 0.9, "s$_2$ with each h$_s$: e$_{2s}$, then w$_{2s}$", ha="right", fontsize=9, color=DARK)
axes.set(xlim=(-0.9, 13), ylim=(-1.35, 2.4))
axes.axis("off")
show(figure, "03_look_back", alt="Left the states h_1 to h_4 of the reader, above its symbols, right the states s_1 to "
     "s_4 of the writer, above the symbol before each place; each in a chain. A dashed arrow, the one vector, leads "
     "from h_4 to the writer. Above, lines from all four h run together in c_2, the sum of w_2s h_s, thicker for "
     "larger weights: 0.03, 0.07, 0.75, 0.15. A dotted arrow leads from s_2 to them: s_2 with each h_s gives e_2s, "
     "then w_2s. c_2 and s_2 give the scores of the symbol at place 2.")

# %% [markdown]
# The weights in the picture are made up; measured ones follow.
#
# ## The equation, and the same in code
#
# Let $h_1, \dots, h_S$ be the states of the reader ($d_h$ numbers each) and $s_1, \dots, s_T$ those of the writer
# ($d_s$ numbers). First a number says how well the two states fit, the **score** of place $t$ for state $s$. (The
# letter $s$ alone counts states of the reader; $s_t$, with an index, is a state of the writer.) It is a small network
# of its own, with one hidden layer of $d_a$ numbers, $W$ ($d_s \times d_a$), $U$ ($d_h \times d_a$) and a vector $v$
# ($d_a$ numbers):
#
# $$z_{ts} = \tanh(s_t W + h_s U) \qquad e_{ts} = \sum_k z_{tsk} v_k$$
#
# In lesson 01, softmax made probabilities of the scores of classes. Here it makes **weights** of the scores of
# states, positive and of sum 1. The **context** is the mean of the states with these weights:
#
# $$w_{ts} = \frac{\exp(e_{ts})}{\sum_r \exp(e_{tr})} \qquad c_t = \sum_s w_{ts} h_s$$
#
# A linear map of $s_t$ and $c_t$ side by side, $d_s + d_h$ numbers, then gives the 9 scores of the symbol. Nobody says
# where to look: $W$, $U$ and $v$ learn it from the loss.

# %%
def softmax(e):
    """e (..., S) -> weights (..., S), each row positive and of sum 1"""
    powers = np.exp(e - e.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def look_back(s, h, W, U, v, bend=np.tanh):
    """s (B, T, d_s), h (B, S, d_h), W (d_s, d_a), U (d_h, d_a), v (d_a,)
    -> c (B, T, d_h), weights (B, T, S), z (B, T, S, d_a)"""
    z = bend((s @ W)[:, :, None] + (h @ U)[:, None])           # (B, T, 1, d_a) + (B, 1, S, d_a): each t with each s
    weights = softmax(z @ v)                                   # z @ v: e (B, T, S)
    return weights @ h, weights, z


# %% [markdown]
# Why the tanh? Without it the score falls apart into $s_t W v + h_s U v$. The first part is the same for all states
# $s$. Softmax does not see what is added to a whole row, so every place $t$ would have the same weights. The bend
# makes the best state depend on who asks. (For the same reason a bias beside $v$ would do nothing.)
#
# ## Forward
#
# Two sequences, $T = 3$ places to write, $S = 4$ states to look at; the page and the library; and the claim on tanh.

# %%
B, T, S, d_s, d_h, d_a = 2, 3, 4, 5, 6, 7
random = np.random.default_rng(1)
layer = AdditiveAttention(d_s, d_h, d_a, random, "float64")
W, U, v = layer.query.weight.data, layer.key.weight.data, layer.score.weight.data[:, 0]
s, h = random.normal(size=(B, T, d_s)), random.normal(size=(B, S, d_h))
c, weights, z = look_back(s, h, W, U, v)
library_c, cache = layer.forward(s, h)
same("contexts: this page and the library", c, library_c)
same("weights: this page and the library", weights, cache.weights)
measure("largest difference of a row's sum from 1", np.abs(weights.sum(axis=-1) - 1).max(), 0, 1e-15)
for name, bend, lo, hi in ("with tanh", np.tanh, 0.05, 0.9), ("without", lambda a: a, 0, 1e-14):
    _, others, _ = look_back(s, h, W, U, v, bend)
    measure(f"{name}: weights of two places t differ by up to", np.ptp(others, axis=1).max(), lo, hi)
order = [2, 0, 3, 1]
same("contexts with the states in another order", look_back(s, h[:, order], W, U, v)[0], c)

# %% [markdown]
# Keep the last line in mind. The context is a sum over states, and a sum has no order: what attention sees is a bag
# of states. All it can know of places is what the states themselves say.
#
# ## Backward
#
# Given $dc_t$ ($d_h$ numbers for each place $t$), we want the gradients of $s$, $h$, $W$, $U$ and $v$. As in lesson
# 01: take one number, follow it to the loss by all its ways, add up.
#
# **The weight $w_{ts}$** multiplies all of $h_s$ into $c_t$, so $dw_{ts} = \sum_j dc_{tj} h_{sj}$.
#
# **The score $e_{tr}$.** It moves all weights of its row, because they share a sum. Lesson 01 has found how: if state
# $s$ were the right class, the loss would be $-\ln w_s$, and its derivative by $e_r$ is $w_r - [s = r]$, where
# $[s = r]$ is 1 if both are the same and 0 otherwise. So $\ln w_s$ changes by $[s = r] - w_r$, and $w_s$ by $w_s$
# times that. The score has a way to the loss through each weight (of one place; $t$ is left out):
#
# $$de_r = \sum_s dw_s w_s ([s = r] - w_r) = w_r \left( dw_r - \sum_s w_s dw_s \right)$$
#
# The sum in the bracket is the mean of $dw$ over what is being read. Descent raises the score of a state that lowers
# the loss more than this mean, and does so in proportion to the weight that it has already.
#
# **$v_k$** is used for every pair of a place and a state: $dv_k = \sum_{ts} z_{tsk} de_{ts}$ (and over sequences).
#
# **The sum before tanh**, $a_{ts} = s_t W + h_s U$. Through $v$ and the slope of tanh, as in lesson 02:
# $da_{tsk} = de_{ts} v_k (1 - z_{tsk}^2)$.
#
# **$s_t W$** was copied to all $S$ states, and $h_s U$ to all $T$ places. *Where forward copies, backward adds.* What
# comes back to $s_t W$ is $\sum_s da_{ts}$, and to $h_s U$ it is $\sum_t da_{ts}$. The rest is linear maps, as in
# lesson 01:
#
# $$ds_t = \left( \sum_s da_{ts} \right) W^T \qquad dW = \sum_t s_t^T \sum_s da_{ts} \qquad
# dU = \sum_s h_s^T \sum_t da_{ts}$$
#
# **$h_s$** has **two ways**: through $U$ into the scores, which decide where to look, and into the mean itself, with
# the factor $w_{ts}$, as that which is found. Both add up:
#
# $$dh_s = \left( \sum_t da_{ts} \right) U^T + \sum_t w_{ts} dc_t$$
#
# That is what attention hands back. In the whole model $s_t$ has a way into the scores of the symbols as well, and
# each state one into the next state; there what arrives is added to what backpropagation through time brings.

# %%
def softmax_backward(dweights, weights):
    """dweights, weights (..., S) -> de (..., S)"""
    return weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))


def look_back_backward(dc, s, h, W, U, v, weights, z):
    """dc (B, T, d_h) and what forward had -> dv, dW, dU, ds, dh"""
    de = softmax_backward(dc @ h.swapaxes(1, 2), weights)      # (B, T, S)
    dv = np.einsum("btsk,bts->k", z, de)
    da = de[..., None] * v * (1 - z**2)                        # (B, T, S, d_a)
    da_s, da_h = da.sum(axis=2), da.sum(axis=1)                # (B, T, d_a), (B, S, d_a)
    dW, dU = np.einsum("bti,btk->ik", s, da_s), np.einsum("bsi,bsk->ik", h, da_h)
    return dv, dW, dU, da_s @ W.T, da_h @ U.T + weights.swapaxes(1, 2) @ dc


# %% [markdown]
# ## Check
#
# All five against central differences, with a random upstream gradient; then what comes of it if one of the two ways
# of $h$ is forgotten; then the library.

# %%
arrays = {"v": v, "W": W, "U": U, "s": s, "h": h}
dc = random.normal(size=c.shape)
gradients = look_back_backward(dc, s, h, W, U, v, weights, z)
true = {name: numeric_gradient(lambda moved: (look_back(**arrays | {name: moved})[0] * dc).sum(), array)
        for name, array in arrays.items()}


def error(gradient, name):
    """The largest error, relative to the largest true element"""
    return np.abs(gradient - true[name]).max() / np.abs(true[name]).max()


for name, gradient in zip(arrays, gradients):
    measure(f"d{name} {gradient.shape}: worst error", error(gradient, name), 0, 1e-8)
found = weights.swapaxes(1, 2) @ dc
measure("dh without the way through the scores: worst error", error(found, "h"), 0.05, 1.5)
measure("dh without the way into the mean: worst error", error(gradients[4] - found, "h"), 0.3, 1.5)

library_ds, library_dh = layer.backward(dc, cache)
library = [layer.score.weight.grad[:, 0], layer.query.weight.grad, layer.key.weight.grad, library_ds, library_dh]
for name, ours, theirs in zip(arrays, gradients, library):
    same(f"d{name}: this page and the library", ours, theirs)

# %% [markdown]
# ## Experiment 1: look back
#
# The same reader and writer, now with attention between them ($d_a = 16$). Three runs train here; lengths up to 32
# and the controls are recorded, three seeds each:
#
# - **the plain mean** of all states in place of the context, all weights $1/S$. If it were enough that every state
#   has a short way to the writer, this would do as well.
# - **more numbers** in the one vector, 64 in place of 32, and no attention: more weights than attention adds.
# - **more steps**, four times as many, with one vector.

# %%
attentive, _ = try_out("attention", 16, 0.9, 1, SEEDS, look=AdditiveAttention)
recording = recorded("reversal")
rows = {(row["model"], row["n"]): row for row in recording["results"]}
LENGTHS = sorted({n for _, n in rows})


def accuracy(model, n, which="mean"):
    return rows[model, n]["accuracy"][which]


def print_rows(experiment):
    print("symbols right, mean of three seeds (lowest..highest); guessing gives 0.125")
    for (model, n), row in rows.items():
        if experiment == (2 if "told" in model or "no recurrence" in model else 1):
            print("n = {:2}  {:36}{:6,} weights  {:.2f} ({:.2f}..{:.2f})".format(
                n, model, row["parameters"], *(accuracy(model, n, which) for which in ("mean", "lowest", "highest"))))


print_rows(1)

# %%
for model, n, lo, hi in [("one vector", 16, 0.52, 0.6), ("one vector, rate 0.003", 16, 0.44, 0.52),
                         ("plain mean", 16, 0.58, 0.66), ("plain mean, rate 0.003", 16, 0.46, 0.55),
                         ("one vector, 64 numbers, rate 0.003", 16, 0.66, 0.74),
                         ("one vector, 4 x the steps", 16, 0.74, 0.82), ("attention", 16, 0.95, 1),
                         ("one vector", 32, 0.26, 0.36), ("attention", 32, 0.5, 0.7)]:
    measure(f"n = {n}, {model}: mean", accuracy(model, n), lo, hi)
for which, lo, hi in ("lowest", 0.45, 0.6), ("highest", 0.75, 0.9):
    measure(f"n = 32, attention: the {which} of three", accuracy("attention", 32, which), lo, hi)

# %% [markdown]
# At 16 symbols attention gets nearly all right where one vector got little more than half. The plain mean gains
# little, at either learning rate: that the states are *there* is not enough, the writer has to *choose*. The one
# vector is no wall of principle. It gives way to more numbers, and further to more steps; with either it is still far
# from attention with its 300 steps.
#
# Nor does attention hold at any length. At 32 symbols it is ahead of one vector for every seed, but one run of three
# gets most symbols right, and the others about half. Keep this for Experiment 2.
#
# Where does the trained writer look? To write place $t$ of $n$ it needs symbol $n + 1 - t$, so one expects the
# anti-diagonal.

# %%
source, read, _ = pairs(np.random.default_rng(5), 200, 16)
own = np.arange(15, -1, -1)                                    # at place t (from 0): the state of the symbol wanted


def shares(model):
    """The weight on the state of the symbol wanted, and on the next one: means over the places that have a next"""
    mean = model.weights(source, read).mean(axis=0)            # (16, 16): places written, states
    return [mean[np.arange(1, 16), own[1:] + further].mean() for further in (0, 1)]


def right_without(model, further):
    """Symbols right if, at each place, that one state is taken from another sequence"""
    (h, _), (s, _) = model.states(source, read)
    found = []
    for t in range(1, 16):
        changed = h.copy()
        changed[:, own[t] + further] = np.roll(h[:, own[t] + further], 1, axis=0)
        c, _ = model.looks[0].forward(s[:, t:t + 1], changed)
        scores, _ = model.output.forward(np.concatenate([s[:, t:t + 1], c], axis=2))
        found.append(scores[:, 0].argmax(axis=-1) == source[:, own[t]])
    return np.mean(found)


for seed, model in enumerate(attentive):
    on_own, on_next = shares(model)
    varying(f"seed {seed}: weight on the state of the symbol wanted {on_own:.2f}, on the state after it {on_next:.2f}")
    measure("    both together", on_own + on_next, 0.75, 1)
    most, other = (0, 1) if on_own > on_next else (1, 0)
    measure("    right if the one with more weight comes from another sequence", right_without(model, most), 0.05, 0.3)
    measure("    right if the other one does", right_without(model, other), 0.8, 1)
if not QUICK:
    further_on = sum(on_next > on_own for on_own, on_next in map(shares, attentive))
    measure("how many of the three runs look at the state after it", further_on, 1, 2)

# %% [markdown]
# Some runs look at the state of the symbol itself, others **one place further on**, and are right all the same. In a
# recurrent reader the state after one symbol still holds the symbol before. The last two measurements rule out that
# the weights mislead: exchange the state that they point to, and the answer is a guess; exchange the other one, and it
# mostly stays right. So a map of attention says which *state* is read, not which symbol.
#
# ## Experiment 2: take the recurrence away
#
# Attention came as a patch on a recurrent network. Now tear off what is under it. A writer without recurrence is a
# linear map of the symbol before: it has no state that could count places, so it is **told** the place. Its input
# gets a second 1, at number $t$ of $n$ further numbers. A linear map of a row with two ones is the sum of two rows of
# its matrix: a learned vector for the symbol and a learned vector for the place. The reader goes the same way (in the
# code, `told="rw"` tells both), and no vector passes from its end to the writer.
#
# One run trains here. Three controls are recorded with it, three seeds each: attention without recurrence and
# *without* places; one vector, no attention, *with* places; and recurrence and attention together, with places.

# %%
[free], _ = try_out("no recurrence", 16, 0.98, 1, look=AdditiveAttention, reader=Linear, writer=Linear, told="rw")
measure("no recurrence: weight on the state of the symbol wanted", shares(free)[0], 0.9, 1)
measure("    how much the least steady weight varies between sequences (standard deviation)",
        free.weights(source, read).std(axis=0).max(), 0, 0.15)
print_rows(2)
for model, n, lo, hi in [("no recurrence", 16, 0.99, 1), ("no recurrence", 32, 0.99, 1),
                         ("no recurrence, not told the places", 16, 0.26, 0.27),
                         ("one vector, told the places", 16, 0.5, 0.54),
                         ("attention, told the places", 32, 0.97, 1)]:
    measure(f"n = {n}, {model}: the lowest of three", accuracy(model, n, "lowest"), lo, hi)
ids = np.random.default_rng(0).integers(0, SYMBOLS, (20_000, 16, 1))
measure("name the commonest symbol: right", (ids == np.arange(SYMBOLS)).sum(axis=1).max(axis=1).mean() / 16, 0.26, 0.27)

# %% The figure
figure, (left, by_place) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
looks = {"one vector": ("o-", DARK), "attention": ("s-", ACCENT), "no recurrence": ("^--", "black")}
for name, (style, colour) in looks.items():
    left.plot(LENGTHS, [accuracy(name, n) for n in LENGTHS], style, color=colour, lw=1.8)
    lowest, highest = ([accuracy(name, n, which) for n in LENGTHS] for which in ("lowest", "highest"))
    left.fill_between(LENGTHS, lowest, highest, color=colour, alpha=0.12, lw=0)
    by_place.plot(range(1, 17), rows[name, 16]["by_place"], style, color=colour, lw=1.5, ms=4, label=name)
for panel in left, by_place:
    panel.axhline(1 / SYMBOLS, color="#888888", lw=0.8)
    panel.set(ylim=(0, 1.12), ylabel="share of symbols right")
left.plot(32, accuracy("attention, told the places", 32), "s", color=ACCENT, mfc="none", ms=11)
left.text(32.5, 1.06, "open square: attention, told the places", fontsize=9, ha="right", color=ACCENT)
left.text(4, 1 / SYMBOLS + 0.02, "guessing", fontsize=9, color="#444444")
for name, x, y in ("one vector", 12.5, 0.42), ("attention", 13.5, 0.76), ("no recurrence", 18.5, 0.94):
    left.text(x, y, name, fontsize=9, color=looks[name][1])
left.set(xlabel="n, symbols to turn round", xticks=LENGTHS, title="One vector fails, attention holds longer")
by_place.set(xlabel="place written", title="n = 16, place by place", xticks=(1, 4, 8, 12, 16))
by_place.legend(fontsize=9, loc="lower left", bbox_to_anchor=(0.02, 0.14))
show(figure, "03_accuracy", alt="Left, share of symbols right against n = 4, 8, 16, 32, mean and range of three seeds: "
     "one vector falls from 1 over 0.9 and 0.57 to 0.3; attention stays near 1 up to 16 and falls to 0.6 at 32, with a "
     "range from 0.5 to 0.84, but to 0.99 only if told the places; attention without recurrence stays at 1. Right, by "
     "the place written for n = 16: one vector falls from 0.95 at the first place to 0.25 at the last; attention "
     "begins at about 0.9 and then stays near 1, without recurrence it is 1 everywhere.")

# %% The figure
found = {on_next > on_own: model for model in attentive for on_own, on_next in [shares(model)]}
titles = {False: "recurrent, own state", True: "recurrent, next state"}
shown = {title: found[further] for further, title in titles.items() if further in found} | {"no recurrence": free}
figure, panels = plt.subplots(1, len(shown), figsize=(8, 3.2), sharey=True, layout="constrained")
for panel, (name, model) in zip(panels, shown.items()):
    panel.imshow(model.weights(source, read)[0], COLOUR_MAP, vmin=0, vmax=1, extent=(0.5, 16.5, 16.5, 0.5))
    panel.plot((0.5, 16.5), (16.5, 0.5), color="white", lw=0.8, ls=":")
    panel.set(title=name, xlabel="s: state looked at", xticks=(1, 4, 8, 12, 16), yticks=(1, 4, 8, 12, 16))
panels[0].set_ylabel("t: place written")
figure.colorbar(panels[0].images[0], ax=panels, label="weight", shrink=0.8)
show(figure, "03_alignment", alt="Maps of the weights of one new sequence of 16 for three models; rows are places "
     "written, columns are states looked at, a dotted line marks the anti-diagonal from the upper right to the lower "
     "left corner. Recurrent, own state: the bright cells lie on it. Recurrent, next state: they lie one column "
     "to the right of it, but for the first row. No recurrence: on it, brighter and cleaner than the others.")

# %% [markdown]
# Without any recurrence the task is learnt at every length, at 32 as well, where attention on recurrence was not. The
# controls say what did it:
#
# - **Attention without places** gets no further than naming the commonest symbol. It sees a bag, as *Forward* showed.
# - **Places without attention** do not help the one vector.
# - **Recurrence, attention and places** write nearly everything right at 32. So it was not the recurrence that stood
#   in the way there. What was missing were the places.
#
# Beside carrying symbols, then, the recurrence had a second job here, to say where each symbol stood; at 32 it did
# that job badly, and vectors for the places do it well. And nothing waits any more: where lesson 02 counted a step
# for each symbol, reader and writer together $2n$, all places are now computed at once. (In training, that is. When
# it writes by itself, the symbol before each place must have been written.)
#
# How far does this carry? On this task *where* to look depends on the place alone; the weights hardly vary from one
# sequence to the next. A task in which the symbols decide where to look we have not tested here. And a learned vector
# for each of $n$ places knows nothing of a further one.
#
# ## Check the claim
#
# > "While the two are similar in theoretical complexity, dot-product attention is much faster and more
# > space-efficient in practice, since it can be implemented using highly optimized matrix multiplication code."
# > (§3.2.1)
#
# The two are the additive score, and a plainer one: the sum of products of two vectors,
# $e_{ts} = \sum_k a_{tk} b_{sk}$ with $a_t = s_t W$ and $b_s = h_s U$, the two parts that were added before tanh. (The
# paper has a factor before the sum, left out here.) Does it do the same job?

# %%
try_out("dot product", 16, 0.97, 1, look=DotAttention, reader=Linear, writer=Linear, told="rw")


# %% [markdown]
# It does. Now count, for scores with $T = S = 128$ and $d_a = 32$, and take the time of three ways: the additive
# scores; the dot products written pair by pair, with an array of all products; and the same dot products as one
# matrix product. The middle one is the control: its arithmetic and its result are those of the third.

# %%
def quickest(f, repeat=5 if QUICK else 15):
    """Seconds, the least of some calls"""
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        f()
        times.append(time.perf_counter() - begin)
    return min(times)


T, d_a = 128, 32
a, b, v = random.normal(size=(T, d_a)), random.normal(size=(T, d_a)), random.normal(size=d_a)
ways = {"additive": lambda: np.tanh(a[:, None] + b) @ v, "dot, pair by pair": lambda: (a[:, None] * b).sum(axis=-1),
        "dot, matrix product": lambda: a @ b.T}
same("dot products, both ways", ways["dot, pair by pair"](), ways["dot, matrix product"]())
seconds = {name: quickest(way) for name, way in ways.items()}
for name, second in seconds.items():
    duration(f"scores of {T} places and {T} states, {name}", second)
for slower in "additive", "dot, pair by pair":
    duration(f"{slower}, beside the matrix product", seconds[slower], over=seconds["dot, matrix product"])
layers = [kind(d_a, d_a, d_a, random, "float64") for kind in (AdditiveAttention, DotAttention)]
kept, kept_by_dot = (layer.forward(a[None], b[None])[1] for layer in layers)
measure("numbers kept for backward beyond the inputs, additive: T S d_a of tanh and T S weights",
        kept.score[0].size + kept.weights.size, T * T * (d_a + 1), T * T * (d_a + 1))
measure("    dot product: T d_a and S d_a of the maps, and T S weights", sum(one.size for one in kept_by_dot[1:4]),
        2 * T * d_a + T * T, 2 * T * d_a + T * T)

# %% [markdown]
# "Similar in complexity" holds: beside the maps, each takes $T S d_a$ multiplications, additive scores as many tanh
# on top. "More space-efficient" holds: of the pairs, the dot product keeps one number where the additive score keeps
# $d_a + 1$. "Faster" holds on one core of a CPU; and since the same dot products pair by pair are slow as well, not
# only tanh is to blame. A good part of the gain is the matrix product, as the paper says.
#
# ## Paper and code
#
# - Attention for translation: Bahdanau, Cho and Bengio (2015, *Neural Machine Translation by Jointly Learning to
#   Align and Translate*), with the additive score of this page. Two recurrent networks with one vector between:
#   Sutskever, Vinyals and Le (2014, *Sequence to Sequence Learning with Neural Networks*), who found that reading the
#   source backwards helps; compare the right panel above.
# - *Differs from Bahdanau's model:* theirs has gated units and reads in both directions. There the state $s_{t-1}$
#   asks, and the context goes *into* $s_t$ and on to the scores of the symbols. Here $s_t$ asks, and the context goes
#   beside it into those scores only; so all places of a sequence are computed in one go. That is nearer to Luong, Pham
#   and Manning (2015, *Effective Approaches to Attention-based Neural Machine Translation*), who also compare ways to
#   score.
# - §3.2.1 of "Attention Is All You Need" names both scores and takes the dot product, with a factor. Its model has no
#   recurrence either, and tells the places by vectors; it has many layers of attention.
# - In this project: `AdditiveAttention` in [library/recurrent.py](../lessons/library/recurrent.py), with tests in
#   [test_recurrent.py](../tests/lessons/library/test_recurrent.py). The paper's model does without it.
# - The recorded runs are [benchmarks/reversal.py](../benchmarks/reversal.py).
# - *Limits:* one synthetic task with a fixed order, small networks, 300 steps at one or two learning rates, one length
#   for each training. What longer training makes of attention on recurrence at 32 we have not measured. A hidden layer
#   of another size may do better or worse than $d_a = 16$.
#
# ## Exercises
#
# **Predict.** Training begins with $v = 0$. What does the writer see at first, and which of $dv$, $dW$, $dU$, $ds$
# and $dh$ are zero?
#
# <details><summary>Answer</summary>
#
# All scores are 0, so all weights are $1/S$, and the context is the plain mean. $da$ has the factor $v$: so $dW$,
# $dU$ and $ds$ are 0, and $dh$ has the way into the mean only. $dv$ is not 0 in general: $z$ has no $v$ in it, nor
# has $de$. So the first step moves $v$, and the second one the rest.
#
# </details>
#
# **Build** `03_additive_scores`: the scores of all pairs.
#
# **Build** `03_context`: from scores and states to contexts.
#
# **Backward** `03_additive_backward`: all five gradients, from $dc$.
#
# **Break** `03_bag`: attention sees a bag. Find other states that give every writer the same contexts.
#
# ## Next
#
# One vector $h_s$ does two things here: its scores decide whether it is *found*, and it is *what* is found. In the
# dot product its part for the first is $h_s U$ already; nothing says that the second should be the bare $h_s$.
# [Lesson 04](04_soft_lookup.py) gives them separate names and separate maps, and makes attention a lookup that is
# learnt. The paper's comparison of the two scores stands in section 3.2.1 of [its arXiv
# page](https://arxiv.org/abs/1706.03762).
