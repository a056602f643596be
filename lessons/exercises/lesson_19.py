"""Exercises of lesson 19: the order of a training step, perplexity, the time a run takes, and a test of resuming."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from exercises.exercise import Break, Build, Result, Values, misjudgements
from scratchformer.config import ModelConfig
from scratchformer.experiments.flops import attention_products, training_flops, weights_per_token
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.parameter import Array, Parameter, ParameterStore
from scratchformer.tasks.start import resume
from scratchformer.text.batches import Batch
from scratchformer.training import validation
from scratchformer.training.data_parallel import DataParallel
from scratchformer.training.saving import checkpoint, restore
from scratchformer.training.trainer import Trainer
from scratchformer.training.validation import validate, validation_loss

# 19_training_step -----------------------------------------------------------------------------------------------------

BETAS, EPS = (0.9, 0.98), 1e-9


def random_gradients(random: np.random.Generator, n_steps: int, n_micro: int, d_model: int, warmup: int) -> Values:
    return {"w": random.normal(size=7), "grads": 5 * random.normal(size=(n_steps, n_micro, 7)),
            "n_tokens": random.integers(3, 40, (n_steps, n_micro)), "d_model": d_model, "warmup": warmup}


def adam(w: Array, gradients: Array, rates: list[float], corrected: bool = True) -> Array:
    """Weights after one step of Adam along each of the gradients (steps, P), from the formula."""
    w, m, v = w.copy(), np.zeros_like(w), np.zeros_like(w)
    for t, (g, rate) in enumerate(zip(gradients, rates), start=1):
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        v = BETAS[1] * v + (1 - BETAS[1]) * g**2
        correction = math.sqrt(1 - BETAS[1]**t) / (1 - BETAS[0]**t) if corrected else 1
        w -= rate * correction * m / (np.sqrt(v) + EPS)
    return w


def rates(n: int, d_model: int, warmup: int, first: int = 1, each: int = 1) -> list[float]:
    """Learning rates of n steps, if the count begins at `first` and goes on by `each`; that of step 0 is 0."""
    return [noam(step, d_model, warmup) if step else 0.0 for step in range(first, first + each * n, each)]


def means(grads: Array, n_tokens: Array) -> Array:
    """The gradient of the mean loss per token of each step: (steps, P)"""
    return grads.sum(axis=1) / n_tokens.sum(axis=1)[:, None]


def with_rates(first: int = 1, each: int = 1) -> Callable[..., Array]:
    def other(w: Array, grads: Array, n_tokens: Array, d_model: int, warmup: int) -> Array:
        return adam(w, means(grads, n_tokens), rates(len(grads), d_model, warmup, first, each))

    return other


def with_gradients(gradients: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def other(w: Array, grads: Array, n_tokens: Array, d_model: int, warmup: int) -> Array:
        return adam(w, gradients(grads, n_tokens), rates(len(grads), d_model, warmup))

    return other


def never_cleared(grads: Array, n_tokens: Array) -> Array:
    """The sums of all steps so far, divided by the tokens of this one."""
    return grads.sum(axis=1).cumsum(axis=0) / n_tokens.sum(axis=1)[:, None]


def mean_not_cleared(grads: Array, n_tokens: Array) -> Array:
    """What one buffer holds that is divided where it lies, and never cleared."""
    total, found = np.zeros(grads.shape[2]), []
    for grad, n in zip(grads.sum(axis=1), n_tokens.sum(axis=1)):
        total = (total + grad) / n
        found.append(total)
    return np.array(found)


def step_each_micro_batch(w: Array, grads: Array, n_tokens: Array, d_model: int, warmup: int) -> Array:
    every_one = (grads / n_tokens[..., None]).reshape(-1, grads.shape[2])
    return adam(w, every_one, list(np.repeat(rates(len(grads), d_model, warmup), grads.shape[1])))


def library_steps(w: Array, grads: Array, n_tokens: Array, d_model: int, warmup: int) -> Array:
    parameter = Parameter(w.copy())
    own = {"w": parameter}
    model: Any = SimpleNamespace(store=ParameterStore(own), parameters=lambda: own, layer_offsets=list)
    parallel, optimizer = DataParallel(model, 1), Adam(model, BETAS, EPS)
    for step, (of_step, n) in enumerate(zip(grads, n_tokens), start=1):
        for grad in of_step:
            parameter.grad += grad
        norm = parallel.average_inplace(int(n.sum()))
        optimizer.step(noam(step, d_model, warmup), norm)
        parameter.grad[...] = 0
    return parameter.data


TRAINING_STEP = Build(
    id="19_training_step",
    title="From the gradients of the micro-batches to the weights after several steps",
    function="train",
    arguments=("w", "grads", "n_tokens", "d_model", "warmup"),
    cases={
        "four steps of three micro-batches, warm-up of six": lambda random: random_gradients(random, 4, 3, 16, 6),
        "warm-up of two": lambda random: random_gradients(random, 5, 2, 24, 2),
    },
    expected=lambda w, grads, n_tokens, d_model, warmup:
        adam(w, means(grads, n_tokens), rates(len(grads), d_model, warmup)),
    result=Result(name="w after the steps", suspects={
        "the gradient is never cleared: each step begins with the gradients of the steps before in it":
            with_gradients(never_cleared),
        "the mean gradient is not cleared: what the last step divided is still there when this one adds":
            with_gradients(mean_not_cleared),
        "not divided: the gradients are of sums, and steps have different numbers of tokens":
            with_gradients(lambda grads, n_tokens: grads.sum(axis=1)),
        "a mean of means: divide the sum of all micro-batches by all their tokens, once":
            with_gradients(lambda grads, n_tokens: (grads / n_tokens[..., None]).mean(axis=1)),
        "only the last micro-batch counts: their gradients are added":
            with_gradients(lambda grads, n_tokens: grads[:, -1] / n_tokens.sum(axis=1)[:, None]),
        "the learning rate counts steps from 0: the first step then has rate 0 and moves nothing":
            with_rates(first=0),
        "the learning rate is one step ahead: the first step is step 1":
            with_rates(first=2),
        "Adam moves once for each micro-batch; it moves once per step, when all of them are added":
            step_each_micro_batch,
        "the factor sqrt(1 - beta2^t) / (1 - beta1^t) is missing: m and v begin at 0, and it makes up for that":
            lambda w, grads, n_tokens, d_model, warmup: adam(
                w, means(grads, n_tokens), rates(len(grads), d_model, warmup), corrected=False),
    }, symptoms={
        "the learning rate counts micro-batches; it counts steps":
            lambda yours, w, grads, n_tokens, d_model, warmup: any(
                np.allclose(yours, with_rates(first=first, each=grads.shape[1])(w, grads, n_tokens, d_model, warmup),
                            rtol=0, atol=1e-7) for first in (1, grads.shape[1])),
    }),
    solution=library_steps,
    library=(Trainer.step, DataParallel.average_inplace, Adam.step, noam),
    hints=(
        "w (P,), grads (steps, micro-batches, P), n_tokens (steps, micro-batches). m and v are (P,) and begin at 0. "
        "The result is (P,).",
        "For each step: add up the gradients of its micro-batches, divide by the sum of their tokens, take the rate of "
        "this step, move once. The next step begins with an empty gradient, but with this step's m and v.",
        "g_t = sum_i grads[t, i] / sum_i n_tokens[t, i];  rate_t = d_model^-0.5 min(t^-0.5, t warmup^-1.5), t = 1, 2, "
        "...;  then Adam as in the task.",
    ),
)

# 19_perplexity --------------------------------------------------------------------------------------------------------


def random_losses(random: np.random.Generator, n_batches: int) -> Values:
    return {"loss_sums": random.uniform(5, 60, n_batches), "n_tokens": random.integers(4, 30, n_batches),
            "n_sentences": random.integers(1, 4, n_batches)}


def mean_loss(loss_sums: Array, counts: Array) -> float:
    return float(loss_sums.sum() / counts.sum())


class KnownLosses:
    """Stands for the model and the text in `validation_loss`: pair i is a batch of its own, and its loss is known."""

    def __init__(self, loss_sums: Array, n_tokens: Array) -> None:
        self.found, self.lengths = list(zip(loss_sums, n_tokens)), np.ones(len(loss_sums), int)

    def __len__(self) -> int:
        return len(self.found)

    def require_fit(self, tokens_per_batch: int) -> None:
        """Every pair is as long as the budget."""

    def by_length(self, indices: Array) -> Array:
        return indices

    def batch(self, indices: Array) -> Batch:
        return Batch((indices, indices), indices, indices, 1, 2)

    def loss(self, source_ids: Array, target_in_ids: Array) -> tuple[float, int]:
        return self.found[int(source_ids[0])]


def library_perplexity(loss_sums: Array, n_tokens: Array, n_sentences: Array) -> float:
    known: Any = KnownLosses(loss_sums, n_tokens)
    with patch.object(validation, "batch_loss", lambda pairs, inputs, targets: pairs.loss(*inputs)):
        return math.exp(validation_loss(known, known, tokens_per_batch=1))


PERPLEXITY = Build(
    id="19_perplexity",
    title="The perplexity of a text that was computed in batches of different sizes",
    function="perplexity",
    arguments=("loss_sums", "n_tokens", "n_sentences"),
    cases={
        "four batches": lambda random: random_losses(random, 4),
        "seven batches": lambda random: random_losses(random, 7),
        "one batch": lambda random: random_losses(random, 1),
    },
    expected=lambda loss_sums, n_tokens: np.array(math.exp(mean_loss(loss_sums, n_tokens))),
    result=Result(name="perplexity", suspects={
        "this is the loss in nats; perplexity is e to its power":
            lambda loss_sums, n_tokens: mean_loss(loss_sums, n_tokens),
        "a mean of the batches' mean losses: a token of a small batch then counts for more. Divide once, at the end":
            lambda loss_sums, n_tokens: math.exp((loss_sums / n_tokens).mean()),
        "a mean of the batches' perplexities: take the mean of the losses first, then one exp":
            lambda loss_sums, n_tokens: np.exp(loss_sums / n_tokens).mean(),
        "2 to the power of the loss: that is for a loss in bits, and this one is in nats":
            lambda loss_sums, n_tokens: 2.0 ** mean_loss(loss_sums, n_tokens),
        "divided by sentences; perplexity is per token":
            lambda loss_sums, n_sentences: math.exp(mean_loss(loss_sums, n_sentences)),
        "divided by the number of batches; perplexity is per token":
            lambda loss_sums: math.exp(loss_sums.mean()),
        "the sign is flipped: the losses are minus the logarithms of probabilities already":
            lambda loss_sums, n_tokens: math.exp(-mean_loss(loss_sums, n_tokens)),
    }),
    solution=library_perplexity,
    library=(validation_loss, validate),
    hints=(
        "All three are (batches,); the result is one number.",
        "The mean over all tokens of the text is a quotient of two sums over the batches. Then comes exp.",
        "perplexity = exp(sum_i loss_sums[i] / sum_i n_tokens[i]).",
    ),
)

# 19_predict_time ------------------------------------------------------------------------------------------------------


def sizes(random: np.random.Generator, N: int, d_model: int, d_ff: int, V: int) -> Values:
    return {"N": N, "d_model": d_model, "d_ff": d_ff, "V": V, "S": int(random.integers(5, 20)),
            "T": int(random.integers(21, 40)), "n_pairs": int(random.integers(1_000, 9_000)), "rate": 3e9}


def config_of(N: int, d_model: int, d_ff: int, V: int) -> ModelConfig:
    return ModelConfig(vocab_size=V, N=N, d_model=d_model, d_ff=d_ff, h=4)


class Counting(NamedTuple):
    """How often each thing is counted; other numbers are mistakes."""

    flops: float = 6
    embedding: float = 0
    output: float = 1
    memory_in_decoder: bool = False
    attention: float = 1


def seconds(N: int, d_model: int, d_ff: int, V: int, S: int, T: int, n_pairs: int, rate: float,
            counting: Counting = Counting()) -> float:
    """Layer by layer, from the lesson's text."""
    D, of_source = d_model, N * (4 * d_model**2 + 2 * d_model * d_ff)
    of_target = N * (6 * D**2 + 2 * D * d_ff) + counting.output * V * D + counting.embedding * V * D
    keys_and_values = N * 2 * D**2 * (T if counting.memory_in_decoder else S)
    products = (of_source + counting.embedding * V * D) * S + of_target * T + keys_and_values
    return counting.flops * n_pairs * (products + counting.attention * 2 * N * D * (S * S + T * T + T * S)) / rate


