"""Describe a run for the explorer's page: a description, which becomes JSON, and all weights as bytes."""

from __future__ import annotations

import ast
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from scratchformer.config import Config, DataConfig, DecodingConfig
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError, printable
from scratchformer.experiments.heads import sentence_attention
from scratchformer.nn.registry import require_paper
from scratchformer.nn.sizes import parameter_counts
from scratchformer.preparation.prepared import PreparedCorpus
from scratchformer.tasks.translation import prepared_directory, validation_files
from scratchformer.text import bundled
from scratchformer.text.bundled import Example
from scratchformer.text.corpora import READ_ERRORS, find_split, open_stream, read_lines
from scratchformer.text.tokenizer import EOS, UNK, Tokenizer
from scratchformer.training import checkpoints
from scratchformer.training.run import RunDirectory, checkpoint_file, load_run

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
"""Suggestions for some of these sentences."""

N_EXAMPLES, LONGEST_EXAMPLE = 6, 120
"""Number of sentences of other text that are offered, and their greatest length in characters."""

WORD, MOST_WORDS = re.compile(r"[\w-]+"), 5000
"""A word as the page knows it, and the number of known words up to which the page has a list of them."""


def describe(
    run: RunDirectory, checkpoint: str | None = None, sentences: Sequence[str] = ()
) -> tuple[dict[str, Any], bytes]:
    """The model of a run -> its description, and its parameters one after the other as float32, little-endian

    checkpoint  as for `load_run`
    sentences   examples of the user, which come before ours

    The description holds the configuration, the name, shape and offset (in floats) of each parameter, the tokenizer,
    the schedule and label smoothing, a thinned log, one translation at several steps of the training, example
    sentences, suggestions for some of them, the words of the training text, and the code of lessons/transformer.py.
    """
    config = run.require("translation")
    require_engine_for(run, config)
    file = checkpoint_file(run.checkpoints, checkpoint)
    translator = load_run(run.path, file)
    store = translator.model.store
    weights = store.data.astype("<f4").tobytes()
    record, ours = read_record(run.path / "replay.json"), examples(config.data)
    description = {
        "format": FORMAT,
        "caption": caption(run, config, file, weights, record),
        "config": asdict(config.model),
        "decoding": asdict(config.decoding),
        "parameters": layout(store.named_views(store.data)),
        "tokenizer": describe_tokenizer(translator.tokenizer, run.tokenizer_file),
        "languages": {"source": config.data.source_language, "target": config.data.target_language},
        "schedule": {
            "d_model": config.model.d_model,
            "warmup": config.training.warmup,
            "lr_factor": config.training.lr_factor,
            "steps": config.training.steps,
        },
        "label_smoothing": config.training.eps_ls,
        "log": thinned(run) or record.get("log"),
        "replay": record.get("replay") or replay(run, config, ours[0]),
        "words": known_words(config.data),
        "examples": list(dict.fromkeys([*sentences, *ours])),
        "trials": [trial for trial in TRIALS if trial[0] in ours],
        "code": lesson_code(),
    }
    return description, weights


def require_engine_for(run: RunDirectory, config: Config) -> None:
    """Refuse a model that the page's engine cannot run, or would run too slowly."""
    require_paper(config.model, f"{run.path}: the explorer's page", activations=("relu",))
    if config.training.schedule != "noam":
        raise UserError(f"{run.path}: the explorer's page draws only training.schedule of noam")
    size = sum(parameter_counts(config.model).values())
    if size > MOST_PARAMETERS:
        raise UserError(
            f"{run.path}: its model has {size:,} parameters; the explorer's page takes at most {MOST_PARAMETERS:,}"
        )


def layout(views: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Name, shape and offset (in numbers) of arrays that lie one after the other."""
    starts = np.cumsum([0, *(view.size for view in views.values())]).tolist()
    return [
        {"name": name, "shape": list(view.shape), "offset": offset}
        for (name, view), offset in zip(views.items(), starts)
    ]


LESSON = Path(__file__).parents[2] / "lessons" / "transformer.py"


def lesson_code() -> dict[str, str] | None:
    """The text of each function of lessons/transformer.py, which a clone has; None in an installed package."""
    if not LESSON.is_file():
        return None
    text = LESSON.read_text(encoding="utf-8")
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    lines = text.splitlines()
    return {function.name: "\n".join(lines[function.lineno - 1 : function.end_lineno]) for function in functions}


# The caption ----------------------------------------------------------------------------------------------------------


def caption(run: RunDirectory, config: Config, file: Path, weights: bytes, record: dict[str, Any]) -> str:
    """Name the weights, for the line under every figure, with the newest BLEU that `evaluate` recorded for them."""
    step = checkpoints.progress_of(file).step
    bleus = [record["bleu"]] if record.get("weights_crc32") == zlib.crc32(weights) else []
    bleus += [
        entry["bleu"]
        for entry in run.read_evaluations()
        if (entry.get("checkpoint"), entry.get("step")) == (file.name, step) and "bleu" in entry
    ]
    score = f", BLEU {bleus[-1]:.1f}" if bleus else ""
    data = config.data
    text = Path(data.files[0] if data.files else data.directory or "bundled corpus").name
    return printable(f"weights of {run.path.resolve().name}, {text}, {step:,} steps{score}")


# The tokenizer --------------------------------------------------------------------------------------------------------

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
"""Kinds of pieces, numbered as in sentencepiece_model.proto."""


def describe_tokenizer(tokenizer: Tokenizer, path: Path) -> dict[str, Any]:
    """Return what byte-pair encoding needs: pieces as labels, their scores and kinds, and the text of UNK.

    The page knows only the rules of `Tokenizer.train`, so a model with other rules is refused.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.serialized)
    ids = range(tokenizer.vocab_size)
    kinds = {CONTROL: processor.is_control, UNKNOWN: processor.is_unknown, BYTE: processor.is_byte}
    types = [next((kind for kind, holds in kinds.items() if holds(i)), NORMAL) for i in ids]
    scores = [processor.get_score(i) for i in ids]
    ranks = [-score for score, kind in zip(scores, types) if kind == NORMAL]  # byte-pair encoding counts its merges
    if ranks != [*range(len(ranks))] or processor.normalize("  \ufb01  x ") != "\u2581\ufb01\u2581x":
        raise UserError(f"{path}: trained with other options than ours; the explorer's page knows no other tokenizer")
    return {"pieces": tokenizer.pieces(ids), "scores": scores, "types": types, "unk_surface": processor.decode([UNK])}


