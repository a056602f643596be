"""The description of a run on the explorer's page agrees with the run."""

import io
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from scratchformer import config as configs
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.explorer import model_data
from scratchformer.explorer.model_data import describe, describe_tokenizer, read_record, sharpest_head, spread
from scratchformer.tasks import start
from scratchformer.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from scratchformer.training import checkpoints, loop
from scratchformer.training.run import RunDirectory, load_run

TINY_MODEL = RunDirectory(Path(__file__).parents[2] / "data" / "tiny_model")


@pytest.fixture(scope="module")
def described(trained):
    return describe(trained)


def test_the_weights_are_the_model_s(trained, described):
    description, weights = described
    model = load_run(trained.path).model
    numbers = np.frombuffer(weights, "<f4")
    expected = model.store.named_views(model.store.data)
    assert [parameter["name"] for parameter in description["parameters"]] == list(expected)
    for parameter in description["parameters"]:
        array = expected[parameter["name"]]
        found = numbers[parameter["offset"] :][: array.size].reshape(parameter["shape"])
        assert np.array_equal(found, array)
    assert numbers.size == model.store.data.size


def test_the_description_is_json_and_says_what_the_run_is(trained, described):
    description = json.loads(json.dumps(described[0], allow_nan=False))
    assert description["config"]["d_model"] == 16 and description["config"]["norm"] == "post"
    assert description["decoding"] == {"beam": 4, "alpha": 0.6, "extra_length": 4}
    assert description["languages"] == {"source": "en", "target": "de"}
    assert description["schedule"] == {"d_model": 16, "warmup": 20, "lr_factor": 1.0, "steps": 12}
    assert description["caption"].startswith("weights of trained, corpus") and "12 steps" in description["caption"]
    assert [step for step, *_ in description["log"]["steps"]] == list(range(1, 13))
    last = trained.read_log("step")[-1]
    expected = [last[name] for name in ("step", "loss", "learning_rate", "all_target_tokens")]
    assert description["log"]["steps"][-1] == pytest.approx(expected, rel=1e-4)
    assert [step for step, _ in description["log"]["validations"]] == [4, 8, 12]


def test_the_code_of_each_function_is_that_of_the_lesson_if_there_are_lessons(described, monkeypatch, tmp_path):
    text = model_data.LESSON.read_text(encoding="utf-8")
    code = described[0]["code"]
    assert {"linear", "layer_norm", "adam"} <= code.keys() and all(f"\n{part}\n\n" in text for part in code.values())
    monkeypatch.setattr(model_data, "LESSON", tmp_path / "transformer.py")
    assert model_data.lesson_code() is None


def test_a_long_log_keeps_its_ends():
    assert spread(range(5), 10) == [0, 1, 2, 3, 4]
    kept = spread(range(10_001), 400)
    assert (kept[0], kept[-1], len(set(kept))) == (0, 10_000, 400)
    assert set(np.diff(kept)) == {25, 26} and spread([], 3) == []


def test_the_replay_translates_one_sentence_with_every_checkpoint(trained, described):
    replay = described[0]["replay"]
    assert [each["step"] for each in replay["snapshots"]] == [3, 6, 9, 12]
    assert [each["loss"] is None for each in replay["snapshots"]] == [True, True, True, False]
    for each, file in zip(replay["snapshots"], trained.checkpoints.steps()):
        assert [each["translation"]] == load_run(trained.path, file).translate([replay["sentence"]])
        weights = np.array(each["weights"])
        assert weights.shape == (len(each["rows"]), len(each["columns"]))
        assert np.allclose(weights.sum(axis=1), 1, atol=0.01)
        assert each["rows"] == replay["snapshots"][-1]["rows"] and each["columns"][-1] == "</s>"


def test_without_two_checkpoints_there_is_no_replay(own_run):
    for file in own_run.checkpoints.steps()[1:]:
        file.unlink()
    own_run.log_file.unlink()
    description, _ = describe(own_run)
    assert description["replay"] is None and description["log"] is None


