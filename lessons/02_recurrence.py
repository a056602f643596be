# %% [markdown]
# # 02 · Reading left to right
#
# **A network of fixed size can read a sentence of any length. What does it forget?**
#
# *Needs [lesson 01](01_backprop.py) (linear maps, softmax with cross-entropy, gradients) · you will write a recurrent
# network and backpropagation through time, and measure how far back its gradient reaches · **side trip**: you can go on
# from lesson 01 to lesson 04 without it.*

# %% Imports
import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from support.drawing import Drawing
from support.lesson import measure, recorded, same, show, table
from support.numeric import numeric_gradient
from support.recall import SYMBOLS, accuracy, model_of, sequences, train
from support.recurrent import RNN, left_in_random_networks, left_of_a_nudge

# %% [markdown]
# Lesson 01 read a sentence as a bag of words. A bag can have any size, but *dog bites man* and *man bites dog* are the
# same bag. A **recurrent neural network** (RNN) keeps the order. It reads one word after the other, and after each word
# it updates its **hidden state**, a vector $h$ of fixed size. The same weights are used at every step, so the length of
# the sentence doesn't matter.
#
# Does such a network remember what it read? Here is a test of memory. An RNN with 64 numbers of state reads $n$ random
# symbols, each 1 to 8, and at the end it must name the *first* one:

# %% The test of memory
x, first = sequences(np.random.default_rng(0), count=2, n=8)
for symbols, answer in zip(x[:, :, 1:].argmax(axis=-1) + 1, first):
    print("reads", *symbols, " and should answer", answer)
for n, lo, hi in (4, 0.99, 1), (16, 0.97, 1), (128, 0.05, 0.2):
    model = model_of("RNN", seed=0)
    train(model, n, rate=0.003, seed=100)                # 200 steps of Adam
    measure(f"accuracy at n = {n}", accuracy(model, n), lo, hi)

# %% [markdown]
# Network and training (200 steps) are the same in all three runs; only $n$ differs. Over 4 or 16 symbols the RNN is
# right. Over 128 symbols the same training leaves it at chance level, one in eight.
#
# What went wrong? Perhaps the state can't hold a symbol for so long. Or perhaps it could, and the training never found
# out how. These are two different failures, and this page tells them apart. (The task is in
# [support/recall.py](../lessons/support/recall.py). Each symbol is a row of numbers with a single 1, and the first
# symbol has a second 1 that marks it as the first. Adam is an optimizer; [lesson 15](15_adam_and_warmup.py) explains
# it.)
#
# ## The picture
#
# Here is the smallest recurrent network: one number of state, and one weight $w$. At each step it takes the state
# before, multiplies it by $w$, adds the input, and sends the sum through tanh, which bends any number into the range
# from −1 to 1:
#
# $$h_t = \tanh(w h_{t-1} + x_t)$$
#
# Figure 1 shows four steps with $w = 1$, side by side. This is called the **unrolled** network: every column is the
# same layer with the same weight.

# %% The drawing
STATES, INPUTS = (0.8, 0.6, 0.8, 0.6), ("1.099", "−0.107", "0.499", "−0.107")
SUMS, FACTORS = ("ln 3", "ln 2", "ln 3", "ln 2"), ("0.64", "0.36", "0.64")
NUDGE, BACK = ("1", "0.64", "0.23", "0.147"), ("0.147", "0.23", "0.64", "1")


