# %% [markdown]
# # 06 · Masks: what attention must not see
#
# **How can a model learn all next words at once, when these words stand in its input?**
#
# *Needs [lesson 04](04_soft_lookup.py) (attention and its gradient) · you will fill in a mask and compute the gradients
# behind it with pencil and paper.*

# %% Imports
import numpy as np
import transformer

from scratchformer.nn.attention import Mask
from scratchformer.nn.ops import using
from scratchformer.text.tokenizer import EOS
from support import mask_pictures
from support.lesson import measure, quote, show, table, varying
from support.next_word import (
    FIRST_WORDS,
    NEW,
    VOCABULARY,
    Hiding,
    NextWord,
    all_at_once,
    continued,
    mean_loss,
    share_repeated,
    shifted,
    train,
    weights_of,
    word_by_word,
)
from support.numeric import numeric_gradient

# %% [markdown]
# Here are two small models with one layer of attention each. They differ in one line of code. Both learned to guess the
# next word, from the same English sentences. The table gives their loss on 200 new sentences: the cross-entropy per
# word ([lesson 01](01_backprop.py)), so lower is better. Then each model wrote 41 texts. Each began with a given word,
# and the model always added the likeliest next word.

# %% Two models
honest, cheat = NextWord(causal=True, seed=0), NextWord(causal=False, seed=0)
for model in honest, cheat:
    train(model, shifted, seed=0)
read, write = shifted(NEW)
both = ("A", honest, (2.6, 3.2), (0, 15)), ("B", cheat, (0.1, 0.7), (70, 100))
for name, model, band, _ in both:
    loss = mean_loss(all_at_once(model, read), write)
    measure(f"model {name}: loss on new sentences", round(loss, 2), *band)
for name, model, _, band in both:
    texts = [continued(model, ["<s>", first])[1:] for first in FIRST_WORDS]
    share = round(100 * share_repeated(texts))
    measure(f"model {name}: words that repeat the word before, in %", share, *band)
for name, model, *_ in both:
    varying(f"{name} writes: {' '.join(continued(model, ['<s>', 'my'])[1:])}")

# %% [markdown]
# B has by far the better loss. But 95 % of the words in its texts repeat the word before (77 and 81 % in two other
# runs). The loss is computed correctly, and the sentences are new. What went wrong?
#
# ## The picture
#
# A model that writes one word at a time, each from the words before it, is called **autoregressive**. The sentence *the
# animal slept* asks it four questions. Which word comes first? What comes after *the*? After *the animal*? After *the
# animal slept*? Attention computes all positions in one pass anyway. So we ask all four questions at once.

# %% The drawing
show(mask_pictures.shift(), "06_shift",
     alt="Two rows of four words. The lower row, which the model reads, is: start "
     "sign, the, animal, slept. The upper row, which it has to write, is: the, "
     "animal, slept, end sign. Dashed lines join equal words, each one position "
     "further right in the lower row. Below, a grid: the start sign may look at "
     "itself, 'the' at two words, 'animal' at three, 'slept' at all four. The cell "
     "right of the last allowed one is marked as the next word. An arrow leads from "
     "each row to the word that it has to write: the, animal, slept, end sign.",
     caption="Above: the shift. Below: one row for each question, with the words it "
     "may look at and the word to write.")

# %% [markdown]
# At the top of figure 1, the model reads the sentence *shifted right* by one position, after the start sign `<s>`. It
# has to write the sentence with the end sign `</s>`. The model reads the true previous words, not its own guesses. That
# is called **teacher forcing**.
#
# There is a danger. Position *the* has to write *animal*. But the model also reads *animal*, one position further
# right. Attention looks at all positions, and the vector of a word also tells its position ([lesson
# 09](09_positions.py)). So a model can learn to copy the next word. We forbid all positions further right. The allowed
# cells form a triangle. This is the **causal mask**.
#
# **Your turn.** Write the shift for a batch of sentences, before you unfold ours. Shorter sentences are filled up with
# **padding**, the id 0. (The loss skips the positions where padding would have to be written.)

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
# ## By hand
#
# Give the four words the values 0, 4, 8 and 20. At *animal*, the average of the values so far is (0 + 4 + 8) / 3 = 4.
# That is a softmax, too. All allowed scores are 0, so every exponential is 1, and the weights are 1/3, 1/3, 1/3 and 0.
#
# Now each pair of words has its own score, a logarithm as in lesson 04. Follow row *animal* in figure 2. Its
# exponentials are 1, 2, 5 and 12. The 12 belongs to *slept*, the word to guess, so it must go. How do you remove a word
# from a softmax? Give it the score $-\infty$. Because $e^{-\infty} = 0$, it adds nothing to the sum. The sum is 1 + 2 +
# 5 = 8, and the weights are 1/8, 2/8, 5/8 and 0. The result is 1/8 · 0 + 2/8 · 4 + 5/8 · 8 = 6.

