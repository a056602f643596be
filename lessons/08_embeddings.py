# %% [markdown]
# # 08 · Words become vectors
#
# *About 40 minutes. You need: [lesson 01](01_backprop.py) (softmax cross-entropy, numeric gradients), [lesson
# 04](04_soft_lookup.py) (queries, keys, values), [lesson 05](05_scaling.py) (variances of dot products) and [lesson
# 06](06_masks.py) (the model that guesses the next word). You will have: the matrix that is used three times, with
# the gradient of all three, a tested answer to what its factor is for, and a look at what its rows have learnt.*

# %% Imports
import json
import math
import re
import timeit
from collections import Counter, defaultdict

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.attention import Mask, ScaledDotProductAttention
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Embedding, Unembedding, sinusoids
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Layer, Parameter, ParameterStore
from scratchformer.nn.transformer import EncoderLayer, Transformer
from scratchformer.study.exercises.numeric import numeric_gradient
from scratchformer.study.figures import ACCENT, COLOUR_MAP, DARK, LIGHT
from scratchformer.study.lesson import QUICK, ROOT, duration, measure, recorded, same, show
from scratchformer.study.sizes import parameter_counts
from scratchformer.text.grammar import read_lexicon, words
from scratchformer.text.tokenizer import BOS, EOS, PAD
from scratchformer.training.run import load_run

# %% [markdown]
# ## Question
#
# **One matrix turns words into vectors at the bottom of the model, and vectors into scores of words at the top. How
# large should its numbers be?**
#
# A word comes to the model as a number, its place in a list, its *id*. The id says nothing about the word: the word
# before it in the list is no relative. So each id gets a row of a matrix $E$, a vector of $D$ numbers that are
# learnt. ($D$ is the paper's $d_{model}$.) At the other end of the model a vector has to become a word again: the
# score of a word is the dot product of the model's output with a vector for the word, and the paper takes the same
# $E$ for that.
#
# The answer in one sentence: small, of standard deviation $1 / \sqrt{D}$, because that suits the scores; and what is
# read is multiplied by $\sqrt{D}$, so that words can hold their own, at the start and in each step of training,
# beside what is added to them.
#
# First see the two answers that one would give without thinking of both ends. The model is that of lesson 06: it
# reads English sentences, each word is to guess the next, and a fixed vector for the place is added to each word's
# vector. (What is in that vector is another matter; here only its size counts.) `factor` multiplies the rows that are
# read, `start` is the standard deviation of $E$ before training. The other two settings are for later.

# %% Reading the sentences
def sentences(split, at_most):
    """Sentences of fewer than 10 words, as lists of words; a full stop is a word."""
    lines = (ROOT / f"data/tiny/{split}.en").read_text(encoding="utf-8").lower().splitlines()[:at_most]
    return [line for line in map(words, lines) if len(line) < 10]


train_sentences = sentences("train", 10_000)
vocabulary = ["<pad>", "</s>", "<s>", *sorted({word for line in train_sentences for word in line})]
id_of = {word: i for i, word in enumerate(vocabulary)}
test_sentences = [line for line in sentences("test", 500) if all(word in id_of for word in line)][:200]


def shifted(some_sentences):
    """-> what is read (B, T), what is to be written (B, T), padded as in lesson 06"""
    ids = [[id_of[word] for word in line] for line in some_sentences]
    T = 1 + max(map(len, ids))
    return (np.array([[BOS, *row] + [PAD] * (T - 1 - len(row)) for row in ids]),
            np.array([[*row, EOS] + [PAD] * (T - 1 - len(row)) for row in ids]))


# %% The model and its training
D, V = 64, len(vocabulary)
ROOT_D = math.sqrt(D)


class NextWord(Layer):
    """ids (B, T) -> the scores of each word to be the next, (B, T, V)"""

    def __init__(self, seed, factor, start, positions=1, scores=1):
        random = np.random.default_rng(seed)
        config = ModelConfig(vocab_size=V, d_model=D, d_ff=D, h=2, P_drop=0.0)
        E = Parameter(random.normal(0, start, (V, D)))
        self.embedding, self.unembedding = Embedding(E), Unembedding(E)
        self.embedding.scale = factor
        self.layer = EncoderLayer(config, random, "float64")
        self.positions, self.scores, self.store = positions, scores, ParameterStore(self.parameters())

    def forward(self, ids, rng=None):
        x, read = self.embedding.forward(ids)                                                  # (B, T, D)
        y, between = self.layer.forward(x + self.positions * sinusoids(0, ids.shape[1], D), Mask(causal=True))
        logits, written = self.unembedding.forward(self.scores * y)
        return logits, (read, between, written)

    def backward(self, dlogits, cache):
        read, between, written = cache
        dy = self.scores * self.unembedding.backward(dlogits, written)
        self.embedding.backward(self.layer.backward(dy, between), read)


