# %% [markdown]
# # 21 · BLEU, its error bars, and averaging checkpoints
#
# *About 35 minutes. You need: [lesson 14](14_label_smoothing.py) (the loss in nats), [lesson
# 15](15_adam_and_warmup.py) (the learning rate), [lesson 17](17_byte_pairs.py) (pieces), [lesson
# 19](19_train_a_translator.py) (a trained translator) and [lesson 20](20_beam_search.py) (greedy and beam search). You
# will have: BLEU from its definition, equal to the official program's; an interval around it; and a measured answer to
# what the mean of the last checkpoints is good for.*

# %% Imports
import json
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from scratchformer.decoding.search import search
from scratchformer.nn.attention import attention_weights
from scratchformer.study import bleu_by_hand
from scratchformer.study.figures import ACCENT, DARK, LIGHT
from scratchformer.study.heads import teacher_forced
from scratchformer.study.lesson import QUICK, ROOT, measure, recorded, same, show
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.grammar import Example
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training.run import load_run


# %% Reading the test sets
def lines_of(name):
    return (ROOT / "data/tiny" / name).read_text(encoding="utf-8").splitlines()


translator = load_run(ROOT / "data/tiny_model")
SETS = "test", "test_compositional"
english, german = ({split: lines_of(f"{split}.{language}") for split in SETS} for language in ("en", "de"))

# %% [markdown]
# ## Question
#
# **One translator scores a few tenths of BLEU more than another. Is it better?**
#
# The answer in one sentence: not before the difference is larger than what other test sentences would have made of it;
# and that can be computed from the test set itself.
#
# Here are two translators: the shipped model with greedy search and with a beam of 4, on two test sets. Which search
# should we use? The loss cannot say. It belongs to the model, and the model is the same. So count the translations
# that are exactly the reference, the translation that the test set gives, or take BLEU.

# %%
translations = {split: {"greedy": translator.translate(english[split], beam=1),
                        "beam 4": translator.translate(english[split], beam=4)} for split in SETS}
for split, lo, hi, most in ("test", -0.3, -0.05, 0.003), ("test_compositional", 0.1, 0.5, 0.02):
    scores, exact = [], []
    for system, lines in translations[split].items():
        exact.append(np.mean([ours == reference for ours, reference in zip(lines, german[split])]))
        scores.append(corpus_scores(lines, german[split]).bleu)
        print(f"{split}, {len(lines)} sentences, {system}: {exact[-1]:.1%} exactly right, BLEU {scores[-1]:.2f}")
    measure("    BLEU, beam 4 less greedy", scores[1] - scores[0], lo, hi)
    measure("    share exactly right, beam 4 less greedy", exact[1] - exact[0], -0.003, most)
    measure("    translations that differ", sum(a != b for a, b in zip(*translations[split].values())), 2, 9)

# %% [markdown]
# BLEU decides: for greedy search on `test`, for the beam on `test_compositional`. Exact matches do not see the
# difference on `test`; they take a sentence with one word off for as bad as one with none right. But each of the two
# verdicts of BLEU rests on a handful of sentences. Split `test` into two random halves: do they agree with each other?
# (The functions of `bleu_by_hand` are derived below.)

# %%
split_13a = Tokenizer13a()


def tokens(lines):
    """-> a list of words for each line; punctuation marks are words (sacreBLEU's rule 13a)"""
    return [split_13a(line).split() for line in lines]


def table_of(lines, references):
    return bleu_by_hand.count_table(tokens(lines), tokens(references))


tables = {split: [table_of(lines, german[split]) for lines in translations[split].values()] for split in SETS}


random, opposed = np.random.default_rng(0), []
for _ in range(200 if QUICK else 1000):
    halves = np.split(random.permutation(500), 2)
    greedy, beam = (np.array([bleu_by_hand.bleu(rows[half].sum(axis=0)) for half in halves]) for rows in tables["test"])
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
    (a, b) for a, b in zip(tokens(translations["test"]["greedy"]), tokens(german["test"]))
    if len(a) == len(b) >= 8 and sum(x != y for x, y in zip(a, b)) == 1)
