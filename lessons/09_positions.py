# %% [markdown]
# # 09 · Where am I? Sinusoidal positions
#
# **How can the vector of a word say where the word stands?**
#
# *Needs [lesson 04](04_soft_lookup.py) (queries, keys, self-attention) · you will compute position vectors, their dot
# products and a step of three words with pencil and paper.*

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
# Give each of the words *dog*, *bites* and *man* a vector of four numbers, and let one layer of self-attention, with
# random weights, read two sentences. It returns a new vector for every word. Here are these vectors, first for "dog
# bites man", then for "man bites dog":

# %% A layer of self-attention with random weights
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
    one, other = (outputs(sentence, positions) for sentence in pictures.SENTENCES)
    table(["word", "in “dog bites man”", "in “man bites dog”"],
          [[word, *("  ".join(f"{value:.2f}" for value in found[word] + 0.0)
                    for found in (one, other))] for word in pictures.WORDS])
    return max(np.abs(one[word] - other[word]).max() for word in one)


assert compared(np.zeros((3, 4))) < 1e-12

# %% [markdown]
# Every word gets the same vector in both sentences. Who bites whom is lost, and no training can bring it back. You know
# the reason from lesson 04: the output of a word is a weighted sum over all words, each weight depends on two vectors
# only, and a sum doesn't know the order of its terms. If we reorder the words, the outputs are reordered in the same
# way, and nothing else changes. This is called **permutation equivariant**. (Often you read "invariant". That would
# mean that the outputs don't even move.)
#
# **Your turn.** In `exercises/09_order_blind.py` you get a sentence, and look for another one that attention can't tell
# from it. Then run `scratchformer learn check 09_order_blind`. (One case uses the causal mask of
# [lesson 06](06_masks.py).)
#
# ## The picture
#
# So the vector of a word must also contain its position. How do you write a position as a few numbers? One number that
# counts 0, 1, 2, … grows without limit. A computer would use binary digits, as in the upper part of figure 1: the ones
# change at every step, the twos half as often, the fours again half as often. Digits stay between 0 and 1, but they
# jump: from 3 to 4 all three change at once.
#
# Clock hands do the same without jumps. A fast hand makes a quarter turn per position, so it comes round every four
# positions, like the twos. A slow hand makes an eighth turn and comes round every eight, like the fours. (The ones
# would need half a turn. We leave that hand out.)

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
# The hands start at three o'clock and turn counterclockwise, as angles do in mathematics. How do we write down where a
# hand points? By the height and the width at which its tip stands. If the hand has length 1 and has turned by the angle
# $a$, the height is $\sin a$ and the width is $\cos a$. Two hands give four numbers, the **position vector** $p$. For
# position 1 it is (1, 0, 0.707, 0.707), as $\sin 45° = \cos 45° = \sqrt{1/2} = 0.707$.
#
# ## By hand
#
# Take figure 1 and a pencil.
#
# **How similar are two positions?** As always in attention, we measure it with the dot product. Positions 1 and 4 are
# three apart, and so are 2 and 5:
#
# | | fast hand | slow hand | sum |
# |---|---|---|---|
# | $p_1 \cdot p_4$ | 1 · 0 + 0 · 1 = 0 | 0.707 · 0 + 0.707 · (−1) = −0.707 | **−0.707** |
# | $p_2 \cdot p_5$ | 0 · 1 + (−1) · 0 = 0 | 1 · (−0.707) + 0 · (−0.707) = −0.707 | **−0.707** |
#
# That is no accident. The dot product of two hands of length 1 is the cosine of the angle *between* them. Three
# positions apart, the fast hands have 3/4 turn between them, and cos 270° = 0; the slow hands have 3/8 turn, and
# cos 135° = −0.707. It doesn't matter where we start. **The dot product of two position vectors depends only on their
# distance.** Here are all of them:

# %%
def position(t):
    """The heights and widths of both hands: (4,)"""
    fast, slow = math.pi / 2 * t, math.pi / 4 * t
    return np.array([math.sin(fast), math.cos(fast), math.sin(slow), math.cos(slow)])


p = np.stack([position(t) for t in range(8)])      # (8, 4), a row for each position
for row in p @ p.T:                                # (8, 8)
    print("".join(f"{value:7.2f}" for value in row.round(9) + 0.0))

