"""Probes of the text, for `scratchformer doctor`: the sentence pairs, the vocabulary, and the batches made of them."""

from __future__ import annotations

import gzip
import math
import zlib
from itertools import islice
from pathlib import Path
from typing import Any, Iterator, Literal, NamedTuple

import numpy as np

from scratchformer.config import Config, DataConfig
from scratchformer.doctor.findings import Finding, verdict
from scratchformer.errors import UserError
from scratchformer.preparation.prepared import read_manifest
from scratchformer.text import bundled
from scratchformer.text.batches import Batch, BatchPlan, EncodedPairs, encode_pairs
from scratchformer.text.corpora import Pairs, find_split, read_pairs
from scratchformer.text.tokenizer import UNK, Tokenizer
from scratchformer.training.data import Corpus, prepared_directory, read_corpus, train_tokenizer

# Reading --------------------------------------------------------------------------------------------------------------


class Text(NamedTuple):
    """The text of a configuration: what training reads, and what is held out by name (val, test, ...).

    sample  "" if `train` is all of it, else in words which part
    share   which share of the files that is
    """

    train: Pairs
    held_out: dict[str, Pairs]
    sample: str = ""
    share: float = 1.0


LARGE_FILE_BYTES = 2**25
FIRST_LINES = 200_000
"""Of a larger file only so many lines are read, which takes about a second."""

BUNDLED_VOCABULARY = 5000
"""The bundled corpus is too small for more pieces: whoever asks for more means other text."""


def read_text(data: DataConfig) -> Text:
    """The text that the configuration names, or the bundled corpus. Raises UserError if it cannot be read."""
    if not data.names_text:
        splits = {name: bundled.read_text(name) for name in bundled.SPLITS}
        return Text(splits.pop("train"), splits)
    source, target = files_of(data, "train")
    large = any(file.is_file() and file.stat().st_size > LARGE_FILE_BYTES for file in (source, target))
    if not large and not prepared_directory(data):
        corpus = read_corpus(data)
        return Text(corpus.train, named(corpus.val) | test_sets(data))
    train, share = first_pairs(source, target) if large else (read_pairs(source, target), 1.0)
    val = read_pairs(*files_of(data, "val")) if has_validation_text(data) else None
    return Text(train, named(val) | test_sets(data), f"the first {FIRST_LINES:,} lines" if large else "", share)


def has_validation_text(data: DataConfig) -> bool:
    """A directory has it, unless it was prepared without."""
    prepared = prepared_directory(data)
    if prepared:
        return "val" in read_manifest(prepared).splits
    return bool(data.val_source or not data.train_source)


def named(val: Pairs | None) -> dict[str, Pairs]:
    return {"val": val} if val else {}


def files_of(data: DataConfig, split: Literal["train", "val"]) -> tuple[Path, Path]:
    if data.directory and not data.train_source:
        return find_split(Path(data.directory), split, data.source_language, data.target_language)
    if split == "train":
        return Path(data.train_source), Path(data.train_target)
    return Path(data.val_source), Path(data.val_target)


def test_sets(data: DataConfig) -> dict[str, Pairs]:
    """The files of the directory whose names begin with "test" and that have both languages."""
    if data.train_source or not data.directory:
        return {}
    directory, found = Path(data.directory), {}
    for path in sorted(directory.glob(f"test*.{data.source_language}*")):
        name = path.name.removesuffix(".gz").removesuffix(f".{data.source_language}")
        target = directory / f"{name}.{data.target_language}"
        if any(file.exists() for file in (target, target.with_name(f"{target.name}.gz"))):
            found[name] = read_pairs(directory / f"{name}.{data.source_language}", target)
    return found


def first_pairs(source: Path, target: Path) -> tuple[Pairs, float]:
    """The pairs of the first lines of two large files, and about which share of them that is. Raises UserError if these
    cannot be read."""
    (source_lines, share), (target_lines, _) = first_lines(source), first_lines(target)
    lines = list(zip(source_lines, target_lines))
    kept = [(number, *pair) for number, pair in enumerate(lines, 1) if pair[0].strip() and pair[1].strip()]
    if not kept:
        raise UserError(f"no sentence pairs in the first {len(lines)} lines of {source} and {target}")
    numbers, sources, targets = zip(*kept)
    return Pairs(list(sources), list(targets), list(numbers), len(lines) - len(kept)), share


def first_lines(path: Path) -> tuple[list[str], float]:
    try:
        with open(path, "rb") as file:
            plain: Any = gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file
            lines = [line.decode("utf-8").strip("\ufeff\r\n") for line in islice(plain, FIRST_LINES)]
            return lines, file.tell() / path.stat().st_size  # a little more, since it reads ahead
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None


# Sentence pairs -------------------------------------------------------------------------------------------------------


