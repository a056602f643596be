"""Every kernel of kernels.cu, run on the CPU, is compared with the reference, with threads in both orders; and planted
faults are found."""

import os
import subprocess
import sys
from pathlib import Path

import column_major
import numpy as np
import pytest
from kernels_on_cpu import COMPILER, CpuKernels
from operation_cases import called, disagreements, overridden, signatures_that_differ

from scratchformer.backends.cuda import fused_ops
from scratchformer.backends.cuda.fused_ops import FusedOps, group_by_id
from scratchformer.backends.cuda.gemm import CuBlas, Gemm
from scratchformer.backends.cuda.kernels import KERNELS, SOURCE, CupyKernels

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

TOLERANCE = {"float32": 3e-6, "float16": 4e-3, "bfloat16": 3e-2}


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


@needs_compiler
@pytest.mark.parametrize("forward", [True, False], ids=["first thread first", "last thread first"])
@pytest.mark.parametrize(
    "stored", [name if name == "float32" else pytest.param(name, marks=pytest.mark.slow) for name in TOLERANCE]
)
def test_every_kernel_computes_what_the_reference_computes(stored, forward):
    ops = fused(forward=forward)
    assert disagreements(ops, stored, TOLERANCE[stored]) == []
    assert set(ops.kernels.launches) == KERNELS.keys() - {"adapt_loss_scale"}


@pytest.mark.gpu
@pytest.mark.parametrize("stored", TOLERANCE)
def test_every_kernel_computes_the_same_on_a_gpu(stored, cupy):
    exact = Gemm(Poisoned(cupy), CuBlas())
    ops = FusedOps(Poisoned(cupy), CupyKernels(), exact, exact)
    assert disagreements(ops, stored, 4 * TOLERANCE[stored], cupy.asarray) == []


def test_every_operation_is_compared_and_has_the_signature_of_the_reference():
    assert overridden(FusedOps) - called() == {"on_host"}
    assert signatures_that_differ(FusedOps) == []


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
        "import sys; sys.path.append('..'); import test_kernels as t\n"
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
