# %% [markdown]
# # 21 · BLEU, its error bars, and averaging checkpoints
#
# *About 45 minutes. You need: [lesson 14](14_label_smoothing.py) (the loss in nats), [lesson 15](15_adam_and_warmup.py)
# (the learning rate), [lesson 17](17_byte_pairs.py) (pieces), [lesson 18](18_batches.py) (the noise in the gradient of
# a small batch), [lesson 19](19_train_a_translator.py) (a trained translator) and [lesson 20](20_beam_search.py)
# (greedy and beam search). You will have: BLEU from its definition, equal to that of the program sacreBLEU; an interval
# around a difference of two; and a measured answer to what the mean of the last checkpoints is good for.*

# %% Imports
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from library import bleu_by_hand
from library.lesson import QUICK, ROOT, measure, recorded, same, show
from scratchformer.decoding.search import search
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.experiments.heads import teacher_forced
from scratchformer.nn.attention import attention_weights
from scratchformer.nn.loss import forward_loss, loss_backward
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.bundled import Example
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training.run import load_run

# %% Reading the test set
translator = load_run(ROOT / "data/tiny_model")
english, german = ((ROOT / f"data/tiny/test.{language}").read_text(encoding="utf-8").splitlines()
                   for language in ("en", "de"))

# %% [markdown]
# ## Question
#
# **One translator scores a few tenths of BLEU more than another. Is it better?**
#
# The answer in one sentence: we can say so only if the difference is too large to come from the choice of the test
# sentences; how large that is can be estimated from the test set itself, if the two differ in enough of its sentences.
#
# Here are two translators: the shipped model, which comes with the clone, with greedy search and with a beam of 4.
# Which search should we use? The loss cannot say. It belongs to the model, and the model is the same. So count the
# translations that are exactly the reference, the translation that the test set gives, or take BLEU.

# %%
translations = {f"beam {size}": translator.translate(english, beam=size) for size in (1, 4)}         # 1: greedy
scores, exact = [], []
for system, lines in translations.items():
    exact.append(np.mean([ours == reference for ours, reference in zip(lines, german)]))
    scores.append(corpus_scores(lines, german).bleu)
    print(f"{len(lines)} sentences, {system}: {exact[-1]:.1%} exactly right, BLEU {scores[-1]:.2f}")
measure("share exactly right, beam 4 less greedy", exact[1] - exact[0], -0.003, 0.003)
measure("BLEU, beam 4 less greedy", scores[1] - scores[0], -0.3, -0.05)
n_differing = measure("translations that differ", sum(a != b for a, b in zip(*translations.values())), 2, 9)

# %% [markdown]
# Exact matches do not see a difference; they take a sentence with one word off for as bad as one with none right. BLEU
# favours greedy search. But its verdict rests on a handful of sentences. Split the test set into two random halves: do
# they agree with each other? (The functions of `bleu_by_hand` are derived below.)

# %%
split_13a = Tokenizer13a()


def tokens(lines):
    """-> a list of words for each line; punctuation marks are words (sacreBLEU's rule 13a)"""
    return [split_13a(line).split() for line in lines]


def table_of(lines, references):
    return bleu_by_hand.count_table(tokens(lines), tokens(references))


tables = [table_of(lines, german) for lines in translations.values()]                # two of (500, 9)
random, opposed = np.random.default_rng(0), []
for _ in range(200 if QUICK else 1000):
    halves = np.split(random.permutation(500), 2)
    greedy, beam = (np.array([bleu_by_hand.bleu(rows[half].sum(axis=0)) for half in halves]) for rows in tables)
    opposed.append((beam - greedy).prod() < 0)
measure("pairs of halves that prefer different systems", np.mean(opposed), 0.28, 0.48)

# %% [markdown]
# In more than a quarter of the splittings one half says *greedy* and the other *beam*. So we must know what BLEU
# counts, and how far it would move on other sentences.
#
# ## The idea in one picture
#
# An *$n$-gram* is a run of $n$ words. BLEU asks of each $n$-gram that was written, for $n$ from 1 to 4, whether the
# reference has it too. Here is a translation with one word off; a bar is an $n$-gram, dark if it is in the reference.

# %% The figure
hypothesis, reference = next(
    (a, b) for a, b in zip(tokens(translations["beam 1"]), tokens(german))
    if len(a) == len(b) >= 8 and sum(x != y for x, y in zip(a, b)) == 1)
