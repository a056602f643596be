# %% [markdown]
# # 23 · The block of 2026
#
# **Which of today's five changes make a small language model better?**
#
# *Needs lessons [07](07_many_heads.py) (heads), [08](08_embeddings.py) (gradients that add up),
# [11](11_feed_forward.py) (feed-forward), [12](12_residual_norm_dropout.py) (LayerNorm), [15](15_adam_and_warmup.py)
# (Adam) and 22 (GPT) · you will compute today's norm, gate, rotation and shared heads, forward and backward, with
# pencil and paper.*

# %% Imports
import math

import numpy as np

from scratchformer import config
from support.drawing import Drawing
from support.lesson import quote, recorded, show, table

# %% [markdown]
# Two language models have the same number of parameters, and read the same text for 500 steps. The first, `gpt-tiny`
# from [lesson 22](22_gpt.py), has the block of GPT-2 (2019). The second has the block of many models of 2026. How
# well do they predict a text that they haven't read? We count **bits per character**: 2 bits for one that the model
# gave the probability 1/4, 1 bit for 1/2. Fewer is better.

# %% The recorded runs
rows = {row["variant"]: row for row in recorded("block_of_2026")["results"]}
TOGETHER = "all five together"


def bits_of(name):
    return [run["bits_per_character"]["last"] for run in rows[name]["runs"]]


table(["bits per character", "run 1", "run 2", "run 3"],
      [[words, *(f"{bits:.2f}" for bits in bits_of(name))]
       for words, name in (("GPT-2's block", "gpt-tiny"), ("block of 2026", TOGETHER))])

# %% [markdown]
# The second model saves a quarter of a bit. Apart from biases and sizes, it differs from the first in five points.
# Which of them helped?
#
# ## The picture

# %% Drawing the two blocks
def block(drawing, x, sublayers, norm, first, title):
    """A block as a road from below to above, with its two sublayers beside it."""
    drawing.text(x + 60, 22, title, bold=True)
    drawing.arrow((x - 90, 500), (x - 90, 38), "forward", width=4)
    drawing.text(x - 90, 518, first, "soft", 13)
    for y, sublayer in zip((450, 240), sublayers):
        drawing.line([(x - 90, y), (x + 60, y), (x + 60, y - 12)], "soft")
        drawing.box(x + 60, y - 27, norm, width=150, height=30, size=14)
        drawing.arrow((x + 60, y - 42), (x + 60, y - 56))
        drawing.box(x + 60, y - 88, sublayer, width=190, height=62, size=14)
        drawing.line([(x + 60, y - 119), (x + 60, y - 140)], "soft")
        drawing.arrow((x + 60, y - 140), (x - 79, y - 140))
        drawing.circle(x - 90, y - 140, 11, "paper", 1)
        drawing.circle(x - 90, y - 140, 11, "forward", words="+")


picture = Drawing(760, 535)
block(picture, 160, ["attention", "linear, GELU, linear"], "LayerNorm",
      "word + position", "gpt-tiny, with GPT-2's block")
block(picture, 510,
      ["attention: turned q, k\nshared keys and values", "gate × value (SwiGLU)"],
      "RMSNorm", "word", "the block of 2026")
picture.text(150, 518, "trained by Adam, as in the paper", "soft", 13, "start")
for x, y, number in ((662, 423, "1"), (662, 213, "1"), (682, 152, "2"),
                     (682, 348, "3"), (682, 376, "4"), (560, 517, "5")):
    picture.circle(x, y, 12, "ink", words=number)
picture.text(580, 518, "trained by AdamW, cosine", "soft", 13, "start")
show(picture, "23_blocks",
     alt="Two blocks, drawn as roads from below to above with two sublayers beside "
     "them. Left, gpt-tiny: LayerNorm before attention, LayerNorm before linear, "
     "GELU, linear. Right, 2026: RMSNorm (1) before each sublayer, attention with "
     "turned queries and keys (3) and shared keys and values (4), a gate times a value "
     "(2), and training by AdamW with a cosine (5).",
     caption="The numbers mark the five changes, in the order of this page.")

