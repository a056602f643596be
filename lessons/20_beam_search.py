# %% [markdown]
# # 20 · Beam search
#
# **If we take the likeliest word at every step, do we get the likeliest sentence?**
#
# *Needs [lesson 06](06_masks.py) (masks), [lesson 17](17_byte_pairs.py) (pieces) and [lesson
# 19](19_train_a_translator.py) (BLEU) · you will run a beam search with pencil and paper.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from library import beam_lengths, beam_pictures, bleu_by_hand
from library.lesson import ROOT, measure, recorded, same, show, table
from scratchformer.decoding.incremental import begin_decoding, decoding_step
from scratchformer.decoding.search import search
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.text.tokenizer import BOS, EOS, PAD
from scratchformer.training.run import load_run

# %% [markdown]
# Here is a trained translator, much like the one of lesson 19: two layers on each side, trained on 20,000 pairs of
# sentences. It translates **greedily**: it takes the likeliest piece, writes it down, and asks for the next one. We
# wrote a second translation ourselves, and asked the model for the probability of both.

# %% A sentence that greedy decoding misses
translator = load_run(ROOT / "data/tiny_model", dtype="float64")
model, tokenizer = translator.model, translator.tokenizer


def log_softmax(logits):
    """(..., V) -> (..., V)"""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def log_probability(source_ids, ids):
    """log P of a whole sentence. source_ids (1, S), ids without </s>"""
    logits, _ = model.forward(source_ids, np.array([[BOS, *ids]]))      # (1, n, V)
    return log_softmax(logits[0])[np.arange(len(ids) + 1), [*ids, EOS]].sum()


COWS = "If the child is sad, the cows sleep in front of the door."
OURS = "Wenn das Kind traurig ist, schlafen die Kühe vor der Tür."
source_ids = np.array([[*tokenizer.encode([COWS])[0], EOS]])            # (1, S)
[[greedy]] = search(model, source_ids, beam=1)
print(COWS)
table(["", "translation", "probability"],
      [[who, tokenizer.decode([ids])[0], f"{p:.3f}"]
       for who, ids in (("greedy", greedy.ids), ("ours", *tokenizer.encode([OURS])))
       for p in [math.exp(log_probability(source_ids, ids))]])

# %% [markdown]
# *Die Kühe* (the cows) are several, so they *schlafen*. Greedy search wrote *schläft*, the form for one animal. But the
# model itself gives the correct sentence nearly twice the probability! So it was the search that missed it. How do we
# find the likeliest sentence? We can't try them all: with 1,600 pieces there are $1600^{16} \approx 10^{51}$ sentences
# of 16 pieces, the length of this one.
#
# ## The picture
#
# Let's shrink the problem. A tiny model translates *Do the cows sleep?*, and we made up its probabilities. In German
# the verb comes first here. So the model must choose between *schläft* (one sleeps) and *schlafen* (several sleep)
# before it writes who: *die Kuh* (the cow), *die Kühe* (the cows) or *das Kalb* (the calf). Each counts as one piece.
# Then comes *heute* (today) or `</s>`, the end.

# %% The drawing
show(beam_pictures.tree(), "20_tree",
     alt="A tree. From the start sign, schläft has probability 0.6 and schlafen 0.4. "
     "After schläft: die Kuh 0.5, die Kühe 0.4, das Kalb 0.1, with the products 0.3, "
     "0.24 and 0.06. After schlafen: die Kühe 0.9, die Kuh 0.1, products 0.36 and "
     "0.04. Then the end: after schläft die Kuh 0.6, product 0.18, the dashed path of "
     "greedy search; after schlafen die Kühe 0.8, product 0.288, the solid path. "
     "Heute has 0.4 and 0.2, products 0.12 and 0.072.",
     caption="The likeliest sentence (blue) starts with the smaller number; greedy "
     "search (dashed) takes the larger one.")

# %% [markdown]
# A number on a line is the probability of that piece after the pieces before it. A number in a box is the product of
# all lines up to there: the probability of the whole beginning. Greedy search gets 0.6 · 0.5 · 0.6 = 0.18. The blue
# path starts lower, but gets 0.4 · 0.9 · 0.8 = 0.288. Greedy search can't find it, because it dropped *schlafen* in
# step 1.
#
# ## By hand
#
# So let's keep more than one beginning. **Beam search** keeps the $K$ likeliest, called **hypotheses**. $K$ is the
# **beam size**. Each step continues every hypothesis with every piece, multiplies, and keeps the $K$ best of *all*
# continuations. Take a pencil and $K = 2$:
#
# | step | continuations, the best first | kept |
# |---|---|---|
# | 1 | schläft **0.6**, schlafen **0.4** | both |
# | 2 | schlafen die Kühe 0.4 · 0.9 = **0.36**, schläft die Kuh 0.6 · 0.5 = **0.3**, smaller ones | first two |
# | 3 | schlafen die Kühe `</s>` 0.36 · 0.8 = **0.288**, schläft die Kuh `</s>` 0.3 · 0.6 = **0.18**, … | see below |

