# %% [markdown]
# # 16 · The first training, and how to debug it
#
# **Your Transformer learns, but less well than it should. What is wrong with it?**
#
# *Needs [lesson 06](06_masks.py) (masks, the shift), [lesson 13](13_whole_model.py) (the whole model) and [lesson
# 15](15_adam_and_warmup.py) (Adam) · you will hunt a bug from its symptom to its line, and get a list of checks in the
# order in which to run them.*

# %% Imports
import math
from itertools import repeat

import matplotlib.pyplot as plt
import numpy as np

from support.drawing import COLOURS, Drawing
from support.lesson import same, show, table
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
# writes it backwards. With padding, `</s>` and `<s>` there are $V = 11$ symbols. Every batch has 32 new words, so there
# is nothing to memorise. This is the whole training:

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
# `file` is `transformer.py`, or a copy of it with a bug. Here are four of them, A to D. One is correct. They start with
# the same weights and see the same words:

# %% Training four models
FOUR = {"A": "softmax / batch", "B": "no causal mask", "C": None,
        "D": "target not shifted"}
STEPS = 200
held_out = batch_of(words(np.random.default_rng(99), 200))
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
# Then each model writes 200 new words by itself, symbol by symbol.
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
# D has by far the best loss and writes hardly a word: its decoder reads the very symbol that it should predict, and
# copies it. B looks ahead in training, and can't when it writes. A learns, only less well (in three of three runs: [lab
# notes 16](lab/16_first_training.py#the-lessons-models-with-other-seeds)). C is correct.
#
# </details>
#
# So the loss curve is a poor detective. Let's build better ones, and find A's bug with them.
#
# ## The picture: eight bugs, eight checks
#
# Each of these eight bugs changes a few characters of `transformer.py`:
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
# And these are the checks, the cheapest first. Each *runs* some parts of the program, and *compares* the result with
# something that we know without them:

# %% The drawing of the checks
PARTS = ["batch", "forward", "loss", "backward", "Adam", "writing"]
SPANS = [("1  first loss", "a little above ln V", [0, 1, 2]),
         ("2  gradient", "finite differences of the loss", [1, 2, 3]),
         ("3  a later symbol", "moves nothing before it", [1]),
         ("4  more padding", "moves nothing", [1]),
         ("5  definition", "the formula, written again", [1]),
         ("6  one batch", "is memorised in time", [0, 1, 2, 3, 4]),
         ("7  fresh words", "most guesses right", [0, 1, 2, 3, 4]),
         ("8  writing", "as many right as guessing", [0, 1, 5])]


def checks_picture():
    drawing = Drawing(860, 420)
    at = [236 + 76 * i for i in range(6)]
    for x, part in zip(at, PARTS):
        drawing.box(x, 36, part, width=68, height=34, size=13)
        drawing.line([(x, 54), (x, 402)], "line", 0.8, dashed=True)
    drawing.text(668, 36, "compared with", "soft", 13, "start")
    for row, (name, known, parts) in enumerate(SPANS):
        y = 84 + 43 * row
        drawing.text(14, y, name, anchor="start", size=14)
        if len(parts) > 1:
            drawing.line([(at[min(parts)], y), (at[max(parts)], y)], "forward", 2)
        for part in parts:
            drawing.circle(at[part], y, 9, "forward", filled=0.9)
        drawing.text(668, y, known, anchor="start", size=13)
    return drawing


show(checks_picture(), "16_checks",
     alt="Eight checks as rows, the parts of the program as columns; a dot marks a "
     "part that the check runs. The first loss runs batch, forward and loss; the "
     "gradient check forward, loss and backward; a later symbol, more padding and the "
     "definition only forward; one batch and fresh words everything from batch to "
     "Adam; writing runs batch, forward and writing.",
     caption="A check can find a bug only in a part that it runs (dot).")

