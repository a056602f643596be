# %% [markdown]
# # 20 · Beam search
#
# **If we take the likeliest word at every step, do we get the likeliest sentence?**
#
# *Needs [lesson 06](06_masks.py) (masks), [lesson 17](17_byte_pairs.py) (pieces) and [lesson
# 19](19_train_a_translator.py) (a trained translator) · you will run a beam search with pencil and paper.*

# %% Imports
import math

import numpy as np

from scratchformer.decoding.incremental import begin_decoding, decoding_step
from scratchformer.decoding.search import search
from scratchformer.text.tokenizer import BOS, EOS, PAD
from scratchformer.training.run import load_run
from support import beam_lengths, beam_pictures, bleu_by_hand
from support.lesson import ROOT, measure, quote, recorded, show, table

# %% [markdown]
# Here is the translator of [lesson 00](00_whole_game.py). It translates **greedily**: it takes the likeliest piece,
# writes it down, and asks for the next one. We wrote a second translation, and asked the model for the probability of
# both.

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
# *Die Kühe* (the cows) *schlafen*. Greedy search wrote *schläft*, the form for one animal. But the
# model itself gives the correct sentence nearly twice the probability! So it was the search that missed it. We can't
# try all sentences: with 1,600 pieces, there are $1600^{16} \approx 10^{51}$ of 16 pieces.
#
# ## The picture
#
# A tiny model translates *Do the cows sleep?*, and we made up its probabilities. In German the verb comes first here.
# So the model must choose between *schläft* (one sleeps) and *schlafen* (several sleep) before it writes who: *die Kuh*
# (the cow), *die Kühe* (the cows) or *das Kalb* (the calf). Each counts as one piece. Then comes *heute* (today) or
# `</s>`, the end.

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
# path gets 0.4 · 0.9 · 0.8 = 0.288. Greedy search can't find it, because it dropped *schlafen* in step 1.
#
# ## By hand
#
# So let's keep more than one beginning. **Beam search** keeps $K$ of them, called **hypotheses**. $K$ is the **beam
# size**. Each step has four points:
#
# 1. Continue every hypothesis with every piece, and multiply.
# 2. Take the $2K$ likeliest of all these continuations.
# 3. Those that end with `</s>` are finished: they go to a list.
# 4. Of the others, the $K$ likeliest stay alive: the next hypotheses.
#
# Why $2K$? A hypothesis can end in only one way, with `</s>`. So at most $K$ of the $2K$ are finished, and enough are
# left. Take a pencil and $K = 2$:
#
# | step | the four likeliest continuations | finished | alive |
# |---|---|---|---|
# | 1 | schläft **0.6**, schlafen **0.4**, no others | | 0.6, 0.4 |
# | 2 | schlafen die Kühe 0.4 · 0.9 = **0.36**, schläft die Kuh 0.6 · 0.5 = **0.3**, 0.24, 0.06 | | 0.36, 0.3 |
# | 3 | `</s>` 0.36 · 0.8 = **0.288**, `</s>` 0.3 · 0.6 = **0.18**, 0.12, 0.072 | 0.288, 0.18 | 0.12, 0.072 |

# %% The drawing
show(beam_pictures.beam(), "20_beam",
     alt="The same tree under a beam of 2. Step 1 keeps schläft in row 0 and schlafen "
     "in row 1. Step 2 keeps schlafen die Kühe, 0.36, in row 0 and schläft die Kuh, "
     "0.3, in row 1; schläft die Kühe, schläft das Kalb and schlafen die Kuh are "
     "struck out. In step 3 two sentences are finished, 0.18 and 0.288, and the two "
     "with heute, 0.12 and 0.072, are alive.",
     caption="A beam of 2: “row” is the rank among the hypotheses kept.")

