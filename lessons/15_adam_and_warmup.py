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
from library.lesson import recorded, same, show, table
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.parameter import Layer, Parameter, ParameterStore

# %% [markdown]
# A gradient says in which direction each weight should go. It doesn't say how far. Let's see what can go wrong with
# only two weights, $a$ and $b$, and the loss $50 a^2 + \frac{1}{2} b^2$. The lowest point is $a = b = 0$. The gradient
# is $(100 a, b)$. So the loss is steep in $a$ and shallow in $b$.
#
# **Gradient descent** multiplies the gradient by one number, the **learning rate**, and subtracts the product from the
# weights. We start at $a = b = 1$ and take 60 steps, at four rates:


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
       for rate in ("0.001", "0.01", "0.019", "0.021")])

# %% [markdown]
# No row is good. At the highest rate, 0.021, $a$ explodes. The first step subtracts $0.021 \cdot 100 = 2.1$, so $a$
# jumps from 1 to −1.1, across 0 and farther away. The next step takes it to 1.21, and so on. At the lower rates $a$
# arrives, but $b$ doesn't. At 0.019 every step takes away only 1.9 % of $b$, and after 60 steps a third is left. **One
# number can't suit both weights.**
#
# In a Transformer, too, one rate makes very different steps. In a small one, large gradients were about 340 times as
# large as small ones ([lab notes 15, experiment
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
    caption="Forty steps each, from the dot towards the cross. The steep weight a "
    "goes up, the shallow weight b goes to the right. Gradient descent jumps "
    "from wall to wall, momentum swings, and Adam takes the diagonal.",
)

# %% [markdown]
# **Gradient descent** jumps from wall to wall. It goes far across the ravine and hardly forward.
#
# **Momentum** steps along a running average of the gradients. The average $m$ begins at 0. At every step it keeps 90 %
# of itself and takes in 10 % of the new gradient $g$. Let's give it gradients that change their sign, as those across
# the ravine do. And let's give it gradients that stay the same, as those along the floor nearly do:


# %%
def running_average(gradients):
    m = 0
    for g in gradients:
        m = 0.9 * m + 0.1 * g
    return m


table(["", "gradients", "their running average after 40 steps"],
      [["across", "+10, −10, +10, −10, …", f"{running_average([10, -10] * 20):.1f}"],
       ["along", "+1, +1, +1, +1, …", f"{running_average([1, 1] * 20):.1f}"]])

# %% [markdown]
# Across the ravine, the gradients nearly cancel: of 10 only 0.5 is left. Along the floor they agree, and the average
# keeps them. So momentum still works at a rate of 0.05, at which gradient descent explodes. This higher rate is its
# gain: at equal rates it isn't faster here ([lab notes 15, experiment
# 1](lab/15_adam_and_warmup.py#experiment-1-ravines-straight-and-diagonal)).
#
# **Adam** takes an average, too, and then it divides. It divides the average gradient of each weight by the usual size
# of that weight's gradients. So a steep weight and a shallow weight move equally far. In figure 1 both begin at 1, so
# they stay equal, and the path is the diagonal. At the cross Adam is still fast. It runs on to −0.14 before it turns.
#
# Figure 1 isn't a race, since we chose the rates. In a small Transformer we gave each method the best of four rates.
# There momentum ended at a loss of 4.53, and Adam at 3.60 ([lab notes 15, experiment
# 5](lab/15_adam_and_warmup.py#experiment-5-which-part-of-adam-does-it)).
#
# ## Two steps by hand
#
# Adam keeps two numbers for each weight. Both begin at 0:
#
# - $m$ is the running average of the gradients $g$. It keeps 90 % of itself and takes in 10 % of the new $g$.
# - $v$ is a running average of the squares $g^2$. It keeps 98 % of itself and takes in 2 % of the new $g^2$. The root
#   of $v$ is the "usual size" of the gradients.
#
# **The first step.** Take a pencil. The gradient is $(100, 1)$:
#
# | | weight a | weight b |
# |---|---|---|
# | gradient g | 100 | 1 |
# | m = 90 % of 0 + 10 % of g | 10 | 0.1 |
# | v = 98 % of 0 + 2 % of g² | 200 | 0.02 |
#
# These averages are too small. The only gradient of $a$ is 100, so its average should be 100, and $m$ is 10. The reason
# is the 0 from the start, which counts 90 %. Only 10 % of $m$ comes from a gradient, so we divide $m$ by 0.1. Only 2 %
# of $v$ comes from a gradient, so we divide $v$ by 0.02. This is the **bias correction**. The corrected numbers get a
# hat:
#
# | | weight a | weight b |
# |---|---|---|
# | m̂ = m / 0.1 | 100 | 1 |
# | v̂ = v / 0.02 | 10,000 | 1 |
# | m̂ / √v̂ | 100 / 100 = **1** | 1 / 1 = **1** |
#
# Multiply the last row by the learning rate, say 0.1, and subtract it: both weights go from 1 to 0.9. The gradients
# differ by a factor of 100, and the steps are equal.

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
# **The second step.** Now leave the ravine, where the next gradient would be $(90, 0.9)$. In training, every step sees
# other sentences, and other sentences can want the opposite. Suppose that the second gradient is $(-100, 1)$. Which
# weight moves farther now, and in which direction does each of them go?
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

