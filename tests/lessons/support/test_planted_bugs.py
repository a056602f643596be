import numpy as np
import pytest

from scratchformer.nn.ops import Ops
from scratchformer.text.tokenizer import BOS, EOS
from support import planted_bugs
from support.planted_bugs import BUGS, Batch, fresh, new_model, planted, train, words_right


def test_a_batch_reverses_its_words_and_shifts_what_the_decoder_reads():
    batch = Batch([np.array([3, 4, 5]), np.array([6, 7])])
    assert batch.source.tolist() == [[3, 4, 5, EOS], [6, 7, EOS, 0]]
    assert batch.write.tolist() == [[5, 4, 3, EOS], [7, 6, EOS, 0]]
    assert batch.read.tolist() == [[BOS, 5, 4, 3], [BOS, 7, 6, 0]]


def test_padding_counts_for_no_word():
    batch = Batch([np.array([3, 4, 5]), np.array([6, 7])])
    ids = batch.write.copy()
    ids[1, 3] = 9
    assert words_right(ids, batch) == 1
    ids[0, 0] = 9
    assert words_right(ids, batch) == 0.5


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_changes_a_step_of_training_and_is_gone_afterwards(bug):
    def weights_after(bug=None):
        with planted(bug):
            model = new_model(0)
            train(model, fresh(0), 2)
        return model.store.data.copy()

    honest = weights_after()
    assert np.abs(weights_after(bug) - honest).max() > 1e-9
    assert np.array_equal(weights_after(), honest)


def test_half_a_bug_can_be_planted():
    with planted("scaled by d_model", slice(1)):
        assert Ops.masked_softmax is not planted_bugs.soft
        assert Ops.masked_softmax_backward is planted_bugs.soft_back
