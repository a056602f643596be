import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from scratchformer.decoding.translator import Translator
from scratchformer.errors import UserError
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.layers import Linear
from scratchformer.nn.loss import batch_loss_backward, cross_entropy
from scratchformer.tasks import start
from scratchformer.tasks.translation import read_corpus, train_tokenizer
from scratchformer.text.batches import batches_in_order
from scratchformer.training import checkpoints
from scratchformer.training.loop import stop_on_signals, train
from scratchformer.training.validation import validation_loss

NO_DROPOUT = {"P_drop": 0.0}


def gradient(trainer, batches):
    """The gradient of the mean loss per target token over some batches, as a step makes it."""
    trainer.model.zero_grad()
    counted = [batch_loss_backward(trainer.model, batch.inputs, batch.targets, 0.1) for batch in batches]
    return trainer.model.store.grad / sum(n for _, n in counted), sum(loss for loss, _ in counted)


# --- one step


def test_micro_batches_give_the_gradient_of_one_large_batch(begin):
    trainer = begin(accumulation=4, **NO_DROPOUT)
    indices = max(trainer.plan.epoch(0), key=len)
    batches = trainer.plan.micro_batches(indices)
    assert len(batches) == 4 and len({batch.n_target_tokens for batch in batches}) > 1
    in_parts, loss_in_parts = gradient(trainer, batches)
    at_once, loss_at_once = gradient(trainer, [trainer.data.train.batch(indices)])
    np.testing.assert_allclose(in_parts, at_once, rtol=1e-4, atol=1e-6)
    assert loss_in_parts == pytest.approx(loss_at_once, rel=1e-5)


def test_a_step_divides_by_the_tokens_of_all_micro_batches(begin, monkeypatch):
    trainer = begin(accumulation=3, **NO_DROPOUT)
    indices = max(trainer.plan.epoch(0), key=len)
    expected, loss_sum = gradient(trainer, [trainer.data.train.batch(indices)])
    trainer.model.zero_grad()
    seen = {}
    grad = trainer.model.store.grad
    monkeypatch.setattr(trainer.optimizer, "step", lambda rate, norm: seen.update(rate=rate, grad=grad.copy()))
    entry = trainer.finish(trainer.step(0, 0, indices))
    n_tokens = trainer.data.train.batch(indices).n_target_tokens
    np.testing.assert_allclose(seen["grad"], expected, rtol=1e-4, atol=1e-6)
    assert entry["loss"] == pytest.approx(loss_sum / n_tokens, rel=1e-5)
    assert entry["target_tokens"] == trainer.progress.target_tokens == n_tokens
    assert entry["grad_norm"] == pytest.approx(np.linalg.norm(expected), rel=1e-4)
    assert entry["learning_rate"] == seen["rate"] == pytest.approx(16**-0.5 * 20**-1.5)
    assert not trainer.model.store.grad.any()


def test_a_step_of_fewer_micro_batches_is_divided_by_its_own_tokens(begin, monkeypatch):
    trainer = begin(accumulation=4, **NO_DROPOUT)
    indices = np.arange(2)
    assert len(trainer.plan.micro_batches(indices)) == 2
    expected, _ = gradient(trainer, [trainer.data.train.batch(indices)])
    trainer.model.zero_grad()
    seen = []
    monkeypatch.setattr(trainer.optimizer, "step", lambda rate, norm: seen.append(trainer.model.store.grad.copy()))
    trainer.step(0, 0, indices)
    np.testing.assert_allclose(*seen, expected, rtol=1e-4, atol=1e-6)


def test_every_micro_batch_of_every_step_draws_masks_of_its_own(begin, monkeypatch):
    trainer, drawn, keep = begin(accumulation=3, seed=7), [], DropoutKey.keep

    def remember(key, shape, P_drop):
        drawn.append(key)
        return keep(key, shape, P_drop)

    monkeypatch.setattr(DropoutKey, "keep", remember)
    indices = max(trainer.plan.epoch(0), key=len)
    for _ in range(2):
        trainer.step(0, 0, indices)
    named = {(key.seed, key.step, key.shard) for key in drawn}
    assert named == {(7, step, shard) for step in (1, 2) for shard in range(3)}
    assert len(set(drawn)) == len(drawn)


