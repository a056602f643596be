# %% [markdown]
# # 23 · The block of 2026
#
# **Which of today's five changes make a small language model learn more in 500 steps?**
#
# *Needs lessons [07](07_many_heads.py) (heads), [08](08_embeddings.py) (gradients that add up), [09](09_positions.py)
# (sinusoids), [11](11_feed_forward.py) (feed-forward), [12](12_residual_norm_dropout.py) (LayerNorm),
# [15](15_adam_and_warmup.py) (Adam), [21](21_bleu_and_averaging.py) (intervals) and [22](22_gpt.py) (GPT) · you will
# compute today's norm, gate, rotation and shared heads, forward and backward, with pencil and paper.*

# %% Imports
import math

import numpy as np

from scratchformer import config
from support.drawing import Drawing
from support.lesson import quote, recorded, show, table

# %% [markdown]
# Two language models have the same number of parameters, and read the same text for 500 steps. The first is the
# library's `gpt-tiny`, with a block like that of GPT-2 (2019). (Your `gpt.py` is smaller, and reads characters.) The
# second has the block and the training of Llama 3 (2024), with other sizes and constants. How many **bits per
# character** ([lesson 22](22_gpt.py)) do they need for a text that they haven't read? Fewer is better.

# %% The recorded runs
rows = {row["variant"]: row for row in recorded("block_of_2026")["results"]}
TOGETHER = "all five together"


def bits_of(name):
    return [run["bits_per_character"]["last"] for run in rows[name]["runs"]]


table(["bits per character", "run 1", "run 2", "run 3"],
      [[words, *(f"{bits:.2f}" for bits in bits_of(name))]
       for words, name in (("gpt-tiny", "gpt-tiny"),
                           ("as Llama 3", TOGETHER))])

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
      "word + position", "gpt-tiny, with a block like GPT-2's")
block(picture, 510,
      ["attention: turned q, k\nshared keys and values",
       "SwiGLU: two linears,\ngate × value, linear"],
      "RMSNorm", "word", "Llama 3's block")
picture.text(150, 518, "trained by Adam, as in the paper", "soft", 13, "start")
for x, y, number in ((662, 423, "1"), (662, 213, "1"), (682, 152, "2"),
                     (682, 348, "3"), (682, 376, "4"), (560, 517, "5")):
    picture.circle(x, y, 12, "ink", words=number)
picture.text(580, 518, "trained by AdamW, cosine", "soft", 13, "start")
show(picture, "23_blocks",
     alt="Two blocks, drawn as roads from below to above with two sublayers beside "
     "them. Left, gpt-tiny: LayerNorm before attention, LayerNorm before linear, "
     "GELU, linear. Right, Llama 3: RMSNorm (1) before each sublayer, attention with "
     "turned queries and keys (3) and shared keys and values (4), a gate times a value "
     "(2), and training by AdamW with a cosine (5).",
     caption="The numbers mark the five changes, in the order of this page.")

# %% [markdown]
# ## 1 · RMSNorm
#
# LayerNorm subtracts the mean, divides by the standard deviation, multiplies by γ and adds β. **RMSNorm** (Zhang and
# Sennrich 2019) only divides by the root mean square and multiplies by γ.
#
# **By hand.** Take x = (1, 7) and γ = 1. The squares are 1 and 49, their mean is 25, and the root of that is rms = 5.
# So n = x / rms = (0.2, 1.4).
#
# **Backward.** Let ⊙ multiply two vectors number by number. The gradient of n is dn = dy ⊙ γ. The rest is as in [lesson
# 12](12_residual_norm_dropout.py), without the term for the mean: take away dn's part along n, and divide by rms.
#
# $$dx = \frac{dn - n \, \mathrm{mean}(dn \odot n)}{rms}$$
#
# Say dn = (5, 0). Then dn ⊙ n = (1, 0), and its mean is 0.5. The numerator is (5, 0) − 0.5 · (0.2, 1.4) = (4.9, −0.7).
# Divided by 5, that makes dx = (0.98, −0.14). The gradient of γ is dy ⊙ n, summed over all words.
#
# **Calculate, then unfold.** What are n and dx for x = (2, 14), if dn = (5, 0) again?
#
# <details><summary>Answer</summary>
#
# Now rms = 10. But n and the numerator are as before, so dx = (4.9, −0.7) / 10 = (0.49, −0.07).
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
# A hidden unit of the paper gives ReLU(z), and one of GPT-2 GELU(z) ([lesson 11](11_feed_forward.py)). A **gated** unit
# has two numbers instead of z, a gate and a value, each with weights of its own (Shazeer 2020):
#
# $$h = \mathrm{silu}(gate) \cdot value, \qquad \mathrm{silu}(z) = z \, \sigma(z), \qquad
# \sigma(z) = \frac{1}{1 + e^{-z}}$$
#
# There are three matrices instead of two. With two thirds of the hidden units they have as many numbers as before.

