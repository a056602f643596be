# %% [markdown]
# # 08 · Words become vectors
#
# **One matrix reads words and also scores them. How large should its numbers be?**
#
# *Needs [lesson 01](01_backprop.py) (softmax cross-entropy), [lesson 05](05_scaling.py) (the variance of a dot
# product) and [lesson 06](06_masks.py) (a model that guesses the next word) · you will compute the gradient of a
# matrix that is used three times.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.nn.attention import Mask, ScaledDotProductAttention
from scratchformer.nn.layers import Embedding, Unembedding, sinusoids
from scratchformer.nn.parameter import Parameter
from scratchformer.text.tokenizer import PAD
from scratchformer.training.run import load_run
from support.drawing import Drawing
from support.embedding_factor import NO_FACTOR, PAPER, TiedNextWord, repeated, train
from support.lesson import QUICK, ROOT, measure, recorded, same, show, table
from support.lexicon import noun_vectors, read_lexicon
from support.next_word import NEW, VOCABULARY, mean_loss, shifted
from support.numeric import numeric_gradient

# %% [markdown]
# A word comes to the model as a number, its **id**. The id is only the word's position in a list, so it says nothing
# about the word. That is why each id gets a row of a matrix $E$: a vector of $D$ numbers that the model learns, the
# word's **embedding**. ($D$ is the paper's $d_{model}$.) At the other end of the model a vector has to become a word
# again. The score of a word, its **logit**, is the dot product of the model's output with a vector for that word. The
# paper takes the same matrix $E$ for both ends. This is called **weight tying**.
#
# How large should the numbers of $E$ be before training? PyTorch's `nn.Embedding` takes random numbers with standard
# deviation 1. Let's try that with a small model like that of lesson 06, which reads an English sentence and guesses
# each next word. There are 694 words. A model that knows nothing and says so gives each of them the probability
# 1/694, and its loss is ln 694 = 6.54.

# %% An untrained model whose embeddings have size 1
SEEDS = [0] if QUICK else [0, 1, 2]
D, V = 64, len(VOCABULARY)
ROOT_D = math.sqrt(D)
test_read, test_write = shifted(NEW)                        # (B, T) ids, both


def at_start(**settings):
    """Untrained models. -> loss, probability of the word just read, loss without it"""
    found = []
    for seed in SEEDS:
        logits, _ = TiedNextWord(seed, **settings).forward(test_read)
        found.append([mean_loss(logits, test_write),
                      *repeated(logits, test_read, test_write)])
    return np.mean(found, axis=0)


size_1 = {"size": 1, "factors": NO_FACTOR}              # rows are read as they are
loss, probability, struck = at_start(**size_1)
measure("loss of blind guessing: ln V", math.log(V), 6.54, 6.55)
measure("loss before training, E of size 1", loss, 37, 44)

# %% [markdown]
# The untrained model is far worse than blind guessing, so it must be sure of something wrong. Let's look at its
# likeliest next word for every position of one sentence:

# %% What it bets on
[logits], _ = TiedNextWord(0, **size_1).forward(test_read[:1])          # (T, V)
p = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
rows = [[VOCABULARY[read], VOCABULARY[share.argmax()], f"{share.max():.2f}",
         VOCABULARY[right]]
        for read, right, share in zip(test_read[0], test_write[0], p) if right != PAD]
table(["word just read", "its guess", "probability", "the true next word"], rows)
assert all(row[0] == row[1] for row in rows)

measure("mean probability of the word just read", probability, 0.96, 1)
measure("loss if that word can't be chosen", struck, 23, 28)
own_rows = at_start(own_rows=True, **size_1)
measure("loss if reading has a matrix of its own", own_rows[0], 24, 29)
measure("then: probability of the word just read", own_rows[1], 0, 0.02)