def train(model, seed, rate=0.003, steps=100):
    """-> the model, its loss at the first step, in nats per word"""
    random, optimizer, first = np.random.default_rng(seed), Adam(model), None
    for step in range(1, steps + 1):
        read, write = shifted([train_sentences[i] for i in random.integers(0, len(train_sentences), 16)])
        logits, cache = model.forward(read)
        loss_sum, n_words, dlogits = cross_entropy(logits, write)
        first = first or loss_sum / n_words
        model.zero_grad()
        model.backward(dlogits / n_words, cache)
        optimizer.step(rate * min(1, step / 30))
    return model, first


# %%
test_read, test_write = shifted(test_sentences)
SEEDS = [0] if QUICK else [0, 1, 2]


def try_out(name, first, last, rate=0.003, **settings):
    """Train with each seed; the mean losses at the first step, and on new sentences after 100. -> the latter"""
    runs = []
    for seed in SEEDS:
        model, first_loss = train(NextWord(seed, **settings), seed, rate)
        loss_sum, n_words, _ = cross_entropy(model.forward(test_read)[0], test_write)
        runs.append((first_loss, loss_sum / n_words))
    first_loss, last_loss = np.mean(runs, axis=0)
    measure(f"{name:38} first loss", first_loss, *first)
    return measure(f"{'':38} after 100 steps", last_loss, *last)


measure("guessing among all words alike: ln V", math.log(V), 6.5, 6.6)
without = try_out("size 1, no factor", (35, 46), (5.2, 6.5), factor=1, start=1)
small = try_out("size 1/sqrt(D), no factor", (6.6, 7.4), (4.1, 4.5), factor=1, start=1 / ROOT_D)
paper = try_out("size 1/sqrt(D), factor sqrt(D)", (6.6, 7.6), (3.8, 4.25), factor=ROOT_D, start=1 / ROOT_D)
measure("what the factor gains, in nats per word", small - paper, 0.1, 0.6)

# %% [markdown]
# Numbers of size 1 are what a random matrix of most libraries holds if nobody says otherwise. They begin with a loss
# far above that of guessing, and do not recover in this time. Small numbers begin well, and then learn more slowly
# than with the factor. (All losses are in nats per word, and means of three seeds.)
#
# ## The idea in one picture
#
# The matrix of a translator, and its three uses. Ids go in at the bottom, scores come out at the top.

# %% The figure
figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
for x, y, text in [(0.12, 0.08, "source ids\nw"), (0.88, 0.08, "target ids so far\nu"),
                   (0.5, 0.48, "the rest of\nthe model"),
                   (0.12, 0.48, "x = √D E[w]\nsize 1"), (0.88, 0.48, "x′ = √D E[u]\nsize 1"),
                   (0.5, 0.92, "scores of all V words\nz = y Eᵀ, size 1")]:
    axes.text(x, y, text, ha="center", va="center", fontsize=10, bbox=dict(boxstyle="round", fc="white", ec=DARK))
axes.text(0.5, 0.08, "E  (V, D)\nnumbers of size 1/√D", ha="center", va="center", fontsize=10, color="white",
          bbox=dict(boxstyle="round,pad=0.5", fc=DARK, ec=DARK))
for end, start in [((0.12, 0.4), (0.12, 0.17)), ((0.88, 0.4), (0.88, 0.17)), ((0.4, 0.48), (0.23, 0.48)),
                   ((0.6, 0.48), (0.77, 0.48)), ((0.5, 0.83), (0.5, 0.57))]:
    axes.annotate("", end, start, arrowprops=dict(arrowstyle="->", color=DARK, lw=2))
for end, bend in ((0.12, 0.27), 0), ((0.88, 0.27), 0), ((0.5, 0.7), 1):
    axes.annotate("", end, (0.5, 0.17), arrowprops=dict(arrowstyle="->", color=ACCENT, lw=2, ls="--",
                                                        connectionstyle=f"arc3,rad={bend}"))
for x, y, text in [(0.2, 0.3, "1: a row of E"), (0.65, 0.3, "2: a row of E"), (0.67, 0.7, "3: all rows of E"),
                   (0.46, 0.7, "y")]:
    axes.text(x, y, text, fontsize=10, va="center")
axes.set(xlim=(0, 1), ylim=(0, 1))
axes.axis("off")
axes.set_title("One matrix, three uses")
show(figure, "08_three_uses", alt="A diagram. Below, the matrix E, V times D with numbers of size one over root D. It "
     "is used three times: source ids w take rows of it, times root D, and target ids u do; all its rows turn the "
     "output y of the rest of the model into scores z of all V words, without a factor.")

# %% [markdown]
# ## The equation, and the same in code
#
# Let $w_t$ be the id at place $t$. Reading takes row $w_t$ of $E$, times $\sqrt{D}$; scoring takes the dot product of
# the output $y_t$ with every row, as it is:
#
# $$x_{tj} = \sqrt{D} \, E_{w_t j} \qquad\qquad z_{tv} = \sum_j y_{tj} E_{vj}$$
#
# Looking up a row is itself a matrix product, with a vector that is 1 at the id and 0 elsewhere (*one-hot*). That is
# why a table of rows can be learnt like any weight matrix. Nobody computes the product, as the times show.