def of_pairs(text: Text) -> Iterator[Finding]:
    train = text.train
    pairs = list(zip(train.source, train.target))
    n, n_lines = len(pairs), len(pairs) + train.n_empty
    where = f" ({text.sample})" if text.sample else ""

    empty = train.n_empty / n_lines
    yield Finding(
        "empty lines",
        "hardly any: they are left out, and many mean that the files were made wrongly",
        f"{train.n_empty:,} of {n_lines:,} lines{where}",
        verdict(empty, 0.01, 0.2),
        "an extraction that lost one side",
    )
    repeated = 1 - len(set(pairs)) / n
    yield Finding(
        "repeated pairs",
        "few: what is there twice counts twice, in training and in the vocabulary",
        f"{repeated:.1%} of {n:,} pairs are repetitions{where}",
        verdict(repeated, 0.02, 0.25),
        "files that were concatenated twice; web text that was not deduplicated",
    )
    copied = sum(source.strip() == target.strip() for source, target in pairs) / n
    yield Finding(
        "source equal to target",
        "hardly any: from a few per cent on, the model learns to copy instead of " "translating",
        f"{copied:.1%} of {n:,} pairs{where}",
        verdict(copied, 0.01, 0.1),
        "web text with untranslated lines; the same file given for both languages",
    )
    yield from held_out(text, set(pairs))
    yield from lengths_agree(text)


def held_out(text: Text, pairs: set[tuple[str, str]]) -> Iterator[Finding]:
    sources, seen, worst = set(text.train.source), [], 0.0
    for name, held in text.held_out.items():
        whole = sum(pair in pairs for pair in zip(held.source, held.target))
        half = sum(source in sources for source in held.source)
        worst = max(worst, whole / len(held.source))
        seen.append(f"{name}: {whole} of {len(held.source)} pairs" + (f", {half} sources" if half > whole else ""))
    if not seen:
        yield Finding("held-out text in training", "none", "no held-out text is named", "skipped")
        return
    yield Finding(
        "held-out text in training",
        "none: a score on what was learnt by heart says nothing",
        "; ".join(seen) + (f" (in {text.sample})" if text.sample else ""),
        verdict(worst, 0.001, 0.02),
        "splits made after lines were repeated; training files that contain a test set",
    )


def lengths_agree(text: Text) -> Iterator[Finding]:
    """Correlation of lengths in characters: 0.9 in the corpora we know, 0 if lines are shifted against each other."""
    probe, expected = "lines that belong together", (
        "long sentences have long translations: lengths correlate by 0.6 and more, and few differ by a factor of 3"
    )
    source, target = (np.array([len(line) for line in side]) for side in (text.train.source, text.train.target))
    if len(source) < 100 or not (source.std() and target.std()):
        yield Finding(probe, expected, "too few pairs, or all of one length", "skipped")
        return
    correlation = float(np.corrcoef(source, target)[0, 1])
    outliers = float((np.maximum(source / target, target / source) > 3).mean())
    yield Finding(
        probe,
        expected,
        f"correlation {correlation:.2f}; {outliers:.2%} of the pairs differ that much",
        max(verdict(-correlation, -0.6, -0.3), verdict(outliers, 0.02, 0.2), key=SEVERITY.index),
        "a line missing in one file, so that all after it are shifted; pairs that are no translations",
    )


SEVERITY = ["ok", "note", "FAIL"]

# Tokens ---------------------------------------------------------------------------------------------------------------

ENCODED_PAIRS = 50_000
"""So many pairs are cut into tokens, taken evenly from the text: a second or two."""


