# %% [markdown]
# # 10 · Longer than training
#
# *About 35 minutes. You need: [lesson 05](05_scaling.py) (scores), [lesson 06](06_masks.py) (causal attention), [lesson
# 07](07_many_heads.py) (heads), [lesson 09](09_positions.py) (sinusoids), and for the trained model [lesson
# 00](00_whole_game.py). You will have: two later ways to say where a word stands, rotary positions and ALiBi, with
# their backward passes, and a measured answer to a hope of the paper's.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library.lesson import QUICK, ROOT, measure, recorded, same, show
from library.positions import AlibiAttention, RotaryAttention, Shifted, alibi_bias, is_relative, rotated
from scratchformer.experiments.figures import ACCENT, COLOUR_MAP, DARK
from scratchformer.nn.attention import Mask, ScaledDotProductAttention, SelfAttention, attention_weights
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Embedding, LearnedPositions, Linear, PositionalEncoding, sinusoids
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Layer, ParameterStore
from scratchformer.text.batches import encode_pairs
from scratchformer.text.corpora import Pairs, read_pairs
from scratchformer.training.run import load_run
from scratchformer.training.validation import validation_loss

# %% [markdown]
# ## Question
#
# **The paper chose sinusoids over a learned table because they "may allow the model to extrapolate to sequence lengths
# longer than the ones encountered during training" (§3.5). Do they?**
#
# A sinusoid has a value at position 1,000; a learned table has no row 1,000. But to have a value is not yet to know
# what it means. Here is the trained model of lesson 00, which has sinusoids, on two test sets: `test`, of the lengths
# of training, and `test_long`, whose sentences have more words than any in training. The loss is per piece of the
# German reference, in nats; the model reads the reference as it does in training.

# %% The model and the two test sets
translator = load_run(ROOT / "data/tiny_model")
model = translator.model


def read(split, longest=256):
    """-> the first 200 pairs of a test set (60 in quick mode) as text; as ids, those of up to `longest` pieces"""
    pairs = read_pairs(ROOT / f"data/tiny/{split}.en", ROOT / f"data/tiny/{split}.de")
    pairs = Pairs(*(part[:60 if QUICK else 200] for part in pairs[:3]), 0)
    return pairs, encode_pairs(translator.tokenizer.encode, pairs, longest, 4096)


(_, test), (_, test_short), (long_text, test_long) = read("test"), read("test", longest=10), read("test_long")
result = recorded("longer")                                    # of experiment 3, and a fact of the corpus

# %%
measure("pieces of the longest sentence of training", result["longest_in_training"], 34, 34)
measure("pieces in a sentence of test_long, median", np.median(test_long.lengths), 37, 41)
for name, pairs, lo, hi in ("test", test, 0.07, 0.14), ("test_long", test_long, 1.6, 2.4):
    measure(f"loss on {name}", validation_loss(model, pairs, 4096), lo, hi)
print(f"\n{long_text.source[1]}\n    {translator.translate(long_text.source[1:2], beam=1)[0]}")

# %% [markdown]
# They do not, here: the loss is about twenty times as high, and the translation loses its way in the first clause. But
# long sentences could be hard for reasons that have nothing to do with positions. So a control: the *same sentences*
# of `test`, of the same length, as if some words stood before them. All positions begin at 2 instead of 0, on both
# sides; or at 5, and so on. Nothing else is changed.

# %%
def loss_when_moved(pairs, first):
    """As if `first` words stood before every sentence, source and target."""
    before = model.source_positions, model.target_positions
    model.source_positions, model.target_positions = (Shifted(positions, first) for positions in before)
    loss = validation_loss(model, pairs, 4096)
    model.source_positions, model.target_positions = before
    return loss


for first, lo, hi in (0, 0.07, 0.14), (2, 0.08, 0.2), (5, 0.5, 1.2), (10, 1, 1.8), (50, 0.8, 1.6):
    measure(f"loss on test, begun at {first:2}", loss_when_moved(test, first), lo, hi)
measure("begun at 5: the last position of all", 5 + test.lengths.max() - 1, 20, 33)
measure("share of test with a piece at position 14", (test.lengths > 14).mean(), 0.2, 0.45)
for first, lo, hi in (0, 0.05, 0.15), (5, 0.5, 1.3):
    measure(f"sentences of up to 10 pieces, begun at {first:2}", loss_when_moved(test_short, first), lo, hi)