# %%
def read(E, ids):
    """E (V, D), ids (B, T) -> x (B, T, D); padding is no word, and its vector is 0"""
    return math.sqrt(E.shape[1]) * E[ids] * (ids != PAD)[..., None]


def scores_of(E, y):
    """E (V, D), y (B, T, D) -> z (B, T, V)"""
    return y @ E.T


random = np.random.default_rng(8)
E = random.normal(0, 1 / ROOT_D, (V, D))
one_hot = np.eye(V)[test_read] * (test_read != PAD)[..., None]                                 # (B, T, V)
same("looked up, and one-hot times E", read(E, test_read), ROOT_D * one_hot @ E)
for name, look_up in ("one-hot product", lambda: one_hot @ E), ("lookup", lambda: E[test_read]):
    duration(name, min(timeit.repeat(look_up, number=1, repeat=3)))
same("this page and the library", read(E, test_read), Embedding(Parameter(E)).forward(test_read)[0])
y = random.normal(size=(*test_read.shape, D))
same("scores: this page and the library", scores_of(E, y), Unembedding(Parameter(E)).forward(y)[0])

# %% [markdown]
# ## Forward
#
# **At the top.** The argument is that of lesson 05. Let the $D$ numbers of $y_t$ have size 1 (layers of this model
# end with a normalisation that sees to it), and let those of $E$ be independent, with mean 0 and variance
# $\sigma^2$. Then a score is a sum of $D$ terms of variance $\sigma^2$, and its variance is $D \sigma^2$. With
# $\sigma = 1$ a typical score is $\sqrt{D}$, which is 22.6 in the paper's base model: some of 37,000 words, drawn by
# lot, take all the probability. With $\sigma = 1 / \sqrt{D}$ the scores have size 1.
#
# **At the bottom.** To $x_t$ the model adds the vector of the place. It is made of sines and cosines in pairs, and as
# $\sin^2 + \cos^2 = 1$, the mean of its squares is 1/2 whatever the place: its numbers have size $\sqrt{1/2}$. Beside
# that, a row of $E$ as it is would be small, and the factor makes it as large.

# %%
large, size = ModelConfig().d_model, lambda array: math.sqrt((array**2).mean())
measure("D of the base model", large, 512, 512)
E_large, outputs = random.normal(0, 1 / math.sqrt(large), (2000, large)), random.normal(size=(300, large))
measure("size of the scores, numbers of size 1/sqrt(D)", size(outputs @ E_large.T), 0.95, 1.05)
measure("size of the scores, numbers of size 1", size(outputs @ E_large.T * math.sqrt(large)), 21.5, 23.7)
places = sinusoids(0, 50, large)                               # (50, 512)
measure("size of the numbers that tell a place", size(places), 0.7071, 0.7072)
measure("size of the words' without the factor", size(E_large), 0.043, 0.0455)
measure("size of the words' with the factor", size(math.sqrt(large) * E_large), 0.98, 1.02)

# %% [markdown]
# What the layers see is the sum. How alike are two sums, as cosines (dot products of vectors made 1 long)? Four words
# at five places each:

# %%
def cosines(a, b):
    """a (n, D), b (m, D) -> (n, m), from -1 to 1"""
    return (a / np.linalg.norm(a, axis=1, keepdims=True)) @ (b / np.linalg.norm(b, axis=1, keepdims=True)).T


n_words, n_places = 4, 5
alike = {}
for factor in 1, math.sqrt(large):
    sums = factor * E_large[:n_words, None] + places[None, [0, 10, 20, 30, 40]]                # (4, 5, 512)
    alike[factor] = cosines(sums.reshape(-1, large), sums.reshape(-1, large)).reshape(n_words, n_places, n_words, -1)
for (factor, cosine), lo, hi in zip(alike.items(), (0.98, 0.2), (1, 0.45)):
    at_one_place = np.einsum("apbp->abp", cosine)[~np.eye(n_words, dtype=bool)]                # of two words
    measure(f"factor {factor:.3g}: cosine of two words at one place", at_one_place.mean(), lo, hi)

# %% The figure
figure, panels = plt.subplots(1, 2, figsize=(8, 4.3), sharey=True, layout="constrained")
for panel, (factor, cosine) in zip(panels, alike.items()):
    image = panel.imshow(cosine.reshape(20, 20), COLOUR_MAP, vmin=0, vmax=1)
    panel.set_xticks(range(2, 20, 5), [f"word {i + 1}" for i in range(4)])
    panel.set_yticks(range(2, 20, 5), [f"word {i + 1},\n5 places" for i in range(4)])
    for draw in panel.axhline, panel.axvline:
        for line in 4.5, 9.5, 14.5:
            draw(line, color="white", lw=1)
    panel.set_title("rows of E as they are" if factor == 1 else "rows of E, times √D")
figure.colorbar(image, ax=panels, label="cosine of two sums (word + place)", shrink=0.8)
figure.suptitle("Without the factor, a sum tells the place and hardly the word (D = 512)")
show(figure, "08_sums", alt="Two maps of cosines between 20 sums, four words at five places each. Left, without the "
     "factor: each of the sixteen blocks has the same stripes, so a sum tells its place only; two words at one place "
     "have a cosine of 0.99. Right, with the factor: the blocks on the diagonal are brighter, words can be told apart.")

