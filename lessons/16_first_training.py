# %% [markdown]
# # 16 · The first training, and how to debug it
#
# **Your Transformer learns, but less well than it should. What is wrong with it?**
#
# *Needs [lesson 06](06_masks.py), [lesson 13](13_whole_model.py) and [lesson 15](15_adam_and_warmup.py) · you will hunt
# a bug from its symptom to its line.*

# %% Imports
import math
from itertools import repeat

import matplotlib.pyplot as plt
import numpy as np

from support.drawing import COLOURS, Drawing
from support.lesson import show, table
from support.planted_bugs import (
    BUGS,
    PAD,
    V,
    batch_of,
    fresh,
    guessed,
    logits_of,
    new_model,
    planted,
    slopes,
    symbols_right,
    words,
    words_right,
    written,
)

# %% [markdown]
# A bug in a neural network seldom stops the program. The model trains, its loss falls, and it is just worse than it
# should be. Let's practise where we know every answer: the model reads a word of 2 to 5 random letters out of 8, and
# writes it backwards. With padding, `</s>` and `<s>` there are $V = 11$ symbols. The model has one layer, two heads and
# $d_{model} = 32$. One word in five is kept for tests: training never reads it. This is the whole training:

# %%
def train(file, model, batches, steps, enough=0.0):
    losses = []
    for step, (source, target) in zip(range(1, steps + 1), batches):
        loss, backward = file.loss_of(source, target, model, eps_ls=0.0)
        backward(1.0)                           # adds to the gradient of each weight
        file.adam(model, step)                  # moves each weight, clears its gradient
        losses.append(loss)
        if loss < enough:
            break
    return losses


# %% [markdown]
# `file` is `transformer.py`, or a copy with a bug. Here are four, A to D. They start with the same weights and see the
# same words, 32 in a step:

# %% Training four models
FOUR = {"A": "softmax / batch", "B": "no causal mask", "C": None,
        "D": "target not shifted"}
STEPS = 200
held_out = batch_of(words(np.random.default_rng(99), 200, kept=True))
trained, curves = {}, {}
for bug in FOUR.values():
    file = planted(bug)
    trained[bug] = new_model(file, seed=0)
    curves[bug] = train(file, trained[bug], fresh(seed=0), STEPS)

LOOKS = {"A": ("query", "--"), "B": ("key", "-."), "C": ("value", ":"),
         "D": ("gradient", "-")}
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for letter, bug in FOUR.items():
    smooth = np.convolve(curves[bug], np.full(8, 1 / 8), "valid")
    role, dashes = LOOKS[letter]
    axes.plot(smooth, dashes, color=COLOURS[role][0], lw=2, label=letter)
axes.axhline(math.log(V), color="#888888", lw=0.8)
axes.text(190, math.log(V) + 0.06, "guessing: ln 11", ha="right", color="#444444")
axes.set(xlabel="step", ylabel="loss, nats per symbol (mean of 8 steps)")
axes.legend()
show(figure, "16_four_losses",
     alt="Training loss of four models over 200 steps. D begins far below the others "
     "and is near zero after 80 steps. A, B and C begin near 3.3 and fall side by side "
     "to between 0.2 and 0.6.",
     caption="Three of these four models have a bug. Which one is correct?")

# %% [markdown]
# Then each model writes 200 of the kept words by itself.
#
# <details><summary>Make a guess, then unfold: which model is correct?</summary>

# %% What the four write
rows = []
for letter, bug in FOUR.items():
    file, model = planted(bug), trained[bug]
    right = words_right(written(file, model, held_out), held_out[1])
    assert right < 0.2 if letter in "BD" else right > (0.5 if bug is None else 0.25)
    rows.append([letter, bug or "correct", f"{np.mean(curves[bug][-20:]):.2f}",
                 f"{right:.0%}"])
table(["model", "bug", "last loss", "words written right"], rows)

