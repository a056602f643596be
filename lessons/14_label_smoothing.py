# %% [markdown]
# # 14 · The loss, label smoothing and dropout
#
# **Cross-entropy rewards a model for being ever more certain. Should it?**
#
# *Needs [lesson 01](01_backprop.py) (softmax, cross-entropy), [lesson 06](06_masks.py) (padding) and [lesson
# 13](13_whole_model.py) (the whole model) · you will compute the paper's loss, dropout and their gradients with pencil
# and paper.*

# %% Imports
import numpy as np
import transformer

from support.drawing import Drawing
from support.lesson import quote, same, show, table
from support.numeric import numeric_gradient

# %% [markdown]
# A small translator learns 300 sentence pairs with the loss of lesson 01. Every 80 steps we test it on 500 new pairs.
# At each position it gives every word a probability $p$. We look at three means:
#
# - **loss**: $-\ln p$ of the right word;
# - **accuracy**: how often the likeliest word is the right one;
# - **confidence**: the probability of the likeliest word.

# %% The text
def sentence_pairs(split):
    """Pairs of a set, as words"""
    texts = [(transformer.CORPUS / f"{split}.{language}").read_text("utf-8")
             for language in ("en", "de")]
    return list(zip(*([transformer.words_in(line) for line in text.splitlines()]
                      for text in texts)))


TEXTS = sentence_pairs("train"), sentence_pairs("test")[:500]
words = sorted({word for pairs in TEXTS for pair in pairs
                for sentence in pair for word in sentence})
ids = {word: i for i, word in enumerate(words, 3)}
V = len(words) + 3
EVERY, NEW = ([([*map(ids.get, en), transformer.EOS],
                [transformer.BOS, *map(ids.get, de), transformer.EOS])
               for en, de in pairs] for pairs in TEXTS)
FEW = EVERY[:300]
LEARNED_BATCH, NEW_BATCH = (next(transformer.batches(list(pairs), len(pairs)))
                            for pairs in (FEW, NEW))


# %% The training
def look(model, batch=NEW_BATCH, by_hand=0.0):
    """-> (3, n): at each word the loss, 1 if the likeliest word is right, confidence

    by_hand: how much less sure p is made
    """
    source, target = batch
    memory, _ = transformer.encode(source, model, 0.0)
    x, _ = transformer.decode(target[:, :-1], memory, source, model, 0.0)
    real = target[:, 1:] != transformer.PAD
    right = target[:, 1:][real]
    p = np.exp(transformer.log_softmax(x[real] @ model.E.data.T))
    p = (1 - by_hand) * p + by_hand / V
    loss = -np.log(p[np.arange(len(right)), right])
    return np.array([loss, p.argmax(axis=-1) == right, p.max(axis=-1)])


def learn(pairs, eps_ls=0.0, seed=0, P_drop=0.0, tests=()):
    """-> the model after 320 steps, and rows: step, loss, accuracy, confidence"""
    transformer.rng = np.random.default_rng(seed)
    model = transformer.new_model(V, d_model=32, d_ff=64, h=2, N=1, dtype="float64")
    batches, rows = transformer.batches(list(pairs), 16), []
    for step, batch in zip(range(1, 321), batches):
        _, backward = transformer.loss_of(*batch, model, P_drop, eps_ls)
        backward(1.0)
        transformer.adam(model, step, warmup_steps=100)
        if step in tests:
            rows.append((step, *look(model).mean(axis=1)))
    return model, rows


def two_digits(numbers):
    return [f"{number:.2f}" for number in numbers]


model, seen = learn(FEW, tests=(80, 160, 240, 320))
known = look(model, LEARNED_BATCH).mean(axis=1)
table(["step", "loss", "accuracy", "confidence"],
      [*([f"{row[0]:.0f}, new pairs", *two_digits(row[1:])] for row in seen),
       ["320, the 300 learned pairs", *two_digits(known)]])
assert two_digits(seen[-1][2:]) == ["0.36", "0.64"]
assert two_digits(known[1:]) == ["0.92", "0.84"]

