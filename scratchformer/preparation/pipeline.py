"""How does a text of millions of lines become a directory that training can start from at once?

    clean        the training text, in blocks, becomes train.en and train.de; validation and test text are copied
    vocabulary   sentencepiece learns the pieces from an even sample of the training text
    encode       the text becomes ids, in blocks
    manifest     what there is, and how it came to be

(`prepared` has the directory's layout.) Each stage reads what those before it have written. It is recorded with a
description of all that it was made from, and done again only if that has changed; a preparation that was killed goes on
with the stage it was in. Text is streamed: what is in memory are the blocks under way, a hash of 8 bytes for each pair,
and the sample. The result does not depend on the number of processes.
"""

import importlib.metadata
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
from tqdm import tqdm

from scratchformer.errors import UserError
from scratchformer.files import make_directory, replace_text, whole_file
from scratchformer.locks import locked
from scratchformer.preparation.cleaning import Cleaner, Counts, Limits, n_repeated, normalized
from scratchformer.preparation.prepared import (
    FORMAT,
    MADE_BY,
    MANIFEST,
    SPLITS,
    STAGES,
    TOKENIZER,
    Manifest,
    SplitCounts,
    crc32_of_file,
    crc32_of_ids,
    growing_array,
    is_prepared,
    read_manifest,
    sequences_file,
)
from scratchformer.preparation.workers import in_another_process, map_in_order
from scratchformer.text.batches import Sequences, encode_sequences
from scratchformer.text.corpora import (
    READ_ERRORS,
    Block,
    CorpusFiles,
    ParallelFiles,
    cannot_read,
    decode_lines,
    open_stream,
    plain_or_gz,
    read_pairs,
    stream_blocks,
)
from scratchformer.text.tokenizer import UNK, Tokenizer

LINES_PER_BLOCK = 10_000
"""A block is about 2 MB of text, and a fraction of a second of work."""

SAMPLE = 1_000_000
"""Pairs that the vocabulary is learnt from. They are in memory, with the different words among them: about 1.5 GB."""

Tell = Callable[[str], None]
Begin = Callable[[], None]
"""What a stage calls before it replaces the first of its files, and after all that may be wrong with its options."""


@dataclass(frozen=True)
class Options:
    """How a corpus is prepared; all but `workers` show in the result.

    dataset        the name of a public data set, which the manifest tells; "" for files of one's own
    languages      source, target: the endings of the files
    vocab_size     pieces of the vocabulary, exactly
    max_words, max_ratio    limits of a pair, see `cleaning`
    max_length     longer pairs (tokens of the longer side, EOS counted) are not encoded
    sample         pairs from which the vocabulary is learnt, evenly from the training text
    byte_fallback  spell characters that are not in the sample as bytes; else they become UNK
    drop_overlap   drop training pairs with a sentence of the validation or test text, which else are only counted
    workers        processes; 1 is this one alone

    Raises: UserError if one of them is out of range.
    """

    dataset: str = ""
    languages: tuple[str, str] = ("en", "de")
    vocab_size: int = 37_000
    max_words: int = 80
    max_ratio: float = 9.0
    max_length: int = 256
    sample: int = SAMPLE
    byte_fallback: bool = False
    drop_overlap: bool = False
    workers: int = 1

    def __post_init__(self) -> None:
        for name in ("vocab_size", "max_words", "max_ratio", "max_length", "sample", "workers"):
            if not 1 <= getattr(self, name) < 2**31:  # what is not a number is not, either
                option = "--" + name.replace("_", "-")
                raise UserError(f"{option} {getattr(self, name)} must be at least 1 and below 2^31")
        if not all(re.fullmatch(r"[A-Za-z0-9_-]+", language) for language in self.languages):
            raise UserError(f"--languages {' '.join(self.languages)!r}: letters and digits, as in: en de")
        if self.languages[0] == self.languages[1]:
            raise UserError(f"--languages {' '.join(self.languages)}: the two must differ, as in: en de")


