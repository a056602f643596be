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

from support.drawing import Drawing, number
from support.lesson import quote, same, show, table
from support.noun_lookup import Lookup, noun_task
from support.numeric import numeric_gradient

# %% [markdown]
# Ask a Python dictionary for the right key, and it hands you the value. With one wrong letter, you get nothing. So how
# could a network *learn* what to ask for? Learning needs a slope: if the question changes a little, the answer must get
# a little better or worse.
#
# Let a question be a vector, and give each word a vector as its key. The answer is the word whose
# key has the largest dot product with the question. Now change one number of the question by 0.001. The best key
# stays the best, so the answer doesn't change. We tried it 1,600 times, and it never did ([lab notes
# 04](lab/04_soft_lookup.py#a-dictionary-has-no-slope)). After a larger step another key may win, but then the
# answer jumps. So the gradient is zero nearly everywhere, and neither questions nor keys
# ever learn.
#
# ## The picture
#
# The way out: don't choose. Compare the question with every key, and return a blend of **all** values, with
# more weight where the match is better.
#
# A model reads "The animal did not cross the street because **it** was too tired". The word "it" asks which noun it
# stands for. To keep the sums short, it looks at three words only:

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
    drawing.text(36, 300, "average offer 1.375", "gradient", 14, "start", italic=True)
    drawing.text(20, 470, "How does this", "gradient", 14, "start", italic=True)
    drawing.text(20, 490, "number grow?", "gradient", 14, "start", italic=True)
    drawing.arrow((120, 484), (384, 489), "gradient")
    for x, value, weight in zip(columns, VALUES, WEIGHTS):
        slope = weight * (value[0] - ANSWER[0])
        drawing.gradient(x + 40, 150, slope, size=14, largest=0.4)
        product = f"{8 * weight:g}/8 · ({value[0]} − 1.375)"
        drawing.text(x + 45, 174, product, "gradient", 13, italic=True)
        drawing.gradient(x + 43, 250, value[0], f"offer {value[0]}", 14, largest=2)
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
# <!-- widget: soft_lookup, in the figure's place -->
#
# The question is called the **query**. Every word has a **key**, which says what it can be found under, and a
# **value**, which is what it contributes to the answer. Query and key decide *where* to look; values decide *what*
# comes back.
#
# ## By hand
#
# Follow figure 1 with a pencil.
#
# **Step 1, compare.** A dot product is large if two vectors are long and point the same way, so it can measure a match.
# For the query (√2, 0) and the key of *animal*, (ln 5, 1), it is √2 · ln 5 + 0 · 1. Divide it by √2, because queries
# have two numbers here ([lesson 05](05_scaling.py) says why). What is left, ln 5 = 1.609, is the **score** of *animal*.
# In the same way *street* gets ln 2, and *the* gets 0.
#
# **Step 2, softmax.** Turn the scores into weights that are positive and add up to one: exponentiate them, and divide
# by the sum. Our scores are the logarithms of 1, 2 and 5, so this is easy. These weights are not learned: each question
# gets new ones.
#
# | word | score z | e to the z | weight w |
# |---|---|---|---|
# | the | 0 | 1 | 1/8 |
# | street | ln 2 = 0.693 | 2 | 2/8 |
# | animal | ln 5 = 1.609 | 5 | **5/8** |
#
# **Step 3, blend.** Multiply every value by its weight, and add: 1/8 · (1, 0) + 2/8 · (0, 1) + 5/8 · (2, 2) = **(1.375,
# 1.5)**.
#
# ## In general
#
# In a sentence every word asks, and every word is asked, "it" too. Write the queries of $T$ words into the rows of an
# array $Q$, and the keys and values of $S$ words into the rows of $K$ and $V$. Then two matrix products do the work:

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
     caption="Two queries at once, the second made up. Keys and values are those of "
     "figure 1.")

# %% [markdown]
# If a query has $d_k$ numbers, this is equation 1 of *Attention Is All You Need*, the paper that this course follows:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}}\right) V$$
#
# To write it first, stop here. Ours for one sentence and one attention, without masks:

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
# ### Where queries, keys and values come from
#
# A word comes as one vector, but it has three roles. "it" looks for "a noun that can be tired". *animal* is found under
# "noun, alive", and tells of "the animal that didn't cross". So three learned matrices make three vectors of each
# word's vector. Say the vector of "it" is (1, 2):

# %% Drawing the three matrices
def matrices_picture():
    drawing = Drawing(740, 335)
    x = np.array([1, 2])
    word = drawing.vector(80, 130, x, above="vector of “it”")
    rows = [(50, "W_Q", [(math.sqrt(2), 2), (0, -1)], "query", "what “it” looks for"),
            (130, "W_K", [(1, 2), (1, -1)], "key", "what “it” is found under"),
            (210, "W_V", [(0, 1), (1, 1)], "value", "what “it” tells")]
    for y, name, matrix, role, meaning in rows:
        drawing.arrow(word.right, (195, y))
        drawing.text(222, y, f"× {name}")
        drawing.matrix(300, y, matrix, cell=52, height=29)
        drawing.text(374, y, "=")
        drawing.vector(450, y, x @ np.array(matrix), role, 54)
        drawing.text(522, y - 9, role, bold=True, anchor="start")
        drawing.text(522, y + 10, meaning, "soft", 13, "start")
    old = drawing.vector(80, 305, x)
    drawing.arrow(word.bottom, old.top)
    drawing.text(222, 305, "+")
    drawing.vector(300, 305, ANSWER, "value", 54, above="answer of figure 1")
    drawing.text(374, 305, "=")
    drawing.vector(450, 305, x + ANSWER, cell=54)
    drawing.text(522, 305, "new vector of “it”", bold=True, anchor="start")
    return drawing


