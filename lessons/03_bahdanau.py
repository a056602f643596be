# %% [markdown]
# # 03 · Attention as a patch
#
# **What if a translator could look back at every word it has read?**
#
# *Needs [lesson 01](01_backprop.py) (gradients, softmax) and one fact of [lesson 02](02_recurrence.py): a recurrent
# network (RNN) keeps one vector, its state, and makes the next state from it and the next word · you will compute one
# step of the first attention, forward and backward, with a pencil · **side trip**: you can go on from lesson 01 to
# lesson 04 without it.*

# %% Imports
import numpy as np

from support import look_back_pictures as pictures
from support.lesson import same, show, table, varying
from support.numeric import numeric_gradient
from support.recurrent import AdditiveAttention
from support.reversal import PlainMean
from support.word_translator import Corpus, LastState, Translator, shares_right

# %% [markdown]
# A neural translator of 2014 was two recurrent networks. The **encoder** reads the English words one after the other.
# The **decoder** writes the German words. All that it got of the English was the encoder's *last* state: one vector.
# We built such a machine and trained it on 8,568 short sentences. Here are three that it has never seen:

# %% Training the machine with one vector
corpus = Corpus()
assert len(corpus.train) == 8568
one_vector = Translator(corpus, LastState)
for english in ("Lena has sold eight goats", "Oskar has cleaned the small table",
                "Laura turned off a big lamp"):
    varying(f"{english}  →  {one_vector.translate(english)}")

# %% [markdown]
# The first translation is good German: *the woman has sold eight goats* would need only one more word, *verkauft*. But
# Lena is gone. In all three, the end of the sentence came through, and the beginning was lost.
#
# And yet the encoder had a state right after it read *Lena*, and one after each further word. There were five states.
# We kept the last one and threw away four.
#
# ## The picture
#
# So let the decoder look back. For each German word it takes a blend of **all** states, and it says itself which of them
# it wants:

# %% The drawing of the machine
lena = next(pair for pair in corpus.test if pair.english[-1] == "goats"
            and pair.english[0] == "Lena")
attention = Translator(corpus, AdditiveAttention)
weights = attention.map_of(lena)
show(pictures.who_asks(lena.english, lena.german, weights[4]), "03_who_asks",
     alt="Below left, the encoder: five states h_1 to h_5 in a chain, above the words "
     "Lena has sold eight goats. An arrow leads from h_5 to the decoder, five states "
     "s_1 to s_5 in a chain. A blue line leads from s_5 back to five scores z_1 to "
     "z_5, one above each state of the encoder. Above them five weights, of which "
     "the third is nearly 1, and the context c_5. Context and s_5 together give the "
     "word verkauft.",
     caption="Who asks? The state of the decoder (blue). *verkauft* means *sold*, and "
     "stands at the end in German. The weights are those of a trained model.")

# %% [markdown]
# Follow figure 1 from the blue box. The decoder has written *Lena hat acht Ziegen*. Its state $s_5$ **asks**: it is
# compared with every state of the encoder, and each comparison gives a **score**. Softmax turns the scores into
# **weights**, which are positive and add up to one. The blend of the states with these weights is the **context**.
# Context and $s_5$ together give the next word. This is **attention**.
#
# ## By hand
#
# To keep the sums short, we take three words and states of two numbers. The first number says "thing", the second
# "action". (These numbers are made up. A trained model finds its own.)

# %% The drawing of one step
show(pictures.by_hand(), "03_by_hand",
     alt="The query s_5 W is (8, 0). The states of Lena, sold and goats are (0, 0), (0, "
     "1) and (1, 0). Tanh of the sums gives (1, 0), (1, 0.6) and (1, 0), the scores are "
     "3.466, 5.545 and 3.466, the weights 0.1, 0.8 and 0.1. The context is (0.1, 0.8).",
     caption="One step by hand. The blue line is the one who asks: it goes to every "
     "word.")

