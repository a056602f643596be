import json
from dataclasses import replace

import numpy as np
import pytest

from scratchformer.errors import UserError
from scratchformer.files import replace_text
from scratchformer.preparation import prepared
from scratchformer.preparation.pipeline import Options, prepare
from scratchformer.preparation.prepared import (
    Manifest,
    PreparedCorpus,
    crc32_of_ids,
    growing_array,
    is_prepared,
    read_manifest,
)
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


# --- arrays that grow on disk


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.int64])
@pytest.mark.parametrize("sizes", [[], [0], [1], [3, 0, 100_000, 7]])
def test_a_growing_array_becomes_an_npy_file(tmp_path, dtype, sizes):
    rng = np.random.default_rng(0)
    pieces = [rng.integers(0, 2**15, size).astype(dtype) for size in sizes]
    with growing_array(tmp_path / "a.npy", np.dtype(dtype)) as array:
        for piece in pieces:
            array.append(piece)
        assert not (tmp_path / "a.npy").exists()
    expected = np.concatenate([np.empty(0, dtype), *pieces])
    found = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert found.dtype == dtype and np.array_equal(found, expected)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_values_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(TypeError), growing_array(tmp_path / "a.npy", np.dtype(np.uint16)) as array:
        array.append(np.array([70_000]))
    assert list(tmp_path.iterdir()) == []


def test_the_checksum_equals_that_of_ids_in_memory(monkeypatch):
    ids = np.random.default_rng(0).integers(0, 2**16, 1000)
    expected = prepared.zlib.crc32(ids.astype(np.int32).tobytes(), 5)
    monkeypatch.setattr(prepared, "CHUNK_IDS", 77)
    assert crc32_of_ids(ids.astype(np.uint16), 5) == crc32_of_ids(ids.astype(np.int32), 5) == expected


# --- opening


def test_the_manifest_survives_json(whole):
    manifest = read_manifest(whole)
    assert Manifest.from_json(manifest.to_json()) == manifest
    assert manifest.languages == ("en", "de") and manifest.vocab_size == 60
    assert set(manifest.files) | {"manifest.json", "stages.json"} == {path.name for path in whole.iterdir()}
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


def other(manifest_key, value):
    def change(path):
        path.write_text(json.dumps(json.loads(path.read_text()) | {manifest_key: value}))

    return change


def deeper(*path):
    """deeper("splits", "train", "longest", 9) sets that value of the manifest."""
    *keys, last, value = path

    def change(path):
        manifest = inner = json.loads(path.read_text())
        for key in keys:
            inner = inner[key]
        inner[last] = value
        path.write_text(json.dumps(manifest))

    return change


def flip(place):
    def change(path):
        data = bytearray(path.read_bytes())
        data[place] ^= 0xFF
        path.write_bytes(data)

    return change