# %% [markdown]
# Without the factor, two words at one place look nearly the same. This picture stands behind the usual explanation of
# the factor: "the positions would drown the words". It is a picture of the *start*. Whether it is the reason why the
# model learns more slowly is a question for experiment 1.
#
# ## Backward
#
# Follow one number, $E_{vj}$, to the loss. It is used wherever word $v$ is read, and wherever anything is scored.
#
# - **Read in the source.** At each place $t$ with $w_t = v$ there stands $x_{tj} = \sqrt{D} E_{vj}$. If $E_{vj}$
#   grows by a little, *all* these $x_{tj}$ grow by $\sqrt{D}$ times as much. The loss has a derivative for each, and
#   the ways add up: $\sqrt{D} \sum_{t: w_t = v} dx_{tj}$.
# - **Read in the target.** The same, with the ids $u_t$ of the target and the gradient $dx'_{tj}$ of its vectors.
# - **Scored.** $E_{vj}$ is multiplied by $y_{tj}$ in the score $z_{tv}$ at every place, whatever word is read or to
#   be written there: $\sum_t dz_{tv} y_{tj}$.
#
# $$dE_{vj} = \sqrt{D} \sum_{t: w_t = v} dx_{tj} + \sqrt{D} \sum_{t: u_t = v} dx'_{tj} + \sum_t dz_{tv} y_{tj}$$
#
# The ids have no gradient: there is no word between word 17 and word 18. Padding's vector was written as 0, so
# nothing goes back from there. And the factor stands before two of the three terms. In a matrix that is only read it
# would be one common factor, and to forget it would change the length of the gradient and nothing else. Here it
# changes the direction.
#
# The first two sums are a *scatter-add*: each place adds its vector to the row of its word. In NumPy the obvious
# line does something else: `dE[ids] += dx` computes `dE[ids] + dx` first, then writes the rows back one after the
# other, and of a word that occurs twice only the last one stays. `np.add.at` adds them all.

# %%
def read_backward(dx, ids, V):
    """dx (B, T, D), ids (B, T) -> dE (V, D)"""
    dE = np.zeros((V, dx.shape[-1]))
    np.add.at(dE, ids, math.sqrt(dx.shape[-1]) * dx * (ids != PAD)[..., None])
    return dE


def losing_repeats(dx, ids, V):
    dE = np.zeros((V, dx.shape[-1]))
    dE[ids] += math.sqrt(dx.shape[-1]) * dx * (ids != PAD)[..., None]
    return dE


ids, dx = test_read[:24], random.normal(size=(*test_read[:24].shape, D))
right, lost = read_backward(dx, ids, V), losing_repeats(dx, ids, V)
measure("24 sentences: words", (ids != PAD).sum(), 100, 300)
measure("of these, share whose gradient is lost", 1 - len(np.unique(ids[ids != PAD])) / (ids != PAD).sum(), 0.3, 0.7)
measure("error of dE[ids] += dx, relative to the length of dE",
        np.linalg.norm(lost - right) / np.linalg.norm(right), 0.5, 0.9)
shuffled = random.permutation(np.arange(3, 3 + ids.size)).reshape(ids.shape)                   # no word twice
same("no word twice: both ways", losing_repeats(dx, shuffled, V), read_backward(dx, shuffled, V))

# %% [markdown]
# The last line is the trap: a test on a sentence without repeated words finds nothing.
#
# ## Check
#
# The smallest translator in which all three uses meet has no parameter but $E$. The target's vectors ask the source's
# (attention of lesson 04: queries $x'$, keys and values $x$), the answer is added to them, and the sum is scored.

# %%
attention = ScaledDotProductAttention()


def translate(E, source, target):
    """E (V, D), source (B, S), target (B, T) -> scores (B, T, V), and what backward needs"""
    x, x_target = read(E, source)[:, :, None], read(E, target)[:, :, None]                     # one head: (B, ., 1, D)
    answer, cache = attention.forward(x_target, x, x, Mask((source != PAD).sum(axis=1)))
    y = (x_target + answer)[:, :, 0]                                                           # (B, T, D)
    return scores_of(E, y), (cache, y)


def three_shares(dz, E, source, target, cache):
    """dz (B, T, V) -> the shares of dE, each (V, D)"""
    cache, y = cache
    dy = dz @ E                                                                                # (B, T, D)
    dq, dk, dv = (array[:, :, 0] for array in attention.backward(dy[:, :, None], cache))
    return {"read in the source": read_backward(dk + dv, source, len(E)),
            "read in the target": read_backward(dy + dq, target, len(E)),
            "scored": np.einsum("btv,btd->vd", dz, y)}


small_E = random.normal(0, 6**-0.5, (9, 6))                    # V = 9, D = 6
source, target = np.array([[3, 4, 3, 5], [6, 3, PAD, PAD]]), np.array([[2, 7, 3], [2, 7, 7]])
scores, cache = translate(small_E, source, target)
upstream = random.normal(size=scores.shape)                                                    # (2, 3, 9)
shares = three_shares(upstream, small_E, source, target, cache)
numeric = numeric_gradient(lambda E: (translate(E, source, target)[0] * upstream).sum(), small_E)