# %% [markdown]
# D has by far the best loss and writes no word right: its decoder reads the very symbol that it should predict. (In the
# hunt `too_good`, you repair such a loss.) B looks ahead in training, and can't when it writes. A learns, only less
# well, in three of three runs ([lab notes 16](lab/16_first_training.py#the-lessons-models-with-other-seeds)).
#
# </details>
#
# So how far a loss falls tells us little. Let's find A's bug with better questions.
#
# ## The picture: eight bugs, eight checks
#
# Each changes a few characters of `transformer.py`:
#
# | bug | what is wrong |
# |---|---|
# | target not shifted | the decoder reads the symbol that it should predict |
# | no causal mask | the decoder reads later symbols, too |
# | padding seen | the decoder attends to the padding of the source |
# | repeats overwrite | a symbol that is read twice keeps one of its two gradients |
# | softmax / batch | the gradient of softmax is divided by the number of sentences |
# | gradient not cleared | each step adds its gradient to those of all steps before |
# | embedding too large | $E$ starts with standard deviation 1, not $1 / \sqrt{d_{model}}$ |
# | scaled by d_model | scores are divided by $\sqrt{d_{model}}$, not by $\sqrt{d_k}$, forward and backward |
#
# And these are the checks, the cheapest first. Six of them compare a result with one that you can calculate, or that
# must be equal. For *one batch* and *fresh words*, we took the limits from ten correct models. In your own project,
# compare with a simpler model instead.

# %% The drawing of the checks
PARTS = ["start\nvalues", "batch", "forward", "loss", "backward", "Adam",
         "writing"]
SPANS = [("1  first loss", "a little above ln V", [0, 1, 2, 3]),
         ("2  gradient", "finite differences of the loss", [2, 3, 4]),
         ("3  a later symbol", "moves nothing before it", [2]),
         ("4  more padding", "moves nothing", [2]),
         ("5  definition", "the formula, written again", [2]),
         ("6  one batch", "is memorised in time", [0, 1, 2, 3, 4, 5]),
         ("7  fresh words", "as in correct models", [0, 1, 2, 3, 4, 5]),
         ("8  writing", "as many right as guessing", [1, 2, 3, 6])]


def checks_picture():
    drawing = Drawing(860, 420)
    at = [200 + 72 * i for i in range(7)]
    for x, part in zip(at, PARTS):
        drawing.box(x, 36, part, width=66, height=40, size=13)
        drawing.line([(x, 57), (x, 402)], "line", 0.8, dashed=True)
    drawing.text(676, 36, "compared with", "soft", 13, "start")
    for row, (name, known, parts) in enumerate(SPANS):
        y = 84 + 43 * row
        drawing.text(14, y, name, anchor="start", size=14)
        if len(parts) > 1:
            drawing.line([(at[min(parts)], y), (at[max(parts)], y)], "forward", 2)
        for part in parts:
            drawing.circle(at[part], y, 9, "forward", filled=0.9)
        drawing.text(676, y, known, anchor="start", size=13)
    return drawing


show(checks_picture(), "16_checks",
     alt="Eight checks as rows, the parts of the program as columns; a dot marks a "
     "part that the check tests. The first loss tests start values, batch, forward "
     "and loss; the gradient check forward, loss and backward; a later symbol, more "
     "padding and the definition only forward; one batch and fresh words everything "
     "from start values to Adam; writing tests batch, forward, loss and writing.",
     caption="A check can find a bug only in a part that it tests (dot).")

