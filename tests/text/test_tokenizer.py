import re

import numpy as np
import pytest

from scratchformer.errors import UserError
from scratchformer.text.tokenizer import BOS, EOS, N_SPECIALS, PAD, UNK, Tokenizer, UnknownTokens
from scratchformer.text.words import TokenizerPair, WordTokenizer, spellings

ENGLISH = [
    f"the {size} {animal} sees a {color} house"
    for size in ("small", "big", "old")
    for animal in ("dog", "cat", "bear")
    for color in ("red", "green", "white")
]
GERMAN = [
    f"{article} {size} {animal} überquert die Straße für größere Äpfel"
    for size in ("kleine", "große", "schöne")
    for article, animal in (("der", "Hund"), ("die", "Katze"), ("der", "Bär"))
]
TEXT = ENGLISH + GERMAN


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(TEXT, vocab_size=90)


@pytest.fixture(scope="module")
def byte_tokenizer():
    return Tokenizer.train(TEXT, vocab_size=350, byte_fallback=True)


# --- encode, decode, pieces


def test_round_trip(tokenizer):
    assert tokenizer.vocab_size == 90
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert all(UNK < i < 90 for sentence in ids for i in sentence)
    assert "".join(tokenizer.pieces(tokenizer.encode(["größere Äpfel"])[0])) == "▁größere▁Äpfel"
    assert tokenizer.encode([]) == tokenizer.decode([]) == []
    assert tokenizer.encode(["", "dog"])[0] == [] and tokenizer.decode([[], [EOS]]) == ["", ""]


def test_pairs_merge_in_the_order_they_were_learned():
    learned = Tokenizer.train(["bc"] * 5 + ["ab"] * 2, vocab_size=11)
    assert learned.pieces(range(UNK + 1, 7)) == ["bc", "▁bc", "ab"]
    assert [learned.pieces(ids) for ids in learned.encode(["abc", "ab"])] == [["▁", "a", "bc"], ["▁", "ab"]]


def test_text_is_not_normalized_but_for_runs_of_spaces(tokenizer):
    learned = Tokenizer.train(["ﬁ ² u\u0308 ü ｆ"], vocab_size=14)
    assert learned.decode(learned.encode([" ﬁ  ² u\u0308 ü   ｆ "])) == ["ﬁ ² u\u0308 ü ｆ"]


def test_decode_stops_at_eos_and_ignores_pad_and_bos(tokenizer):
    [dog, cat] = tokenizer.encode(["the dog", "a cat"])
    assert tokenizer.decode([[BOS, PAD] + dog + [PAD, EOS] + cat, cat + [PAD]]) == ["the dog", "a cat"]
    ids = np.array([*dog, EOS], dtype=np.int32)
    assert tokenizer.decode([ids]) == ["the dog"] and tokenizer.pieces(ids)[-1] == "</s>"
    assert tokenizer.pieces([PAD, EOS, BOS, UNK]) == ["<pad>", "</s>", "<s>", "<unk>"]


def test_an_unknown_character_is_unk_or_its_bytes(tokenizer, byte_tokenizer):
    [ids] = tokenizer.encode(["dog 🙂 dog"])
    assert ids.count(UNK) == 1 and tokenizer.decode([ids]) == ["dog  ⁇  dog"]
    [ids] = byte_tokenizer.encode(["dog 🙂 dog"])
    assert UNK not in ids and byte_tokenizer.decode([ids]) == ["dog 🙂 dog"]
    assert "<0xF0> <0x9F> <0x99> <0x82>" in " ".join(byte_tokenizer.pieces(ids))


def test_control_symbols_in_the_text_are_text(tokenizer, byte_tokenizer):
    text = "a <s> b </s> <pad><unk> </s> end"
    for learned in (Tokenizer.train(TEXT + [text], vocab_size=90), byte_tokenizer):
        [ids] = learned.encode([text])
        assert not {PAD, EOS, BOS, UNK} & set(ids)
        assert learned.decode([ids]) == [text]
    assert not {PAD, EOS, BOS} & set(tokenizer.encode([text])[0])  # "<" was not in its training text: UNK


