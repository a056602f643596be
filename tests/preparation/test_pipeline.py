"""Preparation of a corpus: the result, preparing again, damage, interruption, and bad input."""

import gzip
import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scratchformer.errors import UserError
from scratchformer.files import locked
from scratchformer.preparation import UNFINISHED, is_prepared, pipeline
from scratchformer.preparation.pipeline import prepare, sampled_lines
from scratchformer.preparation.prepared import Manifest, Options, PreparedCorpus, read_manifest
from scratchformer.text.batches import encode_pairs
from scratchformer.text.corpora import CorpusFiles, ParallelFiles, read_lines, read_pairs
from scratchformer.text.tokenizer import UNK, Tokenizer

N_PAIRS = 300
OPTIONS = Options(vocab_size=90, max_words=12, max_length=30)
DIRT = [
    ("", "leer"),
    ("\u2028", "leer"),
    ("word " * 13, "Wort " * 12),
    ("a b c d e f g h i j", "a"),
    ("one\x0btwo\r", "zwei\x85drei"),
    ("he sees the old dog", "Hund alten den sieht er"),
    ("twice", "zweimal"),
    ("twice", "zweimal"),
    ("an unheard of bird .", "ganz neu ."),
]
"""Of these pairs 4 are dropped, 2 are equal, and a side of the last one occurs in the test text."""


def write_pair(directory, name, pairs, packed=False):
    directory.mkdir(exist_ok=True)
    paths = []
    for side, language in enumerate(("en", "de")):
        data = "".join(pair[side] + "\n" for pair in pairs).encode("utf-8")
        path = directory / f"{name}.{language}{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(data) if packed else data)
        paths.append(path)
    return ParallelFiles(*paths)


def sentences(n, seed, end=""):
    rng = random.Random(seed)
    words = ["dog", "bird", "sees", "hears", "old", "the", "and", "a", "great", "hört", "Straße", "schläft"]
    lengths = [rng.randint(2, 10) for _ in range(n)]
    return [(" ".join(rng.choices(words, k=k)) + end, " ".join(rng.choices(words, k=k - 1)) + end) for k in lengths]


TEXT = sentences(N_PAIRS, 0)


def write_corpus(directory, packed=False):
    """Training text in two parts, the second of which needs cleaning; validation text; test text with a blank line."""
    parts = [write_pair(directory, "first", TEXT, packed), write_pair(directory, "second", DIRT, packed)]
    val = write_pair(directory, "dev", sentences(20, 1, " and and"), packed)
    unseen = [*sentences(8, 2, " and and"), ("an unheard of bird .", "x"), ("", "")]
    test = write_pair(directory, "newstest", unseen, packed)
    return CorpusFiles(parts, val, test)


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    monkeypatch.setattr(pipeline, "LINES_PER_BLOCK", 70)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("files"))


@pytest.fixture
def prepared(files, tmp_path):
    """prepared(**options) -> the directory, the lines that were told"""

    def call(name="out", files=files, workers=1, **options):
        told = []
        prepare(files, tmp_path / name, Options(**{**vars(OPTIONS), **options}), told.append, workers)
        return tmp_path / name, told

    return call


# --- the result


def test_the_training_text_is_cleaned_and_counted(prepared):
    out, told = prepared()
    kept = [*TEXT, ("one two", "zwei drei"), *DIRT[5:]]
    assert list(zip(read_lines(out / "train.en"), read_lines(out / "train.de"))) == kept
    report = read_manifest(out).clean
    none = {"empty": 0, "too_long": 0, "ratio": 0, "held_out": 0}
    assert report["parts"] == [
        {"part": "first.en", "lines": N_PAIRS, "kept": N_PAIRS, **none},
        {"part": "second.en", "lines": 9, "kept": 5, "empty": 2, "too_long": 1, "ratio": 1, "held_out": 1},
    ]
    assert report["total"]["lines"] == N_PAIRS + 9 and report["total"]["kept"] == N_PAIRS + 5
    assert report["repeated"] == N_PAIRS + 5 - len(set(kept))
    assert [line.split(":")[0] for line in told] == ["clean", "vocabulary", "encode"]
    assert report["test"] == {"lines": 10, "empty": 1}


def test_overlap_is_dropped_on_demand_and_validation_and_test_text_stay_as_they_are(prepared, files):
    out, _ = prepared(drop_overlap=True)
    assert "an unheard of bird ." not in read_lines(out / "train.en")
    total = read_manifest(out).clean["total"]
    assert (total["lines"], total["held_out"], total["kept"]) == (N_PAIRS + 9, 1, N_PAIRS + 4)
    for name, pair in (("val", files.val), ("test", files.test)):
        for path, language in zip(pair, ("en", "de")):
            assert (out / f"{name}.{language}").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("vocab_size, max_length", [(90, 14), (120, 9)])
