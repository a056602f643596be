# %% [markdown]
# # Lab notes 04 · Soft lookup
#
# The experiments, controls and derivations behind [lesson 04](../04_soft_lookup.py): how the temperature leads from the
# average to the dictionary, which tables have to learn, what a map of weights shows and what it doesn't, the backward
# pass of the whole layer, and a claim about order.

# %%
import course  # noqa: F401  finds lessons/support
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.nn.attention import ScaledDotProductAttention
from support.drawing import Drawing
from support.lesson import QUICK, ROOT, measure, same, show, table
from support.noun_lookup import Lookup, noun_task
from support.numeric import numeric_gradient


def softmax(z):
    """z (..., S) -> weights (..., S), each row positive and of sum 1"""
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(q, k, v, temperature=None):
    """q (T, d_k), k (S, d_k), v (S, d_v) -> y (T, d_v), weights (T, S)

    temperature  what the scores are divided by; the paper's is sqrt(d_k)
    """
    weights = softmax(q @ k.T / (temperature or math.sqrt(q.shape[-1])))
    return weights @ v, weights


def attention_backward(dy, q, k, v, weights):
    """dy (T, d_v) -> dq (T, d_k), dk (S, d_k), dv (S, d_v)"""
    dweights = dy @ v.T
    average = (weights * dweights).sum(axis=-1, keepdims=True)
    dscores = weights * (dweights - average) / math.sqrt(q.shape[-1])
    return dscores @ k, dscores.T @ q, weights.T @ dy


# %% [markdown]
# ## From the average to the dictionary
#
# The number that the scores are divided by is called the **temperature**. Here are the weights of one query for five
# keys at four temperatures.

# %% The figure
scores = np.array([1.1, 2.0, 0.3, 1.6, -0.9])
figure, axes = plt.subplots(1, 4, figsize=(8, 2.6), sharey=True, layout="constrained")
for panel, temperature in zip(axes, (10, 1, 0.25, 0.01)):
    weights = softmax(scores / temperature)
    colours = [ACCENT if s == 1 else DARK for s in range(5)]
    bars = panel.bar(range(1, 6), weights, color=colours)
    panel.bar_label(bars, fmt="%.2f", fontsize=9)
    panel.set(title=f"temperature {temperature:g}", xlabel="key", ylim=(0, 1.12))
    panel.set_xticks(range(1, 6))
axes[0].set_ylabel("weight")
show(figure, "04_lab_temperature",
     alt="Weights of five keys at four temperatures. At 10 all are near 0.2; at 1 the "
     "second key leads with 0.43; at 0.25 it has 0.81; at 0.01 it has 1 and the "
     "others 0.",
     caption="The hotter, the nearer to the average of all values; the colder, the "
     "nearer to a dictionary.")

# %% [markdown]
# How often does the answer of the *hard* dictionary change when the question changes? We ask 200 questions, with nine
# keys of 8 numbers. Each of the 1,600 numbers of the questions is moved up and down a little, one at a time.

# %%
random = np.random.default_rng(0)
q, k, v = (random.normal(size=size) for size in ((200, 8), (9, 8), (9, 5)))


def best_key(questions):
    return (questions @ k.T).argmax(axis=1)


def answers_that_change(move):
    steps = move * np.eye(8)
    return sum(np.sum(best_key(q + step) != best_key(q - step)) for step in steps)


table(["moved by", "trials in which the answer changed"],
      [[move, f"{answers_that_change(float(move[1:]))} of 1,600"]
       for move in ("±0.00001", "±0.001", "±0.1")])

# %% [markdown]
# Small moves change nothing, so the gradient is zero nearly everywhere; a large move sometimes lets another key win,
# and then the answer jumps. Now the soft lookup with the same questions and keys. Cold enough, it is the hard one. And
# at the temperature of equation 1, do its answers notice a step of 0.00001?

# %%
hard = v[best_key(q)]
difference = np.abs(attention(q, k, v, 0.0001)[0] - hard).max()
measure("temperature 0.0001: largest difference from hard", difference, 0, 1e-12)
steps = 1e-5 * np.eye(8)
moves = [np.any(attention(q + step, k, v)[0] != attention(q - step, k, v)[0], axis=1)
         for step in steps]
