# %% [markdown]
# # 20 · Beam search
#
# **If we take the likeliest word at every step, do we get the likeliest sentence?**
#
# *Needs [lesson 06](06_masks.py) (what a position may see), [lesson 17](17_byte_pairs.py) (pieces) and [lesson
# 19](19_train_a_translator.py) (a trained translator, and BLEU) · you will run a beam search with pencil and paper.*

# %% Imports
import math

import matplotlib.pyplot as plt
import numpy as np

from library import beam_lengths, beam_pictures, bleu_by_hand
from library.beam_pictures import NEXT
from library.lesson import ROOT, recorded, same, show, table
from scratchformer.decoding.incremental import begin_decoding, decoding_step
from scratchformer.decoding.search import length_penalty, search
from scratchformer.experiments.figures import ACCENT, DARK
from scratchformer.text.tokenizer import BOS, EOS, PAD
from scratchformer.training.run import load_run

# %% [markdown]
# Here is a trained translator, much like the one of lesson 19: two encoder layers, two decoder layers, trained on
# 20,000 pairs of English and German sentences. It writes a sentence **greedily**: it takes the likeliest piece, writes
# it down, and asks again. Then we asked the same model for the probability of a second translation, which we wrote
# ourselves.

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
# *Die Kühe* (the cows) are several, so they *schlafen*; greedy decoding wrote *schläft*, the form for one animal. But
# look at the right column: the model itself finds the right sentence nearly twice as likely! So it isn't the model
# that failed here, it is the way we asked. How do we find the sentence it likes best? We can't try them all: its 1,600
# pieces make $10^{51}$ sentences of 16 pieces, the length of this one.
#
# ## The picture
#
# Let's shrink the problem. A tiny model translates the question *Do the cows sleep?*, and all its probabilities are
# tenths. In a German question the verb comes first, so the model has to choose between *schläft* (one sleeps) and
# *schlafen* (several sleep) before it has written who sleeps: *die Kuh* (the cow), *die Kühe* (the cows) or *das Kalb*
# (the calf). Each of these counts as one piece. Then the sentence ends with `</s>`, or *heute* (today) follows.

# %% The drawing
show(beam_pictures.tree(), "20_tree",
     alt="A tree. From the start sign, schläft has probability 0.6 and schlafen 0.4. "
     "After schläft: die Kuh 0.5, die Kühe 0.4, das Kalb 0.1, with the products 0.3, "
     "0.24 and 0.06. After schlafen: die Kühe 0.9, die Kuh 0.1, products 0.36 and "
     "0.04. Then the end: after schläft die Kuh 0.6, product 0.18, the dashed path of "
     "greedy search; after schlafen die Kühe 0.8, product 0.288, the solid path. "
     "Heute has 0.4 and 0.2, products 0.12 and 0.072.",
     caption="Greedy search (dashed) takes the larger number at the first fork and "
     "ends at 0.18; the likeliest sentence (blue) starts with the smaller one.")

# %% [markdown]
# A number on a line is the probability of that piece after what stands before it. A number in a box is the product of
# all lines up to there, the probability of the whole beginning. Greedy search takes 0.6, then 0.5, then 0.6, and gets
# 0.6 · 0.5 · 0.6 = 0.18. The blue path pays more at first, but then the model is nearly sure: 0.4 · 0.9 · 0.8 = 0.288.
# What a choice costs may show only later, and by then greedy search has nothing else left.
#
# ## By hand
#
# So don't bet everything on one beginning. **Beam search** keeps the $K$ likeliest beginnings, called **hypotheses**,
# and $K$ is the **beam size**. Each step has three parts: continue every hypothesis with every piece, multiply, and
# keep the $K$ best of *all* of them. Take a pencil and $K = 2$:
#
# | step | continuations, the best first | kept |
# |---|---|---|
# | 1 | schläft **0.6**, schlafen **0.4** | both |
# | 2 | schlafen die Kühe 0.4 · 0.9 = **0.36**, schläft die Kuh 0.6 · 0.5 = **0.3**, smaller ones | first two |
# | 3 | schlafen die Kühe `</s>` 0.36 · 0.8 = **0.288**, schläft die Kuh `</s>` 0.3 · 0.6 = **0.18**, … | below |

