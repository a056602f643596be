# %% [markdown]
# # 09 · Where am I? Sinusoidal positions
#
# **How can the vector of a word say where the word stands?**
#
# *Needs [lesson 04](04_soft_lookup.py) (queries, keys, self-attention) · you will turn the hands of two dials with
# pencil and paper.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import COLOUR_MAP
from scratchformer.nn.layers import LearnedPositions, sinusoids
from support import position_pictures as pictures
from support.lesson import quote, same, show, table
from support.numeric import numeric_gradient
from support.positions import shift_matrix as library_shift_matrix
from support.to_the_left import to_the_left

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
# reason: a score depends on two words, not on where they stand, and a sum over all words doesn't depend on their order.
# Attention without a mask is **permutation equivariant**: if we reorder the words, the outputs move with them. Even
# with a causal mask ([lesson 06](06_masks.py)), one layer gives *man* the same vector after "dog bites" and after
# "bites dog".
#
# ## The picture
#
# So the vector of a word must also say where the word stands. We want small numbers, different for each position, that
# don't jump. A counter 0, 1, 2, … grows without limit. Binary digits jump: from 3 (011) to 4 (100) all
# three change.
#
# A hand on a dial doesn't jump. At position 0 let it point to the right. Let it turn by 1/8 turn (45°) per position,
# counter-clockwise. Figure 1 shows it at position 1. We write down two numbers: the *height* of the tip and its
# *width*. If the hand has length 1, the height at the angle $a$ is $\sin a$ and the width $\cos a$.

# %% The drawing of one hand
show(pictures.one_hand(), "09_one_hand",
     alt="Left, a dial with a hand at 45 degrees; a vertical line from its tip to the "
     "middle line is its height, the horizontal line from the middle of the dial its "
     "width. Right, the heights at positions 0 to 8 as vertical lines: 0, 0.707, 1, "
     "0.707, 0, -0.707, -1, -0.707, 0; a sine curve runs through their ends.",
     caption="From position to position, the height of the tip follows a sine curve. "
     "Hence the name *sinusoidal*.")

# %% [markdown]
# After eight positions this hand is back at the start: positions 0 and 8 get the same numbers. So real tables have many
# hands, most of them much slower. In figure 2 our hand is the *slow* one, beside
# a faster one. Their four numbers are the **position vector** $p$.

# %% The drawing of two hands
show(pictures.two_hands(), "09_two_hands",
     alt="Positions 0 to 7 in eight columns. Above, two dials for each position: the "
     "fast hand turns by a quarter, the slow hand by an eighth from column to column. "
     "Below, four numbers for each position: height and width of the fast hand, then "
     "of the slow hand, for example 1, 0, 0.707, 0.707 for position 1.",
     caption="Two hands. The thick line is the height of a hand.")

# %% [markdown]
# ## By hand
#
# **How similar are two positions?** Positions 1 and 4 are three apart:
#
# | | fast hand | slow hand | sum |
# |---|---|---|---|
# | $p_1 \cdot p_4$ | 1 · 0 + 0 · 1 = 0 | 0.707 · 0 + 0.707 · (−1) = −0.707 | **−0.707** |
#
# Positions 2 and 5 are three apart, too. Take a pencil and figure 2. What is $p_2 \cdot p_5$?
#
# <details><summary>Calculate, then unfold: positions 2 and 5</summary>
#
# Fast hand 0 · 1 + (−1) · 0 = 0, slow hand 1 · (−0.707) + 0 · (−0.707) = −0.707. The sum is **−0.707** again.
#
# </details>
#
# Why are the two sums equal? The dot product of two hands of length 1 is the cosine of the angle *between* them. Three
# positions apart, this angle is 270° for the fast hands (cosine 0) and 135° for the slow hands (cosine −0.707). **The
# dot product of two position vectors depends only on their distance.**
#
# **How do you get three positions to the left?** Turn both hands back: the fast one by 3/4 turn, the slow one by 3/8
# turn. At the top of figure 3, the hands of position 5 then stand as at position 2. Do the same two turns from position
# 7 in figure 2. Where do you arrive? At position 4. **"Three to the left" is the same rotation from everywhere.**
#
# Now let an attention look three to the left, for the moment without words. The key of a position is its vector as it
# is. The query is the vector rotated. (A matrix can rotate, so $W_Q$ can. We write it down in the next section.) Then
# the query of position 5 is (0, −1, 1, 0), the same four numbers as the key of position 2. Figure 3 shows its scores,
# before the division by $\sqrt{d_k}$.