# %% The drawing
show(mask_pictures.by_hand(), "06_by_hand",
     alt="Four rows, start sign, the, animal, slept, with four scores each, "
     "logarithms of 1 4 3 2, 1 3 4 2, 1 2 5 12 and 1 1 5 1. The scores above the "
     "diagonal are struck out and replaced by minus infinity. The sums of the "
     "exponentials left are 1, 4, 8, 8. Weights: 1; 1/4 3/4; 1/8 2/8 5/8; 1/8 1/8 5/8 "
     "1/8; all others 0. With the values 0, 4, 8, 20 the results are 0, 3, 6 and 8.",
     caption="Scores above the diagonal become −∞ before softmax. Check the other "
     "three rows with a pencil.")

# %% [markdown]
# <!-- widget: masks -->
#
# **Why not set the weight to 0 after softmax?** Without $-\infty$, the sum of row *animal* is 1 + 2 + 5 + 12 = 20. Set
# its last weight to 0, and 1/20, 2/20 and 5/20 are left. The 20 still contains the 12 of *slept*. If the score of
# *slept* rises, the 20 rises, and the weights of *the* and *animal* fall. So the future changes the past ([lab notes
# 06, experiment 5](lab/06_masks.py#experiment-5-zero-after-softmax)).
#
# ## In general
#
# Write the rule as a matrix of numbers, the mask. It is 0 where query $t$ may use key $s$, and $-\infty$ where it may
# not:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}} + \mathrm{mask}\right) V$$
#
# In the code, `mask` is True where a key is allowed. You wrote both functions in lesson 04. Look at the mask now: only
# one line of `softmax` uses it, and `attention` just passes it on.

# %%
quote("softmax", "attention")

# %% The results of figure 2
scores = np.log([[1, 4, 3, 2], [1, 3, 4, 2], [1, 2, 5, 12], [1, 1, 5, 1]])
weights, softmax_backward = transformer.softmax(scores, np.tri(4, dtype=bool))
values = np.array([[0], [4], [8], [20]])                        # (4, 1)
results = weights @ values
print(*(f"{y:.3g}" for y in results[:, 0]))

# %% [markdown]
# There is a second reason to forbid a key. The sentences of a batch have different lengths, and no word should look at
# padding. The **padding mask** closes whole *columns*. (The results of the *rows* of padding are never used.) With both
# masks, a query may use a key only if both allow it.

# %% The drawing
show(mask_pictures.masks(), "06_padding",
     alt="Three grids with a column for each key. Causal mask, four rows: the lower "
     "triangle is allowed, the rest is minus infinity. Padding mask of the sentence "
     "'it slept' and two pads: the first two columns are allowed in all four rows. "
     "Causal mask for two queries, 'animal' and 'slept': the first may use three of "
     "the four keys, the second all four.",
     caption="The causal mask forbids a triangle, the padding mask columns. Right: "
     "only the last two queries.")

# %% [markdown]
# **Your turn.** Build the array `mask`, before you unfold ours. There can be fewer queries than keys: a model that
# writes asks for its newest word only. The $T$ queries are then the *last* of the $S$ positions (figure 3, right).
# The axis of length 1 is for the heads of lesson 07.

# %% Our solution
def may_attend(T, S, key_lengths, causal):
    """Which query may use which key: bool (B or 1, 1, T, S)"""
    may = np.ones((1, 1, T, S), bool)
    if causal:
        position = np.arange(T)[:, None] + S - T            # of each query: the last T
        may = may & (np.arange(S) <= position)
    if key_lengths is not None:
        may = may & (np.arange(S) < key_lengths[:, None, None, None])
    return may


lengths = np.array([4, 2, 0])
for mask in (lengths, True), (lengths, False), (None, True):
    assert np.array_equal(may_attend(3, 4, *mask), Mask(*mask).as_array(3, 4))

