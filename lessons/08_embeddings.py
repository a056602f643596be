# %% [markdown]
# # 08 · Words become vectors
#
# **How does the vector of a word come to know anything about the word?**
#
# *Needs [lesson 01](01_backprop.py) (softmax and cross-entropy, p − q) and [lesson 04](04_soft_lookup.py) (dot
# products) · you will compute the gradient of a matrix that reads words and scores them.*

# %% Imports
from types import SimpleNamespace

import numpy as np
import transformer

from scratchformer.training.run import load_run
from support.drawing import Drawing, number
from support.lesson import QUICK, ROOT, measure, quote, same, show, table
from support.lexicon import Genders, noun_vectors
from support.numeric import numeric_gradient

# %% [markdown]
# The translator of [lesson 00](00_whole_game.py) has a vector of 128 numbers for each of its 1,600 pieces; 112 of our
# English nouns are one piece. Training has chosen these numbers. Which words have similar vectors? Here are five nouns,
# and for each the three nouns whose vectors make the smallest angles with its own:

# %% The nearest nouns
nouns, vectors = noun_vectors(load_run(ROOT / "data/tiny_model"))
nearest = Genders(nouns).nearest(vectors)
table(["noun", "nearest nouns"],
      [[word, ", ".join(nouns[i] for i in nearest[nouns.index(word)][:3])]
       for word in ("dog", "goat", "horse", "king", "queen")])

# %% [markdown]
# Nobody told the model what a goat is. You might expect *cow* or *pig* beside it. What do a goat, a journey, a duck and
# a library have in common? First: how does a word get its vector?
#
# ## The picture
#
# A word comes to the model as a number, its **id**. The id is the word's position in a list, and says nothing else
# about it. So each id gets a row of a matrix $E$: the word's **embedding**, $D$ numbers that the model learns. ($D$ is
# the paper's $d_{model}$.) Here are four words with $D = 4$:

# %% Drawing one matrix that is used at both ends
WORDS = ["dog", "king", "sees", "the"]
HALVES = 0.5 * np.array([[1, -1, 1, 1], [1, 1, -1, 1], [-1, 1, 1, 1], [1, 1, 1, -1]])
READ = [3, 0, 2, 3]                                     # the dog sees the
Y = np.array([1, 1, -1, 1])                            # the output at the last position
DX = np.array([[0.1, 0, 0, 0], [0, 0.2, 0, 0], [0, 0, 0, 0.1], [0.3, 0, -0.1, 0]])
DZ = np.array([0.1, -0.3, 0.1, 0.1])
DE = DZ[:, None] * Y
np.add.at(DE, READ, 2 * DX)


def three_uses(backward):
    """Figures 1 and 2: the same matrix, without and with its gradients."""
    drawing, role = Drawing(790, 300), "gradient" if backward else "plain"
    colour = "gradient" if backward else "soft"

    def arrow(start, end):
        drawing.arrow(*((end, start) if backward else (start, end)), role=colour)

    E = drawing.matrix(390, 179, DE if backward else HALVES, role, 46, 46,
                       above="dE" if backward else "E")
    for t, row in enumerate(READ):
        y = 110 + 46 * t
        drawing.text(14, y, WORDS[row], anchor="start", bold=True)
        numbers = DX[t] if backward else 2 * HALVES[row]
        x = drawing.vector(146, y, numbers, role, 42,
                           above="" if t else "dx" if backward else "x")
        arrow((E.left[0] - 3, E.cell(0, row).y), (x.right[0] + 3, y))
    drawing.vector(640, 45, Y, "plain", 40,
                   above="y, the output after the second “the”")
    z = drawing.matrix(722, 179, [[""]] * 4, role, 76, 46)
    drawing.line([(640, 66), (640, 248)])
    for i, (word, y) in enumerate(zip(WORDS, range(110, 260, 46))):
        drawing.text(E.right[0] + 10, y, word, anchor="start", bold=True)
        arrow((E.right[0] + 55, y), (z.left[0] - 4, y))
        if backward:
            drawing.gradient(712, y, -DZ[i], number(DZ[i], sign=True), largest=0.3)
        else:
            drawing.text(722, y, HALVES[i] @ Y)
    below = ["each read sends back 2 · dx", "the shares add up",
             "each score sends back dz · y"] if backward else \
        ["read: x = 2 · row (+ position)", "", "score: z = row · y"]
    for x, words in zip((146, 390, 650), below):
        drawing.text(x, 288, words, colour, 14, italic=backward)
    return drawing


