import json
import os
from dataclasses import replace

import numpy as np
import pytest

from scratchformer.errors import UserError
from scratchformer.files import replace_text
from scratchformer.preparation import prepared
from scratchformer.preparation.pipeline import Options, prepare
from scratchformer.preparation.prepared import Manifest, PreparedCorpus, growing_array, is_prepared, read_manifest
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
    monkeypatch.setattr(batches, "CHUNK_IDS", 77)
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


def without_file(path, name):
    manifest = json.loads(path.read_text())
    del manifest["files"][name]
    path.write_text(json.dumps(manifest))


def flip(place):
    def change(path):
        data = bytearray(path.read_bytes())
        data[place] ^= 0xFF
        path.write_bytes(data)

    return change


def believe(directory, *names):
    """Edit the manifest so that it describes these files as they are now."""
    manifest = read_manifest(directory)
    paths = {name: directory / name for name in names}
    now = {name: {"bytes": path.stat().st_size, "crc32": prepared.crc32_of_file(path)} for name, path in paths.items()}
    replace_text(directory / "manifest.json", replace(manifest, files=manifest.files | now).to_json())


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
        ("manifest.json", deeper("splits", "train", "source_tokens", 2**63), "source_tokens is 9223372036854775808"),
        ("manifest.json", deeper("splits", "train", "unk_share", float("nan")), "unk_share is nan"),
        ("manifest.json", deeper("splits", "../train", {}), "damaged: TypeError"),
        ("manifest.json", lambda path: path.write_text(path.read_text()[:30] + "[" * 100_000), "damaged: "),
        ("manifest.json", lambda path: path.write_text(path.read_text()[:30] + "9" * 5000), "damaged: "),
        ("manifest.json", lambda path: path.write_text(path.read_text() + " " * 2**24 + "{"), None),
        ("manifest.json", other("dataset", ["wmt14-en-de"]), "dataset is .'wmt14-en-de'."),
        ("manifest.json", other("versions", {"numpy": 2}), "numpy is 2"),
        ("manifest.json", other("versions", 2), "damaged: TypeError"),
        ("manifest.json", other("byte_fallback", "no"), "byte_fallback is 'no'"),
        ("manifest.json", deeper("clean", "parts", [{}]), "damaged: KeyError: 'part'"),
        ("manifest.json", deeper("clean", "parts", 7), "damaged: TypeError"),
        ("manifest.json", other("languages", ["en", "../de"]), "the languages are 'en' and '../de'"),
        ("manifest.json", other("languages", ["en", "en"]), "the languages are 'en' and 'en'"),
        ("manifest.json", other("languages", ["en", "/etc"]), "the languages are 'en' and '/etc'"),
        ("manifest.json", other("languages", ["en", "x" * 33]), "the languages are"),
        ("manifest.json", other("languages", ["en", "fr"]), "no train.fr among the files"),
        ("manifest.json", lambda path: without_file(path, "train.lines.npy"), "no train.lines.npy among the files"),
        *(
            ("manifest.json", deeper("files", name, {"bytes": 4, "crc32": 0}), "is no file of a prepared corpus")
            for name in ("../victim", "/etc/passwd", "notes.txt", "a/train.en", "train.en\n", "manifest.json", "", ".")
        ),
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


def rewritten(change):
    """A function of a path that changes the array there."""
    return lambda path: np.save(path, change(np.load(path)))


def packed_arrays(path):
    with open(path, "wb") as file:
        np.savez(file, x=np.arange(9))


def npy_with(header):
    return lambda path: path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))


@pytest.mark.parametrize("name", ["train.source.offsets.npy", "train.lines.npy", "val.de"])
def test_a_file_that_was_replaced_by_another_of_its_size_is_noticed(own, name):
    data = (own / name).read_bytes()
    (own / name).write_bytes(data[:-2] + b"\x01\n")

    def open_all():
        opened = PreparedCorpus(own)
        for split in ("train", "val"):
            opened.pairs(split, MAX_LENGTH)
            opened.text_files(split)

    with pytest.raises(UserError, match=f"{name}: damaged, its checksum is not that in manifest.json: remove it and"):
        open_all()


