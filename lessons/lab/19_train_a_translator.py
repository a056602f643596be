# %% [markdown]
# # Lab notes 19 · Train a translator on a CPU
#
# The controls behind [lesson 19](../19_train_a_translator.py): what the source is worth with three seeds, one gradient
# that is 100 times as long, a run that is stopped and resumed, real text, and the cost of the paper's model.

# %%
import course  # noqa: F401  finds lessons/support
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from transformer import adam, loss_of

from scratchformer import config as configs
from scratchformer.nn.sizes import parameter_counts
from scratchformer.tasks.start import begin, resume
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory
from support.lesson import QUICK, ROOT, measure, recorded, table, varying
from support.short_run import ShortRun, clip, lines

# %% [markdown]
# ## Experiment 1: what the source is worth
#
# The lesson trains its three models once. Here the library's model of `tiny` learns from the same text in pieces: 480
# steps, seeds 0, 1 and 2, the loss on validation sentences in nats per piece.

# %%
rows = {row["version"]: row for row in recorded("source_worth")["results"]}
table(["trained on", "mean", "lowest", "highest"],
      [[version, *(f"{row['final_loss'][each]:.2f}"
                   for each in ("mean", "lowest", "highest"))]
       for version, row in rows.items()])
final = {version: row["final_loss"]["mean"] for version, row in rows.items()}
measure("no source − right pairs", final["no source"] - final["right pairs"], 1.3, 1.8)
measure("shuffled pairs − no source", final["shuffled pairs"] - final["no source"],
        -0.05, 0.05)
early = {version: np.mean([dict(each["curve"])[80] for each in row["runs"]])
         for version, row in rows.items()}
measure("step 80: no source − right pairs", early["no source"] - early["right pairs"],
        -0.2, 0.2)

# %% [markdown]
# At step 80 the source is worth nothing yet: so far, the model has learned only what German alone can teach.
#
# ## Experiment 2: one gradient 100 times as long
#
# The lesson's run to step 400, seeds 0, 1 and 2. From there it goes on four times with the same batches: as it is; with
# a gradient in step 401 that is multiplied by 100; with the same gradient and a limit of 6; and with the long gradient
# in Adam's v only, as if m had never seen it. The same from step 30, seed 0.

# %%
def go_on(run, last, first=0, long=False, limit=np.inf, v_only=False):
    """Train to step `last`; the gradient of step `first` may be long."""
    for step, (source, target) in zip(range(len(run.log) + 1, last + 1), run.batches):
        loss, backward = loss_of(source, target, run.model, eps_ls=0.0)
        backward(1.0)
        run.note(loss, target)
        for w in run.model.weights.values():
            if long and step == first and v_only:  # adam makes 0.98 v + 0.02 (100 g)^2
                w.v += 0.02 / 0.98 * (100**2 - 1) * w.grad**2
            elif long and step == first:
                w.grad *= 100
        clip(run.model, limit)
        adam(run.model, step)


PLACES = {30: (0,)} if QUICK else {30: (0,), 400: (0, 1, 2)}
WAYS = {"plain": {}, "long": {"long": True},
        "long, limit 6": {"long": True, "limit": 6},
        "long in v only": {"long": True, "v_only": True}}
mean = {}
for at, seeds in PLACES.items():
    found = {}
    for seed in seeds:
        start = ShortRun(seed=seed)
        go_on(start, at)
        found.setdefault(f"step {at}", []).append(start.loss_on("val"))
        branches = {name: start.branch() for name in WAYS}
        for name, run in branches.items():
            for later in 10, 100:
                go_on(run, at + later, at + 1, **WAYS[name])
                found.setdefault(f"step {at + later}, {name}", []).append(
                    run.loss_on("val"))
    for name, values in found.items():
        varying(f"{name}: loss on new sentences "
                + ", ".join(f"{value:.2f}" for value in values)
                + f"; mean {np.mean(values):.2f}")
        mean[name] = np.mean(values)
if not QUICK:
    for step, name, *band in ((410, "long", 1.5, 3), (500, "long", 0.1, 0.7),
                              (500, "long, limit 6", -0.25, 0.25),
                              (500, "long in v only", -0.7, 0),
                              (130, "long in v only", 0.1, 1)):
        measure(f"step {step}: {name} − plain",
                mean[f"step {step}, {name}"] - mean[f"step {step}, plain"], *band)

# %% [markdown]
# *In v only* separates the two memories of the peak. From step 400 on, the harm is in m: a large v alone makes all
# steps smaller for a while, and the loss falls further than without any peak. At step 30 the large v does harm alone.
#
# **Long sentences.** At the weights of the last plain run from step 400, training pairs by the number of words to
# predict, 64 each:

# %%
def loss_of_length(shortest, longest):
    pairs = branches["plain"].pairs(lines("train.en"), lines("train.de"))
    found = [pair for pair in pairs if shortest <= len(pair[1]) - 1 <= longest][-64:]
    return branches["plain"].mean_loss(found)


by_length = {shortest: loss_of_length(shortest, longest)
             for shortest, longest in ((7, 7), (15, 15), (20, 40))}
for shortest, value in by_length.items():
    varying(f"{shortest} words{' and more' * (shortest == 20)}: {value:.2f} nats")
if not QUICK:
    measure("20 words and more − 15 words", by_length[20] - by_length[15], 1, 4)
    measure("15 words − 7 words", by_length[15] - by_length[7], -0.6, 0.6)
longest = np.array([len(pair[1]) - 1 for pair
                    in run.pairs(lines("train.en"), lines("train.de"))])
measure("pairs with 16 words and more, of 20,000", int((longest >= 16).sum()), 300, 800)

# %% [markdown]
# So a long sentence as such isn't hard; that the rare ones are hard because they are rare is our guess. We haven't
# trained on a text in which they are common.
#
# ## Experiment 3: stopped and resumed
#
# A small model of the library, twelve steps in one go, against five, a stop, and seven more from the checkpoint file.
# In the controls, the file has lost something.

# %%
folder = tempfile.TemporaryDirectory()
small = configs.with_settings(configs.preset("tiny"), {
    "data.train_source": str(ROOT / "data/tiny/val.en"),
    "data.train_target": str(ROOT / "data/tiny/val.de"),
    "data.val_source": str(ROOT / "data/tiny/test.en"),
    "data.val_target": str(ROOT / "data/tiny/test.de"),
    "model.vocab_size": 500, "model.N": 1, "model.d_model": 24, "model.d_ff": 40,
    "model.h": 3, "model.d_k": 8, "model.d_v": 8, "model.P_drop": 0.1,
    "training.tokens_per_batch": 512, "training.warmup": 80, "training.threads": 1,
    "training.save_every": 1000})


def small_run(name, last):
    """Begun by the library, or taken up again."""
    run = RunDirectory(Path(folder.name) / name)
    settings = configs.with_settings(small, {"training.steps": last})
    begun = run.config_file.exists()
    trainer = resume(run, settings)[0] if begun else begin(run, settings)
    loop.train(trainer)
    return trainer


straight = small_run("straight", 12).model.store.data


def stopped_at_five(name, spoil):
    """-> how far the weights are from those without a stop; `spoil` changes the file"""
    path = small_run(name, 5).run.checkpoints.steps()[-1]
    checkpoints.save(path, spoil(checkpoints.load(path)))
    return np.abs(small_run(name, 12).model.store.data - straight).max()


no_moments = stopped_at_five("no_moments", lambda saved: replace(
    saved, moments={name: 0 * array for name, array in saved.moments.items()}))
no_place = stopped_at_five("no_place", lambda saved: replace(
    saved, progress=replace(saved.progress, epoch=0, index=0)))
measure("resumed: largest difference of a weight",
        stopped_at_five("all", lambda saved: saved), 0, 0)
measure("control, Adam's m and v forgotten", no_moments, 1e-5, 0.1)
measure("control, place in the text forgotten", no_place, 1e-5, 0.1)
folder.cleanup()

# %% [markdown]
# Equal bit for bit, on one machine with as many threads. Neither control crashes. (The library draws its batches and
# masks from the seed and the number of the step, so no state of random numbers has to be kept.)
#
# ## Experiment 4: real text
#
# [Multi30k](https://github.com/multi30k/dataset): 29,000 captions of photographs (Elliott et al., 2016). One run of the
# preset, ended at 22 million target tokens. Its minutes are estimated from its quickest steps, since the machine did
# other things meanwhile.

# %%
result = ROOT / "benchmarks" / "results" / "multi30k_cpu.json"
real = json.loads(result.read_text(encoding="utf-8"))
end = real["validation"][-1]
measure("minutes", end["quiet_seconds"] / 60, 70, 85)
measure("test_2016_flickr, last ten checkpoints averaged, beam 4: BLEU", real["bleu"],
        39.4, 39.6)
print(real["bleu_signature"])

# %% [markdown]
# **The cost of the paper's base model.** A weight takes part in a product and a sum for each token: two operations, and
# backward has four more (lesson 01). That makes 6 · weights · tokens. The run above gives the machine's rate. The
# paper's base model took 100,000 steps of about 25,000 source and as many target tokens (§5.1, §5.2).

# %%
rate = 6 * real["n_parameters"] * end["target_tokens"] / end["quiet_seconds"]
base = sum(parameter_counts(configs.BASE.model).values())
measure("billions of operations per second", rate / 1e9, 50, 70)
measure("the paper's base model at this rate: days",
        6 * base * 25_000 * 100_000 / rate / 86_400, 150, 210)
