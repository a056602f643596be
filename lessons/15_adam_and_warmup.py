# %% [markdown]
# # 15 · Adam and the warm-up
#
# **How far should each weight move, and why not at full speed from the first step?**
#
# *Needs [lesson 01](01_backprop.py) (gradients) and [lesson 13](13_whole_model.py) (the whole model) · you will compute
# two steps of Adam and the paper's learning rate with pencil and paper.*

# %% Imports
import matplotlib.pyplot as plt
import numpy as np

from library.drawing import COLOURS, Drawing
from library.lesson import QUICK, recorded, same, show, table
from library.short_translation import (
    loss_of_the_frequencies,
    mean_loss,
    new_model,
    random_batch,
    set_gradient,
)
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.parameter import Layer, Parameter, ParameterStore

SEEDS = [0] if QUICK else [0, 1, 2]

# %% [markdown]
# A gradient says in which direction each weight should go. It doesn't say how far. Let's see what can go wrong with
# only two weights, $a$ and $b$, and the loss $50 a^2 + \frac{1}{2} b^2$. It's steep in $a$ and shallow in $b$: at the
# start, $a = b = 1$, the gradient is $(100, 1)$. The lowest point is $a = b = 0$.
#
# **Gradient descent** subtracts the gradient, times one number for all weights, the **learning rate**. Here is where
# the two weights are after 60 steps, for five learning rates:


# %%
def gradient(w):
    return np.array([100, 1]) * w                     # w is (a, b)


def descend(rate, steps=60):
    w = np.array([1.0, 1.0])
    for _ in range(steps):
        w = w - rate * gradient(w)
    return w


table(["rate", "a after 60 steps", "b after 60 steps"],
      [[rate, *(f"{x:.2f}" for x in descend(float(rate)))]
       for rate in ("0.001", "0.01", "0.019", "0.02", "0.021")])

# %% [markdown]
# There is no good row. A step multiplies $a$ by $1 - 100 \cdot \mathrm{rate}$. At 0.021 that's −1.1: $a$ jumps from 1
# to −1.1, across 0 and a little farther away, and so on at every step. But below 0.02, $b$ still has about a third of
# its way to go. The best rate for $b$ alone would be 1, which is a hundred times the best rate for $a$, 0.01. **One
# number can't suit both.**
#
# And a Transformer? In a small one, the gradients of single weights differ by a factor of about 340 (99th over 1st
# percentile, [lab notes 15, experiment
# 2](lab/15_adam_and_warmup.py#experiment-2-how-much-do-the-gradients-of-a-transformer-differ)). That isn't quite the
# same: a ravine is about how fast gradients *change*. But it shows that one rate gives very different steps.
#
# ## The picture
#
# Seen from above, our loss is a ravine: steep walls, and a floor that hardly slopes. Below are three ways to walk in
# it, each at its own rate. Make a guess: if all three had the rate of the first, 0.0185, which would be nearest to the
# lowest point after 20 steps?

# %% Drawing the ravine
INK, STEP, GRAY, AMBER, SOFT = (
    COLOURS[role][0] for role in ("ink", "forward", "line", "value", "soft")
)


def path(way, rate, n_steps=40, beta1=0.9, beta2=0.98):
    w, m, v, places = np.array([1.0, 1.0]), 0, 0, [(1.0, 1.0)]
    for t in range(1, n_steps + 1):
        g = gradient(w)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
        steps = {"gradient descent": g, "momentum": m, "Adam": m_hat / np.sqrt(v_hat)}
        w = w - rate * steps[way]
        places.append(tuple(w))
    return np.array(places)