def test_the_replay_needs_positions_for_the_sentence_and_its_translation(small_config, tmp_path, monkeypatch):
    run, config = RunDirectory(tmp_path / "run"), small_config(positions="learned", max_positions=8, max_length=8)
    loop.train(start.begin(run, config))
    assert model_data.replay(run, config, "the dog")
    assert model_data.replay(run, config, "the dog " * 4) is None
    monkeypatch.setattr(Translator, "translate", lambda *_: ["der Hund " * 4])
    assert model_data.replay(run, config, "the dog") is None


def test_the_head_that_is_shown_is_the_sharpest():
    weights = np.full((2, 3, 4, 5), 0.2)
    weights[1, 0] = np.eye(4, 5)
    weights[0, 2, 0] = [1, 0, 0, 0, 0]
    assert sharpest_head(weights) == (1, 0)


# Sentences ------------------------------------------------------------------------------------------------------------


def test_the_examples_are_of_the_validation_text_and_begin_with_the_user_s(trained, corpus):
    lines = (corpus / "val.en").read_text(encoding="utf-8").splitlines()
    mine = ["<script>alert(1)</script>", lines[1]]
    found = describe(trained, sentences=mine)[0]["examples"]
    assert found[:2] == mine and found[2] == lines[0] and len(set(found)) == len(found) == 7


@pytest.mark.parametrize("left", [None, b"\xff\n" * 20], ids=ascii)
def test_text_that_cannot_be_read_leaves_examples_of_our_own(own_run, corpus, tmp_path, left):
    for path in corpus.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = own_run.config_file.read_text(encoding="utf-8")
    own_run.config_file.write_text(text.replace(str(corpus), str(tmp_path)), encoding="utf-8")
    (tmp_path / "val.en").unlink()
    if left:
        (tmp_path / "val.en").write_bytes(left)
    description, _ = describe(own_run)
    assert description["examples"] == model_data.EXAMPLES and description["trials"] == model_data.TRIALS


def test_the_beam_and_alpha_matter_for_the_sentences_that_the_page_suggests():
    translator = load_run(TINY_MODEL.path)
    (beam_matters, _), (alpha_matters, _) = model_data.TRIALS
    assert [translator.translate([beam_matters], beam=beam) for beam in (1, 4)] == [
        [f"Wenn das Kind traurig ist, {verb} die Kühe vor der Tür."] for verb in ("schläft", "schlafen")
    ]
    whole, cut = [translator.translate([alpha_matters], alpha=alpha)[0] for alpha in (0.6, 0)]
    assert whole.startswith(cut.removesuffix(".")) and len(whole) > 2 * len(cut)


def test_examples_of_prepared_text_and_of_single_files(prepared, corpus):
    lines = (corpus / "val.en").read_text(encoding="utf-8").splitlines()[:6]
    directory = configs.with_settings(configs.TINY, {"data.directory": str(prepared)})
    names = {"data.val_source": str(corpus / "val.en"), "data.val_target": str(corpus / "val.de")}
    files = configs.with_settings(configs.TINY, names)
    assert model_data.examples(directory.data) == model_data.examples(files.data) == lines


# The tokenizer --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_the_tokenizer_is_described_as_sentencepiece_reads_it(corpus, byte_fallback):
    lines = (corpus / "train.en").read_text(encoding="utf-8").splitlines()
    tokenizer = Tokenizer.train(lines, 300 if byte_fallback else 50, byte_fallback)
    found = describe_tokenizer(tokenizer, Path("x"))
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.serialized)
    ids = range(tokenizer.vocab_size)
    assert found["pieces"] == tokenizer.pieces(ids)
    assert found["scores"] == [processor.get_score(i) for i in ids]
    kinds = [(kind == 3, kind == 2, kind == 6) for kind in found["types"]]
    assert kinds == [(processor.is_control(i), processor.is_unknown(i), processor.is_byte(i)) for i in ids]
    assert processor.decode([UNK]) == found["unk_surface"]