# %% [markdown]
# After step 80 of this run more and more guesses are right, and still the loss gets worse. At the end 36 in 100 are
# right, at a confidence of 0.64: the model is **overconfident**. On the pairs that it learns it is *under*confident: 92
# in 100 are right, at a confidence of 0.84. There, more confidence still lowers the loss. So training raises it, in new
# sentences as well.
#
# The paper asks for less: the right word should get only about 0.9 (§5.4). This is **label smoothing**:
#
# > "This hurts perplexity, as the model learns to be more unsure, but improves accuracy and BLEU score."
#
# (*Perplexity*: [lesson 11](11_feed_forward.py). *BLEU* rates translations: [lesson 21](21_bleu_and_averaging.py).)
#
# ## Less sure, same order
#
# How can the loss get worse and the translations better? Suppose a model gives five words the probabilities (0.5, 0.3,
# 0.1, 0.06, 0.04). Make it less sure by hand: multiply each by 0.9, and add 0.02. You get (0.47, 0.29, 0.11, 0.074,
# 0.056). If the first word is right, its loss rises from 0.693 to 0.755. If the last one is right, its loss falls from
# 3.22 to 2.88. But **the order is the same**. If we always write the likeliest word, no translation changes. Smoothing
# in *training* can change translations only by leading to other weights.
#
# ## By hand: one sentence
#
# "She sleeps" should become "sie schläft". The decoder reads `BOS sie schläft EOS` (`BOS` is `<s>`, `EOS` is `</s>`),
# and at each position it predicts the next word: `sie schläft EOS PAD`. (`PAD`, because another sentence of the batch
# is longer.) Say there are only five words:

# %% Drawing the bars
VOCABULARY = ("sie", "er", "schläft", "liest", "EOS")
SENTENCE = [("BOS", "sie", 0.6), ("sie", "schläft", 0.92), ("schläft", "EOS", 0.996)]


def bars(backward):
    """Figures 1 and 2: p and q at each position, without and with p − q."""
    drawing = Drawing(830, 415 if backward else 340)
    for y, letter in (110, "p"), (235, "q"):
        drawing.text(20, y, letter, bold=True, size=17)
    if backward:
        drawing.text(8, 365, "p − q", "gradient", 15, "start", italic=True)
    for group, (reads, right, sure) in enumerate(SENTENCE):
        left = 80 + 220 * group
        drawing.text(left + 80, 18, f"reads {reads}", "soft", 14)
        drawing.text(left + 80, 42, f"next: {right}", bold=True)
        for i, word in enumerate(VOCABULARY):
            x, is_right = left + 40 * i, word == right
            p, q = (sure, 0.92) if is_right else ((1 - sure) / 4, 0.02)
            role = "forward" if is_right else "ink"
            drawing.bar(x, 110, p, 26, 90, below=f"{p:.3g}", role=role)
            drawing.bar(x, 235, q, 26, 90, below=f"{q:.3g}", role=role)
            drawing.text(x, 310 + 16 * (i % 2), word, "soft", 13)
            if backward:
                y, gradient = 365 + 24 * (i % 2), round(p - q, 3)
                if gradient:
                    label = f"{gradient:+g}".replace("-", "−")
                    drawing.gradient(x - 10, y, -gradient, label, 13, largest=0.3)
                else:
                    drawing.text(x, y, "0", "gradient", 13, italic=True)
    drawing.text(770, 18, "reads EOS", "soft", 14)
    drawing.text(770, 42, "next: PAD", bold=True)
    drawing.box(770, 172, "left out", width=90, height=215)
    if backward:
        drawing.text(770, 365, "0", "gradient", 13, italic=True)
    return drawing


show(bars(backward=False), "14_bars",
     alt="Bars for five words at three positions. The right words are sie, schläft and "
     "EOS. Their p is 0.6, 0.92 and 0.996; the other four words have 0.1, 0.02 and "
     "0.001 each. Below, q is 0.92 for the right word and 0.02 for the others. A "
     "fourth position, whose next word is PAD, is left out.",
     caption="What the model says (p), and what label smoothing asks for (q). The "
     "right word is blue.")

