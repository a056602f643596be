# %% [markdown]
# # 04 · Soft lookup: queries, keys and values
#
# **Can a dictionary learn what to look up?**
#
# *Needs [lesson 01](01_backprop.py) (gradients, softmax) · you will compute attention and its gradient with pencil and
# paper.*

# %% Imports
import math

import numpy as np

from exercises.numeric import numeric_gradient
from library.drawing import Drawing, number
from library.lesson import ROOT, same, show, table
from library.noun_lookup import Lookup, noun_task
from scratchformer.nn.attention import ScaledDotProductAttention

# %% [markdown]
# A Python dictionary is a perfect memory. Ask it for the right key, and it hands you the value. Ask for a key that is
# off by one letter, and you get nothing. So how could a network *learn* what to ask for? Learning by gradients needs
# the answer to this question: if I change my question a little, does the answer get a little better?
#
# Let's try it with a dictionary of vectors. A question is a vector of 8 numbers. Each of nine words has a vector of 8
# numbers as its key. The answer is the word whose key has the largest dot product with the question. We ask 200
# questions. Then we move one number of one question up and down a little, and see whether the answer changes. We do
# that with each of their 1,600 numbers.

# %% A dictionary of vectors
random = np.random.default_rng(0)
questions, keys = random.normal(size=(200, 8)), random.normal(size=(9, 8))


def best_key(questions):
    return (questions @ keys.T).argmax(axis=1)


def answers_that_change(move):
    """Each of the 8 numbers of each of the 200 questions is moved up and down."""
    steps = move * np.eye(8)
    return sum(np.sum(best_key(questions + step) != best_key(questions - step))
               for step in steps)


table(["moved by", "trials in which the answer changed"],
      [[move, f"{answers_that_change(float(move[1:]))} of 1,600"]
       for move in ("±0.00001", "±0.001", "±0.1")])

# %% [markdown]
# Small moves change nothing. So the gradient of the questions is zero nearly everywhere, and they never learn where to
# look. (For the keys it is the same.) We need a dictionary that answers *a little differently* when it is asked *a
# little differently*.
#
# ## The picture
#
# The way out is simple: don't choose. Compare the question with every key, and return a blend of **all** values, with
# more weight where the match is better.
#
# Here is an example. A model reads "The animal did not cross the street because **it** was too tired". The word "it"
# asks which noun it stands for. To keep the sums short, it looks at three words only.

# %% The numbers of the example
WORDS = ["the", "street", "animal"]
QUERY = (math.sqrt(2), 0.0)
KEYS = [(0.0, 1.0), (math.log(2), 0.0), (math.log(5), 1.0)]
VALUES = [(1, 0), (0, 1), (2, 2)]
WEIGHTS = [1 / 8, 2 / 8, 5 / 8]
ANSWER = (1.375, 1.5)

