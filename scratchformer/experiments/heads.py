"""What does each attention head do? Scores against the answers that come with the bundled corpus.

The corpus knows which German word renders which English word, and which noun a pronoun stands for; a trained model
knows neither. So every head can be asked whether it looks at the right word, on a whole test set, and be compared with
baselines that have learnt nothing.

The weights are those of `attend`: the model reads the source and writes the reference (teacher forcing), without a
search. A row is a piece that looks, a column a piece that is looked at. Rows of the decoder are named by the piece they
are about to write, which they have not seen. Words are those of `text.bundled.words`.

Shapes: N layers, H heads, S source pieces, T target pieces, </s> included.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import Iterator, NamedTuple, Sequence

import numpy as np

from scratchformer.decoding.translator import Translator
from scratchformer.nn.attention import CrossAttention, SelfAttention, attention_weights
from scratchformer.nn.loss import cross_entropy
from scratchformer.nn.ops import PAD
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import encode_sequences
from scratchformer.text.bundled import PERSONAL, Example, words
from scratchformer.text.tokenizer import BOS, Tokenizer

# Where the heads look -------------------------------------------------------------------------------------------------


class Attended(NamedTuple):
    """All attention weights of one sentence pair; each row sums to 1.

    encoder      (N, H, S, S)
    decoder      (N, H, T, T), causal; column u is the piece *read* at step u, <s> first
    cross        (N, H, T, S)
    source_word  (S,) the word that each piece of the source belongs to, -1 for </s>
    target_word  (T,) likewise for the pieces written
    """

    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray
    source_word: np.ndarray
    target_word: np.ndarray


def attend(translator: Translator, example: Example) -> Attended:
    """Read the source and write the reference: where did every head look?"""
    source_ids, target_in_ids, _ = teacher_forced(translator.tokenizer, [example])
    _, cache = translator.model.forward(source_ids, target_in_ids)
    weights = [np.asarray(layer[0]) for layer in attention_weights(cache)]
    N = translator.model.config.N
    return Attended(
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
    """The number of the word that each piece of the sentence belongs to, and -1 for the </s> behind them.

    A piece that is nothing but the mark of a word's beginning belongs to the word that begins.
    """
    [ids] = tokenizer.encode([sentence])
    ends = np.cumsum([len(word) for word in words(sentence)])  # in letters, spaces left out
    letters, word_of = 0, []
    for piece in tokenizer.pieces(ids):
        word_of.append(int(np.searchsorted(ends, letters, side="right")))
        letters += len(re.sub(r"[▁\s]", "", piece))
    return np.array([*word_of, -1])


def sum_over_words(weights: np.ndarray, word_of: np.ndarray) -> np.ndarray:
    """(..., pieces) -> (..., words): a word is given what its pieces are given. </s> is left out."""
    return weights @ (word_of[:, None] == np.arange(word_of.max() + 1)).astype(weights.dtype)


# Alignment: does cross-attention look at the word that is being translated? -------------------------------------------


class AlignmentScore(NamedTuple):
    """How well the most attended source words agree with the corpus.

    accuracy    of the target words that render a source word, the share for which it is one of those they render
    error_rate  1 - 2 (links in common) / (all links of both), after Och & Ney 2003; each such word has one link here
    """

    accuracy: float
    error_rate: float


def aligned_words(cross: np.ndarray, attended: Attended) -> np.ndarray:
    """The most attended source word of every target word: weights (..., T, S) of any heads -> (..., target words).

    A target word of several pieces is decided by the mean of their rows. </s> is not a word, and never chosen.
    """
    by_source_word = sum_over_words(cross, attended.source_word)  # (..., T, source words)
    pieces_of = attended.target_word == np.arange(attended.target_word.max() + 1)[:, None]
    return (pieces_of / pieces_of.sum(axis=1, keepdims=True) @ by_source_word).argmax(axis=-1)


def diagonal(n_target: int, n_source: int) -> np.ndarray:
    """A baseline that reads nothing: the source word as far along its sentence as the target word is. (n_target,)"""
    return ((np.arange(n_target) + 0.5) * n_source / n_target).astype(int)


def alignment_score(chosen: Sequence[np.ndarray], examples: Sequence[Example]) -> AlignmentScore:
    """chosen: for each example the source word of each target word, (target words,)

    Raises ValueError if they are not as many as the target has words.
    """
    chosen_links = right = gold_links = 0
    for choice, example in zip(chosen, examples, strict=True):
        n_words = len(words(example.target))
        if np.shape(choice) != (n_words,):
            raise ValueError(f"choices of shape {np.shape(choice)} for the {n_words} words of {example.target!r}")
        gold = {(source, target) for source, target in example.alignment}
        rendering = {target for _, target in gold}
        chosen_links += len(rendering)
        right += sum((int(choice[target]), target) in gold for target in rendering)
        gold_links += len(gold)
    return AlignmentScore(right / chosen_links, 1 - 2 * right / (chosen_links + gold_links))


def alignment_by_chance(examples: Sequence[Example]) -> float:
    """The accuracy to expect of source words drawn blindly, which is what uniform attention is worth."""
    shares = [
        len(sources(example, target)) / len(words(example.source))
        for example in examples
        for target in {target for _, target in example.alignment}
    ]
    return float(np.mean(shares))


def sources(example: Example, target_word: int) -> list[int]:
    """The source words that a target word renders."""
    return [source for source, target in example.alignment if target == target_word]


def renderings(example: Example, source_word: int) -> list[int]:
    """The target words that render a source word."""
    return [target for source, target in example.alignment if source == source_word]


# Pronouns: which of two nouns is looked at? ---------------------------------------------------------------------------


PRONOUN_VIEWS = (
    "encoder, it: English nouns",
    "cross, er/sie/es: English nouns",
    "decoder, er/sie/es: German nouns",
    "decoder, er/sie/es: German articles",
)
"""Where a head might settle what a pronoun stands for: which row looks, and at what.

