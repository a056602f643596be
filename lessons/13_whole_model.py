# %% [markdown]
# # 13 · Encoder, decoder, the whole model
#
# **All parts of lessons 01 to 12 pass their checks. Are they wired together correctly?**
#
# *Needs attention with masks and heads ([04](04_soft_lookup.py), [06](06_masks.py), [07](07_many_heads.py)),
# embeddings and positions ([08](08_embeddings.py), [09](09_positions.py)), the feed-forward network
# ([11](11_feed_forward.py)) and Add & Norm ([12](12_residual_norm_dropout.py)) · you will put the parts together, test
# the whole, and train a model of your own.*

# %% Imports
import math

import numpy as np

from exercises.catalogue import FUNCTIONS
from exercises.hunts import variant
from exercises.source import ours
from support.drawing import Drawing
from support.lesson import quote, recorded, same, show, table

# %% [markdown]
# From lessons 01 to 12 you have every part of the paper's model, and each has passed its check. Now connect them.
#
# Here are two models, built from these parts. They should read 5 random symbols out of 8,
# and write them backwards. We compare the gradient of each with finite differences. Then we train each for 300 steps.

# %% Checking and training both
NOT_READ = {"decode": (
    ("x, memory, mask, **cross", "x, x, past, **cross"),
    ("dx, dshare = cross_backward(sum(ffn_backward(dx)))",
     "dx, dshare = sum(cross_backward(sum(ffn_backward(dx)))), 0"))}


SIZES = dict(V=13, d_model=6, d_ff=10, h=3, N=3)
SOURCE = np.array([[3, 9, 4, 3, 7], [5, 2, 8, 0, 0]])         # (b, s), 0 is padding
TARGET = np.array([[2, 5, 10, 5, 1], [2, 7, 3, 1, 0]])        # <s> first, </s> last
READ = TARGET[:, :-1]                                         # (b, t)


def built(file):
    file.rng = np.random.default_rng(0)
    return file.new_model(**SIZES, dtype="float64")


def worst_error(file):
    """Of the gradient along six random directions, each compared with two losses"""
    random, model = np.random.default_rng(0), built(file)
    weights, errors = model.weights.values(), []
    for w in weights:                           # gamma 1 and beta 0 would hide mistakes
        w.data += 0.1 * random.standard_normal(w.data.shape)
    file.loss_of(SOURCE, TARGET, model)[1](1.0)
    length = math.sqrt(sum((w.grad**2).sum() for w in weights))
    for _ in range(6):
        directions = [random.standard_normal(w.data.shape) for w in weights]
        slope = sum((w.grad * u).sum() for w, u in zip(weights, directions))
        losses = []
        for step in 1e-6, -2e-6:
            for w, u in zip(weights, directions):
                w.data += step * u
            losses.append(file.loss_of(SOURCE, TARGET, model)[0])
        errors.append(abs((losses[0] - losses[1]) / 2e-6 - slope) / length)
        for w, u in zip(weights, directions):
            w.data += 1e-6 * u
    return max(errors)


def last_loss(file):
    random, file.rng = np.random.default_rng(0), np.random.default_rng(0)
    model, losses = file.new_model(11, d_model=32, d_ff=64, h=4), []
    for step in range(1, 301):
        source = random.integers(3, 11, (24, 5))
        target = np.column_stack([np.full(24, file.BOS), source[:, ::-1]])
        loss, backward = file.loss_of(source, target, model, eps_ls=0.0)
        backward(1.0)
        file.adam(model, step, warmup_steps=100)
        losses.append(loss)
    return np.mean(losses[-20:])


rows = []
for name, edits in ("first", {}), ("second", NOT_READ):
    error, loss = worst_error(variant(**edits)), last_loss(variant(**edits))
    assert error < 1e-6 and (loss > 2.05 if edits else loss < 0.6)
    rows.append([name, "right", f"{loss:.2f}"])