# %% Drawing silu
def silu(z):
    return z / (1 + math.exp(-z))


picture = Drawing(760, 300)
at = lambda z, y: (330 + 75 * z, 235 - 75 * y)              # noqa: E731
picture.line([at(-4, 0), at(3, 0)], "line", 1)
picture.line([at(0, -0.6), at(0, 2.9)], "line", 1)
curves = {"ReLU": lambda z: max(0, z), "silu": silu,
          "GELU": lambda z: z * (1 + math.erf(z / 2**0.5)) / 2}
for (name, curve), role, dashed in zip(curves.items(), ("soft", "forward", "ink"),
                                       (False, False, True)):
    picture.line([at(z, curve(z)) for z in np.linspace(-4, 2.9, 70)], role,
                 3 if name == "silu" else 1.6, dashed)
for z in (-4, -2, 2):
    picture.text(at(z, 0)[0], at(z, 0)[1] - 12, f"{z}".replace("-", "−"), "soft", 13)
for y in (1, 2):
    picture.text(at(0, y)[0] - 14, at(0, y)[1], y, "soft", 13)
for y, (name, role) in enumerate((("ReLU", "soft"), ("GELU, dashed", "ink"),
                                  ("silu", "forward"))):
    picture.text(60, 40 + 24 * y, name, role, anchor="start", bold=name == "silu")
for z, words, x, y in ((math.log(3), "silu(1.099) = 0.824, slope 0.956", 425, 185),
                       (0, "silu(0) = 0, slope 0.5", 345, 254),
                       (-math.log(3), "silu(−1.099) = −0.275, slope 0.044", 90, 278)):
    picture.circle(*at(z, silu(z)), 5, "forward", 1)
    picture.text(x, y, words, "forward", 14, "start")
show(picture, "23_silu",
     alt="The curves of ReLU, GELU and silu from −4 to 3. silu is a smooth curve below "
     "both, a little negative left of 0. Three points are marked: at 1.099, silu is "
     "0.824 with slope 0.956; at 0 it is 0 with slope 0.5; at −1.099 it is −0.275 "
     "with slope 0.044.",
     caption="silu is a smooth ReLU: nearly 0 far to the left, nearly z far to the "
     "right.")

# %% [markdown]
# **By hand.** Let the gate be ln 3 = 1.099, and the value 4. Because $e^{-\ln 3}$ = 1/3, σ is 1 / (1 + 1/3) = 3/4. So
# silu is 3/4 · 1.099 = 0.824, and h = 4 · 0.824 = 3.30.
#
# **Backward.** In a product, each factor gets the gradient times the *other* factor. The gate then passes its gradient
# through the slope of silu. That is a product, too, and σ has the slope σ (1 − σ). With σ for σ(gate):
#
# $$dvalue = dh \cdot \mathrm{silu}(gate), \qquad
# dgate = dh \cdot value \cdot \left(\sigma + gate \cdot \sigma (1 - \sigma)\right)$$
#
# At our gate the slope is 3/4 + 1.099 · 3/4 · 1/4 = 0.956. So for dh = 1, dvalue = 0.824 and dgate = 4 · 0.956 = 3.824.
#
# **Calculate, then unfold.** The gate is 0, the value 3, and dh = 2. What are dvalue and dgate?
#
# <details><summary>Answer</summary>
#
# dvalue = 2 · 0 = 0, and dgate = 2 · 3 · 0.5 = 3. So a gate of 0 still learns.
#
# </details>
#
# **Your turn.** Write `swiglu`, without biases, and check it. Both x W_gate and x W_value use x, so dx is the sum of
# two gradients. Return it as a tuple, `(dx,)`, as `feed_forward` does.

# %%
quote("swiglu", file="more")

# %% [markdown]
# ## 3 · Rotary positions
#
# `gpt-tiny` adds a learned vector for each position to the word. **RoPE** (Su et al. 2021) turns queries and keys
# instead, by angles that grow with the position. A pair of numbers (a, b), turned by the angle α, becomes
#
# $$(a \cos \alpha - b \sin \alpha, \quad a \sin \alpha + b \cos \alpha)$$

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
     "Backward turns the gradient by −53°.")