# %% [markdown]
# **The model repeats its input.** A layer of this model adds what it computes to what it reads ([lesson
# 12](12_residual_norm_dropout.py)), so before training its output still resembles the vector of the word just read.
# And no vector fits that better than the same row of $E$. So the model gives the word it has just read a probability
# of 0.987, and that word is almost never the next one.
#
# The last three rows of the table show how much of the loss this explains. If we strike the word just read from the
# list, the loss falls from 40 to 25. If reading gets a random matrix of its own, so that nothing is tied, the
# repetition disappears, and the loss is about the same, 26. But 26 is still four times as much as blind guessing. So
# there is a second fault: with numbers of size 1 *all* scores are too large. ([Lab notes 08, experiment
# 1](lab/08_embeddings.py#experiment-1-a-tied-model-starts-by-repeating-its-input))
#
# ## The picture
#
# Here is a miniature with four words and $D = 4$. Every number of $E$ is 1/2 or −1/2.

# %% Drawing one matrix that is used three times
WORDS = ["the", "dog", "sees", "king"]
HALVES = 0.5 * np.array([[1, 1, 1, -1], [1, -1, 1, 1], [-1, 1, 1, 1], [1, 1, -1, 1]])
READ = [0, 1, 2, 0]                                     # the dog sees the
Y = np.array([1, 1, -1, 1])                            # the output at the last position
DX = np.array([[0.1, 0, 0, 0], [0, 0.2, 0, 0], [0, 0, 0, 0.1], [0.3, 0, -0.1, 0]])
DZ = np.array([0.1, 0.1, 0.1, -0.3])
DE = DZ[:, None] * Y
np.add.at(DE, READ, 2 * DX)


def three_uses(backward):
    """Figures 1 and 2: the same matrix, without and with its gradients."""
    drawing, role = Drawing(780, 300), "gradient" if backward else "plain"
    colour = "gradient" if backward else "soft"

    def arrow(start, end):
        drawing.arrow(*((end, start) if backward else (start, end)), role=colour)

    E = drawing.matrix(390, 179, DE if backward else HALVES, role, 46, 46,
                       above="dE" if backward else "E")
    for t, row in enumerate(READ):
        y = 110 + 46 * t
        drawing.text(14, y, WORDS[row], anchor="start", bold=True)
        numbers = DX[t] if backward else 2 * HALVES[row]
        x = drawing.vector(146, y, numbers, role, 42)
        arrow((E.left[0] - 3, E.cell(0, row).y), (x.right[0] + 3, y))
    drawing.vector(640, 45, Y, "plain", 40,
                   above="y, the output after the second “the”")
    scores = DZ if backward else HALVES @ Y
    z = drawing.matrix(720, 179, scores[:, None], role, 50, 46)
    drawing.line([(640, 66), (640, 248)])
    for word, y in zip(WORDS, range(110, 260, 46)):
        drawing.text(E.right[0] + 10, y, word, anchor="start", bold=True)
        arrow((E.right[0] + 55, y), (z.left[0] - 4, y))
    below = ["each read sends back 2 · dx", "the shares add up",
             "each score sends back dz · y"] if backward else \
        ["read: x = √D · row, √D = 2", "", "score: z = row · y"]
    for x, words in zip((146, 390, 650), below):
        drawing.text(x, 288, words, colour, 14, italic=backward)
    return drawing


show(three_uses(backward=False), "08_three_uses",
     alt="A matrix E with the rows the, dog, sees and king of four numbers, each a "
     "half or minus a half. On the left the sentence the dog sees the is read: each "
     "word gets its row times two, and both times the word the gets the same row. On "
     "the right the output y is multiplied by every row: the scores are 0, 0, 0 and 2.",
     caption="One matrix, used at both ends. Reading takes some rows and doubles them, "
     "and both times “the” is read it gets the same row. Scoring takes all rows as "
     "they are.")