show(three_uses(backward=False), "08_three_uses",
     alt="A matrix E with the rows dog, king, sees and the of four numbers, each a "
     "half or minus a half. On the left the sentence the dog sees the is read: each "
     "word gets its row times two, and both times the word the gets the same row. On "
     "the right the output y is multiplied by every row: the scores are 0, 2, 0 and 0.",
     caption="One matrix, used at both ends. Reading takes some of the rows, times 2. "
     "Scoring takes all rows as they are.")

# %% [markdown]
# On the left the model **reads** *the dog sees the*: each word is replaced by its row, times $\sqrt{D} = 2$. (A vector
# of the position is added: [lesson 09](09_positions.py).) At the other end a vector has to become a word again. So on
# the right the model **scores** all words: the score of a word, its **logit**, is the dot product of the output $y$
# with its row. The paper takes the same $E$ for both ends, which saves parameters: **weight tying**. (So does the
# translator of lesson 00. Another small one learned better with three matrices: [lab notes
# 08](lab/08_embeddings.py#what-the-factor-does-in-training).)
#
# ## By hand
#
# In figure 1 the output is $y = (1, 1, -1, 1)$. The row of *king* is (½, ½, −½, ½), so its score is ½ + ½ + ½ + ½ = 2.
# The row of *dog* is (½, −½, ½, ½), and its score is ½ − ½ − ½ + ½ = 0. Softmax gives *king* most of the probability.
#
# Now let $y$ be (1, −1, 1, 1). Which word wins? And what is the vector that is read for it?
#
# <details><summary>Calculate, then unfold</summary>
#
# *dog*, with the score 2; all others have 0. It is read as 2 · (½, −½, ½, ½) = (1, −1, 1, 1), which is exactly $y$. A
# vector gets its best score from the row that points in the same direction.
#
# </details>
#
# **How large should the numbers be?** Let $D = 64$, and let all numbers of $y$ and $E$ be +1 or −1 at random. A score
# is then a sum of 64 terms +1 or −1, which mostly cancel. What is left is about ±8, the square root of 64 ([lesson
# 05](05_scaling.py)). After softmax such differences are near certainty, before anything is learned. So $E$ starts with
# numbers of size 1/√D, here 1/8, and the scores are about ±1. Before training, with 600 words, the loss is 7. With
# scores 8 times as large it is 25; a blind guess has 6.4 ([lab notes
# 08](lab/08_embeddings.py#the-size-of-e-before-training)).
#
# For reading, the factor √D makes numbers of size 1 of them again.
#
# ## In general
#
# Let $w_t$ be the id at position $t$, and $p_t$ the vector of the position.
#
# $$x_{tj} = \sqrt{D} \, E_{w_t j} + p_{tj} \qquad\qquad z_{tv} = \sum_j y_{tj} E_{vj}$$
#
# | array | shape |
# |---|---|
# | ids | (B, T) |
# | $E$ | (V, D): V words |
# | $x$, and later $y$ | (B, T, D) |
# | scores $z$ | (B, T, V) |
#
# Reading is a matrix product, too. If $o_t$ is **one-hot** (a 1 at place $w_t$, else zeros), $o_t E$ is the row of the
# word. And $o_t^T dx_t$, the gradient by lesson 01, has $dx_t$ in that row.
#
# <!-- see: inside?step=source.embedding | rows of a trained table -->
#
# **Your turn.** Write `embed(ids, E, P_drop)` in `transformer.py`. It reads rows of `E.data`, adds
# `positional_encoding(t, d_model)`, and multiplies by `keep = dropout(x, P_drop)`. (These two are ours until lessons 09
# and 14.) Its second half multiplies `dy` by `keep`, too, and adds to `E.grad`. The rule comes now.
#
# ## Backward
#
# Figure 2 shows what training sends back: a vector $dx$ for each position that was read, and a number $dz$ for each
# score. (With the score 2 and three scores of 0, *king* has a probability of about 0.7, and each other word 0.1. The
# right word is *king*, so p − q is −0.3 for *king* and 0.1 for the others.) What is the gradient of the row of *the*?
# And does *king*, which was never read, get one?