def prepare(files: CorpusFiles, out: Path, options: Options = Options(), tell: Tell = print) -> Manifest:
    """Prepare a corpus in the directory `out`; `tell` is given a line for each stage.

    Raises: UserError for whatever is wrong with the files, the options or the directory; what was finished before
        stays, and the directory counts as prepared only if all is. A stage that is refused has changed nothing.
    """
    files = existing(files)
    require_own_directory(out, options.languages)
    require_apart(files, out)
    with locked(out, "another process is preparing it"):
        stages = Stages(out, tell)
        clean = stages.take(
            "clean",
            {
                "files": fingerprints(files),
                "languages": options.languages,
                "max_words": options.max_words,
                "max_ratio": options.max_ratio,
                "drop_overlap": options.drop_overlap,
            },
            text_names(files, options.languages),
            lambda begin: clean_text(files, out, options, begin),
        )
        n_lines = {"train": clean.report["total"]["kept"]}  # of each split to encode
        if files.val:
            n_lines["val"] = clean.report["val"]["lines"]
        train = [f"train.{language}" for language in options.languages]
        vocabulary = stages.take(
            "vocabulary",
            {
                "text": clean.checksums(train),
                "vocab_size": options.vocab_size,
                "sample": options.sample,
                "byte_fallback": options.byte_fallback,
                "sentencepiece": sentencepiece.__version__,
            },
            [TOKENIZER],
            lambda begin: learn_vocabulary(out, options, n_lines["train"], begin),
        )
        texts = [f"{split}.{language}" for split in n_lines for language in options.languages]
        encode = stages.take(
            "encode",
            {
                "text": clean.checksums(texts),
                "tokenizer": vocabulary.checksums([TOKENIZER]),
                "max_length": options.max_length,
                "sentencepiece": sentencepiece.__version__,
            },
            [name for split in n_lines for name in array_names(split)],
            lambda begin: encode_text(out, n_lines, options, begin),
        )
        write_manifest(out, manifest_of(options, clean, vocabulary, encode))
        return read_manifest(out)


def write_manifest(out: Path, manifest: Manifest) -> None:
    """Write it, unless the same is there. While one is there no stage was done again, so its versions still hold."""
    path = out / MANIFEST
    with suppress(UserError):  # none is there, or it is damaged
        manifest = replace(manifest, versions=read_manifest(out).versions)
    text = manifest.to_json()
    if not path.exists() or path.read_bytes() != text.encode("utf-8"):
        replace_text(path, text)


SAID_ELSEWHERE = {"dataset", "languages", "vocab_size", "byte_fallback", "workers"}
"""Options that the manifest names outside of `options`, or that show in nothing."""


def manifest_of(options: Options, clean: "Record", vocabulary: "Record", encode: "Record") -> Manifest:
    return Manifest(
        dataset=options.dataset,
        languages=options.languages,
        vocab_size=options.vocab_size,
        byte_fallback=options.byte_fallback,
        options={name: value for name, value in asdict(options).items() if name not in SAID_ELSEWHERE},
        clean=clean.report,
        splits={name: SplitCounts(**counts) for name, counts in encode.report["splits"].items()},
        ids_crc32=encode.report["ids_crc32"],
        files=clean.files | vocabulary.files | encode.files,
        versions={"scratchformer": own_version(), "sentencepiece": sentencepiece.__version__, "numpy": np.__version__},
    )


def own_version() -> str:
    try:
        return importlib.metadata.version("scratchformer")
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return "not installed"


# The files we start from ----------------------------------------------------------------------------------------------


def existing(files: CorpusFiles) -> CorpusFiles:
    """The same files, with .gz where only that exists.

    Raises: UserError if one is missing or is not a file, such as a pipe, or if no text is given.
    """

    def found(path: Path) -> Path:
        file = plain_or_gz(path)
        if file is None:
            raise UserError(f"cannot read {path}: No such file")
        if not file.is_file():
            raise UserError(f"{path}: not a file on disk; it is read more than once")
        return file

    def both(pair: ParallelFiles) -> ParallelFiles:
        return ParallelFiles(found(pair.source), found(pair.target))

    if not files.train:
        raise UserError("no training text is named")
    return CorpusFiles(
        [both(part) for part in files.train], files.val and both(files.val), files.test and both(files.test)
    )


def all_pairs(files: CorpusFiles) -> list[ParallelFiles]:
    return [*files.train, *(pair for pair in (files.val, files.test) if pair)]


def fingerprints(files: CorpusFiles) -> list[list[Any]]:
    """Which files there are, and name, size and time of change of each: if these are the same, so is the text."""
    states = [(path.name, path.stat()) for pair in all_pairs(files) for path in pair]
    kinds = [len(files.train), files.val is not None, files.test is not None]
    return [kinds, *([name, state.st_size, state.st_mtime_ns] for name, state in states)]


def require_own_directory(out: Path, languages: tuple[str, str]) -> None:
    """Make the directory. Raises: UserError if it cannot be, or if we would overwrite a file that is not our own.

    It needs no corpus, so that it can be asked before one is downloaded.
    """
    make_directory(out)
    ours = [
        MANIFEST,
        STAGES,
        TOKENIZER,
        *(name for split in SPLITS for name in array_names(split)),
        *(f"{split}.{language}" for split in (*SPLITS, "test") for language in languages),
    ]
    found = [name for name in ours if (out / name).exists()]
    if found and not is_prepared(out):
        raise UserError(f"{out}: holds {found[0]}, which no preparation has made; choose another --out")


