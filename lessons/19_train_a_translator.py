# %% [markdown]
# # 19 · Train a translator on a CPU
#
# **The loss falls. How do we know that it will become a translator, and what do the jumps mean?**
#
# *Needs [lesson 13](13_whole_model.py), [lesson 14](14_label_smoothing.py), [lesson 15](15_adam_and_warmup.py) and
# [lesson 18](18_batches.py) · you will write the training loop, watch one sentence through 750 steps, and find the
# batch behind a jump.*

# %% Imports
import math
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
from transformer import adam, loss_of

from scratchformer.experiments.figures import ACCENT, DARK
from support import short_run
from support.drawing import Drawing
from support.lesson import QUICK, measure, quote, recorded, show, varying
from support.short_run import LOOKS, STEPS, ShortRun

# %% [markdown]
# Let's put model, loss, Adam and batches together and train. The model is the one of `transformer.py`, with 373,888
# weights. The text is our corpus of 20,000 pairs of sentences, 32 pairs in a step. Here is the loop, and what comes
# out:

# %%
def train(run, steps):
    for step, (source, target) in zip(range(1, steps + 1), run.batches):
        loss, backward = loss_of(source, target, run.model, eps_ls=0.0)
        backward(1.0)                     # the gradient of each weight
        run.note(loss, target)            # for the figures of this page
        adam(run.model, step)             # moves each weight, clears its gradient
        if step % max(1, steps // 30) == 0:
            run.keep_copy()               # of all weights
        if step in LOOKS:
            run.look()                    # at two losses and a translation


run = ShortRun()                      # a new model and our batches
train(run, STEPS)
varying(f"loss of step 1: {run.log[0].loss:.2f} nats per word")
print(f"step  training  validation   {short_run.ENGLISH}")
for step, training, validation, german in run.looks:
    varying(f"{step:4}      {training:.2f}        {validation:.2f}   {german}")

# %% [markdown]
# The **training loss** is measured on 500 pairs that the model trains on, the **validation loss** on 490 that it never
# reads. It never reads our sentence about the horse either. (`eps_ls=0.0` turns label smoothing off.)
#
# Guessing evenly among the 2,218 entries of the vocabulary costs ln 2,218 = 7.7 nats. The new model pays 0.9 more,
# mainly because its logits scatter ([lesson 16](16_first_training.py)). After 100 steps, both losses are below 5. But
# what the model writes has nothing to do with a horse. What did it learn in these steps, and how could we tell from the
# loss?
#
# ## The picture
#
# You know all the boxes of this loop:

# %% Drawing the loop
def loop_picture():
    drawing = Drawing(740, 330)
    batch = drawing.box(110, 60, "batches\n32 pairs", width=150, height=54)
    forward = drawing.box(370, 60, "loss_\u200bof\nforward: a loss of 8.6", width=190,
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
    drawing.text(384, 235, "about 30 times: copy the weights", "soft", 13, "start")
    drawing.text(500, 280, "the mean of the last five is saved", "soft", 13, "start")
    return drawing


show(loop_picture(), "19_loop",
     alt="A loop of four boxes: batches give 32 pairs, source and target; loss_of "
     "computes a loss of 8.6; backward(1.0) gives 373,888 gradients; adam moves as "
     "many weights, and the next step begins. A dashed arrow leaves from adam: about "
     "30 times in a run the weights are copied, and the mean of the last five copies "
     "is saved.",
     caption="A step goes once around the loop.")

# %% [markdown]
# A copy of the weights is a **checkpoint**. At the end, the paper takes the mean of the last five, weight by weight,
# and so do we.
#
# ## By hand: which checkpoints are averaged?
#
# Our run has 750 steps, so it keeps a copy every 750 / 30 = 25 steps. The last five come after the steps 650, 675, 700,
# 725 and 750. Say one weight is 0.50, 0.54, 0.46, 0.52 and 0.48 there. Its mean is 2.50 / 5 = 0.50. Each batch pushes
# the weight a little up or down, and the mean takes out most of these pushes. In our run:

# %% The mean of the last five
mean = run.averaged(5)
varying(f"validation loss at step {STEPS}: {run.loss_on('val'):.2f}")
varying(f"of the mean of five:         {mean.loss_on('val'):.2f}")
varying(f"it translates: {mean.translate(short_run.ENGLISH)}")

# %% [markdown]
# Now you: `scratchformer learn train` takes 1,500 steps. Which of its checkpoints are averaged?
#
# <details><summary>Calculate, then unfold</summary>
#
# One comes every 1,500 / 30 = 50 steps. The last five are 1,300, 1,350, 1,400, 1,450 and 1,500.
#
# </details>
#
# ## In general
#
# The vocabulary is `<pad>`, `</s>`, `<s>`, and then all English and German words of the training text in alphabetical
# order. A source is its ids and `</s>`. A target is `<s>`, its ids and `</s>`. For a checkpoint, copy the weights:
# `adam` changes its arrays in place, so without `.copy()` all checkpoints are the same array.
#
# **Your turn.** Write `train(steps, size, P_drop)` in `transformer.py`, and run `scratchformer learn check train`. It
# reads `train.en` and `train.de` in `CORPUS`. Every `max(1, steps // 30)` steps it prints the loss and keeps a copy. It
# saves the words and the mean of the last five copies (with fewer, of all) in `WEIGHTS`. At the end it translates the
# first three lines of `test.en`.

# %%
quote("train")

# %% [markdown]
# ## One sentence, all 750 steps
#
# Every five steps, we asked how probable the model finds each word of the right translation, *Das Pferd verlässt die
# Straße, weil sie zu dunkel ist*, when it gets the right words before it (teacher forcing). Which words did it learn
# first, and which last?
#
# <details><summary>Make a guess, then unfold: one sentence grows up</summary>

# %% The picture
WORDS = ["Das", "Pferd", "verlässt", "die", "Straße", ",", "weil", "sie", "zu",
         "dunkel", "ist", ".", "</s>"]


def growing(runs):
    """A row for each word, a column for each look; a panel for each run"""
    figure, panels = plt.subplots(1, len(runs), figsize=(8, 3.4), sharey=True,
                                  layout="constrained", squeeze=False)
    for panel, (name, one) in zip(panels[0], runs.items()):
        image = panel.imshow(np.transpose(one.watched), aspect="auto", cmap="Blues",
                             vmin=0, vmax=1, extent=(0, STEPS, len(WORDS) - 0.5, -0.5),
                             interpolation="nearest")
        panel.set(xlabel="step", yticks=range(len(WORDS)), yticklabels=WORDS)
        panel.set_title(name, fontsize=11)
    figure.colorbar(image, label="probability of the right word")
    return figure


show(growing({"one sentence, all steps": run}), "19_sentence",
     alt="A map of 13 words against 750 steps, dark where the right word has a high "
     "probability. The end sign, the full stop, zu, weil and the comma get dark within "
     "about 250 steps, Das and Straße by about 450, Pferd, verlässt and dunkel "
     "between 450 and 600. The row of sie keeps changing between dark and pale to the "
     "end.",
     caption="Each row is a word of the right translation, each column a look at the "
     "model. Dark means that the model expects this word.")

# %% [markdown]
# The model first learns the frame of such sentences: the end, the full stop, *weil … zu*. Next come *Das* and the
# street, and last the horse, the verb and the adjective. *sie* never settles: in German, *it* is *sie* for the street
# and *es* for the horse, so the model must find out which of them is dark. And a learned word can be lost again for
# some steps: at the right edge, *weil*, *zu* and *dunkel* turn pale. So the last line of the first table has *aber*.
#
# </details>
#
# A recorded run of `transformer.py train`, with 1,500 steps of 96 pairs, took 107 seconds of CPU time. It got all 240
# test sentences with such an *it* right (`test_coreference`).

# %% The recorded run
full = recorded("one_file")["results"]
assert full["bleu"]["test_coreference"] == 100
assert round(full["train"]["cpu_seconds"]) == 107

# %% [markdown]
# <!-- see: train | a small model that learns while you look -->
#
# ## Does it matter? Take the source away
#
# Some German words can be guessed from the German words before them. So how much does the model get from the English
# sentence?
#
# - **What goes in:** the same German sentences, the same model, the same loop.
# - **What is changed:** either every German sentence gets the English of another pair (*shuffled*), or it gets an empty
#   one (*no source*). A model without a source is a **language model** ([lesson 22](22_gpt.py)): it continues German
#   text.
# - **What is measured:** the validation loss. Its sources are shuffled or empty, too.
#
# Will the loss of shuffled sources end (a) above that of no source, (b) at the same level, or (c) below?
#
# <details><summary>Make a guess, then unfold: three trainings</summary>

# %% Two more trainings
runs = {"right pairs": run}
for version in "shuffled sources", "no source":
    runs[version] = ShortRun(version)
    train(runs[version], STEPS)
print("step  right pairs  shuffled  no source")
for looks in zip(*(one.looks for one in runs.values())):
    right, shuffled, none = (look.new for look in looks)
    varying(f"{looks[0].step:4}     {right:.2f}       {shuffled:.2f}      {none:.2f}")
if not QUICK:
    for name, (lo, hi) in zip(runs, [(0.4, 0.8), (2.3, 2.6), (2.3, 2.6)]):
        measure(f"{name}: validation loss", runs[name].looks[-1].new, lo, hi)
    measure("shuffled sources in training, right ones in the test",
            runs["shuffled sources"].loss_on("val", "right pairs"), 2.3, 2.6)
show(growing({name: runs[name] for name in ("right pairs", "shuffled sources")}),
     "19_source",
     alt="Two maps like the one before. With right pairs, at the end the rows are dark "
     "but sie and weil. With shuffled sources the rows of Das, Pferd, verlässt, Straße "
     "and dunkel stay pale to the end, while the comma, weil, zu, the full stop and "
     "the end sign get dark.",
     caption="Without the right source, the model still learns what German words "
     "follow from other German words.")

# %% [markdown]
# Answer (b). The model that was trained with shuffled sources does no better when tested with the right ones (2.43,
# too). It ignores its source. And up to step 100, the three losses are nearly equal. So in its first steps, the model
# learned only what German sentences alone can teach, and only a part of that: without a source, the loss still falls
# from 4.8 to 2.4.
#
# At the end, the source is worth 2.4 − 0.6 = 1.8 nats per word, for this model and these sentences. In perplexity,
# $e^{\text{loss}}$, the model hesitates among eleven words without it, and among two with it. The same three trainings
# of the library's model agree, with three seeds each ([lab notes
# 19](lab/19_train_a_translator.py#experiment-1-what-the-source-is-worth)).
#
# </details>
#
# ## Backward: the jumps, and clipping
#
# Now look at the loss of every step, and at the gradient that came back. Its **length** is the root of the sum of all
# 373,888 squares.

# %% The figure
steps = np.arange(1, STEPS + 1)
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
     alt="Two panels over 750 steps. The loss falls from 8.6 to about 0.6, with sharp "
     "jumps of up to two nats; the highest carry a dot, for a batch of the longest "
     "sentences. The length of the gradient is mostly between 1 and 3 with narrow "
     "peaks of up to 6, most of them without a dot.",
     caption="Training loss and gradient of each step. The highest jumps of the loss "
     "carry a dot.")
around = np.array([np.median(losses[max(0, i - 10):i + 11]) for i in range(STEPS)])
highest = np.argsort(around - losses)[:5]
if not QUICK:
    measure("of the five highest jumps, batches with 16 words and more",
            int(np.isin(highest, long).sum()), 4, 5)

# %% [markdown]
# When you see such jumps, first look at what the model read. In nearly all batches, sentences have 5 to 15 words,
# `</s>` included. The five highest jumps come from the few batches of the longest sentences, with 16 to 26 words.
# Length alone isn't the cause: sentences of 15 words are as easy as those of 7 ([lab notes
# 19](lab/19_train_a_translator.py#experiment-2-one-gradient-100-times-as-long)). We think that long ones are hard
# because they are rare. In the next step the loss is low again, but that is another batch. Only the validation loss
# before and after the jump could tell whether it did harm; we haven't measured that.
#
# The peaks of the *gradient* are mostly other steps, and at most four times as high as usual. What would a far longer
# gradient do? Take a single weight whose gradient has always been 1. Then Adam's averages are $m = 1$ and $v = 1$, and
# it moves by $m / \sqrt{v} = 1$ times the learning rate. Now comes one gradient of −100: it points the other way. With
# $\beta_1 = 0.9$ and $\beta_2 = 0.98$:
#
# - $m = 0.9 \cdot 1 - 0.1 \cdot 100 = -9.1$
# - $v = 0.98 \cdot 1 + 0.02 \cdot 10{,}000 = 201$, and the move is $-9.1 / \sqrt{201} = -0.64$
#
# After that, the gradient is 1 again:
#
# | this one gradient | move at once | 10 steps later | 50 steps later |
# |---|---|---|---|
# | 1, no peak | 1 | 1 | 1 |
# | 100 | 0.77 | 0.35 | 0.12 |
# | −100 | **−0.64** | **−0.20** | **0.11** |
#
# Adam prevents a huge step back, because $v$ grows at once. But both averages remember the peak. Because of $m$, the
# weight moves the wrong way at the peak and in the 21 steps after it, whose own gradients are all 1. Because of $v$, it
# moves in small steps for hundreds more.
#
# **Gradient clipping** prevents both. If the gradient of all weights together is longer than a limit $c$, scale it to
# the length $c$:
#
# $$g \leftarrow g \cdot \min\left(1, \frac{c}{\lVert g \rVert}\right)$$
#
# By hand: the gradient (3, 4) has the length 5. With $c = 1$ it becomes (0.6, 0.8). Call `clip` between `backward` and
# `adam`:

# %%
def clip(model, limit):
    length = np.sqrt(sum((w.grad**2).sum() for w in model.weights.values()))
    for w in model.weights.values():
        w.grad *= min(1, limit / length)


# %% [markdown]
# In our run, a gradient is about 1.7 long, and none is longer than 6. We stop three runs at step 400, where the mean
# validation loss is 1.80, and multiply the whole gradient of step 401 by 100. A weight whose gradient agrees with its
# average $m$ gets a peak like +100. One whose gradient disagrees gets one like −100, and walks back:
#
# | step 401 | loss 10 steps later | 100 steps later |
# |---|---|---|
# | as it is | 1.71 | 1.32 |
# | 100 times as long | **3.92** | **1.59** |
# | 100 times as long, limit 6 | 1.89 | 1.27 |
# | 100 times as long in $v$ only | 1.58 | 1.00 |
#
# Without the peak in $m$ (last row), there is no harm here. The loss falls even further; we don't know why. (At step
# 30, the peak in $v$ alone does harm: [lab notes
# 19](lab/19_train_a_translator.py#experiment-2-one-gradient-100-times-as-long).)

# %% Checking the table and the example
def move_after(peak, later):
    m, v = 1.0, 1.0
    for g in [peak] + [1.0] * later:
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
    return m / math.sqrt(v)


for peak, moves in (100, [0.77, 0.35, 0.12]), (-100, [-0.64, -0.20, 0.11]):
    assert [round(move_after(peak, later), 2) for later in (0, 10, 50)] == moves
assert move_after(-100, 21) < 0 < move_after(-100, 22)

weight = SimpleNamespace(grad=np.array([3.0, 4.0]))
clip(SimpleNamespace(weights={"w": weight}), 1)
assert np.allclose(weight.grad, [0.6, 0.8])

# %% [markdown]
# ## Stop and resume
#
# A resumed run is the *same* run only if the checkpoint holds everything that the next step reads and that earlier
# steps have changed:
#
# - the weights, Adam's $m$ and $v$, and the number of the step, all as copies;
# - the order of the pairs in this epoch, and the place in it;
# - the state of the random numbers, for the next epoch's order and the dropout masks.
#
# If something is forgotten, nothing crashes. Only a comparison with a run that was never stopped shows it, bit by bit
# ([lab notes 19](lab/19_train_a_translator.py#experiment-3-stopped-and-resumed)). The hunt `resume` asks you for that
# test.
#
# ## Today
#
# A run of 2026 has the same loop. Its gradient is nearly always clipped, usually to a length of 1. The optimizer is
# AdamW ([lesson 23](23_block_of_2026.py)), and the rate falls to nearly 0 at the end. In a small text, the training
# loss may go on falling while the validation loss rises. This is **overfitting**: take the weights with the lowest
# validation loss.
#
# ## Paper and code
#
# [The paper](https://arxiv.org/abs/1706.03762) (section 5) doesn't mention clipping, and `transformer.py` doesn't clip.
# In PyTorch it is `torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)`. The library's loop is `train` in
# [training/loop.py](../scratchformer/training/loop.py). On the captions of
# [Multi30k](https://github.com/multi30k/dataset), one run reached 39.5 BLEU on the test set of 2016 ([lesson
# 21](21_bleu_and_averaging.py)), in about 77 minutes (estimated: [lab notes
# 19](lab/19_train_a_translator.py#experiment-4-real-text)).
#
# ## Your own loop runs
#
# 20 of 22 functions are yours; only the search is still ours. (Losses are smoothed: at least 1.1.)
#
# ```
# scratchformer learn train
# scratchformer learn translate "The dog ate the apple."
# ```
#
# ## What to remember
#
# At first the loss falls because the model learns a part of the target language. To know that it translates, compare
# its loss with that of a model without a source. When the loss jumps, first look at the batch. A single huge gradient
# stays in Adam's averages for many steps. Clipping prevents that.
#
# **Test yourself.**
#
# 1. 1,500 steps read 96 of 20,000 pairs each. How many epochs is that?
# 2. The gradient is (6, 8), the limit 5. What is it after clipping?
# 3. Your validation loss stays at 2.4, like that of a language model on the same German. What do you check first?
#
# <details><summary>Answers</summary>
#
# 1. 20,000 / 96 = 208.3, so an epoch has 209 batches. 1,500 / 209 = 7.2 epochs.
# 2. Its length is 10, so it is halved: (3, 4).
# 3. Whether the lines of the two files belong together. The model ignores its source.
#
# </details>
#
# **Yours:** `train`, and the hunt `resume` · `scratchformer learn check 19`
#
# **Next:** [20 · Beam search](20_beam_search.py)
