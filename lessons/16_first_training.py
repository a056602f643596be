# %% [markdown]
# # 16 · The first training, and how to debug it
#
# *About 35 minutes. You need: [lesson 06](06_masks.py) (masks, the shift, the flow test), [lesson
# 13](13_whole_model.py) (the whole model) and [lesson 15](15_adam_and_warmup.py) (Adam and its schedule). You will
# have: a Transformer that reverses words, a list of checks in the order in which they pay, and a measured answer to
# which check finds which bug.*

# %% Imports
import json
import math
from contextlib import ExitStack, contextmanager
from itertools import islice, repeat
from unittest.mock import patch

import matplotlib.pyplot as plt
import numpy as np

from library.lesson import QUICK, ROOT, measure, show
from scratchformer import config as configs
from scratchformer.config import ModelConfig
from scratchformer.doctor.diagnosis import Diagnosis, as_text, examine
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.nn import transformer
from scratchformer.nn.attention import Mask, ScaledDotProductAttention
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Embedding, Linear
from scratchformer.nn.loss import cross_entropy, loss_backward
from scratchformer.nn.ops import Ops
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.parameter import Parameter
from scratchformer.nn.transformer import Decoder, Transformer
from scratchformer.text.tokenizer import BOS, EOS, PAD

# %% [markdown]
# ## Question
#
# **A Transformer with a bug still learns. How do you find out, in minutes, that something is wrong, and what?**
#
# The answer in one sentence: do not judge by the loss; ask a few questions whose answers you know before you run
# them, and let them disagree.
#
# The task is small enough to know every answer. A word is 2 to 5 random letters out of 8; the model reads it and is
# to write it backwards. With `<pad>`, `</s>` and `<s>` that makes $V = 11$ symbols. There is no end of fresh words,
# so nothing can be learnt by heart. Words repeat letters, and shorter ones are padded, as in real text.

# %%
V, STEPS = 11, 120 if QUICK else 160


def words(random, n):
    return [random.integers(3, V, random.integers(2, 6)) for _ in range(n)]


def padded(rows):
    """Lists of ids -> (B, T), the shorter rows filled up with padding"""
    longest = max(map(len, rows))
    return np.array([[*row, *[PAD] * (longest - len(row))] for row in rows])


class Batch:
    """What the encoder reads (B, S), what the decoder reads and what it is to write (B, T)"""

    def __init__(self, some_words):
        self.source = padded([[*word, EOS] for word in some_words])
        self.write = padded([[*word[::-1], EOS] for word in some_words])
        self.read = self.shifted(self.write)

    @staticmethod
    def shifted(write):
        """One place to the right, <s> in front; </s> is never read (lesson 06)"""
        before = np.where(write[:, 1:] != PAD, write[:, :-1], PAD)
        return np.concatenate([np.full_like(write[:, :1], BOS), before], axis=1)


def fresh(seed):
    random = np.random.default_rng(seed)
    while True:
        yield Batch(words(random, 32))


# %%
def new_model(seed, tied="all"):
    return Transformer(ModelConfig(vocab_size=V, N=1, d_model=32, d_ff=64, h=2, P_drop=0.0, tied=tied), seed, "float64")


def train(model, batches, steps=STEPS, until=0.0):
    """-> the loss of each step, in nats per symbol, up to the first one below `until`"""
    optimizer, losses = Adam(model), []
    for step, batch in enumerate(islice(batches, steps), 1):
        model.zero_grad()
        loss_sum, n = loss_backward(model, batch.source, batch.read, batch.write)
        model.store.grad /= n
        optimizer.step(noam(step, d_model=32, warmup=50, factor=0.35))
        losses.append(loss_sum / n)
        if losses[-1] < until:
            break
    return losses


def guessed(model, batch):
    """The likeliest symbols, each after the right symbols before it, as the loss has it -> ids (B, T)"""
    return model.forward(batch.source, batch.read)[0].argmax(axis=-1)


def accuracy(model, batch):
    """The share of symbols guessed right"""
    return (guessed(model, batch) == batch.write)[batch.write != PAD].mean()


def written(model, batch):
    """The model's own writing, symbol by symbol, each after its own symbols before it -> ids (B, T)"""
    source, ids = batch.source, np.full((len(batch.source), 1), BOS)
    for _ in range(batch.write.shape[1]):
        likeliest = model.forward(source, ids)[0][:, -1].argmax(axis=-1)
        ids = np.concatenate([ids, likeliest[:, None]], axis=1)
    return ids[:, 1:]