def mistaken(counting: Counting) -> Callable[..., float]:
    return lambda N, d_model, d_ff, V, S, T, n_pairs, rate: \
        seconds(N, d_model, d_ff, V, S, T, n_pairs, rate, counting)


def all_by_all(N: int, d_model: int, d_ff: int, V: int, S: int, T: int, n_pairs: int, rate: float) -> float:
    """6 times all weights times all tokens of both sides, and attention."""
    config = config_of(N, d_model, d_ff, V)
    return 6 * n_pairs * (sum(weights_per_token(config)) * (S + T) + attention_products(config, S, T)) / rate


def library_seconds(N: int, d_model: int, d_ff: int, V: int, S: int, T: int, n_pairs: int, rate: float) -> float:
    return training_flops(config_of(N, d_model, d_ff, V), n_pairs, S, T) / rate


PREDICT_TIME = Build(
    id="19_predict_time",
    title="Predict the seconds that training on so many pairs takes",
    function="predict_seconds",
    arguments=("N", "d_model", "d_ff", "V", "S", "T", "n_pairs", "rate"),
    cases={
        "two layers": lambda random: sizes(random, 2, 32, 88, 300),
        "five layers, many pieces": lambda random: sizes(random, 5, 24, 60, 2_000),
        "one layer": lambda random: sizes(random, 1, 8, 20, 50),
    },
    expected=lambda N, d_model, d_ff, V, S, T, n_pairs, rate:
        np.array(seconds(N, d_model, d_ff, V, S, T, n_pairs, rate)),
    result=Result(name="seconds", suspects={
        "forward only: backward has two products for each one of forward":
            mistaken(Counting(flops=2)),
        "each product is counted once: it is a multiplication and an addition":
            mistaken(Counting(flops=3)),
        "backward is counted as one forward: it has two products, for the gradients of x and of W":
            mistaken(Counting(flops=4)),
        "the lookup of embeddings is counted: it multiplies nothing":
            mistaken(Counting(embedding=1)),
        "the output matrix is missing: every target token meets V times d_model weights there":
            mistaken(Counting(output=0)),
        "every token is counted for all weights: a source token meets the encoder's, and those of keys and values, a "
        "target token the others": all_by_all,
        "keys and values of the attention to the memory are made from source tokens: S, not T":
            mistaken(Counting(memory_in_decoder=True)),
        "attention's own products are missing: q k and w v, for every query and key":
            mistaken(Counting(attention=0)),
        "scores are counted, weighted values are not: attention has two products":
            mistaken(Counting(attention=0.5)),
    }),
    solution=library_seconds,
    library=(weights_per_token, attention_products, training_flops),
    hints=(
        "All arguments are numbers, and so is the result. An attention has four matrices of d_model times d_model "
        "weights, the feed-forward network two of d_model times d_ff, the output one of V times d_model.",
        "Count multiplications in forward for one pair: weights met by a source token times S, weights met by a target "
        "token times T, and q k and w v. Each is 2 FLOPs in forward and 4 in backward.",
        "source: N (4 D^2 + 2 D F + 2 D^2); target: N (4 D^2 + 2 D F + 2 D^2) + V D; attention: "
        "2 N D (S^2 + T^2 + T S). Seconds: 6 n_pairs (source S + target T + attention) / rate.",
    ),
)

