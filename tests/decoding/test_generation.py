"""A language model continues a text: with a cache as without, and by the distribution that is asked for."""

from dataclasses import replace

import numpy as np
import pytest

from scratchformer.config import ModelConfig
from scratchformer.decoding.generation import NEVER_WRITTEN, Sampling, generate, probabilities
from scratchformer.decoding.incremental import begin_generation, generation_step
from scratchformer.errors import UserError
from scratchformer.nn.attention import KeyValueCache
from scratchformer.nn.language_model import LanguageModel
from scratchformer.text.tokenizer import BOS, EOS, N_SPECIALS, PAD

V = 9
CONFIG = ModelConfig(architecture="decoder", vocab_size=V, N=2, d_model=8, d_ff=16, h=2, P_drop=0, max_positions=50)
GPT2 = {"norm": "pre", "positions": "learned", "feed_forward": "gelu"}
PROMPT = [BOS, 5, 7, 4]
GREEDY = Sampling(temperature=0)


def new_model(without_end=True, **changes):
    """A model that nobody has trained, with weights large enough to have opinions."""
    model = LanguageModel(replace(CONFIG, tied="none", **changes), seed=3, dtype="float64")
    model.store.data *= 2
    if without_end:
        weight = model.unembedding.weight.data
        weight[EOS] = (weight[4] + weight[5]) / 2  # the mean of two logits is not the largest
    return model


arrangements = pytest.mark.parametrize("changes", [{}, GPT2], ids=["sinusoidal", "learned"])


def written(*arguments, **options):
    """The tokens that `generate` writes -> (samples, steps)"""
    return np.stack(list(generate(*arguments, **options)), axis=1)


# The cache ------------------------------------------------------------------------------------------------------------


@arrangements
def test_the_cache_gives_the_logits_of_forward(changes):
    """The first tokens at once, then one by one, beyond the room that a new cache has, then several again."""
    model = new_model(**changes)
    texts = np.random.default_rng(0).integers(N_SPECIALS, V, (3, KeyValueCache.INITIAL_POSITIONS + 8))
    expected, _ = model.forward(texts)
    cache, read = begin_generation(model, len(texts)), 0
    for end in [5, *range(6, KeyValueCache.INITIAL_POSITIONS + 3), texts.shape[1]]:
        logits = generation_step(model, texts[:, read:end], cache)
        np.testing.assert_allclose(logits, expected[:, end - 1], rtol=0, atol=1e-12)
        read = end


@arrangements
@pytest.mark.parametrize("window", [1, 6, 7, None])
def test_the_most_likely_token_is_written_and_a_full_window_slides_by_half(changes, window):
    model = new_model(**changes)
    text, first = list(PROMPT), max(0, len(PROMPT) - (window or 99))
    for _ in range(20):
        if window and len(text) - first > window:
            first = len(text) - max(1, window // 2)
        logits = model.forward(np.array([text[first:]]))[0][0, -1]
        logits[NEVER_WRITTEN] = -np.inf
        text.append(int(logits.argmax()))
    assert written(model, PROMPT, 20, GREEDY, window=window).tolist() == [text[len(PROMPT) :]]


def test_learned_positions_limit_the_window():
    model = new_model(**GPT2, max_positions=7)
    assert np.array_equal(written(model, PROMPT * 4, 20, GREEDY), written(model, PROMPT * 4, 20, GREEDY, window=7))


# The distribution -----------------------------------------------------------------------------------------------------

HALVES = np.array([0, 0.05, 0, 0, 0.1, 0.5, 0.25, 0.1, 0])


@pytest.mark.parametrize(
    "sampling, expected",
    [
        (Sampling(), HALVES),
        (Sampling(temperature=0), [0, 0, 0, 0, 0, 1, 0, 0, 0]),
        (Sampling(temperature=0.5), HALVES**2 / (HALVES**2).sum()),
        (Sampling(top_k=1), [0, 0, 0, 0, 0, 1, 0, 0, 0]),
        (Sampling(top_k=3), HALVES * [0, 0, 0, 0, 1, 1, 1, 0, 0] / 0.85),  # of two equal ones, the first
        (Sampling(top_k=V + 1), HALVES),
        (Sampling(top_p=0.499), [0, 0, 0, 0, 0, 1, 0, 0, 0]),
        (Sampling(top_p=0.51), HALVES * [0, 0, 0, 0, 0, 1, 1, 0, 0] / 0.75),
        (Sampling(top_p=0.76), HALVES * [0, 0, 0, 0, 1, 1, 1, 0, 0] / 0.85),
        (Sampling(top_k=2, top_p=0.7), HALVES * [0, 0, 0, 0, 0, 1, 1, 0, 0] / 0.75),  # 2/3 is not 0.7 yet
        (Sampling(top_k=2, top_p=0.6), [0, 0, 0, 0, 0, 1, 0, 0, 0]),  # 2/3 of what top_k has left
    ],
    ids=str,
)
def test_the_distribution_is_the_one_asked_for(sampling, expected):
    with np.errstate(divide="ignore"):
        logits = np.log(HALVES) + 7
    logits[NEVER_WRITTEN] = 9  # however likely the model finds them
    np.testing.assert_allclose(probabilities(logits[None], sampling), [expected], rtol=0, atol=1e-12)
    with pytest.raises(UserError, match="not finite"):
        probabilities(np.full((1, V), np.nan), sampling)


def test_tokens_come_as_often_as_their_probability_says():
    model, n = new_model(), 4000
    (drawn,) = generate(model, PROMPT, 1, Sampling(0.7, top_k=5), samples=n)
    p = probabilities(model.forward(np.array([PROMPT]))[0][:, -1], Sampling(0.7, top_k=5))[0]
    np.testing.assert_allclose(np.bincount(drawn, minlength=V) / n, p, rtol=0, atol=5 * 0.5 / n**0.5)


# Seeds, ends, several samples -----------------------------------------------------------------------------------------


def test_a_sample_depends_on_the_seed_and_its_number_alone():
    model = new_model()
    three = written(model, PROMPT, 10, Sampling(2), seed=5, samples=3)
    assert np.array_equal(three, written(model, PROMPT, 10, Sampling(2), seed=5, samples=3))
    two = written(model, PROMPT, 10, Sampling(2), seed=5, samples=2)
    other = written(model, PROMPT, 10, Sampling(2), seed=6, samples=3)
    steps = min(two.shape[1], other.shape[1])
    assert np.array_equal(three[:2, :steps], two[:, :steps]) and len({tuple(row) for row in three.tolist()}) == 3
    assert not np.array_equal(three[:, :steps], other[:, :steps])


def test_a_sample_that_has_ended_stays_so_and_the_others_go_on():
    model = new_model(without_end=False)
    ids = written(model, PROMPT, 200, Sampling(1.5), samples=8)
    assert not np.isin(ids, [BOS, 3]).any()
    ends = (ids == EOS).argmax(axis=1)
    assert (ids[np.arange(8), ends] == EOS).all() and len(set(ends)) > 2 and ids.shape[1] == ends.max() + 1 < 200
    assert all((row[: end + 1] != PAD).all() and (row[end + 1 :] == PAD).all() for row, end in zip(ids, ends))