figure, panels = plt.subplots(
    1, 3, figsize=(8.6, 3.3), sharey=True, layout="constrained"
)
bs, as_ = np.meshgrid(np.linspace(-0.7, 1.15, 180), np.linspace(-1.1, 1.15, 180))
for axes, (way, rate) in zip(
    panels, (("gradient descent", 0.0185), ("momentum", 0.05), ("Adam", 0.05))
):
    places = path(way, rate)
    axes.contour(
        bs,
        as_,
        50 * as_**2 + bs**2 / 2,
        [0.03, 0.2, 2, 8, 20, 38],
        colors=GRAY,
        linewidths=1,
    )
    axes.plot(places[:, 1], places[:, 0], "-o", color=STEP, ms=3.5, lw=1.3)
    axes.plot(1, 1, "o", color=INK, ms=6)
    axes.plot(0, 0, "+", color=INK, ms=11, mew=2)
    axes.set(
        title=f"{way}, rate {rate:g}",
        xlabel="b (shallow)",
        xticks=[-0.5, 0, 0.5, 1],
        yticks=[-1, 0, 1],
    )
    axes.set_xlim(-0.7, 1.15)
panels[0].set_ylabel("a (steep)")
show(
    figure,
    "15_ravine",
    alt="Three maps of the same ravine, each with a path of 40 steps from a = b = 1 "
    "towards the lowest point. Gradient descent jumps from wall to wall and gets "
    "to b = 0.47. Momentum swings in wider curves and ends close to the lowest "
    "point. Adam walks straight along the diagonal, past the lowest point to "
    "a = b = -0.14, and turns.",
    caption="Forty steps each, from the dot towards the cross; b goes to the right "
    "and a goes up. Gradient descent jumps from wall to wall, momentum swings, "
    "and Adam takes the diagonal and runs past the cross.",
)

# %% [markdown]
# **Gradient descent** spends its steps on jumping to and fro. **Momentum** steps along a running average $m$ of the
# gradients instead: $m$ becomes $0.9 \, m + 0.1 \, g$, and the weights move by $-\mathrm{rate} \cdot m$. Gradients
# across the ravine point this way and that, so they nearly cancel in the average. Those along the floor agree, so the
# average keeps them. Momentum therefore bears a larger rate, here 0.05, at which gradient descent explodes. That's the
# gain: at the same rate of 0.0185, after 20 steps, plain gradient descent would be nearest, at a distance of 0.69, then
# momentum at 0.85, and Adam last at 0.90.
#
# **Adam** averages as well, and does one thing more: it divides each weight's average gradient by the usual size of
# that weight's gradients. So a steep weight and a shallow one move alike. From $a = b$ they stay equal, and the path is
# the diagonal. Adam doesn't stop at the cross, though: it runs on to −0.14 before it turns.
#
# (Figure 1 isn't a race: momentum ends nearest. In a small Transformer, each at its best rate, momentum ends at a loss
# of 4.53 and Adam at 3.60: [lab notes 15, experiment
# 5](lab/15_adam_and_warmup.py#experiment-5-which-part-of-adam-does-it).)
#
# ## By hand
#
# Adam keeps two numbers for each weight, beside the weight itself. Both begin at 0:
#
# - $m$ is a running average of its gradients $g$: it keeps 90 % of what it was and takes in 10 % of the new $g$.
# - $v$ is a running average of their squares: it keeps 98 %, and takes in 2 % of the new $g^2$.
#
# Take a pencil. The first gradient is $(100, 1)$:
#
# | | weight a | weight b |
# |---|---|---|
# | gradient g | 100 | 1 |
# | m = 10 % of g | 10 | 0.1 |
# | v = 2 % of g² | 200 | 0.02 |
#
# An average of a single gradient of 100 should be 100. But $m$ says 10, because $m = 0.9 \cdot 0 + 0.1 \cdot 100$: the
# 0 from the start counts 90 %. So divide $m$ by the share of the gradients in it, 0.1, and $v$ by theirs, 0.02. This is
# the **bias correction**, and the corrected numbers get a hat:
#
# | | weight a | weight b |
# |---|---|---|
# | m̂ = m / 0.1 | 100 | 1 |
# | v̂ = v / 0.02 | 10,000 | 1 |
# | m̂ / √v̂ | 100 / 100 = **1** | 1 / 1 = **1** |
#
# Subtract the learning rate times the last row. With a rate of 0.1 both weights go from 1 to 0.9. The gradients differ
# by a factor of 100, and the steps are equal.


# %% Drawing one step
HEADS = {"weight": 40, "gradient g": 120, "averages": 255, "corrected": 425,
         "m̂ / √v̂": 555, "step": 700}


