# %% [markdown]
# # 19 · Train a translator on a CPU
#
# **The loss falls. How do we know that it will become a translator, and what do the jumps mean?**
#
# *Needs [lesson 13](13_whole_model.py) (the whole model), [lesson 14](14_label_smoothing.py) (the loss), [lesson
# 15](15_adam_and_warmup.py) (Adam, the learning rate) and [lesson 18](18_batches.py) (batches) · you will train a
# translator, find the batch behind every jump of its loss, and stop and resume the run without a trace.*

# %% Imports
import math
import tempfile
from dataclasses import replace
from itertools import islice
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from scratchformer import config as configs
from scratchformer.decoding.translator import Translator
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.loss import batch_loss_backward, cross_entropy
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks.start import begin, resume
from scratchformer.text.batches import steps
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.bundled import read_text, words
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory, load_run
from support.lesson import duration, measure, recorded, same, show, table, varying
from support.short_run import CONFIG, LAST, QUICK, ROOT, ShortRun

# %% [markdown]
# All parts are there: text, batches, model, loss, optimizer. Let's put them together and train. The model is that of
# the preset `tiny`, 867,328 parameters, with a shorter schedule and smaller batches, so that this page can train it
# while it is built. After 60 steps we look at the loss on sentences that the model has never seen, and at its
# translation of one of them.

# %%
run = ShortRun()                        # the library's Trainer, step by step
translator = Translator(run.trainer.model, run.trainer.tokenizer)
text = run.trainer.data.val_text
watched, drama = text.source[1], {}


def watch():
    drama[len(run.log)] = translator.translate([watched], beam=1)[0]


watch()
run.train_until(60)
watch()

# %% What came out
measure("step 0: validation loss, nats per token", run.validations[0]["loss"], 7.6, 8.2)
measure("step 60: validation loss", run.validations[1]["loss"], 3.9, 5)
print("source:  ", watched)
varying(f"step 60:  {drama[60]}")

# %% [markdown]
# The loss has fallen by more than three nats, from 7.8 to 4.5. And what the model writes is no translation of anything.
# (We take the most probable next piece each time. [Lesson 20](20_beam_search.py) searches better.)
#
# So a falling loss alone says little. This page collects what does say something: an estimate of when the run ends, a
# close look at every jump, and three tests of whether the model translates.
#
# ## The picture
#
# A run goes round one circle thousands of times, and leaves it now and then by one of two exits. A step $t$ has
# micro-batches $i$ (lesson 18).

# %% Drawing the circle of training
BOXES = {"batch": (0, 1,
                   "pairs of step $t$, cut\ninto micro-batches $i$\ntext/batches.py"),
         "forward": (3, 1, "forward\nwith the weights $w$\nnn/transformer.py"),
         "loss": (6, 1, "loss $L_i$, summed over\n$n_i$ target tokens\nnn/loss.py"),
         "backward": (6, -0.5, "backward,\nadds $\\nabla L_i$\nnn/transformer.py"),
         "mean": (3, -0.5,
                  r"$g = \sum_i \nabla L_i / \sum_i n_i$"
                  "\ntraining/data_parallel.py"),
         "Adam": (0, -0.5,
                  r"$w \leftarrow w - \eta_t \, \mathrm{Adam}_t(g)$" "\nnn/optim.py"),
         "look": (3, -1.7, "validation\ntraining/loop.py"),
         "save": (0, -1.7, "checkpoint\ntraining/checkpoints.py")}
ARROWS = ("batch forward, forward loss, loss backward, backward forward, "
          "backward mean, mean Adam, Adam batch, Adam save, Adam look")
figure, axes = plt.subplots(figsize=(8.4, 4), layout="constrained")
boxes = {}
for name, (x, y, content) in BOXES.items():
    edge = ACCENT if name in ("look", "save") else DARK
    boxes[name] = axes.text(x, y, content, ha="center", va="center", bbox={
        "boxstyle": "round,pad=0.5", "fc": "white", "lw": 1.6, "ec": edge})
for start, end in map(str.split, ARROWS.split(", ")):
    aside = end in ("look", "save")
    axes.annotate("", BOXES[end][:2], BOXES[start][:2], arrowprops={
        "arrowstyle": "-|>", "lw": 1.6, "ls": "--" if aside else "-",
        "color": ACCENT if aside else DARK, "patchA": boxes[start].get_bbox_patch(),
        "patchB": boxes[end].get_bbox_patch(), "shrinkA": 3, "shrinkB": 3})
