# %% [markdown]
# # 17 · Subwords: byte-pair encoding
#
# *About 35 minutes. You need: [lesson 00](00_whole_game.py) (pieces and ids), [lesson 08](08_embeddings.py)
# (embedding and tying), [lesson 13](13_whole_model.py) (what the base model consists of) and
# [lesson 14](14_label_smoothing.py) (the loss). You will have: byte-pair encoding in thirty lines, compared
# with sentencepiece merge by merge, and a loss that can be compared between vocabularies.*

# %% Imports
import math
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np

from library import byte_pairs
from library.byte_pairs import bits_per_character, decode, learn_merges, words_of
from library.lesson import QUICK, ROOT, measure, show
from scratchformer.config import ModelConfig
from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.experiments.sizes import parameter_counts
from scratchformer.text.tokenizer import N_SPECIALS, Tokenizer

# %% [markdown]
# ## Question
#
# **A list of words is never complete, and letters make sentences long. What lies between, and who decides where to
# cut?**
#
# The answer in one sentence: begin with letters and merge the most frequent pair of neighbours into a new piece,
# again and again, until the vocabulary is full; then frequent words are one piece, rare words are several, and no
# word of known letters is unknown.
#
# A model has one row of its embedding for each entry of a fixed list. Let the entries be words, and collect them from
# the 20,000 training sentences of the bundled corpus. `words_of` splits at spaces, and keeps letters apart from all
# else: the full stop is an entry of its own. The mark "▁" stands where a space was, and at the start of the sentence.

# %%
def lines_of(split, language):
    return (ROOT / f"data/tiny/{split}.{language}").read_text(encoding="utf-8").splitlines()


LANGUAGES = {"en": "English", "de": "German"}
train, test = ({language: lines_of(split, language) for language in LANGUAGES} for split in ("train", "test"))
text = train["en"] + train["de"]                               # 40,000 sentences
print(words_of("My goat, too."))
for language, different, new, unknown in ("en", 699, 0, 0), ("de", 1491, 81, 8):
    name = LANGUAGES[language]
    earlier, later = ({word for line in lines for word in words_of(line)}
                      for lines in (train[language][:15_000], train[language][15_000:]))
    known = earlier | later
    met = [word for line in test[language] for word in words_of(line)]
    missing = [word for word in met if word not in known]
    measure(f"{name}: different words in 20,000 sentences", len(known), different, different)
    measure("    of these, new in the last 5,000", len(later - earlier), new, new)
    measure("    words of the 500 test sentences that are not in the list", len(missing), unknown, unknown)
    measure("    characters for each word, with the mark", sum(map(len, met)) / len(met), 4.6, 5.4)
measure("different characters in both languages, with the mark", len({*"".join(text), "▁"} - {" "}), 60, 60)
for line in test["de"]:
    if not known.issuperset(words_of(line)):
        print("".join(word if word in known else "▁<unk>" for word in words_of(line)).replace("▁", " "))

# %% [markdown]
# Of a word that is not in the list, a model sees the id `<unk>` (*unknown*), as in the last eight lines, and it cannot
# write it at all. Eight words are few. This corpus was generated from a small lexicon, and the English list is
# complete; but the German one still grows after 15,000 sentences, because German writes a number as one word. In real
# text, names and compounds come on top.
#
# Single characters cannot fail in this way, as long as each of them was seen. There are 60 here: letters, capitals,
# signs and the mark. But a sentence becomes about five times as long.
#
# ## The idea in one picture
#
# Here is one of the unknown words, 944, after more and more merges. No merge was made for it, as it is not in the
# training text; but its parts are.