print("translation:", *hypothesis, "\nreference:  ", *reference)
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
row = 0
for n in range(1, 5):
    wanted = bleu_by_hand.ngrams(reference, n)
    for i in range(len(hypothesis) - n + 1):
        known = tuple(hypothesis[i:i + n]) in wanted
        axes.barh(row + i % n, n - 0.14, left=i + 0.07, height=0.7, color=DARK if known else "white",
                  edgecolor=DARK if known else ACCENT, hatch=None if known else "///")
    matches, written = bleu_by_hand.clipped_counts(hypothesis, reference, n)
    axes.text(len(hypothesis) + 0.2, row + (n - 1) / 2, f"n = {n}: {matches} of {written}", va="center")
    row += n + 0.5
axes.set_xticks(np.arange(len(hypothesis)) + 0.5, hypothesis)
axes.xaxis.tick_top()
axes.set(yticks=[], xlim=(0, len(hypothesis) + 2.2), ylim=(row - 0.6, -0.7))
axes.set_title("The n-grams of a translation; hatched: not in the reference")
axes.spines[["left", "right", "bottom"]].set_visible(False)
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
# *brevity penalty*. Precision asks only what was written, so something must ask what was not. All that BLEU needs
# stands in a table with a row for each sentence; the score of any set of sentences is that of the sum of their rows.

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
# Every part of the formula stands there because without it some text that is no translation would score well. So let
# us cheat, in three ways. Each column after the first takes something away from the formula.

# %%
wanted = tokens(german["test"])
[(frequent, _)] = Counter(word for words in wanted for word in words).most_common(1)
cheats = {"an honest translation": tokens(translations["test"]["greedy"]),
          f"'{frequent}' as often as there are words": [[frequent] * len(words) for words in wanted],
          "the first four words, then stop": [words[:4] for words in wanted],
          "all the right words, sorted": [sorted(words) for words in wanted]}


def variants(hypotheses):
    """-> (5,): BLEU, and what it would be without one part or another"""
    total = np.array([row_of(*pair) for pair in zip(hypotheses, wanted)]).sum(axis=0)
    p, B = total[:4] / total[4:8], bleu_by_hand.brevity_penalty(total[4], total[8])
    known = sum(word in reference for words, reference in zip(hypotheses, wanted) for word in words) / total[4]
    return 100 * np.array([bleu(total) / 100, p.prod() ** 0.25, B * p[0], B * known, B * p.mean()])


print(f"{'':37} BLEU   no penalty   n = 1   n = 1, unclipped   arithmetic mean")
cheating = {name: variants(hypotheses) for name, hypotheses in cheats.items()}
for name, values in cheating.items():
    print("{:36}{:6.1f}{:13.1f}{:8.1f}{:19.1f}{:18.1f}".format(name, *values))
_, repeated, short, salad = cheating.values()
measure("full stops: n = 1, unclipped, less n = 1", repeated[3] - repeated[2], 80, 90)
measure("four words: no penalty, less BLEU", short[1] - short[0], 66, 75)
measure("sorted words: n = 1, less BLEU", salad[2] - salad[0], 91, 97)
measure("sorted words: arithmetic mean, less BLEU", salad[4] - salad[0], 18, 28)

# %% [markdown]
# Each cheat is caught by one part. *Clipping* stops the word that is nearly always right, the full stop. The *brevity
# penalty* stops the translator that writes only what it is sure of. The *longer $n$-grams* stop the right words in the
# wrong order, and the *geometric mean* sees to it that nobody makes up for them with single words: if one precision is
# near 0, so is the product.
#
# **Why sums over the corpus?** One could compute BLEU for each sentence and take the mean. But a sentence without a
# right run of four words has $p_4 = 0$ and BLEU 0, whatever else is in it: that is nearly the verdict of exact match
# again. In the sums, a short sentence counts for little. Here are the six systems of an experiment that we need below:
# three small translators, trained alike but for the seed, each with its last weights and with a mean of five.
#
# **What is a word?** Papers have used different rules. One of the six is scored under three rules of sacreBLEU: *13a*
# makes words of punctuation marks, *none* cuts at spaces only, *char* makes a word of every letter. And once 13a in
# lower case.

