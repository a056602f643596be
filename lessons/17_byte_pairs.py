# %% [markdown]
# # 17 · Subwords: byte-pair encoding
#
# **How can a list of 1,600 pieces spell every word, even one that nobody has seen?**
#
# *Needs [lesson 00](00_whole_game.py) (pieces and ids), [lesson 08](08_embeddings.py) (the embedding) and [lesson
# 14](14_label_smoothing.py) (the loss) · you will write byte-pair encoding in thirty lines and compare it with
# sentencepiece, merge by merge.*

# %% Imports
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.text.bundled import read_text
from scratchformer.text.tokenizer import N_SPECIALS, Tokenizer
from support import byte_pairs
from support.byte_pairs import bits_per_character, decode, learn_merges, words_of
from support.lesson import QUICK, ROOT, measure, show, table

# %% [markdown]
# A model has one row of its embedding for each entry of a fixed list. Let the entries be words, and collect them from
# the 20,000 training sentences of the bundled corpus. Then look up the words of 500 new sentences. (`words_of` splits
# at spaces and keeps letters apart from everything else, so the full stop is an entry of its own. The mark "▁" stands
# where a space was.)

# %% A list of words
LANGUAGES = {"en": "English", "de": "German"}
train, test = ({"en": pairs.source, "de": pairs.target}
               for pairs in (read_text("train"), read_text("test")))
text = train["en"] + train["de"]                               # 40,000 sentences
print(words_of("My goat, too."))
rows, missing = [], {}
for language, name in LANGUAGES.items():
    known = {word for line in train[language] for word in words_of(line)}
    met = [word for line in test[language] for word in words_of(line)]
    missing[language] = [word for word in met if word not in known]
    rows.append([name, f"{len(known):,}", len(missing[language]),
                 f"{sum(map(len, met)) / len(met):.1f}"])
table(["language", "different words", "unknown in 500 new sentences",
       "characters per word"], rows)
unknown = next(line for line in test["de"] if not known.issuperset(words_of(line)))
print("".join(word if word in known else "▁<unk>"
              for word in words_of(unknown)).replace("▁", " ").strip())

# %% [markdown]
# For a word that isn't in the list the model sees `<unk>` (*unknown*), and it can never write that word. Eight is a
# small number only because this corpus was generated from a small lexicon. Still, German writes a number as one word,
# so its list of words is never complete. In real text, names and compounds are added every day.
#
# Single characters can't fail like that, as long as each was seen: 60 of them, including the mark, are enough for both
# languages. But then a sentence is about five times as long. Is there something in between?
#
# ## The picture
#
# **Byte-pair encoding** (BPE) starts with characters. It finds the two neighbours that occur together most often,
# merges them into a new piece, and repeats that until the vocabulary is full. Here is an unknown word, 944, after more
# and more merges. It isn't in the training text, but its parts are.

# %% Learning the merges, and one word in pieces
N_MERGES = 1536
more_merges = learn_merges(text, 3000, longest=16)             # 2,903 is where it ends
merges = more_merges[:N_MERGES]
SHOWN = "neunhundertvierundvierzig"
figure, axes = plt.subplots(figsize=(8, 3.3), layout="constrained")
stages = [0, 10, 30, 100, 300, 1000, N_MERGES]
for row, n in enumerate(stages):
    x, [pieces] = 0, byte_pairs.encode([SHOWN], merges[:n])
    for piece in pieces:
        axes.barh(row, len(piece) - 0.12, left=x, height=0.72, color=LIGHT,
                  edgecolor=DARK)
        axes.text(x + len(piece) / 2 - 0.06, row, piece, ha="center", va="center",
                  fontsize=10)
        x += len(piece)
    axes.text(x + 0.4, row, f"{len(pieces)}", va="center", color=ACCENT)
axes.text(len(SHOWN) + 1.4, -0.8, "pieces", ha="center", color=ACCENT)
axes.set_yticks(range(len(stages)), [f"{n:,}" for n in stages])
axes.set(ylabel="merges", xlim=(-0.2, 28.5))
axes.invert_yaxis()
axes.xaxis.set_visible(False)
axes.spines[:].set_visible(False)
show(figure, "17_cut",
     alt="The German word for 944 as rows of boxes, a box for each piece. Without "
     "merges it is 26 single characters. After 10, 30, 100, 300, 1,000 and 1,536 "
     "merges it is 23, 19, 16, 9, 6 and 4 pieces. After 300, hundert is one piece; in "
     "the last row the pieces are neun, hundert, vier, undvierzig.",
     caption="More merges, fewer pieces. In the last row only four are left, although "
     "the training text doesn't contain this word.")