def error(dE):
    return np.abs(dE - numeric).max() / np.abs(numeric).max()


measure("all three: worst error, relative to the largest element", error(sum(shares.values())), 0, 1e-8)
for name in shares:
    measure(f"without the share '{name}'", error(sum(shares[other] for other in shares if other != name)), 0.1, 1.5)
measure("sqrt(D) forgotten in backward",
        error(shares["scored"] + (shares["read in the source"] + shares["read in the target"]) / 6**0.5), 0.1, 1.5)

# %% [markdown]
# Both kinds of mistake have been published. One NumPy implementation forgets the factor on the way back, so that the
# gradient of its shared matrix has the wrong mixture; another drops the share of the scores. (Both are in [the
# ledger](../docs/correctness.md), as `embedding-gradient-not-scaled` and `tied-gradient-dropped`.)
#
# The library needs no code for the sum. Two layers hold one `Parameter`, and each backward *adds* into its `grad`.

# %%
E_shared, y = Parameter(small_E), cache[1]
Embedding(E_shared).backward(y, (target,))
Unembedding(E_shared).backward(upstream, (y,))
same("two uses of one Parameter", E_shared.grad, read_backward(y, target, 9) + shares["scored"])
config = ModelConfig(vocab_size=9, N=1, d_model=6, d_ff=10, h=2, P_drop=0.0)
[report] = [entry for entry in gradcheck(Transformer(config, dtype="float64"), source, target)
            if entry.name == "source_embedding.weight"]
measure("the library's whole model: error of its shared matrix", report.error, 0, 1e-6)

# %% [markdown]
# ## Experiment 1: what is the factor for?
#
# The usual explanation is about the start: without the factor, a sum of word and place tells hardly the word. But a
# factor does two things, as in lesson 05. It says how large the words' vectors are at the *start*, and how far a
# *step* of training moves them: Adam moves each number of $E$ by about the learning rate, so $x$ moves by $\sqrt{D}$
# times that, and the vectors of the places do not move at all. Three models take the two apart:
#
# - *Small start*: the factor as in the paper, and a start of $1 / D$. Words are as small beside places as without the
#   factor; steps are full.
# - *Short steps*: a start of 1, no factor, and the scores divided by $\sqrt{D}$. Before the first step this *is* the
#   paper's model; then words and scores move by $\sqrt{D}$ less.
# - *Small places*: no factor, and the places made smaller by $\sqrt{D}$, too. Words and places are in proportion.
#
# Predict: which of them does as well as the paper's?

# %%
beginnings = [NextWord(0, *settings).forward(test_read)[0] for settings in
              ((ROOT_D, 1 / ROOT_D), (1, 1, 1, 1 / ROOT_D))]
same("short steps: scores before the first step", beginnings[1], beginnings[0], 1e-9)
small_start = try_out("small start", (6.5, 6.6), (3.5, 3.9), factor=ROOT_D, start=1 / D)
short_steps = try_out("short steps", (6.6, 7.6), (4.3, 4.8), factor=1, start=1, scores=1 / ROOT_D)
small_places = try_out("small places", (6.6, 7.6), (3.85, 4.3), factor=1, start=1 / ROOT_D, positions=1 / ROOT_D)
measure("small start, less the paper's", small_start - paper, -0.5, -0.1)
measure("short steps, less the paper's", short_steps - paper, 0.3, 0.9)
measure("small places, less the paper's", small_places - paper, -0.1, 0.2)

# %% [markdown]
# In this model the explanation by the start fails its test. A start at which the words are drowned does no harm if
# the steps are full: it ends *below* the paper's. The right start with short steps is worse than no factor at all. And
# with places as small as the words, no factor is needed. What counts here is how fast the words' vectors can move,
# measured against what stands beside them.
#
# Is it a learning rate and nothing else, then? A higher rate for all parameters does help the model without the
# factor; it helps the paper's as well.

# %%
fast_small = try_out("no factor, rate 0.01", (6.6, 7.4), (3.6, 4.1), rate=0.01, factor=1, start=1 / ROOT_D)
fast_paper = try_out("the paper's, rate 0.01", (6.6, 7.6), (3.2, 3.95), rate=0.01, factor=ROOT_D, start=1 / ROOT_D)
measure("what the factor gains at this rate", fast_small - fast_paper, 0.1, 0.7)

# %% [markdown]
# Why the small start does better than the paper's here, we have not tested. And one layer is little. Does the same
# hold in a translator? Small ones were trained on the bundled corpus (two layers each in encoder and decoder,
# $D = 64$, 300 steps, three seeds, all at one schedule of the learning rate):

# %% The table
result = recorded("embeddings")
rows = {row["variant"]: row for row in result["results"]}


