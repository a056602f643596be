"""Bug hunts and puzzles: a function with bugs to be repaired, or a trap or a test to be written.

What the learner gets is hunts/NAME.py. It runs in a module that holds all names of lessons/transformer.py. A complaint
names the symptom and not the cause; what cannot be judged at all raises Slip, or the error of the learner's code.
"""

from __future__ import annotations

import ast
import copy
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from exercises.checker import SEEDS, outcome, raise_hers
from exercises.diagnosis import Comparison, Unlike, as_array, error
from exercises.function import Call, Case, Function, Observe
from exercises.halves import Slip, both
from exercises.layers import weight
from exercises.observe import Halves
from exercises.source import code_of_ours, functions, ours, source_of_ours

Complaint = Callable[[Callable, ModuleType], str | None]
"""The learner's function, the module that holds it -> a symptom in one sentence, or None if it is right"""

TOLERANCE = 1e-6
ROUNDING = 1e-9
CLEARLY = 1e-2
"""A result that is off by this much is wrong, and not only rounded."""


@dataclass(frozen=True)
class Hunt:
    """Bug hunt or puzzle: what the learner repairs or writes.

    lesson     the page that it belongs to, as "04"
    function   the name of the function in her file
    solution   the text of a right answer, without imports
    """

    name: str
    lesson: str
    title: str
    function: str
    complaint: Complaint
    solution: str


def text_of(hunt: str) -> str:
    """Read what the learner gets."""
    return (Path(__file__).with_name("hunts") / f"{hunt}.py").read_text("utf-8")


# What several judges need ---------------------------------------------------------------------------------------------


def repaired(name: str, observe: Observe, cases: dict[str, Case]) -> Complaint:
    """Judge a function of our file: which of its results is wrong, for which cases?"""
    function, places = of_the_file(name, observe, cases), list(itertools.product(cases, SEEDS))

    def complaint(answer: Callable, module: ModuleType) -> str | None:
        compared: list[Compared] = []
        for place in places:
            hers = outcome(function, module, *place)
            compared.append((place[0], outcome(function, ours("transformer"), *place).values, hers.values))
            if hers.error:
                break
        symptom = wrong_value(compared)
        if hers.error and not symptom:
            raise_hers(function, places[: len(compared)], hers.error)
        return symptom

    return complaint


def of_the_file(name: str, observe: Observe, cases: dict[str, Case]) -> Function:
    return Function(name=name, lesson="", note="", cases=cases, observe=observe, hints=("", ""), mistakes=())


Compared = tuple[str, dict[str, Any], dict[str, Any]]
"""A case in words, the true values, hers"""


def wrong_value(compared: list[Compared]) -> str | None:
    """The first value that is not the true one, and for which cases."""
    for value in compared[0][1]:
        right: dict[str, bool] = {}
        for words, truth, hers in compared:
            if value in hers:
                right[words] = Comparison.alike(hers[value], truth[value], TOLERANCE) and right.get(words, True)
        good, bad = ("; ".join(words for words in right if right[words] == it) for it in (True, False))
        if bad:
            return f"{value} is wrong for: {bad}" + (f". It is right for: {good}" if good else "")
    return None


def variant(**edits: tuple[tuple[str, str], ...]) -> ModuleType:
    """Our file with pieces of the text of some of its functions replaced."""
    module = ours("transformer")
    for name, pieces in edits.items():
        exec(code_of_ours("transformer", name, pieces), vars(module))
    return module


