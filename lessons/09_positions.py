# %% [markdown]
# # 09 · Where am I?
#
# *About 40 minutes. You need: [lesson 04](04_soft_lookup.py) (queries, keys, values), [lesson 06](06_masks.py)
# (padding, the causal mask), [lesson 07](07_many_heads.py) (attention as a layer) and [lesson 08](08_embeddings.py)
# (words as scaled rows). You will have: the sinusoids of the paper and why they have this form, learned positions with
# their backward pass, and measurements of which property of the sinusoids does what.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.nn.attention import CrossAttention, Mask
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Embedding, LearnedPositions, Linear, PositionalEncoding
from scratchformer.nn.layers import sinusoids as library_sinusoids
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Layer, ParameterStore
from scratchformer.study.exercises.numeric import numeric_gradient
from scratchformer.study.figures import ACCENT, COLOUR_MAP, DARK
from scratchformer.study.lesson import QUICK, ROOT, measure, same, show
from scratchformer.study.positions import shift_matrix as library_shift_matrix
from scratchformer.text.tokenizer import PAD
from scratchformer.training.run import load_run

# %% [markdown]
# ## Question
#
# **Attention compares vectors, and a vector of lesson 08 says which word it is, not where it stands. How can the place
# be told in a vector, so that "three words to the left" is easy to compute?**
#
# The answer in one sentence: add to each word a fixed vector of sines and cosines of its position, at many speeds; a
# step of $k$ words then turns each pair of numbers by a fixed angle, wherever it starts.
#
# First see what happens without. Telegrams of six words hold a noun, a verb, a noun, and fillers around them: `today
# dog bites man here often`. The verb is asked who did it, which is the noun to its left. The model is one attention:
# words become vectors, each of which asks all (`queries`), and a linear map makes scores of words from what comes
# back. The place for positions is there, and stands empty at first.

# %%
class Table(Layer):
    """Adds a given vector to each position: x (B, T, D) -> x + table[:T]"""

    def __init__(self, table):
        self.table = table                                     # (positions, D), not trained

    def forward(self, x, first=0, rng=None):
        return x + self.table[:x.shape[1]], None

    def backward(self, dy, cache):
        return dy


class Reader(Layer):
    """ids (B, T) -> at each place the scores of each word, (B, T, V). One attention with one head, nothing else."""

    def __init__(self, positions, V, seed, words_ask=True, causal=False, D=32):
        random = np.random.default_rng(seed)
        self.embedding = Embedding(Embedding.new_weight(V, D, random, "float64"))
        self.positions, self.words_ask, self.mask = positions, words_ask, Mask(causal=causal)
        self.attention, self.output = CrossAttention(D, 1, random, "float64"), Linear(D, V, random, "float64")
        self.store = ParameterStore(self.parameters())

    def forward(self, ids, rng=None):
        words, word_cache = self.embedding.forward(ids)        # (B, T, D)
        x, x_cache = self.positions.forward(words)             # keys and values are made of x
        queries, query_cache = self.positions.forward(words * self.words_ask)
        y, y_cache = self.attention.forward(queries, x, self.mask)
        scores, cache = self.output.forward(y)
        return scores, (word_cache, x_cache, query_cache, y_cache, cache)

    def backward(self, dscores, caches):
        word_cache, x_cache, query_cache, y_cache, cache = caches
        dqueries, dx = self.attention.backward(self.output.backward(dscores, cache), y_cache)
        dwords = self.positions.backward(dx, x_cache)
        dwords += self.positions.backward(dqueries, query_cache) * self.words_ask
        self.embedding.backward(dwords, word_cache)


def train(model, batch, steps, watch=None):
    """batch: () -> ids (B, T), targets (B, T); a target of PAD (0) is not asked for. watch() after every 10 steps"""
    optimizer = Adam(model)
    for step in range(1, steps + 1):
        ids, targets = batch()
        scores, cache = model.forward(ids)
        _, n_asked, dscores = cross_entropy(scores, targets)
        model.zero_grad()
        model.backward(dscores / n_asked, cache)
        optimizer.step(0.01)
        if watch and step % 10 == 0:
            watch(step)


# %% [markdown]
# Every test telegram comes twice: as it is, and with its two nouns exchanged. Training and test have no pair of nouns
# in common. Three runs, which differ in their random start, their pairs and their telegrams.

# %% The telegrams
NOUNS, VERBS = "dog man cat bird wolf goat horse child king thief".split(), "bites sees hears helps calls finds".split()
WORDS = ["<pad>", *NOUNS, *VERBS, "today", "often", "here", "once"]
N_NOUNS, FIRST_FILLER, LENGTH = len(NOUNS), 1 + len(NOUNS) + len(VERBS), 6
SEEDS = [0] if QUICK else [0, 1, 2]


