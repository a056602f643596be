# %% [markdown]
# # Lab notes 09 · Where am I?
#
# The experiments and controls behind [lesson 09](../09_positions.py): what training can't do without positions;
# fourteen tables of positions that are asked for the word three to the left, and what in them helps; how strong a
# head's rotation must be; whether the rotation can be found by least squares; dot products at the paper's speeds; the
# authors' program. Each model is trained three times, from random starts 0, 1 and 2 (`SCRATCHFORMER_QUICK=1` takes run
# 0 only).

# %% Imports
import course  # noqa: F401  finds lessons/support
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, COLOUR_MAP, DARK
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import LearnedPositions, PositionalEncoding, sinusoids
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.optim import Adam
from scratchformer.text.tokenizer import PAD
from support.lesson import QUICK, measure, same, show, table
from support.positions import shift_matrix
from support.to_the_left import (
    FOUR,
    LEFT,
    TEXT,
    WORDS,
    D,
    Reader,
    Table,
    alike,
    few_speeds,
    hands,
    new_positions,
    outside,
    paper_speeds,
    smooth,
    to_the_left,
    train,
    which,
)

SEEDS = [0] if QUICK else [0, 1, 2]
PE = sinusoids(0, 1000, 512)                        # (T, D), a row for each position

# %% [markdown]
# ## Experiment 1: who did it
#
# Telegrams of noun, verb, noun, such as "dog bites man": ten nouns, six verbs. The verb is asked for the noun to its
# left. The model has one attention with one head and vectors of 32 numbers
# ([support/to_the_left.py](../support/to_the_left.py)). Every test telegram has a twin with its two nouns exchanged;
# training and test have no pair of nouns in common.

# %%
NOUNS, VERBS = 10, 6


def telegrams(pairs, random, n):
    """-> ids (n, 3): noun, verb, noun; targets (n, 3): at the verb the noun before"""
    pair = pairs[random.integers(0, len(pairs), n)]
    verb = random.integers(1 + NOUNS, 1 + NOUNS + VERBS, n)
    ids = np.stack([pair[:, 0], verb, pair[:, 1]], axis=1)
    return ids, np.where([False, True, False], pair[:, :1], PAD)


def who_did_it(positions, seed, steps):
    """-> share right; largest difference of scores between a telegram and its twin"""
    random = np.random.default_rng(100 + seed)
    pairs = [(a, b) for a in range(1, NOUNS + 1) for b in range(1, a)]
    pairs = random.permutation(pairs)
    train_pairs, test_pairs = np.concatenate([pairs[10:], pairs[10:, ::-1]]), pairs[:10]
    model = Reader(positions, 1 + NOUNS + VERBS, seed)
    train(model, lambda: telegrams(train_pairs, random, 32), steps)
    twins = [telegrams(of, np.random.default_rng(seed), 200)
             for of in (test_pairs, test_pairs[:, ::-1])]
    scores = [model.forward(ids)[0][:, 1] for ids, _ in twins]      # (200, V) each
    right = [verb.argmax(axis=1) == targets[:, 1]
             for verb, (_, targets) in zip(scores, twins)]
    return np.mean(right), np.abs(scores[0] - scores[1]).max()


for steps, lo in (0, 0), (100, 0.4):
    results = [who_did_it(Table(np.zeros((3, D))), seed, steps) for seed in SEEDS]
    right, difference = np.array(results).max(axis=0)
    measure(f"no positions, {steps} steps: right, best run", right, lo, 0.5)
    measure(f"no positions, {steps} steps: difference of twins", difference, 0, 1e-12)


def learned(seed):
    return LearnedPositions(3, D, np.random.default_rng(seed), "float64")


for name, new in ("sinusoids", lambda seed: PositionalEncoding()), ("learned", learned):
    rights = [who_did_it(new(seed), seed, 150)[0] for seed in SEEDS]
    measure(f"{name}, 150 steps: right, worst run", min(rights), 0.9, 1)