print("translation:", *hypothesis, "\nreference:  ", *reference)
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
height = 0
for n in range(1, 5):
    wanted = bleu_by_hand.ngrams(reference, n)
    for i in range(len(hypothesis) - n + 1):
        known = tuple(hypothesis[i:i + n]) in wanted
        axes.barh(height + i % n, n - 0.14, left=i + 0.07, height=0.7, color=DARK if known else "white",
                  edgecolor=DARK if known else ACCENT, hatch=None if known else "///")
    matches, written = bleu_by_hand.clipped_counts(hypothesis, reference, n)
    axes.text(len(hypothesis) + 0.2, height + (n - 1) / 2, f"n = {n}: {matches} of {written}", va="center")
    height += n + 0.5
axes.set_xticks(np.arange(len(hypothesis)) + 0.5, hypothesis)
axes.xaxis.tick_top()
axes.set(yticks=[], xlim=(0, len(hypothesis) + 2.2), ylim=(height - 0.6, -0.7))
axes.set_title("The n-grams of a translation; hatched: not in the reference")
axes.spines[["left", "right", "bottom", "top"]].set_visible(False)
show(figure, "21_ngrams", alt="Bars for the runs of words of the translation Am Sonntag wird mein Bruder seinem "
     "Autos folgen, full stop. Of single words 8 of 9 are in the reference, of pairs 6 of 8, of triples 4 of 7, of "
     "runs of four 2 of 6. The hatched bars, which are not, all contain the wrong word, seinem.")

# %% [markdown]
# The wrong word spoils every run that it stands in: longer runs are the harder test.
#
# ## The equation, and the same in code
#
# Let $c_{sg}$ be how often the $n$-gram $g$ stands in translation $s$, and $r_{sg}$ how often in its reference. The
# *precision* $p_n$ is the share of the written $n$-grams that have a partner. Both sums run over all sentences $s$ of
# the test set before anything is divided:
#
# $$p_n = \frac{\sum_s \sum_g \min(c_{sg}, r_{sg})}{\sum_s \sum_g c_{sg}}$$
#
# The smaller of the two counts is the *clipped* count: an $n$-gram of the reference can be partner once. Let $c$ be
# the number of words written, in all sentences together, and $r$ that of the references. Then
#
# $$\mathrm{BLEU} = 100 \cdot B \cdot (p_1 p_2 p_3 p_4)^{1/4}, \qquad B = \min(1, e^{1 - r/c})$$
#
# The fourth root of the product is the geometric mean: halving any of the four precisions costs the same. $B$ is the
# *brevity penalty* of lesson 20. Precision asks only about what was written, so something must ask about what was
# left out. *Recall*, the share of the reference that was found, would do it with one reference. But BLEU was made for
# several references of a sentence, and nobody should write the words of all of them. So it asks only for the length.
#
# All that BLEU needs stands in a table with a row for each sentence; the score of any set of sentences is that of the
# sum of their rows.

# %%
def ngrams(words, n):
    return Counter(zip(*(words[i:] for i in range(n))))


def row_of(hypothesis, reference):
    """Two lists of words -> (9,): matches of n = 1..4, n-grams written of n = 1..4, length of the reference"""
    written = [ngrams(hypothesis, n) for n in range(1, 5)]
    matches = [(ours & ngrams(reference, n)).total() for n, ours in enumerate(written, start=1)]  # &: smaller counts
    return [*matches, *(ours.total() for ours in written), len(reference)]


def bleu(counts):
    """counts (..., 9) -> BLEU (...), 0 to 100"""
    matches, written, r = counts[..., :4], counts[..., 4:8], counts[..., 8]
    precisions = matches / np.maximum(written, 1)                                  # (..., 4)
    B = np.exp(np.minimum(0, 1 - r / np.maximum(written[..., 0], 1)))
    return 100 * B * precisions.prod(axis=-1) ** (1 / 4)


# %% [markdown]
# ## Forward: what each part is for
#
# For every part of the formula there is a text that is no translation and would score far better without it. So let us
# cheat, in four ways, with the references at hand. Each column after the first takes one part of the formula away.

# %%
wanted = tokens(german)
[(frequent, _)] = Counter(word for words in wanted for word in words).most_common(1)
cheats = {"an honest translation": tokens(translations["beam 1"]),
          "the first four words, then stop": [words[:4] for words in wanted],
          "the first four words, over and over": [(words[:4] * len(words))[:len(words)] for words in wanted],
          f"'{frequent}' as often as there are words": [[frequent] * len(words) for words in wanted],
          "all the right words, sorted": [sorted(words) for words in wanted]}