# %% [markdown]
# Along each diagonal stands one number, and the largest, 2, is on the main diagonal. Notice that distance 7 looks like
# distance 1: at position 8 both hands are back at the start. Longer texts need slower hands, too. Notice also that the
# table is symmetric. The dot product alone doesn't know left from right.
#
# **How do you get three words to the left?** Turn both hands back: the fast one by 3/4 turn, the slow one by 3/8 turn.
# As numbers, with (height, width) of a hand:
#
# - fast, back by 3/4 turn: (h, w) becomes (w, −h);
# - slow, back by 3/8 turn: (h, w) becomes (−0.707 h − 0.707 w, 0.707 h − 0.707 w). (The formula is in the next
#   section. To check it, take a hand at three o'clock, (0, 1): it ends at height −0.707 and width −0.707.)
#
# Try it with position 5, which is (1, 0) and (−0.707, −0.707). The first rule gives (0, −1). The second gives
# (0.5 + 0.5, −0.5 + 0.5) = (1, 0). Together this is (0, −1, 1, 0), exactly position 2. From position 7 the same two
# rules lead to position 4 (check it). **"Three to the left" is the same rotation from everywhere.**
#
# And a rotation is a matrix, which is what attention has. Leave the words aside for a moment. Let the query matrix
# $W_Q$ do this rotation, and let the keys be the position vectors as they are. Then position 5 asks with the vector of
# position 2, and the key that fits best stands at position 2. (Figure 2 shows the dot products, before the division by
# $\sqrt{d_k}$.)

# %% The drawing
show(pictures.three_to_the_left(), "09_left",
     alt="The hands of position 5 are turned back by three quarters and three eighths "
     "of a turn, and stand as at position 2. This query, (0, -1, 1, 0), has with the "
     "keys of positions 0 to 7 the scores -1, 0.707, 2, 0.707, -1, -0.707, 0 and "
     "-0.707.",
     caption="Position 5 looks three to the left: the score is largest at position 2.")

# %% [markdown]
# **How does the word get its position?** We simply add the position vector to the word's vector. In figure 3, *dog* at
# position 0 becomes (2, 1, 1, 1), and *dog* at position 2 becomes (2, −1, 2, 0).

# %% The drawing
show(pictures.sums(), "09_sums",
     alt="Two sentences, dog bites man and man bites dog. Each word's vector of four "
     "numbers is added to the vector of its position. Dog is (2, 0, 1, 0). Plus "
     "position 0, (0, 1, 0, 1), it is (2, 1, 1, 1); plus position 2, (0, -1, 1, 0), "
     "it is (2, -1, 2, 0). Both sentences use the same three position vectors.",
     caption="The same word at another position is now another vector; both sentences "
     "use the same position vectors.")

# %% [markdown]
# Does that cure the opening? Here is the same attention layer, with the sums of figure 3 as its input:

# %% The same layer, with positions
assert compared(p[:3]) > 0.1

# %% [markdown]
# Now each word gets two different vectors, even *bites*, whose own sum is the same in both sentences: its neighbours
# have other keys and values. You may ask why adding doesn't blur word and position. A score is a product of two sums,
# so it falls into four parts: word with word, word with position, position with word, position with position. If words
# and positions lie mostly in different directions, $W_Q$ and $W_K$ can enlarge one part and shrink another. Nothing
# guarantees that; training has to arrange it.
#
# ## In general
#
# The paper calls the position vector $PE(pos)$, for "positional encoding". It is as long as the vector of a word,
# $d_{model}$ numbers, so there are $d_{model}/2$ hands. Its speeds are less round than ours. Hand $i = 0,
# 1, 2, \dots$ turns by the angle $\omega_i = 10000^{-2i/d_{model}}$ (in radians) per word, so each hand is slower
# than the one before by the same factor. This is §3.5 of the paper:
#
# $$PE(pos, 2i) = \sin\left(\frac{pos}{10000^{2i/d_{model}}}\right) \qquad
# PE(pos, 2i+1) = \cos\left(\frac{pos}{10000^{2i/d_{model}}}\right)$$
#
# **Your turn.** Write this table in `exercises/09_sinusoids.py` and run `scratchformer learn check 09_sinusoids`.

# %% Our solution: the table
def position_vectors(first, count, d_model):
    """Positions first, first + 1, ... -> (count, d_model)"""
    speeds = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)    # (D / 2,)
    angles = np.arange(first, first + count)[:, None] * speeds   # (count, D / 2)
    tips = np.stack([np.sin(angles), np.cos(angles)], axis=-1)   # (count, D / 2, 2)
    return tips.reshape(count, d_model)


PE = position_vectors(0, 5001, 512)
same("PE: ours and the library's", PE[:100], sinusoids(0, 100, 512))