# %% [markdown]
# Two places are nearly forgiven. At five, the loss is eight times as high, and **not one position is new**: training
# went up to position 33. Nor is it that the late ones are rare in training. The last lines take sentences of up to ten
# pieces; begun at 5 they end at 14 at the latest, where a third of all sentences still go on. The distances between
# the words are the old ones, too. What is new is a sentence that begins at 5; in training, all began at 0.
#
# So the answer in one sentence: *no, a formula that has values further out does not teach a model what to do with them;
# scores that depend only on the distance of two words survive a move of the whole sentence, and what longer distances
# do to them depends on how the distance enters.*
#
# ## The idea in one picture
#
# What do positions alone do to the scores of 60 queries and 60 keys? On the left the sinusoids without any words,
# through the query and key matrices of one head of the trained model (the third of four in the first encoder layer).
# In the middle ALiBi, which takes off the more, the further a key is away. On the right rotary positions: query and key
# are the same vector everywhere, turned by an angle that grows with the position.

# %%
n_shown, d_k = 60, 32
W_QKV = model.encoder.layers[0].self_attention.sublayer.qkv.weight.data.astype("float64")          # (D, 3 h d_k)


def of_positions(head):
    """-> what the positions alone give to the scores of a head, (n_shown, n_shown)"""
    W_Q, W_K = (W_QKV[:, start + head * d_k:start + (head + 1) * d_k] for start in (0, 128))
    PE = sinusoids(0, n_shown, 128)
    return PE @ W_Q @ (PE @ W_K).T / math.sqrt(d_k)


def told_by_distance(scores):
    """scores (T, T) -> the share of their variance that the means of the diagonals account for, 0 to 1"""
    scores = scores - scores.mean()
    diagonals = [scores.diagonal(offset) for offset in range(1 - len(scores), len(scores))]
    return sum(diagonal.sum() ** 2 / len(diagonal) for diagonal in diagonals) / (scores**2).sum()


of_heads = [told_by_distance(of_positions(head)[:34, :34]) for head in range(4)]
measure("four heads, positions of training: least variance told by the distance", min(of_heads), 0.1, 0.2)
measure("    most", max(of_heads), 0.2, 0.3)

# %% The figure
turned = rotated(np.ones((1, n_shown, 1, d_k)), np.arange(n_shown))[0, :, 0]
maps = {"sinusoids, a trained head": of_positions(head=2), "ALiBi, slope 1/16": alibi_bias(n_shown, n_shown, 4)[1],
        "rotary": turned @ turned.T / math.sqrt(d_k)}
figure, panels = plt.subplots(1, 3, figsize=(8.5, 3.5), sharey=True, layout="constrained")
for panel, (name, scores) in zip(panels, maps.items()):
    panel.imshow(scores, COLOUR_MAP)
    panel.add_patch(plt.Rectangle((-0.5, -0.5), 34, 34, fill=False, edgecolor="white", lw=2, ls="--"))
    panel.set(title=name, xlabel="position of the key")
    figure.colorbar(panel.images[0], ax=panel, orientation="horizontal", label="score")
panels[0].set_ylabel("position of the query")
figure.suptitle("Scores of positions alone (dashed: the positions of training)", fontsize=11)
show(figure, "10_scores", alt="Three maps, positions of 60 queries by positions of 60 keys; a dashed square marks "
     "the 34 positions of training. Sinusoids through a trained head: blocks and bands, with hardly a line along the "
     "diagonals; outside the square other bands follow. ALiBi: 0 on the diagonal, falling evenly to both sides. "
     "Rotary: stripes along the diagonals, the same at every place.")

