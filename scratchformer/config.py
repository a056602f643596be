"""All settings of a run: dataclasses with the paper's values as defaults, presets, and TOML files."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from scratchformer.errors import UserError, in_one_line

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class ModelConfig:
    """The model's sizes, in the paper's symbols. The defaults are the base model (Table 3)."""

    vocab_size: int = 37000
    N: int = 6
    d_model: int = 512
    d_ff: int = 2048
    h: int = 8
    d_k: int | None = None  # None: d_model / h
    d_v: int | None = None
    P_drop: float = 0.1  # after each sublayer, and on embedding + position
    attention_dropout: float = 0.0  # on the attention weights
    relu_dropout: float = 0.0  # on the hidden units of the feed-forward network
    norm: str = "post"  # post: as in the paper; before each sublayer: pre (LayerNorm) or rms; or a registered name
    ln_eps: float = 1e-6
    tied: Literal["all", "target", "none"] = "all"  # which of the source, target and output embeddings are one matrix
    attention_bias: bool = True
    positions: str = "sinusoidal"  # or learned, rotary, alibi, none, or a registered name
    rope_theta: float = 10_000.0  # of rotary positions: the wavelengths are 2 pi to 2 pi rope_theta positions
    max_positions: int = 256  # rows of the table of learned positions
    target_vocab_size: int = 0  # 0: one vocabulary for both sides; otherwise `tied` must be "none"
    n_tags: int = 0  # parsing: any but 0 tells the decoder the next word, and becomes the number of tags in the data
    architecture: Literal["encoder-decoder", "decoder", "encoder", "vision"] = "encoder-decoder"  # a run's task sets it
    attention: str = "multi-head"  # or a registered name
    h_kv: int = 0  # heads of keys and values, which groups of query heads share; 0: as many as h
    feed_forward: str = "relu"  # or gelu, swiglu, or a registered name
    defined_in: str = ""  # a Python file of the user's that registers layers, or FILE:CLASS with a model
    n_classes: int = 0  # of a classifier; a run's task sets it; 0: the output is the vocabulary
    image_size: int = 8  # pixels on each side (vision)
    patch_size: int = 2

    @property
    def reads_text(self) -> bool:
        """True if the model reads ids of a vocabulary, which a run keeps as its tokenizer."""
        return self.architecture != "vision"

    @property
    def n_outputs(self) -> int:
        """Number of logits. Classes count from 1: class 0 is unused."""
        if self.n_classes or not self.reads_text:
            return self.n_classes + 1
        return self.target_vocab_size or self.vocab_size

    def __post_init__(self) -> None:
        check(self)
        if self.target_vocab_size and (self.tied != "none" or self.architecture != "encoder-decoder"):
            wanted = "an encoder and a decoder, with model.tied='none'"
            raise UserError(f"model.target_vocab_size={self.target_vocab_size}: two vocabularies need {wanted}")
        if self.h_kv and self.h % self.h_kv:
            raise UserError(f"model.h={self.h} is not a multiple of model.h_kv={self.h_kv}")
        if self.positions == "rotary" and (self.d_k or self.d_model // self.h) % 2:
            raise UserError("rotary positions turn pairs of coordinates: model.d_k must be even")
        if self.image_size % self.patch_size:
            raise UserError(
                f"model.image_size={self.image_size} is not a multiple of model.patch_size={self.patch_size}"
            )
        if None in (self.d_k, self.d_v) and self.d_model % self.h:
            numbers = f"model.d_model={self.d_model} is not a multiple of model.h={self.h}"
            raise UserError(f"{numbers}: set model.d_k and model.d_v")
        for name in ("d_k", "d_v"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, self.d_model // self.h)


@dataclass(frozen=True)
class DataConfig:
    """The task and its data. A directory holds `train.en`, `val.de`, ...; each file may be gzipped (.gz)."""

    directory: str = ""  # empty: the bundled corpus
    source_language: str = "en"
    target_language: str = "de"
    train_source: str = ""  # single files; if given, the directory is ignored
    train_target: str = ""
    val_source: str = ""
    val_target: str = ""
    text: tuple[str, ...] = ()  # files of plain text, for language models
    byte_fallback: bool = False  # encode unknown characters as bytes instead of <unk>
    max_length: int = 256  # longer pairs (tokens of the longer side, EOS included) are dropped; a window of plain text
    task: Literal["translation", "parsing", "language-model", "masked-language-model", "antecedent", "digits"] = (
        "translation"
    )

    def __post_init__(self) -> None:
        check(self)
        if self.text and (self.directory or len(self.files) > len(self.text)):
            raise UserError("data.text (--text) names the files of a language model: give no other text")

    @property
    def files(self) -> list[str]:
        """The files that are given one by one."""
        pairs = (self.train_source, self.train_target, self.val_source, self.val_target)
        return [file for file in (*pairs, *self.text) if file]

    @property
    def names_text(self) -> bool:
        """True if files are named; if not, the text is the bundled corpus."""
        return bool(self.directory or self.files)


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training (paper §5). It runs for `steps`, unless another limit ends it earlier."""

    seed: int = 0
    steps: int = 100_000
    tokens_per_batch: int = 4096  # padded positions per side of a micro-batch
    accumulation: int = 8  # micro-batches in a step
    bucket_fineness: int = 1  # 1: the paper's length buckets; more: narrower buckets, less padding
    warmup: int = 4000
    lr_factor: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-9
    eps_ls: float = 0.1
    spread: Literal["others", "uniform"] = "others"  # over which classes eps_ls is spread
    schedule: Literal["noam", "cosine"] = "noam"  # noam: the paper's, of lr_factor; cosine: of learning_rate
    learning_rate: float = 1e-3  # the highest rate of the cosine schedule
    weight_decay: float = 0.0  # above 0: AdamW
    clip_norm: float = 0.0  # 0: no clipping, as in the paper
    device: str = "cpu"  # cpu, gpu or gpu:N, the N-th from 0
    precision: Literal["", "fp32", "tf32", "bf16", "fp16"] = ""  # empty: tf32 on a GPU, fp32 on the CPU
    gradient_dtype: Literal["", "bf16"] = ""  # in which gradients are sent between processes; empty: fp32
    threads: int = 0  # cores to use; 0: all cores, divided among the processes on this machine
    max_tokens: int = 0  # stop after this many real target tokens; 0: no limit
    minutes: float = 0.0  # stop after this much wall time; 0: no limit
    patience: int = 0  # stop after this many validations without a better loss; 0: never
    validate_every: int = 1500  # steps between validations
    score_every: int = 0  # steps between scores of the validation data, such as BLEU; 0: never
    save_every: int = 1500  # steps between checkpoints
    keep: int = 20  # how many of the last checkpoints are kept
    average_last: int = 5  # how many checkpoints `average` and the demo average
    pretrained: str = ""  # a run whose weights this one begins with, where name and shape are the same

    def __post_init__(self) -> None:
        check(self)
        if not re.fullmatch(r"cpu|gpu(:[0-9]{1,4})?", self.device):
            raise UserError(f"training.device={self.device!r} must be cpu, gpu or gpu:N")
        if self.device == "cpu" and self.precision not in ("", "fp32"):
            raise UserError(f"training.precision={self.precision} is for a GPU; the CPU computes in fp32")