# %% The drawing
show(pictures.three_to_the_left(), "09_left",
     alt="The hands of position 5 are turned back by three quarters and three eighths "
     "of a turn, and stand as at position 2. This query, (0, -1, 1, 0), has with the "
     "keys of positions 0 to 7 the scores -1, 0.707, 2, 0.707, -1, -0.707, 0 and "
     "-0.707.",
     caption="Position 5 looks three to the left: the score is largest at position 2. "
     "Positions 1 and 3 are equally far from 2, so they get equal scores.")

# %% [markdown]
# <!-- widget: positions -->
#
# **How does a word get its position?** We add the two vectors. In figure 4, *dog* at position 0 becomes (2, 1, 1, 1),
# and *dog* at position 2 becomes (2, −1, 2, 0).

# %% The drawing
show(pictures.sums(), "09_sums",
     alt="Two sentences, dog bites man and man bites dog. In each row the vector of "
     "the position stands in the middle. Arrows lead from it and from the word at "
     "either side to their sum. Dog is (2, 0, 1, 0). Plus position 0, (0, 1, 0, 1), "
     "it is (2, 1, 1, 1); plus position 2, (0, -1, 1, 0), it is (2, -1, 2, 0). Both "
     "sentences use the same three position vectors.",
     caption="Each word and its position lead to their sum. *Dog* at another position "
     "is now another vector.")

# %% [markdown]
# Now the layer of the opening gives *dog* two different vectors:

# %% The layer, with positions
def position(t):
    """The heights and widths of both hands: (4,)"""
    fast, slow = math.pi / 2 * t, math.pi / 4 * t
    return np.array([math.sin(fast), math.cos(fast), math.sin(slow), math.cos(slow)])


p = np.stack([position(t) for t in range(3)])      # (3, 4), a row for each position
for sentence, vector in zip(pictures.SENTENCES, compared(p)["dog"]):
    print(f"in “{' '.join(sentence)}”:  {vector}")

# %% [markdown]
# What becomes of the scores? Without $W_Q$ and $W_K$, the score of *dog* ($w$) at
# position 0 ($p$) with *man* ($w'$) at position 2 ($p'$) has four parts:
#
# $$(w + p) \cdot (w' + p') = w \cdot w' + w \cdot p' + p \cdot w' + p \cdot p' = 2 + 1 + 1 - 1 = 3$$
#
# So words and positions both count. Figure 3 had the last part alone. A model that looks three to the left must keep
# the other three small.
#
# ## In general
#
# The paper calls the position vector $PE(pos)$, for "positional encoding". It has $d_{model}$ numbers, so
# there are $d_{model}/2$ hands. Hand $i = 0, 1, 2, \dots$ turns by $\omega_i = 10000^{-2i/d_{model}}$ radians per word:
#
# $$PE(pos, 2i) = \sin(\omega_i \, pos) \qquad PE(pos, 2i+1) = \cos(\omega_i \, pos)$$
#
# The first hand turns by 1 radian (57°) per word, and each further hand is slower by the same factor.
#
# **Your turn.** Write `positional_encoding` in `transformer.py`, for `t` positions from 0 on, and run `scratchformer
# learn check positional_encoding`. Then unfold ours.

# %%
quote("positional_encoding")

# %% The heat map
figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
image = axes.imshow(sinusoids(0, 60, 64), COLOUR_MAP, aspect="auto", vmin=-1, vmax=1)
axes.set(xlabel="heights and widths of 32 hands, in turn", ylabel="position")
figure.colorbar(image, ax=axes)
show(figure, "09_heat_map",
     alt="A heat map of the position vectors of 60 positions, a row for each, with 64 "
     "numbers between -1 and 1. From top to bottom the colours of the first columns "
     "alternate every few rows, those of the next ones more and more slowly, and the "
     "right third stays as it is in the first row: heights near 0, widths near 1.",
     caption="Sixty position vectors of 64 numbers, a row for each. Fast hands stand "
     "on the left; the slowest, on the right, hardly turn.")

