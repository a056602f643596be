# %% [markdown]
# # 09 · Where am I?
#
# *About 35 minutes. You need: [lesson 04](04_soft_lookup.py) (queries, keys, values), [lesson 06](06_masks.py)
# (padding, the causal mask), [lesson 07](07_many_heads.py) (attention as a layer) and [lesson 08](08_embeddings.py)
# (words as scaled rows). You will have: the sinusoids of the paper and why they have this form, learned positions with
# their backward pass, and measurements of which property of the sinusoids does what.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library.lesson import QUICK, measure, same, show
from library.positions import shift_matrix as library_shift_matrix
from scratchformer.experiments.figures import ACCENT, COLOUR_MAP, DARK
from scratchformer.nn.attention import CrossAttention
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Embedding, LearnedPositions, Linear, PositionalEncoding
from scratchformer.nn.layers import sinusoids as library_sinusoids
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Layer, ParameterStore
from scratchformer.text.tokenizer import PAD

# %% [markdown]
# ## Question
#
# **Attention compares vectors, and a vector of lesson 08 says which word it is, not where it stands. How can the place
# be told in a vector, so that "three words to the left" is easy to compute?**
#
# The answer in one sentence: add to each word a fixed vector of sines and cosines of its position, at many speeds; a
# step of $k$ words then turns each pair of numbers by a fixed angle, wherever it starts.
#
# First see what happens without. In telegrams like `dog bites man` the verb is asked who did it, which is the noun to
# its left. The model is one attention: words become vectors, each of which asks all (`queries`), and a linear map makes
# scores of words from what comes back. The place for positions is there; at first it holds zeros. (`words_ask` is for
# experiment 2.)

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

    def __init__(self, positions, V, seed, words_ask=True, D=32):
        random = np.random.default_rng(seed)
        self.embedding = Embedding(Embedding.new_weight(V, D, random, "float64"))
        self.positions, self.words_ask = positions, words_ask
        self.attention, self.output = CrossAttention(D, 1, random, "float64"), Linear(D, V, random, "float64")
        self.store = ParameterStore(self.parameters())

    def forward(self, ids, rng=None):
        words, word_cache = self.embedding.forward(ids)        # (B, T, D)
        x, x_cache = self.positions.forward(words)             # keys and values are made of x
        queries, query_cache = self.positions.forward(words * self.words_ask)
        y, y_cache = self.attention.forward(queries, x)
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
# Every test telegram has a twin with its two nouns exchanged. Training and test have no pair of nouns in common. Three
# runs, which differ in their random start, their pairs and their telegrams.

# %% The telegrams
NOUNS, VERBS = "dog man cat bird wolf goat horse child king thief".split(), "bites sees hears helps calls finds".split()
WORDS = ["<pad>", *NOUNS, *VERBS]
SEEDS = [0] if QUICK else [0, 1, 2]


def telegrams(pairs, random, n):
    """-> ids (n, 3): noun, verb, noun; targets (n, 3): PAD, but at the verb the noun before it"""
    pair, verb = pairs[random.integers(0, len(pairs), n)], random.integers(1 + len(NOUNS), len(WORDS), n)
    return np.stack([pair[:, 0], verb, pair[:, 1]], axis=1), np.where([False, True, False], pair[:, :1], PAD)


# %%
def who_did_it(positions, seed, steps):
    """-> share of right answers; largest difference between the scores for a telegram and for its twin"""
    random = np.random.default_rng(100 + seed)
    pairs = random.permutation([(a, b) for a in range(1, len(NOUNS) + 1) for b in range(1, a)])         # (45, 2)
    train_pairs, test_pairs = np.concatenate([pairs[10:], pairs[10:, ::-1]]), pairs[:10]
    model = Reader(positions, len(WORDS), seed)
    train(model, lambda: telegrams(train_pairs, random, 32), steps)
    twins = [telegrams(of, np.random.default_rng(seed), 200) for of in (test_pairs, test_pairs[:, ::-1])]
    scores = [model.forward(ids)[0][:, 1] for ids, _ in twins]                                       # (200, V) each
    right = [verb.argmax(axis=1) == targets[:, 1] for verb, (_, targets) in zip(scores, twins)]
    return np.mean(right), np.abs(scores[0] - scores[1]).max()


