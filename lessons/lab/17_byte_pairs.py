# %% [markdown]
# # Lab notes 17 · Subwords: byte-pair encoding
#
# The experiments and controls behind [lesson 17](../17_byte_pairs.py): the merges of sentencepiece, what a longer
# sentence and a larger vocabulary cost, one vocabulary against two, and letters against pieces, paired over five runs.

# %%
import course  # noqa: F401  finds lessons/support
import math
from collections import Counter

import numpy as np

from scratchformer.config import ModelConfig
from scratchformer.nn.sizes import parameter_counts
from scratchformer.text.bundled import read_text
from scratchformer.text.tokenizer import N_SPECIALS, Tokenizer
from support import byte_pairs
from support.byte_pairs import count_model_losses, decode, learn_merges, words_of
from support.lesson import QUICK, ROOT, measure, table

LANGUAGES = {"en": "English", "de": "German"}
train, test = ({"en": pairs.source, "de": pairs.target}
               for pairs in (read_text("train"), read_text("test")))
text = train["en"] + train["de"]                               # 40,000 sentences
N_MERGES = 1536
more_merges = learn_merges(text, 3000, longest=16)
merges = more_merges[:N_MERGES]
words = Counter(word for line in text for word in words_of(line))
cut = byte_pairs.encode(text, merges)
uses = Counter(piece for pieces in cut for piece in pieces)
learned = ["".join(pair) for pair in merges]
vocabulary = {*learned, *"".join(words)}

# %% [markdown]
# ## Experiment 1: the same merges as sentencepiece
#
# The tokenizer of lesson 00 was made by sentencepiece from the same text. It allows 16 characters to a piece, and among
# equally frequent pairs it takes the shorter piece, then the earlier in Unicode. Two controls leave out one of these
# rules each. *New sentences* are those of the five validation and test sets.

# %%
sentencepiece = Tokenizer.load(ROOT / "data/tiny_model/tokenizer.model")
theirs = sentencepiece.pieces(range(N_SPECIALS, N_SPECIALS + N_MERGES))
splits = ("val", "test", "test_compositional", "test_long", "test_coreference")
new = [line for split in splits for lines in read_text(split)[:2] for line in lines]
their_cut = [sentencepiece.pieces(ids) for ids in sentencepiece.encode(new)]


def compare(name, ours, in_place, alike):
    """-> the cut of the new sentences by our merges"""
    same_place = sum(a + b == piece for (a, b), piece in zip(ours, theirs))
    measure(f"{name}: of {N_MERGES:,} merges, at the same position", same_place,
            in_place, in_place)
    our_cut = byte_pairs.encode(new, ours)
    measure(f"{name}: share of {len(new):,} new sentences cut alike",
            sum(a == b for a, b in zip(our_cut, their_cut)) / len(new), *alike)
    return our_cut


new_cut = compare("our merges", merges, 1536, (1, 1))
compare("other rule for ties", learn_merges(text, N_MERGES, lambda pair: pair, 16), 855,
        (0.975, 0.985))
if not QUICK:
    no_limit = learn_merges(text, N_MERGES)
    compare("no limit of 16 characters", no_limit, 1270, (0.985, 0.995))
    assert no_limit[:1270] == merges[:1270]
    print("merge 1,271 without the limit:", *no_limit[1270])
changed = sum(line != decode(pieces) for line, pieces in zip(text + new, cut + new_cut))
measure(f"of {len(text + new):,} sentences, changed by encoding and decoding", changed,
        0, 0)
measure("different pieces that the merges make", len(set(learned)), N_MERGES, N_MERGES)

# %% [markdown]
# The rule for ties changes many positions in the list, and the cut of few sentences. A third part of the rule, the
# shorter left part first, decides between two pairs that would make the same piece.
#
# Decoding gives back every character, but spaces at either end are lost, and several in a row become one. The corpus
# has neither. Many tokenizers also normalise characters: the single character U+FB01, a printer's joined *f* and *i*,
# becomes the two letters *f* and *i*. Here that is switched off.
#
# One public NumPy Transformer merges whatever learned pair comes first from the left, instead of the one that was
# learned first. Its cut of a text then differs from the cut that its merges were counted with.
#
# ## Experiment 2: what a longer sentence costs, and what a larger vocabulary
#
# A product of arrays $(n, a)$ and $(a, b)$ takes $n a b$ multiplications, each with an addition. Count these
# *multiply-adds* in the forward pass of the base model (lesson 13), for one sentence pair with $n$ tokens a side: what
# each position needs by itself, what the $n^2$ pairs of positions need, and the product with the embedding matrix
# before the softmax, $n V d$.

