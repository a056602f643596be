# %% [markdown]
# # 03 · Attention as a patch
#
# **What if a translator could look back at every word it has read?**
#
# *Needs [lesson 01](01_backprop.py) (softmax with cross-entropy, gradients) and [lesson 02](02_recurrence.py)
# (recurrent networks) · you will write the first attention, forward and backward, and then remove the network under it
# · **side trip**: you can go on from lesson 01 to lesson 04 without it.*

# %% Imports
import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, COLOUR_MAP, DARK
from scratchformer.nn.layers import Linear
from support.drawing import Drawing
from support.lesson import measure, recorded, same, show, table
from support.numeric import numeric_gradient
from support.recurrent import AdditiveAttention
from support.reversal import EncoderDecoder, pairs, right, train

# %% [markdown]
# In 2014, a neural translator was two recurrent networks. The first, the **encoder**, reads the sentence. The second,
# the **decoder**, writes the translation, one word after the other. And a single vector passes between them: the
# decoder starts from the encoder's last hidden state. Whatever it will ever know about the sentence must be in that
# vector, which is why it's called the **bottleneck**.
#
# How much gets through? Here is a toy translation: $n$ random symbols, each 1 to 8, must be written in the opposite
# order. Encoder and decoder are the RNN of lesson 02 with 32 numbers of state. At each position the decoder reads the
# symbol before, and a linear map of its state gives 9 **logits**, one for each symbol and one for "nothing".

# %% The toy translation
def reversed_by(n, **options):
    """Train a model for 300 steps
    -> the model; which symbols of 300 new sequences it gets right: bool (300, n)"""
    model = train(EncoderDecoder(n, seed=0, **options))
    return model, right(model)


source, read, target = pairs(np.random.default_rng(5), count=1, n=5)
print("the encoder reads", *source[0], "  the decoder should write", *target[0])
for n, lo, hi in (4, 0.97, 1), (16, 0.45, 0.65):
    _, found = reversed_by(n)
    measure(f"symbols right, n = {n}", found.mean(), lo, hi)
measure("n = 16, the first symbol written", found[:, 0].mean(), 0.9, 1)
measure("n = 16, the last symbol written", found[:, -1].mean(), 0.1, 0.3)

# %% [markdown]
# After 300 steps of training, four symbols come through. Of sixteen, a bit more than half are written right, and the
# last one in 18 % of the sequences, where chance is 12.5 %. That last one was read first. Fifteen other symbols came
# after it in the encoder, and fifteen more in the decoder.
#
# (The decoder reads the *right* symbol before each position, even if it wrote a wrong one itself. That is **teacher
# forcing**. When a model translates on its own, it must read what it wrote: it's **autoregressive**. The code is in
# [support/reversal.py](../lessons/support/reversal.py).)
#
# ## The picture