@pytest.mark.parametrize(
    "name, change",
    [
        ("train.source.ids.npy", rewritten(lambda ids: ids.astype(np.int64))),
        ("train.source.ids.npy", rewritten(lambda ids: ids.astype(">u2"))),
        ("train.source.ids.npy", rewritten(lambda ids: ids.reshape(1, -1))),
        ("train.source.ids.npy", rewritten(lambda ids: ids[:0])),
        ("train.source.ids.npy", rewritten(lambda ids: ids.astype("U"))),
        ("train.source.offsets.npy", rewritten(lambda offsets: offsets.astype(np.uint64))),
        ("train.source.offsets.npy", rewritten(lambda offsets: offsets[::-1])),
        ("train.source.offsets.npy", rewritten(lambda offsets: offsets + 1)),
        ("train.source.offsets.npy", rewritten(lambda offsets: np.where(np.arange(101) == 50, 2**40, offsets))),
        ("train.source.offsets.npy", rewritten(lambda offsets: np.where(np.arange(101) == 50, -5, offsets))),
        ("train.source.offsets.npy", rewritten(lambda offsets: offsets[[0, -1]])),
        ("train.lines.npy", rewritten(lambda lines: lines.astype(float))),
        ("train.lines.npy", npy_with(b"(" * 9000)),
        ("train.lines.npy", npy_with(b"{'descr': '<i8', 'fortran_order': False, 'shape': (" + b"9" * 100 + b",)}\n")),
        ("train.lines.npy", npy_with(b"{'descr': '|O', 'fortran_order': False, 'shape': (8,)}\n")),
        ("train.lines.npy", npy_with(b"{'descr': [], 'fortran_order': False, 'shape': (-1,)}\n")),
        ("train.lines.npy", packed_arrays),
        ("train.lines.npy", lambda path: path.write_bytes(b"\x80\x04N.")),
        ("train.lines.npy", lambda path: path.write_bytes(b"")),
    ],
)
def test_arrays_of_another_kind_are_refused(own, name, change):
    """Also if the checksums are right."""
    change(own / name)
    believe(own, name)
    with pytest.raises(UserError) as refusal:
        PreparedCorpus(own).pairs("train", MAX_LENGTH)
    assert "\n" not in str(refusal.value) and str(own) in str(refusal.value)


def test_a_pair_that_is_longer_than_the_manifest_says(own):
    deeper("splits", "train", "longest", 3)(own / "manifest.json")
    deeper("splits", "val", "longest", 3)(own / "manifest.json")
    with pytest.raises(UserError, match="a pair of train is longer than the longest one in manifest.json"):
        PreparedCorpus(own).pairs("train", MAX_LENGTH)


@pytest.mark.parametrize("name", ["manifest.json", "tokenizer.model", "train.source.ids.npy", "val.en"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_not_opened(own, name, make):
    """Reading a pipe would wait for ever, and reading a device might never end."""
    if not name.endswith(".json"):
        deeper("files", name, "bytes", 0)(own / "manifest.json")
    (own / name).unlink()
    make(own / name)
    with pytest.raises(UserError, match=rf"{name}: not a regular file|{name}: (Is|\d+ bytes)") as refusal:
        is_prepared(own)
        PreparedCorpus(own)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("wrong", [0, 60, 2**16 - 1])
def test_an_impossible_id_is_found_when_it_is_read(own, wrong):
    ids = np.load(own / "train.source.ids.npy", mmap_mode="r+")
    ids[5] = wrong  # of the first pair
    ids.flush()
    believe(own, "train.source.ids.npy")
    pairs = PreparedCorpus(own).pairs("train", MAX_LENGTH)
    pairs.batch(np.arange(1, 100))
    with pytest.raises(UserError, match="train.source.ids.npy: damaged, .*: remove it and prepare the text again"):
        pairs.batch(np.arange(3))


def test_arrays_of_different_corpora_are_found(own):
    """The sizes agree with the manifest if somebody has edited it."""
    np.save(own / "train.lines.npy", np.arange(99))
    believe(own, "train.lines.npy")
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
