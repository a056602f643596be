# %% [markdown]
# # 00 · The whole game
#
# *About 20 minutes. You need: Python with NumPy; no mathematics but a product. You will have: seen a trained
# Transformer translate, taken it apart into one function and eight lines, broken it in several ways, and found what
# it cannot do.*

# %%
import json
from collections import Counter, defaultdict

import matplotlib.pyplot as plt
import numpy as np

from scratchformer.nn.attention import Mask, ScaledDotProductAttention
from scratchformer.nn.transformer import Transformer
from scratchformer.study import gradient_cases
from scratchformer.study.figures import ACCENT, DARK, LIGHT
from scratchformer.study.heads import (
    aligned_words,
    alignment_by_chance,
    alignment_score,
    attend,
    pronoun_score,
    pronoun_weights,
    sum_over_words,
    teacher_forced,
)
from scratchformer.study.lesson import ROOT, measure, recorded, same, show
from scratchformer.text.bleu import corpus_scores
from scratchformer.text.grammar import Example, as_text, spoken_pronoun, words
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training.run import load_run

# %% [markdown]
# ## Question
#
# **What is the thing that this course builds, and does it work?**
#
# It is a program that reads an English sentence and writes a German one. What is hard about that? Here is the program
# that everybody writes first: a dictionary. The corpus bundled with this project holds sentence pairs, and for each
# pair which word renders which. So for every English word we can look up the German word that renders it most often.

# %%
def read(split):
    """One set of the bundled corpus: English, German, and which word renders which."""
    source, target, answers = ((ROOT / f"data/tiny/{split}.{suffix}").read_text(encoding="utf-8").splitlines()
                               for suffix in ("en", "de", "jsonl"))
    return [Example(s, t, **json.loads(answer)) for s, t, answer in zip(source, target, answers)]


test, pairs = read("test"), read("test_coreference")

rendered_by = defaultdict(Counter)
for example in read("val"):
    english, german = words(example.source), words(example.target)
    for i, j in example.alignment:
        if j > 0:                                              # the first word has a capital letter, whatever it is
            rendered_by[english[i].lower()][german[j]] += 1
dictionary = {word: counts.most_common(1)[0][0] for word, counts in rendered_by.items()}


def word_by_word(sentence):
    return as_text(dictionary.get(word.lower(), word) for word in words(sentence))


MEANS_HORSE = "The horse leaves the street because it is too weak."
MEANS_STREET = "The horse leaves the street because it is too dark."
for sentence in MEANS_HORSE, MEANS_STREET:
    print(f"{sentence}\n    {word_by_word(sentence)}")
exact = np.mean([word_by_word(example.source) == example.target for example in test])
measure(f"{len(dictionary)} words in the dictionary; share of {len(test)} test sentences it gets right", exact, 0, 0.05)

# %% [markdown]
# The words are mostly the right ones, and the sentences are wrong. *Pferd* is neuter and *Straße* feminine; the
# dictionary gives both the article of a masculine object. The verb must stand at the end of the clause. And *it* has
# no translation at all: in the first sentence *it* is the horse, *das Pferd*, so German says *es*. In the second *it*
# is the street, *die Straße*, so German says *sie*. The two English sentences differ in their last word only, and
# that decides about a word three places before it. **What to write depends on the whole sentence.** A dictionary
# looks at one word.
#
# Here is what this course builds, on the same two sentences:

# %%
translator = load_run(ROOT / "data/tiny_model")
model, tokenizer = translator.model, translator.tokenizer
for sentence, translation in zip((MEANS_HORSE, MEANS_STREET), translator.translate([MEANS_HORSE, MEANS_STREET])):
    print(f"{sentence}\n    {translation}")
assert [spoken_pronoun(text) for text in translator.translate([MEANS_HORSE, MEANS_STREET])] == ["es", "sie"]
YOURS = "The old dog is sleeping in the garden."                # change it, and run the cell again
print(f"{YOURS}\n    {translator.translate([YOURS])[0]}")

# %% [markdown]
# You may write your own sentence there. The model knows the few hundred words of its corpus and no others; what it
# does with others comes below.
#
# ## The idea in one picture
#
# The machine is one function. It is given two things, the English sentence and as much of the German sentence as is
# written. It returns a probability for every piece of text that could come next. Writing a sentence means calling it
# again and again.

