# %% [markdown]
# # 19 · Train a translator on a CPU
#
# **The loss falls. How do we know that it will become a translator, and what do the jumps mean?**
#
# *Needs [lesson 13](13_whole_model.py) (the whole model), [lesson 14](14_label_smoothing.py) (the loss), [lesson
# 15](15_adam_and_warmup.py) (Adam) and [lesson 18](18_batches.py) (batches) · you will write the training loop, watch
# one sentence through 800 steps, and find the batch behind a jump.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK
from support import short_run
from support.drawing import Drawing
from support.lesson import QUICK, measure, quote, recorded, show, varying
from support.short_run import LAST, ShortRun

# %% [markdown]
# You have a model, a loss, Adam and batches. Let's put them together and train. The model is the one of
# `transformer.py`, with 373,888 weights. The text is our corpus of 20,000 pairs of sentences, 32 pairs in a step. After
# 100 steps, we look at the loss, and at the translation of a sentence that training never reads.

# %%
run = ShortRun()                    # the loop of this lesson; it stops where we say
run.train_until(100)
varying(f"loss, step 1:    {run.log[0].loss:.2f} nats per word")
varying(f"loss, step 100:  {run.log[-1].loss:.2f}")
print("source:     ", short_run.ENGLISH)
varying(f"translation: {run.translate(short_run.ENGLISH)}")

# %% [markdown]
# The loss has fallen from 8.5 to about 5. (The corpus has 2,218 words. To guess among all of them evenly costs ln 2,218
# = 7.7 nats. A new model is worse, because it prefers some words at random.) But what the model writes is no
# translation of anything. So a falling loss alone doesn't tell us that a translator is growing. What does?
#
# ## The picture
#
# Training is one loop, and you know all its boxes.

# %% Drawing the loop
def loop_picture():
    drawing = Drawing(740, 330)
    batch = drawing.box(110, 60, "batches\n32 pairs", width=150, height=54)
    forward = drawing.box(370, 60, "loss_\u200bof\nforward: a loss of 8.5", width=190,
                          height=54)
    backward = drawing.box(630, 60, "backward(1.0)", width=150, height=54)
    adam = drawing.box(370, 180, "adam\nmoves 373,888 weights", width=210, height=54)
    drawing.arrow(batch.right, forward.left, label="source, target")
    drawing.arrow(forward.right, backward.left)
    drawing.line([(630, 87), (630, 180)], "gradient", 1.6)
    drawing.arrow((630, 180), (478, 180), "gradient", label="373,888 gradients")
    drawing.line([(265, 180), (110, 180)], "soft", 1.6)
    drawing.arrow((110, 180), (110, 90))
    drawing.text(122, 140, "next step", "soft", 13, "start")
    copies = drawing.vector(370, 280, ["w", "w", "w", "w", "w"], "value", 46)
    drawing.arrow(adam.bottom, copies.top, dashed=True)
    drawing.text(384, 235, "30 times in a run: copy the weights", "soft", 13, "start")
    drawing.text(500, 280, "the mean of the last five is saved", "soft", 13, "start")
    return drawing


show(loop_picture(), "19_loop",
     alt="A loop of four boxes: batches give 32 pairs, source and target; loss_of "
     "computes a loss of 8.5; backward(1.0) gives 373,888 gradients; adam moves as "
     "many weights, and the next step begins. A dashed arrow leaves from adam: 30 "
     "times in a run the weights are copied, and the mean of the last five copies is "
     "saved.",
     caption="A step goes once around the loop. The dashed arrow is taken 30 times in "
     "the whole run.")

