# %% [markdown]
# # Lab notes 08 · Words become vectors
#
# The controls of [lesson 08](../08_embeddings.py): whether an untrained model repeats its input, what the factor √D
# does in training, and one matrix against three.

# %% Imports
import course  # noqa: F401  finds lessons/support
from types import SimpleNamespace

import numpy as np
import transformer

from support.lesson import measure, recorded, table

# %% [markdown]
# ## Does an untrained model repeat its input?
#
# The model of the lesson ($D = 64$, two layers, $V = 600$), before training, three seeds. *Own rows* is the control:
# the scores come from a second random matrix of the same size. So the numbers are as large, but nothing is tied.

# %% Tied and not tied
D, V = 64, 600
ids = np.random.default_rng(8).integers(3, V, (200, 10))


def at_start(seed, scale, tied):
    """-> loss, mean probability of the word just read, how often it is the likeliest"""
    transformer.rng = np.random.default_rng(seed)
    model = transformer.new_model(V)
    model.E.data *= scale
    memory, _ = transformer.encode(ids, model, 0.0)
    y, _ = transformer.decode(ids[:, :-1], memory, ids, model, 0.0)
    E = model.E.data if tied else transformer.rng.normal(0, scale / 8, (V, D))
    log_p = transformer.log_softmax(y @ E.T).astype(float)
    loss = -np.take_along_axis(log_p, ids[:, 1:, None], -1).mean()
    of_read = np.take_along_axis(log_p, ids[:, :-1, None], -1)
    return loss, np.exp(of_read).mean(), (log_p.argmax(-1) == ids[:, :-1]).mean()


rows = []
for scale, size in (8, "1"), (1, "1/√D"):
    for tied in True, False:
        found = np.mean([at_start(seed, scale, tied) for seed in range(3)], axis=0)
        name = f"size {size}, {'tied' if tied else 'own rows'}"
        rows.append([name, f"{found[0]:.1f}", f"{found[1]:.3f}", f"{found[2]:.2f}"])
table(["numbers of E", "loss", "probability of the word just read",
       "how often it is the likeliest"], rows)

# %% [markdown]
# Without tying nothing is repeated, and the loss is the same. So the repetition is real, but it isn't what makes the
# loss so large: *all* scores are too large. With size 1/√D they have a variance of about 1, and the loss is about half
# a nat above ln 600 = 6.40.
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