# %% Drawing the way back
show(three_uses(backward=True), "08_three_uses_backward",
     alt="The same drawing with gradients. The word the receives 2 times (0.1, 0, 0, "
     "0), from its first position, 2 times (0.3, 0, minus 0.1, 0) from its second, and "
     "0.1 times y from its score, together (0.9, 0.1, minus 0.3, 0.1). King receives "
     "minus 0.3 times y from its score. Triangles say that the score of king will rise "
     "and the others fall.",
     caption="The same matrix, backward. In magenta, gradients of the loss: training "
     "makes a number with a positive gradient smaller, as the triangles show.")

# %% [markdown]
# *the* was used three times, so its row collects three shares: 2 · (0.1, 0, 0, 0) from the first position, 2 · (0.3, 0,
# −0.1, 0) from the second, and 0.1 · $y$ from its score. The sum is (0.9, 0.1, −0.3, 0.1). *king* was not read, but it
# was scored, and its row gets −0.3 · $y$. Training steps against the gradient, so the row of *king* moves towards $y$.
#
# **A row's gradient is the sum over all its uses.** In a translator there are three kinds:
#
# - **Read in the source.** At each position with $w_t = v$, $x_{tj}$ contains $\sqrt{D} \, E_{vj}$. So its gradient
#   comes back times $\sqrt{D}$, and all positions of the word add up, in one sentence or in several.
# - **Read in the target.** The same, with the ids $u_t$ of the target and the gradient $dx'_{tj}$ of its vectors.
# - **Scored.** $E_{vj}$ is multiplied by $y_{tj}$ in the score $z_{tv}$ at *every* position of the target.
#
# $$dE_{vj} = \sqrt{D} \sum_{t: w_t = v} dx_{tj} + \sqrt{D} \sum_{t: u_t = v} dx'_{tj} + \sum_t dz_{tv} \, y_{tj}$$
#
# Without the factor, the gradient would get another *direction*, because one of the three terms doesn't have it.
#
# **A trap.** In NumPy the obvious line, `E.grad[ids] += dx`, is wrong. It first computes `E.grad[ids] + dx`, then
# writes the rows back, one after the other. Of a word that occurs twice, only the last position counts.
# `np.add.at(E.grad, ids, dx)` adds them all. (In `embed`, add `keep * dy` times √D.) Now finish `embed`, and run
# `scratchformer learn check embed`.

# %%
quote("embed")

# %% [markdown]
# `embed` adds the shares of reading. The share of scoring comes from the last `linear` of `loss_of`, which adds to the
# same `E.grad`. The check, for a model with 9 words:

# %% The check, and the line of PyTorch
transformer.rng = np.random.default_rng(8)
small = transformer.new_model(9, d_model=6, d_ff=8, h=2, N=1, dtype="float64")
source = np.array([[3, 4, 3, 1], [4, 1, 0, 0]])
target = np.array([[2, 7, 3, 1], [2, 7, 7, 1]])
_, backward = transformer.loss_of(source, target, small)
backward(1.0)


def loss(E):
    model = SimpleNamespace(**vars(small) | {"E": SimpleNamespace(data=E)})
    return transformer.loss_of(source, target, model)[0]


numeric = numeric_gradient(loss, small.E.data)
same("dE and finite differences", small.E.grad, numeric, 1e-7)
try:
    import torch
except ImportError:
    torch = None
if torch:
    E, dx = small.E.data, np.random.default_rng(8).normal(size=(2, 4, 6))
    ours = SimpleNamespace(data=E, grad=0 * E)
    x, backward = transformer.embed(source, ours, 0.0)
    backward(dx)
    theirs = torch.tensor(E, requires_grad=True)
    p = torch.tensor(transformer.positional_encoding(4, 6))
    y = torch.nn.functional.embedding(torch.tensor(source), theirs) * 6**0.5 + p
    y.backward(torch.tensor(dx))
    assert np.allclose(y.detach(), x) and np.allclose(theirs.grad, ours.grad)