# %% [markdown]
# Before all of them comes a look at the **data**: decode a few batches as the model gets them, and read them. No check
# of the model finds source and target files that slip by one line.
#
# ## By hand: what should the first loss be?
#
# A new model knows nothing. If all $V$ logits are equal, each symbol gets $1/V$, so the loss is $\ln V$: for $V = 11$,
# that is 2.40. But the logits of a new model aren't equal. Two things move the first loss, and you can calculate both.
#
# **The logits scatter.** Say half of them are +1 and half are −1. The answer's own logit is 0 on average. But the mean
# of the exponentials is $(e^1 + e^{-1}) / 2 = 1.54$, not 1, because $e^z$ gains more above 0 than it loses below. That
# adds $\ln 1.54 = 0.43$ to the loss. In general, for a variance $\sigma^2$ that isn't large, it adds about $\sigma^2 /
# 2$. After LayerNorm, a state has $d_{model}$ numbers of variance 1, so a logit has
#
# $$\sigma^2 = d_{model} \cdot \mathrm{Var}(E)$$
#
# With the usual start, $\mathrm{Var}(E) = 1 / d_{model}$, this is 1. For the bug *embedding too large* it is 32.
#
# **The model repeats what it has just read.** The vector of the last symbol travels along the residual connections to
# the output. There it meets its own row of $E$, because $E$ is also the output matrix ([lesson 08](08_embeddings.py)).
# (A new model with another output matrix gives that symbol a tenth: [lab notes 16, experiment
# 1](lab/16_first_training.py#experiment-1-the-first-loss).) Say that this symbol gets ½, and the 10 others share the
# rest. Then the right answer, one of the others, gets 1/20. The loss is $\ln 20 = 3.00$, which is 0.60 above $\ln 11$.
#
# Your turn: what is the first loss if the symbol that was just read *is* the answer, as in model D?
#
# <details><summary>The answer, and ten new models</summary>
#
# The answer gets ½, so the loss is $\ln 2 = 0.69$. That is 1.70 **below** $\ln 11$. Ten new models, one batch:

# %% The first loss of ten new models
def first_loss(file, batch):
    """loss − ln V; probability of the symbol that was read last; means of ten models"""
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
correct, repeated = first_loss(planted(), first_batch)
shifted, _ = first_loss(planted("target not shifted"), first_batch)
large, _ = first_loss(planted("embedding too large"), first_batch)
assert 0.6 < correct < 1.2 and -1.9 < shifted < -1.1 and large > 8
table(["model", "first loss − ln 11"],
      [["correct", f"{correct:+.2f}"], ["target not shifted", f"{shifted:+.2f}"],
       ["embedding too large", f"{large:+.2f}"]])
print(f"the correct model gives {repeated:.0%} to the symbol that it has just read")

# %% [markdown]
# That is a little less than ½, and the logits scatter as well. So the measured losses are close to ours, not equal.
#
# </details>
#
# Both sides of $\ln V$ tell you something. **Far above $\ln V$**, the logits are too large. **Below**, the model knows
# something about the answer that it can't have learned yet.
#
# ## Backward: from the symptom to the line
#
# Let's find the bug of model A as if we didn't know it. Its first loss is fine. Next comes the gradient check of
# [lesson 01](01_backprop.py).
#
# **Which weight?** We move one weight array at a time in a random direction, and ask for the slope of the loss: once
# from the gradient, once measured from two losses. The arrays next to the loss come first, as in backward.

# %% Which weight?
file = planted("softmax / batch")
found = slopes(file, first_batch)
WAY_BACK = ["ffn.W_1", "cross.W_O", "cross.W_V", "cross.W_Q", "cross.W_K",
            "attention.W_O"]
wrong = [found[f"decoder.0.{name}"].error > 1e-4 for name in WAY_BACK]
assert wrong == [False] * 3 + [True] * 3
table(["weight of the decoder", "slope, from backward", "slope, measured"],
      [[name, f"{found[f'decoder.0.{name}'].backward:.5f}",
        f"{found[f'decoder.0.{name}'].measured:.5f}"] for name in WAY_BACK])

# %% [markdown]
# Down to $W_V$ of cross-attention, both agree. At $W_Q$ and $W_K$ they don't, and from there on every gradient is
# wrong, because a wrong gradient is handed on. So the bug sits where the way back leaves the values and goes on to the
# queries and keys:

# %% The drawing of the way back
def way_back_picture():
    drawing = Drawing(800, 250)
    names = [("W_Q, W_K", "key"), ("scores", "plain"), ("softmax", "plain"),
             ("× values", "value"), ("W_O", "plain"),
             ("Add & Norm,\nfeed-forward", "plain"), ("loss", "plain")]
    boxes = [drawing.box(62 + 113 * i, 70, name, role, 86, 44, 13)
             for i, (name, role) in enumerate(names)]
    for before, after in zip(boxes, boxes[1:]):
        drawing.arrow(before.right, after.left)
        y = 122
        right = before.x > boxes[2].x
        drawing.arrow((after.x - 12, y), (before.x + 12, y),
                      "gradient" if right else "line", width=2.4, dashed=not right)
    W_V = drawing.box(boxes[3].x, 195, "W_V", "value", 86, 34, 13)
    drawing.arrow((W_V.x - 14, 178), (W_V.x - 14, 94))
    drawing.arrow((W_V.x + 14, 134), (W_V.x + 14, 176), "gradient", width=2.4)
    drawing.text(boxes[5].x, 145, "right", "gradient", 13, italic=True)
    drawing.text(boxes[3].x + 66, 195, "right", "gradient", 13, italic=True)
    drawing.text(boxes[1].x - 40, 145, "wrong", "soft", 13, italic=True)
    drawing.rectangle(boxes[2].x, 70, 100, 56, "gradient", 0.06)
    drawing.text(boxes[2].x, 28, "so it is here", "gradient", 13, bold=True)
    return drawing