def require_apart(files: CorpusFiles, out: Path) -> None:
    """Raises: UserError if a text that is to be read lies where we write."""
    for path in (path for pair in all_pairs(files) for path in pair):
        if path.resolve().parent == out.resolve():
            raise UserError(f"{path}: lies in the directory that is to be written; choose another --out")


# The files we write ---------------------------------------------------------------------------------------------------


def text_names(files: CorpusFiles, languages: tuple[str, str]) -> list[str]:
    """The texts that come of this corpus."""
    splits = ["train", *(split for split, pair in (("val", files.val), ("test", files.test)) if pair)]
    return [f"{split}.{language}" for split in splits for language in languages]


def array_names(split: str) -> list[str]:
    return [
        *(f"{split}.{side}.{what}.npy" for side in ("source", "target") for what in ("ids", "offsets")),
        f"{split}.lines.npy",
    ]


# Stages ---------------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What a stage has done: figures for the manifest, and a line about it."""

    report: dict[str, Any]
    line: str


class Record(NamedTuple):
    """A stage that is done: what it was made from, its figures, and its files with their bytes and CRC-32.

    One that was begun is made from nothing; its files are those that it may have left, of itself and of what was there.
    """

    made_from: dict[str, Any]
    report: dict[str, Any]
    files: dict[str, dict[str, int]]

    def checksums(self, names: list[str]) -> dict[str, int]:
        return {name: self.files[name]["crc32"] for name in names}


class Stages:
    """The stages of a directory that are done, in stages.json; as long as one is not, there is no manifest."""

    def __init__(self, out: Path, tell: Tell):
        self.out = out
        self.tell = tell
        self.records = self._read()

    def take(self, name: str, made_from: dict[str, Any], names: list[str], work: Callable[[Begin], Outcome]) -> Record:
        """The record of a stage, which writes the files `names`; it is done unless it was done from the same before."""

        def begin() -> None:
            (self.out / MANIFEST).unlink(missing_ok=True)
            self.records[name] = Record({}, {}, old.files | {file: {} for file in names})
            self._write()

        made_from = json.loads(json.dumps({"format": FORMAT} | made_from))  # as it reads when it comes back
        old = self.records.get(name, Record({}, {}, {}))
        if old.made_from == made_from and self._is_whole(old):
            self.tell(f"{name}: done before")
            return old
        if old.made_from:
            self.tell(f"{name}: made of other text or with other options before, or damaged; it is done again")
        began = time.perf_counter()
        report, line = work(begin)
        files = {
            file: {"bytes": (self.out / file).stat().st_size, "crc32": crc32_of_file(self.out / file)} for file in names
        }
        for file in old.files.keys() - files.keys():  # of other languages, or a test set
            (self.out / file).unlink(missing_ok=True)
        self.records[name] = Record(made_from, json.loads(json.dumps(report)), files)
        self._write()
        self.tell(f"{name}: {line}; {time.perf_counter() - began:.1f} s")
        return self.records[name]

    def _is_whole(self, record: Record) -> bool:
        """Whether its files are as they were written: first their sizes are compared, then their checksums."""
        files = [(self.out / name, kept) for name, kept in record.files.items()]
        return all(path.is_file() and path.stat().st_size == kept.get("bytes") for path, kept in files) and all(
            crc32_of_file(path) == kept.get("crc32") for path, kept in files
        )

    def _read(self) -> dict[str, Record]:
        try:
            stages = json.loads((self.out / STAGES).read_text(encoding="utf-8"))["stages"]
            return {name: Record(**record) for name, record in stages.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):  # not there, or damaged: begin anew
            return {}

    def _write(self) -> None:
        stages = {name: record._asdict() for name, record in self.records.items()}
        replace_text(self.out / STAGES, json.dumps({"made_by": MADE_BY, "stages": stages}, indent=1) + "\n")


def progress_bar(stage: str, n_pairs: int | None = None) -> tqdm:
    """Shows on a terminal how many pairs are done, of so many if that is known; call its `update`."""
    return tqdm(desc=stage, total=n_pairs, unit=" pairs", unit_scale=True, disable=None, leave=False)


# clean ----------------------------------------------------------------------------------------------------------------


