"""How a Vision Transformer cuts an image, which pixels reach which class, and what it refuses."""

import numpy as np
import pytest

from scratchformer.nn import gradient_cases
from scratchformer.nn.gradient_cases import FLOAT64
from scratchformer.nn.loss import batch_loss_backward
from scratchformer.nn.vision import PatchEmbedding

B, SIZE, P = 3, 6, 2
EXACTLY = {"rtol": 0, "atol": 1e-12}


@pytest.fixture
def model_and_images():
    build = gradient_cases.vision(B, norm="pre", positions="learned", image_size=SIZE)
    model, (images,), _ = gradient_cases.make(build, 0.0)
    return model, images.astype(FLOAT64)


def logits(model, images):
    return model.forward(images)[0]


def test_a_patch_is_a_square_and_its_pixels_are_read_row_by_row(random):
    layer = PatchEmbedding(P, P * P, random, FLOAT64)
    layer.projection.weight.data[...] = np.eye(P * P)
    image = np.arange(24.0).reshape(1, 4, 6)
    y, _ = layer.forward(image)
    expected = [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11], [12, 13, 18, 19], [14, 15, 20, 21], [16, 17, 22, 23]]
    assert np.array_equal(y[0], expected)


def test_an_image_that_cannot_be_cut_into_squares_is_refused(random):
    with pytest.raises(ValueError, match="images of 4 x 6 pixels cannot be cut into patches of 4 x 4"):
        PatchEmbedding(4, 5, random).forward(np.zeros((1, 4, 6)))


@pytest.mark.parametrize("pixel", range(SIZE**2))
def test_every_pixel_reaches_the_class(model_and_images, pixel):
    model, images = model_and_images
    changed = images.copy()
    changed.reshape(B, -1)[:, pixel] += 1
    assert (np.abs(logits(model, changed) - logits(model, images)).max(axis=-1) > 1e-6).all()


def test_patches_may_change_places_with_their_positions(model_and_images, random):
    """Attention has no order of its own: the class token is first, and of the patches only P says where each stood."""
    model, images = model_and_images
    before, side = logits(model, images), SIZE // P
    order = random.permutation(side**2)
    squares = images.reshape(B, side, P, side, P).swapaxes(2, 3).reshape(B, side**2, P, P)
    shuffled = squares[:, order].reshape(B, side, side, P, P).swapaxes(2, 3).reshape(images.shape)
    assert np.abs(logits(model, shuffled) - before).max() > 1e-6
    weight = model.positions.weight.data
    weight[1 : side**2 + 1] = weight[1 + order]
    np.testing.assert_allclose(logits(model, shuffled), before, **EXACTLY)


@pytest.mark.parametrize("row", range(B))
def test_an_image_does_not_depend_on_its_batch(model_and_images, row):
    model, images = model_and_images
    np.testing.assert_allclose(logits(model, images[[row]])[0], logits(model, images)[row], **EXACTLY)


def test_the_gradient_of_a_batch_is_the_sum_of_those_of_its_images(model_and_images):
    model, images = model_and_images
    targets = np.array([[2], [0], [3]])
    batch_loss_backward(model, (images,), targets, 0.1)
    together = model.store.grad.copy()
    model.zero_grad()
    for row in range(B):
        batch_loss_backward(model, (images[[row]],), targets[[row]], 0.1)
    np.testing.assert_allclose(model.store.grad, together, **EXACTLY)


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
def test_what_are_no_images_is_refused(model_and_images, images, complaint):
    with pytest.raises(ValueError, match=complaint):
        logits(model_and_images[0], images)
