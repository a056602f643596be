# %% [markdown]
# # 09 · Where am I? Sinusoidal positions
#
# **How can the vector of a word say where the word stands?**
#
# *Needs [lesson 04](04_soft_lookup.py) (queries, keys, self-attention) · you will turn clock hands with pencil and
# paper.*

# %% Imports
import math

import numpy as np

from exercises.numeric import numeric_gradient
from library import position_pictures as pictures
from library.lesson import measure, same, show, table
from library.positions import shift_matrix as library_shift_matrix
from library.to_the_left import alike, new_positions, to_the_left
from scratchformer.nn.layers import LearnedPositions, sinusoids

# %% [markdown]
# Let one layer of self-attention with random weights read two sentences: "dog bites man" and "man bites dog". Here is
# the new vector that each word gets:

# %% The layer
random = np.random.default_rng(0)
maps = 0.5 * random.normal(size=(3, 4, 4))         # W_Q, W_K, W_V


def attend(x):
    """x (T, 4) -> (T, 4)"""
    q, k, v = (x @ W for W in maps)
    e = np.exp(q @ k.T / math.sqrt(4))
    return e / e.sum(axis=1, keepdims=True) @ v


def outputs(sentence, positions):
    """The vector that each word of the sentence gets from attention."""
    words = np.array([pictures.WORDS[word] for word in sentence], float)
    return dict(zip(sentence, attend(words + positions)))


def compared(positions):
    """For each word its vectors in both sentences, as text."""
    one, other = (outputs(sentence, positions) for sentence in pictures.SENTENCES)
    return {word: ["  ".join(f"{value:.2f}" for value in found[word] + 0.0)
                   for found in (one, other)] for word in pictures.WORDS}


without = compared(np.zeros((3, 4)))
assert all(one == other for one, other in without.values())
table(["word", "in “dog bites man”", "in “man bites dog”"],
      [[word, *both] for word, both in without.items()])

# %% [markdown]
# Each word gets the same vector in both sentences. So who bites whom is lost, and no training can bring it back. The
# reason: an output is a weighted sum over all words, and a sum doesn't depend on the order of its terms. If we reorder
# the words, the outputs are only reordered with them. Attention is **permutation equivariant**.
#
# **Your turn.** In `exercises/09_order_blind.py`, find a sentence that attention can't tell from a given one, and run
# `scratchformer learn check 09_order_blind`.
#
# ## The picture
#
# So the vector of a word must also say where the word stands. How do you write a position as a few numbers? A single
# number that counts 0, 1, 2, … grows without limit. Binary digits don't: at the top of figure 1, the ones change at
# every step, the twos half as often, the fours again half as often. But digits jump. From 3 to 4 all three change at
# once.
#
# Clock hands count like digits, but without jumps. The fast hand in figure 1 makes a quarter turn per position and
# comes round every four positions, like the twos. The slow hand makes an eighth turn and comes round every eight
# positions, like the fours.

# %% The drawing
show(pictures.clocks(), "09_clocks",
     alt="Positions 0 to 7 in eight columns. Above, their binary digits. In the "
     "middle, two dials for each position: the fast hand turns by a quarter, the slow "
     "hand by an eighth from column to column. Below, four numbers for each position: "
     "height and width of the fast hand, then of the slow hand, for example 1, 0, "
     "0.707, 0.707 for position 1.",
     caption="A binary counter, and two clock hands that count the same positions "
     "without jumps; the thick line is the height of the hand.")

