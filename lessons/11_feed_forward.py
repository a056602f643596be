# %% [markdown]
# # 11 · The feed-forward network
#
# *About 35 minutes. You need: [lesson 01](01_backprop.py) (linear maps, gradients and their numeric check), [lesson
# 04](04_soft_lookup.py) (queries, keys, values), [lesson 06](06_masks.py) (the flow test) and [lesson
# 07](07_many_heads.py) (heads). You will have: the other half of every layer with its backward pass, a proof of what
# one head cannot do, and a count of the hidden units that work in a trained translator.*

# %% Imports
import json
from functools import partial

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library.lesson import QUICK, ROOT, measure, recorded, same, show
from scratchformer.config import preset
from scratchformer.doctor.flow_probes import dependence_of
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.experiments.heads import teacher_forced
from scratchformer.nn.attention import CrossAttention
from scratchformer.nn.layers import Embedding, FeedForward, Linear
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.ops import ops_of
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Layer, ParameterStore
from scratchformer.nn.transformer import DecoderLayer, EncoderLayer, Transformer
from scratchformer.text.bundled import Example
from scratchformer.training.run import load_run

# %% [markdown]
# ## Question
#
# **Attention fetches: what a head returns is a weighted mean of values. What computes with the things it has fetched?**
#
# The answer in one sentence: what the paper has for that is the feed-forward network, a small network with one wide
# hidden layer, the same at every position, which combines what attention has brought there.
#
# First a task that needs a combination. *The goat sleeps* and *the goats sleep* are right, *the goats sleeps*
# and *the goat sleep* are wrong. Neither the noun nor the verb tells which; only the two together do. A query, the
# word `?`, looks at the three words with one head, and a linear map turns what it gets into two scores, right and
# wrong. Between head and scores stands nothing, or two linear maps, or a feed-forward network: two linear maps with a
# ReLU between them, which replaces negative numbers by 0. A quarter of the pairs of noun and verb is kept for the
# test. Three runs each differ in their random start. (Rate and steps were chosen so that the feed-forward network
# learns in every run; with fewer steps not all of its runs had got there.)

# %% The sentences
NOUNS, VERBS = "goat dog cat horse cow rabbit donkey duck".split(), "sleep run sing swim eat drink wait laugh".split()
vocabulary = ["<pad>", "the", "?", *NOUNS, *(noun + "s" for noun in NOUNS), *VERBS, *(verb + "s" for verb in VERBS)]
ids, is_right, is_new = [], [], []
for i, noun in enumerate(NOUNS):
    for j, verb in enumerate(VERBS):
        for noun_form, verb_form, right in [("", "s", 1), ("s", "", 1), ("", "", 0), ("s", "s", 0)]:
            ids.append([vocabulary.index(word) for word in ("the", noun + noun_form, verb + verb_form, "?")])
            is_right.append(right)
            is_new.append((i + j) % 4 == 0)
ids, is_right, is_new = np.array(ids), np.array(is_right), np.array(is_new)


# %% The model and its training
class Judge(Layer):
    """ids (B, 4) -> scores (B, 1, 3) of padding, wrong and right. `middle`: the layers between head and scores"""

    def __init__(self, seed, middle=lambda random: [], h=1, D=12):
        random = np.random.default_rng(seed)
        self.embedding = Embedding(Embedding.new_weight(len(vocabulary), D, random, "float64"))
        self.attention = CrossAttention(D, h, random, "float64")
        self.after = [*middle(random), Linear(D, 3, random, "float64")]
        self.store = ParameterStore(self.parameters())

    def forward(self, ids, rng=None):
        words, embedding_cache = self.embedding.forward(ids)                                   # (B, 4, D)
        x, attention_cache = self.attention.forward(words[:, 3:], words[:, :3])                # `?` asks, words answer
        caches = [embedding_cache, attention_cache]
        for layer in self.after:
            x, cache = layer.forward(x)
            caches.append(cache)
        return x, caches

    def backward(self, dx, caches):
        for layer in reversed(self.after):
            dx = layer.backward(dx, caches.pop())
        dasking, danswering = self.attention.backward(dx, caches.pop())
        self.embedding.backward(np.concatenate([danswering, dasking], axis=1), caches.pop())

    def share_right(self, ids, is_right):
        return (self.forward(ids)[0][:, 0, 1:].argmax(axis=1) == is_right).mean()


