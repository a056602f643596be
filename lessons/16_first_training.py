# %% [markdown]
# # 16 · The first training, and how to debug it
#
# **Your Transformer learns, but less well than it should. What is wrong with it?**
#
# *Needs [lesson 06](06_masks.py) (masks, the shift), [lesson 13](13_whole_model.py) (the whole model) and [lesson
# 15](15_adam_and_warmup.py) (Adam and its schedule) · you will hunt eight planted bugs, and get a list of checks in the
# order in which to run them.*

# %% Imports
import json
import math
import sys
from itertools import repeat

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.nn.attention import ScaledDotProductAttention
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.loss import cross_entropy
from scratchformer.text.tokenizer import PAD
from support.drawing import Drawing
from support.lesson import QUICK, ROOT, measure, show, table
from support.planted_bugs import (
    BUGS,
    PEAK_FACTOR,
    Batch,
    V,
    accuracy,
    fresh,
    guessed,
    new_model,
    planted,
    train,
    words,
    words_right,
    written,
)

STEPS = 120 if QUICK else 160

# %% [markdown]
# A bug in a neural network seldom stops the program. The model trains, its loss falls, and it is just worse than it
# should be. So let's practise on a task where we know every answer. The model reads a word of 2 to 5 random letters out
# of 8, and writes it backwards. With `<pad>`, `</s>` and `<s>` there are $V = 11$ symbols. Each batch has 32 new words,
# so the model can't memorise them. (Task, model and bugs are in
# [support/planted_bugs.py](support/planted_bugs.py), 200 lines that you need not read now.)
#
# Here are four models, A to D. One is correct, and each of the others has one bug that public code has had: *no causal
# mask*, *padding seen* (the decoder attends to the padding of the source), and *target not shifted* (the decoder reads
# the very symbol that it should predict). All four begin with the same random weights and see the same words.

# %% Training four models
suspects = [None, "no causal mask", "padding seen", "target not shifted"]
FOUR = {letter: suspects[i]
        for letter, i in zip("ABCD", np.random.default_rng(31).permutation(4))}
held_out = Batch(words(np.random.default_rng(99), 200))
trained, curves = {}, {}
for bug in FOUR.values():
    with planted(bug):
        trained[bug] = new_model(seed=0)
        curves[bug] = train(trained[bug], fresh(seed=0), STEPS)
last = {bug: np.mean(curve[-20:]) for bug, curve in curves.items()}

LOOKS = {"A": ("--", ACCENT), "B": ("-", DARK), "C": (":", ACCENT), "D": ("-.", LIGHT)}
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for letter, bug in FOUR.items():
    smooth = np.convolve(curves[bug], np.full(8, 1 / 8), "valid")
    axes.plot(smooth, LOOKS[letter][0], color=LOOKS[letter][1], lw=2, label=letter)
axes.axhline(math.log(V), color="#888888", lw=0.8)
axes.text(150, math.log(V) + 0.06, "guessing: ln 11", ha="right", color="#444444")
axes.set(xlabel="step", ylabel="loss, nats per symbol (mean of 8 steps)")
axes.legend()
show(figure, "16_four_losses",
     alt="Training loss of four models over 160 steps. D begins far below the others "
     "and is at zero after 30 steps. A, B and C begin near 3.5 and fall side by side "
     "to between 0.1 and 0.2.",
     caption="Three of these four models have a bug. Which one is correct?")

# %% [markdown]
# Now each model writes 200 new words by itself, symbol by symbol, as it would be used.
#
# <details><summary>Make a guess, then unfold: which model is correct?</summary>

# %% What the four write
for (letter, bug), band in zip(
        FOUR.items(), [(0, 0.25), (0.5, 0.98), (0.5, 0.98), (0, 0.05)]):
    with planted(bug):
        share = words_right(written(trained[bug], held_out), held_out)
    measure(f"{letter}, {bug or 'correct'}: words written right", share, *band)
for letter, band in ("A", (0.5, 1.5)), ("C", (0.6, 1.7)), ("D", (0, 0.05)):
    measure(f"last loss of {letter} over that of B", last[FOUR[letter]] / last[None],
            *band)