# %% [markdown]
# <!-- see: inside?step=source.positions | a word's vector, plus its position -->
#
# In $k$ words hand $i$ turns by $\omega_i k$, and the dot product
# adds up the cosines: $PE(0) \cdot PE(k) = \sum_i \cos(\omega_i k)$. With 256 hands this sum falls from 256 at distance
# 0 to 174 at 10. With our two it goes up and down: in figure 3, position 6 scores more than 4.
#
# The step by $k$ words turns hand $i$ from some angle $a$ to $a + b$, with $b = \omega_i k$. The
# formulas of $\sin(a + b)$ and $\cos(a + b)$, one in each column, are
#
# $$\begin{pmatrix} \sin(a + b) & \cos(a + b) \end{pmatrix} = \begin{pmatrix} \sin a & \cos a \end{pmatrix}
# \begin{pmatrix} \cos b & -\sin b \\ \sin b & \cos b \end{pmatrix}$$
#
# For all hands, these blocks stand along the diagonal of a big matrix $M_k$, with zeros elsewhere. It is the same for
# every position: $PE(pos + k) = PE(pos) \, M_k$. So "three to the left" is $W_Q = M_{-3}$.
#
# **Your turn.** Write $M_k$ for any $k$, before you unfold ours. A negative $k$ leads to the left.

# %% Our solution: the matrix
def shift(k, d_model):
    """M (D, D) with PE(pos + k) = PE(pos) M for every pos"""
    M = np.zeros((d_model, d_model))
    for i in range(0, d_model, 2):
        b = k * 10000.0 ** (-i / d_model)
        c, s = math.cos(b), math.sin(b)
        M[i:i + 2, i:i + 2] = [[c, -s], [s, c]]
    return M


# %% The check
PE = sinusoids(0, 1000, 512)                       # (1000, 512), the library's
assert [round(float(PE[0] @ PE[k])) for k in (0, 10)] == [256, 174]
same("PE(pos) M_-3 and PE(pos − 3), pos = 3 to 999", PE[3:] @ shift(-3, 512), PE[:-3],
     1e-10)
assert np.allclose(shift(-3, 512), library_shift_matrix(-3, 512), rtol=0, atol=1e-12)

# %% [markdown]
# ## Backward
#
# Figure 4 was an addition, $y = x + p$. In its middle row, suppose the gradient (3, 1, 0, −1) arrives at the sum of
# sentence 1, and (−3, 1, 1, 0) at the sum of sentence 2. What does *bites* get in each sentence?
#
# If a number of the word grows by 0.01, the same number of the sum grows by 0.01. So **the gradient passes through to
# the word unchanged.** Sinusoids aren't trained and need no gradient.
#
# The paper also tried **learned positions**: a trained table $P$ with a row for each position. The two sentences
# share the row of position 1. What is its gradient? Make a guess before you look at figure 6.

# %% The drawing, backward
show(pictures.sums(backward=True), "09_sums_backward",
     alt="The same drawing with gradients. At each position, the gradient of a word "
     "is that of its sum, and the gradient of the position is the sum over both "
     "sentences. At position 1, (+3, +1, 0, -1) and (-3, +1, +1, 0) arrive, and the "
     "row gets (0, +2, +1, -1).",
     caption="The same sums, backward. A triangle points where the number should go "
     "to make the loss smaller.")

# %% [markdown]
# Row 1 has two ways to the loss, one through each sentence. The chain rule adds them up.
#
# In general, $dx = dy$, and row $t$ gets the sum over all sentences, $dP_t = \sum_b dy_{bt}$.

# %% The check of both gradients
random = np.random.default_rng(9)
x, dy = random.normal(size=(2, 3, 4, 6))           # (B, T, D) each
layer = LearnedPositions(8, 6, random, "float64")
P = layer.weight.data.copy()                       # (8, 6), of which 4 rows are used
dx = layer.backward(dy, layer.forward(x)[1])
dP = layer.weight.grad
numeric = [numeric_gradient(lambda x: ((x + P[:4]) * dy).sum(), x),
           numeric_gradient(lambda P: ((x + P[:4]) * dy).sum(), P)]
same("dx, dP and finite differences", *(np.concatenate([dx.ravel(), dP.ravel()])
     for dx, dP in ((dx, dP), numeric)), 1e-8)
assert np.array_equal(dx, dy) and not dP[4:].any()
assert np.allclose(dP[:4], dy.sum(axis=0), rtol=0, atol=1e-12)
assert np.sum(pictures.ARRIVING, axis=0)[1].tolist() == [0, 2, 1, -1]

