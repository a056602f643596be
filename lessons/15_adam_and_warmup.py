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

from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.parameter import Layer, Parameter, ParameterStore
from support.drawing import COLOURS, Drawing
from support.lesson import quote, recorded, same, show, table

# %% [markdown]
# A gradient says in which direction each weight should go. It doesn't say how far. Take two weights, $a$ and $b$, and
# the loss $50 a^2 + \frac{1}{2} b^2$. The lowest point is $a = b = 0$. The gradient is $(100 a, b)$, so the loss is
# steep in $a$ and shallow in $b$.
#
# **Gradient descent** multiplies the gradient by one number, the **learning rate**, and subtracts the product from the
# weights. We start at $a = b = 1$ and take 60 steps, at four rates:


# %%
def descend(rate, steps=60):
    w = np.array([1.0, 1.0])                          # a and b
    for _ in range(steps):
        gradient = np.array([100, 1]) * w
        w = w - rate * gradient
    return w


table(["rate", "a after 60 steps", "b after 60 steps"],
      [[rate, *(f"{x:.2f}" for x in descend(float(rate)))]
       for rate in ("0.001", "0.01", "0.019", "0.021")])

# %% [markdown]
# No row is good. At 0.021 the first step of $a$ is $0.021 \cdot 100 = 2.1$. So $a$ jumps from 1 across 0 to −1.1, then
# to 1.21, and explodes. At the lower rates $a$ arrives, but in 60 steps $b$ doesn't. **One number can't suit both
# weights.**
#
# In a small Transformer the usual gradients of single weights differ by a factor of some hundreds, even without the
# largest and the smallest 1 % ([lab notes 15, experiment
# 2](lab/15_adam_and_warmup.py#experiment-2-how-much-do-the-gradients-of-a-transformer-differ)).
#
# ## The picture
#
# Seen from above, our loss is a ravine: its walls are steep, and its floor hardly slopes. Here are three ways to walk
# in it:

# %% Drawing the ravine
INK, STEP, GRAY, AMBER, SOFT = (
    COLOURS[role][0] for role in ("ink", "forward", "line", "value", "soft")
)


def path(way, rate, n_steps=40, beta1=0.9, beta2=0.98):
    w, m, v, places = np.array([1.0, 1.0]), 0, 0, [(1.0, 1.0)]
    for t in range(1, n_steps + 1):
        g = np.array([100, 1]) * w
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
panels[2].annotate("turns at −0.14", (-0.14, -0.14), (-0.6, -0.62), color=INK,
                   arrowprops={"arrowstyle": "-", "color": SOFT, "shrinkB": 5})
panels[0].set_ylabel("a (steep)")
show(
    figure,
    "15_ravine",
    alt="Three maps of the same ravine, each with a path of 40 steps from a = b = 1 "
    "towards the lowest point. Gradient descent jumps from wall to wall and gets "
    "to b = 0.47. Momentum swings in wider curves and ends close to the lowest "
    "point. Adam walks straight along the diagonal, past the lowest point to "
    "a = b = -0.14, and turns.",
    caption="Forty steps each, from the dot towards the cross. The steep weight a "
    "goes up, the shallow weight b goes to the right. Gradient descent jumps "
    "from wall to wall, momentum swings, and Adam takes the diagonal.",
)

# %% [markdown]
# <!-- widget: ravine, in the figure's place -->
#
# **Momentum** steps along a running average $m$ of the gradients. At every step $m$ keeps 90 % of itself and takes in
# 10 % of the new gradient. Let's give it gradients that change their sign, as across the ravine, and gradients that
# agree, as along its floor:


# %% Two running averages
def running_average(gradients):
    m = 0
    for g in gradients:
        m = 0.9 * m + 0.1 * g
    return m


across, along = running_average([10, -10] * 20), running_average([1, 1] * 20)
table(["", "gradients", "their running average after 40 steps"],
      [["across", "+10, −10, +10, −10, …", f"{across:.1f}"],
       ["along", "+1, +1, +1, +1, …", f"{along:+.1f}"]])