table(["model", "gradient", "loss at the end"],
      [*rows, ["a guess among 8 symbols", "", f"{math.log(8):.2f}"]])

# %% [markdown]
# Both gradients are right, and no program ends with an error. But the second model only guesses. What could be wrong?
#
# <details><summary>Make a guess, then unfold</summary>
#
# Its decoder doesn't read the source: cross-attention got `x` where it should get `memory`. The gradient is right, but
# it is that of a model that can't see the source.
#
# </details>
#
# A *gradient* check compares backward with forward. It can't tell whether *forward* is the model that we wanted. So
# let's draw that model, build it, and look for tests that find such a mistake **before** training.
#
# ## The picture

# %% Recording the shapes of a run
def noting(file, name, shapes):
    """Let a function of the file note the shape of its result."""
    function = getattr(file, name)

    def wrapped(*inputs, **weights):
        y, backward = function(*inputs, **weights)
        shapes.setdefault(name, []).append(y.shape)
        return y, backward

    setattr(file, name, wrapped)


file, shapes = variant(), {}
for name in "embed", "softmax", "encode", "decode":
    noting(file, name, shapes)
model = built(file)
memory, _ = file.encode(SOURCE, model, 0.0)
x, _ = file.decode(READ, memory, SOURCE, model, 0.0)
logits = (x @ model.E.data.T).shape
maps = shapes["softmax"]
assert maps == [(2, 3, 5, 5)] * 3 + [(2, 3, 4, 4), (2, 3, 4, 5)] * 3


# %% Drawing the model
def column(drawing, x, shape, sublayers):
    """One layer, from below: its sublayers, each with Add & Norm and a way around."""
    for i, (words, role) in enumerate(sublayers):
        y = 545 - 140 * i
        box = drawing.box(x, y, words, role, 170, 50, 14)
        norm = drawing.box(x, y - 52, "Add & Norm", "plain", 170, 28, 14)
        drawing.arrow((x, y + 74 if i else y + 89), box.bottom)
        drawing.arrow(box.top, norm.bottom)
        drawing.line([(x, y + 42), (x - 110, y + 42), (x - 110, y - 52)], "line")
        drawing.arrow((x - 110, y - 52), norm.left, "line")
        drawing.text(x + 12, y - 78, str(shape), "soft", 13, "start")


def architecture():
    picture = Drawing(740, 800)
    for x, top, side in (150, 308, "encoder"), (560, 168, "decoder"):
        picture.rectangle(x, (top + 612) / 2, 250, 612 - top, "line", 0.06)
        picture.text(x - 120, top - 14, f"3 {side} layers", "ink", 13, "start")
    ffn = "feed-forward\nhidden (2, {}, 10)"
    column(picture, 150, memory.shape, [
        (f"self-attention\nweights {maps[0]}", "plain"), (ffn.format(5), "plain")])
    column(picture, 560, x_shape, [
        (f"causal self-attention\nweights {maps[3]}", "plain"),
        (f"cross-attention\nweights {maps[4]}", "value"), (ffn.format(4), "plain")])
    embedded = []
    for x, words, ids, shape in (150, "source ids", SOURCE, shapes["embed"][0]), (
            560, "target ids, shifted right", READ, shapes["embed"][1]):
        embedded.append(picture.box(x, 715, "embedding, × √d_{model}", "plain", 170, 36,
                                    14))
        positions = picture.box(x, 650, "+ positions", "plain", 170, 32, 14)
        picture.text(x, 778, f"{words} {ids.shape}", size=14)
        picture.arrow((x, 765), embedded[-1].bottom)
        picture.arrow(embedded[-1].top, positions.bottom)
        picture.text(x + 12, 682, str(shape), "soft", 13, "start")
    picture.line([(150, 339), (150, 265), (345, 265), (345, 405)], "value", 5)
    picture.line([(343, 405), (468, 405)], "value", 5)
    picture.polygon([(475, 405), (461, 396), (461, 414)], "value")
    picture.text(162, 248, f"memory {memory.shape}", "value", 15, "start", bold=True)
    for y, words in (385, "keys and"), (424, "values, in"), (441, "every layer"):
        picture.text(355, y, words, "value", 13, "start")
    picture.text(572, 442, "queries", "query", 13, "start")
    picture.line([(208, 774), (425, 774), (425, 465), (495, 465)], "line", 1)
    picture.arrow((495, 465), (495, 430), "line", width=1)
    picture.text(225, 766, "where is padding?", "soft", 12, "start")
    last = picture.box(560, 100, "unembedding, × E^T", "plain", 170, 36, 14)
    picture.arrow((560, 199), last.bottom)
    picture.arrow(last.top, (560, 38))
    picture.text(560, 22, f"logits {logits}", size=14)
    table_E = picture.box(355, 715, f"E {model.E.data.shape}", "key", 96, 36)
    for points in ([embedded[0].right, table_E.left],
                   [table_E.right, embedded[1].left],
                   [embedded[1].right, (712, 715), (712, 100), last.right]):
        picture.line(points, "key", 1.8, dashed=True)
    return picture


