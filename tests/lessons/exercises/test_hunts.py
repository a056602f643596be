"""Every bug hunt and puzzle: what the learner gets is not right yet, the solution is, and answers near it are not."""

import pytest

from exercises.catalogue import FUNCTIONS
from exercises.hunts import HUNTS, text_of
from exercises.runner import verdict_on

EVERY_HUNT = pytest.mark.parametrize("name", HUNTS)


@pytest.fixture
def verdict(tmp_path):
    """verdict(name, text): what the learner reads about this text as her answer"""

    def judge(name, text):
        (tmp_path / "hunts").mkdir(exist_ok=True)
        (tmp_path / "hunts" / f"{name}.py").write_text(text, encoding="utf-8")
        return verdict_on(name, tmp_path)

    return judge


def solution(name, *edits):
    """The solution with pieces of its text replaced, each of which stands there once."""
    text = HUNTS[name].solution
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the solution of {name}"
        text = text.replace(old, new)
    return text


def test_hunts_are_in_the_order_of_lessons_and_have_names_of_their_own():
    assert [hunt.lesson for hunt in HUNTS.values()] == sorted(hunt.lesson for hunt in HUNTS.values())
    assert not HUNTS.keys() & FUNCTIONS.keys()


@EVERY_HUNT
def test_what_the_learner_gets_is_short_and_not_right_yet(verdict, name):
    text = text_of(name)
    description, code = text.removeprefix('"""').split('"""\n', 1)
    assert description.startswith(f"{name}: ") and f"(lesson {HUNTS[name].lesson})" in description.splitlines()[0]
    assert description.count("\n") <= 12 and f"def {HUNTS[name].function}(" in code
    assert "exercises" not in code and "support" not in code
    state, message, diagnosis = verdict(name, text)
    assert state == "not yet" and message == diagnosis and "\n" not in message


@EVERY_HUNT
def test_the_solution_is_right(verdict, name):
    assert verdict(name, solution(name)).state == "passed"