# %% The drawing
show(beam_pictures.beam(), "20_beam",
     alt="The same tree under a beam of 2. Step 1 keeps schläft in row 0 and schlafen "
     "in row 1. Step 2 keeps schlafen die Kühe, 0.36, in row 0 and schläft die Kuh, "
     "0.3, in row 1; schläft die Kühe, schläft das Kalb and schlafen die Kuh are "
     "struck out. In step 3 two sentences are finished, 0.18 and 0.288, and the two "
     "with heute, 0.12 and 0.072, are alive.",
     caption="The same tree with a beam of 2: what is struck out was dropped, and "
     "“row” is the rank among the hypotheses kept.")

# %% [markdown]
# In step 2 all five continuations compete with each other. One hypothesis may keep several continuations, another none.
# Notice also the rows in figure 2: *schlafen* was second in step 1, and its continuation is first in step 2. We'll need
# that.
#
# In step 3 two sentences reach `</s>`. They are finished, so they leave the beam, and the two with *heute* are still
# alive. Can one of these still win? Their next product is at most 0.12, because every further piece multiplies by a
# number of at most 1. We hold 0.288, so we may stop. In code (finished sentences stay in the beam here):

# %%
beam = {(): 1.0}                                            # beginning -> probability
for step in range(3):
    longer = {(*words, piece): p * q
              for words, p in beam.items() for piece, q in NEXT[words].items()}
    beam = dict(sorted(longer.items(), key=lambda each: -each[1])[:2])
    print(*(f"{' '.join(words)} {p:.3g}" for words, p in beam.items()), sep="   ")

# %% [markdown]
# Is 0.288 really the best of all? Here yes: what we threw away had at most 0.24, and could only shrink. But nobody
# promises it. Had the best finished sentence been at 0.2, one of the struck-out beginnings might have beaten it. Beam
# search only looks at more beginnings than greedy search, which keeps only one.
#
# **Your turn.** Draw a tree of your own on which greedy search loses by a factor of two and a beam of 2 wins:
# `exercises/20_greedy_trap.py`, then `scratchformer learn check 20`.
#
# ## In general
#
# Let $x$ be the source and $Y = y_1 \dots y_n$ a sentence, where $y_n$ is `</s>`. A product of thirty probabilities is
# tiny, so we add their logarithms:
#
# $$\log P(Y \mid x) = \sum_{t=1}^{n} \log P(y_t \mid y_1, \dots, y_{t-1}, x)$$
#
# In the tree: ln 0.288 = −1.24 beats ln 0.18 = −1.71. Nearer to zero is better.
#
# For one step with $W$ hypotheses and $V$ pieces, call $a_w$ the log probability of hypothesis $w$ (`alive`, the boxes)
# and $\ell_{wv}$ that of piece $v$ as its next one (`log_p`, the lines). All $W \cdot V$ sums $a_w + \ell_{wv}$
# compete, and we need to know for each winner which hypothesis it continues, its **parent**, and with which piece.
#
# **Your turn.** Write this step, three lines of NumPy, in `exercises/20_beam_step.py`.

# %% Our solution
def beam_step(alive, log_p, n):
    """alive (W,), log_p (W, V) -> totals, parents, tokens, (n,) each: the n best"""
    totals = (alive[:, None] + log_p).ravel()               # (W V,)
    best = np.argsort(-totals)[:n]
    return totals[best], *divmod(best, log_p.shape[1])      # row and column in (W, V)