def step_picture(weights, gradients, m_old=(0, 0), v_old=(0, 0), t=1):
    """Figures 2 and 3: how two gradients become two steps, at a rate of 0.1."""
    drawing = Drawing(790, 372)
    for words, x in HEADS.items():
        drawing.text(x, 24, words, "soft", 14)
    for y, name, w, g, m, v in zip((120, 285), "ab", weights, gradients, m_old, v_old):
        names = [(210, y - 34, "m"), (210, y + 34, "v")]
        names += [(425, y - 62, "m̂"), (425, y + 62, "v̂")]
        for x, at, words in names:
            drawing.text(x, at, words, "soft", 14, italic=True)
        sums = (f"0.9 · {m:g} {'−' if g < 0 else '+'} 0.1 · {abs(g):g}",
                f"0.98 · {v:g} + 0.02 · {g * g:,g}")
        drawing.text(255, y - 62, sums[0], "soft", 13)
        drawing.text(255, y + 62, sums[1], "soft", 13)
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.98**t)
        step = m_hat / v_hat**0.5
        drawing.text(40, y, name, size=22, bold=True)
        drawing.gradient(118, y, -np.sign(g), f"{g:+g}".replace("-", "−"), size=17)
        upper = drawing.vector(255, y - 34, [m], cell=72)
        lower = drawing.vector(255, y + 34, [f"{v:.4g}"], cell=72)
        for box in upper, lower:
            drawing.arrow((170, y), (box.left[0] - 18, box.y), "gradient")
        upper_hat = drawing.vector(425, y - 34, [m_hat], cell=82)
        lower_hat = drawing.vector(425, y + 34, [f"{v_hat:,.0f}"], cell=82)
        drawing.arrow(upper.right, upper_hat.left, label=f"÷ {1 - 0.9**t:.4g}")
        drawing.arrow(lower.right, lower_hat.left, label=f"÷ {1 - 0.98**t:.4g}")
        ratio = drawing.vector(555, y, [step], cell=66)
        drawing.arrow(upper_hat.right, (ratio.left[0] - 2, y - 9))
        drawing.arrow(lower_hat.right, (ratio.left[0] - 2, y + 9))
        drawing.text(503, y + 32, "√", "soft", 16)
        drawing.arrow(ratio.right, (662, y), label="× (−rate)")
        drawing.line([(678, y - 40), (678, y + 40)], "line", 1.2)
        drawing.circle(678, y - 31, 4, "ink", 1)
        length = 62 * step if abs(step) > 0.2 else 15 * np.sign(step)  # 62: full rate
        tail = y - 31 if length > 0 else y - 16       # a step up ends below the dot
        drawing.arrow((678, tail), (678, tail + length), "forward", width=3)
        moved = f"{'−' if step > 0 else '+'} {abs(0.1 * step):.1g}"
        drawing.text(694, y - 22, f"from {w:g}", anchor="start")
        drawing.text(694, y, moved, "forward", anchor="start")
        drawing.text(694, y + 22, f"to {w - 0.1 * step:.3g}", anchor="start", bold=True)
    return drawing


show(step_picture((1, 1), (100, 1)), "15_first_step",
     alt="Two rows, for weights a and b. Gradients +100 and +1; m is 10 and 0.1, v "
     "is 200 and 0.02; corrected, m is 100 and 1, v is 10,000 and 1; the "
     "quotient is 1 in both rows, and both weights go from 1 to 0.9.",
     caption="The first step. Triangles show where the loss wants the weight to go. "
     "The gradients are very different, and the steps are equal.")

# %% [markdown]
# The same in code. Everything is an array with one number for each weight:

# %%
g = np.array([100.0, 1.0])                            # (n,), here n = 2
m, v = 0.1 * g, 0.02 * g**2                           # (n,) each
m_hat, v_hat = m / 0.1, v / 0.02
w = np.array([1.0, 1.0]) - 0.1 * m_hat / np.sqrt(v_hat)
print("m̂", m_hat, " v̂", v_hat, " weights", w)