axes.text(4.55, 0.32, "next $i$", color=DARK)
axes.text(4.2, -1.7,
          "now and then: look at other sentences\nand write down the whole state",
          color=ACCENT, va="center")
axes.set(xlim=(-1.3, 7.3), ylim=(-2.1, 1.5))
axes.axis("off")
show(figure, "19_loop",
     alt="A circle of six boxes: the pairs of a step in micro-batches i, forward "
         "with weights w, the loss L_i over n_i tokens, backward, which adds the "
         "gradient of L_i and goes back to forward for the next i; then g, the sum "
         "over the tokens of all; then Adam moves w, and the next pairs come. Two "
         "dashed arrows leave from Adam: to validation and to the checkpoint.",
     caption="Every step goes round once. The dashed exits are rare. Each box names "
             "its file in the library.")

# %% [markdown]
# ## One step
#
# All weights lie in one vector $w$, and the gradient $g$ has its shape. With the learning rate $\eta_t$ of step $t$ and
# Adam's rule ([lesson 15](15_adam_and_warmup.py)):
#
# $$g = \frac{\sum_i \nabla L_i(w)}{\sum_i n_i} \qquad w \leftarrow w - \eta_t \, \mathrm{Adam}_t(g)$$
#
# The order matters more than the formulas:
#
# 1. **Forward and backward** for each micro-batch. Backward *adds* to the gradient, and no weight changes yet, because
#    all micro-batches must see the same $w$.
# 2. **Divide** once, by the tokens of all micro-batches (lesson 18).
# 3. **Learning rate** of this step, counted from 1. At step 0 it would be 0.
# 4. **Adam** moves the weights, once per step.
# 5. **Clear** the gradient. Otherwise the next step begins with this one in it.
#
# **Your turn.** Write `train` in `transformer.py`, and run `scratchformer learn check train`. There a step has one
# batch: `loss_of` divides by its tokens, `adam` does the rest, and at the end the mean of the last five checkpoints is
# saved ([lesson 21](21_bleu_and_averaging.py)). Then unfold the step of this page.

# %% Our solution
def loss_and_gradient(model, plan, indices, step, settings):
    """-> mean loss per target token, its gradient g (n_parameters,)"""
    loss, n_tokens = 0, 0
    model.store.grad[...] = 0
    for i, batch in enumerate(plan.micro_batches(indices)):
        key = DropoutKey(settings.seed, step, i)
        ids = batch.inputs
        logits, cache = model.forward(*ids, rng=key)            # (B, T, V)
        L_i, n_i, dlogits = cross_entropy(logits, batch.targets, settings.eps_ls)
        model.backward(dlogits, cache)                          # adds to grad
        loss, n_tokens = loss + L_i, n_tokens + n_i
    return loss / n_tokens, model.store.grad / n_tokens


def train_by_hand(config, plan, n_steps, clear=True):
    """-> how far each weight moves in so many steps, (n_parameters,)"""
    settings, model = config.training, Transformer(config.model, config.training.seed)
    w, beta1, beta2 = model.store.data, settings.beta1, settings.beta2
    before, m, v, g = w.copy(), np.zeros_like(w), np.zeros_like(w), 0
    for step, (_, _, indices) in enumerate(islice(steps(plan), n_steps), start=1):
        left_over = 0 if clear else g
        g = loss_and_gradient(model, plan, indices, step, settings)[1] + left_over
        rate = settings.lr_factor * config.model.d_model**-0.5 * min(
            step**-0.5, step * settings.warmup**-1.5)
        m += (1 - beta1) * (g - m)
        v += (1 - beta2) * (g**2 - v)
        correction = math.sqrt(1 - beta2**step) / (1 - beta1**step)
        w -= rate * correction * m / (np.sqrt(v) + settings.eps)
    return w - before


# %% [markdown]
# We check it twice, with a smaller model, dropout and two micro-batches. First the gradient: move all weights a little
# in a random direction $u$, back and forth; the loss must change by $g \cdot u$. Then the whole step against the
# library's `Trainer`: **how far has each weight moved** after three steps? (Compare the moves and not the weights.
# After three small steps, trained and untrained weights hardly differ.) Each check has a control that must fail.

