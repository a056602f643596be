# %% [markdown]
# # Lab notes 06 · Masks
#
# What [lesson 06](../06_masks.py) rests on: three runs of the two models and why one repeats itself; what happens if
# only the answer is hidden, or if the shift is forgotten; a leak that no gradient check finds; and zeros after softmax.

# %% Imports
import course  # noqa: F401  finds lessons/support
import math

import numpy as np

from scratchformer.nn.attention import CrossAttention, ScaledDotProductAttention
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.ops import using
from scratchformer.nn.parameter import Layer
from scratchformer.text.tokenizer import EOS
from support.lesson import QUICK, measure, table
from support.next_word import (
    FIRST_WORDS,
    NEW,
    TRAINING,
    VOCABULARY,
    Hiding,
    NextWord,
    all_at_once,
    mean_loss,
    share_followed,
    share_repeated,
    shifted,
    train,
    word_by_word,
)

SEEDS = [0] if QUICK else [0, 1, 2]
read, write = shifted(NEW)
measure("training sentences, of fewer than 10 words", len(TRAINING), 5492, 5492)
measure("guessing blindly among all words: ln V", math.log(len(VOCABULARY)), 6.54, 6.55)

# %% [markdown]
# ## Experiment 1: without the mask
#
# The two models of the page differ in one argument, `causal`. Embeddings of 48 numbers, sinusoidal positions, one layer
# with one head, 250 steps of 24 sentences ([support/next_word.py](../support/next_word.py)), three runs each from
# random starts. *Follows*: where the next word is exchanged for that of another sentence, how many guesses become that
# other word? A can't see it, so its share is chance. *Repeats*: of the words that a model writes after the 41 first
# words, how many repeat the word before, if it may look at any word, not at the same word, or at nothing?

# %%
def repeated(model, sees, begin=("<s>",)):
    """Share of repetitions in texts if attention may use only what sees allows"""
    texts = []
    for first in FIRST_WORDS:
        ids = [VOCABULARY.index(word) for word in (*begin, first)]
        while ids[-1] != EOS and len(ids) < 12:
            words = np.array(ids)
            with using(Hiding(lambda t, s: sees(words[t], words[s]))):
                ids.append(int(all_at_once(model, words[None])[0, -1].argmax()))
        texts.append(ids[len(begin):])
    return share_repeated(texts)


def loss_without(model, distance):
    """The loss if position t may not look at position t + distance"""
    with using(Hiding(lambda t, s: s != t + distance)):
        return mean_loss(all_at_once(model, read), write)


models, losses, texts = {}, [], []
for seed in SEEDS:
    for name in "A, mask", "B, no mask":
        model = models[name, seed] = NextWord(name == "A, mask", seed)
        train(model, shifted, seed)
        found = [*(mean_loss(way(model, read), write)
                   for way in (all_at_once, word_by_word)), loss_without(model, 1)]
        follows = share_followed(model, read)
        losses.append([f"{name}, run {seed}", *(f"{loss:.2f}" for loss in found),
                       f"{follows:.0%}"])
        shares = [repeated(model, lambda word, other: other >= 0 * word),
                  repeated(model, lambda word, other: other != word),
                  repeated(model, lambda word, other: other < 0 * word)]
        texts.append([f"{name}, run {seed}", *(f"{share:.0%}" for share in shares)])
        if name == "A, mask":
            assert abs(found[0] - found[1]) < 1e-9 and follows < 0.1
            assert shares[0] < 0.15 and shares[2] < 0.3
        else:
            assert found[0] < 0.7 and min(found[1:]) > 5.5 and follows > 0.6
            assert min(shares[0], shares[2]) > 0.6
table(["loss on new sentences", "all at once", "word by word", "t + 1 hidden",
       "follows"], losses)
table(["repeats, if it may look at", "any word", "another word", "nothing"], texts)

# %% [markdown]
# B needs the next word, and copies it. Going around attention, on the residual connection, is enough for B to repeat
# nearly as much as before. To forbid only the same word disturbs both models: A then repeats more, B less.
#
# ## Experiment 2: hide the answer only
#
# The cell $t + 1$ is closed, during training and in use, and every other cell is open. One layer and two.

# %%
for N in (1,) if QUICK else (1, 2):
    model = NextWord(causal=False, seed=0, N=N)
    with using(Hiding(lambda t, s: s != t + 1)):
        train(model, shifted, seed=0)
        once, later = (mean_loss(way(model, read), write)
                       for way in (all_at_once, word_by_word))
    measure(f"N = {N}: all at once", once, *((2.3, 3.1) if N == 1 else (1.3, 2.6)))
    measure(f"N = {N}: word by word", later, 4, 10)
    for away in (2, 3, 4) if N == 2 else ():
        with using(Hiding(lambda t, s: (s != t + 1) & (s != t + away))):
            loss = mean_loss(all_at_once(model, read), write)
        measure(f"N = {N}: all at once, t + {away} hidden, too", loss, 2, 4.5)