def unrolled(backward):
    """The four steps, and what is left of a nudge, or the gradient on its way back."""
    drawing = Drawing(860, 330)
    drawing.text(22, 150, "h_0 = 0", size=15, anchor="start")
    for t, x in enumerate((170, 370, 570, 770)):
        state = drawing.vector(x, 55, [STATES[t]], "forward", above=f"h_{t + 1}")
        layer = drawing.box(x, 150, f"tanh({SUMS[t]})", width=96)
        entry = drawing.vector(x, 240, [INPUTS[t]], cell=70, below=f"x_{t + 1}")
        drawing.arrow(layer.top, state.bottom)
        drawing.arrow(entry.top, layer.bottom)
        start = (75, 150) if t == 0 else (x - 152, 150)
        drawing.arrow(start, layer.left, label="× w")
        if t:
            drawing.text(x - 100, 178, f"slope {FACTORS[t - 1]}", "soft", 13)
        if backward:
            drawing.gradient(x - 12, 300, float(BACK[t]), f"−{BACK[t]}", largest=1)
        else:
            drawing.text(x, 300, NUDGE[t], bold=True)
        if t and backward:
            drawing.arrow((x - 40, 300), (x - 140, 300), "gradient",
                          label=f"× {FACTORS[t - 1]}")
        elif t:
            drawing.arrow((x - 165, 300), (x - 35, 300), label=f"× {FACTORS[t - 1]}")
    drawing.text(22, 300, "gradient" if backward else "nudge", "soft", 13, "start")
    return drawing


show(unrolled(False), "02_unrolled", alt="Four columns from left to right, one for "
     "each step. In each, an input comes from below and the state before from the "
     "left into a tanh; the state above is 0.8, 0.6, 0.8 and 0.6. In a row below, a "
     "nudge of 1 becomes 0.64, 0.23 and 0.147: at each step it is multiplied by the "
     "slope.",
     caption="Four steps of one network. Below: what is left of a small change in the "
     "first state. Only 0.147 of it arrives at the fourth.")

# %% [markdown]
# We chose the inputs so that the sums are ln 3, ln 2, ln 3, ln 2. Since $\tanh a = (e^{2a} - 1) / (e^{2a} + 1)$, the
# states are then (9 − 1)/(9 + 1) = 0.8 and (4 − 1)/(4 + 1) = 0.6, without a calculator.
#
# ## By hand: how much of the first word is left?
#
# Suppose the first word had been a slightly different one, and $h_1$ were larger by a tiny δ. How much larger would
# $h_4$ be? At each step the change is multiplied by two things: by $w$, and by the slope of tanh. At the sum $a$ that
# slope is $1 - \tanh^2 a$, which is simply $1 - h^2$:
#
# | step | factor $w \cdot (1 - h_t^2)$ | what is left of δ |
# |---|---|---|
# | from $h_1$ to $h_2$ = 0.6 | 1 · (1 − 0.36) = 0.64 | 0.64 δ |
# | from $h_2$ to $h_3$ = 0.8 | 1 · (1 − 0.64) = 0.36 | 0.23 δ |
# | from $h_3$ to $h_4$ = 0.6 | 1 · (1 − 0.36) = 0.64 | **0.147 δ** |
#
# After three steps a seventh of the change is left. If the factors went on to alternate between 0.64 and 0.36, thirty
# steps would leave about 0.000 000 000 3 of it. What if $w$ were 2, with inputs chosen so that the states stay the
# same?
#
# <details><summary>Make a guess, then unfold: w = 2</summary>
#
# Every factor doubles: 1.28 · 0.72 · 1.28 = 1.18. Now the change *grows*, by 18 % in three steps. So there are two ways
# for the chain of factors to go wrong. It can **vanish** or **explode**, and only weights in a narrow range keep it
# near 1.
#
# </details>
#
# ## In general
#
# A real network has a vector of $d_{in}$ numbers as its input $x_t$, a vector of $d_{hidden}$ numbers as its state
# $h_t$, a matrix for each, and a bias:
#
# $$a_t = x_t W_x + h_{t-1} W_h + b \qquad h_t = \tanh(a_t)$$
#
# $W_x$ has the shape ($d_{in}$, $d_{hidden}$), $W_h$ has ($d_{hidden}$, $d_{hidden}$), and tanh acts on each number
# alone. $h_0$ is zero unless it is given.
#
# **Your turn.** Write these two formulas for $B$ sequences at once. Then read on. The steps need a loop. The sequences
# don't.