@dataclass(frozen=True)
class DecodingConfig:
    """Settings of the search for translations (paper §6.1)."""

    beam: int = 4
    alpha: float = 0.6  # exponent of the length penalty
    extra_length: int = 50  # the most tokens by which a translation may exceed the source

    def __post_init__(self) -> None:
        check(self)


MODEL_OF_TASK: dict[str, tuple[str, int]] = {
    "translation": ("encoder-decoder", 0),
    "parsing": ("encoder-decoder", 0),
    "language-model": ("decoder", 0),
    "masked-language-model": ("encoder", 0),
    "antecedent": ("encoder", 2),
    "digits": ("vision", 10),
}
"""Task -> the architecture of its model, and the number of classes."""

OF_TASK = ("architecture", "n_classes")
"""Fields of `ModelConfig` that the task decides, so that they are not settings."""


@dataclass(frozen=True)
class Config:
    """The whole configuration of a run. In TOML, each field is a table."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def __post_init__(self) -> None:
        task = self.data.task
        fixed: dict[str, Any] = dict(zip(OF_TASK, MODEL_OF_TASK[task]))
        given = {name: getattr(self.model, name) for name in OF_TASK}
        if given == dict(zip(OF_TASK, MODEL_OF_TASK["translation"])):  # the defaults
            object.__setattr__(self, "model", replace(self.model, **fixed))
        elif given != fixed:
            raise UserError(f"data.task={task} needs another model: {fixed}, not {given}")
        if task == "translation" and self.data.source_language == self.data.target_language:
            raise UserError(
                f"data.source_language and data.target_language are both {self.data.source_language!r}: set each to "
                "its language; two kinds of one language need two names, such as en and en-simple"
            )
        if self.model.n_tags and task != "parsing":
            raise UserError(f"model.n_tags={self.model.n_tags} is for data.task=parsing, not {task}")
        if self.model.positions == "learned" and self.data.max_length > self.model.max_positions:
            limit = f"model.max_positions={self.model.max_positions} if model.positions is learned"
            raise UserError(f"data.max_length={self.data.max_length} must be at most {limit}")


PARTS: dict[str, type] = get_type_hints(Config)
"""Name of a table -> its dataclass."""

HINTS = {kind: get_type_hints(kind) for kind in PARTS.values()}
"""Dataclass of a table -> name of a field -> its type."""

RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("d_model", "d_ff", "d_k", "d_v", "max_positions", "max_length"), (1, 2**20)),
    **dict.fromkeys(("N", "beam", "bucket_fineness"), (1, 1000)),
    **dict.fromkeys(("h", "image_size", "patch_size", "accumulation"), (1, 2**16)),
    **dict.fromkeys(("tokens_per_batch", "steps", "warmup", "validate_every", "save_every"), (1, 2**30)),
    **dict.fromkeys(("keep", "average_last"), (1, 10**6)),
    **dict.fromkeys(("P_drop", "attention_dropout", "relu_dropout", "beta1", "beta2", "eps_ls"), (0, 0.999999)),
    **dict.fromkeys(("ln_eps", "eps"), (1e-30, 1)),  # above 0, and not lost in float32
    **dict.fromkeys(("target_vocab_size", "n_tags", "n_classes"), (0, 2**24)),
    **dict.fromkeys(("clip_norm", "patience", "score_every", "minutes"), (0, 10**9)),
    "vocab_size": (5, 2**24),
    "lr_factor": (1e-9, 1e30),
    "learning_rate": (1e-9, 10),
    "rope_theta": (1, 1e12),
    "h_kv": (0, 2**16),
    "weight_decay": (0, 10),
    "max_tokens": (0, 10**15),
    "seed": (0, 2**63 - 1),
    "threads": (0, 1024),
    "alpha": (0, 10),
    "extra_length": (0, 10_000),
}
"""Name of a number -> the smallest and the largest value it may have."""


def check(config: Any) -> None:
    """Refuse a field whose value has another type or lies outside its range; integers become floats."""
    part = next(name for name, kind in PARTS.items() if kind is type(config))
    for name, hint in HINTS[type(config)].items():
        value, kinds = getattr(config, name), get_args(hint) or (hint,)
        if get_origin(hint) is Literal:
            if value not in kinds:
                choices = [choice for choice in kinds if choice]
                wanted = f"one of {', '.join(choices)}, not {shown(value)}{nearest(str(value), choices)}"
                raise UserError(f"{part}.{name} must be {wanted}")
            continue
        if get_origin(hint) is tuple and isinstance(value, (list, tuple)):  # of strings; TOML has lists
            kinds, value = (tuple,), tuple(map(str, value))
        elif type(value) is int and float in kinds:
            value = float(value)
        if type(value) in (int, float) and name in RANGES:
            low, high = RANGES[name]
            if not low <= value <= high:
                raise UserError(f"{part}.{name}={shown(value)} {must_lie(low, high)}")
        if type(value) not in kinds:
            raise UserError(f"{part}.{name} must be of type {kinds[0].__name__}, not {shown(value)}")
        object.__setattr__(config, name, value)


def must_lie(low: float, high: float) -> str:
    """The end of an error message about a number outside its range."""
    return f"must lie between {low} and {high}"


def shown(value: Any) -> str:
    """A value in a message, cut after 60 characters."""
    return f"{value!r:.60}"


# Settings and files ---------------------------------------------------------------------------------------------------

ALL_KEYS = [f"{part}.{name}" for part, kind in PARTS.items() for name in HINTS[kind] if name not in OF_TASK]
"""The full key of every setting: "model.vocab_size", ..."""

KEYS = {key: key for key in ALL_KEYS} | {key.split(".")[1]: key for key in ALL_KEYS}
"""Full key or name of every setting -> its full key; each name occurs in only one part."""


def full_key(key: str) -> str:
    """`P_drop` -> `model.P_drop`"""
    if key not in KEYS:
        usual = f"; did you mean {USUAL_NAMES[key]!r}?" if key in USUAL_NAMES else nearest(key, KEYS)
        raise UserError(f"no setting {shown(key)}{usual}")
    return KEYS[key]


USUAL_NAMES = {
    "dropout": "P_drop",
    "lr": "learning_rate",
    "batch_size": "tokens_per_batch",
    "heads": "h",
    "layers": "N",
}
"""Names that other programs use for some settings -> ours."""


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the one of `names` that it resembles, if there is one."""
    spelled = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), spelled, n=1)
    return f"; did you mean {spelled[close[0]]!r}?" if close else ""


