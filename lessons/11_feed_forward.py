# %% [markdown]
# # 11 · The feed-forward network
#
# **Attention brings words together. What computes with what it has brought?**
#
# *Needs [lesson 01](01_backprop.py) (linear maps and their gradients), [lesson 04](04_soft_lookup.py) (attention) and
# [lesson 06](06_masks.py) (the flow test) · you will compute a feed-forward network and its gradient with pencil and
# paper.*

# %% Imports
import matplotlib.pyplot as plt
import numpy as np

from scratchformer.doctor.flow_probes import dependence_of
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.layers import FeedForward, Linear
from scratchformer.nn.transformer import Transformer
from scratchformer.text.bundled import read
from scratchformer.training.run import load_run
from support.agreement import Judge, sentences, trained
from support.drawing import Drawing
from support.hidden_units import hidden_units
from support.lesson import QUICK, ROOT, measure, recorded, same, show, table
from support.numeric import numeric_gradient

# %% [markdown]
# *The goat sleeps* and *the goats sleep* are right. *The goats sleeps* and *the goat sleep* are wrong. Neither the
# noun nor the verb tells you which, only the two together do. Can attention find out?
#
# Let a query, the word `?`, look at the three words with one head, and let a linear map turn what it gets into two
# scores, *right* and *wrong*. Between head and scores we put nothing, or two linear maps, or a **feed-forward
# network**: two linear maps with a **ReLU** between them, which replaces negative numbers by 0. The model learns from
# three quarters of the pairs of noun and verb, and the others are the test. Three runs each:

# %% Training the judges
ids, is_right, is_new = sentences()
MIDDLES = {
    "nothing": lambda random: [],
    "two linear maps": lambda random: [Linear(12, 48, random, "float64"),
                                       Linear(48, 12, random, "float64")],
    "feed-forward network": lambda random: [FeedForward(12, 48, random, "float64")],
}
SEEDS = [1] if QUICK else [1, 2, 3]
for name, middle in MIDDLES.items():
    shares = [trained(Judge(seed, middle)).share_right(ids[is_new], is_right[is_new])
              for seed in SEEDS]
    worst, (lo, hi) = name == "feed-forward network", (0.4, 0.75)
    measure(f"{name}: new pairs judged rightly, {'worst' if worst else 'best'} run",
            min(shares) if worst else max(shares), *((0.9, 1) if worst else (lo, hi)))

# %% [markdown]
# With the ReLU the task is learned. Without it no run judges more than three of four sentences rightly. Training
# longer can't help, and here is why. One head returns a weighted mean, and a linear map of a mean is a mean of linear
# maps. So **each word has one vote, whatever the other words are**. Say the votes for "right" are $f$ for the noun
# and $g$ for the verb. (Softmax divides all votes by the same positive sum, so the sign of their total decides.) Then
#
# $$(f_{goat} + g_{sleeps}) + (f_{goats} + g_{sleep}) = (f_{goat} + g_{sleep}) + (f_{goats} + g_{sleeps})$$
#
# On the left are two right sentences, so both brackets should be positive. On the right are two wrong ones, so both
# should be negative. But both sides are equal. So at least one sentence of the four is judged wrongly. (This holds
# for one head with a query that is the same in every sentence. Two heads can do more: [lab notes 11, experiment
# 1](lab/11_feed_forward.py#experiment-1-two-heads-without-a-feed-forward-network).)
#
# ## The picture
#
# Let attention have brought two numbers: is the noun plural, and is the verb? Equal numbers are right, different ones
# are wrong. Two hidden units are enough. One looks for a noun that is more plural than the verb, the other one for
# the opposite.

# %% The figure
x = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])  # two right sentences, two wrong ones
W_1, b_1 = np.array([[1, -1], [-1, 1]]), np.array([0, 0])    # a unit is a column of W_1
W_2, b_2 = np.array([[-2], [-2]]), np.array([1])               # and a row of W_2
z = x @ W_1 + b_1
active = np.maximum(0, z)
y = (active @ W_2 + b_2)[:, 0]
LABELS = [{"goat\nsleeps": (0, 0), "goats\nsleep": (1, 1),
           "goat\nsleep": (0, 1), "goats\nsleeps": (1, 0)},
          {"both\nright": (0, 0), "goat\nsleep": (-1, 1), "goats\nsleeps": (1, -1)},
          {"both\nright": (0, 0), "goat\nsleep": (0, 1), "goats\nsleeps": (1, 0)}]
figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.5), layout="constrained")
for axes, points, labels in zip(panels, (x, z, active), LABELS):
    for label, at in labels.items():
        both = label == "both\nright"
        offset, side = ((-8, -30), "right") if both else ((8, 4), "left")
        axes.annotate(label, at, offset, textcoords="offset points", ha=side)
    axes.plot(*points[:2].T, "o", color=DARK, ms=11)
    axes.plot(*points[2:].T, "X", color=ACCENT, ms=11)
    axes.set(xlim=(-1.8, 1.8), ylim=(-1.5, 1.7), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
panels[0].set(xlim=(-0.5, 1.5), ylim=(-0.3, 1.5), xticks=[0, 1], yticks=[0, 1],
              title="x: no line parts ● from ✕", xlabel="x₁: noun is plural",
              ylabel="x₂: verb is plural")
panels[1].plot([-1.5, 1.5], [1.5, -1.5], ":", color="#666666", zorder=0)
panels[1].set(title="z = x W₁ + b₁: ● between the ✕", xlabel="first unit, z",
              ylabel="second unit, z")
panels[2].plot([0, 0, 1.5], [1.5, 0, 0], ":", color="#666666", zorder=0)
panels[2].plot([-0.9, 1.4], [1.4, -0.9], "--", color="#444444")
panels[2].text(0.45, -0.85, "y = 0", color="#444444")
panels[2].set(title="max(0, z): one line parts them", xlabel="first unit, active",
              ylabel="second unit, active")
show(figure, "11_fold",
     alt="Three plots of the four sentences. Left, as vectors x of zeros and ones: the "
     "right sentences stand at 0, 0 and 1, 1, the wrong ones at the other two corners, "
     "and no straight line separates them. Middle, z: all lie on one line, both right "
     "sentences at 0, 0, one wrong one to each side. Right, after the ReLU: the line "
     "is bent at 0, 0 to a right angle, and a straight line y = 0 has the right "
     "sentences on one side and both wrong ones on the other.",
     caption="The first linear map puts the four sentences on one line, the right ones "
     "in the middle. The ReLU bends that line, and now a straight cut separates them.")

# %% [markdown]
# No further linear map could separate the points in the middle panel: what lies between two points stays between
# them. The ReLU **bends** the line, and that is the whole trick.
#
# ## By hand
#
# Take the wrong sentence *the goat sleep*, $x = (0, 1)$: noun singular, verb plural. The first unit computes noun −
# verb = −1, the second verb − noun = 1. The ReLU turns −1 into 0. The output starts from 1 and subtracts 2 for each
# unit's activity: $y = 1 - 2 \cdot 0 - 2 \cdot 1 = -1$, which says *wrong*.

# %% Drawing the network
def network_picture(backward):
    """Figures 2 and 3: one sentence, without and with its gradients."""
    drawing = Drawing(720, 190 if backward else 110)
    steps = [("x", (0, 1), (2, -2), "noun, verb"), ("z", (-1, 1), (0, -2), "two units"),
             ("active", (0, 1), (-2, -2), "after the ReLU"),
             ("y", (-1,), (1,), "verdict")]
    boxes, back = [], []
    for i, (name, numbers, gradient, below) in enumerate(steps):
        x = 75 + 190 * i
        boxes.append(drawing.vector(x, 60, numbers, above=name, below=below))
        if backward:
            back.append(drawing.vector(x, 150, gradient, "gradient", below="d" + name))
    for i, step in enumerate(("W_1, b_1", "max(0, ·)", "W_2, b_2")):
        drawing.arrow(boxes[i].right, boxes[i + 1].left, label=step)
        if backward:
            drawing.arrow(back[i + 1].left, back[i].right, "gradient")
    return drawing


show(network_picture(backward=False), "11_by_hand",
     alt="From left to right: x is 0, 1; z is minus 1, 1; active is 0, 1; y is minus "
     "1.",
     caption="The sentence “the goat sleep” on its way through the network.")
measure("y of the right sentences, lowest", y[:2].min(), 1, 1)
measure("y of the wrong sentences, highest", y[2:].max(), -1, -1)
measure("without the ReLU: range of the four", np.ptp(z @ W_2 + b_2), 0, 0)

# %% [markdown]
# ## In general
#
# Equation 2 of the paper (§3.3), for the vector $x$ of one position, a row of $D = d_{model}$ numbers:
#
# $$\mathrm{FFN}(x) = \max(0, x W_1 + b_1) W_2 + b_2$$
#
# | | shape | in the base model |
# |---|---|---|
# | $x$, and the output $y$ | $(B, T, D)$ | $D = 512$ |
# | $W_1$, $b_1$ | $(D, F)$, $(F,)$ | $F = d_{ff} = 2048$ |
# | $z = x W_1 + b_1$, before the ReLU | $(B, T, F)$ | |
# | $a = \max(0, z)$, the hidden layer: `active` | $(B, T, F)$ | |
# | $W_2$, $b_2$ | $(F, D)$, $(D,)$ | |
#
# Unit by unit, with $W_{1,:j}$ the column and $W_{2,j:}$ the row of unit $j$, it reads
#
# $$y = b_2 + \sum_{j=1}^{F} \max(0, x \cdot W_{1,:j} + b_{1,j}) \, W_{2,j:}$$
#
# Each unit compares $x$ with a pattern, its column of $W_1$. In proportion to the match it adds a vector, its row of
# $W_2$. That resembles attention, $y = \sum_s w_s v_s$, with the columns as keys and the rows as values. But these
# keys and values are weights of the model, the same in every sentence. And each match goes through a ReLU of its own
# and not through a common softmax, so any number of units may answer, or none.
#
# **Your turn.** Open `exercises/11_feed_forward.py` and run `scratchformer learn check 11`. Our solution:

# %% Our solution
def feed_forward(x, W_1, b_1, W_2, b_2):
    """x (..., D) -> y (..., D), and what backward needs"""
    active = np.maximum(0, x @ W_1 + b_1)                      # (..., F)
    return active @ W_2 + b_2, active


B, T, D, F = 2, 5, 6, 9
random = np.random.default_rng(11)
layer = FeedForward(D, F, random, "float64")
parameters = layer.parameters().values()
for parameter in parameters:                 # biases, too: new ones are 0 and hide bugs
    parameter.data[...] = random.normal(size=parameter.shape)
weights = W_1, b_1, W_2, b_2 = [parameter.data for parameter in parameters]
x = random.normal(size=(B, T, D))
y, active = feed_forward(x, *weights)
same("y: this page and the library", y, layer.forward(x)[0])
units = sum(np.maximum(0, x @ W_1[:, j] + b_1[j])[..., None] * W_2[j] for j in range(F))
same("y as a sum over units", units + b_2, y)
flow = dependence_of(lambda x: feed_forward(x, *weights)[0], x).any(axis=(0, 2))
others = flow & ~np.eye(T, dtype=bool)                         # (T, T)
measure("outputs that depend on another position", others.sum(), 0, 0)
order = random.permutation(T)
same("positions reordered before or after", feed_forward(x[:, order], *weights)[0],
     y[:, order])

# %% [markdown]
# The network is **position-wise**: no position looks at another one, and all are treated by the same weights. (The
# paper also calls it "two convolutions with kernel size 1".) So in a Transformer layer attention moves information
# between positions, and the feed-forward network works at each position on what has arrived.
#
# ## Backward
#
# Back to figure 2. The gradient that arrives at $y = -1$ is 1. Which of the two inputs should grow, which should
# shrink, and does the first unit have a say?
#
# <details><summary>Make a guess, then unfold: figure 3</summary>

# %% Drawing the way back
show(network_picture(backward=True), "11_by_hand_backward",
     alt="The same drawing with gradients: dy is 1, the gradient at active is minus 2, "
     "minus 2, dz is 0, minus 2, and dx is 2, minus 2.",
     caption="The same sentence, backward. The first unit is off, so the gradient "
     "stops there.")

# %% [markdown]
# Both units would get −2, since each subtracts twice its activity. But the first unit is *off*: its $z$ is −1, and a
# small change of it changes nothing. So $dz = (0, -2)$. The second unit computes verb − noun, so the noun gets +2 and
# the verb −2. That is right: the sentence gets better if the noun becomes more plural, or the verb less so.
#
# </details>
#
# **The general rule.** Follow one number $x_{ti}$, component $i$ at position $t$. It goes to every $z_{tj}$ of its
# own position, with the factor $W_{1,ij}$. If $z_{tj}$ is positive, it goes on to $a_{tj}$ unchanged, otherwise it
# ends there. From $a_{tj}$ it goes to every $y_{tm}$ with the factor $W_{2,jm}$. So, from the loss back:
#
# 1. $da_{tj} = \sum_m dy_{tm} W_{2,jm}$, in matrices $dy \, W_2^T$.
# 2. Through the ReLU: $dz_{tj} = da_{tj}$ where $z_{tj}$ is positive, and 0 elsewhere.
# 3. $dx_{ti} = \sum_j dz_{tj} W_{1,ij}$, in matrices $dz \, W_1^T$.
#
# A weight is used at every position of every sentence, so its gradient is a sum over all of them: $dW_{2,jm} = \sum_t
# a_{tj} dy_{tm}$ and $dW_{1,ij} = \sum_t x_{ti} dz_{tj}$, where $t$ runs through the whole batch. The biases are
# multiplied by 1: $db_2 = \sum_t dy_t$ and $db_1 = \sum_t dz_t$.
#
# Look at $dW_1$ and $dW_2$ for one unit. Where $a_{tj} = 0$, position $t$ adds nothing to either. **A unit learns
# only from the words that switch it on.** A unit that no word of the training data switches on has gradient 0 in all
# its weights. It is called *dead*.
#
# At $z = 0$ exactly, the slope is 0 on the left and 1 on the right, and there is no derivative. The library takes 0.
# It looks at `active > 0`, which is true exactly where $z > 0$, so $z$ need not be kept. (A central difference across
# such a kink calls a right gradient wrong: [lab notes 11, experiment
# 2](lab/11_feed_forward.py#experiment-2-checks-across-a-kink).)
#
# **Your turn.** Open `exercises/11_feed_forward_backward.py`. Our solution, with the check:

# %% Our solution
def feed_forward_backward(dy, x, active, W_1, W_2):
    """dy, x (B, T, D), active (B, T, F)
    -> dx (B, T, D), dW_1 (D, F), db_1 (F,), dW_2 (F, D), db_2 (D,)"""
    dactive = dy @ W_2.T                                       # (B, T, F)
    dz = dactive * (active > 0)                                # (B, T, F)
    dW_1 = np.einsum("bti,btj->ij", x, dz)
    dW_2 = np.einsum("btj,btm->jm", active, dy)
    return dz @ W_1.T, dW_1, dz.sum(axis=(0, 1)), dW_2, dy.sum(axis=(0, 1))


dy = random.normal(size=y.shape)
gradients = feed_forward_backward(dy, x, active, W_1, W_2)
arrays, NAMES = [x, *weights], ["dx", "dW_1", "db_1", "dW_2", "db_2"]
layer.zero_grad()
dx = layer.backward(dy, layer.forward(x)[1])
library = [dx, *(parameter.grad for parameter in layer.parameters().values())]
for i, name in enumerate(NAMES):
    numeric = numeric_gradient(
        lambda array: (feed_forward(*arrays[:i], array, *arrays[i + 1:])[0] * dy).sum(),
        arrays[i])
    same(f"{name} and central differences", gradients[i], numeric, 1e-8)
    assert np.abs(gradients[i] - library[i]).max() < 1e-12

# %% [markdown]
# The library's `FeedForward` gives the same numbers.
#
# ## Does it matter?
#
# Small translators ($D = 64$, two layers in encoder and decoder) learn from the bundled corpus for 300 steps, three
# seeds each (recorded). Some have no feed-forward network at all. Leaving it out takes weights away, and any weights
# might help, so there is a control: *no ReLU* has all the weights of the paper's network, and computes two linear
# maps. Where between *no network* and the paper's will *no ReLU* end?
#
# <details><summary>Make a guess, then unfold: figure 4</summary>

# %% The figure
result = recorded("feed_forward")
rows = {(row["variant"], row["peak_learning_rate"]): row for row in result["results"]}


def losses(variant, peak=0.004):
    """-> final losses of the three seeds, (3,)"""
    return np.array([run["final_loss"] for run in rows[variant, peak]["runs"]])


figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
variants = ["none", "d_model", "2 d_model", "4 d_model", "8 d_model",
            "4 d_model, no ReLU"]
for place, variant in enumerate(variants):
    hollow, mean = variant in ("none", "4 d_model, no ReLU"), losses(variant).mean()
    axes.plot([place] * 3, losses(variant), "s" if hollow else "o", ms=8,
              color=ACCENT if hollow else DARK, mfc="none" if hollow else DARK)
    axes.text(place + 0.12, mean, f"{mean:.2f}", va="center")
labels = ["no network", *(f"d_ff =\n{name}" for name in variants[1:5]),
          "4 d_model,\nno ReLU"]
axes.set_xticks(range(len(variants)), labels)
axes.set(ylabel="validation loss, nats per token", xlim=(-0.4, 5.6))
show(figure, "11_width",
     alt="Validation loss of three runs each: without a feed-forward network about "
     "1.75 nats, with one as wide as d_model or twice as wide about 1.54, four times "
     "1.39, eight times 1.36; four times without its ReLU 1.53, as high as the narrow "
     "ones with it.",
     caption="Validation loss after 300 steps (three runs and their mean). A good half "
     "of what the network gains comes without its ReLU.")
none, linear, paper = (losses(variant).mean()
                       for variant in ("none", "4 d_model, no ReLU", "4 d_model"))
measure("share of the gap that “no ReLU” closes", (none - linear) / (none - paper),
        0.5, 0.7)

# %% [markdown]
# - **Without feed-forward networks** the loss is 0.36 higher, and higher in every seed.
# - **Two linear maps close 61 % of that gap**, although together they are one linear map. We hadn't expected it. The
#   sublayer brings more than its ReLU: more weights, and a box "Add & Norm" of its own ([lesson
#   12](12_residual_norm_dropout.py)). We haven't tested which of them helps.
# - **The ReLU closes the rest.** With it, a network as narrow as $d_{model}$ does as well as one of 4 $d_{model}$
#   without.
# - **Width**: 4 is better than 1 and 2 in every seed. Between 4 and 8 the seeds disagree.
#
# </details>
#
# All of this is about the first 300 steps, where the loss still falls fast. What the ReLU gains, the model without it
# may reach some sixteen steps later. ([Lab notes 11, experiment
# 3](lab/11_feed_forward.py#experiment-3-the-recorded-translators-seed-by-seed))
#
# ## How many units work at a time?
#
# The translator of [lesson 00](00_whole_game.py) ($D = 128$, $F = 256$) reads 300 English test sentences and writes
# the German ones. Which share of its hidden units is active for a word, before training and after?
#
# <details><summary>Make a guess, then unfold</summary>

# %% Watching the networks
translator, examples = load_run(ROOT / "data/tiny_model"), read("test")[:300]
new, after = ([(hidden > 0).mean() for _, hidden in hidden_units(
    model, translator.tokenizer, examples)]
    for model in (Transformer(translator.model.config, seed=0), translator.model))
names = [f"{stack}, layer {i}" for stack in ("encoder", "decoder") for i in (1, 2)]
table(["share of active units", "before training", "after"],
      [[name, f"{share:.2f}", f"{later:.3f}"]
       for name, share, later in zip(names, new, after)])

# %% [markdown]
# A new network has about half of its units active, as one expects from random weights. In the trained one a word
# switches on about one in sixteen in the encoder and one in five in the decoder.
#
# </details>
#
# (Li et al. 2023, *The Lazy Neuron Phenomenon*, report such sparse activity of much larger Transformers. What holds
# the units down? Not the biases: [lab notes 11, experiment
# 4](lab/11_feed_forward.py#experiment-4-what-holds-the-units-down).)
#
# ## Paper and code
#
# - §3.3, equation 2. "While the linear transformations are the same across different positions, they use different
#   parameters from layer to layer." The paper gives no reason for the factor 4 of $d_{ff}$.
# - Table 3, rows (C), English to German, newstest2013; each row changes $d_{ff}$ alone. (Perplexity is $e$ to the
#   mean loss in nats: lower is better.) Wider is better there, and the parameters grow with it.
#
# | $d_{ff}$ | 1024 | 2048 (base) | 4096 |
# | --- | --- | --- | --- |
# | perplexity | 5.12 | 4.92 | 4.75 |
# | BLEU | 25.4 | 25.8 | 26.2 |
# | parameters | 53M | 65M | 90M |
#
# - In the library: `FeedForward` in [nn/layers.py](../scratchformer/nn/layers.py), `relu` and `relu_backward` in
#   [nn/ops.py](../scratchformer/nn/ops.py).
#
# ## What to remember
#
# Attention mixes, and with one head and a fixed query it only adds up votes. The feed-forward network combines: at
# each position by itself, every unit compares the vector with a pattern, and where the match is positive it adds a
# vector of its own. On the way back only the units that are on pass a gradient, and only they learn.
#
# **Exercises** `11_feed_forward` · `11_feed_forward_backward` · `11_linear_collapse` (the one linear map that does
# what two do without the ReLU) · `11_relu_kink` (find an input for which the check of a right gradient fails) · a
# puzzle: you exchange two hidden units, their columns of $W_1$, their numbers in $b_1$ and their rows of $W_2$. What
# becomes of the output? And if you double a unit's column and its $b_1$ and halve its row?
#
# <details><summary>Answer</summary>
#
# The output stays the same, both times. It is a sum over units, and a sum has no order. And $\max(0, 2z) = 2 \max(0,
# z)$, so the factors 2 and one half cancel. (For a factor below 0 this fails.) So "unit 7" of one model has nothing
# to do with unit 7 of another.
#
# </details>
#
# **Next:** [12 · Residual connections, LayerNorm and dropout](12_residual_norm_dropout.py). By itself a feed-forward
# network *replaces* its input. Six layers of attention and feed-forward networks would replace it twelve times. How
# badly does such a stack learn?
