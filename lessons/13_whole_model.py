# %% [markdown]
# # 13 · Encoder, decoder, the whole model
#
# **All parts of lessons 01 to 12 pass their checks. Are they wired together correctly?**
#
# *Needs lessons [04](04_soft_lookup.py), [06](06_masks.py) to [09](09_positions.py), [11](11_feed_forward.py) and
# [12](12_residual_norm_dropout.py) · you will build, test and train the whole model.*

# %% Imports
import math
from itertools import islice

import numpy as np
import transformer

from exercises.catalogue import FUNCTIONS
from exercises.hunts import variant
from exercises.source import ours
from support.drawing import Drawing, number
from support.lesson import quote, recorded, same, show, table, varying

# %% [markdown]
# Two models, built from these parts, should translate 207 short sentences like "The bear is old." We check their
# gradients with finite differences, train them for 200 steps, and let both translate two of the sentences:

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


def lines(language):
    text = (transformer.CORPUS / f"train.{language}").read_text("utf-8").splitlines()
    return [transformer.words_in(line) for line in text]


TEXT = [(en, de) for en, de in zip(lines("en"), lines("de"))
        if len(en) == len(de) == 5 and en[0] == "The" and en[2] in ("is", "was")]
WORDS = ["<pad>", "</s>", "<s>",
         *sorted({word for both in TEXT for side in both for word in side})]
ID = {word: i for i, word in enumerate(WORDS)}


def ids(words):
    return [ID[word] for word in words]


def trained(file):
    """-> the model, the mean loss of the last 20 steps"""
    file.rng = np.random.default_rng(0)
    pairs = [(ids([*en, "</s>"]), ids(["<s>", *de, "</s>"])) for en, de in TEXT]
    model, losses = file.new_model(len(WORDS), d_model=32, d_ff=64, dtype="float64"), []
    for step, batch in enumerate(islice(file.batches(pairs, 32), 200), 1):
        loss, backward = file.loss_of(*batch, model, eps_ls=0.0)
        backward(1.0)
        file.adam(model, step, warmup_steps=100)
        losses.append(loss)
    return model, np.mean(losses[-20:])


def translation(file, model, sentence):
    source = np.array([ids([*sentence, "</s>"])])
    return " ".join(WORDS[i] for i in file.beam_search(source, model, beam=1))


assert len(TEXT) == 207
rows, written, models = [], {}, []
for name, edits in ("first", {}), ("second", NOT_READ):
    file = variant(**edits)
    assert worst_error(file) < 1e-6
    model, loss = trained(file)
    models.append((file, model))
    rows.append([name, "right", f"{loss:.2f}"])
    written[name] = [translation(file, model, en) for en, _ in TEXT[:12]]
assert float(rows[0][2]) < 0.2 and float(rows[1][2]) > 0.8
assert written["first"] == [" ".join(de) for _, de in TEXT[:12]]
assert len(set(written["second"])) == 1
table(["model", "gradient", "loss at the end"], rows)
for i in 6, 5:
    varying(f"{' '.join(TEXT[i][0])} -> first: {written['first'][i]}   "
            f"second: {written['second'][i]}")

# %% [markdown]
# Both gradients are right, and nothing fails. But the second model always writes the same sentence. What could be
# wrong?
#
# <details><summary>Make a guess, then unfold</summary>
#
# Its decoder doesn't read the source: cross-attention gets `x` in place of the memory. Its backward was changed to
# match. So the gradient is right, for a model that can't see the source.
#
# </details>
#
# A *gradient* check can't tell whether *forward* is the model that we wanted ([lesson 06](06_masks.py)). So let's see
# that model, build it, and find such mistakes **before** training.
#
# ## The picture
#
# Figure 1 follows a sentence through the first model. The German is written up to *ist*. What comes next?

# %% One sentence, recorded
def noting(file, name, found):
    """Let a function of the file note its result."""
    function = getattr(file, name)

    def wrapped(*inputs, **weights):
        y, backward = function(*inputs, **weights)
        found.setdefault(name, []).append(y)
        return y, backward

    setattr(file, name, wrapped)


