"""lessons/more.py computes what the library and sacreBLEU compute, and its gradients are right."""

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import more
import numpy as np
import pytest
import transformer
from sacrebleu.metrics import BLEU

from scratchformer.config import ModelConfig
from scratchformer.nn.attention import Mask
from scratchformer.nn.llama import GroupedQueryAttention, RMSNorm, RotaryPositions, SwiGLU
from scratchformer.text.bundled import read_text
from support import bleu_by_hand, byte_pairs, positions

VAL = read_text("val")
D, F, H, K = 12, 10, 4, 6


def test_it_runs_where_the_names_of_the_file_are_a_learners():
    """A learner's functions are used once the import from transformer.py is left out; it is one line."""
    text = Path(more.__file__).read_text(encoding="utf-8")
    [line] = re.findall(r"^from transformer import .*\n", text, re.MULTILINE)
    calls, names = [], dict(vars(transformer))
    names["linear"] = lambda *inputs: calls.append(inputs[0]) or transformer.linear(*inputs)
    exec(text.replace(line, ""), names)
    names["swiglu"](np.ones((1, 1, D)), *weights((D, F), (D, F), (F, D)))
    assert calls == ["btd,df->btf", "btd,df->btf", "btf,fd->btd"]


def test_it_gives_no_function_of_the_file_another_meaning():
    shared = set(vars(more)) & set(vars(transformer))
    assert [
        name for name in shared if callable(getattr(more, name)) and vars(more)[name] != vars(transformer)[name]
    ] == []


# Byte pairs -----------------------------------------------------------------------------------------------------------


def test_pairs_are_counted_and_merged_as_in_the_lesson():
    words = {("a", "b", "a", "b"): 3, ("b", "a"): 4, ("c",): 9}
    assert more.count_pairs(words) == byte_pairs.count_pairs(words) == {("a", "b"): 6, ("b", "a"): 7}
    assert more.merge(("a", "a", "a"), ("a", "a")) == ("aa", "a")
    assert more.merge(("a", "b", "c", "a", "b"), ("a", "b")) == ("ab", "c", "ab")
    assert more.merge((), ("a", "b")) == ()


def test_merges_and_symbols_are_those_of_the_lesson():
    text = [*VAL.source[:80], *VAL.target[:80]]
    words = Counter(word for line in text for word in byte_pairs.words_of(line))
    merges = more.learn_merges({tuple(word): count for word, count in words.items()}, 120)
    assert merges == byte_pairs.learn_merges(text, 120)
    for line in VAL.target[80:160]:
        [expected] = byte_pairs.encode([line], merges)
        assert [s for word in byte_pairs.words_of(line) for s in more.bpe_encode(word, merges)] == expected


@pytest.mark.parametrize(
    "words, first",
    [
        ({"ab": 2, "yz": 3}, ("y", "z")),  # the more frequent
        ({"yz": 2, "ab": 2}, ("a", "b")),  # the first in Unicode
        ({"Äb": 1, "zb": 1}, ("z", "b")),
        ({("a", "bc"): 2, ("y", "z"): 2}, ("y", "z")),  # the shorter joined symbol
        ({("ab", "c"): 2, ("a", "bc"): 2}, ("a", "bc")),  # the shorter left symbol
    ],
)
def test_equally_frequent_pairs_have_an_order(words, first):
    assert more.learn_merges({tuple(word): count for word, count in words.items()}, 1) == [first]


def test_learning_ends_when_no_pair_is_left_and_encoding_keeps_the_order():
    assert more.learn_merges({("t", "o"): 1}, 9) == [("t", "o")]
    assert more.bpe_encode("abc", [("b", "c"), ("a", "b")]) == ("a", "bc")
    assert more.bpe_encode("abc", []) == ("a", "b", "c")


# BLEU -----------------------------------------------------------------------------------------------------------------


def texts(seed, n_sentences, right):
    """References of 1 to 13 words, and hypotheses that lack some words and have others wrong."""
    random = np.random.default_rng(seed)
    references = [list(random.choice([*"abcdef"], random.integers(1, 14))) for _ in range(n_sentences)]
    hypotheses = [
        [word if random.random() < right else "x" for word in reference if random.random() < 0.95]
        for reference in references
    ]
    return hypotheses, references