x_shape = x.shape
show(architecture(), "13_architecture",
     alt="The Transformer as boxes and arrows, with shapes. Left, the encoder: source "
     "ids (2, 5), embedding and positions (2, 5, 6), then three layers of "
     "self-attention and feed-forward, each with Add & Norm and a way around, up to "
     "the memory (2, 5, 6). Right, the decoder: target ids shifted right (2, 4), "
     "embedding and positions (2, 4, 6), then three layers of causal self-attention, "
     "cross-attention and feed-forward. A thick amber arrow takes the memory to the "
     "keys and values of the cross-attention in every decoder layer, and a thin line "
     "takes the padding mask of the source there. On top, the "
     "unembedding gives logits (2, 4, 13). A dashed line joins the matrix E (13, 6) to "
     "both embeddings and to the unembedding.",
     caption="The whole model, with the shapes of a real run. Read it from the bottom "
     "up, as the paper's Figure 1.")

# %% [markdown]
# On the left, the **encoder** reads the source. What its last layer writes is the **memory**. On the right, the
# **decoder** reads the target so far. Its output becomes **logits**, the scores of the next word before softmax.
#
# Within a column the shape never changes, so you can stack as many layers as you like. Two arrows lead from left to
# right. The thick one takes the memory into *every* decoder layer. The thin one says which source positions are
# padding, and that is why `decode` gets `source`, too. One matrix $E$ is used in three places (dashed). And all three
# kinds of attention are the same function. They differ in who asks whom:
#
# | attention | queries from | keys and values from | may look at |
# |---|---|---|---|
# | encoder, self | source | source | every source word |
# | decoder, self | target so far | target so far | itself and earlier words |
# | decoder, cross | target so far | memory | every source word |
#
# ## By hand
#
# What is new is the thick arrow: a memory that several layers read. Let's follow it with a pencil. The memory has two
# words with two numbers each, $m_a = (1, -1)$ and $m_b = (1, 1)$. The decoder has two layers. Of each layer only
# cross-attention and the way around it are left, with $W_Q = W_O = \sqrt{d_k} = 1$. So the state $x$, one number, is
# itself the query. We start at $x_0 = 1$.

# %% Drawing the memory in two layers
LAYERS = [dict(W_K=(2, 0), W_V=(1, 1)), dict(W_K=(1, 0), W_V=(0, 2))]
MEMORY = np.array([[1.0, -1.0], [1.0, 1.0]])


