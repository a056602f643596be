# %% [markdown]
# # 10 · Longer than training
#
# **Does a model understand sentences longer than any it was trained on?**
#
# *Needs [lesson 07](07_many_heads.py) (heads) and [lesson 09](09_positions.py) (hands on dials) · you will turn
# queries, keys and gradients with pencil and paper · **side trip**: lesson 11 doesn't need it.*

# %% Imports
import math

import more
import numpy as np

from scratchformer.nn.llama import RotaryPositions
from scratchformer.text.batches import encode_pairs
from scratchformer.text.bundled import read_text
from scratchformer.text.corpora import Pairs
from scratchformer.training.run import load_run
from scratchformer.training.validation import validation_loss
from support.drawing import Drawing
from support.latest_name import trained
from support.lesson import QUICK, ROOT, quote, recorded, same, show, table
from support.numeric import numeric_gradient
from support.positions import Shifted

# %% [markdown]
# The paper hopes that sinusoids let a model "extrapolate to sequence lengths longer than the ones encountered during
# training" (§3.5). Let's test that with the translator of [lesson 00](00_whole_game.py), which adds sinusoids to its
# words. In its training no sentence had more than 34 pieces. In `test_long` most have more, in `test` none. We also
# read `test` as if some words stood before each sentence: all positions, English and German, begin at 2 or 5.

# %% The loss of the German sentences, per piece
translator = load_run(ROOT / "data/tiny_model")
model, encode = translator.model, translator.tokenizer.encode


def first_pairs(split):
    """The first 200 pairs of a test set (60 in quick mode), as ids"""
    pairs = Pairs(*(part[:60 if QUICK else 200] for part in read_text(split)[:3]), 0)
    return encode_pairs(encode, pairs, 256, 4096)


def loss_when_moved(pairs, first):
    """The loss if all positions begin at `first`."""
    before = model.source_positions, model.target_positions
    model.source_positions, model.target_positions = (
        Shifted(each, first) for each in before)
    loss = validation_loss(model, pairs, 4096)
    model.source_positions, model.target_positions = before
    return loss


test, test_long = first_pairs("test"), first_pairs("test_long")
losses = [loss_when_moved(test, first) for first in (0, 2, 5)]
losses.append(loss_when_moved(test_long, 0))
for loss, (lo, hi) in zip(losses, [(0.07, 0.14), (0.08, 0.2), (0.5, 1.2), (1.6, 2.4)]):
    assert lo < loss < hi
assert test.lengths.max() <= 34 - 5 and np.median(test_long.lengths) > 34
names = ("test", "test, begun at position 2", "test, begun at position 5", "test_long")
table(["sentences", "loss, nats per piece"],
      [[name, f"{loss:.2f}"] for name, loss in zip(names, losses)])

# %% [markdown]
# The long sentences fail. But look at the third row, too. These sentences have the usual lengths, and the usual
# distances between words. No position is new, either: they end before 33, the last position of training. New is only
# that a sentence *begins* at 5. So this model has learned where words stand, and not only how far apart they are. (That
# late positions are rare in training isn't the reason: [lab notes 10](lab/10_longer.py#is-it-the-rare-late-positions).)
#
# Can we build attention whose scores know distances, and no positions?
#
# ## The picture
#
# In lesson 09, hands on dials made a position vector, and we *added* it to the word. **Rotary positions** (RoPE; [Su et
# al. 2021](https://arxiv.org/abs/2104.09864)) add nothing. Here the query itself is a hand. Take a query of two
# numbers, (2, 1): the tip of its hand is 2 to the right and 1 up. (Lesson 09 wrote the height first. Here the width
# comes first, as in a point (x, y).)
#
# RoPE turns this hand counter-clockwise, one step for each position: not at all at position 0, by one step at 1, by two
# at 2. It turns keys in the same way. In figure 1 a step is a quarter turn (90°).

# %% Drawing: hands that turn
UNIT = 36
QUERY, KEY = (2, 1), (1, 2)


def quarters(point, count):
    """The point after so many quarter turns, counter-clockwise."""
    for _ in range(count % 4):
        point = (-point[1], point[0])
    return point


