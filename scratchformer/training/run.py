"""A run is a directory: `config.toml`, `tokenizer.model`, `checkpoints/`, `log.jsonl` and `figures/`."""

from __future__ import annotations

import json
import math
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Collection, NamedTuple
from weakref import WeakValueDictionary, finalize

from scratchformer import config as configs
from scratchformer.config import Config, DataConfig
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.files import replace_text
from scratchformer.locks import lock
from scratchformer.nn.transformer import Transformer
from scratchformer.text import grammar
from scratchformer.text.batches import EncodedPairs, encode_pairs
from scratchformer.text.corpora import Pairs, find_split, read_pairs
from scratchformer.text.prepared import Manifest, PreparedCorpus, crc32_of_ids, is_prepared, read_manifest
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training import checkpoints
from scratchformer.training.checkpoints import Checkpoint, CheckpointDirectory


class Hold:
    """A directory that this process has for itself, as long as this object is there."""

    def __init__(self, path: Path) -> None:
        finalize(self, os.close, lock(path, "another process is training in this run"))


HELD: WeakValueDictionary[Path, Hold] = WeakValueDictionary()
"""What this process has, by whichever object."""


class RunDirectory:
    """The paths of a run, its log, and the scores it has reached."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.tokenizer_file = path / "tokenizer.model"
        self.log_file = path / "log.jsonl"
        self.evaluations_file = path / "evaluations.jsonl"
        self.figures = path / "figures"
        self.checkpoints = CheckpointDirectory(path / "checkpoints")
        self.hold: Hold | None = None

    def require_free(self) -> None:
        """Raises UserError if the directory already holds a run, or nothing can be written there."""
        if self.config_file.exists():
            raise UserError(f"{self.path}: holds a run already; go on with "
                            f"train --resume {shlex.quote(str(self.path))}, or choose another --out")
        if self.checkpoints.steps():
            raise UserError(f"{self.path}: holds checkpoints already, though no config.toml; choose another --out")
        try:
            self.checkpoints.directory.mkdir(parents=True, exist_ok=True)
            self.figures.mkdir(exist_ok=True)
            probe = self.path / ".probe"
            probe.write_bytes(b"\0" * 4096)
            probe.unlink()
        except OSError as error:
            raise UserError(f"{self.path}: cannot write the run's directory: {error.strerror}") from None

    def keep_others_out(self) -> None:
        """Have the run for this process alone, while this object is there.

        Raises UserError if another process trains in it.
        """
        path = self.path.resolve()
        self.hold = HELD[path] = HELD.get(path) or Hold(path)

    def let_others_in(self) -> None:
        self.hold = None

    def write_config(self, config: Config) -> None:
        replace_text(self.config_file, configs.to_toml(config))

    def require(self) -> None:
        """Raises UserError unless a run is here."""
        if not self.config_file.exists():
            raise UserError(f"{self.path}: no run here (config.toml is missing)")

    def log(self, event: str, values: dict[str, Any]) -> None:
        """Append one line of JSON to the log of the training."""
        append_entry(self.log_file, {"event": event, **values})

    def read_log(self, event: str) -> list[dict[str, Any]]:
        """All entries of one kind, oldest first."""
        return [entry for entry in read_entries(self.log_file) if entry.get("event") == event]

    def record_evaluation(self, scores: dict[str, Any]) -> None:
        """Append the scores of a test set; `report` shows them."""
        append_entry(self.evaluations_file, scores)

    def read_evaluations(self) -> list[dict[str, Any]]:
        """What `record_evaluation` was given, oldest first."""
        return read_entries(self.evaluations_file) if self.evaluations_file.exists() else []

    def remove_unfinished(self) -> None:
        """Remove what a killed process had begun to write."""
        for path in [*self.path.glob(".*.partial"), *self.checkpoints.directory.glob(".*.partial"),
                     *self.path.glob(".probe")]:
            path.unlink(missing_ok=True)

    def forget_after(self, step: int) -> None:
        """Drop log entries of steps that no checkpoint knows: they will be taken again."""
        if not self.log_file.exists():
            return
        kept = [line for line in self.log_file.read_text(encoding="utf-8").split("\n")
                if parse_entry(line).get("step", math.inf) <= step]
        replace_text(self.log_file, "".join(line + "\n" for line in kept))


def append_entry(path: Path, entry: dict[str, Any]) -> None:
    """Append one line of JSON, on a line of its own also where a crash has cut the last one short.

    Raises UserError if it cannot be written.
    """
    try:
        with open(path, "a+b") as file:
            if file.tell() and last_byte(file) != b"\n":
                file.write(b"\n")
            file.write(json.dumps(entry).encode() + b"\n")
    except OSError as error:
        raise UserError(f"{path}: cannot write: {error.strerror}") from None


def last_byte(file: BinaryIO) -> bytes:
    file.seek(-1, os.SEEK_END)
    return file.read()


def read_entries(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of JSON objects. A last line that a crash cut short is passed over."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', 'not UTF-8')}") from None
    return [entry for entry in map(parse_entry, lines) if entry]


def parse_entry(line: str) -> dict[str, Any]:
    """An entry of the log; {} for an empty line, and for one that a crash cut short."""
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return {}
    return entry if isinstance(entry, dict) else {}


# Data -----------------------------------------------------------------------------------------------------------------


class Corpus(NamedTuple):
    """Text to train on and text to validate with; the latter may be missing."""

    train: Pairs
    val: Pairs | None


def read_corpus(data: DataConfig) -> Corpus:
    """The sentence pairs that the configuration names. Raises UserError for whatever is wrong with the files."""
    if any((data.train_source, data.train_target, data.val_source, data.val_target)):
        if not (data.train_source and data.train_target) or bool(data.val_source) != bool(data.val_target):
            raise UserError("source and target files come in pairs: give --train-source with --train-target, "
                            "and --val-source with --val-target")
        val = read_pairs(Path(data.val_source), Path(data.val_target)) if data.val_source else None
        return Corpus(read_pairs(Path(data.train_source), Path(data.train_target)), val)
    if data.directory:
        directory, languages = Path(data.directory), (data.source_language, data.target_language)
        return Corpus(read_pairs(*find_split(directory, "train", *languages)),
                      read_pairs(*find_split(directory, "val", *languages)))
    splits = grammar.generate()
    return Corpus(pairs_of(splits["train"]), pairs_of(splits["val"]))


def pairs_of(examples: list[grammar.Example]) -> Pairs:
    return Pairs([example.source for example in examples], [example.target for example in examples],
                 list(range(1, len(examples) + 1)), 0)


class TrainingData(NamedTuple):
    """What the loop runs on: encoded pairs, and the validation text for BLEU."""

    train: EncodedPairs
    val: EncodedPairs | None
    val_text: Pairs | None
    n_empty: int                            # pairs left out because a side is blank
    known_checksum: int | None = None       # of a prepared corpus: its ids are not read for it

    @property
    def checksum(self) -> int:
        """CRC-32 of all ids as int32: a run cannot go on with other text."""
        if self.known_checksum is not None:
            return self.known_checksum
        crc = 0
        for pairs in (self.train, self.val):
            if pairs is not None:
                crc = crc32_of_ids(pairs.target.ids, crc32_of_ids(pairs.source.ids, crc))
        return crc


def encode_corpus(corpus: Corpus, tokenizer: Tokenizer, config: Config) -> TrainingData:
    budget = config.training.tokens_per_batch
    train = encode_pairs(tokenizer.encode, corpus.train, config.data.max_length, budget)
    val = corpus.val and encode_pairs(tokenizer.encode, corpus.val, config.data.max_length, budget)
    n_empty = corpus.train.n_empty + (corpus.val.n_empty if corpus.val else 0)
    return TrainingData(train, val, corpus.val, n_empty)


def train_tokenizer(corpus: Corpus, config: Config) -> Tokenizer:
    """One vocabulary for both languages, learnt from the training text (paper §5.1)."""
    return Tokenizer.train([*corpus.train.source, *corpus.train.target], config.model.vocab_size,
                           config.data.byte_fallback)


# Prepared data --------------------------------------------------------------------------------------------------------


def prepared_directory(data: DataConfig) -> Path | None:
    """The directory of the configuration, if `scratchformer data` has prepared it and no files are named instead."""
    by_name = any((data.train_source, data.train_target, data.val_source, data.val_target))
    directory = Path(data.directory)
    return directory if data.directory and not by_name and is_prepared(directory) else None


def settled(manifest: Manifest) -> dict[str, Any]:
    """The settings that a preparation has decided: they cannot be others in a run on it."""
    source, target = manifest.languages
    return {"model.vocab_size": manifest.vocab_size, "data.byte_fallback": manifest.byte_fallback,
            "data.source_language": source, "data.target_language": target}


def follow_preparation(config: Config, named: Collection[str] = ()) -> tuple[Config, str]:
    """The configuration with what its prepared directory, if it has one, has settled -> it, a line on what that changes

    named  the settings that the user gave himself, which are left as they are: if they contradict, the run is refused
    """
    directory = prepared_directory(config.data)
    if not directory:
        return config, ""
    values = configs.flat(config)
    changes = {key: value for key, value in settled(read_manifest(directory)).items()
               if value != values[key] and key not in named}
    told = ", ".join(f"{key}={value} (not {values[key]})" for key, value in changes.items())
    return configs.with_settings(config, changes), f"{directory}: prepared with {told}" if told else ""


def open_prepared(directory: Path, config: Config) -> tuple[Tokenizer, TrainingData]:
    """Tokenizer and ids of a prepared directory; only the validation text is read.

    Raises UserError if it is not whole, or was prepared with other settings than the configuration's.
    """
    corpus = PreparedCorpus(directory)
    manifest, data, values = corpus.manifest, config.data, configs.flat(config)
    contradicted = {key: value for key, value in settled(manifest).items() if value != values[key]}
    if contradicted:
        seen = ", ".join(f"{key}={values[key]}" for key in contradicted)
        wanted = " ".join(f"--set {key}={str(value).lower() if value is True or value is False else value}"
                          for key, value in contradicted.items())
        raise UserError(f"{directory}: was not prepared with {seen}; a new run would take {wanted}, or another "
                        "preparation, and one that goes on the directory that it began with")
    train = corpus.pairs("train", data.max_length)
    val = corpus.pairs("val", data.max_length) if corpus.has("val") else None
    if manifest.longest > config.training.tokens_per_batch:
        budget = f"tokens_per_batch = {config.training.tokens_per_batch}"
        raise UserError(f"{directory}: its longest pair has {manifest.longest} tokens and does not fit into a batch of "
                        f"{budget}: raise that, or prepare the text again with --max-length "
                        f"{config.training.tokens_per_batch}")
    n_empty = manifest.clean["total"]["empty"] + (manifest.splits["val"].empty if val else 0)
    val_text = read_pairs(*corpus.text_files("val")) if val else None
    return corpus.tokenizer(), TrainingData(train, val, val_text, n_empty, manifest.ids_crc32)


# Trained models -------------------------------------------------------------------------------------------------------


def load_run(path: str | Path, checkpoint: str | Path | None = None, dtype: str = "float32") -> Translator:
    """The model of a run, ready to translate: `load_run("runs/tiny").translate(["A sentence ."])`.

    checkpoint: "average", "best", "last" or a file; None takes the first of these that exists.
    Raises UserError if there is no run, or its files are damaged or do not belong together.
    """
    file, trained, tokenizer = read_trained(RunDirectory(Path(path)), checkpoint)
    model = Transformer(trained.config.model, seed=0, dtype=dtype)
    checkpoints.copy_into(trained.weights, model.store.named_views(model.store.data), file)
    return Translator(model, tokenizer, trained.config.decoding.extra_length)


def read_trained(run: RunDirectory, checkpoint: str | Path | None) -> tuple[Path, Checkpoint, Tokenizer]:
    """The checkpoint of a run that `load_run` takes: its file, what it holds (with the run's configuration), and the
    tokenizer. Raises UserError as `load_run` does."""
    run.require()
    config = configs.load(run.config_file)
    file = checkpoint_file(run.checkpoints, checkpoint)
    trained = checkpoints.load(file)
    configs.require_same(trained.config, config, file)
    tokenizer = Tokenizer.load(run.tokenizer_file)
    if tokenizer.vocab_size != config.model.vocab_size:
        raise UserError(f"{run.tokenizer_file}: {tokenizer.vocab_size} pieces, "
                        f"but model.vocab_size={config.model.vocab_size} in {run.config_file}")
    return file, replace(trained, config=config), tokenizer


def checkpoint_file(directory: CheckpointDirectory, wanted: str | Path | None) -> Path:
    if wanted is None:
        return directory.preferred()
    named = {"average": [directory.average], "best": [directory.best], "last": directory.steps()[-1:]}
    for path in named.get(str(wanted), [Path(wanted)]):
        if path.exists():
            return path
    raise UserError(f"{directory.directory}: there is no checkpoint {str(wanted)!r}")
