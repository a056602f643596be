# %% [markdown]
# # Lab notes 13 · Encoder, decoder, the whole model
#
# What [lesson 13](../13_whole_model.py) says about training with a connection cut, and what the encoder's attention is
# for, in a task of two look-ups.

# %% Imports
import course  # noqa: F401  finds lessons/support

import numpy as np

from exercises.hunts import variant
from support.lesson import QUICK, measure, recorded, table

# %% [markdown]
# ## Experiment 1: would the loss curve tell?
#
# One connection at a time is cut before training, and a model learns the bundled corpus: 2 + 2 layers, $d_{model} =
# 64$, 500 steps, seeds 0, 1 and 2. The loss is that on validation sentences, in nats per token. Recorded by
# [benchmarks/wires.py](../../benchmarks/wires.py).

# %% The losses
losses = {row["cut"]: np.array([run["final_loss"] for run in row["runs"]])
          for row in recorded("wires")["results"]}
more = {wire: found - losses["none"] for wire, found in losses.items()}
table(["cut", "loss", "more than with nothing cut"],
      [[wire.replace("none", "nothing"), ", ".join(f"{x:.3f}" for x in found),
        "" if wire == "none" else ", ".join(f"{x:+.3f}" for x in more[wire])]
       for wire, found in losses.items()])
for wire, lo, hi in (("memory", 1.4, 1.7), ("encoder attention", -0.1, 0)):
    measure(f"without {wire}: lowest difference", min(more[wire]), lo, hi)
    measure(f"without {wire}: highest difference", max(more[wire]), lo, hi)

# %% [markdown]
# Without the memory the loss curve tells. Without the encoder's attention it doesn't: three runs of three end a little
# lower. Here the library's layers are cut, and a cut attention takes its parameters along. We haven't tested longer
# training.
#
# ## Experiment 2: two look-ups
#
# What is the encoder's attention for, then? It can look things up in advance.
#
# The source is a row of 10 random numbers from 0 to 9. The right answer at position $t$ is the number at the position
# that is named by the number at position $t$. Two heads, $d_{model} = 32$, 32 rows a step, 1,200 steps; the shares are
# those of right numbers in 500 new rows (guessing: a tenth). To take the encoder's attention away, we take its line out
# of `encode`.

# %% Three models
LINE = ("x, attention_backward = add_and_norm(P_drop, multi_head_attention, "
        "x, x, mask, **attn)\n")
NO_ATTENTION = {"encode": ((LINE, "attention_backward = lambda dx: (dx,)\n"),)}


def look_ups(random, n):
    source = random.integers(0, 10, (n, 10))
    answers = np.take_along_axis(source, source, axis=1)
    return 3 + source, np.column_stack([np.full(n, 2), 3 + answers])


def right(edits, decoder_layers, seed):
    file, random = variant(**edits), np.random.default_rng(seed)
    file.rng = np.random.default_rng(seed)
    model = file.new_model(13, d_model=32, d_ff=64, h=2, N=2)
    model.encoder, model.decoder = model.encoder[:1], model.decoder[:decoder_layers]
    for step in range(1, 1201):
        _, backward = file.loss_of(*look_ups(random, 32), model, eps_ls=0.0)
        backward(1.0)
        file.adam(model, step, warmup_steps=100)
    source, target = look_ups(np.random.default_rng(99), 500)
    memory, _ = file.encode(source, model, 0.0)
    x, _ = file.decode(target[:, :-1], memory, source, model, 0.0)
    return ((x @ model.E.data.T).argmax(axis=-1) == target[:, 1:]).mean()


for name, edits, layers, *band in (
        ("encoder with attention, 1 decoder layer", {}, 1, 0.95, 1),
        ("without, 1 decoder layer", NO_ATTENTION, 1, 0.2, 0.45),
        ("without, 2 decoder layers", NO_ATTENTION, 2, 0.7, 1)):
    for seed in [0] if QUICK else [0, 1]:
        measure(f"{name}: right, seed {seed}", right(edits, layers, seed), *band)

# %% [markdown]
# So it is not the number of weights that the first model has and the second lacks: the third has no encoder attention
# either. What one decoder layer can't do in this training is to look twice. (With 5 numbers instead of 10, it can: we
# think that it then fetches the whole row at once.)