def angle_of(point):
    return math.atan2(point[1], point[0])


def words_of(point):
    return f"({point[0]}, {point[1]})".replace("-", "−")


def at(x, y, radius, angle):
    return x + radius * math.cos(angle), y - radius * math.sin(angle)


def dial(drawing, x, y, radius=math.sqrt(5) * UNIT):
    drawing.circle(x, y, radius, "line", 0)
    drawing.line([(x - radius - 8, y), (x + radius + 8, y)], "line", 1)
    drawing.line([(x, y - radius - 8), (x, y + radius + 8)], "line", 1)


def hand(drawing, x, y, point, role, dashed=False, name=""):
    tip = (x + UNIT * point[0], y - UNIT * point[1])
    drawing.arrow((x, y), tip, role, width=1.6 if dashed else 3, dashed=dashed)
    if not dashed or role == "gradient":
        beside = at(x, y, math.sqrt(5) * UNIT + 25, angle_of(point))
        italic = role == "gradient"
        drawing.text(*beside, words_of(point), role, italic=italic)
        if name:
            above = -18 if point[1] > 0 else 18
            drawing.text(beside[0], beside[1] + above, name, role, 13, italic=italic)


def arc(drawing, x, y, radius, start, turn, role="ink", label="", dashed=False):
    """An arc with an arrow at its end, from the angle `start` by `turn`, in radians."""
    points = [at(x, y, radius, start + turn * share / 24) for share in range(25)]
    drawing.line(points[:-1], role, 1.6, dashed)
    drawing.arrow(points[-2], points[-1], role)
    if label:
        aside = 0.25 if abs(turn) > 1 else 0               # not on the line of a dial
        middle = at(x, y, radius + 20, start + turn / 2 + aside)
        drawing.text(*middle, label, role, 13, italic=role == "gradient")


def product(a, b):
    def factor(number):
        return f"({number})" if number < 0 else f"{number}"

    words = " + ".join(f"{factor(m)} · {factor(n)}" for m, n in zip(a, b))
    return f"{words} = {a[0] * b[0] + a[1] * b[1]}".replace("-", "−")


picture = Drawing(780, 300)
for x, title, t, s in ((130, "not turned", 0, 0), (390, "query at 1, key at 2", 1, 2),
                       (650, "query at 2, key at 3", 2, 3)):
    picture.text(x, 16, title, bold=True)
    dial(picture, x, 150)
    query, key = quarters(QUERY, t), quarters(KEY, s)
    if t:
        hand(picture, x, 150, QUERY, "query", dashed=True)
        hand(picture, x, 150, KEY, "key", dashed=True)
    hand(picture, x, 150, query, "query", name="query")
    hand(picture, x, 150, key, "key", name="key")
    between = math.acos(0.8) + math.pi / 2 * (s - t)
    words = f"{math.degrees(between):.0f}°"
    arc(picture, x, 150, 30, angle_of(query), between, label=words)
    picture.text(x, 284, product(query, key))
show(picture, "10_turn",
     alt="Three dials with a blue query and a teal key of equal length. Not turned, "
     "the query is (2, 1), the key (1, 2), the angle between them 37 degrees and the "
     "dot product 4. With the query at position 1 and the key at 2 they are (−1, 2) "
     "and (−1, −2), with 127 degrees between them and the product −3. At 2 and 3 they "
     "are (−2, −1) and (2, −1), again with 127 degrees and −3.",
     caption="A query and a key, before the turn (dashed) and after it, with their dot "
     "product. The hands in the middle and on the right differ; the angle is the same.")