# %% [markdown]
# ## In general
#
# Let $g_t$ be the gradient at step $t = 1, 2, \dots$; all of $g$, $m$, $v$ and the weights $w$ have the shape $(n,)$.
# The numbers 0.9 and 0.98 are called $\beta_1$ and $\beta_2$ (beta), and $\eta_t$ (eta) is the learning rate:
#
# $$m_t = \beta_1 m_{t-1} + (1 - \beta_1) \, g_t \qquad\qquad v_t = \beta_2 v_{t-1} + (1 - \beta_2) \, g_t^2$$
#
# $$\hat{m}_t = \frac{m_t}{1 - \beta_1^t} \qquad \hat{v}_t = \frac{v_t}{1 - \beta_2^t} \qquad
# w_t = w_{t-1} - \eta_t \frac{\hat{m}_t}{\sqrt{\hat{v}_t} + \varepsilon}$$
#
# With only the first average, this is momentum. With only the second ($g_t$ instead of $\hat{m}_t$) it's called
# RMSProp. Adam is both, and the correction.
#
# Two things are new. The first is $1 - \beta^t$, the share of the gradients at step $t$: after $t$ steps the 0 from the
# start still counts $\beta^t$. At $t = 1$ the shares are our 0.1 and 0.02. The second is $\varepsilon = 10^{-9}$
# (epsilon), so that nobody divides by 0.
#
# **Your turn.** Open `exercises/15_adam.py`, write these five equations, and run `scratchformer learn check 15_adam`:
# it tells you what is wrong and why. Then unfold our solution.


# %% Our solution
def adam_step(w, g, m, v, t, rate, beta1=0.9, beta2=0.98, eps=1e-9):
    """w, g, m, v (n,); t = 1, 2, ... -> the new w, m, v, (n,) each"""
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    m_hat = m / (1 - beta1**t)
    v_hat = v / (1 - beta2**t)
    return w - rate * m_hat / (np.sqrt(v_hat) + eps), m, v


# %% The check
class Weights(Layer):
    def __init__(self, n):
        self.w = Parameter(np.zeros(n))
        self.store = ParameterStore(self.parameters())


random, model = np.random.default_rng(0), Weights(50)
library, sizes = Adam(model), 10 ** random.uniform(-1, 3, 50)
ours = np.zeros(50), 0, 0                             # w, m, v
for t in range(1, 21):
    model.store.grad[...] = sizes * random.normal(size=50)
    ours = adam_step(ours[0], model.store.grad, *ours[1:], t, rate=0.1)
    library.step(0.1)
same("20 steps: our weights and the library's", ours[0], model.store.data, 1e-5)

# %% [markdown]
# ## From the gradient to the step
#
# The other lessons hand a gradient on, from box to box. Here it ends, and becomes a step. Let's take a second one.
# Leave the ravine for this (there the next gradient would be $(90, 0.9)$): in training each step sees another batch, so
# suppose that the second batch says $(-100, 1)$. Which weight goes farther now, and in which direction?
#
# <details><summary>Make a guess, then unfold: the second step</summary>

# %% Drawing the second step
show(step_picture((0.9, 0.9), (-100, 1), (10, 0.1), (200, 0.02), t=2), "15_second_step",
     alt="The same picture for the gradients −100 and +1. Now m is −1 and 0.19, v "
     "is 396 and 0.0396; corrected by 0.19 and 0.0396, m is −5.263 and 1, v is "
     "10,000 and 1. The quotients are −0.053 and 1: a goes from 0.9 to 0.905, b "
     "from 0.9 to 0.8.",
     caption="The second step, in the same drawing. The two gradients of a "
     "contradict each other, so it hardly moves; those of b agree, so it "
     "moves by the full rate.")
second, _, _ = adam_step(w, np.array([-100.0, 1.0]), m, v, t=2, rate=0.1)
by_hand = 0.9 + 0.1 * 0.0526, 0.9 - 0.1 * 1
same("the second step, by our code and by hand", second, by_hand, 1e-5)

