"""Probes of what turns a model into a translator, for `scratchformer doctor`: loss, optimizer, batches, the training
step, and decoding.

Most of these faults make no number infinite and no shape wrong: the model learns, only worse than it could. So each
piece is compared with its definition, and the whole must learn a few sentences by heart.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Callable

import numpy as np

from scratchformer import config as configs
from scratchformer.config import Config, ModelConfig
from scratchformer.decoding.search import search
from scratchformer.doctor.findings import CodeProbe, Complaints, Measured, differs
from scratchformer.doctor.specimens import SOURCE, DropoutWatch, random, small_model, watched, with_random_vectors
from scratchformer.nn.gradient_cases import FLOAT64, B, T, V, padded_ids, tied_logits
from scratchformer.nn.loss import Smoothing, cross_entropy
from scratchformer.nn.ops import PAD
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.transformer import Transformer
from scratchformer.text.batches import Batch, BatchPlan
from scratchformer.text.corpora import Pairs
from scratchformer.text.tokenizer import BOS, EOS, Tokenizer
from scratchformer.training.data import Corpus, encode_corpus, train_tokenizer
from scratchformer.training.loop import Trainer, validation_loss
from scratchformer.training.run import RunDirectory

SINGLE = 1e-4
"""What float32 and another order of summing may explain, in units of the largest number compared."""


def probes(config: Config) -> list[CodeProbe]:
    taught = cache(partial(teach, config))  # two probes look at one model
    return [loss(), optimizer(), batches(config), training_step(config), overfits(taught), decoding(config, taught)]


# Loss and optimizer ---------------------------------------------------------------------------------------------------


def loss() -> CodeProbe:
    return CodeProbe(
        "loss",
        "the sum over real tokens of -sum_v q_v log p_v, its gradient p - q, and the number of tokens",
        "an average over padding; a target that is found by its value among the logits; the logarithm of a softmax "
        "that has become 0; smoothing in the loss and not in its gradient",
        [("cross_entropy", cross_entropy_formula), ("cross_entropy", cross_entropy_extremes)],
    )


def cross_entropy_formula() -> Complaints:
    logits, targets = tied_logits(random()), padded_ids(random(), T)
    real = targets != PAD
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    conventions: list[tuple[float, Smoothing, float, float]] = [
        (0.0, "others", 0.0, 1.0),
        (0.2, "others", 0.2 / (V - 1), 0.8),
        (0.2, "uniform", 0.2 / V, 0.8 + 0.2 / V),
    ]
    for smoothing, spread, others, on_target in conventions:
        q = np.where(np.arange(V) == targets[..., None], on_target, others)  # (B, T, V)
        found, n_tokens, dlogits = cross_entropy(logits, targets, smoothing, spread)
        named = f"smoothing {smoothing} over the {spread}" if smoothing else "no smoothing"
        yield "" if n_tokens == real.sum() else f"{n_tokens} tokens counted, {real.sum()} are not padding"
        yield differs(f"loss, {named}", found, -(q * np.log(p)).sum(axis=-1)[real].sum())
        yield differs(f"gradient, {named}", dlogits, (p - q) * real[..., None])


def cross_entropy_extremes() -> Complaints:
    for dtype in ("float64", "float32"):  # the reference; the fast one
        logits = np.array([[1e4, 0, -1e4], [1e4, 0, -1e4]], dtype)
        found, _, dlogits = cross_entropy(logits, np.array([2, 1]))
        yield differs(f"loss of {dtype} logits 10,000 apart", found, 2e4 + 1e4)
        yield differs(f"gradient of {dtype} logits 10,000 apart", dlogits, np.array([[1, 0, -1], [1, -1, 0]]))


def optimizer() -> CodeProbe:
    return CodeProbe(
        "optimizer and schedule",
        "Adam moves each weight by the learning rate at first, and as its formula says after; the learning rate rises "
        "to its peak at step `warmup` and falls with the square root",
        "beta1 where beta2 belongs; a bias correction by another count than steps; moments that are not kept; minimum "
        "and maximum exchanged in the schedule",
        [("Adam", adam_formula), ("Adam", adam_in_float32), ("noam", noam_formula)],
    )


SMALLEST = ModelConfig(vocab_size=V, N=1, d_model=4, d_ff=4, h=1)


def adam_formula() -> Complaints:
    model, generator = Transformer(SMALLEST, dtype=FLOAT64), random()
    beta1, beta2 = 0.9, 0.98
    adam = Adam(model, (beta1, beta2))
    w = model.store.data.copy()
    m, v = 0 * w, 0 * w
    for t in (1, 2, 3):
        g = generator.normal(size=len(w))
        g[-1] = 0  # a word that does not occur
        model.store.grad[...] = g
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        step = 0.01 * t * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + 1e-9)
        w = w - step
        adam.step(0.01 * t)
        what = "the first step, learning rate times sign of the gradient" if t == 1 else f"step {t}"
        yield differs(f"weights after {what}", model.store.data, w, 1e-6)  # eps may stand elsewhere
        yield differs("the gradient, which a step leaves as it is", model.store.grad, g)


def adam_in_float32() -> Complaints:
    model = Transformer(SMALLEST)
    adam = Adam(model)
    model.store.grad[...] = 1
    adam.step(0.01)
    for name, parameter in model.parameters().items():
        yield "" if np.shares_memory(parameter.data, model.store.data) else f"{name} has left the flat buffer"
    for array in (model.store.data, adam.m, adam.v):
        yield "" if array.dtype == np.float32 else f"float32 becomes {array.dtype}"


def noam_formula() -> Complaints:
    for step, rate in [(1, 4000**-1.5), (1000, 1000 * 4000**-1.5), (4000, 4000**-0.5), (16000, 16000**-0.5)]:
        yield differs(
            f"2 d_model^-0.5 min(step^-0.5, step warmup^-1.5) at step {step} of warm-up 4000, relative",
            noam(step, 512, 4000, 2.0) / (2 * 512**-0.5 * rate),
            1.0,
        )


# Batches and the step -------------------------------------------------------------------------------------------------


def practice_corpus() -> Corpus:
    """Sentences of letters, to be written backwards: enough for some batches of several lengths."""
    generator = random()
    letters = [[str(letter) for letter in generator.choice(list("abcdefgh"), length)] for length in [*range(1, 10)] * 6]
    source, target = [" ".join(word) for word in letters], [" ".join(word[::-1]) for word in letters]
    return Corpus(Pairs(source, target, list(range(1, len(source) + 1)), 0), None)


PRACTICE = {
    "vocab_size": 20,
    "N": 1,
    "d_model": 16,
    "d_ff": 32,
    "h": 2,
    "d_k": 8,
    "d_v": 8,
    "max_positions": 20,
    "P_drop": 0.0,
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "byte_fallback": False,
    "max_length": 20,
    "tokens_per_batch": 40,
    "accumulation": 3,
    "bucket_fineness": 1,
    "warmup": 2,
    "lr_factor": 1.0,
    "eps_ls": 0.1,
    "clip_norm": 0.0,
}


def practice(config: Config, changes: dict[str, Any] | None = None) -> Trainer:
    """A trainer with the choices of this configuration, so small that a step takes milliseconds; no file is written."""
    config = configs.with_settings(config, PRACTICE | (changes or {}))
    corpus = practice_corpus()
    tokenizer = train_tokenizer(corpus, config)
    return Trainer(RunDirectory(Path("practice")), config, encode_corpus(corpus, tokenizer, config), tokenizer)


def batches(config: Config) -> CodeProbe:
    return CodeProbe(
        "batches",
        "the decoder reads the start symbol and the target, and answers the target and the end symbol, one position "
        "earlier; each pair is in one batch of each epoch, and the next epoch has another order",
        "a target that is not shifted, so that the answer stands in the input; no end symbol; a remainder that is "
        "dropped; an order that never changes",
        [("batches", partial(batches_hold_the_text, config)), ("batches", partial(batches_cover_the_epoch, config))],
    )


def batches_hold_the_text(config: Config) -> Complaints:
    corpus = practice_corpus()
    tokenizer, plan = practice_plan(config)
    encoded = [tokenizer.encode(text) for text in (corpus.train.source, corpus.train.target)]
    for indices in plan.epoch(0):
        for batch in plan.micro_batches(indices):
            yield from batch_holds(batch, *encoded)


def practice_plan(config: Config) -> tuple[Tokenizer, BatchPlan]:
    """The batches of `practice`, without a model."""
    config = configs.with_settings(config, PRACTICE)
    corpus, training = practice_corpus(), config.training
    tokenizer = train_tokenizer(corpus, config)
    return tokenizer, BatchPlan(
        encode_corpus(corpus, tokenizer, config).train,
        training.tokens_per_batch,
        training.accumulation,
        training.seed,
        training.bucket_fineness,
    )


def batch_holds(batch: Batch, source: list[list[int]], target: list[list[int]]) -> Complaints:
    for row, index in enumerate(batch.indices):
        asked, read, answer = (without_padding(ids[row]) for ids in batch[:3])
        words = target[index]
        yield "" if answer[-1:] == [EOS] else "a target does not end with the end symbol"
        yield "" if read != answer else "the decoder reads what it is to answer: the target is not shifted"
        yield "" if read == [BOS, *words] else f"the decoder reads {read}, not the start and {words}"
        yield "" if answer == [*words, EOS] else f"the decoder is to answer {answer}, not {words} and the end"
        yield "" if asked == [*source[index], EOS] else f"the encoder reads {asked}, not {source[index]} and the end"
    real = sum(len(target[index]) + 1 for index in batch.indices)
    yield "" if batch.n_target_tokens == real else f"{batch.n_target_tokens} target tokens counted of {real}"


def without_padding(ids: np.ndarray) -> list[int]:
    """Up to the last token; padding between tokens stays, for it does not belong there."""
    return ids[: np.flatnonzero(ids != PAD).max(initial=-1) + 1].tolist()


def batches_cover_the_epoch(config: Config) -> Complaints:
    _, plan = practice_plan(config)
    n_pairs, orders = len(practice_corpus().train.source), []
    for epoch in (0, 1):
        dealt = [batch for indices in plan.epoch(epoch) for batch in plan.micro_batches(indices)]
        orders.append([index for batch in dealt for index in batch.indices])
        yield (
            ""
            if sorted(orders[-1]) == list(range(n_pairs))
            else (
                f"an epoch has {len(set(orders[-1]))} different pairs in {len(orders[-1])} places; there are {n_pairs}"
            )
        )
    yield "" if orders[0] != orders[1] else "two epochs have the same order"
    lengths = [plan.encoded.lengths[indices].mean() for indices in plan.epoch(0)]
    yield "" if lengths != sorted(lengths) else "an epoch goes from short sentences to long ones"


def training_step(config: Config) -> CodeProbe:
    return CodeProbe(
        "training step",
        "one step of Adam at the schedule's next learning rate, along the gradient of the mean loss per target token "
        "of all micro-batches; then the gradient is zero; each step and micro-batch draws its own dropout",
        "a mean of means over micro-batches of unequal size; a schedule that advances per micro-batch or per array; a "
        "gradient that is not set to zero; the dropout key without the step's number",
        [
            ("Trainer.step", partial(steps_follow_the_gradient, config)),
            ("Trainer.step", partial(clipping_bounds_the_gradient, config)),
            ("Trainer.step", partial(every_step_drops_anew, config)),
            ("validation_loss", partial(validation_is_plain, config)),
        ],
    )


class WatchedAdam(Adam):
    """Adam, which remembers the learning rates it was given and the gradients it found."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer.model, trainer.optimizer.betas, trainer.optimizer.eps)
        self.rates: list[float] = []
        self.gradients: list[np.ndarray] = []

    def step(self, learning_rate: float, norm: float | None = None) -> None:
        self.rates.append(learning_rate)
        self.gradients.append(self.store.grad.copy())
        super().step(learning_rate, norm)