# %%
record = recorded("averaging")
texts = {(each["seed"], each["n"]): each["lines"] for each in record["translations"]}
table = {key: table_of(lines, german["test"]) for key, lines in texts.items()}         # (500, 9) each
gaps = [bleu(rows.sum(axis=0)) - bleu(rows).mean() for rows in table.values()]
measure("corpus BLEU less the mean of the sentences, least of six", min(gaps), 1.5, 2.5)
measure("    most", max(gaps), 2.5, 3.5)

usual, *others = (BLEU(**settings).corpus_score(texts[0, 5], [german["test"]]).score for settings in
                  ({"tokenize": "13a"}, {"tokenize": "none"}, {"tokenize": "char"}, {"lowercase": True}))
for name, score, lo, hi in zip(("none", "char", "lower case"), others, (-1.8, 4, 0), (-0.7, 8, 0.05)):
    measure(f"{name} less 13a", score - usual, lo, hi)
measure("hyphens in the references", sum(line.count("-") for line in german["test"]), 0, 0)

# %% [markdown]
# The rule alone moves the score by one point, or by six; lower case changes nothing here. So a score should be given
# with its rule, as sacreBLEU's *signature* does, and compared with scores of the same rule only. The script beside the
# paper's code also cuts compounds at their hyphens: two chances out of one. Our text has no hyphens, so we cannot
# measure that.
#
# ## Backward: none, and what follows
#
# Follow one weight to BLEU. It moves the scores of the next piece a little. Search takes the largest, and a small
# move does not change which that is. So the text stays, letter by letter, and with it all counts: the derivative is 0.
# Only where two pieces are exactly level does a word become another; there BLEU jumps, and the derivative does not
# exist. Nowhere is there a slope to follow.
#
# The loss reads the probabilities themselves, so it moves with every weight. Both along one random direction $u$, as
# long as the vector of all weights, on forty sentences:

# %%
model = translator.model
at_start, few = model.store.data.copy(), slice(0, 40)
batch = teacher_forced(translator.tokenizer, [Example(source, target, "", "", [], None) for source, target
                                              in zip(english["test"][few], german["test"][few])])
u = np.random.default_rng(2).normal(size=at_start.size).astype(at_start.dtype)         # (867328,)
u *= np.linalg.norm(at_start) / np.linalg.norm(u)


def loss_and_bleu(h):
    """The weights moved by h u -> loss in nats per piece, BLEU of the greedy translations"""
    model.store.data[...] = at_start + h * u
    model.store.refresh()
    loss, n_pieces = model.loss(*batch)
    rows = table_of(translator.translate(english["test"][few], beam=1), german["test"][few])
    model.store.data[...] = at_start
    model.store.refresh()
    return float(loss) / n_pieces, float(bleu(rows.sum(axis=0)))


h = 0.001
(loss_behind, bleu_behind), (loss_ahead, bleu_ahead) = loss_and_bleu(-h), loss_and_bleu(h)
model.zero_grad()
_, n_pieces = model.loss_backward(*batch)
slope = float(model.store.grad @ u) / n_pieces
measure("loss: its slope by differences", (loss_ahead - loss_behind) / (2 * h), -0.055, -0.047)
measure("    less the one by its gradient", (loss_ahead - loss_behind) / (2 * h) - slope, -0.002, 0.002)
measure("BLEU: its slope by differences", (bleu_ahead - bleu_behind) / (2 * h), 0, 0)
line = np.linspace(-0.3, 0.3, 13 if QUICK else 41)
losses, bleus = np.array([loss_and_bleu(h) for h in line]).T
measure("different values of BLEU along the line", len(set(bleus.round(9))), 4, 25)
measure("h of the smallest loss", line[losses.argmin()], -0.05, 0.07)