# --- train


def test_training_twice_gives_the_same_bytes():
    models = [Tokenizer.train(iter(TEXT), vocab_size=100).serialized for _ in range(2)]
    assert models[0] == models[1]


def test_long_sentences_are_not_skipped():
    long = "the dog " * 2_000 + "ß"  # 16 kB; sentencepiece skips what is longer than 4192 bytes, by default
    learned = Tokenizer.train([long, "the dog"], vocab_size=20)
    assert UNK not in learned.encode(["ß"])[0]


@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize(("asked", "said", "step"), [(9000, "large", 1), (10, "small", -1), (0, "small", -1)])
def test_an_impossible_size_names_the_nearest_possible_one(byte_fallback, asked, said, step):
    with pytest.raises(UserError, match=f"vocab_size {asked} is too {said}") as error:
        Tokenizer.train(TEXT, asked, byte_fallback)
    possible = int(re.findall(r"\d+", str(error.value))[-1])
    assert Tokenizer.train(TEXT, possible, byte_fallback).vocab_size == possible
    with pytest.raises(UserError, match=f"vocab_size {possible + step} is too {said}"):
        Tokenizer.train(TEXT, possible + step, byte_fallback)


@pytest.mark.parametrize("character", ["▅", "\0"])
def test_a_character_that_sentencepiece_cannot_learn_spoils_no_other(character):
    lines = [f"the{character} dog", f"{character}{character} a cat"]
    learned = Tokenizer.train(lines + TEXT, 90)
    assert [ids.count(UNK) for ids in learned.encode(lines)] == [1, 1]  # one for successive characters
    assert learned.decode(learned.encode(lines)) == ["the ⁇  dog", " ⁇  a cat"]


def test_every_other_character_is_learnt():
    text = ["a\u3000b \xa0\u2028\r\ufeff\ufffd\ufffe\U0010ffff"]
    assert UNK not in Tokenizer.train(text, 15).encode(text)[0]


@pytest.mark.parametrize(
    "sentences, complaint",
    [
        (["▁▁"], "^sentencepiece cannot learn a vocabulary from this text: INTERNAL: .*$"),
        ([], "no text"),
        (["", " \t"], "no text"),
    ],
)
def test_text_that_teaches_nothing(sentences, complaint):
    with pytest.raises(UserError, match=complaint):
        Tokenizer.train(sentences, vocab_size=10)


# --- save, load