@pytest.mark.parametrize(
    "name, damage, complaint",
    [
        ("train.source.ids.npy", shorter, r"train.source.ids.npy: \d+ bytes, but \d+ in manifest.json"),
        ("train.lines.npy", lambda path: path.unlink(), "train.lines.npy: No such file.*prepare the text again"),
        ("val.en", shorter, r"val.en: \d+ bytes"),
        ("tokenizer.model", flip(-1), "tokenizer.model: damaged|not a sentencepiece model"),
        ("train.target.offsets.npy", flip(-3), "train.target.offsets.npy: damaged"),
        ("train.target.offsets.npy", flip(200), "train.target.offsets.npy: damaged"),
        ("train.source.ids.npy", flip(0), "train.source.ids.npy: damaged"),
        ("train.source.ids.npy", flip(70), "train.source.ids.npy: damaged"),
        ("manifest.json", lambda path: path.unlink(), "its preparation is not finished.*no manifest.json"),
        ("manifest.json", shorter, None),  # the last line end
        ("manifest.json", lambda path: path.write_text(path.read_text()[:-30]), "manifest.json: damaged"),
        ("manifest.json", lambda path: path.write_text("[]"), "manifest.json: damaged"),
        ("manifest.json", lambda path: path.write_text("{}"), "manifest.json: damaged"),
        ("manifest.json", lambda path: path.write_bytes(b"\xff"), "manifest.json: damaged"),
        ("manifest.json", other("format", 99), "manifest.json: format 99"),
        ("manifest.json", other("splits", {}), "manifest.json: damaged"),
        ("manifest.json", other("splits", {"train": {"pairs": 1}}), "manifest.json: damaged"),
        ("manifest.json", other("files", {}), "manifest.json: damaged"),
        ("manifest.json", other("files", {"tokenizer.model": 5}), "manifest.json: damaged"),
        ("manifest.json", other("clean", {}), "manifest.json: damaged"),
        ("manifest.json", other("unknown", 1), "manifest.json: damaged"),
        ("manifest.json", other("languages", ["en"]), "manifest.json: damaged"),
        ("manifest.json", other("languages", ["en", "de", "fr"]), "manifest.json: damaged"),
        ("manifest.json", other("languages", ["en", 5]), "manifest.json: damaged"),
        ("manifest.json", other("vocab_size", True), "damaged: ValueError: vocab_size is True"),
        ("manifest.json", other("ids_crc32", None), "damaged: ValueError: ids_crc32 is None"),
        ("manifest.json", deeper("splits", "train", "longest", "9"), "damaged: ValueError: longest is '9'"),
        ("manifest.json", deeper("splits", "train", "pairs", 0), "damaged: ValueError: pairs is 0"),
        ("manifest.json", deeper("splits", "train", "unk_share", "0.1"), "damaged: ValueError: unk_share is"),
        ("manifest.json", deeper("splits", "val", "empty", None), "damaged: ValueError: empty is None"),
        ("manifest.json", deeper("clean", "total", "empty", "5"), "damaged: ValueError: empty is '5'"),
        ("manifest.json", deeper("clean", "total", {}), "damaged: KeyError: 'lines'"),
        ("manifest.json", deeper("clean", {"total": {"lines": 9, "empty": 0, "held_out": 0}}), "KeyError: 'repeated'"),
        ("manifest.json", deeper("files", "tokenizer.model", "bytes", -1), "damaged: ValueError: bytes is -1"),
    ],
)
def test_damage_is_reported_in_one_line(own, name, damage, complaint):
    damage(own / name)
    assert is_prepared(own)

    def open_all():
        opened = PreparedCorpus(own)
        opened.tokenizer()
        for split in ("train", "val"):
            opened.pairs(split, MAX_LENGTH)

    if complaint is None:
        return open_all()
    with pytest.raises(UserError, match=complaint) as refusal:
        open_all()
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("wrong", [0, 60, 2**16 - 1])
def test_an_impossible_id_is_found_when_it_is_read(own, wrong):
    ids = np.load(own / "train.source.ids.npy", mmap_mode="r+")
    ids[5] = wrong  # of the first pair
    ids.flush()
    pairs = PreparedCorpus(own).pairs("train", MAX_LENGTH)
    pairs.batch(np.arange(1, 100))
    with pytest.raises(UserError, match="train.source.ids.npy: damaged, .*: remove it and prepare the text again"):
        pairs.batch(np.arange(3))


def test_arrays_of_different_corpora_are_found(own):
    """The sizes agree with the manifest if somebody has edited it."""
    manifest = read_manifest(own)
    np.save(own / "train.lines.npy", np.arange(99))
    changed = manifest.files | {"train.lines.npy": {"bytes": (own / "train.lines.npy").stat().st_size, "crc32": 0}}
    replace_text(own / "manifest.json", replace(manifest, files=changed).to_json())
    with pytest.raises(UserError, match="differ in length"):
        PreparedCorpus(own).pairs("train", MAX_LENGTH)


def test_a_plain_directory_is_not_prepared(corpus, tmp_path):
    assert not is_prepared(corpus) and not is_prepared(tmp_path / "nowhere")
    (tmp_path / "manifest.json").write_text('{"made by": "somebody else"}')
    (tmp_path / "stages.json").write_text("{}")
    assert not is_prepared(tmp_path)


@pytest.mark.parametrize("name", ["manifest.json", "stages.json"])
def test_a_damaged_prepared_directory_is_recognized(own, name):
    """Otherwise training would take it for plain text and learn another vocabulary."""
    head = (own / name).read_bytes()[:60]
    (own / "manifest.json").unlink()
    (own / "stages.json").unlink()
    (own / name).write_bytes(head)
    assert is_prepared(own)
    with pytest.raises(UserError, match="manifest.json: damaged|not finished"):
        PreparedCorpus(own)