# %% The figure
N_MERGES = 1536
more_merges = learn_merges(text, 3000, longest=16)             # 1,536 will do; Experiment 1 needs the others
merges = more_merges[:N_MERGES]
SHOWN = "neunhundertvierundvierzig"
figure, axes = plt.subplots(figsize=(8, 3.3), layout="constrained")
stages = [0, 10, 30, 100, 300, 1000, N_MERGES]
for row, n in enumerate(stages):
    x, [pieces] = 0, byte_pairs.encode([SHOWN], merges[:n])
    for piece in pieces:
        axes.barh(row, len(piece) - 0.12, left=x, height=0.72, color=LIGHT, edgecolor=DARK)
        axes.text(x + len(piece) / 2 - 0.06, row, piece, ha="center", va="center", fontsize=10)
        x += len(piece)
    axes.text(x + 0.4, row, f"{len(pieces)}", va="center", color=ACCENT)
axes.text(len(SHOWN) + 1.4, -0.8, "pieces", ha="center", color=ACCENT)
axes.set_yticks(range(len(stages)), [f"{n:,}" for n in stages])
axes.set(ylabel="merges", title="A word that the training text does not contain, in pieces", xlim=(-0.2, 28.5))
axes.invert_yaxis()
axes.xaxis.set_visible(False)
axes.spines[:].set_visible(False)
show(figure, "17_cut", alt="The German word for 944 as rows of boxes, a box for each piece. "
     "Without merges it is 26 single characters. After 10, 30, 100, 300, 1,000 and 1,536 merges it is 23, 19, 16, 9, 6 "
     "and 4 pieces. After 300, hundert is one piece; in the last row the pieces are neun, hundert, vier, undvierzig.")

# %% [markdown]
# ## The equation, and the same in code
#
# Let the text have the different words $w$, and let $w$ occur $c_w$ times. Each word is a list of pieces
# $w_1, w_2, \dots$, at first its characters. How often does piece $b$ stand right behind piece $a$?
#
# $$N(a, b) = \sum_w c_w \cdot \left\vert \{ i : w_i = a, \; w_{i+1} = b \} \right\vert$$
#
# One step of learning takes the pair with the largest $N$, writes it down, and replaces it by the one piece $ab$ in
# every word, from left to right. (In *a a a* the pair *a a* counts twice, and a merge can use one of the two.) A list
# of such steps is all that is learnt. Two decisions are hidden in it.
#
# - **Ties.** Several pairs may be equally frequent. Here the shorter piece comes first, then the one that is earlier
#   in Unicode, the standard that numbers all characters.
# - **Borders.** Pairs do not run across words, nor from letters to other signs. So *dog.* is two pieces or more, and
#   *dog* is the same piece at the end of a sentence as in the middle.

# %%
def count_pairs(words):
    """words {pieces of a word: how often it occurs} -> {(a, b): N(a, b)}"""
    pairs = Counter()
    for word, times in words.items():
        for pair in zip(word, word[1:]):
            pairs[pair] += times
    return pairs


def merge(word, pair):
    """Join the pair wherever it stands in the word, from left to right."""
    pieces, i = [], 0
    while i < len(word):
        width = 2 if word[i:i + 2] == pair else 1
        pieces.append("".join(word[i:i + width]))
        i += width
    return tuple(pieces)


def learn(words, n_merges):
    """-> the merges [(a, b), ...], and how often each pair stood there"""
    learnt, counts = [], []
    for _ in range(n_merges):
        pairs = count_pairs(words)
        best = min(pairs, key=lambda pair: (-pairs[pair], len("".join(pair)), "".join(pair)))
        words = {merge(word, best): times for word, times in words.items()}
        learnt.append(best)
        counts.append(pairs[best])
    return learnt, counts


tiny = {tuple("▁Hund"): 5, tuple("▁hundert"): 3, tuple("▁und"): 6, tuple("▁rund"): 2}
print("pairs at the start:", *(f"{a} {b}: {n}  " for (a, b), n in count_pairs(tiny).most_common(6)))
for n, ((a, b), count) in enumerate(zip(*learn(tiny, 7)), 1):
    [cut] = byte_pairs.encode(["Hund hundert und rund"], learn(tiny, n)[0])
    print(f"merge {n}: {a} + {b}, {count} times    {' '.join(cut)}")

