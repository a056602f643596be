"""Every parameter of a layer is found, checked and trained, or it is said which is not."""

import copy
import functools
import pickle

import numpy as np
import pytest

from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.gradient_cases import FLOAT64, SMALL
from scratchformer.nn.layers import FeedForward, LayerNorm, Linear
from scratchformer.nn.ops import ops_of
from scratchformer.nn.optim import Adam
from scratchformer.nn.parameter import Layer, Parameter
from scratchformer.nn.residual import PostNorm
from scratchformer.nn.transformer import Transformer

D, F = 6, 9
IDS = np.array([[3, 4, 5]]), np.array([[2, 6, 7]])


# Where parameters may be ----------------------------------------------------------------------------------------------


class Gated(Layer):
    """W_2 (relu(W_1 x) * (W_3 x)), its layers in a dict."""

    def __init__(self, random):
        self.layers = {"gate": Linear(D, F, random, FLOAT64), "up": Linear(D, F, random, FLOAT64)}
        self.down = (Linear(F, D, random, FLOAT64), {"scale": [Parameter(random.normal(size=D))]})

    def forward(self, x, rng=None):
        gate, gate_cache = self.layers["gate"].forward(x)
        up, up_cache = self.layers["up"].forward(x)
        active = ops_of(x).relu(gate)
        h, down_cache = self.down[0].forward(active * up)
        return h * self.down[1]["scale"][0].data, (gate_cache, up_cache, down_cache, active, up, h)

    def backward(self, dy, cache):
        gate_cache, up_cache, down_cache, active, up, h = cache
        scale = self.down[1]["scale"][0]
        scale.grad += (dy * h).sum(axis=(0, 1))
        dproduct = self.down[0].backward(dy * scale.data, down_cache)
        dgate = ops_of(dy).relu_backward(dproduct * up, active)
        return self.layers["gate"].backward(dgate, gate_cache) + self.layers["up"].backward(dproduct * active, up_cache)


class ForgetsTheGate(Gated):
    def backward(self, dy, cache):
        before = [parameter.grad.copy() for parameter in self.layers["gate"].parameters().values()]
        dx = super().backward(dy, cache)
        for parameter, grad in zip(self.layers["gate"].parameters().values(), before):
            parameter.grad[...] = grad
        return dx


def test_layers_in_dicts_and_tuples_are_found_and_checked(random):
    x = random.normal(size=(2, 3, D))
    names = "layers.gate.weight layers.gate.bias layers.up.weight layers.up.bias down.0.weight down.0.bias"
    assert list(Gated(random).parameters()) == [*names.split(), "down.1.scale.0"]
    assert gradcheck(Gated(random), x).passed
    report = gradcheck(ForgetsTheGate(random), x)
    assert [entry.name for entry in report if not entry.passed] == ["layers.gate.weight", "layers.gate.bias"]


class Anything:
    def __init__(self, held):
        self.held = held


def closure(layer):
    return lambda x: layer.forward(x)


def object_array(layer):
    array = np.empty(2, object)
    array[1] = layer
    return array


@pytest.mark.parametrize(
    "hidden",
    [
        lambda layer: {layer},
        lambda layer: [{layer}],
        lambda layer: Anything({"deep": [layer]}),
        closure,
        lambda layer: functools.partial(layer.forward, rng=None),
        lambda layer: layer.forward,
        object_array,
        lambda layer: Anything(layer.weight),
    ],
)
def test_a_layer_that_would_not_be_found_is_refused_by_name(hidden, random):
    layer = FeedForward(D, F, random, FLOAT64)
    layer.extra = hidden(Linear(D, D, random, FLOAT64))
    with pytest.raises(TypeError, match=r"FeedForward\.extra.* hides parameters, which would not be trained"):
        layer.parameters()


def test_another_way_to_a_layer_that_is_found_is_no_harm(random):
    layer = FeedForward(D, F, random, FLOAT64)
    before = list(layer.parameters())
    layer.call, layer.also, layer.config = layer.inner.forward, {layer.inner.weight}, SMALL
    layer.inner.owner = closure(layer.inner)
    assert list(layer.parameters()) == before


def test_a_residual_connection_may_have_parameters_of_its_own(random):
    layer = PostNorm(Linear(D, D, random, FLOAT64), SMALL, FLOAT64)
    layer.gate = Parameter(np.ones(1))
    assert list(layer.parameters()) == ["weight", "bias", "norm.gamma", "norm.beta", "gate"]


class OnTheClass(Linear):
    scale = [Parameter(np.ones(1))]