def gradient_at_once(trainer: Trainer, indices: np.ndarray) -> tuple[np.ndarray, float]:
    """Gradient and value of the mean loss per target token, from all pairs as one batch."""
    batch, settings = trainer.data.train.batch(indices), trainer.config.training
    trainer.model.zero_grad()
    loss_sum, n_tokens = trainer.model.loss_backward(
        batch.source_ids, batch.target_in_ids, batch.target_out_ids, settings.eps_ls, None, settings.smoothing
    )
    gradient = trainer.model.store.grad / n_tokens
    trainer.model.zero_grad()
    return gradient, loss_sum / n_tokens


def steps_follow_the_gradient(config: Config) -> Complaints:
    trainer = practice(config)
    yield "" if trainer.optimizer.store is trainer.model.store else "the optimizer works on another model's weights"
    settings = trainer.config.training
    constants = (*trainer.optimizer.betas, trainer.optimizer.eps)
    yield "" if constants == (settings.beta1, settings.beta2, settings.eps) else f"the optimizer has {constants}"
    adam = trainer.optimizer = WatchedAdam(trainer)
    fewer_pairs_than_micro_batches = np.array([0, 1])
    for index, indices in enumerate([*trainer.plan.epoch(0)[:3], fewer_pairs_than_micro_batches]):
        expected, expected_loss = gradient_at_once(trainer, indices)
        entry = trainer.finish(trainer.step(0, index, indices))
        yield "" if len(adam.rates) == index + 1 else f"{len(adam.rates)} steps of Adam in {index + 1} of training"
        yield differs(
            f"the gradient of step {index + 1} and that of all its pairs as one batch",
            adam.gradients[-1],
            expected,
            SINGLE,
        )
        yield differs("the loss that is logged, and that of one batch", entry["loss"], expected_loss, SINGLE)
        rate = 16**-0.5 * min((index + 1) ** -0.5, (index + 1) * 2**-1.5)
        yield differs(f"learning rate of step {index + 1}", adam.rates[-1], rate)
        yield "" if not trainer.model.store.grad.any() else "the gradient is not zero after a step"