JOIN, CUT = "x.reshape(*x.shape[:2], -1)", "x.reshape(*x.shape[:2], h, -1)"
WRONG = [
    ("blind_check", "below 0.001", ("= 1 ", "= 1e-12 ")),
    ("blind_check", "da of step 0 is wrong", ("[:, 0]", "[:, 1]")),
    ("blind_check", "da of step 4 is wrong", ("[:, 0]", "[:, -1]")),
    ("all_ones", "only 1e-04", ("p * (dp - mean(dp))", "1.0001 * p * (dp - total(p * dp))")),
    ("all_ones", "a check with ones notices", ("p * (dp - mean(dp))", "p * dp")),
    ("all_ones", "zero everywhere", ("p * (dp - mean(dp))", "0 * p")),
    ("all_ones", "p is wrong", ("yield p", "yield 2 * p")),
    ("all_ones", "not linear", ("p * (dp - mean(dp))", "p * dp * (dp != 1).any()")),
    ("leak", "a millionth", ("1e-9", "1e-5")),
    ("leak", "causal attention. It says True", ("[:, :s]", "[:, : s + 1]")),
    ("leak", "in the second sentence only", ("in np.ndindex(x.shape[0], x.shape[2])", "in [(0, 0), (0, 1), (0, 2)]")),
    ("leak", "behind a LayerNorm", ("changed[b, s, i]", "changed[b, s]")),
    ("leak", "in place", ("x.copy()", "x")),
    ("leak", "6 of 9 are misjudged", ("before = f(x)", "return False")),
    ("wrong_split", "y is wrong", (JOIN, "x.swapaxes(1, 2).reshape(len(x), x.shape[1], -1)")),
    ("wrong_split", "y is wrong", (CUT, "x.reshape(len(x), h, x.shape[1], -1).swapaxes(1, 2)")),
    ("wrong_split", "y is wrong", (CUT, "x.reshape(*x.shape[:2], -1, h).swapaxes(2, 3)")),
    ("wrong_split", "dK is wrong", ("join(dK)", "dy")),
    ("cross_attention", "y is wrong", ('"bsd,dhk->bshk", memory, W_V', '"bsd,dhk->bshk", x, W_V')),
    ("cross_attention", "y is wrong", ('"btd,dhk->bthk", x, W_Q', '"btd,dhk->bthk", memory, W_Q')),
    ("cross_attention", "dx is wrong", ("Q_backward(dQ), K_backward(dK) +", "K_backward(dK), Q_backward(dQ) +")),
    ("lost_repeats", "in a sentence, only the last", ("[3, 5, 3, 6], [5, 1, 3, 3]", "[3, 5, 4, 6], [5, 1, 3, 2]")),
    ("lost_repeats", "that two sentences share", ("[5, 1, 3, 3]", "[1, 1, 2, 2]")),
    ("lost_repeats", "what dropout has left out", ("0.25  #", "0.0  #")),
    ("lost_repeats", "what was in E.grad before", ("grad=rng.normal(size=(7, 4))", "grad=np.zeros((7, 4))")),
    ("lost_repeats", "which is right but for rounding", ("max() < 1e-6", "max() == 0")),
    ("broken_norm", "all numbers near 0.001", ("2) + 1e-6)", "2)) + 1e-6")),
    ("broken_norm", "y is wrong", ("(mean((x - mean(x)) ** 2)", "(mean((x - x.mean()) ** 2)")),
    ("broken_norm", "y is wrong", ("mean((x - mean(x)) ** 2)", "total((x - mean(x)) ** 2) / (x.shape[-1] - 1)")),
    ("broken_norm", "right for: 3 sentences of 4 positions, gamma 1", ("dn = dy * gamma.data", "dn = dy"),
     ("return (dn", "return gamma.data * (dn")),
    ("broken_norm", "dx is wrong", (" - n * mean(dn * n)", "")),
    ("broken_norm", "It is right for: a single position", ("(dy * n).sum(", "(dy * n).mean(")),
    ("wire", "'source positions' is right, it says 'none'", ("[[4, 3, 5, 6]]", "[[10, 4, 5, 6]]")),
    ("wire", "'padding mask' is right, it says 'none'", ("6, 0, 0]", "6]")),
    ("wire", "'target positions' is right, it says 'none'", ("np.full_like(target, 7)", "target")),
    ("wire", "'none', 'memory'", ('return "memory"', 'return "cross-attention"')),
    ("wire", "'none' is right, it says", ("    before = logits(source, target)\n", "    return 'memory'\n")),
    ("disguise", "less than one per cent", (" * np.arange(2, gradients.shape[1] + 2)", "")),
    ("disguise", "step 1 of 6", ("gradients * np", "-gradients * np")),
    ("disguise", "step 2 of 6", ("np.arange(2, gradients.shape[1] + 2)", "np.arange(2, len(gradients) + 2)[:, None]")),
    ("disguise", "step 1 of", ("gradients * np", "1e-9 * gradients * np")),
    ("disguise", "in place", ("return ", "gradients *= 2\n    return ")),
    ("right_gradient", "no weight is off by more", ("2 * scores", "scores"), ("return 2 * p", "return p")),
    ("right_gradient", "no weight is off by more", ("2 * scores", "1.001 * scores"), ("return 2 *", "return 1.001 *")),
    ("right_gradient", "the gradient check objects", ("return 2 * p", "return p")),
    ("right_gradient", "a sum over the last axis", ("np.exp(log", "0.5 * np.exp(log")),
    ("right_gradient", "not 0 where mask is False", ("np.where(mask, 2 * scores, -np.inf)", "2 * scores")),
    ("too_good", "loss is wrong", ("target[:, :-1], memory", "target[:, 1:], memory")),
    ("too_good", "right for: one pair; one pair, eps_ls = 0", ("target[:, 1:] != PAD", "target[:, :-1] != PAD")),
    ("too_good", "right for: one pair, eps_ls = 0; two", ("[is_word], eps_ls)", "[is_word], 0.0)")),
    ("too_good", "E.grad is wrong", ("loss_backward(dloss)", "loss_backward(1.0)")),
    ("every_sentence_once", "some pairs come twice", ("sorted(seen) != sorted(pairs)", "len(seen) != n")),
    ("every_sentence_once", "put the same pairs together", ("or together in epochs", "")),
    ("every_sentence_once", "from short to long", ("or widths == sorted(widths)", "")),
    ("every_sentence_once", "lost after each epoch", ("range(3)", "range(1)")),
    ("every_sentence_once", "of the file, which is right. It says False", ("len(rows) > size", "len(rows) != size")),
    ("resume", "goes on. It says True", ("    other.restore(state)\n", ""), (
        "    state = run.state()\n", "    other.restore(run.state())\n")),
    ("resume", "the place in the data", ("range(3)", "range(4)")),
    ("resume", "come back off by 1e-9", ("np.array_equal(", "np.allclose(")),
    ("resume", "nothing is lost. It says False", ("other.restore(state)", "pass")),
    ("greedy_trap", "greedy search finds it", ("[0, 0.55, 0.45]", "[0, 0.45, 0.55]")),
    ("greedy_trap", "not twice as likely", ("[0.34, 0.33, 0.33]", "[0.6, 0.2, 0.2]")),
    ("greedy_trap", "a beam of 2 misses it", ("[0, 0.55, 0.45]", "[0, 0.6, 0.4]"), (
        "    return np.array([0.34, 0.33, 0.33] if written[0] == 1 else [1, 0, 0])",
        "    if written[0] == 1:\n        return np.array([0.34, 0.33, 0.33] if written[1:] else [0, 0.51, 0.49])\n"
        "    return np.array([1, 0, 0] if written[1:] else [0.3, 0.36, 0.34])")),
    ("greedy_trap", "has not ended", ("if not written", "if True"), ("[0, 0.55, 0.45]", "[0.2, 0.5, 0.3]")),
    ("greedy_trap", "sum to 1", ("0.45]", "0.55]")),
    ("greedy_trap", "the second time", ("np.array([0, 0.55, 0.45])", "rng.dirichlet(np.ones(3))")),
    ("bad_beam", "right for: beam 1, alpha 0;", ("p / penalty", "p * penalty")),
    ("bad_beam", "what is found is wrong", ("np.array(log_p_so_far)[:, None] + ", "")),
    ("bad_beam", "what is found is wrong", (" and max(finished)[0] >= alive[0][0] / penalty[-1]", "")),
]  # fmt: skip
"""The hunt, a part of what is said, and how the answer differs from the solution."""