# %%
figure, axes = plt.subplots(figsize=(8, 2.9), layout="constrained")
for x, y, text, width in ((1.0, 2.2, "English sentence\nThe horse leaves ... dark.", 1),
                          (1.0, 0.7, "German, so far\nDas Pferd ... weil", 1),
                          (4.1, 1.45, f"Transformer\n{model.store.data.size:,} numbers", 2.5),
                          (7.2, 1.45, "probabilities of\nthe next piece:\nsie, es, er, ...", 1)):
    axes.text(x, y, text, ha="center", va="center", linespacing=1.4,
              bbox=dict(boxstyle="round,pad=0.5", facecolor="white", edgecolor=DARK, lw=width))
for start, end in ((2.3, 2.1), (3.05, 1.7)), ((2.05, 0.8), (3.05, 1.2)), ((5.2, 1.45), (6.3, 1.45)):
    axes.annotate("", end, start, arrowprops=dict(arrowstyle="-|>", color=DARK, lw=1.6))
axes.annotate("", (1.4, 0.15), (7.2, 0.7),
              arrowprops=dict(arrowstyle="-|>", color=ACCENT, lw=1.6, ls="--", connectionstyle="arc3,rad=-0.22"))
axes.text(4.3, -0.95, "choose one, write it behind the others, ask again", ha="center", color=ACCENT)
axes.set(xlim=(-0.4, 8.2), ylim=(-1.1, 2.8))
axes.axis("off")
show(figure, "00_machine", alt="The English sentence and the German written so far go into one box, the "
     "Transformer, which returns probabilities of the next piece. A dashed arrow runs back from there: the chosen "
     "piece is written behind the others, and the machine is asked again.")

# %% [markdown]
# ## The equation, and the same in code
#
# Call the English sentence $x$ and the German pieces $y_1, y_2, \dots$. The model gives each piece a probability that
# depends on $x$ and on the pieces before it. The probability of a whole sentence is their product:
#
# $$P(y \mid x) = \prod_t P(y_t \mid y_1, \dots, y_{t-1}, x)$$
#
# A piece is a word or a part of one. There are 1,600 of them, and each has a number, its *id*. So the function reads
# two lists of integers and returns 1,600 probabilities. (The model returns a score for each piece; the last two lines
# make probabilities of the scores.)

# %%
def ids_of(sentence):
    """-> (1, S) ids, an end mark behind the last piece"""
    return np.array([[*tokenizer.encode([sentence])[0], EOS]])


def next_piece(sentence, written):
    """The English sentence, the ids written so far -> the probability of each of the V pieces to come next: (V,)"""
    scores, _ = model.forward(ids_of(sentence), np.array([[BOS, *written]]))      # (1, T, V): after each piece
    e = np.exp(scores[0, -1] - scores[0, -1].max())
    return e / e.sum()


print("a word of several pieces:", tokenizer.pieces(tokenizer.encode(["trophy"])[0]))
beginning = tokenizer.encode(["Das Pferd verlässt die Straße, weil"])[0]
for sentence, expected in (MEANS_HORSE, "▁es"), (MEANS_STREET, "▁sie"):
    p = next_piece(sentence, beginning)
    best = p.argsort()[::-1][:5]
    print(f"{sentence}\n    " + "   ".join(f"{piece} {p[i]:.3f}" for i, piece in zip(best, tokenizer.pieces(best))))
    assert tokenizer.pieces(best)[0] == expected
    measure("    probability of the best piece", p.max(), 0.85, 0.95)

# %% [markdown]
# One English word changed, and with it the piece that comes next. No probability comes near 1, however clear the
# case: training asked for 0.9 at most, on purpose (label smoothing, §5.4 of the paper).
#
# ## Forward: eight lines that translate
#
# Take the most probable piece, write it down, ask again; stop at the end mark. That is called greedy search.

# %%
def greedy(sentence, longest=80):
    """-> the translation, always going on with the most probable piece"""
    written = []
    while len(written) < longest:
        piece = int(next_piece(sentence, written).argmax())
        if piece == EOS:
            break
        written.append(piece)
    return tokenizer.decode([written])[0]


sample = [example.source for example in test[:20]]
by_library = translator.translate(sample, beam=1)
agree = sum(greedy(sentence) == translation for sentence, translation in zip(sample, by_library))
measure("sentences of 20 that this page and the library translate alike", agree, 20, 20)