measure("temperature √8: share of numbers noticed", np.mean(moves), 0.99, 1)

# %% [markdown]
# ## Experiment 1: what has to learn?
#
# The task of the lesson: given an English sentence and a German noun of its translation, return the code of the English
# noun that it translates. Codes are fixed random vectors of 32 numbers; queries (one for each German noun), keys and
# values (for each English word) are learned, at random to begin with. The loss is half the squared distance between
# answer and code, so $dy = y - code$. Every sentence has at least two nouns, so that the query matters.
#
# Four lookups get the same sentences, six passes, in the same order. Each has the best learning rate of 0.03, 0.1, 0.3,
# 1, 2, 3, 4 and 6, judged on the training sentences (with 10, *mean* diverges). *frozen* is the control for the
# lesson's sentence: it's soft, but its queries and keys stay as they were at the start, at random.

# %%
task = noun_task(ROOT / "data" / "tiny")
print(f"{len(task.train)} sentences to learn from, {len(task.test)} new ones; "
      f"{len(task.english)} English words, {len(task.german)} German nouns")
RATES = {"soft": 2, "frozen": 2, "mean": 6, "hard": 0.1}
shares, losses, lookups, hard_looks = {}, {}, {}, []


def hard_found(lookup, sentences):
    """For each noun: the word of the best key, the right word, the answer"""
    found = []
    for source, pairs in sentences:
        _, _, _, y, weights = lookup.look((source, pairs))
        answers = lookup.nearest((source, pairs), y)
        found += [(source[best], source[i], source[answer])
                  for best, (_, i), answer
                  in zip(weights.argmax(axis=1), pairs, answers)]
    return found


for way, rate in RATES.items():
    for seed in 0, 1, 2:
        lookup = Lookup(task, way, seed, attention, attention_backward)
        losses.setdefault(way, []).append(lookup.train(6, rate, seed))
        shares.setdefault(way, []).append(lookup.accuracy(task.test))
        lookups.setdefault(way, lookup)
        if way == "hard":
            wanted = {(best, word) for best, word, _ in hard_found(lookup, task.train)}
            hard_looks += [(best == word, answer == word, (best, word) in wanted)
                           for best, word, answer in hard_found(lookup, task.test)]
table(["lookup", "rate", "loss, pass 1", "loss, pass 6", "right: seeds 0, 1, 2"],
      [[way, rate, f"{losses[way][0][0]:.2f}", f"{losses[way][0][-1]:.2f}",
        " ".join(f"{share:.0%}" for share in shares[way])]
       for way, rate in RATES.items()])
measure("soft: right, worst seed", min(shares["soft"]), 0.78, 0.95)
for way in "frozen", "mean", "hard":
    measure(f"{way}: right, best seed", max(shares[way]), 0.2, 0.55)
nouns_in_a_sentence = np.mean([len(pairs) for _, pairs in task.test])
measure("nouns in a sentence", nouns_in_a_sentence, 2.2, 2.3)
measure("right if a noun of the sentence is taken at random", task.chance, 0.44, 0.45)
measure("right if any word of it is taken at random",
        np.mean([1 / len(source) for source, pairs in task.test for _ in pairs]),
        0.1, 0.106)
known = {noun for _, pairs in task.train for noun, _ in pairs}
measure("new sentences: German nouns that occur in training",
        np.mean([noun in known for _, pairs in task.test for noun, _ in pairs]),
        0.95, 0.97)
looks_right, is_right, was_wanted = np.array(hard_looks).T
measure("hard: looks at the right word, mean of the seeds",
        looks_right.mean(), 0.08, 0.14)
measure("hard: right answers that come from a wrong word",
        (is_right & ~looks_right).sum() / is_right.sum(), 0.55, 0.75)
measure("wrong word, asked for the right code in training: right",
        is_right[~looks_right & was_wanted].mean(), 0.22, 0.42)
measure("wrong word, never asked for it: right",
        is_right[~looks_right & ~was_wanted].mean(), 0.06, 0.15)
size = np.linalg.norm(lookups["mean"].values, axis=1)
ratio = size[task.nouns].mean() / size[task.others].mean()
measure("mean: length of a noun's value, over that of another word", ratio, 1.8, 4)