# %% [markdown]
# A copy of the weights is a **checkpoint**. At the end, the paper takes the mean of the last five, weight by weight,
# and so do we.
#
# ## By hand
#
# The command `python lessons/transformer.py train` takes 1,500 steps of 96 pairs. Let's count with our smaller batches.
#
# **How often is a pair read?** With 32 pairs in a batch, 20,000 / 32 = 625 batches hold every pair once. That is one
# **epoch**. So 1,500 steps are 1,500 / 625 = 2.4 epochs.
#
# **Which checkpoints are averaged?** There are 30 in a run, so one every 1,500 / 30 = 50 steps. The last five come
# after the steps 1,300, 1,350, 1,400, 1,450 and 1,500. Say one weight is 0.50, 0.54, 0.46, 0.52 and 0.48 there. Its
# mean is 2.50 / 5 = 0.50. Each batch pushes the weight a little up or down, and the mean takes out most of these
# pushes.
#
# Now you: 600 steps of 96 pairs. How many epochs are they, and which checkpoints are averaged?
#
# <details><summary>Calculate, then unfold</summary>
#
# 20,000 / 96 = 208.3, so 209 batches, and the last one has only 32 pairs. 600 / 209 = 2.9 epochs. The checkpoints come
# every 20 steps, and the last five are 520, 540, 560, 580 and 600.
#
# </details>
#
# ## In general
#
# Before the loop, the text becomes numbers. The vocabulary is `<pad>`, `</s>`, `<s>`, and then all English and German
# words of the training text in alphabetical order. A source is its ids and `</s>`. A target is `<s>`, its ids and
# `</s>`. Then come the steps, counted from 1 (for step 0, the rate of lesson 15 would need $0^{-0.5}$, and Python
# raises an error). In each step:
#
# 1. **Forward:** `loss_of` reads a batch. It returns the loss and `backward`.
# 2. **Backward:** `backward(1.0)` adds to the gradient of every weight. Why 1.0? The derivative of the loss with
#    respect to itself is 1.
# 3. **Update:** `adam` moves all weights and clears the gradients. If they weren't cleared, the next step would go on
#    adding to them.
# 4. **Checkpoint:** 30 times in the run, print the loss and keep a *copy* of all weights. `adam` changes its arrays in
#    place. So a list of the arrays themselves would hold the newest weights five times.
#
# **Your turn.** Write `train` in `transformer.py`, and run `scratchformer learn check train`. It gets the number of
# steps, the size of a batch and the dropout rate, and saves the mean of the last five checkpoints. Then `scratchformer
# learn train` trains the model with the functions that you have written.

# %%
quote("train")

# %% [markdown]
# ## One sentence, all 800 steps
#
# Let's go on to step 800. Every five steps, we ask how probable the model finds each word of the right translation,
# *Das Pferd verlässt die Straße, weil sie zu dunkel ist*, when it gets the right words before it (teacher forcing).
# Which words will it learn first, and which last?
#
# <details><summary>Make a guess, then unfold: one sentence grows up</summary>

# %% Training to step 800, and the picture
for step in 200, 400, 800:
    run.train_until(min(step, LAST))
    varying(f"step {step}: {run.translate(short_run.ENGLISH)}")
WORDS = ["Das", "Pferd", "verlässt", "die", "Straße", ",", "weil", "sie", "zu",
         "dunkel", "ist", ".", "</s>"]


def growing(runs):
    """A row for each word, a column for each look; a panel for each run"""
    figure, panels = plt.subplots(1, len(runs), figsize=(8, 3.4), sharey=True,
                                  layout="constrained", squeeze=False)
    for panel, (name, one) in zip(panels[0], runs.items()):
        image = panel.imshow(np.transpose(one.watched), aspect="auto", cmap="Blues",
                             vmin=0, vmax=1, extent=(0, LAST, len(WORDS) - 0.5, -0.5),
                             interpolation="nearest")
        panel.set(xlabel="step", yticks=range(len(WORDS)), yticklabels=WORDS)
        panel.set_title(name, fontsize=11)
    figure.colorbar(image, label="probability of the right word")
    return figure