# %% [markdown]
# The library's search does the same for many sentences at once and does not compute twice what it knows already. By
# default it follows the four best beginnings instead of one (`beam=4`).
#
# **How good is that?** BLEU compares translations with reference translations by the runs of one to four words that
# they share: 0 for nothing, 100 for the same text. These numbers were recorded with all sentences of all four test
# sets, none of which occur in the training text:

# %%
result = recorded("tiny_model")["results"]
print(f"\n{'test set':20}{'sentences':>10}{'BLEU':>8}{'exactly right':>15}")
for name, entry in result["beam"].items():
    print(f"{name:20}{entry['sentences']:>10}{entry['bleu']:>8.1f}{entry['exact']:>15.0%}")
print(entry["signature"])
measure("numbers in the model", model.store.data.size, 867_328, 867_328)
measure("pronouns right, of the 240 in test_coreference", result["pronouns"]["accuracy"], 0.98, 1)
measure("both sentences of a pair right", result["pronouns"]["pair_accuracy"], 0.97, 1)

# %% [markdown]
# The last line is the sharp one. `test_coreference` consists of pairs like the two horses, and its combinations of
# nouns are not in the training text. Who always writes the same pronoun gets no pair right.
#
# But keep the size in mind. The sentences come from a grammar with few words and no surprises, so 98 BLEU here is not
# 98 BLEU in the world: the paper's big model reaches 28.4 on news text (English to German, Table 2).
#
# **Where does it look?** The model has two parts: the *encoder* reads the English sentence, the *decoder* writes the
# German one. For each German piece that is about to be written, the decoder distributes a weight of 1 over the
# English sentence, and reads most where the weight is large. That is *attention*, the subject of most lessons. It
# happens in two layers, and in each of them four times side by side, in four *heads*. Here is the mean of the last
# layer's heads for one sentence; an English word has the weights of all its pieces:

# %%
def look(attended):
    """Which English word does each German piece look at? Last layer, mean of its heads: (T, words of the source)"""
    return sum_over_words(attended.cross[-1].mean(axis=0), attended.source_word)


example = test[4]
weights = look(attend(translator, example))
pieces = tokenizer.pieces(ids_of(example.target)[0])
figure, axes = plt.subplots(figsize=(6.4, 5.6), layout="constrained")
image = axes.imshow(weights, "viridis", aspect="auto", vmin=0, vmax=1)
axes.set_xticks(range(weights.shape[1]), words(example.source), rotation=60, ha="right", rotation_mode="anchor")
axes.set_yticks(range(len(pieces)), [piece.replace("▁", "_") for piece in pieces])
axes.set(xlabel="English word that is looked at", ylabel="German piece being written",
         title="Where the last layer looks")
figure.colorbar(image, label="attention weight")
show(figure, "00_cross_attention", alt="A map of attention weights. Rows: German pieces of Thomas hat den teuren "
     "Pokal neben den Baum gestellt. Columns: the English words. The bright cells run down the diagonal, except for "
     "the last word, gestellt, whose pieces look back at placed, the third English word.")
print(f"{example.source}\n{example.target}")
measure("weight of 'placed' when the first piece of 'gestellt' is written",
        weights[pieces.index("▁ges"), words(example.source).index("placed")], 0.4, 0.8)

attended = [attend(translator, example) for example in test[:200]]
for layer, lo, hi in (1, 0.4, 0.6), (2, 0.92, 0.98):
    chosen = [aligned_words(each.cross[layer - 1].mean(axis=0), each) for each in attended]
    measure(f"200 sentences, layer {layer}: German words that look most at an English word they render",
            alignment_score(chosen, test[:200]).accuracy, lo, hi)
measure("by chance", alignment_by_chance(test[:200]), 0.11, 0.13)

# %% [markdown]
# Rows are German pieces ("_" marks the beginning of a word), columns English words. Nobody told the model which word
# renders which. It was trained on sentence pairs alone, and found that it helps to look at the right place; even
# across the sentence, where German puts its verb at the end. In the layer below only half of the words do so.
#
# ## Backward: what training changed
#
# All this was random at first. Training took the 867,328 numbers and changed each of them a little, two thousand
# times. Which way, and by how much? For each number the *gradient* says how the loss would change if that number
# grew. (The loss is minus the logarithm of the probability that the model gave to the right piece, on average; 0 is
# best.) How a gradient is derived and proved right is what the next lessons are about. Here is what one is good for:
# go a small step against it, and the loss falls by as much as the gradient promised.

