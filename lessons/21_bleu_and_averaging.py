# %% [markdown]
# # 21 · BLEU, its error bars, and averaging checkpoints
#
# *About 35 minutes. You need: [lesson 14](14_label_smoothing.py) (the loss in nats), [lesson
# 15](15_adam_and_warmup.py) (the learning rate), [lesson 17](17_byte_pairs.py) (pieces), [lesson
# 19](19_train_a_translator.py) (a trained translator) and [lesson 20](20_beam_search.py) (greedy and beam search). You
# will have: BLEU from its definition, equal to the official program's; an interval around it; and a measured answer to
# what the mean of the last checkpoints is good for.*

# %% Imports
import tempfile
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from scratchformer.config import TINY
from scratchformer.decoding.search import search
from scratchformer.nn.attention import attention_weights
from scratchformer.study import bleu_by_hand
from scratchformer.study.figures import ACCENT, DARK, LIGHT
from scratchformer.study.heads import teacher_forced
from scratchformer.study.lesson import QUICK, ROOT, measure, recorded, same, show
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.grammar import Example
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training import checkpoints
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
# Here are two translators, the shipped model with greedy search and with a beam of 4, on two test sets. Which search
# should we use? The loss cannot say: it belongs to the model, and the model is the same. So compare the translations.
# The first way that comes to mind is to count those that are exactly the reference, the translation that the test set
# gives.

# %%
translations = {split: {"greedy": translator.translate(english[split], beam=1),
                        "beam 4": translator.translate(english[split], beam=4)} for split in SETS}


def exact(split, system):
    return np.mean([ours == reference for ours, reference in zip(translations[split][system], german[split])])


bleu_of = {}
for split, bands in zip(SETS, [[(97.5, 98.1), (97.3, 97.9), (-0.3, -0.05)], [(96.4, 97), (96.7, 97.3), (0.1, 0.5)]]):
    print(f"{split}: {len(german[split])} sentences")
    differ = sum(a != b for a, b in zip(*translations[split].values()))
    for system, band in zip(translations[split], bands):
        bleu_of[split, system] = corpus_scores(translations[split][system], german[split]).bleu
        print(f"    {system}: {exact(split, system):.1%} exactly right")
        measure(f"    {system}: BLEU", bleu_of[split, system], *band)
    measure("    beam less greedy", bleu_of[split, "beam 4"] - bleu_of[split, "greedy"], *bands[2])
    measure("    translations that differ", differ, 2, 9)
measure("test: exactly right, beam less greedy", exact("test", "beam 4") - exact("test", "greedy"), -0.003, 0.003)

# %% [markdown]
# On `test`, exact matches do not tell the two apart, and most sentences of a longer kind would never match: a sentence
# with one word off counts as much as one with none right. BLEU sees parts of sentences, and it decides: for greedy
# search on `test`, for the beam on `test_compositional`. Each verdict rests on a handful of sentences. Split `test`
# into two random halves, and see whether the two halves agree with each other. (The functions of `bleu_by_hand` are
# derived below.)

# %%
split_13a = Tokenizer13a()


def tokens(lines):
    """-> a list of words for each line; punctuation marks are words (sacreBLEU's rule 13a)"""
    return [split_13a(line).split() for line in lines]


def table_of(lines, references):
    return bleu_by_hand.count_table(tokens(lines), tokens(references))


tables = {split: [table_of(lines, german[split]) for lines in translations[split].values()] for split in SETS}


def lead(pair, rows):
    """How far the second system is ahead of the first on these sentences, in BLEU."""
    first, second = (bleu_by_hand.bleu(table[rows].sum(axis=0)) for table in pair)
    return second - first


random = np.random.default_rng(0)
halves = [np.split(random.permutation(500), 2) for _ in range(200 if QUICK else 1000)]
opposed = np.mean([lead(tables["test"], a) * lead(tables["test"], b) < 0 for a, b in halves])
measure("pairs of halves that prefer different systems", opposed, 0.28, 0.48)

# %% [markdown]
# In more than a quarter of the splittings one half says *greedy* and the other *beam*. So before we believe a
# difference, we must know what BLEU counts, and how far it would move on other sentences.
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
axes.invert_yaxis()
axes.set(yticks=[], xlim=(0, len(hypothesis) + 2.2))
axes.set_title("The n-grams of a translation; hatched: not in the reference")
axes.spines[["left", "right", "bottom"]].set_visible(False)
show(figure, "21_ngrams", alt="to be written when the figure is known, with its numbers and what it says")

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
# *brevity penalty*. Precision asks only what was written, so something must ask what was not.
#
# A table with a row for each sentence holds all that BLEU needs: four numbers of matches, four of $n$-grams, and the
# length of the reference. The score of any set of sentences is that of the sum of their rows.

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
# us cheat. Each of three cheats makes 500 lines out of the references and of words that are always good. Their BLEU is
# computed as it is, and with one part taken away.

# %%
wanted = tokens(german["test"])
frequent = [word for word, _ in Counter(word for words in wanted for word in words).most_common(1)] * 4
cheats = {"an honest translation": tokens(translations["test"]["greedy"]),
          "one frequent word, again and again": [frequent * 2 for _ in wanted],
          "the first four words, then stop": [words[:4] for words in wanted],
          "all the right words, sorted": [sorted(words) for words in wanted]}


def variants(hypotheses):
    """-> BLEU of the corpus as it is, and in four variants"""
    total = np.array([row_of(*pair) for pair in zip(hypotheses, wanted)]).sum(axis=0)
    long_enough = np.where(np.arange(9) == 8, min(total[4], total[8]), total)
    unclipped = sum(word in reference for words, reference in zip(hypotheses, wanted) for word in words) / total[4]
    precisions = total[:4] / total[4:8]
    B = bleu(total) / bleu(long_enough) if total[3] else 1.0
    return [bleu(total), bleu(long_enough), 100 * B * precisions[0], 100 * B * unclipped, 100 * B * precisions.mean()]


print(f"{'':36}{'BLEU':>8}{'no B':>8}{'n = 1':>8}{'n = 1, unclipped':>18}{'arithmetic mean':>17}")
scores = {name: variants(hypotheses) for name, hypotheses in cheats.items()}
for name, (real, no_b, one, unclipped, arithmetic) in scores.items():
    print(f"{name:36}{real:8.1f}{no_b:8.1f}{one:8.1f}{unclipped:18.1f}{arithmetic:17.1f}")

# %% Backward draft
model, tokenizer = translator.model, translator.tokenizer
few = slice(0, 40)
batch = teacher_forced(tokenizer, [Example(s, t, *[None] * 4) for s, t in zip(english["test"][few], german["test"][few])])
start = model.store.data.copy()
direction = np.random.default_rng(2).normal(size=start.size).astype(start.dtype)
direction *= np.linalg.norm(start) / np.linalg.norm(direction)


def at(h):
    """-> loss in nats per piece, BLEU of the greedy translations, with all weights moved by h along the direction"""
    model.store.data[...] = start + h * direction
    model.store.refresh()
    loss, n_pieces = model.loss(*batch)
    table = table_of(translator.translate(english["test"][few], beam=1), german["test"][few])
    model.store.data[...] = start
    model.store.refresh()
    return float(loss) / n_pieces, float(bleu(table.sum(axis=0)))


import time
t=time.process_time()
for h in np.linspace(-.3,.3,13): print(h, at(h))
for h in 1e-4,1e-3,1e-2: print(h,at(h),at(-h))
print(time.process_time()-t)