# %% [markdown]
# Two looks come first. **Call the same function twice:** are the results equal? And **read the data**: decode a few
# batches. Does each target belong to its source? If the target file slips by one line, *fresh words* fails, but doesn't
# say where to look. Reading one batch does.
#
# ## By hand: what should the first loss be?
#
# If all $V$ logits of a new model are equal, each symbol gets $1/V$, so the loss is $\ln V$: for $V = 11$, that is
# 2.40. But they aren't equal. Two things move the first loss:
#
# **The logits scatter.** The loss is $\ln \sum e^z$ minus the logit of the right answer. Say half of the logits are +1
# and half are −1, so the right answer has 0 on average. But $e^1 = 2.72$ and $e^{-1} = 0.37$ have the mean 1.54, and
# not 1. So the loss is $\ln (11 \cdot 1.54) - 0 = \ln 11 + 0.43$. In general, logits of variance $\sigma^2$, if it
# isn't large, add about $\sigma^2 / 2$. A logit is a sum of $d_{model}$ products: a number of the state, of variance 1
# after LayerNorm, times a number of $E$. Their variances add up to
#
# $$\sigma^2 = d_{model} \cdot \mathrm{Var}(E)$$
#
# With the usual start, $\mathrm{Var}(E) = 1 / d_{model}$, this is 1. For the bug *embedding too large* it is 32.
#
# **The model repeats what it has just read.** The vector of the last symbol travels along the residual connections to
# the output. There it meets its own row of $E$, because $E$ is also the output matrix ([lesson 08](08_embeddings.py);
# control: [lab notes 16](lab/16_first_training.py#experiment-1-the-first-loss)). Suppose that this symbol gets ½ (we
# measure it below), and the 10 others share the rest. Then the right answer, one of these, gets 1/20. The loss is
# $\ln 20 = 3.00$, which is 0.60 above $\ln 11$. Together, the two add about 0.5 + 0.6.
#
# Your turn: what is the first loss if the symbol that was just read *is* the answer, as in model D?
#
# <details><summary>The answer, and ten new models</summary>
#
# The answer gets ½, so the loss is $\ln 2 = 0.69$. That is 1.70 **below** $\ln 11$. Ten new models, one batch:

# %% The first loss of ten new models
def first_loss(file, batch):
    """loss − ln V; probability of the symbol read last; means of ten models"""
    found = []
    for seed in range(10):
        model = new_model(file, seed)
        loss, _ = file.loss_of(*batch, model, eps_ls=0.0)
        source, read = batch[0], batch[1][:, :-1]
        logits = logits_of(file, model, source, read)
        p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        last = np.take_along_axis(p, read[..., None], axis=-1)[batch[1][:, 1:] != PAD]
        found.append((loss - math.log(V), last.mean()))
    return np.mean(found, axis=0)


first_batch = next(fresh(seed=7))
rows = []
for name, by_hand, lo, hi in (("correct", "0.5 + 0.6 = +1.1", 0.6, 1.2),
                              ("target not shifted", "−1.70", -1.9, -1.1),
                              ("embedding too large", "32 / 2 = +16", 8, 16)):
    excess, repeated = first_loss(planted(name if name in BUGS else None), first_batch)
    assert lo < excess < hi
    rows.append([name, by_hand, f"{excess:+.2f}", f"{repeated:.0%}"])
assert [row[-1] for row in rows] == ["44%", "44%", "83%"]
table(["model", "first loss − ln 11, by hand", "measured", "symbol just read gets"],
      rows)

# %% [markdown]
# With 0.44 instead of ½, we get $0.5 + \ln (10 / 0.56) - \ln 11 = 0.98$ and $\ln (1 / 0.44) - \ln 11 = -1.58$. A
# variance of 32 is too large for the rule, which also leaves out the repeating: the symbol just read gets 83 %.
#
# </details>
#
# **Below $\ln V$**, a new model knows something about the answer that it can't have learned yet.
#
# ## Backward: from the symptom to the line
#
# The first loss of A is fine, so next comes the gradient check of [lesson 01](01_backprop.py).
#
# **Which weight?** We move one weight array at a time in a random direction. How steeply does the loss change? We
# calculate this slope from the gradient, and measure it from two losses. We begin at the loss and go backward.

# %% Which weight?
file = planted("softmax / batch")
found = slopes(file, first_batch)
WAY_BACK = ["ffn.W_1", "cross.W_O", "cross.W_V", "cross.W_Q", "cross.W_K",
            "attention.W_O"]
wrong = [found[f"decoder.0.{name}"].error > 1e-4 for name in WAY_BACK]
assert wrong == [False] * 3 + [True] * 3
assert (sum(slope.error > 1e-4 for slope in found.values()), len(found)) == (20, 31)
table(["weight of the decoder", "slope, from backward", "slope, measured"],
      [[name, f"{found[f'decoder.0.{name}'].backward:.5f}",
        f"{found[f'decoder.0.{name}'].measured:.5f}"] for name in WAY_BACK])

# %% [markdown]
# Down to $W_V$ of cross-attention, both agree. At $W_Q$ and $W_K$ they don't, and a wrong gradient is handed on: 20 of
# 31 arrays are wrong. So the bug sits between $W_V$ and $W_Q$:

# %% The drawing of the way back
def way_back_picture():
    drawing = Drawing(800, 250)
    names = [("W_Q, W_K", "key"), ("scores", "plain"), ("softmax", "plain"),
             ("× values", "value"), ("W_O", "plain"),
             ("Add & Norm,\nfeed-forward", "plain"), ("loss", "plain")]
    boxes = [drawing.box(62 + 113 * i, 70, name, role, 86, 44, 13)
             for i, (name, role) in enumerate(names)]
    y = 122
    for before, after in zip(boxes, boxes[1:]):
        drawing.arrow(before.right, after.left)
        right = before.x >= boxes[3].x
        drawing.arrow((after.x - 12, y), (before.x + 12, y),
                      "gradient" if right else "line", width=2.4, dashed=not right)
    W_V = drawing.box(boxes[3].x, 205, "W_V", "value", 86, 34, 13)
    drawing.arrow((W_V.x - 14, 188), (W_V.x - 14, 94))
    drawing.arrow((W_V.x + 14, 134), (W_V.x + 14, 186), "gradient", width=2.4)
    drawing.text(boxes[5].x, 147, "right", "gradient", 13, italic=True)
    drawing.text(boxes[3].x + 66, 205, "right", "gradient", 13, italic=True)
    drawing.text(boxes[0].x, 147, "wrong", "soft", 13, italic=True)
    for gap in 1, 2:
        drawing.text((boxes[gap].x + boxes[gap + 1].x) / 2, 147, "?", "soft", 15)
    drawing.rectangle(boxes[2].x, 70, 330, 56, "gradient", 0.06)
    drawing.text(boxes[2].x, 28, "it is in here", "gradient", 13, bold=True)
    return drawing


show(way_back_picture(), "16_way_back",
     alt="The boxes of cross-attention from left to right: W_Q and W_K, scores, "
     "softmax, times values with W_V below, W_O, Add & Norm and feed-forward, "
     "loss. Magenta arrows lead back from the loss to times values and to W_V: these "
     "gradients are right. Dashed grey arrows lead on to softmax and scores, with "
     "question marks, and to W_Q and W_K, where they are wrong. A frame around "
     "scores, softmax and times values says: it is in here.",
     caption="The way back, from right to left. The last right gradient and the first "
     "wrong one enclose the bug.")

# %% [markdown]
# **Which input?** Now make the batch as small as possible, and let it grow:

# %% Which input?
rows = []
for n in 1, 2, 4:
    batch = batch_of(words(np.random.default_rng(3), n))
    slope = slopes(file, batch)["decoder.0.cross.W_Q"]
    assert abs(slope.backward / slope.measured - 1 / n) < 1e-4
    rows.append([n, f"{slope.backward / slope.measured:.3f}"])
table(["sentences", "slope of W_Q: from backward / measured"], rows)

# %% [markdown]
# So something divides by the number of sentences.
#
# **Which line?** The frame of figure 3 has no weights, so we check its functions alone, with two sentences. Take
# `softmax`, with the weights ½ and ½ and the offers 0 and 2. Their average is 1. By hand, the scores get ½ · (0 − 1) =
# −½ and ½ · (2 − 1) = ½ ([lesson 04](04_soft_lookup.py)), in each sentence:

# %% The softmax alone
rows = []
for name, bug, expected in ("correct", None, 0.5), ("A", "softmax / batch", 0.25):
    _, backward = planted(bug).softmax(np.zeros((2, 1, 1, 2)), True)
    scores = backward(np.broadcast_to([0.0, 2.0], (2, 1, 1, 2)))[0, 0, 0]
    assert (scores == [-expected, expected]).all()
    rows.append([name, *scores])
table(["softmax of model", "gradient of score 1", "gradient of score 2"], rows)

