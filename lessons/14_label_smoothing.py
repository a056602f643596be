# %% [markdown]
# # 14 · The loss, label smoothing and dropout
#
# **Cross-entropy rewards a model for being ever more certain. Should it?**
#
# *Needs [lesson 01](01_backprop.py) (softmax, cross-entropy and its gradient), [lesson 06](06_masks.py) (padding) and
# [lesson 13](13_whole_model.py) (the whole model) · you will compute the paper's loss, dropout and both gradients with
# pencil and paper.*

# %% Imports
import math

import numpy as np
import transformer

from support.drawing import Drawing
from support.lesson import quote, recorded, same, show, table
from support.numeric import numeric_gradient

# %% [markdown]
# A small translator learns 300 sentence pairs with the loss of lesson 01. Every 80 steps we test it on 150 new pairs.
# For each German word to come, it gives every word of its vocabulary a probability. We look at three numbers:
#
# - its **loss**, the mean of $-\ln p$ of the right word, in nats;
# - its **accuracy**: how often is the likeliest word the right one?
# - its **confidence**: what is the probability of the likeliest word, on average?

# %% The text
def sentence_pairs(split, count):
    """The first pairs of a set, as words"""
    lines = [(transformer.CORPUS / f"{split}.{language}").read_text("utf-8")
             .splitlines()[:count] for language in ("en", "de")]
    return [[transformer.words_in(line) for line in pair] for pair in zip(*lines)]


texts = {"learned": sentence_pairs("train", 300), "new": sentence_pairs("test", 150)}
words = sorted({word for pairs in texts.values() for pair in pairs
                for sentence in pair for word in sentence})
ids = {word: i for i, word in enumerate(words, 3)}
V = len(words) + 3
PAIRS = {name: [([*map(ids.get, en), transformer.EOS],
                 [transformer.BOS, *map(ids.get, de), transformer.EOS])
                for en, de in pairs] for name, pairs in texts.items()}
WHOLE = {name: next(transformer.batches(list(pairs), len(pairs)))
         for name, pairs in PAIRS.items()}


# %% The training
def look(model, text):
    """-> mean loss, accuracy, confidence"""
    source, target = WHOLE[text]
    memory, _ = transformer.encode(source, model, 0.0)
    x, _ = transformer.decode(target[:, :-1], memory, source, model, 0.0)
    real = target[:, 1:] != transformer.PAD
    log_p = transformer.log_softmax(x[real] @ model.E.data.T)
    right = target[:, 1:][real]
    p = np.exp(log_p)
    loss = -log_p[np.arange(len(right)), right].mean()
    return loss, (p.argmax(axis=-1) == right).mean(), p.max(axis=-1).mean()


def learn_few(eps_ls=0.0, P_drop=0.0, steps=320):
    """-> the model, and (step, loss, accuracy, confidence) in new pairs (4, 4)"""
    transformer.rng = np.random.default_rng(0)
    model = transformer.new_model(V, d_model=32, d_ff=64, h=2, N=1, dtype="float64")
    batches, seen = transformer.batches(list(PAIRS["learned"]), 16), []
    for step, batch in zip(range(1, steps + 1), batches):
        _, backward = transformer.loss_of(*batch, model, P_drop, eps_ls)
        backward(1.0)
        transformer.adam(model, step, warmup_steps=100)
        if step % 80 == 0:
            seen.append((step, *look(model, "new")))
    return model, np.array(seen)


def two_digits(numbers):
    return [f"{number:.2f}" for number in numbers]


model, plain = learn_few()
known = look(model, "learned")
assert round(100 * plain[-1][2]) == 36 and round(100 * known[1]) == 91
table(["step", "loss", "accuracy", "confidence"],
      [*([f"{row[0]:.0f}, new pairs", *two_digits(row[1:])] for row in plain),
       ["320, the 300 learned pairs", *two_digits(known)]])