for steps, lo in (0, 0), (100, 0.4):
    results = [who_did_it(Table(np.zeros((3, 32))), seed, steps) for seed in SEEDS]
    right, difference = np.array(results).max(axis=0)
    measure(f"no positions, {steps} steps: right, best run", right, lo, 0.5)
    measure("    largest difference between a telegram and its twin", difference, 0, 1e-12)

# %% [markdown]
# `dog bites man` and `man bites dog` give the verb the same scores, up to the order in which numbers are added,
# whether the model is trained or not. So whatever it answers, of each pair of twins it has at most one right: **no
# training can lift it above one half.** Lesson 04 saw this at random weights, and the reason is in its formula:
# $y_t = \sum_s w_{ts} v_s$ is a sum over the words, each weight depends on query and key alone, and a sum does not know
# the order of its terms.
#
# ## The idea in one picture
#
# Give each position a vector of its own, and add it to the word's. What should it be? A single number, the position
# itself, will not do: as far as the place counts, a query's score is then a linear function of the key's number, and
# such a function is largest at one end of the sentence. (Experiment 2 tries it.) A clock is better. Its hand points for
# every position, it never runs out, and $k$ words later it is turned by the same angle *from wherever it was*. A fast
# hand tells neighbours apart but comes round soon; a slow one does not come round, but hardly moves. So take many.

# %% The figure
figure = plt.figure(figsize=(9, 4.6), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1, 1.5])
for panel, i in zip(left.subplots(3, 1), (0, 4, 8)):
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
# Each pair of components is one clock; its sine and cosine are the height and the width at which the tip of the hand
# stands. The picture ends here: on a real dial a slow hand counts the rounds of a faster one. Here each pair is slower
# than the one before it by the same factor, and counts nothing.
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
curve.set(ylim=(-340, 340), title="The same against the offset", xlabel="offset k, words", ylabel="dot product")
show(figure, "09_toeplitz", alt="Left: the dot products of 100 by 100 positions, each diagonal of one colour, "
     "brightest on the main diagonal with 256, and falling to 112 in the corners. Right: the dot product against the "
     "offset, a symmetric peak of 256 at 0 that falls to about 125 at 60 words; the first pair alone swings between "
     "-256 and 256 and is back at nearly full height every 44 words.")

# %% [markdown]
# No position as far as 5,000 words away looks nearer than the neighbour. With one pair, position 44 would look nearer
# than position 1, since 44 is close to 7 rounds.
#
# **So attention can look $k$ words to the left.** What enters it is $x_t = e_t + PE(t)$, a word $e_t$ plus a place,
# here as columns. The score of query $t$ and key $s$ is $x_t^T W x_s / \sqrt{d_k}$ with $W = W_Q W_K^T$, and
# $x_t^T W x_s$ falls into four parts:
#
# $$x_t^T W x_s = e_t^T W e_s + e_t^T W \, PE(s) + PE(t)^T W e_s + PE(t)^T W \, PE(s)$$
#
# Word with word, word with place, place with word, place with place. For the last, choose $W = \beta M_k$, with a
# number $\beta$ ("beta") for its strength. The transpose of a rotation turns back: $M_k^T = M_{-k}$. So
# $PE(t)^T M_k = (M_{-k} PE(t))^T$, which is $PE(t - k)^T$, and this part is $\beta \, PE(t-k) \cdot PE(s)$: largest
# at $s = t - k$, for every $t$, and left is not right.
#
# Can a head have this $W$? $W_Q$ and $W_K$ have $d_k$ columns, so the rank of $W$ is at most $d_k = 64$ in the paper's
# base model, and $M_k$ has rank 512. One head has room for 32 pairs out of 256. Let it take the fastest. Place alone,
# 200 positions, and for comparison a head that is wide enough for all pairs:

# %%
def weight_on_target(beta, pairs, k=3):
    """Mean weight of query t on position t - k, over all t for which there is one, with the fastest `pairs` in W."""
    P, M = PE[:200, :2 * pairs], shift_matrix(k, 512)[:2 * pairs, :2 * pairs]
    scores = beta * P @ M @ P.T / math.sqrt(2 * pairs)         # (200, 200)
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.diagonal(e / e.sum(axis=1, keepdims=True), offset=-k).mean()


for pairs, beta, lo, hi in (256, 1, 0.19, 0.22), (256, 5, 0.66, 0.72), (32, 1, 0.16, 0.19), (32, 5, 0.94, 0.98):
    measure(f"{pairs} pairs, beta = {beta}: weight on the word 3 to the left", weight_on_target(beta, pairs), lo, hi)
