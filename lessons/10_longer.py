# %% [markdown]
# # 10 · Longer than training
#
# *About 40 minutes. You need: [lesson 05](05_scaling.py) (scores), [lesson 06](06_masks.py) (causal attention), [lesson
# 07](07_many_heads.py) (heads), [lesson 09](09_positions.py) (sinusoids), and for the trained model [lesson
# 00](00_whole_game.py). You will have: two later ways to say where a word stands, rotary positions and ALiBi, with
# their backward passes, and a measured answer to a hope of the paper's.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.attention import Mask, ScaledDotProductAttention, SelfAttention, attention_weights
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Embedding, LearnedPositions, PositionalEncoding, Unembedding, sinusoids
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Layer, ParameterStore
from scratchformer.nn.transformer import PostNorm, Transformer
from scratchformer.study.exercises.numeric import numeric_gradient
from scratchformer.study.figures import ACCENT, COLOUR_MAP, DARK
from scratchformer.study.lesson import QUICK, ROOT, measure, recorded, same, show
from scratchformer.study.positions import (
    AlibiAttention,
    NoPositions,
    RotaryAttention,
    Shifted,
    alibi_bias,
    give_positions,
    is_relative,
    rotated,
    token_losses,
)
from scratchformer.text.batches import encode_pairs
from scratchformer.text.corpora import Pairs, read_pairs
from scratchformer.training.run import load_run

# %% [markdown]
# ## Question
#
# **The paper chose sinusoids over a learned table because they "may allow the model to extrapolate to sequence lengths
# longer than the ones encountered during training" (§3.5). Do they?**
#
# A sinusoid has a value at position 1,000, and a learned table has not. But a value is not yet an understanding of it.
# Here is the trained model of lesson 00, which has sinusoids, on two test sets: `test`, of the lengths of training, and
# `test_long`, whose sentences have more words than any in training (200 sentences of each). The loss is per piece of
# the German reference, in nats, the model reading the reference as it does in training.

# %% The model and the two test sets
translator = load_run(ROOT / "data/tiny_model")
model = translator.model


def read(split, at_most=200):
    """-> the first pairs of a test set, as text and as ids"""
    pairs = read_pairs(ROOT / f"data/tiny/{split}.en", ROOT / f"data/tiny/{split}.de")
    pairs = Pairs(pairs.source[:at_most], pairs.target[:at_most], pairs.line_numbers[:at_most], 0)
    return pairs, encode_pairs(translator.tokenizer.encode, pairs, 256, 4096)


(_, test), (long_text, test_long) = read("test"), read("test_long")
result = recorded("longer")                                    # of experiment 3, and some facts of the corpus

# %%
measure("pieces of the longest sentence of training", result["longest_in_training"], 34, 34)
measure("pieces of the longest sentence of test_long", test_long.lengths.max(), 62, 62)
for name, pairs, lo, hi in ("test", test, 0.05, 0.15), ("test_long", test_long, 1.6, 2.4):
    measure(f"loss on {name}", token_losses(model, pairs)[0].mean(), lo, hi)
print(f"\n{long_text.source[1]}\n    {translator.translate(long_text.source[1:2], beam=1)[0]}")

# %% [markdown]
# They do not, here: the loss is twenty times as high, and the translation loses its way in the first clause. But long
# sentences could be hard for reasons that have nothing to do with positions. So a control: the *same short sentences*
# of `test`, of the same length, as if some words stood before them. All positions begin at 5 instead of 0, on both
# sides; or at 10, and so on. Nothing else is changed.

# %%
def loss_when_moved(model, pairs, first):
    """As if `first` words stood before every sentence, source and target."""
    before = model.source_positions, model.target_positions
    model.source_positions, model.target_positions = (Shifted(positions, first) for positions in before)
    loss = token_losses(model, pairs)[0].mean()
    model.source_positions, model.target_positions = before
    return loss