# %% [markdown]
# ## By hand: four words
#
# Let the text consist of four German words: *Hund* (dog) occurs 5 times, *hundert* (hundred) 3 times, *und* (and) 6
# times and *rund* (round) twice. How often does *n d* occur? In every one of them, so 5 + 3 + 6 + 2 = 16 times. *u n*
# occurs 16 times as well. Which of the two should be merged? We need a rule for ties: the shorter piece first, then the
# one that comes earlier in the order of Unicode. That is *nd*. After this merge *Hund* is `▁ H u nd`, and the pair *u
# nd* occurs 16 times. So the second merge makes *und*.
#
# In general, let the word $w$ occur $c_w$ times, and let $w_1, w_2, \dots$ be its pieces. Then piece $b$ follows piece
# $a$ so many times:
#
# $$N(a, b) = \sum_w c_w \cdot \left\vert \{ i : w_i = a, \; w_{i+1} = b \} \right\vert$$
#
# A step takes the pair with the largest $N$ and replaces it by one piece $ab$ in every word, from left to right. The
# list of these merges is all that is learned. Pairs never run across two words, nor from letters to punctuation marks,
# so *dog* is the same piece at the end of a sentence as in the middle.
#
# **Your turn.** Write `count_pairs` and `merge` in `my_transformer/more.py`, and run `scratchformer learn check
# count_pairs merge`. What becomes of `a a a` if *a a* is merged? And why can't you use `str.replace`?

# %% Our solution
def count_pairs(words):
    """words {pieces of a word: how often it occurs} -> {(a, b): N(a, b)}"""
    pairs = Counter()
    for word, times in words.items():
        for pair in zip(word, word[1:]):
            pairs[pair] += times
    return pairs


def merge(word, pair):
    """Join the pair wherever it occurs in the word, from left to right."""
    pieces, i = [], 0
    while i < len(word):
        width = 2 if word[i:i + 2] == pair else 1
        pieces.append("".join(word[i:i + width]))
        i += width
    return tuple(pieces)


# %%
def learn(words, n_merges):
    """-> the merges [(a, b), ...], and how often each pair occurred"""
    learned, counts = [], []
    for _ in range(n_merges):
        pairs = count_pairs(words)
        best = min(pairs, key=lambda pair: (-pairs[pair], len("".join(pair)),
                                            "".join(pair)))
        words = {merge(word, best): times for word, times in words.items()}
        learned.append(best)
        counts.append(pairs[best])
    return learned, counts


tiny = {tuple("▁Hund"): 5, tuple("▁hundert"): 3, tuple("▁und"): 6, tuple("▁rund"): 2}
for n, ((a, b), count) in enumerate(zip(*learn(tiny, 5)), 1):
    [cut] = byte_pairs.encode(["Hund hundert und rund"], learn(tiny, n)[0])
    print(f"merge {n}: {a} + {b}, {count} times    {' '.join(cut)}")

# %% [markdown]
# After two merges, the part that all four words share is one piece. It means something in *und* and nothing in *rund*,
# but no count can know that.
#
# ## Encode and decode
#
# To **encode** a new sentence, replay the merges on its characters, in the order in which they were learned. To
# **decode**, join the pieces and write a space for each "▁". The order matters. Suppose `b c` was learned before `a b`.
# Then `abc` becomes `a bc`, not `ab c`, and a model must get the pieces that it was trained on.
#
# **Your turn.** Write `learn_merges` and `bpe_encode` in `more.py`, and run `scratchformer learn check learn_merges
# bpe_encode`. There, `learn_merges` returns the merges alone, and of two pairs that make the same piece the one with
# the shorter left part wins; `bpe_encode` takes one word with its "▁". Then unfold ours, for a sentence.

# %% Our solution
def encode(sentence, merges):
    """-> the pieces of a sentence"""
    return [piece for word in words_of(sentence)
            for piece in replayed(tuple(word), merges)]