# %% [markdown]
# **The plain loss** of a word is $-\ln p$ of the right one: 0.511, 0.083 and 0.004. Padding doesn't count, so the loss
# is the mean over **three** words: 0.598 / 3 = **0.199**. A batch has one mean over all its words.
#
# **The smoothed loss** has a softer target. Let $\epsilon = 0.1$. Take 0.1 away from the right word, and then give each
# of the five words, the right one too, a fifth of it. That is $q$ in figure 1. The smoothed loss adds up $q$ times
# $-\ln p$ over *all* words. At *sie* that is 0.92 · 0.511 + 4 · 0.02 · 2.303 = 0.654.
#
# | right word | $-\ln p$ of it | of each other word | smoothed loss |
# |---|--:|--:|--:|
# | *sie* | 0.511 | 2.303 | **0.654** |
# | *schläft* | 0.083 | 3.912 | **0.390** |
# | `EOS` | 0.004 | 6.908 | **0.556** |
#
# The mean is **0.533**. The plain loss is lowest at `EOS`, where the model is most sure. The smoothed loss is lowest
# where $p = q$, and even there it isn't 0 but $-\sum_v q_v \ln q_v$, here $-0.92 \ln 0.92 - 4 \cdot 0.02 \ln 0.02 =
# 0.390$. This **floor** is 1.10 for the 2,226 words of this page's text, and 1.38 for the paper's 37,000.
# (`scratchformer learn train` prints smoothed losses, the opening plain ones.)
#
# **Calculate, then unfold:** what is the smoothed loss if all five words get 0.2? ($-\ln 0.2 = 1.609$)
#
# <details><summary>The loss</summary>
#
# **1.609**, since the numbers of $q$ add up to 1.
#
# </details>
#
# ## In general
#
# With $V$ logits $z$ and $p = \mathrm{softmax}(z)$, the loss at one position is
#
# $$L = -\sum_v q_v \ln p_v \qquad \ln p_v = z_v - \ln \sum_u e^{z_u}$$
#
# $$q_v = \frac{\epsilon}{V} \quad \text{and} \quad 1 - \epsilon + \frac{\epsilon}{V} \; \text{for the right word}$$
#
# - `log_softmax` takes logits (..., V) and returns $\ln p$ of each row, by the second equation: the logarithm of a
#   computed $p$ fails if a tiny $p$ was rounded to 0. Since $e^{1000}$ is too large for a float, first subtract each
#   row's largest logit from the row. That doesn't change $p$.
# - `cross_entropy` takes the logits (n, V) of $n$ real words, the $n$ right ids `words` and $\epsilon$ (`eps_ls`). It
#   yields the mean of the $n$ losses. The right words stand at `[np.arange(n), words]`.
#
# **Your turn.** Write `log_softmax`, which has no second half, and run `scratchformer learn check log_softmax`. Then
# write the first half of `cross_entropy`, and check it already: if only `backward` is complained about, it is right.
#
# ## Backward
#
# The gradient of the logits is still $p - q$ (lesson 01), with the new $q$. Which of the three
# right logits will training raise?

# %% Drawing the way back
show(bars(backward=True), "14_bars_backward",
     alt="The same bars with the gradients p minus q below. At sie: minus 0.32 for "
     "sie, plus 0.08 for each other word. At schläft: 0 everywhere. At EOS: plus "
     "0.076 for EOS, minus 0.019 for each other word. At the padding: 0.",
     caption="The same bars with p − q, the gradient of each position's own loss. "
     "Triangles point where training moves a logit.")

# %% [markdown]
# - *sie*: the model is unsure, so this logit goes up (0.6 − 0.92 = −0.32), and the others go down.
# - *schläft*: $p = q$, so all logits rest.
# - `EOS`: the model is too sure, so this logit goes *down*, and the others go *up*.
#
# With the plain loss, $q$ is 1 at the right word. Then all three right logits go up, and they never rest.
#
# **Why $p - q$?** Put $\ln p_v$ into $L$. The $q_v$ add up to 1, so $L = \ln \sum_u e^{z_u} - \sum_v q_v z_v$. Follow
# one logit $z_j$. The first term has the derivative $e^{z_j} / \sum_u e^{z_u} = p_j$, the second $q_j$. In the mean,
# each of $n$ words counts $1/n$. And all is multiplied by $dloss$, the gradient that comes back (1 in training):
#
# $$dz_j = \frac{p_j - q_j}{n} \; dloss$$
#
# Now finish `cross_entropy`, and run `scratchformer learn check cross_entropy`.

# %%
quote("log_softmax", "cross_entropy")

# %% The check, and the line of PyTorch
def logits_of(sure, right):
    """Logits with p of figure 1"""
    return np.log([sure if i == right else (1 - sure) / 4 for i in range(5)])