# %% Our solution
def rnn(x, h0, W_x, W_h, b):
    """x (B, T, d_in), h0 (B, d_hidden), W_x (d_in, d_hidden), W_h (d_hidden, d_hidden),
    b (d_hidden,) -> h (B, T, d_hidden)"""
    states, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)         # (B, d_hidden)
        states.append(h)
    return np.stack(states, axis=1)


# %% [markdown]
# The four steps of figure 1, then a larger network. Notice that no weight has $T$ in its shape, and that order matters:
# the same inputs read backwards lead to another state.

# %%
x_by_hand = np.array([np.log(3), np.log(2) - 0.8, np.log(3) - 0.6, np.log(2) - 0.8])
one, none = np.ones((1, 1)), np.zeros((1, 1))
h_by_hand = rnn(x_by_hand.reshape(1, 4, 1), none, one, one, 0)          # (1, 4, 1)
same("the states of figure 1", h_by_hand.ravel(), STATES)

B, T, d_in, d_hidden = 2, 5, 3, 4
random = np.random.default_rng(1)
x, h0 = random.normal(size=(B, T, d_in)), random.normal(size=(B, d_hidden))
W_x, W_h, b = (0.7 * random.normal(size=shape)
               for shape in ((d_in, d_hidden), (d_hidden, d_hidden), d_hidden))
h = rnn(x, h0, W_x, W_h, b)
layer = RNN(d_in, d_hidden, random, "float64")           # the library's
for parameter, ours in zip(layer.parameters().values(), (W_x, b, W_h)):
    parameter.data[...] = ours
library_h, cache = layer.forward(x, h0)
same("states: ours and the library's", h, library_h)
backwards = rnn(x[:, ::-1], h0, W_x, W_h, b)
measure("read backwards, the last state moves by", np.abs(backwards - h)[:, -1].max(),
        0.3, 2)

# %% [markdown]
# ## Backward
#
# Now let the gradient of the loss with respect to $h_4$ be −1: training would make $h_4$ larger. Which gradient arrives
# at the earlier states? It travels the same road in the other direction, so it meets the same three factors, in the
# opposite order.

# %% The drawing, backward
show(unrolled(True), "02_unrolled_backward", alt="The same four columns. In the row "
     "below, arrows now run from right to left: the gradient is −1 at the fourth "
     "state, −0.64 at the third, −0.23 at the second and −0.147 at the first.",
     caption="The same network, backward. The gradient of the last state shrinks on "
     "its way to the first one by exactly the factors by which a nudge shrinks. The "
     "triangles point up because training will make these states larger.")

# %% [markdown]
# The size 0.147 has now appeared twice, and this is the main point of the lesson. **How much a small change of the
# first state moves the last state, and how much gradient comes back from there to the first: it's the same product.**
# If the product is nearly zero, the loss can't tell the early steps what to do.
#
# In general, an output in the middle has **two ways** to the loss. The rest of the model uses $h_t$ directly; call the
# gradient that arrives this way $dh_t$. And the next step reads $h_t$ too, through $W_h$. A state gets the sum of both.
# (In figure 2 only $h_4$ has a direct way.) The weights are used at every step, and each use is one more way to the
# loss, so their gradients are sums over the steps.
#
# **Your turn.** Write the backward pass, all five gradients, on paper or in a cell of your own. Because each step needs
# the gradient of the step after it, you have to walk from the last step to the first. That is all there is to
# **backpropagation through time**. Try for ten minutes, then read on.
#
# **Why it works.** Let $da_t$ be the gradient of the sum $a_t$. Nudge number $k$ of $h_t$ by δ. On the direct way this
# moves the loss by $dh_{tk} \delta$. On the other way, $W_h$ moves number $j$ of $a_{t+1}$ by $(W_h)_{kj} \delta$, and
# that moves the loss by $da_{t+1,j} (W_h)_{kj} \delta$. Summed over $j$, this is number $k$ of $da_{t+1} W_h^T$. Then
# comes tanh, whose slope we know:
#
# $$da_t = (dh_t + da_{t+1} W_h^T) \cdot (1 - h_t^2) \qquad da_T = dh_T \cdot (1 - h_T^2)$$
#
# Everything else is the linear map of lesson 01. The inputs get $dx_t = da_t W_x^T$, the first state gets $dh_0 = da_1
# W_h^T$, and the weights get
#
# $$dW_x = \sum_t x_t^T da_t \qquad dW_h = \sum_t h_{t-1}^T da_t \qquad db = \sum_t da_t$$
#
# Mind the index in the middle: at step $t$, $W_h$ multiplied the state *before* it, $h_{t-1}$.