# %%
fresh = Transformer(model.config, seed=0, dtype="float64")
source, target_in, target_out = teacher_forced(tokenizer, read("val")[:32])       # ids: (B, S), (B, T), (B, T)


def loss_of(some_model):
    total, n_pieces = some_model.loss(source, target_in, target_out)
    return total / n_pieces


before = loss_of(fresh)
total, n_pieces = fresh.loss_backward(source, target_in, target_out)
gradient = fresh.store.grad / n_pieces
step = 1e-4
fresh.store.data -= step * gradient
promised, found = step * (gradient**2).sum(), before - loss_of(fresh)
measure("numbers in the gradient", gradient.size, 867_328, 867_328)
measure("loss with random numbers", before, 7, 9)
measure("loss if all 1,600 pieces were equally likely: ln 1600", np.log(1600), 7.37, 7.38)
measure("what the loss fell by in one step, over what the gradient promised", found / promised, 0.9, 1.1)
measure("loss of the trained model", loss_of(model), 0, 0.3)

# %% [markdown]
# ## Check
#
# The frameworks in common use compute gradients by themselves. Here each is a formula, derived by hand and written
# down next to what it is the gradient of. A wrong one rarely crashes, so each is compared with finite differences, in
# every situation that is known to have broken one. Three layers of all:

# %%
worst, n_cases = 0.0, 0
for case, report in gradient_cases.run(["ScaledDotProductAttention", "CrossAttention", "LayerNorm"]):
    worst, n_cases = max(worst, report.worst.error), n_cases + 1
print(f"{n_cases} cases; the last one: {case.layer}, {case.description}")
measure("worst relative error", worst, 0, 1e-6)

# %% [markdown]
# `scratchformer gradcheck` in a shell checks all of them, the whole model included.
#
# ## Experiment: break it
#
# A translation may be good for a bad reason. Perhaps the model has learnt what German sentences look like and hardly
# reads the English ones? Then it would not matter much what it reads. Here are the dictionary and four controls, each
# of which takes something away; guess the order of their scores before you look.
#
# - *dictionary*: word by word, as above.
# - *other sentence*: the model gets the English sentence of the next line.
# - *shuffled*: the right English words in random order, with the full stop at the end.
# - *no choice in layer 2*: in the decoder's last layer, every English piece gets the same weight. (In the code: all
#   queries are set to zero, so that all pieces have the same score.) The attention is there, but cannot choose.
# - *no choice in both layers*: the same in the layer below as well.

# %%
class NoChoice(ScaledDotProductAttention):
    """Every key gets the same weight."""

    def forward(self, q, k, v, mask=Mask(), rng=None):
        return super().forward(0 * q, k, v, mask, rng)


sources, references = [example.source for example in test[:200]], [example.target for example in test[:200]]
random = np.random.default_rng(0)
shuffled = [as_text([*random.permutation(words(sentence)[:-1]), words(sentence)[-1]]) for sentence in sources]
translations = {
    "the model": translator.translate(sources, beam=1),
    "dictionary": [word_by_word(sentence) for sentence in sources],
    "other sentence": translator.translate([*sources[1:], sources[0]], beam=1),
    "shuffled": translator.translate(shuffled, beam=1),
}
cross = [layer.cross_attention.sublayer for layer in model.decoder.layers]
cross[1].attention = NoChoice()
translations["no choice in layer 2"] = translator.translate(sources, beam=1)
cross[0].attention = NoChoice()
translations["no choice in both layers"] = translator.translate(sources, beam=1)
for layer in cross:
    layer.attention = ScaledDotProductAttention()              # as it was
same("repaired: scores of the model and of a copy read anew", model.forward(source, target_in)[0],
     load_run(ROOT / "data/tiny_model").model.forward(source, target_in)[0])

bleu = {name: corpus_scores(found, references).bleu for name, found in translations.items()}
for name, lo, hi in (("the model", 95, 100), ("dictionary", 7, 20), ("other sentence", 0, 4), ("shuffled", 25, 45),
                     ("no choice in layer 2", 2, 20), ("no choice in both layers", 0, 8)):
    measure(f"{name}: BLEU", bleu[name], lo, hi)
    print(f"    {translations[name][4]}")

figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
names = list(bleu)[::-1]                                        # the first one on top
bars = axes.barh(names, [bleu[name] for name in names], color=[*[LIGHT] * 5, DARK])
axes.bar_label(bars, fmt="%.0f", padding=3)
axes.set(xlim=(0, 110), xlabel="BLEU, 200 sentences, greedy search", title="What is left when something is taken away")
axes.spines[["top", "right"]].set_visible(False)
show(figure, "00_controls", alt="Bars of BLEU. The model reaches 97. Shuffled English words leave 35, the "
     "dictionary 13, no choice in layer 2 leaves 7, no choice in both layers 3, and another English sentence 1.")

# %% [markdown]
# The model does read. With another sentence's English it writes good German that says something else, and its score
# is nearly 0. Without the choice of where to look it falls far below a shuffled sentence, though every English word
# still reaches it, mixed with all others. That is a first answer to what attention is for.
#
# Two results are less clean than a story would have them. Shuffled words still give a third of the full score: many
# words have one translation wherever they stand. And we broke a machine that was trained whole, so this does not say
# how well one could do that had been trained without attention.
#
# ### Where it fails

# %%
for sentence in ("The quantum computer sleeps.", "The dog bites the man.", read("test_long")[1].source):
    print(f"{sentence}\n    {translator.translate([sentence])[0]}")
long = result["beam"]["test_long"]
measure("BLEU on test_long", long["bleu"], 20, 28)
measure("sentences of test_long exactly right", long["exact"], 0, 0.01)
measure("length of those translations over that of the references", long["length_ratio"], 0.5, 0.7)
measure("BLEU on test_long with greedy search", result["greedy"]["test_long"]["bleu"], 26, 33)
measure("relative clauses in test exactly right", result["exact_by_construction"]["relative"]["exact"], 0.4, 0.7)
measure("of how many", result["exact_by_construction"]["relative"]["sentences"], 15, 15)

# %% [markdown]
# - **Unknown words**: "quantum" and "computer" do not occur in the training text. They are spelt from known pieces,
#   and what comes out is invention.
# - **One unknown word among known ones**: "bites" does not occur either. The result is not even grammatical.
# - **Length**: no sentence of `test_long` is right. They are longer than any in the training text, and the
#   translations stop after six tenths of the length. Beam search makes it worse, since short translations have fewer
#   factors below 1 in their product; that is a likely reason, and not measured here.
# - **Rarer constructions**: about half of the relative clauses are right, of only 15.
#
# A model of this kind knows its training text's distribution, and little beyond.
#
# ## Check the claim
#
# > "In the attention map *it* looks at *the animal*; so one can see how the model knows what *it* stands for."
#
# The sentence pair behind this claim has become famous: *The animal didn't cross the street because it was too
# tired*, or *too wide*. The post that presented the Transformer to the public (J. Uszkoreit, Google Research Blog,
# August 2017) shows for both, for one head of a trained encoder, where *it* looks: at *animal* in the first and at
# *street* in the second. What does our model do?

# %%
FAMOUS = [f"The animal did not cross the street because it was too {word}." for word in ("tired", "wide", "dark")]
for sentence in FAMOUS:
    print(f"{sentence}\n    {translator.translate([sentence])[0]}")
p = next_piece(FAMOUS[1], tokenizer.encode(["Das Tier überquerte die Straße nicht, weil"])[0])
for word, lo, hi in ("es", 0.35, 0.6), ("sie", 0.25, 0.5):
    measure(f"too wide: probability of {word}", p[tokenizer.encode([word])[0][0]], lo, hi)

# %% [markdown]
# *Das Tier* is *es*, *die Straße* is *sie*. "Too tired" is right; "too wide" should be *sie*, and is wrong; "too
# dark" is right. Had we shown the first sentence only, you would have been impressed, and *es* is also the pronoun of
# a model that does not care. **One example proves nothing**; the number that counts is the one above, 240 sentences
# in pairs.
#
# Now the map. For each of the 240 sentences: which of the two nouns has more of the attention of *it*? The encoder
# has two layers of four heads, so there are eight chances to be right; a head that always prefers the first noun is
# right in half of the sentences and in no pair. And where does the German pronoun look while it is being written?

# %%
attended = [attend(translator, example) for example in pairs]
views = [pronoun_weights(each, example) for each, example in zip(attended, pairs)]
of_it = np.stack([view["encoder, it: English nouns"] for view in views], axis=2)  # (N, H, examples, 2)
scores = [[pronoun_score(head, pairs) for head in layer] for layer in of_it]
for layer, heads in enumerate(scores, start=1):
    print(f"layer {layer}, its four heads: right in", " ".join(f"{head.accuracy:4.0%}" for head in heads),
          "of the sentences, in", " ".join(f"{head.pair_accuracy:3.0%}" for head in heads), "of the pairs")
