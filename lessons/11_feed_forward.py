# %% [markdown]
# # 11 · The feed-forward network
#
# **Attention brings words together. What computes with what it has brought?**
#
# *Needs [lesson 01](01_backprop.py) (linear maps and their gradients) and [lesson 04](04_soft_lookup.py) (attention) ·
# you will compute a feed-forward network and its gradient with pencil and paper.*

# %% Imports
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import transformer

from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.layers import FeedForward, Linear
from scratchformer.text.bundled import read
from scratchformer.training.run import load_run
from support.agreement import Judge, sentences, trained
from support.drawing import Drawing, number
from support.hidden_units import Units
from support.lesson import QUICK, ROOT, measure, quote, same, show, table
from support.numeric import numeric_gradient

# %% [markdown]
# *The goat sleeps* and *the goats sleep* are right. *The goats sleeps* and *the goat sleep* are wrong. Neither the noun
# nor the verb tells you which, only the two together do. Can attention find out?
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
# With the ReLU the task is learned. Without it no run judges more than three of four sentences rightly. Training longer
# can't help, and here is why. One head returns a weighted mean of the values. A linear map of it adds up what each word
# contributes. So **each word has one vote, whatever the other words are**. Let $f$ be the vote of a noun for "right",
# and $g$ that of a verb. (*the* and the biases vote, too, but alike in all sentences. They are added to both sides
# below and cancel. And softmax divides all votes of a sentence by one positive number, which doesn't change the sign of
# their sum.) Then
#
# $$(f_{goat} + g_{sleeps}) + (f_{goats} + g_{sleep}) = (f_{goat} + g_{sleep}) + (f_{goats} + g_{sleeps})$$
#
# On the left are two right sentences, so both brackets should be positive. On the right are two wrong ones, so both
# should be negative. But both sides are equal. So at least one of the four is judged wrongly. (This holds for one head
# whose query is the same in every sentence. Two heads can do more: [lab notes
# 11](lab/11_feed_forward.py#two-heads-without-a-feed-forward-network).)
#
# ## The picture
#
# Let attention have brought two numbers: is the noun plural, and is the verb? Equal numbers are right, different ones
# are wrong. Two hidden units are enough. One looks for a noun that is more plural than the verb, the other one for the
# opposite.

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
# No further linear map could separate the points in the middle panel, because what lies between two points stays
# between them. The ReLU **bends** the line.
#
# ## By hand
#
# Take the wrong sentence *the goat sleep*, $x = (0, 1)$: noun singular, verb plural. The first unit computes noun −
# verb = −1, the second verb − noun = 1. The ReLU turns −1 into 0. The output starts from 1 and subtracts 2 for each
# unit's activity: $y = 1 - 2 \cdot 0 - 2 \cdot 1 = -1$, which says *wrong*.

# %% Drawing the network
def network_picture(backward):
    """Figures 2 and 3: one sentence, without and with its gradients."""
    drawing = Drawing(760, 190 if backward else 110)
    steps = [("x", (0, 1), (-2, 2), "noun, verb"), ("z", (-1, 1), (0, 2), "two units"),
             ("active", (0, 1), (2, 2), "after the ReLU"),
             ("y", (-1,), (-1,), "verdict")]
    boxes, back = [], []
    for i, (name, numbers, gradient, below) in enumerate(steps):
        x = 80 + 195 * i
        boxes.append(drawing.vector(x, 60, numbers, above=name, below=below))
        if backward:
            cells = [[""] * len(gradient)]
            back.append(drawing.matrix(x, 150, cells, "gradient", 54, below="d" + name))
            for j, value in enumerate(gradient):
                at = back[-1].cell(j)
                if value:
                    words = number(value, sign=True)
                    drawing.gradient(at.x - 8, at.y, -value, words, largest=2)
                else:
                    drawing.text(at.x, at.y, "0", "gradient", italic=True)
    for i, step in enumerate(("W_1, b_1", "max(0, ·)", "W_2, b_2")):
        drawing.arrow(boxes[i].right, boxes[i + 1].left, label=step)
        if backward:
            drawing.arrow(back[i + 1].left, back[i].right, "gradient")
    return drawing


