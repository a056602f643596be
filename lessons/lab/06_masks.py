# %% [markdown]
# # Lab notes 06 · Masks
#
# The experiments and controls behind [lesson 06](../06_masks.py): what a model without the mask reads, and how we know;
# what happens if only the answer is hidden, or if the shift is forgotten; a leak that no gradient check finds; large
# negative numbers, zeros after softmax, and masked rows instead of columns. Most models are trained three times, from
# random starts 0, 1 and 2 (`SCRATCHFORMER_QUICK=1` takes run 0 only).

# %% Imports
import course  # noqa: F401  finds lessons/support
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.attention import CrossAttention, Mask, ScaledDotProductAttention
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.ops import ops_of, using
from scratchformer.nn.parameter import Layer
from scratchformer.text.tokenizer import EOS, PAD
from support import mask_pictures
from support.lesson import QUICK, measure, same, show, table, varying
from support.next_word import (
    FIRST_WORDS,
    NEW,
    TRAINING,
    VOCABULARY,
    Hiding,
    NextWord,
    all_at_once,
    at_cuts,
    continued,
    mean_loss,
    not_shifted,
    share_repeated,
    shifted,
    train,
    weights_of,
    word_by_word,
)
from support.numeric import numeric_gradient

SEEDS = [0] if QUICK else [0, 1, 2]
read, write = shifted(NEW)
real = write != PAD
ln_V = math.log(len(VOCABULARY))

# %% [markdown]
# ## The model and two yardsticks
#
# 5,492 English sentences of fewer than 10 words from the bundled corpus, 694 words (a full stop is a word), 200 new
# sentences. The model has embeddings of 48 numbers, sinusoidal positions, one layer with one head, and 250 steps of 24
# sentences ([support/next_word.py](../support/next_word.py)). Two rivals need no network: guess blindly among all words
# alike, or count which word follows which in the training text (with 0.01 added to each count).

# %%
counts = np.full((len(VOCABULARY), len(VOCABULARY)), 0.01)
training_read, training_write = shifted(TRAINING)
counted = training_write != PAD
np.add.at(counts, (training_read[counted], training_write[counted]), 1)
pairs = counts / counts.sum(axis=1, keepdims=True)
measure("training sentences", len(TRAINING), 5492, 5492)
measure("words", len(VOCABULARY), 694, 694)
measure("guessing blindly: ln V", ln_V, 6.54, 6.55)
measure(
    "counting pairs of words: loss on new sentences",
    -np.log(pairs[read, write][real]).mean(),
    3.1,
    3.2,
)

# %% [markdown]
# ## A loop as a triangle
#
# The simplest way to use only the past is to average it. Four words have the values 0, 4, 8 and 20, one number each. At
# the third word the average so far is (0 + 4 + 8) / 3 = 4. A loop computes all four averages. So does *one* matrix
# product with a triangle, `np.tri(4)`, whose rows are divided by their sums. This triangle is a masked softmax whose
# allowed scores are all 0:

# %%
values, triangle = np.array([[0.0], [4], [8], [20]]), np.tri(4)
weights = np.exp(np.where(triangle, 0, -np.inf))
weights /= weights.sum(axis=1, keepdims=True)
so_far = [[values[: t + 1].mean()] for t in range(4)]
same("one product and the loop", weights @ values, so_far)

# %% The drawing
show(
    mask_pictures.loop(),
    "06_lab_loop",
    alt=(
        "Left: four rows with the values 0, 4, 8, 20; row t uses the first t values and"
        " greys out the rest; the means are 0, 2, 4 and 8. Right: a lower triangle of"
        " weights 1; 1/2, 1/2; three times 1/3; four times 1/4, times the column of"
        " values, equals the column 0, 2, 4, 8."
    ),
    caption="Row by row, the triangle of weights does what the loop does.",
)

# %% [markdown]
# ## Experiment 1: without the mask
#
# Two models differ in one argument, `causal`. Padding is masked in both. *All at once*: the whole sentence is the
# input. *Word by word*: the model gets the words up to $t$, and we take its guess at $t$.

# %%
models, curves, rows = {}, {}, []
bands = {
    True: [(2.5, 3.1), (2.6, 3.2), (2.6, 3.2)],
    False: [(0.1, 0.7), (0.1, 0.7), (6, 9)],
}
for seed in SEEDS:
    for causal in True, False:
        model = models[causal, seed] = NextWord(causal, seed)
        curve = curves[causal, seed] = train(model, shifted, seed)
        name = f"{'mask' if causal else 'no mask'}, run {seed}"
        ways = all_at_once(model, read), word_by_word(model, read)
        measure(
            f"{name}: training loss, last 20 steps",
            np.mean(curve[-20:]),
            *bands[causal][0],
        )
        measure(f"{name}: all at once", mean_loss(ways[0], write), *bands[causal][1])
        measure(f"{name}: word by word", mean_loss(ways[1], write), *bands[causal][2])
        if causal:
            measure(
                f"{name}: the two ways differ by",
                np.abs(ways[0] - ways[1]).max(),
                0,
                1e-9,
            )

