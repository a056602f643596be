"""Turn a text of millions of lines into a directory that training can start from at once.

    clean        clean the training text into train.en and train.de; copy the validation and test text
    vocabulary   learn the vocabulary with sentencepiece from an even sample of the training text
    encode       turn the text into ids

(`prepared` describes the directory.) The files are made in a directory of their own inside it, and moved to their
places when all are there: a preparation that fails or is killed leaves an older one as it was. One that is there
already, made from the same files and options, is not repeated. Text is streamed in blocks: memory holds the blocks in
progress, a hash of 8 bytes for each pair, and the sample. The result does not depend on the number of processes.
"""

import importlib.metadata
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from tqdm import tqdm

from scratchformer.errors import UserError
from scratchformer.files import make_directory, replace_text, user_error
from scratchformer.locks import locked
from scratchformer.preparation.cleaning import Cleaner, Counts, Limits, count_repeated_inplace, normalized
from scratchformer.preparation.download import Tell
from scratchformer.preparation.prepared import (
    MANIFEST,
    SPLITS,
    TOKENIZER,
    UNFINISHED,
    GrowingArray,
    Manifest,
    PreparedCorpus,
    SplitCounts,
    array_names,
    crc32_of_file,
    is_prepared,
    read_manifest,
    text_names,
)
from scratchformer.preparation.workers import map_in_order
from scratchformer.text.batches import EncodedPairs, crc32_of_ids, encode_and_filter
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
    """The way to prepare a corpus; all options except `workers` change the result.

    dataset        the name of a public data set, for the manifest; "" for the user's own files
    languages      source, target: the suffixes of the files
    vocab_size     exact number of pieces in the vocabulary
    max_words, max_ratio    limits for a pair, see `cleaning`
    max_length     longer pairs (tokens of the longer side, EOS included) are not encoded
    sample         pairs from which the vocabulary is learnt, evenly spread over the training text
    byte_fallback  encode characters that are not in the sample as bytes; otherwise they become UNK
    drop_overlap   drop training pairs that share a sentence with the validation or test text; otherwise only count them
    workers        processes; 1 means this process only
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
        if not all(re.fullmatch("[A-Za-z0-9_-]{1,32}", language) for language in self.languages):
            raise UserError(f"--languages {' '.join(self.languages)!r}: at most 32 letters and digits, as in: en de")
        if self.languages[0] == self.languages[1]:
            raise UserError(f"--languages {' '.join(self.languages)}: the two must differ, as in: en de")


def prepare(files: CorpusFiles, out: Path, options: Options = Options(), tell: Tell = print) -> Manifest:
    """Prepare a corpus in the directory `out`; `tell` is called with a line after each stage."""
    files = existing_files(files)
    require_own_directory(out, options.languages)
    require_outside(files, out)
    made_from = origin_of(files, options)
    with locked(out, "another process is preparing it"), user_error(out, "cannot write"):
        old_files: set[str] = set()
        if is_prepared(out):
            if is_current(out, made_from):
                tell("done before")
                return read_manifest(out)
            tell("made from other text or with other options before, damaged or not finished; it is done again")
            old_files = known_files(out)
        new = out / UNFINISHED
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        try:
            manifest = build(files, new, options, made_from, tell)
        except BaseException:
            shutil.rmtree(new)
            raise
        for name in old_files - manifest.files.keys():  # in other languages, or of a test set
            (out / name).unlink(missing_ok=True)
        (out / MANIFEST).unlink(missing_ok=True)
        for name in manifest.files:
            os.replace(new / name, out / name)
        replace_text(out / MANIFEST, manifest.to_json())
        shutil.rmtree(new)
    return read_manifest(out)


def origin_of(files: CorpusFiles, options: Options) -> dict[str, Any]:
    """Everything that the result depends on: if the name, size and time of a file are equal, so is its text."""

    def fingerprint(pair: ParallelFiles) -> list[list[Any]]:
        return [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in pair]

    texts = {"train": [fingerprint(part) for part in files.train]}
    held_out = {split: fingerprint(pair) for split, pair in files.held_out.items()}
    settings = {name: value for name, value in asdict(options).items() if name != "workers"}
    origin = {"files": texts | held_out, "options": settings, "sentencepiece": sentencepiece.__version__}
    return json.loads(json.dumps(origin))  # as the manifest returns it: lists for tuples


def is_current(out: Path, made_from: dict[str, Any]) -> bool:
    """Recognize a finished preparation of the same text with the same options whose files are all intact."""
    try:
        corpus = PreparedCorpus(out)
    except UserError:
        return False
    return corpus.manifest.made_from == made_from and all(map(corpus.is_unchanged, corpus.manifest.files))


def known_files(out: Path) -> set[str]:
    """Names of the files of an older preparation, as far as its manifest can be read."""
    try:
        return {Path(name).name for name in read_manifest(out).files}
    except UserError:
        return set()


def build(files: CorpusFiles, out: Path, options: Options, made_from: dict[str, Any], tell: Tell) -> Manifest:
    """Make all files in the empty directory `out`, except for the manifest, which is returned."""
    began = time.perf_counter()

    def tell_stage(name: str, summary: str) -> None:
        nonlocal began
        tell(f"{name}: {summary}; {time.perf_counter() - began:.1f} s")
        began = time.perf_counter()

    clean, total = clean_text(files, out, options)
    tell_stage("clean", clean_summary(clean, total, options))
    source, target = (crc32_of_file(out / name) for name in text_names(["train"], options.languages))
    if source == target:
        tell("source and target of the training text are the same: a model of it learns to copy")
    n_lines = {"train": total.kept} | ({"val": clean["val"]["lines"]} if files.val else {})
    sample = min(options.sample, total.kept)
    tokenizer = learn_vocabulary(out, options, total.kept, sample)
    remark = unlearned_remark(tokenizer)
    learnt = f"{options.vocab_size:,} pieces, learnt from {sample:,} of {total.kept:,} pairs"
    tell_stage("vocabulary", learnt + (f"; {remark}" if remark else ""))
    splits = {split: encode_split(out, split, n_lines[split], tokenizer, options) for split in n_lines}
    crc = 0
    for split in n_lines:
        for side in ("source", "target"):
            crc = crc32_of_ids(np.load(out / f"{split}.{side}.ids.npy", mmap_mode="r"), crc)
    tell_stage("encode", encode_summary(splits["train"], options))
    has_own_field = {"dataset", "languages", "vocab_size", "byte_fallback"}
    names = text_names(["train", *files.held_out], options.languages) + [TOKENIZER, *array_names(n_lines)]
    return Manifest(
        dataset=options.dataset,
        languages=options.languages,
        vocab_size=options.vocab_size,
        byte_fallback=options.byte_fallback,
        options={name: value for name, value in made_from["options"].items() if name not in has_own_field},
        clean=clean,
        splits=splits,
        ids_crc32=crc,
        files={name: {"bytes": (out / name).stat().st_size, "crc32": crc32_of_file(out / name)} for name in names},
        made_from=made_from,
        versions={"scratchformer": own_version(), "sentencepiece": sentencepiece.__version__, "numpy": np.__version__},
    )


def own_version() -> str:
    try:
        return importlib.metadata.version("scratchformer")
    except importlib.metadata.PackageNotFoundError:  # run from a directory of sources
        return "not installed"


def progress_bar(stage: str, n_pairs: int | None = None) -> tqdm:
    """Show on a terminal how many pairs are done (of `n_pairs`, if that is known); call its `update`."""
    return tqdm(desc=stage, total=n_pairs, unit=" pairs", unit_scale=True, disable=None, leave=False)


# Clean ----------------------------------------------------------------------------------------------------------------


def clean_text(files: CorpusFiles, out: Path, options: Options) -> tuple[dict[str, Any], Counts]:
    """Write train.LANG from the pairs that are fit for training, and val.LANG and test.LANG unchanged."""
    report: dict[str, Any] = {}
    held_out: set[str] = set()
    for split, pair in files.held_out.items():
        text = read_pairs(*pair)
        report[split] = {"lines": len(text.source) + text.n_empty, "empty": text.n_empty}
        held_out.update(map(normalized, text.source), map(normalized, text.target))
        for path, language in zip(pair, options.languages):
            copy_text(path, out / f"{split}.{language}")

    counts: list[Counts] = []  # of each part
    hashes = bytearray()  # joining a list of arrays would need twice the memory
    limits = Limits(options.max_words, options.max_ratio)
    source_path, target_path = (out / name for name in text_names(["train"], options.languages))
    with open(source_path, "wb") as source, open(target_path, "wb") as target:
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
    report["parts"] = [{"part": part.source.name, **count._asdict()} for part, count in zip(files.train, counts)]
    report |= {"total": total._asdict(), "repeated": count_repeated_inplace(np.frombuffer(hashes, np.uint64))}
    return report, total


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
    """Count the dropped pairs by reason, in words."""
    dropped = [
        f"{counts.empty:,} with an empty side",
        f"{counts.too_long:,} of more than {options.max_words} words",
        f"{counts.ratio:,} with a ratio of lengths above {options.max_ratio:g}",
    ]
    return ", ".join(dropped + ([f"{counts.held_out:,} with {OVERLAP}"] if options.drop_overlap else []))


def copy_text(path: Path, to: Path) -> None:
    """Copy a file byte by byte, uncompressed if it is gzipped."""
    try:
        with open_stream(path) as original:
            data = original.read()
    except READ_ERRORS as error:
        raise cannot_read(path, error) from error
    to.write_bytes(data)


# Vocabulary -----------------------------------------------------------------------------------------------------------


def learn_vocabulary(out: Path, options: Options, n_pairs: int, sample: int) -> Tokenizer:
    """Learn one vocabulary for both languages, from `sample` of the `n_pairs` cleaned lines of each, and save it."""
    paths = [out / name for name in text_names(["train"], options.languages)]
    sentences = (line for path in paths for line in sampled_lines(path, n_pairs, sample))
    tokenizer = Tokenizer.train(sentences, options.vocab_size, options.byte_fallback)
    tokenizer.save(out / TOKENIZER)
    return tokenizer


def sampled_lines(path: Path, n_lines: int, sample: int) -> Iterator[str]:
    """Yield `sample` of the `n_lines` lines of a cleaned text, evenly spaced."""
    with open(path, "rb") as file:
        for number, line in enumerate(file):
            if (number + 1) * sample // n_lines > number * sample // n_lines:
                yield line.decode("utf-8").removesuffix("\n")


# Encode ---------------------------------------------------------------------------------------------------------------


def encode_block(
    files: ParallelFiles, tokenizer: Tokenizer, max_length: int, block: Block
) -> tuple[EncodedPairs, int, int]:
    """Encode the pairs of a block that are neither blank nor too long -> them, its lines, the blank ones among these"""
    source_lines, target_lines = block.lines(files)
    pairs = nonblank_pairs(source_lines, target_lines, block.first_line)
    return encode_and_filter(tokenizer.encode, pairs, max_length), len(source_lines), pairs.n_empty


def dtype_of_ids(tokenizer: Tokenizer) -> np.dtype:
    """The smallest that holds every id: uint16 or int32."""
    return np.dtype(np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32)


def encode_split(out: Path, split: str, n_lines: int, tokenizer: Tokenizer, options: Options) -> SplitCounts:
    """Write the arrays of a split, which has `n_lines` lines."""
    files = ParallelFiles(*(out / name for name in text_names([split], options.languages)))
    encode = partial(encode_block, files, tokenizer, options.max_length)
    n_empty, n_longer, n_unknown, longest = 0, 0, 0, 0
    with ExitStack() as stack:

        def array(name: str, dtype: np.dtype | type = np.int64) -> GrowingArray:
            return stack.enter_context(GrowingArray(out / f"{split}.{name}.npy", dtype))

        ids = [array(f"{side}.ids", dtype_of_ids(tokenizer)) for side in ("source", "target")]
        offsets = [array(f"{side}.offsets") for side in ("source", "target")]
        lines = array("lines")
        for begins in offsets:
            begins.append(np.zeros(1, np.int64))
        blocks = stack.enter_context(
            closing(map_in_order(encode, stream_blocks(files, LINES_PER_BLOCK), options.workers))
        )
        bar = stack.enter_context(progress_bar(f"encode {split}", n_lines))
        for pairs, n_read, n_blank in blocks:
            bar.update(n_read)
            for sequences, side_ids, begins in zip((pairs.source, pairs.target), ids, offsets):
                begins.append(side_ids.size + sequences.offsets[1:])
                side_ids.append(sequences.ids)
                n_unknown += int(np.count_nonzero(sequences.ids == UNK))
            lines.append(pairs.line_numbers)
            n_empty += n_blank
            n_longer += pairs.n_dropped
            longest = max(longest, int(pairs.lengths.max(initial=0)))
    if not lines.size:
        raise UserError(
            f"{split} text: none of its {n_empty + n_longer} pairs has at most --max-length {options.max_length} tokens"
        )
    n_source, n_target = (side_ids.size for side_ids in ids)
    n_text = n_source + n_target - 2 * lines.size  # tokens without EOS
    return SplitCounts(lines.size, n_empty, n_longer, n_source, n_target, longest, n_unknown / max(1, n_text))


def encode_summary(train: SplitCounts, options: Options) -> str:
    return (
        f"{train.pairs:,} pairs (left out: {train.longer:,} of more than {options.max_length} tokens), "
        f"{' + '.join(f'{mean:.1f}' for mean in train.mean_lengths)} tokens a pair, "
        f"{train.unk_share:.4%} of them unknown"
    )


# Files that are read and written --------------------------------------------------------------------------------------


def existing_files(files: CorpusFiles) -> CorpusFiles:
    """Return the same files, with .gz appended where only that file exists; each must be a file on disk."""

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


def require_own_directory(out: Path, languages: tuple[str, str]) -> None:
    """Make the directory, or check that we may write into it. It needs no corpus, so call it before a download."""
    make_directory(out)
    require_no_run(out)
    ours = [MANIFEST, TOKENIZER, *array_names(SPLITS), *text_names([*SPLITS, "test"], languages)]
    found = [name for name in ours if os.path.lexists(out / name)]
    if found and not is_prepared(out):
        raise UserError(f"{out}: holds {found[0]}, which no preparation has made; choose another --out")


def require_no_run(out: Path) -> None:
    """Refuse a directory that holds a run, whose files must stay as they are, or lies in one."""
    names = ("config.toml", "checkpoints")
    for name in names:
        if os.path.lexists(out / name):
            raise UserError(f"{out}: holds {name}, as a run does; choose another --out")
    parent = Path(os.path.realpath(out)).parent
    if all(os.path.lexists(parent / name) for name in names):
        raise UserError(f"{out}: lies in the run {parent}; choose another --out")


def require_no_corpus(out: Path) -> None:
    """Refuse a directory that holds a prepared corpus, or one that is being prepared."""
    if is_prepared(out):
        raise UserError(f"{out}: holds a prepared corpus; choose another --out")


def require_outside(files: CorpusFiles, out: Path) -> None:
    """Refuse to read a file of the directory that is to be written."""
    for path in files.paths:
        if path.resolve().parent == out.resolve():
            raise UserError(f"{path}: lies in the directory that is to be written; choose another --out")