# %% Two drawings
def machine(weights=None):
    """Encoder, bottleneck and decoder; with weights, the lines back as well."""
    up = 0 if weights is not None else 55
    drawing = Drawing(870, 390 - up)
    encoder, decoder = [], []
    for j, symbol in enumerate(source[0]):
        role = "plain" if up else "value"
        state = drawing.box(60 + 88 * j, 275 - up, f"h_{j + 1}", role, 54)
        drawing.arrow((state.x, 330 - up), state.bottom)
        drawing.text(state.x, 344 - up, str(symbol), bold=True)
        if j:
            drawing.arrow(encoder[-1].right, state.left)
        encoder.append(state)
    for t, symbol in enumerate(target[0]):
        role = "query" if t == 4 and not up else "plain"
        state = drawing.box(540 + 72 * t, 160 - up, f"s_{t + 1}", role, 46)
        drawing.arrow(state.top, (state.x, 104 - up))
        drawing.text(state.x, 90 - up, str(symbol), bold=True)
        if t:
            drawing.arrow((state.x, 218 - up), state.bottom)
            drawing.text(state.x, 232 - up, str(read[0, t]), "soft")
            drawing.arrow(decoder[-1].right, state.left)
        decoder.append(state)
    drawing.text(236, 374 - up, "the encoder reads", "soft", 14)
    drawing.text(590, 256 - up, "the decoder reads the symbol before", "soft", 14,
                 "start")
    vector = drawing.box(540, 275 - up, "h_5", width=54)
    drawing.arrow(encoder[-1].right, vector.left)
    drawing.arrow(vector.top, decoder[0].bottom)
    drawing.text(540, 310 - up, "the bottleneck: one vector", "soft", 14)
    if up:
        return drawing
    context = drawing.box(236, 120, "c_5", "value", width=54)
    for state, weight in zip(encoder, weights):
        drawing.thread(state.top, context.bottom, weight)
        drawing.text(state.x - 8, 242, f"{weight:.2f}", size=13, anchor="end")
    drawing.text(236, 84, "the weighted mean of all h_j", "soft", 14)
    x = decoder[-1].x
    drawing.line([context.right, (470, 120), (470, 40), (x, 40)], "value", 2)
    drawing.arrow((x, 39), (x, 76), "value", width=2)
    asks = decoder[-1].right
    drawing.line([asks, (862, 160), (862, 18), (110, 18), (110, 120)], "query", 2)
    drawing.arrow((109, 120), context.left, "query", width=2)
    drawing.text(300, 34, "s_5 asks: the scores depend on it", "query", 14)
    return drawing


show(machine(), "03_bottleneck", alt="Left, the encoder: five boxes h_1 to h_5 in a "
     "chain, above the symbols 6 7 1 7 4 that it reads. An arrow leads from h_5 to "
     "one vector, the bottleneck, and from there up to the decoder: five boxes s_1 to "
     "s_5 in a chain, below the symbols 4 7 1 7 6 that it writes, above the symbol "
     "before each.",
     caption="Encoder and decoder, and the one vector between them. The 6 was read "
     "first and is written last.")

# %% [markdown]
# The last symbol to be written is the 6. Follow its way in figure 1: it went into $h_1$, and from there through nine
# more steps. But $h_1$, right after the 6 was read, was *there*. The encoder computed all five states, and we threw
# four of them away.
#
# So let the decoder look back. At each position it takes a mean of **all** states of the encoder, and it chooses the
# weights itself.

# %%
model, found = reversed_by(5, look=AdditiveAttention)
measure("symbols right, n = 5, with attention", found.mean(), 0.97, 1)

# %% The second drawing
show(machine(model.weights(source, read)[0, 4]), "03_look_back", alt="The same encoder "
     "and decoder. Lines run from all five states h_1 to h_5 together into c_5, the "
     "weighted mean, and each is as thick as its weight. The line from h_1 is by far "
     "the thickest. A blue line leads from s_5 to c_5: it asks. An arrow "
     "leads from c_5 to the last symbol written.",
     caption="The weights with which a trained model writes its last symbol, the 6. "
     "Most of the weight lies on the state right after the 6 was read. The decoder's "
     "state s_5 (blue) asks, and the mean c_5 (amber) is the answer.")

