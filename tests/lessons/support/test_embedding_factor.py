import numpy as np
import pytest

from scratchformer.nn.gradcheck import gradcheck
from scratchformer.text.tokenizer import PAD
from support.embedding_factor import NO_FACTOR, PAPER, ROOT_D, Factors, TiedNextWord, repeated, train
from support.next_word import NEW, mean_loss, shifted

read, write = shifted(NEW[:4])


@pytest.mark.parametrize("factors", [PAPER, NO_FACTOR, Factors(1, ROOT_D, ROOT_D), Factors(ROOT_D, 1, 1)])
def test_backward_is_true_where_gradient_equals_steps(factors):
    model = TiedNextWord(0, factors)
    model.embedding.weight.data += 0.01  # so that the change counts
    report = gradcheck(model, read[:1, :3])
    assert report.passed, report


def test_the_gradient_s_factor_changes_backward_alone():
    models = [TiedNextWord(0, PAPER._replace(gradient=factor)) for factor in (ROOT_D, 1)]
    outputs = [model.forward(read) for model in models]
    assert np.array_equal(outputs[0][0], outputs[1][0])
    dlogits = np.random.default_rng(0).normal(size=outputs[0][0].shape)
    for model, (_, cache) in zip(models, outputs):
        model.zero_grad()
        model.backward(dlogits, cache)
    large, small = (model.embedding.weight.grad for model in models)
    never_read = np.setdiff1d(np.arange(len(large)), read)
    assert np.allclose(large[never_read], small[never_read]) and not np.allclose(large, small)


def test_start_and_steps_are_scaled_apart():
    model = TiedNextWord(0, Factors(2, 3, 1))
    before, change = model.embedding.weight.data.copy(), np.full(64, 0.5)
    seen = []
    model.layer.forward = lambda x, mask: (seen.append(x), (x, None))[1]
    model.forward(read)
    model.embedding.weight.data += change
    model.forward(read)
    assert np.allclose(seen[1] - seen[0], 3 * change * (read != PAD)[..., None])
    word = before[read[0, 1]]
    position = model.positions.forward(np.zeros((1, 2, 64)))[0][0, 1]
    assert np.allclose(seen[0][0, 1], 2 * word + position)


def test_rows_of_their_own_are_not_tied_at_the_start():
    own = TiedNextWord(0, own_rows=True)
    probability, _ = repeated(own.forward(read)[0], read, write)
    tied, _ = repeated(TiedNextWord(0).forward(read)[0], read, write)
    assert probability < 0.01 < 0.05 < tied


def test_what_is_left_if_the_word_just_read_is_struck():
    logits = np.zeros((1, 2, 5))
    ids = np.array([[3, 4]])
    probability, loss = repeated(logits, ids, np.array([[4, 3]]))
    assert probability == pytest.approx(1 / 5) and loss == pytest.approx(np.log(4))


def test_training_lowers_the_loss():
    model = TiedNextWord(0)
    before = mean_loss(model.forward(read)[0], write)
    assert len(train(model, 0, steps=10)) == 10
    assert mean_loss(model.forward(read)[0], write) < before