# %% [markdown]
# *mean* reaches what somebody reaches who knows the nouns of the sentence and guesses one: its values are larger for
# nouns, so its blend is made of nouns. *hard* is the worst: it reads one word only, seldom the right one, and learns
# nothing about which. Of its right answers, 64 % come from a wrong word. If the value of that word had to give the
# right code in training, too, the answer is right in 31 % of the cases; if not, in 10 %, as by chance. (Xu et al.
# 2015, "Show, Attend and Tell", train a hard lookup by other means: they sample a position and estimate the gradient
# from the outcome.)
#
# *frozen* shows that the softmax alone does not find the word. Which tables have to learn? We freeze each of the three,
# and two of them. And perhaps *frozen* only has the wrong temperature, so that its weights at random are too sharp? We
# give it others. Rates: 2 where the values learn (the best of 0.3, 1, 2 and 4 in training), 4 where they don't; for
# *frozen* at temperature 1, 0.3 (the best of 0.3, 1 and 2).

# %%
def at_temperature(t):
    """Attention and its backward pass with another number instead of sqrt(d_k)"""
    def forward(q, k, v):
        return attention(q, k, v, t)

    def backward(dy, q, k, v, weights):
        factor = math.sqrt(q.shape[-1]) / t
        dq, dk, dv = attention_backward(dy, q, k, v, weights)
        return factor * dq, factor * dk, dv

    return forward, backward


def learning_only(which):
    """The backward pass with gradient 0 for all other tables"""
    def backward(dy, q, k, v, weights):
        gradients = attention_backward(dy, q, k, v, weights)
        return [table * (name in which) for name, table in zip("qkv", gradients)]

    return attention, backward


runs = [0] if QUICK else [0, 1, 2]
trials = [("queries and values", "soft", learning_only("qv"), 2, (0.72, 0.9)),
          ("keys and values", "soft", learning_only("kv"), 2, (0.72, 0.9)),
          ("queries and keys", "soft", learning_only("qk"), 4, (0.05, 0.35)),
          ("values, temperature 16", "frozen", at_temperature(16), 2, (0.35, 0.55)),
          ("values, temperature 4", "frozen", at_temperature(4), 2, (0.33, 0.55)),
          ("values, temperature 1", "frozen", at_temperature(1), 0.3, (0.2, 0.45))]
for name, way, (forward, backward), rate, band in trials:
    for seed in runs:
        lookup = Lookup(task, way, seed, forward, backward)
        lookup.train(6, rate, seed)
        measure(f"learn: {name}; right, seed {seed}", lookup.accuracy(task.test), *band)

# %% [markdown]
# So not all three tables have to learn. With values and queries, or values and keys, about 80 % are right, against 84
# to 87 % with all three, and about 43 % with values only. Queries and keys without values do no good: an answer that is
# made of values at random is near no code. And no temperature helps the frozen lookup: hotter it comes near *mean*,
# colder it comes near *hard*.
#
# ## Experiment 2: the map and the answer
#
# Where does the soft lookup of seed 0 look? Here is one new sentence:

# %% Drawing what was learned
sentence = task.test[3]
source, pairs = sentence
weights = lookups["soft"].look(sentence)[4]
drawing = Drawing(740, 250)
widths = [8 + 6 * len(word) for word in source]
gap = (700 - sum(widths)) / (len(source) - 1)
xs = [20 + sum(widths[:i]) + width / 2 + i * gap for i, width in enumerate(widths)]
for x, word in zip(xs, source):
    drawing.text(x, 125, word, size=12)
for (noun, right), y, sign in zip(pairs, (30, 220), (1, -1)):
    row = weights[pairs.index((noun, right))]
    box = drawing.box(xs[right], y, noun, "query", 90, 32)
    for x, weight in zip(xs, row):
        if weight > 0.02:
            start, end = (box.bottom if sign > 0 else box.top), (x, 125 - 12 * sign)
            drawing.thread(start, end, weight, "ink", thickest=16)
    for x, weight in zip(xs, row):
        if weight > 0.08:
            drawing.rectangle(x, 125 - 26 * sign, 30, 15, "paper", 1, outline=False)
            drawing.text(x, 125 - 26 * sign, f"{weight:.2f}", size=12)