# %% Our solution
def bptt(dh, x, h0, h, W_x, W_h):
    """dh (B, T, d_hidden), and what forward had -> db, dW_x, dW_h, dx, dh0"""
    da, from_later = np.zeros_like(dh), np.zeros_like(h0)
    for t in reversed(range(dh.shape[1])):
        da[:, t] = (dh[:, t] + from_later) * (1 - h[:, t]**2)
        from_later = da[:, t] @ W_h.T
    before = np.concatenate([h0[:, None], h[:, :-1]], axis=1)  # h_0 ... h_{T-1}
    dW_x, dW_h = np.einsum("bti,btj->ij", x, da), np.einsum("bti,btj->ij", before, da)
    return da.sum(axis=(0, 1)), dW_x, dW_h, da @ W_x.T, from_later


# %% [markdown]
# By hand, for figure 2: the figure has the gradients of the states, and each $da_t$ has the slope of its own step as
# one more factor. So $da_4$ = −1 · 0.64 = −0.64, $da_3$ = −0.64 · 0.36 = −0.230, $da_2$ = −0.230 · 0.64 = −0.147, and
# $da_1$ = −0.147 · 0.36 = −0.053. The gradient of $w$ is −(0.8 · 0.64 + 0.6 · 0.230 + 0.8 · 0.147 + 0 · 0.053) =
# −0.768. Then all five gradients of the larger network against central differences (`numeric_gradient` is that of
# lesson 01), and against the library. The last line is a classic mistake: leave out the way through the next state.

# %%
dh_by_hand = np.array([0, 0, 0, -1.0]).reshape(1, 4, 1)
_, _, dw, da, _ = bptt(dh_by_hand, x_by_hand.reshape(1, 4, 1), none, h_by_hand,
                       one, one)
same("da by hand", -da.ravel(), (0.64**2 * 0.36**2, 0.64**2 * 0.36, 0.64 * 0.36, 0.64))
measure("the gradient of w by hand", dw.item(), -0.7685, -0.7675)

arrays = {"b": b, "W_x": W_x, "W_h": W_h, "x": x, "h0": h0}
dh = random.normal(size=h.shape)


def worst_error(gradients):
    """The largest error of the five, each relative to its largest true element."""
    worst = 0
    for (name, array), gradient in zip(arrays.items(), gradients):
        true = numeric_gradient(
            lambda moved: (rnn(**(arrays | {name: moved})) * dh).sum(), array)
        worst = max(worst, np.abs(gradient - true).max() / np.abs(true).max())
    return worst


gradients = bptt(dh, x, h0, h, W_x, W_h)
measure("all five gradients: worst error", worst_error(gradients), 0, 1e-8)
dx, dh0 = layer.backward(dh, cache)
library = (layer.input.bias.grad, layer.input.weight.grad, layer.recurrent.weight.grad,
           dx, dh0)
same("all five: ours and the library's",
     *(np.concatenate([each.ravel() for each in five])
       for five in (gradients, library)))
