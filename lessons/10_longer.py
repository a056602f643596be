# %% [markdown]
# # 10 · Longer than training
#
# **Does a model understand sentences longer than any it was trained on?**
#
# *Needs [lesson 07](07_many_heads.py) (heads) and [lesson 09](09_positions.py) (hands on dials) · you will turn
# queries, keys and gradients with pencil and paper · **side trip**: lesson 11 doesn't need it.*

# %% Imports
import math

import matplotlib.pyplot as plt
import more
import numpy as np

from scratchformer.decoding.translator import Translator
from scratchformer.nn.llama import RotaryPositions
from scratchformer.nn.loss import cross_entropy
from scratchformer.text.batches import batches_in_order, encode_pairs
from scratchformer.text.bundled import read_text
from scratchformer.text.corpora import Pairs
from scratchformer.training.run import load_run
from support.drawing import COLOURS, Drawing
from support.latest_name import trained
from support.lesson import QUICK, ROOT, quote, recorded, same, show, table, varying
from support.numeric import numeric_gradient
from support.positions import Shifted

# %% [markdown]
# The paper hopes that sinusoids let a model "extrapolate to sequence lengths longer than the ones encountered during
# training" (§3.5). Let's test that with the translator of [lesson 00](00_whole_game.py), which has sinusoids. In its
# training no sentence had more than 34 tokens (pieces of words). In `test_long`, 76 % of the pairs have a sentence with
# more. Here is one, with its translation, and then the loss of the German tokens. In one row, both sides of `test`
# begin at position 5 instead of 0:

# %% A long sentence, and the loss of the German tokens
translator = load_run(ROOT / "data/tiny_model")
model, encode = translator.model, translator.tokenizer.encode
sentence = next(text for text in read_text("test_long").source
                if text.startswith("Oskar thanked his brother because Sophie dreamed"))
varying(sentence)
varying("→ " + Translator(model, translator.tokenizer).translate([sentence], beam=1)[0])


def first_pairs(split):
    """The first 200 pairs of a test set (60 in quick mode), as ids"""
    pairs = Pairs(*(part[:60 if QUICK else 200] for part in read_text(split)[:3]), 0)
    return encode_pairs(encode, pairs, 256, 4096)


def losses(pairs, begun_at=0):
    """The mean loss of all tokens, of the first ten, and of the next ten"""
    before = model.source_positions, model.target_positions
    model.source_positions, model.target_positions = (
        Shifted(each, begun_at) for each in before)
    sums = np.zeros((3, 2))                                      # of losses; of tokens
    for batch in batches_in_order(pairs, 4096):
        logits, _ = model.forward(*batch.inputs)
        for i, part in enumerate((slice(None), slice(10), slice(10, 20))):
            sums[i] += cross_entropy(logits[:, part], batch.targets[:, part])[:2]
    model.source_positions, model.target_positions = before
    return sums[:, 0] / sums[:, 1]


test, test_long = first_pairs("test"), first_pairs("test_long")
found = {"test": losses(test), "test, begun at position 5": losses(test, 5),
         "test_long": losses(test_long)}
for (loss, *_), (lo, hi) in zip(found.values(), [(0.07, 0.14), (0.5, 1.2), (1.6, 2.4)]):
    assert lo < loss < hi
assert found["test, begun at position 5"][1] > 2 * found["test, begun at position 5"][2]
assert found["test_long"][2] > 5 * found["test"][2]
assert test.lengths.max() <= 34 - 5
assert QUICK or (test_long.lengths > 34).mean() == 0.76
table(["loss, nats per token", "all tokens", "first ten", "next ten"],
      [[name, *(f"{loss:.2f}" for loss in each)] for name, each in found.items()])

# %% [markdown]
# The translation begins well, and then says *weil sie sang* (because she sang) three times. Long sentences fail, even
# in the next ten tokens, where no German position is new. And those begun at 5 fail, most of all in their first ten
# tokens. No length and no position is new in them. But in training, every sentence began at 0. So this model relies on
# the positions themselves, and not only on distances. (Late positions are rare in training, but [that isn't the
# reason](lab/10_longer.py#is-it-the-rare-late-positions).)
#
# Can we build attention whose scores depend on distances alone?
#
# ## The picture
#
# In lesson 09, hands on dials made position vectors, and the dot product of two of them depends on the distance alone.
# That is what we want. But a model *adds* such a vector to the word, and then $W_Q$ and $W_K$ mix the two. **Rotary
# positions** (RoPE; [Su et al. 2021](https://arxiv.org/abs/2104.09864)) come after $W_Q$ and $W_K$: the query itself is
# a hand. The tip of the query (2, 1) is 2 to the right and 1 up. (Lesson 09 wrote the height first.)
#
# RoPE turns this hand counter-clockwise by one step for each position, beginning with none at position 0. Keys turn
# in the same way. In figure 1 a step is a quarter turn (90°).

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
     caption="A query and a key, before the turn (dashed) and after it. In "
     "the middle and on the right, the angle is the same.")