def two_layers(backward):
    """Figures 2 and 3: two layers that read one memory"""
    drawing = Drawing(740, 404 if backward else 384)
    states, edge = (1, 2, 2), None
    keys, values = [(2, 2), (1, 1)], [(0, 2), (-2, 2)]
    back = {"value": [("+0.5", "+0.5")] * 2, "key": [("−0.5", "+0.5"), ("−2", "+2")],
            "score": [("−0.5", "+0.5"), ("−1", "+1")]}
    words = [drawing.vector(x, 338, row, "value", 46, below=name)
             for x, row, name in ((290, (1, -1), "memory of a"),
                                  (450, (1, 1), "memory of b"))]
    for y, name in (130, "weights"), (190, "values"), (250, "keys"):
        drawing.text(370, y, name, "soft", 13)
    for n in range(3):
        x = 50 + 320 * n
        cell = drawing.vector(x, 50, [states[n]], "query", 46, above=f"x_{n}")
        if edge:
            drawing.arrow(edge, cell.left)
        if n == 2:
            break
        middle = x + 160
        adding = drawing.box(middle, 50, f"+ {(1, 0)[n]}", "plain", 60, 34)
        drawing.text(middle, 20, f"layer {n + 1}", bold=True, size=13)
        drawing.arrow(cell.right, adding.left)
        edge = adding.right
        weight = drawing.vector(middle, 130, ("0.5", "0.5"), "plain", 50, 30)
        value = drawing.vector(middle, 190, values[n], "value", 50, 30)
        key = drawing.vector(middle, 250, keys[n], "key", 50, 30)
        drawing.arrow((middle, 110), adding.bottom)
        for row, name in (190, "W_V"), (250, "W_K"):
            side = -1 if n == 0 else 1
            drawing.text(middle + side * 108, row, f"{name} = {LAYERS[n][name]}^T",
                         "soft", 12)
        drawing.rectangle(middle, 200, 124, 180, "line", 0.06)
        for box in words:
            drawing.arrow(box.top, (middle, 290), "value", width=2)
        if backward:
            for box, role in (weight, "score"), (value, "value"), (key, "key"):
                for i, text in enumerate(back[role][n]):
                    number = float(text.replace("−", "-"))
                    at = box.cell(i)
                    drawing.gradient(at.x - 8, at.y + 24, -number, text, 12, 2)
    if backward:
        for x in 50, 370, 690:
            drawing.gradient(x - 6, 84, -1, "+1", 13, 1)
        for box, numbers in zip(words, ((-2.5, 1.5), (3.5, 1.5))):
            for i, number in enumerate(numbers):
                at = box.cell(i)
                drawing.gradient(at.x - 12, 388, -number, f"{number:+}".replace(
                    "-", "−"), 13, 3.5)
    return drawing


show(two_layers(backward=False), "13_memory",
     alt="From left to right the states x0 = 1, x1 = 2 and x2 = 2. Between them, layer "
     "1 adds 1 and layer 2 adds 0. Each layer has keys, values and weights of two "
     "words, made of the same memory below: (1, -1) for word a and (1, 1) for word b. "
     "Layer 1 has keys 2 and 2, values 0 and 2; layer 2 has keys 1 and 1, values -2 "
     "and 2. All weights are 0.5.",
     caption="Two decoder layers read one memory, each with matrices of its own. The "
     "columns of a layer are the words a and b.")

