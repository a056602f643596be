"""Turn a text of millions of lines into a directory that training can start from at once.

    clean        clean the training text into train.en and train.de; copy the validation and test text
    vocabulary   learn the vocabulary with sentencepiece from an even sample of the training text
    encode       turn the text into ids
    manifest     describe what there is and how it was made

(`prepared` describes the directory.) Each stage reads what the stages before it have written. It is recorded with
everything it was made from, and done again only if that has changed; a preparation that was killed resumes at the stage
it was in (`stages`). Text is streamed in blocks: memory holds the blocks in progress, a hash of 8 bytes for each pair,
and the sample. The result does not depend on the number of processes.
"""

import importlib.metadata
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
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
from scratchformer.preparation.cleaning import Cleaner, Counts, Limits, count_repeated_inplace, normalized
from scratchformer.preparation.prepared import (
    LANGUAGE,
    MANIFEST,
    SPLITS,
    STAGES,
    TOKENIZER,
    Manifest,
    SequencesFile,
    SplitCounts,
    array_names,
    growing_array,
    is_prepared,
    read_manifest,
    text_names,
)
from scratchformer.preparation.stages import Invalidate, StageRecord, StageResult, Stages, Tell
from scratchformer.preparation.workers import in_another_process, map_in_order
from scratchformer.text.batches import Sequences, crc32_of_ids, encode_and_filter
from scratchformer.text.corpora import (
    READ_ERRORS,
    Block,
    CorpusFiles,
    ParallelFiles,
    cannot_read,
    nonblank_pairs,
    open_stream,
    plain_or_gz,
    read_pairs,
    require_distinct,
    stream_blocks,
)
from scratchformer.text.tokenizer import UNK, Tokenizer, unlearned_remark

LINES_PER_BLOCK = 10_000
"""A block is about 2 MB of text, which takes a fraction of a second."""

SAMPLE = 1_000_000
"""Pairs from which the vocabulary is learnt. Together with their distinct words they take about 1.5 GB of memory."""


@dataclass(frozen=True)
class Options:
    """How a corpus is prepared; all options except `workers` change the result.

    dataset        the name of a public data set, for the manifest; "" for the user's own files
    languages      source, target: the suffixes of the files
    vocab_size     exact number of pieces in the vocabulary
    max_words, max_ratio    limits for a pair, see `cleaning`
    max_length     longer pairs (tokens of the longer side, EOS included) are not encoded
    sample         pairs from which the vocabulary is learnt, evenly spread over the training text
    byte_fallback  encode characters that are not in the sample as bytes; otherwise they become UNK
    drop_overlap   drop training pairs that share a sentence with the validation or test text; otherwise only count them
    workers        processes; 1 means this process only

    Raises UserError if an option is out of range.
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
            if not 1 <= getattr(self, name) < 2**31:  # false for NaN, too
                option = "--" + name.replace("_", "-")
                raise UserError(f"{option} {getattr(self, name)} must be at least 1 and below 2^31")
        if not all(re.fullmatch(LANGUAGE, language) for language in self.languages):
            raise UserError(f"--languages {' '.join(self.languages)!r}: at most 32 letters and digits, as in: en de")
        if self.languages[0] == self.languages[1]:
            raise UserError(f"--languages {' '.join(self.languages)}: the two must differ, as in: en de")


def prepare(files: CorpusFiles, out: Path, options: Options = Options(), tell: Tell = print) -> Manifest:
    """Prepare a corpus in the directory `out`; `tell` is called with a line for each stage.

    Raises UserError for anything that is wrong with the files, the options or the directory. Stages that are finished
    stay finished, but the directory counts as prepared only if all are. A stage that fails because of an option has
    changed nothing.
    """
    files = existing_files(files)
    require_own_directory(out, options.languages)
    require_outside(files, out)
    with locked(out, "another process is preparing it"):
        stages = Stages(out, tell)
        clean = stages.run(
            "clean",
            {
                "files": fingerprints(files),
                "languages": options.languages,
                "max_words": options.max_words,
                "max_ratio": options.max_ratio,
                "drop_overlap": options.drop_overlap,
            },
            text_names(["train", *files.held_out], options.languages),
            partial(clean_text, files, out, options),
        )
        text = clean.checksums(text_names(["train"], options.languages))
        if len(set(text.values())) == 1:
            tell("source and target of the training text are the same: a model of it learns to copy")
        with valid_records(out):
            n_lines = {"train": int(clean.report["total"]["kept"])}  # of each split to encode
            if files.val:
                n_lines["val"] = int(clean.report["val"]["lines"])
        vocabulary = stages.run(
            "vocabulary",
            {
                "text": text,
                "vocab_size": options.vocab_size,
                "sample": options.sample,
                "byte_fallback": options.byte_fallback,
                "sentencepiece": sentencepiece.__version__,
            },
            [TOKENIZER],
            partial(learn_vocabulary, out, options, n_lines["train"]),
        )
        encode = stages.run(
            "encode",
            {
                "text": clean.checksums(text_names(n_lines, options.languages)),
                "tokenizer": vocabulary.checksums([TOKENIZER]),
                "max_length": options.max_length,
                "sentencepiece": sentencepiece.__version__,
            },
            array_names(n_lines),
            partial(encode_text, out, options, n_lines),
        )
        with valid_records(out):
            manifest = Manifest.from_json(manifest_of(options, clean, vocabulary, encode).to_json())
        write_manifest(out, manifest)
        return read_manifest(out)


@contextmanager
def valid_records(out: Path) -> Iterator[None]:
    """Raises UserError if the block fails because stages.json has figures of another kind than the stages write."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(f"{out / STAGES}: damaged; remove it and run the command again") from error