# %% [markdown]
# Look at the angle from query to key. Before the turn it is 37°: its cosine is 4/5, the dot product divided by both
# lengths, √5 · √5. A key one position after the query has turned by one quarter more. So the angle is 37° + 90° = 127°,
# wherever the two stand. And the dot product is length · length · cosine of the angle. **So it depends on query, key
# and distance, and not on the two positions.**
#
# ## By hand
#
# A quarter turn makes (−b, a) out of (a, b). In figure 1:
#
# - *Query at 1, key at 2.* The query turns by one quarter, from (2, 1) to (−1, 2). The key turns by two quarters, from
#   (1, 2) to (−2, 1) and on to (−1, −2). Dot product: (−1) · (−1) + 2 · (−2) = **−3**.
# - *Query at 2, key at 3.* The query turns on to (−2, −1), and the key to (2, −1). Dot product: (−2) · 2 + (−1) · (−1)
#   = **−3** again.
#
# Now you: the query at 1 and the key at 3; then at 2 and 4.
#
# <details><summary>Calculate, then unfold</summary>
#
# (−1, 2) and (2, −1): −2 − 2 = **−4**. Then (−2, −1) and, after a full turn, (1, 2): −2 − 2 = **−4** again.
#
# </details>
#
# Here is their dot product at other distances (the position of the key minus that of the query):
#
# | distance | −1 | 0 | 1 | 2 | 3 | 4 |
# |---|---|---|---|---|---|---|
# | dot product | 3 | **4** | −3 | −4 | 3 | **4** |
#
# It is largest at distance 0. With the query (−2, −1) instead, it is largest at distance 2. So a model can learn how
# far away to look. But at distance 4 the key has made a **full turn** more than the query. So these two numbers can't
# tell distance 4 from 0. Keep that in mind.
#
# ## In general
#
# A query or key of $d_k$ numbers consists of $d_k / 2$ hands. Numbers $i$ and $i + d_k / 2$ make **pair** $i$, counted
# from 0: with $d_k = 8$, numbers 1 and 5 are pair 1. At position $t$, pair $i$ turns by the angle $\alpha = t \,
# \omega_i$, with speeds as in lesson 09: $\omega_i = 10000^{-2i/d_k}$ radians per position. It becomes
#
# $$(a, b) \to (a \cos \alpha - b \sin \alpha, \; a \sin \alpha + b \cos \alpha)$$
#
# With $\alpha$ = 90° that is $(-b, a)$, as above. The dot product of a query at $t$ and a key at $s$ adds up all pairs.
# Let $\vert q_i \vert$ and $\vert k_i \vert$ be the lengths of pair $i$, and $\varphi_i$ the angle from query to key
# before the turn:
#
# $$\sum_i \vert q_i \vert \, \vert k_i \vert \cos \left( \varphi_i + (s - t) \, \omega_i \right)$$
#
# In figure 1 there is one pair: 5 · cos(37° + 90° · (s − t)). Values aren't turned.
#
# Didn't lesson 09 have this already? There, the dot product of two *position vectors* depends on the distance alone.
# But in a model, $W_Q$ and $W_K$ come after the sum, and mix all its numbers. RoPE turns *after* $W_Q$ and $W_K$. So
# whatever they learn, positions enter a score only as a distance.
#
# ## Backward
#
# Let the loss grow by 1 if the dot product of the query at 1 and the key at 2 grows by 1. The gradient of the turned
# query is then the turned key, (−1, −2), and that of the turned key is the turned query, (−1, 2) ([lesson
# 04](04_soft_lookup.py)). How do they get back to the hands *before* the turn? Suppose the turned query should go up. A
# quarter turn makes "up" out of "right". So before the turn, the query has to go to the right. **The gradient is
# turned, too, but back.**

# %% Drawing the same dials, backward
picture = Drawing(780, 322)
query, key = quarters(QUERY, 1), quarters(KEY, 2)
picture.text(130, 16, "query at 1, key at 2", bold=True)
dial(picture, 130, 150)
hand(picture, 130, 150, query, "query", name="query")
hand(picture, 130, 150, key, "key", name="key")
picture.text(130, 284, product(query, key))
picture.gradient(122, 312, -1, "+1", 13)
for x, title, arrived, back in ((390, "gradient of the query", key, 1),
                                (650, "gradient of the key", query, 2)):
    picture.text(x, 16, title, bold=True)
    dial(picture, x, 150)
    hand(picture, x, 150, arrived, "gradient", dashed=True, name="arrives")
    found = quarters(arrived, -back)
    hand(picture, x, 150, found, "gradient", name="turned back")
    arc(picture, x, 150, 30, angle_of(arrived), -back * math.pi / 2, "gradient",
        f"−{90 * back}°")
    picture.text(x - 54, 284, ("dq = (", "dk = (")[back - 1], "gradient", italic=True)
    for i, slope in enumerate(found):
        end = ",)"[i]
        words = f"{slope:+d}{end}".replace("-", "−")
        picture.gradient(x - 8 + 48 * i, 284, -slope, words, largest=2)