# %% [markdown]
# **What if a row has no allowed key?** An empty line in a corpus is all padding. Softmax would divide 0 by 0, which is
# NaN ("not a number"), and NaN spreads to every sum that it enters. In the file this can't happen, because every
# sentence has an end sign. The library also accepts empty sentences: there, *a query with nothing to look at gets
# weights 0*.
#
# ## Backward
#
# Let the loss be the sum of the four results, 0 + 3 + 6 + 8. How does it change with a score, $z_s$?
#
# A row's result is $y = \sum_s e^{z_s} v_s \, / \sum_s e^{z_s}$. Let $z_s$ grow by a small $\delta$. Then $e^{z_s}$
# grows by $e^{z_s} \delta$. So the upper sum grows by $e^{z_s} v_s \delta$ and the lower one by $e^{z_s} \delta$. By
# the quotient rule, $y$ changes by $(e^{z_s} v_s - y \, e^{z_s}) \, \delta \, / \sum e^z = w_s (v_s - y) \, \delta$.
# The gradient of a score is *weight × (value − result)*. That is the rule of lesson 04, *weight × (offer − average)*:
# each word offers its value, and the average of a row is its result.
#
# In row *animal* of figure 2, *slept* offers most: 20, and the average is only 6. What is the gradient of that score?

# %% The same drawing, backward
dscores = softmax_backward(np.tile(values.T, (4, 1)))   # dweights: the values
rows = [0, 0, 0, 0], [-0.75, 0.75, 0, 0], [-0.75, -0.5, 1.25, 0], [-1, -0.5, 0, 1.5]
assert np.allclose(dscores, rows, rtol=0, atol=1e-12) and not np.triu(dscores, 1).any()
show(mask_pictures.by_hand(backward=True), "06_backward",
     alt="The same drawing with gradients. Scores: 0; -0.75, +0.75; -0.75, -0.5, "
     "+1.25; -1, -0.5, 0, +1.5; all scores above the diagonal have gradient 0. "
     "Values: 1.5, 1.125, 1.25 and 0.125. Triangles point down at positive numbers.",
     caption="The same four rows, backward. Triangles point where training moves a "
     "number: down if its gradient is positive. Every struck-out score has the "
     "gradient 0.")

# %% [markdown]
# Exactly 0. The score of *slept* was overwritten with $-\infty$, so no change of it can reach the result. The rule says
# the same. *Animal* has 5/8 · (8 − 6) = 1.25, and *slept* has 0 · (20 − 6) = **0**.
#
# The gradient of a value is the sum of the weights in its column. For *the*: 3/4 + 2/8 + 1/8 = 1.125. Forward, a word
# is read by later words. Backward, its gradient comes from those later words.
#
# **Your turn.** Read the second half of `softmax` once more (in "In general"). It doesn't use `mask`. Why is that
# right?
#
# <details><summary>Answer</summary>
#
# The rule is *weight × (offer − average)*. In the code, `p` are the weights, `dp` the offers, and the average of a row
# is the sum of its *weight × offer*. A forbidden key has weight 0. So it adds nothing to the average, and its own
# gradient is 0. **The zeros among the weights remember the mask.**
#
# </details>
#
# Let's check `attention` with both masks: two sentences of 5 and 2 words, and two heads. No gradient may reach the keys
# and values of padding.

# %% Finite differences
random, lengths = np.random.default_rng(1), np.array([5, 2])
Q, dy = random.normal(size=(2, 2, 3, 2, 7))                 # (B, T, heads, d_k) both
K, V = random.normal(size=(2, 2, 5, 2, 7))                  # (B, S, heads, d_k) both
mask = may_attend(3, 5, lengths, causal=True)               # (B, 1, T, S)
y, backward = transformer.attention(Q, K, V, mask)
dQ, dK, dV = backward(dy)
assert not dK[1, 2:].any() and not dV[1, 2:].any()          # padding: exactly 0
numeric = numeric_gradient(
    lambda K: (transformer.attention(Q, K, V, mask)[0] * dy).sum(), K)
measure("dK: difference from finite differences", np.abs(dK - numeric).max(), 0, 1e-8)

# %% PyTorch
try:
    import torch
except ImportError:
    torch = None
if torch:
    heads_first = [torch.tensor(each).transpose(1, 2) for each in (Q, K, V)]
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *heads_first, attn_mask=torch.tensor(mask))
    assert np.allclose(theirs.transpose(1, 2), y)

