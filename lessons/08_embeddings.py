# %% [markdown]
# # 08 · Words become vectors
#
# *About 40 minutes. You need: [lesson 01](01_backprop.py) (softmax cross-entropy, numeric gradients), [lesson
# 04](04_soft_lookup.py) (queries, keys, values), [lesson 05](05_scaling.py) (variances of dot products), [lesson
# 06](06_masks.py) (the model that guesses the next word), and for the trained model [lesson 00](00_whole_game.py). You
# will have: the matrix that is used three times, with the gradient of all three, a tested answer to what its factor is
# for, and a look at what its rows have learnt.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library.lesson import QUICK, ROOT, measure, recorded, same, show
from library.lexicon import read_lexicon
from scratchformer.config import ModelConfig
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.experiments.sizes import parameter_counts
from scratchformer.nn.attention import Mask, ScaledDotProductAttention
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Embedding, Unembedding, sinusoids
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Layer, Parameter, ParameterStore
from scratchformer.nn.transformer import EncoderLayer, Transformer
from scratchformer.text.bundled import words
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
# read is multiplied by $\sqrt{D}$, so that the words' vectors, and the steps that they learn by, are in proportion to
# what is added to them.
#
# First see what goes wrong if one thinks of one end only. The model is that of lesson 06: it reads English sentences,
# each word is to guess the next, and a fixed vector for the place is added to each word's vector. (What is in that
# vector is another matter; here only its size counts.) In the code, `size` is the standard deviation of $E$ before
# training, $1 / \sqrt{D}$ if nothing is said, and `factor` multiplies the rows that are read.

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

    def __init__(self, seed, size, factor, steps=None):
        random, steps = np.random.default_rng(seed), steps or factor
        config = ModelConfig(vocab_size=V, d_model=D, d_ff=D, h=2, P_drop=0.0)
        E = Parameter(random.normal(0, size, (V, D)))
        self.embedding, self.unembedding = Embedding(E), Unembedding(E)
        self.embedding.scale = steps
        self.before = E.data * (np.arange(V) != PAD)[:, None]
        self.kept = (factor - steps) * self.before             # 0 where steps is not given: see experiment 1
        self.layer = EncoderLayer(config, random, "float64")
        self.store = ParameterStore(self.parameters())

    def forward(self, ids, rng=None):
        x, read = self.embedding.forward(ids)                                                  # (B, T, D)
        x += self.kept[ids] + sinusoids(0, ids.shape[1], D)                                    # word + place
        y, between = self.layer.forward(x, Mask(causal=True))
        logits, written = self.unembedding.forward(y)
        return logits, (read, between, written)

    def backward(self, dlogits, cache):
        read, between, written = cache
        dy = self.unembedding.backward(dlogits, written)
        self.embedding.backward(self.layer.backward(dy, between), read)


def train(model, seed, steps=100):
    """-> the loss of each step, in nats per word"""
    random, optimizer, losses = np.random.default_rng(seed), Adam(model), []
    for step in range(1, steps + 1):
        read, write = shifted([train_sentences[i] for i in random.integers(0, len(train_sentences), 16)])
        logits, cache = model.forward(read)
        loss_sum, n_words, dlogits = cross_entropy(logits, write)
        model.zero_grad()
        model.backward(dlogits / n_words, cache)
        optimizer.step(0.003 * min(1, step / 30))
        losses.append(loss_sum / n_words)
    return losses


# %%
test_read, test_write = shifted(test_sentences)
SEEDS = [0] if QUICK else [0, 1, 2]
models, losses = {}, {}


def try_out(name, first, last, size=1 / ROOT_D, **settings):
    """Train a NextWord with each seed. Keeps the models, and their losses on new sentences"""
    models[name] = [NextWord(seed, size, **settings) for seed in SEEDS]
    first_losses = [train(model, seed)[0] for model, seed in zip(models[name], SEEDS)]
    results = [cross_entropy(model.forward(test_read)[0], test_write) for model in models[name]]
    losses[name] = np.array([loss_sum / n_words for loss_sum, n_words, _ in results])
    measure(f"{name:20} first loss", np.mean(first_losses), *first)
    measure(f"{'':20} after 100 steps", losses[name].mean(), *last)