def clean_text(files: CorpusFiles, out: Path, options: Options, begin: Begin) -> Outcome:
    """Write train.LANG of the pairs that are fit for training, and val.LANG and test.LANG as they are."""
    report: dict[str, Any] = {}
    held_out: set[str] = set()
    for split, pair in (("val", files.val), ("test", files.test)):
        if pair:
            text = read_pairs(*pair)  # blank lines stay in the file
            report[split] = {"lines": len(text.source) + text.n_empty, "empty": text.n_empty}
            held_out |= set(map(normalized, text.source)) | set(map(normalized, text.target))

    parts, hashes = [], bytearray()  # not a list: it would be there twice
    limits = Limits(options.max_words, options.max_ratio)
    train = [out / f"train.{language}" for language in options.languages]
    with whole_file(train[0]) as source, whole_file(train[1]) as target:
        for part in files.train:
            cleaner, counts = Cleaner(part, limits, frozenset(held_out), options.drop_overlap), Counts()
            with closing(
                map_in_order(cleaner, stream_blocks(part, LINES_PER_BLOCK), options.workers)
            ) as blocks, progress_bar(f"clean {part.source.name}") as bar:
                for block in blocks:
                    bar.update(block.counts.lines)
                    source.write(block.source)
                    target.write(block.target)
                    hashes += block.hashes.tobytes()
                    counts = counts.plus(block.counts)
            parts.append({"part": part.source.name, **counts._asdict()})
        total = Counts(*(sum(part[name] for part in parts) for name in Counts._fields))
        if not total.kept:
            raise UserError(f"no sentence pair is left of {total.lines} lines: {why_dropped(total, options)}")
        begin()
    for split, pair in (("val", files.val), ("test", files.test)):
        for path, language in zip(pair or (), options.languages):
            copy_text(path, out / f"{split}.{language}")
    repeated = n_repeated(np.frombuffer(hashes, np.uint64))
    report |= {"parts": parts, "total": total._asdict(), "repeated": repeated}
    told = [
        f"{total.kept:,} of {total.lines:,} pairs kept ({why_dropped(total, options)})",
        f"{repeated:,} of these are repetitions",
    ]
    if held_out and not options.drop_overlap:
        told.append(f"{total.held_out:,} with {OVERLAP}, kept all the same")
    for split in [split for split in ("val", "test") if split in report]:
        blank = f", {report[split]['empty']} of them blank" if report[split]["empty"] else ""
        told.append(f"{split}: {report[split]['lines']:,} lines{blank}")
    return Outcome(report, "; ".join(told))


OVERLAP = "a sentence of the val or test text"


def why_dropped(counts: Counts, options: Options) -> str:
    reasons = [
        f"{counts.empty:,} with an empty side",
        f"{counts.too_long:,} of more than {options.max_words} words",
        f"{counts.ratio:,} with a ratio of lengths above {options.max_ratio:g}",
    ]
    return ", ".join(reasons + ([f"{counts.held_out:,} with {OVERLAP}"] if options.drop_overlap else []))


def copy_text(path: Path, to: Path) -> None:
    """Copy a file byte by byte, without the compression of a .gz."""
    with whole_file(to) as file:
        try:
            with open_stream(path) as original:
                shutil.copyfileobj(original, file)
        except READ_ERRORS as error:  # what cannot be written is none
            raise cannot_read(path, error) from error


# vocabulary -----------------------------------------------------------------------------------------------------------


def learn_vocabulary(out: Path, options: Options, n_pairs: int, begin: Begin) -> Outcome:
    """Learn one vocabulary for both languages, from as many lines of each.

    This takes minutes, in which sentencepiece hears no Ctrl-C: so it is another process that learns, if there may be.
    """
    sample = min(options.sample, n_pairs)
    learn = partial(learnt_tokenizer, out, options, n_pairs, sample)
    tokenizer = learn() if options.workers == 1 else in_another_process(learn)
    begin()
    tokenizer.save(out / TOKENIZER)
    return Outcome({"sample": sample}, f"{options.vocab_size:,} pieces, learnt from {sample:,} of {n_pairs:,} pairs")


def learnt_tokenizer(out: Path, options: Options, n_pairs: int, sample: int) -> Tokenizer:
    paths = [out / f"train.{language}" for language in options.languages]
    sentences = (line for path in paths for line in sampled_lines(path, n_pairs, sample))
    return Tokenizer.train(sentences, options.vocab_size, options.byte_fallback)


def sampled_lines(path: Path, n_lines: int, sample: int) -> Iterator[str]:
    """`sample` of the `n_lines` lines of a file that we have written, at even distances."""
    with open(path, "rb") as file:
        for number, line in enumerate(file):
            if (number + 1) * sample // n_lines > number * sample // n_lines:
                yield line.decode("utf-8").removesuffix("\n")


