# %% [markdown]
# # 06 · Masks: what attention must not see
#
# *About 35 minutes. You need: [lesson 01](01_backprop.py) (gradients and how to check them), [lesson 04](04_soft_lookup.py) (queries, keys, values) and [lesson 05](05_scaling.py) (the backward pass of softmax). You will have: a masked softmax with its backward pass, the shift that belongs to it, and a test that finds leaks which no gradient check sees.*

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
from scratchformer.study.figures import ACCENT, COLOUR_MAP, DARK, LIGHT
from scratchformer.study.lesson import QUICK, ROOT, measure, same, show
from scratchformer.text.batches import EncodedPairs, Sequences
from scratchformer.text.tokenizer import BOS, EOS, PAD

# %% [markdown]
# ## Question
#
# **A sentence of $T$ words asks $T$ questions at once: what comes next? How do we answer all of them in one pass, when the answer to each stands in the input, one place further on?**
#
# The answer in one sentence: give every score that a query must not use the value $-\infty$ before softmax, and its weight is exactly 0, forward and backward.
#
# First see what happens without. Below, one attention layer learns to guess the next word of short English sentences from the bundled corpus. It reads `<s> the goat slept .` and is to write `the goat slept . </s>`: under each word, the one that follows it. Sentences of a batch differ in length, so the shorter ones are filled up with padding, whose id is 0. (`EncoderLayer` holds the attention of lesson 04 and some more that later lessons take apart; `Adam` is a better gradient descent. Only `Mask` matters here.)

# %%
def sentences(split, at_most):
    """Sentences of fewer than 10 words, as lists of words; a full stop is a word."""
    lines = (ROOT / f"data/tiny/{split}.en").read_text(encoding="utf-8").lower().splitlines()[:at_most]
    found = [re.findall(r"[\w'-]+|[.?!,]", line) for line in lines]
    return [words for words in found if len(words) < 10]


train_sentences = sentences("train", 10_000)
vocabulary = ["<pad>", "</s>", "<s>", *sorted({word for words in train_sentences for word in words})]
id_of = {word: i for i, word in enumerate(vocabulary)}
test_sentences = [words for words in sentences("test", 500) if all(word in id_of for word in words)]


def padded(rows):
    """Lists of ids -> (B, T), the shorter rows filled up with padding"""
    ids = np.full((len(rows), max(map(len, rows))), PAD)
    for row, tokens in zip(ids, rows):
        row[:len(tokens)] = tokens
    return ids


def questions_and_answers(some_sentences):
    """-> what is read (B, T), what is to be written (B, T)"""
    ids = [[id_of[word] for word in words] for words in some_sentences]
    return padded([[BOS, *row] for row in ids]), padded([[*row, EOS] for row in ids])


class NextWord(Layer):
    """ids (B, T) -> the scores of each word to be the next, (B, T, V)"""

    def __init__(self, causal, seed, d_model=48):
        init = np.random.default_rng(seed)
        config = ModelConfig(vocab_size=len(vocabulary), d_model=d_model, d_ff=2 * d_model, h=1, P_drop=0.0)
        words = Embedding.new_weight(len(vocabulary), d_model, init)
        self.embedding, self.positions, self.unembedding = Embedding(words), PositionalEncoding(), Unembedding(words)
        self.layer = EncoderLayer(config, init)
        self.causal, self.store = causal, ParameterStore(self.parameters())

    def forward(self, ids, rng=None):
        x, embedding_cache = self.embedding.forward(ids)                                       # (B, T, D)
        x, positions_cache = self.positions.forward(x)
        y, layer_cache = self.layer.forward(x, Mask(key_lengths=(ids != PAD).sum(axis=1), causal=self.causal))
        logits, unembedding_cache = self.unembedding.forward(y)
        return logits, (embedding_cache, positions_cache, layer_cache, unembedding_cache)

    def backward(self, dlogits, cache):
        embedding_cache, positions_cache, layer_cache, unembedding_cache = cache
        dx = self.layer.backward(self.unembedding.backward(dlogits, unembedding_cache), layer_cache)
        self.embedding.backward(self.positions.backward(dx, positions_cache), embedding_cache)