# %% The drawing
show(beam_pictures.beam(), "20_beam",
     alt="The same tree under a beam of 2. Step 1 keeps schläft in row 0 and schlafen "
     "in row 1. Step 2 keeps schlafen die Kühe, 0.36, in row 0 and schläft die Kuh, "
     "0.3, in row 1; schläft die Kühe, schläft das Kalb and schlafen die Kuh are "
     "struck out. In step 3 two sentences are finished, 0.18 and 0.288, and the two "
     "with heute, 0.12 and 0.072, are alive.",
     caption="A beam of 2: “row” is the rank among the hypotheses kept.")

# %% [markdown]
# In step 2 all five continuations compete. So one hypothesis may keep several continuations, and another none. Look
# at the rows, too: *schlafen* was in row 1, and its continuation is in row 0. We'll need that later.
#
# In step 3 two sentences reach `</s>`. They are finished, so they leave the beam. The two with *heute* are still alive,
# but they have at most 0.12. They can only shrink, because every further piece multiplies by at most 1. We hold 0.288,
# so we may stop.
#
# Is 0.288 the best of all? Here yes: the struck-out beginnings had at most 0.24. But nobody promises it. If we held
# only 0.2, the struck-out 0.24 might lead to a better sentence.
#
# What does a beam cost? In each step the decoder runs for $K$ rows instead of one. So for 16 pieces, greedy search
# computes 16 · 1,600 = 25,600 probabilities, and a beam of 4 about four times as many. That is far from $10^{51}$.
#
# **Your turn.** Make a tree of your own on which greedy search loses by a factor of two and a beam of 2 wins:
# `exercises/20_greedy_trap.py`, then `scratchformer learn check 20`.
#
# ## In general
#
# Let $x$ be the source and $Y = y_1 \dots y_n$ a sentence that ends with $y_n$ = `</s>`. A product of thirty
# probabilities is tiny, so we add their logarithms:
#
# $$\log P(Y \mid x) = \sum_{t=1}^{n} \log P(y_t \mid y_1, \dots, y_{t-1}, x)$$
#
# In the tree: ln 0.288 = −1.24 beats ln 0.18 = −1.71. Nearer to zero is better.
#
# Now one step, with $W$ hypotheses and $V$ pieces. In the code, `alive` holds $a_w$, the log probability of hypothesis
# $w$: the number in its box, as a logarithm. `log_p` holds $\ell_{wv}$, that of piece $v$ after it: the number on the
# line. All $W \cdot V$ sums $a_w + \ell_{wv}$ compete. For each winner we need its sum, its last piece, and its
# **parent**: the hypothesis that it continues.
#
# **Your turn.** Write this step, three lines of NumPy, in `exercises/20_beam_step.py`. In step 2 of our tree the two
# best sums are ln 0.36 and ln 0.3, and their parents are 1 and 0.

# %% Our solution
def beam_step(alive, log_p, n):
    """alive (W,), log_p (W, V) -> totals, parents, tokens, (n,) each: the n best"""
    totals = (alive[:, None] + log_p).ravel()               # (W V,)
    best = np.argsort(-totals)[:n]
    return totals[best], *divmod(best, log_p.shape[1])      # row and column in (W, V)


with np.errstate(divide="ignore"):                          # log 0: never written
    step_2 = beam_step(np.log([0.6, 0.4]), np.log([[0.5, 0.4, 0.1], [0.1, 0.9, 0]]), 2)
assert np.allclose(np.exp(step_2[0]), [0.36, 0.3])
assert step_2[1].tolist() == [1, 0] and step_2[2].tolist() == [1, 0]