# %%
def written(model, begin=("<s>",)):
    """The text after each of the 41 first words of the new sentences"""
    texts = [continued(model, [*begin, first]) for first in FIRST_WORDS]
    return [text[len(begin):] for text in texts]


for (causal, seed), model in models.items():
    name, texts = f"{'mask' if causal else 'no mask'}, run {seed}", written(model)
    for first in "the", "my", "this":
        varying(f"{name}: {' '.join(texts[FIRST_WORDS.index(first)])}")
    band = (0, 0.15) if causal else (0.6, 1)
    share = share_repeated(texts)
    measure(f"{name}: share of written words that repeat the last", share, *band)

# %% The figure
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for (causal, seed), losses in curves.items():
    label = "with the causal mask" if causal else "without"
    axes.plot(
        np.convolve(losses, np.full(10, 0.1), "valid"),
        "-" if causal else "--",
        label="" if seed else label,
        color=DARK if causal else ACCENT,
        lw=1.3,
    )
axes.axhline(ln_V, color="#888888", lw=0.8, ls=":")
axes.text(240, ln_V + 0.1, "blind guess", ha="right", color="#444444")
axes.set(xlabel="step", ylabel="training loss, nats per word", ylim=(0, 7.5))
axes.legend(loc=(0.62, 0.6))
show(
    figure,
    "06_lab_loss",
    alt=(
        "Training loss over 250 steps, three runs of each model. With the causal mask"
        " it falls from 7 to just below 3 nats. Without, it parts from the others after"
        " 50 steps and falls well below 1."
    ),
    caption="The better curve is the broken model (means of 10 steps).",
)

# %% [markdown]
# **Why is the model without the mask worse than a blind guess?** A loss above $\ln V$ means that it is confident and
# wrong. So we look at its favourite word at each position, word by word.

# %%
def favourite(logits):
    """-> mean probability of the likeliest word, how often it is right,
    how often it is the last word read"""
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    best = p.argmax(axis=-1)
    return (
        p.max(axis=-1)[real].mean(),
        (best == write)[real].mean(),
        (best == read)[real].mean(),
    )


rows = []
for (causal, seed), model in models.items():
    confidence, accuracy, again = favourite(word_by_word(model, read))
    rows.append(["mask" if causal else "no mask", seed, f"{confidence:.2f}",
                 f"{accuracy:.2f}", f"{again:.2f}"])
    assert confidence > 0.55 and 0.08 < accuracy < 0.27 or causal
    assert again < 0.03 and accuracy > 0.35 if causal else 0.25 < again < 0.6
table(["model", "run", "probability of the favourite", "it is right",
       "it repeats the last word"], rows)

# %% [markdown]
# Without the mask, the favourite has a probability of about 0.75, and is right in 14, 21 and 20 % of the cases.
#
# **Why *my my my*?** Our explanation: the model without the mask has learned to write the word that it looks at, which
# in training stood at $t + 1$. If nothing stands there, it looks at the last word itself, and repeats that.
#
# An example, with the two models of the lesson (run 0; A has the mask, B has none). Cut *the waitress needs two hundred
# …* behind *needs*, and put one word behind the cut, or nothing. What does B guess at *needs*? Behind the cut stands
# *two*, the true next word: B guesses *two*. A word at random, *helping*: B guesses *helping*. Nothing: B guesses
# *needs*.
#
# Now all cuts: the new sentences, cut behind each of their words, 1,437 times (position 0 with `<s>` is left out). In
# three rows of each model nothing stands behind the cut, and attention may not use some cells: the one in which a word
# looks at itself; all others; all.

# %%
chosen = np.random.default_rng(5).integers(EOS + 2, len(VOCABULARY), read.shape)
cases = {
    "the true next word": (write, lambda t, s: s == s),
    "a random word": (chosen, lambda t, s: s == s),
    "nothing": (None, lambda t, s: s == s),
    "nothing, closed: itself": (None, lambda t, s: s != t),
    "nothing, closed: all but itself": (None, lambda t, s: s == t),
    "nothing, closed: all": (None, lambda t, s: s < 0 * t),
}
rows = []
for causal in False, True:
    for name, (behind, sees) in cases.items():
        if causal and behind is not None:
            continue
        with using(Hiding(sees)):
            cut = at_cuts(models[causal, 0], read, behind)
        rows.append(["A" if causal else "B", name,
                     "" if behind is None else f"{cut.copies:.0%}",
                     f"{cut.repeats:.0%}", f"{cut.on_itself:.2f}"])