# %% [markdown]
# ## Short sentences have an advantage
#
# There is a trap. Every further piece makes a product smaller. So a sentence that leaves something out can be likelier
# than one that says everything. Here are two translations of *The cows sleep in the garden today*, with log
# probabilities that we made up:
#
# | translation | pieces $n$ | log P | penalty $(5 + n)/6$ | score |
# |---|---|---|---|---|
# | die Kühe schlafen `</s>` | 4 | **−1.5** | 9/6 = 1.5 | −1.5 / 1.5 = −1 |
# | die Kühe schlafen heute im Garten `</s>` | 7 | −1.7 | 12/6 = 2 | −1.7 / 2 = **−0.85** |
#
# By log probability the short one wins, although it forgets the garden. Divide by a **length penalty** that grows with
# the number of pieces, and the long one wins. The usual formula has a knob, $\alpha$, for how much length should count:
#
# $$\mathrm{score}(Y) = \frac{\log P(Y \mid x)}{lp(n)}, \qquad lp(n) = \left(\frac{5 + n}{6}\right)^{\alpha}$$
#
# With $\alpha = 0$ the penalty is 1, so nothing changes; our table has $\alpha = 1$. The paper takes $\alpha = 0.6$:
# then the scores are −1.18 and −1.12, and the long one still wins. Our real translator has this weakness as well:
# without a penalty, a beam of 4 drops *on Tuesday* from a sentence ([lab notes 20, experiment
# 3](lab/20_beam_search.py#experiment-3-beam-penalty-and-quality)).
#
# **Your turn.** Write the score in `exercises/20_length_penalty.py`. Does `</s>` count?

# %% Our solution
def lp(n, alpha):
    """n pieces, </s> among them: the model wrote it, and its log P is in the sum."""
    return ((5 + n) / 6) ** alpha

# %% [markdown]
# ## The whole search
#
# Now everything together, for one sentence and the real model. `decoding_step` reads the last piece of each hypothesis
# and returns the logits of the next one. It doesn't read the beginning again: the keys and values of earlier positions
# never change (that is the causal mask of lesson 06), so `state` keeps them in a **cache**, a row for each hypothesis.

# %%
def beam_search(source_ids, K, alpha):
    """source_ids (1, S) -> finished sentences, best first: (score, ids)"""
    longest = source_ids.size + 50
    state = begin_decoding(model, source_ids, K)
    ids, alive, done = np.full((1, 1), BOS), np.zeros(1), []        # (W, t), (W,)
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
        state = state.select([0], parents)                          # caches, too
        if done and max(done)[0] >= alive[0] / lp(longest, alpha):
            break
    return sorted(done, reverse=True)


for score, ids in beam_search(source_ids, K=4, alpha=0.6)[:2]:
    print(f"{score:.2f}  {tokenizer.decode([ids])[0]}")

# %% Against the library
for K, alpha in (2, 0), (4, 0.6):
    (score, ids), *_ = beam_search(source_ids, K, alpha)
    [[theirs]] = search(model, source_ids, K, alpha)
    same(f"score with beam {K}, and the library's", score, theirs.score, 1e-9)
    assert ids == theirs.ids
same("length penalty, and the library's", lp(7, 0.6), length_penalty(7, 0.6))