measure("begun at 5: the last position of any sentence of test, from 0", 5 + test.lengths.max() - 1, 25, 33)
for first, lo, hi in (0, 0.05, 0.15), (5, 0.5, 1.2), (10, 1, 1.8), (20, 0.9, 1.7), (50, 0.8, 1.6):
    measure(f"loss on test, begun at {first:2}", loss_when_moved(model, test, first), lo, hi)

# %% [markdown]
# Five places to the right, and the loss is eight times as high. **Not one position of it is new**: training went up to
# position 33, and these sentences end before it. The distances between the words are the old ones, too. What is new is
# a sentence that begins at 5. The model has learned what it met, and every sentence of training began at 0.
#
# So the answer in one sentence: *no, a formula that has values further out does not teach a model what to do with them;
# scores that depend on the distance of two words alone survive a move of the whole sentence, and only that.* What new
# distances do to them is the rest of this page.
#
# ## The idea in one picture
#
# What do positions alone add to the scores of 60 queries and 60 keys? On the left the sinusoids $p_t$ without any
# words, through the query and key matrices of a head of the trained model. In the middle ALiBi, which takes off the
# more, the further a key is away. On the right rotary positions: query and key are the same vector everywhere, turned
# by an angle that grows with the position.

# %% The figure
n_shown, K = 60, 32
W = model.encoder.layers[0].self_attention.sublayer.qkv.weight.data.astype("float64")          # (D, 3 H d_k)
W_Q, W_K = ([W[:, start + head * K:start + (head + 1) * K] for head in range(4)] for start in (0, 128))
P = sinusoids(0, n_shown, 128)
twin = np.ones((1, n_shown, 1, K))
turned = rotated(twin, np.arange(n_shown))[0, :, 0]
maps = {"sinusoids, a trained head": P @ W_Q[2] @ (P @ W_K[2]).T / math.sqrt(K), "ALiBi": alibi_bias(60, 60, 4)[1],
        "rotary": turned @ turned.T / math.sqrt(K)}
figure, panels = plt.subplots(1, 3, figsize=(8.5, 3.4), sharey=True, layout="constrained")
for panel, (name, scores) in zip(panels, maps.items()):
    panel.imshow(scores, COLOUR_MAP)
    panel.add_patch(plt.Rectangle((-0.5, -0.5), 34, 34, fill=False, edgecolor="white", lw=2, ls="--"))
    panel.set(title=name, xlabel="position of the key")
    figure.colorbar(panel.images[0], ax=panel, orientation="horizontal", label="added to the score")
panels[0].set_ylabel("position of the query")
show(figure, "10_scores", alt="Three maps, positions of 60 queries by positions of 60 keys; a dashed square marks "
     "the 34 positions of training. Sinusoids through a trained head: blocks and bands, with hardly a line along the "
     "diagonals; outside the square other bands follow. ALiBi: 0 on the diagonal, falling evenly to both sides. "
     "Rotary: stripes along the diagonals, the same at every place.")