# %%
STAGES = (0, 300, 1536, 2903)
lengths = {}
for split, lines in ("train", train), ("test", test):
    for language in LANGUAGES:
        first = lines[language][:500]
        n_words = sum(len(words_of(line)) for line in first)
        lengths[split, language] = [
            sum(map(len, byte_pairs.encode(first, more_merges[:n]))) / n_words
            for n in STAGES]
measure("merges, when no pair is left to merge", len(more_merges), 2903, 2903)
for i, (english, german) in enumerate([((4.6, 4.8), (5.1, 5.4)),
                                       ((1.95, 2.1), (2.2, 2.35)),
                                       ((1.1, 1.2), (1.2, 1.3)),
                                       ((1, 1.01), (1, 1.02))]):
    for (split, language), row in lengths.items():
        name = f"{STAGES[i]:,} merges, {LANGUAGES[language]}, {split}: pieces per word"
        measure(name, row[i], *(english if language == "en" else german))


def multiply_adds(n, V, d=512, d_ff=2048, N=6):
    """-> by position, in pairs of positions, before the softmax; in millions"""
    # 4 projections in 3 attentions, 2 feed-forward networks
    by_position = N * n * (3 * 4 * d * d + 2 * 2 * d * d_ff)
    pairs = N * 3 * 2 * n * n * d                          # q·k, and weights times v
    return np.array([by_position, pairs, n * V * d]) / 1e6


words_per_sentence = np.mean([len(words_of(line)) for lines in test.values()
                              for line in lines])
by_word = {n: np.mean([lengths["test", language][STAGES.index(n)]
                       for language in LANGUAGES]) for n in (0, 300, 1536)}
rows = {f"{n:,} merges": (n + 64, 1 + words_per_sentence * pieces)
        for n, pieces in by_word.items()}
rows["a list of words"] = len(words) + 4, 1 + words_per_sentence
rows["37,000 pieces"] = 37_000, 1 + words_per_sentence
costs = {name: multiply_adds(n, V) for name, (V, n) in rows.items()}
table(["vocabulary", "V", "n", "positions", "pairs", "softmax", "sum, millions"],
      [[name, f"{V:,}", f"{n:.1f}", *(f"{cost:.0f}" for cost in costs[name]),
        f"{costs[name].sum():.0f}"] for name, (V, n) in rows.items()])
letters, paper = costs["0 merges"], costs["37,000 pieces"]
measure("letters over 37,000 pieces, in all", letters.sum() / paper.sum(), 3.2, 3.4)
measure("letters over a list of words, in all",
        letters.sum() / costs["a list of words"].sum(), 4.4, 4.7)
measure("letters: share of the pairs", letters[1] / letters.sum(), 0.015, 0.025)
measure("37,000 pieces: share of the softmax", paper[2] / paper.sum(), 0.28, 0.32)
counts = parameter_counts(ModelConfig(vocab_size=37_000))
measure("37,000 pieces: share of the base model's parameters",
        counts["embeddings"] / sum(counts.values()), 0.29, 0.31)
measure("n at which pairs cost as much as positions", (12 * 512 + 4 * 2048) / 6,
        2389, 2390)

# %% [markdown]
# Letters cost 3.3 times as much as 37,000 pieces, and 4.5 times as much as a list of words, which has the same $n$ as
# 37,000 but fewer rows. The pairs would cost as much as the positions at $6 n^2 d = n (12 d^2 + 4 d \, d_{ff})$, so at
# $n = (12 d + 4 d_{ff}) / 6$, above 2,000. (The row of 37,000 is a guess in its favour: every word one piece. For this
# corpus it would be waste, as it doesn't have so many words. The paper has 4.5 million sentence pairs of real text.)
#
# New text is cut nearly as well as the text that was counted. It comes from the same grammar, so that's no surprise; we
# haven't tested text of another kind. §4 of the paper says that self-attention is cheaper than a recurrent layer while
# $n < d$. In the table even letters have $n$ far below 512.
#
# ## Experiment 3: one vocabulary for two languages
#
# What does one list do besides allowing one embedding? The control is two lists, each learned from one language, with
# half of the merges each, so that they have as many in all. The twenty names are in no sentence.

# %%
NEW_NAMES = ("Annika Tobias Katharina Valentin Miriam Johannes Salzburg Benedikt "
             "Theresa Lissabon Sebastian Eleonore Istanbul Florian Marseille Angelika "
             "Konstantin Rotterdam Veronika Ferdinand").split()
assert not any(name in line for name in NEW_NAMES for line in text)
used = {language: Counter(piece for pieces in half for piece in pieces)
        for language, half in zip(LANGUAGES, (cut[:20_000], cut[20_000:]))}
common = [piece for piece in learned if used["en"][piece] and used["de"][piece]]
measure("learned pieces in both languages", len(common), 145, 160)
for language in LANGUAGES:
    share = sum(used[language][piece] for piece in vocabulary
                if used["en"][piece] and used["de"][piece])
    measure(f"{LANGUAGES[language]}: share of the running text in such pieces",
            share / used[language].total(), 0.25, 0.33)
