# %% [markdown]
# # Lab notes 16 · The first training, and how to debug it
#
# The controls behind [lesson 16](../16_first_training.py): model A with other seeds, why a new model repeats what it
# has read, how many mutants pass every gradient check, learning rates, and the checks on correct models.

# %% Imports
import course  # noqa: F401  finds lessons/support
import json
import math
import sys
from itertools import repeat

import numpy as np

from exercises.hunts import variant
from support.lesson import QUICK, ROOT, measure, table
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

sys.path.append(str(ROOT / "tests" / "mutants"))
from mutants import MUTANTS  # noqa: E402

held_out = batch_of(words(np.random.default_rng(99), 200))


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
# Models A and C of the lesson. *Apart* is the check "writing": the share of words written right, minus the share
# guessed right. The correct model also has to memorise the lesson's eight words within 200 steps.

# %% A and C
eight = batch_of(words(np.random.default_rng(5), 8))
for seed in [1] if QUICK else [1, 2]:
    for name, bug, *band in ("A", "softmax / batch", 0.4, 0.6), ("C", None, 0.2, 0.4):
        file = planted(bug)
        model, losses = trained(file, seed, fresh(seed))
        measure(f"{name}, seed {seed}: last loss", np.mean(losses[-20:]), *band)
        found = [words_right(how(file, model, held_out), held_out[1])
                 for how in (written, guessed)]
        measure(f"{name}, seed {seed}: words written right", found[0],
                *((0.25, 0.48) if bug else (0.45, 0.75)))
        measure(f"{name}, seed {seed}: apart", abs(found[0] - found[1]), 0, 1e-9)
    _, losses = trained(planted(), seed, repeat(eight), 400, enough=0.03)
    measure(f"C, seed {seed}: steps to memorise eight words", len(losses), 70, 150)

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
# ## Experiment 2: a hundred bugs
#
# Outside `nn/` no gradient check runs, so a mutant there has no chance to be noticed. That is why the two are counted
# apart. (These are shares of a collection. They say nothing about how often people make which mistake.)

# %% Which mutants do gradient checks notice?
noticed = json.loads((ROOT / "benchmarks/results/mutants.json").read_text("utf-8"))
places = {"in nn/": [], "elsewhere": []}
for mutant in MUTANTS:
    if mutant.name in noticed:
        in_nn = mutant.patches[0].file.startswith("scratchformer/nn/")
        places["in nn/" if in_nn else "elsewhere"].append(
            "gradients" not in noticed[mutant.name])
table(["where", "mutants", "pass every gradient check", "share"],
      [[place, len(passing), sum(passing), f"{np.mean(passing):.0%}"]
       for place, passing in places.items()])
measure("in nn/: share that passes", np.mean(places["in nn/"]), 0.5, 0.75)

# %% [markdown]
# ## Experiment 3: learning rates, and a model without its source
#
# The correct model, seed 0, at other rates. Then the same model with every source letter replaced by one and the same:
# it sees how long a word is, and nothing else.

# %% Rates and the baseline
for times, *band in (0.1, 0.25, 0.5), (1, 0.8, 1), (10, 0.3, 0.8):
    file = variant(adam=(("lrate = model", f"lrate = {times} * model"),))
    model, _ = trained(file, 0, fresh(0))
    measure(f"{times} times our rate: symbols guessed right",
            symbols_right(guessed(file, model, held_out), held_out[1]), *band)


def blind(batch):
    return np.where(batch[0] > 2, 3, batch[0]), batch[1]


file = planted()
model, _ = trained(file, 0, map(blind, fresh(0)))
measure("our rate, no source: symbols guessed right", symbols_right(
    guessed(file, model, blind(held_out)), held_out[1]), 0.25, 0.45)
