"""Probes of the data for `scratchformer doctor`: sentence pairs, examples of every task, vocabulary and batches."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Iterator, Literal, NamedTuple

import numpy as np

from scratchformer.config import Config, DataConfig, TrainingConfig
from scratchformer.doctor.findings import Finding, verdict
from scratchformer.errors import UserError
from scratchformer.tasks.task import Task
from scratchformer.tasks.translation import has_validation_text, prepared_directory, read_corpus, validation_files
from scratchformer.text import bundled
from scratchformer.text.batches import Batch, BatchPlan, Examples
from scratchformer.text.corpora import Block, Pairs, ParallelFiles, find_split, plain_or_gz, read_pairs, stream_blocks
from scratchformer.text.tokenizer import PAD, UNK
from scratchformer.training.schedule import planned_steps
from scratchformer.training.trainer import TrainingData

# Reading --------------------------------------------------------------------------------------------------------------


class Text(NamedTuple):
    """The sentence pairs of a configuration.

    held_out  name (val, test, ...) -> text that is not for training
    sample    which part of the training text `train` is, in words; "" if it is all of it
    fraction  how much of the training files that part is
    """

    train: Pairs
    held_out: dict[str, Pairs]
    sample: str = ""
    fraction: float = 1.0


LARGE_FILE_BYTES = 2**23
FIRST_LINES = 50_000
"""Of a file larger than LARGE_FILE_BYTES, only this many lines are read and encoded, which takes a second or two."""

MAX_BUNDLED_VOCABULARY = 5000
"""The bundled corpus is too small for a larger vocabulary; a configuration with one is meant for other text."""


def read_text(data: DataConfig) -> Text:
    """Read the text that the configuration names, or the bundled corpus. Raises UserError if it cannot be read."""
    if not data.names_text:
        splits = {name: bundled.read_text(name) for name in bundled.SPLITS}
        return Text(splits.pop("train"), splits)
    files = files_of(data, "train")
    large = any(file.is_file() and file.stat().st_size > LARGE_FILE_BYTES for file in files)
    if not large and not prepared_directory(data):
        corpus = read_corpus(data)
        return Text(corpus.train, read_held_out(data, corpus.val))
    train, fraction = first_pairs(files)
    held_out = validation_files(data)
    if prepared_directory(data):
        held_out = files_of(data, "val") if has_validation_text(data) else None
    val = read_pairs(*held_out) if held_out else None
    sample = f"the first {FIRST_LINES:,} lines" if fraction < 1 else ""
    return Text(train, read_held_out(data, val), sample, fraction)


def files_of(data: DataConfig, split: Literal["train", "val"]) -> ParallelFiles:
    """The source and the target file of a split. Raises UserError if the directory does not have them."""
    if data.directory and not data.train_source:
        return find_split(Path(data.directory), split, data.source_language, data.target_language)
    named = (data.train_source, data.train_target) if split == "train" else (data.val_source, data.val_target)
    return ParallelFiles(*map(Path, named))


def read_held_out(data: DataConfig, val: Pairs | None) -> dict[str, Pairs]:
    """The validation text, and the directory's files whose names begin with "test", if both languages are there."""
    found = {"val": val} if val else {}
    directory = Path(data.directory)
    for path in sorted(directory.glob(f"test*.{data.source_language}*")) if data.directory else ():
        name = path.name.removesuffix(".gz").removesuffix(f".{data.source_language}")
        files = ParallelFiles(*(directory / f"{name}.{end}" for end in (data.source_language, data.target_language)))
        if not data.train_source and plain_or_gz(files.target):
            found[name] = read_pairs(*files)
    return found


def first_pairs(files: ParallelFiles) -> tuple[Pairs, float]:
    """Read the pairs in the first lines of two files, and estimate what fraction of the files these lines are."""
    blocks = stream_blocks(files, FIRST_LINES)
    block = next(blocks, Block(files, b"", b"", 1))
    pairs = block.pairs()
    if not pairs.source:
        raise UserError(f"no sentence pairs in the first {FIRST_LINES} lines of {files.source} and {files.target}")
    if next(blocks, None) is None:
        return pairs, 1.0
    source = plain_or_gz(files.source) or files.source
    n_bytes = len(gzip.compress(block.source, 6) if source.suffix == ".gz" else block.source)
    return pairs, min(1.0, n_bytes / source.stat().st_size)


# Sentence pairs -------------------------------------------------------------------------------------------------------