def telegrams(pairs, random, n):
    """-> ids (n, 6); what is asked: PAD everywhere but at the verb, where it is the noun before (n, 6)"""
    ids, rows = random.integers(FIRST_FILLER, len(WORDS), (n, LENGTH)), np.arange(n)
    verb, pair = random.integers(1, LENGTH - 1, n), pairs[random.integers(0, len(pairs), n)]
    ids[rows, verb - 1], ids[rows, verb + 1] = pair.T
    ids[rows, verb] = random.integers(1 + N_NOUNS, FIRST_FILLER, n)
    targets = np.full_like(ids, PAD)
    targets[rows, verb] = pair[:, 0]
    return ids, targets


def exchanged(ids):
    """The two nouns of each telegram change places."""
    other = ids.copy()
    for row in other:
        first, second = np.flatnonzero(row <= N_NOUNS)
        row[[first, second]] = row[[second, first]]
    return other


# %%
def who_did_it(positions, seed, steps, causal=False):
    """-> share of right answers; largest difference between the scores for a telegram and for its twin"""
    random = np.random.default_rng(100 + seed)
    pairs = random.permutation([(a, b) for a in range(1, N_NOUNS + 1) for b in range(1, a)])         # (45, 2)
    train_pairs, test_pairs = np.concatenate([pairs[10:], pairs[10:, ::-1]]), pairs[:10]
    model = Reader(positions, len(WORDS), seed, causal=causal)
    train(model, lambda: telegrams(train_pairs, random, 32), steps)
    ids, targets = telegrams(test_pairs, random, 200)
    asked = targets != PAD                                     # (200, 6): True at the verb
    twins = exchanged(ids)
    scores, twin_scores = (model.forward(read)[0][asked] for read in (ids, twins))                   # (200, V)
    twin_answers = twins[:, :-1][asked[:, 1:]]                 # the noun to the left of the verb
    right = np.concatenate([scores.argmax(axis=1) == targets[asked], twin_scores.argmax(axis=1) == twin_answers])
    return right.mean(), np.abs(scores - twin_scores).max()


for steps in 0, 100:
    results = [who_did_it(Table(np.zeros((LENGTH, 32))), seed, steps) for seed in SEEDS]
    right, difference = np.array(results).max(axis=0)
    measure(f"no positions, {steps} steps: right, best run", right, 0, 0.5)
    measure("    largest difference between a telegram and its twin", difference, 0, 1e-12)

# %% [markdown]
# `dog bites man` and `man bites dog` give the verb the same scores, up to the order in which numbers are added,
# whether the model is trained or not. So whatever it answers, of each pair of twins it has at most one right: **no
# training can lift it above one half.** The reason is in lesson 04's formula: $y_t = \sum_s w_{ts} v_s$ is a sum over
# the words, each weight depends on query and key alone, and a sum does not know the order of its terms.
#
# ## The idea in one picture
#
# Give each position a vector of its own, and add it to the word's. What should it be? A single number, the position
# itself, will not do: a score is then a linear function of the key's number, and a linear function is largest at one
# end of the sentence, never in its middle. (Experiment 2 tries it.) A clock is better. Its hand points somewhere for
# every position, it never runs out, and some time later it is turned by the same angle *from wherever it was*. A fast
# hand tells neighbours apart but comes round soon; a slow one does not come round, but hardly moves. So take many.

# %% The figure
figure = plt.figure(figsize=(9, 4.6), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1, 1.5])
for row, (panel, i) in enumerate(zip(left.subplots(3, 1), (0, 4, 8))):
    speed = 10000 ** (-2 * i / 32)
    angles = speed * np.arange(7)
    panel.add_patch(plt.Circle((0, 0), 1, fill=False, color="0.7"))
    panel.plot(np.cos(angles), np.sin(angles), "o", color=DARK, ms=5)
    for pos, mark in (2, "-"), (5, "--"):
        panel.plot([0, np.cos(speed * pos)], [0, np.sin(speed * pos)], mark, color=ACCENT, lw=2)
        panel.text(1.28 * np.cos(speed * pos), 1.28 * np.sin(speed * pos), str(pos) if i < 8 else "", ha="center",
                   va="center")
    panel.set(aspect="equal", xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), xticks=[], yticks=[])
    panel.set_title(f"pair {i}: {speed:.2g} rad per word", fontsize=10)