# %% [markdown]
# For weight $a$:
#
# - $m$: 90 % of the old 10 is 9, and 10 % of −100 is −10. The two nearly cancel, and $m = -1$.
# - $v$: 98 % of the old 200 is 196, and 2 % of 10,000 is 200. Squares are positive, so nothing cancels, and $v = 396$.
# - Correction of $m$: the new gradient counts 10 %. The first one counts 90 % of its 10 %, which is 9 %. Together
#   that's 19 %, so $\hat{m} = -1 / 0.19 = -5.26$.
# - Correction of $v$: in the same way, 2 % and 1.96 % make 3.96 %. So $\hat{v} = 396 / 0.0396 = 10{,}000$, and its root
#   is 100.
# - Step: the quotient is −5.26 / 100 = −0.053. Times the rate it's −0.005, and subtracting it moves $a$ up to 0.905.
#
# For weight $b$ both gradients are 1, so both corrected averages are 1. It moves down by the full 0.1, to 0.8.
#
# </details>
#
# The larger gradient made the smaller step. **The length of a step shows how well the gradients agree, not how large
# they are.**
#
# ## In general
#
# Let $g_t$ be the gradient at step $t = 1, 2, \dots$ The arrays $g$, $m$, $v$ and the weights $w$ have the shape
# $(n,)$, one number for each weight. Our 0.9 and 0.98 are called $\beta_1$ and $\beta_2$ (beta). The learning rate is
# $\eta_t$ (eta):
#
# $$m_t = \beta_1 m_{t-1} + (1 - \beta_1) \, g_t \qquad\qquad v_t = \beta_2 v_{t-1} + (1 - \beta_2) \, g_t^2$$
#
# $$\hat{m}_t = \frac{m_t}{1 - \beta_1^t} \qquad \hat{v}_t = \frac{v_t}{1 - \beta_2^t} \qquad
# w_t = w_{t-1} - \eta_t \frac{\hat{m}_t}{\sqrt{\hat{v}_t} + \varepsilon}$$
#
# After $t$ steps the 0 from the start still counts $\beta^t$, so the gradients count $1 - \beta^t$. In our second step
# that was $1 - 0.9^2 = 0.19$ for $m$. The small $\varepsilon = 10^{-9}$ (epsilon) avoids a division by 0. An optimizer
# that has only the first average is momentum. One that has only the second is called RMSProp.
#
# **Your turn.** Open `exercises/15_adam.py`, write these five equations, and run `scratchformer learn check 15_adam`.
# It tells you what is wrong and why. Then unfold our solution.


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
# - **Scale drops out.** Multiply all gradients of a weight by 1,000. Then $\hat{m}$ and $\sqrt{\hat{v}}$ both grow by
#   1,000, and the steps stay the same. That can hide a bug. If the gradient of one matrix is 1,000 times too small, the
#   loss curve won't show it (`15_disguise`).
# - **The learning rate is a distance.** While its gradients agree, a weight moves by about the rate at every step. A
#   step can be longer, but never more than 1.7 times the rate ([lab notes 15, experiment
#   3](lab/15_adam_and_warmup.py#experiment-3-how-long-is-a-step), and `15_longest_step`).
#
# ## The learning rate
#
# In the paper the learning rate changes from step to step. For 4,000 steps it rises on a straight line. This is the
# **warm-up**. Then it falls with the root of the step: four times as many steps halve the rate.

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
for step, words in (4000, "step 4,000: the highest"), (16_000, "step 16,000: half"):
    height = 1000 * noam(step, 512, 4000)
    axes.plot(step, height, "o", color=INK, ms=6)
    axes.annotate(words, (step, height), (10, 8), textcoords="offset points")