*cut, _ = bptt(dh, x, h0, h, W_x, 0 * W_h)  # nothing comes back through W_h
cut.append(dh[:, 0] * (1 - h[:, 0]**2) @ W_h.T)
measure("without the way through the next state", worst_error(cut), 0.2, 5)

# %% [markdown]
# Leaving that way out is called *truncated* backpropagation, and it has been used on purpose, because it's cheap. It
# isn't the gradient, though. And a check with sequences of length 1 would never notice.
#
# ## Experiment 1: how fast does it vanish?
#
# Now a network with 64 numbers of state, random weights and random inputs of variance 1. What counts is the **spectral
# radius** ρ of $W_h$, its largest eigenvalue in absolute value: in the long run, multiplying by $W_h$ alone stretches a
# vector by ρ at each step. We start with a random small difference of length 1 in the first state and follow it for 127
# steps. For which ρ out of 0.9, 1 and 1.1 does it survive?
#
# <details><summary>Make a guess, then unfold: what is left of the difference</summary>

# %%
curves = {}
for rho in 0.9, 1, 1.1, 2, 3:
    curves[f"tanh, ρ = {rho}"] = left_in_random_networks(rho, steps=128)
for rho in 0.9, 1.1:
    curves[f"no tanh, ρ = {rho}"] = left_in_random_networks(rho, 128, linear=True)
small = "tanh, ρ = 1.1, small inputs"
curves[small] = left_in_random_networks(1.1, 128, input_size=0.1)
for name, n, lo, hi in [
        ("tanh, ρ = 0.9", 32, 1e-10, 1e-6), ("tanh, ρ = 1.1", 32, 1e-7, 1e-3),
        ("tanh, ρ = 1.1", 128, 1e-29, 1e-17), ("no tanh, ρ = 1.1", 128, 1e3, 1e6),
        (small, 128, 1e-3, 1), ("tanh, ρ = 3", 128, 1e9, 1e15)]:
    measure(f"{name}: left at step {n}", curves[name][n - 1], lo, hi)

# %% The figure
figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
looks = {"tanh, ρ = 0.9": ("-", DARK), "tanh, ρ = 1": ("--", DARK),
         "tanh, ρ = 1.1": (":", DARK), "tanh, ρ = 2": ("-.", DARK),
         "tanh, ρ = 3": ((0, (8, 2)), DARK), "no tanh, ρ = 0.9": ("-", ACCENT),
         "no tanh, ρ = 1.1": (":", ACCENT), small: (":", LIGHT)}
for name, (style, colour) in looks.items():
    axes.semilogy(np.arange(1, 129), curves[name], ls=style, color=colour, lw=1.8)
    shift = {"tanh, ρ = 2": 60, small: 1 / 60}.get(name, 1)
    axes.text(130, curves[name][-1] * shift, name, va="center", fontsize=9,
              color="black" if colour == LIGHT else colour)
axes.plot([1, 128], [1, 1], color="#999999", lw=0.8)
axes.set(xlabel="step n", ylabel="what is left of a difference of length 1",
         xlim=(1, 178), ylim=(1e-36, 1e15), xticks=[1, 32, 64, 96, 128])
show(figure, "02_what_is_left", alt="Length left of a difference in the first state "
     "against the step up to 128, logarithmic. With tanh and spectral radius 0.9, 1 "
     "and 1.1 it falls along straight lines to 1e-34, 1e-29 and 1e-24. Without tanh, "
     "0.9 falls only to 1e-6 and 1.1 rises to 1e5. With radius 2 it stays near 1, "
     "with 3 it rises to 1e12. With small inputs and 1.1 it ends at about 0.01.",
     caption="Straight lines on a logarithmic axis: about the same share is lost at "
     "every step. With ρ = 1.1 the linear network explodes, and the one with tanh "
     "forgets.")