# %% [markdown]
# Without positions a telegram and its twin get the same scores, but for rounding, before and after training. Of each
# pair at most one is answered rightly, so one half is the limit for any training. Sinusoids and a learned table both
# solve it: three positions don't separate them.
#
# ## Experiment 2: three words to the left
#
# The task of the lesson: 24 random words out of 11, at position $t$ the word at $t - 3$ is asked for, and queries are
# made of positions alone. Never asked in training: two of the positions 5, 7 and 9 (*single*), and five positions *in a
# row*, which begin at 12 to 17. Both are chosen at random in each run. 110 steps of Adam with 16 texts, learning
# rate 0.01, 60 new texts for the test. Where nothing else is said, the vectors are as long as sinusoids.
#
# - *the number itself*: from −1 to 1, in every component;
# - *sinusoids*; *small steps* (16 speeds evenly spaced from 0 to 1 radian); *big steps* (from 0 to π);
# - *upside down*: speeds $10000^{+2i/d_{model}}$. A user of the Annotated Transformer divided where its code multiplies
#   ([issue 131](https://github.com/harvardnlp/annotated-transformer/issues/131)) and reported that copying was
#   then learned much faster;
# - *four speeds*: four of the speeds of *big steps* (1, 6, 10 and 12 fifteenths of half a turn), each in four hands.
#   Neighbours aren't alike; at other distances the cosine reaches 0.50;
# - *smooth*: weighted means of random vectors, at distance $k$ with the weight $e^{-k^2/3}$; *wide smooth*: with
#   $e^{-k^2/12}$;
# - *random*: each component $\pm\sqrt{1/2}$; *short*: the same, a quarter as long; *learned*: the library's, which
#   starts a quarter as long, too;
# - three controls: the rows of *small steps*, of *four speeds* and of *smooth* in a random order.

# %% The fourteen tables
BANDS = {"sinusoids": [(0.95, 1), (0.85, 1), (0.2, 0.6)],
         "small steps": [(0.97, 1), (0.95, 1), (0.3, 0.75)],
         "big steps": [(0.97, 1), (0, 0.25), (0, 0.25)],
         "upside down": [(0.97, 1), (0.2, 0.8), (0.2, 0.5)],
         "four speeds": [(0.97, 1), (0.6, 1), (0.75, 1)],
         "smooth": [(0.95, 1), (0.65, 1), (0.05, 0.45)],
         "wide smooth": [(0.7, 1), (0.65, 1), (0.2, 0.8)],
         "small steps, shuffled": [(0.9, 1), (0, 0.25), (0, 0.25)],
         "four speeds, shuffled": [(0.8, 1), (0, 0.25), (0, 0.25)],
         "smooth, shuffled": [(0.9, 1), (0, 0.25), (0, 0.25)],
         "random": [(0.97, 1), (0, 0.25), (0, 0.2)],
         "learned": [(0.95, 1), (0, 0.25), (0, 0.2)],
         "short": [(0.3, 0.89), (0, 0.35), (0, 0.35)],
         "the number itself": [(0.1, 0.4), (0.05, 0.4), (0.05, 0.4)]}


def row(name, of_runs):
    """Each number for each run."""
    return [name, *("  ".join(f"{value:{form}}" for value in column)
                    for form, column in zip(("g", ".2f", ".2f", ".2f"), of_runs.T))]


runs, rows = {}, []
for name, bands in BANDS.items():
    runs[name] = np.array([to_the_left(name, seed) for seed in SEEDS])   # (runs, 4)
    for share, (lo, hi) in zip(runs[name].mean(axis=0)[1:], bands):
        assert lo <= share <= hi, (name, share, lo, hi)
    cosine = abs(alike(new_positions(name, np.random.default_rng(50))))
    rows.append([*row(name, runs[name]), f"{cosine:.2f}"])
table(["table", "90 % after steps", "right where asked", "single", "five in a row",
       "cosine of neighbours"], rows)

# %% The figure
SHOWN = ["sinusoids", "small steps", "smooth", "four speeds", "upside down",
         "big steps", "random"]
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
axes.axhline(1 / 11, color="0.6", lw=1, ls=":")
axes.text(-0.4, 1 / 11 - 0.02, "guess", color="0.35", va="top")
for column, marker, colour, label in [(2, "o", DARK, "single"),
                                      (3, "^", ACCENT, "five in a row")]:
    for x, name in enumerate(SHOWN):
        at = np.full(len(SEEDS), x + 0.3 * column - 0.75)
        axes.plot(at, runs[name][:, column], marker, color=colour, ms=7,
                  alpha=0.7, label=None if x else label)