# %% [markdown]
# B is correct. D has by far the best loss and writes hardly one word, because it was allowed to copy its answers. A has
# the same loss as B, and fails as well. And C, which reads padding as if it were text, does about as well as B so far.
#
# </details>
#
# So the loss curve is a poor detective. We'll build better ones.
#
# ## Before the first step: look at the data
#
# Karpathy's recipe for training networks (2019) begins with "become one with the data": look at examples for hours,
# before you write a model. Many bugs are *data bugs*, and no test of the model can find them: source and target files
# that slip by one line, sentences that are cut off, test sentences that are also in the training text, a tokenizer
# that isn't the one the model was trained with. So decode a few batches **as the model gets them**, back into text, and
# read them. Look at the longest and the shortest examples, at duplicates and at the most frequent answers.
#
# Then find out what a model scores that can't know the answer: the **input-independent baseline**. Here it trains with
# each source letter replaced by the same one, so it sees lengths and no letters. A real model has to beat that number
# clearly. If it doesn't, it doesn't use its input. You'll see the number below.
#
# ## The picture: what a check can see
#
# Each check *runs* some parts of the program, and *compares* the result with something that we know without running
# them.

# %% The drawing of the checks
PARTS = ["batch", "forward", "loss", "backward", "Adam", "writing"]
SPANS = [("1  first loss", "a little above ln V", [0, 1, 2]),
         ("2  gradient check", "finite differences of forward", [1, 3]),
         ("3  change a later symbol", "nothing before it moves", [1]),
         ("4  more padding", "nothing moves", [1]),
         ("5  definition", "the formula, written again", [1]),
         ("6  memorise one batch", "loss near 0 in time", [0, 1, 2, 3, 4]),
         ("7  fresh words", "most guesses right", [0, 1, 2, 3, 4]),
         ("8  writing", "as right as guessing", [0, 1, 5])]


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
     "gradient check forward and backward; a later symbol, more padding and the "
     "definition only forward; memorising and fresh words everything from batch to "
     "Adam; writing runs batch, forward and writing.",
     caption="A check finds a bug only in a part that it runs (dot), and only if its "
     "comparison (right) knows better than the program.")

# %% [markdown]
# They are sorted by what they cost. The first five need no training.
#
# ## What should the first loss be?
#
# Let $z_v$ be the logit of symbol $v$, and $y$ the answer.
#
# $$\mathrm{loss} = -\ln \frac{e^{z_y}}{\sum_v e^{z_v}} = \ln \sum_{v=1}^{V} e^{z_v} - z_y$$
#
# If all logits are equal, the loss is $\ln V$. The logits of a new model aren't equal, though. Suppose they are normal
# numbers with mean 0 and variance $\sigma^2$ that know nothing about $y$. Then $z_y$ is 0 on average. A normal number
# has $E[e^z] = e^{\sigma^2 / 2}$, so for large $V$ the sum is close to $V e^{\sigma^2 / 2}$, and
#
# $$E[\mathrm{loss}] \approx \ln V + \frac{\sigma^2}{2}$$
#
# In our model $\sigma^2 = 1$: the last LayerNorm gives each component variance 1, and the output matrix has variance
# $1 / d_{model}$ ([lesson 08](08_embeddings.py)). So we expect half a nat above $\ln V$. Let's look at ten new models,
# with an output matrix of their own (`tied="none"`) and with the embedding as output matrix, as in the paper
# (`tied="all"`). The right column is the bug *target not shifted*.
#
# **Your turn.** If you know how often each symbol is the answer, you can say exactly what the first loss should be.
# Write it down as a formula of the logits.

# %%
def first_look(model, batch):
    """-> loss − ln V; probability of the symbol that was read last"""
    logits, _ = model.forward(batch.source, batch.read)                # (B, T, V)
    loss_sum, n, _ = cross_entropy(logits, batch.write)
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    last_read = np.take_along_axis(p, batch.read[..., None], axis=-1)
    return loss_sum / n - math.log(V), last_read[batch.write != PAD].mean()


# %% First loss of ten new models
excess = {}
for tied in "none", "all":
    for bug in None, "target not shifted":
        with planted(bug):
            batch = next(fresh(seed=7))
        excess[tied, bug] = np.mean([first_look(new_model(seed, tied), batch)
                                     for seed in range(10)], axis=0)
table(["first loss − ln V", "correct", "target not shifted"],
      [[f'tied="{tied}"', *(f"{excess[tied, bug][0]:.2f}" for bug in suspects[::3])]
       for tied in ("none", "all")])