The rows of er/sie/es are those that write it. In the decoder, the German nouns and their articles (which tell the
gender) have been read by then.
"""


def pronoun_weights(attended: Attended, example: Example) -> dict[str, np.ndarray]:
    """What a pronoun gives to the noun meant and to the other one, by layer and head: (N, H, 2) for each view.

    Raises ValueError if the example has no pronoun with two nouns to choose from.
    """
    link = example.coreference
    if link is None or link["rival"] is None:
        raise ValueError(f"no pronoun with two nouns to choose from: {example.source!r}")
    nouns = [link["antecedent"], link["rival"]]
    it = attended.encoder[:, :, attended.source_word == link["pronoun"]].mean(axis=2)  # (N, H, S)
    writing = np.flatnonzero(attended.target_word == link["target_pronoun"])[0]
    read_word = np.concatenate([[-1], attended.target_word[:-1]])
    german = sum_over_words(attended.decoder[:, :, writing], read_word)  # (N, H, target words)
    german_nouns, german_articles = (
        np.stack([german[..., renderings(example, noun - before)].sum(axis=-1) for noun in nouns], axis=-1)
        for before in (0, 1)
    )
    return dict(
        zip(
            PRONOUN_VIEWS,
            (
                sum_over_words(it, attended.source_word)[..., nouns],
                writing_pronoun(attended, example)[..., nouns],
                german_nouns,
                german_articles,
            ),
            strict=True,
        )
    )


def writing_pronoun(attended: Attended, example: Example) -> np.ndarray:
    """Cross-attention while er, sie or es is being written (its first piece, if it has several): (N, H, source words)

    Raises ValueError if the example has no pronoun.
    """
    if example.coreference is None:
        raise ValueError(f"no pronoun: {example.source!r}")
    writing = np.flatnonzero(attended.target_word == example.coreference["target_pronoun"])[0]
    return sum_over_words(attended.cross[:, :, writing], attended.source_word)


class PronounScore(NamedTuple):
    """How a head decides between the noun meant and the other one, on minimal pairs.

    antecedent, rival  the mean weight of the two nouns, 0 to 1
    accuracy           share of the sentences in which the antecedent has more weight
    pair_accuracy      share of the minimal pairs in which it has in both sentences

    Whatever always prefers the first noun, or the nearest, has an accuracy of one half and no pair, since the two
    sentences of a pair differ in the noun that is meant. Drawing lots gets half of the sentences and a quarter of the
    pairs.
    """

    antecedent: float
    rival: float
    accuracy: float
    pair_accuracy: float


def pronoun_score(weights: np.ndarray, examples: Sequence[Example]) -> PronounScore:
    """weights: (examples, 2), of the antecedent and of the rival

    Raises ValueError if an example is no member of a minimal pair.
    """
    antecedent, rival = weights.T
    right = antecedent > rival
    return PronounScore(
        float(antecedent.mean()), float(rival.mean()), float(right.mean()), share_of_pairs(right, examples)
    )


def share_of_pairs(right: np.ndarray, examples: Sequence[Example]) -> float:
    """right: (examples,) bool -> the share of the minimal pairs with both sentences right"""
    pairs: dict[int, list[bool]] = {}
    for example, is_right in zip(examples, right, strict=True):
        if example.coreference is None or "pair" not in example.coreference:
            raise ValueError(f"not of a minimal pair, as those of test_coreference are: {example.source!r}")
        pairs.setdefault(example.coreference["pair"], []).append(bool(is_right))
    return sum(all(members) for members in pairs.values()) / len(pairs)


# Positions ------------------------------------------------------------------------------------------------------------


def weight_at_offset(weights: np.ndarray, offset: int) -> np.ndarray:
    """The mean weight of the piece `offset` places after the one that looks, before it if negative.

    weights (..., T, S) -> (...). Rows that have no such piece are left out.

    Raises ValueError if no row is left.
    """
    there = np.diagonal(weights, offset, axis1=-2, axis2=-1)
    if not there.shape[-1]:
        raise ValueError(f"of {weights.shape[-2]} pieces, none has another at {offset:+d} places")
    return there.mean(axis=-1)


def uniform_weights(T: int, causal: bool = False) -> np.ndarray:
    """A baseline that reads nothing: each row spreads its weight evenly over what it may see. (T, T)"""
    return np.tri(T) / np.arange(1, T + 1)[:, None] if causal else np.full((T, T), 1 / T)


# Taking heads away ----------------------------------------------------------------------------------------------------


def attention_layers(model: Transformer) -> dict[str, list[SelfAttention | CrossAttention]]:
    """The model's attentions: "encoder", "decoder" (both self-attention) and "cross", a list over layers of each."""
    return {
        "encoder": [layer.self_attention.sublayer for layer in model.encoder.layers],
        "decoder": [layer.self_attention.sublayer for layer in model.decoder.layers],
        "cross": [layer.cross_attention.sublayer for layer in model.decoder.layers],
    }


