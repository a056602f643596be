# %% [markdown]
# # 03 · Attention as a patch
#
# **What if a translator could look back at every word it has read?**
#
# *Needs [lesson 01](01_backprop.py) (gradients, softmax) and one fact of [lesson 02](02_recurrence.py): a recurrent
# network (RNN) keeps one vector, its **state**, and renews it with each word · you will compute the first attention
# with a pencil · **side trip**: lesson 04 doesn't need it.*

# %% Imports
import numpy as np

from support import look_back_pictures as pictures
from support.lesson import QUICK, same, show, table, varying
from support.numeric import numeric_gradient
from support.recurrent import AdditiveAttention
from support.reversal import PlainMean
from support.word_translator import Corpus, LastState, Translator, shares_right

# %% [markdown]
# In 2014 the usual neural translator was two recurrent networks. The **encoder** reads the English words, one after
# the other. The **decoder** writes the German words. All that it gets of the English is the encoder's *last* state: one
# vector. We trained such a machine on 8,568 sentences of at most seven words. Here are three that it has never seen:

# %% Training the machine with one vector
corpus = Corpus()
assert len(corpus.train) == 8568
one_vector = Translator(corpus, LastState)
for english in ("Lena has sold eight goats", "Oskar has cleaned the small table",
                "Laura turned off a big lamp"):
    varying(f"{english}  →  {one_vector.translate(english)}")

# %% [markdown]
# The first translation says *the king has eight goats*, the second *why has Sophie on the table*, and the third *Laura
# has turned off a lamp*. The last English words came through: *goats*, *table*, *lamp*. Many earlier ones are lost:
# *Lena*, *sold*; *Oskar*, *cleaned*, *small*; *big*.
#
# But the encoder *had* a state right after it read *Lena*, and one after each further word. We kept the last of the
# five and threw away four.
#
# ## The picture
#
# So let the decoder look back. For each German word it takes a blend of **all** states, and it says itself how much
# it wants of each. In German, *sold* is *verkauft* and stands at the end:

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
     caption="Who asks? The decoder's state $s_5$ (blue). The weights are those of a "
     "trained model.")

# %% [markdown]
# Start at the blue box. The decoder has written *Lena hat acht Ziegen*, and its state is now $s_5$. This state
# **asks**: it is compared with every state of the encoder, and each comparison gives a **score**. Softmax turns the
# scores into **weights**, which are positive and add up to one. The blend of the states with these weights is the
# **context**. Context and $s_5$ together give the next word. This is **attention**. It began as a patch for recurrent
# networks: the decoder still starts from $h_5$, the last state.
#
# ## By hand
#
# To keep the sums short, we take three of the five words, and states of two numbers. In a state of the encoder, let
# the first number mean "thing" and the second "action". The numbers of the decoder's state have no such meaning.

# %% The drawing of one step
show(pictures.by_hand(), "03_by_hand",
     alt="The query s_5 W is (8, 0). The states of Lena, sold and goats are (0, 0), "
     "(0, 1) and (1, 0). Tanh of the sums gives (1, 0), (1, 0.6) and (1, 0). The "
     "scores are 3.466, 5.545 and 3.466, the weights 0.1, 0.8 and 0.1. The context is "
     "(0.1, 0.8).",
     caption="One step by hand. The state that asks (blue) goes to every word.")