# %% Checking the step
folder = tempfile.TemporaryDirectory()
small = configs.with_settings(CONFIG, {
    "data.train_source": str(ROOT / "data/tiny/val.en"),
    "data.train_target": str(ROOT / "data/tiny/val.de"),
    "model.vocab_size": 500, "model.N": 1, "model.d_model": 24, "model.d_ff": 40,
    "model.h": 3, "model.d_k": 8, "model.d_v": 8, "model.P_drop": 0.1,
    "training.accumulation": 2,
    "training.save_every": 1000, "training.eps": 1e-6})


def small_run(name, last):
    """The small model up to this step, by the library: begun, or taken up again."""
    run = RunDirectory(Path(folder.name) / name)
    settings = configs.with_settings(small, {"training.steps": last})
    begun = run.config_file.exists()
    trainer = resume(run, settings)[0] if begun else begin(run, settings)
    loop.train(trainer)
    return trainer


three = small_run("three", 3)
model, (_, _, indices) = Transformer(small.model, 0, "float64"), next(steps(three.plan))
w = model.store.data                                                   # (n_parameters,)
u = np.random.default_rng(5).normal(size=w.size)
g = loss_and_gradient(model, three.plan, indices, 1, small.training)[1]
other_g = loss_and_gradient(model, three.plan, indices, 2, small.training)[1]
at_w, losses = w.copy(), {}
for sign in 1, -1:
    w[...] = at_w + sign * 1e-7 * u
    losses[sign] = loss_and_gradient(model, three.plan, indices, 1, small.training)[0]
numeric = (losses[1] - losses[-1]) / 2e-7
same("g · u and the numeric change of the loss", g @ u, numeric, tolerance=1e-6)
measure("control, other dropout masks: relative difference",
        abs(other_g @ u / numeric - 1),
        1e-3, 5)
start = Transformer(small.model, small.training.seed).store.data
moved = three.model.store.data - start
same("moves of all weights: by hand and Trainer",
     train_by_hand(small, three.plan, 3), moved, tolerance=5e-3)
not_cleared = train_by_hand(small, three.plan, 3, clear=False)
measure("control, gradient never cleared: largest difference",
        np.abs(not_cleared - moved).max() / np.abs(moved).max(), 0.3, 1)

# %% [markdown]
# ## When will it be done?
#
# Count tokens. The first 60 steps gave us a rate, in target tokens per second. The batch plan follows from the seed, so
# we know how many tokens the next 180 steps hold before we take them. Divide tokens by rate. (A run of 22 million
# tokens takes about an hour at 6,000 tokens per second.)

# %% A prediction
train = run.trainer.data.train
rate = sum(entry["target_tokens"] for entry in run.log) / sum(
    entry["cpu_seconds"] for entry in run.log)
progress = run.trainer.progress
coming = islice(steps(run.trainer.plan, progress.epoch, progress.index), LAST - 60)
tokens = sum(train.target.lengths[indices].sum() for _, _, indices in coming)
duration(f"predicted for steps 61 to {LAST}", tokens / rate)
for last in [step for step in (120, 180, 240) if step <= LAST] or [LAST]:
    run.train_until(last)
    watch()
duration("it took, beside the prediction",
         sum(entry["cpu_seconds"] for entry in run.log[60:]), over=tokens / rate)

# %% [markdown]
# (To predict the time of a model that you haven't begun to train, count its arithmetic. [Lab notes 19, experiment
# 1](lab/19_train_a_translator.py#experiment-1-counting-the-arithmetic) does it for the paper's base model, half a year
# on this machine.)
#
# ## The drama of training
#
# Here is the sentence that we watched.

# %% The same sentence, every 60 steps
print("source     ", watched)
for step, translation in drama.items():
    dots = "..." if len(translation) > 70 else ""
    varying(f"step {step:4}   {translation[:70]}{dots}")
print("reference  ", text.target[1])

# %% [markdown]
# First one piece again and again. Then German words that come often. Then the frame of the right sentence, *wurde von*,
# with wrong words in it, and by step 180 the goat and the queens. The adjective and the verb are still missing at the
# end. Nothing in the curves of figure 2 marks these changes.

# %% The figure
at = np.arange(1, len(run.log) + 1)
loss, norm = ([entry[name] for entry in run.log] for name in ("loss", "grad_norm"))
figure, panels = plt.subplots(2, 1, figsize=(7.6, 4.6), layout="constrained",
                              sharex=True)
panels[0].plot(at, loss, color=DARK, lw=1, label="training, each step (smoothed)")
panels[0].plot([entry["step"] for entry in run.validations],
               [entry["loss"] for entry in run.validations], "o-", color=ACCENT, ms=4,
               label="validation (not smoothed)")