# %% [markdown]
# **Calculate, then unfold.** Turn (3, 4) by 53°, too. What is the dot product of (5, 0) and (3, 4), before and after
# both are turned?
#
# <details><summary>Answer</summary>
#
# (3 · 0.6 − 4 · 0.8, 3 · 0.8 + 4 · 0.6) = (−1.4, 4.8). The dot product is 5 · 3 = 15 before, and 3 · (−1.4) + 4 · 4.8 =
# 15 after. If a query and a key are turned by the same angle, their score stays. So it depends on how much *further*
# one is turned than the other: on their distance ([lesson 10](10_longer.py)).
#
# </details>
#
# **Which numbers make a pair?** A head of k numbers has k/2 pairs. Pair i is $x_i$ and $x_{i + k/2}$, so for k = 4 the
# pairs are $(x_0, x_2)$ and $(x_1, x_3)$. At position t, pair i turns by $t / 10000^{2i/k}$ radians: here pair 0 by t,
# and pair 1 by only t / 100. Both t and i count from 0. Take x = (0, 1, 1, 0). Its pair 0 is (0, 1), and becomes (−sin
# t, cos t). Its pair 1 is (1, 0), and becomes (cos t/100, sin t/100):
#
# | position | turned x |
# |---|---|
# | 0 | (0, 1, 1, 0) |
# | 1 | (−0.84, 1.00, 0.54, 0.01) |
# | 2 | (−0.91, 1.00, −0.42, 0.02) |
#
# The library and Llama's published weights have these pairs. Su et al. pair neighbours, $x_{2i}$ with $x_{2i + 1}$.
#
# <!-- widget: rope -->
#
# **Backward.** dx is dy, turned by −α: only sin changes its sign.
#
# **Your turn.** Write `rope`, and check it. Queries or keys x are (b, t, h, k). Give the angles the shape (t, 1, k/2):
# the 1 stands for the heads, which all turn alike. Give cos and sin the number type of x, `x.dtype` (the check doesn't
# see this).

# %%
quote("rope", file="more")

# %% [markdown]
# ## 4 · Shared keys and values
#
# When a model writes, it keeps the keys and values of all tokens so far, because each new token looks at them again.
# With **grouped-query attention** (Ainslie et al. 2023), several query heads share one head of keys and values, which
# makes this KV cache ([lesson 07](07_many_heads.py)) smaller. SmolLM2-135M (2024) has nine query heads, and three heads
# of keys and values. Its cache for 2,048 tokens in float32, without sharing and with it:

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
     caption="In magenta, the gradients of one number of each key. Triangles point the "
     "way training will move it.")

# %% [markdown]
# **By hand.** Two heads of keys serve four query heads, so each is used twice: [K1, K1, K2, K2]. In [K1, K2, K1, K2],
# query heads 1 and 2 wouldn't share.
#
# **Backward.** K1 is used twice, so its two gradients add up, as those of a word that occurs twice ([lesson
# 08](08_embeddings.py)): 3 + (−1) = 2.
#
# **Calculate, then unfold.** Six query heads share three heads of keys, and send back the gradients 1, 2, 3, 4, 5, 6.
# What are the gradients of the three?
#
# <details><summary>Answer</summary>
#
# Query heads 1 and 2 share the first, so it gets 1 + 2 = 3. The others get 3 + 4 = 7 and 5 + 6 = 11.
#
# </details>
#
# **Your turn.** Write `grouped_query_attention`, and check it. It is your `multi_head_attention`, but W_K and W_V have
# fewer heads, h_kv, and h is a multiple of h_kv. On the way back, divide the axis of the h copies in two, so that dK is
# (b, s, h_kv, h/h_kv, k), and sum over the h/h_kv copies. Return dx and dmemory.

# %%
quote("grouped_query_attention", file="more")