show(growing({"one sentence, all steps": run}), "19_sentence",
     alt="A map of 13 words against 800 steps, dark where the right word has a high "
     "probability. The end sign, the full stop, zu, weil and the comma get dark "
     "within about 200 steps, Das, Pferd and Straße after about 400, verlässt after "
     "about 600. The row of sie keeps changing between dark and pale to the end.",
     caption="Each row is a word of the right translation, each column a look at the "
     "model. Dark means that the model expects this word.")

# %% [markdown]
# The model first learns the frame of such sentences: the end, the full stop, *weil … zu … ist*. These words come often,
# and they follow from the German before them. Next come the noun, the street and the adjective, and then the rarer
# verb. The row of *sie* never settles. In German, *it* is *sie* for the street, and *es* for the horse, so the model
# would have to know that the street is dark. Up to step 800 it changes its mind again and again.
#
# </details>
#
# The drama has an end, but a later one. The recorded run of `transformer.py train` (1,500 steps of 96 pairs, 107
# seconds on one core) got every sentence of `test_coreference` right, this one among them.

# %% Its recorded scores
full = recorded("one_file")["results"]
print("BLEU, 100 for equal texts:", full["bleu"])
assert full["bleu"]["test_coreference"] == 100

# %% [markdown]
# (**BLEU** counts shared runs of words: [lesson 21](21_bleu_and_averaging.py).)
#
# ## Does it matter? Take the source away
#
# Some German words can be guessed from the German words before them. So how much does the model get from the English
# sentence? Let's take it away.
#
# - **What goes in:** the same German sentences in the same order, the same model, 800 steps.
# - **What is changed:** either every German sentence gets the English of another pair (*shuffled sources*), or it gets
#   an empty one (*no source*). A model without a source is a **language model**: it continues German text.
# - **What is measured:** the loss on new sentences, in nats per word, without smoothing.
#
# Shuffled sources are wrong sources. Will their loss end (a) above that of no source, (b) at the same level, or (c)
# below, because some words fit by chance?
#
# <details><summary>Make a guess, then unfold: three trainings</summary>

# %% Two more trainings
runs = {"right pairs": run}
for version in "shuffled sources", "no source":
    runs[version] = ShortRun(version)
    runs[version].train_until(LAST)
loss = {name: one.validation_loss() for name, one in runs.items()}
if not QUICK:
    for name, (lo, hi) in zip(loss, [(0.35, 0.8), (2.3, 2.7), (2.3, 2.7)]):
        measure(f"{name}: loss on new sentences", loss[name], lo, hi)
varying("perplexity: " + ", ".join(f"{math.exp(each):.1f}" for each in loss.values()))
show(growing({name: runs[name] for name in ("right pairs", "shuffled sources")}),
     "19_source",
     alt="Two maps like the one before. With right pairs all rows but sie get dark. "
     "With shuffled sources the rows of Das, Pferd, verlässt and dunkel stay pale to "
     "the end, while the comma, weil, zu, the full stop and the end sign get dark as "
     "before.",
     caption="Without the right source, the model still learns what German words "
     "follow from other German words.")

# %% [markdown]
# Answer (b): a source that doesn't fit is worth as much as none, because the model learns to ignore it. Figure 3 shows
# what is missing. Most of the frame gets as dark as before. *Das*, *Pferd*, *verlässt* and *dunkel* stay pale, because
# nothing but the English sentence can tell them. And *ist* stays half pale, because *war* (was) would fit as well.
#
# So the source is worth 1.8 nats per word. In **perplexity**, $e^{\text{loss}}$, the model hesitates among twelve words
# without it, and among two with it. The same three trainings of the library's model, with three seeds each, agree:
# 0.54, 2.09 and 2.09 nats per piece ([lab notes
# 19](lab/19_train_a_translator.py#experiment-1-what-the-source-is-worth)).
#
# </details>
#
# This is a test for your own data, too. If your loss stays near that of a language model, check whether the lines of
# the two files belong together.
#
# ## Backward: the jumps, and clipping
#
# Now look at the loss of every single step, and at the gradient that came back. Its **length** is the root of the sum
# of all 373,888 squares.

