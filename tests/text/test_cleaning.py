import gzip
import multiprocessing
import os
import signal
import time
from functools import partial

import numpy as np
import pytest

from scratchformer.errors import UserError
from scratchformer.text.cleaning import Cleaner, Counts, Limits, hashes_of, n_repeated, normalized, reason_to_drop
from scratchformer.text.corpora import Block, ParallelFiles, read_lines, stream_blocks
from scratchformer.text.workers import BLOCKS_PER_WORKER, in_another_process, map_in_order

LIMITS = Limits(max_words=80, max_ratio=9.0)


@pytest.mark.parametrize("line, expected", [
    ("a b", "a b"), ("  a   b ", "a b"), ("a\tb\x00c", "a b c"), ("a\x00 \x00b", "a b"),
    ("a\x0bb\x0cc\x85d", "a b c d"),
    ("one\u2028two \u2029 three\r", "one two three"), ("a\rb", "a b"), ("\x01 \x02", ""), ("", ""),
    ("Prix\u00a0: 3\u202f€", "Prix\u00a0: 3\u202f€"), ("東京 🙂", "東京 🙂"),
])
def test_normalized_lines_are_one_line_for_everybody(line, expected):
    assert normalized(line) == expected
    assert len(normalized(line).splitlines()) <= 1


@pytest.mark.parametrize("source, target, reason", [
    ("a", "b", "kept"), ("", "b", "empty"), ("a", "", "empty"),
    (" ".join("w" * 80), " ".join("w" * 80), "kept"), (" ".join("w" * 81), " ".join("w" * 80), "too_long"),
    (" ".join("w" * 80), " ".join("w" * 81), "too_long"), (" ".join("w" * 79) + " ok.", "b " * 70, "too_long"),
    (" ".join("w" * 9), "w", "kept"), (" ".join("w" * 10), "w", "ratio"), ("w", " ".join("w" * 10), "ratio"),
    ("Don't!", "x", "kept"), (".........", "x", "kept"), ("..........", "x", "ratio"),
])
def test_the_rule_of_clean_corpus_n(source, target, reason):
    assert reason_to_drop(source, target, LIMITS) == reason


def block_of(*pairs, first_line=1):
    source, target = ("".join(pair[side] + "\n" for pair in pairs).encode() for side in (0, 1))
    return Block(source, target, first_line)


@pytest.mark.parametrize("drop", [False, True])
def test_a_block_is_cleaned_and_counted(tmp_path, drop):
    pairs = [("a\x0bb", "x  y"), (" ", "z"), ("w " * 81, "w"), ("w " * 10, "w"), ("Known .", "q"), ("r", "bekannt"),
             ("", "bekannt"), ("last", "letzte")]
    cleaner = Cleaner(ParallelFiles(tmp_path / "a", tmp_path / "b"), LIMITS, {"Known .", "bekannt"}, drop)
    found = cleaner(block_of(*pairs))
    kept = [("a b", "x y"), *([] if drop else [("Known .", "q"), ("r", "bekannt")]), ("last", "letzte")]
    assert (found.source, found.target) == block_of(*kept)[:2]
    assert found.counts == Counts(lines=8, empty=2, too_long=1, ratio=1, held_out=2, kept=len(kept))
    assert np.array_equal(found.hashes, hashes_of(kept))


def test_bytes_that_are_no_text_are_found_by_file_and_line(tmp_path):
    cleaner = Cleaner(ParallelFiles(tmp_path / "a", tmp_path / "b"), LIMITS, (), False)
    with pytest.raises(UserError, match="/b, line 12: not valid UTF-8"):
        cleaner(Block(b"fine\nfine\n", b"fine\nStra\xdfe\n", first_line=11))


def test_repetitions_are_counted_by_hashes():
    rng = np.random.default_rng(0)
    pairs = [(str(a), str(b)) for a, b in rng.integers(0, 12, (300, 2))]
    assert n_repeated(hashes_of(pairs).copy()) == len(pairs) - len(set(pairs))
    assert n_repeated(hashes_of([]).copy()) == 0
    assert hashes_of([("a", "b")]) == hashes_of([("a", "b")]) != hashes_of([("b", "a")])
    assert hashes_of([("The dog sleeps .", "Der Hund schläft .")]).tolist() == [5844896013425918503]