# %% [markdown]
# So it is `softmax`. Its way back is one line:
#
#     return p * (dp - total(p * dp)) / len(p)
#
# No mean is missing here: `cross_entropy` has already divided by the number of predicted words. Without `/ len(p)`, all
# 31 arrays pass.
#
# <!-- see: inside?way=backward&step=decoder.1.cross.weights | the way back through a softmax, number by number -->
#
# ### The check and its batch
#
# A wrong forward with its right derivative passes ([lesson 06](06_masks.py)): *scaled by d_model* is such a bug. And
# the check speaks only for the batch that you give it: *softmax / batch* passes with one sentence, *repeats overwrite*
# with no letter twice. So **check with several sentences and repeated words**.
#
# **Your turn.** Write a softmax that is wrong and still passes its gradient check: the hunt `right_gradient`. (Its
# weights must still sum to 1, and masked ones must be 0.)
#
# ## Does it matter?
#
# - **What goes in:** the eight bugs, and the correct file as a control: no check may object to it.
# - **What is measured:** whether a check objects. *One batch*: eight words must be memorised, to a loss below 0.03,
#   within 200 steps. (Ten correct models needed 103 to 130.) *Fresh words*: after 200 steps, 85 % of the symbols of
#   kept words must be guessed right. (Ten correct models: 87 to 92 %.)
# - *Writing*: to *guess* a symbol, a model reads the right symbols before it, as in training. To *write*, it reads its
#   own. Until its first mistake, these are the same symbols. So the same whole words must be right both ways.
#
# How many of the eight bugs will the best single check find? (a) three (b) five (c) seven
#
# <details><summary>Make a guess, then unfold: every check on every bug</summary>

# %% Every check on every bug
def off_definition(file):
    """How far is attention, without a mask, from equation 1 written once more?"""
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 5, 4, 6))    # (b, t, h, k)
    e = np.exp(np.einsum("bthk,bshk->bhts", q, k) / math.sqrt(6))
    expected = np.einsum("bhts,bshk->bthk", e / e.sum(axis=-1, keepdims=True), v)
    return abs(file.attention(q, k, v, True)[0] - expected).max()


def checks(bug):
    """check -> (what was found, may it be so?)"""
    file, (source, target) = planted(bug), first_batch
    model, read = new_model(file, 0), target[:, :-1]
    excess = file.loss_of(source, target, model, eps_ls=0.0)[0] - math.log(V)
    logits = logits_of(file, model, source, read)
    other = np.where(np.arange(read.shape[1]) == read.shape[1] - 1, 3, read)
    moved = abs(logits_of(file, model, source, other) - logits)[:, :-1].max()
    longer = np.pad(source, [(0, 0), (0, 2)])
    by_padding = abs(logits_of(file, model, longer, read) - logits).max()
    error = max(found.error for found in slopes(file, first_batch).values())
    off = off_definition(file)

    eight = batch_of(words(np.random.default_rng(5), 8))
    steps = len(train(file, new_model(file, 0), repeat(eight), 400, enough=0.03))
    if bug not in trained:
        trained[bug] = new_model(file, 0)
        train(file, trained[bug], fresh(seed=0), STEPS)
    guesses, target = guessed(file, trained[bug], held_out), held_out[1]
    right = symbols_right(guesses, target)
    apart = abs(words_right(guesses, target)
                - words_right(written(file, trained[bug], held_out), target))
    return {"first loss": (excess, 0 < excess < 2), "gradient": (error, error < 1e-4),
            "a later symbol": (moved, moved < 1e-9),
            "more padding": (by_padding, by_padding < 1e-9),
            "definition": (off, off < 1e-9), "one batch": (steps, steps <= 200),
            "fresh words": (right, right > 0.85), "writing": (apart, apart < 1e-9)}


results = {bug or "correct": checks(bug) for bug in (None, *BUGS)}
NAMES = list(results["correct"])
objects = np.array([[not fine for _, fine in row.values()] for row in results.values()])
assert not objects[0].any() and objects[1:].any(axis=1).all()
assert objects.sum(axis=0).tolist() == [2, 2, 1, 1, 1, 2, 3, 2]

figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
axes.imshow(objects, "Oranges", vmin=0, vmax=1.6, aspect="auto")
for row, found in enumerate(results.values()):
    for column, (value, fine) in enumerate(found.values()):
        shown = "0" if abs(value) < 1e-6 else f"{value:.2g}"
        axes.text(column, row, f"{value}" if column == 5 else shown, ha="center",
                  va="center", weight="normal" if fine else "bold")
UNITS = ["− ln V", "error", "logit\nmoved", "logit\nmoved", "error",
         "steps", "symbols\nright", "words:\ndifference"]
