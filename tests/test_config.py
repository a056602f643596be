import re
from typing import get_args, get_type_hints

import pytest

from scratchformer import config as configs
from scratchformer.config import (
    BASE,
    PRESETS,
    TABLE3,
    Config,
    ModelConfig,
    from_dict,
    load,
    preset,
    to_toml,
    with_settings,
)
from scratchformer.errors import UserError
from scratchformer.experiments.paper import PAPER_TABLE3


@pytest.fixture
def write(tmp_path):
    """write(text) -> path of a TOML file that says so"""

    def to_file(text):
        path = tmp_path / "own.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        return path

    return to_file


# --- presets


@pytest.mark.parametrize("name", [*PRESETS, *TABLE3])
def test_every_preset_survives_toml(name, write):
    config = preset(name)
    assert load(write(to_toml(config))) == config
    assert from_dict(configs.to_dict(config), "here") == config


def test_the_papers_base_and_big_model():
    base, big = PRESETS["base"], PRESETS["big"]
    assert (base.model.N, base.model.d_model, base.model.d_ff, base.model.h) == (6, 512, 2048, 8)
    assert (base.model.d_k, base.model.d_v, base.model.P_drop, base.training.eps_ls) == (64, 64, 0.1, 0.1)
    assert (base.training.beta1, base.training.beta2, base.training.eps) == (0.9, 0.98, 1e-9)
    assert base.training.warmup == 4000
    assert (base.training.steps, base.decoding.beam, base.decoding.alpha) == (100_000, 4, 0.6)
    assert (big.model.d_model, big.model.d_ff, big.model.h, big.model.P_drop) == (1024, 4096, 16, 0.3)
    assert (big.training.steps, big.training.average_last) == (300_000, 20)


def test_the_four_runs_of_table_2():
    assert PRESETS["wmt14-en-de-base"] == BASE and PRESETS["wmt14-en-de-big"] == PRESETS["big"]
    for size in ("base", "big"):
        german, french = (PRESETS[f"wmt14-en-{language}-{size}"] for language in ("de", "fr"))
        changed = {key: value for key, value in configs.flat(french).items() if value != configs.flat(german)[key]}
        no_overfitting = {"model.P_drop": 0.1} if size == "big" else {}  # paper §6.1: 0.1 instead of 0.3
        assert changed == {"model.vocab_size": 32000, "data.target_language": "fr"} | no_overfitting
        assert german.training.tokens_per_batch * german.training.accumulation == 8 * 4096
        assert german.model.vocab_size == 37000 and german.data.target_language == "de"
    for size, spacing, last in (("base", 1500, 5), ("big", 600, 20)):
        training = PRESETS[f"wmt14-en-fr-{size}"].training
        assert (training.save_every, training.average_last) == (spacing, last) and training.keep >= last


@pytest.mark.parametrize("row", TABLE3)
def test_a_row_of_table_3_changes_what_it_names_and_nothing_else(row):
    config = configs.flat(preset(row))
    changes = {configs.full_key(key): value for key, value in TABLE3[row].items()}
    assert config == configs.flat(BASE) | changes


# --- settings


def test_settings_by_short_and_full_name():
    changed = with_settings(BASE, {"P_drop": 0.3, "training.warmup": 8000, "directory": "there"})
    assert (changed.model.P_drop, changed.training.warmup, changed.data.directory) == (0.3, 8000, "there")
    assert with_settings(changed, {"P_drop": 0.1, "warmup": 4000, "directory": ""}) == BASE
    assert BASE.model.P_drop == 0.1 and len(configs.KEYS) == 2 * len(configs.ALL_KEYS), "short names are unique"


def test_key_and_value_sizes_follow_d_model_and_h():
    assert (ModelConfig().d_k, ModelConfig(h=16).d_v, ModelConfig(d_model=256).d_k) == (64, 32, 32)
    assert with_settings(BASE, {"h": 16}).model.d_k == 32
    assert with_settings(with_settings(BASE, {"h": 16}), {"d_model": 1024}).model.d_v == 64
    assert with_settings(BASE, {"h": 16, "d_k": 5}).model.d_k == 5
    assert with_settings(with_settings(BASE, {"d_k": 16}), {"h": 4}).model.d_k == 16, "was set by hand"
    assert with_settings(with_settings(BASE, {"d_k": 16}), {"h": 4}).model.d_v == 128


@pytest.mark.parametrize(
    "text, expected",
    [
        ("P_drop=0.3", ("model.P_drop", 0.3)),
        ('norm="pre"', ("model.norm", "pre")),
        ("attention_bias=false", ("model.attention_bias", False)),
        ("directory=a=b", ("data.directory", "a=b")),
        ("steps=1e3", ("training.steps", 1e3)),
    ],
)
def test_a_setting_as_text(text, expected):
    assert configs.parse_setting(text) == expected


@pytest.mark.parametrize("preset", PRESETS)
def test_the_task_decides_the_model(preset, write):
    """Its architecture and number of classes are not settings, and follow a change of task."""
    config = PRESETS[preset]
    assert (config.model.architecture, config.model.n_classes) == configs.MODEL_OF_TASK[config.data.task]
    assert "architecture" not in to_toml(config)
    translator = with_settings(config, {"task": "translation", "n_tags": 0}).model
    assert (translator.architecture, translator.n_classes) == ("encoder-decoder", 0)


# --- impossible values


FIELDS = {key: hint for part in configs.PARTS.values() for key, hint in get_type_hints(part).items()}
NUMBERS = [key for key, hint in FIELDS.items() if {int, float} & {hint, *get_args(hint)}]