panels[0].set(ylabel="nats per target token", ylim=(0, 8.5))
panels[0].legend(frameon=False)
panels[1].plot(at, norm, color=DARK, lw=1)
panels[1].set(ylabel="length of the gradient", xlabel="step", ylim=(0, 7))
for panel, values, steps_of in ((panels[0], loss, (75, 111, 233)),
                                (panels[1], norm, (57, 111, 164, 192))):
    for step in steps_of:
        if step <= len(run.log):
            panel.annotate(str(step), (step, values[step - 1]), (0, 12), ha="center",
                           textcoords="offset points", arrowprops={"arrowstyle": "-"})
show(figure, "19_run",
     alt="Two panels over 240 steps. The training loss falls from 8 to about 2.2 "
         "nats, with jumps at steps 75, 111 and 233; the validation loss falls from "
         "7.8 to 1.2. The gradient's length is mostly between 1 and 2, with a peak "
         "of nearly 6 at step 57 and of about 3 at steps 111, 164 and 192.",
     caption="The loss jumps at steps 75, 111 and 233, and comes back at once. The "
             "gradient has other peaks, the largest at step 57.")

# %% [markdown]
# ## Which batches make the jumps?
#
# Many people lower the learning rate when they see figure 2. Before you do, look at what the model read in these steps.
# Every step's pairs are known, so this takes three lines. What do you expect at the peaks?
#
# <details><summary>Make a guess, then unfold: the batches behind the peaks</summary>

# %%
jumps = [entry for entry in run.log if entry["step"] in (57, 75, 111, 164, 192, 233)]
table(["step", "pairs in the batch", "target tokens", "longest pair"],
      [[e["step"], e["pairs"], e["target_tokens"], e["longest"]] for e in jumps])
varying("gradient: " + ", ".join(f"{e['step']}: {e['grad_norm']:.1f}" for e in jumps))

# %% [markdown]
# A normal batch has about 460 target tokens. The largest gradient, at step 57, comes from a batch of **one pair and 8
# tokens**. It is the rest of its bucket ([lesson 18](18_batches.py)). Steps 111, 164 and 192 are such **rest batches**
# as well. And the jumps of the *loss*, at 75, 111 and 233, are batches of the longest sentences.
#
# </details>
#
# Why would a small batch have a *long* gradient? The gradient of a step is a mean over its tokens. In each token's
# gradient there is a part that all tokens share, and noise of its own. In a mean over many tokens the noise averages
# out, and in a mean over 8 tokens it doesn't. If that is right, then at the *same* weights, and for sentences of the
# same length, the gradient must get shorter with more pairs.
#
# And why is the loss of long sentences high? Only 64 of the 20,000 pairs have more than 24 tokens, so we think that the
# model has hardly seen any. Whatever the reason: if the run is healthy, their loss must be higher at the *same*
# weights, too.

# %% Two controls, at the weights of the last step
model = run.trainer.model
of_length_8 = np.random.default_rng(0).permutation(np.flatnonzero(train.lengths == 8))


def gradient_length(indices):
    model.zero_grad()
    batch = train.batch(indices)
    _, n = batch_loss_backward(model, batch.inputs, batch.targets,
                               CONFIG.training.eps_ls)
    return np.linalg.norm(model.store.grad) / n


lengths_of_gradient = {n: np.mean([gradient_length(of_length_8[i * n:(i + 1) * n])
                                   for i in range(8)]) for n in (1, 4, 16, 64)}
for (n, length), (lo, hi) in zip(lengths_of_gradient.items(),
                                 [(4, 12), (2, 6), (1.2, 3.2), (0.6, 2)]):
    measure(f"batch of {n} × length 8: length of the gradient", length, lo, hi)
unseen = np.setdiff1d(np.arange(len(train)),
                      np.concatenate([e["indices"] for e in run.log]))


def loss_of_lengths(shortest, longest):
    found = [i for i in unseen if shortest <= train.lengths[i] <= longest][:60]
    batch = train.batch(np.array(found))
    sums, n = batch_loss_backward(model, batch.inputs, batch.targets,
                                  CONFIG.training.eps_ls)
    return float(sums) / n


up_to_24, longer = loss_of_lengths(21, 24), loss_of_lengths(25, 256)
measure("loss of new pairs: 25 tokens and more − 21 to 24", longer - up_to_24,
        0.4, 2)
model.zero_grad()