# %% [markdown]
# Move along a diagonal, down and to the right: the distance stays the same, the place changes. In the two maps on the
# right nothing changes either. On the left it does, and outside the dashed square, which training never saw, it goes on
# in a way that nobody asked for. (A learned table has nothing there at all.)
#
# ## The equation, and the same in code
#
# **Added positions.** A query is $(x_t + p_t) W_Q$ and a key $(x_s + p_s) W_K$, so a score is a sum of four terms:
#
# $$x_t M x_s^T + x_t M p_s^T + p_t M x_s^T + p_t M p_s^T, \qquad M = W_Q W_K^T$$
#
# The last one depends on positions alone. Lesson 09 found $p_t p_s^T = \sum_i \cos((t - s) \theta_i)$ for sinusoids: a
# function of the distance. But that is the case $M = 1$, the unit matrix, and $M$ is learned. Any other $M$ may bring
# in the place.
#
# **Rotary positions** (RoPE; Su et al. 2021) add nothing to the words. They take the channels of each query and key in
# pairs, points $(a, b)$ in a plane, and turn pair $i$ at position $p$ by the angle $p \theta_i$, with the frequencies
# of the sinusoids, $\theta_i = 10000^{-2i/d_k}$:
#
# $$R_p \, (a, b) = (a \gamma - b \sigma, \; a \sigma + b \gamma)$$
#
# with $\gamma = \cos p\theta_i$ and $\sigma = \sin p\theta_i$.
#
# Turning keeps lengths: $(a\gamma - b\sigma)^2 + (a\sigma + b\gamma)^2 = (a^2 + b^2)(\gamma^2 + \sigma^2) = a^2 + b^2$.
# Turning back by the same angle is the transpose of the matrix, $R_p^T = R_{-p}$, and angles add up,
# $R_p R_r = R_{p+r}$. With $q$ and $k$ as columns, a score of turned vectors is hence
#
# $$\langle R_t q, R_s k \rangle = q^T R_t^T R_s k = q^T R_{s-t} k$$
#
# Places have dropped out, and **whatever $W_Q$ and $W_K$ become, the distance is all that is left**. That is why the
# rotation comes after the projections and not before: between the two, $M$ would undo it.
#
# **ALiBi** (attention with linear biases; Press, Smith and Lewis 2022) leaves query and key alone, too, and takes
# something off the scaled score, in head number $j$ of $h$:
#
# $$z_{ts} = \frac{q_t \cdot k_s}{\sqrt{d_k}} - m_j \, \vert t - s \vert, \qquad m_j = 2^{-8j/h}, \; j = 1 \dots h$$
#
# The slopes $m_j$ are chosen and stay as they are. A head with a steep one sees its neighbourhood, a head with a flat
# one nearly everything.

# %%
def turn(x, positions):
    """x (T, d_k), positions (T,) -> (T, d_k): each pair of channels turned by its angle"""
    theta = 10000.0 ** (-np.arange(0, x.shape[1], 2) / x.shape[1])                 # (d_k/2,)
    cos, sin = np.cos(positions[:, None] * theta), np.sin(positions[:, None] * theta)          # (T, d_k/2)
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
# an ALiBi head see? $-m d$ in a score is a factor $e^{-md}$ in the weight, which is a half at the distance $\ln 2 / m$.

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
for m, d in zip(-penalty(1, 2, h)[:, 0, 0], (2.8, 11.1, 44.4, 177.4)):
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
# **ALiBi.** The bias is a constant added to a score. The score passes on its gradient with the factor 1, and the
# constant takes none: backward of attention stays as it is (the library's `AlibiAttention` has a forward of its own and
# inherits its backward). What if the slope were learned? Then $m$ would reach every score of its head, and
# $dm = -\sum_{ts} dz_{ts} \vert t - s \vert$. All these distances come from training. The loss has no opinion on how
# strongly a distance of 50 should count if there is none, and a slope fitted to short sentences may be anything there.
# Press et al. report that learned slopes did not extrapolate well; we have not tested it.
#
# **A learned table.** $y_t = x_t + P_t$, so $dP_t$ is the sum of $dy_t$ over the batch. A row whose position does not
# occur gets exactly 0: it keeps the random numbers that it began with. Beyond the table there is no row.

# %%
def turn_backward(dturned, positions):
    """dturned (T, d_k) -> dx (T, d_k)"""
    return turn(dturned, -positions)


table = LearnedPositions(64, d_k, random, "float64")
_, cache = table.forward(random.normal(size=(3, 20, d_k)))
table.backward(random.normal(size=(3, 20, d_k)), cache)
measure("a table of 64 rows, sentences of 20: rows with a gradient", int(table.weight.grad.any(axis=1).sum()), 20, 20)
try:
    table.forward(np.zeros((1, 65, d_k)))
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
# Relative is not yet enough to read. ALiBi's penalty is the same to the left and to the right. In an encoder without a
# causal mask nothing else tells the two apart, and cross-attention, which has no positions of its own, sees the
# encoder's vectors as a set. So swap the sentence end for end; the German that is being written stays.

