# %% [markdown]
# # 02 · Reading left to right
#
# **A network of fixed size can read a sentence of any length. What does it forget?**
#
# *Needs [lesson 01](01_backprop.py) (gradients, linear maps, softmax with cross-entropy) · you will follow one number
# through a recurrent network, and its gradient back, with pencil and paper · **side trip**: you can go on from lesson
# 01 to lesson 04 without it.*

# %% Imports
from functools import partial

import numpy as np

from support.drawing import Drawing
from support.lesson import recorded, show, table
from support.numeric import numeric_gradient
from support.recall import sequences

# %% [markdown]
# Lesson 01 read a sentence as a bag of words. To a bag, *dog bites man* and *man bites dog* are the same. A **recurrent
# neural network** (RNN) keeps the order. It reads one word after the other, and after each word it updates its **hidden
# state**, a vector of fixed size. Every step uses the same weights, so a sentence may have any length.
#
# Does it remember? A network with 64 numbers of state reads $n$ random symbols, each 1 to 8. From its last state, a
# linear map must name the *first* symbol, which carries a mark. (Attention, which takes the same test at the end,
# couldn't know otherwise which one is the first.) Three runs, with other random weights:

# %% The test of memory, and the recorded runs
x, first = sequences(np.random.default_rng(0), count=2, n=8)
for symbols, answer in zip(x[:, :, 1:].argmax(axis=-1) + 1, first):
    print("reads", *symbols, " and should answer", answer)
result = recorded("first_symbol")
plans = {tuple(map(tuple, row["plan"])): row["runs"] for row in result["plans"]}
runs = {(row["reader"], row["n"]): row["runs"] for row in result["results"]}
table(["n", "right after 200 steps: run 1", "run 2", "run 3"],
      [[n, *(f"{run['accuracy']['trained']:.2f}" for run in plans[(n, 200),])]
       for n in (4, 16, 128)])

# %% [markdown]
# A guess has 0.125. Over 128 symbols, run 1 does no better, run 3 a little, and run 2 worse.
#
# Why? Perhaps 64 numbers can't hold a symbol for so long. Or they can, but the training hasn't found the weights for
# it. Which of the two is it?
#
# ## The picture
#
# The smallest recurrent network has one number of state and one weight, $w$. At each step it multiplies the old state
# by $w$, adds the input, and sends the sum through tanh, which bends any number into the range from −1 to 1:
#
# $$a_t = w h_{t-1} + x_t \qquad h_t = \tanh(a_t)$$

# %% The drawing
W, STATES, SLOPES = 1.25, (0.8, 0.6, 0.8, 0.6), (0.36, 0.64, 0.36, 0.64)
SUMS, INPUTS = ("ln 3", "ln 2", "ln 3", "ln 2"), ("1.099", "−0.307", "0.349", "−0.307")
NUDGE_H = "1 δ", "0.8 δ", "0.36 δ", "0.288 δ"
NUDGE_A = "", "1.25 δ", "1 δ", "0.45 δ"
DH, DA = (0.288, 0.36, 0.8, 1), (0.104, 0.23, 0.288, 0.64)
SHARES = ("0", "−0.184", "−0.173", "−0.512")


def unrolled(backward):
    """Figures 1 and 2: four steps, with a change of the first state, or gradients."""
    drawing = Drawing(860, 365 if backward else 330)
    for y, words in (60, "state h"), (165, "sum a"), (270, "input x"):
        drawing.text(14, y, words, "soft", 14, "start")
    before = None
    for t, x in enumerate((135, 340, 545, 750)):
        state = drawing.vector(x, 60, [STATES[t]], "forward", 54, above=f"h_{t + 1}")
        total = drawing.vector(x, 165, [SUMS[t]], cell=60)
        entry = drawing.vector(x, 270, [INPUTS[t]], cell=70, below=f"x_{t + 1}")
        drawing.arrow(entry.top, total.bottom)
        if backward:
            drawing.arrow((x + 8, 77), (x + 8, 148), "gradient", bend=0.01)
            drawing.text(x + 20, 112, f"× {SLOPES[t]}", "gradient", 13, "start",
                         italic=True)
            drawing.gradient(x + 46, 60, DH[t], f"−{DH[t]:g}")
            drawing.gradient(x + 48, 165, DA[t], f"−{DA[t]:g}")
            drawing.text(x, 335, SHARES[t], "gradient", 15, italic=True)
        else:
            drawing.arrow(total.top, state.bottom, label="tanh")
            if t:
                drawing.text(x + 12, 132, f"slope {SLOPES[t]}", "soft", 13, "start")
            drawing.text(x + 34, 60, NUDGE_H[t], "forward", 15, "start", bold=True)
            drawing.text(x + 37, 165, NUDGE_A[t], "forward", 15, "start", bold=True)
        if before:
            start, end = (before.x + 24, 77), (x - 30, 155)
            if backward:
                drawing.arrow(end, start, "gradient")
            else:
                drawing.arrow(start, end)
            drawing.text(x - 92, 100, f"× {W}", "gradient" if backward else "soft", 13,
                         "start", italic=backward)
        before = state
    if backward:
        drawing.text(14, 335, "share of dw", "gradient", 14, "start", italic=True)
    return drawing


