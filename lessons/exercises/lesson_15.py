"""Exercises of lesson 15: Adam, its blindness to scale, its longest step, and the schedule of the learning rate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from exercises.diagnosis import Unlike, as_array
from exercises.exercise import Break, Build, Result, Values
from scratchformer.nn.optim import Adam, noam
from scratchformer.nn.parameter import Array, Layer, Parameter, ParameterStore

# 15_adam --------------------------------------------------------------------------------------------------------------


class Weights(Layer):
    """A model that is nothing but n weights: enough for an optimizer."""

    def __init__(self, w: Array) -> None:
        self.w = Parameter(np.array(w, float))
        self.store = ParameterStore(self.parameters())


def train(gradients: Array, w: Array, rate: float, beta1: float, beta2: float, eps: float) -> Array:
    """The library's Adam. gradients (T, n), w (n,) -> the weights after each of the T steps, (T, n)

    The library adds eps to sqrt(v) before v is corrected; the lesson's equation adds it to the corrected root.
    """
    model = Weights(w)
    adam, path = Adam(model, (beta1, beta2), eps), []
    for t, gradient in enumerate(gradients, start=1):
        model.store.grad[...] = gradient
        adam.eps = eps * (1 - beta2**t) ** 0.5
        adam.step(rate)
        path.append(model.store.data.copy())
    return np.array(path)


def averages(gradients: Array, beta: float) -> Array:
    """Row t is the sum of (1 - beta) beta^(t - i) times row i, over i up to t: what m is of g, and v of g^2. (T, n)"""
    ages = np.subtract.outer(np.arange(len(gradients)), np.arange(len(gradients)))
    return np.where(ages >= 0, (1 - beta) * beta ** np.maximum(ages, 0), 0) @ gradients


def corrections(gradients: Array, beta: float) -> Array:
    return 1 - beta ** np.arange(1, len(gradients) + 1)[:, None]                   # (T, 1)


def path(w: Array, rate: float, m: Array, root: Array, eps: float) -> Array:
    """Weights after each step, if step t is rate m[t] / (root[t] + eps)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return w - rate * np.cumsum(m / (root + eps), axis=0)


def by_definition(gradients: Array, w: Array, rate: float, beta1: float, beta2: float, eps: float) -> Array:
    return corrected(gradients, w, rate, beta1, beta2, eps, True, True)


def corrected(gradients: Array, w: Array, rate: float, beta1: float, beta2: float, eps: float, of_m: bool,
              of_v: bool) -> Array:
    """With or without the bias correction of m and of v."""
    m_hat = averages(gradients, beta1) / corrections(gradients, beta1) ** of_m
    return with_other_v(averages(gradients**2, beta2) / corrections(gradients, beta2) ** of_v, m_hat, w, rate, eps)


def with_other_v(v_hat: Array, m_hat: Array, w: Array, rate: float, eps: float) -> Array:
    return path(w, rate, m_hat, np.sqrt(v_hat), eps)


def right_m(gradients: Array, beta1: float) -> Array:
    return averages(gradients, beta1) / corrections(gradients, beta1)


def right_v(gradients: Array, beta2: float) -> Array:
    return averages(gradients**2, beta2) / corrections(gradients, beta2)


def stuck_at_one(gradients: Array, w: Array, rate: float, beta1: float, beta2: float, eps: float) -> Array:
    m, v = averages(gradients, beta1) / (1 - beta1), averages(gradients**2, beta2) / (1 - beta2)
    return path(w, rate, m, np.sqrt(v), eps)


def no_memory(gradients: Array, w: Array, rate: float, beta1: float, beta2: float, eps: float) -> Array:
    m_hat = (1 - beta1) * gradients / corrections(gradients, beta1)
    return with_other_v((1 - beta2) * gradients**2 / corrections(gradients, beta2), m_hat, w, rate, eps)


def eps_before_the_correction(gradients: Array, w: Array, rate: float, beta1: float, beta2: float,
                              eps: float) -> Array:
    root = (np.sqrt(averages(gradients**2, beta2)) + eps) / np.sqrt(corrections(gradients, beta2))
    return path(w, rate, right_m(gradients, beta1), root, 0)