# %%
config = ModelConfig(vocab_size=40, N=2, d_model=16, d_ff=24, h=h, P_drop=0.0)
source, target = random.integers(5, 40, (2, 9)), random.integers(5, 40, (2, 6))
for kind, lo, hi in ("alibi", 0, 1e-12), ("rotary", 0.01, 5):
    translates = Transformer(config, seed=0, dtype="float64")
    give_positions(translates, kind)
    change = translates.forward(source[:, ::-1], target)[0] - translates.forward(source, target)[0]
    measure(f"{kind}: source read backwards, scores of the next word change by", np.abs(change).max(), lo, hi)

# %% [markdown]
# To this encoder, *dog bites man* is *man bites dog*. ALiBi was made for language models, which have a causal mask:
# there all keys lie behind, and the mask gives the direction.
#
# ## Experiment 1: train on 20 words, test on 60
#
# A task of one line: some words of a sequence are names, one in five. At each place, say the **latest name** so far.
# There are 8 names and 11 other words. It needs the order, of names only, at any distance. The model has one causal
# attention, four heads of $d_k = 8$, and differs in its positions alone: none, a learned table of 64 rows, sinusoids,
# ALiBi, rotary. It is trained on 5 to 20 words, and asked for the name at the last word of up to 60.

# %% The task and the model
V, NAMES, LENGTHS = 20, 9, [10, 15, 20, 25, 30, 40, 50, 60]
IN_ATTENTION = {"ALiBi": AlibiAttention, "rotary": RotaryAttention}


def latest_name(random, B, n):
    """-> words (B, n), the latest name at each place (B, n); the names are the ids 1 to 8"""
    is_name = random.random((B, n)) < 0.2
    is_name[:, 0] = True
    ids = np.where(is_name, random.integers(1, NAMES, (B, n)), random.integers(NAMES, V, (B, n)))
    latest = np.maximum.accumulate(np.where(is_name, np.arange(n), 0), axis=1)
    return ids, np.take_along_axis(ids, latest, axis=1)


def two_back(random, B, n):
    """-> words (B, n), the word two places before each (B, n); 0, which counts for nothing, where there is none"""
    ids = random.integers(1, V, (B, n))
    return ids, np.concatenate([np.zeros((B, 2), int), ids[:, :-2]], axis=1)


class Reader(Layer):
    """words (B, n) -> scores of the answers (B, n, V): one causal attention with a way around it."""

    def __init__(self, kind, seed, d_model=32, h=4):
        random = np.random.default_rng(seed)
        config = ModelConfig(vocab_size=V, d_model=d_model, h=h, P_drop=0.0)
        E = Embedding.new_weight(V, d_model, random, "float32")
        positions = {"learned": lambda: LearnedPositions(64, d_model, random), "sinusoidal": PositionalEncoding}
        attention = SelfAttention(d_model, h, random)
        attention.attention = IN_ATTENTION.get(kind, ScaledDotProductAttention)()
        self.stack = [Embedding(E), positions.get(kind, NoPositions)(), PostNorm(attention, config, "float32"),
                      Unembedding(E)]
        self.store = ParameterStore(self.parameters())

    def forward(self, x, rng=None):
        caches = []
        for layer in self.stack:
            x, cache = layer.forward(x, Mask(causal=True)) if isinstance(layer, PostNorm) else layer.forward(x)
            caches.append(cache)
        return x, caches

    def backward(self, dx, caches):
        for layer in reversed(self.stack):
            dx = layer.backward(dx, caches.pop())