# %% [markdown]
# Changes 1 to 4 are in the block, and change 5 is in the training. An older change isn't measured here: the paper's
# norm comes after the sum, GPT-2's before the sublayer (**pre-norm**, [lesson 12](12_residual_norm_dropout.py)).
#
# ## 1 · RMSNorm
#
# LayerNorm subtracts the mean, divides by the standard deviation, multiplies by γ and adds β. **RMSNorm** (Zhang and
# Sennrich 2019) only divides by the root mean square and multiplies by γ.
#
# **By hand.** Take x = (1, 7) and γ = 1. The squares are 1 and 49, their mean is 25, and the root of that is rms = 5.
# So n = x / rms = (0.2, 1.4).
#
# **Backward.** Let d be the number of elements of x, and let ⊙ multiply two vectors number by number. The gradient of n
# is dn = dy ⊙ γ. Each $x_j$ changes n in two ways:
#
# - Divided by rms, it makes $n_j$. That gives $dn_j / rms$.
# - It changes rms, with the slope $n_j / d$. And rms changes every $n_i$, with the slope $-n_i / rms$. Together that
#   gives $-\frac{n_j}{rms} \cdot \frac{1}{d} \sum_i dn_i \, n_i$. The sum divided by d is a mean.
#
# $$dx = \frac{dn - n \, \mathrm{mean}(dn \odot n)}{rms}$$
#
# Say dn = (5, 0). Then dn ⊙ n = (1, 0), and its mean is 0.5. The numerator is (5, 0) − 0.5 · (0.2, 1.4) = (4.9, −0.7).
# Divided by 5, that makes dx = (0.98, −0.14). Check: if only the length of x changes, n stays. So the dot product x ·
# dx must be 0, and it is: 1 · 0.98 + 7 · (−0.14) = 0. The gradient of γ is dy ⊙ n, summed over all words.
#
# **Calculate, then unfold.** What are n and dx for x = (2, 14), if dn = (5, 0) again?
#
# <details><summary>Answer</summary>
#
# Now rms = 10. Both n and the numerator are as before, so dx = (4.9, −0.7) / 10 = (0.49, −0.07).
#
# </details>
#
# **Your turn.** Write `rms_norm` in `more.py`. Add 1e-6 to the mean of the squares, so that nothing is divided by zero.
# Then `scratchformer learn check rms_norm`.

# %%
quote("rms_norm", file="more")

# %% [markdown]
# ## 2 · SwiGLU: a gate and a value
#
# In the paper, a hidden unit gives max(0, z). A **gated** unit has two numbers instead of z, a gate and a value, each
# with weights of its own (Shazeer 2020):
#
# $$h = \mathrm{silu}(gate) \cdot value, \qquad \mathrm{silu}(z) = z \, \sigma(z), \qquad
# \sigma(z) = \frac{1}{1 + e^{-z}}$$
#
# The function silu is a smooth ReLU: nearly 0 far below zero, nearly z far above. There are three matrices instead of
# two, so the network gets two thirds of the hidden units.
#
# **By hand.** Let the gate be ln 3 = 1.099, and the value 4. Because $e^{-\ln 3}$ = 1/3, σ is 1 / (1 + 1/3) = 3/4. That
# gives the first row. The other rows have other gates, and again the value 4:
#
# | gate z | silu(z) | h = 4 · silu(z) | slope of silu |
# |---|---|---|---|
# | ln 3 = 1.099 | 3/4 · 1.099 = 0.824 | 3.30 | 0.956 |
# | 0 | 1/2 · 0 = 0 | 0 | 0.5 |
# | −ln 3 = −1.099 | 1/4 · (−1.099) = −0.275 | −1.10 | 0.044 |
#
# **Backward.** In a product, each factor gets the gradient times the *other* factor. The gate then passes its gradient
# through the slope of silu, σ + z σ (1 − σ):
#
# $$dvalue = dh \cdot \mathrm{silu}(gate), \qquad
# dgate = dh \cdot value \cdot \left(\sigma + z \, \sigma (1 - \sigma)\right)$$
#
# In the first row the slope is 3/4 + 1.099 · 3/4 · 1/4 = 0.956. So for dh = 1, dvalue = 0.824 and dgate = 4 · 0.956 =
# 3.824. In the second row dvalue is 0. But dgate is 4 · 0.5 = 2, so a gate of 0 still learns.
#
# **Your turn.** Write `swiglu`, without biases, and check it. Both x W_gate and x W_value use x, so dx is the sum of
# two gradients.

# %%
quote("swiglu", file="more")

