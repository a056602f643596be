# %% [markdown]
# # 06 · Masks: what attention must not see
#
# *About 40 minutes. You need: [lesson 01](01_backprop.py) (gradients, and how to check them),
# [lesson 04](04_soft_lookup.py) (queries, keys, values) and [lesson 05](05_scaling.py) (the backward pass of softmax).
# You will have: a masked softmax with its backward pass, the shift that belongs to it, and a test that finds leaks
# which no gradient check sees.*

# %%
import math
import re
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.attention import Mask, ScaledDotProductAttention, attention_weights
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import Embedding, Linear, PositionalEncoding, Unembedding
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.ops import ops_of
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Layer, ParameterStore
from scratchformer.nn.transformer import DecoderLayer, EncoderLayer
from scratchformer.study.figures import ACCENT, COLOUR_MAP, DARK
from scratchformer.study.lesson import QUICK, ROOT, measure, same, show
from scratchformer.text.tokenizer import BOS, EOS, PAD

# %% [markdown]
# ## Question
#
# **A sentence of $n$ words asks $n + 1$ questions at once: what comes next? How can a model answer all of them in one
# pass, when the answer to each stands in its input, one place further on?**
#
# The answer in one sentence: replace every score that a query must not use by $-\infty$ before softmax, and its
# weight is exactly 0, forward and backward.
#
# First see what happens without. One layer with attention learns to guess the next word of short English sentences
# from the bundled corpus. It reads `<s> the goat slept .` and is to write `the goat slept . </s>`: under each word,
# the one that follows it. Shorter sentences of a batch are filled up with padding, the id 0. (`EncoderLayer` holds
# the attention of lesson 04 and parts that later lessons explain, and `Adam` is a refined gradient descent. What
# matters here is `Mask`.)

# %%
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
    ids = np.full((len(rows), max(map(len, rows))), PAD)
    for row, tokens in zip(ids, rows):
        row[:len(tokens)] = tokens
    return ids


def shifted(some_sentences):
    """-> what is read (B, T), what is to be written (B, T)"""
    ids = [[id_of[word] for word in words] for words in some_sentences]
    return padded([[BOS, *row] for row in ids]), padded([[*row, EOS] for row in ids])


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
        read, write = data([train_sentences[i] for i in random.integers(0, len(train_sentences), 32)])
        logits, cache = model.forward(read)
        loss_sum, n_words, dlogits = cross_entropy(logits, write)
        model.zero_grad()
        model.backward(dlogits / n_words, cache)
        optimizer.step(0.005 * min(1, step / 50))
        losses.append(loss_sum / n_words)
    return losses


# %% [markdown]
# Two models differ in one word, `causal`. With the causal mask, position $t$ sees the words up to its own; without,
# it sees the whole sentence. Both are asked about 200 new sentences in two ways. *All at once* is how validation is
# done: the sentence is the input. *Word by word* is how the model will be used: it gets the words up to $t$, and
# later ones do not exist yet.

# %%
test_read, test_write = shifted(test_sentences)
openings = [word for word, _ in Counter(words[0] for words in train_sentences).most_common(20)]
known_pairs = {pair for words in train_sentences for pair in zip(words, words[1:])}


def all_at_once(model):
    loss_sum, n_words, _ = cross_entropy(model.forward(test_read)[0], test_write)
    return loss_sum / n_words


def word_by_word(model):
    parts = [cross_entropy(model.forward(test_read[:, :t + 1])[0][:, t], test_write[:, t])
             for t in range(test_read.shape[1])]
    return sum(loss_sum for loss_sum, _, _ in parts) / sum(n_words for _, n_words, _ in parts)


def pairs_written(model, begin=(BOS,), longest=12):
    """Go on from each opening, always with the most likely word. -> all pairs of neighbours; prints three texts"""
    pairs = []
    for index, word in enumerate(openings):
        ids = [*begin, id_of[word]]
        while ids[-1] != EOS and len(ids) < longest:
            ids.append(int(model.forward(np.array([ids]))[0][0, -1].argmax()))
        words = [vocabulary[i] for i in ids[len(begin):] if i != EOS]
        pairs += zip(words, words[1:])
        if index < 3:
            print("    " + " ".join(words))
    return pairs