# %% [markdown]
# Across the ravine the gradients nearly cancel: of 10 only 0.5 is left. Along the floor they agree, and the average
# keeps them. At a rate of 0.05 momentum doesn't explode, and it gets along the floor. Gradient descent can't do both.
#
# **Adam** averages, too, and then it divides. It divides each weight's average gradient by the usual size of that
# weight's gradients. So a steep weight and a shallow weight move equally far. In figure 1 both begin at 1 and stay
# equal, so the path is the diagonal.
#
# Adam divides weight by weight. When the ravine is turned by 45°, Adam's loss after 60 steps is about 1.7 times as
# high ([lab notes 15, experiment 1](lab/15_adam_and_warmup.py#experiment-1-ravines-straight-and-diagonal)).
# Gradient descent and momentum don't notice.
#
# Figure 1 isn't a race, since we chose the rates. In a small Transformer, at the best of four rates, momentum ended at
# a loss of 4.53 and Adam at 3.61 ([lab notes 15, experiment
# 4](lab/15_adam_and_warmup.py#experiment-4-momentum-or-adam)).
#
# ## Two steps by hand
#
# Adam stores two averages for each weight. Both begin at 0:
#
# - $m$ is the running average of the gradients $g$: 90 % old, 10 % new.
# - $v$ is a running average of their squares $g^2$: 98 % old, 2 % new. Its root is the "usual size".
#
# **The first step.** Take a pencil. The gradient is $(100, 1)$:
#
# | | weight a | weight b |
# |---|---|---|
# | gradient g | 100 | 1 |
# | m = 90 % of 0 + 10 % of g | 10 | 0.1 |
# | v = 98 % of 0 + 2 % of g² | 200 | 0.02 |
#
# Both averages are too small. The only gradient of $a$ is 100, but $m$ says 10, because the 0 from the start counts
# 90 %. Only 10 % of $m$ comes from a gradient, so divide $m$ by 0.1. Only 2 % of $v$ does, so divide $v$ by 0.02. This
# is the **bias correction**, and the corrected averages get a hat:
#
# | | weight a | weight b |
# |---|---|---|
# | m̂ = m / 0.1 | 100 | 1 |
# | v̂ = v / 0.02 | 10,000 | 1 |
# | m̂ / √v̂ | 100 / 100 = **1** | 1 / 1 = **1** |
#
# Multiply the last row by the learning rate, say 0.1, and subtract it. Both weights go from 1 to 0.9:

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
        drawing.line([(678, y - 52), (678, y + 66)], "line", 1.2)
        drawing.line([(668, y - 40), (688, y - 40)], "ink", 1.6)
        tip = y - 40 + 100 * step                     # to scale: 100 is the full rate
        if abs(step) > 0.2:
            drawing.arrow((678, y - 40), (678, tip), "forward", width=3)
        else:                                         # too short for a shaft
            drawing.polygon([(678, tip), (673, y - 40), (683, y - 40)], "forward")
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
# **The second step.** In training every step sees other sentences, and they may want the opposite. So leave the ravine,
# and suppose that the second gradient is $(-100, 1)$. Which weight moves farther now?
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
     "moves by the full rate. The blue arrows are drawn to scale.")