def words_right(ids, batch):
    """The share of whole words that are right, </s> included"""
    return 1 - ((ids != batch.write) & (batch.write != PAD)).any(axis=1).mean()


# %% [markdown]
# Eight bugs can be planted in this program. Each is a mistake that public implementations or many beginners have
# made; [the correctness report](../docs/correctness.md) names where each was found. A bug replaces one or two
# functions of the library for a while. The cell is folded; you need not read it now.

# %% Eight bugs
soft, soft_back, decode, linear_back = Ops.masked_softmax, Ops.masked_softmax_backward, Decoder.forward, Linear.backward


def overwriting(self, dx, ids, scale, dE):
    real = ids != PAD
    dE[ids[real]] += dx[real] * scale                          # of a repeated id, one share only


def cut_loose(self, dy, cache):
    for parameter in filter(None, (self.weight, self.bias)):
        parameter.grad = parameter.grad.copy()                 # a new array, and the optimizer reads the old one
    return linear_back(self, dy, cache)


def by_d_model(scores, factor):
    return factor / math.sqrt(scores.shape[1])                 # 1 / sqrt(h d_k) instead of 1 / sqrt(d_k)


BUGS = {                                                       # name -> [(owner, function, what stands there instead)]
    "target not shifted": [(Batch, "shifted", staticmethod(lambda write: write))],
    "no causal mask": [(transformer, "Mask", lambda key_lengths=None, causal=False: Mask(key_lengths))],
    "padding seen": [(Decoder, "forward", lambda self, x, memory, mask=Mask(causal=True), *rest, rng=None:
                      decode(self, x, memory, mask, rng=rng))],
    "repeats overwrite": [(Ops, "embedding_backward", overwriting)],
    "softmax / batch": [(Ops, "masked_softmax_backward",
                         lambda self, dw, w, factor: soft_back(self, dw, w, factor / len(w)))],
    "gradient cut loose": [(Linear, "backward", cut_loose)],
    "embedding too large": [(Embedding, "new_weight", staticmethod(
        lambda V, D, init, dtype: Parameter(init.normal(0, 1, (V, D)).astype(dtype))))],
    "scaled by d_model": [(Ops, "masked_softmax", lambda self, scores, factor, *mask:
                           soft(self, scores, by_d_model(scores, factor), *mask)),
                          (Ops, "masked_softmax_backward", lambda self, dw, w, factor:
                           soft_back(self, dw, w, by_d_model(w, factor)))],
}


@contextmanager
def planted(bug=None):
    with ExitStack() as patches:
        for owner, function, instead in BUGS.get(bug, []):
            patches.enter_context(patch.object(owner, function, instead))
        yield


# %% [markdown]
# Four models, A to D. One is honest, and each of the others has one of the bugs. All begin with the same random
# weights and see the same words. Which is the honest one?

# %%
suspects = [None, "no causal mask", "padding seen", "target not shifted"]
FOUR = {letter: suspects[i] for letter, i in zip("ABCD", np.random.default_rng(31).permutation(4))}
held_out = Batch(words(np.random.default_rng(99), 200))
trained, curves = {}, {}
for letter, bug in FOUR.items():
    with planted(bug):
        trained[bug] = new_model(seed=0)
        curves[bug] = train(trained[bug], fresh(seed=0))
        last = np.mean(curves[bug][-20:])
        print(f"{letter}: loss of the first step {curves[bug][0]:5.2f}, of the last 20 on average {last:5.3f}")

# %% The figure
LOOKS = {"A": ("--", ACCENT), "B": ("-", DARK), "C": (":", ACCENT), "D": ("-.", LIGHT)}
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for letter, bug in FOUR.items():
    smooth = np.convolve(curves[bug], np.full(8, 1 / 8), "valid")
    axes.plot(smooth, LOOKS[letter][0], color=LOOKS[letter][1], lw=2, label=letter)
axes.axhline(math.log(V), color="#888888", lw=0.8)
axes.text(150, math.log(V) + 0.06, "guessing: ln 11", ha="right", color="#444444")
axes.set(xlabel="step", ylabel="loss, nats per symbol", title="Three of these four have a bug (mean of 8 steps)")
axes.legend()
show(figure, "16_four_losses", alt="Training loss of four models over 160 steps. D begins far below the others and is "
     "at zero after 30 steps. A, B and C begin near 3.5 and fall side by side to between 0.1 and 0.2.")

