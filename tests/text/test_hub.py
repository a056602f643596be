"""GPT-2's tokenizer: its ids and its text, and files that it refuses."""

import json
import random
import sys

import pytest

from scratchformer.errors import UserError
from scratchformer.text.hub import HubTokenizer, of_gpt2
from scratchformer.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer

TEXT = "the dog, über\u00a0the 🙂 \n\n\t  it's <|endoftext|> e\u0301 \ufeff\x00\x85\u2028 123456 日本語 "


@pytest.fixture(scope="module")
def tokenizer(byte_level_files):
    return of_gpt2(*byte_level_files)


# --- encode, decode, pieces


def test_ids_are_those_of_the_vocabulary_after_the_four_special_ones(tokenizer, byte_level_files):
    vocab = json.loads(byte_level_files[0].read_bytes())
    assert tokenizer.vocab_size == len(vocab) + 3
    assert tokenizer.pieces([PAD, EOS, BOS, UNK]) == ["<pad>", "</s>", "<s>", "<unk>"]
    assert tokenizer.encode(["e", " the", "\n"]) == [[vocab["e"] + 4], [vocab["Ġthe"] + 4], [vocab["Ċ"] + 4]]
    assert tokenizer.pieces(range(4 + vocab["Ġthe"], 5 + vocab["Ġthe"])) == ["▁the"]


def test_a_long_word_is_joined_by_the_merges_in_their_order(tokenizer, byte_level_files):
    """Of all pairs of neighbours, the one that comes first in merges.txt is joined, as long as there is one."""
    rank = {line: number for number, line in enumerate(byte_level_files[1].read_text("utf-8").splitlines())}
    for word in ("representation", "backpropagation", "attention", "understanding"):
        pieces = list(word)
        while pairs := [pair for pair in map(" ".join, zip(pieces, pieces[1:])) if pair in rank]:
            first, joined = min(pairs, key=rank.__getitem__), []
            for piece in pieces:
                if joined and f"{joined[-1]} {piece}" == first:
                    joined[-1] += piece
                else:
                    joined.append(piece)
            pieces = joined
        assert tokenizer.pieces(tokenizer.encode([word])[0]) == pieces


def test_any_text_comes_back_unchanged(tokenizer, byte_level_files):
    rng = random.Random(0)
    texts = [TEXT, "", *(random_text(rng) for _ in range(500))]
    encoded = tokenizer.encode(texts)
    assert tokenizer.decode(encoded) == texts
    assert all(UNK < i < tokenizer.vocab_size for ids in encoded for i in ids)


def random_text(rng):
    """Up to 40 characters, of all planes of Unicode, many of them spaces."""
    highest = rng.choice([0x80, 0x3000, 0x110000])
    codes = (rng.choice([0x20, 0x0A, rng.randrange(highest)]) for _ in range(rng.randrange(40)))
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)


def test_decode_stops_at_eos_and_shows_half_a_character_as_such(tokenizer):
    [ids] = tokenizer.encode(["the dog"])
    assert tokenizer.decode([[BOS, PAD, *ids, EOS, *ids], []]) == ["the dog", ""]
    [ids] = tokenizer.encode(["🙂"])
    assert tokenizer.decode([ids[:1]]) == ["\ufffd"] and tokenizer.pieces(ids[:1]) == ["ð"]
    assert tokenizer.pieces(tokenizer.encode(["\n"])[0]) == ["\\n"]


# --- files


def test_it_is_saved_and_loaded(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.model")
    again = Tokenizer.load(tmp_path / "tokenizer.model")
    assert again.serialized == tokenizer.serialized and again.checksum == tokenizer.checksum
    assert again.encode([TEXT]) == tokenizer.encode([TEXT]) and again.same_pieces(tokenizer)


def changed(path, change):
    """Replace what a JSON file holds."""
    path.write_text(json.dumps(change(json.loads(path.read_bytes()))), encoding="utf-8")


def without(ids, *pieces):
    """A vocabulary without these pieces, with ids from 0 again."""
    return {piece: i for i, piece in enumerate(piece for piece in ids if piece not in pieces)}


BAD_FILES = [
    ("vocab.json", lambda path: path.unlink(), "No such file"),
    ("vocab.json", lambda path: path.write_bytes(path.read_bytes()[:-100]), "not JSON, or damaged"),
    ("vocab.json", lambda path: changed(path, list), "not a vocabulary"),
    ("vocab.json", lambda path: changed(path, lambda ids: ids | {"a": -1}), "not a vocabulary"),
    ("vocab.json", lambda path: changed(path, lambda ids: without(ids, "<|endoftext|>")), "its last piece is"),
    ("vocab.json", lambda path: changed(path, lambda ids: without(ids, "Ġthe")), "Token `Ġthe` out of vocabulary"),
    ("merges.txt", lambda path: path.write_bytes(b"\xff"), "not valid UTF-8"),
    ("merges.txt", lambda path: path.write_text("a a a"), "not GPT-2's, or damaged"),
]


@pytest.mark.parametrize("name, spoil, complaint", BAD_FILES, ids=[complaint for *_, complaint in BAD_FILES])
def test_bad_files_are_refused_in_one_line(byte_level_files, tmp_path, name, spoil, complaint):
    for path in byte_level_files:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    spoil(tmp_path / name)
    with pytest.raises(UserError) as error:
        of_gpt2(tmp_path / "vocab.json", tmp_path / "merges.txt")
    assert str(tmp_path / name) in str(error.value) and complaint in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_damaged_tokenizer_is_refused_and_the_message_says_how_to_install_the_library(tokenizer, monkeypatch):
    for content in (b"{}", b"{"):
        with pytest.raises(UserError, match="its file: "):
            HubTokenizer(content, "its file")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UserError, match=r"pip install 'scratchformer\[gpt2\]'"):
        HubTokenizer(tokenizer.serialized)