table(["model", "behind the cut", "it is copied", "the last word is repeated",
       "weight of the last word on itself"], rows)

# %% The same in each run
for seed in SEEDS:
    model, run = models[False, seed], f"run {seed}"
    true, other = at_cuts(model, read, write), at_cuts(model, read, chosen)
    nothing = at_cuts(model, read)
    with using(Hiding(lambda t, s: s != t)):
        blind = at_cuts(model, read)
    with using(Hiding(lambda t, s: s == t)):
        only = at_cuts(model, read)
    with using(Hiding(lambda t, s: s < 0 * t)):
        none = at_cuts(model, read)
    measure(f"{run}: the true next word is copied", true.copies, 0.9, 1)
    measure(f"{run}: a random word is copied", other.copies, 0.4, 0.7)
    measure(f"{run}: weight on the random word", other.on_behind, 0.4, 0.75)
    measure(f"{run}: nothing there: last word repeated", nothing.repeats, 0.35, 0.7)
    measure(f"{run}: nothing there: weight on itself", nothing.on_itself, 0.3, 0.6)
    measure(f"{run}: nothing there, itself hidden: repeated", blind.repeats, 0, 0.12)
    measure(f"{run}: nothing there, only itself open: repeated", only.repeats, 0.7, 1)
    measure(f"{run}: nothing there, all closed: repeated", none.repeats, 0.15, 0.6)
    control = at_cuts(models[True, seed], read).repeats
    measure(f"{run}: with the mask, nothing there: repeated", control, 0, 0.04)

# %% [markdown]
# B writes what it looks at. It copies even a random word in half of the cases. If nothing follows, half of the weight
# falls on the last word, and B repeats it in half of the cases. Close this one cell, and 5 % are left. A looks at the
# last word as much as B, but A has not learned to copy.
#
# It is not the whole story. The true word is copied in 97 %, a random one in about half of the cases, so the model also
# uses what fits together. And there is **a second way to repeat a word, past attention**: close *all* cells, so that
# attention gives only zeros, and the runs of B repeat the last word in 27 to 45 % of the cases, A in 5 %. All that B
# has then is the vector of the word and its position, which goes around attention (the residual connection of [lesson
# 12](../12_residual_norm_dropout.py)).
#
# In its own texts the model repeats more often than at a cut. Such a text begins with a single word, which has nothing
# to look at but `<s>` and itself. So we look at cuts behind the first word, where all runs nearly always repeat it. And
# we let the models write while no word may look at itself or at an earlier copy of itself:

# %%
def written_without_itself(model):
    """The texts of `written`, where no position may look at its own word"""
    texts = []
    for first in FIRST_WORDS:
        ids = [VOCABULARY.index("<s>"), VOCABULARY.index(first)]
        while ids[-1] != EOS and len(ids) < 12:
            words = np.array(ids)
            with using(Hiding(lambda t, s: words[s] != words[t])):
                ids.append(int(all_at_once(model, words[None])[0, -1].argmax()))
        texts.append([VOCABULARY[i] for i in ids[1:]])
    return texts


for seed in SEEDS:
    model, run = models[False, seed], f"run {seed}"
    first = at_cuts(model, read[:, :2])
    with using(Hiding(lambda t, s: s != t)):
        blind = at_cuts(model, read[:, :2]).repeats
    texts = written_without_itself(model)
    measure(f"{run}: first word repeated", first.repeats, 0.85, 1)
    measure(f"{run}: first word's weight on itself", first.on_itself, 0.75, 1)
    measure(f"{run}: itself hidden: first word repeated", blind, 0, 0.5)
    measure(f"{run}: own texts, its word hidden: repeated",
            share_repeated(texts), 0, 0.8)

# %% [markdown]
# Without this look, the first word is repeated in 31, 18 and 10 % of the cases, not in 99 to 100 %. In the models' own
# texts the share of repetitions falls from 95, 77 and 81 % to 63, 17 and 15 %. So in runs 1 and 2 the look makes most
# of the repetitions, and in run 0 about a third; there the text after *my* stays *my my my*.

# %% [markdown]
# **Does it copy the next word, or does it need a whole sentence around it?** Both would explain the failure. So we take
# the finished model, whole sentences, and hide one single key from each query: the next word, or another one. If it
# needs the sentence, each of these costs about the same. And the other way round: we hide everything *but* the next
# word.