class Encoded(NamedTuple):
    """The text as training would have it: tokenizer, pairs, and how many pairs of text stand behind each of them."""

    tokenizer: Tokenizer
    pairs: EncodedPairs
    weight: float

    def some_batch(self) -> Batch:
        """Pairs taken evenly from the text."""
        return self.pairs.batch(np.arange(0, len(self.pairs), -(-len(self.pairs) // PAIRS_IN_BATCH)))


PAIRS_IN_BATCH = 100


def encode(text: Text, config: Config, tokenizer: Tokenizer | None) -> Encoded | Finding:
    """Train a tokenizer, unless there is one, and encode; a Finding tells what is wrong if that is impossible."""
    source, target, line_numbers, n_empty = text.train
    every = -(-len(source) // ENCODED_PAIRS)
    some = Pairs(source[::every], target[::every], line_numbers[::every], n_empty)
    probe, expected = "tokens", "vocabulary, lengths and batches suit the text"
    try:
        tokenizer = tokenizer or train_tokenizer(Corpus(some, None), config)
    except UserError as error:
        if every > 1 or text.sample:
            seen = f"not examined: in a sample of {len(some.source):,} pairs, {error}"
            return Finding(probe, expected, seen, "skipped")
        return Finding(probe, expected, str(error), "FAIL", "model.vocab_size and the size of the text")
    try:
        pairs = encode_pairs(tokenizer.encode, some, config.data.max_length, config.training.tokens_per_batch)
    except UserError as error:
        return Finding(probe, expected, str(error), "FAIL", "data.max_length or training.tokens_per_batch")
    return Encoded(tokenizer, pairs, every / text.share)


def of_tokens(encoded: Encoded, text: Text, config: Config) -> Iterator[Finding]:
    pairs, maximum = encoded.pairs, config.data.max_length
    where = f" ({len(pairs):,} pairs taken evenly from {text.sample or 'the text'})" if encoded.weight > 1 else ""
    dropped = pairs.n_dropped / (pairs.n_dropped + len(pairs))
    yield Finding(
        "lengths",
        f"data.max_length = {maximum} tokens leaves out few pairs",
        f"mean {pairs.lengths.mean():.1f}, 95 % at most {np.percentile(pairs.lengths, 95):.0f}, longest "
        f"{pairs.lengths.max()} tokens; {dropped:.1%} are longer and left out{where}",
        verdict(dropped, 0.02, 0.2),
        "data.max_length is too small; a vocabulary that spells words",
    )
    counts = np.bincount(np.concatenate([pairs.source.ids, pairs.target.ids]), minlength=encoded.tokenizer.vocab_size)
    rare = float((counts < 10).mean())
    yield Finding(
        "vocabulary",
        "most pieces occur ten times and more: the vector of a rare one is hardly trained",
        f"{rare:.0%} of {len(counts):,} pieces occur less often, {(counts == 0).mean():.0%} never{where}",
        verdict(rare, 0.5, 0.9),
        "model.vocab_size is too large for so little text; text unlike that of the " "tokenizer",
    )
    yield from unknown_tokens(encoded.tokenizer, text)


def unknown_tokens(tokenizer: Tokenizer, text: Text) -> Iterator[Finding]:
    rates = {}
    for name, held in {"training text": text.train, **text.held_out}.items():
        ids = [token for side in (held.source, held.target) for line in tokenizer.encode(side[:2000]) for token in line]
        rates[name] = ids.count(UNK) / max(1, len(ids))
    yield Finding(
        "unknown tokens",
        "hardly any, in what is held out as well",
        "; ".join(f"{name} {rate:.2%}" for name, rate in rates.items()),
        verdict(max(rates.values()), 0.005, 0.05),
        "held-out text in another script or normalisation than the training text: data.byte_fallback = true "
        "spells what is unknown; a tokenizer of another run",
    )


# Batches --------------------------------------------------------------------------------------------------------------

SOME_STEPS = 100


class Steps(NamedTuple):
    """What a step is made of, on average, and how many there are: in an epoch, and until training ends."""

    target_tokens: float
    target_positions: float
    padding: float
    in_epoch: float
    in_training: int


def steps_of(encoded: Encoded, config: Config) -> Steps:
    """Of some steps of the first epoch, as the batch plan has them."""
    training, epoch_plan = config.training, BatchPlan(
        encoded.pairs,
        config.training.tokens_per_batch,
        config.training.accumulation,
        config.training.seed,
        config.training.bucket_fineness,
    )
    epoch = epoch_plan.epoch(0)
    some = epoch[:SOME_STEPS]
    batches = [batch for indices in some for batch in epoch_plan.micro_batches(indices)]
    target_tokens = sum(batch.n_target_tokens for batch in batches)
    real = target_tokens + sum(batch.n_source_tokens for batch in batches)
    per_step = target_tokens / len(some)
    ends = min(training.steps, math.ceil(training.max_tokens / per_step)) if training.max_tokens else training.steps
    return Steps(
        per_step,
        sum(batch.target_out_ids.size for batch in batches) / len(some),
        1 - real / sum(batch.n_positions for batch in batches),
        len(epoch) * encoded.weight,
        ends,
    )


def of_batches(steps: Steps) -> Iterator[Finding]:
    yield Finding(
        "padding",
        "little: it costs as much as text",
        f"{steps.padding:.0%} of the positions of a batch",
        verdict(steps.padding, 0.3, 0.6),
        "few pairs of similar length: raise training.bucket_fineness, or "
        "lower training.tokens_per_batch if a batch is as large as the text",
    )
    epochs = steps.in_training / steps.in_epoch
    yield Finding(
        "epochs",
        "training sees all of the text at least once, and at most a few hundred times",
        f"a step has about {steps.target_tokens:,.0f} target tokens, an epoch {steps.in_epoch:,.0f} steps; "
        f"{steps.in_training:,} steps are {epochs:.1f} epochs",
        "ok" if 1 <= epochs <= 300 else "note",
        "training.steps or training.max_tokens; batches as large as the text",
    )