# %% [markdown]
# Both hands start at three o'clock and turn counterclockwise. We write down the height and the width of each tip,
# measured from the middle of the dial. A hand of length 1 that has turned by the angle $a$ has the height $\sin a$ and
# the width $\cos a$. Two hands give four numbers, the **position vector** $p$. For position 1 it is
# (1, 0, 0.707, 0.707), since $\sin 45° = \cos 45° = 0.707$.
#
# ## By hand
#
# **How similar are two positions?** Take figure 1 and a pencil. Attention compares vectors with the dot product.
# Positions 1 and 4 are three apart, and so are positions 2 and 5:
#
# | | fast hand | slow hand | sum |
# |---|---|---|---|
# | $p_1 \cdot p_4$ | 1 · 0 + 0 · 1 = 0 | 0.707 · 0 + 0.707 · (−1) = −0.707 | **−0.707** |
# | $p_2 \cdot p_5$ | 0 · 1 + (−1) · 0 = 0 | 1 · (−0.707) + 0 · (−0.707) = −0.707 | **−0.707** |
#
# Why are the two sums equal? The dot product of two hands of length 1 is the cosine of the angle *between* them. Three
# positions apart, this angle is 270° for the fast hands (cosine 0) and 135° for the slow hands (cosine −0.707). It
# doesn't matter where we start. **The dot product of two position vectors depends only on their distance.** Here are
# positions 0 and 2, each with all eight positions:

# %%
def position(t):
    """The heights and widths of both hands: (4,)"""
    fast, slow = math.pi / 2 * t, math.pi / 4 * t
    return np.array([math.sin(fast), math.cos(fast), math.sin(slow), math.cos(slow)])


p = np.stack([position(t) for t in range(8)])      # (8, 4), a row for each position
print((p[[0, 2]] @ p.T).round(2) + 0.0)            # (2, 8)

# %% [markdown]
# In the second line, positions 1 and 3 have the same product, 0.71: the dot product can't tell left from right. In the
# first line, position 7 looks like position 1, since at position 8 both hands are back at the start. Longer texts need
# slower hands, too.
#
# **How do you get three positions to the left?** Turn both hands back: the fast one by 3/4 turn, the slow one by 3/8
# turn. At the top of figure 2, the hands of position 5 then stand as at position 2. Start at position 7 in figure 1,
# and the same two turns lead to position 4. **"Three to the left" is the same rotation from everywhere.**
#
# A rotation is a product with a matrix, and attention has one for its queries: $W_Q$. Leave the words aside for a
# moment. Let $W_Q$ do the rotation, and let the keys be the position vectors as they are. Then position 5 asks with the
# vector of position 2, and the key at position 2 fits best. Figure 2 shows all scores, before the division by
# $\sqrt{d_k}$.

# %% The drawing
show(pictures.three_to_the_left(), "09_left",
     alt="The hands of position 5 are turned back by three quarters and three eighths "
     "of a turn, and stand as at position 2. This query, (0, -1, 1, 0), has with the "
     "keys of positions 0 to 7 the scores -1, 0.707, 2, 0.707, -1, -0.707, 0 and "
     "-0.707.",
     caption="Position 5 looks three to the left: the score is largest at position 2.")

# %% [markdown]
# **How does a word get its position?** We add the two vectors. In figure 3, *dog* at position 0 becomes (2, 1, 1, 1),
# and *dog* at position 2 becomes (2, −1, 2, 0).

# %% The drawing
show(pictures.sums(), "09_sums",
     alt="Two sentences, dog bites man and man bites dog. Each word's vector of four "
     "numbers is added to the vector of its position. Dog is (2, 0, 1, 0). Plus "
     "position 0, (0, 1, 0, 1), it is (2, 1, 1, 1); plus position 2, (0, -1, 1, 0), "
     "it is (2, -1, 2, 0). Both sentences use the same three position vectors.",
     caption="The same word at another position is now another vector; both sentences "
     "use the same position vectors.")

# %% [markdown]
# With these sums, the layer of the opening gives *dog* two different vectors:

# %% The layer, with positions
for sentence, vector in zip(pictures.SENTENCES, compared(p[:3])["dog"]):
    print(f"in “{' '.join(sentence)}”:  {vector}")