# %% [markdown]
# <!-- widget: beam, in the figure's place -->
#
# In step 2, the continuations of both hypotheses compete. One hypothesis may keep several, and another none.
#
# After step 3 we may stop. We hold 0.288, and what is alive has at most 0.12, which can't grow.
#
# A beam doesn't always find the best, either: what it strikes out may lead there.
#
# For $n$ pieces out of $V$, greedy search computes $nV$ probabilities, and a beam about $K$ times as many.
#
# **Your turn.** Make a tree on which greedy search loses by a factor of two and a beam of 2 wins: the hunt
# `greedy_trap`, then `scratchformer learn check greedy_trap`.
#
# ## In general
#
# Let $x$ be the source and $Y = y_1 \dots y_n$ a sentence that ends with $y_n$ = `</s>`. A computer may round a product
# of many probabilities to 0, so we add their logarithms:
#
# $$\log P(Y \mid x) = \sum_{t=1}^{n} \log P(y_t \mid y_1, \dots, y_{t-1}, x)$$
#
# In the tree: ln 0.288 = −1.24 beats ln 0.18 = −1.71.
#
# Now points 1 and 2 of a step, for $W$ hypotheses and $V$ pieces. `alive` holds $a_w$, the logarithm of the number in
# the box of hypothesis $w$. `log_p` holds $\ell_{wv}$, the logarithm of the number on the line from there to piece $v$.
# All $W \cdot V$ sums $a_w + \ell_{wv}$ compete. For each of the `n` best we need the sum, the last piece, and the
# **parent**: the hypothesis that it continues.
#
# **Your turn.** Write this in three lines of NumPy, before you unfold ours. In step 2 of our tree, 2 · 3 sums compete
# (*schlafen das Kalb* has probability 0 and isn't drawn). The best are ln 0.36 and ln 0.3, with the parents 1 and 0.

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
# A further piece never makes a product larger. So a sentence that leaves something out can be likelier than a complete
# one. That's why finished sentences are ranked by a score: log P, divided by a **length penalty** that grows with the
# number $n$ of pieces. It has a knob, $\alpha$:
#
# $$\mathrm{score}(Y) = \frac{\log P(Y \mid x)}{lp(n)}, \qquad lp(n) = \left(\frac{5 + n}{6}\right)^{\alpha}$$
#
# (5 and 6 are a convention of Wu et al., 2016.) Here are two translations of *The cows sleep in the garden today* with
# $\alpha = 1$. We made up log P:
#
# | translation | log P | penalty | score |
# |---|---|---|---|
# | die Kühe schlafen `</s>` | **−1.5** | (5 + 4) / 6 = 1.5 | −1.5 / 1.5 = −1 |
# | die Kühe schlafen heute im Garten `</s>` | −1.7 | (5 + 7) / 6 = 2 | −1.7 / 2 = **−0.85** |
#
# By log P the short one wins, by the score the long one. With $\alpha = 0$ the penalty is always 1, so nothing changes.
# The paper takes $\alpha = 0.6$: the scores are then −1.18 and −1.12.
#
# **Your turn.** Write the score, before you unfold ours. Does `</s>` count as a piece?

# %% Our solution
def lp(n, alpha):
    """n pieces, </s> among them: the model wrote it, and its log P is in the sum."""
    return ((5 + n) / 6) ** alpha

# %% [markdown]
# ## The whole search
#
# `decoding_step` reads the last piece of each hypothesis and returns the logits of the next one. Because of the causal
# mask of lesson 06, the keys and values of earlier positions never change. So `state` keeps them in a KV cache ([lesson
# 07](07_many_heads.py)), one row for each hypothesis. At the start, all $K$ rows hold `<s>`. Only row 0 counts: the
# copies get probability 0, so log P = −∞.
#
# **Your turn.** Write `beam_search(source, model, beam, alpha, longer)` in `transformer.py`: $K$ is `beam`, a sentence
# has at most `source.size + longer` words, and the result is the ids of the best one, without `BOS` and `EOS`. There is
# no cache: `decode` reads all words of a hypothesis again for each new one. So the search begins with a single
# hypothesis. Then write `translate(sentence)`: load `WEIGHTS`, turn the words into ids and `EOS`, search, and print.
# `scratchformer learn check beam_search translate`.

# %%
quote("beam_search", "translate")

# %% [markdown]
# The same search with a cache:

# %%
def beam_search(source_ids, K, alpha):
    """source_ids (1, S) -> finished sentences, best first: (score, ids)"""
    longest = source_ids.size + 50
    state = begin_decoding(model, source_ids, K)                # reads the source
    ids = np.full((K, 1), BOS)                                  # (K, pieces so far)
    alive = np.array([0] + [-np.inf] * (K - 1))                 # (K,) log P
    done = []
    for n in range(1, longest + 1):
        logits, state = decoding_step(model, ids[None, :, -1], state)   # (1, K, V)
        log_p = log_softmax(logits[0])                          # (K, V)
        log_p[:, [PAD, BOS]] = -np.inf                          # never written
        totals, parents, tokens = beam_step(alive, log_p, 2 * K)
        ends = tokens == EOS
        done += [(total / lp(n, alpha), ids[w, 1:].tolist())
                 for total, w in zip(totals[ends], parents[ends])]
        alive, parents, tokens = (x[~ends][:K] for x in (totals, parents, tokens))
        ids = np.column_stack([ids[parents], tokens])
        state = state.select([0], parents)          # each row gets its parent's cache
        if done and max(done)[0] >= alive[0] / lp(longest, alpha):
            break                                   # nothing alive can win
    return sorted(done, reverse=True)

# %% The two best, and the library's search
found = beam_search(source_ids, K=4, alpha=0.6)
table(["score", "translation"],
      [[f"−{-score:.2f}", tokenizer.decode([ids])[0]] for score, ids in found[:2]])

lines = (ROOT / "data/tiny/test.en").read_text(encoding="utf-8").splitlines()[:10]
for line in [COWS, *lines]:
    encoded = np.array([[*tokenizer.encode([line])[0], EOS]])
    for K, alpha in (2, 0), (4, 0.6):
        (score, ids), *_ = beam_search(encoded, K, alpha)
        [[theirs]] = search(model, encoded, K, alpha)
        assert ids == theirs.ids and math.isclose(score, theirs.score)

# %% [markdown]
# The library's search finds the same, here and for ten test sentences. The search stops when no hypothesis alive can
# win, even with the largest penalty.
#
# <!-- see: transplant?beam=2 | the beam search of a trained model, step by step -->
#
# ## Nothing to learn, but something to get wrong
#
# Training never searches: it is given the right pieces. So $K$ and $\alpha$ are chosen afterwards, on validation text.
#
# One line is easy to forget: `state.select`. In figure 2, *schlafen* was in row 1, and its continuation is in row 0. So
# the rows of the cache must swap, too:
#
# | row | hypothesis after step 2 | its cache must hold | without `select` it holds |
# |---|---|---|---|
# | 0 | schlafen die Kühe | schlafen | schläft |
# | 1 | schläft die Kuh | schläft | schlafen |
#
# Suppose we forget that line. In row 0 the model then sees the struck-out *schläft die Kühe*. Let it go on with `</s>`
# 0.3 and *heute* 0.7. In row 1 it sees *schlafen die Kuh*: let both have 0.5 there. Will the program crash? Which of
# the four continuations is now the likeliest?
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
# It doesn't crash. The largest number in step 3 is now 0.36 · 0.7 = 0.252, where 0.072 would be right. So the program
# goes on with *heute*.
#
# </details>
#
# BLEU, the score of translations from 0 to 100 ([lesson 21](21_bleu_and_averaging.py)), doesn't show it: on 40 long
# sentences it is 21.0 with this mistake and 20.5 without. This test does: run *one* forward pass over each finished
# sentence, and compare its log P with the search's. Of 39 finished sentences, 34 differ ([lab notes 20, experiment
# 3](lab/20_beam_search.py#experiment-3-the-caches-stay-in-their-rows)).
#
# ## Does it matter?
#
# Rarely: for only 2 of 200 test sentences, a beam of 4 finds a likelier translation ([lab notes 20, experiment
# 1](lab/20_beam_search.py#experiment-1-an-easy-text)). On harder text, is a beam of 16 better than one of 4?
#
# - **Text:** 1,000 test captions from Multi30k.
# - **Model:** a small one, trained once on 29,000 other captions.
# - **Changed:** the beam, first without a penalty ($\alpha = 0$), then with $\alpha = 0.6$.
#
# What happens to BLEU? Do all translations get a little shorter, or some very short?
#
# <details><summary>Make a guess, then unfold: quality against beam size</summary>
#
# - *Empty* counts translations without a single word. In the row *repaired*, they are replaced by greedy search's.
# - The last column says how sure the difference is, for this one training (lesson 21). If 0 lies in it, 1,000 captions
#   can't tell.