def known(hypothesis, reference, n):
    """How many n-grams of the hypothesis the reference has at all: matches, not clipped"""
    there = ngrams(reference, n)
    return sum(count for gram, count in ngrams(hypothesis, n).items() if gram in there)


def variants(hypotheses):
    """-> (5,): BLEU, and what it would be without one part or another"""
    total = np.array([row_of(*pair) for pair in zip(hypotheses, wanted)]).sum(axis=0)
    p, B = total[:4] / total[4:8], bleu_by_hand.brevity_penalty(total[4], total[8])
    unclipped = [sum(known(*pair, n) for pair in zip(hypotheses, wanted)) / total[3 + n] for n in range(1, 5)]
    return bleu(total), *(100 * np.array([p.prod() ** 0.25, B * np.prod(unclipped) ** 0.25, B * p[0], B * p.mean()]))


print(f"{'':37} BLEU   no penalty   no clipping   n = 1 only   arithmetic mean")
cheating = {name: variants(hypotheses) for name, hypotheses in cheats.items()}
for name, values in cheating.items():
    print("{:36}{:6.1f}{:13.1f}{:14.1f}{:13.1f}{:18.1f}".format(name, *values))
_, short, phrase, _, salad = cheating.values()
measure("four words: no penalty, less BLEU", short[1] - short[0], 66, 75)
measure("over and over: no clipping, less BLEU", phrase[2] - phrase[0], 27, 35)
measure("sorted words: n = 1 only, less BLEU", salad[3] - salad[0], 91, 97)
measure("sorted words: arithmetic mean, less BLEU", salad[4] - salad[0], 18, 28)

# %% [markdown]
# The *brevity penalty* stops the translator that writes only what it is sure of. *Clipping* stops the phrase that is
# right once and written again and again. (A single word over and over scores 0 even without clipping: its pairs are in
# no reference.) The *longer $n$-grams* stop the right words in the wrong order, and the *geometric mean* sees to it
# that nobody makes up for them with single words: if one precision is near 0, so is the product.
#
# **Why sums over the corpus?** One could compute BLEU for each sentence and take the mean. But a sentence without a
# right run of four words has $p_4 = 0$, and so BLEU 0, whatever else is in it. Does that matter? Here are six systems
# of an experiment that we need below: three small translators, trained alike but for the seed, each with its last
# weights and with a mean of five.

# %%
record = recorded("averaging")
texts = {(each["seed"], each["n"]): each["lines"] for each in record["translations"]}
small = {key: table_of(lines, german) for key, lines in texts.items()}                 # (500, 9) each


def gap(rows):
    """BLEU of the corpus less the mean of its sentences'"""
    return bleu(rows.sum(axis=0)) - bleu(rows).mean()


measure("the least gap of the six", min(gap(rows) for rows in small.values()), 1.5, 2.5)
above_0 = [rows[bleu(rows) > 0] for rows in small.values()]
measure("the largest gap without sentences of BLEU 0", max(abs(gap(rows)) for rows in above_0), 0, 0.8)
zeros = np.concatenate([rows[bleu(rows) == 0] for rows in small.values()])             # (sentences of six systems, 9)
measure("sentences with BLEU 0, of 500, mean of the six", len(zeros) / 6, 20, 32)
measure("    share of their words that are right", zeros[:, 0].sum() / zeros[:, 4].sum(), 0.65, 0.85)

# %% [markdown]
# About one sentence in twenty gets 0, with three quarters of its words right. These make the gap: without them the two
# scores are within one point. In the sums, a sentence without a run of four still counts with its words and pairs.
#
# **What is a word?** Papers have used different rules. One of the six systems is scored under three rules of sacreBLEU:
# *13a* makes words of punctuation marks, *none* cuts at spaces only, *char* makes a word of every letter.

# %%
usual, *others = (BLEU(tokenize=rule).corpus_score(texts[0, 5], [german]).score for rule in ("13a", "none", "char"))
measure("none less 13a", others[0] - usual, -1.8, -0.7)
measure("char less 13a", others[1] - usual, 4, 8)
measure("hyphens in the references", sum(line.count("-") for line in german), 0, 0)