# %%
for seed in SEEDS:
    for away in -1, 0, 1, 2, 3:
        with using(Hiding(lambda t, s: s != t + away)):
            loss = mean_loss(all_at_once(models[False, seed], read), write)
        band = (5.5, 9) if away == 1 else (0.1, 0.7)
        measure(f"run {seed}: word t {away:+d} hidden", loss, *band)
    with using(Hiding(lambda t, s: s == t + 1)):
        logits = all_at_once(models[False, seed], read)
    measure(f"run {seed}: all hidden but t + 1", mean_loss(logits, write), 0.02, 0.3)

# %% [markdown]
# The answer alone is enough, and nothing else is missed. (In the last row of a sentence no word is left to see, its
# weights are 0, and `</s>` is right.) Some rows even get better, with $t + 2$ hidden above all. Which ones? In about a
# sixth of the rows with a word at $t + 2$, a weight of 0.1 or more lies on that word, where it only disturbs. If this
# is the reason, these rows should have the whole gain, and the other rows none:

# %%
def losses_of(logits):
    """The loss of each position: (B, T)"""
    chances = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    return -np.take_along_axis(chances, write[..., None], axis=-1)[..., 0]


for seed in SEEDS:
    model = models[False, seed]
    before = losses_of(all_at_once(model, read))[:, :-2]
    with using(Hiding(lambda t, s: s != t + 2)):
        gain = before - losses_of(all_at_once(model, read))[:, :-2]
    there = read[:, 2:] != PAD
    weight = np.diagonal(weights_of(model, read)[:, 0], offset=2, axis1=1, axis2=2)
    many = there & (weight >= 0.1)
    measure(f"run {seed}: share of rows with 0.1 or more on t + 2",
            many.sum() / there.sum(), 0.1, 0.25)
    share, others = gain[many].sum() / gain[there].sum(), gain[there & ~many]
    measure(f"run {seed}: their share of the gain", share, 0.9, 1.02)
    measure(f"run {seed}: their mean gain, in nats", gain[many].mean(), 0.3, 1.6)
    measure(f"run {seed}: mean gain of the other rows", others.mean(), -0.01, 0.02)

# %% [markdown]
# They have 98 to 99 % of it. How much weight lies on the answer in the sentence of the lesson's figure:

# %%
one, _ = shifted([NEW[3]])
for causal, lo, hi in (True, 0, 0), (False, 0.6, 0.97):
    shown = weights_of(models[causal, 0], one)                  # (B, H, T, S)
    measure(f"{'mask' if causal else 'no mask'}: mean weight on the answer",
            np.diagonal(shown[0, 0], offset=1).mean(), lo, hi)

# %% [markdown]
# **The mask put on afterwards** repairs nothing. In one layer it is the same as asking word by word:

# %%
with using(Hiding(lambda t, s: s <= t)):
    late = all_at_once(models[False, 0], read)
same("mask put on afterwards: the scores are those word by word",
     late[real], word_by_word(models[False, 0], read)[real], tolerance=1e-9)

# %% [markdown]
# ## Experiment 2: hide the answer only
#
# If the model copies from the one cell $t + 1$, is it enough to hide that cell, during training and in use? We train
# models that may see everything else, with one layer and with two (runs 0 and 1). For comparison: two layers with the
# causal mask.

# %%
def detour(model):
    """The loss of the guess at t, all at once, with another word t + 1 to read"""
    changed = []
    for t in range(read.shape[1]):
        ids = read.copy()
        if t + 1 < read.shape[1]:
            word = ids[:, t + 1]
            ids[:, t + 1] = np.where(
                word == PAD, PAD, EOS + 1 + (word + 99) % (len(VOCABULARY) - EOS - 1)
            )
        changed.append(all_at_once(model, ids)[:, t])
    return mean_loss(np.stack(changed, axis=1), write)


for seed in SEEDS:
    for N in (2,) if QUICK else (1, 2) if seed < 2 else ():
        once, later, replaced = [
            ((2.3, 3.1), (4.5, 10), (2.3, 3.1)),
            ((1.3, 2.6), (4, 10), (2.7, 9)),
        ][N - 1]
        with using(Hiding(lambda t, s: s != t + 1)):
            model = NextWord(causal=False, seed=seed, N=N)
            train(model, shifted, seed)
            name = f"N = {N}, run {seed}"
            plain, other = mean_loss(all_at_once(model, read), write), detour(model)
            measure(f"{name}: all at once", plain, *once)
            measure(
                f"{name}: word by word",
                mean_loss(word_by_word(model, read), write),
                *later,
            )
            measure(f"{name}: all at once, word t + 1 replaced", other, *replaced)
            if N == 1:
                measure(
                    f"{name}: change by the replacement", other - plain, -1e-9, 1e-9
                )
        if N == 2:
            closed = {}
            for away in -1, 0, 2, 3, 4:
                with using(Hiding(lambda t, s: (s != t + 1) & (s != t + away))):
                    closed[away] = mean_loss(all_at_once(model, read), write)
            for away, loss in closed.items():
                measure(f"{name}: t {away:+d} hidden, too", loss, 1.3, 4.5)
            assert closed[2] - plain > 0.6 > closed[0] - plain