# %% [markdown]
# Move along a diagonal, down and to the right: the distance stays the same, the place changes. In the two maps on the
# right nothing changes either. On the left it does: of what positions do to the scores of these four heads, the
# distance tells a quarter at most. Outside the dashed square, which training never saw, the map goes on in a way that
# nobody asked for. (A learned table has random numbers there, or no rows at all.)
#
# ## The equation, and the same in code
#
# **Added positions.** Lesson 09 split the score of query $t$ and key $s$ into four parts, with $e_t$ for the word, as a
# column, and $W = W_Q W_K^T$:
#
# $$e_t^T W e_s + e_t^T W \, PE(s) + PE(t)^T W e_s + PE(t)^T W \, PE(s)$$
#
# The last depends on positions alone. Lesson 09 also found $PE(t) \cdot PE(s) = \sum_i \cos \omega_i (t - s)$, a
# function of the distance. But that is the case in which $W$ is the identity, and $W$ is learned. Lesson 09 had to
# *choose* a $W$ that keeps to distances; most others let the place in.
#
# **Rotary positions** (RoPE; Su et al. 2021) add nothing to the words. They take the components of each query and key
# (often called channels) in pairs, points $(a, b)$ in a plane, and turn pair $i$ at position $p$ by the angle
# $p \, \omega_i$, with the speeds of the sinusoids, $\omega_i = 10000^{-2i/d_k}$:
#
# $$R_p \, (a, b) = (a \gamma - b \sigma, \; a \sigma + b \gamma)$$
#
# with $\gamma = \cos p \, \omega_i$ and $\sigma = \sin p \, \omega_i$ ("gamma", "sigma").
#
# Turning keeps lengths: $(a\gamma - b\sigma)^2 + (a\sigma + b\gamma)^2 = (a^2 + b^2)(\gamma^2 + \sigma^2) = a^2 + b^2$.
# Turning back by the same angle is the transpose of the matrix, $R_p^T = R_{-p}$, and angles add up,
# $R_p R_r = R_{p+r}$. So a score of turned vectors is
#
# $$(R_t q)^T R_s k = q^T R_t^T R_s k = q^T R_{s-t} k$$
#
# Places have dropped out, and **whatever $W_Q$ and $W_K$ become, the distance is all that is left**. That is why the
# rotation comes after the projections and not before. Before them it would read $x_t^T R_t^T W R_s x_s$, and with $W$
# in between, $R_t^T$ and $R_s$ no longer meet.
#
# **ALiBi** (attention with linear biases; Press, Smith and Lewis 2022) leaves query and key alone, too, and takes
# something off the scaled score, in head number $j$ of $h$; what is left goes into softmax:
#
# $$z_{ts} = \frac{q_t^T k_s}{\sqrt{d_k}} - m_j \, \vert t - s \vert, \qquad m_j = 2^{-8j/h}, \; j = 1 \dots h$$
#
# The slopes $m_j$ are chosen and stay as they are. A head with a steep one sees its neighbourhood, a head with a flat
# one nearly everything.

# %%
def turn(x, positions):
    """x (T, d_k), positions (T,) -> (T, d_k): each pair of components turned by its angle"""
    omega = 10000.0 ** (-np.arange(0, x.shape[1], 2) / x.shape[1])                 # (d_k/2,)
    cos, sin = np.cos(positions[:, None] * omega), np.sin(positions[:, None] * omega)          # (T, d_k/2)
    a, b = x[:, 0::2], x[:, 1::2]                                                  # (T, d_k/2)
    return np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape)          # pairs side by side


def penalty(T, S, h):
    """-> (h, T, S), to be added; the T queries are the last of S positions, as in lesson 06"""
    distance = np.abs(np.arange(S - T, S)[:, None] - np.arange(S))                 # (T, S)
    m = 2.0 ** (-8 * np.arange(1, h + 1) / h)                                      # (h,)
    return -m[:, None, None] * distance


# %% [markdown]
# ## Forward
#
# Five words, $d_k = 6$. Turn queries and keys as if the sentence began at 0, and as if it began at 40. And how far does
# an ALiBi head see? $-m d$ in a score is a factor $e^{-md}$ in the weight, a half at the distance $d = \ln 2 / m$.