show(unrolled(backward=False), "02_unrolled",
     alt="Four columns from left to right, one for each step. In each, an input from "
     "below and 1.25 times the state before make a sum: ln 3, ln 2, ln 3, ln 2. Its "
     "tanh is the state: 0.8, 0.6, 0.8, 0.6. A change of δ in the first state becomes "
     "1.25 δ in the next sum, 0.8 δ in the next state, then 1 δ, 0.36 δ, 0.45 δ and "
     "0.288 δ in the fourth state.",
     caption="Four steps of one network with w = 1.25, side by side: the network is "
     "**unrolled**. In blue, what a change of δ in the first state does to the rest.")

# %% [markdown]
# ## By hand
#
# **Forward.** Follow figure 1. Before the first word the state is 0, so the first sum is the input, 1.099 = ln 3. For
# the state we need
#
# $$\tanh a = \frac{e^{2a} - 1}{e^{2a} + 1}$$
#
# With $a$ = ln 3, $e^{2a}$ is 9, and the state is 8/10 = **0.8**. The second sum is 1.25 · 0.8 − 0.307 = 0.693 = ln 2.
# Now $e^{2a}$ is 4, and the state is 3/5 = **0.6**. We chose the other inputs so that 0.8 and 0.6 come again.
#
# **A small change.** Suppose that with another first word, $h_1$ is larger by a tiny δ. How much larger is $h_4$? In
# each step the change is multiplied by $w$, and then by the slope of tanh, which is $1 - h^2$. (Why? Write tanh as
# $(e^a - e^{-a}) / (e^a + e^{-a})$. The derivative of its numerator is its denominator, and the other way round. So the
# quotient rule gives (denominator² − numerator²) / denominator² = $1 - h^2$.)
#
# | step | w · slope | left of δ |
# |---|---|---|
# | from $h_1$ to $h_2$ = 0.6 | 1.25 · (1 − 0.36) = 0.8 | 0.8 δ |
# | from $h_2$ to $h_3$ = 0.8 | 1.25 · (1 − 0.64) = 0.45 | 0.36 δ |
# | from $h_3$ to $h_4$ = 0.6 | 1.25 · (1 − 0.36) = 0.8 | **0.288 δ** |
#
# You might expect a weight above 1 to make the change grow. But the slopes take away more than $w$ adds. Two steps
# leave 0.36 of it, and twenty steps $0.36^{10}$ = 0.00004. The change **vanishes**.
#
# Now you: let $w$ be 2.5, with inputs chosen so that the states stay the same. What is left of δ in $h_4$? And after
# twenty steps?
#
# <details><summary>Calculate, then unfold</summary>
#
# The factors are twice as large: 1.6 · 0.9 · 1.6 = 2.304. Two steps multiply the change by 1.44, and twenty steps by
# 38: it **explodes**. (So our trainings shorten long gradients: **gradient clipping**.)
#
# </details>
#
# **Is the first word forgotten, then?** Not always. Let $w$ be 4, and all inputs between −1 and 1. Say that a state is
# above 0.99. Even with the lowest input, −1, the next sum is above 4 · 0.99 − 1 = 2.96. tanh 2.96 is 0.995, so the next
# state is above 0.99, too. In the same way, a state below −0.99 stays below. So this network remembers one yes or no
# forever. But its slopes are below 1 − 0.99² = 0.02, so each step leaves less than 4 · 0.02 = 0.08 of a small change. A
# network can remember, although small changes vanish in it. And only small changes give a gradient.
#
# ## In general
#
# In a real network, the input $x_t$ is a vector of $d_{in}$ numbers, and the state $h_t$ one of $d_{hidden}$. Each has
# a matrix, and there is a bias:
#
# $$a_t = x_t W_x + h_{t-1} W_h + b \qquad h_t = \tanh(a_t)$$
#
# $W_x$ is ($d_{in}$, $d_{hidden}$), $W_h$ is ($d_{hidden}$, $d_{hidden}$), $b$ is ($d_{hidden}$,). tanh works on each
# number alone. (Figure 1 has $W_h$ = 1.25, $W_x$ = 1 and $b$ = 0.) For $B$ sentences of $T$ words at once:

# %%
def rnn(x, h0, W_x, W_h, b):
    """x (B, T, d_in), h0 (B, d_hidden) -> all states h (B, T, d_hidden)"""
    states, h = [], h0
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ W_x + h @ W_h + b)            # (B, d_hidden)
        states.append(h)
    return np.stack(states, axis=1)


# %% [markdown]
# ## Backward
#
# Let the gradient of the loss with respect to $h_4$ be −1, so training wants $h_4$ to grow. Going back along the
# arrows, the gradient meets the same factors:

# %% The drawing, backward
show(unrolled(backward=True), "02_unrolled_backward",
     alt="The same four columns, with gradients that go from right to left. At the "
     "states: −1 at the fourth, then −0.8, −0.36 and −0.288 at the first. At the sums: "
     "−0.64, −0.288, −0.23, −0.104. The shares of dw are 0, −0.184, −0.173, −0.512.",
     caption="The same network, backward. The triangles point up because training will "
     "make these numbers larger.")

# %% [markdown]
# There is 0.288 again, now at $h_1$. **A small change on its way forward and a gradient on its way back are multiplied
# by the same product.** If it is nearly zero, the loss can't tell
# the early steps what to do.
#
# **The weight.** All steps use the same $w$. Each has a share in $dw$, by the rule of lesson 01: what went in, times
# what comes back. At step 4, $h_3$ = 0.8 went in, and −0.64 comes back to the sum: −0.512. Step 3 has 0.6 · (−0.288) =
# −0.173, step 2 has 0.8 · (−0.23) = −0.184, and step 1 has 0, because $h_0$ = 0. The sum is $dw$ = −0.869, and more
# than half of it comes from the last step. If the product vanishes in a long sentence, the shares of the early steps
# are tiny, and the late ones **drown** them.
#
# **In general.** A state has two ways to the loss. One is its own output; call the gradient from there $dh_t$. (In
# figure 2 only $h_4$ has an output.) The other is the next step: it reads $h_t$ through $W_h$, and sends back $da_{t+1}
# W_h^T$. Both gradients add up, and then comes the slope, number by number:
#
# $$da_t = (dh_t + da_{t+1} W_h^T) \cdot (1 - h_t^2) \qquad da_T = dh_T \cdot (1 - h_T^2)$$
#
# The rest is the linear map of lesson 01, with one share for each step. The inputs get gradients, too:
#
# $$dW_h = \sum_t h_{t-1}^T da_t \qquad dW_x = \sum_t x_t^T da_t \qquad db = \sum_t da_t$$
#
# $$dx_t = da_t W_x^T \qquad dh_0 = da_1 W_h^T$$
#
# Since $da_t$ needs $da_{t+1}$, we go from the last step to the first: **backpropagation through time**.
#
# **Your turn.** Write `bptt(dh, x, h0, h, W_x, W_h)` in place of ours. It returns dx, dh0, dW_x, dW_h, db, and the cell
# after it checks them.

# %% Our solution
def bptt(dh, x, h0, h, W_x, W_h):
    """dh (B, T, d_hidden), and what forward had -> dx, dh0, dW_x, dW_h, db"""
    da, from_later = np.zeros_like(dh), np.zeros_like(h0)
    for t in reversed(range(dh.shape[1])):
        da[:, t] = (dh[:, t] + from_later) * (1 - h[:, t]**2)
        from_later = da[:, t] @ W_h.T
    before = np.concatenate([h0[:, None], h[:, :-1]], axis=1)   # h_0 ... h_(T-1)
    dW_x = np.einsum("bti,btj->ij", x, da)                      # summed over b and t
    dW_h = np.einsum("bti,btj->ij", before, da)
    return da @ W_x.T, from_later, dW_x, dW_h, da.sum(axis=(0, 1))