left.suptitle("positions 0 to 6; hands at 2 and 5", fontsize=10)
table, panel = library_sinusoids(0, 60, 32), right.subplots()
image = panel.imshow(table.T, COLOUR_MAP, aspect="auto", vmin=-1, vmax=1)
panel.set(xlabel="position", ylabel="component (even: sine, odd: cosine)", title="PE for d_model = 32")
panel.set_yticks(range(0, 32, 4))
right.colorbar(image, ax=panel, label="value")
show(figure, "09_clocks", alt="Left: three dials with the positions 0 to 6 as points on a circle, and hands at "
     "positions 2 and 5. Pair 0 turns by 1 radian per word, pair 4 by 0.1, pair 8 by 0.01, so that its points nearly "
     "coincide. From 2 to 5 each hand turns by 3 times its speed. Right: the table of 60 positions and 32 components. "
     "The first components change at every position, those from 24 on hardly change at all.")

# %% [markdown]
# Each pair of components is one clock; its two numbers are the coordinates of the tip of its hand. The picture ends
# here: on a real dial the slow hand counts the rounds of the fast one. These speeds are not multiples of each other.
#
# ## The equation, and the same in code
#
# §3.5 of the paper, with $pos$ for the position, counted from 0, and $i$ for the pair:
#
# $$PE(pos, 2i) = \sin\left(\frac{pos}{10000^{2i/d_{model}}}\right) \qquad
# PE(pos, 2i+1) = \cos\left(\frac{pos}{10000^{2i/d_{model}}}\right)$$
#
# Write $\omega_i = 10000^{-2i/d_{model}}$ ("omega", the speed of pair $i$ in radians per word). Then pair $i$ is
# $(\sin \omega_i pos, \cos \omega_i pos)$. It has come round after $2\pi/\omega_i$ positions, its wavelength.