axes.set(xticks=range(len(SHOWN)), xticklabels=SHOWN, ylim=(-0.03, 1.05))
axes.set_ylabel("share right")
axes.legend(title="positions never asked", loc="upper right")
show(figure, "09_lab_asked",
     alt="Share right at positions never asked, seven tables, each run a mark. Single "
     "positions: sinusoids and small steps nearly 1, smooth and four speeds 0.8 to 1, "
     "upside down 0.3 to 0.7, the others near 0.1. Five in a row: four speeds at least "
     "0.9, sinusoids and small steps 0.3 to 0.6, upside down about 0.4, the others "
     "near 0.1.",
     caption="Single positions are right where neighbours are alike. Of these tables "
     "only *four speeds* is mostly right in each run, single and in a row.")

# %% [markdown]
# - *The number itself*: as far as position counts, a query's score is a linear function of the key's number, and such
#   a function is largest at one end of the text. The task is not learned.
# - *Four speeds* are right in about nine of ten cases, single or in a row. The same vectors in another order are no
#   better than a guess. So likeness of neighbours isn't needed, and the rotation is what is left.
# - *Big steps* have a rotation, too, and are no better than a guess. What differs is how many directions the 24 vectors
#   have: the next table changes their number.
# - *Single positions.* Of the tables that were learned and have similar neighbours, all are mostly right there, with a
#   rotation (*sinusoids*, *small steps*) or without (*smooth*, *wide smooth*).
# - *Upside down* is between: 0.61 of a never-asked vector lies outside the directions of the asked ones, less than
#   with *big steps* (0.99; next table).
# - *Issue 131.* The upside-down formula is learned in less than half of the steps of the sinusoids here, too. But so
#   are *random* vectors and *big steps*, and it says nothing about what was learned.
#
# **How far do the queries move?** The change of a query $p_u W_Q$ in training, the bias left out (it moves all queries
# alike): the length of $p_u \, \Delta W_Q$, with Adam as above. At the start a query has a length of about 4. And the
# same with plain gradient descent, learning rate 0.3, 120 steps.

# %% The queries' way, and plain gradient descent
class Descent:
    """Plain gradient descent."""

    def __init__(self, model):
        self.parameters = model.parameters().values()

    def step(self, rate):
        for parameter in self.parameters:
            parameter.data[...] -= rate * parameter.grad


def trained(name, seed, new_optimizer, rate, steps):
    """-> for asked, single, in a row: share right, mean change of a query (2, 3)"""
    random = np.random.default_rng(50 + seed)
    asked, alone, in_a_row = which(random)
    model = Reader(new_positions(name, random), WORDS + 1, seed, words_ask=False)
    W_Q, optimizer = model.attention.q.weight, new_optimizer(model)
    before = W_Q.data.copy()
    for step in range(steps + 1):                  # the last one is the test
        ids = random.integers(1, WORDS + 1, (16 if step < steps else 60, TEXT))
        answers = np.pad(ids[:, :-LEFT], ((0, 0), (LEFT, 0)), constant_values=PAD)
        scores, cache = model.forward(ids)
        if step < steps:
            _, n, dscores = cross_entropy(scores, np.where(asked, answers, PAD))
            model.zero_grad()
            model.backward(dscores / n, cache)
            optimizer.step(rate)
    right = (scores.argmax(axis=-1) == answers).mean(axis=0)            # (T,)
    p = model.positions.forward(np.zeros((1, TEXT, D)))[0][0]
    moved = np.linalg.norm(p @ (W_Q.data - before), axis=1)             # (T,)
    return [[of[at].mean() for at in (asked, alone, in_a_row)] for of in (right, moved)]