# %% [markdown]
# The cows have their plural. Two lines need a reason. **Why $2K$ continuations?** Finished sentences leave the beam.
# Each of the $K$ hypotheses can end in only one way, with `</s>`, so among $2K$ continuations at least $K$ go on.
# **When does it stop?** As in the tree: a living hypothesis can only lose probability. So its score can never be better
# than its log P of now over the largest penalty, and once we hold a better one, we stop.
#
# ## Nothing to learn, but something to get wrong
#
# Other lessons have a section called *Backward* here. Search has none: picking the largest number has no gradient, so
# nothing is learned, and $K$ and $\alpha$ are tried out on validation text. But there is one line that is easy to
# forget, `state.select`. Look at figure 2 again. Between step 1 and step 2 the rows swap: parents = (1, 0).
#
# | row | hypothesis after step 2 | its cache must hold | without `select` it holds |
# |---|---|---|---|
# | 0 | schlafen die Kühe | schlafen | schläft |
# | 1 | schläft die Kuh | schläft | schlafen |
#
# Without that line the model takes row 0 for *schläft die Kühe*, which we had struck out. There it says `</s>` 0.3 and
# *heute* 0.7. And it takes row 1 for *schlafen die Kuh*, where both have 0.5. Will the program crash? What will it
# write?
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
# It doesn't crash. The best number in step 3 is now 0.36 · 0.7 = 0.252, for *schlafen die Kühe heute*, where 0.072
# would be right. The best finished sentence has 0.15. So the program goes on with *heute*, and translates a question
# that never said *today*.
#
# </details>
#
# Would you notice? We planted this mistake in the library. On 500 test sentences BLEU was 97.70 instead of 97.64, so no
# score gives it away. What does: take each finished sentence, run *one* forward pass over it, and compare the log
# probability with the one that the search claims. Six of the 500 differ, and 34 of 39 much longer ones ([lab notes 20,
# experiment 5](lab/20_beam_search.py#experiment-5-the-caches-stay-in-their-rows)).
#
# ## Does it matter?
#
# A beam of 4 found the cows. Is a beam of 16 better still? We trained a second, weaker translator for this, again with
# two layers on each side, on Multi30k: 29,000 captions of photos, which people translated. It gets 1,000 new captions,
# and growing beams, first *without* a penalty ($\alpha = 0$). Larger beams find sentences with a higher log
# P, as they should. What happens to BLEU? And to the lengths: do all translations get a little shorter, or do some get
# very short?
#
# <details><summary>Make a guess, then unfold: quality against beam size</summary>

# %% The table
run = recorded("beam_lengths")["results"][0]
written = beam_lengths.written_by(run)                      # (beam, alpha) -> ...
drawn = bleu_by_hand.resamples(1000, 1000, np.random.default_rng(0))


def against_greedy(other):
    """BLEU, and the 95 % interval of its difference from greedy search"""
    tables = written[1, 0].table, other.table
    low, high = bleu_by_hand.difference_interval(*tables, drawn)
    return f"{other.bleu:.1f} ({low:+.1f} to {high:+.1f})".replace("-", "−")


rows = []
for K in 1, 2, 4, 8, 16:
    one = written[K, 0]
    bleus = [against_greedy(one), against_greedy(written[K, 0.6])] if K > 1 else \
        [f"{one.bleu:.1f}", ""]
    rows.append([K, f"−{-one.log_probability:.1f}", one.empty.sum(), *bleus])
repaired = against_greedy(written[16, 0].where_empty(written[1, 0]))
table(["beam", "log P, α = 0", "empty, α = 0", "BLEU, α = 0", "BLEU, α = 0.6"],
      [*rows, ["16, repaired", "", "0", repaired, ""]])

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
    panel.text(1.95, 245, f"{one.empty.sum()} empty", color=ACCENT, ha="right")
    panel.set(title=title, xlabel="pieces / reference's pieces", xlim=(-0.1, 2),
              ylim=(0, 275))
panels[0].set_ylabel("translations of 1,000")
show(figure, "20_lengths",
     alt="Three histograms of the length of 1,000 translations over the length of the "
     "reference. Greedy search: one hump around 0.9, no empty translations. Beam 16 "
     "without a penalty: a tall bar of 248 empty translations at 0, and a hump around "
     "0.8. Beam 16 with alpha 0.6: a hump around 0.8 and 24 empty translations.",
     caption="Without a penalty, a quarter of the translations of beam 16 are empty, "
     "and the others are about a fifth shorter than greedy ones.")

