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
from support.drawing import Drawing, number
from support.feed_forward import Judge, Units, sentences, trained
from support.lesson import QUICK, ROOT, measure, quote, same, show, table
from support.numeric import numeric_gradient

# %% [markdown]
# *The goat sleeps* and *the goats sleep* are right. *The goats sleeps* and *the goat sleep* are wrong. Neither the noun
# nor the verb tells you which, only the two together do. Can attention find out?
#
# Let a query, the word `?`, look at the three words with one head. A linear map turns what it gets into a score for
# *right* and one for *wrong*. Between head and scores we put nothing, or two linear maps, or a **feed-forward
# network**: two linear maps with a **ReLU** between them, which replaces negative numbers by 0. The model learns from
# three quarters of the pairs of noun and verb, and is tested on the others. Three runs each:

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
# With the ReLU the task is learned. Without it no run judges more than three of four sentences rightly. No other
# weights could do better, and here is why. Let $e_i$ be the exponential of the attention score of word $i$, $v_i$ what
# its value adds to *right* − *wrong*, and $c$ what the biases add. One head returns a weighted mean, so
#
# $$\text{right} - \text{wrong} = \frac{\sum_i e_i v_i}{\sum_i e_i} + c$$
#
# Only the sign decides. Multiply by the sum of all $e_i$, which is positive: you get $\sum_i e_i (v_i + c)$, one term
# for each word. So **each word has one vote, whatever the other words are**. Let $f$ be the vote of a noun, and $g$ the
# vote of a verb together with that of *the*, which never changes. Then
#
# $$(f_{goat} + g_{sleeps}) + (f_{goats} + g_{sleep}) = (f_{goat} + g_{sleep}) + (f_{goats} + g_{sleeps})$$
#
# On the left are two right sentences, so both brackets should be positive. On the right are two wrong ones, so both
# should be negative. But both sides are equal. So of these four, at least one is judged wrongly.
#
# The proof needs a single head whose query never changes. It doesn't bind a Transformer: two heads learn this task in
# most runs ([lab notes 11](lab/11_feed_forward.py#two-heads-without-a-feed-forward-network)).
#
# ## The picture
#
# Let attention have brought two numbers: is the noun plural, and is the verb? Equal numbers are right, different ones
# are wrong. Two hidden units are enough. The first computes noun − verb, the second verb − noun.

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
     caption="The first linear map puts the four sentences on one line. The ReLU bends "
     "that line, and now a straight cut separates them.")

# %% [markdown]
# No further linear map could separate the points in the middle panel, because what lies between two points stays
# between them.
#
# ## By hand
#
# Each unit has a column of $W_1$ and a row of $W_2$:
#
# $$W_1 = \begin{pmatrix} 1 & -1 \\ -1 & 1 \end{pmatrix} \quad b_1 = (0, 0) \quad
# W_2 = \begin{pmatrix} -2 \\ -2 \end{pmatrix} \quad b_2 = 1$$
#
# Take the wrong sentence *the goat sleep*, $x = (0, 1)$: noun singular, verb plural. The first unit gets −1, the second
# 1. The ReLU turns −1 into 0. The output starts from 1 and subtracts twice what each unit gives: $y = 1 - 2 \cdot 0 - 2
# \cdot 1 = -1$, which says *wrong*.

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
# Now unit by unit. Let $p_j$ be the column of $W_1$ that belongs to unit $j$, and $r_j$ its row of $W_2$:
#
# $$y = b_2 + \sum_{j=1}^{F} \max(0, x \cdot p_j + b_{1,j}) \, r_j$$
#
# So each unit compares $x$ with a pattern, its column, and in proportion to the match it adds a vector, its row.
# Attention does something similar with keys and values. But here the patterns are weights of the model, the same in
# every sentence, and any number of units may answer, or none.
#
# The network is **position-wise**: no position looks at another one, and all share the same weights.
#
# <!-- see: inside?step=encoder.0.ff.hidden | hidden units of a trained model -->
#
# **Your turn.** Write `feed_forward(x, W_1, b_1, W_2, b_2)` in `transformer.py`. The two products are calls of `linear`
# with "btd,df->btf" and "btf,fd->btd". It gets $W_1$ and $W_2$ whole, and on the way back adds to their `grad`. The
# numbers of a bias are `b_1.data`. Run `scratchformer learn check feed_forward` already when you have written `yield`:
# if it complains only about `backward`, your first half is right.
#
# ## Backward
#
# Back to figure 2. Suppose that a layer below can still change $x$. What should it do so that the verdict becomes
# *right*? Let the loss fall by 1 for each 1 that $y$ grows, so $dy = -1$. Which of the two inputs will training make
# larger, and which smaller? Does the first unit have a say?

