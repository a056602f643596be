"""The gradient checker accepts a right backward and refuses the wrong ones that public implementations have shipped."""

import math

import numpy as np
import pytest

from scratchformer.nn import gradcheck as module
from scratchformer.nn import gradient_cases
from scratchformer.nn.attention import Mask, ScaledDotProductAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.gradient_cases import CASES, FLOAT64, SMALL, check
from scratchformer.nn.layers import Embedding, FeedForward, LayerNorm, Linear, Unembedding
from scratchformer.nn.ops import Ops, ops_of, rows_of, using
from scratchformer.nn.parameter import Layer, Parameter
from scratchformer.nn.transformer import Transformer

B, T, S, D, F, H, K, V = 3, 4, 5, 6, 9, 2, 7, 11


def wrong(report):
    """The names of the inputs and parameters whose gradient the report refuses."""
    return {entry.name for entry in report if not entry.passed}


# Planted errors: a layer or an operation with one mistake -------------------------------------------------------------


class SlightlyLarge(Linear):
    def backward(self, dy, cache):
        return 1.001 * super().backward(dy, cache)


class WrongSign(Linear):
    def backward(self, dy, cache):
        return -super().backward(dy, cache)


class NotANumber(Linear):
    def backward(self, dy, cache):
        return super().backward(dy, cache) * math.nan


class BiasOfTheFirstSequence(Linear):
    """The bias gets a share from every row of the batch; this backward forgets the sum over B."""

    def backward(self, dy, cache):
        before = self.bias.grad.copy()
        dx = super().backward(dy, cache)
        self.bias.grad[...] = before + dy[0].sum(axis=0)
        return dx


class TransposedWeight(Linear):
    """dx = dy W where it should be dy W^T: no shape complains if W is square."""

    def backward(self, dy, cache):
        super().backward(dy, cache)
        return dy @ self.weight.data


@pytest.mark.parametrize(
    "kind, refused",
    [
        (Linear, set()),
        (SlightlyLarge, {"input 0"}),
        (WrongSign, {"input 0"}),
        (NotANumber, {"input 0"}),
        (BiasOfTheFirstSequence, {"bias"}),
        (TransposedWeight, {"input 0"}),
    ],
)
def test_a_wrong_linear_is_refused_where_it_is_wrong(kind, refused, random):
    report = gradcheck(kind(D, D, random, FLOAT64), random.normal(size=(B, T, D)))
    assert wrong(report) == refused
    assert report.passed == (not refused)
    assert ("WRONG" in str(report)) == bool(refused)


class NoSoftmaxGradient(Ops):
    """Passes a check whose upstream gradient is all ones, since the weights always sum to one."""

    def masked_softmax_backward(self, dweights, weights, scale):
        return np.zeros_like(weights)


class SoftmaxGradientOverBatch(Ops):
    """numpy-transformer: right at B = 1."""

    def masked_softmax_backward(self, dweights, weights, scale):
        return super().masked_softmax_backward(dweights, weights, scale) / len(weights)


@pytest.mark.parametrize("kind", [NoSoftmaxGradient, SoftmaxGradientOverBatch])
def test_a_wrong_softmax_gradient_is_refused(kind, random):
    q, k, v = (random.normal(size=(B, length, H, K)) for length in (T, S, S))
    inputs = ScaledDotProductAttention(), q, k, v, Mask(np.array([S, 2, 1]))
    assert gradcheck(*inputs).passed
    with using(kind(np)):
        assert wrong(gradcheck(*inputs)) == {"input 0", "input 1"}


class GammaOutsideTheMeans(Ops):
    """numpy-transformer: right where gamma is all ones, as in a new layer."""

    def layer_norm_backward(self, dy, saved, gamma, dgamma, dbeta):
        return gamma * super().layer_norm_backward(dy, saved, np.ones_like(gamma), dgamma, dbeta)


def test_gamma_outside_the_means_of_layer_norm_is_refused(random):
    layer, x = LayerNorm(D, FLOAT64), random.normal(size=(B, T, D))
    with using(GammaOutsideTheMeans(np)):
        assert wrong(gradcheck(layer, x)) == {"input 0"}
        assert (layer.gamma.data == 1).all()


