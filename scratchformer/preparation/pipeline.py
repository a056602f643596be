"""Turn a text of millions of lines into a directory that training can start from at once.

    clean        clean the training text into train.en and train.de; copy the validation and test text
    vocabulary   learn the vocabulary with sentencepiece from an even sample of the training text
    encode       turn the text into ids

(`prepared` describes the directory.) The files are made in a directory of their own inside it, and moved to their
places when all are there: a preparation that fails or is killed leaves an older one as it was. One that is there
already, made from the same files and options, is not repeated. Text is streamed in blocks: memory holds the blocks in
progress, a hash of 8 bytes for each pair, and the sample. The result does not depend on the number of processes.
"""

import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from scratchformer.errors import UserError
from scratchformer.files import locked, make_directory, replace_text, user_error
from scratchformer.parallel.forks import map_in_processes
from scratchformer.preparation import MANIFEST, UNFINISHED, is_prepared
from scratchformer.preparation.cleaning import clean_block, count_repeated_inplace, normalized
from scratchformer.preparation.download import Tell
from scratchformer.preparation.prepared import (
    TOKENIZER,
    Manifest,
    Options,
    PreparedCorpus,
    SplitCounts,
    array_names,
    crc32_of_file,
    dtype_of_ids,
    opened,
    read_manifest,
    text_names,
)
from scratchformer.progress import tqdm
from scratchformer.text.batches import EncodedPairs, crc32_of_ids, encode_and_filter
from scratchformer.text.corpora import (
    Block,
    CorpusFiles,
    ParallelFiles,
    find_file,
    open_stream,
    read_pairs,
    require_distinct,
    stream_blocks,
)
from scratchformer.text.tokenizer import UNK, Tokenizer

LINES_PER_BLOCK = 10_000
"""A block is about 2 MB of text, which takes a fraction of a second."""


def prepare(
    files: CorpusFiles, out: Path, options: Options = Options(), tell: Tell = print, workers: int = 1
) -> Manifest:
    """Prepare a corpus in the directory `out`.

    tell     is called with a line after each stage
    workers  processes to clean and encode with; on other systems than Linux, threads
    """
    files = existing_files(files)
    require_own_directory(out)
    made_from = origin_of(files)
    with locked(out, "another process is preparing it"), user_error(out, "cannot write"):
        if is_prepared(out):
            if is_current(out, options, made_from):
                tell("done before")
                return read_manifest(out)
            tell("made from other text or with other options before, damaged or not finished; it is done again")
        new = out / UNFINISHED
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        try:
            manifest = build(files, new, options, made_from, tell, workers)
        except BaseException:
            shutil.rmtree(new)
            raise
        older: Iterable[str] = []
        with suppress(UserError):  # there may be none, or a damaged one
            older = read_manifest(out).files
        for name in (MANIFEST, *older):
            (out / name).unlink(missing_ok=True)
        for name in manifest.files:
            os.replace(new / name, out / name)
        replace_text(out / MANIFEST, manifest.to_json())
        shutil.rmtree(new)
    return manifest


def origin_of(files: CorpusFiles) -> dict[str, Any]:
    """Everything that the result depends on: if the name, size and time of a file are equal, so is its text."""
    states = [(path.name, path.stat()) for path in files.paths]
    texts = [[name, state.st_size, state.st_mtime_ns] for name, state in states]
    return {"files": texts, "held_out": list(files.held_out), "sentencepiece": sentencepiece.__version__}


def is_current(out: Path, options: Options, made_from: dict[str, Any]) -> bool:
    """Recognize a finished preparation of the same text with the same options whose files are all intact."""
    with suppress(UserError):
        corpus = PreparedCorpus(out)
        if (corpus.manifest.options, corpus.manifest.made_from) == (options, made_from):
            return all(map(corpus.intact, corpus.manifest.files))
    return False


