# %% [markdown]
# # 06 · Masks: what attention must not see
#
# **How can a model learn every next word at once, when these words stand in its input?**
#
# *Needs [lesson 04](04_soft_lookup.py) (scores, weights, values, and the gradient of a score) · you will fill in a mask
# and the gradients behind it with pencil and paper.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from exercises.numeric import numeric_gradient
from library import mask_pictures
from library.lesson import measure, same, show, varying
from library.next_word import (
    NEW,
    VOCABULARY,
    Hiding,
    NextWord,
    all_at_once,
    continued,
    mean_loss,
    shifted,
    train,
    weights_of,
    word_by_word,
)
from scratchformer.doctor.flow_probes import dependence_of
from scratchformer.experiments.figures import ACCENT, COLOUR_MAP
from scratchformer.nn.attention import Mask
from scratchformer.nn.ops import ops_of, using

# %% [markdown]
# Here are two small models, each with a single layer of attention. They differ in one line of code. Both read the same
# English sentences for the same 250 steps, and both learned to guess the next word. Then we tested them on 200 new
# sentences. The loss is the cross-entropy per word ([lesson 01](01_backprop.py)), so lower is better.

# %% Two models
honest, cheat = NextWord(causal=True, seed=0), NextWord(causal=False, seed=0)
for model in honest, cheat:
    train(model, shifted, seed=0)
read, write = shifted(NEW)
losses = [mean_loss(all_at_once(model, read), write) for model in (honest, cheat)]
measure("model A: loss on new sentences", losses[0], 2.6, 3.2)
measure("model B: loss on new sentences", losses[1], 0.1, 0.7)
for name, model in ("A", honest), ("B", cheat):
    for first in "my", "the":
        varying(f"{name} writes: {' '.join(continued(model, ['<s>', first])[1:])}")

# %% [markdown]
# Model B is far better: to a typical right word it gives the probability $e^{-0.29}$, which is 75 %, and A gives only
# $e^{-2.89}$, or 6 %. But when they write sentences of their own, always adding the likeliest next word, A writes
# something like English and B stammers. The loss is computed correctly, and the sentences really are new. So what went
# wrong?
#
# ## The picture
#
# The sentence *the animal slept* asks four questions. Which word comes first? What comes after *the*? After *the
# animal*? And after the whole sentence? A model that writes one word at a time, each from the words before it, is
# called **autoregressive**. We could train one by cutting the sentence into four beginnings. But attention computes
# all positions in one pass anyway. So why not ask all four questions at once, one at each position?

# %% The drawing
show(mask_pictures.shift(), "06_shift",
     alt="Two rows of four words. The lower row, which the model reads, is: start "
     "sign, the, animal, slept. The upper row, which it has to write, is: the, "
     "animal, slept, end sign. Dashed lines join equal words, each one position "
     "further right in the lower row. Below, a grid: the start sign may look at "
     "itself, 'the' at two words, 'animal' at three, 'slept' at all four. The cell "
     "right of the last allowed one is marked as the next word.",
     caption="But for the last row, the word to guess stands in the next column of "
     "the input, and only the grey part of the grid hides it.")

# %% [markdown]
# In figure 1 the sentence stands twice: once to be written, ending with `</s>`, and once to be read, *shifted right* by
# one position, with `<s>` in front. Training on the true previous words, and not on the model's own guesses, is called
# **teacher forcing**. Now notice the danger: the word that each position has to guess stands in the input, one column
# further right. Attention as we know it looks at all columns. So we forbid everything above the diagonal, and what is
# left is a triangle. This is the **causal mask**. (Do you have a suspicion about model B?)
#
# **Your turn.** Write the shift for a batch of sentences in `exercises/06_shift_right.py`. Shorter sentences are filled
# up with **padding**, the id 0. Then run `scratchformer learn check 06`.

# %% Our solution
def padded(rows):
    """Lists of ids -> (B, T), the shorter rows filled up with 0 at the end"""
    longest = max(map(len, rows))
    return np.array([[*row, *[0] * (longest - len(row))] for row in rows])


