# %% [markdown]
# # Lab notes 00 · The whole game
#
# What [lesson 00](../00_whole_game.py) rests on: which vector decides a pronoun and where its gender comes from, on all
# 240 sentences; where the heads look; and the scores on all four test sets. The model is the one in `data/tiny_model`:
# two layers in encoder and decoder, four heads in each attention, vectors of 128 numbers, trained once (seed 0) for
# 2,000 steps on 20,000 generated sentence pairs. So everything here is about one model. A *piece* is a token.

# %% Imports and the model
import course  # noqa: F401  finds lessons/support
from collections import Counter, defaultdict
from functools import cache

import numpy as np

from scratchformer.experiments import heads
from scratchformer.nn.attention import Mask
from scratchformer.nn.loss import batch_loss, batch_loss_backward
from scratchformer.nn.transformer import Transformer
from scratchformer.text.bundled import PERSONAL, as_text, read, spoken_pronoun, words
from scratchformer.text.tokenizer import BOS, EOS
from scratchformer.training.run import load_run
from support.lesson import ROOT, measure, recorded, table

translator = load_run(ROOT / "data/tiny_model")
model, tokenizer = translator.model, translator.tokenizer
pairs, training_text = read("test_coreference"), {each.source for each in read("train")}
PRONOUN_OF = {tokenizer.encode([f"weil {word}"])[0][-1]: word
              for word in PERSONAL.values()}


def ids_of(text):
    return tokenizer.encode([text])[0]


@cache
def encode(sentence):
    """-> one vector for each English piece and </s>, (1, S, 128)"""
    return model.encode(np.array([[*ids_of(sentence), EOS]]))[0]


def pronouns(memories, written):
    """For each encoder output (1, S, 128), with the German so far: the likeliest piece

    er, sie, es, or '' if it is another piece.
    """
    lengths = np.array([memory.shape[1] for memory in memories])
    padded = np.zeros((len(lengths), lengths.max(), model.config.d_model), np.float32)
    for row, memory in zip(padded, memories):
        row[: memory.shape[1]] = memory[0]
    ids = np.tile([BOS, *ids_of(written)], (len(lengths), 1))
    x, _ = model.target_embedding.forward(ids)
    x, _ = model.target_positions.forward(x)
    mask = Mask(key_lengths=lengths)
    states, _ = model.decoder.forward(x, padded, Mask(causal=True), mask)
    logits, _ = model.unembedding.forward(states[:, -1])
    return [PRONOUN_OF.get(best, "") for best in logits.argmax(axis=1).tolist()]


def written_before(example):
    return as_text(words(example.target)[: example.coreference["target_pronoun"]])


# %% [markdown]
# ## Experiment 1: which vector decides the pronoun
#
# `test_coreference` consists of 120 pairs of English sentences that differ in one adjective, the word after "too". It
# decides which of two nouns "it" stands for, and the two nouns have different genders in German. The decoder is given
# the right German beginning, up to the pronoun, which is the same for both sentences of a pair. Then some of the
# encoder's vectors are replaced by those of the *other* sentence. The last two rows take the adjective's vector from a
# sentence without nouns, or leave it out.

# %% Exchanging vectors
def vectors(sentence, chosen):
    """The vectors of the pieces of these words, (1, pieces, 128)"""
    of_pieces = heads.words_of_pieces(tokenizer, sentence)
    return encode(sentence)[:, np.isin(of_pieces, chosen)]


def adjective(example):
    return len(words(example.source)) - 2  # the full stop is the last


def with_others(example, other, which):
    """example's vectors, but for the words `which(...)`: those of the other"""
    kept = set(range(-1, len(words(example.source)))) - {*which(example)}
    put_in = vectors(other.source, which(other))
    return np.concatenate([vectors(example.source, [*kept]), put_in], axis=1)


def with_adjective_from(sentence, example, said):
    """example's vectors, but the adjective's is that of the last word in sentence"""
    kept = [i for i in range(-1, len(words(example.source))) if i != adjective(example)]
    filled = sentence.format(said)                              # the full stop follows
    put_in = vectors(filled, [len(words(filled)) - 2] if sentence else [])
    return np.concatenate([vectors(example.source, kept), put_in], axis=1)


def first(example):
    """Whether "it" means the first noun"""
    return example.coreference["antecedent"] < example.coreference["rival"]


VIEWS = {"none": lambda example: [],
         "it": lambda example: [example.coreference["pronoun"]],
         "both nouns": lambda example: [example.coreference[noun]
                                        for noun in ("antecedent", "rival")],
         "the adjective": lambda example: [adjective(example)]}