# %% [markdown]
# This is **attention**, and the weighted mean is called the **context**. Nobody told the model where to look. It
# learned it from the loss.
#
# ## In general
#
# Call the states of the encoder $h_1, \dots, h_S$, and those of the decoder $s_1, \dots, s_T$. (In the formulas $j$
# counts encoder positions and $t$ counts decoder positions.) Each position $t$ needs three steps.
#
# **1. Scores.** A number $e_{tj}$ says how well the decoder's state $s_t$ fits the encoder's state $h_j$. A small
# network with one hidden layer computes it, with learned matrices $W$, $U$ and a learned vector $v$:
#
# $$z_{tj} = \tanh(s_t W + h_j U) \qquad e_{tj} = \sum_k z_{tjk} v_k$$
#
# **2. Weights.** Softmax turns the scores of one position $t$ into weights that are positive and add up to one. In
# lesson 01 it made probabilities of classes; here it makes weights of states.
#
# **3. Context.** The mean of the states with these weights:
#
# $$w_{tj} = \frac{\exp(e_{tj})}{\sum_r \exp(e_{tr})} \qquad c_t = \sum_j w_{tj} h_j$$
#
# An example by hand: two states, $h_1$ = (4, 0) and $h_2$ = (0, 8), and a hidden layer of one number. Say $s W$ = ln 2,
# $h_1 U$ = 0, $h_2 U$ = −ln 2 and $v$ = 1.83. The sums are ln 2 and 0, and tanh makes 0.6 and 0 of them (0.6 is (4 −
# 1)/(4 + 1), as in lesson 02). So the scores are 0.6 · 1.83 = 1.10, which is ln 3, and 0. The exponentials are 3 and 1,
# so the weights are 3/4 and 1/4, and the context is 3/4 · (4, 0) + 1/4 · (0, 8) = (3, 2).
#
# The logits of the next symbol are then a linear map of $s_t$ and $c_t$ side by side.
#
# **Your turn.** Write the three steps, before you unfold ours. The shapes are $W$ ($d_s$, $d_a$), $U$ ($d_h$, $d_a$)
# and $v$ ($d_a$,).