# 19_resume ------------------------------------------------------------------------------------------------------------


class Run:
    """A toy run with all the state of a real one: weights, m and v, the step, the place in the data; noise by a key.

    step()      one step of training; changes w
    state()     what a checkpoint would hold, a dict
    restore(s)  take that up
    w           (5,) the weights
    """

    lost: tuple[str, ...] = ()
    TARGETS = np.random.default_rng(3).normal(size=(4, 5))

    def __init__(self) -> None:
        self.w, self.m, self.v, self.t, self.place = np.zeros(5), np.zeros(5), np.zeros(5), 0, 0

    def step(self) -> None:
        self.t += 1
        noise = np.random.default_rng((7, self.t)).normal(size=5)                  # as a DropoutKey: no hidden state
        g = self.w - self.TARGETS[self.place] + 0.1 * noise
        self.place = (self.place + 1) % len(self.TARGETS)
        self.m += 0.1 * (g - self.m)
        self.v += 0.02 * (g**2 - self.v)
        self.w -= 0.05 * min(1, self.t / 8) * self.m / (np.sqrt(self.v) + 1e-9)

    def state(self) -> dict[str, Any]:
        return copy.deepcopy({name: value for name, value in vars(self).items() if name not in self.lost})

    def restore(self, state: dict[str, Any]) -> None:
        vars(self).update(copy.deepcopy(state))


