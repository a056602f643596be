"""The head statistics, on an untrained model and on weights made up for the purpose."""

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.decoding.translator import Translator
from scratchformer.experiments import heads
from scratchformer.nn.transformer import Transformer
from scratchformer.text.bundled import Example, words
from scratchformer.text.tokenizer import Tokenizer

SICK = Example(
    "The old cow avoids the square because it is too sick.",
    "Die alte Kuh meidet den Platz, weil sie zu krank ist.",
    "pronoun_choice",
    "",
    [[0, 0], [1, 1], [2, 2], [3, 3], [4, 4], [5, 5], [6, 7], [7, 8], [8, 11], [9, 9], [10, 10], [11, 12]],
    {"pronoun": 7, "antecedent": 2, "rival": 5, "target_pronoun": 8, "expected": "sie", "pair": 0},
)
ICY = SICK._replace(
    source="The old cow avoids the square because it is too icy.",
    target="Die alte Kuh meidet den Platz, weil er zu eisig ist.",
    coreference=SICK.coreference | {"antecedent": 5, "rival": 2, "expected": "er"},
)
PAIR = [SICK, ICY]
TWO_TO_ONE = Example("He turns it on.", "Er schaltet ein.", "other", "", [[0, 0], [1, 1], [3, 1], [3, 2]], None)
N, H = 2, 3


@pytest.fixture(scope="module")
def translator():
    text = [sentence for example in PAIR for sentence in (example.source, example.target)]
    tokenizer = Tokenizer.train([*text, *["er sie es"] * 9], 60)  # many words are several pieces
    config = ModelConfig(vocab_size=60, N=N, d_model=24, d_ff=16, h=H)
    return Translator(Transformer(config, seed=0, dtype="float64"), tokenizer)


# Pieces and words -----------------------------------------------------------------------------------------------------


def test_every_piece_is_a_part_of_its_word(translator):
    for sentence in (PAIR[0].source, PAIR[1].target):
        [ids] = translator.tokenizer.encode([sentence])
        pieces, word_of = translator.tokenizer.pieces(ids), heads.words_of_pieces(translator.tokenizer, sentence)
        assert len(word_of) == len(pieces) + 1 and word_of[-1] == -1
        spelt = [
            "".join(piece for piece, owner in zip(pieces, word_of) if owner == number).replace("▁", "")
            for number in range(len(words(sentence)))
        ]
        assert spelt == words(sentence)


def test_a_piece_that_only_begins_a_word_belongs_to_that_word():
    tokenizer = Tokenizer.train(["ab ac ad", "b c d"], 9)  # single characters
    assert tokenizer.pieces(tokenizer.encode(["b a"])[0]) == ["▁", "b", "▁", "a"]
    assert heads.words_of_pieces(tokenizer, "b a").tolist() == [0, 0, 1, 1, -1]


def test_the_weight_of_a_word_is_the_sum_over_its_pieces():
    weights = np.array([[0.1, 0.2, 0.3, 0.4]])
    np.testing.assert_allclose(heads.sum_over_words(weights, np.array([0, 0, 1, -1])), [[0.3, 0.3]])


# What the model attended to -------------------------------------------------------------------------------------------


def test_weights_have_rows_of_sum_one_and_the_decoder_sees_no_future(translator):
    attended = heads.sentence_attention(translator, PAIR[0])
    S, T = len(attended.source_word), len(attended.target_word)
    assert attended.encoder.shape == (N, H, S, S) and attended.cross.shape == (N, H, T, S)
    assert attended.decoder.shape == (N, H, T, T) and not np.triu(attended.decoder, 1).any()
    for weights in attended[:3]:
        np.testing.assert_allclose(weights.sum(axis=-1), 1)


# Alignment ------------------------------------------------------------------------------------------------------------


def attended_with(cross, source_word, target_word):
    return heads.SentenceAttention(np.zeros(0), np.zeros(0), cross, np.array(source_word), np.array(target_word))