ALONE, OUT = "It is too {}.", ""
counts = {name: Counter() for name in (*VIEWS, ALONE, OUT)}
for i, example in enumerate(pairs):
    other = pairs[i ^ 1]
    said = words(other.source)[adjective(other)]
    memories = [with_others(example, other, which) for which in VIEWS.values()]
    memories += [with_adjective_from(each, example, said) for each in (ALONE, OUT)]
    for name, found in zip(counts, pronouns(memories, written_before(example))):
        counts[name]["own"] += found == example.coreference["expected"]
        counts[name]["other"] += found == other.coreference["expected"]
        counts[name][first(other)] += found == other.coreference["expected"]
names = {ALONE: "the adjective, from “It is too X.”", OUT: "the adjective left out"}
table(["vectors of the other sentence", "own pronoun", "the other's pronoun"],
      [[names.get(name, name), found["own"], found["other"]]
       for name, found in counts.items()])
for name, lo, hi in ("it", 0, 6), ("the adjective", 234, 240), (ALONE, 205, 222):
    measure(f"{names.get(name, name)}: the other's pronoun, of 240",
            counts[name]["other"], lo, hi)
for noun, is_first, alone, out in (("first", True, (105, 120), (85, 110)),
                                   ("second", False, (90, 112), (12, 36))):
    for name, band in (ALONE, alone), (OUT, out):
        measure(f"{names[name]}, the other means the {noun} noun: its pronoun, of 120",
                counts[name][is_first], *band)
first_noun = counts[OUT][True] + sum(
    found == example.coreference["expected"]
    for example in pairs if first(example) for found in
    pronouns([with_adjective_from(OUT, example, "")], written_before(example)))
measure("left out: the first noun's pronoun, of 240", first_noun, 180, 206)

# %% [markdown]
# Only the adjective's vector carries the difference, and the word itself is nearly enough. (The first noun is also the
# subject here, so this can't tell "the first" from "the subject".)
#
# ## Experiment 2: where the gender comes from
#
# The English stays as it is, and an article of the German so far is replaced by the two others: the first one, *Der
# Pferd* and *Die Pferd*, or the second one (*den*, *die* or *das*, which 228 of the 240 sentences have). The control
# are the sentences where "it" means the other noun. (There, if the new article has the gender of the noun that "it"
# means, nothing can be seen, and the sentence is left out.)

# %% Changing the article
ARTICLES = {"first": {"er": "Der", "sie": "Die", "es": "Das"},
            "second": {"er": "den", "sie": "die", "es": "das"}}
follows, asked = Counter(), Counter()
for example in pairs:
    german, expected = words(written_before(example)), example.coreference["expected"]
    meant = "first" if first(example) else "second"
    for changed, article_of in ARTICLES.items():
        places = [i for i, word in enumerate(german) if word in article_of.values()]
        for word, article in article_of.items() if len(places) == 1 else ():
            if article != german[places[0]] and (meant == changed or word != expected):
                asked[meant, changed] += 1
                written = [*german[:places[0]], article, *german[places[0] + 1:]]
                found = pronouns([encode(example.source)], as_text(written))
                follows[meant, changed] += found == [word]
for (meant, changed), lo, hi in ((("first", "first"), 230, 240),
                                 (("second", "first"), 0, 8),
                                 (("second", "second"), 215, 228),
                                 (("first", "second"), 0, 8)):
    measure(f"it = {meant} noun: pronouns that follow the {changed} article, of "
            f"{asked[meant, changed]}", follows[meant, changed], lo, hi)

# %% [markdown]
# How does the model know from the adjective which noun is meant: does it know that streets don't tire, or does it go by
# the order? First, the training text: is an adjective always said of the first noun, or always of the second? Four are
# said of both, and there the verb tells them apart without exception.

# %% Counting
def too(example):
    """The adjective after "too", and the verb"""
    english = words(example.source)
    verbs = [word for word in english if word in ("fit", "hold", "cross", "cut")]
    return english[english.index("too") + 1], *(verbs or ["avoid"])


nouns, with_verb, tested = (defaultdict(Counter) for _ in range(3))
for example in read("train"):
    where, has_too = example.coreference, "too" in words(example.source)
    if where and where.get("rival") is not None and has_too:
        nouns[too(example)[0]][first(example)] += 1
        with_verb[too(example)][first(example)] += 1
both = sorted(said for said, found in nouns.items() if len(found) == 2)
assert both == ["big", "heavy", "thick", "wide"]
table(["training: too ...", "verb", "first noun", "second noun"],
      [*([said, "any", nouns[said][True], nouns[said][False]]
         for said in ("tired", "narrow")),
       *([said, verb, found[True], found[False]]
         for (said, verb), found in sorted(with_verb.items()) if said in both)])
assert all(len(found) == 1 for key, found in with_verb.items() if key[0] in both)
right = 0
for example in pairs:
    if too(example)[0] in both:
        tested[too(example)[0]][first(example)] += 1
        right += pronouns([encode(example.source)], written_before(example)) == [
            example.coreference["expected"]]