def with_settings(config: Config, settings: dict[str, Any]) -> Config:
    """Return a copy with some settings changed; settings: key (`model.P_drop` or `P_drop`) -> value.

    If d_model or h changes, d_k and d_v become d_model / h again, unless they are given or had another value before.
    """
    changes: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    for key, value in settings.items():
        part, name = full_key(key).split(".")
        changes[part][name] = value
    if "task" in changes["data"]:  # which decides these
        changes["model"] |= {"architecture": "encoder-decoder", "n_classes": 0}
    if {"d_model", "h"} & set(changes["model"]):
        for name in ("d_k", "d_v"):
            if getattr(config.model, name) == config.model.d_model // config.model.h:
                changes["model"].setdefault(name, None)
    return replace(config, **{part: replace(getattr(config, part), **values) for part, values in changes.items()})


def parse_setting(text: str) -> tuple[str, Any]:
    """`model.P_drop=0.3` -> full key and value. The value is parsed as TOML; if that fails, it is a string."""
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or "\n" in text:
        raise UserError(f"--set {shown(text)}: expected key=value, in one line")
    key = full_key(key)
    default = flat(BASE)[key]
    if isinstance(default, str):
        return key, value.strip("\"'")
    with suppress(ValueError):  # TOML does not know .3 and 2.
        return key, float(value) if isinstance(default, float) else tomllib.loads(f"value = {value}")["value"]
    return key, value