@pytest.mark.parametrize("key", [key for key in configs.ALL_KEYS if key.split(".")[1] in NUMBERS])
def test_every_number_has_a_finite_range(key):
    part, name = key.split(".")
    low, high = configs.RANGES[name]
    assert low <= getattr(getattr(BASE, part), name) <= high
    for value in [float("nan"), float("inf"), -1, low - 1, 1e300]:
        with pytest.raises(UserError, match=re.escape(f" must lie between {low} and {high}") + "$"):
            with_settings(BASE, {key: value})


def test_only_numbers_have_a_range():
    assert sorted(configs.RANGES) == sorted(NUMBERS)


IMPOSSIBLE = [
    ("base", "N = '6'", "model.N must be of type int, not '6'"),
    ("base", "P_drop = '0.1'", "model.P_drop must be of type float"),
    (
        "base",
        "spread = 'Others'",
        "training.spread must be one of others, uniform, not 'Others'; did you mean 'others'?",
    ),
    ("base", "attention_bias = 1", "model.attention_bias must be of type bool"),
    ("base", "device = 'tpu'", "training.device='tpu' must be cpu, gpu or gpu:N"),
    ("base", "precision = 'bf16'", "training.precision=bf16 is for a GPU"),
    ("base", "h = 7", "model.d_model=512 is not a multiple of model.h=7: set model.d_k"),
    ("base", "target_language = 'en'", "data.source_language and data.target_language are both 'en'"),
    ("base", "target_vocab_size = 9", "two vocabularies need an encoder and a decoder, with model.tied='none'"),
    ("E", "max_length = 300", "data.max_length=300 must be at most model.max_positions=256"),
    ("tiny", "n_tags = 1", "model.n_tags=1 is for data.task=parsing, not translation"),
    ("vit-digits", "patch_size = 3", "model.image_size=8 is not a multiple of model.patch_size=3"),
    ("base", "P_dorp = 0.1", "no setting 'P_dorp'; did you mean 'P_drop'"),
    ("base", "model.warmup = 3", "no setting 'model.warmup'"),
    ("bsae", "N = 6", "no preset 'bsae'; did you mean 'base'?; there are tiny, demo, multi30k, "),
]


@pytest.mark.parametrize("name, setting, complaint", IMPOSSIBLE)
def test_an_impossible_setting_is_refused(name, setting, complaint):
    with pytest.raises(UserError) as no:
        with_settings(preset(name), dict([configs.parse_setting(setting)]))
    assert complaint in str(no.value)


def test_a_task_needs_its_model():
    with pytest.raises(UserError, match="data.task=digits needs another model: "):
        Config(ModelConfig(architecture="decoder"), configs.DataConfig(task="digits"))


def test_a_whole_number_may_stand_for_a_float():
    changed = with_settings(BASE, {"P_drop": 0, "minutes": 5})
    assert (changed.model.P_drop, changed.training.minutes) == (0.0, 5.0)
    assert type(changed.training.minutes) is float


# --- files


def test_what_a_file_leaves_out_is_that_of_the_base_model(write):
    assert load(write("")) == Config() == BASE
    assert load(write("[model]\nh = 16\n")) == with_settings(BASE, {"h": 16})


@pytest.mark.parametrize(
    "text, message",
    [
        ("[model]\nh = ", "not a TOML file"),
        ("[modle]\n", r"no table \[modle\]; did you mean 'model'"),
        ("model = 3\n", "model must be a table, not 3"),
        ("[model]\nwarmup = 5\n", "no setting 'model.warmup'"),
        ("[model]\nd_modell = 5\n", "no setting 'model.d_modell'; did you mean 'model.d_model'"),
    ],
)
def test_a_bad_file_is_named(write, text, message):
    path = write(text)
    with pytest.raises(UserError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


NO_VALIDATION = "there is no validation text; give --val-source"
NO_LIMIT = "only learned positions have a limit; give model.positions=learned, or leave it out"
WITHOUT_EFFECT = [
    ("tiny", {"patience": 3}, False, NO_VALIDATION),
    ("tiny", {"validate_every": 9}, False, NO_VALIDATION),
    ("gpt-tiny", {"beam": 8}, True, "language-model has no search, or leave it out"),
    ("vit-digits", {"vocab_size": 90}, True, "digits reads no text"),
    ("tiny", {"patch_size": 4}, True, "translation reads no images"),
    ("tiny", {"max_positions": 300}, True, NO_LIMIT),
    ("tiny", {"rope_theta": 1e5}, True, "give model.positions=rotary"),
    ("tiny", {"learning_rate": 0.01}, True, "give training.schedule=cosine"),
    ("llama-tiny", {"lr_factor": 2.0}, True, "the cosine schedule has training.learning_rate"),
]


@pytest.mark.parametrize("name, changes, validates, complaint", WITHOUT_EFFECT)
def test_a_setting_without_effect_is_refused_if_the_user_names_it(name, changes, validates, complaint):
    config, ((key, value),) = with_settings(preset(name), changes), changes.items()
    with pytest.raises(UserError) as refusal:
        configs.require_effect(config, {configs.full_key(key)}, validates)
    assert f"{configs.full_key(key)}={value} has no effect: {complaint}" in str(refusal.value)


@pytest.mark.parametrize("name", PRESETS)
def test_what_a_preset_does_not_need_is_not_refused(name):
    configs.require_effect(PRESETS[name], set(), has_validation=False)


def test_the_papers_table_3_has_every_row():
    assert PAPER_TABLE3.keys() == {"base", *TABLE3, "big"}
