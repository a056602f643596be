"""Translation (paper §5): sentence pairs, of text or of a prepared directory, and the BLEU of greedy translations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Collection, Sequence

from scratchformer import config as configs
from scratchformer.config import Config, DataConfig
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.preparation import MANIFEST, is_prepared
from scratchformer.tasks.task import Corpus, Task
from scratchformer.text.batches import encode_pairs
from scratchformer.text.corpora import Pairs, ParallelFiles, find_split, plain_or_gz, read_pairs, require_distinct
from scratchformer.text.tokenizer import Tokenizer
from scratchformer.training.trainer import Trainer, TrainingData

if TYPE_CHECKING:
    from scratchformer.preparation.prepared import Manifest


Prepared = tuple[Tokenizer, TrainingData]
"""The tokenizer and the ids of a prepared directory."""


def read_corpus(data: DataConfig) -> Corpus:
    """Read the sentence pairs that the configuration names."""
    if data.text:
        raise UserError(f"{data.text[0]}: --text is for language models; translators learn from pairs of files")
    languages = data.source_language, data.target_language
    if not data.names_text:
        if data.task == "translation" and languages != ("en", "de"):
            raise UserError(
                f"the bundled corpus is English-German (en, de), not {', '.join(languages)}: name text with --data, "
                "or with --train-source and --train-target"
            )
        from scratchformer.text import bundled

        return Corpus(bundled.read_text("train"), bundled.read_text("val"))
    if data.files:
        if not (data.train_source and data.train_target) or bool(data.val_source) != bool(data.val_target):
            raise UserError(
                "source and target files come in pairs: give --train-source with --train-target, "
                "and --val-source with --val-target"
            )
        train = ParallelFiles(Path(data.train_source), Path(data.train_target))
    else:
        train = find_split(Path(data.directory), "train", *languages)
    val = validation_files(data)
    by_side = data.task == "translation"  # other tasks read the source side only
    require_distinct(
        (f"{split} {side}" if by_side else split, path)
        for split, files in (("train", train), ("val", val))
        for side, path in (files._asdict().items() if files else ())
    )
    return Corpus(read_pairs(*train), read_pairs(*val)) if val else hold_out(read_pairs(*train))


VALIDATION = ("val", "valid", "validation", "dev")
"""Names that validation text may have in a directory."""


def validation_files(data: DataConfig) -> ParallelFiles | None:
    """The files to validate with that the configuration names, or that its directory has."""
    if data.files:
        return ParallelFiles(Path(data.val_source), Path(data.val_target)) if data.val_source else None
    directory, languages = Path(data.directory), (data.source_language, data.target_language)
    for split in VALIDATION:
        if any(plain_or_gz(directory / f"{split}.{language}") for language in languages):
            return find_split(directory, split, *languages)
    return None


HELD_OUT = 20, 1000
"""Without validation text, every 20th pair is held out to validate with, of more than 20,000 pairs about 1,000."""


def hold_out(pairs: Pairs) -> Corpus:
    """Divide the pairs into those to train on and those to validate with: the same ones each time.

    A sentence that is held out is not in the training text, even if the pairs have it several times.
    """
    n, (every, most) = len(pairs.source), HELD_OUT
    step = max(every, n // most)
    val = range(step - 1, n, step)
    held_out = {pairs.source[index] for index in val}
    train = [index for index in range(n) if pairs.source[index] not in held_out]
    if not val or not train:
        return Corpus(pairs, None)
    remark = f"no validation text is named: {len(val)} pairs, one in {step}, are held out to validate with"
    if same := n - len(val) - len(train):
        remark += f"; {same} more with the same sources are not trained on"
    return Corpus(chosen(pairs, train), chosen(pairs, val)._replace(n_empty=0), remark)


def chosen(pairs: Pairs, indices: Sequence[int]) -> Pairs:
    """The pairs with these indices."""
    source, target = ([side[index] for index in indices] for side in (pairs.source, pairs.target))
    numbers = [pairs.line_numbers[index] for index in indices]
    return Pairs(source, target, numbers, pairs.n_empty)


def encode_corpus(corpus: Corpus | Prepared, tokenizer: Tokenizer, config: Config) -> TrainingData:
    """Encode training and validation text; pairs longer than `data.max_length` are left out."""
    if not isinstance(corpus, Corpus):
        own, data = corpus
        if not own.same_pieces(tokenizer):
            raise UserError(f"{config.data.directory}: its vocabulary is not that of the run, or of its pretrained run")
        return data
    budget = config.training.tokens_per_batch
    train = encode_pairs(tokenizer.encode, corpus.train, config.data.max_length, budget)
    val = corpus.val and encode_pairs(tokenizer.encode, corpus.val, config.data.max_length, budget)
    n_empty = corpus.train.n_empty + (corpus.val.n_empty if corpus.val else 0)
    return TrainingData(train, val, corpus.val, n_empty, corpus.remark)


def train_tokenizer(corpus: Corpus | Prepared, config: Config) -> Tokenizer:
    """One vocabulary for both languages, learned from the training text (paper §5.1)."""
    if not isinstance(corpus, Corpus):
        return corpus[0]
    sentences = [*corpus.train.source, *corpus.train.target]
    return Tokenizer.train(sentences, config.model.vocab_size, config.data.byte_fallback, fewer=True)


# Languages ------------------------------------------------------------------------------------------------------------

LANGUAGE = re.compile(r".+\.(([A-Za-z]{2,3})([-_][A-Za-z]{2,4})?)")
NO_LANGUAGES = ("csv", "log", "md", "raw", "ref", "src", "tgt", "tok", "trg", "tsv", "txt")


def follow_names(config: Config, named: Collection[str] = ()) -> tuple[Config, str]:
    """Take the languages from the names of the training text's files -> configuration, a line on what changed

    named  settings that the user gave: they are not changed
    """
    data, languages = config.data, ("data.source_language", "data.target_language")
    if data.task != "translation" or data.text or not data.names_text or prepared_directory(data):
        return config, ""
    if data.files:
        found = [language_of(Path(path)) for path in (data.train_source, data.train_target)]
        found = found if all(found) else ["", ""]
    else:
        found = languages_in(Path(data.directory), data.source_language, data.target_language)
    changes = {key: each for key, each in zip(languages, found) if each and key not in named}
    changed = configs.with_settings(config, changes)
    source, target = changed.data.source_language, changed.data.target_language
    told = f"translates from {source} to {target}"
    if data.files and not all(found):
        told += ": the names of the files do not say; --set source_language=X --set target_language=Y does"
    elif changed != config and not data.files:
        told += f": --set source_language={target} --set target_language={source} turns it round"
    elif unread := sorted(languages_of(Path(data.directory)) - {source, target}) if data.directory else []:
        told += f", and does not read train.{', train.'.join(unread)}"
    return changed, told


def language_of(path: Path) -> str:
    """The language that a file's name ends with, as in train.en.gz, train.EN.txt or train.pt-BR, or ""."""
    found = LANGUAGE.fullmatch(path.name.removesuffix(".gz").removesuffix(".txt"))
    return found[1] if found and found[2].lower() not in NO_LANGUAGES else ""