# %% [markdown]
# *Hund* is dog, *hundert* hundred, *und* and, *rund* round. The first merge is a tie, decided by Unicode: *nd* before
# *un*. After two merges, the part that all four words share is a piece. That it means something in one of them and
# nothing in the others, no count can know.
#
# ## Forward
#
# To encode a sentence is to *replay* the merges on its characters, in the order in which they were learnt. To decode
# is to join the pieces, and to write a space for each "▁".

# %%
def encode(sentence, merges):
    """-> the pieces of a sentence"""
    return [piece for word in words_of(sentence) for piece in replayed(tuple(word), merges)]


def replayed(word, merges):
    for pair in merges:
        word = merge(word, pair)
    return word


sentence = "Die Ziege zählt neunhundertvierundvierzig Äpfel."
texts = [sentence, *(word[1:] for word in missing)]
cuts = [encode(one, merges) for one in texts]
print(*map(" ".join, cuts), decode(cuts[0]), sep="\n")
equal = sum(ours == theirs for ours, theirs in zip(cuts, byte_pairs.encode(texts, merges)))
measure("of 9 texts, cut by this page as by the library", equal, 9, 9)

# %% [markdown]
# Order matters: if `b c` was learnt before `a b`, then `abc` becomes `a bc`, not `ab c`. One public NumPy Transformer
# merges whatever learnt pair comes first from the left. A model must be given the cut that it was trained on.
#
# A piece has an id only if it is in the vocabulary: the four special ids, 1,536 merges and 60 characters make the
# 1,600 of the model in lesson 00. Its tokenizer, which cuts text and gives ids, is read from a file here. Every word
# of known characters has its pieces. What of a *character* that was never seen? The library has two answers. By
# default, as in this model, it is `<unk>`. With `byte_fallback` the vocabulary holds the 256 bytes as well, and the
# character becomes the bytes of its UTF-8 code, the usual way to store text:

# %%
NAME = "Zoë"
sentencepiece = Tokenizer.load(ROOT / "data/tiny_model/tokenizer.model")
measure("pieces of the model in lesson 00", sentencepiece.vocab_size, 1600, 1600)
for fallback, tokenizer in (False, sentencepiece), (True, Tokenizer.train(text, 1600, byte_fallback=True)):
    [ids] = tokenizer.encode([NAME])
    print(f"byte_fallback = {fallback}: {' '.join(tokenizer.pieces(ids))}    read back: {tokenizer.decode([ids])[0]}")
    measure("    is what was encoded (1) or not (0)", int(tokenizer.decode([ids]) == [NAME]), fallback, fallback)

# %% [markdown]
# The 256 bytes take the room of 256 merges.
#
# ## Backward: none, and what follows
#
# Follow one number from the text to the loss: a count $N(a, b)$. A slightly larger count changes nothing at all,
# until it overtakes another; then the list of merges changes in a jump, and all ids with it. The derivative is 0 or
# does not exist. So the merges are not trained with the model. They are counted before, and stay as they are. Three
# things follow, and each can be seen.
#
# **1. The cut is greedy.** Can the same text be written with fewer of the same pieces? The least number for a word
# follows from the least numbers of its beginnings. And how good is a simpler rule, always the longest piece that fits?

# %%
words = Counter(word for line in text for word in words_of(line))
cut = byte_pairs.encode(text, merges)
uses = Counter(piece for pieces in cut for piece in pieces)
learnt = ["".join(pair) for pair in merges]
vocabulary = {*learnt, *"".join(words)}


def fewest(word):
    """The least number of pieces that spell a word."""
    least = [0]
    for j in range(1, len(word) + 1):
        least.append(1 + min(least[i] for i in range(j) if word[i:j] in vocabulary))
    return least[-1]


def longest_first(word):
    """The number of pieces, if each is the longest that fits."""
    j = max((j for j in range(len(word) + 1) if word[:j] in vocabulary), default=0)
    return 1 + longest_first(word[j:]) if word else 0