def shift_right(sentences):
    """Lists of ids -> what is read (B, T), what is to be written (B, T)"""
    start, end = VOCABULARY.index("<s>"), VOCABULARY.index("</s>")
    read = padded([[start, *ids] for ids in sentences])
    return read, padded([[*ids, end] for ids in sentences])


ids = [[VOCABULARY.index(word) for word in words] for words in NEW]
assert all(np.array_equal(a, b) for a, b in zip(shift_right(ids), (read, write)))

# %% [markdown]
# ## From a loop to a triangle
#
# What is the simplest way to use only the past? Average it. Let the four words have the values 0, 4, 8 and 20, one
# number each. Then a loop does it, and so does *one* matrix product with a triangle:

# %%
values = np.array([[0], [4], [8], [20]])                    # (4, 1)
loop = [values[:t + 1].mean() for t in range(4)]            # 0, 2, 4, 8

triangle = np.tri(4)                                        # 1 up to the diagonal
weights = triangle / triangle.sum(axis=1, keepdims=True)    # each row adds up to 1
assert np.allclose((weights @ values)[:, 0], loop)

# %% The drawing
show(mask_pictures.loop(), "06_loop",
     alt="Left: four rows with the values 0, 4, 8, 20; row t uses the first t values "
     "and greys out the rest; the means are 0, 2, 4 and 8. Right: a lower triangle of "
     "weights 1; 1/2, 1/2; three times 1/3; four times 1/4, times the column of "
     "values, equals the column 0, 2, 4, 8.",
     caption="Row by row, the triangle of weights does what the loop does; the zeros "
     "above the diagonal are the mask.")

# %% [markdown]
# This triangle of weights is a softmax in disguise. Take all scores as 0, so that every e^0 is 1, and let the cells
# above the diagonal count as 0 in the sum: the third row is 1, 1, 1, 0 over 3. An average treats all earlier words
# alike because its scores are alike. Attention only replaces these zeros by scores of its own, and keeps the triangle.
#
# ## By hand
#
# Here are 4 × 4 scores. As in lesson 04 they are logarithms of small numbers, so that you need no calculator. Row
# *animal* has the exponentials 1, 2, 5 and 12. The last one belongs to *slept*, the word to guess, so it must go. How
# do you remove a word from a softmax? Give it the score $-\infty$. Since $e^{-\infty} = 0$, it drops out of the sum as
# well: 1 + 2 + 5 = 8, and the weights are 1/8, 2/8 and 5/8. They blend the values into 1/8 · 0 + 2/8 · 4 + 5/8 · 8 = 6.

# %% The drawing
show(mask_pictures.by_hand(), "06_by_hand",
     alt="Four rows, start sign, the, animal, slept, with four scores each, "
     "logarithms of 1 4 3 2, 1 3 4 2, 1 2 5 12 and 1 1 5 1. The scores above the "
     "diagonal are struck out and replaced by minus infinity. The sums of the "
     "exponentials left are 1, 4, 8, 8. Weights: 1; 1/4 3/4; 1/8 2/8 5/8; 1/8 1/8 5/8 "
     "1/8; all others 0. With the values 0, 4, 8, 20 the results are 0, 3, 6 and 8.",
     caption="Scores above the diagonal become −∞ before softmax, so the weights of "
     "each row are shared out among the words up to its own.")

# %% [markdown]
# Check the other rows of figure 3 with a pencil. The same in code:

# %%
scores = np.log([[1, 4, 3, 2], [1, 3, 4, 2], [1, 2, 5, 12], [1, 1, 5, 1]])
may = np.tri(4, dtype=bool)                                 # True: t may look at s
e = np.exp(np.where(may, scores, -np.inf))
weights = e / e.sum(axis=1, keepdims=True)
results = weights @ values
print(*(f"{y:.3g}" for y in results[:, 0]))

