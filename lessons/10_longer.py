# %% [markdown]
# # 10 · Longer than training
#
# **Does a model understand sentences longer than any it was trained on?**
#
# *Needs [lesson 05](05_scaling.py) (scores), [lesson 07](07_many_heads.py) (heads) and [lesson 09](09_positions.py)
# (sinusoids) · you will turn vectors by their positions (RoPE) and subtract distances from scores (ALiBi) · **side
# trip**: you can go on from lesson 09 to lesson 11 without it.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.attention import Mask
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import sinusoids
from scratchformer.text.batches import encode_pairs
from scratchformer.text.bundled import read_text
from scratchformer.text.corpora import Pairs
from scratchformer.training.run import load_run
from scratchformer.training.validation import validation_loss
from support import positions
from support.drawing import Drawing
from support.latest_name import KINDS, trained
from support.lesson import QUICK, ROOT, measure, recorded, same, show, table
from support.numeric import numeric_gradient

# %% [markdown]
# The paper chose sinusoids over a learned table because they "may allow the model to extrapolate to sequence lengths
# longer than the ones encountered during training" (§3.5). It is a reasonable hope, since a sinusoid has a value at
# position 1,000 and a learned table has no row 1,000. Let's test it. Here is the trained model of [lesson
# 00](00_whole_game.py), which has sinusoids, on two test sets: `test` has sentences as long as those of training, and
# `test_long` has longer ones. The loss is per piece of the German reference, in nats.

# %% The model and the two test sets
translator = load_run(ROOT / "data/tiny_model")
model = translator.model


def first_pairs(split):
    """The first 200 pairs of a test set (60 in quick mode). -> text, ids"""
    pairs = Pairs(*(part[:60 if QUICK else 200] for part in read_text(split)[:3]), 0)
    return pairs, encode_pairs(translator.tokenizer.encode, pairs, 256, 4096)


(_, test), (long_text, test_long) = map(first_pairs, ("test", "test_long"))
result = recorded("longer")
measure("longest sentence of training, pieces", result["longest_in_training"], 34, 34)
measure("median sentence of test_long, pieces", np.median(test_long.lengths), 37, 41)
measure("loss on test", validation_loss(model, test, 4096), 0.07, 0.14)
measure("loss on test_long", validation_loss(model, test_long, 4096), 1.6, 2.4)
english = long_text.source[1]
print(f"{english}\n\n{translator.translate([english], beam=1)[0]}")

# %% [markdown]
# The loss is about twenty times as high, and the translation loses its way in the first clause. But long sentences
# could be hard for other reasons. So here is a control: the *same sentences* of `test`, of the same length, as if
# some words stood before them. All positions begin at 2 instead of 0, in source and target, or at 5, and so on.
# Nothing else changes.

# %% The same sentences, moved
def loss_when_moved(pairs, first):
    """As if `first` words stood before every sentence, source and target."""
    before = model.source_positions, model.target_positions
    model.source_positions, model.target_positions = (
        positions.Shifted(each, first) for each in before)
    loss = validation_loss(model, pairs, 4096)
    model.source_positions, model.target_positions = before
    return loss


for first, lo, hi in (0, 0.07, 0.14), (2, 0.08, 0.2), (5, 0.5, 1.2), (10, 1, 1.8):
    measure(f"loss on test, begun at {first}", loss_when_moved(test, first), lo, hi)
measure("begun at 5: the last position of all", 5 + test.lengths.max() - 1, 20, 33)

# %% [markdown]
# A move by two is nearly forgiven. A move by five makes the loss eight times as high, and **not one position is
# new**: training went up to position 33. The distances between the words are the old ones, too. What is new is a
# sentence that begins at 5, because in training all sentences began at 0. So this model hasn't learned to go by
# distances. (Nor is it that late positions are rare in training: [lab notes 10, experiment
# 1](lab/10_longer.py#experiment-1-is-it-the-rare-late-positions).)
#
# ## The picture
#
# What if the scores depended on the distance of two words *by construction*? There are two well-known ways to do
# that. **Rotary positions** (RoPE) turn every query and key by an angle that grows with its position. **ALiBi**
# subtracts a penalty from every score, which grows with the distance.