# %% [markdown]
# ## Does it matter?
#
# Back to the goat. In German it is *die Ziege*, and its neighbours are *die Reise*, *die Ente* and *die Bibliothek*.
# **All are feminine.** The neighbours of *dog* are masculine (*der*), those of *horse* neuter (*das*). English nouns
# have no gender, but whoever translates them must choose between *der*, *die* and *das*. So perhaps the rows hold what
# the *task* asks for. Then another task should make other rows.
#
# - **What goes in:** 6,051 short English sentences, for 800 steps of a small Transformer (our file, $D = 32$, one
#   layer).
# - **What is changed:** what it has to write: the German translation, or the same English in CAPITALS. Neither occurs
#   in the source, and only German needs the gender.
# - **What is measured:** for how many of 156 English nouns the nearest noun has the same German gender.
# - **Two controls:** the rows before training; and the rows after the German task, with genders exchanged at random
#   among nouns of one kind (animals, persons, tools and so on). If kind alone made the neighbours, that would change
#   little.
#
# What will the rows be like after the task with CAPITALS? (a) like those before training, (b) like those of the German
# task, (c) in between.
#
# <details><summary>Make a guess, then unfold: three runs each</summary>

# %% Training six small Transformers
def lines(language):
    text = (transformer.CORPUS / f"train.{language}").read_text("utf-8")
    return [transformer.words_in(line) for line in text.splitlines()]


short = [(en, de) for en, de in zip(lines("en"), lines("de")) if len(en) <= 7]
tasks = {"write German": short,
         "write CAPITALS": [(en, [word.upper() for word in en]) for en, _ in short]}


def rows_after(pairs, seed, steps=800):
    """-> the nouns of the sentences and their rows, before and after training"""
    used = {word for pair in pairs for side in pair for word in side}
    words = ["<pad>", "</s>", "<s>", *sorted(used)]
    id_of = {word: i for i, word in enumerate(words)}
    ids = [[[*map(id_of.get, side), transformer.EOS] for side in pair]
           for pair in pairs]
    data = [(source, [transformer.BOS, *target]) for source, target in ids]
    transformer.rng = np.random.default_rng(seed)
    model = transformer.new_model(len(words), d_model=32, d_ff=64, h=2, N=1,
                                  dtype="float64")
    nouns = Genders.known(words)
    rows = [id_of[noun] for noun in nouns]
    before = model.E.data[rows]
    for step, batch in zip(range(1, steps + 1), transformer.batches(data, 32)):
        transformer.loss_of(*batch, model)[1](1.0)
        transformer.adam(model, step, warmup_steps=100)
    return nouns, before, model.E.data[rows]


assert len(short) == 6051
found = {name: [] for name in ("before training", *tasks, "German, genders exchanged")}
for seed in [0] if QUICK else [0, 1, 2]:
    for task, some in tasks.items():
        their_nouns, before, after = rows_after(some, seed)
        genders = Genders(their_nouns)
        found[task].append(genders.agreement(after))
        if task == "write German":
            found["before training"].append(genders.agreement(before))
            found["German, genders exchanged"].append(genders.highest_exchanged(after))
assert len(their_nouns) == 156
if QUICK:
    found = {name: shares * 3 for name, shares in found.items()}
table(["nearest noun has the same gender", "run 1", "run 2", "run 3"],
      [[name, *(f"{share:.0%}" for share in shares)] for name, shares in found.items()])
assert min(found["write German"]) > 0.65 > 0.5 > max(found["write CAPITALS"])

# %% [markdown]
# (Last row: the highest of 100 exchanges.)
#
# </details>
#
# After the German task, 71 to 86 % of the nouns stand beside one of their own gender. After CAPITALS it is one in
# three, as before training. Kind alone doesn't explain the German rows. So in these runs, the rows came to hold the
# gender only after the German task. (We didn't measure how well the other model had learned its own.) How? We think
# that *goat* and *journey* need the same German words around them (*die*, *eine*, *sie*), so similar $dx$ come back to
# their rows.
#
# ## What have the rows learned?
#
# In the translator of lesson 00, the nearest noun has the same gender for 98 % of the nouns (by chance 33 %; with
# genders exchanged within kinds, at most 50 %). It is of the same kind for 46 % (by chance 7 %): the rows hold the
# kind, too. Drawn in the two directions in which they differ most, they form three groups:

# %% Drawing the nouns
genders = Genders(nouns)
measure("nearest noun: same gender", genders.agreement(vectors), 0.97, 0.99)
measure("genders exchanged", genders.highest_exchanged(vectors), 0.45, 0.55)
measure("same kind", genders.same_kind(vectors), 0.44, 0.47)
drawing, plane = Drawing(620, 340), genders.plane(vectors)
plane = plane * [290, -290] + [320, 195]                        # pixels