# %% [markdown]
# Now let each of them write 200 new words by itself, symbol by symbol, as it would be used.

# %%
for (letter, bug), band in zip(FOUR.items(), [(0, 0.25), (0.5, 0.98), (0.5, 0.98), (0, 0.05)]):
    with planted(bug):
        share = words_right(written(trained[bug], held_out), held_out)
    measure(f"{letter}, {bug or 'honest'}: share of words written right", share, *band)
for letter, band in ("A", (0.5, 1.5)), ("C", (0.6, 1.7)), ("D", (0, 0.05)):
    share = np.mean(curves[FOUR[letter]][-20:]) / np.mean(curves[None][-20:])
    measure(f"loss of {letter} over that of B, last 20 steps", share, *band)

# %% [markdown]
# B is the honest one. The best loss by far belongs to D, which writes hardly a word. A looks like B, and fails as
# well. And C, which reads padding as if it were text, does about as well as B in every respect so far. The curves do
# not tell A, B and C apart. What does?
#
# ## The idea in one picture
#
# Each check *runs* some parts of the program and *compares* the outcome with something that is known without running
# the rest. A bug is found only by a check that runs through it and knows better.

# %% The figure
PARTS = ["batch", "forward", "loss", "backward", "Adam", "writing"]
SPANS = [("first loss", "a little above ln V", [0, 1, 2]), ("gradient check", "finite differences of forward", [1, 3]),
         ("a later symbol changed", "nothing before it moves", [1]), ("more padding", "nothing moves", [1]),
         ("definition", "the formula, written again", [1]), ("one batch by heart", "loss near 0", [0, 1, 2, 3, 4]),
         ("fresh words", "most guesses right", [0, 1, 2, 3, 4]), ("writing", "as right as guessing", [0, 1, 5])]
figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
for row, (name, known, parts) in enumerate(SPANS):
    axes.barh([row] * len(parts), 0.8, 0.6, left=np.array(parts) - 0.4, color=DARK)
    axes.text(5.6, row, known, va="center")
axes.set(xlim=(-0.5, 9.0), title="What a check runs (dark), and what it knows beforehand (right)")
axes.set_yticks(range(len(SPANS)), [f"{row + 1}. {name}" for row, (name, *_) in enumerate(SPANS)])
axes.set_xticks(range(6), PARTS)
axes.invert_yaxis()
show(figure, "16_checks", alt="Eight checks and the parts of the program that each runs: the first loss runs batch, "
     "forward and loss; the gradient check forward and backward; a later symbol, more padding and the definition only "
     "forward; one batch by heart and fresh words everything from batch to Adam; writing runs batch, forward, writing.")

# %% [markdown]
# They stand in the order in which to run them: by what they cost. The first five need no training. The definition has
# to be written anew for each part of the model; on this page, for attention only. The last needs a trained model.
#
# ## The equation, and the same in code
#
# The first check: what is the loss before the first step? Let $z_v$ be the logit of symbol $v$, and $y$ the answer.
#
# $$\mathrm{loss} = -\ln \frac{e^{z_y}}{\sum_v e^{z_v}} = \ln \sum_{v=1}^{V} e^{z_v} - z_y$$
#
# If all logits are equal, this is $\ln V$, whatever the answer. But new logits are not equal. Suppose that they are
# normal numbers of mean 0 and variance $\sigma^2$ and know nothing about $y$. Then $z_y$ is 0 on average. A normal
# number has $E[e^z] = e^{\sigma^2 / 2}$, so for large $V$ and small $\sigma$ the sum is close to
# $V e^{\sigma^2 / 2}$:
#
# $$E[\mathrm{loss}] \approx \ln V + \frac{\sigma^2}{2}$$
#
# The last LayerNorm makes each component of the decoder's output of variance 1, and the output matrix has variance
# $1 / d_{model}$ ([lesson 08](08_embeddings.py)), so a logit is a sum of $d_{model}$ products of variance
# $1 / d_{model}$: $\sigma^2 = 1$. We expect half a nat above $\ln V$. Ten new models each, with an output matrix of
# their own (`tied="none"`), and with one matrix for embedding and output, as in the paper (`tied="all"`); and both
# again with the bug that the decoder reads the answer itself:

# %%
def first_look(model, batch):
    """-> loss less ln V; probability of the symbol last read"""
    logits, _ = model.forward(batch.source, batch.read)                                        # (B, T, V)
    loss_sum, n, _ = cross_entropy(logits, batch.write)
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    last_read = np.take_along_axis(p, batch.read[..., None], axis=-1)[batch.write != PAD]
    return loss_sum / n - math.log(V), last_read.mean()


z = np.random.default_rng(0).normal(size=(50_000, V))
measure("11 independent normal logits: loss, less ln V", np.log(np.exp(z).sum(axis=1)).mean() - math.log(V), 0.42, 0.45)
for tied, bug, *bands in [("none", None, 0.3, 0.65, 0.05, 0.15), ("all", None, 0.8, 1.4, 0.35, 0.75),
                          ("none", "target not shifted", 0.3, 0.65, 0.05, 0.15),
                          ("all", "target not shifted", -2, -1, 0.35, 0.75)]:
    with planted(bug):
        batch = next(fresh(seed=7))
    excess, last_read = np.mean([first_look(new_model(seed, tied), batch) for seed in range(10)], axis=0)
    measure(f"tied={tied!r}, {bug or 'honest'}: first loss, less ln V", excess, *bands[:2])
    measure("    probability of the symbol last read", last_read, *bands[2:])

# %% [markdown]
# The half is there, a little less, as $V$ is small: eleven independent normal numbers give the same. The tied model
# adds more than another half, and the line below says why: about half of its probability goes to the symbol that it
# has read last, which is seldom the right answer. That symbol travels along the residual path to the output and meets
# its own embedding there. With two matrices it does not.
#
# If the symbol last read *is* the answer, the tied model begins far below $\ln V$, and the untied one as if nothing
# were wrong. So both sides matter. Far above: the logits are too large. **Below: before learning, the model knows
# something about the answer**, or the sum is divided by more symbols than went into it (by the padding, say).
#
# ## Forward
#
# What does a run look like in which all is well? B guesses nearly every symbol of words that it has never seen, each
# after the right ones before it, and writes by itself:

# %%
measure("B: share of symbols guessed right", accuracy(trained[None], held_out), 0.85, 1)
for word, ids in zip(held_out.source[:3], written(trained[None], held_out)):
    print(*("".join("abcdefgh"[i - 3] for i in row if i >= 3) for row in (word, ids)), sep=" -> ")

# %% [markdown]
# ## Backward: what a gradient check can and cannot find
#
# A gradient check ([lesson 01](01_backprop.py)) compares two numbers. Let $L$ be a number made of what forward
# returns: here the sum of all logits, each times a random number that stays the same. Let $w$ be the weights of one
# matrix, $g$ what backward returns for them, and $u$ a random direction:
#
# $$g \cdot u \quad \mathrm{against} \quad \frac{L(w + h u) - L(w - h u)}{2 h}$$
#
# One direction stands for all weights of the matrix: if $g$ is off by $e$, the left side is off by $e \cdot u$, and
# that is 0 for hardly any $u$. The check has three limits.
#
# First, on the left stands backward. On the right stands forward, twice. **The paper stands nowhere.** (So a decoder
# that does not read its memory could pass, in lesson 13.) There are four cases:
#
# | forward | backward | the check |
# | --- | --- | --- |
# | right | the derivative of this forward | passes |
# | right | something else | objects |
# | wrong | the derivative of this wrong forward | passes |
# | wrong | anything else | objects, and cannot tell which of the two is at fault |
#
# The third case is the usual one where a framework derives backward. It is also the case of "scaled by d_model",
# which divides the scores by $\sqrt{d_{model}}$ in forward and in backward. Plant half of it, and the check objects:

# %%
def gradient_error(batch):
    """The worst relative error over all matrices and biases, each along one random direction"""
    return gradcheck(new_model(seed=0), batch.source, batch.read, directions=1).worst.error


HONEST_ERROR, first_batch = 1e-4, next(fresh(seed=7))
with planted("scaled by d_model"):
    measure("wrong in forward and backward: worst error", gradient_error(first_batch), 0, HONEST_ERROR)
forward_half, _ = BUGS["scaled by d_model"]
with patch.object(*forward_half):
    measure("wrong in forward only: worst error", gradient_error(first_batch), 0.1, 10)