# %% [markdown]
# Before the turn, the angle from query to key is 37°: its cosine is 4/5, the dot product divided by both lengths, √5 ·
# √5. If the key stands one position after the query, it turns by one quarter more. So the angle becomes 37° + 90° =
# 127°, in both turned dials. A turn changes no length, and a dot product is length · length · cosine of the angle. **So
# it depends on query, key and distance, and not on the two positions.**
#
# ## By hand
#
# A quarter turn makes (−b, a) out of (a, b). In figure 1:
#
# - *Query at 1, key at 2.* The query turns once, from (2, 1) to (−1, 2). The key turns twice, from (1, 2) to (−2, 1)
#   and (−1, −2). Dot product: (−1) · (−1) + 2 · (−2) = **−3**.
# - *Query at 2, key at 3.* The query turns on to (−2, −1), the key to (2, −1). Dot product: (−2) · 2 + (−1) · (−1) =
#   **−3** again.
#
# Now you: the query at 1 and the key at 3; then at 2 and 4.
#
# <details><summary>Calculate, then unfold</summary>
#
# (−1, 2) and (2, −1): −2 − 2 = **−4**. Then (−2, −1) and, after a full turn, (1, 2): −2 − 2 = **−4** again.
#
# </details>
#
# At other distances (position of the key minus that of the query; below 0, the key comes first):
#
# | distance | −1 | 0 | 1 | 2 | 3 | 4 |
# |---|---|---|---|---|---|---|
# | dot product | 3 | **4** | −3 | −4 | 3 | **4** |
#
# It is largest at distance 0. With the query (−2, −1) instead, it is largest at distance 2. So a model can learn how
# far away to look. But at distance 4 the key has made a **full turn** more than the query. So one pair can't tell
# distance 4 from 0.
#
# ## In general
#
# A query or key of $d_k$ numbers consists of $d_k / 2$ hands. Numbers $i$ and $i + d_k / 2$ make **pair** $i$, counted
# from 0: with $d_k = 8$, numbers 1 and 5 are pair 1. At position $t$, pair $i$ turns by the angle $\alpha = t \,
# \omega_i$, with speeds as in lesson 09: $\omega_i = 10000^{-2i/d_k}$ radians per position. It becomes
#
# $$(a, b) \to (a \cos \alpha - b \sin \alpha, \; a \sin \alpha + b \cos \alpha)$$
#
# The dot product of a query at $t$ and a key at $s$ adds up all pairs.
# Let $\vert q_i \vert$ and $\vert k_i \vert$ be the lengths of pair $i$, and $\varphi_i$ the angle from query to key
# before the turn:
#
# $$\sum_i \vert q_i \vert \, \vert k_i \vert \cos \left( \varphi_i + (s - t) \, \omega_i \right)$$
#
# In figure 1 there is one pair: 5 · cos(37° + 90° · (s − t)). Positions enter only as the distance $s - t$. (Values
# aren't turned.) Why several speeds? A fast pair soon repeats itself; a slow one hardly tells neighbours apart.
#
# ## Backward
#
# Let the loss be the dot product of the query at 1 and the key at 2. The gradient of the turned query is then the
# turned key, (−1, −2), and that of the turned key is the turned query, (−1, 2) ([lesson 04](04_soft_lookup.py)). How do
# they get back to the hands *before* the turn? Suppose the turned query should go up. A quarter turn takes "right" to
# "up". So the query before the turn should go to the right: we turn "up" back. **The gradient is turned, too, but
# back.**

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
     caption="In magenta, gradients: as they arrive (dashed), and turned back. A "
     "triangle points where training moves the number.")

