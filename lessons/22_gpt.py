# %% [markdown]
# # 22 · GPT: the decoder without a source
#
# **What has to be crossed out of a translator, so that it writes without anything to translate?**
#
# *Needs [lesson 13](13_whole_model.py) (the decoder), [lesson 14](14_label_smoothing.py) (cross-entropy) and [lesson
# 15](15_adam_and_warmup.py) (Adam) · you will train a GPT on a text of your choice, and let it write.*

# %% Imports
import math
import time
from functools import partial

import numpy as np
import transformer
from transformer import (
    adam,
    add_and_norm,
    cross_entropy,
    differentiable,
    embed,
    feed_forward,
    linear,
    log_softmax,
    multi_head_attention,
    new_model,
)

from exercises.source import source_of_ours
from scratchformer.text.tokenizer import BOS, EOS, PAD
from scratchformer.training.run import load_run
from support.gpt_parts import Counts, crossed_out, rest, window
from support.lesson import ROOT, duration, same, show, table, varying
from support.numeric import numeric_gradient

# %% [markdown]
# A translator's decoder writes German, one piece after the other. Does it need the English for that? We gave the
# translator of lesson 20 an empty source, three times, and then a sentence. Each piece was drawn at random from the
# likeliest ones, those that have 80 % of the probability together:

# %% An empty source, and one with a sentence
translator = load_run(ROOT / "data/tiny_model", dtype="float64")
for source, seed in ("", 0), ("", 1), ("", 2), ("The dog ate the apple.", 0):
    source_ids = np.array([[*translator.tokenizer.encode([source])[0], EOS]])
    rng, written = np.random.default_rng(seed), [BOS]
    while written[-1] != EOS and len(written) < 20:
        logits, _ = translator.model.forward(source_ids, np.array([written]))
        p = np.exp(logits[0, -1] - logits.max())
        p[[PAD, BOS]] = 0
        order = np.argsort(-p)                             # the likeliest first
        before = np.cumsum(p[order]) - p[order]
        p[order[before > 0.8 * p.sum()]] = 0
        written.append(int(rng.choice(len(p), p=p / p.sum())))
    [german] = translator.tokenizer.decode([written[1:-1]])
    varying(f"{source or 'nothing':22} -> {german}")

# %% [markdown]
# With a sentence it writes German, and without one it doesn't. It has learned to say what the source says, and here
# the source says nothing. Could a decoder learn to write from its own words alone? Then no pairs of sentences would be
# needed: any text would do. A model of this kind is a **language model**, and the decoder that becomes one is called
# **GPT**, a *generative pre-trained Transformer*.
#
# ## The picture
#
# You have the decoder already, in `transformer.py`. Without a source there is no encoder, no `memory` that comes from
# it, and no cross-attention that looks at the memory. So cross them out:

# %% Drawing what is crossed out
show(crossed_out(source_of_ours("transformer", "decode")), "22_crossed_out",
     alt="The function decode of transformer.py. Crossed out are the arguments memory "
     "and source, the padding mask of the source, the line with cross-attention, and, "
     "in the second half, the gradient dmemory and everything that belongs to "
     "cross_backward. The rest is untouched.",
     caption="`decode` in the file. Nothing is added: what is not crossed out is a "
     "GPT.")

# %% [markdown]
# Notice the second half of the function, below `yield`. For what is crossed out above, something is crossed out below:
# the backward pass of a part goes with the part.
#
# Look at what is left: self-attention and feed-forward, layer after layer. That is `encode`, but with another mask. In
# the encoder each word sees the whole sentence. Here each one sees only itself and what stands before it.
#
# ## By hand: five letters
#
# The **window** *hello* is a piece of our text. How much can the model learn from it? The causal mask of [lesson
# 06](06_masks.py) hides the future, so five letters are four exercises: predict *e* from *h*, *l* from *he*, *l* from
# *hel*, and *o* from *hell*.

# %% Drawing the window
show(window(backward=False), "22_window",
     alt="The letters h, e, l, l are read, and e, l, l, o have to be predicted. Arrows "
     "lead from each letter to its own prediction and to all later ones. The right "
     "letters get the probabilities 1/2, 1/4, 1/8 and 1/2, which cost 1, 2, 3 and 1 "
     "bits.",
     caption="One pass over five letters makes four predictions. The probabilities are "
     "made up.")

