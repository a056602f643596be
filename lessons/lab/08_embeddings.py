# %% [markdown]
# # Lab notes 08 · Words become vectors
#
# The controls of [lesson 08](../08_embeddings.py): the size of $E$ before training, what the factor √D does in
# training, and one matrix against three.

# %% Imports
import course  # noqa: F401  finds lessons/support
from types import SimpleNamespace

import numpy as np
import transformer

from support.lesson import measure, recorded, table

# %% [markdown]
# ## The size of E before training
#
# An untrained Transformer of the file ($D = 64$, two layers, $V = 600$) predicts the next words of 200 random
# sentences. Its $E$ is 8 times as large for reading, for scoring, or for both, in three seeds. A blind guess has a loss
# of ln 600 = 6.40.

# %% Reading and scoring apart
D, V = 64, 600
ids = np.random.default_rng(8).integers(3, V, (200, 10))


def loss_at_start(seed, read, score):
    """The factors of E for reading and for scoring -> loss"""
    transformer.rng = np.random.default_rng(seed)
    model = transformer.new_model(V)                    # E has size 1/√D
    of_scores = model.E.data * score
    model.E.data *= read
    memory, _ = transformer.encode(ids, model, 0.0)
    y, _ = transformer.decode(ids[:, :-1], memory, ids, model, 0.0)
    log_p = transformer.log_softmax(y @ of_scores.T)
    return -np.take_along_axis(log_p, ids[:, 1:, None], -1).astype(float).mean()


found = {name: [loss_at_start(seed, read, score) for seed in (0, 1, 2)]
         for name, read, score in [("size 1/√D", 1, 1), ("8 × for reading", 8, 1),
                                   ("8 × for scoring", 1, 8), ("8 × for both", 8, 8)]}
table(["numbers of E", "seed 0", "seed 1", "seed 2"],
      [[name, *(f"{loss:.1f}" for loss in losses)] for name, losses in found.items()])
assert 6.8 < min(found["size 1/√D"]) and max(found["8 × for reading"]) < 7
assert 24 < min(found["8 × for scoring"]) and max(found["8 × for both"]) < 27

# %% [markdown]
# So it is the scores alone that make the loss large.
#
# ## What the factor does in training
#
# *(After lesson 15.)* The factor √D has three effects. The words' vectors are √D times as large before training
# (*start*). Adam moves every number of $E$ by about the same amount in a step, so with the factor the words move √D
# times as far (*steps*). And in $dE$ the shares of reading count √D times as much against the share of scoring
# (*gradient*). In a translator of two layers ($D = 64$, 300 steps on the bundled corpus, three seeds, one schedule of
# the learning rate), each was switched off alone. Recorded by
# [benchmarks/embeddings.py](../../benchmarks/embeddings.py).

# %% The translators
results = {row["variant"]: [run["final_loss"] for run in row["runs"]]
           for row in recorded("embeddings")["results"]}
NAMES = {"paper": "all three (the paper)", "small start": "without the start",
         "short steps": "without the steps", "small gradient": "without the gradient",
         "no factor": "none of them",
         "no factor, small positions": "none of them, positions divided by √D",
         "three matrices": "all three, but three matrices"}
table(["variant", "loss on new sentences", "the seeds"],
      [[name, f"{np.mean(results[variant]):.2f}",
        ", ".join(f"{loss:.2f}" for loss in results[variant])]
       for variant, name in NAMES.items()])
measure("three matrices − paper, largest of the seeds",
        np.subtract(results["three matrices"], results["paper"]).max(), -0.5, -0.1)

# %% [markdown]
# - Each effect is worth something for this translator, and without all three it hardly learns.
# - The last but one row has no factor either, and does as well as the paper. This is no contradiction. Its input,
#   $E_{w_t} + p_t / \sqrt{D}$, *is* the paper's input divided by √D. The first Add & Norm divides by the size of its
#   input, so it undoes this division (the scores of the first attention are smaller, though), and on the way back it
#   makes $dx$ √D times as large. So all three effects are back. What counts is the size of the words, and of their
#   steps, in proportion to the positions. Here is the control on the file, in which $E$ and positions are divided
#   together:

# %% A smaller input, the same vectors after the norm
transformer.rng = np.random.default_rng(0)
x, dy = transformer.rng.normal(size=(2, 4, 5, D))
gamma, beta = (SimpleNamespace(data=np.full(D, value), grad=np.zeros(D))
               for value in (1.0, 0.0))
(y, back), (y_small, back_small) = (
    transformer.layer_norm(scale * x, gamma, beta) for scale in (1, 1 / 8))
measure("y changes by, relative", abs(y - y_small).max() / abs(y).max(), 0, 1e-4)
growth = np.linalg.norm(back_small(dy)) / np.linalg.norm(back(dy))
measure("dx grows by a factor of", growth, 7.98, 8.01)

# %% [markdown]
# - Sharing one matrix doesn't lower the loss here: three matrices end lower for every seed. What sharing saves is
#   parameters. (The vocabulary is small, the training short, and English and German share few words.)