# %% The numbers of the figures
x = np.reshape([np.log(3), np.log(2) - 1, np.log(3) - 0.75, np.log(2) - 1], (1, 4, 1))
one, zero = np.ones((1, 1)), np.zeros((1, 1))
h = rnn(x, zero, one, W * one, zero[0])
assert np.allclose(h.ravel(), STATES) and np.allclose(1 - h.ravel()**2, SLOPES)
assert np.allclose(x.ravel(), (1.099, -0.307, 0.349, -0.307), atol=5e-4)
dh = np.reshape([0, 0, 0, -1.0], (1, 4, 1))
da, _, _, dw, _ = bptt(dh, x, zero, h, one, W * one)            # W_x = 1, so dx is da
assert np.allclose(-da.ravel(), DA, atol=5e-4) and np.allclose(dw, -0.869, atol=5e-4)
shares = np.array([0, *STATES[:3]]) * da.ravel()
assert np.allclose(shares, (0, -0.184, -0.173, -0.512), atol=5e-4)

# %%
random = np.random.default_rng(1)
sizes = {"x": (2, 5, 3), "h0": (2, 4), "W_x": (3, 4), "W_h": (4, 4), "b": (4,)}
arrays = {name: random.normal(size=size) for name, size in sizes.items()}
h, dh = rnn(**arrays), random.normal(size=(2, 5, 4))
gradients = bptt(dh, arrays["x"], arrays["h0"], h, arrays["W_x"], arrays["W_h"])


def loss_with(name, array):
    return (rnn(**(arrays | {name: array})) * dh).sum()


for name, gradient in zip(arrays, gradients):
    numeric = numeric_gradient(partial(loss_with, name), arrays[name])
    np.testing.assert_allclose(gradient, numeric, atol=1e-7, err_msg=f"d{name}")
print("five gradients agree with finite differences")

# %% PyTorch
try:
    import torch
except ImportError:
    torch = None
if torch:
    layer = torch.nn.RNN(3, 4, batch_first=True).double()
    with torch.no_grad():
        layer.weight_ih_l0[...] = torch.tensor(arrays["W_x"].T)
        layer.weight_hh_l0[...] = torch.tensor(arrays["W_h"].T)
        layer.bias_ih_l0[...] = torch.tensor(arrays["b"])
        layer.bias_hh_l0[...] = 0
    theirs, _ = layer(torch.tensor(arrays["x"]), torch.tensor(arrays["h0"])[None])
    theirs.backward(torch.tensor(dh))
    assert np.allclose(theirs.detach(), h)
    assert np.allclose(layer.weight_hh_l0.grad.T, gradients[3])

# %% [markdown]
# ## Does it matter?
#
# We train the three networks of the opening in other ways.
#
# - **What stays:** the weights from which each starts, and the learning rate.
# - **What changes:** the length of the sequences in training. In the last row, the number of steps.
# - **What is measured:** the share right in 400 new sequences of **128** symbols. A guess has 0.125.
#
# One of the trainings begins with 4 symbols and ends with 32. What do you expect of it over 128 symbols: (a) chance,
# (b) about half, (c) nearly all?
#
# <details><summary>Make a guess, then unfold: three runs each</summary>

# %% Reading the recorded runs
def at_128(plan):
    return [f"{run['accuracy']['longest']:.2f}" for run in plans[plan]]


SHORT_FIRST = (4, 50), (8, 50), (16, 50), (32, 50)
LONG = runs["RNN", 128]
steps = {case: [run["steps"] for run in each] for case, each in runs.items()}
assert steps["RNN", 128] == [None, 700, 600]
assert [max(run["accuracies"][4:-2]) > 0.6 and min(run["accuracies"][4:-2]) == 0
        for run in LONG] == [False, True, True]
assert steps["RNN, W_h x 1.2", 128] == [None] * 3
assert steps["LSTM, forget bias 5", 32] == [300, 250, 350]
assert steps["LSTM, forget bias 1", 32] == [2550, None, 2100]
assert steps["attention", 128] == [200] * 3
left = {when: [run["left"][when] for run in plans[SHORT_FIRST]]
        for when in ("before", "after")}