# %% [markdown]
# The rule alone moves the score by one point, or by six. So a score should be given with its rule, as sacreBLEU's
# *signature* does, and compared with scores of the same rule only. The script beside the paper's code also cuts words
# at their hyphens, so that one compound counts as three words. Our text has none, so we cannot measure that.
#
# ## Backward: none, and what follows
#
# Follow one weight to BLEU. It moves the scores of the next piece a little. Search takes the largest, and a small
# move does not change which that is. So the text stays, letter by letter, and with it all counts: the derivative is 0.
# Only where two pieces are exactly level does a word become another; there BLEU jumps, and the derivative does not
# exist. Nowhere is there a slope to follow. (If translations are drawn by their probabilities, the *expected* score has
# one; Shen et al., 2016, "Minimum Risk Training for Neural Machine Translation", use that.)
#
# The loss reads the probabilities themselves, so it moves with the weights. The cell measures both along one random
# direction $u$, as long as the vector of all weights, on forty sentences. (`store.data` is that vector and `store.grad`
# the gradient; `refresh` tells the model that its weights have changed. `teacher_forced` makes a batch of pairs: the
# source, the target shifted right, the target.)

# %%
model = translator.model
at_start, few = model.store.data.copy(), slice(0, 40)
batch = teacher_forced(translator.tokenizer, [Example(source, target, "", "", [], None) for source, target
                                              in zip(english[few], german[few])])
u = np.random.default_rng(2).normal(size=at_start.size).astype(at_start.dtype)         # (867328,)
u *= np.linalg.norm(at_start) / np.linalg.norm(u)


def loss_and_bleu(h):
    """The weights moved by h u -> loss in nats per piece, BLEU of the greedy translations"""
    model.store.data[...] = at_start + h * u
    model.store.refresh()
    loss, n_pieces = forward_loss(model, *batch)
    rows = table_of(translator.translate(english[few], beam=1), german[few])
    model.store.data[...] = at_start
    model.store.refresh()
    return float(loss) / n_pieces, float(bleu(rows.sum(axis=0)))


h = 0.001
(loss_behind, bleu_behind), (loss_ahead, bleu_ahead) = loss_and_bleu(-h), loss_and_bleu(h)
model.zero_grad()
_, n_pieces = loss_backward(model, *batch)
slope = float(model.store.grad @ u) / n_pieces
measure("loss: its slope by differences", (loss_ahead - loss_behind) / (2 * h), -0.055, -0.047)
measure("    less the one by its gradient", (loss_ahead - loss_behind) / (2 * h) - slope, -0.002, 0.002)
measure("BLEU: its slope by differences", (bleu_ahead - bleu_behind) / (2 * h), 0, 0)

# %% [markdown]
# The loss falls along $u$ as its gradient says; BLEU is the same on both sides, and tells descent nothing. So we
# train on nats and report BLEU. What follows: the two need not agree (Experiment 3).
#
# ## Check
#
# The counts and the BLEU of this page, against the counts of the library and the BLEU of sacreBLEU, unrounded:

# %%
for name, lines in ("shipped model", translations["beam 1"]), ("small translator", texts[2, 1]):
    counts = np.array([row_of(*pair) for pair in zip(tokens(lines), wanted)])
    same(f"{name}: counts, and the library's", counts, table_of(lines, german), tolerance=0)
    same(f"{name}: BLEU, and sacreBLEU's", bleu(counts.sum(axis=0)), corpus_scores(lines, german).bleu)

# %% [markdown]
# ## Experiment 1: an interval for a difference
#
# We would like to draw many test sets, and see how far BLEU moves. We have one. The *bootstrap* draws from it: 500
# sentences, with replacement, so that some come twice and others not at all. It does so a thousand times, and asks
# between which two numbers the middle 95 % of the scores lie: the *interval*. For a difference, both systems are
# scored on the *same* drawn sentences, the *paired* bootstrap (Koehn, 2004, "Statistical Significance Tests for Machine
# Translation Evaluation"). A set of easy sentences lifts both, and most of that cancels in the difference. The control
# draws for each system by itself.

# %%
drawn = np.random.default_rng(1).integers(0, 500, (300 if QUICK else 1000, 500))       # (R, S): R sets of S sentences


def sampled(rows, indices):
    """rows (S, 9), indices (R, S) -> the BLEU of each drawn set (R,)"""
    return bleu(rows[indices].sum(axis=1))


def middle(values):
    return np.quantile(values, [0.025, 0.975])


pairs = {"greedy, beam 4": tables,
         **{f"seed {seed}: last, mean of 5": (small[seed, 1], small[seed, 5]) for seed in (0, 1, 2)}}