# %% Our solution
def softmax(e):
    """e (..., S) -> weights (..., S), each row positive and adding up to 1"""
    powers = np.exp(e - e.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def look_back(s, h, W, U, v, bend=np.tanh):
    """s (B, T, d_s), h (B, S, d_h), W (d_s, d_a), U (d_h, d_a), v (d_a,)
    -> c (B, T, d_h), weights (B, T, S), z (B, T, S, d_a)"""
    z = bend((s @ W)[:, :, None] + (h @ U)[:, None])  # (B, T, 1, d_a) + (B, 1, S, d_a)
    weights = softmax(z @ v)                             # z @ v: e (B, T, S)
    return weights @ h, weights, z


# %% [markdown]
# Why the tanh? Without it, the score would be $s_t W v + h_j U v$. The first part is the same number for all states
# $j$, and softmax ignores what is added to all scores alike. Every position $t$ would get the same weights. With tanh,
# which state fits best depends on who asks. Let's check that, with 3 positions to write and 4 states to look at:

# %%
B, T, S, d_s, d_h, d_a = 2, 3, 4, 5, 6, 7
random = np.random.default_rng(1)
layer = AdditiveAttention(d_s, d_h, d_a, random, "float64")             # the library's
W, U, v = layer.query.weight.data, layer.key.weight.data, layer.score.weight.data[:, 0]
s, h = random.normal(size=(B, T, d_s)), random.normal(size=(B, S, d_h))
c, weights, z = look_back(s, h, W, U, v)
library_c, cache = layer.forward(s, h)
same("contexts: ours and the library's", c, library_c)
for name, bend, lo, hi in (("with tanh", np.tanh, 0.05, 0.9),
                           ("without tanh", lambda a: a, 0, 1e-14)):
    _, others, _ = look_back(s, h, W, U, v, bend)
    measure(f"{name}, weights of two positions differ by", np.ptp(others, axis=1).max(),
            lo, hi)
same("contexts with the states in another order",
     look_back(s, h[:, [2, 0, 3, 1]], W, U, v)[0], c)

# %% [markdown]
# Keep the last line in mind. The context is a sum over the states, and a sum has no order. So attention sees a *bag* of
# states: it knows only as much about positions as the states themselves contain.
#
# ## Backward
#
# First by hand, with the two states from above: weights 3/4 and 1/4, context (3, 2). Suppose $dc$ = (−1, 0): training
# would make the first number of the context larger. For that number, $h_1$ offers 4 and $h_2$ offers 0. Which score
# should rise?
#
# The average of what they offer is what we already have, 3. State 1 offers 1 more than the average, and state 2 offers
# 3 less. Softmax changes each weight in proportion to that weight, so a small rise of score 1 raises the number by 3/4
# · (4 − 3) = 0.75 per unit, and one of score 2 by 1/4 · (0 − 3) = −0.75. With $dc$ = −1 the gradients of the scores are
# −0.75 and +0.75: training raises the first score and lowers the second. Weight can only move from one state to
# another.
#
# The general rule follows from lesson 01. There, with state $j$ as the right class, the loss $-\ln w_j$ had the
# derivative $w_r - [j = r]$ with respect to the score $e_r$, where $[j = r]$ is 1 if both are the same and 0 otherwise.
# The derivative of $-\ln w_j$ is that of $w_j$, divided by $-w_j$. So multiply by $-w_j$: the derivative of $w_j$
# itself is $w_j ([j = r] - w_r)$. A score has a way to the loss through every weight of its row, and the ways add up
# (for one position, so $t$ is left out):
#
# $$de_r = \sum_j dw_j w_j ([j = r] - w_r) = w_r \left( dw_r - \sum_j w_j dw_j \right)$$
#
# with $dw_j = \sum_k dc_k h_{jk}$, what state $j$ offers. That is the new idea. The rest you know: a tanh, linear maps,
# and sums wherever one thing was used many times. One trap is left. A state $h_j$ has **two ways** to the loss: into
# the scores, which decide where to look, and into the mean itself, as what is found.
#
# **Your turn.** Write all five gradients, before you unfold ours.
#
# **The rest in formulas.** $v$ is used for every pair: $dv_k = \sum_{tj} z_{tjk} de_{tj}$. The sum before tanh gets
# $da_{tjk} = de_{tj} v_k (1 - z_{tjk}^2)$. Forward, $s_t W$ was copied to all $S$ states, and $h_j U$ to all $T$
# positions. *Where forward copies, backward adds*:
#
# $$ds_t = \left( \sum_j da_{tj} \right) W^T \qquad dW = \sum_t s_t^T \sum_j da_{tj} \qquad
# dU = \sum_j h_j^T \sum_t da_{tj}$$
#
# $$dh_j = \left( \sum_t da_{tj} \right) U^T + \sum_t w_{tj} dc_t$$

# %% Our solution
def softmax_backward(dweights, weights):
    """dweights, weights (..., S) -> de (..., S)"""
    average = (weights * dweights).sum(axis=-1, keepdims=True)
    return weights * (dweights - average)


def look_back_backward(dc, s, h, W, U, v, weights, z):
    """dc (B, T, d_h), and what forward had -> dv, dW, dU, ds, dh"""
    de = softmax_backward(dc @ h.swapaxes(1, 2), weights)               # (B, T, S)
    dv = np.einsum("btjk,btj->k", z, de)
    da = de[..., None] * v * (1 - z**2)                                 # (B, T, S, d_a)
    da_s, da_h = da.sum(axis=2), da.sum(axis=1)          # (B, T, d_a), (B, S, d_a)
    dW, dU = np.einsum("bti,btk->ik", s, da_s), np.einsum("bji,bjk->ik", h, da_h)
    return dv, dW, dU, da_s @ W.T, da_h @ U.T + weights.swapaxes(1, 2) @ dc


# %% [markdown]
# The example by hand, all five gradients against central differences and against the library, and the trap: $dh$ with
# one of its two ways left out.

# %%
same("de by hand", softmax_backward(np.array([-4, 0]), np.array([0.75, 0.25])),
     (-0.75, 0.75))
arrays = {"v": v, "W": W, "U": U, "s": s, "h": h}
dc = random.normal(size=c.shape)
gradients = dict(zip(arrays, look_back_backward(dc, s, h, W, U, v, weights, z)))
true = {name: numeric_gradient(
            lambda moved: (look_back(**arrays | {name: moved})[0] * dc).sum(), array)
        for name, array in arrays.items()}


def error(gradient, name):
    """The largest error, relative to the largest true element"""
    return np.abs(gradient - true[name]).max() / np.abs(true[name]).max()


measure("all five gradients: worst error",
        max(error(gradients[name], name) for name in arrays), 0, 1e-8)
library_ds, library_dh = layer.backward(dc, cache)
library = (layer.score.weight.grad, layer.query.weight.grad, layer.key.weight.grad,
           library_ds, library_dh)
same("all five: ours and the library's",
     *(np.concatenate([each.ravel() for each in five])
       for five in (gradients.values(), library)))
found = weights.swapaxes(1, 2) @ dc
measure("dh without the way through the scores", error(found, "h"), 0.05, 1.5)
measure("dh without the way into the mean", error(gradients["h"] - found, "h"),
        0.3, 1.5)

# %% [markdown]
# ## Experiment 1: does looking back help?
#
# The same task with 16 symbols, now with attention ($d_a = 16$). It has more weights than the model with one vector,
# and the decoder now has a short way to every state. Perhaps that is all it needs? So there are three controls: a
# bottleneck of 64 numbers instead of 32; one vector with 4 and 16 times as many steps of training; and the **plain
# mean** of all states instead of the weighted one. What do you expect of the plain mean?
#
# <details><summary>Make a guess, then unfold: symbols right, n = 16</summary>

# %% Reading the recorded runs
rows = {(row["model"], row["n"]): row for row in recorded("reversal")["results"]}


def in_cells(model, n):
    """A row of a table: steps, weights, the three seeds."""
    row = rows[model, n]
    return (f"{row['steps']:,}", f"{row['parameters']:,}",
            ", ".join(f"{share:.2f}" for share in row["accuracy"]["by_seed"]))


names = {"one vector": "one vector of 32 numbers",
         "one vector, 64 numbers, rate 0.003": "one vector of 64 numbers",
         "one vector, 4 x the steps": "one vector of 32 numbers",
         "one vector, 16 x the steps": "one vector of 32 numbers",
         "plain mean": "plain mean of all states", "attention": "attention"}
table(["between encoder and decoder", "steps", "weights", "symbols right, three seeds"],
      [[name, *in_cells(model, 16)] for model, name in names.items()])
for model, lo, hi in [
        ("one vector", 0.52, 0.6), ("one vector, 16 x the steps", 0.8, 0.9),
        ("plain mean", 0.58, 0.66), ("attention", 0.95, 1)]:
    assert lo < rows[model, 16]["accuracy"]["mean"] < hi

# %% The figure
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
looks = {"attention": ("s-", ACCENT, "attention, 300 steps", 0),
         "one vector, 16 x the steps": ("o--", DARK, "one vector, 4,800 steps", 0),
         "plain mean": ("^:", "black", "plain mean, 300 steps", 0.03),
         "one vector": ("o-", DARK, "one vector, 300 steps", -0.03)}
for model, (style, colour, words, shift) in looks.items():
    shares = rows[model, 16]["by_position"]
    axes.plot(range(1, 17), shares, style, color=colour, lw=1.6, ms=4)
    axes.text(16.3, shares[-1] + shift, words, color=colour, va="center", fontsize=9)
axes.axhline(1 / 8, color="#888888", lw=0.8)
axes.text(1, 0.14, "chance", fontsize=9)
axes.set(ylim=(0, 1.04), xlim=(0.5, 21.5), ylabel="share of symbols right",
         xticks=(1, 4, 8, 12, 16), xlabel="position written (position 1 was read last)")
show(figure, "03_accuracy", alt="Share of symbols right against the position written, "
     "1 to 16, mean of three seeds. One vector with 300 steps falls from 0.95 to "
     "0.25, the plain mean from 0.93 to 0.4, and one vector with 4,800 steps from "
     "0.95 to 0.69. Attention stays near 1 from the second position on.",
     caption="With one vector, the symbols that were read first are lost first. With "
     "attention only the first symbol written falls behind, with 0.91.")

# %% [markdown]
# The plain mean hardly helps: a short way to every state isn't enough. The decoder has to *choose*. A wider bottleneck
# and more training do help (the model with 64 numbers has a smaller learning rate, which suits it better; at the rate
# of the others it gets 0.62), so the bottleneck isn't a wall. But one vector with 16 times as many steps is still
# behind attention, and so is the plain mean with 4 times as many. ([Lab notes 03, experiment
# 1](lab/03_bahdanau.py#experiment-1-the-bottleneck-with-other-sizes-rates-and-steps): other lengths, learning rates and
# steps.)
#
# </details>
#
# ## Where does it look?
#
# To write position $t$ of 16, the decoder needs the symbol read at position $17 - t$. So we expect large weights on the
# diagonal from the upper right to the lower left. Here is that model, trained live, and beside it the one of the next
# section.

# %% Two trained models
attentive, found = reversed_by(16, look=AdditiveAttention)
measure("attention, n = 16: symbols right", found.mean(), 0.9, 1)
no_recurrence, found = reversed_by(16, look=AdditiveAttention, encoder=Linear,
                                   decoder=Linear, positions="ed")
measure("no recurrence, n = 16: symbols right", found.mean(), 0.98, 1)
source, read, _ = pairs(np.random.default_rng(5), 200, 16)

# %% The figure
figure, panels = plt.subplots(1, 2, figsize=(7.6, 3.7), sharey=True,
                              layout="constrained")
for panel, name, model in zip(panels, ("attention over recurrence", "no recurrence"),
                              (attentive, no_recurrence)):
    panel.imshow(model.weights(source, read)[0], COLOUR_MAP, vmin=0, vmax=1,
                 extent=(0.5, 16.5, 16.5, 0.5))
    panel.plot((0.5, 16.5), (16.5, 0.5), color="white", lw=0.8, ls=":")
    panel.set(title=name, xlabel="j: state looked at", xticks=(1, 4, 8, 12, 16),
              yticks=(1, 4, 8, 12, 16))
panels[0].set_ylabel("t: position written")
figure.colorbar(panels[0].images[0], ax=panels, label="weight", shrink=0.8)
show(figure, "03_alignment", alt="Two maps of weights for one new sequence of 16. Rows "
     "are positions written, columns are states looked at. The bright cells lie on or "
     "beside the diagonal from the upper right to the lower left, more cleanly in the "
     "second map.",
     caption="The model found the alignment by itself: each position looks at the "
     "state of the symbol it needs, or at the state right after it.")

# %% [markdown]
# Such a map is called an **alignment**. Be careful when you read one. Of three seeds, two look *one state further on*
# (figure 4 shows the one that doesn't). They are right all the same, because the recurrent state after one symbol still
# holds the symbol before. A map says which state is read, and not which symbol it's read for. ([Lab notes 03,
# experiment 2](lab/03_bahdanau.py#experiment-2-which-state-is-read).)
#
# ## Experiment 2: take the recurrence away
#
# Attention came as a patch on a recurrent network. What happens if we remove the network under it? Now encoder and
# decoder are linear maps of one symbol at a time, and no vector passes from the end of the one to the start of the
# other. Nothing is left that could count, so each position is *given* as a second input, a 1 in a row of $n$ further
# numbers. (The input then has two ones, so its linear map is a sum of two learned vectors: one for the symbol, one for
# the position.)
#
# Which of these will learn to reverse 32 symbols?
#
# <details><summary>Make a guess, then unfold: with and without recurrence and positions</summary>

# %% The recorded runs
cases = [("attention", 32, "recurrence"),
         ("attention, 4 x the steps", 32, "recurrence"),
         ("attention, 8 x the steps", 32, "recurrence"),
         ("attention, with positions", 32, "recurrence, positions"),
         ("no recurrence", 32, "positions"),
         ("no recurrence, no positions", 16, "neither"),
         ("no recurrence, no positions, 4 x the steps", 16, "neither")]
table(["attention over", "n", "steps", "weights", "symbols right, three seeds"],
      [[name, n, *in_cells(model, n)] for model, n, name in cases])
for model, n, lo, hi in [
        ("attention", 32, 0.5, 0.7), ("attention, 4 x the steps", 32, 0.8, 0.95),
        ("no recurrence", 32, 0.99, 1), ("attention, with positions", 32, 0.99, 1),
        ("no recurrence, no positions, 4 x the steps", 16, 0.25, 0.28)]:
    assert lo < rows[model, n]["accuracy"]["mean"] <= hi

# %% [markdown]
# Without recurrence, but with positions, everything is right after 300 steps. Without either, attention sees a bag, as
# we found above, and can only name the most frequent symbol (0.26 for 16 symbols); more steps change nothing. Attention
# over recurrent states, without given positions, is in between. The recurrence does tell positions apart, because its
# state changes at every step. But the model needs much longer to make use of that: after 300 steps one seed of three
# gets most symbols right, after 1,200 all three do. As soon as the same model is given the positions, 300 steps are
# enough.
#
# </details>
#
# So on this task, recurrence isn't needed for carrying the symbols, and for telling positions it is the slow way.
# Without it, nothing has to wait: the RNNs of lesson 02 need one step after the other, and now all positions are
# computed at once. (In training, that is. A model that translates on its own still has to wait for its own last word.)
#
# How far does this carry? Here *where* to look depends on the position alone. In real sentences it depends on the
# words, and that is the subject of the next lessons.
#
# ## Today
#
# A decoder that looks back at an encoder is now said to use **cross-attention**. In the Transformer every layer of the
# decoder does it, with dot products as scores ([lesson 13](13_whole_model.py)). Translators and speech recognisers such
# as Whisper still work this way. Most chat models have no encoder: question and answer stand in one sequence, and
# **self-attention** looks back at both.
#
# ## Paper and code
#
# - Attention for translation: Bahdanau, Cho and Bengio (2015, *Neural Machine Translation by Jointly Learning to Align
#   and Translate*), with the **additive** score of this page; they write $\alpha_{ij}$ for our weights. Encoder,
#   decoder and one vector: Sutskever, Vinyals and Le (2014, *Sequence to Sequence Learning with Neural Networks*), who
#   found that reading the source backwards helps. Figure 3 shows why it might: the words read last are kept best.
# - In Bahdanau's model $s_{t-1}$ asks, and the context goes *into* $s_t$. Here $s_t$ asks, and the context goes beside
#   it into the logits, as in Luong, Pham and Manning (2015, *Effective Approaches to Attention-based Neural Machine
#   Translation*), so the attention of all positions can be computed at once. (The decoder's states still come one after
#   the other.) Bahdanau's model also reads in both directions and has gated units.
# - "Attention Is All You Need", §3.2.1, takes a plainer score, the **dot product**. On this page's task it does equally
#   well, and it is faster, as the paper says. ([Lab notes 03, experiment
#   4](lab/03_bahdanau.py#experiment-4-additive-scores-and-dot-products).)
# - In this project: `AdditiveAttention` in [support/recurrent.py](../lessons/support/recurrent.py). The paper's model
#   does without it.
#
# ## What to remember
#
# With attention, a decoder doesn't have to squeeze the sentence through one vector: at each position it takes a
# weighted mean of all encoder states, with weights from a softmax of learned scores. Looking back takes one step from
# any state, near or far, but attention alone sees a bag. If the positions are given as inputs, the recurrence can go.
#
# **A puzzle.** Training begins with $v = 0$. What does the decoder see at first, and which of $dv$, $dW$, $dU$, $ds$
# and $dh$ are zero?
#
# <details><summary>Answer</summary>
#
# All scores are 0, so all weights are $1/S$, and the context is the plain mean. $da$ has the factor $v$, so $dW$, $dU$
# and $ds$ are zero, and $dh$ has only its way into the mean. $dv$ is not zero in general, because neither $z$ nor $de$
# has the factor $v$. The first step moves $v$, and from the second step on the rest learns too.
#
# </details>
#
# **Next:** one vector $h_j$ does two things here. Its score decides whether it is *found*, and it is *what* is found.
# [Lesson 04](04_soft_lookup.py) separates the two into keys and values.