# %% [markdown]
# **Step 1, add, tanh.** The asker is $s_5 = (1, 0)$. Two learned matrices, $W$ and $U$, are simple here: $W$
# multiplies both numbers by 8, and $U$ multiplies both by 0.693. So $s_5 W = (8, 0)$, and for *sold*, $h U = (0,
# 0.693)$. Add the two: (8, 0.693). Then take tanh of each number. You need only three values:
#
# | $x$ | 0 | 0.693 | 8 or more |
# |---|---|---|---|
# | $\tanh x$ | 0 | 0.6 | nearly 1 |
#
# So *sold* gets (1, 0.6), and *Lena* gets (1, 0). And *goats*? Its sum is (8.693, 0), but tanh is flat there, so it
# gets (1, 0), too. This is how the asker chooses: with its 8, the first number ("thing") is 1 for every word. Only the
# second ("action") can still differ.
#
# **Step 2, score.** Multiply by the learned vector $v = (3.466, 3.466)$ and add up. *sold*: 1 · 3.466 + 0.6 · 3.466 =
# **5.545**. *Lena* and *goats*: 3.466.
#
# **Step 3, softmax.** Only the differences between scores matter to softmax, so subtract 3.466 from all three. What
# is left is 0, 2.079 and 0. The exponentials are 1, 8 and 1, and their sum is 10. So the weights are
# **0.1, 0.8 and 0.1**.
#
# **Step 4, blend.** 0.1 · (0, 0) + 0.8 · (0, 1) + 0.1 · (1, 0) = **(0.1, 0.8)**: mostly the state of *sold*.
#
# Now another state asks. One word earlier the decoder had to write *Ziegen* (*goats*), and its state was $s_4 = (0,
# 1)$. Which weights did it get?
#
# <details><summary>Calculate, then unfold: another state asks</summary>
#
# $s_4 W = (0, 8)$. After tanh, *Lena* and *sold* have (0, 1), and *goats* has (0.6, 1). So *goats* scores 5.545, and
# the others 3.466. The weights are 0.1, 0.1 and **0.8**, and the context is (0.8, 0.1).
#
# </details>
#
# ## In general
#
# Write the encoder's states $h_1, \dots, h_S$ into the rows of an array $h$, and the decoder's states $s_1, \dots,
# s_T$ into the rows of $s$. German position $t$ asks English word $j$ (and $r$ runs over all English words):
#
# $$z_{tj} = \tanh(s_t W + h_j U) \cdot v \qquad w_{tj} = \frac{e^{z_{tj}}}{\sum_r e^{z_{tr}}} \qquad
# c_t = \sum_j w_{tj} h_j$$
#
# These scores are called **additive**, because $s_t W$ and $h_j U$ are added.
#
# **Your turn.** Write `look_back(s, h, W, U, v)`. It returns the contexts (T, d_h), the weights (T, S) and tanh of the
# sums (T, S, d_a). You choose $d_a$, the length of the vectors inside tanh. Shapes: $s$ (T, d_s), $h$ (S, d_h), $W$
# (d_s, d_a), $U$ (d_h, d_a), $v$ (d_a,). One trick: `(s @ W)[:, None]` has the shape (T, 1, d_a). Add `h @ U` (S, d_a),
# and NumPy adds every row of the one to every row of the other: (T, S, d_a). Try it with the numbers of figure 2.

# %% Our solution
def look_back(s, h, W, U, v):
    """-> contexts (T, d_h), weights (T, S), tanh of the sums (T, S, d_a)"""
    hidden = np.tanh((s @ W)[:, None] + h @ U)       # (T, S, d_a): each t with each j
    z = hidden @ v                                   # (T, S)
    e = np.exp(z - z.max(axis=1, keepdims=True))     # the same weights, no overflow
    weights = e / e.sum(axis=1, keepdims=True)
    return weights @ h, weights, hidden


# %%
s = np.array([[1.0, 0], [0, 1]])                      # s_5 and s_4
h = np.array([[0.0, 0], [0, 1], [1, 0]])              # Lena, sold, goats
W, U, v = 8 * np.eye(2), np.log(2) * np.eye(2), np.full(2, np.log(8) / 0.6)
c, weights_by_hand, hidden = look_back(s, h, W, U, v)
print("context for s_5", c[0].round(2), "  for s_4", c[1].round(2))

# %% [markdown]
# ## Backward
#
# In training the gradient of the loss comes back. Say that it is $dc_5 = (0, -1)$ for the context of figure 2: the
# loss falls if the second number, "action", grows. Which score should grow?

# %% The drawing, backward
show(pictures.by_hand(backward=True), "03_by_hand_backward",
     alt="The same picture with gradients. The offers of Lena, sold and goats are 0, "
     "-1 and 0, their average is -0.8. The scores get +0.08, -0.16 and +0.08, the sums "
     "inside tanh (0, +0.277), (0, -0.355) and (0, +0.277), and s_5 W gets (0, +0.2). "
     "The states get (0, +0.092), (0, -1.046) and (0, +0.092).",
     caption="The same step, backward. A triangle points where training will move the "
     "number: against the sign of its gradient. Beside the tanh boxes stand the "
     "gradients of the sums inside tanh.")