# %% [markdown]
# But doesn't a sum blur word and position? If the two lie mostly in different directions, $W_Q$ and $W_K$ can read one
# and ignore the other. Training has to arrange this.
#
# ## In general
#
# The paper calls the position vector $PE(pos)$, for "positional encoding". Like a word, it has $d_{model}$ numbers, so
# there are $d_{model}/2$ hands. Hand $i = 0, 1, 2, \dots$ turns by $\omega_i = 10000^{-2i/d_{model}}$ radians per word.
# The first hand turns by 1 radian (57°), and each further hand is slower by the same factor:
#
# $$PE(pos, 2i) = \sin\left(\frac{pos}{10000^{2i/d_{model}}}\right) \qquad
# PE(pos, 2i+1) = \cos\left(\frac{pos}{10000^{2i/d_{model}}}\right)$$
#
# **Your turn.** Write this table in `exercises/09_sinusoids.py`.

# %% Our solution: the table
def position_vectors(first, count, d_model):
    """Positions first, first + 1, ... -> (count, d_model)"""
    speeds = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)    # (D / 2,)
    angles = np.arange(first, first + count)[:, None] * speeds   # (count, D / 2)
    tips = np.stack([np.sin(angles), np.cos(angles)], axis=-1)   # (count, D / 2, 2)
    return tips.reshape(count, d_model)


# %% [markdown]
# What you did by hand works with any number of hands. The dot product adds up their cosines, and in $k$ words hand $i$
# turns by $\omega_i k$. So $PE(0) \cdot PE(k) = \sum_i \cos(\omega_i k)$. Figure 4 shows a table with 32 hands as
# colours, and this sum for 2 and for 256 hands.

# %% The drawing of the table
PE = position_vectors(0, 5001, 512)
two_hands = np.stack([position(k) for k in range(41)])
show(pictures.table_and_similarity(position_vectors(0, 50, 64), two_hands, PE[:41]),
     "09_table",
     alt="Left: the table of positions 0 to 49, 64 numbers each, as coloured cells. In "
     "the left columns the colours alternate every few positions; towards the middle "
     "the waves get longer and longer; in the right half every column keeps its "
     "colour. Right: the dot product of position 0 and position k, divided by its "
     "value at k = 0, for k from 0 to 40. With two hands it jumps between -0.5 and 1 "
     "and is 1 again at 8, 16, 24 and so on. With 256 hands it falls from 1 to 0.7 at "
     "10 words and 0.5 at 40 words.",
     caption="Left, each row is a position vector: fast hands change from row to row, "
     "slow hands hardly, like the ones and the fours of figure 1. Right: with our two "
     "hands position 8 looks like position 0; with 256 hands the neighbour stays the "
     "most similar.")

# %% [markdown]
# And the step by $k$ words? It turns hand $i$ from some angle $a$ to $a + b$, with $b = \omega_i k$:
#
# $$\sin(a + b) = \cos b \, \sin a + \sin b \, \cos a \qquad \cos(a + b) = -\sin b \, \sin a + \cos b \, \cos a$$
#
# On the right stand the old height $\sin a$ and the old width $\cos a$, with four factors that don't depend on the
# position. These factors are a block of one matrix $M_k$:
#
# $$PE(pos + k) = M_k \, PE(pos), \qquad M_k \text{ has the blocks }
# \begin{pmatrix} \cos \omega_i k & \sin \omega_i k \\ -\sin \omega_i k & \cos \omega_i k \end{pmatrix}$$
#
# Try the slow hand at position 5, (−0.707, −0.707), with $k = -3$. Then $b = -135°$, and both $\cos b$ and $\sin b$ are
# −0.707. The new height is 0.5 + 0.5 = 1, the new width −0.5 + 0.5 = 0, as at position 2.
#
# In this formula $PE$ is a column. In our attention the vectors are rows, and the query is $p \, W_Q$. So for "three to
# the left" we need the transpose: $W_Q = M_{-3}^T$.
#
# **Your turn.** Write $M_k$ in `exercises/09_shift_matrix.py`. A negative $k$ leads to the left.

# %% Our solution: the matrix
def shift(k, d_model):
    """M (D, D) with PE(pos + k) = M PE(pos) for every pos"""
    M = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        b = k * 10000.0 ** (-i / d_model)
        c, s = math.cos(b), math.sin(b)
        M[i:i + 2, i:i + 2] = [[c, s], [-s, c]]
    return M


