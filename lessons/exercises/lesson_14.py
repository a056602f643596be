"""The exercises of lesson 14: the smoothed target, its loss backwards, the floor of that loss, and log-sum-exp."""

from __future__ import annotations

import numpy as np

from exercises.exercise import Backward, Build, Result, Values
from scratchformer.nn.loss import Smoothing, cross_entropy
from scratchformer.nn.ops import PAD, Ops
from support.calibration import loss_floor

REFERENCE = Ops(np)

# 14_smoothed_targets --------------------------------------------------------------------------------------------------


def smoothed_targets(targets: np.ndarray, V: int, smoothing: float, spread: Smoothing) -> np.ndarray:
    """The gradient of the loss is p - q, and logits of 0 have p = 1 / V."""
    _, _, dlogits = cross_entropy(np.zeros((*targets.shape, V)), targets, smoothing, spread)
    return (targets != PAD)[..., None] / V - dlogits


def by_definition(targets: np.ndarray, V: int, smoothing: float, spread: Smoothing) -> np.ndarray:
    """Class by class, from what the exercise says: (..., V)"""
    def share(target: int, v: int) -> float:
        if target == PAD:
            return 0.0
        if spread == "uniform":
            return smoothing / V + (1 - smoothing) * (v == target)
        return 1 - smoothing if v == target else smoothing / (V - 1)

    rows = [[share(target, v) for v in range(V)] for target in targets.reshape(-1)]
    return np.array(rows).reshape(*targets.shape, V)


def of_other_size(targets: np.ndarray, V: int, smoothing: float, parts: int, on_target: float) -> np.ndarray:
    """smoothing / parts everywhere, but on_target on the target; zeros for padding."""
    q = np.full((*targets.shape, V), smoothing / parts)
    np.put_along_axis(q, targets[..., None], on_target, axis=-1)
    return q * (targets != PAD)[..., None]


def without_padding_class(targets: np.ndarray, V: int, smoothing: float) -> np.ndarray:
    q = of_other_size(targets, V, smoothing, V - 2, 1 - smoothing)
    q[..., PAD] = 0
    return q


TARGETS = Build(
    id="14_smoothed_targets",
    title="Write the smoothed target distribution, in both conventions",
    function="smoothed_targets",
    arguments=("targets", "V", "smoothing", "spread"),
    cases={
        "spread over the others": lambda random: {
            "targets": np.array([[5, 1, 2], [3, PAD, PAD]]), "V": 7, "smoothing": 0.1, "spread": "others"},
        "spread over all": lambda random: {
            "targets": np.array([[1, 4, 3, 2], [2, 2, PAD, PAD]]), "V": 6, "smoothing": 0.3, "spread": "uniform"},
        "no smoothing": lambda random: {
            "targets": np.array([2, PAD, 3]), "V": 5, "smoothing": 0.0, "spread": "others"},
    },
    expected=by_definition,
    result=Result("q", suspects={
        "with spread=\"others\" the smoothing is divided among the V - 1 other classes, not among V":
            lambda targets, V, smoothing, spread: by_definition(targets, V, smoothing, "uniform"),
        "with spread=\"uniform\" every class gets smoothing / V, the right one too":
            lambda targets, V, smoothing, spread: by_definition(targets, V, smoothing, "others"),
        "the right class keeps 1 - smoothing and gets no share of the rest: with spread=\"uniform\" the sum is not 1":
            lambda truth, targets, V, smoothing, spread:
                of_other_size(targets, V, smoothing, V, 1 - smoothing) if spread == "uniform" else truth,
        "the share is added to a 1 from which nothing was taken: rows sum to more than 1":
            lambda targets, V, smoothing, spread: by_definition(targets, V, 0.0, spread)
                + of_other_size(targets, V, smoothing, V if spread == "uniform" else V - 1,
                                smoothing / V if spread == "uniform" else 0.0),
        "padding as a class gets no share, and the rest is divided by V - 2: here it is a class like the others":
            lambda truth, targets, V, smoothing, spread:
                without_padding_class(targets, V, smoothing) if spread == "others" and smoothing else truth,
        "the right class and the others have exchanged their shares":
            lambda targets, V, smoothing, spread: by_definition(targets, V, 1 - smoothing, spread),
    }, regions={
        "a padded target is no target: its row is 0 throughout": lambda targets: (targets == PAD)[..., None],
    }),
    solution=smoothed_targets,
    library=(cross_entropy,),
    hints=(
        "q has one axis more than targets, of length V, at the end. np.arange(V) == targets[..., None] is True at the "
        "right classes and has that shape.",
        "Take smoothing from the right class and divide it: among the V - 1 other classes, or among all V, of which "
        "the right one is one. Rows sum to 1; a row of padding is 0.",
        "others: 1 - smoothing, and smoothing / (V - 1) elsewhere. uniform: 1 - smoothing + smoothing / V, and "
        "smoothing / V elsewhere."))