# %% [markdown]
# Weight $b$ moves farther, and $a$ turns back. In $m$ the two gradients of $a$ nearly cancel: 9 − 10 = −1. In $v$
# nothing cancels, since squares are positive: 196 + 200 = 396.
#
# Why divide by 0.19? In $m$ the new gradient counts 10 %. The first gradient counted 10 %, and $m$ has kept 90 % of
# that: 9 %. Together that's 19 %. In $v$ it's 2 % + 1.96 % = 3.96 %.
#
# </details>
#
# The larger gradient made the smaller step. **What counts is how a weight's gradients compare with each other.**
#
# ## In general
#
# Let $g_t$ be the gradient at step $t = 1, 2, \dots$ All arrays have the shape $(n,)$, one number for each weight. Our
# 0.9 and 0.98 are called $\beta_1$ and $\beta_2$ (beta). The learning rate is $\eta_t$ (eta):
#
# $$m_t = \beta_1 m_{t-1} + (1 - \beta_1) \, g_t \qquad\qquad v_t = \beta_2 v_{t-1} + (1 - \beta_2) \, g_t^2$$
#
# $$\hat{m}_t = \frac{m_t}{1 - \beta_1^t} \qquad \hat{v}_t = \frac{v_t}{1 - \beta_2^t} \qquad
# w_t = w_{t-1} - \eta_t \frac{\hat{m}_t}{\sqrt{\hat{v}_t} + \varepsilon}$$
#
# After $t$ steps the 0 from the start still counts $\beta^t$, so the gradients count $1 - \beta^t$. In our second step
# that was $1 - 0.9^2 = 0.19$. The small $\varepsilon = 10^{-9}$ (epsilon) avoids a division by 0. An average remembers
# about $1 / (1 - \beta)$ steps: $m$ about 10, and $v$ about 50.
#
# Write such a step as code, then unfold ours.


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
w, m, v = np.ones(2), 0, 0
for t, g in (1, [100.0, 1.0]), (2, [-100.0, 1.0]):
    w, m, v = adam_step(w, np.array(g), m, v, t, rate=0.1)
same("both steps by hand: our code and the pencil", w, (0.9 + 0.1 / 19, 0.8), 1e-6)
same("20 steps: our code and the library", ours[0], model.store.data, 1e-5)

# %% [markdown]
# Two things follow from the division:
#
# - **Scale drops out.** Multiply all gradients of a weight by 1,000, and its steps stay the same. That can hide a bug:
#   if a gradient is 1,000 times too small, the loss curve won't show it.
# - **The learning rate is a distance.** While its gradients stay the same, a weight moves by the rate at every step. If
#   they grow, $m$ grows sooner than $v$, and steps can be longer: up to 1.7 times the rate ([lab notes 15, experiment
#   3](lab/15_adam_and_warmup.py#experiment-3-how-long-is-a-step)).
#
# <!-- see: inside?way=backward&step=adam | the step that Adam takes with a weight -->
#
# ## The learning rate
#
# The paper's rate rises on a straight line for 4,000 steps. This is the **warm-up**. Then the rate falls as
# $1 / \sqrt{t}$, where $t$ is the step: four times as many steps halve it.

# %% Drawing the schedule
figure, axes = plt.subplots(figsize=(7, 2.9), layout="constrained")
steps = np.arange(1, 20_001, 50)
terms = 1000 / 512**0.5 * np.array([steps**-0.5, steps * 4000**-1.5])  # (2, steps)
for term, words, at, away, side in (
    (terms[0], r"$512^{-0.5} \cdot t^{-0.5}$", 33, (9, 4), "left"),
    (terms[1], r"$512^{-0.5} \cdot t \cdot 4000^{-1.5}$", 112, (10, 0), "left"),
):
    axes.plot(steps, term, "--", color=SOFT, lw=1.2)
    axes.annotate(words, (steps[at], term[at]), away, textcoords="offset points",
                  color=SOFT, va="center", ha=side)
axes.plot(steps, terms.min(axis=0), color=STEP, lw=2.5)
for step, away, words in (
    (2000, (10, -6), "step 2,000: half"),
    (4000, (13, 1), "step 4,000: the highest"),
    (16_000, (12, 8), "step 16,000: half"),
):
    height = 1000 * noam(step, 512, 4000)
    axes.plot(step, height, "o", color=INK, ms=6)
    axes.annotate(words, (step, height), away, textcoords="offset points")
axes.set(xlabel="step", ylabel="learning rate, in thousandths", ylim=(0, 1.2))
axes.xaxis.set_major_formatter("{x:,.0f}")
axes.set_xticks(range(0, 20_001, 4000))
axes.spines[["top", "right"]].set_visible(False)
show(
    figure,
    "15_schedule",
    alt="The two terms of equation 3 over 20,000 steps, dashed, and the smaller of "
    "them as a thick line. It rises on a straight line, through 0.00035 at step "
    "2,000, to 0.0007 at step 4,000. Then it falls, to 0.00035 at step 16,000.",
    caption="The learning rate of the paper's base model (thick). It's the smaller of "
    "the two dashed lines.",
)