# %%
def train_reader(kind, task, seed, steps=200):
    reader, random = Reader(kind, seed), np.random.default_rng(seed + 100)
    optimizer = Adam(reader)
    for step in range(1, steps + 1):
        ids, answers = task(random, 16, random.integers(5, 21))
        logits, cache = reader.forward(ids)
        _, n_answers, dlogits = cross_entropy(logits, answers)
        reader.zero_grad()
        reader.backward(dlogits / n_answers, cache)
        optimizer.step(0.015 * min(1, step / 30, (steps - step + 1) / 100))
    return reader


def accuracy(reader, task, n):
    """Share of 200 sequences of n words whose last answer is right."""
    ids, answers = task(np.random.default_rng(7), 200, n)
    return (reader.forward(ids)[0][:, -1].argmax(axis=-1) == answers[:, -1]).mean()


KINDS, SEEDS = ["none", "learned", "sinusoidal", "ALiBi", "rotary"], [0] if QUICK else [0, 1, 2]
readers = {kind: [train_reader(kind, latest_name, seed) for seed in SEEDS] for kind in KINDS}
reached = {kind: np.array([[accuracy(reader, latest_name, n) for n in LENGTHS] for reader in readers[kind]])
           for kind in KINDS}                                                      # (seeds, lengths) each
print("accuracy at the last word, mean of the seeds")
print(f"{'words':12}" + "".join(f"{n:6}" for n in LENGTHS))
for kind, values in reached.items():
    print(f"{kind:12}" + "".join(f"{value:6.2f}" for value in values.mean(axis=0)))
accuracy_at = {(kind, n): reached[kind][:, LENGTHS.index(n)] for kind in KINDS for n in LENGTHS}
for kind, n, lo, hi in [("learned", 10, 0.9, 1), ("learned", 40, 0.2, 0.45), ("sinusoidal", 10, 0.9, 1),
                        ("sinusoidal", 20, 0.55, 0.85), ("sinusoidal", 40, 0.2, 0.45), ("rotary", 20, 0.9, 1),
                        ("rotary", 30, 0.9, 1), ("rotary", 60, 0.05, 0.3), ("ALiBi", 60, 0.85, 1)]:
    measure(f"{kind}, {n} words", accuracy_at[kind, n].mean(), lo, hi)
for kind, n, lo, hi in ("learned", 40, -0.2, 0.05), ("sinusoidal", 40, -0.2, 0.05), ("rotary", 60, -0.3, 0):
    measure(f"{kind} less none, {n} words", (accuracy_at[kind, n] - accuracy_at["none", n]).mean(), lo, hi)

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
axes.legend(loc=(0.8, 0.42))
show(figure, "10_latest_name", alt="Accuracy against length, 10 to 60 words, for five kinds of positions. Up to 10 "
     "words learned, sinusoidal, ALiBi and rotary are above 0.9, none is near 0.65. From 25 words on learned "
     "and sinusoidal are where none is, at 0.3 to 0.4. Rotary stays above 0.9 up to 30 and falls to 0.2 at 60, below "
     "none. ALiBi stays above 0.9.")

# %% [markdown]
# - **Learned and sinusoidal** fall alike. It begins within the lengths of training, where the last positions are rare:
#   only one sequence in sixteen has 20 words. At 40 words both are no better than the model **without positions**. That
#   sinusoids have values there makes no difference.
# - **Rotary** goes on for a while and then falls, too.
# - **ALiBi** holds, at three times the length.
#
# ## Experiment 2: what stops the rotary model?
#
# Rotary scores cannot see the place. But a sequence of 60 words has distances that training never had, and it has three
# times as many keys in one softmax. Which of the two is it? Take the trained rotary models, and let each key that is
# further away than 19 count as if it stood at 19. The number of keys stays, no distance is new.