# %% [markdown]
# ## Short sentences have an advantage
#
# Every further piece makes a product smaller. So a sentence that leaves something out can be likelier than a complete
# one. Here are two translations of *The cows sleep in the garden today*, with log probabilities that we made up:
#
# | translation | pieces $n$ | log P | penalty $(5 + n)/6$ | score |
# |---|---|---|---|---|
# | die Kühe schlafen `</s>` | 4 | **−1.5** | 9/6 = 1.5 | −1.5 / 1.5 = −1 |
# | die Kühe schlafen heute im Garten `</s>` | 7 | −1.7 | 12/6 = 2 | −1.7 / 2 = **−0.85** |
#
# By log P the short one wins, although the garden is missing. So we divide by a **length penalty** that grows with the
# number of pieces, and the long one wins. The usual formula has a knob, $\alpha$:
#
# $$\mathrm{score}(Y) = \frac{\log P(Y \mid x)}{lp(n)}, \qquad lp(n) = \left(\frac{5 + n}{6}\right)^{\alpha}$$
#
# With $\alpha = 0$ the penalty is 1, so nothing changes. Our table has $\alpha = 1$. The paper takes $\alpha = 0.6$:
# the scores are then −1.18 and −1.12. Our real translator needs the penalty, too. Without it, a beam of 4 drops *on
# Tuesday* from a sentence ([lab notes 20, experiment 3](lab/20_beam_search.py#experiment-3-beam-penalty-and-quality)).
#
# **Your turn.** Write the score in `exercises/20_length_penalty.py`. Does `</s>` count as a piece?

# %% Our solution
def lp(n, alpha):
    """n pieces, </s> among them: the model wrote it, and its log P is in the sum."""
    return ((5 + n) / 6) ** alpha

# %% [markdown]
# ## The whole search
#
# Now everything together, for one sentence and the real model. `decoding_step` reads the last piece of each hypothesis
# and returns the logits of the next one. Because of the causal mask of lesson 06, the keys and values of earlier
# positions never change. So `state` keeps them in a **cache**, one row for each hypothesis.

# %%
def beam_search(source_ids, K, alpha):
    """source_ids (1, S) -> finished sentences, best first: (score, ids)"""
    longest = source_ids.size + 50
    state = begin_decoding(model, source_ids, K)    # reads the source; K rows of cache
    ids, alive, done = np.full((1, 1), BOS), np.zeros(1), []        # W = 1 at first
    for n in range(1, longest + 1):
        logits, state = decoding_step(model, ids[None, :, -1], state)   # (1, W, V)
        log_p = log_softmax(logits[0])                              # (W, V)
        log_p[:, [PAD, BOS]] = -np.inf                              # never written
        totals, parents, tokens = beam_step(alive, log_p, 2 * K)    # (2 K,) each
        ends = tokens == EOS
        done += [(total / lp(n, alpha), ids[w, 1:].tolist())
                 for total, w in zip(totals[ends], parents[ends])]
        alive, parents, tokens = (x[~ends][:K] for x in (totals, parents, tokens))
        ids = np.column_stack([ids[parents], tokens])               # (W, t + 1)
        state = state.select([0], parents)      # each row gets its parent's cache
        if done and max(done)[0] >= alive[0] / lp(longest, alpha):
            break
    return sorted(done, reverse=True)


table(["score", "translation"],
      [[f"−{-score:.2f}", tokenizer.decode([ids])[0]]
       for score, ids in beam_search(source_ids, K=4, alpha=0.6)[:2]])

# %% Against the library
for K, alpha in (2, 0), (4, 0.6):
    (score, ids), *_ = beam_search(source_ids, K, alpha)
    [[theirs]] = search(model, source_ids, K, alpha)
    assert ids == theirs.ids and math.isclose(score, theirs.score)
same("score with a beam of 4, and the library's", score, theirs.score, 1e-9)

# %% [markdown]
# The cows have their plural. Three details:
#
# - **Why $2K$ continuations?** $K$ of them must go on. Each of the $K$ hypotheses can end in only one way, with `</s>`.
#   So at most $K$ of the $2K$ are finished.
# - **When does it stop?** Say the best living hypothesis has log P = −2, which can only fall. Say the largest possible
#   penalty is 2. Then its score can't get better than −2 / 2 = −1: a smaller penalty makes it worse, −2 / 1.5 = −1.33.
#   Once we hold a finished sentence of at least −1, we stop.
# - **Is $K = 1$ greedy search?** Not quite: our code also collects a second-best `</s>`, and that sentence may win. The
#   library runs plain greedy search for $K = 1$.
#
# ## Nothing to learn, but something to get wrong
#
# Picking the largest number has no gradient, so $K$ and $\alpha$ are tried out on validation text. But one line is easy
# to forget: `state.select`. In figure 2 the rows swap between step 1 and step 2. So the rows of the cache must swap,
# too:
#
# | row | hypothesis after step 2 | its cache must hold | without `select` it holds |
# |---|---|---|---|
# | 0 | schlafen die Kühe | schlafen | schläft |
# | 1 | schläft die Kuh | schläft | schlafen |
#
# Suppose we forget that line. In row 0 the model then sees *schläft die Kühe*, which we had struck out. Will the
# program crash? What will it write?
#
# <details><summary>Make a guess, then unfold: the tree with mixed-up caches</summary>

