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

from scratchformer.config import Config, DataConfig
from scratchformer.errors import UserError, printable
from scratchformer.nn.registry import require_paper
from scratchformer.nn.sizes import parameter_counts
from scratchformer.preparation.prepared import PreparedCorpus
from scratchformer.tasks.translation import prepared_directory, validation_files
from scratchformer.text import bundled
from scratchformer.text.corpora import READ_ERRORS, find_split, open_stream, read_lines
from scratchformer.text.tokenizer import UNK, Tokenizer
from scratchformer.training import checkpoints
from scratchformer.training.run import RunDirectory, checkpoint_file, load_run

FORMAT = 1
MOST_PARAMETERS = 16_000_000
"""JavaScript on one core does about a billion multiplications a second. With so many parameters, one step of a beam of
4 hypotheses of 25 pieces takes about 2 seconds, and the page has 85 MB: nobody would wait for more."""

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
    label smoothing and schedule of the training, its words, example sentences, suggestions for some of them, and the
    code of lessons/transformer.py.
    """
    config = run.require("translation")
    require_engine_for(run, config)
    file = checkpoint_file(run.checkpoints, checkpoint)
    translator, ours = load_run(run.path, file), examples(config.data)
    store = translator.model.store
    weights = store.data.astype("<f4").tobytes()
    description = {
        "format": FORMAT,
        "caption": caption(run, config, file, weights),
        "config": asdict(config.model),
        "decoding": asdict(config.decoding),
        "parameters": layout(store.named_views(store.data)),
        "tokenizer": describe_tokenizer(translator.tokenizer, run.tokenizer_file),
        "languages": {"source": config.data.source_language, "target": config.data.target_language},
        "words": known_words(config.data),
        "examples": list(dict.fromkeys([*sentences, *ours])),
        "trials": [trial for trial in TRIALS if trial[0] in ours],
        "code": lesson_code(),
        **training_of(config),
    }
    return description, weights


def training_of(config: Config) -> dict[str, Any]:
    """Label smoothing and learning rate of a run, for the page; the rate only of the paper's schedule.

    label_smoothing  eps_ls; right_target: the target probability of the right word
    """
    training, n_words = config.training, config.model.vocab_size
    right = 1 - training.eps_ls + (training.eps_ls / n_words if training.spread == "uniform" else 0)
    schedule = {"warmup": training.warmup, "lr_factor": training.lr_factor} if training.schedule == "noam" else None
    return {"label_smoothing": training.eps_ls, "right_target": right, "schedule": schedule}


def require_engine_for(run: RunDirectory, config: Config) -> None:
    """Refuse a model that the page's engine cannot run, or would run too slowly."""
    require_paper(config.model, f"{run.path}: the explorer's page", activations=("relu",))
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


def caption(run: RunDirectory, config: Config, file: Path, weights: bytes) -> str:
    """Name the weights, for the line under every figure, with the newest BLEU that `evaluate` recorded for them."""
    step = checkpoints.progress_of(file).step
    record = read_record(run.path / "record.json")
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


def read_record(path: Path) -> dict[str, Any]:
    """Read the record that is shipped beside a model: its BLEU, and the CRC-32 of the weights that have it; or {}"""
    return json.loads(path.read_bytes()) if path.is_file() else {}


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