# %% [markdown]
# **Layer 1** has $W_K = (2, 0)^T$, a column: the key of a word is 2 times its first number, plus 0 times its second.
# Both keys are 2. Query times key is $1 \cdot 2 = 2$ for both words, so the weights are 0.5 and 0.5. With
# $W_V = (1, 1)^T$ the values are $1 - 1 = 0$ and $1 + 1 = 2$. The blend is 0.5 · 0 + 0.5 · 2 = 1, and it is added:
# $x_1 = 1 + 1 = 2$.
#
# **Layer 2** has $W_K = (1, 0)^T$ and $W_V = (0, 2)^T$. Cover it in figure 2, and calculate its keys, weights and
# values, and $x_2$.
#
# <details><summary>The result of layer 2</summary>
#
# Both keys are 1, and both scores 2 · 1 = 2, so the weights are 0.5 again. The values are −2 and 2, and their blend is
# 0. So $x_2 = 2 + 0 = 2$.
#
# </details>
#
# ## In general
#
# We write $A(x \mid y)$ for multi-head attention with queries from $x$, and keys and values from $y$. Around each
# sublayer $f$ is the box of lesson 12, $\mathrm{box}_f(x, \dots) = \mathrm{LayerNorm}(x + f(x, \dots))$. So an encoder
# layer turns the states $x$ of the source into
#
# $$x' = \mathrm{box}_{A}(x \mid x) \qquad x'' = \mathrm{box}_{FFN}(x')$$
#
# and a decoder layer, which reads the memory $M$, turns the states $x$ of the target into
#
# $$x' = \mathrm{box}_{A}(x \mid x) \qquad x'' = \mathrm{box}_{A}(x' \mid M) \qquad
# x''' = \mathrm{box}_{FFN}(x'')$$
#
# The first of these three has the causal mask. Padding of the source is masked wherever source words are keys: in the
# encoder and in cross-attention.
#
# **How many parameters does the model have?** An attention has four matrices with $d_{model}^2$ numbers each, and a
# feed-forward network has two matrices and two biases. A LayerNorm, one per sublayer, has $\gamma$ and $\beta$. $E$
# counts once, although it is used three times. With $N$ layers on each side that is
#
# $$V d_{model} + N \left( 3 \cdot 4 d_{model}^2 + 2 (2 d_{model} d_{ff} + d_{ff} + d_{model}) + 5 \cdot 2 d_{model}
# \right)$$
#
# For a very small model with $V = 5$, $d_{model} = 2$, $d_{ff} = 4$ and $N = 1$, it is 10 + 48 + 44 + 20 = **122**.
#
# ## Backward
#
# In figure 2, how should the memory change so that $x_2$ becomes smaller? Here is the same picture on the way back.

# %% Drawing the way back
show(two_layers(backward=True), "13_memory_backward",
     alt="The same drawing with gradients. All three states have 1. In layer 2 the "
     "gradients of the scores are -1 and 1, of the keys -2 and 2, of the values 0.5 "
     "and 0.5. In layer 1 they are -0.5 and 0.5, -0.5 and 0.5, 0.5 and 0.5. The memory "
     "gets (-2.5, 1.5) for word a and (3.5, 1.5) for word b.",
     caption="Gradients of the loss, here $x_2$, in magenta; under the weights, those "
     "of the scores. Triangles point the way the loss would have the numbers move: "
     "against the gradient.")

# %% [markdown]
# **Layer 2.** The gradient of $x_2$ is 1. Each word of the memory reaches $x_2$ in two ways.
#
# *As a value.* Each value enters with weight 0.5, so its gradient is 0.5, and each word gets $0.5 \cdot W_V^T$ = 0.5 ·
# (0, 2) = **(0, 1)**.
#
# *As a key.* By lesson 04, the gradient of a score is weight × (offer − average). The offers are the values −2 and 2,
# and their average is 0. That gives −1 and +1. A score is query × key, and the query is 2, so the keys get −2 and +2. A
# key is the first number of the word. So the words get **(−2, 0)** and **(2, 0)**.
#
# Together, the share of layer 2 is (−2, 1) for word a and (2, 1) for word b.
#
# And $x_1$? It gets 1 by the way around the layer. As the query, it gets each score's gradient times the key: $-1 \cdot
# 1 + 1 \cdot 1 = 0$. (With different keys this wouldn't be 0.) So layer 1 starts with 1, too. Calculate its share, then
# unfold.
#
# <details><summary>The share of layer 1, and the sum</summary>
#
# As values: 0.5 · (1, 1) for each word. As keys: the offers are 0 and 2, their average is 1, so the scores get −0.5 and
# 0.5. The query is 1, so the keys get the same. A key is 2 times the first number: (−1, 0) and (1, 0). The share is
# **(−0.5, 0.5)** for a, and **(1.5, 0.5)** for b.
#
# With the share of layer 2, the memory gets $dm_a = (-2.5, 1.5)$ and $dm_b = (3.5, 1.5)$.
#
# </details>
#
# **The rule.** The memory goes into the keys and the values of every layer, so its gradient is the sum of what comes
# back from all of them:
#
# $$dM = \sum_{n=1}^{N} \left( dK_n W_{K,n}^T + dV_n W_{V,n}^T \right)$$
#
# The bracket is what `multi_head_attention` returns as `dmemory`. The sum is the job of `decode`. Only the finished sum
# goes into the encoder. Our functions agree with the pencil:

# %% The check
def chain(memory):
    """-> x_2, the share of each layer in dmemory (2, 2)"""
    file, x, backwards = ours("transformer"), np.ones((1, 1, 1)), []
    for layer in LAYERS:
        W = {name: weight(numbers) for name, numbers in layer.items()}
        y, backward = file.multi_head_attention(
            x, memory[None], True, weight([1]), **W, W_O=weight([1]))
        x, backwards = x + y, [backward, *backwards]
    dx, shares = np.ones((1, 1, 1)), []
    for backward in backwards:
        through, share = backward(dx)
        dx, shares = dx + through, [share[0], *shares]
    return x.item(), shares


def weight(numbers):
    """Numbers as (d, 1, 1) with a gradient of zeros"""
    data = np.array(numbers, float).reshape(-1, 1, 1)
    return type("Weight", (), {"data": data, "grad": 0 * data})


x_2, shares = chain(MEMORY)
same("x_2", x_2, 2)
same("dM, the sum of both shares", sum(shares), [[-2.5, 1.5], [3.5, 1.5]])

# %% [markdown]
# ## Your turn
#
# Write three functions:
#
# - `new_model` makes all weights. One entry of `model.encoder` is one layer: the weights of attention with $\gamma$ and
#   $\beta$, and the weights of feed-forward with theirs. An entry of `model.decoder` also has cross-attention between
#   them.
# - `encode` makes the memory. The mask of the source has the shape (b, 1, 1, s), so that all heads and all queries
#   share it. In self-attention, $x$ enters twice: as `x` and as `memory`. So its gradient is `dx + dmemory`.
# - `decode` makes the last states $x$, and on the way back the sum `dmemory`.
#
# A sublayer with its box is one call of `add_and_norm`, and it gives you one `backward`. Keep these in a list, and call
# them from the last to the first. Then run `scratchformer learn check new_model encode decode`. A classic slip is to
# overwrite `dmemory` in the loop: then only the share of layer 1 is left. Ours:

# %%
quote("new_model", "encode", "decode")

# %% [markdown]
# ## Does it matter?
#
# Which tests find the mistake of the opening, and others? Here are three that need no training.
#
# - **The gradient:** move all weights a little in a random direction, and back. The two losses must differ by what
#   backward says.
# - **The flow:** change one input word, and see which logits move. A source word must move all logits of its sentence,
#   a target word those at its own position and later, and no earlier ones. More padding must move nothing.
# - **The number of parameters:** it must equal our count from the equations.

# %%
def gradient_is_right(file):
    return worst_error(file) < 1e-6


def flow_is_right(file):
    model = built(file)

    def logits(source, read):
        memory, _ = file.encode(source, model, 0.0)
        return file.decode(read, memory, source, model, 0.0)[0] @ model.E.data.T

    def moved(source, read):                    # which logits change: (b, t)
        difference = logits(source, read) - logits(SOURCE, READ)
        return (abs(difference) > 1e-9).any(axis=-1)

    for s in range(3):                          # both sources have three real words
        if not moved(np.where(np.arange(5) == s, 11, SOURCE), READ).all():
            return False
    for t in range(4):
        found = moved(SOURCE, np.where(np.arange(4) == t, 11, READ))[0]
        if (found != (np.arange(4) >= t)).any():
            return False
    return not moved(np.pad(SOURCE, [(0, 0), (0, 2)]), READ).any()