def test_the_same_seed_makes_the_same_run_and_another_does_not(begin, same_run):
    runs = [begin(name, seed=seed, steps=6) for name, seed in (("one", 3), ("two", 3), ("three", 4))]
    for trainer in runs:
        train(trainer)
    one, two, three = runs
    same_run(one.run, two.run)
    assert not np.array_equal(one.model.store.data, three.model.store.data)


# --- validation


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
    assert best.moments == {}


@pytest.mark.parametrize("language, tokenizer", [("de", "13a"), ("zh_TW", "zh"), ("th", "char")])
def test_bleu_is_logged_and_shown_with_its_signature(begin, corpus, capfd, language, tokenizer):
    sides = {"source": "en", "target": "de"}
    files = {
        f"{split}_{side}": str(corpus / f"{split}.{end}") for split in ("train", "val") for side, end in sides.items()
    }
    trainer = begin(steps=4, score_every=2, target_language=language, **files)
    train(trainer)
    entries, shown = trainer.run.read_log("bleu"), capfd.readouterr().err
    assert [entry["step"] for entry in entries] == [2, 4]
    for entry in entries:
        assert 0 <= entry["bleu"] <= 100 and f"|tok:{tokenizer}|" in entry["signature"]
        assert f"validation BLEU {entry['bleu']:.2f}  ({entry['signature']})\n" in shown


def test_references_that_are_too_short_for_bleu_are_told_once(begin, tmp_path, capfd):
    for split, n in ("train", 40), ("val", 20):
        for language, line in ("en", "a dog\n"), ("zh", "我爱你们大家\n"):
            (tmp_path / f"{split}.{language}").write_text(line * n, encoding="utf-8")
    files = {
        f"{split}_{side}": str(tmp_path / f"{split}.{language}")
        for split in ("train", "val")
        for side, language in (("source", "en"), ("target", "zh"))
    }
    for language, n_told in ("de", 1), ("zh", 0):
        train(begin(language, steps=4, score_every=1, vocab_size=24, target_language=language, **files))
        assert capfd.readouterr().err.count("BLEU means little: ") == n_told


def test_bleu_of_perfect_translations_is_100(begin, monkeypatch):
    trainer = begin()
    text = trainer.data.val_text
    known = dict(zip(text.source, text.target))
    monkeypatch.setattr(Translator, "translate", lambda self, sentences, beam: [known[source] for source in sentences])
    assert trainer.goal.score(trainer)["bleu"] == pytest.approx(100)


# --- the text


def test_the_tokenizer_learns_from_the_training_text_alone(small_config):
    config = small_config()
    corpus = read_corpus(config.data)
    assert corpus.val is not None
    alone = train_tokenizer(corpus._replace(val=None), config)
    assert train_tokenizer(corpus, config).serialized == alone.serialized


# --- when to stop


def test_steps_are_the_end(trained):
    assert [entry["step"] for entry in trained.read_log("step")] == list(range(1, 13))
    assert [path.stem for path in trained.checkpoints.steps()] == [f"step_{step:08d}" for step in (3, 6, 9, 12)]
    assert [entry["step"] for entry in trained.read_log("validation")] == [4, 8, 12]


def test_a_budget_of_target_tokens(begin):
    trainer = begin(max_tokens=400)
    assert "target tokens seen" in train(trainer)
    *_, before, last = trainer.run.read_log("step")
    assert before["all_target_tokens"] < 400 <= last["all_target_tokens"]
    assert checkpoints.load(trainer.run.checkpoints.steps()[-1]).progress.target_tokens == last["all_target_tokens"]


def test_a_budget_of_minutes(begin):
    trainer = begin(minutes=1e-5, steps=1000)
    assert train(trainer) == "1e-05 minutes are over"
    assert 1 <= trainer.progress.step < 1000
    assert trainer.run.checkpoints.of_step(trainer.progress.step).exists()


def test_without_validation_text_only_what_the_user_names_is_refused(cli, refused, corpus, tmp_path):
    files = [
        word
        for side, end in (("source", "en"), ("target", "de"))
        for word in (f"--train-{side}", corpus / f"train.{end}")
    ]
    small = ("vocab_size=60", "steps=2", "N=1", "d_model=16", "d_ff=16", "warmup=1")
    settings = [word for each in small for word in ("--set", each)]
    command = ["train", "multi30k", *files, "--out", tmp_path / "run", *settings]
    for setting in ("patience=3", "score_every=2", "validate_every=2"):
        said = refused(*command, "--set", setting)
        assert f"training.{setting} has no effect" in said and "give --val-source" in said
    assert not (tmp_path / "run").exists()
    result = cli(*command)  # with the preset's score_every
    assert result.code == 0 and "without validation text, nothing is validated, scored" in result.err