SEEDS = [0] if QUICK else [0, 1]
models, curves = {}, {}
for causal, bands in (True, [(2.5, 3), (2.6, 3.1), (2.6, 3.1), (0.7, 1)]), \
        (False, [(0.1, 0.5), (0.1, 0.6), (6.4, 9), (0, 0.5)]):
    for seed in SEEDS:
        models[causal, seed] = NextWord(causal, seed)
        curves[causal, seed] = train(models[causal, seed], shifted, seed)
    trained = [models[causal, seed] for seed in SEEDS]
    name = "causal mask" if causal else "no causal mask"
    measure(f"{name}: training loss, last 20 steps", np.mean([curves[causal, seed][-20:] for seed in SEEDS]), *bands[0])
    measure(f"{name}: mean loss, all at once", np.mean([all_at_once(model) for model in trained]), *bands[1])
    measure(f"{name}: mean loss, word by word", np.mean([word_by_word(model) for model in trained]), *bands[2])
    seen = [pair in known_pairs for pair in pairs_written(trained[0])]
    measure(f"{name}: neighbours it writes that occur in the training text", np.mean(seen), *bands[3])
ways = [abs(all_at_once(models[True, seed]) - word_by_word(models[True, seed])) for seed in SEEDS]
measure("causal mask: largest difference between the two ways", max(ways), 0, 1e-9)
measure("guessing among all words alike: ln V", math.log(len(vocabulary)), 6.54, 6.55)

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
show(figure, "06_loss", alt="Training loss over 250 steps. With the causal mask it falls from 7 to just below 3 nats "
     "and goes flat. Without it, it parts from the other curves after 50 steps and falls towards 0.")

# %% [markdown]
# (Numbers are means over two runs with different random beginnings; the texts are those of the first.)
#
# The model without the mask has by far the better loss, on new sentences too, and it cannot continue a sentence: word
# by word it is no better than a guess. Validation did not warn us, because it hands over the answers as training
# does. With the mask, the two ways of asking agree.
#
# ## The idea in one picture
#
# These are the attention weights of the two models for one new sentence. A row is a query, the position that is to
# guess the next word; a column is a key, a word that it looks at. The framed cells are the answers.

# %%
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
    measure(f"{panel.get_title()}: weight on the answer, on average", answers, *((0, 0) if causal else (0.5, 1)))
panels[0].set_yticks(range(len(words) + 1), [f"{a} → {b}" for a, b in zip(["<s>", *words], [*words, "</s>"])])
panels[0].set_ylabel("query: last word read → word to guess")
figure.colorbar(panels[0].images[0], ax=panels, label="attention weight (grey: exactly 0)", shrink=0.8)
show(figure, "06_triangle", alt="Two maps of attention weights, rows are queries, columns are keys; the cell right of "
     "the diagonal, the answer, is framed in each row. Left, with the causal mask: everything above the diagonal is "
     "exactly zero and drawn grey, and a stepped lower triangle remains. Right, without: nearly all weight lies in the "
     "framed cells.")

