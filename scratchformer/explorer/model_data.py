"""What the explorer's page needs to know about a run: a description, which becomes JSON, and all weights as bytes."""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from scratchformer import config as configs
from scratchformer.config import Config, DataConfig, DecodingConfig
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError, printable
from scratchformer.experiments.heads import sentence_attention
from scratchformer.experiments.training_log import Entry, Log, is_number, read_log
from scratchformer.files import user_error
from scratchformer.nn.sizes import parameter_counts
from scratchformer.preparation.prepared import PreparedCorpus
from scratchformer.tasks.translation import prepared_directory
from scratchformer.text.bundled import Example
from scratchformer.text.corpora import find_split, read_lines
from scratchformer.text.tokenizer import EOS, N_SPECIALS, Tokenizer
from scratchformer.training import checkpoints
from scratchformer.training.run import RunDirectory, checkpoint_file, load_run, require_task

FORMAT = 1
MOST_PARAMETERS = 16_000_000
"""JavaScript on one core does about a billion multiplications a second. With so many parameters, one step of a beam of
4 hypotheses of 25 pieces takes about 2 seconds, and the page has 85 MB: nobody would wait for more."""

MOST_LOGGED = 400  # entries of the log that the page draws
MOST_SNAPSHOTS = 12

EXAMPLES = [
    "The animal did not cross the street because it was too tired.",
    "The animal did not cross the street because it was too narrow.",
    "The animal did not cross the street because it was too wide.",
    "The suitcase does not fit into the car because it is too small.",
    "The suitcase does not fit into the car because it is too big.",
    "My neighbour cooked the rice that Paul bought.",
    "Every day the sick children played with the dogs.",
    "If the queen is hungry, she sits on the bench.",
    "The book has five hundred and seventy-nine pages.",
    "If the child is sad, the cows sleep in front of the door.",
    "Thomas turned off every lamp although the cows did not follow the black taxi.",
]
"""Sentences for a model of the bundled corpus: minimal pairs, in which one adjective decides what "it" stands for, and
so whether German has er, sie or es; then a relative clause, a verb in second place, a condition, and a number. The
model in data/ gets "wide" wrong, and translates the last two otherwise with a beam of 1, and with α = 0."""

TRIALS = [
    (EXAMPLES[-2], "set the beam to 1: does the verb still fit more than one cow (schlafen, not schläft)?"),
    (EXAMPLES[-1], "set α to 0: is the whole sentence still translated?"),
]
"""What the page suggests to do with some of these sentences."""

N_EXAMPLES, LONGEST_EXAMPLE = 6, 120
"""How many sentences of other text are offered, and their greatest length in characters."""


def describe(
    run: RunDirectory, checkpoint: str | None = None, sentences: Sequence[str] = ()
) -> tuple[dict[str, Any], bytes]:
    """The model of a run -> its description, and its parameters one after the other as float32, little-endian

    checkpoint  as for `load_run`
    sentences   examples of the user, which come before ours

    The description holds the configuration, the name, shape and offset (in floats) of each parameter, the tokenizer,
    the schedule and label smoothing, a thinned log, one translation at several steps of the training, example
    sentences, and what to try with some of them.

    Raises UserError if there is no run, it is damaged, its model is too large or of a kind that the page does not know,
    or its tokenizer was trained with other options than ours.
    """
    require_task(run, "translation")
    config = configs.load(run.config_file)
    require_engine_for(run, config)
    file = checkpoint_file(run.checkpoints, checkpoint)
    translator = load_run(run.path, file)
    store = translator.model.store
    weights = store.data.astype("<f4").tobytes()
    log, record, ours = read_log(run), read_record(run.path / "replay.json"), examples(config.data)
    description = {
        "format": FORMAT,
        "caption": caption(run, config, file, weights, record),
        "config": asdict(config.model),
        "decoding": asdict(config.decoding),
        "parameters": list(layout(store.named_views(store.data))),
        "tokenizer": describe_tokenizer(translator.tokenizer, run.tokenizer_file),
        "languages": {"source": config.data.source_language, "target": config.data.target_language},
        "schedule": {
            "d_model": config.model.d_model,
            "warmup": config.training.warmup,
            "lr_factor": config.training.lr_factor,
            "steps": config.training.steps,
        },
        "label_smoothing": config.training.eps_ls,
        "log": thinned(log) or record.get("log"),
        "replay": record.get("replay") or replay(run, config, log, ours[0]),
        "examples": list(dict.fromkeys([*sentences, *ours])),
        "trials": [trial for trial in TRIALS if trial[0] in ours],
    }
    return description, weights