def progress_bar(stage: str, n_pairs: int | None = None) -> tqdm:
    """Show on a terminal how many pairs are done (of `n_pairs`, if that is known); call its `update`."""
    return tqdm(desc=stage, total=n_pairs, unit=" pairs", unit_scale=True, disable=None, leave=False)


# Clean ----------------------------------------------------------------------------------------------------------------


def clean_text(files: CorpusFiles, out: Path, options: Options, invalidate: Invalidate) -> StageResult:
    """Write train.LANG from the pairs that are fit for training, and val.LANG and test.LANG unchanged."""
    report: dict[str, Any] = {}
    held_out: set[str] = set()
    for split, pair in files.held_out.items():
        text = read_pairs(*pair)
        report[split] = {"lines": len(text.source) + text.n_empty, "empty": text.n_empty}
        held_out.update(map(normalized, text.source), map(normalized, text.target))

    counts: list[Counts] = []  # of each part
    hashes = bytearray()  # joining a list of arrays would need twice the memory
    limits = Limits(options.max_words, options.max_ratio)
    train = [out / name for name in text_names(["train"], options.languages)]
    with whole_file(train[0]) as source, whole_file(train[1]) as target:
        for part in files.train:
            cleaner = Cleaner(part, limits, frozenset(held_out), options.drop_overlap)
            counts.append(Counts())
            with closing(
                map_in_order(cleaner, stream_blocks(part, LINES_PER_BLOCK), options.workers)
            ) as blocks, progress_bar(f"clean {part.source.name}") as bar:
                for block in blocks:
                    bar.update(block.counts.lines)
                    source.write(block.source)
                    target.write(block.target)
                    hashes += block.hashes.tobytes()
                    counts[-1] = Counts.total([counts[-1], block.counts])
        total = Counts.total(counts)
        if not total.kept:
            raise UserError(f"no sentence pair is left of {total.lines} lines: {reasons(total, options)}")
        invalidate()
    for split, pair in files.held_out.items():
        for path, language in zip(pair, options.languages):
            copy_text(path, out / f"{split}.{language}")
    report["parts"] = [{"part": part.source.name, **count._asdict()} for part, count in zip(files.train, counts)]
    report |= {"total": total._asdict(), "repeated": count_repeated_inplace(np.frombuffer(hashes, np.uint64))}
    return StageResult(report, clean_summary(report, total, options))