# %% [markdown]
# Read figure 3 from the bottom to the top.
#
# - **Weights.** The gradient of the weight of word $j$ is $dc_5 \cdot h_j$. We call it the **offer** of the word: 0,
#   −1 and 0. It says how the *loss* grows with this weight, so the smallest offer is the best one. With the weights
#   0.1, 0.8 and 0.1, the average offer is −0.8.
# - **Scores.** The gradient of a score is **weight × (offer − average offer)**. Weights add up to one, so what one word
#   gains, the others lose: only a difference from the average counts. ([Lesson 04](04_soft_lookup.py) derives it.)
#   *sold* gets 0.8 · (−1 + 0.8) = −0.16, and the others get 0.1 · (0 + 0.8) = +0.08. So training raises the score of
#   *sold* and lowers the other two.
# - **The vector $v$.** A score is $v$ · (tanh of the sum), so each word adds its gradient times its tanh: $dv$ = 0.08 ·
#   (1, 0) − 0.16 · (1, 0.6) + 0.08 · (1, 0) = (0, −0.096).
# - **Sums inside tanh.** Multiply by $v$ and by the slope of tanh, which is $1 - \tanh^2$. The second number of
#   *sold* gets −0.16 · 3.466 · (1 − 0.6²) = −0.355. That of the others gets 0.08 · 3.466 · (1 − 0²) = +0.277. The
#   first numbers get 0, because tanh is flat there.
# - **The asker.** Forward, $s_5 W$ was copied to all three words. Where forward copies, backward adds: (0, 0.277 −
#   0.355 + 0.277) = (0, 0.2), rounded. So $ds_5$ = (0, 0.2) $W^T$ = (0, 1.6).
# - **The states.** Each state was used twice, in its score and in the blend, so two gradients are added. For *sold*
#   they are −0.355 · 0.693 = −0.246 and 0.8 · (−1) = −0.8, together −1.046.
#
# **Your turn.** Write the gradients of $s$, $h$, $W$, $U$ and $v$ from $dc$ (T, d_h). You also need the rule of
# [lesson 01](01_backprop.py): if $y = x W$, then $dx = dy \, W^T$ and $dW = x^T dy$.

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
assert np.allclose(of_step[4], [0, -0.096], atol=1e-6)
assert np.allclose(of_step[0], [0, 1.6], atol=5e-3)
assert one_vector.network.store.data.size == 178729 and len(corpus.test) == 204
no_v = look_back(s[:1], h, W, U, 0 * v)
_, _, dW, dU, dv = look_back_backward(np.array([[0.0, -1]]), s[:1], h, W, U, 0 * v,
                                      *no_v[1:])
assert not dW.any() and not dU.any() and np.allclose(dv, [0, -0.4 / 3], atol=1e-6)
random = np.random.default_rng(1)
sizes = {"s": (3, 5), "h": (4, 6), "W": (5, 7), "U": (6, 7), "v": 7}
arrays = {name: random.normal(size=size) for name, size in sizes.items()}
dc = random.normal(size=(3, 6))
_, *kept = look_back(**arrays)
ours = look_back_backward(dc, *arrays.values(), *kept)
numeric = [numeric_gradient(
               lambda x: (look_back(**arrays | {name: x})[0] * dc).sum(), array)
           for name, array in arrays.items()]
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
# Attention gives the decoder a blend of *all* states, and it *chooses* the weights. Must it choose? We train four
# machines that differ in one part:
#
# - **The same for all:** two RNNs with states of 48 numbers, and 1,000 steps of training. All decoders start from the
#   encoder's last state. Each German word is computed from $s_t$ and what stands beside it.
# - **What is changed** is what stands beside it: the **last state** of the encoder (the machine of the opening), the
#   **plain mean** of all states, **both** of these, or the **weighted mean** of attention.
# - **What is measured:** German words right in 204 new sentences. The decoder reads the *right* words before each
#   one, not its own (**teacher forcing**). Three groups are counted: words that translate only the first English word
#   (203, of which 75 are articles), only the last one (193), and all others (724).
#
# Where will *both* come close to attention? (a) In all groups. (b) In the first two. (c) In none.
#
# <details><summary>Make a guess, then unfold: German words right, mean of three runs</summary>

# %% Training the other machines: about a minute and a half
looks = {"last state": LastState, "plain mean": PlainMean,
         "both": (PlainMean, LastState), "weighted mean": AdditiveAttention}
machines = {(name, 0): machine for name, machine in
            (("last state", one_vector), ("weighted mean", attention))}
seeds = (0,) if QUICK else (0, 1, 2)
for name, look in looks.items():
    for seed in seeds:
        if (name, seed) not in machines:
            machines[name, seed] = Translator(corpus, look, seed)
runs = {name: np.array([shares_right(machines[name, seed]) for seed in seeds])
        for name in looks}
table(["beside s_t", "first English word", "last English word", "all others"],
      [[name, *(f"{share:.0%}" for share in found.mean(axis=0))]
       for name, found in runs.items()])
last, mean, both, chosen = runs.values()
assert (last[:, 0] < mean[:, 0] - 0.2).all() and (mean[:, 1] < last[:, 1] - 0.2).all()
assert (both[:, 1] > mean[:, 1] + 0.1).all() and (both[:, 0] > 0.75).all()
ahead = (chosen - both).mean(axis=0)
assert QUICK or (0.03 < ahead[:2]).all() and (ahead[:2] < 0.1).all() and ahead[2] > 0.12
assert (chosen[:, 2] > both[:, 2] + 0.05).all() and (chosen[:, 2] > 0.75).all()