# %%
T, d_k, h = 5, 6, 4
random = np.random.default_rng(0)
q, k = random.normal(size=(2, T, d_k))
here, there = np.arange(T), np.arange(40, 40 + T)
change = (turn(q, there)**2).sum(axis=1) - (q**2).sum(axis=1)
measure("turned queries: largest change of a squared length", np.abs(change).max(), 0, 1e-13)
scores, further = (turn(q, where) @ turn(k, where).T for where in (here, there))               # (T, T)
measure("turning changes a score by up to", np.abs(scores - q @ k.T).max(), 1, 12)
measure("begun at 40 instead of 0: scores change by up to", np.abs(further - scores).max(), 0, 1e-13)
for m, d in zip(-penalty(1, 2, h)[[0, -1], 0, 0], (2.8, 177.4)):
    measure(f"ALiBi, slope {m:.4f}: half the weight at a distance of", math.log(2) / m, d - 0.1, d + 0.1)

# %% [markdown]
# ## Backward
#
# **Rotary.** Follow $a$, the first number of a pair of a query, to the loss. It has two ways: into the first number of
# the turned pair, $a' = a\gamma - b\sigma$, with the factor $\gamma$, and into the second, $b' = a\sigma + b\gamma$,
# with the factor $\sigma$. The number $b$ enters the first with $-\sigma$ and the second with $\gamma$. So
#
# $$da = \gamma \, da' + \sigma \, db', \qquad db = -\sigma \, da' + \gamma \, db'$$
#
# That is a rotation again, with $-\sigma$ in place of $\sigma$: by the same angle, **back**. It had to be. Backward
# through a matrix is its transpose, and the transpose of a rotation turns back. There is no parameter, and lengths are
# kept, so a gradient comes through as long as it was, at position 5 and at 50,000.
#
# **ALiBi.** The penalty is a constant added to a score. The score passes on its gradient with the factor 1, and the
# constant takes none: backward of attention stays as it is (the library's `AlibiAttention` has a forward of its own and
# inherits its backward). A learned slope $m$ would reach every score of its head, so
# $dm = -\sum_{ts} dz_{ts} \vert t - s \vert$. All these distances come from training; how strongly a distance of 50
# should count, the loss cannot say if there is none. Press et al. report that learned slopes did not extrapolate well;
# we have not tested it.
#
# **A learned table** (lesson 09). A row whose position does not occur gets exactly 0: it keeps the random numbers that
# it began with. Beyond the table there is no row.

# %%
def turn_backward(dturned, positions):
    """dturned (T, d_k) -> dx (T, d_k)"""
    return turn(dturned, -positions)


try:
    LearnedPositions(64, d_k, random).forward(np.zeros((1, 65, d_k)))
except ValueError as error:
    print(f"a sentence of 65: {error}")

# %% [markdown]
# ## Check
#
# Central differences through the scores of turned queries (`numeric_gradient` is that of lesson 01), then the library,
# which has an axis for the batch and one for the heads.

# %%
upstream = random.normal(size=(T, T))
numeric = numeric_gradient(lambda q: (turn(q, there) @ turn(k, there).T * upstream).sum(), q)
dq = turn_backward(upstream @ turn(k, there), there)
measure("dq: worst error, relative to the largest element", np.abs(dq - numeric).max() / np.abs(numeric).max(), 0, 1e-8)

queries, keys, values = (random.normal(size=(2, length, h, width)) for length, width in ((3, 6), (5, 6), (5, 7)))
same("turned queries", np.stack([turn(queries[1, :, j], there[:3]) for j in range(h)], axis=1),
     rotated(queries, there[:3])[1])
same("penalty", penalty(3, 5, h), alibi_bias(3, 5, h))
for attention in RotaryAttention(), AlibiAttention():
    report = gradcheck(attention, queries, keys, values, Mask(np.array([5, 2]), causal=True))
    measure(f"{type(attention).__name__}: worst error of dq, dk, dv", report.worst.error, 0, 1e-6)

# %% [markdown]
# No gradient check can say whether scores are relative: that is a property of forward. It has a test of its own, the
# **shift test**: move all positions, and see whether a score changes.

# %%
def added(x, first):
    x = x + sinusoids(first, len(x), d_k)
    return x @ W_mixed @ x.T


def rotary(x, first):
    where = np.arange(first, first + len(x))
    return turn(x @ W_mixed, where) @ turn(x, where).T


W_mixed = random.normal(size=(d_k, d_k))
for name, scores, relative in ("sinusoids, projected", added, 0), ("rotary, projected", rotary, 1):
    measure(f"{name}: passes the shift test (0 or 1)", int(is_relative(scores, q)), relative, relative)

