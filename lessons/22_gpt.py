# %% [markdown]
# # 22 · GPT: the decoder without a source
#
# **What has to be crossed out of a translator, so that it writes without anything to translate?**
#
# *Needs [lesson 13](13_whole_model.py) (the decoder), [lesson 14](14_label_smoothing.py) (cross-entropy) and [lesson
# 15](15_adam_and_warmup.py) (Adam) · you will train a GPT on a text of your choice, and let it write.*

# %% Imports
import math
import re
import sys
import time
from functools import partial

import numpy as np
import transformer
from more import gpt, gpt_loss, new_gpt
from transformer import adam, log_softmax

from exercises.source import source_of_ours
from scratchformer.text.tokenizer import BOS, EOS, PAD
from scratchformer.training.run import load_run
from support.gpt_parts import Counts, crossed_out, interval, rest, window, writing
from support.lesson import ROOT, duration, measure, quote, same, show, table, varying
from support.numeric import numeric_gradient

# %% [markdown]
# What does a translator write if there is nothing to translate? We gave the translator of [lesson 00](00_whole_game.py)
# a source with nothing but its end, three times, and then a sentence. Each piece of a word was drawn at random from the
# likely ones:

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
# It was never trained with such a source. Could a decoder learn to write from its own words alone? Then no pairs of
# sentences would be needed: any text would do. A model that does this is a language model. The decoder that becomes one
# is called **GPT**, a *generative pre-trained Transformer*: generative, because it writes, and pre-trained, because it
# can learn from any text before it is trained for a task.
#
# ## The picture
#
# You have the decoder already, in `transformer.py`. Without a source there is no encoder, no `memory` that comes from
# it, and no cross-attention. So cross them out:

# %% Drawing what is crossed out
show(crossed_out(source_of_ours("transformer", "decode")), "22_crossed_out",
     alt="The function decode of transformer.py. Crossed out are the arguments memory "
     "and source, the padding mask of the source, the line with cross-attention, and, "
     "in the second half, the gradient dmemory and everything that belongs to "
     "cross_backward. The rest is untouched.",
     caption="`decode` in the file. Nothing is added: what is not crossed out is a "
     "GPT.")

# %% [markdown]
# Cross-attention above `yield` has its backward pass below, so that is crossed out as well. What is left looks like
# `encode`, but with another mask: in the encoder each word sees the whole sentence, here only itself and what stands
# before it.
#
# ## By hand: five letters
#
# The **window** *hello* is a piece of our text. The causal mask of [lesson 06](06_masks.py) hides the future, so five
# letters are four exercises: predict *e* from *h*, *l* from *he*, *l* from *hel*, and *o* from *hell*.

# %% Drawing the window
show(window(backward=False), "22_window",
     alt="The letters h, e, l, l are read, and e, l, l, o have to be predicted. Arrows "
     "lead from each letter to its own prediction and to all later ones. The right "
     "letters get the probabilities 1/2, 1/4, 1/4 and 1/2, which cost 1, 2, 2 and 1 "
     "bits.",
     caption="Five letters: one pass reads the first four, and makes four predictions. "
     "The probabilities are made up.")

# %% [markdown]
# How good are these predictions? A probability of 1/2 is a coin toss, which costs one **bit**; 1/4 is two tosses, two
# bits. In general it costs $-\log_2 p$. Our window costs 1 + 2 + 2 + 1 = 6 bits, or 6/4 = 1.5 bits per character, as in
# [lesson 17](17_byte_pairs.py). The loss of [lesson 14](14_label_smoothing.py) uses the natural logarithm. Divide that
# loss by ln 2 = 0.693, and you have bits.
#
# Calculate, then unfold: another model gives the four letters the probabilities 1/4, 1/2, 1/8 and 1/2. Is it better?
#
# <details><summary>Answer</summary>
#
# It costs 2 + 1 + 3 + 1 = 7 bits, or 1.75 bits per character. It is worse.
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
# **Your turn.** Write `gpt` and `gpt_loss` in `more.py`. `gpt` is your `decode` after figure 1. `gpt_loss` is your
# `loss_of` without a source, and it smooths nothing: `eps_ls=0.0`. There is no padding, so every vector makes a
# prediction: in place of `x[is_word]`, reshape `x` from (b, t, d) to rows, (n, d). On the way back, give the gradient
# the shape of `x` again. Then type
#
# ```
# scratchformer learn check gpt gpt_loss
# ```
#
# The weights come from `new_gpt`, which is in `more.py` already. It calls `new_model`, and leaves out the weights of
# the encoder and of cross-attention.