# %% [markdown]
# The model on the right has learnt one thing: look one place ahead and copy. The one on the left has a stepped
# triangle to live in, and outside it the weights are not small but 0.
#
# ## The equation, and the same in code
#
# Let $z_{ts}$ be the scaled score of query $t$ and key $s$, and let $a_{ts}$ be 1 where the query may use the key and
# 0 where not. Softmax runs over the allowed keys alone:
#
# $$w_{ts} = \frac{a_{ts} e^{z_{ts}}}{\sum_u a_{tu} e^{z_{tu}}}$$
#
# There are two reasons to forbid a key.
#
# - **Causal**: the key is a word that the query must not know yet. Query $t$ may use the keys $s \le t$. If the $T$
#   queries are only the last of $S$ positions, as when a sentence is continued, the last query still sees all:
#   $s \le t + S - T$.
# - **Padding**: the key is no word. In a sentence of $n$ words, the keys are those with $s$ below $n$, counted from
#   0.
#
# In code, $a e^z$ is $e^z$ with $-\infty$ in place of $z$, as the paper does it.

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
# rows. The last two `np.where` serve a query that may use no key at all: its weights are 0, by rule. Why a rule is
# needed, the next section shows.
#
# ## Forward
#
# Three sentences of 5, 2 and 0 words, $S = 5$ keys, and $T = 3$ queries, the last three positions. The weights of the
# first head:

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
# sum below the fraction has then been taken over *all* keys, so the future turns the volume of the past up and down.
# Let the score of the last key grow, which only the last query may use:

# %%
past = allowed(T, S, causal=True)


def zero_afterwards(scores):
    return masked_softmax(scores, factor, np.True_) * past


def zero_and_divide(scores):
    weights = zero_afterwards(scores)
    return weights / weights.sum(axis=-1, keepdims=True)


future = scores + np.array([0, 0, 0, 0, 3.0])
for name, f, lo, hi in [("-inf before softmax", lambda scores: masked_softmax(scores, factor, past), 0, 0),
                        ("times 0 after softmax", zero_afterwards, 0.05, 0.3),
                        ("times 0 after softmax, rows divided by their sum", zero_and_divide, 0, 1e-15)]:
    measure(f"{name}: earlier queries move by", np.abs(f(future) - f(scores))[:, :, :-1].max(), lo, hi)
with np.errstate(invalid="ignore"):
    broken = np.isnan(zero_and_divide(scores + np.array([0, 0, 0, 0, 1e4])))[:, :, :-1].mean()
measure("the same, if the last score grows by 10,000: share of NaN in earlier queries", broken, 1, 1)

# %% [markdown]
# Dividing by the sum mends it, up to rounding, until a future score is so large that all allowed weights underflow to
# 0. Then it divides 0 by 0.
#
# **A query that may use nothing.** An empty sentence has no keys. In NumPy its row becomes $-\infty - (-\infty)$,
# which is NaN. To avoid that, much code adds a large negative number where we have $-\infty$. What comes of a row
# that is masked as a whole then depends on the number and on the precision:

# %%
def softmax(z):
    """As in lesson 05: no rule for rows of -inf."""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


fates, DTYPES = {}, ["float64", "float32", "float16"]
for fill in -1e4, -1e9, -math.inf:
    for dtype in DTYPES:
        z = np.array([1, -0.5, 0.3, 2, 0.1], dtype)
        with np.errstate(invalid="ignore", over="ignore"):
            w = softmax(z + np.array(fill).astype(dtype))
        fates[fill, dtype] = ("NaN" if np.isnan(w).any() else "all weights equal" if np.ptp(w) == 0 else
                              "as if unmasked" if np.abs(w - softmax(z)).max() < 1e-3 else "another")
    print(f"added {fill:6g}:   " + "    ".join(f"{fates[fill, dtype]} in {dtype}" for dtype in DTYPES))
measure("different fates of one masked row", len(set(fates.values())), 3, 3)

# %% [markdown]
# A number added to a whole row is a shift, and softmax does not see a shift: the mask has no effect at all. If the
# number is so large that the scores vanish in its rounding, all weights are equal, those of padding too. In float16
# there is no $-10^9$; it becomes $-\infty$.
#
# And NaN spreads. Take the batch from above, where the third sentence is empty and nothing of it enters the loss: its
# `dy` is 0. But $0 \cdot \mathrm{NaN}$ is NaN, and the gradient of a weight sums over all sentences:

# %%
x, dy = random.normal(size=(B, S, 4)), random.normal(size=(B, T, d_k)) * (lengths > 0)[:, None, None]
with np.errstate(invalid="ignore"):
    careless = softmax(np.where(may, factor * scores, -np.inf))
