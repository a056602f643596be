"""Training: one step, validation, when it stops, and what happens when it goes wrong."""

import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Linear
from scratchformer.nn.loss import batch_loss_backward, cross_entropy
from scratchformer.tasks import start
from scratchformer.tasks.translation import chosen, follow_names, hold_out, read_corpus, train_tokenizer
from scratchformer.text.batches import batches_in_order
from scratchformer.text.corpora import Pairs
from scratchformer.training import checkpoints, loop
from scratchformer.training.loop import stop_on_signals, train
from scratchformer.training.run import RunDirectory
from scratchformer.training.validation import validation_loss

# One step -------------------------------------------------------------------------------------------------------------


def gradient(trainer, indices):
    """The gradient of the mean loss per target token over one large batch, and the mean loss."""
    batch = trainer.data.train.batch(indices)
    loss, n = batch_loss_backward(trainer.model, batch.inputs, batch.targets, 0.1)
    found = trainer.model.store.grad / n
    trainer.model.zero_grad()
    return found, loss / n


@pytest.fixture
def seen(monkeypatch):
    """seen(trainer) -> a dictionary that receives what its steps give to Adam: the rate and a copy of the gradient"""

    def watch(trainer):
        found, grad = {}, trainer.model.store.grad
        monkeypatch.setattr(trainer.optimizer, "step", lambda rate, norm: found.update(rate=rate, grad=grad.copy()))
        return found

    return watch


def test_a_step_divides_by_the_tokens_of_all_micro_batches(begin, seen):
    """Several micro-batches give the gradient of one large batch."""
    trainer = begin(accumulation=3, P_drop=0.0)
    indices = max(trainer.plan.epoch(0), key=len)
    assert len({batch.n_target_tokens for batch in trainer.plan.micro_batches(indices)}) > 1
    expected, loss = gradient(trainer, indices)
    given = seen(trainer)
    entry = trainer.finish(trainer.step(0, 0, indices))
    n_tokens = trainer.data.train.batch(indices).n_target_tokens
    np.testing.assert_allclose(given["grad"], expected, rtol=1e-4, atol=1e-6)
    assert entry["loss"] == pytest.approx(loss, rel=1e-5)
    assert entry["target_tokens"] == trainer.progress.target_tokens == n_tokens
    assert entry["grad_norm"] == pytest.approx(np.linalg.norm(expected), rel=1e-4)
    assert entry["learning_rate"] == given["rate"] == pytest.approx(16**-0.5 * 20**-1.5)
    assert not trainer.model.store.grad.any()


def test_a_step_of_fewer_micro_batches_is_divided_by_its_own_tokens(begin, seen):
    trainer = begin(accumulation=4, P_drop=0.0)
    indices = np.arange(2)
    assert len(trainer.plan.micro_batches(indices)) == 2
    expected, _ = gradient(trainer, indices)
    given = seen(trainer)
    trainer.step(0, 0, indices)
    np.testing.assert_allclose(given["grad"], expected, rtol=1e-4, atol=1e-6)


def test_every_micro_batch_of_every_step_draws_masks_of_its_own(begin, monkeypatch):
    trainer, drawn, keep = begin(accumulation=3, seed=7), [], DropoutKey.keep
    monkeypatch.setattr(DropoutKey, "keep", lambda key, *arguments: drawn.append(key) or keep(key, *arguments))
    indices = max(trainer.plan.epoch(0), key=len)
    for _ in range(2):
        trainer.step(0, 0, indices)
    named = {(key.seed, key.step, key.shard) for key in drawn}
    assert named == {(7, step, shard) for step in (1, 2) for shard in range(3)}
    assert len(set(drawn)) == len(drawn)


def test_a_change_after_the_trainer_was_made_reaches_all_threads(begin):
    trainer = begin(steps=1, threads=2)
    trainer.model.encoder.layers[0].feed_forward.sublayer.activation = "gelu"
    train(trainer)
    feed_forwards = [model.encoder.layers[0].feed_forward.sublayer for model in trainer.parallel.replicas]
    assert [layer.activation for layer in feed_forwards] == ["gelu", "gelu"]


