"""Probes of training and decoding for `scratchformer doctor`: loss, optimizer, batches, training steps and search.

Most faults here raise no error and give no NaN: the model learns, only worse than it could. So each component is
compared with its definition, and a small model must learn a few sentences by heart.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Callable, get_args

import numpy as np

from scratchformer import config as configs
from scratchformer.backends.device import Device
from scratchformer.config import Config, ModelConfig
from scratchformer.decoding.incremental import begin_decoding, begin_generation, decoding_step, generation_step
from scratchformer.decoding.search import search
from scratchformer.doctor.data_probes import plan_of
from scratchformer.doctor.findings import CodeProbe, expect, expect_close
from scratchformer.doctor.fixtures import SOURCE, TARGET, DropoutRecorder, new_model, random, small_config
from scratchformer.nn.gradient_cases import B, T, V, padded_ids, tied_logits
from scratchformer.nn.language_model import LanguageModel
from scratchformer.nn.loss import Smoothing, batch_loss_backward, cross_entropy
from scratchformer.nn.ops import ADAM_BLOCK, PAD
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks.translation import Corpus, encode_corpus, train_tokenizer
from scratchformer.text.batches import BatchPlan
from scratchformer.text.corpora import Pairs
from scratchformer.text.tokenizer import BOS, EOS, Tokenizer
from scratchformer.training.run import RunDirectory
from scratchformer.training.trainer import Trainer, TrainingData
from scratchformer.training.validation import validation_loss

FLOAT32_ROUNDING = 1e-4
"""The largest error that rounding in float32 can explain, relative to the largest number compared."""


def probes(config: Config) -> list[CodeProbe]:
    """`config` may be of any size: its choices are tried in a small model."""
    trained = cache(partial(train_by_heart, config))  # two probes use the same trained model
    return [LOSS, OPTIMIZER, batches(config), training_step(config), overfits(trained), decoding(config, trained)]


# Loss and optimizer ---------------------------------------------------------------------------------------------------


def check_cross_entropy() -> None:
    logits, targets = tied_logits(random()), padded_ids(random(), T)
    real = targets != PAD
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    for smoothing, spread in product((0.0, 0.2, 0.9), get_args(Smoothing)):
        other = smoothing / (V - 1 if spread == "others" else V)
        on_target = 1 - smoothing if spread == "others" else 1 - smoothing + other
        q = np.where(np.arange(V) == targets[..., None], on_target, other)  # (B, T, V)
        found, n_tokens, dlogits = cross_entropy(logits, targets, smoothing, spread)
        expect(n_tokens == real.sum(), f"{n_tokens} tokens counted, {real.sum()} are not padding")
        what = f"with smoothing {smoothing} ({spread})" if smoothing else "without smoothing"
        expect_close(f"loss {what}", found, -(q * np.log(p)).sum(axis=-1)[real].sum())
        expect_close(f"gradient {what}", dlogits, (p - q) * real[..., None])


def check_extreme_logits() -> None:
    for dtype, spread in product(("float64", "float32"), get_args(Smoothing)):
        logits, targets = np.array([[1e4, 0, -1e4], [1e4, 0, -1e4]], dtype), np.array([2, 1])
        found, _, dlogits = cross_entropy(logits, targets, 0.0, spread)
        expect_close(f"loss of {dtype} logits 10,000 apart", found, 2e4 + 1e4)
        expect_close(f"gradient of {dtype} logits 10,000 apart", dlogits, np.array([[1, 0, -1], [1, -1, 0]]))
        smoothed, _, gradient = cross_entropy(logits, targets, 0.1, spread)
        expect(np.isfinite(smoothed) and np.isfinite(gradient).all(), "smoothing makes extreme logits NaN or infinite")


LOSS = CodeProbe(
    "loss",
    "loss = sum over real tokens of -sum_v q_v log p_v, its gradient p - q, and the number of real tokens",
    "an average over padding; the target is looked up by its value among the logits; the logarithm of a softmax "
    "that has become 0; label smoothing in the loss but not in its gradient",
    [("cross_entropy", check_cross_entropy), ("cross_entropy", check_extreme_logits)],
)

MODEL_OF_TWO_BLOCKS = ModelConfig(vocab_size=ADAM_BLOCK // 4, N=1, d_model=4, d_ff=4, h=1)
"""More than one and less than two of the blocks in which Adam goes through the weights."""


def check_adam() -> None:
    model, generator = new_model(Transformer, MODEL_OF_TWO_BLOCKS), random()
    beta1, beta2 = 0.9, 0.98
    adam = Adam(model, (beta1, beta2))
    w = model.store.data.copy()
    m, v = 0 * w, 0 * w
    for t in (1, 2, 3):
        g = generator.uniform(0.5, 2, len(w)) * generator.choice([-1, 1], len(w))  # large beside eps
        g[-1] = 0  # as for a word that does not occur
        model.store.grad[...] = g
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        w = w - 0.01 * t * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + 1e-9)
        adam.step(0.01 * t)
        for what, found, expected in [("weights", model.store.data, w), ("moments", [adam.m, adam.v], [m, v])]:
            expect_close(f"{what} after step {t}", found, expected, 1e-7)
        expect(adam.t == t and np.array_equal(model.store.grad, g), "a step counts twice, or changes the gradient")
    for name, parameter in model.parameters().items():
        expect(np.shares_memory(parameter.data, model.store.data), f"{name} is no longer in the flat buffer")


def check_noam() -> None:
    for d_model, warmup, factor in [(512, 4000, 2.0), (512, 4000, 1.0), (128, 10, 1.0)]:
        for step in (1, 2, warmup // 4, warmup - 1, warmup, warmup + 1, 4 * warmup, 25 * warmup):
            expected = factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
            what = f"learning rate at step {step} with warmup {warmup}, divided by what equation 3 gives"
            expect_close(what, noam(step, d_model, warmup, factor) / expected, 1.0)


OPTIMIZER = CodeProbe(
    "optimizer and schedule",
    "the first step of Adam moves each weight by the learning rate, later steps follow its formula; the learning rate "
    "rises until step `warmup` and then falls with the square root of the step",
    "beta1 and beta2 exchanged; bias correction with a count other than the number of steps; moments that are not "
    "kept; minimum and maximum exchanged in the schedule",
    [("Adam", check_adam), ("noam", check_noam)],
)

# Batches and the training step ----------------------------------------------------------------------------------------

PRACTICE: dict[str, Any] = {
    **{"task": "translation", "target_vocab_size": 0, "n_tags": 0, "byte_fallback": False, "max_length": 20},
    **{"vocab_size": 20, "N": 1, "d_model": 16, "d_ff": 32, "h": 2, "d_k": 8, "d_v": 8, "h_kv": 0},
    **{"P_drop": 0.0, "attention_dropout": 0.0, "relu_dropout": 0.0, "eps_ls": 0.1, "clip_norm": 0.0},
    **{"tokens_per_batch": 40, "accumulation": 3, "bucket_fineness": 1, "warmup": 2, "lr_factor": 1.0},
    **{"schedule": "noam", "weight_decay": 0.0, "positions": "sinusoidal"},
}
"""Settings of a translator so small that a training step takes milliseconds."""


def practice_corpus() -> Corpus:
    """Random strings of 1 to 9 letters, each with its reverse as the translation: enough for several batches."""
    generator = random()
    words = [[str(letter) for letter in generator.choice(list("abcdefgh"), length)] for length in [*range(1, 10)] * 6]
    source, target = [" ".join(word) for word in words], [" ".join(word[::-1]) for word in words]
    return Corpus(Pairs(source, target, list(range(1, len(source) + 1)), 0), None)


def practice_data(config: Config, changes: dict[str, Any]) -> tuple[Config, TrainingData, Tokenizer]:
    """The choices of this configuration for a small translator, and its data."""
    config, corpus = configs.with_settings(config, PRACTICE | changes), practice_corpus()
    tokenizer = train_tokenizer(corpus, config)
    return config, encode_corpus(corpus, tokenizer, config), tokenizer


def practice_trainer(config: Config, changes: dict[str, Any], device: Device | None = None) -> Trainer:
    """A trainer on the practice corpus. It writes no file."""
    return Trainer(RunDirectory(Path("practice")), *practice_data(config, changes), device)


def batches(config: Config) -> CodeProbe:
    return CodeProbe(
        "batches",
        "the decoder reads the start symbol and the target, and predicts the target and the end symbol; each pair is "
        "in one batch of each epoch; epochs differ in their order",
        "the target is not shifted, so the decoder reads what it should predict; no end symbol; the last, smaller "
        "batch is lost; the order never changes",
        [("batches", partial(check_batches, config)), ("batches", partial(check_epochs, config))],
    )


def check_batches(config: Config) -> None:
    """Compare every batch with the ids of all sentences."""
    small, data, tokenizer = practice_data(config, {})
    plan, text = plan_of(data.train, small.training), practice_corpus().train
    source, target = tokenizer.encode(text.source), tokenizer.encode(text.target)
    for batch in (batch for indices in plan.epoch(0) for batch in plan.micro_batches(indices)):
        for row, index in enumerate(batch.indices):
            found = [without_padding(ids[row]) for ids in (*batch.inputs, batch.targets)]
            words = target[index]
            expected = [[*source[index], EOS], [BOS, *words], [*words, EOS]]
            expect(found[1] != found[2], "the decoder reads what it should predict: the target is not shifted")
            for what, ids, right in zip(("encoder reads", "decoder reads", "targets are"), found, expected):
                expect(ids == right, f"the {what} {ids}, expected {right} ({EOS} is the end symbol)")
        n_tokens = sum(len(target[index]) + 1 for index in batch.indices)
        expect(batch.n_target_tokens == n_tokens, f"{batch.n_target_tokens} target tokens counted, expected {n_tokens}")


def without_padding(ids: np.ndarray) -> list[int]:
    """Cut off the padding at the end. Padding between tokens stays, because it is a fault."""
    return ids[: np.flatnonzero(ids != PAD).max(initial=-1) + 1].tolist()


def check_epochs(config: Config) -> None:
    small, data, _ = practice_data(config, {})
    plan, n_pairs = plan_of(data.train, small.training), len(data.train)
    first, second = (order_of(plan, epoch) for epoch in (0, 1))
    problem = f"an epoch of {n_pairs} pairs has {len(first)} rows with {len(set(first))} different pairs"
    expect(sorted(first) == sorted(second) == list(range(n_pairs)), problem)
    expect(first != second, "two epochs have the same order")
    lengths = [data.train.lengths[indices].mean() for indices in plan.epoch(0)]
    expect(lengths != sorted(lengths), "an epoch goes from short sentences to long ones")


def order_of(plan: BatchPlan, epoch: int) -> list[int]:
    """The numbers of the pairs, in the order of an epoch."""
    batches = (batch for indices in plan.epoch(epoch) for batch in plan.micro_batches(indices))
    return [index for batch in batches for index in batch.indices]


def training_step(config: Config) -> CodeProbe:
    return CodeProbe(
        "training step",
        "one step of Adam with the next learning rate of the schedule and the gradient of the mean loss per target "
        "token over all micro-batches; the gradient is zero afterwards; each step and micro-batch has its own dropout",
        "a mean of the means of micro-batches of unequal size; a schedule that advances per micro-batch or per "
        "parameter; a gradient that is not set to zero; a dropout key without the number of the step",
        [
            ("Trainer.step", partial(check_steps, config, 0.0)),
            ("Trainer.step", partial(check_steps, config, 0.01)),
            ("Trainer.step", partial(check_dropout_of_steps, config)),
            ("validation_loss", partial(check_validation_loss, config)),
        ],
    )


def check_steps(config: Config, clip_norm: float) -> None:
    """Compare three steps, and one of fewer pairs than micro-batches, with the same pairs in one batch."""
    trainer = practice_trainer(config, {"clip_norm": clip_norm})
    model, settings = trainer.model, trainer.config.training
    expect(trainer.optimizer.store is model.store, "the optimizer has the weights of another model")
    found, expected = (*trainer.optimizer.betas, trainer.optimizer.eps), (settings.beta1, settings.beta2, settings.eps)
    expect(found == expected, f"Adam has beta1, beta2, eps = {found}, expected {expected}")
    dtypes = {array.dtype for array in (model.store.data, trainer.optimizer.m, trainer.optimizer.v)}
    expect(dtypes == {np.dtype("float32")}, "float32 does not stay float32")
    step_of_adam, rates, gradients = trainer.optimizer.step, [], []

    def record(learning_rate: float, norm: float | None = None) -> None:
        rates.append(learning_rate)
        gradients.append(model.store.grad.copy())
        step_of_adam(learning_rate, norm)

    trainer.optimizer.step = record  # type: ignore[method-assign]
    for step, indices in enumerate([*trainer.plan.epoch(0)[:3], np.array([0, 1])], 1):
        batch = trainer.data.train.batch(indices)
        loss, n_tokens = batch_loss_backward(model, batch.inputs, batch.targets, settings.eps_ls, None, settings.spread)
        gradient = model.store.grad / n_tokens
        model.zero_grad()
        if clip_norm:
            gradient *= clip_norm / np.linalg.norm(gradient)
        entry = trainer.finish(trainer.step(0, step - 1, indices))
        expect(len(rates) == step, f"{len(rates)} steps of Adam after {step} training steps")
        what = f"gradient of step {step} with clip_norm = {clip_norm}, compared with that of all its pairs in one batch"
        expect_close(what, gradients[-1], gradient, FLOAT32_ROUNDING * (clip_norm or 1))
        expect_close("logged loss, compared with that of one batch", entry["loss"], loss / n_tokens, FLOAT32_ROUNDING)
        expect_close(f"learning rate of step {step}", rates[-1], 16**-0.5 * min(step**-0.5, step * 2**-1.5))
        expect(not model.store.grad.any(), "the gradient is not zero after a step")


def check_dropout_of_steps(config: Config) -> None:
    device, recorder = Device(), DropoutRecorder()
    device.ops = (recorder,)
    trainer = practice_trainer(config, {"P_drop": 0.3}, device)
    n_micro_batches = 0
    for index, indices in enumerate(trainer.plan.epoch(0)[:2]):
        n_micro_batches += len(trainer.plan.micro_batches(indices))
        trainer.step(0, index, indices)
    n_keys, expected = len(recorder.keys), (5 + 2) * n_micro_batches  # after 5 sublayers and 2 embeddings
    expect(n_keys == expected, f"dropout is applied {n_keys} times in {n_micro_batches} micro-batches, not {expected}")
    expect(len({key.step for key in recorder.keys}) == 2, "two steps have the same dropout")
    expect(len(set(recorder.keys)) == n_keys, "two micro-batches of a step have the same dropout")


def check_validation_loss(config: Config) -> None:
    trainer = practice_trainer(config, {"P_drop": 0.3, "eps_ls": 0.3})
    pairs, model = trainer.data.train, trainer.model
    batch = pairs.batch(np.arange(len(pairs)))
    loss, n_tokens, _ = cross_entropy(model.forward(*batch.inputs)[0], batch.targets)
    what = "validation loss per target token, without smoothing and dropout"
    expect_close(what, validation_loss(model, pairs, 40), loss / n_tokens, FLOAT32_ROUNDING)


LEARNING_STEPS = 80
BY_HEART = np.arange(1, 9)
"""The sentences of the practice corpus that the model learns by heart: 2 to 9 letters."""

Trained = Callable[[], tuple[Trainer, list[float]]]


def train_by_heart(config: Config) -> tuple[Trainer, list[float]]:
    """Train a small model on eight sentences. Returns it with the loss of each step."""
    model: dict[str, Any] = {"N": 2, "d_model": 32, "d_ff": 64, "d_k": 16, "d_v": 16}
    training = {"warmup": 20, "lr_factor": 0.15, "eps_ls": 0.0, "tokens_per_batch": 100, "accumulation": 1}
    trainer = practice_trainer(config, model | training)
    return trainer, [trainer.finish(trainer.step(0, step, BY_HEART))["loss"] for step in range(LEARNING_STEPS)]


def overfits(trained: Trained) -> CodeProbe:
    return CodeProbe(
        "learning by heart",
        f"after {LEARNING_STEPS} steps on the same eight sentences, the loss is less than a tenth of the first",
        "if all probes above pass: a fault in how the components of a training step work together; weights that do not "
        "change; targets that do not belong to their sources",
        [("Trainer.step", partial(check_loss_falls, trained))],
    )


def check_loss_falls(trained: Trained) -> str:
    """Returns the first and the last loss."""
    _, losses = trained()
    expect(losses[-1] < losses[0] / 10, f"the loss only fell from {losses[0]:.3f} to {losses[-1]:.3f}")
    return f"(loss {losses[0]:.2f} -> {losses[-1]:.3f})"


# Decoding -------------------------------------------------------------------------------------------------------------


def decoding(config: Config, trained: Trained) -> CodeProbe:
    small = replace(small_config(config.model), P_drop=0.5)  # which decoding must leave out
    return CodeProbe(
        "decoding",
        "decoding one position at a time gives the logits of forward, also after hypotheses are reordered and "
        "sentences end; a hypothesis has the score that forward gives it",
        "keys and values are not kept, or not reordered with the hypotheses; every step uses position 0; the mask of "
        "a sentence that has ended is used for another; a score without length penalty",
        [
            ("decoding step", partial(check_decoding_steps, small)),
            ("decoding step", partial(check_generation_steps, small)),
            ("beam search", partial(check_scores, trained)),
        ],
    )


def check_decoding_steps(config: ModelConfig) -> None:
    """Decode two hypotheses for each sentence. They are reordered after every step, and one sentence ends after the
    second step."""
    model, generator, W = new_model(Transformer, config), random(), 2
    sentences, written = np.arange(B), np.empty((B, W, 0), int)
    state = begin_decoding(model, SOURCE, W)
    for step in range(T):
        written = np.concatenate([written, generator.integers(1, V, (len(sentences), W, 1))], axis=-1)
        logits, state = decoding_step(model, written[..., -1], state)  # (sentences, W, V)
        what = f"logits at position {step}" + (", after hypotheses were reordered" if step else "")
        for w in range(W):
            expect_close(what, logits[:, w], model.forward(SOURCE[sentences], written[:, w])[0][:, -1])
        kept = np.arange(len(sentences)) if step != 1 else np.array([1, 2])
        parents = generator.integers(0, W, (len(kept), W))
        state = state.select(kept, (kept[:, None] * W + parents).reshape(-1))
        sentences, written = sentences[kept], written[kept[:, None], parents]


def check_generation_steps(config: ModelConfig) -> None:
    """Let a language model read the first two tokens at once, and the others one by one."""
    model = new_model(LanguageModel, config)
    cache, read = begin_generation(model, B), 0
    for end in range(2, T + 1):
        logits = generation_step(model, TARGET[:, read:end], cache)
        read = end
        what = f"a language model's logits at position {end - 1}, from its cache"
        expect_close(what, logits, model.forward(TARGET[:, :end])[0][:, -1])


EXTRA_LENGTH = 4


def check_scores(trained: Trained) -> None:
    """Use a trained model, because an untrained one repeats the same word."""
    trainer, alpha = trained()[0], 0.6
    sources = trainer.data.train.batch(BY_HEART).inputs[0]
    for source, found in zip(sources, search(trainer.model, sources, 4, alpha, EXTRA_LENGTH, 4)):
        ended = []
        for ids, log_probability, score in found:
            if len(ids) < (source != PAD).sum() + EXTRA_LENGTH:
                ids = [*ids, EOS]
                ended.append(score)
            expect(not {PAD, BOS} & set(ids), "a hypothesis contains padding or a start symbol")
            logits, _ = trainer.model.forward(source[None], np.array([[BOS, *ids[:-1]]]))
            log_p = logits[0] - np.log(np.exp(logits[0]).sum(axis=-1, keepdims=True))
            expected = log_p[np.arange(len(ids)), ids].sum()
            expect_close("log probability of a hypothesis", log_probability, expected, FLOAT32_ROUNDING)
            what = "score, compared with log probability / ((5 + tokens) / 6)^alpha"
            expect_close(what, score, expected / ((5 + len(ids)) / 6) ** alpha, FLOAT32_ROUNDING)
        expect(found and ended == sorted(ended, reverse=True), "no hypotheses, or not sorted by score")
        expect(len({tuple(ids) for ids, _, _ in found}) == len(found), "two hypotheses of a sentence are equal")