# %% The drawing
def lookup_picture(backward):
    """The same lookup, without and with its gradients."""
    drawing = Drawing(740, 545)
    columns = [270, 440, 610]
    for y, step in (150, "1  compare"), (250, "2  softmax"), (375, "3  blend"):
        drawing.text(20, y, step, bold=True, anchor="start")
    query = drawing.vector(75, 75, QUERY, "query", 54, above="query of “it”")
    answer = drawing.vector(440, 490, ANSWER, "value", 54, below="answer")
    for x, word, key, value, weight in zip(columns, WORDS, KEYS, VALUES, WEIGHTS):
        drawing.text(x, 20, word, bold=True)
        key_box = drawing.vector(x, 75, key, "key", 54, above="key")
        turns = [query.bottom, (75, 116), (x - 12, 116), (x - 12, 130)]
        drawing.line(turns, "query", 1.2)
        drawing.line([key_box.bottom, (x, 130)], "key", 1.2)
        drawing.text(x, 150, {1 / 8: "0", 2 / 8: "ln 2", 5 / 8: "ln 5"}[weight])
        drawing.bar(x, 250, weight, below=f"{8 * weight:g}/8")
        value_box = drawing.vector(x, 375, value, "value", 54)
        drawing.text(x - 76, 375, "value", "soft", 13)
        drawing.thread(value_box.bottom, answer.top, weight)
    for y, rule in (170, "score = q · k / √2"), (270, "weight = e^{score} / 8"), \
            (395, "weights × values"):
        drawing.text(36, y, rule, "soft", 13, "start")
    if not backward:
        return drawing
    drawing.text(20, 470, "How does this", "gradient", 14, "start", italic=True)
    drawing.text(20, 490, "number grow?", "gradient", 14, "start", italic=True)
    drawing.arrow((120, 484), (384, 489), "gradient")
    for x, value, weight in zip(columns, VALUES, WEIGHTS):
        slope = weight * (value[0] - ANSWER[0])
        drawing.gradient(x + 40, 150, slope, size=14, largest=0.4)
        difference = f"{value[0]} − 1.375"
        for y, words in (228, "offer −"), (245, "average"), (266, difference):
            drawing.text(x + 30, y, words, "gradient", 14, "start", italic=True)
        of_key = f"({number(slope, sign=True)}, 0)"
        drawing.text(x + 8, 105, of_key, "gradient", 13, "start", italic=True)
        of_value = f"({8 * weight:g}/8, 0)"
        drawing.text(x, 345, of_value, "gradient", 13, italic=True)
    drawing.text(83, 105, "(+0.276, +0.243)", "gradient", 13, "start", italic=True)
    return drawing


show(lookup_picture(backward=False), "04_lookup",
     alt="One query for the word it, with the numbers 1.414 and 0, is compared with "
     "the keys of the, street and animal. The scores are 0, ln 2 and ln 5, the "
     "weights one, two and five eighths. The values (1, 0), (0, 1) and (2, 2) are "
     "blended into the answer (1.375, 1.5).",
     caption="One lookup. The threads at the bottom are as thick as the weight they "
     "carry.")

# %% [markdown]
# The three roles in figure 1 have names. The question is the **query**. Every word offers a **key**, which says what it
# can be found under, and a **value**, which is what it contributes to the answer. Query and key decide *where* to look;
# values decide *what* comes back. All of them are just vectors.
#
# ## By hand
#
# Follow figure 1 with a pencil, from top to bottom.
#
# **Step 1, compare.** How well does the query match the key of *animal*? Take the dot product: 1.414 · 1.609 + 0 · 1 =
# 2.276. Then divide it by √2 = 1.414, because queries and keys have two numbers here. ([Lesson 05](05_scaling.py) says
# why.) The result, 1.609, is the **score** of *animal*. For *street* you get 0.693, and for *the* 0.
#
# **Step 2, softmax.** Turn the scores into weights that are positive and add up to one: exponentiate them, and divide
# by the sum. Our scores are the logarithms of 1, 2 and 5, so this is easy:
#
# | word | score z | e to the z | weight w | value |
# |---|---|---|---|---|
# | the | 0 | 1 | 1/8 | (1, 0) |
# | street | ln 2 = 0.693 | 2 | 2/8 | (0, 1) |
# | animal | ln 5 = 1.609 | 5 | **5/8** | (2, 2) |
#
# **Step 3, blend.** Multiply every value by its weight, and add: 1/8 · (1, 0) + 2/8 · (0, 1) + 5/8 · (2, 2) = **(1.375,
# 1.5)**. The answer is mostly *animal*, with a little of the other two.
#
# What happens if we multiply all scores by 10 before the softmax? And by 0.01?
#
# <details><summary>Make a guess, then unfold</summary>
#
# Times 10: the exponentials become 1, 2 to the 10th and 5 to the 10th, which is 9,765,625. So *animal* gets 99.99 % of
# the weight, and we have the hard dictionary back. Times 0.01: all three words get about a third of the weight, so the
# answer is nearly the average of the values.
#
# </details>
#
# ## In general
#
# In a sentence every word asks, not only "it". Write the queries of $T$ words into the rows of an array $Q$. Write the
# keys and values of $S$ words into the rows of $K$ and $V$. Then all scores are one matrix product, and all blends are
# another. Figure 2 has a second query:

# %% Drawing two queries
def queries_picture():
    drawing = Drawing(740, 235)
    queries = [(1.414, 0), (0, 0.98)]
    q_box = drawing.matrix(100, 120, queries, "query", 52, below="Q (2, 2)")
    for row, word in enumerate(("it", "tired")):
        drawing.text(66 - 28, q_box.cell(0, row).y, word, anchor="end", size=13)
    score = drawing.matrix(300, 120, [("0", "ln 2", "ln 5"), ("ln 2", "0", "ln 2")],
                           "plain", 48, below="scores Q Kᵀ / √2  (2, 3)")
    weight = drawing.matrix(490, 120, [("1/8", "2/8", "5/8"), ("2/5", "1/5", "2/5")],
                            "plain", 48, below="weights (2, 3)",
                            shades=[[0.125, 0.25, 0.625], [0.4, 0.2, 0.4]])
    answers = [(1.375, 1.5), (1.2, 1)]
    drawing.matrix(670, 120, answers, "value", 52, below="answers (2, 2)")
    for box in score, weight:
        for column, word in enumerate(WORDS):
            drawing.text(box.cell(column).x, 70, word, "soft", 12)
    for x, words in (190, "compare"), (395, "softmax"), (590, "blend"):
        drawing.text(x, 35, words, bold=True, size=13)
    drawing.arrow((158, 120), (222, 120))
    drawing.arrow((376, 120), (414, 120))
    drawing.arrow((566, 120), (614, 120))
    rule = "Softmax works in each row by itself: each query shares out a weight of 1."
    drawing.text(370, 215, rule, "soft", 13)
    return drawing


show(queries_picture(), "04_queries",
     alt="Two queries, it and tired, give a grid of scores with two rows and three "
     "columns. Softmax turns the rows into the weights 1/8, 2/8, 5/8 and 2/5, 1/5, "
     "2/5, and these blend the values into two answers, (1.375, 1.5) and (1.2, 1).",
     caption="Two queries at once: a row for each query, a column for each word. Keys "
     "and values are those of figure 1; the query of “tired” is made up.")

# %% [markdown]
# Let $d_k$ be how many numbers a query has. Then the three steps are equation 1 of *Attention Is All You Need*, the
# paper that this course follows:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V$$
#
# If you want to write it first, do the exercise `04_attention`. Here is ours:

# %%
def softmax(z):
    """z (T, S) -> weights (T, S): each row is positive and adds up to 1"""
    e = np.exp(z - z.max(axis=-1, keepdims=True))     # the same weights, no overflow
    return e / e.sum(axis=-1, keepdims=True)


def attention(q, k, v):
    """q (T, d_k), k (S, d_k), v (S, d_v) -> y (T, d_v), weights (T, S)"""
    scores = q @ k.T / np.sqrt(q.shape[-1])           # 1  every query with every key
    weights = softmax(scores)                         # 2  each row adds up to 1
    return weights @ v, weights                       # 3  a blend for each query


q, k, v = np.array([QUERY]), np.array(KEYS), np.array(VALUES)
y, weights = attention(q, k, v)
print("weights", weights[0], "  answer", y[0])

# %% [markdown]
# Where do queries, keys and values come from? Each word comes as one vector of $D$ numbers, but it has three roles.
# "it" looks for "a noun that can be tired". *animal* is found under "noun, alive". What it tells is "the animal that
# didn't cross". So three matrices, which are learned, make three vectors of it: $Q = x W_Q$, $K = m W_K$ and $V = m
# W_V$. The rows of $x$ are the words that ask. The rows of $m$, the *memory*, are the words that are asked. If $x$ and
# $m$ are the same sentence, this is **self-attention**. If $x$ is the sentence being written, and $m$ the one being
# read, it is **cross-attention**.
#
# ## Backward
#
# Now the way back, with the same three words. Take the first number of the answer, 1.375. How does it change if one
# score grows a little? Which of the three scores would raise it?
#
# <details><summary>Make a guess, then unfold: the same lookup, backward</summary>