measure('tied="all", correct: probability of the symbol read last',
        excess["all", None][1], 0.35, 0.75)

# %% [markdown]
# The half is there. The tied model has another half, because it puts half of its probability on the symbol that it has
# just read: the symbol's vector travels along the residual connections to the output, and meets its own embedding
# there. If that symbol *is* the answer, the tied model starts far **below** $\ln V$. So both sides tell you something.
# Far above, the logits are too large. Below, the model knows something about the answer before it has learned anything,
# or the sum is divided by too many symbols (padding, say). ([Lab notes 16, experiment
# 1](lab/16_first_training.py#experiment-1-the-first-loss))
#
# ## What can a gradient check not find?
#
# A gradient check ([lesson 01](01_backprop.py)) makes a number $L$ of forward's results, and compares the gradient $g$
# from backward, along a random direction $u$, with
#
# $$g \cdot u \approx \frac{L(w + h u) - L(w - h u)}{2 h}$$
#
# It has three limits. **First, it compares backward with forward.** The paper appears on neither side:
#
# | forward | backward | the check |
# | --- | --- | --- |
# | right | its derivative | passes |
# | right | something else | objects |
# | wrong | the derivative of this wrong forward | **passes** |
# | wrong | anything else | objects, but can't say which of the two is wrong |
#
# A framework that derives backward for you is always in rows one and three. Our bug *scaled by d_model* is in row
# three: it divides the scores by $\sqrt{d_{model}}$ in forward and in backward.
#
# **Second, it speaks for the batch that you give it.** If a symbol is read at several positions, its row of the
# embedding gets the sum of their gradients. The bug *repeats overwrite*, `dE[ids] += dx`, keeps only one of them. With
# no symbol repeated there is just one, and the bug does no harm. *Softmax / batch* divides a gradient by the number of
# sentences, so in a batch of one it's harmless too.
#
# **Third, a right gradient can end up in the wrong place.** *Gradient cut loose* writes it into a new array, while Adam
# goes on reading the old one, full of zeros. Its numbers are right, so a check must look at the arrays as well, as our
# `gradcheck` does: it raises an error.
#
# **Your turn.** Write a softmax that is wrong and still passes its gradient check: the hunt `right_gradient`.

# %% The first two limits, measured
def gradient_error(batch):
    """The worst relative error over all parameters, each along one random direction"""
    try:
        report = gradcheck(new_model(seed=0), batch.source, batch.read, directions=1)
    except ValueError:                                         # a new array
        return math.inf
    return report.worst.error


TOLERANCE, first_batch = 1e-4, next(fresh(seed=7))
one_word = Batch([np.array([5, 3, 9, 4])])                     # no letter twice
for name, bug, parts, batch, *band in [
        ("scaled by d_model", "scaled by d_model", slice(2), first_batch, 0, TOLERANCE),
        ("the same in forward only", "scaled by d_model", slice(1), first_batch,
         0.1, 10),
        ("repeats overwrite, one word", "repeats overwrite", slice(1), one_word,
         0, TOLERANCE),
        ("repeats overwrite, 32 words", "repeats overwrite", slice(1), first_batch,
         0.01, 10),
        ("softmax / batch, one word", "softmax / batch", slice(1), one_word,
         0, TOLERANCE),
        ("softmax / batch, 32 words", "softmax / batch", slice(1), first_batch,
         0.01, 10)]:
    with planted(bug, parts):
        measure(f"{name}: worst error", gradient_error(batch), *band)

# %% [markdown]
# So check with several sentences, and with repeated words.
#
# ## All eight checks
#
# Here are the five that need no training. Each returns what it found, and whether a correct model may show that.

# %%
def before_training(seed):
    """check -> (what was found, may it be so?)"""
    model, batch = new_model(seed), next(fresh(seed=7))
    excess, _ = first_look(model, batch)
    logits, _ = model.forward(batch.source, batch.read)

    other = batch.read.copy()                                  # another last symbol
    other[:, -1] = np.where(other[:, -1] == 3, 4, 3)
    moved = np.abs(model.forward(batch.source, other)[0] - logits)[:, :-1].max()

    longer = np.pad(batch.source, ((0, 0), (0, 2)))            # more padding
    by_padding = np.abs(model.forward(longer, batch.read)[0] - logits).max()

    error, off = gradient_error(batch), off_definition()
    return {"first loss": (excess, 0 < excess < 2),
            "gradient check": (error, error < TOLERANCE),
            "a later symbol": (moved, moved < 1e-9),
            "more padding": (by_padding, by_padding < 1e-9),
            "definition": (off, off < 1e-9)}


