"""Files that are there whole or not at all, and directories that one process has for itself."""

import errno
import os
import subprocess
import sys
from contextlib import suppress

import pytest

from scratchformer import files
from scratchformer.errors import UserError
from scratchformer.files import append_line, lock, locked, make_directory, replace_text, whole_file


def content(directory):
    return {path.name: path.read_text() for path in directory.iterdir()}


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path):
    replace_text(tmp_path / "a", "old")
    with whole_file(tmp_path / "a") as file:
        file.write("neü".encode())
        assert (tmp_path / "a").read_text() == "old"
    assert content(tmp_path) == {"a": "neü"}


@pytest.mark.parametrize(
    "failure", [ZeroDivisionError, KeyboardInterrupt, FileNotFoundError(2, "No such file", "other")]
)
def test_an_exception_passes_and_leaves_the_old_file(tmp_path, failure):
    replace_text(tmp_path / "a", "old")
    with pytest.raises(failure if isinstance(failure, type) else FileNotFoundError):
        with whole_file(tmp_path / "a") as file:
            file.write(b"new" * 10_000)
            raise failure
    assert content(tmp_path) == {"a": "old"}


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_what_fails_at_the_end_is_told_with_the_file(tmp_path, monkeypatch, function):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, function, full)
    with pytest.raises(UserError, match="^.*/a: cannot write: No space left on device$"):
        replace_text(tmp_path / "a", "text")
    assert content(tmp_path) == {}


@pytest.mark.parametrize("link", ["a", ".a.partial"])
@pytest.mark.parametrize("write", [replace_text, append_line])
def test_nothing_is_written_through_a_link(tmp_path, link, write):
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / link).symlink_to("theirs")
    with suppress(UserError):
        write(tmp_path / "a", "ours")
    assert (tmp_path / "theirs").read_text() == "theirs"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("nowhere", path)])
def test_only_a_plain_file_is_appended_to(tmp_path, make):
    make(tmp_path / "log")
    with pytest.raises(UserError, match="log: cannot write: not a plain file"):
        append_line(tmp_path / "log", "entry")


def test_an_appended_line_begins_on_a_line_of_its_own(tmp_path):
    (tmp_path / "log").write_text("cut sho")
    append_line(tmp_path / "log", "ü")
    append_line(tmp_path / "log", "z")
    assert (tmp_path / "log").read_text(encoding="utf-8") == "cut sho\nü\nz\n"


def test_a_place_where_nothing_can_be_written(tmp_path):
    replace_text(tmp_path / "a", "text")
    make_directory(tmp_path / "b" / "c")
    for place, complaint in (("nowhere/a", "No such file"), ("a/b", "Not a directory"), ("b", "Is a directory")):
        with pytest.raises(UserError, match=f"{place}: cannot write: {complaint}"):
            replace_text(tmp_path / place, "text")
    with pytest.raises(UserError, match="a/b: cannot make the directory: Not a directory"):
        make_directory(tmp_path / "a" / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_one_at_a_time(tmp_path):
    with locked(tmp_path, "somebody is here"):
        with pytest.raises(UserError, match=f"^{tmp_path}: somebody is here$"):
            lock(tmp_path, "somebody is here")
    os.close(lock(tmp_path, "somebody is here"))


def test_a_lock_ends_with_its_process(tmp_path):
    code = (
        "import sys, os, signal; from pathlib import Path; from scratchformer.files import lock; "
        "lock(Path(sys.argv[1]), 'mine'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path]).returncode == -9
    os.close(lock(tmp_path, "somebody is here"))