# Log and replay -------------------------------------------------------------------------------------------------------


def thinned(run: RunDirectory) -> dict[str, list[list[float]]] | None:
    """At most MOST_LOGGED entries of each kind, the first and the last among them; None if no step is logged.

    steps        [step, training loss, learning rate, real target tokens up to here]; losses in nats per target token
    validations  [step, loss]
    """
    steps, validations = run.read_log("step"), run.read_log("validation")
    if not steps:
        return None
    return {
        "steps": columns(steps, "step", "loss", "learning_rate", "all_target_tokens"),
        "validations": columns(validations, "step", "loss"),
    }


def columns(entries: list[dict[str, Any]], *names: str) -> list[list[float]]:
    return [[rounded(entry[name]) for name in names] for entry in spread(entries, MOST_LOGGED)]


def spread(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of the items, evenly spread, the first and the last among them."""
    kept = np.linspace(0, len(items) - 1, min(most, len(items))).round().astype(int)
    return [items[index] for index in kept]


def rounded(value: float) -> float:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def replay(run: RunDirectory, config: Config, sentence: str) -> dict[str, Any] | None:
    """A sentence at up to MOST_SNAPSHOTS checkpoints of single steps; None if there are fewer than two, or if the
    model's learned positions end before the sentence or its translation does.

    The loss of a snapshot is the validation loss that was logged after this step, or None.
    """
    files = spread(run.checkpoints.steps(), MOST_SNAPSHOTS)
    if len(files) < 2:
        return None
    losses = {entry["step"]: entry["loss"] for entry in run.read_log("validation")}
    last, decoding = load_run(run.path, files[-1]), config.decoding
    if not has_positions(last, sentence):
        return None
    [target] = last.translate([sentence], decoding.beam, decoding.alpha)
    if not has_positions(last, target):
        return None
    head, snapshots = sharpest_head(cross_attention(last, sentence, target)), []
    for file in files:
        step = checkpoints.progress_of(file).step
        translator = load_run(run.path, file)
        snapshots.append(snapshot(translator, decoding, sentence, target, head, step, losses.get(step)))
    return {
        "caption": "the checkpoints of this run",
        "same_weights": True,
        "sentence": sentence,
        "attention": head_id(head),
        "snapshots": snapshots,
    }


def has_positions(translator: Translator, text: str) -> bool:
    """Say if the model has a position for every piece of a text and for </s>."""
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
    """Translate a sentence with the weights of one step of the training, and read off one head's attention.

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
    return sentence_attention(translator, Example(sentence, target)).cross


def sharpest_head(weights: np.ndarray) -> tuple[int, int]:
    """The layer and the head whose largest weight in a row is largest, on average over the rows of (N, H, T, S)."""
    sharpness = weights.max(axis=-1).mean(axis=-1)
    layer, head = np.unravel_index(sharpness.argmax(), sharpness.shape)
    return int(layer), int(head)


def head_id(head: tuple[int, int]) -> str:
    """The name of a cross-attention head on the page."""
    return f"cross.{head[0]}.{head[1]}"


def read_record(path: Path) -> dict[str, Any]:
    """Read replay.json, which benchmarks/training_replay.py writes beside a model; {} if it is missing.

    weights_crc32, bleu  the CRC-32 of the model's parameters as float32, and the BLEU of these weights
    log                  as `thinned` returns it; replay: as `replay` returns it
    """
    return json.loads(path.read_bytes()) if path.is_file() else {}


# Examples -------------------------------------------------------------------------------------------------------------


def examples(data: DataConfig) -> list[str]:
    """Two or more sentences to try: ours for the bundled corpus, else the first short ones of the validation text."""
    if not data.names_text:
        return EXAMPLES
    try:
        if directory := prepared_directory(data):
            file = PreparedCorpus(directory).text_files("val").source
        elif files := validation_files(data):
            file = files.source
        else:
            return EXAMPLES
        lines = (" ".join(line.split()) for line in read_lines(file))
    except UserError:  # the text has been moved
        return EXAMPLES
    found = list(islice((line for line in lines if 0 < len(line) <= LONGEST_EXAMPLE), N_EXAMPLES))
    return found if len(found) >= 2 else EXAMPLES


def known_words(data: DataConfig) -> list[str] | None:
    """The words of the training text's source side, each spelling once; None if they are too many or cannot be read."""
    words: set[str] = set()
    try:
        if not data.names_text:
            file = bundled.DIRECTORY / f"train.{data.source_language}"
        elif directory := prepared_directory(data):
            file = PreparedCorpus(directory).text_files("train").source
        elif data.files:
            file = Path(data.train_source)
        else:
            file = find_split(Path(data.directory), "train", data.source_language, data.target_language).source
        with open_stream(file) as lines:
            for line in lines:
                words.update(WORD.findall(line.decode("utf-8")))
                if len(words) > MOST_WORDS:
                    return None
    except (UserError, UnicodeDecodeError, *READ_ERRORS):  # the text has been moved
        return None
    return sorted(words)
