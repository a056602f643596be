# %% [markdown]
# # 17 · Subwords: byte-pair encoding
#
# **How can a list of 1,600 pieces spell nearly every word, even one that nobody has seen?**
#
# *Needs [lesson 00](00_whole_game.py) (pieces and ids), [lesson 08](08_embeddings.py) (the embedding) and [lesson
# 14](14_label_smoothing.py) (the loss) · you will write byte-pair encoding in thirty lines, with characters and with
# bytes.*

# %% Imports
from collections import Counter

import matplotlib.pyplot as plt
import more
import numpy as np

from scratchformer.experiments.figures import ACCENT, DARK, LIGHT
from scratchformer.text.bundled import read_text
from scratchformer.text.tokenizer import N_SPECIALS, Tokenizer
from support import byte_pairs
from support.byte_pairs import bits_per_character, decode, words_of
from support.lesson import QUICK, ROOT, measure, quote, show, table

# %% [markdown]
# A model has one row of its embedding for each entry of a fixed list. Let the entries be words, and collect them from
# the 20,000 training sentences of the bundled corpus. Then look up the words of 500 new sentences. (`words_of` cuts a
# sentence into runs of letters and runs of other signs. "▁" marks where a space stood.)

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
# For a word that isn't in the list the model sees `<unk>` (*unknown*), and it can never write that word. Eight is few,
# because this corpus was generated from a small lexicon. In real text, names and compounds are added every day.
#
# Single characters can't fail like that, as long as each was seen. 60 of them, including the mark, are enough for both
# languages. But then a sentence is about five times as long. Is there something in between?
#
# ## The picture
#
# **Byte-pair encoding** (BPE, [Sennrich et al. 2016](https://arxiv.org/abs/1508.07909)) starts with characters. It
# finds the two neighbours that occur together most often, merges them into a new piece, and repeats that. Our list gets
# 4 special entries, such as `<unk>`, then the pieces of 1,536 merges, and the 60 characters: together 1,600. The place
# in the list is the **id**. Here is an unknown word, 944, after more and more merges.

# %% Learning the merges, and one word in pieces
N_MERGES = 1536
# as yours, but faster, and no piece is longer than 16 characters
merges = byte_pairs.learn_merges(text, N_MERGES, longest=16)
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
# occurs 16 times as well. Which of the two should be merged? We need a rule for ties: the pair that makes the shorter
# piece, then the one whose piece comes earlier in the order of Unicode. That is *nd*. After this merge *Hund* is
# `▁ H u nd`, and the pair *u nd* occurs 16 times. So the second merge makes *und*.
#
# In general, a step counts all pairs of neighbours, in each word as often as the word occurs. It takes the most
# frequent pair and makes it one piece in every word, from left to right. The list of these merges is all that is
# learned. Pairs never run across two words, nor from letters to punctuation marks.
#
# **Your turn.** Write `count_pairs(words)`, where words is {tuple of pieces: how often}, and `merge(symbols, pair)` in
# `more.py` (if it isn't there, `scratchformer learn start` adds it), and run `scratchformer learn check count_pairs
# merge`. What becomes of `a a a` if *a a* is merged? And why can't you use `str.replace`? Then `learn_merges(words, n)`
# is a loop: count, take the best pair, merge it in every word. It stops after n merges, or when no pair is left. (If
# two pairs make the same piece, as *a bc* and *ab c*, the one with the shorter left part wins.) `scratchformer learn
# check learn_merges`.

# %%
quote("count_pairs", "merge", "learn_merges", file="more")

# %% [markdown]
# `a a a` becomes `aa a`, because we go from left to right. And `str.replace` would find `a bc` inside `da bc` as well.

# %%
tiny = {"▁Hund": 5, "▁hundert": 3, "▁und": 6, "▁rund": 2}
learned = more.learn_merges({tuple(word): n for word, n in tiny.items()}, 5)
for n, (a, b) in enumerate(learned, 1):
    cut = [" ".join(more.bpe_encode(word, learned[:n])) for word in tiny]
    print(f"merge {n}: {a} + {b:6}", *cut, sep="    ")

# %% [markdown]
# <!-- widget: merges -->
#
# ## Encode and decode
#
# To **encode** a new sentence, replay the merges on its characters, in the order in which they were learned. To
# **decode**, join the pieces and write a space for each "▁". The order matters. Suppose `b c` was learned before `a b`.
# Then `abc` becomes `a bc`, not `ab c`, and a model must get the pieces that it was trained on.
#
# **Your turn.** Write `bpe_encode(word, merges)` for one word with its "▁", and run `scratchformer learn check
# bpe_encode`.

# %%
quote("bpe_encode", file="more")


# %%
def encode(sentence, merges):
    return [piece for word in words_of(sentence)
            for piece in more.bpe_encode(word, merges)]