measure("the best head: pairs right", max(head.pair_accuracy for heads in scores for head in heads), 0, 0.1)

places = Counter()
for each, example in zip(attended, pairs):
    row = list(each.target_word).index(example.coreference["target_pronoun"])
    places[look(each)[row].argmax() - example.coreference["pronoun"]] += 1
measure("pronouns that look most at 'too' or at the adjective", places[2] + places[3], 225, 240)
measure("pronouns that look most at 'it' or at one of the nouns", sum(places[i] for i in places if i < 1), 0, 10)

# %% [markdown]
# No head points from *it* to its noun, although the pronoun is right 99 times in 100. And when the pronoun is
# written, the last layer looks at the words *behind* "it", and at no noun. So what the model knows of the two nouns
# has come to it by other ways; the encoder has mixed all words of the sentence before the decoder reads any. Where a
# weight is high, something is read. *What* is read there, and what was known elsewhere already, the map does not
# show. The head in that post may be all that it seems; in our model there is none like it, and it does not need one.
#
# ## Paper and code
#
# - The model is Figure 1 of the paper (Vaswani et al. 2017), with the sizes of `scratchformer/config.py`'s preset
#   `tiny`: $N = 2$ layers, $d_{model} = 128$, 4 heads. The paper's base model has $N = 6$, $d_{model} = 512$, 8 heads
#   and about seventy times as many numbers.
# - In the library: the whole model, [nn/transformer.py](../scratchformer/nn/transformer.py); the search,
#   [decoding/search.py](../scratchformer/decoding/search.py); the corpus,
#   [text/grammar.py](../scratchformer/text/grammar.py); the recorded numbers,
#   [benchmarks/tiny_model.py](../benchmarks/tiny_model.py).
# - *Differs from this page:* the library's search never writes padding or the start mark, and stops at 50 pieces more
#   than the source has (§6.1) where `greedy` above stops at 80.
# - The shipped model was made by `scratchformer demo`, which takes a few minutes. You can make your own.
#
# ## Exercises
#
# `scratchformer learn start` puts the exercises into the directory `exercises/`; `scratchformer learn check 00` looks
# at your answers and says what is wrong with them; `scratchformer learn hint` helps in three steps.
#
# **Predict.** The model has written *Das Pferd verlässt die*. Are the five most probable next pieces the same for the
# two sentences of the beginning, weak and dark?
#
# <details><summary>Answer</summary>
#
# The best one is: *Straße*, with nearly the same probability. What differs between the sentences does not matter yet;
# the small numbers behind it differ a little. Try it:
# `next_piece(MEANS_HORSE, tokenizer.encode(["Das Pferd verlässt die"])[0])`.
#
# </details>
#
# **Predict.** Greedy search takes the most probable piece at each step. Does it find the most probable sentence?
#
# <details><summary>Answer</summary>
#
# Not always. A piece of probability 0.6 whose best continuation has 0.5 makes 0.30; a piece of probability 0.4 whose
# best continuation has 0.9 makes 0.36, and greedy search has not looked at it.
#
# </details>
#
# **Predict** `00_next_word`: for one sentence, write down which English word each German word should look at.
#
# **Build** `00_greedy`: write greedy search for any function that gives scores of the next word.
#
# ## Next
#
# The map of the course. Each lesson takes one part of what you have seen, asks one question about it, derives its
# gradient and measures what happens without it.
#
# | Seen here | Lesson | You need |
# |---|---|---|
# | 867,328 gradients that keep their promise | [01 · Backprop by hand](01_backprop.py) | a derivative, the chain rule |
# | a weight of 1, distributed over the sentence | [04 · Soft lookup](04_soft_lookup.py) | 01 |
# | scores become weights, neither flat nor all or nothing | [05 · Why the square root of d_k](05_scaling.py) | 04 |
# | the next piece is predicted without having been seen | [06 · Masks](06_masks.py) | 04 |
# | four heads that look at different places | [07 · Many heads](07_many_heads.py) | 04, 06 |
# | layers that can be stacked | [12 · Residual, LayerNorm, dropout](12_residual_norm_dropout.py) | 01 |
#
# Lessons 02, 03, 08 to 11 and those from 13 on are still to be written. Begin with [lesson 01](01_backprop.py).