# %%
quote("new_gpt", "gpt", "gpt_loss", file="more")

# %% [markdown]
# ## Backward
#
# Take the prediction of the first *l*, which got p = 1/4. By [lesson 14](14_label_smoothing.py), the gradient of its
# logit is p − 1, and the mean over four predictions divides by 4: (1/4 − 1) / 4 = −6/32. (In bits, all gradients would
# be 1/ln 2 = 1.44 times as large.)

# %% Drawing the window, backward
show(window(backward=True), "22_window_backward",
     alt="The same window. The logits of the right letters have the gradients −4/32, "
     "−6/32, −6/32 and −4/32; triangles point up. Arrows lead back from each "
     "prediction to all letters that it has used: four arrows end at h, three at e, "
     "two at the first l, one at the second. Below, their vectors have the gradients "
     "−10/32, −6/32, −3/32 and −1/32.",
     caption="In magenta, the gradients of the loss. A triangle points where training "
     "moves the number. Below are the gradients of a model that takes the mean of what "
     "it sees.")

# %% [markdown]
# Each prediction sends a gradient back to the letters that it has used, and to no others. How much does each get? Take
# a simpler model: each letter is one number, and the logit of the right letter is the mean of the numbers seen so far.
# Then the third prediction, made from three letters, sends a third of its −6/32 to each, −2/32. So *h* gets (−4 − 3 − 2
# − 1) / 32 = −10/32, and the last *l* only −1/32. In the real model the weights of attention take the place of 1/3.
#
# The logits of the wrong letters are not drawn. A wrong letter with the probability p has the gradient p/4, so its
# logit will go down.
#
# $E$ is used twice, so two gradients add up. A letter's row gets one wherever the letter is read, and one at every
# prediction, because there it makes the letter's logit. So even the row of *z* gets a gradient, and there is no *z* in
# *hello*: if *z* gets p = 1/8 after *h*, the row gets 1/32 times the vector that predicts. Finite differences agree:

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
# ## Let it write
#
# [Lesson 20](20_beam_search.py) looked for the *best* translation. But there is no best story, so here we draw the next
# character at random, by the model's probabilities: **sampling**. Then we append it to the text, and ask again.

# %% Drawing the writing
show(writing(), "22_writing",
     alt="The letters t and h go into GPT, which gives the probabilities .50, .30, .10 "
     "and .10 to e, a, i and o at T = 1; .69, .25, .03 and .03 at T = 1/2; and .37, "
     ".29, .17 and .17 at T = 2, all drawn as bars. An a is drawn, appended to the "
     "text, and an arrow leads back to GPT.",
     caption="A low temperature makes likely letters likelier, a high one makes all "
     "more alike. The probabilities are made up.")

# %% [markdown]
# The **temperature** T divides the logits. With T = 1/2, a logit z becomes 2z, and $e^{2z}$ is the square of $e^z$. So
# the probabilities are squared, and divided by their new sum: 0.5, 0.3, 0.1 and 0.1 become 25, 9, 1 and 1 parts of 36.
# T = 2 takes square roots. Near T = 0, the likeliest letter is always taken.
#
# Two other knobs cut off unlikely letters, and divide the others by their sum. **Top-k** with k = 2 keeps the two
# likeliest: 0.5 and 0.3 become 0.625 and 0.375. **Top-p** with p = 0.75 keeps the likeliest until their sum reaches p:
# here *e* and *a*, together 0.8. If *e* alone had 0.75, only *e* would stay. So top-p keeps few letters where the model
# is sure, and many where it isn't.
#
# Now write a program, `gpt.py`, in the folder of your `more.py`. It begins with these lines, and goes on with the four
# open cells below:
#
# ```
# import math
# from transformer import *
# from more import *
# file = CORPUS / "train.en"     # or a text of yours in this folder: "my.txt"
# ```