@pytest.mark.parametrize(
    "settings, expected",
    [
        (["warmup=20"], "warm-up, 20 of 12 steps (167%); sum of learning rates, "),
        (["warmup=20", "steps=1000", "max_tokens=60"], "warm-up, 20 of 1 steps (2000%); "),
        (["warmup=6", "lr_factor=0.7"], ""),
    ],
    ids=str,
)
def test_what_doctor_would_fail_is_said_once_when_a_training_begins(cli, small_settings, tmp_path, settings, expected):
    changes = [word for each in settings for word in ("--set", each)]
    result = cli("train", "tiny", *small_settings, *changes, "--out", tmp_path / "run")
    remarks = [line for line in result.err.splitlines() if "`scratchformer doctor`" in line]
    beginning = f"{tmp_path}/run: `scratchformer doctor` would fail this configuration: "
    assert result.code == 0 and len(remarks) == bool(expected)
    assert all(line.startswith(beginning + expected) for line in remarks)


def test_patience(begin):
    trainer = begin(patience=2, validate_every=1, lr_factor=1e-9, steps=1000)
    trainer.progress = replace(trainer.progress, best_loss=0.0)
    assert train(trainer) == "2 validations without a better loss"
    assert trainer.progress.step == 2


def test_keep_limits_the_checkpoints(begin):
    trainer = begin(steps=9, save_every=2, keep=2)
    train(trainer)
    assert [path.stem for path in trainer.run.checkpoints.steps()] == ["step_00000008", "step_00000009"]


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


# --- when it goes wrong


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_not_a_number_stops_the_run(own_run, small_config, poison, files_of):
    trainer, _ = start.resume(own_run, small_config(steps=20))
    before = files_of(own_run.checkpoints.directory)
    trainer.model.store.data[7] = poison
    with pytest.raises(
        UserError,
        match=r"step 13: the loss is .*batch \d+ of epoch \d+, the pair on line \d+, .*"
        r"the last good checkpoint is .*step_00000012",
    ):
        train(trainer)
    assert files_of(own_run.checkpoints.directory) == before
    assert own_run.read_log("step")[-1]["step"] == 12


@pytest.mark.parametrize("lr_factor", [1e20, 1e30])
def test_a_learning_rate_that_blows_up_leaves_no_bad_checkpoint(begin, lr_factor):
    trainer = begin(lr_factor=lr_factor, steps=50, save_every=1)
    with pytest.raises(UserError, match=r"step \d+: the (loss|weights)"):
        train(trainer)
    for path in trainer.run.checkpoints.steps():
        assert all(np.isfinite(array).all() for array in checkpoints.load(path).weights.values())


def forget_beta(trainer):
    """A norm without beta, as somebody would try it, and a store that knows."""
    del trainer.model.encoder.layers[0].feed_forward.norm.beta
    trainer.model.rebuild_store()


def replace_a_layer(trainer):
    layer = trainer.model.encoder.layers[0].feed_forward.sublayer
    layer.outer = Linear(32, 16, np.random.default_rng(0), "float32")


@pytest.mark.parametrize(
    "change, complaint",
    [
        (replace_a_layer, r"store does not hold its encoder\.layers\.0\.feed_forward\.outer\.weight"),
        (forget_beta, "the model has another store than when its trainer was made"),
    ],
)
def test_a_model_whose_checkpoints_could_not_be_loaded_is_refused_before_the_first_step(begin, change, complaint):
    trainer = begin()
    change(trainer)
    with pytest.raises(UserError, match=complaint):
        train(trainer)
    assert trainer.progress.step == 0 and not trainer.run.checkpoints.steps()


def test_a_change_after_the_trainer_was_made_reaches_all_threads(begin):
    trainer = begin(steps=1, threads=2)
    trainer.model.encoder.layers[0].feed_forward.sublayer.activation = "gelu"
    train(trainer)
    feed_forwards = [model.encoder.layers[0].feed_forward.sublayer for model in trainer.parallel.replicas]
    assert [layer.activation for layer in feed_forwards] == ["gelu", "gelu"]