class Gated(Layer):
    """y = x + a f(x), a = 0 at first (ReZero): where a is 0, nothing of f's gradient shows."""

    def __init__(self, random):
        self.a, self.f = Parameter(np.zeros(1)), Linear(D, D, random, FLOAT64)

    def forward(self, x, rng=None):
        h, cache = self.f.forward(x)
        return x + self.a.data * h, (h, cache)

    def backward(self, dy, cache):
        h, cache = cache
        self.a.grad += (dy * h).sum()
        return dy + self.f.backward(dy * self.a.data, cache)


class OpenGate(Gated):
    def backward(self, dy, cache):
        self.a.grad += (dy * cache[0]).sum()
        return dy


def test_faults_that_new_weights_hide_are_refused(random):
    x = random.normal(size=(B, T, D))
    assert gradcheck(Gated(random), x).passed
    assert wrong(gradcheck(OpenGate(random), x)) == {"input 0", "f.weight", "f.bias"}


class NoNormGradient(Ops):
    def layer_norm_backward(self, dy, saved, gamma, dgamma, dbeta):
        return 0 * super().layer_norm_backward(dy, saved, gamma, dgamma, dbeta)


@pytest.mark.parametrize("seed", range(4))
def test_zeros_as_the_gradient_of_a_norm_are_refused_wherever_x_comes_from(seed):
    """LayerNorm's gradient is zero along x: it must not come from the generator that a caller takes for x."""
    x = np.random.default_rng(seed).normal(size=(B, T, D))
    with using(NoNormGradient(np)):
        assert wrong(gradcheck(LayerNorm(D, FLOAT64, eps=1e-9), x, seed=seed)) == {"input 0"}


class RepeatedWordsOverwrite(Ops):
    def embedding_backward(self, dx, ids, scale, dE):
        dE[ids] += dx * scale


class NoScaleInBackward(Ops):
    """csd81: sqrt(d_model) in forward only."""

    def embedding_backward(self, dx, ids, scale, dE):
        super().embedding_backward(dx, ids, 1.0, dE)


@pytest.mark.parametrize("kind", [RepeatedWordsOverwrite, NoScaleInBackward])
def test_a_wrong_embedding_gradient_is_refused(kind, random):
    layer = Embedding(Embedding.new_weight(V, D, random, FLOAT64))
    ids = np.array([[4, 7, 4], [4, 2, 1]])
    assert gradcheck(layer, ids).passed
    with using(kind(np)):
        assert wrong(gradcheck(layer, ids)) == {"weight"}


class ForgetfulUnembedding(Unembedding):
    """Ultron09: the share of the output layer in the tied matrix is dropped."""

    def backward(self, dlogits, cache):
        return dlogits @ self.weight.data


def test_a_dropped_share_of_a_tied_matrix_is_refused(random):
    model = Transformer(SMALL, dtype=FLOAT64)
    ids = random.integers(1, V, (B, S)), random.integers(1, V, (B, T))
    assert gradcheck(model, *ids).passed
    model.unembedding = ForgetfulUnembedding(model.target_embedding.weight)
    assert wrong(gradcheck(model, *ids)) == {"source_embedding.weight"}


class OneMaskForTwoSites(Layer):
    """numpy-transformer: one object for two dropouts remembers only its last mask, and backward uses that twice."""

    def forward(self, x, rng=None):
        once, _ = ops_of(x).dropout(x, 0.3, rng.child(0))
        twice, kept = ops_of(x).dropout(once, 0.3, rng.child(1))
        return twice, (kept,)

    def backward(self, dy, cache):
        (kept,) = cache
        donce = ops_of(dy).dropout_backward(dy, kept, 0.3)
        return ops_of(dy).dropout_backward(donce, kept, 0.3)


def test_one_dropout_mask_for_two_sites_is_refused(random):
    assert not gradcheck(OneMaskForTwoSites(), random.normal(size=(B, T, D)), rng=DropoutKey(1, 1)).passed


class LossGradientByValue(Ops):
    """numpy-transformer: the target's logit is found by its value, so every equal logit takes its share."""

    def cross_entropy(self, logits, targets, on_target, off_target, out=None):
        losses, dlogits = super().cross_entropy(logits, targets, on_target, off_target)
        target_logits = logits[np.arange(len(targets)), targets]
        equal = (logits == target_logits[:, None]) & (targets != 0)[:, None]
        equal[np.arange(len(targets)), targets] = False
        return losses, dlogits - on_target * equal