# %% The figure
figure, (above, below) = plt.subplots(2, 1, figsize=(7, 4.2), sharex=True, layout="constrained")
above.plot(line, losses, "o-", color=DARK, ms=3)
above.set(ylabel="loss, nats per piece", title="Along one line in weight space: the loss has a slope, BLEU has steps")
below.step(line, bleus, "o-", where="mid", color=ACCENT, ms=3)
below.set(ylabel="BLEU", xlabel="h: weights moved by h u")
show(figure, "21_steps", alt="Two curves over h from -0.3 to 0.3. Above, the loss: a smooth bowl, lowest, 0.08 nats, "
     "near h = 0, and 0.4 to 0.5 at the ends. Below, BLEU: flat steps with jumps between them, from below 90 at the "
     "ends to between 99 and 100 in the middle; its highest steps lie to the right of h = 0.")

# %% [markdown]
# So we train on nats and report BLEU. What follows: the two need not agree ("Check the claim" below).
#
# ## Check
#
# The BLEU of this page, the counts of the library, and sacreBLEU, with all decimals:

# %%
for name, lines, references in [("shipped model", translations["test"]["greedy"], german["test"]),
                                ("small translator", texts[2, 1], german["test"])]:
    counts = np.array([row_of(*pair) for pair in zip(tokens(lines), tokens(references))])
    same(f"{name}: counts, and the library's", counts, table_of(lines, references), tolerance=0)
    same(f"{name}: BLEU, and sacreBLEU's", bleu(counts.sum(axis=0)), corpus_scores(lines, references).bleu)

# %% [markdown]
# ## Experiment 1: an interval for a difference
#
# We would like to draw many test sets, and see how far BLEU moves. We have one. The *bootstrap* draws from it: 500
# sentences, with replacement, so that some come twice and others not at all. It does so a thousand times, and asks
# between which two numbers the middle 95 % of the scores lie. For a difference, both systems are scored on the *same*
# drawn sentences, the *paired* bootstrap (Koehn, 2004, "Statistical Significance Tests for Machine Translation
# Evaluation"). A set of easy sentences lifts both, and the difference does not see it. The control draws for each
# system by itself.

# %%
drawn = np.random.default_rng(1).integers(0, 500, (1000, 500))                     # (R, S): R test sets of S sentences


def sampled(rows, indices):
    """rows (S, 9), indices (R, S) -> the BLEU of each drawn set (R,)"""
    return bleu(rows[indices].sum(axis=1))


def middle(values):
    return np.quantile(values, [0.025, 0.975])


pairs = {"greedy, beam 4": tables["test"],
         **{f"seed {seed}: last, mean of 5": (table[seed, 1], table[seed, 5]) for seed in (0, 1, 2)}}
paired = {name: sampled(b, drawn) - sampled(a, drawn) for name, (a, b) in pairs.items()}          # (R,) each
alone = {name: sampled(b, drawn) - sampled(a, drawn[::-1]) for name, (a, b) in pairs.items()}
print(f"{'second less first':27}   BLEU   paired interval    each by itself")
for name, (a, b) in pairs.items():
    ends = ["{:5.2f} to {:5.2f}".format(*middle(kind[name])) for kind in (paired, alone)]
    print(f"{name:27} {bleu(b.sum(axis=0)) - bleu(a.sum(axis=0)):6.2f}   {ends[0]:18} {ends[1]}")
low, high = middle(sampled(table[0, 1], drawn))
measure("seed 0, last weights: half the width of its own interval", (high - low) / 2, 1.4, 2.2)
measure("greedy, beam 4, paired: lower end", middle(paired["greedy, beam 4"])[0], -0.8, -0.3)
measure("greedy, beam 4, paired: upper end", middle(paired["greedy, beam 4"])[1], 0.02, 0.3)
_, *gains = pairs
measure("mean of 5, paired: least lower end", min(middle(paired[name])[0] for name in gains), 0.2, 1)
measure("each by itself: greatest lower end", max(middle(alone[name])[0] for name in gains), -2, -0.1)