axes.set(xlabel="step", ylabel="learning rate, in thousandths", ylim=(0, 1.2))
axes.xaxis.set_major_formatter("{x:,.0f}")
axes.set_xticks(range(0, 20_001, 4000))
axes.spines[["top", "right"]].set_visible(False)
show(
    figure,
    "15_schedule",
    alt="The two terms of equation 3 over 20,000 steps, dashed, and the smaller of "
    "them as a thick line. It rises on a straight line to 0.0007 at step 4,000 "
    "and then falls, to half of that at step 16,000.",
    caption="The learning rate of the paper's base model (thick). It's the smaller of "
    "the two dashed lines.",
)

# %% [markdown]
# As a formula, this is the paper's equation 3, with $d_{model} = 512$ and warmup = 4,000:
#
# $$\eta_t = d_{model}^{-0.5} \cdot \min(t^{-0.5}, \; t \cdot \mathrm{warmup}^{-1.5})$$
#
# During the warm-up the second term is the smaller one, and after it the first. At $t = 4000$ they are equal. Compute
# the two dots of figure 4:
#
# - The first term is one over the root of 4,000, so 1 / 63.25. The factor in front is one over the root of 512, so
#   1 / 22.63. The highest rate is their product: 1 / (63.25 · 22.63) = 1 / 1431 = **0.000699**.
# - At step 16,000 the root of the step is twice as large, so the rate is half as large: 0.000349.
#
# **Your turn**, if you like: `exercises/15_noam.py`, in two lines.


# %% Our solution
def learning_rate(t, d_model=512, warmup=4000):
    return d_model**-0.5 * min(t**-0.5, t * warmup**-1.5)


three = 1, 4000, 16_000
ours, library = ([rate(t, 512, 4000) for t in three] for rate in (learning_rate, noam))
assert np.allclose(ours, library)

# %% [markdown]
# But why should the rate begin near 0? At the first step Adam has seen one gradient, and one gradient always agrees
# with itself. So at a constant rate every weight moves by the full rate, because of a single batch. In a model that we
# watched, this was the longest step of all ([lab notes 15, experiment
# 3](lab/15_adam_and_warmup.py#experiment-3-how-long-is-a-step)).
#
# ## Does it matter?
#
# Let's train the same small Transformer with and without a warm-up:
#
# - **Model:** 3 + 3 layers, $d_{model} = 32$, and a norm *after* each sublayer, as in the paper (post-LN, [lesson
#   12](12_residual_norm_dropout.py)).
# - **Task:** translate English into German. There are 150 steps of Adam.
# - **What we change:** only the learning rate. Without a warm-up it's 0.01 from the first step on. With a warm-up it
#   rises to 0.01 in 40 steps, and stays there. We chose 0.01 so high that a difference shows.
# - **What we measure:** the loss, in three runs of each kind. The three runs begin with different weights.
#
# What will the runs without a warm-up do? (a) Their loss explodes. (b) They learn as well as the others, only earlier.
# (c) Their loss falls faster at first, and then it's stuck.
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
        at = result["points_of"] * (1 + np.arange(len(run["curve"]))) - 2
        axes.plot(at, run["curve"], color=colour, lw=1.5, alpha=0.85)
    ends = np.mean([run["curve"][-1] for run in runs_of(warmed=warmed)])
    axes.annotate(words, (148, ends), (6, 0), textcoords="offset points", color=colour,
                  va="center", annotation_clip=False)
axes.axhline(frequencies, color=SOFT, lw=1, ls=":")
axes.annotate("knows only how frequent each token is", (2, frequencies), (0, -13),
              textcoords="offset points", color=SOFT)
axes.axvline(40, color=GRAY, lw=1)
axes.annotate("warm-up ends", (40, 7.3), (4, 0), textcoords="offset points", color=SOFT)
axes.set(xlabel="step", ylabel="training loss, nats per token", xlim=(0, 150))
axes.spines[["top", "right"]].set_visible(False)
show(figure, "15_warmup",
     alt="Training loss over 150 steps. Without warm-up it falls faster for the "
     "first 30 steps, and from then on stays near 5.6, a little above the loss "
     "of the frequencies. With warm-up it falls more slowly at first, crosses "
     "the other curves after step 50, and ends near 4.7.",
     caption="Each line is one run, averaged over five steps. Without a warm-up the "
     "loss falls faster at first, and then it's stuck.")