# %% [markdown]
# Second, the check speaks for one batch only. Follow one number of the embedding, $E_{vd}$, to the loss. Every place
# $(b, t)$ at which symbol $v$ is read has a copy of it, times $\sqrt{d_{model}}$, and each copy is a way of its own.
# With $dx$ for the gradient of what is read, the ways through one reading add up to
#
# $$\sqrt{d_{model}} \sum_{(b, t) \, \mathrm{with} \, id_{bt} = v} dx_{btd}$$
#
# (encoder and decoder read once each, and the tied output adds its share). `dE[ids] += dx` keeps one term of this sum.
# If no symbol is read twice, the sum *has* one term, and the bug is right. The bug "softmax / batch" divides a
# gradient by the number of sentences $B$. In a batch of one, it divides by 1.

# %%
single = Batch([np.array([5, 3, 9, 4])])                       # one word, no letter twice
for bug in "repeats overwrite", "softmax / batch":
    with planted(bug):
        measure(f"{bug}, one word: worst error", gradient_error(single), 0, HONEST_ERROR)
        measure(f"{bug}, 32 words: worst error", gradient_error(first_batch), 0.01, 10)

# %% [markdown]
# So check with several words, and with repeats. (Honest errors are far below the tolerance, the others far above.)
#
# Third, a right gradient may lie where nobody looks. "Gradient cut loose" computes it into a new array, and Adam goes
# on reading the old one, which stays 0. The check reads the new one, and passes, as the table below shows.
#
# ## Check
#
# Now the eight checks as code. Each returns what it found, and whether an honest model may show that. First those
# that need no training:

# %%
def before_training(seed):
    """check -> (what was found, may it be so?)"""
    model, batch = new_model(seed), next(fresh(seed=7))
    excess, _ = first_look(model, batch)
    logits, _ = model.forward(batch.source, batch.read)
    other = batch.read.copy()
    other[:, -1] = np.where(other[:, -1] == 3, 4, 3)           # another last symbol
    moved = np.abs(model.forward(batch.source, other)[0] - logits)[:, :-1].max()
    padded_more = np.pad(batch.source, ((0, 0), (0, 2)))
    moved_by_padding = np.abs(model.forward(padded_more, batch.read)[0] - logits).max()
    error, off = gradient_error(batch), off_definition()
    return {"first loss": (excess, 0 < excess < 2), "gradient check": (error, error < HONEST_ERROR),
            "a later symbol": (moved, moved < 1e-9), "more padding": (moved_by_padding, moved_by_padding < 1e-9),
            "definition": (off, off < 1e-9)}


def off_definition():
    """Attention without a mask, and equation 1 written once more: how far apart?"""
    q, k, v = np.random.default_rng(0).normal(size=(3, 2, 5, 4, 6))                            # (B, T or S, H, d_k)
    e = np.exp(np.einsum("bthk,bshk->bhts", q, k) / math.sqrt(6))
    expected = np.einsum("bhts,bshk->bthk", e / e.sum(axis=-1, keepdims=True), v)
    return np.abs(ScaledDotProductAttention().forward(q, k, v)[0] - expected).max()


# %% [markdown]
# And those that train. Eight words are to be learnt by heart, to a loss below 0.03, in 100 steps; an honest model
# takes about half of them. On fresh words, after 160 steps, most symbols must be right. The last check needs no
# threshold. A word is written right if each symbol is guessed right after the right symbols before it. So where a
# guess depends on nothing but the source and those symbols, the share of words *written* right is **equal** to the
# share of words *guessed* right throughout, in a good model and in a bad one. (In a new model both are 0, and the
# check is empty.)

# %%
def with_training(seed, model=None):
    eight, batch = (Batch(words(np.random.default_rng(other), n)) for other, n in ((5, 8), (99, 200)))
    steps = len(train(new_model(seed), repeat(eight), 400, until=0.03))
    if model is None:
        model = new_model(seed)
        train(model, fresh(seed))
    right = accuracy(model, batch)
    apart = abs(words_right(written(model, batch), batch) - words_right(guessed(model, batch), batch))
    return {"one batch by heart": (steps, steps <= 100), "fresh words": (right, right > 0.7),
            "writing = guessing": (apart, apart < 1e-9)}


def objecting(found):
    return [name for name, (_, fine) in found.items() if not fine]


def all_checks(seed, model=None):
    """`model`: one that is trained already. In quick mode a bug that is found before training is not trained."""
    found = before_training(seed)
    return found if QUICK and objecting(found) else found | with_training(seed, model)