# %% [markdown]
# The same matrix stands in both. With added positions it lets the place in, before a rotation it cannot.
#
# ## Experiment 1: train on 20 words, test on 60
#
# A task of one line: some words of a sequence are names, one in five. At each place, say the **latest name** so far.
# There are 8 names and 11 other words. It needs the order, of names only, at any distance.

# %%
V, NAMES = 20, 9                                               # names are the ids 1 to 8, other words 9 to 19


def latest_name(random, B, n):
    """-> words (B, n), the latest name at each place (B, n)"""
    is_name = random.random((B, n)) < 0.2
    is_name[:, 0] = True
    ids = np.where(is_name, random.integers(1, NAMES, (B, n)), random.integers(NAMES, V, (B, n)))
    latest = np.maximum.accumulate(np.where(is_name, np.arange(n), 0), axis=1)
    return ids, np.take_along_axis(ids, latest, axis=1)


# %% [markdown]
# The model is a `Reader` like that of lesson 09: words become vectors, one causal attention, here with four heads of
# $d_k = 8$, and a linear map to scores of words. It comes in five kinds that differ in their positions alone: none (the
# control), a learned table of 64 rows, sinusoids, ALiBi, rotary.

# %%
ADDED = {"learned": lambda random: LearnedPositions(64, 32, random), "sinusoidal": lambda random: PositionalEncoding()}
IN_ATTENTION = {"ALiBi": AlibiAttention, "rotary": RotaryAttention}


class Reader(Layer):
    """words (B, n) -> scores of the answers (B, n, V)"""

    def __init__(self, kind, seed, d_model=32, h=4):
        random = np.random.default_rng(seed)
        self.attention = SelfAttention(d_model, h, random)
        self.attention.attention = IN_ATTENTION.get(kind, ScaledDotProductAttention)()
        words = Embedding(Embedding.new_weight(V, d_model, random, "float32"))
        added = [ADDED[kind](random)] if kind in ADDED else []
        self.stack = [words, *added, self.attention, Linear(d_model, V, random)]
        self.store = ParameterStore(self.parameters())

    def forward(self, x, rng=None):
        caches = []
        for layer in self.stack:
            x, cache = layer.forward(x, Mask(causal=True)) if layer is self.attention else layer.forward(x)
            caches.append(cache)
        return x, caches

    def backward(self, dx, caches):
        for layer, cache in zip(reversed(self.stack), reversed(caches)):
            dx = layer.backward(dx, cache)


def train_reader(kind, seed, steps=200):
    """on sequences of 5 to 20 words, 16 of one length at each step"""
    reader, random = Reader(kind, seed), np.random.default_rng(seed + 100)
    optimizer = Adam(reader)
    for step in range(1, steps + 1):
        ids, answers = latest_name(random, 16, random.integers(5, 21))
        scores, cache = reader.forward(ids)
        _, n_answers, dscores = cross_entropy(scores, answers)
        reader.zero_grad()
        reader.backward(dscores / n_answers, cache)
        optimizer.step(0.015 * min(1, step / 30, (steps - step + 1) / 100))        # up, level, and down
    return reader


def accuracy(reader, n):
    """Share of 200 sequences of n words whose last answer is right."""
    ids, answers = latest_name(np.random.default_rng(7), 200, n)
    return (reader.forward(ids)[0][:, -1].argmax(axis=-1) == answers[:, -1]).mean()


# %%
KINDS, SEEDS = ["none", "learned", "sinusoidal", "ALiBi", "rotary"], [0] if QUICK else [0, 1, 2]
LENGTHS = [10, 15, 20, 25, 30, 40, 50, 60]
readers = {kind: [train_reader(kind, seed) for seed in SEEDS] for kind in KINDS}
reached = {kind: np.array([[accuracy(reader, n) for n in LENGTHS] for reader in readers[kind]])
           for kind in KINDS}                                  # accuracy at the last word, (seeds, lengths) each