def build(
    files: CorpusFiles, out: Path, options: Options, made_from: dict[str, Any], tell: Tell, workers: int
) -> Manifest:
    """Make all files in the empty directory `out`, except for the manifest, which is returned."""
    began = time.perf_counter()

    def tell_stage(name: str, summary: str) -> None:
        nonlocal began
        tell(f"{name}: {summary}; {time.perf_counter() - began:.1f} s")
        began = time.perf_counter()

    clean = clean_text(files, out, options, workers)
    n_kept, n_read = clean["total"]["kept"], clean["total"]["lines"]
    tell_stage("clean", f"{n_kept:,} of {n_read:,} pairs kept ({reasons(clean['total'], options)})")
    sample = min(options.sample, n_kept)
    tokenizer = learn_vocabulary(out, options, n_kept, sample)
    tell_stage("vocabulary", f"{options.vocab_size:,} pieces, learnt from {sample:,} of {n_kept:,} pairs")
    n_lines = {"train": n_kept} | ({"val": clean["val"]["lines"]} if files.val else {})
    splits = {split: encode_split(out, split, n_lines[split], tokenizer, options, workers) for split in n_lines}
    train, crc = splits["train"], 0
    tell_stage("encode", f"{train.pairs:,} pairs (left out: {train.longer:,} of more than {options.max_length} tokens)")
    names = [TOKENIZER, *text_names(["train", *files.held_out], options.languages)]
    for split in n_lines:
        source_ids, _, target_ids, *_ = arrays = array_names(split)
        for name in (source_ids, target_ids):
            crc = crc32_of_ids(opened(out / name, dtype_of_ids(tokenizer.vocab_size)), crc)
        names += arrays
    file_sums = {name: {"bytes": (out / name).stat().st_size, "crc32": crc32_of_file(out / name)} for name in names}
    return Manifest(options=options, clean=clean, splits=splits, ids_crc32=crc, files=file_sums, made_from=made_from)


def progress_bar(stage: str, n_pairs: int | None = None) -> tqdm:
    """Show on a terminal how many pairs are done (of `n_pairs`, if that is known); call its `update`."""
    return tqdm(desc=stage, total=n_pairs, unit=" pairs", unit_scale=True, disable=None, leave=False)


# Clean ----------------------------------------------------------------------------------------------------------------


def clean_text(files: CorpusFiles, out: Path, options: Options, workers: int) -> dict[str, Any]:
    """Write train.LANG from the pairs that are fit for training, and val.LANG and test.LANG unchanged."""
    report: dict[str, Any] = {}
    held_out: set[str] = set()
    for split, pair in files.held_out.items():
        text = read_pairs(*pair)
        report[split] = {"lines": len(text.source) + text.n_empty, "empty": text.n_empty}
        held_out.update(map(normalized, text.source), map(normalized, text.target))
        for path, name in zip(pair, text_names([split], options.languages)):
            with open_stream(path) as original:
                (out / name).write_bytes(original.read())

    total, parts = Counter[str](), []
    hashes = bytearray()  # joining a list of arrays would need twice the memory
    source_path, target_path = (out / name for name in text_names(["train"], options.languages))
    clean = partial(clean_block, options=options, held_out=held_out)
    with open(source_path, "wb") as source, open(target_path, "wb") as target:
        for part in files.train:
            counts = Counter[str]()
            with progress_bar(f"clean {part.source.name}") as bar:
                for block in map_in_processes(clean, stream_blocks(part, LINES_PER_BLOCK), workers):
                    bar.update(block.counts["lines"])
                    source.write(block.source)
                    target.write(block.target)
                    hashes += block.hashes.tobytes()
                    counts.update(block.counts)
            parts.append({"part": part.source.name, **counts})
            total.update(counts)
    if not total["kept"]:
        raise UserError(f"no sentence pair is left of {total['lines']} lines: {reasons(total, options)}")
    repeated = count_repeated_inplace(np.frombuffer(hashes, np.uint64))
    return report | {"parts": parts, "total": dict(total), "repeated": repeated}