# %% [markdown]
# For $a$, 90 % of the old $m$ is 9, and 10 % of the new gradient is −10. They nearly cancel: $m = -1$. In $v$ nothing
# cancels, since squares are positive: 196 + 200 = 396. The share of the gradients in $m$ is now 10 % for the new one
# and 9 % for the first (90 % of its 10 %), together 19 %; in $v$ it's 2 % + 1.96 % = 3.96 %. So divide by 0.19 and
# 0.0396: −1 / 0.19 = −5.26, and the root of 396 / 0.0396 is 100. Therefore $a$ moves by 0.1 · 0.053 = 0.005, back up to
# 0.905. For $b$ both gradients are 1, so their average is 1: it moves by a full 0.1, down to 0.8.
#
# </details>
#
# The larger gradient made the smaller step. **The length of a step doesn't tell how large the gradients are, but how
# well they agree.** If all are the same, a weight moves by the full rate. If they are pure noise, it moves by about
# 0.23 of it: $m$ then averages about 19 independent signs, and such an average has the size $1/\sqrt{19} = 0.23$
# ([experiment 3](lab/15_adam_and_warmup.py#experiment-3-how-long-is-a-step)). Three consequences:
#
# - **Scale drops out.** Multiply all gradients of a weight by 1,000: $\hat{m}$ and $\sqrt{\hat{v}}$ both grow by 1,000,
#   and the steps stay. That can hide a bug: if your backward pass loses a constant factor in one matrix, the loss curve
#   won't tell you (`15_disguise`).
# - **The rate is a distance**, about how far a weight goes in one step. A step can be longer, but at most 1.7 times
#   with $\beta_2 = 0.98$ (7 times with 0.999): see `15_longest_step`.
# - **The memory is short.** A gradient from $k$ steps ago counts $\beta^k$ as much as the newest, so $m$ remembers
#   about $1 / (1 - 0.9) = 10$ steps, and $v$ about 50.
#
# ## The learning rate, by hand
#
# The rate isn't the same at every step. The paper's equation 3 is
#
# $$\eta_t = d_{model}^{-0.5} \cdot \min(t^{-0.5}, \; t \cdot \mathrm{warmup}^{-1.5})$$
#
# with $d_{model} = 512$ and warmup = 4,000. The second term rises on a straight line, the first one falls, and the
# smaller of them counts.

# %% Drawing the schedule
figure, axes = plt.subplots(figsize=(7, 2.9), layout="constrained")
steps = np.arange(1, 20_001, 50)
terms = 1000 / 512**0.5 * np.array([steps**-0.5, steps * 4000**-1.5])  # (2, steps)
for term, words, at, side in zip(
    terms, ("first term", "second term"), (42, 100), ("right", "left")
):
    axes.plot(steps, term, "--", color=SOFT, lw=1.2)
    axes.annotate(words, (steps[at], term[at]), (-10 if side == "right" else 10, 0),
                  textcoords="offset points", color=SOFT, va="center", ha=side)
axes.plot(steps, terms.min(axis=0), color=STEP, lw=2.5)
axes.set(xlabel="step", ylabel="learning rate, in thousandths", ylim=(0, 1.2))
axes.spines[["top", "right"]].set_visible(False)
show(
    figure,
    "15_schedule",
    alt="The two terms of equation 3 over 20,000 steps, dashed, and the smaller of "
    "them as a thick line. It rises on a straight line to 0.0007 at step 4,000 "
    "and then falls, to half of that at step 16,000.",
    caption="Equation 3 for the paper's base model, thick: a line up for 4,000 "
    "steps, the **warm-up**, then a slow fall.",
)

# %% [markdown]
# The terms are equal at $t = 4000$:
#
# - The root of 4,000 is 63.25, so $4000^{-0.5}$ is 1 / 63.25, and $4000 \cdot 4000^{-1.5}$ is the same number.
# - The root of 512 is 22.63. So the highest rate of all is 1 / (63.25 · 22.63) = 1 / 1431 = **0.000699**.
# - At step 16,000, four times as far, the root has halved the rate: 0.000349.
#
# **Your turn**, if you like: `exercises/15_noam.py`, in two lines.


# %% Our solution
def learning_rate(t, d_model=512, warmup=4000):
    return d_model**-0.5 * min(t**-0.5, t * warmup**-1.5)