# %% [markdown]
# (In brackets: the 95 % interval of the difference from greedy search. It says how far chance in the choice of these
# captions could move the difference; lesson 21 builds it.) Without a penalty BLEU falls from 28.7 to 20.1. Two things
# happened. With beam 16, 248 translations are empty: the search chose `</s>` as the first piece. And the others have a
# fifth fewer pieces than greedy search's. Which of the two costs BLEU? In the row *repaired* we replaced only the empty
# ones by those of greedy search, and left the others short. BLEU is back at 28.7, so it was the empty ones.
#
# How can *nothing* be likely? In a whole caption many small doubts add up: greedy translations have a log P of −13.0 on
# average. An empty one costs a single piece, `</s>` at the start, with −8.2 (the median). For 546 captions that is more
# than what greedy search found. But `</s>` is never the likeliest first piece, so greedy search doesn't see it. A beam
# of $K$ looks at the $2K$ likeliest first pieces. For $K = 2$, `</s>` is among them for 104 captions; for $K = 16$, for
# 626. The larger beam only finds what the model preferred all along.
#
# And why does `</s>` get any probability there, if no training sentence begins with it? Label smoothing ([lesson
# 14](14_label_smoothing.py)) told the model to leave a little for every wrong piece. We trained the same model once
# more without it: the median of `</s>` falls to −13.2, a beam of 16 writes one empty translation, and BLEU is 28.6
# without any penalty (one training each).
#
# With $\alpha = 0.6$ BLEU stays at about 29.3, whatever the beam. Is that better than greedy search? By 0.5, but the
# interval includes 0, so these captions can't tell. For the model without smoothing they can: a beam of 2 gains 1.1
# (0.5 to 1.7). Whether 16 is better than 2 they can't tell for either model. ([Lab notes 20, experiment
# 4](lab/20_beam_search.py#experiment-4-do-all-shrink-or-do-some-collapse): the ranks, the intervals, other texts.)
#
# </details>
#
# ## Other ways to write
#
# Search looks for *one* likely sentence. A chatbot or a story should vary, so there one draws the next piece at random,
# with the model's probabilities: **sampling**. Dividing the logits by a **temperature** below 1 sharpens these
# probabilities, and **top-k** and **top-p** draw only among the $k$ likeliest pieces, or among the fewest that have the
# share $p$ together. A translation should say what the source says, and variety costs: on 100 test sentences of our
# first translator, sampling has a BLEU of 69, with top-p 0.9 it has 95, and a beam of 4 has 98. **Minimum Bayes risk**
# draws several translations and takes the one most similar to all the others. So a likely oddity doesn't win by its
# probability alone. It needs many samples, and with eight of them it scored 97 here ([lab notes 20, experiment
# 7](lab/20_beam_search.py#experiment-7-sampling-and-minimum-bayes-risk)).
#
# ## Paper and code
#
# Section 6.1: "beam search with a beam size of 4 and length penalty $\alpha = 0.6$", tried out on the development set,
# and at most 50 pieces more than the source has. The formula of the penalty is from Wu et al. (2016). In the library:
# `beam_search`, `best_continuations` and `length_penalty` in [decoding/search.py](../scratchformer/decoding/search.py),
# many sentences at once; the caches are in [decoding/incremental.py](../scratchformer/decoding/incremental.py).
#
# ## What to remember
#
# No: the likeliest words don't add up to the likeliest sentence. Beam search keeps the $K$ likeliest beginnings, lets
# all their continuations compete, and everything that belongs to a hypothesis must move with it. And the likeliest
# sentence isn't always the one we want: it may be short, or empty, so finished sentences are compared by log
# probability over a length penalty.
#
# **Exercises** `20_greedy_trap` · `20_beam_step` · `20_length_penalty` · and a puzzle:
#
# **Predict.** All $K$ hypotheses begin with the same `<s>`. What would a beam of 4 find if the first step continued
# four copies of `<s>` instead of one?
#
# <details><summary>Answer</summary>
#
# Four copies of the same likeliest piece: equal beginnings have equal continuations, and each fills four places. They
# stay together for ever, so the beam costs four times as much as greedy search and finds little more. That is why
# `ids` begins with a single row.
#
# </details>
#
# **Next:** [21 · BLEU, its error bars, and averaging checkpoints](21_bleu_and_averaging.py)