file, model = models[0]
ENGLISH, GERMAN = [*TEXT[6][0], "</s>"], ["<s>", *TEXT[6][1][:3]]
assert GERMAN == ["<s>", "Der", "Bär", "ist"]
source, target = np.array([ids(ENGLISH)]), np.array([ids(GERMAN)])    # (1, s), (1, t)
run = {}
for name in "embed", "softmax":
    noting(file, name, run)
memory, _ = file.encode(source, model, 0.0)
x, _ = file.decode(target, memory, source, model, 0.0)
logits = x @ model.E.data.T
best = [WORDS[i] for i in logits[0].argmax(axis=-1)]
surest = np.exp(transformer.log_softmax(logits))[0, -1].max()
self_, causal, cross = (run["softmax"][i] for i in (1, 4, 5))         # of layer 2
on_old = cross[0, :, 3, 3].mean()
assert best == ["Der", "Bär", "ist", "alt"] and surest > 0.98 and 0.7 < on_old < 0.8


# %% Drawing the sentence in both stacks
def threads(drawing, weights, above, below, y, height):
    """Words above take from words below, as thick as the mean weight of the heads."""
    for t, to in enumerate(above):
        for s, at in enumerate(below):
            if weight := weights[0, :, t, s].mean():
                ends = (at, y + height / 2), (to, y - height / 2)
                drawing.thread(*ends, weight, "soft", 7)


def cells(drawing, columns, y, vectors, role="plain"):
    for column, vector in zip(columns, vectors[0]):
        drawing.vector(column, y, [f"{number(round(vector[0], 1))} …"], role, 46, 26,
                       size=11)


def side(drawing, x, y, name, shape, step=""):
    drawing.text(x, y - 8, name, size=13, anchor="start")
    drawing.text(x, y + 9, str(shape), "soft", 13, "start")
    if step:
        drawing.circle(x - 15, y - 8, 9, "ink", 0.06)
        drawing.text(x - 15, y - 8, step, size=12)


def around(drawing, start, end):
    """The road of lesson 12, around a sublayer to the right edge of its Add & Norm."""
    side = end[0] + 14
    drawing.line([start, (side, start[1]), (side, end[1])], "forward", 2)
    drawing.arrow((side, end[1]), end, "forward", width=2)