# %% [markdown]
# ## Does it matter?
#
# A rotation by three positions exists. Does training *find* it? Let a small model learn to say the word three to the
# left:
#
# - A text has 24 random words out of 11. A guess is right in 9 % of the cases.
# - The model is one attention with one head, with vectors of 32 numbers. Its query is the position alone; keys and
#   values are word plus position.
# - Some positions are **never asked** in training: two single ones and five in a row, chosen at random in each of three
#   runs. Their words are still keys and values. The first three positions have no answer.
# - After training we ask exactly there, in new texts. A model that learned a list ("from 8 look at 5") is wrong there.
#   A model that found the rotation can be right.
#
# We change only the position vectors. Here are four tables, each of sixteen hands:
#
# - *sinusoids*: the paper's speeds. Most hands are slow;
# - *big steps*: sixteen different speeds, up to half a turn per word;
# - *four speeds*: only four of these sixteen; each is the speed of four hands;
# - *four speeds, shuffled*: the same vectors, given to the positions in a random order. Now no single matrix leads
#   three to the left.
#
# Which of them are right at positions that were never asked?
#
# <details><summary>Make a guess, then unfold: share of right words, mean of three runs</summary>

# %% Training on the four tables
TABLES = {"sinusoids": [(0.85, 1), (0.85, 1), (0.2, 0.6)],
          "big steps": [(0.85, 1), (0, 0.25), (0, 0.25)],
          "four speeds": [(0.85, 1), (0.6, 1), (0.75, 1)],
          "four speeds, shuffled": [(0.85, 1), (0, 0.25), (0, 0.25)]}
rows = []
for name, bands in TABLES.items():
    shares = np.mean([to_the_left(name, seed).right for seed in range(3)], axis=0)
    for share, (lo, hi) in zip(shares, bands):
        assert lo <= share <= hi, (name, share, lo, hi)
    rows.append([name, *(f"{share:.0%}" for share in shares)])
table(["table", "asked in training", "never asked: single",
       "never asked: five in a row"], rows)

# %% [markdown]
# *Four speeds* are mostly right. Shuffled, they are no better than a guess. So here training found the rotation.
#
# *Big steps* have a rotation, too. Why isn't it found? The gradient of $W_Q$ is a sum over the asked positions,
# $dW_Q = \sum_t p_t^T \, dq_t$. With gradient descent, the query $p_u \, W_Q$ of any position $u$ changes in proportion
# to $p_u \, dW_Q = \sum_t (p_u \cdot p_t) \, dq_t$.
#
# **A training step at position $t$ changes the query of position $u$ only as far as $p_u \cdot p_t$ isn't 0.** In *big
# steps* this product, for two different positions, is never more than 1/16 of $p_u \cdot p_u$. In *four speeds* it
# reaches one half.
#
# We trained with Adam ([lesson 15](15_adam_and_warmup.py)), which changes the sizes of the steps, so the formula holds
# only roughly: with *big steps*, asked queries change by 5.8 on average and never-asked ones by 1.0. Plain gradient
# descent finds and misses the same rotations. ([Lab notes 09](lab/09_positions.py#three-words-to-the-left).)
#
# *Sinusoids* are right at single positions, but five in a row only in a third of the cases. We don't know why.
#
# </details>
#
# ## Paper and code
#
# [Vaswani et al. (2017)](https://arxiv.org/abs/1706.03762), §3.5, hope that sinusoids "would allow the model to easily
# learn to attend by relative positions". With learned positions their translator did as well: 25.7 BLEU against 25.8
# (Table 3, row E).
#
# Library: `sinusoids`, `PositionalEncoding` and `LearnedPositions` in [nn/layers.py](../scratchformer/nn/layers.py).
#
# ## What to remember
#
# Attention without a mask doesn't see order. So we add to each word the heights and widths of hands that turn at
# different speeds. The dot product of two positions depends only on their distance, and "three to the left" is the same
# rotation from everywhere. But training at position $t$ teaches position $u$ little if $p_u \cdot p_t$ is near 0.
#
# **Yours:** `positional_encoding` · `scratchformer learn check 09`
#
# **Next:** [lesson 11](11_feed_forward.py). (Side trip before it: all our texts had 24 words. What happens at the 25th?
# [Lesson 10](10_longer.py).)