# %%
class NoNewDistances(RotaryAttention):
    """As trained; but to some pairs of channels no key seems further from the last query than 19."""

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
        reader.stack[2].sublayer.attention = NoNewDistances(*pairs)
        _, cache = reader.forward(latest_name(np.random.default_rng(7), 200, 60)[0])
        [weights] = attention_weights(cache)                                       # (B, H, T, S)
        found.append((accuracy(reader, latest_name, 60), weights[:, :, -1, :20].sum(axis=-1).mean()))
    return np.mean(found, axis=0)


for words, pairs, right, far in (("as it is", (), (0.05, 0.3), (0.6, 1)),
                                 ("no new distance", (0, 1, 2, 3), (0.85, 1), (0, 0.25)),
                                 ("no new distance for pair 1", (1,), (0.85, 1), (0, 0.25)),
                                 ("no new distance for pairs 0, 2 and 3", (0, 2, 3), (0.05, 0.3), (0.6, 1))):
    accurate, weight = without_new_distances(*pairs)
    measure(f"60 words, {words}: accuracy", accurate, *right)
    measure("    weight on the 20 keys furthest away", weight, *far)
measure("pair 1 comes round after so many places", 2 * math.pi / 10000 ** (-2 / 8), 62, 63)

# %% [markdown]
# It is the **distances**: with as many keys as before, but no new distance, the model is nearly as good at 60 words as
# at 20. And it is one pair of the four. Pair 1 turns by a tenth at each place and comes round after 63. In training it
# made less than a third of a turn, far enough to tell near from far. At distance 60 it points where it pointed at 0,
# and the model takes the oldest words for the nearest: that is where its weight is, and why it is worse than the model
# without positions.
#
# It is the trouble of the sinusoids once more, one floor higher: not unseen places, but unseen distances. Later methods
# that lengthen the reach of trained rotary models scale the angles down, so that new distances look like old ones (Chen
# et al. 2023, "Extending Context Window of Large Language Models via Positional Interpolation"); the clamp of this cell
# is a crude cousin.
#
# ALiBi had no such trouble: at a new distance its penalty is larger than ever before, so the key counts less than ever,
# and the attention is about as wide as in training. For *the latest name* that is right. It is a prejudice, and it can
# be wrong. **A control with another task**: say the word *two places back*. What is asked for is no longer the nearest,
# but one exact distance.

# %%
for kind, bands in ("rotary", [(0.9, 1), (0.9, 1)]), ("ALiBi", [(0.1, 0.4), (0.1, 0.4)]):
    backward_readers = [train_reader(kind, two_back, seed) for seed in SEEDS[:2]]
    for n, (lo, hi) in zip((10, 20), bands):
        measure(f"two back: {kind}, {n} words", np.mean([accuracy(reader, two_back, n) for reader in backward_readers]),
                lo, hi)

# %% [markdown]
# Now ALiBi fails *within* the lengths of training, where rotary positions are nearly perfect. Of two keys with the same
# word, a head with a penalty that only grows always prefers the nearer. Which positions carry further depends on what
# is asked.
#
# ## Experiment 3: a translator
#
# The library's Transformer with the sizes of the preset `tiny`, trained for 600 steps on the bundled corpus with each
# kind of positions, with two seeds (rotary and ALiBi in self-attention; a table of 128 rows). Two more variants have
# sinusoids and are controls. In *random start*, each batch begins at a position drawn from 0 to 63, so that every
# position of `test_long` is met in training, but no long sentence. In *long ones too*, 1,000 of 21,000 sentences of
# training are made as those of `test_long` are, so that both are met. A part of the reasons for failure goes away with
# each.
#
# Before you open the table: which of the six comes nearest on `test_long` to its loss on `test`?