def whole():
    picture = Drawing(890, 832)
    left, right = [36 + 48 * i for i in range(6)], [534 + 48 * i for i in range(4)]
    for columns, words, vectors in (left, ENGLISH, run["embed"][0]), (
            right, GERMAN, run["embed"][1]):
        for column, word in zip(columns, words):
            picture.text(column, 810, word, size=14, bold=True)
            picture.text(column, 782, str(ID[word]), "soft", 13)
            picture.arrow((column, 770), (column, 743))
        cells(picture, columns, 730, vectors)
    for middle, top, width in (162, 445, 308), (596, 265, 260):
        picture.rectangle(middle, (top + 690) / 2, width, 690 - top, "line", 0.07)
    picture.text(326, 456, "2 such layers", "soft", 13, "start")
    picture.text(736, 276, "2 such layers", "soft", 13, "start")
    threads(picture, self_, left, left, 648, 76)
    threads(picture, causal, right, right, 648, 76)
    for columns, rows in (left, ((684, 600), (580, 492))), (
            right, ((684, 600), (580, 438), (412, 308))):
        for start, y in rows:
            box = picture.box((columns[0] + columns[-1]) / 2, y, "Add & Norm", "plain",
                              columns[-1] - columns[0] + 44, 20, 13)
            around(picture, (columns[-1], start), box.right)
    for columns, y, below in (left, 542, 590), (right, 358, 428):
        for column in columns:
            picture.box(column, y, "FFN", "plain", 42, 36, 13)
            picture.arrow((column, below), (column, y + 18))
            picture.arrow((column, y - 18), (column, y - 40))
    for column in left:
        picture.arrow((column, 482), (column, 418))
    cells(picture, left, 404, memory, "value")
    asked = picture.matrix(606, 520, [[""] * 4] * 6, "ink", 48, 16,
                           shades=cross[0].mean(axis=0).T.tolist())
    for i, word in enumerate(ENGLISH):
        picture.text(503, asked.cell(0, i).y, word, "value", 12, "end")
    for column in right:
        picture.arrow((column, 590), (column, 569))
        picture.arrow((column, 471), (column, 448))
        picture.arrow((column, 298), (column, 230))
        picture.arrow((column, 203), (column, 162))
    picture.line([(300, 404), (420, 404), (420, 520), (454, 520)], "value", 5)
    picture.text(326, 386, "into each layer", "value", 13, "start")
    picture.polygon([(472, 520), (454, 511), (454, 529)], "value")
    cells(picture, right, 216, x)
    picture.box(606, 146, "× E^T, softmax", "plain", 188, 30, 14)
    for column, word in zip(right, best):
        picture.arrow((column, 131), (column, 94))
        picture.text(column, 80, word, size=14, bold=True)
    picture.text(678, 58, f"probability {surest:.2f}", "soft", 13)
    embedded = "word + position"
    for at, y, name, shape, step in (
            (344, 796, "ids", source.shape, "1"),
            (344, 730, embedded, run["embed"][0].shape, "2"),
            (344, 648, "self-attention", f"weights {self_.shape}", "3"),
            (344, 542, "feed-forward", run["embed"][0].shape, ""),
            (206, 368, "memory", memory.shape, ""),
            (754, 796, "ids", target.shape, "4"),
            (754, 730, embedded, run["embed"][1].shape, ""),
            (754, 648, "self-attention, causal", f"weights {causal.shape}", ""),
            (754, 520, "cross-attention", f"weights {cross.shape}", "5"),
            (754, 358, "feed-forward", x.shape, ""),
            (754, 216, "x", x.shape, ""),
            (754, 146, "logits", logits.shape, "6")):
        side(picture, at, y, name, shape, step)
    picture.line([(678, 46), (678, 14), (880, 14), (880, 822), (754, 822)], "line", 1.6,
                 dashed=True)
    side(picture, 754, 84, "append alt,", "decode again", "7")
    return picture


show(whole(), "13_architecture",
     alt="The sentence The bear is old, read from below to above. Left, the encoder: "
     "ids (1, 6), word + position (1, 6, 32), then two layers of self-attention with "
     "weights (1, 4, 6, 6) and feed-forward, up to the memory (1, 6, 32). Around each "
     "sublayer a blue road leads to its Add & Norm. Right, the decoder: the ids of s "
     "Der Bär ist (1, 4), word + position (1, 4, 32), then two layers of causal "
     "self-attention with weights (1, 4, 4, 4), cross-attention with weights (1, 4, 4, "
     "6), and feed-forward. A thick amber arrow brings the memory to cross-attention. "
     "It is a table of squares, and the darkest is that of ist and old. On top, the "
     "product with E gives logits (1, 4, 330), and the most probable next words are "
     "Der, Bär, ist, alt; alt has probability 1.00. A dashed line takes alt back to "
     "the target below.",
     caption="From below to above. A cell shows the first of a word's 32 numbers. "
     "Thicker threads and darker squares are larger weights (layer 2, mean of the "
     "heads). Blue is the road of lesson 12, drawn for one word.")

# %% [markdown]
# 1. **Ids.** The source, with `</s>` at its end, becomes 6 ids.
# 2. **`embed`.** Each id picks a row of $E$ (330, 32). Times $\sqrt{d_{model}}$, plus positions, it is a vector.
# 3. **`encode`.** In each layer, every source word looks at all, with 4 heads. Then the feed-forward network
#    (FFN) changes each word alone. The output of the last layer is the **memory**.
# 4. **`decode`** embeds what is written so far. Every word looks at itself and at earlier ones.
# 5. **Cross-attention.** The 4 target words ask (queries), the 6 words of the memory are asked (keys and values). So
#    its weights are (1, 4, 4, 6): sentences, heads, queries, keys. (In figure 1, each query is a column.) Here *ist*
#    takes 0.75 from *old*.
# 6. **Logits,** the scores for the next word, are the products of $x$ with all rows of $E$. Every position predicts the
#    word after it.
# 7. **Next,** append *alt*, and decode again, until `</s>` is written.
#
# <!-- see: inside?step=source.text | a sentence on its way through a trained model -->
#
# ## By hand
#
# What is new is the thick arrow: several layers read one memory. Let the memory have two words, $m_a = (1, -1)$ and
# $m_b = (1, 1)$. The decoder has two layers, and each only adds its cross-attention to the state $x$, one number.
# $W_Q$, $W_O$ and $\sqrt{d_k}$ are all 1. So the query, $x$ times $W_Q$, is $x$. We start at $x_0 = 1$.