def test_a_loss_gradient_that_confuses_equal_logits_is_refused():
    case = next(case for case in CASES if case.layer == "CrossEntropy")
    with using(LossGradientByValue(np)):
        assert not check(case).passed


# The contract of a layer ----------------------------------------------------------------------------------------------


class Overwrites(Linear):
    def backward(self, dy, cache):
        self.weight.grad[...] = 0
        return super().backward(dy, cache)


class AddsUpOnItself(Linear):
    def backward(self, dy, cache):
        before = self.weight.grad.copy()
        dx = super().backward(dy, cache)
        self.total = getattr(self, "total", 0) + self.weight.grad - before
        self.weight.grad[...] = before + self.total
        return dx


class RemembersItsLastCall(Linear):
    def forward(self, x, rng=None):
        self.last = x
        return super().forward(x)[0], ()

    def backward(self, dy, cache):
        return super().backward(dy, (self.last,))


class RemembersItsLastMask(Layer):
    def forward(self, x, rng=None):
        y, self.kept = ops_of(x).dropout(x, 0.3, rng)
        return y, ()

    def backward(self, dy, cache):
        return ops_of(dy).dropout_backward(dy, self.kept, 0.3)


@pytest.mark.parametrize(
    "kind, refused",
    [
        (Overwrites, {"weight"}),
        (RemembersItsLastCall, {"weight"}),
        (RemembersItsLastMask, {"input 0"}),
        (AddsUpOnItself, {"weight"}),
    ],
)
def test_a_gradient_that_is_right_for_one_first_call_only_is_refused(kind, refused, random):
    layer = kind(D, F, random, FLOAT64) if issubclass(kind, Linear) else kind()
    report = gradcheck(layer, random.normal(size=(B, T, D)), rng=DropoutKey(1, 1))
    assert wrong(report) == refused
    reason = "backward overwrites weight.grad: add into it" if kind is Overwrites else "after a second forward: keep"
    assert reason in str(report)


class RemembersItsLastIds(Embedding):
    def forward(self, ids, rng=None):
        self.ids = ids
        return super().forward(ids)[0], ()

    def backward(self, dx, cache):
        super().backward(dx, (self.ids,))


def test_an_embedding_that_remembers_its_last_ids_is_refused_for_a_single_sequence(random):
    weight, ids = Embedding.new_weight(V, D, random, FLOAT64), np.array([[4, 7, 4, 2, 0]])
    assert gradcheck(Embedding(weight), ids).passed
    assert wrong(gradcheck(RemembersItsLastIds(weight), ids)) == {"weight"}


def test_one_array_as_several_inputs_is_several_inputs(random):
    x = np.broadcast_to(random.normal(size=(T, H, K)), (B, T, H, K))  # read-only
    assert gradcheck(ScaledDotProductAttention(), x, x, x).passed


def test_float_arrays_within_an_input_are_refused(random):
    x = random.normal(size=(B, D))
    with pytest.raises(TypeError, match="input 0 holds a float array in a list: make it an input of its own"):
        gradcheck(Linear(D, F, random, FLOAT64), [x, x])


class Replaces(Linear):
    def backward(self, dy, cache):
        self.bias.grad = dy.sum(axis=(0, 1))
        return dy @ self.weight.data.T


class CutsLoose(Linear):
    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        self.bias.grad = self.bias.grad.copy()
        return dx


class ChangesDy(Linear):
    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        dy *= 2
        return dx


class ChangesItsCache(Linear):
    def forward(self, x, rng=None):
        y, (x,) = super().forward(x)
        return y, {"x": [x.copy()]}

    def backward(self, dy, cache):
        dx = super().backward(dy, tuple(cache["x"]))
        cache["x"][0][...] = 0
        return dx


class ChangesX(Linear):
    def forward(self, x, rng=None):
        x[x < -1] = 0
        return super().forward(x)


class ChangesItsWeight(Linear):
    def forward(self, x, rng=None):
        self.weight.data *= 0.9
        return super().forward(x)


class ForgetsItsCache(Linear):
    def forward(self, x, rng=None):
        return super().forward(x)[0]