# %% Drawing dials and a ramp
STEP = 30                                                   # degrees per position


def dial(drawing, x, query, key):
    """The query and a key of the miniature, turned by their positions."""
    drawing.circle(x, 120, 62, "line", 0)
    drawing.text(x, 22, f"positions {query} and {key}", bold=True)
    turned = STEP * query, STEP * key - 90
    looks = ("query", 62, 0), ("key", 42, 0.5)
    for (role, length, aside), degrees in zip(looks, turned):
        angle = math.radians(degrees)
        across, up = math.cos(angle), math.sin(angle)
        tip = (x + length * across, 120 - length * up)
        drawing.arrow((x, 120), tip, role, width=2.5)
        at = angle - aside                                 # the letter stands beside it
        far = 76 if role == "query" else 48
        drawing.text(x + far * math.cos(at), 120 - far * math.sin(at), role[0], role,
                     italic=True)
    score = math.cos(math.radians(turned[0] - turned[1]))
    drawing.text(x, 212, f"score {score:.2g}", size=16)


def ramp(drawing, y, query):
    """What ALiBi subtracts at each of twelve positions, for a query at one of them."""
    for position in range(12):
        x, distance = 80 + 52 * position, abs(position - query)
        drawing.rectangle(x, y + 2 * distance, 26, 4 * distance + 1, "key", 0.6,
                          outline=False)
        drawing.text(x, y - 14, f"−{distance / 4:g}" if distance else "0", size=13)
        if position == query:
            drawing.polygon([(x - 9, y + 34), (x + 9, y + 34), (x, y + 14)], "query")


picture = Drawing(740, 410)
for x, query, key in (120, 2, 5), (360, 7, 10), (600, 7, 8):
    dial(picture, x, query, key)
picture.text(20, 254, "ALiBi: added to the scores of a query at the blue mark", "soft",
             14, "start")
ramp(picture, 300, 2)
ramp(picture, 370, 7)
show(picture, "10_turn",
     alt="Above, three dials with a blue query and a teal key, turned by 30 degrees "
     "per position. At positions 2 and 5, and at 7 and 10, they point in the same "
     "direction, and the score is 1. At 7 and 8 the score is 0.5. Below, two ramps: "
     "what ALiBi subtracts grows by a quarter per position to both sides of the query, "
     "wherever the query stands.",
     caption="Above, RoPE: query (blue) and key (teal) are turned by 30° per position. "
     "Both have length 1; the key is drawn shorter so that both can be seen. The two "
     "pairs with distance 3 have the same score, though both vectors differ. "
     "Below, ALiBi: the ramp moves along with the query.")