def history(random: np.random.Generator, T: int, sizes: list[float], eps: float = 1e-9) -> Values:
    """With weights as small as the steps, so that the four digits of a diagnosis show a step that is a bit off."""
    return {"gradients": random.normal(size=(T, len(sizes))) * sizes, "w": 0.1 * random.normal(size=len(sizes)),
            "rate": 0.1, "beta1": 0.9, "beta2": 0.98, "eps": eps}


ADAM = Build(
    id="15_adam",
    title="Write Adam, with its bias correction",
    function="adam",
    arguments=("gradients", "w", "rate", "beta1", "beta2", "eps"),
    cases={
        "a large eps": lambda random: history(random, 6, [1, 0.1], eps=0.3),
        "gradients of sizes 1, 1000 and 1/1000": lambda random: history(random, 7, [1, 1e3, 1e-3]),
        "one step": lambda random: history(random, 1, [1, 3]),
        "a weight whose gradient is always 0": lambda random: history(random, 5, [1, 0, 2, 4]),
    },
    expected=by_definition,
    result=Result(name="weights", symptoms={
        "nan where the gradient was always 0, and wrong where eps is large: eps is missing":
            lambda yours, gradients, w, rate, beta1, beta2: yours.shape == gradients.shape and np.allclose(
                yours, by_definition(gradients, w, rate, beta1, beta2, 0), rtol=1e-9, atol=1e-9, equal_nan=True),
        "nan or inf from the first step on: t counts from 1; for t = 0 the corrections 1 - beta^t are 0":
            lambda yours: not np.isfinite(yours).all(),
    }, suspects={
        "the bias correction is missing: m and v begin at 0, and both are too small at first":
            lambda gradients, w, rate, beta1, beta2, eps:
                corrected(gradients, w, rate, beta1, beta2, eps, False, False),
        "the bias correction of v is missing, the division by 1 - beta2^t":
            lambda gradients, w, rate, beta1, beta2, eps:
                corrected(gradients, w, rate, beta1, beta2, eps, True, False),
        "the bias correction of m is missing, the division by 1 - beta1^t":
            lambda gradients, w, rate, beta1, beta2, eps:
                corrected(gradients, w, rate, beta1, beta2, eps, False, True),
        "t stays at 1: every step must count, or the correction is that of the first step for ever": stuck_at_one,
        "the root is missing: m is divided by sqrt(v), not by v":
            lambda gradients, w, rate, beta1, beta2, eps:
                with_other_v(right_v(gradients, beta2)**2, right_m(gradients, beta1), w, rate, eps),
        "the betas are swapped: m goes with beta1, v with beta2":
            lambda gradients, w, rate, beta1, beta2, eps: by_definition(gradients, w, rate, beta2, beta1, eps),
        "v is an average with beta1; it has its own, beta2":
            lambda gradients, w, rate, beta1, beta2, eps:
                with_other_v(right_v(gradients, beta1), right_m(gradients, beta1), w, rate, eps),
        "v is the square of m; it is the average of the squares of g":
            lambda gradients, w, rate, beta1, beta2, eps:
                with_other_v(averages(gradients, beta2)**2 / corrections(gradients, beta2), right_m(gradients, beta1),
                             w, rate, eps),
        "nothing is remembered: m and v must go on from the step before": no_memory,
        "eps stands inside the root: it is added to the root of v":
            lambda gradients, w, rate, beta1, beta2, eps:
                path(w, rate, right_m(gradients, beta1), np.sqrt(right_v(gradients, beta2) + eps), 0),
        "eps stands inside the root, and before the correction: it is added to the root of the corrected v":
            lambda gradients, w, rate, beta1, beta2, eps:
                path(w, rate, right_m(gradients, beta1),
                     np.sqrt((averages(gradients**2, beta2) + eps) / corrections(gradients, beta2)), 0),
        "eps is added to sqrt(v) before v is corrected, as the library does; in the lesson's equation it is added to "
        "the corrected root": eps_before_the_correction,
        "uphill: the step is subtracted":
            lambda truth, w: 2 * w - truth,
    }),
    solution=train,
    library=(Adam.step,),
    hints=(
        "gradients is (T, n). m and v are (n,) and begin at 0; go through the rows one by one, t = 1, 2, ... T, and "
        "keep a copy of the weights after each.",
        "m is a running average of g, v one of g * g, each with its own beta. At step t both are too small by the "
        "factor 1 - beta^t, so divide by it; but keep m and v themselves for the next step.",
        "m = beta1 * m + (1 - beta1) * g, v likewise with g * g; then "
        "w = w - rate * m / (1 - beta1**t) / (sqrt(v / (1 - beta2**t)) + eps).",
    ),
)