n_tested = sum(sum(found.values()) for found in tested.values())
measure(f"big, heavy, thick, wide: right pronouns, of {n_tested}", right, 40, 45)
measure("... of the best rule that looks only at the adjective",
        sum(max(found.values()) for found in tested.values()), 26, 26)

# %% [markdown]
# Second, an exchange of the two nouns. The training text has no sentence of the exchanged ones.

# %% Exchanging the nouns
sentences = []
for example in pairs:
    english, where = words(example.source), example.coreference
    a, b = where["antecedent"], where["rival"]
    english[a], english[b] = english[b], english[a]
    sentences.append(as_text(english))
assert not training_text & set(sentences)
found = [spoken_pronoun(each) for each in translator.translate(sentences, beam=1)]
fits = [each.coreference["expected"] for each in pairs]
now = [pairs[i ^ 1].coreference["expected"] for i in range(240)]
only_english = [pronouns([encode(sentence)], written_before(example))[0]
                for sentence, example in zip(sentences, pairs)]
for what, those, lo, hi in (
        ("of the noun that now stands there", (found, now), 215, 235),
        ("of the noun that fits the adjective", (found, fits), 5, 25),
        ("by the German order, if only the English is exchanged",
         (only_english, fits), 225, 240)):
    measure(f"nouns exchanged: pronouns {what}, of 240",
            sum(a == b for a, b in zip(*those)), lo, hi)

# %% [markdown]
# ## Experiment 3: where it looks
#
# Which of the two nouns gets more attention from "it" in the encoder? A head that always prefers the first noun is
# right in half of the sentences. And where does the last layer of the decoder look while the pronoun is written?

# %% Asking the heads
attended = [heads.sentence_attention(translator, example) for example in pairs]
views = [heads.pronoun_weights(each, example)["encoder, it: English nouns"]
         for each, example in zip(attended, pairs)]
scores = [heads.pronoun_score(head, pairs)
          for layer in np.stack(views, axis=2) for head in layer]    # head: (240, 2)
table(["encoder", *(f"head {h}" for h in range(1, 5))],
      [[f"layer {n + 1}: right", *(f"{head.accuracy:.0%}" for head in four)]
       for n, four in enumerate((scores[:4], scores[4:]))])
measure("the best of the eight: both sentences of a pair right",
        max(head.pair_accuracy for head in scores), 0, 0.1)
behind = 0
for each, example in zip(attended, pairs):
    where = example.coreference
    row = list(each.target_word).index(where["target_pronoun"])
    last = heads.sum_over_words(each.cross[-1].mean(axis=0), each.source_word)[row]
    behind += last.argmax() - where["pronoun"] in (2, 3)
measure("pronouns that look most at 'too' or at the adjective, of 240", behind,
        225, 240)

# %% [markdown]
# ## Experiment 4: how good is it?
#
# Recorded with beam search ([benchmarks/tiny_model.py](../../benchmarks/tiny_model.py)); BLEU is the subject of [lesson
# 21](../21_bleu_and_averaging.py). No test sentence occurs in the training text. The last line is the lesson's training
# on one sentence: what does it teach about 32 validation pairs?

# %% The table of results
result = recorded("tiny_model")["results"]
table(["test set", "sentences", "BLEU", "exactly right"],
      [[name, entry["sentences"], f"{entry['bleu']:.1f}", f"{entry['exact']:.0%}"]
       for name, entry in result["beam"].items()])
for name in result["beam"]:
    assert not any(example.source in training_text for example in read(name))

fresh = Transformer(model.config, seed=0, dtype="float64")
source, target_in, target_out = heads.teacher_forced(tokenizer, read("val")[:32])
german = ids_of("Das Pferd verlässt die Straße, weil es zu müde ist.")
english = ids_of("The horse leaves the street because it is too tired.")
one_pair = np.array([[*english, EOS]]), np.array([[BOS, *german]])
losses = []
for step in range(21):
    if step in (0, 20):
        total, n_pieces = batch_loss(fresh, (source, target_in), target_out)
        losses.append(total / n_pieces)
    fresh.zero_grad()
    _, n_pieces = batch_loss_backward(fresh, one_pair, np.array([[*german, EOS]]))
    fresh.store.data -= 0.1 * fresh.store.grad / n_pieces
measure("32 validation pairs: loss with random parameters", losses[0], 7.5, 8.2)
measure("    after twenty steps on one sentence (chance: ln 1600 = 7.38)", losses[1],
        6.6, 7.4)

# %% [markdown]
# The 200 sentences of `test_long` have 26 to 45 words; in training the longest have 24 in English and 25 in German.