def off_definition():
    """How far is attention, without a mask, from equation 1 written once more?"""
    random = np.random.default_rng(0)
    q, k, v = random.normal(size=(3, 2, 5, 4, 6))              # (B, T or S, H, d_k)
    e = np.exp(np.einsum("bthk,bshk->bhts", q, k) / math.sqrt(6))
    expected = np.einsum("bhts,bshk->bthk", e / e.sum(axis=-1, keepdims=True), v)
    return np.abs(ScaledDotProductAttention().forward(q, k, v)[0] - expected).max()


# %% [markdown]
# And the three that train. *Memorise one batch*: eight words, to a loss below 0.03, in 100 steps; a correct model needs
# about half of them. *Fresh words*: after 160 steps most symbols must be right. *Writing* needs no threshold: a word is
# written right if each symbol is guessed right after the right symbols before it. So if a guess depends only on the
# source and the symbols before it, the share of words *written* right **equals** the share *guessed* right throughout,
# in a good model and in a bad one.
#
# Before you go on: how many of the eight bugs will the best single check find?
#
# <details><summary>Make a guess, then unfold: every check on every bug</summary>

# %% Every check on every bug
def with_training(seed, model=None):
    eight, batch = (Batch(words(np.random.default_rng(other), n))
                    for other, n in ((5, 8), (99, 200)))
    steps = len(train(new_model(seed), repeat(eight), 400, until=0.03))
    if model is None:
        model = new_model(seed)
        train(model, fresh(seed), STEPS)
    right = accuracy(model, batch)
    apart = abs(words_right(written(model, batch), batch)
                - words_right(guessed(model, batch), batch))
    return {"memorise one batch": (steps, steps <= 100),
            "fresh words": (right, right > 0.7),
            "writing = guessing": (apart, apart < 1e-9)}


def objecting(found):
    return [name for name, (_, fine) in found.items() if not fine]


def all_checks(seed, model=None):
    """In quick mode a bug that is found before training is not trained."""
    found = before_training(seed)
    return found if QUICK and objecting(found) else found | with_training(seed, model)


correct = all_checks(0, trained[None])
results = {}
for bug in BUGS:
    with planted(bug):
        results[bug] = all_checks(0, trained.get(bug))
CHECKS = list(correct)
objections = {bug: objecting(result) for bug, result in results.items()}
per_check = {name: sum(name in names for names in objections.values())
             for name in CHECKS}
measure("checks that object to the correct model", len(objecting(correct)), 0, 0)
measure("bugs that no check finds", sum(not o for o in objections.values()), 0, 0)
measure("most bugs that one check finds", max(per_check.values()), 3, 3)
measure("bugs that the gradient check finds", per_check["gradient check"], 3, 3)

figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
axes.imshow([[name in objections[bug] for name in CHECKS] for bug in BUGS], "Oranges",
            vmin=0, vmax=1.6, aspect="auto")
for row, bug in enumerate(BUGS):
    for column, name in enumerate(CHECKS):
        found = f"{results[bug][name][0]:.3g}" if name in results[bug] else ""
        weight = "bold" if name in objections[bug] else "normal"
        axes.text(column, row, found, ha="center", va="center", weight=weight)
axes.set_xticks(range(len(CHECKS)), ["\n".join(name.rsplit(" ", 1)) for name in CHECKS])
axes.set_yticks(range(len(BUGS)), BUGS)
axes.xaxis.tick_top()
axes.tick_params(length=0)
show(figure, "16_hunt",
     alt="Table of eight bugs and eight checks. Each check objects to one to three "
     "bugs. The first loss objects to the unshifted target and to the large "
     "embedding, the gradient check to overwritten repeats, to the softmax divided "
     "by the batch and to the gradient cut loose, a later symbol to the missing causal "
     "mask, more padding to the padding that is seen, and the definition alone to the "
     "scale by d_model. "
     "Memorising one batch and fresh words object to the gradient cut loose and to "
     "the large embedding; writing, to the unshifted target and the missing causal "
     "mask.",
     caption="What each check found for each bug; bold on orange: it objects. No "
     "column has more than three.")

