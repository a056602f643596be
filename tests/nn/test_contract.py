"""The contract of every layer: a call changes nothing but gradients, and leaves nothing behind in the layer."""

import copy
import re

import numpy as np
import pytest

from scratchformer.nn.dropout import DropoutKey, keep_scale
from scratchformer.nn.gradcheck import arrays_in, map_arrays, random_arrays
from scratchformer.nn.gradient_cases import CASES, FLOAT64, small
from scratchformer.nn.layers import Linear
from scratchformer.nn.loss import forward_loss, loss_backward
from scratchformer.nn.ops import Ops, ops_of
from scratchformer.nn.parameter import ParameterStore, as_tuple
from scratchformer.nn.transformer import Transformer

EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.layer}: {case.description}")
KEY = DropoutKey(seed=1, step=2, shard=3, site=4)


def backward(layer, dy, cache):
    """The gradients of the float inputs, always as a tuple."""
    return tuple(gradient for gradient in as_tuple(layer.backward(dy, cache)) if gradient is not None)


def gradients_of_parameters(layer):
    return [parameter.grad.copy() for parameter in layer.parameters().values()]


def upstream(y):
    """A random gradient of y, an array of y's shape and dtype."""
    return random_arrays(seed=0)(y.shape).astype(y.dtype)


def assert_all_equal(found, expected, **tolerance):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, **({"rtol": 0, "atol": 0} | tolerance))


# Empty arrays ---------------------------------------------------------------------------------------------------------


def without(axis):
    """A function that leaves an array nothing along this axis, 0 the batch, 1 the sequence; (B, D) has only a batch."""

    def emptied(array):
        if array.ndim == 1 and axis == 1:  # key lengths
            return np.zeros_like(array)
        return np.take(array, [], min(axis, array.ndim - 2) if array.dtype.kind == "f" else axis)

    return emptied


@EVERY_CASE
@pytest.mark.parametrize("axis, which", [(0, "all"), (1, "all"), (1, "first"), (1, "last")])
def test_an_empty_array_is_refused_or_gives_an_empty_result(case, axis, which):
    layer, inputs, rng = case.make()
    if case.layer == "CrossEntropy":
        layer.target_ids = without(axis)(layer.target_ids)
    arrays = [number for number, value in enumerate(inputs) if isinstance(value, np.ndarray)]
    chosen = {"all": range(len(inputs)), "first": arrays[:1], "last": arrays[-1:]}[which]
    inputs = [map_arrays(without(axis), value) if number in chosen else value for number, value in enumerate(inputs)]
    try:
        with np.errstate(all="raise"):
            y, cache = layer.forward(*inputs, rng=rng)
            gradients = backward(layer, upstream(y), cache)
    except ValueError as error:
        assert re.search(r"\((\d+, ?)*0(,|\)|, )", str(error)), error  # it names a shape with a 0
        assert "reshape" not in str(error)
    else:
        assert y.size == 0 or y.ndim == y == 0
        assert all(gradient.size == 0 for gradient in gradients)
        assert not any(gradient.any() for gradient in gradients_of_parameters(layer))


@pytest.mark.parametrize(
    "ids, complaint",
    [
        (np.zeros((0, 5), int), "is empty: its shape is (0, 5)"),
        (np.zeros((2, 0), int), "is empty: its shape is (2, 0)"),
        (np.zeros(0), "is empty: its shape is (0,)"),
        ([], "must be a 2-D array of integers, not a list"),
        (None, "must be a 2-D array of integers, not a NoneType"),
        (np.int64(3), "must be a 2-D array of integers, not 0-D of int64"),
        (np.ones(2, int), "must be a 2-D array of integers, not 1-D of int64"),
        (np.ones((2, 3)), "must be a 2-D array of integers, not 2-D of float64"),
        (np.ones((2, 3), bool), "must be a 2-D array of integers, not 2-D of bool"),
        (np.full((2, 3), -1), "holds ids from -1 to -1; the vocabulary is 0 to 10"),
        (np.full((2, 3), 11), "holds ids from 11 to 11; the vocabulary is 0 to 10"),
        (np.full((2, 3), 2**63, np.uint64), "holds ids from 9223372036854775808"),
    ],
)
def test_what_are_no_ids_is_refused_at_the_entry(ids, complaint):
    model, fine = Transformer(small(0.0)), np.ones((2, 3), int)
    calls = {
        "source_ids": [lambda: model.encode(ids), lambda: model.forward(ids, fine), lambda: model.states(ids, fine)],
        "target_in_ids": [lambda: model.forward(fine, ids), lambda: forward_loss(model, fine, ids, fine)],
        "targets": [lambda: forward_loss(model, fine, fine, ids), lambda: loss_backward(model, fine, fine, ids)],
    }
    for name, attempts in calls.items():
        for attempt in attempts:
            with pytest.raises(ValueError, match=re.escape(f"{name} {complaint}")):
                attempt()


# Nothing is mutated, nothing is left behind ---------------------------------------------------------------------------