right = [0, 2, 4]
z = np.array([logits_of(0.6, 0), logits_of(0.92, 2), logits_of(0.996, 4)])
losses = {eps_ls: [transformer.cross_entropy(z[i:i + 1], [right[i]], eps_ls)[0]
                   for i in range(3)] for eps_ls in (0, 0.1)}
assert np.allclose(losses[0], [0.511, 0.083, 0.004], atol=5e-4)
assert np.allclose(losses[0.1], [0.654, 0.390, 0.556], atol=5e-4)
assert round(transformer.cross_entropy(z, right, 0)[0], 3) == 0.199
loss, backward = transformer.cross_entropy(z, right, 0.1)
assert round(loss, 3) == 0.533
dz = backward(1.0)
assert np.allclose(3 * dz, [[-0.32, *[0.08] * 4], [0] * 5, [*[-0.019] * 4, 0.076]])
numeric = numeric_gradient(lambda z: transformer.cross_entropy(z, right, 0.1)[0], z)
same("dz: ours and finite differences", dz, numeric, 1e-8)


def floor(V, eps_ls=0.1):
    """The loss of a model that says q"""
    q = np.full((1, V), eps_ls / V)
    q[0, 0] += 1 - eps_ls
    return transformer.cross_entropy(np.log(q), [0], eps_ls)[0]


assert V == 2226
assert [f"{floor(size):.2f}" for size in (5, V, 37_000)] == ["0.39", "1.10", "1.38"]
try:
    import torch
except ImportError:
    torch = None
if torch:
    padded = torch.tensor(np.vstack([z, np.zeros(5)]), requires_grad=True)
    theirs = torch.nn.functional.cross_entropy(
        padded, torch.tensor([*right, -1]), label_smoothing=0.1, ignore_index=-1)
    theirs.backward()
    assert np.allclose(loss, theirs.detach())
    assert np.allclose([*dz, np.zeros(5)], padded.grad)

# %% [markdown]
# ## Dropout
#
# The paper's second remedy is **dropout** (§5.4, [Srivastava et al.
# 2014](https://jmlr.org/papers/v15/srivastava14a.html)). While the model trains, each number of a sublayer's update,
# and of the embeddings plus positions, is set to 0 with probability $P_{drop} = 0.1$, drawn anew at each step. The
# idea: no unit should rely on one other unit that happens to fit a training sentence.
#
# By hand, with $P_{drop} = 0.5$: of the update (1, 3, −2, 4), chance keeps the first and the third number. These are
# multiplied by 1 / (1 − 0.5) = 2. Why? The 3 becomes 0 half of the time, and otherwise 6, so on average it stays 3. So
# when the trained model translates *without* dropout, its layers meet numbers of about the usual size.

# %% Drawing dropout
def dropout_picture():
    drawing = Drawing(790, 210)
    for y, name in (35, "update"), (105, "keep"), (175, "result"):
        drawing.text(20, y, name, bold=True, anchor="start")
    drawing.vector(220, 35, [1, 3, -2, 4], cell=52)
    keep = drawing.vector(220, 105, [2, 0, 2, 0], "plain", 52)
    result = drawing.vector(220, 175, [2, 0, -4, 0], cell=52)
    drawing.text(220, 70, "×", size=17)
    drawing.arrow(keep.bottom, result.top)
    for y, name, values in ((175, "dresult", (0.3, -0.1, 0.2, 0.5)),
                            (35, "dupdate", (0.6, 0, 0.4, 0))):
        box = drawing.matrix(530, y, [[""] * 4], "gradient", 76)
        drawing.text(700, y, name, "gradient", 14, "start", italic=True)
        for i, value in enumerate(values):
            x = box.cell(i).x
            if value:
                label = f"{value:+g}".replace("-", "−")
                drawing.gradient(x - 12, y, -value, label, 14, largest=0.6)
            else:
                drawing.text(x, y, "0", "gradient", 14, italic=True)
    drawing.arrow((530, 155), (530, 55), "gradient")
    drawing.text(545, 105, "× the same keep", "gradient", 14, "start", italic=True)
    return drawing


