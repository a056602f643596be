# %% [markdown]
# # Lab notes 10 · Longer than training
#
# The controls of [lesson 10](../10_longer.py): whether late positions are just rare in training, each kind of
# positions, each pair and each seed, and the recorded translators.

# %% Imports
import course  # noqa: F401  finds lessons/support
import math

import numpy as np

from scratchformer.text.batches import encode_pairs
from scratchformer.text.bundled import read_text
from scratchformer.text.corpora import Pairs
from scratchformer.training.run import load_run
from scratchformer.training.validation import validation_loss
from support.latest_name import trained
from support.lesson import QUICK, ROOT, measure, recorded, table
from support.positions import Shifted

# %% [markdown]
# ## Is it the rare late positions?
#
# A sentence that begins at position 5 instead of 0 has a loss eight times as high. No position is new, but late
# positions are rarer in training than early ones. So here we take only sentences of up to ten pieces. Begun at 5 they
# end at 14 at the latest, where a third of all sentences still go on.

# %% Short sentences, moved
translator = load_run(ROOT / "data/tiny_model")
model = translator.model


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

# %% [markdown]
# They fail as the longer ones do. So that isn't the reason.
#
# ## Are sinusoids worse than no positions?
#
# The model of the page five times with each kind of positions: the lowest and the highest share of right answers.

# %% Every kind and every seed
seeds = [0] if QUICK else [0, 1, 2, 3, 4]
rows, found = [], {}
for kind in ("none", "sinusoids", "ALiBi", "RoPE"):
    readers = [trained(kind, seed) for seed in seeds]
    found[kind] = np.array([[reader.accuracy(n) for n in (20, 40, 60)]
                            for reader in readers])
    lows, highs = found[kind].min(axis=0), found[kind].max(axis=0)
    rows.append([kind, *(f"{lo:.2f} to {hi:.2f}" for lo, hi in zip(lows, highs))])
assert (found["sinusoids"].max(axis=0) < found["none"].min(axis=0))[1:].all()
table(["positions", "20 words", "40 words", "60 words"], rows)

# %% [markdown]
# At 40 and 60 words, the best run with sinusoids is worse than the worst without positions.
#
# ## Which pair is it?
#
# The five models with RoPE, each pair slowed to a third by itself, at 60 words: right answers, and the weight that the
# last word gives to the 20 oldest ones.

# %% Every pair and every seed
rows = []
for words, pairs in [("none", ()), *((f"pair {i}", (i,)) for i in range(4)),
                     ("all pairs", (0, 1, 2, 3))]:
    for reader in readers:
        reader.slow = pairs
    right = np.array([reader.accuracy(60) for reader in readers])
    oldest = np.array([reader.weight_of_oldest(60) for reader in readers])
    lo, hi = (0.8, 1) if 1 in pairs else (0.05, 0.2)
    assert lo < right.min() and right.max() < hi, (words, right)
    rows.append([words, f"{right.min():.2f} to {right.max():.2f}",
                 f"{oldest.min():.2f} to {oldest.max():.2f}"])
table(["slower", "right answers", "weight of the 20 oldest"], rows)
measure("pair 1 makes a full turn in so many positions", 2 * math.pi * 10000 ** (2 / 8),
        62, 63)

# %% [markdown]
# Pair 0 makes a full turn in six positions, so training has met all its angles. Pairs 2 and 3 turn by less than 34° in
# 59 positions.
#
# ## The recorded translators
#
# The preset `tiny`, 600 steps, two seeds, by [benchmarks/longer.py](../../benchmarks/longer.py). RoPE and ALiBi are in
# self-attention, where only distances count, so they can't be begun elsewhere; RoPE's pairs are neighbours there. In
# *random start*, each batch begins at a random position from 0 to 63. In *long ones too*, 1,000 of 21,000
# training sentences are made like those of `test_long`.

# %% Losses of both seeds
result = recorded("longer")
runs = {row["variant"]: row["runs"] for row in result["results"]}


def both(name, key, i=None):
    values = [run[key] if i is None else run[key][i] for run in runs[name]]
    return ", ".join(f"{value:.2f}" for value in values)


assert result["shifts"][1] == 5 and result["edges"] == [0, 10, 20, 30, 40, 128]
table(["positions", "test", "test, begun at 5", "test_long"],
      [[name, both(name, "test"), "" if name in ("alibi", "rotary") else
        both(name, "test_shifted", 1), both(name, "test_long")] for name in runs])
table(["test_long, German positions", "0 to 9", "20 to 29", "from 40"],
      [[name, *(both(name, "test_long_by_position", i) for i in (0, 2, 4))]
       for name in runs])
measure("longest sentence of training, pieces", result["longest_in_training"], 34, 34)
measure("longest sentence of test_long, pieces", result["longest_in_test_long"], 62, 62)

# %% [markdown]
# Random starts make the failure at the top of the page vanish, and the loss on `test` rises; that on `test_long` stays.
# *Long ones too* teaches late positions, long sentences and sentences of three or four main clauses at once. We haven't
# separated them. In no row is the loss from position 40 on much above that at 20 to 29, where no German position is
# new.