def clipping_bounds_the_gradient(config: Config) -> Complaints:
    trainer = practice(config, {"clip_norm": 0.01})
    adam, indices = WatchedAdam(trainer), trainer.plan.epoch(0)[0]
    expected, _ = gradient_at_once(trainer, indices)
    trainer.optimizer = adam
    trainer.step(0, 0, indices)
    clipped = 0.01 * expected / np.linalg.norm(expected)
    yield differs("the gradient, shortened to clip_norm", adam.gradients[-1], clipped, SINGLE * 0.01)


def every_step_drops_anew(config: Config) -> Complaints:
    trainer = practice(config, {"P_drop": 0.3})
    micro_batches = []
    with watched(DropoutWatch()) as watch:
        for index, indices in enumerate(trainer.plan.epoch(0)[:2]):
            micro_batches += trainer.plan.micro_batches(indices)
            trainer.step(0, index, indices)
    places = 5 + 2  # sublayers, and both embeddings
    yield (
        ""
        if len(watch.keys) == places * len(micro_batches)
        else (f"dropout is drawn {len(watch.keys)} times, in {len(micro_batches)} micro-batches and {places} places")
    )
    steps = len({key.step for key in watch.keys})
    yield "" if steps == 2 else "two steps draw the same dropout"
    yield "" if len(set(watch.keys)) == len(watch.keys) else "two micro-batches of a step draw the same dropout"