ways = {}
rows = []
for optimizer, *settings in (Adam, 0.01, 110), (Descent, 0.3, 120):
    for name in "sinusoids", "big steps", "four speeds", "four speeds, shuffled":
        of_runs = [trained(name, seed, optimizer, *settings) for seed in SEEDS]
        right, moved = ways[optimizer, name] = np.mean(of_runs, axis=0)
        rows.append([f"{optimizer.__name__}, {name}",
                     *(f"{value:.2f}" for value in right),
                     *(f"{value:.1f}" for value in moved)])
table(["optimizer, table", "right where asked", "single", "five in a row",
       "change of a query, asked", "single", "five in a row"], rows)
for optimizer in Adam, Descent:
    _, moved = ways[optimizer, "big steps"]
    assert max(moved[1:]) < moved[0] / 3
    right, moved = ways[optimizer, "four speeds"]
    assert min(moved[1:]) > 0.6 * moved[0] and min(right) > 0.6
    for name in "big steps", "four speeds, shuffled":
        right, _ = ways[optimizer, name]
        assert right[0] > 0.8 and max(right[1:]) < 0.3


def products_of(name):
    """p_u . p_t of all pairs, over p_u . p_u = 16"""
    layer = new_positions(name, np.random.default_rng(50))
    p = layer.forward(np.zeros((1, TEXT, D)))[0][0]
    return p, np.abs(p @ p.T / 16)[~np.eye(TEXT, dtype=bool)].max()


for name, lo, hi in ("big steps", 0.06, 0.065), ("four speeds", 0.49, 0.51):
    measure(f"{name}: largest p_u · p_t, over p_u · p_u", products_of(name)[1], lo, hi)
for name, lo, hi in ("four speeds", 0, 1e-10), ("four speeds, shuffled", 0.5, 1):
    p, _ = products_of(name)
    best = np.linalg.lstsq(p[LEFT:], p[:-LEFT], rcond=1e-9)[0]
    error = np.linalg.norm(p[LEFT:] @ best - p[:-LEFT]) / np.linalg.norm(p[:-LEFT])
    measure(f"{name}: best matrix to the left, error", error, lo, hi)

# %% [markdown]
# In *big steps* a never-asked query moves much less than an asked one, with either optimizer; in *four speeds* about as
# far. In *four speeds, shuffled* it moves as far, too, but no single matrix is right for all positions.
#
# **How many directions?** Two to sixteen speeds, all out of the sixteen of *big steps*, chosen so that neighbours
# aren't alike. The directions of the 14 asked vectors are all their weighted sums. *Outside* is the share of a
# never-asked vector's length that is at a right angle to all of these: no gradient of $W_Q$ reaches it, since that is a
# sum over asked positions. (Adam scales each number of the gradient, so with Adam this holds only roughly.) (The
# texts are others than above.)

# %% From two speeds to sixteen
SPEEDS = [(4, 11), (4, 7, 14), FOUR, (3, 5, 6, 12, 13), (1, 3, 6, 10, 11, 12),
          (1, 2, 5, 7, 8, 11, 12, 13), tuple(range(16))]


def unknown(positions):
    """Mean of `outside` over the never-asked positions, single and in a row."""
    found = []
    for seed in SEEDS:
        asked, alone, in_a_row = which(np.random.default_rng(50 + seed))
        found.append(outside(positions, asked, alone | in_a_row))
    return np.mean(found)


rows, means = [], []
for steps in SPEEDS:
    positions = hands(few_speeds(steps))
    of_runs = np.array([to_the_left(Table(positions), seed) for seed in SEEDS])
    means.append(of_runs.mean(axis=0)[1:])
    assert means[-1][0] > 0.95 and abs(alike(Table(positions))) < 0.2
    rows.append([*row(str(len(steps)), of_runs), f"{unknown(positions):.2f}"])
table(["speeds", "90 % after steps", "right where asked", "single", "five in a row",
       "outside"], rows)
for _, single, in_a_row in means[:3]:
    assert single > 0.6 and in_a_row > 0.75, (single, in_a_row)
assert max(means[-1][1:]) < 0.25 < means[-2][2]
measure("upside down: outside", unknown(hands(1 / paper_speeds())), 0.5, 0.7)