class InASlot(Linear):
    __slots__ = ("scale",)

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.scale = Parameter(np.ones(1))


@pytest.mark.parametrize("kind", [OnTheClass, InASlot])
def test_parameters_of_a_class_and_in_slots_are_refused(kind, random):
    with pytest.raises(TypeError, match=rf"{kind.__name__}\.scale: .* hides parameters"):
        kind(D, F, random, FLOAT64).parameters()


def test_two_parameters_of_one_name_are_refused(random):
    layer = Linear(D, D, random, FLOAT64)
    layer.norm = LayerNorm(D, FLOAT64)
    with pytest.raises(TypeError, match="PostNorm has two parameters called norm.gamma: give one of them"):
        PostNorm(layer, SMALL, FLOAT64).parameters()
    layer.norm = {0: Parameter(np.ones(1)), "0": Parameter(np.ones(1))}
    with pytest.raises(TypeError, match="Linear has two parameters called norm.0"):
        layer.parameters()


# The store holds what the model has -----------------------------------------------------------------------------------


def test_a_layer_put_into_a_finished_model_is_refused_until_the_store_is_rebuilt():
    model = Transformer(SMALL, dtype=FLOAT64)
    model.encoder.layers[1].feed_forward.sublayer.outer = Linear(
        SMALL.d_ff, SMALL.d_model, np.random.default_rng(1), FLOAT64
    )
    name = "encoder.layers.1.feed_forward.outer.weight"
    for train in (lambda: Adam(model), model.zero_grad):
        with pytest.raises(ValueError, match=f"store does not hold its {name}.* call model.rebuild_store"):
            train()
    model.rebuild_store()
    before = model.parameters()[name].data.copy()
    adam = Adam(model)
    model.zero_grad()
    logits, cache = model.forward(*IDS)
    model.backward(np.ones_like(logits) * np.arange(logits.shape[-1]), cache)
    adam.step(0.01)
    assert (model.parameters()[name].data != before).any()


def test_a_parameter_that_is_gone_is_named():
    model = Transformer(SMALL, dtype=FLOAT64)
    del model.encoder.layers[0].self_attention.sublayer.output.bias
    with pytest.raises(
        ValueError, match=r"holds encoder\.layers\.0\.self_attention\.output\.bias, which the model no longer"
    ):
        model.zero_grad()


@pytest.mark.parametrize(
    "which, remedy", [("data", "write into the array"), ("grad", "add into the array that is there")]
)
def test_an_array_that_was_replaced_is_named(which, remedy):
    model = Transformer(SMALL, dtype=FLOAT64)
    name, parameter = list(model.parameters().items())[3]
    setattr(parameter, which, getattr(parameter, which).copy())
    for train in (lambda: Adam(model), model.zero_grad):
        with pytest.raises(ValueError, match=rf"{name}\.{which} is not in the store any more: {remedy}"):
            train()
    model.rebuild_store()
    model.zero_grad()


def test_an_array_of_the_store_that_was_replaced_is_told():
    model = Transformer(SMALL, dtype=FLOAT64)
    model.store.grad = np.zeros_like(model.store.grad)
    with pytest.raises(ValueError, match="an array of the model's store was replaced"):
        model.zero_grad()


def test_an_optimizer_of_the_old_store_is_refused():
    model = Transformer(SMALL, dtype=FLOAT64)
    adam = Adam(model)
    adam.step(0.01)
    model.rebuild_store()
    with pytest.raises(
        ValueError, match=r"source_embedding\.weight\.data is not in the store any more.*make a new Adam"
    ):
        adam.step(0.01)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_of_a_model_can_be_trained_on_its_own(copied):
    model = Transformer(SMALL, dtype=FLOAT64)
    before, twin = model.store.data.copy(), copied(model)
    twin.zero_grad()
    logits, cache = twin.forward(*IDS)
    twin.backward(np.ones_like(logits) * np.arange(logits.shape[-1]), cache)
    Adam(twin).step(0.01)
    assert all((parameter.data != model.parameters()[name].data).any() for name, parameter in twin.parameters().items())
    assert np.array_equal(model.store.data, before) and not model.store.grad.any()


def test_a_layer_of_another_type_is_refused():
    model = Transformer(SMALL, dtype=FLOAT64)
    model.encoder.layers[0].feed_forward.sublayer.outer.bias = Parameter(np.zeros(D, "float32"))
    with pytest.raises(ValueError, match="is float64 and encoder.layers.0.feed_forward.outer.bias is float32"):
        model.rebuild_store()