# %% The figure
steps = np.arange(1, LAST + 1)
losses, norms = (np.array([getattr(step, name) for step in run.log])
                 for name in ("loss", "norm"))
long = np.flatnonzero([step.longest >= 16 for step in run.log])
figure, panels = plt.subplots(2, 1, figsize=(7.6, 4.4), layout="constrained",
                              sharex=True)
for panel, values, name in (panels[0], losses, "loss, nats per word"), (
        panels[1], norms, "length of gradient"):
    panel.plot(steps, values, color=DARK, lw=0.9)
    panel.plot(steps[long], values[long], "o", color=ACCENT, ms=5,
               label="batch of the longest sentences")
    panel.set(ylabel=name, ylim=(0, None))
panels[0].legend(frameon=False)
panels[1].set_xlabel("step")
show(figure, "19_run",
     alt="Two panels over 800 steps. The loss falls from 8.5 to about 1.6, with sharp "
     "jumps of up to two nats; nearly all of them carry a dot, for a batch of the "
     "longest sentences. The length of the gradient is between 1 and 3 with narrow "
     "peaks, most of them without a dot; in the first steps it is above 5.",
     caption="The loss is smoothed (lesson 14: label smoothing), so it can't fall "
     "below 1.1. The highest jumps carry a dot.")
around = np.array([np.median(losses[max(0, i - 10):i + 11]) for i in range(LAST)])
highest = np.argsort(around - losses)[:5]
if not QUICK:
    measure("of the five highest jumps, batches with 16 words and more",
            int(np.isin(highest, long).sum()), 4, 5)

# %% [markdown]
# Many people lower the learning rate when they see such jumps. First look at what the model read. A batch holds
# sentences of about the same length, and in nearly all batches that is 5 to 15 words, `</s>` included. All the highest
# jumps come from the few batches of the longest sentences, with 16 to 26 words. We think they are hard because they are
# rare: sentences of 15 words are as easy as those of 7 ([lab notes
# 19](lab/19_train_a_translator.py#experiment-2-one-gradient-100-times-as-long)). The loss comes back in the next step.
# So this run is healthy, and the jumps are no reason to change it.
#
# The peaks of the *gradient* are mostly other steps, and we haven't looked for the cause of each. Can one such step
# harm the run? Let's try it with a single weight. Suppose its gradient has always been 1, so Adam's averages are $m =
# 1$ and $v = 1$, and it moves by $m / \sqrt{v} = 1$ times the learning rate. Then one gradient is 4, or 100. With
# $\beta_1 = 0.9$ and $\beta_2 = 0.98$:
#
# | peak | m and v after it | move, m / √v | move 50 steps later |
# |---|---|---|---|
# | 1, no peak | 1 and 1 | 1 | 1 |
# | 4 | 0.9 + 0.1 · 4 = 1.3 and 0.98 + 0.02 · 16 = 1.3 | 1.14 | 0.95 |
# | 100 | 0.9 + 0.1 · 100 = 10.9 and 0.98 + 0.02 · 10,000 = 201 | 0.77 | **0.12** |
#
# You might expect that a gradient of 100 makes a huge step. Adam prevents this, because $v$ grows at once. The harm
# comes *after* the peak. For about ten steps, $m$ is nearly all peak: the weight keeps moving the way that this single
# batch asked for. Then $m$ has forgotten it, but $v$ takes hundreds of steps. Until then the weight hardly moves.
#
# **Gradient clipping** prevents this. If the gradient of all weights together is longer than a limit $c$, scale it to
# the length $c$:
#
# $$g \leftarrow g \cdot \min\left(1, \frac{c}{\lVert g \rVert}\right)$$
#
# By hand: the gradient (3, 4) has the length 5. With $c = 1$ it becomes (0.6, 0.8): the same direction, a fifth of the
# length. Between `backward(1.0)` and `adam`, that's two lines.
#
# In our run, a gradient is about 1.4 long, and after the first steps the peaks are below 4. So let's plant a large one,
# as a wrong number in the data could: we make the gradient of step 401 a hundred times as long, in three trainings.
# Twenty steps later, the loss on new sentences is 3.3 on average, and 1.8 without the long gradient. After a hundred
# steps it's 1.7 and 1.3. With a limit of 2, the long gradient does no harm: after a hundred steps it's 1.3 again ([lab
# notes 19](lab/19_train_a_translator.py#experiment-2-one-gradient-100-times-as-long)).