three = 1, 4000, 16_000
same("steps 1, 4,000 and 16,000: our rates and the library's",
     [learning_rate(t) for t in three], [noam(t, 512, 4000) for t in three])

# %% [markdown]
# The fall helps to settle: if the rate in the ravine falls like this from step 10 on, Adam runs on to −0.06 only ([lab
# notes 15, experiment 1](lab/15_adam_and_warmup.py#experiment-1-ravines-straight-and-diagonal)). But why begin near 0?
# In the first step there is only one gradient, and it agrees with itself. So every weight moves by the full rate,
# because of a single batch. In a model that we watched at a constant rate, that was the longest step of all
# ([experiment 3](lab/15_adam_and_warmup.py#experiment-3-how-long-is-a-step)).
#
# ## Does it matter?
#
# Let's try it. A small Transformer with 3 + 3 layers and $d_{model} = 32$ learns to translate short sentences, 16 at a
# step, with our `adam_step`. Once the rate is 0.01 from the first step on; we chose it so high that it hurts. Once it
# rises over the first 40 steps, from 0.00025 to 0.01, and stays there. All else is equal, the sentences too.


# %%
def train(seed, warmup, rate=0.01, steps=150):
    """-> the model, and the training loss of each step"""
    model, random = new_model(seed, layers=3), np.random.default_rng(seed)
    m = v = np.zeros_like(model.store.data)  # (n,)
    losses = []
    for t in range(1, steps + 1):
        losses.append(set_gradient(model, random_batch(random)))
        w, g = model.store.data, model.store.grad  # (n,) each
        w[...], m, v = adam_step(w, g, m, v, t, rate * min(1, t / warmup))
        model.store.refresh()
    return model, losses


# %% [markdown]
# What will the run without a warm-up do? (a) Its loss explodes. (b) It learns as well, and is 40 steps ahead. (c) Its
# loss falls faster at first, and then it is stuck.
#
# <details><summary>Make a guess, then unfold: the two loss curves</summary>

# %% Training with and without warm-up
curves, final = {}, {}
for words, warmup in ("without warm-up", 1), ("with warm-up", 40):
    runs = [train(seed, warmup) for seed in SEEDS]
    curves[words] = np.array([losses for _, losses in runs])  # (seeds, steps)
    final[words] = [mean_loss(model) for model, _ in runs]

# %% Drawing the two loss curves
figure, axes = plt.subplots(figsize=(7.4, 3.6), layout="constrained")


def note(words, at, away, colour=SOFT, **settings):
    axes.annotate(words, at, away, textcoords="offset points", color=colour, **settings)


for words, colour in ("without warm-up", AMBER), ("with warm-up", STEP):
    for losses in curves[words]:
        smooth = [losses[max(0, t - 4):t + 1].mean() for t in range(150)]
        axes.plot(np.arange(1, 151), smooth, color=colour, lw=1.5, alpha=0.85)
    note(words, (150, smooth[-1]), (6, 0), colour, va="center", annotation_clip=False)
frequencies = loss_of_the_frequencies()
axes.axhline(frequencies, color=SOFT, lw=1, ls=":")
note("knows only how frequent each piece is", (149, frequencies), (0, -13), ha="right")
axes.axvline(40, color=GRAY, lw=1)
note("warm-up ends", (40, 7.6), (4, 0))
axes.set(xlabel="step", ylabel="training loss, nats per piece", xlim=(0, 150))
axes.spines[["top", "right"]].set_visible(False)
show(figure, "15_warmup",
     alt="Training loss over 150 steps. Without warm-up it falls faster for the "
     "first 30 steps, and from then on stays near 5.5, the loss of the "
     "frequencies. With warm-up it falls more slowly at first, crosses the "
     "other curve near step 40, and ends near 4.7.",
     caption="Each line is one run, averaged over five steps. Without a warm-up the "
     "loss falls faster at first, and then it's stuck.")
table(["", "loss, steps 16 to 20", "loss on new sentences at the end"],
      [[words, f"{curves[words][:, 15:20].mean():.1f}",
        " · ".join(f"{loss:.1f}" for loss in final[words])] for words in curves])