def languages_of(directory: Path) -> set[str]:
    """The languages X of the files train.X in a directory."""
    return {language for path in directory.glob("train.*") if (language := language_of(path))}


def languages_in(directory: Path, source: str, target: str) -> list[str]:
    """The two languages of a directory's training text. If one of them is `source` or `target`, it stays that."""
    found, files = sorted(languages_of(directory)), sorted(directory.glob("train.*"))
    if not found and len(files) == 2 and not any(plain_or_gz(directory / f"train.{each}") for each in (source, target)):
        names = f"--train-source {files[0]} --train-target {files[1]} --set source_language=X --set target_language=Y"
        raise UserError(
            f"{directory}: the names of its files do not say the languages; instead of --data, give {names}"
        )
    if {source, target} <= set(found) or len(found) < 2:
        return [source, target]  # if it is not there, reading it says so
    if len(found) > 2:
        one, other = found[:2]
        there, choice = (
            ", ".join(f"train.{each}" for each in found),
            f"source_language={one} --set target_language={other}",
        )
        raise UserError(f"{directory}: has {there}; say which two with, for example, --set {choice}")
    return found[::-1] if source == found[1].lower() or target == found[0].lower() else found


# Prepared data --------------------------------------------------------------------------------------------------------


def prepared_directory(data: DataConfig) -> Path | None:
    """The directory of the configuration, if `scratchformer data` has prepared it and no files are named instead."""
    directory = Path(data.directory)
    if not data.directory or data.files:
        return None
    return directory if is_prepared(directory) else None