# 14_smoothed_cross_entropy_backward -----------------------------------------------------------------------------------


def mean_loss(logits: np.ndarray, targets: np.ndarray, smoothing: float) -> float:
    loss_sum, n_tokens, _ = cross_entropy(logits, targets, smoothing)
    return loss_sum / n_tokens


def smoothed_cross_entropy_backward(dL, logits, targets, smoothing):
    _, n_tokens, dlogits = cross_entropy(logits, targets, smoothing)
    return {"dlogits": dL * dlogits / n_tokens}


def weight(dL: float, targets: np.ndarray) -> np.ndarray:
    """What each row's gradient is multiplied by: dL / n for a real target, 0 for padding; (..., 1)"""
    real = (targets != PAD)[..., None]
    return dL * real / real.sum()


def softmax(logits: np.ndarray) -> np.ndarray:
    return REFERENCE.masked_softmax(logits, 1.0, None, False)


def logits_case(lengths: list[int], T: int, smoothing: float):
    """Random targets, padded after the given lengths."""
    def case(random: np.random.Generator) -> Values:
        targets = random.integers(1, 7, (len(lengths), T))
        targets[np.arange(T) >= np.array(lengths)[:, None]] = PAD
        return {"logits": 2 * random.normal(size=(len(lengths), T, 7)), "targets": targets, "smoothing": smoothing}
    return case


def mean_of_means(truth: np.ndarray, targets: np.ndarray) -> np.ndarray:
    n_tokens = (targets != PAD).sum(axis=1)[:, None, None]                         # of each sentence
    return truth * n_tokens.sum() / np.maximum(n_tokens, 1) / np.count_nonzero(n_tokens)