mean_at = {(kind, n): reached[kind][:, LENGTHS.index(n)].mean() for kind in KINDS for n in LENGTHS}
for kind, n, lo, hi in [("learned", 10, 0.9, 1), ("learned", 20, 0.6, 0.95), ("sinusoidal", 10, 0.9, 1),
                        ("sinusoidal", 20, 0.6, 0.95), ("ALiBi", 60, 0.9, 1), ("rotary", 20, 0.9, 1),
                        ("rotary", 30, 0.85, 1), ("rotary", 60, 0.05, 0.3)]:
    measure(f"{kind}, {n} words", mean_at[kind, n], lo, hi)
for kind, n, lo, hi in ("learned", 40, -0.35, -0.05), ("sinusoidal", 40, -0.3, -0.02), ("rotary", 60, -0.35, -0.05):
    measure(f"{kind} less none, {n} words", mean_at[kind, n] - mean_at["none", n], lo, hi)

# %% The figure
figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
looks = {"none": (":", "#666666"), "learned": ("-.", DARK), "sinusoidal": ("--", DARK), "ALiBi": ("-", DARK),
         "rotary": ("-", ACCENT)}
for kind, (style, colour) in looks.items():
    axes.plot(LENGTHS, reached[kind].mean(axis=0), ls=style, color=colour, lw=2, label=kind)
    axes.fill_between(LENGTHS, reached[kind].min(axis=0), reached[kind].max(axis=0), color=colour, alpha=0.12, lw=0)
axes.axvline(20, color="#888888", lw=0.8)
axes.text(20.5, 0.03, "longest of training", color="#444444")
axes.set(xlabel="words in the sequence", ylabel="accuracy at the last word", ylim=(0, 1.05))
axes.set_title("The latest name, after training on 5 to 20 words (mean and range of the seeds)")
axes.legend(loc=(0.8, 0.5))
show(figure, "10_latest_name", alt="Accuracy against length, 10 to 60 words, for five kinds of positions. At 10 "
     "words learned, sinusoidal, ALiBi and rotary are above 0.9, none is near 0.7. From 40 words on learned and "
     "sinusoidal are near 0.3, below none, which falls from 0.5 to 0.4. Rotary stays near 0.95 up to 30 and falls to "
     "0.2 at 60, below all others. ALiBi stays at 0.95.")

# %% [markdown]
# - **Learned and sinusoidal** both fall, the table a little deeper. It begins within the lengths of training, at 20
#   words, a length that one step in sixteen had. At 40 words both are worse than the model **without positions**: to
#   read a sinusoid out there is worse than to read nothing.
# - **Rotary** goes on for a while and then falls, too, in the end below *none*.
# - **ALiBi** holds, at three times the length.
#
# ## Experiment 2: what stops the rotary model?
#
# Rotary scores cannot see the place. But a sequence of 60 words has distances that training never had, and three times
# as many keys in one softmax. Which of the two is it? Take the trained rotary models, and let each key that is further
# away than 19 count as if it stood at 19. The number of keys stays, no distance is new.

# %%
class NoNewDistances(RotaryAttention):
    """As trained; but to some pairs of components no key seems further from the last query than 19."""

    def __init__(self, *pairs):
        super().__init__()
        self.pairs = pairs

    def forward(self, q, k, v, mask=Mask(), rng=None):
        S = k.shape[1]
        turned, nearer = (rotated(k, where) for where in (np.arange(S), np.maximum(np.arange(S), S - 20)))
        for i in self.pairs:
            turned[..., 2 * i:2 * i + 2] = nearer[..., 2 * i:2 * i + 2]
        return ScaledDotProductAttention.forward(self, rotated(q, np.arange(S)), turned, v, mask)


def without_new_distances(*pairs):
    """Accuracy at 60 words, and the weight on the 20 keys that are furthest away: means over the seeds."""
    found = []
    for reader in readers["rotary"]:
        reader.attention.attention = NoNewDistances(*pairs)
        _, cache = reader.forward(latest_name(np.random.default_rng(7), 200, 60)[0])
        [weights] = attention_weights(cache)                                       # (B, H, T, S)
        found.append((accuracy(reader, 60), weights[:, :, -1, :20].sum(axis=-1).mean()))
    return np.mean(found, axis=0)