for name, w, lo, hi in ("softmax as it is", careless, 1, 1), ("with the rule", weights, 0, 0):
    dv = w[:, 0].swapaxes(1, 2) @ dy                           # y = w v and v = x W_V, as in lesson 04
    dW_V = np.einsum("bsi,bsj->ij", x, dv)
    measure(f"{name}: share of NaN in dW_V", np.isnan(dW_V).mean(), lo, hi)

# %% [markdown]
# One empty line in a corpus, and after one step every number of the weight is gone. Hence the rule of this library:
# *a query with nothing to look at gets weights 0, output 0 and gradient 0*.
#
# **The other half: shift right.** The triangle lets query $t$ see its own word. So its own word must not be the
# answer: what is read is what is to be written, moved one place to the right, with `<s>` in front.
#
# | position | 0 | 1 | 2 | ... | $n$ |
# | --- | --- | --- | --- | --- | --- |
# | read | `<s>` | $w_1$ | $w_2$ | ... | $w_n$ |
# | write | $w_1$ | $w_2$ | $w_3$ | ... | `</s>` |
#
# That is `shifted` above. `</s>` is never read, not even in the shorter sentences of a batch, and `<s>` never
# written.
#
# ## Backward
#
# Lesson 05 followed a score to the loss by two ways: to its own weight through the numerator, and to all weights
# through the common sum. What does a mask change?
#
# **A forbidden score** has no way at all. It was overwritten before anything read it, so $dz_{tr} = 0$.
#
# **An allowed score** $z_{tr}$ has the ways of lesson 05, among the allowed keys. Through the sum, every allowed
# $w_{ts}$ shrinks by $w_{ts} w_{tr}$; through the numerator, $w_{tr}$ grows by $w_{tr}$. Added up over the weights
# that it reaches:
#
# $$dz_{tr} = w_{tr} \left( dw_{tr} - \sum_{s \, \mathrm{allowed}} w_{ts} dw_{ts} \right)$$
#
# Now let the sum run over *all* keys: nothing changes, because a forbidden $s$ has $w_{ts} = 0$ and adds 0. Use the
# formula for a forbidden $r$: $w_{tr} = 0$ stands in front, and 0 is right. Use it in an empty row: all weights are
# 0, so is the gradient, and the output was constant there. One formula serves every case, and **the mask is not
# needed in backward**: the zeros of the weights remember it. (The factor before softmax comes last, as in lesson 05.)
#
# The rest of attention's backward stays as it is, but the triangle shows in it. Value $s$ enters output $t$ with the
# factor $w_{ts}$, so $dv_s = \sum_t w_{ts} dy_t$, and only the queries from $s$ on have a share. Words speak to later
# words; gradients come back from later words.

# %%
def masked_softmax_backward(dweights, weights, factor):
    """dweights, weights (B, H, T, S) -> dscores (B, H, T, S); the mask is in the weights"""
    average = (weights * dweights).sum(axis=-1, keepdims=True)
    return factor * weights * (dweights - average)


dweights = random.normal(size=(B, H, T, S))                    # not 0 where the mask forbids
dscores = masked_softmax_backward(dweights, weights, factor)
measure("largest gradient of a forbidden score", np.abs(dscores * ~may).max(), 0, 0)

triangle = masked_softmax(random.normal(size=(1, 1, 4, 4)), 1, allowed(4, 4, causal=True))
dtriangle = masked_softmax_backward(random.normal(size=(1, 1, 4, 4)), triangle, 1)
print("4 words: how many queries send a gradient to each value: ", (triangle != 0).sum(axis=2)[0, 0])
print("4 words: how many scores of each query receive a gradient:", (dtriangle != 0).sum(axis=3)[0, 0])
measure("queries that send a gradient to the last value", (triangle[..., -1] != 0).sum(), 1, 1)
measure("scores of the first query that receive a gradient", (dtriangle[:, :, 0] != 0).sum(), 0, 0)

