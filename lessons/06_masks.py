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
from support import mask_pictures
from support.lesson import quote, show, table, varying
from support.next_word import (
    FIRST_WORDS,
    NEW,
    VOCABULARY,
    NextWord,
    all_at_once,
    continued,
    mean_loss,
    share_followed,
    share_repeated,
    shifted,
    train,
    weights_of,
    word_by_word,
)

# %% [markdown]
# Here are two small models with one layer of attention each. They differ in one setting. Both learned to guess the next
# word, from the same English sentences. The table gives their loss on 200 new sentences: the cross-entropy per word
# ([lesson 01](01_backprop.py)), so lower is better. Then each model wrote 41 texts, each from another first word,
# always adding the likeliest next word.

# %% Two models
honest, cheat = NextWord(causal=True, seed=0), NextWord(causal=False, seed=0)
for model in honest, cheat:
    train(model, shifted, seed=0)
read, write = shifted(NEW)
rows = []
for name, model in ("A", honest), ("B", cheat):
    texts = [continued(model, ["<s>", first])[1:] for first in FIRST_WORDS]
    rows.append([name, f"{mean_loss(all_at_once(model, read), write):.2f}",
                 f"{share_repeated(texts):.0%}"])
table(["model", "loss on new sentences", "words that repeat the word before"], rows)
for name, model in ("A", honest), ("B", cheat):
    varying(f"{name} writes: {' '.join(continued(model, ['<s>', 'my'])[1:])}")

# %% [markdown]
# B has by far the better loss. But 95 % of the words in its texts repeat the word before. The loss is computed
# correctly, and the sentences are new. What went wrong?
#
# ## The picture
#
# A model that writes one word at a time, each from the words before it, is called **autoregressive**. The sentence *the
# animal slept* asks it four questions. Which word comes first? What comes after *the*? After *the animal*? After *the
# animal slept*? Attention computes all positions in one pass, so we ask all four at once.

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
# has to write the sentence with the end sign `</s>`. It reads the true previous words, not its own guesses: **teacher
# forcing**.
#
# There is a danger. Position *the* has to write *animal*. But *animal* also stands in the input, one position further
# right. So a model can learn to copy it. We forbid all positions further right. The allowed cells form a triangle, the
# **causal mask**. Model A has it, and model B doesn't.
#
# **Your turn.** Write the shift, before you unfold ours: from a list of sentences (lists of ids) to two arrays, what is
# read and what has to be written. Shorter sentences are filled up with **padding**, the id 0. (The loss skips the
# positions where padding would have to be written.)

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
# Give the four words the values 0, 4, 8 and 20. Each pair of words has a score, a logarithm as in lesson 04. Follow row
# *animal* in figure 2. Its exponentials are 1, 2, 5 and 12. The 12 belongs to *slept*, the word to guess, so it must
# go. To remove a word from a softmax, give it the score $-\infty$. Then it adds $e^{-\infty} = 0$ to the sum. The sum
# is 1 + 2 + 5 = 8, and the weights are 1/8, 2/8, 5/8 and 0. The result is 1/8 · 0 + 2/8 · 4 + 5/8 · 8 = 6.

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
# <!-- widget: masks, in the figure's place -->
#
# **Why not set the weight to 0 after softmax?** Without $-\infty$, the sum of row *animal* is 1 + 2 + 5 + 12 = 20. Set
# its last weight to 0, and 1/20, 2/20 and 5/20 are left. The 20 still contains the 12 of *slept*. If the score of
# *slept* rises, the 20 rises, and the weights of *the* and *animal* fall. So the future changes the past. (To divide
# the three by their sum, 8/20, is right on paper, but can give 0/0: [lab notes 06, experiment
# 5](lab/06_masks.py#experiment-5-zero-after-softmax).)
#
# ## In general
#
# Write the mask as a matrix of numbers: 0 where query $t$ may use key $s$, and $-\infty$ where it may not:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{Q K^T}{\sqrt{d_k}} + \mathrm{mask}\right) V$$
#
# In the code, `mask` is True where a key is allowed. Only the first line of `softmax` (lesson 04) uses it.