show(way_back_picture(), "16_way_back",
     alt="The boxes of cross-attention from left to right: W_Q and W_K, scores, "
     "softmax, times values with W_V below, W_O, Add & Norm and feed-forward, "
     "loss. Magenta arrows lead back from the loss to the values and to W_V: these "
     "gradients are right. Dashed grey arrows lead on from softmax to the scores "
     "and to W_Q and W_K: these are wrong. A frame around softmax says: so it is "
     "here.",
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
# With one sentence everything is right. With two, the gradient is half of what it should be, and with four a quarter.
# So somebody divides by the number of sentences.
#
# **Which line?** One function lies between scores and weights, `softmax`, and its way back is one line:
#
#     return p * (dp - total(p * dp)) / len(p)
#
# By hand: the weights are ½ and ½, the offers 0 and 2, their average 1. So the scores get ½ · (0 − 1) = −½ and
# ½ · (2 − 1) = ½. With a second sentence in the batch, this line makes −¼ and ¼ of them. But one sentence knows nothing
# of another. The loss is a mean, and `cross_entropy` has already divided by the number of all predicted words, once.
# Without `/ len(p)` it is right:

# %% The check of the example
for name, bug, expected in ("ours", None, 0.5), ("the bug", "softmax / batch", 0.25):
    _, backward = planted(bug).softmax(np.zeros((2, 1, 1, 2)), True)
    offers = np.broadcast_to([0.0, 2.0], (2, 1, 1, 2))
    score = backward(offers)[0, 0, 0, 1]
    same(f"gradient of the second score, {name}", score, expected)

# %% [markdown]
# **Which check, which weight, which input, which line:** this order works for other bugs, too.
#
# ### What a gradient check can't see
#
# It compares backward with forward. The paper appears on neither side, so a wrong forward with its own right derivative
# passes. *Scaled by d_model* is such a bug. And the check speaks only for the batch that you give it: *softmax / batch*
# passes with one sentence, *repeats overwrite* with no letter twice. So **check with several sentences and with
# repeated words**.
#
# **Your turn.** Write a softmax that is wrong and still passes its gradient check: the hunt `right_gradient`.
#
# ## Does it matter?
#
# Now every check meets every bug.
#
# - **What goes in:** the eight bugs, and the correct file as a control: no check may object to it.
# - **What is measured:** whether a check objects. Checks 1 to 5 need no training. *One batch*: eight words must be
#   memorised, to a loss below 0.03, within 200 steps. *Fresh words*: after 200 steps, 70 % of new symbols must be
#   guessed right.
# - *Writing* needs no threshold. A word is written right if each symbol is guessed right after the right symbols before
#   it. So the share of words **written** right must equal the share **guessed** right, in a good model and in a bad
#   one.
#
# How many of the eight bugs will the best single check find? (a) two (b) four (c) seven
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
            "fresh words": (right, right > 0.7), "writing": (apart, apart < 1e-9)}


results = {bug or "correct": checks(bug) for bug in (None, *BUGS)}
NAMES = list(results["correct"])
objects = np.array([[not fine for _, fine in row.values()] for row in results.values()])
assert not objects[0].any() and objects[1:].any(axis=1).all()
assert objects.sum(axis=0).max() == 2

figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
axes.imshow(objects, "Oranges", vmin=0, vmax=1.6, aspect="auto")
for row, found in enumerate(results.values()):
    for column, (value, fine) in enumerate(found.values()):
        shown = "0" if abs(value) < 1e-6 else f"{value:.2g}"
        axes.text(column, row, f"{value}" if column == 5 else shown, ha="center",
                  va="center", weight="normal" if fine else "bold")
axes.set_xticks(range(8), ["\n".join(name.rsplit(" ", 1)) for name in NAMES])
axes.set_yticks(range(9), results)
axes.xaxis.tick_top()
axes.tick_params(length=0)
show(figure, "16_hunt",
     alt="Table of the correct model and eight bugs against eight checks. No check "
     "objects to the correct model. The first loss objects to the unshifted target and "
     "the large embedding; the gradient check to overwritten repeats and to softmax "
     "divided by the batch; a later symbol to the missing causal mask; more padding to "
     "the padding that is seen; the definition to the scale by d_model; one batch and "
     "fresh words to the gradient that isn't cleared and to the large embedding; "
     "writing to the unshifted target and the missing causal mask.",
     caption="What each check found; bold on orange: it objects. The first row is the "
     "control.")