show(dropout_picture(), "14_dropout",
     alt="Left, forward: the update 1, 3, minus 2, 4 times keep, 2, 0, 2, 0, is 2, 0, "
     "minus 4, 0. Right, backward, read upwards: the gradient 0.3, minus 0.1, 0.2, 0.5 "
     "times the same keep is 0.6, 0, 0.4, 0.",
     caption="Dropout forward (left) and backward (right, from below to above).")

# %% [markdown]
# **Backward** multiplies by the same `keep`, so (0.3, −0.1, 0.2, 0.5) becomes (0.6, 0, 0.4, 0). What was dropped had no
# influence on the loss, so its gradient is 0.
#
# **Your turn.** `dropout(x, P_drop)` returns `keep` alone, in the shape and dtype of x. For each number of x, draw one
# from 0 to 1 with the file's `rng`, and drop where it lies below $P_{drop}$. If $P_{drop}$ is 0, return 1.0.
# (`add_and_norm` and `embed` multiply by it.) `scratchformer learn check dropout`.

# %%
quote("dropout")

# %% On average, nothing changes
transformer.rng = np.random.default_rng(0)
keep = transformer.dropout(np.zeros((100_000, 4)), 0.5)
assert set(np.unique(keep)) == {0, 2}
assert np.allclose((keep * [1, 3, -2, 4]).mean(axis=0), [1, 3, -2, 4], rtol=0.01)

# %% [markdown]
# ## The loss of the whole model
#
# `loss_of(source, target, model, P_drop, eps_ls)` connects everything. `encode` makes the memory of the source.
# `decode` reads the target without its last id, and predicts the target without its first. Positions whose next id is
# `PAD` are left out. The logits (n, V) are the products of the $n$ remaining vectors with all rows of $E$ (§3.4):
# `linear` with "nd,vd->nv". Then comes `cross_entropy`.
#
# **Your turn.** Write it, and run `scratchformer learn check loss_of`. Backward takes the same steps in reverse.
# Vectors that were left out get the gradient 0. The second half of `decode` returns the gradient of the memory: give it
# to the second half of `encode`. There is nothing to return.

# %%
quote("loss_of")

# %% [markdown]
# <!-- see: inside?step=softmax | the probabilities of a trained model -->
#
# ## Does it matter?
#
# - **What goes in:** in 320 steps, the opening's 300 pairs (each about 17 times), or 5,120 of all 20,000 (each once).
# - **What is changed:** nothing, or $\epsilon = 0.1$, or $P_{drop} = 0.1$ (300 pairs only).
# - **The control:** the models with nothing changed are made less sure by hand, *after* training: $0.9 p + 0.1 / V$.
# - **What is measured:** the opening's numbers in new pairs, as means of three runs. Rows with the same pairs have the
#   same starts and, but for dropout, batches.
#
# Will smoothing make the loss worse? And does the control change it (a) hardly, (b) half as much, (c) as much?
#
# <details><summary>Make a guess, then unfold: the results</summary>

# %% Three runs each
ROWS = [("nothing", 0, 0, 0), ("by hand", 0, 0, 0.1), ("smoothing", 0.1, 0, 0),
        ("dropout", 0, 0.1, 0)]                     # and eps_ls, P_drop, by_hand
models, found = {(300, 0, 0, 0): model}, {}           # found: (pairs, way): (run, 3, n)
for pairs in FEW, EVERY:
    for way, eps_ls, P_drop, by_hand in ROWS if pairs is FEW else ROWS[:3]:
        runs = []
        for seed in range(3):
            key = len(pairs), eps_ls, P_drop, seed
            if key not in models:
                models[key], _ = learn(pairs, eps_ls, seed, P_drop)
            runs.append(look(models[key], by_hand=by_hand))
        found[len(pairs), way] = np.array(runs)
table(["pairs, what is changed", "loss", "accuracy", "confidence"],
      [[f"{count:,}, {way}", *two_digits(runs.mean(axis=(0, 2)))]
       for (count, way), runs in found.items()])


def change(count, way, column=0):
    """-> of each run, (3,); columns: loss, accuracy, confidence"""
    return (found[count, way] - found[count, "nothing"])[:, column].mean(axis=1)


for way in "by hand", "smoothing":
    assert -1.55 < change(300, way).mean() < -1.35 and (change(300, way) < 0).all()
    assert 0.075 < change(20_000, way).mean() < 0.09 and (change(20_000, way) > 0).all()
