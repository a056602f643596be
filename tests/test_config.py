import re
from dataclasses import asdict
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
        changed = {key: value for key, value in values_of(french).items() if value != values_of(german)[key]}
        no_overfitting = {"model.P_drop": 0.1} if size == "big" else {}  # paper §6.1: 0.1 instead of 0.3
        assert changed == {"model.vocab_size": 32000, "data.target_language": "fr"} | no_overfitting
        assert german.training.tokens_per_batch * german.training.accumulation == 8 * 4096
        assert german.model.vocab_size == 37000 and german.data.target_language == "de"
    for size, spacing, last in (("base", 1500, 5), ("big", 600, 20)):
        training = PRESETS[f"wmt14-en-fr-{size}"].training
        assert (training.save_every, training.average_last) == (spacing, last) and training.keep >= last


def values_of(config):
    return {f"{part}.{name}": value for part, values in asdict(config).items() for name, value in values.items()}


@pytest.mark.parametrize("row", TABLE3)
def test_a_row_of_table_3_changes_what_it_names_and_nothing_else(row):
    config = values_of(preset(row))
    changes = {configs.full_key(key): value for key, value in TABLE3[row].items()}
    assert config == values_of(BASE) | changes


@pytest.mark.parametrize("name, suggestion", [("bsae", "base"), ("multi30", "multi30k"), ("big2", "big")])
def test_an_unknown_preset_suggests_the_nearest(name, suggestion):
    with pytest.raises(UserError, match=f"no preset '{name}'; did you mean '{suggestion}.*there are tiny, multi30k, "):
        preset(name)


# --- settings


def test_settings_by_short_and_full_name():
    changed = with_settings(BASE, {"P_drop": 0.3, "training.warmup": 8000, "directory": "there"})
    assert (changed.model.P_drop, changed.training.warmup, changed.data.directory) == (0.3, 8000, "there")
    assert values_of(with_settings(changed, {"P_drop": 0.1, "warmup": 4000, "directory": ""})) == values_of(BASE)
    assert BASE.model.P_drop == 0.1


def test_every_short_name_is_of_one_setting():
    short = [key.split(".")[1] for key in configs.all_keys()]
    assert len(set(short)) == len(short)


def test_key_and_value_sizes_follow_d_model_and_h():
    assert (ModelConfig().d_k, ModelConfig(h=16).d_v, ModelConfig(d_model=256).d_k) == (64, 32, 32)
    assert with_settings(BASE, {"h": 16}).model.d_k == 32
    assert with_settings(with_settings(BASE, {"h": 16}), {"d_model": 1024}).model.d_v == 64
    assert with_settings(BASE, {"h": 16, "d_k": 5}).model.d_k == 5
    assert with_settings(with_settings(BASE, {"d_k": 16}), {"h": 4}).model.d_k == 16, "was set by hand"
    assert with_settings(with_settings(BASE, {"d_k": 16}), {"h": 4}).model.d_v == 128


@pytest.mark.parametrize(
    "name, settings, complaint",
    [
        ("tiny", {"n_tags": 1}, "model.n_tags=1 is for data.task=parsing, not translation"),
        (
            "parsing-small",
            {"n_tags": 8, "target_vocab_size": 11},
            "model.n_tags=8: the target has 11 ids, four of them",
        ),
    ],
)
def test_tags_that_cannot_be(name, settings, complaint):
    with pytest.raises(UserError, match=complaint):
        with_settings(preset(name), settings)


def test_d_model_that_h_does_not_divide():
    with pytest.raises(UserError, match="model.d_model=512 is not a multiple of model.h=7: set model.d_k"):
        with_settings(BASE, {"h": 7})
    assert with_settings(BASE, {"h": 7, "d_k": 64, "d_v": 64}).model.h == 7


