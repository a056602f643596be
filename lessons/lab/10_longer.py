# %% [markdown]
# # Lab notes 10 · Longer than training
#
# The controls and side experiments of [lesson 10](../10_longer.py): whether late positions are just rare in training,
# how much of what positions do to the scores the distance accounts for (also in untrained heads), what stops the
# rotary model at 60 words, and the bands of the recorded translators.

# %% Imports
import course  # noqa: F401  finds lessons/support
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import COLOUR_MAP
from scratchformer.nn.layers import LearnedPositions, sinusoids
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import encode_pairs
from scratchformer.text.bundled import read_text
from scratchformer.text.corpora import Pairs
from scratchformer.training.run import load_run
from scratchformer.training.validation import validation_loss
from support.latest_name import trained, without_new_distances
from support.lesson import QUICK, ROOT, measure, recorded, show, table
from support.positions import Shifted

translator = load_run(ROOT / "data/tiny_model")
model = translator.model

# %% [markdown]
# ## Experiment 1: is it the rare late positions?
#
# A sentence that begins at position 5 instead of 0 has a loss eight times as high. Training went up to position 33,
# so no position is new. But late positions are rarer than early ones. In this control we only take sentences of up to
# ten pieces. Begun at 5 they end at 14 at the latest, where a third of all sentences still go on.

# %% Short sentences, moved
def first_pairs(split, longest):
    pairs = Pairs(*(part[:60 if QUICK else 200] for part in read_text(split)[:3]), 0)
    return encode_pairs(translator.tokenizer.encode, pairs, longest, 4096)


def loss_when_moved(pairs, first):
    before = model.source_positions, model.target_positions
    model.source_positions, model.target_positions = (
        Shifted(positions, first) for positions in before)
    loss = validation_loss(model, pairs, 4096)
    model.source_positions, model.target_positions = before
    return loss


test, test_short = first_pairs("test", 256), first_pairs("test", 10)
for first, lo, hi in (0, 0.05, 0.15), (5, 0.5, 1.3):
    measure(f"up to 10 pieces, begun at {first}: loss",
            loss_when_moved(test_short, first), lo, hi)
measure("share of test with a piece at position 14", (test.lengths > 14).mean(),
        0.2, 0.45)
measure("all of test, begun at 50: loss", loss_when_moved(test, 50), 0.8, 1.6)

# %% [markdown]
# So it isn't that.
#
# ## Experiment 2: how much does the distance tell?
#
# The scores that the positions alone give to a head of the encoder's first layer: $PE(t)^T W_Q W_K^T \, PE(s) /
# \sqrt{d_k}$, for the 34 positions of training, without biases. If they depend on the distance only, they are the
# same along every diagonal. So we ask what share of their variance the means of the diagonals account for.
#
# One thing must be taken off first. A number that is the same for *all* keys of a query (the mean of a row) changes
# nothing, since softmax discards it. And the trained heads need a control: untrained heads of the same shape.

# %% Trained and untrained heads
d_k, n_trained = 32, 34


def scores_of(model, head, n=n_trained):
    attention = model.encoder.layers[0].self_attention.sublayer
    W = attention.qkv.weight.data.astype("float64")
    W_Q, W_K = (W[:, start + head * d_k:start + (head + 1) * d_k] for start in (0, 128))
    PE = sinusoids(0, n, 128)
    return PE @ W_Q @ (PE @ W_K).T / math.sqrt(d_k)


def told_by_distance(scores):
    """scores (T, T) -> the share of variance that the diagonals' means account for"""
    scores = scores - scores.mean()
    diagonals = [scores.diagonal(i) for i in range(1 - len(scores), len(scores))]
    return sum(d.sum() ** 2 / len(d) for d in diagonals) / (scores**2).sum()


def without_constants(scores):
    return scores - scores.mean(axis=1, keepdims=True)


untrained = [Transformer(model.config, seed) for seed in range(4 if QUICK else 10)]
shares = {}
for name, models in ("trained", [model]), ("untrained", untrained):
    found = [scores_of(each, head) for each in models for head in range(4)]
    shares[name] = [(told_by_distance(scores),
                     told_by_distance(without_constants(scores))) for scores in found]
rows = []
for name, found in shares.items():
    for i, what in enumerate(("as they are", "without each query's mean")):
        column = [each[i] for each in found]
        rows.append([f"{name} ({len(found)} heads)", what, f"{min(column):.2f}",
                     f"{np.median(column):.2f}", f"{max(column):.2f}"])
table(["heads", "scores", "lowest", "median", "highest"], rows)
trained_shares = [without for _, without in shares["trained"]]
measure("trained, without the means: lowest", min(trained_shares), 0.26, 0.29)
measure("trained, without the means: highest", max(trained_shares), 0.34, 0.36)
identity = sinusoids(0, n_trained, 128) @ sinusoids(0, n_trained, 128).T
measure("W the identity, as it is", told_by_distance(identity), 0.9999, 1.0001)

# %% [markdown]
# - In the four trained heads the distance accounts for 27 to 35 %. (Counting the constants it is 15 to 24 %, but
#   softmax doesn't see those.)
# - Untrained heads differ widely: 4 to 44 %, with a median of 19 %. So training has made these heads a little more
#   about distances than the typical random head. Two thirds of what their positions do is still something else.
#
# One trained head, and the same positions in an untrained one:

# %% The maps
figure, panels = plt.subplots(1, 2, figsize=(7.5, 3.8), sharey=True,
                              layout="constrained")