for seed in [0] if QUICK else [0, 1]:
    found = all_checks(seed, trained[None] if seed == 0 else None)
    print(f"honest, seed {seed}:", *(f"{name} {value:.2g}" for name, (value, _) in found.items()), sep="\n    ")
    measure("steps to learn one batch by heart", found["one batch by heart"][0], 35, 85)
    measure("checks that object", len(objecting(found)), 0, 0)

# %% [markdown]
# ## Experiment 1: every check on every bug
#
# Guess first: how many of the eight bugs does the best check find?

# %%
results = {}
for bug in BUGS:
    with planted(bug):
        results[bug] = all_checks(0, trained.get(bug))
CHECKS = list(found)
objections = {bug: objecting(result) for bug, result in results.items()}
per_check = {name: sum(name in names for names in objections.values()) for name in CHECKS}
measure("bugs that no check finds", sum(not names for names in objections.values()), 0, 0)
measure("most bugs that one check finds", max(per_check.values()), 2, 2)
measure("bugs that the gradient check finds", per_check["gradient check"], 2, 2)

# %% The figure
figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
axes.imshow([[name in objections[bug] for name in CHECKS] for bug in BUGS], "Oranges", vmin=0, vmax=1.6,
            aspect="auto")
for row, bug in enumerate(BUGS):
    for column, name in enumerate(CHECKS):
        axes.text(column, row, f"{results[bug][name][0]:.3g}" if name in results[bug] else "", ha="center", va="center",
                  weight="bold" if name in objections[bug] else "normal")
axes.set_xticks(range(len(CHECKS)), ["\n".join(name.rsplit(" ", 1)) for name in CHECKS])
axes.set_yticks(range(len(BUGS)), BUGS)
axes.xaxis.tick_top()
axes.tick_params(length=0)
axes.set_title("What each check found; bold on orange: it objects")
show(figure, "16_hunt", alt="Table of eight bugs and eight checks. Each check "
     "objects to one or two bugs. The first loss objects to the unshifted target and to the large embedding, the "
     "gradient check to overwritten repeats and to the softmax divided by the batch, a later symbol to the missing "
     "causal mask, more padding to the padding that is seen, and the definition alone to the scale by d_model. One "
     "batch by heart and fresh words object to the gradient cut loose and to the large embedding; writing, to the "
     "unshifted target and the missing causal mask.")

# %% [markdown]
# - **No check finds more than two, and every bug is found by one.** The gradient check finds two of eight.
# - "Scaled by d_model" is found by the definition only. What the other checks show is what honest models show.
# - The unshifted target has the best curve and fails two checks. A loss that is too *good* is a symptom.
#
# Why a model with a wrong gradient learns as well as it does, we have not tested. (For "softmax / batch", lesson 15 has
# a part of the answer: the matrices of queries and keys get gradients that are too small by one factor, which Adam
# divides away. What goes on to the layers below is wrong in more than a factor.)
#
# ## Experiment 2: a hundred bugs
#
# Eight bugs chosen by the author of a page prove little. The repository keeps a list of mutants,
# [tests/mutants/mutants.py](../tests/mutants/mutants.py): mistakes found in public implementations and classic
# ones, planted one at a time. For each, it is recorded which kinds of tests fail.

# %%
noticed = json.loads((ROOT / "benchmarks/results/mutants.json").read_text(encoding="utf-8"))
measure("mutants", len(noticed), 104, 104)
measure("not noticed by any gradient check", sum("gradients" not in kinds for kinds in noticed.values()), 80, 80)
alone = {kinds[0] for kinds in noticed.values() if len(kinds) == 1}
measure("kinds of tests that notice something alone", len(alone), 5, 5)

# %% [markdown]
# Three quarters of the mutants pass every gradient check. The tests are of eight kinds, much like the checks of this
# page, and five of them notice something that no other kind does. These are shares of a collection, not of the bugs
# that people make.
#
# ## Experiment 3: the same questions, asked by a program
#
# `scratchformer doctor` goes through such checks by itself. It looks at the parts from the ground up, first `Linear`
# and `LayerNorm`, then attention, then what is built of them, and suspects the lowest part at fault: what stands on
# it fails as a consequence. Last, a practice run learns sentences by heart. Let its first three probes look for the
# bug that hid best:

# %%
with planted("scaled by d_model"):
    findings = list(islice(examine(configs.preset("tiny"), only_code=True), 3))