# %% [markdown]
# How good are these predictions? A probability of 1/2 is a coin toss, which costs one **bit**; 1/4 is two tosses, two
# bits; 1/8 three. In general it costs $-\log_2 p$. Our window costs 1 + 2 + 3 + 1 = 7 bits, or 7/4 = 1.75 **bits per
# character**. That is the loss of [lesson 14](14_label_smoothing.py) in another unit: divide it by
# ln 2 = 0.693.
#
# Calculate, then unfold: another model gives the four letters the probabilities 1/4, 1/2, 1/16 and 1/2. Is it better?
#
# <details><summary>Answer</summary>
#
# It costs 2 + 1 + 4 + 1 = 8 bits, or 2 bits per character. It is worse than 1.75.
#
# </details>
#
# ## In general
#
# Let $x_0$ be the first character of a window, and $x_1$ to $x_n$ the others. Their probability is a product: that of
# $x_1$ after $x_0$, times that of $x_2$ after both, and so on. The loss is the mean of the negative logarithms:
#
# $$P(x_1 \dots x_n \mid x_0) = \prod_{t=1}^{n} P(x_t \mid x_0 \dots x_{t-1}) \qquad loss = - \frac{1}{n}
# \sum_{t=1}^{n} \ln P(x_t \mid x_0 \dots x_{t-1})$$
#
# **Your turn.** Write a new file, `gpt.py`, beside your `transformer.py`. It begins with `from transformer import *`,
# which fetches all that you have written. Copy `decode` into it, cross out, and call it
# `gpt`. Then do the same with `loss_of`: a window has no padding, and nothing is smoothed. Ours, with both halves:

# %%
@differentiable
def gpt(text, model, P_drop):
    x, embed_backward = embed(text, model.E, P_drop)
    past = np.tri(text.shape[1], dtype=bool)
    backwards = []
    for attn, ffn in model.decoder:
        x, self_backward = add_and_norm(P_drop, multi_head_attention, x, x, past,
                                        **attn)
        x, ffn_backward = add_and_norm(P_drop, feed_forward, x, **ffn)
        backwards.append((self_backward, ffn_backward))
    dx = yield x
    for self_backward, ffn_backward in reversed(backwards):
        dx = sum(ffn_backward(dx))
        dx = sum(self_backward(dx))
    embed_backward(dx)


@differentiable
def gpt_loss(text, model, P_drop=0.0):
    x, gpt_backward = gpt(text[:, :-1], model, P_drop)        # reads h e l l
    rows = x.reshape(-1, x.shape[-1])                         # a row each
    logits, logits_backward = linear("nd,vd->nv", rows, model.E)
    loss, loss_backward = cross_entropy(logits, text[:, 1:].ravel(), eps_ls=0.0)
    dloss = yield loss                                        # predicts e l l o
    gpt_backward(logits_backward(loss_backward(dloss)).reshape(x.shape))

# %% [markdown]
# The weights come from `new_model`, without the encoder's and those of cross-attention:

# %%
def new_gpt(V, **sizes):
    model = new_model(V, **sizes)
    model.decoder = [(attn, ffn) for attn, cross, ffn in model.decoder]
    model.weights = {name: w for name, w in model.weights.items()
                     if "encoder" not in name and "cross" not in name}
    return model

# %% [markdown]
# ## Backward
#
# In the window, what comes back to each letter? Take the prediction of the second *l*, which got p = 1/8. By [lesson
# 14](14_label_smoothing.py), the gradient of its logit is p − 1, and the mean over four predictions divides by 4:
# (1/8 − 1) / 4 = −0.219.

# %% Drawing the window, backward
show(window(backward=True), "22_window_backward",
     alt="The same window. The logits of the right letters have the gradients −0.125, "
     "−0.188, −0.219 and −0.125; triangles point up. Arrows lead back from each "
     "prediction to all letters that it has used: four arrows end at h, three at e, "
     "two at the first l, one at the second.",
     caption="In magenta, the gradients of the loss. A triangle points where training "
     "moves the logit: all four up, that of the least likely letter most.")