measure("guessing among all words alike: ln V", math.log(V), 6.5, 6.6)
try_out("size 1, no factor", (35, 46), (5.2, 6.5), size=1, factor=1)
try_out("no factor", (6.6, 7.4), (4.1, 4.4), factor=1)
try_out("paper", (6.6, 7.6), (3.8, 4.25), factor=ROOT_D)
measure("no factor, less paper: smallest of the seeds", (losses["no factor"] - losses["paper"]).min(), 0.05, 0.5)

# %% [markdown]
# Numbers of size 1 are what PyTorch's `nn.Embedding` draws if nobody says otherwise. They begin with a loss far above
# that of guessing, and do not recover in this time. Small numbers begin well, and learn faster with the
# factor, for each seed. (All losses are in nats per word, and means of three seeds.)
#
# ## The idea in one picture
#
# The matrix of a translator, and its three uses. Source ids $w$ and target ids $u$ pick rows; the model's output $y$
# meets all of them. The *size* of an array is the root of the mean of its squares, here and in all that follows.

# %% The figure
figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
for x, y, width, text in [(0.02, 0.42, 0.24, "x = √D E[w]\nsize 1"), (0.34, 0.42, 0.24, "x′ = √D E[u]\nsize 1"),
                          (0.02, 0.78, 0.56, "add the places; the rest of the model"), (0.74, 0.78, 0.24, "y\nsize 1"),
                          (0.74, 0.42, 0.24, "z = y Eᵀ: scores\nof V words, size 1"),
                          (0, 0, 1, "E  (V, D), numbers of size 1/√D")]:
    face, colour = (DARK, "white") if width == 1 else ("white", "black")
    axes.add_patch(plt.Rectangle((x, y), width, 0.16, fc=face, ec=DARK, lw=1.5))
    axes.text(x + width / 2, y + 0.08, text, ha="center", va="center", color=colour)
for end, start in [((0.14, 0.77), (0.14, 0.59)), ((0.46, 0.77), (0.46, 0.59)), ((0.73, 0.86), (0.59, 0.86)),
                   ((0.86, 0.59), (0.86, 0.77))]:
    axes.annotate("", end, start, arrowprops=dict(arrowstyle="->", color=DARK, lw=2))
for x, text in (0.14, "1: rows w,\nsource ids"), (0.46, "2: rows u,\ntarget ids"), (0.86, "3: all rows,\nno √D"):
    axes.annotate("", (x, 0.41), (x, 0.17), arrowprops=dict(arrowstyle="->", color=ACCENT, lw=2, ls="--"))
    axes.text(x - 0.015, 0.29, text, ha="right", va="center")
axes.set(xlim=(-0.01, 1.01), ylim=(-0.02, 0.98))
axes.axis("off")
axes.set_title("One matrix, three uses")
show(figure, "08_three_uses", alt="A diagram. Below, the matrix E, V times D with numbers of size one over root D. It "
     "is used three times: source ids w take rows of it, times root D, and target ids u do; these go through the rest "
     "of the model; and all rows of E turn its output y into scores z of all V words, without a factor.")

# %% [markdown]
# ## The equation, and the same in code
#
# Let $w_t$ be the id at place $t$. (In this lesson $w$ stands for words, and not for the weights of attention.) Reading
# takes row $w_t$ of $E$, times $\sqrt{D}$; scoring takes the dot product of the output $y_t$ with every row, as it is:
#
# $$x_{tj} = \sqrt{D} \, E_{w_t j} \qquad\qquad z_{tv} = \sum_j y_{tj} E_{vj}$$
#
# Looking up a row is itself a matrix product, with a vector that is 1 at the id and 0 elsewhere (*one-hot*). That is
# why a table of rows can be learnt like any weight matrix. Nobody computes the product: nearly all of it is times 0.

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
same("this page and the library", read(E, test_read), Embedding(Parameter(E)).forward(test_read)[0])
y = random.normal(size=(*test_read.shape, D))
same("scores: this page and the library", scores_of(E, y), Unembedding(Parameter(E)).forward(y)[0])

