"""Prepared directories that are opened, damaged or unfinished."""

import json
import os

import numpy as np
import pytest

from scratchformer.errors import UserError
from scratchformer.preparation import prepared
from scratchformer.preparation.pipeline import Options, prepare
from scratchformer.preparation.prepared import (
    UNFINISHED,
    GrowingArray,
    Manifest,
    PreparedCorpus,
    is_prepared,
    read_manifest,
)
from scratchformer.text import batches
from scratchformer.text.batches import crc32_of_ids
from scratchformer.text.corpora import CorpusFiles, ParallelFiles

MAX_LENGTH = 256


@pytest.fixture(scope="module")
def whole(tmp_path_factory, corpus):
    """A prepared directory that is only read."""
    out = tmp_path_factory.mktemp("prepared")
    train, val = (ParallelFiles(corpus / f"{split}.en", corpus / f"{split}.de") for split in ("train", "val"))
    prepare(CorpusFiles([train], val, None), out, Options(vocab_size=60), lambda line: None)
    return out


@pytest.fixture
def own(whole, tmp_path):
    """A copy that a test may change."""
    for path in whole.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
@pytest.mark.parametrize("sizes", [[], [0], [3, 0, 100_000, 7]])
def test_a_growing_array_becomes_an_npy_file(tmp_path, dtype, sizes):
    rng = np.random.default_rng(0)
    pieces = [rng.integers(0, 2**15, size).astype(dtype) for size in sizes]
    with GrowingArray(tmp_path / "a.npy", dtype) as array:
        for piece in pieces:
            array.append(piece)
    expected = np.concatenate([np.empty(0, dtype), *pieces])
    found = np.load(tmp_path / "a.npy")
    assert found.dtype == dtype and np.array_equal(found, expected)


def test_the_checksum_equals_that_of_ids_in_memory(monkeypatch):
    ids = np.random.default_rng(0).integers(0, 2**16, 1000)
    expected = prepared.zlib.crc32(ids.astype(np.int32).tobytes(), 5)
    monkeypatch.setattr(batches, "CHUNK_IDS", 77)
    assert crc32_of_ids(ids.astype(np.uint16), 5) == crc32_of_ids(ids.astype(np.int32), 5) == expected


# --- opening


def test_the_manifest_survives_json(whole):
    manifest = read_manifest(whole)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert manifest.languages == ("en", "de") and manifest.vocab_size == 60
    assert set(manifest.files) | {"manifest.json"} == {path.name for path in whole.iterdir()}
    assert "100 training pairs of 100" in manifest.summary()


def test_arrays_are_memory_maps(whole):
    pairs = PreparedCorpus(whole).pairs("train", MAX_LENGTH)
    assert isinstance(pairs.source.ids.base, np.memmap) and pairs.source.ids.dtype == np.uint16
    assert not pairs.source.ids.flags.writeable
    assert len(pairs) == 100 and pairs.lengths.max() == read_manifest(whole).splits["train"].longest


def test_a_pair_that_is_too_long_for_the_configuration(whole):
    longest = read_manifest(whole).longest
    with pytest.raises(UserError, match=f"{longest} tokens, more than max_length = {longest - 1}.*--max-length"):
        PreparedCorpus(whole).pairs("train", longest - 1)
    assert PreparedCorpus(whole).pairs("train", longest).max_length == 256


def shorter(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(place):
    def change(path):
        data = bytearray(path.read_bytes())
        data[place] ^= 0xFF
        path.write_bytes(data)

    return change


def replaced(make):
    def change(path):
        path.unlink()
        make(path)

    return change


def with_format(path):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))


@pytest.mark.parametrize(
    "name, damage, complaint",
    [
        ("train.source.ids.npy", shorter, r"train.source.ids.npy: \d+ bytes, but \d+ in manifest.json"),
        ("train.source.ids.npy", flip(0), r"train.source.ids.npy: damaged \("),
        ("train.lines.npy", replaced(lambda path: None), "train.lines.npy: No such file, .*prepare the text again"),
        ("val.en", replaced(os.mkfifo), "val.en: No such file"),
        ("val.en", flip(3), "val.en: damaged, its checksum is not that in manifest.json"),
        ("tokenizer.model", flip(-1), "tokenizer.model: damaged"),
        ("train.target.offsets.npy", flip(-3), "train.target.offsets.npy: damaged"),
        ("manifest.json", replaced(lambda path: None), "its preparation is not finished.*no manifest.json"),
        ("manifest.json", lambda path: path.write_text(path.read_text()[:-30]), "manifest.json: damaged"),
        ("manifest.json", lambda path: path.write_text("[]"), "manifest.json: damaged"),
        ("manifest.json", lambda path: path.write_text("{}"), "manifest.json: damaged"),
        ("manifest.json", lambda path: path.write_bytes(b"\xff"), "manifest.json: damaged"),
        ("manifest.json", with_format, "manifest.json: format 99"),
    ],
)
def test_damage_is_reported_in_one_line(own, name, damage, complaint):
    damage(own / name)
    with pytest.raises(UserError, match=complaint) as refusal:
        opened = PreparedCorpus(own)
        opened.tokenizer()
        for split in ("train", "val"):
            opened.pairs(split, MAX_LENGTH)
            opened.text_files(split)
    assert "\n" not in str(refusal.value)


def test_prepared_unfinished_and_plain_directories(corpus, own, tmp_path):
    """A damaged or unfinished one is recognized: training would take it for plain text and learn another vocabulary."""
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "manifest.json").write_text('{"made by": "somebody else"}')
    for directory in (corpus, plain, tmp_path / "nowhere"):
        assert not is_prepared(directory)
    (plain / UNFINISHED).mkdir()
    assert is_prepared(plain)
    (own / "train.source.ids.npy").rename(tmp_path / "ids")
    (own / "manifest.json").write_bytes((own / "manifest.json").read_bytes()[:60])
    assert is_prepared(own)
    (tmp_path / "ids").rename(own / "train.source.ids.npy")
    (own / "manifest.json").unlink()
    assert is_prepared(own)