# %% [markdown]
# ## By hand
#
# Take a query $q = (1, 0)$ and a key $k = (0, -1)$. Their dot product is 0. Now turn each by 30° per position,
# counterclockwise.
#
# - At positions 2 and 5 the query is turned by 60°, to (0.5, 0.866). The key is turned by 150°, also to (0.5, 0.866).
#   The score is 0.25 + 0.75 = **1**.
# - At positions 7 and 10 both are turned by 150° more, to (−0.866, −0.5). The score is 0.75 + 0.25 = **1** again.
# - At positions 7 and 8 the key is only turned by 240°, to (−0.866, 0.5). The score is 0.75 − 0.25 = **0.5**.
#
# So this head looks for a word *three positions further on*, wherever it stands itself. But twelve steps of 30° are a
# full turn, so it finds words 15 positions further on, or 9 positions back, just as well. A real head has several pairs
# with different speeds. Keep the full turn in mind: we'll meet it again below. Another key, (1, 0), would give the
# highest score at distance 0. So RoPE itself doesn't prefer near words. Query and key decide which distance gets the
# highest score.
#
# ## In general
#
# **Added positions.** Lesson 09 split the score of query $t$ and key $s$ into four parts, with $e_t$ for the word, as
# a column, and $W = W_Q W_K^T$:
#
# $$e_t^T W e_s + e_t^T W \, PE(s) + PE(t)^T W e_s + PE(t)^T W \, PE(s)$$
#
# The last part depends on positions alone. If $W$ is the identity, it is $\sum_i \cos \omega_i (t - s)$ and depends on
# the distance only. But $W$ is learned. Then two pairs of words with the same distance usually get different scores.
# ([Lab notes 10, experiment 2](lab/10_longer.py#experiment-2-how-much-does-the-distance-tell) measures it in the
# trained model.)
#
# **Rotary positions** (Su et al. 2021) add nothing to the words. They take the numbers of each query and key in
# pairs, points $(a, b)$ in a plane, and turn pair $i$ at position $p$ by the angle $p \, \omega_i$, with the speeds
# of the sinusoids, $\omega_i = 10000^{-2i/d_k}$:
#
# $$R_p \, (a, b) = (a \cos p \, \omega_i - b \sin p \, \omega_i, \; a \sin p \, \omega_i + b \cos p \, \omega_i)$$
#
# Turning keeps lengths. Turning back is the transpose, $R_p^T = R_{-p}$, and angles add up, $R_p R_r = R_{p+r}$. So a
# score of turned vectors is
#
# $$(R_t q)^T R_s k = q^T R_t^T R_s k = q^T R_{s-t} k$$
#
# The positions have dropped out. **Whatever $W_Q$ and $W_K$ become, only the distance is left.** That is why the
# rotation comes after the projections. Before them the score would be $x_t^T R_t^T W R_s x_s$, and with $W$ in
# between, $R_t^T$ and $R_s$ don't meet.
#
# **ALiBi** (attention with linear biases; Press, Smith and Lewis 2022) also leaves the words alone. Head $j$ of $h$
# subtracts
#
# $$z_{ts} = \frac{q_t^T k_s}{\sqrt{d_k}} - m_j \, \vert t - s \vert, \qquad m_j = 2^{-8j/h}, \; j = 1 \dots h$$
#
# The slopes $m_j$ are fixed numbers. Subtracting $m d$ from a score multiplies the weight by $e^{-md}$, so the weight
# is halved at the distance $\ln 2 / m$. With four heads that is at 2.8 positions for the steepest slope, 1/4, and at
# 177 for the flattest, 1/256.
#
# **Your turn.** Write the rotation of a query or a key, and ALiBi's scores, before you unfold ours.

# %% Our solution
def turn(x, positions):
    """x (T, d_k), positions (T,) -> (T, d_k): each pair turned by its angle"""
    omega = 10000.0 ** (-np.arange(0, x.shape[1], 2) / x.shape[1])          # (d_k/2,)
    angle = positions[:, None] * omega                                      # (T, d_k/2)
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = x[:, 0::2], x[:, 1::2]                                           # (T, d_k/2)
    return np.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape)


def penalty(T, S, h):
    """-> (h, T, S), to be added; the T queries are the last of S positions"""
    distance = np.abs(np.arange(S - T, S)[:, None] - np.arange(S))          # (T, S)
    m = 2.0 ** (-8 * np.arange(1, h + 1) / h)                               # (h,)
    return -m[:, None, None] * distance


T, d_k, h = 5, 6, 4
random = np.random.default_rng(0)
q, k = random.normal(size=(2, T, d_k))
here, there = np.arange(T), np.arange(40, 40 + T)
scores, further = (turn(q, where) @ turn(k, where).T             # (T, T)
                   for where in (here, there))
measure("turning changes a score by up to", np.abs(scores - q @ k.T).max(), 1, 12)
same("begun at 40 instead of 0: the scores", further, scores, 1e-13)
queries, keys, values = (random.normal(size=(2, length, h, width))
                         for length, width in ((3, 6), (5, 6), (5, 7)))
