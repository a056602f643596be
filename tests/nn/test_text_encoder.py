"""A text encoder reads in both directions, skips padding, knows segments, and reads a class at its first position."""

from dataclasses import replace

import numpy as np
import pytest

from scratchformer.nn.gradient_cases import FLOAT64, SMALL
from scratchformer.nn.text_encoder import TextEncoder, TokenTypes

IDS = np.array([[2, 9, 4, 1, 7, 1], [2, 5, 1, 6, 1, 0], [2, 8, 1, 0, 0, 0]])  # (B, T), ragged
TYPES = np.array([[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0]])
B, T = IDS.shape
REAL = IDS != 0
EXACTLY = {"rtol": 0, "atol": 1e-12}
BOTH_HEADS = pytest.mark.parametrize("n_classes", [0, 2], ids=["words", "classes"])


def new_encoder(n_classes=0, **changes):
    return TextEncoder(replace(SMALL, architecture="encoder", n_classes=n_classes, **changes), dtype=FLOAT64)


def logits(model, ids=IDS, types=TYPES):
    return model.forward(ids, types)[0]


def changed_at(values, row, position, to):
    changed = values.copy()
    changed[row, position] = to
    assert (changed != values).any()
    return changed


def test_a_token_type_adds_its_vector(random):
    layer, x = TokenTypes(6, random, FLOAT64), random.normal(size=(B, T, 6))
    y, _ = layer.forward(x, TYPES)
    first, second = layer.weight.data
    np.testing.assert_allclose(y, np.where(TYPES[..., None] == 0, x + first, x + second), **EXACTLY)


@BOTH_HEADS
@pytest.mark.parametrize("row, position", np.argwhere(REAL).tolist())
def test_every_token_and_its_type_reach_every_output_of_its_text_and_no_other(n_classes, row, position):
    model = new_encoder(n_classes)
    before = logits(model)
    for after in (
        logits(model, ids=changed_at(IDS, row, position, 10)),
        logits(model, types=changed_at(TYPES, row, position, 1 - TYPES[row, position])),
    ):
        change = np.abs(after - before).max(axis=-1)  # (B, T) or (B, 1)
        reached = np.zeros_like(change, bool)
        reached[row] = REAL[row, : change.shape[1]]
        assert (change[reached] > 1e-6).all()
        assert not change[np.delete(np.arange(B), row)].any()


@BOTH_HEADS
def test_padding_and_the_rest_of_the_batch_change_nothing(n_classes):
    model = new_encoder(n_classes)
    together = logits(model)
    padded = logits(model, *(np.pad(values, ((0, 0), (0, 3))) for values in (IDS, TYPES)))
    np.testing.assert_allclose(padded[:, : together.shape[1]], together, **EXACTLY)
    for row, length in enumerate(REAL.sum(axis=1)):
        alone = logits(model, IDS[[row], :length], TYPES[[row], :length])
        np.testing.assert_allclose(alone[0], together[row, :length], **EXACTLY)


def test_words_are_predicted_with_their_embedding_and_classes_with_vectors_of_their_own():
    words, untied, classes = new_encoder(), new_encoder(tied="none"), new_encoder(n_classes=2)
    assert words.unembedding.weight is words.embedding.weight
    assert untied.unembedding.weight is not untied.embedding.weight
    assert logits(words).shape == logits(untied).shape == (B, T, SMALL.vocab_size)
    assert logits(classes).shape == (B, 1, 3)
    for name, weight in words.parameters().items():  # what fine-tuning takes from pretraining
        assert classes.parameters()[name].shape == weight.shape


@pytest.mark.parametrize(
    "types, complaint",
    [
        (TYPES + 1, "token_types holds ids from 1 to 2; the vocabulary is 0 to 1"),
        (TYPES[:, :-1], r"token_types has shape \(3, 5\), but there are vectors for \(3, 6\)"),
        (TYPES * 1.0, "token_types must be a 2-D array of integers, not 2-D of float64"),
    ],
)
def test_what_are_no_types_is_refused(types, complaint):
    with pytest.raises(ValueError, match=complaint):
        new_encoder().forward(IDS, types)