# %% [markdown]
# **Why not multiply the weights by 0 after softmax?** Try it in row *animal*. Without a mask the sum is 20, and the
# weights are 1/20, 2/20, 5/20 and 12/20. Erase the last one, and the rest adds up to only 8/20. What's worse, the sum
# 20 still contains the 12. If the score of *slept* rises, this sum rises, and the weights of *the* and *animal* fall:
# the future changes the past. With $-\infty$ *before* softmax, nothing of *slept* remains in the sum. (Couldn't you
# divide by 8/20 afterwards? On paper, yes. But if the hidden score is larger by 1,000, all other weights have been
# rounded to 0, and you divide 0 by 0: [lab notes 06, experiment 6](lab/06_masks.py#experiment-6-zero-after-softmax).)
#
# ## In general
#
# A mask $M$ is added to the scores. It is 0 where query $t$ may use key $s$ and $-\infty$ where it may not:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}} + M\right) V$$

# %%
def masked_softmax(z, may):
    """z (..., T, S) scores, may (..., T, S) bool -> weights (..., T, S)"""
    z = np.where(may, z, -np.inf)                           # z + M
    top = z.max(axis=-1, keepdims=True)                     # -inf if nothing is allowed
    e = np.exp(z - np.where(np.isinf(top), 0, top))         # at most e^0: no overflow
    total = e.sum(axis=-1, keepdims=True)                   # 0 if nothing is allowed
    return e / np.where(total == 0, 1, total)


def attention(q, k, v, may):
    """q (T, d_k), k (S, d_k), v (S, d_v), may (T, S) -> y (T, d_v), weights (T, S)"""
    weights = masked_softmax(q @ k.T / math.sqrt(q.shape[-1]), may)
    return weights @ v, weights

# %% [markdown]
# There is a second reason to forbid a key. Sentences of a batch have different lengths, so the shorter ones are
# filled up, and nobody should look at padding. The **padding mask** closes its *columns*, for every row. (The rows of
# the padding compute something too, but the loss ignores them.) Under both masks, a key must be allowed by both.

# %% The drawing
show(mask_pictures.masks(), "06_padding",
     alt="Three grids of four by four cells. Causal mask: the lower triangle is "
     "allowed, the rest is minus infinity. Padding mask of a sentence of two words: "
     "the first two columns are allowed in all rows. Both: the cells allowed in both "
     "grids.",
     caption="The causal mask forbids a triangle; the padding mask forbids whole "
     "columns (here a sentence of two words in a batch four wide).")

# %% [markdown]
# **Your turn.** Build this array in `exercises/06_masks.py`. One thing is new there: when a sentence is continued, the
# queries are only its last words, and the very last one still sees every key.

# %% Our solution
def may_attend(T, S, key_lengths, causal):
    """Which query may use which key: bool (B or 1, 1, T, S); axis 1 is for heads"""
    may = np.ones((1, 1, T, S), bool)
    if causal:
        may = may & (np.arange(S) <= np.arange(T)[:, None] + S - T)
    if key_lengths is not None:
        may = may & (np.arange(S) < key_lengths[:, None, None, None])
    return may


lengths = np.array([4, 2, 0])
for mask in (lengths, True), (lengths, False), (None, True):
    assert np.array_equal(may_attend(3, 4, *mask), Mask(*mask).as_array(3, 4))

# %% [markdown]
# **And if a row has no allowed key at all?** Imagine an empty line among the sentences to be translated: an encoder
# reads no `<s>`, so all its columns may be padding. Softmax then divides 0 by 0, which is NaN ("not a number"), and a
# sum with one NaN is NaN. The gradient of a weight matrix is such a sum, over the whole batch. So a single empty line
# in a corpus would ruin the model. The rule: *a query with nothing to look at gets weights 0*, and so the result 0.
# (Much code adds −10,000 instead of $-\infty$. In an empty row this hides nothing, since softmax ignores a number that
# is added to the whole row: [lab notes 06, experiment 5](lab/06_masks.py#experiment-5-a-large-negative-number).)
#
# ## Backward
#
# How does the sum of the four results, 0 + 3 + 6 + 8, change with each score? (So each result gets the gradient 1.)
# Which scores would raise it? You know the rule from lesson 04: *weight × (what the word offers − the average we
# already have)*. Here the offers are the values 0, 4, 8, 20, and the average of a row is its result.
#
# Look at row *animal*. The best offer is that of *slept*: 20, and the result is only 6. What is the gradient of that
# score?

