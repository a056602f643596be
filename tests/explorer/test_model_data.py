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
from scratchformer.errors import UserError
from scratchformer.explorer import model_data
from scratchformer.explorer.model_data import describe, describe_tokenizer
from scratchformer.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
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
    assert description["label_smoothing"] == 0.1
    assert description["right_target"] == 0.9 and description["schedule"].keys() == {"warmup", "lr_factor"}
    assert description["caption"].startswith("weights of trained, corpus") and "12 steps" in description["caption"]


def test_the_code_of_each_function_is_that_of_the_lesson_if_there_are_lessons(described, monkeypatch, tmp_path):
    text = model_data.LESSON.read_text(encoding="utf-8")
    code = described[0]["code"]
    assert {"linear", "layer_norm", "adam"} <= code.keys() and all(f"\n{part}\n\n" in text for part in code.values())
    monkeypatch.setattr(model_data, "LESSON", tmp_path / "transformer.py")
    assert model_data.lesson_code() is None


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


def test_the_caption_has_the_bleu_that_was_recorded_for_these_weights(own_run):
    record = {"weights_crc32": zlib.crc32(describe(own_run, "best")[1]), "bleu": 56.78}
    (own_run.path / "record.json").write_text(json.dumps(record), encoding="utf-8")
    assert describe(own_run, "best")[0]["caption"].endswith("BLEU 56.8")
    assert "BLEU" not in describe(own_run, own_run.checkpoints.of_step(3))[0]["caption"]
    assert describe(TINY_MODEL)[0]["caption"].endswith("2,000 steps, BLEU 97.6")


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