gains = [a - b for a, b in zip(final["without warm-up"], final["with warm-up"])]
assert 0.4 < min(gains) < 1.3, gains

# %% [markdown]
# It's (c). You might have expected the loss to jump up. But for 30 steps the runs without a warm-up are *ahead*. Then
# they stop, near 5.5 nats. That is what a model gets that ignores the English sentence and knows only how frequent each
# German piece is. The runs with a warm-up cross that line and end near 4.7.
#
# </details>
#
# And at a lower rate? Here are such models after 600 steps, on more sentences, the mean of three runs:

# %% Two rates, without and with warm-up
ends = {}
for row in recorded("warm_up")["long"]:
    losses = [run["final_loss"] for run in row["runs"]]
    ends[row["peak"], row["warmed"]] = np.mean(losses)
table(["loss on new sentences", "without warm-up", "with warm-up"],
      [[f"rate {rate}", f"{ends[rate, 'none']:.2f}", f"{ends[rate, 'all']:.2f}"]
       for rate in (0.01, 0.003)])

# %% [markdown]
# At the high rate the warm-up decides; at the lower one it gains a little. The lower rate helps more than the warm-up.
#
# What is the warm-up for? One often reads that at first Adam's $v$ rests on too few gradients. Three controls ([lab
# notes 15, experiments 6 to
# 9](lab/15_adam_and_warmup.py#experiment-6-does-a-warm-up-help-at-every-learning-rate-and-do-runs-without-it-recover)):
#
# - **More gradients in $v$.** We let $v$ collect 40 batches before the weights move. Two of three runs still get stuck.
# - **No $v$.** Momentum has none. At a rate of 1 its runs get stuck too, and a warm-up helps all three.
# - **The norm** before each sublayer (pre-LN, [lesson 12](12_residual_norm_dropout.py)), the same Adam. No run gets
#   stuck.
#
# So in these small models a poor $v$ isn't the whole reason, and with Adam only post-LN got stuck. What the long steps
# damage we don't know. We know where: a warm-up for only the value and output matrices of attention does as much as one
# for all weights, and a warm-up for all the *other* weights does hardly anything.
#
# ## Paper and code
#
# [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), §5.3, has all the numbers of this page: 0.9, 0.98,
# $10^{-9}$, 4,000 and equation 3. It gives no reason for them, nor for the warm-up. Adam is by [Kingma and Ba
# (2015)](https://arxiv.org/abs/1412.6980), who propose 0.999 for $\beta_2$. In the library: `Adam` and `noam` in
# [nn/optim.py](../scratchformer/nn/optim.py). *It differs from this page:* $\varepsilon$ is added to $\sqrt{v}$ before
# the correction. For a momentum that you can play with, see Goh's [*Why Momentum Really
# Works*](https://distill.pub/2017/momentum/).
#
# ## What to remember
#
# Adam divides the average of each weight's gradients by their usual size. So the learning rate is a distance, and a
# weight moves far where its gradients agree, not where they are large. The paper's rate rises to 0.0007 in 4,000 steps
# and then falls with the root of the step. Without such a rise, our small post-LN model learned at a high rate which
# pieces are frequent, and no more.
#
# **Exercises.** `15_adam`: Adam for any number of steps. `15_noam`: equation 3, for many steps at once. `15_disguise`:
# change every gradient so that Adam takes the same steps. `15_longest_step`: "a step of Adam is never longer than the
# learning rate", one reads; find gradients after which it's 1.6 times as long. And a puzzle:
#
# <details><summary>You forget the bias correction. How long is the first step, with 0.98 and with 0.999?</summary>
#
# For a gradient of 1: $m = 0.1$ and $v = 0.02$, so the step is 0.1 / 0.141 = 0.71 times the rate, and nobody notices.
# With 0.999, $v = 0.001$, and the step is 0.1 / 0.0316 = 3.2 times the rate.
#
# </details>
#
# **Next.** The parts are complete: a model, a loss, an optimizer with its learning rate. [Lesson
# 16](16_first_training.py) puts them together, and shows how to tell a training that is slow from one that is broken.