sentence = "Die Ziege zählt neunhundertvierundvierzig Äpfel."
print(*encode(sentence, merges))
print(decode(encode(sentence, merges)))

# %% Check against sentencepiece
some = 20 if QUICK else 200
counted = Counter(word for line in text for word in words_of(line))
slow = more.learn_merges({tuple(word): times for word, times in counted.items()}, some)
assert slow == merges[:some]
sentencepiece = Tokenizer.load(ROOT / "data/tiny_model/tokenizer.model")
theirs = sentencepiece.pieces(range(N_SPECIALS, N_SPECIALS + N_MERGES))
equal = sum(a + b == piece for (a, b), piece in zip(merges, theirs))
measure(f"of {N_MERGES:,} merges: ours and sentencepiece agree", equal,
        N_MERGES, N_MERGES)

# %% [markdown]
# The tokenizer of lesson 00 was made from the same text by sentencepiece (Kudo and Richardson, 2018). It allows 16
# characters to a piece. With this limit our rule finds the same 1,536 merges in the same order, and cuts all of 3,480
# new sentences alike. Without it, as in your function, the order differs from merge 1,271 on ([lab notes 17, experiment
# 1](lab/17_byte_pairs.py#experiment-1-the-same-merges-as-sentencepiece)).
#
# <!-- see: inside?step=source.text | your sentence, cut into pieces -->
#
# ## Bytes, and where to split first
#
# **Bytes.** What about a *character* that was never seen, such as the *ë* in *Zoë*? In this model it is `<unk>`. But a
# computer stores text as bytes, in the code UTF-8: `Z` and `o` are one byte each, and *ë* is the two bytes C3 AB. There
# are only 256 bytes. So start with bytes instead of characters. Then nothing is ever unknown, in any script. This is
# **byte-level BPE**. Your functions can do it as they are, if each byte is written as one of 256 characters (the code
# latin-1 has one for each):

# %%
def as_bytes(word):
    return word.encode("utf-8").decode("latin-1")              # one character per byte


byte_words = {tuple(as_bytes(word)): times for word, times in counted.items()}
byte_merges = more.learn_merges(byte_words, 30)
for word in "▁für", "▁Zoë":
    pieces = more.bpe_encode(as_bytes(word), byte_merges)
    print(word, "is", [piece.encode("latin-1").hex(" ") for piece in pieces])

# %% [markdown]
# *ë* stays two tokens, but it can be written. (The mark "▁" is the three bytes E2 96 81.)
#
# **Splitting first.** What if pairs are counted in whole sentences, with spaces like any other character? We tried 150
# merges on 300 English sentences:

# %%
some_lines = train["en"][:300]
whole = Counter(tuple("▁" + line.replace(" ", "▁")) for line in some_lines)
apart = Counter(tuple(word) for line in some_lines for word in words_of(line))
without, split = more.learn_merges(whole, 150), more.learn_merges(apart, 150)
for letters in "▁dog▁was", "▁dog.":
    print("not split:   ", *more.bpe_encode(letters, without))
print("split first: ", *more.bpe_encode("▁dog", split))

# %% How many pieces of each kind
pieces = ["".join(pair) for pair in without]
full_stop = [piece for piece in pieces if piece[-1] == "."]
several = [piece for piece in pieces if len(piece.strip("▁").split("▁")) > 1]
behind = [piece for piece in pieces if piece[-1] == "▁" and piece not in several]
assert [*map(len, (behind, several, full_stop))] == [42, 14, 6]
assert not any("▁" in (a + b)[1:] or "." in b for a, b in split)

# %% [markdown]
# Without splitting, *dog* is cut in one way before a space and in another before a full stop, and the model must learn
# both. (Of the 150 pieces, 42 have swallowed the space behind a word, 14 hold parts of several words, such as
# *did▁not▁*, and 6 end in a full stop. If words are split first, none does.) So tokenizers split first, by a pattern:
# letters, digits and other signs apart, the space in front of its word.
#
# ## No gradient, and pieces that nobody uses
#
# Counts have no slope: if one grows a little, nothing changes, until it overtakes another. So the merges can't be
# learned by gradient descent. Is every one of the 1,536 pieces used in the training text?
#
# <details><summary>Make a guess, then unfold: how many pieces are never used?</summary>

# %% Pieces that are never used
cut = byte_pairs.encode(text, merges)
uses = Counter(piece for pieces in cut for piece in pieces)
learned = ["".join(pair) for pair in merges]
unused = [piece for piece in learned if not uses[piece]]
print(*unused[:12])
measure("learned pieces that no training sentence contains", len(unused), 340, 380)
assert 0.2 < len(unused) / len(learned) < 0.25