# Validation -----------------------------------------------------------------------------------------------------------


def test_the_validation_loss_is_plain_and_independent_of_batching(begin):
    trainer = begin(P_drop=0.5, eps_ls=0.4)
    model, pairs = trainer.model, trainer.data.val
    batch = pairs.batch(np.arange(len(pairs)))
    logits, _ = model.forward(*batch.inputs)
    loss_sum, n_tokens, _ = cross_entropy(logits, batch.targets, smoothing=0)
    for budget in (30, 100, 10_000):
        assert validation_loss(model, pairs, budget) == pytest.approx(loss_sum / n_tokens, rel=1e-5)
    assert len(list(batches_in_order(pairs, 30))) > 5
    with ThreadPoolExecutor(3) as pool:
        assert validation_loss(model, pairs, 30, map=pool.map) == validation_loss(model, pairs, 30)


def test_the_best_checkpoint_is_that_of_the_lowest_validation_loss(begin):
    trainer = begin(steps=40, lr_factor=8.0, validate_every=2)
    train(trainer)
    validations = trainer.run.read_log("validation")
    lowest = min(validations, key=lambda entry: entry["loss"])
    best = checkpoints.load(trainer.run.checkpoints.best)
    assert (best.progress.step, best.progress.best_loss) == (lowest["step"], lowest["loss"])
    assert best.moments == {} and lowest != validations[-1]


@pytest.mark.parametrize("language, tokenizer", [("de", "13a"), ("zh_TW", "zh")])
def test_bleu_is_logged_and_shown_with_its_signature(begin, corpus, capfd, language, tokenizer):
    files = {
        f"{split}_{side}": str(corpus / f"{split}.{end}")
        for split in ("train", "val")
        for side, end in (("source", "en"), ("target", "de"))
    }
    trainer = begin(steps=4, score_every=2, target_language=language, **files)
    train(trainer)
    entries, shown = trainer.run.read_log("bleu"), capfd.readouterr().err
    assert [entry["step"] for entry in entries] == [2, 4]
    for entry in entries:
        assert 0 <= entry["bleu"] <= 100 and f"|tok:{tokenizer}|" in entry["signature"]
        assert f"validation BLEU {entry['bleu']:.2f}  ({entry['signature']})\n" in shown


def test_bleu_of_perfect_translations_is_100(begin, monkeypatch):
    trainer = begin()
    text = trainer.data.val_text
    known = dict(zip(text.source, text.target))
    monkeypatch.setattr(Translator, "translate", lambda self, sentences, beam: [known[source] for source in sentences])
    assert trainer.goal.score(trainer)["bleu"] == pytest.approx(100)


def test_without_validation_text_pairs_are_held_out(cli, corpus, tmp_path):
    small = ("vocab_size=6000", "steps=2", "N=1", "d_model=16", "d_ff=16", "validate_every=1", "h=2")
    run = RunDirectory(tmp_path / "run")
    command = ["train", corpus / "train.en", corpus / "train.de", "--out", run.path]
    result = cli(*command, *(word for each in small for word in ("--set", each)))
    assert result.code == 0 and "5 pairs, one in 20, are held out to validate with" in result.err
    assert "the text is too short for so many: the vocabulary has " in result.err
    assert run.require().model.vocab_size < 6000 and len(run.read_log("validation")) == 2
    again = cli("train", "--resume", run.path, "--set", "steps=3")
    assert again.code == 0 and "5 pairs, one in 20" in again.err
    scored = cli("evaluate", run.path, "--beam", 1)
    assert scored.code == 0 and "5 sentences of the pairs held out of the training text" in scored.out


def test_pairs_that_were_trained_on_are_not_scored(cli, refused, corpus, small_settings, tmp_path):
    text, run = Path(shutil.copytree(corpus, tmp_path / "text")), tmp_path / "run"
    assert cli("train", *small_settings, "--data", text, "--out", run).code == 0
    for language in ("en", "de"):
        (text / f"val.{language}").unlink()
    assert "was trained on other text than its files have now" in refused("evaluate", run)