print("such pieces:", *[piece for piece in common if len(piece) > 5][:12])
apart = [byte_pairs.encode(NEW_NAMES, learn_merges(train[language], N_MERGES // 2))
         for language in LANGUAGES]
together = byte_pairs.encode(NEW_NAMES, merges)
for english, german, one in list(zip(*apart, together))[:3]:
    print(f"two lists: {' '.join(english)} | {' '.join(german)}",
          f"   one list: {' '.join(one)}")
alike = sum(english == german for english, german in zip(*apart))
measure(f"of {len(NEW_NAMES)} new names, cut alike by the two lists", alike, 4, 4)

# %% [markdown]
# One learned piece in ten serves both languages: names, months, and parts of words. So sharing saves few rows in this
# corpus. But one list cuts a name in the same way on both sides: the same characters, the same merges. Sennrich, Haddow
# and Birch (2016) give this as a reason to learn from both languages at once. Whether a model that is trained so does
# better on new names, we haven't tested.
#
# ## Experiment 4: letters against pieces
#
# In a run all models have the same training sentences, λ and test sentences, so we compare them in *pairs* (as in
# [lesson 21](../21_bleu_and_averaging.py)). Five runs: three different sets of 2,000 training sentences with λ = 4, and
# the first set with λ = 2 and λ = 8. The interval is that of a paired bootstrap over the 500 test sentences (1,000
# samples, seed 0).

# %%
RUNS = [(0, 4)] if QUICK else [(0, 4), (1, 4), (2, 4), (0, 2), (0, 8)]
n_characters = np.array([len(line) + 1 for line in test["de"]])


def in_bits(n, order, part, weight):
    """-> the loss of each test sentence in bits (500,)"""
    parts = train["de"][2000 * part:2000 * (part + 1)], test["de"]
    counted, new_rows = (byte_pairs.encode(lines, merges[:n]) for lines in parts)
    losses = count_model_losses(counted, new_rows, order, n + 61, weight)
    return np.array(losses) / math.log(2)


MODELS = {"letters, 5": (0, 5), "letters, 7": (0, 7), "pieces, 1": (N_MERGES, 1),
          "pieces, 2": (N_MERGES, 2)}
losses = {name: np.array([in_bits(*key, *run) for run in RUNS])     # (runs, 500)
          for name, key in MODELS.items()}
table(["training part, λ", *MODELS],
      [[str(run), *(f"{losses[name][i].sum() / n_characters.sum():.3f}"
                    for name in MODELS)] for i, run in enumerate(RUNS)])
samples = np.random.default_rng(0).integers(0, 500, (1000, 500))


def difference(a, b):
    """-> bits per character, a − b (runs,), and the interval of each (runs, 2)"""
    apart = losses[a] - losses[b]
    drawn = apart[:, samples].sum(axis=2) / n_characters[samples].sum(axis=1)
    ends = np.quantile(drawn, [0.025, 0.975], axis=1).T
    return apart.sum(axis=1) / n_characters.sum(), ends


for a, b in ("letters, 5", "pieces, 1"), ("letters, 5", "pieces, 2"):
    found, ends = difference(a, b)
    for i, run in enumerate(RUNS):
        print(f"{a} − {b}, run {run}: {found[i]:+.3f},",
              "interval {:+.3f} to {:+.3f}".format(*ends[i]))
found, ends = difference("letters, 5", "pieces, 1")
measure("letters (5) − pieces (1): least favourable run", found.max(), -0.045, -0.015)
measure("letters (5) − pieces (1): runs whose interval is below 0",
        int((ends[:, 1] < 0).sum()), len(RUNS), len(RUNS))
found, ends = difference("letters, 5", "pieces, 2")
measure("letters (5) − pieces (2): mean", found.mean(), -0.01, 0.02)
measure("letters (5) − pieces (2): runs whose interval is below 0",
        int((ends[:, 1] < 0).sum()), 0, 0)

# %% [markdown]
# Letters with five letters of context win all five runs, by 0.024 to 0.046 bits, and each interval lies below 0. (Five
# of five would be p = 1/16 by signs alone, two-sided, but three of the runs share their training sentences, so they
# aren't independent. The intervals count.) The control is a longer context for the pieces: with two pieces the
# difference is −0.005 to 0.029, no interval lies below 0, and one lies above. So the first comparison measures the
# length of the context, too. A longer context isn't always better either: letters with seven letters of context are
# worse than with five in four of the five runs, since long contexts are rare.
#
# Bits per character are still a little unfair to pieces: a text can be cut in other ways too, and the model gives them
# some probability that isn't counted. For pieces the number is an upper bound; for letters it's exact. Whether letters
# do as well in a Transformer, we haven't tested; they would need more positions.