show(network_picture(backward=False), "11_by_hand",
     alt="From left to right: x is 0, 1; z is minus 1, 1; active is 0, 1; y is minus "
     "1.",
     caption="The sentence “the goat sleep” on its way through the network.")
assert y.tolist() == [1, 1, -1, -1]
assert np.ptp(z @ W_2 + b_2) == 0                       # without the ReLU all are equal

# %% [markdown]
# Now *the goats sleeps*, $x = (1, 0)$. And what would $y$ be without the ReLU?
#
# <details><summary>Calculate, then unfold</summary>
#
# The units are 1 and −1, after the ReLU 1 and 0, so $y = 1 - 2 - 0 = -1$: *wrong*, too. Without the ReLU it would be
# $1 - 2 \cdot 1 - 2 \cdot (-1) = 1$. So it is for all four sentences, because the two units always cancel.
#
# </details>
#
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
# $W_2$. That resembles attention, $y = \sum_s w_s v_s$, with the columns as keys and the rows as values. But these keys
# and values are weights of the model, the same in every sentence. And each match goes through a ReLU of its own and not
# through a common softmax, so any number of units may answer, or none.
#
# The network is **position-wise**: no position looks at another one, and all share the same weights. So in a
# Transformer layer attention moves information between positions, and the feed-forward network works at each position
# on what has arrived.
#
# **Your turn.** Write `feed_forward(x, W_1, b_1, W_2, b_2)` in `transformer.py`. The two products are calls of
# `linear`, which adds to `W_1.grad` and `W_2.grad` on the way back. What is left for you: the biases, the ReLU, and the
# order of the steps. Backward comes now.
#
# ## Backward
#
# Back to figure 2. Let $dy = -1$: the loss falls if $y$ grows, so training wants the verdict nearer to *right*. Which
# of the two inputs should grow, and which should shrink? Does the first unit have a say?

# %% Drawing the way back
show(network_picture(backward=True), "11_by_hand_backward",
     alt="The same drawing with gradients: dy is minus 1, the gradient at active is 2, "
     "2, dz is 0, 2, and dx is minus 2, 2. Triangles show that the number of the noun "
     "will grow and that of the verb will fall.",
     caption="The same sentence, backward. The first unit is off, so the gradient "
     "stops there. Triangles show where training moves a number: against its gradient.")

# %% [markdown]
# Each unit subtracts twice its activity, so both would get +2. But the first unit is *off*: its $z$ is −1, and a small
# change of it changes nothing. So $dz = (0, +2)$. The second unit computes verb − noun, so the noun gets −2 and the
# verb +2. Training goes against the gradient: the noun becomes more plural and the verb less so. That is right, because
# then they agree.
#
# **The general rule.** Follow one number $x_{ti}$, component $i$ at position $t$. It goes to every $z_{tj}$ of its own
# position, with the factor $W_{1,ij}$. If $z_{tj}$ is positive, it goes on to $a_{tj}$ unchanged, otherwise it ends
# there. From $a_{tj}$ it goes to every $y_{tm}$ with the factor $W_{2,jm}$. So, from the loss back:
#
# 1. $da_{tj} = \sum_m dy_{tm} W_{2,jm}$, in matrices $dy \, W_2^T$.
# 2. Through the ReLU: $dz_{tj} = da_{tj}$ where $z_{tj}$ is positive, and 0 elsewhere.
# 3. $dx_{ti} = \sum_j dz_{tj} W_{1,ij}$, in matrices $dz \, W_1^T$.
#
# A weight is used at every position of every sentence, so its gradient is a sum over all of them: $dW_{2,jm} = \sum_t
# a_{tj} dy_{tm}$ and $dW_{1,ij} = \sum_t x_{ti} dz_{tj}$, where $t$ runs through the whole batch. The biases are
# multiplied by 1: $db_2 = \sum_t dy_t$ and $db_1 = \sum_t dz_t$.
#
# Look at $dW_1$ and $dW_2$ for one unit. Where $a_{tj} = 0$, position $t$ adds nothing to either. **A unit learns only
# from the words that switch it on.** A unit that no word of the training data switches on has gradient 0 in all its
# weights. It is called *dead*.
#
# At $z = 0$ exactly there is no derivative. We take 0: `active > 0` is true exactly where $z > 0$. Now finish
# `feed_forward`, and run `scratchformer learn check feed_forward`.