show(picture, "10_turn_backward",
     alt="Three dials. The first has the turned query (−1, 2) and the turned key (−1, "
     "−2) of figure 1. In the second, a dashed magenta arrow, (−1, −2), arrives at the "
     "turned query; turned back by 90 degrees it is (−2, 1). In the third, (−1, 2) "
     "arrives at the turned key; turned back by 180 degrees it is (1, −2).",
     caption="In magenta, gradients: as they arrive at the turned hand (dashed), and "
     "turned back. A triangle points where training moves the number.")

# %% [markdown]
# A quarter turn back makes (b, −a) out of (a, b). The query had turned by one quarter, so $dq$ is (−1, −2) turned back
# by one: **(−2, 1)**. The key had turned by two, so $dk$ is (−1, 2) turned back by two: **(1, −2)**. Check $dq$: the
# query (2.01, 1) turns to (−1, 2.01), and the dot product is 1 − 4.02 = −3.02. It has changed by −2 · 0.01.
#
# In general, $a$ reaches the loss through both new numbers, with the factors $\cos \alpha$ and $\sin \alpha$, and $b$
# with $-\sin \alpha$ and $\cos \alpha$. If $(da', db')$ arrives at the turned pair, then
#
# $$da = da' \cos \alpha + db' \sin \alpha \qquad db = -da' \sin \alpha + db' \cos \alpha$$
#
# That is forward with $-\alpha$ in place of $\alpha$. Nothing is learned here. And a turn keeps the length, so a
# gradient comes back as long as it arrived, even at position 50,000.
#
# **Your turn.** `rope` is for [lesson 23](23_block_of_2026.py), but you can write it now, in `more.py`. Its `x` holds
# the queries or keys of all sentences and heads: (b, t, h, k). Run `scratchformer learn check rope`, then unfold ours.

# %%
quote("rope", file="more")

# %% The check, and the lines of PyTorch
random = np.random.default_rng(0)
q, k = random.normal(size=(2, 1, 5, 2, 6))              # (b, t, h, k) each, 5 positions
dy = random.normal(size=q.shape)
dx = more.rope(q)[1](dy)
same("backward of rope, and finite differences", dx,
     numeric_gradient(lambda x: (more.rope(x)[0] * dy).sum(), q), 1e-8)


def scores(first):
    """The dot products of both heads, if five words begin at position `first`."""
    moved = (np.pad(x, ((0, 0), (first, 0), (0, 0), (0, 0))) for x in (q, k))
    turned_q, turned_k = (more.rope(x)[0][:, first:] for x in moved)
    return np.einsum("bthk,bshk->bhts", turned_q, turned_k)


same("dot products of five words, begun at 40 and at 0", scores(40), scores(0), 1e-12)
assert np.allclose(RotaryPositions(6).forward(q)[0], more.rope(q)[0])
try:
    import torch
except ImportError:
    torch = None
if torch:
    x = torch.tensor(q, requires_grad=True)
    t, i = torch.arange(5.0).double(), torch.arange(3.0).double()
    angle = t[:, None, None] / 10000 ** (2 * i / 6)
    a, b = x.chunk(2, dim=-1)
    y = torch.complex(a, b) * torch.polar(torch.ones_like(angle), angle)
    theirs = torch.cat([y.real, y.imag], dim=-1)
    theirs.backward(torch.tensor(dy))
    assert np.allclose(theirs.detach(), more.rope(q)[0], rtol=0, atol=1e-12)
    assert np.allclose(x.grad, dx, rtol=0, atol=1e-12)