@EVERY_CASE
def test_inputs_caches_and_parameters_are_never_written_to(case):
    """NumPy raises where something writes into a read-only array."""
    layer, inputs, rng = case.make()
    parameters = [parameter.data for parameter in layer.parameters().values()]
    for array in arrays_in(inputs, parameters):
        array.flags.writeable = False
    y, cache = layer.forward(*inputs, rng=rng)
    dy = upstream(y)
    for array in arrays_in(cache, dy):
        array.flags.writeable = False
    layer.backward(dy, cache)


def test_softmax_does_not_write_into_the_scores(random):
    """Attention makes the scores itself, so that its cases above would not notice."""
    scores = random.normal(size=(3, 2, 4, 5))
    scores.flags.writeable = False
    ops_of(scores).masked_softmax(scores, 0.5, np.array([5, 0, 2]), causal=False)


def test_no_operation_writes_into_the_gradient_it_is_given(random):
    """Layers mostly hand over arrays of their own, so that the cases above would not notice."""
    E = np.zeros((11, 5))
    ops = ops_of(E)
    dy, y, x = random.normal(size=(3, 3, 4, 5))
    weights = ops.masked_softmax(random.normal(size=(3, 2, 4, 5)), 0.5, None, causal=False)
    dweights = random.normal(size=weights.shape)
    for array in (dy, dweights):
        array.flags.writeable = False
    _, saved = ops.layer_norm(x, gamma=np.ones(5), beta=np.zeros(5), eps=0.1)
    ops.linear_backward(dy, x, W=np.ones((5, 5)), dW=np.zeros((5, 5)), db=np.zeros(5))
    ops.relu_backward(dy, y)
    ops.gelu_backward(dy, x)
    ops.dropout_backward(dy, y > 0, 0.3)
    ops.layer_norm_backward(dy, saved, gamma=np.ones(5), dgamma=np.zeros(5), dbeta=np.zeros(5))
    ops.add_norm_backward(dy, (y > 0, saved), gamma=np.ones(5), dgamma=np.zeros(5), dbeta=np.zeros(5), P_drop=0.3)
    ops.masked_softmax_backward(dweights, weights, 0.5)
    ops.embedding_backward(dy, random.integers(0, 11, (3, 4)), 2.0, E)


@EVERY_CASE
def test_two_calls_may_run_backward_in_either_order(case):
    layer, inputs, rng = case.make()
    other_inputs = map_arrays(lambda array: array[::-1] * 0.5 if array.dtype.kind == "f" else array[::-1], inputs)

    def both(order):
        layer.zero_grad()
        calls = [layer.forward(*inputs, rng=rng), layer.forward(*other_inputs, rng=rng)]
        found = {number: backward(layer, upstream(calls[number][0]), calls[number][1]) for number in order}
        return [*found[0], *found[1], *gradients_of_parameters(layer)]

    assert_all_equal(both([0, 1]), both([1, 0]), rtol=1e-12, atol=1e-12)


@EVERY_CASE
def test_a_backward_does_not_touch_the_cache_of_another_call(case):
    layer, inputs, rng = case.make()
    (y, cache), (_, other_cache) = (layer.forward(*inputs, rng=rng) for _ in range(2))
    before = copy.deepcopy(list(arrays_in(other_cache)))
    layer.backward(upstream(y), cache)
    assert_all_equal(arrays_in(other_cache), before)


@EVERY_CASE
def test_a_forward_with_other_masks_in_between_changes_no_gradient(case):
    layer, inputs, rng = case.make()

    def gradients(*keys_in_between):
        layer.zero_grad()
        y, cache = layer.forward(*inputs, rng=rng)
        for key in keys_in_between:
            layer.forward(*inputs, rng=key)
        return [*backward(layer, upstream(y), cache), *gradients_of_parameters(layer)]

    assert_all_equal(gradients(KEY._replace(step=9), None), gradients())


def assert_gradients_accumulate_in_their_store(layer, inputs, rng):
    """Two equal calls leave twice the gradient of one, in the flat buffer the parameters view."""
    store = ParameterStore(layer.parameters())
    after = []
    for _ in range(2):
        y, cache = layer.forward(*inputs, rng=rng)
        layer.backward(upstream(y), cache)
        after.append(store.grad.copy())
    assert all(np.shares_memory(parameter.grad, store.grad) for parameter in layer.parameters().values())
    np.testing.assert_allclose(after[1], 2 * after[0], rtol=1e-12, atol=1e-12)
    assert after[0].any()


@EVERY_CASE
def test_gradients_accumulate_in_their_store(case):
    layer, inputs, rng = case.make()
    if layer.parameters():
        assert_gradients_accumulate_in_their_store(layer, inputs, rng)


class OverwritesGradient(Linear):
    def backward(self, dy, cache):
        self.weight.grad[...] = 0
        return super().backward(dy, cache)


class CutsGradientLoose(Linear):
    def backward(self, dy, cache):
        self.weight.grad = self.weight.grad.copy()
        return super().backward(dy, cache)