# %% [markdown]
# Up to six speeds (12 directions) the asked vectors use all directions, and nothing of the others lies outside. With
# two to four, most answers are right; with six, fewer. With eight, half of a never-asked vector lies outside, and with
# sixteen nearly all of it: then nothing is learned about it.
#
# **Do sinusoids profit from their rotation in a wide gap?** Twelve more runs (3 to 14):

# %% Twelve more runs
MORE = range(3, 5) if QUICK else range(3, 15)
NAMES = "sinusoids", "small steps", "smooth", "wide smooth"
more = {name: np.array([to_the_left(name, seed) for seed in MORE])[:, 2:]
        for name in NAMES}                         # (runs, 2): single, in a row
table(["table", "single: mean", "worst and best run", "five in a row: mean",
       "worst and best run"],
      [[name, *(text for column in of_runs.T for text in
                (f"{column.mean():.2f}", f"{column.min():.2f} {column.max():.2f}"))]
       for name, of_runs in more.items()])
sines, near, wide = (more[name][:, 1]
                     for name in ("sinusoids", "smooth", "wide smooth"))
least = -0.3 if QUICK else 0.03
measure("in a row: sinusoids minus smooth", (sines - near).mean(), least, 0.5)
measure("in a row: wide smooth minus sinusoids", (wide - sines).mean(), least, 0.5)
for name, single, in_a_row in [("sinusoids", (0.9, 1), (0.25, 0.65)),
                               ("big steps", (0, 0.25), (0, 0.25))]:
    outcome = to_the_left(name, 0, 400)
    measure(f"{name}, 400 steps, run 0: single", outcome.alone, *single)
    measure(f"{name}, 400 steps, run 0: five in a row", outcome.row, *in_a_row)
print(f"five in a row: sinusoids ahead of smooth in {(sines > near).sum()} runs, "
      f"wide smooth ahead of sinusoids in {(wide > sines).sum()}")

# %% [markdown]
# *Sinusoids* are ahead of *smooth* in ten of twelve runs. But the likeness of *smooth* reaches less far. A wider reach
# helps without any rotation: *wide smooth* is right in 0.49 of the cases, *smooth* in 0.21. And *wide smooth* is ahead
# of *sinusoids* in eight of twelve. So nothing here shows that their rotation helps them in a wide gap.
#
# *More steps* (400; runs 0, 1, 2; run 0 of two tables is repeated above). Single: *big steps* 0.12, 0.12, 0.12,
# *smooth* 1.00, 0.72, 1.00. In a row: *sinusoids* 0.42, 0.46, 0.36, *smooth* 0.08, 0.18, 0.08, *four speeds* 0.99,
# 1.00, 0.95; *small steps* rise in each run, from 0.38, 0.37, 0.57 to 0.44, 0.48, 0.75.
#
# ## Experiment 3: how strong a head must be
#
# With $W = W_Q W_K^T$ and $x_t = e_t + PE(t)$, all vectors as rows, a score is four parts:
#
# $$x_t W x_s^T = e_t W e_s^T + e_t W \, PE(s)^T + PE(t) \, W e_s^T + PE(t) \, W \, PE(s)^T$$
#
# For the last choose $W = \beta M_{-k}$. Then this part is $\beta \, PE(t-k) \cdot PE(s)$, largest at $s = t - k$. But
# $W$ has at most rank $d_k$, which is 64 in the paper's base model, and $M_{-k}$ has rank 512: one head has room for 32
# of the 256 hands. Is that enough? Take the 32 fastest, position with position only, 200 positions, $k = 3$. A fair
# comparison needs *equal divisors*: the 32 hands and all 256 with $\sqrt{64}$, and with $\sqrt{512}$.

# %%
def weight_on_target(beta, pairs, divisor, k=3):
    """Mean weight of query t on position t - k, with the fastest `pairs` in W."""
    P, M = PE[:200, :2 * pairs], shift_matrix(-k, 512)[:2 * pairs, :2 * pairs]
    scores = beta * P @ M @ P.T / math.sqrt(divisor)           # (200, 200)
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.diagonal(e / e.sum(axis=1, keepdims=True), offset=-k).mean()


