# %% [markdown]
# # Lab notes 16 · The first training, and how to debug it
#
# The controls behind [lesson 16](../16_first_training.py): models A and C with other seeds, why a new model repeats
# what it has read, and a model without its source.

# %% Imports
import course  # noqa: F401  finds lessons/support
import math
from itertools import repeat

import numpy as np

from support.lesson import QUICK, measure
from support.planted_bugs import (
    PAD,
    V,
    batch_of,
    fresh,
    guessed,
    new_model,
    planted,
    symbols_right,
    words,
    words_right,
    written,
)

held_out = batch_of(words(np.random.default_rng(99), 200, kept=True))


def trained(file, seed, batches, steps=200, enough=0.0):
    model, losses = new_model(file, seed), []
    for _, batch in zip(range(steps), batches):
        loss, backward = file.loss_of(*batch, model, eps_ls=0.0)
        backward(1.0)
        file.adam(model, len(losses) + 1)
        losses.append(loss)
        if loss < enough:
            break
    return model, losses


# %% [markdown]
# ## The lesson's models with other seeds
#
# The correct model C with ten seeds, and A with three. The lesson's limits lie outside what the correct models reached:
# it objects below 85 % of symbols guessed right, and above 200 steps to memorise eight words. *Writing* has to agree
# exactly.

# %% A and C
eight = batch_of(words(np.random.default_rng(5), 8))
symbols, steps, whole_words = [], [], {"A": [], "C": []}
for seed in range(2 if QUICK else 10):
    file = planted()
    model, _ = trained(file, seed, fresh(seed))
    guesses, writings = guessed(file, model, held_out), written(file, model, held_out)
    assert words_right(guesses, held_out[1]) == words_right(writings, held_out[1])
    symbols.append(symbols_right(guesses, held_out[1]))
    steps.append(len(trained(file, seed, repeat(eight), 400, enough=0.03)[1]))
    if seed < 3:
        whole_words["C"].append(words_right(writings, held_out[1]))
        file = planted("softmax / batch")
        model, _ = trained(file, seed, fresh(seed))
        writings = written(file, model, held_out)
        whole_words["A"].append(words_right(writings, held_out[1]))
for name, found, *band in (("symbols guessed right", symbols, 0.85, 0.95),
                           ("steps to memorise eight words", steps, 90, 150)):
    measure(f"C, {name}: lowest", min(found), *band)
    measure(f"C, {name}: highest", max(found), *band)
for name, *band in ("A", 0.25, 0.48), ("C", 0.49, 0.75):
    measure(f"{name}, words written right: lowest", min(whole_words[name]), *band)
    measure(f"{name}, words written right: highest", max(whole_words[name]), *band)

# %% [markdown]
# ## Experiment 1: the first loss
#
# Ten new models each, one batch. The control has an output matrix of its own instead of $E$, as random as $E$: then the
# vector that travels along the residual connections meets no row of its own.

# %% With and without the matrix of its own
source, target = next(fresh(seed=7))
for name, own, *bands in (("E", False, 0.6, 1.2, 0.35, 0.6),
                          ("its own", True, 0.3, 0.6, 0.05, 0.15)):
    found = []
    for seed in range(10):
        file = planted()
        model, read, answers = new_model(file, seed), target[:, :-1], target[:, 1:]
        memory, _ = file.encode(source, model, 0.0)
        x, _ = file.decode(read, memory, source, model, 0.0)
        other = np.random.default_rng(100 + seed).normal(size=(V, 32)) / 32**0.5
        log_p = file.log_softmax(x @ (other if own else model.E.data).T)
        at = [np.take_along_axis(log_p, ids[..., None], axis=-1)[answers != PAD]
              for ids in (answers, read)]
        found.append((-at[0].mean() - math.log(V), np.exp(at[1]).mean()))
    excess, repeated = np.mean(found, axis=0)
    measure(f"output matrix {name}: first loss − ln V", excess, *bands[:2])
    measure(f"output matrix {name}: probability of the symbol read last", repeated,
            *bands[2:])

# %% [markdown]
# ## Experiment 2: a model without its source
#
# The correct model, seed 0, with every source letter replaced by one and the same: it sees how long a word is, and
# nothing else.

# %% The baseline
def blind(batch):
    return np.where(batch[0] > 2, 3, batch[0]), batch[1]


file = planted()
model, _ = trained(file, 0, map(blind, fresh(0)))
measure("no source: symbols guessed right", symbols_right(
    guessed(file, model, blind(held_out)), held_out[1]), 0.25, 0.4)