# %% [markdown]
# One layer fills in the blank about as well as model A guesses the next word, but leans on words that don't exist in
# use. Two layers find a detour to the closed word: a third position looks at it in the first layer, and position $t$
# looks there in the second. There isn't one single detour, since closing any of three positions costs something. The
# triangle closes all of them.
#
# ## Experiment 3: forget the shift
#
# The causal mask stands, but the model reads the very words that it has to write.

# %%
model = NextWord(causal=True, seed=0)
train(model, lambda some: (shifted(some)[1],) * 2, seed=0, steps=100)
share = repeated(model, lambda word, other: other >= 0 * word, begin=())
measure("loss on its own task", mean_loss(all_at_once(model, write), write), 0, 0.1)
measure("share of written words that repeat the last", share, 0.9, 1)

# %% [markdown]
# No flow test finds this, since no output depends on a later input. But the first guess sees `<s>` only, so an honest
# mean loss on the first word can't be below the entropy of the first words:

# %%
p = np.bincount(write[:, 0]) / len(write)
entropy = -(p[p > 0] * np.log(p[p > 0])).sum()
measure("entropy of the first words", entropy, 2.7, 3)
for name, which, ids, lo, hi in (
        ("mask and shift", models["A, mask", 0], read, entropy, 4),
        ("no mask", models["B, no mask", 0], read, 0, 0.5),
        ("no shift", model, write, 0, 0.5)):
    first = mean_loss(all_at_once(which, ids)[:, 0], write[:, 0])
    measure(f"{name}: loss on the first word", first, lo, hi)

# %% [markdown]
# ## Experiment 4: a leak that passes the gradient check
#
# In cross-attention `x` asks, and `memory` gives keys and values. In one published NumPy Transformer the memory gives
# queries and keys, and `x` the values (`cross-attention-mixes-its-inputs` in [the correctness
# report](../../docs/correctness.md)). Here it is, without its weight matrices:

# %%
class SwappedAttention(Layer):
    """Queries and keys from memory, values from x: the wrong way round

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


def leaks(layer, x, memory):
    """How many pairs of an output and a later input on which it depends?"""
    y, found = layer.forward(x, memory)[0], 0
    for s in range(x.shape[1]):
        changed = x.copy()
        changed[:, s] = random.normal(size=x[:, s].shape)
        moved = np.abs(layer.forward(changed, memory)[0] - y) > 1e-9
        found += moved.any(axis=(0, 2))[:s].sum()
    return found


random = np.random.default_rng(1)
x, memory = random.normal(size=(2, 2, 5, 6))  # B = 2, T = S = 5, D = 6
for name, layer, later in (("right", CrossAttention(6, 2, random, "float64"), 0),
                           ("swapped", SwappedAttention(), 10)):
    measure(f"{name}: worst error of its gradients",
            gradcheck(layer, x, memory).worst.error, 0, 1e-6)
    measure(f"{name}: pairs of an output and a later input", leaks(layer, x, memory),
            later, later)

# %% [markdown]
# With source and target of different lengths the swapped layer does not run at all: one more reason to test with sizes
# that differ.
#
# ## Experiment 5: zero after softmax
#
# Let the score of the last key, which only the last query may use, grow by 3. Do the weights of the earlier queries
# move? The third way divides by the sum again: right on paper, until a future score is larger by 800.

# %%
scores, may = random.normal(size=(18, 3, 5)), np.tri(3, 5, 2, dtype=bool)


def softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def again(z):
    weights = softmax(z) * may
    return weights / weights.sum(axis=-1, keepdims=True)


for name, f, *band in (
        ("−∞ before softmax", lambda z: softmax(np.where(may, z, -np.inf)), 0, 0),
        ("times 0 after softmax", lambda z: softmax(z) * may, 0.05, 0.9),
        ("times 0, then divided by the sum", again, 0, 1e-15)):
    moved = np.abs(f(scores + np.array([0, 0, 0, 0, 3.0])) - f(scores))[:, :-1].max()
    measure(f"{name}: weights of the earlier queries move by", moved, *band)
with np.errstate(invalid="ignore"):
    nan = np.isnan(again(scores + np.array([0, 0, 0, 0, 800.0]))).any(axis=-1)
measure("times 0, then divided, + 800: rows with NaN, of 54", nan.sum(), 36, 36)
