"""The layers and the model refuse bad inputs, with a message that says why."""

import re

import numpy as np
import pytest

from scratchformer.decoding.incremental import begin_decoding
from scratchformer.doctor.fixtures import SOURCE, TARGET, TYPES
from scratchformer.nn import gradient_cases
from scratchformer.nn.attention import SelfAttention
from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import map_arrays, random_arrays
from scratchformer.nn.gradient_cases import CASES, SMALL, padded_ids, small
from scratchformer.nn.loss import batch_loss, batch_loss_backward, cross_entropy
from scratchformer.nn.ops import ops_of
from scratchformer.nn.optim import noam
from scratchformer.nn.parameter import as_tuple
from scratchformer.nn.sequence_layers import Convolution, RestrictedSelfAttention, SeparableConvolution
from scratchformer.nn.transformer import Transformer
from scratchformer.nn.vision import PatchEmbedding

# Empty arrays ---------------------------------------------------------------------------------------------------------


def without(axis):
    """A function that leaves an array nothing along this axis, 0 the batch, 1 the sequence; (B, D) has only a batch."""

    def emptied(array):
        if array.ndim == 1 and axis == 1:  # key lengths
            return np.zeros_like(array)
        return np.take(array, [], min(axis, array.ndim - 2) if array.dtype.kind == "f" else axis)

    return emptied


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.layer}: {case.description}")
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
            gradients = as_tuple(layer.backward(random_arrays(seed=0)(y.shape).astype(y.dtype), cache))
    except ValueError as error:
        assert re.search(r"\((\d+, ?)*0(,|\)|, )", str(error)), error  # it names a shape with a 0
        assert "reshape" not in str(error)
    else:
        assert y.size == 0 or y.ndim == y == 0
        assert all(gradient is None or gradient.size == 0 for gradient in gradients)
        assert not any(parameter.grad.any() for parameter in layer.parameters().values())


# Ids, types and images ------------------------------------------------------------------------------------------------


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
        "target_in_ids": [lambda: model.forward(fine, ids), lambda: batch_loss(model, (fine, ids), fine)],
        "targets": [
            lambda: batch_loss(model, (fine, fine), ids),
            lambda: batch_loss_backward(model, (fine, fine), ids),
        ],
    }
    for name, attempts in calls.items():
        for attempt in attempts:
            with pytest.raises(ValueError, match=re.escape(f"{name} {complaint}")):
                attempt()


def test_padding_within_a_source_is_refused(new_model):
    for ids in np.array([[3, 0, 4]]), np.array([[0, 3]]):
        with pytest.raises(ValueError, match="padding"):
            new_model().forward(ids, TARGET[:1])
        with pytest.raises(ValueError, match="padding"):
            begin_decoding(new_model(), ids)


def test_a_sequence_longer_than_the_table_of_positions_is_refused(new_model):
    model = new_model(positions="learned", max_positions=4)
    with pytest.raises(ValueError, match="max_positions=4"):
        model.forward(SOURCE, TARGET)


@pytest.mark.parametrize(
    "types, complaint",
    [
        (TYPES + 1, "token_types holds ids from 1 to 2; the vocabulary is 0 to 1"),
        (TYPES[:, :-1], r"token_types has shape \(3, 4\), but there are vectors for \(3, 5\)"),
        (TYPES * 1.0, "token_types must be a 2-D array of integers, not 2-D of float64"),
    ],
)
def test_wrong_token_types_are_refused(new_model, types, complaint):
    with pytest.raises(ValueError, match=complaint):
        new_model(architecture="encoder").forward(SOURCE, types)


def test_an_image_that_cannot_be_cut_into_squares_is_refused(random):
    with pytest.raises(ValueError, match="images of 4 x 6 pixels cannot be cut into patches of 4 x 4"):
        PatchEmbedding(4, 5, random).forward(np.zeros((1, 4, 6)))


SIZE = 6