# %% The figure
figure, panels = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
for panel, name in zip(panels, list(pairs)[:2]):
    bins = np.linspace(alone[name].min(), alone[name].max(), 50)
    panel.hist(paired[name], bins, color=LIGHT, edgecolor=DARK, lw=0.4, label="the same sentences for both")
    panel.hist(alone[name], bins, histtype="step", color=ACCENT, ls="--", lw=1.5, label="each by itself")
    panel.axvline(0, color="black", lw=1)
    panel.axvspan(*middle(paired[name]), ymax=0.04, color=DARK)
    panel.set(title=name, xlabel="difference in BLEU, second less first")
panels[0].set_ylabel("drawn test sets, of 1000")
panels[1].legend(fontsize=9, loc="upper left")
panels[1].set_ylim(top=1.35 * panels[1].get_ylim()[1])
show(figure, "21_bootstrap", alt="Histograms of the difference in BLEU over 1000 drawn test sets. Left, greedy against "
     "beam 4: the paired differences lie in a narrow heap from -0.6 to 0.1, with 0 inside; drawn each by itself, from "
     "-1.5 to 1. Right, the last weights against the mean of five: paired, the middle 95 % lie between 0.6 and 3.5, "
     "above 0; each by itself, they reach below 0.")

# %% [markdown]
# Greedy or beam: the interval holds 0, so `test` does not decide. The means of five do better, in all three runs. If
# each system is drawn by itself, even this gain of 2 BLEU would be lost in the noise of the test set.
#
# **How many sentences would decide?** Draw smaller and larger sets from the same table, and see how the width goes.

# %%
half_width = {}
for n_sentences in 125, 500, 2000:
    sets = np.random.default_rng(2).integers(0, 500, (300 if QUICK else 1000, n_sentences))
    low, high = bleu_by_hand.difference_interval(table[0, 1], table[0, 5], sets)
    half_width[n_sentences] = measure(f"{n_sentences} sentences: half the width", (high - low) / 2,
                                      *{125: (2.3, 3.7), 500: (1.1, 1.9), 2000: (0.55, 1)}[n_sentences])
measure("sentences for half a width of 0.3", 500 * (half_width[500] / 0.3) ** 2, 7_000, 18_000)
last = [bleu(table[seed, 1].sum(axis=0)) for seed in (0, 1, 2)]
measure("three trainings that differ in the seed alone: best less worst", max(last) - min(last), 1.2, 2.4)

# %% [markdown]
# Four times the sentences halve the width, as with any mean. So to be sure of 0.3 BLEU between two systems as
# different as these two, one needs a test set of some ten thousand sentences. The paper's has 3,003. Two systems that
# differ in fewer sentences need fewer, as greedy and beam search show.
#
# One thing no interval of this kind contains: it draws other sentences, not other trainings. The last line of the cell
# says what another seed is worth, with everything else the same: as much as the gain from averaging. A claim about a
# *method* needs several runs.
#
# ## Experiment 2: why a mean of weights can be better
#
# The paper translates with the mean of the weights of the last five checkpoints (§6.1), number by number. Why should
# that be any good? The usual explanation: late in training the weights swing around a better place, kicked by the noise
# of small batches, and the mean of the swings is nearer to it. First a case where it can be derived; then its controls
# in a real run.
#
# One coordinate $x$ near its best value 0, with the loss $\frac{1}{2} \lambda x^2$: the slope is $\lambda x$, plus a
# noise $\xi$ of variance $\sigma^2$ that is new in each step. With the learning rate $\eta$:
#
# $$x \leftarrow x - \eta (\lambda x + \xi) = (1 - \eta \lambda) x - \eta \xi$$
#
# After a while the variance $V$ of $x$ stays the same: what the noise adds, the pull takes away.
#
# $$V = (1 - \eta \lambda)^2 V + \eta^2 \sigma^2 \quad \Rightarrow \quad
# V = \frac{\eta \sigma^2}{\lambda (2 - \eta \lambda)}$$
#
# The expected loss is $\frac{1}{2} \lambda V$; it never reaches 0 unless $\eta$ does. Now take $K$ checkpoints, $s$
# steps apart. Two of them, $j$ places apart, have the covariance $V \rho^j$ with $\rho = (1 - \eta \lambda)^s$,
# since each step leaves $1 - \eta \lambda$ of where $x$ was. The variance of a mean is the mean of all $K^2$
# covariances:
#
# $$V_K = \frac{V}{K} \left( 1 + 2 \sum_{j=1}^{K-1} \left( 1 - \frac{j}{K} \right) \rho^j \right)$$
#
# If the checkpoints are far apart, $\rho$ is near 0, and **the mean has $1/K$ of the loss**. If they are close
# together, or the direction is so flat that $x$ hardly comes back, $\rho$ is near 1 and nothing is gained.