least, by_length = (sum(times * rule(word) for word, times in words.items()) for rule in (fewest, longest_first))
measure("replayed: pieces of the training text", uses.total(), 440_000, 450_000)
measure("    more than the least, in %", 100 * (uses.total() / least - 1), 0.2, 1)
measure("longest first: more than the least, in %", 100 * (by_length / least - 1), 0.1, 0.8)

# %% [markdown]
# Greedy costs little here, and the simpler rule is even a little shorter. What replaying has for it: it cuts every
# training word as it was cut when the merges were counted.
#
# **2. Some pieces are scaffolding.** A piece was frequent when it was made. Later merges may use up all of its
# occurrences.

# %%
unused = [piece for piece in learnt if not uses[piece]]
print(*unused[:16])
measure("learnt pieces that are in no training sentence", len(unused), 340, 380)
measure("    share of all learnt pieces", len(unused) / len(learnt), 0.2, 0.27)
once = [word for word, times in words.items() if times == 1]
measure("the list of words: how many stand there once", len(once), 312, 312)

# %% [markdown]
# Such a piece has a row of the embedding that is never looked up in training, and it is never the right answer. A
# list of words has rows of another kind: a word that stands there once has one example to learn from.
#
# **3. Frequency is not meaning.** In the number words above, *und* and *vierzig* are merged across the border of two
# parts, *sechs* (six) came out as `se chs`, and one *hundert* begins with `▁hund`. The model must learn what such
# pieces mean together.
#
# ## Check
#
# First the counting: the library keeps its counts up to date, in place of counting anew. Then the method: the
# tokenizer of lesson 00 was made by sentencepiece (Kudo and Richardson, 2018), a program by others, from the same text.

# %%
some = 20 if QUICK else 200
slow, _ = learn({tuple(word): times for word, times in words.items()}, some)
equal = sum(ours == theirs for ours, theirs in zip(slow, merges))
measure(f"of {some} merges, the same on this page and in the library", equal, some, some)
measure("different pieces that the merges make", len(set(learnt)), N_MERGES, N_MERGES)

# %%
theirs = sentencepiece.pieces(range(N_SPECIALS, N_SPECIALS + N_MERGES))
new = [line for split in ("val", "test", "test_compositional", "test_long", "test_coreference")
       for language in LANGUAGES for line in lines_of(split, language)]
their_cut = [sentencepiece.pieces(ids) for ids in sentencepiece.encode(new)]


def compare(name, ours, in_place, alike):
    """-> the cut of the new sentences by our merges"""
    same_place = sum(a + b == piece for (a, b), piece in zip(ours, theirs))
    measure(f"{name}: of {N_MERGES:,} merges, at the same place", same_place, in_place, in_place)
    our_cut = byte_pairs.encode(new, ours)
    share = sum(a == b for a, b in zip(our_cut, their_cut)) / len(new)
    measure(f"    share of {len(new):,} new sentences that are cut alike", share, *alike)
    return our_cut


new_cut = compare("our merges", merges, 1536, (1, 1))
compare("other rule for ties", learn_merges(text, N_MERGES, lambda pair: pair, 16), 855, (0.975, 0.985))
if not QUICK:
    compare("no limit of 16 characters", learn_merges(text, N_MERGES), 1270, (0.985, 0.995))
changed = sum(line != decode(pieces) for line, pieces in zip(text + new, cut + new_cut))
measure(f"of {len(text + new):,} sentences of all sets, not the same after encoding and decoding", changed, 0, 0)

# %% [markdown]
# With sentencepiece's limit of 16 characters to a piece and its rule for ties, the library's counting gives the same
# merges in the same order. Without either, the lists part. (The thirty lines of this page count all words anew for
# each merge and would take long for 1,536; the first 200 were compared.) The rule for ties changes many places in the
# list, and the cut of few sentences. The library's rule has one part more, for two pairs that would make the same
# piece; this page does without it, and its 200 merges are the same.
#
# Decoding gives back every character, but spaces at either end are lost, and several in a row become one. The corpus
# has neither. Many tokenizers also normalise characters, so that ﬁ becomes fi; here that is switched off.
#
# ## Experiment 1: how many merges?
#
# The number of merges is the one number to choose. How long do sentences become, on the text that was counted and on
# new text?