# %% Drawing the way back
show(network_picture(backward=True), "11_by_hand_backward",
     alt="The same drawing with gradients: dy is minus 1, the gradient at active is 2, "
     "2, dz is 0, 2, and dx is minus 2, 2. Triangles show that the number of the noun "
     "will grow and that of the verb will fall.",
     caption="The same sentence, backward. The first unit is off, so the gradient "
     "stops there. Triangles show where training moves a number: against its gradient.")

# %% [markdown]
# Each unit is subtracted twice, so both would get −1 · −2 = +2. But the first unit is *off*: its $z$ is −1, and a small
# change of it changes nothing. So $dz = (0, +2)$. The second unit computes verb − noun, so the noun gets −2, the verb
# +2. Training goes against the gradient: the noun becomes more plural and the verb less so, until they agree.
#
# The gradient of a weight is the number that came in times the gradient of the number that goes out:
#
# $$dW_1 = \begin{pmatrix} 0 & 0 \\ 0 & 2 \end{pmatrix} \quad db_1 = (0, 2) \quad
# dW_2 = \begin{pmatrix} 0 \\ -1 \end{pmatrix} \quad db_2 = -1$$
#
# The 2 in $dW_1$ is the verb's 1 times 2. Every number of the first unit is 0.
#
# **The general rule.** Follow one number $x_i$ of one position. It goes to every $z_j$ with the factor $W_{1,ij}$. If
# $z_j$ is positive, it goes on to $a_j$ unchanged, otherwise it ends there. From $a_j$ it goes to every $y_m$ with the
# factor $W_{2,jm}$. So, from the loss back:
#
# 1. $da = dy \, W_2^T$.
# 2. Through the ReLU: $dz_j = da_j$ where $z_j$ is positive, and 0 elsewhere.
# 3. $dx = dz \, W_1^T$.
#
# A weight is used at every position of every sentence, so its gradient is a sum over all positions $t$: $dW_{1,ij} =
# \sum_t x_{ti} dz_{tj}$ and $dW_{2,jm} = \sum_t a_{tj} dy_{tm}$. The biases are multiplied by 1: $db_1 = \sum_t dz_t$
# and $db_2 = \sum_t dy_t$.
#
# Where a unit is off, $a_{tj}$ and $dz_{tj}$ are 0. **So a unit learns only from the words that switch it on.** If no
# word of the training data does, all its gradients are 0. It is called *dead*.
#
# At $z = 0$ exactly there is no derivative. We take 0, as PyTorch does; the check never meets it. Now finish
# `feed_forward`, and check it again.

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
    x, W_1, b_1, W_2, b_2 = (torch.tensor(each, requires_grad=True) for each in numbers)
    theirs = F.linear(F.relu(F.linear(x, W_1.T, b_1)), W_2.T, b_2)
    theirs.backward(torch.tensor(dy))
    assert np.allclose(theirs.detach(), y)
    assert all(np.allclose(their.grad, ours) for their, ours in
               zip((x, W_1, b_1, W_2, b_2), gradients))

# %% [markdown]
# ## Does it matter?
#
# Yes. After 300 steps, small translators have a mean loss of 1.75 without the network, 1.53 with two linear maps in its
# place, and 1.39 with the ReLU between them (three runs each: [lab
# notes](lab/11_feed_forward.py#the-recorded-translators)). So the ReLU brings 0.14 of the 0.36. The rest comes with
# more weights and one more Add & Norm ([lesson 12](12_residual_norm_dropout.py)) in each layer.
#
# Now another question: **does a unit compare with a pattern that a person can read?** The translator of [lesson
# 00](00_whole_game.py) reads 300 test sentences and their German translations. We look at unit 129 of its first decoder
# layer, chosen because it reads so well. Which words switch it on? And which words does its row of $W_2$ favour? (We
# score the row by its dot products with the rows of $E$, [lesson 08](08_embeddings.py), as if no other layer came.)

# %% One unit
units = Units(load_run(ROOT / "data/tiny_model"), read("test")[:300], layer=0)
ARTICLES = "der das Das dem ein Ein eine Eine die Der einen Die den".split()
on = [f"{word} {units.share_on(129, ['▁' + word]):.0%}" for word in ARTICLES]
print("It is on at", ", ".join(on[:8]))
print("           ", ", ".join([*on[8:], f"all words {units.share_on(129):.0%}"]))
favoured = [word.strip("▁") for word in units.favoured(129, 12)]
print("Its row favours", ", ".join(favoured))
assert sum(word[0].islower() and word[-1] == "e" for word in favoured) == 8