def test_ids_are_those_of_the_text(prepared, vocab_size, max_length):
    out, _ = prepared(vocab_size=vocab_size, max_length=max_length)
    corpus = PreparedCorpus(out)
    tokenizer = corpus.tokenizer()
    assert tokenizer.vocab_size == vocab_size
    for split in ("train", "val"):
        expected = encode_pairs(tokenizer.encode, read_pairs(*corpus.text_files(split)), max_length, max_length)
        found = corpus.pairs(split, max_length)
        for mine, theirs in ((found.source, expected.source), (found.target, expected.target)):
            assert np.array_equal(mine.ids, theirs.ids) and np.array_equal(mine.offsets, theirs.offsets)
        assert np.array_equal(found.line_numbers, expected.line_numbers)
        assert corpus.pairs(split, 256).max_length == max_length, "the limit that n_dropped belongs to"
        counts = corpus.manifest.splits[split]
        assert found.n_dropped == expected.n_dropped == counts.longer
        ids = np.concatenate([expected.source.ids, expected.target.ids])
        assert counts.unk_share == (ids == UNK).sum() / (len(ids) - 2 * len(expected))
    assert corpus.manifest.splits["train"].longer > 0 and corpus.manifest.splits["val"].unk_share == 0


def test_the_vocabulary_is_learnt_from_an_even_sample_of_both_languages(prepared):
    out, _ = prepared()
    sides = [read_lines(out / f"train.{language}") for language in ("en", "de")]
    assert (out / "tokenizer.model").read_bytes() == Tokenizer.train([*sides[0], *sides[1]], 90).serialized
    n = len(sides[0])
    for size in (1, 7, 100, n):
        assert list(sampled_lines(out / "train.en", n, size)) == [
            sides[0][-(-k * n // size) - 1] for k in range(1, size + 1)
        ]


def test_characters_that_are_not_in_the_sample(tmp_path, prepared):
    text = [("dog 東", "Hund 京")] * 2 + [
        ("dog " * 3 + "Straße", "Hund schläft alt")
    ] * 40  # two of 42, not in a sample
    corpus = CorpusFiles([write_pair(tmp_path / "files", "train", text)], None, None)
    out, _ = prepared("unknown", corpus, vocab_size=40, sample=20)
    assert 0 < read_manifest(out).splits["train"].unk_share < 0.1 and list(read_manifest(out).splits) == ["train"]
    out, _ = prepared("bytes", corpus, vocab_size=290, sample=20, byte_fallback=True)
    assert read_manifest(out).splits["train"].unk_share == 0 and read_manifest(out).options.byte_fallback


def test_the_manifest_names_and_describes_the_files(prepared):
    out, _ = prepared()
    manifest = read_manifest(out)
    assert Manifest.from_json(manifest.to_json()) == manifest and manifest.options == OPTIONS
    assert set(manifest.files) | {"manifest.json"} == {path.name for path in out.iterdir()}
    assert f"305 training pairs of {N_PAIRS + 9}" in manifest.summary()
    pairs = PreparedCorpus(out).pairs("train", 30)
    assert isinstance(pairs.source.ids.base, np.memmap) and pairs.source.ids.dtype == np.uint16
    assert not pairs.source.ids.flags.writeable
    with pytest.raises(UserError, match=f"{manifest.longest} tokens, more than max_length = 5.*--max-length 5"):
        PreparedCorpus(out).pairs("train", 5)


def same_files(files_of, out, other):
    """Compare all files of two preparations, the manifest by its content: its files have times."""
    mine, theirs = (
        {path.name: data for path, data in files_of(directory).items() if path.name != "manifest.json"}
        for directory in (out, other)
    )
    return mine == theirs and read_manifest(out).ids_crc32 == read_manifest(other).ids_crc32


def test_neither_gzip_nor_the_number_of_workers_changes_the_result(prepared, tmp_path, files_of):
    out, _ = prepared()
    packed, _ = prepared("packed", write_corpus(tmp_path / "files", packed=True))
    other, _ = prepared("two", workers=2)
    assert same_files(files_of, out, packed) and same_files(files_of, out, other)


# --- preparing again


def is_done(told):
    """Say if the lines that were told are those of a whole preparation."""
    return [line.split(":")[0] for line in told][-3:] == ["clean", "vocabulary", "encode"]


def test_nothing_is_done_twice(prepared):
    out, _ = prepared()
    times = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert prepared(workers=2)[1] == ["done before"]
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == times


@pytest.mark.parametrize("options", [{"max_length": 14}, {"vocab_size": 91}, {"max_words": 8, "languages": ("a", "b")}])
def test_a_changed_option_prepares_again(prepared, files_of, options):
    out, _ = prepared()
    _, told = prepared(**options)
    assert is_done(told) and told[0].endswith("it is done again")
    assert same_files(files_of, out, prepared("fresh", **options)[0])


def test_a_changed_missing_or_damaged_file_prepares_again(tmp_path, prepared):
    corpus = write_corpus(tmp_path / "files")
    out, _ = prepared(files=corpus)
    write_pair(tmp_path / "files", "second", [("something else", "etwas anderes")])
    assert is_done(prepared(files=corpus)[1])
    for name, damage in (("train.target.ids.bin", Path.unlink), ("train.source.ids.bin", flip)):
        damage(out / name)
        assert is_done(prepared(files=corpus)[1])
    shorten(out / "manifest.json")
    assert is_done(prepared(files=corpus)[1])
    (out / "train.mine").write_text("mine")
    assert is_done(prepared(files=corpus._replace(test=None))[1]) and not (out / "test.en").exists()
    assert (out / "train.mine").read_text() == "mine"


KILLED = """
import os, signal
from pathlib import Path, PosixPath
from scratchformer.preparation import pipeline
from scratchformer.text.corpora import CorpusFiles, ParallelFiles
from scratchformer.preparation.pipeline import Options, prepare

def dying(function, calls):
    def call(*arguments, **named):
        dying.calls += 1
        if dying.calls == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **named)
    dying.calls = 0
    return call

pipeline.LINES_PER_BLOCK = 70
{place} = dying({place}, {calls})
prepare({files!r}, Path({out!r}), {options!r}, lambda line: None)
"""


@pytest.mark.parametrize("place, calls, kept", [("pipeline.encode_block", 4, True), ("pipeline.os.replace", 5, False)])
@pytest.mark.parametrize("had_older", [False, True])
def test_a_killed_preparation_is_repeated_with_the_same_result(
    prepared, files, tmp_path, files_of, place, calls, kept, had_older
):
    """Until the new files are moved to their places, an older preparation stays as it was."""
    expected, _ = prepared()
    out = tmp_path / "killed"
    if had_older:
        prepared("killed", max_words=8)
        older = read_manifest(out)
    script = KILLED.format(place=place, calls=calls, files=files, out=str(out), options=OPTIONS)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    if had_older and kept:
        assert PreparedCorpus(out).manifest == older
    else:
        with pytest.raises(UserError, match="not finished"):
            read_manifest(out)
    assert (out / UNFINISHED).is_dir() and is_done(prepared("killed")[1])
    assert same_files(files_of, expected, out)


@pytest.mark.parametrize(
    "mistake, complaint",
    [({"max_words": 1}, "no sentence pair is left"), ({"max_length": 6}, "val text: none of its 20 pairs")],
)
def test_a_wrong_option_leaves_the_finished_preparation_unchanged(
    prepared, files, tmp_path, files_of, mistake, complaint
):
    val = write_pair(tmp_path / "files", "dev", [("a bird " * 4, "ein Vogel " * 3)] * 20)
    hard = files._replace(train=files.train[:1], val=val)
    out, _ = prepared(files=hard)
    before = files_of(out)
    with pytest.raises(UserError, match=complaint):
        prepared(files=hard, **mistake)
    assert files_of(out) == before and prepared(files=hard)[1] == ["done before"]


# --- damage


def flip(path):
    data = bytearray(path.read_bytes())
    data[3] ^= 0xFF
    path.write_bytes(data)


def shorten(path):
    path.write_bytes(path.read_bytes()[:-30])


def with_format(path):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))


