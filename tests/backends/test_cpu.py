"""The fast operations compute what the reference computes; and float32 arrays get them."""

import inspect
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from scratchformer.backends import cpu as fast_ops
from scratchformer.backends.cpu import FAST, USES_BEFORE_COPY, FastOps, FrozenOps
from scratchformer.backends.device import Device
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.ops import PAD, Ops, ops_of, using

REFERENCE, FASTER = Ops(np), FastOps(np)
OVERRIDDEN = [name for name, value in vars(FastOps).items() if inspect.isfunction(value) and not name.startswith("_")]
TOLERANCE = {"float64": 1e-13, "float32": 2e-5}


def calls(dtype):
    """(name, arguments, the numbers of those that collect a gradient), at shapes that blocks do not divide."""
    random = np.random.default_rng(0)
    key = DropoutKey(seed=3, step=1)

    def normal(*shape):
        return random.standard_normal(shape).astype(dtype)

    def cross_entropy(n, V, targets, off_target):
        return "cross_entropy", (10 * normal(n, V), targets, 0.9 - off_target, off_target), ()

    for shape in ((3, 5, 8), (1, 1, 1), (70, 3)):
        x, width = normal(*shape), shape[-1]
        dy = normal(*shape[:-1], 6)
        yield "add_product_inplace", (normal(7, width), normal(7, 5), normal(5, width)), (0,)
        yield "add_rows_inplace", (normal(6), dy.reshape(-1, 6)), (0,)
        yield "gelu", (30 * x,), ()
        yield "gelu_backward", (normal(*shape), 3 * x), ()
        gamma, beta, dgamma, dbeta = (normal(width) for _ in range(4))
        yield "layer_norm", (x, gamma, beta, 1e-6), ()
        _, saved = REFERENCE.layer_norm(x, gamma, beta, 1e-6)
        yield "layer_norm_backward", (normal(*shape), saved, gamma, dgamma, dbeta), (3, 4)
        for P_drop, rng in ((0.3, key), (0.3, None), (0.0, key)):
            forward = x, normal(*shape), gamma, beta, 1e-6, P_drop, rng
            yield "add_norm", forward, ()
            _, saved = REFERENCE.add_norm(*forward)
            yield "add_norm_backward", (normal(*shape), saved, gamma, dgamma, dbeta, P_drop), (3, 4)
    for B, T, S in ((3, 4, 4), (3, 1, 7), (1, 5, 5), (2, 3, fast_ops.MANY_KEYS + 1)):
        for key_lengths in (None, np.array([S, 0, 2])[:B]):  # 0: nothing to attend to
            for causal in (False, True):
                yield "masked_softmax", (normal(B, 2, T, S), 0.3, key_lengths, causal), ()
    yield "log_sum_exp", (10 * normal(2, 7, 31),), ()
    ids = np.array([[3, 1, 3, PAD], [3, 9, PAD, PAD]])
    yield "embedding_backward", (normal(2, 4, 6), ids, 2.5, normal(11, 6)), (3,)
    yield cross_entropy(23, 31, random.integers(1, 31, 23), 0.1 / 31)
    yield cross_entropy(23, 31, random.integers(0, 3, 23), 0.1 / 31)  # some are padding
    yield cross_entropy(3, 5, np.zeros(3, int), 0.0)  # all are
    yield cross_entropy(0, 5, np.zeros(0, int), 0.0)


def arrays(thing):
    """All arrays and numbers in nested tuples."""
    if isinstance(thing, tuple):
        return [array for part in thing for array in arrays(part)]
    return [thing]


@pytest.mark.parametrize("block", [1 << 16, 20, 1])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_they_compute_what_the_reference_computes(dtype, block, monkeypatch):
    monkeypatch.setattr(fast_ops, "BLOCK", block)
    monkeypatch.setattr(fast_ops, "PRODUCT_BLOCK", block)
    for name, arguments, collecting in calls(dtype):
        for array in arrays(arguments):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False  # what collects a gradient is copied
        copies = [
            tuple(np.copy(a) if i in collecting and a is not None else a for i, a in enumerate(arguments))
            for _ in range(2)
        ]
        expected, got = (
            arrays((getattr(ops, name)(*copy), tuple(copy[i] for i in collecting)))
            for ops, copy in zip((REFERENCE, FASTER), copies)
        )
        assert len(expected) == len(got)
        for one, other in zip(expected, got):
            assert type(one) is type(other) and np.shape(one) == np.shape(other), name
            if one is not None:
                assert np.asarray(one).dtype == np.asarray(other).dtype, name
                tolerance = TOLERANCE[dtype] * max(1, np.abs(one).max(initial=0))
                np.testing.assert_allclose(other, one, rtol=0, atol=tolerance, err_msg=name)


def test_every_fast_operation_is_compared():
    assert {name for name, _, _ in calls("float32")} == set(OVERRIDDEN)


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_signatures_are_the_reference_s(name):
    assert inspect.signature(getattr(FastOps, name)) == inspect.signature(getattr(Ops, name))


def test_the_gradient_of_the_logits_may_take_their_place():
    logits = np.random.default_rng(0).standard_normal((9, 7)).astype("float32")
    targets = np.arange(9) % 7
    loss, dlogits = FASTER.cross_entropy(logits.copy(), targets, 0.8, 0.02)
    loss_in_place, in_place = FASTER.cross_entropy(logits, targets, 0.8, 0.02, out=logits)
    assert in_place is logits and loss_in_place == loss and np.array_equal(in_place, dlogits)


def test_a_transposed_weight_is_copied_when_it_has_served_some_products():
    ops, random = FrozenOps(), np.random.default_rng(0)
    x, E, W = (random.standard_normal(shape).astype("float32") for shape in ((3, 8), (11, 8), (8, 5)))
    for use in range(1, USES_BEFORE_COPY + 2):
        np.testing.assert_allclose(ops.linear(x, E.T, None), x @ E.T, rtol=1e-5)
        np.testing.assert_allclose(ops.linear(x, W, None), x @ W, rtol=1e-5)
        assert len(ops.copies) == (use >= USES_BEFORE_COPY)
    ((kept, copy),) = ops.copies.values()
    assert np.shares_memory(kept, E) and copy.flags.c_contiguous and not np.shares_memory(copy, E)


def test_only_operations_for_numpy_are_replaced_where_weights_are_frozen():
    device = Device()
    (first,), (second,) = device.frozen_ops(), device.frozen_ops()
    assert isinstance(first, FrozenOps) and first is not second
    device.ops = (REFERENCE,)
    assert device.frozen_ops() == (REFERENCE,)


def test_they_are_in_use_where_they_are_asked_for_and_only_there():
    single, double = np.zeros(2, "float32"), np.zeros(2)
    with using(FAST):
        assert ops_of(single) is FAST and type(ops_of(double)) is Ops
        with ThreadPoolExecutor(1) as other_thread:
            assert type(other_thread.submit(ops_of, single).result()) is Ops
        with using(FASTER):
            assert ops_of(single) is ops_of(double) is FASTER
        assert ops_of(single) is FAST
    assert type(ops_of(single)) is Ops
    with pytest.raises(TypeError, match="no operations in use for arrays of type numpy.memmap and dtype float32"):
        ops_of(single.view(np.memmap))


def test_what_is_in_use_can_be_printed():
    assert str(FAST) == "FastOps for numpy arrays of float32"
    assert str(REFERENCE) == "Ops for numpy arrays of all dtypes"