# %% [markdown]
# Nearly a quarter is never used. Such a piece was frequent when it was made, and then later merges used up every one of
# its occurrences. Its row of $E$ is never read in training. (But it is scored like all others, so it is pushed away
# from every answer: [lesson 08](08_embeddings.py).)
#
# </details>
#
# If such a piece does occur in a new text, the model reads a vector that it has never read before. Large language
# models have this problem, too. In 2023, GPT models couldn't repeat the piece *SolidGoldMagikarp* ([Rumbelow and
# Watkins](https://www.lesswrong.com/posts/aPeJE8bSo6rAFoLqg/solidgoldmagikarp-plus-prompt-generation)). This **glitch
# token** was frequent in the text from which the merges were learned, and, it seems, rare or absent in training.
#
# **How many merges?** You choose. Few make long sentences, many make the product with $E$ before the softmax large
# ([lab notes 17, experiment
# 2](lab/17_byte_pairs.py#experiment-2-what-a-longer-sentence-costs-and-what-a-larger-vocabulary) count both). The paper
# has *one* list for both languages, since both share $E$. Two lists, with half of the merges each, cut only 4 of 20 new
# names alike ([experiment 3](lab/17_byte_pairs.py#experiment-3-one-vocabulary-for-two-languages)).
#
# ## Does it matter? Comparing vocabularies
#
# One model reads letters, another one pieces. Which is better? Can we compare their losses per token?
#
# - **What goes in:** 2,000 German sentences. The models only count how often a token followed the last few tokens, its
#   context. (Long contexts are rare, so shorter ones are mixed in: [the formula](support/byte_pairs.py).)
# - **What is changed:** the tokens are letters or pieces, and the context is 1 or 5 letters, or 1 or 2 pieces long.
# - **What is measured:** the loss in 500 other sentences, in three runs.
#
# What two vocabularies have in common is the text. So add up the losses over the whole text, and divide by its number
# of characters. One bit is $\ln 2$ nats, so we get **bits per character**.
#
# **Your turn.** Write bits per character as a formula. And which of the four models will be best, per token and per
# character?
#
# <details><summary>Make a guess, then unfold</summary>
#
# $$\text{bits per character} = \frac{\text{sum of } -\ln p \text{ over all tokens}}{\ln 2 \cdot
# \text{number of characters}}$$
#
# (The end of a line counts as one character.)

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
assert (letters - one).min() > -0.05
measure("letters (5) − pieces (2), bits: mean", (letters - two).mean(), -0.015, 0.025)

# %% [markdown]
# Per token, both models of letters look better than both models of pieces. That comparison is meaningless, because a
# piece has to pay for all of its letters at once.
#
# Bits per character tell a different story. Letters with five letters of context beat pieces with *one* piece of
# context, by 0.03 to 0.05 bits. Against *two* pieces there is no clear difference. So the first comparison measured the
# length of the context, too. Which tokens are better, these models don't tell ([lab notes 17, experiment
# 4](lab/17_byte_pairs.py#experiment-4-letters-against-pieces)).
#
# </details>
#
# ## Today
#
# Many language models use byte-level BPE with one large list for all languages and code (Llama 3: [128,000
# pieces](https://arxiv.org/abs/2407.21783)). **Special tokens**, such as the end of a text, get ids of their own; the
# program must see to it that typed text can't produce them. And why do such models miscount the letters of a word? They
# read the *ids* of its pieces. No id says which letters are inside.
#
# ## Paper and code
#
# - §5.1: English–German has "a shared source-target vocabulary of about 37000 tokens", made by byte-pair encoding.
# - Gage (1994) invented the method, to compress files. The public data of the paper's experiment was made with the
#   program subword-nmt ([the correctness report](../docs/correctness.md)).
# - In the library: `Tokenizer` in [text/tokenizer.py](../scratchformer/text/tokenizer.py).
#
# ## What to remember
#
# Start with characters and merge the most frequent pair of neighbours, again and again. Frequent words become one
# piece, rare words several, and every word of known characters can be written. Compare models with different
# vocabularies in bits per character, never per token.
#
# **Yours:** `count_pairs`, `merge`, `learn_merges`, `bpe_encode` · `scratchformer learn check 17`
#
# **Test yourself.**
#
# 1. The text is the one word *banana*. What are the first two merges?
# 2. A model needs 3.0 nats per token, and its tokens have 4 characters on average. How many bits per character?
# 3. How many tokens is *Zoë* in a byte-level vocabulary without any merges, not counting the mark?
#
# <details><summary>Answers</summary>
#
# 1. `a n` and `n a` both occur twice, and are equally short; *an* comes earlier in Unicode. Now the word is `▁ b an an
#    a`. Each pair occurs once, so the shortest piece wins: `▁ b`.
# 2. 3.0 / 0.693 = 4.33 bits per token, and 4.33 / 4 = **1.08** per character.
# 3. **Four**: 5A, 6F, C3, AB.
#
# </details>
#
# **Next:** sentences are lists of ids now, and their lengths differ. A batch is a rectangle. [Lesson 18](18_batches.py)
# fills it with little padding.