# %% [markdown]
# For none of the three. Without tanh, ρ decides as one expects: 0.9 vanishes and 1.1 explodes. With tanh even 1.1
# vanishes, and the reason is the slope $1 - h^2$. It is below 1 wherever the inputs have pushed $h$ away from 0, and
# here it is 0.52 on average. (Each number of the state has a slope of its own, so what is left isn't just a power of
# 1.1 · 0.52.) Is it really the slope? Make the inputs ten times smaller, and it is 0.89 on average. Then about 0.01 of
# the difference is left at ρ = 1.1, instead of $10^{-24}$.
#
# Large weights beat the slopes. At ρ = 3 differences grow at every step, and gradients **explode**. The usual
# protection is **gradient clipping**: a gradient longer than 1 is scaled down to length 1. Every training on this page
# does that. ([Lab notes 02, experiment 1](lab/02_recurrence.py#experiment-1-a-nudge-forward-and-the-gradient-backward):
# the slopes, and a nudge compared with the gradient.)
#
# </details>
#
# ## Experiment 2: does a vanishing gradient mean that nothing is learned?
#
# Back to the test of memory. So far we stopped after 200 steps of training. Now each network trains until 99 % of 400
# new sequences are right, or for 3,000 steps. And there is a second network: the same one, but with $W_h$ multiplied by
# 0.8 at the start. Nothing else differs, but less of a nudge survives.
#
# At $n$ = 16 the first one needs 100 steps. What do you expect at $n$ = 32, for the first one and for the second?
#
# <details><summary>Make a guess, then unfold: how many steps of training they need</summary>

# %% Reading the recorded runs
longer = {(row["reader"], row["n"]): row["runs"]
          for row in recorded("first_symbol")["results"] if not row["blank"]}


def steps_needed(runs):
    return ", ".join(f"{run['steps']:,}" for run in runs)


def left_at_start(network, n):
    """How much of a nudge is left before training: geometric mean of three seeds"""
    logs = []
    for seed in 0, 1, 2:
        x, _ = sequences(np.random.default_rng(seed), 1, n)
        logs.append(np.log(left_of_a_nudge(model_of(network, seed).reader, x)))
    return np.exp(np.mean(logs))


# %%
cases = [("RNN", 16), ("RNN, W_h x 0.8", 16), ("RNN", 32), ("RNN, W_h x 0.8", 32),
         ("RNN", 64)]
table(["network", "n", "left of a nudge at the start", "steps needed, three seeds"],
      [[*case, f"{left_at_start(*case):.1g}", steps_needed(longer[case])]
       for case in cases])

# %% The figure
figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
looks = {("RNN", 16): ("black", ":"), ("RNN", 32): (DARK, "-"),
         ("RNN, W_h x 0.8", 32): (ACCENT, "--")}
for (network, n), (colour, style) in looks.items():
    for seed, run in enumerate(longer[network, n]):
        steps = 50 * np.arange(len(run["losses"])) + 25
        axes.plot(steps, run["losses"], style, color=colour, lw=1.6,
                  label=f"{network}, n = {n}" if seed == 0 else None)
axes.axhline(np.log(8), color="#888888", lw=0.8)
axes.text(2240, np.log(8) + 0.04, "chance: ln 8", fontsize=9, ha="right")
axes.set(xlabel="step of training", ylabel="loss, nats", ylim=(0, 2.5), xlim=(0, 2250))
axes.legend(loc="center right", fontsize=9)
show(figure, "02_training", alt="Loss against the step of training, three seeds each. "
     "At n = 16 it falls at once. At n = 32 two runs of the RNN fall at once too, and "
     "the third stays at ln 8 for 1,100 steps. The three runs with the smaller W_h "
     "stay there for 500, 900 and 1,400 steps. Then each falls within 100 to 400 "
     "steps.",
     caption="In four of six runs at n = 32, the loss stays at chance level for "
     "hundreds of steps and then falls quickly.")