def clean_summary(report: dict[str, Any], total: Counts, options: Options) -> str:
    held_out = [split for split in ("val", "test") if split in report]
    told = [
        f"{total.kept:,} of {total.lines:,} pairs kept ({reasons(total, options)})",
        f"{report['repeated']:,} of these are repetitions",
    ]
    if held_out and not options.drop_overlap:
        told.append(f"{total.held_out:,} with {OVERLAP}, which are kept")
    for split in held_out:
        blank = f", {report[split]['empty']} of them blank" if report[split]["empty"] else ""
        told.append(f"{split}: {report[split]['lines']:,} lines{blank}")
    return "; ".join(told)


OVERLAP = "a sentence of the val or test text"


def reasons(counts: Counts, options: Options) -> str:
    """How many pairs were dropped for which reason."""
    dropped = [
        f"{counts.empty:,} with an empty side",
        f"{counts.too_long:,} of more than {options.max_words} words",
        f"{counts.ratio:,} with a ratio of lengths above {options.max_ratio:g}",
    ]
    return ", ".join(dropped + ([f"{counts.held_out:,} with {OVERLAP}"] if options.drop_overlap else []))


def copy_text(path: Path, to: Path) -> None:
    """Copy a file byte by byte, uncompressed if it is gzipped."""
    with whole_file(to) as file:
        try:
            with open_stream(path) as original:
                shutil.copyfileobj(original, file)
        except READ_ERRORS as error:  # only of reading: `whole_file` raises UserError if writing fails
            raise cannot_read(path, error) from error


# Vocabulary -----------------------------------------------------------------------------------------------------------


def learn_vocabulary(out: Path, options: Options, n_pairs: int, invalidate: Invalidate) -> StageResult:
    """Learn one vocabulary for both languages, from equally many lines of each.

    This takes minutes, during which sentencepiece ignores Ctrl-C: so with several workers another process does it.
    """
    sample = min(options.sample, n_pairs)
    learn = partial(tokenizer_of_sample, out, options, n_pairs, sample)
    tokenizer = learn() if options.workers == 1 else in_another_process(learn)
    invalidate()
    tokenizer.save(out / TOKENIZER)
    summary = f"{options.vocab_size:,} pieces, learnt from {sample:,} of {n_pairs:,} pairs"
    if remark := unlearned_remark(tokenizer):
        summary += f"; {remark}"
    return StageResult({"sample": sample}, summary)


def tokenizer_of_sample(out: Path, options: Options, n_pairs: int, sample: int) -> Tokenizer:
    """Train a tokenizer on `sample` of the `n_pairs` cleaned pairs. Raises UserError if that is impossible."""
    paths = [out / name for name in text_names(["train"], options.languages)]
    sentences = (line for path in paths for line in sampled_lines(path, n_pairs, sample))
    return Tokenizer.train(sentences, options.vocab_size, options.byte_fallback)


def sampled_lines(path: Path, n_lines: int, sample: int) -> Iterator[str]:
    """Yield `sample` of the `n_lines` lines of a cleaned text, evenly spaced."""
    with open(path, "rb") as file:
        for number, line in enumerate(file):
            if (number + 1) * sample // n_lines > number * sample // n_lines:
                yield line.decode("utf-8").removesuffix("\n")


# Encode ---------------------------------------------------------------------------------------------------------------


class EncodedBlock(NamedTuple):
    """The pairs of a block that are neither blank nor too long, with their line numbers, (pairs,) int64."""

    source: Sequences
    target: Sequences
    line_numbers: np.ndarray
    n_lines: int
    n_empty: int
    n_longer: int
    n_unknown: int