def test_save_and_load(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_text("an older file")
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    assert loaded.serialized == tokenizer.serialized == path.read_bytes()
    assert loaded.encode(TEXT) == tokenizer.encode(TEXT)
    assert list(tmp_path.iterdir()) == [path]


def test_files_that_cannot_be_written_or_read(tokenizer, tmp_path):
    with pytest.raises(UserError, match="cannot write the tokenizer"):
        tokenizer.save(tmp_path / "missing" / "model")
    with pytest.raises(UserError, match="missing: cannot read the tokenizer: No such file"):
        Tokenizer.load(tmp_path / "missing")


def test_loading_something_else(tokenizer, tmp_path, capfd):
    path, saved = tmp_path / "other", tokenizer.serialized
    for content in (b"", b"plain text", saved[:300], saved[:-3]):
        path.write_bytes(content)
        with pytest.raises(UserError, match="other is not a sentencepiece model, or a damaged one"):
            Tokenizer.load(path)
    assert capfd.readouterr() == ("", "")


# --- unknown tokens


UNKNOWN = "{} of {} tokens of the input are unknown to the model"
DECOMPOSED = (
    "{} of {} sentences have letters that the model knows in Unicode's NFC only: normalize the text, as with "
    "`uconv -x any-nfc`"
)


@pytest.mark.parametrize(
    "sentences, n_unknown, n_decomposed",
    [
        (["the dog", "der große Hund", ""], 0, 0),
        (["the 🙂 dog", "東京 dog"], 2, 0),
        (["fu\u0308r", "gro\u0308ßere A\u0308pfel", "東 dog"], 4, 2),
        (["e\u0301"], 1, 0),  # é is as unknown
        (["e\u0301 a\u0308"], 2, 1),
    ],
)
def test_unknown_tokens_are_counted(tokenizer, byte_tokenizer, sentences, n_unknown, n_decomposed):
    n_tokens = sum(map(len, tokenizer.encode(sentences)))
    for learned, n in (tokenizer, n_unknown), (byte_tokenizer, 0):
        unknown = UnknownTokens(learned)
        assert unknown.remark() == ""
        unknown.count(sentences[:1], np.array(learned.encode(sentences[:1])[0] + [EOS]))
        unknown.count(sentences[1:], np.array([each for ids in learned.encode(sentences[1:]) for each in ids]))
        expected = [UNKNOWN.format(n, n_tokens)] * bool(n)
        expected += [DECOMPOSED.format(n_decomposed, len(sentences))] * bool(n_decomposed)
        assert unknown.remark() == "; ".join(expected)


# --- words


def test_a_word_is_one_id():
    tokenizer = WordTokenizer.of(["the", "</s>", "dog", "▁"])
    assert tokenizer.encode(["the dog", " dog  the ", "", "</s> <pad> ▁ the▁dog"]) == [
        [4, 6],
        [6, 4],
        [],
        [5, UNK, 7, UNK],
    ]
    assert tokenizer.decode([[4, 6], [BOS, 6, UNK, EOS, 4], [PAD]]) == ["the dog", "dog <unk>", ""]
    assert tokenizer.pieces([EOS, 4]) == ["</s>", "the"] and tokenizer.vocab_size == 8


def test_the_classes_of_a_word():
    assert spellings("Boston") == ["Boston", "[name -ton]", "[name -on]", "[name -n]", "[name ]"]
    assert spellings("pre-1990s")[1:] == [f"[number with hyphen{end}]" for end in (" -90s", " -0s", " -s", " ")]
    assert spellings("-")[1:] == ["[word --]"] * 3 + ["[word ]"]


def test_rare_words_share_the_narrowest_class_that_is_frequent():
    """Three times makes a word frequent, ten words a class."""
    rare = [f"{letter}king" for letter in "abcdefghij"] + [f"{letter}ong" for letter in "abcdefghij"]
    sentences = [" ".join(rare), "the dog", "the dog", "the dogs", "Ada 1"]
    tokenizer = WordTokenizer.train_words(sentences, most=100)
    assert tokenizer.pieces(range(N_SPECIALS, tokenizer.vocab_size)) == ["the", "[word -ing]", "[word -ong]"]
    assert tokenizer.encode(["the king wrong dog strange Ada"]) == [[4, 5, 6, UNK, UNK, UNK]]
    few = WordTokenizer.train_words(["a a a a b b b b b c c c"], most=2)
    assert few.pieces([4, 5]) == ["b", "a"] and few.encode(["c"]) == [[UNK]]
    for too_little in ([], [" ", ""], ["a b", "a b c"]):
        with pytest.raises(UserError, match="too little text for a vocabulary: no word occurs 3 times"):
            WordTokenizer.train_words(too_little, most=5)


def test_a_pair_is_saved_and_loaded(tokenizer, tmp_path):
    path, pair = tmp_path / "pair", TokenizerPair(WordTokenizer.of(["ein", "Äpfel"]), WordTokenizer.of(["S", "/S"]))
    pair.save(path)
    loaded = Tokenizer.load(path)
    assert isinstance(loaded, TokenizerPair) and loaded.same_pieces(pair)
    assert (loaded.encode(["Äpfel"]), loaded.decode([[5, 4]])) == ([[5]], ["/S S"])