show(drawing, "04_lab_learned",
     alt="The German nouns Spiegel and Koffer above and below the sentence: the "
     "mirror does not fit into the suitcase because it is too bulky. The thickest "
     "thread of Spiegel leads to mirror, that of Koffer to suitcase.",
     caption="Where the soft lookup looks for *Spiegel* (above) and *Koffer* (below). "
     "Weights below 0.02 are left out.")

# %% [markdown]
# On all new sentences: where is its largest weight, and is its answer right?

# %%
learned = lookups["soft"]
looks, blind = [], []
for sentence in task.test:
    source, pairs = sentence
    _, _, v, y, weights = learned.look(sentence)
    is_noun = np.isin(learned.rows(sentence)[1], task.nouns)
    output = learned.nearest(sentence, y)
    without = learned.nearest(sentence, (weights * is_noun) @ v)
    looks += [(w.argmax() == i, not is_noun[w.argmax()],
               source[a] == source[i], source[b] == source[i])
              for (_, i), w, a, b in zip(pairs, weights, output, without)]
    is_word = np.array([[word == source[i] for word in source] for _, i in pairs])
    without = learned.nearest(sentence, (weights * ~is_word) @ v)
    blind += [source[a] == source[i] for (_, i), a in zip(pairs, without)]
largest, elsewhere, right, right_without = np.mean(looks, axis=0)
measure("the answer is right", right, 0.78, 0.95)
measure("the largest weight is on the right word", largest, 0.65, 0.82)
measure("the largest weight is on a word that is no noun", elsewhere, 0.12, 0.28)
measure("the answer is right if these words are left out", right_without, 0.72, 0.83)
on_it, off, is_right, _ = np.array(looks).T
elsewhere = is_right & ~on_it
measure("right, but the largest weight is on another word",
        elsewhere.mean(), 0.06, 0.15)
measure("still right then if the right word is left out of the blend",
        np.array(blind)[elsewhere].mean(), 0.55, 0.85)
measure("right if the largest is on a noun", is_right[off == 0].mean(), 0.9, 0.98)
measure("right if it is on another word", is_right[off == 1].mean(), 0.35, 0.58)


# %% [markdown]
# Is a strange map the *cause* of the wrong answers? Look at the sentences that the lookup learned from:

# %%
looks = []
for sentence in task.train:
    source, pairs = sentence
    y, weights = learned.look(sentence)[3:]
    is_noun = np.isin(learned.rows(sentence)[1], task.nouns)
    looks += [(not is_noun[w.argmax()], source[a] == source[i])
              for (_, i), w, a in zip(pairs, weights, learned.nearest(sentence, y))]
off, is_right = np.array(looks).T
measure("training: the largest weight is on no noun", off.mean(), 0.1, 0.25)
measure("training: right in these cases", is_right[off].mean(), 0.95, 1)

# %% [markdown]
# There the map is strange nearly as often (16 % against 21 %), and 99 % of these answers are right. We think that the
# lookup has memorized these sentences: the other words that stood beside a noun are its hints at the noun, and in a new
# sentence these hints mislead. (We have not tested this.) How can a word that is no noun help? By its value:

# %%
def cosines(vectors, others):
    """(n, d), (m, d) -> (n, m)"""
    lengths = np.linalg.norm(vectors, axis=1)[:, None] * np.linalg.norm(others, axis=1)
    return vectors @ others.T / lengths


codes = learned.codes[task.nouns]
own = np.diag(cosines(learned.values[task.nouns], codes))
measure("cosine of a noun's value and its own code", own.mean(), 0.7, 0.9)
nearest = cosines(learned.values[task.others], codes).max(axis=1)
measure("cosine of another value and the nearest code", nearest.mean(), 0.65, 0.85)
frozen = cosines(lookups["frozen"].values[task.others], codes).max(axis=1)
measure("the same in frozen", frozen.mean(), 0.62, 0.8)
at_random = random.normal(size=(len(task.others), codes.shape[1]))
chance = cosines(at_random, codes).max(axis=1)
measure("the same, if the value were random", chance.mean(), 0.4, 0.55)