if not QUICK:
    deep = NextWord(causal=True, seed=0, N=2)
    train(deep, shifted, 0)
    loss = mean_loss(all_at_once(deep, read), write)
    measure("N = 2 with the causal mask, run 0: all at once", loss, 2.5, 3.3)

# %% [markdown]
# - **One layer.** The cell is closed: another word at $t + 1$ changes nothing. The model guesses from the words on
#   both sides, which gives about the loss of the causal model (2.65 and 2.86 against 2.89 and 2.90). But it has learned
#   to lean on words that don't exist in use: word by word its loss is 5.6 and 7.1.
# - **Two layers.** The loss is much better (1.82 and 1.93), although every layer hides $t + 1$. There is a detour: some
#   other position looks at $t + 1$ in the first layer, and position $t$ looks at that position in the second. Does the
#   model take it? It does: with another word at $t + 1$ the loss rises to 3.1 and 3.5. (Depth alone is no explanation:
#   two layers with the causal mask have 2.86, run 0.) *Which* detour is not always the same. In run 0, hiding $t +
#   2$, too, costs most (from 1.82 to 3.05; $t + 3$ to 2.20, $t + 4$ to 2.29). In run 1 $t + 2$, $t + 3$ and $t + 4$
#   cost alike (from 1.93 to 3.07, 3.06 and 2.99). The triangle closes every detour, because each of its steps leads to
#   an earlier position or to the same.
#
# ## Experiment 3: forget the shift
#
# Now the causal mask stands, but the model reads the very words that it has to write. What will the loss be, and what
# the text?

# %%
unshifted = []
for seed in SEEDS:
    model = NextWord(causal=True, seed=seed)
    train(model, not_shifted, seed, steps=100)
    unshifted.append(model)
    measure(
        f"run {seed}: its own task, new sentences",
        mean_loss(all_at_once(model, write), write),
        0,
        0.1,
    )
    measure(
        f"run {seed}: guessing the next word",
        mean_loss(all_at_once(model, read), write),
        9,
        18,
    )
    share = share_repeated(written(model, begin=()))
    measure(f"run {seed}: share of written words that repeat the last", share, 0.9, 1)

# %% [markdown]
# The task has become to copy what is read, and the model does it for ever. Its flow of information is that of an honest
# model, so the flow test finds nothing:

# %% The flow test
def depends(f, x, other):
    """-> bool (T, S): does output t of f(x) change if input s is that of `other`?"""
    y, found = f(x), []
    for s in range(x.shape[1]):
        changed = x.copy()
        changed[:, s] = other[:, s]
        found.append((np.abs(f(changed) - y) > 1e-9).any(axis=(0, 2)))
    return np.stack(found, axis=1)


def leaks(f, x, other):
    """How many pairs of an output and a later input on which it depends?"""
    return np.triu(depends(f, x, other), 1).sum()


five = read[:1, :5]
others = EOS + (five - EOS + 1) % (
    len(VOCABULARY) - EOS
)  # another word at each position
for name, model, later in [
    ("mask and shift", models[True, 0], 0),
    ("no mask", models[False, 0], 10),
    ("no shift", unshifted[0], 0),
]:
    measure(
        f"{name}: pairs of a guess and a later word",
        leaks(lambda ids: all_at_once(model, ids), five, others),
        later,
        later,
    )

# %% [markdown]
# What is put in should be random. To add 1 to every number of a vector will not do: many models subtract the mean of
# each vector before attention, and would not notice.
#
# One number convicts both mistakes. The first guess sees `<s>` and nothing else, so an honest model makes the same
# guess in every sentence. Then its mean loss on the first word cannot be below the entropy of the first words,
# $-\sum_i p_i \ln p_i$ with $p_i$ the share of sentences that begin with word $i$, however long it is trained.

# %%
p = np.bincount(write[:, 0]) / len(write)
entropy = measure(
    "entropy of the first words", -(p[p > 0] * np.log(p[p > 0])).sum(), 2.7, 3
)
for name, model, ids, lo, hi in [
    ("mask and shift", models[True, 0], read, entropy, 4),
    ("no mask", models[False, 0], read, 0, 0.5),
    ("no shift", unshifted[0], write, 0, 0.5),
]:
    measure(
        f"{name}: loss on the first word",
        mean_loss(model.forward(ids)[0][:, 0], write[:, 0]),
        lo,
        hi,
    )