# %% The table
rows = {row["variant"]: row["runs"] for row in result["results"]}
print(f"seeds: {len(result['seeds'])}. Loss in nats per piece, and BLEU of greedy translations, means")
print(f"{'':28}{'test':>6}{'test_long':>11}{'BLEU':>8}{'on test_long':>14}")
for name, runs in rows.items():
    print(f"{name:28}{np.mean([run['test'] for run in runs]):6.2f}{np.mean([run['test_long'] for run in runs]):11.2f}"
          f"{np.mean([run['bleu']['test'] for run in runs]):8.0f}"
          f"{np.mean([run['bleu']['test_long'] for run in runs]):14.0f}")


# %%
def over_seeds(name, what="test_long"):
    return np.array([run[what] for run in rows[name]])         # (seeds,) or (seeds, values)


OF_FOUR = ["learned", "sinusoidal", "alibi", "rotary"]
measure("four kinds: highest loss on test", max(over_seeds(name, "test").max() for name in OF_FOUR), 0.4, 0.7)
measure("four kinds: lowest loss on test_long", min(over_seeds(name).min() for name in OF_FOUR), 2, 2.6)
bleu = {name: np.mean([run["bleu"]["test_long"] for run in runs]) for name, runs in rows.items()}
measure("four kinds: BLEU on test_long, lowest", min(bleu[name] for name in OF_FOUR), 5, 8)
measure("four kinds: BLEU on test_long, highest", max(bleu[name] for name in OF_FOUR), 8, 11)
measure("long ones too: BLEU on test_long", bleu["sinusoidal, long ones too"], 15, 25)
first_ten = over_seeds("sinusoidal", "test_long_by_position")[:, 0]
measure("sinusoidal, first ten pieces of test_long: lowest", first_ten.min(), 0.9, 2)
for name, lo, hi in (("learned", -0.4, 0), ("alibi", -0.4, 0), ("rotary", -0.8, -0.3),
                     ("sinusoidal, random start", -0.2, 0.2), ("sinusoidal, long ones too", -1.5, -0.8)):
    measure(f"test_long: {name}, less sinusoidal", (over_seeds(name) - over_seeds("sinusoidal")).mean(), lo, hi)
measure("test_long: rotary less the best of the other three, for each seed, highest",
        (over_seeds("rotary") - np.min([over_seeds(name) for name in OF_FOUR[:3]], axis=0)).max(), -0.6, -0.1)
starts = over_seeds("sinusoidal, random start", "test_shifted")                    # (seeds, 4): begun at 0, 5, 20, 50
measure("random start, test begun at 0, 5, 20, 50: spread of the loss", np.ptp(starts, axis=1).max(), 0, 0.2)
measure("sinusoidal: the same", np.ptp(over_seeds("sinusoidal", "test_shifted"), axis=1).min(), 0.7, 2.5)

# %% The figure
figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
for y, name in enumerate(rows):
    on_test, on_long = over_seeds(name, "test"), over_seeds(name)
    axes.plot([on_test.mean(), on_long.mean()], [y, y], "-", color="#aaaaaa", zorder=1)
    axes.plot(on_test, np.full(len(on_test), y), "o", color=DARK, label="" if y else "test")
    axes.plot(on_long, np.full(len(on_long), y), "s", color=ACCENT, label="" if y else "test_long")
axes.set_yticks(range(len(rows)), rows)
axes.invert_yaxis()
axes.set(xlabel="nats per piece", xlim=(0, 4), title="Six translators, each seed a mark: loss on test and test_long")
axes.legend(loc="center right")
show(figure, "10_translators", alt="Loss of six translators on test and test_long, a mark for each of two seeds. On "
     "test all are near 0.5 but the one with random starts, near 0.7. On test_long learned, sinusoidal, ALiBi and "
     "random start lie between 2.6 and 3.1, rotary between 2.3 and 2.6, and sinusoids trained on long sentences too "
     "near 1.8.")