# %% The drawing, backward
show(lookup_picture(backward=True), "04_lookup_backward",
     alt="The same picture as figure 1, with gradients. The offers minus the average "
     "are 1 − 1.375, 0 − 1.375 and 2 − 1.375. The gradients of the three scores are "
     "−0.047, −0.344 and +0.391: only the score of animal should grow.",
     caption="In magenta: how the first number of the answer grows with each number "
     "above it.")

# %% [markdown]
# </details>
#
# The **offer** of a word is the first number of its value: *the* offers 1, *street* 0, *animal* 2. You might expect
# *the* to help, because it offers something positive. But the weights always add up to one: what one word gains, the
# others lose. So a word helps only if it offers more than we **already have on average**. That average is the answer
# itself, 1.375. Only *animal* offers more. How much does it help? In proportion to its weight, because a word that
# hardly takes part can hardly change anything:
#
# | word | weight | × (offer − average) | = gradient of the score |
# |---|---|---|---|
# | the | 1/8 | 1 − 1.375 | −0.047 |
# | street | 2/8 | 0 − 1.375 | −0.344 |
# | animal | 5/8 | 2 − 1.375 | +0.391 |
#
# The three gradients add up to zero, because adding the same number to all scores changes no weight. (For the second
# number of the answer, the offers are 0, 1, 2 and the average is 1.5. Try it.)
#
# In training, the loss sends back a gradient $dy$ with a number for each number of the answer. Then the offer of a word
# is the dot product of $dy$ with its value. Above, $dy$ was (1, 0), which picks the first number. With $dy$ = (1, 1)
# the offers would be 1, 1 and 4.
#
# **Your turn.** The rest is the gradient of a matrix product from [lesson 01](01_backprop.py). Open
# `exercises/04_attention_backward.py`, write it, and run `scratchformer learn check 04_attention_backward`. (Its arrays
# have a further axis in front, so write `k.swapaxes(-1, -2)` for `k.T`.) Stuck?
# `scratchformer learn hint 04_attention_backward`. Then read on.
#
# ### Why the rule holds
#
# Let the score of *animal* grow by 0.01. Two things happen. Its exponential grows by 1 %, from 5 to 5.05. And the sum
# grows from 8 to 8.05, by 5/8 of a percent.
#
# - The first alone would raise the weight of *animal* by 1 %. The answer would get 1 % of *weight × offer* more.
# - The second makes all three weights 5/8 % smaller. So the answer loses 5/8 % of itself, that is of the average.
#
# Together, the first number of the answer grows by 1 % · 5/8 · 2 − 5/8 % · 1.375, which is 1 % · 5/8 · (2 − 1.375). In
# general, with $dw_s$ for the offer of word $s$, the gradient of score $z_r$ is
#
# $$dz_r = w_r \left( dw_r - \sum_s w_s \, dw_s \right)$$
#
# The rest is two matrix products in reverse. For $c = a b$, lesson 01 found $da = dc \, b^T$ and $db = a^T dc$. The
# scores are $q k^T$ over √2, so here $b$ is $k^T$. Its gradient is $q^T dscores$, and transposed that is $dk =
# dscores^T q$.

# %% Our solution
def attention_backward(dy, q, k, v, weights):
    """dy (T, d_v) -> dq (T, d_k), dk (S, d_k), dv (S, d_v)"""
    dv = weights.T @ dy                                      # y = weights v
    dweights = dy @ v.T                                      # what each word offers
    average = (weights * dweights).sum(axis=-1, keepdims=True)
    dscores = weights * (dweights - average)                 # weights = softmax(scores)
    dq = dscores @ k / np.sqrt(q.shape[-1])                  # scores = q k^T / √d_k
    dk = dscores.T @ q / np.sqrt(q.shape[-1])
    return dq, dk, dv


dq, dk, dv = attention_backward(np.array([[1.0, 0.0]]), q, k, v, weights)
print("dq", dq[0].round(3))
for word, of_key, of_value in zip(WORDS, dk.round(3) + 0.0, dv.round(3)):
    print(f"{word:6}  dk {of_key}   dv {of_value}")