# %% [markdown]
# Both hold. The run is healthy: the peaks of the gradient tell us "few tokens", and the jumps of the loss "other
# sentences than before".
#
# ## Stop and resume
#
# Runs get interrupted. What must be written down, so that a resumed run is the *same* run? Everything that a step reads
# and an earlier step has changed: the weights, Adam's moments $m$ and $v$, the number of the step (for the learning
# rate, Adam's correction and the dropout masks), and the place in the batch plan. The plan and the masks themselves
# need no room, since they follow from the seed.
#
# We take twelve steps in one go, and compare with five, a stop, a new `Trainer` from the checkpoint file, and seven
# more. Two controls forget something.

# %% Twelve steps, with and without a stop
straight = small_run("straight", 12).model.store.data


def stopped_at_five(name, spoil):
    """-> how far the weights are from those without a stop; `spoil` changes the file"""
    path = small_run(name, 5).run.checkpoints.steps()[-1]
    checkpoints.save(path, spoil(checkpoints.load(path)))
    return np.abs(small_run(name, 12).model.store.data - straight).max()


measure("resumed: largest difference of a weight",
        stopped_at_five("all", lambda saved: saved), 0, 0)
no_moments = stopped_at_five("no_moments", lambda saved: replace(
    saved, moments={name: 0 * array for name, array in saved.moments.items()}))
no_place = stopped_at_five("no_place", lambda saved: replace(
    saved, progress=replace(saved.progress, epoch=0, index=0)))
measure("control, Adam's moments forgotten", no_moments, 1e-4, 0.1)
measure("control, place in the plan forgotten", no_place, 1e-4, 0.1)
folder.cleanup()

# %% [markdown]
# Equal, bit for bit (on one machine, with as many threads). Neither control crashes. Only the comparison with a run
# that was not stopped finds such a mistake. The hunt `resume` asks you for that test.
#
# ## Does it translate? Take the source away
#
# A low loss need not mean that the model reads the source, because German alone is predictable to a degree. So train
# the same model three times: on (1) right pairs, (2) the same sentences with the sources shuffled, (3) empty sources.
# The third is a **language model**: it predicts each piece from the pieces before it. Where will (2) end, compared with
# (3)?
#
# <details><summary>Make a guess, then unfold: 480 steps, three seeds each</summary>

# %% The result
result = recorded("source_worth")
worth = {row["version"]: row for row in result["results"]}
table(["trained on", "validation loss", "perplexity"],
      [[version, f"{row['final_loss']['mean']:.2f}",
        f"{math.exp(row['final_loss']['mean']):.1f}"]
       for version, row in worth.items()])
figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
styles = ("-", DARK), ("--", ACCENT), (":", "#555555")
for (version, row), (style, colour) in zip(worth.items(), styles):
    for each in row["runs"]:
        axes.plot(*zip(*each["curve"]), ls=style, color=colour, lw=1.6,
                  label=version if not each["seed"] else "")
axes.set(xlabel="step", ylabel="validation loss, nats per token", ylim=(0, 8))
axes.legend(frameon=False)
show(figure, "19_source",
     alt="Validation loss over 480 steps, three seeds of three versions. With right "
         "pairs it falls below 0.6 nats. With shuffled pairs and without a source it "
         "falls to about 2.1, and the six curves lie on one another. At step 80 all "
         "nine are between 3.9 and 4.5.",
     caption="A source that does not fit is worth as much as none. Until step 80 "
             "the three can't be told apart.")

# %% [markdown]
# Shuffled pairs end where the language model ends. So the source is worth the distance between the two levels, about
# one and a half nats per token. At step 80 there is no distance yet: that is how the loss in the opening could fall
# while nothing was translated. If your loss stays near the upper level, check whether the lines of the two files belong
# together.
#
# </details>
#
# **Perplexity**, in the table, is $e^{\text{loss}}$, as in lesson 14: the number of equally probable pieces among which
# the model hesitates.
#
# ## The finished run
#
# `scratchformer train tiny` trains this model for 2,000 steps, with larger batches and a longer warm-up. We test the
# finished model on four sets, none of which is in the training text:
#
# - `test`: sentences like those in training.
# - `test_compositional`: pairs of words that never share a sentence in training, such as an adjective and a noun.
# - `test_coreference`: the German pronoun depends on the meaning of the sentence.
# - `test_long`: sentences with 26 to 45 words in both languages. In training the longest have 24 words in English and
#   25 in German. (A punctuation mark counts as a word.)
#
# **BLEU** counts the runs of one to four words that a translation shares with the reference, 100 for all. ([Lesson
# 21](21_bleu_and_averaging.py) opens it up.) Where will the model fail, and how?
#
# <details><summary>Make a guess, then unfold: four test sets</summary>