# %% [markdown]
# The answer is right in 84 % of the cases, and the largest weight in 74 %. In a fifth of the cases the largest weight
# lies on a word that is no noun (to be exact: that was never an answer in training; a few of these are names, months,
# or nouns that only stand in new sentences). In new sentences 45 % of these answers are right, as many as by a guess,
# against 94 % elsewhere; in training sentences 99 % are. Leave all those words out of the blend of new sentences, and
# fewer answers are right: 79 %. So their values are of use. They resemble the codes of nouns, but so do the values of
# *frozen*, which never learned where to look: the loss alone brings that. The map shows which key was found, and not
# what came back.
#
# A tenth of all answers are right although the largest weight lies on another word. Leave the *right* word out of these
# blends, and 70 % of the answers stay right: the values of the other words make them.
#
# ## The backward pass of the layer
#
# A layer of attention has three weight matrices and reads two arrays: $x$, what asks, (T, D), and the memory $m$, what
# is asked, (S, D). With $Q = x W_Q$, $K = m W_K$, $V = m W_V$, $x$ reaches the output by *one* way, through the
# queries; $m$ by *two*, as key and as value, and the two add up:
#
# $$dx = dQ \, W_Q^T \qquad dm = dK \, W_K^T + dV \, W_V^T$$
#
# $$dW_Q = x^T dQ \qquad dW_K = m^T dK \qquad dW_V = m^T dV$$
#
# In self-attention both arrays are the same $x$, which is used three times: its gradient is $dx + dm$.

# %% Drawing the three matrices
def matrices_picture():
    drawing = Drawing(720, 330)
    rows = (60, "x", 1, "(T, D)", "query", "W_Q", "Q", "(T, d_k)", 2), \
           (165, "m", 3, "(S, D)", "key", "W_K", "K", "(S, d_k)", 2), \
           (275, "m", 3, "(S, D)", "value", "W_V", "V", "(S, d_v)", 2)
    for y, name, words, shape, role, matrix, result, result_shape, width in rows:
        source = drawing.matrix(190, y, [[""] * 4] * words, "plain", 22, 20)
        names = ["it"] if words == 1 else ["the", "street", "animal"]
        for i, word in enumerate(names):
            drawing.text(134, source.cell(0, i).y, word, anchor="end", size=13)
        drawing.text(40, y, name, bold=True)
        drawing.text(40, y + 18, shape, "soft", 12)
        drawing.text(262, y, "×", size=18)
        drawing.matrix(320, y, [[""] * width] * 4, "plain", 22, 20)
        drawing.text(390, y, matrix, bold=True, anchor="start")
        drawing.text(390, y + 18, f"(D, {result_shape[4:]}", "soft", 12, "start")
        drawing.text(462, y, "=", size=18)
        drawing.matrix(525, y, [[""] * width] * words, role, 32, 24)
        drawing.text(590, y - 6, result, bold=True, anchor="start")
        drawing.text(590, y + 12, result_shape, "soft", 12, "start")
    return drawing


show(matrices_picture(), "04_lab_matrices",
     alt="Three products. The vector of the word it times W_Q is its query. The "
     "vectors of the, street and animal times W_K are their keys, and times W_V their "
     "values.",
     caption="Three learned matrices make queries, keys and values. A row is a word; "
     "the same matrix serves every word. Here $T = 1$, $S = 3$, $D = 4$, $d_k = d_v = "
     "2$.")

# %%
def layer(x, memory, W_Q, W_K, W_V):
    """x (T, D), memory (S, D), W_Q and W_K (D, d_k), W_V (D, d_v) -> y (T, d_v)"""
    return attention(x @ W_Q, memory @ W_K, memory @ W_V)[0]


def layer_backward(dy, x, memory, W_Q, W_K, W_V):
    """dy (T, d_v) -> dx (T, D), dmemory (S, D), dW_Q, dW_K, dW_V"""
    q, k, v = x @ W_Q, memory @ W_K, memory @ W_V
    dq, dk, dv = attention_backward(dy, q, k, v, attention(q, k, v)[1])
    dmemory = dk @ W_K.T + dv @ W_V.T
    return dq @ W_Q.T, dmemory, x.T @ dq, memory.T @ dk, memory.T @ dv


# %% [markdown]
# All sizes differ, `dy` is random, and every gradient meets its central differences.

# %%
def relative_error(analytic, numeric):
    """The largest difference, over the largest element of either."""
    largest = max(np.abs(analytic).max(), np.abs(numeric).max())
    return np.abs(analytic - numeric).max() / largest