assert -0.85 < change(300, "dropout").mean() < -0.75
assert (change(300, "dropout", 1) < 0).all()
assert sum((change(count, "smoothing", 1) > 0).sum() for count in (300, 20_000)) == 5
NEW_WORDS = NEW_BATCH[1][:, 1:][NEW_BATCH[1][:, 1:] != transformer.PAD]
unseen = ~np.isin(NEW_WORDS, [word for _, german in FEW for word in german])
before, after = (found[300, way][:, 0].mean(axis=0) for way in ("nothing", "by hand"))
assert f"{unseen.mean():.0%}" == "8%"
assert f"{before[unseen].mean():.1f} {after[unseen].mean():.1f}" == "18.8 10.0"
assert 0.45 < (before - after)[unseen].sum() / (before - after).sum() < 0.5
assert f"{np.log(V / 0.1):.1f}" == "10.0"

# %% [markdown]
# **With 300 pairs** the model is too sure. Smoothing makes its loss *better*, by 1.4, and the control does as much (c).
# Being less sure costs at most $-\ln 0.9 = 0.105$ at a word. But it saves a lot where $p$ is nearly 0,
# because no loss can be above $\ln(V / 0.1) = 10.0$ any more. About half of what the control saves is at the 8 % of
# words that are in none of the 300 pairs: their mean loss falls from 18.8 to 10.0. Dropout saves 0.8, but in these
# short runs its accuracy is a little lower.
#
# **With 20,000** the model is as sure as it is right, and both make the loss worse, by 0.08 or 0.09. So "hurts
# perplexity" holds here for pairs seen once, and not for pairs seen 17 times. (Is it the amount of text, or the
# repetition? We haven't tested.)
#
# Accuracy is higher with smoothing in five of six pairs of runs. So is BLEU in longer runs, by −0.6 to +1.8. These are
# too few runs to tell ([lab notes 14](lab/14_label_smoothing.py)).
#
# </details>
#
# ## Today
#
# Large language models, which read most texts once or a few times, are trained with the plain loss or nearly so (PaLM
# adds a small term), and many without dropout. Translators (NLLB) and image classifiers (ConvNeXt) still smooth.
#
# ## Paper and code
#
# The paper, Table 3, rows (D), one model each:
#
# | | base | no smoothing | no dropout |
# |---|--:|--:|--:|
# | perplexity | 4.92 | 4.67 | 5.77 |
# | BLEU | 25.8 | 25.3 | 24.6 |
#
# [Szegedy et al. 2016](https://arxiv.org/abs/1512.00567) spread $\epsilon$ over all $V$ words, as your file does. The
# authors' code and the library's [nn/loss.py](../scratchformer/nn/loss.py) use the $V - 1$ wrong ones. PyTorch:
# `F.cross_entropy(z, right, label_smoothing=0.1, ignore_index=PAD)`, compared above, and
# `F.dropout(x, 0.1)`.
#
# ## What to remember
#
# Label smoothing asks for about 0.9 at the right word. The gradient is $p - q$, so the logits come to rest. Being less
# sure changes the loss, not the order of the words. Dropout multiplies by 0 or $1 / (1 - P_{drop})$, backward by the
# same numbers.
#
# **Test yourself.**
#
# 1. $V = 4$, $\epsilon = 0.2$, and a model gives the right word 0.7 and each other word 0.1. What is the gradient of
#    its four logits?
# 2. With $V = 37{,}000$ and $\epsilon = 0.1$, can a smoothed loss be 1.2?
# 3. With $P_{drop} = 0.2$, the update (4, 8, −4) loses its second number, and the gradient (1, 1, 2) comes back. What
#    is the result, and the gradient of the update?
#
# <details><summary>Answers</summary>
#
# 1. $q = (0.85, 0.05, 0.05, 0.05)$, so **(−0.15, +0.05, +0.05, +0.05)**.
# 2. No, the floor is 1.38.
# 3. `keep` is (1.25, 0, 1.25). The result is **(5, 0, −5)**, and the gradient is **(1.25, 0, 2.5)**.
#
# </details>
#
# **Yours:** `log_softmax`, `cross_entropy`, `dropout`, `loss_of` · `scratchformer learn check 14`
#
# **Next:** [15 · Adam and the warm-up](15_adam_and_warmup.py). How far should we go against the gradient?