# %% The table
run = recorded("beam_lengths")["results"][0]
written = beam_lengths.written_by(run)                      # (beam, alpha) -> ...
drawn = bleu_by_hand.resamples(1000, 1000, np.random.default_rng(0))
greedy = written[1, 0]


def row(name, one):
    """BLEU, and the 95 % interval of its difference from greedy search"""
    low, high = bleu_by_hand.difference_interval(greedy.table, one.table, drawn)
    return [name, one.empty.sum(), f"{one.bleu:.1f}",
            f"{low:+.1f} to {high:+.1f}".replace("-", "−")]


table(["search", "empty", "BLEU", "BLEU − greedy's, 95 %"],
      [[*row("greedy", greedy)[:-1], ""],
       *(row(f"beam {K}", written[K, 0]) for K in (4, 16)),
       row("beam 16, repaired", written[16, 0].where_empty(greedy)),
       *(row(f"beam {K}, α = 0.6", written[K, 0.6]) for K in (4, 16))])
likelier = run["settings"][0]["empty_is_likelier"]
measure("captions whose empty translation is likelier than greedy search's", likelier,
        546, 546)
likely = [round(written[K, 0].log_probability, 1) for K in (1, 16)]
assert likely == [-13.0, -7.3]

# %% [markdown]
# Without a penalty, a beam of 16 finds likelier sentences: their mean log P is −7.3, and greedy search's is −13.0. But
# BLEU falls to 20.1. For 248 captions the search chose `</s>` as the first piece, so the translation is empty. With the
# empty ones repaired, BLEU is 28.7 again. So nearly all of the loss came from them.
#
# Why is an empty sentence likely? Each of the many pieces of a greedy translation costs a little. The empty sentence
# pays only once, for `</s>`. For 546 of the 1,000 captions it's the likelier one. Greedy search doesn't find it,
# because `</s>` is never the likeliest *first* piece. A beam of 16 also looks at less likely ones. With a second model,
# trained once without label smoothing, it wrote only 1 empty translation ([lab notes 20, experiment
# 2](lab/20_beam_search.py#experiment-2-do-all-shrink-or-do-some-collapse)).
#
# With $\alpha = 0.6$, BLEU is 29.3 for both beams: the penalty repairs the loss. Whether a beam beats greedy search,
# these captions can't tell. With the second model, a beam of 4 does: by 1.1 points (+0.5 to +1.8).
#
# </details>
#
# ## Other ways to write
#
# A chatbot chooses each piece at random instead, with the model's probabilities: **sampling** ([lesson 22](22_gpt.py)).
#
# On 100 test sentences, sampling has a BLEU of 69, sampling among likely pieces alone (top-p 0.9) has 95, and a beam of
# 4 has 98 ([lab notes 20, experiment 4](lab/20_beam_search.py#experiment-4-sampling)).
#
# ## Your file is complete
#
# All 22 functions are yours. Train, translate, and look at your own weights in the browser:
#
# ```
# scratchformer learn train
# scratchformer learn translate "The dog ate the apple."
# scratchformer learn explore
# ```
#
# ## Paper and code
#
# Section 6.1: a beam of 4. In the library: [decoding/search.py](../scratchformer/decoding/search.py), and the caches in
# [decoding/incremental.py](../scratchformer/decoding/incremental.py).
#
# ## What to remember
#
# A piece that looks best now can lead to a less likely sentence. Beam search keeps $K$ beginnings, and all their
# continuations compete. When a hypothesis changes its row, its cache moves with it. The likeliest sentence may be too
# short, so we divide log P by a length penalty.
#
# **Yours:** `beam_search`, `translate`, and the hunts `greedy_trap` and `bad_beam` · `scratchformer learn check 20`
#
# **Next:** [21 · BLEU and its error bars](21_bleu_and_averaging.py)