# %%
def speeds(d_model):
    """omega (d_model / 2,), in radians per word"""
    return 10000.0 ** (-2 * np.arange(d_model // 2) / d_model)


def waves(pos, omega):
    """pos (T,), omega (D / 2,) -> (T, D): sine and cosine of each pair side by side"""
    angle = pos[:, None] * omega                               # (T, D / 2)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(len(pos), -1)


same("PE: this page and the library", waves(np.arange(7, 60), speeds(512)), library_sinusoids(7, 53, 512), 1e-9)
shortest, longest = 2 * np.pi / speeds(512)[[0, -1]]
measure("shortest wavelength, positions", shortest, 6.283, 6.284)
measure("longest wavelength over 2 pi, d_model = 512", longest / (2 * np.pi), 9646, 9648)

# %% [markdown]
# The paper says that the wavelengths run from $2\pi$ to $10000 \cdot 2\pi$. The last pair has $2i = d_{model} - 2$, so
# the upper end is not quite reached.
#
# ## Forward
#
# **A shift is a rotation.** Let $a = \omega_i pos$ and $b = \omega_i k$. The addition theorems say
#
# $$\sin(a + b) = \cos b \sin a + \sin b \cos a \qquad \cos(a + b) = -\sin b \sin a + \cos b \cos a$$
#
# On the right stand the two numbers of the pair at $pos$, each times a factor made of $b$, and $b$ does not contain
# $pos$. As a matrix, pair by pair:
#
# $$PE(pos + k) = M_k \, PE(pos), \qquad M_k \text{ has the blocks }
# \begin{pmatrix} \cos \omega_i k & \sin \omega_i k \\ -\sin \omega_i k & \cos \omega_i k \end{pmatrix}$$

# %%
def shift_matrix(k, d_model):
    """M (D, D) with PE(pos + k) = M PE(pos) for every pos"""
    M = np.zeros((d_model, d_model))
    for i, omega in enumerate(speeds(d_model)):
        c, s = math.cos(omega * k), math.sin(omega * k)
        M[2 * i:2 * i + 2, 2 * i:2 * i + 2] = [[c, s], [-s, c]]
    return M


PE = library_sinusoids(0, 1000, 512)                           # (T, D), a row for each position
same("M_3 PE(pos) and PE(pos + 3), 997 positions", PE[:-3] @ shift_matrix(3, 512).T, PE[3:], 1e-10)
same("M_3: this page and the library", shift_matrix(3, 512), library_shift_matrix(3, 512))

# %% [markdown]
# **The dot product depends on the distance only.** For one pair, $\sin a \sin(a+b) + \cos a \cos(a+b) = \cos b$, by
# the addition theorem for $\cos((a+b) - a)$. Summed over all pairs:
#
# $$PE(pos) \cdot PE(pos + k) = \sum_{i=0}^{d_{model}/2 - 1} \cos(\omega_i k)$$
#
# At $k = 0$ every term is 1, so all vectors have the same squared length $d_{model}/2$. As $\cos(-b) = \cos b$, the
# dot product alone does **not** tell left from right.

# %%
products = PE[:200] @ PE[:200].T                               # (200, 200)
for k, expected in (0, 256), (1, 249), (10, 174), (50, 131), (100, 112):
    along = np.diagonal(products, offset=k)
    measure(f"offset {k:3}: dot product", along.mean(), expected - 0.5, expected + 0.5)
    measure("    largest difference between positions", along.max() - along.min(), 0, 1e-9)
far = np.cos(np.arange(1, 5001)[:, None] * speeds(512)).sum(axis=1)                                  # (5000,)
measure("of 5,000 offsets, the one with the largest dot product", far.argmax() + 1, 1, 1)
measure("the same with one pair only, omega = 1, up to 50", np.cos(np.arange(1, 51)).argmax() + 1, 44, 44)

# %% The figure
figure, (panel, curve) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
image = panel.imshow(products[:100, :100], COLOUR_MAP, vmin=100, vmax=256)
panel.set(title="PE(pos) · PE(pos'), d_model = 512", xlabel="pos'", ylabel="pos")
figure.colorbar(image, ax=panel, label="dot product")
offsets = np.arange(-60, 61)
curve.plot(offsets, np.cos(offsets[:, None] * speeds(512)).sum(axis=1), color=DARK)
curve.plot(offsets, 256 * np.cos(offsets), ":", color=ACCENT, lw=1)
curve.text(60, 285, "all 256 pairs (solid)", color=DARK, ha="right")
curve.text(60, -315, "256 times the first pair alone (dotted)", color=ACCENT, ha="right")
curve.set(ylim=(-340, 340), title="One row of it", xlabel="offset k, words", ylabel="dot product")
show(figure, "09_toeplitz", alt="Left: the dot products of 100 by 100 positions, each diagonal of one colour, "
     "brightest on the main diagonal with 256, and falling to 112 in the corners. Right: the dot product against the "
     "offset, a symmetric peak of 256 at 0 that falls to about 125 at 60 words; the first pair alone swings between "
     "-256 and 256 and is back at nearly full height every 44 words.")

# %% [markdown]
# No position as far as 5,000 words away looks nearer than the neighbour. With one pair, position 44 would look nearer
# than position 1, since 44 is close to 7 rounds.
#
# **So attention can look $k$ words to the left.** What enters it is $x_t = e_t + PE(t)$, a word $e_t$ plus a place.
# The score of query $t$ and key $s$ is a product $x_t^T W x_s$, where $W$ is made of $W_Q$ and $W_K$, and it falls
# into four parts:
#
# $$x_t^T W x_s = e_t^T W e_s + e_t^T W \, PE(s) + PE(t)^T W e_s + PE(t)^T W \, PE(s)$$
#
# Word with word, word with place, place with word, place with place. For the last, choose $W = \beta M_k$, with a
# number $\beta$ ("beta") for its strength. As $PE(t)^T M_k$ is $(M_{-k} PE(t))^T$ and that is $PE(t - k)^T$, the score
# is $\beta \, PE(t-k) \cdot PE(s)$: largest at $s = t - k$, for every $t$, and left is not right. Place alone, 200
# positions:

# %%
def weight_on_target(beta, k=3, d_model=512):
    """Mean weight that query t gives to position t - k, over all t for which there is one."""
    scores = beta * PE[:200] @ shift_matrix(k, d_model) @ PE[:200].T / math.sqrt(d_model)            # (200, 200)
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.diagonal(e / e.sum(axis=1, keepdims=True), offset=-k).mean()


for beta, lo, hi in (1, 0.19, 0.22), (5, 0.6, 0.72), (20, 0.98, 1):
    measure(f"beta = {beta:2}: weight on the word 3 to the left", weight_on_target(beta), lo, hi)
measure("neighbour's score behind the target's, beta = 1", (256 - far[0]) / math.sqrt(512), 0.28, 0.33)

# %% [markdown]
# The place exists in *one* matrix for all positions. But it must be a strong one. Neighbours are so alike that at
# $\beta = 1$ their scores differ by 0.3, and the target gets a fifth of the weight.
#
# ## Backward
#
# Here the library's layer is $y = x + PE$, one vector for each place, the same in all $B$ sentences of a batch. Take
# one number $x_{btj}$: sentence $b$, place $t$, component $j$. It reaches the loss through $y_{btj}$ and through
# nothing else, with derivative 1. So $dx_{btj} = dy_{btj}$: the gradient passes unchanged to the embedding, and $PE$
# is a constant, so there is nothing to learn.
#
# If the table is *learned*, $y_{btj} = x_{btj} + P_{t+f, j}$, where the first word of the input stands at position
# $f$ (`first`), there is a second question. One number $P_{pj}$ reaches the loss by $B$ ways: through $y_{btj}$ with
# $t = p - f$, in every sentence, each with derivative 1. The chain rule adds them up; rows at which no word stands
# have no way at all.
#
# $$dx_{btj} = dy_{btj} \qquad dP_{pj} = \sum_b dy_{b, p-f, j}$$
#
# (In training the library also sets some numbers of the sum $y$ to zero and scales the rest, called dropout. It
# stands *after* the addition, so both gradients begin with that factor.)

# %%
def learned_positions_backward(dy, first, max_positions):
    """dy (B, T, D) -> dx (B, T, D), dP (max_positions, D)"""
    dP = np.zeros((max_positions, dy.shape[2]))
    dP[first:first + dy.shape[1]] = dy.sum(axis=0)
    return dy, dP


# %% [markdown]
# ## Check
#
# Central differences (`numeric_gradient` is that of lesson 01) with a random upstream gradient, sentences that begin
# at position 2, and a table with rows to spare. Then the library's two layers.

# %%
random = np.random.default_rng(9)
B, T, D, first, max_positions = 3, 4, 6, 2, 8
x, upstream, P = (random.normal(size=shape) for shape in ((B, T, D), (B, T, D), (max_positions, D)))
dx, dP = learned_positions_backward(upstream, first, max_positions)
for name, ours, numeric in [
        ("dx", dx, numeric_gradient(lambda x: ((x + P[first:first + T]) * upstream).sum(), x)),
        ("dP", dP, numeric_gradient(lambda P: ((x + P[first:first + T]) * upstream).sum(), P))]:
    measure(f"{name}: worst error, relative to the largest element",
            np.abs(ours - numeric).max() / np.abs(numeric).max(), 0, 1e-8)

layer = LearnedPositions(max_positions, D, random, "float64")
_, cache = layer.forward(x, first)
same("dx: this page and the library", dx, layer.backward(upstream, cache))
same("dP: this page and the library", dP, layer.weight.grad)
measure("sinusoids of the library: worst error of dx", gradcheck(PositionalEncoding(), x).worst.error, 0, 1e-6)

# %% [markdown]
# Is $M_k$ something that one can *find*? Take 8 components, fit the matrix that leads from each of the first 40
# positions to the one 3 further on, by least squares, and try it on the next 200. As a control, the same with random
# vectors of 8 and of 64 components, whose length is $\sqrt{D/2}$ like that of the sinusoids. (Error: length of the
# difference over the length of the vectors.)

# %%
def fitted_shift(table, k=3, n=40):
    """-> M^T (D, D) fitted on the first n positions; its error there, and at the positions after"""
    M_transposed = np.linalg.lstsq(table[:n], table[k:n + k], rcond=None)[0]
    errors = np.linalg.norm(table[:-k] @ M_transposed - table[k:], axis=1) / np.linalg.norm(table[k:], axis=1)
    return M_transposed, errors[:n].mean(), errors[n:].mean()


M_transposed, *errors = fitted_shift(library_sinusoids(0, 243, 8))
measure("sinusoids, D = 8: error at the 40 positions fitted", errors[0], 0, 1e-10)
measure("    at the 200 after them", errors[1], 0, 1e-7)
same("    the fitted matrix and M_3", M_transposed.T, library_shift_matrix(3, 8), 1e-5)
for D, fitted, lo, hi in (8, (0.8, 1), 0.9, 1.8), (64, (0, 1e-10), 0.9, 1.8):
    table = random.choice([-1, 1], (243, D)) / math.sqrt(2)    # squared length D / 2, like the sinusoids
    _, *errors = fitted_shift(table)
    measure(f"random vectors, D = {D}: error at the 40 fitted", errors[0], *fitted)
    measure("    at the 200 after them", errors[1], lo, hi)

# %% [markdown]
# Mark the last pair of lines. With more components than positions *any* vectors have a matrix that shifts them: that
# there is one proves nothing. What is special is that the matrix found at 40 positions holds at all others.
#
# ## Experiment 1: who did it
#
# The telegrams again, with sinusoids, and with a learned table (the library's, which starts at random).

# %%
for name, new in [("sinusoids", lambda seed: PositionalEncoding()),
                  ("learned", lambda seed: LearnedPositions(LENGTH, 32, np.random.default_rng(seed), "float64"))]:
    rights = [who_did_it(new(seed), seed, 150)[0] for seed in SEEDS]
    measure(f"{name}: right, worst run", min(rights), 0.9, 1)

# %% [markdown]
# Both do it. Six places and one offset do not separate them; the next experiment does.
#
# ## Experiment 2: three words to the left
#
# A text of 24 random words out of 11. At place $t$ the model is to say the word at $t - k$. The queries are positions
# alone, without words (`words_ask=False`), so nothing but the place can help; keys and values hold both. Five of the
# places, drawn in each run, are *never asked for* in training (their words are read as keys all the same), but they
# are in the test. If the model learns a shift, these come for free. If it learns a table of "from here, look there",
# they do not.
#
# Nine tables of positions, 32 components each:
#
# - *none*; *the number itself*, from $-1$ to 1 in every component;
# - *sinusoids*, and a *learned* table;
# - *upside down*: a user of the Annotated Transformer divided where its code multiplies
#   ([issue 131](https://github.com/harvardnlp/annotated-transformer/issues/131)), so that pair $i$ turns by
#   $10000^{+2i/d_{model}}$ per word. They reported that the copy task, $k = 0$ here, was learnt *faster*;
# - *random*: each component $\pm\sqrt{1/2}$, so vectors as long as the others, without any order;
# - *shuffled*: the very vectors of the sinusoids, handed out to the positions at random;
# - *even*: pairs whose speeds are evenly spaced from 0 to 1 radian per word; *slow*: the same from 0 to 0.3.
#
# Predict: which of them learn $k = 3$, and which of those are right at places that were never asked for?

# %%
WORDS_IN_TEXT, TEXT, D = 11, 24, 32


def new_positions(name, random):
    pos = np.arange(TEXT)
    tables = {"none": lambda: np.zeros((TEXT, D)),
              "the number itself": lambda: np.repeat(np.linspace(-1, 1, TEXT)[:, None], D, axis=1),
              "sinusoids": lambda: waves(pos, speeds(D)),
              "upside down": lambda: waves(pos, 1 / speeds(D)),
              "random": lambda: random.choice([-1, 1], (TEXT, D)) / math.sqrt(2),
              "shuffled": lambda: random.permutation(waves(pos, speeds(D))),
              "even": lambda: waves(pos, np.linspace(0, 1, D // 2)),
              "slow": lambda: waves(pos, np.linspace(0, 0.3, D // 2))}
    return LearnedPositions(TEXT, D, random, "float64") if name == "learned" else Table(tables[name]())


def to_the_left(name, k, seed, steps):
    """-> steps until 90 % right where it is asked (NaN: never); in the end, right where asked, and where never asked"""
    random = np.random.default_rng(50 + seed)
    model = Reader(new_positions(name, random), WORDS_IN_TEXT + 1, seed, words_ask=False)
    unasked = np.isin(np.arange(TEXT), random.permutation(np.arange(k + 1, TEXT - 1))[:5])
    asked = (np.arange(TEXT) >= k) & ~unasked
    curve = []

    def texts(n):
        ids = random.integers(1, WORDS_IN_TEXT + 1, (n, TEXT))
        return ids, np.concatenate([np.full((n, k), PAD), ids[:, :TEXT - k]], axis=1)

    test_ids, answers = texts(40)

    def watch(step):
        right = (model.forward(test_ids)[0].argmax(axis=-1) == answers)
        curve.append((step, right[:, asked].mean(), right[:, unasked].mean()))

    def batch():
        ids, targets = texts(16)
        return ids, targets * asked                            # PAD where it is not asked

    train(model, batch, steps, watch)
    return next((step for step, share, _ in curve if share > 0.9), np.nan), *curve[-1][1:]


# %%
NAMES = "none", "the number itself", "sinusoids", "learned", "upside down", "random", "shuffled", "even", "slow"
rows = {}
for k, steps, names in (3, 110, NAMES), (0, 90, ("sinusoids", "upside down", "random")):
    for name in names:
        rows[k, name] = np.array([to_the_left(name, k, seed, steps) for seed in SEEDS])              # (seeds, 3)
        shown = "   ".join(f"{'never' if math.isnan(first) else int(first):>5} {asked:5.0%} {unasked:5.0%}"
                           for first, asked, unasked in rows[k, name])
        print(f"k = {k}, {name:18}{shown}")
print("(for each run: steps until 90 % right; in the end, right where asked; where never asked)")

# %%
for name, *bands in [("none", (0.1, 0.3), (0.1, 0.35)), ("the number itself", (0.1, 0.4), (0.1, 0.4)),
                     ("shuffled", (0.3, 0.85), (0, 0.25)), ("random", (0.97, 1), (0, 0.25)),
                     ("learned", (0.95, 1), (0, 0.25)), ("upside down", (0.97, 1), (0.3, 0.75)),
                     ("sinusoids", (0.93, 1), (0.7, 1)), ("even", (0.97, 1), (0.75, 1)),
                     ("slow", (0.3, 0.89), (0.3, 0.9))]:
    _, asked, unasked = rows[3, name].mean(axis=0)             # over the runs
    measure(f"k = 3, {name}: right where asked", asked, *bands[0])
    measure("    where never asked", unasked, *bands[1])
for k, lo in (0, 50), (3, 60):
    measure(f"k = {k}, sinusoids: steps until 90 %", rows[k, "sinusoids"][:, 0].mean(), lo, 100)
    for name in "upside down", "random":
        measure(f"k = {k}, {name}: steps until 90 %", rows[k, name][:, 0].mean(), 10, 40)
for name, lo, hi in [("slow", 0.98, 0.99), ("sinusoids", 0.94, 0.97), ("even", 0.8, 0.87), ("upside down", 0.1, 0.3),
                     ("random", -0.2, 0.2)]:
    table = new_positions(name, np.random.default_rng(50)).table
    near = (table[:-1] * table[1:]).sum(axis=1).mean() / (D / 2)
    measure(f"{name}: cosine of the angle between neighbours, mean", near, lo, hi)

# %% The figure
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
axes.axhline(1 / WORDS_IN_TEXT, color="0.6", lw=1, ls=":")
axes.text(101, 1 / WORDS_IN_TEXT + 0.015, "a word drawn by lot", color="0.35", ha="right")
for name, marker, colour in [("sinusoids", "o", DARK), ("even", "s", DARK), ("upside down", "^", ACCENT),
                             ("random", "D", ACCENT), ("learned", "v", ACCENT)]:
    steps, _, unasked = rows[3, name].T
    axes.plot(steps, unasked, marker, color=colour, ms=7, alpha=0.8)
    axes.text(steps.max() + 2, unasked.mean() - 0.04 * (unasked.mean() < 0.2), name, va="center", color=colour)
axes.set(xlabel="training steps until 90 % right where asked", ylabel="right where never asked", xlim=(10, 105),
         ylim=(0, 1.05), title="Learnt fast is not learnt well: three words to the left")
show(figure, "09_asked", alt="Share right at places never asked for against steps until 90 percent right, three "
     "runs of five tables. Random vectors: near 30 steps and 10 percent. Upside down: near 25 steps, about 60 percent. "
     "Evenly spaced speeds: near 30 steps and 75 to 100 percent. Learned: near 70 steps and 10 percent. Sinusoids: "
     "near 80 steps and 90 percent.")

# %% [markdown]
# - Without positions, and with *the number itself*, there is nothing to learn from but how often a word occurs. The
#   second has a place in it, and it does not help, as the picture above said.
# - **Sinusoids answer at places that they were never asked for; random vectors and a learned table do not**, although
#   they too are right where they were asked. They have learnt a list; the sinusoids, a step.
#   (Why the learned table takes longer than a random one we have not tested; it begins with shorter vectors.)
# - The same vectors, *shuffled*, neither learn the task in this time nor answer anywhere new. So it is not what the
#   vectors are but in which order they stand.
# - **Issue 131 was no accident: the upside-down formula is learnt in less than half of the steps.** But *random*
#   vectors are too, for the copy task as for $k = 3$. So the speed is no merit of the formula. What matters is how
#   alike neighbours are (the cosines above): *slow* and *even* differ in nothing but the range of their speeds, and
#   *slow*, whose neighbours are the most alike of all, is not learnt in this time.
# - *Upside down* has a rotation for each offset as the sinusoids have: the derivation above holds for any speeds. It
#   is right at about half of the new places. So **the rotation is not enough**. With *even* speeds neighbours are
#   more alike again, and there it is right at most new places, and fast as well.
#
# What we have not separated: whether alike neighbours would do without the rotation. *Shuffled* takes both away. And
# do not conclude that even speeds are better than the paper's: 24 positions need no slow clock, a text of 5,000 does.
#
# ## Check the claim
#
# > Without positions, attention does not know the order.
#
# Of an encoder that is exact, as the opening showed. But with the causal mask of lesson 06 position $t$ sees the words
# up to $t$, and this is a matter of order: the verb sees one noun and not the other.

# %%
rights = [who_did_it(Table(np.zeros((LENGTH, 32))), seed, 100, causal=True)[0] for seed in SEEDS]
measure("causal mask, no positions: right, worst run", min(rights), 0.98, 1)

# %% [markdown]
# So a decoder could do without; A. Haviv et al., "Transformer Language Models without Positional Encodings Still Learn
# Positional Information" (2022), trained such models. The paper adds positions to both stacks.
#
# > Adding the position to the word mixes the two up.
#
# Two vectors cannot be told from their sum. But is each to be *read* from it? A linear map is to name the position, 0
# to 29, of a word in the trained model of lesson 00 ($d_{model} = 128$), from embedding plus sinusoid. It is fitted on
# 800 of its 1,600 vectors for words, at all positions, and tried on the others. The control: random vectors for words
# that spread as widely.

# %%
vectors = load_run(ROOT / "data/tiny_model").model.source_embedding.weight.data.astype(float)        # (1600, 128)
vectors = np.random.default_rng(0).permutation(vectors) * math.sqrt(128)                             # as in lesson 08


def read_position(words, T=30):
    """-> share of positions read right, and mean distance in positions, for the second half of the words (V, D)"""
    x = words[:, None] + library_sinusoids(0, T, words.shape[1])                                     # (V, T, D)
    x = np.concatenate([x, np.ones((*x.shape[:2], 1))], axis=2).reshape(-1, words.shape[1] + 1)
    pos, half = np.tile(np.arange(T), len(words)), len(x) // 2
    fitted = np.linalg.solve(x[:half].T @ x[:half], x[:half].T @ np.eye(T)[pos[:half]])              # (D + 1, T)
    read = (x[half:] @ fitted).argmax(axis=1)
    return (read == pos[half:]).mean(), np.abs(read - pos[half:]).mean()


for name, words, bands in [
        ("trained words", vectors, [(0.55, 0.75), (0.8, 1.4)]),
        ("random words", np.random.default_rng(1).normal(size=vectors.shape) * vectors.std(), [(0.4, 0.58), (1.2, 2)])]:
    share, distance = read_position(words)
    measure(f"{name}: position read right (by lot: 0.033)", share, *bands[0])
    measure("    off by so many positions, on average (by lot: 10)", distance, *bands[1])

# %% [markdown]
# Mixed up in part. One linear map for all words reads the position to about one place, and misses it in a third of the
# cases; for the trained words it does somewhat better than for random ones. (One model; whether training made that
# room for the positions we have not tested.) Adding costs no components, and it blurs.
#
# ## Paper and code
#
# - §3.5 of the paper: the formula; "we hypothesized it would allow the model to easily learn to attend by relative
#   positions", since $PE(pos + k)$ is a linear function of $PE(pos)$; and the hope that sinusoids go on beyond the
#   lengths of training. Table 3, row E: learned positions, 25.7 BLEU and perplexity 4.92, against 25.8 and 4.92.
#   Experiment 2 does not contradict this: in real training every position is asked for.
# - *Differs:* the authors' code, Tensor2Tensor, writes all sines and then all cosines, and has $d_{model}/2 - 1$ in the
#   exponent, so that the last wavelength is $10000 \cdot 2\pi$ exactly. The order of the components cannot matter,
#   since what reads them is a learned matrix that could have its rows in another order. The exponent is measured
#   below.
# - In the library: `sinusoids`, `PositionalEncoding` and `LearnedPositions` in
#   [nn/layers.py](../scratchformer/nn/layers.py), with the dropout of §5.4 on the sum; `shift_matrix` in
#   [study/positions.py](../scratchformer/study/positions.py); tests in
#   [tests/nn/test_model.py](../tests/nn/test_model.py) and [tests/nn/test_flow.py](../tests/nn/test_flow.py). Public
#   implementations with other speeds are `positions-of-base-100000` and `positions-without-pairs` in
#   [the ledger](../docs/correctness.md).

# %%
def concatenated(T, d_model):
    """As in Tensor2Tensor: (T, D), all sines, then all cosines"""
    omega = 10000.0 ** (-np.arange(d_model // 2) / (d_model // 2 - 1))
    angle = np.arange(T)[:, None] * omega
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)


ours, theirs = library_sinusoids(0, 100, 512), concatenated(100, 512)
interleaved = theirs.reshape(100, 2, 256).swapaxes(1, 2).reshape(100, 512)
measure("100 positions: largest difference, components in the same order", np.abs(interleaved - ours).max(), 0.1, 0.6)
measure("    root of the mean square", np.sqrt(((interleaved - ours) ** 2).mean()), 0.01, 0.1)
measure("    largest difference of their dot products, of 256", np.abs(ours @ ours.T - theirs @ theirs.T).max(), 0.2, 2)

# %% [markdown]
# ## Exercises
#
# `scratchformer learn check 09` looks at your answers and says what is wrong with them.
#
# **Predict.** In $PE(t)^T W \, PE(s)$ let $W$ be the identity. Where does query $t$ look most? And which $W$ makes it
# look at its left and its right neighbour alike?
#
# <details><summary>Answer</summary>
#
# At its own place, where the dot product is $d_{model}/2$. $W = \beta (M_1 + M_{-1})$ gives the sum of two peaks, at
# $t - 1$ and $t + 1$. But the peaks are so wide that the sum is highest between them, at $t$ itself, unless fast
# pairs count for more than slow ones.
#
# </details>
#
# **Build** `09_sinusoids`: the table of the paper, from any position on.
#
# **Build** `09_shift_matrix`: the matrix that leads $k$ words on, or back.
#
# **Backward** `09_learned_positions_backward`: from `dy` to the words and to the table.
#
# **Break** `09_order_blind`: to a sentence and a place, find another sentence that attention without positions cannot
# tell from it there, with and without a causal mask.
#
# ## Next
#
# All of this was within the lengths of training. What becomes of a model when the text is longer?
# [Lesson 10](10_longer.py) compares four ways to tell positions there. The paper's own page on positions is section
# 3.5 of [its arXiv page](https://arxiv.org/abs/1706.03762).