# %% Drawing the memory in two layers
LAYERS = [dict(W_K=(2, 0), W_V=(1, 1)), dict(W_K=(1, 0), W_V=(0, 2))]
MEMORY = np.array([[1.0, -1.0], [1.0, 1.0]])


def two_layers(backward):
    """Figures 2 and 3: two layers that read one memory"""
    drawing = Drawing(740, 456 if backward else 436)
    states, edge = (1, 2, 2), None
    keys, values = [(2, 2), (1, 1)], [(0, 2), (-2, 2)]
    back = {"value": [("+0.5", "+0.5")] * 2, "key": [("−0.5", "+0.5"), ("−2", "+2")],
            "score": [("−0.5", "+0.5"), ("−1", "+1")]}
    words = [drawing.vector(x, 394, row, "value", 46, below=name)
             for x, row, name in ((290, (1, -1), "memory of a"),
                                  (450, (1, 1), "memory of b"))]
    for y, name in (130, "values"), (190, "weights"), (250, "scores"), (310, "keys"):
        drawing.text(318, y, name, "soft", 13)
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
        value = drawing.vector(middle, 130, values[n], "value", 50, 30)
        drawing.vector(middle, 190, ("0.5", "0.5"), "plain", 50, 30)
        score = drawing.vector(middle, 250, ("2", "2"), "plain", 50, 30)
        key = drawing.vector(middle, 310, keys[n], "key", 50, 30)
        drawing.arrow((middle, 110), adding.bottom)
        drawing.line([cell.bottom, (x, 250)], "query", 1.6)
        drawing.arrow((x, 250), score.left, "query")
        drawing.text(x + 8, 266, "query", "query", 12, "start")
        for row, name in (130, "W_V"), (310, "W_K"):
            side = -1 if n == 0 else 1
            drawing.text(middle + side * 108, row, f"{name} = {LAYERS[n][name]}^T",
                         "soft", 12)
        drawing.rectangle(middle, 230, 124, 240, "line", 0.06)
        for box in words:
            drawing.arrow(box.top, (middle, 350), "value", width=2)
        if backward:
            for box, role in (value, "value"), (score, "score"), (key, "key"):
                for i, text in enumerate(back[role][n]):
                    gradient = float(text.replace("−", "-"))
                    at = box.cell(i)
                    drawing.gradient(at.x - 8, at.y + 24, -gradient, text, 12, 2)
    if backward:
        for x in 50, 370, 690:
            drawing.gradient(x + 14 - 20 * (x == 690), 84, -1, "+1", 13, 1)
        for box, numbers in zip(words, ((-2.5, 1.5), (3.5, 1.5))):
            for i, gradient in enumerate(numbers):
                at = box.cell(i)
                drawing.gradient(at.x - 12, 442, -gradient, f"{gradient:+}".replace(
                    "-", "−"), 13, 3.5)
    return drawing


show(two_layers(backward=False), "13_memory",
     alt="From left to right the states x0 = 1, x1 = 2 and x2 = 2. Between them, layer "
     "1 adds 1 and layer 2 adds 0. Each layer has keys, values and weights of two "
     "words, made of the same memory below: (1, -1) for word a and (1, 1) for word b. "
     "Layer 1 has keys 2 and 2, values 0 and 2; layer 2 has keys 1 and 1, values -2 "
     "and 2. The state before a layer is its query. All scores are 2, all weights 0.5.",
     caption="Two decoder layers read one memory, each with matrices of its own. The "
     "columns of a layer are the words a and b.")

