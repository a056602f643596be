"""All settings of a run: dataclasses with the paper's values as defaults, presets, and TOML files."""

from __future__ import annotations

import difflib
import re
import stat
import sys
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
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
    norm: Literal["post", "pre"] = "post"
    ln_eps: float = 1e-6
    tied: Literal["all", "target", "none"] = "all"  # which of the source, target and output embeddings are one matrix
    attention_bias: bool = True
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    max_positions: int = 256  # rows of the table of learned positions
    target_vocab_size: int = 0  # 0: one vocabulary for both sides; otherwise `tied` must be "none"
    n_tags: int = (
        0  # for parsing; any but 0 tells the decoder the next word, and becomes the number of tags in the data
    )
    architecture: Literal["encoder-decoder", "decoder", "encoder", "vision"] = "encoder-decoder"
    activation: Literal["relu", "gelu"] = "relu"  # of the feed-forward network
    n_classes: int = 0  # of a classifier, which is an encoder or a vision model; 0: the output is the vocabulary
    image_size: int = 8  # pixels on each side (vision)
    patch_size: int = 2

    @property
    def reads_text(self) -> bool:
        """Whether the model reads ids, of a vocabulary that a run keeps as its tokenizer."""
        return self.architecture != "vision"

    @property
    def n_outputs(self) -> int:
        """For how many words or classes there is a logit. Classes count from 1: that of 0 belongs to no class."""
        if self.n_classes or not self.reads_text:
            return self.n_classes + 1
        return self.target_vocab_size or self.vocab_size

    def __post_init__(self) -> None:
        check(self)
        if self.target_vocab_size and (self.tied != "none" or self.architecture != "encoder-decoder"):
            wanted = "an encoder and a decoder, with model.tied='none'"
            raise UserError(f"model.target_vocab_size={self.target_vocab_size}: two vocabularies need {wanted}")
        if self.n_tags and self.n_tags > self.n_outputs - 4:
            raise UserError(f"model.n_tags={self.n_tags}: the target has {self.n_outputs} ids, four of them special")
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
    """What is learned from which data. A directory holds `train.en`, `val.de`, ...; each file may be gzipped (.gz)."""

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
        """Whether files are named; if not, the text is the bundled corpus."""
        return bool(self.directory or self.files)


@dataclass(frozen=True)
class TrainingConfig:
    """How the model learns (paper §5). Training runs for `steps`, unless another limit ends it earlier."""

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
    """How translations are searched for (paper §6.1)."""

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