# %% [markdown]
# They all learn it. Even over 64 symbols, where 200 steps were not enough for any seed, they need 500, 600 and 2,500.
# But look at figure 4: in four of the six runs at $n$ = 32 nothing happens at all for 500 to 1,400 steps. The loss
# stays at chance level, and then it falls quickly. If you stop during the wait, you'll conclude that the network can't
# do it. (We did, in an earlier version of this page.)
#
# And what does the vanishing do? The two networks of a pair differ only in their start. At $n$ = 16 the one with less
# of a nudge left needs 2.5 to 3 times as many steps. At $n$ = 32 two of three seeds wait longer and one doesn't. So a
# smaller product goes with *slower* training, sometimes so slow that you give up. But this pair can't show that the
# gradient alone is to blame: with a smaller $W_h$, less of the first symbol arrives at the end, too.
#
# And the product isn't everything. As a control, let nothing follow the first symbol: all later inputs are zero. Over
# 64 such steps, the network with the smaller $W_h$ has 0.00003 of a nudge left, and needs only 350 to 400 steps of
# training. The plain RNN among 64 random symbols has 0.01 left, and needs 500 to 2,500. So the *other symbols* matter
# at least as much as the vanishing. We think that one reason is the shared weights: $dW_h$ is a sum over all steps, and
# the late steps, which say nothing about the first symbol, have the largest parts in it. (At $n$ = 128 we stopped after
# 200 steps, so we don't know whether more steps would help there.)
#
# For comparison, one layer of attention, which looks at all 64 symbols directly, needs 100 to 150 steps. ([Lab notes
# 02, experiment 3](lab/02_recurrence.py#experiment-3-how-many-steps-do-they-need): the LSTM, and more controls.)
#
# </details>
#
# ## Can an RNN remember at all?
#
# You will often read that an RNN can't carry information over long distances. It can. Here is one with eight numbers of
# state, one for each symbol, and weights set by hand. $W_h$ has 12.5 on its diagonal, so a state near +1 or −1 pushes
# itself back there at every step. The bias is −5, the mark adds 4 and a symbol adds 2. So at the first step, the number
# of the symbol read gets the sum 4 + 2 − 5 = +1, and all others get 4 − 5 = −1. At the second step $W_h$ has turned
# this into about +9.5 and −9.5. Bias and symbol add −5 or −3, so no sign changes:

# %%
latch = RNN(1 + SYMBOLS, SYMBOLS, random, "float64")
latch.input.weight.data[0] = 4                           # the mark
latch.input.weight.data[1:] = 2 * np.eye(SYMBOLS)        # the symbols
latch.input.bias.data[...] = -5
latch.recurrent.weight.data[...] = 12.5 * np.eye(SYMBOLS)

x, first = sequences(np.random.default_rng(3), 400, 1000)
h, _ = latch.forward(x)
right = h[:, -1].argmax(axis=1) + 1 == first  # the largest number of the state
measure("accuracy at n = 1000, weights set by hand", right.mean(), 1, 1)
for n, lo, hi in (2, 1e-4, 1e-1), (4, 1e-15, 1e-8), (16, 0, 1e-50):
    left = left_of_a_nudge(latch, x[:1, 1:n], h[:1, 0])
    measure(f"left of a nudge after n = {n}", left, lo, hi)