# %% Our text
file = transformer.CORPUS / "train.en"
transformer.rng = np.random.default_rng(0)      # the numbers with which gpt.py begins
print = varying                                 # other machines round differently

# %%
with open(file, encoding="utf-8") as lines:
    text = lines.read()
characters = sorted(set(text))
id_of = {character: i for i, character in enumerate(characters)}
ids = np.array([id_of[character] for character in text])
rng, model = np.random.default_rng(0), new_gpt(len(characters))

# %%
def distribution(logits, temperature=1.0, top_k=0, top_p=1.0):
    """logits (V,) -> probabilities (V,)"""
    p = np.exp(log_softmax(logits.astype(float) / temperature))
    order = np.argsort(-p)                                 # the likeliest first
    if top_k:
        p[order[top_k:]] = 0
        p /= p.sum()
    if top_p < 1:
        of_likelier = np.cumsum(p[order]) - p[order]       # their sum, before this one
        p[order[of_likelier >= top_p]] = 0
    return p / p.sum()


def write(prompt, n, **knobs):
    """The prompt and n characters more; "\\n" for a prompt begins a line."""
    if unknown := set(prompt) - set(characters):
        sys.exit(f"the prompt has {min(unknown)!r}, which is not in {file}")
    written = [id_of[character] for character in prompt]
    for _ in range(n):
        x, _ = gpt(np.array([written[-64:]]), model, 0.0)
        p = distribution(x[0, -1] @ model.E.data.T, **knobs)
        written.append(rng.choice(len(p), p=p))
    return "".join(characters[i] for i in written)

# %% The numbers of the text
th = np.log([0.5, 0.3, 0.1, 0.1])
assert np.allclose(distribution(th, temperature=0.5) * 36, [25, 9, 1, 1])
assert np.allclose(distribution(th, temperature=2), [.37, .29, .17, .17], atol=6e-3)
assert np.allclose(distribution(th, top_k=2), [0.625, 0.375, 0, 0])
assert np.allclose(distribution(th, top_p=0.75) * 8, [5, 3, 0, 0])

# %%
print(write("The dog", 60))

# %% [markdown]
# That is an untrained model, with two layers of width 64. It likes to repeat what it has just read ([lesson
# 16](16_first_training.py)).
#
# ## Train it
#
# A batch is 16 windows of 65 characters, from anywhere in the first nine tenths of the text. The last tenth is the
# test.

# %% The clock
began = time.process_time()