# %% [markdown]
# **Step 1, add and bend.** The asker is $s_5 = (1, 0)$. The learned matrices $W$ and $U$ are simple here: $W$ multiplies
# both numbers by 8, and $U$ multiplies both by 0.693. So $s_5 W = (8, 0)$, and for *sold*, $h U = (0, 0.693)$. Add the
# two: (8, 0.693). Then take tanh of each number. You need only three values:
#
# | $x$ | 0 | 0.693 | 8 or more |
# |---|---|---|---|
# | $\tanh x$ | 0 | 0.6 | nearly 1 |
#
# *sold* gets (1, 0.6). *Lena* gets (1, 0), and so does *goats*: its sum is (8.693, 0), but tanh is flat there, so the
# 0.693 is lost. That is how the asker chooses: its 8 switches "thing" off, and only "action" still makes a difference.
#
# **Step 2, score.** Multiply by the learned vector $v = (3.466, 3.466)$ and add up. *sold*: 1 · 3.466 + 0.6 · 3.466 =
# **5.545**. *Lena* and *goats*: 3.466.
#
# **Step 3, softmax.** Only differences of scores count in a softmax, so subtract 3.466 from all three: 0, 2.079, 0.
# Their exponentials are 1, 8 and 1, with the sum 10. (We chose 0.693 and 3.466 so that this comes out round.)
# The weights are **0.1, 0.8 and 0.1**.
#
# **Step 4, blend.** 0.1 · (0, 0) + 0.8 · (0, 1) + 0.1 · (1, 0) = **(0.1, 0.8)**: mostly the state of *sold*.
#
# Now another one asks. One word earlier the decoder had to write *Ziegen* (*goats*), and its state was $s_4 = (0, 1)$.
# Which weights do you get?
#
# <details><summary>Calculate, then unfold: s_4 asks</summary>
#
# $s_4 W = (0, 8)$. After tanh, *Lena* has (0, 1), *sold* (0, 1), because 8.693 is as good as 8, and *goats* (0.6, 1).
# So *goats* gets 5.545, the others 3.466. The weights are 0.1, 0.1 and **0.8**, the context is (0.8, 0.1). Same words,
# another asker, another answer.
#
# </details>
#
# ## In general
#
# The encoder's states $h_1, \dots, h_S$ are the rows of an array $h$, and the decoder's states $s_1, \dots, s_T$ are the
# rows of $s$. Position $t$ asks word $j$:
#
# $$z_{tj} = \tanh(s_t W + h_j U) \cdot v \qquad w_{tj} = \frac{e^{z_{tj}}}{\sum_r e^{z_{tr}}} \qquad
# c_t = \sum_j w_{tj} h_j$$
#
# These scores are called **additive**, because $s_t W$ and $h_j U$ are added.
#
# **Your turn.** Write `look_back`, with the shapes of the comment below it. One trick helps: `(s @ W)[:, None]` has the
# shape (T, 1, d_a). If you add `h @ U` (S, d_a), NumPy adds every row of the one to every row of the other: (T, S, d_a).

# %% Our solution
def look_back(s, h, W, U, v):
    """Also returns the weights (T, S) and tanh of the sums (T, S, d_a)."""
    hidden = np.tanh((s @ W)[:, None] + h @ U)       # (T, S, d_a): each t with each j
    z = hidden @ v                                   # (T, S)
    e = np.exp(z - z.max(axis=1, keepdims=True))     # the same weights, no overflow
    weights = e / e.sum(axis=1, keepdims=True)
    return weights @ h, weights, hidden


# %%
# s (T, d_s), h (S, d_h), W (d_s, d_a), U (d_h, d_a), v (d_a,) -> context (T, d_h)
s, h = np.array([[1.0, 0], [0, 1]]), np.array([[0.0, 0], [0, 1], [1, 0]])
W, U, v = 8 * np.eye(2), np.log(2) * np.eye(2), np.full(2, np.log(8) / 0.6)
c, weights_by_hand, hidden = look_back(s, h, W, U, v)
print("weights\n", weights_by_hand.round(2), "\ncontexts\n", c.round(2))

# %% [markdown]
# ## Backward
#
# Training sends back the gradient of the loss. Say that it is $dc_5 = (0, -1)$ for the context of figure 2: the loss
# falls if the second number grows. Which score should rise?

# %% The drawing, backward
show(pictures.by_hand(backward=True), "03_by_hand_backward",
     alt="The same picture with gradients. The offers of Lena, sold and goats are 0, -1 "
     "and 0, their average is -0.8. The scores get +0.08, -0.16 and +0.08, the sums in "
     "tanh (0, +0.277), (0, -0.355) and (0, +0.277), and s_5 W gets (0, +0.2). The "
     "states get (0, +0.092), (0, -1.046) and (0, +0.092).",
     caption="The same step, backward. A triangle points where training will move the "
     "number: against the sign of its gradient.")

# %% [markdown]
# Read it from the bottom to the top.
#
# - **Weights.** The gradient of a weight is $dc \cdot h_j$. We call it the **offer** of word $j$: 0, −1 and 0. On
#   average, with the weights 0.1, 0.8 and 0.1, the offer is −0.8.
# - **Scores.** The rule of softmax is: **weight × (offer − average offer)**. [Lesson 04](04_soft_lookup.py) shows why.
#   *sold* gets 0.8 · (−1 + 0.8) = −0.16, and the others get 0.1 · (0 + 0.8) = +0.08. So training will raise the score of
#   *sold* and lower the other two.
# - **Sums in tanh.** Multiply by $v$, and by the slope of tanh, $1 - \tanh^2$. Second number of *sold*: −0.16 · 3.466 ·
#   (1 − 0.36) = −0.355. Of the others: 0.08 · 3.466 · 1 = +0.277. The first numbers get 0, because tanh is flat there.
# - **The asker.** Forward, $s_5 W$ was copied to all three words. *Where forward copies, backward adds*: 0.277 − 0.355 +
#   0.277 = 0.2 (rounded).
# - **The states.** A state was used twice, so two gradients are added. *sold* gets −0.355 · 0.693 = −0.246 through its
#   score, and 0.8 · (−1) = −0.8 through the blend: −1.046.
#
# **Your turn.** Write the gradients of $s$, $h$, $W$, $U$ and $v$ from $dc$ (T, d_h). All that is left are the matrix
# rules of lesson 01, and sums over $t$ or $j$.