def train(model, data, seed, steps=250):
    """-> the loss of each step, in nats per word"""
    random, optimizer, losses = np.random.default_rng(seed), Adam(model), []
    for step in range(1, steps + 1):
        read, write = data([train_sentences[i] for i in random.integers(0, len(train_sentences), 32)])
        logits, cache = model.forward(read)
        loss_sum, n_words, dlogits = cross_entropy(logits, write)
        model.zero_grad()
        model.backward(dlogits / np.float32(n_words), cache)
        optimizer.step(0.005 * min(1, step / 50))
        losses.append(loss_sum / n_words)
    return losses


# %% [markdown]
# Two models that differ in one word, `causal`: with the mask, position $t$ sees the words up to its own; without, it sees the whole sentence. Each is asked about 200 new sentences in two ways. *All at once* is how validation is done: the whole sentence is the input. *Word by word* is how the model will be used: it gets the words up to $t$, and nothing after them exists yet.

# %%
test_read, test_write = questions_and_answers(test_sentences[:200])
known_pairs = {pair for words in train_sentences for pair in zip(words, words[1:])}
openings = [word for word, _ in Counter(words[0] for words in train_sentences).most_common(20)]


def all_at_once(model):
    loss_sum, n_words, _ = cross_entropy(model.forward(test_read)[0], test_write)
    return loss_sum / n_words


def word_by_word(model):
    results = [cross_entropy(model.forward(test_read[:, :t + 1])[0][:, t], test_write[:, t])
               for t in range(test_read.shape[1])]
    return sum(loss_sum for loss_sum, _, _ in results) / sum(n_words for _, n_words, _ in results)


def continued(model, first, begin=(BOS,), longest=12):
    """Greedy: write the most likely next word until the end symbol or 12 words. -> the words"""
    ids = [*begin, id_of[first]]
    while ids[-1] != EOS and len(ids) < longest + len(begin):
        ids.append(int(model.forward(np.array([ids]))[0][0, -1].argmax()))
    return [vocabulary[i] for i in ids[len(begin):] if i != EOS]


def known(texts):
    """The share of neighbouring words that stand side by side anywhere in the training text."""
    pairs = [pair for words in texts for pair in zip(words, words[1:])]
    return np.mean([pair in known_pairs for pair in pairs])


SEEDS = [0] if QUICK else [0, 1, 2]
models, curves = {}, {}
for causal, bands in (True, [(2, 3.2), (2.5, 3.6), (2.5, 3.6), (0.75, 1)]), \
        (False, [(0, 0.5), (0, 1.6), (6, 11), (0, 0.55)]):
    for seed in SEEDS:
        model = models[causal, seed] = NextWord(causal, seed)
        curves[causal, seed] = train(model, questions_and_answers, seed)
        print(f"--- {'causal mask' if causal else 'no causal mask'}, seed {seed}")
        measure("training loss, mean of the last 20 steps", np.mean(curves[causal, seed][-20:]), *bands[0])
        measure("new sentences, all at once", all_at_once(model), *bands[1])
        measure("new sentences, word by word", word_by_word(model), *bands[2])
        texts = [continued(model, first) for first in openings]
        measure("written words that ever stand side by side", known(texts), *bands[3])
        print("    " + "\n    ".join(" ".join(words) for words in texts[:3]))
measure("guessing among all words alike: ln V", math.log(len(vocabulary)), 6.3, 6.8)

# %%
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
for (causal, seed), losses in curves.items():
    axes.plot(np.convolve(losses, np.full(10, 0.1), "valid"), ls="-" if causal else "--", color=DARK if causal else ACCENT,
              label=None if seed else "with the causal mask" if causal else "without")
axes.axhline(math.log(len(vocabulary)), color="#888888", lw=0.8, ls=":")
axes.text(250, math.log(len(vocabulary)) + 0.1, "guessing", ha="right", fontsize=9, color="#444444")
axes.set(xlabel="step", ylabel="training loss, nats per word", ylim=(0, 7.5), title="The better curve is the broken model")
axes.legend(loc=(0.62, 0.62))
show(figure, "06_loss", alt="Training loss over 250 steps. With the causal mask it falls from 6.5 to between 2 and 3 nats and goes flat. Without it, it falls below 0.5 and goes on falling.")

# %% [markdown]
# The model without the mask has by far the better loss, on new sentences too, and it cannot continue a sentence at all: word by word it does worse than guessing. Validation did not warn us, because validation hands over the answers in the same way. With the mask, the two ways of asking agree.