# %% [markdown]
# On the left the model reads *the dog sees the*. Each word gets its row of $E$, times $\sqrt{D} = 2$. (Why there is
# such a factor, we'll ask below.) On the right the model has an output $y$ and scores all words: for *king*, 1 ·
# 0.5 + 1 · 0.5 + (−1) · (−0.5) + 1 · 0.5 = 2, and for each of the others 0. A translator uses $E$ three times: it
# reads the source sentence, it reads the target sentence as far as it is written, and it scores the next word.
#
# ## In general
#
# Let $w_t$ be the id at position $t$. (In this lesson $w$ stands for words and not for the weights of attention.)
# Reading takes row $w_t$ of $E$, times $\sqrt{D}$. Scoring takes the dot product of the output $y_t$ with every row:
#
# $$x_{tj} = \sqrt{D} \, E_{w_t j} \qquad\qquad z_{tv} = \sum_j y_{tj} E_{vj}$$
#
# Looking up a row is itself a matrix product, with a vector that is 1 at the id and 0 elsewhere (a **one-hot**
# vector). That is why a table of rows can be learned like any other weight matrix. Nobody computes the product, since
# nearly all of it is multiplication by 0.
#
# **Your turn.** Open `exercises/08_read_words.py`, turn ids into vectors (padding gets the vector 0), and run
# `scratchformer learn check 08`. Then compare with ours.

# %% Our solution
def read(E, ids):
    """E (V, D), ids (B, T) -> x (B, T, D); padding is no word, and its vector is 0"""
    return math.sqrt(E.shape[1]) * E[ids] * (ids != PAD)[..., None]


def scores_of(E, y):
    """E (V, D), y (B, T, D) -> z (B, T, V)"""
    return y @ E.T


random = np.random.default_rng(8)
E = random.normal(0, 1 / ROOT_D, (V, D))
y = random.normal(size=(*test_read.shape, D))
one_hot = np.eye(V)[test_read] * (test_read != PAD)[..., None]        # (B, T, V)
same("looked up, and one-hot times E", read(E, test_read), ROOT_D * one_hot @ E)
same("reading: this page and the library", read(E, test_read),
     Embedding(Parameter(E)).forward(test_read)[0])
same("scores: this page and the library", scores_of(E, y),
     Unembedding(Parameter(E)).forward(y)[0])

# %% [markdown]
# ## How large?
#
# In this lesson the **size** of an array is its root mean square.
#
# **At the top.** The argument is that of lesson 05. The layers of this model end with a normalisation, so the $D$
# numbers of $y_t$ have size 1. Let those of $E$ be independent, with mean 0 and variance $\sigma^2$. Then a score is
# a sum of $D$ terms of variance $\sigma^2$ each, and its variance is $D \sigma^2$. With $\sigma = 1$ and the paper's
# $D = 512$, a typical score is $\sqrt{512} = 22.6$, and a few of 37,000 words take nearly all the probability. With
# $\sigma = 1 / \sqrt{D}$ the scores have size 1.
#
# **At the bottom.** To $x_t$ the model adds a vector for the position ([lesson 09](09_positions.py)). It is made of
# pairs of a sine and a cosine, and $\sin^2 + \cos^2 = 1$, so the size of its numbers is $\sqrt{1/2} = 0.71$. Next to
# that a row of $E$ is small, and the factor $\sqrt{D}$ makes it about as large.

# %% The sizes, in the paper's base model
large = ModelConfig().d_model                               # 512


def size(array):
    return math.sqrt((array**2).mean())


E_large = random.normal(0, 1 / math.sqrt(large), (2000, large))
outputs, positions = random.normal(size=(300, large)), sinusoids(0, 50, large)
measure("scores, E of size 1", size(outputs @ E_large.T * math.sqrt(large)), 21.5, 23.7)
measure("scores, E of size 1/√D", size(outputs @ E_large.T), 0.95, 1.05)
measure("the positions", size(positions), 0.7071, 0.7072)
measure("the words, without the factor", size(E_large), 0.043, 0.0455)
measure("the words, with the factor", size(math.sqrt(large) * E_large), 0.98, 1.02)

# %% [markdown]
# ## Backward
#
# Suppose training sends back the gradients in figure 2: a vector $dx$ for each position that was read, and one number
# $dz$ for each score. (With softmax, $dz$ is the probability − the target. The scores 0, 0, 0 and 2 give about 0.1,
# 0.1, 0.1 and 0.7, and the right word is *king*.) What is the gradient of the row of *the*? And *king* was never
# read. Does its row get a gradient?
#
# <details><summary>Make a guess, then unfold: figure 2, the same matrix with its gradients</summary>