# 15_noam --------------------------------------------------------------------------------------------------------------


def rates(steps: Array, d_model: int, warmup: int) -> Array:
    return np.array([noam(int(step), d_model, warmup) for step in steps])


def in_two_parts(steps: Array, d_model: int, warmup: int) -> Array:
    """The definition in words: a line from 0 to the peak at step `warmup`, then a fall with the root of the step."""
    peak = 1 / np.sqrt(d_model * warmup)
    return np.where(steps < warmup, peak * steps / warmup, peak * np.sqrt(warmup / steps))


@np.errstate(divide="ignore")
def equation_3(steps: Array, d_model: int, fall: float, rise: Array | float, choose: Callable = np.minimum) -> Array:
    return d_model**-0.5 * choose(np.asarray(steps, float)**fall, rise)


NOAM = Build(
    id="15_noam",
    title="Write the learning rate of equation 3, for many steps at once",
    function="learning_rates",
    arguments=("steps", "d_model", "warmup"),
    cases={
        "from step 1 to far beyond the peak": lambda random: {"steps": np.arange(1, 41), "d_model": 12, "warmup": 9},
        "some steps in no order": lambda random: {"steps": random.permutation(300)[:7] + 1, "d_model": 512,
                                                  "warmup": 100},
        "warmup = 1, no rise at all": lambda random: {"steps": np.arange(1, 6), "d_model": 20, "warmup": 1},
        "the peak alone": lambda random: {"steps": np.array([4000]), "d_model": 512, "warmup": 4000},
    },
    expected=in_two_parts,
    result=Result(name="rates", factors={"d_model**-0.5": lambda d_model: d_model**-0.5}, suspects={
        "the larger of the two is taken: it must be the smaller one, or the rate begins at its highest":
            lambda steps, d_model, warmup: equation_3(steps, d_model, -0.5, steps * warmup**-1.5, np.maximum),
        "one step behind: the first step is step 1, or it would be one of length 0":
            lambda steps, d_model, warmup: equation_3(steps - 1, d_model, -0.5, (steps - 1) * warmup**-1.5),
        "one step ahead: `steps` counts from 1 already":
            lambda steps, d_model, warmup: equation_3(steps + 1, d_model, -0.5, (steps + 1) * warmup**-1.5),
        "the exponent of warmup is -1.5: with -1 the line and the root do not meet at step warmup":
            lambda steps, d_model, warmup: equation_3(steps, d_model, -0.5, steps / warmup),
        "the exponent of warmup is -1.5, not -0.5":
            lambda steps, d_model, warmup: equation_3(steps, d_model, -0.5, steps * warmup**-0.5),
        "it never falls: after step warmup it goes down with the root of the step":
            lambda steps, d_model, warmup: equation_3(steps, d_model, 0, steps / warmup) * warmup**-0.5,
        "it never rises: the first `warmup` steps are on a line from 0":
            lambda steps, d_model: equation_3(steps, d_model, -0.5, np.inf),
        "it falls with the step; it should fall with the root of the step":
            lambda steps, d_model, warmup: equation_3(steps, d_model, -1, steps / warmup**2) * warmup**0.5,
    }),
    solution=rates,
    library=(noam,),
    hints=(
        "steps is (n,) of whole numbers from 1 on; so is the result, of floats. np.minimum compares two arrays "
        "elementwise. NumPy refuses negative powers of whole numbers, so make floats of the steps.",
        "Two curves, of which the lower one counts: one falls with the root of the step, the other rises as a line. "
        "They meet at step warmup.",
        "d_model**-0.5 * np.minimum(steps**-0.5, steps * warmup**-1.5).",
    ),
)

# 15_disguise ----------------------------------------------------------------------------------------------------------

RATE, BETAS, EPS = 0.01, (0.9, 0.98), 1e-9


def steps_of(gradients: Array) -> Array:
    """What Adam adds to the weights, step by step, in units of the learning rate. (T, n) -> (T, n)"""
    weights = train(gradients, np.zeros(gradients.shape[1]), RATE, *BETAS, EPS)
    return np.diff(weights, axis=0, prepend=0) / RATE