@pytest.mark.parametrize(
    "options",
    [{"model_type": "unigram"}, {"normalization_rule_name": "nmt_nfkc"}, {"add_dummy_prefix": False}],
    ids=str,
)
def test_a_tokenizer_with_other_rules_is_refused(corpus, options):
    model = io.BytesIO()
    settings = {"model_type": "bpe", "normalization_rule_name": "identity", "vocab_size": 50, "minloglevel": 2}
    settings |= {"pad_id": PAD, "eos_id": EOS, "bos_id": BOS, "unk_id": UNK, "hard_vocab_limit": False}
    lines = iter((corpus / "train.en").read_text(encoding="utf-8").splitlines())
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=model, **settings | options)
    with pytest.raises(UserError, match="^x: trained with other options than ours"):
        describe_tokenizer(Tokenizer(model.getvalue()), Path("x"))


# Scores and records ---------------------------------------------------------------------------------------------------


def test_the_caption_has_the_bleu_of_this_checkpoint(own_run):
    for name, step, bleu in (("best", 12, 12.34), ("best", 4, 99), ("average", 12, 98)):
        own_run.record_evaluation({"checkpoint": f"{name}.safetensors", "step": step, "bleu": bleu})
    assert describe(own_run, "best")[0]["caption"].endswith("12 steps, BLEU 12.3")
    assert describe(own_run, "last")[0]["caption"].endswith("12 steps")


def test_what_was_recorded_is_shown(own_run, described):
    """A record of the run's best weights, in replay.json."""
    record = {
        "weights_crc32": zlib.crc32(describe(own_run, "best")[1]),
        "bleu": 56.78,
        "log": {"steps": [[1, 2.5, 0.1, 30]], "validations": [[1, 2.5]]},
        "replay": described[0]["replay"] | {"caption": "recorded"},
    }
    (own_run.path / "replay.json").write_text(json.dumps(record), encoding="utf-8")
    description, _ = describe(own_run, "best")
    assert description["replay"] == record["replay"] and description["caption"].endswith("BLEU 56.8")
    assert len(description["log"]["steps"]) == 12, "the run's own log comes first"
    assert "BLEU" not in describe(own_run, own_run.checkpoints.of_step(3))[0]["caption"], "of other weights"
    own_run.log_file.unlink()
    assert describe(own_run)[0]["log"] == record["log"]


def test_the_record_of_the_shipped_model():
    record = read_record(TINY_MODEL.path / "replay.json")
    description, _ = describe(TINY_MODEL)
    assert (TINY_MODEL.path / "replay.json").stat().st_size <= 60_000
    assert [each["step"] for each in description["replay"]["snapshots"]] == [
        *(0, 50, 100, 200, 300, 400, 600, 800, 1000, 1300, 1600, 2000)
    ]
    assert f"BLEU {record['bleu']:.1f}" in description["caption"], "the record is of these weights"
    first, *_, last = (each["loss"] for each in description["replay"]["snapshots"])
    assert last < 0.3 < 5 < first
    assert description["replay"]["caption"] == "recorded in a second run with the settings of this model"
    steps = checkpoints.progress_of(TINY_MODEL.checkpoints.average).step
    assert steps == description["replay"]["snapshots"][-1]["step"]


def test_the_words_are_those_of_the_training_text(prepared, corpus, monkeypatch):
    words = model_data.known_words(configs.TINY.data)
    assert len({word.lower() for word in words}) == 730 and {"tired", "The", "forty-seven"} <= {*words}
    expected = sorted({*re.findall(r"[\w-]+", (corpus / "train.en").read_text(encoding="utf-8"))})
    names = {"data.train_source": str(corpus / "train.en"), "data.train_target": str(corpus / "train.de")}
    for settings in {"data.directory": str(prepared)}, {"data.directory": str(corpus)}, names:
        assert model_data.known_words(configs.with_settings(configs.TINY, settings).data) == expected
    monkeypatch.setattr(model_data, "MOST_WORDS", len(expected) - 1)
    assert model_data.known_words(configs.with_settings(configs.TINY, names).data) is None
    gone = configs.with_settings(configs.TINY, {"data.directory": str(corpus / "gone")})
    assert model_data.known_words(gone.data) is None