# %% Drawing the way back
show(three_uses(backward=True), "08_three_uses_backward",
     alt="The same drawing with gradients. The word the receives 2 times (0.1, 0, 0, "
     "0), from its first position, 2 times (0.3, 0, minus 0.1, 0) from its second, and "
     "0.1 times y from its score, together (0.9, 0.1, minus 0.3, 0.1). King receives "
     "minus 0.3 times y from its score.",
     caption="The same matrix, backward. Every use of a row sends a gradient back to "
     "it, and the gradients add up.")

# %% [markdown]
# *the* was used three times, and its row collects three shares: 2 · (0.1, 0, 0, 0) from the first position, 2 · (0.3,
# 0, −0.1, 0) from the second, and 0.1 · $y$ from its score. Together that is (0.9, 0.1, −0.3, 0.1). *king* was not
# read, but it was scored, so its row gets −0.3 · $y$. Training steps against the gradient, so the row of *king* moves
# towards $y$.
#
# </details>
#
# **The general rule.** Follow one number $E_{vj}$ to the loss, through each of its uses in a translator:
#
# - **Read in the source.** At each position $t$ with $w_t = v$ there is $x_{tj} = \sqrt{D} E_{vj}$. If $E_{vj}$ grows
#   a little, *all* these $x_{tj}$ grow by $\sqrt{D}$ times as much, so their gradients add up, times $\sqrt{D}$.
# - **Read in the target.** The same, with the ids $u_t$ of the target and the gradient $dx'_{tj}$ of its vectors.
# - **Scored.** $E_{vj}$ is multiplied by $y_{tj}$ in the score $z_{tv}$ at every position, whatever word is read
#   there.
#
# $$dE_{vj} = \sqrt{D} \sum_{t: w_t = v} dx_{tj} + \sqrt{D} \sum_{t: u_t = v} dx'_{tj} + \sum_t dz_{tv} y_{tj}$$
#
# The ids get no gradient, since there is no word between word 17 and word 18. Padding was read as 0, so nothing goes
# back to its row from there. And note where the factor stands: before two of three terms. In a matrix that is only
# read, forgetting the factor would change the length of the gradient and nothing else. Here it also changes the
# *direction*.
#
# The first two sums are a **scatter-add**: each position adds its vector to the row of its word. In NumPy the obvious
# line is wrong. `dE[ids] += dx` computes `dE[ids] + dx` first and then writes the rows back one after the other, so
# of a word that occurs twice only the last position counts. `np.add.at` adds them all. (In a sentence without
# repeated words both lines agree, so a test on such a sentence finds nothing.)
#
# **Your turn.** Open `exercises/08_embedding_backward.py` for reading alone, then `exercises/08_tied_gradient.py` for
# all three uses, and run `scratchformer learn check 08`. Our solution:

# %% Our solution
def read_backward(dx, ids, V):
    """dx (B, T, D), ids (B, T) -> dE (V, D)"""
    dE = np.zeros((V, dx.shape[-1]))
    real = (ids != PAD)[..., None]
    np.add.at(dE, ids, math.sqrt(dx.shape[-1]) * dx * real)
    return dE


attention = ScaledDotProductAttention()


def translate(E, source, target):
    """A small translator without any parameter but E (V, D): the target's vectors ask
    the source's, the answer is added to them, and the sum y is scored.
    source (B, S), target (B, T) -> scores (B, T, V), what backward needs"""
    x, x_target = (read(E, ids)[:, :, None] for ids in (source, target))  # (B, ., 1, D)
    answer, cache = attention.forward(
        x_target, x, x, Mask((source != PAD).sum(axis=1)))
    y = (x_target + answer)[:, :, 0]                                       # (B, T, D)
    return scores_of(E, y), (cache, y)