# %% [markdown]
# **Layer 1** has $W_K = (2, 0)^T$, a column: the key of a word is 2 times its first number. Both keys are 2. Query
# times key is $1 \cdot 2 = 2$ for both words, so the weights are 0.5 and 0.5. With $W_V = (1, 1)^T$ the values are
# $1 - 1 = 0$ and $1 + 1 = 2$. The blend is 0.5 · 0 + 0.5 · 2 = 1, and it is added: $x_1 = 1 + 1 = 2$.
#
# **Layer 2** has $W_K = (1, 0)^T$ and $W_V = (0, 2)^T$. Cover it, and calculate it.
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
# Let $A(x, y)$ be multi-head attention with queries from $x$, and keys and values from $y$. Around each sublayer
# $f$ is the box of lesson 12, $\mathrm{box}_f(x, \dots) = \mathrm{LayerNorm}(x + f(x, \dots))$, here without dropout.
# So an encoder layer turns the states $x$ of the source into
#
# $$x' = \mathrm{box}_{A}(x, x) \qquad x'' = \mathrm{box}_{FFN}(x')$$
#
# and a decoder layer, which reads the memory $M$, turns the states $x$ of the target into
#
# $$x' = \mathrm{box}_{A}(x, x) \qquad x'' = \mathrm{box}_{A}(x', M) \qquad
# x''' = \mathrm{box}_{FFN}(x'')$$
#
# The first of these three has the causal mask. Padding of the source is masked in the encoder and in cross-attention.
# (Padding of the target stands behind its words, so the causal mask hides it.)
#
# **How many parameters?** An encoder and a decoder layer together have 3 attentions (four matrices each), 2
# feed-forward networks (two matrices, two biases), and 5 norms ($\gamma$ and $\beta$). $E$ counts once. With $N$ layers
# on each side that is
#
# $$V d_{model} + N \left( 3 \cdot 4 d_{model}^2 + 2 (2 d_{model} d_{ff} + d_{ff} + d_{model}) + 5 \cdot 2 d_{model}
# \right)$$
#
# With $V = 5$, $d_{model} = 2$, $d_{ff} = 4$ and $N = 1$, it is 10 + 48 + 44 + 20 = **122**. With the sizes of the
# paper's base model and $V = 37{,}000$, it is 63.0 million. (The paper says 65.)
#
# ## Backward
#
# In figure 2, how should the memory change so that $x_2$ becomes smaller?

# %% Drawing the way back
show(two_layers(backward=True), "13_memory_backward",
     alt="The same drawing with gradients. All three states have 1. In layer 2 the "
     "gradients of the scores are -1 and 1, of the keys -2 and 2, of the values 0.5 "
     "and 0.5. In layer 1 they are -0.5 and 0.5, -0.5 and 0.5, 0.5 and 0.5. The memory "
     "gets (-2.5, 1.5) for word a and (3.5, 1.5) for word b.",
     caption="In magenta, gradients of the loss, which is $x_2$ here. Triangles show "
     "where training moves a number.")