@pytest.mark.parametrize(
    "name, damage, complaint",
    [
        ("train.source.ids.bin", shorten, "train.source.ids.bin: missing, or not as long as manifest.json says"),
        ("train.lines.bin", Path.unlink, "train.lines.bin: missing"),
        ("val.en", flip, "val.en: damaged, its checksum is not that in manifest.json: prepare the text again"),
        ("tokenizer.model", flip, "tokenizer.model: damaged"),
        ("train.target.offsets.bin", flip, "train.target.offsets.bin: damaged"),
        ("manifest.json", Path.unlink, "its preparation is not finished.*no manifest.json"),
        ("manifest.json", shorten, "manifest.json: damaged"),
        ("manifest.json", with_format, "manifest.json: .*format 99, not 3"),
    ],
)
def test_damage_is_reported_in_one_line(prepared, name, damage, complaint):
    out, _ = prepared()
    damage(out / name)
    assert is_prepared(out), "training would take it for plain text, and learn another vocabulary"
    with pytest.raises(UserError, match=complaint):
        corpus = PreparedCorpus(out)
        corpus.tokenizer()
        for split in ("train", "val"):
            corpus.pairs(split, 30)
            corpus.text_files(split)


def test_other_directories_are_not_prepared(tmp_path):
    (tmp_path / "manifest.json").write_text('{"made by": "somebody else"}')
    assert not is_prepared(tmp_path) and not is_prepared(tmp_path / "nowhere")
    (tmp_path / UNFINISHED).mkdir()
    assert is_prepared(tmp_path)