# encode ---------------------------------------------------------------------------------------------------------------


class EncodedBlock(NamedTuple):
    """The pairs of a block that are not blank and not too long, with the numbers of their lines, (pairs,) int64."""

    source: Sequences
    target: Sequences
    line_numbers: np.ndarray
    n_lines: int
    n_empty: int
    n_longer: int
    n_unknown: int


@dataclass(frozen=True)
class Encoder:
    """Encodes blocks of text; a process can be sent it."""

    files: ParallelFiles
    tokenizer: Tokenizer
    max_length: int

    def __call__(self, block: Block) -> EncodedBlock:
        lines = [
            decode_lines(data, path, block.first_line) for data, path in zip((block.source, block.target), self.files)
        ]
        numbered = [
            (number, *pair)
            for number, pair in enumerate(zip(*lines, strict=True), block.first_line)
            if pair[0].strip() and pair[1].strip()
        ]
        sides = [encode_sequences(self.tokenizer.encode, [pair[side] for pair in numbered]) for side in (1, 2)]
        fits = np.maximum(sides[0].lengths, sides[1].lengths) <= self.max_length
        source, target = (self._small(side.select(fits)) for side in sides)
        n_unknown = sum(int(np.count_nonzero(side.ids == UNK)) for side in (source, target))
        line_numbers = np.array([number for number, _, _ in numbered], np.int64)[fits]
        n_lines = len(lines[0])
        return EncodedBlock(
            source, target, line_numbers, n_lines, n_lines - len(numbered), int(np.count_nonzero(~fits)), n_unknown
        )

    def _small(self, sequences: Sequences) -> Sequences:
        return Sequences(sequences.ids.astype(dtype_of_ids(self.tokenizer)), sequences.offsets)


def dtype_of_ids(tokenizer: Tokenizer) -> np.dtype:
    return np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32)


def encode_text(out: Path, n_lines: dict[str, int], options: Options, begin: Begin) -> Outcome:
    """Write the ids of the splits, of which each has so many lines."""
    tokenizer = Tokenizer.load(out / TOKENIZER)
    with ExitStack() as arrays:  # whole, or as they were, all of them
        counts = {split: encode_split(out, split, n_lines[split], tokenizer, options, arrays) for split in n_lines}
        begin()
    crc = 0
    for split in n_lines:
        for side in ("source", "target"):
            crc = crc32_of_ids(np.load(out / f"{split}.{side}.ids.npy", mmap_mode="r"), crc)
    report = {"splits": {split: asdict(found) for split, found in counts.items()}, "ids_crc32": crc}
    train = counts["train"]
    return Outcome(
        report,
        f"{train.pairs:,} pairs (left out: {train.longer:,} of more than "
        f"{options.max_length} tokens), {' + '.join(f'{mean:.1f}' for mean in train.mean_lengths)} tokens "
        f"a pair, {train.unk_share:.4%} of them unknown",
    )


def encode_split(
    out: Path, split: str, n_lines: int, tokenizer: Tokenizer, options: Options, arrays: ExitStack
) -> SplitCounts:
    """Write the arrays of a split; they take their names when `arrays` ends."""
    files = ParallelFiles(*(out / f"{split}.{language}" for language in options.languages))
    encoder, dtype = Encoder(files, tokenizer, options.max_length), dtype_of_ids(tokenizer)
    n_empty, n_longer, n_unknown, longest = 0, 0, 0, 0
    source, target = (
        arrays.enter_context(sequences_file(out, f"{split}.{side}", dtype)) for side in ("source", "target")
    )
    lines = arrays.enter_context(growing_array(out / f"{split}.lines.npy", np.dtype(np.int64)))
    with closing(map_in_order(encoder, stream_blocks(files, LINES_PER_BLOCK), options.workers)) as blocks, progress_bar(
        f"encode {split}", n_lines
    ) as bar:
        for block in blocks:
            bar.update(block.n_lines)
            source.append(block.source)
            target.append(block.target)
            lines.append(block.line_numbers)
            n_empty, n_longer = n_empty + block.n_empty, n_longer + block.n_longer
            n_unknown += block.n_unknown
            for side in (block.source, block.target):
                longest = max(longest, int(side.lengths.max(initial=0)))
    if not lines.size:
        raise UserError(
            f"{files.source}: none of its {n_empty + n_longer} pairs has at most "
            f"--max-length {options.max_length} tokens"
        )
    n_text = source.ids.size + target.ids.size - 2 * lines.size  # without EOS
    return SplitCounts(
        lines.size, n_empty, n_longer, source.ids.size, target.ids.size, longest, n_unknown / max(1, n_text)
    )