# %% [markdown]
# **Layer 2.** The gradient of $x_2$ is 1. Each word of the memory reaches $x_2$ in two ways.
#
# *As a value.* Each value enters with weight 0.5, so its gradient is 0.5, and each word gets $0.5 \cdot W_V^T$ = 0.5 ·
# (0, 2) = **(0, 1)**.
#
# *As a key.* By lesson 04, the gradient of a score is weight × (offer − average). The offers are the values −2 and 2,
# and their average is 0. That gives −1 and +1. A score is query × key, and the query is 2, so the keys get −2 and +2. A
# key is the first number of the word: **(−2, 0)** and **(2, 0)**.
#
# Together, the share of layer 2 is (−2, 1) for a and (2, 1) for b.
#
# And $x_1$? It gets 1 by the way around the layer. It is also the query (blue), and a query gets the sum of score
# gradient × key (lesson 04): $-1 \cdot 1 + 1 \cdot 1$. That is 0, because both keys are equal. So layer 1 starts with
# 1, too. Calculate its share.
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
# **The rule.** Every layer reads the memory, so $dM$ is the sum of what comes back from all. With one head:
#
# $$dM = \sum_{n=1}^{N} \left( dK_n W_{K,n}^T + dV_n W_{V,n}^T \right)$$
#
# With several heads, the bracket is also summed over them. `multi_head_attention` returns it as `dmemory`. The sum over
# the layers is the job of `decode`.

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
# - `new_model` makes all weights. $W_Q$, $W_K$ and $W_V$ are $(d_{model}, h, d_{model} / h)$, and $W_O$ is
#   $(h, d_{model} / h, d_{model})$. $E$ and all $W$ are random normal numbers with standard deviation
#   $1/\sqrt{d_{model}}$, only $W_2$ has $1/\sqrt{d_{ff}}$. Biases and $\beta$ start at 0, $\gamma$ at 1. An encoder
#   layer is a list of two dictionaries, for attention and feed-forward, each with its $\gamma$ and $\beta$. A decoder
#   layer has a third, for cross-attention, between them. Each weight is one `SimpleNamespace` of four arrays of the
#   given `dtype`: `data`, and, starting at 0, `grad`, `m` and `v` (the last two for lesson 15). It has two places:
#   `weights["encoder.0.attention.W_Q"]` is `encoder[0][0]["W_Q"]`. The other names are `cross` and `ffn`.
# - `encode` makes the memory. The mask of the source is (b, 1, 1, s), for all heads and queries. Self-attention gets
#   $x$ twice, as `x` and as `memory`. So its backward returns two shares, and the gradient of $x$ is `dx + dmemory`.
# - `decode` makes the last $x$, with a causal mask (t, t), and the source's mask for the memory. Its backward returns
#   the sum `dmemory`.
#
# The backward of `encode` returns nothing. Both end with the backward of `embed`.
#
# Each call of `add_and_norm` gives you a `backward`. Keep these in a list, and call them from the last to the first.
# Then run `scratchformer learn check new_model encode decode`. Ours:

# %%
quote("new_model", "encode", "decode")

# %% [markdown]
# ## Which test finds it?
#
# Three tests need no training:
#
# - **The gradient:** move all weights a small step along a random direction, and as far against it. The difference of
#   the losses, divided by the distance, must be the sum of gradient times direction. (Several directions,
#   $\gamma \neq 1$.)
# - **The flow:** change one word, and see which positions move. A source word must move memory and logits at every
#   position; a target word, only the logits from its own position on. Padding appended to the source must move nothing.
# - **The weights:** their number must equal our count, and each array must get a gradient that isn't all 0.

# %%
def gradient_is_right(file):
    return worst_error(file) < 1e-6


def flow_is_right(file):
    model = built(file)

    def run(source, read):                      # -> memory (b, s, d), logits (b, t, V)
        memory, _ = file.encode(source, model, 0.0)
        x, _ = file.decode(read, memory, source, model, 0.0)
        return memory, x @ model.E.data.T

    def moved(source, read):                    # the positions: (b, s), (b, t)
        both = zip(run(source, read), run(SOURCE, READ))
        return [(abs(a[:, :b.shape[1]] - b) > 1e-9).any(axis=-1) for a, b in both]

    for s in range(3):                          # the first three are words in both
        memory, logits = moved(np.where(np.arange(5) == s, 11, SOURCE), READ)
        if not (memory.all() and logits.all()):
            return False
    for t in range(4):
        _, logits = moved(SOURCE, np.where(np.arange(4) == t, 11, READ))
        if (logits != (np.arange(4) >= t)).any():
            return False
    memory, logits = moved(np.pad(SOURCE, [(0, 0), (0, 2)]), READ)
    return not (memory.any() or logits.any())


def weights_are_right(file):
    model = built(file)
    file.loss_of(SOURCE, TARGET, model)[1](1.0)
    weights = model.weights.values()
    number = sum(w.data.size for w in weights)
    return number == count(**SIZES) and all(w.grad.any() for w in weights)


def count(V, d_model, d_ff, h, N):              # the number of heads changes nothing
    ffn = 2 * d_model * d_ff + d_ff + d_model
    return V * d_model + N * (3 * 4 * d_model**2 + 2 * ffn + 5 * 2 * d_model)


