"""What earlier versions wrote can still be read: the committed model, and runs with an old name of a setting."""

from pathlib import Path

from scratchformer import config as configs
from scratchformer.tasks import start
from scratchformer.training import loop
from scratchformer.training.run import load_run

TINY_MODEL = Path(__file__).parents[2] / "data" / "tiny_model"


def test_the_committed_model_translates():
    translator = load_run(TINY_MODEL)
    assert translator.translate(["The dog sleeps.", "The cat is sleeping."])[0] == "Der Hund schläft."


def test_a_run_with_the_old_name_of_a_setting_resumes(begin, monkeypatch, same_run, small_config):
    """`training.gradient_dtype` was called `wire`."""
    whole = begin("whole", steps=9)
    loop.train(whole)

    to_dict = configs.to_dict

    def with_old_name(config):
        parts = to_dict(config)
        training = parts["training"]
        return parts | {"training": {"wire" if key == "gradient_dtype" else key: training[key] for key in training}}

    monkeypatch.setattr(configs, "to_dict", with_old_name)
    old = begin("old", steps=6)
    loop.train(old)
    monkeypatch.setattr(configs, "to_dict", to_dict)
    assert 'wire = ""' in old.run.config_file.read_text(encoding="utf-8")

    resumed, complaints = start.resume(old.run, small_config(steps=9))
    assert complaints == []
    loop.train(resumed)
    same_run(resumed.run, whole.run)


def test_the_old_name_is_a_setting(small_config):
    assert configs.parse_setting("wire=bf16") == ("training.gradient_dtype", "bf16")