# %% [markdown]
# After step 80 more and more guesses are right, and still the loss gets worse. At the end, the model gives its guesses
# in new sentences a probability of 0.66 on average, but only 36 in 100 are right. It is **overconfident**. (A model is
# **calibrated** if eight in ten of its guesses with probability 0.8 are right, and so on.)
#
# The last row shows where this comes from. On the pairs that it learns, the same model is *under*confident: 91 in 100
# guesses are right, and it says 0.81. There the loss falls if the model gets more sure, so training makes it more sure,
# and in new sentences it gets more sure as well. There is no end to this, since $p = 1$ would take infinite logits.
#
# The paper asks for less certainty: the right word should get about 0.9, and the rest is shared among all words (§5.4).
# This is **label smoothing**. The paper says:
#
# > "This hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU score."
#
# *Perplexity* is $e$ to the mean loss: a model that hesitates between 5 equally likely words has perplexity 5. *BLEU*
# compares translations with given ones, the *references*, and goes from 0 to 100 ([lesson
# 21](21_bleu_and_averaging.py)).
#
# ## Less sure, same order
#
# How can the loss get worse and the translations better? Suppose a model gives five words the probabilities (0.5, 0.3,
# 0.1, 0.06, 0.04). We make it less sure by hand: multiply each by 0.9, and give each of the five 0.02. The result is
# (0.47, 0.29, 0.11, 0.074, 0.056). If the first word is right, its loss rises from 0.693 to 0.755. But **the order of
# the words is unchanged**. If we always write the likeliest word, every translation stays the same.
#
# So being less sure costs perplexity, and by itself it changes no such translation. If smoothing in *training* improves
# translations, it must be because the model has learned other weights.
#
# ## By hand: five words
#
# Take $V = 5$ words and $\epsilon = 0.1$. We take 0.1 away from the right word, and then give each of the five words,
# the right one too, a fifth of it. So the target is $q = (0.92, 0.02, 0.02, 0.02, 0.02)$. Three models give the right
# word 0.6, 0.92 and 0.996. The other words share the rest equally.

# %% Drawing the bars
MODELS = {"unsure": 0.6, "as asked": 0.92, "very sure": 0.996}
WORDS = ("tired", "wide", "old", "street", "was")
Q = np.array([0.92, 0.02, 0.02, 0.02, 0.02])


def bars(backward):
    """Figures 1 and 2: p and q of three models, without and with p − q."""
    drawing = Drawing(760, 420 if backward else 320)
    for y, letter in (90, "p"), (215, "q"):
        drawing.text(22, y, letter, bold=True, size=17)
    if backward:
        drawing.text(10, 350, "p − q", "gradient", 15, "start", italic=True)
    for group, (name, sure) in enumerate(MODELS.items()):
        p = np.array([sure, *[(1 - sure) / 4] * 4])
        left = 85 + 235 * group
        drawing.text(left + 80, 20, name, bold=True)
        for i in range(5):
            x = left + 42 * i - 4
            role = "forward" if i == 0 else "ink"
            drawing.bar(x, 90, p[i], 26, 90, below=f"{p[i]:.3g}", role=role)
            drawing.bar(x, 215, Q[i], 26, 90, below=f"{Q[i]:.3g}", role=role)
            drawing.text(x, 292 + 15 * (i % 2), WORDS[i], "soft", 13)
            if backward:
                value = round(p[i] - Q[i], 3)
                label = f"{value:+g}".replace("-", "−") if value else "0"
                shift = 24 * (i % 2)
                drawing.gradient(x - 10, 345 + shift, -value, label, 13, largest=0.3)
    return drawing


show(bars(backward=False), "14_bars",
     alt="Bars for five words and three models. p of the right word, tired, is 0.6, "
     "0.92 and 0.996; the other four words have 0.1, 0.02 and 0.001 each. Below, the "
     "target q is the same for all three: 0.92 and four times 0.02.",
     caption="What three models say (p), and what label smoothing asks for (q). The "
     "right word is *tired*, in blue.")