def other_units(gradients: Array) -> Array:
    return gradients * np.arange(2, gradients.shape[1] + 2)


def recognised(answer: Callable) -> str | None:
    """What is wrong with a disguise; None if nothing is."""
    for seed, shape in enumerate([(6, 3), (1, 2), (40, 5)]):
        gradients = np.random.default_rng(seed).normal(size=shape)
        try:
            yours = as_array(answer(gradients), gradients)
        except Unlike as unlike:
            return f"it returns {unlike}"
        if yours.shape != shape:
            return f"shape {yours.shape}, expected {shape}"
        if not np.isfinite(yours).all():
            return "it holds nan or inf"
        if (np.abs(yours - gradients) < 0.01 * np.abs(gradients)).any():
            return "some gradients are as they were: each must change by one per cent or more"
        theirs, wanted = steps_of(yours), steps_of(gradients)
        if np.allclose(theirs, -wanted, atol=1e-3):
            return "every step goes the other way: Adam sees no size, but it sees the sign"
        if np.allclose(theirs[0], wanted[0], atol=1e-3) and not np.allclose(theirs, wanted, atol=1e-3):
            return "the first step is the same, later ones are not: a factor must be the same at every step"
        if not np.allclose(theirs, wanted, atol=1e-6):
            if np.abs(yours).max() < 1e-3:
                return "so small that eps is no longer small beside them: the steps are shorter"
            return "the steps differ"
    return None


DISGUISE = Break(
    id="15_disguise",
    title="Change every gradient, such that Adam takes the same steps",
    function="disguise",
    arguments=("gradients",),
    complaint=recognised,
    solution=other_units,
    library=(Adam.step,),
    hints=(
        "gradients is (T, n), row t the gradients of n weights at step t, and so is the result.",
        "Each weight has an m and a v of its own. What can you do to all gradients of a weight that does the same to m "
        "and to the root of v?",
        "Multiply column j by a positive number c_j: m and sqrt(v) both grow by c_j, and the quotient stays.",
    ),
)

# 15_longest_step ------------------------------------------------------------------------------------------------------

LONG = 1.6
MOST, LARGEST = 1000, 1e100


def growing(beta1: float, beta2: float) -> Array:
    return (beta2 / beta1) ** np.arange(300.0)


def too_short(answer: Callable) -> str | None:
    """What keeps the last step of a history from being long; None if nothing does."""
    try:
        gradients = as_array(answer(*BETAS), np.zeros(1))
    except Unlike as unlike:
        return f"it returns {unlike}"
    if gradients.ndim != 1 or not 0 < len(gradients) <= MOST:
        return f"shape {gradients.shape}, expected (T,), with T from 1 to {MOST}"
    if not np.isfinite(gradients).all():
        return "it holds nan or inf"
    if not gradients.any():
        return "all gradients are 0, and so is the step"
    if np.abs(gradients).max() > LARGEST:
        return f"a gradient is larger than {LARGEST:g}, and its square may overflow; sizes count only among themselves"
    length = abs(float(steps_of(gradients[:, None])[-1, 0]))
    if length >= LONG:
        return None
    if abs(length - 1) < 1e-3:
        return "the last step is as long as the learning rate, which is what any constant gradient gives"
    if length < 1:
        return f"the last step is shorter than the learning rate: {length:.3f} times"
    return f"the last step is {length:.3f} times the learning rate, longer than one might think; {LONG} is wanted"


LONGEST_STEP = Break(
    id="15_longest_step",
    title="Find gradients after which Adam takes a step of 1.6 times the learning rate",
    function="gradients_of_a_long_step",
    arguments=("beta1", "beta2"),
    complaint=too_short,
    solution=growing,
    library=(Adam.step,),
    hints=(
        "The result is (T,), the gradients of one weight at T steps, the newest last. T may be 300.",
        "m remembers about ten steps, v about fifty. What must the older gradients have been like, for m to be large "
        "and v to be small?",
        "Of all histories, one that grows by beta2 / beta1 at every step gives the longest.",
    ),
)

EXERCISES = (ADAM, NOAM, DISGUISE, LONGEST_STEP)