# %% [markdown]
# The fastest hand turns by 1 radian (57°) per word. With $d_{model} = 512$ the slowest comes round after about 60,600
# words. Everything that we saw by hand still holds, since it holds for every hand. The dot product is
#
# $$PE(pos) \cdot PE(pos + k) = \sum_i \cos(\omega_i k)$$
#
# and "$k$ words on" is a matrix $M_k$ with a small block for each hand. Why these blocks? With $a = \omega_i \, pos$
# and $b = \omega_i k$, the addition theorems say
#
# $$\sin(a + b) = \cos b \, \sin a + \sin b \, \cos a \qquad \cos(a + b) = -\sin b \, \sin a + \cos b \, \cos a$$
#
# and on the right stand the hand at $pos$, and factors that don't contain $pos$. So, with $PE$ as a column:
#
# $$PE(pos + k) = M_k \, PE(pos), \qquad M_k \text{ has the blocks }
# \begin{pmatrix} \cos \omega_i k & \sin \omega_i k \\ -\sin \omega_i k & \cos \omega_i k \end{pmatrix}$$
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


same("M: ours and the library's", shift(-3, 512), library_shift_matrix(-3, 512))

# %% [markdown]
# One matrix must work from all positions. And no far position should look as near as the neighbour, as distance 7 did
# with our two hands:

# %% The check
products = PE[1:] @ PE[0]                          # distances 1 to 5,000
same("M_-3 PE(pos) and PE(pos − 3)", PE[3:1000] @ shift(-3, 512).T, PE[:997], 1e-10)
nearest = products.argmax() + 1
measure("distance with the largest dot product, of 1 to 5,000", nearest, 1, 1)
assert products[0] > products[1:].max() + 0.1      # strictly

# %% [markdown]
# ## Backward
#
# Figure 3 was an addition, $y = x + p$. Look at its middle row. Suppose the gradient (3, 1, 0, −1) arrives at the sum
# in sentence 1, and (−3, 1, 1, 0) at the sum in sentence 2. What does the word *bites* get in each sentence?
#
# Adding a constant changes nothing on the way back: if a number of the word grows by 0.01, the sum grows by 0.01. So
# **the gradient passes through to the word unchanged.** The sinusoids are constants, and there is nothing to learn.
#
# But the paper also tried the plain alternative: a table $P$ of **learned positions**, which starts at random and has
# a row for each position, as the words have. Both sentences use row 1. What is its gradient?
#
# <details><summary>Make a guess, then unfold: the gradient of a row</summary>

# %% The drawing, backward
show(pictures.sums(backward=True), "09_sums_backward",
     alt="The same drawing with gradients. At each position, the gradient of a word "
     "is that of its sum, and the gradient of the position is the sum over both "
     "sentences. At position 1, (+3, +1, 0, -1) and (-3, +1, +1, 0) arrive, and the "
     "row gets (0, +2, +1, -1).",
     caption="The same sums, backward: each word gets the gradient of its own sum, "
     "and each row of positions what both sentences send, added up. So does the row "
     "of *bites* in the table of words.")

# %% [markdown]
# Row 1 was used once in each sentence, so it has two ways to the loss, and the chain rule adds them up: (+3, +1, 0, −1)
# + (−3, +1, +1, 0) = (0, +2, +1, −1). In its first number the two sentences want opposite things, and they cancel.
#
# </details>
#
# In general, with $x$ and $dy$ of shape $(B, T, D)$ for $B$ sentences, and the first word at row $f$ of the table:
#
# $$dx_{btj} = dy_{btj} \qquad dP_{f+t, \, j} = \sum_b dy_{btj}$$
#
# **Your turn.** Write it in `exercises/09_learned_positions_backward.py`. Which rows get nothing?

# %% Our solution: learned positions, backward
def learned_positions_backward(dy, first, max_positions):
    """dy (B, T, D) -> dx (B, T, D), dP (max_positions, D)"""
    dP = np.zeros((max_positions, dy.shape[2]))    # a row that no word used keeps its 0
    dP[first:first + dy.shape[1]] = dy.sum(axis=0)
    return dy, dP


# %% Figure 4, finite differences and the library
_, dP = learned_positions_backward(np.array(pictures.ARRIVING, float), 0, 4)
assert np.array_equal(dP[1], [0, 2, 1, -1]) and not dP[3].any()
random = np.random.default_rng(9)
x, dy, P = (random.normal(size=size) for size in ((3, 4, 6), (3, 4, 6), (8, 6)))
dx, dP = learned_positions_backward(dy, 2, 8)
for name, ours, numeric in [
        ("dx", dx, numeric_gradient(lambda x: ((x + P[2:6]) * dy).sum(), x)),
        ("dP", dP, numeric_gradient(lambda P: ((x + P[2:6]) * dy).sum(), P))]:
    same(f"{name}: ours and finite differences", ours, numeric, 1e-8)
layer = LearnedPositions(8, 6, random, "float64")
same("dx: ours and the library's", dx, layer.backward(dy, layer.forward(x, 2)[1]))
same("dP: ours and the library's", dP, layer.weight.grad)