def number_is_right(file):
    return sum(w.data.size for w in built(file).weights.values()) == count(**SIZES)


def count(V, d_model, d_ff, h, N):              # the number of heads changes nothing
    ffn = 2 * d_model * d_ff + d_ff + d_model
    return V * d_model + N * (3 * 4 * d_model**2 + 2 * ffn + 5 * 2 * d_model)


# %% [markdown]
# Now we wire six models wrongly:
#
# 1. `dmemory` is overwritten in the loop of `decode`, not summed.
# 2. Cross-attention reads `x`, not the memory (the opening).
# 3. The decoder has no causal mask.
# 4. The padding of the source is not masked.
# 5. `new_model` makes *one* layer, and puts it $N$ times into the list.
# 6. `embed` forgets the factor $\sqrt{d_{model}}$, forward and backward.
#
# Which test finds which fault? And which fault does none of them find?
#
# <details><summary>Make a guess, then unfold: who finds what</summary>

# %% Six faults and three tests
ALL_SEEN = ("source != PAD", "source == source")
FAULTS = {
    "nothing is wrong": {},
    "1 dmemory overwritten": {"decode": (("dmemory + dshare", "dshare"),)},
    "2 memory not read": NOT_READ,
    "3 no causal mask": {"decode": (
        ("np.tri(target.shape[1], dtype=bool)", "np.True_"),)},
    "4 padding not masked": {"encode": (ALL_SEEN,), "decode": (ALL_SEEN,)},
    "5 one layer, N times": {"new_model": (
        ("for i in range(N)]", "for i in [0]] * N"),)},
    "6 no factor √d_model": {"embed": (
        ("E.data[ids] * d_model**0.5", "E.data[ids]"),
        ("keep * dy * d_model**0.5", "keep * dy"))},
}
TESTS = gradient_is_right, flow_is_right, number_is_right
found = [[not test(variant(**edits)) for test in TESTS] for edits in FAULTS.values()]
assert np.array_equal(found, [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0],
                              [0, 0, 1], [0, 0, 0]])
table(["fault", "gradient", "flow", "number"],
      [[fault, *("finds it" if each else "–" for each in row)]
       for fault, row in zip(FAULTS, found)])

# %% [markdown]
# - The **gradient** finds fault 1, the only one in backward. The **flow** finds faults 2, 3 and 4, and the **number**
#   fault 5, where three layers share one set of weights.
# - **Fault 6 passes all three.** Only a comparison finds it, with the paper or with other code. That is why
#   `learn check` compares your numbers with ours.
#
# </details>
#
# **What else passes all three?** The flow test sees only *that* a word arrives, not by which way. The number test
# counts the weights that are made, not those that are used. So here is a fourth test, in one line: does every weight
# get a gradient that isn't 0? And here are four more faults.

# %%
def unused(file):
    model = built(file)
    file.loss_of(SOURCE, TARGET, model)[1](1.0)
    return sum(not w.grad.any() for w in model.weights.values()), len(model.weights)


# %% Four more faults
MASK = "(source != PAD)[:, None, None, :]"
MORE = {
    "nothing is wrong": {},
    "2 memory not read (the opening)": NOT_READ,
    "encoder: layer 0 runs N times": {"encode": (
        ("in model.encoder", "in [model.encoder[0]] * len(model.encoder)"),)},
    "decoder: only layer 0 runs": {"decode": (
        ("in model.decoder", "in model.decoder[:1]"),)},
    "encoder: words see only themselves": {"encode": (
        (MASK, "np.eye(source.shape[1], dtype=bool)"),)},
    "encoder: causal mask": {"encode": (
        (MASK, f"{MASK} & np.tri(source.shape[1], dtype=bool)"),)},
}
rows = []
for fault, edits in MORE.items():
    file = variant(**edits)
    passes = all(test(file) for test in TESTS)
    assert passes == (edits != NOT_READ)
    loss, _ = file.loss_of(SOURCE, TARGET, built(file))
    ours_loss, _ = variant().loss_of(SOURCE, TARGET, built(variant()))
    assert (abs(loss - ours_loss) > 1e-6) == bool(edits)
    zeros, arrays = unused(file)
    rows.append([fault, "pass" if passes else "flow finds it", f"{zeros} of {arrays}"])
