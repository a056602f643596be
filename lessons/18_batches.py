# %% [markdown]
# # 18 · Batches, and a mean that goes wrong
#
# **How do we fill batches with words instead of padding, and what is the loss of a step divided by?**
#
# *Needs [lesson 06](06_masks.py) (padding) and [lesson 14](14_label_smoothing.py) (the loss of a batch) · you will
# write `batches`, and catch a wrong mean that no error message reports.*

# %% Imports
from itertools import islice

import matplotlib.pyplot as plt
import numpy as np
import transformer
from matplotlib.colors import ListedColormap

from scratchformer.experiments.figures import ACCENT, DARK
from support.drawing import Drawing
from support.lesson import measure, quote, same, show, table

# %% [markdown]
# In October 2024, users of a large public library found that their loss depended on how they *cut* a step. With 32
# sentences at once they got one number, with the same sentences one by one, and averaged, another one. Nothing crashed.
# (A user had reported it [in 2023](https://github.com/huggingface/transformers/issues/24725); the [repair of
# 2024](https://github.com/huggingface/transformers/pull/34191) needed a [second
# one](https://github.com/huggingface/transformers/pull/35438).) Our own file can do the same. Here are a short and a
# long pair of our corpus, in a small model after 100 training steps:

# %% The text
def pairs_of(split):
    """Pairs of a set as words"""
    texts = [(transformer.CORPUS / f"{split}.{language}").read_text("utf-8")
             for language in ("en", "de")]
    return list(zip(*([transformer.words_in(line) for line in text.splitlines()]
                      for text in texts)))


as_words = {split: pairs_of(split) for split in ("train", "val")}
words = sorted({word for pairs in as_words.values() for pair in pairs
                for sentence in pair for word in sentence})
ids = {word: i for i, word in enumerate(words, 3)}
BOS, EOS, PAD = transformer.BOS, transformer.EOS, transformer.PAD
PAIRS = {split: [([*map(ids.get, en), EOS], [BOS, *map(ids.get, de), EOS])
                 for en, de in pairs] for split, pairs in as_words.items()}


def new_model(seed, dtype="float32"):
    transformer.rng = np.random.default_rng(seed)
    return transformer.new_model(len(ids) + 3, d_model=32, d_ff=64, h=2, N=1,
                                 dtype=dtype)


def one_batch(pairs):
    return next(transformer.batches(list(pairs), len(pairs)))


# %% One step, cut in two ways
model = new_model(0, "float64")
for number, batch in zip(range(1, 101), transformer.batches(list(PAIRS["train"]), 16)):
    transformer.loss_of(*batch, model)[1](1.0)
    transformer.adam(model, number, warmup_steps=60)
by_length = sorted(PAIRS["train"], key=lambda pair: len(pair[1]))
short, long = by_length[100], by_length[-100]
both = one_batch([short, long])
losses = [float(transformer.loss_of(*one_batch([pair]), model)[0])
          for pair in (short, long)]
counts = [len(target) - 1 for _, target in (short, long)]  # what is predicted
together = float(transformer.loss_of(*both, model)[0])
table(["", "predicted words", "loss"],
      [["the short pair", counts[0], f"{losses[0]:.2f}"],
       ["the long pair", counts[1], f"{losses[1]:.2f}"],
       ["the mean of both losses", "", f"{np.mean(losses):.2f}"],
       ["both in one batch", sum(counts), f"{together:.2f}"]])
same("one batch, and the mean over all predicted words",
     together, np.average(losses, weights=counts))

# %% [markdown]
# Which of the last two lines is right, and what does the other one do to a word of the long sentence?
#
# ## By hand: three words
#
# A **micro-batch** is a part of a step, computed by itself. Micro-batch A has two words with the losses 1 and 1.
# Micro-batch B has one word with the loss 4.