def replayed(word, merges):
    for pair in merges:
        word = merge(word, pair)
    return word


# %%
sentence = "Die Ziege zählt neunhundertvierundvierzig Äpfel."
print(*encode(sentence, merges))
print(decode(encode(sentence, merges)))

# %% Check against sentencepiece
some = 20 if QUICK else 200
words = Counter(word for line in text for word in words_of(line))
slow, _ = learn({tuple(word): times for word, times in words.items()}, some)
equal = sum(ours == theirs for ours, theirs in zip(slow, merges))
measure(f"of {some} merges: this page and the library agree", equal, some, some)
sentencepiece = Tokenizer.load(ROOT / "data/tiny_model/tokenizer.model")
theirs = sentencepiece.pieces(range(N_SPECIALS, N_SPECIALS + N_MERGES))
equal = sum(a + b == piece for (a, b), piece in zip(merges, theirs))
measure(f"of {N_MERGES:,} merges: the library and sentencepiece agree", equal,
        N_MERGES, N_MERGES)

# %% [markdown]
# The tokenizer of lesson 00 was made by sentencepiece (Kudo and Richardson, 2018), a program by other people, from the
# same text. Our library finds the same 1,536 merges in the same order, and cuts all of 3,480 new sentences alike ([lab
# notes 17, experiment 1](lab/17_byte_pairs.py#experiment-1-the-same-merges-as-sentencepiece)).
#
# And a *character* that was never seen? In this model it is `<unk>`. With `byte_fallback` the vocabulary holds the 256
# bytes as well, and an unknown character becomes the bytes of its UTF-8 code:

# %% An unknown character
for fallback, tokenizer in (False, sentencepiece), \
        (True, Tokenizer.train(text, 1600, byte_fallback=True)):
    [ids] = tokenizer.encode(["Zoë"])
    print(f"byte_fallback = {fallback}: {' '.join(tokenizer.pieces(ids))}",
          f"   decoded: {tokenizer.decode([ids])[0]}")

# %% [markdown]
# ## No gradient, and pieces that nobody uses
#
# A slightly larger count changes nothing at all, until it overtakes another one; then the list of merges jumps. So the
# merges can't be learned by gradient descent. They are counted before training and stay as they are, good or bad. Is
# every one of the 1,536 learned pieces used in the training text?
#
# <details><summary>Make a guess, then unfold: how many pieces are never used?</summary>

# %% Pieces that are never used
cut = byte_pairs.encode(text, merges)
uses = Counter(piece for pieces in cut for piece in pieces)
learned = ["".join(pair) for pair in merges]
unused = [piece for piece in learned if not uses[piece]]
print(*unused[:12])
measure("learned pieces that no training sentence contains", len(unused), 340, 380)
measure("their share of all learned pieces", len(unused) / len(learned), 0.2, 0.27)

# %% [markdown]
# Nearly a quarter is never used. Such a piece was frequent when it was made, and then later merges used up every one of
# its occurrences. It's like scaffolding: needed to build, then useless. Its row of the embedding is never read in
# training.
#
# </details>
#
# Now imagine that somebody writes a text in which such a piece does occur. The model then reads a vector that training
# has never fitted to anything. Large language models have this problem, where the pieces are called **glitch tokens**.
# In 2023, people found that GPT models couldn't repeat the piece " SolidGoldMagikarp", the name of a user of an online
# forum. It was frequent in the text from which the merges were learned, and, it seems, rare or absent in the text that
# the model was trained on. Our 362 rows are a small version of that story.
#
# ## How many merges?
#
# The number of merges is the one number that you choose. How long do sentences become?

# %% Pieces per word
STAGES = [0, 10, 30, 100, 300, 600, 1000, 1536, 2000, 2903]
lengths = {}
for split, lines in ("train", train), ("test", test):
    for language in LANGUAGES:
        first = lines[language][:500]
        n_words = sum(len(words_of(line)) for line in first)
        lengths[split, language] = [
            sum(map(len, byte_pairs.encode(first, more_merges[:n]))) / n_words
            for n in STAGES]
figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
looks = {"en": ("o", DARK), "de": ("s", ACCENT)}
for (split, language), row in lengths.items():
    marker, colour = looks[language]
    axes.plot(STAGES, row, f"{marker}-" if split == "train" else f"{marker}--",
              color=colour, markersize=5, label=f"{LANGUAGES[language]}, {split}",
              markerfacecolor=colour if split == "train" else "white")
axes.axhline(1, color="#888888", lw=0.8, ls=":")
axes.text(620, 0.62, "1: every word is one piece", color="#444444")
axes.axvline(300, color="#888888", lw=0.8, ls=":")
axes.text(330, 4.2, "300 merges", color="#444444")
axes.set(xlabel="merges", ylabel="pieces per word", ylim=(0, 5.6), xlim=(-40, 3000))
axes.legend()
show(figure, "17_length",
     alt="Pieces per word against the number of merges for English and German. "
     "Without merges, 4.7 in English and 5.2 in German; after 300, 2.0 and 2.2; after "
     "1,536, about 1.2; after 2,903, 1.0. The dashed curves of the test text lie on "
     "those of the training text, or a little above.",
     caption="The first 300 merges make a sentence less than half as long. The other "
     "2,600 bring it from two pieces per word to one.")
for n, english, german in ((300, (1.95, 2.1), (2.2, 2.35)),
                           (1536, (1.1, 1.2), (1.2, 1.3))):
    for language, band in ("en", english), ("de", german):
        measure(f"{n:,} merges, {LANGUAGES[language]}: pieces per new word",
                lengths["test", language][STAGES.index(n)], *band)

# %% [markdown]
# With 2,903 merges there is no pair left to merge: all counted words of up to 16 characters are one piece. That is a
# list of words again, but one that can fall back on parts.
#
# So why not stop at letters, which need no list? Because a sentence of five times as many tokens passes five times as
# many positions through all layers: with letters, the base model would need three times the multiplications that it
# needs with 37,000 pieces. (It's often said that the n² of attention is the reason. At these lengths it's 2 % of the
# cost.) And why not 100,000 pieces? With 37,000, the softmax and the embedding are already three tenths of the cost and
# of the parameters. ([Lab notes 17, experiment
# 3](lab/17_byte_pairs.py#experiment-3-what-a-longer-sentence-costs-and-what-a-larger-vocabulary))
#
# The paper has *one* list for both languages. It must, because both share one embedding matrix. A name is then cut in
# the same way on both sides, and can be translated by copying its pieces. Two separate lists cut only 4 of 20 new names
# alike ([lab notes 17, experiment 4](lab/17_byte_pairs.py#experiment-4-one-vocabulary-for-two-languages)).
#
# ## Comparing losses of different vocabularies
#
# Suppose one model reads letters and another one pieces, and we want to know which is better. Can we compare their
# losses per token? Let's try it with a model that only counts: how likely is piece $b$ after the context $c$, which is
# the last few pieces? Long contexts are rare, so their counts are mixed with the guess from the context $c'$ that is
# one piece shorter:
#
# $$p(b \mid c) = \frac{\mathrm{count}(c \, b) + \lambda \, p(b \mid c')}{\mathrm{count}(c) + \lambda}$$
#
# The shorter context counts as much as $\lambda = 4$ occurrences. The model counts 2,000 German sentences and is asked
# about 500 others.
#
# What two vocabularies have in common is the text. So add up the losses over the whole text, and divide by something
# that doesn't depend on the vocabulary: characters. One bit is $\ln 2$ nats, so we get **bits per character**.
#
# **Your turn.** Write bits per character as a formula.
#
# <details><summary>Make a guess, then unfold: which of four models is best?</summary>

# %% Four models that count
RUNS = [(0, 4)] if QUICK else [(0, 4), (1, 4), (2, 4)]         # which 2,000, and lambda
n_characters = sum(len(line) + 1 for line in test["de"])       # with the end of a line
per_token, bits = {}, {}
for n, order in (0, 1), (0, 5), (N_MERGES, 1), (N_MERGES, 2):
    new_rows = byte_pairs.encode(test["de"], merges[:n])
    losses = []
    for part, weight in RUNS:
        counted = byte_pairs.encode(train["de"][2000 * part:2000 * (part + 1)],
                                    merges[:n])
        losses.append(sum(byte_pairs.count_model_losses(
            counted, new_rows, order, n + 61, weight)))
    per_token[n, order] = np.mean(losses) / sum(len(row) + 1 for row in new_rows)
    bits[n, order] = np.array([bits_per_character(loss, n_characters)
                               for loss in losses])