# %% [markdown]
# The plain loss is $-\ln p$ of the right word. The smoothed loss weighs $-\ln p$ of *every* word by its share of the
# target: 0.92 for the right word, and four times 0.02 for the wrong ones.
#
# | model | $-\ln p$, right word | $-\ln p$, a wrong word | smoothed loss |
# |---|--:|--:|--:|
# | unsure | 0.511 | 2.303 | 0.92 · 0.511 + 0.08 · 2.303 = **0.654** |
# | as asked | 0.083 | 3.912 | 0.92 · 0.083 + 0.08 · 3.912 = **0.390** |
# | very sure | 0.004 | 6.908 | 0.92 · 0.004 + 0.08 · 6.908 = **0.556** |
#
# The plain loss, the first column, is lowest for the model that is very sure. For the smoothed loss the best model is
# the one with $p = q$, and even this one has a loss of 0.390.
#
# **Calculate, then unfold:** a fourth model gives all five words 0.2. What is its smoothed loss? ($-\ln 0.2 = 1.609$)
#
# <details><summary>The fourth model</summary>
#
# **1.609**, since the shares add up to 1. Its plain loss is the same.
#
# </details>
#
# ## In general
#
# With logits $z$ and $p = \mathrm{softmax}(z)$, the loss of one word is
#
# $$L = -\sum_v q_v \ln p_v \qquad \ln p_v = z_v - \ln \sum_u e^{z_u}$$
#
# $$q_v = \frac{\epsilon}{V} \quad \text{and} \quad 1 - \epsilon + \frac{\epsilon}{V} \; \text{for the right word}$$
#
# Compute $\ln p$ by the second equation: a tiny $p$ would be rounded to 0, and $\ln 0 = -\infty$. And $e^{1000}$ is too
# large for any float, so first subtract the largest logit from all of them. That doesn't change $p$. The loss of a
# batch is the *mean* over its $n$ real words.
#
# **Your turn.** In `transformer.py`, `log_softmax` takes logits (..., V) and returns $\ln p$, and `cross_entropy` takes
# the logits (n, V) of real words, the n right words and $\epsilon$ (`eps_ls`), and returns the mean loss. Write its
# second half after the next section. `scratchformer learn check log_softmax`.
#
# ## Backward
#
# In lesson 01 the gradient of the logits was $p - q$. It still is, with the new $q$. Which logits in figure 1 will
# training raise, and which will it lower? Decide for all three models before you look.

# %% Drawing the way back
show(bars(backward=True), "14_bars_backward",
     alt="The same bars with the gradients p minus q below. Unsure: minus 0.32 for "
     "tired, plus 0.08 for each other word. As asked: 0 everywhere. Very sure: plus "
     "0.076 for tired, minus 0.019 for each other word.",
     caption="The same bars with the gradients of the logits. Triangles point where "
     "training moves a logit, against its gradient.")

# %% [markdown]
# - **Unsure:** the right word goes up (0.6 − 0.92 = −0.32: more logit, less loss), the others go down.
# - **As asked:** $p = q$, so all gradients are 0, and the logits rest.
# - **Very sure:** the right word goes *down*, the others go *up*.
#
# With the plain loss, $q$ is (1, 0, 0, 0, 0). Then the right word is pushed up in all three models, and no logits exist
# at which it rests.
#
# **Why $p - q$?** Put the equation of $\ln p_v$ into $L$. The $q_v$ add up to 1, so $L = \ln \sum_u e^{z_u} - \sum_v
# q_v z_v$. Follow one logit $z_j$. The first term has the derivative $e^{z_j} / \sum_u e^{z_u} = p_j$. The second
# contains $z_j$ once, times $q_j$. For the mean of $n$ words, divide by $n$:
#
# $$dz_j = \frac{p_j - q_j}{n}$$
#
# Now finish `cross_entropy`, and run `scratchformer learn check cross_entropy`.

# %%
quote("log_softmax", "cross_entropy")

# %% The check, and the line of PyTorch
random = np.random.default_rng(14)
z, right = random.normal(size=(4, 7)), np.array([2, 0, 6, 2])
loss, backward = transformer.cross_entropy(z, right, 0.1)
dz = backward(1.0)
numeric = numeric_gradient(lambda z: transformer.cross_entropy(z, right, 0.1)[0], z)
same("dz: ours and finite differences", dz, numeric, 1e-8)
for sure, expected in (0.6, 0.654), (0.92, 0.390), (0.996, 0.556):
    logits = np.log([[sure, *[(1 - sure) / 4] * 4]])
    assert round(transformer.cross_entropy(logits, [0], 0.1)[0], 3) == expected
try:
    import torch
except ImportError:
    torch = None
if torch:
    leaf = torch.tensor(z, requires_grad=True)
    theirs = torch.nn.functional.cross_entropy(leaf, torch.tensor(right),
                                               label_smoothing=0.1)
    theirs.backward()
    assert np.allclose(loss, theirs.detach()) and np.allclose(dz, leaf.grad)

# %% [markdown]
# **Where do the logits rest?** Where $p = q$. There the right logit leads the others by $\ln (0.92 / 0.02) = \ln 46 =
# 3.83$, because a ratio of probabilities is $e$ to the difference of the logits. Five logits start at 0 and take steps
# of size 1 against the gradient:

# %% The lead of the right logit
def leads(eps_ls, steps=(30, 300, 3000)):
    z, found = np.zeros((1, 5)), []
    for step in range(1, 3001):
        z -= transformer.cross_entropy(z, [0], eps_ls)[1](1.0)
        if step in steps:
            found.append(z[0, 0] - z[0, 1])
    return found