# %% Drawing two means
def means_picture():
    drawing = Drawing(760, 275)
    ways = ("divide once", (1 / 3, 1 / 3, 1 / 3), None, 2), \
           ("mean of means", (1 / 4, 1 / 4, 1 / 2), (1, 4), 2.5)
    for column, (name, weights, means, loss) in enumerate(ways):
        left = 90 + 390 * column
        drawing.text(left + 110, 20, name, bold=True)
        end = drawing.vector(left + 110, 235, [loss], "value", 54,
                             below="loss of the step")
        if means:
            middle = [drawing.vector(x, 150, [mean], cell=46)
                      for x, mean in zip((left + 45, left + 220), means)]
            for box in middle:
                drawing.thread(box.bottom, end.top, 0.5)
        for i, (x, value, weight) in enumerate(zip((0, 90, 220), (1, 1, 4), weights)):
            word = drawing.vector(left + x, 75, [value], cell=46)
            target = middle[i // 2] if means else end
            drawing.thread(word.bottom, target.top,
                           (0.5, 0.5, 1)[i] if means else weight)
            share = {1 / 3: "1/3", 1 / 4: "1/4", 1 / 2: "1/2"}[weight]
            drawing.text(left + x + 40, 75, share, "gradient", 15, italic=True)
        drawing.text(left + 45, 45, "A", "soft", 14)
        drawing.text(left + 220, 45, "B", "soft", 14)
    return drawing


show(means_picture(), "18_means",
     alt="Losses 1, 1 and 4 of three words. Left, all three flow into the loss 2 with "
     "weight 1/3 each. Right, the first two make the mean 1, the third the mean 4, and "
     "both flow into 2.5 by halves. The gradients beside the words are 1/3, 1/3, 1/3 "
     "on the left and 1/4, 1/4, 1/2 on the right.",
     caption="The same three words, averaged in two ways. The thicker a line, the "
     "larger the weight. In magenta, the gradient of each word's loss.")

# %% [markdown]
# The mean of the three losses is (1 + 1 + 4) / 3 = **2**. The mean of the two means, 1 and 4, is **2.5**. There the
# word of B counts half of the result, and each word of A a quarter.
#
# **Calculate, then unfold:** A has four words with the losses 1, 2, 2 and 3, and B has one word with the loss 6. What
# are the two means, and how much does a word count in each?
#
# <details><summary>The two means</summary>
#
# All five: 14 / 5 = **2.8**, each word counts 1/5. Mean of means: (2 + 6) / 2 = **4**. A word of A counts 1/8, the word
# of B 1/2.
#
# </details>
#
# ## In general, and backward
#
# Let a step have $M$ micro-batches with $n_m$ predicted words each, $n$ in total. Its loss is the mean over all words:
#
# $$L = \frac{1}{n} \sum_m \sum_t \ell_{mt} = \sum_m \frac{n_m}{n} L_m \qquad L_m = \frac{1}{n_m} \sum_t \ell_{mt}$$
#
# So each mean $L_m$ counts with the weight $n_m / n$, the micro-batch's share of the words. Backward, that weight is
# the gradient of $L_m$. So instead of `backward(1.0)`, as for a whole batch, call `backward(n_m / n)`. All functions of
# your file *add* to `W.grad`, so the sum over the micro-batches forms by itself. This is **gradient accumulation**. It
# lets a small machine take a large step, because only one micro-batch at a time is in memory.
#
# A mean of means sends back $1 / M$ instead. By hand, A then gets 1/2 instead of 2/3, and B gets 1/2 instead of 1/3.
#
# **Your turn.** Write `accumulate(model, micro_batches)`: it leaves the gradient of the step in each `W.grad`. A
# micro-batch is a batch (source, target); its predicted words are those in `target[:, 1:]` that aren't `PAD`.

# %% Our solution
def predicted(batch):
    return int((batch[1][:, 1:] != PAD).sum())


def accumulate(model, micro_batches, right=True):
    """Leave the gradient of a step in W.grad; right=False makes the mistake."""
    n = sum(map(predicted, micro_batches))
    for batch in micro_batches:
        loss, backward = transformer.loss_of(*batch, model)
        backward(predicted(batch) / n if right else 1 / len(micro_batches))


def gradient(model, *step):
    """All gradients in one row"""
    for w in model.weights.values():
        w.grad[...] = 0
    accumulate(model, *step)
    return np.concatenate([w.grad.ravel() for w in model.weights.values()])


step = [short, by_length[200], long]
at_once = gradient(model, [one_batch(step)])
parts = [one_batch([pair]) for pair in step]
same("three micro-batches and one batch", gradient(model, parts), at_once)
error = (np.linalg.norm(gradient(model, parts, False) - at_once)
         / np.linalg.norm(at_once))
print(f"mean of means: the gradient is off by {error:.0%}")

# %% [markdown]
# These three parts are very unequal: two have 5 words, and one has 18. With about equally many words in each part, the
# gradient is off by 4 %. A gradient check of one batch doesn't find this mistake. So compare a step in parts with the
# same step at once. In a small training with one pair a part, the mistake raised the loss of long sentences by 0.06 to
# 0.11 ([lab notes 18](lab/18_batches.py)).
#
# ## Why batches are so uneven
#
# A batch is an array, and arrays are rectangles. Sentences aren't, so each one is filled up with padding to the length
# of the longest. The mask of lesson 06 makes padding harmless, but the model still computes with it.

# %% Drawing two padded batches
random = np.random.default_rng(1)
drawn = [PAIRS["train"][i] for i in random.permutation(len(PAIRS["train"]))]
close = [pair for pair in drawn if len(pair[1]) == 12][:24]


def padding(batches):
    """The share of positions that is padding"""
    sides = [side for batch in batches for side in batch]
    return sum((side == PAD).sum() for side in sides) / sum(side.size for side in sides)


figure, panels = plt.subplots(1, 2, figsize=(8, 3.8), sharey=True, layout="constrained")
for panel, pairs, name in zip(panels, (drawn[:24], close),
                              ("24 pairs at random", "24 pairs of one target length")):
    batch = one_batch(pairs)
    cells = [(side != PAD).astype(int) for side in batch]
    panel.imshow(np.concatenate([cells[0], np.full((24, 1), 2), cells[1]], axis=1),
                 aspect="auto", cmap=ListedColormap([ACCENT, DARK, "white"]),
                 interpolation="none")
    panel.set_title(f"{name}: {padding([batch]):.0%} padding", fontsize=11)
    S, T = (side.shape[1] for side in batch)
    panel.set_xticks([(S - 1) / 2, S + (T + 1) / 2],
                     [f"source, S = {S}", f"target, T = {T}"])
panels[0].set_ylabel("pair")
show(figure, "18_padded",
     alt="Two padded batches as rows of cells, words dark blue, padding orange. Of 24 "
         f"pairs at random {padding([one_batch(drawn[:24])]):.0%} is padding, of 24 of "
         f"one target length {padding([one_batch(close)]):.0%}.",
     caption="Words are dark, padding is orange. The longest pair sets the width for "
             "all. On the right only the sources differ in length.")
plt.close(figure)

# %% [markdown]
# So pairs of similar length should share a batch. Six sentences of 2, 8, 3, 2, 8 and 3 words show how:

# %% Drawing six sentences
def six_sentences():
    drawing = Drawing(720, 262)
    ways = ("at random, two a batch", [[2, 8], [3, 2], [8, 3]]), \
           ("sorted, two a batch", [[2, 2], [3, 3], [8, 8]]), \
           ("sorted, a budget of 16", [[2, 2, 3, 3], [8, 8]])
    for column, (name, batches) in enumerate(ways):
        left, y = 20 + 240 * column, 62
        drawing.text(left, 24, name, bold=True, anchor="start")
        for batch in batches:
            for n in batch:
                for i in range(max(batch)):
                    role, filled = ("forward", 0.75) if i < n else ("value", 0.12)
                    drawing.rectangle(left + 9 + 21 * i, y, 19, 17, role, filled)
                y += 21
            y += 13
        positions = sum(len(batch) * max(batch) for batch in batches)
        hollow = positions - sum(map(sum, batches))
        counted = f"{positions} positions, {hollow} padding"
        drawing.text(left, 240, counted, "soft", 14, "start")
    return drawing


show(six_sentences(), "18_six",
     alt="Six sentences of 2, 8, 3, 2, 8 and 3 words in batches. At random, two a "
         "batch: 38 positions, 12 of them padding. Sorted by length: 26 positions "
         "and no padding, but batches of 4, 6 and 16 positions. Sorted with a budget "
         "of 16 positions: one batch of four sentences and one of two, 28 positions.",
     caption="Sorting removes the padding (hollow). A budget of positions makes the "
             "batches about equally large.")

# %% [markdown]
# In the middle the padding is gone, but the first batch has 4 words and the last one 16. Many programs therefore give a
# batch a **budget of positions** (right): many short sentences, or a few long ones. The paper counts its batches in
# tokens, too. Your file does the simple thing in the middle, because our sentences are all short.
#
# **Your turn.** `batches(pairs, size)` gets pairs of lists of ids, (source, target). Shuffle them, sort them by the
# length of the target, and cut the list into pieces of `size`. Pairs of equal length must stay shuffled. Fill up each
# piece with padding to two arrays, (b, s) and (b, t), and yield them *in random order*, epoch after epoch without end.
# One **epoch** holds every pair once. `scratchformer learn check batches`.

# %%
quote("batches")

# %% How much padding is left?
def epoch(pairs, size):
    return list(islice(transformer.batches(list(pairs), size), -(-len(pairs) // size)))


def at_random(pairs, size):
    return [one_batch(pairs[i:i + size]) for i in range(0, len(pairs), size)]


transformer.rng = np.random.default_rng(0)
table(["pairs in a batch", "at random: padding", "sorted: padding"],
      [[size, f"{padding(at_random(drawn, size)):.0%}",
        f"{padding(epoch(drawn, size)):.0%}"] for size in (16, 64, 256)])

# %% [markdown]
# The larger a random batch, the longer is its longest sentence. In sorted batches, what is left is mostly the sources,
# which differ in length within a batch.
#
# ## Does it matter?
#
# Sorted batches save padding. But then a step sees sentences of one length only. Does that do harm? And must they come
# in random order?
#
# - **What goes in:** steps of 64 pairs, and a small model of one layer. All trainings compute equally many positions,
#   padding included: as many as 100 random steps need. So a training that saves padding takes more steps.
# - **What is changed:** the pairs of a step. *Random*: 64 pairs at random. *Sorted*: a batch of `batches(pairs, 64)`.
#   *Four parts*: four batches of `batches(pairs, 16)`, added up by `accumulate`. Their lengths differ. *Short to long*
#   and *long to short*: the sorted batches, in that order.
# - **What is measured:** the loss in 500 new pairs, for the shortest, the middle and the longest third (mean of three
#   runs).
#
# <details><summary>Make a guess, then unfold: loss after five kinds of steps</summary>

# %% The five trainings
validation = sorted(PAIRS["val"], key=lambda pair: len(pair[1]))
THIRDS = [one_batch(validation[i:j]) for i, j in ((0, 167), (167, 333), (333, 500))]


def width(step):
    return step[0][1].shape[1]


def affordable(steps, positions):
    """As many of the steps, from the first, as have so many positions"""
    each = [sum(side.size for batch in step for side in batch) for step in steps]
    return steps[:np.searchsorted(np.cumsum(each), positions)]


def trained(seed, steps):
    """-> the loss of the thirds after a third of the steps, and at the end: (2, 3)"""
    model, losses = new_model(seed), []
    for number, step in enumerate(steps, start=1):
        accumulate(model, step)
        transformer.adam(model, number, warmup_steps=60)
        if number in (len(steps) // 3, len(steps)):
            losses.append([float(transformer.loss_of(*third, model, eps_ls=0.0)[0])
                           for third in THIRDS])
    return losses


after, taken = {}, {}
for seed in 0, 1, 2:
    transformer.rng = np.random.default_rng(seed)
    some = [drawn[i] for i in transformer.rng.permutation(len(drawn))]
    loose = [[batch] for batch in at_random(some[:6400], 64)]
    positions = sum(side.size for step in loose for batch in step for side in batch)
    sorted_ = affordable([[batch] for batch in epoch(some, 64)], positions)
    small = epoch(some, 16)
    parts = affordable([small[i:i + 4] for i in range(0, len(small), 4)], positions)
    upwards = sorted(sorted_, key=width)
    for name, steps in {"random": loose, "sorted": sorted_, "four parts": parts,
                        "short to long": upwards,
                        "long to short": upwards[::-1]}.items():
        after.setdefault(name, []).append(trained(seed, steps))
        taken.setdefault(name, []).append(len(steps))
after = {name: np.array(losses) for name, losses in after.items()}
table(["steps", "short", "middle", "long"],
      [[f"{name} ({np.mean(taken[name]):.0f} steps)",
        *(f"{loss:.2f}" for loss in losses[:, 1].mean(axis=0))]
       for name, losses in after.items()])
loose, sorted_, parts, upwards, downwards = (losses[:, 1] for losses in after.values())
assert (parts < np.minimum(loose, sorted_) - 0.1).all()
assert (np.abs((sorted_ - loose)[:, :2].mean(axis=0)) < 0.15).all()
assert (sorted_ - loose)[:, 2].min() > 0.05
assert (upwards - sorted_)[:, 0].min() > 0.7 and (downwards - sorted_)[:, 2].min() > 1.5
early, late = after["short to long"].mean(axis=0)[:, 0]
measure("short to long, a third of the steps: loss of the short", early, 4.2, 4.7)
measure("short to long, all steps: loss of the short", late, 4.75, 5.1)

# %% [markdown]
# </details>
#
# **Never take batches in order of length.** What was read first comes out worst: the short sentences if the model goes
# from short to long, and the long ones the other way round. They had been learned, and were forgotten: from short to
# long, the loss of the short ones is 4.44 after a third of the steps, and 4.90 at the end.
#
# **A step should mix lengths.** Sorted batches allow 149 steps instead of 100, but the model gains nothing by them, and
# is worse in long sentences. The four parts are sorted, too, and allow as many steps. But each of these steps mixes
# lengths, and their loss is lowest, in each third of each run. (The runs are short, and the model is small. [Lesson
# 19](19_train_a_translator.py) takes sorted batches all the same, because they are shorter to write.)
#
# ## Today
#
# Language models of 2026 have another way: **packing**. Texts are put one behind the other, each with an end mark, and
# the row is cut into pieces of one length. Sentences of 1, 2 and 2 words, with their end marks, fill a row of 8: no
# padding at all. Often a mask keeps each text from attending to the one before.
#
# ## Paper and code
#
# - §5.1: pairs are "batched together by approximate sequence length", about 25,000 source and 25,000 target tokens in a
#   batch. The paper doesn't say what the loss is divided by. Its public code divides by all real target tokens of the
#   step.
# - In the library: [text/batches.py](../scratchformer/text/batches.py) draws the pairs of a batch at random from one
#   **bucket**, lengths 9 to 12 for example, up to a budget of tokens. `accumulation` is the number of micro-batches.
# - PyTorch: `F.cross_entropy(logits, right, ignore_index=0, reduction="sum") / n`, with the $n$ of the whole step.
#
# ## What to remember
#
# If a step is cut into micro-batches, each sends back its share of the words, $n_m / n$, so that every word counts the
# same. Sorting by length saves padding, but let each step mix lengths, and never take batches in order of length.
#
# **Test yourself.**
#
# 1. Micro-batches of 30 and 10 words have the mean losses 2 and 4. What is the loss of the step, and what is the mean
#    of means?
# 2. Four sentences of 3, 9, 4 and 8 words go into batches of two. How many positions are padding in this order, and how
#    many if they are sorted first?
# 3. One batch holds 512 pairs of 8 words, another one 16 pairs of 256. Which one costs more?
#
# <details><summary>Answers</summary>
#
# 1. (30 · 2 + 10 · 4) / 40 = **2.5**. The mean of means is **3**.
# 2. (3, 9), (4, 8): 6 + 4 = **10**. Sorted, (3, 4), (8, 9): **2**.
# 3. The second. Both have 4,096 positions a side, but attention computes a score for each query and key of a sentence:
#    512 · 8² = 32,768 scores against 16 · 256² = 1,048,576, in each head.
#
# </details>
#
# **Yours:** `batches`, and the hunt `every_sentence_once` (write the test of such a function; it is tried on some that
# lose a pair, and worse) · `scratchformer learn check 18`
#
# **Next:** [19 · Train a translator on a CPU](19_train_a_translator.py)