# %% [markdown]
# ## Forward
#
# **At the top.** The argument is that of lesson 05. Let the $D$ numbers of $y_t$ have size 1 (layers of this model
# end with a normalisation that sees to it), and let those of $E$ be independent, with mean 0 and variance
# $\sigma^2$. Then a score is a sum of $D$ terms of variance $\sigma^2$, and its variance is $D \sigma^2$. With
# $\sigma = 1$ a typical score is $\sqrt{D}$, which is 22.6 in the paper's base model: a few of 37,000 words, drawn by
# lot, take nearly all the probability. With $\sigma = 1 / \sqrt{D}$ the scores have size 1.
#
# **At the bottom.** To $x_t$ the model adds the vector of the place. It is made of sines and cosines in pairs, and as
# $\sin^2 + \cos^2 = 1$, the mean of its squares is 1/2 whatever the place: its numbers have size $\sqrt{1/2}$. Beside
# that, a row of $E$ as it is would be small, and the factor makes it as large.

# %%
large, size = ModelConfig().d_model, lambda array: math.sqrt((array**2).mean())
E_large, outputs = random.normal(0, 1 / math.sqrt(large), (2000, large)), random.normal(size=(300, large))
measure("size of the scores, numbers of size 1/sqrt(D)", size(outputs @ E_large.T), 0.95, 1.05)
measure("size of the scores, numbers of size 1", size(outputs @ E_large.T * math.sqrt(large)), 21.5, 23.7)
places = sinusoids(0, 50, large)                               # (50, 512)
measure("size of the numbers that tell a place", size(places), 0.7071, 0.7072)
measure("size of the words' without the factor", size(E_large), 0.043, 0.0455)
measure("size of the words' with the factor", size(math.sqrt(large) * E_large), 0.98, 1.02)

# %% [markdown]
# What the layers see is the sum. How alike are two sums, as cosines (dot products of vectors made 1 long)? Here are
# those of twenty words at one place:

# %%
def cosines(a, b):
    """a (n, D), b (m, D) -> (n, m), from -1 to 1"""
    return (a / np.linalg.norm(a, axis=1, keepdims=True)) @ (b / np.linalg.norm(b, axis=1, keepdims=True)).T


for name, factor, lo, hi in ("without", 1, 0.98, 1), ("with", math.sqrt(large), 0.25, 0.45):
    cosine = cosines(*[factor * E_large[:20] + places[10]] * 2)                                # (20, 20)
    measure(f"{name} the factor: cosine of two words at one place", cosine[~np.eye(20, dtype=bool)].mean(), lo, hi)

# %% [markdown]
# Without the factor, a sum tells the place and hardly the word: two words at one place look nearly the same. This
# stands behind the usual explanation of the factor, "the places would drown the words". But it is a picture of the
# *start*. Whether it is the reason why the model learns more slowly is a question for experiment 1.
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
# changes the direction, too.
#
# The first two sums are a *scatter-add*: each place adds its vector to the row of its word. In NumPy the shortest line
# does something else: `dE[ids] += dx` computes `dE[ids] + dx` first, then writes the rows back one after the other, and
# of a word that occurs twice only the last one stays. `np.add.at` adds them all.

# %%
def read_backward(dx, ids, V):
    """dx (B, T, D), ids (B, T) -> dE (V, D)"""
    dE = np.zeros((V, dx.shape[-1]))
    np.add.at(dE, ids, math.sqrt(dx.shape[-1]) * dx * (ids != PAD)[..., None])
    return dE


ids, dx = test_read[:24], random.normal(size=(*test_read[:24].shape, D))
right, lost = read_backward(dx, ids, V), np.zeros((V, D))
lost[ids] += ROOT_D * dx * (ids != PAD)[..., None]
n_words, n_rows = (ids != PAD).sum(), len(np.unique(ids[ids != PAD]))
measure("24 sentences: share of the words whose gradient is lost", 1 - n_rows / n_words, 0.3, 0.7)
measure("error, relative to the length of dE", np.linalg.norm(lost - right) / np.linalg.norm(right), 0.5, 0.9)