# %% [markdown]
# ## 5 · AdamW and a cosine
#
# **Weight decay** pulls weights a little towards 0 at each step. You might add λ w to the gradient. But Adam divides a
# gradient by its own typical size ([lesson 15](15_adam_and_warmup.py)), and so the pull is divided, too. **AdamW**
# (Loshchilov and Hutter 2019) keeps it out of the division.
#
# **By hand.** Let w = 10, its gradient 3, the learning rate 0.1 and λ = 0.1. Adam's first step is 0.1, however large
# the gradient, so w becomes 9.9. If we add λ w = 1 to the gradient, it is 4, but the step is still 0.1, and w becomes
# 9.9 again. AdamW first takes away the learning rate times λ w, 0.1 · 1 = 0.1. Then comes Adam's step, to 9.8.
#
# The learning rate rises to its peak during a warm-up. Then it falls along half a **cosine** to a tenth of the peak:
# halfway it is 0.55 of the peak. And β2 is 0.95, not 0.98, so squared gradients are averaged over fewer steps.
#
# ## Does it matter?
#
# - **What goes in:** the lessons of this course, 500 steps of about 2,000 tokens, which is 4.7 times the text. Three
#   seeds for each row.
# - **What is changed:** what the row names, and d_ff, the number of hidden units, so that all have the same number of
#   parameters, to 0.1 %. The peak of the learning rate is the same, and was tuned for none.
# - **What is measured:** bits per character of a held-out tenth, with the last weights. The table has differences to
#   `gpt-tiny`: means of three seeds, and 95 % intervals.
#
# All five together gained 0.25 bits. (a) Each change gives about a fifth of it. (b) SwiGLU and RMSNorm give most. (c)
# One change gives all of it.
#
# <details><summary>Make a guess, then unfold the table</summary>

# %% The recorded differences
def signed(number):
    return f"{number:+.3f}".replace("-", "−")


def difference(found):
    return signed(found["mean"]), f"{signed(found['low'])} to {signed(found['high'])}"


changed = {
    "1 RMSNorm": "RMSNorm",
    "2 SwiGLU for GELU, and no biases there": "SwiGLU, no biases in it",
    "3 rotary positions": "rotary positions",
    "4 two heads of keys and values, not four": "two heads share keys and values",
    "5 AdamW (λ = 0.1), cosine, β2 = 0.95": "AdamW, cosine",
    "1 to 5, and no biases in attention": TOGETHER,
    "ALiBi: scores fall with the distance": "ALiBi",
    "sinusoids, added": "sinusoids",
    "no positions": "no positions",
    "learned positions start as large as words": "learned positions, as large as words"}
table(["changed in gpt-tiny", "difference", "95 % interval"],
      [[words, *difference(rows[name]["last"]["difference"])]
       for words, name in changed.items()])

# %% [markdown]
# - **(c): rotary positions alone gain at least as much.** All five together are 0.028 bits worse (−0.013 to +0.070).
# - **Part of this gain is a weakness of `gpt-tiny`.** After 500 steps its learned positions are worth almost nothing:
#   without any, it loses only 0.013. They start 11 times smaller than the words, but a start as large as words makes it
#   worse. Against sinusoids, rotary positions gain 0.21 (0.18 to 0.25).
# - **ALiBi** turns nothing: it lowers a score by a fixed amount for each step of distance. Yet it is only 0.02 behind
#   rotary positions (−0.02 to +0.06), so turning isn't needed.
# - **SwiGLU** may gain 0.01: its interval ends just below 0. **RMSNorm** and **shared heads** may lose a little, or
#   nothing.
# - **Row 5** changes three things, and can't say which one acts. It gains 0.005. With the mean of the last five
#   checkpoints ([lesson 21](21_bleu_and_averaging.py)) it *loses* 0.013; no other row changes its sign ([lab notes
#   23](lab/23_block_of_2026.py#every-run)).
#
# </details>
#
# The intervals stand for other seeds only: we have three, one text, and one held-out tenth. Of twenty such intervals,
# one misses by chance, and the table has ten. A longer training of `gpt-tiny` is in [lab notes
# 22](lab/22_gpt.py#experiment-2-a-larger-gpt-and-better-counts).
#
# ## Today
#
# Qwen3 (Yang et al. 2025) has changes 1 to 4, and a norm on queries and keys, too.
#
# ## Paper and code
#
# - LLaMA (Touvron et al. 2023) put all but shared heads together; Llama 3 shares heads (Grattafiori et al. 2024).
# - In the library, `llama-tiny` has all five: [nn/llama.py](../scratchformer/nn/llama.py).
# - In PyTorch: `torch.nn.RMSNorm(d, eps=1e-6)`, `(F.silu(x @ W_gate) * (x @ W_value)) @ W_outer`,
#   `F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)`, `torch.optim.AdamW`.
#
# ## What to remember
#
# RMSNorm divides by the root mean square, SwiGLU multiplies gate and value, RoPE turns queries and keys, and query
# heads share keys and values. After 500 steps, on one text, only positions made a large difference.
#
# **Yours:** `rms_norm`, `swiglu`, `rope`, `grouped_query_attention` · `scratchformer learn check 23`
#
# **Next:** [a layer of your own is one file](../docs/extending.md).