def test_a_run_without_its_empty_directory_can_be_resumed(begin, small_config):
    run = begin().run
    run.checkpoints.directory.rmdir()
    trainer, _ = start.resume(run, small_config())
    train(trainer)
    assert run.checkpoints.best.exists()


# The text -------------------------------------------------------------------------------------------------------------


def test_the_tokenizer_learns_from_the_training_text_alone(small_config):
    config = small_config()
    corpus = read_corpus(config.data)
    assert corpus.val is not None
    alone = train_tokenizer(corpus._replace(val=None), config)
    assert train_tokenizer(corpus, config).serialized == alone.serialized


def test_a_sentence_that_is_held_out_is_not_trained_on():
    numbers = list(range(1, 101))
    pairs = Pairs([f"source {n % 50}" for n in numbers], [f"target {n}" for n in numbers], numbers, 3)
    train, val, remark = hold_out(pairs)
    assert val.line_numbers == [20, 40, 60, 80, 100] and val.n_empty == 0 and train.n_empty == 3
    assert not set(val.source) & set(train.source) and len(train.source) == 100 - 10
    assert train.target[:2] == ["target 1", "target 2"]
    assert "one in 20" in remark and "5 more with the same sources are not trained on" in remark
    assert hold_out(chosen(pairs, range(19))).val is None


@pytest.mark.parametrize(
    "files, settings, expected",
    [
        ("train.en train.fr", {}, "translates from en to fr"),
        ("train.de.gz train.fr", {}, "translates from fr to de"),
        ("train.cs train.fr", {}, "translates from cs to fr"),
        ("train.de train.en train.fr val.en notes.txt", {}, "translates from en to de, and does not read train.fr"),
        ("train.cs train.fr", {"data.source_language": "fr", "data.target_language": "cs"}, "translates from fr to cs"),
        ("train.DE.gz train.EN", {}, "translates from EN to DE"),
        ("train.en train.pt-BR.txt", {}, "translates from en to pt-BR"),
        ("train.cs train.en train.fr", {}, "has train.cs, train.en, train.fr; say which two"),
        (
            "train.src train.tgt",
            {},
            "give --train-source .*train.src --train-target .*train.tgt --set source_language=X",
        ),
    ],
)
def test_languages_come_from_the_names_of_files(tmp_path, files, settings, expected):
    for name in files.split():
        (tmp_path / name).write_text("text\n")
    config = configs.with_settings(configs.TINY, {"data.directory": str(tmp_path)} | settings)
    if not expected.startswith("translates"):
        with pytest.raises(UserError, match=expected):
            follow_names(config, settings)
        return
    changed, told = follow_names(config, settings)
    assert told.startswith(expected)
    assert f"from {changed.data.source_language} to {changed.data.target_language}" in told


# What the user sees ---------------------------------------------------------------------------------------------------


def test_without_a_terminal_a_line_says_now_and_then_how_far_it_is(begin, monkeypatch, capfd):
    train(begin(steps=4, score_every=0))
    assert "of about" not in capfd.readouterr().err  # all within LINE_EVERY seconds
    monkeypatch.setattr(loop, "LINE_EVERY", 0)
    train(begin("lines", steps=4, score_every=0))
    assert "step 2 of about 4: smoothed loss " in capfd.readouterr().err
    train(begin("minutes", steps=1_000_000, minutes=0.005, eps_ls=0.0))
    shown = re.findall(r"step \d+ of about (\d+): loss .*, 1 min left", capfd.readouterr().err)
    assert shown and int(shown[-1]) < 10_000, "the minutes, not the steps, end it"