# %% [markdown]
# ## Does it matter?
#
# So with RoPE it doesn't matter where a sentence begins. But does it help with *long* sentences? In `test_long` more
# than the length is new: its sentences also have more main clauses than those of training. Here is a task in which only
# the length is new:
#
# - **What goes in:** words. The first is a name, and later one in five is.
# - **What should come out:** at each word, the latest name so far. For *Ann sees Bob run* that is *Ann Ann Bob Bob*.
#   There are 8 names, so a guess is right in 0.13 of the cases.
# - **The model:** one causal attention and a linear map to the answers. Each of four heads has $d_k = 8$, so four
#   pairs. It is trained on 5 to 20 words.
# - **What is changed:** the positions. *None* is the control: it sees which names came, but not in which order.
#   *Sinusoids* are added, *RoPE* turns. *ALiBi* ([Press et al. 2022](https://arxiv.org/abs/2108.12409)) subtracts $m$ ·
#   distance from each score, with $m$ = 1/4, 1/16, 1/64 and 1/256 in heads 1 to 4.
# - **What is measured:** right answers at the last word of 400 new sequences, mean of three runs.
#
# What do you expect of RoPE at 60 words? (a) It is as good as at 20. (b) It falls to the level of *none*. (c) It falls
# below *none*.
#
# <details><summary>Make a guess, then unfold the results</summary>

# %% Training the models
readers = {kind: [trained(kind, seed) for seed in range(3)]
           for kind in ("none", "sinusoids", "ALiBi", "RoPE")}
found = {}


def row(words, kind, least, most, slow=()):
    """Right answers at 20, 40 and 60 words; at 60 they lie between least and most."""
    for reader in readers[kind]:
        reader.slow = slow
    found[words] = [np.mean([reader.accuracy(n) for reader in readers[kind]])
                    for n in (20, 40, 60)]
    assert least < found[words][-1] < most, (words, found[words])
    return [words, *(f"{share:.2f}" for share in found[words])]


COLUMNS = ["positions", "20 words", "40 words", "60 words"]
table(COLUMNS, [row("none", "none", 0.33, 0.45),
                row("sinusoids", "sinusoids", 0.2, 0.33),
                row("ALiBi", "ALiBi", 0.88, 0.97), row("RoPE", "RoPE", 0.09, 0.18)])
assert found["RoPE"][0] > 0.9 and found["sinusoids"][1] < found["none"][1]
oldest = [reader.weight_of_oldest(60) for reader in readers["RoPE"]]
assert 0.85 < np.mean(oldest) < 0.93

# %% [markdown]
# The answer is **(c)**: at 60 words RoPE is hardly better than a guess. *Sinusoids*, too, are worse than no positions
# at all. ALiBi holds. (To subtract more from far words suits this task: a nearer name always wins.)
#
# Why does RoPE fail, if it sees only distances? Because a *distance* can be new as well: in training, the largest was
# 19. Look at pair 1, which turns by 0.1 radians (5.7°) per position:

# %% Drawing pair 1
picture = Drawing(780, 262)
for x, title, speed in ((200, "pair 1", 0.1),
                        (580, "pair 1 at a third of its speed", 0.1 / 3)):
    picture.text(x, 16, title, bold=True)
    dial(picture, x, 142)
    arc(picture, x, 142, 58, 0, 59 * speed, "soft", dashed=True)
    arc(picture, x, 142, 36, 0, 19 * speed, "forward")
    for distance, role in ((0, "ink"), (19, "forward"), (59, "soft")):
        angle = distance * speed
        tip = at(x, 142, math.sqrt(5) * UNIT, angle)
        picture.arrow((x, 142), tip, role, width=3 if distance < 59 else 1.6,
                      dashed=distance == 59)
        beside = at(x, 142, math.sqrt(5) * UNIT + 12, angle)
        left = beside[0] < x - 20
        words = f"{distance}: {math.degrees(angle):.0f}°" if distance else "0"
        picture.text(*beside, words, role, anchor="end" if left else "start")
show(picture, "10_full_turn",
     alt="Two dials with the angle of pair 1 at the distances 0, 19 and 59. At its "
     "full speed, distance 19 is at 109 degrees and distance 59 at 338 degrees, close "
     "to distance 0. At a third of the speed, distance 19 is at 36 degrees and "
     "distance 59 at 113 degrees.",
     caption="How far pair 1 turns at the distances 0, 19 (the largest of training) "
     "and 59 (the largest of 60 words).")