def probe_pairs(text: Text) -> Iterator[Finding]:
    """Look for empty lines, repeated and copied pairs, held-out text, and lines that do not belong together."""
    train = text.train
    pairs = list(zip(train.source, train.target))
    n_pairs, n_lines = len(pairs), len(pairs) + train.n_empty
    where = f" ({text.sample})" if text.sample else ""

    yield Finding(
        "empty lines",
        "very few: they are left out, and many of them suggest that the files were made incorrectly",
        f"{train.n_empty:,} of {n_lines:,} lines{where}",
        verdict(train.n_empty / n_lines, 0.01, 0.2),
        "an extraction that lost one side",
    )
    repeated = 1 - len(set(pairs)) / n_pairs
    yield Finding(
        "repeated pairs",
        "few: a pair that occurs twice counts twice, in training and in the vocabulary",
        f"{repeated:.1%} of {n_pairs:,} pairs are repetitions{where}",
        verdict(repeated, 0.02, 0.25),
        "files that were concatenated twice; web text without deduplication",
    )
    copied = sum(source.strip() == target.strip() for source, target in pairs) / n_pairs
    yield Finding(
        "source equal to target",
        "very few: from a few per cent on, the model learns to copy instead of translating",
        f"{copied:.1%} of {n_pairs:,} pairs{where}",
        verdict(copied, 0.01, 0.1),
        "web text with untranslated lines; the same file given for both languages",
    )
    yield probe_held_out(text, set(pairs))
    yield probe_alignment(text)


def probe_held_out(text: Text, pairs: set[tuple[str, str]]) -> Finding:
    probe, sources, seen, largest = "held-out text in training", set(text.train.source), [], 0.0
    if not text.held_out:
        return Finding(probe, "none", "the configuration names no held-out text", "skipped")
    for name, held_out in text.held_out.items():
        n_pairs = sum(pair in pairs for pair in zip(held_out.source, held_out.target))
        n_sources = sum(source in sources for source in held_out.source)
        largest = max(largest, n_pairs / len(held_out.source))
        more = f" and {n_sources} sources" if n_sources > n_pairs else ""
        seen.append(f"{name}: {n_pairs} of {len(held_out.source)} pairs{more}")
    return Finding(
        probe,
        "none: scores on text that was used for training mean nothing",
        "; ".join(seen) + (f" (in {text.sample})" if text.sample else ""),
        verdict(largest, 0.001, 0.02),
        "text that was split although it contains repeated lines; training files that contain a test set",
    )


def probe_alignment(text: Text) -> Finding:
    """Compare lengths in characters. Their correlation is 0.9 in the corpora that we tried, and 0 where the lines of
    one side are shifted."""
    probe = "lines that belong together"
    expected = (
        "long sentences have long translations: lengths correlate by 0.6 or more, and few differ by a factor of 3"
    )
    source, target = (np.array([len(line) for line in side]) for side in (text.train.source, text.train.target))
    if len(source) < 100 or not (source.std() and target.std()):
        return Finding(probe, expected, "too few pairs, or all of the same length", "skipped")
    correlation = float(np.corrcoef(source, target)[0, 1])
    outliers = float((np.maximum(source / target, target / source) > 3).mean())
    return Finding(
        probe,
        expected,
        f"correlation {correlation:.2f}; {outliers:.2%} of the pairs differ by a factor of 3",
        max(verdict(-correlation, -0.6, -0.3), verdict(outliers, 0.02, 0.2), key=SEVERITY.index),
        "a line is missing in one file, which shifts all later lines; pairs that are not translations",
    )


SEVERITY = ["ok", "note", "FAIL"]

# Examples of any task -------------------------------------------------------------------------------------------------

SAMPLED_EXAMPLES = 20_000


def probe_examples(data: TrainingData, task: Task, config: Config, sampled: str) -> Iterator[Finding]:
    """Look at the number and the lengths of a task's examples, at rare pieces of its vocabulary and unknown tokens."""
    train, val = data.train, data.val
    dropped = train.n_dropped / (train.n_dropped + len(train))
    where = f" ({sampled})" if sampled else ""
    yield Finding(
        "examples",
        f"some to train on, others to validate with, and few longer than data.max_length = {config.data.max_length}",
        f"{len(train):,} {task.unit} to train on, {len(val) if val else 0:,} to validate with; mean length "
        f"{train.lengths.mean():.1f}, longest {train.lengths.max()}; {dropped:.1%} are longer and left out{where}",
        max(verdict(dropped, 0.02, 0.2), "ok" if val else "note", key=SEVERITY.index),
        "data.max_length is too small; a vocabulary so small that words are spelled letter by letter; no validation "
        "text is named, so nothing tells when to stop",
    )
    left_out = []
    if config.data.task != "translation":
        left_out.append("repeated examples, and held-out ones in training (only sentence pairs are searched for them)")
    if config.model.reads_text:
        n_sides = 2 if config.data.task == "translation" else 1  # with one vocabulary
        ids = {name: ids_in(part, n_sides) for name, part in {"training text": train, "val": val}.items() if part}
        if config.model.n_classes or config.training.pretrained:
            left_out.append("rare pieces (the vocabulary is that of other text)")
        else:
            has_bytes = config.data.byte_fallback or config.data.task == "language-model"
            yield judge_vocabulary(ids["training text"], config.model.vocab_size, where, has_bytes)
        yield judge_unknown_tokens({name: float((each == UNK).mean()) for name, each in ids.items()})
    else:
        left_out.append("vocabulary and unknown tokens (there are no words)")
    if left_out:
        yield Finding("left out", "checks of the data that do not suit this task", "; ".join(left_out), "skipped")