paired = {name: sampled(b, drawn) - sampled(a, drawn) for name, (a, b) in pairs.items()}          # (R,) each
alone = {name: sampled(b, drawn) - sampled(a, drawn[::-1]) for name, (a, b) in pairs.items()}
print(f"{'second less first':27}   BLEU   paired interval    each by itself")
for name, (a, b) in pairs.items():
    ends = ["{:5.2f} to {:5.2f}".format(*middle(kind[name])) for kind in (paired, alone)]
    print(f"{name:27} {bleu(b.sum(axis=0)) - bleu(a.sum(axis=0)):6.2f}   {ends[0]:18} {ends[1]}")
measure("greedy, beam 4, paired: lower end", middle(paired["greedy, beam 4"])[0], -0.8, -0.3)
measure("greedy, beam 4, paired: upper end", middle(paired["greedy, beam 4"])[1], 0.02, 0.3)
_, *gains = pairs
measure("mean of 5, paired: least lower end", min(middle(paired[name])[0] for name in gains), 0.2, 1)
measure("each by itself: greatest lower end", max(middle(alone[name])[0] for name in gains), -2, -0.1)
name = gains[0]
same("paired interval, and the library's", middle(paired[name]), bleu_by_hand.difference_interval(*pairs[name], drawn))

# %% The figure
figure, panels = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
titles = "Beam 4 less greedy: 0 lies inside", "Mean of 5 less last weights: 0 lies outside"
for panel, title, name in zip(panels, titles, list(pairs)[:2]):
    bins = np.linspace(alone[name].min(), alone[name].max(), 50)
    panel.hist(paired[name], bins, color=LIGHT, edgecolor=DARK, lw=0.4, label="the same sentences for both")
    panel.hist(alone[name], bins, histtype="step", color=ACCENT, ls="--", lw=1.5, label="each by itself")
    panel.axvline(0, color="black", lw=1)
    panel.axvspan(*middle(paired[name]), ymax=0.04, color=DARK, label="middle 95 %, the same sentences")
    panel.set(xlabel="difference in BLEU")
    panel.set_title(title, fontsize=11)
panels[0].set_ylabel(f"drawn test sets, of {len(drawn)}")
figure.legend(*panels[0].get_legend_handles_labels(), fontsize=9, loc="outside lower center", ncols=3)
show(figure, "21_bootstrap", alt="Histograms of the difference in BLEU over 1000 drawn test sets. Left, beam 4 less "
     "greedy: of the paired differences the middle 95 % lie between -0.5 and 0.1, with 0 inside; drawn each by itself, "
     "between -1.4 and 0.9. Right, mean of five less last weights: paired, the middle 95 % lie between 0.7 and 3.6, "
     "above 0; each by itself, they reach below 0.")

# %% [markdown]
# Greedy or beam: the interval holds 0, so the test set does not decide. For the means of five it lies above 0 in all
# three runs. With each system drawn by itself, even this gain of about 2 BLEU would be lost in the noise of the test
# set.
#
# **Is it a 95 % interval?** It should hold the true difference in 95 of 100 test sets. To know the truth we let our 500
# sentences be the whole world, draw test sets of 100 from it, and make the interval from each of them alone.

# %%
def holds_the_truth(a, b, random, n_sets=100 if QUICK else 300):
    """a, b (500, 9) -> the share of test sets whose interval holds BLEU(b) - BLEU(a) of all 500"""
    truth, held = bleu(b.sum(axis=0)) - bleu(a.sum(axis=0)), 0
    for test_set in random.integers(0, 500, (n_sets, 100)):
        low, high = bleu_by_hand.difference_interval(a[test_set], b[test_set], random.integers(0, 100, (200, 100)))
        held += low <= truth <= high
    return held / n_sets


random = np.random.default_rng(3)
measure("last, mean of 5: truth inside", holds_the_truth(small[0, 1], small[0, 5], random), 0.87, 0.98)
measure("greedy, beam 4: truth inside", holds_the_truth(*tables, random), 0.3, 0.6)
measure("    sets of 100 in which nothing differs, expected", (1 - n_differing / 500) ** 100, 0.25, 0.6)

# %% [markdown]
# For the mean of five it is, or nearly. For greedy and beam search it is not at all: they differ in so few sentences
# that many a set of 100 holds none of them, and its interval goes from 0 to 0. The bootstrap draws only what the test
# set has. So ask first in how many sentences two systems differ. If it is a handful, read those, and do not lean on an
# interval: ours of greedy and beam above may be too narrow.
#
# **How many sentences would decide?** Draw smaller and larger sets from the same table, and see how the width goes.