# %%
quote("softmax", "attention")

# %% The results of figure 2
scores = np.log([[1, 4, 3, 2], [1, 3, 4, 2], [1, 2, 5, 12], [1, 1, 5, 1]])
weights, softmax_backward = transformer.softmax(scores, np.tri(4, dtype=bool))
values = np.array([[0], [4], [8], [20]])                        # (4, 1)
results = weights @ values
print(*(f"{y:.3g}" for y in results[:, 0]))

# %% [markdown]
# No word should look at padding, either. The **padding mask** closes whole *columns*. (The results of the *rows* of
# padding are never used.) With both masks, a query may use a key only if both allow it. A Transformer has three kinds
# of attention:
#
# | attention | padding mask | causal mask |
# |---|---|---|
# | encoder, to itself | of the source | no: the source is known |
# | decoder, to itself | not needed: padding comes after every real word | yes |
# | decoder, to the encoder | of the source | no |

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
# <!-- see: inside?step=decoder.0.self.weights | masked weights of a trained model -->
#
# There can be fewer queries than keys. A model that writes asks for its newest words only, the *last* ones (figure 3,
# right).
#
# **Your turn.** Write `may_attend(T, S, key_lengths, causal)` for $T$ queries and $S$ keys, before you unfold ours.
# `key_lengths` (B,) tells how many real words each of the B sentences has. The result, True where a query may use a
# key, has the shape (B, 1, T, S); the 1 is for the heads of lesson 07. A row without an allowed key would give 0/0; the
# library gives it weights of 0.

# %% Our solution
def may_attend(T, S, key_lengths, causal):
    """-> bool (B, 1, T, S), or (1, 1, T, S) without key_lengths"""
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
# ## Backward
#
# Let the loss be the sum of the four results, 0 + 3 + 6 + 8. By lesson 04 the gradient of a score is *weight × (offer −
# average)*. Here each word offers its value, and the average of a row is its result. So it is **weight × (value −
# result)**.
#
# In row *animal* of figure 2, *slept* offers most: 20, where the result is only 6. What is the gradient of its score?

# %% The same drawing, backward
dscores = softmax_backward(np.tile(values.T, (4, 1)))   # dweights: the values
rows = [0, 0, 0, 0], [-0.75, 0.75, 0, 0], [-0.75, -0.5, 1.25, 0], [-1, -0.5, 0, 1.5]
assert np.allclose(dscores, rows, rtol=0, atol=1e-12) and not np.triu(dscores, 1).any()
show(mask_pictures.by_hand(backward=True), "06_backward",
     alt="The same drawing with gradients. Scores: 0; -0.75, +0.75; -0.75, -0.5, "
     "+1.25; -1, -0.5, 0, +1.5; all scores above the diagonal have gradient 0. "
     "Values: 1.5, 1.125, 1.25 and 0.125. Triangles point down at positive numbers.",
     caption="The same four rows, backward. A triangle points where the number should "
     "go to make the loss smaller: down if its gradient is positive. Every struck-out "
     "score has the gradient 0.")

# %% [markdown]
# Exactly 0. The score of *slept* was overwritten with $-\infty$, so it can't change the result. The rule says the same:
# *animal* has 5/8 · (8 − 6) = 1.25, and *slept* has 0 · (20 − 6) = **0**. So the second half of `softmax` doesn't even
# need `mask`: **the zeros among the weights remember it.**
#
# The gradient of a value is the sum of the weights in its column. For *the*: 3/4 + 2/8 + 1/8 = 1.125. Forward, later
# words read a word; backward, its gradient comes from them.
#
# ## What a gradient check can't see
#
# A gradient check compares backward with forward. If forward looks at the future, its gradient can still be correct,
# and the check passes. So we need a **flow test**: exchange one word of the input, and see which outputs change.

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
# Each printed row is an output. An `x` means that it changes with the input of that column:

# %% The flow test
flows = [flow(model, read[0, :5]) for model in (honest, cheat)]
print("model A       model B")
for rows in zip(*flows):
    print("     ".join(" ".join("x" if cell else "." for cell in row) for row in rows))
assert np.array_equal(flows[0], np.tri(5, dtype=bool)) and flows[1].all()

# %% [markdown]
# An `x` above the diagonal proves a leak. Dots are only a hint, so test several sentences. (No flow test finds a
# forgotten *shift*: [lab notes 06, experiment 3](lab/06_masks.py#experiment-3-forget-the-shift).)
#
# **Your turn.** The hunt `leak` tries your flow test on six functions that leak and three that don't. Change components
# by different numbers, because a later part, LayerNorm ([lesson 12](12_residual_norm_dropout.py)), takes out what is
# added to all. (A leak of public code: [lab notes 06, experiment
# 4](lab/06_masks.py#experiment-4-a-leak-that-passes-the-gradient-check).)
#
# ## Does it matter?
#
# Each model guesses the next words of the 200 new sentences:
#
# - **all at once:** the model reads the whole sentence, as in training.
# - **word by word:** for each guess, the model reads only the words before it. In use, there are no others yet.
# - **exchanged:** all at once, but we exchange the next word for one of another sentence. How many guesses become that
#   other word?
#
# What are the losses word by word? A blind guess among all 694 words has the loss ln 694 = 6.54.
#
# <details><summary>Make a guess, then unfold: the two models word by word</summary>

# %% The test
rows = []
for name, model in ("A", honest), ("B", cheat):
    once, later = (way(model, read) for way in (all_at_once, word_by_word))
    rows.append([name, *(f"{mean_loss(way, write):.2f}" for way in (once, later)),
                 f"{share_followed(model, read):.0%}"])
table(["model", "loss all at once", "loss word by word",
       "exchanged: guesses that follow"], rows)
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
# Word by word, model B is worse than a blind guess. It copies: 72 % of its guesses become the exchanged word. (A can't
# see it; its 5 % are chance.)
#
# **Why *my my my*?** When B writes, no next word stands there to copy. But the vector of its last word also goes
# *around* attention ([lesson 12](12_residual_norm_dropout.py)). That is enough: if B may look at no word at all, it
# still repeats in 88 % (66 and 71 in two other runs, A in 2 to 22: [lab notes 06, experiment
# 1](lab/06_masks.py#experiment-1-without-the-mask)).
#
# </details>
#
# Is it enough to hide the one cell $t + 1$ in training? No. Such a model uses later words, and when it writes, there
# are none ([lab notes 06, experiment 2](lab/06_masks.py#experiment-2-hide-the-answer-only)).
#
# **Today.** Most chat models need no other mask than the causal one. It is no longer stored as an array: GPU programs
# such as **FlashAttention** work block by block and skip the blocks above the diagonal.
#
# ## Paper and code
#
# The paper has $-\infty$ in section 3.2.3 and the shift in section 3.1. About padding it says nothing.
#
# - PyTorch: `F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)`, with the axes batch, head, position, number.
# - In the library: `masked_softmax` in [nn/ops.py](../scratchformer/nn/ops.py), the shift in
#   [text/batches.py](../scratchformer/text/batches.py).

# %% PyTorch
try:
    import torch
except ImportError:
    torch = None
if torch:
    Q, K = np.random.default_rng(1).normal(size=(2, 2, 5, 2, 7))    # (B, T, heads, d_k)
    mask = may_attend(5, 5, np.array([5, 2]), causal=True)          # (B, 1, T, S)
    y, _ = transformer.attention(Q, K, K, mask)
    heads_first = [torch.tensor(each).transpose(1, 2) for each in (Q, K, K)]
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *heads_first, attn_mask=torch.tensor(mask))
    assert np.allclose(theirs.transpose(1, 2), y)

# %% [markdown]
# ## What to remember
#
# Write $-\infty$ over every score that a query must not use. Its weight becomes exactly 0, and so does the gradient of
# the score. If a loss looks too good, ask whether the model can see what it should guess.
#
# **Test yourself.**
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
