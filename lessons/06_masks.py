# %% [markdown]
# # 06 · Masks: what attention must not see
#
# *About 35 minutes. You need: [lesson 01](01_backprop.py) (gradients, and how to check them), [lesson
# 04](04_soft_lookup.py) (queries, keys, values) and [lesson 05](05_scaling.py) (the backward pass of softmax). You
# will have: a masked softmax with its backward pass, the shift that belongs to it, and a test that finds leaks which
# no gradient check sees.*

# %% Imports
import math
import re

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library.lesson import QUICK, ROOT, measure, same, show
from scratchformer.config import ModelConfig
from scratchformer.experiments.figures import ACCENT, COLOUR_MAP, DARK
from scratchformer.nn.attention import CrossAttention, Mask, ScaledDotProductAttention, attention_weights
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Embedding, PositionalEncoding, Unembedding
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.ops import ops_of
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Layer, ParameterStore
from scratchformer.nn.transformer import EncoderLayer
from scratchformer.text.tokenizer import BOS, EOS, PAD

# %% [markdown]
# ## Question
#
# **A sentence of $n$ words asks $n + 1$ questions at once: what comes next? How can a model answer all of them in one
# pass, when the answer to each stands in its input, one place further on?**
#
# The answer in one sentence: replace every score that a query must not use by $-\infty$ before softmax, so that its
# weight is exactly 0, forward and backward, and let the model read what it is to write one place later.
#
# First see what happens without. A small model with one attention (what stands around it is taken from the library as
# it is) learns to guess the next word of short English sentences from the bundled corpus. It reads
# `<s> the goat slept .` and is to write `the goat slept . </s>`: under each word, the one that follows it. Shorter
# sentences of a batch are filled up with padding, the id 0.

# %% Reading the sentences
def sentences(split, at_most):
    """Sentences of fewer than 10 words, as lists of words; a full stop is a word."""
    lines = (ROOT / f"data/tiny/{split}.en").read_text(encoding="utf-8").lower().splitlines()[:at_most]
    return [words for words in (re.findall(r"[\w'-]+|[.?!,]", line) for line in lines) if len(words) < 10]


train_sentences = sentences("train", 10_000)
vocabulary = ["<pad>", "</s>", "<s>", *sorted({word for words in train_sentences for word in words})]
id_of = {word: i for i, word in enumerate(vocabulary)}
test_sentences = [words for words in sentences("test", 500) if all(word in id_of for word in words)][:200]


def padded(rows):
    """Lists of ids -> (B, T), the shorter rows filled up with padding"""
    longest = max(map(len, rows))
    return np.array([[*row, *[PAD] * (longest - len(row))] for row in rows])


# %%
def shifted(some_sentences):
    """-> what is read (B, T), what is to be written (B, T)"""
    ids = [[id_of[word] for word in words] for words in some_sentences]
    return padded([[BOS, *row] for row in ids]), padded([[*row, EOS] for row in ids])


# %% The model and its training
class NextWord(Layer):
    """ids (B, T) -> the scores of each word to be the next, (B, T, V)"""

    def __init__(self, causal, seed, d_model=48):
        random = np.random.default_rng(seed)
        config = ModelConfig(vocab_size=len(vocabulary), d_model=d_model, d_ff=2 * d_model, h=1, P_drop=0.0)
        vectors = Embedding.new_weight(len(vocabulary), d_model, random, "float64")
        layer = EncoderLayer(config, random, "float64")
        self.stack = [Embedding(vectors), PositionalEncoding(), layer, Unembedding(vectors)]
        self.causal, self.store = causal, ParameterStore(self.parameters())

    def forward(self, ids, rng=None):
        x, caches, mask = ids, [], Mask(key_lengths=(ids != PAD).sum(axis=1), causal=self.causal)
        for layer in self.stack:
            x, cache = layer.forward(x, mask) if isinstance(layer, EncoderLayer) else layer.forward(x)
            caches.append(cache)
        return x, caches

    def backward(self, dx, caches):
        for layer in reversed(self.stack):
            dx = layer.backward(dx, caches.pop())