assert np.allclose(left["before"], (4e-5, 4e-4, 2e-3), rtol=0.15, atol=0)
assert np.allclose(left["after"], (1e-3, 5e-9, 6e-5), rtol=0.25, atol=0)
table(["training", "run 1", "run 2", "run 3"],
      [["200 steps, n = 128 (the opening)", *at_128(((128, 200),))],
       ["200 steps, n = 32", *at_128(((32, 200),))],
       ["50 steps each, n = 4, 8, 16, 32", *at_128(SHORT_FIRST)],
       ["up to 3,000 steps, n = 128",
        *(f"{run['accuracies'][-1]:.2f}" for run in LONG)]])

# %% [markdown]
# </details>
#
# So the state *can* hold the symbol. Row 3 has the networks of row 1, with the same weights at the start and as many
# steps. They never saw more than 32 symbols, and yet they name the first of 128 nearly always. (Row 2 has not finished
# its own length: after its 200 steps it names the first of 32 in 0.81, 0.89 and 0.12.)
#
# Row 4 stops when 99 % are right. Until then, runs 2 and 3 jump up and down, from 0.00 to more than 0.60. They need 700
# and 600 steps, and run 1 is still at chance after 3,000. So it's the training that is slow, or doesn't begin.
#
# After the training of row 3, 127 steps leave 0.001, 0.000000005 and 0.00006 of a small change of $h_1$. Like the
# network with $w$ = 4, these three remember, and small changes vanish.
#
# **Why is the training slow?** Before it, 127 steps leave 0.00004, 0.0004 and 0.002 of a small change. And late steps
# drown early ones: of the lengths of all shares in $dW_h$, added up, the last ten steps make up 67 %, 53 % and 36 %,
# the first ten 0.005 %, 0.02 % and 0.8 %. Run 1, which doesn't begin, has the most extreme number each time. We think
# that this is one reason, but not the only one: in runs 2 and 3 nothing vanishes any more after the 200 steps of row 1
# (1.3 and 2.1 are left), and they need many more; and a start that leaves 0.2 didn't help ([lab notes
# 02](lab/02_recurrence.py#until-nearly-all-are-right)).
#
# ## The LSTM: a sum on the way
#
# In an RNN, the way from state to state passes a weight and a tanh. The **LSTM** (long short-term memory) has a second
# state, the **cell** $c$, with a way of its own:
#
# $$c_t = f_t \cdot c_{t-1} + i_t \cdot g_t \qquad h_t = o_t \cdot \tanh(c_t)$$
#
# $g_t$ is the new content. $f_t$, $i_t$ and $o_t$ are **gates**, numbers between 0 and 1: how much of the cell to keep
# (the **forget gate**), how much of $g_t$ to add, how much to show. All four are computed from $x_t$ and $h_{t-1}$.

# %% Drawing the cell
def cell_picture():
    drawing = Drawing(875, 235)
    drawing.vector(75, 95, ["1"], "forward", 54, below="c_1")
    drawing.text(75, 62, "1 δ", "forward", bold=True)
    for t, x, new, cell, left in ((2, 75, "0.1", "1", "0.9 δ"),
                                  (3, 445, "−0.4", "0.5", "0.81 δ")):
        drawing.arrow((x + 27, 95), (x + 343, 95), "forward", width=4)
        for at, sign, words in ((x + 110, "×", "f = 0.9"),
                                (x + 240, "+", f"i · g = {new}")):
            gate = drawing.box(at, 175, words, width=112, height=32, size=14)
            drawing.circle(at, 95, 13, "paper", 1)
            drawing.circle(at, 95, 13, "forward", words=sign)
            drawing.arrow(gate.top, (at, 109))
        drawing.text(x + 175, 215, f"computed from x_{t} and h_{t - 1}", "soft", 13)
        drawing.vector(x + 370, 95, [cell], "forward", 54, below=f"c_{t}")
        drawing.text(x + 370, 62, left, "forward", bold=True)
        drawing.arrow((x + 370, 50), (x + 370, 32))
        drawing.text(x + 370, 18, f"h_{t} = o · tanh(c_{t})", "soft", 13)
    return drawing