@pytest.mark.parametrize("right", [0.0, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("n_sentences", [1, 7, 60])
def test_bleu_is_that_of_sacrebleu(n_sentences, right):
    for seed in range(4):
        hypotheses, references = texts(seed, n_sentences, right)
        for written, wanted in (hypotheses, references), (references, hypotheses), ([[]] * n_sentences, references):
            theirs = BLEU(tokenize="none", smooth_method="none").corpus_score(
                [" ".join(each) for each in written], [[" ".join(each) for each in wanted]]
            )
            assert more.bleu(written, wanted) == pytest.approx(theirs.score, rel=0, abs=1e-9)


def test_sentences_without_a_reference_are_told():
    with pytest.raises(ValueError, match="shorter"):
        more.bleu([["a"], ["b"]], [["a"]])


def test_the_bootstrap_is_that_of_the_lesson():
    (a, references), (b, _) = texts(0, 50, 0.7), texts(0, 50, 0.9)
    tables = [bleu_by_hand.count_table(each, references) for each in (a, b)]
    indices = bleu_by_hand.resamples(50, 200, np.random.default_rng(3))
    found = more.bootstrap(a, b, references, np.random.default_rng(3), samples=200)
    np.testing.assert_allclose(found, bleu_by_hand.difference_interval(*tables, indices), rtol=0, atol=1e-9)
    assert 0 < found[0] < found[1]


# The block of 2026 ----------------------------------------------------------------------------------------------------


def weights(*shapes):
    random = np.random.default_rng(1)
    arrays = [random.normal(size=shape) for shape in shapes]
    return [SimpleNamespace(data=array, grad=np.ones_like(array)) for array in arrays]  # gradients are added to


def attention_weights(h_kv):
    return weights((D, H, K), (D, h_kv, K), (D, h_kv, K), (H, K, D))


def arrays(*shapes):
    random = np.random.default_rng(2)
    return [random.normal(size=shape) for shape in shapes]


X, MEMORY, QUERIES = arrays((2, 5, D), (2, 7, D), (2, 5, 3, K))
PADDED = (np.arange(7) < np.array([[7], [4]]))[:, None, None, :]
CASES = {
    "rms_norm": (more.rms_norm, [X], weights((D,))),
    "swiglu": (more.swiglu, [X], weights((D, F), (D, F), (F, D))),
    "rope": (more.rope, [QUERIES], []),
    **{
        f"grouped_query_attention, {h_kv} of {H}": (
            lambda x, memory, *w: more.grouped_query_attention(x, memory, PADDED, *w),
            [X, MEMORY],
            attention_weights(h_kv),
        )
        for h_kv in (1, 2, 4)
    },
}


@pytest.mark.parametrize("function, inputs, ws", CASES.values(), ids=CASES)
def test_gradients_are_finite_differences(function, inputs, ws, step=1e-5):
    y, backward = function(*inputs, *ws)
    dy, *directions = arrays(y.shape, *(x.shape for x in inputs), *(w.data.shape for w in ws))
    before = [x.copy() for x in inputs]
    gradients = backward(dy)
    gradients = [*(gradients if isinstance(gradients, tuple) else [gradients]), *(w.grad - 1 for w in ws)]
    numbers = [*inputs, *(w.data for w in ws)]
    assert all(np.array_equal(x, old) for x, old in zip(inputs, before))
    for number, gradient, direction in zip(numbers, gradients, directions, strict=True):
        losses = []
        for sign in (1, -1):
            number += sign * step * direction
            losses.append((function(*inputs, *ws)[0] * dy).sum())
            number -= sign * step * direction
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx((gradient * direction).sum(), rel=1e-7, abs=1e-7)


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_rms_norm_is_that_of_the_library():
    [gamma], layer, [dy] = weights((D,)), RMSNorm(D, "float64"), arrays(X.shape)
    layer.gamma.data[...] = gamma.data
    layer.gamma.grad[...] = 1
    (y, backward), (expected, cache) = more.rms_norm(X, gamma), layer.forward(X)
    same(y, expected)
    same(backward(dy), layer.backward(dy, cache))
    same(gamma.grad, layer.gamma.grad)


def test_swiglu_is_that_of_the_library():
    ws, layer, [dy] = weights((D, F), (D, F), (F, D)), SwiGLU(D, F, np.random.default_rng(), "float64"), arrays(X.shape)
    layer.inner.weight.data[...] = np.hstack([ws[0].data, ws[1].data])
    layer.outer.weight.data[...] = ws[2].data
    for w in layer.inner.weight, layer.outer.weight:
        w.grad[...] = 1
    (y, backward), (expected, cache) = more.swiglu(X, *ws), layer.forward(X)
    same(y, expected)
    same(backward(dy)[0], layer.backward(dy, cache))
    same(np.hstack([ws[0].grad, ws[1].grad]), layer.inner.weight.grad)
    same(ws[2].grad, layer.outer.weight.grad)


def test_swiglu_does_not_overflow():
    y, _ = more.swiglu(np.full((1, 1, 1), -2000.0), *(SimpleNamespace(data=np.ones((1, 1))) for _ in range(3)))
    assert y == 0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rope_is_that_of_the_library_and_in_another_order_that_of_lesson_10(dtype):
    x, dy = (each.astype(dtype) for each in arrays(QUERIES.shape, QUERIES.shape))
    layer = RotaryPositions(K)
    (y, backward), (expected, cache) = more.rope(x), layer.forward(x)
    same(y, expected)
    same(backward(dy), layer.backward(dy, cache))
    assert y.dtype == backward(dy).dtype == dtype if False else y.dtype == dtype
    halves = np.r_[0:K:2, 1:K:2]
    same(more.rope(x[..., halves])[0], positions.rotated(x, np.arange(5))[..., halves])


@pytest.mark.parametrize("h_kv", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_query_attention_is_that_of_the_library(h_kv, causal):
    config = ModelConfig(vocab_size=9, N=1, d_model=D, d_ff=F, h=H, d_k=K, d_v=K, h_kv=h_kv, attention_bias=False)
    layer, ws, [dy] = (
        GroupedQueryAttention(config, np.random.default_rng(), "float64"),
        attention_weights(h_kv),
        arrays(X.shape),
    )
    mask = Mask(np.array([5, 3]), causal)
    layer.qkv.weight.data[...] = np.hstack([w.data.reshape(D, -1) for w in ws[:3]])
    layer.output.weight.data[...] = ws[3].data.reshape(-1, D)
    for w in layer.qkv.weight, layer.output.weight:
        w.grad[...] = 1
    y, backward = more.grouped_query_attention(X, X, mask.as_array(5, 5), *ws)
    expected, cache = layer.forward(X, mask)
    same(y, expected)
    same(sum(backward(dy)), layer.backward(dy, cache))
    same(np.hstack([w.grad.reshape(D, -1) for w in ws[:3]]), layer.qkv.weight.grad)
    same(ws[3].grad.reshape(-1, D), layer.output.weight.grad)