# %% [markdown]
# ## What a gradient check can't see
#
# A gradient check compares backward with forward. If forward looks at the future, the gradient of that wrong function
# is still correct, and the check passes. So we need a **flow test**: replace one word of the input, and see which
# outputs change.

# %%
def flow(model, ids):
    """ids (T,) -> bool (T, T): does output t change with word s?"""
    before, columns = all_at_once(model, ids[None])[0], []      # (T, V)
    for s in range(len(ids)):
        other = np.where(np.arange(len(ids)) == s, ids + 1, ids)    # another word at s
        after = all_at_once(model, other[None])[0]
        columns.append((abs(after - before) > 1e-9).any(axis=-1))
    return np.transpose(columns)

# %% [markdown]
# In what it prints, each row is an output. An `x` means that it changes with the input of that column:

# %% The flow test
flows = [flow(model, read[0, :5]) for model in (honest, cheat)]
print("model A       model B")
for rows in zip(*flows):
    print("     ".join(" ".join("x" if cell else "." for cell in row) for row in rows))
assert np.array_equal(flows[0], np.tri(5, dtype=bool)) and flows[1].all()

# %% [markdown]
# So that is the difference: model B has no causal mask.
#
# **Your turn.** The hunt `leak` asks for a flow test and tries it on eight functions that leak. (A leak of public code
# is in [lab notes 06, experiment 4](lab/06_masks.py#experiment-4-a-leak-that-passes-the-gradient-check).)
#
# ## Does it matter?
#
# We ask each model for the next words of the 200 new sentences, in two ways:
#
# - **all at once:** the model reads the whole sentence, as in training. The losses were 2.89 for A and 0.29 for B.
# - **word by word:** for each guess, the model reads only the words before it. In use, there are no others yet.
#
# What are the losses word by word? A blind guess among all 694 words has the loss ln 694 = 6.54.
#
# <details><summary>Make a guess, then unfold: the two models word by word</summary>

# %% The test
def b_without(distance):
    """The loss of model B if position t may not look at position t + distance."""
    with using(Hiding(lambda t, s: s != t + distance)):
        return mean_loss(all_at_once(cheat, read), write)


for name, model, lo, hi in ("A", honest, 2.6, 3.2), ("B", cheat, 6.4, 9):
    loss = mean_loss(word_by_word(model, read), write)
    measure(f"{name}: word by word", round(loss, 2), lo, hi)
for away, lo, hi in (1, 5.5, 9), (2, 0.1, 0.7):
    name = f"B: all at once, word t + {away} hidden from position t"
    measure(name, round(b_without(away), 2), lo, hi)
assert np.abs(all_at_once(honest, read) - word_by_word(honest, read)).max() < 1e-9
one, _ = shifted([NEW[3]])
maps = {"model A, with the mask": weights_of(honest, one)[0, 0],        # (T, T)
        "model B, without the mask": weights_of(cheat, one)[0, 0]}
assert maps["model B, without the mask"][5, 6] < 0.3        # from "hundred" to "and"

# %% The drawing
figure = mask_pictures.maps(["<s>", *NEW[3], "</s>"], maps)
show(figure, "06_triangle",
     alt="Two maps of attention weights, rows are queries, columns are keys; the cell "
     "right of the diagonal, the word to guess, is framed in each row but the last. "
     "Left, with the causal mask: everything above the diagonal is exactly zero and "
     "left empty, and a stepped lower triangle remains. Right, without: most rows "
     "have nearly all their weight in the framed cell; row 'hundred' has most of it "
     "on 'lamps' and on itself, and the last row, the full stop, on the start sign.",
     caption="What the two models look at in a new sentence. A frame marks the word "
     "to guess. B looks elsewhere in two rows: *hundred*, and the last, where no next "
     "word stands.")

# %% [markdown]
# For model A nothing changes. Its output $t$ uses only the words up to $t$, so both ways are the same calculation. That
# is why training needs a single pass.
#
# Model B is now worse than a blind guess. Does it copy the next word, or does it need a whole sentence around it? The
# last two rows of the table decide. Hide only the next word, $t + 1$, and the loss of B jumps from 0.29 to 7.1. Hide
# the one after it, $t + 2$, and the loss even falls, to 0.21. So B copies the next word.
#
# **Why does B write *my my my*?** One guess: where no next word stands yet, B looks at its last word and copies that.
# Let's test it. The two models write the 41 texts again, first as before. Then no word may look at itself or at an
# earlier copy of itself. Last, no word may look at anything.

