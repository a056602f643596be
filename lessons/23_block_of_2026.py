# %% [markdown]
# # 23 · The block of 2026
#
# **Which of the five changes since the paper make a small model better?**
#
# *Needs [lesson 07](07_many_heads.py) (heads), [lesson 11](11_feed_forward.py) (feed-forward), [lesson
# 12](12_residual_norm_dropout.py) (LayerNorm) and [lesson 15](15_adam_and_warmup.py) (Adam) · you will compute today's
# norm, gate, rotation and shared heads, forward and backward, with pencil and paper.*

# %% Imports
import math
from types import SimpleNamespace

import more
import numpy as np

from scratchformer import config
from support.drawing import Drawing
from support.lesson import quote, recorded, same, show, table
from support.numeric import numeric_gradient
from support.positions import rotated

# %% [markdown]
# Two small language models have the same number of parameters. Both read the same text for 500 steps. The first,
# `gpt-tiny` from lesson 22, has the block of GPT-2, from 2019. The second has the block that is common in published
# models of 2026. How well do they predict a text that they haven't read? We count the **bits per character**. A model
# that gives each next character the probability 1/4 needs 2 bits for it, and with the probability 1/2 only 1 bit. So
# fewer is better.

# %% The recorded runs
rows = {row["variant"]: row for row in recorded("block_of_2026")["results"]}
TOGETHER = "all five together"


def bits_of(name):
    return [run["bits_per_character"]["last"] for run in rows[name]["runs"]]


table(["bits per character", "run 1", "run 2", "run 3"],
      [[words, *(f"{bits:.2f}" for bits in bits_of(name))]
       for words, name in (("GPT-2's block", "gpt-tiny"), ("block of 2026", TOGETHER))])

# %% [markdown]
# The second model saves a quarter of a bit. So on average it gives the right character a probability that is higher by
# a fifth, because $2^{0.25}$ = 1.19. But it differs from the first in five points. Which of them helped? Let's
# understand the five first, and then change one at a time.
#
# ## The picture

# %% Drawing the two blocks
def block(drawing, x, parts, first, title):
    """A block as a road from below to above, with its two sublayers beside it."""
    drawing.text(x + 60, 22, title, bold=True)
    drawing.arrow((x - 90, 500), (x - 90, 38), "forward", width=4)
    drawing.text(x - 90, 518, first, "soft", 13)
    for y, (sublayer, norm, number_of_norm) in zip((450, 240), parts):
        inside = norm.startswith("RMS")
        turns = [(x - 90, y), (x + 60, y), (x + 60, y - 12)]
        drawing.line(turns, "soft")
        if inside:
            drawing.box(x + 60, y - 27, norm, width=150, height=30, size=14)
            drawing.arrow((x + 60, y - 42), (x + 60, y - 56))
        else:
            drawing.line([(x + 60, y - 12), (x + 60, y - 56)], "soft")
        drawing.box(x + 60, y - 88, sublayer, width=190, height=62, size=14)
        drawing.line([(x + 60, y - 119), (x + 60, y - 140)], "soft")
        drawing.arrow((x + 60, y - 140), (x - 79, y - 140))
        drawing.circle(x - 90, y - 140, 11, "paper", 1)
        drawing.circle(x - 90, y - 140, 11, "forward", words="+")
        if not inside:
            drawing.rectangle(x - 90, y - 172, 100, 26, "paper", 1)
            drawing.box(x - 90, y - 172, norm, width=100, height=26, size=14)
        if number_of_norm:
            mark(drawing, x + 152, y - 27, number_of_norm)


def mark(drawing, x, y, number):
    drawing.circle(x, y, 12, "ink", words=number)


picture = Drawing(760, 535)
block(picture, 160, [("attention", "LayerNorm", ""),
                     ("linear, ReLU, linear", "LayerNorm", "")],
      "word + position", "the paper, 2017")
TURNED = "attention: turned q, k\nshared keys and values"
block(picture, 510, [(TURNED, "RMSNorm", "1"),
                     ("gate × value (SwiGLU)", "RMSNorm", "1")],
      "word", "today, 2026")
mark(picture, 682, 348, "3")
mark(picture, 682, 376, "4")
mark(picture, 682, 152, "2")
mark(picture, 560, 517, "5")
picture.text(580, 518, "trained by AdamW, cosine", "soft", 13, "start")
show(picture, "23_blocks",
     alt="Two blocks, drawn as roads from below to above with two sublayers beside "
     "them. Left, the paper: attention, plus, LayerNorm on the road; linear, ReLU, "
     "linear, plus, LayerNorm on the road. Right, 2026: RMSNorm (1) before each "
     "sublayer, attention with turned queries and keys (3) and shared keys and values "
     "(4), a gate times a value (2), and training by AdamW with a cosine (5).",
     caption="The numbers mark the five changes, in the order of this page. What a "
     "block is for has not changed: attention, then a network for each word, and a "
     "road around both.")