# %%
measure("merges, when no pair is left to merge", len(more_merges), 2903, 2903)
STAGES = [0, 10, 30, 100, 300, 600, 1000, 1536, 2000, 2903]
lengths = {}
for split, lines in ("train", train), ("test", test):
    for language in LANGUAGES:
        first = lines[language][:500]
        n_words = sum(len(words_of(line)) for line in first)
        lengths[split, language] = [sum(map(len, byte_pairs.encode(first, more_merges[:n]))) / n_words
                                    for n in STAGES]
for n, english, german in ((0, (4.6, 4.8), (5.1, 5.4)), (300, (1.95, 2.1), (2.2, 2.35)),
                           (1536, (1.1, 1.2), (1.2, 1.3)), (2903, (1, 1.01), (1, 1.02))):
    for (split, language), row in lengths.items():
        measure(f"{n:,} merges, {LANGUAGES[language]}, {split}: pieces for each word", row[STAGES.index(n)],
                *(english if language == "en" else german))

# %% The figure
figure, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
looks = {"en": ("o", DARK), "de": ("s", ACCENT)}
for (split, language), row in lengths.items():
    marker, colour = looks[language]
    axes.plot(STAGES, row, f"{marker}-" if split == "train" else f"{marker}--", color=colour, markersize=5,
              markerfacecolor=colour if split == "train" else "white", label=f"{LANGUAGES[language]}, {split}")
axes.set_xscale("symlog", linthresh=10)
axes.set_xticks(STAGES, [f"{n:,}" if n != 2000 else "" for n in STAGES], rotation=45)
axes.minorticks_off()
axes.axhline(1, color="#888888", lw=0.8, ls=":")
axes.text(0, 1.07, "every word is one piece", color="#444444")
axes.set(xlabel="merges (vocabulary: 64 more)", ylabel="pieces for each word", ylim=(0.8, 5.8),
         title="Most of the shortening is bought by the first few hundred merges")
axes.legend()
show(figure, "17_length", alt="Pieces for each word against the number of merges, logarithmic, for English and "
     "German. Without merges, 4.7 in English and 5.2 in German; after 300, 2.0 and 2.2; after 1,536, about 1.2; after "
     "2,903, 1.0. The dashed curves of the test text lie on those of the training text, or a little above.")

# %% [markdown]
# The first 300 merges make sentences less than half as long; 1,536 leave about 1.2 pieces to a word. With 2,903 all
# counted words of up to 16 characters are one piece: a list of words again, but one that falls back on parts. New text
# is cut nearly as well as the text that was counted. It comes from the same grammar, so that is no surprise; how it is
# with text of another kind, we have not tested.
#
# What does a row of the vocabulary cost, and what a longer sentence? A product of arrays $(n, a)$ and $(a, b)$ takes
# $n a b$ multiplications, each with an addition. Count these *multiply-adds* in the forward pass of the base model
# (lesson 13), for one sentence pair with $n$ *tokens* a side, its pieces and `</s>`: what each position needs by
# itself, what the $n^2$ pairs of positions need, and the product with the embedding matrix before the softmax,
# $n V d$.

# %%
def multiply_adds(n, V, d=512, d_ff=2048, N=6):
    """-> by position, in pairs of positions, before the softmax; in millions"""
    by_position = N * n * (3 * 4 * d * d + 2 * 2 * d * d_ff)       # 4 projections in 3 attentions, 2 feed-forwards
    pairs = N * 3 * 2 * n * n * d                                  # 3 attentions: q·k, and weights times v
    return np.array([by_position, pairs, n * V * d]) / 1e6