# %% [markdown]
# ## Does it matter?
#
# The rotation is there. Does training *find* it? Let a small model learn "say the word three to the left". It is one
# attention layer with one head, vectors of 32 numbers, and a linear layer that turns each output into a score for each
# of 11 words. A text has 24 random words. Queries are made of positions only, keys and values of words and positions.
# In training we ask at most positions, but never at two of the positions 5, 7 and 9 (another two in each run), and
# never at five neighbouring positions further right. Then we test on new texts, and look at the two single positions
# that were **never asked**. A model that found the rotation is right there, too: the same matrix works everywhere. A
# model that learned a list ("from 8 look at 5, from 10 look at 7") isn't.
#
# Clock hands have two properties: there is a rotation, and neighbours have *similar* vectors. To separate the two, we
# compare six tables of positions:
#
# - **sinusoids**, with the speeds of the paper; and **slow hands**, 16 speeds evenly spaced from 0 to 1 radian;
# - **fast hands**, 16 speeds from 0 to half a turn: the rotation is exact, but neighbours are not similar at all;
# - **smooth**: random vectors, each averaged with its neighbours; similar neighbours, but no rotation;
# - **random** vectors, and a **learned** table that starts at random: neither.
#
# Which of them are right at the positions never asked? (A blind guess is right in 1 of 11 cases, 9 %.)
#
# <details><summary>Make a guess, then unfold: share of right words, mean of three runs</summary>

# %% Training on the six tables
ROTATION = {"sinusoids": "yes", "slow hands": "yes", "fast hands": "yes",
            "smooth": "no", "random": "no", "learned": "no"}
BANDS = {"sinusoids": (0.85, 1), "slow hands": (0.93, 1), "fast hands": (0, 0.25),
         "smooth": (0.75, 1), "random": (0, 0.25), "learned": (0, 0.25)}
rows = []
for name, rotation in ROTATION.items():
    _, asked, alone, _ = np.mean([to_the_left(name, seed) for seed in range(3)], axis=0)
    lo, hi = BANDS[name]
    assert asked > 0.95 and lo <= alone <= hi, (name, asked, alone)
    similar = alike(new_positions(name, np.random.default_rng(50)))
    rows.append([name, rotation, f"{abs(similar):.2f}", f"{asked:.0%}", f"{alone:.0%}"])
table(["table", "rotation?", "cosine of neighbours", "right where asked",
       "right where never asked"], rows)

# %% [markdown]
# All six learn what they were asked. At positions never asked, the *fast hands* are no better than random vectors,
# although one rotation would serve them everywhere. *Smooth* has no rotation, and is right about nine times in ten. So
# here the similarity of neighbours does the work. A control agrees: put the rows of *smooth* or *slow hands* in a
# random order, and the same vectors are no better than a guess. (We think that the model fills the gap: the query of
# position 7 lies between those of 6 and 8, so it looks between 3 and 5.)
#
# At the five neighbouring positions never asked, the gap is too wide. There the *sinusoids* are right in 37 % of the
# cases and the *slow hands*, the best of all, in 44 %. The exact rotation would be right in all of them. **That a
# rotation exists doesn't mean that training finds it.** ([Lab notes 09, experiment
# 2](lab/09_positions.py#experiment-2-three-words-to-the-left): every run, five more tables, more steps.)
#
# </details>
#
# ## Paper and code
#
# [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), §3.5, hope that sinusoids "would allow the model to easily
# learn to attend by relative positions". Their Table 3, row E, has learned positions instead, with nearly the same
# result: 25.7 against 25.8 BLEU, and the perplexity 4.92 for both. In our experiment the learned table fails only where
# it is never asked, and in real training nearly every row is used often. Whether sinusoids work on texts *longer* than
# in training is contested; [lesson 10](10_longer.py) measures it.
#
# Library: `PositionalEncoding` and `LearnedPositions` in [nn/layers.py](../scratchformer/nn/layers.py). The authors'
# own program puts all sines first and has slightly other speeds ([lab notes
# 09, experiment 5](lab/09_positions.py#experiment-5-the-authors-program)).
#
# ## What to remember
#
# Attention doesn't see order, so we add to each word a vector that says where it stands: the heights and widths of
# clock hands with many speeds. The dot product of two such vectors depends only on their distance, and "three words to
# the left" is one rotation, the same from everywhere. The gradient passes through the addition unchanged; a row of a
# learned table gets the sum over the batch.
#
# **Exercises** `09_order_blind` · `09_sinusoids` · `09_shift_matrix` · `09_learned_positions_backward` · and a puzzle:
#
# <details><summary>Let the query be the position vector itself, not turned. Where does a position look most?</summary>
#
# At itself: at distance 0 every hand contributes cos 0 = 1, and no sum of cosines is larger.
#
# </details>
#
# **Next:** [10 · Longer than training](10_longer.py). All our texts had 24 words. What happens at the 25th?
