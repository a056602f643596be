"""Public data sets: the table, fetching from a server on this machine, and the command `scratchformer data NAME`."""

import re
import shutil
from pathlib import Path

import pytest
from local_server import LANGUAGE_OF_NEIGHBOURS, serve, status, write_dataset

from scratchformer.config import PRESETS, PUBLIC_CORPORA
from scratchformer.errors import UserError
from scratchformer.preparation.datasets import DATASETS, fetch
from scratchformer.preparation.prepared import Options, read_manifest
from scratchformer.text.corpora import read_pairs


def sentences(split, n_lines):
    return [(f"{split} sentence {number}", f"{split} Satz {number} äöü") for number in range(n_lines)]


TRAIN, VAL, TEST = sentences("train", 25), sentences("val", 4), sentences("test", 6)


@pytest.fixture(params=DATASETS)
def name(request):
    return request.param


@pytest.fixture
def small(server):
    return write_dataset(server.root, "wmt14-en-de", TRAIN, VAL, TEST)


@pytest.fixture
def fetched(server, tmp_path):
    """fetched(dataset) -> its files and the lines told"""

    def call(dataset):
        lines = []
        return fetch(dataset, tmp_path / "out", server.url, lines.append), lines

    return call


def pairs(files):
    found = read_pairs(*files)
    return list(zip(found.source, found.target))


def test_the_text_of_every_data_set_is_fetched_once(server, name, fetched, tmp_path):
    dataset = write_dataset(server.root, name, TRAIN, VAL, TEST)
    files, lines = fetched(dataset)
    n_parts = len(files.train)
    assert [pairs(part) for part in files.train] == [TRAIN[index::n_parts] for index in range(n_parts)]
    assert pairs(files.val) == VAL and pairs(files.test) == TEST
    assert lines == [f"{dataset.licence} See {dataset.home_page}"]
    assert not list((tmp_path / "out").rglob(f"*.{LANGUAGE_OF_NEIGHBOURS}"))
    assert not list((tmp_path / "out").rglob("*.partial*"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    server.received.clear()
    assert fetched(dataset)[0] == files and server.received == []
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before


def test_deleted_archives_are_not_needed_and_deleted_texts_are_unpacked_again(small, fetched, server, tmp_path):
    files, _ = fetched(small)
    server.received.clear()
    for path in (files.train[1].target, files.test.source):
        path.unlink()
    assert fetched(small)[0] == files and pairs(files.test) == TEST and len(pairs(files.train[1])) > 0
    shutil.rmtree(tmp_path / "out" / "downloads")
    assert fetched(small)[0] == files and server.received == []


def test_after_a_failure_the_next_call_resumes(small, fetched, server):
    server.next_answers = [status(503)] * 4
    with pytest.raises(UserError, match="given up"):
        fetched(small)
    server.next_answers = [status(503)]
    files, lines = fetched(small)
    assert pairs(files.test) == TEST and len(lines) == 2 and "trying again" in lines[1]


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


# --- the table


def test_the_table_is_consistent(name):
    dataset, paths = DATASETS[name], []
    for pair in (*dataset.train, dataset.val, dataset.test):
        for text, language in zip(pair, (dataset.source_language, dataset.target_language)):
            stem = (text.member or text.origin.name).removesuffix(".gz").removesuffix(".sgm")
            assert stem.endswith(f".{language}")
            assert re.fullmatch(r"md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", text.origin.checksum)
            paths.append(text.path(Path("d")))
    assert len(set(paths)) == len(paths)
    texts = [text for each in DATASETS.values() for pair in (*each.train, each.val, each.test) for text in pair]
    origins = {text.origin for text in texts}
    assert len({origin.name for origin in origins}) == len(origins), "data sets may share a directory"


def test_a_preset_fits_the_data_set_in_its_name(name):
    dataset, presets = DATASETS[name], [PRESETS[preset] for preset in PRESETS if preset.startswith(name)]
    assert PUBLIC_CORPORA == list(DATASETS) and presets
    assert {
        (config.data.source_language, config.data.target_language, config.model.vocab_size) for config in presets
    } == {(dataset.source_language, dataset.target_language, dataset.vocab_size)}


# --- the command


@pytest.mark.parametrize(("name", "target"), [("multi30k", "de"), ("wmt14-en-fr", "fr")])
def test_one_command_downloads_and_prepares(cli, tmp_path, monkeypatch, server, name, target):
    text = [(f"the dog sees number {number} .", f"Hund sieht Nummer {number} .") for number in range(120)]
    dataset = write_dataset(server.root, name, text, text[:3], text[3:8])
    monkeypatch.setitem(DATASETS, name, dataset)
    out = tmp_path / "data"
    command = ["data", name, "--mirror", server.url, "--out", out, "--vocab-size", 60, "--workers", 1]
    first = cli(*command)
    assert first.code == 0 and dataset.licence in first.err
    assert name in first.out and f"--data {out}" in first.out
    assert (out / f"test.{target}").read_text(encoding="utf-8").splitlines() == [sentence for _, sentence in text[3:8]]
    manifest = read_manifest(out)
    assert manifest.options == Options(dataset=name, languages=("en", target), vocab_size=60)
    assert manifest.clean["total"]["kept"] == manifest.splits["train"].pairs == len(text)
    n_requests = len(server.received)
    again = cli(*command)
    assert again.code == 0 and again.err.count("done before") == 1 and again.out == first.out
    assert len(server.received) == n_requests


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["multi30k", "--source", "x"], "data multi30k: takes no --source"),
        (["tiny", "--mirror", "http://x"], "data tiny: takes no --mirror"),
        (["tiny", "--vocab-size", 5], "data tiny: takes no --vocab-size"),
        (["treebank", "--workers", 1], "data treebank: takes no --workers"),
        (["files", "--mirror", "http://x"], "data files: takes no --mirror"),
        (["files"], "come in pairs"),
    ],
)
def test_options_for_other_data(refused, tmp_path, words, complaint):
    assert complaint in refused("data", *words, "--out", tmp_path / "a") and not (tmp_path / "a").exists()


@pytest.mark.parametrize("preset", ["multi30k", "wmt14-en-de-base", "wmt14-en-fr-big"])
def test_a_preset_without_its_text_says_where_to_get_it(refused, tmp_path, preset):
    said = refused("train", preset, "--out", tmp_path / "run")
    assert f"`scratchformer data {preset.removesuffix('-base').removesuffix('-big')} --out DIR`" in said