@dataclass(frozen=True)
class Config:
    """The whole configuration of a run. In TOML, each field is a table."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def __post_init__(self) -> None:
        task, (architecture, n_classes) = self.data.task, MODEL_OF_TASK[self.data.task]
        if (self.model.architecture, self.model.n_classes) != (architecture, n_classes):
            raise UserError(
                f"data.task={task} needs model.architecture={architecture} and model.n_classes={n_classes}, "
                f"not {self.model.architecture} and {self.model.n_classes}"
            )
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

# Checks ---------------------------------------------------------------------------------------------------------------


def part_of(config: Any) -> str:
    """The name of the table that this dataclass is for: "model", "data", ..."""
    return next(name for name, kind in PARTS.items() if kind is type(config))


BELOW_ONE = 0.999999
SMALLEST = 1e-30  # for what must be above 0, and not vanish in float32
LARGEST = 2**63 - 1

RANGES: dict[str, tuple[float, float]] = {
    "vocab_size": (5, 2**24),
    "target_vocab_size": (0, 2**24),
    "N": (1, 1000),
    "d_model": (1, 2**20),
    "d_ff": (1, 2**20),
    "h": (1, 2**16),
    "d_k": (1, 2**20),
    "d_v": (1, 2**20),
    "P_drop": (0, BELOW_ONE),
    "attention_dropout": (0, BELOW_ONE),
    "relu_dropout": (0, BELOW_ONE),
    "ln_eps": (SMALLEST, 1),
    "max_positions": (1, 2**20),
    "n_tags": (0, 2**24),
    "n_classes": (0, 2**20),
    "image_size": (1, 2**12),
    "patch_size": (1, 2**12),
    "max_length": (1, 2**20),
    "seed": (0, LARGEST),
    "steps": (1, 10**9),
    "tokens_per_batch": (1, 2**30),
    "accumulation": (1, 2**16),
    "bucket_fineness": (1, 1000),
    "warmup": (1, 10**9),
    "lr_factor": (1e-9, 1e30),
    "beta1": (0, BELOW_ONE),
    "beta2": (0, BELOW_ONE),
    "eps": (SMALLEST, 1),
    "eps_ls": (0, BELOW_ONE),
    "clip_norm": (0, 1e9),
    "threads": (0, 1024),
    "max_tokens": (0, 10**15),
    "minutes": (0, 10**7),
    "patience": (0, 10**9),
    "validate_every": (1, 10**9),
    "score_every": (0, 10**9),
    "save_every": (1, 10**9),
    "keep": (1, 10**6),
    "average_last": (1, 10**6),
    "beam": (1, 1000),
    "alpha": (0, 10),
    "extra_length": (0, 10_000),
}
"""Name of a number -> the smallest and the largest value it may have. A model of the largest values fits no machine;
`nn.sizes.require_memory` refuses it."""


def check(config: Any) -> None:
    """Raises UserError unless each field has a value of its type, in its range; integers become floats."""
    for name, hint in HINTS[type(config)].items():
        value, key = getattr(config, name), f"{part_of(config)}.{name}"
        if get_origin(hint) is Literal:
            choices = [choice for choice in get_args(hint) if choice]
            if value not in get_args(hint):
                hint = nearest(value, choices) if isinstance(value, str) else ""
                raise UserError(f"{key} must be one of {', '.join(choices)}, not {shown(value)}{hint}")
            continue
        if get_origin(hint) is tuple and isinstance(value, (list, tuple)) and all(type(each) is str for each in value):
            value, hint = tuple(value), tuple  # TOML has lists
            object.__setattr__(config, name, value)
        kinds = get_args(hint) or (hint,)
        if type(value) is int and float in kinds and abs(value) <= LARGEST:
            value = float(value)
            object.__setattr__(config, name, value)
        if type(value) in (int, float) and name in RANGES and not RANGES[name][0] <= value <= RANGES[name][1]:
            raise UserError(f"{key}={shown(value)} {must_lie(*RANGES[name])}")
        if type(value) not in kinds:
            raise UserError(f"{key} must be of type {kinds[0].__name__}, not {shown(value)}")
        for text in value if type(value) is tuple else [value] if type(value) is str else []:
            if "\0" in text or text != text.encode("utf-8", "ignore").decode("utf-8"):
                raise UserError(f"{key} must be valid text, not {text!r}")


def must_lie(low: float, high: float) -> str:
    """The end of an error message about a number outside its range."""
    return f"must lie between {low} and {high}"


def shown(value: Any) -> str:
    """A value in a message: short, whatever it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits; a list in a list in a list ...
        return f"a very large {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


# Presets --------------------------------------------------------------------------------------------------------------

TINY = Config(
    model=ModelConfig(vocab_size=1600, N=2, d_model=128, d_ff=256, h=4, P_drop=0.0),
    training=TrainingConfig(
        steps=2000,
        tokens_per_batch=512,
        accumulation=2,
        bucket_fineness=2,
        warmup=400,
        validate_every=200,
        save_every=100,
        keep=5,
        average_last=5,
    ),
)
"""The bundled corpus, on a laptop, in minutes. Without dropout: the corpus has no noise, and there are few epochs."""

MULTI30K = Config(
    model=ModelConfig(vocab_size=6000, N=4, d_model=128, d_ff=256, h=4, P_drop=0.3),
    training=TrainingConfig(
        steps=9000,
        max_tokens=30_000_000,
        tokens_per_batch=1024,
        accumulation=4,
        bucket_fineness=2,
        warmup=1000,
        lr_factor=1.25,
        validate_every=200,
        score_every=1000,
        save_every=200,
        keep=10,
        average_last=10,
    ),
)
"""29,000 captions of photographs, English to German: real text that a CPU can learn from."""

BASE = Config()
"""The paper's base model and recipe (Table 3): 25,000 source and 25,000 target tokens a step."""