BACKWARD = Backward(
    id="14_smoothed_cross_entropy_backward",
    title="The gradient of the smoothed loss, a mean over the real tokens",
    function="smoothed_cross_entropy_backward",
    arguments=("dL", "logits", "targets", "smoothing"),
    cases={"3 sequences, padded": logits_case([4, 2, 3], 4, 0.1), "one of 2 sequences is padding only":
           logits_case([0, 3], 3, 0.3), "one token": logits_case([1], 1, 0.2)},
    forward={"L": mean_loss},
    gradients=(
        Result(
            "dlogits",
            terms={
                "the probability p": lambda dL, logits, targets: weight(dL, targets) * softmax(logits),
                "the term - q of the right class": lambda dL, logits, targets, smoothing:
                    -weight(dL, targets) * (1 - smoothing) * (np.arange(7) == targets[..., None]),
                "the term - q of the other classes, smoothing / (V - 1)": lambda dL, targets, smoothing:
                    -weight(dL, targets) * smoothing / 6 * (np.arange(7) != targets[..., None])},
            factors={"dL": lambda dL: dL},
            regions={"only the padded positions are wrong: a padded target is not part of the loss, so its scores have "
                     "gradient 0": lambda targets: targets[..., None] == PAD},
            suspects={
                "this is the gradient of the loss without smoothing: q is 1 on the right class":
                    lambda dL, logits, targets:
                        weight(dL, targets) * (softmax(logits) - (np.arange(7) == targets[..., None])),
                "this is the other convention, smoothing / V on all classes: spread it over the V - 1 others":
                    lambda dL, logits, targets, smoothing:
                        weight(dL, targets) * (softmax(logits) - smoothed_targets(targets, 7, smoothing, "uniform")),
                "padding as a class got no share, the others smoothing / (V - 2): here it is a class like them":
                    lambda dL, logits, targets, smoothing:
                        weight(dL, targets) * (softmax(logits) - without_padding_class(targets, 7, smoothing)),
                "not divided by the number of real tokens: the loss is their mean":
                    lambda truth, targets: truth * (targets != PAD).sum(),
                "divided by the number of positions, padding included; the mean runs over the real tokens":
                    lambda truth, targets: truth * (targets != PAD).sum() / targets.size,
                "divided by the number of sentences; the mean runs over the real tokens":
                    lambda truth, targets: truth * (targets != PAD).sum() / len(targets),
                "a mean of the sentences' means; every real token weighs the same":
                    mean_of_means,
            }),),
    solution=smoothed_cross_entropy_backward,
    library=(cross_entropy, Ops.cross_entropy),
    hints=(
        "dlogits has the shape of logits, (B, T, V). q from the first exercise has it, too. dL is one number, and so "
        "is the number of real tokens.",
        "Each score has two ways to the loss: through the logarithm of the sum comes its probability, through the "
        "second sum comes its share of the target. A padded row has none. What divides the loss divides its gradient.",
        "dlogits = dL (p - q) / n where the target is not 0, else 0;  q = 1 - smoothing at the right class and "
        "smoothing / (V - 1) elsewhere;  n = number of targets that are not 0."))

# 14_floor -------------------------------------------------------------------------------------------------------------


def entropy(q: list[float]) -> float:
    return -sum(share * float(np.log(share)) for share in q if share > 0)


def floor_by_definition(V: int, smoothing: float, spread: Smoothing) -> np.ndarray:
    return np.array(entropy(by_definition(np.array(1), V, smoothing, spread).tolist()))


FLOOR = Build(
    id="14_floor",
    title="How low can the smoothed loss of a token be?",
    function="floor",
    arguments=("V", "smoothing", "spread"),
    cases={
        "the paper's size": lambda random: {"V": 37_000, "smoothing": 0.1, "spread": "others"},
        "few classes, spread over all": lambda random: {"V": 5, "smoothing": 0.4, "spread": "uniform"},
        "few classes, spread over the others": lambda random: {"V": 3, "smoothing": 0.2, "spread": "others"},
        "no smoothing": lambda random: {"V": 9, "smoothing": 0.0, "spread": "others"},
    },
    expected=floor_by_definition,
    result=Result("nats", symptoms={
        "nan without smoothing: a class with q = 0 adds nothing, though 0 times ln 0 is nan in floating point":
            lambda yours, smoothing: bool(np.isnan(yours).all()) and smoothing == 0,
    }, suspects={
        "this is the loss of the right class alone; the other classes have shares too, and small probabilities":
            lambda V, smoothing, spread: np.array(
                -(q := float(by_definition(np.array(1), V, smoothing, spread)[1])) * np.log(q)),
        "- ln q of the right class is the plain loss of such a model; the smoothed loss weighs all classes by q":
            lambda V, smoothing, spread: np.array(-np.log(by_definition(np.array(1), V, smoothing, spread)[1])),
        "in bits: the library counts in nats, with the natural logarithm": lambda truth: truth / np.log(2),
        "this is the perplexity, e to the loss; asked for is the loss in nats": lambda truth: np.exp(truth),
        "with spread=\"others\" the smoothing is divided among the V - 1 other classes, not among V":
            lambda V, smoothing: floor_by_definition(V, smoothing, "uniform"),
        "with spread=\"uniform\" every class gets smoothing / V, the right one too":
            lambda V, smoothing: floor_by_definition(V, smoothing, "others"),
        "only one wrong class was counted; there are V - 1 of them": lambda V, smoothing, spread: np.array(
            entropy(by_definition(np.array(1), V, smoothing, spread)[1:3].tolist())),
    }),
    solution=loss_floor,
    library=(loss_floor,),
    hints=(
        "One number for one token. All wrong classes have the same share, so no array of V numbers is needed: one term "
        "for the right class, and V - 1 times one for a wrong one.",
        "The loss -sum q ln p is lowest where p = q. What it is there is the entropy of q. A share of 0 adds 0.",
        "-q_t ln q_t - (V - 1) e ln e, with e = smoothing / (V - 1) or smoothing / V and q_t = 1 - (V - 1) e."))