def three_shares(dz, E, source, target, cache):
    """dz (B, T, V) -> the three shares of dE, each (V, D)"""
    cache, y = cache
    dy = dz @ E                                                            # (B, T, D)
    dq, dk, dv = (a[:, :, 0] for a in attention.backward(dy[:, :, None], cache))
    return {"read in the source": read_backward(dk + dv, source, len(E)),
            "read in the target": read_backward(dy + dq, target, len(E)),
            "scored": np.einsum("btv,btd->vd", dz, y)}


small_E = random.normal(0, 6**-0.5, (9, 6))                               # V = 9, D = 6
source = np.array([[3, 4, 3, 5], [6, 3, PAD, PAD]])
target = np.array([[2, 7, 3], [2, 7, 7]])
scores, cache = translate(small_E, source, target)
upstream = random.normal(size=scores.shape)                                # (2, 3, 9)
shares = three_shares(upstream, small_E, source, target, cache)
numeric = numeric_gradient(
    lambda E: (translate(E, source, target)[0] * upstream).sum(), small_E)


def error(dE):
    return np.abs(dE - numeric).max() / np.abs(numeric).max()


measure("all three shares: relative error", error(sum(shares.values())), 0, 1e-8)
for name in shares:
    others = sum(shares[other] for other in shares if other != name)
    measure(f"without the share “{name}”", error(others), 0.1, 1.5)
both = shares["read in the source"] + shares["read in the target"]
measure("√D forgotten in backward", error(shares["scored"] + both / 6**0.5), 0.1, 1.5)

# %% [markdown]
# The check passes, and it notices every share that is missing. Such mistakes have been published: one NumPy
# implementation forgets the factor on the way back, another one drops the share of the scores. (Both are in [the
# correctness report](../docs/correctness.md), as `embedding-gradient-not-scaled` and `tied-gradient-dropped`.)
#
# ## Does it matter?
#
# The paper gives no reason for the factor $\sqrt{D}$. The usual explanation is about the start: without the factor
# the positions would drown the words. But we have now met three effects of it:
#
# 1. **The start.** The words' vectors are $\sqrt{D}$ times as large before training.
# 2. **The steps.** Adam, the optimizer of these runs, moves every number of $E$ by about the same amount in a step,
#    whatever the gradient's length is. So $x = \sqrt{D} E$ moves $\sqrt{D}$ times as far.
# 3. **The gradient.** In $dE$ the shares of reading count $\sqrt{D}$ times as much against the share of scoring.
#
# Each can be switched off alone. With $E_0$ for $E$ before training, let the model read $x_t = a \, E_{0, w_t} + b \,
# (E - E_0)_{w_t}$, with $a$ for the start and $b$ for the steps, and let backward multiply the shares of reading by
# $c$. The paper has $a = b = c = \sqrt{D}$. Set one of them to 1 at a time.
#
# We do this in two models: the next-word model of this page ($D = 64$, 100 steps) and a small translator of two
# layers ($D = 64$, 300 steps, recorded), three seeds each. Which of the three will cost most if it is switched off?
#
# <details><summary>Make a guess, then unfold: the losses on new sentences</summary>

# %% Training the next-word model
SETTINGS = {"all three (the paper)": PAPER,
            "without the start": PAPER._replace(start=1),
            "without the steps": PAPER._replace(steps=1),
            "without the gradient": PAPER._replace(gradient=1),
            "none of them": NO_FACTOR}


def loss_after_training(seed, factors):
    model = TiedNextWord(seed, factors)
    train(model, seed)
    return mean_loss(model.forward(test_read)[0], test_write)


losses = {name: np.array([loss_after_training(seed, factors) for seed in SEEDS])
          for name, factors in SETTINGS.items()}

# %% The translator's losses, and the figure
results = recorded("embeddings")["results"]
final = {row["variant"]: np.array([run["final_loss"] for run in row["runs"]])
         for row in results}
of_translator = [final[variant] for variant in
                 ("paper", "small start", "short steps", "small gradient", "no factor")]