# %% [markdown]
# Eight wrong models:
#
# 1. `dmemory` is overwritten in the loop of `decode`, not summed.
# 2. The memory is not read (the opening).
# 3. The decoder has no causal mask.
# 4. The encoder *has* a causal mask.
# 5. The padding of the source is not masked.
# 6. `new_model` puts *one* layer $N$ times into the list.
# 7. Each decoder layer has cross-attention *before* self-attention.
# 8. One decoder layer of three doesn't read the memory.
#
# Which test finds which? Which faults does none find?
#
# <details><summary>Make a guess, then unfold: who finds what</summary>

# %% Eight faults and three tests
MASK = "(source != PAD)[:, None, None, :]"
ALL_SEEN = ("source != PAD", "source == source")
SELF = ("x, self_backward = add_and_norm("
        "P_drop, multi_head_attention, x, x, past, **attn)")
CROSS = ("x, cross_backward = add_and_norm("
         "P_drop, multi_head_attention, x, memory, mask, **cross)")
FAULTS = {
    "nothing is wrong": {},
    "1 dmemory": {"decode": (("dmemory + dshare", "dshare"),)},
    "2 memory": NOT_READ,
    "3 decoder mask": {"decode": (
        ("np.tri(target.shape[1], dtype=bool)", "np.True_"),)},
    "4 encoder mask": {"encode": (
        (MASK, f"{MASK} & np.tri(source.shape[1], dtype=bool)"),)},
    "5 padding": {"encode": (ALL_SEEN,), "decode": (ALL_SEEN,)},
    "6 one layer": {"new_model": (
        ("for i in range(N)]", "for i in [0]] * N"),)},
    "7 order": {"decode": (
        (f"{SELF}\n        {CROSS}", f"{CROSS}\n        {SELF}"),
        ("dx, dshare = cross_backward(sum(ffn_backward(dx)))",
         "dx = sum(self_backward(sum(ffn_backward(dx))))"),
        ("dx, dmemory = sum(self_backward(dx)), dmemory + dshare",
         "dx, dshare = cross_backward(dx); dmemory = dmemory + dshare"))},
    "8 memory, 1 of 3 layers": {"decode": (
        ("x, memory, mask, **cross", "x, *read(len(backwards)), **cross"),
        ("mask, backwards =",
         "read = lambda n: (x, past) if n == 1 else (memory, mask)\n"
         "    mask, backwards ="),
        ("for self_backward, cross_backward, ffn_backward in reversed(backwards)",
         "for n, (self_backward, cross_backward, ffn_backward) in "
         "reversed([*enumerate(backwards)])"),
        ("dx, dmemory =", "dx, dshare = (dx + dshare, 0) if n == 1 else (dx, dshare)\n"
         "        dx, dmemory ="))},
}
TESTS = gradient_is_right, flow_is_right, weights_are_right
found = [[not test(variant(**edits)) for test in TESTS] for edits in FAULTS.values()]
assert np.array_equal(found, [[0, 0, 0], [1, 0, 0], [0, 1, 1], [0, 1, 0], [0, 1, 0],
                              [0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
no_positions = variant(embed=(("x += positional", "x += 0 * positional"),))
assert all(test(no_positions) for test in TESTS)
table(["fault", "gradient", "flow", "weights"],
      [[fault, *("found" if each else "–" for each in row)]
       for fault, row in zip(FAULTS, found)])

# %% Two finer flow tests, and a right model
CHANGED = np.where(np.arange(4) == 0, 11, READ)           # another first target word


def logits_of(file, source=SOURCE, alone=None):
    """With a number `alone`, only this layer of the decoder reads the memory."""
    model = built(file)
    for n, (_, cross, _) in enumerate(model.decoder):
        if alone not in (None, n):
            cross["W_O"].data[...] = 0
    memory, _ = file.encode(source, model, 0.0)
    return file.decode(READ, memory, source, model, 0.0)[0] @ model.E.data.T


def each_layer_reads(file):
    other = np.where(np.arange(5) == 0, 11, SOURCE)
    moves = [logits_of(file, other, n) - logits_of(file, SOURCE, n) for n in range(3)]
    return all((abs(move) > 1e-9).any(axis=-1).all() for move in moves)


def first_cross_weights(file, read):
    """At position 3: (b, h, s)"""
    model, run = built(file), {}
    noting(file, "softmax", run)
    memory, _ = file.encode(SOURCE, model, 0.0)
    file.decode(read, memory, SOURCE, model, 0.0)
    return next(w[:, :, 3] for w in run["softmax"] if w.shape[2:] == (4, 5))


def asks_later(file):
    first, second = (first_cross_weights(file, read) for read in (READ, CHANGED))
    return (abs(first - second) > 1e-9).any()


right = logits_of(ours("transformer"))
for fault, expected in (("nothing is wrong", (True, True)), ("7 order", (True, False)),
                        ("8 memory, 1 of 3 layers", (False, True))):
    file = variant(**FAULTS[fault])
    assert (abs(logits_of(file) - right).max() > 0.5) == (expected != (True, True))
    assert (each_layer_reads(file), asks_later(file)) == expected

# %% [markdown]
# The **gradient** finds fault 1, the only one where backward is not the derivative of forward. The **flow** finds who
# sees too much or too little, unless other layers make up for it (8). The **weights** find that there are too few (6),
# or that those of the encoder get no gradient (2).
#
# **Faults 7 and 8 pass all three.** Finer flow tests find them. For 8: if only one layer reads the memory (the other
# cross-attentions with $W_O = 0$), a source word must still move the logits. For 7: a target word must move the weights
# of the first cross-attention at later positions. But you must think of each such test. `learn check` needs no such
# idea: it compares your numbers with those of a right model. (A model without positions passes, too: see the hunt
# below.)
#
# </details>
#
# (Would the loss curve tell? Not always: [lab notes 13](lab/13_whole_model.py).)
#
# ## Today
#
# Most language models of 2026 are **decoder-only** ([lesson 22](22_gpt.py)): the right stack of figure 1 without
# cross-attention. The same causal layers read the prompt and write the answer. Encoders live on, for example in
# Whisper.
#
# ## Paper and code
#
# The paper: §3.1, §3.2.3, §3.4. PyTorch's `nn.Transformer(d_model, nhead)` is the two framed stacks of figure 1, with
# biases in attention, and a LayerNorm after each stack. In the library:
# [nn/transformer.py](../scratchformer/nn/transformer.py), [tested against
# PyTorch](../tests/oracle/test_whole_model.py).
#
# ## Your own model trains
#
# **Every layer is your code now.** Train it:
#
#     scratchformer learn train
#     scratchformer learn translate "The dog ate the apple."

# %% What our file reaches
whole = recorded("one_file")["results"]
mine = [one.name for one in FUNCTIONS.values()
        if one.file == "transformer" and one.lesson <= "13"]
everything = [one for one in FUNCTIONS.values() if one.file == "transformer"]
print(f"{len(mine)} of {len(everything)} functions are yours after this lesson, "
      "the others until lesson 20")
print(f"ours: {whole['train']['cpu_seconds']:.0f} s of one core, "
      f"BLEU {whole['bleu']['test']:.0f} on the test sentences")

# %% [markdown]
# (BLEU, up to 100, measures translations, [lesson 21](21_bleu_and_averaging.py); here of one run on our made-up
# corpus.)
#
# ## What to remember
#
# The encoder turns the source into the memory, and every decoder layer reads it. So the gradient of the memory is the
# sum of all layers' shares. Checks of the parts can't see a wrong connection. Test the whole: its gradient, flow and
# weights. Faults that pass these need finer tests, or the numbers of a right model.
#
# **Test yourself.** Somebody sets `dmemory` to zero. Which parameters still learn?
#
# <details><summary>Answer</summary>
#
# Those of the decoder, and $E$ from two of its three uses. The encoder's weights stay random.
#
# </details>
#
# **Yours:** `new_model`, `encode`, `decode`, and the hunt `wire`: what is missing in a model? (Test positions with a
# row of equal words.) · `scratchformer learn check 13`
#
# **Next:** [14 · The loss, label smoothing and dropout](14_label_smoothing.py)