@pytest.mark.parametrize(
    "text, expected",
    [
        ("P_drop=0.3", ("model.P_drop", 0.3)),
        (" steps = 5", ("training.steps", 5)),
        ("norm=pre", ("model.norm", "pre")),
        ('norm="pre"', ("model.norm", "pre")),
        ("attention_bias=false", ("model.attention_bias", False)),
        ("directory=a=b", ("data.directory", "a=b")),
        ("directory=", ("data.directory", "")),
        ("steps=1e3", ("training.steps", 1e3)),
    ],
)
def test_a_setting_as_text(text, expected):
    assert configs.parse_setting(text) == expected


@pytest.mark.parametrize(
    "text, message",
    [
        ("P_dorp=0.1", "no setting 'P_dorp'; did you mean 'P_drop'"),
        ("P_drop", "key=value"),
        ("model.warmup=3", "no setting"),
        ("training.wamrup=3", "did you mean 'training.warmup'"),
    ],
)
def test_an_impossible_setting_as_text(text, message):
    with pytest.raises(UserError, match=message):
        configs.parse_setting(text)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_task_decides_the_model(preset, write):
    """Its architecture and number of classes are not settings, and follow a change of task."""
    config = PRESETS[preset]
    assert (config.model.architecture, config.model.n_classes) == configs.MODEL_OF_TASK[config.data.task]
    assert "architecture" not in to_toml(config)
    translator = with_settings(config, {"task": "translation", "n_tags": 0}).model
    assert (translator.architecture, translator.n_classes) == ("encoder-decoder", 0)
    with pytest.raises(UserError, match="data.task=digits needs another model: "):
        Config(ModelConfig(architecture="decoder"), configs.DataConfig(task="digits"))


# --- impossible values


FIELDS = {key: hint for part in configs.PARTS.values() for key, hint in get_type_hints(part).items()}
NUMBERS = [key for key, hint in FIELDS.items() if {int, float} & {hint, *get_args(hint)}]


@pytest.mark.parametrize("key", [each.split(".")[1] for each in configs.all_keys() if each.split(".")[1] in NUMBERS])
def test_every_number_has_a_finite_range(key):
    low, high = configs.RANGES[key]
    kind = float if FIELDS[key] is float else int
    assert low <= getattr(getattr(BASE, configs.full_key(key).split(".")[0]), key) <= high
    impossible = [float("nan"), float("inf"), -1, low - 1, 1e300]
    impossible += [low - 1e-9, high * 1.0000001] if kind is float else [high + 1]
    for value in impossible:
        with pytest.raises(UserError, match=re.escape(f" must lie between {low} and {high}") + "$"):
            with_settings(BASE, {key: value})


def test_only_numbers_have_a_range():
    assert sorted(configs.RANGES) == sorted(NUMBERS)


@pytest.mark.parametrize(
    "key, value",
    [
        ("N", 6.0),
        ("N", "6"),
        ("N", True),
        ("N", None),
        ("P_drop", "0.1"),
        ("P_drop", True),
        ("norm", "Post"),
        ("norm", 1),
        ("tied", True),
        ("attention_bias", 1),
        ("attention_bias", "yes"),
        ("directory", 3),
        ("d_k", 1.5),
        ("seed", {}),
    ],
)
def test_a_value_of_the_wrong_type_is_named(key, value):
    key = configs.full_key(key)
    with pytest.raises(UserError, match=f"^{key} must be "):
        with_settings(BASE, {key: value})


def test_a_whole_number_may_stand_for_a_float():
    changed = with_settings(BASE, {"P_drop": 0, "minutes": 5})
    assert (changed.model.P_drop, changed.training.minutes) == (0.0, 5.0)
    assert type(changed.training.minutes) is float


def test_learned_positions_must_reach_as_far_as_the_text():
    with pytest.raises(UserError, match="data.max_length=300 must be at most model.max_positions=256"):
        with_settings(preset("E"), {"max_length": 300})
    assert with_settings(preset("E"), {"max_length": 300, "max_positions": 300}).data.max_length == 300


# --- files


def test_what_a_file_leaves_out_is_that_of_the_base_model(write):
    assert load(write("")) == Config() == BASE
    assert load(write("[model]\nh = 16\n")) == with_settings(BASE, {"h": 16})