# %% [markdown]
# The scores of the first query receive none: it has one key, whose weight is 1 whatever the score.
#
# ## Check
#
# Central differences in every score, the forbidden ones and the empty sentence included; then the library.

# %%
def numeric_gradient(f, array, h=1e-5):
    """As in lesson 01: central differences of f() in each element of `array`."""
    gradient = np.zeros_like(array)
    for index in np.ndindex(array.shape):
        original = array[index]
        array[index] = original + h
        above = f()
        array[index] = original - h
        gradient[index] = (above - f()) / (2 * h)
        array[index] = original
    return gradient


numeric = numeric_gradient(lambda: (masked_softmax(scores, factor, may) * dweights).sum(), scores)
error = np.abs(dscores - numeric).max() / np.abs(numeric).max()
measure("worst error, relative to the largest element", error, 0, 1e-8)
measure("largest numeric gradient of a forbidden score", np.abs(numeric * ~may).max(), 0, 0)

ops, heads_last = ops_of(scores), [array.swapaxes(1, 2) for array in (q, k, v)]                # (B, T, H, d_k)
y, _ = ScaledDotProductAttention().forward(*heads_last, Mask(lengths, causal=True))
differences = (may != Mask(lengths, causal=True).as_array(T, S)).sum()
measure("places in which the mask of this page and the library's differ", differences, 0, 0)
same("weights", weights, ops.masked_softmax(scores, factor, lengths, True))
same("dscores", dscores, ops.masked_softmax_backward(dweights, weights, factor))
same("the whole attention", weights @ v, y.swapaxes(1, 2))

# %% [markdown]
# So backward belongs to forward. Whether forward looks only where it may is another question, with a test of its own,
# the **flow test**: change one input, and see which outputs change. Not by how much: by a single bit.

# %%
def depends(f, x):
    """f: (B, S, ...) -> (B, T, D). -> bool (T, S): does output t change if input s does?"""
    y, found = f(x), []
    for s in range(x.shape[1]):
        changed = x.copy()
        changed[:, s] += 1
        found.append((f(changed) != y).any(axis=(0, 2)))
    return np.stack(found, axis=1)


def leaks(f, x):
    """Print which output (row) depends on which input (column). -> how many pairs lie above the diagonal"""
    found = depends(f, x)
    print("\n".join("    " + " ".join("x" if cell else "." for cell in row) for row in found))
    return np.triu(found, 1).sum()


read = test_read[:1, :5]
measure("causal mask: pairs of guess and later word", leaks(lambda ids: models[True, 0].forward(ids)[0], read), 0, 0)
measure("no causal mask", leaks(lambda ids: models[False, 0].forward(ids)[0], read), 10, 10)
changed = read + [0, 0, 0, 0, 1]
for causal, lo, hi in (True, 0, 0), (False, 1, 100):
    before, after = (models[causal, 0].forward(ids)[0][:, :-1] for ids in (read, changed))
    measure(f"causal={causal}: another last word moves earlier scores by up to", np.abs(after - before).max(), lo, hi)

# %% [markdown]
# The same for padding: eight more places, with anything in them, must not matter.

# %%
more_k, more_v = (np.concatenate([array, random.normal(size=(B, H, 8, d_k))], axis=2) for array in (k, v))
for name, key_lengths, lo, hi in ("masked", lengths, 0, 1e-14), ("not masked", None, 0.1, 3):
    longer = masked_softmax(q @ more_k.swapaxes(-1, -2), factor, allowed(T, S + 8, key_lengths)) @ more_v
    before = masked_softmax(scores, factor, allowed(T, S, lengths)) @ v
    measure(f"8 more places of padding, {name}: outputs move by", np.abs(longer - before).max(), lo, hi)