failed = [finding for finding in findings if finding.verdict == "FAIL"]
print(*map(as_text, failed), "", Diagnosis(findings), sep="\n")
measure("probes that fail, of three", len(failed), 2, 2)

# %% [markdown]
# It names the layer and two reasons: the scores begin with a variance far from 1, and attention's formula, written
# once more, gives something else. [The correctness report](../docs/correctness.md) lists what it suspects for each
# mutant. It is tested on them, so that list says little about a bug that nobody has thought of.
#
# ## Check the claim
#
# > Overfit one batch: if the loss goes to zero, the model and its training work.
#
# The test is good advice (Karpathy, *A Recipe for Training Neural Networks*, 2019, recommends it, and the first loss,
# and a test of what depends on what; the conclusion above is not his). How many of our bugs does it let pass? And
# those that it found, can they not learn the batch, or do they need longer?

# %%
passed = [bug for bug in BUGS if "one batch by heart" not in objections[bug]]
measure("share of the bugs that learn one batch by heart", len(passed) / len(BUGS), 0.7, 0.9)
late = [results[bug]["one batch by heart"][0] for bug in BUGS if bug not in passed]
print("the others learn it in", *late, "steps")
measure("the most steps that one takes", max(late), 101, 399)

# %% [markdown]
# A batch can be learnt by heart with a wrong mask, a wrong scale, and a wrong gradient. The other two learn it as well,
# only later than honest models; even "gradient cut loose", in which no `Linear` moves. **What finds them is the limit
# of 100 steps**, and to set it one must know how many an honest model takes. If a batch can *not* be learnt, something
# is badly wrong; that is all the test says. The method is the whole list, in this order:
#
# | check | passes if | rules out |
# | --- | --- | --- |
# | first loss | between $\ln V$ and $\ln V + 2$ | wrong size of logits; if tied, an unshifted target |
# | gradient check, $B > 1$, repeats | error below $10^{-4}$ | a backward that is not forward's |
# | change a later symbol | nothing before it moves | a causal mask that is missing or shifted |
# | more padding | nothing moves | padding of the source that is read |
# | definition of each part | equal | a wrong formula |
# | one batch by heart | within twice the steps of an honest model | most weights that do not move |
# | fresh words | most guesses right | a model that cannot do the task |
# | write, and compare | as right as guessing | answers in the input |
#
# ## Paper and code
#
# - The paper does not say how its code was tested. Its §5.3 has Adam and the schedule used here
#   ([nn/optim.py](../scratchformer/nn/optim.py)). *Differs:* 50 steps of warm-up instead of 4000, a factor of 0.35 on
#   the rate, no label smoothing and no dropout, so that losses can be compared with known numbers. The task is ours.
# - In the library: [nn/gradcheck.py](../scratchformer/nn/gradcheck.py), the flow tests in
#   [tests/nn/test_flow.py](../tests/nn/test_flow.py), and doctor in
#   [doctor](../scratchformer/doctor/diagnosis.py).
# - Where the bugs come from, by the correctness report: "no causal mask" (YVSemlani/numpy-transformer),
#   "softmax / batch" (AkiRusProd/numpy-transformer), "scaled by d_model" (AkiRusProd/numpy-nn-model); the others are
#   classics. "Gradient cut loose" sits in the output matrix there, and in every `Linear` here.
#
# ## Exercises
#
# `scratchformer learn check 16` looks at your answers and says what is wrong with them.
#
# **Predict.** Dropout stays on where it should be off, and draws anew in each call. Which check objects first?
#
# <details><summary>Answer</summary>
#
# The gradient check: its forward passes draw other masks than the one that backward belongs to. The checks that compare
# two calls object as well, so ask first of all whether the same call gives the same answer twice. `16_hunt` does.
#
# </details>
#
# **Build** `16_dealt_answers`: the loss of a model whose answers are dealt out at random, which is what the first loss
# should be compared with.
#
# **Break** `16_right_gradient`: a softmax that is wrong, looks right, and passes its gradient check.
#
# **Break** `16_hunt`: write the checks that tell a model that sees the future, one that reads padding, one that does
# not read its source and one that rolls dice from honest ones.
#
# ## Next
#
# The model reads words letter by letter, since eight letters are few. A language has more words than a matrix should
# have rows. [Lesson 17](17_byte_pairs.py) cuts them into pieces. On training, the paper's own words are in section 5
# of [its arXiv page](https://arxiv.org/abs/1706.03762).