# %% [markdown]
# It remembers perfectly for 1,000 symbols, and a *small* change of its first state is gone after a few steps. Both at
# once? Yes: it's safe *because* it undoes small changes. The first symbol makes a large one, and derivatives only speak
# of small ones. So the memory is there, and the **gradient** is not. This latch doesn't need one, because we set its
# weights by hand. For a network that has to *find* such weights, it's a problem: Bengio, Simard and Frasconi (1994,
# *Learning long-term dependencies with gradient descent is difficult*) showed that a state that holds its content
# safely passes hardly any gradient back.
#
# ## What waiting costs
#
# One more price of reading from left to right. The state of step $t$ needs that of step $t - 1$, and with a tanh in
# between the steps can't simply be grouped. So a sequence of $n$ symbols takes $n$ steps, one after the other. A layer
# of attention, which you met in lesson 00, reads what the layer below has computed for all positions. It doesn't need
# its own result of another position, so all positions can be computed at once. What it pays is arithmetic. With $d_{in}
# = d_{hidden} = d$, the multiplications of a forward pass are:
#
# | | steps that must wait | at each position alone | between positions |
# |---|---|---|---|
# | RNN | $n$ | $n d^2$, for $x_t W_x$ | $n d^2$, for $h_{t-1} W_h$ |
# | attention | 1 | $4 n d^2$, four linear maps | $2 n^2 d$, every position with every other |
#
# So attention does *more* arithmetic than an RNN, and waits less. ([Lab notes 02, experiment
# 4](lab/02_recurrence.py#experiment-4-what-waiting-costs-in-seconds): the same 2,048 symbols as few long sequences or
# as many short ones, in seconds.)
#
# ## Today
#
# Without tanh, $h_t = a_t h_{t-1} + x_t$ is a **linear recurrence**. Its steps can be grouped in pairs, and pairs of
# pairs, so a **parallel scan** needs about $\log_2 n$ rounds instead of $n$. **State-space models** such as Mamba (Gu
# and Dao 2023) work this way, with factors $a_t$ that depend on the input. Their state keeps one size, however long the
# text is. Some large models mix such layers with a few layers of attention.
#
# ## Paper and code
#
# - §1 of ["Attention Is All You Need"](https://arxiv.org/abs/1706.03762) begins with this lesson: the "inherently
#   sequential nature" of recurrent models "precludes parallelization within training examples". §4 and Table 1 give the
#   orders of growth: operations $O(n d^2)$ against $O(n^2 d)$, steps that must wait $O(n)$ against $O(1)$, and the
#   longest path between two positions $O(n)$ against $O(1)$. They leave out the linear maps.
# - The simple network is Elman's (1990, *Finding Structure in Time*), who sent gradients back by one step only. The
#   usual cure against forgetting is the **LSTM** (Hochreiter and Schmidhuber 1997), a network with a second state that
#   hardly anything touches on its way. It remembers further if its gate starts open, and no further than an RNN if it
#   doesn't. ([Lab notes 02](lab/02_recurrence.py#the-lstm).) Gradient clipping: Pascanu, Mikolov and Bengio (2013).
# - In this project: `RNN` in [support/recurrent.py](../lessons/support/recurrent.py). It's there and not in the
#   library, because the paper's model has no recurrence. It computes $x_t W_x + b$ for all steps in one product, since
#   only $h W_h$ has to wait.
#
# ## What to remember
#
# A recurrent network keeps all it has read in one vector of fixed size. A change of an early state, and the gradient
# that comes back to it, pass through the same product of factors, one for each step. If the factors are below 1 the
# product vanishes. Together with the symbols in between, that can make the network take long to learn what it could
# very well remember. And each step has to wait for the one before.
#
# **Yours:** the hunt `blind_check` (find an upstream gradient with which a truncated backward pass goes unnoticed) ·
# `scratchformer learn check blind_check`
#
# **A puzzle.** You run `bptt` with $dh_t = 0$ for all $t$ but the last, on a network with $W_h = 0$. Which of the five
# gradients are zero, and at which steps?
#
# <details><summary>Answer</summary>
#
# Nothing goes back through $W_h$, so $da_t = 0$ for all steps but the last. So $dx_t$ is zero but for the last step,
# and $dh_0$ is zero. $db$ and $dW_x$ get the share of the last step. $dW_h = h_{T-1}^T da_T$ is *not* zero: a weight
# that is zero may well have a gradient.
#
# </details>
#
# **Next:** to translate, one recurrent network can read a sentence and another one write, and all that passes between
# them is the last state. You now know what happens to the first word. But the states of *all* steps were there. [Lesson
# 03](03_bahdanau.py) lets the writer look back at them.