@pytest.mark.parametrize(
    "images, complaint",
    [
        (np.zeros((SIZE, SIZE)), "images must be a 3-D array of numbers, not 2-D of float64"),
        (np.zeros((1, SIZE, SIZE), bool), "images must be a 3-D array of numbers, not 3-D of bool"),
        ([[[0.0]]], "images must be a 3-D array of numbers, not a list"),
        (np.zeros((1, SIZE, 8)), r"images has shape \(1, 6, 8\); the model reads one or more of 6 x 6 pixels"),
        (np.zeros((0, SIZE, SIZE)), r"images has shape \(0, 6, 6\)"),
        (np.full((1, SIZE, SIZE), np.nan), "images holds numbers that are not finite"),
    ],
)
def test_what_are_no_images_is_refused(images, complaint):
    model, _, _ = gradient_cases.make(gradient_cases.vision(1, image_size=SIZE), 0.0)
    with pytest.raises(ValueError, match=complaint):
        model.forward(images)


# Layers, losses and learning rates ------------------------------------------------------------------------------------


def test_heads_must_divide_the_width_or_be_given_a_size(random):
    with pytest.raises(ValueError, match="d_model=6 is not a multiple of h=4: give d_k and d_v"):
        SelfAttention(6, 4, random, d_k=7)
    assert SelfAttention(6, 4, random, d_k=7, d_v=8).output.weight.shape == (4 * 8, 6)


def test_parameters_are_floating_point_numbers():
    with pytest.raises(ValueError, match="floating-point numbers, not int32"):
        Transformer(SMALL, dtype="int32")


def test_more_children_than_a_key_can_tell_apart():
    key = DropoutKey(seed=0, step=1)
    assert key.child(0) != key.child(1022)
    for index in (-1, 1023):
        with pytest.raises(ValueError, match=f"child {index}"):
            key.child(index)


def test_arrays_of_an_unknown_library_are_named():
    with pytest.raises(TypeError, match="no operations in use for arrays of type builtins.list"):
        ops_of([1.0])


@pytest.mark.parametrize(
    "build",
    [
        lambda random: Convolution(6, 0, random),
        lambda random: SeparableConvolution(6, 0, random),
        lambda random: RestrictedSelfAttention(6, 2, 0, random),
        lambda random: Convolution(6, 3, random, dilation=0),
    ],
)
def test_a_window_of_no_positions_is_refused(random, build):
    with pytest.raises(ValueError, match="=0: must be at least 1"):
        build(random)


def test_a_place_that_cannot_receive_the_gradient_is_refused(random):
    logits = np.asfortranarray(random.normal(size=(3, 4, 11)))
    with pytest.raises(ValueError, match="row after row"):
        cross_entropy(logits, padded_ids(random, 4), 0.1, out=logits)


@pytest.mark.parametrize(
    "targets, smoothing, spread, complaint",
    [
        (np.ones((3, 4), int), -0.1, "others", "smoothing=-0.1"),
        (np.ones((3, 4), int), 1.0, "others", "smoothing=1.0"),
        (np.ones((4, 3), int), 0.1, "others", "do not belong together"),
        (np.ones((3, 4), int), 0.1, "all", "spread='all' is not one of others, uniform"),
        (np.full((3, 4), 11), 0.1, "others", "targets from 11 to 11, but there are 11 classes"),
        (np.full((3, 4), -1), 0.1, "others", "targets from -1 to -1"),
    ],
)
def test_an_impossible_loss_is_refused(random, targets, smoothing, spread, complaint):
    with pytest.raises(ValueError, match=complaint):
        cross_entropy(random.normal(size=(3, 4, 11)), targets, smoothing, spread)


@pytest.mark.parametrize("step, warmup", [(0, 4000), (-1, 4000), (1, 0)])
def test_steps_count_from_one(step, warmup):
    with pytest.raises(ValueError):
        noam(step, warmup=warmup)