# %% [markdown]
# No check finds more than three of these eight bugs, and every bug is found by one. *Scaled by d_model* is found only
# by writing the definition once more: everything else that it shows, correct models show too. A loss that is too
# *good* is a symptom as well, as in D.
#
# </details>
#
# Eight bugs that the author of a page chose prove little. So the repository keeps more than a hundred
# [mutants](../tests/mutants/mutants.py): bugs found in public implementations and classic mistakes, planted one at a
# time, with a record of which tests fail. How much do gradient checks find there? Here we have to be careful with the
# denominator.

# %% Which mutants do gradient checks notice?
sys.path.append(str(ROOT / "tests" / "mutants"))
from mutants import MUTANTS  # noqa: E402

caught = json.loads((ROOT / "benchmarks/results/mutants.json").read_text("utf-8"))
noticed = {True: [], False: []}                                # in nn/, or elsewhere
for mutant in MUTANTS:
    in_nn = mutant.suspect and mutant.patches[0].file.startswith("scratchformer/nn/")
    if mutant.name in caught:
        noticed[bool(in_nn)].append("gradients" in caught[mutant.name])
measure("mutants", len(caught), 100, 200)
measure("share in nn/, where gradient checks run",
        len(noticed[True]) / len(caught), 0.5, 0.7)
measure("share of these that a gradient check notices",
        np.mean(noticed[True]), 0.3, 0.5)
measure("elsewhere, noticed by a gradient check", sum(noticed[False]), 0, 0)

# %% [markdown]
# Four in ten mutants are elsewhere, for example in batches, search or saving, where no gradient check runs at all. Of
# those in `nn/`, that is the layers, the loss and Adam, more than half pass every gradient check. Most of these are in
# row three of the table above: a wrong forward with its own right gradient. ([Lab notes 16, experiment
# 2](lab/16_first_training.py#experiment-2-a-hundred-bugs))
#
# ## What does a healthy run look like?
#
# If all checks pass and the model still learns badly, it may be the learning rate. Let's break a run on purpose: a
# tenth of our rate, ten times as much, and the input-independent baseline. The numbers in the last column are the
# **update-to-weight ratio** at step 50: the length of Adam's step over the length of all weights.
#
# <details><summary>Make a guess, then unfold: which of the runs are too slow, and which broke?</summary>

# %% A healthy run and three sick ones
class Blind(Batch):
    """Each source letter is the same one; lengths stay."""

    def __init__(self, some_words):
        super().__init__(some_words)
        self.source = np.where(self.source != PAD, 3, PAD)


def blindly(seed):
    random = np.random.default_rng(seed)
    while True:
        yield Blind(words(random, 32))


def around_step_50(model, batches, weights):
    """The same batches; the weights before and after step 50 go into `weights`."""
    for step, batch in enumerate(batches, 1):
        if step in (50, 51):
            weights.append(model.store.data.copy())
        yield batch


RUNS = {"our rate": (fresh, 1, held_out), "a tenth": (fresh, 0.1, held_out),
        "ten times": (fresh, 10, held_out),
        "our rate, no source": (blindly, 1,
                                Blind(words(np.random.default_rng(99), 200)))}
healthy = {}
for name, (batches, times, test) in RUNS.items():
    model, weights = new_model(seed=0), []
    train(model, around_step_50(model, batches(0), weights), STEPS,
          factor=times * PEAK_FACTOR)
    before, after = weights
    healthy[name] = (accuracy(model, test),
                     np.linalg.norm(after - before) / np.linalg.norm(before))
for name, (right, _), band in zip(healthy, healthy.values(), [
        (0.8, 1), (0.4, 0.8), (0.05, 0.45), (0.2, 0.45)]):
    measure(f"{name}: symbols guessed right", right, *band)
for name, band in zip(healthy, [(0.01, 0.02), (0.001, 0.003), (0.02, 0.09)]):
    measure(f"{name}: update-to-weight ratio", healthy[name][1], *band)