# %%
def predicted(K, rho):
    """-> the loss of the mean of K checkpoints, over that of one"""
    j = np.arange(1, K)
    return (1 + 2 * ((1 - j / K) * rho**j).sum()) / K


rate, steps, n_walks, random = 0.2, 150, 1000 if QUICK else 5000, np.random.default_rng(4)
for direction, slope, apart, lo, hi in [("steep, 30 steps apart", 1, 30, 0.18, 0.22),
                                        ("steep, 1 step apart", 1, 1, 0.68, 0.76),
                                        ("flat, 30 steps apart", 0.01, 30, 0.8, 1)]:
    walk = np.empty((steps + 1, n_walks))
    walk[0] = random.normal(size=n_walks) * np.sqrt(rate / (slope * (2 - rate * slope)))   # variance V from the start
    for step in range(steps):
        walk[step + 1] = walk[step] - rate * (slope * walk[step] + random.normal(size=n_walks))
    kept = walk[[steps - apart * i for i in range(5)]]                                 # (5, n_walks)
    found = (kept.mean(axis=0) ** 2).mean() / (kept**2).mean()
    measure(f"{direction}: predicted {predicted(5, (1 - rate * slope)**apart):.3f}, found", found, lo, hi)

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
# follows the paper's schedule, so it is far from 0 at the end. The derivation makes three predictions. The mean of
# five gains. The mean of five *successive* steps gains next to nothing. And if the noise is taken away in another way,
# by letting the learning rate fall to 0 in the last 300 steps (same start, same batches), then there is a gain without
# any mean, and a mean adds little.

# %%
def row(n, apart="save_every", rate="schedule"):
    """Loss and BLEU of the three seeds"""
    return next(each for each in record["results"] if (each["n"], each["apart"], each["rate"]) == (n, apart, rate))


def gain(a, b):
    return b["mean_bleu"] - a["mean_bleu"]


measure("mean of 5 less the last: BLEU", gain(row(1), row(5)), 1.5, 2.5)
measure("five successive steps less the last", gain(row(1), row(5, apart="one step")), -0.5, 0.5)
measure("rate to 0, last, less schedule, last", gain(row(1), row(1, rate="to 0")), 2.2, 3.6)
measure("rate to 0: mean of 5 less the last", gain(row(1, rate="to 0"), row(5, rate="to 0")), -0.8, 0.4)
measure("mean of 10 less mean of 5", gain(row(5), row(10)), -0.4, 0.7)
measure("mean of 40 less the last", gain(row(1), row(40)), -9, -5)

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
# All three came true, and so did the answer to "Predict": the mean of forty reaches back to step 330 of 1,500, and is
# far worse than the last weights. Between five and ten, three seeds do not decide. A falling learning rate gains as
# much without any mean; whether it does nothing but remove noise, this experiment does not show.
#
# ## Check the claim
#
# > "The weights with the lower validation loss translate better."
#
# We ask the pairs among the last ten checkpoints of a run, two kinds of weights of the figure, and a longer run on real
# text (Multi30k, captions of photographs).

# %%
agreed = [(a["loss"] < b["loss"]) == (a["bleu"] > b["bleu"])
          for i, a in enumerate(record["checkpoints"]) for b in record["checkpoints"][:i] if a["seed"] == b["seed"]]
