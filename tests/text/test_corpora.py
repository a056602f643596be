import gzip
import os
from itertools import chain
from pathlib import Path

import pytest

from scratchformer.errors import UserError
from scratchformer.text.corpora import (
    CorpusFiles,
    ParallelFiles,
    find_split,
    read_lines,
    read_pairs,
    require_distinct,
    stream_blocks,
)


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def write_gz(path, text):
    path.write_bytes(gzip.compress(text.encode("utf-8")))
    return path


# --- read_lines


@pytest.mark.parametrize(
    "text, lines",
    [
        ("", []),
        ("\n", [""]),
        ("a\nb\n", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("a\n\nb\n\n", ["a", "", "b", ""]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("\ufeffa\nb\n", ["a", "b"]),
        ("\ufeffa\r\rb\r", ["a", "", "b"]),
        ("a\rb", ["a", "b"]),
        ("Straße, žluťoučký\n東京 🙂\n", ["Straße, žluťoučký", "東京 🙂"]),
    ],
)
def test_lines_of_plain_and_gzipped_files(tmp_path, text, lines):
    assert read_lines(write(tmp_path / "plain", text)) == lines
    assert read_lines(write_gz(tmp_path / "packed.gz", text)) == lines


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_newline_ends_a_line(tmp_path, character):
    line = f"one{character}line"
    assert read_lines(write(tmp_path / "text", f"{line}\nnext\n")) == [line, "next"]


def test_a_byte_order_mark_is_text_anywhere_but_at_the_start(tmp_path):
    assert read_lines(write(tmp_path / "text", "a\n\ufeffb\n")) == ["a", "\ufeffb"]


def test_a_missing_plain_file_is_read_from_its_archive(tmp_path):
    write_gz(tmp_path / "train.en.gz", "packed\n")
    assert read_lines(tmp_path / "train.en") == ["packed"]
    write(tmp_path / "train.en", "plain\n")
    assert read_lines(tmp_path / "train.en") == ["plain"]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_invalid_utf8_names_file_and_line(tmp_path, mark):
    path = tmp_path / "latin1.de"
    path.write_bytes(mark + "gut\nStraße\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"latin1\.de, line 2: not valid UTF-8"):
        read_lines(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*nowhere.*No such file"):
        read_lines(tmp_path / "nowhere")


@pytest.mark.parametrize("damage", ["not gzip", "truncated", "flipped bits"])
def test_a_broken_archive(tmp_path, damage):
    packed = bytearray(gzip.compress(b"some text that is long enough to be damaged\n" * 20))
    if damage == "not gzip":
        packed = bytearray(b"plain text")
    elif damage == "truncated":
        del packed[-12:]
    else:
        packed[12] ^= 0xFF
    path = tmp_path / "train.en.gz"
    path.write_bytes(packed)
    with pytest.raises(UserError, match=r"cannot read .*train\.en\.gz"):
        read_lines(path)


def test_a_gzipped_file_without_gz_in_its_name(tmp_path):
    (tmp_path / "train.en").write_bytes(gzip.compress(b"a sentence\n"))
    with pytest.raises(UserError, match=r"train\.en: is gzipped; name it train\.en\.gz$"):
        read_lines(tmp_path / "train.en")


# --- read_pairs


def test_pairs_without_blank_lines_keep_their_line_numbers(tmp_path):
    source = write(tmp_path / "en", "one\n\nthree\nfour\n \t\nsix\n")
    target = write_gz(tmp_path / "de.gz", "eins\nzwei\n\u3000\nvier\n\nsechs\n")
    pairs = read_pairs(source, target)
    assert pairs.source == ["one", "four", "six"]
    assert pairs.target == ["eins", "vier", "sechs"]
    assert pairs.line_numbers == [1, 4, 6]
    assert pairs.n_empty == 3


def test_files_of_different_length(tmp_path):
    source, target = write(tmp_path / "text.en", "a\nb\nc\n"), write(tmp_path / "text.de", "a\nb\n")
    with pytest.raises(UserError, match=r"text\.en has 3 lines, .*text\.de has 2"):
        read_pairs(source, target)


@pytest.mark.parametrize("source, target", [("", ""), ("\n\n", "\n\n"), ("a\n\n", "\nb\n")])
def test_only_blank_lines(tmp_path, source, target):
    with pytest.raises(UserError, match=r"no sentence pairs in .*text\.en and .*text\.de"):
        read_pairs(write(tmp_path / "text.en", source), write(tmp_path / "text.de", target))


# --- stream_blocks


@pytest.mark.parametrize("n_lines", [1, 2, 3, 100])
@pytest.mark.parametrize("packed", [False, True])
def test_joined_blocks_are_the_file(tmp_path, n_lines, packed):
    text = "\ufeffa\r\n\n\u2028 b\x0b\nc\nd"
    files = ParallelFiles(*((write_gz if packed else write)(tmp_path / (name + ".gz" * packed), text) for name in "ab"))
    blocks = list(stream_blocks(files, n_lines))
    assert [block.first_line for block in blocks] == list(range(1, 6, n_lines))
    assert all(block.source == block.target for block in blocks)
    whole = write(tmp_path / "whole", b"".join(block.source for block in blocks))
    assert read_lines(whole) == read_lines(files.source) == ["a", "", "\u2028 b\x0b", "c", "d"]


@pytest.mark.parametrize("n_lines", [1, 2, 100])
def test_blocks_of_a_file_from_an_old_mac(tmp_path, n_lines):
    files = ParallelFiles(write(tmp_path / "a", "a\r\rb\rc"), write(tmp_path / "b", "1\n2\n3\n4\n"))
    blocks = list(stream_blocks(files, n_lines))
    sources, targets = (list(chain(*side)) for side in zip(*(block.lines(files) for block in blocks)))
    assert (sources, targets) == (["a", "", "b", "c"], ["1", "2", "3", "4"])


@pytest.mark.parametrize("read", [read_pairs, lambda *files: list(stream_blocks(ParallelFiles(*files), 2))])
def test_files_of_different_length_with_line_ends_of_two_kinds(tmp_path, read):
    source, target = write(tmp_path / "a", "1\r\n2\n3\n"), write(tmp_path / "b", "1\r2\n3\n")
    with pytest.raises(
        UserError, match="a has 3 lines, .*b has 2; .*b has old Mac line ends .carriage returns. beside"
    ):
        read(source, target)


@pytest.mark.parametrize("n_source, n_target", [(5, 4), (4, 5), (0, 1), (3, 90), (90, 0)])
def test_blocks_of_files_of_different_length(tmp_path, n_source, n_target):
    files = ParallelFiles(write(tmp_path / "a", "x\n" * n_source), write(tmp_path / "b", "x\n" * n_target))
    with pytest.raises(UserError, match=f"not parallel: .*a has {n_source} lines, .*b has {n_target}$"):
        list(stream_blocks(files, 3))


def test_a_truncated_archive(tmp_path):
    text = "".join(f"{number} {number * 7919 % 10007}\n" for number in range(20_000))
    whole = gzip.compress(text.encode())
    files = ParallelFiles(write(tmp_path / "a.gz", whole[: len(whole) // 2]), write(tmp_path / "b", text))
    with pytest.raises(UserError, match=r"cannot read .*a.gz after line \d{4,5}: Compressed file ended"):
        list(stream_blocks(files, 1000))
    write(tmp_path / "a.gz", whole[:2000] + bytes(100) + whole[2100:])
    with pytest.raises(UserError, match="cannot read .*a.gz after line"):
        list(stream_blocks(files, 1000))


# --- find_split


def test_find_plain_and_packed_files(tmp_path):
    source, target = write(tmp_path / "val.en", "a\n"), write_gz(tmp_path / "val.de.gz", "a\n")
    assert find_split(tmp_path, "val", "en", "de") == (source, target)
    assert find_split(tmp_path, "val", "de", "en") == (target, source)


def test_plain_files_come_first(tmp_path):
    for name in ("val.en", "val.en.gz", "val.de", "val.de.gz"):
        (tmp_path / name).touch()
    assert find_split(tmp_path, "val", "en", "de") == (tmp_path / "val.en", tmp_path / "val.de")


def test_a_missing_split_lists_what_is_there(tmp_path):
    for name in ("train.en", "train.de", "test.en.gz"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"neither test\.de nor .*holds test\.en\.gz, train\.de, train\.en$"):
        find_split(tmp_path, "test", "en", "de")


def test_an_empty_and_a_missing_directory(tmp_path):
    with pytest.raises(UserError, match="which is empty"):
        find_split(tmp_path, "test", "en", "de")
    with pytest.raises(UserError, match="which is not a directory"):
        find_split(tmp_path / "nowhere", "test", "en", "de")


@pytest.mark.parametrize("link", [os.symlink, os.link, None])
def test_one_file_has_one_role(tmp_path, link, monkeypatch):
    monkeypatch.chdir(write_gz(tmp_path / "a.gz", "x\n").parent)
    write(tmp_path / "c", "x\n")
    name = tmp_path / "b.gz" if link else Path("a")
    if link:
        link(tmp_path / "a.gz", name)
    a, c = ParallelFiles(tmp_path / "a.gz", tmp_path / "c"), ParallelFiles(tmp_path / "c", tmp_path / "nowhere")
    require_distinct(CorpusFiles([a, a], None, None).roles)  # a part that counts twice
    with pytest.raises(UserError, match=f"{name}: the same file as .*a.gz, named as train source and as val target;"):
        require_distinct(CorpusFiles([a], ParallelFiles(tmp_path / "nowhere", name), None).roles)
    with pytest.raises(UserError, match=f"^{tmp_path}/c: named as train target and as test source;"):
        require_distinct(CorpusFiles([a], None, c).roles)


@pytest.mark.parametrize(
    "target, complaint",
    [
        ("/dev/zero", "a device, not a file"),
        ("nowhere", "a link to a file that does not exist"),
        ("odd", "Too many levels of symbolic links"),
        (".", "Is a directory"),
    ],
)
def test_a_link_to_something_else_than_text(tmp_path, target, complaint):
    (tmp_path / "odd").symlink_to(target)
    with pytest.raises(UserError, match=f"cannot read .*odd: {complaint}"):
        read_lines(tmp_path / "odd")