def validation_is_plain(config: Config) -> Complaints:
    trainer = practice(config, {"P_drop": 0.3, "eps_ls": 0.3})
    pairs, model = trainer.data.train, trainer.model
    batch = pairs.batch(np.arange(len(pairs)))
    logits, _ = model.forward(batch.source_ids, batch.target_in_ids)
    expected, n_tokens, _ = cross_entropy(logits, batch.target_out_ids)
    yield differs(
        "validation loss, without smoothing and dropout, per target token",
        validation_loss(model, pairs, 40),
        expected / n_tokens,
        SINGLE,
    )


LEARNING_STEPS = 80
BY_HEART = np.arange(1, 9)
"""The sentences of the practice corpus that are learnt by heart: 2 to 9 letters."""


Taught = Callable[[], tuple[Trainer, list[float]]]


def overfits(taught: Taught) -> CodeProbe:
    return CodeProbe(
        "learns by heart",
        f"eight sentences, seen {LEARNING_STEPS} times: the loss falls to less than a tenth",
        "if nothing above is wrong: a fault between the pieces, in the order of a training step; weights that do not "
        "move; text and answers that do not belong together",
        [("Trainer.step", partial(loss_falls, taught))],
    )


def teach(config: Config) -> tuple[Trainer, list[float]]:
    """A small model that has learnt eight sentences, and its losses on the way."""
    trainer = practice(
        config,
        {
            "N": 2,
            "d_model": 32,
            "d_ff": 64,
            "d_k": 16,
            "d_v": 16,
            "warmup": 20,
            "lr_factor": 0.15,
            "eps_ls": 0.0,
            "tokens_per_batch": 100,
            "accumulation": 1,
        },
    )
    return trainer, [trainer.finish(trainer.step(0, step, BY_HEART))["loss"] for step in range(LEARNING_STEPS)]


def loss_falls(taught: Taught) -> Complaints:
    _, losses = taught()
    yield "" if losses[-1] < losses[0] / 10 else f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f} only"
    yield Measured(f"{losses[0]:.2f} -> {losses[-1]:.3f}")


# Decoding -------------------------------------------------------------------------------------------------------------