# %% [markdown]
# ## 3 · Rotary positions
#
# `gpt-tiny` adds a learned vector for each position to the word. **RoPE** (Su et al. 2021) turns queries and keys
# instead, by angles that grow with the position. So of the two positions, only the distance is left in the score
# ([lesson 10](10_longer.py) shows why).

# %% Drawing the rotation
def dial(drawing, x, backward):
    """A vector of length 5 and the same vector after a turn by 53 degrees."""
    role, unit, y = "gradient" if backward else "query", 26, 195
    drawing.circle(x, y, 5 * unit, "line", 0)
    drawing.line([(x - 150, y), (x + 150, y)], "line", 1)
    drawing.line([(x, y - 150), (x, y + 150)], "line", 1)
    turned = (3, -4) if backward else (3, 4)
    for point, dashed in ((5, 0), True), (turned, False):
        tip = (x + unit * point[0], y - unit * point[1])
        drawing.arrow((x, y), tip, role, width=3, dashed=dashed)
    sign = -1 if backward else 1
    arc = [(x + 55 * math.cos(a), y - 55 * sign * math.sin(a))
           for a in np.linspace(0, math.acos(0.6), 12)]
    drawing.line(arc, role, 2)
    drawing.arrow(arc[-2], arc[-1], role)
    drawing.text(x + 82, y - 24 * sign, "53°", role, italic=backward)
    start, end = ("dy (5, 0)", "dx (3, −4)") if backward else ("x (5, 0)", "y (3, 4)")
    drawing.text(x + 138, y + 17 * sign, start, role, anchor="start", italic=backward)
    drawing.text(x + 88, y - 118 * sign, end, role, anchor="start", italic=backward)
    drawing.text(x, 25, "backward: turned back" if backward else "forward: turned",
                 bold=True)


picture = Drawing(760, 365)
dial(picture, 170, backward=False)
dial(picture, 540, backward=True)
show(picture, "23_rotation",
     alt="Two circles of radius 5. On the left a blue vector (5, 0) is turned up by 53 "
     "degrees and becomes (3, 4). On the right, in magenta, a gradient (5, 0) is "
     "turned down by the same angle and becomes (3, −4).",
     caption="A pair of numbers, turned by 53°, where cos = 0.6 and sin = 0.8. "
     "Backward turns the gradient by the opposite angle. The length, 5, is kept.")

# %% [markdown]
# **Which numbers make a pair?** A head of k numbers has k/2 pairs. Here number i and number i + k/2 make pair i. At
# position t, it turns by $t / 10000^{2i/k}$ radians. Both t and i count from 0. A turn by the angle α makes (a cos α −
# b sin α, a sin α + b cos α) out of (a, b).
#
# **By hand.** Let k be 4. Numbers 0 and 2 make pair 0, which turns by t. Numbers 1 and 3 make pair 1, which turns by
# only t / 100. So x = (1, 1, 0, 0) becomes (cos t, cos t/100, sin t, sin t/100):
#
# | position | turned x |
# |---|---|
# | 0 | (1, 1, 0, 0) |
# | 1 | (0.54, 1.00, 0.84, 0.01) |
# | 2 | (−0.42, 1.00, 0.91, 0.02) |
#
# The library and Llama's weights on the Hugging Face Hub pair the numbers in this way. Su et al. pair
# neighbours, 2i with 2i + 1. A model can learn the same with either, but weights trained with one need the columns of
# W_Q and W_K reordered for the other.
#
# **Backward.** Nothing is learned in a rotation, so dx is dy, turned back (figure 2).
#
# **Your turn.** Write `rope`, and check it. Queries or keys x are (b, t, h, k). Give the angles the shape (t, 1, k/2):
# the 1 stands for the heads, which all turn alike.

# %%
quote("rope", file="more")

# %% [markdown]
# ## 4 · Shared keys and values
#
# When a model writes, it keeps the keys and values of all tokens so far, because each new token looks at them again.
# With **grouped-query attention** (Ainslie et al. 2023), several query heads share one head of keys and values, which
# makes this **key-value cache** smaller. SmolLM2-135M has nine query heads, and three heads of keys and values. Its
# cache for 2,048 tokens in float32, without sharing and with it:

# %%
model = config.preset("smollm2-135m").model
for heads in model.h, model.h_kv:
    numbers = 2 * model.N * heads * model.d_k              # K and V in every layer
    print(f"{heads} heads of K and V: {numbers:,} numbers for each token, "
          f"{2048 * 4 * numbers / 1e6:.0f} MB")

# %% Drawing the shared heads
picture = Drawing(760, 285)
of_head = (3, -1, 2, 4)
for i, slope in enumerate(of_head):
    x, shared = 150 + 150 * i, 225 + 300 * (i // 2)
    picture.box(x, 60, f"query head {i + 1}", "query", 120, 36)
    side = 2 * (i % 2) - 1                      # left or right of the shared one
    picture.line([(x + 12 * side, 79), (shared + 42 * side, 198)], "key", 2)
    picture.arrow((x - 12 * side, 80), (shared + 16 * side, 198), "gradient")
    words = f"{slope:+d}".replace("-", "−")
    picture.gradient(x - 12 - 54 * side, 112, -slope, words, largest=6)
for group, total in enumerate((2, 6)):
    x = 225 + 300 * group
    picture.box(x, 218, f"keys, values {group + 1}", "key", 150, 38)
    words = ("3 + (−1) = 2", "2 + 4 = 6")[group]
    picture.gradient(x - 36, 258, -total, words, largest=6)
show(picture, "23_shared_heads",
     alt="Four query heads. Heads 1 and 2 use the keys and values 1, heads 3 and 4 use "
     "the keys and values 2. In magenta, the gradients 3 and −1 come back to the first "
     "and add up to 2; 2 and 4 come back to the second and add up to 6.",
     caption="Four query heads, two heads of keys and values. In magenta, gradients of "
     "one number of a key in each. A triangle points the way training will move the "
     "number, and is larger for a larger gradient.")

# %% [markdown]
# **By hand.** Four query heads need four heads of keys, so each of the two is used twice: [K1, K2] becomes [K1, K1, K2,
# K2]. With [K1, K2, K1, K2], query heads 1 and 2 wouldn't share. (`np.repeat` makes one of these, `np.tile` the other.)
#
# **Backward.** K1 is used twice, so its two gradients add up, as for a word that occurs twice ([lesson
# 08](08_embeddings.py)): 3 + (−1) = 2.
#
# **Your turn.** Write `grouped_query_attention`, and check it. It is your `multi_head_attention`, but W_K and W_V have
# fewer heads.

# %%
quote("grouped_query_attention", file="more")

# %% [markdown]
# Finite differences agree with all four backward passes ([lab notes
# 23](lab/23_block_of_2026.py#are-the-gradients-right)).
#
# ## 5 · AdamW and a cosine
#
# **Weight decay** pulls weights a little towards 0 at each step, against overfitting. You might add λ w to the
# gradient. But Adam divides a gradient by its own typical size ([lesson 15](15_adam_and_warmup.py)), and so the pull is
# divided, too. **AdamW** (Loshchilov and Hutter 2019) keeps it out of the division.
#
# **By hand.** Let w = 10, its gradient 3, the learning rate 0.1 and λ = 0.1. Adam's first step is 0.1 for any positive
# gradient. With λ w the gradient is 4 instead of 3, so w becomes 9.9, as without decay. AdamW first takes away the
# learning rate times λ w, 0.1 · 0.1 · 10 = 0.1, which makes 9.9. Then comes Adam's step, to 9.8. In the library, norms
# and biases don't decay.
#
# The learning rate rises to its peak during a warm-up. Then it falls along half a **cosine** to a tenth of the peak. If
# s is the share of the remaining steps that are done, it is
#
# $$\mathrm{peak} \cdot \left(0.1 + 0.9 \cdot \frac{1 + \cos \pi s}{2}\right)$$
#
# A quarter of the way (s = 1/4), that is 0.868 of the peak, and halfway 0.55.
#
# ## Does it matter?
#
# - **What goes in:** the lessons of this course, 500 steps of about 2,000 tokens, three seeds for each row.
# - **What is changed:** what the row names. Also d_ff, the number of hidden units (512 in `gpt-tiny`): it is chosen so
#   that all models have the same number of parameters, to 0.1 %. All have the same peak of the learning rate, which was
#   tuned for none.
# - **What is measured:** bits per character of held-out text, minus those of `gpt-tiny` with the same seed; the mean
#   over three seeds. The **95 % interval** is made so that it contains the mean over very many seeds in 95 of 100 such
#   experiments.
#
# All five together gained 0.25 bits. (a) Each change gives about a fifth of it. (b) SwiGLU and RMSNorm give most. (c)
# One change gives all of it.
#
# <details><summary>Make a guess, then unfold the table</summary>

# %% The recorded differences
def signed(number):
    return f"{number:+.3f}".replace("-", "−")


def differences(title, names):
    lines = []
    for words, name in names.items():
        found = rows[name]["last"]["difference"]
        low, high = signed(found["low"]), signed(found["high"])
        lines.append([words, str(rows[name]["d_ff"]), signed(found["mean"]),
                      f"{low} to {high}"])
    table([title, "d_ff", "difference", "95 % interval"], lines)


differences("changed in gpt-tiny", {
    "1 RMSNorm": "RMSNorm",
    "2 SwiGLU, and no biases in it": "SwiGLU, no biases in it",
    "3 rotary positions": "rotary positions",
    "4 two heads of keys and values, not four": "two heads share keys and values",
    "5 AdamW (λ = 0.1), cosine, β2 = 0.95, not 0.98": "AdamW, cosine",
    "all five, and no biases in attention": TOGETHER})

# %% [markdown]
# - **(c): rotary positions alone gain as much** as all five together.
# - **RMSNorm and shared heads** were slightly worse with all three seeds. But their intervals contain 0: an effect, if
#   there is one, is too small for three seeds to show. And two heads of keys and values halve the cache.
# - **SwiGLU and AdamW with a cosine** gain very little, if anything. Their intervals end just below 0. Among so many
#   intervals, one may miss 0 even if nothing has an effect. ([Lab notes 23](lab/23_block_of_2026.py#every-run): with
#   averaged weights, AdamW with a cosine is worse than `gpt-tiny`.)
#
# </details>
#
# Why do rotary positions help so much? For comparison, here are other kinds of positions:

# %% The positions
differences("positions in gpt-tiny", {
    "rotary": "rotary positions", "ALiBi": "ALiBi", "sinusoids, added": "sinusoids",
    "none": "no positions"})

# %% [markdown]
# ALiBi turns nothing: it lowers a score by a fixed amount for each step of distance. Yet it gains nearly as much. So
# turning isn't needed. RoPE and ALiBi change the scores by distance, *and* act in every layer. Sinusoids and learned
# vectors are added once, at the input. We haven't separated these two differences. Without any positions the model is
# nearly as good as `gpt-tiny`. But it isn't blind to order: the causal mask lets the first word see one word, and the
# tenth see ten.
#
# Don't conclude that the other four changes are useless. Models with more than our 940,000 parameters, or after more
# than 500 steps, may give other results.
#
# ## Today
#
# The library reads published weights of this kind ([using it](../docs/using.md#the-block-of-2026) says how, and what we
# couldn't try), but SmolLM2-135M has 100,000 in place of the 10,000 in your `rope`, and 1e-5 in place of the 1e-6 in
# your `rms_norm`.
#
# ## Paper and code
#
# - Touvron et al. (2023) put all but shared heads together, in LLaMA.
# - In the library the preset `llama-tiny` has all, and the layers are in [nn/llama.py](../scratchformer/nn/llama.py).
# - In PyTorch: `torch.nn.RMSNorm(d, eps=1e-6)`, `(F.silu(x @ W_gate) * (x @ W_value)) @ W_outer`,
#   `F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)`, `torch.optim.AdamW`. It has no function
#   for RoPE.
#
# ## What to remember
#
# RMSNorm divides by the root mean square, SwiGLU multiplies a gate and a value, RoPE turns queries and keys, and query
# heads share keys and values. Only rotary positions gave a clear gain at our size.
#
# **A question.** A model has 8 query heads and 2 heads of keys and values. By what factor does sharing make the cache
# smaller? From how many heads does a key get gradients?
#
# <details><summary>Answer</summary>
#
# By a factor of 4. From four query heads. (In each of them, every query that sees the key adds to its gradient.)
#
# </details>
#
# **Yours:** `rms_norm`, `swiglu`, `rope`, `grouped_query_attention` · `scratchformer learn check rms_norm swiglu rope
# grouped_query_attention`
#
# **Next:** put a layer of your own into the block: [a layer of your own is one file](../docs/extending.md).