T, S, D, d_k, d_v = 3, 5, 6, 7, 4
x, memory, dy = (random.normal(size=size) for size in ((T, D), (S, D), (T, d_v)))
W_Q, W_K, W_V = (random.normal(size=(D, columns)) for columns in (d_k, d_k, d_v))
arrays = {"x": x, "memory": memory, "W_Q": W_Q, "W_K": W_K, "W_V": W_V}
for (name, array), gradient in zip(arrays.items(), layer_backward(dy, **arrays)):
    def loss(moved):
        return (layer(**arrays | {name: moved}) * dy).sum()

    difference = relative_error(gradient, numeric_gradient(loss, array))
    measure(f"cross-attention, d{name}: relative error", difference, 0, 1e-8)
numeric = numeric_gradient(lambda x: (layer(x, x, W_Q, W_K, W_V) * dy).sum(), x)
of_queries, of_memory, *_ = layer_backward(dy, x, x, W_Q, W_K, W_V)
both = relative_error(of_queries + of_memory, numeric)
measure("self-attention, dx: relative error", both, 0, 1e-8)
one = relative_error(of_memory, numeric)
measure("self-attention, dx without the way through the queries", one, 0.05, 2)

# %% [markdown]
# The library works on $B$ sentences and $H$ heads at once, (B, T, H, d_k); here both are 1.

# %%
def heads(array):
    return array[None, :, None, :]                     # (T, d_k) -> (1, T, 1, d_k)


q, k, v = x @ W_Q, memory @ W_K, memory @ W_V
y, weights = attention(q, k, v)
library = ScaledDotProductAttention()
theirs, cache = library.forward(heads(q), heads(k), heads(v))
same("y: ours and the library's", heads(y), theirs)
gradients = attention_backward(dy, q, k, v, weights)
theirs = library.backward(heads(dy), cache)
for name, ours, gradient in zip(("dq", "dk", "dv"), gradients, theirs):
    same(f"{name}: ours and the library's", heads(ours), gradient)

# %% [markdown]
# A gradient check doesn't see which array goes where: the gradient of the wrong function is right. A public NumPy
# Transformer mixes up the two sides of its cross-attention ([the account](../../docs/correctness.md)); the exercise
# `04_cross_attention` is made of that bug.
#
# The layer differs from the library's `SelfAttention` and `CrossAttention`, which have several heads, masks, biases,
# the map $W_O$ at the end, and dropout on the weights if asked for (§5.4 of the paper drops elsewhere).
#
# ## Three choices, and their reasons
#
# - *A dot product, not a distance.* One matrix product gives all scores, and among keys of the same length the one with
#   the largest dot product is also the nearest.
# - *The exponential, not any positive function.* It turns a difference of scores into a ratio of weights, so that only
#   differences count, and its derivative keeps the backward pass short.
# - *A key and a value, not one vector.* What a word is found by need not be what is wanted of it: *Hund* must find
#   *dog*, and then know more than that it is *dog*.
#
# ## Check the claim
#
# > "Self-attention is permutation invariant: it does not see the order of the words."
#
# *Invariant* would mean that a permuted input gives the same output. Permute the rows of `x` and see:

# %%
T, D = 6, 5
x, order = random.normal(size=(T, D)), np.array([3, 0, 5, 1, 4, 2])
maps = random.normal(size=(3, D, D))
y, permuted = layer(x, x, *maps), layer(x[order], x[order], *maps)
measure("invariant? relative difference from y", relative_error(permuted, y), 0.1, 3)
measure("equivariant? relative difference from y, its rows permuted alike",
        relative_error(permuted, y[order]), 0, 1e-14)
measure("only the memory permuted: relative difference from y",
        relative_error(layer(x, x[order], *maps), y), 0, 1e-14)

# %% [markdown]
# The output moves with its word: self-attention is permutation **equivariant**. *Invariant* is the answer to one query
# when the pairs of keys and values change positions, as in a dictionary. If the whole output were, no row would belong
# to a word. But the claim has a right half: each word gets the same vector in "dog bites man" and in "man bites dog",
# so attention must be told where words stand, and the paper adds a vector for the position to each word (§3.5, [lesson
# 09](../09_positions.py)).