BIG = Config(
    model=ModelConfig(d_model=1024, d_ff=4096, h=16, P_drop=0.3),
    training=TrainingConfig(steps=300_000, bucket_fineness=2, validate_every=3000, save_every=600, average_last=20),
)
"""The paper's big model (Table 3)."""

PARSING = Config(
    model=ModelConfig(vocab_size=16384, N=4, d_model=1024, P_drop=0.2, attention_dropout=0.2, tied="none"),
    data=DataConfig(task="parsing", max_length=512),
    training=TrainingConfig(warmup=16_000, lr_factor=0.5, score_every=1500),
    decoding=DecodingConfig(beam=21, alpha=0.3, extra_length=300),
)
"""The paper's parser of the Wall Street Journal (§6.3); rates and lengths as in tensor2tensor of June 2017. The paper
does not give the number of steps."""

PARSING_SMALL = Config(
    model=ModelConfig(vocab_size=16384, n_tags=1, N=2, d_model=128, d_ff=256, h=4, P_drop=0.2, norm="pre", tied="none"),
    data=DataConfig(task="parsing", max_length=512),
    training=TrainingConfig(
        steps=6000,
        tokens_per_batch=1024,
        accumulation=1,
        bucket_fineness=2,
        warmup=800,
        lr_factor=0.7,
        clip_norm=1.0,
        validate_every=500,
        score_every=1000,
        save_every=250,
        keep=10,
        average_last=10,
    ),
    decoding=DecodingConfig(beam=4, alpha=0.3, extra_length=300),
)
"""A treebank of some thousand trees, such as the sample that `data treebank` prepares, on one core of a laptop."""

PARSING_TINY = Config(
    model=ModelConfig(vocab_size=1400, N=2, d_model=128, d_ff=256, h=4, P_drop=0.0, tied="none"),
    data=DataConfig(task="parsing"),
    training=replace(TINY.training, steps=3000, score_every=500),
    decoding=DecodingConfig(beam=4, alpha=0.3, extra_length=100),
)
"""Parses the bundled corpus, on a laptop, in minutes."""

GPT_TINY = Config(
    model=ModelConfig(
        architecture="decoder",
        vocab_size=1024,
        N=4,
        d_model=128,
        d_ff=512,
        h=4,
        P_drop=0.1,
        norm="pre",
        positions="learned",
        max_positions=128,
        activation="gelu",
    ),
    data=DataConfig(task="language-model", max_length=128),
    training=TrainingConfig(
        steps=3000,
        tokens_per_batch=1024,
        accumulation=2,
        warmup=200,
        lr_factor=0.5,
        eps_ls=0.0,
        clip_norm=1.0,
        validate_every=100,
        score_every=500,
        save_every=100,
        keep=5,
    ),
)
"""GPT-2's layout, small: it learns half a megabyte of text, such as the lessons, in minutes on a laptop."""

GPT2 = Config(
    model=ModelConfig(
        architecture="decoder",
        vocab_size=50260,  # GPT-2's 50,257, and three special pieces more
        N=12,
        d_model=768,
        d_ff=3072,
        h=12,
        attention_dropout=0.1,
        norm="pre",
        ln_eps=1e-5,
        positions="learned",
        max_positions=1024,
        activation="gelu",
    ),
    data=DataConfig(task="language-model", max_length=1024),
    training=TrainingConfig(accumulation=128, eps_ls=0.0),
)
"""The smallest GPT-2 (Radford et al. 2019, section 2.3): 124 million parameters, and 512 windows in a step."""


BERT_TINY = Config(
    model=ModelConfig(
        architecture="encoder",
        vocab_size=1200,
        N=2,
        d_model=64,
        d_ff=128,
        h=4,
        P_drop=0.0,
        positions="learned",
        max_positions=64,
        activation="gelu",
    ),
    data=DataConfig(task="masked-language-model", max_length=64),
    training=TrainingConfig(
        steps=1600,
        tokens_per_batch=1024,
        accumulation=2,
        bucket_fineness=2,
        warmup=400,
        eps_ls=0.0,
        validate_every=200,
        score_every=200,
        save_every=100,
        keep=5,
    ),
)
"""BERT's layout, small: a masked language model of the bundled English, in minutes on a laptop."""

