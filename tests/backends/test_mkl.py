"""Products by MKL are those of NumPy; in bfloat16, within its rounding. Without MKL, everything else still works."""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scratchformer import config as configs
from scratchformer.backends import mkl, products
from scratchformer.backends.device import MklDevice
from scratchformer.config import ModelConfig
from scratchformer.nn.loss import loss_backward
from scratchformer.nn.ops import Ops, using
from scratchformer.nn.transformer import Transformer
from scratchformer.tasks import start
from scratchformer.training import loop
from scratchformer.training.run import RunDirectory

REFERENCE = Ops(np)
BF16_ERROR = 2.0**-7
"""Two factors are rounded, each by a relative error of at most 2^-8."""


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def library():
    if not mkl.installed_libraries():
        pytest.skip("MKL is not installed")
    return mkl.load()


KINDS = {
    "fp32": (mkl.MklOps, 2e-6),
    "fp32, packed": (mkl.PackedOps, 2e-6),
    "bf16": (mkl.Bf16Ops, BF16_ERROR),
    "bf16, packed": (lambda library: mkl.PackedOps(library, bf16=True), BF16_ERROR),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def ops_and_error(request, library):
    make, error = request.param
    return make(library), error


SHAPES = [(1, 1, 1), (0, 8, 40), (1, 64, 512), (3, 5, 7), (130, 70, 33), (64, 48, 200)]


def normal(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def views(random, rows, columns):
    """The same matrix as it is, as the transpose of one that is stored by columns, and as a part of a wider one."""
    matrix = normal(random, rows, columns)
    wider = np.zeros((rows, columns + 3), np.float32)
    wider[:, 1:-2] = matrix
    return matrix, np.ascontiguousarray(matrix.T).T, wider[:, 1:-2], np.repeat(matrix, 2, axis=1)[:, ::2]


def assert_product(found, a, b, error, plus=0.0):
    """Each element is wrong by at most `error` of the sum of the absolute terms."""
    expected = a.astype(float) @ b.astype(float) + plus
    bound = error * (np.abs(a).astype(float) @ np.abs(b).astype(float) + np.abs(plus)) + 1e-30
    assert found.dtype == np.float32 and found.shape == expected.shape
    assert (np.abs(found - expected) <= bound).all()


@pytest.mark.parametrize("m, k, n", SHAPES)
def test_products_are_right_for_all_layouts(ops_and_error, random, m, k, n):
    ops, error = ops_and_error
    for a in views(random, m, k):
        for W in views(random, k, n):
            assert_product(ops.matmul(a, W), a, W, error)
            for bias in (normal(random, n), None):
                assert_product(ops.linear(a, W, bias), a, W, error, 0.0 if bias is None else bias)
            total = normal(random, m, n)
            before = total.copy()
            ops.add_product_inplace(total, a, W)
            assert_product(total, a, W, error, before)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("m, k, n", SHAPES[1:])
def test_gradients_of_an_affine_map_are_right(ops_and_error, random, m, k, n, order):
    ops, error = ops_and_error
    x, W, dy, dW, db = (normal(random, *shape) for shape in ((m, k), (k, n), (m, n), (k, n), (n,)))
    found_dW, found_db = dW.copy(order), db.copy()
    assert_product(ops.linear_backward(dy, x, W, found_dW, found_db), dy, W.T, error)
    assert_product(found_dW, x.T, dy, error, dW)
    np.testing.assert_allclose(found_db, db + dy.sum(axis=0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bf16", [False, True])
def test_a_weight_that_is_used_often_is_packed(library, random, bf16):
    ops, error = mkl.PackedOps(library, bf16), BF16_ERROR if bf16 else 2e-6
    W, bias = normal(random, 128, 128), normal(random, 128)
    for use in range(1, 2 * mkl.USES_BEFORE_PACKING):
        x = normal(random, 2 + 3 * use, 128)
        assert_product(ops.linear(x, W, bias), x, W, error, bias)
        assert_product(ops.linear(x, W.T, None), x, W.T, error)
        assert all((each.packed is not None) == (use >= mkl.USES_BEFORE_PACKING) for each in ops.weights.values())


def test_what_does_not_fit_together_is_refused(ops_and_error, random):
    ops, _ = ops_and_error
    a, W = normal(random, 200, 90), normal(random, 64, 70)
    for product in (lambda: ops.matmul(a, W), lambda: ops.linear(a, W, None), lambda: ops.matmul(a[:, :64], W, a)):
        with pytest.raises(ValueError):
            product()


def test_a_product_has_the_same_bits_wherever_its_matrices_lie(ops_and_error, random):
    ops, _ = ops_and_error
    a, W = normal(random, 60, 70), normal(random, 70, 50)
    found = []
    for offset in (0, 4, 16, 36):
        room = np.empty(a.nbytes + 64, np.uint8)[offset:]
        moved = room[: a.nbytes].view(np.float32).reshape(a.shape)
        moved[...] = a
        found.append(ops.linear(moved, W, None))
    assert all((other == found[0]).all() for other in found)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 3e38, 1e-40])
def test_numbers_are_rounded_to_the_nearest_bfloat16(value):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.full((3, 2), value, np.float32)
    expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal((mkl.in_bfloat16(x).astype(np.uint32) << 16).view(np.float32), expected)


def test_weights_are_rounded_again_when_they_have_changed(library, random):
    ops, model = mkl.Bf16Ops(library), Transformer(ModelConfig(vocab_size=300, N=1, d_model=64, d_ff=128, h=2))
    ops.hold(model.store)
    W, x = model.unembedding.weight, normal(random, 50, 64)
    for factor in (1, 3):
        model.store.data *= factor
        model.store.refresh()
        assert_product(ops.linear(x, W.data.T, None), x, W.data.T, BF16_ERROR)
        assert np.shares_memory(ops.rounded(W.data.T), ops.rounded(W.data))


def test_the_input_of_an_affine_map_is_rounded_once(library, random, monkeypatch):
    ops, rounded = mkl.Bf16Ops(library), []
    monkeypatch.setattr(mkl, "round_into", lambda bits, x, real=mkl.round_into: (rounded.append(x), real(bits, x)))
    x, W, dW = normal(random, 4, 20, 64), normal(random, 64, 64), np.zeros((64, 64), np.float32)
    dy = ops.linear(x, W, None)
    assert len(rounded) == 2
    ops.linear_backward(dy, x, W, dW, None)
    assert [np.shares_memory(each, array) for each, array in zip(rounded, (x, W, dy, W))] == [True] * 4
    other = x.copy()
    ops.linear_backward(dy, other, W, dW, None)
    assert np.shares_memory(rounded[4], other)
    del x, other
    rounded.clear()
    assert not ops.inputs


@pytest.mark.parametrize("bf16", [False, True])
def test_loss_and_gradient_of_a_model(library, random, bf16):
    device, config = MklDevice(bf16), ModelConfig(vocab_size=300, N=2, d_model=64, d_ff=128, h=4)
    sources, targets = random.integers(3, 300, (2, 8, 12))
    found = []
    for ops in ((), device.ops):
        model = Transformer(config, seed=0)
        if ops:
            device.to_device(model)
        with using(*ops):
            loss, n_tokens = loss_backward(model, sources, targets, targets)
        found.append((loss / n_tokens, model.store.grad / n_tokens))
    (expected, dexpected), (loss, dloss) = found
    assert loss == pytest.approx(expected, rel=2e-3 if bf16 else 1e-6)
    cosine = dloss @ dexpected / np.sqrt((dloss @ dloss) * (dexpected @ dexpected))
    assert cosine > (0.999 if bf16 else 1 - 1e-6)
    assert (loss != expected) or not bf16  # it was really rounded


# Runs -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_resumes_bit_for_bit_and_translates(library, small_config, same_run, cli, tmp_path, precision):
    whole, parts = RunDirectory(tmp_path / "whole"), RunDirectory(tmp_path / "parts")
    config = small_config(d_model=64, d_ff=128, threads=2, products="mkl", precision=precision)
    trainer = start.begin(whole, config)
    assert "products by MKL" in trainer.summary() and ("bf16" in trainer.summary()) == (precision == "bf16")
    loop.train(trainer)
    loop.train(start.begin(parts, configs.with_settings(config, {"steps": 6})))
    loop.train(start.resume(parts, config)[0])
    same_run(whole, parts)
    if precision == "fp32":
        trainer, remarks = start.resume(parts, configs.with_settings(config, {"products": "auto"}))
        assert trainer.device.products == "mkl" and not any("matrix products" in remark for remark in remarks)
        _, remarks = start.resume(parts, configs.with_settings(config, {"products": "numpy"}))
        assert "matrix products by numpy instead of mkl: the last bits may differ; --products mkl keeps it" in remarks
    text = tmp_path / "text"
    text.write_text("the dog sees a cat\nthe big bird hears the old dog\n" * 3)
    for threads in (1, 2):
        found = cli("translate", whole.path, text, "--products", "mkl", "--precision", precision, "--threads", threads)
        assert found.code == 0 and found.out.count("\n") == 6
        if precision == "fp32":
            assert found.out == cli("translate", whole.path, text, "--products", "numpy").out


# The choice -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def choose(monkeypatch, tmp_path):
    """`products.choose` on a machine of which nothing is known yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget()
    yield products.choose.__wrapped__
    forget()


def forget():
    products.choose.cache_clear()
    mkl.load.cache_clear()


@pytest.mark.parametrize("ratio, name", [(1.3, "mkl"), (1.0, "numpy"), (0.5, "numpy")])
def test_the_faster_library_is_chosen_and_remembered(choose, library, monkeypatch, ratio, name):
    monkeypatch.setattr(products, "measured", lambda kind: ratio)
    assert choose("auto").name == name
    monkeypatch.setattr(products, "measured", lambda kind: pytest.fail("measured again"))
    assert choose("auto").name == name and f"{ratio:.2f} times" in choose("auto").why


def test_speed_is_measured_in_another_process(library):
    assert 0.05 < products.measured(mkl.MklOps) < 20


def test_the_speed_of_a_rival_that_takes_longer_is_below_one(monkeypatch):
    class Slow(Ops):
        def matmul(self, a, b, out=None):
            time.sleep(0.002)

    class Fast(Slow):
        def matmul(self, a, b, out=None):
            pass

    monkeypatch.setattr(products, "ROUNDS", 2)
    assert products.measure(Fast(np), Slow(np)) < 0.5


def test_an_installation_that_ends_the_process_is_one_line(choose, library, monkeypatch, refused, tmp_path):
    monkeypatch.setenv("MKL_THREADING_LAYER", "TBB")
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    monkeypatch.setattr(products, "place", lambda kind: "a machine that was never seen")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "ctypes.py").write_text("import sys; sys.exit('INTEL oneMKL FATAL ERROR')")
    assert choose("auto") == ("numpy", "MKL cannot be used: INTEL oneMKL FATAL ERROR")
    message = refused("train", "tiny", "--out", tmp_path / "run", "--products", "mkl")
    assert "MKL cannot be used: INTEL oneMKL FATAL ERROR" in message


@pytest.mark.parametrize("n", [1, 2])
def test_products_use_the_cores_they_are_given_in_every_thread(library, n):
    count = mkl.load().library.MKL_Get_Max_Threads
    with ThreadPoolExecutor(1) as pool:
        with mkl.product_threads(n):
            assert count() == pool.submit(count).result() == n
        assert count() == pool.submit(count).result() == 1


def test_threads_may_share_packed_weights(library, random):
    ops, W = mkl.PackedOps(library), normal(random, 128, 128)
    inputs = [normal(random, 20 + i, 128) for i in range(4 * mkl.USES_BEFORE_PACKING)]
    with ThreadPoolExecutor(4) as pool:
        for x, y in zip(inputs, pool.map(lambda x: ops.linear(x, W, None), inputs)):
            assert_product(y, x, W, 2e-6)
    assert len(ops.weights) == 1


SPEEDS = [
    ((1.0, 1.3), ""),
    ((0.8, 0.5), "slower than fp32 here: 0.50 times"),
    ((2.0, 1.5), "slower than fp32 here: 0.75"),
]


@pytest.mark.parametrize("speeds, text", SPEEDS)
def test_slow_bf16_is_told(choose, library, monkeypatch, small_config, cli, tmp_path, speeds, text):
    monkeypatch.setattr(products, "measured", lambda kind: speeds[kind is mkl.Bf16Ops])
    told = cli("doctor", "tiny", "--set", "training.precision=bf16").out
    assert (text in told) and ("take fp32" in told) == bool(text)
    remarks = start.begin(RunDirectory(tmp_path / "run"), small_config(precision="bf16")).remarks
    assert (text in remarks[0]) if text else not remarks


@pytest.mark.parametrize("content", ["", "no JSON", "[]", '{"a": {}}'])
def test_a_damaged_memory_is_no_obstacle(choose, library, monkeypatch, content):
    monkeypatch.setattr(products, "measured", lambda kind: 1.5)
    products.memory_file().parent.mkdir()
    products.memory_file().write_text(content)
    assert choose("auto").name == "mkl"
    assert list(json.loads(products.memory_file().read_text()).values())[-1] == 1.5


def test_a_memory_that_cannot_be_written_is_no_obstacle(choose, library, monkeypatch):
    monkeypatch.setattr(products, "measured", lambda kind: 1.5)
    products.memory_file().parent.write_text("a file where the directory should be")
    assert choose("auto").name == "mkl"


def test_without_mkl_numpy_is_used(choose, monkeypatch):
    monkeypatch.setattr(mkl, "installed_libraries", lambda: [])
    assert choose("auto") == ("numpy", "MKL is not installed; pip install 'scratchformer[mkl]' brings it")


BROKEN = {"no library": b"junk", "empty": b""}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("option", ["--products mkl", "--precision bf16"])
def test_a_broken_library_is_one_line(choose, refused, monkeypatch, tmp_path, option, content):
    (tmp_path / "libmkl_rt.so.3").write_bytes(content)
    monkeypatch.setattr(mkl, "installed_libraries", lambda: [tmp_path / "libmkl_rt.so.3"])
    message = refused("train", "tiny", "--out", tmp_path / "run", *option.split())
    assert "libmkl_rt.so.3: MKL cannot be used: " in message and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        ("--products openblas", "training.products must be one of auto, numpy, mkl, not 'openblas'"),
        ("--precision fp16", "training.precision=fp16 is for a GPU; on the CPU there are fp32 and bf16"),
        ("--precision bf16 --products numpy", "training.products=numpy: on the CPU, training.precision=bf16 needs MKL"),
    ],
)
def test_what_the_cpu_cannot_do_is_refused(refused, tmp_path, options, message):
    assert message in refused("train", "tiny", "--out", tmp_path / "run", *options.split())
