"""The fast operations compute what the reference computes; and float32 arrays get them."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from operation_cases import called, disagreements, overridden, signatures_that_differ

from scratchformer.backends import cpu as fast_ops
from scratchformer.backends.cpu import FAST, USES_BEFORE_COPY, FastOps, FrozenOps
from scratchformer.backends.device import Device
from scratchformer.nn import ops
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.ops import Ops, ops_of, using

REFERENCE, FASTER = Ops(np), FastOps(np)
TOLERANCE = {"float64": 1e-13, "float32": 2e-5}


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("block", [1 << 16, 20, 1])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_they_compute_what_the_reference_computes(dtype, block, monkeypatch):
    monkeypatch.setattr(fast_ops, "BLOCK", block)
    monkeypatch.setattr(fast_ops, "PRODUCT_BLOCK", block)
    assert disagreements(FASTER, dtype, TOLERANCE[dtype], read_only) == []


def test_every_fast_operation_is_compared_and_has_the_signature_of_the_reference():
    assert overridden(FastOps) - called() == set() and signatures_that_differ(FastOps) == []


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_they_keep_the_dtype(dtype):
    x, ids = np.ones((3, 4), dtype), np.array([1, 2, 0])
    _, (_, saved) = FASTER.add_norm(x, x, x[0], x[0], 1e-6, 0.3, DropoutKey(3, 1))
    results = FASTER.gelu(x), FASTER.log_sum_exp(x), FASTER.cross_entropy(x, ids, 0.9, 0.01)[1], *saved
    assert {each.dtype for each in (*results, FASTER.masked_softmax(x[None, None], 0.3, None, True))} == {x.dtype}


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


def test_they_are_in_use_where_they_are_asked_for_and_only_there(monkeypatch):
    monkeypatch.setattr(ops, "DEFAULT", [Ops(np)])
    single, double = np.zeros(2, "float32"), np.zeros(2)
    with using(FAST):
        assert ops_of(single) is FAST and type(ops_of(double)) is Ops
        with ThreadPoolExecutor(1) as other_thread:
            assert type(other_thread.submit(ops_of, single).result()) is Ops
        with using(FASTER):
            assert ops_of(single) is ops_of(double) is FASTER
        assert ops_of(single) is FAST
    assert type(ops_of(single)) is Ops
    ops.use_by_default(FAST)
    assert ops_of(single) is FAST and type(ops_of(double)) is Ops
    with pytest.raises(TypeError, match="no operations in use for arrays of type numpy.memmap and dtype float32"):
        ops_of(single.view(np.memmap))


def test_a_public_name_of_nn_chooses_them(monkeypatch):
    monkeypatch.setattr(ops, "DEFAULT", [Ops(np)])
    from scratchformer.nn import Linear

    layer = Linear(2, 3, np.random.default_rng(0))
    assert ops_of(layer.weight.data) is FAST