show(matrices_picture(), "04_matrices",
     alt="The vector (1, 2) of the word it, times the matrix W_Q, is the query "
     "(1.414, 0) of figure 1; times W_K it is the key (3, 0), times W_V the value (2, "
     "3). Below, the vector (1, 2) plus the answer (1.375, 1.5) is the new vector "
     "(2.375, 3.5).",
     caption="One word vector, three roles. The numbers are made up; all words share "
     "the three matrices.")

# %% [markdown]
# The last row of figure 3 shows what this is for: the answer is added to the vector of the word that
# asked. So the vector of "it" now tells something of *animal*. (We left out a matrix that comes before the
# sum: [lesson 07](07_many_heads.py).)
#
# Write the vectors of all words that ask into the rows of $x$, and of all words that are asked into the rows of $m$,
# the *memory*. Then $Q = x W_Q$, $K = m W_K$ and $V = m W_V$. In **self-attention**, $x$ and $m$ are the same sentence.
# In **cross-attention**, $x$ is the sentence being written, and $m$ the one being read.
#
# <!-- see: inside?step=encoder.0.self.qkv | queries, keys and values of a trained model -->
#
# ## Backward
#
# Let the first number of the answer, 1.375, take the place of the loss. We want it to grow: which score must grow? Make
# a guess before you look at figure 4.

# %% The drawing, backward
show(lookup_picture(backward=True), "04_lookup_backward",
     alt="The same picture as figure 1, with gradients. The offers are 1, 0 and 2, "
     "their average is 1.375. The gradients of the three scores are −0.047, −0.344 "
     "and +0.391: only a larger score of animal raises the first number of the "
     "answer.",
     caption="In magenta, the gradients. Unlike in lesson 01, triangles point *with* "
     "the sign: the number should grow. The gradient of a weight is called *offer*.")

# %% [markdown]
# The **offer** of a word is the first number of its value: *the* offers 1, *street* 0, *animal* 2. You might expect
# *the* to help, because it offers something positive. But the weights always add up to one: what one word gains, the
# others lose. So more weight for a word helps only if it offers more than we **already have on average**. That average
# is the answer itself, 1.375. Only *animal* offers more. It helps in proportion to its weight, because a word that
# hardly takes part can hardly change anything:
#
# | word | weight | × (offer − average) | = gradient of the score |
# |---|---|---|---|
# | the | 1/8 | 1 − 1.375 | −0.047 |
# | street | 2/8 | 0 − 1.375 | −0.344 |
# | animal | 5/8 | 2 − 1.375 | +0.391 |
#
# So the gradient of a score is **weight × (offer − average)**. In training, a gradient $dy$ comes back, with a number
# for each number of the answer. The offer of a word is then the dot product of $dy$ with its value. Above, $dy$ was (1,
# 0). With (1, 1) the offers would be 1, 1 and 4.
#
# The formula stays. But now $dy$ says how the *loss* grows, so a large offer does harm. A word that offers
# less than the average gets a negative gradient. Training goes against the gradient: it raises the score of this word.
#
# **Your turn.** You need one rule of [lesson 01](01_backprop.py): if $c = a b$, then $da = dc \, b^T$ and $db = a^T
# dc$. Write `softmax` and `attention` in `transformer.py` (`log_softmax(x)`, the logarithm of softmax, is ours until
# lesson 14), forward and backward, and run `scratchformer learn check softmax attention`. There, all sentences and
# heads are computed at once (axes b, t, h, k), and where `mask` is False the weight is 0 ([lesson 06](06_masks.py)).
# Stuck? `scratchformer learn hint attention`.
#
# ### Why the rule holds
#
# With the exponentials 1, 2 and 5, the first number of the answer is (1 · 1 + 2 · 0 + 5 · 2) / (1 + 2 + 5) = 11/8. Let
# the score of *animal* grow by 0.01. Then its exponential grows by 1 %, from 5 to 5.05.
#
# Think of a drink: to 8 parts of strength 1.375 we add 0.05 parts of strength 2. What we add is stronger by 2 − 1.375,
# but it spreads over about 8 parts. So the drink gets stronger by 0.05 · (2 − 1.375) / 8. Divided by the step 0.01,
# that is 5/8 · (2 − 1.375): weight × (offer − average).
#
# In general, with $dw_s$ for the offer of word $s$, the gradient of score $z_r$ is
#
# $$dz_r = w_r \left( dw_r - \sum_s w_s \, dw_s \right)$$
#
# The rest is the rule for products. Let $dscores$ be the array of all $dz$, with a row for each query and a column for
# each key. A query collects from all keys: $dq = dscores \, k / \sqrt{d_k}$. For the keys, the rule gives $d(k^T) = q^T
# dscores / \sqrt{d_k}$. Transpose it: $dk = dscores^T q / \sqrt{d_k}$. ($dk$ is the gradient of $k$; $d_k$ is a size.)

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
# These are the magenta numbers of figure 4. For example, 0.276 is (−0.344 · 0.693 + 0.391 ·
# 1.609) / 1.414. ([Lab notes 04](lab/04_soft_lookup.py#the-backward-pass-of-the-layer) go on to the three matrices.)
# Finite differences agree:

# %% The check
def first_number(numbers):
    return attention(*np.split(numbers, [1, 4]))[0][0, 0]


numeric = numeric_gradient(first_number, np.concatenate([q, k, v]))
ours = np.concatenate([dq, dk, dv])
same("dq, dk, dv: ours and finite differences", ours, numeric, 1e-8)

# %% [markdown]
# In the file, forward and backward are the two halves of one function. `yield` hands out the result, and later receives
# its gradient:

# %%
quote("softmax", "attention")

# %% [markdown]
# If one word has nearly all the weight, its offer *is* the average, and the other weights are nearly 0. So all
# gradients of scores nearly vanish. In the next lesson that gets us into trouble.
#
# ## Does it matter?
#
# Can a model learn *where* to look if nobody tells it? The task: given a German noun such as *Koffer* and an English
# sentence, find the word that the noun translates. We have 589 sentences to learn from.

# %% Drawing the task
def task_picture():
    drawing = Drawing(740, 245)
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
    drawing.arrow(answer.right, code.left, "gradient", label="squared distance")
    return drawing


show(task_picture(), "04_task",
     alt="The query of Koffer is compared with the keys of the, mirror and suitcase; "
     "their values are blended into an answer. The distance from the answer to the "
     "code of suitcase, a vector that never changes, makes the loss.",
     caption="The task. Nobody says *where* in the sentence the right word stands.")

# %% [markdown]
# - **What goes in:** a query for each German noun, a key and a value for each English word. All start at random and are
#   learned.
# - **What should come out:** the *code* of the right word. Each English word has one, a random vector that never
#   changes. The loss is half the squared distance between answer and code. It would be 0 if the value of each noun were
#   its code, and the right word had all the weight.
# - **What is measured:** the answers in 349 other sentences (96 % of their nouns occur in training). An answer is right
#   if, of all words in the sentence, the right one has the nearest code.
#
# Three rivals get the same sentences. **Frozen** is soft, but its queries and keys stay random. **Mean** gives all
# words the same weight. **Hard** returns the value of the best key, so its queries and keys get no gradient. A guess
# among the nouns of the sentence is right in 44 %. What do you predict for the four?
#
# <details><summary>Make a guess, then unfold: three runs each</summary>

# %% Training the four lookups
task = noun_task()
RATES = {"soft": 2, "frozen": 2, "mean": 6, "hard": 0.1}  # the best in training
found = {}
for way, rate in RATES.items():
    for seed in 0, 1, 2:
        lookup = Lookup(task, way, seed, attention, attention_backward)
        lookup.train(6, rate, seed)
        found.setdefault(way, []).append(lookup.accuracy(task.test))
table(["lookup", "run 1", "run 2", "run 3"],
      [[way, *(f"{share:.0%}" for share in shares)] for way, shares in found.items()])

# %% [markdown]
# </details>
#
# The soft lookup found out where to look because looking there made its answers better. *Frozen* shows that the softmax
# alone isn't enough: queries or keys have to learn, too. The random start of *hard* fixes where it looks. That is the
# right word in only a tenth of the cases. Its other right answers are partly luck. And partly, the value of a wrong
# word has learned the right code ([lab notes 04, experiment 1](lab/04_soft_lookup.py#experiment-1-what-has-to-learn)).
#
# In a new sentence with *mirror* and *suitcase*, the soft lookup of run 1 gives *suitcase* 0.75 of the weight of
# *Koffer*. [Lab notes 04, experiment 2](lab/04_soft_lookup.py#experiment-2-the-map-and-the-answer), draw this map, and
# show what a map doesn't tell: an answer can be right although the largest weight lies elsewhere. Here, too, values of
# wrong words help.
#
# ## Paper and code
#
# [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), §3.2.1, call it *scaled dot-product attention*. The
# library's `ScaledDotProductAttention` in [nn/attention.py](../scratchformer/nn/attention.py) adds masks ([lesson
# 06](06_masks.py)) and many heads at once ([lesson 07](07_many_heads.py)).
#
# ## What to remember
#
# Attention is a dictionary that answers with a blend. So it answers a little differently when it is asked a little
# differently, and can learn where to look. The gradient of a score is its weight × (offer − average).
#
# **Yours:** `softmax`, `attention` · `scratchformer learn check 04`
#
# **Next:** [05 · Why attention divides by the square root of d_k](05_scaling.py).