def reasons(counts: Mapping[str, int], options: Options) -> str:
    """Count the dropped pairs by reason, in words."""
    dropped = [
        f"{counts['empty']:,} with an empty side",
        f"{counts['too_long']:,} of more than {options.max_words} words",
        f"{counts['ratio']:,} with a ratio of lengths above {options.max_ratio:g}",
    ]
    overlap = f"{counts['held_out']:,} with a sentence of the val or test text"
    return "dropped: " + ", ".join([*dropped, overlap] if options.drop_overlap else dropped)


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


def encode_block(block: Block, tokenizer: Tokenizer, max_length: int) -> tuple[EncodedPairs, int]:
    """Encode the pairs of a block that are neither blank nor too long -> encoded pairs, number of blank pairs"""
    pairs = block.pairs()
    return encode_and_filter(tokenizer.encode, pairs, max_length), pairs.n_empty


def encode_split(
    out: Path, split: str, n_lines: int, tokenizer: Tokenizer, options: Options, workers: int
) -> SplitCounts:
    """Write the arrays of a split, which has `n_lines` lines."""
    files = ParallelFiles(*(out / name for name in text_names([split], options.languages)))
    encode = partial(encode_block, tokenizer=tokenizer, max_length=options.max_length)
    dtype = dtype_of_ids(tokenizer.vocab_size)
    n_pairs = n_empty = n_longer = n_unknown = longest = 0
    n_tokens = [0, 0]  # source, target
    with ExitStack() as stack:
        *sides, lines = [stack.enter_context(open(out / name, "wb")) for name in array_names(split)]
        bar = stack.enter_context(progress_bar(f"encode {split}", n_lines))
        for offsets in sides[1::2]:
            np.zeros(1, np.int64).tofile(offsets)
        for pairs, n_blank in map_in_processes(encode, stream_blocks(files, LINES_PER_BLOCK), workers):
            bar.update(len(pairs) + pairs.n_dropped + n_blank)
            for side, sequences in enumerate((pairs.source, pairs.target)):
                sequences.ids.astype(dtype).tofile(sides[2 * side])
                (n_tokens[side] + sequences.offsets[1:]).tofile(sides[2 * side + 1])
                n_tokens[side] += len(sequences.ids)
                n_unknown += int(np.count_nonzero(sequences.ids == UNK))
            pairs.line_numbers.tofile(lines)
            n_pairs += len(pairs)
            n_empty += n_blank
            n_longer += pairs.n_dropped
            longest = max(longest, int(pairs.lengths.max(initial=0)))
    if not n_pairs:
        raise UserError(
            f"{split} text: none of its {n_empty + n_longer} pairs has at most --max-length {options.max_length} tokens"
        )
    unk_share = n_unknown / max(1, sum(n_tokens) - 2 * n_pairs)  # EOS does not count
    return SplitCounts(n_pairs, n_empty, n_longer, n_tokens[0], n_tokens[1], longest, unk_share)


# Files that are read and written --------------------------------------------------------------------------------------


def existing_files(files: CorpusFiles) -> CorpusFiles:
    """Return the same files, with .gz appended where only that file exists."""

    def found(pair: ParallelFiles) -> ParallelFiles:
        return ParallelFiles(*(find_file(path.parent, path.name) for path in pair))

    require_distinct(files.roles)
    return CorpusFiles(list(map(found, files.train)), files.val and found(files.val), files.test and found(files.test))


def require_own_directory(out: Path) -> None:
    """Make the directory; refuse one that holds what neither a preparation nor a download has put there."""
    make_directory(out)
    others = {path.name for path in out.iterdir()} - {"downloads", "unpacked"}
    if others and not is_prepared(out):
        raise UserError(f"{out}: holds {min(others)}, which no preparation has made; choose another --out")