# %% Our solution, backward
def look_back_backward(dc, s, h, W, U, v, weights, hidden):
    """dc (T, d_h) -> ds, dh, dW, dU, dv"""
    offer = dc @ h.T                                             # c = weights h
    average = (weights * offer).sum(axis=1, keepdims=True)
    dz = weights * (offer - average)                             # softmax
    dv = np.tensordot(dz, hidden, 2)                             # z = hidden v
    dsums = dz[..., None] * v * (1 - hidden**2)                  # (T, S, d_a)
    of_s, of_h = dsums.sum(axis=1), dsums.sum(axis=0)            # both were copied
    dh = of_h @ U.T + weights.T @ dc                             # used twice
    return of_s @ W.T, dh, s.T @ of_s, h.T @ of_h, dv


# %% The check
of_step = look_back_backward(np.array([[0.0, -1]]), s[:1], h, W, U, v,
                             weights_by_hand[:1], hidden[:1])
assert np.allclose(of_step[1][:, 1], [0.092, -1.046, 0.092], atol=5e-4)
random = np.random.default_rng(1)
sizes = {"s": (3, 5), "h": (4, 6), "W": (5, 7), "U": (6, 7), "v": 7}
arrays = {name: random.normal(size=size) for name, size in sizes.items()}
dc = random.normal(size=(3, 6))
_, *kept = look_back(**arrays)
ours = look_back_backward(dc, *arrays.values(), *kept)
numeric = [numeric_gradient(lambda x: (look_back(**arrays | {name: x})[0] * dc).sum(), a)
           for name, a in arrays.items()]
same("ds, dh, dW, dU, dv: ours and finite differences",
     *(np.concatenate([each.ravel() for each in five]) for five in (ours, numeric)),
     1e-7)

# %% PyTorch
try:
    import torch
except ImportError:
    torch = None
if torch:
    theirs = [torch.tensor(each, requires_grad=True) for each in arrays.values()]
    s_, h_, W_, U_, v_ = theirs
    z_ = torch.tanh((s_ @ W_)[:, None] + h_ @ U_) @ v_
    (z_.softmax(dim=1) @ h_).backward(torch.tensor(dc))
    assert all(np.allclose(each.grad, ours_) for each, ours_ in zip(theirs, ours))

# %% [markdown]
# ## Does it matter?
#
# With attention the decoder has two new things: a short way to every state, *and* a choice among them. Which one helps?
# We train three machines that differ in a single part:
#
# - **The same for all:** encoder and decoder are RNNs with 48 numbers; the decoder starts from the encoder's last state;
#   1,000 steps. Each German word is computed from $s_t$ and *one* vector beside it.
# - **What is changed** is this vector: the **last state** of the encoder (the machine of the opening), the **plain mean**
#   of all states, or the **weighted mean** of attention.
# - **What is measured:** German words right in 204 new sentences. Before each word the decoder gets the *right* words
#   before it, not its own (this is called **teacher forcing**). We also count two groups: German words that translate the
#   first English word, and those that translate the last one.
#
# Where will the plain mean land? (a) near the last state, (b) in the middle, (c) near attention.
#
# <details><summary>Make a guess, then unfold: German words right</summary>

# %% Training the third machine
machines = {"last state": one_vector, "plain mean": Translator(corpus, PlainMean),
            "weighted mean": attention}
found = {name: shares_right(machine) for name, machine in machines.items()}
table(["beside s_t", "all words", "of the first English word", "of the last"],
      [[name, *(f"{share:.0%}" for share in shares)] for name, shares in found.items()])
assert found["last state"][1] < 0.6 < 0.8 < found["last state"][2]
assert found["last state"][0] < found["plain mean"][0] - 0.1 < found["weighted mean"][0]
assert found["weighted mean"][0] > 0.85

# %% [markdown]
# The answer is (b). The plain mean brings the first word back, so a short way does help. But each word is only one part
# in five or so of the mean, and now the last one suffers. **The decoder has to choose.** Two further runs agree ([lab
# notes 03](lab/03_bahdanau.py#three-runs)). With more training, one vector gets better, too; in another task 16 times as
# many steps brought it close to attention, though not up to it ([lab notes
# 03](lab/03_bahdanau.py#one-vector-and-more-training)).
#
# </details>
#
# ### Where does it look?
#
# Nobody told the model which English word belongs to which German one. It learned this from the loss alone:

# %% The drawing of the weights
show(pictures.map_of(lena.english, lena.german, weights[:5]), "03_alignment",
     alt="A grid with the rows Lena, hat, acht, Ziegen, verkauft and the columns Lena, "
     "has, sold, eight, goats. The largest weights: Lena on Lena, hat on has, acht on "
     "eight, Ziegen on goats, and the last row, verkauft, jumps back to sold.",
     caption="The weights of the trained model for a new sentence. Read row by row: "
     "each German word asks. After *goats* the model goes back to *sold*.")

# %% Exchange one state
bought = lena._replace(english=["Lena", "has", "bought", "eight", "goats"])
for j in range(5):
    varying(f"h_{j + 1} exchanged:  "
            + " ".join(attention.written_without(lena, bought, j)[:5]))

# %% [markdown]
# Such a map is called an **alignment**. Does the model *use* what it looks at? Take the states of "Lena has **bought**
# eight goats", and put one of them into our sentence, each time another one. Only with $h_3$ does a word change:
# *verkauft* becomes *gekauft*, bought. So *verkauft* was read from $h_3$.
#
# ### What attention does not change
#
# The decoder is still recurrent: $s_5$ can't be computed before $s_4$. So the positions are still computed one after the
# other, also in training. And long sequences are still harder. In another task, random symbols written backwards, this
# attention got 98 % of 16 symbols right. Of 32 symbols, three runs with the same number of steps got 0.84, 0.51 and 0.50
# right ([lab notes 03](lab/03_bahdanau.py#attention-and-length)).
#
# **Today.** A decoder that looks back at an encoder does **cross-attention**. Translation models and speech recognisers
# such as Whisper work this way, with dot products as scores. In image generators such as Stable Diffusion the parts of
# the image ask, and the words of the prompt are asked. Most chat models have no encoder: question and answer are one
# text, and the words ask each other.
#
# ## Paper and code
#
# - [Bahdanau, Cho and Bengio (2014)](https://arxiv.org/abs/1409.0473) invented this attention. Their $s_{t-1}$ asks, and
#   the context goes *into* $s_t$. Their encoder reads in both directions. That $s_t$ itself asks, as here, is from [Luong et
#   al. (2015)](https://arxiv.org/abs/1508.04025).
# - The machine of the opening is that of [Cho et al. (2014)](https://arxiv.org/abs/1406.1078), with simpler units.
#   [Sutskever et al. (2014)](https://arxiv.org/abs/1409.3215) did translate well through one vector, with networks
#   several thousand times as large.
# - PyTorch has no layer for it. With tensors, `z = torch.tanh((s @ W)[:, None] + h @ U) @ v` and `z.softmax(dim=1) @ h`
#   give the same contexts and, by `backward`, the same five gradients (compared above).
# - Ours for batches: `AdditiveAttention` in [support/recurrent.py](../lessons/support/recurrent.py).
#
# ## What to remember
#
# The decoder's state asks, every state of the encoder gets a score, softmax makes weights, and the answer is the blend.
# The gradient of a score is its weight × (offer − average offer). A state is used twice, so it gets two gradients.
#
# **Test yourself.**
#
# 1. Training starts with $v = (0, 0)$. What are the weights and the context in figure 2? Which of $dv$, $dW$ and $dU$ are
#    zero in the first step?
# 2. Leave out tanh: $z = (sW + hU) \cdot v$. Which weights do $s_5$ and $s_4$ get? (Use $e^{2.4}$ = 11.)
# 3. A sentence of 20 words is translated into 25. How many scores are there, and how many steps of the two RNNs must
#    wait for each other?
#
# <details><summary>Answers</summary>
#
# 1. All scores are 0, so the weights are 1/3 each, and the context is (1/3, 1/3). $dW$ and $dU$ are zero, because the
#    gradient has to pass through $v$ on its way to them. $dv$ is not.
# 2. Compared with *Lena*, *sold* and *goats* both score 0.693 · 3.466 = 2.4 more, whoever asks. The weights are 1/23,
#    11/23, 11/23 for both. What the asker adds is the same for all words, and softmax ignores it. So we need the tanh.
# 3. 25 · 20 = 500 scores, and 20 + 25 = 45 steps, one after the other.
#
# </details>
#
# **Yours:** nothing for your file. The Transformer keeps the blend and drops the recurrence, and its scores are dot
# products.
#
# **Next:** here one vector $h_j$ decides whether it is found, *and* is what is found. [Lesson 04](04_soft_lookup.py)
# separates the two into keys and values, and calls the asker a query. (From there on, $v$ stands for a value.)