@pytest.mark.parametrize("kind", [OverwritesGradient, CutsGradientLoose])
def test_a_gradient_that_is_assigned_would_be_noticed(kind, random):
    with pytest.raises(AssertionError):
        assert_gradients_accumulate_in_their_store(kind(6, 9, random, FLOAT64), (random.normal(size=(3, 6)),), None)


# Types and memory layouts ---------------------------------------------------------------------------------------------


@EVERY_CASE
def test_float32_stays_float32(case):
    layer, inputs, rng = case.make()
    for parameter in layer.parameters().values():
        parameter.data, parameter.grad = parameter.data.astype("float32"), parameter.grad.astype("float32")
    inputs = map_arrays(lambda array: array.astype("float32") if array.dtype.kind == "f" else array, inputs)
    y, cache = layer.forward(*inputs, rng=rng)
    arrays = [y, *arrays_in(cache)]  # now: backward empties some caches
    arrays += [*backward(layer, upstream(y), cache), *gradients_of_parameters(layer)]
    assert {array.dtype for array in arrays if array.dtype.kind == "f"} == {np.dtype("float32")}


@EVERY_CASE
def test_strided_inputs_give_the_same_results(case):
    layer, inputs, rng = case.make()

    def results(layout):
        layer.zero_grad()
        y, cache = layer.forward(*map_arrays(layout, inputs), rng=rng)
        return [y, *backward(layer, map_arrays(layout, upstream(y)), cache), *gradients_of_parameters(layer)]

    assert_all_equal(results(every_second), results(np.ascontiguousarray), rtol=1e-12, atol=1e-12)


def every_second(array):
    """The same numbers, with gaps between them and the axes laid out in reverse order."""
    return np.repeat(array.T, 2, axis=-1)[..., ::2].T if array.ndim else array


# Dropout --------------------------------------------------------------------------------------------------------------


@EVERY_CASE
def test_the_same_key_gives_the_same_output_and_no_key_no_dropout(case):
    layer, inputs, rng = case.make()
    outputs = [layer.forward(*inputs, rng=key)[0] for key in (rng, rng, None, None)]
    assert np.array_equal(outputs[0], outputs[1])
    assert np.array_equal(outputs[2], outputs[3])
    if rng is None:
        assert np.array_equal(outputs[0], outputs[2])


def test_without_a_key_the_rates_do_not_matter():
    ids = np.array([[3, 4, 5]]), np.array([[2, 6]])
    outputs = [Transformer(small(rate)).forward(*ids)[0] for rate in (0.0, 0.3)]
    assert np.array_equal(*outputs)


@pytest.mark.parametrize("change", [{"seed": 9}, {"step": 9}, {"shard": 9}, {"site": 9}], ids=str)
def test_a_different_key_draws_a_different_mask(change):
    shape, P_drop = (100, 1000), 0.3
    mask, other = KEY.keep(shape, P_drop), KEY._replace(**change).keep(shape, P_drop)
    agreement = P_drop**2 + (1 - P_drop) ** 2  # of independent masks
    assert (mask == other).mean() == pytest.approx(agreement, abs=0.01)


@pytest.mark.parametrize("change", [{"seed": 2}, {"step": 3}, {"shard": 4}, {"site": 5}], ids=str)
def test_the_next_key_does_not_draw_a_shifted_copy_of_the_mask(change):
    """A counter-based generator does so if what names the draw sits where the generator counts."""
    masks = [key.keep((10_000,), 0.3).tobytes() for key in (KEY, KEY._replace(**change))]
    assert masks[0][:100] not in masks[1] and masks[1][:100] not in masks[0]


def test_no_two_places_of_the_model_draw_with_the_same_key(monkeypatch):
    N, drawn, keep = 2, [], DropoutKey.keep

    def remember(key, shape, P_drop):
        drawn.append(key)
        return keep(key, shape, P_drop)

    monkeypatch.setattr(DropoutKey, "keep", remember)
    Transformer(small(0.3)).forward(np.array([[3, 4, 5]]), np.array([[2, 6]]), rng=KEY)
    embeddings, encoder_layer, decoder_layer = 2, 2 + 1 + 1, 3 + 2 + 1  # residuals, attentions, relu
    assert len(drawn) == len(set(drawn)) == embeddings + N * (encoder_layer + decoder_layer)


@pytest.mark.parametrize("P_drop", [0.1, 0.3, 0.5, 0.9])
def test_units_are_dropped_at_their_rate_and_the_expectation_is_preserved(P_drop):
    n = 1_000_000
    kept = KEY.keep((n,), P_drop)
    five_sigma = 5 * (P_drop * (1 - P_drop) / n) ** 0.5
    assert abs(1 - kept.mean() - P_drop) < five_sigma
    assert abs((kept * keep_scale(P_drop)).mean() - 1) < five_sigma / (1 - P_drop)


def test_dropout_zeroes_or_scales(random):
    x = random.normal(size=(100, 10))
    y, kept = Ops(np).dropout(x, 0.25, KEY)
    np.testing.assert_allclose(y[kept], x[kept] / 0.75)
    assert (y[~kept] == 0).all() and 0 < kept.mean() < 1