same("turned queries: this page and the library",
     np.stack([turn(queries[1, :, j], there[:3]) for j in range(h)], axis=1),
     positions.rotated(queries, there[:3])[1])
same("penalty: this page and the library", penalty(3, 5, h),
     positions.alibi_bias(3, 5, h))

# %% [markdown]
# ## Backward
#
# **Rotary.** Follow $a$, the first number of a pair of a query. It reaches the loss in two ways: through the first
# number of the turned pair, $a' = a \cos - b \sin$, with the factor $\cos$, and through the second, $b' = a \sin + b
# \cos$, with the factor $\sin$. The number $b$ enters the first with $-\sin$ and the second with $\cos$. So
#
# $$da = \cos \cdot da' + \sin \cdot db', \qquad db = -\sin \cdot da' + \cos \cdot db'$$
#
# That is a rotation by the same angle, **back**. In the miniature, a gradient (1, 0) that arrives at the turned query
# of position 2 goes back turned by −60°: (0.5, −0.866). There is no parameter, and lengths are kept, so a gradient
# comes through as long as it was, at position 5 and at position 50,000.
#
# **ALiBi.** The penalty is a constant added to a score, so the gradient of the score passes unchanged, and backward
# of attention stays as it is. If a slope $m$ were learned, it would get $dm = -\sum_{ts} dz_{ts} \vert t - s \vert$,
# in which only distances of training occur. (Press et al. report that learned slopes did not extrapolate well. We
# haven't tested it.)
#
# **Your turn.** Write the backward pass of the rotation. Our solution, checked:

# %% Our solution
def turn_backward(dturned, positions):
    """dturned (T, d_k) -> dx (T, d_k)"""
    return turn(dturned, -positions)


upstream = random.normal(size=(T, T))
numeric = numeric_gradient(
    lambda q: (turn(q, there) @ turn(k, there).T * upstream).sum(), q)
same("dq and central differences", turn_backward(upstream @ turn(k, there), there),
     numeric, 1e-8)
for attention in positions.RotaryAttention(), positions.AlibiAttention():
    mask = Mask(np.array([5, 2]), causal=True)
    report = gradcheck(attention, queries, keys, values, mask)
    measure(f"{type(attention).__name__}: worst error", report.worst.error, 0, 1e-6)


def added(x, first):
    """Scores with sinusoids added before the projection, as if x began at `first`"""
    x = x + sinusoids(first, len(x), d_k)
    return x @ W_mixed @ x.T


def rotary(x, first):
    """Scores of projected, then turned vectors"""
    where = np.arange(first, first + len(x))
    return turn(x @ W_mixed, where) @ turn(x, where).T


W_mixed = random.normal(size=(d_k, d_k))
measure("shift test, sinusoids: a score changes by up to",
        np.abs(added(q, 7) - added(q, 0)).max(), 0.1, 100)
same("shift test, rotary: moved by 7, and not moved", rotary(q, 7), rotary(q, 0), 1e-12)

# %% [markdown]
# No gradient check can say whether scores depend on the distance only. The last two rows do. They are a **shift test**,
# which moves all positions by 7 and looks whether a score changes.
#
# ## Does it matter? A task with nothing but length
#
# Some words of a sequence are names, one in five. At each position, say the **latest name** so far. There are 8 names
# and 11 other words. The task needs the order of the names, at any distance. The model has words as vectors, one
# causal attention with four heads, and a linear map to the answers. It comes in five kinds, which differ in their
# positions alone: *none* (the control), a learned table of 64 rows, sinusoids, ALiBi, rotary. Training has sequences
# of 5 to 20 words, the test up to 60.
#
# Which kinds still work at 60 words? And can a model with positions be worse than one *without* any?
#
# <details><summary>Make a guess, then unfold: figure 2</summary>

# %% Training the readers
SEEDS = [0] if QUICK else [0, 1, 2]
LENGTHS = [10, 15, 20, 25, 30, 40, 50, 60]
reached = {kind: np.array([[reader.accuracy(n) for n in LENGTHS]
                           for reader in (trained(kind, seed) for seed in SEEDS)])
           for kind in KINDS}                               # (seeds, lengths) each