found = {(beta, divisor, pairs): weight_on_target(beta, pairs, divisor)
         for beta in (1, 5) for divisor in (64, 512) for pairs in (32, 256)}
table(["β", "divisor", "32 fastest hands", "all 256 hands"],
      [[str(beta), f"√{divisor}",
        *(f"{found[beta, divisor, pairs]:.3f}" for pairs in (32, 256))]
       for beta in (1, 5) for divisor in (64, 512)])
for beta in (1, 5):
    for divisor in (64, 512):
        assert found[beta, divisor, 32] < found[beta, divisor, 256]
behind = (PE[0] @ PE[0] - PE[0] @ PE[1]) / math.sqrt(512)
measure("β = 1, √512: neighbour's score behind the target's", behind, 0.28, 0.33)
measure("β = 5, √512: 32 fastest", found[5, 512, 32], 0.56, 0.61)
measure("β = 5, √512: all", found[5, 512, 256], 0.66, 0.72)
measure("β = 5, √64: 32 fastest", found[5, 64, 32], 0.94, 0.98)
measure("β = 5, √64: all", found[5, 64, 256], 0.95, 0.99)

# %% [markdown]
# At equal divisors the fast hands alone do worse than all together, for both $\beta$ and both divisors: a little worse
# where the head is strong ($\beta = 5$, $\sqrt{64}$: 0.960 and 0.974), much worse where it is weak ($\beta = 1$: 0.177
# and 0.513). (An earlier version of the lesson said that they do better: it compared 32 hands at $\sqrt{64}$ with 256
# at $\sqrt{512}$.) So the 64 columns of one head suffice, if $\beta$ is large.
#
# Can one head look at its left *and* its right neighbour alike, with $W = M_1 + M_{-1}$? In the sum the sines cancel,
# and hand $i$ keeps $2 \cos \omega_i$ times the identity. No speed is above 1, so all these factors are positive, and
# every hand gives most at $s = t$: two peaks that are so wide and so near make one between them. Two heads can do it,
# with one matrix each.
#
# ## Experiment 4: a matrix from 40 positions
#
# Fit the matrix that leads from each of the first 40 positions to the one 3 further on, by least squares, and try it
# at the next 200. (Error: length of the difference over the length of the vectors.)

# %%
def fitted_shift(positions, k=3, n=40):
    """-> M (D, D) fitted on the first n positions; its error there, and after"""
    M = np.linalg.lstsq(positions[:n], positions[k:n + k], rcond=None)[0]
    differences = np.linalg.norm(positions[:-k] @ M - positions[k:], axis=1)
    errors = differences / np.linalg.norm(positions[k:], axis=1)
    return M, errors[:n].mean(), errors[n:].mean()


random = np.random.default_rng(9)
M, *errors = fitted_shift(sinusoids(0, 243, 8))
measure("sinusoids, D = 8: error at the 40 fitted", errors[0], 0, 1e-10)
measure("sinusoids, D = 8: error at the 200 after", errors[1], 0, 1e-7)
same("the fitted matrix and M_3", M, shift_matrix(3, 8), 1e-5)
_, *errors = fitted_shift(random.choice([-1, 1], (243, 64)) / math.sqrt(2))
measure("random, D = 64: error at the 40 fitted", errors[0], 0, 1e-10)
measure("random, D = 64: error at the 200 after", errors[1], 0.9, 1.8)
_, error, _ = fitted_shift(smooth(243, np.random.default_rng(0)), n=100)
measure("smooth, D = 32: error at the 100 fitted", error, 0.3, 0.7)

# %% [markdown]
# With more components than positions, any vectors that are linearly independent have a matrix that shifts them. That
# there is one proves nothing. What is special about sinusoids is that the matrix found at 40 positions holds at all
# others, if there are fewer components than positions. In experiment 2 there were 32 components and 24 positions. So
# the 24 vectors of *smooth* have a matrix, too; what they lack is one that can be inferred from the 14 asked ones.
#
# ## Dot products at the paper's speeds