# %% [markdown]
# Each change replaces one part and leaves the others alone.
#
# ## 1 · RMSNorm, before the sublayer
#
# **The problem.** The paper normalizes the sum: LayerNorm(x + f(x)). In [lesson 12](12_residual_norm_dropout.py) a deep
# stack of that kind learned slowly. With the norm before the sublayer, x + f(norm(x)), it learned well. That is
# **pre-norm**, and GPT-2 had it already. Zhang and Sennrich (2019) then asked what a norm really needs. LayerNorm
# subtracts the mean, divides by the standard deviation, multiplies by γ and adds β. **RMSNorm** only divides by the
# root mean square, and multiplies by γ.
#
# **By hand.** Take x = (1, 7). The squares are 1 and 49, their mean is 25, and the root of that is 5. So n = x / 5 =
# (0.2, 1.4). Let γ be 1.
#
# **Backward.** A vector of twice the length has the same n. So the gradient must not ask x to become longer or shorter,
# and the part of it that points along n is taken away:
#
# $$dx = \frac{dn - n \cdot \mathrm{mean}(dn \cdot n)}{rms}$$
#
# Here dn is the gradient of n, which is dy times γ. (And γ itself gets dy · n, summed over all words.) Say dn = (5, 0).
# Then dn · n, number by number, is (1, 0), with the mean 0.5. What is left is (5, 0) − 0.5 · (0.2, 1.4) = (4.9, −0.7).
# Divided by 5, that makes dx = (0.98, −0.14). Check: no part of dx points along x, because 1 · 0.98 + 7 · (−0.14) = 0.
#
# **Calculate, then unfold.** What are n and dx for x = (2, 14), if dn = (5, 0) again?
#
# <details><summary>Answer</summary>
#
# The root mean square is 10, so n = (0.2, 1.4) as before. The bracket is the same, too, but it is divided by 10: dx =
# (0.49, −0.07). Twice the length, half the gradient.
#
# </details>
#
# **Your turn.** `rms_norm` in `more.py`: x (b, t, d) and the weight gamma (d) go in, y of the shape of x comes out. Add
# 1e-6 to the mean, so that nothing is divided by zero. Then `scratchformer learn check rms_norm`.

# %%
quote("rms_norm", file="more")

# %% [markdown]
# ## 2 · SwiGLU: a gate and a value
#
# **The problem.** A hidden unit of the paper is max(0, z). The same number z decides *whether* the unit speaks and
# *what* it says. A **gated** unit has two numbers, a gate and a value, each with weights of its own (Shazeer 2020):
#
# $$h = \mathrm{silu}(gate) \cdot value, \qquad \mathrm{silu}(z) = z \, \sigma(z), \qquad
# \sigma(z) = \frac{1}{1 + e^{-z}}$$
#
# The function silu is a ReLU with a rounded corner: nearly 0 far below zero, nearly z far above. As there are now three
# matrices instead of two, the network gets two thirds of the hidden units, so that it has as many parameters.
#
# **By hand.** The gate is ln 3 = 1.099, and the value is 4. Because $e^{-\ln 3}$ = 1/3, σ is 1 / (1 + 1/3) = 3/4. So
# silu is 3/4 · 1.099 = 0.824, and h = 0.824 · 4 = 3.30. Here are two more gates with the same value:
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
# For the first row and dh = 1, the slope is 3/4 + 1.099 · 3/4 · 1/4 = 0.956. So dvalue = 0.824 and dgate = 4 · 0.956 =
# 3.824. Now look at the row of gate 0: the unit says nothing, so its value gets no gradient. But its gate gets 4 · 0.5
# = 2, and so it learns whether to open.
#
# **Your turn.** `swiglu` in `more.py`: x (b, t, d) goes in; W_gate and W_value are (d, f), W_outer is (f, d); there are
# no biases. The input x has two ways out, so its gradient is a sum. `scratchformer learn check swiglu`.

# %%
quote("swiglu", file="more")