words_per_sentence = np.mean([len(words_of(line)) for lines in test.values() for line in lines])
by_word = {n: np.mean([lengths["test", language][STAGES.index(n)] for language in LANGUAGES]) for n in (0, 300, 1536)}
rows = {f"{n:,} merges": (n + 64, 1 + words_per_sentence * pieces) for n, pieces in by_word.items()}
rows["a list of words"] = len(words) + 4, 1 + words_per_sentence
rows["37,000 pieces, all words one piece"] = 37_000, 1 + words_per_sentence
print(f"{'':36}{'V':>7}{'n':>7}{'position':>10}{'pairs':>8}{'softmax':>9}{'sum':>8}   millions")
costs = {}
for name, (V, n) in rows.items():
    costs[name] = multiply_adds(n, V)
    print(f"{name:36}{V:7,}{n:7.1f}" + "".join(f"{cost:{width}.0f}" for cost, width in zip(costs[name], (10, 8, 9)))
          + f"{costs[name].sum():8.0f}")
letters, paper = costs["0 merges"], costs["37,000 pieces, all words one piece"]
measure("letters over 37,000 pieces, in all", letters.sum() / paper.sum(), 3.2, 3.4)
measure("letters over a list of words, in all", letters.sum() / costs["a list of words"].sum(), 4.4, 4.7)
measure("letters: share of the pairs", letters[1] / letters.sum(), 0.015, 0.025)
measure("37,000 pieces: share of the softmax", paper[2] / paper.sum(), 0.28, 0.32)
counts = parameter_counts(ModelConfig(vocab_size=37_000))
measure("37,000 pieces: share of the base model's parameters", counts["embeddings"] / sum(counts.values()), 0.29, 0.31)
measure("n at which pairs cost as much as positions", (12 * 512 + 4 * 2048) / 6, 2389, 2390)

# %% [markdown]
# Letters cost more than three times as much as 37,000 pieces, and four and a half times as much as a list of words,
# which has the same $n$ as 37,000 but fewer rows. It is often said that this is because attention costs $n^2$. Here it
# is not: the pairs are 2 % of the cost of letters. They would cost as much as the positions at
# $6 n^2 d = n (12 d^2 + 4 d \, d_{ff})$, so at $n = (12 d + 4 d_{ff}) / 6$, above 2,000. A sentence of five times as
# many tokens passes five times as many positions through all layers, and that is the price.
#
# A large vocabulary has its price at the other end: with 37,000 rows, three tenths of the multiply-adds and of the
# parameters. (That row of the table is a guess in favour of 37,000: every word one piece.) For this corpus it would
# be waste, as it does not have so many words. The paper has 4.5 million sentence pairs of real text.
#
# ## Experiment 2: one vocabulary for two languages
#
# The paper has one list of pieces for source and target. It must, as both share one embedding matrix (lesson 08): an
# id has to mean the same piece on both sides. What else does one list do? The control is two lists, each learnt from
# one language, with half of the merges each, so that they have as many in all. The twenty names are in no sentence.

# %%
NEW_NAMES = ["Annika", "Tobias", "Katharina", "Valentin", "Miriam", "Johannes", "Salzburg", "Benedikt", "Theresa",
             "Lissabon", "Sebastian", "Eleonore", "Istanbul", "Florian", "Marseille", "Angelika", "Konstantin",
             "Rotterdam", "Veronika", "Ferdinand"]
assert not any(name in line for name in NEW_NAMES for line in text)
used = {language: Counter(piece for pieces in half for piece in pieces)
        for language, half in zip(LANGUAGES, (cut[:20_000], cut[20_000:]))}
common = [piece for piece in learnt if used["en"][piece] and used["de"][piece]]
measure("learnt pieces in both languages", len(common), 145, 160)
for language in LANGUAGES:
    share = sum(used[language][piece] for piece in vocabulary if used["en"][piece] and used["de"][piece])
    measure(f"{LANGUAGES[language]}: share of the pieces written", share / used[language].total(), 0.25, 0.33)
