"""Roles of heads, on attention weights made up for the purpose."""

import numpy as np
import pytest

from scratchformer.experiments import head_roles as roles
from scratchformer.experiments.heads import SentenceAttention
from scratchformer.text.bundled import Example

EXAMPLE = Example("a b c", "A B C", "", "", [[0, 0], [1, 2], [2, 1]], None)
WORD_OF = np.array([0, 1, 1, 2, -1])  # five pieces with </s>
UNIFORM = np.full((5, 5), 1 / 5)


def pointing(to):
    """Weights (5, 5) that are 1 where each row points to."""
    return np.eye(5)[np.array(to)]


def sentence(encoder=UNIFORM, decoder=None, cross=UNIFORM):
    """One layer with one head of each kind."""
    decoder = np.tril(np.ones((5, 5))) / np.arange(1, 6)[:, None] if decoder is None else decoder
    return SentenceAttention(*(each[None, None] for each in (encoder, decoder, cross)), WORD_OF, WORD_OF)


def seen(attention, kind, name, example=EXAMPLE):
    [found] = [each[-1] for each in roles.observations(attention, example) if each[:2] == (kind, name)]
    return found


@pytest.mark.parametrize(
    "kind, name, to, cases",
    [
        ("encoder", "previous token", [3, 0, 1, 2, 3], 4),
        ("encoder", "same token", [0, 1, 2, 3, 4], 5),
        ("encoder", "next token", [1, 2, 3, 4, 0], 4),
        ("encoder", "sentence end", [4, 4, 4, 4, 4], 5),
        ("decoder", "previous token", [0, 0, 1, 2, 3], 4),
        ("decoder", "same token", [0, 1, 2, 3, 4], 4),  # the first row has only one key
        ("decoder", "sentence start", [0, 0, 0, 0, 0], 4),
        ("cross", "sentence end", [4, 4, 4, 4, 4], 5),
    ],
)
def test_attention_to_a_position(kind, name, to, cases):
    found = seen(sentence(**{kind: pointing(to)}), kind, name)
    assert found.hits.tolist() == [[cases]] and found.cases == cases and found.bar == cases / 2
    n_keys = [2, 3, 4, 5] if kind == "decoder" else [5] * cases
    assert found.baseline == pytest.approx(sum(1 / n for n in n_keys))
    elsewhere = seen(sentence(**{kind: pointing([2, 0, 0, 1, 2])}), kind, name)
    assert elsewhere.hits.item() < cases


def test_far_words(monkeypatch):
    monkeypatch.setattr(roles, "FAR", 1)
    attention = sentence(encoder=pointing([3, 0, 0, 4, 0]))  # word 0 to word 2; 1 to 0; 2 to </s>
    found = seen(attention, "encoder", "words over 1 away")
    assert (found.hits.item(), found.cases, found.bar) == (1, 4, pytest.approx(2 / 5))
    distances = roles.distances_of(attention, "encoder")
    assert (distances.weighted.item(), distances.weight.item()) == (2 + 1 + 1, 3)
    # rows of words 0, 1, 1, 2 with the keys 0, 1, 1, 2: 4, 2, 2, 4 words away in all
    assert distances.uniform_weighted == pytest.approx(12 / 5) and distances.uniform_weight == pytest.approx(16 / 5)


def test_the_decoder_is_read_a_step_later(monkeypatch):
    monkeypatch.setattr(roles, "FAR", 0)
    attention = sentence(decoder=pointing([0, 1, 1, 1, 1]))  # reads <s>, and words 0, 1, 1, 2
    found = seen(attention, "decoder", "words over 0 away")
    assert (found.hits.item(), found.cases) == (3, 4)  # word 0 itself is not far
    assert found.bar == pytest.approx(1 / 3 + 1 / 4 + 3 / 5)


def test_alignment_is_compared_with_the_diagonal():
    found = seen(sentence(cross=pointing([0, 3, 3, 1, 4])), "cross", "alignment")  # words 0, 2, 1
    assert (found.hits.item(), found.bar, found.cases) == (3, 1, 3)
    assert "alignment" not in [name for _, name, _, _ in roles.observations(sentence(), None)]


def summary(scores):
    """Of sentences with one case each, for one head and the bar 0.5."""
    of_sentences = [roles.Observation(np.array([[score]]), 0.1, 0.5, 1.0) for score in scores]
    return roles.summary("encoder", "previous token", "uniform", of_sentences)


def test_a_role_needs_more_than_chance():
    def has(role, n_tried=1):
        others = [role._replace(scores=np.zeros((1, n_tried - 1)), errors=np.ones((1, n_tried - 1)))]
        return roles.Roles([role, *others], {}, {}).heads_with(role).item()

    assert has(summary([1] * 20)) and not has(summary([0.5] * 20))
    weak = summary([1] * 65 + [0] * 35)  # 3.1 standard errors above the bar
    assert weak.scores.item() == 0.65 and (0.15 / weak.errors.item()) == pytest.approx(3.13, abs=0.01)
    assert has(weak) and not has(weak, n_tried=100)
    assert not has(summary([1])), "a single sentence says nothing about others"
    assert roles.corrected_z(1) == pytest.approx(1.645, abs=1e-3)
    assert roles.corrected_z(100) == pytest.approx(3.290, abs=1e-3)