# %% [markdown]
# A quarter turn back makes (b, −a) out of (a, b). The query had turned once, so $dq$ is (−1, −2) turned back once:
# **(−2, 1)**. The key had turned twice, so $dk$ is (−1, 2) turned back twice: **(1, −2)**.
#
# In general, $a$ reaches the loss through both new numbers, with the factors $\cos \alpha$ and $\sin \alpha$, and $b$
# with $-\sin \alpha$ and $\cos \alpha$. If $(da', db')$ arrives at the turned pair, then
#
# $$da = da' \cos \alpha + db' \sin \alpha \qquad db = -da' \sin \alpha + db' \cos \alpha$$
#
# That is forward with $-\alpha$ in place of $\alpha$.
#
# You write this in [lesson 23](23_block_of_2026.py), as `rope` of `more.py`. Here is ours. Its `x` holds queries or
# keys, (b, t, h, k). Positions count from 0, and the angles have the shape (t, 1, k/2):

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
# First, translators with three kinds of positions, trained for 600 steps. *RoPE* is in self-attention. So is
# *ALiBi* ([Press et al. 2022](https://arxiv.org/abs/2108.12409)): it subtracts $m$ · (distance without its sign) from
# each score, with $m$ = 1/4, 1/16, 1/64 and 1/256 in the four heads. Mean of two runs:

# %% The recorded translators
kinds = {"sinusoids": "sinusoidal", "RoPE": "rotary", "ALiBi": "alibi"}
recorded_rows = {row["variant"]: row for row in recorded("longer")["results"]}
table(["loss, nats per token", *kinds],
      [[split, *(f"{recorded_rows[kind][split]['mean']:.2f}"
                 for kind in kinds.values())]
       for split in ("test", "test_long")])
for kind in kinds.values():
    for run in recorded_rows[kind]["runs"]:
        assert run["test_long"] > 4 * run["test"]

# %% [markdown]
# All three fail on long sentences. With RoPE it doesn't matter where a sentence begins (the second check above), but
# that isn't enough. Our long sentences also have more main clauses. So here is a task in which *only* the length is
# new:
#
# - **What goes in:** words. The first is a name, and later one in five is.
# - **What should come out:** at each word, the latest name so far. *Ann sees Bob run* gives *Ann Ann Bob Bob*. With
#   8 names, a guess is right in 0.13 of the cases.
# - **The model:** one causal attention and a linear map to the answers. Each of four heads has $d_k = 8$, so four
#   pairs. It is trained on 5 to 20 words.
# - **What is changed:** the positions. *None* is the control: it doesn't know the order of the names.
# - **What is measured:** right answers at the last word of 400 new sequences, mean of three runs.
#
# What do you expect of RoPE at 60 words? (a) As good as at 20. (b) Worse, but better than *none*. (c) Worse than
# *none*.
#
# <details><summary>Make a guess, then unfold the results</summary>

# %% Training the models
readers = {kind: [trained(kind, seed) for seed in range(3)]
           for kind in ("none", "sinusoids", "ALiBi", "RoPE")}
found = {}


def row(words, kind, least, most, slow=(), sees=1000):
    """Right answers at 20, 40 and 60 words; at 60 they lie between least and most."""
    for reader in readers[kind]:
        reader.slow, reader.sees = slow, sees
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
# The answer is **(c)**: at 60 words RoPE is hardly better than a guess. *Sinusoids*, too, are worse than *none* ([in
# each of five runs](lab/10_longer.py#are-sinusoids-worse-than-no-positions)). ALiBi holds. (It suits this task: a
# nearer name always wins.)
#
# Why does RoPE fail, if it sees only distances? A *distance* can be new as well: in training, no name was more than 19
# words back. Pair 1 turns by 0.1 radians (5.7°) per position, so 19 words are less than a third of a full turn, which
# takes 63.

# %% Drawing the scores
AHEAD = 15
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for words, slow, style in (("as trained", (), "-"),
                           ("pair 1 at a third of its speed", (1,), "--")):
    for reader in readers["RoPE"]:
        reader.slow = slow
    heads = np.array([reader.score_of_a_name(AHEAD, 59) for reader in readers["RoPE"]])
    curve = heads.mean(axis=(0, 1))
    axes.plot(range(-AHEAD, 60), curve, style, lw=2.5, label=words,
              color=COLOURS["soft" if slow else "forward"][0])
    if not slow:
        top, later = curve[:AHEAD].argmax() - AHEAD, curve[AHEAD:].argmax()
        assert -13 <= top <= -7 and 48 <= later <= 56, (top, later)
    back = heads[..., AHEAD + 1:]
    far, near = back[..., 39:].max(axis=-1), back[..., :19].max(axis=-1)
    assert (far < near if slow else far > near).all()       # in all twelve heads