# --- streaming two files


def write(path, text, packed=False):
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


@pytest.mark.parametrize("n_lines", [1, 2, 3, 100])
@pytest.mark.parametrize("packed", [False, True])
def test_blocks_put_together_are_the_file(tmp_path, n_lines, packed):
    text = "\ufeffa\r\n\n\u2028 b\x0b\nc\nd"
    files = ParallelFiles(*(write(tmp_path / (name + ".gz" * packed), text, packed) for name in "ab"))
    blocks = list(stream_blocks(files, n_lines))
    assert [block.first_line for block in blocks] == list(range(1, 6, n_lines))
    assert all(block.source == block.target for block in blocks)
    whole = write(tmp_path / "whole", b"".join(block.source for block in blocks))
    assert read_lines(whole) == read_lines(files.source) == ["a", "", "\u2028 b\x0b", "c", "d"]


@pytest.mark.parametrize("n_source, n_target", [(5, 4), (4, 5), (0, 1), (3, 90), (90, 0)])
def test_files_of_unequal_length_are_told_with_their_lines(tmp_path, n_source, n_target):
    files = ParallelFiles(write(tmp_path / "a", "x\n" * n_source), write(tmp_path / "b", "x\n" * n_target))
    with pytest.raises(UserError, match=f"not parallel: .*a has {n_source} lines, .*b has {n_target}$"):
        list(stream_blocks(files, 3))


def test_an_archive_that_breaks_off(tmp_path):
    text = "".join(f"{number} {number * 7919 % 10007}\n" for number in range(20_000))
    whole = gzip.compress(text.encode())
    files = ParallelFiles(write(tmp_path / "a.gz", whole[:len(whole) // 2]), write(tmp_path / "b", text))
    with pytest.raises(UserError, match=r"cannot read .*a.gz after line \d{4,5}: Compressed file ended"):
        list(stream_blocks(files, 1000))
    write(tmp_path / "a.gz", whole[:2000] + bytes(100) + whole[2100:])
    with pytest.raises(UserError, match="cannot read .*a.gz after line"):
        list(stream_blocks(files, 1000))


# --- several processes


def square(number):
    time.sleep(0.02 if number == 0 else 0)                                         # the first is ready last
    return number, os.getpid()


def fail_at_three(number):
    if number == 3:
        raise UserError("line 3 is wrong")
    return number


def die_at_three(number):
    if number == 3:
        os._exit(9)
    return number


def test_results_come_in_order_from_several_processes_and_few_are_under_way():
    taken = []

    def blocks():
        for number in range(40):
            taken.append(number)
            yield number

    results = map_in_order(square, blocks(), 2)
    first = next(results)
    assert len(taken) == 2 * BLOCKS_PER_WORKER
    rest = list(results)
    assert [number for number, _ in [first, *rest]] == list(range(40))
    assert os.getpid() not in {process for _, process in rest}


def test_one_worker_is_this_process():
    assert list(map_in_order(square, range(3), 1)) == [(number, os.getpid()) for number in range(3)]


def test_what_a_worker_raises_is_raised_here():
    results = map_in_order(fail_at_three, range(10), 2)
    with pytest.raises(UserError, match="line 3 is wrong"):
        list(results)


def test_work_in_another_process():
    assert in_another_process(partial(square, 3))[1] != os.getpid()
    with pytest.raises(UserError, match="line 3 is wrong"):
        in_another_process(partial(fail_at_three, 3))
    with pytest.raises(UserError, match="the worker process has died"):
        in_another_process(partial(die_at_three, 3))


def test_ctrl_c_ends_the_other_process():
    """It comes 0.2 s later, as SIGALRM, and finds this process waiting."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            in_another_process(partial(time.sleep, 600))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_ends_the_job():
    with pytest.raises(UserError, match="one of the 2 worker processes has died"):
        list(map_in_order(die_at_three, range(10), 2))