# %% [markdown]
# <details><summary>Make a guess, then unfold: the gradients of all scores</summary>

# %% The same drawing, backward
dscores = weights * (values.T - results)                    # with dy = 1 in each row
rows = [0, 0, 0, 0], [-0.75, 0.75, 0, 0], [-0.75, -0.5, 1.25, 0], [-1, -0.5, 0, 1.5]
assert np.allclose(dscores, rows, rtol=0, atol=1e-12) and not np.triu(dscores, 1).any()
show(mask_pictures.by_hand(backward=True), "06_backward",
     alt="The same drawing with gradients. Scores: 0; -0.75, +0.75; -0.75, -0.5, "
     "+1.25; -1, -0.5, 0, +1.5; all scores above the diagonal have gradient 0. "
     "Values: 1.5, 1.125, 1.25 and 0.125.",
     caption="The same four rows, backward: every struck-out score has the gradient "
     "0, even that of “slept” in row “animal”, which offers most.")

# %% [markdown]
# Exactly 0. The score of *slept* was overwritten with $-\infty$ before anything read it, so no change of it can reach
# the loss. The formula agrees, because its first factor is the weight:
#
# | row *animal* | weight | × (offer − average) | = gradient of the score |
# |---|---|---|---|
# | `<s>` | 1/8 | 0 − 6 | −0.75 |
# | the | 2/8 | 4 − 6 | −0.5 |
# | animal | 5/8 | 8 − 6 | +1.25 |
# | slept | 0 | 20 − 6 | **0** |
#
# </details>
#
# Each row of figure 5 adds up to zero, as always. Row `<s>` is all zeros: a word that
# sees only itself has nothing to choose. And in row *slept*, *animal* has the largest weight but the gradient 0: it
# offers 8, and 8 is the average.
#
# The values get the column sums of the weights: *the* gets 3/4 + 2/8 + 1/8 = 1.125. So forward, words speak to later
# words, and backward, gradients return from later words.
#
# **Your turn.** `exercises/06_masked_softmax_backward.py` asks for the general rule. You get the weights but *not the
# mask*. Why is that enough? (There the division by $\sqrt{d_k}$ belongs to the softmax: $z = \text{factor} \cdot
# \text{scores}$. So, by the chain rule, the gradient of the scores is factor · $dz$.)
#
# <details><summary>The rule, and why it needs no mask</summary>
#
# Let $dw_{ts} = dy_t \cdot v_s$ be the gradient of weight $w_{ts}$, which is what key $s$ offers to query $t$. (By
# hand, $dy$ was 1, so the offer was the value itself.) Among the allowed keys nothing has changed since lesson 04:
#
# $$dz_{tr} = w_{tr} \Bigl( dw_{tr} - \sum_s w_{ts} \, dw_{ts} \Bigr)$$
#
# The sum may run over *all* keys, because a forbidden one has weight 0 and adds nothing. For a forbidden $r$ the
# weight in front makes it 0. In an empty row all weights are 0, so all gradients are. One formula serves every case:
# **the mask is not needed in backward, because the zeros among the weights remember it.**
#
# </details>

# %% Our solution
def masked_softmax_backward(dweights, weights, factor):
    """dweights, weights (B, H, T, S) -> dscores (B, H, T, S)"""
    average = (weights * dweights).sum(axis=-1, keepdims=True)
    return factor * weights * (dweights - average)