show(cell_picture(), "02_cell",
     alt="A line runs from the cell c1 = 1 to the right. It is multiplied by f = 0.9, "
     "and i times g = 0.1 is added: c2 = 1. The same again, with −0.4 added: c3 = 0.5. "
     "Below, gates read the input and the state before. A change of δ in c1 becomes "
     "0.9 δ and 0.81 δ. Above, h is o times tanh of c.",
     caption="Two steps of an LSTM. Along the cell a small change meets only the "
     "forget gate: no weight, no tanh.")

# %% [markdown]
# If $f$ were 0.993 at all 31 steps of 32 symbols, they would leave 0.80 of a change; with 0.73, only 0.00006. Does it
# matter where $f$ starts? Over 32 symbols, three LSTMs that start with 0.993 need 250 to 350 steps of training. Of
# three that start with 0.73, two need 2,100 and 2,550, and one isn't done after 3,000. Whether an LSTM is better than
# an RNN here, these runs don't say ([lab notes 02](lab/02_recurrence.py#the-lstm)).
#
# ## Today
#
# Without tanh, $h_t = f_t h_{t-1} + x_t$ is a **linear recurrence**. Two steps of it are one step with another $f$ and
# another $x$: $h_2 = (f_2 f_1) h_0 + (f_2 x_1 + x_2)$. So steps can be combined in pairs, then pairs of pairs: about
# $\log_2 n$ rounds instead of $n$ steps. **State-space models** such as Mamba (Gu and Dao 2023) are built on this. The
# LSTM's sum is in every Transformer, too: as $x + f(x)$, from layer to layer ([lesson
# 12](12_residual_norm_dropout.py)).
#
# ## Paper and code
#
# - §1 of ["Attention Is All You Need"](https://arxiv.org/abs/1706.03762) names another price of recurrence: each step
#   waits for the one before.
# - Bengio, Simard and Frasconi (1994) showed why a safe memory passes back hardly any gradient. The LSTM is by
#   Hochreiter and Schmidhuber (1997), its forget gate by Gers, Schmidhuber and Cummins (2000).
# - PyTorch: `torch.nn.RNN(d_in, d_hidden, batch_first=True)`, compared above. Ours is in
#   [support/recurrent.py](../lessons/support/recurrent.py).
#
# ## What to remember
#
# A small change of an early state, and the gradient that comes back to it, meet the same product, with a factor $w (1 -
# h^2)$ for each step. The gradient of the shared weights is a sum in which late steps
# can drown early ones. A network that hasn't learned to remember may still be able to.
#
# **Test yourself.**
#
# 1. $w$ = 1.5, and all states are 0.8. How much of a change of $h_1$ is left in $h_3$?
# 2. $w$ = 1.25, $h_0$ = 0, $h_1$ = 0.8, $h_2$ = 0.6. Both states have an output: $dh_1$ = −0.2 and $dh_2$ = −1. What
#    are $da_2$, $da_1$ and $dw$?
# 3. Which cell keeps more of a change: 10 steps with $f$ = 0.5, or 100 steps with $f$ = 0.95?
#
# <details><summary>Answers</summary>
#
# 1. Each step leaves 1.5 · (1 − 0.64) = 0.54. Two steps leave 0.54² = 0.29.
# 2. $da_2$ = −1 · 0.64 = −0.64. $h_1$ has two ways: −0.2 + 1.25 · (−0.64) = −1. So $da_1$ = −1 · 0.36 = −0.36. At step
#    1 nothing went in, so $dw$ = 0.8 · (−0.64) = −0.512.
# 3. The second: $0.95^{100}$ = 0.006, and $0.5^{10}$ = 0.001.
#
# </details>
#
# **Yours:** the hunt `blind_check`. A well-known bug forgets the next step: $da_t = dh_t \cdot (1 - h_t^2)$. With
# nearly every $dh$, a gradient check sees it. Write `upstream(b, t, d)`, which returns a $dh$ with which it doesn't:
# `scratchformer learn check blind_check`
#
# **Next:** one layer of attention, which looks at all 128 symbols directly, learns the test in 200 steps. It was
# invented for translation: one RNN reads, another one writes, and only the last state passes between them. [Lesson
# 03](03_bahdanau.py) lets the writer look back at *all* states.