def ids_in(examples: Examples, n_sides: int) -> np.ndarray:
    """The ids, without padding, in the first inputs of at most SAMPLED_EXAMPLES examples, spread evenly over all."""
    indices = np.arange(0, len(examples), -(-len(examples) // SAMPLED_EXAMPLES))
    n = examples_at_once(examples)
    batches = (examples.batch(indices[start : start + n]) for start in range(0, len(indices), n))
    return np.concatenate([ids[ids != PAD] for batch in batches for ids in batch.inputs[:n_sides]])


def judge_vocabulary(ids: np.ndarray, vocab_size: int, where: str, has_bytes: bool) -> Finding:
    """ids: of the training text; where: which part of it that is, in words; has_bytes: 256 pieces are single bytes"""
    counts = np.sort(np.bincount(ids, minlength=vocab_size))[256 * has_bytes :]  # bytes are for what nobody has seen
    rare = float((counts < 10).mean())
    return Finding(
        "vocabulary",
        "most pieces occur ten times or more: the embedding of a rare piece gets little training",
        f"{rare:.0%} of {len(counts):,} pieces occur less often, {(counts == 0).mean():.0%} never{where}",
        verdict(rare, 0.5, 0.9),
        "model.vocab_size is too large for so little text; the text differs from that of the tokenizer",
    )


def judge_unknown_tokens(rates: dict[str, float]) -> Finding:
    """rates: name of a text -> the share of its tokens that are unknown"""
    return Finding(
        "unknown tokens",
        "very few, in held-out text too",
        "; ".join(f"{name} {rate:.2%}" for name, rate in rates.items()),
        verdict(max(rates.values()), 0.005, 0.05),
        "held-out text in another script or Unicode normalization than the training text (data.byte_fallback = true "
        "encodes unknown characters as bytes); a tokenizer of another run",
    )


# Batches --------------------------------------------------------------------------------------------------------------

POSITIONS_AT_ONCE = 2**15
SAMPLED_STEPS = 100


def examples_at_once(examples: Examples) -> int:
    return max(1, POSITIONS_AT_ONCE // examples.max_length)


def sample_batch(examples: Examples) -> Batch:
    """A batch of at most 100 examples, spread evenly over all."""
    n = min(100, examples_at_once(examples))
    return examples.batch(np.arange(0, len(examples), -(-len(examples) // n)))


def plan_of(examples: Examples, training: TrainingConfig) -> BatchPlan:
    """The batches of training."""
    settings = training.tokens_per_batch, training.accumulation, training.seed, training.bucket_fineness
    return BatchPlan(examples, *settings)


def probe_batches(examples: Examples, config: Config, scale: float) -> tuple[int, list[Finding]]:
    """Look at the padding, and at how many times training goes through the text.

    scale  how many examples there are in all for each of these
    -> the number of steps of the training, the findings
    """
    plan = plan_of(examples, config.training)
    epoch = plan.epoch(0)
    batches = [batch for indices in epoch[:SAMPLED_STEPS] for batch in plan.micro_batches(indices)]
    two_sides = config.model.architecture == "encoder-decoder"
    n_tokens = sum(batch.n_source_tokens + two_sides * batch.n_target_tokens for batch in batches)
    padding = 1 - n_tokens / sum(batch.n_positions for batch in batches)
    total, per_epoch = planned_steps(config, examples.n_targets, len(epoch)), len(epoch) * scale
    epochs = total / per_epoch
    return total, [
        Finding(
            "padding",
            "little: a position of padding takes as much time as a real token",
            f"{padding:.0%} of the positions of a batch",
            verdict(padding, 0.3, 0.6),
            "few examples of similar length: raise training.bucket_fineness, or lower training.tokens_per_batch if one "
            "batch holds most of the text",
        ),
        Finding(
            "epochs",
            "training sees all of the text at least once, and at most a few hundred times",
            f"a step has about {examples.n_targets / len(epoch):,.0f} target tokens, an epoch {per_epoch:,.0f} "
            f"steps; {total:,} steps are {epochs:.1f} epochs",
            "ok" if 1 <= epochs <= 300 else "note",
            "check training.steps and training.max_tokens; batches as large as the text",
        ),
    ]