def array(value: Any, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Convert what was returned to finite floats of this shape. Raises Slip."""
    try:
        yours = as_array(value, np.zeros(shape))
    except Unlike as unlike:
        raise Slip(f"{name} is {unlike}") from None
    if yours.shape != shape:
        raise Slip(f"{name} has shape {yours.shape}, expected {shape}")
    if not np.isfinite(yours).all():
        raise Slip(f"{name} holds nan or inf")
    return yours.astype(float)


def told(said: Any, known: tuple[Any, ...]) -> Any:
    """Return what a test says, if it is one of the known answers. Raises Slip."""
    if isinstance(said, np.bool_):
        said = bool(said)
    if not any(type(said) is type(one) and said == one for one in known):
        *others, last = map(repr, known)
        raise Slip(f"it returns {said!r:.40}, and should return {', '.join(others)} or {last}")
    return said


def misjudged(specimens: dict[str, tuple[Any, Any]], judge: Callable[[Any], Any]) -> str | None:
    """Find what a test of the learner's says wrongly of specimens, {words: (truth, specimen)}."""
    known = tuple(dict.fromkeys(truth for truth, _ in specimens.values()))
    said = {words: told(judge(specimen), known) for words, (_, specimen) in specimens.items()}
    wrong = [words for words, (truth, _) in specimens.items() if said[words] != truth]
    if not wrong:
        return None
    return f"{len(wrong)} of {len(said)} are misjudged, the first: {wrong[0]}. It says {said[wrong[0]]!r} of it"


# The judges, in the order of the lessons ------------------------------------------------------------------------------


def blind_check(answer: Callable, module: ModuleType) -> str | None:
    for b, t, d in ((3, 6, 5), (1, 2, 4)):
        dh, random = array(answer(b, t, d), "dh", (b, t, d)), np.random.default_rng([b, t, d])
        if abs(dh).max() < 1e-3:
            return "all numbers of dh are below 0.001, which would hide every mistake"
        slope, W_h = 1 - np.tanh(random.normal(size=dh.shape)) ** 2, random.normal(size=(d, d))
        later = np.zeros((b, d))
        for step in reversed(range(1, t)):
            later = ((dh[:, step] + later) * slope[:, step]) @ W_h.T
            if abs(later).max() > 1e-12:
                return f"the check sees it: da of step {step - 1} is wrong, counted from 0"
    return None


def scores_and_mask(random: np.random.Generator, file: ModuleType) -> Call:
    return Call(random.normal(size=(2, 3, 4, 5)), (np.arange(5) < [[5], [3]])[:, None, None, :])


SOFTMAX = of_the_file("softmax", Halves("dscores"), {"padding": scores_and_mask})


def all_ones(answer: Callable, module: ModuleType) -> str | None:
    random = np.random.default_rng(0)
    scores, mask = scores_and_mask(random, module).args

    def gradient(softmax: Callable, dp: np.ndarray) -> np.ndarray:
        return array(both(softmax(scores, mask), "softmax")[1](dp.copy()), "dscores", scores.shape)

    right = ours("transformer").softmax
    p = array(both(answer(scores, mask), "softmax")[0], "p", scores.shape)
    if error(p, right(scores, mask)[0]) > TOLERANCE:
        return "p is wrong: only backward should be"
    if (largest := abs(gradient(answer, np.ones_like(p))).max()) > TOLERANCE:
        return f"a check with ones notices: the true gradient is 0 there, and yours goes up to {largest:.2g}"
    for dp in random.normal(size=(5, *p.shape)):
        yours, off = gradient(answer, dp), error(gradient(answer, dp), gradient(right, dp))
        if off < CLEARLY:
            return f"its error for a random dp is only {off:.0e}"
        if not yours.any():
            return "dscores is zero everywhere for a random dp"
        if error(gradient(answer, dp + 1), yours) > TOLERANCE:
            return "it is not linear in dp: dp + 1 should give the sum of what dp and what ones give"
    return None


def right_gradient(answer: Callable, module: ModuleType) -> str | None:
    for seed in SEEDS:
        call = scores_and_mask(np.random.default_rng(seed), module)
        scores, mask = call.args
        p = array(both(answer(scores, mask), "softmax")[0], "p", scores.shape)
        if p.min() < 0 or (p * ~mask).any():
            return "it does not look right: a weight is negative, or not 0 where mask is False"
        if (off := abs(p.sum(axis=-1) - 1).max()) > TOLERANCE:
            return f"it does not look right: a sum over the last axis is {off:.2g} away from 1"
        if (off := abs(p - ours("transformer").softmax(scores, mask)[0]).max()) < CLEARLY:
            return f"no weight is off by more than {off:.0e}"
        if (off := Halves("dscores").difference(module, SOFTMAX, call, seed)) > TOLERANCE:
            return f"the gradient check objects: relative error {off:.0e}"
    return None


def functions_of_words() -> dict[str, tuple[bool, Callable[[np.ndarray], np.ndarray]]]:
    """Words -> whether it leaks, a function (2, 6, 4) -> (2, 6, 4)"""
    file = ours("transformer")

    def attention(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return file.attention(x[:, :, None], x[:, :, None], x[:, :, None], mask)[0][:, :, 0]

    def causal(x: np.ndarray) -> np.ndarray:
        return attention(x, np.tri(6, dtype=bool))

    def everything(x: np.ndarray) -> np.ndarray:
        return attention(x, np.ones((6, 6), bool))

    def wired(x: np.ndarray, place: Any, source: np.ndarray) -> np.ndarray:
        y = causal(x)
        y[place] += np.tanh(source)
        return y

    def behind_norm(x: np.ndarray) -> np.ndarray:
        return everything((x - file.mean(x)) / x.std(axis=-1, keepdims=True))

    return {
        "attention without a mask": (True, everything),
        "attention without a mask behind a LayerNorm, which takes out a number added to all components":
            (True, behind_norm),
        "causal attention, and word 4 reaches output 3": (True, lambda x: wired(x, np.s_[:, 3], x[:, 4])),
        "causal attention, and the last word reaches the first output in the second sentence only":
            (True, lambda x: wired(x, np.s_[1, 0], x[1, 5])),
        "causal attention, and component 2 of word 4 reaches component 1 of output 2":
            (True, lambda x: wired(x, np.s_[:, 2, 1], x[:, 4, 2])),
        "causal attention, and a millionth of the mean of all words":
            (True, lambda x: causal(x) + 1e-6 * x.mean(axis=1, keepdims=True)),
        "causal attention": (False, causal),
        "each word by itself": (False, np.tanh),
        "the sum of all words so far": (False, lambda x: x.cumsum(axis=1)),
    }  # fmt: skip


def leak(answer: Callable, module: ModuleType) -> str | None:
    """x in steps of 1/64, so that the LayerNorm takes out a 1 added to all components to the last bit."""
    x = np.round(64 * np.random.default_rng(0).normal(size=(2, 6, 4))) / 64

    def judge(f: Callable) -> Any:
        given = x.copy()
        said = answer(f, given)
        if not np.array_equal(given, x):
            raise Slip("x is changed in place: work on a copy")
        return said

    return misjudged(functions_of_words(), judge)


def wrong_split(answer: Callable, module: ModuleType) -> str | None:
    compared = []
    for b, t, s, h in ((2, 4, 5, 1), (1, 1, 1, 2), (2, 6, 6, 2), (3, 4, 5, 4)):
        random, names = np.random.default_rng(h), ("dQ", "dK", "dV")
        Q, dy, K, V = (random.normal(size=(b, n, h * 3)) for n in (t, t, s, s))
        mask = (np.arange(s) < random.integers(1, s + 1, (b, 1)))[:, None, None, :]
        hers, backward = both(answer(Q, K, V, mask, h), "attention_of_heads")
        truth, gradients = [], []
        for Q_h, K_h, V_h, dy_h in zip(*(np.split(x, h, axis=-1) for x in (Q, K, V, dy))):
            y, true_backward = ours("transformer").attention(*(x[:, :, None] for x in (Q_h, K_h, V_h)), mask)
            truth.append(y)
            gradients.append(true_backward(dy_h[:, :, None]))
        true_values = dict(zip(("y", *names), (np.concatenate(x, axis=-1)[:, :, 0] for x in (truth, *zip(*gradients)))))
        compared.append((f"h = {h}, b = {b}, t = {t}, s = {s}", true_values, {"y": hers}))
        if not wrong_value(compared):
            compared[-1][2].update(zip(names, backward(dy)))
        if symptom := wrong_value(compared):
            return symptom
    return None


def sides(b: int, t: int, s: int, itself: bool = False, lengths: tuple[int, ...] = ()) -> Case:
    def case(random: np.random.Generator, file: ModuleType) -> Call:
        x, memory = random.normal(size=(b, t, 4)), random.normal(size=(b, s, 4))
        mask = np.arange(s) < np.array(lengths or [s] * b)[:, None]
        weights = [weight(random, 4, 2, 3) for _ in range(3)]
        return Call(x, x.copy() if itself else memory, mask[:, None, None, :], *weights, weight(random, 2, 3, 4))

    return case


CROSS_ATTENTION = repaired("multi_head_attention", Halves(("dx", "dmemory")), {
    "sentences that read themselves": sides(2, 3, 3, itself=True),
    "sentences that read others of their length": sides(2, 3, 3),
    "padding in what is read": sides(2, 3, 3, lengths=(1, 3)),
    "sentences that read longer ones": sides(2, 3, 5),
})  # fmt: skip

ADD = "np.add.at(E.grad, ids, keep * dy * d_model**0.5)"
EMBEDDINGS = {
    "of a word that comes twice, only the last place counts": "E.grad[ids] += keep * dy * d_model**0.5",
    "of a word that comes twice in a sentence, only the last place counts":
        "for row, d in zip(ids, keep * dy * d_model**0.5):\n        E.grad[row] += d",
    "of a word that two sentences share, only the last sentence counts":
        "new = 0 * E.grad\n    for row, d in zip(ids, keep * dy * d_model**0.5):\n        part = 0 * new\n"
        "        np.add.at(part, row, d)\n        new[row] = part[row]\n    E.grad += new",
    "sqrt(d_model) is missing": "np.add.at(E.grad, ids, keep * dy)",
    "what dropout has left out has a gradient": "np.add.at(E.grad, ids, dy * d_model**0.5)",
    "what was in E.grad before is lost": f"E.grad[...] = 0\n    {ADD}",
}  # fmt: skip
BY_PRODUCT = "E.grad += np.einsum('btv,btd->vd', ids[..., None] == np.arange(len(E.data)), keep * dy * d_model**0.5)"


def lost_repeats(answer: Callable, module: ModuleType) -> str | None:
    variants: dict[str, tuple[bool, str]] = {
        **{words: (False, code) for words, code in EMBEDDINGS.items()},
        "the function of the file, which is right": (True, ADD),
        "one that adds up by a product, which is right but for rounding": (True, BY_PRODUCT),
    }
    return misjudged(variants, lambda code: answer(variant(embed=((ADD, code),)).embed))


def positions(b: int, t: int, size: float = 1.0, gamma: float | None = None) -> Case:
    def case(random: np.random.Generator, file: ModuleType) -> Call:
        scale, shift = weight(random, 8), weight(random, 8)
        scale.data[...] = scale.data if gamma is None else gamma
        return Call(size * random.normal(size=(b, t, 8)) + 2.5 * (size == 0), scale, shift)

    return case


BROKEN_NORM = repaired("layer_norm", Halves("dx"), {
    "3 sentences of 4 positions": positions(3, 4),
    "3 sentences of 4 positions, gamma 1": positions(3, 4, gamma=1),
    "a single position": positions(1, 1),
    "a single position, gamma 1": positions(1, 1, gamma=1),
    "a single position, all numbers near 0.001": positions(1, 1, 1e-3),
    "a single position, all numbers equal": positions(1, 1, 0),
})  # fmt: skip

SEEN, PAST = "(source != PAD)[", "np.tri(target.shape[1], dtype=bool)"
NO_POSITIONS = (f"mask, backwards = {SEEN}", f"x = x - positional_encoding(*x.shape[1:])\n    mask, backwards = {SEEN}")
ALL_SEEN = (SEEN, "np.full(source.shape, True)[")
WIRES: dict[str, dict[str, tuple[tuple[str, str], ...]]] = {
    "none": {},
    "memory": {"decode": (("x, memory, mask, **cross", "x, 0 * memory, mask, **cross"),)},
    "decoder attention": {"decode": ((PAST, "np.eye(target.shape[1], dtype=bool)"),)},
    "causal mask": {"decode": ((PAST, "np.full([target.shape[1]] * 2, True)"),)},
    "source positions": {"encode": (NO_POSITIONS,)},
    "target positions": {"decode": (NO_POSITIONS,)},
    "padding mask": {"encode": (ALL_SEEN,), "decode": (ALL_SEEN,)},
}


def whole_model(wire: str, seed: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """(source, target) -> logits"""
    file = variant(**WIRES[wire])
    file.rng = np.random.default_rng([seed, len(wire)])  # type: ignore[attr-defined]
    model = file.new_model(11, d_model=8, d_ff=16, h=2, N=1 + seed, dtype="float64")

    def logits(source: np.ndarray, target: np.ndarray) -> np.ndarray:
        memory, _ = file.encode(source, model, 0.0)
        return file.decode(target, memory, source, model, 0.0)[0] @ model.E.data.T

    return logits


def wire(answer: Callable, module: ModuleType) -> str | None:
    for name, seed in itertools.product(WIRES, SEEDS):
        if (said := told(answer(whole_model(name, seed)), tuple(WIRES))) != name:
            return f"where {name!r} is right, it says {said!r}"
    return None


def steps_of(gradients: np.ndarray) -> np.ndarray:
    """Find what adam adds to the weights, step by step. (t, n) -> (t, n)"""
    zeros, weights = np.zeros(gradients.shape[1]), [np.zeros(gradients.shape[1])]
    w = SimpleNamespace(data=zeros.copy(), grad=zeros.copy(), m=zeros.copy(), v=zeros.copy())
    model, adam = SimpleNamespace(E=SimpleNamespace(data=np.zeros((1, 4))), weights={"w": w}), ours("transformer").adam
    for step, gradient in enumerate(gradients, 1):
        w.grad[...] = gradient
        adam(model, step, warmup_steps=1)
        weights.append(w.data.copy())
    return np.diff(weights, axis=0)


def disguise(answer: Callable, module: ModuleType) -> str | None:
    for seed, shape in enumerate(((6, 3), (1, 2), (40, 5))):
        gradients = np.random.default_rng(seed).normal(size=shape)
        given = gradients.copy()
        others = array(answer(given), "others", shape)
        if not np.array_equal(given, gradients):
            return "gradients are changed in place: work on a copy"
        if (abs(others - gradients) < CLEARLY * abs(gradients)).any():
            return "some gradients are changed by less than one per cent"
        off = abs(steps_of(others) - steps_of(gradients)).max(axis=1) / abs(steps_of(gradients)).max(axis=1)
        if off.max() > 1e-5:
            return f"step {int((off > 1e-5).argmax()) + 1} of {len(off)} is another one, for shape {shape}"
    return None


def pairs_of_sentences(n: int, **options: Any) -> Case:
    def case(random: np.random.Generator, file: ModuleType) -> Call:
        file.rng = random  # type: ignore[attr-defined]
        model = file.new_model(9, d_model=4, d_ff=6, h=2, N=1, dtype="float64")
        source, target = np.array([[4, 5, 6, 1], [8, 1, 0, 0]]), np.array([[2, 8, 6, 4, 1], [2, 7, 1, 0, 0]])
        return Call(source[:n], target[:n], model, **options)

    return case


TOO_GOOD = repaired("loss_of", Halves(None, "loss"), {
    "one pair": pairs_of_sentences(1),
    "one pair, eps_ls = 0": pairs_of_sentences(1, eps_ls=0),
    "two pairs with padding": pairs_of_sentences(2),
    "two pairs with padding, eps_ls = 0": pairs_of_sentences(2, P_drop=0.2, eps_ls=0),
})  # fmt: skip

SLICE = "sides = zip(*pairs[i : i + size])"
ROWS = "yield [np.array(list(zip_longest(*side, fillvalue=PAD))).T for side in sides]"
BATCHES: dict[str, tuple[bool, tuple[tuple[str, str], ...]]] = {
    "the last, smaller batch is left out": (False, (("0, len(pairs), size", "0, len(pairs) - size + 1, size"),)),
    "batches are drawn at random, so that some pairs come twice and others never":
        (False, ((SLICE, "sides = zip(*[pairs[j] for j in rng.integers(0, len(pairs), min(size, len(pairs) - i))])"),)),
    "a pair is lost after each epoch": (False, ((ROWS, f"{ROWS}\n        pairs.pop()"),)),
    "sources and targets of a batch are of different pairs":
        (False, ((SLICE, "sources, targets = zip(*pairs[i : i + size])\n            sides = sources, targets[::-1]"),)),
    "all epochs put the same pairs together": (False, (("rng.shuffle(pairs)\n", "pass\n"),)),
    "every epoch goes from short to long":
        (False, (("rng.permutation(range(0, len(pairs), size))", "range(0, len(pairs), size)"),)),
    "the function of the file, which is right": (True, ()),
    "one that puts pairs of any length together, which keeps all rules": (True, (("len(pair[1])", "0"),)),
    "one that sorts by the source, which keeps all rules": (True, (("len(pair[1])", "len(pair[0])"),)),
}  # fmt: skip


def every_sentence_once(answer: Callable, module: ModuleType) -> str | None:
    return misjudged(BATCHES, lambda pieces: answer(variant(batches=pieces).batches))


class Run:
    """A toy run with the state of a real one: weights, m and v, the step, the place in the data, the generator."""

    lost: tuple[str, ...] = ()
    shares, off = False, 0.0
    TARGETS = np.random.default_rng(3).normal(size=(4, 5))

    def __init__(self) -> None:
        self.w, self.m, self.v, self.t, self.place = np.zeros(5), np.zeros(5), np.zeros(5), 0, 0
        self.random = np.random.default_rng(1)

    def step(self) -> None:
        self.t += 1
        g = self.w - self.TARGETS[self.place] + 0.1 * self.random.normal(size=5)
        self.place = (self.place + 1) % len(self.TARGETS)
        self.m += 0.1 * (g - self.m)
        self.v += 0.02 * (g**2 - self.v)
        self.w -= 0.05 * min(1, self.t / 8) * self.m / (np.sqrt(self.v) + 1e-9)

    def state(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in self.lost}
        return state if self.shares else copy.deepcopy(state)

    def restore(self, state: dict[str, Any]) -> None:
        vars(self).update(copy.deepcopy(state))
        self.w = self.w + self.off


RUNS: dict[str, tuple[bool, type[Run]]] = {
    "m of Adam is lost": (False, type("Run", (Run,), dict(lost=("m",)))),
    "v of Adam is lost": (False, type("Run", (Run,), dict(lost=("v",)))),
    "the number of the step is lost": (False, type("Run", (Run,), dict(lost=("t",)))),
    "the place in the data is lost, which shows only within an epoch": (
        False,
        type("Run", (Run,), dict(lost=("place",))),
    ),
    "the state of the random generator is lost": (False, type("Run", (Run,), dict(lost=("random",)))),
    "the checkpoint holds the arrays of the run, which change when it goes on": (
        False,
        type("Run", (Run,), dict(shares=True)),
    ),
    "the weights come back off by 1e-9": (False, type("Run", (Run,), dict(off=1e-9))),
    "nothing is lost": (True, Run),
}


def resume(answer: Callable, module: ModuleType) -> str | None:
    return misjudged(RUNS, answer)


LISTS = [words for length in range(4) for words in itertools.product((1, 2), repeat=length)]
Table = dict[tuple[int, ...], np.ndarray]
"""Words so far -> log probabilities of the end, word 1, word 2"""


def log_p_of(table: Table, words: tuple[int, ...]) -> float:
    """Of the whole sentence, its end included."""
    return float(sum(table[words[:t]][word] for t, word in enumerate((*words, 0))))


def greedy(table: Table) -> tuple[int, ...]:
    """At most four words: the fourth is one too many."""
    words: tuple[int, ...] = ()
    while words in table and (best := int(table[words].argmax())):
        words += (best,)
    return words


def found_by_beam(table: Table, beam: int) -> tuple[int, ...]:
    """Search with our beam_search. A word of the table is 2 more in its vocabulary, in which E is the identity."""
    file = ours("transformer")

    def decode(target: np.ndarray, *others: Any) -> tuple[np.ndarray, None]:
        x = np.full((*target.shape, 5), -1e9)
        for row, ids in zip(x, target):
            row[-1, [file.EOS, 3, 4]] = table.get(tuple(int(i) - 2 for i in ids[1:]), np.full(3, -1e9))
        return x, None

    file.encode, file.decode = lambda *inputs: (np.zeros((1, 0, 5)), None), decode  # type: ignore[attr-defined]
    model = SimpleNamespace(E=SimpleNamespace(data=np.eye(5)))
    ids = file.beam_search(np.zeros((1, 0), int), model, beam=beam, alpha=0.0, longer=4)
    return tuple(i - 2 for i in ids)


def greedy_trap(answer: Callable, module: ModuleType) -> str | None:
    table: Table = {}
    for words in LISTS:
        row, again = (array(answer(list(words)), f"the answer for {list(words)}", (3,)) for _ in range(2))
        if row.min() < 0 or abs(row.sum() - 1) > ROUNDING:
            return f"the answer for {list(words)} is not three probabilities that sum to 1"
        if not np.array_equal(row, again):
            return f"the answer for {list(words)} is another one the second time"
        table[words] = np.log(np.maximum(row, 1e-300))
    best, by_greedy = max(LISTS, key=lambda words: log_p_of(table, words)), greedy(table)
    if by_greedy not in table:
        return f"greedy search has not ended after 3 words: {list(by_greedy)}"
    p_best, p_greedy = np.exp([log_p_of(table, best), log_p_of(table, by_greedy)])
    said = f"the likeliest sentence is {list(best)}, with probability {p_best:.3g}"
    if by_greedy == best:
        return f"greedy search finds it: {said}"
    if (by_beam := found_by_beam(table, 2)) != best:
        return f"a beam of 2 misses it, too: {said}, and the beam finds {list(by_beam)}"
    if p_best < 2 * p_greedy:
        return f"it is not twice as likely: {said}; greedy search writes {list(by_greedy)}, probability {p_greedy:.3g}"
    return None


def sentences(beam: int, alpha: float) -> Case:
    """Large random weights, so that the words have clearly different probabilities."""

    def case(random: np.random.Generator, file: ModuleType) -> Call:
        file.rng = random  # type: ignore[attr-defined]
        model = file.new_model(7, d_model=8, d_ff=16, h=2, N=1, dtype="float64")
        for w in model.weights.values():
            w.data *= 2
        model.E.data[file.EOS] /= 2
        return Call(random.integers(3, 7, (4, 1, 4)), model, beam=beam, alpha=alpha, longer=4)

    return case


def found(module: ModuleType, function: Function, call: Call, seed: int) -> Iterator[tuple[str, Any]]:
    """Observe which sentences a search finds."""
    sources, model = call.args
    yield "what is found", str([list(map(int, module.beam_search(source, model, **call.kwargs))) for source in sources])


BAD_BEAM = repaired("beam_search", found, {
    f"beam {beam}, alpha {alpha:g}": sentences(beam, alpha) for beam in (1, 4) for alpha in (0, 2)
})  # fmt: skip


# All of them ----------------------------------------------------------------------------------------------------------


def hunt(name: str, complaint: Complaint, solution: str = "") -> Hunt:
    """A hunt as its file says: its first line is "NAME: TITLE (lesson NN).", and its last function is the learner's."""
    tree = ast.parse(text_of(name))
    match = re.match(r"(.*): (.*) \(lesson (.*)\)\.", ast.get_docstring(tree) or "")
    assert match and match[1] == name
    function = list(functions(tree))[-1]
    right = solution or source_of_ours("transformer", function)
    return Hunt(name, match[3], match[2].capitalize(), function, complaint, right)


HUNTS = {
    each.name: each
    for each in (
        hunt("blind_check", blind_check, """
def upstream(b, t, d):
    dh = np.zeros((b, t, d))
    dh[:, 0] = 1  # the first step is the only one that has no step before it
    return dh
"""),
        hunt("all_ones", all_ones, """
@differentiable
def softmax(scores, mask):
    p = np.exp(log_softmax(np.where(mask, scores, -np.inf)))
    dp = yield p
    return p * (dp - mean(dp))  # the right one takes a weighted mean
"""),
        hunt("leak", leak, """
def leaks(f, x):
    before = f(x)
    for s in range(x.shape[1]):
        for b, i in np.ndindex(x.shape[0], x.shape[2]):
            changed = x.copy()
            changed[b, s, i] += 1
            if abs(f(changed) - before)[:, :s].max(initial=0) > 1e-9:
                return True
    return False
"""),
        hunt("wrong_split", wrong_split, """
def cut(x, h):
    return x.reshape(*x.shape[:2], h, -1)  # h k are side by side, so they are cut where they are


def join(x):
    return x.reshape(*x.shape[:2], -1)


@differentiable
def attention_of_heads(Q, K, V, mask, h):
    heads, backward = attention(cut(Q, h), cut(K, h), cut(V, h), mask)
    dy = yield join(heads)
    dQ, dK, dV = backward(cut(dy, h))
    return join(dQ), join(dK), join(dV)
"""),
        hunt("cross_attention", CROSS_ATTENTION),
        hunt("lost_repeats", lost_repeats, """
def is_right(embed):
    ids, P_drop = np.array([[3, 5, 3, 6], [5, 1, 3, 3]]), 0.25  # 3 comes twice in a sentence, and in both
    E = SimpleNamespace(data=rng.normal(size=(7, 4)), grad=rng.normal(size=(7, 4)))
    dy, expected = rng.normal(size=(2, 4, 4)), E.grad.copy()
    y, backward = embed(ids, E, P_drop)
    backward(dy)
    keep = (y != 0) / (1 - P_drop)
    for b, t in np.ndindex(ids.shape):
        expected[ids[b, t]] += (keep * dy)[b, t] * 4**0.5
    return abs(E.grad - expected).max() < 1e-6
"""),
        hunt("broken_norm", BROKEN_NORM),
        hunt("wire", wire, """
def which_wire(logits):
    source, target = np.array([[3, 4, 5, 6]]), np.array([[3, 7, 8, 9]])

    def moved(source, target):  # the positions whose logits change
        return (abs(logits(source, target) - before) > 1e-9).any(axis=(0, 2))

    before = logits(source, target)
    if not moved(np.array([[3, 10, 5, 6]]), target).any():
        return "memory"
    if moved(source, np.array([[3, 7, 8, 10]]))[:-1].any():
        return "causal mask"
    if not moved(source, np.array([[3, 10, 8, 9]]))[-1]:
        return "decoder attention"
    if not moved(np.array([[4, 3, 5, 6]]), target).any():
        return "source positions"
    if moved(np.array([[3, 4, 5, 6, 0, 0]]), target).any():
        return "padding mask"
    repeated = logits(source, np.full_like(target, 7))  # the mask tells an order, but not of equal words
    return "target positions" if abs(repeated - repeated[:, :1]).max() < 1e-9 else "none"
"""),
        hunt("disguise", disguise, """
def disguise(gradients):
    return gradients * np.arange(2, gradients.shape[1] + 2)  # m and sqrt(v) of a weight grow by one factor
"""),
        hunt("right_gradient", right_gradient, """
@differentiable
def softmax(scores, mask):
    p = np.exp(log_softmax(np.where(mask, 2 * scores, -np.inf)))
    dp = yield p
    return 2 * p * (dp - total(p * dp))
"""),
        hunt("too_good", TOO_GOOD),
        hunt("every_sentence_once", every_sentence_once, """
def is_sound(batches):
    size, n = 4, 102
    lengths = rng.integers(1, 30, (n, 2))
    pairs = [([3 + i] * s, [103 + i] * t) for i, (s, t) in enumerate(lengths)]  # each pair has ids of its own
    stream, epochs = batches(list(pairs), size), []
    for _ in range(3):
        seen, together, widths = [], set(), []
        for _ in range(-(-n // size)):
            source, target = next(stream)
            rows = [([i for i in s if i], [i for i in t if i]) for s, t in zip(source.tolist(), target.tolist())]
            if len(rows) > size or not all(row in pairs for row in rows):
                return False
            seen += rows
            together.add(frozenset(source[:, 0].tolist()))
            widths.append(target.shape[1])
        if sorted(seen) != sorted(pairs) or widths == sorted(widths) or together in epochs:
            return False
        epochs.append(together)
    return True
"""),
        hunt("resume", resume, """
def resumes_exactly(begin):
    run, other = begin(), begin()
    for _ in range(3):  # not the end of an epoch
        run.step()
    state = run.state()
    for _ in range(5):  # the state must not change with the run
        run.step()
    other.restore(state)
    for _ in range(5):  # what is missing shows only later
        other.step()
    return np.array_equal(run.w, other.w)
"""),
        hunt("greedy_trap", greedy_trap, """
def next_words(written):
    if not written:
        return np.array([0, 0.55, 0.45])
    return np.array([0.34, 0.33, 0.33] if written[0] == 1 else [1, 0, 0])  # word 1 leads where nothing is likely
"""),
        hunt("bad_beam", BAD_BEAM),
    )
}  # fmt: skip
"""name -> hunt, in the order of the lessons"""