def decoding(config: Config, taught: Taught) -> CodeProbe:
    small = small_model(config.model)
    arrangements = list(dict.fromkeys([small, replace(small, norm="post"), replace(small, norm="pre")]))
    return CodeProbe(
        "decoding",
        "writing one position at a time gives the logits of forward, also when hypotheses change places and sentences "
        "end; a hypothesis has the score that forward gives it, and the likeliest tokens are taken",
        "keys and values that are not kept, or not reordered with the hypotheses; every step at position 0; the mask "
        "of a sentence that has ended; a score without its length penalty",
        [("decoding step", partial(steps_give_the_logits_of_forward, arrangement)) for arrangement in arrangements]
        + [
            ("decoding step", partial(nothing_is_dropped, replace(small, P_drop=0.5))),
            ("beam search", partial(hypotheses_have_their_scores, taught)),
            ("beam search", partial(greedy_takes_the_likeliest, taught)),
        ],
    )


def steps_give_the_logits_of_forward(config: ModelConfig) -> Complaints:
    """Two hypotheses for each sentence, which change places after every step; after the second, one sentence ends."""
    model, generator, W = with_random_vectors(Transformer(config, dtype=FLOAT64)), random(), 2
    sentences, written = np.arange(B), np.empty((B, W, 0), int)
    state = model.start(SOURCE, W)
    for step in range(T):
        written = np.concatenate([written, generator.integers(1, V, (len(sentences), W, 1))], axis=-1)
        logits, state = model.step(written[..., -1], state)  # (sentences, W, V)
        for w in range(W):
            expected = model.forward(SOURCE[sentences], written[:, w])[0][:, -1]
            yield differs(
                f"logits at position {step}" + (", after hypotheses changed places" if step else ""),
                logits[:, w],
                expected,
            )
        kept = np.arange(len(sentences)) if step != 1 else np.array([1, 2])
        parents = generator.integers(0, W, (len(kept), W))
        state = state.select(kept, (kept[:, None] * W + parents).reshape(-1))
        sentences, written = sentences[kept], written[kept[:, None], parents]


def nothing_is_dropped(config: ModelConfig) -> Complaints:
    logits = []
    for P_drop in (config.P_drop, 0.0):
        model = with_random_vectors(Transformer(replace(config, P_drop=P_drop), dtype=FLOAT64))
        logits.append(model.step(np.full((B, 1), BOS), model.start(SOURCE))[0])
    yield differs("logits of a step, with and without dropout in the configuration", *logits)


def hypotheses_have_their_scores(taught: Taught) -> Complaints:
    """Of a model that has learnt something: one that has not writes the same word again and again."""
    trainer, alpha, extra_length = taught()[0], 0.6, 4
    sources = trainer.data.train.batch(BY_HEART).source_ids
    for source, found in zip(sources, search(trainer.model, sources, 4, alpha, extra_length, 4)):
        yield "" if found else "a sentence has no translation"
        longest, ended = (source != PAD).sum() + extra_length, []
        for ids, claimed, score in found:
            if len(ids) < longest:
                ids = [*ids, EOS]
                ended.append(score)
            logits, _ = trainer.model.forward(source[None], np.array([[BOS, *ids[:-1]]]))
            log_p = logits[0] - np.log(np.exp(logits[0]).sum(axis=-1, keepdims=True))
            expected = log_p[np.arange(len(ids)), ids].sum()
            yield "" if not {PAD, BOS} & set(ids) else "padding or a start symbol is written"
            yield differs("log probability of a hypothesis", claimed, expected, SINGLE)
            yield differs(
                "score: log probability / ((5 + tokens) / 6)^alpha",
                score,
                expected / ((5 + len(ids)) / 6) ** alpha,
                SINGLE,
            )
        yield "" if ended == sorted(ended, reverse=True) else "hypotheses do not come best first"
        yield "" if len({tuple(ids) for ids, _, _ in found}) == len(found) else "two hypotheses of a sentence are equal"


def greedy_takes_the_likeliest(taught: Taught) -> Complaints:
    trainer, extra_length = taught()[0], 4
    sources = trainer.data.train.batch(BY_HEART).source_ids
    for source, (found,) in zip(sources, search(trainer.model, sources, 1, 0.6, extra_length)):
        ids: list[int] = []
        while EOS not in ids and len(ids) < (source != PAD).sum() + extra_length:
            logits, _ = trainer.model.forward(source[None], np.array([[BOS, *ids]]))
            logits[..., [PAD, BOS]] = -np.inf  # these are never written
            ids.append(int(logits[0, -1].argmax()))
        expected = [token for token in ids if token != EOS]
        yield "" if found.ids == expected else f"greedy search writes {found.ids}, the likeliest tokens are {expected}"