# %% [markdown]
# Why is the future exactly 0, and padding only up to rounding? A changed word leaves all shapes alone: the same
# additions in the same order, and a weight of 0 times any finite number is 0. With more places the same numbers may
# be added in another order, and the last digit differs. So demand equality of the first, and a small difference of
# the second.
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
measure("training loss, last 20 steps", np.mean(train(unshifted, not_shifted, seed=0)[-20:]), 0, 0.05)
repeats = [a == b for a, b in pairs_written(unshifted, begin=())]
measure("written words that repeat the word before", np.mean(repeats), 0.9, 1)
measure("pairs of a guess and a later word", leaks(lambda ids: unshifted.forward(ids)[0], read), 0, 0)

# %% [markdown]
# The task has become to copy what is read, and the model does so for ever. Note the last line: this model passes the
# flow test. Mask and shift are right only together. The mask says that $t$ sees up to $t$; the shift says that its
# answer is $t + 1$.
#
# One number convicts both mistakes. The first guess sees `<s>` and nothing else, so an honest model makes the same
# guess in every sentence. Averaged over sentences, its loss on the first word cannot be below the entropy of the
# first words, $-\sum_w f_w \ln f_w$ with their frequencies $f_w$, however long it is trained.

# %%
f = np.bincount(test_write[:, 0]) / len(test_write)
entropy = measure("entropy of the first words", -(f[f > 0] * np.log(f[f > 0])).sum(), 2.7, 3)
for name, model, read, lo, hi in [("mask and shift", models[True, 0], test_read, entropy, 4),
                                  ("no mask", models[False, 0], test_read, 0, 0.5),
                                  ("no shift", unshifted, test_write, 0, 0.5)]:
    loss_sum, n_words, _ = cross_entropy(model.forward(read)[0][:, 0], test_write[:, 0])
    measure(f"{name}: loss on the first word", loss_sum / n_words, lo, hi)

# %% [markdown]
# ## Experiment 2: a leak that every gradient check passes
#
# A decoder, the half of a translator that writes, looks at what the other half has made of the source, the `memory`.
# The decoder asks and the memory answers: queries from its own $x$, keys and values from `memory`. In one published
# NumPy Transformer, queries and keys come from the memory and the values from $x$ (`cross-attention-mixes-its-inputs`
# in [the ledger](../docs/correctness.md)). Every one of its layers passes a check by finite differences. Its notebook
# ends at a validation loss of 0.073 nats per character of Shakespeare with 44,902 parameters; nanoGPT, far larger,
# reports about 1.47 in its README. Here is such a layer, with its right backward:

# %%
class SwappedAttention(Layer):
    """x, memory (B, T, D) -> (B, T, D). Queries and keys from memory, values from x: the wrong way round."""

    def __init__(self, d_model, random):
        self.q, self.k, self.v = (Linear(d_model, d_model, random, "float64") for _ in range(3))
        self.attention = ScaledDotProductAttention()

    def forward(self, x, memory, mask=Mask(), rng=None):
        q, q_cache = self.q.forward(memory)
        k, k_cache = self.k.forward(memory)
        v, v_cache = self.v.forward(x)
        y, cache = self.attention.forward(q[:, :, None], k[:, :, None], v[:, :, None], mask)   # one head: (B, T, 1, D)
        return y[:, :, 0], (q_cache, k_cache, v_cache, cache)

    def backward(self, dy, caches):
        q_cache, k_cache, v_cache, cache = caches
        dq, dk, dv = (gradient[:, :, 0] for gradient in self.attention.backward(dy[:, :, None], cache))
        return self.v.backward(dv, v_cache), self.q.backward(dq, q_cache) + self.k.backward(dk, k_cache)


random = np.random.default_rng(0)
layer = DecoderLayer(ModelConfig(vocab_size=10, d_model=6, d_ff=11, h=2, P_drop=0.0), random, "float64")
x, memory = random.normal(size=(2, 2, 5, 6))                   # B = 2, T = S = 5, D = 6
for name, later in ("right", 0), ("swapped", 10):
    if name == "swapped":
        layer.cross_attention.sublayer = SwappedAttention(6, random)
    measure(f"decoder layer, {name}: worst error of its gradients", gradcheck(layer, x, memory).worst.error, 0, 1e-6)
    measure("outputs that depend on a later input", leaks(lambda x: layer.forward(x, memory)[0], x), later, later)