@pytest.mark.parametrize("name, said, edits", [(name, said, edits) for name, said, *edits in WRONG])
def test_wrong_answers_are_refused_by_their_symptom(verdict, name, said, edits):
    state, message, _ = verdict(name, solution(name, *edits))
    assert state == "not yet" and said in message


def test_each_hunt_refuses_some_wrong_answers():
    assert all(sum(name == other for other, *_ in WRONG) >= 3 for name in HUNTS)


# Right answers that are written otherwise -----------------------------------------------------------------------------

CLOSURES = """
def layer_norm(x, gamma, beta):
    centred = x - np.mean(x, axis=2)[:, :, None]
    variance = np.einsum("btd,btd->bt", centred, centred)[:, :, None] / x.shape[2]
    n = centred / np.sqrt(variance + 1e-6)

    def backward(dy):
        np.add(gamma.grad, np.einsum("btd,btd->d", dy, n), out=gamma.grad)
        beta.grad[:] += dy.reshape(-1, len(beta.data)).sum(0)
        dn = dy * gamma.data
        parallel = n * (dn * n).mean(-1)[..., None]
        return (dn - dn.mean(-1)[..., None] - parallel) / np.sqrt(variance + 1e-6)

    return n * gamma.data + beta.data, backward
"""
LOOPS = """
@differentiable
def attention_of_heads(Q, K, V, mask, h):
    parts = [np.split(x, h, axis=-1) for x in (Q, K, V)]
    outputs = [attention(*(x[:, :, None] for x in three), mask) for three in zip(*parts)]
    dy = yield np.concatenate([y[:, :, 0] for y, _ in outputs], axis=-1)
    gradients = [backward(d[:, :, None]) for (_, backward), d in zip(outputs, np.split(dy, h, axis=-1))]
    return [np.concatenate([d[:, :, 0] for d in one], axis=-1) for one in zip(*gradients)]
"""
UNIFORM = """
@differentiable
def softmax(scores, mask):
    p = mask / mask.sum(axis=-1, keepdims=True) * np.ones_like(scores)  # the same for each position that is seen
    dp = yield p
    return 0 * dp
"""


@pytest.mark.parametrize("name, text", [("broken_norm", CLOSURES), ("wrong_split", LOOPS), ("right_gradient", UNIFORM)])
def test_right_answers_may_be_written_otherwise(verdict, name, text):
    assert verdict(name, text).state == "passed"


def test_an_error_of_the_learner_is_shown_with_its_line(verdict):
    message = verdict("broken_norm", solution("broken_norm", ("mean(dn * n)", "mean(dn * m)"))).message
    assert "NameError: name 'm' is not defined" in message and "broken_norm.py, line" in message
    message = verdict("leak", solution("leak", ("x.copy()", "x.copi()"))).message
    assert "has no attribute 'copi'" in message and "leak.py, line" in message