# %% [markdown]
# Up to distance 19, this pair can tell near from far. At distance 59 it has nearly made a full turn, so the oldest
# words look like the nearest. And that is where these models look: the last of 60 words gives about 0.9 of its
# attention weight to the 20 oldest ones.
#
# To test this explanation, we take the trained models and turn some pairs at a third of their speed. For pair 1,
# distance 59 is then about where distance 20 was.

# %% The same models with slower pairs
table(COLUMNS, [row("RoPE", "RoPE", 0.09, 0.18),
                row("pair 1 slower", "RoPE", 0.85, 0.97, (1,)),
                row("pairs 0, 2 and 3 slower", "RoPE", 0.09, 0.18, (0, 2, 3)),
                row("all pairs slower", "RoPE", 0.88, 0.99, (0, 1, 2, 3))])

# %% [markdown]
# If only pair 1 is slower, the models are nearly as good as at 20 words. If only the others are slower, nothing gets
# better. So pair 1 is the reason.
#
# </details>

# %% The recorded translators
rows = {row["variant"]: row for row in recorded("longer")["results"]}
assert [round(rows[name]["test_long"]["mean"], 1) for name in (
    "sinusoidal", "rotary", "sinusoidal, long ones too")] == [2.9, 2.5, 1.8]
assert [round(rows[name]["test"]["mean"], 1) for name in ("sinusoidal", "rotary")] == [
    0.5, 0.4]

# %% [markdown]
# **And the translator?** We trained translators for 600 steps (two runs each; [lab notes
# 10](lab/10_longer.py#the-recorded-translators)). On `test_long` the loss is 2.9 with sinusoids and 2.5 with RoPE, far
# above RoPE's 0.4 on `test`. With sinusoids, and 5 % of such long sentences in training, it is 1.8. So positions are
# only a part of what makes long sentences hard.
#
# ## Today
#
# Most large language models have RoPE. For longer texts, people turn the pairs more slowly, usually with some more
# training. They take a larger **base** than 10,000 (SmolLM2: 100,000), or divide all positions by a factor, as in our
# last row: **interpolation** ([Chen et al. 2023](https://arxiv.org/abs/2306.15595)). **YaRN** ([Peng et al.
# 2023](https://arxiv.org/abs/2309.00071)) slows only the slow pairs. The fast ones have met all their angles in
# training. **NoPE** means no positions at all, like *none*.
#
# ## Paper and code
#
# - PyTorch has no function for RoPE. With `a, b = x.chunk(2, -1)` and `z = torch.complex(a, b) * torch.polar(ones,
#   angle)`, the new halves are `z.real` and `z.imag` (compared above, also its gradient).
# - In the library: `RotaryPositions` and `AlibiPositions` in [nn/llama.py](../scratchformer/nn/llama.py).
# - *Others differ:* Su et al. make pairs of neighbours ([lesson 23](23_block_of_2026.py)).
#
# ## What to remember
#
# RoPE turns each pair of numbers of a query or key by an angle that grows with the position. So scores depend on the
# distance, and not on the two positions. Gradients are turned back. But at new distances a pair can reach angles that
# are new, too, unless it turns more slowly.
#
# **Three questions.**
#
# 1. One pair, a quarter turn per position. The query (2, 0) stands at 3, the key (1, 1) at 5. What is their dot
#    product?
# 2. The gradient (3, 4) arrives at a turned key at position 1. What is the gradient of the key?
# 3. $d_k = 8$. How many positions does pair 1 need for a full turn, and how many with the base 160,000?
#
# <details><summary>Answers</summary>
#
# 1. The distance is 2: turn the key by two quarters, to (−1, −1), and leave the query. The product is **−2**.
# 2. Turned back by one quarter: **(4, −3)**.
# 3. It turns by $10000^{-2/8}$ = 0.1 radians per position: 2π / 0.1 = **63**. With the base 160,000 it turns by 0.05:
#    **126**.
#
# </details>
#
# **Next:** [11 · The feed-forward network](11_feed_forward.py). Attention mixes the vectors of a sentence. What happens
# to a vector after that?