# %% [markdown]
# ## Experiment 4: a leak that passes the gradient check
#
# In cross-attention (lesson 04) `x` is the sentence being written and asks, and `memory` answers: it gives keys and
# values. In one published NumPy Transformer the memory gives queries and keys, and `x` the values
# (`cross-attention-mixes-its-inputs` in [the correctness report](../../docs/correctness.md)). The gradient of that
# layer is right. Here it is, without its weight matrices:

# %%
class SwappedAttention(Layer):
    """Queries and keys from memory, values from x: the wrong way round.

    x, memory (B, T, D) -> (B, T, D)
    """

    attention = ScaledDotProductAttention()

    def forward(self, x, memory, rng=None):
        one_head = memory[:, :, None]
        y, cache = self.attention.forward(one_head, one_head, x[:, :, None])
        return y[:, :, 0], cache

    def backward(self, dy, cache):
        dq, dk, dv = self.attention.backward(dy[:, :, None], cache)
        return dv[:, :, 0], (dq + dk)[:, :, 0]


random = np.random.default_rng(1)
x, other, memory = random.normal(size=(3, 2, 5, 6))  # B = 2, T = S = 5, D = 6
for name, layer, later in [
    ("right", CrossAttention(6, 2, random, "float64"), 0),
    ("swapped", SwappedAttention(), 10),
]:
    measure(
        f"{name}: worst error of its gradients",
        gradcheck(layer, x, memory).worst.error,
        0,
        1e-6,
    )
    measure(
        f"{name}: pairs of an output and a later input",
        leaks(lambda x: layer.forward(x, memory)[0], x, other),
        later,
        later,
    )

# %% [markdown]
# The future comes in with the values: $y_t = \sum_s w_{ts} v_s$, where $v_s$ is made of $x_s$, and no mask stands
# before $s > t$. (None is meant to be there: the decoder may know the whole source.) Finite differences compare
# backward with forward, so they cannot know that forward is the wrong function. With source and target of different
# lengths the swapped layer does not run at all: one more reason to test with sizes that differ.
#
# ## Experiment 5: a large negative number
#
# A row without any allowed key is $-\infty$ throughout. Subtracting the row's maximum gives $-\infty - (-\infty)$,
# which is NaN. To avoid that, much code *adds a large negative number* instead. In a row that keeps a key this comes to
# the same: $e^{-10000}$ is 0, even in float64. In a row that is masked as a whole it does not. In float32:

# %%
def softmax(z):
    """Without a rule for rows of -inf"""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


z = np.array([1, -0.5, 0.3, 2, 0.1], "float32")
with np.errstate(invalid="ignore"):
    fates = [softmax(z + np.float32(added)) for added in (0, -1e4, -1e9, -np.inf)]
table(["added to all five scores", "the five weights"],
      [[added, "  ".join(f"{weight:.3f}" for weight in row)]
       for added, row in zip(("nothing", "−10,000", "−1e9", "−∞"), fates)])
measure("−10,000: weights move by", np.abs(fates[1] - fates[0]).max(), 0, 1e-3)
measure("−1e9: largest − smallest weight", np.ptp(fates[2]), 0, 0)
measure("−∞: how many weights are NaN", np.isnan(fates[3]).sum(), 5, 5)
measure("e to the −10,000", np.exp(-1e4), 0, 0)

# %% [markdown]
# A number added to a whole row is a shift, and softmax does not see a shift: the mask has no effect at all. If the
# number is so large that the scores vanish in its rounding, all weights are equal, those of padding too.
#
# And NaN spreads. The gradient of a weight matrix is a sum over all sentences of the batch, and $0 \cdot \mathrm{NaN}$
# is NaN. So one empty line in a corpus makes NaN of the whole matrix, even though the loss leaves that line out:

# %%
x, W = random.normal(size=(2, 3, 6)), random.normal(size=(6, 6))
may = Mask(np.array([3, 0])).as_array(3, 3)[:, 0]  # (B, 1, S): sentence 1 is empty
with np.errstate(invalid="ignore"):
    no_rule = softmax(np.where(may, x @ W @ x.swapaxes(1, 2), -np.inf))  # (B, T, S)
dweights = (
    random.normal(size=(2, 3, 3)) * np.array([1, 0])[:, None, None]
)  # no loss on it
for name, weights in ("no rule", no_rule), ("weights 0", np.nan_to_num(no_rule)):
    dscores = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
    dW = sum(
        sentence.T @ d @ sentence for sentence, d in zip(x, dscores)
    )  # scores = x W x^T
    expected = 36 if name == "no rule" else 0
    measure(
        f"{name}: NaNs among the 36 gradients of W",
        np.isnan(dW).sum(),
        expected,
        expected,
    )