@pytest.mark.parametrize(
    "kind, complaint",
    [
        (ForgetsItsCache, r"ForgetsItsCache\.forward must return \(output, cache\)"),
        (Replaces, r"backward replaces bias\.grad by another array"),
        (CutsLoose, r"backward replaces bias\.grad by another array"),
        (ChangesDy, "backward changes dy"),
        (ChangesItsCache, "backward changes the cache"),
        (ChangesX, "forward changes input 0"),
        (ChangesItsWeight, "forward changes weight"),
    ],
)
def test_a_layer_that_breaks_its_contract_is_refused(kind, complaint, random):
    layer = kind(D, F, random, FLOAT64)
    grad, weight = layer.bias.grad, layer.weight.data.copy()
    with pytest.raises(ValueError, match=complaint):
        gradcheck(layer, random.normal(size=(B, T, D)))
    assert layer.bias.grad is grad and not grad.any() and np.array_equal(layer.weight.data, weight)


# What the checker asks for --------------------------------------------------------------------------------------------


def test_float32_is_refused(random):
    with pytest.raises(TypeError, match="input 0 is float32"):
        gradcheck(Linear(D, F, random, FLOAT64), random.normal(size=(B, D)).astype("float32"))
    with pytest.raises(TypeError, match="weight is float32"):
        gradcheck(Linear(D, F, random, "float32"), random.normal(size=(B, D)))


class SummedGradient(Linear):
    def backward(self, dy, cache):
        return super().backward(dy, cache).sum(axis=0)


class TwoGradientsForOneInput(Linear):
    def backward(self, dy, cache):
        dx = super().backward(dy, cache)
        return dx, dx


class ForgetsToReturn(Linear):
    def backward(self, dy, cache):
        super().backward(dy, cache)


class ReturnsAList(Linear):
    def backward(self, dy, cache):
        return [super().backward(dy, cache)]


class ForgetsToSum(Linear):
    def backward(self, dy, cache):
        self.bias.grad += dy


@pytest.mark.parametrize(
    "kind, complaint",
    [
        (ForgetsToSum, r"ForgetsToSum\.backward .*`self.bias.grad \+= dy`: .*shape \(9,\).* \(3,9\)"),
        (SummedGradient, r"input 0 has shape \(3, 6\), and its gradient \(6,\)"),
        (TwoGradientsForOneInput, "backward returns 2 gradients, and forward has 1 float inputs"),
        (ForgetsToReturn, "backward returns None, and forward has 1 float inputs"),
        (ReturnsAList, r"input 0 has shape \(3, 6\), and its gradient is a list"),
    ],
)
def test_gradients_must_match_the_inputs_in_shape_and_number(kind, complaint, random):
    with pytest.raises(ValueError, match=complaint):
        gradcheck(kind(D, F, random, FLOAT64), random.normal(size=(B, D)))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shape", [(B, T, D), (B, 2 * T, D)])
def test_a_gradient_parallel_to_an_input_is_refused(sign, shape, random, monkeypatch):
    monkeypatch.setattr(
        module, "random_arrays", lambda seed: lambda shape: np.random.default_rng(seed).normal(size=shape)
    )
    x = 5 + sign * np.random.default_rng(7).normal(size=shape)
    with pytest.raises(ValueError, match="is parallel to input 0"):
        gradcheck(LayerNorm(D, FLOAT64), x, seed=7)
    monkeypatch.undo()
    assert gradcheck(LayerNorm(D, FLOAT64), x, seed=7).passed


def test_a_check_leaves_inputs_weights_and_gradients_as_they_were(random):
    layer, x = FeedForward(D, F, random, FLOAT64), random.normal(size=(B, D))
    parameters = layer.parameters().values()
    for parameter in parameters:
        parameter.grad[...] = random.normal(size=parameter.shape)
    arrays = [x, *(parameter.data for parameter in parameters), *(parameter.grad for parameter in parameters)]
    before = [array.copy() for array in arrays]
    gradcheck(layer, x)
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, before, strict=True))


def test_no_relu_of_the_table_comes_near_its_kink():
    case = next(case for case in CASES if case.layer == "FeedForward")
    layer, (x,), rng = case.make()
    hidden = rows_of(x) @ layer.inner.weight.data + layer.inner.bias.data
    assert gradient_cases.distance_to_kink(layer, [x], rng) == pytest.approx(np.abs(hidden).min())
    assert np.abs(hidden).min() > gradient_cases.NEAR_THE_KINK