def train(model, data, seed, steps=250):
    """data: sentences -> what is read, what is to be written. -> the loss of each step, in nats per word"""
    random, optimizer, losses = np.random.default_rng(seed), Adam(model), []
    for step in range(1, steps + 1):
        read, write = data([train_sentences[i] for i in random.integers(0, len(train_sentences), 24)])
        logits, cache = model.forward(read)
        loss_sum, n_words, dlogits = cross_entropy(logits, write)
        model.zero_grad()
        model.backward(dlogits / n_words, cache)
        optimizer.step(0.005 * min(1, step / 50))
        losses.append(loss_sum / n_words)
    return losses


# %% [markdown]
# Two models differ in one argument, `causal`. With the causal mask, position $t$ sees the words up to its own;
# without, it sees the whole sentence. (Padding is masked in both.) Both are asked about 200 new sentences in two
# ways. *All at once* is how validation is done: the sentence is the input. *Word by word* is how the model will be
# used: it gets the words up to $t$, and later ones do not exist yet. Two runs of each differ in their random start.

# %%
test_read, test_write = shifted(test_sentences)


def mean_loss(logits, write):
    loss_sum, n_words, _ = cross_entropy(logits, write)
    return loss_sum / n_words


def all_at_once(model):
    """-> the scores of the next words (B, T, V)"""
    return model.forward(test_read)[0]


def word_by_word(model):
    """-> the same, but position t is asked when it is the last one"""
    return np.stack([model.forward(test_read[:, :t + 1])[0][:, t] for t in range(test_read.shape[1])], axis=1)


def print_texts(model, begin=()):
    """Go on from three openings, always with the most likely word. -> how many words repeat the one before: 0 to 1"""
    repeats = []
    for opening in "the", "my", "this":
        ids = [*begin, id_of[opening]]
        while ids[-1] != EOS and len(ids) < 12:
            ids.append(int(model.forward(np.array([ids]))[0][0, -1].argmax()))
        print("    " + " ".join(vocabulary[i] for i in ids))
        repeats += [a == b for a, b in zip(ids, ids[1:])]
    return np.mean(repeats)


models, curves = {}, {}
for seed in [0] if QUICK else [0, 1]:
    for causal, bands in (True, [(2.5, 3.1), (2.6, 3.2), (2.6, 3.2)]), (False, [(0.1, 0.6), (0.1, 0.7), (6.4, 9)]):
        model = models[causal, seed] = NextWord(causal, seed)
        losses = curves[causal, seed] = train(model, shifted, seed)
        print(f"with{'' if causal else 'out'} the causal mask, run {seed}")
        measure("training loss, last 20 steps", np.mean(losses[-20:]), *bands[0])
        measure("loss on new sentences, all at once", mean_loss(all_at_once(model), test_write), *bands[1])
        measure("loss on new sentences, word by word", mean_loss(word_by_word(model), test_write), *bands[2])
        print_texts(model, [BOS])
ways = all_at_once(models[True, 0]), word_by_word(models[True, 0])
measure("causal mask: largest difference of the scores in the two ways", np.abs(ways[0] - ways[1]).max(), 0, 1e-9)
measure("guessing among all words alike: ln V", math.log(len(vocabulary)), 6.54, 6.55)

# %% The figure
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for (causal, seed), losses in curves.items():
    label = "with the causal mask" if causal else "without"
    axes.plot(np.convolve(losses, np.full(10, 0.1), "valid"), "-" if causal else "--", label="" if seed else label,
              color=DARK if causal else ACCENT)
axes.axhline(math.log(len(vocabulary)), color="#888888", lw=0.8, ls=":")
axes.text(240, math.log(len(vocabulary)) + 0.1, "guessing", ha="right", color="#444444")
axes.set(xlabel="step", ylabel="training loss, nats per word", ylim=(0, 7.5))
axes.set_title("The better curve is the broken model (mean of 10 steps)")
axes.legend(loc=(0.62, 0.6))
show(figure, "06_loss", alt="Training loss over 250 steps, two runs of each model. With the causal mask it falls from "
     "7 to just below 3 nats. Without, it parts from the others after 50 steps and falls well below 1.")

# %% [markdown]
# The model without the mask has by far the better loss, on new sentences too, and it cannot continue a sentence: word
# by word it is worse than guessing among all words alike, because it is sure, and wrong. Validation did not warn us,
# because it hands over the answers as training does. With the mask, the two ways of asking agree.
#
# ## The idea in one picture
#
# These are the attention weights of the two models for one new sentence. A row is a query, the position that is to
# guess the next word; a column is a key, a word that it looks at. The framed cells are the answers.