@dataclass(frozen=True)
class Encoder:
    """Encodes blocks of text; it can be pickled for another process."""

    files: ParallelFiles
    tokenizer: Tokenizer
    max_length: int

    def __call__(self, block: Block) -> EncodedBlock:
        source_lines, target_lines = block.lines(self.files)
        pairs = nonblank_pairs(source_lines, target_lines, block.first_line)
        encoded = encode_and_filter(self.tokenizer.encode, pairs, self.max_length)
        source, target = (
            Sequences(side.ids.astype(dtype_of_ids(self.tokenizer)), side.offsets)
            for side in (encoded.source, encoded.target)
        )
        n_unknown = sum(int(np.count_nonzero(side.ids == UNK)) for side in (source, target))
        return EncodedBlock(
            source, target, encoded.line_numbers, len(source_lines), pairs.n_empty, encoded.n_dropped, n_unknown
        )


def dtype_of_ids(tokenizer: Tokenizer) -> np.dtype:
    """The smallest that holds every id: uint16 or int32."""
    return np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32)


def encode_text(out: Path, options: Options, n_lines: dict[str, int], invalidate: Invalidate) -> StageResult:
    """Write the ids of the splits; n_lines: split -> its number of lines."""
    tokenizer = Tokenizer.load(out / TOKENIZER)
    with ExitStack() as arrays:  # all are replaced, or none
        counts = {split: encode_split(out, split, n_lines[split], tokenizer, options, arrays) for split in n_lines}
        invalidate()
    crc = 0
    for split in n_lines:
        for side in ("source", "target"):
            crc = crc32_of_ids(np.load(out / f"{split}.{side}.ids.npy", mmap_mode="r"), crc)
    train = counts["train"]
    return StageResult(
        {"splits": {split: asdict(found) for split, found in counts.items()}, "ids_crc32": crc},
        f"{train.pairs:,} pairs (left out: {train.longer:,} of more than "
        f"{options.max_length} tokens), {' + '.join(f'{mean:.1f}' for mean in train.mean_lengths)} tokens "
        f"a pair, {train.unk_share:.4%} of them unknown",
    )


def encode_split(
    out: Path, split: str, n_lines: int, tokenizer: Tokenizer, options: Options, arrays: ExitStack
) -> SplitCounts:
    """Write the arrays of a split; they appear under their names when `arrays` is closed."""
    files = ParallelFiles(*(out / name for name in text_names([split], options.languages)))
    encoder, dtype = Encoder(files, tokenizer, options.max_length), dtype_of_ids(tokenizer)
    n_empty, n_longer, n_unknown, longest = 0, 0, 0, 0
    source, target = (SequencesFile(arrays, out, f"{split}.{side}", dtype) for side in ("source", "target"))
    lines = arrays.enter_context(growing_array(out / f"{split}.lines.npy", np.dtype(np.int64)))
    with closing(map_in_order(encoder, stream_blocks(files, LINES_PER_BLOCK), options.workers)) as blocks, progress_bar(
        f"encode {split}", n_lines
    ) as bar:
        for block in blocks:
            bar.update(block.n_lines)
            source.append(block.source)
            target.append(block.target)
            lines.append(block.line_numbers)
            n_empty += block.n_empty
            n_longer += block.n_longer
            n_unknown += block.n_unknown
            longest = max(longest, *(int(side.lengths.max(initial=0)) for side in (block.source, block.target)))
    if not lines.size:
        raise UserError(
            f"{files.source}: none of its {n_empty + n_longer} pairs has at most "
            f"--max-length {options.max_length} tokens"
        )
    n_text = source.ids.size + target.ids.size - 2 * lines.size  # tokens without EOS
    return SplitCounts(
        lines.size, n_empty, n_longer, source.ids.size, target.ids.size, longest, n_unknown / max(1, n_text)
    )


# Manifest -------------------------------------------------------------------------------------------------------------


def manifest_of(options: Options, clean: StageRecord, vocabulary: StageRecord, encode: StageRecord) -> Manifest:
    has_own_field = {"dataset", "languages", "vocab_size", "byte_fallback"}
    return Manifest(
        dataset=options.dataset,
        languages=options.languages,
        vocab_size=options.vocab_size,
        byte_fallback=options.byte_fallback,
        options={name: value for name, value in asdict(options).items() if name not in has_own_field | {"workers"}},
        clean=clean.report,
        splits={name: SplitCounts(**counts) for name, counts in encode.report["splits"].items()},
        ids_crc32=encode.report["ids_crc32"],
        files=clean.files | vocabulary.files | encode.files,
        versions={"scratchformer": own_version(), "sentencepiece": sentencepiece.__version__, "numpy": np.__version__},
    )