measure("256 pairs, beta = 1: neighbour's score behind the target's", (256 - far[0]) / math.sqrt(512), 0.28, 0.33)

# %% [markdown]
# One matrix serves all positions, and 64 columns are enough for it. But it must be a strong one. Neighbours are so
# alike that with all pairs and $\beta = 1$ their scores differ by 0.3, and the target gets a fifth of the weight. At
# $\beta = 5$ the fast pairs alone do better than all together. Whether training finds such a matrix is another
# question, for experiment 2.
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
# positions to the one 3 further on, by least squares, and try it on the next 200. As a control, the same with vectors
# of 64 random components. (Error: length of the difference over the length of the vectors.)

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
_, *errors = fitted_shift(random.choice([-1, 1], (243, 64)) / math.sqrt(2))
measure("random vectors, D = 64: error at the 40 fitted", errors[0], 0, 1e-10)
measure("    at the 200 after them", errors[1], 0.9, 1.8)

# %% [markdown]
# Look at the last two lines. With more components than positions, any vectors that are linearly independent have a
# matrix that shifts them: that there is one proves nothing. What is special is that the matrix found at 40 positions
# holds at all others.
#
# ## Experiment 1: who did it
#
# The telegrams again, with sinusoids, and with a learned table (the library's, which starts at random).

# %%
for name, new in [("sinusoids", lambda seed: PositionalEncoding()),
                  ("learned", lambda seed: LearnedPositions(3, 32, np.random.default_rng(seed), "float64"))]:
    rights = [who_did_it(new(seed), seed, 150)[0] for seed in SEEDS]
    measure(f"{name}: right, worst run", min(rights), 0.9, 1)

# %% [markdown]
# Both do it. Three places do not separate them; the next experiment does.
#
# ## Experiment 2: three words to the left
#
# A text of 24 random words out of 11. At place $t$ the model is to say the word at $t - 3$. The queries are positions
# alone, without words (`words_ask=False`), so nothing but the place can help; keys and values hold both. Some places
# are *never asked for* in training (their words are read as keys all the same), but they are in the test: two that
# stand *alone*, between places that are asked for, and five *in a row*, both drawn in each run. A model that has
# learnt the shift is right there, too. One that has learnt a list, "from here, look there", does not.
#
# Eight tables of positions, 32 components each. Where nothing else is said, their vectors are as long as sinusoids:
#
# - *the number itself*, from $-1$ to 1 in every component;
# - *sinusoids*, and a *learned* table (the library's, which begins with vectors about a quarter as long);
# - *upside down*: a user of the Annotated Transformer divided where its code multiplies
#   ([issue 131](https://github.com/harvardnlp/annotated-transformer/issues/131)), so that pair $i$ turns by
#   $10000^{+2i/d_{model}}$ per word, and reported that its first example, copying, was then learnt much *faster*;
# - *random*: each component $\pm\sqrt{1/2}$; *short*: the same, a quarter as long;
# - *even*: pairs whose speeds are evenly spaced from 0 to 1 radian per word;
# - *smooth*: weighted means of random vectors, the nearest weighing most. Neighbours are about as alike as in *even*,
#   but no matrix leads from each position to the one 3 further on.

# %%
WORDS_IN_TEXT, TEXT, D, K = 11, 24, 32, 3


def smooth(T, random):
    """-> (T, D)"""
    pos = np.arange(T)
    table = np.exp(-(pos[:, None] - pos) ** 2 / 3) @ random.normal(size=(T, D))
    return math.sqrt(D / 2) * table / np.linalg.norm(table, axis=1, keepdims=True)