def train(judge, steps=400, rate=0.015):
    optimizer = Adam(judge)
    for _ in range(steps):
        scores, caches = judge.forward(ids[~is_new])
        _, count, dscores = cross_entropy(scores, 1 + is_right[~is_new, None])
        judge.zero_grad()
        judge.backward(dscores / count, caches)
        optimizer.step(rate)
    return judge


# %%
MIDDLES = {
    "one head": lambda random: [],
    "two linear maps": lambda random: [Linear(12, 48, random, "float64"), Linear(48, 12, random, "float64")],
    "feed-forward": lambda random: [FeedForward(12, 48, random, "float64")],
}
for name, middle in MIDDLES.items():
    judges = [train(Judge(seed, middle)) for seed in ([1] if QUICK else [1, 2, 3])]
    for split, which in ("known", ~is_new), ("new", is_new):
        shares = [judge.share_right(ids[which], is_right[which]) for judge in judges]
        if name == "feed-forward":
            measure(f"{name}: judged rightly of {split} pairs, worst run", min(shares), 0.9, 1)
        else:
            measure(f"{name}: judged rightly of {split} pairs, best run", max(shares), 0.4, 0.75)

# %% [markdown]
# With a ReLU the task is learnt. Without it no run gets more than three sentences of four right, with or without two
# further linear maps. That is no matter of more steps. Let $c_s$ be the scaled score of word $s$, so that its weight
# is $w_s = e^{c_s} / \sum_u e^{c_u}$, and let $r_s$ be what its value adds to the score of "right" less that of
# "wrong". (The biases behind the head go into every $r_s$, as the weights sum to 1.) The verdict is the sign of
# $\sum_s w_s r_s$, and so the sign of $\sum_s e^{c_s} r_s$, since the common sum is positive. In that sum **each word
# has one vote, whatever the others are**: $c_s$ depends on the word and on the query, which is always `?`. Let the
# votes be $f$ of the noun and $g$ of the verb, that of *the* added to $g$. Then
#
# $$(f_{goat} + g_{sleeps}) + (f_{goats} + g_{sleep}) = (f_{goat} + g_{sleep}) + (f_{goats} + g_{sleeps})$$
#
# The left side holds two right sentences, so both brackets should be positive; the right side two wrong ones, both
# negative. The sides are equal, so at least one of the four is judged wrongly, for each noun and verb, whatever the
# weights of the model. Three of four it is.
#
# ## The idea in one picture
#
# Let a vector $x$ hold two numbers that attention might have brought: is the noun plural, and is the verb? Equal
# numbers are right, different ones wrong. Two hidden units suffice: one looks for a noun that is more plural than the
# verb, the other for the opposite.

# %%
x = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])                 # goat sleeps, goats sleep, goat sleep, goats sleeps
W_1, b_1 = np.array([[1, -1], [-1, 1]]), np.array([0, 0])      # a unit is a column of W_1
W_2, b_2 = np.array([[-2], [-2]]), np.array([1])               # and a row of W_2: what it writes
z = x @ W_1 + b_1
active = np.maximum(0, z)
y = (active @ W_2 + b_2)[:, 0]
print("y:", *y)
measure("least y of a right sentence", y[:2].min(), 1, 1)
measure("greatest y of a wrong one", y[2:].max(), -1, -1)
measure("the same without ReLU: greatest difference of the four", np.ptp((z @ W_2 + b_2)), 0, 0)

# %% The figure
figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.5), layout="constrained")
LABELS = [{"goat\nsleeps": (0, 0), "goats\nsleep": (1, 1), "goat\nsleep": (0, 1), "goats\nsleeps": (1, 0)},
          {"both\nright": (0, 0), "goat\nsleep": (-1, 1), "goats\nsleeps": (1, -1)},
          {"both\nright": (0, 0), "goat\nsleep": (0, 1), "goats\nsleeps": (1, 0)}]