# %% The figure
figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
looks = {"none": (":", "#666666"), "learned": ("-.", DARK), "sinusoidal": ("--", DARK),
         "ALiBi": ("-", DARK), "rotary": ("-", ACCENT)}
for kind, (style, colour) in looks.items():
    axes.plot(LENGTHS, reached[kind].mean(axis=0), ls=style, color=colour, lw=2,
              label=kind)
    axes.fill_between(LENGTHS, reached[kind].min(axis=0), reached[kind].max(axis=0),
                      color=colour, alpha=0.12, lw=0)
axes.axvline(20, color="#888888", lw=0.8)
axes.text(20.5, 0.03, "longest of training", color="#444444")
axes.set(xlabel="words in the sequence", ylabel="accuracy at the last word",
         ylim=(0, 1.05))
axes.legend(loc=(0.8, 0.5))
show(figure, "10_latest_name",
     alt="Accuracy against length, 10 to 60 words, for five kinds of positions. At 10 "
     "words learned, sinusoidal, ALiBi and rotary are above 0.9, none is near 0.7. "
     "From 40 words on learned and sinusoidal are near 0.3, below none, which falls "
     "from 0.5 to 0.4. Rotary stays near 0.95 up to 30 and falls to 0.2 at 60, below "
     "all others. ALiBi stays at 0.95.",
     caption="The latest name, after training on 5 to 20 words (mean and range of "
     "three runs). ALiBi goes on, rotary positions fall later, and out there the model "
     "without positions beats both kinds of added ones.")
mean_at = {(kind, n): reached[kind][:, LENGTHS.index(n)].mean()
           for kind in KINDS for n in LENGTHS}
for kind, n, lo, hi in [("ALiBi", 60, 0.9, 1), ("rotary", 30, 0.85, 1),
                        ("rotary", 60, 0.05, 0.35)]:
    measure(f"{kind}, {n} words: accuracy", mean_at[kind, n], lo, hi)
for kind, n, lo, hi in [("learned", 40, -0.35, -0.05), ("sinusoidal", 40, -0.3, -0.02),
                        ("rotary", 60, -0.35, -0.05)]:
    measure(f"{kind} − none, {n} words", mean_at[kind, n] - mean_at["none", n], lo, hi)

# %% [markdown]
# - **Learned and sinusoidal** positions both fall. At 40 words both are worse than the model without positions.
# - **Rotary** positions go on for a while. Then they fall, too, at 60 words even below *none*.
# - **ALiBi** holds, at three times the length.
#
# </details>
#
# Why does rotary attention fail at 60 words, although it only sees distances? Because distances can be new, too. If we
# take the trained models and let every key that is further away than 19 count as if it were at 19, the accuracy at 60
# words rises from 0.19 to 0.95. And it is enough to do so for one pair. (Each head has $d_k$ = 8 numbers, so four
# pairs.) This pair turns by 0.1 radian per position. At distance 19, the largest of training, that is 109°, less than a
# third of a turn and enough to tell near from far. At distance 59 it is 338°, nearly a full turn, so the oldest words
# look like the nearest ones. ([Lab notes 10, experiment 3](lab/10_longer.py#experiment-3-what-stops-the-rotary-model))
# Later work scales the angles down, so that new distances look like old ones (Chen et al. 2023, *Extending Context
# Window of Large Language Models via Positional Interpolation*).
#
# With ALiBi a key at a new distance counts less than ever, and for this task that is right: a far name never matters
# if there is a nearer one. We haven't tried a task in which a far word should outweigh a near one.
#
# ## And a translator?
#
# The library's Transformer with the sizes of the preset `tiny`, trained for 600 steps on the bundled corpus, two
# seeds for each row (recorded). Two more rows have sinusoids and are controls. In *random start* each batch begins at
# a random position from 0 to 63, so every position of `test_long` is met in training, but no long sentence. In *long
# ones too*, 1,000 of 21,000 training sentences are made like those of `test_long`.
#
# Which of the six has the lowest loss on `test_long`?
#
# <details><summary>Make a guess, then unfold</summary>