# %% The figure
words = test_sentences[3]
read, _ = shifted([words])
colours = plt.get_cmap(COLOUR_MAP).with_extremes(bad="#e0e0e0")                                # grey: exactly 0
figure, panels = plt.subplots(1, 2, figsize=(8, 4.2), sharey=True, layout="constrained")
for panel, causal in zip(panels, (True, False)):
    [weights] = attention_weights(models[causal, 0].forward(read)[1])                          # (B, H, T, S)
    panel.imshow(np.ma.masked_equal(weights[0, 0], 0), colours, vmin=0, vmax=1)
    for t in range(len(words)):
        panel.add_patch(plt.Rectangle((t + 0.5, t - 0.5), 1, 1, fill=False, edgecolor=ACCENT, lw=2))
    panel.set_xticks(range(len(words) + 1), ["<s>", *words], rotation=90)
    panel.set(title="causal mask" if causal else "no causal mask", xlabel="key: word looked at")
    answers = np.diagonal(weights[0, 0], offset=1).mean()
    measure(f"{panel.get_title()}: weight on the answer, on average", answers, *((0, 0) if causal else (0.6, 0.97)))
panels[0].set_yticks(range(len(words) + 1), [f"{a} → {b}" for a, b in zip(["<s>", *words], [*words, "</s>"])])
panels[0].set_ylabel("query: last word read → word to guess")
figure.colorbar(panels[0].images[0], ax=panels, label="attention weight (grey: exactly 0)", shrink=0.8)
show(figure, "06_triangle", alt="Two maps of attention weights, rows are queries, columns are keys; the cell right of "
     "the diagonal, the answer, is framed in each row but the last. Left, with the causal mask: everything above the "
     "diagonal is exactly zero and drawn grey, and a stepped lower triangle remains. Right, without: most rows have "
     "nearly all their weight in the framed cell.")

# %% [markdown]
# In most of its rows the model on the right looks one place ahead, and copies. Not in all, as the average shows:
# where the last word tells enough about the next, it may do without, and the last row has no word ahead. The model on
# the left has a stepped triangle to live in, and outside it the weights are not small but 0.
#
# ## The equation, and the same in code
#
# Let $z_{ts}$ be the scaled score of query $t$ and key $s$, and let $m_{ts}$ be 1 where the query may use the key and
# 0 where not. Softmax runs over the allowed keys alone:
#
# $$w_{ts} = \frac{m_{ts} e^{z_{ts}}}{\sum_u m_{tu} e^{z_{tu}}}$$
#
# There are two reasons to forbid a key.
#
# - **Causal**: the key is a word that the query must not know yet. Query $t$ may use the keys $s \le t$. If the $T$
#   queries are only the last of $S$ positions, as when a sentence is continued, the last query still sees all:
#   $s \le t + S - T$.
# - **Padding**: the key is no word. In a sentence of $n$ words, the keys are those with $s$ below $n$, counted from
#   0.
#
# In code, $m e^z$ is $e^z$ with $-\infty$ in place of $z$, as in the paper.

# %%
def allowed(T, S, key_lengths=None, causal=False):
    """Which query may use which key: bool (B or 1, 1, T, S); the second axis is for the heads"""
    may = np.ones((1, 1, T, S), bool)
    if causal:
        may = may & (np.arange(S) <= np.arange(T)[:, None] + S - T)                            # (T, S)
    if key_lengths is not None:
        may = may & (np.arange(S) < key_lengths[:, None, None, None])                          # (B, 1, 1, S)
    return may


def masked_softmax(scores, factor, may):
    """scores (B, H, T, S), may (B or 1, 1, T, S) -> weights (B, H, T, S)"""
    z = np.where(may, factor * scores, -np.inf)
    highest = z.max(axis=-1, keepdims=True)
    e = np.exp(z - np.where(np.isinf(highest), 0, highest))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


# %% [markdown]
# The padding mask is the same for every query, so it comes without an axis $T$, and broadcasting copies it into the
# rows. The last two `np.where` serve a query that may use no key at all. Its fraction is 0 / 0, so it needs a rule:
# its weights are 0.
#
# ## Forward
#
# Three sentences of 5, 2 and 0 words, $S = 5$ keys, $T = 3$ queries, which are the last three positions, and $H = 2$
# heads (two independent sets of queries and keys). The weights of the first head; `--` is exactly 0:

# %%
B, H, T, S, d_k = 3, 2, 3, 5, 7
lengths, factor = np.array([5, 2, 0]), 1 / math.sqrt(d_k)
random = np.random.default_rng(1)
q, k, v = (random.normal(size=(B, H, length, d_k)) for length in (T, S, S))
scores = q @ k.swapaxes(-1, -2)                                                                # (B, H, T, S)

may = allowed(T, S, lengths, causal=True)
weights = masked_softmax(scores, factor, may)
for n, rows in zip(lengths, weights[:, 0]):
    print(f"{n} words: " + "   ".join(" ".join(f"{w:.2f}" if w else "  --" for w in row) for row in rows))
measure("largest forbidden weight", np.abs(weights * ~may).max(), 0, 0)
measure("rows of the first two sentences: furthest from sum 1", np.abs(weights[:2].sum(axis=-1) - 1).max(), 0, 1e-15)

# %% [markdown]
# **Why before softmax?** One could run softmax over all keys and then multiply the forbidden weights by 0. But the
# sum below the fraction has then been taken over *all* keys, so the future scales the weights of the past. Let the
# score of the last key grow, which only the last query may use:

# %%
def zero_afterwards(scores):
    return masked_softmax(scores, factor, np.True_) * past


past, future = allowed(T, S, causal=True), scores + np.array([0, 0, 0, 0, 3.0])
change = masked_softmax(future, factor, past) - masked_softmax(scores, factor, past)
measure("-inf before softmax: weights of the earlier queries move by", np.abs(change[:, :, :-1]).max(), 0, 0)
change = zero_afterwards(future) - zero_afterwards(scores)
measure("times 0 after softmax: weights of the earlier queries move by", np.abs(change[:, :, :-1]).max(), 0.05, 0.3)

# %% [markdown]
# **A query that may use nothing.** An empty sentence has no keys, so its row of scores is $-\infty$ throughout.
# Subtracting the row's maximum gives $-\infty - (-\infty)$, which is NaN. To avoid that, much code *adds a large
# negative number* instead. In a row that keeps a key this comes to the same: $e^{-10000}$ is 0, even in float64. In a
# row that is masked as a whole it does not. In float32:

# %%
def softmax(z):
    """As in lesson 05: no rule for rows of -inf."""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


z = np.array([1, -0.5, 0.3, 2, 0.1], "float32")
with np.errstate(invalid="ignore"):
    fates = [softmax(z + np.float32(added)) for added in (0, -1e4, -1e9, -np.inf)]
for added, row in zip(("nothing", "-10,000", "-1e9", "-inf"), fates):
    print(f"{added:>7} added to all five scores: weights", *(f"{weight:5.3f}" for weight in row))
measure("-10,000: weights move by", np.abs(fates[1] - fates[0]).max(), 0, 1e-3)
measure("-1e9: largest less smallest weight", np.ptp(fates[2]), 0, 0)
measure("-inf: how many weights are NaN", np.isnan(fates[3]).sum(), 5, 5)
measure("e to the -10,000", np.exp(-1e4), 0, 0)