# 14_log_sum_exp -------------------------------------------------------------------------------------------------------


def log_sum_exp(z: np.ndarray) -> np.ndarray:
    return REFERENCE.log_sum_exp(z)


def log_sum_exp_by_definition(z: np.ndarray) -> np.ndarray:
    """In extended range: pair by pair, ln(e^a + e^b) = max + ln(1 + e^-|a - b|)"""
    return np.logaddexp.reduce(z, axis=-1)


def finite_where(yours: np.ndarray, expected: np.ndarray) -> bool:
    return np.array_equal(np.isfinite(yours), expected)


def without_largest(z: np.ndarray) -> np.ndarray:
    return log_sum_exp_by_definition(z) - z.max(axis=-1)


LOG_SUM_EXP = Build(
    id="14_log_sum_exp",
    title="The logarithm of a sum of exponentials, whatever the size of the scores",
    function="log_sum_exp",
    arguments=("z",),
    cases={
        "ordinary scores": lambda random: {"z": random.normal(size=(2, 3, 5))},
        "scores around 1000": lambda random: {"z": 1000 + random.normal(size=(3, 4))},
        "scores around -1000": lambda random: {"z": -1000 + random.normal(size=(4, 3))},
        "rows of very different size": lambda random: {"z": random.normal(size=(3, 6)) + [[0], [2000], [-2000]]},
        "a forbidden class, -inf": lambda random: {"z": np.array([[0.5, -np.inf, 1.5]])},
        "one class": lambda random: {"z": random.normal(size=(4, 1))},
    },
    expected=log_sum_exp_by_definition,
    result=Result("logs", suspects={
        "what was subtracted before the exponential must be added again": without_largest,
        "this is the largest score alone; the others add to the sum": lambda z: z.max(axis=-1),
        "this is the logarithm of the mean of the exponentials; the sum is meant":
            lambda z, truth: truth - np.log(z.shape[-1]),
    }, symptoms={
        "not finite where the scores are far from 0: e^1000 is inf and e^-1000 is 0, so subtract the largest score of "
        "the row before the exponential": lambda yours, truth: finite_where(yours, np.abs(truth) < 700),
        "rows far below the largest score of all are -inf: subtract the largest score of each row, not of the array":
            lambda yours, truth: finite_where(yours, truth > truth.max() - 700),
        "nan where a class is forbidden (-inf): subtract the largest score, which is finite; a mean is not":
            lambda yours, z: bool(np.isinf(z).any() and np.isnan(yours).any()),
    }),
    solution=log_sum_exp,
    library=(Ops.log_sum_exp,),
    hints=(
        "z (..., V) -> (...): the last axis goes. To subtract one number from each row, keep its axis: keepdims=True, "
        "or [..., None].",
        "Take the largest score out of the sum as a factor: e^z = e^m e^(z - m). The logarithm makes a sum of the "
        "product. Each row has its own m: with one m for all, a row far below it becomes e^-2000 = 0.",
        "m + ln(sum of e^(z - m)), with m the largest score of the row."))

EXERCISES = (TARGETS, BACKWARD, FLOOR, LOG_SUM_EXP)