# %% [markdown]
# It's (c). For about 30 steps the runs without a warm-up are *ahead*. Then they stop. Their loss is near 5.6, a little
# above the dotted line. That line is what a model gets that ignores the English sentence and knows only how frequent
# each German token is. The runs with a warm-up cross the line and go on.
#
# </details>
#
# **Why does a warm-up help?** One often reads that Adam's $v$ is to blame: in the first steps it rests on too few
# gradients. We can test this. We let $v$ collect the gradients of 40 batches before the weights move. Then we start at
# the full rate, without a warm-up. The last two rows change something else: the place of the norm, and the rate.

# %% Five kinds of runs
KINDS = {
    "without warm-up": runs_of(),
    "with warm-up": runs_of(warmed="all"),
    "without, but v collects 40 batches first":
        runs_of("reasons", warmed="v averaged first"),
    "without, but the norm stands before each sublayer (pre-LN)": runs_of(norm="pre"),
    "without, but at a lower rate, 0.003": runs_of(peak=0.003),
}
table(["150 steps", "loss on new sentences, three runs"],
      [[words, " · ".join(f"{run['final_loss']:.1f}" for run in runs)]
       for words, runs in KINDS.items()])

# %% [markdown]
# - **A better $v$ isn't enough.** It helps one run of three. The other two stay far above the runs with a warm-up.
# - **The norm matters.** With the norm before each sublayer no run gets stuck, with the same Adam and the same rate.
# - **The rate matters.** At 0.003 no run gets stuck, without any warm-up.
#
# The lower rate stays the better choice after 600 steps ([lab notes 15, experiment
# 6](lab/15_adam_and_warmup.py#experiment-6-does-a-warm-up-help-at-every-learning-rate-and-do-runs-without-it-recover)).
#
# So in these small models a poor $v$ isn't the whole reason. Momentum, which has no $v$, gets stuck without a warm-up
# as well ([lab notes 15, experiment
# 9](lab/15_adam_and_warmup.py#experiment-9-is-it-the-large-gradients-near-the-output)).
#
# What do the long first steps damage? We don't know. We only know where: in the value and output matrices of attention.
# A warm-up for these alone does as much as a warm-up for all weights ([lab notes 15, experiment
# 7](lab/15_adam_and_warmup.py#experiment-7-which-weights-need-the-warm-up)).
#
# ## Paper and code
#
# [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), §5.3, give the numbers 0.9, 0.98, $10^{-9}$, 4,000 and
# equation 3, and no reason for them. Adam is by [Kingma and Ba (2015)](https://arxiv.org/abs/1412.6980). In the
# library: `Adam` and `noam` in [nn/optim.py](../scratchformer/nn/optim.py). *It differs from this page:* it adds
# $\varepsilon$ to $\sqrt{v}$ before the correction. For a momentum that you can play with, see Goh's [*Why Momentum
# Really Works*](https://distill.pub/2017/momentum/).
#
# ## What to remember
#
# Adam divides the average of each weight's gradients by their usual size. So a weight moves far where its gradients
# agree, not where they are large, and the learning rate is a distance. The paper's rate rises to 0.0007 in 4,000 steps,
# and then it falls. Without a warm-up, our small post-LN model got stuck at a high rate: it learned how frequent each
# token is, and hardly more.
#
# **Exercises.** `15_adam`: Adam for any number of steps. `15_noam`: equation 3, for many steps at once. `15_disguise`:
# change every gradient so that Adam takes the same steps. `15_longest_step`: find gradients after which a step is 1.6
# times as long as the learning rate. And a puzzle:
#
# <details><summary>You forget the bias correction. How long is the first step, with 0.98 and with 0.999?</summary>
#
# For a gradient of 1: $m = 0.1$ and $v = 0.02$. The step is 0.1 / 0.141 = 0.71 times the rate, and nobody notices. With
# 0.999, $v = 0.001$, and the step is 0.1 / 0.0316 = 3.2 times the rate.
#
# </details>
#
# **Next.** The parts are complete: a model, a loss, an optimizer with its learning rate. [Lesson
# 16](16_first_training.py) puts them together, and shows how to tell a training that is slow from one that is broken.