NAMES = {(0, 1): "letters, 1 of context", (0, 5): "letters, 5 of context",
         (N_MERGES, 1): "pieces, 1 of context", (N_MERGES, 2): "pieces, 2 of context"}
table(["model", "nats per token", "bits per character"],
      [[name, f"{per_token[key]:.2f}", f"{bits[key].mean():.2f}"]
       for key, name in NAMES.items()])
letters, one, two = (bits[key] for key in list(NAMES)[1:])
measure("letters (5) − pieces (1), bits: smallest gap", (letters - one).max(),
        -0.05, -0.025)
measure("letters (5) − pieces (2), bits: mean", (letters - two).mean(), -0.015, 0.025)

# %% [markdown]
# Per token, both models of letters look better than both models of pieces: 2.2 and 0.8 nats against 3.2 and 3.1. That
# comparison is meaningless, because a piece has to pay for all of its letters at once. Perplexity is $e$ to that loss
# and has the same fault.
#
# Bits per character tell a different story. What counts is how far back a model looks, not what its tokens are. Letters
# with five letters of context beat pieces with *one* piece of context, by 0.03 to 0.05 bits in every run. Against
# pieces with *two* pieces of context the difference is gone. ([Lab notes 17, experiment
# 5](lab/17_byte_pairs.py#experiment-5-letters-against-pieces): five runs, paired.)
#
# </details>
#
# ## Other ways to cut
#
# - **Byte-level BPE** (GPT-2 and most language models since) starts from the 256 bytes instead of characters. Then
#   nothing is ever unknown, in no script, and no `<unk>` is needed. A letter such as *ä* begins as two tokens.
# - **Unigram** (Kudo, 2018) goes the other way: it starts with a large list, gives each piece a probability, cuts a
#   text in the most probable way, and throws away the pieces that are missed least, until the list is small enough.
# - **BPE-dropout** (Provilkov et al., 2020) skips some merges at random during training. The model then sees a word in
#   several cuts, learns what is inside, and rare pieces get trained. We haven't tested it here.
#
# ## Paper and code
#
# - §5.1: English–German is encoded with byte-pair encoding and "a shared source-target vocabulary of about 37000
#   tokens"; English–French has 32,000 word pieces, made by a related method (Wu et al., 2016).
# - The method: Gage (1994) merges bytes of a file to compress it; [Sennrich, Haddow and
#   Birch](https://arxiv.org/abs/1508.07909) (2016) merge characters within words.
# - *Differs:* the public data of the paper's experiment was made with the program subword-nmt, on text that another
#   program, Moses, had cut into words and signs. It has about 36,500 different pieces, in a matrix of 40,960 rows
#   ([the correctness report](../docs/correctness.md)). This library learns from plain text, so that decoding gives it
#   back.
# - In the library: `Tokenizer` in [text/tokenizer.py](../scratchformer/text/tokenizer.py); the functions of this page
#   are in [support/byte_pairs.py](support/byte_pairs.py). `vocab_size` counts the special ids and the characters as
#   well as the merges: 4 + 60 + 1,536 = 1,600.
#
# ## What to remember
#
# Start with characters and merge the most frequent pair of neighbours, again and again. Frequent words become one
# piece, rare words several, and every word of known characters can be written. Compare models with different
# vocabularies in bits per character, never per token.
#
# **Yours:** `count_pairs`, `merge`, `learn_merges`, `bpe_encode` · `scratchformer learn check 17`
#
# **A puzzle.** The text is the one word *banana*. What are the first two merges?
#
# <details><summary>Answer</summary>
#
# `a n` and `n a` both occur twice, and are equally short; *an* comes earlier in Unicode. Now the word is `▁ b an an a`.
# Each pair occurs once, so the shortest piece wins: `▁ b`. That `an an` would say more about the word doesn't matter.
#
# </details>
#
# **Next:** sentences are lists of ids now, and their lengths differ. A batch is a rectangle. [Lesson 18](18_batches.py)
# fills it with little padding.