# %% [markdown]
# A tenth of the rate is slow but healthy: it needs more steps. Ten times the rate falls fast at first and then gets
# stuck: it ends below the model that never sees a letter. Without the source, a third of the symbols can be guessed
# from lengths alone. So "a third right" would have been no success at all.
#
# </details>
#
# - **Too high or too low?** A curve that is still falling steadily at the end asks for a higher rate or more steps. One
#   that falls quickly and then stays flat, or jumps, asks for a lower one. Try factors of 3 before fine-tuning.
# - **Update-to-weight ratio.** A common rule of thumb is about 0.001. Our run has 0.015 at the peak of its rate; it is
#   a tiny model in a hurry. The ratio is most useful for *comparing* layers and runs: a layer whose ratio is 0 isn't
#   trained, which is what *gradient cut loose* looks like.
# - **Watch fixed predictions.** Print the model's answers to the same three inputs every few steps. You see *how* it
#   learns, and notice a run that wavers instead of settling. Here is B, with one word:

# %% Watching one word
watched = Batch([np.array([3, 8, 4, 10])])
marks, letters = (20, 40, 60, 80, 100), "abcdefgh"


def watching(model, batches):
    for step, batch in enumerate(batches, 1):
        if step in marks:
            ids = written(model, watched)[0]
            lines.append((step, "".join(letters[i - 3] for i in ids if i >= 3)))
        yield batch


model, lines = new_model(seed=0), []
train(model, watching(model, fresh(0)), 100)
print("the model reads afbh")
print(*(f"step {step}: it writes {word}" for step, word in lines), sep="\n")

# %% [markdown]
# ## The list
#
# | check | passes if | rules out |
# | --- | --- | --- |
# | read some batches | they say what you think | data bugs |
# | first loss | between $\ln V$ and $\ln V + 2$ | logits of a wrong size; if tied, an unshifted target |
# | gradient check, $B > 1$, repeats | error below $10^{-4}$ | a backward that isn't forward's |
# | change a later symbol | nothing before it moves | a causal mask that is missing or shifted |
# | more padding | nothing moves | padding of the source that is read |
# | definition of each part | equal | a wrong formula |
# | memorise one batch | within twice the steps of a correct model | most weights that don't move |
# | fresh words | above the input-independent baseline | a model that can't do the task |
# | write, and compare | as right as guessing | answers in the input |
#
# "Overfit one batch" is the best known of these. It lets six of our eight bugs pass, and the other two memorise the
# batch too, only later. What finds them is the *limit of 100 steps*, so you have to know how long a correct model takes
# ([lab notes 16, check the claim](lab/16_first_training.py#check-the-claim)). `scratchformer doctor` runs such checks
# by itself, from the lowest layer up, and names the part to look at first ([lab notes 16, experiment
# 3](lab/16_first_training.py#experiment-3-the-same-questions-asked-by-a-program)).
#
# ## Paper and code
#
# - The paper doesn't say how its code was tested. Its §5.3 has Adam and the schedule used here
#   ([nn/optim.py](../scratchformer/nn/optim.py)). *Differs:* 50 steps of warm-up instead of 4000, a factor of 0.35 on
#   the rate, no label smoothing and no dropout, so that losses can be compared with known numbers.
# - In the library: [nn/gradcheck.py](../scratchformer/nn/gradcheck.py), the flow tests in
#   [tests/nn/test_checks.py](../tests/nn/test_checks.py), and
#   [doctor](../scratchformer/doctor/diagnosis.py).
# - Where the bugs come from, by the [correctness report](../docs/correctness.md): *no causal mask*
#   (YVSemlani/numpy-transformer), *softmax / batch* (AkiRusProd/numpy-transformer), *scaled by d_model*
#   (AkiRusProd/numpy-nn-model); the others are classics.
# - Further reading: Karpathy, *A Recipe for Training Neural Networks* (2019).
#
# ## What to remember
#
# Don't judge a training by its loss alone. Look at the data first. Then ask a few questions whose answers you know
# before you run them, the cheap ones first, and use several kinds: each of them is blind to most bugs.
#
# **Yours:** the hunts `right_gradient` and `too_good` (a loss that is too good to be true; find its three bugs) ·
# `scratchformer learn check right_gradient too_good`
#
# **A puzzle.** Dropout stays on where it should be off. Which check objects first?
#
# <details><summary>Answer</summary>
#
# The gradient check: its forward passes draw other masks than the one that backward belongs to. The checks that compare
# two calls object as well. So ask first of all whether the same call gives the same answer twice.
#
# </details>
#
# **Next:** eight letters are few. A language has more words than a matrix should have rows, and [lesson
# 17](17_byte_pairs.py) cuts them into pieces.