# %% [markdown]
# This is the paper's equation 3, with $d_{model} = 512$ and warmup = 4,000:
#
# $$\eta_t = d_{model}^{-0.5} \cdot \min(t^{-0.5}, \; t \cdot \mathrm{warmup}^{-1.5})$$
#
# At $t = 4000$ the two terms are equal, since $4000^1 \cdot 4000^{-1.5} = 4000^{-0.5}$. Compute the three dots:
#
# - **Step 4,000.** One over the root of 4,000 is 1 / 63.25. One over the root of 512 is 1 / 22.63. Their product is
#   1 / 1431 = **0.000699**, the highest rate.
# - **Step 2,000** is half-way up the line. **At step 16,000** the root of the step is twice that of 4,000. So the rate
#   is 0.000349 at both.
#
# **Your turn.** Write `adam(model, step, warmup_steps, beta_1, beta_2, epsilon)` in `transformer.py`. First the rate:
# $d_{model}$ is the width of `model.E.data`, and our small model warms up for 400 steps. Then $m$, $v$ and the step of
# each weight `w` in `model.weights.values()`: its arrays are `w.data`, `w.grad`, `w.m` and `w.v`, and $\varepsilon$ is
# added to $\sqrt{v_t}$. At the end, `w.grad[...] = 0`. `scratchformer learn check adam`.


# %% Our solution
def learning_rate(t, d_model=512, warmup=4000):
    return d_model**-0.5 * min(t**-0.5, t * warmup**-1.5)


assert np.isclose(learning_rate(2000), noam(2000, 512, 4000))


# %%
quote("adam")

# %% [markdown]
# But why begin near 0? At the first step Adam has seen one gradient, and one gradient agrees with itself. So nearly
# every weight moves by the full rate, however small its gradient is. Do full steps at the start do harm?
#
# <!-- see: train | a model to train at another rate, or without the warm-up -->
#
# ## Does it matter?
#
# Let's train a small Transformer with and without a warm-up:
#
# - **Model:** 3 + 3 layers with $d_{model} = 32$ and, as in the paper, a norm *after* each sublayer (post-LN, [lesson
#   12](12_residual_norm_dropout.py)).
# - **Task:** translate English into German, in 150 steps of Adam.
# - **What we change:** the learning rate. Without a warm-up it's 0.01 from the first step on. With a warm-up it rises
#   to 0.01 in 40 steps and stays there. We chose 0.01 so high that a difference shows.
# - **What we measure:** the loss, in three runs with different weights at the start and other batches.
#
# What will the runs without a warm-up do? (a) Their loss explodes. (b) They learn as well, only earlier. (c) Their loss
# falls faster at first, and then it's stuck.
#
# <details><summary>Make a guess, then unfold: the loss curves</summary>

# %% The recorded runs
result = recorded("warm_up")
frequencies = result["unigram_entropy"]


def runs_of(part="results", norm="post", peak=0.01, warmed="none"):
    """The runs of one kind: their curves, and their losses on new sentences."""
    (row,) = [row for row in result[part]
              if (row["norm"], row["peak"], row["warmed"]) == (norm, peak, warmed)]
    return row["runs"]


# %% Drawing the loss curves
figure, axes = plt.subplots(figsize=(7.4, 3.6), layout="constrained")
for warmed, words, colour in (
    ("none", "without warm-up", AMBER), ("all", "with warm-up", STEP)
):
    for run in runs_of(warmed=warmed):
        curve = np.reshape(run["curve"], (-1, 2)).mean(axis=1)  # of 10 steps each
        axes.plot(np.arange(5.5, 150, 10), curve, color=colour, lw=1.5, alpha=0.85)
    end = np.mean([run["curve"][-2:] for run in runs_of(warmed=warmed)])
    axes.annotate(words, (146, end), (6, 0), textcoords="offset points",
                  color=colour, va="center", annotation_clip=False)