def require_engine_for(run: RunDirectory, config: Config) -> None:
    """Raises UserError if the page's engine cannot run the model, or would be too slow."""
    if config.model.activation != "relu":
        raise UserError(f"{run.path}: model.activation={config.model.activation}; the explorer's page knows only relu")
    n_parameters = sum(parameter_counts(config.model).values())
    if n_parameters > MOST_PARAMETERS:
        raise UserError(
            f"{run.path}: its model has {n_parameters:,} parameters; the explorer's page takes at most "
            f"{MOST_PARAMETERS:,}"
        )


def layout(views: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    offset = 0
    for name, view in views.items():
        yield {"name": name, "shape": list(view.shape), "offset": offset}
        offset += view.size


# The caption ----------------------------------------------------------------------------------------------------------


def caption(run: RunDirectory, config: Config, file: Path, weights: bytes, record: dict[str, Any]) -> str:
    """Whose weights these are, for the line under every figure."""
    step = checkpoints.progress_of(file).step
    bleu = bleu_of(run, file, step)
    if bleu is None and record.get("weights_crc32") == zlib.crc32(weights):
        bleu = record["bleu"]
    score = "" if bleu is None else f", BLEU {bleu:.1f}"
    return printable(f"weights of {run.path.resolve().name}, {text_name(config.data)}, {step:,} steps{score}")


def bleu_of(run: RunDirectory, file: Path, step: int) -> float | None:
    """The newest BLEU that `scratchformer evaluate` recorded for this checkpoint."""
    for entry in reversed(run.read_evaluations()):
        if (entry.get("checkpoint"), entry.get("step")) == (file.name, step) and is_number(entry.get("bleu")):
            return entry["bleu"]
    return None


def text_name(data: DataConfig) -> str:
    if data.files:
        return Path(data.train_source or data.files[0]).name
    return Path(data.directory).name if data.directory else "bundled corpus"


# The tokenizer --------------------------------------------------------------------------------------------------------

NORMAL, UNKNOWN, CONTROL, BYTE, BPE = 1, 2, 3, 6, 2
"""Numbers of sentencepiece_model.proto: kinds of pieces, and the kind of model."""


def describe_tokenizer(tokenizer: Tokenizer, path: Path) -> dict[str, Any]:
    """What byte-pair encoding needs: pieces as labels, their scores and types, and the text that UNK is decoded as.

    sentencepiece shows how a model was trained only with the package protobuf, so the serialized model is read here.

    Raises UserError for a model that `Tokenizer.train` would not make, with other rules for spaces, for example: the
    page knows no other.
    """
    try:
        numbers, messages = zip(*((number, dict(fields(value))) for number, value in fields(tokenizer.serialized)))
        *pieces, trainer, normalizer = messages
        scores = [struct.unpack("<f", piece[2])[0] for piece in pieces]
        types = [piece.get(3, NORMAL) for piece in pieces]
        unk_surface = trainer.get(44, " \u2047 ".encode()).decode("utf-8")
        is_ours = (
            numbers == (1,) * tokenizer.vocab_size + (2, 3)
            and trainer.get(3) == BPE
            and not trainer.get(24)  # treat_whitespace_as_suffix
            and not normalizer.get(2)  # precompiled_charsmap: of Unicode normalization
            # add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces
            and all(normalizer.get(number, 1) for number in (3, 4, 5))
            and types[:N_SPECIALS] == [CONTROL, CONTROL, CONTROL, UNKNOWN]
            and {*types[N_SPECIALS:]} <= {NORMAL, BYTE}
            and all(map(math.isfinite, scores))
        )
    except (AttributeError, LookupError, TypeError, ValueError, struct.error):  # sentencepiece does not write it so
        is_ours = False
    if not is_ours:
        raise UserError(f"{path}: trained with other options than ours; the explorer's page knows no other tokenizer")
    return {
        "pieces": tokenizer.pieces(range(tokenizer.vocab_size)),
        "scores": scores,
        "types": types,
        "unk_surface": unk_surface,
    }


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message that sentencepiece could read: number -> an integer, or bytes."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            yield number, message[position : position + size]
            position += size


# Log and replay -------------------------------------------------------------------------------------------------------


def thinned(log: Log) -> dict[str, list[list[float]]] | None:
    """At most MOST_LOGGED entries of each kind, the first and the last among them; None if no step is logged.

    steps        [step, training loss, learning rate, real target tokens up to here]; losses in nats per target token
    validations  [step, loss]
    """
    if not log.steps:
        return None
    return {
        "steps": columns(log.steps, "step", "loss", "learning_rate", "all_target_tokens"),
        "validations": columns(log.validations, "step", "loss"),
    }


def columns(entries: Sequence[Entry], *names: str) -> list[list[float]]:
    return [[rounded(entry[name]) for name in names] for entry in spread(entries, MOST_LOGGED)]


def spread(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of the items, evenly spread, the first and the last among them."""
    kept = np.linspace(0, len(items) - 1, min(most, len(items))).round().astype(int)
    return [items[index] for index in kept]


def rounded(value: float) -> float:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def replay(run: RunDirectory, config: Config, log: Log, sentence: str) -> dict[str, Any] | None:
    """A sentence at up to MOST_SNAPSHOTS checkpoints of single steps; None if there are fewer than two, or if the
    model's learned positions end before the sentence or its translation does.

    The loss of a snapshot is the validation loss that was logged after this step, or None.
    """
    files = spread(run.checkpoints.steps(), MOST_SNAPSHOTS)
    if len(files) < 2:
        return None
    losses = {entry["step"]: entry["loss"] for entry in log.validations}
    last = load_run(run.path, files[-1])
    if not has_positions(last, sentence):
        return None
    [target] = last.translate([sentence], config.decoding.beam, config.decoding.alpha)
    if not has_positions(last, target):
        return None
    head = sharpest_head(cross_attention(last, sentence, target))
    snapshots = [
        snapshot(load_run(run.path, file), config.decoding, sentence, target, head, step, losses.get(step))
        for file, step in zip(files, (checkpoints.progress_of(file).step for file in files))
    ]
    return {
        "caption": "the checkpoints of this run",
        "same_weights": True,
        "sentence": sentence,
        "attention": head_id(head),
        "snapshots": snapshots,
    }


def has_positions(translator: Translator, text: str) -> bool:
    """Whether the model has a position for every piece of a text and for </s>."""
    config, [ids] = translator.model.config, translator.tokenizer.encode([text])
    return config.positions != "learned" or len(ids) < config.max_positions


def snapshot(
    translator: Translator,
    decoding: DecodingConfig,
    sentence: str,
    target: str,
    head: tuple[int, int],
    step: int,
    loss: float | None,
) -> dict[str, Any]:
    """What the model does with a sentence after a step of its training.

    translation    of the sentence, as the model finds it
    weights        of one cross-attention head, T rows of S numbers, while the model reads the sentence and `target`,
                   which is the same for all steps, so that the maps can be compared
    rows, columns  the pieces that are being written (T), and those of the sentence (S), </s> included
    """
    [translation] = translator.translate([sentence], decoding.beam, decoding.alpha)
    weights = cross_attention(translator, sentence, target)[head]
    source_ids, target_ids = translator.tokenizer.encode([sentence, target])
    return {
        "step": step,
        "loss": None if loss is None else rounded(loss),
        "translation": translation,
        "weights": [[round(float(weight), 3) for weight in row] for row in weights],
        "rows": translator.tokenizer.pieces([*target_ids, EOS]),
        "columns": translator.tokenizer.pieces([*source_ids, EOS]),
    }


def cross_attention(translator: Translator, sentence: str, target: str) -> np.ndarray:
    """The weights of every cross-attention head while the model reads a sentence and its translation: (N, H, T, S)"""
    return sentence_attention(translator, Example(sentence, target, "", "", [], None)).cross


def sharpest_head(weights: np.ndarray) -> tuple[int, int]:
    """The layer and the head whose largest weight in a row is largest, on average over the rows of (N, H, T, S)."""
    sharpness = weights.max(axis=-1).mean(axis=-1)
    layer, head = np.unravel_index(sharpness.argmax(), sharpness.shape)
    return int(layer), int(head)


def head_id(head: tuple[int, int]) -> str:
    """The name of a cross-attention head on the page."""
    return f"cross.{head[0]}.{head[1]}"


RECORD = {
    "weights_crc32": int,
    "bleu": float,
    "log": {"steps": [(float,) * 4], "validations": [(float,) * 2]},
    "replay": {
        "caption": str,
        "same_weights": bool,
        "sentence": str,
        "attention": str,
        "snapshots": [
            {"step": int, "loss": float, "translation": str, "weights": [[float]], "rows": [str], "columns": [str]}
        ],
    },
}
"""The form of replay.json, which benchmarks/training_replay.py writes beside a model. The elements of a list have one
form; a tuple stands for a list of its length.

weights_crc32, bleu  the CRC-32 of the model's parameters as float32, and its BLEU, which belongs to no other weights
log                  as `thinned` returns it; replay: as `replay` returns it
same_weights         whether the recorded training ended with the weights of this model
"""


def read_record(path: Path) -> dict[str, Any]:
    """What was recorded of a training; {} if there is no such file. Raises UserError if it is damaged."""
    if not path.exists():
        return {}
    if not path.is_file():  # a pipe would be waited for
        raise UserError(f"{path}: not a plain file")
    with user_error(path, "cannot read"):
        content = path.read_bytes()
    try:
        record = json.loads(content)
        is_sound = has_form(record, RECORD) and all(map(fits, record["replay"]["snapshots"]))
    except (ValueError, RecursionError):
        is_sound = False
    if not is_sound:
        raise UserError(f"{path}: damaged, or no record of a training")
    return record


def has_form(value: Any, form: Any) -> bool:
    """Whether a value of JSON has a form like RECORD."""
    if isinstance(form, dict):
        return isinstance(value, dict) and all(name in value and has_form(value[name], form[name]) for name in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(has_form(each, form[0]) for each in value)
    if isinstance(form, tuple):
        return isinstance(value, list) and len(value) == len(form) and all(map(has_form, value, form))
    return is_number(value) if form is float else type(value) is form


def fits(snapshot: dict[str, Any]) -> bool:
    """Whether the weights have a row and a column for each piece."""
    shape = {len(row) for row in snapshot["weights"]}
    return len(snapshot["weights"]) == len(snapshot["rows"]) and shape == {len(snapshot["columns"])}


# Examples -------------------------------------------------------------------------------------------------------------


def examples(data: DataConfig) -> list[str]:
    """Two or more sentences to try: ours for the bundled corpus, else the first short ones of the validation text."""
    if not data.names_text:
        return EXAMPLES
    lines = (" ".join(line.split()) for line in validation_sentences(data))
    found = list(islice((line for line in lines if 0 < len(line) <= LONGEST_EXAMPLE), N_EXAMPLES))
    return found if len(found) >= 2 else EXAMPLES


def validation_sentences(data: DataConfig) -> list[str]:
    """The source side of the validation text; [] if it is not there any more, or cannot be read."""
    try:
        if directory := prepared_directory(data):
            file = PreparedCorpus(directory).text_files("val").source
        elif data.files:
            file = Path(data.val_source)
        else:
            file = find_split(Path(data.directory), "val", data.source_language, data.target_language).source
        return read_lines(file) if file.is_file() else []  # a pipe would be waited for
    except UserError:
        return []