for words, pairs, right, far in (("as it is", (), (0.05, 0.3), (0.6, 1)),
                                 ("no new distance", (0, 1, 2, 3), (0.85, 1), (0, 0.25)),
                                 ("no new distance for pair 1", (1,), (0.85, 1), (0, 0.25)),
                                 ("no new distance for pairs 0, 2 and 3", (0, 2, 3), (0.05, 0.3), (0.6, 1))):
    accurate, weight = without_new_distances(*pairs)
    measure(f"60 words, {words}: accuracy", accurate, *right)
    measure("    weight on the 20 keys furthest away", weight, *far)
omega_1 = 10000 ** (-2 / 8)
measure("pair 1 comes round after so many places", 2 * math.pi / omega_1, 62, 63)
measure("    and in training it made so much of a turn", 19 * omega_1 / (2 * math.pi), 0.30, 0.31)

# %% [markdown]
# It is the **distances**: with as many keys as before, but no new distance, the model is nearly as good at 60 words as
# at 20. And it is one pair of the four. In training pair 1 made less than a third of a turn, far enough to tell near
# from far. At distance 60 it points nearly where it pointed at 0, and the model takes the oldest words for the nearest:
# that is where its weight is, and why it is worse than the model without positions.
#
# It is the trouble of the sinusoids once more, one floor higher: not unseen places, but unseen distances. Later work
# scales the angles down, so that new distances look like old ones (Chen et al. 2023, "Extending Context Window of Large
# Language Models via Positional Interpolation").
#
# ALiBi has no such trouble: at a new distance its penalty is larger than ever before, so the key counts less than ever.
# For *the latest name* that is right. It is a prejudice all the same: the task suits it, and this page has none in
# which a far word should outweigh a near one.
#
# ## Experiment 3: a translator
#
# The library's Transformer with the sizes of the preset `tiny`, trained for 600 steps on the bundled corpus with each
# kind of positions, with two seeds (rotary and ALiBi in self-attention; a table of 128 rows), by
# [benchmarks/longer.py](../benchmarks/longer.py). Two more variants have sinusoids and are controls. In *random start*,
# each batch begins at a position drawn from 0 to 63, so that every position of `test_long` is met in training, but no
# long sentence. In *long ones too*, 1,000 of 21,000 sentences of training are made as those of `test_long` are.
#
# Before you open the table: which of the six comes nearest on `test_long` to its loss on `test`?

# %% The table
rows = {row["variant"]: row["runs"] for row in result["results"]}


def over_seeds(name, what="test_long"):
    return np.array([run[what] for run in rows[name]])         # (seeds,) or (seeds, values)


print(f"{'seed':26}{'0':^32}{'1':^32}\n{'':26}" + f"{'test':>6}{'test_long':>10}{'BLEU':>6}{'long':>6}    " * 2)
for name, runs in rows.items():
    print(f"{name:26}" + "    ".join(f"{run['test']:6.2f}{run['test_long']:10.2f}{run['bleu']['test']:6.0f}"
                                     f"{run['bleu']['test_long']:6.0f}" for run in runs))

# %%
OF_FOUR = ["learned", "sinusoidal", "alibi", "rotary"]
bleu = {name: [run["bleu"]["test_long"] for run in rows[name]] for name in OF_FOUR}
measure("four kinds: least rise from test to test_long",
        min((over_seeds(name) - over_seeds(name, "test")).min() for name in OF_FOUR), 1.7, 2.1)
for name, lo, hi in (("learned", -0.4, 0), ("alibi", -0.4, 0), ("rotary", -0.8, -0.3),
                     ("sinusoidal, random start", -0.2, 0.2), ("sinusoidal, long ones too", -1.5, -0.8)):
    measure(f"test_long: {name}, less sinusoidal", (over_seeds(name) - over_seeds("sinusoidal")).mean(), lo, hi)
measure("    rotary less the best of the other three, the worse seed",
        (over_seeds("rotary") - np.min([over_seeds(name) for name in OF_FOUR[:3]], axis=0)).max(), -0.6, -0.1)