lead = {eps_ls: leads(eps_ls) for eps_ls in (0.0, 0.1)}
assert abs(lead[0.1][-1] - math.log(46)) < 1e-9
table(["lead of the right logit after", "30 steps", "300 steps", "3,000 steps"],
      [[f"ε = {eps_ls:g}", *two_digits(row)] for eps_ls, row in lead.items()])

# %% [markdown]
# The plain lead keeps growing. The smoothed lead has come to rest.
#
# **A smoothed loss is not a perplexity.** Its lowest value, that of $p = q$, is not 0 but a **floor** that depends on
# $\epsilon$ and $V$: 0.390 for five words, and this much for more:

# %% The floor
def floor(V, eps_ls=0.1):
    """The loss of a model that says q"""
    q = np.full((1, V), eps_ls / V)
    q[0, 0] += 1 - eps_ls
    return transformer.cross_entropy(np.log(q), [0], eps_ls)[0]


assert round(floor(5), 3) == 0.390
table(["V", "floor, in nats"],
      [[f"{size:,}", f"{floor(size):.3f}"] for size in (5, 2_000, 37_000)])

# %% [markdown]
# So don't take $e$ to a smoothed loss, and compare it only with runs of the same $\epsilon$ and $V$. All losses in the
# tables of this page are plain.
#
# ## Dropout
#
# The opening's model knows most words of its 300 pairs, and few of new ones. The paper has a second remedy, **dropout**
# (§5.4): while it trains, each number of a sublayer's update is set to 0 with probability $P_{drop} = 0.1$, drawn anew
# at each step. The idea: no unit should rely on a single other one that happens to fit a training sentence.
#
# By hand, with $P_{drop} = 0.5$: the update is (1, 3, −2, 4), and the coin keeps the first and the third number. The
# kept ones are multiplied by 1 / (1 − 0.5) = 2. Why? Look at the 3: half of the time it becomes 6, otherwise 0, so on
# average it stays 3. That is why the finished model can translate *without* dropout, and its sums keep their size.

# %% Drawing dropout
def dropout_picture():
    drawing = Drawing(790, 210)
    for y, name in (35, "update"), (105, "keep"), (175, "result"):
        drawing.text(20, y, name, bold=True, anchor="start")
    drawing.vector(220, 35, [1, 3, -2, 4], cell=52)
    keep = drawing.vector(220, 105, [2, 0, 2, 0], "plain", 52)
    result = drawing.vector(220, 175, [2, 0, -4, 0], cell=52)
    drawing.text(220, 70, "×", size=17)
    drawing.arrow(keep.bottom, result.top)
    for y, name, values in ((175, "dresult", (0.3, -0.1, 0.2, 0.5)),
                            (35, "dupdate", (0.6, 0, 0.4, 0))):
        box = drawing.matrix(530, y, [[""] * 4], "gradient", 76)
        drawing.text(700, y, name, "gradient", 14, "start", italic=True)
        for i, value in enumerate(values):
            x = box.cell(i).x
            if value:
                label = f"{value:+g}".replace("-", "−")
                drawing.gradient(x - 12, y, -value, label, 14, largest=0.6)
            else:
                drawing.text(x, y, "0", "gradient", 14, italic=True)
    drawing.arrow((530, 155), (530, 55), "gradient")
    drawing.text(545, 105, "× the same keep", "gradient", 14, "start", italic=True)
    return drawing


show(dropout_picture(), "14_dropout",
     alt="Left, forward: the update 1, 3, minus 2, 4 times keep, 2, 0, 2, 0, is 2, 0, "
     "minus 4, 0. Right, backward, read upwards: the gradient 0.3, minus 0.1, 0.2, 0.5 "
     "times the same keep is 0.6, 0, 0.4, 0.",
     caption="Dropout forward (left) and backward (right, from below to above).")

# %% [markdown]
# **Backward.** Forward multiplied by `keep`, so backward multiplies by the same `keep`. What was dropped had no
# influence on the loss, and its gradient is 0. It must be the *same* draw: if backward draws again, numbers that took
# part get no gradient, and others get one that they don't deserve. (One public NumPy Transformer gives two layers the
# same dropout object, which remembers its last draw only. A gradient check with dropout switched off can't see that.)
#
# **Calculate, then unfold:** with $P_{drop} = 0.2$, the update (4, 8, −4) loses its second number, and (1, 1, 2) comes
# back.
#
# <details><summary>The result and the gradient of the update</summary>
#
# `keep` is (1.25, 0, 1.25). The result is (5, 0, −5), and the gradient is (1.25, 0, 2.5).
#
# </details>
#
# **Your turn.** `dropout(x, P_drop)` returns `keep` alone, in the shape of x. `add_and_norm` (lesson 12) multiplies the
# update by it, and later the gradient; `embed` does the same after adding the positions. `scratchformer learn check
# dropout`.