# %% Checking the table
def move_after(peak, later):
    m, v = 1.0, 1.0
    for g in [peak] + [1.0] * later:
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
    return m / math.sqrt(v)


assert [round(move_after(peak, 0), 2) for peak in (1, 4, 100)] == [1, 1.14, 0.77]
assert [round(move_after(peak, 50), 2) for peak in (1, 4, 100)] == [1, 0.95, 0.12]

# %% [markdown]
# ## Stop and resume
#
# Runs get interrupted. A resumed run is the *same* run only if everything is written down that a step reads and an
# earlier step has changed: the weights, Adam's $m$ and $v$, the number of the step, and the state of the random
# numbers, which choose the batches and the dropout masks. If something is forgotten, nothing crashes. Only a comparison
# with a run that was never stopped shows it, bit by bit ([lab notes
# 19](lab/19_train_a_translator.py#experiment-3-stopped-and-resumed)). The hunt `resume` asks you for that test.
#
# ## Today
#
# A run of 2026 has the same loop. Around it, several things have changed. The gradient is nearly always clipped,
# usually to a length of 1. The optimizer is AdamW ([lesson 15](15_adam_and_warmup.py)), and the rate falls to nearly 0
# at the end of a plan. Then a mean of checkpoints has little left to improve ([lab notes
# 21](lab/21_bleu_and_averaging.py#experiment-2-the-mean-of-the-last-checkpoints)). Numbers are kept in 16 bits where
# that is enough. A large text is read about once, so *validation loss rising while training loss falls*, which is
# **overfitting**, is a problem of small texts. Then stop at the lowest validation loss.
#
# ## Paper and code
#
# Section 5 of [the paper](https://arxiv.org/abs/1706.03762): batches 5.1, hardware and schedule 5.2, optimizer 5.3,
# dropout and label smoothing 5.4. It doesn't mention clipping, and `transformer.py` doesn't clip. PyTorch has one line
# for it, between `loss.backward()` and `optimizer.step()`: `torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)`.
# In the library, the loop is `train` in [training/loop.py](../scratchformer/training/loop.py), and `scratchformer train
# tiny` runs it. On real text, [Multi30k](https://github.com/multi30k/dataset), it reached 39.5 BLEU in about 77 minutes
# ([lab notes 19](lab/19_train_a_translator.py#experiment-4-real-text)).
#
# ## What to remember
#
# Each step goes forward, backward, and then moves all weights. To know that a model translates, compare its loss with
# that of a model without a source, and read translations. When the loss jumps, first look at the batch. A single huge
# gradient makes Adam's next steps too small, and clipping prevents that.
#
# **Test yourself.**
#
# 1. A text has 29,000 pairs, a batch 64. How many epochs are 2,000 steps?
# 2. The gradient is (6, 8), the limit 5. What is it after clipping?
# 3. Your loss on new sentences stays at 2.4 nats, and that of a language model on the same German is 2.4. What do you
#    check first?
#
# <details><summary>Answers</summary>
#
# 1. 29,000 / 64 = 453.1, so 454 batches, and 2,000 / 454 = 4.4 epochs.
# 2. Its length is 10, so it is halved: (3, 4).
# 3. Whether line 1 of the source file belongs to line 1 of the target file, and so on. The model ignores its source.
#
# </details>
#
# **Yours:** `train`, and the hunt `resume` · `scratchformer learn check train`, then `scratchformer learn train`
#
# **Next:** [20 · Beam search](20_beam_search.py)