# %% [markdown]
# Each prediction sends a gradient back to the letters that it has used, and to no others. Gradients that meet are added
# up. So *h* gets four of them, and the last *l* only one. You don't have to write anything for that: it is the backward
# pass of attention, with the weights above the diagonal at 0.
#
# The matrix $E$ gets gradients from two sides: it has made the vectors that are read, and it has scored the letters
# that are predicted. The letter *l* has one row, however often it occurs. Is all of this right? We ask as `check` does
# in the file: move each number of each weight a little, and compare.

# %% The check
small = new_gpt(V=5, d_model=4, d_ff=8, h=2, N=2, dtype="float64")
for w in small.weights.values():
    w.data += 0.3 * transformer.rng.standard_normal(w.data.shape)
windows = np.array([[0, 1, 2, 2, 3], [4, 3, 3, 1, 0]])
gpt_loss(windows, small)[1](1.0)


def loss_with(w, data):
    """The loss with other numbers in one weight."""
    kept, w.data = w.data, data
    loss, _ = gpt_loss(windows, small)
    w.data = kept
    return loss


weights = small.weights.values()
numeric = [numeric_gradient(partial(loss_with, w), w.data) for w in weights]
same("all gradients: ours and finite differences",
     *(np.concatenate([each.ravel() for each in some])
       for some in ([w.grad for w in weights], numeric)), 1e-6)

struck = dict(vars(transformer))
exec(rest(source_of_ours("transformer", "decode")), struck)
same("our `gpt` and what figure 1 leaves of `decode`", gpt(windows, small, 0.0)[0],
     struck["decode"](windows, small, 0.0)[0], 0)

# %% [markdown]
# ## Train it
#
# We take the English of our corpus, without its German, and let the model read characters. You can take any text: put
# the name of your file into the first line. It should have 100,000 characters or more, such as a book or your diary.