def keys_of(part: str, names: str) -> set[str]:
    return {f"{part}.{name}" for name in names.split()}


PATHS = keys_of("data", "directory train_source train_target val_source val_target text")
PATHS |= {"training.pretrained", "model.defined_in"}
"""Settings that name files. They are stored as absolute paths, so that a run can be resumed from anywhere."""

NEEDS_VALIDATION = keys_of("training", "patience validate_every score_every")
SEARCH = keys_of("decoding", "beam alpha extra_length")

MAY_CHANGE = PATHS | SEARCH | NEEDS_VALIDATION  # and when to stop, what to save, and the hardware
MAY_CHANGE |= keys_of("training", "steps max_tokens minutes save_every keep average_last")
MAY_CHANGE |= keys_of("training", "threads device precision gradient_dtype")
"""Settings with which a run may be resumed even if they differ (a checksum verifies that the text is the same). Any
other difference would make it another run."""


def require_effect(config: Config, named: set[str], has_validation: bool) -> None:
    """Refuse a setting that the user named and that has no effect beside the others, as a beam without a search."""
    model, task = config.model, config.data.task
    limit = "only learned positions have a limit; give model.positions=learned"
    rules = [
        (not has_validation, NEEDS_VALIDATION, "there is no validation text; give --val-source and --val-target"),
        (model.architecture != "encoder-decoder", SEARCH, f"{task} has no search"),
        (not model.reads_text, keys_of("model", "vocab_size max_positions"), f"{task} reads no text"),
        (model.reads_text, keys_of("model", "image_size patch_size"), f"{task} reads no images"),
        (model.reads_text and model.positions != "learned", {"model.max_positions"}, limit),
        (model.positions != "rotary", {"model.rope_theta"}, "give model.positions=rotary"),
        (config.training.schedule != "cosine", {"training.learning_rate"}, "give training.schedule=cosine"),
        (config.training.schedule != "noam", {"training.lr_factor"}, "the cosine schedule has training.learning_rate"),
    ]
    for applies, keys, reason in rules:
        for key in sorted(keys & named) if applies else ():
            if value := flat(config)[key]:  # 0 asks for nothing
                raise UserError(f"{key}={value} has no effect: {reason}, or leave it out")