# %%
quote("dropout")

# %% On average, nothing changes
transformer.rng = np.random.default_rng(0)
keep = transformer.dropout(np.zeros((100_000, 4)), 0.2)
assert set(np.unique(keep)) == {0, 1.25}
same("mean of 100,000 results, and the update",
     (keep * [1, 3, -2, 4]).mean(axis=0), [1, 3, -2, 4], 0.01)

# %% [markdown]
# ## The loss of the whole model
#
# Now `loss_of` connects everything. For the target `BOS a b EOS` the decoder reads `BOS a b`, and each of its three
# vectors predicts the next word: `a b EOS`. In a batch, shorter targets have padding, and its positions are left out.
# The logits are the products of the vectors with all rows of $E$, the matrix that also embeds (§3.4).
#
# Backward goes the same way in reverse. A position that was left out has no loss, so its vector gets the gradient 0.
# What arrives at the decoder's memory goes on to the encoder.
#
# **Your turn.** Write `loss_of(source, target, model, P_drop, eps_ls)` with `encode`, `decode`, `linear` and
# `cross_entropy`, and run `scratchformer learn check loss_of`.

# %%
quote("loss_of")

# %% [markdown]
# The model of the opening was trained by this function with $\epsilon = 0$ and $P_{drop} = 0$. With one of the two at
# 0.1, after the same 320 steps, in the new sentences:

# %% The opening again
ends = [("neither", plain[-1]), ("label smoothing 0.1", learn_few(eps_ls=0.1)[1][-1]),
        ("dropout 0.1", learn_few(P_drop=0.1)[1][-1])]
table(["trained with", "loss", "accuracy", "confidence"],
      [[name, *two_digits(row[1:])] for name, row in ends])
gaps = [row[3] - row[2] for _, row in ends]
assert gaps[0] > gaps[2] > gaps[1] > 0 and ends[0][1][1] > ends[2][1][1] > ends[1][1][1]

# %% [markdown]
# Each of them lowers the loss and brings confidence nearer to accuracy. (One run each; with dropout, accuracy is two
# points lower here.)
#
# ## Does it matter?
#
# Let's test the paper's sentence with two layers and $d_{model} = 64$, in 600 steps.
#
# - **What goes in:** 1,000 pairs, which the model reads again and again, or 20,000, none of them more than twice.
# - **What is changed:** $\epsilon$ is 0 or 0.1, three runs each. As a control, each model without smoothing is made
#   less sure *afterwards*, by hand, as in the second section.
# - **What is measured:** the loss in 500 new sentences, and BLEU. (Its references come from the program that wrote this
#   corpus, not from people.)
#
# Does smoothing make the loss worse in both cases? And how much of its effect does the control have?
#
# <details><summary>Make a guess, then unfold: the results</summary>

# %% Three runs each
runs = {(row["pairs"], row["eps_ls"]): row["runs"]
        for row in recorded("label_smoothing")["results"]}


def of_runs(pairs, smoothing, name):
    return np.array([run[name] for run in runs[pairs, smoothing]])      # (3,)


rows = []
for pairs in 1_000, 20_000:
    for way, smoothing, name in (("none", 0.0, "nats"), ("by hand", 0.0, "mixed_nats"),
                                 ("in training", 0.1, "nats")):
        scores = "the same" if way == "by hand" else ", ".join(
            f"{score:.0f}" for score in of_runs(pairs, smoothing, "bleu"))
        rows.append([f"{pairs:,}", way, f"{of_runs(pairs, smoothing, name).mean():.2f}",
                     scores])
table(["pairs", "smoothing", "loss", "BLEU of the three runs"], rows)

for pairs, lo, hi in (1_000, -0.2, -0.14), (20_000, 0.09, 0.125):
    difference = of_runs(pairs, 0.1, "nats") - of_runs(pairs, 0, "nats")
    assert lo < difference.min() <= difference.max() < hi