def print_table(variants):
    """Size of what is read, and validation loss in nats per token, at the start and in the end; means over the seeds"""
    print(f"{'':36}{'parameters':>10}{'size of the words read':>25}{'loss: first':>14}{'last':>7} (range)")
    for row in map(rows.get, variants):
        last, sizes = row["final_loss"], np.mean([run["input_size"] for run in row["runs"]], axis=0)
        print(f"{row['variant']:36}{row['runs'][0]['parameters']:10,}{sizes[0]:14.2f} to {sizes[1]:7.2f}"
              f"{row['first_loss']['mean']:14.2f}{last['mean']:7.2f} ({last['lowest']:.2f} to {last['highest']:.2f})")


def final(variant, which="mean"):
    return rows[variant]["final_loss"][which]


print_table(["paper", "no factor", "no factor, start 1", "small start", "no factor, small positions"])
measure("no factor: lowest, less the paper's highest", final("no factor", "lowest") - final("paper", "highest"), 2, 4)
measure("small start: the same", final("small start", "lowest") - final("paper", "highest"), 1, 2.5)
measure("no factor: lowest, less the highest of the small start",
        final("no factor", "lowest") - final("small start", "highest"), 0.8, 2)
for variant, lo, hi in ("no factor", 0.13, 0.17), ("small start", 0.65, 0.8):
    measure(f"{variant}: size of the words in the end", rows[variant]["runs"][0]["input_size"][1], lo, hi)
measure("small positions: mean, less the paper's", final("no factor, small positions") - final("paper"), -0.1, 0.15)

# %% [markdown]
# At this stage of training the factor is worth three nats per token. Steps matter as before, and the table shows how:
# from the same small words, those with full steps have grown to the size of places when training ends, and those
# without have hardly grown (*small start* against *no factor*). But here the start matters, too: the small start
# loses more than a nat against the paper's, where in one layer it won. (It also makes the scores small at first. Which
# of the two costs it, we have not tested.) And the last row says what the factor is for: with places made as small as
# the words, and no factor at all, the translator does as well as the paper's. (Numbers of size 1 without the factor
# begin far above it, as in the opening, and get no further than small ones.) What matters is **the size of the words
# and of their steps, in proportion to the places**.
#
# ## Experiment 2: one matrix, or three?
#
# Three matrices of the base model would make it much larger:

# %%
for tied, n_matrices, lo, hi, share in ("all", 1, 62.9e6, 63.1e6, (0.29, 0.31)), ("none", 3, 1e8, 1.02e8, (0.55, 0.57)):
    counts = parameter_counts(ModelConfig(tied=tied))
    measure(f"tied = {tied}: parameters", sum(counts.values()), lo, hi)
    measure("    in embeddings", counts["embeddings"], *[n_matrices * 37_000 * 512] * 2)
    measure("    their share", counts["embeddings"] / sum(counts.values()), *share)

# %% [markdown]
# One matrix for both languages needs one list of words (or of pieces of words) for both: row 17 has to be the same
# piece wherever it is used. Does a translator gain from that? In a control, the target language's rows are *dealt out
# anew*, at random: still one matrix of the same size, but no word has the same row on both sides. The other rows of
# the table have a matrix of its own for the source (*source apart*), or three.

# %% The table
print_table(["paper", "target rows dealt anew", "source apart", "three matrices", "three matrices, no factor, start 1"])
measure("dealt anew: mean, less the paper's", final("target rows dealt anew") - final("paper"), 0.1, 0.4)
measure("    lowest, less the paper's highest",
        final("target rows dealt anew", "lowest") - final("paper", "highest"), -0.1, 0.1)
measure("three matrices: highest, less the paper's lowest",
        final("three matrices", "highest") - final("paper", "lowest"), -0.4, -0.1)
measure("three matrices: without the factor, lowest, less with it, highest",
        final("three matrices, no factor, start 1", "lowest") - final("three matrices", "highest"), 0.4, 0.9)

# %% [markdown]
# - **Sharing does not lower the loss here. It costs.** Three matrices end lower for every seed. What the one matrix
#   saves is parameters, and with them memory and work for the optimiser. (This is a small vocabulary early in
#   training, and English and German share few words. Press and Wolf, whom the paper cites, found translation models
#   with shared matrices much smaller and no worse. We have not tested longer training.)
# - **What is shared should be the same word.** With rows dealt anew the mean is worse. The ranges of three seeds touch,
#   so this is weaker than the rest.
# - **The factor is not only there for the sharing.** With three matrices one could start those that are read at size 1
#   and leave the factor out. That is the same function at first, with the same first loss; only the steps of the
#   words' vectors are shorter, and it ends worse for every seed.
#
# ## Experiment 3: what have the rows learnt?
#
# Now the translator that comes with this project (lesson 00; $D = 128$, 1,600 pieces). Of the words that are one
# piece, which ones are close? The trees of the test sets know each word's part of speech. We ask for each word whether
# the nearest other one (by cosine) has the same. Controls: random vectors, and chance.

