import gzip

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
        ("a\n\ufeffb\n", ["a", "\ufeffb"]),
        ("\ufeffa\r\rb\r", ["a", "", "b"]),
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


def test_a_missing_plain_file_is_read_from_its_archive(tmp_path):
    write_gz(tmp_path / "train.en.gz", "packed\n")
    assert read_lines(tmp_path / "train.en") == ["packed"]
    write(tmp_path / "train.en", "plain\n")
    assert read_lines(tmp_path / "train.en") == ["plain"]


def test_invalid_utf8_names_file_and_line_and_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"latin1\.de, line 2: not valid UTF-8"):
        read_lines(write(tmp_path / "latin1.de", b"\xef\xbb\xbfgut\nStra\xdfe\n"))
    with pytest.raises(UserError, match=r"cannot read .*nowhere.*No such file"):
        read_lines(tmp_path / "nowhere")


@pytest.mark.parametrize("damage", [lambda data: b"plain text", lambda data: data[:-12]])
@pytest.mark.parametrize("read", [read_lines, lambda path: list(stream_blocks(ParallelFiles(path, path), 1000))])
def test_a_broken_archive(tmp_path, damage, read):
    path = write(tmp_path / "train.en.gz", damage(gzip.compress(b"some text that is long enough to be damaged\n" * 20)))
    with pytest.raises(UserError, match=r"cannot read .*train\.en\.gz: "):
        read(path)


# --- read_pairs


def test_pairs_without_blank_lines_keep_their_line_numbers(tmp_path):
    source = write(tmp_path / "en", "one\n\nthree\nfour\n \t\nsix\n")
    target = write_gz(tmp_path / "de.gz", "eins\nzwei\n\u3000\nvier\n\nsechs\n")
    assert read_pairs(source, target) == (["one", "four", "six"], ["eins", "vier", "sechs"], [1, 4, 6], 3)
    for one, other in (("", ""), ("a\n\n", "\nb\n")):
        with pytest.raises(UserError, match=r"no sentence pairs in .*en and .*de"):
            read_pairs(write(tmp_path / "en", one), write(tmp_path / "de", other))


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


@pytest.mark.parametrize("read", [read_pairs, lambda *files: list(stream_blocks(ParallelFiles(*files), 3))])
@pytest.mark.parametrize("n_source, n_target", [(5, 4), (0, 1), (3, 90), (90, 3)])
def test_files_of_different_length(tmp_path, read, n_source, n_target):
    files = write(tmp_path / "a", "x\n" * n_source), write(tmp_path / "b", "x\n" * n_target)
    with pytest.raises(UserError, match=f"not parallel: .*a has {n_source} lines, .*b has {n_target}$"):
        read(*files)


# --- find_split


def test_plain_files_come_before_packed_ones(tmp_path):
    source, target = write(tmp_path / "val.en", "a\n"), write_gz(tmp_path / "val.de.gz", "a\n")
    write_gz(tmp_path / "val.en.gz", "b\n")
    assert find_split(tmp_path, "val", "en", "de") == (source, target)
    with pytest.raises(UserError, match="neither test.en nor test.en.gz in "):
        find_split(tmp_path, "test", "en", "de")
    with pytest.raises(UserError, match="nowhere, which is not a directory"):
        find_split(tmp_path / "nowhere", "test", "en", "de")


def test_one_file_has_one_role(tmp_path):
    packed, plain = write_gz(tmp_path / "a.gz", "x\n"), write(tmp_path / "c", "x\n")
    link = tmp_path / "b.gz"
    link.symlink_to(packed)
    part, missing = ParallelFiles(tmp_path / "a", plain), tmp_path / "nowhere"
    require_distinct(CorpusFiles([part, part], None, None).roles)  # a part that counts twice
    with pytest.raises(UserError, match=f"{link}: the same file as .*a, named as train source and as val target;"):
        require_distinct(CorpusFiles([part], ParallelFiles(missing, link), None).roles)
    with pytest.raises(UserError, match=f"^{plain}: named as train target and as test source;"):
        require_distinct(CorpusFiles([part], None, ParallelFiles(plain, missing)).roles)
