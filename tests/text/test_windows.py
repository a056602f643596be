"""The windows of a text: which tokens a language model reads, and which it predicts."""

import numpy as np
import pytest

from scratchformer.errors import UserError
from scratchformer.text.tokenizer import BOS, EOS, PAD, Tokenizer
from scratchformer.text.windows import TrainingWindows, ValidationWindows, encode_texts, hold_out, hold_out_tenth

TEXTS = [np.array(text, np.int32) for text in ([BOS, 4, 5, 6, 7, 8, 9, 10, EOS], [BOS, 11, EOS], [BOS, EOS])]


def everything(windows, epoch=0):
    return windows.batch(np.arange(len(windows)), epoch)


def test_an_epoch_reads_the_texts_once_from_a_place_of_its_own():
    windows, circle = TrainingWindows(TEXTS, 4, seed=3), np.concatenate(TEXTS).tolist()
    assert (len(windows), windows.n_targets, windows.lengths.tolist()) == (3, 12, [4, 4, 4])  # 14 tokens
    firsts = set()
    for epoch in range(40):
        batch = everything(windows, epoch)
        read, predicted = batch.inputs[0].reshape(-1), batch.targets.reshape(-1)
        [first] = [i for i in range(14) if np.array_equal(np.roll(circle, -i)[:12], read)]
        assert np.array_equal(np.roll(circle, -first - 1)[:12], predicted)
        firsts.add(first)
    assert len(firsts) > 10
    part = windows.batch(np.array([2, 0]), 5)
    assert np.array_equal(part.targets, everything(windows, 5).targets[[2, 0]])


@pytest.mark.parametrize("window", [1, 2, 3, 4, 5, 8, 100])
def test_validation_predicts_each_token_once_from_half_a_window_or_more(window):
    windows = ValidationWindows(TEXTS, window)
    batch, predicted = everything(windows), []
    for ids, targets in zip(batch.inputs[0], batch.targets):
        for position in np.flatnonzero(targets):
            predicted.append(int(targets[position]))
            starts_the_text = ids[0] == BOS
            assert starts_the_text or position + 1 >= window / 2
            assert ids[position] == predicted[-2] if ids[position] != BOS else True
    assert predicted == [int(token) for text in TEXTS for token in text[1:]]
    assert windows.n_targets == len(predicted) == 11 and windows.lengths.max() <= window


def test_padding_is_no_target():
    batch = ValidationWindows(TEXTS[1:], 5).batch(np.array([1, 0]))
    assert batch.inputs[0].tolist() == [[BOS, PAD], [BOS, 11]] and batch.targets.tolist() == [[EOS, PAD], [11, EOS]]


def test_a_tenth_of_a_text_is_held_out_from_the_beginning_of_a_line():
    text = "".join(f"line {i}\n" for i in range(100))
    parts = [hold_out_tenth(text, part)[1] for part in range(10)]
    assert "".join(parts) == text
    assert all(part.startswith("line ") and 0.08 < len(part) / len(text) < 0.12 for part in parts)
    for part, n_pieces in ((0, 1), (4, 2), (9, 1)):
        pieces, held_out = hold_out_tenth(text, part)
        assert len(pieces) == n_pieces and held_out == parts[part]
        assert sorted("".join([*pieces, held_out])) == sorted(text)
    assert hold_out_tenth("one line\n", 9) == (["one line\n"], "")


@pytest.mark.parametrize("word, end", [("word ", "\n"), ("word ", ""), ("字", "\n"), ("line of several words\n", "")])
def test_a_tenth_is_held_out_from_a_line_a_word_or_else_a_character(word, end):
    text = word * 100 + end
    for part in range(10):
        pieces, held_out = hold_out_tenth(text, part)
        assert 0.08 < len(held_out) / len(text) < 0.12 and held_out.startswith(word)
        assert len(text) == len("".join(pieces)) + len(held_out)


def test_blank_lines_at_the_end_are_not_held_out():
    pieces, held_out = hold_out_tenth("a line\n" * 100 + "\n" * 400, 9)
    assert (pieces, held_out) == (["a line\n" * 90], "a line\n" * 10)


def test_of_many_short_texts_every_tenth_is_held_out_whole():
    texts = [f"file {number}.\n" for number in range(40)]
    train, val = hold_out([*texts[:20], "\n", *texts[20:]])
    assert val == [texts[9], texts[19], texts[29], texts[39]] and train == [text for text in texts if text not in val]


def test_of_few_short_texts_and_of_long_ones_a_tenth_each_is_held_out():
    short, long = "some words.\n" * 10, "some words.\n" * 1000
    for texts in ([short] * 9, [long] * 12, [short, long, long]):
        train, val = hold_out(texts)
        assert len(val) == len(texts) and sum(map(len, train + val)) == sum(map(len, texts))
        assert all(0.05 < len(held_out) / len(text) < 0.15 for held_out, text in zip(val, texts))
    train, val = hold_out([long] + [short] * 19)
    assert len(val) == 2 and len(val[0]) == 1200 and val[1] == short
    assert hold_out(["tiny\n", short])[0][0] == "tiny\n" and hold_out(["tiny\n"]) == (["tiny\n"], [])


def test_too_short_a_text_is_refused():
    with pytest.raises(UserError, match="3 tokens, fewer than the window of data.max_length=4"):
        TrainingWindows(TEXTS[1:2], 4, 0)


def test_a_text_comes_back_as_it_was():
    text = "  two spaces,\n\n\ttabs and ümläuts;\n    indented code(x)\n"
    tokenizer = Tokenizer.train_on_text(text.split("\n") * 3, 320)
    (ids,) = encode_texts(tokenizer, [text + "日本"])
    assert ids[0] == BOS and ids[-1] == EOS and tokenizer.decode([ids])[0] == text + "日本"