# %% The drawing
show(beam_pictures.confused(), "20_confused",
     alt="The same tree. Row 0, schlafen die Kühe, reads the probabilities of the "
     "struck-out schläft die Kühe: the end 0.3, product 0.108 instead of 0.288; heute "
     "0.7, product 0.252 instead of 0.072. Row 1, schläft die Kuh, reads those of "
     "schlafen die Kuh: both 0.5, products 0.15 instead of 0.18 and 0.12.",
     caption="With the caches left in their rows, step 3 takes its numbers from "
     "struck-out hypotheses.")

# %% [markdown]
# It doesn't crash. The best number in step 3 is now 0.36 · 0.7 = 0.252, where 0.072 would be right. So the program goes
# on with *heute*, although the question never said *today*.
#
# </details>
#
# Would you notice? With this mistake, 500 test sentences got a BLEU of 97.70 instead of 97.64, so BLEU doesn't show it.
# This test does: run *one* forward pass over each finished sentence, and compare its log P with the one that the search
# claims. Six of the 500 differ. Of 39 sentences of the same grammar, but about three times as long, 34 differ ([lab
# notes 20, experiment 5](lab/20_beam_search.py#experiment-5-the-caches-stay-in-their-rows)).
#
# ## Does it matter?
#
# Is a beam of 16 better than one of 4? Our small grammar is so easy that BLEU is 97 already. So we take harder text:
#
# - **Text:** 1,000 captions of photos from Multi30k, translated by people.
# - **Model:** a small one, trained once on 29,000 other captions. Greedy search has a BLEU of only 28.7.
# - **Changed:** the beam, first without a penalty ($\alpha = 0$), then with $\alpha = 0.6$.
#
# Larger beams find a higher log P on average, as they should. What happens to BLEU? Do all translations get a little
# shorter, or some very short?
#
# <details><summary>Make a guess, then unfold: quality against beam size</summary>

# %% The table
run = recorded("beam_lengths")["results"][0]
written = beam_lengths.written_by(run)                      # (beam, alpha) -> ...
drawn = bleu_by_hand.resamples(1000, 1000, np.random.default_rng(0))
greedy = written[1, 0]


def row(name, one, log_p=""):
    """BLEU, and the 95 % interval of its difference from greedy search"""
    low, high = bleu_by_hand.difference_interval(greedy.table, one.table, drawn)
    return [name, log_p or f"−{-one.log_probability:.1f}", one.empty.sum(),
            f"{one.bleu:.1f}", f"{low:+.1f} to {high:+.1f}".replace("-", "−")]


table(["search", "mean log P", "empty", "BLEU", "BLEU − greedy's, 95 % interval"],
      [["greedy", f"−{-greedy.log_probability:.1f}", 0, f"{greedy.bleu:.1f}", ""],
       *(row(f"beam {K}", written[K, 0]) for K in (2, 4, 16)),
       row("beam 16, repaired", written[16, 0].where_empty(greedy), "–"),
       *(row(f"beam {K}, α = 0.6", written[K, 0.6]) for K in (4, 16))])

# %% The figure
pieces = beam_lengths.numbers(run["reference_tokens"])
figure, panels = plt.subplots(1, 3, figsize=(8.6, 2.8), sharey=True,
                              layout="constrained")
for panel, (K, alpha, title) in zip(panels, [
        (1, 0, "greedy"), (16, 0, "beam 16, α = 0"), (16, 0.6, "beam 16, α = 0.6")]):
    one = written[K, alpha]
    ratios = (one.tokens / pieces)[~one.empty]
    panel.hist(ratios, np.arange(0.05, 2.06, 0.1), color=DARK)
    panel.bar(0, one.empty.sum(), 0.1, color=ACCENT)
    panel.text(0.12, 232, f"{one.empty.sum()} empty", color=ACCENT)
    panel.set(title=title, xlabel="pieces / reference's pieces", xlim=(-0.1, 2),
              ylim=(0, 275))