# %% [markdown]
# The layer's self-attention has its causal mask, and that mask is right. The future comes in by the other door:
# $y_t = \sum_s w_{ts} v_s$, where $v_s$ is made of $x_s$, and no mask stands before $s > t$. Finite differences
# compare backward with forward, so they cannot know that forward is the wrong function. (With source and target of
# different lengths the swapped layer does not run at all: one more reason for sizes that differ.)
#
# ## Check the claim
#
# > "The padding mask hides the padded positions."
#
# Positions of what? Of the keys, the columns, or of the queries, the rows? A public implementation masks *rows* in
# its decoder, and fills with $-10000$. Five words and three places of padding, with either mask and either fill,
# without a causal mask (as in an encoder) and with one (as in a decoder):

# %%
def self_attend(x, may, fill):
    """x (T, D) as queries, keys and values; no rule for empty rows"""
    with np.errstate(invalid="ignore"):
        return softmax(np.where(may, x @ x.T / math.sqrt(x.shape[1]), fill)) @ x


x, real, moves = random.normal(size=(8, 6)), np.arange(8) < 5, {}
for side, order in ("encoder", np.ones((8, 8), bool)), ("decoder", np.tri(8, dtype=bool)):
    for masked, may in ("nothing", order), ("columns", order & real), ("rows", order & real[:, None]):
        for fill in -1e4, -np.inf:
            y = self_attend(x, may, fill)
            moves[side, masked, fill] = np.abs(y[:5] - self_attend(x[:5], order[:5, :5], -np.inf)).max()
            print(f"{side}, {masked:7} masked, {fill:6g}:   words move by {moves[side, masked, fill]:7.1e}"
                  f"{'   NaN in the padded rows' if np.isnan(y).any() else ''}")
measure("encoder, rows masked: words move by", moves["encoder", "rows", -1e4], 0.1, 3)
measure("encoder, rows against nothing", moves["encoder", "rows", -1e4] - moves["encoder", "nothing", -1e4], 0, 0)
measure("encoder, columns masked", moves["encoder", "columns", -np.inf], 0, 1e-14)
measure("decoder, the worst of all six", max(moves[key] for key in moves if key[0] == "decoder"), 0, 1e-14)

# %% [markdown]
# Mask the **columns**. Masked rows protect nobody: the words read padding as if there were no mask. The fill of
# $-10000$ hides the mistake; with $-\infty$, NaN shows it at once.
#
# In the decoder the wrong mask did no harm, and there the table answers a second popular claim:
#
# > "The decoder needs a causal mask and a padding mask."
#
# Padding that stands at the end is in the future of every word, so the causal mask hides it already. What the padded
# rows compute, the loss passes over. The decoder of this library has a causal mask and no other.
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
#   [tests/nn/test_flow.py](../tests/nn/test_flow.py). [The ledger](../docs/correctness.md) lists leaks planted on
#   purpose, and which tests notice them.
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
# **Predict.** A causal self-attention of 512 positions: which share of the weights is forbidden, and how much of the
# product $Q K^T$ does the code on this page save by that?
#
# <details><summary>Answer</summary>
#
# $512 \cdot 511 / 2$ of $512^2$, which is 49.9 %. It saves nothing: all scores are computed, then half of them are
# overwritten. Fast kernels skip the blocks above the diagonal.
#
# </details>
#
# **Build** `06_masks`: the bool mask from lengths, causal or not, for $T$ queries and $S$ keys.
#
# **Backward** `06_masked_softmax_backward`: from `dweights` to `dscores`, with rows that have no key.
#
# **Build** `06_shift_right`: from sentences of different lengths to what is read and what is to be written.
#
# **Break** `06_find_the_leak`: write the flow test. It is tried on functions that leak in five ways, and on honest
# ones.
#
# ## Next
#
# One softmax makes one choice for each query. [Lesson 07](07_many_heads.py) gives a query several at a time.