# %% [markdown]
# - **Sinusoids do not extrapolate here**, and the table of random rows is no worse.
# - **ALiBi and rotary positions do not either.** By the loss rotary is the best of the four for both seeds, and far
#   from its loss on `test`; by BLEU (of 60 sentences) the four lie together. With sinusoids, the trouble begins with
#   the first ten pieces of the German, whose positions the model knows well.
# - **Unseen positions are not the main reason.** With random starts the loss on `test` is the same wherever it begins,
#   so the defect of the first cells is mended; on `test_long` nothing is gained. (It costs something: after as many
#   steps, the loss on `test` is higher. Whether more steps would gain something, we have not tested.)
# - **Long sentences in training help most**: 5 % of them take off more than any change of positions. They teach the
#   model long sentences and, in this corpus, sentences of three or four clauses, which no ordinary one has. We have not
#   separated the two.
#
# So in the task of experiment 1, where nothing but the number of words was new, positions decided; in translation more
# is new than that, and positions alone do not help.
#
# ## Check the claim
#
# > Since $p_{t+k}$ is a linear function of $p_t$, sinusoids let the model attend by relative positions.
#
# The premise is true (lesson 09). The paper offers the rest as a hypothesis ("we hypothesized it would allow the model
# to easily learn"). Has our trained model learned it? Take the last of the four terms, $p_t M p_s^T$, the mean along
# each diagonal, and see what share of the variance these means explain:

# %%
def share_of_distance(scores):
    """scores (T, T) -> the share of their variance that a function of t - s explains, 0 to 1"""
    T = len(scores)
    offset = np.arange(T)[:, None] - np.arange(T)
    means = np.zeros((T, T))
    for d in range(-T + 1, T):
        means[offset == d] = scores[offset == d].mean()
    return means.var() / scores.var()


P = sinusoids(0, 25, 128)                                      # most sentences of training are shorter
trained = [share_of_distance(P @ q @ (P @ k).T) for q, k in zip(W_Q, W_K)]
random_pairs = [np.random.default_rng(seed).normal(size=(2, 128, K)) for seed in range(20)]
untrained = [share_of_distance(P @ q @ (P @ k).T) for q, k in random_pairs]
measure("M = 1", share_of_distance(P @ P.T), 1 - 1e-9, 1 + 1e-9)
measure("four heads of the first encoder layer: lowest", min(trained), 0.25, 0.45)
measure("four heads of the first encoder layer: highest", max(trained), 0.3, 0.55)
measure("twenty heads with random matrices: mean", np.mean(untrained), 0.1, 0.35)
measure("twenty heads with random matrices: highest", max(untrained), 0.35, 0.7)

# %% [markdown]
# Less than half, and no more than some random matrices have. Sinusoids *permit* scores by distance; where every
# sentence begins at 0, nothing in the loss asks for them.
#
# ## Paper and code
#
# - §3.5: sinusoids and a learned table gave "nearly identical results" (Table 3, row E), on test sentences of the usual
#   lengths. The paper does not test extrapolation; it says "may". Press, Smith and Lewis (2022) did, with language
#   models: sinusoids reach a few dozen tokens beyond training.
# - In the library: `PositionalEncoding` and `LearnedPositions` in [nn/layers.py](../scratchformer/nn/layers.py), chosen
#   by `positions`; a table has `max_positions` rows, and the translator refuses a longer sentence by name. Rotary
#   positions and ALiBi are not the paper's; they are in [study/positions.py](../scratchformer/study/positions.py), with
#   [tests](../tests/study/test_positions.py), and replace the attention inside `SelfAttention`.
# - *Differs:* the rotary paper (Su et al. 2021) pairs neighbours, as here; some public code pairs channel $i$ with
#   channel $i + d_k/2$. One becomes the other by reordering the columns of $W_Q$ and $W_K$, so they train alike, but
#   their weights cannot be exchanged. ALiBi's paper has causal language models only; the penalty on both sides is ours,
#   and mirror-blind, as shown above.
# - Experiment 3 is [benchmarks/longer.py](../benchmarks/longer.py).
#
# ## Exercises
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