print("such pieces:", *(piece for piece in common if len(piece) > 5))
apart = [byte_pairs.encode(NEW_NAMES, learn_merges(train[language], N_MERGES // 2)) for language in LANGUAGES]
for english, german, together in list(zip(*apart, byte_pairs.encode(NEW_NAMES, merges)))[:3]:
    print(f"two lists: {' '.join(english)} | {' '.join(german)}    one list: {' '.join(together)}")
alike = sum(english == german for english, german in zip(*apart))
measure(f"of {len(NEW_NAMES)} new names, cut alike by the two lists", alike, 4, 4)

# %% [markdown]
# One in ten pieces serves both languages: names, months, and parts of words. With the full stop and single letters
# they make up between a quarter and a third of the running text. So sharing saves few rows in this corpus.
#
# But one list cuts a name in the same way on both sides: the same characters, the same merges. Two lists did so for
# 4 of 20 names; Sennrich, Haddow and Birch (2016) give this as a reason to learn from both languages at once. A
# name can then be translated by copying its pieces. Whether a model that is trained so does better on new names, we
# have not tested.
#
# ## Check the claim
#
# > "The model with the lower loss per token, or perplexity, is the better model of the text."
#
# To put it to the test, a model that is only counts: how likely is piece $b$ behind the context $c$, the last `order`
# pieces? Long contexts are rarely met, so their counts are mixed with the guess from the context $c'$, which is one
# piece shorter:
#
# $$p(b \mid c) = \frac{\text{count}(c \, b) + \lambda \, p(b \mid c')}{\text{count}(c) + \lambda}$$
#
# The shorter context weighs as much as $\lambda$ (lambda) occurrences; below the empty context stands $1/V$. The model
# is counted on 2,000 German sentences and asked about the 500 of the test: letter by letter, with one letter of
# context or with five, and in pieces, with one piece of context. Three parts of the training text and three values
# of $\lambda$ show how much hangs on these two.

# %%
def windows(rows, order):
    """Each piece of each row, </s> at its end, behind the `order` pieces before it"""
    for row in rows:
        row = ("<s>",) * order + (*row, "</s>")
        yield from (row[i - order:i + 1] for i in range(order, len(row)))


def loss_of(rows, new_rows, order, V, weight):
    """-> the sum of -ln p over all pieces of new_rows, for a model that has counted rows"""
    counts, contexts = Counter(), Counter()
    for window, times in Counter(windows(rows, order)).items():
        for k in range(order + 1):
            counts[window[k:]] += times
            contexts[window[k:-1]] += times
    loss = 0
    for window, times in Counter(windows(new_rows, order)).items():
        p = 1 / V
        for k in range(order, -1, -1):                         # from the empty context to the longest
            p = (counts[window[k:]] + weight * p) / (contexts[window[k:-1]] + weight)
        loss -= times * math.log(p)
    return loss


RUNS = [(0, 4)] if QUICK else [(0, 4), (1, 4), (2, 4), (0, 2), (0, 8)]   # which 2,000 sentences, and lambda
measured, n_characters = {}, sum(len(line) + 1 for line in test["de"])   # the end of a line is a character, too
for n, order, nats, bits in ((0, 1, (2.15, 2.25), (3.2, 3.3)), (0, 5, (0.75, 0.83), (1.1, 1.2)),
                             (200, 1, (2.5, 2.7), (1.8, 1.95)), (N_MERGES, 1, (3.05, 3.3), (1.15, 1.25))):
    new_rows = byte_pairs.encode(test["de"], merges[:n])
    losses = np.array([loss_of(byte_pairs.encode(train["de"][2000 * part:2000 * (part + 1)], merges[:n]), new_rows,
                               order, n + 61, weight) for part, weight in RUNS])   # V: 60 characters, and </s>
    in_bits = np.array([bits_per_character(loss, n_characters) for loss in losses])
    print(f"{n:,} merges, {order} piece{'s' * (order > 1)} of context, mean of {len(RUNS)} runs")
    measured[n, order] = (
        measure("    nats for each piece", losses.mean() / sum(len(row) + 1 for row in new_rows), *nats),
        measure("    bits for each character", in_bits.mean(), *bits))
    measure("        between the runs, at most", np.ptp(in_bits), 0, 0.05)
nats, bits = np.divide(measured[0, 5], measured[N_MERGES, 1])
measure("five letters of context over whole pieces: nats for each piece", nats, 0.22, 0.28)
measure("    bits for each character", bits, 0.94, 1)

# %% [markdown]
# With one piece of context, more merges make the loss of a piece worse and the bits of a character better: the two
# numbers order three models in opposite ways. Letters with five letters of context have a quarter of the loss of
# pieces, and nearly the same bits: the two differ by about as much as the runs do. The loss of a piece pays for all of
# its letters at once, and the vocabulary decides how many these are. Perplexity is $e$ to that loss and has the same
# fault.
#
# What two vocabularies have in common is the text. So add up the losses over the whole of it, and divide by something
# that no vocabulary changes: characters. (One bit is $\ln 2$ nats.) Even this is a little unfair to pieces: a text can
# be cut in other ways too, and the model gives them some probability that is not counted. For pieces it is an upper
# bound; for letters it is exact.
#
# So a model of letters that looks far enough is as good here; it pays with more positions. Whether that holds for a
# Transformer, we have not tested.
#
# ## Paper and code
#
# - §5.1: English–German is encoded with byte-pair encoding and "a shared source-target vocabulary of about 37000
#   tokens"; English–French has 32,000 word pieces, made by a related method (Wu et al., 2016). For the former it
#   cites Britz et al. (2017), *Massive Exploration of Neural Machine Translation Architectures*.
# - §4: a layer of self-attention is cheaper than a recurrent one while $n < d$, which the paper expects of sentences
#   in word pieces or byte pairs. In the table above even letters have $n$ far below 512.
# - The method: Gage (1994), *A New Algorithm for Data Compression*, merges bytes of a file; Sennrich, Haddow and Birch
#   (2016), *Neural Machine Translation of Rare Words with Subword Units*, merges characters within words.
# - *Differs:* the public data of the paper's experiment was made with the program subword-nmt, on text that another
#   program, Moses, had cut into words and signs. It has about 36,500 different pieces, in a matrix of 40,960 rows
#   ([the correctness report](../docs/correctness.md)). This library learns from plain text, so that decoding gives it
#   back.
# - In the library: `Tokenizer` in [text/tokenizer.py](../scratchformer/text/tokenizer.py) fixes the options of
#   sentencepiece; the functions of this page are in [library/byte_pairs.py](../lessons/library/byte_pairs.py), and
#   [their tests](../tests/lessons/library/test_byte_pairs.py) compare the two. `vocab_size` counts the
#   special ids and the characters as well as the merges.
#
# ## Exercises
#
# **Predict.** The text is the one word *banana*. What are the first two merges, by the rules of this page?
#
# <details><summary>Answer</summary>
#
# `a n` and `n a` both occur twice, and are equally short; *an* is earlier in Unicode. Now the word is `▁ b an an a`.
# Each pair occurs once, so the shortest piece wins: `▁ b`. That `an an` would say more about the word plays no part.
#
# </details>
#
# **Build** `17_count_pairs`: how often two pieces stand side by side, from words and their numbers.
#
# **Build** `17_merge`: join a pair wherever it stands. What is `a a a`? And why is it no replacement in a string?
#
# **Build** `17_encode`: replay merges, in their order, on a new word.
#
# **Build** `17_bits_per_character`: from the losses of a padded batch to a number that can be compared.
#
# ## Next
#
# Sentences are lists of ids now, and their lengths differ. A batch is a rectangle. [Lesson 18](18_batches.py) fills it
# with little padding. In the paper, pieces and batches are section 5.1, on
# [its arXiv page](https://arxiv.org/abs/1706.03762); the paper on subwords is
# [Sennrich, Haddow and Birch](https://arxiv.org/abs/1508.07909).