ANTECEDENT = replace(
    BERT_TINY,
    model=replace(BERT_TINY.model, n_classes=2),
    data=replace(BERT_TINY.data, task="antecedent"),
    training=replace(
        BERT_TINY.training,
        steps=600,
        tokens_per_batch=512,
        warmup=100,
        lr_factor=0.1,
        validate_every=50,
        score_every=50,
        save_every=50,
    ),
)
"""Which noun does "it" mean? With training.pretrained=runs/bert-tiny it begins with what that model has learned."""

VIT_DIGITS = Config(
    model=ModelConfig(
        architecture="vision",
        n_classes=10,
        N=2,
        d_model=64,
        d_ff=128,
        h=4,
        norm="pre",
        activation="gelu",
        positions="learned",
        max_positions=17,
    ),
    data=DataConfig(task="digits", max_length=17),
    training=TrainingConfig(
        steps=800,
        tokens_per_batch=544,
        accumulation=2,
        warmup=100,
        lr_factor=0.15,
        eps_ls=0.0,
        validate_every=100,
        score_every=100,
        save_every=20,
        keep=10,
        average_last=10,
    ),
)
"""A Vision Transformer on images of 8 x 8 pixels: 16 patches and the class token, 64 images a step."""


TABLE3: dict[str, dict[str, Any]] = {
    "A1": {"h": 1, "d_k": 512, "d_v": 512},
    "A2": {"h": 4, "d_k": 128, "d_v": 128},
    "A3": {"h": 16, "d_k": 32, "d_v": 32},
    "A4": {"h": 32, "d_k": 16, "d_v": 16},
    "B1": {"d_k": 16},
    "B2": {"d_k": 32},
    "C1": {"N": 2},
    "C2": {"N": 4},
    "C3": {"N": 8},
    "C4": {"d_model": 256, "d_k": 32, "d_v": 32},
    "C5": {"d_model": 1024, "d_k": 128, "d_v": 128},
    "C6": {"d_ff": 1024},
    "C7": {"d_ff": 4096},
    "D1": {"P_drop": 0.0},
    "D2": {"P_drop": 0.2},
    "D3": {"eps_ls": 0.0},
    "D4": {"eps_ls": 0.2},
    "E": {"positions": "learned"},
}
"""The rows of Table 3 as changes to the base model."""


def to_french(config: Config) -> Config:
    """Change a configuration to English-French: 32,000 word pieces (paper §5.1), dropout 0.1 also if big (§6.1)."""
    return replace(
        config,
        model=replace(config.model, vocab_size=32000, P_drop=0.1),
        data=replace(config.data, target_language="fr"),
    )


PRESETS: dict[str, Config] = {
    "tiny": TINY,
    "multi30k": MULTI30K,
    "base": BASE,
    "big": BIG,
    "wmt14-en-de-base": BASE,
    "wmt14-en-de-big": BIG,
    "wmt14-en-fr-base": to_french(BASE),  # the runs of Table 2
    "wmt14-en-fr-big": to_french(BIG),
    "parsing": PARSING,
    "parsing-small": PARSING_SMALL,
    "parsing-tiny": PARSING_TINY,
    "gpt-tiny": GPT_TINY,
    "gpt2": GPT2,
    "bert-tiny": BERT_TINY,
    "antecedent": ANTECEDENT,
    "vit-digits": VIT_DIGITS,
}
PUBLIC_CORPORA = ["multi30k", "wmt14-en-de", "wmt14-en-fr"]
"""What `scratchformer data` can download (`preparation.datasets`); their presets have names that begin with these."""


def preset(name: str) -> Config:
    """Return one of PRESETS, or a row of Table 3 (A1 ... E). Raises UserError if there is none of this name."""
    if name in PRESETS:
        return PRESETS[name]
    if name in TABLE3:
        return with_settings(BASE, TABLE3[name])
    names = [*PRESETS, *TABLE3]
    raise UserError(f"no preset {name!r}{nearest(name, names)}; there are {', '.join(names)}")