# %% [markdown]
# In a sentence without repeated words both lines do the same, so a test on such a sentence finds nothing.
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
# correctness report](../docs/correctness.md), as `embedding-gradient-not-scaled` and `tied-gradient-dropped`.)
#
# The library needs no code for the sum. The layers hold one `Parameter`, and each backward *adds* into its `grad`. Here
# is its whole model, of one layer each, against central differences:

# %%
config = ModelConfig(vocab_size=9, N=1, d_model=6, d_ff=10, h=2, P_drop=0.0)
[report] = [entry for entry in gradcheck(Transformer(config, dtype="float64"), source, target)
            if entry.name == "source_embedding.weight"]
measure("the library's whole model: error of its shared matrix", report.error, 0, 1e-6)

# %% [markdown]
# ## Experiment 1: what is the factor for?
#
# The usual explanation is about the start. But a factor does two things, as in lesson 05. It says how large the words'
# vectors are at the *start*, and how far they move in a *step* of training. Adam, the optimiser of all these runs,
# divides each gradient by its own recent size: whatever multiplies the gradient, the numbers of $E$ move about equally
# far. So $x$ moves $\sqrt{D}$ times as far if it is $\sqrt{D} E$, and the vectors of the places do not move at all.

# %%
for name in "paper", "no factor":
    moved = [size((model.embedding.weight.data - model.before)[PAD + 1:]) for model in models[name]]
    measure(f"{name}: size of what E has moved by", np.mean(moved), 0.042, 0.06)

# %% [markdown]
# To take the two apart, let $E_0$ be $E$ before training, and give each part a factor of its own:
#
# $$x_{tj} = a \, E_{0, w_t j} + b \, (E - E_0)_{w_t j}$$
#
# With $a = b = \sqrt{D}$ this is the paper's, with $a = b = 1$ the model without the factor. *Small start* has
# $a = 1$ and $b = \sqrt{D}$: words drowned at first, and full steps. *Short steps* has $a = \sqrt{D}$ and $b = 1$. The
# scores are $y E^T$ in all four, so nothing changes at the top. (In the code $a$ is `factor`, $b$ `steps`.)
#
# Predict: which of the two costs more?

# %%
try_out("small start", (6.6, 7.4), (3.55, 3.9), factor=1, steps=ROOT_D)
try_out("short steps", (6.6, 7.6), (3.9, 4.35), factor=ROOT_D, steps=1)
measure("small start, less paper: largest of the seeds", (losses["small start"] - losses["paper"]).max(), -0.5, -0.1)
measure("short steps, less paper: smallest of the seeds", (losses["short steps"] - losses["paper"]).min(), 0.05, 0.3)

# %% [markdown]
# In this model the explanation by the start fails its test. A start with drowned words does no harm if the steps are
# full: the model ends *below* the paper's, for each seed. (Why below, we have not tested.) Short steps cost, although
# nothing is drowned.
#
# One layer is not much. Does the same hold in a translator? Small ones were trained on the bundled corpus: two layers
# each in encoder and decoder, $D = 64$, 300 steps, three seeds, all at one schedule of the learning rate (we have not
# looked for the best one of each). A fifth model asks whether it is the proportion that counts: *small positions* has
# no factor, and the vectors of the places divided by $\sqrt{D}$.

# %% The table
rows = {row["variant"]: row for row in recorded("embeddings")["results"]}
final = {variant: row["final_loss"] for variant, row in rows.items()}


