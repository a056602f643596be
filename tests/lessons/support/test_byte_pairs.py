"""Are merges learnt, replayed and undone as the definition says, and as sentencepiece does it?"""

import math
from collections import Counter
from pathlib import Path

import more
import pytest

from scratchformer.text.tokenizer import N_SPECIALS, Tokenizer
from support.byte_pairs import bits_per_character, count_model_losses, decode, encode, learn_merges, words_of

DATA = Path(__file__).parents[3] / "data" / "tiny"
TEXT = [
    line for language in ("en", "de") for line in (DATA / f"val.{language}").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize(
    "sentence, words",
    [
        ("Go home.", ["▁Go", "▁home", "."]),
        ("  two   spaces ", ["▁two", "▁spaces"]),
        ("", []),
        ("?!", ["▁?!"]),
        ("B2 für A_b", ["▁B", "2", "▁für", "▁A", "_", "b"]),
        ("a▁b", ["▁a", "▁b"]),
        ("▁", ["▁", "▁"]),
    ],
)
def test_words(sentence, words):
    assert words_of(sentence) == words


def test_no_character_is_lost():
    assert ["".join(words_of(sentence)) for sentence in TEXT] == ["▁" + line.replace(" ", "▁") for line in TEXT]


def test_kept_counts_are_those_made_anew():
    for text, n in (TEXT[::5], 150), (["aaaaa aaa", "aa"], 4):
        counted = Counter(tuple(word) for sentence in text for word in words_of(sentence))
        assert learn_merges(text, n) == more.learn_merges(counted, n)


def test_equally_frequent_pairs_come_in_order():
    assert learn_merges(["xyz"], 3) == [("x", "y"), ("xy", "z"), ("▁", "xyz")]
    assert learn_merges(["xyz"], 1, order=lambda pair: pair[::-1]) == [("▁", "x")]


def test_learning_ends_when_every_word_is_a_piece():
    assert learn_merges(["to to be"], 99) == [("t", "o"), ("▁", "to"), ("b", "e"), ("▁", "be")]
    assert learn_merges([], 3) == [] == learn_merges(["to"], 0)


def test_merges_are_replayed_in_the_order_in_which_they_were_learnt():
    assert encode(["abc"], [("b", "c"), ("a", "b")]) == [["▁", "a", "bc"]]
    assert encode(["abc"], [("a", "b"), ("b", "c")]) == [["▁", "ab", "c"]]
    assert encode(["abc"], []) == [["▁", "a", "b", "c"]]


def test_decoding_undoes_encoding():
    text = [*TEXT, "Zoë: never seen, 12 %", ""]
    assert [decode(pieces) for pieces in encode(text, learn_merges(TEXT, 100))] == text
    assert decode(encode([" two   spaces "], [])[0]) == "two spaces"


def test_sentencepiece_learns_and_replays_the_same_merges():
    merges = learn_merges(TEXT, 500, longest=16)
    alphabet = {character for sentence in TEXT for word in words_of(sentence) for character in word}
    tokenizer = Tokenizer.train(TEXT, N_SPECIALS + len(merges) + len(alphabet))
    assert tokenizer.pieces(range(N_SPECIALS, N_SPECIALS + len(merges))) == [a + b for a, b in merges]
    assert [tokenizer.pieces(ids) for ids in tokenizer.encode(TEXT)] == encode(TEXT, merges)


def test_a_fair_coin_for_each_character_is_one_bit():
    assert bits_per_character(7 * math.log(2), 7) == pytest.approx(1)


def test_the_counting_model_by_hand():
    rows, V, weight = [list("ab"), list("aa")], 3, 2.0
    p_a = (3 + 2 / 3) / (6 + 2)  # of a b </s> a a </s>
    p_b, p_end = (1 + 2 / 3) / 8, (2 + 2 / 3) / 8
    assert count_model_losses(rows, [["a"]], 0, V, weight) == pytest.approx([-math.log(p_a * p_end)])
    after_a = (1 + 2 * p_b) / (3 + 2)  # a is followed by b, a and </s>
    at_start = (2 + 2 * p_a) / (2 + 2)
    end_after_b = (1 + 2 * p_end) / (1 + 2)
    expected = -math.log(at_start * after_a * end_after_b)
    assert count_model_losses(rows, [list("ab")], 1, V, weight) == pytest.approx([expected])
