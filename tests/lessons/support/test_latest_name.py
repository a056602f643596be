import numpy as np
import pytest

from scratchformer.nn.attention import Mask
from support.latest_name import KINDS, NAMES, NoNewDistances, Reader, latest_name, trained, without_new_distances
from support.positions import RotaryAttention

random = np.random.default_rng(0)


def test_the_answer_is_the_latest_name():
    ids, answers = latest_name(random, 50, 12)
    assert (ids[:, 0] < NAMES).all() and (ids >= 1).all()
    for row, answer in zip(ids, answers):
        name = 0
        for word, said in zip(row, answer):
            name = word if word < NAMES else name
            assert said == name


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_learns(kind):
    reader = trained(kind, seed=0, steps=30)
    assert reader.accuracy(8) > Reader(kind, seed=0).accuracy(8)


def test_only_distances_beyond_training_change():
    q, k, v = random.normal(size=(3, 1, 30, 4, 8))
    mask = Mask(causal=True)
    plain = RotaryAttention().forward(q, k, v, mask)[0]
    assert np.allclose(NoNewDistances().forward(q, k, v, mask)[0], plain)
    changed = NoNewDistances(0, 1, 2, 3).forward(q, k, v, mask)[0]
    assert not np.allclose(changed[:, -1], plain[:, -1])
    short = [array[:, :20] for array in (q, k, v)]
    assert np.allclose(NoNewDistances(0, 1, 2, 3).forward(*short, mask)[0], RotaryAttention().forward(*short, mask)[0])


def test_the_reader_is_left_as_it_was():
    reader = Reader("rotary", seed=0)
    before = reader.attention.attention
    accuracy, far = without_new_distances([reader], 1, n=30)
    assert reader.attention.attention is before and 0 <= accuracy <= 1 and 0 < far < 1