# %% [markdown]
# These are the magenta numbers of figure 3. The query collects from all keys. For example, its first number gets
# (−0.344 · 0.693 + 0.391 · 1.609) / 1.414 = 0.276. Finite differences and the library's layer agree:

# %% The check
def first_number(**moved):
    return attention(**{"q": q, "k": k, "v": v} | moved)[0][0, 0]


numeric = [numeric_gradient(lambda moved: first_number(**{name: moved}), array)
           for name, array in (("q", q), ("k", k), ("v", v.astype(float)))]
layer = ScaledDotProductAttention()
as_heads = [array[None, :, None, :].astype(float) for array in (q, k, v)]
cache = layer.forward(*as_heads)[1]
library = layer.backward(np.array([[[[1.0, 0.0]]]]), cache)


def in_a_row(arrays):
    return np.concatenate([np.ravel(array) for array in arrays])


ours = in_a_row([dq, dk, dv])
same("dq, dk, dv: ours and finite differences", ours, in_a_row(numeric), 1e-8)
same("dq, dk, dv: ours and the library's", ours, in_a_row(library))

# %% [markdown]
# Look at the factor $w_r$ once more. A score whose weight is nearly 0 gets nearly no gradient, however much its word
# offers. And if one word has nearly all the weight, it *is* the average, and all gradients of scores nearly vanish. In
# the next lesson that gets us into trouble.
#
# ## Does it matter?
#
# Can a model learn *where* to look if nobody tells it? The task: given a German noun such as *Koffer* and an English
# sentence, find the English word that the noun translates. Figure 4 shows one such lookup. There are 589 sentences to
# learn from.

# %% Drawing the task
def task_picture():
    drawing = Drawing(740, 300)
    query = drawing.box(80, 60, "Koffer", "query", 110, 36)
    drawing.text(80, 98, "a query for each", "soft", 12)
    drawing.text(80, 114, "German noun", "soft", 12)
    answer = drawing.vector(380, 195, ["?", "?", "…"], "value", 34, below="answer")
    words = (250, "the", 0.2), (360, "mirror", 0.3), (480, "suitcase", 0.5)
    for x, word, weight in words:
        drawing.text(x, 20, word, bold=True)
        drawing.box(x, 60, "key", "key", 70, 30)
        box = drawing.box(x, 105, "value", "value", 70, 30)
        drawing.thread(box.bottom, answer.top, weight)
    drawing.arrow(query.right, (212, 60), "query", label="compare")
    drawing.text(590, 60, "a key and a value for", "soft", 12)
    drawing.text(590, 76, "each English word", "soft", 12)
    code = drawing.vector(640, 195, ["0.3", "−0.1", "…"], "plain", 40,
                          below="code of “suitcase”")
    drawing.arrow(answer.right, code.left, "gradient", label="loss: distance")
    note = "Queries, keys and values start at random and are learned."
    drawing.text(370, 275, note, "soft", 13)
    return drawing


show(task_picture(), "04_task",
     alt="The query of Koffer is compared with the keys of the, mirror and suitcase; "
     "their values are blended into an answer. The distance from the answer to the "
     "code of suitcase, a vector that never changes, is the loss.",
     caption="The task. The teacher never says which word is right; it only says how "
     "far the answer is from a vector.")

# %% [markdown]
# - **What goes in:** a query for each German noun, a key and a value for each English word. All are learned, and start
#   at random.
# - **What should come out:** the *code* of the right word. Every English word has one, a random vector that never
#   changes. The loss is the distance between answer and code.
# - **What is measured:** an answer is right if, of all words in the sentence, the right one has the nearest code.
#
# Three rivals get the same sentences. **Frozen** is soft, too, but its queries and keys stay as they started; only its
# values learn. **Mean** gives all words the same weight. **Hard** returns the value of the best key, so its queries and
# keys get no gradient. Somebody who knows the nouns of each sentence, and guesses one of them, is right in 44 % of the
# cases. What do you predict for the four?
#
# <details><summary>Make a guess, then unfold: 349 new sentences, three runs each</summary>