measure("pairs of checkpoints of one run that loss and BLEU rank alike", np.mean(agreed), 0.75, 0.93)
falling, five = row(1, rate="to 0"), row(5)
measure("falling rate, mean of 5: seeds with higher BLEU", sum(np.greater(falling["bleu"], five["bleu"])), 3, 3)
measure("    and with higher loss", sum(np.greater(falling["loss"], five["loss"])), 3, 3)
curve = json.loads((ROOT / "benchmarks/results/multi30k_cpu.json").read_text(encoding="utf-8"))["validation"]
earlier, later = [each for each in curve if "greedy_bleu" in each][-2:]
measure(f"Multi30k, steps {earlier['step']} to {later['step']}: loss", later["loss"] - earlier["loss"], -0.06, -0.02)
measure("    BLEU", later["greedy_bleu"] - earlier["greedy_bleu"], -0.5, -0.1)

# %% [markdown]
# Often true, and not to be relied on. In a run, about one pair in six disagrees, and so do the two points of Multi30k.
# That may be BLEU's own noise (Experiment 1); we have not taken the two apart. But of two *kinds* of weights, falling
# rate and mean of five, the one with the higher loss has the higher BLEU in all three seeds. Why, we have not tested.
# So choose by the measure that you care about, and give its interval.
#
# ## One sentence, all the way
#
# The translator is complete. One sentence on its way through it, each line with its lesson:

# %%
sentence, right = ("The horse leaves the street because it is too dark.",
                   "Das Pferd verlässt die Straße, weil sie zu dunkel ist.")
ids = np.array([[*translator.tokenizer.encode([sentence])[0], EOS]])                   # (1, S)
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
# Its numbers came from batches of pairs ([18](18_batches.py)), the smoothed loss ([14](14_label_smoothing.py)), a
# gradient carried backwards through every layer by hand (01 to 13), Adam and the warm-up
# ([15](15_adam_and_warmup.py)), two thousand watched steps ([16](16_first_training.py),
# [19](19_train_a_translator.py)), and the mean of the last five checkpoints.
#
# ## Paper and code
#
# - §6.1: the base models are means of the last 5 checkpoints, written every 10 minutes; the big ones of the last 20.
#   Table 2: 27.3 BLEU (base) and 28.4 (big) on newstest2014, English to German. No intervals are given.
# - *Differs:* the paper's public code has a script (`get_ende_bleu.sh`) for text cut into words by the Moses rules and
#   at hyphens; this library uses sacreBLEU (Post, 2018, "A Call for Clarity in Reporting BLEU Scores"), with 13a,
#   cased. Scores of the two are not comparable: issue 317 of tensor2tensor reports one model at 29.02 and at 27.52.
# - BLEU: Papineni, Roukos, Ward and Zhu (2002, "BLEU: a Method for Automatic Evaluation of Machine Translation"). Of
#   several references, the clip is the largest count in any of them; our test sets have one. sacreBLEU replaces a
#   match count of 0 by a small number. Means along noisy steps: Polyak and Juditsky (1992, "Acceleration of Stochastic
#   Approximation by Averaging").
# - In the library: [text/bleu.py](../scratchformer/text/bleu.py) (sacreBLEU),
#   [study/bleu_by_hand.py](../scratchformer/study/bleu_by_hand.py) with
#   [its tests](../tests/study/test_bleu_by_hand.py), `average` in
#   [training/checkpoints.py](../scratchformer/training/checkpoints.py), the experiment in
#   [benchmarks/averaging.py](../benchmarks/averaging.py). `scratchformer average RUN` makes the mean of a run.
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
# This part of the course ends here: you have a translator that you can train, judge and explain. What is missing is
# the paper's own evidence: its costs (Tables 1 and 2) and which parts of the model matter (Table 3). Those lessons are
# not written yet; the tables are in sections 4 and 6 of
# [the paper](https://arxiv.org/abs/1706.03762). To translate real text, train on a corpus of your own as in [lesson
# 19](19_train_a_translator.py).