# %% Finite differences and the library, with an empty sentence
random, lengths = np.random.default_rng(1), np.array([5, 2, 0])
scores, dweights = random.normal(size=(2, 3, 2, 3, 5))      # (B, H, T, S) both
may, factor = may_attend(3, 5, lengths, causal=True), 1 / math.sqrt(7)
weights = masked_softmax(factor * scores, may)
dscores = masked_softmax_backward(dweights, weights, factor)
numeric = numeric_gradient(
    lambda scores: (masked_softmax(factor * scores, may) * dweights).sum(), scores)
ops = ops_of(scores)
measure("difference from finite differences", np.abs(dscores - numeric).max(), 0, 1e-8)
measure("largest gradient of a forbidden score", np.abs(dscores * ~may).max(), 0, 0)
same("the library's weights", weights,
     ops.masked_softmax(scores, factor, lengths, causal=True))
same("the library's gradient", dscores,
     ops.masked_softmax_backward(dweights, weights, factor))

# %% [markdown]
# ## What a gradient check can't see
#
# A gradient check compares backward with forward. If forward looks at the future, the gradient of that wrong function
# is still correct, and the check passes. Leaks need a test of their own, the **flow test**: replace one word of the
# input and see which outputs change. Each row below is an output of our two models, and `x` means that it changes with
# the input of that column:

# %% The flow test
flows = [
    dependence_of(lambda ids: all_at_once(model, ids), read[:1, :5])[0, :, 0]   # (5, 5)
    for model in (honest, cheat)
]
print("model A       model B")
for rows in zip(*flows):
    print("     ".join(" ".join("x" if cell else "." for cell in row) for row in rows))
assert np.array_equal(flows[0], np.tri(5, dtype=bool)) and flows[1].all()

# %% [markdown]
# So that is the difference between the two: model B has no causal mask. **Your turn:** `exercises/06_find_the_leak.py`
# asks for a flow test and tries it on eight functions that leak. One of these leaks, with perfect gradients, was found
# in public code ([lab notes 06, experiment 4](lab/06_masks.py#experiment-4-a-leak-that-passes-the-gradient-check)).
#
# ## Does it matter?
#
# Our test gave each model whole sentences, *all at once*. In use, the later words don't exist yet. So let's test *word
# by word*: the model gets the words up to position $t$ only, and we ask for the next one. What happens to the loss of
# A, which was 2.89, and to that of B, which was 0.29? (A blind guess among all 694 entries of the vocabulary has the
# loss ln 694 = 6.54.)
#
# <details><summary>Make a guess, then unfold: the two models word by word</summary>

# %% The test
def b_without(distance):
    """The loss of model B if position t may not look at position t + distance."""
    with using(Hiding(lambda t, s: s != t + distance)):
        return mean_loss(all_at_once(cheat, read), write)


measure("A: loss word by word", mean_loss(word_by_word(honest, read), write), 2.6, 3.2)
measure("B: loss all at once", mean_loss(all_at_once(cheat, read), write), 0.1, 0.7)
measure("B: loss word by word", mean_loss(word_by_word(cheat, read), write), 6.4, 9)
measure("B: all at once, word t + 1 hidden", b_without(1), 5.5, 9)
measure("B: all at once, word t + 2 hidden", b_without(2), 0.1, 0.7)
assert np.abs(all_at_once(honest, read) - word_by_word(honest, read)).max() < 1e-9

# %% The figure
words = NEW[3]
one, _ = shifted([words])
positions, asked = ["<s>", *words], zip(["<s>", *words], [*words, "</s>"])
colours = plt.get_cmap(COLOUR_MAP).with_extremes(bad="#00000000")   # empty: exactly 0
figure, panels = plt.subplots(1, 2, figsize=(8, 4.2), sharey=True, layout="constrained")
for panel, name, model in zip(panels, ("A, with", "B, without"), (honest, cheat)):
    shown = weights_of(model, one)[0, 0]                    # (T, S)
    panel.imshow(np.ma.masked_equal(shown, 0), colours, vmin=0, vmax=1)
    for t in range(len(words)):
        frame = plt.Rectangle((t + 0.5, t - 0.5), 1, 1, fill=False, ec=ACCENT, lw=2)
        panel.add_patch(frame)
    panel.set_xticks(range(len(positions)), positions, rotation=90)
    panel.set(title=f"model {name} the mask", xlabel="word looked at")