def test_pieces_of_a_word_are_summed_as_keys_and_averaged_as_queries():
    cross = np.array(
        [
            [0.3, 0.3, 0.4, 0.0],  # pieces of word 0: 0.6 in all
            [0.0, 0.0, 0.2, 0.8],  # the end symbol is never chosen
            [0.2, 0.1, 0.7, 0.0],  # word 1: 0.3 + 1.0 against 0.7
            [0.5, 0.5, 0.0, 0.0],
        ]
    )
    attended = attended_with(cross, [0, 0, 1, -1], [0, 2, 1, 1])
    np.testing.assert_array_equal(heads.aligned_words(cross, attended), [0, 0, 1])
    np.testing.assert_array_equal(heads.aligned_words(np.stack([cross, cross]), attended), [[0, 0, 1]] * 2)


def test_the_gold_alignment_has_no_error():
    source_of = {target: source for source, target in PAIR[0].alignment}
    gold = np.array([source_of.get(target, 0) for target in range(len(words(PAIR[0].target)))])
    assert heads.alignment_score([gold], PAIR[:1]) == (1, 0)


def test_one_link_of_a_word_with_two_counts_as_right_but_misses_a_link():
    score = heads.alignment_score([np.array([0, 3, 0, 0])], [TWO_TO_ONE])  # "ein" wrong, "." not aligned
    assert score.accuracy == pytest.approx(2 / 3)
    assert score.error_rate == pytest.approx(1 - 2 * 2 / (3 + 4))
    assert heads.chance_accuracy([TWO_TO_ONE]) == pytest.approx((1 + 2 + 1) / 5 / 3)


def test_the_diagonal_alignment():
    np.testing.assert_array_equal(heads.diagonal_alignment(4, 4), [0, 1, 2, 3])
    np.testing.assert_array_equal(heads.diagonal_alignment(2, 6), [1, 4])
    np.testing.assert_array_equal(heads.diagonal_alignment(6, 2), [0, 0, 0, 1, 1, 1])


# Pronouns -------------------------------------------------------------------------------------------------------------


def test_pronoun_weights_come_from_the_right_rows_and_columns(translator):
    example = PAIR[0]
    attended = heads.sentence_attention(translator, example)
    blank = [np.zeros_like(weights) for weights in attended[:3]]
    pieces = {
        name: np.flatnonzero(attended.source_word == example.coreference[name])
        for name in ("pronoun", "antecedent", "rival")
    }
    writing = np.flatnonzero(attended.target_word == 8)[0]
    # a piece is read a step after it is written
    german = {word: np.flatnonzero(attended.target_word == word) + 1 for word in (0, 2, 4, 5)}
    blank[0][0, 0][np.ix_(pieces["pronoun"], pieces["antecedent"])] = 1
    blank[1][1, 1, writing, german[2]] = 2  # Kuh
    blank[1][1, 1, writing, german[4]] = 3  # den
    blank[2][1, 2, writing, pieces["rival"]] = 4
    encoder, cross, nouns, articles = heads.pronoun_weights(
        attended._replace(encoder=blank[0], decoder=blank[1], cross=blank[2]), example
    ).values()
    expected = np.zeros((4, N, H, 2))
    expected[0, 0, 0, 0] = len(pieces["antecedent"])
    expected[1, 1, 2, 1] = 4 * len(pieces["rival"])
    expected[2, 1, 1, 0] = 2 * len(german[2])
    expected[3, 1, 1, 1] = 3 * len(german[4])
    np.testing.assert_allclose([encoder, cross, nouns, articles], expected)
    written = heads.cross_attention_at_pronoun(attended._replace(cross=blank[2]), example)
    np.testing.assert_allclose(written[..., 5], expected[1, ..., 1])


def test_the_same_preference_in_both_sentences_gets_no_pair_right():
    knowing, always_the_first = np.array([[0.3, 0.1], [0.2, 0.1]]), np.array([[0.3, 0.1], [0.1, 0.3]])
    assert heads.pronoun_score(knowing, PAIR) == pytest.approx((0.25, 0.1, 1, 1))
    assert heads.pronoun_score(always_the_first, PAIR) == pytest.approx((0.2, 0.2, 0.5, 0))