# %%
quote("feed_forward")

# %% The check, and the line of PyTorch
random = np.random.default_rng(11)


def weight(*shape):
    data = random.normal(size=shape)
    return SimpleNamespace(data=data, grad=0 * data)


NAMES = "W_1", "b_1", "W_2", "b_2"
weights = [weight(*shape) for shape in ((6, 9), (9,), (9, 6), (6,))]
x, dy = random.normal(size=(2, 2, 5, 6))                        # (B, T, D) both
y, backward = transformer.feed_forward(x, *weights)
gradients = [*backward(dy), *(each.grad for each in weights)]
numbers = [x, *(each.data for each in weights)]


def loss_of(i):
    """The loss as a function of the i-th array"""
    def loss(array):
        moved = [*numbers[:i], array, *numbers[i + 1:]]
        others = [SimpleNamespace(data=data) for data in moved[1:]]
        return (transformer.feed_forward(moved[0], *others)[0] * dy).sum()
    return loss


errors = [np.abs(ours - numeric).max() / np.abs(numeric).max() for ours, numeric in
          zip(gradients, (numeric_gradient(loss_of(i), numbers[i]) for i in range(5)))]
same("dx and all gradients, and finite differences", max(errors), 0, 1e-8)
try:
    import torch
except ImportError:
    torch = None
if torch:
    F = torch.nn.functional
    W_1, b_1, W_2, b_2 = (torch.tensor(each.data, requires_grad=True)
                          for each in weights)
    theirs = F.linear(F.relu(F.linear(torch.tensor(x), W_1.T, b_1)), W_2.T, b_2)
    theirs.backward(torch.tensor(dy))
    assert np.allclose(theirs.detach(), y) and np.allclose(W_1.grad, weights[0].grad)

# %% [markdown]
# ## Does it matter?
#
# In small recorded translators it does: with the network the loss ends at 1.39, without it at 1.75. How much of that is
# the ReLU, and what else the box brings, is in the [lab notes](lab/11_feed_forward.py#the-recorded-translators). Here
# we ask something else. **Does a unit compare with a pattern that a person can read?**
#
# - **What goes in:** the translator of [lesson 00](00_whole_game.py) reads 300 English test sentences and their German
#   translations. It has 4 networks of 256 units.
# - **What is measured:** which words switch a unit on, and which words its row of $W_2$ favours. (The score of a word
#   is a dot product with its row of $E$, [lesson 08](08_embeddings.py). So we score the row of the unit like an
#   output.)
# - **What is changed, and the control:** one unit is switched off. If the pattern is what the model uses, then what it
#   predicts after these words should change, and more than by switching off any of 20 other units.
#
# Here is unit 129 of the first decoder layer, chosen because it reads so well:

# %% One unit
units = Units(load_run(ROOT / "data/tiny_model"), read("test")[:300], layer=2)
ARTICLES = ["▁der", "▁das", "▁dem", "▁die", "▁Das", "▁Der"]
table(["word read", "unit 129 is on"],
      [[word.strip("▁"), f"{units.share_on(129, [word]):.0%}"] for word in ARTICLES]
      + [["all words", f"{units.share_on(129):.0%}"]])
favoured = [word.strip("▁") for word in units.favoured(129, 12)]
print("its row favours:", ", ".join(favoured))

# %% [markdown]
# It is on at articles, and its row favours adjectives that end in *-e*, as they do after *der*, *die* and *das*. That
# looks like a rule of German grammar. What happens to the probability of these adjectives if the unit is switched off?
# (a) it falls to nearly 0, (b) by half, (c) by a few hundredths.
#
# <details><summary>Make a guess, then unfold</summary>