# %% The check
same("M_-3 PE(pos) and PE(pos − 3)", PE[3:1000] @ shift(-3, 512).T, PE[:997], 1e-10)
similar = PE[1:] @ PE[0]                           # distances 1 to 5,000
nearest = similar.argmax() + 1
measure("largest PE(0) · PE(k) for k = 1 to 5,000: at k", nearest, 1, 1)
assert similar[0] > similar[1:].max() + 0.1        # strictly
assert np.allclose(PE, sinusoids(0, 5001, 512), rtol=0, atol=1e-9)
assert np.allclose(shift(-3, 512), library_shift_matrix(-3, 512), rtol=0, atol=1e-12)

# %% [markdown]
# ## Backward
#
# Figure 3 was an addition, $y = x + p$. In its middle row, suppose the gradient (3, 1, 0, −1) arrives at the sum of
# sentence 1, and (−3, 1, 1, 0) at the sum of sentence 2. What does *bites* get in each sentence?
#
# If a number of the word grows by 0.01, the same number of the sum grows by 0.01. So **the gradient passes through to
# the word unchanged.** Sinusoids are constants and learn nothing.
#
# The paper also tried **learned positions**: a table $P$ with a row for each position, trained like the table of words.
# Both sentences use row 1. What is its gradient?
#
# <details><summary>Make a guess, then unfold: the gradient of a row</summary>

# %% The drawing, backward
show(pictures.sums(backward=True), "09_sums_backward",
     alt="The same drawing with gradients. At each position, the gradient of a word "
     "is that of its sum, and the gradient of the position is the sum over both "
     "sentences. At position 1, (+3, +1, 0, -1) and (-3, +1, +1, 0) arrive, and the "
     "row gets (0, +2, +1, -1).",
     caption="The same sums, backward: a position gets the gradients of both its sums, "
     "added up.")

# %% [markdown]
# Row 1 was used in both sentences. So it has two ways to the loss, and the chain rule adds them up:
# (+3, +1, 0, −1) + (−3, +1, +1, 0) = (0, +2, +1, −1).
#
# </details>
#
# In general, $dy$ has the shape $(B, T, D)$, for $B$ sentences of $T$ words. Let the first word use row $f$ of the
# table. Then $dx = dy$, and row $f + t$ gets the sum over all sentences, $dP_{f+t} = \sum_b dy_{bt}$.
#
# **Your turn.** Write it in `exercises/09_learned_positions_backward.py`. Which rows get nothing?

# %% Our solution: learned positions, backward
def learned_positions_backward(dy, first, max_positions):
    """dy (B, T, D) -> dx (B, T, D), dP (max_positions, D)"""
    dP = np.zeros((max_positions, dy.shape[2]))    # a row that no word used keeps its 0
    dP[first:first + dy.shape[1]] = dy.sum(axis=0)
    return dy, dP


# %% The check of both gradients
_, dP = learned_positions_backward(np.array(pictures.ARRIVING, float), 0, 4)
assert np.array_equal(dP[1], [0, 2, 1, -1]) and not dP[3].any()
random = np.random.default_rng(9)
x, dy, P = (random.normal(size=size) for size in ((3, 4, 6), (3, 4, 6), (8, 6)))
numeric = [numeric_gradient(lambda x: ((x + P[2:6]) * dy).sum(), x),
           numeric_gradient(lambda P: ((x + P[2:6]) * dy).sum(), P)]
dx, dP = learned_positions_backward(dy, 2, 8)
same("dx, dP and finite differences", *(np.concatenate([dx.ravel(), dP.ravel()])
     for dx, dP in ((dx, dP), numeric)), 1e-8)
layer = LearnedPositions(8, 6, random, "float64")
assert np.array_equal(dx, layer.backward(dy, layer.forward(x, 2)[1]))
assert np.array_equal(dP, layer.weight.grad)

# %% [markdown]
# ## Does it matter?
#
# A rotation by three positions exists. Does training *find* it? Let a small model learn to say the word three to the
# left:

# %% The drawing of the set-up
show(pictures.task(), "09_task",
     alt="A text of 24 words, a letter for each, at positions 0 to 23. At position 13 "
     "the right answer is the word at position 10. Never asked in training are the "
     "single positions 5 and 9 and the five positions 15 to 19. Below, the model: the "
     "query is made of the position only, keys and values of word plus position; "
     "attention with one head, a linear layer, scores of 11 words.",
     caption="The set-up: the query knows only its position. Where it says *no*, the "
     "model is never asked in training.")

# %% [markdown]
# In training the model is never asked at seven positions: two single ones and five in a row. Each run leaves out other
# positions. Then we ask exactly there, in new texts. A model that found the rotation is right, since the same matrix
# works everywhere. A model that learned a list ("from 8 look at 5") isn't. A blind guess is right in 9 % of the cases
# (1 of 11).
#
# We change only the table of positions. Clock hands have a rotation, and neighbours have *similar* vectors. Four tables
# separate these two properties:
#
# | | neighbours similar | neighbours not similar |
# |---|---|---|
# | **rotation** | *sinusoids* | *big steps*: hands that turn by up to half a turn per word |
# | **no rotation** | *smooth*: random vectors, averaged with neighbours | *shuffled*: *smooth* in a random order |
#
# Which of them are right where they were never asked?
#
# <details><summary>Make a guess, then unfold: share of right words, mean of three runs</summary>

# %% Training on the four tables
TABLES = {"sinusoids": ("yes", (0.85, 1), (0.2, 0.6)),
          "big steps": ("yes", (0, 0.25), (0, 0.25)),
          "smooth": ("no", (0.75, 1), (0.05, 0.29)),
          "smooth, shuffled": ("no", (0, 0.25), (0, 0.25))}
rows = []
for name, (rotation, *bands) in TABLES.items():
    _, asked, *never = np.mean([to_the_left(name, seed) for seed in range(3)], axis=0)
    assert asked > 0.95, (name, asked)
    for share, (lo, hi) in zip(never, bands):
        assert lo <= share <= hi, (name, share, lo, hi)
    similar = abs(alike(new_positions(name, np.random.default_rng(50))))
    rows.append([name.split(", ")[-1], rotation, f"{similar:.2f}",
                 *(f"{share:.0%}" for share in never)])
table(["table", "rotation?", "cosine of neighbours", "single positions",
       "five in a row"], rows)

# %% [markdown]
# Look at the single positions first. *Big steps* has a rotation, and is hardly better than a guess. *Smooth* has none,
# and is right in 91 % of the cases. *Shuffled* has the same vectors in another order, and only guesses. So the
# similarity of neighbours helps here, not the rotation. We think that the model fills the gap: the query of position 7
# lies between those of 6 and 8, so it looks between 3 and 5.
#
# Five in a row are too wide a gap. Even the *sinusoids* are right in only 37 % of the cases. The rotation would always
# be right. **That a rotation exists doesn't mean that training finds it.** ([Lab notes 09, experiment
# 2](lab/09_positions.py#experiment-2-three-words-to-the-left): eleven tables, also a learned one.)
#
# </details>
#
# ## Paper and code
#
# [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), §3.5, hope that sinusoids "would allow the model to easily
# learn to attend by relative positions". With learned positions their translator did as well: 25.7 BLEU against 25.8
# (Table 3, row E). Whether sinusoids work on texts *longer* than in training is contested; [lesson 10](10_longer.py)
# measures it.
#
# Library: `PositionalEncoding` and `LearnedPositions` in [nn/layers.py](../scratchformer/nn/layers.py).
#
# ## What to remember
#
# Attention doesn't see order, so we add to each word a vector that says where it stands: the heights and widths of
# clock hands with many speeds. The dot product of two such vectors depends only on their distance, and "three to the
# left" is the same rotation from everywhere. Backward, the gradient passes through the addition unchanged.
#
# **Next:** [10 · Longer than training](10_longer.py). All our texts had 24 words. What happens at the 25th?