panels[0].set_yticks(range(len(positions)), [f"{a} → {b}" for a, b in asked])
panels[0].set_ylabel("last word read → word to guess")
figure.colorbar(panels[0].images[0], ax=panels, shrink=0.8,
                label="attention weight (empty: exactly 0)")
show(figure, "06_triangle",
     alt="Two maps of attention weights, rows are queries, columns are keys; the cell "
     "right of the diagonal, the word to guess, is framed in each row but the last. "
     "Left, with the causal mask: everything above the diagonal is exactly zero and "
     "left empty, and a stepped lower triangle remains. Right, without: most rows "
     "have nearly all their weight in the framed cell.",
     caption="What the two trained models look at in a new sentence: A lives in its "
     "triangle, while B looks mostly at the framed cells, the words to guess.")

# %% [markdown]
# Model A doesn't notice the difference: with the mask, output $t$ is computed from the words up to $t$ only, so it's
# the same calculation. That is why one pass with a mask may replace as many passes as there are words.
#
# Model B is now worse than a blind guess. Its favourite word still gets 75 % on average, but it is right in only 14 %
# of the cases. Does B really copy, or does it just need a whole sentence around it? The last two rows decide. Hide the
# one word $t + 1$ from it, and its loss jumps from 0.29 to 7.1. Hide $t + 2$ instead, and the loss stays low, at
# 0.21. So B reads the next word in that one cell. Our first test couldn't show
# it, because it handed over the next words just as training does.
#
# </details>
#
# Is it enough, then, to hide the one cell $t + 1$ in training? No. Such a model learns to fill in a blank from both
# sides. When the right side doesn't exist yet, it fails too: 5.6, 7.1 and 8.2 word by word in three runs ([lab notes
# 06, experiment 2](lab/06_masks.py#experiment-2-hide-the-answer-only)).
#
# And forgetting the *shift* is even worse: after 150 steps the loss is 0.03, and the model repeats one word
# for ever, although it passes the flow test ([experiment 3](lab/06_masks.py#experiment-3-forget-the-shift)).
#
# ## Paper and code
#
# Section 3.2.3 of "Attention Is All You Need" sets the forbidden scores to $-\infty$, and section 3.1 adds the shift.
# About padding the paper says nothing. A Transformer has three kinds of attention:
#
# | attention | padding mask | causal mask |
# |---|---|---|
# | encoder, to itself | of the source | no: the source is known, reading ahead is fine |
# | decoder, to itself | not needed: it is in the future of every real word; the loss ignores other rows | yes |
# | decoder, to the encoder | of the source | no |
#
# In the library: `allowed` and `masked_softmax` in [nn/ops.py](../scratchformer/nn/ops.py), the shift in
# [text/batches.py](../scratchformer/text/batches.py).
#
# ## What to remember
#
# Write $-\infty$ over every score that a query must not use. Its weight becomes exactly 0, and so does its gradient.
# The causal mask and the shift need each other. Without the shift, the word to guess is the word just read, which the
# triangle leaves open; without the mask, it stands one column further right. And if a loss looks too good, ask whether
# the model can see what it should guess.
#
# **Exercises** `06_shift_right` · `06_masks` · `06_masked_softmax_backward` · `06_find_the_leak` · and a puzzle:
#
# **Predict.** Give the finished model B the causal mask. Is it repaired?
#
# <details><summary>Answer</summary>
#
# No. In a model of one layer, the mask takes away exactly what doesn't exist word by word, so the loss is the same
# 7.33. The model has to be *trained* with the mask.
#
# </details>
#
# **Next:** one softmax makes one choice for each query. [Lesson 07](07_many_heads.py) gives a query several at a
# time.