# %% [markdown]
# It is on at most articles. Eight of the twelve words are adjectives that end in *-e*, as they do after *der*, *die*
# and *das*: a rule of German grammar. (After *dem* they end in *-en*, and there it is on as well.) If the model uses
# this unit for the rule, then without it *-e* should become less likely.
#
# - **What is changed:** the unit is switched off.
# - **What is measured:** the probability of nine adjectives after *der*, *das*, *dem*, *die*, *Das* and *Der*, with
#   *-e* and with *-en*. (These nine have both forms as single pieces.)
# - **The control:** the ten other units that are most often on at these six words, switched off one at a time.
#
# How much of their probability will the forms in *-e* lose? (a) nearly all, (b) half, (c) a few per cent of it.
#
# <details><summary>Make a guess, then unfold</summary>

# %% Switching units off
STEMS = "müd alt hungrig krank freundlich traurig klein groß schön".split()
FORMS = [["▁" + stem + ending for stem in STEMS] for ending in ("e", "en")]
AT = ["▁" + word for word in ("der", "das", "Das", "dem", "die", "Der")]
before = np.array([units.probability(forms, AT) for forms in FORMS])


def change(unit):
    """-> relative change of both probabilities"""
    off = [units.probability(forms, AT, off=unit) for forms in FORMS]
    return off / before - 1


others = [unit for unit in units.most_often_on(AT, 11) if unit != 129]
changes = {unit: change(unit) for unit in others[:3 if QUICK else 10]}
nine = np.array([changes[unit] for unit in changes if unit != 86])
rows = [["no unit", *(f"probability {p:.3f}" for p in before)],
        ["unit 129", *(f"{each:+.1%}" for each in change(129))],
        ["unit 86", *(f"{each:+.1%}" for each in changes[86])],
        [f"{len(nine)} others, one at a time",
         *(f"{lo:+.1%} to {hi:+.1%}" for lo, hi in zip(nine.min(0), nine.max(0)))]]
table(["switched off", "forms in -e", "forms in -en"], rows)
assert change(129)[0] < changes[86][0] < nine[:, 0].min()
assert change(129)[1] > changes[86][1] > nine[:, 1].max()

# %% [markdown]
# </details>
#
# The unit pushes in the direction that we read off its weights, and more than the ten others. But the effect is small
# (c), and unit 86 pushes in the same direction. So this unit alone doesn't hold the rule. We think that many share it.
# ([Geva et al. 2021](https://arxiv.org/abs/2012.14913) read many units like this.)
#
# **Today.** Most large models have replaced the ReLU, first by **GELU**, a smooth version of it (GPT-2, BERT), then by
# **SwiGLU** ([Shazeer 2020](https://arxiv.org/abs/2002.05202); Llama; [lesson 23](23_block_of_2026.py)): of two linear
# maps of $x$, one goes through another smooth ReLU and then multiplies the other. Very large models hold many such
# networks in a layer, and send each word to a few of them (**mixture of experts**).
#
# ## Paper and code
#
# - §3.3, equation 2. Table 3, rows (C), English to German; each row changes $d_{ff}$ alone. (**Perplexity** is $e$ to
#   the mean loss: lower is better.) Wider is better there, and needs more weights.
#
# | $d_{ff}$ | 1024 | 2048 (base) | 4096 |
# | --- | --- | --- | --- |
# | perplexity | 5.12 | 4.92 | 4.75 |
# | BLEU | 25.4 | 25.8 | 26.2 |
#
# - PyTorch: `F.linear(F.relu(F.linear(x, W_1.T, b_1)), W_2.T, b_2)`, compared above with all gradients. The library's
#   `FeedForward` is in [nn/layers.py](../scratchformer/nn/layers.py).
#
# ## What to remember
#
# One head with a fixed query only adds up votes. A feed-forward network combines what one position holds: each unit
# compares it with a pattern, and adds a vector in proportion to a positive match. Only the units that are on pass a
# gradient, and only they learn.
#
# **Test yourself.**
#
# 1. The base model has $D = 512$ and $F = 2048$. How many numbers do the two matrices of one network have?
# 2. You exchange two units: columns of $W_1$, numbers in $b_1$ and rows of $W_2$. What becomes of the output?
# 3. In the example let $b_1 = (0.5, 0.5)$. What is $y$ for *the goat sleeps*, $x = (0, 0)$?
#
# <details><summary>Answers</summary>
#
# 1. 2 · 512 · 2048 = 2.1 million.
# 2. It stays the same, because it is a sum over units.
# 3. Both units now give 0.5, so $y = 1 - 2 \cdot 0.5 - 2 \cdot 0.5 = -1$, which is wrong here.
#
# </details>
#
# **Yours:** `feed_forward` · `scratchformer learn check 11`
#
# **Next:** [12 · Residual connections and LayerNorm](12_residual_norm_dropout.py). By itself a feed-forward network
# *replaces* its input. Six layers replace it twelve times. How badly does such a stack learn?