# %% [markdown]
# Hence the rule of this library: *a query with nothing to look at gets weights 0, output 0 and gradient 0*.
#
# ## Experiment 6: zero after softmax
#
# One could run softmax over all keys and then multiply the forbidden weights by 0. But the sum below the fraction has
# then been taken over *all* keys, so the future scales the weights of the past. Let the score of the last key grow by
# 3, which only the last query may use:

# %%
B, H, T, S, d_k = 3, 2, 3, 5, 7
lengths, factor = np.array([5, 2, 0]), 1 / math.sqrt(d_k)
random = np.random.default_rng(1)
q, k, v = (random.normal(size=(B, H, length, d_k)) for length in (T, S, S))
scores = q @ k.swapaxes(-1, -2)  # (B, H, T, S)
past = Mask(causal=True).as_array(T, S)
grown = scores + np.array([0, 0, 0, 0, 3.0])


def masked_softmax(z, may):
    """z (..., T, S), may (..., T, S) -> weights; 0 in a row that allows nothing"""
    z = np.where(may, z, -np.inf)
    top = z.max(axis=-1, keepdims=True)
    e = np.exp(z - np.where(np.isinf(top), 0, top))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def zero_afterwards(z, renewed):
    """Softmax over all keys, times the mask; `renewed`: divided by the sum again"""
    weights = softmax(z) * past
    return weights / weights.sum(axis=-1, keepdims=True) if renewed else weights


for name, f, lo, hi in [
    ("−∞ before softmax", lambda z: masked_softmax(z, past), 0, 0),
    ("times 0 after softmax", lambda z: zero_afterwards(z, False), 0.05, 0.3),
    ("times 0, then divided by the sum", lambda z: zero_afterwards(z, True), 0, 1e-15),
]:
    moved = np.abs(f(factor * grown) - f(factor * scores))[:, :, :-1].max()
    measure(f"{name}: weights of the earlier queries move by", moved, lo, hi)

# %% [markdown]
# With a second division the zeros are right on paper, in forward and backward. In floating point it is worse: a
# future score that is larger by 800 makes all allowed exponentials 0, and the row 0 / 0.

# %%
huge = factor * scores + np.array([0, 0, 0, 0, 800.0])
with np.errstate(invalid="ignore"):
    renewed = zero_afterwards(huge, True)
measure(
    "times 0, then divided: rows with NaN, of 18",
    np.isnan(renewed).any(axis=-1).sum(),
    12,
    12,
)
measure(
    "−∞ before softmax: rows with NaN",
    np.isnan(masked_softmax(huge, past)).any(axis=-1).sum(),
    0,
    0,
)

# %% [markdown]
# ## Experiment 7: rows or columns of padding?
#
# > "The padding mask hides the padded positions."
#
# Positions of what? Of the keys, the columns, or of the queries, the rows? A public implementation masks *rows* in
# its decoder, and fills with $-10000$. Here are five words and three positions of padding, in an encoder, where every
# word may look at every other. What becomes of the five words, compared with the same five without padding?

# %%
def self_attend(x, may, fill):
    """x (T, D) as queries, keys and values; no rule for empty rows"""
    with np.errstate(invalid="ignore"):
        return softmax(np.where(may, x @ x.T / math.sqrt(x.shape[1]), fill)) @ x


x, filled, causal = random.normal(size=(8, 6)), np.arange(8) < 5, np.tri(8, dtype=bool)
alone = self_attend(x[:5], np.True_, 0)
cases = [
    ("nothing", np.True_, 0, 0.1, 3, 0),
    ("columns", filled, -np.inf, 0, 1e-14, 0),
    ("rows", filled[:, None], -1e4, 0.1, 3, 0),
    ("rows", filled[:, None], -np.inf, 0.1, 3, 3),
]
for masked, may, fill, lo, hi, nan in cases:
    y = self_attend(x, may, fill)
    measure(
        f"{masked} masked, fill {fill:g}: words move by",
        np.abs(y[:5] - alone).max(),
        lo,
        hi,
    )
    measure(
        f"{masked} masked, fill {fill:g}: NaN rows of padding",
        np.isnan(y).any(axis=1).sum(),
        nan,
        nan,
    )
decoder = self_attend(x, causal, -np.inf)[:5] - self_attend(
    x[:5], causal[:5, :5], -np.inf
)
measure("a causal mask and no other: words move by", np.abs(decoder).max(), 0, 1e-14)