# %%
to_learn, held_out = np.split(ids, [len(ids) * 9 // 10])
test = held_out[:len(held_out) // 65 * 65].reshape(-1, 65)[:500]
bits = []
for step in range(1, 1501):
    start = rng.integers(0, len(to_learn) - 64, size=(16, 1))
    loss, backward = gpt_loss(to_learn[start + np.arange(65)], model)
    backward(1.0)
    adam(model, step, warmup_steps=200)
    bits.append(loss / math.log(2))
    if step == 1 or step % 300 == 0:
        of_test = gpt_loss(test, model)[0] / math.log(2)
        print(f"{step:4}: {np.mean(bits[-50:]):.2f} bits, test {of_test:.2f} "
              + write("The dog", 33).replace("\n", " / "))

# %% Time and size
size = sum(w.data.size for w in model.weights.values())
duration(f"{size:,} weights, 1,500 steps on one core", time.process_time() - began)
V = len(characters)
measure("bits of a guess, log2 V, for the V = 50 characters", math.log2(V), 5.6, 5.7)
firsts, repeated = [], []
for seed in range(10):
    transformer.rng = np.random.default_rng(seed)
    new, windows = new_gpt(V), to_learn[start + np.arange(65)]
    x, _ = gpt(windows[:, :-1], new, 0.0)
    p = np.exp(log_softmax(x @ new.E.data.T))
    repeated.append(np.take_along_axis(p, windows[:, :-1, None], axis=-1).mean())
    firsts.append(gpt_loss(windows, new)[0] / math.log(2))
measure("bits of ten new models, mean", np.mean(firsts), 6.6, 6.85)
assert 5.95 < min(firsts) < 6.15 and 6.95 < max(firsts) < 7.15
assert 0.25 < np.mean(repeated) < 0.35

# %% [markdown]
# Each line has the bits per character of the last 50 batches, those of the test, and a sample. (A slash is the end of a
# line.) A guess, the same probability for each of the 50 characters, needs $\log_2 50$ = 5.64 bits. A new model is
# worse, for the two reasons of lesson 16. Its logits scatter, which adds about 1/2 to the loss. And about 0.3 goes to
# the letter just read: 0.7 is left, and −ln 0.7 = 0.36 is added. That makes (ln 50 + 0.86) / ln 2 = 6.9 bits. Ten new
# models need 6.0 to 7.1, on average 6.7.
#
# After 300 steps the model makes up words. After 1,500 most of them are real, and nobody told it what a word is. The
# same model, with other knobs:

# %% Four texts
for name, knobs in (("no knob", {}), ("T = 1/2", {"temperature": 0.5}),
                    ("p = 0.85", {"top_p": 0.85}), ("T = 2", {"temperature": 2})):
    print(f"{name:9}{write(chr(10), 80, **knobs)[1:].replace(chr(10), ' / ')}")
known = set(re.findall(r"\w+", text))
words = re.findall(r"\w+", write("\n", 1000))[:-1]         # the last one may be cut
varying(f"{np.mean([word in known for word in words]):.0%} of {len(words)} words "
        "that it writes without a knob are in the text")

# %% [markdown]
# Now you: end `gpt.py` with `print(write("The dog", 300, top_p=0.85))`, and type in its folder
#
# ```
# scratchformer learn run gpt.py
# ```
#
# It trains for about half a minute, and writes. What is empty in `transformer.py` or `more.py` is taken from the
# course's.
#
# ## Does it matter?
#
# The oldest language model only counts: after *th*, how often was the next letter an *e*? If it counts sequences of $n$
# characters, it is an **n-gram model**. If a sequence was rare, its counts are mixed with those of shorter ones ([lab
# notes 22](lab/22_gpt.py#experiment-1-the-rule-that-falls-back) have the rule). Both models learn from the first nine
# tenths, and predict the same 4,000 characters of the last.
#
# Who is ahead if both see 7 characters? And if each sees as many as are best for it?
#
# <details><summary>Make two guesses, then unfold: counts against GPT</summary>

# %% Counting, and looking back less
counts = Counts(text[:len(to_learn)], order=12)
last = text[len(to_learn):]
places = np.random.default_rng(0).integers(64, len(last), size=4000)


def bits_of_gpt(reach):
    """Bits of each character if the model sees `reach` characters."""
    found = []
    for some in np.split(places, 20):
        x, _ = gpt(held_out[some[:, None] + np.arange(-reach, 0)], model, 0.0)
        log_p = log_softmax(x[:, -1] @ model.E.data.T)
        found.append(-log_p[np.arange(len(some)), held_out[some]] / math.log(2))
    return np.concatenate(found)


def bits_of_counts(reach):
    return -np.log2([counts.probability(last[i - reach:i], last[i]) for i in places])


def in_words(found):
    return f"{np.mean(found):.2f}"


reaches = (1, 3, 7, 11, 31, 63)
of_gpt = {reach: bits_of_gpt(reach) for reach in reaches}
of_counts = {reach: bits_of_counts(reach) for reach in reaches[:4]}
table(["characters seen", "counts", "GPT, 1,500 steps"],
      [[reach, in_words(of_counts[reach]) if reach in of_counts else "–",
        in_words(of_gpt[reach])] for reach in reaches])
difference = of_gpt[31] - of_counts[7]
low, high = interval(difference, [last.count("\n", 0, i) for i in places])
assert 0.1 < low < high < 0.4
print(f"GPT with 31, minus counts with 7: {np.mean(difference):+.2f} bits, from "
      f"unrounded numbers; 95 % interval {low:+.2f} to {high:+.2f}")
seen = {*text[:len(to_learn)].split("\n")}
assert not any(sentence in seen for sentence in last.split("\n")[1:-1])
reads = 1500 * 16 * 64 / len(to_learn)
assert 1.85 < reads < 1.95 and 1 / 7.3 < math.exp(-reads) < 1 / 6.3

# %% [markdown]
# The counts are ahead, both times. But a program made our sentences from a small lexicon. We haven't tried other text.
# (No sentence of the last tenth occurs in the first nine. The interval draws test sentences with replacement, as in
# [lesson 21](21_bleu_and_averaging.py). It ignores that 7 and 31 were chosen by the same characters. With 11
# characters, our rule trusts rare sequences too much.)
#
# **Does GPT win with more training?** In 1,500 steps it has predicted each character 1.9 times on average, and about
# one in seven never. The counts have seen all. In another training, of 6,000 steps, GPT with 31 characters needs 0.86
# bits. That is 0.05 fewer than our counts with 7 (interval 0.01 to 0.08). But a better rule for counting, by Kneser and
# Ney, is still 0.03 ahead of it with 11 characters (0.01 to 0.06). This is one training ([lab notes
# 22](lab/22_gpt.py#experiment-3-four-times-as-many-steps)).
#
# </details>
#
# ## Today
#
# The language models behind the chatbots of 2026 are decoders like this one. They read pieces of words ([lesson
# 17](17_byte_pairs.py)), their blocks have a few changed parts ([lesson 23](23_block_of_2026.py)), and they train on
# trillions of pieces. Many translate as well: the source simply stands before the translation, in one text. So
# attention to the source has become self-attention.
#
# ## Paper and code
#
# - The name comes from the title of Radford et al. (2018), *Improving Language Understanding by Generative
#   Pre-Training*. Theirs learns its positions, and has GELU ([lesson 11](11_feed_forward.py)) in place of ReLU. Liu et
#   al. (2018), *Generating Wikipedia by Summarizing Long Sequences*, had dropped the encoder before.
# - In PyTorch: `nn.TransformerEncoder(layer, N)(x, mask=mask, is_causal=True)`, an encoder with a causal mask.
# - In the library: [nn/language_model.py](../scratchformer/nn/language_model.py).
#
# The library trains a larger one, or imports published weights ([how to](../docs/using.md#continuing-a-text)):
#
# ```
# scratchformer train gpt-tiny --text my.txt --out runs/gpt
# scratchformer generate runs/gpt --prompt "The animal" --temperature 0.8 --top-k 40
# scratchformer import --from gpt2 model.safetensors --vocab vocab.json --merges merges.txt --out runs/gpt2
# ```
#
# ## What to remember
#
# A window gives as many exercises as it has predictions. To write, draw the next character, append it, and ask again.
#
# **Test yourself.**
#
# 1. A window has 9 characters. How many predictions is that, and how many of them send a gradient back to the third
#    character?
# 2. A model gives the same probability to each of 64 characters. How many bits per character does it need?
# 3. Three characters have the probabilities 0.6, 0.3 and 0.1. What are they with T = 1/2? With k = 2 instead? With p =
#    0.5 instead?
#
# <details><summary>Answers</summary>
#
# 1. Eight predictions. Six of them, those of the fourth to the ninth character, have read the third.
# 2. $-\log_2$ of 1/64 is 6 bits.
# 3. The squares are 36, 9 and 1 hundredths, so 36/46 = 0.78, 0.20 and 0.02. With k = 2: 0.67, 0.33 and 0. With p = 0.5:
#    1, 0 and 0, because the likeliest reaches 0.5 alone.
#
# </details>
#
# **Yours:** `gpt`, `gpt_loss`, and a text of your own. With 6001 in place of 1501 it trains for two to three minutes.
#
# **Next:** [23 · The block of 2026](23_block_of_2026.py)