# %%
products = PE[:200] @ PE[:200].T                               # (200, 200)
for k, expected in (0, 256), (1, 249), (10, 174), (50, 131), (100, 112):
    along = np.diagonal(products, offset=k)
    measure(f"distance {k}: dot product", along.mean(), expected - 0.5, expected + 0.5)
    assert along.max() - along.min() < 1e-9
omega = 10000.0 ** (-np.arange(0, 512, 2) / 512)
far = np.cos(np.arange(1, 5001)[:, None] * omega).sum(axis=1)       # (5000,)
measure("of 5,000 distances, the one with the largest", far.argmax() + 1, 1, 1)
one_hand = np.cos(np.arange(1, 51))
measure("one hand only, 1 radian, up to 50", one_hand.argmax() + 1, 44, 44)
measure("shortest wavelength, positions", 2 * np.pi / omega[0], 6.283, 6.284)
measure("longest wavelength, positions", 2 * np.pi / omega[-1], 60600, 60620)
checked = gradcheck(PositionalEncoding(), random.normal(size=(3, 4, 6)))
measure("the library's layer: worst error of dx", checked.worst.error, 0, 1e-6)

# %% The figure
figure, (panel, curve) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
image = panel.imshow(products[:100, :100], COLOUR_MAP, vmin=100, vmax=256)
panel.set(title="PE(pos) · PE(pos'), d_model = 512", xlabel="pos'", ylabel="pos")
figure.colorbar(image, ax=panel, label="dot product")
offsets = np.arange(-60, 61)
curve.plot(offsets, np.cos(offsets[:, None] * omega).sum(axis=1), color=DARK)
curve.plot(offsets, 256 * np.cos(offsets), ":", color=ACCENT, lw=1)
curve.text(60, 285, "all 256 hands (solid)", color=DARK, ha="right")
curve.text(60, -315, "256 times the first hand (dotted)", color=ACCENT, ha="right")
curve.set(ylim=(-340, 340), xlabel="distance in words", ylabel="dot product")
show(figure, "09_lab_toeplitz",
     alt="Left: the dot products of 100 by 100 positions, each diagonal of one "
     "colour, brightest on the main diagonal with 256, falling to 112 in the corners. "
     "Right: the dot product against the distance, a symmetric peak of 256 at 0 that "
     "falls to about 125 at 60 words; the first hand alone swings between -256 and "
     "256.",
     caption="With all hands the nearest position is the most similar; with one hand, "
     "a position 44 words away looks nearer than the neighbour.")

# %% [markdown]
# The paper says that the wavelengths run from $2\pi$ to $10000 \cdot 2\pi$. The last hand has $2i = d_{model} - 2$, so
# the longest is $9647 \cdot 2\pi$: the upper end is not quite reached.
#
# ## Experiment 5: the authors' program
#
# Tensor2Tensor writes all sines and then all cosines, and its exponent is $i/(d_{model}/2 - 1)$, so that the last
# wavelength is $10000 \cdot 2\pi$ exactly. The order can't matter to training from scratch: words and matrices are
# learned, and could have their components and rows in that order, too. The exponent:

# %%
ours = PE[:100]
theirs = hands(10000.0 ** (-np.arange(256) / 255), 100)
of_products = ours @ ours.T - theirs @ theirs.T
measure("largest difference of a component", np.abs(theirs - ours).max(), 0.13, 0.16)
measure("of a dot product (at most 256)", np.abs(of_products).max(), 0.5, 0.63)

# %% [markdown]
# Public implementations with still other speeds are `positions-of-base-100000` and `positions-without-pairs` in
# [the correctness report](../../docs/correctness.md).
#
# ## Check the claim
#
# > "Self-attention is permutation invariant."
#
# It is equivariant: the outputs move with their words ([lab notes 04](04_soft_lookup.py#check-the-claim) measure both).
# Under the causal mask of lesson 06 a position sees only what stands before it, so a decoder has some order without
# positions; but one layer can't tell in which order the words *before* a position stand, since it sums over them.
#
# > "Sinusoids extrapolate better to longer texts."
#
# The paper hopes it, and it is contested: [lesson 10](../10_longer.py) measures it. Experiment 2 is about positions
# *within* the length of training, and already there five neighbouring positions never asked are too many for sinusoids.