def new_positions(name, random):
    pos, signs = np.arange(TEXT), random.choice([-1, 1], (TEXT, D)) / math.sqrt(2)
    if name == "learned":
        return LearnedPositions(TEXT, D, random, "float64")
    return Table({"the number itself": np.repeat(np.linspace(-1, 1, TEXT)[:, None], D, axis=1),
                  "sinusoids": waves(pos, speeds(D)), "upside down": waves(pos, 1 / speeds(D)),
                  "random": signs, "short": signs / 4, "even": waves(pos, np.linspace(0, 1, D // 2)),
                  "smooth": smooth(TEXT, random)}[name])


def to_the_left(name, seed, steps=110):
    """-> steps until 90 % right where asked (NaN: never); in the end, right where asked, alone, and in the row"""
    random, pos = np.random.default_rng(50 + seed), np.arange(TEXT)
    alone = np.isin(pos, random.permutation([5, 7, 9])[:2])
    row = np.isin(pos - random.integers(12, 18), range(5))
    asked = (pos >= K) & ~alone & ~row                         # (T,), as the two before
    model = Reader(new_positions(name, random), WORDS_IN_TEXT + 1, seed, words_ask=False)
    curve = []

    def texts(n):
        ids = random.integers(1, WORDS_IN_TEXT + 1, (n, TEXT))
        return ids, np.concatenate([np.full((n, K), PAD), ids[:, :-K]], axis=1)

    test_ids, answers = texts(60)

    def watch(step):
        share = (model.forward(test_ids)[0].argmax(axis=-1) == answers).mean(axis=0)                 # (T,)
        curve.append((step, share[asked].mean(), share[alone].mean(), share[row].mean()))

    def batch():
        ids, targets = texts(16)
        return ids, targets * asked                            # PAD where it is not asked

    train(model, batch, steps, watch)
    return next((step for step, share, *_ in curve if share > 0.9), np.nan), *curve[-1][1:]


# %%
BANDS = {"the number itself": [(0.1, 0.4), (0.05, 0.4), (0.05, 0.4)],
         "short": [(0.3, 0.89), (0, 0.35), (0, 0.35)], "learned": [(0.95, 1), (0, 0.25), (0, 0.2)],
         "random": [(0.97, 1), (0, 0.25), (0, 0.2)], "upside down": [(0.97, 1), (0.2, 0.8), (0.2, 0.5)],
         "smooth": [(0.97, 1), (0.8, 1), (0.05, 0.29)], "even": [(0.97, 1), (0.95, 1), (0.3, 0.7)],
         "sinusoids": [(0.95, 1), (0.92, 1), (0.2, 0.5)]}
rows = {}
for name, bands in BANDS.items():
    rows[name] = np.array([to_the_left(name, seed) for seed in SEEDS])                               # (runs, 4)
    print(f"{name}: 90 % right after", *(f"{first:g}" for first in rows[name][:, 0]), "steps (nan: never)")
    for where, share, band in zip(("where asked", "alone", "five in a row"), rows[name].mean(axis=0)[1:], bands):
        measure(f"    right {where}", share, *band)
measure("alone: smooth less upside down, mean", (rows["smooth"] - rows["upside down"])[:, 2].mean(), 0.1, 0.75)
measure("sinusoids, 400 steps: right five in a row", to_the_left("sinusoids", 0, 400)[-1], 0.25, 0.65)

# %%
for name, steps, cosines in [("sinusoids", (60, 95), (0.94, 0.97)), ("even", (10, 45), (0.8, 0.87)),
                             ("smooth", (20, 65), (0.78, 0.88)), ("upside down", (10, 35), (0.1, 0.3)),
                             ("random", (10, 35), (-0.2, 0.2))]:
    table = new_positions(name, np.random.default_rng(50)).table
    measure(f"{name}: steps until 90 %, mean", rows[name][:, 0].mean(), *steps)
    measure("    cosine of the angle between neighbours, mean",
            (table[:-1] * table[1:]).sum(axis=1).mean() / (D / 2), *cosines)
no_matrix = fitted_shift(smooth(243, np.random.default_rng(0)), n=100)[1]
measure("smooth: error of the best matrix for 3 words on, at the 100 positions fitted", no_matrix, 0.3, 0.7)

# %% The figure
SHOWN = "sinusoids", "even", "smooth", "upside down", "random", "learned"
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.axhline(1 / WORDS_IN_TEXT, color="0.6", lw=1, ls=":")
axes.text(0.5, 1 / WORDS_IN_TEXT - 0.02, "by lot", color="0.35", va="top")
for column, marker, colour, label in (2, "o", DARK, "alone"), (3, "^", ACCENT, "five in a row"):
    for x, name in enumerate(SHOWN):
        axes.plot(np.full(len(SEEDS), x + 0.3 * column - 0.75), rows[name][:, column], marker, color=colour, ms=7,
                  alpha=0.7, label=label if x == 0 else None)
axes.set(xticks=range(len(SHOWN)), xticklabels=SHOWN, ylim=(-0.03, 1.05), ylabel="share right",
         title="Places never asked for: the word three to the left")
axes.legend(title="the place stands", loc="upper right")
show(figure, "09_asked", alt="Share right at places never asked for, six tables, three runs each, at places alone "
     "and at five in a row. Sinusoids and evenly spaced speeds: nearly 100 percent alone, 30 to 65 in a row. Smooth: "
     "80 to 98 alone, 7 to 24 in a row. Upside down: 20 to 80 alone, near 40 in a row. Random and learned: near 10 "
     "percent, which is by lot, in both.")

# %% [markdown]
# - With *the number itself* the task is not learnt, as the picture above said.
# - **Alone.** *Random* and *learned* vectors are right where they were asked for, and elsewhere no better than by lot:
#   a list. *Sinusoids* and *even* are right there nearly always. Is that the rotation? *Smooth* has none, and is right
#   there nine times in ten. *Upside down* has one for each offset, since the derivation above holds for any speeds,
#   and is right less than half of the time on average, very differently from run to run. So to be right at such a
#   place mostly takes no rotation: neighbours are alike (the cosines), and its neighbours *were* asked for.
# - **Five in a row.** Being alike does not reach so far: *smooth* is little better than a lot. The three tables with a
#   rotation do better, and are right in a quarter to a half of the cases. One run of the sinusoids with 400 steps comes
#   to about a half, too.
# - **So a matrix that is right at all positions exists, and training at some of them did not find it.** It found one
#   that is right where it was asked for, and a little further.
# - **Issue 131 was no accident: here, too, the upside-down formula is learnt in less than half of the steps.** But so
#   are *random* vectors, and the same vectors made *short* are not learnt in this time. So the speed is no merit of
#   the formula, and it does not tell what was learnt. (*Even* is as fast, and better at new places: 24 positions need
#   no slow clock. A text of 5,000 words does.)
#
# ## Paper and code
#
# - §3.5: the formula, and its reason: "we hypothesized it would allow the model to easily learn to attend by relative
#   positions", since $PE(pos + k)$ is a linear function of $PE(pos)$; and a hope for texts longer than those of
#   training. Table 3, row E: learned positions, 25.7 BLEU and perplexity 4.92, against 25.8 and 4.92. Experiment 2
#   does not contradict this: in real training all but the last places of a table are often asked for.
# - §3.5 adds positions to both stacks. What the opening showed holds without a mask. Under the causal mask of lesson 06
#   the verb sees one noun and not the other, so a decoder has some order without positions; but one layer cannot tell
#   in which order the words *before* a place stand, since it sums over them.
# - *Differs:* the authors' code, Tensor2Tensor, writes all sines and then all cosines, and its exponent is
#   $i/(d_{model}/2 - 1)$, so that the last wavelength is $10000 \cdot 2\pi$ exactly. The order cannot matter: words
#   and matrices are learned, and could have their components and rows in that order, too. The exponent is measured
#   below.
# - In the library: `sinusoids`, `PositionalEncoding` and `LearnedPositions` in
#   [nn/layers.py](../scratchformer/nn/layers.py), with the dropout of §5.4 on the sum; `shift_matrix` in
#   [lessons/library/positions.py](../lessons/library/positions.py); tests in
#   [tests/nn/test_model.py](../tests/nn/test_model.py) and [tests/nn/test_flow.py](../tests/nn/test_flow.py). Public
#   implementations with other speeds are `positions-of-base-100000` and `positions-without-pairs` in
#   [the correctness report](../docs/correctness.md).

# %%
ours, theirs = PE[:100], waves(np.arange(100), 10000.0 ** (-np.arange(256) / 255))
measure("exponents as in Tensor2Tensor, 100 positions: largest difference of a component",
        np.abs(theirs - ours).max(), 0.13, 0.16)
measure("    of a dot product, which is at most 256", np.abs(ours @ ours.T - theirs @ theirs.T).max(), 0.5, 0.63)

# %% [markdown]
# ## Exercises
#
# `scratchformer learn check 09` looks at your answers and says what is wrong with them.
#
# **Predict.** In $PE(t)^T W \, PE(s)$ let $W$ be the identity. Where does query $t$ look most? And with
# $W = M_1 + M_{-1}$, which is to make it look at its left and its right neighbour alike?
#
# <details><summary>Answer</summary>
#
# At its own place, where the dot product is $d_{model}/2$. And there again: in $M_1 + M_{-1}$ the sines cancel, and
# pair $i$ has $2 \cos \omega_i$ times the identity. No speed is above 1, so all these factors are positive, and every
# pair gives the most at $s = t$. Two peaks that are so wide and so near make one between them. Two heads can do it,
# one with each matrix.
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