measure("BLEU on test_long: range of the four means", np.ptp([np.mean(bleu[name]) for name in OF_FOUR]), 1, 4)
measure("    rotary: between its two seeds", np.ptp(bleu["rotary"]), 4, 6)
for name, lo, hi in ("sinusoidal", 0.9, 1.2), ("sinusoidal, random start", -0.1, 0):
    losses = over_seeds(name, "test_shifted")                  # (seeds, 4): begun at 0, 5, 20, 50
    measure(f"test, begun at 5 less begun at 0: {name}", (losses[:, 1] - losses[:, 0]).mean(), lo, hi)

# %% [markdown]
# - **Sinusoids do not extrapolate here**, and the table, whose rows from 34 on are still random, is no worse.
# - **ALiBi and rotary positions do not either.** By the loss rotary is the best of the four for both seeds, and still
#   far from its loss on `test`. By BLEU (of 60 sentences) the four means are closer together than rotary's two seeds.
# - **To have met the positions is not enough.** With random starts a move by 5 costs nothing, so the defect of the
#   first cells is mended; on `test_long` nothing is gained. (It has a price: after as many steps, the loss on `test`
#   is higher. Whether more steps would gain something, we have not tested.)
# - **Long sentences in training help most**: 5 % of them take off more than any change of positions. They teach the
#   model long sentences and, in this corpus, sentences of three or four main clauses; the others have one or two. We
#   have not separated the two.
#
# So in experiment 1, where nothing but the number of words was new, positions decided. In translation more is new than
# that, and positions alone do not help. These are small models, briefly trained; the model of the first cells, trained
# for longer, has the same gap.
#
# ## Paper and code
#
# - §3.5: sinusoids and a learned table gave "nearly identical results" (Table 3, row E), on the usual test sentences.
#   The paper does not test extrapolation; it says "may". Press, Smith and Lewis (2022) did, with language models:
#   sinusoids reach a few dozen tokens beyond training.
# - The paper's other hope is that a model easily learns "to attend by relative positions". Lesson 09 found a matrix
#   for it. Where every sentence begins at 0, nothing in the loss asks for it, and the model of the first cells does not
#   go by distances alone.
# - In the library: `PositionalEncoding` and `LearnedPositions` in [nn/layers.py](../scratchformer/nn/layers.py), chosen
#   by `positions`; a table has `max_positions` rows, and the translator refuses a longer sentence by name. Rotary
#   positions and ALiBi are not the paper's; they are in [library/positions.py](../lessons/library/positions.py), with
#   [tests](../tests/lessons/library/test_positions.py), and replace the attention inside `SelfAttention`.
# - *Differs:* Su et al. pair neighbouring components, as here; some public code pairs component $i$ with
#   component $i + d_k/2$. One becomes the other by reordering the columns of $W_Q$ and $W_K$, so they train alike, but
#   their weights cannot be exchanged.
# - *Differs:* ALiBi's paper has causal language models only; the penalty on both sides, for an encoder, is ours. Left
#   and right cost the same, so a source and its mirror image could not be told apart, but for the `</s>` at its end:
#   that stays where it is, and gives the direction (there is a test for both).
#
# ## Exercises
#
# `scratchformer learn check 10` looks at your answers and says what is wrong with them.
#
# **Predict.** A rotary model reads a sentence as if it began at position 1,000. What changes? And what, if someone
# turns the *values* as well as queries and keys?
#
# <details><summary>Answer</summary>
#
# Nothing, but for rounding: all distances are the same. With turned values it does change:
# $y_t = \sum_s w_{ts} R_s v_s$ turns with the place, although the weights do not.
#
# </details>
#
# **Build** `10_rope`: turn the vectors of all heads by their positions.
#
# **Backward** `10_rope_backward`: from the gradient of the scores back through the rotation.
#
# **Build** `10_alibi`: the penalty of all heads, the last $T$ of $S$ positions asking.
#
# **Break** `10_shift_test`: write the shift test. It is tried on scores that know distances only, and on scores that
# know places and hide it.
#
# ## Next
#
# Attention moves vectors from place to place, and mixes them. What is done to a vector once it has arrived is the other
# half of a layer: [lesson 11](11_feed_forward.py). The paper's own words on positions are in section 3.5 of [its arXiv
# page](https://arxiv.org/abs/1706.03762); rotary positions are [arXiv 2104.09864](https://arxiv.org/abs/2104.09864),
# ALiBi [arXiv 2108.12409](https://arxiv.org/abs/2108.12409).