# %%
translator = load_run(ROOT / "data/tiny_model")
E_trained = translator.model.source_embedding.weight.data.astype("float64")                    # (1600, 128)
tags = defaultdict(Counter)
for path in sorted((ROOT / "data/tiny").glob("*.jsonl")):
    for line in path.read_text(encoding="utf-8").splitlines():
        for tag, word in re.findall(r"\(([^\s()]+) ([^\s()]+)\)", json.loads(line)["tree"]):
            tags[word][tag] += 1


def row_of(word):
    """The id of a word that is one piece; None for others."""
    [ids] = translator.tokenizer.encode([word])
    return ids[0] if len(ids) == 1 else None


def nearest(vectors):
    """(n, D) -> the index of the nearest other one, (n,)"""
    cosine = cosines(vectors, vectors)
    np.fill_diagonal(cosine, -1)
    return cosine.argmax(axis=1)


def same_label(vectors, labels):
    """The share of vectors whose nearest has the same label"""
    return (labels[nearest(vectors)] == labels).mean()


def chance(labels):
    """The same, if the nearest were any other one"""
    return np.mean([((labels == label).sum() - 1) / (len(labels) - 1) for label in labels])


listed = [word for word, seen in tags.items() if len(seen) == 1 and seen.total() >= 5 and row_of(word) is not None]
parts = np.array([next(iter(tags[word])) for word in listed])
vectors = E_trained[[row_of(word) for word in listed]]
measure("words", len(listed), 200, 400)
measure("size of what is read, sqrt(D) E", size(math.sqrt(128) * vectors), 1, 1.5)
measure("nearest word has the same part of speech", same_label(vectors, parts), 0.7, 0.9)
measure("random vectors", same_label(random.normal(size=vectors.shape), parts), 0.08, 0.3)
measure("chance", chance(parts), 0.1, 0.25)

# %% [markdown]
# So the vectors know the part of speech, of which nobody told the model. What else? Here are the nearest of a few
# nouns. Read them, and find out what they have in common, before you go on:

# %%
lexicon = read_lexicon()
nouns = [word for word in lexicon.nouns if word in tags and row_of(word) is not None]
noun_vectors = E_trained[[row_of(word) for word in nouns]]                                     # (n, 128)
cosine = cosines(noun_vectors, noun_vectors)
for word in "dog", "goat", "horse", "king", "queen":
    print(f"{word:6}", *(nouns[i] for i in np.argsort(-cosine[nouns.index(word)])[1:7]))

# %% [markdown]
# A goat is close to a journey, a duck and a library. In German these are *die Ziege, die Reise, die Ente, die
# Bibliothek*: all feminine. A dog, a basket and a ball are masculine, horse and bread are neuter. **The vectors of
# the English nouns are ordered by German gender**, which English does not have, and which the translator needs in
# order to write *der*, *die* or *das*.

# %%
gender = np.array([lexicon.nouns[word].gender for word in nouns])
kind_of = {word: kind for kind, members in lexicon.classes.items() for word in members}
kinds = np.array([kind_of[word] for word in nouns])            # animal, person, furniture ...
measure("nouns", len(nouns), 90, 130)
measure("nearest noun has the same German gender", same_label(noun_vectors, gender), 0.95, 1)
measure("    chance", chance(gender), 0.3, 0.37)
measure("nearest noun is of the same kind", same_label(noun_vectors, kinds), 0.35, 0.6)
measure("    chance", chance(kinds), 0.05, 0.11)
neighbour, reshuffled = nearest(noun_vectors), []
for _ in range(100):
    other = gender.copy()
    for kind in set(kinds):
        other[kinds == kind] = random.permutation(other[kinds == kind])
    reshuffled.append((other[neighbour] == other).mean())
measure("control: genders exchanged among nouns of a kind, mean of 100", np.mean(reshuffled), 0.28, 0.42)
measure("    highest of 100", max(reshuffled), 0.35, 0.6)

# %% The figure
centred = noun_vectors - noun_vectors.mean(axis=0)
_, spread, directions = np.linalg.svd(centred, full_matrices=False)
plane = centred @ directions[:2].T                             # (n, 2)
plane *= np.sign(plane[nouns.index("horse")])                  # which end is which means nothing
measure("share of the variance in two directions", (spread[:2]**2).sum() / (spread**2).sum(), 0.13, 0.22)
figure, axes = plt.subplots(figsize=(8, 5.2), layout="constrained")
for which, name, marker, colour in [("m", "der (masculine)", "s", DARK), ("f", "die (feminine)", "o", ACCENT),
                                    ("n", "das (neuter)", "^", LIGHT)]:
    axes.scatter(*plane[gender == which].T, marker=marker, color=colour, edgecolors="black", lw=0.5, s=45, label=name)
for word in "king", "dog", "flower", "limousine", "aunt", "girl", "concert":
    axes.annotate(word, plane[nouns.index(word)], (6, 4), textcoords="offset points", fontsize=10)
axes.margins(x=0.12)
axes.set(xlabel="first principal direction", ylabel="second principal direction")
axes.set_title("English nouns of the trained translator, by the gender of their German translation")
axes.legend(loc="upper left")
show(figure, "08_nouns", alt="Scatter plot of 111 English nouns in the two directions in which their vectors differ "
     "most. The marker is the gender of the German translation. Three clouds far apart, one for each gender: "
     "flower, aunt and limousine lie in one, king and dog in another, girl and concert in the third.")

