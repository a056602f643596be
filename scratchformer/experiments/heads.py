"""Compare the attention of each head with the annotations of the bundled corpus.

The corpus says which German word translates which English word, and which noun a pronoun stands for. A trained model
was told neither, so its heads can be scored on a whole test set, beside baselines without a model.

The weights come from `sentence_attention`: the model reads the source and the reference (teacher forcing), without a
search. A row is the piece that attends (the query), a column the piece attended to (the key). A row of the decoder is
named by the piece it is about to write, which it has not seen. Words are those of `text.bundled.words`.

Shapes: N layers, H heads, S source pieces, T target pieces, </s> included.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Sequence

import numpy as np

from scratchformer.decoding.translator import Translator
from scratchformer.nn.attention import CrossAttention, SelfAttention, attention_weights
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import encode_sequences
from scratchformer.text.bundled import Example, both_right, words
from scratchformer.text.tokenizer import BOS, Tokenizer

# Attention weights ----------------------------------------------------------------------------------------------------


class SentenceAttention(NamedTuple):
    """All attention weights of one sentence pair; each row sums to 1.

    encoder      (N, H, S, S)
    decoder      (N, H, T, T), causal; column u is the piece *read* at step u, <s> first
    cross        (N, H, T, S)
    source_word  (S,) index of the word that each piece of the source belongs to, -1 for </s>
    target_word  (T,) the same for the pieces written
    """

    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray
    source_word: np.ndarray
    target_word: np.ndarray


def sentence_attention(translator: Translator, example: Example) -> SentenceAttention:
    """The attention weights of every head while the model reads the source and the reference."""
    source_ids, target_in_ids, _ = teacher_forced(translator.tokenizer, [example])
    _, cache = translator.model.forward(source_ids, target_in_ids)
    weights = [np.asarray(layer[0]) for layer in attention_weights(cache)]
    N = translator.model.config.N
    return SentenceAttention(
        np.stack(weights[:N]),
        np.stack(weights[N::2]),
        np.stack(weights[N + 1 :: 2]),
        words_of_pieces(translator.tokenizer, example.source),
        words_of_pieces(translator.tokenizer, example.target),
    )


def teacher_forced(tokenizer: Tokenizer, examples: Sequence[Example]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """-> source_ids (B, S), target_in_ids (B, T), target_out_ids (B, T), padded"""
    rows = np.arange(len(examples))
    source = encode_sequences(tokenizer.encode, [example.source for example in examples]).padded(rows)
    written = encode_sequences(tokenizer.encode, [example.target for example in examples]).padded(rows)
    read = np.concatenate([np.full((len(rows), 1), BOS, written.dtype), written[:, :-1]], axis=1)
    return source, read, written


def words_of_pieces(tokenizer: Tokenizer, sentence: str) -> np.ndarray:
    """The index of the word that each piece of the sentence belongs to, and -1 for the final </s>.

    A piece that only marks the beginning of a word belongs to that word.
    """
    [ids] = tokenizer.encode([sentence])
    ends = np.cumsum([len(word) for word in words(sentence)])  # in letters, without spaces
    letters, word_of = 0, []
    for piece in tokenizer.pieces(ids):
        word_of.append(int(np.searchsorted(ends, letters, side="right")))
        letters += len(re.sub(r"[▁\s]", "", piece))
    return np.array([*word_of, -1])


def sum_over_words(weights: np.ndarray, word_of: np.ndarray) -> np.ndarray:
    """(..., pieces) -> (..., words): the weight of a word is the sum over its pieces. </s> is left out."""
    return weights @ (word_of[:, None] == np.arange(word_of.max() + 1)).astype(weights.dtype)


# Alignment: cross-attention to the word that is being translated ------------------------------------------------------


class AlignmentScore(NamedTuple):
    """Agreement of the most attended source words with the alignment of the corpus.

    accuracy    share of the aligned target words whose most attended source word is one of those they translate
    error_rate  1 - 2 (common links) / (links of both), after Och & Ney 2003; an aligned target word has one link here
    """

    accuracy: float
    error_rate: float


def aligned_words(cross: np.ndarray, attention: SentenceAttention) -> np.ndarray:
    """The most attended source word of every target word: weights (..., T, S) of any heads -> (..., target words)

    For a target word of several pieces, the mean of their rows decides. </s> is not a word, and never chosen.
    """
    by_source_word = sum_over_words(cross, attention.source_word)  # (..., T, source words)
    pieces_of = attention.target_word == np.arange(attention.target_word.max() + 1)[:, None]
    return (pieces_of / pieces_of.sum(axis=1, keepdims=True) @ by_source_word).argmax(axis=-1)


def diagonal_alignment(n_target: int, n_source: int) -> np.ndarray:
    """A baseline that reads nothing: the source word at the same relative position as the target word. (n_target,)"""
    return ((np.arange(n_target) + 0.5) * n_source / n_target).astype(int)


def alignment_score(chosen: Sequence[np.ndarray], examples: Sequence[Example]) -> AlignmentScore:
    """Score the source word chosen for each target word: for each example, chosen (target words,)."""
    right = sum(int(right_choices(choice, example)) for choice, example in zip(chosen, examples, strict=True))
    chosen_links = sum(n_aligned(example) for example in examples)
    gold_links = sum(len(example.alignment) for example in examples)
    return AlignmentScore(right / chosen_links, 1 - 2 * right / (chosen_links + gold_links))


def right_choices(chosen: np.ndarray, example: Example) -> np.ndarray:
    """Count the aligned target words whose chosen source word is one they translate: (..., target words) -> (...)."""
    n_source, n_target = len(words(example.source)), len(words(example.target))
    gold = np.zeros((n_target, n_source), bool)
    for source, target in example.alignment:
        gold[target, source] = True
    return gold[np.arange(n_target), chosen].sum(axis=-1)


def n_aligned(example: Example) -> int:
    """Count the target words that have an alignment."""
    return len({target for _, target in example.alignment})


def chance_accuracy(examples: Sequence[Example]) -> float:
    """The accuracy to expect of source words drawn at random, and so of uniform attention."""
    expected = [len({tuple(link) for link in each.alignment}) / len(words(each.source)) for each in examples]
    return sum(expected) / sum(map(n_aligned, examples))


# Pronouns: attention to one of two nouns ------------------------------------------------------------------------------


PRONOUN_VIEWS = (
    "encoder, it: English nouns",
    "cross, er/sie/es: English nouns",
    "decoder, er/sie/es: German nouns",
    "decoder, er/sie/es: German articles",
)
"""Places at which a head may resolve a pronoun: the row that attends, and the columns it attends to.