# %% Two tests of the guess
def repeated(model, sees):
    """The share of repetitions in texts if attention may use only what sees allows."""
    texts = []
    for first in FIRST_WORDS:
        ids = [VOCABULARY.index(word) for word in ("<s>", first)]
        while ids[-1] != EOS and len(ids) < 12:
            words = np.array(ids)
            with using(Hiding(lambda t, s: sees(words[t], words[s]))):
                logits = all_at_once(model, words[None])
            ids.append(int(logits[0, -1].argmax()))
        texts.append(ids[1:])
    return f"{100 * share_repeated(texts):.0f} %"


tests = {"any word": lambda word, other: other >= 0 * word,
         "another word": lambda word, other: other != word,
         "nothing": lambda word, other: other < 0 * word}
table(["may look at", "A repeats", "B repeats"],
      [[name, *(repeated(each, sees) for each in (honest, cheat))]
       for name, sees in tests.items()])

# %% [markdown]
# The guess is not enough. Without a look at the same word, B still repeats in 63 %, and after *my* it still writes *my
# my my*. (Hiding words disturbs A as well: it repeats in 37 %.) Even without any attention, B repeats in 88 %, but A in
# only 12 %. So B has a second way to repeat. The vector of a word also goes *around* attention, on the residual
# connection of [lesson 12](12_residual_norm_dropout.py), and the output is compared with the same word vectors. We
# think that A has learned in training not to repeat, and that B, which could copy the answer, never had to.
#
# In two other runs the look at the same word explains most: without it, the repetitions fall from 77 and 81 % to 17 and
# 15 % ([lab notes 06, experiment 1](lab/06_masks.py#experiment-1-without-the-mask)).
#
# </details>
#
# Is it enough to hide the one cell $t + 1$ in training? No. Such a model learns to fill in a blank from both sides, and
# when it writes, there is no right side yet. And without the *shift*, a model repeats one word for ever ([lab notes 06,
# experiments 2](lab/06_masks.py#experiment-2-hide-the-answer-only) and 3).
#
# **Today.** Chat models are decoders only, and the causal mask is the only mask that most of them need. It is no longer
# stored as an array: kernels such as **FlashAttention** work block by block and skip the blocks above the diagonal.
# Some layers also forbid what is too far back (**sliding window**). And if several texts share one row of a batch, a
# mask keeps each text from seeing the others.
#
# ## Paper and code
#
# The paper, "Attention Is All You Need", has $-\infty$ in section 3.2.3 and the shift in section 3.1. About padding it
# says nothing. A Transformer has three kinds of attention:
#
# | attention | padding mask | causal mask |
# |---|---|---|
# | encoder, to itself | of the source | no: the source is known |
# | decoder, to itself | not needed: padding comes after every real word | yes |
# | decoder, to the encoder | of the source | no |
#
# - PyTorch: `F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)` (compared above; its axes are batch, head,
#   position, number). With `is_causal=True` it makes the triangle itself.
# - In the library: `masked_softmax` in [nn/ops.py](../scratchformer/nn/ops.py), the shift in
#   [text/batches.py](../scratchformer/text/batches.py).
#
# ## What to remember
#
# Write $-\infty$ over every score that a query must not use. Its weight becomes exactly 0, and so does the gradient of
# the score. The causal mask lets a position see its own word. Without the shift, that is the word to guess. If a loss
# looks too good, ask whether the model can see what it should guess.
#
# **Three questions.**
#
# 1. A row of scores has the exponentials 3, 1, 4 and 8. The causal mask forbids the last two. What are the weights?
# 2. The values of that row are 2, 10, 5 and 100. What is its result, and how does it change with each of the four
#    scores?
# 3. A sentence of 3 words is padded to 5, and attention is causal and has a padding mask. How many of the 25 cells are
#    allowed?
#
# <details><summary>Answers</summary>
#
# 1. 3/4, 1/4, 0 and 0.
# 2. 3/4 · 2 + 1/4 · 10 = 4. Weight × (value − result) is 3/4 · (2 − 4) = −1.5, 1/4 · (10 − 4) = +1.5, 0 and 0.
# 3. 12. The rows of the 3 words have 1, 2 and 3 cells. The two rows of padding have 3 each, and nobody uses their
#    results.
#
# </details>
#
# **Yours:** the hunt `leak` · `scratchformer learn check leak`
#
# **Next:** one softmax makes one choice for each query. [Lesson 07](07_many_heads.py) gives a query several at a time.