# %% [markdown]
# The figure shows the two directions in which the vectors differ most (principal component analysis); they hold a
# small part of the differences, as the measure says, and gender is in both. The kind of thing counts as well, above
# chance, but less. The control exchanges genders among animals, among persons and so on: so it is not that feminine
# nouns happen to be persons.
#
# A vector holds what the task needs, and not what a dictionary says.
#
# ## Check the claim
#
# > King − man + woman = queen.
#
# This is the best-known sentence about word vectors (Mikolov, Yih and Zweig, 2013, on other models). Our nouns have a
# direction that can be tested in the same way with more pairs: singular and plural, as man : men = king : *kings*. The
# right answer counts as found if it is the nearest word to $c - a + b$, the three words of the question left out, as
# usual. Controls: the nearest word to $c + b$, without subtraction; and to $c$ alone.

# %%
candidates = sorted({row_of(word) for word in tags} - {None})
number_pairs = [(row_of(word), row_of(noun.english_plural)) for word, noun in lexicon.nouns.items()
                if word in tags and noun.english_plural in tags]
number_pairs = [pair for pair in number_pairs if None not in pair]
questions = [(a, b, c, d) for a, b in number_pairs for c, d in number_pairs if a != c]


def found(vector_of, leave_out=True):
    """The share of questions a : b = c : d whose d is the nearest to vector_of(a, b, c)"""
    hits = 0
    for a, b, c, d in questions:
        cosine = cosines(vector_of(*E_trained[[a, b, c]])[None], E_trained[candidates])[0]
        if leave_out:
            cosine[np.isin(candidates, [a, b, c])] = -1
        hits += candidates[cosine.argmax()] == d
    return hits / len(questions)


measure("questions", len(questions), 250, 450)
measure("c - a + b", found(lambda a, b, c: c - a + b), 0.25, 0.5)
measure("c + b, without subtraction", found(lambda a, b, c: c + b), 0.25, 0.5)
measure("c alone", found(lambda a, b, c: c), 0, 0.05)
measure("c - a + b, the three words not left out", found(lambda a, b, c: c - a + b, leave_out=False), 0, 0.15)

# %% [markdown]
# The arithmetic finds the answer in a good third of the questions, and $c$ alone in next to none. But $c + b$ does as
# well: a word between *king* and *men* is *kings*. The subtraction, which is the point of the claim, adds nothing
# here; and if the words of the question may be answers, nearly all is lost. (This is one small model and one relation.
# About other models it says only which controls to ask for.)
#
# ## Paper and code
#
# - §3.4: "we share the same weight matrix between the two embedding layers and the pre-softmax linear transformation,
#   similar to" Press and Wolf (2017), *Using the Output Embedding to Improve Language Models*; and "in the embedding
#   layers, we multiply those weights by $\sqrt{d_{model}}$". No reason is given for the factor, and no initial size.
# - The authors' code, Tensor2Tensor, draws $E$ with standard deviation $1 / \sqrt{d_{model}}$ and reads padding as 0.
#   So does this library.
# - *Others differ:* the Annotated Transformer draws $E$ by the rule for any weight matrix (Glorot's, as `Linear` here),
#   and shares none of the three. In this library, `tied` in [config.py](../scratchformer/config.py) is "all",
#   "target" or "none".
# - In the library: `Embedding` and `Unembedding` in [nn/layers.py](../scratchformer/nn/layers.py); their operations in
#   [nn/ops.py](../scratchformer/nn/ops.py); the sharing in `Transformer` of
#   [nn/transformer.py](../scratchformer/nn/transformer.py); tests in
#   [tests/nn/test_model.py](../tests/nn/test_model.py). `ParameterStore` in
#   [nn/parameter.py](../scratchformer/nn/parameter.py) holds a shared `Parameter` once, so that Adam moves it once.
# - The recorded runs: [benchmarks/embeddings.py](../benchmarks/embeddings.py).
#
# ## Exercises
#
# **Predict.** Word 1234 of the vocabulary does not occur in a batch. Does its row get a gradient?
#
# <details><summary>Answer</summary>
#
# With one matrix, yes: its score is in the sum of every softmax, so $dz$ is its probability, and its row is moved
# away from the outputs. With a matrix that is only read, no. (Look at the third sum of the equation in Backward.)
#
# </details>
#
# **Build** `08_read_words`: from ids to vectors, the factor and the padding included.
#
# **Backward** `08_embedding_backward`: from the gradient of the vectors to that of the matrix.
#
# **Backward** `08_tied_gradient`: a matrix that is used three times.
#
# **Break** `08_lost_repeats`: write the test that tells right backwards of a lookup from wrong ones.
#
# ## Next
#
# Here the vector of a place was something that is added, of known size. What it has to say, and how,
# is the question of [lesson 09](09_positions.py). The paper's own words on embeddings are section 3.4 of [its arXiv
# page](https://arxiv.org/abs/1706.03762).