def print_table(variants):
    """Means over the seeds: the size of words read, and the validation loss in nats per token; the range of the last"""
    print(f"{'':28}parameters{'size at first':>15}{'at last':>9}{'loss at first':>15}{'at last':>9} (range)")
    for row in map(rows.get, variants):
        last, sizes = row["final_loss"], np.mean([run["input_size"] for run in row["runs"]], axis=0)
        print(f"{row['variant']:28}{row['runs'][0]['parameters']:10,}{sizes[0]:15.2f}{sizes[1]:9.2f}"
              f"{row['first_loss']['mean']:15.2f}{last['mean']:9.2f} ({last['lowest']:.2f} to {last['highest']:.2f})")


print_table(["paper", "no factor", "small start", "short steps", "no factor, small positions"])
paper = final["paper"]
for variant, lo, hi in ("small start", 0.1, 0.5), ("short steps", 0.3, 1):
    measure(f"{variant}: lowest, less the paper's highest", final[variant]["lowest"] - paper["highest"], lo, hi)
both, *alone = (final[name]["mean"] - paper["mean"] for name in ("no factor", "small start", "short steps"))
measure("what both cost together, in nats per token", both, 2.5, 3.7)
measure("    less what each costs alone", both - sum(alone), 1, 2.2)
measure("small positions: less the paper's", final["no factor, small positions"]["mean"] - paper["mean"], -0.1, 0.15)

# %% [markdown]
# Here the start matters, too. At this stage of training the factor is worth three nats per token. A small start costs,
# short steps cost, and the two together cost far more than their sum: either half of the factor brings most of the
# three nats back. The sizes in the table show the difference: from the same start, words with full steps have grown
# until training ends, those with short steps have hardly changed.
#
# And the last row says what the factor is for: with the places made as small as the words, and no factor at all, the
# translator does as well as the paper's. What matters is **the size of the words and of their steps, in proportion to
# the places**. (At 300 steps, that is. We have not tested longer training, here or in experiment 2.)
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
# anew*, at random: still one matrix of the same size, but hardly a word has the same row on both sides.

# %% The table
print_table(["paper", "three matrices", "target rows dealt anew"])
anew, three = final["target rows dealt anew"], final["three matrices"]
measure("three matrices: paper's lowest, less their highest", paper["lowest"] - three["highest"], 0.1, 0.4)
measure("dealt anew: mean, less the paper's", anew["mean"] - paper["mean"], 0.1, 0.4)
measure("    lowest, less the paper's highest", anew["lowest"] - paper["highest"], -0.1, 0.1)

# %% [markdown]
# - **Sharing does not lower the loss here. It costs.** Three matrices end lower for every seed. What the one matrix
#   saves is parameters, and with them memory and work for the optimiser. (This is a small vocabulary early in
#   training, and English and German share few words. Press and Wolf, whom the paper cites, found translation models
#   with shared matrices much smaller and no worse.)
# - **What is shared should be the same word.** With rows dealt anew the mean is worse. The ranges of three seeds nearly
#   touch, so this is weaker than the rest.
#
# ## Experiment 3: what have the rows learnt?
#
# Now the translator that comes with this project (lesson 00; $D = 128$, 1,600 pieces of words). Here are the nearest
# nouns, by cosine, of a few that are one piece. Read them, and find out what they have in common, before you go on:

# %%
translator, lexicon = load_run(ROOT / "data/tiny_model"), read_lexicon()
E_trained = translator.model.source_embedding.weight.data.astype("float64")                    # (1600, 128)
ids_of = {word: translator.tokenizer.encode([word])[0] for word in lexicon.nouns}
nouns = [word for word, ids in ids_of.items() if len(ids) == 1]
noun_vectors = E_trained[[ids_of[word][0] for word in nouns]]                                  # (n, 128)
cosine = cosines(noun_vectors, noun_vectors)
np.fill_diagonal(cosine, -1)                                                                   # no noun is its own
for word in "dog", "goat", "horse", "king", "queen":
    print(f"{word:6}", *(nouns[i] for i in np.argsort(-cosine[nouns.index(word)])[:6]))