figure, panels = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
for axes, title, found in ((panels[0], "next word", list(losses.values())),
                           (panels[1], "translator", of_translator)):
    axes.axvline(found[0].mean(), color="#888888", lw=0.8)
    for row, values in enumerate(found):
        colour = ACCENT if row in (0, 4) else DARK
        axes.plot(values, [-row] * len(values), "o", color=colour, ms=7, alpha=0.8)
    axes.set(title=title, xlabel="loss on new sentences, nats")
panels[0].set_yticks(range(0, -5, -1), list(losses))
show(figure, "08_three_effects",
     alt="Two dot plots, three runs a row. Translator: about 1.2 with all three "
     "effects, 1.8 without the start, 2.1 without the steps, 1.6 without the gradient, "
     "4.2 with none. Next word: about 4.0 with all three, 3.7 without the start, 4.1 "
     "without the steps or the gradient, 4.2 with none.",
     caption="The factor's three effects, switched off one at a time, three runs each; "
     "the line is the mean with all three. The translator needs each of them. The "
     "next-word model does better without the large start.")
table(["mean loss", "next word", "translator"],
      [[name, f"{ours.mean():.2f}", f"{theirs.mean():.2f}"]
       for (name, ours), theirs in zip(losses.items(), of_translator)])

# %% [markdown]
# In the translator each effect is worth something. The loss ends 0.61 higher without the start, 0.85 higher without
# the steps and 0.34 higher without the gradient. Without all three it ends 3.0 higher, which is more than the three
# together (1.8). So one effect can partly stand in for another.
#
# The next-word model agrees about steps and gradient, though it gains less by them. But for the start it says the
# opposite: it ends 0.24 *lower* if the words start small. Part of the reason is the story from the beginning of this
# page. With a large start the model begins by repeating its input, and it has to unlearn that. If reading starts with
# random rows of its own, just as large, nothing is repeated, and about half of the difference disappears (over six
# runs).
#
# </details>
#
# So the start, which the usual explanation is about, is only one of three effects. And the best size isn't a fixed
# number: if we use no factor at all, but divide the *position vectors* by $\sqrt{D}$, the translator ends at 1.21, as
# low as the paper's (1.23). That suggests that what counts is the size of the words, and of their steps, in
# proportion to the positions. (All combinations, seeds and controls: [lab notes 08, experiments
# 2](lab/08_embeddings.py#experiment-2-three-effects-and-all-their-combinations) and
# [3](lab/08_embeddings.py#experiment-3-the-same-in-a-translator). These are short trainings with one learning rate
# for all. We haven't tested longer ones.)
#
# ## What have the rows learned?
#
# Now the translator that comes with this project ([lesson 00](00_whole_game.py); $D = 128$, 1,600 pieces of words).
# For five English nouns, here are the nearest nouns, by the cosine of their rows. What do those in one line have in
# common?

# %% The nearest nouns
translator, lexicon = load_run(ROOT / "data/tiny_model"), read_lexicon()
nouns, vectors = noun_vectors(translator)                               # (n, D)
directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
cosines = directions @ directions.T
np.fill_diagonal(cosines, -1)                                           # not itself
table(["noun", "its nearest nouns"],
      [[word, ", ".join(nouns[i] for i in np.argsort(-cosines[nouns.index(word)])[:6])]
       for word in ("dog", "goat", "horse", "king", "queen")])

# %% [markdown]
# <details><summary>Make a guess, then unfold: what they have in common</summary>
#
# A goat is close to a journey, a duck and a library. In German these are *die Ziege, die Reise, die Ente, die
# Bibliothek*, all feminine. The neighbours of *dog* are masculine in German, those of *horse* are neuter. **The
# vectors of the English nouns are ordered by German gender.** English nouns have no gender, but the translator has to
# know it in order to write *der*, *die* or *das*.