def marker(x, y, gender):
    if gender == "m":
        drawing.rectangle(x, y, 10, 10, "query", 0.6)
    elif gender == "f":
        drawing.circle(x, y, 5.5, "key", 0.6)
    else:
        corners = [(x - 7, y + 6), (x + 7, y + 6), (x, y - 7)]
        drawing.polygon(corners, "value", 0.6, outline=True)


for place, gender in zip(plane, genders.of):
    marker(*place, gender)
for word in "dog", "goat", "horse", "tea":
    x, y = plane[nouns.index(word)]
    away = {"goat": (-40, 80), "tea": (50, -35)}.get(word, (70, 50))
    drawing.line([(x, y), (x + away[0], y + away[1])], "ink", 1)
    anchor = "end" if away[0] < 0 else "start"
    drawing.text(x + away[0] * 1.03, y + away[1], word, anchor=anchor, bold=True)
for i, (gender, name) in enumerate(
        [("m", "der (masculine)"), ("f", "die (feminine)"), ("n", "das (neuter)")]):
    marker(24, 24 + 22 * i, gender)
    drawing.text(40, 24 + 22 * i, name, anchor="start", size=14)
show(drawing, "08_nouns",
     alt="Scatter plot of 112 English nouns in the two directions in which their "
     "vectors differ most. The marker is the gender of the German translation. Three "
     "groups far apart, one for each gender: goat lies in the first, dog in the second "
     "and horse in the third. Tea, masculine, lies between the groups.",
     caption="English nouns in the trained translator, grouped by the gender of their "
     "German translation. Both axes have the same scale.")

# %% [markdown]
# One noun lies in no group: *tea*, *der Tee*. It isn't in the training text: the piece was made on the way to *teacher*
# (lesson 17).
#
# **Today.** Small models still share one matrix (SmolLM2-135M, Gemma); many large ones have two (Llama 3 8B). Most have
# dropped the factor √D; Gemma keeps it. The **logit lens** (nostalgebraist 2020) uses $E$ to look *inside* a model:
# multiply the vectors after layer 3 by $E^T$ (after the last norm, if there is one), and you see which word it would
# choose if it stopped there.
#
# ## Paper and code
#
# - §3.4: "we share the same weight matrix between the two embedding layers and the pre-softmax linear transformation",
#   as Press and Wolf (2017) do. The paper gives no reason for √D, and no initial size; the authors' code has $1 /
#   \sqrt{d_{model}}$.
# - PyTorch: `F.embedding(ids, E) * D**0.5 + p`. `nn.Embedding` starts with numbers of size 1, and `head.weight =
#   embedding.weight` shares them.
# - In the library: `Embedding` and `Unembedding` in [nn/layers.py](../scratchformer/nn/layers.py).
#
# ## What to remember
#
# A word is a row of a matrix, and training puts into it what the task needs. The same matrix reads words (times √D) and
# scores them, so a row's gradient is the sum over all its uses. Its numbers start with size 1/√D, so that scores are
# small.
#
# **Test yourself.**
#
# 1. The base model has 37,000 words and $D = 512$. How many numbers has $E$, and how many would three separate matrices
#    have?
# 2. $D = 4$. A batch has *dog* in two sentences. Their $dx$ are (1, 0, 0, 0) and (0, 2, 0, 0). What do both add to the
#    row of *dog*?
# 3. Word 500 is in no sentence. At the only position of the target its probability is 0.01, and $y$ is (1, 1, −1, 1).
#    What is the gradient of its row?
#
# <details><summary>Answers</summary>
#
# 1. 18.9 million, and 56.8 million. The whole base model has 63 million (65 in the paper).
# 2. 2 · (1, 2, 0, 0) = (2, 4, 0, 0). `E.grad[ids] += …` would add only (0, 4, 0, 0).
# 3. 0.01 · $y$ = (0.01, 0.01, −0.01, 0.01). Each word is scored, so each row gets a gradient.
#
# </details>
#
# **Yours:** `embed`, and the hunt `lost_repeats` (write its test) · `scratchformer learn check 08`
#
# **Next:** [09 · Where am I? Sinusoidal positions](09_positions.py). `embed` adds the vector of a position. What does
# it say?