# %% [markdown]
# The answer is (b). The plain mean brings the first word back but loses the last one. With the last state beside it,
# most of both come through, and nothing was chosen: attention is only 6 or 7 points ahead. For all other words it is 15
# points ahead ([each run](lab/03_bahdanau.py#three-runs)). So choosing helps most there, in points; measured in
# mistakes, it removes about half of them for the last word, too. (More training helps a single vector,
# [too](lab/03_bahdanau.py#one-vector-and-more-training).)
#
# </details>
#
# ### Where does it look?
#
# Nobody told the model which English word belongs to which German word:

# %% The drawing of the weights
show(pictures.map_of(lena.english, lena.german, weights[:5]), "03_alignment",
     alt="A grid with the rows Lena, hat, acht, Ziegen, verkauft and the columns Lena, "
     "has, sold, eight, goats. The largest weights: Lena on Lena, hat on has, acht on "
     "eight, Ziegen on goats, and the last row, verkauft, jumps back to sold.",
     caption="The weights of the trained model for a new sentence (empty: below 0.05). "
     "Read it row by row: after *goats* it goes back to *sold*.")

# %% Exchange one state
other = lena._replace(english=["Oskar", "has", "bought", "six", "flowers"])
for j in range(5):
    varying(f"h_{j + 1} exchanged:  "
            + " ".join(attention.written_without(lena, other, j)[:5]))

# %% [markdown]
# Such a map is called an **alignment**. Does the model *use* what it looks at? We let attention see one state of
# "Oskar has bought six flowers" in place of ours. Each time, only the German word changes that looks there: *Oskar*,
# then *gekauft* (bought), *sechs* (six), *Blumen* (flowers). $h_2$ belongs to *has* in both sentences, and changes
# nothing. (In two further runs the same words changed, but some exchanges also lost *verkauft*.)
#
# ### What attention does not change
#
# The decoder is still recurrent: $s_5$ can't be computed before $s_4$. So the positions are computed one after the
# other, in training, too. And longer sequences can be harder to learn: to write random symbols backwards took 300 steps
# with 16 symbols, and with 32 about 2,400 in two of three runs. (That isn't the recurrence itself: told the positions,
# the same networks needed 300: [lab notes 03](lab/03_bahdanau.py#attention-and-length).)
#
# **Today.** A decoder that looks back at an encoder does **cross-attention**. Translators and speech recognisers such
# as Whisper do it, with dot products as scores.
#
# ## Paper and code
#
# - This attention is from [Bahdanau, Cho and Bengio (2014)](https://arxiv.org/abs/1409.0473). Their encoder reads in
#   both directions. Their $s_{t-1}$ asks, and the context goes *into* $s_t$. That $s_t$ asks is from [Luong et al.
#   (2015)](https://arxiv.org/abs/1508.04025).
# - [Sutskever et al. (2014)](https://arxiv.org/abs/1409.3215) did translate well through a single vector, with 384
#   million weights. Ours has 178,729.
# - PyTorch (compared above): `z = torch.tanh((s @
#   W)[:, None] + h @ U) @ v`, then `c = z.softmax(dim=1) @ h`.
#
# ## What to remember
#
# The decoder's state asks. Every state of the encoder gets a score, softmax turns scores into weights, and the
# context is the blend. The gradient of a score is weight × (offer − average offer).
#
# **Test yourself.**
#
# 1. Set $v = (0, 0)$ in figure 2. What are the weights and the context? With $dc_5 = (0, -1)$, which of $dv$, $dW$
#    and $dU$ are zero?
# 2. Leave out tanh: $z = (s W + h U) \cdot v$. Which weights do $s_5$ and $s_4$ get? (Use $e^{2.4} = 11$.)
#
# <details><summary>Answers</summary>
#
# 1. All scores are 0, so the weights are 1/3 each, and the context is (1/3, 1/3). $dW$ and $dU$ are zero, because the
#    gradient on its way to them is multiplied by $v$. $dv$ isn't: its second number is −2/9 · 0.6 = −0.133.
# 2. *sold* and *goats* both score 0.693 · 3.466 = 2.4 more than *Lena*, whoever asks. So both askers get the weights
#    1/23, 11/23 and 11/23. That is why we need tanh.
#
# </details>
#
# **Next:** nothing goes into your file this time. Here one vector $h_j$ decides whether it is found, *and* is what is
# found. [Lesson 04](04_soft_lookup.py) separates the two into keys and values, and calls the asker a query. (From
# there on, $v$ stands for a value.)