def own_version() -> str:
    try:
        return importlib.metadata.version("scratchformer")
    except importlib.metadata.PackageNotFoundError:  # run from a directory of sources
        return "not installed"


def write_manifest(out: Path, manifest: Manifest) -> None:
    """Write the manifest, unless the same one is there.

    Versions are those that made the files: if an older manifest is still there, no stage was run again, and its
    versions are kept.
    """
    path = out / MANIFEST
    with suppress(UserError):  # it is missing or damaged
        manifest = replace(manifest, versions=read_manifest(out).versions)
    text = manifest.to_json()
    if not path.exists() or path.read_bytes() != text.encode("utf-8"):
        replace_text(path, text)


# Files that are read and written --------------------------------------------------------------------------------------


def existing_files(files: CorpusFiles) -> CorpusFiles:
    """Return the same files, with .gz appended where only that file exists.

    Raises UserError if no text is given, if a file is missing or not a regular file, such as a pipe, and as
    `require_distinct` does.
    """

    def found(path: Path) -> Path:
        file = plain_or_gz(path) or path
        try:
            state = file.stat()
        except OSError as error:
            raise cannot_read(path, error) from None
        if not stat.S_ISREG(state.st_mode):
            raise UserError(f"{path}: not a file on disk; it is read more than once")
        return file

    def both(pair: ParallelFiles) -> ParallelFiles:
        return ParallelFiles(found(pair.source), found(pair.target))

    if not files.train:
        raise UserError("no training text is named")
    found_files = CorpusFiles(
        [both(part) for part in files.train], files.val and both(files.val), files.test and both(files.test)
    )
    require_distinct(found_files.roles)
    return found_files


def fingerprints(files: CorpusFiles) -> list[list[Any]]:
    """Which files there are, and the name, size and modification time of each: if these are equal, so is the text."""
    states = [(path.name, path.stat()) for path in files.paths]
    kinds = [len(files.train), files.val is not None, files.test is not None]
    return [kinds, *([name, state.st_size, state.st_mtime_ns] for name, state in states)]


def require_own_directory(out: Path, languages: tuple[str, str]) -> None:
    """Make the directory, or check that we may write into it. It needs no corpus, so call it before a download.

    Raises UserError if it cannot be made, if it holds a run, or if a file has one of our names and no preparation has
    written it.
    """
    make_directory(out)
    require_no_run(out)
    ours = [MANIFEST, STAGES, TOKENIZER, *array_names(SPLITS), *text_names([*SPLITS, "test"], languages)]
    found = [name for name in ours if os.path.lexists(out / name)]
    if found and not is_prepared(out):
        raise UserError(f"{out}: holds {found[0]}, which no preparation has made; choose another --out")


def require_no_run(out: Path) -> None:
    """Raises UserError if the directory holds a run, whose files must stay as they are, or lies in one."""
    names = ("config.toml", "checkpoints")
    for name in names:
        if os.path.lexists(out / name):
            raise UserError(f"{out}: holds {name}, as a run does; choose another --out")
    parent = Path(os.path.realpath(out)).parent
    if all(os.path.lexists(parent / name) for name in names):
        raise UserError(f"{out}: lies in the run {parent}; choose another --out")


def require_no_corpus(out: Path) -> None:
    """Raises UserError if the directory holds a prepared corpus, or one that is being prepared."""
    if is_prepared(out):
        raise UserError(f"{out}: holds a prepared corpus; choose another --out")


def require_outside(files: CorpusFiles, out: Path) -> None:
    """Raises UserError if a file that is to be read lies in the directory that is to be written."""
    for path in files.paths:
        if path.resolve().parent == out.resolve():
            raise UserError(f"{path}: lies in the directory that is to be written; choose another --out")