# %% [markdown]
# A number added to a whole row is a shift, and softmax does not see a shift: the mask has no effect at all. If the
# number is so large that the scores vanish in its rounding, all weights are equal, those of padding too.
#
# And NaN spreads. The gradient of a weight matrix is a sum over all sentences of the batch, and
# $0 \cdot \mathrm{NaN}$ is NaN. So one empty line in a corpus makes NaN of the whole matrix, even though the loss
# leaves that line out. Hence the rule of this library: *a query with nothing to look at gets weights 0, output 0 and
# gradient 0*.
#
# **The other half: shift right.** The triangle lets query $t$ see its own word. So its own word must not be the
# answer: what is read is what is to be written, moved one place to the right, with `<s>` in front. That is `shifted`
# above. `</s>` is never read, not even in the shorter sentences of a batch, and `<s>` never written.
#
# ## Backward
#
# Lesson 05 followed a score to the loss by two ways: to its own weight through the numerator, and to all weights
# through the common sum. What does a mask change? `np.where(may, z, -np.inf)` passes an allowed score on as it is,
# with derivative 1, and writes a constant over a forbidden one, with derivative 0.
#
# **A forbidden score** thus has no way at all: it was overwritten before anything read it. So $dz_{tr} = 0$.
#
# **An allowed score** $z_{tr}$ has the ways of lesson 05, among the allowed keys. Through the sum, every allowed
# $w_{ts}$ shrinks by $w_{ts} w_{tr}$; through the numerator, $w_{tr}$ grows by $w_{tr}$. Added up over the weights
# that it reaches:
#
# $$dz_{tr} = w_{tr} \left( dw_{tr} - \sum_{s \, \mathrm{allowed}} w_{ts} dw_{ts} \right)$$
#
# Now let the sum run over *all* keys: nothing changes, because a forbidden $s$ has $w_{ts} = 0$ and adds 0. Use the
# formula for a forbidden $r$: $w_{tr} = 0$ stands in front, and 0 is right. Use it in an empty row: all weights are
# 0, so the gradient is 0, as it must be for a constant output. One formula serves every case, and **the mask is not
# needed in backward**: the zeros of the weights remember it. (The factor before softmax comes last, as in lesson 05.)
#
# The rest of attention's backward stays as it is. In $dv_s = \sum_t w_{ts} dy_t$ only the queries that may see $s$
# have a share: words speak to later words; gradients come back from later words.

# %%
def masked_softmax_backward(dweights, weights, factor):
    """dweights, weights (B, H, T, S) -> dscores (B, H, T, S); the mask is in the weights"""
    average = (weights * dweights).sum(axis=-1, keepdims=True)
    return factor * weights * (dweights - average)


dweights = random.normal(size=(B, H, T, S))                    # not 0 where the mask forbids
dscores = masked_softmax_backward(dweights, weights, factor)
measure("largest gradient of a forbidden score", np.abs(dscores * ~may).max(), 0, 0)

# %% [markdown]
# ## Check
#
# Central differences in every score, the forbidden ones and the empty sentence included (`numeric_gradient` is that
# of lesson 01); then the library.

# %%
numeric = numeric_gradient(lambda scores: (masked_softmax(scores, factor, may) * dweights).sum(), scores)
error = np.abs(dscores - numeric).max() / np.abs(numeric).max()
measure("worst error, relative to the largest element", error, 0, 1e-8)
measure("largest numeric gradient of a forbidden score", np.abs(numeric * ~may).max(), 0, 0)

heads_last = [array.swapaxes(1, 2) for array in (q, k, v)]                                     # (B, T, H, d_k)
y, cache = ScaledDotProductAttention().forward(*heads_last, Mask(lengths, causal=True))
same("weights", weights, cache.weights)
same("dscores", dscores, ops_of(weights).masked_softmax_backward(dweights, weights, factor))
same("the whole attention", weights @ v, y.swapaxes(1, 2))

# %% [markdown]
# So backward belongs to forward. Whether forward looks only where it may is another question, with a test of its own,
# the **flow test**: put something else in one place of the input, and see which outputs change. By how much does not
# matter, as long as it is more than rounding.

# %%
def depends(f, x, other):
    """f: (B, S, ...) -> (B, T, D). -> bool (T, S): does output t change if input s is replaced by that of `other`?"""
    y, found = f(x), []
    for s in range(x.shape[1]):
        changed = x.copy()
        changed[:, s] = other[:, s]
        found.append((np.abs(f(changed) - y) > 1e-9).any(axis=(0, 2)))
    return np.stack(found, axis=1)


def leaks(f, x, other):
    """How many pairs of an output and a later input on which it depends?"""
    return np.triu(depends(f, x, other), 1).sum()


read = test_read[:1, :5]
other = EOS + (read - EOS + 1) % (len(vocabulary) - EOS)      # another word at each place
for causal, later in (True, 0), (False, 10):
    def scores_of(ids):
        return models[causal, 0].forward(ids)[0]

    print("\n".join("    " + " ".join("x" if cell else "." for cell in row) for row in depends(scores_of, read, other)))
    measure(f"causal={causal}: pairs of a guess and a later word", leaks(scores_of, read, other), later, later)