for axes, title, each in zip(panels, ("trained", "untrained"), (model, untrained[0])):
    image = axes.imshow(without_constants(scores_of(each, head=2, n=60)), COLOUR_MAP)
    axes.add_patch(plt.Rectangle((-0.5, -0.5), 34, 34, fill=False, edgecolor="white",
                                 lw=2, ls="--"))
    axes.set(title=title, xlabel="position of the key")
    figure.colorbar(image, ax=axes, orientation="horizontal", label="score")
panels[0].set_ylabel("position of the query")
show(figure, "10_lab_scores",
     alt="Two maps, positions of 60 queries by positions of 60 keys; a dashed square "
     "marks the 34 positions of training. The trained head has a bright streak along "
     "the diagonal for about the first twelve positions, then only faint vertical "
     "bands. The untrained head has blocks and bands and no line along the diagonal.",
     caption="What positions alone do to the scores of one head (each query's mean "
     "taken off). The trained head follows the diagonal for about the first twelve "
     "positions and then no longer. The dashed square holds the positions of training.")

# %% [markdown]
# If only the distance counted, all lines would run along the diagonal. (The two maps have scales of their own:
# training has made these scores about ten times as large.)
#
# ## Experiment 3: what stops the rotary model?
#
# Rotary scores can't see the position. But a sequence of 60 words has distances that training never had, and three
# times as many keys in one softmax. Which of the two is it? Take the trained rotary readers of the lesson, and let
# each key that is further away than 19 count as if it were at 19. The number of keys stays, and no distance is new.
# Then do so for some of the four pairs of components only.

# %% Without new distances
readers = [trained("rotary", seed) for seed in ([0] if QUICK else [0, 1, 2])]
low, high, little, much = (0.05, 0.35), (0.85, 1), (0, 0.3), (0.6, 1)
for words, pairs, right, far in [("as it is", (), low, much),
                                 ("no new distance", (0, 1, 2, 3), high, little),
                                 ("none for pair 1", (1,), high, little),
                                 ("none for pairs 0, 2 and 3", (0, 2, 3), low, much)]:
    accuracy, weight = without_new_distances(readers, *pairs)
    measure(f"{words}: accuracy at 60 words", accuracy, *right)
    measure(f"{words}: weight on the 20 furthest keys", weight, *far)
omega_1 = 10000 ** (-2 / 8)
turn = omega_1 / (2 * math.pi)                              # of pair 1, per position
measure("pair 1 comes full circle after so many positions", 1 / turn, 62, 63)
measure("and in training made so much of a turn", 19 * turn, 0.3, 0.31)

# %% [markdown]
# It is the **distances**: with as many keys as before, but no new distance, the model is nearly as good at 60 words
# as at 20. And it is one pair of the four. In training pair 1 made less than a third of a turn, far enough to tell
# near from far. At distance 60 it points nearly where it pointed at 0, and the model takes the oldest words for the
# nearest. That is where its weight is, and why it is worse than the model without positions.
#
# ## Experiment 4: a table has no row 64
#
# A row whose position never occurs gets a gradient of exactly 0, so it keeps the random numbers it began with. Beyond
# the table there is no row:

# %% The error
try:
    LearnedPositions(64, 6, np.random.default_rng(0)).forward(np.zeros((1, 65, 6)))
except ValueError as error:
    print(f"a sentence of 65: {error}")

# %% [markdown]
# ## Experiment 5: the recorded translators
#
# The preset `tiny`, 600 steps, two seeds, by [benchmarks/longer.py](../../benchmarks/longer.py) (rotary and ALiBi in
# self-attention; a table of 128 rows).

# %% The bands
runs = {row["variant"]: row["runs"] for row in recorded("longer")["results"]}
OF_FOUR = ["learned", "sinusoidal", "alibi", "rotary"]


def over_seeds(name, what="test_long"):
    return np.array([run[what] for run in runs[name]])     # (seeds,) or (seeds, values)


bleu = {name: [run["bleu"]["test_long"] for run in runs[name]] for name in OF_FOUR}
rises = [over_seeds(name) - over_seeds(name, "test") for name in OF_FOUR]
measure("four kinds: least rise from test to test_long", np.min(rises), 1.7, 2.1)
for name, lo, hi in [("learned", -0.4, 0), ("alibi", -0.4, 0), ("rotary", -0.8, -0.3),
                     ("sinusoidal, random start", -0.2, 0.2),
                     ("sinusoidal, long ones too", -1.5, -0.8)]:
    measure(f"test_long: {name} − sinusoidal",
            (over_seeds(name) - over_seeds("sinusoidal")).mean(), lo, hi)
best_other = np.min([over_seeds(name) for name in OF_FOUR[:3]], axis=0)
measure("rotary − the best of the other three, the worse seed",
        (over_seeds("rotary") - best_other).max(), -0.6, -0.1)
measure("BLEU on test_long: range of the four means",
        np.ptp([np.mean(bleu[name]) for name in OF_FOUR]), 1, 4)
measure("BLEU, rotary: between its two seeds", np.ptp(bleu["rotary"]), 4, 6)
for name, lo, hi in ("sinusoidal", 0.9, 1.2), ("sinusoidal, random start", -0.1, 0):
    moved = over_seeds(name, "test_shifted")                # (seeds, 4): 0, 5, 20, 50
    measure(f"test begun at 5 − begun at 0: {name}", (moved[:, 1] - moved[:, 0]).mean(),
            lo, hi)

# %% [markdown]
# Random starts have a price: after as many steps the loss on `test` is higher. Whether more steps would gain
# something, we haven't tested. And *long ones too* teaches two things at once, long sentences and sentences of three
# or four main clauses. We haven't separated them.
#
# ALiBi on both sides, as in our encoder, can't tell left from right by distance: a source and its mirror image would
# look the same, but for the `</s>`, which stays at the end. There is a test for both in
# [tests/lessons/support/test_positions.py](../../tests/lessons/support/test_positions.py).