@contextmanager
def without_heads(attention: SelfAttention | CrossAttention, heads: Sequence[int]) -> Iterator[None]:
    """Inside the `with`, the slices of these heads count as 0 when W_O reads them: its rows for them are 0.

    Afterwards all is as before. The rest of the model was trained with the head and never saw a 0 in its place, so the
    damage says what the model loses unprepared, not what it could do without the head.
    """
    W = attention.output.weight.data
    before = W.copy()
    try:
        W.reshape(attention.h, attention.d_v, -1)[list(heads)] = 0
        yield
    finally:
        W[...] = before


class PronounChoice(NamedTuple):
    """Whether a model writes the right one of er, sie and es, with the reference up to there before its eyes.

    accuracy       share of the sentences in which it is the most probable of the three
    pair_accuracy  share of the minimal pairs in which it is in both sentences
    other_loss     of all other pieces, in nats per piece: is anything but the pronoun the matter?
    """

    accuracy: float
    pair_accuracy: float
    other_loss: float


def pronoun_choice(translator: Translator, examples: Sequence[Example]) -> PronounChoice:
    """Raises ValueError if an example is no member of a minimal pair, or if two pronouns begin with the same piece."""
    tokenizer, rows = translator.tokenizer, np.arange(len(examples))
    source_ids, target_in_ids, target_out_ids = teacher_forced(tokenizer, examples)
    logits, _ = translator.model.forward(source_ids, target_in_ids)  # (B, T, V)
    candidates = {name: tokenizer.encode([name])[0][0] for name in PERSONAL.values()}
    if len(set(candidates.values())) < len(candidates):
        raise ValueError(f"the first pieces of {', '.join(candidates)} are not distinct in this vocabulary")
    links = [example.coreference or {} for example in examples]
    writing = np.array(
        [
            np.flatnonzero(words_of_pieces(tokenizer, example.target) == link.get("target_pronoun"))[0]
            for example, link in zip(examples, links)
        ]
    )
    expected = [list(candidates).index(link["expected"]) for link in links]
    right = logits[rows, writing][:, list(candidates.values())].argmax(axis=-1) == expected
    others = target_out_ids.copy()
    others[rows, writing] = PAD
    loss_sum, n_tokens, _ = cross_entropy(logits, others)
    return PronounChoice(float(right.mean()), share_of_pairs(right, examples), float(loss_sum) / n_tokens)