# %% [markdown]
# A goat is close to a journey, a duck and a library. In German these are *die Ziege, die Reise, die Ente, die
# Bibliothek*: all feminine. A dog, a basket and a ball are masculine, horse and bread are neuter. **The vectors of
# the English nouns are ordered by German gender**, which English does not have, and which the translator needs in
# order to write *der*, *die* or *das*.
#
# Is it gender, or are feminine nouns more often persons, and masculine ones animals? The lexicon sorts its nouns by
# kind: animals, persons, furniture and so on. As a control, genders are exchanged at random among the nouns of a kind.

# %%
def nearest_agrees(gender):
    """The share of nouns whose nearest noun has the same gender"""
    return (gender[cosine.argmax(axis=1)] == gender).mean()


def exchanged(gender):
    gender = gender.copy()
    for members in lexicon.classes.values():                   # the nouns of a kind
        kind = np.isin(nouns, members)
        gender[kind] = random.permutation(gender[kind])
    return gender


gender = np.array([lexicon.nouns[word].gender for word in nouns])
measure("nearest noun has the same German gender", nearest_agrees(gender), 0.95, 1)
measure("    highest of 100 exchanges", max(nearest_agrees(exchanged(gender)) for _ in range(100)), 0.35, 0.6)
text = words((ROOT / "data/tiny/train.en").read_text(encoding="utf-8").lower())
measure("how often the training text says tea", text.count("tea"), 0, 0)

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
for word in "king", "dog", "limousine", "aunt", "girl", "concert", "tea":
    axes.annotate(word, plane[nouns.index(word)], (6, 4), textcoords="offset points", fontsize=10)
axes.margins(x=0.12)
axes.set(xlabel="first principal direction", ylabel="second principal direction")
axes.set_title("English nouns of the trained translator, by the gender of their German translation")
axes.legend(loc="upper left")
show(figure, "08_nouns", alt="Scatter plot of 112 English nouns in the two directions in which their vectors differ "
     "most. The marker is the gender of the German translation. Three clouds far apart, one for each gender: "
     "aunt and limousine lie in one, king and dog in another, girl and concert in the third. Tea, masculine, lies "
     "alone between the first two.")

# %% [markdown]
# The figure shows the two directions in which the vectors differ most (principal component analysis). They hold a
# small part of the differences, and gender is in both. One noun lies with no cloud: *tea*, *der Tee*, which never
# occurs in the training text. A vector holds what the task needs, and not what a dictionary says. (This is one model,
# and its sentences are generated from a grammar. Other texts we have not tested.)
#
# ## Paper and code
#
# - §3.4: "we share the same weight matrix between the two embedding layers and the pre-softmax linear transformation,
#   similar to" Press and Wolf (2017), *Using the Output Embedding to Improve Language Models*; and "in the embedding
#   layers, we multiply those weights by $\sqrt{d_{model}}$". No reason is given for the factor, and no initial size.
# - The authors' code, Tensor2Tensor, draws $E$ with standard deviation $1 / \sqrt{d_{model}}$ and reads padding as 0.
#   So does this library.
# - *Others differ:* the Annotated Transformer draws $E$ by the rule for any weight matrix (Glorot's, as `Linear` here),
#   and shares none of the three. Here that is `tied="none"` in [config.py](../scratchformer/config.py).
# - In the library: `Embedding` and `Unembedding` in [nn/layers.py](../scratchformer/nn/layers.py); their operations in
#   [nn/ops.py](../scratchformer/nn/ops.py); the sharing in `Transformer` of
#   [nn/transformer.py](../scratchformer/nn/transformer.py); `ParameterStore` in
#   [nn/parameter.py](../scratchformer/nn/parameter.py) holds a shared `Parameter` once, so that Adam moves it once.
#   Tests: [tests/nn/test_model.py](../tests/nn/test_model.py). The recorded runs:
#   [benchmarks/embeddings.py](../benchmarks/embeddings.py).
#
# ## Exercises
#
# `scratchformer learn check 08` looks at your answers and says what is wrong with them.
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
# Here the vector of a place was something that is added, of known size. What it has to say, and how, is the question of
# [lesson 09](09_positions.py). The paper's own words on embeddings are section 3.4 of [its arXiv
# page](https://arxiv.org/abs/1706.03762).