# %% [markdown]
# What is put in should be random. To add 1 to every number of a vector will not do: many models subtract the mean of
# each vector before attention, and would not notice.
#
# ## Experiment 1: forget the shift
#
# Now the causal mask stands, but the model reads the very words that it is to write. Predict: what will the loss be,
# and what the output?

# %%
def not_shifted(some_sentences):
    _, write = shifted(some_sentences)
    return write, write


unshifted = NextWord(causal=True, seed=0)
measure("training loss, last 20 steps", np.mean(train(unshifted, not_shifted, 0, steps=150)[-20:]), 0, 0.1)
measure("share of written words that repeat the word before", print_texts(unshifted), 0.9, 1)
measure("pairs of a guess and a later word", leaks(lambda ids: unshifted.forward(ids)[0], read, other), 0, 0)

# %% [markdown]
# The task has become to copy what is read, and the model does so for ever. Note the last line: this model passes the
# flow test. Mask and shift are right only together. The mask says that $t$ sees up to $t$; the shift says that its
# answer is $t + 1$.
#
# One number convicts both mistakes. The first guess sees `<s>` and nothing else, so an honest model makes the same
# guess in every sentence. Then its mean loss on the first word cannot be below the entropy of the first words,
# $-\sum_i p_i \ln p_i$ with $p_i$ the share of sentences that begin with word $i$, however long it is trained.

# %%
p = np.bincount(test_write[:, 0]) / len(test_write)
entropy = measure("entropy of the first words", -(p[p > 0] * np.log(p[p > 0])).sum(), 2.7, 3)
for name, model, ids, lo, hi in [("mask and shift", models[True, 0], test_read, entropy, 4),
                                 ("no mask", models[False, 0], test_read, 0, 0.5),
                                 ("no shift", unshifted, test_write, 0, 0.5)]:
    measure(f"{name}: loss on the first word", mean_loss(model.forward(ids)[0][:, 0], test_write[:, 0]), lo, hi)

# %% [markdown]
# ## Experiment 2: a leak that passes the gradient check
#
# In cross-attention (lesson 04) `x` is the sentence being written and asks, and `memory` answers: it gives keys and
# values. In one published NumPy Transformer the memory gives queries and keys, and `x` the values
# (`cross-attention-mixes-its-inputs` in [the correctness
# report](../docs/correctness.md)). The gradient of that layer is right.
# Here it is, without its weight matrices:

# %%
class SwappedAttention(Layer):
    """x, memory (B, T, D) -> (B, T, D). Queries and keys from memory, values from x: the wrong way round."""

    attention = ScaledDotProductAttention()

    def forward(self, x, memory, rng=None):
        y, cache = self.attention.forward(memory[:, :, None], memory[:, :, None], x[:, :, None])   # one head
        return y[:, :, 0], cache

    def backward(self, dy, cache):
        dq, dk, dv = self.attention.backward(dy[:, :, None], cache)
        return dv[:, :, 0], (dq + dk)[:, :, 0]


x, other, memory = random.normal(size=(3, 2, 5, 6))            # B = 2, T = S = 5, D = 6
for name, layer, later in [("right", CrossAttention(6, 2, random, "float64"), 0), ("swapped", SwappedAttention(), 10)]:
    measure(f"{name}: worst error of its gradients", gradcheck(layer, x, memory).worst.error, 0, 1e-6)
    measure(f"{name}: pairs of an output and a later input",
            leaks(lambda x: layer.forward(x, memory)[0], x, other), later, later)

# %% [markdown]
# The future comes in with the values: $y_t = \sum_s w_{ts} v_s$, where $v_s$ is made of $x_s$, and no mask stands
# before $s > t$. (None is meant to be there: the decoder may know the whole source.) Finite differences compare
# backward with forward, so they cannot know that forward is the wrong function. With source and target of different
# lengths the swapped layer does not run at all: one more reason for sizes that differ.
#
# ## Check the claim
#
# > "The padding mask hides the padded positions."
#
# Positions of what? Of the keys, the columns, or of the queries, the rows? A public implementation masks *rows* in
# its decoder, and fills with $-10000$. Here are five words and three places of padding, in an encoder, where every
# word may look at every other. What becomes of the five words, compared with the same five without padding?