# %% [markdown]
# (a): no check finds more than two of the eight bugs, but every bug is found by at least one. *Scaled by d_model* is
# found only by writing the definition once more.
#
# </details>
#
# "Overfit one batch" is the best known of these checks. Yet six of the eight bugs memorise the batch about as fast as
# the correct model, or faster.
#
# Eight bugs that the author of a page chose prove little. So the repository keeps more than a hundred
# [mutants](../tests/mutants/mutants.py), copies of the library with one bug each. Of those in the layers, the loss and
# Adam, more than half pass every gradient check ([lab notes 16, experiment
# 2](lab/16_first_training.py#experiment-2-a-hundred-bugs)).
#
# ## The list: symptom, where to look, what to do
#
# | symptom | look here first | what to do |
# | --- | --- | --- |
# | first loss far above $\ln V$ | $\sigma^2 = d_{model} \cdot \mathrm{Var}(E)$ | start at $1 / \sqrt{d_{model}}$ |
# | first loss below $\ln V$ | does the decoder read its answer? | read `target[:, :-1]`, predict `target[:, 1:]` |
# | loss rises or never falls | does `w.grad` grow from step to step, or is it 0? | clear it after each step |
# | loss near 0, but it writes nonsense | change a later symbol: what moves? | repair the causal mask or the shift |
# | good alone, bad in a batch | add padding: what moves? | mask padding wherever it is a key |
# | learns less well than it should | gradient check, several sentences; definitions | go from weight to line |
# | no better than without the source | make all source words equal, compare | repair what the encoder gets |
# | loss falls fast, then stays high | learning rate | a third of it |
# | loss still falls steadily at the end | number of steps, learning rate | more steps, or three times the rate |
# | loss jumps at one step | read that batch | mend the data; then cut long gradients |
# | validation loss rises, training loss falls | the step where they part | stop there; more data or dropout |
# | two equal calls differ | is dropout on? | `P_drop = 0` outside training |
#
# The row about the source is the **input-independent baseline**. Here, 30 % of the symbols can be guessed from the
# length of a word alone. So "30 % right" would be no success ([lab notes 16, experiment
# 3](lab/16_first_training.py#experiment-3-learning-rates-and-a-model-without-its-source)).
#
# ## Today
#
# In 2026 frameworks derive backward by themselves, so *repeats overwrite* and *softmax / batch* are rare. The other six
# aren't: masks, shifts, start values and the clearing of gradients are still written by hand. Large trainings log the
# length of the gradient and the loss of every batch. Where the loss jumps, they go back to a checkpoint and skip the
# batches around the jump.
#
# ## Paper and code
#
# The paper doesn't say how its code was tested. We train without its label smoothing and dropout, so that losses can be
# compared with known numbers. In the library, `scratchformer doctor` runs such checks from the lowest layer up
# ([doctor](../scratchformer/doctor/diagnosis.py)). PyTorch has `torch.autograd.gradcheck(function, inputs)`. The
# [correctness report](../docs/correctness.md) says which public code a bug comes from. To read on: Karpathy, *A Recipe
# for Training Neural Networks* (2019).
#
# ## What to remember
#
# Don't judge a training by its loss alone. Look at the data, then ask questions whose answers you know before you run
# them, the cheap ones first. Each check is blind to most bugs, so use several. Then go from the check to the weight, to
# the input, to the line.
#
# **Check yourself.**
#
# 1. A new model has $V = 1{,}600$ pieces and the usual start. Which first loss do you expect? Which one if the loss
#    divides by twice as many words as there are?
# 2. Model A has batches of 32 sentences. What fraction of the right gradient does $W_Q$ of cross-attention get? Why
#    does Adam hide that?
# 3. Dropout stays on where it should be off. Which check objects first?
#
# <details><summary>Answers</summary>
#
# 1. $\ln 1600 + ½ = 7.38 + 0.5$, about **7.9**. (Among so many pieces, the one that was just read gets little.) Half
#    of that, 3.9, is far *below* $\ln V$.
# 2. By **1/32**. Adam divides by the size of the gradient, so a factor that is always the same has no effect
#    ([lesson 15](15_adam_and_warmup.py)). But the layers below get a *sum* of right and wrong parts, and no division
#    mends a sum.
# 3. The gradient check: its two losses have other masks than backward. So ask first of all whether the same call gives
#    the same answer twice.
#
# </details>
#
# **Yours:** the hunts `right_gradient` and `too_good` (a loss that is too good to be true; find its three bugs) ·
# `scratchformer learn check right_gradient too_good`
#
# **Next:** eight letters are few. A language has more words than a matrix should have rows, and [lesson
# 17](17_byte_pairs.py) cuts them into pieces.