# %% The recorded losses
rows = {row["variant"]: row["runs"] for row in result["results"]}
table(["positions", "loss on test", "loss on test_long", "BLEU on test_long"],
      [[name, *(", ".join(f"{run[split]:.2f}" for run in runs)
                for split in ("test", "test_long")),
        ", ".join(f"{run['bleu']['test_long']:.0f}" for run in runs)]
       for name, runs in rows.items()])

# %% [markdown]
# - **None of the four kinds extrapolates here.** By the loss, rotary positions are the best of the four in both runs,
#   but far from their loss on `test`. By BLEU the four lie closer together than rotary's two runs.
# - **Having met the positions isn't enough.** With random starts, moving a sentence by 5 costs nothing any more, so the
#   failure at the top of this page is gone, but the loss on `test_long` is as high as without.
# - **Long sentences in training help most.** 5 % of them lower the loss more than any change of positions.
#
# </details>
#
# In the task above nothing but the number of words was new, and positions decided. In translation more is new: the
# long sentences of this corpus also have three or four main clauses instead of one or two. Positions alone don't help
# with that. (These are small models and short trainings.)
#
# ## Today
#
# Most large language models have rotary positions. For longer texts they raise the **base**, 10,000 in the paper and
# 500,000 in Llama 3, so pairs turn more slowly. Or they **interpolate**: divide every position by one factor. **YaRN**
# (Peng et al. 2023) slows down only the slow pairs. Usually some training on long texts follows. **NoPE** means no
# positions at all, as in our control; SmolLM3 leaves RoPE out in every fourth layer.
#
# ## Paper and code
#
# - §3.5: sinusoids and a learned table gave "nearly identical results" (Table 3, row E), on the usual test sentences.
#   The paper doesn't test extrapolation, it says "may". Press, Smith and Lewis (2022) did, with language models:
#   sinusoids reach a few dozen tokens beyond training.
# - In the library: `PositionalEncoding` and `LearnedPositions` in [nn/layers.py](../scratchformer/nn/layers.py), chosen
#   by `positions`. Rotary positions and ALiBi aren't the paper's. They are in
#   [support/positions.py](../lessons/support/positions.py) and replace the attention inside `SelfAttention`.
# - *Others differ:* Su et al. pair neighbouring numbers, as here. Much public code pairs number $i$ with number $i +
#   d_k/2$, and so does your `rope` of [lesson 23](23_block_of_2026.py). Both do the same to pairs that only stand in
#   other columns, so the columns of $W_Q$ and $W_K$ must be reordered before the weights of one can be used in the
#   other.
# - *Differs:* ALiBi's paper has causal language models only. The penalty on both sides, for an encoder, is ours.
#
# ## What to remember
#
# A formula that has values further out doesn't teach a model what to do with them. With added sinusoids a model also
# learns *where* things stand, and even a move by five positions disturbs it. RoPE turns queries and keys, ALiBi
# subtracts distances: both make scores depend on the distance alone. What a *new* distance does to them is another
# question.
#
# **A puzzle.** A rotary model reads a sentence as if it began at position 1,000. What changes? And what if someone
# turns the *values* as well?
#
# <details><summary>Answer</summary>
#
# Nothing but rounding changes, since all distances are the same. With turned values the output does change: $y_t =
# \sum_s w_{ts} R_s v_s$ turns with the position, although the weights don't.
#
# </details>
#
# **Next:** [11 · The feed-forward network](11_feed_forward.py). Attention moves vectors from position to position and
# mixes them. What is done to a vector once it has arrived? (Sources: rotary positions are [arXiv
# 2104.09864](https://arxiv.org/abs/2104.09864), ALiBi is [arXiv 2108.12409](https://arxiv.org/abs/2108.12409).)