# %%
def self_attend(x, may, fill):
    """x (T, D) as queries, keys and values; no rule for empty rows"""
    with np.errstate(invalid="ignore"):
        return softmax(np.where(may, x @ x.T / math.sqrt(x.shape[1]), fill)) @ x


x, real, causal = random.normal(size=(8, 6)), np.arange(8) < 5, np.tri(8, dtype=bool)
alone = self_attend(x[:5], np.True_, 0)
for masked, may, fill, lo, hi, nan in [("nothing", np.True_, 0, 0.1, 3, 0), ("columns", real, -np.inf, 0, 1e-14, 0),
                                       ("rows", real[:, None], -1e4, 0.1, 3, 0),
                                       ("rows", real[:, None], -np.inf, 0.1, 3, 3)]:
    y = self_attend(x, may, fill)
    measure(f"{masked} masked, fill {fill:g}: words move by", np.abs(y[:5] - alone).max(), lo, hi)
    measure("    rows of padding that are NaN", np.isnan(y).any(axis=1).sum(), nan, nan)
decoder = np.abs(self_attend(x, causal, -np.inf)[:5] - self_attend(x[:5], causal[:5, :5], -np.inf)).max()
measure("a causal mask and no other: words move by", decoder, 0, 1e-14)

# %% [markdown]
# Mask the **columns**: then nothing moves but the last digit, as a longer sum can be added up in another order.
# Masked rows protect nobody: the words read padding as if there were no mask. The fill of $-10000$ hides the mistake;
# with $-\infty$, NaN shows it at once.
#
# With a causal mask, words need no padding mask, as the last line shows: padding at the end is in the future of every
# word. So in a decoder masked rows with $-10000$ do no harm. With $-\infty$ they do: the padded rows become NaN, and
# in the next layer a weight of 0 times NaN carries it into the words. The decoder of this library has a causal mask
# and no other; what the padded rows compute, the loss passes over.
#
# ## Paper and code
#
# - §3.2.3: the decoder sets to $-\infty$ "all values in the input of the softmax which correspond to illegal
#   connections". §3.1: this, "combined with fact that the output embeddings are offset by one position", makes a
#   prediction depend on earlier outputs only. Figure 1 says "shifted right". About padding the paper says nothing.
# - *Differs:* the authors' code, Tensor2Tensor, adds $-10^9$ where the paper and this library have $-\infty$. It
#   shifts in a vector of zeros; here `<s>` has a learned vector.
# - In the library: `allowed` and `masked_softmax` in [nn/ops.py](../scratchformer/nn/ops.py), `Mask` in
#   [nn/attention.py](../scratchformer/nn/attention.py), the shift in `EncodedPairs.batch` of
#   [text/batches.py](../scratchformer/text/batches.py), flow tests in
#   [tests/nn/test_flow.py](../tests/nn/test_flow.py).
#
# Five places of the whole model, and what each must not see:
#
# | place | queries | keys | padding mask | causal mask |
# | --- | --- | --- | --- | --- |
# | encoder, self-attention | source | source | of the source | no, it may read ahead |
# | decoder, self-attention | target | target | not needed | yes |
# | decoder, attention to the memory | target | source | of the source | no, the source is known |
# | decoder, writing word by word | the newest word | all words so far | none there | no, the last row sees all |
# | loss | | | of the target | |
#
# ## Exercises
#
# **Predict.** Sentences are padded on the *left*, with a causal and a padding mask. Which queries have no key?
#
# <details><summary>Answer</summary>
#
# The padded ones: all keys up to their own place are padding. With $-\infty$ and no rule they give NaN, and one step
# later the whole model does. Here they give zeros.
#
# </details>
#
# **Build** `06_masks`: the bool mask from lengths, causal or not, for $T$ queries and $S$ keys.
#
# **Backward** `06_masked_softmax_backward`: from `dweights` to `dscores`, with rows that have no key.
#
# **Build** `06_shift_right`: from sentences of different lengths to what is read and what is to be written.
#
# **Break** `06_find_the_leak`: write the flow test. It is tried on functions that leak, each in its own way, and on
# honest ones.
#
# ## Next
#
# One softmax makes one choice for each query. [Lesson 07](07_many_heads.py) gives a query several at a time. The
# paper's own words on masks are short: sections 3.1 and 3.2.3 of [its arXiv page](https://arxiv.org/abs/1706.03762).
