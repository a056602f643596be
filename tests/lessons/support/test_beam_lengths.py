import numpy as np

from support.beam_lengths import written_by
from support.bleu_by_hand import bleu, count_table

REFERENCES = ["a b c d e".split(), "b c d".split(), "d e".split()]
TRANSLATIONS = ["a b c d".split(), [], "e d e".split()]


def row(values):
    return " ".join(map(str, values))


def setting_of(translations):
    table = count_table(translations, REFERENCES)
    matches = {f"matches_{n}": row(table[:, n - 1]) for n in range(1, 5)}
    tokens, words = row(len(words) + 1 for words in translations), row(map(len, translations))
    return {"beam": 2, "alpha": 0.6, "log_probability": -3.0, "tokens": tokens, "words": words} | matches


def test_the_table_of_bleu_comes_back():
    run = {"reference_words": row(map(len, REFERENCES)), "settings": [setting_of(TRANSLATIONS)]}
    written = written_by(run)[2, 0.6]
    assert np.array_equal(written.table, count_table(TRANSLATIONS, REFERENCES))
    assert written.bleu == bleu(count_table(TRANSLATIONS, REFERENCES).sum(axis=0))
    assert written.empty.tolist() == [False, True, False]


def test_empty_translations_are_replaced():
    one, other = (
        written_by({"reference_words": row(map(len, REFERENCES)), "settings": [setting_of(texts)]})[2, 0.6]
        for texts in (TRANSLATIONS, REFERENCES)
    )
    repaired = one.where_empty(other)
    assert np.array_equal(repaired.table, count_table([TRANSLATIONS[0], REFERENCES[1], TRANSLATIONS[2]], REFERENCES))
    assert repaired.tokens.tolist() == [5, 4, 4]