# %%
text = (ROOT / "data/tiny/train.en").read_text(encoding="utf-8")   # or your own file
characters = sorted(set(text))
id_of = {character: i for i, character in enumerate(characters)}
ids = np.array([id_of[character] for character in text])
to_learn, held_out = np.split(ids, [len(ids) * 9 // 10])           # last tenth: a test

began, rng = time.process_time(), np.random.default_rng(0)
model = new_gpt(len(characters))
for step in range(1, 1501):
    start = rng.integers(0, len(to_learn) - 64, size=(16, 1))
    loss, backward = gpt_loss(to_learn[start + np.arange(65)], model)
    backward(1.0)
    adam(model, step, warmup_steps=200)
    if step == 750:
        halfway = {name: w.data.copy() for name, w in model.weights.items()}
    if step in (1, 300, 600, 900, 1200, 1500):
        varying(f"step {step:4}: {loss / math.log(2):.2f} bits per character")

# %% Time and size
duration(f"{sum(w.data.size for w in model.weights.values()):,} weights, 1,500 steps",
         time.process_time() - began)

# %% [markdown]
# A batch is 16 windows of 65 characters, from anywhere in the text.
#
# ## Let it write
#
# Now the model gives a probability to each character that could come next. [Lesson 20](20_beam_search.py) looked for
# the *best* translation. But there is no best story, so here we draw the next character at random: **sampling**. Say
# that after *th* the probabilities are 0.5 for *e*, 0.3 for *a*, 0.1 for *i* and 0.1 for *o*. Three knobs change them:
#
# | knob | what it does | e, a, i, o |
# |---|---|---|
# | none | | 0.5, 0.3, 0.1, 0.1 |
# | **temperature** T = 1/2 | divides the logits by T. 1/2 squares p: 25, 9, 1, 1 of 36 | 0.69, 0.25, 0.03, 0.03 |
# | **top-k**, k = 2 | keeps the k likeliest, and divides them by their sum, 0.8 | 0.625, 0.375, 0, 0 |
# | **top-p**, p = 0.85 | keeps the likeliest until their sum reaches p: 0.5 + 0.3 + 0.1 = 0.9 | 0.56, 0.33, 0.11, 0 |
#
# A high temperature is daring, a low one careful: near 0, it always takes the likeliest. Top-k keeps a fixed number of
# characters. Top-p keeps few where the model is sure, and many where it isn't.
#
# Calculate, then unfold: 0.6, 0.2, 0.1 and 0.1, first with T = 1/2, then with k = 2.
#
# <details><summary>Answer</summary>
#
# The squares are 36, 4, 1 and 1, of 42: so 0.86, 0.10, 0.02 and 0.02. With k = 2 they are 0.6 / 0.8 = 0.75 and 0.25.
#
# </details>

# %%
def distribution(logits, temperature=1.0, top_k=0, top_p=1.0):
    """logits (V,) -> probabilities (V,)"""
    p = np.exp(log_softmax(logits.astype(float) / temperature))
    order = np.argsort(-p)                                 # the likeliest first
    p[order[top_k or len(p):]] = 0
    p /= p.sum()
    of_likelier = np.cumsum(p[order]) - p[order]
    p[order[of_likelier >= top_p]] = 0
    return p / p.sum()


def write(prompt, n, **knobs):
    written = [id_of[character] for character in prompt]
    for _ in range(n):
        x, _ = gpt(np.array([written[-64:]]), model, 0.0)
        p = distribution(x[0, -1] @ model.E.data.T, **knobs)
        written.append(rng.choice(len(p), p=p))
    return "".join(characters[i] for i in written[len(prompt):])

# %% The numbers of the table, and four texts
th = np.log([0.5, 0.3, 0.1, 0.1])
assert np.allclose(distribution(th, temperature=0.5) * 36, [25, 9, 1, 1])
assert np.allclose(distribution(th, top_k=2), [0.625, 0.375, 0, 0])
assert np.allclose(distribution(th, top_p=0.85) * 9, [5, 3, 1, 0])

begin = "\n" if "\n" in text else text[0]
for name, knobs in (("no knob", {}), ("T = 1/2", {"temperature": 0.5}),
                    ("p = 0.85", {"top_p": 0.85}), ("T = 2", {"temperature": 2})):
    varying(f"{name:9}{write(begin, 90, **knobs).replace(chr(10), ' / ')}")

# %% [markdown]
# A slash is the end of a line. The model has seen nothing but characters: nobody told it what a word is, or that a
# sentence ends with a full stop. Without a knob, most of the words are right; with T = 2, few are. Now you:
# `print(write("The dog", 300, top_p=0.85))`.
#
# ## Does it matter?
#
# Does a text need a Transformer? The oldest language model only counts: after *th*, how often was the next letter an
# *e*? If it counts sequences of $n$ characters, it is an **n-gram model**. Where a sequence was rare, it also asks the
# shorter ones ([lab notes 22](lab/22_gpt.py#experiment-1-the-rule-that-falls-back) have the rule).
#
# - **What goes in:** the same text to learn, once for the counts, 1,500 steps for our GPT.
# - **What is changed:** how many characters before the next one each model may look at.
# - **What is measured:** bits per character at the same 4,000 places of the last tenth, which neither has learned.
#
# Who is ahead with 7 characters? And with all that each can use: (a) our GPT, (b) the counts, (c) neither?
#
# <details><summary>Make a guess, then unfold: counts against GPT</summary>

# %% Counting, and looking back less
counts = Counts(text[:len(to_learn)], order=12)
places = np.random.default_rng(0).integers(64, len(held_out), size=4000)


def bits_of_gpt(reach, weights):
    """Bits per character if the model sees `reach` characters."""
    for name, w in model.weights.items():
        w.data = weights[name]
    found = []
    for some in np.split(places, 20):
        x, _ = gpt(held_out[some[:, None] + np.arange(-reach, 0)], model, 0.0)
        log_p = log_softmax(x[:, -1] @ model.E.data.T)
        found.append(-log_p[np.arange(len(some)), held_out[some]])
    return f"{np.mean(found) / math.log(2):.2f}"


def bits_of_counts(reach):
    test = text[len(to_learn):]
    found = [counts.probability(test[i - reach:i], test[i]) for i in places]
    return f"{-np.mean(np.log2(found)):.2f}"


trained = {name: w.data for name, w in model.weights.items()}
table(["characters seen", "counts", "GPT, 750 steps", "GPT, 1,500 steps"],
      [[reach, bits_of_counts(reach) if reach < counts.order else "–",
        bits_of_gpt(reach, halfway), bits_of_gpt(reach, trained)]
       for reach in (1, 3, 7, 11, 31, 63)])

# %% [markdown]
# The counts win: 0.91 bits against 1.15, each at its best. Where does the difference come from? Compare the row of 7
# characters, where both see the same. The GPT has 1.27 there. So what it lacks is not a longer view: it makes less of
# the last 7 characters. A count is there as soon as the text has been read once. Even with a tenth of the text, the
# counts need only 1.21 ([lab notes 22](lab/22_gpt.py#experiment-1-the-rule-that-falls-back)). The GPT learns by small
# steps, and it isn't done: halfway, this row was at 1.51.
#
# Now go down the columns. The counts get worse beyond 7 characters: few sequences of 12 occur often, and our rule
# trusts the rare ones too much. (A better rule gets to 0.83 with 11.) The GPT gets better up to 31. It has no number
# for each sequence; all of them share its weights. At 63 it loses a little. A sentence has 45 characters on average, so
# the rest belongs to others. We think that they disturb more than they tell.
#
# Does it win with more training? Our benchmark has trained a larger GPT, the preset `gpt-tiny`, on the pages of this
# course: 480,000 characters, 28 times over. It needs 1.70 bits per character. Counts with n = 16 and a better rule for
# falling back need 1.66 ([lab notes 22](lab/22_gpt.py#experiment-2-a-larger-gpt-and-better-counts)). So on a text as
# small as that, counting is hard to beat.
#
# </details>
#
# ## Today
#
# The language models behind the chatbots of 2026 are decoders like this one. They read pieces of words ([lesson
# 17](17_byte_pairs.py)) instead of characters, their blocks have a few changed parts ([lesson
# 23](23_block_of_2026.py)), and they train on trillions of pieces. Afterwards they are trained further, to answer
# questions instead of continuing them. Many translate as well: the source simply stands before the translation, in one
# text. So attention to the source has become self-attention.
#
# ## Paper and code
#
# - Radford et al. (2018), *Improving Language Understanding by Generative Pre-Training*, gave GPT its name. Theirs
#   learns its positions, and has GELU ([lesson 11](11_feed_forward.py)) in place of ReLU.
# - In PyTorch: `nn.TransformerEncoder(layer, N)(x, mask=mask, is_causal=True)`, with `mask =
#   nn.Transformer.generate_square_subsequent_mask(T)`. The encoder with another mask, there too.
# - In the library: [nn/language_model.py](../scratchformer/nn/language_model.py). It keeps keys and values of what it
#   has read; our `write` computes the whole window again for each character.
# - Karpathy builds a GPT in two hours of video (*Let's build GPT*) and in 200 lines of plain Python (*microgpt*). In
#   both, automatic differentiation writes the backward pass.
#
# Next, train the larger one on your text, let it write, or import weights that others have published ([how
# to](../docs/using.md#continuing-a-text)):
#
# ```
# scratchformer train gpt-tiny --text my.txt --out runs/gpt
# scratchformer generate runs/gpt --prompt "The animal" --temperature 0.8 --top-k 40
# scratchformer import --from gpt2 model.safetensors --vocab vocab.json --merges merges.txt --out runs/gpt2
# ```
#
# ## What to remember
#
# A GPT is a decoder without its source: masked self-attention and feed-forward, forward and backward. Each window of
# text gives as many exercises as it has predictions. To write, draw the next character, append it, and ask again.
#
# 1. A window has 9 characters. How many predictions is that, and how many of them send a gradient back to the third
#    character?
# 2. A model gives the same probability to each of 64 characters. How many bits per character does it need?
# 3. Three characters have the probabilities 0.5, 0.25 and 0.25. What are they with T = 1/2? With top-k, k = 2?
#
# <details><summary>Answers</summary>
#
# 1. Eight predictions. Six of them, those of the fourth to the ninth character, have read the third.
# 2. $-\log_2$ of 1/64 is 6 bits.
# 3. The squares are 4, 1 and 1 sixteenths, so 2/3, 1/6 and 1/6. With k = 2: 2/3, 1/3 and 0.
#
# </details>
#
# **Yours:** a file of your own, gpt.py, and a text of your own. Four times as many steps take two to three
# minutes. Do you beat the counts?
#
# **Next:** [23 · The block of 2026](23_block_of_2026.py)