# %% [markdown]
# ## 3 · Rotary positions
#
# **The problem.** `gpt-tiny` learns a vector for each position and adds it to the word there. What it learns at
# position 7 says nothing about position 70. And attention needs something else: how *far apart* two words are. **RoPE**
# (Su et al. 2021) adds nothing to the words. It turns each query and each key by an angle that grows with its position.

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
     caption="A pair of numbers at position 1. Forward turns it by its angle. Backward "
     "is the same drawing with the opposite angle, and the length, 5, is kept.")

# %% [markdown]
# **By hand.** A turn takes the pair (a, b) to (a cos − b sin, a sin + b cos). Choose the angle with cos = 0.6 and sin =
# 0.8, about 53° for each position. Then a query (5, 0) becomes (3, 4) at position 1. A key (5, 0) at position 2 is
# turned twice: (3 · 0.6 − 4 · 0.8, 3 · 0.8 + 4 · 0.6) = (−1.4, 4.8). Their dot product is 3 · (−1.4) + 4 · 4.8 = 15.
# Now move both back by one position. The query (5, 0) at position 0 isn't turned, the key is (3, 4), and the dot
# product is 5 · 3 = 15 again. **The score knows only the distance.** (Lesson 10 has the proof.)
#
# **Backward.** The gradient is turned by the opposite angle. Why? A rotation is a matrix R, so dx is dy times its
# transpose, and the transpose of a rotation turns back. With the gradient (5, 0) arriving at y, dx = (5 · 0.6, −5 ·
# 0.8) = (3, −4). There is nothing to learn in a rotation, so that is all.
#
# **In general**, a head of k numbers has k/2 pairs, and each turns at its own speed, those of the paper's sinusoids. At
# position t, pair i turns by t / 10000^(2i/k) radians. So the first pair turns quickly and the last one slowly.
#
# **Which numbers make a pair?** Here it is number i with number i + k/2, as in the library and in the published weights
# of Llama. [Lesson 10](10_longer.py) and Su et al. pair neighbours. Both can learn the same, since only the order of
# the columns of W_Q and W_K differs. But trained weights must be reordered before they fit the other kind.
#
# **Your turn.** `rope` in `more.py`: x (b, t, h, k), queries or keys, goes in; y has the same shape. `scratchformer
# learn check rope`.

# %%
quote("rope", file="more")

# %% [markdown]
# ## 4 · Shared keys and values
#
# **The problem.** When a model writes, it keeps the keys and values of all tokens so far, because each new token looks
# at them again. This **key-value cache** grows with the text. The published model SmolLM2-135M has nine query heads. If
# each had keys and values of its own, the cache of 2,048 tokens in float32 would take the memory in the first line:

# %%
model = config.preset("smollm2-135m").model
for heads in model.h, model.h_kv:
    numbers = 2 * model.N * heads * model.d_k              # K and V in every layer
    print(f"{heads} heads of K and V: {numbers:,} numbers for each token, "
          f"{2048 * 4 * numbers / 1e6:.0f} MB")

# %% [markdown]
# With **grouped-query attention** (Ainslie et al. 2023), several query heads share one head of keys and values. This
# model has three of them, so its cache is a third as large.

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
    picture.gradient(x - 12 - 54 * side, 112, -slope, words, largest=4)
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
     "number, so down for a positive gradient.")

# %% [markdown]
# **By hand.** Forward, head 1 of the keys is used twice, by query heads 1 and 2.
#
# **Backward.** What is used twice gets two gradients, and they add up. Say one number of a key in head 1 gets the
# gradient 3 from query head 1, and −1 from query head 2. Then its gradient is 3 + (−1) = 2. You know this rule from
# [lesson 08](08_embeddings.py), where a word occurs twice in a sentence.
#
# **Your turn.** `grouped_query_attention` in `more.py` is your `multi_head_attention` with one difference: W_K and W_V
# have fewer heads, (d, h_kv, k). The first h / h_kv query heads share the first head of keys and values, the next ones
# the second. `scratchformer learn check grouped_query_attention`.

# %%
quote("grouped_query_attention", file="more")

# %% [markdown]
# ## 5 · AdamW and a cosine
#
# **The problem.** A model shouldn't fit its training text too closely. **Weight decay** is meant to help: at each step,
# it pulls every weight a little towards 0. You might add λ w to the gradient. But Adam divides a gradient by its own
# typical size ([lesson 15](15_adam_and_warmup.py)), and so the pull is divided, too. **AdamW** (Loshchilov and Hutter
# 2019) keeps it out of the division.
#
# **By hand.** Let w = 10, its gradient 3, the learning rate 0.1 and λ = 0.1. Adam's first step is 0.1 whatever the size
# of the gradient. With λ w in the gradient, 3 becomes 4, the step stays 0.1, and w becomes 9.9: the decay has done
# nothing. AdamW takes away 0.1, and then 0.1 · λ · w = 0.1 · 0.1 · 10 = 0.1 for the decay. That makes 9.8.
#
# The learning rate rises to its peak during a warm-up, as in the paper. Then it follows half a **cosine** down to a
# tenth of the peak: slowly at first, fast in the middle, slowly at the end. Halfway it is (1 + 0.1) / 2 = 0.55 of the
# peak. Nothing here has a backward pass, since all of it happens after the gradients are known.
#
# ## Are the gradients right?
#
# First RMSNorm with the numbers from above, then all four functions against finite differences:

# %% The check
def weight(array):
    return SimpleNamespace(data=array, grad=np.zeros_like(array))


y, backward = more.rms_norm(np.array([[[1.0, 7.0]]]), weight(np.ones(2)))
dx = backward(np.array([[[5.0, 0.0]]]))
print("n", y.ravel().round(3), "  dx", dx.ravel().round(3))
random = np.random.default_rng(0)
x, heads = random.normal(size=(1, 5, 6)), random.normal(size=(1, 5, 4, 6))
gamma, *gate = [weight(random.normal(size=s)) for s in [(6,), (6, 8), (6, 8), (8, 6)]]
mask = np.tril(np.ones((5, 5), bool))
shared = [weight(random.normal(size=(6, h, 3))) for h in (4, 2, 2)]
shared.append(weight(random.normal(size=(4, 3, 6))))
calls = {"rms_norm": (lambda x: more.rms_norm(x, gamma), x),
         "swiglu": (lambda x: more.swiglu(x, *gate), x), "rope": (more.rope, heads),
         "grouped_query_attention":
         (lambda x: more.grouped_query_attention(x, x, mask, *shared), x)}
for name, (function, given) in calls.items():
    dy = random.normal(size=given.shape)
    dx = function(given)[1](dy)                       # x is the memory, too: two parts
    dx = dx if isinstance(dx, np.ndarray) else sum(dx)
    slopes = numeric_gradient(lambda x: (function(x)[0] * dy).sum(), given)
    same(f"dx of {name}: ours and finite differences", dx, slopes, 1e-7)
halves = np.arange(6).reshape(3, 2).T.ravel()         # neighbours 2i, 2i + 1 -> halves
same("rope: halves here, neighbours in lesson 10",
     more.rope(heads[..., halves])[0], rotated(heads, np.arange(5))[..., halves], 1e-12)

# %% [markdown]
# ## Does it matter?
#
# - **What goes in:** the lessons of this course, 500 steps of about 2,000 tokens, three runs for each row.
# - **What is changed:** one thing in each row, but for *all five together* and the paper's block. `gpt-tiny` has
#   pre-norm, LayerNorm, a network with GELU (a smooth ReLU), learned positions, and the schedule of the paper. The
#   number of hidden units is chosen so that all rows have the same number of parameters, to 0.1 %.
# - **What is measured:** the bits per character of text that was held out. We subtract those of `gpt-tiny` with the
#   same seed, which has read the same text in the same order. The **interval** is the range in which, with 95 %
#   confidence, the mean of many such differences lies.
#
# All five together gained 0.25 bits. Where do they come from? (a) Each change gives about a fifth. (b) SwiGLU and
# RMSNorm give most. (c) One change gives all of it.
#
# <details><summary>Make a guess, then unfold the table</summary>

# %% The recorded differences
NAMES = {"RMSNorm": "RMSNorm", "SwiGLU, no biases in it": "SwiGLU",
         "rotary positions": "rotary positions",
         "two heads share keys and values": "2 heads of keys and values, not 4",
         "AdamW, cosine": "AdamW, cosine", TOGETHER: TOGETHER,
         "the paper's block": "the paper's block",
         "ALiBi": "positions by ALiBi", "sinusoids": "positions by sinusoids",
         "no positions": "no positions"}


def signed(number):
    return f"{number:+.3f}".replace("-", "−")


def difference(name):
    found = rows[name]["last"]["difference"]
    low, high = signed(found["low"]), signed(found["high"])
    return [signed(found["mean"]), f"{low} to {high}"]


table(["changed in gpt-tiny", "bits per character", "difference", "95 % interval"],
      [["nothing", f"{np.mean(bits_of('gpt-tiny')):.3f}", "", ""],
       *([words, f"{np.mean(bits_of(name)):.3f}", *difference(name)]
         for name, words in NAMES.items())])

