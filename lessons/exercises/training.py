"""The functions of lessons 01 and 15 to 20: the gradient check, Adam, batches, training and translation.

Most of them act on something or draw random numbers. They are called in a made-up surrounding, and what is told about
them holds for every right way to write them.
"""

from __future__ import annotations

import contextlib
import copy
import io
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from exercises.function import Call, Function, Mistake
from exercises.halves import Slip
from exercises.whole_model import require, sentences

PAD, EOS, BOS = range(3)


@contextlib.contextmanager
def surrounding(module: ModuleType, seed: int, **names: Any) -> Iterator[io.StringIO]:
    """Names of the module with other values, and what is printed meanwhile."""
    before = {name: getattr(module, name) for name in names}
    vars(module).update(names, rng=np.random.default_rng(seed))
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield printed
    finally:
        vars(module).update(before)


# check ----------------------------------------------------------------------------------------------------------------

NO_LOSS = "loss_of is never called: the numeric gradient is made of losses"
NO_BACKWARD = "backward of the loss is never called: it adds the gradients that are to be compared"
MANY_BACKWARDS = "backward is called more than once, and gradients add up: call it once, then compare"
FLOAT32 = "the model is in float32, whose losses are too coarse for a difference: make it in float64"
SEVERAL_MOVED = "several numbers are moved at once: put each one back before the next is moved"
ONE_SIDED = "each number is moved in one direction only: the difference needs loss(w + step) and loss(w - step)"
DROPOUT_CHANGES = "dropout differs from call to call: set rng back to the same state before each"
BAD_STEP = "the step is too large or too small for a difference of losses: take 1e-5"
REFUSED = (
    "right gradients are refused, though each number is moved as it should be: is the difference divided by 2 "
    "step, and "
    "compared with the gradient of the same number?"
)
NOT_PUT_BACK = "the weights are not put back: each number should be what it was before"
NO_PADDING = "no sentence is padded, and mistakes of the masks stay hidden: let source and target hold PAD"
NOTHING_NOTICED = "no wrong gradient is noticed: end with an assert that the worst error is small"
UNNOTICED = "a wrong gradient is not noticed: "
WRONG_GRADIENTS: dict[str, Callable[[dict], Any]] = {
    "one of the weights, E, lacks a part of it": lambda g: g.update(E=g["E of the source"]),
    "it is 1 % too large": lambda g: g.update(W=1.01 * g["W"]),
    "one number of it is too large": lambda g: g["W"].__setitem__((-1, -1), g["W"][-1, -1] + 0.01 * abs(g["W"]).max()),
    "two numbers of it are exchanged: compare number by number": lambda g: g.update(W=g["W"][::-1, ::-1]),
    "the factor gamma is left out, which shows only where gamma is not 1: add random numbers to the weights": (
        lambda g: g.update(W=g["W without gamma"])
    ),
}
"""Mistakes -> make it so in a dictionary of gradients."""


class Loss:
    """Stands in for `loss_of` with a small function of three weights, and writes down how it is called."""

    def __init__(self, module: ModuleType, plant: Callable[[dict], Any] = lambda gradients: None) -> None:
        self.module, self.plant = module, plant
        self.weights: list[dict[str, np.ndarray]] = []  # at each call
        self.keeps: list[np.ndarray] = []
        self.sentences: list[tuple[np.ndarray, np.ndarray]] = []
        self.n_backwards = 0

    def new_model(self, V: int = 9, *sizes: Any, dtype: str = "float32", **others: Any) -> SimpleNamespace:
        random = np.random.default_rng(0)
        arrays = {"E": random.normal(size=(V, 2)), "W": random.normal(size=(2, 3)), "gamma": np.ones(3)}
        dtype = sizes[4] if len(sizes) > 4 else dtype
        weights = {
            name: SimpleNamespace(data=a.astype(dtype), grad=np.zeros_like(a, dtype)) for name, a in arrays.items()
        }
        self.model = SimpleNamespace(**weights, weights=weights)
        return self.model

    def __call__(self, source: Any, target: Any, model: Any, P_drop: float = 0.0, eps_ls: float = 0.1) -> Any:
        E, W, gamma = (model.weights[name].data for name in ("E", "W", "gamma"))
        is_word = source != PAD
        z = E[source[is_word]] @ W
        keep = np.broadcast_to(self.module.dropout(z, P_drop), z.shape)
        self.weights.append({name: w.data.copy() for name, w in model.weights.items()})
        self.keeps.append(keep)
        self.sentences.append((source, target))

        def backward(dloss: float) -> None:
            self.n_backwards += 1
            dz = np.cos(z) * keep / len(z)
            dE = np.zeros_like(E)
            np.add.at(dE, source[is_word], (gamma * dz) @ W.T)
            gradients = {"gamma": (np.sin(z) * keep).sum(axis=0) / len(z), "W": E[source[is_word]].T @ (gamma * dz),
                         "W without gamma": E[source[is_word]].T @ dz, "E": dE + np.cos(E) / E.size,
                         "E of the source": dE}  # fmt: skip
            self.plant(gradients)
            for name, w in model.weights.items():
                w.grad += dloss * gradients[name]

        return (gamma * np.sin(z) * keep).sum() / len(z) + np.sin(E).mean(), backward

    def moves(self) -> Iterator[np.ndarray]:
        """By how much each number differs from the first call, for every later call."""
        for later in self.weights[1:]:
            yield np.concatenate([(later[name] - first).ravel() for name, first in self.weights[0].items()])

    def reason(self) -> str | None:
        """Why the check does not accept right gradients."""
        if not self.weights:
            return NO_LOSS
        if self.n_backwards != 1:
            return MANY_BACKWARDS if self.n_backwards else NO_BACKWARD
        if self.weights[0]["E"].dtype != np.float64:
            return FLOAT32
        if any(not np.array_equal(keep, self.keeps[0]) for keep in self.keeps):
            return DROPOUT_CHANGES
        steps = [move[abs(move) > 1e-13] for move in self.moves()]
        if any(len(step) > 1 for step in steps):
            return SEVERAL_MOVED
        found = np.concatenate([*steps, [0]])
        if not (found > 0).any() or not (found < 0).any():
            return ONE_SIDED
        return BAD_STEP if not 1e-7 < abs(found[found != 0]).mean() < 1e-3 else None