# %% Scores, and the first failure of each set
finished = load_run(ROOT / "data/tiny_model")
SETS = "test", "test_compositional", "test_coreference", "test_long"
for side, longest in (0, 24), (1, 25):
    counts = {split: [len(words(line)) for line in read_text(split)[side]]
              for split in ("train", "test_long")}
    assert max(counts["train"]) == longest
    assert (min(counts["test_long"]), max(counts["test_long"])) == (26, 45)
in_training = set(read_text("train").source)
scores, failures = [], []
for split in SETS:
    sources, references = (lines[:100 if QUICK else 500]
                           for lines in read_text(split)[:2])
    assert not in_training.intersection(sources)
    found = finished.translate(sources, beam=1)
    right = [a == b for a, b in zip(found, references)]
    scores.append([split, f"{np.mean(right):.2f}",
                   f"{corpus_scores(found, references).bleu:.0f}"])
    first = right.index(False)
    failures.append((split, sources[first], found[first], references[first]))
table(["set", "exactly right", "BLEU"], scores)
for split, source, written, reference in failures:
    print(f"{split}: {source}\n    written   {written}\n    reference {reference}")

# %% [markdown]
# Read the failures, not only the scores. The first is an ending. In the second the object is missing, and with it the
# point of the question. The third takes *it* for the donkey, and so says something else with one wrong word. Of the
# long sentence whole clauses are lost and the rest is mixed up. One average over the four sets would hide that.
#
# </details>
#
# **Real text.** [Multi30k](https://github.com/multi30k/dataset) has 29,000 captions of photographs in English and
# German. (Its terms of use don't let us bundle it.) Our recorded run reached 39.5 BLEU on `test_2016_flickr` in about
# 77 minutes on one to two cores ([lab notes 19, experiment 3](lab/19_train_a_translator.py#experiment-3-real-text)).
# With its files in a directory, this is the whole work:
#
# ```
# scratchformer train multi30k --data DIR --out runs/m30k       # also: --minutes 30, --resume runs/m30k
# scratchformer plot runs/m30k loss
# scratchformer average runs/m30k --last 10
# scratchformer evaluate runs/m30k --source DIR/test_2016_flickr.en.gz --reference DIR/test_2016_flickr.de.gz
# echo "A dog runs on the beach." | scratchformer translate runs/m30k
# ```
#
# ## Paper and code
#
# - The paper's training is §5: batches 5.1, hardware and schedule 5.2, optimizer 5.3, regularisation 5.4. Its
#   perplexities are per piece, as ours are, and can't be compared with those per word.
# - In the library: `begin` and `resume` in [tasks/start.py](../scratchformer/tasks/start.py), `train` in
#   [training/loop.py](../scratchformer/training/loop.py), `Trainer` in
#   [training/trainer.py](../scratchformer/training/trainer.py); the file format, and how it survives a power cut, in
#   [training/checkpoints.py](../scratchformer/training/checkpoints.py).
# - *Differs from this page:* `batch_loss_backward` never makes all logits at once; micro-batches are shared among
#   threads ([training/data_parallel.py](../scratchformer/training/data_parallel.py)); `train` also writes the log and
#   refuses to go on when the loss is not finite.
#
# ## What to remember
#
# A falling loss doesn't prove that a model translates. Compare it with the loss without a source, look at translations,
# and read the failures. When a curve jumps, look at the batch first: few tokens make long gradients, and rare sentences
# make high losses.
#
# **Yours:** `train`, and the hunt `resume` · `scratchformer learn check train`, then `scratchformer learn train`
#
# **A puzzle.** The same model gets twice the vocabulary, 3,200 pieces. By what factor does the time of a step grow, if
# the sentences had as many tokens as before?
#
# <details><summary>Answer</summary>
#
# The output matrix has 128 · 1600 = 204,800 of the 860,160 weights that a pair of tokens meets. Doubling it makes 1.24
# times the products. (In truth sentences get shorter with a larger vocabulary, so there are fewer tokens.)
#
# </details>
#
# **Next:** [20 · Beam search](20_beam_search.py)

# %% The end of the run
assert max(run.log[29:], key=lambda entry: entry["grad_norm"])["step"] == 57
run.close()