for axes, points, labels in zip(panels, (x, z, active), LABELS):
    for label, at in labels.items():
        offset, side = ((-8, -30), "right") if label == "both\nright" else ((8, 4), "left")
        axes.annotate(label, at, offset, textcoords="offset points", ha=side)
    axes.plot(*points[:2].T, "o", color=DARK, ms=11)
    axes.plot(*points[2:].T, "X", color=ACCENT, ms=11)
    axes.set(xlim=(-1.8, 1.8), ylim=(-1.5, 1.7), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
panels[0].set(xlim=(-0.5, 1.5), ylim=(-0.3, 1.5), xticks=[0, 1], yticks=[0, 1],
              title="x: no line parts ● from ✕", xlabel="x₁: noun is plural", ylabel="x₂: verb is plural")
panels[1].plot([-1.5, 1.5], [1.5, -1.5], ":", color="#666666", zorder=0)
panels[1].set(title="z = x W₁ + b₁: ● between the ✕", xlabel="first unit, z", ylabel="second unit, z")
panels[2].plot([0, 0, 1.5], [1.5, 0, 0], ":", color="#666666", zorder=0)
panels[2].plot([-0.9, 1.4], [1.4, -0.9], "--", color="#444444")
panels[2].text(0.45, -0.85, "y = 0", color="#444444")
panels[2].set(title="max(0, z): one line parts them", xlabel="first unit, active", ylabel="second unit, active")
show(figure, "11_fold", alt="Three plots of the four sentences. Left, as vectors x of zeros and ones: the right "
     "sentences stand at 0, 0 and 1, 1, the wrong ones at the other two corners, and no straight line separates them. "
     "Middle, z: all lie on one line, both right sentences at 0, 0, one wrong one to each side. Right, after the ReLU: "
     "the line is bent at 0, 0 to a right angle, and a straight line y = 0 has the right sentences on one side and "
     "both wrong ones on the other.")

# %% [markdown]
# The first linear map flattens the plane to a line, on which both right sentences lie at 0 and the wrong ones to either
# side. No further linear map parts them: it keeps what lies between two points between their images. The ReLU
# **bends** the line at 0, and now one straight line has both right sentences on one side and both wrong ones on the
# other.
#
# ## The equation, and the same in code
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
# Written unit by unit, with $W_{1,:j}$ the column and $W_{2,j:}$ the row of unit $j$, it reads
#
# $$y = b_2 + \sum_{j=1}^{F} \max(0, x \cdot W_{1,:j} + b_{1,j}) \, W_{2,j:}$$
#
# Each unit compares $x$ with a pattern, its column of $W_1$, and in proportion to the match it adds a vector, its row
# of $W_2$. Compare attention, $y = \sum_s w_s v_s$: the columns are like keys and the rows like values. There are
# three differences. These keys and values are weights of the model, the same in every sentence. Their match goes
# through a ReLU of its own and not through a common softmax, so any number of units may answer, or none. And there
# are $d_{ff}$ of them, however long the sentence is.
#
# ## Forward

# %%
def feed_forward(x, W_1, b_1, W_2, b_2):
    """x (..., D) -> y (..., D), and what backward needs"""
    active = np.maximum(0, x @ W_1 + b_1)                      # (..., F)
    return active @ W_2 + b_2, active


B, T, D, F = 2, 5, 6, 9
random = np.random.default_rng(11)
layer = FeedForward(D, F, random, "float64")
for parameter in layer.parameters().values():
    parameter.data[...] = random.normal(size=parameter.shape)  # biases too: a new layer has 0 there, which hides bugs
weights = W_1, b_1, W_2, b_2 = [parameter.data for parameter in layer.parameters().values()]
x = random.normal(size=(B, T, D))
y, active = feed_forward(x, *weights)
same("y: this page and the library", y, layer.forward(x)[0])
units = sum(np.maximum(0, x @ W_1[:, j] + b_1[j])[..., None] * W_2[j] for j in range(F))
same("y as a sum over units", units + b_2, y)

# %% [markdown]
# **Position-wise** means: no position looks at another. The flow test of lesson 06 finds exactly the diagonal, and to
# reorder the positions of $x$ is to reorder those of $y$. So the paper can also call it "two convolutions with kernel
# size 1": each slides a window of one word along the sentence and multiplies what it sees by one matrix.

# %%
flow = dependence_of(lambda x: feed_forward(x, *weights)[0], x).any(axis=(0, 2))               # (T, T)
measure("outputs that depend on another position", (flow & ~np.eye(T, dtype=bool)).sum(), 0, 0)
measure("outputs that depend on their own", np.diagonal(flow).sum(), T, T)
order = random.permutation(T)
same("positions reordered before or after", feed_forward(x[:, order], *weights)[0], y[:, order])

# %% [markdown]
# **What is linear, and what is not?** A map is linear if the map of a sum is the sum of the maps. Take the weights of
# attention as given, as a matrix $w$ that mixes positions: then it is linear in the values, exactly. Biases aside, the
# feed-forward network is not; and neither is attention as a whole, because its weights come from the same $x$.

# %%
def attend(x, weights_from):
    """One head without weight matrices: the weights from one array, the values from another; both (B, T, D)"""
    c = weights_from @ weights_from.swapaxes(1, 2)             # (B, T, T)
    e = np.exp(c - c.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ x


def superposition_error(f):
    """How far f(x + u) is from f(x) + f(u), relative"""
    return np.abs(f(x + u) - f(x) - f(u)).max() / np.abs(f(x + u)).max()


u = random.normal(size=x.shape)
measure("attention, its weights given", superposition_error(lambda v: attend(v, weights_from=x)), 0, 1e-14)
measure("attention, its weights from the input", superposition_error(lambda v: attend(v, weights_from=v)), 0.1, 5)
measure("feed-forward, no biases", superposition_error(lambda v: np.maximum(0, v @ W_1) @ W_2), 0.1, 5)
same("without ReLU, two maps are one", x @ (W_1 @ W_2) + (b_1 @ W_2 + b_2), (x @ W_1 + b_1) @ W_2 + b_2)

# %% [markdown]
# ## Backward
#
# Take one number $x_{ti}$, component $i$ at position $t$, and follow it to the loss. It goes to every $z_{tj}$ of its
# own position, with the factor $W_{1,ij}$. If $z_{tj}$ is positive, it goes on to $a_{tj}$ unchanged; if not,
# its way ends there. From $a_{tj}$ it goes to every $y_{tm}$ with the factor $W_{2,jm}$. No way leads to another
# position. So, from the loss back:
#
# 1. $a_{tj}$ has as many ways as $y_t$ has components: $da_{tj} = \sum_m dy_{tm} W_{2,jm}$, in matrices $dy \, W_2^T$.
# 2. Through the ReLU there is one way, open or shut: $dz_{tj} = da_{tj}$ where $z_{tj}$ is positive, 0 elsewhere.
# 3. $x_{ti}$ has a way through each unit: $dx_{ti} = \sum_j dz_{tj} W_{1,ij}$, in matrices $dz \, W_1^T$.
#
# A weight is used at every position of every sentence, so its gradient is a sum over all of them:
# $dW_{2,jm} = \sum_t a_{tj} dy_{tm}$ and $dW_{1,ij} = \sum_t x_{ti} dz_{tj}$, where $t$ runs through the whole batch;
# for the biases, which are multiplied by 1, $db_2 = \sum_t dy_t$ and $db_1 = \sum_t dz_t$.
#
# Read $dW_1$ and $dW_2$ for one unit: where $a_{tj} = 0$, position $t$ adds nothing to either. **A unit learns from
# the words that switch it on, and from no others.** A unit that no word of the training data switches on has gradient
# 0 in all its weights; it is called *dead*, and only a change in what it reads can revive it.
#
# **At the kink**, $z = 0$, the slope is 0 on the left and 1 on the right, and there is no derivative. The library takes
# 0, as if the point belonged to the left side. And it asks whether $a$ is positive, not $z$: $a$ is positive
# exactly where $z$ is. So $z$ need not be kept, which saves one array of $d_{ff}$ numbers per word.

# %%
def feed_forward_backward(dy, x, active, W_1, W_2):
    """dy, x (B, T, D), active (B, T, F) -> dx (B, T, D), dW_1 (D, F), db_1 (F,), dW_2 (F, D), db_2 (D,)"""
    dactive = dy @ W_2.T                                       # (B, T, F)
    dz = dactive * (active > 0)                                # (B, T, F)
    dW_1, dW_2 = np.einsum("bti,btj->ij", x, dz), np.einsum("btj,btm->jm", active, dy)
    return dz @ W_1.T, dW_1, dz.sum(axis=(0, 1)), dW_2, dy.sum(axis=(0, 1))


# %% [markdown]
# ## Check
#
# Against central differences, in $x$ and all four weights, with a random upstream gradient; then against the library.

# %%
dy = random.normal(size=y.shape)
gradients = feed_forward_backward(dy, x, active, W_1, W_2)
measure("nearest z to a kink", np.abs(x @ W_1 + b_1).min(), 1e-3, 0.2)
arrays = [x, *weights]
for i, name in enumerate(["dx", "dW_1", "db_1", "dW_2", "db_2"]):
    numeric = numeric_gradient(
        lambda array: (feed_forward(*arrays[:i], array, *arrays[i + 1:])[0] * dy).sum(), arrays[i])
    measure(f"{name}: worst error, relative", np.abs(gradients[i] - numeric).max() / np.abs(numeric).max(), 0, 1e-8)

layer.zero_grad()
dx = layer.backward(dy, layer.forward(x)[1])
library = [dx, *(parameter.grad for parameter in layer.parameters().values())]
for name, ours, theirs in zip(["dx", "dW_1", "db_1", "dW_2", "db_2"], gradients, library):
    same(f"{name}: this page and the library", ours, theirs)

# %% [markdown]
# The line about the nearest $z$ is there for a reason. A central difference goes a step $h$ to both sides. If the kink
# lies between, it measures a piece of each slope, and calls a right gradient wrong:

# %%
h = 1e-5                                                       # the step of numeric_gradient
for z, truth in (-2, 0), (-0.5, 0.25), (0, 0.5), (0.3, 0.65), (2, 1):
    numeric = numeric_gradient(lambda z: np.maximum(0, z).sum(), np.array([z * h]))[0]
    backward = ops_of(x).relu_backward(np.ones(1), np.maximum(0, np.array([z * h])))[0]
    measure(f"z = {z:4} h: backward says {backward:.0f}, the central difference", numeric, truth - 1e-4, truth + 1e-4)

# %% [markdown]
# So if a check fails at one seed of many, look at the nearest $z$ before you look for a bug. The library's own checks
# draw inputs until every $z$ is further from 0 than a hundred steps (`distance_to_kink` in
# [nn/gradient_cases.py](../scratchformer/nn/gradient_cases.py)).
#
# ## Experiment 1: without it, without the ReLU, wider
#
# Small translators, two layers in encoder and decoder, $D = 64$, learn from the bundled corpus for 300 steps, three
# seeds each; this was recorded. The learning rate rises to a peak and falls again; the peak is given. Some have no
# feed-forward networks: the sublayer is left out as a whole. That takes weights away, and any weights might help. So
# there are two controls: *no ReLU* has all the weights of the paper's network, and computes with two linear maps;
# *none, 5 layers* gets the weights back as more layers of attention. Before you look: where between *none* and the
# paper's will *no ReLU* end?

# %% The table
result = recorded("feed_forward")
rows = {(row["variant"], row["peak_learning_rate"]): row for row in result["results"]}
print(f"validation loss in nats per token, mean (lowest..highest)\n{'':24}{'peak rate':>10}{'weights':>10}{'loss':>7}")
for (variant, peak), row in rows.items():
    loss = row["final_loss"]
    print(f"{variant:24}{peak:10}{row['parameters']:10,}{loss['mean']:7.2f} "
          f"({loss['lowest']:.2f}..{loss['highest']:.2f})")


def losses(variant, peak=0.004):
    """-> final losses of the three seeds, (3,); one seed means the same batches for all variants"""
    return np.array([run["final_loss"] for run in rows[variant, peak]["runs"]])


for worse, better, peak, lo, hi in [
        ("none", "4 d_model", 0.004, 0.2, 0.5), ("none", "4 d_model", 0.002, 0.2, 0.6),
        ("none, 5 layers", "none", 0.004, 0.5, 1.5), ("none, 5 layers", "none", 0.002, 0.1, 0.5),
        ("none", "4 d_model, no ReLU", 0.004, 0.1, 0.25), ("4 d_model, no ReLU", "4 d_model", 0.004, 0.05, 0.2),
        ("d_model", "4 d_model", 0.004, 0.05, 0.2), ("2 d_model", "4 d_model", 0.004, 0.05, 0.2),
        ("d_model", "2 d_model", 0.004, -0.1, -0.01), ("4 d_model", "8 d_model", 0.004, -0.1, -0.01)]:
    gains = losses(worse, peak) - losses(better, peak)
    measure(f"peak {peak}: least gain of {better} over {worse}", gains.min(), lo, hi)
none, linear, paper = (losses(variant).mean() for variant in ("none", "4 d_model, no ReLU", "4 d_model"))
measure("no ReLU: share of the way from none to 4 d_model", (none - linear) / (none - paper), 0.5, 0.7)
measure("no ReLU: mean, less that of d_model, with ReLU", linear - losses("d_model").mean(), -0.1, 0.1)
curves = np.array([run["curve"] for run in rows["4 d_model", 0.004]["runs"]])                  # (3, 7, 2): step, loss
fall = measure("4 d_model: fall of the loss in the last 50 steps", -np.diff(curves[:, -2:, 1]).mean(), 0.4, 0.5)
measure("4 d_model: gain of the ReLU, in steps of that fall", (linear - paper) / fall * 50, 12, 20)

# %% The figure
figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
variants = ["none", "d_model", "2 d_model", "4 d_model", "8 d_model", "4 d_model, no ReLU"]
for place, variant in enumerate(variants):
    hollow = variant in ("none", "4 d_model, no ReLU")
    axes.plot([place] * 3, losses(variant), "s" if hollow else "o", color=ACCENT if hollow else DARK, ms=8,
              mfc="none" if hollow else DARK)
    axes.text(place + 0.12, losses(variant).mean(), f"{losses(variant).mean():.2f}", va="center")
labels = ["no network", *(f"d_ff =\n{name}" for name in variants[1:5]), "4 d_model,\nno ReLU"]
axes.set_xticks(range(len(variants)), labels)
axes.set(ylabel="validation loss, nats per token", xlim=(-0.4, 5.6),
         title="After 300 steps: network, ReLU and width lower the loss (three runs, and mean)")
show(figure, "11_width", alt="Validation loss of three runs each: without a feed-forward network about 1.75 nats, with "
     "one as wide as d_model or twice as wide about 1.54, four times 1.39, eight times 1.36; four times without its "
     "ReLU 1.53, as high as the narrow ones with it.")

# %% [markdown]
# Compared seed by seed, since runs of one seed read the same batches:
#
# - **Without feed-forward networks the loss is higher**, in every seed and at both rates.
# - **A good half of the gap is closed by two linear maps**, which together are one. We had not expected that. The
#   sublayer brings more than its ReLU: weights that are trained, and a box "Add & Norm" of its own (Figure 1 of the
#   paper), which adds the sublayer's input to its output and rescales the sum. We have not tested which of them helps.
# - **The ReLU closes the rest**, at the one rate where we tried it. With it, a network as narrow as $d_{model}$ does as
#   well as one of 4 $d_{model}$ without.
# - **Width**: 4 is better than 1 and 2 in every seed. Between 1 and 2, and between 4 and 8, the seeds disagree.
# - **More attention instead did not help**: five layers without feed-forward networks end higher than two. But they
#   may only be slower to learn.
#
# All of this is about the first 300 steps, and the loss is still falling fast: what the ReLU gains, the model without
# it may reach some sixteen steps later. Whether any of these gains lasts, this experiment does not say.
#
# ## Experiment 2: how many hidden units work at a time?
#
# The translator of [lesson 00](00_whole_game.py) ($D = 128$, $F = 256$) reads 300 English test sentences and writes
# the German ones, given the words so far. We note what each feed-forward network reads and what its units do, before
# training and after.

# %% Reading the corpus, and watching the networks
files = [ROOT / f"data/tiny/test.{kind}" for kind in ("en", "de", "jsonl")]
lines = list(zip(*(file.read_text(encoding="utf-8").splitlines() for file in files)))[:300]
examples = [Example(source, target, **json.loads(answers)) for source, target, answers in lines]
translator = load_run(ROOT / "data/tiny_model")
trained = translator.model
source_ids, read_ids, written_ids = teacher_forced(translator.tokenizer, examples)             # (B, S), (B, T), (B, T)
NETWORKS = ["encoder, layer 1", "encoder, layer 2", "decoder, layer 1", "decoder, layer 2"]


def networks_of(model):
    return [layer.feed_forward.sublayer for layer in model.encoder.layers + model.decoder.layers]


def watched(model):
    """-> for each of the four networks, what it reads (n, D) and its hidden layer (n, F), at the n real positions"""
    seen = []

    def forward(network, x, rng=None):
        y, cache = FeedForward.forward(network, x, rng)
        seen.append((x, cache[1]))
        return y, cache

    for network in networks_of(model):
        network.forward = partial(forward, network)
    model.forward(source_ids, read_ids)
    for network in networks_of(model):
        del network.forward
    real = [source_ids != 0] * 2 + [written_ids != 0] * 2
    return [(x[mask], active[mask]) for (x, active), mask in zip(seen, real)]


# %%
new, seen = watched(Transformer(trained.config, seed=0)), watched(trained)
print(f"{'share of active units':22}{'new':>8}{'trained':>9}{'b_1 = 0':>9}{'x less its mean':>17}{'never active':>14}"
      f"{'mean x W_1 < 0':>16}")
shares = []
for i, network in enumerate(networks_of(trained)):
    (x, active), W_1, b_1 = seen[i], network.inner.weight.data, network.inner.bias.data
    shares.append([(new[i][1] > 0).mean(), (active > 0).mean(), (x @ W_1 > 0).mean(),
                   ((x - x.mean(axis=0)) @ W_1 + b_1 > 0).mean(), (~(active > 0).any(axis=0)).sum(),
                   (x.mean(axis=0) @ W_1 < 0).mean()])
    print("{:22}{:8.3f}{:9.3f}{:9.3f}{:17.3f}{:14.0f}{:16.3f}".format(NETWORKS[i], *shares[-1]))
before, after, no_bias, no_mean, never, away = np.array(shares).T
measure("new: mean of the four", before.mean(), 0.45, 0.55)
measure("trained: mean of encoder", after[:2].mean(), 0.055, 0.07)
measure("trained: mean of decoder", after[2:].mean(), 0.18, 0.2)
measure("b_1 = 0: largest rise of the four", (no_bias - after).max(), 0, 0.03)
measure("x less its mean: least share of the four", no_mean.min(), 0.4, 0.45)
measure("units whose product with the mean of x is below 0: least share of the four", away.min(), 0.98, 1)
measure("units of all 1024 that none of these words switches on", never.sum(), 0, 5)

# %% [markdown]
# A new network has about half of its units active, as a fair coin would. In the trained one a word finds few: about
# one in sixteen in the encoder, one in five in the decoder. (Li et al. 2023, *The Lazy Neuron Phenomenon*, report this
# of much larger Transformers.) The biases are not what holds the units down: without them, the shares hardly
# rise. It is what all words have in common: with the mean of all $x$ taken off, more than two units in five are
# active again. Nearly every column of $W_1$ points away from that mean, and their product acts like a large negative
# bias. But hardly a unit is dead: nearly all are active for some word. What single units react to is a question that
# Geva et al. (2021, *Transformer Feed-Forward Layers Are Key-Value Memories*) took up; we have not, here.
#
# ## Check the claim: "attention only mixes, so all computing is done by the feed-forward network"
#
# The proof above was about one head whose query is the same in every sentence. Two heads, no feed-forward network:

# %%
judges = [train(Judge(seed, h=2)) for seed in (range(7, 10) if QUICK else range(1, 10))]
on_new = np.array([judge.share_right(ids[is_new], is_right[is_new]) for judge in judges])
measure("two heads: judged rightly of new pairs, best run", on_new.max(), 0.95, 1)
measure("share of the runs with more than nine in ten", (on_new > 0.9).mean(), 0.6, 0.95)
measure("two heads: judged rightly of new pairs, worst run", on_new.min(), 0.65, 0.8)

plural = np.array([[0, 0], [1, 1], [0, 1], [1, 0]])            # noun and verb, the four sentences of the picture


def head(factor):
    """Looks at the two words with scores factor * plural. -> the mean of `plural`, so weighted, (4,)"""
    e = np.exp(factor * plural)
    return (e * plural).sum(axis=1) / e.sum(axis=1)


y = 1 - 4 * (head(30) - head(0))
print("y by hand, from two heads:", *y.round(3))
measure("least y of a right sentence, less greatest of a wrong one", y[:2].min() - y[2:].max(), 1.99, 2.01)

# %% [markdown]
# The claim is **false**. Most runs learn the task. (The worst is left near three in four: that two heads can compute it
# does not mean that training finds out how.) The values are mixed linearly, but the weights are not linear in the
# words, as the test of superposition showed, and each head divides by a sum of its own, so the two have no common sum
# of votes. The lines by hand show one way. A head with scores of 0 returns the mean of the two words. A sharp one finds
# a plural word if there is one, and a second one adds nothing. Their difference tells equal from unequal. (We have not
# looked whether the trained heads do it so.) What is true is that one head, asked by a constant query, adds up votes.
#
# ## Check the claim: "two thirds of the weights are in the feed-forward networks"
#
# In matrices, without biases: a feed-forward network has $2 \cdot D \cdot 4D = 8D^2$ weights, an attention $4D^2$. An
# encoder layer has one attention, but a decoder layer two. In the base model:

# %%
base = preset("base").model


def matrices(layer):
    return sum(weight.data.size for weight in layer.parameters().values() if weight.data.ndim == 2)


encoder, decoder = EncoderLayer(base, random), DecoderLayer(base, random)
network = matrices(encoder.feed_forward)
measure("encoder layer: feed-forward over attention", network / (matrices(encoder) - network), 2, 2)
measure("decoder layer: feed-forward over attention", network / (matrices(decoder) - network), 1, 1)
embeddings = 37_000 * base.d_model                             # one table for source, target and output (lesson 08)
total = base.N * (matrices(encoder) + matrices(decoder)) + embeddings
measure("share of all weights of the model, with 37,000 embeddings", 2 * base.N * network / total, 0.39, 0.41)

# %% [markdown]
# Two thirds is right for an encoder alone, or for a model that has no second attention. In the paper's model the
# feed-forward networks hold four tenths of all weights.
#
# ## Paper and code
#
# - §3.3, equation 2; $d_{model} = 512$ and $d_{ff} = 2048$. "While the linear transformations are the same across
#   different positions, they use different parameters from layer to layer." The paper gives no reason for the factor
#   4. Some call the shape a bottleneck; it is the inverse, wide in the middle.
# - Table 3, rows (C), English to German, newstest2013; each row changes $d_{ff}$ alone. (Perplexity is $e$ to the mean
#   loss in nats: lower is better.)
#
# | $d_{ff}$ | 1024 | 2048 (base) | 4096 |
# | --- | --- | --- | --- |
# | perplexity | 5.12 | 4.92 | 4.75 |
# | BLEU | 25.4 | 25.8 | 26.2 |
# | parameters | 53M | 65M | 90M |
#
# - So wider is better there, and the factor 4 is no optimum. But parameters grow with the width, and no row saves them
#   elsewhere.
# - In the library: `FeedForward` in [nn/layers.py](../scratchformer/nn/layers.py), `relu` and `relu_backward` in
#   [nn/ops.py](../scratchformer/nn/ops.py); tests in [tests/nn/test_gradients.py](../tests/nn/test_gradients.py),
#   against PyTorch in [tests/oracle/test_layers.py](../tests/oracle/test_layers.py).
# - *Differs:* the library can also drop hidden units at random in training, `relu_dropout`. In the paper it is not
#   mentioned, in its public code it is 0 at first and 0.1 later; here it is 0.
#
# ## Exercises
#
# `scratchformer learn check 11` looks at your answers and says what is wrong with them.
#
# **Predict.** You exchange two hidden units: their columns of $W_1$, their numbers in $b_1$ and their rows of $W_2$.
# What becomes of the output? And if you double a unit's column and its $b_1$ and halve its row?
#
# <details><summary>Answer</summary>
#
# The output stays as it is, both times. It is a sum over units, and a sum has no order; and
# $\max(0, 2z) = 2 \max(0, z)$, so the factors 2 and one half cancel. (For a factor below 0 this fails.) So "unit 7" of
# one model has nothing to do with unit 7 of another.
#
# </details>
#
# **Build** `11_feed_forward`: equation 2, for any leading axes.
#
# **Backward** `11_feed_forward_backward`: all gradients, from `active` and without $z$.
#
# **Break** `11_relu_kink`: find an input for which the check of a right gradient fails, at one given unit.
#
# **Build** `11_linear_collapse`: without the ReLU, the one linear map that does what the two do.
#
# ## Next
#
# By itself, a feed-forward network replaces its input, and six layers of attention and feed-forward networks replace
# it twelve times. What was there before is gone, and the gradient must go through all of them. [Lesson
# 12](12_residual_norm_dropout.py) shows how badly such a bare stack learns, and what the paper puts around each of its
# parts. The paper on feed-forward networks is short: section 3.3 of [its arXiv
# page](https://arxiv.org/abs/1706.03762).