# When to stop ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings, expected", [("warmup=20", "warm-up, 20 of 12 steps"), ("warmup=6", "")])
def test_what_doctor_would_fail_is_said_once_when_a_training_begins(cli, small_settings, tmp_path, settings, expected):
    result = cli("train", "tiny", *small_settings, "--set", settings, "--set", "lr_factor=0.7", "--out", tmp_path / "r")
    remarks = [line for line in result.err.splitlines() if "`scratchformer doctor`" in line]
    assert result.code == 0 and len(remarks) == bool(expected)
    assert all(f"doctor` would fail this configuration: {expected}" in line for line in remarks)


def test_steps_are_the_end(trained):
    assert [entry["step"] for entry in trained.read_log("step")] == list(range(1, 13))
    assert [path.stem for path in trained.checkpoints.steps()] == [f"step_{step:08d}" for step in (3, 6, 9, 12)]
    assert [entry["step"] for entry in trained.read_log("validation")] == [4, 8, 12]


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"max_tokens": 400}, "target tokens seen"),
        ({"minutes": 1e-5}, "1e-05 minutes are over"),
        ({"patience": 2, "validate_every": 1, "lr_factor": 1e-9}, "2 validations without a better loss"),
    ],
)
def test_other_ends(begin, changes, reason):
    trainer = begin(steps=1000, save_every=2, keep=2, **changes)
    if "patience" in changes:
        trainer.progress = replace(trainer.progress, best_loss=0.0)
    assert reason in train(trainer)
    n = trainer.progress.step
    saved = trainer.run.checkpoints.steps()
    assert 1 <= n < 100 and saved[-1] == trainer.run.checkpoints.of_step(n) and len(saved) <= 2
    tokens = [entry["all_target_tokens"] for entry in trainer.run.read_log("step")]
    assert checkpoints.load(saved[-1]).progress.target_tokens == tokens[-1]
    assert "max_tokens" not in changes or tokens[-2] < 400 <= tokens[-1]
    assert "patience" not in changes or n == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_training_after_the_step(begin, monkeypatch, number):
    trainer = begin(steps=1000)
    step = trainer.step

    def step_with_signal(*place):
        if trainer.progress.step == 4:
            signal.raise_signal(number)
        return step(*place)

    monkeypatch.setattr(trainer, "step", step_with_signal)
    before = signal.getsignal(number)
    assert train(trainer) == "interrupted"
    assert checkpoints.load(trainer.run.checkpoints.steps()[-1]).progress.step == 5
    assert signal.getsignal(number) is before


def test_a_second_signal_does_not_wait():
    with stop_on_signals() as received:
        signal.raise_signal(signal.SIGINT)
        assert received == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


# When it goes wrong ---------------------------------------------------------------------------------------------------


def test_a_loss_that_is_not_a_number_stops_the_run(own_run, small_config, files_of):
    trainer, _ = start.resume(own_run, small_config(steps=20))
    before = files_of(own_run.checkpoints.directory)
    trainer.model.store.data[7] = np.nan
    place = r"batch \d+ of epoch \d+, the pair on line \d+"
    with pytest.raises(UserError, match=rf"step 13: the loss is .*{place}, .*last good checkpoint is .*step_00000012"):
        train(trainer)
    assert files_of(own_run.checkpoints.directory) == before
    assert own_run.read_log("step")[-1]["step"] == 12


def test_a_learning_rate_that_blows_up_leaves_no_bad_checkpoint(begin):
    trainer = begin(lr_factor=1e20, steps=50, save_every=1)
    with pytest.raises(UserError, match=r"step \d+: the (loss|weights)"):
        train(trainer)
    for path in trainer.run.checkpoints.steps():
        assert all(np.isfinite(array).all() for array in checkpoints.load(path).weights.values())


def test_a_model_whose_checkpoints_could_not_be_loaded_is_refused_before_the_first_step(begin):
    trainer = begin()
    feed_forward = trainer.model.encoder.layers[0].feed_forward.sublayer
    feed_forward.outer = Linear(32, 16, np.random.default_rng(0), "float32")
    with pytest.raises(UserError, match=r"store does not hold its encoder\.layers\.0\.feed_forward\.outer\.weight"):
        train(trainer)
    assert trainer.progress.step == 0 and not trainer.run.checkpoints.steps()