# %% [markdown]
# - **One change gives all of it: rotary positions.** The four rows at the end are controls. ALiBi turns nothing: it
#   lowers a score by a fixed amount for each step of distance ([lesson 10](10_longer.py)). It gains nearly as much. So
#   it isn't the turning itself that helps. What both have in common is that the *distance* of two words changes their
#   score.
# - **RMSNorm and shared keys and values change nothing that we can see.** Their intervals contain 0. That is good news:
#   the one is simpler, and the other halves the cache.
# - **SwiGLU and AdamW with a cosine gain very little, if anything.** Their intervals end just below 0. Of ten
#   intervals, one may easily miss 0 by chance. And if the weights of the last five checkpoints are averaged, AdamW with
#   a cosine is worse by 0.013.
# - **All five together aren't better than rotary positions alone.**
#
# </details>
#
# Why is the gain so large? Look at the last two rows. Without any positions the model is nearly as good as `gpt-tiny`.
# So in 500 steps the learned vectors have hardly begun to help. Sinusoids needn't be learned, and they gain about 0.06.
# (The paper's block has them, and gains no more.) RoPE and ALiBi needn't be learned either, and they gain four times as
# much. So most of the gain comes from *where* the positions go: into the scores, and not into the words.
#
# Don't conclude that the other four changes are useless. These models have less than a million numbers, and they took
# 500 steps on one text, with learning rates that nobody tuned. We have three runs for each row. A large model may gain
# from what a small one doesn't need, and after more steps learned positions may catch up. We have measured neither.
# ([Lab notes 23](lab/23_block_of_2026.py#every-run) have every run.)
#
# ## Today: published weights, on NumPy
#
# Published models of this kind are built from the four functions that you wrote. `scratchformer doctor smollm2-135m`
# checks one of them with random weights, and whether it fits into your memory. If you fetch the files of
# `HuggingFaceTB/SmolLM2-135M` from the Hugging Face Hub into a directory, these two commands read them and write a
# text:
#
#     scratchformer import --from llama SmolLM2-135M --out runs/smollm
#     scratchformer generate runs/smollm --prompt "The animal did not cross the street because"
#
# We had no internet where we wrote this, so we haven't seen its answer. What tests do show, with random weights in the
# same layout: logits and 120 tokens agree with a PyTorch model of the definition ([using
# it](../docs/using.md#the-block-of-2026)).
#
# ## Paper and code
#
# - Touvron et al. (2023) put pre-norm with RMSNorm, SwiGLU, RoPE, and AdamW with a cosine together, in LLaMA.
# - In the library each change is a setting: `norm="rms"`, `feed_forward="swiglu"`, `positions="rotary"`, `h_kv=2`,
#   `schedule="cosine"`. The layers are in [nn/llama.py](../scratchformer/nn/llama.py), and the preset `llama-tiny` has
#   all.
# - In PyTorch: `torch.nn.RMSNorm(d, eps=1e-6)`, `(F.silu(x @ W_gate) * (x @ W_value)) @ W_outer`,
#   `F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)`, `torch.optim.AdamW`. It has no function
#   for RoPE.
#
# ## What to remember
#
# Today's block has the same two sublayers as the paper's. RMSNorm only divides by the root mean square, SwiGLU
# multiplies a gate and a value, RoPE turns queries and keys, and query heads share keys and values. Each backward is
# one idea: take away the part along n, multiply by the other factor, turn back, add up. At our size only positions
# inside attention gave a clear gain.
#
# <details><summary>Three questions</summary>
#
# 1. RMSNorm gets x = (3, 3, 3, 3), with γ = 1. What is n, and what is dx for dn = (1, 1, 1, 1)?
# 2. With the angle of figure 2, a key at position 4 and a query at position 3 are both (5, 0) before the turn. What is
#    their dot product?
# 3. A model has 8 query heads and 2 heads of keys and values. How many gradients are added up for each key, and by what
#    factor is its cache smaller?
#
# </details>
#
# <details><summary>Answers</summary>
#
# 1. The root mean square is 3, so n = (1, 1, 1, 1). The mean of dn · n is 1, so dx = (0, 0, 0, 0): this gradient asks
#    only for another length.
# 2. The distance is 1, so it is 15 again.
# 3. Four gradients, and the cache is a quarter as large.
#
# </details>
#
# **Yours:** `rms_norm`, `swiglu`, `rope`, `grouped_query_attention` · `scratchformer learn check rms_norm swiglu rope
# grouped_query_attention`
#
# **Next:** fetch a published model and let it write, or put a layer of your own into the block: [a layer of your own is
# one file](../docs/extending.md).