# %% [markdown]
# Mask the **columns**: then nothing moves but the last digit, as a longer sum can be added up in another order.
# Masked rows protect nobody: the words read padding as if there were no mask. The fill of $-10000$ hides the mistake;
# with $-\infty$, NaN shows it at once.
#
# With a causal mask, words need no padding mask, as the last row shows: padding at the end is in the future of every
# word. So in a decoder masked rows with $-10000$ do no harm. With $-\infty$ they do: the padded rows become NaN, and
# in the next layer a weight of 0 times NaN carries it into the words. The decoder of this library has a causal mask
# and no other. The padded rows compute something too, but the loss ignores them.
#
# ## The whole check
#
# Three sentences of 5, 2 and 0 words, $S = 5$ keys, $T = 3$ queries, which are the last three positions, and $H = 2$
# heads. If the $T$ queries are only the last of $S$ positions, as when a sentence is continued, the last query still
# sees all: $s \le t + S - T$. The weights of the first head; `--` is exactly 0:

# %%
may = Mask(lengths, causal=True).as_array(T, S)  # (B, 1, T, S)
weights = masked_softmax(factor * scores, may)
for n, rows in zip(lengths, weights[:, 0]):
    cells = (" ".join(f"{w:.2f}" if w else "  --" for w in row) for row in rows)
    print(f"{n} words: " + "   ".join(cells))
dweights = random.normal(size=(B, H, T, S))  # not 0 where the mask forbids
dscores = (
    factor * weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
)
numeric = numeric_gradient(
    lambda scores: (masked_softmax(factor * scores, may) * dweights).sum(), scores
)
measure("largest forbidden weight", np.abs(weights * ~may).max(), 0, 0)
measure(
    "first two sentences: furthest from sum 1",
    np.abs(weights[:2].sum(axis=-1) - 1).max(),
    0,
    1e-15,
)
measure("largest gradient of a forbidden score", np.abs(dscores * ~may).max(), 0, 0)
measure(
    "largest numeric gradient of a forbidden score", np.abs(numeric * ~may).max(), 0, 0
)
measure(
    "worst error, relative to the largest",
    np.abs(dscores - numeric).max() / np.abs(numeric).max(),
    0,
    1e-8,
)

heads_last = [array.swapaxes(1, 2) for array in (q, k, v)]  # (B, T, H, d_k)
y, cache = ScaledDotProductAttention().forward(*heads_last, Mask(lengths, causal=True))
same("the library's weights", weights, cache.weights)
same(
    "the library's dscores",
    dscores,
    ops_of(weights).masked_softmax_backward(dweights, weights, factor),
)
same("the library's whole attention", weights @ v, y.swapaxes(1, 2))

# %% [markdown]
# **Why the mask changes so little in backward.** `np.where(may, z, -np.inf)` passes an allowed score on as it is, with
# derivative 1, and writes a constant over a forbidden one, with derivative 0. A forbidden score thus has no way to the
# loss. An allowed score $z_{tr}$ has the two ways of lesson 04, among the allowed keys: through the sum, every allowed
# $w_{ts}$ shrinks by $w_{ts} w_{tr}$; through the numerator, $w_{tr}$ grows by $w_{tr}$.
#
# ## Paper, code, and the five masks of a model
#
# Section 3.2.3: the decoder sets to $-\infty$ "all values in the input of the softmax which correspond to illegal
# connections". Section 3.1: this masking, "combined with
# fact that the output embeddings are offset by one position", makes a prediction depend on earlier outputs only. The
# authors' code, Tensor2Tensor, adds $-10^9$ where the paper and this library have $-\infty$; it shifts in a vector of
# zeros, and here `<s>` has a learned vector.
#
# | where | queries | keys | padding mask | causal mask |
# | --- | --- | --- | --- | --- |
# | encoder, self-attention | source | source | of the source | no, it may read ahead |
# | decoder, self-attention | target | target | not needed | yes |
# | decoder, attention to the memory | target | source | of the source | no, the source is known |
# | decoder, writing word by word | the newest word | all words so far | none there | no, the last row sees all |
# | loss | | | of the target | |
#
# In the library: `allowed` and `masked_softmax` in [nn/ops.py](../../scratchformer/nn/ops.py), `Mask` in
# [nn/attention.py](../../scratchformer/nn/attention.py), the shift in `EncodedPairs.batch` of
# [text/batches.py](../../scratchformer/text/batches.py), flow tests in
# [tests/nn/test_checks.py](../../tests/nn/test_checks.py).
#
# **A puzzle.** Sentences are padded on the *left*, with a causal and a padding mask. Which queries have no key?
#
# <details><summary>Answer</summary>
#
# Those of the padding: all keys up to their own position are padding. With $-\infty$ and no rule they give NaN, and one
# step later the whole model does. Here they give zeros.
#
# </details>