axes.set_xticks(range(8), ["\n".join(name.rsplit(" ", 1)) + f"\n({unit})"
                           for name, unit in zip(NAMES, UNITS)])
axes.set_yticks(range(9), results)
axes.xaxis.tick_top()
axes.tick_params(length=0)
show(figure, "16_hunt",
     alt="Table of the correct model and eight bugs against eight checks. No check "
     "objects to the correct model. The first loss objects to the unshifted target and "
     "the large embedding; the gradient check to overwritten repeats and to softmax "
     "divided by the batch; a later symbol to the missing causal mask; more padding to "
     "the padding that is seen; the definition to the scale by d_model; one batch to "
     "the gradient that isn't cleared and to the large embedding; fresh words to both "
     "and to softmax divided by the batch; writing to the unshifted target and the "
     "missing causal mask.",
     caption="Bold on orange: the check objects.")

# %% [markdown]
# (a): none finds more than three, but each bug is found by at least one. Even "overfit one batch" misses six. Five of
# them memorise the batch about as fast as the correct model. *Target not shifted* takes far fewer steps: a result that
# is too good is a warning, too.
#
# </details>
#
# ## The list
#
# | symptom | look here first | what to do |
# | --- | --- | --- |
# | first loss far above $\ln V$ | $d_{model} \cdot \mathrm{Var}(E)$ | start at $1 / \sqrt{d_{model}}$ |
# | first loss below $\ln V$ | does the decoder read its answer? | read `target[:, :-1]`, predict `target[:, 1:]` |
# | loss rises or never falls | does `w.grad` grow from step to step? | clear it after each step |
# | loss near 0, but it writes nonsense | change a later symbol: what moves? | repair the causal mask or the shift |
# | good alone, bad in a batch | add padding: what moves? | mask padding wherever it is a key |
# | learns less well than it should | gradient check, several sentences; definitions | go from weight to line |
# | no better than without the source | make all source words equal, compare | repair what the encoder gets |
#
# The row about the source is the **input-independent baseline**. Here, 30 % of the symbols can be guessed from the
# length of a word alone ([lab notes 16](lab/16_first_training.py#experiment-2-a-model-without-its-source)).
#
# ## Today
#
# In 2026 frameworks derive backward by themselves, so *repeats overwrite* and *softmax / batch* are rare. The other six
# can still happen: masks, shifts, start values and the clearing of gradients are written by hand.
#
# ## Paper and code
#
# We train without the paper's label smoothing and dropout, to compare losses with known numbers. PyTorch has
# `torch.autograd.gradcheck(function, inputs)`, our library `scratchformer doctor`
# ([diagnosis.py](../scratchformer/doctor/diagnosis.py)). The first loss, *one batch* and the input-independent baseline
# are advice of Karpathy's *A Recipe for Training Neural Networks* (2019). He begins with the data.
#
# ## What to remember
#
# Don't judge a training by its loss alone. Ask questions whose answers you know, the cheap ones first. Here, each check
# missed at least five of eight bugs, so use several. Then go from the check to the weight, to the input, to the line.
#
# **Test yourself.**
#
# 1. A new model has $V = 1{,}600$ pieces and the usual start. Which first loss do you expect?
# 2. Model A has batches of 32 sentences. What fraction of the right gradient does $W_Q$ of cross-attention get? Why
#    does Adam hide that?
# 3. Dropout stays on where it should be off. What is the cheapest way to notice it?
#
# <details><summary>Answers</summary>
#
# 1. $\ln 1600 + 0.5$, about **7.9**. (Among so many pieces, the one just read gets little.)
# 2. **1/32** of it. Adam divides by the size of the gradient, so a factor that is always the same has no effect
#    ([lesson 15](15_adam_and_warmup.py)). But the layers below add this part, 32 times too small, to right parts. Adam
#    divides the whole sum, so the part stays too small.
# 3. Call the same function twice: the results differ.
#
# </details>
#
# **Yours:** the hunts `right_gradient` and `too_good` · `scratchformer learn check 16`
#
# **Next:** a language has more words than a matrix should have rows. [Lesson 17](17_byte_pairs.py) cuts them into
# pieces.
