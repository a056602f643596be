"""Every kernel of kernels.cu, run on the CPU, is compared with the reference, with threads in both orders; and planted
faults are found."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import column_major
import ml_dtypes
import numpy as np
import pytest
from kernels_on_cpu import COMPILER, CpuKernels

from scratchformer.backends.cuda import fused_ops
from scratchformer.backends.cuda.fused_ops import FusedOps, group_by_id
from scratchformer.backends.cuda.gemm import CuBlas, Gemm
from scratchformer.backends.cuda.kernels import KERNELS, SOURCE, CupyKernels, parse_argument
from scratchformer.nn.attention import split_heads
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.ops import PAD, Ops

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

STORED = {"float32": np.dtype("float32"), "float16": np.dtype("float16"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
TOLERANCE = {"float32": 3e-6, "float16": 4e-3, "bfloat16": 3e-2}
KEY = DropoutKey(seed=3, step=2, shard=1, site=77)


class Poisoned:
    """An array library whose new arrays are filled with NaN or -1, so that no kernel can rely on zeros in them."""

    def __init__(self, xp):
        self.xp = xp

    def __getattr__(self, name):
        return getattr(self.xp, name)

    def empty(self, shape, dtype):
        return self.xp.full(shape, np.nan if np.dtype(dtype).kind in "fV" else -1, dtype)


def fused(source=SOURCE, forward=True, loss_scale=None):
    xp = Poisoned(np)
    gemm = Gemm(xp, column_major.gemm)
    return FusedOps(xp, CpuKernels(source, forward), gemm, gemm, loss_scale)


def cases(stored):
    """(description, function(ops, of) -> arrays), at odd shapes. `of` moves an array to the library of `ops`."""
    random = np.random.default_rng(0)

    def normal(*shape, dtype=stored):
        return random.standard_normal(shape).astype(dtype)

    def float32(*shape):
        return normal(*shape, dtype="float32")

    def linear(ops, of, dy, x, W, b, dW, db):
        dW, db = of(dW).copy(), None if b is None else of(db).copy()
        y = ops.linear(of(x), of(W), None if b is None else of(b))
        return y, ops.linear_backward(of(dy), of(x), of(W), dW, db), dW, db

    for rows, d_in, d_out in ((7, 5, 300), (1, 1, 1), (0, 2, 3)):
        arrays = (
            normal(rows, 2, d_out),
            normal(rows, 2, d_in),
            normal(d_in, d_out),
            normal(d_out),
            float32(d_in, d_out),
            float32(d_out),
        )
        yield "linear", lambda ops, of, a=arrays: linear(ops, of, *a)
        yield "linear without bias", lambda ops, of, a=arrays: linear(ops, of, *a[:3], None, *a[4:])

    a, b, total = normal(2, 3, 4), normal(2, 4, 5), float32(3, 5)
    yield "matmul", lambda ops, of: ops.matmul(of(a), of(b))

    def in_place(ops, of):
        sums, rows, product = (of(x).copy() for x in (total[0], b[0], total))
        ops.add_rows_inplace(sums, of(b[0]))
        ops.add_to_rows_inplace(rows, of(b[1, 0]))
        ops.add_product_inplace(product, of(a[0]), of(b[0]))
        return sums, rows, product

    yield "sums in place", in_place
    y, dy = normal(3, 100), normal(3, 100)
    yield "relu_backward", lambda ops, of: ops.relu_backward(of(dy), of(y))
    yield "gelu", lambda ops, of: ops.gelu(of(y))
    yield "gelu_backward", lambda ops, of: ops.gelu_backward(of(dy), of(y))

    def dropout(ops, of, x, dy, P_drop, rng):
        y, saved = ops.dropout(of(x), P_drop, rng)
        return y, ops.dropout_backward(of(dy), saved, P_drop)

    def layer_norm(ops, of, x, update, dy, gamma, beta, dgamma, dbeta):
        dgamma, dbeta = of(dgamma).copy(), of(dbeta).copy()
        y, saved = ops.layer_norm(of(x), of(gamma), of(beta), 1e-6)
        return y, ops.layer_norm_backward(of(dy), saved, of(gamma), dgamma, dbeta), dgamma, dbeta

    def add_norm(ops, of, x, update, dy, gamma, beta, dgamma, dbeta, P_drop, rng):
        dgamma, dbeta = of(dgamma).copy(), of(dbeta).copy()
        y, saved = ops.add_norm(of(x), of(update), of(gamma), of(beta), 1e-6, P_drop, rng)
        return y, ops.add_norm_backward(of(dy), saved, of(gamma), dgamma, dbeta, P_drop), dgamma, dbeta

    for shape in ((3, 5, 16), (2, 7, 3), (1, 600), (5, 1), (2, 1030), (0, 4)):
        D = shape[-1]
        arrays = [*(normal(*shape) for _ in range(3)), normal(D), normal(D), float32(D), float32(D)]
        yield f"layer_norm {shape}", lambda ops, of, a=arrays: layer_norm(ops, of, *a)
        for P_drop, rng in ((0.3, KEY), (0.3, None), (0.0, KEY)):
            how = f"{shape}, P_drop {P_drop}, {rng}"
            yield f"dropout {how}", lambda ops, of, a=arrays, d=(P_drop, rng): dropout(ops, of, a[0], a[2], *d)
            yield f"add_norm {how}", lambda ops, of, a=arrays, d=(P_drop, rng): add_norm(ops, of, *a, *d)

    def masked_softmax(ops, of, scores, dweights, lengths, causal):
        weights = ops.masked_softmax(of(scores), 0.3, lengths, causal)
        return weights, ops.masked_softmax_backward(of(dweights), weights, 0.3)

    for B, T, S in ((3, 4, 4), (3, 1, 7), (1, 5, 5), (2, 3, 70)):
        for lengths in (None, np.array([S, 0, 2])[:B]):  # 0: nothing to attend to
            for causal in (False, True):
                mask = normal(B, 2, T, S), normal(B, 2, T, S), lengths, causal
                mask[0][0, 0, -1] = -np.inf  # as after an overflow with fp16
                yield f"masked_softmax {B, T, S, lengths, causal}", lambda ops, of, a=mask: masked_softmax(ops, of, *a)

    def attention(ops, of, projections, widths, dy, lengths, causal, P_drop=0.0):
        q, k, v = (part for x, each in zip(projections, widths) for part in split_heads(of(x), 2, *each))
        y, weights, dropped, kept = ops.attention(q, k, v, 0.25, lengths, causal, P_drop, KEY)
        gradients = ops.attention_backward(of(dy), q, k, v, 0.25, weights, dropped, kept, P_drop)
        rows = [gradient.reshape(*gradient.shape[:2], -1) for gradient in gradients]
        return y, weights, dropped, ops.side_by_side(rows[1:] if len(widths) > 1 else rows), rows

    for T, S, d_k, d_v in ((3, 3, 4, 5), (1, 7, 5, 3), (35, 35, 3, 64), (34, 50, 64, 2), (2, 70, 4, 4), (8, 97, 3, 3)):
        for large in (False, True):
            for lengths, causal in ((None, False), (np.array([S, 2]), True), (np.array([0, S]), False)):
                widths = ((d_k, d_k, d_v),) if S == T else ((d_k,), (d_k, d_v))
                projections = [normal(2, n, 2 * sum(each)) for n, each in zip((T, S), widths)]
                if large:  # scores are numbers of fp16 only after they are scaled, and whole ones, so they are exact
                    for x in projections:
                        of_queries_and_keys = x[..., : -2 * d_v] if S == T or x is projections[1] else x
                        of_queries_and_keys[...] = 64 * random.integers(-3, 4, of_queries_and_keys.shape)
                a = projections, widths, normal(2, T, 2, d_v), lengths, causal
                yield f"attention {T, S, d_k, d_v, large, lengths, causal}", lambda ops, of, a=a: attention(ops, of, *a)
            if d_k < 64:  # otherwise the scaled scores are no numbers of fp16, either
                yield f"attention {T, S, d_k, d_v, large}, dropped", lambda ops, of, a=a: attention(ops, of, *a, 0.3)

    def embedding(ops, of, ids, E, dx, dE):
        dE = of(dE).copy()
        ops.embedding_backward(of(dx), ids, 2.5, dE)
        return ops.embedding(ids, of(E), 2.5), dE

    frequent = np.full((4, 9), 3)
    for ids in (np.array([[3, 1, 3, PAD, 3], [3, 9, PAD, PAD, PAD]]), np.zeros((1, 2), int), frequent):
        for D in (6, 300):
            words = ids, normal(11, D), normal(*ids.shape, D), float32(11, D)
            yield f"embedding {ids.shape, D}", lambda ops, of, a=words: embedding(ops, of, *a)

    for index in (np.array([4, 0, 5]), np.array([], int)):
        x, rows = normal(2, 3, 300), normal(len(index), 300)
        yield "gather_rows", lambda ops, of, x=x, rows=rows, index=index: (
            ops.gather_rows(of(x), index),
            ops.gather_rows_backward(of(rows), index, x.shape),
        )

    def in_its_place(ops, logits, *rest):
        return ops.cross_entropy(logits, *rest, out=logits)

    for n, V, targets, off_target, offset in (
        (23, 31, random.integers(1, 31, 23), 0.1 / 31, 0),
        (23, 31, random.integers(1, 31, 23), 0.1 / 31, 1e4),
        (5, 700, np.arange(5), 0.0, 0),
        (3, 5, np.zeros(3, int), 0.02, 0),
        (0, 5, np.zeros(0, int), 0.0, 0),
    ):
        logits = (8 * normal(n, V) + offset).astype(stored)
        arguments = logits, targets, 1 - V * off_target, off_target
        yield f"cross_entropy {n, V, offset}", lambda ops, of, a=arguments: ops.cross_entropy(of(a[0]), *a[1:])
        yield f"cross_entropy in place {n, V, offset}", lambda ops, of, a=arguments: in_its_place(
            ops, of(a[0]).copy(), *a[1:]
        )

    for shape, offset in (((2, 3, 40), 0), ((1, 700), 0), ((4, 1), 0), ((2, 300), 1e4), ((0, 3), 0)):
        z = (8 * normal(*shape) + offset).astype(stored)
        yield f"log_sum_exp {shape, offset}", lambda ops, of, z=z: ops.log_sum_exp(of(z))

    for rows, m, n in ((3, 700, 8), (2, 5, 5), (1, 1, 1), (0, 9, 2)):
        x = normal(rows, m, dtype="float64")
        x[:, n:][:, ::3] = -np.inf  # as for a word that may not be written
        yield f"top_indices {rows, m, n}", lambda ops, of, x=x, n=n: ops.top_indices(of(x), n)

    def adam(ops, of, w, g, m, v, norm):
        w, m, v = of(w).copy(), of(m).copy(), of(v).copy()
        ops.adam_inplace(w, of(g), m, v, 0.01, 0.9, 0.98, 1e-9, None if norm is None else of(norm))
        return w, m, v

    def mean(ops, of, g):
        g = of(g).copy()
        return ops.divide_inplace(g, 7), g

    for n in (1, 1000, 70_000):
        w, g, m = (float32(n) for _ in range(3))
        yield "divide_inplace", lambda ops, of, g=g: mean(ops, of, g)
        for norm in (None, 2.0, np.inf, np.nan):
            flat = w, g, m, m * m, None if norm is None else np.asarray(norm)
            yield f"adam, {norm}", lambda ops, of, a=flat: adam(ops, of, *a)


def arrays_in(thing):
    return [array for part in thing for array in arrays_in(part)] if isinstance(thing, (tuple, list)) else [thing]


def in_float32(x):
    return x.astype("float32") if x.dtype.itemsize == 2 else x


def on_host(x):
    return np.asarray(x.get() if hasattr(x, "get") else x, "float64")


def disagreements(ops, stored, tolerance, of=lambda x: x):
    """The descriptions of the cases in which `ops` differ from the reference, which computes in float32."""
    found = []
    for description, function in cases(STORED[stored]):
        with np.errstate(all="ignore"):
            expected, got = (arrays_in(function(*how)) for how in ((Ops(np), in_float32), (ops, of)))
        assert [np.shape(one) for one in expected] == [np.shape(other) for other in got], description
        for one, other in zip(expected, got):
            if one is None:
                continue
            one, other = on_host(one), on_host(other)
            if not np.allclose(other, one, rtol=tolerance, atol=tolerance * np.abs(one).max(initial=1)):
                found.append(description)
                break
    return found


@needs_compiler
@pytest.mark.parametrize("forward", [True, False], ids=["first thread first", "last thread first"])
@pytest.mark.parametrize(
    "stored", [name if name == "float32" else pytest.param(name, marks=pytest.mark.slow) for name in STORED]
)
def test_every_kernel_computes_what_the_reference_computes(stored, forward):
    ops = fused(forward=forward)
    assert disagreements(ops, stored, TOLERANCE[stored]) == []
    assert set(ops.kernels.launches) == KERNELS.keys() - {"adapt_loss_scale"}


@pytest.mark.gpu
@pytest.mark.parametrize("stored", STORED)
def test_every_kernel_computes_the_same_on_a_gpu(stored, cupy):
    exact = Gemm(Poisoned(cupy), CuBlas())
    ops = FusedOps(Poisoned(cupy), CupyKernels(), exact, exact)
    assert disagreements(ops, stored, 4 * TOLERANCE[stored], cupy.asarray) == []


def test_every_operation_is_compared():
    overridden = {name for name, value in vars(FusedOps).items() if inspect.isfunction(value) and name[0] != "_"}
    called = inspect.getsource(cases)
    assert [name for name in overridden - {"on_host"} if f"ops.{name}(" not in called] == []


@pytest.mark.parametrize("name", [name for name in vars(FusedOps) if name[0] != "_" and hasattr(Ops, name)])
def test_signatures_are_those_of_the_reference(name):
    ours, reference = getattr(FusedOps, name), getattr(Ops, name)
    if callable(ours):
        assert str(inspect.signature(ours)).replace("DropoutKey | None", "Array | None") == str(
            inspect.signature(reference)
        ).replace("DropoutKey | None", "Array | None")


# Faults ---------------------------------------------------------------------------------------------------------------

FAULTS = {
    "the sum of a warp leaves out half of it": (
        "offset = WARP / 2; offset > 0; offset /= 2) value += ",
        "offset = WARP / 4; offset > 0; offset /= 2) value += ",
    ),
    "the maximum of a warp is that of a half": (
        "offset = WARP / 2; offset > 0; offset /= 2) value = fmaxf",
        "offset = WARP / 4; offset > 0; offset /= 2) value = fmaxf",
    ),
    "no barrier before the results of the warps are read": (
        "    __syncthreads();\n    RowSums found",
        "    RowSums found",
    ),
    "the target's logit is read when it may be overwritten": (
        "row.highest - of_target + logf(row.sum)",
        "row.highest - get(logits, begin + target) + logf(row.sum)",
    ),
    "a row of -inf is divided by 0": ("key < seen && sum != 0", "key < seen"),
    "a probability from the difference of large numbers": (
        "float p = expf(get(logits, begin + v) - row.highest) / row.sum",
        "float p = expf(get(logits, begin + v) - (row.highest + logf(row.sum)))",
    ),
    "a row too many": ("    if (row >= rows) return;  // for the whole warp", "    if (row >= rows + 1) return;"),
    "a row too few": ("    if (row >= rows) return;  // for the whole warp", "    if (row >= rows - 1) return;"),
    "the last number is left out": ("    if (i < n) put(dx, i,", "    if (i < n - 1) put(dx, i,"),
    "dropout draws for its neighbour": ("2 * k + lane / 16) >> lane % 16", "2 * k + lane / 16) >> (lane + 1) % 16"),
    "the counter begins at 0": ("c0 = block + 1", "c0 = block"),
    "sums of exponentials are not rescaled": ("            sum *= expf(highest - z);\n", ""),
    "a causal mask that allows one key too many": ("keys - queries + query + 1)", "keys - queries + query + 2)"),
    "the gradient of a frequent word is that of its last position": (
        "sum += get(dx, (i64)rows[i]",
        "sum = get(dx, (i64)rows[i]",
    ),
    "some lanes leave before a shuffle": (
        "        float factor = drop.factor(k);  // all",
        "        if (first + k * WARP + threadIdx.x >= n) return;\n" "        float factor = drop.factor(k);  // all",
    ),
    "one warp's sum for a frequent word is left out": ("(int warp = 1; warp < block", "(int warp = 2; warp < block"),
    "a barrier is missing before the values take the place of the keys": (
        "        __syncthreads();\n        load(v, keys",
        "        load(v, keys",
    ),
    "a barrier is missing before the queries take the place of dy": (
        "        __syncthreads();\n        load(q + q_begin",
        "        load(q + q_begin",
    ),
    "a key of the last query is left out": (
        "for (int t = 0; t < n; t++) dk_sum",
        "for (int t = 0; t < n - 1; t++) dk_sum",
    ),
    "one warp's partial sums are left out": ("(int w = 1; w < blockDim.y", "(int w = 2; w < blockDim.y"),
    "a barrier is missing before the best of all threads is read": (
        "        __syncthreads();\n        last = value",
        "        last = value",
    ),
    "a barrier is missing before the next round": (
        "        __syncthreads();  // before the next round overwrites them\n",
        "",
    ),
    "NaN counts as finite": ("return *x - *x == 0;", "return !(*x - *x > 0 || *x - *x < 0);"),
}


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault, tmp_path):
    """In a process of its own, since some faults write outside of their arrays."""
    before, after = FAULTS[fault]
    assert SOURCE.count(before) == 1
    code = (
        "import sys, test_kernels as t\n"
        "source = t.SOURCE.replace(*t.FAULTS[sys.argv[1]])\n"
        "found = [t.disagreements(t.fused(source, forward), 'float32', 1e-4) for forward in (True, False)]\n"
        "sys.exit(3 if any(found) else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, fault],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 3 or done.returncode < 0, done.stderr


# Numbers and arguments ------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("P_drop", [0.1, 0.5, 1 - 1e-9])
@pytest.mark.parametrize("shape", [(513,), (7, 3), (3, 40)])
def test_the_kernel_draws_the_same_masks_as_numpy(shape, P_drop):
    """For rows that begin at multiples of 16, and rows that do not."""
    ones, key = np.ones(shape, "float32"), DropoutKey(2**63 + 5, 2**40, 3, 2**50 + 1)
    expected = key.keep(shape, P_drop)
    assert np.array_equal(fused().dropout(ones, P_drop, key)[0] > 0, expected)
    y, _ = fused().add_norm(
        np.zeros(shape, "float32"),
        ones,
        ones.reshape(-1, shape[-1])[0],
        0 * ones.reshape(-1, shape[-1])[0],
        1e-6,
        P_drop,
        key,
    )
    reference, _ = Ops(np).add_norm(
        0 * ones, ones, ones.reshape(-1, shape[-1])[0], 0 * ones.reshape(-1, shape[-1])[0], 1e-6, P_drop, key
    )
    np.testing.assert_allclose(y, reference, atol=1e-4)


@needs_compiler
def test_no_index_comes_twice():
    x = np.array([[1, np.nan, 1, -np.inf, np.nan, -np.inf]])
    assert fused().top_indices(x, 6).tolist() == [[1, 4, 0, 2, 3, 5]]


@needs_compiler
def test_the_loss_scale_multiplies_the_gradient_and_is_divided_out():
    scale = np.array([512, 0], "float32")
    logits, targets = np.random.default_rng(0).standard_normal((4, 9)).astype("float16"), np.array([1, 2, 0, 3])
    loss, scaled = fused(loss_scale=scale).cross_entropy(logits, targets, 0.9, 0.01)
    plain_loss, plain = fused().cross_entropy(logits, targets, 0.9, 0.01)
    assert loss == plain_loss
    np.testing.assert_allclose(scaled.astype("float32"), 512 * plain.astype("float32"), rtol=2e-3)
    gradient = np.array([1024, 2048], "float32")
    assert fused(loss_scale=scale).divide_inplace(gradient, 2) == 5 and gradient.tolist() == [1, 2]


def test_python_and_cuda_agree_on_sizes():
    chunk = f"{fused_ops.DROPOUT_CHUNK // fused_ops.WARP} * WARP"
    names = "WARP", "THREADS", "MOST_KEYS", "MOST_KEYS_BACKWARD", "MOST_COLUMNS", "MOST_WARPS"
    for name, value in (*((name, getattr(fused_ops, name)) for name in names), ("DROPOUT_CHUNK", chunk)):
        assert f"constexpr int {name} = {value};" in SOURCE


def test_ids_are_grouped_without_padding():
    words, starts, rows = group_by_id(np.array([[5, 2, 5, 0], [2, 7, 0, 0]]))
    assert words.tolist() == [2, 5, 7] and starts.tolist() == [0, 2, 4, 5] and rows.tolist() == [1, 4, 0, 2, 5]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((1,), "1 arguments for the 4"),
        ((np.zeros(3), np.zeros(3, "f4"), 3, 3), "y must be a contiguous ndarray of float32, not ndarray of float64"),
        ((np.zeros(6, "f4")[::2], np.zeros(3, "f4"), 1, 3), "y must be a contiguous"),
        (([0.0], np.zeros(3, "f4"), 1, 3), "not list of no dtype"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(TypeError, match=f"add_to_rows_inplace: .*{message}" if "1 arg" not in message else message):
        CpuKernels()("add_to_rows_inplace", (1,), (1,), *arguments)


@pytest.mark.parametrize("text", ["long x", "const half* x", "int", "float** x", "T x"])
def test_an_argument_of_an_unsupported_type_is_refused(text):
    with pytest.raises(ValueError, match="is not a supported kernel argument"):
        parse_argument(text)


@needs_compiler
def test_a_row_too_long_for_the_kernels_is_refused():
    x, gamma = np.zeros((1, 2049), "float32"), np.ones(2049, "float32")
    with pytest.raises(ValueError, match="d_model=2049: the kernels normalise rows of at most 2048"):
        fused().layer_norm(x, gamma, gamma, 1e-6)
