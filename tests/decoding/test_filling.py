"""[MASK] is filled with what the model finds most likely there, and a bad text is refused in one line."""

from dataclasses import replace

import numpy as np
import pytest

from scratchformer.decoding.filling import Filler
from scratchformer.errors import UserError
from scratchformer.nn.gradient_cases import SMALL
from scratchformer.nn.text_encoder import TextEncoder
from scratchformer.text.tokenizer import BOS, EOS, MASK, Tokenizer

SENTENCES = ["The dog sleeps.", "The cat sleeps.", "A dog sees the cat.", "The cats see a dog."] * 5


@pytest.fixture(scope="module")
def filler():
    tokenizer = Tokenizer.train(SENTENCES, 44, masks=True)
    sizes = replace(SMALL, architecture="encoder", vocab_size=tokenizer.vocab_size, d_model=16)
    return Filler(TextEncoder(sizes, seed=3), tokenizer, max_length=12)


def hidden(filler, sentence, *places):
    """The ids of a sentence, with some hidden."""
    ids = np.array([BOS, *filler.tokenizer.encode([sentence])[0], EOS])
    ids[list(places)] = MASK
    return ids


@pytest.mark.parametrize(
    "text, place", [("The [MASK] sleeps.", 2), ("[MASK] dog sleeps.", 1), ("The dog sleeps[MASK]", -2)]
)
def test_a_mask_stands_for_the_piece_with_the_space_before_it(filler, text, place):
    of_sentence = filler.probabilities(hidden(filler, "The dog sleeps.", place))
    found = filler.fill(text, top=3).candidates
    best = np.sort(of_sentence[0])[::-1][:3]
    np.testing.assert_allclose([each.probability for each in found[0]], best, rtol=1e-5)


def test_probabilities_are_those_of_the_model_without_special_tokens(filler):
    ids = hidden(filler, "The dog sleeps.", 2)
    logits = filler.model.forward(ids[None], np.zeros_like(ids)[None])[0][0, 2]
    expected = np.exp(logits.astype(float)) * (np.arange(len(logits)) > MASK)
    [found] = filler.probabilities(ids)
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-5)


def test_of_several_masks_the_surest_is_filled_first_and_read_for_the_next(filler):
    ids = hidden(filler, "A dog sees the cat.", 1, 2, 4)
    for _ in range(3):
        probabilities = filler.probabilities(ids)
        row = probabilities.max(axis=-1).argmax()
        ids[np.flatnonzero(ids == MASK)[row]] = probabilities[row].argmax()
    filling = filler.fill("[MASK] [MASK] sees [MASK] cat.")
    assert filling.text == filler.tokenizer.decode([ids.tolist()])[0]
    assert len(filling.candidates) == 3


def test_pieces_that_continue_a_word_are_marked(filler):
    [candidates] = filler.fill("The [MASK] sleeps.", top=1000).candidates
    texts = [candidate.text for candidate in candidates]
    assert len(texts) == filler.tokenizer.vocab_size - MASK - 1
    assert {"The", "dog", "."} <= set(texts)
    assert any(text.startswith("##") for text in texts)


def test_a_text_that_cannot_be_filled_in(filler):
    with pytest.raises(UserError, match=r"^line 7: no \[MASK\] to fill in$"):
        filler.fill("The dog sleeps.", place="line 7")
    with pytest.raises(UserError, match="^line 7: 18 tokens, and the model was trained on at most 12$"):
        filler.fill("The [MASK] sleeps. " * 4, place="line 7")