for pairs, smoothing, sure, right in (
        (1_000, 0, 0.72, 0.60), (1_000, 0.1, 0.56, 0.61),
        (20_000, 0, 0.83, 0.87), (20_000, 0.1, 0.73, 0.87)):
    assert abs(of_runs(pairs, smoothing, "confidence").mean() - sure) < 0.006
    assert abs(of_runs(pairs, smoothing, "accuracy").mean() - right) < 0.006
bleu = of_runs(20_000, 0.1, "bleu") - of_runs(20_000, 0, "bleu")
assert [round(gain, 1) for gain in bleu] == [1.8, 0.2, 1.1]
assert round(np.ptp(of_runs(20_000, 0, "bleu"))) == 8

# %% [markdown]
# **Plenty of text.** Smoothing costs 0.1 nats, and the control costs as much: that is the price of being less sure.
# BLEU is higher in each of the three pairs of runs, by 1.8, 0.2 and 1.1. But runs without smoothing are up to 8 apart
# from each other, so three runs are too few to be sure that translations get better.
#
# **Little text.** Here smoothing makes the loss *better*, and the control does most of that, too: a model that is
# confident and wrong gains from being less sure. So "hurts perplexity" isn't true everywhere.
#
# Smoothing always lowers the confidence. Whether that helps depends on how sure the model was. With little text, it was
# 0.72 sure and right in 0.60; with smoothing it is 0.56 sure and right in 0.61. With plenty of text it was right in
# 0.87 and 0.83 sure, and with smoothing it is only 0.73 sure. ([Lab notes 14](lab/14_label_smoothing.py): all runs, and
# the paper's own numbers.)
#
# </details>
#
# ## Today
#
# Most large language models are trained with the plain loss. They read most of their texts once or a few times, so
# reading the same pairs over and over isn't their problem, and many go without dropout as well (PaLM, for one).
# Translation models such as NLLB still use both. And **distillation** uses the equations of this page with another
# target: $q$ is what a larger model says, and the gradient is $p - q$.
#
# ## Paper and code
#
# - §5.4 has $\epsilon_{ls} = 0.1$ and $P_{drop} = 0.1$; Table 3 (D) has runs with 0 and 0.2.
# - [Szegedy et al. 2016](https://arxiv.org/abs/1512.00567), which the paper cites, spread $\epsilon$ over all $V$
#   words, as your file does. The authors' code spreads it over the $V - 1$ wrong ones, and so does the library's
#   [nn/loss.py](../scratchformer/nn/loss.py), which made the recorded runs. With thousands of words that hardly
#   differs.
# - PyTorch: `F.cross_entropy(z, right, label_smoothing=0.1)` (compared above, also its gradient) and `F.dropout(x,
#   0.1)`.
# - More: [Guo et al. 2017](https://arxiv.org/abs/1706.04599) on calibration, [Müller et al.
#   2019](https://arxiv.org/abs/1906.02629) on smoothing, [Srivastava et al.
#   2014](https://jmlr.org/papers/v15/srivastava14a.html) on dropout.
#
# ## What to remember
#
# With label smoothing the target is about 0.9 for the right word and a little for every word. The gradient is still $p
# - q$, so the logits come to rest, and the loss has a floor above 0. Being less sure changes the loss but not the order
# of the words. Dropout multiplies by 0 or by $1 / (1 - P_{drop})$, backward by the same factors.
#
# **Check yourself.**
#
# 1. $V = 4$, $\epsilon = 0.2$, and a model gives the right word 0.7 and each other word 0.1. What is the gradient of
#    its four logits?
# 2. A run with $V = 37{,}000$ and $\epsilon = 0.1$ reports a smoothed training loss of 1.2 nats. What do you conclude?
# 3. With $P_{drop} = 0.9$, what becomes of a number 5 that is kept?
#
# <details><summary>Answers</summary>
#
# 1. $q = (0.85, 0.05, 0.05, 0.05)$, so **(−0.15, +0.05, +0.05, +0.05)**: training raises the right word.
# 2. The report is wrong, since 1.2 lies below the floor of 1.377. Perhaps smoothing was forgotten, or the mean runs
#    over padding, which adds zeros and still counts.
# 3. **50**, since 1 / (1 − 0.9) = 10. It is kept once in ten times, so the mean is 5.
#
# </details>
#
# **Yours:** `log_softmax`, `cross_entropy`, `dropout`, `loss_of` · `scratchformer learn check log_softmax cross_entropy
# dropout loss_of`
#
# **Next:** [15 · Adam and warm-up](15_adam_and_warmup.py). We have a loss and its gradient. How far should we go
# against it?