The row of er/sie/es is the one that writes it. By then, the decoder has read the German nouns and their articles, which
show the gender.
"""


def pronoun_weights(attention: SentenceAttention, example: Example) -> dict[str, np.ndarray]:
    """The weights of the noun that a pronoun means and of the other noun: (N, H, 2) for each of PRONOUN_VIEWS."""
    link = example.coreference
    assert link and link["rival"] is not None, "a pronoun with two nouns to choose from"
    nouns = [link["antecedent"], link["rival"]]
    it = attention.encoder[:, :, attention.source_word == link["pronoun"]].mean(axis=2)  # (N, H, S)
    english = sum_over_words(it, attention.source_word)
    cross = cross_attention_at_pronoun(attention, example)
    read_word = np.concatenate([[-1], attention.target_word[:-1]])
    german = sum_over_words(attention.decoder[:, :, pronoun_row(attention, example)], read_word)  # (N, H, target words)
    views = [english[..., nouns], cross[..., nouns]]
    for before in (0, 1):  # the German noun, and its article
        translations = [[target for source, target in example.alignment if source == noun - before] for noun in nouns]
        views.append(np.stack([german[..., each].sum(axis=-1) for each in translations], axis=-1))
    return dict(zip(PRONOUN_VIEWS, views, strict=True))


def cross_attention_at_pronoun(attention: SentenceAttention, example: Example) -> np.ndarray:
    """Cross-attention of the row that writes er, sie or es, or its first piece: (N, H, source words)"""
    return sum_over_words(attention.cross[:, :, pronoun_row(attention, example)], attention.source_word)


def pronoun_row(attention: SentenceAttention, example: Example) -> int:
    """The row that writes the first piece of er, sie or es."""
    assert example.coreference
    return list(attention.target_word).index(example.coreference["target_pronoun"])


class PronounScore(NamedTuple):
    """Choices of a head between the noun that a pronoun means and the other noun, on minimal pairs.

    antecedent, rival  mean weight of the noun that is meant, and of the other one, 0 to 1
    accuracy           share of the sentences in which the antecedent has more weight
    pair_accuracy      share of the minimal pairs in which it has more weight in both sentences

    The two sentences of a pair differ in the noun that is meant. So a head that always prefers the first noun, or the
    nearest, is right in half of the sentences and in no pair; a random choice in half of the sentences and in a quarter
    of the pairs.
    """

    antecedent: float
    rival: float
    accuracy: float
    pair_accuracy: float


def pronoun_score(weights: np.ndarray, examples: Sequence[Example]) -> PronounScore:
    """Score the weights of one head: (examples, 2), of the antecedent and of the rival."""
    right = weights[:, 0] > weights[:, 1]
    antecedent, rival = weights.mean(axis=0).tolist()
    return PronounScore(antecedent, rival, float(right.mean()), float(both_right(right, examples).mean()))


def attention_layers(model: Transformer) -> dict[str, list[SelfAttention | CrossAttention]]:
    """ "encoder" and "decoder" (self-attention) and "cross" -> the attention of each layer."""
    return {
        "encoder": [layer.self_attention.sublayer for layer in model.encoder.layers],
        "decoder": [layer.self_attention.sublayer for layer in model.decoder.layers],
        "cross": [layer.cross_attention.sublayer for layer in model.decoder.layers],
    }