def require_same(made_with: Config, config: Config, path: Path, may_change: Collection[str] = MAY_CHANGE) -> None:
    """Refuse settings outside `may_change` that differ between `config` and `made_with`, read from `path`."""
    then, now = flat(made_with), flat(config)
    changed = [key for key in now if now[key] != then[key] and key not in may_change]
    if changed:
        differences = "; ".join(f"{key} is {now[key]!r}, was {then[key]!r}" for key in changed)
        raise UserError(f"{path}: made with other settings: {differences}")


def flat(config: Config) -> dict[str, Any]:
    """Full key (`model.N`) -> value."""
    return {f"{part}.{name}": value for part, values in to_dict(config).items() for name, value in values.items()}


def from_dict(parts: dict[str, Any], where: str) -> Config:
    """Make a Config from nested dictionaries, with defaults for what is missing; error messages begin with `where`."""
    settings: dict[str, Any] = {}
    try:
        for part, values in parts.items():
            if part not in PARTS:
                raise UserError(f"no table [{part}]{nearest(part, PARTS)}")
            if not isinstance(values, dict):
                raise UserError(f"{part} must be a table, not {shown(values)}")
            settings |= {f"{part}.{name}": value for name, value in values.items()}
        return with_settings(Config(), settings)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def to_dict(config: Config) -> dict[str, Any]:
    """Nested dictionaries, as `from_dict` takes them: the settings of each table."""
    values: dict[str, dict[str, Any]] = {part: vars(getattr(config, part)) for part in PARTS}
    return {part: {name: each[name] for name in each if name not in OF_TASK} for part, each in values.items()}


def load(path: Path) -> Config:
    """Read a TOML file."""
    try:
        parts = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise UserError(f"{path}: not a TOML file: {in_one_line(error)}") from None
    return from_dict(parts, str(path))


def to_toml(config: Config) -> str:
    """The text of a TOML file that `load` reads back as the same configuration."""
    import tomli_w  # here, because a machine that is lent for some minutes may lack it

    return tomli_w.dumps(to_dict(config))


# Presets --------------------------------------------------------------------------------------------------------------

TABLES = tomllib.loads((Path(__file__).parent / "presets.toml").read_text(encoding="utf-8"))
TABLE3: dict[str, dict[str, Any]] = TABLES.pop("table3")
"""The rows of Table 3 as changes to the base model."""

PRESETS: dict[str, Config] = {name: from_dict(parts, name) for name, parts in TABLES.items()}
BASE, BIG, TINY = (PRESETS[name] for name in ("base", "big", "tiny"))
TO_FRENCH = {"vocab_size": 32000, "P_drop": 0.1, "target_language": "fr"}
"""English to French (paper §5.1): 32,000 word pieces; dropout 0.1 also if big (§6.1)."""

PRESETS |= {  # the runs of Table 2
    "wmt14-en-de-base": BASE,
    "wmt14-en-de-big": BIG,
    "wmt14-en-fr-base": with_settings(BASE, TO_FRENCH),
    "wmt14-en-fr-big": with_settings(BIG, TO_FRENCH),
}
PUBLIC_CORPORA = ["multi30k", "wmt14-en-de", "wmt14-en-fr"]
"""Corpora that `scratchformer data` can download; their presets have names that begin with these."""


def preset(name: str) -> Config:
    """Return one of PRESETS, or a row of Table 3 (A1 ... E)."""
    if name in PRESETS:
        return PRESETS[name]
    if name in TABLE3:
        return with_settings(BASE, TABLE3[name])
    names = [*PRESETS, *TABLE3]
    raise UserError(f"no preset {name!r}{nearest(name, names)}; there are {', '.join(names)}")


# What a configuration is used for -------------------------------------------------------------------------------------


def require_work_for(config: Config, nproc: int) -> None:
    """Refuse more processes than a step has micro-batches."""
    n, positions = config.training.accumulation, config.training.tokens_per_batch
    if nproc > n:
        raise UserError(
            f"{nproc} processes, but a step has only {n} micro-batches; a step of the same size with one for each: "
            f"--set training.accumulation={nproc} --set training.tokens_per_batch={max(1, positions * n // nproc)}"
        )