# --- bad input


def flags(**values):
    """source=path, vocab_size=60 -> ["--source", path, "--vocab-size", 60]"""
    return [part for name, value in values.items() for part in (f"--{name.replace('_', '-')}", value)]


@pytest.fixture
def complaint_after(tmp_path, cli):
    """complaint_after(change, ...) -> the error message after `change(directory)` has spoiled the files of a corpus"""

    def call(change, *arguments, out=tmp_path / "out"):
        directory = tmp_path / "files"
        write_corpus(directory)
        change(directory)
        train = flags(source=directory / "first.en", target=directory / "first.de")
        val = flags(val_source=directory / "dev.en", val_target=directory / "dev.de")
        code, _, said = cli("data", "files", *train, *val, *flags(out=out, vocab_size=60, workers=2), *arguments)
        *stages, said = said.splitlines()
        assert code == 2 and said.startswith("scratchformer: ")
        assert all(line.split(":")[0] in ("clean", "vocabulary") for line in stages)
        assert not (out / "manifest.json").exists() and not (out / UNFINISHED).exists()
        return said

    return call


def put(name, data):
    return lambda directory: (directory / name).write_bytes(data)


def nothing(directory):
    pass


@pytest.mark.parametrize(
    "change, arguments, complaint",
    [
        (put("first.de", b"eins\nzwei\n"), [], "not parallel: .*first.en has 300 lines, .*first.de has 2"),
        (put("first.en", b"fine\n" * 80 + b"Stra\xdfe\n" + b"fine\n" * 219), [], "first.en, line 81: not valid UTF-8"),
        (put("first.en", b" \n" * 300), [], "no sentence pair is left of 300 lines: dropped: 300 with an empty side"),
        (put("dev.en", b"one\n"), [], "dev.en has 1 lines"),
        (put("dev.de", b"\n" * 20), [], "every line is blank"),
        (lambda directory: (directory / "dev.en").unlink(), [], "neither dev.en nor dev.en.gz in "),
        (nothing, ["--vocab-size", "9"], "too small for this text"),
        (nothing, ["--max-length", "1"], "train text: none of its 300 pairs has at most --max-length 1 tokens"),
        (nothing, ["--max-ratio", "0.5"], "--max-ratio: 0.5 must lie between"),
        (nothing, ["--languages", "en", "../de"], "not two different words"),
        (nothing, ["--source", "x"], "come in pairs"),
    ],
)
def test_bad_files_and_options(complaint_after, change, arguments, complaint):
    assert re.search(complaint, complaint_after(change, *arguments))


@pytest.mark.parametrize("corpus", ["files", "multi30k"])
@pytest.mark.parametrize("name", ["config.toml", "val.de", "manifest.json"])
def test_files_of_the_user_are_not_overwritten(refused, files, tmp_path, files_of, corpus, name):
    out = tmp_path / "own"
    out.mkdir()
    (out / name).write_text('{"name": "mine"}')
    part = flags(source=files.train[0].source, target=files.train[0].target) if corpus == "files" else []
    said = refused("data", corpus, *part, "--out", out)
    assert f"own: holds {name}, which no preparation has made; choose another --out" in said
    assert files_of(out) == {out / name: b'{"name": "mine"}'}


def test_the_bundled_corpus_is_not_mixed_with_another_one(refused, prepared, files_of):
    out, _ = prepared()
    before = files_of(out)
    assert "train.en: exists already, with other content" in refused("data", "tiny", "--out", out)
    assert files_of(out) == before


def test_two_preparations_at_once(complaint_after, tmp_path):
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out", ""):
        assert "another process is preparing it" in complaint_after(nothing)


def test_the_command_says_how_to_train(cli, files, tmp_path):
    train = [flag for part in files.train for flag in flags(source=part.source, target=part.target)]
    others = [*flags(out=tmp_path / "out", workers=1, vocab_size=350), "--byte-fallback", "--languages", "xx", "yy"]
    code, printed, said = cli("data", "files", *train, *others)
    assert code == 0, said
    assert [line.split(":")[0] for line in said.splitlines()] == ["clean", "vocabulary", "encode"]
    train = read_manifest(tmp_path / "out").splits["train"]
    assert train.source_tokens > train.target_tokens > train.pairs == N_PAIRS + 6  # of DIRT, the default limits drop 3
    assert (
        f"{train.pairs} training pairs of {N_PAIRS + len(DIRT)}, {train.source_tokens:,} xx and "
        f"{train.target_tokens:,} yy tokens ("
    ) in printed
    assert "\n2 repeated pairs, 0 with a sentence of the val or test text\n" in printed
    assert f"train PRESET --data {tmp_path / 'out'}" in printed
    assert (tmp_path / "out" / "train.yy").exists()