# %%
for S, lo, hi in (125, 2.3, 3.7), (500, 1.1, 1.9), (2000, 0.55, 1):
    sets = np.random.default_rng(2).integers(0, 500, (200 if QUICK else 1000, S))
    low, high = bleu_by_hand.difference_interval(small[0, 1], small[0, 5], sets)
    half_width = measure(f"{S} sentences: half the width", (high - low) / 2, lo, hi)
measure("sentences for half a width of 0.3", S * (half_width / 0.3) ** 2, 7_000, 18_000)
of_seeds = [bleu(small[seed, 1].sum(axis=0)) for seed in (0, 1, 2)]
measure("three trainings that differ in the seed alone: best less worst", max(of_seeds) - min(of_seeds), 1.2, 2.4)

# %% [markdown]
# Four times the sentences halve the width, as with any mean. So for an interval of 0.3 BLEU to either side, between two
# systems as different as these two, one needs a test set of some ten thousand sentences. The paper's has 3,003.
#
# One thing is in no interval of this kind: it draws other sentences, not other trainings. The last line of the cell
# says what another seed is worth, with everything else the same: nearly as much as the gain from averaging. A claim
# about a *method* needs several runs.
#
# ## Experiment 2: why a mean of weights can be better
#
# The paper translates with the mean of the weights of the last five checkpoints (§6.1), number by number. Why should
# that be any good? The usual explanation: late in training the weights swing around a better place, kicked by the noise
# of small batches, and the mean of the swings is nearer to it. First comes a case where this can be derived, then
# controls in a real run.
#
# One coordinate $x$ near its best value 0, with the loss $\frac{1}{2} \lambda x^2$: the slope is $\lambda x$, plus a
# noise $\xi$ (xi) of variance $\sigma^2$ that is new in each step. With the learning rate $\eta$:
#
# $$x \leftarrow x - \eta (\lambda x + \xi) = (1 - \eta \lambda) x - \eta \xi$$
#
# After a while the variance of $x$, $\tau^2$ (tau), stays the same: what the noise adds, the pull takes away.
#
# $$\tau^2 = (1 - \eta \lambda)^2 \tau^2 + \eta^2 \sigma^2 \quad \Rightarrow \quad
# \tau^2 = \frac{\eta \sigma^2}{\lambda (2 - \eta \lambda)}$$
#
# The expected loss is $\frac{1}{2} \lambda \tau^2$; it never reaches 0 unless $\eta$ does. Now take the mean of $K$
# checkpoints, $m$ steps apart ($K$ and $m$ are no longer the beam and Adam's mean). Two of them, $j$ places apart, have
# the covariance $\tau^2 \rho^j$ with $\rho = (1 - \eta \lambda)^m$, since each step leaves $1 - \eta \lambda$ of where
# $x$ was, and adds noise that is new. The variance of a mean is the mean of all $K^2$ covariances: $K$ of them have
# $j = 0$, and $2 (K - j)$ of them each other $j$.
#
# $$\tau_K^2 = \frac{\tau^2}{K} \left( 1 + 2 \sum_{j=1}^{K-1} \left( 1 - \frac{j}{K} \right) \rho^j \right)$$
#
# If the checkpoints are far apart, $\rho$ is near 0, and **the mean has $1/K$ of the loss**. If they are close
# together, or the direction is so flat that $x$ hardly comes back, $\rho$ is near 1 and nothing is gained.

# %%
def predicted(K, rho):
    """-> the loss of the mean of K checkpoints, over that of one"""
    j = np.arange(1, K)
    return (1 + 2 * ((1 - j / K) * rho**j).sum()) / K


eta, steps, n_walks, random = 0.2, 150, 1000 if QUICK else 5000, np.random.default_rng(4)           # sigma = 1
for direction, lam, m, lo, hi in [("steep, 30 steps apart", 1, 30, 0.18, 0.22),                      # lam: lambda
                                  ("steep, 1 step apart", 1, 1, 0.68, 0.76),
                                  ("flat, 30 steps apart", 0.01, 30, 0.87, 0.95)]:
    walk = np.empty((steps + 1, n_walks))
    walk[0] = random.normal(size=n_walks) * np.sqrt(eta / (lam * (2 - eta * lam)))     # variance tau^2 at once
    for step in range(steps):
        walk[step + 1] = walk[step] - eta * (lam * walk[step] + random.normal(size=n_walks))
    kept = walk[[steps - m * i for i in range(5)]]                                     # (5, n_walks)
    found = (kept.mean(axis=0) ** 2).mean() / (kept**2).mean()
    measure(f"{direction}: predicted {predicted(5, (1 - eta * lam)**m):.3f}, found", found, lo, hi)