panels[0].set_ylabel("translations of 1,000")
there = ~written[16, 0].empty                               # the others, 752 captions
shorter = 1 - written[16, 0].tokens[there].sum() / greedy.tokens[there].sum()
show(figure, "20_lengths",
     alt="Three histograms of the length of 1,000 translations over the length of the "
     "reference. Greedy search: one hump around 0.9, no empty translations. Beam 16 "
     "without a penalty: a tall bar of 248 empty translations at 0, and a hump around "
     "0.8. Beam 16 with alpha 0.6: a hump around 0.8 and 24 empty translations.",
     caption="Without a penalty, a quarter of the translations of beam 16 are empty.")
measure("the other 752: share of greedy search's pieces that is gone", shorter,
        0.18, 0.2)

# %% [markdown]
# The last column says how sure the difference is (lesson 21). If 0 lies in the interval, 1,000 captions can't tell.
#
# Without a penalty, BLEU falls to 20.1 with a beam of 16. Two things happened. First, 248 translations are empty: the
# search chose `</s>` as the first piece. Second, the others are a fifth shorter than greedy search's for the same
# captions. Which of the two costs BLEU? In the row *repaired* only the empty ones are replaced, by greedy search's.
# BLEU is 28.7 again, so nearly all of the loss came from the empty ones.
#
# How can an empty sentence be likely? Each of the many pieces of a greedy translation costs a little: −13.0 together,
# on average. The empty sentence has a single piece, `</s>`, with −8.2 (the median). It's never the *likeliest* first
# piece, so greedy search doesn't take it. A larger beam finds it. Trained without label smoothing, the same model
# writes only one empty translation, so we think that smoothing has a part in it ([lab notes 20, experiment
# 4](lab/20_beam_search.py#experiment-4-do-all-shrink-or-do-some-collapse)).
#
# With $\alpha = 0.6$, 24 translations of beam 16 are still empty, but BLEU is 29.3. So the penalty repairs the loss.
# Whether it beats greedy search, these captions can't tell.
#
# **A larger beam finds likelier sentences, but not always better ones. Here it needs the penalty.**
#
# </details>
#
# ## Other ways to write
#
# A chatbot should vary what it says. So it chooses each piece at random, with the model's probabilities: **sampling**.
# Three knobs make unlikely pieces rarer. A **temperature** $T$ divides the logits: $T = 0.5$ squares the probabilities,
# before they are divided by their sum. **Top-k** keeps the $k$ likeliest pieces. **Top-p** keeps the likeliest pieces
# until their sum is at least $p$. For example:

# %% The three knobs
p = np.array([0.5, 0.3, 0.15, 0.05])                        # the likeliest first
knobs = {"T = 0.5": p**2,
         "top-k, k = 2": p * (np.arange(4) < 2),
         "top-p, p = 0.9": p * (np.cumsum(p) - p < 0.9)}    # before it: not yet 0.9
table(["", "1st piece", "2nd", "3rd", "4th"],
      [["the model", *(f"{each:g}" for each in p)],
       *([name, *(f"{each:.3f}" if each else "0" for each in kept / kept.sum())]
         for name, kept in knobs.items())])

# %% [markdown]
# With $p = 0.9$ two pieces aren't enough: 0.5 + 0.3 = 0.8.
#
# In translation, variety costs quality. On 100 test sentences of our first translator, sampling has a BLEU of 69, with
# top-p 0.9 it has 95, and a beam of 4 has 98 ([lab notes 20, experiment
# 7](lab/20_beam_search.py#experiment-7-sampling-and-minimum-bayes-risk)).
#
# ## Paper and code
#
# Section 6.1: "beam search with a beam size of 4 and length penalty $\alpha = 0.6$". The formula of the penalty is from
# Wu et al. (2016). In the library: [decoding/search.py](../scratchformer/decoding/search.py), and the caches in
# [decoding/incremental.py](../scratchformer/decoding/incremental.py).
#
# ## What to remember
#
# No: the likeliest words don't add up to the likeliest sentence. Beam search keeps the $K$ likeliest beginnings, and
# all their continuations compete. When a hypothesis changes its row, its cache must move with it. And the likeliest
# sentence may be too short, so we divide its log P by a length penalty.
#
# **Exercises** `20_greedy_trap` · `20_beam_step` · `20_length_penalty`
#
# **Next:** [21 · BLEU, its error bars, and averaging checkpoints](21_bleu_and_averaging.py)