# %% The figure
gender = np.array([lexicon.nouns[word].gender for word in nouns])
agree = (gender[cosines.argmax(axis=1)] == gender).mean()
measure("nearest noun has the same German gender", agree, 0.95, 1)
centred = vectors - vectors.mean(axis=0)
_, spread, axes_of_spread = np.linalg.svd(centred, full_matrices=False)
plane = centred @ axes_of_spread[:2].T                                  # (n, 2)
plane *= np.sign(plane[nouns.index("horse")])           # the sign means nothing
figure, axes = plt.subplots(figsize=(8, 5.2), layout="constrained")
for which, name, marker, colour in [("m", "der (masculine)", "s", DARK),
                                    ("f", "die (feminine)", "o", ACCENT),
                                    ("n", "das (neuter)", "^", LIGHT)]:
    axes.scatter(*plane[gender == which].T, marker=marker, color=colour,
                 edgecolors="black", lw=0.5, s=45, label=name)
for word in "king", "dog", "limousine", "aunt", "girl", "concert", "tea":
    axes.annotate(word, plane[nouns.index(word)], (6, 4), textcoords="offset points")
axes.margins(x=0.12)
axes.set(xlabel="first principal direction", ylabel="second principal direction")
axes.legend(loc="upper left")
show(figure, "08_nouns",
     alt="Scatter plot of 112 English nouns in the two directions in which their "
     "vectors differ most. The marker is the gender of the German translation. Three "
     "clouds far apart, one for each gender: aunt and limousine lie in one, king and "
     "dog in another, girl and concert in the third. Tea, masculine, lies alone "
     "between the first two.",
     caption="English nouns in the trained translator, by the gender of their German "
     "translation: three clouds, one for each gender.")

# %% [markdown]
# One noun lies with no cloud: *tea*, *der Tee*. It never occurs in the training text. A row holds what the task
# needed, and not what a dictionary says. (Is it gender, or are feminine nouns more often persons and masculine ones
# animals? A control rules that out: [lab notes 08, experiment
# 5](lab/08_embeddings.py#experiment-5-is-it-really-the-gender). This is one model, and its sentences come from a
# small grammar. We have not tested other texts.)
#
# </details>
#
# ## Paper and code
#
# - §3.4: "we share the same weight matrix between the two embedding layers and the pre-softmax linear transformation,
#   similar to" Press and Wolf (2017), *Using the Output Embedding to Improve Language Models*; and "in the embedding
#   layers, we multiply those weights by $\sqrt{d_{model}}$". The paper gives no initial size. The authors' code,
#   Tensor2Tensor, starts with standard deviation $1 / \sqrt{d_{model}}$ and reads padding as 0. So does this library.
# - Sharing saves parameters: 63 million in the base model instead of 101 million. In our small runs it doesn't lower
#   the loss ([lab notes 08, experiment 4](lab/08_embeddings.py#experiment-4-one-matrix-or-three)).
# - *Others differ:* the Annotated Transformer shares none of the three matrices and starts them by Glorot's rule.
#   Here that is `tied="none"` in [config.py](../scratchformer/config.py).
# - In the library: `Embedding` and `Unembedding` in [nn/layers.py](../scratchformer/nn/layers.py). They hold one
#   `Parameter`, and each backward *adds* into its gradient, so the sum of the three shares needs no code of its own.
#
# ## What to remember
#
# A word is a row of a matrix, and the model learns the row. The same matrix reads words and scores them, so its
# gradient is a sum over all uses, with the factor $\sqrt{D}$ before the shares of reading. Start it with standard
# deviation $1 / \sqrt{D}$: then the scores have size 1, and with the factor the words are about as large as the
# positions.
#
# **Exercises** `08_read_words` · `08_embedding_backward` · `08_tied_gradient` · `08_lost_repeats` (write the test
# that tells right backwards of a lookup from wrong ones) · a puzzle: word 500 of the vocabulary does not occur in a
# batch. Does its row get a gradient?
#
# <details><summary>Answer</summary>
#
# With one matrix, yes. Its score is in the sum of every softmax, so $dz$ is its probability, and a step moves its row
# away from the outputs. With a matrix that is only read, no.
#
# </details>
#
# **Next:** [09 · Where am I? Sinusoidal positions](09_positions.py) The vector of a position was something we added,
# of known size. What does it say?
