"""Every layer and model that the lessons build has the gradient of its outputs."""

import numpy as np
import pytest

from scratchformer.nn.dropout import DropoutKey
from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import FeedForward, Linear, PositionalEncoding
from scratchformer.nn.loss import cross_entropy
from support.feed_forward import Judge, sentences
from support.next_word import NEW, NextWord, shifted
from support.positions import Shifted
from support.recall import SYMBOLS, AttentionReader, FirstSymbol
from support.recurrent import LSTM, RNN, AdditiveAttention
from support.reversal import EncoderDecoder, PlainMean, pairs
from support.stacks import WAYS, Block
from support.to_the_left import Reader
from support.word_translator import LastState, Network

random = np.random.default_rng(0)
READ = shifted(NEW[:1])[0][:, :3]


def normal(*shape):
    return random.normal(size=shape)


def feed_forward(d_model):
    return FeedForward(d_model, 9, random, "float64")


LOOKS = {kind: kind(4, 5, 6, random, "float64") for kind in (AdditiveAttention, PlainMean, LastState)}
CASES = {
    "Judge": (Judge(0, lambda random: [feed_forward(12)]), sentences()[0][:6]),
    "AttentionReader": (AttentionReader(3, 5, random, "float64"), normal(2, 4, 3)),
    "Shifted": (Shifted(PositionalEncoding(0.3), 4), normal(3, 4, 8), 2),
    "NextWord": (NextWord(causal=True, seed=0, d_model=8, N=2), READ),
    "Reader": (Reader(normal(3, 4), 5, 0), np.array([[1, 4, 2]])),
    **{f"Block, {way}": (Block(way, feed_forward(6), 6, "float64"), normal(2, 3, 6)) for way in WAYS},
    **{kind.__name__: (look, normal(2, 3, 4), normal(2, 7, 5)) for kind, look in LOOKS.items()},
    **{
        f"FirstSymbol, {kind.__name__}": (FirstSymbol(kind, 5, seed=0), normal(3, 4, 1 + SYMBOLS))
        for kind in (RNN, LSTM, AttentionReader)
    },
}


@pytest.mark.parametrize("name", CASES)
def test_backward_agrees_with_finite_differences(name):
    layer, *inputs = CASES[name]
    drops = name == "Shifted"
    report = gradcheck(layer, *inputs, **({"rng": DropoutKey(0, 1)} if drops else {}))
    assert report.passed, f"\n{report}"


@pytest.mark.parametrize(
    "options",
    [
        dict(),
        dict(look=PlainMean),
        dict(look=AdditiveAttention, encoder=Linear, decoder=Linear, positions="ed"),
        dict(look=AdditiveAttention, encoder=RNN, decoder=Linear, positions="d"),
    ],
    ids=str,
)
def test_an_encoder_decoder_has_the_gradient_of_its_loss(options):
    model = EncoderDecoder(5, seed=0, d=6, **options)
    source, read, target = pairs(np.random.default_rng(0), 3, 5)

    def backward():
        scores, cache = model.forward(source, read)
        assert model.backward(cross_entropy(scores, target)[2], cache) is None

    require_slope(model, lambda: cross_entropy(model.forward(source, read)[0], target)[0], backward)


def test_a_translator_of_words_has_the_gradient_of_its_loss():
    model = Network(9, 8, AdditiveAttention, seed=0, d=6, dtype="float64")
    source, read, target = (
        np.array([[3, 4, 5], [6, 3, 8]]),
        np.array([[1, 3, 3, 4], [1, 7, 0, 0]]),
        np.array([[3, 3, 4, 2], [7, 2, 0, 0]]),
    )

    def backward():
        scores, cache = model.forward(source, read)
        assert model.backward(cross_entropy(scores, target)[2], cache) is None

    require_slope(model, lambda: cross_entropy(model.forward(source, read)[0], target)[0], backward)


def require_slope(model, loss, backward):
    """The gradient that `backward` adds is that of the loss, along one direction of all parameters."""
    store = model.store
    direction, start = np.random.default_rng(1).normal(size=store.data.shape), store.data.copy()
    model.zero_grad()
    backward()
    ends = []
    for sign in 1, -1:
        store.data[...] = start + sign * 1e-6 * direction
        store.refresh()
        ends.append(loss())
    store.data[...] = start
    assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(store.grad @ direction, rel=1e-5)
