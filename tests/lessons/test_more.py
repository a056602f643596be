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
    """A learner's functions are used once the import from transformer.py is left out."""
    text = Path(more.__file__).read_text(encoding="utf-8")
    [line] = re.findall(r"^from transformer import \(.*?\)\n", text, re.MULTILINE | re.DOTALL)
    calls, names = [], dict(vars(transformer))
    names["linear"] = lambda *inputs: calls.append(inputs[0]) or transformer.linear(*inputs)
    assert not names.keys() & set(re.findall(r"^def (\w+)", text, re.MULTILINE))
    exec(text.replace(line, ""), names)
    names["swiglu"](np.ones((1, 1, D)), *weights((D, F), (D, F), (F, D)))
    assert calls == ["btd,df->btf", "btd,df->btf", "btf,fd->btd"]


# Byte pairs -----------------------------------------------------------------------------------------------------------


def test_pairs_are_counted_and_merged_as_in_the_lesson():
    words = {("a", "b", "a", "b"): 3, ("b", "a"): 4, ("c",): 9}
    assert more.count_pairs(words) == {("a", "b"): 6, ("b", "a"): 7}
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


def arrays(*shapes, seed=1):
    random = np.random.default_rng(seed)
    return [random.normal(size=shape) for shape in shapes]


def weights(*shapes):
    return [SimpleNamespace(data=array, grad=np.ones_like(array)) for array in arrays(*shapes)]  # backward adds to 1


def heads(h_kv):
    return weights((D, H, K), (D, h_kv, K), (D, h_kv, K), (H, K, D))


X, MEMORY, QUERIES = arrays((2, 5, D), (2, 7, D), (2, 5, 3, K), seed=2)
PADDED = (np.arange(7) < np.array([[7], [4]]))[:, None, None, :]


def attend_to_memory(x, memory, *ws):
    return more.grouped_query_attention(x, memory, PADDED, *ws)


@pytest.mark.parametrize(
    "function, inputs, ws",
    [
        (more.rms_norm, [X], weights((D,))),
        (more.swiglu, [X], weights((D, F), (D, F), (F, D))),
        (more.rope, [QUERIES], []),
        *((attend_to_memory, [X, MEMORY], heads(h_kv)) for h_kv in (1, 2, 4)),
    ],
)
def test_gradients_are_finite_differences(function, inputs, ws, step=1e-5):
    y, backward = function(*inputs, *ws)
    numbers = [*inputs, *(w.data for w in ws)]
    before, (dy, *directions) = [x.copy() for x in numbers], arrays(y.shape, *(x.shape for x in numbers), seed=3)
    dinputs = backward(dy)
    gradients = [*(dinputs if isinstance(dinputs, tuple) else [dinputs]), *(w.grad - 1 for w in ws)]
    assert all(np.array_equal(x, old) for x, old in zip(numbers, before))
    for x, old, gradient, direction in zip(numbers, before, gradients, directions, strict=True):
        numeric = 0
        for change in (step, -step):
            x[...] = old + change * direction
            numeric += (function(*inputs, *ws)[0] * dy).sum() / (2 * change)
        x[...] = old
        assert (gradient * direction).sum() == pytest.approx(numeric, rel=1e-6, abs=1e-8)


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def assert_same_as(layer, arranged, function, ws, *mask):
    """arranged: from a list of our arrays to those of the layer's parameters"""
    parameters, [dy] = layer.parameters().values(), arrays(X.shape, seed=3)
    for parameter, data in zip(parameters, arranged([w.data for w in ws]), strict=True):
        parameter.data[...] = data
    (y, backward), (expected, cache) = function(X, *ws), layer.forward(X, *mask)
    same(y, expected)
    dx = backward(dy)
    same(sum(dx) if isinstance(dx, tuple) else dx, layer.backward(dy, cache))
    for parameter, gradient in zip(parameters, arranged([w.grad for w in ws])):
        same(gradient, parameter.grad + 1)


def test_rms_norm_is_that_of_the_library():
    assert_same_as(RMSNorm(D, "float64"), list, more.rms_norm, weights((D,)))


def test_swiglu_is_that_of_the_library():
    layer, ws = SwiGLU(D, F, np.random.default_rng(0), "float64"), weights((D, F), (D, F), (F, D))
    assert_same_as(layer, lambda each: [np.hstack(each[:2]), each[2]], more.swiglu, ws)


@pytest.mark.parametrize("h_kv", [1, 2, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_grouped_query_attention_is_that_of_the_library(h_kv, causal):
    config = ModelConfig(vocab_size=9, N=1, d_model=D, d_ff=F, h=H, d_k=K, d_v=K, h_kv=h_kv, attention_bias=False)
    layer, mask = GroupedQueryAttention(config, np.random.default_rng(0), "float64"), Mask(np.array([5, 3]), causal)
    assert_same_as(
        layer,
        lambda each: [np.hstack([w.reshape(D, -1) for w in each[:3]]), each[3].reshape(-1, D)],
        lambda x, *ws: more.grouped_query_attention(x, x, mask.as_array(5, 5), *ws),
        heads(h_kv),
        mask,
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rope_is_that_of_the_library_and_in_another_order_that_of_lesson_10(dtype):
    x, layer = QUERIES.astype(dtype), RotaryPositions(K)
    (y, backward), (expected, cache) = more.rope(x), layer.forward(x)
    same(y, expected)
    same(backward(x), layer.backward(x, cache))
    assert y.dtype == dtype
    halves = np.r_[0:K:2, 1:K:2]
    same(more.rope(x[..., halves])[0], positions.rotated(x, np.arange(5))[..., halves])


def test_a_gate_far_below_zero_is_shut():
    y, _ = more.swiglu(np.full((1, 1, 1), -2000.0), *(SimpleNamespace(data=np.ones((1, 1))) for _ in range(3)))
    assert y == 0