axes.axhline(frequencies, color=SOFT, lw=1, ls=":")
axes.annotate("knows only how\nfrequent each\ntoken is", (8, frequencies), (8, 4.6),
              color=SOFT, arrowprops={"arrowstyle": "-", "color": SOFT})
axes.axvline(40, color=GRAY, lw=1)
axes.annotate("warm-up ends", (40, 7.3), (4, 0), textcoords="offset points", color=SOFT)
axes.set(xlabel="step", ylabel="training loss, nats per token", xlim=(0, 150))
axes.spines[["top", "right"]].set_visible(False)
show(figure, "15_warmup",
     alt="Training loss over 150 steps. Without warm-up it falls faster for the "
     "first 30 steps, and from step 35 on stays within 0.3 of the loss of the "
     "frequencies. With warm-up it falls more slowly at first; two curves "
     "cross the others by step 35, the third by step 75, and all end near 4.7.",
     caption="Each line is one run, averaged over ten steps. Without a warm-up the "
     "loss falls faster at first, and then it's stuck.")

# %% [markdown]
# It's (c). For about 30 steps the runs without a warm-up are *ahead*. From step 35 on they stay within 0.3 of the
# dotted line. That line is the loss of a model that ignores the English sentence and knows only how frequent each
# German token is.
#
# </details>
#
# The table adds three kinds of runs, all without a warm-up. The last one tests a common explanation: at first Adam's
# $v$ rests on too few gradients. There $v$ collects the gradients of 40 batches before the first step.

# %% Five kinds of runs
KINDS = {
    "without warm-up": runs_of(),
    "with warm-up": runs_of(warmed="all"),
    "without, at a lower rate, 0.003": runs_of(peak=0.003),
    "without, the norm before each sublayer (pre-LN)": runs_of(norm="pre"),
    "without, v from 40 batches": runs_of("v_first", warmed="v averaged first"),
}
rows = [[words, " · ".join(f"{run['final_loss']:.1f}" for run in runs)]
        for words, runs in KINDS.items()]
table(["150 steps", "loss on new sentences, three runs"],
      [["token frequencies alone", f"{frequencies:.1f}"], *rows])

# %% [markdown]
# - **What the warm-up buys:** at the rate of 0.01 all three runs get far below the frequencies, and without it none
#   does.
# - **What this doesn't mean:** that only a warm-up helps, for without one a lower rate does as well here, and pre-LN
#   does better.
# - **What we don't know:** how the full first steps do harm; it isn't $v$ alone, for a better $v$ frees only one run
#   of the three (4.8).
#
# **So why warm up at all?** Because the best of our longer runs with post-LN had one. After 600 steps at 0.003, the
# loss was 2.25 with a warm-up and 2.51 without, on average, and lower with it in each run ([lab notes 15, experiment
# 5](lab/15_adam_and_warmup.py#experiment-5-at-which-rates-does-a-warm-up-help)).
#
# ## Paper and code
#
# [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), §5.3, give 0.9, 0.98, $10^{-9}$ and equation 3 without a
# reason. Other books use 0.999 and $10^{-8}$. Adam is by [Kingma and Ba (2015)](https://arxiv.org/abs/1412.6980). Ours
# is in [nn/optim.py](../scratchformer/nn/optim.py): `Adam` and `noam`. It adds $\varepsilon$ to $\sqrt{v}$, and the
# page adds it to $\sqrt{\hat{v}}$, as above. You can play with momentum in Goh's [*Why Momentum Really
# Works*](https://distill.pub/2017/momentum/). His $m$ is 10 times ours, so our rate of 0.05 is his 0.005.
#
# ## What to remember
#
# Adam divides the average of each weight's gradients by their usual size. So their size drops out, and what counts is
# how they compare with each other. The paper's rate rises to 0.0007 in 4,000 steps and then falls. At a high rate our
# small post-LN model learned only with a warm-up.
#
# **Yours:** `adam`, and the hunt `disguise` (change every gradient so that Adam takes the same steps) · `scratchformer
# learn check 15`
#
# **Next.** The model, the loss and the optimizer are complete. [Lesson 16](16_first_training.py) puts them together and
# shows how to tell a slow training from a broken one.