axes.axvspan(0, 19, color=COLOURS["line"][0], alpha=0.3, lw=0)
axes.axvline(0, color=COLOURS["line"][0], lw=1)
axes.set(xlabel="words back (below 0: words ahead)", ylabel="score", xlim=(-AHEAD, 59))
axes.set_xticks((-10, 0, 10, 19, 30, 40, 50, 59))
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False, loc="upper center")
show(figure, "10_score",
     alt="Two curves of the score of a name against its distance, from 15 words ahead "
     "to 59 words back. As trained, the score is a wave: about 50 at 12 to 6 words "
     "ahead, 29 at 1 word back, -36 at 19, where the gray area ends, and -43 at 23. "
     "Then it rises again, to about 50 at 51 words back. With pair 1 at a third of its "
     "speed it falls nearly all the way.",
     caption="The score of a name by its distance, mean over all heads and runs with "
     "RoPE. Gray: the distances of training.")

# %% [markdown]
# In the gray area a nearer name usually scores higher. But this slope is a piece of a wave. Its top lies
# about ten words *ahead*, where a causal model never looks. A full turn later, about 53 words back, the wave is at its
# top again, above the score of the nearest name. So the last of 60 words gives about 0.9 of its weight to the
# 20 oldest. (The ripples of six words are pair 0.)
#
# Now we change the trained models: each word sees only the last 20 words, or some pairs turn at a third of their speed.
# At 59 words, pair 1 has then turned as far as before at 20 (dashed curve).

# %% The same models, with a window and with slower pairs
table(COLUMNS, [row("RoPE", "RoPE", 0.09, 0.18),
                row("only the last 20 words seen", "RoPE", 0.9, 0.99, sees=20),
                row("pair 1 slower", "RoPE", 0.85, 0.97, (1,)),
                row("pairs 0, 2 and 3 slower", "RoPE", 0.09, 0.18, (0, 2, 3)),
                row("all pairs slower", "RoPE", 0.88, 0.99, (0, 1, 2, 3))])

# %% [markdown]
# If only near words are seen, RoPE is as good as at 20 words: so the far names do the harm. With pair 1 slower it is
# nearly as good, and sees all words. With the others slower, nothing gets better. So pair 1 fails at new distances.
#
# </details>

# %% [markdown]
# ## Today
#
# Most large language models have RoPE. For longer texts, people turn the pairs more slowly. They take a larger **base**
# than 10,000 (SmolLM2-135M: 100,000), or divide all positions by a factor, as in our last row, and train a little
# further: **interpolation** ([Chen et al. 2023](https://arxiv.org/abs/2306.15595)).
# [**YaRN**](https://arxiv.org/abs/2309.00071) spares the fast pairs. [**NoPE**](https://arxiv.org/abs/2305.19466)
# has no positions: with two layers or more, the causal mask alone can tell the order.
#
# ## Paper and code
#
# - PyTorch: `torch.complex(a, b) * torch.polar(ones, angle)`, checked above.
# - In the library: `RotaryPositions` and `AlibiPositions` in [nn/llama.py](../scratchformer/nn/llama.py).
#
# ## What to remember
#
# RoPE turns each pair of numbers of a query or key by an angle that grows with the position. So scores depend on the
# distance alone. Gradients are turned back.
#
# Our translators don't understand longer sentences, with any kind of positions. Even where only the length is new,
# RoPE can fail: new distances bring new angles. In our task of names, a slower pair repaired this; in a translator we
# haven't tried it.
#
# **Test yourself.**
#
# 1. One pair, a quarter turn per position. The query (2, 0) stands at 3, the key (1, 1) at 5. What is their dot
#    product?
# 2. The same turns. The gradient (3, 4) arrives at a turned key at position 1. What is $dk$?
#
# <details><summary>Answers</summary>
#
# 1. The distance is 2, so turn only the key, by two quarters: (−1, −1). **−2**.
# 2. Turned back by one quarter: **(4, −3)**.
#
# </details>
#
# **Next:** [11 · The feed-forward network](11_feed_forward.py). What happens to a vector after attention?
