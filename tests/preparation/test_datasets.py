"""Downloading data sets, from a server on this machine."""

import re
import shutil
from pathlib import Path

import pytest
from local_server import LANGUAGE_OF_NEIGHBOURS, LocalServer, serve, status, write_dataset

from scratchformer.config import PRESETS
from scratchformer.errors import UserError
from scratchformer.preparation import datasets
from scratchformer.preparation import download as downloads
from scratchformer.preparation.datasets import DATASETS, fetch
from scratchformer.text.corpora import read_pairs


def sentences(split, n_lines):
    return [(f"{split} sentence {number}", f"{split} Satz {number} äöü") for number in range(n_lines)]


TRAIN, VAL, TEST = sentences("train", 25), sentences("val", 4), sentences("test", 6)


@pytest.fixture(params=DATASETS)
def name(request):
    return request.param


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(downloads, "PAUSES_SECONDS", (0.0,))
    with LocalServer(tmp_path / "root") as server:
        yield server


@pytest.fixture
def dataset(server, name):
    return write_dataset(server.root, name, TRAIN, VAL, TEST)


@pytest.fixture
def fetched(server, tmp_path):
    """fetched(dataset) -> its files and the lines told"""

    def call(dataset):
        lines = []
        return fetch(dataset, tmp_path / "out", server.url, lines.append), lines

    return call


@pytest.fixture
def refused(fetched):
    def call(dataset):
        with pytest.raises(UserError) as caught:
            fetched(dataset)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return call


@pytest.fixture
def small(server):
    return write_dataset(server.root, "wmt14-en-de", TRAIN, VAL, TEST)


def pairs(files):
    found = read_pairs(*files)
    return list(zip(found.source, found.target))


def test_fetch_returns_the_text_of_every_data_set(dataset, fetched, tmp_path):
    files, lines = fetched(dataset)
    n_parts = len(files.train)
    assert [pairs(part) for part in files.train] == [TRAIN[index::n_parts] for index in range(n_parts)]
    assert pairs(files.val) == VAL and pairs(files.test) == TEST
    assert lines == [f"{dataset.licence} See {dataset.home_page}"]
    assert [path for path in (tmp_path / "out").rglob(f"*.{LANGUAGE_OF_NEIGHBOURS}")] == []
    assert [path for path in (tmp_path / "out").rglob("*.partial*")] == []


def test_nothing_is_fetched_twice(dataset, fetched, server, tmp_path):
    first, _ = fetched(dataset)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    server.received.clear()
    again, _ = fetched(dataset)
    assert again == first and server.received == []
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def test_archives_may_be_deleted_after_unpacking(small, fetched, server, tmp_path):
    first, _ = fetched(small)
    shutil.rmtree(tmp_path / "out" / "downloads")
    server.received.clear()
    assert fetched(small)[0] == first and server.received == []


def test_a_deleted_text_is_unpacked_again(small, fetched, server):
    files, _ = fetched(small)
    server.received.clear()
    for path in (files.train[1].target, files.test.source):
        path.unlink()
    assert fetched(small)[0] == files
    assert pairs(files.test) == TEST and len(pairs(files.train[1])) > 0 and server.received == []


def test_the_licence_is_shown_before_the_first_request(small, server, tmp_path):
    n_requests = []
    fetch(small, tmp_path / "out", server.url, lambda line: n_requests.append(len(server.received)))
    assert n_requests == [0]


def test_after_a_failure_the_next_call_resumes(small, fetched, refused, server):
    server.next_answers = [status(503)] * 2
    assert "given up" in refused(small)
    server.next_answers = [status(503)]
    files, lines = fetched(small)
    assert pairs(files.test) == TEST
    assert len(lines) == 2 and "trying again" in lines[1]


def test_an_archive_that_was_damaged_on_disk(small, fetched, refused, tmp_path):
    files, _ = fetched(small)
    files.train[0].source.unlink()
    archive = tmp_path / "out" / "downloads" / small.train[0].source.origin.name
    data = bytearray(archive.read_bytes())
    data[len(data) // 2] ^= 1
    archive.write_bytes(data)
    assert archive.name in (said := refused(small)) and "remove it and run the command again" in said
    archive.unlink()
    assert fetched(small)[0] == files and len(pairs(files.train[0])) > 0


# --- the disk


@pytest.mark.parametrize("name, free", [("wmt14-en-de", 3.1e9), ("wmt14-en-fr", 15.5e9), ("multi30k", 1e6)])
def test_disk_space_is_checked_before_the_download(name, free, server, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(datasets.shutil, "disk_usage", lambda path: usage._replace(free=int(free)))
    with pytest.raises(UserError, match=r"not enough space on this disk: [\d.]+ GB needed, [\d.]+ GB free"):
        fetch(DATASETS[name], tmp_path / "out", server.url, print)
    assert server.received == []


def test_existing_files_need_no_disk_space(dataset, fetched, monkeypatch, tmp_path):
    fetched(dataset)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(datasets.shutil, "disk_usage", lambda path: usage._replace(free=0))
    fetched(dataset)


@pytest.mark.parametrize("place", ["out", "out/downloads"])
def test_a_file_where_a_directory_should_be(small, refused, tmp_path, place):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"a file")
    assert place in refused(small) and path.read_bytes() == b"a file"


def test_two_downloads_at_once(small, server, fetched, tmp_path):
    """The second one starts while the first one downloads: it is refused, and the first one is not affected."""
    refusals = []

    def second_download(handler):
        try:
            fetch(small, tmp_path / "out", server.url, lambda line: None)
        except UserError as error:
            refusals.append(str(error))
        serve(handler)

    server.next_answers = [second_download]
    assert pairs(fetched(small)[0].test) == TEST
    assert len(refusals) == 1 and "another process is downloading" in refusals[0]
    assert pairs(fetched(small)[0].test) == TEST  # the directory is free again


# --- the table


def test_the_table_is_consistent(name):
    dataset = DATASETS[name]
    for pair in (*dataset.train, dataset.val, dataset.test):
        for text, language in ((pair.source, dataset.source_language), (pair.target, dataset.target_language)):
            stem = (text.member or text.origin.name).removesuffix(".gz").removesuffix(".sgm")
            assert stem.endswith(f".{language}")
            assert re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", text.origin.checksum)
            assert bool(text.member) == (text.n_bytes > 0)
    assert len({text.path(Path("d")) for text in dataset.texts}) == len(dataset.texts)


def test_data_sets_may_share_a_directory():
    """Files with the same name are the same file, within a data set and across data sets."""
    origins = {text.origin for dataset in DATASETS.values() for text in dataset.texts}
    assert len({origin.name for origin in origins}) == len(origins)


def test_a_preset_fits_the_data_set_in_its_name(name):
    dataset, presets = DATASETS[name], [PRESETS[preset] for preset in PRESETS if preset.startswith(name)]
    assert presets and {
        (config.data.source_language, config.data.target_language, config.model.vocab_size) for config in presets
    } == {(dataset.source_language, dataset.target_language, dataset.vocab_size)}