# %% [markdown]
# **Predict.** What does the mean do while $x$ is still on its way to 0, far off?
#
# <details><summary>Answer</summary>
#
# Harm. Averaging takes away noise, not distance: the older checkpoints are further away, and the mean lies behind the
# newest. So too many checkpoints must hurt, if training still makes progress.
#
# </details>
#
# ## Experiment 3: the same in training
#
# A model half as wide as the shipped one, 1,500 steps, three seeds; weights kept every 30 steps. Its learning rate
# follows the paper's schedule, so it is far from 0 at the end. It is trained by Adam, with many weights and a loss that
# is no parabola, so the derivation cannot say how much. If the explanation holds here too, three things should be seen
# in the loss. The mean of five gains. The mean of five *successive* steps gains next to nothing. And if the noise is
# taken away in another way, by letting the learning rate fall to 0 in the last 300 steps (same start, same batches),
# then there is a gain without any mean, and a mean adds little. Whether BLEU follows, the derivation does not say.

# %%
def row(n, apart="save_every", rate="schedule"):
    """Loss on the validation set and BLEU on `test`, of the three seeds"""
    return next(each for each in record["results"] if (each["n"], each["apart"], each["rate"]) == (n, apart, rate))


last, five, falling = row(1), row(5), row(1, rate="to 0")
for name, a, b, of_loss, of_bleu in [
        ("mean of 5 less the last", last, five, (-0.075, -0.05), (1.5, 2.5)),
        ("five successive steps less the last", last, row(5, apart="one step"), (-0.01, 0.01), (-0.5, 0.5)),
        ("rate to 0, last, less schedule, last", last, falling, (-0.055, -0.025), (2.2, 3.6)),
        ("rate to 0: mean of 5 less the last", falling, row(5, rate="to 0"), (-0.01, 0.01), (-0.8, 0.4)),
        ("mean of 10 less mean of 5", five, row(10), (-0.02, 0), (-0.4, 0.7)),
        ("mean of 40 less the last", last, row(40), (0.01, 0.05), (-9, -5))]:
    measure(f"{name}: loss", b["mean_loss"] - a["mean_loss"], *of_loss)
    measure("    BLEU", b["mean_bleu"] - a["mean_bleu"], *of_bleu)
measure("rate to 0, last, above mean of 5: seeds in loss", sum(np.greater(falling["loss"], five["loss"])), 3, 3)
measure("    in BLEU", sum(np.greater(falling["bleu"], five["bleu"])), 3, 3)

# %% The figure
figure, panels = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
n = [1, 2, 5, 10, 20, 40]
for panel, quantity, label in zip(panels, ("loss", "bleu"), ("loss on new text, nats", "BLEU, greedy search")):
    for seed in range(3):
        labels = ["", "", ""] if seed else ["schedule", "successive steps", "rate falls to 0"]
        panel.plot(n, [row(k)[quantity][seed] for k in n], "o-", color=DARK, ms=4, label=labels[0])
        panel.plot([5], row(5, "one step")[quantity][seed], "x", color=ACCENT, ms=8, mew=2, label=labels[1])
        panel.plot([1, 5], [row(k, rate="to 0")[quantity][seed] for k in (1, 5)], "^--", color=ACCENT, label=labels[2])
    panel.set_xscale("log")
    panel.set_xticks(n, n)
    panel.minorticks_off()
    panel.set(xlabel="checkpoints in the mean", ylabel=label)
panels[1].legend(fontsize=9, loc="lower left")
figure.suptitle("A mean of five to ten is worth two BLEU; a mean of forty costs seven")
show(figure, "21_averaging", alt="Loss and BLEU over the number of checkpoints in the mean, three seeds. On the "
     "paper's schedule the loss falls from 0.26 at one to 0.19 at ten and rises to 0.29 at forty; BLEU rises from 88 "
     "to 90 at five to ten and falls to 81 at forty. Crosses: five successive steps are as bad as one. Triangles: with "
     "a rate that falls to 0, BLEU is 91 for one and for the mean of five.")

# %% [markdown]
# All three came true, in BLEU too, and with them the answer to "Predict": the mean of forty reaches back to step 330 of
# 1,500, and is far worse than the last weights. Between five and ten, BLEU does not decide. A falling learning rate
# without any mean gains less than the mean of five in loss and more in BLEU, in all three seeds. So it does not do
# quite the same; what else it does, we have not tested. And "the weights with the lower validation loss translate
# better" is not true of these two: choose by the measure that you care about, and give its interval.
#
# ## One sentence, all the way
#
# The translator is complete. One sentence on its way through it, each line with its lesson:

# %%
sentence, right = ("The horse leaves the street because it is too dark.",
                   "Das Pferd verlässt die Straße, weil sie zu dunkel ist.")
ids = np.array([[*translator.tokenizer.encode([sentence])[0], EOS]])                   # (1, 15): the sentence in pieces
[[best]] = search(model, ids, beam=4, alpha=0.6, extra_length=50)
[text] = translator.tokenizer.decode([best.ids])
logits, cache = model.forward(ids, np.array([[BOS, *best.ids]]))                       # (1, T, V)
print("17      pieces       ", *translator.tokenizer.pieces(ids[0]))
print("08, 09  vectors      ", f"{ids.shape[1]} of {model.config.d_model} numbers, and their positions")
print("04-07   attention    ", *dict.fromkeys(str(weights.shape) for weights in attention_weights(cache)))
print("11-13   layers, model", f"{model.config.N} + {model.config.N} layers; scores {logits.shape}")
print("20      beam search  ", f"{len(best.ids)} pieces, score {best.score:.2f}")
print("17      text         ", text)
print("21      BLEU         ", f"{bleu(np.array(row_of(*tokens([text, right])))):.1f}")

# %% [markdown]
# The three shapes of attention are the encoder's, the decoder's, and that of the decoder over the encoder's output.
# The weights came from batches of pairs ([18](18_batches.py)), the smoothed loss ([14](14_label_smoothing.py)), a
# gradient carried backwards through every layer by hand (01 to 13), Adam and the warm-up
# ([15](15_adam_and_warmup.py)), a training that was watched ([16](16_first_training.py),
# [19](19_train_a_translator.py)), and the mean of the last five checkpoints.
#
# ## Paper and code
#
# - §6.1: the base models are means of the last 5 checkpoints, written every 10 minutes; the big ones of the last 20.
#   Table 2: 27.3 BLEU (base) and 28.4 (big) on newstest2014, English to German. No intervals are given.
# - *Differs:* the paper's public code has a script (`get_ende_bleu.sh`) for text cut into words by the rules of the
#   Moses toolkit and at hyphens; this library uses sacreBLEU (Post, 2018, "A Call for Clarity in Reporting BLEU
#   Scores"), with 13a, cased. Scores of the two are not comparable: [issue
#   317](https://github.com/tensorflow/tensor2tensor/issues/317) of tensor2tensor reports one model at 29.02 by the
#   script, with the quotation marks of the references rewritten, and at 27.52 by sacreBLEU. `scratchformer evaluate RUN
#   --paper` gives both, and says which step of the script makes how much of the gap.
# - BLEU: Papineni, Roukos, Ward and Zhu (2002, "BLEU: a Method for Automatic Evaluation of Machine Translation"). Of
#   several references, the clip is the largest count in any of them; our test sets have one. sacreBLEU replaces a
#   match count of 0 by a small number. Means along noisy steps: Polyak and Juditsky (1992, "Acceleration of Stochastic
#   Approximation by Averaging").
# - In the library: [text/bleu.py](../scratchformer/text/bleu.py) (sacreBLEU),
#   [lessons/library/bleu_by_hand.py](../lessons/library/bleu_by_hand.py) with [its
#   tests](../tests/lessons/library/test_bleu_by_hand.py), `average` in
#   [training/checkpoints.py](../scratchformer/training/checkpoints.py), the experiment in
#   [benchmarks/averaging.py](../benchmarks/averaging.py). `scratchformer average RUN` makes the mean of a run;
#   `scratchformer evaluate RUN --against RUN2` compares two runs by the paired bootstrap of this lesson.
#
# ## Exercises
#
# - **Build** `21_clipped_counts`: how many $n$-grams of a translation its reference has.
# - **Build** `21_bleu`: BLEU of a corpus from the table of counts, too long or too short as it may be.
# - **Build** `21_bootstrap`: the 95 % interval of a difference, from drawn test sets.
# - **Build** `21_average`: the mean of the last checkpoints, of which there may be fewer than asked for.
#
# ## Next
#
# This part of the course ends here: you have a translator that you can train, judge and explain. What is missing is the
# paper's own evidence: its costs (Tables 1 and 2) and which parts of the model matter (Table 3). Those lessons are not
# written yet; the tables are in sections 4 and 6 of [the paper](https://arxiv.org/abs/1706.03762). To translate real
# text, train on a corpus of your own as in [lesson 19](19_train_a_translator.py).