@pytest.mark.parametrize(
    "text, message",
    [
        ("[model]\nh = ", "not a TOML file"),
        (b"\xff\xfe[\0", "not a TOML file"),
        ("[modle]\n", r"no table \[modle\]; did you mean 'model'"),
        ("model = 3\n", "model must be a table, not 3"),
        ("[model]\nwarmup = 5\n", r"no setting 'warmup' in \[model\]"),
        ("[model]\nd_modell = 5\n", r"no setting 'd_modell' in \[model\]; did you mean 'd_model'"),
        ("[model]\nN = 'six'\n", "model.N must be of type int"),
        ("[model]\nN = nan\n", "model.N=nan must lie"),
        ("[training]\nseed = -1\n", "training.seed=-1 must lie between 0 and 9223372036854775807"),
    ],
)
def test_a_bad_file_is_named(write, text, message):
    path = write(text)
    with pytest.raises(UserError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name, complaint", [("nowhere.toml", "No such file"), (".", "Is a directory")])
def test_what_is_no_file_to_read(tmp_path, name, complaint):
    with pytest.raises(UserError, match=complaint):
        load(tmp_path / name)


def test_a_byte_order_mark_is_skipped(write):
    assert load(write(b"\xef\xbb\xbf[model]\r\nh = 16\r\n")) == with_settings(BASE, {"h": 16})


def test_toml_is_written_in_tables():
    assert list(configs.tomllib.loads(to_toml(BASE))) == ["model", "data", "training", "decoding"]


@pytest.mark.parametrize(
    "preset, changes, validates, complaint",
    [
        ("tiny", {"patience": 3}, False, "training.patience=3 has no effect: there is no validation text"),
        ("tiny", {"score_every": 9}, False, "training.score_every=9 has no effect"),
        ("tiny", {"validate_every": 9}, False, "training.validate_every=9 has no effect"),
        (
            "gpt-tiny",
            {"beam": 8},
            True,
            "decoding.beam=8 has no effect: data.task=language-model has no search; leave it out",
        ),
        ("antecedent", {"alpha": 0.5}, True, "decoding.alpha=0.5 has no effect"),
        ("vit-digits", {"vocab_size": 90}, True, "model.vocab_size=90 has no effect: data.task=digits reads no text"),
        ("tiny", {"patch_size": 4}, True, "model.patch_size=4 has no effect: data.task=translation reads no images"),
        (
            "tiny",
            {"max_positions": 300},
            True,
            "only learned positions have a limit; give model.positions=learned, or leave it out",
        ),
        ("gpt-tiny", {"spread": "uniform"}, True, "training.spread=uniform has no effect: nothing is spread"),
        ("tiny", {"average_last": 9}, True, "fewer checkpoints are kept; give training.keep=9, or leave it out"),
    ],
    ids=str,
)
def test_a_setting_without_effect_is_refused_if_the_user_names_it(preset, changes, validates, complaint):
    config, named = with_settings(PRESETS[preset], changes), [configs.full_key(key) for key in changes]
    with pytest.raises(UserError) as refusal:
        configs.require_effect(config, named, validates)
    assert complaint in str(refusal.value)


@pytest.mark.parametrize("preset", PRESETS)
def test_what_a_preset_does_not_need_is_not_refused(preset):
    configs.require_effect(PRESETS[preset], [], has_validation=False)


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "learned", "max_positions": 300},
        {"keep": 9, "average_last": 9},
        {"patience": 3, "score_every": 9, "beam": 8, "spread": "uniform"},
    ],
    ids=str,
)
def test_settings_with_an_effect_are_accepted(changes):
    named = [configs.full_key(key) for key in changes]
    configs.require_effect(with_settings(PRESETS["tiny"], changes), named, has_validation=True)


def test_what_is_switched_off_may_be_named():
    config = with_settings(PRESETS["multi30k"], {"score_every": 0})
    configs.require_effect(config, ["training.score_every"], has_validation=False)


def test_the_papers_table_3_has_every_row():
    assert PAPER_TABLE3.keys() == {"base", *TABLE3, "big"}