assert [row[2].split()[0] for row in rows] == ["0", "36", "24", "36", "6", "0"]
table(["fault", "gradient, flow, number", "weights (arrays) with gradient 0"], rows)

# %% [markdown]
# The fourth test finds weights that have no effect on the loss. In the opening, those are the 36 arrays of the encoder.
# If a word sees only itself, its attention weight is always 1, so $W_Q$ and $W_K$ of three layers get nothing. But with
# a causal mask in the encoder, every weight still counts. Only comparing with our numbers finds that fault and fault 6.
# (A loss curve doesn't always tell: without the encoder's self-attention, ours ended a little *lower*, see [lab notes
# 13](lab/13_whole_model.py).)
#
# ## Today
#
# Most language models of 2026 are **decoder-only**: the right column of figure 1 without cross-attention. The same
# causal layers read the prompt and write the answer. Encoders live on where the whole input is known before the first
# word is written, as in Whisper (speech) and NLLB (translation).
#
# ## Paper and code
#
# In the paper, §3.1 has the layers, §3.2.3 who asks whom, and §3.4 the one matrix $E$. The library's model is in
# [nn/transformer.py](../scratchformer/nn/transformer.py); its attention has biases, yours has none, like the paper's
# equations. PyTorch's `nn.Transformer(d_model, nhead)` is both columns, with one more LayerNorm after each; a
# [test](../tests/oracle/test_whole_model.py) compares our model with PyTorch's parts.
#
# ## Your own model trains
#
# **The whole model is your code now**, and it can learn to translate:
#
#     scratchformer learn train
#     scratchformer learn translate "The dog ate the apple."

# %% What our file reaches
whole = recorded("one_file")["results"]
mine = [one.name for one in FUNCTIONS.values()
        if one.file == "transformer" and one.lesson <= "13"]
everything = [one for one in FUNCTIONS.values() if one.file == "transformer"]
print(f"{len(mine)} of {len(everything)} functions are yours after this lesson")
print(f"ours: {whole['train']['seconds']:.0f} s on one core, "
      f"BLEU {whole['bleu']['test']:.0f} on the test sentences")

# %% [markdown]
# (BLEU, up to 100, measures translations: [lesson 21](21_bleu_and_averaging.py).) Loss, optimizer, batches and search
# are still ours, until lessons 14 to 20.
#
# ## What to remember
#
# The encoder turns the source into the memory, and every decoder layer reads it. So on the way back the memory gets the
# sum of all layers' shares. Checks of the parts can't see a wrong connection. Test the whole: its gradient, its flow,
# its number of parameters, a gradient for every weight, and its numbers against somebody else's.
#
# **Check yourself.** Somebody sets `dmemory` to zero. Which parameters still learn?
#
# <details><summary>Answer</summary>
#
# Those of the decoder, and $E$ from two of its three uses. The encoder's own weights keep their random start values, so
# the decoder learns to read what a random encoder makes of the words.
#
# </details>
#
# **Yours:** `new_model`, `encode`, `decode`, and the hunt `wire` (you get a whole model as a function from ids to
# logits: what is missing in it?) · `scratchformer learn check new_model encode decode`
#
# **Next:** [14 · The loss, and label smoothing](14_label_smoothing.py). The model trains. But on which loss?