# %% Switching units off
ADJECTIVES = ["▁" + word for word in "alte glückliche schöne große kranke kleine junge "
              "traurige".split()]
before = units.probability(ADJECTIVES, ARTICLES)
others = np.random.default_rng(0).choice(256, 20, replace=False)
off = units.probability(ADJECTIVES, ARTICLES, off=129)
changes = [units.probability(ADJECTIVES, ARTICLES, off=unit) / before - 1
           for unit in others[:5 if QUICK else 20]]
table(["switched off", "change of the probability of these adjectives"],
      [["unit 129", f"{off / before - 1:+.1%}"],
       ["20 other units: the largest fall", f"{min(changes):+.1%}"]])
assert off / before - 1 < min(changes)

# %% [markdown]
# </details>
#
# The unit does what its pattern says, and more than other units. But it is a small effect, so most of the rule must be
# somewhere else. We think that it is spread over many units. A unit that reads well is a hint at what a network has
# learned. It is not the only place where it is stored. (Geva et al. 2021, *Transformer Feed-Forward Layers Are
# Key-Value Memories*, read many units in this way.)
#
# **Today.** Most large models have replaced the ReLU: first by **GELU**, a smooth version of it (GPT-2, BERT), then by
# **SwiGLU** (Shazeer 2020; Llama), in which two linear maps of $x$ are multiplied, so that one decides how much of the
# other passes. Very large models hold many such networks in a layer, and each word is sent to a few of them (**mixture
# of experts**).
#
# ## Paper and code
#
# - §3.3, equation 2. "While the linear transformations are the same across different positions, they use different
#   parameters from layer to layer." The paper gives no reason for the factor 4 of $d_{ff}$.
# - Table 3, rows (C), English to German, newstest2013; each row changes $d_{ff}$ alone. (Perplexity is $e$ to the mean
#   loss in nats: lower is better.) Wider is better there, and the parameters grow with it.
#
# | $d_{ff}$ | 1024 | 2048 (base) | 4096 |
# | --- | --- | --- | --- |
# | perplexity | 5.12 | 4.92 | 4.75 |
# | BLEU | 25.4 | 25.8 | 26.2 |
# | parameters | 53M | 65M | 90M |
#
# - PyTorch: `F.linear(F.relu(F.linear(x, W_1.T, b_1)), W_2.T, b_2)` (compared above), or two `nn.Linear` with a
#   `nn.ReLU` between.
# - In the library: `FeedForward` in [nn/layers.py](../scratchformer/nn/layers.py).
#
# ## What to remember
#
# Attention mixes, and with one head and a fixed query it only adds up votes. The feed-forward network combines: at each
# position by itself, every unit compares the vector with a pattern, and where the match is positive it adds a vector of
# its own. On the way back only the units that are on pass a gradient, and only they learn.
#
# **Three questions.**
#
# 1. The base model has $D = 512$ and $F = 2048$. How many numbers do the two matrices of one network have?
# 2. You exchange two units: their columns of $W_1$, their numbers in $b_1$ and their rows of $W_2$. What becomes of the
#    output?
# 3. In the example let $b_1 = (0.5, 0.5)$. What is $y$ for *the goat sleeps*, $x = (0, 0)$?
#
# <details><summary>Answers</summary>
#
# 1. 2 · 512 · 2048 = 2.1 million.
# 2. It stays the same. The output is a sum over units, and a sum has no order. So "unit 129" of one model has nothing
#    to do with unit 129 of another.
# 3. Both units are now on with 0.5, so $y = 1 - 2 \cdot 0.5 - 2 \cdot 0.5 = -1$. A bias is a threshold: these units now
#    switch on too early.
#
# </details>
#
# **Yours:** `feed_forward` · `scratchformer learn check feed_forward`
#
# **Next:** [12 · Residual connections and LayerNorm](12_residual_norm_dropout.py). By itself a feed-forward network
# *replaces* its input. Six layers of attention and feed-forward networks would replace it twelve times. How badly does
# such a stack learn?