# %% Training the four lookups
task = noun_task(ROOT / "data" / "tiny")
RATES = {"soft": 2, "frozen": 2, "mean": 6, "hard": 0.1}  # the best of eight
found, lookups = {}, {}
for way, rate in RATES.items():
    for seed in 0, 1, 2:
        lookup = Lookup(task, way, seed, attention, attention_backward)
        lookup.train(6, rate, seed)
        found.setdefault(way, []).append(lookup.accuracy(task.test))
        lookups.setdefault(way, lookup)      # that of seed 0
table(["lookup", "run 1", "run 2", "run 3"],
      [[way, *(f"{share:.0%}" for share in shares)] for way, shares in found.items()])

# %% [markdown]
# </details>
#
# The soft lookup found out where to look because looking there made its answers better. *Frozen* shows that the softmax
# alone isn't enough: the queries or the keys have to learn, too. (One of the two already gives about 80 %: [lab notes
# 04, experiment 1](lab/04_soft_lookup.py#experiment-1-what-has-to-learn).) *Hard* looks at one word at random. Here is
# what the soft lookup looks at in a new sentence:

# %% Drawing what was learned
sentence = task.test[3]
source, pairs = sentence
learned = lookups["soft"].look(sentence)[4]
drawing = Drawing(740, 250)
step = 660 / len(source)
xs = [40 + step * (i + 0.5) for i in range(len(source))]
for x, word in zip(xs, source):
    drawing.text(x, 125, word, size=12)
for (noun, right), y, sign in zip(pairs, (30, 220), (1, -1)):
    row = learned[pairs.index((noun, right))]
    box = drawing.box(xs[right], y, noun, "query", 90, 32)
    for x, weight in zip(xs, row):
        if weight > 0.02:
            start, end = (box.bottom if sign > 0 else box.top), (x, 125 - 12 * sign)
            drawing.thread(start, end, weight, "ink", thickest=16)
            if weight > 0.08:
                shown = f"{weight:.2f}"
                drawing.text(x + 14, 125 - 30 * sign, shown, "soft", 12, "start")
show(drawing, "04_learned",
     alt="The German nouns Spiegel and Koffer above and below the sentence: the "
     "mirror does not fit into the suitcase because it is too bulky. The thickest "
     "thread of Spiegel leads to mirror, that of Koffer to suitcase.",
     caption="Where the soft lookup of run 1 looks for *Spiegel* (above) and *Koffer* "
     "(below). Weights below 0.02 are left out.")

# %% [markdown]
# A map such as figure 5 shows where the lookup looked. It doesn't show what it found there: an answer can be right
# although the largest weight lies elsewhere ([lab notes 04, experiment
# 2](lab/04_soft_lookup.py#experiment-2-the-map-and-the-answer)).
#
# ## Paper and code
#
# [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), §3.2.1, call it *scaled dot-product attention*. In the
# library it is `ScaledDotProductAttention` in [nn/attention.py](../scratchformer/nn/attention.py), with two additions:
# masks ([lesson 06](06_masks.py)) and many heads at once ([lesson 07](07_many_heads.py)). There, the answer is added to
# the vector of the word that asked. If you want to see attention move: 3Blue1Brown's chapter is the best animation we
# know.
#
# ## What to remember
#
# Attention is a dictionary that answers with a blend. Queries and keys decide where to look, values what comes back,
# and softmax makes the choice smooth enough to learn. On the way back, the gradient pushes a score up only if its word
# offers more than the average we already have.
#
# **Exercises.** `04_attention`: equation 1 for any sizes. `04_attention_backward`: its gradient. `04_cross_attention`:
# a public program took two of the three inputs from the wrong sentence; repair it. And a puzzle:
#
# <details><summary>A word stands twice in the sentence, with the same key and value. Does the answer change?</summary>
#
# Yes. Both copies get the weight, so together the word weighs twice as much before the weights are made to add up to 1.
# A dictionary would keep one copy; a soft lookup counts.
#
# </details>
#
# **Next:** [05 · Why attention divides by the square root of d_k](05_scaling.py). We divided by √2 and didn't say why.
# Without it, learning can get stuck, and you already know the reason: a weight near 1 stops the gradient.