def require_task(config: Config, name: str, *tasks: str) -> None:
    """Raises UserError unless the configuration `name` is for one of these tasks."""
    if config.data.task not in tasks:
        raise UserError(f"{name}: is for {config.data.task}, but this needs {' or '.join(tasks)}")


def require_work_for(config: Config, nproc: int) -> None:
    """Raises UserError if a step has fewer micro-batches than there are processes."""
    settings = config.training
    if nproc > settings.accumulation:
        positions = max(1, settings.tokens_per_batch * settings.accumulation // nproc)
        remedy = ""
        if positions >= config.data.max_length:  # so that each pair fits into a batch
            remedy = f"--set training.accumulation={nproc} --set training.tokens_per_batch={positions}"
            remedy = f"; a step of the same size with one for each would be {remedy}"
        raise UserError(
            f"{nproc} processes, but training.accumulation={settings.accumulation}: a step has fewer micro-batches "
            f"than that{remedy}"
        )


# Settings and files ---------------------------------------------------------------------------------------------------


def all_keys() -> list[str]:
    """The full key of every setting: "model.vocab_size", ..."""
    return [f"{part}.{item.name}" for part, kind in PARTS.items() for item in fields(kind)]


KEYS = {key: key for key in all_keys()} | {key.split(".")[1]: key for key in all_keys()}
"""Full key or name of every setting -> its full key; each name occurs in only one part."""

RENAMED = {
    "bleu_every": "training.score_every",
    "training.bleu_every": "training.score_every",
    "wire": "training.gradient_dtype",
    "training.wire": "training.gradient_dtype",
    "smoothing": "training.spread",
    "training.smoothing": "training.spread",
}
"""Old name of a setting -> its name now; old runs have the old one."""


def full_key(key: str) -> str:
    """`P_drop` -> `model.P_drop`"""
    key = RENAMED.get(key, key)
    if key not in KEYS:
        raise UserError(f"no setting {shown(key)}{nearest(key, list(KEYS))}")
    return KEYS[key]


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
    if {"d_model", "h"} & set(changes["model"]):
        for name in ("d_k", "d_v"):
            if getattr(config.model, name) == config.model.d_model // config.model.h:
                changes["model"].setdefault(name, None)
    return replace(config, **{part: replace(getattr(config, part), **values) for part, values in changes.items()})


def parse_setting(text: str) -> tuple[str, Any]:
    """`model.P_drop=0.3` -> full key and value. The value is parsed as TOML; if that fails, it is a string.

    Raises UserError for an unknown key, and unless the text is one line with an equals sign.
    """
    key, equals, value = text.partition("=")
    if not equals or len(text.splitlines()) > 1:
        raise UserError(f"--set {shown(text)}: expected key=value, in one line")
    key = full_key(key.strip())
    value, default = value.strip(), flat(BASE)[key]
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
        return key, value if isinstance(default, str) and not isinstance(parsed, str) else parsed
    except (ValueError, RecursionError):  # the former also for a number of thousands of digits
        pass
    with suppress(ValueError):  # .3 and 2. are no TOML
        return key, float(value) if isinstance(default, float) else value
    return key, value


PATHS = {f"data.{name}" for name in ("directory", "train_source", "train_target", "val_source", "val_target", "text")}
PATHS |= {"training.pretrained"}
"""Settings that name files. They are stored as absolute paths, so that a run can be resumed from anywhere."""


def named_paths(config: Config) -> list[str]:
    """The files and directories that a configuration names."""
    values = [value for key, value in flat(config).items() if key in PATHS and value]
    return [path for value in values for path in ([value] if isinstance(value, str) else value)]


WHEN_TO_STOP = {f"training.{name}" for name in ("steps", "max_tokens", "minutes", "patience")}
WHEN_TO_SAVE = {f"training.{name}" for name in ("validate_every", "score_every", "save_every", "keep", "average_last")}
HARDWARE = {f"training.{name}" for name in ("threads", "device", "precision", "gradient_dtype")}
SEARCH = {f"decoding.{item.name}" for item in fields(DecodingConfig)}

MAY_CHANGE = PATHS | WHEN_TO_STOP | WHEN_TO_SAVE | HARDWARE | SEARCH
"""Settings with which a run may be resumed even if they differ (a checksum verifies that the text is the same). Any
other difference would make it another run."""


NEEDS_VALIDATION = {f"training.{name}" for name in ("patience", "validate_every", "score_every")}


def require_effect(config: Config, named: Collection[str], has_validation: bool) -> None:
    """Raises UserError if a setting means nothing beside the others.

    named           the settings that the user gave: a preset may have values that a configuration does not need
    has_validation  whether there is anything to validate with
    """
    model, training, task = config.model, config.training, config.data.task
    reasons: dict[str, str] = {}
    if not has_validation:
        advice = "give --val-source and --val-target (for prepared text, to `scratchformer data`), or leave it out"
        reasons |= dict.fromkeys(NEEDS_VALIDATION, f"there is no validation text; {advice}")
    if model.architecture != "encoder-decoder":
        reasons |= dict.fromkeys(SEARCH, f"data.task={task} has no search; leave it out")
    if model.architecture == "vision":
        of_text = ("model.vocab_size", "model.tied", "model.max_positions", "data.max_length", "data.byte_fallback")
        reasons |= dict.fromkeys(of_text, f"data.task={task} reads no text; leave it out")
    else:
        of_images = ("model.image_size", "model.patch_size")
        reasons |= dict.fromkeys(of_images, f"data.task={task} reads no images; leave it out")
        if model.positions != "learned":
            reasons["model.max_positions"] = (
                "only learned positions have a limit; give model.positions=learned, or leave it out"
            )
    if not training.eps_ls:
        reasons["training.spread"] = (
            "nothing is spread without label smoothing; give training.eps_ls above 0, or leave it out"
        )
    if training.average_last > training.keep:
        reasons["training.average_last"] = (
            f"fewer checkpoints are kept; give training.keep={training.average_last}, or leave it out"
        )
    values = flat(config)
    given = {*named, "training.patience"}  # no preset stops early
    for key in sorted(given & reasons.keys()):
        if values[key] not in (0, False, "none"):  # these ask for nothing
            raise UserError(f"{key}={values[key]} has no effect: {reasons[key]}")


def require_same(made_with: Config, config: Config, path: Path, may_change: Collection[str] = MAY_CHANGE) -> None:
    """Raises UserError if settings outside `may_change` differ between `config` and `made_with`, read from `path`."""
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
    settings = {}
    if not isinstance(parts, dict):
        raise UserError(f"{where}: not a configuration, but {shown(parts)}")
    for part, values in parts.items():
        if part not in PARTS:
            raise UserError(f"{where}: no table [{part}]{nearest(part, list(PARTS))}")
        if not isinstance(values, dict):
            raise UserError(f"{where}: {part} must be a table, not {shown(values)}")
        for name, value in values.items():
            key = RENAMED.get(f"{part}.{name}", f"{part}.{name}")
            if key not in KEYS:
                names = [item.name for item in fields(PARTS[part])]
                raise UserError(f"{where}: no setting {name!r} in [{part}]{nearest(name, names)}")
            settings[key] = value
    try:
        return with_settings(Config(), settings)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def to_dict(config: Config) -> dict[str, Any]:
    """Nested dictionaries, as `from_dict` takes them: the settings of each table."""
    return {part: dict(vars(getattr(config, part))) for part in PARTS}


MAX_FILE_BYTES = 2**20
"""A configuration takes two kilobytes; more than this is something else."""


def load(path: Path) -> Config:
    """Read a TOML file. Raises UserError for a missing or malformed file, unknown names and impossible values."""
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise UserError(f"{path}: not a file on disk")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise UserError(f"{path}: too large for a configuration, more than {MAX_FILE_BYTES} bytes")
    try:
        parts = tomllib.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise UserError(f"{path}: not a configuration: brackets within brackets, too many of them") from None
    except ValueError as error:  # no TOML, no UTF-8, a number of thousands of digits
        raise UserError(f"{path}: not a TOML file: {in_one_line(error)}") from None
    return from_dict(parts, str(path))


def to_toml(config: Config) -> str:
    """The text of a TOML file that `load` reads back as the same configuration."""
    import tomli_w  # here, because a machine that is lent for some minutes may lack it

    return tomli_w.dumps(to_dict(config))
