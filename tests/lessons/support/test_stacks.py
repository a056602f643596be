import numpy as np
import pytest

from scratchformer.nn.gradcheck import gradcheck
from scratchformer.nn.layers import FeedForward, LayerNorm
from support.stacks import WAYS, Block, Classifier, Passage, cosine, sentences, stack, train

random = np.random.default_rng(0)


@pytest.mark.parametrize("way", WAYS)
def test_a_box_has_the_right_gradient(way):
    box = Block(way, FeedForward(6, 10, random, "float64"), 6, "float64")
    box.norm.gamma.data[...] = random.normal(1, 0.5, 6)
    report = gradcheck(box, random.normal(size=(2, 3, 6)))
    assert report.passed, report


def test_what_each_way_computes():
    f, x = FeedForward(6, 10, random, "float64"), random.normal(size=(2, 3, 6))

    def norm(x):
        return LayerNorm(6, "float64").forward(x)[0]

    def sublayer(x):
        return f.forward(x)[0]

    expected = {
        "bare": sublayer(x),
        "norm only": norm(sublayer(x)),
        "residual only": x + sublayer(x),
        "post-LN": norm(x + sublayer(x)),
        "pre-LN": norm(x + sublayer(norm(x))),
    }
    for way in WAYS:
        y = x
        for layer in stack(way, [f], 6, "float64"):
            y, _ = layer.forward(y)
        assert np.allclose(y, expected[way], rtol=1e-12), way


def test_a_classifier_learns():
    model, data = Classifier("post-LN", 2, seed=0), sentences()
    losses = [loss for _, loss in train(model, 0.1, seed=0, steps=20)]
    assert np.mean(losses[-5:]) < losses[0]
    assert 0 <= model.share_right(data.x_test, data.t_test) <= 1


def test_fixed_weights_change_backward_alone():
    free, fixed = (Passage("residual only", seed=0, n=4, fixed_weights=value) for value in (False, True))
    assert np.array_equal(free.sizes, fixed.sizes) and not np.allclose(free.gradients, fixed.gradients)
    assert free.gradients.shape == free.likeness.shape == (4,)
    plain = (Passage("bare", 0, 4, "feed-forward only", fixed_weights=value) for value in (False, True))
    assert np.equal(*(passage.gradients for passage in plain)).all()


def test_cosine():
    a = np.array([[1.0, 2, 3]])
    assert cosine(a, 3 * a + 5) == pytest.approx(1)
    assert cosine(a, -a) == pytest.approx(-1)