def losing(name: str) -> type[Run]:
    return type("Run", (Run,), {"lost": (name,)})


class SharesArrays(Run):
    """The checkpoint holds the run's own arrays."""

    def state(self) -> dict[str, Any]:
        return dict(vars(self))


class Inexact(Run):
    """Weights come back a little off."""

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.w += 1e-9


class HiddenGenerator(Run):
    """Dropout from a generator with a state of its own, which no checkpoint holds. The other object goes on with it."""

    def __init__(self) -> None:
        super().__init__()
        self.lost, self.random = ("random", "lost"), np.random.default_rng(1)

    def step(self) -> None:
        super().step()
        self.w += 0.01 * self.random.normal(size=5)


class SavedGenerator(HiddenGenerator):
    """The same, held."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = ("lost",)


SOUND: dict[str, Callable[[], Run]] = {
    "a run whose checkpoint holds everything": Run,
    "a run with a random generator that the checkpoint holds, too": SavedGenerator,
}
UNSOUND: dict[str, Callable[[], Run]] = {
    "Adam's m is lost": losing("m"),
    "Adam's v is lost": losing("v"),
    "the number of the step is lost (rate and dropout depend on it)": losing("t"),
    "the place in the data is lost (as it is at the start of an epoch, every fourth step, no difference shows)":
        losing("place"),
    "the state of a random generator is lost": HiddenGenerator,
    "the checkpoint holds the run's own arrays, which change when the run goes on": SharesArrays,
    "weights come back off by 1e-9 (bit for bit means equal)": Inexact,
}


def library_resumes(begin: Callable[[], Run]) -> bool:
    """What tests/training does with `Trainer`: stop at several places, go on in a new object, compare bit for bit."""
    return all(goes_on_exactly(begin, before, after=5) for before in (1, 2, 3, 6))


def goes_on_exactly(begin: Callable[[], Run], before: int, after: int) -> bool:
    run, resumed = begin(), begin()
    for _ in range(before):
        run.step()
    saved = run.state()
    for _ in range(after):
        run.step()
    resumed.restore(saved)
    for _ in range(after):
        resumed.step()
    return np.array_equal(run.w, resumed.w)


def misjudged(answer: Callable) -> str | None:
    """What is wrong with a test of resuming; None if nothing is."""
    said = {words: answer(begin) for words, begin in (UNSOUND | SOUND).items()}
    right = {words: words in SOUND for words in said}
    return misjudgements(said, right, {True: "it accepts a checkpoint that lacks something",
                                       False: "it refuses what is sound"})


RESUME = Break(
    id="19_resume",
    title="Write the test that a resumed run is the run that was not stopped",
    function="resumes_exactly",
    arguments=("begin",),
    complaint=misjudged,
    solution=library_resumes,
    library=(resume, checkpoint, restore),
    hints=(
        "begin() makes a new run, always the same one. run.step() takes a step, run.state() is its checkpoint, "
        "run.restore(state) takes one up, run.w (5,) are the weights.",
        "What is lost shows only in a *new* run, and only some steps after it was taken up. Let the first run go on "
        "after its state was asked for: a checkpoint must not change with it.",
        "run: k steps, state, n more steps. Other run: restore, n steps. Equal to the bit, for several k, not all of "
        "them multiples of 4.",
    ),
)

EXERCISES = (TRAINING_STEP, PERPLEXITY, PREDICT_TIME, RESUME)
