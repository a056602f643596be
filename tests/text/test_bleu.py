import math

import pytest

from scratchformer.errors import UserError
from scratchformer.text.bleu import corpus_scores

REFERENCES = ["The quick brown fox jumps over the lazy dog.", "Ein Hund läuft über die Straße."]


def test_perfect_translations():
    scores = corpus_scores(REFERENCES, REFERENCES)
    assert scores.bleu == pytest.approx(100)
    assert scores.chrf == pytest.approx(100)
    assert scores.brevity_penalty == 1
    assert scores.length_ratio == 1
    assert scores.n_sentences == 2


def test_a_score_worked_out_by_hand():
    # Precisions 5/5, 4/4, 3/3, 2/2; 5 tokens against 6.
    scores = corpus_scores(["the cat sat on the"], ["the cat sat on the mat"])
    assert scores.length_ratio == pytest.approx(5 / 6)
    assert scores.brevity_penalty == pytest.approx(math.exp(1 - 6 / 5))
    assert scores.bleu == pytest.approx(100 * math.exp(1 - 6 / 5))


def test_bleu_is_computed_from_the_counts_of_the_corpus():
    # Unigrams 7/8, bigrams 4/6, trigrams 2/4, 4-grams 1/2 (the first sentence has one, the second's is wrong).
    scores = corpus_scores(["a b c d", "e f x g"], ["a b c d", "e f y g"])
    assert scores.bleu == pytest.approx(100 * (7 / 8 * 4 / 6 * 2 / 4 * 1 / 2) ** (1 / 4))


def test_case_counts():
    assert corpus_scores([text.lower() for text in REFERENCES], REFERENCES).bleu < 90


def test_signatures_name_the_settings():
    scores = corpus_scores(REFERENCES, REFERENCES)
    assert scores.bleu_signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert scores.chrf_signature.startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:")


def test_empty_translations_score_zero():
    scores = corpus_scores(["", ""], REFERENCES)
    assert scores.bleu == scores.chrf == scores.length_ratio == 0


def test_different_numbers_of_sentences():
    with pytest.raises(UserError, match="1 translations .* 2 references"):
        corpus_scores(REFERENCES[:1], REFERENCES)


def test_nothing_to_score():
    with pytest.raises(UserError, match="no translations"):
        corpus_scores([], [])