def observe_check(module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
    """Right gradients must pass, and each wrong one must raise an error."""

    def run(loss: Loss) -> BaseException | None:
        with surrounding(module, seed, loss_of=loss, new_model=loss.new_model):
            try:
                module.check()
            except (Exception, SystemExit) as error:
                return error
        return None

    right = Loss(module)
    if error := run(right):
        if isinstance(error, AssertionError | SystemExit):
            raise Slip(right.reason() or REFUSED)
        raise error
    yield "right gradients pass", True
    require(right.weights, NO_LOSS)
    require(any(len(right.weights) > 1 and move.any() for move in right.moves()), NOTHING_NOTICED)
    after = right.model.weights
    require(all(np.allclose(after[name].data, w, atol=1e-12) for name, w in right.weights[0].items()), NOT_PUT_BACK)
    unnoticed = [what for what, plant in WRONG_GRADIENTS.items() if not run(Loss(module, plant))]
    require(len(unnoticed) < len(WRONG_GRADIENTS), NOTHING_NOTICED)
    require(not unnoticed, UNNOTICED + "".join(unnoticed[:1]))
    yield "wrong gradients are noticed", True
    require(all((ids == PAD).any() for ids in right.sentences[0]), NO_PADDING)


CHECK = Function(
    name="check",
    lesson="01",
    note="first adds random numbers to all weights, because gamma 1 and beta 0 hide mistakes; prints the largest error "
    "of each weight; an AssertionError if one is not below 1e-6 of the largest gradient",
    cases={"a small model": lambda random, file: Call()},
    observe=observe_check,
    hints=(
        "Make a small model in float64 and a few padded sentences, and add random numbers to all weights: gamma 1 and "
        "beta 0 hide mistakes. One backward gives all gradients. Then move each number "
        "of each weight by a small step up and down, take the loss each time, and put the number back. Dropout "
        "must be the "
        "same in every call, so give rng the same state before each.",
        "numeric = (loss(w + step) - loss(w - step)) / (2 step); the error of a weight is max|numeric - grad| / "
        "max|numeric|; assert max(errors) < 1e-6.",
    ),
    mistakes=(
        Mistake(REFUSED, ("loss()[0] / (2 * change)", "loss()[0] / change")),
        Mistake(NOTHING_NOTICED, ("assert max(errors) < 1e-6", "assert max(errors) > 0")),
        Mistake(ONE_SIDED, ("for change in (step, -step):", "for change in (step,):")),
        Mistake(SEVERAL_MOVED, ("            w.data[i] = number\n", "")),
        Mistake(FLOAT32, (', dtype="float64"', "")),
        Mistake(DROPOUT_CHANGES, ("rng.bit_generator.state = state  #", "pass  #")),
        Mistake(BAD_STEP, ("step=1e-5", "step=0.1")),
        Mistake(NO_BACKWARD, ("loss()[1](1.0)", "loss()")),
        Mistake(MANY_BACKWARDS, ("loss()[1](1.0)  #", "loss()[1](1.0), loss()[1](1.0)  #")),
        Mistake(NO_PADDING, ("[8, 4, EOS, PAD, PAD]", "[8, 4, 5, 7, EOS]")),
        Mistake(UNNOTICED + list(WRONG_GRADIENTS)[0], ("max(errors) < 1e-6", "errors[1] < 1e-6")),
        Mistake(UNNOTICED + list(WRONG_GRADIENTS)[1], ("max(errors) < 1e-6", "max(errors) < 0.02")),
        Mistake(UNNOTICED + list(WRONG_GRADIENTS)[2], ("abs(numeric - w.grad).max()", "(numeric - w.grad).max()")),
        Mistake(
            UNNOTICED + list(WRONG_GRADIENTS)[3], ("abs(numeric - w.grad).max()", "abs(numeric.sum() - w.grad.sum())")
        ),
        Mistake(UNNOTICED + list(WRONG_GRADIENTS)[4], ("w.data += 0.3 * rng.standard_normal(w.data.shape)", "pass")),
    ),
)

# adam -----------------------------------------------------------------------------------------------------------------

NOT_CLEARED = "the gradients are not set to 0: those of the next batch would be added to them"
NOT_AN_ARRAY = "w.grad is a number now, and not an array: w.grad[...] = 0 keeps the array"
WIDENED = "a weight is float64 after a step, and was float32: NumPy numbers like np.sqrt(2.0) widen it, Python's don't"


def observe_adam(module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
    """Several steps of one model; gradients as small as those of a trained one, where epsilon has its place."""
    model, steps = call.args
    first, random = copy.deepcopy(model), np.random.default_rng([seed, 1])
    for step in steps:
        for w in model.weights.values():
            w.grad = 1e-3 * random.uniform(0.5, 2, w.data.shape) * random.choice([-1, 1], w.data.shape)
        model.E.grad[0] = 0  # of a word that does not occur
        before = {name: w.data.copy() for name, w in model.weights.items()}
        module.adam(model, step, **call.kwargs)
        for name, w in model.weights.items():
            yield f"{name}.m after step {step}", w.m
            yield f"{name}.v after step {step}", w.v
            yield f"the change of {name} in step {step}", w.data - before[name]
        require(all(isinstance(w.grad, np.ndarray) for w in model.weights.values()), NOT_AN_ARRAY)
        cleared = (np.shape(w.grad) == w.data.shape and not np.any(w.grad) for w in model.weights.values())
        require(all(cleared), NOT_CLEARED)
    for w in first.weights.values():
        w.data, w.grad, w.m, w.v = (array.astype("float32") for array in (w.data, w.grad + 1, w.m, w.v))
    module.adam(first, 1, **call.kwargs)
    require(all(w.data.dtype == np.float32 for w in first.weights.values()), WIDENED)


def stepped(steps: tuple[int, ...], *shapes: tuple[int, ...], **settings: float) -> Callable:
    """A case of `adam`: the steps, the shapes of E and of other weights."""

    def case(random, file):
        weights = {
            name: SimpleNamespace(
                data=random.normal(size=shape), **{key: np.zeros(shape) for key in ("grad", "m", "v")}
            )
            for name, shape in zip(("E", "W", "gamma"), shapes)
        }
        return Call(SimpleNamespace(E=weights["E"], weights=weights), steps, **settings)

    return case


ADAM = Function(
    name="adam",
    lesson="15",
    note="changes w.data, w.m and w.v of each w in model.weights.values(), and sets w.grad to 0; step is 1, 2, ...",
    cases={
        "the first steps": stepped((1, 2, 3), (5, 4), (4, 3, 2), (4,)),
        "around the end of the warm-up": stepped((1, 2, 3, 4), (3, 2), (2,), warmup_steps=2),
        "one weight, other betas": stepped((1, 2, 50), (2, 9), beta_1=0.5, beta_2=0.6, warmup_steps=10),
    },
    observe=observe_adam,
    hints=(
        "m is a running mean of the gradients, v one of their squares. Both began at 0, so both are corrected for "
        "that. The "
        "rate grows with the step until warmup_steps, then falls as 1 / sqrt(step). At the end all gradients become 0.",
        "lrate = d_model^-0.5 min(step^-0.5, step warmup_steps^-1.5);  m = beta_1 m + (1 - beta_1) grad;  "
        "v = beta_2 v + (1 - beta_2) grad^2;  w = w - lrate (m / (1 - beta_1^step)) / (sqrt(v / (1 - beta_2^step)) "
        "+ epsilon)",
    ),
    mistakes=(
        Mistake(
            "m and v are not corrected: both began at 0, so divide them by 1 - beta^step",
            ("lrate * (1 - beta_2**step) ** 0.5 / (1 - beta_1**step)", "lrate"),
        ),
        Mistake("v is not corrected: divide it by 1 - beta_2^step", ("lrate * (1 - beta_2**step) ** 0.5", "lrate")),
        Mistake("m is not corrected: divide it by 1 - beta_1^step", (" / (1 - beta_1**step)", "")),
        Mistake(
            "steps are counted from 0: step is 1 in the first call, and need not be changed",
            ("    lrate =", "    step -= 1\n    lrate ="),
        ),
        Mistake(
            "the correction is that of step 1 in every step: it has beta^step",
            ("lrate * (1 - beta_2**step) ** 0.5 / (1 - beta_1**step)", "lrate * (1 - beta_2) ** 0.5 / (1 - beta_1)"),
        ),
        Mistake(
            "epsilon stands inside the root; it is added to the root of v",
            ("np.sqrt(w.v) + epsilon", "np.sqrt(w.v + epsilon)"),
        ),
        Mistake(
            "epsilon stands inside the root; add it to the root of the corrected v",
            ("np.sqrt(w.v) + epsilon", "np.sqrt(w.v + epsilon * (1 - beta_2**step))"),
        ),
        Mistake(
            "epsilon is missing, and a word that does not occur has 0 / 0", ("np.sqrt(w.v) + epsilon", "np.sqrt(w.v)")
        ),
        Mistake("the root of v is missing", ("np.sqrt(w.v)", "w.v")),
        Mistake(
            "there is no warm-up: the rate grows until warmup_steps",
            ("min(step**-0.5, step * warmup_steps**-1.5)", "step**-0.5"),
        ),
        Mistake(
            "the rate never falls: after warmup_steps it is d_model^-0.5 step^-0.5",
            ("min(step**-0.5, step * warmup_steps**-1.5)", "min(warmup_steps**-0.5, step * warmup_steps**-1.5)"),
        ),
        Mistake("the factor d_model^-0.5 is missing in the rate", ("model.E.data.shape[1] ** -0.5 * ", "")),
        Mistake("the first axis of E is taken for d_model; it is V", ("E.data.shape[1]", "E.data.shape[0]")),
        Mistake("v is a running mean of gradients; it is one of their squares", ("w.grad**2 - w.v", "w.grad - w.v")),
        Mistake(
            "beta_1 and 1 - beta_1 are exchanged: m keeps beta_1 of itself", ("w.m += (1 - beta_1)", "w.m += beta_1")
        ),
        Mistake(
            "the corrected mean is kept; keep w.m and w.v as they are, and correct them only for this step",
            (
                "w.data -= size * w.m",
                "w.m /= 1 - beta_1**step\n        w.v /= 1 - beta_2**step\n        w.data -= lrate * w.m",
            ),
        ),
        Mistake(
            "it stays 0: keep the running mean in w.m, and set the gradient to 0 at the end of the step",
            ("        w.m +=", "        w.grad[...] = 0\n        w.m +="),
        ),
        Mistake(NOT_AN_ARRAY, ("w.grad[...] = 0", "w.grad = 0")),
        Mistake(NOT_CLEARED, ("w.grad[...] = 0", "pass")),
        Mistake(WIDENED, ("w.data -= size * w.m", "w.data = w.data - np.float64(size) * w.m")),
    ),
    tolerance=1e-4,
)

# batches --------------------------------------------------------------------------------------------------------------

NO_GENERATOR = "it should be a generator, which yields one batch after the other"
TWO_ARRAYS = "a batch should be two arrays of ids with two axes, source and target"
TRANSPOSED = "the axes are exchanged: a row is a sentence, padding stands at its end"
CUT_OFF = "sentences are cut off: the longest one of a batch stays whole, and the others are padded to its length"
NOT_PADDED = "the sentences of a batch differ in length: pad them before they become one array"
EXCHANGED = "source and target are exchanged: a batch is [source, target]"
IN_FRONT = "padding stands in front of a sentence; it stands behind"
ENDS = "it ends after one epoch; training goes on, so begin again without end"
PAIRS_TORN = "a source stands beside a target that is not its own: shuffle and sort pairs, not each side by itself"
NOT_ONCE = "an epoch does not hold each pair exactly once; the last batch, which may be smaller, belongs to it, too"
TOO_WIDE = "a batch has columns of nothing but padding: pad to the longest sentence of the batch, not of all"
MIXED_LENGTHS = "sentences of very different lengths share batches, and most of them is padding: sort by length"
SHORT_TO_LONG = "each epoch goes from short sentences to long ones: take the batches in random order"
SAME_BATCHES = "the same pairs meet in each epoch: shuffle the pairs again before they are sorted"


def observe_batches(module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
    """Three epochs; which pairs come when is chance."""
    pairs, size = call.args
    n_batches = -(-len(pairs) // size)
    expected = sorted((tuple(source), tuple(target)) for source, target in pairs)
    with surrounding(module, seed):
        made = module.batches(copy.deepcopy(pairs), size)
        require(hasattr(made, "__next__"), NO_GENERATOR)
        epochs = []
        for number in range(3):
            taken = [arrays_of(batch) for batch in islice(made, n_batches)]
            if not number:
                require(taken, "it yields nothing")
                require(
                    len(taken[0][0]) <= size, f"a batch has {len(taken[0][0])} pairs, and should have size = {size}"
                )
            rows = [[tuple(tuple(stripped(ids)) for ids in pair) for pair in zip(*batch)] for batch in taken]
            found = sorted(pair for batch in rows for pair in batch)
            require(len(taken) == n_batches, ENDS if number else NOT_ONCE)
            require_pairs(found, expected)
            epochs.append((taken, rows))
    yield "pairs of an epoch", True
    wide = (not array[:, -1].any() for taken, _ in epochs for batch in taken for array in batch)
    require(not any(wide), TOO_WIDE)
    yield "padding", True
    if n_batches < 4:
        return
    cells = [sum(array.size for batch in taken for array in batch) for taken, _ in epochs]
    require(min(cells) < 1.2 * sum(len(ids) for pair in expected for ids in pair), MIXED_LENGTHS)
    widths = [[batch[1].shape[1] for batch in taken] for taken, _ in epochs]
    require(any(each != sorted(each) for each in widths), SHORT_TO_LONG)
    together = {frozenset(frozenset(batch) for batch in rows) for _, rows in epochs}
    require(size == 1 or len(together) > 1, SAME_BATCHES)
    yield "order", True


def arrays_of(batch: Any) -> list[np.ndarray]:
    require(isinstance(batch, list | tuple) and len(batch) == 2, TWO_ARRAYS)
    require(all(isinstance(a, np.ndarray) and a.ndim == 2 and a.dtype.kind in "iu" for a in batch), TWO_ARRAYS)
    source, target = batch
    if len(source) != len(target):
        raise Slip(TRANSPOSED if source.shape[1] == target.shape[1]
                   else f"a batch has {len(source)} sources and {len(target)} targets")  # fmt: skip
    return [source, target]


def stripped(ids: np.ndarray) -> list[int]:
    """Without PAD at the end."""
    return ids[: len(ids) - int((ids[::-1] != PAD).argmax() if ids.any() else len(ids))].tolist()


def require_pairs(found: list[tuple], expected: list[tuple]) -> None:
    sides: list[set] = [{pair[side] for pair in expected} for side in (0, 1)]
    for pair in found:
        for ids, side in zip(pair, sides):
            require(ids not in sides[0] | sides[1] or ids in side, EXCHANGED)
            require(ids in side or ids[:1] != (PAD,), IN_FRONT)
            require(ids in side or not any(whole[: len(ids)] == ids for whole in side), CUT_OFF)
            require(ids in side, f"{list(ids)} is not a sentence of pairs: behind its ids only PAD may stand")
        require(pair in expected, PAIRS_TORN)
    require(found == expected, NOT_ONCE)


def corpus_of(n: int, size: int) -> Callable:
    """A case of `batches`: n pairs of eight lengths; no two sentences are alike."""

    def case(random, file):
        pairs = [([3 + i] * (2 + i % 8) + [EOS], [BOS] + [3 + i] * (2 + i % 8) + [EOS]) for i in range(n)]
        return Call([pairs[i] for i in random.permutation(n)], size)

    return case


BATCHES = Function(
    name="batches",
    lesson="18",
    note=(
        "pairs: (ids of the source, ids of the target); yields [source, target], arrays (b, s) and (b, t), without "
        "end"
    ),
    cases={
        "41 pairs in batches of 4": corpus_of(41, 4),
        "fewer pairs than a batch": corpus_of(3, 5),
        "batches of one pair": corpus_of(17, 1),
    },
    observe=observe_batches,
    hints=(
        "An epoch: shuffle the pairs, sort them by length (pairs of one length stay shuffled), cut the list into "
        "pieces of "
        "`size`, and take the pieces in random order. Then the next epoch, without end. Each piece becomes two arrays, "
        "padded to its own longest sentence.",
        "rng.shuffle(pairs); pairs.sort(key=...); for i in rng.permutation(range(0, len(pairs), size)): pairs[i : "
        "i + size]; "
        "zip_longest(*side, fillvalue=PAD) gives columns.",
    ),
    mistakes=(
        Mistake(ENDS, ("while True:", "for _ in range(1):")),
        Mistake(
            NOT_ONCE,
            ("range(0, len(pairs), size)", "range(0, len(pairs) - size + 1, size)"),
            ("    while True:", "    size = min(size, len(pairs))\n    while True:"),
        ),
        Mistake(CUT_OFF, ("zip_longest(*side, fillvalue=PAD)", "zip(*side)")),
        Mistake(NOT_PADDED, ("np.array(list(zip_longest(*side, fillvalue=PAD))).T", "np.array(side)")),
        Mistake(
            IN_FRONT,
            (
                "zip_longest(*side, fillvalue=PAD))).T",
                "zip_longest(*(ids[::-1] for ids in side), fillvalue=PAD))).T[:, ::-1]",
            ),
        ),
        Mistake(EXCHANGED, ("sides = zip(*pairs[i : i + size])", "sides = list(zip(*pairs[i : i + size]))[::-1]")),
        Mistake(TRANSPOSED, (")).T for", ")) for")),
        Mistake(
            PAIRS_TORN,
            (
                "rng.shuffle(pairs)",
                "sides = [list(side) for side in zip(*pairs)]\n        rng.shuffle(sides[0])\n"
                "        pairs = list(zip(*sides))",
            ),
        ),
        Mistake(
            TOO_WIDE,
            (
                "np.array(list(zip_longest(*side, fillvalue=PAD))).T",
                "np.array([ids + [PAD] * (max(len(i) for p in pairs for i in p) - len(ids)) for ids in side])",
            ),
        ),
        Mistake(MIXED_LENGTHS, ("pairs.sort(key=lambda pair: len(pair[1]))", "pass")),
        Mistake(SHORT_TO_LONG, ("rng.permutation(range(0, len(pairs), size))", "range(0, len(pairs), size)")),
        Mistake(SAME_BATCHES, ("rng.shuffle(pairs)", "pass")),
    ),
)

# train ----------------------------------------------------------------------------------------------------------------

GOES_ON = "training goes on after the last step: batches never end, so count the steps"
OTHER_ORDER = "a step is: loss_of of a batch, backward with 1.0, adam, once each and in this order"
ONLY_SPACES = "a line is split at spaces only; words_in takes punctuation marks from the words"
NOT_SAVED = "nothing is saved in the file WEIGHTS: np.savez(WEIGHTS, words=words, ...)"
SOURCE_END = "a source is the ids of its words and EOS"
TARGET_ENDS = "a target is BOS, the ids of its words and EOS"
IDS = (
    "the ids in a batch do not belong to the words saved: the id of a word is its place there; the first three, 0 "
    "to 2, are for PAD, EOS and BOS"
)
ENGLISH = ["The dog sleeps.", "A cat, a dog.", "The old cat sees the well-known dog.", "Yes!", "Dogs sleep."]
GERMAN = [
    "Der Hund schläft.",
    "Eine Katze, ein Hund.",
    "Die alte Katze sieht den bekannten Hund.",
    "Ja!",
    "Hunde schlafen.",
]


def observe_train(module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
    """In a folder with a corpus of five pairs; adam, which stands in for ours, adds 1 to each weight."""
    steps, events = call.kwargs["steps"], list[tuple[str, float]]()
    batches, P_drops = list[tuple[Any, Any]](), list[float]()

    def new_model(V: int, *sizes: Any, **others: Any) -> SimpleNamespace:
        weights = {"E": SimpleNamespace(data=np.zeros((V, 2)), grad=np.zeros((V, 2)))}
        return SimpleNamespace(**weights, weights=weights)

    def loss_of(source: Any, target: Any, model: Any, P_drop: float = 0.0, eps_ls: float = 0.1) -> Any:
        require(len(events) < 3 * steps + 9, GOES_ON)
        events.append(("loss_of", 0))
        batches.append((source, target))
        P_drops.append(P_drop)
        return 1.5, lambda dloss: events.append(("backward", float(dloss)))

    def adam(model: Any, step: int, *settings: Any, **others: Any) -> None:
        events.append(("adam", int(step)))
        model.E.data += 1

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for text, lines in {"train.en": ENGLISH, "train.de": GERMAN, "test.en": ENGLISH, "test.de": GERMAN}.items():
            (folder / text).write_text("\n".join(lines) + "\n", "utf-8")
        stand_ins = {"new_model": new_model, "loss_of": loss_of, "adam": adam, "translate": lambda sentence: None}
        with surrounding(module, seed, CORPUS=folder, WEIGHTS=folder / "saved.npz", **stand_ins):
            module.train(**call.kwargs)
        file = folder / "saved.npz"
        require(file.exists(), NOT_SAVED)
        with np.load(file) as arrays:
            saved = {name: arrays[name] for name in arrays.files if name in ("words", "E")}
    yield "the list of steps given to adam", np.array([number for event, number in events if event == "adam"], int)
    require(batches, "loss_of is never called")
    for i in range(0, len(events), 3):
        require([event for event, _ in events[i : i + 3]]
                == ["loss_of", "backward", "adam"] and events[i + 1][1] == 1, OTHER_ORDER)  # fmt: skip
    yield "P_drop given to loss_of", float(max(P_drops))
    yield "the largest batch", max(len(source) for source, _ in batches)
    require("words" in saved, "the words are not saved: np.savez(WEIGHTS, words=words, ...)")
    require_corpus(batches, saved["words"].tolist(), module.words_in)
    yield "the ids", True
    require(
        "E" in saved,
        "the weights are not saved by their names in model.weights: np.savez(WEIGHTS, words=words, **average)",
    )
    require(
        len(saved["words"]) == len(saved["E"]),
        "the model has more or fewer words than are saved: new_model(len(words))",
    )
    yield "the saved weight (adam adds 1 a step)", np.unique(saved["E"])


def require_corpus(batches: list[tuple], words: list[str], words_in: Callable) -> None:
    """Raise Slip if the batches are not the sentences of the corpus."""
    expected = {tuple(words_in(line)) for line in ENGLISH}, {tuple(words_in(line)) for line in GERMAN}
    require(all(words_in(word) == [word] for word in words[3:]), ONLY_SPACES)
    require(not set(words[:3]) & set(words_in(" ".join(ENGLISH + GERMAN))), IDS)
    for arrays in batches:
        for side, array in enumerate(arrays):
            for row in array:
                ids = stripped(row)
                if side:
                    require(ids[:1] == [BOS] and ids[-1:] == [EOS], TARGET_ENDS)
                    ids = ids[1:]
                require(ids[-1:] == [EOS], SOURCE_END)
                require(max(ids) < len(words), IDS)
                require(tuple(words[i] for i in ids[:-1]) in expected[side], SOURCE_END if BOS in ids else IDS)


def trained(**settings: Any) -> Callable:
    return lambda random, file: Call(**settings)


TRAIN = Function(
    name="train",
    lesson="19",
    note="saves `words` and the weights by their names in the file WEIGHTS, each weight the mean of its last five "
    "checkpoints; one is kept every max(1, steps // 30) steps",
    cases={
        "65 steps": trained(steps=65, size=2, P_drop=0.1),
        "3 steps": trained(steps=3, size=3),
        "2 steps": trained(steps=2, size=9, P_drop=0.3),
    },
    observe=observe_train,
    hints=(
        "Read both files of the corpus, make one list of words with three special ones first, and turn each line "
        "into ids. "
        "Then, for each step: a batch, its loss, backward, adam. Now and then keep a copy of all weights. At the "
        "end save the "
        "mean of the last five copies.",
        "source: ids and EOS; target: BOS, ids, EOS. A copy is w.data.copy(), because adam changes w.data in place. "
        "average = {name: np.mean([w[name] for w in checkpoints[-5:]], axis=0)}.",
    ),
    mistakes=(
        Mistake("steps are counted from 1", ("range(1, steps + 1)", "range(steps)")),
        Mistake("the last step is missing: range(1, steps + 1)", ("range(1, steps + 1)", "range(1, steps)")),
        Mistake(
            OTHER_ORDER,
            ("        backward(1.0)\n        adam(model, step)", "        adam(model, step)\n        backward(1.0)"),
        ),
        Mistake("P_drop does not reach loss_of", ("model, P_drop)", "model)")),
        Mistake("size does not reach batches", ("target)), size)", "target)), 2)")),
        Mistake(
            SOURCE_END,
            ("for word in words_in(line)), EOS] for line in en", "for word in words_in(line))] for line in en"),
        ),
        Mistake(TARGET_ENDS, ("[BOS, *(", "[*(")),
        Mistake(
            ONLY_SPACES,
            ("{*words_in(en), *words_in(de)}", "{*en.split(), *de.split()}"),
            ("words_in(line)), EOS] for line in en", "line.split()), EOS] for line in en"),
            ("words_in(line)), EOS] for line in de", "line.split()), EOS] for line in de"),
        ),
        Mistake(
            "words of the target are missing in the list, which is one for both languages",
            ("{*words_in(en), *words_in(de)}", "{*words_in(en)}"),
        ),
        Mistake(IDS, ('["<pad>", "</s>", "<s>", *', "[*")),
        Mistake(
            "the weights are those of the last step; save the mean of the last five checkpoints",
            ("np.mean([w[name] for w in checkpoints[-5:]], axis=0)", "checkpoints[-1][name]"),
        ),
        Mistake("it is the mean of all checkpoints; take the last five", ("checkpoints[-5:]", "checkpoints")),
        Mistake(
            "it is the mean of the first five checkpoints; take the last five", ("checkpoints[-5:]", "checkpoints[:5]")
        ),
        Mistake(
            "a checkpoint is kept at each step; keep one every max(1, steps // 30) steps",
            ("step % max(1, steps // 30) == 0", "True"),
        ),
        Mistake(
            "the sum of the last checkpoints is divided by five also where there are fewer",
            (
                "np.mean([w[name] for w in checkpoints[-5:]], axis=0)",
                "np.sum([w[name] for w in checkpoints[-5:]], axis=0) / 5",
            ),
        ),
        Mistake(
            "all checkpoints are one and the same array, which adam changes: keep copies", ("w.data.copy()", "w.data")
        ),
        Mistake("it is the sum of five checkpoints, where the mean is meant", ("np.mean(", "np.sum(")),
        Mistake("below 30 steps, steps // 30 is 0: take at least 1", ("max(1, steps // 30)", "(steps // 30)")),
    ),
)

# beam_search ----------------------------------------------------------------------------------------------------------


NEVER_WRITTEN = "PAD and BOS are never written: give them log p = -inf"
OTHER_MEMORY = "memory is not what encode has returned, once for each sentence alive"
DROPS = "dropout is on: a translation is searched with P_drop 0"
NOT_SO_FAR = "decode should read the ids so far, BOS first, a row for each sentence alive"


class Language:
    """Stands in for a model, `encode` and `decode`: a recurrence that gives each beginning its own log p."""

    def __init__(self, random: np.random.Generator, V: int = 8) -> None:
        self.E = SimpleNamespace(data=random.normal(size=(V, V)))
        self.weights = {"E": self.E}
        self.to_x = np.linalg.inv(self.E.data).T
        self.of_word, self.of_state = 2 * random.normal(size=(V, V)), random.normal(size=(V, V))

    def encode(self, source: Any, model: Any, P_drop: float = 0.0) -> Any:
        require(P_drop == 0, DROPS)
        self.memory = np.sin(source[..., None] + np.arange(len(self.to_x)))
        return self.memory.copy(), None

    def decode(self, target: Any, memory: Any, source: Any, model: Any, P_drop: float = 0.0) -> Any:
        require(P_drop == 0, DROPS)
        require(np.ndim(target) == 2 and (np.asarray(target)[:, 0] == BOS).all(), NOT_SO_FAR)
        require(
            len(memory) in (1, len(target)) and np.array_equal(memory, self.memory.repeat(len(memory), 0)), OTHER_MEMORY
        )
        going_on = [ids for ids in np.asarray(target)[:, 1:].tolist() if EOS not in ids]
        require(not {PAD, BOS} & set().union(*going_on), NEVER_WRITTEN)
        state, logits = self.memory.sum(axis=1), []
        for t, words in enumerate(np.asarray(target).T):
            state = np.sin(self.of_word[words] + state @ self.of_state)
            logits.append(2 * state + (t - 2) * (np.arange(len(self.to_x)) == EOS))
        return np.stack(logits, axis=1) @ self.to_x, None


def observe_beam_search(module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
    """The ids found in several made-up languages, a row for each, with PAD behind them."""
    found = []
    for source, language in zip(*call.args):
        with surrounding(module, seed, encode=language.encode, decode=language.decode):
            ids = module.beam_search(source.copy(), language, **call.kwargs)
        require(ids is not None, "it returns None: is the return missing?")
        require(
            np.ndim(ids) == 1 and (np.size(ids) == 0 or np.asarray(ids).dtype.kind in "iu"),
            "it should return a list of ids",
        )
        require(PAD not in ids, NEVER_WRITTEN)
        found.append(list(ids))
    width = max(source.size + call.kwargs["longer"] + 1, *map(len, found))
    yield "ids of the translations", np.array([[*ids, *[PAD] * (width - len(ids))] for ids in found], int)


def searched(n: int = 12, **settings: float) -> Callable:
    """A case of `beam_search`: n searches."""
    return lambda random, file: Call([sentences(random, 3) for _ in range(n)], [Language(random) for _ in range(n)],
                                     **settings)  # fmt: skip


BEAM_SEARCH = Function(
    name="beam_search",
    lesson="20",
    note="returns a list of ids without BOS and EOS; PAD and BOS are never written. Each round: of all continuations "
    "of the sentences alive keep the 2 * beam likeliest; those that end are finished, with the score log p / ((5 "
    "+ words) / 6) ** alpha, EOS counted as a word; the `beam` likeliest others stay alive. Stop when no sentence"
    " alive can score more than the best finished one, or after source.size + longer rounds; if none is finished,"
    " return the likeliest alive",
    cases={
        "beam 4": searched(longer=6),
        "beam 1, alpha 0": searched(beam=1, alpha=0.0, longer=6),
        "beam 2, alpha 1.5": searched(beam=2, alpha=1.5, longer=9),
        "beam 1, four words at most": searched(beam=1, longer=1),
    },
    observe=observe_beam_search,
    hints=(
        "Keep two lists: sentences alive with their log p, and finished ones with their score. decode all that are "
        "alive at "
        "once, take the last position, and add the log p of each word to that of its sentence. The table of sums "
        "has a row for "
        "each sentence and a column for each word: look for the largest in the whole table.",
        "log p of V words: log_softmax(x[:, -1] E^T). Place i of the flat table is sentence i // V, word i % V. "
        "The score of a "
        "sentence alive is at most log p / penalty of the longest length, because log p is negative. PAD and BOS are "
        "never written: their log p is -inf.",
    ),
    mistakes=(
        Mistake(
            "scores are not divided by the length penalty, and short sentences win",
            ("(p / penalty[n_words], ids)", "(p, ids)"),
        ),
        Mistake(
            "the score is multiplied by the length penalty; divide by it",
            ("(p / penalty[n_words], ids)", "(p * penalty[n_words], ids)"),
        ),
        Mistake(
            "BOS is counted as a word in the length penalty; only words and EOS are",
            ("(p / penalty[n_words], ids)", "(p / ((6 + n_words) / 6) ** alpha, ids)"),
        ),
        Mistake(
            "EOS is not counted in the length penalty; it is a word, too",
            ("(p / penalty[n_words], ids)", "(p / penalty[n_words - 1], ids)"),
        ),
        Mistake(
            "the search stops at the first finished sentence; a sentence that is alive may still score more",
            ("if finished and max(finished)[0] >= alive[0][0] / penalty[-1]:", "if finished:"),
        ),
        Mistake(
            "the search stops when `beam` sentences are finished; a sentence that is alive may still score more",
            ("if finished and max(finished)[0] >= alive[0][0] / penalty[-1]:", "if len(finished) >= beam:"),
        ),
        Mistake(
            "the search stops too early: a sentence alive may grow, so the best that it can score has the penalty "
            "of the longest",
            ("alive[0][0] / penalty[-1]", "alive[0][0] / penalty[n_words]"),
        ),
        Mistake(
            "the penalty is words ** alpha; it should be ((5 + words) / 6) ** alpha",
            ("((5 + np.arange(source.size + longer + 1)) / 6)", "np.arange(source.size + longer + 1.0)"),
        ),
        Mistake(
            "source.size is left out: a translation may have as many words as source.size + longer",
            ("np.arange(source.size + longer + 1)", "np.arange(longer + 1)"),
        ),
        Mistake(NEVER_WRITTEN, ("log_p[:, [PAD, BOS]] = -np.inf", "pass")),
        Mistake(
            "sentences that have ended stay alive, and go on after EOS",
            ("alive = [(p, ids) for p, ids in continued if ids[-1] != EOS][:beam]", "alive = continued[:beam]"),
        ),
        Mistake(
            "only `beam` continuations are looked at: take 2 * beam, because half of them may end",
            ("[: 2 * beam]", "[:beam]"),
        ),
        Mistake(
            "only one sentence stays alive, as in greedy search; keep `beam` of them",
            ("if ids[-1] != EOS][:beam]", "if ids[-1] != EOS][:1]"),
        ),
        Mistake(
            "this is greedy search: each round takes only the likeliest word; keep the `beam` likeliest sentences",
            ("[: 2 * beam]", "[:1]"),
            ("if finished and max(finished)[0] >= alive[0][0] / penalty[-1]:", "if finished:"),
        ),
        Mistake(
            "the log p of the words before is forgotten: a sentence has the sum over its words",
            ("np.array(log_p_so_far)[:, None] + log_softmax", "log_softmax"),
        ),
        Mistake(
            "logits are added up; add up log p, so apply log_softmax",
            ("log_softmax(x[:, -1] @ model.E.data.T)", "x[:, -1] @ model.E.data.T"),
        ),
        Mistake("the first position of x is used; the next word is predicted by the last one", ("x[:, -1]", "x[:, 0]")),
        Mistake(
            "probabilities are added up; a sentence has the product of them, so add up their logarithms",
            ("log_softmax(x[:, -1] @ model.E.data.T)", "np.exp(log_softmax(x[:, -1] @ model.E.data.T))"),
        ),
        Mistake("EOS is left in; the translation is what stands between BOS and EOS", ("not in (BOS, EOS)", "!= BOS")),
        Mistake("BOS is left in; the translation is what stands between BOS and EOS", ("not in (BOS, EOS)", "!= EOS")),
        Mistake(
            "nothing is returned if no sentence ends in time: take the likeliest alive",
            ("max(finished or alive)[1]", "(max(finished)[1] if finished else [])"),
        ),
        Mistake(DROPS, ("memory, _ = encode(source, model, 0.0)", "memory, _ = encode(source, model, 0.1)")),
        Mistake(OTHER_MEMORY, ("memory.repeat(len(alive), axis=0)", "model.E.data[source]")),
    ),
)

# translate ------------------------------------------------------------------------------------------------------------

SPACES = "a space stands before a punctuation mark: remove those before . , ? !"
UNKNOWN = "a word that is not among the saved words should end in sys.exit with a sentence that names it"
NOT_PRINTED = "nothing is printed"
WORDS = ["<pad>", "</s>", "<s>", "!", ",", ".", "Hund", "Ja", "Yes", "der", "dog", "schläft", "sleeps", "the"]


def observe_translate(module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
    """With saved weights that are all alike, and a search that gives a fixed answer."""
    sentence, german = call.args
    seen: dict[str, Any] = {}

    def beam_search(source: Any, model: Any, *settings: Any, **others: Any) -> list[int]:
        seen.update(source=np.array(source), E=model.E.data.copy())
        return [WORDS.index(word) for word in module.words_in(german)]

    small = module.new_model

    def new_model(V: int, *sizes: Any, **others: Any) -> Any:
        return small(V, d_model=4, d_ff=4, h=1, N=1)

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "saved.npz"
        with surrounding(module, seed, WEIGHTS=path, beam_search=beam_search, new_model=new_model) as printed:
            weights = new_model(len(WORDS)).weights
            np.savez(path, words=WORDS, **{name: np.full_like(w.data, 0.5) for name, w in weights.items()})
            try:
                module.translate(sentence)
            except SystemExit as end:
                require(
                    set(module.words_in(sentence)) - set(WORDS),
                    f"it ends with sys.exit({end}), but words_in finds only known words in {sentence!r}",
                )
                require(str(unknown_of(sentence, module)) in str(end), UNKNOWN)
                yield "an unknown word", True
                return
            except (KeyError, ValueError, IndexError):
                require(unknown_of(sentence, module) is None, UNKNOWN)
                raise
    require(unknown_of(sentence, module) is None, UNKNOWN)
    require(seen, "beam_search is never called")
    yield "source", seen["source"]
    yield "the saved E", np.unique(seen["E"]).astype(float)[:3]
    text = printed.getvalue().strip()
    require(text, NOT_PRINTED)
    require(german in text or " ".join(module.words_in(german)) not in text, SPACES)
    require(german in text, f"it prints {text!r}, and should print {german!r} for what beam_search has found")
    yield "the printed sentence", True


def unknown_of(sentence: str, module: ModuleType) -> str | None:
    return next((word for word in module.words_in(sentence) if word not in WORDS), None)


def told(sentence: str, german: str) -> Callable:
    return lambda random, file: Call(sentence, german)


TRANSLATE = Function(
    name="translate",
    lesson="20",
    note="the file WEIGHTS holds `words` and the weights by their names; no space stands before . , ? !",
    cases={
        "several words": told("the dog sleeps.", "der Hund schläft."),
        "punctuation inside": told("Yes, the dog sleeps!", "Ja, der Hund schläft!"),
        "one word": told("Yes", "Ja"),
        "an unknown word": told("the unicorn sleeps.", ""),
    },
    observe=observe_translate,
    hints=(
        "Load the file, make a model of as many words, and put the saved arrays into its weights. The sentence "
        "becomes ids with "
        "EOS behind them, in an array with one row. What beam_search returns becomes words again.",
        "saved = np.load(WEIGHTS); w.data = saved[name]; source of shape (1, s); re.sub(' (?=[.,?!])', '', german).",
    ),
    mistakes=(
        Mistake(
            "EOS is missing: in training each source ended with it",
            ("words_in(sentence)), EOS]])", "words_in(sentence))]])"),
        ),
        Mistake("a source begins without BOS; only targets have it", ("[[*map", "[[BOS, *map")),
        Mistake("the model keeps its random weights: put the saved arrays into them", ("w.data = saved[name]", "pass")),
        Mistake(SPACES, ("re.sub(' (?=[.,?!])', '', german)", "german")),
        Mistake(
            UNKNOWN,
            ("sys.exit(f\"unknown word {unknown[0]!r}: the model knows those of {CORPUS / 'train.en'}\")", "pass"),
        ),
        Mistake(NOT_PRINTED, ("print(f\"{sentence} -> {re.sub(' (?=[.,?!])', '', german)}\")", "return german")),
    ),
)

FUNCTIONS = (CHECK, ADAM, BATCHES, TRAIN, BEAM_SEARCH, TRANSLATE)