def has_validation_text(data: DataConfig) -> bool:
    """Return True if there are data to validate with. Prepared text may come without."""
    if data.task in ("parsing", "antecedent", "digits"):
        return True
    prepared = prepared_directory(data)
    if prepared:
        from scratchformer.preparation.prepared import read_manifest

        return "val" in read_manifest(prepared).splits
    return True  # what is not named is held out of the training text


def settled(manifest: Manifest) -> dict[str, Any]:
    """The settings that a preparation has fixed: every run on its text must have the same values."""
    options, (source, target) = manifest.options, manifest.options.languages
    vocabulary = {"model.vocab_size": options.vocab_size, "data.byte_fallback": options.byte_fallback}
    return vocabulary | {"data.source_language": source, "data.target_language": target}


def follow_preparation(config: Config, named: Collection[str] = ()) -> tuple[Config, str]:
    """Take vocabulary and languages from the prepared directory, if any -> configuration, a line on what changed

    named  settings that the user gave: they are not changed, and a contradiction is refused later
    """
    directory = prepared_directory(config.data)
    if not directory:
        return config, ""
    from scratchformer.preparation.prepared import read_manifest

    values = configs.flat(config)
    wanted = settled(read_manifest(directory))
    changes = {key: value for key, value in wanted.items() if value != values[key] and key not in named}
    told = ", ".join(f"{key}={value} (not {values[key]})" for key, value in changes.items())
    return configs.with_settings(config, changes), f"{directory}: as its preparation says, {told}" if told else ""


def open_prepared(directory: Path, config: Config) -> Prepared:
    """Tokenizer, ids and validation text of a prepared directory; all of them are compared with its checksums."""
    from scratchformer.preparation.prepared import PreparedCorpus

    corpus = PreparedCorpus(directory)
    manifest, data, values = corpus.manifest, config.data, configs.flat(config)
    contradicted = {key: value for key, value in settled(manifest).items() if value != values[key]}
    if contradicted:
        seen = ", ".join(f"{key}={values[key]}" for key in contradicted)
        wanted = " ".join(f"--set {key}={value}" for key, value in contradicted.items())
        wanted = wanted.replace("=True", "=true").replace("=False", "=false")
        raise UserError(
            f"{directory}: was not prepared with {seen}; a new run would take {wanted}, or another "
            "preparation, and one that goes on the directory that it began with"
        )
    train = corpus.pairs("train", data.max_length)
    val = corpus.pairs("val", data.max_length) if "val" in manifest.splits else None
    n_empty = manifest.clean["total"]["empty"] + (manifest.splits["val"].empty if val else 0)
    val_text = read_pairs(*corpus.text_files("val")) if val else None
    encoded = TrainingData(train, val, val_text, n_empty)
    if encoded.checksum != manifest.ids_crc32:
        raise UserError(f"{directory}: the checksum of its ids is not that in {MANIFEST}: prepare the text again")
    return corpus.tokenizer(), encoded


# The task -------------------------------------------------------------------------------------------------------------


class TranslationTask(Task):
    """From sentences of one language to those of another."""

    score_name, unit, command = "BLEU", "sentence pairs", "translate"
    train_tokenizer = staticmethod(train_tokenizer)
    encode = staticmethod(encode_corpus)

    def read(self, config: Config) -> Corpus | Prepared:
        directory = prepared_directory(config.data)
        return open_prepared(directory, config) if directory else read_corpus(config.data)

    def score(self, trainer: Trainer) -> dict[str, Any]:
        """Measure sacreBLEU of greedy translations of the validation text, of which each rank translates its share."""
        from scratchformer.text.bleu import corpus_scores, doubts

        assert trainer.data.val_text is not None and trainer.tokenizer is not None
        source, target, ranks = trainer.data.val_text.source, trainer.data.val_text.target, trainer.ranks
        where = trainer.threads, trainer.device
        translator = Translator(trainer.model, trainer.tokenizer, trainer.config.decoding.extra_length, *where)
        share = translator.translate(source[ranks.rank :: ranks.size], beam=1)
        translations = [""] * len(source)
        for rank, message in enumerate(ranks.all_gather_bytes(json.dumps(share).encode())):
            translations[rank :: ranks.size] = json.loads(message)
        language = trainer.config.data.target_language
        scores = corpus_scores(translations, target, language)
        remarks = {"remark": doubt} if (doubt := doubts(target, language)) else {}
        return {"bleu": scores.bleu, "signature": scores.bleu_signature} | remarks
